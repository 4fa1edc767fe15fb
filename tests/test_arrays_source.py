"""Sources of array problems: they run alone, in three libraries, and compute what the kernels compute."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from array_source_cases import CASES, Ran, flattened, problem_of, source_of
from array_strategies import ALL, DATA, X, Y, expressions, points
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, derive
from bilevel_sym.arrays.algebra import apply, contract, logsumexp, power, spread
from bilevel_sym.arrays.calculus import gradient
from bilevel_sym.arrays.normal import added, ones, scaled
from bilevel_sym.arrays.notation import python
from bilevel_sym.arrays.notation.printer import ATOM, POWER, PRODUCT
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.errors import InvalidArgument, InvalidProblem
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.graph.operations.record import Source
from bilevel_sym.implicit.array_model import ArrayModel
from bilevel_sym.implicit.array_program import Workshop
from bilevel_sym.symbolic.array_source import array_source
from bilevel_sym.symbolic.source_parts.array_scope import ModuleScope
from bilevel_sym.symbolic.source_parts.templates import joined

QUANTITIES = ("y_star", "phi", "grad_phi", "hess_phi")
FEW = ("ridge, one penalty",)


def point(problem: BilevelProblem, seed: int = 5) -> Any:
    return 0.5 * np.random.default_rng(seed).normal(size=problem.d)


def check(ran: Ran, x: Any) -> None:
    for name in QUANTITIES:
        expected = np.ravel(getattr(ran.problem.kernels, name)(x))
        scale = np.abs(expected).max()
        np.testing.assert_allclose(np.ravel(ran.at(name, x)), expected, rtol=1e-11, atol=1e-11 * scale, err_msg=name)


# ---- NumPy ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", CASES)
def test_the_source_computes_what_the_kernels_do(name: str) -> None:
    ran = Ran(problem_of(name), "numpy", np.asarray)
    check(ran, point(ran.problem))
    check(ran, point(ran.problem, 6))


@pytest.mark.parametrize("name", CASES)
def test_blocks_are_those_of_the_kernels_anywhere(name: str) -> None:
    problem = problem_of(name)
    ran, rng = Ran(problem, "numpy", np.asarray), np.random.default_rng(1)
    x, y = rng.normal(size=problem.d), rng.normal(size=problem.n)
    for block in ("f", "g", "f_x", "f_y", "g_y", "g_xy"):
        expected = np.ravel(getattr(problem.kernels, block)(x, y))
        np.testing.assert_allclose(np.ravel(ran.at(block, x, y)), expected, rtol=1e-11, atol=1e-11, err_msg=block)


def test_the_source_runs_alone() -> None:
    problem = problem_of("hyper-cleaning")
    data = ", ".join(f"{key}=np.array({value.tolist()})" for key, value in problem.arrays.items())
    x = point(problem)
    call = f"\nprint(grad_phi(np.array({x.tolist()}), Data({data})).tolist())"
    block = "import sys\nsys.modules['bilevel_sym'] = sys.modules['sympy'] = sys.modules['scipy'] = None\n"
    code = block + source_of(problem, "numpy") + call
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    np.testing.assert_allclose([float(t) for t in done.stdout.strip("[]\n").split(",")], problem.kernels.grad_phi(x))


def test_it_reads_as_an_expert_writes() -> None:
    """No diag inside a product, no product of matrices where a vector ends it, the penalty's gradient entry by entry."""
    text = source_of(problem_of("logistic"), "numpy")
    assert "(A.T * (p**2 * sigmoid_slope(p * (A @ y)))) @ A / m + np.diag(np.exp(x))" in text
    assert "np.exp(x) * y - (A.T @ (p * sigmoid(-p * (A @ y)))) / m" in text
    assert "return -np.exp(x) * y * v" in text
    cleaning = source_of(problem_of("hyper-cleaning"), "numpy")
    assert "@ np.diag" not in cleaning
    assert "np.diag(" not in cleaning.split("def hess_L")[0]  # g_xy and g_yy have no m by m array
    assert "solve(A.T @ A / m + np.diag(np.exp(x)), A.T @ b / m)" in source_of(problem_of("ridge"), "numpy")


def test_what_occurs_twice_is_computed_once() -> None:
    text = source_of(problem_of("softmax"), "numpy")
    for body in text.split("\n\n\n"):
        assert body.count("A @ W") <= 1, body
        assert body.count("B @ W") <= 1, body


