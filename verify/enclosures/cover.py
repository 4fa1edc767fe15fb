"""The box that a question is about, and its cover: cut in halves again and again, kept as the cuts alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bilevel_sym import BilevelProblem, Box
from bilevel_sym.arithmetic.ties import coarse
from bilevel_sym.errors import CertificateFailure, InvalidProblem
from bilevel_sym.typing import Bools, Floats, Indices

__all__ = ["LEAF", "Cover", "halves", "heaviest", "middles", "requested_box"]

LEAF = -1


def middles(lower: Floats, upper: Floats) -> Floats:
    """A float between the ends; the same one whenever it is asked for.

    >>> float(middles(np.array(0.0), np.array(3.0)))
    1.5
    """
    return np.asarray(np.clip(0.5 * lower + 0.5 * upper, lower, upper))


def halves(lower: Floats, upper: Floats, variable: Indices) -> tuple[Floats, Floats]:
    """Both halves of each of some boxes, the lower one first, cut across its variable.

    >>> low, high = halves(np.array([[0.0, 0.0]]), np.array([[2.0, 1.0]]), np.array([0]))
    >>> low.tolist(), high.tolist()
    ([[0.0, 0.0], [1.0, 0.0]], [[1.0, 1.0], [2.0, 1.0]])
    """
    lanes = np.arange(len(lower))
    lows, highs = np.repeat(lower, 2, axis=0), np.repeat(upper, 2, axis=0)
    middle = middles(lower[lanes, variable], upper[lanes, variable])
    highs[2 * lanes, variable] = lows[2 * lanes + 1, variable] = middle
    return lows, highs


def heaviest(score: Floats, possible: Bools, active: Indices) -> tuple[Indices, Bools]:
    """Of each box the active variable with the largest score among the possible ones, and whether there is one.

    >>> heaviest(np.array([[1.0, 3.0, 2.0]]), np.array([[True, False, True]]), np.arange(3))
    (array([2]), array([ True]))
    """
    chosen = np.where(possible, score, -1.0)[:, active]
    return active[coarse(chosen).argmax(axis=1)], np.asarray(chosen.max(axis=1) >= 0)


@dataclass(frozen=True, eq=False)
class Cover:
    """The root box, and for each node of the tree in order (node, lower half, upper half) the variable that is cut.

    -1 is a leaf. Any such list that comes to its end with the last leaf is a cover, whoever wrote it.

    >>> cover = Cover(np.array([0.0, 0.0]), np.array([4.0, 1.0]), (0, -1, 1, -1, -1))
    >>> lower, upper = cover.leaves()
    >>> lower.tolist(), upper.tolist()
    ([[0.0, 0.0], [2.0, 0.0], [2.0, 0.5]], [[2.0, 1.0], [4.0, 0.5], [4.0, 1.0]])
    """

    lower: Floats
    upper: Floats
    cuts: tuple[int, ...] = (LEAF,)

    @property
    def size(self) -> int:
        """How many leaves."""
        return self.cuts.count(LEAF)

    def leaves(self) -> tuple[Floats, Floats]:
        """The ends of the leaves, (leaves, variables) each; an error where the list is not a whole tree."""
        dimension = len(self.lower)
        lows, highs = np.empty((self.size, dimension)), np.empty((self.size, dimension))
        waiting, done = [(self.lower, self.upper)], 0
        for cut in self.cuts:
            if not waiting:
                raise _broken("goes on after its last leaf")
            low, high = waiting.pop()
            if cut == LEAF:
                lows[done], highs[done] = low, high
                done += 1
            elif 0 <= cut < dimension:
                waiting += _halves(low, high, cut)
            else:
                raise _broken(f"cuts variable {cut} of {dimension}")
        if waiting:
            raise _broken(f"misses {len(waiting)} pieces of the box")
        return lows, highs


def _halves(low: Floats, high: Floats, cut: int) -> Iterable[tuple[Floats, Floats]]:
    """The upper half first: it waits for the lower one to be done."""
    middle = middles(low[cut], high[cut])
    first, second = high.copy(), low.copy()
    first[cut] = second[cut] = middle
    return (second, high), (low, first)


def _broken(what: str) -> CertificateFailure:
    return CertificateFailure(f"the cover {what}", hint="it was damaged or changed: certify again")


# ---------------------------------------------------------------------- the box that a question is about


def requested_box(problem: BilevelProblem, box: object, what: str) -> Box:
    """The box given (a Box, or what makes one), else the problem's; ``what`` belongs to a box, for the message.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> requested_box(problem, {"x": (-1, 1)}, "constants belong")
    Box({'x': (-1, 1)})
    >>> requested_box(problem, None, "constants belong")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: the problem has no box, and constants belong to a box
    try: [box] in the problem file, or BilevelProblem(..., box={"x": (-1, 1), "y": (-1, 1)})
    """
    x, y = tuple(s.name for s in problem.x), tuple(s.name for s in problem.y)
    if box is not None:
        return (box if isinstance(box, Box) else Box(box)).bind(x, y)  # type: ignore[arg-type]
    if problem.box is not None:
        return problem.box
    example = ", ".join(f'"{name}": (-1, 1)' for name in (*x[:1], *y[:1]))
    raise InvalidProblem(
        f"the problem has no box, and {what} to a box",
        hint=f"[box] in the problem file, or BilevelProblem(..., box={{{example}}})",
    )
