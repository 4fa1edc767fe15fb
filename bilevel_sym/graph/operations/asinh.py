"""asinh, the inverse of sinh: log(z + sqrt(1 + z^2))."""

from __future__ import annotations

from fractions import Fraction

import sympy as sp

from bilevel_sym.graph.operations.record import Shape, at_zero, function

__all__ = ["RECORD"]

RECORD = function(
    "asinh", Shape("monotone"), lambda graph, z, itself: graph.power(graph.one + graph.power(z, 2), -1, 2),
    folded=at_zero(0), habits=("arcsinh", "arsinh"), series=lambda z: (z + (1 + z * z).sqrt()).log(),
    excess=16, undoes="sinh", inverse=lambda r, _: (sp.sinh(r),),
    # of itself, by its tangent at 3; of 1/s, -t/s^3, (2 t^2 - 1)/s^5 and (9 t - 6 t^3)/s^7 with s = sqrt(1 + t^2)
    bounds=lambda T: (min(T, (870 + 317 * T) / 1000), Fraction(1), Fraction(2, 5), Fraction(1), Fraction(2)),
)  # fmt: skip
