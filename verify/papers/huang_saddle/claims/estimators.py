"""The shipped estimators are what the equations say: each against the same formula in 256 bits, without any slack.

Every engine is asked (NumPy, and compiled code where numba is installed), and the public door ``estimate`` too. What
rounding cannot explain is a violation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

import numpy as np

from bilevel_sym import AID, ITD, Descent, GDmax, Neumann, StocBiO, StochasticProblem, solve
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.errors import BilevelError
from bilevel_sym.estimators import Estimator
from bilevel_sym.typing import FLOAT64_EPS, Floats
from verify import NotApplicable, Study, claim
from verify.papers.huang_saddle.measures.agreement import Agreement, agreed
from verify.papers.huang_saddle.measures.regions import solvable_points
from verify.papers.huang_saddle.measures.second_writing.plain import (
    Plain,
    PlainEstimate,
    Vector,
    engines,
    long,
    roundings,
)
from verify.papers.huang_saddle.measures.stochastic.batch_moments import Estimator as Moments
from verify.papers.huang_saddle.measures.stochastic.batch_moments import hypergradient_error
from verify.papers.huang_saddle.measures.stochastic.samples import SAMPLE_BITS, samples_of
from verify.papers.huang_saddle.measures.stochastic.stocbio_bounds import solved_points
from verify.verdict import CheckResult, inconclusive, judged

REGION = "points of the box in x"

FEW_POINTS = 3
MOST_CONDITION = 100  # of a system that n steps of conjugate gradients solve in float64
MOST_ENTRIES = 900  # of g_yy: beyond that a reference in many digits takes seconds
SAME_COUNT = 0.5  # whole numbers that are less than that apart are equal
DRAWS = 4000  # of the stochastic hypergradient
MANY_POINTS = 600  # points, which are more than the estimators take in one go
WIDE = 6.0  # standard errors within which a mean must be found

ON_ROWS = 1e-10  # relative: sums over rows are taken in another order
TABLES = (
    np.array([[1.0, -2.0, 1.0], [0.0, 1.0, 2.0], [3.0, 1.0, -1.0], [-1.0, 2.0, 0.5]]),
    np.array([[2.0, 1.0, 0.0], [-1.0, 1.0, 3.0], [1.0, 0.0, -2.0], [0.5, -2.0, 1.0]]),
)

Setting = tuple[Estimator, Callable[[Plain, Vector, Vector, Vector], PlainEstimate], Mapping[str, int]]
"""An estimator with its parameters, the same in many digits, and how often its formula asks each oracle."""


@lru_cache(2)
def _starts(study: Study) -> tuple[Floats, Floats, Floats]:
    """Points, y as far from y* as a tenth of the box, and any v: what a warm start may be."""
    rng = study.rng("estimators")
    x, y = solvable_points(study, 4 * FEW_POINTS, "estimators", FEW_POINTS)
    ends = list(study.box)[study.exact.d :]
    width = np.array([float(high - low) for low, high in ends]) if ends else np.ones(study.exact.n)
    return x, y + 0.05 * width * rng.uniform(-1, 1, y.shape), rng.standard_normal(y.shape)


def _curvatures(study: Study) -> Floats:
    """The sizes of the eigenvalues of g_yy at the starts, a row for each."""
    x, y, _ = _starts(study)
    return np.asarray(np.abs(np.linalg.eigvalsh(study.kernels.g_yy(x, y))))


def _ell(study: Study) -> float:
    """The largest eigenvalue of g_yy at the starts: a step of half its inverse neither stops at once nor diverges."""
    return float(_curvatures(study).max())


def _condition(study: Study) -> float:
    """The largest condition of g_yy at the starts."""
    values = _curvatures(study)
    return float((values[:, -1] / np.maximum(values[:, 0], FLOAT64_EPS)).max())


def _compared(study: Study, label: str, settings: list[Setting], *, part: str = "") -> CheckResult:
    """The shipped estimates of every engine against the plain ones."""
    if study.exact.n**2 > MOST_ENTRIES:
        raise NotApplicable(f"n = {study.exact.n} is too many for a reference in many digits")
    x, y, v = _starts(study)
    found: list[Agreement] = []
    with Plain.precision():
        plain = Plain(study.exact)
        for estimator, reference, calls in settings:
            counters = estimator.estimate(study.exact, x[0], y0=y[0], v0=v[0]).counters
            apart = (abs(float(getattr(counters, name)) - wanted) for name, wanted in calls.items())
            found.append(Agreement(f"the counters of {estimator}", max(apart), SAME_COUNT))
            wanted = [reference(plain, long(a), long(b), long(c)) for a, b, c in zip(x, y, v, strict=True)]
            for door, (grad, phi, y_D, v_N) in _shipped(study, estimator, x, y, v):
                found += [
                    _agreement(
                        f"{estimator} by {door}", here, (grad[k], phi[k : k + 1], y_D[k], v_N[k]),
                        study.named(x[k]), with_v=isinstance(estimator, (AID, Neumann)),
                    )
                    for k, here in enumerate(wanted)
                ]  # fmt: skip
    return agreed(label, study, found, what="shipped estimates against the formula in 256 bits", part=part)


def _agreement(
    name: str, wanted: PlainEstimate, given: tuple[Floats, ...], point: dict[str, float], *, with_v: bool
) -> Agreement:
    pairs = [(wanted.grad, given[0]), (np.array([wanted.phi]), given[1]), (wanted.y, given[2])]
    pairs += [(wanted.v, given[3])] if with_v else []
    apart = max(float(np.abs(a - b).max()) for a, b in pairs)
    return Agreement(name, apart, roundings(wanted), point)


def _shipped(
    study: Study, estimator: Estimator, x: Floats, y: Floats, v: Floats
) -> Iterator[tuple[str, tuple[Floats, Floats, Floats, Floats]]]:
    """What the estimator returns: by ``estimate``, for a few points and among many, and in the loop of each engine."""
    few = len(x)
    for times in (1, MANY_POINTS // few):
        at, y0, v0 = (np.tile(part, (times, 1)) for part in (x, y, v))
        one = estimator.estimate(study.exact, at, y0=y0, v0=v0)
        found = (one.grad_phi_hat, one.phi_hat, one.y_D, one.v_N)
        yield f"estimate() of {len(at)}", tuple(part[-few:] for part in found)  # type: ignore[misc]
    for backend in engines():
        run = solve(study.exact, Descent(estimator, 1e-9), x, y0=y, v0=v, steps=0, rng=0, backend=backend).trajectory
        yield backend, (run.grad_phi_hat[:, 0], run.phi_hat[:, 0], run.y[:, 0], run.v[:, 0])


# ---- the claims ------------------------------------------------------------------------------------------------------


@claim(
    "eq:aid-step2", kinds=("bilevel", "stochastic"),
    also=("eq:aid-step1", "unlabelled:algorithm-1-step-7", "unlabelled:algorithm-1-step-9"),
)  # fmt: skip
def aid_estimate(study: Study) -> Iterator[CheckResult]:
    """The shipped AID takes D steps for y, N of conjugate gradients for v, and returns f_x - g_xy v at y^D.

    grad_phi_hat = f_x(x, y^D) - g_xy(x, y^D) v^N; with N >= n, v^N = g_yy^-1 f_y at y^D exactly

    Paper: Equation 2.2 [eq:aid-step2]; Equation 2.1 [eq:aid-step1]
    """
    tau, n = 0.5 / _ell(study), study.exact.n
    yield _compared(study, "eq:aid-step2", [_aid(1, 1, tau), _aid(3, 2, tau)], part="few steps of CG")
    if n <= 8 and _condition(study) <= MOST_CONDITION:  # beyond it conjugate gradients lose their orthogonality
        yield _compared(study, "eq:aid-step2", [_aid(1, n, tau), _aid(4, n + 1, tau)], part="exact v at y^D")


def _aid(D: int, N: int, tau: float) -> Setting:
    calls = {"G_f": 2, "G_g": D, "JV_g": 1, "HV_g": N + 1}  # one more product for the first residual
    return AID(D, N, tau), lambda plain, x, y, v: plain.aid(x, y, v, D=D, N=N, tau=tau), calls


@claim("est-vq", kinds=("bilevel", "stochastic"))
def neumann_estimate(study: Study) -> CheckResult:
    """The shipped Neumann series has the Q + 1 terms q = 0, ..., Q.

    v_Q = eta times the sum of (I - eta g_yy)^q f_y = g_yy^-1 (I - (I - eta g_yy)^(Q + 1)) f_y

    Paper: Equation 4.7 [est-vq]
    """
    eta = 0.7 / _ell(study)
    return _compared(study, "est-vq", [_neumann(2, Q, eta) for Q in (0, 1, 4)])


def _neumann(D: int, Q: int, eta: float) -> Setting:
    tau = 0.8 * eta
    calls = {"G_f": 2, "G_g": D, "JV_g": 1, "HV_g": Q}
    return Neumann(Q, eta, D=D, tau=tau), lambda plain, x, y, v: plain.neumann(x, y, D=D, tau=tau, Q=Q, eta=eta), calls


@claim("own:itd")
def itd_estimate(study: Study) -> CheckResult:
    """The shipped ITD is the derivative of f(x, y^D(x)) through D steps.

    grad_phi_hat = f_x + (dy^D/dx) f_y with dy^(t+1)/dx = dy^t/dx (I - tau g_yy) - tau g_xy, carried forward
    """
    tau = 0.5 / _ell(study)
    return _compared(study, "own:itd", [_itd(D, tau) for D in (1, 3)])


def _itd(D: int, tau: float) -> Setting:
    calls = {"G_f": 2, "G_g": D, "JV_g": D, "HV_g": D}
    return ITD(D, tau), lambda plain, x, y, v: plain.itd(x, y, D=D, tau=tau), calls


@claim("unlabelled:gdmax-estimate", kinds=("minimax",), also=("unlabelled:algorithm-1-step-9",))
def gdmax_estimate(study: Study) -> CheckResult:
    """The shipped GDmax takes D steps for y and returns f_x there.

    grad_phi_hat = f_x(x, y^D)

    Paper: Formula [unlabelled:gdmax-estimate]
    """
    tau = 0.5 / _ell(study)
    return _compared(study, "unlabelled:gdmax-estimate", [_gdmax(D, tau) for D in (1, 3)])


def _gdmax(D: int, tau: float) -> Setting:
    return GDmax(D, tau), lambda plain, x, y, v: plain.gdmax(x, y, D=D, tau=tau), {"G_f": D + 1, "G_g": 0}


# ---- with data -------------------------------------------------------------------------------------------------------


@claim("estG", kinds=("stochastic",), also=("unlabelled:algorithm-3-step-6", "unlabelled:algorithm-3-step-10"))
def stochastic_estimate(study: Study) -> Iterator[CheckResult]:
    """The shipped stocBiO computes the stochastic hypergradient, with batches that are drawn anew for each product.

    Where the data are one row, h = f_x - g_xy v_Q at y^D without chance. With the data as they are, the mean of h and
    of |h - grad Phi|^2 over many draws are those that exact sums over the rows give. Problems in arrays draw their rows
    by code of their own: there a run is, draw by draw, the run on the same problem entry by entry.

    Paper: Equation 4.8 [estG]
    """
    yield _without_chance(study)
    yield from _with_chance(study)
    yield agreed(
        "estG", study, list(_on_rows()), what="StocBiO on rows of arrays against scalars", part="rows of arrays"
    )


def _without_chance(study: Study) -> CheckResult:
    """StocBiO on the mean as a problem with one row: every batch is the same, and nothing is left to chance."""
    x, y, _ = _starts(study)
    mean = study.exact
    alone = StochasticProblem(mean.f, mean.g, mean.x, mean.y, (), (), (), (), box=study.box)
    step, eta = 0.4 / _ell(study), 0.7 / _ell(study)
    found = []
    with Plain.precision():
        plain = Plain(mean)
        for D, Q in ((1, 0), (3, 2), (2, 5)):
            run = solve(alone, StocBiO(D, Q, 2, step, 1e-3, eta, 3, 4), x, y0=y, steps=1, rng=0).trajectory
            for k in range(len(x)):
                wanted = plain.neumann(long(x[k]), long(y[k]), D=D, tau=step, Q=Q, eta=eta)
                given = (run.grad_phi_hat[k, 0], run.phi_hat[k, :1], run.y[k, 0], run.v[k, 0])
                found.append(_agreement(f"D = {D}, Q = {Q}", wanted, given, study.named(x[k]), with_v=True))
                moved = float(np.abs(run.x[k, 1] - (x[k] - 1e-3 * wanted.grad)).max())
                found.append(Agreement(f"the step on x, D = {D}", moved, roundings(wanted), study.named(x[k])))
    return agreed("estG", study, found, what="StocBiO on one row against the formula in 256 bits", part="one row")


def _with_chance(study: Study) -> Iterator[CheckResult]:
    """The moments of what is drawn, where y is held by a step of almost nothing."""
    label, samples = "estG", samples_of(study)
    try:
        solved = next(iter(solved_points(samples)))
    except (StopIteration, BilevelError):
        yield inconclusive(label, "y* cannot be certified at the points tried", part="moments")
        return
    y = np.array([float(ball) for ball in solved.y])
    curvature = study.kernels.g_yy(solved.x, y)
    eta = 0.6 / float(np.abs(np.linalg.eigvalsh(curvature)).max())
    sizes = (2, 1)
    with precision(SAMPLE_BITS):
        exact = Moments(eta, 3, 2, sizes)
        bias, error = (
            float(value) for value in hypergradient_error(samples, solved.balls, solved.y, solved.grad, exact)
        )
    algorithm = StocBiO(1, len(sizes), 1, 1e-14, 1e-3, eta, 3, 2, neumann_batches=sizes)
    start = np.repeat(solved.x[None], DRAWS, axis=0)
    run = solve(study.problem, algorithm, start, y0=y, steps=0, rng=study.seed, record="all").trajectory
    grad = np.array([float(entry) for entry in solved.grad.entries()])
    away = run.grad_phi_hat[:, 0] - grad
    draws = (away**2).sum(axis=1)
    noise = WIDE * float(draws.std()) / math.sqrt(DRAWS) + 1e-12 * (1 + error)
    yield _within(study, "mean of |h - grad Phi|^2", float(draws.mean()), error, noise, solved.x)
    mean = away.mean(axis=0)
    # the squared length of a mean exceeds that of the expectation by the variance of the mean, on average
    spread = float(away.var(axis=0).sum()) / DRAWS
    noise = WIDE * (2 * math.sqrt(max(bias, 0.0) * spread) + spread) + 1e-12 * (1 + bias)
    yield _within(study, "mean of h", float(mean @ mean), bias, noise, solved.x)


def _on_rows() -> Iterator[Agreement]:
    """Two problems of four rows on each level: batches of different sizes, and batches that are all alike."""
    in_arrays, in_scalars = _in_arrays(), _in_scalars()
    for sizes in ((3, 2, 1), (2, 2, 2)):
        algorithm = StocBiO(3, 3, sizes[0], 0.05, 0.05, 0.05, sizes[1], sizes[2])
        x0 = np.linspace(-0.5, 0.5, 6).reshape(3, 2)
        one, two = (solve(p, algorithm, x0, steps=4, rng=0, record="all") for p in (in_arrays, in_scalars))
        for name in ("x", "y", "v", "grad_phi_hat", "phi_hat"):
            ours, theirs = (getattr(run.trajectory, name) for run in (one, two))
            size = 1 + float(np.abs(theirs).max())
            apart = float(np.abs(ours - theirs).max()) if ours.shape == theirs.shape else math.inf
            yield Agreement(f"{name}, batches of {sizes}", apart, ON_ROWS * size, {})


def _in_arrays() -> StochasticProblem:
    upper, lower = "(a @ y - b)**2/2 + x @ y", "(e @ y - d)**2/2 + exp(x) @ y**2/2"
    xi, zeta = ({name: table[:, :2], other: table[:, 2]} for name, other, table in zip("ae", "bd", TABLES, strict=True))
    return StochasticProblem(upper, lower, "x[n]", "y[n]", "a[n] b", "e[n] d", xi, zeta)


def _in_scalars() -> StochasticProblem:
    upper = "(a1*y1 + a2*y2 - b)**2/2 + x1*y1 + x2*y2"
    lower = "(e1*y1 + e2*y2 - d)**2/2 + exp(x1)*y1**2/2 + exp(x2)*y2**2/2"
    return StochasticProblem(upper, lower, "x1 x2", "y1 y2", "a1 a2 b", "e1 e2 d", *TABLES)


def _within(study: Study, part: str, found: float, wanted: float, noise: float, x: Floats) -> CheckResult:
    """A mean over draws against its exact value; it must lie within six standard errors."""
    apart = abs(found - wanted)
    message = f"{found:.6g} over {DRAWS} draws, exactly {wanted:.6g}: {WIDE:.0f} standard errors are {noise:.2g}"
    held = apart <= noise
    return judged(
        "estG", 0.0 if held else apart, 0.0 if held else noise, evidence="statistical", message=message, part=part,
        worst_point=study.named(x), n_points=DRAWS, seed=study.seed, variant=study.variant,
    )  # fmt: skip
