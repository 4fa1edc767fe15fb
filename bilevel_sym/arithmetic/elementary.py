"""Elementary functions of float64 arrays, by two libraries: NumPy's, which is fast, and Arb's, which is proved.

The intervals pad each value for an error of 8 ulp. That NumPy keeps to it is an assumption; that the numbers from Arb
do is a theorem: they come from balls of 80 bits, narrower than an ulp, rounded once (exp, sin and cos: see ``tabled``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.tabled import cosine, exponential, sine

__all__ = ["ARB", "NUMPY", "Library"]

Function = Callable[[Any], Any]
BITS = 80


@dataclass(frozen=True)
class Library:
    """What the intervals take from a library; ``power`` has a real exponent.

    >>> float(ARB.sin(np.array([1.0]))[0]) == math.sin(1.0)
    True
    """

    exp: Function
    log: Function
    log1p: Function
    sin: Function
    cos: Function
    tan: Function
    tanh: Function
    sinh: Function
    cosh: Function
    arctan: Function
    power: Callable[[Any, float], Any]


def _each(function: Function, special: Callable[[float], float]) -> Function:
    """A function of balls on an array: once for each different number, for boxes share their ends.

    ``special`` answers for infinities and for numbers whose image may leave float64.
    """

    def at(value: float) -> float:
        if not math.isfinite(value):
            return special(value)
        ball = function(arb(value))
        return float(ball.mid()) if ball.is_finite() else special(value)

    def apply(array: Any) -> Any:
        numbers, back = np.unique(np.asarray(array), return_inverse=True)
        with precision(BITS):
            images = np.array([at(value) for value in numbers.tolist()])
        return images[back].reshape(np.shape(array))

    return apply


def _by(function: Callable[[Any], Any]) -> Callable[[float], float]:
    """NumPy's answer at infinity and beyond the domain, where it is exact: 0, a limit, an infinity or nan."""

    def special(value: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(np.float64(value)))

    return special


def _bounded(function: Function, limit: float) -> Function:
    """Beyond the limit Arb's exact exponents are of no use: float64 has left its range, or underflowed, long before."""
    return lambda x: function(x) if abs(x) <= limit else arb("nan")


def _power(array: Any, exponent: float) -> Any:
    def special(value: float) -> float:
        with np.errstate(all="ignore"):
            return float(np.power(np.float64(value), exponent))

    return _each(lambda x: x ** arb(exponent) if x > 0 else arb("nan"), special)(array)


NUMPY = Library(
    np.exp, np.log, np.log1p, np.sin, np.cos, np.tan, np.tanh, np.sinh, np.cosh, np.arctan, np.power
)  # fmt: skip

ARB = Library(
    exp=exponential(_each(_bounded(lambda x: x.exp(), 800.0), _by(np.exp))),
    log=_each(lambda x: x.log() if x > 0 else arb("nan"), _by(np.log)),
    log1p=_each(lambda x: x.log1p() if x > -1 else arb("nan"), _by(np.log1p)),
    sin=sine(_each(lambda x: x.sin(), _by(np.sin))),
    cos=cosine(_each(lambda x: x.cos(), _by(np.cos))),
    tan=_each(lambda x: x.tan(), _by(np.tan)),
    tanh=_each(lambda x: x.tanh(), _by(np.tanh)),
    sinh=_each(_bounded(lambda x: x.sinh(), 800.0), _by(np.sinh)),
    cosh=_each(_bounded(lambda x: x.cosh(), 800.0), _by(np.cosh)),
    arctan=_each(lambda x: x.atan(), _by(np.arctan)),
    power=_power,
)
