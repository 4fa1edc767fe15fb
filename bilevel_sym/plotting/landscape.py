"""The landscape of Phi over a box in one or two variables, with stationary points by kind, and the iterates of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting.arguments import (
    Region,
    box_of_x,
    exact_problem,
    on_grid,
    one_by_one,
    recorded,
    where_defined,
)
from bilevel_sym.plotting.style import COLOURS, axes_or_new, filled_contours, legend_below, next_colour
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.system.plain_text import as_title
from bilevel_sym.typing import Axes, Bools, Floats, Indices

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

    from bilevel_sym.solvers.solution import Solution

__all__ = ["KINDS", "mark_of", "plot_landscape", "plot_trajectories", "require_few"]

CURVE, SURFACE = 401, 97  # points each way, in one and in two variables
HEIGHT_LEVELS = 14
SPACING_POWERS = (2.0, 7.0)  # of the distance between contours: with 2, those of a bowl x^2 are evenly spaced
WHITE_SHARE = 0.5  # how much of the colour map is white: marks and lines stand out
CONSTANT_HEIGHT_RTOL = 1e-12  # a height that changes less than this, relatively, is drawn as constant

# a kind of stationary point by its marker and colour
KINDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "local minimum": ("v", COLOURS[2]),
        "saddle": ("X", COLOURS[1]),
        "local maximum": ("^", COLOURS[3]),
        "degenerate": ("D", COLOURS[4]),
        "undecided": ("$?$", COLOURS[6]),
    }
)
# those that no kind of stationary point has come first
ORDER = tuple(COLOURS[k] for k in (0, 6, 5, 4, 1, 3, 2))
GROUP = "trajectories"  # the group of the lines of this module, by which a second call knows of the first
FULL_STRENGTH_RUNS = 8  # runs whose lines are drawn in full strength


@dataclass(frozen=True)
class _Window:
    """The part of x that is seen."""

    names: tuple[str, ...]
    low: Floats
    high: Floats

    def holds(self, x: Floats) -> bool:
        return bool(((self.low <= x) & (x <= self.high)).all())


def plot_landscape(
    problem: BilevelProblem,
    ax: Axes | None = None,
    *,
    box: Region = None,
    points: Iterable[Any] | None = (),
    resolution: int | None = None,
) -> Axes:
    """Phi over a box in x: of one variable a curve, of two filled contours. Returns the axes.

    Where the lower level cannot be solved, or f is not defined, there is a gap.

    - ``problem``: the problem.
    - ``ax``: the axes; by default new ones.
    - ``box``: by default the problem's.
    - ``points``: with an ``x`` and a ``kind``, as those of ``verify.stationary_points`` and of the zoo (None where it
      does not know them); the ones in the box are marked by kind.
    - ``resolution``: the number of grid points each way.

    >>> from bilevel_sym import zoo
    >>> saddle = zoo.get("saddle")
    >>> from matplotlib.figure import Figure
    >>> plot_landscape(saddle.problem, Figure().subplots(), points=saddle.stationary_points).get_xlabel()
    'x1'
    >>> plot_landscape(zoo.get("saddle", d=3).problem)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: a landscape has one or two variables, but x has 3
    try: plot_solution and plot_eigenvalues draw runs in any dimension
    """
    exact = exact_problem(problem)
    window = _window(exact, box)
    count = _count(resolution, exact.d)
    marks = [mark_of(point, exact.d) for point in points or ()]
    exact.kernels.refuse_kinked_box(window.low, window.high)
    axes, heights = on_grid(exact.kernels.phi, window.low, window.high, count)
    ax = axes_or_new(ax)
    (_draw_curve if exact.d == 1 else _draw_surface)(ax, window, axes, heights)
    _draw_points(ax, exact, window, marks)
    if problem.name:
        ax.set_title(as_title(problem.name))
    return ax


def _window(problem: BilevelProblem, box: Region) -> _Window:
    require_few(problem.d)
    return _Window(*box_of_x(problem, box))


def require_few(d: int) -> None:
    """Refuse more variables than a landscape can show.

    >>> require_few(2)
    """
    if d > 2:
        raise InvalidArgument(
            f"a landscape has one or two variables, but x has {d}",
            hint="plot_solution and plot_eigenvalues draw runs in any dimension",
        )


def _count(resolution: object, d: int) -> int:
    if resolution is None:
        return CURVE if d == 1 else SURFACE
    if isinstance(resolution, bool) or not isinstance(resolution, int) or not 2 <= resolution <= 5000:
        raise InvalidArgument(f"resolution={resolution!r:.40}", hint="a whole number of grid points, from 2 to 5000")
    return resolution


def mark_of(point: Any, d: int) -> tuple[Floats, str]:
    """Where a stationary point is, and its kind.

    >>> from bilevel_sym import zoo
    >>> mark_of(zoo.get("saddle").stationary_points[0], 2)[1]
    'saddle'
    """
    try:
        x, kind = np.array([float(value) for value in point.x]), str(point.kind)
    except (AttributeError, TypeError, ValueError):
        raise InvalidArgument(
            f"a point without x and kind: {point!r:.60}", hint="verify.stationary_points(problem)"
        ) from None
    if len(x) != d or kind not in KINDS:
        raise InvalidArgument(
            f"a point with {len(x)} coordinates and kind {kind!r}", hint=f"{d}, and one of: {', '.join(KINDS)}"
        )
    return x, kind


def _draw_curve(ax: Axes, window: _Window, axes: list[Floats], heights: Floats) -> None:
    ax.plot(axes[0], heights, color="0.35", linewidth=1.5, zorder=1)
    low, high = _ends(heights)
    room = 0.06 * (high - low)
    ax.set(xlabel=window.names[0], ylabel=rf"$\Phi$({window.names[0]})", ylim=(low - room, high + room))
    ax.set_xlim(window.low[0], window.high[0])


def _draw_surface(ax: Axes, window: _Window, axes: list[Floats], heights: Floats) -> None:
    from matplotlib.colors import BoundaryNorm

    levels, label = _levels(heights), rf"$\Phi$({', '.join(window.names)})"
    told = {_number(level): level for level in levels[::2]}  # no number twice, where they differ in later digits
    bar = {"format": lambda value, _: _number(value), "ticks": list(told.values())}
    how: dict[str, Any] = {"levels": levels, "cmap": _pale(), "norm": BoundaryNorm(levels, 256)}
    filled = filled_contours(ax, axes, heights, label=label, bar=bar, **how)
    ax.contour(filled, levels=levels, colors="0.45", linewidths=0.4, linestyles="solid", zorder=0.5)
    if np.isnan(heights).any():
        ax.patch.set(hatch="///", edgecolor="0.75", facecolor="white")
        ax.fill([], [], hatch="///", edgecolor="0.75", facecolor="white", label=r"$\Phi$ has no value")
        legend_below(ax)
    ax.set(xlabel=window.names[0], ylabel=window.names[1])
    ax.set_xlim(window.low[0], window.high[0])
    ax.set_ylim(window.low[1], window.high[1])


def _ends(heights: Floats) -> tuple[float, float]:
    """The lowest and the highest; of what is constant but for rounding, a little below and above."""
    low, high = float(np.nanmin(heights)), float(np.nanmax(heights))
    size = max(abs(low), abs(high))
    if high - low > CONSTANT_HEIGHT_RTOL * size:
        return low, high
    return low - 0.5 * (size or 1.0), high + 0.5 * (size or 1.0)


def _levels(heights: Floats) -> Floats:
    """Heights of the contours: denser near the lowest, and the more so, the more of the landscape is low."""
    low, high = _ends(heights)
    share = (float(np.nanmedian(heights)) - low) / (high - low)
    power = np.clip(np.log(np.clip(share, 0.01, 0.99)) / np.log(0.5), *SPACING_POWERS)  # the median comes to the middle
    return _rounded(low + (high - low) * np.linspace(0, 1, HEIGHT_LEVELS + 1) ** power)


def _rounded(levels: Floats) -> Floats:
    """Round numbers next to these levels, each of as many digits as its distance from the next wants.

    >>> _rounded(np.array([0.013, 0.262, 1.071, 4.333])).tolist()
    [0.0, 0.3, 1.0, 5.0]
    """
    gaps = np.diff(levels)
    room = 0.5 * np.minimum(np.append(gaps, gaps[-1]), np.append(gaps[0], gaps))
    tens = 10.0 ** np.floor(np.log10(room))
    step = tens * np.select([room >= 5 * tens, room >= 2 * tens], [5.0, 2.0], 1.0)
    whole = np.round(levels / step)
    whole[0], whole[-1] = np.floor(levels[0] / step[0]), np.ceil(levels[-1] / step[-1])
    return np.array([float(f"{value:.12g}") for value in whole * step]) + 0.0  # no negative zero


def _number(value: float) -> str:
    """Three digits, and no exponent where a few more do without."""
    return f"{value:.3g}" if not 1e3 <= abs(value) < 1e5 else f"{value:.0f}"


def _pale() -> Colormap:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    colours = colormaps["viridis"](np.linspace(0, 1, 256))
    colours[:, :3] = WHITE_SHARE + (1 - WHITE_SHARE) * colours[:, :3]
    return ListedColormap(colours)


def _draw_points(ax: Axes, problem: BilevelProblem, window: _Window, marks: list[tuple[Floats, str]]) -> None:
    seen = [(x, kind) for x, kind in marks if window.holds(x)]
    for kind, (marker, colour) in KINDS.items():
        x = np.array([point for point, its in seen if its == kind])
        if not len(x):
            continue
        height = where_defined(problem.kernels.phi, x) if problem.d == 1 else x[:, 1]
        ax.plot(
            x[:, 0], height, linestyle="none", marker=marker, markersize=8, color=colour, markeredgecolor="black",
            markeredgewidth=0.8, label=kind, zorder=7, clip_on=False,
        )  # fmt: skip
    if seen:
        legend_below(ax)


@dataclass(frozen=True)
class _Paths:
    """Places in the picture, (S, K+1, 2), nan beyond the end of a run; and what happened there."""

    at: Floats
    perturbed: Bools
    failed: Bools

    @property
    def known(self) -> Bools:
        """Which places there are."""
        return np.asarray(np.isfinite(self.at).all(axis=-1))

    @property
    def last(self) -> Indices:
        """The index of each run's last place."""
        return np.asarray(self.known.shape[1] - 1 - np.argmax(self.known[:, ::-1], axis=1))


