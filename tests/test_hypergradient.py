"""Estimators of the hypergradient: each against its definition in other arithmetic, and against the exact one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import hypothesis.strategies as st
import mpmath
import numpy as np
import pytest
import sympy as sp
from helpers import FEW, Solved, logistic, solved_problems
from hypothesis import given

from bilevel_sym import (
    AID,
    ITD,
    BilevelProblem,
    Exact,
    GDmax,
    MinimaxProblem,
    Neumann,
    compile_kernels,
    softplus,
    zoo,
)
from bilevel_sym.errors import BilevelError, InvalidArgument, KernelError, LinearSystemFailure
from bilevel_sym.estimators.hypergradient import Estimator
from bilevel_sym.estimators.oracle import ExactOracle, in_lanes
from bilevel_sym.implicit.engine import Session
from bilevel_sym.typing import Floats

Q = sp.Rational
SHAPES = [(1, 1), (1, 3), (3, 1), (2, 3), (3, 2), (2, 2)]


# ---- problems -------------------------------------------------------------------------------------------------


def waves(d: int = 2, n: int = 3) -> BilevelProblem:
    """Analytic, not polynomial, g_xy dense and not symmetric, g_yy between 2 and 9 where |y| < 1."""
    x, y = sp.symbols(f"x1:{d + 1}", real=True), sp.symbols(f"y1:{n + 1}", real=True)
    g = sp.Add(*((3 + k) * yk**2 / 2 + sp.cos(yk) / 2 for k, yk in enumerate(y)))
    g += sp.Add(*(Q(i - j + 1, 4) * sp.sin(xi) * yj for i, xi in enumerate(x) for j, yj in enumerate(y)))
    g += softplus(sp.Add(*y) + x[0]) + sp.exp(x[-1]) * y[0] ** 2 / 3
    f = (
        sp.Add(*(sp.sin(yj + j) for j, yj in enumerate(y)))
        + sp.Add(*(xi**2 * y[0] for xi in x))
        + sp.tanh(x[0] * y[-1])
    )
    return BilevelProblem(f, g, x, y)


@lru_cache(None)
def problem(name: str) -> BilevelProblem:
    family, _, argument = name.partition(":")
    if family == "quadratic":
        d, n, spectrum = argument.split(",")
        return zoo.get("quadratic", d=int(d), n=int(n), spectrum=spectrum).problem
    made: dict[str, Callable[[], BilevelProblem]] = {
        "waves": waves,
        "narrow": lambda: waves(3, 1),
        "logistic": lambda: logistic(3, 8),
        "saddle": lambda: zoo.get("saddle", d=3).problem,
        "scalar": lambda: zoo.get("scalar").problem,
    }
    return made[family]()


PROBLEMS = [
    "quadratic:2,3,two", "quadratic:3,2,isotropic", "quadratic:1,1,1", "quadratic:1,4,3", "quadratic:4,1,2",
    "waves", "narrow", "logistic", "saddle", "scalar",
]  # fmt: skip


def steps_of(name: str) -> float:
    """A tau below 1/ell near the points that are used."""
    return {"logistic": 1 / 32, "waves": 1 / 12, "narrow": 1 / 12, "saddle": 1 / 4, "scalar": 1 / 2}.get(name, 1 / 4)


def points(name: str, *shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).uniform(-0.7, 0.7, (*shape, problem(name).d))


# ---- against the exact hypergradient ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_many_steps_are_exact(name: str) -> None:
    p, x, tau = problem(name), points(name, 5), steps_of(name)
    wanted = p.kernels.grad_phi(x)
    scale = 1 + np.abs(wanted).max()
    K = 2000 if name == "logistic" else 400
    many: list[Estimator] = [Exact(), AID(K, p.n, tau), AID(K, 3 * p.n + 2, tau), ITD(K, tau), Neumann(K, tau, K)]
    for estimator in many:
        found = estimator.estimate(p, x)
        np.testing.assert_allclose(found.grad_phi_hat, wanted, rtol=0, atol=2e-11 * scale, err_msg=str(estimator))
        np.testing.assert_allclose(found.phi_hat, p.kernels.phi(x), rtol=0, atol=1e-11 * scale)
        np.testing.assert_allclose(found.y_D, p.kernels.y_star(x), rtol=0, atol=1e-11)
    v = AID(K, p.n, tau).estimate(p, x).v_N
    k = p.kernels
    y = k.y_star(x)
    np.testing.assert_allclose(v, np.linalg.solve(k.g_yy(x, y), k.f_y(x, y)[..., None])[..., 0], rtol=0, atol=1e-10)


@FEW
@given(st.data())
def test_many_steps_are_exact_for_random_problems(data: st.DataObject) -> None:
    """Built so that y*(x) is known: a third route."""
    case: Solved = data.draw(solved_problems(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2)), cubic=False))
    x = np.array([[float(case.point[s]) for s in case.problem.x]])
    phi = case.phi
    wanted = [float(sp.diff(phi, s).subs(case.point)) for s in case.problem.x]
    y_star = np.array([[float(case.solution[s]) for s in case.problem.y]])
    found = AID(1, case.problem.n, 1 / 16).estimate(case.problem, x, y0=y_star).grad_phi_hat[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-8)


def test_one_step_each_is_exact_where_kappa_is_one() -> None:
    p = problem("quadratic:3,2,isotropic")  # g_yy = 2 I
    x = points("quadratic:3,2,isotropic", 4)
    np.testing.assert_allclose(AID(1, 1, 0.5).estimate(p, x).grad_phi_hat, p.kernels.grad_phi(x), rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        Neumann(0, 0.5, 1).estimate(p, x).grad_phi_hat, p.kernels.grad_phi(x), rtol=0, atol=1e-14
    )


# ---- each estimator against its own definition -------------------------------------------------------------------


def descended(p: BilevelProblem, x: Floats, y: Floats, D: int, tau: float) -> list[Floats]:
    path = [y]
    for _ in range(D):
        path.append(path[-1] - tau * compile_kernels(p, backend="lambdify").g_y(x, path[-1]))
    return path


def krylov(a: Floats, b: Floats, start: Floats, steps: int) -> Floats:
    """The best point of start + the Krylov space in the A-norm, in 60 digits."""
    with mpmath.workdps(60):
        matrix, v = mpmath.matrix(a.tolist()), mpmath.matrix(start.tolist())
        residual = mpmath.matrix(b.tolist()) - matrix * v
        basis = [residual]
        for _ in range(steps - 1):
            basis.append(matrix * basis[-1])
        k = mpmath.matrix([[vector[i] for vector in basis] for i in range(len(b))])
        weights = mpmath.lu_solve(k.T * matrix * k, k.T * residual)
        return np.array([float(e) for e in v + k * weights])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["waves", "narrow", "logistic", "saddle", "quadratic:2,3,two", "quadratic:1,4,3", "quadratic:4,1,2"]
)
@pytest.mark.parametrize(("D", "N"), [(1, 1), (3, 1), (4, 2)])
def test_aid_is_what_its_definition_says(name: str, D: int, N: int) -> None:
    p, tau, (x,) = problem(name), steps_of(name), points(name, 1)
    rng = np.random.default_rng(1)
    y0, v0 = rng.uniform(-0.5, 0.5, (2, p.n))
    found = AID(D, N, tau).estimate(p, x, y0=y0, v0=v0)
    k = compile_kernels(p, backend="lambdify")
    y = descended(p, x, y0, D, tau)[-1]
    v = krylov(k.g_yy(x, y), k.f_y(x, y), v0, min(N, 2 if name == "quadratic:2,3,two" else N, p.n))
    np.testing.assert_allclose(found.y_D, y, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(found.v_N, v, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.grad_phi_hat, k.f_x(x, y) - k.g_xy(x, y) @ v, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.phi_hat, k.f(x, y), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", ["waves", "narrow", "quadratic:2,3,two", "saddle", "scalar"])
@pytest.mark.parametrize("D", [1, 2, 7])
def test_itd_is_the_derivative_by_a_complex_step(name: str, D: int) -> None:
    """f(x + ih, y^D(x + ih)) carries the derivative in its imaginary part, without any subtraction."""
    p, tau, (x,) = problem(name), steps_of(name), points(name, 1)
    y0 = np.random.default_rng(1).uniform(-0.5, 0.5, p.n)
    f, *g_y = (
        sp.lambdify([*p.x, *p.y], e.rewrite(sp.exp) if e.has(softplus) else e, "numpy")
        for e in (p.f, *(sp.diff(plain(p.g), s) for s in p.y))
    )
    h, wanted = 1e-100, []
    for i in range(p.d):
        z = x.astype(complex)
        z[i] += 1j * h
        y = y0.astype(complex)
        for _ in range(D):
            y = y - tau * np.array([part(*z, *y) for part in g_y])
        wanted.append(complex(f(*z, *y)).imag / h)
    found = ITD(D, tau).estimate(p, x, y0=y0)
    np.testing.assert_allclose(found.grad_phi_hat, wanted, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found.y_D, descended(p, x, y0, D, tau)[-1], rtol=1e-13, atol=1e-15)


def plain(expression: sp.Expr) -> sp.Expr:
    """Softplus written out, for SymPy's own lambdify."""
    return expression.replace(softplus, lambda z: sp.log(1 + sp.exp(z)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["waves", "saddle"])
def test_itd_is_the_derivative_by_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    p, tau, D = problem(name), steps_of(name), 4
    f, g = (sp.lambdify([p.x, p.y], plain(e), modules=[jax.numpy, "numpy"]) for e in (p.f, p.g))
    y0 = jax.numpy.array(np.random.default_rng(1).uniform(-0.5, 0.5, p.n))

    def unrolled(x: Any) -> Any:
        y = y0
        for _ in range(D):
            y = y - tau * jax.grad(lambda s: g(x, s))(y)
        return f(x, y)

    x = points(name, 3)
    wanted = np.array([jax.grad(unrolled)(jax.numpy.array(row)) for row in x])
    found = ITD(D, tau).estimate(p, x, y0=np.tile(np.asarray(y0), (3, 1)))
    np.testing.assert_allclose(found.grad_phi_hat, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("D", [1, 2, 3])
def test_itd_is_the_symbolic_derivative(D: int) -> None:
    """Unrolled in SymPy with rational numbers, differentiated and evaluated exactly."""
    p, tau = problem("quadratic:2,3,two"), Q(1, 8)
    y: Sequence[sp.Expr] = [sp.Integer(k) for k in range(p.n)]
    for _ in range(D):
        here = dict(zip(p.y, y, strict=True))
        y = [sp.expand(yk - tau * sp.diff(p.g, s).subs(here, simultaneous=True)) for s, yk in zip(p.y, y, strict=True)]
    unrolled = p.f.subs(dict(zip(p.y, y, strict=True)), simultaneous=True)
    at = dict(zip(p.x, (Q(1, 2), Q(-3, 4)), strict=True))
    wanted = [float(sp.diff(unrolled, s).subs(at)) for s in p.x]
    found = ITD(D, float(tau)).estimate(p, [0.5, -0.75], y0=np.arange(float(p.n)))
    np.testing.assert_allclose(found.grad_phi_hat, wanted, rtol=1e-14)


@pytest.mark.parametrize("terms", [0, 1, 2, 5])
@pytest.mark.parametrize("name", ["waves", "narrow", "quadratic:1,4,3"])
def test_neumann_is_its_series(name: str, terms: int) -> None:
    p, tau, (x,) = problem(name), steps_of(name), points(name, 1)
    k = compile_kernels(p, backend="lambdify")
    y = descended(p, x, np.zeros(p.n), 3, tau)[-1]
    with mpmath.workdps(40):
        factor = mpmath.eye(p.n) - 0.1 * mpmath.matrix(k.g_yy(x, y).tolist())
        series = sum((factor**q * mpmath.matrix(k.f_y(x, y).tolist()) for q in range(terms + 1)), mpmath.zeros(p.n, 1))
        v = np.array([float(0.1 * e) for e in series])
    found = Neumann(terms, 0.1, 3, tau).estimate(p, x)
    np.testing.assert_allclose(found.v_N, v, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.grad_phi_hat, k.f_x(x, y) - k.g_xy(x, y) @ v, rtol=1e-12, atol=1e-14)


def test_neumann_takes_its_step_below_from_its_series_unless_given() -> None:
    assert Neumann(3, 0.25).tau == 0.25
    assert Neumann(3, 0.25, tau=0.125).tau == 0.125


def test_gdmax_is_f_x_after_ascent() -> None:
    x, y = sp.symbols("x1:4", real=True), sp.symbols("y1:3", real=True)
    f = sp.sin(x[0]) * y[0] + x[1] * x[2] * y[1] + sp.cos(x[2]) - y[0] ** 2 - y[1] ** 2 * (2 + sp.cos(y[0])) / 4
    p, point, y0 = MinimaxProblem(f, x, y), np.array([0.3, -0.4, 0.9]), np.array([0.2, -0.1])
    k = compile_kernels(p, backend="lambdify")
    path = descended(p, point, y0, 4, 0.25)
    found = GDmax(4, 0.25).estimate(p, point, y0=y0)
    np.testing.assert_allclose(found.y_D, path[-1], rtol=1e-13)
    np.testing.assert_allclose(found.grad_phi_hat, k.f_x(point, path[-1]), rtol=1e-13)
    ascended = y0 + 0.25 * k.f_y(point, y0)  # descent on g = -f is ascent on f
    np.testing.assert_allclose(path[1], ascended, rtol=1e-13)
    # Danskin: with many steps it is grad Phi, and AID agrees, for f_y = 0 at y*
    many = GDmax(500, 0.25).estimate(p, point).grad_phi_hat
    np.testing.assert_allclose(many, p.kernels.grad_phi(point), rtol=1e-11)
    np.testing.assert_allclose(AID(500, 2, 0.25).estimate(p, point).grad_phi_hat, many, rtol=1e-11)


def test_gdmax_refuses_what_is_no_minimax_problem() -> None:
    with pytest.raises(InvalidArgument, match="GDmax is for minimax problems"):
        GDmax(1, 0.1).estimate(problem("waves"), np.zeros(2))


# ---- counters ----------------------------------------------------------------------------------------------------


class _Spy(ExactOracle):
    """Counts the stages that were really performed."""

    def __init__(self, p: BilevelProblem) -> None:
        super().__init__(p.kernels)
        self.gradients, self.products = 0, 0

    def session(self, names: Sequence[str], lanes: slice) -> Session:
        inside, spy = super().session(names, lanes), self

        class Counted:
            def __getattr__(self, name: str) -> Any:
                return getattr(inside, name)

            def perform(self, stage: int) -> None:
                spy.gradients += stage == 0 and "g_y" in names
                spy.products += stage == 1 and "g_yy_v" in names
                inside.perform(stage)

        counted: Any = Counted()
        return counted  # type: ignore[no-any-return]


COSTS: list[tuple[Estimator, dict[str, int]]] = [
    (AID(5, 2, 0.05), {"G_f": 2, "G_g": 5, "JV_g": 1, "HV_g": 3}),
    (ITD(5, 0.05), {"G_f": 2, "G_g": 5, "JV_g": 5, "HV_g": 5}),
    (Neumann(4, 0.05, 3), {"G_f": 2, "G_g": 3, "JV_g": 1, "HV_g": 4}),
]


@pytest.mark.parametrize(("estimator", "costs"), COSTS)
def test_counters_are_what_was_asked_for(estimator: Estimator, costs: dict[str, int]) -> None:
    p = problem("waves")
    counters = estimator.estimate(p, np.full((2, 2), 0.25)).counters
    assert {name: getattr(counters, name).tolist() for name in costs} == {name: [c, c] for name, c in costs.items()}
    one = estimator.estimate(p, [0.25, 0.5]).counters
    assert {name: int(getattr(one, name)) for name in costs} == costs
    spy = _Spy(p)
    estimator.in_lanes(spy, *(in_lanes(np.full((1, k), 0.25)) for k in (p.d, p.n, p.n)))
    assert spy.products == costs["HV_g"]
    if not isinstance(estimator, ITD):  # which goes back along its path
        assert spy.gradients == costs["G_g"]


def test_counters_of_gdmax_and_exact() -> None:
    p = MinimaxProblem("x*y - y**2/2", "x", "y")
    counters = GDmax(7, 0.5).estimate(p, [[1.0], [2.0]]).counters
    assert (counters.G_f.tolist(), counters.G_g.tolist(), counters.HV_g.tolist()) == ([8, 8], [0, 0], [0, 0])
    exact = Exact().estimate(problem("waves"), np.full((2, 2), 0.25)).counters
    assert exact.G_f.tolist() == [2, 2]
    assert exact.JV_g.tolist() == [3, 3]
    assert (exact.HV_g == 3 * (exact.G_g + 1)).all()


# ---- shapes and starts ---------------------------------------------------------------------------------------------

EVERY: list[Estimator] = [AID(3, 2, 0.05), ITD(3, 0.05), Neumann(3, 0.05, 3), Exact()]


@pytest.mark.parametrize("estimator", EVERY)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,), (2, 0), (17,), (1, 1, 1)])
def test_batches_of_every_shape_are_rows_on_their_own(estimator: Estimator, shape: tuple[int, ...]) -> None:
    p, x = problem("waves"), points("waves", *shape)
    y0 = np.random.default_rng(2).uniform(-0.3, 0.3, (*shape, p.n))
    found = estimator.estimate(p, x, y0=y0, v0=-y0)
    assert [a.shape for a in (found.grad_phi_hat, found.phi_hat, found.y_D, found.v_N)] == [
        (*shape, 2),
        shape,
        (*shape, 3),
        (*shape, 3),
    ]
    for index in np.ndindex(*shape):
        alone = estimator.estimate(p, x[index], y0=y0[index], v0=-y0[index])
        for name in ("grad_phi_hat", "phi_hat", "y_D", "v_N"):
            assert np.array_equal(getattr(found, name)[index], getattr(alone, name)), name


