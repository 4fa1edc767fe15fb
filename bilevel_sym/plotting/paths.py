"""The iterates of runs, on a landscape of Phi."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel_sym.plotting.arguments import one_by_one, recorded
from bilevel_sym.plotting.landscape import plot_landscape, require_few
from bilevel_sym.plotting.style import COLOURS, axes_or_new, legend_below, next_colour
from bilevel_sym.typing import Bools, Floats, Indices

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bilevel_sym.solvers.solution import Solution

__all__ = ["plot_trajectories"]

# those that no kind of stationary point has come first
ORDER = tuple(COLOURS[k] for k in (0, 6, 5, 4, 1, 3, 2))
GROUP = "trajectories"  # the group of the lines of this module, by which a second call knows of the first
FULL_STRENGTH_RUNS = 8  # runs whose lines are drawn in full strength


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