def plot_trajectories(
    solution: Solution, ax: Axes | None = None, *, label: str | None = None, colour: str | None = None
) -> Axes:
    """The iterates of one run or of an ensemble on a landscape: where each starts, ends and is perturbed.

    Of one variable the points (x_k, Phi(x_k)), of two lines from x_k to x_(k+1). A run that leaves the picture is
    marked at its last iterate inside. Returns the axes.

    - ``solution``: what ``solve`` returns.
    - ``ax``: the axes; by default the landscape of the problem's box is drawn first.
    - ``label``: the name of the runs.
    - ``colour``: by default the next one that no run on the axes has.

    >>> from bilevel_sym import AID, Descent, solve, zoo
    >>> run = solve(zoo.get("saddle").problem, Descent(AID(D=5, N=2, tau=0.1), eta=0.2), [0.5, 1.0], steps=20)
    >>> from matplotlib.figure import Figure
    >>> ax = plot_trajectories(run, Figure().subplots(), label="AID")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['AID', 'start', 'end']
    """
    paths = _paths(solution)
    ax = plot_landscape(solution.kernels.problem) if ax is None else axes_or_new(ax)
    chosen = colour or next_colour(ax, GROUP, ORDER)
    name = label or ("run" if len(paths.at) == 1 else f"{len(paths.at)} runs")
    _draw_lines(ax, paths, chosen, name, joined=solution.x.shape[-1] == 2)
    _draw_events(ax, paths, chosen, name)
    legend_below(ax)
    return ax


