"""Phi along the trajectories of a solution; an ensemble as its median and quartiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.kernels.leaving import outside
from bilevel_sym.plotting.arguments import recorded
from bilevel_sym.plotting.style import COLOURS, axes_or_new, count_iterations, legend_below
from bilevel_sym.typing import FLOAT64_EPS, Axes, Bools, Floats

if TYPE_CHECKING:
    from bilevel_sym.solvers.solution import Solution

__all__ = ["Spread", "held", "plot_ensemble", "plot_solution", "plot_spread", "spread"]

FEW_RUNS = 8  # so many runs of an ensemble are drawn themselves
RUG_HEIGHT = 0.015  # how high above the lower edge, as a part of the axes, perturbations of an ensemble are marked


@dataclass(frozen=True)
class _Curves:
    """What is drawn, a row for each trajectory: ended ones stay where they ended."""

    at: Floats  # (S, K+1): iterations, or oracle calls
    height: Floats
    perturbed: Bools
    left: int  # how many ended outside of the problem's box


def plot_solution(
    solution: Solution,
    ax: Axes | None = None,
    *,
    against: Literal["iteration", "calls"] = "iteration",
    phi_min: float | None = None,
) -> Axes:
    """Phi along the trajectories of a solution, or its gap to a known minimum. Returns the axes.

    One trajectory is a line with its perturbations marked. Several are their median and quartiles, few their median
    and themselves, with all perturbations marked along the lower edge; one that has ended counts with its last value.

    - ``solution``: what ``solve`` returns.
    - ``ax``: the axes; by default new ones.
    - ``against``: "iteration", or "calls": all oracle calls made so far (of several trajectories, the median number).
    - ``phi_min``: with it the gap Phi - phi_min is drawn on a logarithmic scale; gaps below the rounding error of
      phi_min are drawn there.

    >>> from bilevel_sym import AID, BilevelProblem, Descent, solve
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> solution = solve(problem, Descent(AID(D=1, N=1, tau=1.0), eta=0.25), [1.0], steps=5)
    >>> from matplotlib.figure import Figure
    >>> plot_solution(solution, Figure().subplots(), against="calls", phi_min=0.0).get_yscale()
    'log'
    """
    if against not in ("iteration", "calls"):
        raise InvalidArgument(f"against={against!r}", hint='"iteration" or "calls"')
    curves = _curves(solution, against, phi_min)
    ax = axes_or_new(ax)
    (_draw_one if len(curves.height) == 1 else _draw_many)(ax, curves)
    if against == "iteration":
        count_iterations(ax)
    else:
        ax.set_xlabel("oracle calls (gradients and products)")
    ax.set_ylabel(r"$\Phi(x_k)$" if phi_min is None else r"$\Phi(x_k) - \Phi_{\min}$")
    if phi_min is not None:
        ax.set_yscale("log")
    legend_below(ax)
    return ax


def _curves(solution: Solution, against: str, phi_min: float | None) -> _Curves:
    path = recorded(solution)
    phi, calls, perturbed = np.atleast_2d(path.phi), np.atleast_2d(path.calls), np.atleast_2d(path.perturbed)
    last = np.atleast_1d(path.length)[:, None] - 1
    k = np.arange(phi.shape[1])
    stay = np.minimum(k, last)
    height = np.take_along_axis(phi, stay, axis=1)
    at = np.broadcast_to(k, phi.shape) if against == "iteration" else np.take_along_axis(calls, stay, axis=1)
    height = height if phi_min is None else _gap(height, phi_min)
    return _Curves(at.astype(np.float64), held(height), perturbed, _left(solution))


def _left(solution: Solution) -> int:
    problem, parts = solution.kernels.problem, {"x": solution.x, "y": solution.y}
    gone = [outside(problem, role, np.atleast_2d(rows)).any(axis=1) for role, rows in parts.items()]
    return int((gone[0] | gone[1]).sum())


def _gap(phi: Floats, phi_min: float) -> Floats:
    rounding = FLOAT64_EPS * max(1.0, abs(phi_min))
    gap = phi - phi_min
    if np.fmin.reduce(gap, axis=None, initial=0.0) < -1e6 * rounding:
        raise InvalidArgument(
            f"phi_min = {phi_min:.6g} is not the minimum: Phi fell to {np.nanmin(phi):.6g}", hint="a lower phi_min"
        )
    return np.maximum(gap, rounding)


def _draw_one(ax: Axes, curves: _Curves) -> None:
    at, height, perturbed = curves.at[0], curves.height[0], curves.perturbed[0]
    ax.plot(at, height, color=COLOURS[0], label="trajectory" + (", ends outside of the box" if curves.left else ""))
    if perturbed.any():
        mark: dict[str, Any] = {"linestyle": "none", "marker": "v", "markersize": 5, "color": COLOURS[1]}
        ax.plot(at[perturbed], height[perturbed], label=f"perturbations ({perturbed.sum()})", **mark)


def _draw_many(ax: Axes, curves: _Curves) -> None:
    size = len(curves.height)
    left = f"; {curves.left} end outside of the box" if curves.left else ""
    plot_ensemble(ax, curves.at, curves.height, colour=COLOURS[0], label=f"median of {size}", end=left)
    times = np.nonzero(curves.perturbed)[1]
    if len(times):
        mark: dict[str, Any] = {"linestyle": "none", "marker": "|", "markersize": 7, "color": COLOURS[1]}
        at, edge = np.median(curves.at, axis=0), np.full(len(times), RUG_HEIGHT)
        across = ax.get_xaxis_transform()  # x in data, y as a part of the axes
        ax.plot(at[times], edge, transform=across, label=f"perturbations ({len(times)} in all)", **mark)


def held(values: Floats) -> Floats:
    """Rows that keep their last number to the end: a run that has ended changes no median of those that go on.

    >>> held(np.array([[1.0, 2.0, np.nan], [np.nan, np.nan, np.nan]])).tolist()
    [[1.0, 2.0, 2.0], [nan, nan, nan]]
    """
    count = values.shape[1]
    last = count - 1 - np.argmax(np.isfinite(values)[:, ::-1], axis=1)
    return np.take_along_axis(values, np.minimum(np.arange(count), last[:, None]), axis=1)


class Spread(NamedTuple):
    """The median and the quartiles of an ensemble, at each of its points.

    >>> spread(np.array([[1.0], [2.0], [3.0]])).q75
    array([2.5])
    """

    median: Floats
    q25: Floats
    q75: Floats


def spread(values: Floats) -> Spread:
    """The median and quartiles over the first axis, of what is not NaN; NaN where everything is.

    >>> median, q25, q75 = spread(np.array([[1.0, np.nan], [2.0, np.nan], [3.0, np.nan]]))
    >>> median.tolist(), q25.tolist()
    ([2.0, nan], [1.5, nan])
    """
    known = ~np.isnan(values).all(axis=0)
    result = np.full((3, *values.shape[1:]), np.nan)
    result[:, known] = np.nanquantile(values[:, known], (0.5, 0.25, 0.75), axis=0)
    return Spread(*result)


def plot_ensemble(ax: Axes, at: Floats, rows: Floats, *, colour: str, label: str, end: str = "") -> None:
    """Median and quartiles of many rows; of few the rows themselves under their median, for quartiles say little.

    - ``ax``: the axes.
    - ``at``: the abscissas, (K,), or (S, K) where each run has its own; the median stands at theirs.
    - ``rows``: a row for each run.
    - ``colour``: of all lines.
    - ``label``: the name of the median; what else is drawn is added to it.
    - ``end``: what the name ends with.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> plot_ensemble(ax, np.arange(2.0), np.array([[1.0, 4.0], [3.0, 4.0]]), colour="#0072B2", label="median of 2")
    >>> len(ax.get_lines()), ax.get_lines()[-1].get_label()
    (3, 'median of 2, thin lines are the runs')
    """
    own = np.broadcast_to(at, rows.shape)
    middle, values = np.median(own, axis=0), spread(rows)
    if len(rows) > FEW_RUNS:
        plot_spread(ax, middle, values, colour=colour, label=f"{label}, and quartiles{end}")
        return
    for where, row in zip(own, rows, strict=True):
        ax.plot(where, row, color=colour, linewidth=0.8, alpha=0.6, label="_")
    ax.plot(middle, values.median, color=colour, linewidth=2, label=f"{label}, thin lines are the runs{end}")


def plot_spread(ax: Axes, at: Floats, values: Spread, *, colour: str, label: str) -> None:
    """A line for the median, and a band from quartile to quartile.

    - ``ax``: the axes.
    - ``at``: the abscissas.
    - ``values``: median and quartiles at each.
    - ``colour``: of the line and the band.
    - ``label``: the name of the line.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> plot_spread(ax, np.arange(2.0), spread(np.array([[1.0, 4.0], [3.0, 4.0]])), colour="#0072B2", label="two runs")
    >>> ax.get_lines()[0].get_ydata()
    array([2., 4.])
    """
    ax.plot(at, values.median, color=colour, label=label, linewidth=1.5)
    ax.fill_between(at, values.q25, values.q75, color=colour, alpha=0.25, linewidth=0)
