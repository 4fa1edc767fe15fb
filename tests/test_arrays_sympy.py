"""SymPy's matrix language: every node against NumPy, against text, and back from what is printed; refusals by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import sympy as sp
from array_oracle import BALLS, FLOATS, NoNumber, Point, same, values
from array_strategies import DATA, LANGUAGES, X, Y, expressions, points
from hypothesis import given
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.diagonal import DiagMatrix, DiagonalMatrix, DiagonalOf
from sympy.matrices.expressions.dotproduct import DotProduct
from sympy.matrices.expressions.hadamard import HadamardPower
from sympy.matrices.expressions.special import OneMatrix

from bilevel_sym.arrays.calculus import gradient
from bilevel_sym.arrays.display import to_sympy
from bilevel_sym.arrays.language.reading import Reading
from bilevel_sym.arrays.lowering import lower_form
from bilevel_sym.arrays.sympy_door import arrays_in, declare, read
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.nodes import Graph
from bilevel_sym.graph.operations.logistic import sigmoid, softplus
from bilevel_sym.problem.parsing.array_grammar import array_tree

m, n, i, j, k = sp.symbols("m n i j k")
lam = sp.Symbol("lam")
A, B, K = sp.MatrixSymbol("A", m, n), sp.MatrixSymbol("B", n, n), sp.MatrixSymbol("K", n, n)
b, y, r = sp.MatrixSymbol("b", m, 1), sp.MatrixSymbol("y", n, 1), sp.MatrixSymbol("r", 1, n)
s = sp.MatrixSymbol("s", 1, 1)
IA, Iy, Ib = sp.IndexedBase("A", shape=(m, n)), sp.IndexedBase("y"), sp.IndexedBase("b", shape=(m,))
over_m, over_n, over_k = (i, 0, m - 1), (j, 0, n - 1), (k, 0, n - 1)

LEAVES = {
    "A": Leaf("A", ("m", "n"), "data"), "B": Leaf("B", ("n", "n"), "data"), "b": Leaf("b", ("m",), "data"),
    "K": Leaf("K", ("n", "n"), "data", declared_symmetric=True), "r": Leaf("r", ("n",), "data"),
    "s": Leaf("s", (), "data"), "y": Leaf("y", ("n",), "y"), "lam": Leaf("lam", (), "x"),
}  # fmt: skip
SIZES = ({"m": 3, "n": 2}, {"m": 2, "n": 3}, {"m": 1, "n": 2}, {"m": 3, "n": 1})


def arrays_of(sizes: Mapping[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(sum(sizes.values()))
    arrays = {name: rng.integers(-9, 9, [sizes[dim] for dim in leaf.dims]) / 8 for name, leaf in LEAVES.items()}
    arrays["K"] = arrays["K"] + arrays["K"].T
    arrays["b"] = np.abs(arrays["b"]) + 1 / 8  # roots and logarithms need it
    return {name: np.asarray(array) for name, array in arrays.items()}


def number(tensor: Tensor, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """A tensor at numbers, by the lowering to scalars."""
    graph = Graph(0)
    entries = lower_form(tensor, graph, lambda leaf, place: Fraction(float(arrays[leaf.name][place])), sizes)
    numbers = values(graph, entries.values(), {}, FLOATS)
    result = np.empty([sizes[dim] for dim in tensor.dims])
    for place, value in zip(entries, numbers, strict=True):
        result[place] = value
    return result


def of(expression: sp.Basic) -> Tensor:
    return read(expression, LEAVES, field="f")


def soft(z: Any) -> Any:
    return np.logaddexp(0, z)


NODES: dict[str, tuple[Any, Callable[..., Any]]] = {
    "a matrix": (A, lambda A, **_: A),
    "a column": (y, lambda y, **_: y),
    "a row": (r, lambda r, **_: r),
    "a 1x1 matrix": (s, lambda s, **_: s),
    "MatAdd": (2 * B - K / 3, lambda B, K, **_: 2 * B - K / 3),
    "MatMul": (A * B * y, lambda A, B, y, **_: A @ B @ y),
    "MatMul of a row": (r * B * y, lambda r, B, y, **_: r @ B @ y),
    "MatMul of a row and a matrix": (r * B, lambda r, B, **_: r @ B),
    "an outer product": (b * r, lambda b, r, **_: np.outer(b, r)),
    "a sum in parentheses": ((B + K) * (y - r.T), lambda B, K, y, r, **_: (B + K) @ (y - r)),
    "a scalar times a matrix": (lam * sp.exp(lam) * A, lambda lam, A, **_: lam * np.exp(lam) * A),
    "a 1x1 product times a scalar": (lam * y.T * y, lambda lam, y, **_: lam * y @ y),
    "MatPow": (B**3, lambda B, **_: B @ B @ B),
    "MatPow 0": (sp.MatPow(B, 0), lambda B, **_: np.eye(len(B))),
    "Trace of MatPow": (sp.Trace(B**3), lambda B, **_: np.trace(B @ B @ B)),
    "HadamardProduct": (sp.HadamardProduct(B, K.T, B), lambda B, K, **_: B * K * B),
    "HadamardProduct of columns": (sp.HadamardProduct(b, A * y), lambda b, A, y, **_: b * (A @ y)),
    "HadamardPower": (HadamardPower(y, 2), lambda y, **_: y**2),
    "HadamardPower, negative": (HadamardPower(b, -2), lambda b, **_: b**-2),
    "HadamardPower, a root": (HadamardPower(b, sp.Rational(3, 2)), lambda b, **_: b**1.5),
    "HadamardPower, a symbol": (HadamardPower(b, lam), lambda b, lam, **_: b**lam),
    "applyfunc": ((A * y).applyfunc(sp.exp), lambda A, y, **_: np.exp(A @ y)),
    "applyfunc, softplus": ((-A * y).applyfunc(softplus), lambda A, y, **_: soft(-A @ y)),
    "applyfunc, sigmoid": (A.applyfunc(sigmoid), lambda A, **_: 1 / (1 + np.exp(-A))),
    "applyfunc, a polynomial": (A.applyfunc(lambda t: t**3 - 2 * t + 1), lambda A, **_: A**3 - 2 * A + 1),
    "applyfunc, a constant": (A.applyfunc(lambda t: sp.Integer(3)), lambda A, **_: 0 * A + 3),
    "applyfunc with a scalar": (A.applyfunc(lambda t: t * lam), lambda A, lam, **_: A * lam),
    "applyfunc with a 1x1 matrix": (
        y.applyfunc(lambda t: t + (y.T * y)[0, 0]),
        lambda y, **_: y + y @ y,
    ),
    "applyfunc twice": (A.applyfunc(sp.sin).applyfunc(sp.cos), lambda A, **_: np.cos(np.sin(A))),
    "applyfunc, pieces": (
        A.applyfunc(lambda t: sp.Piecewise((t, t < 0), (2 * t, t <= 1), (sp.Integer(0), True))),
        lambda A, **_: np.where(A < 0, A, np.where(A <= 1, 2 * A, 0)),
    ),
    "applyfunc, And": (
        A.applyfunc(lambda t: sp.Piecewise((t, sp.And(t > -1, t < 1)), (1, True))),
        lambda A, **_: np.where((A > -1) & (A < 1), A, 1),
    ),
    "applyfunc, Or": (
        A.applyfunc(lambda t: sp.Piecewise((t, sp.Or(t < -1, t > 1)), (1, True))),
        lambda A, **_: np.where((A < -1) | (A > 1), A, 1),
    ),
    "Abs, Min, Max": (
        y.applyfunc(lambda t: sp.Abs(t) + sp.Max(t, lam, 0) - sp.Min(t, 1)),
        lambda y, lam, **_: np.abs(y) + np.maximum(np.maximum(y, lam), 0) - np.minimum(y, 1),
    ),
    "Transpose": (A.T, lambda A, **_: A.T),
    "Transpose of a function": (A.applyfunc(sp.exp).T, lambda A, **_: np.exp(A).T),
    "Transpose of a product": ((A * B).T * b, lambda A, B, b, **_: (A @ B).T @ b),
    "Transpose of a column": (b.T * A, lambda b, A, **_: b @ A),
    "Trace": (sp.Trace(A.T * A), lambda A, **_: np.sum(A * A)),
    "Trace of a 1x1 matrix": (sp.Trace(y.T * y), lambda y, **_: y @ y),
    "Trace of an outer product": (sp.Trace(y * y.T), lambda y, **_: y @ y),
    "DotProduct": (DotProduct(y, r), lambda y, r, **_: y @ r),
    "DiagMatrix": (A * DiagMatrix(y), lambda A, y, **_: A * y),
    "DiagMatrix of a row": (DiagMatrix(r), lambda r, **_: np.diag(r)),
    "DiagMatrix of a product": (A.T * DiagMatrix(A * y) * A, lambda A, y, **_: A.T @ np.diag(A @ y) @ A),
    "DiagonalMatrix": (DiagonalMatrix(B), lambda B, **_: np.diag(np.diag(B))),
    "DiagonalOf": (DiagonalOf(B), lambda B, **_: np.diag(B)),
    "Identity": (B + lam * sp.Identity(n), lambda B, lam, **_: B + lam * np.eye(len(B))),
    "ZeroMatrix": (sp.MatAdd(A, sp.ZeroMatrix(m, n)), lambda A, **_: A),
    "OneMatrix": (OneMatrix(1, m) * A * OneMatrix(n, 1), lambda A, **_: A.sum()),
    "OneMatrix alone": (OneMatrix(m, n), lambda A, **_: np.ones_like(A)),
    "FunctionMatrix": (
        sp.FunctionMatrix(m, n, sp.Lambda((i, j), A[i, j] * y[j, 0] + b[i, 0])),
        lambda A, y, b, **_: A * y + b[:, None],
    ),
    "an entry of a 1x1 product": ((y.T * B * y)[0, 0], lambda B, y, **_: y @ B @ y),
    "an entry that is not written out": (
        sp.matrices.expressions.matexpr.MatrixElement(y.T * B * y, 0, 0),
        lambda B, y, **_: y @ B @ y,
    ),
    "entries of a product": (sp.Sum((A * y)[i, 0] ** 2, over_m), lambda A, y, **_: np.sum((A @ y) ** 2)),
    "entries of DiagMatrix": (sp.Sum((A * DiagMatrix(y))[i, j], over_m, over_n), lambda A, y, **_: np.sum(A * y)),
    "entries of a function": (
        (OneMatrix(1, m) * (A * y).applyfunc(sp.exp))[0, 0],
        lambda A, y, **_: np.exp(A @ y).sum(),
    ),
    "Sum of MatrixElement": (sp.Sum(A[i, j] * y[j, 0], over_n, over_m), lambda A, y, **_: (A @ y).sum()),
    "Sum of Indexed": (sp.Sum(IA[i, j] * Ib[i], over_m, over_n), lambda A, b, **_: (b @ A).sum()),
    "Sum from 1": (sp.Sum(Iy[j] ** 2, (j, 1, n)), lambda y, **_: y @ y),
    "Sum with Idx": (sp.Sum(Iy[sp.Idx("q", n)], sp.Idx("q", n)), lambda y, **_: y.sum()),
    "Sum in a function": (
        sp.Sum(sp.log(sp.Sum(sp.exp(IA[i, j]), over_n)), over_m),
        lambda A, **_: np.log(np.exp(A).sum(axis=1)).sum(),
    ),
    "Sum of what does not have its index": (sp.Sum(lam, over_m, over_n), lambda A, lam, **_: A.size * lam),
    "Sum of a diagonal": (sp.Sum(B[j, j], over_n), lambda B, **_: np.trace(B)),
    "Sum with one index for two sums": (
        sp.Sum(Iy[j] * sp.Sum(Iy[j], over_n), over_n),
        lambda y, **_: y.sum() ** 2,
    ),
    "KroneckerDelta": (
        sp.Sum(B[j, k] * sp.KroneckerDelta(j, k), over_n, over_k),
        lambda B, **_: np.trace(B),
    ),
    "a mean": (sp.Sum(Ib[i], over_m) / m, lambda b, **_: b.mean()),
    "dimensions as numbers": (m * lam + n**2, lambda A, lam, **_: A.shape[0] * lam + A.shape[1] ** 2),
    "constants": (sp.pi * lam + sp.E, lambda lam, **_: np.pi * lam + np.e),
    "functions of scalars": (
        sp.sqrt(1 + lam**2) + sp.Abs(lam) + sp.Max(lam, 0) + sp.sin(lam) / (2 + sp.cos(lam)),
        lambda lam, **_: np.sqrt(1 + lam**2) + abs(lam) + max(lam, 0) + np.sin(lam) / (2 + np.cos(lam)),
    ),
    "a power of two scalars": (sp.Pow(2, lam), lambda lam, **_: 2**lam),
    "a Float": (0.1 * lam, lambda lam, **_: 0.1 * lam),
}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", NODES)
def test_nodes_against_numpy(name: str, sizes: Mapping[str, int]) -> None:
    expression, expected = NODES[name]
    arrays = arrays_of(sizes)
    found = number(of(expression), arrays, sizes)
    wanted = np.asarray(expected(**arrays))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_a_float_means_its_exact_value() -> None:
    assert of(0.1 * lam).terms[0].coefficient == Fraction(0.1)
    assert of(sp.Rational(1, 10) * lam).terms[0].coefficient == Fraction(1, 10)


def test_rows_columns_and_scalars_have_the_rank_that_they_look_like() -> None:
    assert [of(e).rank for e in (A, y, y.T, r, r.T, s, y.T * y, sp.Trace(B))] == [2, 1, 1, 1, 1, 0, 0, 0]


# ---- the traps of others ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_gradient_of_a_logistic_loss(sizes: Mapping[str, int]) -> None:
    loss = sp.Trace(OneMatrix(1, m) * (-sp.HadamardProduct(b, A * y)).applyfunc(softplus)) / m
    arrays = arrays_of(sizes)
    z = arrays["b"] * (arrays["A"] @ arrays["y"])
    wanted = arrays["A"].T @ (-arrays["b"] / (1 + np.exp(z))) / sizes["m"]
    np.testing.assert_allclose(number(gradient(of(loss), LEAVES["y"]), arrays, sizes), wanted, rtol=1e-12)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_gradient_of_traces_is_not_zero(sizes: Mapping[str, int]) -> None:
    loss = sp.Trace(y.T * y) + sp.Trace((A * y).T * (A * y))
    arrays = arrays_of(sizes)
    wanted = 2 * arrays["y"] + 2 * arrays["A"].T @ arrays["A"] @ arrays["y"]
    np.testing.assert_allclose(number(gradient(of(loss), LEAVES["y"]), arrays, sizes), wanted, rtol=1e-12)


# ---- the same as text -------------------------------------------------------------------------------------------

ones_m = OneMatrix(1, m)
TEXTS = {
    "mean(softplus(-b*(A @ y)))": (ones_m * (-sp.HadamardProduct(b, A * y)).applyfunc(softplus))[0, 0] / m,
    "y @ y": sp.Trace(y.T * y),
    "sum((A @ y - b)**2)/2": ((A * y - b).T * (A * y - b))[0, 0] / 2,
    "exp(lam)*y @ K @ y": sp.exp(lam) * sp.Trace(y.T * K * y),
    "trace(A.T @ A)": sp.Trace(A.T * A),
    "sum(A)": sp.Sum(IA[i, j], over_m, over_n),
    "sum(logsumexp(A, axis=1))": sp.Sum(sp.log(sp.Sum(sp.exp(A[i, j]), over_n)), over_m),
    "sum(diag(B)*y)": sp.Sum(B[j, j] * Iy[j], over_n),
    "sum(max(y, 0, lam))": sp.Sum(sp.Max(Iy[j], 0, lam), over_n),
    "sum(min(lam, y))": sp.Sum(sp.Min(Iy[j], lam), over_n),
    "sum(Piecewise((y, y < 0), (y**2, True)))": sp.Sum(sp.Piecewise((Iy[j], Iy[j] < 0), (Iy[j] ** 2, True)), over_n),
    "sum(A @ diag(y) @ B)": sp.Trace(ones_m * A * DiagMatrix(y) * B * OneMatrix(n, 1)),
    "sum(outer(b, y)*A)": sp.Sum(sp.HadamardProduct(b * y.T, A)[i, j], over_m, over_n),
    "1/(1 + y @ y)**2": (1 + sp.Trace(y.T * y)) ** -2,
    "sum(exp(A).T @ b)": sp.Trace(OneMatrix(1, n) * A.applyfunc(sp.exp).T * b),
    "sum(2**y)": sp.Trace(OneMatrix(1, n) * y.applyfunc(lambda t: 2**t)),
    "mean((A - outer(b, y))**2)": sp.Sum((A[i, j] - Ib[i] * Iy[j]) ** 2, over_m, over_n) / (m * n),
    "sqrt(lam) + pi + E": sp.sqrt(lam) + sp.pi + sp.E,
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_formula_as_text(text: str) -> None:
    leaves = {name: Tensor.leaf(leaf) for name, leaf in LEAVES.items()}
    assert of(TEXTS[text]) == Reading(leaves).tensor(array_tree(text, set(LEAVES)))


# ---- what is printed --------------------------------------------------------------------------------------------

DECLARED = {leaf.name: leaf for leaf in (*X, *Y, *DATA)}


@given(
    st.sampled_from(sorted(LANGUAGES)).flatmap(
        lambda language: st.sampled_from([(), ("n",), ("m", "n")]).flatmap(
            lambda dims: expressions(dims, depth=2, functions=LANGUAGES[language])
        )
    ),
    points(variables=()),
)
def test_what_is_printed_reads_back(drawn: Any, at: Point) -> None:
    """The same tensor; where arguments of min and max, or rows and columns in parentheses, changed places, its equal."""
    again = read(to_sympy(drawn.tensor), DECLARED, field="f")
    assert again.dims == drawn.tensor.dims
    assert read(to_sympy(again), DECLARED, field="f") == again
    if again == drawn.tensor:
        return
    arrays = {leaf.name: leaf for leaf in drawn.tensor.leaves}
    assert {leaf.name for leaf in again.leaves} <= arrays.keys()
    full = Point(at.sizes, (), {name: at.arrays.get(name, _filled(leaf, at.sizes)) for name, leaf in arrays.items()})
    graph = full.graph()
    one, two = (full.lowered(graph, tensor) for tensor in (drawn.tensor, again))
    try:  # in balls: SymPy may have used what only the true functions obey, such as log(m*E) = log(m) + 1
        pairs = list(zip(values(graph, one.values(), {}, BALLS), values(graph, two.values(), {}, BALLS), strict=True))
        assert all(same(a, c) for a, c in pairs)
    except NoNumber:
        pass


def test_sympy_may_use_what_functions_obey() -> None:
    """log(sum(exp(1))) over m entries comes back as log(m) + 1."""
    leaves = {name: Tensor.leaf(leaf) for name, leaf in LEAVES.items()}
    again = read(to_sympy(Reading(leaves).tensor(array_tree("logsumexp(b*b**-1)", set(LEAVES)))), DECLARED, field="f")
    assert str(to_sympy(again)) == "log(m) + 1"


def _filled(leaf: Leaf, sizes: Mapping[str, int]) -> Any:
    shape = [sizes[dim] for dim in leaf.dims]
    array = np.empty(shape, object)
    for count, place in enumerate(np.ndindex(*shape)):
        array[place] = Fraction(count + 2, 3 + len(leaf.name))
    return array


# ---- declarations -----------------------------------------------------------------------------------------------


def test_declarations() -> None:
    assert declare(sp.MatrixSymbol("W", 3, n)) == ("W", (3, "n"))
    assert declare(sp.MatrixSymbol("W", 1, n)) == ("W", ("n",))
    assert declare(sp.MatrixSymbol("W", 1, 1)) == declare(sp.Symbol("W", positive=True)) == ("W", ())
    assert declare(sp.IndexedBase("T", shape=(m, 1))) == ("T", ("m", 1))
    for bad in (sp.IndexedBase("T"), sp.MatrixSymbol("T", n + 1, 2), A * y, A.T, sp.Integer(1)):
        with pytest.raises(InvalidProblem):
            declare(bad)


def test_arrays_in_an_expression() -> None:
    found = arrays_in(sp.Trace((A * y).applyfunc(lambda t: t * sp.Sum(Ib[i], over_m)).T * (A * y)) + lam)
    assert found == {"A": A, "y": y, "b": Ib}
    with pytest.raises(InvalidProblem, match="both called y"):
        arrays_in(sp.Trace(y.T * y) + sp.Trace(sp.MatrixSymbol("y", m, 1).T * b))
    with pytest.raises(InvalidProblem, match="both called y"):
        arrays_in(sp.Trace(y.T * y) + sp.Sum(Iy[j], over_n))


def test_whole_numbers_as_dimensions() -> None:
    W, z = sp.MatrixSymbol("W", 3, 2), sp.MatrixSymbol("z", 2, 1)
    leaves = {"W": Leaf("W", ("k", "p"), "data"), "z": Leaf("z", ("p",), "y")}
    formula = read(sp.Trace(z.T * (W.T * W + sp.Identity(2)) * z) + sp.Sum(z[i, 0], (i, 0, 1)), leaves, field="f")
    arrays = {"W": np.array([[1, 2], [3, 4], [5, 6.0]]), "z": np.array([1, -2.0])}
    wanted = arrays["z"] @ (arrays["W"].T @ arrays["W"] + np.eye(2)) @ arrays["z"] + arrays["z"].sum()
    assert number(formula, arrays, {"k": 3, "p": 2}) == wanted


def test_other_letters_than_sympy_has() -> None:
    """The letters of the declared arrays count; SymPy's dimensions are found by where they stand."""
    formula = read(sp.Trace(y.T * (sp.Identity(n) + B) * y) / n, {
        "y": Leaf("y", ("q",), "y"), "B": Leaf("B", ("q", "q"), "data"),
    }, field="f")  # fmt: skip
    assert {dim for term in formula.terms for dim, _ in term.sizes} == {"q"}


