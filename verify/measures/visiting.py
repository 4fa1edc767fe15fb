"""Visiting: runs of Algorithm 1 with a theorem's parameters until an eps-local minimum is visited."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.constants import Constants
from bilevel_sym.errors import BilevelError, CertificateFailure
from bilevel_sym.hypergradient import AID, GDmax
from bilevel_sym.schedules.aid import perturbed_accuracy
from bilevel_sym.schedules.escape import PERTURBED, Escape, escape_of
from bilevel_sym.schedules.goal import Goal, Smoothness
from bilevel_sym.schedules.inner import aid_steps, descent_rate, least_steps
from bilevel_sym.solution import Solution
from bilevel_sym.solvers import LocalMinimum, Perturbed, solve
from bilevel_sym.status import Status
from bilevel_sym.ties import first_smallest, in_order
from verify.measures.conditions import gradient_bound
from verify.statistics import judged_probability
from verify.study import Floats, Study
from verify.verdict import CheckResult, inconclusive

__all__ = ["DELTA", "positive_constants", "visits"]

DELTA = 0.1
RUNS = 44  # without a failure they support delta = 0.1 at 99 %
STEPS = 1500
LEAST = 5  # iterations below which a run is no test
WORK = 400_000  # lower-level steps that a run may take
SADDLE = "a saddle point"
FLAT = 2.0**-10  # a positive rho, as a part of ell, where the true one is zero


def positive_constants(study: Study, c: Constants | None = None) -> Constants:
    """Certified constants (the study's) as floats; a positive rho where it is zero, which is an upper bound too.

    >>> from bilevel_sym import zoo
    >>> from verify.study import study_of
    >>> positive_constants(study_of(zoo.get("scalar").problem)).rho > 0
    True
    """
    c = study.constants.valid if c is None else c
    mu, ell, rho, nu, M = values = tuple(float(value) for value in (c.mu, c.ell, c.rho, c.nu, c.M))
    if not all(map(math.isfinite, values)):
        raise CertificateFailure("a constant of the assumption has no bound over the box")
    return Constants(mu, ell, rho or FLAT * ell, nu, M)


@dataclass(frozen=True)
class _Start:
    """Where runs begin, and the eps that makes the beginning no eps-local minimum."""

    x: Floats
    eps: float
    what: str


def visits(label: str, study: Study) -> CheckResult:
    """Runs with the theorem's parameters, from saddle points or steep places, until an eps-local minimum is visited.

    >>> from bilevel_sym import zoo
    >>> from verify.study import study_of
    >>> visits("thm:aid", study_of(zoo.get("scalar").problem)).part
    'visits'
    """
    try:
        return _visited(label, study, positive_constants(study))
    except BilevelError as error:
        return inconclusive(label, error.message, variant=study.variant, part="visits")


def _visited(label: str, study: Study, c: Constants) -> CheckResult:
    smoothness = _smoothness(study, c)
    reason = "no place in the box from which a run would be a test and could be made"
    found = inconclusive(label, reason, variant=study.variant, part="visits")
    for start in _starts(study, smoothness):
        with warnings.catch_warnings(action="ignore"):
            prepared = _prepared(study, c, smoothness, start)
        if prepared.steps >= (prepared.T_escape if start.what == SADDLE else LEAST):
            found = _counted(label, study, _run(study, prepared, start), prepared, start)
        if found.decided:
            break
    return found


def _smoothness(study: Study, c: Constants) -> Smoothness:
    """Upper bounds on the smoothness of Phi: certified directly, or else by the formulas; both are valid."""
    L, rho = float(c.L_phi()), float(c.rho_phi())
    try:
        direct = study.smoothness
        L, rho = min(L, direct.L_phi.upper), min(rho, direct.rho_phi.upper)
    except BilevelError:
        pass
    low, high = study.x_ends
    if not L > 0:
        raise CertificateFailure("Phi is linear, and has no minimum")
    if not (high > low).any():
        raise CertificateFailure("the box in x is a single point, in which nothing moves")
    # a larger rho is as valid; without one an escape from the saddle of a quadratic Phi would have no scale
    return Smoothness(L, max(rho, FLAT * L / float((high - low).max())))


def _starts(study: Study, smoothness: Smoothness) -> Iterator[_Start]:
    """A saddle point, if one is found; then the steepest of some points."""
    most = smoothness.L_phi**2 / smoothness.rho_phi  # beyond it every point with a small gradient is a minimum
    saddle = _saddle(study)
    if saddle is not None:
        x, curvature = saddle
        # far enough below the definition's threshold that rounding does not matter
        yield _Start(np.tile(x, (RUNS, 1)), min(0.5 * curvature**2 / smoothness.rho_phi, most), SADDLE)
    low, high = study.x_ends
    points = (low + high) / 4 + study.points(256, "visits") / 2  # the inner half, as runs from the border leave the box
    try:
        steep = np.linalg.norm(study.kernels.grad_phi(points), axis=1)
    except BilevelError:
        return
    order = in_order(steep, descending=True)[:RUNS]
    if steep[order[-1]] > 0:
        yield _Start(points[order], min(0.5 * float(steep[order[-1]]), most), "steep places")


def _saddle(study: Study) -> tuple[Floats, float] | None:
    """A point with a vanishing gradient and negative curvature: Newton's method from points of the box."""
    low, high = study.x_ends
    kernels = study.kernels
    x = study.points(24, "saddles")
    x[0] = (low + high) / 2
    try:
        for _ in range(12):
            grad, hess = kernels.grad_phi(x), kernels.hess_phi(x)
            steps = np.array([np.linalg.lstsq(h, g, rcond=1e-12)[0] for h, g in zip(hess, grad, strict=True)])
            x = np.clip(x - steps, low, high)
        grad, hess = kernels.grad_phi(x), kernels.hess_phi(x)
    except (BilevelError, np.linalg.LinAlgError):
        return None
    lowest = np.linalg.eigvalsh(hess)[:, 0]
    inside = ((x > low + 0.05 * (high - low)) & (x < high - 0.05 * (high - low))).all(axis=1)
    flat = np.linalg.norm(grad, axis=1) < 1e-9 * (1 + np.abs(hess).max())
    chosen = np.flatnonzero(inside & flat & (lowest < -1e-3 * np.abs(hess).max()))
    if not len(chosen):
        return None
    best = chosen[first_smallest(lowest[chosen])]
    return x[best], float(-lowest[best])


@dataclass(frozen=True)
class _Prepared:
    """Algorithm 1 with the theorem's parameters, and how many iterations of it can be run."""

    algorithm: Perturbed
    y0: Floats
    steps: int

    @property
    def T_escape(self) -> int:
        return self.algorithm.T_escape


def _prepared(study: Study, c: Constants, smoothness: Smoothness, start: _Start) -> _Prepared:
    y0 = np.array([float((low + high) / 2) for low, high in list(study.box)[study.exact.d :]])
    far = _distance(study, start.x, y0)
    goal = Goal(eps=start.eps, delta=DELTA, d=study.exact.d, initial_error=far, gap=1.0, episodes=1)
    escape = escape_of(smoothness, goal, PERTURBED)
    estimator = _estimator(study, c, goal, escape)
    algorithm = Perturbed(estimator, escape.eta, goal.eps, escape.r, escape.T_escape, smoothness.rho_phi)
    return _Prepared(algorithm, y0, min(STEPS, WORK // estimator.D))


def _run(study: Study, prepared: _Prepared, start: _Start) -> Solution:
    algorithm = prepared.algorithm
    seeds = study.rng("visits").integers(2**31, size=len(start.x)).tolist()
    rule = LocalMinimum(algorithm.eps, algorithm.rho_phi)
    return solve(study.exact, algorithm, start.x, y0=prepared.y0, steps=prepared.steps, rng=seeds, stop=rule)


def _distance(study: Study, x: Floats, y0: Floats) -> float:
    """|y0 - y*| + |v0 - v*| at most, for v0 = 0, with room for rounding."""
    kernels = study.kernels
    y = kernels.y_star(x)
    v = np.linalg.solve(kernels.g_yy(x, y), kernels.f_y(x, y)[..., None])[..., 0]
    return float((np.linalg.norm(y - y0, axis=1) + np.linalg.norm(v, axis=1)).max()) * (1 + 1e-9) + 1e-12


def _estimator(study: Study, c: Constants, goal: Goal, escape: Escape) -> AID | GDmax:
    """The inner steps that the theorem prescribes."""
    accuracy, tau = perturbed_accuracy(goal, escape), 1 / c.ell
    if study.problem.kind == "minimax":
        error = c.ell * (goal.initial_error + 2 * escape.eta * c.kappa * max(c.M, escape.r))
        asked, rate = ((error, accuracy), (1.0, 0.5)), descent_rate(c.mu, c.ell)
        return GDmax(max(least_steps(a, b, rate, per_step=Decimal("0.5")) for a, b in asked), tau)
    longest = gradient_bound(c, accuracy, escape.r)
    initial = goal.initial_error
    return AID(*aid_steps(c, eta=escape.eta, initial_error=initial, gradient_bound=longest, accuracy=accuracy), tau)


def _counted(label: str, study: Study, run: Solution, prepared: _Prepared, start: _Start) -> CheckResult:
    """Visits among the runs that stayed in the box, where the constants are valid."""
    stayed, reached = _stayed(study, run), np.array([status is Status.LOCAL_MINIMUM for status in run.statuses])
    most, s = int(np.max(run.steps)), prepared.algorithm
    what = f"from {start.what}: eps = {s.eps:.3g}, eta = {s.eta:.3g}, {s.estimator}, T = {s.T_escape}"
    if not (stayed & reached).all():
        left, out = int((~stayed).sum()), int((stayed & ~reached).sum())
        reason = f"of {RUNS} runs {left} left the box and {out} did not get there in {most} steps, {what}"
        return inconclusive(label, reason, variant=study.variant, part="visits", evidence="statistical")
    return judged_probability(
        label, 0, len(stayed), DELTA, message=f"all within {most} iterations, {what}", seed=study.seed,
        variant=study.variant, part="visits",
    )  # fmt: skip


def _stayed(study: Study, run: Solution) -> NDArray[np.bool_]:
    """Which runs never left the box, in x or in y."""
    ends = np.array([[float(low), float(high)] for low, high in study.box])
    z = np.concatenate([run.trajectory.x, run.trajectory.y], axis=-1)
    inside = ((z >= ends[:, 0]) & (z <= ends[:, 1])).all(axis=-1)
    visited = np.arange(z.shape[1]) < np.asarray(run.trajectory.length)[:, None]
    return np.asarray((inside | ~visited).all(axis=1))