@pytest.mark.parametrize("size", [-1000.0, 1000.0])
@pytest.mark.parametrize("name", ["logistic", "hyper-cleaning", "softmax", "softmax with a reference"])
def test_nothing_overflows_far_from_zero(name: str, size: float) -> None:
    problem = problem_of(name)
    ran = Ran(problem, "numpy", np.asarray)
    x, y = np.zeros(problem.d), np.full(problem.n, size)
    y[::2] *= -1
    with np.errstate(all="raise", under="ignore"):
        for block in ("f", "g", "f_y", "g_y", "g_xy"):
            got = np.ravel(ran.at(block, x, y))
            assert np.isfinite(got).all()
            np.testing.assert_allclose(got, np.ravel(getattr(problem.kernels, block)(x, y)), rtol=1e-11, atol=1e-9)


def test_large_rows_do_not_need_large_squares() -> None:
    """20 000 rows: an array of rows by rows would hold 3.2 GB."""
    rng = np.random.default_rng(0)
    m, n = 20_000, 3
    data = {"A": rng.normal(size=(m, n)), "p": np.sign(rng.normal(size=m)), "B": np.eye(n), "q": np.ones(n)}
    f, g, x, y, _ = CASES["hyper-cleaning"]
    ran = Ran(BilevelProblem(f, str(g), x, y, data=data), "numpy", np.asarray)
    assert ran.at("grad_phi", np.zeros(m)).shape == (m,)


# ---- random formulas ------------------------------------------------------------------------------------------------


def written(tensor: Tensor, language: str) -> tuple[dict[str, Any], ModuleScope]:
    """A module with one function, ``value``, that returns the tensor."""
    total = contract([(tensor, range(tensor.rank))], ())
    scope = ModuleScope(ArrayModel(total, total, X, Y), language, {}, ())
    function = scope.function("value", (*X, *Y), [tensor])
    module: dict[str, Any] = {}
    exec(joined(language, "", scope.definitions, [function]), module)
    return module, scope


def computed(tensor: Tensor, arrays: dict[str, Any], language: str = "numpy") -> Any:
    module, scope = written(tensor, language)
    data = type("Data", (), {leaf.name: arrays[leaf.name] for leaf in scope.data})()
    with np.errstate(all="ignore"):
        return np.asarray(module["value"](*(arrays[leaf.name] for leaf in (*X, *Y)), *([data] if scope.data else [])))


def expected_value(tensor: Tensor, arrays: dict[str, Any], sizes: Any) -> Any:
    total = contract([(tensor, range(tensor.rank))], ())
    workshop = Workshop(ArrayModel(total, total, (), ()), sizes, arrays)
    with np.errstate(all="ignore"):
        return np.asarray(workshop.constant(workshop.plan.value(tensor)))


def agree(got: Any, expected: Any) -> None:
    assert got.shape == expected.shape
    size = np.abs(expected).max(initial=0)
    if np.isfinite(size) and size < 1e10:
        assert np.abs(got - expected).max(initial=0) <= 1e-7 * max(size, 1)


SHAPES = st.sampled_from([(), ("n",), ("m", "n"), ("n", "n")])


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(SHAPES.flatmap(lambda dims: expressions(dims, functions=ALL)), points(), st.sampled_from([None, None, *X, *Y]))
def test_random_formulas_and_their_derivatives(drawn: Any, where: Any, leaf: Leaf | None) -> None:
    tensor = drawn.tensor if leaf is None else gradient(drawn.tensor, leaf)
    arrays = {name: np.array(value, dtype=float) for name, value in where.arrays.items()}
    agree(computed(tensor, arrays), expected_value(tensor, arrays, where.sizes))


def shifted(body: Tensor, other: Tensor, axis: int) -> Tensor:
    """exp(body - logsumexp(other)), one number for each index along the axis."""
    sums = scaled(spread(logsumexp(other, (axis,)), [axis], body.dims), -1)
    return apply("exp", added([body, sums], body.dims))


