"""The values of x that a picture over one variable is drawn at."""

from __future__ import annotations

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting.arguments import Region, box_ends
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.typing import Floats

__all__ = ["line_over"]

LINE_POINTS = 201


def line_over(problem: BilevelProblem, box: Region) -> Floats:
    """Points (K, 1) from end to end of the box, by default the problem's; of a problem with one variable in x.

    >>> line = line_over(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), {"x": (-1, 3)})
    >>> line.shape, line[0, 0], line[-1, 0]
    ((201, 1), np.float64(-1.0), np.float64(3.0))
    """
    if problem.d != 1:
        raise InvalidArgument(
            f"this picture has one variable, but x has {problem.d}", hint="plot_landscape draws Phi over two"
        )
    (low,), (high,) = box_ends(problem, box, [problem.x[0].name])
    return np.linspace(low, high, LINE_POINTS)[:, None]
