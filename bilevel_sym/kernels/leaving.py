"""What lies outside of a problem's box: it is where things are looked for, and keeps nothing in."""

from __future__ import annotations

import numpy as np

from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.typing import Bools, Floats

__all__ = ["BOX_IS_NO_CONSTRAINT", "outside", "outside_in_words"]

SLACK = 1e-6  # of the width of an interval: y is an estimate of y*, which may stand on an end
BOX_IS_NO_CONSTRAINT = "a box is where things are looked for, not a constraint: see `bilevel-sym docs constraints`"


def outside(problem: BilevelProblem, role: str, rows: Floats, slack: float = SLACK) -> Bools:
    """Which entries of these points, (S, d) or (S, n), lie outside of the box; none where it has no ends for them.

    - ``problem``: the problem, with its box.
    - ``role``: "x" or "y".
    - ``rows``: the points.
    - ``slack``: what does not count, as a part of each interval.

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x*y", "(y - x)**2", "x", "y", box={"x": (0, 2), "y": (0, 1)})
    >>> outside(problem, "y", np.array([[1.0], [1.5]])).tolist()
    [[False], [True]]
    """
    ends = problem.ends(role)
    if ends is None:
        return np.zeros(rows.shape, dtype=np.bool_)
    low, high = (np.array([float(pair[k]) for pair in ends]) for k in (0, 1))
    room = slack * (high - low)
    found: Bools = (rows < low - room) | (rows > high + room)
    return found


def outside_in_words(problem: BilevelProblem, role: str, row: Floats) -> str:
    """The first entry of a point that lies outside, with its interval; empty where none does.

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x*y", "(y - x)**2", "x", "y", box={"x": (0, 2), "y": (0, 1)})
    >>> outside_in_words(problem, "y", np.array([1.5])), outside_in_words(problem, "y", np.array([0.5]))
    ('y = 1.5 is not in [0, 1]', '')
    """
    places = np.flatnonzero(outside(problem, role, row[None])[0])
    if not len(places):
        return ""
    k, ends = int(places[0]), problem.ends(role)
    assert ends is not None
    symbols = problem.x_entries if role == "x" else problem.y_entries
    low, high = (float(end) for end in ends[k])
    return f"{symbols[k].name} = {row[k]:.6g} is not in [{low:.6g}, {high:.6g}]"
