"""Kernels: every backend against many digits, balls and JAX; shapes, refusals, counting, caching; the pitfalls of lambdify."""

from __future__ import annotations

import importlib
import importlib.util
import io
import math
import pickle
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy as sp
from helpers import FEW, logistic, solved_problems
from hypothesis import given
from hypothesis import strategies as st
from test_lower_level import points_in_box

from bilevel_sym import BilevelProblem, MinimaxProblem, compile_kernels, evaluate, sigmoid, softplus, zoo
from bilevel_sym.arithmetic.scalars import DIGITS, ScalarProgram
from bilevel_sym.errors import InvalidArgument, InvalidProblem, KernelError
from bilevel_sym.implicit.model import Model
from bilevel_sym.kernels import Kernels
from bilevel_sym.kernels import kernels as kernels_module
from bilevel_sym.kernels.choice import Backend
from bilevel_sym.symbolic.blocks import derivative
from bilevel_sym.typing import Floats

Q = sp.Rational
BACKENDS: list[Backend] = ["tape", "compiled", "lambdify"]
x, y = sp.symbols("x y", real=True)

POINT_BLOCKS = ("f", "g", "f_x", "f_y", "g_y", "f_xx", "f_xy", "f_yy", "g_xy", "g_yy")
PRODUCTS = ("g_yy_v", "g_xy_v")
UPPER = ("y_star", "v_star", "dy_dx", "phi", "grad_phi", "hess_phi", "third_phi")


def compiled(problem: BilevelProblem, backend: Backend) -> Kernels:
    """The kernels; a test of the compiled backend is skipped, visibly, where numba is absent."""
    if backend == "compiled":
        pytest.importorskip("numba")
    return compile_kernels(problem, backend=backend)


def relative_error(got: Any, truth: Any) -> float:
    """Relative to the largest entry; NaN is infinitely wrong."""
    got, truth = np.asarray(got), np.asarray(truth)
    assert got.shape == truth.shape
    scale = max(float(np.abs(truth).max(initial=0.0)), 1e-300)
    worst = float(np.abs(got - truth).max(initial=0.0)) / scale
    return math.inf if math.isnan(worst) else worst


def is_close(got: Any, truth: Any, tolerance: float = 1e-12) -> bool:
    return relative_error(got, truth) <= tolerance


def assert_close(got: Any, truth: Any, tolerance: float = 1e-12) -> None:
    assert is_close(got, truth, tolerance), f"off by {relative_error(got, truth):.2e}: {got} against {truth}"


# ---- problems --------------------------------------------------------------------------------------------

PROBLEMS: dict[str, BilevelProblem] = {
    "d = 1, n = 1": BilevelProblem("x*sin(y)", "cosh(y) + y**2/2 - x*y", "x", "y"),
    "d = 1, n = 3": BilevelProblem(
        "x*y1*y2 + exp(y3)", "y1**2 + y2**2 + y3**2 + y1*y2/2 + softplus(x*y3) - x*y1 + y2**4/12", "x", "y1 y2 y3"
    ),
    "d = 3, n = 1": BilevelProblem("x1*y + sin(x2*y)*x3", "(2 + sin(x1))*y**2 + y**4 - x2*x3*y", "x1 x2 x3", "y"),
    "d = 2, n = 2": BilevelProblem(
        "y1*y2 + x1*y1**2 + x2**3", "y1**2 + y2**2 + tanh(y1*x2)/3 + x1*y1*y2/4 - x1*y1 + atan(x2)*y2", "x1 x2", "y1 y2"
    ),
    "isotropic g_yy": BilevelProblem("y1**2*x2 + y2*x1", "y1**2 + y2**2 - x1*x2*y1 - sin(x1)*y2", "x1 x2", "y1 y2"),
    "constant entries": BilevelProblem("3*x1 + y1 + 2*y2", "2*y1**2 + y2**2 - x1*y1 - x2*y2", "x1 x2", "y1 y2"),
    "f without y": BilevelProblem("x1**2*x2", "y**2/2 - x1*y", "x1 x2", "y"),
    "kinks": BilevelProblem(
        "abs(x1 - y) + max(x1, 2*y)*y", "y**2 + Piecewise((y**3/9, y > 0), (y**4/2, True)) - min(x1, x2)*y", "x1 x2", "y"
    ),
    "minimax": MinimaxProblem("x1*y1 - y1**2 - y2**2*(2 + cos(x2)) + x1*x2*y2", "x1 x2", "y1 y2"),
    "powers": BilevelProblem("(2 + x**2 + y**2)**(2/3)", "(1 + y**2)**(3/2) + sqrt(3 + y**2 + x**2) - x*y", "x", "y"),
}  # fmt: skip


