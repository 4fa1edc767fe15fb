"""Landscapes of Phi, and runs on them: what is drawn against closed forms, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import verify
from bilevel_sym import AID, BilevelProblem, Box, Descent, Exact, Perturbed, Solution, evaluate, solve, zoo
from bilevel_sym.errors import InvalidArgument, InvalidProblem
from bilevel_sym.plotting import plot_landscape, plot_trajectories
from bilevel_sym.plotting.arguments import on_grid, where_defined
from bilevel_sym.plotting.landscape import KINDS

pytest.importorskip("matplotlib")
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

# Phi = x1 + 3 x2 + x1 x2, of which linear interpolation on a grid is exact along its lines
SLOPE = BilevelProblem(
    "y + 3*x2 + x1*x2", "y**2/2 - x1*y", "x1 x2", "y", box={"x1": (0, 1), "x2": (-1, 2), "y": (0, 1)}
)
CURVE = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", box={"x": (-1, 2), "y": (-2, 2)})  # Phi = x^2
# not strongly convex for x1 <= 0
HALF = BilevelProblem("x2*y", "x1*y**2/2 - y", "x1 x2", "y")
SADDLE = zoo.get("saddle", d=2)


def axes() -> Any:
    return Figure().subplots()


def lines(ax: Any) -> dict[str, Any]:
    """The lines by their label, the first of each."""
    return {line.get_label(): line for line in reversed(ax.get_lines())}


def places(ax: Any, label: str) -> Any:
    line = lines(ax)[label]
    return np.column_stack([line.get_xdata(), line.get_ydata()]).tolist()


def legend(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def contours(ax: Any) -> list[tuple[float, Any]]:
    """The height and the vertices of every contour line."""
    drawn = [found for found in ax.collections if hasattr(found, "levels") and not found.filled]
    return [
        (level, path.vertices) for found in drawn for level, path in zip(found.levels, found.get_paths(), strict=True)
    ]


def contours_lie_at_their_heights() -> bool:
    """Every vertex of every contour of SLOPE is where its closed form has that height."""
    found = [(level, at) for level, at in contours(plot_landscape(SLOPE, axes())) if len(at)]
    heights = [np.abs(at[:, 0] + 3 * at[:, 1] + at[:, 0] * at[:, 1] - level).max() for level, at in found]
    return len(found) >= 10 and max(heights) < 1e-9


# ---- the landscape -------------------------------------------------------------------------------------------------


def test_contours_of_two_variables_lie_at_their_heights() -> None:
    assert contours_lie_at_their_heights()


def test_contours_agree_with_certified_values() -> None:
    found = contours(plot_landscape(SADDLE.problem, axes()))
    for level, at in found[2:-2:4]:
        x = at[len(at) // 3]
        assert float(evaluate(SADDLE.problem, x.tolist(), digits=20).phi) == pytest.approx(level, abs=5e-3)


def test_two_variables_have_axes_with_names_and_a_colour_bar() -> None:
    given = axes()
    ax: Any = plot_landscape(SADDLE.problem, given)
    assert ax is given
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("x1", "x2", "saddle")
    bar = ax.get_figure().axes[1]
    assert bar.get_ylabel() == r"$\Phi$(x1, x2)"
    texts = [label.get_text() for label in bar.get_yticklabels() if label.get_text()]
    assert len(texts) > 4
    assert all(len(text.strip("-0.").replace(".", "").rstrip("0")) <= 2 for text in texts), texts
    assert ax.get_xlim() == ax.get_ylim() == (-4, 4)


def test_no_number_stands_twice_beside_a_high_plain_with_shallow_pits() -> None:
    pits = BilevelProblem("y + 3*(x1**2 + x2**2)**4/1000", "(y - 229)**2/2", "x1 x2", "y")
    ax: Any = plot_landscape(pits, axes(), box=dict.fromkeys(("x1", "x2"), (-2, 2)))
    texts = [label.get_text() for label in ax.get_figure().axes[1].get_yticklabels() if label.get_text()]
    assert len(texts) == len(set(texts)) > 1


def test_one_variable_is_the_curve_of_its_closed_form() -> None:
    ax: Any = plot_landscape(zoo.get("scalar").problem, axes())
    x, phi = ax.get_lines()[0].get_data()
    np.testing.assert_allclose(phi, x * (x + 1) / (1 + x**2), atol=1e-14)
    assert len(x) == 401
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", r"$\Phi$(x)")


@pytest.mark.parametrize("box", [{"x1": (0, 1), "x2": (2, 3)}, Box([0, 2], [1, 3]), Box([0, 2, 0], [1, 3, 1])])
def test_another_box_is_drawn_where_it_is_given(box: Any) -> None:
    ax: Any = plot_landscape(SLOPE, axes(), box=box, resolution=5)
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 1), (2, 3))


@pytest.mark.parametrize("x", ["x", "x1 x2"])
def test_a_constant_landscape_is_flat(x: str) -> None:
    box = dict.fromkeys(x.split(), (-1, 1))
    ax: Any = plot_landscape(
        BilevelProblem("y - x1 + 3" if " " in x else "y - x + 3", f"y**2/2 - {x.split()[0]}*y", x, "y"), axes(), box=box
    )
    if x == "x":
        assert set(ax.get_lines()[0].get_ydata()) == {3.0}
        low, high = ax.get_ylim()
        assert low < 2
        assert high > 4  # rounding is not blown up to fill the picture
    else:
        assert all(len(at) == 0 for _, at in contours(ax))


def test_the_landscape_of_a_stochastic_problem_is_that_of_its_mean() -> None:
    problem = zoo.get("stochastic_noise").problem
    mean, of = (contours(plot_landscape(p, axes(), resolution=9)) for p in (problem.mean, problem))
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(mean, of, strict=True))


# ---- stationary points ---------------------------------------------------------------------------------------------


def marked(ax: Any) -> dict[str, list[list[float]]]:
    return {kind: places(ax, kind) for kind in KINDS if kind in lines(ax)}


@pytest.mark.slow
def test_stationary_points_stand_where_they_are() -> None:
    expected = {"local minimum": [[-2.0, 0.0], [2.0, 0.0]], "saddle": [[0.0, 0.0]]}
    for points in (SADDLE.stationary_points, verify.stationary_points(SADDLE.problem)):
        ax: Any = plot_landscape(SADDLE.problem, axes(), points=points, resolution=5)
        assert {kind: sorted(np.round(at, 9).tolist()) for kind, at in marked(ax).items()} == expected
        assert legend(ax) == ["local minimum", "saddle"]


def test_stationary_points_of_a_curve_stand_on_it() -> None:
    example = zoo.get("scalar")
    ax: Any = plot_landscape(example.problem, axes(), points=example.stationary_points)
    root = np.sqrt(2)
    for kind, x in (("local minimum", 1 - root), ("local maximum", 1 + root)):
        assert marked(ax)[kind] == [[pytest.approx(x), pytest.approx(x * (x + 1) / (1 + x**2))]]


def test_every_kind_has_a_shape_and_a_colour_of_its_own() -> None:
    points = [SimpleNamespace(x=(0.1 * k, 0.0), kind=kind) for k, kind in enumerate(KINDS)]
    ax: Any = plot_landscape(SLOPE, axes(), points=points, resolution=3)
    looks = [lines(ax)[kind] for kind in KINDS]
    assert list(KINDS) == ["local minimum", "saddle", "local maximum", "degenerate", "undecided"] == legend(ax)
    assert len({look.get_marker() for look in looks}) == len({to_hex(look.get_color()) for look in looks}) == 5


def test_points_outside_of_the_box_are_left_out() -> None:
    ax: Any = plot_landscape(
        SADDLE.problem, axes(), points=SADDLE.stationary_points, box={"x1": (-1, 1), "x2": (-1, 1)}, resolution=3
    )
    assert list(marked(ax)) == ["saddle"]
    none: Any = plot_landscape(zoo.get("lphi_witness").problem, axes(), points=())
    assert none.get_legend() is None


# ---- gaps ------------------------------------------------------------------------------------------------------------


def test_where_the_lower_level_fails_there_is_a_gap() -> None:
    box = {"x1": (-1, 1), "x2": (1, 2)}
    ax: Any = plot_landscape(HALF, axes(), box=box)
    assert legend(ax) == [r"$\Phi$ has no value"]
    assert min(at[:, 0].min() for _, at in contours(ax) if len(at)) > 0


def test_a_curve_breaks_where_it_is_not_defined() -> None:
    ax: Any = plot_landscape(BilevelProblem("y + log(x)", "y**2/2 - x*y", "x", "y"), axes(), box={"x": (-1, 1)})
    x, phi = ax.get_lines()[0].get_data()
    np.testing.assert_allclose(phi[x > 0], (x + np.log(np.where(x > 0, x, 1)))[x > 0])
    assert np.isnan(phi[x <= 0]).all()


@pytest.mark.parametrize("count", [4, 11, 27])
def test_a_grid_with_gaps_agrees_with_each_of_its_points(count: int) -> None:
    ends, values = on_grid(HALF.kernels.phi, np.array([-0.7, 1.0]), np.array([1.0, 3.0]), count)
    points = np.stack(np.meshgrid(*ends, indexing="ij"), axis=-1)
    each = where_defined(HALF.kernels.phi, points.reshape(-1, 2)).reshape(values.shape)
    np.testing.assert_allclose(values, each, rtol=1e-12)
    assert np.isnan(values).any()
    assert np.isfinite(values).any()


# ---- runs on a landscape ---------------------------------------------------------------------------------------------


def perturbed(x0: Any, steps: int = 60) -> Solution:
    algorithm = Perturbed(AID(D=5, N=2, tau=0.05), eta=0.2, eps=0.1, r=0.1, T_escape=20)
    return solve(SADDLE.problem, algorithm, x0, steps=steps, rng=0)


def test_a_run_of_two_variables_is_the_line_of_its_iterates() -> None:
    run = perturbed([0.0, 0.0])
    ax: Any = plot_landscape(SADDLE.problem, axes(), resolution=5)
    assert plot_trajectories(run, ax, label="Algorithm 1") is ax
    x = run.trajectory.x
    assert places(ax, "Algorithm 1") == x.tolist()
    assert places(ax, "start") == [[0.0, 0.0]]
    assert places(ax, "end") == [x[-1].tolist()]
    assert places(ax, "perturbation") == x[run.trajectory.perturbed].tolist() != []
    assert legend(ax) == ["Algorithm 1", "perturbation", "start", "end"]


def test_a_run_of_one_variable_lies_on_the_curve() -> None:
    run = solve(CURVE, Descent(Exact(), eta=0.25), [2.0], steps=4)
    ax: Any = plot_trajectories(run, plot_landscape(CURVE, axes()))
    assert places(ax, "run") == [[2.0 / 2**k, 4.0 / 4**k] for k in range(5)]


def test_each_run_of_an_ensemble_is_drawn_and_named_once() -> None:
    starts = np.random.default_rng(0).uniform(-3, 3, (30, 2))
    run = perturbed(starts, steps=5)
    ax: Any = plot_trajectories(run, axes())
    drawn = [line for line in ax.get_lines() if line.get_gid() == "trajectories"]
    np.testing.assert_array_equal([line.get_xydata() for line in drawn], run.trajectory.x)
    assert legend(ax).count("30 runs") == 1
    assert places(ax, "start") == starts.tolist()


def test_a_second_call_takes_another_colour_unless_told() -> None:
    ax: Any = plot_trajectories(perturbed([1.0, 1.0], 3), axes(), label="one")
    plot_trajectories(perturbed([2.0, 1.0], 3), ax, label="two")
    plot_trajectories(perturbed([2.0, 2.0], 3), ax, label="three", colour="#CC79A7")
    colours = [to_hex(lines(ax)[name].get_color()) for name in ("one", "two", "three")]
    assert len(set(colours)) == 3
    assert colours[2] == "#cc79a7"


def test_without_axes_the_landscape_is_drawn_first(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib as mpl
    from matplotlib import pyplot

    mpl.use("Agg")
    ax: Any = plot_trajectories(perturbed([1.0, 1.0], 3))
    assert len(contours(ax)) > 5
    assert ax.get_figure().get_size_inches().tolist() == [6.0, 4.0]
    pyplot.close("all")


def test_a_run_that_leaves_the_picture_is_marked_where_it_was_last_seen() -> None:
    downhill = BilevelProblem("-x1*y", "y**2/2 - x1*y", "x1 x2", "y", box={"x1": (-1, 1), "x2": (-1, 1), "y": (-1, 1)})
    run = solve(downhill, Descent(Exact(), eta=0.5), [[0.25, 0.0], [0.0, 0.5]], steps=4)  # x1 doubles
    ax: Any = plot_trajectories(run, plot_landscape(downhill, axes(), resolution=5))
    assert places(ax, "leaves the picture (1 of 2)") == [[1.0, 0.0]]
    assert places(ax, "end") == [[0.0, 0.5]]
    assert ax.get_xlim() == (-1, 1)


def test_a_failed_run_ends_with_a_mark_of_its_own() -> None:
    problem = BilevelProblem(
        "y + log(x1) + x2**2", "y**2/2 - x1*y", "x1 x2", "y", box={"x1": ("0.1", 2), "x2": (-1, 1), "y": (-1, 1)}
    )
    run = solve(problem, Descent(AID(D=2, N=1, tau=0.5), eta=0.1), [[0.3, 0.5], [1.9, 0.5]], steps=6)
    assert [status.ok for status in run.statuses] == [False, True]
    ax: Any = plot_trajectories(run, axes())
    assert places(ax, "end") == [run.trajectory.x[1, -1].tolist()]
    last = run.trajectory.length[0] - 1
    assert places(ax, "ended by a failure") == [run.trajectory.x[0, last].tolist()]
    assert not [text for text in legend(ax) if text.startswith("leaves")]  # what has ended is nowhere, and not outside


def test_a_run_of_one_step_is_drawn() -> None:
    ax: Any = plot_trajectories(perturbed([1.0, 1.0], 1), axes())
    assert len(places(ax, "run")) == 2


# ---- what is refused -------------------------------------------------------------------------------------------------


def refusals() -> Sequence[tuple[str, Any]]:
    def drawn(problem: Any = SLOPE, **how: Any) -> Any:
        return lambda: plot_landscape(problem, axes(), **how)

    return [
        ("one or two variables, but x has 3", drawn(zoo.get("saddle", d=3).problem)),
        ("one or two variables, but x has 3", lambda: plot_trajectories(solve(zoo.get("saddle", d=3).problem, Descent(Exact(), 0.1), [0.0] * 3, steps=1), axes())),
        ("a problem, but was given a str", drawn("x")),
        ("no box to draw", drawn(HALF)),
        ("no width: x1 is 1", drawn(box={"x1": (1, 1), "x2": (0, 1)})),
        ("the box is empty", drawn(box={"x1": (1, 0), "x2": (0, 1)})),
        ("misses x2", drawn(box={"x1": (0, 1)})),
        ("resolution=1", drawn(resolution=1)),
        ("resolution=True", drawn(resolution=True)),
        ("without x and kind", drawn(points=[(0, 1)])),
        ("kind 'not stationary'", drawn(points=[SimpleNamespace(x=(0, 0), kind="not stationary")])),
        ("3 coordinates", drawn(points=[SimpleNamespace(x=(0, 0, 0), kind="saddle")])),
        ("no value at any point", drawn(HALF, box={"x1": (-2, -1), "x2": (0, 1)}, resolution=6)),
        ("no trajectory to draw", lambda: plot_trajectories(perturbed(np.zeros((0, 2))), axes())),
        ('record="all"', lambda: plot_trajectories(solve(CURVE, Descent(Exact(), 0.1), [0.0], steps=1, record="last"), axes())),
    ]  # fmt: skip


@pytest.mark.parametrize("k", range(15))
def test_what_is_refused_says_why(k: int) -> None:
    words, draw = refusals()[k]
    with pytest.raises((InvalidArgument, InvalidProblem), match=words) as caught:
        draw()
    assert caught.value.hint or "empty" in words or "given a str" in words
