"""The lower level's answer y*(x), with its tangents by the implicit function theorem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel_sym.plotting.arguments import Region, exact_problem, numbers
from bilevel_sym.plotting.line import line_over
from bilevel_sym.plotting.style import COLOURS, axes_or_new, legend_below
from bilevel_sym.plotting.values import where_defined
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.typing import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from bilevel_sym.kernels import Kernels

__all__ = ["plot_response"]

TANGENT_REACH = 0.2  # how far a tangent goes each way, as a part of the box
DASHES = ("-", "--", "-.", ":")


def plot_response(problem: BilevelProblem, ax: Axes | None = None, *, at: ArrayLike = (), box: Region = None) -> Axes:
    """Every entry of y*(x) over x, of one variable, with tangents of slope -g_xy g_yy^-1. Returns the axes.

    - ``problem``: the problem.
    - ``ax``: the axes; by default new ones.
    - ``at``: the points of the tangents.
    - ``box``: over which x runs; by default the problem's.

    >>> problem = BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y", box={"x": (-2, 2), "y": (-2, 2)})
    >>> from matplotlib.figure import Figure
    >>> plot_response(problem, Figure().subplots(), at=[0.5]).get_ylabel()
    '$y^*$(x)'
    """
    exact = exact_problem(problem)
    x = line_over(exact, box)
    touched = numbers("the points at which to draw tangents", at, hint="at=[0.5]").reshape(-1)
    answers = _answers(exact.kernels, touched[:, None])
    entries = where_defined(exact.kernels.y_star, x, (exact.n,)).T
    ax = axes_or_new(ax)
    for k, (symbol, values) in enumerate(zip(exact.y, entries, strict=True)):
        style: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "linestyle": DASHES[k % len(DASHES)]}
        ax.plot(x[:, 0], values, linewidth=2, label=f"{symbol.name}*", **style)
    reach = TANGENT_REACH * (x[-1, 0] - x[0, 0])
    for where, (y, slope) in zip(touched, answers, strict=True):
        ends = np.array([-reach, reach])
        for height, rise in zip(y, slope, strict=True):
            ax.plot(where + ends, height + rise * ends, color=COLOURS[1], linewidth=1.2, label="tangent")
            ax.plot(where, height, "o", color=COLOURS[1], markersize=6)
    ax.set(xlabel=exact.x[0].name, ylabel=f"$y^*$({exact.x[0].name})")
    ax.set_xlim(x[0, 0], x[-1, 0])
    legend_below(ax)
    return ax


def _answers(kernels: Kernels, x: Floats) -> list[tuple[Floats, Floats]]:
    """y* and its derivative, both (n,), at each row of x."""
    return list(zip(kernels.y_star(x), kernels.dy_dx(x)[:, 0], strict=True))