@pytest.mark.parametrize("backend_size", [1, 15, 16, 17, 1025])
def test_a_point_has_the_same_bits_in_a_batch_of_any_size(backend_size: int) -> None:
    p = problem("logistic")
    x = points("logistic", backend_size)
    all_of_them = AID(3, 2, 1 / 32).estimate(p, x).grad_phi_hat
    assert np.array_equal(all_of_them[-1], AID(3, 2, 1 / 32).estimate(p, x[-1]).grad_phi_hat)


def test_warm_starts_are_used() -> None:
    p, x = problem("waves"), points("waves", 4)
    k = p.kernels
    y = k.y_star(x)
    v = np.linalg.solve(k.g_yy(x, y), k.f_y(x, y)[..., None])[..., 0]
    cold, warm = AID(1, 1, 1 / 12).estimate(p, x), AID(1, 1, 1 / 12).estimate(p, x, y0=y, v0=v)
    wanted = k.grad_phi(x)
    np.testing.assert_allclose(warm.grad_phi_hat, wanted, rtol=0, atol=1e-13)
    assert (np.abs(cold.grad_phi_hat - wanted).max(axis=1) > 1e-3).all()
    only_y, only_v = AID(1, 1, 1 / 12).estimate(p, x, y0=y), AID(1, 1, 1 / 12).estimate(p, x, v0=v)
    np.testing.assert_allclose(only_y.y_D, y, rtol=0, atol=1e-13)
    assert np.array_equal(only_v.y_D, cold.y_D)
    assert not np.array_equal(only_v.v_N, cold.v_N)
    assert not np.array_equal(only_y.v_N, warm.v_N)


