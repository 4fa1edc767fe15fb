"""The norm of Hess Phi over a box, with the bracket of its supremum; how much larger the theory's constants are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting import COLOURS, axes_or_new, legend_below
from bilevel_sym.plotting.arguments import on_grid
from bilevel_sym.plotting.style import filled_contours
from bilevel_sym.typing import Axes, Floats
from verify.plotting.tightness import HEAD, mark_one
from verify.regularity.phi_smoothness import Smoothness

__all__ = ["plot_curvature", "plot_looseness"]

CURVATURE_POINTS, SURFACE = 401, 81  # points each way, in one and in two variables
NORM = r"$\|\nabla^2\Phi\|$"
# what is drawn: its name, marker, colour, and place in a row
CONSTANTS: Mapping[str, tuple[str, str, str, float]] = MappingProxyType(
    {"L_phi": (r"$L_\phi$", "o", COLOURS[0], -0.14), "rho_phi": (r"$\rho_\phi$", "D", COLOURS[1], 0.14)}
)
ZERO_RATIO = 1e12  # a truth that may be zero, and is this much smaller than the formula, is drawn as zero
ROW = 0.4  # inches


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
    norm = lambda x: np.abs(np.linalg.eigvalsh(exact.kernels.hess_phi(x))).max(axis=-1)  # noqa: E731
    axes, norms = on_grid(norm, low, high, points)
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


def _draw_curve(ax: Axes, found: Smoothness, axes: list[Floats], norms: Floats) -> None:
    ax.plot(axes[0], norms, color=COLOURS[0], linewidth=1.8, label=NORM)
    if np.isfinite(found.L_phi.upper):
        ax.axhspan(found.L_phi.lower, found.L_phi.upper, color=COLOURS[1], alpha=0.4, label="bracket of its supremum")
    ax.set_ylabel(NORM)
    ax.set_xlim(axes[0][0], axes[0][-1])


def _draw_surface(ax: Axes, found: Smoothness, axes: list[Floats], norms: Floats) -> None:
    filled_contours(ax, axes, norms, label=NORM)
    ax.set_ylabel(found.problem.mean.x[1].name)


@dataclass(frozen=True)
class _Ratio:
    """The formula over the truth is proved to lie between ``least`` and ``most``; ``y`` is where it is drawn.

    ``least`` is zero, and ``most`` infinite, where an end is not known.
    """

    y: float
    least: float
    most: float

    @property
    def endless(self) -> bool:
        return self.least == math.inf or (self.most == math.inf and self.least > ZERO_RATIO)


def plot_looseness(found: Mapping[str, Smoothness], ax: Axes | None = None) -> Axes:
    """How many times the theory's L_phi and rho_phi exceed the certified truth, by name, on a log axis.

    A marker is what they exceed it by at least, and a whisker leads to what they exceed it by at most; an arrow in its
    place says that this end is not known. Where the truth is zero the ratio is infinite, and stands in a strip on the
    right. A constant whose formula is not known is left out. Returns the axes, new ones where none are given.

    Paper: Lemma A.2 [grad-Lipschitz]; Lemma 2.4 [hess-Lipschitz]

    >>> from bilevel_sym import zoo
    >>> from verify import smoothness
    >>> from matplotlib.figure import Figure
    >>> plot_looseness({"scalar": smoothness(zoo.get("scalar").problem)}, Figure().subplots()).get_xscale()
    'log'
    """
    given: object = found
    if not isinstance(given, Mapping) or not found or not all(isinstance(one, Smoothness) for one in found.values()):
        raise InvalidArgument("plot_looseness draws smoothness by name", hint='{"toy": verify.smoothness(problem)}')
    ratios = {name: _ratios(found, name, shift) for name, (_, _, _, shift) in CONSTANTS.items()}
    if not any(ratios.values()):
        raise InvalidArgument("no formula is known, so there is nothing to draw", hint="a box in which g is smooth")
    ax = axes_or_new(ax, (6.0, HEAD + ROW * len(found)))
    edge = _frame(ax, list(found), [ratio for some in ratios.values() for ratio in some])
    for name, (_, marker, colour, _) in CONSTANTS.items():
        for ratio in ratios[name]:
            _draw(ax, ratio, edge, marker=marker, colour=colour)
    strip = any(ratio.endless for some in ratios.values() for ratio in some)
    legend_below(ax, _legend(), lines=2 if strip else 1, right=True)
    return ax


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D

    looks = CONSTANTS.values()
    return [Line2D([], [], linestyle="none", marker=m, color=c, label=title) for title, m, c, _ in looks]


def _ratios(found: Mapping[str, Smoothness], name: str, shift: float) -> list[_Ratio]:
    rows = []
    for k, one in enumerate(found.values()):
        formula, truth = getattr(one, f"{name}_formula"), getattr(one, name)
        if formula is not None and (truth.lower > 0 or truth.upper < math.inf):
            least = one.ratio[name]
            most = formula / truth.lower if truth.lower > 0 else 1.0 if least == 1.0 and not formula else math.inf
            rows.append(_Ratio(k + shift, least, max(least, most)))
    return rows


def _frame(ax: Axes, names: list[str], ratios: list[_Ratio]) -> float:
    """The axes; returns where the scale ends, and the strip of infinite ratios, if there is one, begins."""
    shown = [end for ratio in ratios if not ratio.endless for end in (ratio.least, ratio.most) if 0 < end < math.inf]
    low = math.floor(math.log10(min([*shown, 1.0])) + 0.05)
    edge = 10.0 ** (math.ceil(math.log10(max([*shown, 1.0])) + 0.3))
    strip = any(ratio.endless for ratio in ratios)
    ax.set(xscale="log", xlim=(10.0 ** (low - 0.3), edge * 10**strip), ylim=(len(names) - 0.5, -0.5))
    ax.set_xlabel("formula of the theory / certified truth")
    ax.set_yticks(range(len(names)), names)
    top = round(math.log10(edge))
    step = -(-(top - low) // 7)
    ticks = {10.0**k: f"$10^{{{k}}}$" if k else "1" for k in range(low, top + (not strip), step)}
    if strip:
        ax.axvspan(edge, edge * 10, color="0.92", zorder=0)
        ticks[edge * 10**0.5] = "truth\nis 0"
    mark_one(ax, ticks)
    return edge


def _draw(ax: Axes, ratio: _Ratio, edge: float, *, marker: str, colour: str) -> None:
    left, right = ax.get_xlim()[0], edge
    ends = (ratio.least or left, ratio.most if ratio.most < math.inf else right)
    if ratio.endless:
        ends = (edge * 10**0.5,) * 2
    ax.plot(ends, [ratio.y] * 2, color=colour, linewidth=1.2, zorder=2)
    tips = (marker if ratio.least else "<", "|" if ratio.most < math.inf else "" if ratio.endless else ">")
    for at, tip in zip(ends, tips, strict=True):
        ax.plot([at], [ratio.y], linestyle="none", marker=tip, color=colour, zorder=3, clip_on=False)
