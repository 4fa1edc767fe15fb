"""Algorithm 2: the direction against a power method in plain Python and against known Hessians, and what is made of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import sympy as sp

from bilevel_sym import AID, BilevelProblem, Descent, Exact, GDmax, INeon, MinimaxProblem, Neumann, Status, solve, zoo
from bilevel_sym.errors import BilevelError, InvalidArgument, KernelError, LinearSystemFailure
from bilevel_sym.solvers.ineon import FOUND_SHARE
from bilevel_sym.solvers.noise import uniform_in_ball
from bilevel_sym.theories.huang_saddle.constants import Constants
from bilevel_sym.typing import Floats

Q = sp.Rational


def quartic(H: sp.Matrix, weights: tuple[int, ...] | None = None, cubic: Any = 0) -> BilevelProblem:
    """Phi = x^T H x/2 + cubic sum x_i^3 + sum x_i^4/4, under g = sum a_i (y_i - x_i)^2/2: Hess Phi(0) = H."""
    d = H.rows
    x, y = sp.symbols(f"x1:{d + 1}", real=True), sp.symbols(f"y1:{d + 1}", real=True)
    a = weights or (1,) * d
    g = sp.Add(*(ai * (yi - xi) ** 2 / 2 for ai, yi, xi in zip(a, y, x, strict=True)))
    form = (sp.Matrix(y).T * H * sp.Matrix(y))[0] / 2
    return BilevelProblem(sp.expand(form) + sp.Add(*(cubic * yi**3 + yi**4 / 4 for yi in y)), g, x, y)


# eigenvalues -1, 1/2, 2 in a rotated frame
ROTATION = sp.Matrix([[2, -2, 1], [1, 2, 2], [2, 1, -2]]) / 3
SADDLE = ROTATION * sp.diag(-1, Q(1, 2), 2) * ROTATION.T
MINIMUM = ROTATION * sp.diag(1, Q(1, 2), 2) * ROTATION.T


@lru_cache(None)
def saddle() -> BilevelProblem:
    return quartic(SADDLE, (1, 2, 2))


@lru_cache(None)
def minimum() -> BilevelProblem:
    return quartic(MINIMUM, (1, 2, 2))


NEON = INeon(AID(60, 3, 0.5), eta=0.25, eps=0.2, r=0.05, T_escape=60, F_escape=1e-4)


# ---- the direction -----------------------------------------------------------------------------------------------------


def by_hand(p: BilevelProblem, neon: INeon, x: Floats, seed: int, steps: int) -> Floats:
    """The algorithm's lines with the exact Phi and its gradient."""
    k, u = p.kernels, uniform_in_ball(np.random.default_rng(seed), p.d, neon.eta * neon.r)
    here, phi = k.grad_phi(x), k.phi(x)
    for _ in range(steps):
        u = u - neon.eta * (k.grad_phi(x + u) - here)
        if k.phi(x + u) - phi - here @ u <= -FOUND_SHARE * neon.F_escape:
            return u / np.linalg.norm(u)
    return np.zeros(p.d)


@pytest.mark.parametrize("point", [[0.0, 0.0, 0.0], [0.01, -0.02, 0.01]])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("T_escape", [4, 80])
def test_the_direction_is_the_algorithms(point: list[float], seed: int, T_escape: int) -> None:
    neon = INeon(AID(80, 3, 0.5), 0.25, 0.2, 0.002, T_escape, 1e-4)
    found = neon.direction(saddle(), point, rng=seed)
    np.testing.assert_allclose(found, by_hand(saddle(), neon, np.array(point), seed, T_escape), atol=1e-7)
    assert found.any() == (T_escape == 80)


def test_the_last_step_counts_and_as_printed_there_is_one_more() -> None:
    """The smallest T_escape that finds a direction, by hand; one less finds none, except as printed."""
    point = np.zeros(3)
    first = next(T for T in range(1, 100) if by_hand(saddle(), NEON, point, 0, T).any())
    for T, printed, found in (
        (first, False, True),
        (first - 1, False, False),
        (first - 1, True, True),
        (first - 2, True, False),
    ):
        neon = INeon(AID(60, 3, 0.5), 0.25, 0.2, 0.05, T, 1e-4, as_printed=printed)
        assert neon.direction(saddle(), point, rng=0).any() == found, (T, printed)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [AID(40, 3, 0.5), Exact(), Neumann(60, 0.5, 40)])
