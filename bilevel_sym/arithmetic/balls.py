"""Balls of python-flint at the precision ``flint.ctx.prec``: every result contains the true values at all points.

A ball that leaves the domain becomes nan, which claims nothing; no operation raises. At a switching point (``lt``,
``le``, ``sign`` of a ball with zero in it, exact zero included) the answer is open: a derivative is certain there only
if both branches agree.

Arb bounds a function over a narrow ball by its slope. Over a wide one that is loose or nan (``arb(0, 20).tanh()``), so
wide balls are evaluated at the two ends, where the function is monotone.

>>> OPERATIONS["ipow"](arb(0, 1), 2) >= 0
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from types import MappingProxyType
from typing import Any

import flint
from flint import arb, fmpq

__all__ = ["OPEN", "OPERATIONS", "SMOOTH", "UNIT", "constant", "precision"]

_CONTEXT = RLock()  # flint's precision belongs to the whole process: one thread at a time
_NAN = arb("nan")
UNIT = arb(0.5, 0.5).nonnegative_part()  # [0, 1], with a lower end that is exactly zero
_NARROW = arb(2) ** -20
_FAR = 1000  # beyond it exp(-abs(z)) is nothing beside 1, and exp(abs(z)) may overflow
_LARGEST_ROOT = 64  # beyond it a power of a root is slower than the logarithm, and loses more digits


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Work with so many bits inside the block; the old precision comes back whatever happens.

    >>> with precision(100):
    ...     flint.ctx.prec
    100
    >>> flint.ctx.prec
    53
    """
    with _CONTEXT:
        before = flint.ctx.prec
        flint.ctx.prec = bits
        try:
            yield
        finally:
            flint.ctx.prec = before


def constant(p: int, q: int) -> Any:
    """A ball around the rational p/q.

    >>> constant(1, 3).contains(arb(fmpq(1, 3))), constant(1, 4).is_exact()
    (True, True)
    """
    return arb(fmpq(p, q))


def _narrow(x: Any) -> bool:
    """Small beside its distance from zero and beside 1: the slope gives a tight answer."""
    return bool(x.is_exact()) or bool(x.rad() < _NARROW and x.rad() < x.abs_lower() * _NARROW)


def _monotone(function: Callable[[Any], Any], x: Any) -> Any:
    """The range of a function that is monotone on the ball."""
    if _narrow(x) or not x.is_finite():
        return function(x)
    return function(x.lower()).union(function(x.upper()))


def _even(function: Callable[[Any], Any], x: Any) -> Any:
    """The range of an even function that is monotone on the positive half line."""
    if _narrow(x) or not x.is_finite():
        return function(x)
    return function(x.abs_lower()).union(function(x.abs_upper()))


def _positive(x: Any) -> Any:
    """Cut off what a rounded radius put below zero; only for values known to be nonnegative."""
    return x.nonnegative_part() if x.is_finite() and not x >= 0 else x


def _power(x: Any, k: int) -> Any:
    """x**k for k > 0 by squaring: ``arb(0, 1)**2`` is nan in python-flint 0.9."""
    result = x
    for bit in bin(k)[3:]:
        result = result * result
        if bit == "1":
            result = result * x
    return result


def _ipow(x: Any, k: int) -> Any:
    if x.is_exact() and k > 0:
        return _power(x, k)
    if k < 0:
        # a positive power whose ball was cut at zero, or contains it, has the inverse nan
        return _NAN if x.contains(0) else _monotone(lambda t: 1 / _power(t, -k), x)
    if k % 2:
        return _monotone(lambda t: _power(t, k), x)
    return _positive(_even(lambda t: _power(t, k), x))


def _root_power(x: Any, p: int, q: int) -> Any:
    """x**(p/q) for p > 0 and x >= 0; arb's own root is nan at zero, and a long power of a root loses digits."""
    if x.is_zero():
        return x
    if max(p, q) > _LARGEST_ROOT:
        return (x.log() * p / q).exp()
    return _power(x.sqrt() if q == 2 else x.root(q), p)


def _rpow(x: Any, p: int, q: int) -> Any:
    if not x >= 0 or (p < 0 and not x > 0):
        return _NAN
    if p < 0:
        return _monotone(lambda t: 1 / _root_power(t, -p, q), x)
    return _positive(_monotone(lambda t: _root_power(t, p, q), x))


