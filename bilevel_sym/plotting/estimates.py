"""How far estimates are from the truth: random ones over a parameter, finite differences over their step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bilevel_sym.certify.certificate import evaluate
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting.arguments import exact_problem, numbers
from bilevel_sym.plotting.solution import plot_spread, spread
from bilevel_sym.plotting.style import COLOURS, axes_or_new, legend_below
from bilevel_sym.plotting.values import where_defined
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.typing import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from bilevel_sym.certify.certificate import PointCertificate

__all__ = ["plot_differences", "plot_estimates"]

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
