"""Roughness: how the error of a candidate changes from a point to its neighbours tells what kind of error it is.

A wrong formula errs smoothly. Rounding makes the error rough, and the distance below which it turns smooth is the
precision: none for values in double precision, 2^-24 for single. A solver that stops at a tolerance errs smoothly
but for jumps, where the number of its iterations changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bilevel_sym.arithmetic.ties import first_largest, in_order
from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import FLOAT64_EPS, Floats
from verify.testkit.candidate import Candidate, Settings, norms
from verify.testkit.reference import Quantity, References

__all__ = ["Roughness", "Segment", "roughness"]

NEIGHBOUR_DISTANCE, SINGLE, DOUBLE = 1.1e-3, 1.7e-6, 1.3e-11  # distances: between the last two lies the grid of float32
NEIGHBOURS = 10  # so that a single jump leaves most of the third differences alone
# uneven, for at even distances the rounding of x may change evenly too
UNEVEN = np.arange(NEIGHBOURS) + 0.5 * (0.618034 * np.arange(NEIGHBOURS) % 1)
UNEVEN.setflags(write=False)
ROUGH = 0.05  # third differences, where those of independent errors are 1: a smooth error has 1e-8
ACROSS = 9, 33  # points on the way to another point, among which to look for a jump
SUSPECTED = 6  # places with large third differences: most are left after a few halvings
STEP_HALVINGS = 12
ENOUGH = 3 * NEIGHBOURS + ACROSS[1] + (1 + SUSPECTED) * STEP_HALVINGS  # calls: no look takes more
SHRINKS = 100.0  # what is left of the difference between two points after twelve halvings, if it is no jump: 1/4096


@dataclass(frozen=True)
class Roughness:
    """Third differences over errors at three distances (independent errors: 1), and the largest jump over the error.

    nan where it was not looked at, for lack of calls or because no more was needed.

    >>> Roughness(near=0.9, single=1.1, double=1e-4).kind
    'float32'
    >>> Roughness(near=1e-9, jump=0.2).kind
    'jumps'
    """

    near: float = np.nan
    single: float = np.nan
    double: float = np.nan
    jump: float = np.nan

    @property
    def kind(self) -> str:
        """What it looks like: "smooth", "noise", "float32", "jumps" or "unknown"."""
        if np.isnan(self.near):
            return "unknown"
        if self.near <= ROUGH:
            return "jumps" if self.jump > 0 else "smooth"
        if self.double > ROUGH:
            return "noise"
        if np.isnan(self.double) or np.isnan(self.single):
            return "noise"
        return "float32" if self.single > ROUGH else "jumps"


@dataclass(frozen=True, eq=False)
class Segment:
    """x + t way, and the error of the candidate there, beside the kernels, which are exact to rounding."""

    candidate: Candidate
    truth: Callable[[Floats], Floats]
    x: Floats
    way: Floats
    settings: Settings
    ends: tuple[float, float] = (0.0, 1.0)  # of t, for a look at the whole

    def errors(self, t: Floats) -> Floats | None:
        """The errors, a row for each t; None where the truth is not known."""
        points = self.x + np.asarray(t)[:, None] * self.way
        with np.errstate(all="ignore"):
            try:
                truth = self.truth(points)
            except BilevelError:
                return None
            values = np.array([self.candidate(point, self.settings).value for point in points])
        return np.asarray((values - truth).reshape(len(points), -1))


def roughness(segment: Segment, rounding: float, *, kappa: float, small: bool, calls: int = ENOUGH) -> Roughness:
    """The roughness of the candidate near a point.

    - ``segment``: from the point, with the candidate's error along it.
    - ``rounding``: what rounding may do to the answer.
    - ``kappa``: the condition of the problem there.
    - ``small``: where the candidate is smooth near the point, jumps are looked for all along the segment.
    - ``calls``: the most that are made.

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")  # grad Phi = x
    >>> def along(function):
    ...     return Segment(Candidate(function, (1,)), problem.kernels.grad_phi, np.ones(1), np.ones(1), {})
    >>> options = {"kappa": 1.0, "small": True}
    >>> roughness(along(lambda x: 1.01 * x), 1e-16, **options).kind
    'smooth'
    >>> roughness(along(lambda x: x.astype(np.float32)), 1e-16, **options).kind
    'float32'
    >>> roughness(along(lambda x: x + 1e-3 * np.ceil(3 * x)), 1e-16, **options).kind
    'jumps'
    """
    until = segment.candidate.calls + calls
    found = Roughness()
    for name, distance in (("near", NEIGHBOUR_DISTANCE), ("single", SINGLE), ("double", DOUBLE)):
        if until - segment.candidate.calls < NEIGHBOURS:
            return found
        t = distance * UNEVEN
        errors = segment.errors(t)
        if errors is None or not np.isfinite(errors).all():
            return found
        found = replace(found, **{name: _rough(errors, t, rounding, largest=name == "double")})
        if found.near <= ROUGH:
            break
    points = min(ACROSS[1], until - segment.candidate.calls - (1 + SUSPECTED) * STEP_HALVINGS)
    if found.near <= ROUGH and small and points >= ACROSS[0]:
        return replace(found, jump=_jump(segment, rounding, kappa, points))
    return found


def _rough(errors: Floats, t: Floats, rounding: float, *, largest: bool = False) -> float:
    """The median (or maximum) of the third differences over the size of the errors; 0 where rounding explains it."""
    third = _third_differences(errors, t)
    size = float(np.sqrt(np.mean(norms(errors) ** 2)))
    rough = float(third.max() if largest else np.median(third))
    return rough / size if rough > rounding else 0.0


def _third_differences(errors: Floats, t: Floats) -> Floats:
    """Their norms, scaled so that independent errors of size 1 give 1."""
    windows = np.lib.stride_tricks.sliding_window_view(t, 4)
    gaps = windows[:, :, None] - windows[:, None, :] + np.eye(4)
    weights = 1 / gaps.prod(axis=2)
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    rows = np.lib.stride_tricks.sliding_window_view(errors, 4, axis=0)
    return norms(np.einsum("ij,ikj->ik", weights, rows))


def _jump(segment: Segment, rounding: float, kappa: float, points: int) -> float:
    """The size of a discontinuity over that of the error, found by halving; 0 where the error is continuous."""
    t = np.linspace(*segment.ends, points)
    errors = segment.errors(t)
    if errors is None or not np.isfinite(errors).all():
        return np.nan
    third, size = _third_differences(errors, t), norms(errors)
    nearby = np.lib.stride_tricks.sliding_window_view(size, 4).max(axis=1)
    order = [first_largest(third), *in_order(third / (nearby + rounding), descending=True)[:SUSPECTED].tolist()]
    jumps = (_halved(segment, t[i : i + 4], errors[i : i + 4], rounding, kappa) for i in dict.fromkeys(order))
    return next((jump for jump in jumps if jump > 0), 0.0)


def _halved(segment: Segment, t: Floats, errors: Floats, rounding: float, kappa: float) -> float:
    """Of the jump between the second and the third of four points, with the slope of the outer pairs taken off.

    A step more or less of a lower-level solver changes its error by about 1/kappa at least; what is smaller comes
    from elsewhere.
    """
    drift = (errors[1] - errors[0] + errors[3] - errors[2]) / (t[1] - t[0] + t[3] - t[2])
    (low, high), (left, right) = t[1:3], errors[1:3]
    first = _size(right - left - drift * (high - low))
    least = max(10 * rounding, 0.02 / kappa * max(_size(left), _size(right)))
    for _ in range(STEP_HALVINGS):
        middle = (low + high) / 2
        found = segment.errors(np.array([middle]))
        if found is None:
            return np.nan
        before, after = found[0] - left - drift * (middle - low), right - found[0] - drift * (high - middle)
        if max(_size(before), _size(after)) <= max(least, first / SHRINKS):
            return 0.0
        if _size(before) > _size(after):
            high, right = middle, found[0]
        else:
            low, left = middle, found[0]
    return _size(right - left) / max(_size(left), _size(right))


def _size(row: Floats) -> float:
    return float(np.linalg.norm(row))


def rounding_of(at: References, quantity: Quantity, k: int) -> float:
    """What rounding does to an ordinary float64 program, a hundredth of what it may do."""
    return max(float(at.floor(quantity)[k]) / 100, FLOAT64_EPS * float(np.abs(at.truth(quantity)[k]).max()))
