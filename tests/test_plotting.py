"""Pictures of solutions: what is on the axes, and what is refused."""

from __future__ import annotations

import builtins
import subprocess
import sys
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bilevel_sym import AID, BilevelProblem, Descent, LocalMinimum, Perturbed, Solution, solve, zoo
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.plotting import (
    COLOURS,
    legend_below,
    plot_eigenvalues,
    plot_landscape,
    plot_moves,
    plot_solution,
    plot_trajectories,
    require_matplotlib,
    spread,
)
from bilevel_sym.plotting.solution import held

PROBLEM = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
DESCENT = Descent(AID(D=1, N=1, tau=1.0), eta=0.25)


def axes() -> Any:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    return Figure().subplots()


def perturbed(x0: Any) -> Solution:
    algorithm = Perturbed(AID(D=5, N=2, tau=0.5), eta=0.1, eps=0.1, r=0.1, T_escape=20)
    return solve(zoo.get("saddle", d=2).problem, algorithm, x0, steps=60, rng=0)


def lines(ax: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in ax.get_lines()}


def test_one_trajectory_is_a_line_of_exact_values() -> None:
    ax = axes()
    solution = solve(PROBLEM, DESCENT, [1.0], steps=4)
    assert plot_solution(solution, ax) is ax
    line = lines(ax)["trajectory"]
    assert line.get_xdata().tolist() == [0, 1, 2, 3, 4]
    assert line.get_ydata().tolist() == solution.trajectory.phi.tolist() == [0.25**k for k in range(5)]
    assert ax.get_xlabel() == "iteration k"
    assert ax.get_ylabel() == r"$\Phi(x_k)$"
    assert ax.get_yscale() == "linear"
    assert ax.get_legend() is not None


def test_against_calls_and_as_a_gap() -> None:
    ax = axes()
    solution = solve(PROBLEM, DESCENT, [1.0], steps=4)
    solution.plot(ax, against="calls", phi_min=-1.0)
    line = lines(ax)["trajectory"]
    assert line.get_xdata().tolist() == solution.trajectory.calls.tolist()
    assert line.get_ydata().tolist() == [0.25**k + 1 for k in range(5)]
    assert ax.get_yscale() == "log"
    assert "calls" in ax.get_xlabel()


def test_a_gap_below_rounding_is_drawn_at_rounding() -> None:
    ax = axes()
    plot_solution(solve(PROBLEM, DESCENT, [0.0], steps=2), ax, phi_min=0.0)
    assert lines(ax)["trajectory"].get_ydata().tolist() == [2.0**-52] * 3


def test_perturbations_are_marked_where_they_happen() -> None:
    ax = axes()
    solution = perturbed([0.0, 0.0])
    plot_solution(solution, ax)
    times = np.flatnonzero(solution.trajectory.perturbed)
    assert len(times) >= 1
    marks = lines(ax)[f"perturbations ({len(times)})"]
    assert marks.get_xdata().tolist() == times.tolist()
    assert marks.get_ydata().tolist() == solution.trajectory.phi[times].tolist()


def test_several_trajectories_are_their_median_and_quartiles() -> None:
    ax = axes()
    solution = perturbed(np.zeros((9, 2)))
    plot_solution(solution, ax)
    median, low, high = spread(solution.trajectory.phi)
    np.testing.assert_array_equal(lines(ax)["median of 9, and quartiles"].get_ydata(), median)
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == low.min()
    assert band[:, 1].max() == high.max()
    total = solution.trajectory.perturbed.sum()
    assert len(lines(ax)[f"perturbations ({total} in all)"].get_xdata()) == total


def test_few_trajectories_are_drawn_themselves_with_their_median() -> None:
    """Quartiles of three runs are no band that says anything."""
    ax = axes()
    solution = solve(PROBLEM, DESCENT, [[1.0], [2.0], [4.0]], steps=5)
    plot_solution(solution, ax, against="calls")
    runs = [line for line in ax.get_lines() if line.get_label().startswith("_")]
    np.testing.assert_array_equal([line.get_ydata() for line in runs], solution.trajectory.phi)
    np.testing.assert_array_equal([line.get_xdata() for line in runs], solution.trajectory.calls)
    assert not ax.collections
    assert "median of 3, thin lines are the runs" in lines(ax)


def test_a_run_that_ends_makes_no_dip() -> None:
    """Three rows that rise; the highest ends early, by a failure too: the median goes on as if it stood there."""
    rows = np.array([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0], [3.0, np.nan, np.nan]])
    np.testing.assert_array_equal(spread(held(rows)).median, [2.0, 3.0, 3.0])
    np.testing.assert_array_equal(held(rows)[2], 3.0)
    assert spread(rows).median[1] == 2.5  # which is what a median without it makes of it
    np.testing.assert_array_equal(held(np.array([[np.nan, 1.0, np.nan]])), [[np.nan, 1.0, 1.0]])


