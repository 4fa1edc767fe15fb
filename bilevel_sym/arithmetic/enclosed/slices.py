"""Exact products of float64 matrices with matrices of balls, at the speed of BLAS.

A matrix is cut into slices of a few bits, each a matrix of whole numbers: so few that every sum of products of two
slices stays below 2^53, where float64 has every whole number. Such sums have no rounding errors, in whatever order they
are made (Ozaki, Ogita, Oishi and Rump 2012). The slices' products are put together as whole numbers of any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import flint
import numpy as np
from flint import arb, fmpz

from bilevel_sym.arithmetic.enclosed.entries import binary_exponent
from bilevel_sym.arithmetic.enclosed.midrad import upward
from bilevel_sym.typing import Floats

MANTISSA = 53
TOP = 1000  # rows are scaled so that their entries are below 2**TOP: far from both ends of float64
GUARD = 8  # bits beyond the working precision
ZERO, NAN = arb(0), arb("nan")


class Slices:
    """A float64 matrix, ready for products with balls.

    - ``matrix``: rows by columns; finite.

    >>> ball = Slices(np.array([[0.5, 3.0]])).times(np.array([[arb(2)], [arb(1) / 3]], object))[0, 0]
    >>> bool(ball.contains(2)), bool(ball.rad() < 1e-14)
    (True, True)
    """

    def __init__(self, matrix: Floats) -> None:
        self.matrix = matrix
        self.bits = (MANTISSA - max(1, matrix.shape[1] - 1).bit_length()) // 2

    @cached_property
    def exponents(self) -> Any:
        """For each row: its entries are below 2 to this power."""
        largest = np.abs(self.matrix).max(axis=1, initial=0.0)
        return np.frexp(largest)[1].astype(np.intc)

    @cached_property
    def slices(self) -> list[Floats] | None:
        """Whole numbers a_t with row = 2^exponent sum of a_t 2^(-(t + 1) bits); None where float64 cannot scale it."""
        rest = np.ldexp(self.matrix, (TOP - self.exponents)[:, None])
        back = np.ldexp(rest, (self.exponents - TOP)[:, None])
        if not np.isfinite(rest).all() or not np.array_equal(back, self.matrix):
            return None
        found: list[Floats] = []
        while not found or rest.any():
            shift = (len(found) + 1) * self.bits - TOP
            whole = np.trunc(_scaled(rest, shift))
            rest = rest - _scaled(whole, -shift)
            found.append(whole)
        return found

    @cached_property
    def _sizes(self) -> Floats:
        return np.abs(self.matrix)

    def times(self, balls: Any) -> Any:
        """The product with a matrix of balls, at the precision that is set."""
        rows, columns = self.matrix.shape[0], balls.shape[1]
        if self.slices is None or not all(ball.is_finite() for ball in balls.ravel().tolist()):
            return np.full((rows, columns), NAN, object)
        radii = self._radii(balls)
        result = np.empty((rows, columns), object)
        for j in range(columns):
            result[:, j] = self._column(balls[:, j].tolist(), radii[j])
        return result

    def _column(self, balls: Sequence[Any], radii: Sequence[Any]) -> list[Any]:
        count = -(-(flint.ctx.prec + GUARD + len(balls).bit_length()) // self.bits)
        parts, top = _cut([ball.mid().man_exp() for ball in balls], count, self.bits)
        assert self.slices is not None
        sums = _diagonals([np.matmul(own, parts) for own in self.slices])
        below = _power(-(len(sums) + 1) * self.bits)
        lost = arb(0, len(balls)) * _power(-count * self.bits)  # a unit of the last slice for each entry, at most
        scales = {e: _power(e + top) for e in set(self.exponents.tolist())}
        units = {e: below * scale for e, scale in scales.items()}
        errors = {e: lost * scale for e, scale in scales.items()}
        rows = zip(_joined(sums, self.bits), self.exponents.tolist(), radii, strict=True)
        return [arb(fmpz(value)) * units[e] + (errors[e] + radius) for value, e, radius in rows]

    def _radii(self, balls: Any) -> list[list[Any]]:
        """What the radii of the balls come to, for each column and row: balls around zero of radius |A| rad."""
        found = []
        for column in balls.T:
            radii = [ball.rad() for ball in column.tolist()]
            top = max((binary_exponent(rad) for rad in radii if rad != 0), default=None)
            if top is None:
                found.append([ZERO] * len(self.matrix))
                continue
            scale = _power(-top)
            near = np.array([[float((rad * scale).upper()) * (1 + 2.0**-50) + 2.0**-1000] for rad in radii])
            bound = upward(np.matmul(self._sizes, near), len(radii) + 5)[:, 0]
            back = _power(top)
            found.append([arb(0, value) * back for value in bound.tolist()])
        return found


def _scaled(array: Floats, exponent: int) -> Floats:
    """The array times a power of two, exactly but for what underflows."""
    return array * 2.0**exponent if abs(exponent) < TOP else np.ldexp(array, exponent)


def _power(exponent: int) -> Any:
    return arb(2) ** int(exponent)


def _cut(numbers: Sequence[tuple[Any, Any]], count: int, bits: int) -> tuple[Floats, int]:
    """Slices of binary numbers man 2^exp, a column each, and the exponent that all are below; the rest is dropped."""
    pairs = [(int(man), int(exp)) for man, exp in numbers]
    top = max((abs(man).bit_length() + exp for man, exp in pairs if man), default=0)
    table, mask = np.zeros((len(pairs), count)), (1 << bits) - 1
    for row, (man, exp) in zip(table, pairs, strict=True):
        if not man:
            continue
        shift = exp - top + count * bits
        value = abs(man) << shift if shift >= 0 else abs(man) >> -shift
        chunks = [(value >> (bits * (count - 1 - s))) & mask for s in range(count)]
        row[:] = chunks if man > 0 else [-chunk for chunk in chunks]
    return table, top


def _diagonals(products: Sequence[Floats]) -> list[Any]:
    """Sums of products of the t-th slice with the s-th over t + s, as int64: exact, for there are few."""
    rows, count = products[0].shape
    sums = np.zeros((len(products) + count - 1, rows), dtype=np.int64)
    for t, own in enumerate(products):
        sums[t : t + count] += own.T.astype(np.int64)
    return list(sums)


def _joined(sums: Sequence[Any], bits: int) -> list[int]:
    """The whole numbers sum of sums[r] 2^(bits (last - r))."""
    whole: list[int] = sums[0].tolist()
    for part in sums[1:]:
        whole = [(value << bits) + more for value, more in zip(whole, part.tolist(), strict=True)]
    return whole
