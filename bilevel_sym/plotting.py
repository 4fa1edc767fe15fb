"""Pictures of solutions. matplotlib is imported when something is drawn, and never before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.errors import InvalidProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bilevel_sym.solution import Solution

__all__ = ["COLOURS", "Spread", "plot_solution", "plot_spread", "require_matplotlib", "spread"]

Floats: TypeAlias = NDArray[np.float64]

# Okabe and Ito's colours, told apart by colour-blind readers: blue, vermillion, green, purple, orange, sky, black
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

ROUNDING = 2.0**-52
RUG = 0.015  # how high above the lower edge, as a part of the axes, perturbations of an ensemble are marked


def require_matplotlib() -> None:
    """Refuse, with a cure, where matplotlib is not installed.

    >>> try:
    ...     require_matplotlib()
    ... except InvalidProblem as error:
    ...     assert error.hint == "pip install 'bilevel-sym[plot]'"
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as missing:
        raise InvalidProblem("drawing wants matplotlib", hint="pip install 'bilevel-sym[plot]'") from missing


class Spread(NamedTuple):
    """The median and the quartiles of an ensemble, at each of its points."""

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


def plot_spread(ax: Axes, at: Floats, values: Spread, *, colour: str, label: str) -> None:
    """A line for the median, and a band from quartile to quartile."""
    ax.plot(at, values.median, color=colour, label=label, linewidth=1.5)
    ax.fill_between(at, values.q25, values.q75, color=colour, alpha=0.25, linewidth=0)


@dataclass(frozen=True)
class _Curves:
    """What is drawn, a row for each trajectory: ended ones stay where they ended."""

    at: Floats  # (S, K+1): iterations, or oracle calls
    height: Floats
    perturbed: NDArray[np.bool_]


def plot_solution(
    solution: Solution,
    ax: Axes | None = None,
    *,
    against: Literal["iteration", "calls"] = "iteration",
    phi_min: float | None = None,
) -> Axes:
    """Phi along the trajectories of a solution, or, with ``phi_min``, the gap Phi - phi_min on a logarithmic scale.

    One trajectory is a line with its perturbations marked. Several are their median and quartiles, with all
    perturbations marked along the lower edge; one that has ended counts with its last value. ``against`` is
    "iteration", or "calls": all oracle calls made so far (of several, the median number). Gaps below the rounding
    error of ``phi_min`` are drawn there. Without ``ax``, new axes are made. Returns the axes.

    >>> from bilevel_sym import AID, BilevelProblem, Descent, solve
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> solution = solve(problem, Descent(AID(D=1, N=1, tau=1.0), eta=0.25), [1.0], steps=5)
    >>> plot_solution(solution, against="calls", phi_min=0.0).get_yscale()  # doctest: +SKIP
    'log'
    """
    if against not in ("iteration", "calls"):
        raise InvalidProblem(f"against={against!r}", hint='"iteration" or "calls"')
    curves = _curves(solution, against, phi_min)
    require_matplotlib()
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots()[1]
    (_draw_one if len(curves.height) == 1 else _draw_many)(ax, curves)
    ax.set_xlabel("iteration k" if against == "iteration" else "oracle calls (gradients and products)")
    ax.set_ylabel(r"$\Phi(x_k)$" if phi_min is None else r"$\Phi(x_k) - \Phi_{\min}$")
    if phi_min is not None:
        ax.set_yscale("log")
    ax.legend(frameon=False)
    return ax


def _curves(solution: Solution, against: str, phi_min: float | None) -> _Curves:
    path = solution.trajectory
    phi, calls, perturbed = np.atleast_2d(path.phi), np.atleast_2d(path.calls), np.atleast_2d(path.perturbed)
    if not phi.size:
        raise InvalidProblem("there is no trajectory to draw", hint="x0 with at least one row")
    last = np.atleast_1d(path.length)[:, None] - 1
    k = np.arange(phi.shape[1])
    stay = np.minimum(k, last)
    height = np.take_along_axis(phi, stay, axis=1)
    at = np.broadcast_to(k, phi.shape) if against == "iteration" else np.take_along_axis(calls, stay, axis=1)
    return _Curves(at.astype(np.float64), height if phi_min is None else _gap(height, phi_min), perturbed)


def _gap(phi: Floats, phi_min: float) -> Floats:
    rounding = ROUNDING * max(1.0, abs(phi_min))
    gap = phi - phi_min
    if np.fmin.reduce(gap, axis=None, initial=0.0) < -1e6 * rounding:
        raise InvalidProblem(
            f"phi_min = {phi_min:.6g} is not the minimum: Phi fell to {np.nanmin(phi):.6g}", hint="a lower phi_min"
        )
    return np.maximum(gap, rounding)


def _draw_one(ax: Axes, curves: _Curves) -> None:
    at, height, perturbed = curves.at[0], curves.height[0], curves.perturbed[0]
    ax.plot(at, height, color=COLOURS[0], label="trajectory")
    if perturbed.any():
        mark: dict[str, Any] = {"linestyle": "none", "marker": "v", "markersize": 5, "color": COLOURS[1]}
        ax.plot(at[perturbed], height[perturbed], label=f"perturbations ({perturbed.sum()})", **mark)


def _draw_many(ax: Axes, curves: _Curves) -> None:
    at = np.median(curves.at, axis=0)
    size = len(curves.height)
    plot_spread(ax, at, spread(curves.height), colour=COLOURS[0], label=f"median of {size}, and quartiles")
    times = np.nonzero(curves.perturbed)[1]
    if len(times):
        mark: dict[str, Any] = {"linestyle": "none", "marker": "|", "markersize": 7, "color": COLOURS[1]}
        edge = np.full(len(times), RUG)
        across = ax.get_xaxis_transform()  # x in data, y as a part of the axes
        ax.plot(at[times], edge, transform=across, label=f"perturbations ({len(times)} in all)", **mark)
