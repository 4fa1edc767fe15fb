"""Eigenvalues along runs: what is drawn against a closed form of Hess Phi."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp

from bilevel_sym import AID, BilevelProblem, Descent, Exact, Perturbed, Solution, solve, zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting import plot_eigenvalues

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure

SADDLE = zoo.get("saddle", d=2)
BOWLS = BilevelProblem("y + 2*x1**2 - 3*x2**2 + x1*x2", "y**2/2 - x1*y", "x1 x2", "y")  # Hess Phi = [[4, 1], [1, -6]]


def axes() -> Any:
    return Figure().subplots()


def lines(ax: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in reversed(ax.get_lines())}


def run(x0: Any, steps: int = 30) -> Solution:
    algorithm = Perturbed(AID(D=5, N=2, tau=0.05), eta=0.2, eps=0.1, r=0.1, T_escape=20)
    return solve(SADDLE.problem, algorithm, x0, steps=steps, rng=0)


def by_hand(x: Any) -> Any:
    """The eigenvalues of the zoo's closed form of Phi, differentiated by SymPy, at rows (..., 2)."""
    assert SADDLE.phi is not None
    hessian = sp.lambdify(SADDLE.problem.x, sp.hessian(SADDLE.phi, SADDLE.problem.x))
    rows = np.reshape(x, (-1, 2))
    return np.array([np.linalg.eigvalsh(np.array(hessian(*row), dtype=float)) for row in rows]).reshape(np.shape(x))


@pytest.mark.slow
def test_one_run_shows_every_eigenvalue() -> None:
    ax: Any = axes()
    solution = run([0.3, 1.0])
    assert plot_eigenvalues(solution, ax) is ax
    expected = by_hand(solution.trajectory.x)
    for j, name in enumerate((r"$\lambda_{\min}$", r"$\lambda_{2}$")):
        np.testing.assert_allclose(lines(ax)[name].get_ydata(), expected[:, j], atol=1e-10)
        assert lines(ax)[name].get_xdata().tolist() == list(range(31))
    assert ax.get_xlabel() == "iteration k"
    assert ax.get_ylabel() == r"eigenvalues of $\nabla^2\Phi$"


@pytest.mark.slow
def test_perturbations_are_marked_at_the_smallest() -> None:
    solution = run([0.0, 0.0])
    ax: Any = plot_eigenvalues(solution, axes())
    times = np.flatnonzero(solution.trajectory.perturbed)
    marks = lines(ax)[f"perturbations ({len(times)})"]
    assert marks.get_xdata().tolist() == times.tolist() != []
    np.testing.assert_allclose(marks.get_ydata(), by_hand(solution.trajectory.x)[times, 0], atol=1e-10)


def test_an_ensemble_shows_the_smallest_of_each_run_and_their_median() -> None:
    solution = run(np.random.default_rng(0).uniform(-1, 1, (5, 2)), steps=8)
    ax: Any = plot_eigenvalues(solution, axes())
    smallest = by_hand(solution.trajectory.x)[..., 0]
    drawn = [line.get_ydata() for line in ax.get_lines() if len(line.get_xdata()) == 9]
    np.testing.assert_allclose(drawn[:5], smallest, atol=1e-10)
    np.testing.assert_allclose(drawn[5], np.median(smallest, axis=0), atol=1e-10)
    assert "5 runs" in lines(ax)
    assert "median; what has ended counts as it ended" in lines(ax)
    assert ax.get_ylabel().startswith("smallest")


def test_points_of_a_problem() -> None:
    ax: Any = plot_eigenvalues(BOWLS, axes(), points=[[0.0, 0.0], [1.0, 2.0], [5.0, 1.0]])
    expected = [-1 - np.sqrt(26), -1 + np.sqrt(26)]
    for name, value in zip((r"$\lambda_{\min}$", r"$\lambda_{2}$"), expected, strict=True):
        np.testing.assert_allclose(lines(ax)[name].get_ydata(), [value] * 3)
    assert ax.get_xlabel() == "point"


def test_many_eigenvalues_are_told_by_their_ends() -> None:
    problem = zoo.get("tube", d=7).problem
    ax: Any = plot_eigenvalues(problem, axes(), points=[[1.0] * 7, [2.0] * 7])
    expected = np.linalg.eigvalsh(problem.kernels.hess_phi(np.array([[1.0] * 7, [2.0] * 7])))
    assert lines(ax)["smallest"].get_ydata().tolist() == expected[:, 0].tolist()
    assert lines(ax)["largest"].get_ydata().tolist() == expected[:, -1].tolist()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["5 between", "largest", "smallest"]


def test_what_has_no_hessian_is_left_out() -> None:
    half = BilevelProblem("x*y", "x*y**2/2 - y", "x", "y")  # strongly convex for x > 0, and Phi = 1
    ax: Any = plot_eigenvalues(half, axes(), points=[[1.0], [-1.0], [2.0]])
    np.testing.assert_allclose(lines(ax)[r"$\lambda_{\min}$"].get_ydata(), [0.0, np.nan, 0.0], atol=1e-12)
    with pytest.raises(InvalidArgument, match="no value at any of the points"):
        plot_eigenvalues(half, axes(), points=[[-1.0]])


def test_one_point_is_seen() -> None:
    ax: Any = plot_eigenvalues(BOWLS, axes(), points=[[0.0, 0.0]])
    assert lines(ax)[r"$\lambda_{\min}$"].get_marker() == "o"


@pytest.mark.parametrize(
    ("source", "points", "words"),
    [
        (BOWLS, None, "want points"),
        (BOWLS, [0.0, 0.0], r"shape \(2,\)"),
        (BOWLS, [[0.0]], r"shape \(1, 1\)"),
        (BOWLS, np.zeros((0, 2)), r"shape \(0, 2\)"),
        (BOWLS, [["a", "b"]], "not numbers"),
        ("x", None, "eigenvalues of a str"),
        (solve(BOWLS, Descent(Exact(), 0.1), [0.0, 0.0], steps=1), [[0.0, 0.0]], "has its own"),
    ],
)
def test_what_is_refused(source: Any, points: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as caught:
        plot_eigenvalues(source, axes(), points=points)
    assert caught.value.hint
