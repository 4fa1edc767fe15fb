"""sin, cos, tan and atan."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import sympy as sp

from bilevel_sym.graph.operations.record import Branches, Monotone, Operation, Wave, at_zero

__all__ = ["RECORDS"]

LARGEST_ANGLE = 1e9  # beyond it a float says little about the sine
_RIGHT_ANGLE = math.nextafter(math.pi / 2, 2)

RECORDS = (
    Operation(
        name="sin",
        sympy=sp.sin,
        in_text=True,
        shape=Wave(0.5),
        largest=LARGEST_ANGLE,
        derivative=lambda graph, z, itself: graph.apply("cos", z),
        folded=at_zero(0),
        numpy=np.sin,
        compiled=math.sin,
        mpmath=mpmath.sin,
        ball=lambda z: z.sin(),
        series=lambda z: z.sin(),
        source="np.sin({})",
        inverse=lambda r, _: (sp.asin(r),),
        bounds=lambda T: (Fraction(1),) * 5,
    ),
    Operation(
        name="cos",
        sympy=sp.cos,
        in_text=True,
        shape=Wave(0.0),
        largest=LARGEST_ANGLE,
        derivative=lambda graph, z, itself: -graph.apply("sin", z),
        folded=at_zero(1),
        numpy=np.cos,
        compiled=math.cos,
        mpmath=mpmath.cos,
        ball=lambda z: z.cos(),
        series=lambda z: z.cos(),
        source="np.cos({})",
        inverse=lambda r, _: (sp.acos(r),),
        bounds=lambda T: (Fraction(1),) * 5,
    ),
    Operation(
        name="tan",
        sympy=sp.tan,
        in_text=True,
        shape=Branches(0.5),
        largest=LARGEST_ANGLE,
        derivative=lambda graph, z, itself: graph.one + graph.power(itself, 2),
        folded=at_zero(0),
        numpy=np.tan,
        compiled=math.tan,
        mpmath=mpmath.tan,
        ball=lambda z: z.tan(),
        series=lambda z: z.tan(),
        source="np.tan({})",
        inverse=lambda r, _: (sp.atan(r),),
        excess=9,
    ),
    Operation(
        name="atan",
        sympy=sp.atan,
        in_text=True,
        habits=("arctan",),
        shape=Monotone(-_RIGHT_ANGLE, _RIGHT_ANGLE),
        derivative=lambda graph, z, itself: graph.power(graph.one + graph.power(z, 2), -1),
        folded=at_zero(0),
        numpy=np.arctan,
        compiled=math.atan,
        mpmath=mpmath.atan,
        ball=lambda z: z.atan(),
        series=lambda z: z.atan(),
        source="np.arctan({})",
        inverse=lambda r, _: (sp.tan(r),),
        undoes="tan",
        excess=7,
        # with s = 1 + t^2: 1/s, -2 t/s^2, (6 t^2 - 2)/s^3 and 24 t (1 - t^2)/s^4
        bounds=lambda T: (min(T, Fraction(2)), Fraction(1), Fraction(13, 20), Fraction(2), Fraction(47, 10)),
    ),
)
