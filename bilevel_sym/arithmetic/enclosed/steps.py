"""Steps of a plan of contractions on enclosures, the same for both arithmetics (see ``arrays.execute`` for float64)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import prod
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np

from bilevel_sym.arithmetic.enclosed.arithmetics import Enclosing
from bilevel_sym.arithmetic.enclosed.entries import zeros_like
from bilevel_sym.arrays.plan import Step

__all__ = ["embedded", "perform"]

V = TypeVar("V", bound=Any)
Labels = tuple[int, ...]
MAX_SQUARED = 10_000  # entries whose squares are looked at one by one


def perform(kind: Enclosing[V], step: Step, values: Sequence[V]) -> V:
    """The value of a step.

    - ``kind``: the arithmetic.
    - ``step``: any but a leaf, and not sparse.
    - ``values``: of its arguments.

    >>> from bilevel_sym.arithmetic.enclosed.arithmetics import FloatArrays
    >>> total = perform(FloatArrays(), Step("sum", (0,), (-1,), (), 0), [FloatArrays().data(np.array([1.0, 2.0]))])
    >>> total.mid.item()
    3.0
    """
    found: V = _RULES[step.kind](kind, step, values)
    return found


def _fill(kind: Enclosing[V], step: Step, values: Sequence[V]) -> V:
    (number,) = step.parameter
    return _spread(kind, kind.number(_fraction(number)), step.shape)


def _fraction(number: Any) -> Fraction:
    return number if isinstance(number, Fraction) else Fraction(number)


def _spread(kind: Enclosing[V], value: V, shape: tuple[int, ...]) -> V:
    return kind.moved(value, lambda array: np.broadcast_to(array, shape))


def _apply(kind: Enclosing[V], step: Step, values: Sequence[V]) -> V:
    op, parameter = cast("tuple[str, tuple[int, ...]]", step.parameter)
    return _spread(kind, kind.applied(op, parameter, values), step.shape)


def _logsumexp(kind: Enclosing[V], step: Step, values: Sequence[V]) -> V:
    """t + log(sum of exp(z - t)), true for any t: the largest middle, so that no exponential is large."""
    (rank,) = cast("tuple[int]", step.parameter)
    middles = [kind.middles(value) for value in values]
    axes = [tuple(range(rank, middle.ndim)) for middle in middles]
    tops = [middle.max(axis=own) for middle, own in zip(middles, axes, strict=True)]
    top = np.maximum.reduce([np.broadcast_to(own, step.shape) for own in tops])
    top = np.where(np.isfinite(top), top, 0.0)
    total: V | None = None
    for value, own in zip(values, axes, strict=True):
        shift = kind.data(-top[(..., *(None,) * len(own))])
        part = kind.applied("exp", (), [kind.added(value, shift)])
        part = kind.summed(part, own) if own else part
        total = part if total is None else kind.added(total, part)
    return kind.added(kind.applied("log", (), [total]), kind.data(top))  # type: ignore[list-item]


def _transpose(kind: Enclosing[V], step: Step, values: Sequence[V]) -> V:
    order = cast("Labels", step.parameter)
    return kind.moved(values[0], lambda array: array.transpose(order))


def _placed(kind: Enclosing[V], value: V, places: Sequence[int], rank: int) -> V:
    """With ``rank`` axes, those of the value at ``places``, and of length one elsewhere."""
    order = sorted(range(len(places)), key=places.__getitem__)
    index = (..., *(slice(None) if k in places else None for k in range(rank)))  # the dots keep arrays without axes
    return kind.moved(value, lambda array: array.transpose(order)[index])


def _multiply(kind: Enclosing[V], step: Step, values: Sequence[V]) -> V:
    both = cast("tuple[Labels, Labels]", step.parameter)
    placed = [_placed(kind, value, places, len(step.shape)) for value, places in zip(values, both, strict=True)]
    if step.args[0] == step.args[1] and both[0] == both[1] and step.entries <= MAX_SQUARED:  # a square is not negative
        return _spread(kind, kind.applied("ipow", (2,), placed[:1]), step.shape)
    return _spread(kind, kind.multiplied(*placed), step.shape)


def _sum(kind: Enclosing[V], step: Step, values: Sequence[V]) -> V:
    return kind.summed(values[0], cast("Labels", step.parameter))


def _diagonal(kind: Enclosing[V], step: Step, values: Sequence[V]) -> V:
    (labels,) = cast("tuple[Labels]", step.parameter)
    out = list(dict.fromkeys(labels))
    grid = dict(zip(out, np.ix_(*map(range, step.shape)), strict=True))
    return kind.moved(values[0], lambda array: array[tuple(grid[label] for label in labels)])


def _combine(kind: Enclosing[V], step: Step, values: Sequence[V]) -> V:
    rows, constant = cast("tuple[tuple[tuple[Any, Labels, Any], ...], Any]", step.parameter)
    total: V | None = kind.number(_fraction(constant)) if constant or not rows else None
    for (number, places, deltas), value in zip(rows, values, strict=True):
        part = value if number == 1 else kind.multiplied(kind.number(_fraction(number)), value)
        part = _part(kind, part, places, deltas, step.shape)
        total = part if total is None else kind.added(total, part)
    return _spread(kind, cast("V", total), step.shape)


def _part(kind: Enclosing[V], value: V, places: Labels, deltas: Any, shape: tuple[int, ...]) -> V:
    """A summand in its place: over all axes, or, with deltas, zero but where they are one.

    kind: the arithmetic
    value: the summand
    places: the axes of the whole that its axes are
    deltas: pairs of axes that are equal where it counts
    shape: of the whole
    """
    if not deltas:
        return _placed(kind, value, places, len(shape))
    gone = {j for _, j in deltas}
    kept = [i for i in range(len(shape)) if i not in gone]
    return embedded(kind, _placed(kind, value, [kept.index(i) for i in places], len(kept)), deltas, shape)


def embedded(kind: Enclosing[V], value: V, deltas: Sequence[tuple[int, int]], shape: tuple[int, ...]) -> V:
    """An array that is the value where the second index of each delta equals its first, and zero elsewhere.

    - ``kind``: the arithmetic.
    - ``value``: over the axes that are no second index.
    - ``deltas``: pairs of axes.
    - ``shape``: of the result.

    >>> from bilevel_sym.arithmetic.enclosed.arithmetics import FloatArrays
    >>> floats = FloatArrays()
    >>> embedded(floats, floats.data(np.array([1.0, 2.0])), [(0, 1)], (2, 2)).mid.tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    if not deltas:
        return _spread(kind, value, shape)
    first = {j: i for i, j in deltas}
    kept = [k for k in range(len(shape)) if k not in first]
    own = tuple(shape[k] for k in kept)
    grid = dict(zip(kept, np.ix_(*map(range, own)), strict=True))
    index = tuple(grid[first.get(k, k)] for k in range(len(shape)))

    def move(array: Any) -> Any:
        result = zeros_like(array, shape)
        result[index] = np.broadcast_to(array, own)
        return result

    return kind.moved(value, move)


