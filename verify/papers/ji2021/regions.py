"""Regions: the box and smaller boxes in it, each with certified constants; what is measured there against a bound.

A statement that holds wherever its assumptions do holds over a part of the box too, with the constants of that part.
There the bound is tighter, so it is asked of both and judged where it is tightest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bilevel_sym import Box
from bilevel_sym.arithmetic.ties import first_largest, first_smallest
from bilevel_sym.errors import BilevelError
from bilevel_sym.theories.ji2021.constants import RateConstants
from bilevel_sym.typing import Bools, Floats
from verify.regularity.certified import CertifiedConstants
from verify.study import Study
from verify.verdict import CheckResult, Verdict, inconclusive, judged

__all__ = ["ROUNDINGS", "Region", "Starts", "compared", "decided", "rate_constants", "regions", "starts"]

ROUNDINGS = 64 * 2.0**-52  # a few dozen roundings, relatively
PARTS = (1 / 24, 1 / 400)  # of the width of the box, for the half width of a smaller one
EFFORT = 0.05  # of the default, to certify the constants of one smaller box
CANDIDATES = 32  # points about which a smaller box might lie
SLOWER = 4  # times as narrow in x as in y, because y* may move faster than x


@dataclass(frozen=True, eq=False)
class Region:
    """A box in (x, y) with floats for ends, and constants that are certified over it.

    >>> c = RateConstants(mu=1.0, L=1.0, M=1.0, tau=0.0, rho=0.0)
    >>> region = Region(np.array([-1.0, 0.0]), np.array([1.0, 2.0]), 1, c, "the box")
    >>> region.holds(np.array([[0.5], [0.5]]), np.array([[1.0], [1.0]]), np.array([0.5, 1.5]))
    array([ True, False])
    """

    lower: Floats
    upper: Floats
    d: int
    constants: RateConstants
    name: str

    def holds(self, x: Floats, y: Floats, radius: Floats | float = 0.0) -> Bools:
        """At which rows x and the ball of this radius about y lie inside; nan does not."""
        r = np.asarray(radius)[..., None]
        low, high, d = self.lower, self.upper, self.d
        inside = ((x >= low[:d]) & (x <= high[:d])).all(axis=-1)
        return np.asarray(inside & ((y - r >= low[d:]) & (y + r <= high[d:])).all(axis=-1))

    @property
    def rounding(self) -> float:
        """How far float64 may move a hypergradient in this region: y* errs by kappa roundings, v* by a few of these."""
        c, scale = self.constants, float(np.abs([self.lower, self.upper]).max())
        y = ROUNDINGS * float(c.kappa) * scale
        v = ROUNDINGS * float(c.kappa * c.M / c.mu) + float(c.drift) * y
        return float(c.L + c.tau * c.M / c.mu) * y + float(c.L) * v


def rate_constants(certified: CertifiedConstants) -> RateConstants:
    """The constants of these papers from those that are certified: tau and rho from the blocks of g that they bound.

    >>> from bilevel_sym import zoo
    >>> from verify.study import study_of
    >>> c = rate_constants(study_of(zoo.get("quadratic", d=1, n=2).problem).constants)
    >>> c.tau, c.rho
    (0.0, 0.0)
    """
    valid = certified.valid

    def largest(*blocks: str) -> float:
        return max((float(p.bracket.upper) for p in certified.proofs if p.block in blocks), default=float(valid.rho))

    return RateConstants(
        mu=float(valid.mu), L=float(valid.ell), M=float(valid.M),
        tau=largest("g_xxy", "g_xyy"), rho=largest("g_xyy", "g_yyy"),
    )  # fmt: skip


def regions(study: Study) -> Iterator[Region]:
    """The whole box, then smaller ones; where none can be certified, the first error is raised.

    >>> from bilevel_sym import zoo
    >>> from verify.study import study_of
    >>> [region.name for region in regions(study_of(zoo.get("scalar").problem))][0]
    'the box'
    """
    first: BilevelError | None = None
    found = False
    for part in (None, *PARTS):
        region = _kept(study, part)
        if isinstance(region, BilevelError):
            first = first or region
        else:
            found = True
            yield region
    if not found and first is not None:
        raise first


@lru_cache(8)
def _kept(study: Study, part: float | None) -> Region | BilevelError:
    """A region, or why there is none; several claims ask for it."""
    try:
        return _whole(study) if part is None else _part(study, part)
    except BilevelError as error:
        return error


def _ends(study: Study) -> tuple[Floats, Floats]:
    if len(study.box) < study.exact.d + study.exact.n:
        raise BilevelError("the box does not say how far y goes", hint="give intervals for y too")
    ends = np.array([[float(low), float(high)] for low, high in study.box])
    return ends[:, 0], ends[:, 1]


def _whole(study: Study) -> Region:
    low, high = _ends(study)
    return Region(low, high, study.exact.d, rate_constants(study.constants), "the box")


def _part(study: Study, part: float) -> Region:
    low, high = _ends(study)
    d, centre = study.exact.d, _centre(study)
    radius = part * (high - low)
    radius[:d] /= SLOWER
    lower, upper = np.maximum(low, centre - radius), np.minimum(high, centre + radius)
    names = [s.name for s in (*study.exact.x, *study.exact.y)]
    box = Box({name: (float(a), float(b)) for name, a, b in zip(names, lower, upper, strict=True)})
    where = ", ".join(f"{name}={value:.3g}" for name, value in study.named(centre[:d]).items())
    constants = rate_constants(study.constants_over(box, EFFORT))
    return Region(lower, upper, d, constants, f"a box of {2 * part:.2g} of the width about {where}")


def _centre(study: Study) -> Floats:
    """(x, y*(x)) well inside the box where the bounds are tightest."""
    low, high = _ends(study)
    x = study.points(CANDIDATES, "ji2021 regions")
    y = study.kernels.y_star(x)
    width = 0.05 * (high - low)[study.exact.d :]
    inside = ((y > low[study.exact.d :] + width) & (y < high[study.exact.d :] - width)).all(axis=1)
    if not inside.any():
        raise BilevelError("y* is not inside the box at any of the points tried", hint="a larger box in y")
    x, y = x[inside], y[inside]
    return np.asarray(np.concatenate([x, y], axis=1)[first_smallest(_condition(study, x, y))])


def _condition(study: Study, x: Floats, y: Floats) -> Floats:
    """Second derivatives relative to the curvature of g, and the slope of f too: what the bounds grow with."""
    k = study.kernels
    curvature = np.linalg.eigvalsh(k.g_yy(x, y))
    least = np.maximum(curvature[:, 0], np.finfo(np.float64).tiny)
    norms = [np.linalg.norm(block(x, y), 2, axis=(-2, -1)) for block in (k.f_xx, k.f_xy, k.f_yy, k.g_xy)]
    steep = np.linalg.norm(k.f_y(x, y), axis=-1)
    with np.errstate(over="ignore"):  # what is infinite is not chosen
        return np.asarray(np.max([*norms, curvature[:, -1]], axis=0) / least * (1 + steep / least))


def decided(study: Study, check: Callable[[Region], CheckResult]) -> CheckResult:
    """The result of a region in which the check fails, or else of the one in which its bound is tightest.

    >>> from bilevel_sym import zoo
    >>> from verify.study import study_of
    >>> def width(region):
    ...     wide = float((region.upper - region.lower)[0])
    ...     return judged("own:width", 1e-3, wide, evidence="sampled", message="smaller boxes are tighter")
    >>> round(decided(study_of(zoo.get("scalar").problem), width).bound, 6)
    0.0075
    """
    found: list[CheckResult] = []
    trouble: BilevelError | None = None
    for region in regions(study):
        try:
            result = check(region)
        except BilevelError as error:
            trouble = trouble or error
            continue
        found.append(replace(result, region=region.name))
        study.deadline.check()
    if not found:
        raise trouble or BilevelError("no region could be studied")
    return max(found, key=_weight)


def _weight(result: CheckResult) -> tuple[bool, bool, float]:
    tight = result.tightness
    known = tight is not None and math.isfinite(tight)
    return result.verdict is Verdict.VIOLATED, result.decided, tight if tight is not None and known else -1.0


@dataclass(frozen=True, eq=False)
class Starts:
    """Rows of x in the middle of a region with the exact y* and v*, and starts y and v off by some distance.

    >>> Starts(*(np.zeros((3, 1)) for _ in range(5))).x.shape
    (3, 1)
    """

    x: Floats
    y_star: Floats
    v_star: Floats
    y: Floats
    v: Floats


def starts(study: Study, region: Region, count: int, name: str) -> Starts:
    """``count`` starts: a third are exact, a third are off along the slowest direction of g_yy, the others anywhere.

    The ball about y* through y lies in the region, so that descent on g stays there.

    - ``study``, ``region``: the problem, and where to start.
    - ``count``: how many points are drawn; those whose y* is outside are left out.
    - ``name``: of the random numbers.
    """
    rng, d, kernels = study.rng(name), region.d, study.kernels
    low, high = region.lower[:d], region.upper[:d]
    x = (low + high) / 2 + (high - low) / 4 * rng.uniform(-1, 1, (count, d))
    y = kernels.y_star(x)
    keep = region.holds(x, y)
    if not keep.any():
        raise BilevelError(f"y* is not inside {region.name} at any of {count} points", hint="a larger box in y")
    x, y = x[keep], y[keep]
    v = kernels.v_star(x, y0=y)
    _, vectors = np.linalg.eigh(kernels.g_yy(x, y))
    slow = vectors[:, :, 0] * rng.choice([-1.0, 1.0], (len(x), 1))
    kind = (np.arange(len(x)) % 3)[:, None]  # 0: exact; 1: y is off along the slowest direction; 2: y and v are off
    room = np.minimum(region.upper[d:] - y, y - region.lower[d:]).min(axis=1, keepdims=True)
    mixed = _unit(slow + 0.5 * (kind == 2) * _unit(rng.standard_normal(v.shape)))
    away = (kind == 2) * np.linalg.norm(v, axis=1, keepdims=True) * _unit(rng.standard_normal(v.shape))
    return Starts(x, y, v, y + 0.9 * (kind > 0) * room * mixed, v + away)


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def compared(
    label: str,
    study: Study,
    measured: Floats,
    bound: Floats,
    noise: Floats | float,
    *,
    at: Floats,
    message: str,
) -> CheckResult:
    """The verdict on measured <= bound at many points, each known to within ``noise``; nan is left out.

    - ``label``: of the statement.
    - ``study``: whose seed and variant the result carries.
    - ``measured``, ``bound``: arrays of one shape.
    - ``noise``: how far rounding may have moved their difference.
    - ``at``: the points x, with one axis more.
    - ``message``: what was done.
    """
    noises = np.broadcast_to(noise, measured.shape).ravel()
    seen, limit = measured.ravel(), bound.ravel()
    with np.errstate(invalid="ignore", divide="ignore"):
        broken, clear = seen - noises > limit, seen + noises <= limit
        ratio = np.where(limit > 0, seen / limit, np.inf)
    chosen = broken if broken.any() else clear
    if not chosen.any():
        reason = "nothing stayed in the region, or rounding hides the difference"
        return inconclusive(label, f"{reason}; {message}")
    k = int(first_largest(np.where(chosen, ratio, -np.inf)))
    return judged(
        label, float(seen[k]), float(limit[k]), evidence="sampled", message=message, noise=float(noises[k]),
        worst_point=study.named(at.reshape(-1, at.shape[-1])[k]), n_points=int((broken | clear).sum()), seed=study.seed,
    )  # fmt: skip