LEAF = {leaf.name: Tensor.leaf(leaf) for leaf in (*X, *Y, *DATA)}  # A: m x n, B and K: n x n, b: m, c: n, W: n x m
DIRECTED = {
    "rows": (added([LEAF["A"], spread(LEAF["c"], [1], ("m", "n"))], ("m", "n")), "A + c"),
    "columns": (added([LEAF["A"], spread(LEAF["b"], [0], ("m", "n"))], ("m", "n")), "A + b[:, None]"),
    "columns and rows": (
        added([spread(LEAF["b"], [0], ("m", "n")), spread(LEAF["c"], [1], ("m", "n"))], ("m", "n")), "b[:, None] + c",
    ),
    "columns alone": (spread(LEAF["b"], [0], ("m", "n")), "np.outer(b, np.ones(n))"),
    "columns and a number": (
        added([spread(LEAF["b"], [0], ("m", "n")), ones(("m", "n"), 2)], ("m", "n")), "np.outer(b, np.ones(n)) + 2",
    ),
    "a number": (ones(("n",), 3), "3 * np.ones(n)"),
    "trace": (contract([(LEAF["B"], "ij"), (LEAF["B"], "ji")], ""), "np.sum(B * B.T)"),
    "trace of three": (contract([(LEAF["A"], "ij"), (LEAF["B"], "jk"), (LEAF["W"], "ki")], ""), None),
    "weights": (contract([(LEAF["A"], "ij"), (LEAF["b"], "i"), (LEAF["A"], "ik")], "jk"), "(A.T * b) @ A"),
    "weights of rows": (contract([(LEAF["b"], "i"), (LEAF["A"], "ij")], "ij"), "b[:, None] * A"),
    "weights of columns": (contract([(LEAF["A"], "ij"), (LEAF["c"], "j")], "ij"), "A * c"),
    "from the right": (
        contract([(LEAF["A"], "ij"), (LEAF["b"], "i"), (LEAF["A"], "ik"), (LEAF["c"], "k")], "j"),
        "A.T @ (b * (A @ c))",
    ),
    "a diagonal": (contract([(LEAF["B"], "ii")], "i"), "np.diag(B)"),
    "along an axis": (contract([(LEAF["A"], "ij")], "j"), "np.sum(A, axis=0)"),
    "softmax": (shifted(LEAF["A"], LEAF["A"], 0), "softmax(A, 1)"),
    "softmax of columns": (shifted(LEAF["A"], LEAF["A"], 1), "softmax(A, 0)"),
    "no softmax": (shifted(LEAF["A"], scaled(LEAF["A"], 2), 0), "np.exp(A - logsumexp(2 * A, 1)[:, None])"),
    "of the grammar": (apply("min", LEAF["c"], ones((), 2)), None),
    "a piece": (apply("select", apply("lt", LEAF["A"]), LEAF["A"], spread(LEAF["b"], [0], ("m", "n"))), None),
    "three indices": (contract([(LEAF["A"], "ij"), (LEAF["b"], "i"), (LEAF["c"], "k")], "ijk"), None),
    "constant along the third": (spread(LEAF["A"], [0, 2], ("m", "m", "n")), None),
}  # fmt: skip


@pytest.mark.parametrize("name", DIRECTED)
def test_forms_that_random_formulas_rarely_have(name: str) -> None:
    tensor, text = DIRECTED[name]
    rng = np.random.default_rng(0)
    sizes = {"m": 3, "n": 2}
    arrays = {leaf.name: rng.normal(size=[sizes[dim] for dim in leaf.dims]) for leaf in (*X, *Y, *DATA)}
    arrays["K"] = arrays["K"] + arrays["K"].T
    agree(computed(tensor, arrays), expected_value(tensor, arrays, sizes))
    total = contract([(tensor, range(tensor.rank))], ())
    written_text = ModuleScope(ArrayModel(total, total, X, Y), "numpy", {}, ()).function("value", (*X, *Y), [tensor])
    assert text is None or written_text.endswith(f"return {text}")


def planted(monkeypatch: pytest.MonkeyPatch, operation: str, source: Source) -> None:
    table = {**OPERATIONS, operation: replace(OPERATIONS[operation], source=source)}
    monkeypatch.setattr(python, "OPERATIONS", MappingProxyType(table))


@pytest.mark.parametrize(
    ("operation", "wrong"), [("bell", "np.tanh({})"), ("softplus", "np.log1p({}**2)"), ("sigmoid", "np.exp({})")]
)
def test_a_wrong_pattern_is_noticed(operation: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, operation, Source(wrong))
    ran = Ran(problem_of("logistic"), "numpy", np.asarray)
    with pytest.raises((AssertionError, ArithmeticError, RuntimeWarning)):
        check(ran, point(ran.problem))


