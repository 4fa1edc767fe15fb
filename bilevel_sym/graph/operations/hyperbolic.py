"""tanh, sinh and cosh."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import sympy as sp
from flint import fmpq

from bilevel_sym.graph.operations.exponentials import LARGEST_EXPONENT, exp_bounds
from bilevel_sym.graph.operations.record import Even, Monotone, Operation, at_zero, opened

__all__ = ["RECORDS"]

RECORDS = (
    Operation(
        name="tanh",
        sympy=sp.tanh,
        in_text=True,
        shape=Monotone(-1.0, 1.0),
        # 1 - tanh^2 cancels for large z; 4 bell(2 z) is the same without
        derivative=lambda graph, z, itself: graph.apply("bell", opened(graph, z).scaled(fmpq(2))).scaled(fmpq(4)),
        folded=at_zero(0),
        numpy=np.tanh,
        mpmath=mpmath.tanh,
        ball=lambda z: z.tanh(),
        series=lambda z: 1 - 2 / (1 + (2 * z).exp()),
        source="np.tanh({})",
        inverse=lambda r, _: (sp.atanh(r),),
        in_exp=True,
        # with t = tanh and u = 1 - t^2: u, -2 t u, (6 t^2 - 2) u and (16 - 24 t^2) t u
        bounds=lambda T: (Fraction(1), Fraction(1), Fraction(77, 100), Fraction(2), Fraction(41, 10)),
    ),
    Operation(
        name="sinh",
        sympy=sp.sinh,
        in_text=True,
        shape=Monotone(-np.inf, np.inf),
        largest=LARGEST_EXPONENT,
        derivative=lambda graph, z, itself: graph.apply("cosh", z),
        folded=at_zero(0),
        numpy=np.sinh,
        compiled=math.sinh,
        mpmath=mpmath.sinh,
        ball=lambda z: z.sinh(),
        series=lambda z: (z.exp() - (-z).exp()) / 2,
        source="np.sinh({})",
        inverse=lambda r, _: (sp.asinh(r),),
        in_exp=True,
        excess=10,
        bounds=exp_bounds,
    ),
    Operation(
        name="cosh",
        sympy=sp.cosh,
        in_text=True,
        shape=Even(1.0, np.inf, rising=True),
        largest=LARGEST_EXPONENT,
        derivative=lambda graph, z, itself: graph.apply("sinh", z),
        folded=at_zero(1),
        numpy=np.cosh,
        compiled=math.cosh,
        mpmath=mpmath.cosh,
        ball=lambda z: z.cosh(),
        series=lambda z: (z.exp() + (-z).exp()) / 2,
        source="np.cosh({})",
        inverse=lambda r, _: (sp.acosh(r), -sp.acosh(r)),
        in_exp=True,
        excess=5,
        bounds=exp_bounds,
    ),
)