def test_what_was_given_is_left_alone() -> None:
    p, x = problem("narrow"), points("narrow", 2)
    y0, v0 = np.full((2, 1), 0.25), np.full((2, 1), 0.5)
    for estimator in EVERY:
        found = estimator.estimate(p, x, y0=y0, v0=v0)
        found.y_D[:], found.v_N[:], found.grad_phi_hat[:] = 9.0, 9.0, 9.0
    assert (y0 == 0.25).all()
    assert (v0 == 0.5).all()
    assert (x == points("narrow", 2)).all()


# ---- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("f", ["x*y", "y"])
def test_a_lower_level_that_is_not_convex_is_a_typed_failure(f: str) -> None:
    concave = BilevelProblem(f, "-y**2/2 - x*y", "x", "y")
    with pytest.raises(LinearSystemFailure, match="not positive definite"):
        AID(1, 1, 0.1).estimate(concave, [1.0])
    with pytest.raises(LinearSystemFailure, match="could not be solved"):
        Exact().estimate(concave, [1.0])


def test_a_failure_names_the_member() -> None:
    sign = BilevelProblem("y", "x*y**2/2 - y", "x", "y")
    with pytest.raises(LinearSystemFailure, match=r"member \(1, 0\) of the batch, at x = \[-1.0\]"):
        AID(1, 1, 0.1).estimate(sign, [[[1.0], [2.0]], [[-1.0], [3.0]]])


