"""The theorems on the three algorithms: their parameters against what their proofs ask of them, and runs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import sympy as sp
from flint import arb, fmpq

from bilevel_sym import Constants, MinimaxConstants, StochasticProblem, schedules
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.errors import BilevelError
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal
from verify import Study, claim
from verify.papers.huang_saddle.claims.tube import require_smooth
from verify.papers.huang_saddle.measures import conditions
from verify.papers.huang_saddle.measures.agreement import decided_exactly
from verify.papers.huang_saddle.measures.conditions import Condition
from verify.papers.huang_saddle.measures.saddles import DELTA
from verify.papers.huang_saddle.measures.visiting import descends, positive_constants, visits
from verify.verdict import Bracket, CheckResult, Evidence, inconclusive, judged

REGION = "the constants of the box"

RATIOS = (2.0, 30.0)  # L_phi/sqrt(rho_phi eps): what decides how hard an escape is


# ---- what a problem gives -------------------------------------------------------------------------------------


def _minimax_constants(study: Study) -> MinimaxConstants:
    """Those of the blocks, which suffice for all but the sharp formulas: these take bounds on whole derivatives."""
    joint = study.variant == "sharp"
    c = positive_constants(study, study.joint.valid if joint else None)
    return MinimaxConstants(c.mu, c.ell, c.rho, M_x=c.M, reading="joint" if joint else "block")


def _goals(c: Constants | MinimaxConstants, study: Study) -> Iterator[Goal]:
    """What is asked for: an easy and a hard eps, in the problem's own units."""
    L_phi, rho_phi = float(c.L_phi(variant=study.variant)), float(c.rho_phi(variant=study.variant))
    for ratio in RATIOS:
        eps = (L_phi / ratio) ** 2 / rho_phi
        yield Goal(eps=eps, delta=DELTA, d=study.exact.d, initial_error=1.0, gap=1.0, episodes=None)


def _scheduled(
    study: Study, c: Any, theorem: Callable[..., Any], *, episodes: int | None = None, **more: Any
) -> Iterator[tuple[Any, Goal]]:
    """The theorem's schedules for both goals, without their warnings of what cannot be run: nothing is run here."""
    for goal in (replace(goal, episodes=episodes) for goal in _goals(c, study)):
        with warnings.catch_warnings(action="ignore"):
            schedule = theorem(c, goal, variant=study.variant, **more)
        yield schedule, goal


def _step(label: str, study: Study, eta: float) -> CheckResult:
    """The outer step against the true smoothness of Phi."""
    message = "eta against 1/sup|Hess Phi|, which is bracketed directly"
    try:
        L = study.smoothness.L_phi
    except BilevelError as error:
        return inconclusive(label, error.message, part="step")
    if not L.upper:
        return judged(label, 0.0, 0.0, evidence="certified", message="Phi is linear", part="step")
    bound = Bracket(math.nextafter(1 / L.upper, 0), math.nextafter(1 / L.lower, math.inf) if L.lower else math.inf)
    if math.isinf(L.upper) and eta <= bound.upper:
        reason = f"sup|Hess Phi| is only known to be at least {L.lower:.4g}"
        return inconclusive(label, reason, part="step")
    worst = study.smoothness.points.get("L_phi")  # none where Phi is as good as linear
    if eta > bound.upper and worst is not None and not study.covers(np.array([list(worst.values())])).all():
        reason = "y* leaves the box in y where |Hess Phi| is largest, and the constants say nothing there"
        return inconclusive(label, reason, part="step")
    return judged(
        label, eta, bound, evidence="certified", message=message, noise=4 * math.ulp(eta), part="step",
        worst_point=worst,
    )  # fmt: skip


def _parameters(
    label: str, study: Study, c: Any, theorem: Callable[..., Any], asked: Callable[..., Iterator[Condition]]
) -> Iterator[CheckResult]:
    """The theorem's parameters against what its proof asks of them, and its outer step against Phi itself."""
    with precision(conditions.CONDITION_BITS):
        wanted = [asked_for for s, goal in _scheduled(study, c, theorem) for asked_for in asked(c, s, goal)]
        yield from conditions.worst_of_each_part(label, [*conditions.case_conditions(), *wanted])
    yield _step(label, study, 1 / float(c.L_phi(variant=study.variant)))


