"""Families of wrong answers with free numbers (a step size, a damping, a shift): which fit what was returned?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bilevel_sym.typing import Bools, Floats
from verify.testkit.candidate import norms
from verify.testkit.diagnosis import EXACT_FIT, SPARE, Cause, Evidence, Suspect

__all__: list[str] = []

Family: TypeAlias = Callable[[Floats], Floats]  # parameters (K,) -> what the candidate would return, (K, P, ...)
Many: TypeAlias = Callable[[Floats], Floats]  # the same of parameters (K, m)

CELLS = 12  # of each zoom
POLISH = 4  # steps of Gauss and Newton, from within 1e-3
NUDGE = 1e-4  # relatively, for the derivative by the parameter
ZOOM_SHARES = (0.5, 0.2, 0.1)  # the share of the error that may be left after each zoom
BEST = 3  # members of a list of families that are looked at closely
DIFFERENCE_STEP = 1e-6  # relatively
TOLD = 1e-8  # singular values, columns having length one, below which the free numbers are not told apart
SETTLED = 10  # steps of Gauss and Newton
GRID = np.geomspace(2e-3, 2.1, 16)  # of step sizes, relative to 1/ell
ZOOM_CELLS = 7  # between the neighbours of the best step size in the grid
ROUNDS = ((4, 1.0), (2, 0.2))  # how many whole numbers are kept, and what share of the error each may leave


@dataclass(frozen=True, eq=False)
class Fitted:
    """The best member of a family; ``tangent`` is its derivative by the logarithm of the parameter.

    As the basis of a Suspect the tangent makes the free number count as one, and takes up what is left of its error.
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


# ---------------------------------------------------------------------- many free numbers


def explains(evidence: Evidence, suspect: Suspect) -> bool:
    """Whether the best coefficients, which must be told apart, leave next to nothing of the error.

    >>> truth = np.arange(1.0, 7.0)[:, None]
    >>> seen = Evidence(truth + 0.5 * truth**2, truth, np.zeros(6))
    >>> [explains(seen, Suspect("factor", "", "", truth, basis)) for basis in ((truth**2,), (truth,))]
    [True, False]
    """
    telling, weight = evidence.telling, 1 / np.maximum(evidence.errors, 1e-300)
    rest = _column(evidence.values - suspect.value, telling, weight)
    if len(rest) < len(suspect.basis) + SPARE or not np.isfinite(rest).all():
        return False
    if suspect.basis:
        columns = np.stack([_column(b, telling, weight) for b in suspect.basis], axis=1)
        lengths = np.linalg.norm(columns, axis=0)
        if not (np.isfinite(columns).all() and lengths.all()):
            return False
        U, singular, _ = np.linalg.svd(columns / lengths, full_matrices=False)
        if singular[-1] < TOLD:
            return False
        rest = rest - U @ (U.T @ rest)
    allowed = EXACT_FIT * np.sqrt(telling.sum()) + 10 * float(np.linalg.norm(evidence.floor[telling] * weight[telling]))
    return bool(np.linalg.norm(rest) <= allowed)


def settled(evidence: Evidence, family: Many, start: Floats) -> tuple[Floats, Floats] | None:
    """The parameters (m,) from a start whose member explains the error, and that member; None where none does.

    >>> x = np.linspace(0.1, 1, 8)[:, None]
    >>> seen = Evidence(np.sin(x + 0.25), np.sin(x), np.zeros(8))
    >>> found, value = settled(seen, lambda c: np.sin(x + c[:, None, :]), np.zeros(1))
    >>> found.round(9)
    array([0.25])
    """
    telling, weight = evidence.telling, 1 / np.maximum(evidence.errors, 1e-300)
    here, size = start, len(start)
    if telling.sum() * evidence.values[0].size < size + SPARE:
        return None
    for _ in range(SETTLED):
        nudge = DIFFERENCE_STEP * (1 + np.abs(here).max())
        values = family(here + np.concatenate([np.zeros((1, size)), nudge * np.eye(size)]))
        rows = np.array([_column(value, telling, weight) for value in values])
        if not np.isfinite(rows).all():
            return None
        rest = _column(evidence.values, telling, weight) - rows[0]
        here = here + np.linalg.lstsq(((rows[1:] - rows[0]) / nudge).T, rest, rcond=1e-10)[0]
    (value,) = family(here[None])
    found = Suspect("unexplained", "", "", value)
    return (here, value) if explains(evidence, found) else None


def _column(array: Floats, chosen: Bools, weight: Floats) -> Floats:
    return np.asarray(array.reshape(len(array), -1)[chosen] * weight[chosen, None]).ravel()


# ---------------------------------------------------------------------- a whole number and a step size


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
    cells = np.geomspace(ends[0], ends[1], ZOOM_CELLS)
    tried = family(cells)
    best = int(np.clip(misfits(evidence, tried).argmin(), 1, ZOOM_CELLS - 2))
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