def points(problem: BilevelProblem, *shape: int, seed: int = 1) -> Floats:
    """Binary fractions, of which no two coordinates are equal: that would be a kink of min and max."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.integers(-9, 10, (*shape, problem.d)) / 8 + (1 + np.arange(problem.d)) / 64)


# ---- against many digits ---------------------------------------------------------------------------------


def many_digits(problem: BilevelProblem, point: Sequence[float], start: Sequence[float]) -> dict[str, Any]:
    """y*, Phi, grad and Hess Phi at fifty digits: the implicit formulas written out once more, in mpmath's matrices."""
    d, n = problem.d, problem.n
    program = problem.tape.program(("g_y", "g_yy", "f", "f_x", "f_y", "g_xy", "L_xx", "L_xy", "L_yy"))
    with DIGITS.precision(240):
        ready = ScalarProgram(program, DIGITS)
        values = ready.start()

        def block(name: str, rows: int, columns: int) -> Any:
            entries = ready.output(values, name)
            return mpmath.matrix([entries[i * columns : (i + 1) * columns] for i in range(rows)])

        where = [mpmath.mpf(float(value)) for value in start]
        for _ in range(4):
            values[1 : 1 + d + n] = [*(mpmath.mpf(float(value)) for value in point), *where]
            ready.run(values, 0)
            step = mpmath.lu_solve(block("g_yy", n, n), block("g_y", n, 1))
            where = [a - b for a, b in zip(where, step, strict=True)]
        values[1 : 1 + d + n] = [*(mpmath.mpf(float(value)) for value in point), *where]
        ready.run(values, 0)
        g_yy, g_xy = block("g_yy", n, n), block("g_xy", d, n)
        v = mpmath.lu_solve(g_yy, block("f_y", n, 1))
        slope = -(g_xy * mpmath.inverse(g_yy))
        values[1 + d + n : 1 + d + 2 * n] = list(v)
        ready.run(values, 1)
        cross = block("L_xy", d, n) * slope.T
        hess = block("L_xx", d, d) + cross + cross.T + slope * block("L_yy", n, n) * slope.T
        return {
            "y_star": [float(value) for value in where],
            "v_star": [float(value) for value in v],
            "dy_dx": [[float(slope[i, k]) for k in range(n)] for i in range(d)],
            "phi": float(ready.output(values, "f")[0]),
            "grad_phi": [float(value) for value in block("f_x", d, 1) - g_xy * v],
            "hess_phi": [[float(hess[i, j]) for j in range(d)] for i in range(d)],
        }


def check_against_digits_and_balls(problem: BilevelProblem, rows: Floats, backend: Backend) -> None:
    kernels = compiled(problem, backend)
    got = {name: getattr(kernels, name)(rows) for name in UPPER if name != "third_phi"}
    for k, point in enumerate(rows):
        truth = many_digits(problem, point.tolist(), got["y_star"][k].tolist())
        certificate = evaluate(problem, point.tolist(), digits=25)
        for name, values in got.items():
            if name in ("v_star", "dy_dx"):  # no certificate holds them; v is zero in a minimax problem
                np.testing.assert_allclose(values[k], truth[name], rtol=1e-12, atol=1e-14)
                continue
            assert_close(values[k], truth[name])
            balls = np.vectorize(float)(np.array(getattr(certificate, name), dtype=object))
            assert_close(values[k], balls)


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize(
    "backend", [b if b != "lambdify" else pytest.param(b, marks=pytest.mark.slow) for b in BACKENDS]
)
@pytest.mark.parametrize("name", zoo.names())
def test_zoo_problems_against_fifty_digits_and_balls(name: str, backend: Backend) -> None:
    problem = zoo.get(name).problem
    check_against_digits_and_balls(problem, points_in_box(problem, 2, seed=7), backend)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_of_every_shape_against_fifty_digits_and_balls(name: str, backend: Backend) -> None:
    check_against_digits_and_balls(PROBLEMS[name], points(PROBLEMS[name], 3), backend)


