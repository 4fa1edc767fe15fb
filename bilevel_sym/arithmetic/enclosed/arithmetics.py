"""The two arithmetics of enclosed arrays, with one set of operations: what steps of a plan are made of (``steps``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Protocol, TypeVar

import numpy as np
from flint import arb, arb_mat, fmpq

from bilevel_sym.arithmetic.enclosed import midrad
from bilevel_sym.arithmetic.enclosed.entries import applied, applied_to_balls, arranged
from bilevel_sym.arithmetic.enclosed.midrad import MidRad
from bilevel_sym.arithmetic.enclosed.slices import Slices
from bilevel_sym.typing import Floats

__all__ = ["BallArrays", "Enclosing", "FloatArrays"]

V = TypeVar("V")
Move = Callable[[Any], Any]
KEPT = 32  # arrays whose slices are kept


class Enclosing(Protocol[V]):
    """Arrays of one kind of enclosure; every result holds what the operation makes of any numbers in the arguments."""

    def data(self, array: Floats) -> V:
        """Float64 numbers, exactly."""

    def number(self, value: Fraction) -> V:
        """A rational number, without axes."""

    def moved(self, value: V, move: Move) -> V:
        """Entries in other places: ``move`` takes and returns a NumPy array of any kind, and fills with its zero."""

    def middles(self, value: V) -> Floats:
        """Some float64 near each entry."""

    def added(self, one: V, two: V) -> V:
        """The sum, entry by entry; shapes broadcast."""

    def multiplied(self, one: V, two: V) -> V:
        """The product, entry by entry; shapes broadcast."""

    def summed(self, value: V, axes: Sequence[int]) -> V:
        """The sum over some axes."""

    def product(self, one: V, two: V) -> V:
        """The product of stacks of matrices: three axes each."""

    def applied(self, op: str, parameter: Sequence[int], arguments: Sequence[V]) -> V:
        """An operation of the graph, entry by entry."""


class FloatArrays:
    """Float64 with a radius.

    >>> FloatArrays().number(Fraction(1, 2)).mid.item()
    0.5
    """

    def data(self, array: Floats) -> MidRad:
        """Float64 numbers, exactly."""
        return midrad.exact(array)

    def number(self, value: Fraction) -> MidRad:
        """A rational number, without axes."""
        return midrad.rational(value)

    def moved(self, value: MidRad, move: Move) -> MidRad:
        """Entries in other places."""
        return value.moved(move)

    def middles(self, value: MidRad) -> Floats:
        """Some float64 near each entry."""
        return value.mid

    def added(self, one: MidRad, two: MidRad) -> MidRad:
        """The sum, entry by entry."""
        return one + two

    def multiplied(self, one: MidRad, two: MidRad) -> MidRad:
        """The product, entry by entry."""
        return one * two

    def summed(self, value: MidRad, axes: Sequence[int]) -> MidRad:
        """The sum over some axes."""
        return value.total(axes)

    def product(self, one: MidRad, two: MidRad) -> MidRad:
        """The product of stacks of matrices."""
        return midrad.product(one, two)

    def applied(self, op: str, parameter: Sequence[int], arguments: Sequence[MidRad]) -> MidRad:
        """An operation of the graph, entry by entry."""
        return applied(op, parameter, arguments)


class BallArrays:
    """NumPy arrays of balls, at the precision that is set; arrays of float64 among them stand for exact numbers.

    Products with an array of float64 go by slices, which are kept for each such array.

    >>> BallArrays().number(Fraction(1, 2)).item()
    0.500000000000000
    """

    def __init__(self) -> None:
        self._slices: dict[tuple[object, ...], Slices] = {}

    def data(self, array: Floats) -> Any:
        """Float64 numbers, exactly."""
        return array

    def number(self, value: Fraction) -> Any:
        """A rational number, without axes."""
        return arranged([arb(fmpq(value.numerator, value.denominator))], ())

    def moved(self, value: Any, move: Move) -> Any:
        """Entries in other places."""
        return move(value)

    def middles(self, value: Any) -> Floats:
        """Some float64 near each entry."""
        return value if value.dtype != object else np.array(_floats(value)).reshape(value.shape)

    def added(self, one: Any, two: Any) -> Any:
        """The sum, entry by entry."""
        return np.asarray(_balls(one) + _balls(two), object)

    def multiplied(self, one: Any, two: Any) -> Any:
        """The product, entry by entry."""
        return np.asarray(_balls(one) * _balls(two), object)

    def summed(self, value: Any, axes: Sequence[int]) -> Any:
        """The sum over some axes."""
        return np.asarray(np.add.reduce(_balls(value), axis=tuple(axes)), object)

    def applied(self, op: str, parameter: Sequence[int], arguments: Sequence[Any]) -> Any:
        """An operation of the graph, entry by entry."""
        return applied_to_balls(op, parameter, [_balls(value) for value in arguments])

    def product(self, one: Any, two: Any) -> Any:
        """The product of stacks of matrices."""
        count = max(one.shape[0], two.shape[0])
        pairs = [(one[min(k, len(one) - 1)], two[min(k, len(two) - 1)]) for k in range(count)]
        result = np.empty((count, one.shape[1], two.shape[2]), object)
        for k, pair in enumerate(pairs):
            result[k] = self._product(*pair)
        return result

    def _product(self, one: Any, two: Any) -> Any:
        if one.dtype != object:
            return self._sliced(one).times(_balls(two))
        if two.dtype != object:
            return self._sliced(two.T).times(one.T).T
        return arranged((_matrix(one) * _matrix(two)).entries(), (one.shape[0], two.shape[1]))

    def _sliced(self, matrix: Floats) -> Slices:
        """By where the entries stand: what is kept here holds its array, so that no other can come to stand there."""
        key = (matrix.__array_interface__["data"][0], matrix.shape, matrix.strides)
        found = self._slices.get(key) or Slices(matrix)
        if len(self._slices) < KEPT:
            self._slices[key] = found
        return found


def _matrix(balls: Any) -> arb_mat:
    return arb_mat(balls.shape[0], balls.shape[1], balls.ravel().tolist())


def _balls(value: Any) -> Any:
    if value.dtype == object:
        return value
    return arranged([arb(entry) for entry in value.ravel().tolist()], value.shape)


def _floats(value: Any) -> list[float]:
    return [float(ball.mid()) for ball in value.ravel().tolist()]
