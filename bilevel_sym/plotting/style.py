"""What all pictures share: colours, new axes, and a legend that covers no data."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import Axes, Figure, Floats

if TYPE_CHECKING:
    from matplotlib.contour import ContourSet

__all__ = [
    "COLOURS",
    "axes_or_new",
    "count_iterations",
    "filled_contours",
    "ink",
    "legend_below",
    "next_colour",
    "png",
    "require_matplotlib",
    "svg",
]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, told apart by colour-blind readers: blue, vermillion, green, purple, orange, sky, black."""

CONTOUR_LEVELS = 16  # of contours, about
AXES_INCHES = (6.0, 4.0)  # of new axes, in inches: the width of a notebook's column
LEGEND_DROP_INCHES = 0.5  # inches from the axes down to their legend: ticks and a label lie between
TICK_LINE_INCHES = 0.17  # inches of each further line of the ticks' labels
LETTER, SYMBOL = 0.56, 4.8  # what a letter of a legend takes, and the symbol before it, about, in sizes of its font


def require_matplotlib() -> None:
    """Refuse, with a cure, where matplotlib is not installed.

    >>> try:
    ...     require_matplotlib()
    ... except InvalidArgument as error:
    ...     assert error.hint == "pip install matplotlib"
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as missing:
        raise InvalidArgument("drawing wants matplotlib", hint="pip install matplotlib") from missing


def axes_or_new(ax: Axes | None, size: tuple[float, float] = AXES_INCHES) -> Axes:
    """The axes given, or those of a new figure of ``size`` inches.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> axes_or_new(ax) is ax
    True
    """
    require_matplotlib()
    from matplotlib import pyplot
    from matplotlib.axes import Axes

    if isinstance(ax, Axes):
        return ax
    if ax is not None:
        raise InvalidArgument(
            f"ax is a {type(ax).__name__}, and should be matplotlib axes",
            hint="figure.subplots(), or one of the axes of plt.subplots(2, 2), such as axes[0, 0]",
        )
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def next_colour(ax: Axes, group: str, order: Sequence[str]) -> str:
    """The first colour that no line of the group on the axes has; where all are taken, the first once more.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> line = ax.plot([0, 1], color=COLOURS[0], gid="runs")
    >>> next_colour(ax, "runs", COLOURS) == COLOURS[1], next_colour(ax, "others", COLOURS) == COLOURS[0]
    (True, True)
    """
    drawn = {line.get_color() for line in ax.get_lines() if line.get_gid() == group}
    return next((colour for colour in order if colour not in drawn), order[0])


def count_iterations(ax: Axes) -> None:
    """The x axis counts iterations: whole numbers, under their name.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> count_iterations(ax)
    >>> ax.get_xlabel()
    'iteration k'
    """
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True))
    ax.set_xlabel("iteration k")


def ink(ax: Axes) -> str:
    """The colour of the axes' letters, for lines that must be seen on the background of any style.

    >>> from matplotlib.figure import Figure
    >>> ink(Figure().subplots())
    'black'
    """
    return str(ax.xaxis.label.get_color())


def filled_contours(
    ax: Axes, axes: Sequence[Floats], values: Floats, *, label: str, bar: Mapping[str, Any] | None = None, **how: Any
) -> ContourSet:
    """Values over a grid, first axis first, as filled contours with a colour bar; empty where they are nan.

    - ``ax``: the axes.
    - ``axes``: the two axes of the grid.
    - ``values``: at its points.
    - ``label``: of the colour bar.
    - ``bar``: its options.
    - ``how``: options of matplotlib's ``contourf``.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> contours = filled_contours(ax, [np.arange(2.0), np.arange(3.0)], np.arange(6.0).reshape(2, 3), label="height")
    >>> ax.get_figure().axes[1].get_ylabel()
    'height'
    """
    shown = np.ma.masked_invalid(values.T)  # rows of a picture are the second variable
    looks: dict[str, Any] = {"levels": CONTOUR_LEVELS, "cmap": "cividis", "zorder": 0} | how
    filled = ax.contourf(axes[0], axes[1], shown, **looks)
    figure = ax.get_figure()
    assert figure is not None
    figure.colorbar(filled, ax=ax, **(bar or {})).set_label(label)
    return filled


def legend_below(ax: Axes, handles: list[Any] | None = None, *, lines: int = 1, right: bool = False) -> None:
    """A legend under the axes, in as many columns as fit; labels that repeat are said once.

    - ``ax``: the axes.
    - ``handles``: what is named; by default all that has a label.
    - ``lines``: how many lines the labels of the ticks have.
    - ``right``: whether it ends where the axes end, and extends to the left under the names of rows.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> lines = ax.plot([0, 1], label="a line")
    >>> legend_below(ax)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['a line']
    """
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties
    from matplotlib.transforms import ScaledTranslation

    drawn = ax.get_legend_handles_labels()[0] if handles is None else handles
    entries = {str(handle.get_label()): handle for handle in drawn}
    if not entries:
        return
    figure = ax.get_figure()
    assert figure is not None
    letters = FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points()
    room = 1.2 * ax.get_window_extent().width * 72 / figure.dpi / letters
    drop = LEGEND_DROP_INCHES + TICK_LINE_INCHES * (lines - 1)
    under = ax.transAxes + ScaledTranslation(0, -drop, figure.dpi_scale_trans)
    ax.legend(
        entries.values(), entries.keys(), loc="upper right" if right else "upper center",
        bbox_to_anchor=(1.0 if right else 0.5, 0), bbox_transform=under,
        ncols=_columns(list(entries), room), frameon=False, borderaxespad=0,
    )  # fmt: skip


def _columns(labels: list[str], room: float) -> int:
    """The largest number of columns, filled one after the other, that fit into ``room`` sizes of the font."""
    for columns in range(len(labels), 1, -1):
        widths = [max(map(len, column)) for column in np.array_split(np.array(labels), columns)]
        if sum(SYMBOL + LETTER * width for width in widths) <= room:
            return columns
    return 1


def png(figure: Figure, *, dpi: int = 150) -> bytes:
    """The figure as PNG.

    >>> from matplotlib.figure import Figure
    >>> png(Figure(figsize=(1, 1)))[:4]
    b'\\x89PNG'
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, format="png")
    return buffer.getvalue()


def svg(figure: Figure) -> bytes:
    """The figure as SVG: letters as outlines, no date, and the same bytes each time.

    >>> from matplotlib.figure import Figure
    >>> b"<svg" in svg(Figure(figsize=(1, 1)))
    True
    """
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "bilevel-sym", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
