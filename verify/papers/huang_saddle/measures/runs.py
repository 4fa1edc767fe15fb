"""Runs: iterates of Algorithm 1 beside the exact y*, v* and grad Phi, and the comparison of what was measured there.

Rates: what the inner loops of AID keep of the distance to their solution, as printed and as sharp forms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevel_sym import Constants, Kernels, Perturbed, solve
from bilevel_sym.arithmetic.ties import first_largest
from bilevel_sym.errors import BilevelError
from bilevel_sym.theories import Variant
from bilevel_sym.typing import FLOAT64_EPS, Bools, Floats
from verify import NotApplicable, Study
from verify.papers.huang_saddle.measures.regions import Region, lower_levels
from verify.verdict import CheckResult, inconclusive, judged


def rate_y(constants: Constants, variant: Variant) -> float:
    """What a descent step of size 1/ell keeps of |y - y*|, at most: sqrt(1 - mu/ell), and 1 - mu/ell as sharp form.

    The sharp form: the averaged Hessian has eigenvalues in [mu, ell], so those of I - H/ell lie in [0, 1 - mu/ell].

    Paper: Equation B.22 [eq:gdrate]

    >>> rate_y(Constants(1.0, 4.0, 0.0, 0.0, 1.0), "corrected"), rate_y(Constants(1.0, 4.0, 0.0, 0.0, 1.0), "sharp")
    (0.8660254037844386, 0.75)
    """
    keeps = float((constants.ell - constants.mu) / constants.ell)
    return keeps if variant == "sharp" else float(np.sqrt(keeps))


def log_rate_y(constants: Constants, variant: Variant) -> float:
    """The logarithm of ``rate_y``, also where that is 1 to 16 digits; mu < ell.

    >>> log_rate_y(Constants(1e-20, 1.0, 0.0, 0.0, 1.0), "sharp")
    -1e-20
    """
    return math.log1p(-float(constants.mu / constants.ell)) / (1 if variant == "sharp" else 2)


def rate_v(kappa: Floats | float, steps: int, variant: Variant) -> Floats:
    """What ``steps`` steps of conjugate gradients keep of |v - v_hat|, at most.

    2 sqrt(kappa) q^N with q = (sqrt(kappa) - 1)/(sqrt(kappa) + 1). The sharp form: Chebyshev's polynomial gives
    2 q^N/(1 + q^(2N)) in the norm of the matrix, so sqrt(kappa) times that, and CG never moves away in either norm.

    Paper: Equation B.21 [eq:cgrate]

    >>> float(rate_v(9.0, 1, "corrected")), float(rate_v(9.0, 0, "sharp"))
    (3.0, 1.0)
    """
    root = np.sqrt(np.asarray(kappa, dtype=np.float64))
    rate = (root - 1) / (root + 1)
    power = rate**steps
    if variant == "sharp":
        return np.asarray(np.minimum(1.0, 2 * root * power / (1 + power**2)))
    return np.asarray(2 * root * power)


RUNS, ITERATIONS, EPISODE = 9, 10, 3  # of a claim; of a run; iterations between two perturbations


@dataclass(frozen=True)
class Rounding:
    """How far float64 may have moved y*, v* and grad Phi; a few dozen roundings, times how far each can carry."""

    y: float
    v: float
    grad: float


def rounding(region: Region, residual: float = 0.0) -> Rounding:
    """From the condition of the lower level: y* errs by kappa roundings, v* by those of its system and those of y*.

    ``residual``: the largest |g_y| at y* as it was computed, which is what terms that cancel in g_y leave.

    >>> region = Region(np.zeros(2), np.ones(2), 1, Constants(1.0, 1.0, 0.0, 0.0, 1.0), "the box")
    >>> rounding(region).y < 1e-13
    True
    """
    c = region.constants
    y = 64 * FLOAT64_EPS * c.kappa * region.scale + 8 * residual / c.mu
    v = 64 * FLOAT64_EPS * c.kappa * c.M / c.mu + (c.kappa + c.rho * c.M / c.mu**2) * y
    return Rounding(y, v, (c.ell + c.rho * c.M / c.mu) * y + c.ell * v)


@dataclass(frozen=True, eq=False)
class Start:
    """Where runs begin: rows of x, y and v."""

    x: Floats
    y: Floats
    v: Floats


def v_stars(kernels: Kernels, x: Floats, y: Floats) -> Floats:
    """g_yy^-1 f_y at rows (..., d) and (..., n); nan stays nan.

    >>> from bilevel_sym import zoo
    >>> v_stars(zoo.get("scalar").problem.kernels, np.array([[0.0]]), np.array([[0.0]]))
    array([[1.]])
    """
    result = np.full(y.shape, np.nan)
    known = np.isfinite(y).all(axis=-1)
    if known.any():
        matrix, right = kernels.g_yy(x[known], y[known]), kernels.f_y(x[known], y[known])
        result[known] = np.linalg.solve(matrix, right[..., None])[..., 0]
    return result


def starts(study: Study, region: Region, count: int, name: str) -> Start:
    """Runs from the middle of a region: exact ones, and ones with y (and v) as far off as the region allows.

    y is displaced along the direction in which descent is slowest, so that an error stays visible.
    """
    kernels, d = study.kernels, region.d
    rng = study.rng(name)
    low, high = region.lower[:d], region.upper[:d]
    x = (low + high) / 2 + (high - low) / 4 * rng.uniform(-1, 1, (count, d))
    y = lower_levels(kernels, x)
    keep = region.holds(x, y)
    if not keep.any():
        raise BilevelError(f"y* is not inside {region.name} at any of {count} points", hint="a larger box in y")
    x, y = x[keep], y[keep]
    v = v_stars(kernels, x, y)
    _, vectors = np.linalg.eigh(kernels.g_yy(x, y))
    slow = vectors[:, :, 0] * rng.choice([-1.0, 1.0], (len(x), 1))
    far = np.arange(len(x)) % 3  # 0: exact; 1: y is off; 2: y, in a direction of its own, and v are off
    mixed = slow + np.where(far == 2, 0.5, 0.0)[:, None] * _directions(rng, slow.shape)
    slow = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    room = _room(y, slow, region.lower[d:], region.upper[d:])
    y = y + np.where(far > 0, 0.9, 0.0)[:, None] * room[:, None] * slow
    length = np.where(far == 2, 1.0, 0.0) * np.minimum(room, 1 + np.linalg.norm(v, axis=1))
    return Start(x, y, v + length[:, None] * _directions(rng, v.shape))


def _directions(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    drawn = rng.standard_normal(shape)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=-1, keepdims=True))


def _room(y: Floats, direction: Floats, low: Floats, high: Floats) -> Floats:
    """How far one can go from y along and against the direction and stay inside; at most 1 where y is free."""
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.minimum(high - y, y - low) / np.abs(direction)
    return np.asarray(np.minimum(np.nan_to_num(reach, nan=np.inf).min(axis=1), 1.0))


@dataclass(frozen=True, eq=False)
class Run:
    """Some trajectories, (runs, iterations, ...): the warm starts, the estimates, and the exact values beside them.

    ``usable`` are the iterations up to which everything stayed in the region; ``moved`` is |x_(k+1) - x_k|.
    """

    x: Floats
    y_0: Floats
    v_0: Floats
    y_D: Floats
    v_N: Floats
    grad_phi_hat: Floats
    y_star: Floats
    v_star: Floats
    grad_phi: Floats
    moved: Floats
    perturbed: Bools
    usable: Bools

    @property
    def off_y(self) -> Floats:
        """|y_k^0 - y*(x_k)|."""
        return np.asarray(np.linalg.norm(self.y_0 - self.y_star, axis=-1))

    @property
    def off_v(self) -> Floats:
        """|v_k^0 - v*_k|."""
        return np.asarray(np.linalg.norm(self.v_0 - self.v_star, axis=-1))

    @property
    def error(self) -> Floats:
        """|grad_phi_hat - grad Phi|."""
        return np.asarray(np.linalg.norm(self.grad_phi_hat - self.grad_phi, axis=-1))

    @property
    def longest(self) -> Floats:
        """The longest usable step of each run."""
        return np.asarray(np.where(self.usable[:, 1:], self.moved[:, :-1], 0.0).max(axis=1, initial=0.0))

    @property
    def left_out(self) -> str:
        """How many iterations are not used, in words."""
        away = int((~self.usable).sum())
        return f"{away} of {self.usable.size} iterations left the region and are not used" if away else ""


def recorded(study: Study, region: Region, algorithm: Any, start: Start, steps: int, name: str) -> Run:
    """Run Algorithm 1 from the starts, and compute the exact values at every iterate inside the region.

    - ``study``: the problem.
    - ``region``: outside of which nothing is computed.
    - ``algorithm``: with its parameters.
    - ``start``: x, y and v of each run.
    - ``steps``: how many moves.
    - ``name``: of the random numbers.

    >>> from bilevel_sym import AID, zoo
    >>> from verify.papers.huang_saddle.measures.regions import regions
    >>> from verify.study import study_of
    >>> study = study_of(zoo.get("scalar").problem)
    >>> region = next(iter(regions(study)))
    >>> begin = starts(study, region, 3, "example")
    >>> run = recorded(study, region, shaken(AID(2, 1, 0.1), region, 1e-4), begin, 4, "example")
    >>> run.error.shape, bool(run.usable.all())
    ((3, 5), True)
    """
    solution = solve(
        study.exact, algorithm, start.x, y0=start.y, v0=start.v, steps=steps, rng=int(study.rng(name).integers(2**31))
    )
    t = solution.trajectory
    y_0 = np.concatenate([start.y[:, None], t.y[:, :-1]], axis=1)
    v_0 = np.concatenate([start.v[:, None], t.v[:, :-1]], axis=1)
    inside = region.holds(t.x, y_0) & region.holds(t.x, t.y)
    y_star = np.full(t.y.shape, np.nan)
    if inside.any():
        y_star[inside] = lower_levels(study.kernels, t.x[inside])
    inside &= region.holds(t.x, y_star) & paths_inside(study, region, algorithm.estimator, t.x, y_0, inside)
    usable = np.logical_and.accumulate(inside, axis=1)
    y_star[~usable] = np.nan
    grad = np.full(t.x.shape, np.nan)
    if usable.any():
        grad[usable] = study.kernels.grad_phi(t.x[usable], y0=y_star[usable])
    moved = np.full(t.x.shape[:2], np.nan)
    moved[:, :-1] = np.linalg.norm(t.x[:, 1:] - t.x[:, :-1], axis=-1)
    return Run(
        x=t.x, y_0=y_0, v_0=v_0, y_D=t.y, v_N=t.v, grad_phi_hat=t.grad_phi_hat, y_star=y_star,
        v_star=v_stars(study.kernels, t.x, y_star), grad_phi=grad, moved=moved, perturbed=t.perturbed, usable=usable,
    )  # fmt: skip


def paths_inside(study: Study, region: Region, estimator: Any, x: Floats, y_0: Floats, where: Bools) -> Bools:
    """Whether the D steps between y_k^0 and y_k^D stay in the region too: the rates are proved along them.

    - ``study``: the problem.
    - ``region``: the region.
    - ``estimator``: whose D and tau are taken.
    - ``x``, ``y_0``: where the steps begin.
    - ``where``: of which it is asked; of the others it is said that they do not.
    """
    result = np.zeros(where.shape, dtype=np.bool_)
    points, y = x[where], y_0[where]
    stays = np.ones(len(points), dtype=np.bool_)
    for _ in range(getattr(estimator, "D", 0)):
        if not stays.any():
            break
        y = np.where(stays[:, None], y - estimator.tau * study.kernels.g_y(points, y), y)
        stays &= region.holds(points, y)
    result[where] = stays
    return result


def compared(
    label: str,
    study: Study,
    measured: Floats,
    bound: Floats,
    noise: Floats | float,
    *,
    message: str,
    at: Floats | None = None,
    part: str = "",
) -> CheckResult:
    """The verdict on "measured <= bound" at many points, shown where the bound is closest to being attained.

    Entries that are nan are not used. Where rounding could have made up all that was measured, or could hide on which
    side of the bound it lies, an entry says nothing; if no other is left, the result is inconclusive.

    - ``label``: that of the statement.
    - ``study``: the problem.
    - ``measured``, ``bound``: the two sides, an entry for each point.
    - ``noise``: how far rounding may have moved their difference.
    - ``message``: in words.
    - ``at``: the points x, one row for each entry.
    - ``part``: the name of a piece of the statement.

    >>> from bilevel_sym import verify, zoo
    >>> study = verify.study_of(zoo.get("scalar").problem)
    >>> result = compared("eq:gdrate", study, np.array([1.0, 2.0]), np.array([4.0, 4.0]), 1e-12, message="two points")
    >>> print(result.verdict, result.tightness, result.n_points)
    HOLDS 0.5 2
    """
    low, high = np.ravel(measured), np.ravel(bound)
    spread = np.broadcast_to(noise, np.shape(measured)).ravel()
    used = np.isfinite(low) & np.isfinite(high) & np.isfinite(spread)
    broken = used & (low - spread > high)
    clear = used & (low + spread <= high) & (low > spread)
    if not (broken | clear).any():
        reason = "nothing measured stands out from rounding" if used.any() else "no iterate stayed in the region"
        return inconclusive(label, f"{reason}; {message}", part=part, evidence="sampled")
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(high > 0, low / high, np.inf)
    k = first_largest(np.where(broken if broken.any() else clear, ratio, -1.0))
    return judged(
        label, float(low[k]), float(high[k]), noise=float(spread[k]), evidence="sampled", message=message,
        worst_point=None if at is None else study.named(at.reshape(-1, at.shape[-1])[k]),
        n_points=int((broken | clear).sum()), seed=study.seed, part=part,
    )  # fmt: skip


# ---- the parameters of a run ---------------------------------------------------------------------------------------


def halving(c: Constants, variant: Variant) -> tuple[int, int]:
    """The smallest D and N that halve the warm-start distance.

    >>> halving(Constants(1.0, 2.0, 1.0, 1.0, 1.0), "corrected")
    (10, 1)
    """
    keeps_y, keeps_v = c.warm_start_factors(0, 0)
    if c.mu == c.ell:
        return 1, 1
    # of rates near 1, which may be rounded to it, the distance from 1 is what counts
    slow_y, slow_v = log_rate_y(c, variant), math.log1p(-2 / (math.sqrt(c.kappa) + 1))
    D, N = (math.ceil(-math.log(2 * keeps) / slow) for keeps, slow in ((keeps_y, slow_y), (keeps_v, slow_v)))
    return max(1, D), max(1, N)


def small_step(region: Region, iterations: int) -> float:
    """A step size with which a run stays near the middle of a region, and at most 1/L_phi.

    >>> region = Region(np.zeros(2), np.ones(2), 1, Constants(1.0, 1.0, 0.0, 0.0, 1.0), "the box")
    >>> small_step(region, 9)
    0.0125
    """
    c = region.constants
    width = float((region.upper - region.lower)[: region.d].min())
    if not width:
        raise NotApplicable("the box holds one value of a variable of x, so that no run can stay in it")
    reach = 4 * (1 + iterations) * max(c.hypergradient_bound, 1e-300)
    return float(min(1 / c.L_phi(), width / reach))


def shaken(estimator: Any, region: Region, eta: float, farther: float = 1.0) -> Perturbed:
    """Algorithm 1 that perturbs every few iterations whatever the gradient, by as much as a gradient may move x.

    ``farther`` is how many times longer than that a perturbation may be.

    >>> from bilevel_sym import AID
    >>> region = Region(np.zeros(2), np.ones(2), 1, Constants(1.0, 1.0, 0.0, 0.0, 1.0), "the box")
    >>> shaken(AID(2, 1, 0.1), region, 0.01, farther=3.0).r
    6.0
    """
    bound = max(float(region.constants.hypergradient_bound), 1e-300)
    return Perturbed(estimator, eta=eta, eps=1e6 * bound, r=farther * bound, T_escape=EPISODE)


def shaken_run(study: Study, region: Region, estimator: Any, eta: float, name: str, *, farther: float = 1.0) -> Run:
    """Runs of ``shaken``, recorded, from the middle of a region.

    - ``study``: the problem.
    - ``region``: where they begin, and outside of which nothing is computed.
    - ``estimator``, ``eta``, ``farther``: as for ``shaken``.
    - ``name``: of the random numbers.
    """
    start = starts(study, region, RUNS, name)
    return recorded(study, region, shaken(estimator, region, eta, farther), start, ITERATIONS, name)


def gammas(run: Run, c: Constants, eta: float, variant: Variant) -> Floats:
    """Gamma_1 of each run, from its own initial distance and, but for the print, its own longest step.

    Paper: Equation B.19 [def-gamma1-AID]
    """
    initial = (run.off_y + run.off_v)[:, 0]
    longest = run.longest / eta
    if variant == "printed":
        longest = np.full_like(longest, c.hypergradient_bound)
    elif variant == "corrected":
        longest = np.maximum(longest, c.hypergradient_bound)
    return np.asarray([c.gamma_1(eta, start, gradient_bound=far) for start, far in zip(initial, longest, strict=True)])


def described(D: int, N: int, eta: float, run: Run, region: Region) -> str:
    """The parameters of a run, and what of it is not used, in words; ``recorded`` has an example of one."""
    count = int((run.perturbed & run.usable).sum())
    said = f"D = {D}, N = {N}, eta = {eta:.3g}, {count} perturbations in {len(run.x)} runs in {region.name}"
    return joined_words(said, run.left_out)


def joined_words(*parts: str) -> str:
    """The parts that are not empty, as one text.

    >>> joined_words("two runs", "", "one left the box")
    'two runs; one left the box'
    """
    return "; ".join(part for part in parts if part)
