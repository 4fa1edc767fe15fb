"""Do the estimates of a run belong to their iterates? Each beside the certified gradient there, and what else it is.

Where the estimator and its warm starts are known, each estimate is computed again from them: that decides. Otherwise an
estimate may err, and only what is recognised as something else (the gradient of the iterate before, minus the gradient,
a multiple, the direct term alone) is called wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bilevel_sym import AID, ITD, Exact, GDmax, Neumann, evaluate
from bilevel_sym.arithmetic.ties import first_largest, in_order
from bilevel_sym.errors import BilevelError
from bilevel_sym.estimators import Estimator
from bilevel_sym.solvers import STATIONARY_SHARE
from bilevel_sym.typing import FLOAT64_EPS, Bools, Floats
from verify.papers.huang_saddle.trajectory.record import Record, said, vector
from verify.papers.huang_saddle.trajectory.truth import Truth
from verify.testkit.reference import references
from verify.verdict import CheckResult, Verdict, not_applicable

LABEL, PART = "unlabelled:algorithm-1-step-9", "estimates"
FIT_SHARE = 0.05  # what is left of the error when an explanation is right, of estimates that err themselves
FIT_ITERATES = 3  # iterates without which a fit that is not exact says nothing
EXPLAINED_ITERATES = 200  # iterates at which explanations are tried
CERTIFIED_ITERATES = 8  # of the worst iterates that get certificates
MAX_LOWER_STEPS = 2_000_000  # steps of the lower level that are repeated, at most
SAME_FLOORS = 10.0  # floors that two computations of one estimate may differ by
Places = tuple[Any, Any]  # trajectories, and iterates


@dataclass(frozen=True)
class _Cause:
    name: str
    what: str
    look: str


def estimates(truth: Truth) -> CheckResult:
    """Each grad_phi_hat_k is an estimate of grad Phi(x_k), and of no other vector.

    Paper: Algorithm 1, step 9 [unlabelled:algorithm-1-step-9]

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.papers.huang_saddle.trajectory.record import record_of
    >>> from verify.papers.huang_saddle.trajectory.truth import truth_of
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> run = {"x": [[1.0], [0.5], [0.25]], "grad_phi_hat": [[2.0], [2.0], [1.0]]}
    >>> print(estimates(truth_of(record_of(run, problem))).message)
    the estimate is not the gradient at its iterate
      iterate k = 1, x = 0.5
      value: grad_phi_hat_k = (2)
      true value: grad Phi(x_k) = (1)
      0 correct digits; the error is 1
      suspected cause: predecessor: it is the gradient at x_(k-1), the predecessor
      look at: where the gradient is computed: after x has moved, not before (2 of 3 estimates)
    """
    record = truth.record
    if record.grad_phi_hat is None:
        return not_applicable(LABEL, "grad_phi_hat is not there", part=PART)
    if record.parameters.random:
        return not_applicable(LABEL, "the estimates come from random batches, and differ from grad Phi", part=PART)
    compared = np.isfinite(truth.error)
    if not compared.any():
        return not_applicable(LABEL, "no iterate has both an estimate and an exact gradient", part=PART)
    wrong = _clearly(truth, compared, truth.error, truth.floor)
    if not wrong.any():
        return _exact(truth, compared)
    again = _again(truth, compared)
    if again is not None:
        return _by_repetition(truth, *again)
    if isinstance(record.parameters.estimator, Exact):
        return _violated(truth, wrong, compared, _explained(truth, wrong))
    return _by_recognition(truth, wrong, compared)


def _clearly(truth: Truth, where: Bools, off: Floats, room: Floats) -> Bools:
    """Where an error is more than rounding: the room is estimated anew, from certificates, at the worst places."""
    wrong = where & (off > room)
    if not wrong.any():
        return wrong
    ratio = np.where(wrong, off / np.maximum(room, 1e-300), -1.0).ravel()
    worst = in_order(ratio, descending=True)[: min(CERTIFIED_ITERATES, int(wrong.sum()))]
    places = np.unravel_index(worst, wrong.shape)
    try:
        at = references(truth.record.problem, truth.record.x[places])
    except BilevelError:
        return wrong
    if at.skipped:
        return wrong
    wider = at.floor("grad_phi") * max(truth.record.unit / FLOAT64_EPS, 1.0) / np.maximum(truth.floor[places], 1e-300)
    return np.asarray(where & (off > max(1.0, float(wider.max())) * room))


# ---- verdicts ------------------------------------------------------------------------------------------------------


def _exact(truth: Truth, compared: Bools) -> CheckResult:
    ratio = np.where(compared, truth.error / np.maximum(truth.floor, 1e-300), -1.0)
    s, k = map(int, np.unravel_index(first_largest(ratio), ratio.shape))
    words = f"all {int(compared.sum())} estimates are grad Phi at their iterates, to rounding"
    return said(
        LABEL, PART, Verdict.HOLDS, [words, truth.remark], measured=float(truth.error[s, k]),
        bound=float(truth.floor[s, k]), n_points=int(compared.sum()),
    )  # fmt: skip


def _by_repetition(truth: Truth, where: Bools, off: Floats, room: Floats) -> CheckResult:
    """Each estimate beside what its estimator gives from the same warm start."""
    record = truth.record
    wrong = _clearly(truth, where, off, room)
    ratio = np.where(where, off / room, -1.0)
    s, k = map(int, np.unravel_index(first_largest(ratio), ratio.shape))
    if not wrong.any():
        worst = float(np.nanmax(np.where(where, truth.error, np.nan)))
        words = f"all {int(where.sum())} estimates are what {record.parameters.estimator} gives from its warm start"
        more = f"they err from grad Phi by up to {worst:.3g}, as inexact estimates do"
        return said(
            LABEL, PART, Verdict.HOLDS, [words, more, truth.remark], measured=float(off[s, k]),
            bound=float(room[s, k]), n_points=int(where.sum()),
        )  # fmt: skip
    cause = _explained(truth, wrong)
    if cause is None or cause.name == "y*":  # how many steps were made says more
        cause = _fewer_steps(truth, wrong) or cause
    return _violated(truth, wrong, where, cause, claimed=str(record.parameters.estimator))


def _by_recognition(truth: Truth, wrong: Bools, compared: Bools) -> CheckResult:
    """Nothing is known of the estimator: what is recognised, or what fools the test for stationary points, is wrong."""
    record, p = truth.record, truth.record.parameters
    for subset in (wrong, wrong & _after_perturbation(record), wrong & _repeated(record)):
        cause = _explained(truth, subset) if subset.any() else None
        if cause is not None:
            return _violated(truth, subset, compared, cause)
    if p.eps is not None and p.estimator is None:
        norms = np.linalg.norm(record.hat, axis=-1)
        exact = np.linalg.norm(truth.grad_phi, axis=-1)
        fooled = wrong & (norms <= STATIONARY_SHARE * p.eps) & (exact - truth.floor > p.eps)
        if fooled.any():
            what = (
                "y*, or the linear system, is not converged: the estimate is at most 4/5 eps = "
                f"{STATIONARY_SHARE * p.eps:.3g} and passes for stationary, but |grad Phi| is above eps = {p.eps:.3g}"
            )
            return _violated(truth, fooled, compared, _Cause("y*", what, "the inner loops: more steps"))
    error = np.where(compared, truth.error, -1.0)
    s, k = map(int, np.unravel_index(first_largest(error), error.shape))
    wanted = "y, v, D, N and tau (or estimator=AID(D, N, tau))"
    if p.estimator is not None:
        wanted = "y and v" if record.y is None else "y0 and v0, where the first iteration started,"
    lines = [
        f"the estimates err by up to {error[s, k]:.3g}, and nothing says how much they may",
        *_values(truth, s, k), truth.remark, f"try: {wanted} beside x, so that each can be computed again",
    ]  # fmt: skip
    return said(
        LABEL, PART, Verdict.INCONCLUSIVE, lines, record=record, at=(s, k), measured=float(error[s, k]),
        bound=float(truth.floor[s, k]), n_points=int(compared.sum()),
    )  # fmt: skip


def _violated(truth: Truth, wrong: Bools, compared: Bools, cause: _Cause | None, claimed: str = "") -> CheckResult:
    record = truth.record
    k, s = min((int(k), int(s)) for s, k in np.argwhere(wrong))
    words = "the estimate is not the gradient at its iterate"
    if claimed:
        words = f"the estimate is not what {claimed} gives at its iterate"
    found = cause or _Cause("unexplained", "", "how the estimate is computed")
    lines = [
        words, *_values(truth, s, k),
        f"suspected cause: {': '.join(filter(None, (found.name, found.what)))}",
        f"look at: {found.look} ({int(wrong.sum())} of {int(compared.sum())} estimates)", truth.remark,
    ]  # fmt: skip
    return said(
        LABEL, PART, Verdict.VIOLATED, lines, record=record, at=(s, k), measured=float(truth.error[s, k]),
        bound=float(truth.floor[s, k]), n_points=int(compared.sum()), evidence="certified",
    )  # fmt: skip


def _values(truth: Truth, s: int, k: int) -> Iterator[str]:
    """The estimate, the certified gradient, and how many digits they share."""
    record = truth.record
    hat = record.hat[s, k]
    yield f"value: grad_phi_hat_k = {vector(hat)}"
    try:
        certificate = evaluate(record.problem, record.x[s, k].tolist())
    except BilevelError as error:
        yield f"true value, not certified: grad Phi(x_k) = {vector(truth.grad_phi[s, k])} ({error.message})"
        return
    shown = ", ".join(f"{ball:.15}" for ball in certificate.grad_phi[:6])
    yield f"true value: grad Phi(x_k) = ({shown}{', ...' if record.problem.d > 6 else ''})"
    digits = certificate.compare(grad_phi=hat).digits
    yield f"{digits:.0f} correct digits; the error is {truth.error[s, k]:.3g}"


# ---- the same again ------------------------------------------------------------------------------------------------


def _again(truth: Truth, compared: Bools) -> tuple[Bools, Floats, Floats] | None:
    """Where each estimate was computed again, how far off it is, and how far rounding may take it; or None."""
    record, estimator = truth.record, truth.record.parameters.estimator
    where = _repeatable(record, estimator) & compared
    if estimator is None or not where.any():
        return None
    places: Places = np.nonzero(where)  # type: ignore[assignment]
    most = max(FIT_ITERATES, MAX_LOWER_STEPS // max(1, getattr(estimator, "D", 1)))
    if len(places[0]) > most:
        chosen = np.linspace(0, len(places[0]) - 1, most).astype(np.int64)
        places = (places[0][chosen], places[1][chosen])
        where = np.zeros_like(where)
        where[places] = True
    found = _estimate(record, estimator, places)
    if found is None:
        return None
    off = np.full(where.shape, np.nan)
    off[places] = np.linalg.norm(record.hat[places] - found, axis=-1)
    size = np.linalg.norm(record.hat, axis=-1) + np.linalg.norm(truth.grad_phi, axis=-1)
    room = SAME_FLOORS * truth.floor + 1e4 * max(record.unit, FLOAT64_EPS) * truth.condition * size
    return where, off, np.asarray(room)


def _repeatable(record: Record, estimator: Estimator | None) -> Bools:
    """Iterates whose warm start is known."""
    none = np.zeros(record.x.shape[:2], dtype=np.bool_)
    needs_v = isinstance(estimator, AID)
    if not isinstance(estimator, (AID, GDmax, ITD, Neumann)) or record.y is None or (needs_v and record.v is None):
        return none
    known = np.asarray(np.isfinite(record.y).all(axis=-1))
    if needs_v and record.v is not None:
        known = np.asarray(known & np.isfinite(record.v).all(axis=-1))
    start = record.y_0 is not None and (not needs_v or record.v_0 is not None)
    return np.asarray(np.concatenate([np.full((len(known), 1), start), known[:, :-1]], axis=1) & record.finite)


def _estimate(record: Record, estimator: Estimator, places: Places) -> Floats | None:
    s, k = places
    assert record.y is not None
    n = record.problem.n
    y = np.where((k > 0)[:, None], record.y[s, k - 1], np.zeros(n) if record.y_0 is None else record.y_0[s])
    v = np.zeros_like(y)
    if record.v is not None and isinstance(estimator, AID):
        v = np.where((k > 0)[:, None], record.v[s, k - 1], np.zeros(n) if record.v_0 is None else record.v_0[s])
    try:
        estimator.check(record.problem)
        return np.asarray(estimator.estimate(record.problem, record.x[s, k], y0=y, v0=v).grad_phi_hat)
    except BilevelError:
        return None


def _fewer_steps(truth: Truth, wrong: Bools) -> _Cause | None:
    """Which smaller D, or N, would have given these estimates."""
    record, estimator = truth.record, truth.record.parameters.estimator
    if not isinstance(estimator, (AID, GDmax, ITD, Neumann)):
        return None
    places = _first(wrong, FIT_ITERATES)
    hat, floor = record.hat, truth.floor[places]
    for name in ("D", "N", "Q"):
        if not hasattr(estimator, name):
            continue
        count = getattr(estimator, name)
        for fewer in sorted({*range(1, min(count, 40)), count // 2, count - 1} - {0}):
            try:
                found = _estimate(record, replace(estimator, **{name: fewer}), places)
            except BilevelError:
                continue
            if found is None:
                continue
            off = np.linalg.norm(hat[places] - found, axis=-1)
            if (off <= np.maximum(SAME_FLOORS * floor, 1e-9 * np.linalg.norm(found, axis=-1))).all():
                cause = "y*" if name == "D" else "inverse"
                return _Cause(cause, f"it is what {name} = {fewer} gives, not {name} = {count}", "the inner loops")
    return None


def _first(where: Bools, count: int) -> Places:
    s, k = np.nonzero(where)
    return s[:count], k[:count]


# ---- what else it may be -------------------------------------------------------------------------------------------


def _after_perturbation(record: Record) -> Bools:
    after_perturbation = np.zeros(record.x.shape[:2], dtype=np.bool_)
    if record.perturbed is not None:
        after_perturbation[:, 1:] = record.perturbed[:, :-1]
    return after_perturbation


def _repeated(record: Record) -> Bools:
    """Estimates that are, bit by bit, those of the iterate before, although x has moved."""
    same = np.zeros(record.x.shape[:2], dtype=np.bool_)
    hat = record.hat
    same[:, 1:] = (hat[:, 1:] == hat[:, :-1]).all(axis=-1) & (record.x[:, 1:] != record.x[:, :-1]).any(axis=-1)
    return same


def _explained(truth: Truth, wrong: Bools) -> _Cause | None:
    """The first explanation that fits the wrong estimates."""
    places = _first(wrong, EXPLAINED_ITERATES)
    hat, error, floor = truth.record.hat[places], truth.error[places], truth.floor[places]
    for cause, value in _explanations(truth, places, hat):
        off = np.linalg.norm(hat - value, axis=-1)
        exact = off <= SAME_FLOORS * floor
        close = off <= np.maximum(FIT_SHARE * error, SAME_FLOORS * floor)
        # estimates that lag behind tend to a multiple of the gradient: only an exact one is a factor
        rough = cause.name != "factor" and len(off) >= FIT_ITERATES and close.mean() > 0.9
        if exact.all() or rough:
            return cause
    return None


def _explanations(truth: Truth, places: Places, hat: Floats) -> Iterator[tuple[_Cause, Floats]]:
    record = truth.record
    s, k = places
    exact = truth.grad_phi[places]
    before = np.where((k > 0)[:, None], truth.grad_phi[s, k - 1], np.nan)
    after_x = "where the gradient is computed: after x has moved, not before"
    yield _Cause("predecessor", "it is the gradient at x_(k-1), the predecessor", after_x), before
    repeated = np.where((k > 0)[:, None], record.hat[s, k - 1], np.nan)
    yield _Cause("predecessor", "it repeats grad_phi_hat_(k-1), the estimate at the predecessor", after_x), repeated
    if record.parameters.eta is not None:
        unmoved = _gradients(truth, record.x[s, k - 1] - record.parameters.eta * repeated)
        what = "it is the gradient at x_(k-1) - eta grad_phi_hat_(k-1), the point before the perturbation"
        yield _Cause("predecessor", what, "the gradient is stale: compute it at the perturbed point"), unmoved
    yield _Cause("sign", "it is -grad Phi(x_k)", "the sign of the whole estimate"), -exact
    squares = float((exact * exact).sum())
    factor = float((hat * exact).sum()) / squares if squares else 1.0
    if len(hat) >= FIT_ITERATES and abs(factor - 1) > FIT_SHARE:
        yield (
            _Cause("factor", f"it is {factor:.6g} times grad Phi(x_k)", "a constant factor, a mean or a sum"),
            factor * exact,
        )
    x, y = record.x[places], truth.y_star[places]
    what = "it is f_x alone: the implicit term -g_xy v is missing"
    yield _Cause("cross", what, "g_xy, and the solution v of g_yy v = f_y"), truth.kernels.f_x(x, y)
    wrong_sign = 2 * truth.kernels.f_x(x, y) - exact
    yield _Cause("sign", "it is f_x + g_xy v: the implicit term has the wrong sign", "the sign of g_xy v"), wrong_sign
    if record.y is not None and np.isfinite(record.y[places]).all():
        at_y = _formula(truth, x, record.y[places])
        off = float(np.linalg.norm(record.y[places] - y, axis=-1).max())
        what = f"it is the formula at y_k, which is off y*(x_k) by up to {off:.3g}: the lower level is not converged"
        if record.parameters.eps is None and record.parameters.estimator is None:
            return  # then nothing says how near y_k has to be
        yield _Cause("y*", what, "the lower level: more steps, or a smaller tau"), at_y


def _gradients(truth: Truth, x: Floats) -> Floats:
    """grad Phi at rows of x; nan where it is not known."""
    result = np.full(x.shape, np.nan)
    good = np.isfinite(x).all(axis=-1)
    if good.any():
        try:
            result[good] = truth.kernels.grad_phi(x[good])
        except BilevelError:
            return result
    return result


def _formula(truth: Truth, x: Floats, y: Floats) -> Floats:
    """f_x - g_xy g_yy^-1 f_y at (x, y)."""
    k = truth.kernels
    try:
        v = np.linalg.solve(k.g_yy(x, y), k.f_y(x, y)[..., None])[..., 0]
    except (BilevelError, np.linalg.LinAlgError):
        return np.full(x.shape, np.nan)
    return np.asarray(k.f_x(x, y) - np.einsum("...ij,...j->...i", k.g_xy(x, y), v))