@pytest.mark.parametrize("estimator", [AID(3, 1, 0.1), ITD(3, 0.1), Neumann(2, 0.1, 3), Exact()])
def test_a_point_outside_the_domain_is_a_typed_failure(estimator: Estimator) -> None:
    logarithm = BilevelProblem("log(x)*y", "y**2/2 - x*y", "x", "y")
    with pytest.raises(LinearSystemFailure):
        estimator.estimate(logarithm, [-1.0])


@pytest.mark.parametrize("estimator", [AID(60, 1, 1e9), ITD(60, 1e9), Neumann(60, 1e9), AID(3, 1, 1e300)])
def test_a_step_that_is_far_too_long_is_a_typed_failure(estimator: Estimator) -> None:
    """Without a single warning: pytest turns them into errors."""
    with pytest.raises(LinearSystemFailure, match=r"diverged|not a number"):
        estimator.estimate(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), [1.0])


REFUSED: list[tuple[str, Callable[[], object], type[BilevelError]]] = [
    ("D = 0", lambda: AID(0, 1, 0.1), InvalidArgument),
    ("D is a float", lambda: AID(1.0, 1, 0.1), InvalidArgument),  # type: ignore[arg-type]
    ("D is True", lambda: ITD(True, 0.1), InvalidArgument),
    ("N = 0", lambda: AID(1, 0, 0.1), InvalidArgument),
    ("tau = 0", lambda: ITD(1, 0.0), InvalidArgument),
    ("tau < 0", lambda: GDmax(1, -0.1), InvalidArgument),
    ("tau is NaN", lambda: AID(1, 1, float("nan")), InvalidArgument),
    ("tau is infinite", lambda: AID(1, 1, float("inf")), InvalidArgument),
    ("tau is text", lambda: AID(1, 1, "0.1"), InvalidArgument),  # type: ignore[arg-type]
    ("tau is complex", lambda: AID(1, 1, 1j), InvalidArgument),  # type: ignore[arg-type]
    ("Q < 0", lambda: Neumann(-1, 0.1), InvalidArgument),
    ("eta_neumann = 0", lambda: Neumann(1, 0.0), InvalidArgument),
    ("x is too short", lambda: AID(1, 1, 0.1).estimate(problem("waves"), [1.0]), KernelError),
    ("x is a number", lambda: AID(1, 1, 0.1).estimate(problem("waves"), 1.0), KernelError),
    ("x is NaN", lambda: AID(1, 1, 0.1).estimate(problem("waves"), [np.nan, 0.0]), KernelError),
    ("x is complex", lambda: AID(1, 1, 0.1).estimate(problem("waves"), [1j, 0.0]), KernelError),
    ("y0 has another batch shape", lambda: AID(1, 1, 0.1).estimate(problem("waves"), [[0.0, 0.0]], y0=[0.0] * 3), KernelError),
    ("v0 is too long", lambda: AID(1, 1, 0.1).estimate(problem("waves"), [0.0, 0.0], v0=[0.0] * 4), KernelError),
    ("v0 is infinite", lambda: AID(1, 1, 0.1).estimate(problem("waves"), [0.0, 0.0], v0=[np.inf] * 3), KernelError),
]  # fmt: skip


@pytest.mark.parametrize(("action", "error"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_makes_no_sense_is_refused(action: Callable[[], object], error: type[BilevelError]) -> None:
    with pytest.raises(error):
        action()


def test_a_step_beyond_float64_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        AID(1, 1, 10**400)


@pytest.mark.parametrize("tau", [sp.Rational(1, 2), np.float32(0.5), np.float64(0.5), 0.5])
def test_a_step_may_be_a_number_of_any_kind(tau: Any) -> None:
    p = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    wanted = AID(2, 1, 0.5).estimate(p, [1.0]).grad_phi_hat
    found = AID(2, 1, tau).estimate(p, [1.0]).grad_phi_hat
    assert found.dtype == np.float64
    assert np.array_equal(found, wanted)
