"""Points of a problem's box."""

from __future__ import annotations

import math
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import sympy as sp

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import Floats

__all__ = ["points"]

_GRID_PARTS = 16  # of the narrowest grid


def points(problem: BilevelProblem) -> st.SearchStrategy[Floats]:
    """Points x of the problem's box: small binary fractions, with its corners, its middle and zero among them.

    >>> from hypothesis import find
    >>> problem = BilevelProblem("x1*y", "y**2 - x2*y", "x1 x2", "y", box={"x1": (-1, 1), "x2": (1, 3), "y": (-1, 1)})
    >>> find(points(problem), lambda x: x[0] > 0)[0]
    np.float64(1.0)
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(f"points belong to a problem, but this is a {type(problem).__name__}")
    if problem.box is None:
        raise InvalidArgument(
            "the problem has no box to draw points from", hint="give it one: box={'x1': (-1, 1), ...}"
        )
    ends = (problem.box[s] for s in problem.x)
    return st.tuples(*(_coordinates(*pair) for pair in ends)).map(lambda x: np.array(x, dtype=np.float64))


def _coordinates(low: sp.Rational, high: sp.Rational) -> st.SearchStrategy[float]:
    """Zero, multiples of powers of two, coarse ones first, the ends and the middle: those between the ends, exactly."""
    if low == high:
        return st.just(float(low))
    a, b = Fraction(low.p, low.q), Fraction(high.p, high.q)
    finest = math.floor(math.log2((b - a) / _GRID_PARTS))
    marks = [value for value in (a, b, (a + b) / 2) if Fraction(float(value)) == value]
    return st.one_of(
        *([st.just(0.0)] if a <= 0 <= b else []),
        *(_multiples(a, b, Fraction(2) ** (finest + coarser)) for coarser in (4, 3, 2, 0)),
        *(st.just(float(value)) for value in marks),
    )


def _multiples(low: Fraction, high: Fraction, unit: Fraction) -> st.SearchStrategy[float]:
    first, last = math.ceil(low / unit), math.floor(high / unit)
    return st.integers(first, last).map(lambda k: float(k * unit)) if first <= last else st.nothing()