def test_the_direction_is_a_unit_vector_of_negative_curvature(estimator: Any) -> None:
    H = np.array(SADDLE, dtype=np.float64)
    for seed in range(5):
        u = INeon(estimator, 0.25, 0.2, 1e-3, 80, 1e-4).direction(saddle(), np.zeros(3), rng=seed)
        np.testing.assert_allclose(np.linalg.norm(u), 1.0, rtol=1e-14)
        assert u @ H @ u < -0.9  # the power method has turned it to the eigenvector of -1
        np.testing.assert_allclose(abs(u @ np.array(ROTATION[:, 0], dtype=np.float64).ravel()), 1.0, atol=0.05)


@pytest.mark.slow
def test_a_minimum_has_no_direction() -> None:
    for seed in range(5):
        assert not NEON.direction(minimum(), np.zeros(3), rng=seed).any()
    assert not NEON.direction(minimum(), [0.05, 0.05, -0.05], rng=0).any()


def test_it_works_on_the_difference_of_gradients_so_a_slope_does_not_mislead_it() -> None:
    """Where Phi is convex but slopes, phi_hat(x + u) - phi_hat(x) falls; without the linear part it does not."""
    assert not NEON.direction(minimum(), [1.5, -0.5, 1.0], rng=0).any()


def test_the_zoos_saddle_d_one_and_a_minimax_problem() -> None:
    p = zoo.get("saddle", d=3).problem
    u = INeon(AID(20, 3, 0.5), 0.2, 0.2, 0.1, 80, 1e-4).direction(p, np.zeros(3), rng=3)
    assert u @ p.kernels.hess_phi(np.zeros(3)) @ u < -0.5
    assert (
        not INeon(AID(20, 3, 0.2), 0.2, 0.2, 0.1, 80, 1e-4)
        .direction(p, [2.0, 0.0, 0.0], y0=[1.0, 0.0, 0.0], rng=3)
        .any()
    )
    top = zoo.get("saddle", d=1).problem
    assert abs(INeon(AID(20, 1, 0.5), 0.2, 0.2, 0.1, 80, 1e-4).direction(top, [0.0], rng=0)).tolist() == [1.0]
    minimax = MinimaxProblem("cos(x) + x*y/2 - y**2/2", "x", "y")
    assert abs(INeon(GDmax(20, 1.0), 0.2, 0.2, 0.1, 80, 1e-4).direction(minimax, [0.0], rng=0)).tolist() == [1.0]


def test_seeds_repeat_and_differ() -> None:
    a, b, c = (NEON.direction(saddle(), np.zeros(3), rng=seed) for seed in (4, 4, 5))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    d = NEON.direction(saddle(), np.zeros(3), rng=np.random.default_rng(4))
    assert d.shape == (3,)


def test_the_start_below_is_used() -> None:
    """One lower-level step from y0 = y* is exact here; from zero it is not."""
    p = quartic(SADDLE, (1, 1, 1))
    point = [0.4, 0.4, 0.4]
    neon = INeon(AID(1, 1, 0.01), 0.25, 0.2, 0.05, 3, 1e-4)
    assert np.array_equal(neon.direction(p, point, y0=point, rng=0), neon.direction(p, point, y0=point, rng=0))
    with pytest.raises(KernelError):
        neon.direction(p, point, y0=[0.0], rng=0)


# ---- the lemma -----------------------------------------------------------------------------------------------------------


