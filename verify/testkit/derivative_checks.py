"""check_gradient, check_jacobian, check_argmin: derivatives and minimisers of functions that have no formula.

The order of the Taylor remainder decides, along each axis and a few other directions (``differences``).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from bilevel_sym.arithmetic.ties import first_largest
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import FLOAT64_EPS, Floats
from verify.study import seed_of
from verify.testkit.candidate import real_array
from verify.testkit.diagnosis import Diagnosis, Evidence, Suspect, explain
from verify.testkit.differences import SIGMAS, Line, Slope
from verify.testkit.examination import TELLING
from verify.testkit.messages import SHOWN
from verify.testkit.reference import ROUNDINGS
from verify.testkit.result import CandidateCheck
from verify.testkit.suspects.altered_result import changed_suspects
from verify.verdict import Verdict

__all__ = ["check_argmin", "check_gradient", "check_jacobian"]

Function = Callable[..., object]
Rng = np.random.Generator | int | None

DISTANCES = 2.0 ** np.arange(-6, 6, 0.5)  # relative to |y|, where a minimiser is compared with others
DISTANCES.setflags(write=False)
MOST_AXES, MIXED = 32, 4  # directions: axes, and some at random in the end


def check_gradient(fun: Function, grad: Function, points: Iterable[Any], *, rng: Rng = None) -> CandidateCheck:
    """Is ``grad`` the gradient of ``fun``? By the order of the Taylor remainder; there is no tolerance to choose.

    HOLDS: at every point, along every axis, what it leaves of differences of ``fun`` is the noise of these. VIOLATED:
    it is not. INCONCLUSIVE: ``fun`` is too noisy to say, or has a kink there.

    - ``fun``: a point of shape (d,) -> a number.
    - ``grad``: a point -> d numbers.
    - ``points``: of shape (P, d), or one point.
    - ``rng``: a seed or a generator, for the directions beside the axes.

    >>> print(check_gradient(lambda x: x @ x, lambda x: 2 * x, np.ones((3, 2))).verdict)
    HOLDS
    >>> print(check_gradient(lambda x: x @ x, lambda x: 2.00001 * x, np.eye(3)).summary)
    factor: it is 1 + 5e-06 times the derivative
    """
    return _checked(fun, grad, points, rng, "gradient", vector=False)


def check_jacobian(fun: Function, jac: Function, points: Iterable[Any], *, rng: Rng = None) -> CandidateCheck:
    """Is ``jac`` the Jacobian of ``fun``, of shape (m, d)?

    - ``fun``: a point of shape (d,) -> m numbers.
    - ``jac``: a point -> m rows of d numbers.
    - ``points``, ``rng``: as for ``check_gradient``.

    >>> def fun(x):
    ...     return np.array([x[0] * x[1], np.sin(x[0])])
    >>> print(check_jacobian(fun, lambda x: np.array([[x[1], x[0]], [np.cos(x[0]), 0.0]]), [0.5, 2.0]).verdict)
    HOLDS
    >>> check_jacobian(fun, lambda x: np.array([[x[1], np.cos(x[0])], [x[0], 0.0]]), [[0.5, 2.0], [1.0, 3.0]]).cause
    'transpose'
    """
    return _checked(fun, jac, points, rng, "Jacobian", vector=True)


def check_argmin(fun: Function, argmin: Function, points: Iterable[Any], *, rng: Rng = None) -> CandidateCheck:
    """Does ``argmin(x)`` minimise ``fun(x, y)`` over y, as far as values of ``fun`` tell?

    HOLDS: at every point the derivative of ``fun`` by y is zero to rounding and noise, and ``fun`` is nowhere less on
    lines through it, near and far. VIOLATED: it is not; ``digits`` says how near the minimiser seems to be.

    - ``fun``: (x, y) -> a number.
    - ``argmin``: x -> y, of shape (n,).
    - ``points``: some x.
    - ``rng``: as for ``check_gradient``.

    >>> print(check_argmin(lambda x, y: np.cosh(y[0] - x[0]), lambda x: x, [[0.5], [2.0]]).verdict)
    HOLDS
    >>> check_argmin(lambda x, y: (y[0] ** 2 - x[0]) ** 2 + y[0], lambda x: np.sqrt(x), [[2.0]]).digits < 2
    True
    """
    found = [_argmin_at(fun, argmin, x, _generator(rng)) for x in _points(points)]
    return _concluded(found, "argmin", "minimiser", seed_of(rng))


@dataclass(frozen=True, eq=False)
class _Site:
    """One point: the slopes along the axes and others, what was returned, what it seems to be, and what is wrong."""

    x: Floats
    slopes: tuple[Slope, ...]
    value: Floats
    truth: Floats
    complaint: str = ""
    relative: float = math.nan  # the error, where it is not that of a derivative

    @property
    def worst(self) -> Slope:
        """The axis with the largest error in units of its floor; another direction where no axis has one."""
        return max(self.slopes, key=lambda slope: (slope.excess > 1 and np.abs(slope.u).sum() == 1, slope.excess))

    @property
    def excess(self) -> float:
        return math.inf if self.complaint else self.worst.excess

    @property
    def size(self) -> float:
        return max(float(np.abs(slope.size).max()) for slope in self.slopes)

    @property
    def digits(self) -> float:
        error = max(float(np.abs(slope.error).max()) for slope in self.slopes)
        share = error / (self.size or 1.0) if math.isnan(self.relative) else self.relative
        return min(16.0, max(0.0, -math.log10(max(share, 1e-16))))


def _checked(fun: Function, derivative: Function, points: object, rng: Rng, noun: str, vector: bool) -> CandidateCheck:
    rows = _points(points)
    generator = _generator(rng)
    found = [_site(_vector(fun), x, _derivative(fun, derivative, x, vector), generator) for x in rows]
    return _concluded(found, noun, "derivative", seed_of(rng))


def _site(fun: Callable[[Floats], Floats], x: Floats, jac: Floats, rng: np.random.Generator) -> _Site:
    slopes = tuple(Line(fun, x, u, jac).looked_along() for u in _directions(len(x), rng))
    axes = slopes[: len(x)] if len(x) <= MOST_AXES else ()
    truth = np.stack([slope.size for slope in axes], axis=1) if axes else jac
    return _Site(x, slopes, jac, truth)


def _directions(d: int, rng: np.random.Generator) -> Iterator[Floats]:
    axes = np.arange(d) if d <= MOST_AXES else rng.choice(d, MOST_AXES, replace=False)
    mixed = rng.choice([-1.0, 1.0], (MIXED if d > 1 else 0, d))
    return chain((np.eye(d)[k] for k in axes), mixed)


def _argmin_at(fun: Function, argmin: Function, x: Floats, rng: np.random.Generator) -> _Site:
    """fun(x, .) at what argmin returns: its derivative should be zero, but for the curvature times a rounding of y."""
    y = np.ravel(real_array(argmin(x), "what argmin returned")[0])
    site = _site(_vector(lambda z: fun(x, z)), y, np.zeros((1, len(y))), rng)
    slopes = []
    away, complaint, largest = 0.0, "", float(np.abs(y).max())
    for slope in site.slopes:
        pairs, noise = slope.steps, SIGMAS * slope.noise[0]
        seen = np.flatnonzero(np.abs(pairs.even[:, 0]) > 1e3 * noise)
        curvature = abs(2 * pairs.even[seen[0], 0] / pairs.h[seen[0]] ** 2) if len(seen) else 0.0
        floor = slope.floor + ROUNDINGS * FLOAT64_EPS * curvature * largest
        slopes.append(replace(slope, floor=floor))
        if (np.abs(slope.error) > floor).any() and curvature:
            away = max(away, float(np.abs(slope.error).max()) / curvature)
        else:
            complaint = complaint or _lower(fun, x, slope, 10 * noise)
    return _Site(x, tuple(slopes), y, y, complaint, 1.0 if complaint else away / (largest or 1.0))


def _lower(fun: Function, x: Floats, slope: Slope, noise: float) -> str:
    """Where fun is less than at y, on a line through it."""
    seen = np.flatnonzero(slope.steps.even[:, 0] < -noise)
    steps = [*slope.steps.h[seen[:1]], *(DISTANCES * (np.abs(slope.x).max() or 1.0))]
    of_y = _vector(lambda z: fun(x, z))
    for h in steps:
        with contextlib.suppress(Exception):  # so far away fun may be undefined
            if min(of_y(slope.x + sign * h * slope.u)[0] for sign in (1, -1)) < slope.here[0] - noise:
                return f"fun is less at a distance of {h:.2g} from it"
    return ""


def _concluded(sites: list[_Site], noun: str, of: str, seed: int) -> CandidateCheck:
    worst = max(sites, key=lambda site: site.excess)
    slope, off = worst.worst, [site for site in sites if site.excess > 1]
    verdict, message, diagnosis = Verdict.HOLDS, _right(sites, noun), None
    kink = next((site for site in sites if any(each.bent for each in site.slopes)), None)
    largest = max(site.size for site in sites)
    loud = any(each.noisy and float(each.floor.max()) > TELLING * largest for site in sites for each in site.slopes)
    if kink is not None and not worst.complaint:
        verdict, message = Verdict.INCONCLUSIVE, f"the function has a kink at x = {kink.x.tolist()}: nothing to compare"
    elif off:
        diagnosis = _explained(sites, noun, of)
        verdict, message = Verdict.VIOLATED, _wrong(worst, len(off), len(sites), noun, diagnosis)
    elif loud and noun != "argmin":
        verdict, message = Verdict.INCONCLUSIVE, f"the function is too noisy to tell a right {noun} from a wrong one"
    return CandidateCheck(
        label=f"own:{noun}",
        verdict=verdict,
        message=message,
        measured=float(np.abs(slope.error).max()),
        bound=float(slope.floor.max()),
        evidence="sampled",
        worst_point={f"x{i + 1}": float(value) for i, value in enumerate(worst.x)},
        n_points=len(sites),
        seed=seed,
        digits=min(site.digits for site in off or sites),
        diagnosis=diagnosis,
    )


def _right(sites: list[_Site], noun: str) -> str:
    return (
        f"the {noun} is right at {len(sites)} points, to {min(site.digits for site in sites):.1f} digits of differences"
    )


def _wrong(site: _Site, off: int, count: int, noun: str, diagnosis: Diagnosis) -> str:
    slope, along = site.worst, first_largest(np.abs(site.worst.u))
    k = slope.entry
    axis = f"entry {along}" if np.abs(slope.u).sum() == 1 else "a direction at random"
    lines = [
        f"the {noun} is wrong at {off} of {count} points; {site.digits:.1f} correct digits at the worst of them",
        f"  at          x = {site.x[:SHOWN].tolist()}{' ...' if len(site.x) > SHOWN else ''}, along {axis}",
        f"  error       {abs(slope.error[k]):.2e}, of which noise explains {slope.floor[k]:.1e}",
        f"  suspected   {diagnosis}",
        f"  look at     {diagnosis.look_at}",
    ]
    if not math.isnan(slope.order):
        lines.append(
            f"  Taylor      the remainder shrinks like h^{slope.order:.2f} towards h = 0; if it is right like h^2"
        )
    return "\n".join(lines)


def _explained(sites: list[_Site], noun: str, of: str) -> Diagnosis:
    complaint = next((site.complaint for site in sites if site.complaint), "")
    if complaint or noun == "argmin":
        what = complaint or "the derivative of fun by y is not zero there"
        return Diagnosis("y*", what, "the tolerance of the minimiser, and whether another minimum is lower")
    value, truth = (np.array([getattr(site, name) for site in sites]) for name in ("value", "truth"))
    if noun == "gradient":
        value, truth = value[:, 0], truth[:, 0]
    floor = np.array([max(float(slope.floor.max()) for slope in site.slopes) for site in sites])
    found = explain(Evidence(value, truth, floor), _suspects(value, truth, floor, of))
    if found.cause != "unexplained":
        return found
    place = np.unravel_index(first_largest(np.abs(value - truth)), value.shape)[1:]
    return Diagnosis("unexplained", f"entry {', '.join(map(str, place))} is off most", "the terms of that entry")


def _suspects(value: Floats, truth: Floats, floor: Floats, of: str) -> Iterator[Suspect]:
    yield Suspect("sign", f"it is minus the {of}", "the return statement", -truth)
    yield Suspect(
        "factor", f"it is {{0:.4g}} times the {of}", "factors of 1/2, means against sums", 0 * truth, (truth,)
    )
    if truth.ndim == 3 and truth.shape[1] == truth.shape[2]:
        yield Suspect("transpose", "it is transposed", "rows are fun, columns are x", truth.swapaxes(1, 2))
    yield from changed_suspects(Evidence(value, truth, floor))


# ---------------------------------------------------------------------- what a user gives


def _generator(rng: Rng) -> np.random.Generator:
    return np.random.default_rng(seed_of(rng))


def _points(points: object) -> Floats:
    rows = np.atleast_2d(real_array(points, "points")[0])
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise InvalidArgument(f"points of shape {rows.shape} are not finite points", hint="an array of shape (P, d)")
    return rows


def _vector(fun: Function) -> Callable[[Floats], Floats]:
    def of_x(x: Floats) -> Floats:
        with np.errstate(all="ignore"):
            return np.ravel(real_array(fun(x.copy()), "what the function returned")[0])

    return of_x


def _derivative(fun: Function, derivative: Function, x: Floats, vector: bool) -> Floats:
    """What was returned, (m, d)."""
    value = real_array(derivative(x.copy()), "the derivative")[0]
    m = _vector(fun)(x).size
    shapes = [(m, len(x))] if vector else [(len(x),), (1, len(x))]
    if not vector and m != 1:
        raise InvalidArgument(f"the function returned {m} numbers, and should return one", hint="check_jacobian")
    if value.shape not in (*shapes, *((shapes[0][::-1],) if vector and m == 1 else ())):
        raise InvalidArgument(f"the derivative has shape {value.shape}", hint=f"shape {shapes[0]}, rows are fun")
    return value.reshape(m, len(x))
