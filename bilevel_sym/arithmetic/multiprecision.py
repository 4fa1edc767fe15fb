"""mpmath numbers at the working precision of ``mpmath.mp``: reference digits, without a proof.

A value outside its domain is nan, never a complex number and never an exception; nan goes on through every operation,
comparisons included. An infinite value means what it means in float64: log(0) is -inf.

>>> OPERATIONS["rpow"](mpmath.mpf(8), 2, 3)
mpf('4.0')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import mpmath

__all__ = ["OPERATIONS", "constant"]

# bits beyond the working precision for results of more than one rounding
_GUARD = 20


def constant(p: int, q: int) -> Any:
    """The rational p/q, rounded once.

    >>> constant(1, 4)
    mpf('0.25')
    """
    return mpmath.mp.make_mpf(mpmath.libmp.from_rational(p, q, mpmath.mp.prec, "n"))


def _ipow(a: Any, k: int) -> Any:
    return mpmath.nan if k < 0 and a == 0 else a**k


def _rpow(a: Any, p: int, q: int) -> Any:
    """a**(p/q) as the power of a root: p/q itself would be rounded, and a large logarithm would show it."""
    if a < 0 or (p < 0 and a == 0):
        return mpmath.nan
    with mpmath.workprec(mpmath.mp.prec + _GUARD + abs(p).bit_length()):
        power = mpmath.root(a, q) ** p
    return +power


def _log(z: Any) -> Any:
    return mpmath.nan if z < 0 else mpmath.log(z)


def _softplus(z: Any) -> Any:
    """log1p keeps the digits that log(1 + tiny) loses; exp sees no positive argument, so it stays small."""
    return max(0, z) + mpmath.log1p(mpmath.exp(-abs(z)))


def _sigmoid(z: Any) -> Any:
    """Both signs keep their relative digits: exponents of mpmath have no end, so exp(-z) does not overflow."""
    e = mpmath.exp(-abs(z))
    return (e if z < 0 else 1) / (1 + e)


def _bell(z: Any) -> Any:
    """sigmoid(z) sigmoid(-z), written in exp(-abs(z)) alone."""
    e = mpmath.exp(-abs(z))
    return e / (1 + e) ** 2


def _min(a: Any, b: Any) -> Any:
    return a if a <= b or mpmath.isnan(a) else b


def _max(a: Any, b: Any) -> Any:
    return a if a >= b or mpmath.isnan(a) else b


def _indicator(test: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """1 where the test holds, 0 where it does not, nan where nothing is known."""

    def indicate(a: Any) -> Any:
        return a if mpmath.isnan(a) else mpmath.mpf(test(a))

    return indicate


def _select(c: Any, a: Any, b: Any) -> Any:
    if mpmath.isnan(c):
        return c
    return a if c != 0 else b


OPERATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "mul": lambda a, b: a * b,
        "ipow": _ipow,
        "rpow": _rpow,
        "exp": mpmath.exp,
        "log": _log,
        "sin": mpmath.sin,
        "cos": mpmath.cos,
        "tan": mpmath.tan,
        "tanh": mpmath.tanh,
        "sinh": mpmath.sinh,
        "cosh": mpmath.cosh,
        "atan": mpmath.atan,
        "abs": abs,
        "sign": mpmath.sign,
        "softplus": _softplus,
        "sigmoid": _sigmoid,
        "bell": _bell,
        "min": _min,
        "max": _max,
        "lt": _indicator(lambda a: bool(a < 0)),
        "le": _indicator(lambda a: bool(a <= 0)),
        "select": _select,
        "pi": lambda: +mpmath.pi,
    }
)
"""Operation name -> function of mpmath numbers; integer parameters (of ``ipow``, ``rpow``) come last."""
