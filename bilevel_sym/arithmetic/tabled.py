"""exp, sin and cos of float64 arrays with a proof of a few ulp, from IEEE 754's four operations and a table of Arb's.

An argument is x = j/64 + t with a whole j and |t| <= 1/128: both are exact, for t is a multiple of the last place of x
and fits into 53 bits. The functions at j/64 come from Arb, rounded once, and those at t are short Taylor polynomials:
exp(x) = E + E p with |p| < 1/127 errs by less than 2 ulp, sin(x) = S cos(t) + C sin(t) by less than 4 where it is
above 1/50 or j is 0. Where a sine is smaller, terms of unlike sign may cancel, and Arb is asked for the value itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from flint import arb

from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.typing import Bools, Floats

__all__ = ["cosine", "exponential", "sine"]

TABLE_BITS = 80
GRID = 64.0
FARTHEST_EXP, FARTHEST_WAVE = 700.0, 1e5  # beyond, exp leaves float64; waves are not located so far out
TABLED_FROM = 0.02  # smaller sines and cosines lose digits by cancellation
Function = Callable[[Any], Any]


def exponential(fallback: Function) -> Function:
    """exp; where |x| is large, infinite or nan, the fallback's.

    >>> bool(exponential(np.exp)(np.array([1.0]))[0] == np.exp(1.0))
    True
    """

    def apply(array: Any) -> Any:
        x, near, j, t = _split(array, FARTHEST_EXP)
        p = _horner(t, (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0)) * t
        (table,) = _look_up(j, _exp_at)
        return _with_fallback(table + table * p, x, ~near, fallback)

    return apply


def sine(fallback: Function) -> Function:
    """sin; where |x| is large, infinite or nan, or the sine is small, the fallback's.

    >>> bool(sine(np.sin)(np.array([1.0]))[0] == np.sin(1.0))
    True
    """
    return _wave(fallback, turned=False)


def cosine(fallback: Function) -> Function:
    """cos, as for ``sine``.

    >>> float(cosine(np.cos)(np.array([0.0]))[0])
    1.0
    """
    return _wave(fallback, turned=True)


def _wave(fallback: Function, *, turned: bool) -> Function:
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
