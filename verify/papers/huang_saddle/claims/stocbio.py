"""StocBiO: bias and mean square error of its hypergradient, its lower level by SGD, and the expected descent.

Expectations are over the data rows, exact, in balls. Constants belong to the smallest box that holds the points of
each case, and hold there for every row (for the mean where nothing else occurs); that makes the bounds as tight as
they can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from flint import arb, arb_mat

from bilevel_sym import Constants, StocBiO, neumann_batch_sizes, solve
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.errors import BilevelError
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness
from bilevel_sym.theories.huang_saddle.schedules.stochastic import stocbio_steps
from verify.papers.huang_saddle.measures.agreement import Case, tightest
from verify.papers.huang_saddle.measures.stochastic.batch_moments import Estimator, hypergradient_error, sgd_step, walks
from verify.papers.huang_saddle.measures.stochastic.samples import (
    AS_GOOD_AS_ALL,
    LARGEST_BATCH,
    SAMPLE_BITS,
    Balls,
    Region,
    Samples,
    Solved,
    ends,
    mean,
    samples_of,
    squares,
)
from verify.papers.huang_saddle.measures.stochastic.stocbio_bounds import (
    distance,
    error_bound,
    inner,
    mean_hypergradient,
    named,
    near_solution,
    phi_after,
    places,
    series_rest,
    slope_in_y,
    solved_points,
    variance_bound,
)
from verify.registry import INSIDE, Kind, claim
from verify.study import Study
from verify.verdict import CheckResult, Verdict, inconclusive, judged

REGION = INSIDE

KINDS: tuple[Kind, ...] = ("stochastic",)
DEEPEST = 60  # products of a Neumann series that are followed exactly
VANISHING = 1e-30  # bounds that are smaller are zero relative to the balls
PATHS = 100  # sequences of rows that are followed one by one
MOVE = 0.02  # of half the box, by which x moves at most
SHIFTS = (0.0, 0.02, -0.02, 0.3, -0.3, -0.9)  # of y from y*, as parts of half the box
DEEPEST_DESCENT = 600  # products of a Neumann series
DESCENT_PATHS = 300  # outcomes that are summed over one by one
RUNS, WORK = 16, 2000  # trajectories, and products and steps of each that take a second or so


@claim("le:first_m", kinds=KINDS)
def bias_of_the_hypergradient(study: Study) -> CheckResult:
    """The mean of the stochastic hypergradient is close to grad Phi.

    |E h - grad Phi|^2 <= 2 c^2 |y - y*|^2 + 2 ell^2 M^2 (1 - 1/kappa)^(2 Q)/mu^2 with
    c = ell + ell^2/mu + M rho/mu + ell M rho/mu^2

    Paper: Lemma D.8 [le:first_m]
    Assumes: Assumption 4.3 [ass:stoc]; a Neumann step of 1/ell.
    Deviation: the print has L for ell in c, and its eta is 1/L_phi elsewhere, with which it fails: the series then
    converges like (1 - mu/L_phi)^Q. The series has Q + 1 terms, so "sharp" is (c |y - y*| + kappa M (1 -
    mu eta)^(Q + 1))^2.
    """
    return _certified(study, "le:first_m", _bias_cases, "exact mean")


def _certified(study: Study, label: str, cases: Callable[[Samples, Variant], Iterator[Case]], said: str) -> CheckResult:
    """The verdict on cases in balls."""
    with precision(SAMPLE_BITS):
        found = list(cases(samples_of(study), study.variant))
    return tightest(label, found, evidence="certified", message=said)


def _bias_cases(samples: Samples, variant: Variant) -> Iterator[Case]:
    for solved, y, c in places(samples, SHIFTS, of_mean=True):
        eta = 1 / float(c.L_phi(variant="printed")) if variant == "printed" else 1 / c.ell
        for Q in (0, 2, *_depths(c), min(3 * DEEPEST, math.ceil(12 * c.kappa))):
            estimator = Estimator(eta, 1, 1, (1,) * Q)
            bias, _ = hypergradient_error(samples, solved.balls, y, solved.grad, estimator, moments=False)
            away, left = slope_in_y(c) * distance(y, solved.y), series_rest(c, eta, Q)
            bound = (away + left) ** 2 if variant == "sharp" else 2 * away**2 + 2 * series_rest(c, None, Q) ** 2
            if ends(bound).lower > VANISHING:
                yield Case(ends(bias), ends(bound), named(samples, solved, y), f"Q = {Q}, eta = {eta:.3g}")


@claim("le:variancc", kinds=KINDS)
def error_of_the_hypergradient(study: Study) -> CheckResult:
    """The mean square error of the stochastic hypergradient.

    E|h - grad Phi|^2 <= 4 kappa^2 M^2/D_g + (8 kappa^2 + 2) M^2/D_f + 16 eta^2 ell^4 M^2/(mu^2 B)
    + 16 kappa^2 M^2 (1 - 1/kappa)^(2 Q) + (16/15) c^2 |y - y*|^2

    Paper: Lemma D.9 [le:variancc]
    Assumes: Assumption 4.3 [ass:stoc]; eta = 1/ell; the batches of the series B Q (1 - eta mu)^(j - 1), rounded up.
    Deviation: the print has c^2 |y - y*|^2 without 16/15. It adds the squares of the truncation of the series and of
    the error of y as if their product had mean zero; both have one sign for f = ell (x y + y^2/2) and
    g = mu y^2/2 - ell x y. The erratum has the proof. "sharp" is kappa^2 M^2/D_g + (2 kappa^2 + 2) M^2/D_f +
    2 eta^2 ell^4 M^2/(mu^2 B) + (c |y - y*| + kappa M (1 - eta mu)^(Q + 1))^2.
    """
    return _certified(study, "le:variancc", _error_cases, "exact second moment")


def _error_cases(samples: Samples, variant: Variant) -> Iterator[Case]:
    for solved, y, c in places(samples, SHIFTS):
        eta = 1 / c.ell
        for Q, size in ((0, AS_GOOD_AS_ALL), (1, 1), *((Q, size) for Q in _depths(c) for size in (1, AS_GOOD_AS_ALL))):
            estimator = Estimator(eta, size, size, neumann_batch_sizes(size, Q, eta, c.mu))
            _, error = hypergradient_error(samples, solved.balls, y, solved.grad, estimator)
            bound = error_bound(c, estimator, size, slope_in_y(c) * distance(y, solved.y), variant)
            setting = f"Q = {Q}, batches of {size}"
            yield Case(ends(error), ends(bound), named(samples, solved, y), setting)


@claim("eq:traerr", kinds=KINDS, also=("eq:initss", "eq:eyk"))
def step_of_sgd(study: Study) -> Iterator[CheckResult]:
    """One step of SGD on the lower level, in expectation.

    E|y' - y*|^2 <= alpha^2 sigma^2/S - alpha (2/(ell + mu) - alpha) |g_y|^2
    + (1 - 2 alpha ell mu/(ell + mu)) |y - y*|^2

    Paper: Equation D.55 [eq:traerr]; Equation D.56 [eq:eyk]
    Assumes: Assumption 4.3 [ass:stoc], Assumption 4.4 [ass:variance-bound], alpha <= 2/(ell + mu).
    """
    with precision(SAMPLE_BITS):
        cases = list(_step_cases(samples_of(study)))
    for part, found in (("alpha = 1/ell", cases[::2]), ("alpha = 2/(ell + mu)", cases[1::2])):
        tested = [case for case in found if case.bound.upper > VANISHING]
        yield tightest("eq:traerr", tested, evidence="certified", message="one step", part=part)


def _step_cases(samples: Samples) -> Iterator[Case]:
    for solved, y, c in places(samples, SHIFTS):
        slope = squares(mean(samples.at(("g_y",), solved.balls, y)["g_y"]))
        ell, mu, sigma = arb(c.ell), arb(c.mu), arb(c.sigma)
        for alpha, size in ((1 / c.ell, 3), (math.nextafter(2 / (c.ell + c.mu), 0.0), 1)):
            a = arb(alpha)
            moved = sgd_step(samples, solved.balls, y, solved.y, alpha, size)
            bound = a**2 * sigma**2 / size - a * (2 / (ell + mu) - a) * slope
            bound += (1 - 2 * a * ell * mu / (ell + mu)) * distance(y, solved.y) ** 2
            setting = f"S = {size}, alpha = {alpha:.3g}"
            yield Case(ends(moved), ends(bound), named(samples, solved, y), setting)


@claim("eq:yjtt", kinds=KINDS)
def several_steps_of_sgd(study: Study) -> CheckResult:
    """The lower level after D steps of SGD.

    E|y^D - y*|^2 <= ((ell - mu)/(ell + mu))^(2 D) |y^0 - y*|^2 + sigma^2/(ell mu S) for alpha = 2/(ell + mu)

    Paper: Equation D.57 [eq:yjtt]
    Assumes: Assumption 4.3 [ass:stoc], Assumption 4.4 [ass:variance-bound].
    """
    return _certified(study, "eq:yjtt", _cases_of_sgd, "S = 1, every sequence of rows")


def _cases_of_sgd(samples: Samples, variant: Variant) -> Iterator[Case]:
    for solved, y, region, levels in _walked(samples):
        for D, reached in enumerate(levels[1:], start=1):
            bound = _after(region.constants, D, distance(y, solved.y))
            yield Case(ends(_mean_square(reached, solved.y)), ends(bound), setting=f"D = {D}")


@claim("eq:y-opt-error", kinds=KINDS)
def warm_start_of_sgd(study: Study) -> CheckResult:
    """The warm start at the next x: twice what SGD left and twice what y* moved, in squares.

    E|y_k^0 - y*(x_k)|^2 <= 2 q^(2 D) |y_(k-1)^0 - y*(x_(k-1))|^2 + 2 kappa^2 |x_k - x_(k-1)|^2 + 2 sigma^2/(ell mu S)
    with q = (ell - mu)/(ell + mu)

    Paper: Equation D.58 [eq:y-opt-error]
    Assumes: Assumption 4.3 [ass:stoc], Assumption 4.4 [ass:variance-bound]. The rest of the display sums a geometric
    series, for q^(2 D) <= 1/4.
    """
    return _certified(study, "eq:y-opt-error", _cases_of_warm_starts, "S = 1, every sequence of rows")


def _cases_of_warm_starts(samples: Samples, variant: Variant) -> Iterator[Case]:
    for solved, y, region, levels in _walked(samples, MOVE):
        moved = 2 * arb(region.constants.kappa) ** 2
        for following, move in _next(samples, solved, region):
            for D, reached in enumerate(levels[1:], start=1):
                bound = 2 * _after(region.constants, D, distance(y, solved.y)) + moved * move
                yield Case(ends(_mean_square(reached, following.y)), ends(bound), setting=f"D = {D}")


def _walked(samples: Samples, x_part: float = 0.0) -> Iterator[tuple[Solved, Balls, Region, list[list[Balls]]]]:
    """Starts y, a region around them, and all that SGD with single rows can reach from there inside the region."""
    steps = max(1, math.floor(math.log(PATHS) / math.log(max(2, samples.sizes["g"]))))
    for solved in solved_points(samples):
        for shift, y_part in ((0.0, 0.02), (0.0, 0.3), (0.05, 0.2), (-0.05, 0.2), (0.0, 1.0)):
            y = near_solution(samples, solved, shift)
            region = samples.region(solved, x_part, y_part)
            if y is None or region is None:
                continue
            alpha = math.nextafter(2 / (region.constants.ell + region.constants.mu), 0.0)
            levels = walks(samples, solved.balls, y, alpha, steps)
            if all(region.holds(place) for level in levels for place in level):
                yield solved, y, region, levels


def _next(samples: Samples, solved: Solved, region: Region) -> Iterator[tuple[Solved, Any]]:
    """A next x inside the region, and |x' - x|^2; y* stays inside on the way, as it moves by kappa |x' - x| at most."""
    low, high = samples.study.x_ends
    following = samples.solved(solved.x + MOVE * (high - low) / 2 * np.where(solved.x > (low + high) / 2, -0.5, 0.5))
    move = sum(((a - b) ** 2 for a, b in zip(following.balls, solved.balls, strict=True)), arb(0))
    if region.room(solved.y) >= region.constants.kappa * math.sqrt(float(move)) * (1 + 1e-9):
        yield following, move


@claim("unlabelled:stocbio-D", kinds=KINDS)
def depth_of_sgd(study: Study) -> CheckResult:
    """So many steps of SGD leave a quarter of the squared distance.

    D > log(1/4)/(2 log((kappa - 1)/(kappa + 1))) gives ((ell - mu)/(ell + mu))^(2 D) < 1/4

    Paper: Claim [unlabelled:stocbio-D]
    Deviation: the print takes the logarithm of (1 - kappa)/(1 + kappa), which is negative.
    """
    samples = samples_of(study)
    try:
        c = samples.constants(*samples.ends)
    except BilevelError:  # any constants do for what is arithmetic; those of a smaller region are at hand
        regions = (samples.region(solved, 0.01, 0.01) for solved in solved_points(samples))
        found = next((region for region in regions if region is not None), None)
        if found is None:
            raise
        c = found.constants
    rate = (c.ell - c.mu) / (c.ell + c.mu)
    if study.variant == "printed" and rate > 0:
        message = f"(1 - kappa)/(1 + kappa) = {-rate:.3g} has no logarithm"
        return CheckResult(label="unlabelled:stocbio-D", verdict=Verdict.VIOLATED, message=message, evidence="proved")
    D = 1 if rate == 0 else math.floor(math.log(0.25) / (2 * math.log(rate))) + 1
    with precision(SAMPLE_BITS):
        kept = ends(_rate(c) ** (2 * D))
    message = f"D = {D} for kappa = {c.kappa:.3g}"
    return judged("unlabelled:stocbio-D", kept, 0.25, evidence="proved", message=message)


def _rate(c: Constants) -> Any:
    return (arb(c.ell) - arb(c.mu)) / (arb(c.ell) + arb(c.mu))


def _after(c: Constants, D: int, distance: Any) -> Any:
    return _rate(c) ** (2 * D) * distance**2 + arb(c.sigma) ** 2 / (arb(c.ell) * arb(c.mu))


def _mean_square(places: list[Balls], target: Balls) -> Any:
    return sum((distance(place, target) ** 2 for place in places), arb(0)) / len(places)


def _depths(c: Constants) -> tuple[int, ...]:
    return tuple(dict.fromkeys(min(DEEPEST, math.ceil(times * c.kappa)) for times in (2, 5)))


# ---------------------------------------------------------------------- the expected descent of a step on x


@claim("eq:expect-phi", kinds=KINDS, also=("unlabelled:stocbio-smoothness", "unlabelled:stocbio-combined"))
def expected_descent(study: Study) -> Iterator[CheckResult]:
    """The expected descent of a step on x by the moments of the stochastic hypergradient.

    E Phi(x') <= Phi(x) - beta <grad Phi, E h> + beta^2 L_phi (|grad Phi|^2 + E|h - grad Phi|^2)
    <= Phi(x) - (beta/4) |grad Phi|^2 + (beta/2) |E h - grad Phi|^2 + (beta/4) E|h - grad Phi|^2
    <= Phi(x) - (beta/4) |grad Phi|^2 + beta kappa^2 M^2 (1 - 1/kappa)^(2 Q) + (beta/4) (the terms of the mean square
    error without y) + (19/15) beta c^2 |y - y*|^2, for beta = 1/(4 L_phi)

    Paper: Equation D.53 [eq:expect-phi]; Formula [unlabelled:stocbio-smoothness]
    Assumes: Assumption 4.3 [ass:stoc].
    Deviation: the print has 5/4 where the corrected mean square error gives 19/15, and L and tau for ell and rho in c.
    The cases have y = y*, so that this factor is not put to the test: with y elsewhere nothing is promised.
    """
    samples, variant = samples_of(study), study.variant
    with precision(SAMPLE_BITS):
        found = [_descent_cases(samples, *place, variant) for place in _descents(samples)]
    parts = ("by smoothness", "by Young's inequality", "every error explicit")
    for part, cases in zip(parts, list(zip(*found, strict=True)) or [()] * 3, strict=True):
        tested = [case for pair in cases for case in pair if case.measured.upper > 0]
        message = "promised against true decrease"
        yield tightest("eq:expect-phi", tested, evidence="certified", message=message, part=part)


def _descent_cases(samples: Samples, solved: Solved, c: Constants, L_phi: float, variant: Variant) -> list[list[Case]]:
    """The cases of the three inequalities, where single rows are taken and where batches are large."""
    if samples.sizes["f"] * samples.sizes["g"] > DESCENT_PATHS:
        return [[case] for case in _large_batches(samples, solved, c, L_phi, variant)]
    both = (rows(samples, solved, c, L_phi, variant) for rows in (_single_rows, _large_batches))
    return [[*pair] for pair in zip(*both, strict=True)]


def _descents(samples: Samples) -> Iterator[tuple[Solved, Constants, float]]:
    """Points, constants and an L_phi for a region that a step of 1/(4 L_phi) cannot leave, nor y* with it."""
    for solved in solved_points(samples):
        for part in (0.1, 0.02, 0.004):
            region = samples.region(solved, part, 5 * part)
            if region is None:
                continue
            L_phi = float(region.constants.L_phi()) * (1 + 1e-12)
            # no hypergradient is longer than M + kappa M
            move = region.constants.hypergradient_bound / (4 * L_phi) * (1 + 1e-9)
            if move <= region.room_x(solved.x) and region.constants.kappa * move <= region.room(solved.y):
                yield solved, region.constants, L_phi
                break


def _single_rows(samples: Samples, solved: Solved, c: Constants, L_phi: float, variant: Variant) -> list[Case]:
    """With single rows and no product, where every outcome can be summed over."""
    eta, step, x, y = 1 / c.ell, arb(1) / (4 * arb(L_phi)), solved.balls, solved.y
    f, g = samples.at(("f_x", "f_y"), x, y), samples.at(("g_xy",), x, y)["g_xy"]
    steps = [a - jacobian * b * arb(eta) for a, b in zip(f["f_x"], f["f_y"], strict=True) for jacobian in g]
    after = sum((phi_after(samples, solved, h, step, c) for h in steps), arb(0)) / len(steps)
    estimator = Estimator(eta, 1, 1, ())
    bias, error = hypergradient_error(samples, x, y, solved.grad, estimator)
    promised = _promised(solved, c, L_phi, mean(steps), bias, error, error_bound(c, estimator, 1, arb(0), variant))
    where = named(samples, solved, y)
    return [Case(ends(value), ends(solved.phi - after), where, "single rows") for value in promised]


def _large_batches(samples: Samples, solved: Solved, c: Constants, L_phi: float, variant: Variant) -> list[Case]:
    """With batches so large and a series so deep that Phi goes down.

    The mean of Phi(x') is Phi at the mean of x' up to half of L_phi times the variance of x'.
    """
    eta, step, y = 1 / c.ell, arb(1) / (4 * arb(L_phi)), solved.y
    Q = min(DEEPEST_DESCENT, math.ceil(20 * c.kappa))
    estimator = Estimator(eta, AS_GOOD_AS_ALL, AS_GOOD_AS_ALL, neumann_batch_sizes(AS_GOOD_AS_ALL, Q, eta, c.mu))
    h = mean_hypergradient(samples, solved, y, eta, Q)
    bias, variance = squares(h - solved.grad), variance_bound(c, estimator, AS_GOOD_AS_ALL)
    after = phi_after(samples, solved, h, step, c) + arb(L_phi) / 2 * step**2 * variance * arb(0, 1)
    rest = error_bound(c, estimator, AS_GOOD_AS_ALL, arb(0), variant)
    promised = _promised(solved, c, L_phi, h, bias, bias + variance, rest, Q)
    where = named(samples, solved, y)
    return [Case(ends(value), ends(solved.phi - after), where, f"Q = {Q}") for value in promised]


def _promised(
    solved: Solved, c: Constants, L_phi: float, h: arb_mat, bias: Any, error: Any, explicit: Any, Q: int = 0
) -> tuple[Any, Any, Any]:
    """The decrease that each of the three inequalities promises at y = y*."""
    step, slope = arb(1) / (4 * arb(L_phi)), squares(solved.grad)
    by_smoothness = step * inner(solved.grad, h) - step**2 * arb(L_phi) * (slope + error)
    by_young = step / 4 * slope - step / 2 * bias - step / 4 * error
    return by_smoothness, by_young, step / 4 * slope - step * series_rest(c, None, Q) ** 2 - step / 4 * explicit


@claim("lem:stocbio-decrease", kinds=KINDS, also=("eq:f-dec2", "eq:f-dec2-new", "unlabelled:stocbio-budget"))
def decrease_by_the_theorems_batches(study: Study) -> Iterator[CheckResult]:
    """A stocBiO step with the lemma's own depths and batches decreases Phi in expectation.

    E Phi(x') - Phi(x) <= -|grad Phi(x)|^2/(16 L_phi) + eps^2/(400 L_phi)

    Paper: Lemma D.7 [lem:stocbio-decrease]; Equation D.52 [eq:f-dec2]
    Assumes: Assumption 4.3 [ass:stoc], Assumption 4.4 [ass:variance-bound]; the lemma gives orders only, and the sizes
    are those of ``schedules.stocbio_steps``. Taken at eps = 3 |grad Phi|, so that a decrease is promised.
    Deviation: the print moves x by the hypergradient itself; beta times it is meant.
    """
    samples, variant = samples_of(study), study.variant
    with precision(SAMPLE_BITS):
        tried = [_run(samples, *place, variant) for place in _descents(samples)]
    ran = [result for result in tried if isinstance(result, CheckResult)]
    if ran:
        yield max(ran, key=lambda result: (result.verdict is Verdict.VIOLATED, result.decided, result.tightness or 0.0))
    else:
        reason = next((text for text in tried if isinstance(text, str)), "no point was found for it")
        yield inconclusive("lem:stocbio-decrease", reason)


def _run(samples: Samples, solved: Solved, c: Constants, L_phi: float, variant: Variant) -> CheckResult | str:
    """Trajectories of one step from x, y*: what the lemma promises against the mean of what happens."""
    slope = math.sqrt(float(squares(solved.grad)))
    if slope < 1e-6:
        return "grad Phi vanishes at the points tried, so that no decrease is promised"
    goal = Goal(eps=3 * slope, delta=0.1, d=samples.problem.d, initial_error=0.0, gap=1.0, episodes=1)
    steps = stocbio_steps(c, Smoothness(L_phi, float(c.rho_phi())), goal)
    largest = max(steps.S, steps.B * max(steps.Q, 1), steps.batch_f, steps.batch_g)
    if largest > LARGEST_BATCH or steps.D + steps.Q > WORK:
        return f"the lemma asks for D = {steps.D}, Q = {steps.Q} and batches of {largest:.3g} rows"
    beta = 1.0 if variant == "printed" else 1 / (4 * L_phi)
    algorithm = StocBiO(
        steps.D, steps.Q, steps.S, 2 / (c.ell + c.mu), beta, 1 / c.ell, steps.batch_f, steps.batch_g,
        neumann_batches=neumann_batch_sizes(steps.B, steps.Q, 1 / c.ell, c.mu),
    )  # fmt: skip
    start = np.repeat(solved.x[None], RUNS, axis=0)
    y = [float(ball) for ball in solved.y]
    solution = solve(samples.problem, algorithm, start, y0=y, steps=1, rng=samples.study.seed, record="last")
    low, high = samples.study.x_ends
    if not solution.ok or np.any((solution.x < low) | (solution.x > high)):
        return "a step leaves the box, in which alone the constants hold"
    decrease = float(solved.phi) - samples.study.kernels.phi(solution.x)
    noise = 6 * float(decrease.std()) / math.sqrt(RUNS) + 1e-14 * abs(float(solved.phi))
    promised = slope**2 / (16 * L_phi) - goal.eps**2 / (400 * L_phi)
    return judged(
        "lem:stocbio-decrease",
        promised,
        float(decrease.mean()),
        evidence="sampled",
        noise=noise,
        message=f"promised against mean decrease, D = {steps.D}, Q = {steps.Q}, batches up to {largest:.3g} rows",
        worst_point=named(samples, solved, solved.y),
        n_points=RUNS,
        seed=samples.study.seed,
    )
