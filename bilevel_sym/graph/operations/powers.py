"""Products, powers and pi. Exponents are parameters: a whole k of ``ipow``, p and q of ``rpow`` for p/q."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import sympy as sp
from flint import arb, fmpq

from bilevel_sym.graph.operations.record import NAN, Operation, Shape, even, monotone, positive
from bilevel_sym.graph.precision import mpmath_precision

__all__ = ["RECORDS"]

_GUARD = 20  # bits beyond the working precision for results of more than one rounding
_LARGEST_ROOT = 64  # beyond it a power of a root is slower than the logarithm, and loses more digits


# ---- floats: by squaring, for NumPy's own power goes through logarithms ---------------------------------------


def _float_ipow(base: Any, k: int, out: Any = None) -> Any:
    power = np.empty_like(base) if out is None else out
    _squared_into(base, abs(k), power)
    return np.reciprocal(power, out=power) if k < 0 else power


def _squared_into(base: Any, exponent: int, out: Any) -> None:
    if exponent == 1:
        np.copyto(out, base)
    elif exponent == 2:
        np.multiply(base, base, out=out)
    elif exponent % 2:
        _squared_into(base, exponent - 1, out)
        np.multiply(out, base, out=out)
    else:
        _squared_into(base, exponent // 2, out)
        np.square(out, out=out)


def _float_rpow(base: Any, p: int, q: int, out: Any = None) -> Any:
    """Square roots and their powers without logarithms."""
    return _float_ipow(np.sqrt(base), p, out) if q == 2 else np.power(base, p / q, out=out)


# ---- mpmath -------------------------------------------------------------------------------------------------


def _digits_rpow(a: Any, p: int, q: int) -> Any:
    """a**(p/q) as the power of a root: p/q itself would be rounded, and a large logarithm would show it."""
    if a < 0 or (p < 0 and a == 0):
        return mpmath.nan
    with mpmath_precision(mpmath.mp.prec + _GUARD + abs(p).bit_length()):
        power = mpmath.root(a, q) ** p
    return +power


# ---- balls --------------------------------------------------------------------------------------------------


def _squared(x: Any, k: int) -> Any:
    """x**k for k > 0 by squaring: ``arb(0, 1)**2`` is nan in python-flint 0.9."""
    result = x
    for bit in bin(k)[3:]:
        result = result * result
        if bit == "1":
            result = result * x
    return result


def _ball_ipow(x: Any, k: int) -> Any:
    if x.is_exact() and k > 0:
        return _squared(x, k)
    if k < 0:
        # a positive power whose ball was cut at zero, or contains it, has the inverse nan
        return NAN if x.contains(0) else monotone(lambda t: 1 / _squared(t, -k), x)
    return monotone(lambda t: _squared(t, k), x) if k % 2 else positive(even(lambda t: _squared(t, k), x))


def _root_power(x: Any, p: int, q: int) -> Any:
    """x**(p/q) for p > 0 and x >= 0; arb's own root is nan at zero, and a long power of a root loses digits."""
    if x.is_zero():
        return x
    return (x.log() * p / q).exp() if max(p, q) > _LARGEST_ROOT else _squared(x.sqrt() if q == 2 else x.root(q), p)


def _ball_rpow(x: Any, p: int, q: int) -> Any:
    if not x >= 0 or (p < 0 and not x > 0):
        return NAN
    if p < 0:
        return monotone(lambda t: 1 / _root_power(t, -p, q), x)
    return positive(monotone(lambda t: _root_power(t, p, q), x))


_OWN = Shape("own")

RECORDS = (
    Operation(
        name="mul", arity=2, sympy=sp.Mul, shape=_OWN, numpy=np.multiply, mpmath=lambda a, b: a * b,
        ball=lambda a, b: a * b,
    ),
    Operation(
        name="ipow", sympy=lambda a, k: a**k, shape=_OWN, numpy=_float_ipow, ball=_ball_ipow,
        derivative=lambda graph, z, k: graph.power(z, k - 1).scaled(fmpq(k)),
        mpmath=lambda a, k: mpmath.nan if k < 0 and a == 0 else a**k,
    ),
    Operation(
        name="rpow", sympy=lambda a, p, q: a ** sp.Rational(p, q), shape=_OWN, domain=0.0, numpy=_float_rpow, excess=6,
        derivative=lambda graph, z, p, q: graph.power(z, p - q, q).scaled(fmpq(p, q)), mpmath=_digits_rpow,
        ball=_ball_rpow, smooth_ball=lambda x, p, q: _ball_rpow(x, p, q) if x > 0 else NAN,
    ),
    Operation(name="pi", arity=0, sympy=lambda: sp.pi, shape=_OWN, mpmath=lambda: +mpmath.pi, ball=arb.pi),
)  # fmt: skip