def _tan(x: Any) -> Any:
    if _narrow(x) or x.cos().contains(0):
        return x.tan()
    return _monotone(lambda t: t.tan(), x)


def _abs(x: Any) -> Any:
    return _positive(abs(x))


def _softplus_core(z: Any) -> Any:
    """One occurrence of z where that matters, so that a narrow ball stays narrow."""
    return z + (-z).exp().log1p() if z > _FAR else z.exp().log1p()


def _sigmoid_core(z: Any) -> Any:
    if z < -_FAR:
        e = z.exp()
        return e / (1 + e)
    return 1 / (1 + (-z).exp())


def _bell_core(z: Any) -> Any:
    """1 / (4 cosh(z/2)**2), which has one occurrence of z."""
    if abs(z) > _FAR:
        e = (-abs(z)).exp()
        return e / ((1 + e) * (1 + e))
    c = (z / 2).cosh()
    return 1 / (4 * c * c)


def _min(a: Any, b: Any) -> Any:
    if a <= b:
        return a
    return b if b <= a else a.min(b)


def _max(a: Any, b: Any) -> Any:
    if a >= b:
        return a
    return b if b >= a else a.max(b)


def _sign(x: Any) -> Any:
    if x > 0 or x < 0:
        return x.sgn()
    return _NAN if x.is_nan() else arb(0, 1)


def _negative(x: Any) -> Any:
    """1 where x < 0, 0 where x > 0, open where zero is in the ball."""
    if x < 0:
        return arb(1)
    if x > 0:
        return arb(0)
    return _NAN if x.is_nan() else UNIT


def _select(c: Any, a: Any, b: Any) -> Any:
    if c.is_nan():
        return _NAN
    if c != 0:
        return a
    return b if c.is_zero() else a.union(b)


def _decided_sign(x: Any) -> Any:
    return x.sgn() if x > 0 or x < 0 else _NAN


def _decided_negative(x: Any) -> Any:
    if x < 0:
        return arb(1)
    return arb(0) if x > 0 else _NAN


def _decided_select(c: Any, a: Any, b: Any) -> Any:
    if c != 0:
        return a
    return b if c.is_zero() else _NAN


def _inner_rpow(x: Any, p: int, q: int) -> Any:
    return _rpow(x, p, q) if x > 0 else _NAN


OPERATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "mul": lambda a, b: a * b,
        "ipow": _ipow,
        "rpow": _rpow,
        "exp": lambda x: _positive(_monotone(lambda t: t.exp(), x)),
        "log": lambda x: _monotone(lambda t: t.log(), x) if x > 0 else _NAN,
        "sin": lambda x: x.sin(),
        "cos": lambda x: x.cos(),
        "tan": _tan,
        "tanh": lambda x: _monotone(lambda t: t.tanh(), x),
        "sinh": lambda x: _monotone(lambda t: t.sinh(), x),
        "cosh": lambda x: _positive(_even(lambda t: t.cosh(), x)),
        "atan": lambda x: _monotone(lambda t: t.atan(), x),
        "abs": _abs,
        "sign": _sign,
        "softplus": lambda x: _positive(_monotone(_softplus_core, x)),
        "sigmoid": lambda x: _positive(_monotone(_sigmoid_core, x)),
        "bell": lambda x: _positive(_even(_bell_core, x)),
        "min": _min,
        "max": _max,
        "lt": _negative,
        "le": _negative,
        "select": _select,
        "pi": arb.pi,
    }
)
"""Operation name -> function of balls; integer parameters (of ``ipow``, ``rpow``) come last."""

# For proofs that need smoothness all over a ball: where a switch is not decided, or a root touches the end of its
# domain, nothing is claimed. A hull would be true of values, but the mean value theorem fails across a jump, and
# branches that agree at a point need not agree next to it.
SMOOTH: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **OPERATIONS,
        "rpow": _inner_rpow,
        "sign": _decided_sign,
        "lt": _decided_negative,
        "le": _decided_negative,
        "select": _decided_select,
    }
)

OPEN: Mapping[str, Callable[..., Any]] = MappingProxyType({**SMOOTH, "select": _select})
"""``SMOOTH``, but for switches that are numbers of their own: where one is open, the hull (see ``patterns``)."""
