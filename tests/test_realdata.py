"""``benchmarks.realdata`` in short: its problems exist, who is missing is named, and a wrong end point is told."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import realdata
from benchmarks.realdata_measure import CASES, digits_of, judge
from benchmarks.realdata_peers import ENTRANTS, Entrant, Plan, missing
from bilevel_sym import BilevelProblem, evaluate, zoo

# y* = x and Phi = |x|^2/2, so grad Phi = x
PLAIN = BilevelProblem("y @ y/2", "sum((y - u*x)**2)/2", "x[n]", "y[n]", data={"u": np.ones(2)})
PLAN = Plan(eta=0.5, goal=0.08, steps=100, tau=1.0)


def test_its_problems_are_in_the_zoo() -> None:
    assert set(CASES) <= set(zoo.data_names())


@pytest.mark.parametrize(
    ("x", "lower", "stationary"),
    [([0.03, 0.04], 0.05, True), ([0.3, 0.4], 0.5, False), ([0.06, 0.08], 0.1, False), ([0.0, 0.0], 0.0, True)],
    ids=["below", "above", "on the line, which nobody can certify", "exactly stationary"],
)
def test_an_end_point_is_judged_by_the_true_gradient(x: list[float], lower: float, stationary: bool) -> None:
    judged = judge(PLAIN, np.array(x), eps=0.1)
    assert judged.is_stationary is stationary
    assert judged.lower <= judged.upper == pytest.approx(lower, rel=1e-5, abs=1e-5)


def test_no_number_is_no_end_point() -> None:
    judged = judge(PLAIN, np.array([math.nan, 0.0]), eps=1.0)
    assert not judged.is_stationary
    result = {"stationary": judged.is_stationary, "believed": True}
    assert realdata.verdict(result) == "NO, though it stopped"


def test_digits_are_those_of_the_whole_vector() -> None:
    truth = evaluate(PLAIN, [3.0, 4.0], digits=20).grad_phi
    assert digits_of(truth, np.array([3.0, 4.0005])) == pytest.approx(4.0, abs=0.01)
    assert digits_of(truth, np.array([-3.0, -4.0])) == 0.0 == digits_of(truth, np.array([math.inf, 4.0]))
    assert digits_of(truth, np.array([3.0, 4.0])) > 15


@pytest.mark.parametrize("name", [name for name, entrant in ENTRANTS.items() if not entrant.needs])
def test_ours_walks_to_where_it_says(name: str) -> None:
    method = ENTRANTS[name].make(PLAIN, PLAN)
    start = np.array([3.0, 4.0])
    np.testing.assert_allclose(method.hypergradient(start), start, rtol=1e-12)
    walk = method.walk(start)
    assert walk.estimate <= PLAN.goal
    assert 5 * 0.5**walk.steps == pytest.approx(walk.estimate)  # every step halves x
    assert judge(PLAIN, walk.x, eps=0.1).is_stationary


def test_who_is_missing_is_named() -> None:
    absent = Entrant("nobody", "-", ("json", "no_such_library"), lambda problem, plan: pytest.fail("made"))
    assert missing(absent) == ("no_such_library",)


def test_a_row_says_why_there_is_no_result() -> None:
    assert "no result after 1 s" in realdata.row("diabetes", "exact", ["no result after 1 s"])
    assert realdata.main(["no such problem"]) == 1
