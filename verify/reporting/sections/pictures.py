"""The landscape of Phi, or slices of it where x has more than two variables."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.plotting import COLOURS, plot_landscape
from bilevel_sym.system.plain_text import as_title
from bilevel_sym.typing import Floats
from verify.points.stationary import StationaryPoint
from verify.reporting.drawing import figure_of
from verify.reporting.markup import Markup, paragraph
from verify.reporting.subject import Subject

__all__ = ["landscape", "require_pictures"]

SLICES = 6  # variables of x that have a slice
SLICE_POINTS = 101
COARSE = 61  # grid points each way of a surface


def require_pictures() -> None:
    """Refuse where matplotlib is not installed.

    >>> require_pictures()
    """
    if find_spec("matplotlib") is None:
        raise InvalidArgument("matplotlib, which draws, is not installed", hint="pip install matplotlib")


def landscape(subject: Subject) -> Markup:
    """Phi over the box in one or two variables, else along each of the first ones.

    >>> from bilevel_sym import zoo
    >>> "<svg" in landscape(Subject(zoo.get("scalar").problem, 0, 1.0, None, ""))
    True
    """
    require_pictures()
    problem = subject.problem
    if problem.box is None:
        raise InvalidArgument("a landscape belongs to a box, and the problem has none", hint="[box] in its file")
    low, high = np.array(problem.ends("x"), dtype=np.float64).T
    problem.mean.kernels.refuse_kinked_box(low, high)
    return _whole(subject) if problem.d <= 2 and not problem.is_array else _slices(subject)


def _whole(subject: Subject) -> Markup:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    marks = _marks(subject)
    plot_landscape(
        subject.problem, figure.subplots(), points=marks, resolution=None if subject.problem.d == 1 else COARSE
    )
    kinds = ", ".join(f"{point.kind} at ({', '.join(f'{v:.4g}' for v in point.x)})" for point in marks)
    shape = "A curve" if subject.problem.d == 1 else "Filled contours"
    alt = f"{shape} of Phi over the box. Marked: {kinds or 'no stationary point'}."
    return figure_of(figure, "landscape", alt, "Φ over the box in x; the stationary points are those of the table.")


def _marks(subject: Subject) -> tuple[StationaryPoint, ...]:
    try:
        return subject.stationary.points
    except BilevelError:
        return ()


def _slices(subject: Subject) -> Markup:
    from matplotlib.figure import Figure

    names = [symbol.name for symbol in subject.problem.x_entries]
    count = min(SLICES, len(names))
    columns = min(3, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(2.7 * columns, 2.3 * rows), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns, sharey=True)).ravel()
    for k, ax in enumerate(axes):
        if k >= count:
            ax.set_axis_off()
            continue
        at, heights = _slice(subject, k)
        ax.plot(at, heights, color=COLOURS[0])
        ax.set_xlabel(as_title(names[k]))
        if k % columns == 0:
            ax.set_ylabel(r"$\Phi$")
    which = ", ".join(names[:count])
    alt = f"Curves of Phi along {which}, the other variables at the centre of the box."
    left = f" Of {len(names)} variables the first {count} are shown." if len(names) > count else ""
    shown = figure_of(figure, "slices", alt, f"Φ along one variable at a time, through the centre of the box.{left}")
    return Markup(shown + paragraph("x has too many variables for a landscape, so these are slices."))


def _slice(subject: Subject, k: int) -> tuple[Floats, Floats]:
    ends = subject.problem.ends("x")
    assert ends is not None
    low, high = (float(end) for end in ends[k])
    x = np.repeat(subject.points(1, 0), SLICE_POINTS, axis=0)
    x[:, k] = np.linspace(low, high, SLICE_POINTS)
    return x[:, k], _values(subject, x)


def _values(subject: Subject, x: Floats) -> Floats:
    """Phi at points; nan where it cannot be had."""
    kernels = subject.problem.mean.kernels
    try:
        return np.asarray(kernels.phi(x))
    except BilevelError:
        return np.array([_value(subject, point) for point in x])


def _value(subject: Subject, point: Floats) -> float:
    try:
        return float(subject.problem.mean.kernels.phi(point))
    except BilevelError:
        return float("nan")
