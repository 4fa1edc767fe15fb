"""The values of x that a picture over one variable is drawn at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from bilevel_sym.box import Box
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.plotting.style import Floats
from bilevel_sym.problem import BilevelProblem

__all__ = ["Line", "line_over"]

Line = Box | Mapping[str, Iterable[object]] | None
COUNT = 201


def line_over(problem: BilevelProblem, box: Line) -> Floats:
    """Points (K, 1) from end to end of the box, by default the problem's; of a problem with one variable in x.

    >>> line = line_over(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), {"x": (-1, 3)})
    >>> line.shape, line[0, 0], line[-1, 0]
    ((201, 1), np.float64(-1.0), np.float64(3.0))
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidProblem(f"this picture wants a problem, but was given a {type(problem).__name__}")
    if problem.d != 1:
        raise InvalidProblem(
            f"this picture has one variable, but x has {problem.d}", hint="plot_landscape draws Phi over two"
        )
    name = problem.x[0].name
    if box is None and problem.box is None:
        raise InvalidProblem("the problem has no box to draw", hint=f'box={{"{name}": (-1, 1)}}')
    chosen = problem.box if box is None else box if isinstance(box, Box) else Box(box)
    assert chosen is not None
    low, high = map(float, chosen.bind((name,), tuple(s.name for s in problem.y))[name])
    if not low < high:
        raise InvalidProblem(f"the box has no width: {name} is {low:g}", hint=f'"{name}": ({low - 1:g}, {low + 1:g})')
    return np.linspace(low, high, COUNT)[:, None]