# ---- perturbed AID ----------------------------------------------------------------------------------------------


def _aid_conditions(c: Constants, s: schedules.PerturbedAIDSchedule, goal: Goal) -> Iterator[Condition]:
    bound = conditions.gradient_bound(c, s.accuracy, s.r)
    rates = conditions.Rates.of(c, eta=s.eta, initial_error=goal.initial_error, gradient_bound=bound)
    yield from conditions.inner_conditions(rates, s.D, s.N, s.accuracy)
    yield from _episode_conditions(s, goal)


def _episode_conditions(s: schedules.Schedule, goal: Goal) -> Iterator[Condition]:
    """One escape, all of them together, and K."""
    half = arb(s.F_escape) / 2
    yield from conditions.escape_conditions(s, goal)
    yield from conditions.union_conditions(s, goal, loops=arb(goal.gap) / half)
    yield from conditions.budget_conditions(s, goal, decrease=half, slope=fmpq(25, 3), printed=s.variant == "printed")


@claim(
    "thm:aid",
    also=(
        "eq:para_minimax", "L-phi-big", "AID-bound-nablaphi-nablahatphi",
        "unlabelled:case-1-decrease", "thm3.5-bound1", "unlabelled:case-2-decrease", "thm3.5-bound2",
        "unlabelled:aid-total", "unlabelled:warm-start-D-N",
    ),
)  # fmt: skip
def perturbed_aid_theorem(study: Study) -> Iterator[CheckResult]:
    """Perturbed AID visits an eps-local minimum within K iterations.

    With the theorem's tau, eta, r, T, D, N and K for the certified constants of the problem, each inequality that the
    proof uses is evaluated in balls, at L_phi/sqrt(rho_phi eps) = 2 and 30; and the algorithm is run.

    Paper: Theorem 2.5 [thm:aid]; Equation 3.2 [eq:para_minimax]; Equation B.43 [eq:aid-bound]
    Paper: Formula [unlabelled:aid-total]; Equation 3.3 [iota-condition]
    Assumes: Assumption 2.1 [assu:bilevel] over the box, with certified constants.
    Deviation: T, D and N are whole numbers, so the conditions are those of the rounded ones. D and N must also halve
    the warm-start distance, which the theorem does not say, and all the escapes that the gap allows share delta, where
    the print has the probability of one. The runs take certified brackets of the smoothness of Phi
    itself for L_phi and rho_phi, for which the theorem is as true: with the formulas' values nothing can be run.
    """
    label = "thm:aid"
    require_smooth(study)
    c = positive_constants(study)
    yield from _parameters(label, study, c, schedules.perturbed_aid, _aid_conditions)
    if study.problem.kind == "bilevel":
        yield visits(label, study)
        yield descends(label, study)


def _logarithm(label: str, part: str, argument: arb | None, formula: str) -> CheckResult:
    """A logarithm as printed: it wants a positive argument. None stands for a division by zero."""
    if argument is not None:
        meaning = f"{formula} is the logarithm of {float(argument.mid()):.4g}"
        return conditions.verdict_on(label, Condition(part, -argument, arb(0), meaning))
    return decided_exactly(label, part, False, f"{formula} is a division by zero")


def _printed_n(label: str, c: Constants) -> CheckResult:
    root = (arb(c.ell) / arb(c.mu)).sqrt()
    argument = None if c.ell == c.mu else (1 + root) / (1 - root)
    return _logarithm(label, "N", argument, "log((1 + sqrt(kappa))/(1 - sqrt(kappa)))")


