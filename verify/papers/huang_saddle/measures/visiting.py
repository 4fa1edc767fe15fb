"""Visiting: runs of Algorithm 1 with a theorem's parameters until an eps-local minimum is visited.

Two statements, which fail for different reasons: from a saddle point, which only the perturbations leave, and down from
steep places, where no perturbation is needed.
"""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from bilevel_sym import Constants, Descent, Exact, LocalMinimum, MinimaxConstants, Solution, Status, schedules, solve
from bilevel_sym.arithmetic.ties import in_order
from bilevel_sym.errors import BilevelError, CertificateFailure
from bilevel_sym.theories.huang_saddle.schedules.goal import Smoothness
from bilevel_sym.typing import Bools, Floats
from verify import NotApplicable, Study
from verify.papers.huang_saddle.measures.saddles import DELTA, MOST_SADDLES, places
from verify.statistics import corrected, judged_probability
from verify.verdict import CheckResult, Verdict, inconclusive, not_applicable

RUNS = 64  # without a failure they support delta = 0.1 at 99 %, from each of several saddle points
STEPS = 1500
LEAST_ITERATIONS = 5  # iterations below which a run is no test
WORK = 1_000_000  # lower-level steps that a run may take, at default effort and below
COSTLY = 1000  # lower-level steps an iteration, from which exact descent is asked first whether it would get there
NEAR_ENOUGH = 1.25  # times eps: where exact descent gets so far, a run may get there
SADDLE, STEEP = "a saddle point", "steep places"
FLAT = 2.0**-10  # a positive rho, as a part of ell, where the true one is zero
Schedule = schedules.PerturbedAIDSchedule | schedules.PerturbedGDmaxSchedule


def positive_constants(study: Study, c: Constants | None = None) -> Constants:
    """Certified constants (the study's) as floats; a positive rho where it is zero, which is an upper bound too.

    >>> from bilevel_sym import verify, zoo
    >>> positive_constants(verify.study_of(zoo.get("scalar").problem)).rho > 0
    True
    """
    c = study.constants.valid if c is None else c
    mu, ell, rho, nu, M = values = tuple(float(value) for value in (c.mu, c.ell, c.rho, c.nu, c.M))
    if not all(map(math.isfinite, values)):
        raise CertificateFailure("a constant of the assumption has no bound over the box")
    return Constants(mu, ell, rho or FLAT * ell, nu, M)


@dataclass(frozen=True, eq=False)
class _Start:
    """Where runs begin, and the eps that makes the beginning no eps-local minimum."""

    x: Floats
    eps: float
    what: str

    @property
    def part(self) -> str:
        return "visits" if self.what == SADDLE else "descent"


def visits(label: str, study: Study) -> CheckResult:
    """Runs with the theorem's parameters from every saddle point, until an eps-local minimum is visited.

    A run that does not arrive within K iterations is a failure, and so is one of fewer iterations that repeats itself:
    a perturbation that does not move x leaves it where it is, however often it comes. One that arrives although its
    perturbations did not move x owes that to rounding, and decides nothing.

    >>> from bilevel_sym import verify, zoo
    >>> print(visits("thm:aid", verify.study_of(zoo.get("implicit_cubic").problem)).verdict)
    NOT_APPLICABLE
    """
    try:
        c = positive_constants(study)
        smooth = _smoothness(study, c)
        at = places(study)
        tried = at[:MOST_SADDLES]
        starts = [_Start(np.tile(x, (RUNS, 1)), _eps(study, smooth, np.array(x)), SADDLE) for x in tried]
        found = [_tried(label, study, c, smooth, start, corrected(0.99, len(tried))) for start in starts]
    except NotApplicable as reason:
        return not_applicable(label, str(reason), part="visits")
    except BilevelError as error:
        return inconclusive(label, error.message, part="visits")
    rank = {Verdict.VIOLATED: 2, Verdict.INCONCLUSIVE: 1}
    worst = max(found, key=lambda result: rank.get(result.verdict, 0))
    said = f"{worst.message}; {len(tried)} of {len(at)} saddle points"
    return replace(worst, message=said, confidence=worst.confidence and 0.99, n_points=RUNS * len(tried))


