"""The test kit on array problems: right candidates hold, planted defects are named, arrays come by name; strategies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, verify
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import Floats
from verify import strategies
from verify.strategies.array_problems import LEVELS, LOSSES, array_problems, matrices
from verify.testkit.named_arrays import in_one_vector, laid_out_points, named_arrays
from verify.testkit.sample_points import given_points, x_ends
from verify.verdict import Verdict


def logistic(m: int, n: int) -> BilevelProblem:
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(m, n)), rng.normal(size=(m, n))
    data = {"A": A, "b": np.sign(rng.normal(size=m)), "B": B, "c": np.sign(rng.normal(size=m))}
    f = "mean(softplus(-c*(B @ y))) + x @ y/5"
    return BilevelProblem(
        f, "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2", "x[n]", "y[n]", data=data, box={"x": (-1, 1)}
    )


def of_several() -> BilevelProblem:
    """x is a number and a matrix, y a matrix."""
    g = "sum((V - W)**2)/2 + exp(lam)*sum(V**2)/2 + sum(V**4)/12"
    return BilevelProblem("sum(V**2)/2 + lam*sum(V)", g, "lam, W[2, 3]", "V[2, 3]")


def parts(problem: BilevelProblem, x: Floats, y: Floats) -> tuple[Floats, ...]:
    return tuple(getattr(problem.kernels, name)(x, y) for name in ("f_x", "f_y", "g_xy", "g_yy"))


def implicit(
    problem: BilevelProblem, x: Floats, *, cross: float = 1.0, shift: float = 1.0, N: int | None = None
) -> Floats:
    """The hypergradient with one fault: the cross term scaled, y* scaled, or N conjugate gradients for v."""
    y = problem.kernels.y_star(x) * shift
    f_x, f_y, g_xy, g_yy = parts(problem, x, y)
    v = np.linalg.solve(g_yy, f_y) if N is None else conjugate_gradients(g_yy, f_y, N)
    return f_x - cross * g_xy @ v


def conjugate_gradients(matrix: Floats, right: Floats, steps: int) -> Floats:
    v, rest = np.zeros_like(right), right.copy()
    way = rest.copy()
    for _ in range(steps):
        if rest @ rest < 1e-28:
            break
        length = (rest @ rest) / (way @ matrix @ way)
        v, new = v + length * way, rest - length * matrix @ way
        way, rest = new + (new @ new) / (rest @ rest) * way, new
    return v


SMALL = logistic(20, 3)


def test_gradients_are_checked_where_hessians_are_left_out() -> None:
    rng = np.random.default_rng(0)
    data = {"A": rng.normal(size=(70, 51)), "b": rng.normal(size=70)}
    g = "mean((A @ y - b)**2) + exp(x) @ y**2"
    problem = BilevelProblem("mean((A @ y - b)**2)", g, "x[n]", "y[n]", data=data)
    right = verify.check_hypergradient(problem.kernels.grad_phi, problem, points=np.linspace(-1, 1, 102).reshape(2, 51))
    assert right.verdict is Verdict.HOLDS


@pytest.mark.slow
def test_right_candidates_hold() -> None:
    kernels = SMALL.kernels
    assert verify.check_hypergradient(kernels.grad_phi, SMALL, effort="quick").verdict is Verdict.HOLDS
    assert verify.check_lower_solution(lambda x: (kernels.y_star(x),), SMALL, effort="quick").verdict is Verdict.HOLDS
    assert verify.check_hessian(kernels.hess_phi, SMALL, effort="quick").verdict is Verdict.HOLDS


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "cause"), [({"cross": 0.5}, "cross"), ({"shift": 1.01}, "y*")])
def test_wrong_candidates_are_named(fault: dict[str, Any], cause: str) -> None:
    result = verify.check_hypergradient(lambda x: implicit(SMALL, x, **fault), SMALL, effort="quick")
    assert result.verdict is Verdict.VIOLATED
    assert result.cause == cause
    assert "x_1 = " in result.message


@pytest.mark.slow
def test_a_wrong_hessian_is_named() -> None:
    result = verify.check_hessian(lambda x: 1.1 * SMALL.kernels.hess_phi(x), SMALL, effort="quick")
    assert (result.verdict, result.cause) == (Verdict.VIOLATED, "factor")


@pytest.mark.long
def test_thirty_features() -> None:
    problem = logistic(100, 30)
    points = [np.zeros(30), np.full(30, 0.5)]
    right = verify.check_hypergradient(problem.kernels.grad_phi, problem, points=points)
    assert right.verdict is Verdict.HOLDS
    wrong = verify.check_hypergradient(lambda x: implicit(problem, x, cross=0.5), problem, points=points)
    assert (wrong.verdict, wrong.cause) == (Verdict.VIOLATED, "cross")
    few = verify.check_hypergradient(lambda x, N=3: implicit(problem, x, N=N), problem, points=points)
    assert few.verdict is not Verdict.VIOLATED or few.cause != "cross"


# ---- named arrays -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("takes", "returns"), [("vector", "tuple"), ("dict", "dict"), ("tuple", "vector")])
def test_arrays_by_name(takes: Any, returns: str) -> None:
    """Whatever is taken and returned, the same function is right, and with two entries exchanged wrong."""
    problem = of_several()

    def candidate(x: Any, factor: float = 1.0) -> Any:
        lam, W = (x["lam"], x["W"]) if takes == "dict" else (x[0], x[1]) if takes == "tuple" else (x[0], x[1:])
        vector = np.concatenate([[lam], np.ravel(W)])
        grad = problem.kernels.grad_phi(vector) * factor
        arrays = {"lam": grad[0], "W": grad[1:].reshape(2, 3)}
        return {"vector": grad, "dict": arrays, "tuple": tuple(arrays.values())}[returns]

    points = [{"lam": 0.25, "W": [[0.1, 0.2, 0.3], [0.4, -0.5, 0.75]]}]
    right = verify.check_hypergradient(candidate, problem, points=points, takes=takes, effort="quick")
    assert right.verdict is Verdict.HOLDS
    wrong = verify.check_hypergradient(lambda x: candidate(x, 1.5), problem, points=points, takes=takes, effort="quick")
    assert wrong.verdict is Verdict.VIOLATED


@pytest.mark.slow
def test_a_matrix_of_y_is_laid_end_to_end() -> None:
    problem = of_several()
    solution = verify.check_lower_solution(
        lambda x: problem.kernels.y_star(x).reshape(2, 3), problem, points=[np.linspace(-1, 1, 7)]
    )
    assert solution.verdict is Verdict.HOLDS


def test_shapes_that_do_not_fit_are_told() -> None:
    problem = of_several()
    with pytest.raises(InvalidArgument, match="takes"):
        in_one_vector(lambda x: x, problem, "list", "x")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="other shapes"):
        laid_out_points(problem, [{"lam": 0, "W": [1, 2]}])
    result = verify.check_hypergradient(lambda x: {"lam": 1.0}, problem, points=[np.zeros(7)])
    assert result.verdict is Verdict.VIOLATED
    assert given_points(problem, {"lam": 1, "W": np.zeros((2, 3))}).shape == (1, 7)
    assert [end.tolist() for end in x_ends(problem)] == [[-1.0] * 7, [1.0] * 7]
    assert named_arrays(problem, "x", np.arange(7.0))["W"].tolist() == [[1, 2, 3], [4, 5, 6]]


# ---- strategies ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_drawn_problems_are_strongly_convex_and_print_as_code(data: st.DataObject) -> None:
    problem = data.draw(array_problems())
    assert problem.is_array
    assert problem.box is not None
    again = eval(repr(problem), {"BilevelProblem": BilevelProblem})
    assert again == problem
    x = data.draw(strategies.points(problem))
    assert x.shape == (problem.d,)
    y = problem.kernels.y_star(x)
    assert np.linalg.eigvalsh(problem.kernels.g_yy(x, y))[0] > 0.05
    assert np.abs(problem.kernels.g_y(x, y)).max() < 1e-8


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.data())
def test_singular_values_are_those_that_were_asked_for(rows: int, columns: int, data: st.DataObject) -> None:
    wanted = (5.0, 2.0, 1.0, 0.5)
    A = data.draw(matrices(rows, columns, wanted))
    found = np.linalg.svd(A, compute_uv=False)
    assert found == pytest.approx(wanted[: min(rows, columns)])
    flat = data.draw(matrices(rows, columns, "isotropic"))
    assert np.ptp(np.linalg.svd(flat, compute_uv=False)) < 1e-12


def test_drawn_problems_shrink_and_refuse_what_is_unknown() -> None:
    small = find(array_problems(rows=(2, 40), features=(1, 9), levels=["weights"]), lambda problem: problem.n > 1)
    assert (small.d, small.n) == (2, 2)
    assert set(array_levels()) == {"target", "penalty", "penalties", "weights"}
    unknown: list[dict[str, Any]] = [{"rows": 0}, {"losses": ["hinge"]}, {"levels": []}, {"spectrum": "wide"}]
    for wrong in (*unknown, {"spectrum": (-1.0,)}):
        with pytest.raises(InvalidArgument):
            array_problems(**wrong)
    assert set(LOSSES) == {"squares", "logistic", "pseudo-huber", "logcosh"}


def array_levels() -> list[str]:
    return list(LEVELS)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(array_problems(rows=(1, 3), features=(1, 2)))
def test_drawn_problems_have_certified_constants(problem: BilevelProblem) -> None:
    """From their structure: what is sampled lies inside."""
    found = verify.constants(problem, effort="quick")
    x = np.random.default_rng(0).uniform(-1, 1, (5, problem.d))
    for row in x:
        y = problem.kernels.y_star(row)
        eigenvalues = np.linalg.eigvalsh(problem.kernels.g_yy(row, y))
        assert found.valid.mu <= eigenvalues[0] * (1 + 1e-9)
        assert eigenvalues[-1] <= found.valid.ell * (1 + 1e-9)
        assert np.linalg.norm(problem.kernels.f_y(row, y)) <= found.valid.M * (1 + 1e-9)
