"""Phi of a batch against Phi: how its gradient and Hessian differ, by the errors of the batch's derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bilevel_sym import Constants
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.schedules.batches import Term, batch_sizes, gradient_terms, hessian_terms
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness
from bilevel_sym.theories.huang_saddle.schedules.neon import neon_escape
from bilevel_sym.typing import Floats
from verify.papers.huang_saddle.measures.agreement import Case, tightest
from verify.papers.huang_saddle.measures.stochastic.batch_moments import Batches, frobenius, slices, spectral
from verify.papers.huang_saddle.measures.stochastic.samples import LARGEST_BATCH, Samples, Solved, samples_of
from verify.papers.huang_saddle.measures.stochastic.stocbio_bounds import solved_points
from verify.points.derivatives_at import Derivatives
from verify.registry import INSIDE, Kind, NotApplicable, claim
from verify.statistics import judged_probability, runs_needed
from verify.study import Study
from verify.verdict import Bracket, CheckResult, inconclusive

REGION = INSIDE

KINDS: tuple[Kind, ...] = ("stochastic",)
OTHERS = 24  # points beside the corners and the middle, by default
LANES, SIZES = 6, (1, 2, 4)  # small batches, whose errors are large
PROBABILITY, EPS = 0.1, 0.9  # what the lemmas with probability are checked at
PART = 0.05  # of half the box: the region in which large batches have their solutions
FLOAT_ERROR, WEAKER = 1e-11, 1e-8  # floats; constants are weakened by more, so that equality in exact terms is decided


@dataclass(frozen=True, eq=False)
class Comparison:
    """One batch beside the mean at one x, with the constants of the box between their solutions.

    ``mean`` and ``fixed`` are the derivatives of the mean and of the batch at y*, ``moved`` those of the batch at its
    own solution, ``strayed`` those of the mean there. Each has one lane.
    """

    mean: Derivatives
    fixed: Derivatives
    moved: Derivatives
    strayed: Derivatives
    distance: float
    constants: Constants
    point: dict[str, float]

    def error(self, name: str) -> float:
        """|mean - batch| of a block at y*; of a tensor, an upper bound."""
        difference = self.mean[name] - self.fixed[name]
        return float((frobenius if difference.ndim > 3 else spectral)(difference)[0])


Sides = Callable[[Comparison, Variant], tuple[float, float]]


@claim("eq:y-diff-bound-stoc-sc", kinds=KINDS, also=("eq126", "eq127"))
def solution_of_a_batch(study: Study) -> CheckResult:
    """The lower-level solution of a batch is close to y* if the batch's gradient is.

    |y* - y*_D| <= |g_y(y*) - g_D,y(y*)|/mu

    Paper: Equation D.43 [eq:y-diff-bound-stoc-sc]
    Assumes: Assumption 4.3 [ass:stoc].
    Deviation: the print has (|g_y(y*_D) - g_D,y(y*_D)| + |g_y(y*) - g_D,y(y*)|)/(2 mu), which is true, but its first
    error is at a point that depends on the batch, where the lemma for a fixed point says nothing.
    """
    return _checked(study, "eq:y-diff-bound-stoc-sc", _solution_sides)


def _solution_sides(c: Comparison, variant: Variant) -> tuple[float, float]:
    mu = c.constants.mu
    if variant == "printed":
        return c.distance, (float(spectral(c.strayed["g_y"] - c.moved["g_y"])[0]) + c.error("g_y")) / (2 * mu)
    return c.distance, c.error("g_y") / mu


@claim("eq:pydiff-stoc", kinds=KINDS)
def jacobian_of_a_batch(study: Study) -> CheckResult:
    """The Jacobian of y* of a batch.

    |dy* - dy*_D| <= ell/mu^2 (|error of g_yy| + rho |y* - y*_D|) + 1/mu (|error of g_xy| + rho |y* - y*_D|)

    Paper: Equation D.31 [eq:pydiff-stoc]
    Assumes: Assumption 4.3 [ass:stoc].
    """
    return _checked(study, "eq:pydiff-stoc", _jacobian_sides)


def _jacobian_sides(c: Comparison, variant: Variant) -> tuple[float, float]:
    k = c.constants
    away = k.rho * c.distance
    bound = k.ell / k.mu**2 * (c.error("g_yy") + away) + (c.error("g_xy") + away) / k.mu
    return float(spectral(c.mean.dy_dx - c.moved.dy_dx)[0]), bound


@claim("eq:y-hess-dif-stoc-final", kinds=KINDS, also=("eq:y-hess-dif-stoc", "term-pgp2"))
def second_derivative_of_a_batch(study: Study) -> CheckResult:
    """The second derivative of y* of a batch, by the errors of second and third derivatives of g.

    |y*'' - y*_D''| <= |g_xxy|/mu + 2 kappa |g_yxy|/mu + kappa^2 |g_yyy|/mu
    + (2 kappa rho u + rho u^2)/mu^2 |g_yy| + 2 rho u/mu^2 |g_xy| + b |y* - y*_D| with errors in bars, u = 1 + kappa and
    b = u^2 (nu/mu + 3 rho^2/mu^2)

    Paper: Equation D.37 [eq:y-hess-dif-stoc-final]
    Assumes: Assumption 4.3 [ass:stoc].
    Deviation: the print takes the error of (dy/dx) g_yxy with the factor 2 that stands before term (II), and doubles it
    once more: it is larger by 2 kappa/mu (g_yxy), 2 ell rho/mu^3 (g_yy), 2 rho/mu^2 (g_xy) and
    2 (ell nu + rho^2 u)/mu^2 in b.
    """
    return _checked(study, "eq:y-hess-dif-stoc-final", _second_sides)


def _second_sides(c: Comparison, variant: Variant) -> tuple[float, float]:
    mu, ell, rho, nu = c.constants.mu, c.constants.ell, c.constants.rho, c.constants.nu
    kappa, excess = ell / mu, 1.0 if variant == "printed" else 0.0
    u = 1 + kappa
    bound = (c.error("g_xxy") + (2 + 2 * excess) * kappa * c.error("g_xyy") + kappa**2 * c.error("g_yyy")) / mu
    bound += ((2 * kappa * rho * u + rho * u**2) / mu**2 + excess * 2 * ell * rho / mu**3) * c.error("g_yy")
    bound += (2 * rho * u + excess * 2 * rho) / mu**2 * c.error("g_xy")
    of_y = u**2 * (nu / mu + 3 * rho**2 / mu**2) + excess * 2 * (ell * nu + rho**2 * u) / mu**2
    return float(slices(c.mean.d2y_dx2 - c.moved.d2y_dx2)[0]), bound + of_y * c.distance


@claim(
    "eq:hessphi-err",
    kinds=KINDS,
    also=(
        "eq:term1-stoc",
        "eq:term2-stoc",
        "eq:term3-stoc",
        "unlabelled:stochastic-term-IV",
        "unlabelled:eleven-terms",
    ),
)
def hessian_of_a_batch(study: Study) -> CheckResult:
    """The Hessian of Phi of a batch, by the errors of eleven derivatives.

    |Hess Phi - Hess Phi_D| <= the terms of ``schedules.batches.hessian_terms`` with |y* - y*_D| for the errors of g_y

    Paper: Equation D.40 [eq:hessphi-err]
    Assumes: Assumption 4.3 [ass:stoc].
    Deviation: see ``hessian_terms``; the print is larger.
    """
    return _checked(study, "eq:hessphi-err", _hessian_sides)


def _hessian_sides(c: Comparison, variant: Variant) -> tuple[float, float]:
    return float(spectral(c.mean.hess_phi - c.moved.hess_phi)[0]), _by_terms(
        c, hessian_terms(c.constants, 0.0, variant)
    )


def _by_terms(c: Comparison, terms: tuple[Term, ...]) -> float:
    """Coefficients times errors; those of g_y are coefficients of |y* - y*_D|, divided by mu."""
    return math.fsum(
        term.coefficient * (c.distance * c.constants.mu if term.derivative == "g_y" else c.error(term.derivative))
        for term in terms
    )


@claim("unlabelled:stochastic-gradient-split", kinds=KINDS, also=("unlabelled:six-terms",))
def gradient_of_a_batch(study: Study) -> CheckResult:
    """The gradient of Phi of a batch, by the errors of six derivatives.

    |grad Phi - grad Phi_D| <= the terms of ``schedules.batches.gradient_terms`` with |y* - y*_D| for those of g_y

    Paper: Equation D.47 [unlabelled:stochastic-gradient-split]
    Assumes: Assumption 4.3 [ass:stoc].
    Deviation: the last line of the print compares f_y with itself, so that its error is missing.
    """
    return _checked(study, "unlabelled:stochastic-gradient-split", _gradient_sides)


def _gradient_sides(c: Comparison, variant: Variant) -> tuple[float, float]:
    terms = gradient_terms(c.constants, 0.0)
    if variant == "printed":
        terms = tuple(term for term in terms if term.derivative != "f_y")
    return float(spectral(c.mean.grad_phi - c.moved.grad_phi)[0]), _by_terms(c, terms)


def _checked(study: Study, label: str, sides: Sides) -> CheckResult:
    cases = []
    for comparison in _comparisons(samples_of(study)):
        measured, bound = sides(comparison, study.variant)
        slack = FLOAT_ERROR * (abs(measured) + abs(bound)) + 1e-13
        cases.append(Case(Bracket(measured - slack, measured + slack), Bracket(bound, bound), comparison.point))
    tested = [case for case in cases if case.bound.lower > 1e-8]  # both sides vanish where the data do not enter
    return replace(tightest(label, tested, evidence="sampled", message="small batches"), seed=study.seed)


@lru_cache(1)
def _comparisons(samples: Samples) -> tuple[Comparison, ...]:
    points = (*list(solved_points(samples))[::2], *_others(samples))
    return tuple(comparison for solved in points for comparison in _compared(samples, solved))


def _others(samples: Samples) -> Iterator[Solved]:
    """More points, among which one may be where the bounds are tight; fewer with less effort."""
    for x in samples.study.points(max(2, round(OTHERS * min(1.0, samples.study.effort))), "batch errors"):
        with suppress(BilevelError):
            yield samples.solved(x)


def _compared(samples: Samples, solved: Solved) -> Iterator[Comparison]:
    y_star = np.array([float(ball) for ball in solved.y])
    low, high = samples.y_ends
    for size in SIZES:
        streams = samples.study.rng(f"batches of {size}").spawn(LANES)
        batches = Batches(samples.problem, solved.x, streams, size, size)
        y = batches.solutions(y_star)
        inside = np.flatnonzero(((low <= y) & (y <= high)).all(axis=1))
        if not len(inside):
            continue
        safe = np.where(np.isnan(y), y_star, y)
        fixed, whole = np.repeat(y_star[None], LANES, axis=0), batches.whole()
        parts = (whole.at(fixed), batches.at(fixed), batches.at(safe), whole.at(safe))
        for lane in inside:
            lower, upper = (side(y_star, y[lane]) for side in (np.minimum, np.maximum))
            try:
                c = _weakened(samples.constants(np.concatenate([solved.x, lower]), np.concatenate([solved.x, upper])))
            except BilevelError:
                continue
            mean, at_star, moved, strayed = (_lane(part, int(lane)) for part in parts)
            distance, point = float(np.linalg.norm(y[lane] - y_star)), samples.study.named(solved.x, y[lane])
            yield Comparison(mean, at_star, moved, strayed, distance, c, point)


def _weakened(c: Constants) -> Constants:
    more = 1 + WEAKER
    return Constants(mu=c.mu / more, ell=c.ell * more, rho=c.rho * more, nu=c.nu * more, M=c.M * more)


def _lane(derivatives: Derivatives, lane: int) -> Derivatives:
    return Derivatives({name: block[lane : lane + 1] for name, block in derivatives.blocks.items()})


# ---- with probability 1 - delta, at the lemmas' own batch sizes --------------------------------------------------


@claim("lem:batch-grad-err", kinds=KINDS, also=("grad-err", "unlabelled:batch-sizes"))
def batch_sizes_for_the_gradient(study: Study) -> CheckResult:
    """With the lemma's batches the gradient of Phi_D is within eps/10 of that of Phi, with probability 1 - delta.

    |grad Phi_D - grad Phi| <= eps/10 for batches that keep each of six terms below eps/60 with probability 1 - delta/6

    Paper: Lemma D.5 [lem:batch-grad-err]
    Assumes: Assumption 4.3 [ass:stoc]; the sizes are those of ``schedules.batches.batch_sizes``.
    Deviation: the print multiplies the probabilities of the six terms, (1 - delta')^6, as if they were independent;
    they share a batch. Samples of g_y are bounded by a constant of their own.
    """
    samples = samples_of(study)

    def sizes(c: Constants, M_g: float) -> tuple[tuple[int, int], float]:
        terms = gradient_terms(c, M_g)
        return _sizes(samples, terms, EPS / 60, study.variant), EPS / 10

    return _with_probability(study, "lem:batch-grad-err", sizes, lambda d: d.grad_phi)


@claim("lem:batch-hess-err", kinds=KINDS, also=("hess-err",))
def batch_sizes_for_the_hessian(study: Study) -> CheckResult:
    """With the lemma's batches the Hessian of Phi_D is close to that of Phi, with probability 1 - delta.

    |Hess Phi_D - Hess Phi| <= sqrt(rho_phi eps)/(80 iota) for batches that keep each of eleven terms below
    sqrt(rho_phi eps)/(880 iota) with probability 1 - delta/11

    Paper: Lemma D.4 [lem:batch-hess-err]
    Assumes: Assumption 4.3 [ass:stoc]; the sizes are those of ``schedules.batches.batch_sizes``.
    Deviation: as for the gradient, with eleven terms.
    """
    samples, variant = samples_of(study), study.variant

    def sizes(c: Constants, M_g: float) -> tuple[tuple[int, int], float]:
        smoothness = Smoothness(float(c.L_phi(variant=variant)), float(c.rho_phi(variant=variant)))
        if not smoothness.rho_phi > 0:
            raise NotApplicable("rho_phi is 0, so that no Hessian but the exact one is close enough")
        goal = Goal(eps=EPS, delta=PROBABILITY, d=samples.problem.d, initial_error=1.0, gap=1.0, episodes=1)
        iota = neon_escape(c, smoothness, goal, variant).iota
        each = smoothness.curvature(EPS) / (880 * iota)
        return _sizes(samples, hessian_terms(c, M_g, variant), each, variant), 11 * each

    return _with_probability(study, "lem:batch-hess-err", sizes, lambda d: d.hess_phi)


def _sizes(samples: Samples, terms: tuple[Term, ...], each: float, variant: Variant) -> tuple[int, int]:
    dimension = max(samples.problem.d, samples.problem.n)
    return batch_sizes(terms, each=each, delta=PROBABILITY, dimension=dimension, variant=variant)


def _with_probability(
    study: Study,
    label: str,
    sizes: Callable[[Constants, float], tuple[tuple[int, int], float]],
    derivative: Callable[[Derivatives], Floats],
) -> CheckResult:
    """Runs at the first point at which the batches can be drawn."""
    samples, runs = samples_of(study), runs_needed(PROBABILITY)
    reason = "no region was found in which every row is strongly convex"
    for solved in solved_points(samples):
        region = samples.region(solved, 0.0, PART)
        if region is None:
            continue
        try:
            batch, allowed = sizes(region.constants, samples.gradient_of_g(region.lower, region.upper))
        except InvalidArgument as error:
            reason = error.message
            continue
        if max(batch) > LARGEST_BATCH:
            reason = f"the lemma asks for batches of {batch[0]:.3g} and {batch[1]:.3g} rows"
            continue
        errors = _errors(samples, solved, batch, runs, derivative)
        failures = int(np.sum(~(errors <= allowed)))
        largest = float(np.nanmax(errors))
        message = f"batches of {batch[0]:.3g} and {batch[1]:.3g} rows; largest error {largest:.3g} of {allowed:.3g}"
        return judged_probability(label, failures, runs, PROBABILITY, message=message, seed=study.seed)
    return inconclusive(label, reason)


def _errors(
    samples: Samples, solved: Solved, batch: tuple[int, int], runs: int, derivative: Callable[[Derivatives], Floats]
) -> Floats:
    y_star = np.array([float(ball) for ball in solved.y])
    streams = samples.study.rng("large batches").spawn(runs)
    batches = Batches(samples.problem, solved.x, streams, *batch)
    whole = derivative(batches.whole().at(np.repeat(y_star[None], runs, axis=0)))
    return spectral(derivative(batches.at(batches.solutions(y_star))) - whole)
