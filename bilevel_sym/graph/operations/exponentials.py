"""exp and log."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import sympy as sp

from bilevel_sym.graph.operations.record import Monotone, Operation, at_zero

__all__ = ["LARGEST_EXPONENT", "RECORDS", "exp_bounds"]

LARGEST_EXPONENT = 690.0  # exp(690) is about 1e300


def exp_bounds(T: Fraction) -> tuple[Fraction, ...]:
    """exp(T), from above, for all orders; of sinh and cosh too.

    >>> float(exp_bounds(Fraction(1))[4]) > math.e
    True
    """
    return (Fraction(math.exp(T)) * (1 + Fraction(1, 2**40)),) * 5


RECORDS = (
    Operation(
        name="exp",
        sympy=sp.exp,
        in_text=True,
        shape=Monotone(0.0, np.inf),
        largest=LARGEST_EXPONENT,
        derivative=lambda graph, z, itself: itself,
        folded=at_zero(1),
        numpy=np.exp,
        mpmath=mpmath.exp,
        ball=lambda z: z.exp(),
        series=lambda z: z.exp(),
        source="np.exp({})",
        inverse=lambda r, _: () if r.is_zero else (sp.log(r),),
        bounds=exp_bounds,
    ),
    Operation(
        name="log",
        sympy=sp.log,
        in_text=True,
        habits=("ln",),
        shape=Monotone(-np.inf, np.inf),
        domain=0.0,
        derivative=lambda graph, z, itself: graph.power(z, -1),
        numpy=np.log,
        compiled=math.log,
        mpmath=mpmath.log,
        ball=lambda z: z.log(),
        series=lambda z: z.log(),
        source="np.log({})",
        inverse=lambda r, _: (sp.exp(r),),
        undoes="exp",
        excess=3,
    ),
)
