"""The language of arrays: what a text means, which shapes fit, and what is refused where."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
import sympy as sp
from array_texts import A32, SHAPES, as_python, b3, texts, value
from helpers import calls_of
from hypothesis import given, settings

from bilevel_sym import BilevelProblem, MinimaxProblem
from bilevel_sym.arrays.tensor import Tensor
from bilevel_sym.errors import InvalidProblem, UnsafeExpression


def stated(text: str, sizes: Mapping[str, int], rng: np.random.Generator) -> tuple[BilevelProblem, dict[str, Any]]:
    """A problem with the text as f, whose data are those of the names that it has."""
    arrays: dict[str, Any] = {
        name: np.round(rng.uniform(-1, 1, [sizes[dim] for dim in dims]), 3) for name, dims in SHAPES.items()
    }
    g = "y @ y + sum(W**2) + 0*(b @ A @ y) + 0*(y @ K @ y) + 0*(c @ W @ y) + 0*s + x @ x + w**2"
    data = {name: arrays[name] for name in ("A", "b", "K", "c", "s")}
    return BilevelProblem(text, g, "x[n], w", "y[n] W[p, n]", data=data), arrays


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    text=st.sampled_from([1, 2, 3, 3]).flatmap(lambda depth: texts((), depth)),
    sizes=st.fixed_dictionaries({"m": st.integers(1, 4), "n": st.integers(1, 4), "p": st.integers(1, 4)}),
    seed=st.integers(0, 1000),
)
def test_a_text_means_what_it_means_in_numpy(text: str, sizes: dict[str, int], seed: int) -> None:
    problem, arrays = stated(text, sizes, np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        expected = as_python(text, arrays)
        found = value(problem.array_model.f, arrays, {name: sizes[name] for name in sizes})
    assert {name: sizes[name] for name in problem.dimensions} == problem.dimensions
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "text",
    [
        "y @ y/20", "2*y @ y", "-y @ y**2", "y @ A.T @ b", "b @ A @ y", "2**y @ y", "y @ -y", "y @ y**2/2 - 1 + s",
        "sum(-y**2)", "sum(2/y/3)", "sum(y - y - y)", "sum(y)**2", "sum(diag(K))", "sum(diag(y))", "trace(outer(y, y))",
        "sum(A.T.T)", "sum(Piecewise((y, y < 0), (2, y <= 0.5), (-y, True)))", "sum(min(y, 0))", "sum(max(A, 0, s))",
        "sum(Piecewise((1, s < 2), (y, True)))", "sum(A, axis = 0) @ y", "1.5", "sum(0*y + 2)", "mean(A)", "sum(y/y)",
        "sum(outer(b**0, y) + A)", "n*s", "sum(y)/n", "E**s", "pi*s", "sum(y**0.5*0 + 1)", "s**s", "2**s", "sum(s**y)",
        "sum((A @ y)*(A @ y)*(A @ y)*(A @ y)*(A @ y)*(A @ y)*(A @ y)*(A @ y)*(A @ y)*(A @ y)*(A @ y)*(A @ y))",
        "sum(sum(A, axis=1)**8)", "trace(K @ K @ K @ K @ K @ K @ K @ K @ K @ K)", "sqrt(4) + 8**(1/3) + (1/4)**(-3/2)",
    ],
)  # fmt: skip
def test_precedence_and_corners(text: str) -> None:
    sizes = {"m": 2, "n": 3, "p": 2}
    problem, arrays = stated(text, sizes, np.random.default_rng(5))
    arrays = {name: np.abs(array) + 0.1 for name, array in arrays.items()}
    with np.errstate(all="ignore"):
        expected = as_python(text, {**arrays, "n": 3})
    np.testing.assert_allclose(value(problem.array_model.f, arrays, sizes), expected, rtol=1e-10)


def formula(text: str, **data: Any) -> Tensor:
    """A text over y[n], y2[n], A[m, n], K[n, n] and a scalar x, as a tensor."""
    shapes: dict[str, Any] = {"A": "m, n", "K": "n, n", "b": "m", **data}
    used = {name: shape for name, shape in shapes.items() if f"{name}" in text}
    return BilevelProblem(text, "y @ y + y2 @ y2", "x", "y[n] y2[n]", data=used).array_model.f


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("y @ y2", "dot(y2, y)"), ("y @ y2", "sum(y*y2)"), ("(A @ y) @ b", "y @ (A.T @ b)"), ("y @ K @ y2", "y2 @ K.T @ y"),
        ("trace(K @ K.T)", "sum(K*K)"), ("sum(y)/n", "mean(y)"), ("min(x, 1, 2)", "min(1, x)"), ("x/3", "x*(1/3)"),
        ("0.1*x", "x/10"), ("E**x", "exp(x)"), ("x**0.5", "sqrt(x)"), ("sum(diag(y) @ y2)", "y @ y2"),
        ("log(sum(exp(y)))", "logsumexp(y)"), ("sum(log(sum(exp(A), axis=1)))", "sum(logsumexp(A, axis=1))"),
        ("log(exp(x) + 1)", "softplus(x)"), ("sum(A, axis=1) @ b", "b @ sum(A, axis=1)"), ("trace(outer(y, y2))", "y @ y2"),
        ("sum(y + x)", "sum(y) + n*x"), ("max(y @ y, x)", "max(x, y @ y)"), ("x - x + 2", "2"), ("x*sum(y**0)", "x*n"),
    ],
)  # fmt: skip
def test_equal_formulas_are_equal(one: str, two: str) -> None:
    assert formula(one) == formula(two)


@pytest.mark.parametrize(
    ("one", "two"), [("b @ A @ y", "b @ A @ y2"), ("sum(K @ y)", "sum(K.T @ y)"), ("min(x, 1)", "max(x, 1)")]
)
def test_different_formulas_differ(one: str, two: str) -> None:
    assert formula(one) != formula(two)


def test_numbers_are_exact() -> None:
    (term,) = formula("0.1*x").terms
    assert term.coefficient == Fraction(1, 10)
    problem = BilevelProblem("a*x", "y @ y", "x", "y[n]", parameters={"a": "1/3"})
    assert problem.array_model.f.terms[0].coefficient == Fraction(1, 3)
    assert formula("1/3*x + 2/3*x").terms[0].coefficient == 1


def test_a_symbolic_parameter_is_a_leaf() -> None:
    problem = BilevelProblem("a*x", "y @ y", "x", "y[n]", parameters={"a": None})
    assert {leaf.name: leaf.role for leaf in problem.array_model.f.leaves} == {"a": "parameter", "x": "x"}
    assert problem.parameters == {"a": None}


# ---- what is refused, with a caret ----------------------------------------------------------------------------------


def refusal(text: str, **more: Any) -> UnsafeExpression:
    data = {"A": A32, "b": b3, **more}
    used = {name: array for name, array in data.items() if name in text}
    with pytest.raises(UnsafeExpression) as caught:
        BilevelProblem(text, "y @ y", "x", "y[n]", data=used or None)
    return caught.value


@pytest.mark.parametrize(
    ("text", "column", "message", "hint"),
    [
        ("sum(A*y)", 6, "* goes entry by entry, and the shapes [3, 2] and [n] differ", "diag(y) @ A scales the rows of A"),
        ("sum(y*A)", 6, "* goes entry by entry, and the shapes [n] and [3, 2] differ", "A @ diag(y) the columns"),
        ("sum((A + 1)*y)", 12, "the shapes [3, 2] and [n]", "diag(y) @ A scales"),
        ("sum(A/b)", 6, "the shapes [3, 2] and [3]", "diag(1/b) @ A"),
        ("sum(A + b)", 7, "+ goes entry by entry", "outer(b**0, w)"),
        ("sum(A - A.T)", 7, "- goes entry by entry, and the shapes [3, 2] and [2, 3] differ", "transpose one of them"),
        ("sum(A @ y) + b @ y", 16, "[3] @ [n=2] does not fit: 3 and n=2 differ", "last axis of A and the first of B"),
        ("sum(A @ b)", 7, "[3, 2] @ [3] does not fit: 2 and 3 differ", "transpose the left one"),
        ("sum(b @ A.T)", 7, "[3] @ [2, 3] does not fit", "transpose the right one"),
        ("x @ y", 3, "@ wants arrays on both sides: a scalar @ [n]", "write * to multiply with a scalar"),
        ("sum(y @ 2)", 7, "@ wants arrays on both sides: [n] @ a scalar", "write * to multiply"),
        ("x @ 2", 3, "a scalar @ a scalar", "write *"),
        ("A @ y", 1, "f is an array of shape [3], and must be one number", "sum(...)"),
        ("y**2", 2, "f is an array of shape [n]", "mean(...)"),
        ("sum(y.T)", 6, ".T wants a matrix, but has a vector of shape [n]", "outer(a, b)"),
        ("x.T", 2, ".T wants a matrix, but has a scalar", None),
        ("sum(b**y) + sum(A @ y)", 19, "[3, 2] @ [n=3] does not fit: 2 and n=3 differ", "transpose the left one"),
        ("sum(x)", 1, "sum wants an array, but has a scalar", "leave sum() out"),
        ("mean(2)", 1, "mean wants an array", None),
        ("sum(y, axis=1)", 1, "there is no axis=1 of a vector of shape [n]", "the axis of a vector is 0"),
        ("sum(A, axis=2)", 8, "axis is 0 or 1", "axis=0 sums over rows"),
        ("sum(A, axis=-1)", 8, "axis is 0 or 1", None),
        ("sum(A, axis=0, axis=1)", 14, ", stands where ) to close sum(", None),
        ("sum(A, 1)", 1, "sum takes one argument, and got 2", "axis=0"),
        ("sum()", 5, ") stands where a number, a name or ( should", None),
        ("sin(y, axis=0)", 8, "sin takes no axis", "sum, mean, logsumexp"),
        ("sum(A, keepdims=1)", 16, "assignment is not accepted", "the only keyword is axis=0 or axis=1"),
        ("dot(A, A)", 1, "dot wants vectors, but has a matrix of shape [3, 2]", "sum(A*B)"),
        ("dot(y)", 1, "dot takes two arguments, and got 1", None),
        ("outer(x, y)", 1, "outer wants vectors, but has a scalar", None),
        ("trace(A)", 1, "trace wants a square matrix, but has one of shape [3, 2]", None),
        ("trace(y)", 1, "trace wants a matrix, but has a vector", None),
        ("sum(diag(A))", 5, "diag wants a square matrix", None),
        ("diag(x)", 1, "diag wants a vector or a matrix, but has a scalar", None),
        ("sum(min(y))", 5, "min takes 2 to 50 arguments, and got 1", "entry by entry"),
        ("sum(max(A, b))", 5, "max goes entry by entry, and the shapes [3, 2] and [3] differ", None),
        ("sum(Piecewise((A, b < 0), (1, True)))", 21, "Piecewise goes entry by entry", None),
        ("sum(Piecewise((1, A < b), (1, True)))", 21, "< goes entry by entry", None),
        ("Piecewise((y, Piecewise((y, True)) < 0), (1, True))", 36, "must not contain a Piecewise", None),
        ("sum(y[0])", 6, "subscripts and lists are not accepted", "formulas take whole arrays"),
        ("sum(A.t)", 6, "attributes are not accepted", None),
        ("sum(A.T2)", 6, "attributes are not accepted", None),
        ("sum(A.Tx)", 6, "attributes are not accepted", None),
        ("sum(A.shape)", 6, "attributes are not accepted", None),
        ("y.__class__", 2, "attributes are not accepted", None),
        ("sum(y; y)", 6, "only one expression is accepted", None),
        ("sum(y := 2)", 7, "assignment is not accepted", None),
        ("x = 2", 3, "assignment is not accepted", None),
        ("sum(y == y)", 7, "equality is not accepted", None),
        ("sum(\uff59)", 5, "U+FF59 (fullwidth latin small letter y) is not accepted", "plain ASCII"),
        ("sum(y\0)", 6, "U+0000", None),
        ("sum(y) @@ 2", 9, "@ stands where a number", None),
        ("x^2", 2, "^ is not an operator", "@ for products of matrices"),
        ("axis=0", 1, "axis= stands where a number", None),
        ("sum", 4, "the text ends where ( behind the function sum should stand", None),
        ("norm(y)", 1, "unknown function norm", "sqrt(sum(a**2))"),
        ("suum(y)", 1, "unknown function suum", "did you mean sum?"),
        ("y(2)", 1, "y is not a function", None),
        ("sum(z)", 5, "unknown name z", None),
        ("lambda", 1, "the word lambda is not accepted", None),
        ("1/0", 2, "division by zero", None),
        ("x/(x - x)", 2, "division by zero", None),
        ("sum(1/diag(y))", 6, "the zeros of a diagonal matrix", "diag(1/w)"),
        ("0**-1", 2, "division by zero", None),
        ("log(0)", 1, "the logarithm of zero or a negative number", "real numbers"),
        ("log(1 - pi)", 1, "the logarithm of zero or a negative number", None),
        ("sqrt(-2)", 1, "complex", None),
        ("sum((-2)**y)", 9, "the base of a variable power must be positive", None),
        ("exp(1000)", 1, "exp of a number near 1e+03", None),
        ("9**9**9", 2, "exponent is too large", None),
        ("(10**150)**3", 10, "power is too large", None),
        ("x**1001", 2, "this exponent is too large", None),
        ("log(6) - log(2) - log(3)", 1, "these constants cancel", None),
        ("Piecewise((x, 1 < 0))", 1, "not a finite real number", None),
        ("", 1, "the expression is empty", None),
        ("007", 1, "leading zeros", None),
        ("2.T", 1, "this number is spoilt", None),
        ("1e999", 1, "too large", None),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_where_it_stands(text: str, column: int, message: str, hint: str | None) -> None:
    error = refusal(text)
    assert message in error.what
    assert (error.line, error.column) == (1, column)
    assert error.source == "f"
    assert hint is None or hint in (error.hint or "")
    if text and text.isprintable():
        assert f"\n  {text}\n  {' ' * (column - 1)}^" in str(error)


def test_a_caret_stands_in_its_line() -> None:
    error = refusal("sum(y)\n + sum(A*y)")
    assert (error.line, error.column) == (2, 9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "(" * 200 + "x" + ")" * 200, "-" * 30_000 + "x", "x" + "+x" * 19_000, "x" + "*x" * 19_000, "sum(y" + "*y" * 19_000 + ")",
        "sum(" * 150 + "A" + ")" * 150, "sum(A" + ".T" * 30_000 + ")", "x" * 300_000, "x**" * 150 + "x", "sum(" + "(diag(y) + K) @" * 40 + "y)",
        "sum(((diag(y) + K)**8)**8)", "sum((y + 1)**8*(y + 2)**8*(y + 3)**8)", "((n + 1)**8)**8", "x" + "/y @ y" * 5000,
        "sum(" + "*".join(f"(y + {k})" for k in range(3000)) + ")", "sum(" + "+".join(f"exp({k}*y)*sin(y)" for k in range(1, 3000)) + ")",
        "min(" + ",".join(["x"] * 60) + ")", "exp(" * 99 + "x" + ")" * 99, "trace(" + " @ ".join(["K"] * 90) + ")",
        "sum(" + "*".join(["(K @ y)"] * 45) + ")", "sum(" + "*".join(["sum(K, axis=1)"] * 90) + ")", "((1 + x)**7)**9",
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_a_hostile_text_is_built_or_refused_with_little_work(text: str) -> None:
    def read() -> None:
        with suppress(UnsafeExpression):
            BilevelProblem(text, "y @ y", "x", "y[n]", data={"K": "n, n"} if "K" in text else None)

    assert calls_of(read) < 6_000_000


# ---- dimensions -----------------------------------------------------------------------------------------------------


def dimensions(f: str, g: str, x: str, y: str, **data: Any) -> dict[str, int | None]:
    return BilevelProblem(f, g, x, y, data=data or None).dimensions


def test_use_gives_letters_to_axes_of_data() -> None:
    assert dimensions("sum(B @ y)", "sum((A @ y - b)**2)", "x", "y[n]", A=A32, b=b3, B=[[1, 2]]) == {
        "m": 3,
        "n": 2,
        "k": 1,
    }
    assert dimensions("x", "sum((A @ y - b)**2)", "x", "y[n]", b=b3, A=A32) == {"m": 3, "n": 2}
    assert dimensions("x", "sum((A @ y - b)**2)", "x", "y[n]", A="m, n", b="m") == {"m": None, "n": None}
    assert dimensions("x", "sum((A @ y - b)**2)", "x", "y[n]", A="m, n", b=b3) == {"m": 3, "n": None}
    assert dimensions("x", "sum((A @ y - b)**2)", "x", "y[2]", A=A32, b=b3) == {"m": 3, "n": 2}
    assert dimensions("x", "sum(y**2)", "x", "y[4]") == {"n": 4}
    assert dimensions("x @ y", "sum(y**2)", "x[4]", "y[n]") == {"n": 4}
    assert dimensions("sum(x)", "sum(y**2)", "x[4]", "y[5]") == {"n": 4, "p": 5}


def test_fresh_letters_are_nobody_elses() -> None:
    found = dimensions("sum(m)*sum(k) + sum(p)", "y @ y", "x", "y[q]", m=[1, 2], k=[1, 2, 3], p=[1])
    assert found == {"q": None, "r": 3, "s": 2, "t": 1}
    many = {f"d{j}": [0.0] * (j + 1) for j in range(30)}
    assert len(dimensions(" + ".join(f"sum({name})" for name in many), "y @ y", "x", "y[n]", **many)) == 31


def test_the_order_of_data_does_not_matter() -> None:
    data = {"A": A32, "b": b3, "C": [[1, 2]], "z": [4]}
    problems = [
        BilevelProblem("sum(C @ y - z)", "sum((A @ y - b)**2)", "x", "y[n]", data={name: data[name] for name in order})
        for order in (("A", "b", "C", "z"), ("z", "C", "b", "A"))
    ]
    assert problems[0] == problems[1]
    assert problems[0].digest == problems[1].digest


def test_one_letter_is_one_dimension_whoever_writes_it() -> None:
    with pytest.raises(UnsafeExpression, match=r"\[m, n=2\] @ \[m\] does not fit: n=2 and m differ"):
        BilevelProblem("sum(A @ y) + sum(A @ x)", "y @ y", "x[m]", "y[n]", data={"A": "m, 2"})


@pytest.mark.parametrize(
    ("f", "x", "y", "data", "message"),
    [
        ("x @ y", "x[m]", "y[n]", {}, r"\[m\] @ \[n\] does not fit: m and n differ"),
        ("sum(x*y)", "x[m]", "y[n]", {}, r"the shapes \[m\] and \[n\] differ"),
        ("sum(x + b) + sum(y + b)", "x[m]", "y[n]", {"b": [1, 2]}, r"the shapes \[n\] and \[m=2\] differ"),
        ("sum(x + b) + sum(x + c)", "x[m]", "y[n]", {"b": [1, 2], "c": [1]}, r"the shapes \[m=2\] and \[1\] differ"),
        ("sum(x + b) + sum(y)", "x[3]", "y[n]", {"b": [1, 2]}, r"the shapes \[3\] and \[2\] differ"),
        ("trace(K) + sum(y)", "x", "y[n]", {"K": "m, n"}, r"square matrix, but has one of shape \[m, n\]"),
    ],
)
def test_two_numbers_or_two_letters_never_meet(f: str, x: str, y: str, data: Any, message: str) -> None:
    with pytest.raises(UnsafeExpression, match=message):
        BilevelProblem(f, "y @ y", x, y, data=data or None)


def test_two_letters_of_the_same_size_stay_two() -> None:
    with pytest.raises(UnsafeExpression, match=r"p=2 and n=2 differ"):
        BilevelProblem("(x + b) @ (y + c)", "y @ y", "x[p]", "y[n]", data={"b": [1, 2], "c": [1, 2]})
    problem = BilevelProblem("x @ A @ y", "y @ y", "x[p]", "y[n]", data={"A": np.eye(2)})
    assert problem.dimensions == {"n": 2, "p": 2}
    assert not any(leaf.declared_symmetric for leaf in problem.array_model.f.leaves)


def test_a_matrix_that_equals_its_transpose_is_symmetric_where_its_axes_are_one() -> None:
    K = np.array([[2.0, 1.0], [1.0, 3.0]])
    for data in (K, scipy.sparse.csr_array(K), "n, n symmetric"):
        problem = BilevelProblem("x", "y @ K @ y", "x", "y[n]", data={"K": data})
        assert [leaf.symmetric for leaf in problem.array_model.g.leaves if leaf.name == "K"] == [True]
    for data in (np.array([[2.0, 1.0], [1.0 + 1e-15, 3.0]]), "n, n"):
        problem = BilevelProblem("x", "y @ K @ y", "x", "y[n]", data={"K": data})
        assert [leaf.symmetric for leaf in problem.array_model.g.leaves if leaf.name == "K"] == [False]


def test_an_unknown_dimension_is_named_where_a_number_is_needed() -> None:
    problem = BilevelProblem("sum(x)", "y @ y", "x[p]", "y[n]")
    with pytest.raises(InvalidProblem, match="y has the dimension n, whose size is not known"):
        problem.n  # noqa: B018
    with pytest.raises(InvalidProblem, match="x has the dimension p"):
        problem.d  # noqa: B018
    with pytest.raises(InvalidProblem, match="the dimension"):
        problem.lowered()


# ---- declarations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "names", "d"),
    [
        ("x[3]", ["x"], 3), ("lam, W[2, 3]", ["lam", "W"], 7), ("lam W[2,3]  v[ 4 ]", ["lam", "W", "v"], 11),
        ("x1:4 u[2]", ["x1", "x2", "x3", "u"], 5), (["lam", "W[2, 3]"], ["lam", "W"], 7), ("a,b,c[1]", ["a", "b", "c"], 3),
        ("W[2 3]", ["W"], 6), ("W [2, 3] , a", ["W", "a"], 7),
    ],
)  # fmt: skip
def test_declarations(x: Any, names: list[str], d: int) -> None:
    problem = BilevelProblem("sum(y)", "y @ y", x, "y[n]")
    assert [symbol.name for symbol in problem.x] == names
    assert problem.d == d
    assert problem.is_array
    assert pickle.loads(pickle.dumps(problem)) == problem


def test_variables_are_symbols_of_sympy() -> None:
    problem = BilevelProblem("sum(W @ y) + lam", "y @ y", "lam, W[p, n]", "y[n]")
    lam, W = problem.x
    (y,) = problem.y
    assert isinstance(lam, sp.Symbol)
    assert isinstance(W, sp.MatrixSymbol)
    assert [str(size) for size in (*W.shape, *y.shape)] == ["p", "n", "n", "1"]
    assert {W, y} <= problem.f.free_symbols


@pytest.mark.parametrize(
    ("x", "column", "message"),
    [
        ("x[n", 2, "this bracket is not closed"), ("x]", 2, "a bracket stands where a name should"), ("x[]", 2, "empty"),
        ("[n]", 1, "a bracket stands where a name should"), ("x[n, m, k]", 3, "at most 2 axes, and this has 3"),
        ("x[0]", 3, "1 to 1,000,000,000 entries"), ("x[9999999999999]", 3, "1 to"), ("x[-1]", 3, "'-1' is not a name"),
        ("x[n+1]", 3, "'n+1' is not a name"), ("x[sin]", 3, "already has a meaning"), ("x[sum]", 3, "a function of arrays"),
        ("x[\uff4e]", 3, "is not a name"), ("x[n][m]", 5, "a bracket stands where a name should"), ("x[2.0]", 3, "is not a name"),
    ],
)  # fmt: skip
def test_a_spoilt_declaration_is_refused_where_it_stands(x: str, column: int, message: str) -> None:
    with pytest.raises(UnsafeExpression) as caught:
        BilevelProblem("sum(y)", "y @ y", x, "y[n]")
    assert message in caught.value.what
    assert (caught.value.column, caught.value.source) == (column, "x")


@pytest.mark.parametrize(
    ("x", "y", "data", "parameters", "message"),
    [
        ("x[n]", "x[n]", None, None, "x is declared twice: in x and in y"),
        ("x", "y[n]", {"x": [1]}, None, "x is declared twice: in x and in data"),
        ("x", "y[n]", None, {"y": 1}, "y is declared twice: in y and in parameters"),
        ("n", "y[n]", None, None, "n is a dimension, and declared in x as well"),
        ("mean", "y[n]", None, None, "'mean' is a function of arrays"),
        ("x", "y[n]", {"sum": [1]}, None, "'sum' is a function of arrays"),
        ("x", "y[n]", {"sin": [1]}, None, "already has a meaning"),
        ("x", "y[n]", {2: [1]}, None, "neither a name nor a symbol"),
        ("", "y[n]", None, None, "x is empty"),
        ({"x"}, "y[n]", None, None, "x is a set, which has no order"),
        (3, "y[n]", None, None, "x holds 3"),
        ("x", "y[n]", [1, 2], None, "data must map names to arrays"),
        ("x", "y[n]", {"b": [1, 2]}, None, "the data b stand in no formula"),
        ("x", "y[n]", None, [1], "parameters must map names to numbers"),
    ],
)  # fmt: skip
def test_names_that_clash_or_do_nothing_are_refused(x: Any, y: str, data: Any, parameters: Any, message: str) -> None:
    with pytest.raises(InvalidProblem) as caught:
        BilevelProblem("1", "sum(y)**2" if "y" in y else "sum(x)", x, y, data=data, parameters=parameters)
    assert message in str(caught.value)


def test_unused_data_are_named_with_a_guess() -> None:
    with pytest.raises(InvalidProblem, match="did you mean b_train"):
        BilevelProblem("sum(b_train)", "y @ y", "x", "y[n]", data={"b_train": [1], "b_trian": [2]})


def test_f_or_g_of_another_kind_is_refused() -> None:
    for bad in (None, True, [1], b"x"):
        with pytest.raises(InvalidProblem, match="f must be text"):
            BilevelProblem(bad, "y @ y", "x", "y[n]")
    assert BilevelProblem(2, "y @ y", "x", "y[n]").array_model.f.number == 2


def test_g_must_depend_on_every_array_of_y() -> None:
    with pytest.raises(InvalidProblem, match="g does not depend on z"):
        BilevelProblem("sum(z)", "y @ y + 0*sum(z)", "x", "y[n] z[n]")
    with pytest.raises(InvalidProblem, match="f does not depend on y"):
        MinimaxProblem("x", "x", "y[n]")
