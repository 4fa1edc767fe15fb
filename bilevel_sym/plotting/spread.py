"""An ensemble as its median and quartiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilevel_sym.typing import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Spread", "plot_spread", "spread"]


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
