"""StocBiO: bias and mean square error of its hypergradient, its lower level by SGD, and the expected descent.

Expectations are over the data rows, exact, in balls. Constants belong to the smallest box that holds the points of
each case, and hold there for every row (for the mean where nothing else occurs); that makes the bounds as tight as
they can be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from flint import arb

from bilevel_sym import Constants, neumann_batch_sizes
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.errors import BilevelError
from bilevel_sym.theories import Variant
from verify.papers.huang_saddle.measures.stochastic.batch_moments import Estimator, hypergradient_error, sgd_step, walks
from verify.papers.huang_saddle.measures.stochastic.cases import Case, tightest
from verify.papers.huang_saddle.measures.stochastic.samples import (
    AS_GOOD_AS_ALL,
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
    named,
    near_solution,
    places,
    series_rest,
    slope_in_y,
    solved_points,
)
from verify.places import INSIDE
from verify.registry import Kind, claim
from verify.study import Study
from verify.verdict import CheckResult, Verdict, judged

REGION = INSIDE

__all__: list[str] = []

KINDS: tuple[Kind, ...] = ("stochastic",)
DEEPEST = 60  # products of a Neumann series that are followed exactly
VANISHING = 1e-30  # bounds that are smaller are zero relative to the balls
PATHS = 100  # sequences of rows that are followed one by one
MOVE = 0.02  # of half the box, by which x moves at most
SHIFTS = (0.0, 0.02, -0.02, 0.3, -0.3, -0.9)  # of y from y*, as parts of half the box


@claim("le:first_m", kinds=KINDS)
def bias_of_the_hypergradient(study: Study) -> Iterator[CheckResult]:
    """The mean of the stochastic hypergradient is close to grad Phi.

    |E h - grad Phi|^2 <= 2 c^2 |y - y*|^2 + 2 ell^2 M^2 (1 - 1/kappa)^(2 Q)/mu^2 with
    c = ell + ell^2/mu + M rho/mu + ell M rho/mu^2

    Paper: Lemma D.8 [le:first_m]
    Assumes: Assumption 4.3 [ass:stoc]; a Neumann step of 1/ell.
    Deviation: the print has L for ell in c, and its eta is 1/L_phi elsewhere, with which it fails: the series then
    converges like (1 - mu/L_phi)^Q. The series has Q + 1 terms, so "sharp" is (c |y - y*| + kappa M (1 -
    mu eta)^(Q + 1))^2.
    """
    with precision(SAMPLE_BITS):
        cases = list(_bias_cases(samples_of(study), study.variant))
    yield tightest("le:first_m", cases, evidence="certified", message="exact mean", variant=study.variant)


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
def error_of_the_hypergradient(study: Study) -> Iterator[CheckResult]:
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
    variant = study.variant
    with precision(SAMPLE_BITS):
        cases = list(_error_cases(samples_of(study), variant))
    yield tightest("le:variancc", cases, evidence="certified", message="exact second moment", variant=variant)


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
        yield tightest("eq:traerr", tested, evidence="certified", message="one step", variant=study.variant, part=part)


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
    samples = samples_of(study)
    with precision(SAMPLE_BITS):
        cases = [
            Case(ends(_mean_square(places, solved.y)), ends(_after(c, D, distance(y, solved.y))), setting=f"D = {D}")
            for solved, y, region, levels in _walked(samples)
            for c in (region.constants,)
            for D, places in enumerate(levels)
            if D
        ]
    message = "S = 1, every sequence of rows"
    return tightest("eq:yjtt", cases, evidence="certified", message=message, variant=study.variant)


@claim("eq:y-opt-error", kinds=KINDS)
def warm_start_of_sgd(study: Study) -> CheckResult:
    """The warm start at the next x: twice what SGD left and twice what y* moved, in squares.

    E|y_k^0 - y*(x_k)|^2 <= 2 q^(2 D) |y_(k-1)^0 - y*(x_(k-1))|^2 + 2 kappa^2 |x_k - x_(k-1)|^2 + 2 sigma^2/(ell mu S)
    with q = (ell - mu)/(ell + mu)

    Paper: Equation D.58 [eq:y-opt-error]
    Assumes: Assumption 4.3 [ass:stoc], Assumption 4.4 [ass:variance-bound]. The rest of the display sums a geometric
    series, for q^(2 D) <= 1/4.
    """
    samples = samples_of(study)
    with precision(SAMPLE_BITS):
        cases = [
            Case(
                ends(_mean_square(levels[D], following.y)),
                ends(
                    2 * _after(region.constants, D, distance(y, solved.y)) + 2 * arb(region.constants.kappa) ** 2 * move
                ),
                setting=f"D = {D}",
            )
            for solved, y, region, levels in _walked(samples, MOVE)
            for following, move in _next(samples, solved, region)
            for D in range(1, len(levels))
        ]
    message = "S = 1, every sequence of rows"
    return tightest("eq:y-opt-error", cases, evidence="certified", message=message, variant=study.variant)


def _walked(samples: Samples, x_part: float = 0.0) -> Iterator[tuple[Solved, Balls, Region, list[list[Balls]]]]:
    """Starts y, a region around them, and all that SGD with single rows can reach from there inside the region."""
    steps = max(1, math.floor(math.log(PATHS) / math.log(max(2, samples.sizes["g"]))))
    for solved in solved_points(samples):
        for shift, y_part in ((0.0, 0.02), (0.0, 0.3), (0.05, 0.2), (-0.05, 0.2), (0.0, 1.0)):
            y = near_solution(samples, solved, shift)
            region = samples.region(solved, x_part, y_part)
            if y is None or region is None:
                continue
            levels = walks(samples, solved.balls, y, _alpha(region.constants), steps)
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
        return CheckResult(
            label="unlabelled:stocbio-D",
            verdict=Verdict.VIOLATED,
            message=message,
            evidence="proved",
            variant="printed",
        )
    D = 1 if rate == 0 else math.floor(math.log(0.25) / (2 * math.log(rate))) + 1
    with precision(SAMPLE_BITS):
        kept = ends(_rate(c) ** (2 * D))
    message = f"D = {D} for kappa = {c.kappa:.3g}"
    return judged("unlabelled:stocbio-D", kept, 0.25, evidence="proved", message=message, variant=study.variant)


def _alpha(c: Constants) -> float:
    return math.nextafter(2 / (c.ell + c.mu), 0.0)


def _rate(c: Constants) -> Any:
    return (arb(c.ell) - arb(c.mu)) / (arb(c.ell) + arb(c.mu))


def _after(c: Constants, D: int, distance: Any) -> Any:
    return _rate(c) ** (2 * D) * distance**2 + arb(c.sigma) ** 2 / (arb(c.ell) * arb(c.mu))


def _mean_square(places: list[Balls], target: Balls) -> Any:
    return sum((distance(place, target) ** 2 for place in places), arb(0)) / len(places)


def _depths(c: Constants) -> tuple[int, ...]:
    return tuple(dict.fromkeys(min(DEEPEST, math.ceil(times * c.kappa)) for times in (2, 5)))