@claim("eq:aid-ND", also=("eq:aid-ND-thm",))
def inner_iterations(study: Study) -> Iterator[CheckResult]:
    """D and N make AID as accurate as an escape needs.

    D = 2 log(2 a/accuracy)/log(1/(1 - 1/kappa)), N = log(2 b/accuracy)/log((sqrt(kappa) + 1)/(sqrt(kappa) - 1)) with a
    and b the factors before the rates in the error of AID; D <= 2 kappa log(2 a/accuracy), N <= sqrt(kappa)/2 log(...)

    Paper: Equation B.44 [eq:aid-ND]; Equation 2.3 [eq:aid-ND-thm]
    Assumes: Assumption 2.1 [assu:bilevel] over the box, tau = 1/ell.
    Deviation: the print divides by log((1 + sqrt(kappa))/(1 - sqrt(kappa))), whose argument is negative; at kappa = 1
    it divides by zero, and one step of each is exact. Both are rounded up.
    """
    label = "eq:aid-ND"
    require_smooth(study)
    c = positive_constants(study)
    with precision(conditions.CONDITION_BITS):
        made = _scheduled(study, c, schedules.perturbed_aid)
        wanted = [condition for s, goal in made for condition in _orders(c, s, goal)]
        if study.variant == "printed":
            yield _printed_n(label, c)
            wanted = [condition for condition in wanted if condition.part != "N"]
        yield from conditions.worst_of_each_part(label, wanted)


def _orders(c: Constants, s: schedules.PerturbedAIDSchedule, goal: Goal) -> Iterator[Condition]:
    """D and N against kappa log and sqrt(kappa) log, with the constants that the estimates of the logarithms give."""
    printed = s.variant == "printed"  # like with like: the printed D and N come from the printed bound
    bound = c.hypergradient_bound if printed else conditions.gradient_bound(c, s.accuracy, s.r)
    rates = conditions.Rates.of(c, eta=s.eta, initial_error=goal.initial_error, gradient_bound=bound)
    exact: Evidence = "proved" if rates.exact else "certified"
    kappa = arb(c.ell) / arb(c.mu)
    of_y, of_v = 2 * rates.error_y / arb(s.accuracy), 2 * rates.error_v / arb(s.accuracy)
    # 1/log(1/(1 - x)) <= 1/x and 1/log((1 + x)/(1 - x)) <= 1/(2 x)
    logs_y, logs_v = (_above_one(value).log() for value in (of_y, of_v))
    halves_y, halves_v = _above_one(2 * rates.start_y).log(), _above_one(2 * rates.start_v).log()
    most_y, most_v = logs_y.max(halves_y), logs_v.max(halves_v)
    yield Condition("D", arb(s.D), 2 * kappa * most_y + 1, "D is of order kappa log(1/eps)", exact)
    yield Condition("N", arb(s.N), kappa.sqrt() / 2 * most_v + 1, "N is of order sqrt(kappa) log(1/eps)", exact)


def _above_one(value: arb) -> arb:
    return value.max(arb(1))


# ---- iNEON ------------------------------------------------------------------------------------------------------


def _neon_conditions(
    c: Constants, s: schedules.INeonSchedule | schedules.StocBiOSchedule, goal: Goal, D: int
) -> Iterator[Condition]:
    eps, iota = arb(s.eps), arb(s.iota)
    thirds = arb(9).root(3)
    parts = {
        "localisation": arb(17).sqrt() / (40 * iota**2),
        "coupling": 1 / (16 * iota**2 * arb(2) ** (iota / 4)),
        "norm of u": (thirds - 2) / (8 * iota),
        "stopping": 1 / (750 * iota**2),
    }
    least = min(parts, key=lambda name: float(parts[name].mid()))
    room = 1 + conditions.ROUNDED
    yield Condition("error asked for", arb(s.accuracy), parts[least] * eps * room, f"the strictest is for the {least}")
    length = arb(2) * (arb(c.M) + arb(c.ell) / arb(c.mu) * arb(c.M) + arb(s.accuracy))
    start = arb(goal.initial_error) + arb(s.eta) * arb(s.r) * arb(float(c.drift)) * room
    rates = conditions.Rates.of(c, eta=s.eta, initial_error=_up(start), gradient_bound=_up(length))
    exact: Evidence = "proved" if rates.exact else "certified"
    yield Condition(
        "accuracy", rates.error(D, s.N), arb(s.accuracy) * room, f"the error of AID with D = {D}, N = {s.N}", exact
    )
    if c.M > 0 and not rates.exact:
        far = arb(_up(start)) + 2 * arb(s.eta) * arb(float(c.drift)) * arb(_up(length))
        needed = 2 * (far / arb(s.accuracy_y)).log() / -rates.keeps_y.log()
        yield Condition("y", needed, arb(D), "D steps bring y within eps^2/(750 iota^3 L_phi M) of y*")