def waves(d: int) -> tuple[BilevelProblem, Constants]:
    """Phi = cos(x1) - 1 + sum of 1 - cos(x_i): a strict saddle at 0 with Hessian diag(-1, 1, ...); constants everywhere."""
    x, y = sp.symbols(f"x1:{d + 1}", real=True), sp.symbols(f"y1:{d + 1}", real=True)
    f = sp.cos(y[0]) - 1 + sp.Add(*(1 - sp.cos(yi) for yi in y[1:]))
    g = sp.Add(*((yi - xi) ** 2 / 2 for xi, yi in zip(x, y, strict=True)))
    return BilevelProblem(f, g, x, y), Constants(mu=1, ell=1, rho=1, nu=0, M=math.sqrt(d))


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 4])
def test_the_lemmas_own_parameters_give_the_lemmas_curvature(d: int) -> None:
    """u^T H u <= -sqrt(rho_phi eps)/(40 iota) at a saddle with lambda_min <= -sqrt(rho_phi eps), for 300 seeds."""
    schedules = pytest.importorskip("bilevel_sym.theories.huang_saddle.schedules")
    p, constants = waves(d)
    eps = 0.9 / float(constants.rho_phi())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that float64 is near its end is why the saddle is at zero
        schedule = schedules.ineon(constants, eps=eps, delta=0.1, d=d, gap=1e-9)
        algorithm = schedule.algorithm()
    assert math.sqrt(schedule.rho_phi * eps) <= 1
    found = solve(p, algorithm, np.zeros((300, d)), steps=1, rng=0, record="last")
    moved = found.x / np.maximum(np.linalg.norm(found.x, axis=1), 1e-300)[:, None]
    H = np.diag([-1.0] + [1.0] * (d - 1))
    curvature = np.einsum("si,ij,sj->s", moved, H, moved)
    escaped = np.linalg.norm(found.x, axis=1) > 0
    assert escaped.mean() > 0.9  # 1 - delta
    assert (curvature[escaped] <= -math.sqrt(schedule.rho_phi * eps) / (40 * schedule.iota)).all()
    np.testing.assert_allclose(
        np.linalg.norm(found.x[escaped], axis=1), math.sqrt(eps / schedule.rho_phi) / (40 * schedule.iota), rtol=1e-9
    )
    fall = found.phi[escaped] - p.kernels.phi(np.zeros(d))
    assert (fall <= -schedule.decrease / 2).all()
    # the default step and region are those of the lemma
    neon = INeon(AID(1, 1, 1.0), schedule.eta, eps, schedule.r, schedule.T_escape, schedule.F_escape)
    np.testing.assert_allclose(neon.escape_step, schedule.step, rtol=0.02)  # T_escape is rounded up
    np.testing.assert_allclose(neon.region, math.sqrt(eps / schedule.rho_phi), rtol=0.02)


# ---- as an escape ----------------------------------------------------------------------------------------------------------


def test_an_escape_moves_by_its_step_along_the_direction() -> None:
    neon = INeon(AID(60, 3, 0.5), 0.25, 0.2, 0.05, 60, 1e-4, step=0.3)
    s = solve(saddle(), Descent(AID(60, 3, 0.5), 0.25, escape=neon), np.zeros((6, 3)), steps=1, rng=0)
    assert s.trajectory.perturbed[:, 0].all()
    np.testing.assert_allclose(np.linalg.norm(s.x, axis=1), 0.3, rtol=1e-13)
    for seed, x in zip(s.seed, s.x, strict=True):
        u = neon.direction(saddle(), np.zeros(3), rng=seed)
        np.testing.assert_allclose(abs(x @ u), 0.3, rtol=1e-6)
    assert (s.phi < saddle().kernels.phi(np.zeros(3)) - 0.01).all()


def test_the_default_step() -> None:
    assert NEON.escape_step == math.sqrt(0.25 * 60 * 1e-4) / 4
    assert INeon(AID(1, 1, 0.1), 0.25, 0.2, 0.05, 60, 1e-4, step=2.0).escape_step == 2.0


