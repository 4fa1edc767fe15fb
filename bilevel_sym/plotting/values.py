"""Values at many points, nan where they do not exist: outside of a domain, or where the lower level has no solution."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.implicit.engine import in_halves
from bilevel_sym.typing import Floats, Indices

__all__ = ["on_grid", "where_defined"]

STRIDE, MOST_GRID_POINTS = 5, 1700  # a grid with gaps: every fifth point is tried first, of at most so many in all


def where_defined(function: Callable[[Floats], Floats], points: Floats, shape: tuple[int, ...] = ()) -> Floats:
    """A function of rows of points, (P, d) to (P, *shape), with nan where it fails.

    >>> from bilevel_sym import BilevelProblem
    >>> kernels = BilevelProblem("log(x)*y", "y**2/2 - y", "x", "y").kernels
    >>> where_defined(kernels.phi, np.array([[-1.0], [1.0]]))
    array([nan,  0.])
    """
    found = np.full((len(points), *shape), np.nan)

    def attempt(rows: Indices) -> None:
        found[rows] = function(points[rows])

    in_halves(np.arange(len(points)), attempt, BilevelError)
    return found


def on_grid(function: Callable[[Floats], Floats], low: Floats, high: Floats, count: int) -> tuple[list[Floats], Floats]:
    """The axes of a grid of ``count`` points each way, and the function there, first axis first; nan where it fails.

    A failure costs much more than a value. Where there are any the grid is coarser, and a cell of ``STRIDE`` points
    each way is not looked into if the function fails at all of its corners.

    >>> axes, values = on_grid(lambda x: x[:, 0] + 10 * x[:, 1], np.zeros(2), np.ones(2), 2)
    >>> values.tolist()
    [[0.0, 10.0], [1.0, 11.0]]
    """
    axes, values = _filled(function, low, high, count)
    if np.isnan(values).all():
        raise InvalidArgument("there is no value at any point of the box", hint="another box")
    return axes, values


def _filled(function: Callable[[Floats], Floats], low: Floats, high: Floats, count: int) -> tuple[list[Floats], Floats]:
    axes, points = _grid(low, high, count)
    try:
        return axes, function(points.reshape(-1, len(low))).reshape(points.shape[:-1])
    except BilevelError:
        cells = (min(count, int(MOST_GRID_POINTS ** (1 / len(low)))) - 1) // STRIDE
    if not cells:
        return axes, where_defined(function, points.reshape(-1, len(low))).reshape(points.shape[:-1])
    axes, points = _grid(low, high, cells * STRIDE + 1)
    coarse = _grid(low, high, cells + 1)[1]
    failing = np.isnan(where_defined(function, coarse.reshape(-1, len(low)))).reshape(coarse.shape[:-1])
    for axis in range(len(low)):  # a cell counts as failing if all of its corners fail
        near, far = (np.take(failing, range(first, first + cells), axis) for first in (0, 1))
        failing = near & far
        failing = np.repeat(failing, STRIDE, axis)
        failing = np.concatenate([failing, np.take(failing, [-1], axis)], axis)
    values = np.full(points.shape[:-1], np.nan)
    values[~failing] = where_defined(function, points[~failing])
    return axes, values


def _grid(low: Floats, high: Floats, count: int) -> tuple[list[Floats], Floats]:
    axes = [np.linspace(a, b, count) for a, b in zip(low, high, strict=True)]
    return axes, np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