def descends(label: str, study: Study) -> CheckResult:
    """Runs with the theorem's parameters from the steepest of some places, until an eps-local minimum is visited.

    >>> from bilevel_sym import verify, zoo
    >>> descends("thm:aid", verify.study_of(zoo.get("scalar").problem)).part
    'descent'
    """
    try:
        c = positive_constants(study)
        smooth = _smoothness(study, c)
        start = _steep(study, smooth)
        if start is None:
            return inconclusive(label, "Phi is flat wherever it was looked at", part="descent")
        return _tried(label, study, c, smooth, start, 0.99)
    except BilevelError as error:
        return inconclusive(label, error.message, part="descent")


def _smoothness(study: Study, c: Constants) -> Smoothness:
    """Upper bounds on the smoothness of Phi: certified directly, or else by the formulas; both are valid."""
    L, rho = float(c.L_phi()), float(c.rho_phi())
    with suppress(BilevelError):
        direct = study.smoothness
        L, rho = min(L, direct.L_phi.upper), min(rho, direct.rho_phi.upper)
    low, high = study.x_ends
    if not L > 0:
        raise CertificateFailure("Phi is linear, and has no minimum")
    if not (high > low).any():
        raise CertificateFailure("the box in x is a single point, in which nothing moves")
    # a larger rho is as valid; without one an escape from the saddle of a quadratic Phi would have no scale
    return Smoothness(L, max(rho, FLAT * L / float((high - low).max())))


def _eps(study: Study, smooth: Smoothness, x: Floats) -> float:
    """Far enough below the definition's threshold at a saddle point that rounding does not matter."""
    curvature = float(np.linalg.eigvalsh(study.kernels.hess_phi(x))[0])
    return 0.5 * curvature**2 / smooth.rho_phi


def _steep(study: Study, smooth: Smoothness) -> _Start | None:
    """The steepest of some points in the inner half of the box; runs from the border leave it."""
    low, high = study.x_ends
    points = (low + high) / 4 + study.points(256, "visits") / 2
    steep = np.linalg.norm(study.kernels.grad_phi(points), axis=1)
    order = in_order(steep, descending=True)[:RUNS]
    least = float(steep[order[-1]])
    most = smooth.L_phi**2 / smooth.rho_phi  # beyond it every point with a small gradient is a minimum
    return _Start(points[order], min(0.5 * least, most), STEEP) if least > 0 else None


