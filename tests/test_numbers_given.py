"""What counts as one number or one formula: 1 x 1 matrices, NumPy arrays of symbols, floats as their decimals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp

from bilevel_sym import BilevelProblem, MinimaxProblem, StochasticProblem, derive
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.problem.numbers_given import in_decimals

X = sp.Symbol("x")
Y = sp.symbols("y1:4")
A = np.array([[1.0, 2.0, 0.5], [0.25, 1.0, 3.0]])
B = np.array([1.0, -2.0])


def plain() -> BilevelProblem:
    return BilevelProblem(
        "x*(y1 + y2 + y3)",
        "(y1 + 2*y2 + y3/2 - 1)**2 + (y1/4 + y2 + 3*y3 + 2)**2 + exp(x)*(y1**2 + y2**2 + y3**2)",
        "x", "y1 y2 y3",
    )  # fmt: skip


def of_matrices(kind: Any) -> BilevelProblem:
    y = kind(Y)
    residual = kind(A) * y - kind(B)
    return BilevelProblem(kind([X]) * sum(Y), residual.T * residual + sp.exp(X) * (y.T * y), X, list(Y))


def of_arrays() -> BilevelProblem:
    y = np.array(Y)
    residual = A @ y - B
    return BilevelProblem(X * y.sum(), residual @ residual + sp.exp(X) * (y @ y), X, y)


@pytest.mark.parametrize(
    "build",
    [lambda: of_matrices(sp.Matrix), lambda: of_matrices(sp.ImmutableMatrix), of_arrays],
    ids=["matrices", "immutable", "arrays"],
)
def test_matrices_and_arrays_of_symbols_state_the_same_problem(build: Any) -> None:
    problem = build()
    assert not problem.is_array
    assert sp.expand(problem.g - plain().g) == 0
    assert derive(problem).y_star is not None
    x = 0.7
    y = np.linalg.solve(A.T @ A + np.exp(x) * np.eye(3), A.T @ B)  # without a formula of ours
    assert problem.kernels.y_star([x]) == pytest.approx(y)


def test_rows_and_columns_of_numpy() -> None:
    row = np.array([Y])
    problem = BilevelProblem(np.array([X * Y[0]]), row @ row.T, X, Y)
    assert problem.g == sum(y**2 for y in Y)


def test_larger_matrices_are_no_formula() -> None:
    for g in (sp.Matrix(Y), np.array(Y)):
        with pytest.raises(InvalidProblem, match="g must be a SymPy expression"):
            BilevelProblem(X * Y[0], g, X, Y)


# ---- decimals ---------------------------------------------------------------------------------------------------


def test_floats_are_their_decimals_everywhere() -> None:
    x, y = sp.symbols("x y")
    problem = BilevelProblem(
        0.1 * x * y, 0.3 * (y - x) ** 2 + sp.Symbol("a") * y**2, x, y, parameters={"a": 1e-7},
        box={"x": (-0.1, 0.7), "y": (np.float64(-0.2), np.float32(0.3))}, decimals=True,
    )  # fmt: skip
    assert problem.f == x * y / 10
    assert problem.g == sp.Rational(3, 10) * (y - x) ** 2 + y**2 / 10**7
    assert problem == BilevelProblem(
        "x*y/10", "0.3*(y - x)**2 + a*y**2", "x", "y", parameters={"a": "1e-7"},
        box={"x": ("-0.1", "0.7"), "y": ("-0.2", "0.3")},
    )  # fmt: skip


def test_without_it_a_float_is_its_exact_value() -> None:
    x, y = sp.symbols("x y")
    assert BilevelProblem(0.1 * x * y, (y - x) ** 2, x, y).f == sp.Rational(0.1) * x * y
    assert sp.Rational(0.1) != sp.Rational(1, 10)


def test_of_the_other_kinds_too() -> None:
    x, y, a = sp.symbols("x y a")
    assert MinimaxProblem(0.1 * x * y - y**2, x, y, decimals=True).g == y**2 - x * y / 10
    drawn = StochasticProblem(
        (y - a) ** 2, (y - x) ** 2, x, y, [a], [], np.array([[0.1], [0.2]]), [[]], decimals=True
    )  # fmt: skip
    assert drawn.xi_data == ((sp.Rational(1, 10),), (sp.Rational(1, 5),))


def test_longer_floats_have_their_own_digits_and_what_is_not_finite_is_refused() -> None:
    assert in_decimals(sp.Float("0.1", 30)) == sp.Rational(1, 10)
    assert in_decimals(0.1 + 0.2) == sp.Rational("0.30000000000000004")
    assert in_decimals(5e-324) == sp.Rational(5, 10**324)
    x, y = sp.symbols("x y")
    for bad in (float("inf"), float("nan")):
        with pytest.raises(InvalidProblem):
            BilevelProblem(x * y, (y - x) ** 2, x, y, box={"x": (0, bad)}, decimals=True)
