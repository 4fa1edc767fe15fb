"""What people hand over for a number or a formula, made into one: 1 x 1 matrices, and floats as their decimals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sympy as sp

from bilevel_sym.graph.exact import decimal_rational
from bilevel_sym.graph.expressions import postorder, substitute

__all__ = ["as_scalar", "in_decimals"]

DOUBLE = 53  # bits: Floats of this precision are Python's


def as_scalar(formula: Any) -> Any:
    """The one entry of a 1 x 1 matrix or of an array that has one; anything else as it is.

    >>> y = sp.Matrix(sp.symbols("y1 y2"))
    >>> as_scalar(y.T * y), as_scalar("y1")
    (y1**2 + y2**2, 'y1')
    """
    if (isinstance(formula, sp.MatrixBase) or _is_numpy(formula)) and set(formula.shape) <= {1}:
        return formula[(0,) * len(formula.shape)]
    return formula


def in_decimals(value: Any) -> Any:
    """Every float as the decimal that prints it, exactly, in numbers, formulas, pairs, rows and mappings.

    >>> in_decimals({"a": 0.1, "x": (-0.5, 1)}), in_decimals(0.1 * sp.Symbol("x"))
    ({'a': 1/10, 'x': (-1/2, 1)}, x/10)
    """
    if _is_numpy(value) and value.ndim:
        return [in_decimals(part) for part in value]
    if isinstance(value, float) or (_is_numpy(value) and value.dtype.kind == "f"):
        return decimal_rational(str(value)) if math.isfinite(value) else value
    match value:
        case sp.Float():
            return decimal_rational(str(float(value)) if value._prec == DOUBLE else str(value))
        case sp.Expr():
            floats = {n: in_decimals(n) for n in postorder(value) if isinstance(n, sp.Float) and n.is_finite}
            return substitute(value, floats)
        case Mapping():
            return {name: in_decimals(part) for name, part in value.items()}
        case list() | tuple():
            return type(value)(map(in_decimals, value))
    return value


def _is_numpy(value: Any) -> bool:
    """Whether it is an array or a number of NumPy, which has been imported then; problems do without."""
    return str(type(value).__module__).partition(".")[0] == "numpy" and hasattr(value, "ndim")