def _tried(label: str, study: Study, c: Constants, smooth: Smoothness, start: _Start, confidence: float) -> CheckResult:
    y0 = np.array([float((low + high) / 2) for low, high in list(study.box)[study.exact.d :]])
    schedule = _schedule(study, c, smooth, start, y0)
    work = WORK * max(1.0, study.effort) * study.lightness**3  # every step of every run reads all data
    steps = min(schedule.K, STEPS, int(work) // schedule.D)
    # noise of length eta r grows to the size of the saddle's surroundings in about a quarter of T
    least = schedule.T_escape // 3 if start.what == SADDLE else LEAST_ITERATIONS
    if steps < min(least, schedule.K):
        reason = f"{steps} iterations are what can be run from {start.what}, and {least} would be a test"
        return inconclusive(label, reason, part=start.part)
    if start.what == STEEP and schedule.D > COSTLY and not _is_near(study, schedule, start, y0, steps):
        reason = f"{steps} iterations with D = {schedule.D} can be run from {start.what}"
        return inconclusive(label, f"{reason}, and exact descent does not get there in so many", part=start.part)
    run = _run(study, schedule, start, y0, steps)
    return _counted(label, study, run, schedule, start, confidence)


def _is_near(study: Study, schedule: Schedule, start: _Start, y0: Floats, steps: int) -> bool:
    """Whether exact descent comes to a gradient that is about as small as asked: a step of it costs little beside D."""
    run = solve(study.exact, Descent(Exact(), schedule.eta), start.x, y0=y0, steps=steps)
    return bool(np.nanmin(np.linalg.norm(run.trajectory.grad_phi_hat, axis=-1)) <= NEAR_ENOUGH * schedule.eps)


def _schedule(study: Study, c: Constants, smooth: Smoothness, start: _Start, y0: Floats) -> Schedule:
    """The theorem's, as it ships, for the smoothness that is certified of Phi itself."""
    low, high = study.x_ends
    reach = float(np.linalg.norm(np.maximum(start.x - low, high - start.x), axis=1).max())
    distance, gap = _distance(study, start.x, y0), float(c.hypergradient_bound) * reach or 1.0
    goal = schedules.Goal(eps=start.eps, delta=DELTA, d=study.exact.d, initial_error=distance, gap=gap)
    with warnings.catch_warnings(action="ignore"):
        if study.problem.kind == "minimax":
            of_max = MinimaxConstants(c.mu, c.ell, c.rho, M_x=c.M)
            return schedules.perturbed_gdmax(of_max, goal, smoothness=smooth, variant=study.variant)
        return schedules.perturbed_aid(c, goal, smoothness=smooth, variant=study.variant)


def _run(study: Study, schedule: Schedule, start: _Start, y0: Floats, steps: int) -> Solution:
    seeds = study.rng("visits").integers(2**31, size=len(start.x)).tolist()
    rule = LocalMinimum(schedule.eps, schedule.rho_phi)
    return solve(study.exact, schedule.algorithm(), start.x, y0=y0, steps=steps, rng=seeds, stop=rule)


def _distance(study: Study, x: Floats, y0: Floats) -> float:
    """|y0 - y*| + |v0 - v*| at most, for v0 = 0, with room for rounding."""
    kernels = study.kernels
    y, v = kernels.y_star(x), kernels.v_star(x)
    return float((np.linalg.norm(y - y0, axis=1) + np.linalg.norm(v, axis=1)).max()) * (1 + 1e-9) + 1e-12


def _counted(
    label: str, study: Study, run: Solution, schedule: Schedule, start: _Start, confidence: float
) -> CheckResult:
    """Visits among the runs that stayed in the box, where the constants are valid."""
    stayed, reached = _stayed(study, run), np.array([status is Status.LOCAL_MINIMUM for status in run.statuses])
    most = int(np.max(run.steps))
    shaken = _shaken(run, schedule)
    arrived = stayed & reached & shaken
    never = stayed & ~reached & (_repeats(run, schedule.T_escape) | (most >= schedule.K))
    undecided = int((~arrived & ~never).sum())
    s = schedule
    reasons = {
        "left the box": ~stayed, "did not get there": stayed & ~reached, "repeat themselves": never,
        "were not moved by perturbations": ~shaken,
    }  # fmt: skip
    why = ", ".join(f"{int(flags.sum())} {words}" for words, flags in reasons.items() if flags.any())
    message = (
        f"{why or 'all arrive'} in {most} iterations of {s.K:.3g}, from {start.what}: eps = {s.eps:.3g}, "
        f"iota = {s.iota:.3g} for {s.episodes:.3g} escapes, eta = {s.eta:.3g}, D = {s.D}, T = {s.T_escape}"
    )
    return judged_probability(
        label, int(never.sum()), len(stayed), DELTA, confidence, message=message, seed=study.seed, part=start.part,
        undecided=undecided,
    )  # fmt: skip


def _shaken(run: Solution, schedule: Schedule) -> Bools:
    """Of which runs every perturbation moved x; those without any are among them."""
    t = run.trajectory
    moved = t.x[:, 1:] - t.x[:, :-1]
    if schedule.variant == "printed":  # there a perturbation comes with a step of descent
        moved = moved + schedule.eta * t.grad_phi_hat[:, :-1]
    still = np.linalg.norm(moved, axis=-1) <= 1e-9 * schedule.eta * schedule.r
    return np.asarray(~(still & t.perturbed[:, : still.shape[1]]).any(axis=1))


def _repeats(run: Solution, T_escape: int) -> Bools:
    """Which runs have been at one place, in x, y and v, through a whole episode with its perturbation."""
    t = run.trajectory
    window = T_escape + 2
    result = np.zeros(len(t.x), dtype=np.bool_)
    for k, length in enumerate(np.atleast_1d(t.length).tolist()):
        last = slice(max(0, length - window), length)
        same = all(bool((table[k, last] == table[k, length - 1]).all()) for table in (t.x, t.y, t.v))
        result[k] = length >= window and same and bool(t.perturbed[k, last].any())
    return result


def _stayed(study: Study, run: Solution) -> Bools:
    """Which runs never left the box, in x or in y."""
    ends = np.array([[float(low), float(high)] for low, high in study.box])
    z = np.concatenate([run.trajectory.x, run.trajectory.y], axis=-1)
    inside = ((z >= ends[:, 0]) & (z <= ends[:, 1])).all(axis=-1)
    visited = np.arange(z.shape[1]) < np.asarray(run.trajectory.length)[:, None]
    return np.asarray((inside | ~visited).all(axis=1))
