"""Assumptions of symbols against boxes, values and data; labelled tables whose columns stand in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp

from bilevel_sym import AID, BilevelProblem, Descent, MinimaxProblem, StochasticProblem, evaluate, solve
from bilevel_sym.errors import InvalidArgument, InvalidProblem, KernelError
from verify.testkit.sample_points import given_points

Y = sp.Symbol("y", real=True)


def with_abs(box: Any = None, **assumed: bool) -> BilevelProblem:
    x = sp.Symbol("x", **assumed)
    return BilevelProblem(sp.Abs(x) * Y, (Y - x) ** 2 / 2, x, Y, box=box)


@pytest.mark.parametrize(
    ("assumed", "ends"),
    [
        ("positive", (-1, 1)),
        ("positive", (0, 1)),
        ("nonnegative", (-1, 1)),
        ("negative", (-1, 0)),
        ("nonpositive", ("-1", "1/1000000")),
        ("nonzero", (-1, 1)),
    ],
)
def test_an_assumption_that_the_box_contradicts_is_refused(assumed: str, ends: tuple[object, object]) -> None:
    with pytest.raises(InvalidProblem, match=f"x is assumed to be {assumed}, but in the box it runs from") as caught:
        with_abs({"x": ends, "y": (-1, 1)}, **{assumed: True})
    assert "real=True" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("assumed", "ends"),
    [("positive", ("1/2", 1)), ("nonnegative", (0, 1)), ("negative", (-2, -1)), ("nonzero", (1, 2)), ("real", (-1, 1))],
)
def test_one_that_the_box_keeps_is_not(assumed: str, ends: tuple[object, object]) -> None:
    assert with_abs({"x": ends}, **{assumed: True}).d == 1


@pytest.mark.parametrize("kind", ["integer", "even", "prime", "rational", "irrational", "zero"])
def test_no_variable_is_of_a_discrete_kind(kind: str) -> None:
    with pytest.raises(InvalidProblem, match="but a variable takes all real values of an interval"):
        with_abs(**{kind: True})


def test_the_other_kinds_of_problems_are_asked_too() -> None:
    x = sp.Symbol("x", positive=True)
    with pytest.raises(InvalidProblem, match="assumed to be positive"):
        MinimaxProblem(sp.Abs(x) * Y - Y**2, x, Y, box={"x": (-1, 1), "y": (-1, 1)})
    a = sp.Symbol("a", positive=True)
    with pytest.raises(InvalidProblem, match="a is assumed to be positive, but is -3 in xi_data"):
        StochasticProblem(sp.Abs(a) * Y, (Y - x) ** 2, [x], [Y], [a], [], [[1], [-3]], [])
    with pytest.raises(InvalidProblem, match="a is assumed to be positive, but is -2 in the parameters"):
        BilevelProblem(sp.Abs(a) * Y, (Y - x) ** 2, x, Y, parameters={a: -2})


def test_without_a_box_a_sign_is_a_promise_and_points_are_held_to_it() -> None:
    problem = with_abs(positive=True)
    assert problem.kernels.grad_phi([[1.0], [2.0]]).tolist() == [[2.0], [4.0]]
    with pytest.raises(KernelError, match="x is assumed to be positive, but is -1 for member 1 of the batch"):
        problem.kernels.grad_phi([[1.0], [-1.0]])
    with pytest.raises(KernelError, match="x is assumed to be positive"):
        problem.kernels.f([0.0], [1.0])
    with pytest.raises(InvalidArgument, match="x is assumed to be positive, but is -1 in the point"):
        evaluate(problem, [-1])


# ---- tables with labels -------------------------------------------------------------------------------------


class Frame:
    """As much of a pandas frame as is looked at."""

    def __iter__(self) -> Any:
        return iter(self.columns)

    def __init__(self, rows: Any, columns: Any) -> None:
        self.columns, self._rows = columns, np.asarray(rows)
        self.index = range(len(self._rows))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._rows.astype(dtype) if dtype else self._rows


class Series:
    """The same of a series."""

    def __init__(self, values: Any, index: Any) -> None:
        self.index, self._values = index, np.asarray(values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._values

    def __iter__(self) -> Any:
        return iter(self._values)


PLANE = BilevelProblem("x1*y + 3*x2", "(y - x1)**2/2", "x1 x2", "y")
ROWS = [[1.0, 2.0], [3.0, 4.0]]


def test_columns_in_the_problems_order_are_taken() -> None:
    for columns in (["x1", "x2"], [0, 1]):
        assert np.array_equal(PLANE.kernels.phi(Frame(ROWS, columns)), PLANE.kernels.phi(ROWS))
    assert given_points(PLANE, Frame(ROWS, ["x1", "x2"])).tolist() == ROWS


@pytest.mark.parametrize("columns", [["x2", "x1"], ["a", "b"], ["x1", "y"]])
def test_columns_in_another_order_or_of_another_name_are_an_error(columns: list[str]) -> None:
    said = f"the columns of .* are {', '.join(columns)}, but the variables are x1, x2, in this order"
    frame, row = Frame(ROWS, columns), Series([1.0, 2.0], columns)
    descent = Descent(AID(D=1, N=1, tau=1.0), eta=0.1)
    for call in (
        lambda: PLANE.kernels.grad_phi(frame),
        lambda: PLANE.kernels.phi(row),
        lambda: PLANE.kernels.f(frame, [[0.0], [0.0]]),
        lambda: solve(PLANE, descent, frame, steps=1),
        lambda: AID(D=1, N=1, tau=1.0).estimate(PLANE, row),
    ):
        with pytest.raises(KernelError, match=said):
            call()
    for asked in (lambda: evaluate(PLANE, row), lambda: given_points(PLANE, frame), lambda: given_points(PLANE, [row])):
        with pytest.raises(InvalidProblem, match=said):
            asked()


def test_pandas_itself() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x2": [2.0, 4.0], "x1": [1.0, 3.0]})
    with pytest.raises(KernelError, match="are x2, x1, but the variables are x1, x2"):
        PLANE.kernels.phi(frame)
    assert np.array_equal(PLANE.kernels.phi(frame[["x1", "x2"]]), PLANE.kernels.phi(ROWS))
    assert evaluate(PLANE, frame[["x1", "x2"]].iloc[0]).phi.contains(7)
