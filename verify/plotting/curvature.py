"""The norm of Hess Phi over the box whose smoothness was certified, with the bracket of its supremum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting import COLOURS, axes_or_new, legend_below
from bilevel_sym.plotting.style import filled_contours
from bilevel_sym.plotting.values import on_grid
from bilevel_sym.typing import Floats
from verify.regularity.phi_smoothness import Smoothness

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_curvature"]

CURVATURE_POINTS, SURFACE = 401, 81  # points each way, in one and in two variables
NORM = r"$\|\nabla^2\Phi\|$"


def plot_curvature(found: Smoothness, ax: Axes | None = None) -> Axes:
    """|Hess Phi| over the box in x, of one or two variables, with the certified bracket of its largest value.

    A star marks the point at which the lower end of the bracket is attained. Returns the axes, new ones where none are
    given.

    >>> from bilevel_sym import zoo
    >>> from verify import smoothness
    >>> from matplotlib.figure import Figure
    >>> plot_curvature(smoothness(zoo.get("scalar").problem), Figure().subplots()).get_xlabel()
    'x'
    """
    if not isinstance(found, Smoothness):
        raise InvalidArgument(
            f"this picture wants a smoothness, but was given a {type(found).__name__}",
            hint="verify.smoothness(problem)",
        )
    exact = found.problem.mean
    if exact.d > 2:
        raise InvalidArgument(
            f"the curvature is drawn over one or two variables, but x has {exact.d}",
            hint="plot_eigenvalues draws Hess Phi along points in any dimension",
        )
    names = [s.name for s in exact.x]
    low, high = (np.array([float(found.box[name][end]) for name in names]) for end in (0, 1))
    points = CURVATURE_POINTS if exact.d == 1 else SURFACE
    axes, norms = on_grid(lambda x: _norms(exact.kernels.hess_phi(x)), low, high, points)
    ax = axes_or_new(ax)
    (_draw_curve if exact.d == 1 else _draw_surface)(ax, found, axes, norms)
    worst = found.points.get("L_phi")
    if worst is not None:
        height = found.L_phi.lower if exact.d == 1 else worst[names[1]]
        label = f"sup {NORM} is in {found.L_phi}"
        ax.plot(
            worst[names[0]], height, linestyle="none", marker="*", markersize=14, color=COLOURS[1],
            markeredgecolor="black", clip_on=False, zorder=5, label=label,
        )  # fmt: skip
    ax.set_xlabel(names[0])
    legend_below(ax)
    return ax


def _norms(hessians: Floats) -> Floats:
    return np.asarray(np.abs(np.linalg.eigvalsh(hessians)).max(axis=-1))


def _draw_curve(ax: Axes, found: Smoothness, axes: list[Floats], norms: Floats) -> None:
    ax.plot(axes[0], norms, color=COLOURS[0], linewidth=1.8, label=NORM)
    if np.isfinite(found.L_phi.upper):
        ax.axhspan(found.L_phi.lower, found.L_phi.upper, color=COLOURS[1], alpha=0.4, label="bracket of its supremum")
    ax.set_ylabel(NORM)
    ax.set_xlim(axes[0][0], axes[0][-1])


def _draw_surface(ax: Axes, found: Smoothness, axes: list[Floats], norms: Floats) -> None:
    filled_contours(ax, axes, norms, label=NORM)
    ax.set_ylabel(found.problem.mean.x[1].name)
