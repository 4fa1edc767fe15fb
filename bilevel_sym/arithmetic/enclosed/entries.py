"""Operations entry by entry on enclosures, each by the rule for balls of its record: no error of a library is assumed.

Proofs with these need smoothness: where a switch is not decided all over an entry, or a root touches its end, the entry
is unknown, and so is all that is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from flint import arb

from bilevel_sym.arithmetic.balls import SMOOTH, precision
from bilevel_sym.arithmetic.enclosed.midrad import MidRad

__all__ = [
    "ENTRY_BITS",
    "applied",
    "applied_to_balls",
    "arranged",
    "balls_of",
    "binary_exponent",
    "floats_of",
    "zeros_like",
]

ENTRY_BITS = 64  # for functions of float64 entries: what is lost beside the last bit of float64 is nothing


def applied(op: str, parameter: Sequence[int], arguments: Sequence[MidRad]) -> MidRad:
    """An operation of the graph on float64 enclosures of equal shapes, or of shapes that broadcast.

    >>> found = applied("exp", (), [MidRad(np.array([0.0, 1.0]), np.array([0.0, 0.5]))])
    >>> bool(found.mid[1] - found.rad[1] < 1.65 and found.mid[1] + found.rad[1] > 4.48)
    True
    """
    with precision(ENTRY_BITS):
        return floats_of(applied_to_balls(op, parameter, [balls_of(value) for value in arguments]))


def applied_to_balls(op: str, parameter: Sequence[int], arguments: Sequence[Any]) -> Any:
    """An operation of the graph on arrays of balls, at the precision that is set.

    >>> applied_to_balls("exp", (), [np.array([arb(0)], object)])[0] == 1
    True
    """
    rule = SMOOTH[op]
    if not arguments:
        return arranged([rule()], ())
    shape = np.broadcast_shapes(*(value.shape for value in arguments))
    columns = [np.broadcast_to(value, shape).ravel().tolist() for value in arguments]
    return arranged([rule(*entry, *parameter) for entry in zip(*columns, strict=True)], shape)


def balls_of(value: MidRad) -> Any:
    """The entries as balls.

    >>> balls_of(MidRad(np.array(2.0), np.array(0.5))).item()
    [2e+0 +/- 0.501]
    """
    middles = value.mid.ravel().tolist()
    if value.rad is None:
        return arranged([arb(middle) for middle in middles], value.shape)
    pairs = zip(middles, value.rad.ravel().tolist(), strict=True)
    return arranged([arb(middle, radius) for middle, radius in pairs], value.shape)


def floats_of(balls: Any) -> MidRad:
    """Float64 enclosures of balls; unknown where they are beyond float64.

    >>> third = floats_of(np.array(arb(1) / 3, object))
    >>> bool(abs(third.mid - 1 / 3) <= third.rad)
    True
    """
    pairs = [_pair(ball) for ball in balls.ravel().tolist()]
    mid, rad = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return MidRad(mid.reshape(balls.shape), rad.reshape(balls.shape))


def _pair(ball: Any) -> tuple[float, float]:
    middle = float(ball.mid()) if ball.is_finite() else np.inf
    if not np.isfinite(middle):
        return np.nan, np.inf
    # float rounds to nearest: one part in 2^50 more is above
    return middle, float((ball - arb(middle)).abs_upper()) * (1 + 2.0**-50) + 2.0**-1022


def arranged(entries: Sequence[Any], shape: tuple[int, ...] | None = None) -> Any:
    """Balls as an array of a shape, or as a vector.

    >>> arranged([arb(1), arb(2)]).shape
    (2,)
    """
    result = np.empty(len(entries), object)
    result[:] = entries
    return result if shape is None else result.reshape(shape)


def zeros_like(array: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of the kind that the entries of an array are, balls or float64, in another shape.

    >>> zeros_like(arranged([arb(1)]), (2,)).tolist(), zeros_like(np.ones(1), (2,)).tolist()
    ([0, 0], [0.0, 0.0])
    """
    return np.full(shape, arb(0), object) if array.dtype == object else np.zeros(shape)


def binary_exponent(value: Any) -> int:
    """A positive number, as an exact ball, is below 2 to this power, and not below half of that.

    >>> binary_exponent(arb(3)), binary_exponent(arb(4))
    (2, 3)
    """
    man, exp = value.man_exp()
    return int(man.bit_length()) + int(exp)
