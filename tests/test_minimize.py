"""``solve`` without an algorithm is the command line, bit by bit; ``minimize`` is its face in the words of SciPy."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import numpy as np
import pytest
import sympy as sp
from scipy import optimize

from bilevel_sym import AID, BilevelProblem, Descent, Exact, LocalMinimum, Status, derive, minimize, solve, zoo
from bilevel_sym.cli import main
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.solvers import solving

WELL = BilevelProblem("y**4/4 - x*y/2", "(y - x)**2/2", "x", "y", box={"x": (-2, 2), "y": (-2, 2)})
STIFF = BilevelProblem("x**2/2 + y", "y**4 + y**2/2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
"""Where x goes from 100 the curvature of g is far beyond that in the box: gradient steps fail."""


def by_command(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["solve", *arguments, "--format", "json"])
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


# ---- solve(problem) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("scalar", 1000),
        ("saddle", 1000),
        ("minimax_nash", 1000),
        pytest.param("stochastic_noise", 3, marks=pytest.mark.slow),
    ],
)
def test_without_an_algorithm_solve_is_the_command(name: str, steps: int) -> None:
    told, solution = by_command(f"zoo:{name}", "--steps", str(steps)), solve(zoo.get(name).problem, steps=steps)
    assert (solution.x.tolist(), solution.y.tolist()) == (told["x"], told["y"])
    assert (str(solution.status), int(solution.steps)) == (told["status"], told["steps"])
    assert solution.to_dict()["schedule"] == told["schedule"]


def test_arguments_mean_what_they_mean_there() -> None:
    told = by_command("zoo:saddle", "--x0", "x1=0.1,x2=1", "--seed", "3", "--eps", "1e-5", "--algorithm", "descent")
    solution = solve(zoo.get("saddle").problem, "descent", [0.1, 1.0], rng=3, eps=1e-5)
    assert (solution.x.tolist(), str(solution.status)) == (told["x"], told["status"])
    assert solution.to_dict()["schedule"] == told["schedule"]


def test_many_starts_are_an_ensemble() -> None:
    solution = solve(WELL, x0=np.zeros((4, 1)), rng=[1, 2, 3, 4])
    assert solution.statuses == (Status.LOCAL_MINIMUM,) * 4
    assert np.array_equal(solution.x[2], solve(WELL, x0=[0.0], rng=3).x)


def test_where_gradient_steps_fail_newtons_method_is_tried() -> None:
    solution = solve(STIFF, x0=[100.0])
    assert isinstance(solution.schedule.estimator, Exact)
    assert solution.ok
    asked = solve(STIFF, "perturbed-aid", [100.0])
    assert isinstance(asked.schedule.estimator, AID)
    assert not asked.ok


def test_a_rule_that_is_given_is_taken() -> None:
    assert solve(WELL, x0=[1.5], stop=lambda state: state.k == 3).status is Status.STOPPED


def test_an_algorithm_alone_starts_where_the_command_does() -> None:
    boxed = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", box={"x": (0, 1), "y": (0, 1)})
    assert solve(boxed, Descent(Exact(), 0.1), steps=0).x == pytest.approx([0.5])


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(InvalidArgument, match="no algorithm is called 'newton'"):
        solve(WELL, "newton")
    with pytest.raises(InvalidArgument, match="eps is for an algorithm that solve chooses"):
        solve(WELL, Descent(Exact(), 0.1), [0.0], eps=1e-3)
    with pytest.raises(InvalidArgument, match="one start"):
        minimize(WELL, [[0.0], [1.0]])


# ---- minimize ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scalar", "saddle", "implicit_cubic"])
def test_values_are_those_of_scipy_and_of_the_formulas(name: str) -> None:
    problem = zoo.get(name).problem
    found = minimize(problem, eps=1e-7)
    assert found.success
    kernels = problem.kernels
    other = optimize.minimize(kernels.phi, found.x + 1e-2, jac=kernels.grad_phi, tol=1e-9)
    assert found.x == pytest.approx(other.x, abs=1e-4)
    assert found.fun == pytest.approx(other.fun, abs=1e-9)
    derivation = derive(problem)
    at = dict(zip((*problem.x, *problem.y), [*found.x.tolist(), *found.y.tolist()], strict=True))
    jac, hess = (
        np.array(matrix.subs(at).evalf(), dtype=float) for matrix in (derivation.grad_phi, derivation.hess_phi)
    )
    assert found.jac == pytest.approx(jac[:, 0], abs=1e-9)
    assert found.hess == pytest.approx(hess, abs=1e-8)
    assert np.array([sp.diff(problem.g, s).subs(at) for s in problem.y], dtype=float) == pytest.approx(0, abs=1e-9)


def test_success_is_a_check_and_no_hope() -> None:
    short = minimize(WELL, [0.5], steps=2)
    assert (short.success, short.nit, short.message) == (False, 2, Status.OUT_OF_STEPS.message)
    assert abs(short.jac[0]) > 1e-3
    saddle = minimize(zoo.get("saddle").problem, [0.0, 0.0], algorithm=Descent(Exact(), 0.1), steps=5)
    assert not saddle.success
    assert np.linalg.eigvalsh(saddle.hess)[0] < 0


def test_a_failure_is_told() -> None:
    failed = minimize(WELL, [1.5], algorithm=Descent(AID(D=5, N=1, tau=3.0), eta=0.1))
    assert not failed.success
    assert "diverged" in failed.message


def test_ones_own_algorithm_and_its_eps() -> None:
    found = minimize(WELL, [0.5], algorithm=Descent(Exact(), 0.5), eps=1e-9)
    assert found.success
    assert abs(found.jac[0]) <= 1e-9
    assert found.solution.status is Status.LOCAL_MINIMUM


def test_algorithms_that_decide_for_themselves_have_no_rule() -> None:
    assert solving.arrival(Descent(Exact(), 0.1, escape=None), 0.1) == LocalMinimum(0.1)
    stochastic = zoo.get("stochastic_noise").problem
    assert solving.choose(stochastic, x0=np.zeros(stochastic.d)).stop is None