# ---- refusals ---------------------------------------------------------------------------------------------------

f = sp.Function("f")
long = sp.MatrixSymbol("y", n, 1)
REFUSED: dict[str, tuple[Any, str, str]] = {
    "Inverse": (y.T * B.I * y, "Inverse is not part", "lower level"),
    "a negative MatPow": (sp.MatPow(B, sp.Integer(-2), evaluate=False), "MatPow .* exponent -2", "HadamardPower"),
    "a root of a matrix": (sp.MatPow(B, sp.Rational(1, 2)), "MatPow .* exponent 1/2", "HadamardPower"),
    "a large power of a matrix": (B**1000, "MatPow .* exponent 1000", "up to 32"),
    "Determinant": (sp.Determinant(B), "Determinant is not part", "scalars"),
    "KroneckerProduct": (sp.KroneckerProduct(A, B), "KroneckerProduct is not part", "data"),
    "MatrixSlice": (B[0:2, 0:1], "MatrixSlice is not part", "array of its own"),
    "BlockMatrix": (sp.BlockMatrix([[A, A]]), "BlockMatrix is not part", "each block"),
    "numbers": (sp.ImmutableMatrix([[1, 2], [3, 4]]), "ImmutableDenseMatrix is not part", "data"),
    "Derivative": (sp.Derivative(sp.sin(lam), lam), "Derivative is not part", "for you"),
    "Integral": (sp.Integral(lam, (lam, 0, 1)), "Integral is not part", "Sum"),
    "Product": (sp.Product(Iy[j], over_n), "Product is not part", "exp of a Sum"),
    "an unknown function": (f(lam), "f is not part", "HadamardProduct"),
    "gamma": (y.applyfunc(sp.gamma), "gamma is not part", "what there is"),
    "Eq": (sp.Piecewise((lam, sp.Eq(lam, 1)), (0, True)), "Equality is not part", "<="),
    "i": (sp.I * lam, "contains I", "real"),
    "oo": (sp.oo, "contains oo", "finite"),
    "nan": (sp.nan, "contains nan", "finite"),
    "GoldenRatio": (sp.GoldenRatio * lam, "contains GoldenRatio", "pi and E"),
    "not declared": (sp.Symbol("mu") * lam, "mu is not declared", "declare it"),
    "nearly declared": (sp.Symbol("lamb"), "lamb is not declared", "did you mean lam"),
    "an array not declared": (sp.Trace(sp.MatrixSymbol("Q", n, n)), "Q is not declared", "declare it"),
    "an array as a number": (sp.Symbol("y"), r"y has 0 indices here, but is declared as y\[n\]", "dimensions"),
    "a matrix as a column": (sp.MatrixSymbol("A", m, 1), r"A has 1 indices here, but is declared as A\[m, n\]", ""),
    "a transposed declaration": (sp.MatrixSymbol("A", n, m), r"the dimension n here, .* A\[m, n\]", "same shape"),
    "too few indices": (sp.Sum(sp.IndexedBase("A")[i], over_m), r"A has 1 indices here, but", ""),
    "a single entry": (y[0, 0], "has the index 0", "by itself"),
    "a single Indexed": (Iy[0], "has the index 0", "by itself"),
    "a shifted entry": (sp.Sum(Iy[j + 1] - Iy[j], over_n), r"has the index j \+ 1", "by itself"),
    "an index along 1": (sp.Sum(y[j, j], over_n), "has the index j", "0 along"),
    "a part of a range": (sp.Sum(Iy[j], (j, 0, n - 2)), "n - 1 is no dimension", "known: m, n"),
    "a range from 2": (sp.Sum(Iy[j], (j, 2, n)), r"a Sum over \(j, 2, n\)", "full ranges"),
    "a range of another dimension": (sp.Sum(Iy[i], over_m), "runs along the dimension n", "full ranges"),
    "a sum over nothing known": (sp.Sum(lam, (j, 0, k - 1)), "k is no dimension", "known"),
    "an index that is not summed": (Iy[j] ** 2, "the index j is not summed", "Sum"),
    "an index as a number": (sp.Sum(j * Iy[j], over_n), "the index j stands as a number", "brackets"),
    "a matrix in a function": (sp.exp(B, evaluate=False), "exp of a matrix", "applyfunc"),
    "a matrix in a power": (sp.Pow(2, B, evaluate=False), "Pow of a matrix", "entry by entry"),
    "a division by zero": (sp.Pow(sp.Sum(lam - lam, over_n) + sp.Sum(Iy[j], over_n) - sp.Sum(Iy[k], over_k), -1), "zero", ""),
    "a hidden zero": (1 / (sp.Trace(y.T * y) - sp.Sum(y[j, 0] ** 2, over_n)), "division by zero", ""),
    "a power of a negative number": (sp.Pow(-2, lam), "not a real number", ""),
    "a huge exponent": (lam**100_000, "a power of 100000", "10000"),
    "a huge Float": (sp.Float("1e5000") * lam, "more than 1000 digits", ""),
    "a dimension that nobody has": (sp.Identity(k), "k is no dimension", "known"),
    "a Lambda": (sp.Lambda(lam, lam**2), "Lambda is not part", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    expression, message, hint = REFUSED[name]
    with pytest.raises(InvalidProblem, match=message) as caught:
        of(expression)
    assert caught.value.message.startswith("f: ")
    assert hint in (caught.value.hint or "")
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize("value", [sp.Matrix([[1]]), "y", 3, None], ids=str)
def test_what_is_no_expression(value: Any) -> None:
    with pytest.raises(InvalidProblem, match="f must be a SymPy expression"):
        of(value)


def test_letters_that_do_not_agree() -> None:
    """SymPy has one n, the declarations two letters."""
    leaves = {"y": Leaf("y", ("p",), "y"), "B": Leaf("B", ("q", "q"), "data")}
    with pytest.raises(InvalidProblem, match=r"the dimensions (q and p|p and q) do not agree"):
        read(sp.Trace(y.T * B * y), leaves, field="f")
    with pytest.raises(InvalidProblem, match="is called p and q"):
        read(sp.Trace(y.T * y) + sp.Trace(B * sp.Identity(n)) + sp.Trace(sp.Identity(n)), leaves, field="f")


# ---- expressions that are meant to hurt -------------------------------------------------------------------------


@pytest.mark.slow
def test_deep_expressions() -> None:
    for deep in (
        reduce(lambda z, _: sp.sin(z, evaluate=False), range(5000), lam),
        reduce(lambda z, _: sp.Add(sp.Mul(z, lam, evaluate=False), 1, evaluate=False), range(5000), lam),
        reduce(lambda z, _: ElementwiseApplyFunction(sp.Lambda(lam, sp.sin(lam)), z), range(120), A),
    ):
        with pytest.raises(InvalidProblem, match="nested too deeply"):
            of(deep)


def test_functions_inside_functions() -> None:
    def nested(depth: int) -> Any:
        inside = (y.T * y)[0, 0] if not depth else sp.Trace(OneMatrix(1, n) * nested(depth - 1))
        return y.applyfunc(lambda t: t * inside)

    of(nested(3))
    with pytest.raises(InvalidProblem, match="nested too deeply"):
        of(nested(10))


@pytest.mark.slow
def test_wide_expressions() -> None:
    with pytest.raises(InvalidProblem, match="more than 20000 parts"):
        of(sp.Add(*(sp.Dummy() for _ in range(20_000)), evaluate=False))


def test_products_that_would_fill_the_memory() -> None:
    symbols = [sp.MatrixSymbol(f"B{c}", n, n) for c in range(30)]
    leaves = {symbol.name: Leaf(symbol.name, ("n", "n"), "data") for symbol in symbols}
    with pytest.raises(InvalidProblem, match="multiplies out to"):
        read(sp.Trace(sp.MatMul(*(sp.Identity(n) + symbol for symbol in symbols))), leaves, field="f")
    with pytest.raises(InvalidProblem, match="a product of 210 factors"):
        read(sp.Trace(sp.MatMul(*(symbols * 7))), leaves, field="f")


def test_text_is_never_read_as_code() -> None:
    """A name is a name, whatever it says."""
    name = "__import__('os').system('true')"
    symbol = sp.MatrixSymbol(name, n, 1)
    assert of(lam) == of(lam)
    assert read(sp.Trace(symbol.T * symbol), {name: Leaf(name, ("n",), "y")}, field="f").leaves