def _up(value: arb) -> float:
    """The next float above; these are lengths that may be taken larger."""
    return math.nextafter(float(value.upper()), math.inf)


@claim("eq:aid-ND-neon", also=("eq:para_neon-2",))
def neon_parameters(study: Study) -> Iterator[CheckResult]:
    """The parameters of iNEON meet what its proof asks of them.

    Each inequality of the proof is evaluated in balls, for T rounded up: the condition on iota, localisation, coupling,
    growth, and D and N for the four accuracies and for |y_D - y*|.

    Paper: Equation D.4 [eq:aid-ND-neon]; Equation 4.6 [iota-condition-2]; Equation D.2 [eq:est-error-neon]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.
    Deviation: the condition on iota prints ell and rho for L_phi and rho_phi, N the logarithm of a negative number. A
    step of iNEON is up to twice as long as a hypergradient, which Gamma_1 does not see.
    """
    label = "eq:aid-ND-neon"
    require_smooth(study)
    c = positive_constants(study)
    with precision(conditions.CONDITION_BITS):
        wanted: list[Condition] = []
        for s, goal in _scheduled(study, c, schedules.ineon, episodes=1):  # the lemma is about one call
            wanted += [*conditions.escape_conditions(s, goal, neon=True), *_neon_conditions(c, s, goal, s.D)]
        if study.variant == "printed":
            yield _printed_n(label, c)
        yield from conditions.worst_of_each_part(label, wanted)


# ---- perturbed GDmax ----------------------------------------------------------------------------------------------


def _gdmax_conditions(c: MinimaxConstants, s: schedules.PerturbedGDmaxSchedule, goal: Goal) -> Iterator[Condition]:
    mu, ell = conditions.balls(c.mu, c.ell)
    exact: Evidence = "proved" if c.mu == c.ell else "certified"
    far = arb(goal.initial_error) + 2 * arb(s.eta) * ell / mu * arb(max(c.M_x, s.r))
    keeps = arb(0) if c.mu == c.ell else (1 - mu / ell).sqrt() ** s.D
    room = arb(s.accuracy) * (1 + conditions.ROUNDED)
    yield Condition("accuracy", ell * far * keeps, room, f"the error of GDmax with D = {s.D}", exact)
    halves = arb(1) if c.mu == c.ell else 2 * arb(2).log() / -(1 - mu / ell).log()
    yield Condition("D", halves, arb(s.D), "D steps of ascent halve the warm-start distance", exact)
    # like with like: the printed D comes from the printed bound of the steps
    steps = c.M_x * (1 + c.kappa) if s.variant == "printed" else max(c.M_x, s.r)
    reached = arb(goal.initial_error) + 2 * arb(s.eta) * ell / mu * arb(steps)
    logs = _above_one(ell * reached / arb(s.accuracy)).log().max(arb(2).log())
    yield Condition("order of D", arb(s.D), 2 * ell / mu * logs + 1, "D is of order kappa log(1/eps)", exact)
    yield from _episode_conditions(s, goal)


@claim(
    "thm:minimax",
    kinds=("minimax",),
    also=("eq:gdmax-bound", "eq:gdmax-D", "unlabelled:minimax-iteration-bound"),
)
def perturbed_gdmax_theorem(study: Study) -> Iterator[CheckResult]:
    """Perturbed GDmax visits an eps-local minimum of max_y f within K iterations.

    As for perturbed AID: each inequality of the proof in balls, for the theorem's parameters; and runs.

    Paper: Theorem 3.7 [thm:minimax]; Equation C.13 [eq:gdmax-D]; Equation C.9 [eq:gdmax-error-D]
    Assumes: Assumption 3.5 [assu:minimax] over the box, with certified constants, and |f_x| <= M_x there.
    Deviation: the print bounds the estimate by M + ell M/mu, with an M that Assumption 3.5 does not have; |f_x| <= M_x
    is what is needed. D must also halve the warm-start distance, and all escapes share delta.
    """
    label = "thm:minimax"
    c = _minimax_constants(study)
    yield from _parameters(label, study, c, schedules.perturbed_gdmax, _gdmax_conditions)
    yield visits(label, study)
    yield descends(label, study)


