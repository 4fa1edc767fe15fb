"""Families of wrong Hessians with a whole number and a step size: which number, and which step, fits best?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bilevel_sym.typing import Floats
from verify.testkit.arrays import norms
from verify.testkit.diagnosis import Cause, Evidence, Suspect
from verify.testkit.suspects.one_parameter import Family, Fitted, fitted, misfits

__all__ = ["GRID", "closest", "flat", "shows", "suspect"]

GRID = np.geomspace(2e-3, 2.1, 16)  # of step sizes, relative to 1/ell
CELLS = 7  # between the neighbours of the best step size in the grid
ROUNDS = ((4, 1.0), (2, 0.2))  # how many whole numbers are kept, and what share of the error each may leave


def closest(
    evidence: Evidence, families: Mapping[int, Family], grid: Floats, tried: Floats
) -> Iterator[tuple[int, Fitted]]:
    """The numbers whose families fit best, each at its own step; ``tried`` are all families on the grid.

    >>> x = np.linspace(0.1, 1, 5)[:, None]
    >>> families = {D: lambda t, D=D: (1 - t[:, None, None] * x) ** D for D in (1, 2, 3)}
    >>> evidence, grid = Evidence((1 - 0.3 * x) ** 2, 0 * x, np.zeros(5)), np.geomspace(0.01, 1, 10)
    >>> tried = np.array([family(grid) for family in families.values()])
    >>> number, found = next(closest(evidence, families, grid, tried))
    >>> number, round(found.parameter, 9)
    (2, 0.3)
    """
    shares = misfits(evidence, tried)
    around = {k: _beside(grid, int(s.argmin())) for k, s in zip(families, shares, strict=True) if s.min() < 1}
    for kept, close in ROUNDS:
        zoomed = {k: _zoomed(evidence, families[k], ends) for k, ends in around.items()}
        ranked = sorted(zoomed, key=lambda k: zoomed[k].share)[:kept]
        around = {k: zoomed[k].ends for k in ranked if zoomed[k].share < close}
    for number, ends in around.items():
        if (found := fitted(evidence, families[number], ends, 0)) is not None:
            yield number, found


@dataclass(frozen=True, eq=False)
class _Zoomed:
    """How close a family comes in a narrower range of step sizes, and the ends of that."""

    share: float
    ends: Floats


def _zoomed(evidence: Evidence, family: Family, ends: Floats) -> _Zoomed:
    """Whole numbers are told apart by how well they fit at their own best step size, which no grid contains.

    So the share is that of the best point on the parabola through the best three members.
    """
    cells = np.geomspace(ends[0], ends[1], CELLS)
    tried = family(cells)
    best = int(np.clip(misfits(evidence, tried).argmin(), 1, CELLS - 2))
    below, here, above = tried[best - 1 : best + 2]
    t = np.linspace(-1, 1, 41)[:, None, None]
    with np.errstate(all="ignore"):
        parabola = here + t * (above - below) / 2 + t**2 * (above - 2 * here + below) / 2
    return _Zoomed(float(misfits(evidence, parabola).min()), _beside(cells, best))


def _beside(grid: Floats, place: int) -> Floats:
    """The neighbours of a place in a grid."""
    return grid[[max(place - 1, 0), min(place + 1, len(grid) - 1)]]


def flat(evidence: Evidence) -> Evidence:
    """The same with each matrix as one row.

    >>> flat(Evidence(np.ones((3, 2, 2)), np.ones((3, 2, 2)), np.zeros(3))).values.shape
    (3, 4)
    """
    points = len(evidence.values)
    return Evidence(evidence.values.reshape(points, -1), evidence.truth.reshape(points, -1), evidence.floor)


def shows(evidence: Evidence, term: Floats) -> bool:
    """Whether a term (P, d, d) is more than rounding at some point with an error: where f_y = 0, some are not.

    >>> evidence = Evidence(np.ones((3, 2, 2)), np.zeros((3, 2, 2)), np.full(3, 1e-12))
    >>> shows(evidence, np.full((3, 2, 2), 1e-3)), shows(evidence, np.full((3, 2, 2), 1e-15))
    (True, False)
    """
    return bool((norms(term) > 10 * evidence.floor)[evidence.telling].any())


def suspect(evidence: Evidence, cause: Cause, what: str, look_at: str, found: Fitted) -> Suspect:
    """The hypothesis of a fitted member, whose free number counts as one.

    >>> evidence = Evidence(np.ones((3, 2, 2)), np.zeros((3, 2, 2)), np.zeros(3))
    >>> suspect(evidence, "y*", "", "", Fitted(0.5, np.ones((3, 4)), np.ones((3, 4)))).basis[0].shape
    (3, 2, 2)
    """
    shape = evidence.values.shape
    return Suspect(cause, what, look_at, found.value.reshape(shape), (found.tangent.reshape(shape),))
