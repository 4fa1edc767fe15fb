"""The lemmas along a run: how far estimates may err, and how far each step must lower Phi."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bilevel_sym import AID, Constants, GDmax, evaluate
from bilevel_sym.arithmetic.ties import first_largest
from bilevel_sym.errors import BilevelError
from bilevel_sym.theories.huang_saddle.schedules.aid import perturbed_accuracy
from bilevel_sym.theories.huang_saddle.schedules.escape import Escape
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal
from bilevel_sym.typing import FLOAT64_EPS, Floats
from verify.papers.huang_saddle.measures.regions import Region
from verify.papers.huang_saddle.measures.runs import Run, compared, gammas, joined_words, rate_y, rounding
from verify.papers.huang_saddle.trajectory.record import last_before, said
from verify.papers.huang_saddle.trajectory.truth import Truth
from verify.registry import NotApplicable
from verify.verdict import CheckResult, Verdict, inconclusive, not_applicable

AID_LABEL, MINI_LABEL, DESCENT, REQUIRED = "lem:grad-err-aid", "lem:grad-err-mini", "lem:descent", "eq:error-required"


# ---- the errors of the estimates -----------------------------------------------------------------------------------


def gradient_errors(truth: Truth) -> Iterator[CheckResult]:
    """The lemmas on AID and GDmax: the error of each estimate against that of its warm start, and against Gamma_1.

    Paper: Lemma B.1 [lem:grad-err-aid]; Lemma C.2 [lem:grad-err-mini]
    Deviation: a step tau below 1/ell is covered, because 1/tau then is a larger constant ell.
    """
    estimator = truth.record.parameters.estimator
    label = MINI_LABEL if isinstance(estimator, GDmax) else AID_LABEL
    parts = ("one iteration", "Gamma_1") if label == AID_LABEL else ("one iteration", "run")
    try:
        found = error_bounds(truth)
    except NotApplicable as reason:
        yield from (not_applicable(label, str(reason), part=part) for part in parts)
        return
    except BilevelError as error:
        yield from (inconclusive(label, f"no constants: {error.message}", part=part) for part in parts)
        return
    run, region, c = found.run, found.region, found.region.constants
    for part, bound, why in found.parts:
        if bound is None:
            yield not_applicable(label, why, part=part)
            continue
        noise = 2 * rounding(region).grad + truth.record.unit / FLOAT64_EPS * 64 * FLOAT64_EPS * (
            c.M + c.ell * region.scale
        )
        result = compared(
            label, truth.study, run.error, bound, noise, at=run.x, part=part,
            message=joined_words(f"{estimator}, {found.origin}, kappa = {c.kappa:.4g}", truth.remark, truth.left),
        )  # fmt: skip
        yield _told(truth, run, result)


@dataclass(frozen=True, eq=False)
class ErrorBounds:
    """The errors along a run, from iterate ``first`` on, and what the lemma ``label`` allows there.

    ``parts`` are (name, bound, reason): a bound for each entry of ``run.error``, or why there is none. ``origin`` says
    whence the constants of the region are.
    """

    label: str
    run: Run
    first: int
    region: Region
    origin: str
    parts: tuple[tuple[str, Floats | None, str], ...]


def error_bounds(truth: Truth) -> ErrorBounds:
    """What the lemma on the run's estimator allows; NotApplicable where it says nothing about the run.

    >>> from bilevel_sym import BilevelProblem, Descent, solve
    >>> from verify.papers.huang_saddle.trajectory.record import record_of
    >>> from verify.papers.huang_saddle.trajectory.truth import truth_of
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> run = solve(problem, Descent(AID(D=2, N=1, tau=0.5), eta=0.25), [1.0], steps=9)
    >>> found = error_bounds(truth_of(record_of(run, problem)))
    >>> found.label, found.first, [bool((found.run.error <= bound).all()) for _, bound, _ in found.parts[:1]]
    ('lem:grad-err-aid', 1, [True])
    """
    estimator = truth.record.parameters.estimator
    reason = _unfit(truth)
    if reason:
        raise NotApplicable(reason)
    assert isinstance(estimator, (AID, GDmax))
    region, origin = truth.region
    c = region.constants
    if estimator.tau * c.ell > 1 + 1e-9:
        raise NotApplicable(
            f"tau = {estimator.tau:.4g} is above 1/ell = {1 / c.ell:.4g}, of which the lemma does not speak"
        )
    c = replace(c, ell=max(c.ell, 1 / estimator.tau))
    run = _run(truth)
    if isinstance(estimator, AID):
        label, parts = AID_LABEL, tuple(_errors_of_aid(truth, run, c, estimator))
    else:
        label, parts = MINI_LABEL, tuple(_errors_of_gdmax(truth, run, c, estimator))
    first = truth.record.x.shape[1] - run.x.shape[1]
    return ErrorBounds(label, run, first, replace(region, constants=c), origin, parts)


def _unfit(truth: Truth) -> str:
    """Why the lemmas have nothing to say about the run; empty if they have."""
    record, estimator = truth.record, truth.record.parameters.estimator
    if record.parameters.random:
        return "the estimates come from random batches"
    if not isinstance(estimator, (AID, GDmax)):
        kind = "not known" if estimator is None else type(estimator).__name__
        return f"the lemma is on AID and GDmax, and the estimator is {kind}"
    if record.grad_phi_hat is None:
        return "grad_phi_hat is not there"
    if record.y is None or (record.v is None and isinstance(estimator, AID)):
        return "the warm starts y and v are not there"
    return "there is no iterate whose warm start is known" if record.x.shape[1] < 2 and record.y_0 is None else ""


def _run(truth: Truth) -> Run:
    """From the first iterate on whose warm start is known: the second, unless y0 and v0 are given."""
    record, estimator = truth.record, truth.record.parameters.estimator
    assert record.y is not None
    gdmax = isinstance(estimator, GDmax)
    v = np.zeros_like(record.y) if record.v is None or gdmax else record.v
    v_star = np.zeros_like(record.y) if gdmax else truth.v_star
    first = 0 if record.y_0 is not None and (gdmax or record.v_0 is not None) else 1
    y_0 = np.concatenate([(record.y[:, :1] if record.y_0 is None else record.y_0[:, None]), record.y[:, :-1]], axis=1)
    v_0 = np.concatenate([(v[:, :1] if record.v_0 is None else record.v_0[:, None]), v[:, :-1]], axis=1)
    moved = np.full(record.x.shape[:2], np.nan)
    moved[:, :-1] = np.linalg.norm(np.diff(record.x, axis=1), axis=-1)
    perturbed = np.zeros(moved.shape, dtype=np.bool_) if record.perturbed is None else record.perturbed
    use = truth.inside & np.isfinite(record.hat).all(axis=-1)
    use[:, :first] = True
    usable = np.logical_and.accumulate(use, axis=1)
    grad = np.where((usable & truth.known)[..., None], truth.grad_phi, np.nan)
    rows = slice(first, None)
    return Run(
        x=record.x[:, rows], y_0=y_0[:, rows], v_0=v_0[:, rows], y_D=record.y[:, rows], v_N=v[:, rows],
        grad_phi_hat=record.hat[:, rows], y_star=truth.y_star[:, rows], v_star=v_star[:, rows],
        grad_phi=grad[:, rows], moved=moved[:, rows], perturbed=perturbed[:, rows], usable=usable[:, rows],
    )  # fmt: skip


Bounds = Iterator[tuple[str, Floats | None, str]]


def _errors_of_aid(truth: Truth, run: Run, c: Constants, estimator: AID) -> Bounds:
    of_y, of_v = c.aid_error_terms(estimator.D, estimator.N, eta=0, initial_error=1)
    yield "one iteration", of_y * run.off_y + of_v * run.off_v, ""
    eta = truth.record.parameters.eta
    why = "eta is not there" if eta is None else _not_from_the_start(truth, run)
    if not c.aid_contracts(estimator.D, estimator.N):
        why = "D and N are too few to halve the distance of the warm starts, which the lemma asks for"
    if why or eta is None:
        yield "Gamma_1", None, why
        return
    gamma = gammas(run, c, eta, "corrected")
    yield "Gamma_1", np.broadcast_to(((of_y + of_v) * gamma)[:, None], run.error.shape), ""


def _errors_of_gdmax(truth: Truth, run: Run, c: Constants, estimator: GDmax) -> Bounds:
    keeps = rate_y(c, "corrected") ** estimator.D
    yield "one iteration", c.ell * keeps * run.off_y, ""
    why = _not_from_the_start(truth, run)
    if keeps > 0.5:
        why = "D is too small to halve the distance of the warm starts, which the lemma asks for"
    if why:
        yield "run", None, why
        return
    far = run.off_y[:, 0] + 2 * c.kappa * run.longest
    yield "run", np.broadcast_to((c.ell * keeps * far)[:, None], run.error.shape), ""


def _not_from_the_start(truth: Truth, run: Run) -> str:
    """The bound over a whole run follows every iterate from the first, so each has to lie where the constants hold."""
    if not truth.complete:
        return f"the whole run would have to be followed, but {truth.remark}"
    return "" if np.isfinite(run.off_y[:, 0]).all() else "the first warm start has no exact value beside it"


def _told(truth: Truth, run: Run, result: CheckResult) -> CheckResult:
    """The result with the iterate and the cause, where it is violated; constants in doubt violate nothing."""
    if result.verdict is not Verdict.VIOLATED:
        return result
    if truth.doubt:
        return replace(result, verdict=Verdict.INCONCLUSIVE, message=f"{truth.doubt}; {result.message}")
    first = truth.record.x.shape[1] - run.x.shape[1]
    s, k = map(int, np.argwhere(run.error == result.measured)[0])
    off_y, off_v = float(run.off_y[s, k]), float(run.off_v[s, k])
    left = float(np.linalg.norm(run.y_D[s, k] - run.y_star[s, k]))
    lines = [
        "the estimate errs by more than the lemma allows",
        f"value: |grad_phi_hat_k - grad Phi(x_k)| = {result.measured:.6g}, but {result.bound:.6g} is allowed",
        f"the warm starts are off by {off_y:.3g} (y) and {off_v:.3g} (v), and after the inner loop y_k by {left:.3g}",
        f"suspected cause: {'y*: fewer steps of the lower level than D' if left > 0.1 * off_y else 'inverse: v_k'}",
        "look at: the inner loops, and whether they start where the last iteration ended",
        result.message,
    ]
    told = said(
        result.label, result.part, Verdict.VIOLATED, lines, record=truth.record, at=(s, k + first),
        measured=result.measured, bound=result.bound, n_points=result.n_points, evidence=result.evidence,
    )  # fmt: skip
    return replace(told, noise=result.noise)


# ---- the accuracy that the escape lemma asks for -------------------------------------------------------------------


def error_required(truth: Truth) -> CheckResult:
    """In the T_escape iterations after a perturbation, estimates are as accurate as the escape lemma asks.

    |grad_phi_hat - grad Phi| <= min(sqrt(17)/(80 iota^2), 1/(16 iota^2 2^iota)) eps

    It is a condition of the lemma: a run with parameters of its own that does not meet it is not wrong, but the lemma's
    probability is not promised to it. Only a run that says its iota is held to it.

    Paper: Equation 2.6 [eq:error-required]
    """
    record, p = truth.record, truth.record.parameters
    needed = {"eps": p.eps, "r": p.r if p.iota is None else p.iota, "T_escape": p.T_escape}
    missing = [name for name, value in needed.items() if value is None]
    reason = ""
    if p.random or p.escape is not None:
        reason = "it is asked of Algorithm 1"
    elif missing or record.grad_phi_hat is None:
        reason = f"{(missing or ['grad_phi_hat'])[0]} is not there"
    elif record.perturbed is None or not record.perturbed.any():
        reason = "there was no perturbation to escape by"
    if reason or p.eps is None or p.T_escape is None or record.perturbed is None:
        return not_applicable(REQUIRED, reason)
    iota = p.iota if p.iota is not None else (p.eps / (400 * p.r)) ** (1 / 3)  # type: ignore[operator]
    if iota <= 1:
        return not_applicable(REQUIRED, f"r = {p.r:.3g} is above eps/400: these are not the lemma's parameters")
    goal = Goal(eps=p.eps, delta=0.5, d=record.problem.d, initial_error=0.0, gap=1.0, episodes=1)
    bound = perturbed_accuracy(goal, Escape(iota, 1.0, 1.0, 1, 1.0, 1.0, False))
    error = np.where(_episodes(truth), truth.error, np.nan)
    if not np.isfinite(error).any():
        return not_applicable(REQUIRED, "no iterate after a perturbation has exact values beside it")
    s, k = map(int, np.unravel_index(first_largest(error, skip_nan=True), error.shape))
    worst, count, noise = float(error[s, k]), int(np.isfinite(error).sum()), float(truth.floor[s, k]) / 1e3
    verdict = Verdict.HOLDS if worst + noise <= bound else Verdict.INCONCLUSIVE
    words = f"estimates err by at most {worst:.3g} while perturbations escape; the lemma asks for {bound:.3g}"
    lines = [words, f"iota = {iota:.3g}", truth.remark]
    if worst - noise > bound:
        verdict = Verdict.VIOLATED if p.iota is not None else Verdict.INCONCLUSIVE
        lines = [
            "the estimates are less accurate than the escape lemma asks: it promises nothing to this run",
            f"value: |grad_phi_hat_k - grad Phi(x_k)| = {worst:.6g}, but {bound:.6g} is asked for, iota = {iota:.3g}",
            "look at: more inner steps D and N", truth.remark,
        ]  # fmt: skip
    at = None if verdict is Verdict.HOLDS else (s, k)
    return said(REQUIRED, "", verdict, lines, record=record, at=at, measured=worst, bound=bound, n_points=count)


def _episodes(truth: Truth) -> np.ndarray:
    """The iterates k_perturb < k <= k_perturb + T_escape."""
    record, T = truth.record, truth.record.parameters.T_escape
    assert record.perturbed is not None
    assert T is not None
    before = last_before(record.perturbed)
    return np.asarray((before >= 0) & (np.arange(record.x.shape[1]) - before <= T))


# ---- the descent lemma ---------------------------------------------------------------------------------------------


def descent(truth: Truth) -> CheckResult:
    """eta/4 |grad_phi_hat|^2 <= Phi(x_k) - Phi(x_(k+1)) + eta |grad Phi - grad_phi_hat|^2 where eta <= 1/L_phi.

    Paper: Lemma 2.8 [lem:descent]
    Deviation: of a step shorter than 1/L_phi it holds too, because 1/eta then is a larger Lipschitz constant.
    """
    record, eta = truth.record, truth.record.parameters.eta
    grad = record.grad_phi_hat
    if eta is None or grad is None:
        return not_applicable(DESCENT, f"{'eta' if eta is None else 'grad_phi_hat'} is not there")
    if record.perturbed is None and record.parameters.perturbs:
        return not_applicable(DESCENT, "perturbed, which says which steps are perturbations, is not there")
    try:
        L_phi, origin = truth.L_phi
    except BilevelError as error:
        return inconclusive(DESCENT, f"no Lipschitz constant of grad Phi: {error.message}")
    if eta * L_phi.lower > 1 + 1e-9:
        return not_applicable(
            DESCENT, f"eta = {eta:.4g} is above 1/L_phi = {1 / L_phi.lower:.4g}, of which the lemma does not speak"
        )
    if not eta * L_phi.upper <= 1 + 1e-9:
        return inconclusive(DESCENT, f"eta = {eta:.4g}, and L_phi is only known to lie in {L_phi} ({origin})")
    both = record.plain & (truth.known & truth.inside)[:, :-1] & (truth.known & truth.inside)[:, 1:]
    both &= np.isfinite(grad[:, :-1]).all(axis=-1)
    measured = np.where(both, eta / 4 * (grad[:, :-1] ** 2).sum(axis=-1), np.nan)
    bound = truth.phi[:, :-1] - truth.phi[:, 1:] + eta * truth.error[:, :-1] ** 2
    rounded = record.unit * np.linalg.norm(record.x[:, :-1], axis=-1) * np.linalg.norm(truth.grad_phi[:, :-1], axis=-1)
    noise = truth.noise[:, :-1] + truth.noise[:, 1:] + 16 * rounded
    result = compared(
        DESCENT, truth.study, measured, bound, noise, at=record.x[:, :-1],
        message=joined_words(f"eta = {eta:.4g}, L_phi <= {L_phi.upper:.4g} {origin}", truth.remark, truth.left),
    )  # fmt: skip
    return _confirmed(truth, result, measured) if result.verdict is Verdict.VIOLATED else result


def _confirmed(truth: Truth, result: CheckResult, measured: Floats) -> CheckResult:
    """A step that breaks the lemma, with certified values of Phi and grad Phi."""
    record, eta = truth.record, truth.record.eta
    s, k = map(int, np.argwhere(measured == result.measured)[0])
    if truth.doubt:
        return replace(result, verdict=Verdict.INCONCLUSIVE, message=f"{truth.doubt}; {result.message}")
    try:
        here, there = (evaluate(record.problem, record.x[s, j].tolist()) for j in (k, k + 1))
    except BilevelError as error:
        return replace(result, verdict=Verdict.INCONCLUSIVE, message=f"{error.message}; {result.message}")
    errors = [float(ball.mid - value) for ball, value in zip(here.grad_phi, record.hat[s, k].tolist(), strict=True)]
    fall = float(here.phi.mid - there.phi.mid)
    bound = fall + eta * math.fsum(e * e for e in errors)
    if measured[s, k] <= bound + result.noise:
        return replace(result, verdict=Verdict.INCONCLUSIVE, message=f"within rounding; {result.message}")
    lines = [
        "the step does not lower Phi as the descent lemma says",
        f"value: Phi(x_k) = {here.phi:.15}, Phi(x_(k+1)) = {there.phi:.15}: a fall of {fall:.6g}",
        f"true value: at least eta/4 |grad_phi_hat|^2 - eta |error|^2 = {measured[s, k] - bound + fall:.6g}",
        "suspected cause: x_(k+1) is not x_k - eta grad_phi_hat_k",
        f"look at: the update rule; {result.message}",
    ]
    return said(
        DESCENT, "", Verdict.VIOLATED, lines, record=record, at=(s, k), measured=float(measured[s, k]), bound=bound,
        n_points=result.n_points, evidence="certified",
    )  # fmt: skip
