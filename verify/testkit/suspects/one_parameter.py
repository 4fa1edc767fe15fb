"""A family of wrong answers with one free number (a step size, a damping): which number fits what was returned?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bilevel_sym.typing import Floats
from verify.testkit.diagnosis import Evidence

__all__ = ["Family", "Fitted", "fitted", "misfits", "polished", "promising", "steps"]

Family: TypeAlias = Callable[[Floats], Floats]  # parameters (K,) -> what the candidate would return, (K, P, ...)

CELLS = 12  # of each zoom
POLISH = 4  # steps of Gauss and Newton, from within 1e-3
NUDGE = 1e-4  # relatively, for the derivative by the parameter
ZOOM_SHARES = (0.5, 0.2, 0.1)  # the share of the error that may be left after each zoom
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

    >>> at = Evidence(np.array([[2.0]]), np.array([[1.0]]), np.zeros(1))
    >>> promising(at, np.array([[[[1.0]], [[1.9]], [[2.2]]], [[[9.0]], [[7.0]], [[6.0]]]]))
    [(0, 1)]
    """
    shares = _distances(evidence, tried)
    places, least = shares.argmin(axis=1), shares.min(axis=1)
    return [(int(k), int(places[k])) for k in np.argsort(least, kind="stable")[:BEST] if least[k] < 1]


def _distances(evidence: Evidence, tried: Floats) -> Floats:
    """What members between neighbours of the grid leave unexplained at best, (F, K - 1).

    Between two neighbours errors are taken for straight lines, which is right to second order, and for geometric ones:
    what D steps leave of an error is a power.
    """
    telling = evidence.telling
    scale = evidence.errors[telling, None]
    with np.errstate(all="ignore"):
        wanted = ((evidence.values - evidence.truth)[telling] / scale).ravel()
        errors = ((tried - evidence.truth)[..., telling, :] / scale).reshape(*tried.shape[:2], -1)
        shares = [_off(wanted, _nearest(wanted, errors)), _off(wanted, _nearest_power(wanted, errors))]
        share = np.fmin(*shares) / np.sqrt(max(1, telling.sum()))
    return np.where(np.isfinite(share), share, np.inf)


def _off(wanted: Floats, between: Floats) -> Floats:
    return np.asarray(np.sqrt(np.square(between - wanted).sum(axis=2)))


def _nearest(wanted: Floats, errors: Floats) -> Floats:
    """The nearest point of each chord."""
    low, chord = errors[:, :-1], np.diff(errors, axis=1)
    along = ((wanted - low) * chord).sum(axis=2) / np.square(chord).sum(axis=2)
    return np.asarray(low + np.clip(along, 0.0, 1.0)[..., None] * chord)


def _nearest_power(wanted: Floats, errors: Floats) -> Floats:
    """The same in logarithms, entries weighted by their size; those that change sign stay as they are."""
    low, high = errors[:, :-1], errors[:, 1:]
    same = (low * high > 0) & (wanted * low > 0)
    chord = np.where(same, np.log(np.abs(high / low)), 0.0)
    weight = np.where(same, wanted**2, 0.0)
    ahead = np.where(same, np.log(np.abs(wanted / low)), 0.0)
    along = np.clip((weight * ahead * chord).sum(axis=2) / (weight * chord**2).sum(axis=2), 0.0, 1.0)
    return np.asarray(low * np.exp(along[..., None] * chord))


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
    for share in ZOOM_SHARES:
        cells = np.linspace(low, high, CELLS + 1)
        shares = _distances(evidence, family(cells)[None])[0]
        place = int(shares.argmin())
        if shares[place] > share:
            return None
        low, high = cells[max(place - 1, 0)], cells[min(place + 2, CELLS)]
    return polished(evidence, family, float(cells[place : place + 2].mean()))


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