def test_an_escape_takes_the_lower_side() -> None:
    """With x^3 added, one side of the saddle is lower: all members go there."""
    p = quartic(sp.diag(-1, 1), cubic=Q(1, 3))
    neon = INeon(AID(60, 2, 0.5), 0.25, 0.2, 0.05, 60, 1e-4, step=0.3)
    s = solve(p, Descent(AID(60, 2, 0.5), 0.25, escape=neon), np.zeros((20, 2)), steps=1, rng=0)
    assert (s.x[:, 0] < -0.25).all()
    assert (s.phi < p.kernels.phi(-s.x)).all()
    printed = INeon(AID(60, 2, 0.5), 0.25, 0.2, 0.05, 60, 1e-4, step=0.3, as_printed=True)
    s = solve(p, Descent(AID(60, 2, 0.5), 0.25, escape=printed), np.zeros((20, 2)), steps=1, rng=0)
    assert set(np.sign(s.x[:, 0])) == {-1.0, 1.0}  # a coin


@pytest.mark.slow
def test_descent_with_escape_ends_in_a_minimum_and_says_so() -> None:
    neon = INeon(AID(60, 3, 0.5), 0.25, 0.01, 0.05, 80, 1e-5, step=0.3)
    s = solve(saddle(), Descent(AID(60, 3, 0.5), 0.25, escape=neon), np.zeros((8, 3)), steps=400, rng=1)
    assert set(s.status) == {Status.LOCAL_MINIMUM}
    k = saddle().kernels
    assert (np.linalg.norm(k.grad_phi(s.x), axis=1) <= 0.01).all()
    assert (np.linalg.eigvalsh(k.hess_phi(s.x))[:, 0] > 0).all()
    assert (s.phi < -0.1).all()
    assert not s.trajectory.perturbed[np.arange(8), s.steps].any()


def test_a_start_in_a_minimum_ends_at_once() -> None:
    s = solve(minimum(), Descent(AID(60, 3, 0.5), 0.25, escape=NEON), [[0.0] * 3, [2.0] * 3], steps=200, rng=1)
    assert s.status == (Status.LOCAL_MINIMUM, Status.LOCAL_MINIMUM)
    assert s.steps[0] == 0
    assert s.x[0].tolist() == [0.0] * 3
    assert s.steps[1] > 0


def test_a_search_that_was_too_short_does_not_make_a_saddle_a_minimum() -> None:
    """LOCAL_MINIMUM is never said without a check: at a strict saddle with T_escape = 1 iNEON finds nothing."""
    short = INeon(AID(60, 3, 0.5), 0.25, 0.2, 1e-6, 1, 1e-4)
    s = solve(saddle(), Descent(AID(60, 3, 0.5), 0.25, escape=short), np.zeros(3), steps=3, rng=0)
    assert s.status is not Status.LOCAL_MINIMUM


def test_every_call_of_a_search_is_counted() -> None:
    """T_escape + 1 estimates at a minimum, none for the base, which is known; by the escape's own estimator."""
    neon = INeon(AID(50, 3, 0.5), 0.25, 0.2, 0.05, 60, 1e-4)
    s = solve(minimum(), Descent(AID(50, 3, 0.5), 0.25, escape=neon), np.zeros(3), steps=1, rng=1)
    assert int(s.counters.G_g) == 50 * (1 + 61)
    assert int(s.counters.HV_g) == 4 * (1 + 61)


def test_an_escape_with_another_estimator_compares_like_with_like() -> None:
    """Phi = x^2 is convex, so there is no direction to find, however biased the estimate of the descent is."""
    p = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    neon = INeon(AID(1, 1, 1.0), eta=0.1, eps=0.2, r=0.1, T_escape=80, F_escape=1e-4)
    s = solve(p, Descent(Neumann(0, 0.5, 1, 1.0), 0.1, escape=neon), [0.1], y0=[0.1], steps=1, rng=0)
    assert not s.trajectory.perturbed.any()
    assert s.status is Status.LOCAL_MINIMUM


def test_the_calls_of_an_escape_with_another_estimator_are_its_own() -> None:
    neon = INeon(AID(50, 3, 0.5), 0.25, 0.2, 0.05, 60, 1e-4)
    s = solve(minimum(), Descent(AID(2, 1, 0.5), 0.25, escape=neon), np.zeros(3), steps=1, rng=1)
    assert int(s.counters.G_g) >= 50 * 61 + 2


# ---- failures --------------------------------------------------------------------------------------------------------------


