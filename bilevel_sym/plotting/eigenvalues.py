"""Eigenvalues of Hess Phi along runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting.arguments import numbers, one_by_one, recorded
from bilevel_sym.plotting.solution import spread
from bilevel_sym.plotting.style import COLOURS, axes_or_new, count_iterations, legend_below
from bilevel_sym.plotting.values import where_defined
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers.solution import Solution
from bilevel_sym.typing import Bools, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from bilevel_sym.kernels import Kernels

__all__ = ["plot_eigenvalues"]

NAMED_EIGENVALUES = 4  # eigenvalues with a colour and a name of their own; of more, the smallest and the largest


@dataclass(frozen=True)
class _Spectra:
    """Eigenvalues, ascending, (S, K, d); nan where Hess Phi has no value."""

    values: Floats
    perturbed: Bools
    along: str


def plot_eigenvalues(
    source: Solution | BilevelProblem, ax: Axes | None = None, *, points: ArrayLike | None = None
) -> Axes:
    """The eigenvalues of the exact Hess Phi along a run, or of a problem at the rows of ``points``, (K, d).

    One run shows all of them, an ensemble the smallest of each run, and their median. Below zero there is a direction
    of escape. Perturbations are marked at the smallest. Returns the axes, new ones where none are given.

    >>> from bilevel_sym import AID, Descent, solve, zoo
    >>> run = solve(zoo.get("saddle").problem, Descent(AID(D=5, N=2, tau=0.1), eta=0.2), [0.5, 1.0], steps=20)
    >>> from matplotlib.figure import Figure
    >>> plot_eigenvalues(run, Figure().subplots()).get_xlabel()
    'iteration k'
    """
    spectra = _spectra(source, points)
    if np.isnan(spectra.values).all():
        raise InvalidArgument("Hess Phi has no value at any of the points", hint="points where g is strongly convex")
    ax = axes_or_new(ax)
    ax.axhline(0.0, color="0.5", linewidth=0.8, linestyle=":", zorder=0)
    if len(spectra.values) == 1:
        _draw_all(ax, spectra.values[0])
    else:
        _draw_smallest(ax, spectra.values[..., 0])
    s, k = np.nonzero(spectra.perturbed)
    if len(k):
        size = 5 if len(spectra.values) == 1 else 3
        mark: dict[str, Any] = {"linestyle": "none", "marker": "v", "markersize": size, "color": COLOURS[1]}
        ax.plot(k, spectra.values[s, k, 0], label=f"perturbations ({len(k)})", zorder=4, **mark)
    which = "eigenvalues" if len(spectra.values) == 1 else "smallest eigenvalue"
    count_iterations(ax)
    ax.set(xlabel=spectra.along, ylabel=rf"{which} of $\nabla^2\Phi$")
    legend_below(ax)
    return ax


def _spectra(source: object, points: ArrayLike | None) -> _Spectra:
    if isinstance(source, BilevelProblem):
        exact = source.mean
        x = _rows(points, exact.d)[None]
        return _Spectra(_eigenvalues(exact.kernels, x), np.zeros(x.shape[:2], dtype=np.bool_), "point")
    if not isinstance(source, Solution):
        raise InvalidArgument(f"eigenvalues of a {type(source).__name__}", hint="a Solution, or a problem and points=")
    if points is not None:
        raise InvalidArgument("points belong to a problem; a solution has its own", hint="leave points out")
    path = recorded(source)
    return _Spectra(_eigenvalues(source.kernels, one_by_one(path.x)), np.atleast_2d(path.perturbed), "iteration k")


def _rows(points: ArrayLike | None, d: int) -> Floats:
    hint = f"points= an array of shape (K, {d})"
    if points is None:
        raise InvalidArgument("eigenvalues of a problem want points", hint=hint)
    rows = numbers("points", points, hint)
    if rows.ndim != 2 or rows.shape[1] != d or not len(rows):
        raise InvalidArgument(f"points have shape {rows.shape}", hint=hint)
    return rows


def _eigenvalues(kernels: Kernels, x: Floats) -> Floats:
    rows = x.reshape(-1, x.shape[-1])
    found = np.full(rows.shape, np.nan)
    known = np.isfinite(rows).all(axis=1)
    found[known] = where_defined(partial(_spectrum, kernels), rows[known], rows.shape[1:])
    return np.asarray(found.reshape(x.shape))


def _spectrum(kernels: Kernels, x: Floats) -> Floats:
    return np.asarray(np.linalg.eigvalsh(kernels.hess_phi(x)), dtype=np.float64)


def _draw_all(ax: Axes, values: Floats) -> None:
    """All eigenvalues of one run, the smallest first; of many, those between the ends in grey."""
    k, d = np.arange(len(values)), values.shape[1]
    marker = "o" if len(values) == 1 else ""  # a line through one point is not seen
    if d > NAMED_EIGENVALUES:
        ax.plot(k, values[:, 1:-1], color="0.7", linewidth=0.7, marker=marker, label=f"{d - 2} between")
        ax.plot(k, values[:, -1], color=COLOURS[4], linewidth=1.5, marker=marker, linestyle="--", label="largest")
        ax.plot(k, values[:, 0], color=COLOURS[0], linewidth=1.5, marker=marker, label="smallest")
        return
    for j, style in zip(range(d), ("-", "--", "-.", ":"), strict=False):
        colour = COLOURS[(0, 4, 2, 3)[j]]
        label = r"$\lambda_{\min}$" if j == 0 else rf"$\lambda_{{{j + 1}}}$"
        ax.plot(k, values[:, j], color=colour, linewidth=1.5, linestyle=style, marker=marker, label=label)


def _draw_smallest(ax: Axes, smallest: Floats) -> None:
    k = np.arange(smallest.shape[1])
    for s, run in enumerate(smallest):
        ax.plot(k, run, color=COLOURS[5], linewidth=0.7, alpha=0.6, label=f"{len(smallest)} runs" if s == 0 else "_")
    ax.plot(k, spread(smallest).median, color=COLOURS[0], linewidth=1.8, label="median of the runs that go on")
