"""y*(x) to round-off: Newton's method for grad_y g = 0, globalised, for many x at once, each on its own schedule.

The merit is |grad_y g|: with g_yy positive definite, Newton's direction decreases it at rate one, and it keeps its
meaning near the solution, where g itself no longer changes in floating point.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.engine import Engine, Floats
from bilevel_sym.errors import LowerLevelFailure
from bilevel_sym.linear_algebra import Factored, NotPositiveDefinite, smallest_eigenvalues

__all__ = ["NEWTON", "LowerSolution", "solve_lower_level"]

Members: TypeAlias = NDArray[np.intp]

NEWTON = ("g_y", "g_yy")
MAX_STEPS = 200
MAX_HALVINGS = 60
DECREASE = 1e-4  # the part of the promised decrease that a step must deliver
ROUND_OFF = 2.0**-51  # a relative step below this changes nothing
NOISE = 1e-6  # a relative step below this that no longer helps is rounding error


@dataclass(frozen=True)
class LowerSolution:
    """y*(x), and how many times each member evaluated grad_y g and g_yy together."""

    y: Floats
    evaluations: NDArray[np.int64]


@dataclass(frozen=True)
class _Point:
    """Where each member stands, and Newton's step from there; the arrays are updated in place as members move.

    ``merit`` is |grad_y g|, ``size`` the step's size beside y (beside y = 0, every step but zero is infinitely large).
    """

    x: Floats
    y: Floats
    g_y: Floats
    g_yy: Floats
    step: Floats
    merit: Floats
    size: Floats

    def move(self, members: Members, trial: _Point, chosen: NDArray[np.bool_]) -> None:
        for name in ("y", "g_y", "g_yy", "step", "merit", "size"):
            getattr(self, name)[members[chosen]] = getattr(trial, name)[chosen]


def solve_lower_level(engine: Engine, x: Floats, y0: Floats) -> LowerSolution:
    """y*(x) for each row of x, from the starts y0. LowerLevelFailure names the first member that fails."""
    with np.errstate(all="ignore"):
        at = _evaluate(engine, x, y0.copy())
        evaluations = np.ones(len(x), dtype=np.int64)
        _require_start(at)
        members = np.flatnonzero(at.size > ROUND_OFF)  # a start at the root stays there
        for _ in range(MAX_STEPS):
            if not len(members):
                return LowerSolution(at.y, evaluations)
            size = at.size[members]
            moved, trials = _line_search(engine, at, members)
            evaluations[members] += trials
            stuck = members[~moved & (size > NOISE)]
            if len(stuck):
                raise _failure(at, int(stuck[0]), "did not converge: no step along Newton's direction helps")
            members = members[moved & (at.size[members] > ROUND_OFF)]
    raise _failure(at, int(members[0]), f"did not converge in {MAX_STEPS} Newton steps")


def _evaluate(engine: Engine, x: Floats, y: Floats) -> _Point:
    session = engine.session(NEWTON, len(x))
    session.put(0, np.concatenate([x, y], axis=1))
    g_y, g_yy = session.take("g_y"), session.take("g_yy")
    step = _newton_step(g_y, g_yy)
    largest = np.abs(step).max(axis=1)
    size = np.where(largest == 0, 0.0, largest / np.abs(y).max(axis=1))
    return _Point(x, y, g_y, g_yy, step, np.abs(g_y).max(axis=1), size)


def _newton_step(g_y: Floats, g_yy: Floats) -> Floats:
    """-g_yy^-1 g_y; NaN for members at which g_yy is not positive definite."""
    try:
        return -Factored(g_yy).solve(g_y[:, :, None])[:, :, 0]
    except NotPositiveDefinite:
        good = smallest_eigenvalues(g_yy) > 0
        step = np.full_like(g_y, np.nan)
        # one by one: rounding may still refuse a member whose smallest eigenvalue is positive by a hair
        for k in np.flatnonzero(good):
            with suppress(NotPositiveDefinite):
                step[k] = -Factored(g_yy[k : k + 1]).solve(g_y[k : k + 1, :, None])[0, :, 0]
        return step


def _line_search(engine: Engine, at: _Point, members: Members) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Move each member along its step, halved until the merit falls and g_yy stays positive definite.

    Returns who moved, and how many trials each took. ``at`` is updated.
    """
    moved = np.zeros(len(members), dtype=bool)
    trials = np.zeros(len(members), dtype=np.int64)
    before, step, size = at.merit[members], at.step[members], at.size[members]
    left = np.arange(len(members))
    length = 1.0
    for _ in range(MAX_HALVINGS):
        who = members[left]
        trial = _evaluate(engine, at.x[who], at.y[who] + length * step[left])
        trials[left] += 1
        # a comparison with NaN is false: overflow, points outside the domain and no convexity are refused
        good = (trial.merit <= (1 - DECREASE * length) * before[left]) & np.isfinite(trial.step).all(axis=1)
        at.move(who, trial, good)
        moved[left[good]] = True
        # at the level of rounding a shorter step is no better
        left = left[~good & (length * size[left] > ROUND_OFF)]
        if not len(left):
            break
        length /= 2
    return moved, trials


def _require_start(at: _Point) -> None:
    bad = np.flatnonzero(~np.isfinite(at.step).all(axis=1))
    if len(bad):
        k = int(bad[0])
        finite = np.isfinite(at.g_y[k]).all() and np.isfinite(at.g_yy[k]).all()
        raise _failure(at, k, "is not strongly convex" if finite else "is not defined at the start, or overflows there")


def _failure(at: _Point, member: int, what: str) -> LowerLevelFailure:
    eigenvalue = float(smallest_eigenvalues(at.g_yy[member : member + 1])[0])
    return LowerLevelFailure(
        f"the lower level {what}",
        member=(member,), x=at.x[member].tolist(), y=at.y[member].tolist(), eigenvalue=eigenvalue,
        hint="start near the solution with y0=..., keep x where g is strongly convex in y, or mend g",
    )  # fmt: skip
