"""Elementary functions of float64 arrays, by two libraries: NumPy's, which is fast, and Arb's, which is proved.

The intervals pad each value for an error of 8 ulp. That NumPy keeps to it is an assumption; that the numbers from Arb
do is a theorem: they come from balls of 80 bits, narrower than an ulp, rounded once (exp, sin and cos: see ``tabled``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
from flint import arb

from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.tabled import TABLE_BITS, cosine, exponential, sine
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.graph.operations.record import Operation

__all__ = ["ARB", "NUMPY", "Function", "Library", "library"]

Function = Callable[..., Any]
Library = Mapping[str, Function]
"""What the intervals take from a library, by name; ``power`` has a real exponent."""


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
        with precision(TABLE_BITS):
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


def _proved(record: Operation) -> Function:
    function = _each(
        _bounded(record.rule("ball"), BEYOND) if record.largest < BEYOND else record.rule("ball"),
        _by(record.rule("numpy")),
    )
    return TABLED[record.name](function) if record.name in TABLED else function


def library(functions: Mapping[str, Function]) -> Library:
    """A library with its composed functions, from the others.

    >>> sorted(set(library({"exp": np.exp, "log1p": np.log1p})) - {"exp", "log1p"})
    ['bell', 'sigmoid', 'softplus']
    """
    own = SimpleNamespace(**functions)
    composed = {r.name: partial(r.rule("numpy"), library=own) for r in FUNCTIONS.values() if r.composed}
    return MappingProxyType({**functions, **composed})


BEYOND = 800.0  # of an exponent: float64 has left its range, or underflowed, long before
TABLED = MappingProxyType({"exp": exponential, "sin": sine, "cos": cosine})
_SIMPLE = [r for r in FUNCTIONS.values() if not r.composed]

NUMPY = library({**{r.name: r.rule("numpy") for r in _SIMPLE}, "log1p": np.log1p, "power": np.power})

ARB = library(
    {
        **{r.name: _proved(r) for r in _SIMPLE},
        "log1p": _each(lambda x: x.log1p() if x > -1 else arb("nan"), _by(np.log1p)),
        "power": _power,
    }
)
