"""How far random estimates are from the truth, against a parameter of the estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting.arguments import numbers
from bilevel_sym.plotting.spread import plot_spread, spread
from bilevel_sym.plotting.style import COLOURS, axes_or_new, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

__all__ = ["plot_estimates"]

STYLES = (("o", "-"), ("s", "--"), ("D", "-."), ("^", ":"), ("v", "-"), ("x", "--"), (".", "-."))
HINT = "(P,) values of the parameter, (P, S, d) estimates, (d,) the truth"
NAMED_VALUES = 12  # values that are all named on the axis
GROUP = "estimates"  # the group of the lines of this module, by which a second call knows of the first


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