@pytest.mark.slow
@given(st.data(), st.integers(1, 3), st.integers(1, 3))
@FEW
def test_random_problems_with_a_known_solution(data: st.DataObject, d: int, n: int) -> None:
    """y* is known by construction; Phi and its derivatives are exact rationals by SymPy."""
    solved = data.draw(solved_problems(d, n))
    at = [float(value) for value in solved.point.values()]
    exact = {s: Q(value) for s, value in zip(solved.problem.x, at, strict=True)}
    xs = solved.problem.x
    truth_y = np.array([float(entry.subs(exact)) for entry in solved.y_star])
    grad = [sp.diff(solved.phi, s) for s in xs]
    expected = {
        "phi": float(solved.phi.subs(exact)),
        "grad_phi": [float(entry.subs(exact)) for entry in grad],
        "hess_phi": [[float(sp.diff(entry, s).subs(exact)) for s in xs] for entry in grad],
        "third_phi": [[[float(sp.diff(entry, s, t).subs(exact)) for t in xs] for s in xs] for entry in grad],
    }
    start = truth_y + 2.0**-30  # next to the root that was built in: the problem may have others
    for backend in ("tape", "lambdify"):
        kernels = compile_kernels(solved.problem, backend=backend)
        assert_close(1 + np.abs(kernels.y_star(at, y0=start) - truth_y), np.ones(n))
        size = 1 + max(float(np.abs(np.asarray(values)).max()) for values in expected.values())
        for name, values in expected.items():
            difference = np.abs(getattr(kernels, name)(at, y0=start) - np.asarray(values)).max()
            assert difference <= 1e-9 * size, (backend, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_backends_agree_on_every_block(name: str) -> None:
    problem = PROBLEMS[name]
    rng = np.random.default_rng(3)
    xs, ys, vs = points(problem, 5), *(rng.integers(-9, 10, (5, problem.n)) / 8 + 1 / 64 for _ in range(2))
    reference = compile_kernels(problem, backend="lambdify")
    for backend in ("tape", "compiled"):
        kernels = compiled(problem, backend)
        for block in POINT_BLOCKS:
            assert_close(getattr(kernels, block)(xs, ys), getattr(reference, block)(xs, ys))
        for block in PRODUCTS:
            assert_close(getattr(kernels, block)(xs, ys, vs), getattr(reference, block)(xs, ys, vs))
            matrices = getattr(kernels, block[:-2])(xs, ys)
            assert_close(getattr(kernels, block)(xs, ys, vs), (matrices @ vs[:, :, None])[:, :, 0])
        assert_close(kernels.third_phi(xs), reference.third_phi(xs), 1e-11)


# ---- third derivatives -----------------------------------------------------------------------------------

CLOSED = ["scalar", "saddle", "quadratic", "implicit_cubic", "minimax_not_nash", "robust_regression", "tube,d=3"]


@lru_cache(None)
def closed_form_values(xs: tuple[sp.Symbol, ...], phi: sp.Expr, point: tuple[float, ...]) -> dict[str, Floats]:
    """Phi and its three derivatives, differentiated by SymPy, in forty digits."""
    grad = [derivative(phi, s) for s in xs]
    hess = [derivative(entry, s) for entry in grad for s in xs]
    third = [derivative(entry, s) for entry in hess for s in xs]
    orders = {"phi": [phi], "grad_phi": grad, "hess_phi": hess, "third_phi": third}
    function = sp.lambdify(list(xs), list(orders.values()), "mpmath", cse=True)
    with mpmath.workdps(40):
        values = function(*(mpmath.mpf(value) for value in point))
        return {name: np.array([float(v) for v in entries]) for name, entries in zip(orders, values, strict=True)}


def closed_form_agrees(problem: BilevelProblem, phi: sp.Expr, point: Sequence[float], backend: Backend) -> set[str]:
    """Which of Phi and its three derivatives are those of the closed form."""
    truth = closed_form_values(problem.x, phi, tuple(point))
    kernels = compiled(problem, backend)
    return {name for name, entries in truth.items() if is_close(getattr(kernels, name)(point).ravel(), entries, 1e-11)}


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize(
    ("name", "backend"), [(name, backend) for name in CLOSED for backend in BACKENDS if (name, backend) != ("tube,d=3", "lambdify")]
)  # fmt: skip
def test_closed_forms_and_their_three_derivatives(name: str, backend: Backend) -> None:
    example = zoo.parse(name)
    assert example.phi is not None
    (point,) = points_in_box(example.problem, 1, seed=5)
    agreeing = closed_form_agrees(example.problem, example.phi, point.tolist(), backend)
    assert agreeing == {"phi", "grad_phi", "hess_phi", "third_phi"}


def test_third_derivatives_against_differences_of_certified_hessians() -> None:
    problem = PROBLEMS["d = 2, n = 2"]
    point = [Q(1, 4), Q(-3, 8)]
    third = problem.kernels.third_phi([float(q) for q in point])
    h = Q(1, 2**40)
    for k in range(2):
        shifted = [[q + sign * h * int(i == k) for i, q in enumerate(point)] for sign in (1, -1)]
        up, down = (evaluate(problem, at, digits=50).hess_phi for at in shifted)
        with mpmath.workdps(60):
            slopes = [[float((up[i][j].mid - down[i][j].mid) * 2**39) for j in range(2)] for i in range(2)]
        assert_close(third[:, :, k], slopes, 1e-12)


def test_third_derivatives_are_symmetric_to_the_last_bit() -> None:
    problem = BilevelProblem(
        "exp(x1*y/3) + sin(x2*x3 + y)", "cosh(y)/2 + y**2 + y*(x1 + x2**2/3 + x3/7)", "x1 x2 x3", "y"
    )
    third = problem.kernels.third_phi(np.random.default_rng(0).normal(size=(20, 3)))
    for axes in ((0, 2, 1, 3), (0, 3, 2, 1), (0, 1, 3, 2)):
        assert (third == third.transpose(axes)).all()


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_symmetric_to_the_last_bit(name: str, backend: Backend) -> None:
    kernels = compiled(PROBLEMS[name], backend)
    for lanes in (1, 5, 40):
        xs = points(PROBLEMS[name], lanes)
        hess, third = kernels.hess_phi(xs), kernels.third_phi(xs)
        assert (hess == hess.swapaxes(1, 2)).all()
        for axes in ((0, 2, 1, 3), (0, 3, 2, 1), (0, 1, 3, 2), (0, 2, 3, 1)):
            assert (third == third.transpose(axes)).all()


# ---- JAX -------------------------------------------------------------------------------------------------


@pytest.fixture
def jax() -> Any:
    module = pytest.importorskip("jax")
    module.config.update("jax_enable_x64", True)
    return module


Pair = tuple[BilevelProblem, Callable[[Any, Any, Any], Any], Callable[[Any, Any, Any], Any]]
JAX_PROBLEMS: dict[str, Pair] = {  # the problem; and f, g written by hand in numpy's language (m is the module)
    "d = n = 2": (
        PROBLEMS["d = 2, n = 2"],
        lambda m, p, q: q[0] * q[1] + p[0] * q[0] ** 2 + p[1] ** 3,
        lambda m, p, q: (
            (q @ q) + m.tanh(q[0] * p[1]) / 3 + p[0] * q[0] * q[1] / 4 - p[0] * q[0] + m.arctan(p[1]) * q[1]
        ),
    ),
    "d = 3, n = 1": (
        PROBLEMS["d = 3, n = 1"],
        lambda m, p, q: p[0] * q[0] + m.sin(p[1] * q[0]) * p[2],
        lambda m, p, q: (2 + m.sin(p[0])) * q[0] ** 2 + q[0] ** 4 - p[1] * p[2] * q[0],
    ),
    "d = 1, n = 3": (
        PROBLEMS["d = 1, n = 3"],
        lambda m, p, q: p[0] * q[0] * q[1] + m.exp(q[2]),
        lambda m, p, q: q @ q + q[0] * q[1] / 2 + m.logaddexp(0.0, p[0] * q[2]) - p[0] * q[0] + q[1] ** 4 / 12,
    ),
    "isotropic g_yy": (
        PROBLEMS["isotropic g_yy"],
        lambda m, p, q: q[0] ** 2 * p[1] + q[1] * p[0],
        lambda m, p, q: q @ q - p[0] * p[1] * q[0] - m.sin(p[0]) * q[1],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", JAX_PROBLEMS)
def test_blocks_against_jax(jax: Any, name: str) -> None:
    problem, f, g = JAX_PROBLEMS[name]
    m = jax.numpy
    rng = np.random.default_rng(2)
    p, q = points(problem, 1)[0], rng.integers(-9, 10, problem.n) / 8
    where = m.array(p), m.array(q)
    blocks: dict[str, Any] = {}
    for letter, function in (("f", f), ("g", g)):
        bound = jax.tree_util.Partial(function, m)
        (xx, xy), (_, yy) = jax.jit(jax.hessian(bound, (0, 1)))(*where)
        first = jax.jit(jax.grad(bound, (0, 1)))(*where)
        blocks |= {
            f"{letter}_x": first[0],
            f"{letter}_y": first[1],
            f"{letter}_xx": xx,
            f"{letter}_xy": xy,
            f"{letter}_yy": yy,
        }
    for backend in BACKENDS:
        kernels = compiled(problem, backend)
        for block in POINT_BLOCKS[2:]:
            assert_close(getattr(kernels, block)(p, q), blocks[block])


@pytest.mark.slow
@pytest.mark.in_ci(name=["isotropic g_yy"])
@pytest.mark.parametrize("name", ["d = n = 2", "isotropic g_yy"])
def test_phi_against_jax_through_unrolled_newton_steps(jax: Any, name: str) -> None:
    """k Newton steps from the root carry derivatives up to order 2^k - 1: automatic differentiation does the rest."""
    problem, f, g = JAX_PROBLEMS[name]
    m = jax.numpy
    lower = jax.tree_util.Partial(g, m)

    def phi(p: Any, q: Any) -> Any:
        for _ in range(2):
            (a, b), (c, e) = jax.hessian(lower, 1)(p, q)
            r = jax.grad(lower, 1)(p, q)
            q = q - m.array([e * r[0] - b * r[1], a * r[1] - c * r[0]]) / (a * e - b * c)
        return f(m, p, q)

    gradient, hessian = (jax.jit(jax.grad(phi)), jax.jit(jax.hessian(phi)))
    for backend in BACKENDS:
        kernels = compiled(problem, backend)
        for point in points(problem, 2):
            where = m.array(point), m.array(kernels.y_star(point))
            assert_close(kernels.phi(point), phi(*where))
            assert_close(kernels.grad_phi(point), gradient(*where))
            assert_close(kernels.hess_phi(point), hessian(*where))


# ---- shapes and types ------------------------------------------------------------------------------------

SHAPES = [(), (1,), (4, 3), (70,), (2, 1, 2)]
EMPTY = [(0,), (0, 3), (3, 0)]
EXPECTED: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "f": lambda d, n: (), "g": lambda d, n: (), "f_x": lambda d, n: (d,), "f_y": lambda d, n: (n,),
    "g_y": lambda d, n: (n,), "f_xx": lambda d, n: (d, d), "f_xy": lambda d, n: (d, n), "f_yy": lambda d, n: (n, n),
    "g_xy": lambda d, n: (d, n), "g_yy": lambda d, n: (n, n), "g_yy_v": lambda d, n: (n,), "g_xy_v": lambda d, n: (d,),
    "y_star": lambda d, n: (n,), "v_star": lambda d, n: (n,), "dy_dx": lambda d, n: (d, n), "phi": lambda d, n: (), "grad_phi": lambda d, n: (d,), "hess_phi": lambda d, n: (d, d),
    "third_phi": lambda d, n: (d, d, d),
}  # fmt: skip


def call(kernels: Kernels, name: str, shape: tuple[int, ...], seed: int = 0) -> Floats:
    problem = kernels.problem
    rng = np.random.default_rng(seed)
    arguments = [points(problem, *shape)]
    if name not in UPPER:
        arguments.append(rng.integers(-4, 5, (*shape, problem.n)) / 4.0)
    if name in PRODUCTS:
        arguments.append(rng.integers(-4, 5, (*shape, problem.n)) / 4.0)
    result: Floats = getattr(kernels, name)(*arguments)
    return result


def check_shape(kernels: Kernels, member: str, shape: tuple[int, ...]) -> None:
    result = call(kernels, member, shape)
    assert isinstance(result, np.ndarray), member
    assert result.shape == (*shape, *EXPECTED[member](kernels.problem.d, kernels.problem.n)), member
    assert result.dtype == np.float64
    assert result.flags.c_contiguous
    assert np.isfinite(result).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["d = 1, n = 3", "constant entries", "f without y", "d = 3, n = 1"])
def test_every_batch_shape_is_kept(name: str, backend: Backend) -> None:
    kernels = compiled(PROBLEMS[name], backend)
    for member in EXPECTED:
        for shape in SHAPES:
            check_shape(kernels, member, shape)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("member", EXPECTED)
def test_an_empty_batch_stays_empty(member: str, backend: Backend) -> None:
    for name in ("d = 1, n = 3", "constant entries"):
        for shape in EMPTY:
            check_shape(compiled(PROBLEMS[name], backend), member, shape)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_members_of_a_batch_do_not_see_each_other(backend: Backend) -> None:
    problem = PROBLEMS["d = 2, n = 2"]
    kernels = compiled(problem, backend)
    xs = points(problem, 4, 3)
    for name in UPPER:
        together = getattr(kernels, name)(xs)
        for index in np.ndindex(4, 3):
            assert_close(getattr(kernels, name)(xs[index]), together[index], 1e-13)


def test_results_are_not_overwritten_by_later_calls() -> None:
    kernels = PROBLEMS["d = 2, n = 2"].kernels
    xs = points(kernels.problem, 3)
    for name in ("grad_phi", "hess_phi", "third_phi", "y_star"):
        first = getattr(kernels, name)(xs)
        kept = first.copy()
        getattr(kernels, name)(xs + 1)
        assert (first == kept).all()
    first = kernels.g_yy(xs, xs)
    kept = first.copy()
    kernels.g_yy(xs + 1, xs)
    assert (first == kept).all()


def test_non_contiguous_readonly_and_list_input() -> None:
    kernels = PROBLEMS["d = 2, n = 2"].kernels
    xs = points(kernels.problem, 6)
    expected = kernels.grad_phi(xs[::2])
    readonly = xs[::2].copy()
    readonly.flags.writeable = False
    for same in (xs[::2], np.asfortranarray(xs[::2]), readonly, xs[::2].tolist(), tuple(map(tuple, xs[::2]))):
        assert (kernels.grad_phi(same) == expected).all()


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_integers_are_converted(dtype: Any) -> None:
    kernels = PROBLEMS["d = 1, n = 1"].kernels
    assert (kernels.phi(np.array([[1], [2]], dtype=dtype)) == kernels.phi([[1.0], [2.0]])).all()
    assert kernels.f([1], [2]).dtype == np.float64


REFUSED: list[tuple[Any, str]] = [
    (np.ones(2, dtype=np.float32), r"float32.*float64"),
    (np.ones(2, dtype=np.float16), r"float16.*float64"),
    (np.ones(2, dtype=np.longdouble), r"longdouble|float128"),
    (np.ones(2, dtype=complex), r"complex128.*float64"),
    (np.array([1.0, None]), r"object.*float64"),
    (np.array([Q(1), Q(2)]), r"object.*float64"),
    ([10**30, 1], r"object.*float64"),
    (["1.0", "2.0"], r"<U3.*float64"),
    (np.array([True, False]), r"bool.*float64"),
    ([[1.0, 2.0], [1.0]], "rows differ"),
    ([1.0, 2.0, 3.0], r"\(3,\).*\(\.\.\., 2\)"),
    ([1.0], r"\(1,\).*\(\.\.\., 2\)"),
    (1.0, r"\(\).*\(\.\.\., 2\)"),
    (np.ones((2, 3)), r"\(2, 3\).*\(\.\.\., 2\)"),
    ([], r"\(0,\).*\(\.\.\., 2\)"),
    ([np.nan, 1.0], r"nan at index \[0\]"),
    ([1.0, -np.inf], r"-inf at index \[1\]"),
    ("x", "float64"),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
def test_wrong_arrays_are_refused_with_what_was_expected(wrong: Any, message: str) -> None:
    kernels = PROBLEMS["d = 2, n = 2"].kernels
    good = [1.0, 2.0]
    for attempt in (
        lambda: kernels.grad_phi(wrong), lambda: kernels.f(wrong, good), lambda: kernels.f(good, wrong),
        lambda: kernels.g_yy_v(good, good, wrong), lambda: kernels.y_star(good, y0=wrong),
        lambda: kernels.expansion(good, wrong),
    ):  # fmt: skip
        with pytest.raises(KernelError, match=message):
            attempt()


@pytest.mark.parametrize(
    ("one", "other"),
    [((2,), (3,)), ((), (1,)), ((1,), ()), ((4, 3), (3,)), ((2, 1), (1, 2)), ((1,), (5,)), ((0,), (1,))],
)
def test_batch_shapes_that_differ_are_never_broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    kernels = PROBLEMS["d = 1, n = 1"].kernels
    a, b = np.ones((*one, 1)), np.ones((*other, 1))
    for attempt in (
        lambda: kernels.f(a, b), lambda: kernels.g_xy_v(a, a, b), lambda: kernels.y_star(a, y0=b), lambda: kernels.expansion(a, b)
    ):  # fmt: skip
        with pytest.raises(KernelError, match="batch shapes must agree"):
            attempt()


def test_a_result_that_is_not_finite_is_an_error_and_a_block_is_ieee() -> None:
    kernels = BilevelProblem("exp(x*y)", "y**2/2 - x*y", "x", "y").kernels
    assert kernels.f([30.0], [30.0]) == np.inf
    for name in ("phi", "grad_phi", "hess_phi"):
        with pytest.raises(KernelError, match="not finite for member 1, 0"):
            getattr(kernels, name)([[[1.0]], [[30.0]]], y0=[[[1.0]], [[30.0]]])


# ---- backends --------------------------------------------------------------------------------------------


def test_the_tape_never_calls_lambdify(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("lambdify was called")

    monkeypatch.setattr(sp, "lambdify", forbidden)
    monkeypatch.setattr(importlib.import_module("sympy.utilities.lambdify"), "lambdify", forbidden)
    problem = BilevelProblem("x*y + 17*x", "cosh(y) + y**2 - x*y", "x", "y")
    for backend in ("tape", "auto"):
        kernels = compile_kernels(problem, backend=backend)
        for name in EXPECTED:
            call(kernels, name, (2,))
    with pytest.raises(AssertionError, match="lambdify was called"):
        compile_kernels(problem, backend="lambdify").phi([1.0])


def test_an_unknown_backend_is_refused() -> None:
    for wrong in ("nonsense", "", None, 3):
        with pytest.raises(InvalidArgument, match="backend"):
            compile_kernels(PROBLEMS["d = 1, n = 1"], backend=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="BilevelProblem"):
        compile_kernels("x*y")  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
@pytest.mark.parametrize("name", ["a", "e"])
def test_an_open_parameter_has_no_numbers(name: str, backend: Backend) -> None:
    # generated code must not look a free name up among NumPy's own, where e is a number
    problem = BilevelProblem(f"{name}*x*y", "y**2/2 - x*y", "x", "y", parameters={name: None})
    with pytest.raises(InvalidProblem, match=f"{name} has no value"):
        compiled(problem, backend).phi([1.0])


def test_without_numba_one_notice_and_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = BilevelProblem("x*y + 23*x", "cosh(y) + y**2 - x*y", "x", "y")
    expected = compile_kernels(problem, backend="tape").hess_phi([0.5])
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "numba" else find_spec(name, *rest)
    )
    kernels_module._compiled.cache_clear()
    with pytest.warns(UserWarning, match="pip install numba") as seen:
        kernels = compile_kernels(problem, backend="compiled")
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert kernels.engine == "numpy"
    assert (kernels.hess_phi([0.5]) == expected).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (compile_kernels(problem, backend="auto").hess_phi([0.5]) == expected).all()
    kernels_module._compiled.cache_clear()


def test_scipy_minimises_phi_as_it_stands() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    kernels = zoo.get("saddle", d=2).problem.kernels
    found = optimize.minimize(
        kernels.phi, np.array([0.5, 0.5]), jac=kernels.grad_phi, hess=kernels.hess_phi, method="trust-exact"
    )
    assert found.success
    np.testing.assert_allclose(found.x, [2, 0], atol=1e-5)


# ---- caching, pickling, freezing -------------------------------------------------------------------------


def test_the_same_content_gives_the_same_kernels() -> None:
    first = BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y", name="one")
    second = BilevelProblem(x * y, y**2 / 2 - sp.sin(x) * y, [x], [y], name="two")
    assert compile_kernels(first, backend="tape") is compile_kernels(second, backend="tape")
    assert compile_kernels(first, backend="tape") is not compile_kernels(first, backend="lambdify")
    other = BilevelProblem("x*y", "y**2/2 - sin(x)*y + y", "x", "y")
    assert compile_kernels(first, backend="tape") is not compile_kernels(other, backend="tape")


def test_kernels_are_frozen() -> None:
    kernels = PROBLEMS["d = 1, n = 1"].kernels
    with pytest.raises(AttributeError, match="frozen"):
        kernels.backend = "tape"
    assert "d=1, n=1" in repr(kernels)


class Watching(pickle.Unpickler):
    """Loads, and notes every global that the pickle asks for."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.asked: set[tuple[str, str]] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.asked.add((module, name))
        return super().find_class(module, name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["d = 2, n = 2", "minimax", "kinks"])
def test_pickles_rebuild_and_hold_no_code(name: str, backend: Backend) -> None:
    kernels = compiled(PROBLEMS[name], backend)
    reader = Watching(io.BytesIO(pickle.dumps(kernels)))
    again = reader.load()
    assert {module.split(".")[0] for module, _ in reader.asked} <= {"bilevel_sym", "sympy"}
    assert not {"lambdify", "sympify", "parse_expr", "_lambdifygenerated"} & {name for _, name in reader.asked}
    assert again.problem == kernels.problem
    xs = points(kernels.problem, 3)
    assert (again.hess_phi(xs) == kernels.hess_phi(xs)).all()


# ---- counting --------------------------------------------------------------------------------------------


@pytest.fixture
def counted() -> Kernels:
    return PROBLEMS["d = 1, n = 3"].kernels


def test_each_block_costs_what_the_paper_counts(counted: Kernels) -> None:
    costs = {
        "f": (0, 0, 0, 0), "g": (0, 0, 0, 0), "f_x": (1, 0, 0, 0), "f_y": (1, 0, 0, 0), "g_y": (0, 1, 0, 0),
        "g_yy_v": (0, 0, 0, 1), "g_xy_v": (0, 0, 1, 0), "g_yy": (0, 0, 0, 3), "g_xy": (0, 0, 3, 0),
    }  # fmt: skip
    for name, expected in costs.items():
        with counted.counting() as c:
            call(counted, name, ())
        assert [int(k) for k in (c.G_f, c.G_g, c.JV_g, c.HV_g)] == [*expected], name


def test_counts_are_for_each_member(counted: Kernels) -> None:
    xs = np.array([[0.0], [1.0], [-2.0]])
    starts = counted.y_star(xs)
    starts[1] += 1.0
    with counted.counting() as c:
        counted.grad_phi(xs, y0=starts)
    assert c.G_g.shape == (3,)
    assert c.G_g[1] > max(c.G_g[0], c.G_g[2])
    assert c.G_f.tolist() == [2, 2, 2]
    assert (c.HV_g == 3 * c.G_g + 3).all()


def test_the_adjoint_and_the_response_cost_what_they_take(counted: Kernels) -> None:
    x = np.array([0.5])
    y0 = counted.y_star(x)
    with counted.counting() as solved:
        counted.y_star(x, y0=y0)
    for name, expected in {"v_star": (1, 0, 0, 3), "dy_dx": (0, 0, 3, 3)}.items():
        with counted.counting() as c:
            getattr(counted, name)(x, y0=y0)
        beyond = (c.G_f - solved.G_f, c.G_g - solved.G_g, c.JV_g - solved.JV_g, c.HV_g - solved.HV_g)
        assert tuple(int(k) for k in beyond) == expected, name


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("n", [1, 2])
def test_the_gradient_is_made_of_the_adjoint_and_y_star_moves_by_the_response(d: int, n: int, backend: Backend) -> None:
    x, y = (" ".join(f"{s}{k}" for k in range(1, m + 1)) for s, m in (("x", d), ("y", n)))
    first, last = x.split()[0], x.split()[-1]
    f = " + ".join(f"{name}**3 + {last}*{name}" for name in y.split())
    g = (
        " + ".join(f"{name}**2 + cosh({name})/3 - sin({first} + 2*{last})*{name}" for name in y.split())
        + f" + {y.split()[0]}*{y.split()[-1]}/2"
    )
    kernels = compiled(BilevelProblem(f, g, x, y), backend)
    at = np.random.default_rng(d + 3 * n).uniform(-1, 1, (5, d))
    there, v, dy_dx = kernels.y_star(at), kernels.v_star(at), kernels.dy_dx(at)
    np.testing.assert_allclose(kernels.f_x(at, there) - kernels.g_xy_v(at, there, v), kernels.grad_phi(at), rtol=1e-12)
    for i, step in enumerate(1e-6 * np.eye(d)):
        difference = (kernels.y_star(at + step) - kernels.y_star(at - step)) / 2e-6
        np.testing.assert_allclose(dy_dx[:, i], difference, rtol=1e-7, atol=1e-9)


def test_nested_counts_both_see_the_inner_calls(counted: Kernels) -> None:
    at = np.zeros(1), np.zeros(3)
    with counted.counting() as outer:
        counted.g_y(*at)
        with counted.counting() as inner:
            counted.g_y(*at)
        counted.f_x(*at)
    assert [int(k) for k in (outer.G_g, inner.G_g, outer.G_f, inner.G_f)] == [2, 1, 1, 0]
    counted.g_y(*at)
    assert outer.G_g == 2


def test_two_kernels_do_not_mix(counted: Kernels) -> None:
    other = PROBLEMS["d = 1, n = 1"].kernels
    with counted.counting() as c, other.counting() as e:
        counted.g_y([0.0], [0.0, 0.0, 0.0])
        other.f_x([0.0], [0.0])
        other.f_y([0.0], [0.0])
    assert [int(k) for k in (c.G_g, c.G_f, e.G_g, e.G_f)] == [1, 0, 0, 2]


def test_threads_do_not_mix(counted: Kernels) -> None:
    seen: dict[int, int] = {}
    barrier = threading.Barrier(4)

    def work(k: int) -> None:
        barrier.wait()
        with counted.counting() as c:
            for _ in range(10 * (k + 1)):
                counted.g_y([0.0], [0.0, 0.0, 0.0])
            seen[k] = int(c.G_g)

    with counted.counting() as outer:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == {0: 10, 1: 20, 2: 30, 3: 40}
    assert outer.G_g == 0


def test_counting_two_batch_shapes_is_an_error(counted: Kernels) -> None:
    with counted.counting() as c:
        counted.g_y([0.0], [0.0, 0.0, 0.0])
        with pytest.raises(KernelError, match="batch shape"):
            counted.g_y([[0.0]], [[0.0, 0.0, 0.0]])
    assert c.G_g == 1


def test_an_error_ends_the_counting(counted: Kernels) -> None:
    with pytest.raises(ZeroDivisionError), counted.counting() as c:
        raise ZeroDivisionError
    counted.g_y([0.0], [0.0, 0.0, 0.0])
    assert c.G_g == 0


def test_cached_kernels_stay_without_state(counted: Kernels) -> None:
    before = dict(counted.__dict__)
    with counted.counting():
        counted.hess_phi([1.0])
    assert counted.__dict__ == before


# ---- pitfalls of SymPy and lambdify ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_pitfall_float_coefficients_are_exact_to_the_last_bit(backend: Backend) -> None:
    rng = np.random.default_rng(0)
    coefficients = np.concatenate([rng.normal(size=150), 10.0 ** rng.uniform(-30, 30, 50)])
    xs = [sp.Symbol(f"x{k}") for k in range(200)]
    f = sp.Add(*(sp.Float(float(c)) * s for c, s in zip(coefficients, xs, strict=True)))
    problem = BilevelProblem(f, y**2 / 2 - xs[0] * y, xs, [y])
    kernels = compiled(problem, backend)
    assert (kernels.f_x(np.zeros(200), [0.0]) == coefficients).all()
    assert (kernels.f(np.eye(200), np.zeros((200, 1))) == coefficients).all()


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["pi", "sin", "exp", "lambda", "array", "numpy", "__import__('os')", "x y", "1", ""])
def test_pitfall_symbols_of_any_name(backend: Backend, name: str) -> None:
    symbol = sp.Symbol(name or "_")
    problem = BilevelProblem(symbol * y + sp.pi * sp.sin(symbol), y**2 / 2 - symbol * y + sp.exp(y), [symbol], [y])
    plain = BilevelProblem(x * y + sp.pi * sp.sin(x), y**2 / 2 - x * y + sp.exp(y), [x], [y])
    got, expected = compiled(problem, backend), compiled(plain, backend)
    assert_close(got.f([0.5], [2.0]), 1 + np.pi * np.sin(0.5))
    for member in UPPER:
        assert (getattr(got, member)([0.5]) == getattr(expected, member)([0.5])).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_pitfall_a_hostile_name_is_never_executed(backend: Backend, tmp_path: Any) -> None:
    victim = tmp_path / "executed"
    symbol = sp.Symbol(f"__import__('pathlib').Path({str(victim)!r}).touch()")
    compiled(BilevelProblem(symbol * y, y**2 / 2 - symbol * y, [symbol], [y]), backend).third_phi([1.0])
    assert not victim.exists()


@pytest.mark.parametrize("backend", BACKENDS)
def test_pitfall_two_symbols_of_one_name_do_not_merge(backend: Backend) -> None:
    plain, real = sp.Symbol("x"), sp.Symbol("x", real=True)
    try:
        problem = BilevelProblem(plain * y + 10 * real, y**2 / 2 - plain * y, [plain, real], [y])
    except InvalidProblem:
        return  # refused is as good
    assert compiled(problem, backend).f([1.0, 2.0], [3.0]) == 23.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_pitfall_high_powers_of_integers_do_not_wrap(backend: Backend) -> None:
    kernels = compiled(BilevelProblem(x**20 + y, y**2 / 2 - x * y, [x], [y]), backend)
    assert kernels.f(np.array([[10]]), np.array([[0]])) == [1e20]


@pytest.mark.parametrize("backend", BACKENDS)
def test_pitfall_constants_keep_the_batch_and_lists_are_never_ragged(backend: Backend) -> None:
    kernels = compiled(PROBLEMS["constant entries"], backend)
    assert (kernels.g_yy(np.zeros((4, 3, 2)), np.zeros((4, 3, 2))) == np.diag([4.0, 2.0])).all()
    mixed = compiled(BilevelProblem("x1 + y", "y**2/2*(2 + sin(x2)) - x1*y", "x1 x2", "y"), backend)
    g_xy = mixed.g_xy(np.array([[0.0, 1.0], [5.0, 2.0]]), np.array([[2.0], [3.0]]))
    assert_close(g_xy, [[[-1.0], [2 * math.cos(1)]], [[-1.0], [3 * math.cos(2)]]])


@pytest.mark.parametrize("symbol", [sp.Symbol("x"), x], ids=["plain", "real"])
def test_pitfall_deep_nesting(symbol: sp.Symbol) -> None:
    # assumptions matter: to forget them is to rebuild the formula, and evaluation would recurse
    expression: sp.Expr = symbol
    for _ in range(400):
        expression = sp.sin(expression, evaluate=False)
        hash(expression)
    problem = BilevelProblem(expression, y**2 / 2 - symbol * y, [symbol], [y])
    value = 1.0
    for _ in range(400):
        value = math.sin(value)
    for backend in ("tape", "compiled"):
        assert_close(compiled(problem, backend).f([1.0], [0.0]), value)


@pytest.mark.slow
def test_pitfall_lambdify_says_when_it_is_too_deep() -> None:
    symbol = sp.Symbol("x")
    expression: sp.Expr = symbol
    for _ in range(3000):
        expression = sp.sin(expression, evaluate=False)
        hash(expression)
    problem = BilevelProblem(expression, y**2 / 2 - symbol * y, [symbol], [y])
    with pytest.raises(KernelError, match="nested too deeply"):
        compile_kernels(problem, backend="lambdify").f([1.0], [0.0])


LOGISTIC = [sp.log(1 + sp.exp(x)), 1 / (1 + sp.exp(x)), sp.exp(x) / (1 + sp.exp(x)), softplus(-x), sigmoid(x)]


@lru_cache(None)
def logistic_truth(z: float) -> list[list[Any]]:
    """Value and three derivatives of each of the above; 4450 digits, for 1 - sigmoid(10000) is 1e-4343."""
    with mpmath.workdps(4450):
        s = 1 / (1 + mpmath.exp(-mpmath.mpf(z)))
        bell = s * (1 - s)
        turn, bend = bell * (1 - 2 * s), bell * (1 - 6 * bell)
        up, down = (mpmath.log1p(mpmath.exp(mpmath.mpf(t))) for t in (z, -z))
        rising = [s, bell, turn, bend]
        table = [[up, s, bell, turn], [1 - s, -bell, -turn, -bend], rising, [down, s - 1, bell, turn], rising]
    return [[+value for value in row] for row in table]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", range(5), ids=[str(expression) for expression in LOGISTIC])
def test_pitfall_log_one_plus_exp_neither_overflows_nor_cancels(kind: int, backend: Backend) -> None:
    # sigmoid (1 - sigmoid) cancels, and is 0 from z = 37 on
    kernels = compiled(BilevelProblem(LOGISTIC[kind] + 0 * y, y**2 / 2 - y, [x], [y]), backend)
    zs = [0.0, 1.5, -3.0, 30.0, -30.0, 40.0, -40.0, 700.0, -700.0, 1e4, -1e4]
    rows, ones = np.array(zs)[:, None], np.ones((11, 1))
    got = [
        kernels.f(rows, ones), kernels.f_x(rows, ones)[:, 0], kernels.f_xx(rows, ones)[:, 0, 0],
        kernels.third_phi(rows)[:, 0, 0, 0],
    ]  # fmt: skip
    assert np.isfinite(got).all()
    for k, z in enumerate(zs):
        for order, truth in enumerate(logistic_truth(z)[kind]):
            assert abs(got[order][k] - truth) <= 1e-12 * abs(truth) + 1e-300, (z, order, got[order][k])


@pytest.mark.long
def test_lambdify_never_uses_the_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = logistic(3, 130)  # so large that the blocks of a derivation come from the tape

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the second route went through the first")

    monkeypatch.setattr(Model, "block", refuse)  # every derivative on the tape
    kernels = compile_kernels(problem, backend="lambdify")
    point, v = np.zeros(3), np.ones(3)
    with pytest.raises(AssertionError, match="second route"):
        compile_kernels(problem, backend="tape").g_y(point, point)
    for name in ("f", "g_y", "g_xy", "g_yy"):
        getattr(kernels, name)(point, point)
    kernels.g_yy_v(point, point, v)
    kernels.expansion(point, point)