def test_trajectories_that_ended_stay_where_they_ended() -> None:
    ax = axes()
    solution = solve(PROBLEM, DESCENT, [[1e-5], [1e-5], [4.0]], steps=30, stop=LocalMinimum(eps=1e-3))
    assert len(set(np.asarray(solution.steps).tolist())) == 2
    plot_solution(solution, ax, against="calls")
    line = lines(ax)["median of 3, thin lines are the runs"]
    # without the two that ended at once, the median would be the third one's
    assert line.get_ydata() == pytest.approx(1e-10)
    assert np.all(np.diff(line.get_xdata()) == 0)


def test_what_cannot_be_solved_is_left_out() -> None:
    median, low, high = spread(np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]]))
    np.testing.assert_array_equal(median, [2.0, 5.0, np.nan])
    np.testing.assert_array_equal(low, [1.5, 5.0, np.nan])
    np.testing.assert_array_equal(high, [2.5, 5.0, np.nan])


def test_new_axes_are_made_where_none_are_given() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    ax = solve(PROBLEM, DESCENT, [1.0], steps=2).plot()
    assert ax.get_figure() is not None
    pyplot.close("all")


def test_nothing_recorded_is_a_typed_error() -> None:
    with pytest.raises(InvalidArgument, match='record="all"'):
        plot_solution(solve(PROBLEM, DESCENT, [1.0], steps=2, record="last"))


def test_what_is_refused() -> None:
    solution = solve(PROBLEM, DESCENT, [1.0], steps=2)
    with pytest.raises(InvalidArgument, match="against='time'"):
        plot_solution(solution, against="time")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="is not the minimum"):
        plot_solution(solution, phi_min=0.5)


@pytest.mark.parametrize("draw", [plot_solution, plot_trajectories, plot_eigenvalues, partial(plot_moves, label="a")])
def test_only_a_solution_with_a_run_is_drawn(draw: Any) -> None:
    with pytest.raises(InvalidArgument, match="at least one row"):
        draw(solve(PROBLEM, DESCENT, np.zeros((0, 1)), steps=2), axes())
    with pytest.raises(InvalidArgument, match=r"a Solution, (but was given a str|or a problem)"):
        draw("x", axes())


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refusing(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refusing)
    run = solve(PROBLEM, DESCENT, [1.0], steps=1)
    draws: list[Any] = [require_matplotlib, run.plot, partial(plot_landscape, PROBLEM, box={"x": (0, 1)})]
    for draw in [*draws, partial(plot_eigenvalues, run)]:
        with pytest.raises(BilevelError, match="pip install matplotlib"):
            draw()


def test_colours_are_distinct() -> None:
    assert len(set(COLOURS)) == len(COLOURS) == 7


@pytest.mark.slow
def test_matplotlib_is_not_imported_before_something_is_drawn() -> None:
    code = "import sys, bilevel_sym.plotting, verify.plotting; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_legend_takes_as_many_columns_as_fit_and_lies_under_the_axes() -> None:
    ax = axes()
    for name in ("a", "b", "a", "a much longer name than the others have"):
        ax.plot([0, 1], label=name)
    legend_below(ax)
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "a much longer name than the others have"]
    assert legend.get_window_extent().y1 < ax.get_xaxis().get_tightbbox().y0
    one = axes()
    for k in range(3):
        one.plot([0, 1], label=f"{k} " + 60 * "x")
    legend_below(one)
    assert one.get_legend()._ncols == 1
    none = axes()
    legend_below(none)
    assert none.get_legend() is None


def test_smaller_letters_give_a_legend_more_columns() -> None:
    pytest.importorskip("matplotlib")
    import matplotlib as mpl

    columns = []
    for size in (10, 5):
        with mpl.rc_context({"font.size": size}):
            ax = axes()
            for k in range(6):
                ax.plot([0, 1], label=f"{k} " + 15 * "x")
            legend_below(ax)
            columns.append(ax.get_legend()._ncols)
    assert columns == [2, 5]


@pytest.mark.slow
def test_the_numbers_of_small_axes_do_not_touch() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    small = Figure(figsize=(2.2, 2.2)).subplots()
    plot_solution(solve(PROBLEM, DESCENT, [1.0], steps=300), small)
    over = plot_landscape(
        zoo.get("saddle", d=2).problem, Figure(figsize=(2.6, 2.2)).subplots(), box={"x1": (-1.5, 1.5), "x2": (-1, 1)}
    )
    for ax in (small, over):
        figure: Any = ax.get_figure()
        figure.draw_without_rendering()
        low, high = ax.get_xlim()
        boxes = [
            label.get_window_extent()
            for label, at in zip(ax.get_xticklabels(), ax.get_xticks(), strict=True)
            if low <= at <= high
        ]
        assert len(boxes) > 1
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_what_is_no_axes_is_told_so() -> None:
    from matplotlib.figure import Figure

    several = Figure().subplots(2, 2)
    solution = solve(PROBLEM, DESCENT, [1.0], steps=4)
    draws: tuple[Any, ...] = (plot_solution, plot_trajectories, plot_eigenvalues, partial(plot_moves, label="run"))
    for draw in draws:
        for ax in (Figure(), several):
            with pytest.raises(InvalidArgument, match=r"and should be matplotlib axes"):
                draw(solution, ax)
        assert draw(solution, several[0, 1]) is several[0, 1]