def _paths(solution: Solution) -> _Paths:
    path, d = recorded(solution), solution.x.shape[-1]
    require_few(d)
    x = one_by_one(path.x)
    at = x.copy() if d == 2 else np.stack([x[..., 0], np.atleast_2d(path.phi)], axis=-1)
    at[~np.isfinite(at).all(axis=-1)] = np.nan
    failed = np.array([not status.ok for status in solution.statuses])
    return _Paths(at, np.atleast_2d(path.perturbed), failed)


def _draw_lines(ax: Axes, paths: _Paths, colour: str, name: str, *, joined: bool) -> None:
    many = len(paths.at) > FULL_STRENGTH_RUNS
    how: dict[str, Any] = {"color": colour, "gid": GROUP, "zorder": 3, "alpha": 0.5 if many else 0.9}
    if joined:
        how |= {"linewidth": 0.8 if many else 1.3, "marker": "." if not many else "", "markersize": 3}
    else:
        how |= {"linestyle": "none", "marker": "o", "markersize": 3}
    for k, at in enumerate(paths.at):
        ax.plot(at[:, 0], at[:, 1], label=name if k == 0 else "_", **how)


def _draw_events(ax: Axes, paths: _Paths, colour: str, name: str) -> None:
    runs = np.arange(len(paths.at))
    ends = paths.at[runs, paths.last]
    inside = _inside(ax, paths.at)
    left = (paths.known & ~inside).any(axis=1)
    exits = [at[np.flatnonzero(seen)[-1]] for at, seen in zip(paths.at[left], inside[left], strict=True) if seen.any()]
    wide = 12 if len(runs) <= FULL_STRENGTH_RUNS else 7  # wide enough to stand around the mark of a stationary point
    marks: list[tuple[str, Floats, dict[str, Any]]] = [
        ("perturbation", paths.at[paths.perturbed], {"marker": "+", "markersize": 6, "zorder": 8}),
        ("start", paths.at[:, 0], {"marker": "o", "markersize": wide, "fillstyle": "none"}),
        ("end", ends[~paths.failed], {"marker": "s", "markersize": 12, "fillstyle": "none"}),
        ("ended by a failure", ends[paths.failed], {"marker": "x", "markersize": 8, "markeredgewidth": 2}),
        (
            f"leaves the picture ({left.sum()} of {len(runs)})",
            np.reshape(exits, (-1, 2)),
            {"marker": "*", "markersize": 9},
        ),
    ]
    for what, at, how in marks:
        seen = at[_inside(ax, at)]
        if len(seen):
            ax.plot(seen[:, 0], seen[:, 1], linestyle="none", label=what, color=colour, **({"zorder": 6} | how))


def _inside(ax: Axes, at: Floats) -> Bools:
    (left, right), (low, high) = sorted(ax.get_xlim()), sorted(ax.get_ylim())
    return np.asarray((at[..., 0] >= left) & (at[..., 0] <= right) & (at[..., 1] >= low) & (at[..., 1] <= high))
