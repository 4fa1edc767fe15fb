"""check_local_minimum: both conditions of the definition, certified, for whatever holds a point."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from helpers import random_problem
from hypothesis import given

from bilevel_sym import AID, BilevelProblem, Descent, Perturbed, evaluate, solve, zoo
from bilevel_sym.errors import InvalidArgument
from verify.points.classification import classify
from verify.testkit.local_minimum import check_local_minimum
from verify.verdict import Verdict

BOWL = BilevelProblem("x1*y - x2**2/100", "y**2/2 - x1*y", "x1 x2", "y")  # Phi = x1^2 - x2^2/100
SADDLE = zoo.get("saddle", d=2).problem
NUMBERS = st.integers(-40, 40).map(lambda k: Fraction(k, 32))


@given(a=NUMBERS, b=NUMBERS, eps=st.sampled_from([0.01, 0.1, 1]), rho=st.sampled_from([0.0001, 0.004, 1]))
def test_the_definition_by_hand(a: Fraction, b: Fraction, eps: float, rho: float) -> None:
    """Another route: the gradient (2 a, -b/50) and the eigenvalues 2 and -1/50 are known."""
    slope, curvature = math.hypot(2 * a, b / 50), -1 / 50
    result = check_local_minimum([a, b], BOWL, eps=eps, rho_phi=rho)
    flat, convex = slope <= eps, curvature >= -math.sqrt(rho * eps)
    if min(abs(slope - eps), abs(curvature + math.sqrt(rho * eps))) < 1e-12:
        return
    assert result.verdict is (Verdict.HOLDS if flat and convex else Verdict.VIOLATED)
    assert result.evidence == "certified"
    assert result.worst_point == {"x1": float(a), "x2": float(b)}
    if not flat:
        assert "not stationary" in result.message
        assert result.measured == pytest.approx(slope)
        assert result.bound == eps
    elif not convex:
        assert "a saddle" in result.message
        assert "(0, 1)" in result.message
        assert result.measured == pytest.approx(1 / 50)
        assert result.bound == pytest.approx(math.sqrt(rho * eps))


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("seed", range(6))
def test_the_kernels_and_classify_agree(seed: int) -> None:
    problem = random_problem(seed)
    kernels = problem.kernels
    for x in np.random.default_rng(seed).uniform(-1, 1, (3, problem.d)):
        eps, rho = 0.3, 2.0
        expected = bool(
            np.linalg.norm(kernels.grad_phi(x)) <= eps
            and np.linalg.eigvalsh(kernels.hess_phi(x))[0] >= -math.sqrt(rho * eps)
        )
        result = check_local_minimum(x, problem, eps=eps, rho_phi=rho)
        assert (result.verdict is Verdict.HOLDS) is expected
        assert classify(problem, x.tolist(), eps=eps, rho_phi=rho).is_eps_local_minimum is expected


@pytest.mark.slow
def test_rho_phi_is_certified_over_the_box_where_it_matters() -> None:
    result = check_local_minimum([0, 0], SADDLE, eps=1e-3)
    assert result.verdict is Verdict.VIOLATED
    assert result.measured == 1.0
    assert check_local_minimum([2, 0], SADDLE, eps=1e-6).verdict is Verdict.HOLDS


def test_without_a_box_nothing_is_said_where_it_matters() -> None:
    result = check_local_minimum([0, 0], BOWL, eps=0.1)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "no box" in result.message
    assert "rho_phi" in result.message
    assert check_local_minimum([1, 0], BOWL, eps=0.1).verdict is Verdict.VIOLATED  # where it does not


def test_how_many_steps_are_left() -> None:
    problem = BilevelProblem("x1*y1 + x2*y2", "y1**2/2 + y2**2/8 - x1*y1 - x2*y2", "x1 x2", "y1 y2")
    result = check_local_minimum([0.0, 0.5], problem, eps=1e-3)  # Phi = x1^2 + 4 x2^2
    assert "more steps of size 1/|Hess Phi| = 0.125" in result.message
    x, steps = np.array([0.5, 0.0]), 0
    guess = int(check_local_minimum(x, problem, eps=1e-3).message.split("about ")[1].split()[0])
    while np.linalg.norm(problem.kernels.grad_phi(x)) > 1e-3:
        x, steps = x - 0.125 * problem.kernels.grad_phi(x), steps + 1
    assert guess == steps


def test_a_maximum_is_not_called_a_saddle() -> None:
    result = check_local_minimum([0.0], BilevelProblem("-x*y", "y**2/2 - x*y", "x", "y"), eps=0.1, rho_phi=1)
    assert result.verdict is Verdict.VIOLATED
    assert "falls in every direction" in result.message


def test_at_a_kink_nothing_is_said() -> None:
    result = check_local_minimum([0.0], BilevelProblem("abs(x)*y + x**2", "(y - 1)**2", "x", "y"), eps=0.1)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.evidence is None


def test_every_kind_of_point() -> None:
    class Tensor:
        """What PyTorch has: no numbers before it is detached."""

        def detach(self) -> Any:
            return SimpleNamespace(cpu=lambda: np.array([2.0, 0.0], dtype=np.float32))

        def __iter__(self) -> Any:
            raise RuntimeError("detach first")

    solution = solve(SADDLE, Descent(AID(5, 2, 0.5), 0.5), [1.5, 0.2], steps=300)
    points: list[Any] = [
        [2, 0], ("2", "0/1"), np.array([2, 0]), {"x1": "2", "x2": 0}, {"x1": np.float64(2), "x2": np.array(0.0)},
        Tensor(), SimpleNamespace(x=[2.0, 0.0]), {"x": np.array([2.0, 0.0]), "status": "done"}, solution, [[2, 0]],
    ]  # fmt: skip
    for point in points:
        result = check_local_minimum(point, SADDLE, eps=1e-3)
        assert result.verdict is Verdict.HOLDS, point
        assert result.n_points == 1


@pytest.mark.slow
def test_jax_arrays() -> None:
    jax = pytest.importorskip("jax")
    assert check_local_minimum(jax.numpy.array([2.0, 0.0]), SADDLE, eps=1e-3).verdict is Verdict.HOLDS


def test_of_an_ensemble_the_worst_is_named() -> None:
    algorithm = Perturbed(AID(5, 2, 0.5), eta=0.5, eps=1e-2, r=0.1, T_escape=20)
    solution = solve(SADDLE, algorithm, [[1.9, 0.0], [0.5, 0.5], [2.0, 0.1]], steps=3, rng=0)
    result = check_local_minimum(solution, SADDLE, eps=1e-2, rho_phi=1)
    norms = [math.hypot(*map(float, evaluate(SADDLE, x.tolist()).grad_phi)) for x in solution.x]
    assert result.n_points == 3
    assert result.measured == pytest.approx(max(norms))
    assert f"point {int(np.argmax(norms))} of 3" in result.message


def test_of_an_ensemble_a_violation_is_worse_than_a_doubt() -> None:
    result = check_local_minimum([[0, 0], [0, 0.1], [1, 0]], BOWL, eps=0.1)
    assert result.verdict is Verdict.VIOLATED
    assert "point 2 of 3" in result.message


@pytest.mark.parametrize(
    "x", [3, "ab", None, [1], [1, math.nan], {"z": 1}, [[1, 2, 3]], np.zeros((1, 1, 2)), [None, 1], np.zeros((0, 2)),
          [1j, 2], [True, 1], np.array([1, math.inf])],
)  # fmt: skip
def test_bad_points_are_one_clear_error(x: Any) -> None:
    with pytest.raises(InvalidArgument):
        check_local_minimum(x, BOWL, eps=0.1)


@pytest.mark.parametrize("options", [{"eps": 0}, {"eps": -1}, {"eps": "no"}, {"eps": 0.1, "rho_phi": -1}])
def test_bad_options_are_one_clear_error(options: Any) -> None:
    with pytest.raises(InvalidArgument):
        check_local_minimum([0, 0], BOWL, **options)
    with pytest.raises(InvalidArgument, match="wants a problem"):
        check_local_minimum([0], "problem", eps=1)  # type: ignore[arg-type]
