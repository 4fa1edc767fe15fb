"""Tensors in matrix notation mean what they meant in indices: text, SymPy and LaTeX against loops over entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from array_notation import close, read_by_numpy, sympy_value, value_of
from array_strategies import DATA, SMOOTH, SWITCHES, X, Y, expressions
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bilevel_sym.arrays.algebra import apply, contract, logsumexp, power, subtracted
from bilevel_sym.arrays.display import entry_text, has_matrix_form, latex_name, to_latex, to_sympy, to_text
from bilevel_sym.arrays.language.reading import Reading
from bilevel_sym.arrays.language.syntax import Refused
from bilevel_sym.arrays.matrix_form import matrix_form
from bilevel_sym.arrays.normal import added, ones, scaled
from bilevel_sym.arrays.notation.nodes import IndexForm, has_indices
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.problem.parsing.array_grammar import array_tree

FUNCTIONS = (*SMOOTH, *SWITCHES, "exp", "exp", "sqrt", "root", "inverse root", "log", "asinh")
SHAPES = [(), ("n",), ("m",), ("m", "n"), ("n", "n")]
HOSTILE = (r"\\input{/etc/passwd}", "a$b", "x y", "%", "α", "a_b_c_", "}{", "^^41", "x#1", "&", "~", "aleph_x y")
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


# ---- numbers ----------------------------------------------------------------------------------------------------------


@st.composite
def points(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, int]]:
    sizes = draw(st.sampled_from([{"m": 2, "n": 3}, {"m": 3, "n": 2}, {"m": 1, "n": 2}, {"m": 2, "n": 1}]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays = {of.name: rng.uniform(0.2, 1.2, [sizes[dim] for dim in of.dims]) for of in (*X, *Y, *DATA)}
    arrays["K"] = arrays["K"] + arrays["K"].T
    return arrays, sizes


@st.composite
def tensors(draw: st.DrawFn, depth: int = 3) -> Tensor:
    drawn = draw(expressions(draw(st.sampled_from(SHAPES)), depth=depth, functions=FUNCTIONS))
    return drawn.tensor


def sensible(value: Any) -> Any:
    assume(np.all(np.isfinite(value)) and np.max(np.abs(value), initial=0.0) < 1e6)
    return value


@QUICK
@given(tensors(), points())
def test_text_means_the_tensor(tensor: Tensor, point: tuple[dict[str, Any], dict[str, int]]) -> None:
    arrays, sizes = point
    assume(not has_indices(matrix_form(tensor)) and "sum_" not in to_text(tensor))
    with np.errstate(all="ignore"):
        expected = sensible(value_of(tensor, arrays, sizes))
        text = to_text(tensor)
        found = read_by_numpy(text, arrays, sizes)
    assert close(found, expected), text


@QUICK
@given(tensors(), points())
def test_sympy_means_the_tensor(tensor: Tensor, point: tuple[dict[str, Any], dict[str, int]]) -> None:
    arrays, sizes = point
    with np.errstate(all="ignore"):
        expected = sensible(value_of(tensor, arrays, sizes))
        found = sympy_value(tensor, arrays, sizes)
    assert close(found, expected), to_sympy(tensor, sizes)


# ---- text, read back by the text door ---------------------------------------------------------------------------------

OUTSIDE = ("sigmoid'", "ones(", "eye(", "softmax(", "sign(", "sum_", " -> ", "< 0)", "<= 0)")  # what no grammar has


def read_back(text: str) -> Tensor:
    leaves = {of.name: Tensor.leaf(of) for of in (*X, *Y, *DATA)}
    letters = {letter: ones((), 1, {letter: 1}) for letter in ("m", "n")}
    return Reading(leaves | letters).tensor(array_tree(text, [*leaves, *letters]))


@QUICK
@given(tensors(), points())
def test_text_reads_back(tensor: Tensor, point: tuple[dict[str, Any], dict[str, int]]) -> None:
    """To the same values; and what was read once is printed so that it is read as the very same tensor again.

    The first tensor need not be that: (A + B).T is read as A.T + B.T, and min(b, a) as min(a, b).
    """
    text = to_text(tensor)
    assume(not any(part in text for part in OUTSIDE))
    with np.errstate(all="ignore"):
        try:
            again = read_back(text)
        except Refused as refusal:  # log(1), a constant zero: no text says it
            assume("constant" not in refusal.message)
            raise
        expected = sensible(value_of(tensor, *point))
        assert again.dims == tensor.dims
        assert close(value_of(again, *point), expected), (text, to_text(again))
    normal = to_text(again)
    assert any(part in normal for part in OUTSIDE) or read_back(normal) == again, (text, normal)


@pytest.mark.parametrize(
    ("base", "sizes", "text"),
    [(1, {"m": -1}, "1/(1/m)**(3/2)"), (1, {"m": 2}, "1/(m**2)**(3/2)"), (3, {"m": 1}, "1/(3*m)**(3/2)")],
)
def test_powers_of_numbers_keep_their_parentheses(base: int, sizes: dict[str, int], text: str) -> None:
    tensor = power(ones((), base, sizes), -3, 2)
    assert to_text(tensor) == text
    assert close(read_by_numpy(text, {}, {"m": 4}), value_of(tensor, {}, {"m": 4}))


# ---- what has no matrix form ------------------------------------------------------------------------------------------

A, W = Leaf("A", ("m", "n"), "data"), Leaf("w", ("m",), "data")
SYMMETRIC = Leaf("K", ("n", "n"), "data", declared_symmetric=True)


def test_three_matrices_on_one_index_are_printed_in_indices() -> None:
    a, w = Tensor.leaf(A), Tensor.leaf(W)
    cubed = contract([(a, "ij"), (a, "ik"), (a, "il"), (w, "i")], "jkl")
    assert isinstance(matrix_form(cubed), IndexForm)
    assert not has_matrix_form(cubed)
    assert to_text(cubed) == "[i, j, k] -> sum_l A[l, i]*A[l, j]*A[l, k]*w[l]"
    assert to_latex(cubed) == r"\left[\sum_{l} A_{l i} \, A_{l j} \, A_{l k} \, w_{l}\right]_{i j k}"
    arrays = {"A": np.arange(6.0).reshape(2, 3), "w": np.array([2.0, -1.0])}
    assert close(sympy_value(cubed, arrays, {"m": 2, "n": 3}), value_of(cubed, arrays, {"m": 2, "n": 3}))


def test_one_term_without_a_matrix_form_puts_the_whole_in_indices() -> None:
    a, square, y = Tensor.leaf(A), Tensor.leaf(SYMMETRIC), Tensor.leaf(Leaf("y", ("n",), "y"))
    cubes = contract([(a, "ai"), (a, "bi"), (a, "ci"), (a, "aj"), (a, "bj"), (a, "cj")], "ij")
    assert to_text(cubes) == "(A.T @ A)**3"  # three matrices on each index, but they come in pairs
    knot = [(square, pair) for pair in ("ia", "ib", "ic", "ab", "bc", "ca")]
    both = added([contract(knot, "i"), y], ("n",))
    assert not has_matrix_form(both)
    names, text = entry_text(both)
    assert names == ("i",)
    assert text.startswith("sum_j,k,l K[")
    assert text.endswith(" + y[i]")
    scalar = contract([*knot, (y, "i")], "")
    assert to_text(scalar).startswith("sum_")
    arrays = {"K": np.array([[1.0, 2.0], [2.0, -1.0]]), "y": np.array([0.5, 3.0])}
    for tensor in (both, scalar):
        assert close(sympy_value(tensor, arrays, {"n": 2}), value_of(tensor, arrays, {"n": 2}))


def test_index_letters_avoid_the_names_of_arrays() -> None:
    i = Leaf("i", ("n", "n", "n"), "data")
    assert to_text(Tensor.leaf(i)) == "[j, k, l] -> i[j, k, l]"


def test_functions_of_what_has_no_matrix_form_go_inside() -> None:
    T = Leaf("T", ("n", "n", "n"), "data")
    sine = apply("sin", Tensor.leaf(T))
    assert to_text(sine) == "[i, j, k] -> sin(T[i, j, k])"
    assert to_text(contract([(sine, "ijk")], "")) == "sum_i,j,k sin(T[i, j, k])"


def test_a_scaled_softmax_is_taken_apart() -> None:
    Z, w = Tensor.leaf(Leaf("Z", ("m", "n"), "y")), Tensor.leaf(Leaf("x", ("m",), "x"))
    weights = contract([(logsumexp(Z, (0,)), "i")], "ij", {"j": "n"})
    rows = contract([(w, "i")], "ij", {"j": "n"})
    assert to_text(apply("exp", subtracted(Z, weights))) == "softmax(Z, axis=1)"
    assert to_text(apply("exp", added([rows, Z, scaled(weights, -1)], Z.dims))) == "diag(exp(x)) @ softmax(Z, axis=1)"


# ---- LaTeX ------------------------------------------------------------------------------------------------------------


def balanced(latex: str) -> bool:
    plain = latex.replace(r"\{", "").replace(r"\}", "")
    depth = 0
    for c in plain:
        depth += (c == "{") - (c == "}")
        if depth < 0:
            return False
    return depth == 0 and plain.count(r"\left") == plain.count(r"\right")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_quoted(name: str) -> None:
    latex = to_latex(contract([(Tensor.leaf(Leaf(name, ("m", "n"), "data")), "ij"),
                               (Tensor.leaf(Leaf(name, ("m", "n"), "data")), "ik")], "jk"))  # fmt: skip
    assert balanced(latex)
    assert latex.isascii()
    assert r"\input{" not in latex


def test_latex_names() -> None:
    shown = [latex_name(name) for name in ("A", "b2", "alpha", "lam", "train", "X_val", "x_1")]
    assert shown == ["A", "b_{2}", r"\alpha", r"\lambda", r"\mathrm{train}", r"X_{\mathrm{val}}", "x_{1}"]


@given(tensors())
def test_latex_is_balanced(tensor: Tensor) -> None:
    assert balanced(to_latex(tensor))
