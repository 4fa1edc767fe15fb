"""Pictures of estimates and of games: what is on the axes, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bilevel_sym import BilevelProblem, Box, Descent, GDmax, MinimaxProblem, solve, zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting.eigenvalues import plot_estimates
from bilevel_sym.plotting.game import plot_game, plot_moves

NASH = zoo.get("minimax_nash")


def axes() -> Any:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    return Figure().subplots()


def legend(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def labelled(ax: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in ax.get_lines()}


def test_the_line_is_the_median_distance_from_the_truth() -> None:
    draws = np.array([[[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0], [6.0, 8.0]]])
    truth = np.array([1.0, -2.0])
    ax = plot_estimates([2, 8], draws + truth, truth, axes(), label="draws", along="Q")
    line = labelled(ax)["draws"]
    assert line.get_xdata().tolist() == [2.0, 8.0]
    assert line.get_ydata().tolist() == [1.0, 0.0]
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_xlabel()) == ("log", "log", "Q")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["2", "8"]


def test_a_second_series_differs_in_colour_marker_and_style() -> None:
    ax = axes()
    for name in ("first", "second"):
        plot_estimates([1, 2], np.ones((2, 3, 1)), [0.0], ax, label=name, along="Q")
    first, second = (labelled(ax)[name] for name in ("first", "second"))
    for look in ("get_color", "get_marker", "get_linestyle"):
        assert getattr(first, look)() != getattr(second, look)()
    assert legend(ax) == ["first", "second"]


@pytest.mark.parametrize(
    ("at", "shape", "says"),
    [([1, 2], (3, 4, 1), "do not fit"), ([1, 2], (2, 4), "do not fit"), ([0, 2], (2, 4, 1), "positive")],
)
def test_estimates_that_cannot_be_drawn_are_refused(at: list[int], shape: tuple[int, ...], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        plot_estimates(at, np.ones(shape), [0.0], label="draws", along="Q")


def test_a_game_shows_the_best_answer_and_marks_points_on_it() -> None:
    ax = plot_game(NASH.problem, axes(), points=NASH.stationary_points)
    answer = labelled(ax)["y*(x)"]
    np.testing.assert_allclose(answer.get_ydata(), answer.get_xdata() / 2, atol=1e-12)
    mark = labelled(ax)[r"local minimum of $\Phi$"]
    assert (float(mark.get_xdata()[0]), float(mark.get_ydata()[0])) == (0.0, 0.0)
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("x", "y", "minimax_nash")


def test_points_stand_on_the_curve_and_outside_of_the_box_nowhere() -> None:
    places = [SimpleNamespace(x=(0.5,), kind="saddle"), SimpleNamespace(x=(3.0,), kind="local maximum")]
    ax = plot_game(NASH.problem, axes(), box=Box([0, -1], [1, 1]), points=places)  # y* = x/2
    mark = labelled(ax)[r"saddle point of $\Phi$"]
    np.testing.assert_allclose([*mark.get_xdata(), *mark.get_ydata()], [0.5, 0.25])
    assert legend(ax) == ["y*(x)", r"saddle point of $\Phi$"]
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 1), (-1, 1))
    none = plot_game(NASH.problem, axes(), points=None)  # as of an example of the zoo that does not know them
    assert legend(none) == ["y*(x)"]


def test_moves_are_the_pairs_of_a_run() -> None:
    ax = plot_game(NASH.problem, axes())
    run = solve(NASH.problem, Descent(GDmax(D=1, tau=0.1), eta=0.1), [0.9], y0=[-0.5], steps=20)
    plot_moves(run, ax, label="GDmax")
    line = labelled(ax)["GDmax"]
    np.testing.assert_array_equal(line.get_xdata(), run.trajectory.x[:, 0])
    np.testing.assert_array_equal(line.get_ydata(), run.trajectory.y[:, 0])
    many = solve(NASH.problem, Descent(GDmax(D=1, tau=0.1), eta=0.1), [[0.9], [0.5]], steps=20)
    plot_moves(many, ax, label="two runs")
    assert labelled(ax)["two runs"].get_color() != line.get_color()
    assert legend(ax) == ["y*(x)", "GDmax", "start", "end", "two runs"]


@pytest.mark.parametrize(
    ("problem", "how", "words"),
    [
        (zoo.get("saddle").problem, {}, "there are 2 and 2"),
        (MinimaxProblem("x*y - y**2/2", "x", "y"), {}, "no box to draw"),
        (NASH.problem, {"box": {"x": (0, 1)}}, "the box misses y"),
        (NASH.problem, {"box": {"x": (0, 0), "y": (0, 1)}}, "no width: x is 0"),
        (NASH.problem, {"points": [SimpleNamespace(x=(0,), kind="flat")]}, "kind 'flat'"),
        (BilevelProblem("log(x)*y", "y**2/2 - y", "x", "y"), {"box": {"x": (-2, -1), "y": (0, 1)}}, "no value"),
    ],
)
def test_only_a_plane_with_a_box_is_drawn(problem: Any, how: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        plot_game(problem, axes(), **how)


@pytest.mark.slow
def test_moves_want_a_run_in_the_plane() -> None:
    run = solve(zoo.get("saddle").problem, Descent.auto(zoo.get("saddle").problem), [1.0, 1.0], steps=2)
    with pytest.raises(InvalidArgument, match="there are 2 and 2"):
        plot_moves(run, None, label="saddle")  # type: ignore[arg-type]
