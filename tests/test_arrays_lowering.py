"""Array problems in scalars: names, numbers, sizes, and formulas that do not overflow."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sympy as sp
from array_oracle import BALLS, NoNumber, Point, same, values
from array_strategies import LANGUAGES, DrawnProblem, points, problems, random_array
from flint import fmpq
from hypothesis import assume, given
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem
from bilevel_sym.arrays.algebra import apply, contract, logsumexp, multiplied, power
from bilevel_sym.arrays.lowering import Lowered, expression_of, lower
from bilevel_sym.arrays.lowering.elimination import Work, work_of
from bilevel_sym.arrays.normal import added, ones, scaled
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.errors import InvalidProblem, TooLarge
from bilevel_sym.implicit.model import Model
from bilevel_sym.problem.stated import Stated

X, Y, W = Leaf("x", (), "x"), Leaf("y", ("n",), "y"), Leaf("W", ("n", "c"), "y")
A, B = Leaf("A", ("m", "n"), "data"), Leaf("b", ("m",), "data")


def square(of: Tensor) -> Tensor:
    return contract([(of, range(of.rank)), (of, range(of.rank))], ())


def product(matrix: Leaf, vector: Leaf) -> Tensor:
    return contract([(Tensor.leaf(matrix), "ij"), (Tensor.leaf(vector), "j")], "i")


def ridge(x: Leaf = X) -> tuple[Tensor, Tensor]:
    """Half of |A y - b|^2 + exp(x) |y|^2."""
    residual = added([product(A, Y), scaled(Tensor.leaf(B), -1)], ("m",))
    penalty = contract([(apply("exp", Tensor.leaf(x)), ""), (square(Tensor.leaf(Y)), "")], ())
    g = scaled(added([square(residual), penalty], ()), Fraction(1, 2))
    return square(residual), g


def problem_of(lowered: Lowered) -> BilevelProblem:
    """As ``lowered()`` of an array problem makes it."""
    f, g = (Stated(formula, lambda formula=formula: expression_of(formula)) for formula in (lowered.f, lowered.g))  # type: ignore[misc]
    return BilevelProblem(f, g, lowered.x, lowered.y)


def names(symbols: Sequence[sp.Symbol]) -> list[str]:
    return [symbol.name for symbol in symbols]


# ---- formulas -------------------------------------------------------------------------------------------------------


def test_the_formulas_are_those_that_a_person_would_write() -> None:
    data = {"A": [[1, 0.5], [2, -1], [0, 3]], "b": [1, Fraction(1, 3), fmpq(-2)]}
    lowered = lower(*ridge(), [X], [Y], data=data, sizes={"m": 3, "n": 2})
    x, y1, y2 = sp.symbols("x y_1 y_2")
    rows = [y1 + y2 / 2 - 1, 2 * y1 - y2 - sp.Rational(1, 3), 3 * y2 + 2]
    expected = sum(row**2 for row in rows)
    assert (lowered.x, lowered.y) == ((x,), (y1, y2))
    assert sp.expand(expression_of(lowered.f) - expected) == 0
    assert sp.expand(expression_of(lowered.g) - (expected + sp.exp(x) * (y1**2 + y2**2)) / 2) == 0


def test_squares_of_products_stay_squares() -> None:
    """As many products as rows, and not as many as pairs of columns."""
    rng = np.random.default_rng(0)
    data = {"A": rng.normal(size=(3, 20)), "b": np.zeros(3)}
    f = square(product(A, Y))
    lowered = lower(f, f, [X], [Y], data=data, sizes={"m": 3, "n": 20})
    assert [op for op in lowered.f.draft.op if op not in ("var", "lin")] == ["ipow"] * 3


def test_the_problem_is_the_one_that_is_typed() -> None:
    data = {"A": [[1, 2]], "b": [3]}
    mine = problem_of(lower(*ridge(), [X], [Y], data=data, sizes={"m": 1, "n": 2}))
    typed = BilevelProblem(
        "(y_1 + 2*y_2 - 3)**2", "((y_1 + 2*y_2 - 3)**2 + exp(x)*(y_1**2 + y_2**2))/2", "x", "y_1 y_2"
    )
    point = np.array([0.3])
    np.testing.assert_allclose(mine.kernels.grad_phi(point), typed.kernels.grad_phi(point), rtol=1e-13)
    np.testing.assert_allclose(mine.kernels.hess_phi(point), typed.kernels.hess_phi(point), rtol=1e-13)
    assert mine.derivation.is_closed_form


@given(data=st.data(), language=st.sampled_from(sorted(LANGUAGES)))
def test_sympy_says_the_same_as_the_draft(data: st.DataObject, language: str) -> None:
    try:
        problem: DrawnProblem = data.draw(problems(LANGUAGES[language], depth=2))
        point = data.draw(points(largest=2))
        arrays = {k: v for k, v in point.arrays.items() if k not in {of.name for of in (*problem.x, *problem.y)}}
        lowered = lower(problem.f.tensor, problem.g.tensor, problem.x, problem.y, data=arrays, sizes=point.sizes)
    except (ZeroDivisionError, InvalidProblem):
        assume(False)
        raise
    upper, expression = expression_of(lowered.f), expression_of(lowered.g)
    assume(not any(level.has(sp.nan, sp.zoo, sp.oo, -sp.oo, sp.I) for level in (upper, expression)))
    assert expression.free_symbols <= {*lowered.x, *lowered.y}
    direct = Model(lowered.f, lowered.g, lowered.x, lowered.y)
    again = Model(upper, expression, lowered.x, lowered.y)
    count = len(lowered.x) + len(lowered.y)
    flat = random_array(Leaf("z", ("n",), "x"), [count], np.random.default_rng(count))
    here = Point({"n": count}, (Leaf("z", ("n",), "x"),), {"z": flat}).numbers(BALLS)
    try:
        (one,), (two,) = (values(model.graph, [model.g], here, BALLS) for model in (direct, again))
        equal = same(one, two)
    except (NoNumber, OverflowError):
        assume(False)
    assert equal


# ---- names ----------------------------------------------------------------------------------------------------------


def test_entries_are_named_row_by_row() -> None:
    f = added([square(Tensor.leaf(W)), multiplied(Tensor.leaf(X), Tensor.leaf(X))], ())
    lowered = lower(f, f, [X], [W, Y], data={}, sizes={"n": 2, "c": 3})
    assert names(lowered.y) == ["W_1_1", "W_1_2", "W_1_3", "W_2_1", "W_2_2", "W_2_3", "y_1", "y_2"]
    assert names(lowered.names["y"]) == ["y_1", "y_2"]
    assert names(lowered.x) == ["x"]


def test_an_array_gives_way_to_a_scalar_of_the_same_name() -> None:
    taken = Leaf("y_1", (), "x")
    f = added([square(Tensor.leaf(Y)), multiplied(Tensor.leaf(taken), Tensor.leaf(taken))], ())
    lowered = lower(f, f, [taken], [Y], data={}, sizes={"n": 2})
    assert names((*lowered.x, *lowered.y)) == ["y_1", "y__1", "y__2"]


def test_two_arrays_whose_entries_would_have_one_name() -> None:
    """The second entry of W_1, and the entry of W in row 1 and column 2."""
    vector = Leaf("W_1", ("c",), "x")
    f = added([square(Tensor.leaf(W)), square(Tensor.leaf(vector))], ())
    lowered = lower(f, f, [vector], [W], data={}, sizes={"n": 1, "c": 2})
    assert names((*lowered.x, *lowered.y)) == ["W_1_1", "W_1_2", "W__1__1", "W__1__2"]
    assert len(set(lowered.f.symbols)) == 4


def test_a_dimension_of_one_is_still_an_array() -> None:
    lowered = lower(square(Tensor.leaf(Y)), square(Tensor.leaf(Y)), [X], [Y], data={}, sizes={"n": 1})
    assert names(lowered.y) == ["y_1"]


def test_parameters_without_a_value_stay_symbols() -> None:
    gamma = Leaf("gamma", (), "parameter")
    f = multiplied(Tensor.leaf(gamma), square(Tensor.leaf(Y)))
    lowered = lower(f, f, [X], [Y], data={}, sizes={"n": 2})
    assert names(lowered.f.symbols) == ["x", "y_1", "y_2", "gamma"]
    known = lower(f, f, [X], [Y], data={"gamma": Fraction(1, 3)}, sizes={"n": 1})
    assert expression_of(known.f) == sp.Rational(1, 3) * sp.Symbol("y_1") ** 2


# ---- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [np.array([0.1]), [0.1], (0.1,), np.array([0.1], object), scipy.sparse.csr_array(np.array([0.1]))]
)
def test_a_float_means_its_exact_value(value: Any) -> None:
    f = contract([(Tensor.leaf(B), "i")], ())
    lowered = lower(f, square(Tensor.leaf(Y)), [X], [Y], data={"b": value}, sizes={"m": 1, "n": 1})
    assert lowered.f.form.constant == fmpq(*(0.1).as_integer_ratio())


def test_whole_numbers_of_any_kind_are_exact() -> None:
    f = contract([(Tensor.leaf(B), "i")], ())
    for value in ([3], np.array([3]), np.array([3], np.int8), [sp.Integer(3)], [Fraction(3)]):
        lowered = lower(f, square(Tensor.leaf(Y)), [X], [Y], data={"b": value}, sizes={"m": 1, "n": 1})
        assert lowered.f.form.constant == 3


def test_an_entry_that_nobody_needs_need_not_exist() -> None:
    """The diagonal of 1/A, where A is zero elsewhere."""
    square_matrix = Leaf("D", ("n", "n"), "data")
    f = contract([(power(Tensor.leaf(square_matrix), -1), "ii"), (Tensor.leaf(Y), "i")], ())
    data = {"D": np.diag([2.0, 4.0])}
    lowered = lower(f, square(Tensor.leaf(Y)), [X], [Y], data=data, sizes={"n": 2})
    y1, y2 = lowered.y
    assert expression_of(lowered.f) == y1 / 2 + y2 / 4


def test_functions_of_data_are_kept_and_comparisons_decided() -> None:
    logs = contract([(apply("log", Tensor.leaf(B)), "i")], ())
    counted = contract([(apply("lt", Tensor.leaf(B)), "i")], ())
    g = square(Tensor.leaf(Y))
    lowered = lower(logs, counted, [X], [Y], data={"b": [2, 3]}, sizes={"m": 2, "n": 1})
    assert expression_of(lowered.f) == sp.log(2) + sp.log(3)
    assert lower(counted, g, [X], [Y], data={"b": [-2, 3]}, sizes={"m": 2, "n": 1}).f.form.constant == 1


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_a_problem_that_is_too_large_is_refused_before_anything_is_built() -> None:
    data = {"A": np.zeros((10**4, 10**3)), "b": np.zeros(10**4)}
    with pytest.raises(TooLarge, match=r"about [\d,]+ operations, and 2,000,000 are made") as caught:
        lower(*ridge(), [X], [Y], data=data, sizes={"m": 10**4, "n": 10**3})
    assert "kernels" in str(caught.value.hint)


@pytest.mark.slow
@given(data=st.data())
def test_the_work_is_not_less_than_what_is_built(data: st.DataObject) -> None:
    problem: DrawnProblem = data.draw(problems(LANGUAGES["smooth"], depth=2))
    point = data.draw(points())
    arrays = {k: v for k, v in point.arrays.items() if k not in {of.name for of in (*problem.x, *problem.y)}}
    work = Work(point.sizes)
    counted = sum(work_of(formula.tensor, work) for formula in (problem.f, problem.g))
    try:
        lowered = lower(problem.f.tensor, problem.g.tensor, problem.x, problem.y, data=arrays, sizes=point.sizes)
    except InvalidProblem:
        assume(False)
        raise
    made = sum(op != "var" for op in lowered.f.draft.op)
    assert made <= 4 * counted + 4


def test_what_has_no_size_or_no_values_is_named() -> None:
    with pytest.raises(InvalidProblem, match="dimension n has no size"):
        lower(*ridge(), [X], [Y], data={"A": [[1]], "b": [1]}, sizes={"m": 1, "n": None})
    with pytest.raises(InvalidProblem, match="b has no values"):
        lower(*ridge(), [X], [Y], data={"A": [[1]]}, sizes={"m": 1, "n": 1})
    with pytest.raises(InvalidProblem, match="A has the shape"):
        lower(*ridge(), [X], [Y], data={"A": [[1, 2]], "b": [1]}, sizes={"m": 1, "n": 1})
    with pytest.raises(InvalidProblem, match="an entry of b"):
        lower(*ridge(), [X], [Y], data={"A": [[1]], "b": [float("nan")]}, sizes={"m": 1, "n": 1})


def test_a_dimension_that_is_a_number_needs_no_size() -> None:
    three = Leaf("y", ("3",), "y")
    lowered = lower(square(Tensor.leaf(three)), square(Tensor.leaf(three)), [X], [three], data={}, sizes={})
    assert names(lowered.y) == ["y_1", "y_2", "y_3"]


# ---- no overflow ----------------------------------------------------------------------------------------------------


def test_a_log_sum_exp_does_not_overflow() -> None:
    """Softmax cross-entropy at entries of 1000 and -1000, its derivatives too."""
    z = Tensor.leaf(Y)
    loss = logsumexp(scaled(z, 1000), ())
    g = added([loss, scaled(square(z), Fraction(1, 2))], ())
    lowered = lower(loss, g, [X], [Y], data={}, sizes={"n": 5})
    kernels = problem_of(lowered).kernels
    for point in ([1, -1, 0, 1, -1], [1, 1, 1, 1, 1], [-1, -1, -1, -1, -1], [-1, -1, 0, 0, 1]):
        y = np.array(point, float)
        expected = 1000 * y.max() + np.log(np.exp(1000 * (y - y.max())).sum())
        assert kernels.f(np.zeros(1), y) == pytest.approx(expected, rel=1e-15)
        weights = np.exp(1000 * (y - y.max()))
        np.testing.assert_allclose(kernels.f_y(np.zeros(1), y), 1000 * weights / weights.sum(), rtol=1e-13, atol=0)
        assert np.isfinite(kernels.f_yy(np.zeros(1), y)).all()


def test_a_logarithm_of_a_sum_of_exponentials_is_one_too() -> None:
    z = Tensor.leaf(Y)
    sums = contract([(apply("exp", scaled(z, 1000)), "i")], ())
    assert apply("log", sums) == logsumexp(scaled(z, 1000), ())
    shifted = apply("log", added([sums, ones(())], ()))
    lowered = lower(shifted, square(z), [X], [Y], data={}, sizes={"n": 3})
    kernels = problem_of(lowered).kernels
    assert kernels.f(np.zeros(1), np.array([1.0, 1.0, -1.0])) == pytest.approx(1000 + np.log(2))
    assert kernels.f(np.zeros(1), np.array([-1.0, -1.0, -1.0])) == pytest.approx(0.0)
