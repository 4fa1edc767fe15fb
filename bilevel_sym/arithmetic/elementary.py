"""Elementary functions of float64 arrays, by two libraries: NumPy's, which is fast, and Arb's, which is proved.

The intervals pad each value for an error of 8 ulp. That NumPy keeps to it is an assumption; that the numbers from Arb
do is a theorem: they come from balls of 80 bits, narrower than an ulp, rounded once.

exp, sin and cos have a proof of a few ulp from IEEE 754's four operations and a table of Arb's. An argument is
x = j/64 + t with a whole j and |t| <= 1/128: both are exact, for t is a multiple of the last place of x and fits into
53 bits. The functions at j/64 come from Arb, rounded once, and those at t are short Taylor polynomials:
exp(x) = E + E p with |p| < 1/127 errs by less than 2 ulp, sin(x) = S cos(t) + C sin(t) by less than 4 where it is
above 1/50 or j is 0. Where a sine is smaller, terms of unlike sign may cancel, and Arb is asked for the value itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
from flint import arb

from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.graph.operations.record import Operation
from bilevel_sym.typing import Bools, Floats

Function = Callable[..., Any]
Library = Mapping[str, Function]
"""What the intervals take from a library, by name; ``power`` has a real exponent."""

BEYOND = 800.0  # of an exponent: float64 has left its range, or underflowed, long before
TABLE_BITS = 80
GRID = 64.0
FARTHEST_EXP, FARTHEST_WAVE = 700.0, 1e5  # beyond, exp leaves float64; waves are not located so far out
TABLED_FROM = 0.02  # smaller sines and cosines lose digits by cancellation


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


def _exponential(fallback: Function) -> Function:
    """exp; where |x| is large, infinite or nan, the fallback's."""

    def apply(array: Any) -> Any:
        x, near, j, t = _split(array, FARTHEST_EXP)
        p = _horner(t, (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0)) * t
        (table,) = _look_up(j, _exp_at)
        return _with_fallback(table + table * p, x, ~near, fallback)

    return apply


def _wave(fallback: Function, *, turned: bool) -> Function:
    """sin, or turned cos; where |x| is large, infinite or nan, or the value is small, the fallback's."""

    def apply(array: Any) -> Any:
        x, near, j, t = _split(array, FARTHEST_WAVE)
        sines, cosines = _look_up(j, _waves_at)
        square = t * t
        sin_t = t + t * (square * _horner(square, (-1 / 5040, 1 / 120, -1 / 6)))
        cos_t = 1.0 + square * _horner(square, (-1 / 720, 1 / 24, -0.5))
        value = cosines * cos_t - sines * sin_t if turned else sines * cos_t + cosines * sin_t
        exact = near & ((np.abs(value) >= TABLED_FROM) | (False if turned else j == 0))
        return _with_fallback(value, x, ~exact, fallback)

    return apply


def _split(array: Any, farthest: float) -> tuple[Floats, Bools, Floats, Floats]:
    """x, where it is not too large, and there j and t with x = j/64 + t; zero elsewhere."""
    x = np.asarray(array, dtype=np.float64)
    near = np.abs(x) <= farthest
    safe = np.where(near, x, 0.0)
    j = np.rint(GRID * safe)
    return x, near, j, safe - j / GRID


def _horner(t: Floats, coefficients: tuple[float, ...]) -> Floats:
    value = np.full_like(t, coefficients[0])
    for c in coefficients[1:]:
        value *= t
        value += c
    return value


def _look_up(j: Floats, entry: Callable[[int], tuple[float, ...]]) -> Floats:
    """The table's columns at the places j."""
    if not j.size:
        return np.empty((len(entry(0)), *j.shape))
    numbers, back = np.unique(j, return_inverse=True)
    columns = np.array([entry(int(number)) for number in numbers.tolist()]).T
    return np.asarray(columns[:, back.reshape(j.shape)])


def _with_fallback(value: Floats, x: Floats, where: Bools, fallback: Function) -> Floats:
    if where.any():
        value[where] = fallback(x[where])
    return value


@lru_cache(2**15)
def _exp_at(j: int) -> tuple[float]:
    with precision(TABLE_BITS):
        return (float((arb(j) / int(GRID)).exp().mid()),)


@lru_cache(2**15)
def _waves_at(j: int) -> tuple[float, float]:
    with precision(TABLE_BITS):
        turn = arb(j) / int(GRID)
        return float(turn.sin().mid()), float(turn.cos().mid())


TABLED: Mapping[str, Callable[[Function], Function]] = MappingProxyType(
    {"exp": _exponential, "sin": partial(_wave, turned=False), "cos": partial(_wave, turned=True)}
)
_SIMPLE = [r for r in FUNCTIONS.values() if not r.composed]

NUMPY = library({**{r.name: r.rule("numpy") for r in _SIMPLE}, "log1p": np.log1p, "power": np.power})

ARB = library(
    {
        **{r.name: _proved(r) for r in _SIMPLE},
        "log1p": _each(lambda x: x.log1p() if x > -1 else arb("nan"), _by(np.log1p)),
        "power": _power,
    }
)