HALF = BilevelProblem("-y**2/2 + log(1 + y)/1000", "(y - x)**2/2", "x", "y")  # a saddle next to the end of the domain


def test_an_escape_takes_the_side_that_exists() -> None:
    neon = INeon(AID(1, 1, 1.0), eta=0.5, eps=0.2, r=0.01, T_escape=60, F_escape=1e-2, step=2.0)
    s = solve(HALF, Descent(AID(1, 1, 1.0), 0.5, escape=neon), np.zeros((6, 1)), steps=1, rng=0)
    np.testing.assert_allclose(s.x, 2.0)
    assert set(s.status) == {Status.OUT_OF_STEPS}


def test_a_search_that_leaves_the_domain_is_a_typed_failure() -> None:
    neon = INeon(AID(1, 1, 1.0), eta=0.5, eps=0.2, r=0.5, T_escape=60, F_escape=1e6, step=0.5)
    failed = []
    for seed in range(6):
        try:
            neon.direction(HALF, [0.0], rng=seed)
        except LinearSystemFailure:
            failed.append(seed)
    assert 0 < len(failed) < 6
    s = solve(HALF, Descent(AID(1, 1, 1.0), 0.5, escape=neon), np.zeros((6, 1)), steps=0, rng=list(range(6)))
    assert set(s.status) == {Status.OUT_OF_STEPS}
    s = solve(HALF, Descent(AID(1, 1, 1.0), 0.5, escape=neon), np.zeros((6, 1)), steps=1, rng=list(range(6)))
    assert [k for k, status in enumerate(s.status) if status is Status.NOT_FINITE] == failed


def test_a_lower_level_that_is_not_convex_is_a_typed_failure() -> None:
    with pytest.raises(LinearSystemFailure, match="not positive definite"):
        NEON.direction(BilevelProblem("y", "-y**2/2 - x*y", "x", "y"), [1.0], rng=0)


REFUSED: list[tuple[str, Callable[[], object], type[BilevelError]]] = [
    ("estimator", lambda: INeon(AID, 0.1, 0.1, 0.1, 5, 0.1), InvalidArgument),  # type: ignore[arg-type]
    ("eta", lambda: INeon(AID(1, 1, 0.1), 0.0, 0.1, 0.1, 5, 0.1), InvalidArgument),
    ("eps", lambda: INeon(AID(1, 1, 0.1), 0.1, -0.1, 0.1, 5, 0.1), InvalidArgument),
    ("r", lambda: INeon(AID(1, 1, 0.1), 0.1, 0.1, math.inf, 5, 0.1), InvalidArgument),
    ("T_escape", lambda: INeon(AID(1, 1, 0.1), 0.1, 0.1, 0.1, 0, 0.1), InvalidArgument),
    ("F_escape", lambda: INeon(AID(1, 1, 0.1), 0.1, 0.1, 0.1, 5, math.nan), InvalidArgument),
    ("step", lambda: INeon(AID(1, 1, 0.1), 0.1, 0.1, 0.1, 5, 0.1, step=0.0), InvalidArgument),
    ("rho_phi", lambda: INeon(AID(1, 1, 0.1), 0.1, 0.1, 0.1, 5, 0.1, rho_phi=-1.0), InvalidArgument),
    ("a batch", lambda: NEON.direction(saddle(), np.zeros((2, 3))), KernelError),
    ("x too short", lambda: NEON.direction(saddle(), [0.0]), KernelError),
    ("x NaN", lambda: NEON.direction(saddle(), [math.nan, 0.0, 0.0]), KernelError),
    ("rng", lambda: NEON.direction(saddle(), [0.0] * 3, rng="a"), InvalidArgument),  # type: ignore[arg-type]
    ("GDmax", lambda: INeon(GDmax(1, 0.1), 0.1, 0.1, 0.1, 5, 0.1).direction(saddle(), [0.0] * 3), InvalidArgument),
]  # fmt: skip


@pytest.mark.parametrize(("action", "error"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_makes_no_sense_is_refused(action: Callable[[], object], error: type[BilevelError]) -> None:
    with pytest.raises(error):
        action()
