"""Along runs: the recursions of the warm starts, Gamma_1, and the accuracies that the escape lemmas ask for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from flint import arb

from bilevel_sym import AID, Constants
from bilevel_sym.theories.huang_saddle.schedules.aid import perturbed_accuracy
from bilevel_sym.theories.huang_saddle.schedules.escape import PERTURBED, Escape, escape_of
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness
from bilevel_sym.theories.huang_saddle.schedules.inner import aid_steps
from bilevel_sym.theories.huang_saddle.schedules.neon import neon_escape, neon_estimate
from bilevel_sym.typing import FLOAT64_EPS, Floats
from verify.papers.huang_saddle.claims.hypergradient_error import MOST_WORK, always_exact, never_errs
from verify.papers.huang_saddle.measures import runs
from verify.papers.huang_saddle.measures.agreement import both_zero
from verify.papers.huang_saddle.measures.regions import Region, judged_over_regions
from verify.papers.huang_saddle.measures.second_writing.plain import LongEstimate, Plain, norm
from verify.papers.huang_saddle.measures.second_writing.plain import long as _long
from verify.registry import INSIDE, claim
from verify.study import Study
from verify.verdict import CheckResult, inconclusive, judged

REGION = INSIDE

LONG_WORK = 1_000_000  # operations in many digits, by default, for one check
HALVINGS = 5  # of the interval in which the smallest sufficient D lies
STEPS = ((1, 1), (2, 1), (1, 2), (4, 3))  # D and N for the recursions, which hold for all
LONG_PERTURBATION = 40.0  # times as long as a hypergradient can be: the perturbations against which the print is tried


# ---- the recursions --------------------------------------------------------------------------------------------------


@claim("eq:warmstart-y", also=("eq:gdmax-error-bound",))
def warm_start_y(study: Study) -> CheckResult:
    """The warm start of y is off by what descent left over and by how far y* has moved since.

    |y_k^0 - y*(x_k)| <= (1 - mu/ell)^(D/2) |y_(k-1)^0 - y*(x_(k-1))| + kappa |x_k - x_(k-1)|

    Paper: Equation B.27 [eq:warmstart-y]
    Assumes: Assumption 2.1 [assu:bilevel] over the region; tau = 1/ell; any D.
    Deviation: the last line of the print has eta |grad_phi_hat(x_(k-1))| for |x_k - x_(k-1)|, which a perturbation of
    x breaks. The sharp form has (1 - mu/ell)^D.
    """
    return judged_over_regions(study, lambda region: _recursion(study, region, "eq:warmstart-y", _next_y))


@claim("eq:warmstart-v", kinds=("bilevel", "stochastic"), also=("eq:v-bound", "eq:vkstar-diff"))
def warm_start_v(study: Study) -> CheckResult:
    """The warm start of v is off by what CG left over, by the error of y, and by how far v* has moved since.

    |v_k^0 - v*_k| <= (1 + 2 sqrt(kappa)) (kappa + rho M/mu^2) (1 - mu/ell)^(D/2) |y_(k-1)^0 - y*(x_(k-1))|
    + 2 sqrt(kappa) q^N |v_(k-1)^0 - v*_(k-1)| + (kappa^2 + kappa + rho M (1 + kappa)/mu^2) |x_k - x_(k-1)|

    Paper: Equation B.29 [eq:warmstart-v]; Equation B.25 [eq:v-bound]; Equation B.28 [eq:vkstar-diff]
    Assumes: Assumption 2.1 [assu:bilevel] over the region; tau = 1/ell; any D and N.
    Deviation: the last line of the print has eta |grad_phi_hat(x_(k-1))| for |x_k - x_(k-1)|, as for y. The sharp form
    has (1 - mu/ell)^D, and 1 + 2 sqrt(kappa) q^N for 1 + 2 sqrt(kappa).
    """
    if never_errs(study.exact):
        said = "f_y and g_yy = c I are constant, so v* is, and one step of CG finds it: the left side is zero"
        return both_zero("eq:warmstart-v", said)
    return judged_over_regions(study, lambda region: _recursion(study, region, "eq:warmstart-v", _next_v))


Recursion = Callable[[Study, Constants, runs.Run, int, int, Floats], tuple[Floats, Floats]]


def _next_y(study: Study, c: Constants, run: runs.Run, D: int, N: int, moved: Floats) -> tuple[Floats, Floats]:
    bound = runs.rate_y(c, study.variant) ** D * run.off_y[:, :-1] + c.kappa * moved
    return run.off_y[:, 1:], bound


def _next_v(study: Study, c: Constants, run: runs.Run, D: int, N: int, moved: Floats) -> tuple[Floats, Floats]:
    lasting = 2 * math.sqrt(c.kappa) if study.variant != "sharp" else float(runs.rate_v(c.kappa, N, "sharp"))
    of_y = (1 + lasting) * (c.kappa + c.rho * c.M / c.mu**2) * runs.rate_y(c, study.variant) ** D
    of_x = c.kappa**2 + c.kappa + c.rho * c.M * (1 + c.kappa) / c.mu**2
    of_v = float(runs.rate_v(c.kappa, N, study.variant))
    return run.off_v[:, 1:], of_y * run.off_y[:, :-1] + of_v * run.off_v[:, :-1] + of_x * moved


def _recursion(study: Study, region: Region, label: str, recursion: Recursion) -> CheckResult:
    c = region.constants
    farther = LONG_PERTURBATION if study.variant == "printed" else 1.0
    eta = runs.small_step(region, runs.ITERATIONS) / farther
    rows = []
    for D, N in STEPS:
        run = runs.shaken_run(study, region, AID(D, N, 1 / c.ell), eta, label, farther=farther)
        moved = run.moved[:, :-1]
        if study.variant == "printed":
            moved = eta * np.linalg.norm(run.grad_phi_hat[:, :-1], axis=-1)
        measured, bound = recursion(study, c, run, D, N, moved)
        rows.append((np.where(run.usable[:, 1:], measured, np.nan), bound, run.x[:, 1:], run.left_out))
    measured, bound, at = (np.stack([row[k] for row in rows]) for k in range(3))
    noise = 2 * (runs.rounding(region).y if label == "eq:warmstart-y" else runs.rounding(region).v)
    return runs.compared(
        label, study, measured, bound, noise, at=at,
        message=runs.joined_words(f"D, N in {STEPS}, with perturbations, in {region.name}", rows[0][3]),
    )  # fmt: skip


@claim("eq:equvseq", kinds=("bilevel", "stochastic"), also=("eq:warmstart", "def-gamma1-AID"))
def gamma_1(study: Study) -> CheckResult:
    """Gamma_1 bounds the distance of the warm starts at every iteration.

    |y_k^0 - y*(x_k)| + |v_k^0 - v*_k| <= Gamma_1 = |y_0 - y*(x_0)| + |v_0 - v*_0|
    + 2 eta (kappa^2 + 2 kappa + rho M (1 + kappa)/mu^2) (longest step over eta)

    Paper: Equation B.32 [eq:equvseq]; Equation B.30 [eq:warmstart]; Equation B.19 [def-gamma1-AID]
    Assumes: Assumption 2.1 [assu:bilevel] over the region; tau = 1/ell; D and N that halve the distance.
    Deviation: see ``lem:grad-err-aid``: the print takes M + ell M/mu for the longest step over eta.
    """
    return judged_over_regions(study, lambda region: _within_gamma(study, region))


def _within_gamma(study: Study, region: Region) -> CheckResult:
    c, label = region.constants, "eq:equvseq"
    D, N = runs.halving(c, study.variant)
    if D * runs.RUNS * runs.ITERATIONS > MOST_WORK:
        return inconclusive(label, f"D = {D} steps for each estimate in {region.name}")
    farther = LONG_PERTURBATION if study.variant == "printed" else 1.0
    eta = runs.small_step(region, runs.ITERATIONS) / farther
    run = runs.shaken_run(study, region, AID(D, N, 1 / c.ell), eta, label, farther=farther)
    measured = np.where(run.usable, run.off_y + run.off_v, np.nan)[:, 1:]  # at k = 0 both sides say the same
    bound = np.broadcast_to(runs.gammas(run, c, eta, study.variant)[:, None], measured.shape)
    noise = 2 * (runs.rounding(region).y + runs.rounding(region).v)
    return runs.compared(
        label, study, measured, bound, noise, at=run.x[:, 1:],
        message=runs.described(D, N, eta, run, region),
    )  # fmt: skip


# ---- the accuracies that are asked for -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """How accurate the estimates have to be, and with which D and N the theory gets there."""

    of_gradient: float
    of_y: float
    D: int
    N: int
    iota: float
    eps: float


@claim("eq:error-required", also=("eq:aid-ND", "eq:aid-bound"), kinds=("bilevel", "stochastic"))
def error_required(study: Study) -> CheckResult:
    """With the theorem's D and N, every estimate of a run is as accurate as the escape lemma asks.

    |grad_phi_hat - grad Phi| <= min(sqrt(17)/(80 iota^2), 1/(16 iota^2 2^iota)) eps with D, N of eq:aid-ND

    What is compared is the smallest D with which it is so along the run, and the D of the theory: errors fall
    exponentially in D, so their own ratio would say nothing. In 256 bits.

    Paper: Equation 2.6 [eq:error-required]; Equation B.44 [eq:aid-ND]; Equation B.43 [eq:aid-bound]
    Assumes: Assumption 2.1 [assu:bilevel] over the region; tau = 1/ell.
    Deviation: N divides by the logarithm of (sqrt(kappa) + 1)/(sqrt(kappa) - 1), not of a negative number; both are
    rounded up, and Gamma_1 covers the estimate and the perturbation.
    """
    if never_errs(study.exact):
        return always_exact("eq:error-required")
    return judged_over_regions(study, lambda at: _enough(study, at, "eq:error-required", _asked_by_escape, _descent))


@claim("eq:est-error-neon", also=("eq:est-error-neon-2", "eq:aid-ND-neon"), kinds=("bilevel", "stochastic"))
def est_error_neon(study: Study) -> CheckResult:
    """With the lemma's D and N, every estimate of iNEON is as accurate as its proof asks.

    |error of the gradient| <= min(sqrt(17)/(40 iota^2), 1/(16 iota^2 2^(iota/4)), (9^(1/3) - 2)/(8 iota),
    1/(750 iota^2)) eps and M |y_D - y*| <= eps^2/(750 iota^3 L_phi), with D, N of eq:aid-ND-neon

    Compared like ``eq:error-required``: the smallest sufficient D against that of the theory, in 256 bits.

    Paper: Equation D.2 [eq:est-error-neon]; Equation D.3 [eq:est-error-neon-2]; Equation D.4 [eq:aid-ND-neon]
    Assumes: Assumption 2.1 [assu:bilevel] over the region; tau = 1/ell.
    Deviation: see ``bilevel_sym.theories.huang_saddle.schedules.ineon``.
    """
    return judged_over_regions(study, lambda part: _enough(study, part, "eq:est-error-neon", _asked_by_neon, _search))


def _goal(study: Study, region: Region, initial: float) -> tuple[Smoothness, Goal]:
    """The largest eps, up to a factor 2, for which there is something to escape from; a chance of one half."""
    c = region.constants
    L_phi, rho_phi = float(c.L_phi(variant=study.variant)), float(c.rho_phi(variant=study.variant))
    # a larger number is a Lipschitz constant too: where the Hessian is (nearly) constant, this one sets the scale
    smooth = Smoothness(L_phi, max(rho_phi, 1e-6 * L_phi))
    eps = L_phi * L_phi / smooth.rho_phi / 2
    return smooth, Goal(eps=eps, delta=0.5, d=study.exact.d, initial_error=initial, gap=1.0, episodes=1)


def _asked_by_escape(study: Study, region: Region, initial: float) -> tuple[Asked, Escape]:
    c = region.constants
    smooth, goal = _goal(study, region, initial)
    escape = escape_of(smooth, goal, PERTURBED)
    accuracy = perturbed_accuracy(goal, escape)
    bound = c.hypergradient_bound
    longest = bound if study.variant == "printed" else max(bound + accuracy, escape.r)
    D, N = aid_steps(c, eta=escape.eta, initial_error=initial, gradient_bound=longest, accuracy=accuracy)
    return Asked(accuracy, math.inf, D, N, escape.iota, goal.eps), escape


def _asked_by_neon(study: Study, region: Region, initial: float) -> tuple[Asked, Escape]:
    c = region.constants
    smooth, goal = _goal(study, region, initial)
    escape = neon_escape(c, smooth, goal, "corrected" if c.rho == 0 else study.variant)
    found = neon_estimate(c, smooth, goal, escape, variant=study.variant)
    return Asked(found.accuracy, found.accuracy_y, found.D, found.N, escape.iota, goal.eps), escape


Walk = Callable[[Plain, runs.Start, Asked, Escape, int, Region], list[tuple[LongEstimate, list[arb]]]]


def _enough(
    study: Study, region: Region, label: str, ask: Callable[[Study, Region, float], tuple[Asked, Escape]], walk: Walk
) -> CheckResult:
    """The smallest D that suffices, by bisection, against that of the theory."""
    start = _one_start(study, region, label)
    initial = _initial_error(study, start) * (1 + 1e-9)
    asked, escape = ask(study, region, initial)
    long = Plain(study.exact)
    with Plain.precision():
        needs = 3 * asked.D * long.operations_a_step * (1 + HALVINGS / 2)
        if needs > study.effort * LONG_WORK:
            reason = f"D = {asked.D} would take {needs:.2g} operations in many digits in {region.name}"
            return inconclusive(label, reason)

        def worst(D: int) -> float:
            return _worst(long, asked, walk(long, start, asked, escape, D, region))

        least, most = 0, asked.D
        if (excess := worst(most)) > 1:
            return judged(
                label, excess, 1.0, evidence="sampled", n_points=3, seed=study.seed,
                worst_point=study.named(start.x[0]),
                message=f"the error over what is asked, with D = {asked.D}, N = {asked.N} in {region.name}",
            )  # fmt: skip
        for _ in range(HALVINGS):
            if most - least <= 1:
                break
            middle = (least + most) // 2
            least, most = (middle, most) if worst(middle) > 1 else (least, middle)
    return judged(
        label, float(most), float(asked.D), evidence="sampled", n_points=3, seed=study.seed,
        worst_point=study.named(start.x[0]),
        message=f"the smallest sufficient D against the theory's, N = {asked.N}, iota = {asked.iota:.3g}, "
        f"accuracy {asked.of_gradient:.2g} in {region.name}",
    )  # fmt: skip


def _worst(long: Plain, asked: Asked, walked: list[tuple[LongEstimate, list[arb]]]) -> float:
    """The largest error over what is asked, of all estimates."""
    worst = 0.0
    for estimate, x in walked:
        exact = long.exact(x, estimate.y)
        of_gradient = norm([a - b for a, b in zip(estimate.grad, exact.grad, strict=True)])
        of_y = norm([a - b for a, b in zip(estimate.y, exact.y, strict=True)])
        worst = max(worst, float(of_gradient / asked.of_gradient))
        if math.isfinite(asked.of_y):
            worst = max(worst, float(of_y / asked.of_y))
    return worst


def _descent(
    long: Plain, start: runs.Start, asked: Asked, escape: Escape, D: int, region: Region
) -> list[tuple[LongEstimate, list[arb]]]:
    """Three iterations of Algorithm 1, a perturbation between the second and the third."""
    x, tau, eta = _long(start.x[0]), 1 / arb(region.constants.ell), arb(_stays(escape.eta, region))
    first = long.estimate(x, _long(start.y[0]), _long(start.v[0]), D=D, N=asked.N, tau=tau)
    after = [(a - eta * b).mid() for a, b in zip(x, first.grad, strict=True)]
    second = long.estimate(after, first.y, first.v, D=D, N=asked.N, tau=tau)
    shift = arb(escape.r) * eta / arb(len(x)).sqrt()
    moved = [(a - shift).mid() for a in after]
    third = long.estimate(moved, second.y, second.v, D=D, N=asked.N, tau=tau)
    return [(first, x), (second, after), (third, moved)]


def _search(
    long: Plain, start: runs.Start, asked: Asked, escape: Escape, D: int, region: Region
) -> list[tuple[LongEstimate, list[arb]]]:
    """The estimate of iNEON at the point itself, and two of its steps."""
    x, tau, eta = _long(start.x[0]), 1 / arb(region.constants.ell), arb(_stays(escape.eta, region))
    first = long.estimate(x, _long(start.y[0]), _long(start.v[0]), D=D, N=asked.N, tau=tau)
    shift = arb(escape.r) * eta / arb(len(x)).sqrt()
    near = [(a + shift).mid() for a in x]
    second = long.estimate(near, first.y, first.v, D=D, N=asked.N, tau=tau)
    after = [(a - eta * (p - q)).mid() for a, p, q in zip(near, second.grad, first.grad, strict=True)]
    third = long.estimate(after, second.y, second.v, D=D, N=asked.N, tau=tau)
    return [(first, x), (second, near), (third, after)]


def _stays(eta: float, region: Region) -> float:
    """The lemma's step, or a shorter one that stays in the region: Gamma_1 grows with it."""
    return min(eta, runs.small_step(region, 4))


