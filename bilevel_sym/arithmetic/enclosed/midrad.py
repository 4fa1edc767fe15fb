"""Arrays of float64 with a bound on their error: the truth lies within ``rad`` of ``mid``, entry by entry.

Every operation is made of NumPy's, which round to nearest, in whatever order BLAS sums and with or without fused
operations; no rounding mode is changed. With u = 2^-53, a product of n terms errs by at most n u |x|^T |y| (Jeannerod
and Rump 2013), and by one smallest number for each product that underflows. A radius is computed in float64 too, from
numbers that are not negative, and then made larger than the rounding errors of its own computation (``upward``).

What is not known is nan, in the middle or in the radius, and stays so: nothing follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from bilevel_sym.typing import Floats

__all__ = ["ROUND_OFF", "TINY", "MidRad", "exact", "product", "rational", "rounds_to_nearest", "upward"]

ROUND_OFF = 2.0**-53
TINY = 2.0**-1022  # more than what a product loses by underflow, even where it is flushed to zero
STEP = 2.0**-52


def upward(value: Floats, roundings: int) -> Floats:
    """A bound on what was meant, from products of numbers that are not negative, and sums of these.

    - ``value``: as float64 computed it.
    - ``roundings``: at least 4 more than operations lie on the way of any number to its result; with as many products
      at most that may have lost a smallest number each.

    The exact value is at most value (1 - u)^-k + k TINY for k operations, and (1 - u)^-k <= 1 + 2 k u for k u <= 1/4;
    the 4 are for the product and the sum that are made here.

    >>> bool(upward(np.float64(0.1), 5) > 0.1)
    True
    """
    return np.asarray(value * (1.0 + roundings * STEP) + roundings * TINY)


@dataclass(frozen=True, eq=False)
class MidRad:
    """An array with a bound on the error of each entry.

    - ``mid``: float64.
    - ``rad``: float64, not negative, of the same shape; None where the array is exact.

    >>> third = rational(Fraction(1, 3))
    >>> total = third + third
    >>> bool(abs(total.mid - 2 / 3) <= total.rad), total.contains(Fraction(2, 3))
    (True, True)
    """

    mid: Floats
    rad: Floats | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.mid.shape

    @property
    def is_finite(self) -> bool:
        """Whether every entry is known."""
        return bool(np.isfinite(self.mid).all() and (self.rad is None or np.isfinite(self.rad).all()))

    @property
    def radius(self) -> Floats:
        """The radius, zero where the array is exact."""
        return np.zeros(self.shape) if self.rad is None else self.rad

    def magnitude(self) -> Floats:
        """The largest that each entry may be, without its sign."""
        return np.abs(self.mid) if self.rad is None else upward(np.abs(self.mid) + self.rad, 5)

    def contains(self, value: Fraction, place: tuple[int, ...] = ()) -> bool:
        """Whether an entry may be a rational number; decided exactly."""
        mid, rad = float(self.mid[place]), float(self.radius[place])
        if not (math.isfinite(mid) and math.isfinite(rad)):
            return True
        return abs(value - Fraction(mid)) <= Fraction(rad)

    def moved(self, move: Callable[[Any], Any]) -> MidRad:
        """The same entries in other places."""
        return MidRad(move(self.mid), None if self.rad is None else move(self.rad))

    def __neg__(self) -> MidRad:
        return MidRad(-self.mid, self.rad)

    def __add__(self, other: MidRad) -> MidRad:
        mid = np.asarray(self.mid + other.mid)
        rad = ROUND_OFF * np.abs(mid)
        for part in (self.rad, other.rad):
            rad = rad if part is None else rad + part
        return MidRad(mid, upward(rad, 7))

    def __sub__(self, other: MidRad) -> MidRad:
        return self + -other

    def __mul__(self, other: MidRad) -> MidRad:
        mid = np.asarray(self.mid * other.mid)
        rad = ROUND_OFF * np.abs(mid)
        if other.rad is not None:
            rad = rad + np.abs(self.mid) * other.rad
        if self.rad is not None:
            rad = rad + self.rad * (np.abs(other.mid) if other.rad is None else np.abs(other.mid) + other.rad)
        return MidRad(mid, upward(rad, 10))

    def total(self, axes: Sequence[int]) -> MidRad:
        """The sum over some axes."""
        own = tuple(axes)
        count = math.prod(self.shape[axis] for axis in own)
        mid = np.add.reduce(self.mid, axis=own)
        rad = (count * ROUND_OFF) * np.add.reduce(np.abs(self.mid), axis=own)
        if self.rad is not None:
            rad = rad + np.add.reduce(self.rad, axis=own)
        return MidRad(np.asarray(mid), upward(rad, count + 8))


def exact(array: Any) -> MidRad:
    """Numbers that float64 has, as they are.

    >>> exact([1.0, 0.5]).rad is None
    True
    """
    return MidRad(np.asarray(array, dtype=np.float64))


def rational(value: Fraction) -> MidRad:
    """A rational number; exact where float64 has it, unknown where it is beyond.

    >>> rational(Fraction(1, 4)).rad is None, bool(rational(Fraction(1, 10)).rad > 0)
    (True, True)
    """
    try:
        nearest = float(value)  # rounded once
    except OverflowError:
        return MidRad(np.array(np.nan), np.array(np.inf))
    if Fraction(nearest) == value:
        return exact(nearest)
    return MidRad(np.array(nearest), upward(np.array(ROUND_OFF * abs(nearest)), 5))


def product(one: MidRad, two: MidRad) -> MidRad:
    """The product of matrices, or of stacks of them.

    >>> found = product(exact([[1.0, 2.0]]), exact([[3.0], [4.0]]))
    >>> found.mid.item(), bool(found.rad.item() < 1e-13)
    (11.0, True)
    """
    length = one.shape[-1]
    shape = (*np.broadcast_shapes(one.shape[:-2], two.shape[:-2]), one.shape[-2], two.shape[-1])
    if not (one.is_finite and two.is_finite):  # a product may skip zeros, and what they are multiplied by
        return MidRad(np.full(shape, np.nan), np.full(shape, np.inf))
    mid = np.matmul(one.mid, two.mid)
    return MidRad(mid, _radius(one, two, (length + 2) * ROUND_OFF, length))


def _radius(one: MidRad, two: MidRad, rounding: float, length: int) -> Floats:
    """|a| (r_b + e |b|) + r_a (|b| + r_b), where e |a| |b| bounds the rounding errors of the middle."""
    a, b = np.abs(one.mid), np.abs(two.mid)
    if two.rad is None and one.rad is not None:  # one product instead of two
        return upward(np.matmul(upward(one.rad + rounding * a, 6), b), length + 5)
    inner = rounding * b if two.rad is None else two.rad + rounding * b
    rad = np.matmul(a, upward(inner, 6))
    if one.rad is not None:
        rad = rad + np.matmul(one.rad, two.magnitude())
    return upward(rad, 2 * length + 6)


def rounds_to_nearest() -> bool:
    """Whether float64 rounds to nearest and keeps subnormal numbers, as everything here takes for granted.

    >>> rounds_to_nearest()
    True
    """
    one, half = np.array([1.0, -1.0]), np.array([ROUND_OFF, -ROUND_OFF])
    down = bool((one + half == one).all() and (one + 1.5 * half != one).all() and (one - 0.75 * half != one).all())
    return down and bool((np.array([TINY]) * 0.5 * 2.0 == TINY).all())
