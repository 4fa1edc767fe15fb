"""The plane of a game with one variable on each side: f, the best answer y*(x), and the moves of runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting.arguments import Region, box_ends, exact_problem, on_grid, one_by_one, recorded, where_defined
from bilevel_sym.plotting.landscape import KINDS, mark_of
from bilevel_sym.plotting.style import COLOURS, axes_or_new, filled_contours, legend_below, next_colour
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.system.plain_text import as_title
from bilevel_sym.typing import Axes, Floats

if TYPE_CHECKING:
    from bilevel_sym.solvers.solution import Solution

__all__ = ["plot_game", "plot_moves"]

GRID, CURVE = 97, 201
ORDER = (COLOURS[0], COLOURS[1], *COLOURS[3:])  # without green, which marks local minima
GROUP = "moves"  # the group of the lines of runs, by which a second call knows of the first


def plot_game(
    problem: BilevelProblem,
    ax: Axes | None = None,
    *,
    box: Region = None,
    points: Iterable[Any] | None = (),
) -> Axes:
    """Contours of f over the (x, y) box of a problem with d = n = 1, and the curve y*(x). Returns the axes.

    - ``problem``: the problem.
    - ``ax``: the axes; by default new ones.
    - ``box``: by default the problem's.
    - ``points``: with an ``x`` and a ``kind``, as those of ``verify.stationary_points`` and of the zoo; the ones in the
      box are marked on the curve, by their kind as stationary points of Phi.

    >>> from bilevel_sym import zoo
    >>> game = zoo.get("minimax_not_nash")
    >>> from matplotlib.figure import Figure
    >>> plot_game(game.problem, Figure().subplots(), points=game.stationary_points).get_ylabel()
    'y'
    >>> plot_game(zoo.get("saddle").problem)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: the plane of a game has one x and one y, but there are 2 and 2
    try: plot_landscape draws Phi over two variables x
    """
    exact = _plane(problem)
    names, k = (exact.x[0].name, exact.y[0].name), exact.kernels
    low, high = box_ends(exact, box, names)
    marks = [mark_of(point, 1) for point in points or ()]
    grid, heights = on_grid(lambda at: k.f(at[:, :1], at[:, 1:]), low, high, GRID)
    x = np.linspace(low[0], high[0], CURVE)
    ax = axes_or_new(ax)
    filled_contours(ax, grid, heights, label=f"f({', '.join(names)})", alpha=0.55)
    answers = where_defined(k.y_star, x[:, None], (1,))[:, 0]
    ax.plot(x, answers, color="0.15", linewidth=1.3, linestyle="--", label=rf"{names[1]}*({names[0]})")
    for at, kind in marks:
        if low[0] <= at[0] <= high[0]:
            _draw_point(ax, exact, at, kind)
    ax.set(xlabel=names[0], ylabel=names[1], xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    if problem.name:
        ax.set_title(as_title(problem.name))
    legend_below(ax)
    return ax


def plot_moves(solution: Solution, ax: Axes, *, label: str, colour: str | None = None) -> Axes:
    """The pairs (x_k, y_k) of runs on the plane of a game; y_k is the estimate with which x_k moves on.

    Returns the axes.

    - ``solution``: what ``solve`` returns.
    - ``ax``: the axes of ``plot_game``.
    - ``label``: the name of the runs.
    - ``colour``: by default the next one that no run on the axes has.

    >>> from bilevel_sym import Descent, GDmax, solve, zoo
    >>> game = zoo.get("minimax_nash").problem
    >>> run = solve(game, Descent(GDmax(D=1, tau=0.1), eta=0.1), [0.9], y0=[-0.5], steps=50)
    >>> from matplotlib.figure import Figure
    >>> plot_moves(run, plot_game(game, Figure().subplots()), label="D = 1").get_xlabel()
    'x'
    """
    path = recorded(solution)
    if (path.x.shape[-1], path.y.shape[-1]) != (1, 1):
        raise InvalidArgument(
            f"moves in the plane want one x and one y, but there are {path.x.shape[-1]} and {path.y.shape[-1]}"
        )
    ax = axes_or_new(ax)
    chosen = colour or next_colour(ax, GROUP, ORDER)
    for run, (x, y) in enumerate(zip(one_by_one(path.x), one_by_one(path.y), strict=True)):
        known = np.isfinite(x[:, 0])
        name = label if run == 0 else "_"
        ax.plot(x[known], y[known], color=chosen, gid=GROUP, linewidth=1.2, marker=".", markersize=3, label=name)
        ends: dict[str, Any] = {"linestyle": "none", "zorder": 6, "markeredgecolor": chosen}
        ax.plot(x[0], y[0], marker="o", color="white", label="start", **ends)
        ax.plot(x[known][-1], y[known][-1], marker="s", color=chosen, label="end", **ends)
    legend_below(ax)
    return ax


def _draw_point(ax: Axes, exact: BilevelProblem, at: Floats, kind: str) -> None:
    marker, colour = KINDS[kind]
    name = kind if kind.startswith("local") else f"{kind} point"
    style: dict[str, Any] = {"linestyle": "none", "marker": marker, "color": colour, "markeredgecolor": "black"}
    ax.plot(at, exact.kernels.y_star(at), markersize=9, zorder=5, label=rf"{name} of $\Phi$", **style)


def _plane(problem: BilevelProblem) -> BilevelProblem:
    exact = exact_problem(problem)
    if (exact.d, exact.n) != (1, 1):
        raise InvalidArgument(
            f"the plane of a game has one x and one y, but there are {exact.d} and {exact.n}",
            hint="plot_landscape draws Phi over two variables x",
        )
    return exact
