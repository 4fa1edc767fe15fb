"""Eigenvalues of Hess Phi along runs.

How far estimates are from the truth: random ones over a parameter, finite differences over their step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel_sym.certify.certificate import evaluate
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting.arguments import exact_problem, numbers, one_by_one, recorded, where_defined
from bilevel_sym.plotting.solution import held, plot_spread, spread
from bilevel_sym.plotting.style import COLOURS, axes_or_new, count_iterations, legend_below
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers.solution import Solution
from bilevel_sym.typing import Axes, Bools, Floats

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from bilevel_sym.certify.certificate import PointCertificate
    from bilevel_sym.kernels import Kernels

__all__ = ["plot_differences", "plot_eigenvalues", "plot_estimates"]

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
    median = spread(held(smallest)).median
    ax.plot(k, median, color=COLOURS[0], linewidth=1.8, label="median; what has ended counts as it ended")


STYLES = (("o", "-"), ("s", "--"), ("D", "-."), ("^", ":"), ("v", "-"), ("x", "--"), (".", "-."))
HINT = "(P,) values of the parameter, (P, S, d) estimates, (d,) the truth"
NAMED_VALUES = 12  # values that are all named on the axis
GROUP = "estimates"  # the group of the lines of this module, by which a second call knows of the first
DECADES, COUNT = 15, 91  # steps from 1e-15 to 1
REFERENCE_DIGITS = 25


def plot_estimates(
    at: ArrayLike, estimates: ArrayLike, truth: ArrayLike, ax: Axes | None = None, *, label: str, along: str
) -> Axes:
    """|estimate - truth| against a parameter, both axes logarithmic: a line for the median, a band for the quartiles.

    A second call on the same axes adds a line in another colour and style. Returns the axes.

    - ``at``: the P values of the parameter, positive.
    - ``estimates``: (P, S, d), S draws at each value.
    - ``truth``: (d,).
    - ``ax``: the axes; by default new ones.
    - ``label``: the name of the line.
    - ``along``: the name of the parameter.

    >>> draws = np.random.default_rng(0).normal(size=(3, 100, 2)) / np.array([1.0, 4.0, 16.0])[:, None, None]
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> plot_estimates([1, 16, 256], draws, [0.0, 0.0], ax, label="mean", along="batch").get_xlabel()
    'batch'
    """
    where, values, exact = (numbers("at, estimates and truth", part, HINT) for part in (at, estimates, truth))
    if values.ndim != 3 or where.shape != values.shape[:1] or exact.shape != values.shape[2:]:
        raise InvalidArgument(f"shapes {where.shape}, {values.shape} and {exact.shape} do not fit", hint=HINT)
    if not (where > 0).all():
        raise InvalidArgument(f"{along} must be positive on a logarithmic axis", hint="leave out 0")
    ax = axes_or_new(ax)
    count = sum(line.get_gid() == GROUP for line in ax.get_lines()) % len(STYLES)
    errors = spread(np.linalg.norm(values - exact, axis=-1).T)
    plot_spread(ax, where, errors, colour=COLOURS[count], label=label)
    marker, style = STYLES[count]
    ax.get_lines()[-1].set(marker=marker, linestyle=style, markersize=5, gid=GROUP)
    ax.set(xscale="log", yscale="log", xlabel=along)
    if len(where) <= NAMED_VALUES:
        ax.set_xticks(where, [f"{value:g}" for value in where])
        ax.set_xticks([], minor=True)
    ax.set_ylabel(r"$|\widehat{\nabla}\Phi - \nabla\Phi|$ (median, quartiles)")
    legend_below(ax)
    return ax


def plot_differences(problem: BilevelProblem, x: ArrayLike, ax: Axes | None = None) -> Axes:
    """The error of forward and central differences of Phi at a point, over their step h, and that of the kernels.

    The error is the largest of all entries, against certified digits. Returns the axes, new ones where none are given.

    >>> problem = BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y")
    >>> from matplotlib.figure import Figure
    >>> plot_differences(problem, [0.5], Figure().subplots()).get_xlabel()
    'step h of the difference quotient'
    """
    exact = exact_problem(problem)
    point = numbers("the coordinates of x", x, hint=f"{exact.d} of them")
    certificate, phi = evaluate(exact, point, digits=REFERENCE_DIGITS), exact.kernels.phi
    h = np.logspace(-DECADES, 0, COUNT)[:, None]
    shifts = (h[..., None] * np.eye(exact.d)).reshape(-1, exact.d)
    # a long step may leave the domain of Phi
    forth, back = (where_defined(phi, point + sign * shifts).reshape(COUNT, exact.d) for sign in (1, -1))
    curves = {
        "forward difference": (forth - phi(point)) / h,
        "central difference": (forth - back) / (2 * h),
    }
    ax = axes_or_new(ax)
    for (name, found), colour, dash in zip(curves.items(), COLOURS[1::-1], ("--", "-"), strict=False):
        errors = [_error(certificate, row) for row in found]
        ax.loglog(h[:, 0], errors, color=colour, linestyle=dash, linewidth=1.5, label=name)
    own = _error(certificate, exact.kernels.grad_phi(point))
    ax.axhline(own, color=COLOURS[2], linestyle="-.", linewidth=1.8, label=f"kernel, exact formula ({own:.0e})")
    ax.set(xlabel="step h of the difference quotient", ylabel=r"largest error in $\nabla\Phi$ (absolute)")
    legend_below(ax)
    return ax


def _error(certificate: PointCertificate, gradient: Floats) -> float:
    """The largest distance from the certified gradient, at least the smallest number that a float64 near 1 resolves."""
    gaps = [abs(float(ball.mid - float(value))) for ball, value in zip(certificate.grad_phi, gradient, strict=True)]
    return float(np.max([2.0**-54, *gaps]))  # nan where there is no value
