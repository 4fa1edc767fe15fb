"""f and g as functions of NumPy, JAX and PyTorch: the numbers of the kernels, derivatives by the library, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from array_source_cases import CASES, problem_of
from scipy.sparse import csr_array

from bilevel_sym import BilevelProblem, MinimaxProblem, zoo
from bilevel_sym.arrays.execute import kernel_of
from bilevel_sym.arrays.plan import Step
from bilevel_sym.errors import InvalidArgument, InvalidProblem
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.interop import functions as functions_module
from bilevel_sym.interop import functions_in
from bilevel_sym.interop.functions import perform
from bilevel_sym.interop.library import LIBRARIES, library

SCALARS = ("scalar", "quadratic", "implicit_cubic", "logistic", "minimax_not_nash", "stochastic_rows")
PIECES = BilevelProblem(
    "log(1 + exp(300*y)) + min(x, y) + Piecewise((x, x < y), (y**2, True)) + erf(x) + asinh(y) + 2*pi + abs(x)**(5/3)",
    "y**2/2 - x*y + log(1 + exp(10*y))", "x", "y",
)  # fmt: skip


def every_problem(name: str) -> BilevelProblem:
    return PIECES if name == "pieces in scalars" else problem_of(name) if name in CASES else zoo.get(name).problem


def point(problem: BilevelProblem) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return 0.1 + 0.4 * rng.normal(size=problem.d), 0.03 + 0.4 * rng.normal(size=problem.n)


def close(got: Any, expected: Any) -> None:
    assert np.shape(got) == np.shape(expected)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-11, atol=1e-12 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("name", [*CASES, *SCALARS, "pieces in scalars"])
def test_in_numpy(name: str) -> None:
    problem = every_problem(name)
    x, y = point(problem)
    f, g = functions_in("numpy", problem)
    kernels = problem.mean.kernels
    close(f(x, y), kernels.f(x, y))
    close(g(x, y), kernels.g(x, y))
    assert type(f(x, y)) in (np.float64, np.ndarray)


@pytest.fixture
def jax() -> Iterator[Any]:
    module = pytest.importorskip("jax")
    before = module.config.jax_enable_x64
    module.config.update("jax_enable_x64", True)
    yield module
    module.config.update("jax_enable_x64", before)


FEW = ("logistic", "implicit_cubic")
REST = [pytest.param(name, marks=pytest.mark.slow) for name in (*CASES, *SCALARS) if name not in FEW]


@pytest.mark.slow
@pytest.mark.in_ci(name=(*FEW, *list(CASES)[::6], "minimax_not_nash"))
@pytest.mark.parametrize("name", [*FEW, *REST])
def test_in_jax_with_two_derivatives_compiled_and_mapped(name: str, jax: Any) -> None:
    problem = every_problem(name)
    x, y = point(problem)
    f, g = functions_in("jax", problem)
    kernels = problem.mean.kernels
    close(jax.jit(f)(x, y), kernels.f(x, y))
    close(jax.jit(jax.grad(f, 0))(x, y), kernels.f_x(x, y))
    close(jax.jit(jax.hessian(g, 1))(x, y), kernels.g_yy(x, y))
    close(jax.jit(jax.jacfwd(jax.grad(g, 0), 1))(x, y), kernels.g_xy(x, y))
    xs, ys = np.stack([x, 0.9 * x]), np.stack([y, y])
    close(jax.jit(jax.vmap(jax.grad(g, 1)))(xs, ys), kernels.g_y(xs, ys))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # its own, inside torch.func
@pytest.mark.parametrize("name", [*FEW, *REST])
def test_in_pytorch_with_two_derivatives_and_mapped(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    problem = every_problem(name)
    x, y = point(problem)
    f, g = functions_in("torch", problem)
    kernels, func = problem.mean.kernels, torch.func
    tensors = torch.as_tensor(x), torch.as_tensor(y)
    close(f(*tensors), kernels.f(x, y))
    close(func.grad(f, 0)(*tensors), kernels.f_x(x, y))
    close(func.hessian(g, 1)(*tensors), kernels.g_yy(x, y))
    stacked = torch.stack([tensors[0], 0.9 * tensors[0]]), torch.stack([tensors[1]] * 2)
    close(func.vmap(func.grad(g, 1))(*stacked), kernels.g_y(*map(np.asarray, stacked)))


@pytest.mark.long
def test_second_derivatives_are_finite_far_from_zero(jax: Any) -> None:
    problem = problem_of("softmax with a reference")
    _, g = functions_in("jax", problem)
    y = np.full(problem.n, 1000.0)
    y[::2] *= -1
    close(jax.hessian(g, 1)(np.zeros(problem.d), y), problem.kernels.g_yy(np.zeros(problem.d), y))


# ---- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_jax_in_single_precision_is_refused(jax: Any) -> None:
    problem = problem_of("ridge")
    x, y = point(problem)
    f, _ = functions_in("jax", problem)
    with pytest.raises(InvalidArgument, match=r"x is of type float32, and the functions compute in float64"):
        f(jax.numpy.asarray(x, dtype="float32"), y)
    jax.config.update("jax_enable_x64", False)
    for call in (lambda: functions_in("jax", problem), lambda: f(x, y)):
        with pytest.raises(InvalidArgument, match="JAX computes in float32 as it is set"):
            call()


def test_pytorch_in_single_precision_is_refused() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    problem = problem_of("ridge")
    f, _ = functions_in("torch", problem)
    with pytest.raises(InvalidArgument, match=r"x is of type torch.float32"):
        f(torch.zeros(problem.d), torch.zeros(problem.n, dtype=torch.float64))


def test_shapes_and_types_are_checked() -> None:
    f, g = functions_in("numpy", problem_of("ridge"))
    assert float(g([0, 0, 0], [0, 0, 0])) == float(g(np.zeros(3), np.zeros(3)))  # whole numbers are converted
    with pytest.raises(InvalidArgument, match=r"y has the shape \(2, 3\), and is a vector of 3 numbers"):
        f(np.zeros(3), np.zeros((2, 3)))
    with pytest.raises(InvalidArgument, match="x is of type complex128"):
        f(np.zeros(3, dtype=complex), np.zeros(3))
    with pytest.raises(InvalidArgument, match="no library 'fortran'"):
        functions_in("fortran", problem_of("ridge"))


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(InvalidArgument, match="PyTorch is not installed"):
        functions_in("torch", problem_of("ridge"))


def test_what_has_no_numbers_is_refused() -> None:
    shapes = BilevelProblem("sum(A @ y)", "y @ y/2 - x @ y", "x[n]", "y[n]", data={"A": "m, n"})
    with pytest.raises(InvalidProblem, match=r"not known|no values"):
        functions_in("numpy", shapes)
    symbolic = BilevelProblem("a*y", "y**2/2 - x*y", "x", "y", parameters={"a": None})
    with pytest.raises(InvalidProblem):
        functions_in("numpy", symbolic)


def test_sparse_data_are_written_out_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    A = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    texts = ("sum((A @ y)**2)", "sum((A @ y - 1)**2)/2 + x @ y**2", "x[n]", "y[n]")
    dense, sparse = (BilevelProblem(*texts, data={"A": value}) for value in (A, csr_array(A)))
    x, y = np.array([1.0, 2.0]), np.array([0.5, -1.0])
    for one, two in zip(functions_in("numpy", dense), functions_in("numpy", sparse), strict=True):
        close(one(x, y), two(x, y))
    monkeypatch.setattr(functions_module, "MAX_DENSE", 3)
    with pytest.raises(Exception, match="a sparse array of 3 x 2 entries"):
        functions_in("numpy", sparse)


def test_a_minimax_problem_has_both_levels() -> None:
    f, g = functions_in("numpy", MinimaxProblem("x*y - y**2/2", "x", "y"))
    assert float(f([2.0], [3.0])) == -float(g([2.0], [3.0])) == 1.5


def test_every_operation_is_known_to_every_library(jax: Any) -> None:
    for name in LIBRARIES:
        if name == "torch":
            continue  # where it is installed the problems above run
        assert set(library(name).operations) == set(OPERATIONS)


STEPS: dict[str, tuple[Step, list[tuple[int, ...]]]] = {
    "fill": (Step("fill", (), (2.5,), (2, 3), 0), []),
    "pi": (Step("apply", (), ("pi", ()), (), 0), []),
    "apply": (Step("apply", (0,), ("ipow", (3,)), (2,), 0), [(2,)]),
    "logsumexp": (Step("logsumexp", (0, 1), (1,), (2,), 0), [(2, 3), (2,)]),
    "transpose": (Step("transpose", (0,), (2, 0, 1), (4, 2, 3), 0), [(2, 3, 4)]),
    "multiply": (Step("multiply", (0, 1), ((0, 1), (1,)), (2, 3), 0), [(2, 3), (3,)]),
    "multiply, turned": (Step("multiply", (0, 1), ((0, 2), (2, 1)), (2, 3, 4), 0), [(2, 4), (4, 3)]),
    "contract": (Step("contract", (0, 1), ((0, 1), (1, 2), (0, 2)), (2, 4), 0), [(2, 3), (3, 4)]),
    "contract, kept": (Step("contract", (0, 1), ((0, 1, 2), (0, 2), (0, 1)), (2, 3), 0), [(2, 3, 4), (2, 4)]),
    "gram": (Step("gram", (0,), (0,), (3, 3), 0), [(2, 3)]),
    "gram, weighted": (Step("gram", (0, 1), (0,), (3, 3), 0), [(2, 3), (2,)]),
    "gram, twice weighted": (Step("gram", (0, 1, 2), (1,), (2, 2), 0), [(2, 3), (3,), (3,)]),
    "sum": (Step("sum", (0,), (-1, -3), (3,), 0), [(2, 3, 4)]),
    "diagonal": (Step("diagonal", (0,), ((0, 1, 0),), (2, 3), 0), [(2, 3, 2)]),
    "combine": (Step("combine", (0, 1), (((2.0, (0, 1), ()), (-3.0, (1,), ())), 0.5), (2, 3), 0), [(2, 3), (3,)]),
    "combine, deltas": (
        Step("combine", (0, 1), (((2.0, (0, 1), ()), (1.0, (0,), ((0, 1),))), 0.0), (3, 3), 0), [(3, 3), (3,)],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_each_step_is_that_of_the_kernels(name: str, jax: Any) -> None:
    step, shapes = STEPS[name]
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape) for shape in shapes]
    expected = kernel_of(step, [Step("leaf", (), ("y",), shape, 0) for shape in shapes])(*values)
    for language in ("numpy", "jax"):
        close(perform(library(language), step, values, np.zeros(1)), np.asarray(expected))


def test_a_wrong_operation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = library("numpy")
    wrong = replace(right, operations={**right.operations, "softplus": np.tanh})
    monkeypatch.setattr(functions_module, "library_of", lambda name: wrong)
    with pytest.raises(AssertionError):
        test_in_numpy("logistic")
    with pytest.raises(AssertionError):
        test_in_numpy("pieces in scalars")