# ---- stocBiO with iNEON -------------------------------------------------------------------------------------------


def _stochastic_conditions(c: Constants, s: schedules.StocBiOSchedule, goal: Goal) -> Iterator[Condition]:
    mu, ell, rho, M, sigma = conditions.balls(c.mu, c.ell, c.rho, c.M, c.sigma)
    kappa, L, eps, beta = ell / mu, arb(s.L_phi), arb(s.eps), arb(s.beta)
    of_y = ell + ell**2 / mu + M * rho / mu + ell * M * rho / mu**2
    keeps = ((ell - mu) / (ell + mu)) ** (2 * s.D) if c.mu != c.ell else arb(0)
    series = (1 - mu / ell) ** (2 * s.Q) if c.mu != c.ell else arb(0)
    move = (beta * (M + kappa * M)).max(arb(s.step))
    noise = sigma**2 / (ell * mu * s.S)
    far = arb(goal.initial_error) ** 2 + 4 * (kappa * move) ** 2 + 4 * noise
    spread = 4 * (kappa * M) ** 2 / s.batch_g + (8 * kappa**2 + 2) * M**2 / s.batch_f + 16 * (kappa * M) ** 2 / s.B
    total = beta * (kappa * M) ** 2 * series + beta / 4 * (spread + 16 * (kappa * M) ** 2 * series)
    # 1 from the bias, and a quarter of the mean square error's 16/15; the print has 1 there
    of_distance = fmpq(5, 4) if s.variant == "printed" else fmpq(19, 15)
    total += of_distance * beta * of_y**2 * (far * keeps + noise)
    printed = s.variant == "printed"
    gain = (eps**3 / arb(s.rho_phi)).sqrt() / (3 * arb(80) ** 3 * arb(s.iota) ** 3)
    room = eps**2 / (400 * L)
    said = "eps^2/(400 L)" if printed else "min(eps^2/(400 L), F/2)"
    yield Condition(
        "budget",
        total,
        room if printed else room.min(gain / 2),
        f"bias and variance of a stocBiO step are below {said}",
    )
    counted = gain if printed else gain / 2
    kept = (
        f"K counts on {float(counted):.2g} from a loop that escapes; its stocBiO step may take {float(total):.2g} back"
    )
    yield Condition("case 2", counted * (1 - conditions.ROUNDED), gain - total, kept)
    exact: Evidence = "proved" if c.mu == c.ell else "certified"
    halves = arb(1) if c.mu == c.ell else arb(4).log() / (2 * ((ell + mu) / (ell - mu)).log())
    yield Condition("D", halves, arb(s.D), "D steps of SGD quarter the squared warm-start distance", exact)
    largest = max(s.neumann_batches) if s.neumann_batches else 0
    yield Condition(
        "batches",
        arb(s.B) * s.Q,
        arb(max(largest, 1)) * (1 + conditions.ROUNDED),
        "the Neumann batches start at B Q",
        exact,
    )
    shared = goal if printed else replace(goal, delta=goal.delta / 3)
    yield from conditions.escape_conditions(s, shared, neon=True)
    loops = arb(goal.gap) / counted + 50 * L * arb(goal.gap) / eps**2
    yield from conditions.union_conditions(s, goal, loops=loops, share=1 if printed else fmpq(1, 3), neon=True)
    yield from _neon_conditions(c, s, goal, s.D_aid)
    yield from _curvature_conditions(s, goal, counted)


