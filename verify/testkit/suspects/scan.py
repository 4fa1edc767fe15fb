"""A family of wrong answers with one free number (a step size, a damping): which number fits what was returned?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from verify.testkit.diagnosis import Evidence

__all__ = ["Family", "Fitted", "fitted", "misfits", "polished", "promising", "steps"]

Floats = NDArray[np.float64]
Family: TypeAlias = Callable[[Floats], Floats]  # parameters (K,) -> what the candidate would return, (K, P, ...)

CELLS = 12  # of each zoom
POLISH = 4  # steps of Gauss and Newton, from within 1e-3
NUDGE = 1e-4  # relatively, for the derivative by the parameter
CLOSE = (0.5, 0.2, 0.1)  # the share of the error that may be left after each zoom
BEST = 3  # members of a list of families that are looked at closely


@dataclass(frozen=True, eq=False)
class Fitted:
    """The best member of a family; ``tangent`` is its derivative by the logarithm of the parameter.

    As the basis of a Suspect the tangent makes the free number count as one, and takes up what is left of its error.

    >>> Fitted(0.5, np.ones((1, 1)), np.ones((1, 1))).parameter
    0.5
    """

    parameter: float
    value: Floats
    tangent: Floats


def steps(largest: float) -> Floats:
    """A grid of step sizes for a matrix whose largest eigenvalue is given: small ones, and beyond what converges.

    >>> grid = steps(2.0)
    >>> bool(grid[0] < 1e-2), bool(grid[-1] > 1)
    (True, True)
    """
    parts = np.geomspace(2e-3, 0.475, 25), np.linspace(0.5, 4.0, 51), np.geomspace(4.2, 100.0, 24)
    return np.concatenate(parts) / largest


def misfits(evidence: Evidence, values: Floats) -> Floats:
    """The share of the error that each of (..., P, m) leaves unexplained; inf where it is not finite.

    >>> at = Evidence(np.array([[2.0]]), np.array([[1.0]]), np.zeros(1))
    >>> misfits(at, np.array([[[1.0]], [[1.5]], [[np.nan]]]))
    array([1. , 0.5, inf])
    """
    telling = evidence.telling
    seen, errors = evidence.values[telling], evidence.errors[telling]
    if not len(seen):
        return np.full(values.shape[: values.ndim - evidence.values.ndim], np.inf)
    with np.errstate(all="ignore"):
        rest = values[..., telling, :] - seen
        share = np.sqrt(np.square(rest / errors[:, None]).sum(axis=(-2, -1)) / len(seen))
    return np.where(np.isfinite(share), share, np.inf)


def promising(evidence: Evidence, tried: Floats) -> list[tuple[int, int]]:
    """Of families tried on a grid, (F, K, P, m): the few that come closest, each with its best cell of the grid.

    Between two neighbours of the grid a family is taken for a straight line: that is right to second order.

    >>> at = Evidence(np.array([[2.0]]), np.array([[1.0]]), np.zeros(1))
    >>> promising(at, np.array([[[[1.0]], [[1.9]], [[2.2]]], [[[9.0]], [[7.0]], [[6.0]]]]))
    [(0, 1)]
    """
    shares = _distances(evidence, tried)
    places, least = shares.argmin(axis=1), shares.min(axis=1)
    return [(int(k), int(places[k])) for k in np.argsort(least, kind="stable")[:BEST] if least[k] < 1]


def _distances(evidence: Evidence, tried: Floats) -> Floats:
    """What the chords between neighbours leave unexplained, (F, K - 1)."""
    telling = evidence.telling
    with np.errstate(all="ignore"):
        rest = (tried[..., telling, :] - evidence.values[telling]) / evidence.errors[telling, None]
        rest = rest.reshape(*tried.shape[:2], -1)
        chord = np.diff(rest, axis=1)
        along = -(rest[:, :-1] * chord).sum(axis=2) / np.square(chord).sum(axis=2)
        nearest = rest[:, :-1] + np.clip(along, 0.0, 1.0)[..., None] * chord
        share = np.sqrt(np.square(nearest).sum(axis=2) / max(1, telling.sum()))
    return np.where(np.isfinite(share), share, np.inf)


def fitted(evidence: Evidence, family: Family, grid: Floats, place: int | None = None) -> Fitted | None:
    """The member that fits best, found from a grid (``place``: in which cell); None where none comes close.

    >>> x = np.array([[1.0], [2.0], [3.0]])
    >>> at = Evidence(np.exp(-0.7 * x), 0 * x, np.zeros(3))
    >>> found = fitted(at, lambda t: np.exp(-t[:, None, None] * x), np.geomspace(0.01, 10, 20))
    >>> round(found.parameter, 9)
    0.7
    """
    if place is None:
        place = int(_distances(evidence, family(grid)[None])[0].argmin())
    low, high = grid[max(place - 1, 0)], grid[min(place + 2, len(grid) - 1)]  # a chord may be next to the best one
    for share in CLOSE:
        cells = np.linspace(low, high, CELLS + 1)
        shares = misfits(evidence, family(cells))
        place = int(shares.argmin())
        if shares[place] > share:
            return None
        low, high = cells[max(place - 1, 0)], cells[min(place + 1, CELLS)]
    return polished(evidence, family, float(cells[place]))


def polished(evidence: Evidence, family: Family, parameter: float) -> Fitted | None:
    """A member next to a given one that fits better: Gauss-Newton in the logarithm of the parameter.

    >>> x = np.array([[1.0], [2.0]])
    >>> at = Evidence(np.exp(-0.7 * x), 0 * x, np.zeros(2))
    >>> round(polished(at, lambda t: np.exp(-t[:, None, None] * x), 0.69).parameter, 9)
    0.7
    """
    telling, weight = evidence.telling, 1 / evidence.errors[evidence.telling]
    value = tangent = np.full_like(evidence.values, np.nan)
    for _ in range(POLISH):
        below, value, above = family(parameter * np.array([1 - NUDGE, 1.0, 1 + NUDGE]))
        tangent = (above - below) / (2 * NUDGE)
        slope = tangent[telling] * weight[:, None]
        rest = (evidence.values - value)[telling] * weight[:, None]
        size = float((slope * slope).sum())
        if not (np.isfinite(size) and size > 0):
            return None
        step = float((slope * rest).sum()) / size
        parameter *= 1 + float(np.clip(step, -0.01, 0.01))
    below, value, above = family(parameter * np.array([1 - NUDGE, 1.0, 1 + NUDGE]))
    return Fitted(parameter, value, (above - below) / (2 * NUDGE))
