"""The moves of a run: numbers that are finite, the update rule, and the perturbation rule of Algorithm 1.

Paper: Algorithm 1 [alg:perturbedalg]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from bilevel_sym.arithmetic.ties import first_largest
from bilevel_sym.solvers import STATIONARY_SHARE
from bilevel_sym.typing import Bools, Floats
from verify.papers.huang_saddle.trajectory.record import Record, last_before, said, vector
from verify.registry import NotApplicable
from verify.verdict import CheckResult, Verdict, not_applicable

STEP_ROUNDINGS = 16  # of each number that enters a step
FINITE, TEST, BALL, STEP = (
    "alg:perturbedalg",
    "unlabelled:algorithm-1-step-10",
    "unlabelled:algorithm-1-step-11",
    "unlabelled:algorithm-1-step-14",
)

Value = TypeVar("Value")


NEON_TEST, NEON_STEP = "unlabelled:algorithm-3-step-13", "unlabelled:algorithm-3-step-19"


class _Seen(NamedTuple):
    """What was measured against what, and what that says where the rule is kept; where it is broken, where and why."""

    measured: float
    bound: float
    n_points: int
    kept: str
    at: tuple[int, int] | None = None
    broken: tuple[str, ...] = ()

    def broken_at(self, at: tuple[int, int], *lines: str) -> _Seen:
        return self._replace(at=at, broken=lines)

    def result(self, label: str, part: str, record: Record) -> CheckResult:
        return said(
            label, part, Verdict.VIOLATED if self.broken else Verdict.HOLDS, self.broken or (self.kept,),
            record=record, at=self.at, measured=self.measured, bound=self.bound, n_points=self.n_points,
        )  # fmt: skip


def finite(record: Record) -> CheckResult:
    """Every iterate, and every estimate that a step was made from, is a finite number.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.papers.huang_saddle.trajectory.record import record_of
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> print(finite(record_of({"x": [[1.0], [float("nan")]]}, problem)).verdict)
    VIOLATED
    """
    bad = {"x": record.exists & ~np.isfinite(record.x).all(axis=-1)}
    for name in ("grad_phi_hat", "y", "v"):
        table = getattr(record, name)
        if table is not None:  # of the last iterate there may be no estimate
            bad[name] = record.exists & ~np.isfinite(table).all(axis=-1)
            bad[name][:, -1] &= np.isfinite(table[:, -1]).any(axis=-1)
    count, total = int(np.logical_or.reduce(list(bad.values())).sum()), int(record.exists.sum())
    seen = _Seen(float(count), 0.0, total, f"all numbers of {total} iterates are finite")
    if not count:
        return seen.result(FINITE, "finite", record)
    # the first in time, and of what went wrong there the last in the chain of causes
    _, last, s, k = min(
        (int(k), order, int(s), int(k))
        for order, (name, where) in enumerate(reversed(bad.items()))
        for s, k in np.argwhere(where)[np.argsort(np.argwhere(where)[:, 1], kind="stable")][:1]
    )
    what = list(reversed(bad))[last]
    table = getattr(record, what)
    return seen.broken_at(
        (s, k),
        f"{what} is not finite: the run broke down",
        f"value: {what} = {vector(table[s, k])}",
        "suspected cause: a step that is too large, or a point at which f or g is not defined",
        f"look at: eta, tau, and the iterate before ({count} of {total} iterates are spoilt)",
    ).result(FINITE, "finite", record)


# ---- the update rule -----------------------------------------------------------------------------------------------


def update(record: Record) -> CheckResult:
    """x_(k+1) = x_k - eta grad_phi_hat_k to rounding, wherever the step is not marked as a perturbation.

    Paper: Algorithm 1, step 14 [unlabelled:algorithm-1-step-14]

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.papers.huang_saddle.trajectory.record import record_of
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> run = {"x": [[1.0], [0.8], [0.64]], "grad_phi_hat": [[2.0], [1.6], [1.28]], "eta": 0.2}
    >>> print(update(record_of(run, problem)).message.splitlines()[-2].strip())
    suspected cause: the step size in use is 0.1, not eta = 0.2
    """
    part, p, grad = "update rule", record.parameters, record.grad_phi_hat
    missing = "eta" if p.eta is None else "grad_phi_hat" if grad is None else ""
    if p.perturbs and record.perturbed is None:
        missing = "perturbed, which says which steps are perturbations,"
    if missing or p.eta is None or grad is None:
        return not_applicable(STEP, f"{missing} is not there", part=part)
    step = np.diff(record.x, axis=1)
    where = record.plain & np.isfinite(grad[:, :-1]).all(axis=-1)
    if not where.any():
        return not_applicable(STEP, "there is no step along an estimate", part=part)
    rounding = _rounding(record, p.eta * np.abs(grad[:, :-1]))
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(step + p.eta * grad[:, :-1])
        ratio = np.where(where, (off / rounding).max(axis=-1), 0.0)
    s, k = map(int, np.unravel_index(first_largest(ratio), ratio.shape))
    j = first_largest(off[s, k] / rounding[s, k])
    total = int(where.sum())
    kept = f"x_(k+1) = x_k - eta grad_phi_hat_k to rounding in all {total} steps, eta = {p.eta:.6g}"
    if ratio[s, k] <= 1:
        return _Seen(float(off[s, k, j]), float(rounding[s, k, j]), total, kept).result(STEP, part, record)
    bad = where & (ratio > 1)
    s, k = map(int, np.argwhere(bad)[np.argmin(np.argwhere(bad)[:, 1])])  # the first: later ones may follow from it
    cause, look = _cause_of_step(record, step, bad, rounding)
    seen = _Seen(float(off[s, k].max()), float(rounding[s, k].max()), total, kept)
    return seen.broken_at(
        (s, k),
        "x_(k+1) is not x_k - eta grad_phi_hat_k",
        f"value: x_(k+1) - x_k = {vector(step[s, k])}",
        f"true value: -eta grad_phi_hat_k = {vector(-p.eta * grad[s, k])} with eta = {p.eta:.6g}",
        f"suspected cause: {cause}",
        f"look at: {look} ({int(bad.sum())} of {total} steps are off)",
    ).result(STEP, part, record)


def _rounding(record: Record, moved: Floats) -> Floats:
    """How far rounding may have moved each coordinate of a step."""
    size = np.abs(record.x[:, :-1]) + np.abs(record.x[:, 1:]) + moved
    return np.asarray(STEP_ROUNDINGS * record.unit * size + 1e-300)


def _cause_of_step(record: Record, step: Floats, bad: Bools, rounding: Floats) -> tuple[str, str]:
    """What would explain the steps that are off: a factor, the estimate of before, one iterate that was replaced."""
    r, eta, dx, g, room = record.parameters.r, record.eta, step[bad], record.hat[:, :-1][bad], 8 * rounding[bad]
    squares = (g * g).sum(axis=-1)
    far = squares > 0
    if far.any():
        factor = float(-np.median((dx * g).sum(axis=-1)[far] / squares[far]))
        # one number in one variable explains any single step
        if (np.abs(dx + factor * g) <= room).all() and bad.sum() * g.shape[1] > 1:
            sign = ": uphill, the sign is wrong" if factor < 0 else ""
            return f"the step size in use is {factor:.6g}, not eta = {eta:.6g}{sign}", "the step size"
    where = np.argwhere(bad)
    after = where[where[:, 1] > 0]
    if len(after) == len(where):
        before = record.hat[after[:, 0], after[:, 1] - 1]
        if (np.abs(dx + eta * before) <= room).all():
            return "the step goes along grad_phi_hat_(k-1), the estimate of the predecessor", "the order of the updates"
    replaced = _replaced(record, where)
    if replaced is not None:
        s, k = replaced
        return (
            f"{record.place(s, k)} was replaced after it was computed: x_(k+1) follows from x_(k-1) without it",
            "whatever writes into the array of iterates",
        )
    if r is not None and (np.linalg.norm(dx + eta * g, axis=-1) <= eta * r * (1 + 1e-9)).all():
        return "perturbations that are not marked as such", "what `perturbed` records"
    return "unexplained; another step rule (momentum, projection, a line search)?", "how x is updated"


def _replaced(record: Record, where: np.ndarray) -> tuple[int, int] | None:
    """The iterate between two steps that are off, if both together are right."""
    eta, grad, x = record.eta, record.hat, record.x
    pairs = [(int(s), int(k)) for s, k in where if k > 0 and ((where == (s, k - 1)).all(axis=1)).any()]
    if 2 * len(pairs) != len(where):
        return None
    for s, k in pairs:
        both = x[s, k + 1] - x[s, k - 1] + eta * (grad[s, k - 1] + grad[s, k])
        room = STEP_ROUNDINGS * record.unit * (np.abs(x[s, k - 1]) + np.abs(x[s, k + 1]) + eta * np.abs(grad[s, k]))
        if not (np.abs(both) <= 8 * room + 1e-300).all():
            return None
    return pairs[0] if pairs else None


# ---- the perturbation rule -----------------------------------------------------------------------------------------


def perturbations(record: Record) -> Iterator[CheckResult]:
    """A perturbation comes where |grad_phi_hat| <= 4/5 eps and not before T_escape is over; then it must; and how far.

    Paper: Algorithm 1, step 10 [unlabelled:algorithm-1-step-10], Algorithm 1, step 11 [unlabelled:algorithm-1-step-11]
    Deviation: k_perturb = 0 in the print forbids a perturbation while k <= T_escape, and the gradient of before it is
    used in the same iteration; both are right only for a run that says ``as_printed``. An escape by iNEON, which has no
    waiting time, is held against Algorithm 3.
    """
    p = record.parameters
    test, ball = (NEON_TEST, NEON_STEP) if p.escape is not None else (TEST, BALL)
    reason = ""
    if record.perturbed is None:
        reason = "perturbed is not there"
    elif p.random:
        reason = "the test is made on batches of its own"
    elif not p.perturbs and not record.perturbed.any():
        reason = "the algorithm does not perturb"
    size = _size if p.escape is None else _escape_size
    parts = (("where", _where, test), ("waiting time", _waiting, test), ("when due", _due, test), ("size", size, ball))
    for part, check, label in parts:
        try:
            if reason or record.perturbed is None:
                raise NotApplicable(reason)
            yield check(record, record.perturbed[:, :-1] & record.steps).result(label, part, record)
        except NotApplicable as why:
            yield not_applicable(label, str(why), part=part)


def _needed(value: Value | None, name: str) -> Value:
    if value is None:
        raise NotApplicable(f"{name} is not there")
    return value


def _some(marked: Bools) -> Bools:
    if not marked.any():
        raise NotApplicable("there was no perturbation")
    return marked


def _norms(record: Record) -> Floats:
    grad = _needed(record.grad_phi_hat, "grad_phi_hat")
    return np.asarray(np.linalg.norm(grad[:, :-1], axis=-1))


def _where(record: Record, marked: Bools) -> _Seen:
    eps, norms = _needed(record.parameters.eps, "eps"), _norms(record)
    norms, limit = np.where(_some(marked), norms, -1.0), STATIONARY_SHARE * eps
    s, k = map(int, np.unravel_index(first_largest(norms), norms.shape))
    count, worst = int(marked.sum()), float(norms[s, k])
    seen = _Seen(worst, limit, count, f"all {count} perturbations where |grad_phi_hat| <= 4/5 eps")
    if worst <= limit * (1 + STEP_ROUNDINGS * record.unit):
        return seen
    return seen.broken_at(
        (s, k),
        "perturbed where the estimate is large",
        f"value: |grad_phi_hat_k| = {worst:.6g}, but at most 4/5 eps = {limit:.6g} allows a perturbation",
        f"suspected cause: the test compares with {'another eps' if worst > eps else 'eps, not 4/5 of it'}",
        f"look at: the condition of the perturbation ({int((norms > limit).sum())} of {count} perturbations)",
    )


def _waiting(record: Record, marked: Bools) -> _Seen:
    """The smallest gap between two perturbations is above T_escape; as printed, also the first index."""
    p = record.parameters
    if p.escape is not None:
        raise NotApplicable("iNEON does not wait")
    T, gaps = _needed(p.T_escape, "T_escape"), []
    for s, row in enumerate(_some(marked)):
        at = np.flatnonzero(row).tolist()
        start = [0] if p.as_printed and at else []  # as printed, k_perturb = 0 before the first
        gaps += [(k - before, s, k) for before, k in pairwise([*start, *at])]
    if not gaps:
        raise NotApplicable("there was one perturbation, which had nothing to wait for")
    gap, s, k = min(gaps)
    kept = f"T_escape = {T:g}, and at least {gap} iterations between any two perturbations"
    seen = _Seen(T, float(gap), len(gaps), kept)
    if gap > T:
        return seen
    return seen.broken_at(
        (s, k),
        "perturbed again before the waiting time was over",
        f"value: {gap} iterations after the last perturbation, but more than T_escape = {T:g} are to pass",
        f"suspected cause: {'k_perturb is not updated' if gap == 1 else 'the counter of iterations is off'}",
        f"look at: k_perturb ({sum(g[0] <= T for g in gaps)} of {len(gaps)} came too early)",
    )


def _due(record: Record, marked: Bools) -> _Seen:
    """Nobody walks on from where a perturbation is due."""
    p = record.parameters
    eps, T = _needed(p.eps, "eps"), 0.0 if p.escape is not None else _needed(p.T_escape, "T_escape")
    clock, norms = _clock(record, marked, T), _norms(record)
    flat = record.steps & (norms <= STATIONARY_SHARE * eps * (1 - STEP_ROUNDINGS * record.unit)) & (clock > T)
    missed, due = flat & ~marked, int(flat.sum())
    kept = f"a perturbation at each of the {due} iterates where one was due" if due else "none was ever due"
    seen = _Seen(float(missed.sum()), 0.0, int(record.steps.sum()), kept)
    if not missed.any():
        return seen
    s, k = map(int, np.argwhere(missed)[0])
    return seen.broken_at(
        (s, k),
        "no perturbation although one was due",
        f"value: |grad_phi_hat_k| = {norms[s, k]:.6g}, at most 4/5 eps = {STATIONARY_SHARE * eps:.6g}; the last "
        f"perturbation is {'long past' if clock[s, k] > k else f'{int(clock[s, k])} iterations ago'}; T_escape = {T:g}",
        "suspected cause: the test never sees a small estimate, or the counter runs from somewhere else",
        f"look at: the condition of the perturbation ({int(missed.sum())} of {due} were left out)",
    )


def _clock(record: Record, marked: Bools, T: float) -> Floats:
    """k - k_perturb at each iterate. At the start: as printed k; by the lemma it is over; unsaid, either is right."""
    index, before, p = np.arange(marked.shape[1]), last_before(marked), record.parameters
    first = index + (T + 1 if p.as_printed is False or p.escape is not None else 0)
    return np.asarray(np.where(before >= 0, index - before, first), dtype=np.float64)


def _size(record: Record, marked: Bools) -> _Seen:
    p = record.parameters
    if p.as_printed:
        _needed(record.grad_phi_hat, "grad_phi_hat")
    eta, r = _needed(p.eta, "eta"), _needed(p.r, "r")
    step, stale = np.diff(record.x, axis=1), np.zeros_like(record.x[:, 1:])
    if record.grad_phi_hat is not None:
        stale = step + eta * record.grad_phi_hat[:, :-1]
    moved = np.linalg.norm(stale if p.as_printed else step, axis=-1)
    length = np.where(_some(marked), moved, -1.0)
    s, k = map(int, np.unravel_index(first_largest(length), length.shape))
    noise = float(np.linalg.norm(_rounding(record, np.abs(step))[s, k]))
    limit, count, worst = eta * r, int(marked.sum()), float(length[s, k])
    seen = _Seen(worst, limit, count, f"all {count} perturbations within eta r = {limit:.6g}")
    if worst <= limit + noise:
        return seen
    cause, look = "the radius in use is larger", "the radius, and how u is drawn"
    if record.grad_phi_hat is not None and not p.as_printed and np.linalg.norm(stale[s, k]) <= limit + noise:
        cause = (
            "predecessor: the step contains -eta grad_phi_hat_k too, the gradient of before the perturbation, which is "
            "stale at the perturbed point (as Algorithm 1 is printed)"
        )
        look = "the order of steps 11 and 14: the descent is to start at the perturbed point with its own gradient"
    elif worst <= r + noise and eta < 1:
        cause, look = "x moves by u and not by eta u", "the step size in front of the perturbation"
    return seen.broken_at(
        (s, k),
        "the perturbation leaves its ball",
        f"value: |x_(k+1) - x_k| = {worst:.6g}, but eta r = {limit:.6g} is the most allowed",
        f"suspected cause: {cause}",
        f"look at: {look} ({int((length > limit + noise).sum())} of {count} perturbations)",
    )


def _escape_size(record: Record, marked: Bools) -> _Seen:
    """An escape by iNEON moves x by the escape step along a unit vector."""
    step, wanted = np.diff(record.x, axis=1), _needed(record.parameters.escape, "escape").escape_step
    off = np.where(_some(marked), np.abs(np.linalg.norm(step, axis=-1) - wanted), -1.0)
    s, k = map(int, np.unravel_index(first_largest(off), off.shape))
    noise = float(np.linalg.norm(_rounding(record, np.abs(step))[s, k]))
    count = int(marked.sum())
    seen = _Seen(float(off[s, k]), noise, count, f"all {count} escapes are {wanted:.6g} long")
    if seen.measured <= noise:
        return seen
    return seen.broken_at(
        (s, k),
        "the escape step has the wrong length",
        f"value: |x_(k+1) - x_k| = {np.linalg.norm(step[s, k]):.6g}, but the step is {wanted:.6g}",
        "suspected cause: the direction is not normalised, or another step is in use",
        "look at: u/|u|, and the length of the step along it",
    )
