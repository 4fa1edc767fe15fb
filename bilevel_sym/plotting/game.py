"""The plane of a game with one variable on each side: f, the best answer y*(x), and the moves of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel_sym.box import Box
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.plotting.landscape import KINDS
from bilevel_sym.plotting.style import COLOURS, Floats, axes_or_new, legend_below
from bilevel_sym.plotting.values import on_grid, where_defined
from bilevel_sym.problem import BilevelProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bilevel_sym.solution import Solution

__all__ = ["plot_game", "plot_moves"]

GRID, LEVELS, CURVE = 97, 16, 201
GROUP = "moves"  # the group of the lines of runs, by which a second call knows of the first


def plot_game(
    problem: BilevelProblem,
    ax: Axes | None = None,
    *,
    box: Mapping[str, Iterable[object]] | None = None,
    points: Iterable[Any] = (),
) -> Axes:
    """Contours of f over the (x, y) box of a problem with d = n = 1, by default its own, and the curve y*(x).

    ``points`` have an ``x`` and a ``kind``, as those of ``verify.stationary_points`` and of the zoo; they are marked on
    the curve, by their kind as stationary points of Phi. Returns the axes, new ones where none are given.

    >>> from bilevel_sym import zoo
    >>> game = zoo.get("minimax_not_nash")
    >>> plot_game(game.problem, points=game.stationary_points).get_ylabel()  # doctest: +SKIP
    'y'
    >>> plot_game(zoo.get("saddle").problem)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: the plane of a game has one x and one y, but there are 2 and 2
    try: plot_landscape draws Phi over two variables x
    """
    exact, low, high = _window(problem, box)
    k = exact.kernels
    (across, up), heights = on_grid(lambda at: k.f(at[:, :1], at[:, 1:]), low, high, GRID)
    x = np.linspace(low[0], high[0], CURVE)
    ax = axes_or_new(ax)
    hidden = np.ma.masked_invalid(heights.T)  # rows of a picture are the second variable
    filled = ax.contourf(across, up, hidden, levels=LEVELS, cmap="cividis", alpha=0.55, zorder=0)
    figure = ax.get_figure()
    assert figure is not None
    names = exact.x[0].name, exact.y[0].name
    figure.colorbar(filled, ax=ax).set_label(f"f({', '.join(names)})")
    answers = where_defined(k.y_star, x[:, None], (1,))[:, 0]
    ax.plot(x, answers, color="0.15", linewidth=1.3, linestyle="--", label=rf"{names[1]}*({names[0]})")
    for point in points:
        _draw_point(ax, exact, point)
    ax.set(xlabel=names[0], ylabel=names[1], xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    if problem.name:
        ax.set_title(problem.name)
    legend_below(ax)
    return ax


def plot_moves(solution: Solution, ax: Axes, *, label: str, colour: str | None = None) -> Axes:
    """The pairs (x_k, y_k) of runs on the plane of a game; y_k is the estimate with which x_k moves on.

    Without ``colour``, runs get the next colour that none on the axes has. Returns the axes.

    >>> from bilevel_sym import Descent, GDmax, solve, zoo
    >>> game = zoo.get("minimax_nash").problem
    >>> run = solve(game, Descent(GDmax(D=1, tau=0.1), eta=0.1), [0.9], y0=[-0.5], steps=50)
    >>> plot_moves(run, plot_game(game), label="D = 1").get_xlabel()  # doctest: +SKIP
    'x'
    """
    path = solution.trajectory
    if (path.x.shape[-1], path.y.shape[-1]) != (1, 1):
        raise InvalidProblem(
            f"moves in the plane want one x and one y, but there are {path.x.shape[-1]} and {path.y.shape[-1]}"
        )
    drawn = {line.get_color() for line in ax.get_lines() if line.get_gid() == GROUP}
    chosen = colour or next((c for c in (COLOURS[0], COLOURS[1], *COLOURS[3:]) if c not in drawn), COLOURS[0])
    for run, (x, y) in enumerate(zip(_runs(path.x), _runs(path.y), strict=True)):
        known = np.isfinite(x[:, 0])
        name = label if run == 0 else "_"
        ax.plot(x[known], y[known], color=chosen, gid=GROUP, linewidth=1.2, marker=".", markersize=3, label=name)
        ends: dict[str, Any] = {"linestyle": "none", "zorder": 6, "markeredgecolor": chosen}
        ax.plot(x[0], y[0], marker="o", color="white", label="start", **ends)
        ax.plot(x[known][-1], y[known][-1], marker="s", color=chosen, label="end", **ends)
    legend_below(ax)
    return ax


def _draw_point(ax: Axes, exact: BilevelProblem, point: Any) -> None:
    marker, colour = KINDS[point.kind]
    at = np.array([float(value) for value in point.x])
    name = point.kind if point.kind.startswith("local") else f"{point.kind} point"
    style: dict[str, Any] = {"linestyle": "none", "marker": marker, "color": colour, "markeredgecolor": "black"}
    ax.plot(at, exact.kernels.y_star(at), markersize=9, zorder=5, label=rf"{name} of $\Phi$", **style)


def _runs(table: Floats) -> Floats:
    return table.reshape(-1, *table.shape[-2:])


def _window(
    problem: BilevelProblem, box: Mapping[str, Iterable[object]] | None
) -> tuple[BilevelProblem, Floats, Floats]:
    """The exact problem, and the ends of what is seen of (x, y)."""
    if not isinstance(problem, BilevelProblem):
        raise InvalidProblem(f"a game wants a problem, but was given a {type(problem).__name__}")
    exact = problem.mean
    if (exact.d, exact.n) != (1, 1):
        raise InvalidProblem(
            f"the plane of a game has one x and one y, but there are {exact.d} and {exact.n}",
            hint="plot_landscape draws Phi over two variables x",
        )
    names = [s.name for s in (*exact.x, *exact.y)]
    chosen = exact.box if box is None else Box(box)
    ends = {} if chosen is None else dict(chosen.items())
    if any(name not in ends for name in names):
        example = ", ".join(f'"{name}": (-1, 1)' for name in names)
        raise InvalidProblem("a game wants a box in x and y", hint=f"box={{{example}}}")
    low, high = (np.array([float(ends[name][k]) for name in names]) for k in (0, 1))
    return exact, low, high