def _one_start(study: Study, region: Region, name: str) -> runs.Start:
    """One start: of three, the last, with y and v off."""
    start = runs.starts(study, region, 3, name)
    return runs.Start(start.x[-1:], start.y[-1:], start.v[-1:])


def _initial_error(study: Study, start: runs.Start) -> float:
    y_star = study.kernels.y_star(start.x)
    v_star = runs.v_stars(study.kernels, start.x, y_star)
    return float(np.linalg.norm(start.y - y_star) + np.linalg.norm(start.v - v_star))


# ---- the function that iNEON descends --------------------------------------------------------------------------------


@claim("eq:hatphi", also=("eq:phi-smooth-neon", "eq:u-update-neon"))
def hat_phi(study: Study) -> CheckResult:
    """Along iNEON, Phi without its linear part falls, up to the errors of the estimates.

    With hat_Phi(u) = Phi(x + u) - Phi(x) - grad Phi(x)^T u and u_(k+1) = u_k - eta (estimate at x + u_k - that at x):
    |u_(k+1) - u_k|^2/(4 eta) <= hat_Phi(u_k) - hat_Phi(u_(k+1)) + 2 eta (|error at x + u_k|^2 + |error at x|^2)

    Paper: Equation D.1 [eq:hatphi]; Equation D.5 [eq:phi-smooth-neon]; Equation 4.1 [eq:u-update-neon]
    Assumes: eta = 1/L_phi, with L_phi a Lipschitz constant of grad Phi over the region.
    Deviation: none; the sharp form has |u_(k+1) - u_k|^2/(2 eta) and the inner product of the error with the step.
    """
    return judged_over_regions(study, lambda region: _falls(study, region))