def test_a_diag_on_the_wrong_side_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def swapped(self: Any, rows: Any, matrix: Any) -> tuple[str, int]:
        return f"{self.at(matrix, POWER)} * {self.at(rows[0], ATOM)}", PRODUCT

    monkeypatch.setattr(python.Python, "_with_rows", swapped)
    n = {leaf.name: leaf for leaf in DATA}
    scaled = contract([(Tensor.leaf(n["c"]), "i"), (Tensor.leaf(n["B"]), "ij")], "ij")
    arrays = {
        leaf.name: np.arange(1.0, 1 + 2 ** len(leaf.dims)).reshape((2,) * len(leaf.dims)) for leaf in (*X, *Y, *DATA)
    }
    with pytest.raises(AssertionError):
        agree(computed(scaled, arrays), expected_value(scaled, arrays, {"m": 2, "n": 2}))


# ---- names and refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [("lambda", "f", "np"), ("x", "v", "H"), ("cross", "L_yy", "dy_dx"), ("a b", "y", "__import__('os')"),
     ("sum", "t1", "data"), ("m", "n", "solve"), ("y", "flat", "class")],
)  # fmt: skip
def test_hostile_or_clashing_names_never_reach_the_source(names: tuple[str, str, str]) -> None:
    x, y, A = Leaf(names[0], ("n",), "x"), Leaf(names[1], ("n",), "y"), Leaf(names[2], ("m", "n"), "data")
    X_, Y_, A_ = map(Tensor.leaf, (x, y, A))
    product = contract([(A_, "ij"), (Y_, "j")], "i")
    g = added(
        [
            contract([(apply("softplus", product), "i")], ""),
            contract([(apply("exp", X_), "i"), (power(Y_, 2), "i")], ""),
        ],
        (),
    )
    f = added([contract([(Y_, "i"), (X_, "i")], ""), scaled(contract([(apply("sin", Y_), "i")], ""), 2)], ())
    text = array_source(ArrayModel(f, g, [x], [y]))
    assert "__import__" not in text
    module: dict[str, Any] = {}
    exec(text, module)
    rng = np.random.default_rng(0)
    array, at = rng.normal(size=(4, 2)), np.array([0.3, -0.2])
    reference = BilevelProblem(
        "y @ x + 2*sum(sin(y))", "sum(softplus(A @ y)) + exp(x) @ y**2", "x[n]", "y[n]", data={"A": array}
    )
    for name in ("grad_phi", "hess_phi"):
        got = module[name](at, module["Data"](array))
        np.testing.assert_allclose(got, getattr(reference.kernels, name)(at), rtol=1e-11, atol=1e-12)


def test_what_cannot_be_written_is_refused() -> None:
    model = problem_of("ridge").array_model
    with pytest.raises(InvalidArgument, match="no source for 'fortran'"):
        array_source(model, "fortran")
    alone = BilevelProblem("lam*sum(y)", "sum((y - lam)**2)", "lam", "y[n]")
    with pytest.raises(InvalidProblem, match="the size of the dimension n is not known"):
        array_source(alone.array_model, closed_form=False)


def test_the_derivation_offers_it() -> None:
    assert "def hess_phi(x, data):" in derive(problem_of("logistic")).source("jax")


# ---- JAX and PyTorch ------------------------------------------------------------------------------------------------

SLOWLY = [pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in FEW]


@pytest.mark.slow
@pytest.mark.in_ci(name=(*FEW, "logistic", "minimax", "columns"))
@pytest.mark.parametrize("name", [*FEW, *SLOWLY])
def test_in_jax_compiled_and_mapped(name: str) -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    problem = problem_of(name)
    ran = Ran(problem, "jax", jax.numpy.asarray)
    xs = np.stack([point(problem), point(problem, 6)])
    given = ran.arrays("x", xs)
    mapped = jax.jit(jax.vmap(ran.module["grad_phi"], in_axes=(*(0,) * len(given), *(None,) * len(ran.data))))
    got = flattened(mapped(*given, *ran.data), lead=1)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, problem.kernels.grad_phi(xs), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(
        np.ravel(ran.at("hess_phi", xs[0])), np.ravel(problem.kernels.hess_phi(xs[0])), rtol=1e-10, atol=1e-11
    )


@pytest.mark.parametrize("name", [*FEW, *SLOWLY])
def test_in_pytorch_and_mapped(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    problem = problem_of(name)
    ran = Ran(problem, "torch", torch.as_tensor)
    check(ran, point(problem))
    xs = np.stack([point(problem), point(problem, 6)])
    given = ran.arrays("x", xs)
    mapped = torch.func.vmap(ran.module["grad_phi"], in_dims=(*(0,) * len(given), *(None,) * len(ran.data)))
    got = flattened(mapped(*given, *ran.data), lead=1)
    np.testing.assert_allclose(got, problem.kernels.grad_phi(xs), rtol=1e-10, atol=1e-11)
