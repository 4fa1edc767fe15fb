"""Where a candidate is asked: points of the problem's box, special ones first, or those that a user names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.frames import check_labels, is_frame
from bilevel_sym.typing import Floats

__all__ = ["MOST_SITES", "given_points", "sample_points", "x_ends"]

MOST_SITES = 12
GRID = 100  # of the box: short numbers that can be typed again, and of which float32 holds next to none


def x_ends(problem: BilevelProblem) -> tuple[Floats, Floats]:
    """The ends of the box in x; from -1 to 1 where the problem has none.

    >>> x_ends(BilevelProblem("x*y", "y**2 - x*y", "x", "y", box={"x": (0, 2), "y": (0, 1)}))
    (array([0.]), array([2.]))
    """
    ends = {} if problem.box is None else dict(problem.box.items())
    pairs = [ends.get(s.name, (-1, 1)) for s in problem.x]
    return np.array([float(low) for low, _ in pairs]), np.array([float(high) for _, high in pairs])


def sample_points(problem: BilevelProblem, rng: np.random.Generator) -> Floats:
    """The middle, zero if it is inside, two corners, and points at random, (P, d).

    Zero and the middle are where a warm start from zero is often exact, and where terms vanish.

    >>> sample_points(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), np.random.default_rng(0))[:3].ravel()
    array([ 0., -1.,  1.])
    """
    low, high = x_ends(problem)
    special = [(low + high) / 2, np.clip(0.0, low, high), low, high]
    shares = rng.integers(1, GRID, (MOST_SITES, problem.d)) / GRID
    points = [*special, *np.clip(_short(low + shares * (high - low)), low, high)]
    distinct = {tuple(point): point for point in points}
    return np.array(list(distinct.values())[:MOST_SITES]) + 0.0


def _short(points: Floats) -> Floats:
    """0.02 where sums of floating-point numbers gave 0.020000000000000018."""
    return np.array([[float(f"{value:.12g}") for value in point] for point in points])


def given_points(problem: BilevelProblem, points: Iterable[Any]) -> Floats:
    """The points of a user: rows of d numbers, or mappings by name, or one of these alone.

    >>> given_points(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [{"x": 1}, [0.5]])
    array([[1. ],
           [0.5]])
    """
    hint = f"points of {problem.d} finite numbers each, such as points=[{[0.5] * problem.d}]"
    names = [s.name for s in problem.x]
    check_labels(points, names, "points")
    if isinstance(points, (list, tuple)):
        for row in points:
            check_labels(row, names, "a point")
    try:
        points = np.asarray(points) if is_frame(points) else points
        listed = [points] if isinstance(points, Mapping) else list(points)
        rows = [[row[name] for name in names] if isinstance(row, Mapping) else row for row in listed]
        array = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise InvalidArgument(f"points={points!r:.60} are not points of x", hint=hint) from None
    array = array[None] if array.ndim == 1 and array.shape == (problem.d,) else array
    if array.ndim != 2 or array.shape[1] != problem.d or not len(array) or not np.isfinite(array).all():
        raise InvalidArgument(f"points of shape {array.shape} are not finite points of x", hint=hint)
    return array
