"""Sources of scalar problems in JAX and PyTorch, and what no source may do: overflow, or take a name as code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import sympy as sp

from bilevel_sym import BilevelProblem, derive, zoo
from bilevel_sym.arrays.algebra import apply
from bilevel_sym.arrays.normal import scaled
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.graph.operations import IN_TEXT, OPERATIONS
from bilevel_sym.graph.operations.record import LANGUAGES
from bilevel_sym.symbolic.source import scalar_source

QUANTITIES = ("y_star", "phi", "grad_phi", "hess_phi")


@dataclass(frozen=True)
class Runs:
    """A library in which sources run."""

    name: str
    array: Callable[[Any], Any]
    mapped: Callable[[Any], Any]

    def module(self, problem: BilevelProblem, **options: Any) -> dict[str, Any]:
        """The source, executed in a fresh namespace."""
        module: dict[str, Any] = {}
        exec(scalar_source(derive(problem, **options), self.name), module)
        return module


@pytest.fixture(params=["numpy", pytest.param("jax", marks=pytest.mark.slow), "torch"])
def library(request: pytest.FixtureRequest) -> Iterator[Runs]:
    if request.param == "numpy":
        yield Runs("numpy", np.asarray, lambda f: lambda xs: np.array([f(x) for x in xs]))
    elif request.param == "jax":
        jax = pytest.importorskip("jax")
        jax.config.update("jax_enable_x64", True)
        yield Runs("jax", jax.numpy.asarray, lambda f: jax.jit(jax.vmap(f)))
    else:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        yield Runs("torch", lambda a: torch.as_tensor(np.asarray(a)), torch.func.vmap)


def side_by_side(n: int) -> BilevelProblem:
    """So many that blocks are written place by place."""
    g = [f"exp(x{k})*y{k}**2/2 - x{k}*y{k} + exp(y{k})" for k in range(n)]
    names = (" ".join(f"{s}{k}" for k in range(n)) for s in "xy")
    return BilevelProblem(" + ".join(f"(y{k} - 1)**2/2" for k in range(n)), " + ".join(g), *names)


GRAMMAR = " + ".join(f"{name}({['', '2 + x', 'x, y/3'][r.arity]})" for name, r in IN_TEXT.items())
PROBLEMS: dict[str, Callable[[], BilevelProblem]] = {
    "quadratic": lambda: zoo.get("quadratic").problem,
    "implicit_cubic": lambda: zoo.get("implicit_cubic").problem,
    "minimax": lambda: zoo.get("minimax_not_nash").problem,
    "grammar": lambda: BilevelProblem(
        f"{GRAMMAR} + sqrt(2 + x) + Piecewise((x**2, x < 1/4), (pi*x, True)) + E + 0.1 + exp(2)*min(x, 2, 3 + y)",
        "y**2/2 - x*y", "x", "y",
    ),
    "a root": lambda: BilevelProblem("y", "y**4/4 + y**2/2 - x*y", "x", "y"),
    "a box": lambda: BilevelProblem("y", "y*log(y) - x*y", "x", "y", box={"x": (-1, 1), "y": ("1/100", 10)}),
    "sparse": lambda: side_by_side(11),
    "written out": lambda: BilevelProblem(
        "log(1 + exp(300*y)) + 1/(1 + exp(-300*x*y))", "y**2/2 - x*y + log(1 + exp(10*y))", "x", "y"
    ),
}  # fmt: skip
IN_CI = [f"{name}-{problem}" for name in ("numpy", "torch") for problem in PROBLEMS] + [
    "jax-quadratic",
    "jax-grammar",
    "jax-minimax",
]


@pytest.mark.in_ci(*IN_CI)
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_library_computes_what_the_kernels_do(name: str, library: Runs) -> None:
    problem = PROBLEMS[name]()
    module = library.module(problem)
    x = 0.47 - 0.07 * np.arange(problem.d)
    for quantity in QUANTITIES:
        got, expected = np.asarray(module[quantity](library.array(x))), getattr(problem.kernels, quantity)(x)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11 * scale, err_msg=quantity)
    xs = np.stack([x, 1.1 * x])
    expected = problem.kernels.hess_phi(xs)
    got = np.asarray(library.mapped(module["hess_phi"])(library.array(xs)))
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize("closed", ["auto", False])
@pytest.mark.parametrize("at", [-3.0, 3.0])
def test_what_is_written_out_does_not_overflow(at: float, closed: Any, library: Runs) -> None:
    # DEFECT: log(1 + exp(1000*y)) was written as it stands, inf at y = 3, and its derivative nan
    problem = BilevelProblem("log(1 + exp(1000*y)) + exp(1000*y)/(1 + exp(1000*y))", "y**2/2 - x*y", "x", "y")
    module = library.module(problem, closed_form=closed)
    x = library.array([at])
    with np.errstate(all="raise", under="ignore"):
        assert float(module["phi"](x)) == pytest.approx(3001.0 if at > 0 else 0.0, abs=1e-300)
        assert np.asarray(module["grad_phi"](x)).tolist() == [1000.0 if at > 0 else 0.0]
        assert np.asarray(module["hess_phi"](x)).tolist() == [[0.0]]


@pytest.mark.parametrize(("form", "sign"), [("log(sigmoid(1000*y))", -1), ("log(1 - sigmoid(1000*y))", 1)])
@pytest.mark.parametrize("at", [-3.0, 3.0])
def test_the_logarithm_of_a_sigmoid_is_no_infinity(form: str, sign: int, at: float, library: Runs) -> None:
    # DEFECT: log(0) far out, where kernels have -softplus
    module = library.module(BilevelProblem(form, "y**2/2 - x*y", "x", "y"))
    x = library.array([at])
    assert float(module["phi"](x)) == pytest.approx(-max(0.0, sign * 1000 * at), abs=1e-300)
    assert np.asarray(module["grad_phi"](x)).tolist() == [-sign * 1000.0 if sign * at > 0 else 0.0]


def test_of_arrays_too() -> None:
    z = Tensor.leaf(Leaf("z", ("n",), "y"))
    assert apply("log", apply("sigmoid", z)) == scaled(apply("softplus", scaled(z, -1)), -1)
    problem = BilevelProblem("sum(log(sigmoid(1000*y)))", "sum((y - x)**2)/2", "x", "y[2]")
    module: dict[str, Any] = {}
    exec(derive(problem).source("numpy"), module)
    assert float(module["phi"](-3.0)) == pytest.approx(-6000.0)
    assert problem.kernels.grad_phi([-3.0]) == pytest.approx([2000.0])


def test_the_slope_of_a_sigmoid_keeps_its_digits_far_out(library: Runs) -> None:
    module = library.module(BilevelProblem("sigmoid(y)", "y**2/2 - x*y", "x", "y"))
    slope = float(np.asarray(module["grad_phi"](library.array([40.0])))[0])
    assert slope == pytest.approx(np.exp(-40.0), rel=1e-12)


@pytest.mark.parametrize(
    "names", [("np", "f"), ("jnp", "torch"), ("jax", "tensor"), ("where", "import"), ("a b", "__import__('os')"),
              ("sigmoid", "array"), ("x", "y"), ("print", "t1")],
)  # fmt: skip
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_name_becomes_code(names: tuple[str, str], language: str) -> None:
    a, b = map(sp.Symbol, names)
    text = scalar_source(derive(BilevelProblem(a * b + sp.sin(a), b**2 / 2 - a * b, [a], [b])), language)
    assert "[x_1] = x" in text
    assert "__import__" not in text
    compile(text, "source", "exec")


def test_every_operation_that_people_write_has_source() -> None:
    for record in (*IN_TEXT.values(), OPERATIONS["bell"]):
        assert record.source is not None
        for language, prefix in LANGUAGES.items():
            text = record.source.call(language) + record.source.definition(language)
            assert set(re.findall(r"\b(np|jnp|torch)\.", text)) <= {prefix}, (record.name, language)


def test_another_language_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no source for 'fortran'"):
        scalar_source(derive(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")), "fortran")


def test_outside_the_box_there_is_no_number(library: Runs) -> None:
    """NumPy raises; what is traced cannot, and has nan."""
    module = library.module(BilevelProblem("y", "exp(y) + y**2 - x*y", "x", "y", box={"x": (-100, 100), "y": (-1, 1)}))
    if library.name == "numpy":
        with pytest.raises(ArithmeticError, match="no minimiser"):
            module["y_star"]([50.0])
    else:
        assert np.isnan(np.asarray(module["y_star"](library.array([50.0])))).all()
