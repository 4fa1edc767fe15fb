"""Right candidates of styles that people have: none of them is condemned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bilevel_sym import BilevelProblem, zoo
from verify.testkit.candidate import Candidate
from verify.testkit.checks import check_hypergradient, check_lower_solution
from verify.testkit.convergence import convergence
from verify.testkit.reference import references
from verify.verdict import Verdict

pytestmark = pytest.mark.long  # the gallery says the same sooner

QUADRATIC = BilevelProblem("x1*y1 + x2*y2 + y1**2", "y1**2 + 2*y2**2 + y1*y2 - x1*y1 - sin(x2)*y2", "x1 x2", "y1 y2")


def newton(problem: BilevelProblem, x: Any, enough: Any) -> Any:
    k, y = problem.kernels, np.zeros(problem.n)
    for step in range(100):
        residual = k.g_y(x, y)
        if step and enough(step, residual):
            break
        y = y - np.linalg.solve(k.g_yy(x, y), residual)
    return y


def hypergradient(problem: BilevelProblem, x: Any, y: Any) -> Any:
    k = problem.kernels
    return k.f_x(x, y) - k.g_xy(x, y) @ np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))


@pytest.mark.parametrize("name", ["implicit_cubic", "saddle", "logistic", "lphi_witness"])
@pytest.mark.parametrize("default", [1e-10, 1e-3])
def test_newton_with_a_tolerance_gives_the_same_answer_for_many_of_them(name: str, default: float) -> None:
    """The error does not shrink from tol = 1e-2 to 1e-8, and is rounding after that: no plateau."""
    problem = zoo.get(name).problem

    def candidate(x: Any, tol: float = default) -> Any:
        return hypergradient(problem, x, newton(problem, x, lambda _, r: np.linalg.norm(r) <= tol))

    found = check_hypergradient(candidate, problem)
    assert found.verdict is Verdict.HOLDS, found.message


def test_steps_and_a_tolerance_together() -> None:
    problem = zoo.get("implicit_cubic").problem

    def candidate(x: Any, D: int, tol: float) -> Any:
        return hypergradient(problem, x, newton(problem, x, lambda k, r: k >= D or np.linalg.norm(r) <= tol))

    found = check_hypergradient(candidate, problem)
    assert found.verdict is Verdict.HOLDS, found.message


def test_a_default_that_is_too_loose_at_few_points_is_raised_there() -> None:
    """Right at the chosen points and wrong at some of the many others, until D is larger."""
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")

    def candidate(x: Any, D: int = 20) -> Any:
        rate = 0.5 if abs(x[0] - 0.3) < 0.01 else 0.01
        return 2 * x * (1 - rate**D)

    found = check_hypergradient(candidate, problem)
    assert found.verdict is Verdict.HOLDS, found.message
    assert found.convergence is not None
    assert found.convergence.settings["D"] > 20


def test_what_fails_at_few_points_for_all_settings_is_still_found() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")

    def candidate(x: Any, D: int = 20) -> Any:
        return 2 * x * (1 - 0.01**D) + (1e-6 if abs(x[0] - 0.3) < 0.01 else 0.0)

    assert check_hypergradient(candidate, problem).verdict is Verdict.VIOLATED


def test_a_wrong_term_is_a_plateau_for_a_tolerance_too() -> None:
    problem = zoo.get("implicit_cubic").problem

    def candidate(x: Any, tol: float = 1e-10) -> Any:
        return 1.001 * hypergradient(problem, x, newton(problem, x, lambda _, r: np.linalg.norm(r) <= tol))

    found = check_hypergradient(candidate, problem)
    assert (found.verdict, found.cause) == (Verdict.VIOLATED, "factor")


def test_a_loop_until_a_tolerance_ends() -> None:
    """tol is never below what rounding leaves of the residual at any of the points, not at the first of them only."""
    k = QUADRATIC.kernels

    def candidate(x: Any, tol: float) -> Any:
        y = np.zeros(2)
        for _ in range(10_000):
            if np.linalg.norm(k.g_y(x, y)) <= tol:
                return y
            y = y - 0.2 * k.g_y(x, y)
        raise AssertionError(f"for ever at tol = {tol}")

    points = references(QUADRATIC, [[0.0, 0.0], [1e-8, 0.0], [0.0, 1e-9], [1.0, 1.0]])
    assert convergence(Candidate(candidate, (2,)), points, "y_star").verdict == "reached"
    assert check_lower_solution(candidate, QUADRATIC).verdict is Verdict.HOLDS


def test_a_harmless_overflow_is_not_raised() -> None:
    problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    found = check_hypergradient(lambda x: x + 1 / np.exp(1e6 + x), problem)
    assert found.verdict is Verdict.HOLDS


def test_an_error_of_the_size_of_the_tolerance_is_right() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")

    def candidate(x: Any, tol: float) -> Any:
        return 2 * x * (1 + tol)

    found = check_hypergradient(candidate, problem)
    assert found.verdict is Verdict.HOLDS, found.message
