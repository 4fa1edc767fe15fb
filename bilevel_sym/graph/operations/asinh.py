"""asinh, the inverse of sinh: log(z + sqrt(1 + z^2))."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import sympy as sp

from bilevel_sym.graph.operations.record import Monotone, Operation, at_zero

__all__ = ["RECORD"]

RECORD = Operation(
    name="asinh",
    sympy=sp.asinh,
    in_text=True,
    habits=("arcsinh", "arsinh"),
    shape=Monotone(-np.inf, np.inf),
    derivative=lambda graph, z, itself: graph.power(graph.one + graph.power(z, 2), -1, 2),
    folded=at_zero(0),
    numpy=np.arcsinh,
    compiled=math.asinh,
    mpmath=mpmath.asinh,
    ball=lambda z: z.asinh(),
    series=lambda z: (z + (1 + z * z).sqrt()).log(),
    source="np.arcsinh({})",
    inverse=lambda r, _: (sp.sinh(r),),
    undoes="sinh",
    excess=16,
    # of 1/s, -t/s^3, (2 t^2 - 1)/s^5 and (9 t - 6 t^3)/s^7 with s = sqrt(1 + t^2)
    bounds=lambda T: (T, Fraction(1), Fraction(2, 5), Fraction(1), Fraction(2)),
)