def _falls(study: Study, region: Region) -> CheckResult:
    label, c, kernels = "eq:hatphi", region.constants, study.kernels
    start = runs.starts(study, region, runs.RUNS, label)
    eta = 1 / float(c.L_phi(variant=study.variant))
    estimator = AID(2, 1, 1 / c.ell)
    here = estimator.estimate(study.exact, start.x, y0=start.y, v0=start.v)
    width = (region.upper - region.lower)[: region.d]
    u = width / 8 * study.rng(label).uniform(-1, 1, start.x.shape)
    y, v = here.y_D, here.v_N
    exact_here, value = kernels.grad_phi(start.x), kernels.phi(start.x)
    wrong_here = here.grad_phi_hat - exact_here
    inside = np.ones(len(u), dtype=np.bool_)
    rows = []
    for _ in range(6):
        there = estimator.estimate(study.exact, start.x + u, y0=y, v0=v)
        y, v = there.y_D, there.v_N
        step = -eta * (there.grad_phi_hat - here.grad_phi_hat)
        inside &= region.holds(start.x + u) & region.holds(start.x + u + step)
        inside &= region.holds(start.x, kernels.y_star(np.where(inside[:, None], start.x + u, start.x)))
        at = np.where(inside[:, None], start.x + u, start.x)
        after = np.where(inside[:, None], at + step, start.x)
        wrong = there.grad_phi_hat - kernels.grad_phi(at)
        fall = kernels.phi(at) - kernels.phi(after) + np.einsum("ki,ki->k", exact_here, step)
        length = np.einsum("ki,ki->k", step, step)
        if study.variant == "sharp":
            left, slack = length / (2 * eta), np.einsum("ki,ki->k", wrong_here - wrong, step)
        else:
            left, slack = length / (4 * eta), 2 * eta * ((wrong**2).sum(axis=1) + (wrong_here**2).sum(axis=1))
        rows.append((np.where(inside, left, np.nan), fall + slack, at))
        u = u + step
    measured, bound, at = (np.stack([row[k] for row in rows]) for k in range(3))
    residual = float(np.linalg.norm(kernels.g_y(start.x, kernels.y_star(start.x)), axis=1).max())
    noise = 64 * FLOAT64_EPS * (float(np.abs(value).max()) + c.M * region.scale)
    noise += 2 * c.M * runs.rounding(region, residual).y  # Phi errs by what rounding leaves of y*
    return runs.compared(
        label, study, measured, bound, noise, at=at,
        message=f"6 steps of iNEON from {len(start.x)} points with D = 2, N = 1 in {region.name}",
    )  # fmt: skip