def _contract(kind: Enclosing[V], step: Step, values: Sequence[V]) -> V:
    one, two, out = cast("tuple[Labels, Labels, Labels]", step.parameter)
    summed = [k for k in one if k in two and k not in out]
    both = [k for k in out if k in one and k in two]
    left, right = ([k for k in own if k not in other] for own, other in ((one, two), (two, one)))
    a = _stacked(kind, values[0], one, (both, left, summed))
    b = _stacked(kind, values[1], two, (both, summed, right))
    return kind.moved(kind.product(a, b), lambda array: array.reshape(step.shape))


def _stacked(kind: Enclosing[V], value: V, labels: Labels, groups: tuple[list[int], ...]) -> V:
    """With three axes, one for each group of labels."""
    order = [labels.index(k) for group in groups for k in group]

    def move(array: Any) -> Any:
        turned, ends = array.transpose(order), np.cumsum([0, *map(len, groups)]).tolist()
        sizes = [prod(turned.shape[low:high]) for low, high in pairwise(ends)]
        return turned.reshape(sizes)

    return kind.moved(value, move)


def _gram(kind: Enclosing[V], step: Step, values: Sequence[V]) -> V:
    """M^T diag(w) M, or M diag(w) M^T."""
    (axis,) = step.parameter
    matrix, *weights = values
    rows = kind.moved(matrix, lambda array: (array if axis == 0 else array.T)[None])
    scaled = rows
    for weight in weights:
        scaled = kind.multiplied(scaled, kind.moved(weight, lambda array: array[None, :, None]))
    found = kind.product(kind.moved(scaled, lambda array: array.transpose(0, 2, 1)), rows)
    return kind.moved(found, lambda array: array[0])


_RULES: MappingProxyType[str, Callable[..., Any]] = MappingProxyType(
    {
        "fill": _fill, "apply": _apply, "logsumexp": _logsumexp, "transpose": _transpose, "multiply": _multiply,
        "contract": _contract, "gram": _gram, "sum": _sum, "diagonal": _diagonal, "combine": _combine,
    }
)  # fmt: skip
