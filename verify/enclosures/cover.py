"""Cover: a box cut in halves again and again, kept as the cuts alone, so that the pieces cannot miss a point."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bilevel_sym.errors import CertificateFailure
from bilevel_sym.typing import Floats

__all__ = ["LEAF", "Cover", "middles"]

LEAF = -1


def middles(lower: Floats, upper: Floats) -> Floats:
    """A float between the ends; the same one whenever it is asked for.

    >>> float(middles(np.array(0.0), np.array(3.0)))
    1.5
    """
    return np.asarray(np.clip(0.5 * lower + 0.5 * upper, lower, upper))


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
