"""The error of estimated hypergradients: rates of the inner loops, and the lemmas on AID and GDmax along real runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import sympy as sp

from bilevel_sym import AID, BilevelProblem, Constants, GDmax
from bilevel_sym.errors import BilevelError
from bilevel_sym.estimators.linear_system import conjugate_gradients
from bilevel_sym.symbolic.blocks import Blocks
from bilevel_sym.theories import Variant
from bilevel_sym.typing import FLOAT64_EPS, Floats
from verify.papers.huang_saddle.measures import runs
from verify.papers.huang_saddle.measures.agreement import both_zero
from verify.papers.huang_saddle.measures.regions import Region, judged_over_regions, lower_levels
from verify.papers.huang_saddle.measures.responses import Iterations, tightest_iterations
from verify.registry import INSIDE, claim
from verify.study import Study
from verify.verdict import CheckResult, inconclusive, judged

REGION = INSIDE

CONTRACTION_POINTS = 24
MOST_STEPS = 5  # of an inner loop, for the rates
MOST_WORK = 60_000  # gradients of g in one run: about a second


# ---- rates of the inner loops ----------------------------------------------------------------------------------------


def isotropic(problem: BilevelProblem) -> Any:
    """The number c > 0 with g_yy = c I for all x and y, or None: then kappa = 1, and one inner step is exact.

    >>> from bilevel_sym import zoo
    >>> isotropic(zoo.get("minimax_nash").problem), isotropic(zoo.get("scalar").problem)
    (2, None)
    """
    if problem.is_array:
        return _isotropic_arrays(problem)
    block = _blocks(problem)["g_yy"]
    first = block[0, 0]
    if not (first.is_number and first.is_positive):  # without a minimiser nothing ends there
        return None
    n = problem.n
    return first if all(block[i, j] == (first if i == j else 0) for i in range(n) for j in range(n)) else None


def _vanish(problem: BilevelProblem, *names: str) -> bool:
    """Whether blocks of an array problem are zero, as its formulas show."""
    return all(tensor.is_zero for name in names for tensor in problem.array_model.block(name).values())


def _isotropic_arrays(problem: BilevelProblem) -> Any:
    """The same of an array problem: g_yy is constant, and c I at one point."""
    if not _vanish(problem, "g_xyy", "g_yyy"):
        return None
    block = problem.kernels.g_yy(np.zeros(problem.d), np.zeros(problem.n))
    first = float(block[0, 0])
    return first if first > 0 and np.array_equal(block, first * np.eye(problem.n)) else None


def never_errs(problem: BilevelProblem) -> bool:
    """Whether f_x, f_y, g_xy and g_yy do not depend on y and g_yy = c I: then one step of CG makes AID exact.

    >>> from bilevel_sym import zoo
    >>> never_errs(zoo.get("tube", d=2).problem), never_errs(zoo.get("saddle").problem)
    (True, False)
    """
    if problem.is_array:
        return _vanish(problem, "f_xy", "f_yy", "g_xyy") and isotropic(problem) is not None
    blocks = _blocks(problem)
    constant = all(entry == 0 for name in ("f_xy", "f_yy") for entry in blocks[name])
    return constant and isotropic(problem) is not None and all(entry == 0 for entry in sp.flatten(blocks["g_xyy"]))


def always_exact(label: str) -> CheckResult:
    """The verdict where AID never errs."""
    said = "no block of the estimate depends on y and g_yy is a multiple of I: AID is exact for D, N >= 1"
    return both_zero(label, said)


def _blocks(problem: BilevelProblem) -> Blocks:
    return Blocks(problem.f, problem.g, problem.x, problem.y)


@claim("eq:cgrate")
def cg_rate(study: Study) -> CheckResult:
    """N steps of conjugate gradients shrink the error of v by 2 sqrt(kappa) q^N.

    |v_N - v_hat| <= 2 sqrt(kappa) q^N |v_0 - v_hat| with q = (sqrt(kappa) - 1)/(sqrt(kappa) + 1)

    Paper: Equation B.21 [eq:cgrate]
    Assumes: g_yy positive definite; kappa is that of the matrix at hand, which is at most that of the assumption, and
    the bound grows with kappa.
    Deviation: the sharp form is min(1, sqrt(kappa) 2 q^N/(1 + q^(2N))).
    """
    if study.exact.n == 1 or isotropic(study.exact) is not None:
        return _one_step(study)
    x, matrix, right = _systems(study)
    if not len(x):
        return inconclusive("eq:cgrate", "g_yy is not positive definite at any point tried")
    values, vectors = np.linalg.eigh(matrix)
    exact: Floats = np.asarray(np.linalg.solve(matrix, right[..., None])[..., 0], dtype=np.float64)
    kappa = values[:, -1] / values[:, 0]
    table = [
        _cg_errors(matrix, right, exact, exact + displaced, kappa, study.variant)
        for displaced in _worst_displacements(values, vectors, study.rng("cg"))
    ]
    measured, bound, noise = (np.array(part) for part in zip(*table, strict=True))
    return runs.compared(
        "eq:cgrate", study, measured, bound, noise, at=np.broadcast_to(x, (*measured.shape, x.shape[1])),
        message=f"1 to {measured.shape[1]} steps at {len(x)} points, from {len(table)} starts each; "
        f"condition numbers up to {kappa.max():.3g}",
    )  # fmt: skip


def _systems(study: Study) -> tuple[Floats, Floats, Floats]:
    """Points of the box, with g_yy and f_y there."""
    x = study.points(CONTRACTION_POINTS, "cg")
    ends = list(study.box)[study.exact.d :]
    rng = study.rng("cg y")
    if ends:
        low, high = (np.array([float(end[k]) for end in ends]) for k in (0, 1))
        y = low + (high - low) * rng.random((CONTRACTION_POINTS, study.exact.n))
    else:
        y = lower_levels(study.kernels, x)
    matrix, right = study.kernels.g_yy(x, y), study.kernels.f_y(x, y)
    good = np.asarray(np.isfinite(matrix).all(axis=(1, 2)) & np.isfinite(right).all(axis=1))
    values = np.linalg.eigvalsh(np.where(good[:, None, None], matrix, np.eye(study.exact.n)))
    good &= values[:, 0] > 1e-10 * values[:, -1]
    return x[good], matrix[good], right[good]


def _worst_displacements(values: Floats, vectors: Floats, rng: np.random.Generator) -> Iterator[Floats]:
    """Starts off by both ends of the spectrum, which is slowest, and by chance."""
    first, last = vectors[:, :, 0], vectors[:, :, -1]
    yield first + last
    yield first / values[:, :1] + last / values[:, -1:]
    yield first / np.sqrt(values[:, :1]) + last / np.sqrt(values[:, -1:])
    yield rng.standard_normal(first.shape)
    # one weight for each eigenvalue makes every polynomial of small degree large somewhere
    yield np.einsum("kij,kj->ki", vectors, 1 / np.sqrt(values))


def _cg_errors(
    matrix: Floats, right: Floats, exact: Floats, start: Floats, kappa: Floats, variant: Variant
) -> tuple[Floats, Floats, Floats]:
    """Errors after 1, 2, ... steps, their bounds and their rounding, (steps, points)."""
    off = np.linalg.norm(start - exact, axis=1)
    measured, bound = [], []
    for steps in range(1, min(matrix.shape[-1], MOST_STEPS) + 1):
        found = conjugate_gradients(lambda p: np.einsum("kij,jk->ik", matrix, p), right.T, start.T, steps).v.T
        measured.append(np.linalg.norm(found - exact, axis=1))
        bound.append(runs.rate_v(kappa, steps, variant) * off)
    noise = 64 * FLOAT64_EPS * kappa * (np.linalg.norm(exact, axis=1) + off)
    return np.array(measured), np.array(bound), np.broadcast_to(noise, (len(measured), len(noise)))


def _one_step(study: Study) -> CheckResult:
    """Where g_yy is a multiple of I one step is exact: computed with the numbers at hand, without rounding."""
    x, matrix, right = _systems(study)
    if not len(x):
        return inconclusive("eq:cgrate", "g_yy is not positive at any point tried")
    worst = Fraction(0)
    for a, b in zip(matrix[:, 0, 0], right, strict=True):
        curvature, wanted = Fraction(float(a)), [Fraction(float(entry)) for entry in b]
        start = [entry + 1 + k for k, entry in enumerate(wanted)]
        residual = [w - curvature * v for w, v in zip(wanted, start, strict=True)]
        size = sum(r * r for r in residual)
        step = size / (curvature * size) if size else Fraction(0)
        errors = (v + step * r - w / curvature for v, r, w in zip(start, residual, wanted, strict=True))
        worst = max(worst, *(abs(error) for error in errors))
    return judged(
        "eq:cgrate", float(worst), 0.0, evidence="proved", n_points=len(x), seed=study.seed,
        message="g_yy is a multiple of I: in rational arithmetic one step is exact, and the error zero from N = 1 on",
    )  # fmt: skip


@claim("eq:gdrate")
def gd_rate(study: Study) -> CheckResult:
    """D steps of gradient descent shrink the error of y by (1 - mu/ell)^(D/2).

    |y_D - y*| <= (1 - mu/ell)^(D/2) |y_0 - y*| with steps of size 1/ell

    Paper: Equation B.22 [eq:gdrate]
    Assumes: mu and ell bound g_yy wherever the iterates go.
    Deviation: the sharp form is (1 - mu/ell)^D, because the averaged Hessian between y_t and y* has its eigenvalues in
    [mu, ell].
    """
    return _or_proved(study, "eq:gdrate", lambda: judged_over_regions(study, lambda region: _descents(study, region)))


def _or_proved(study: Study, label: str, check: Callable[[], CheckResult]) -> CheckResult:
    """The check; where it decides nothing and g_yy = c I, the statement with mu = ell = c: both sides are zero."""
    constant = isotropic(study.exact)
    if constant is None:
        return check()
    try:
        result = check()
    except BilevelError:
        result = inconclusive(label, "")
    said = f"g_yy = {constant} I: with mu = ell = {constant} one step ends at y*, so both sides are zero"
    return result if result.decided else both_zero(label, said)


def _descents(study: Study, region: Region) -> CheckResult:
    kernels, c = study.kernels, region.constants
    start = runs.starts(study, region, CONTRACTION_POINTS, "descent steps")
    x, y = start.x, start.y
    y_star = lower_levels(kernels, x)
    off = np.linalg.norm(y - y_star, axis=1)
    residual = float(np.nanmax(np.linalg.norm(kernels.g_y(x, y_star), axis=1)))
    stays = region.holds(x, y)
    measured, bound = [], []
    for steps in range(1, MOST_STEPS + 1):
        y = y - kernels.g_y(x, y) / c.ell
        stays = stays & region.holds(x, y)
        measured.append(np.where(stays, np.linalg.norm(y - y_star, axis=1), np.nan))
        bound.append(runs.rate_y(c, study.variant) ** steps * off)
    table = np.array(measured)
    return runs.compared(
        "eq:gdrate", study, table, np.array(bound), 2 * runs.rounding(region, residual).y,
        at=np.broadcast_to(x, (*table.shape, x.shape[1])),
        message=f"1 to {MOST_STEPS} steps from {len(x)} starts in {region.name}; kappa = {c.kappa:.4g}",
    )  # fmt: skip


# ---- along runs ------------------------------------------------------------------------------------------------------


@claim("lem:grad-err-aid", kinds=("bilevel", "stochastic"), also=("eq:aid-error", "eq:aid-error1", "def-gamma1-AID"))
def grad_err_aid(study: Study) -> Iterator[CheckResult]:
    """Along a run of AID with warm starts and perturbations, the hypergradient errs by at most a multiple of Gamma_1.

    |grad_phi_hat - grad Phi| <= ((1 + kappa (1 + 2 sqrt(kappa))) (ell + rho M/mu) (1 - mu/ell)^(D/2)
    + 2 ell sqrt(kappa) q^N) Gamma_1

    Paper: Lemma B.1 [lem:grad-err-aid]; Equation B.18 [eq:aid-error]; Equation B.26 [eq:aid-error1]
    Paper: Equation B.19 [def-gamma1-AID]
    Assumes: Assumption 2.1 [assu:bilevel] over the region; tau = 1/ell; for the part with Gamma_1, D and N that halve
    the warm-start distance.
    Deviation: Gamma_1 is printed with M + ell M/mu for the longest step over eta, which bounds the exact hypergradient
    but neither its estimate nor a perturbation; the corrected form takes the longer of the two, the sharp form the
    longest step itself and (1 - mu/ell)^D.
    """
    if never_errs(study.exact):
        yield always_exact("lem:grad-err-aid")
        return
    yield judged_over_regions(study, lambda region: _one_iteration(study, region))
    yield judged_over_regions(study, lambda region: _with_gamma(study, region))


def _one_iteration(study: Study, region: Region) -> CheckResult:
    """One iteration from any warm start, for any D and N: what the lemma is made of; starts are searched for."""
    c, noise = region.constants, 2 * runs.rounding(region).grad
    found: list[Iterations] = []
    for D, N in ((1, 1), (2, 1), (1, 2), (4, 2)):
        of_y, of_v = _coefficients(c, D, N, study.variant)
        found += tightest_iterations(
            study, region, AID(D, N, 1 / c.ell), partial(_weighted, of_y, of_v), noise, f"one {D} {N}"
        )
    if not found:
        return inconclusive("lem:grad-err-aid", f"y is free in {region.name}", part="one iteration")
    measured, bound, at = (np.stack(parts) for parts in zip(*((i.error, i.bound, i.x) for i in found), strict=True))
    return runs.compared(
        "lem:grad-err-aid", study, measured, bound, noise, part="one iteration", at=at,
        message=f"D, N = 1 to 4, 1 to 2 in {region.name}",
    )  # fmt: skip


def _weighted(of_y: float, of_v: float, y: Floats, v: Floats) -> Floats:
    return of_y * y + of_v * v


def _coefficients(c: Constants, D: int, N: int, variant: Variant) -> tuple[float, float]:
    """The factors of |y_0 - y*| and |v_0 - v*| in the error of one iteration."""
    steep = 1 + c.kappa * (1 + 2 * math.sqrt(c.kappa))
    return steep * (c.ell + c.rho * c.M / c.mu) * runs.rate_y(c, variant) ** D, c.ell * float(
        runs.rate_v(c.kappa, N, "corrected")
    )


def _with_gamma(study: Study, region: Region) -> CheckResult:
    c = region.constants
    label, part = "lem:grad-err-aid", "Gamma_1"
    D, N = runs.halving(c, study.variant)
    if D * runs.RUNS * runs.ITERATIONS > MOST_WORK:
        return inconclusive(label, f"D = {D} steps for each estimate in {region.name}", part=part)
    eta = runs.small_step(region, runs.ITERATIONS)
    run = runs.shaken_run(study, region, AID(D, N, 1 / c.ell), eta, "gamma")
    bound = sum(_coefficients(c, D, N, study.variant)) * runs.gammas(run, c, eta, study.variant)
    return runs.compared(
        label, study, run.error, np.broadcast_to(bound[:, None], run.error.shape), 2 * runs.rounding(region).grad,
        at=run.x, part=part, message=runs.described(D, N, eta, run, region),
    )  # fmt: skip


@claim("lem:grad-err-mini", kinds=("minimax",), also=("eq:gdmax-error", "eq:gdmax-error-D"))
def grad_err_mini(study: Study) -> CheckResult:
    """Along a run of GDmax with warm starts and perturbations, the hypergradient errs by at most a given bound.

    |grad_phi_hat - grad Phi| <= ell (initial_error + 2 eta kappa bound) (1 - 1/kappa)^(D/2)

    Paper: Lemma C.2 [lem:grad-err-mini]; Equation C.6 [eq:gdmax-error]; Equation C.9 [eq:gdmax-error-D]
    Assumes: Assumption 3.5 [assu:minimax] over the region; tau = 1/ell; (1 - 1/kappa)^(D/2) <= 1/2.
    Deviation: the print bounds the estimate by M + ell M/mu with an M that Assumption 3.5 does not have; the corrected
    form takes the longest step over eta, which a perturbation may set. The sharp form has (1 - 1/kappa)^D.
    """
    label = "lem:grad-err-mini"
    if all(entry == 0 for entry in _blocks(study.exact)["f_xy"]) and study.constants.valid.mu > 0:
        return both_zero(label, "f_xy = 0: f_x does not depend on y, so the estimate is exact")
    return _or_proved(study, label, lambda: judged_over_regions(study, lambda region: _gdmax(study, region)))


def _gdmax(study: Study, region: Region) -> CheckResult:
    c = region.constants
    rate = runs.rate_y(c, study.variant)
    D = 1 if rate <= 0.5 else math.ceil(math.log(0.5) / runs.log_rate_y(c, study.variant))
    if D * runs.RUNS * runs.ITERATIONS > MOST_WORK:
        return inconclusive("lem:grad-err-mini", f"D = {D} steps for each estimate in {region.name}")
    eta = runs.small_step(region, runs.ITERATIONS)
    run = runs.shaken_run(study, region, GDmax(D, 1 / c.ell), eta, "mini")
    longest = run.longest / eta
    if study.variant == "printed":
        longest = np.full_like(longest, c.hypergradient_bound)
    bound = c.ell * (run.off_y[:, 0] + 2 * eta * c.kappa * longest) * rate**D
    noise = 2 * c.ell * runs.rounding(region).y + 64 * FLOAT64_EPS * c.M
    return runs.compared(
        "lem:grad-err-mini", study, run.error, np.broadcast_to(bound[:, None], run.error.shape), noise, at=run.x,
        message=runs.described(D, 0, eta, run, region),
    )  # fmt: skip
