"""What all pictures share: colours, new axes, and a legend that covers no data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.errors import InvalidProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "Floats", "axes_or_new", "count_iterations", "legend_below", "require_matplotlib"]

Floats: TypeAlias = NDArray[np.float64]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, told apart by colour-blind readers: blue, vermillion, green, purple, orange, sky, black."""

SIZE = (6.0, 4.0)  # of new axes, in inches: the width of a notebook's column
BELOW = 0.5  # inches from the axes down to their legend: ticks and a label lie between
LINE = 0.17  # inches of each further line of the ticks' labels
LETTER, SYMBOL = 5.6, 48.0  # points that a letter of a legend takes, and the symbol before it, about


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


def axes_or_new(ax: Axes | None, size: tuple[float, float] = SIZE) -> Axes:
    """The axes given, or those of a new figure of ``size`` inches.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> axes_or_new(ax) is ax
    True
    """
    require_matplotlib()
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def count_iterations(ax: Axes) -> None:
    """The x axis counts iterations: whole numbers, under their name.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> count_iterations(ax)
    >>> ax.get_xlabel()
    'iteration k'
    """
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True))
    ax.set_xlabel("iteration k")


def legend_below(ax: Axes, handles: list[Any] | None = None, *, lines: int = 1, right: bool = False) -> None:
    """A legend under the axes, in as many columns as fit; labels that repeat are said once.

    ``lines`` is how many lines the labels of the ticks have. With ``right`` it ends where the axes end, and extends to
    the left under the names of rows.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> lines = ax.plot([0, 1], label="a line")
    >>> legend_below(ax)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['a line']
    """
    from matplotlib.transforms import ScaledTranslation

    drawn = ax.get_legend_handles_labels()[0] if handles is None else handles
    entries = {str(handle.get_label()): handle for handle in drawn}
    if not entries:
        return
    figure = ax.get_figure()
    assert figure is not None
    room = 1.2 * ax.get_window_extent().width * 72 / figure.dpi
    under = ax.transAxes + ScaledTranslation(0, -BELOW - LINE * (lines - 1), figure.dpi_scale_trans)
    ax.legend(
        entries.values(), entries.keys(), loc="upper right" if right else "upper center",
        bbox_to_anchor=(1.0 if right else 0.5, 0), bbox_transform=under,
        ncols=_columns(list(entries), room), frameon=False, borderaxespad=0,
    )  # fmt: skip


def _columns(labels: list[str], room: float) -> int:
    """The largest number of columns, filled one after the other, that fit side by side into ``room`` points."""
    for columns in range(len(labels), 1, -1):
        widths = [max(map(len, column)) for column in np.array_split(np.array(labels), columns)]
        if sum(SYMBOL + LETTER * width for width in widths) <= room:
            return columns
    return 1