def _curvature_conditions(s: schedules.StocBiOSchedule, goal: Goal, counted: arb) -> Iterator[Condition]:
    """The step along iNEON's direction, and K, which counts on so much from each of them."""
    rho, eps, iota, step = conditions.balls(s.rho_phi, s.eps, s.iota, s.step)
    curvature = (rho * eps).sqrt() / (80 * iota)
    fall = curvature * step**2 / 2 - rho * step**3 / 6
    asked = (eps**3 / rho).sqrt() / (3 * arb(80) ** 3 * iota**3)
    room = 1 - conditions.ROUNDED
    yield Condition(
        "escape step", asked * room, fall, "a step along iNEON's direction lowers Phi as much as K counts on"
    )
    large = fmpq(3, 5) ** 2 / 16 - fmpq(1, 400)
    yield Condition("case 1", fmpq(1, 50), large, "a gradient above 3/5 eps lowers Phi by eps^2/(50 L_phi)", "proved")
    test = fmpq(3, 5) + fmpq(1, 10) + fmpq(1, 10)
    yield Condition("gradient test", test, fmpq(4, 5), "a gradient of 3/5 eps passes the test at 4/5 eps", "proved")
    yield from conditions.budget_conditions(s, goal, decrease=counted, slope=arb(50), printed=s.variant == "printed")


def _sigma(study: Study) -> float:
    """The standard deviation of grad G as it was seen at sampled points; any positive number would do here."""
    problem = study.problem
    assert isinstance(problem, StochasticProblem)
    z = (*problem.x, *problem.y)
    point = {s: (low + high) / 2 for s, (low, high) in zip(z, (study.box[s.name] for s in z), strict=True)}
    gradient = [sp.diff(problem.G, s).subs(point) for s in z]
    rows = np.array(
        [
            [float(entry.subs(dict(zip(problem.zeta, row, strict=True)))) for entry in gradient]
            for row in problem.zeta_data[:64]
        ]
    )
    return float(np.sqrt(np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)))) or 1.0


@claim(
    "thm:stocneon",
    kinds=("stochastic",),
    also=(
        "unlabelled:stocbio-parameters", "unlabelled:stochastic-case-1",
        "thm45-bound1", "thm45-bound-case2-b1", "thm45-bound-case2-b2",
        "unlabelled:stochastic-case-2", "thm45-bound2", "unlabelled:stochastic-total",
        "unlabelled:stochastic-iteration-bound",
    ),
)  # fmt: skip
def stocbio_theorem(study: Study) -> Iterator[CheckResult]:
    """StocBiO with iNEON visits an eps-local minimum within K iterations.

    Each inequality of the proof in balls, for the theorem's parameters: bias and variance of a step, the conditions of
    iNEON, the step along its direction, the gradient test, and K.

    Paper: Theorem 4.5 [thm:stocneon]; Lemma D.7 [lem:stocbio-decrease]; Lemma D.6 [lem:saddle-decrease]
    Assumes: Assumption 4.3 [ass:stoc] with the certified constants of the mean; sigma as it is at the centre of the
    box. The conditions are between parameters, and hold or fail for whatever constants they were made from.
    Deviation: the escape step carries a factor 1/iota that the print lacks; D's logarithm prints (1 - kappa)/(1 +
    kappa), which is negative. The stocBiO step of a loop that escapes may cost F/2 of the F that it gains, and all
    loops share delta; the print has neither. It cannot be run: its batches hold more samples than can be drawn.
    """
    label = "thm:stocneon"
    c = replace(positive_constants(study), sigma=_sigma(study))
    with precision(conditions.CONDITION_BITS):
        wanted: list[Condition] = []
        for s, goal in _scheduled(study, c, schedules.stocbio, n=study.exact.n):
            wanted += _stochastic_conditions(c, s, goal)
        if study.variant == "printed":
            kappa = arb(c.ell) / arb(c.mu)
            yield _logarithm(label, "D as printed", (1 - kappa) / (1 + kappa), "log((1 - kappa)/(1 + kappa))")
        yield from conditions.worst_of_each_part(label, wanted)
    yield inconclusive(label, f"not run: batches of {s.S:.2g} samples, {s.K:.2g} iterations", part="visits")
