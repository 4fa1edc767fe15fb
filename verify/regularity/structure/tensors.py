"""Values of array formulas in balls entry by entry, rounded outward: middles and radii of float64.

A product of arrays is contracted once with the middles and once with the magnitudes; the second bounds what rounding
can do to the first, in any order of summation. Functions entry by entry are those of the proved interval arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from bilevel_sym.arithmetic.intervals import PROVED, Pair, enclose
from bilevel_sym.arrays.order import Product, Tree, places_in
from bilevel_sym.arrays.tensor import GROUP, Apply, Delta, Head, Leaf, LogSumExp, Tensor, Term
from bilevel_sym.errors import InvalidProblem, TooLarge
from bilevel_sym.typing import FLOAT64_TINY, Floats
from verify.enclosures.interval_matrix import PADDING

__all__ = ["MAX_NUMBERS", "Balls", "Evaluation", "between", "exact"]

MAX_NUMBERS = 2 * 10**7  # of one array that is formed
MAX_PLANS = 10_000  # of contractions that are kept
LARGE = 10**6  # products of sizes from which a contraction is worth a matrix product
_SUM = 1.2e-16  # a little more than one, for each of many


@dataclass(frozen=True, eq=False)
class Balls:
    """An array of numbers, each known to lie within ``radius`` of ``middle``.

    >>> balls = between((np.array([1.0]), np.array([3.0])))
    >>> balls.ends[0].item() <= 1.0, balls.magnitude.item() >= 3.0
    (True, True)
    """

    middle: Floats
    radius: Floats

    @property
    def ends(self) -> Pair:
        """Lower and upper ends; one number twice where it is known exactly."""
        pad = np.where(self.radius > 0, self.radius * (1 + PADDING) + PADDING * np.abs(self.middle) + FLOAT64_TINY, 0.0)
        return np.asarray(self.middle - pad), np.asarray(self.middle + pad)

    @property
    def magnitude(self) -> Floats:
        """The largest absolute values."""
        return np.asarray((np.abs(self.middle) + self.radius) * (1 + PADDING))


def exact(values: Any) -> Balls:
    """These numbers and no others.

    >>> float(exact([2.0]).radius[0])
    0.0
    """
    middle = np.asarray(values, dtype=np.float64)
    return Balls(middle, np.zeros_like(middle))


def between(ends: Pair) -> Balls:
    """From lower and upper ends.

    >>> float(between((np.array(1.0), np.array(3.0))).middle)
    2.0
    """
    lower, upper = (np.asarray(end, dtype=np.float64) for end in ends)
    middle = 0.5 * lower + 0.5 * upper
    radius = np.maximum(upper - middle, middle - lower) * (1 + PADDING)
    return Balls(middle, np.where(lower == upper, 0.0, radius + FLOAT64_TINY * (lower != upper)))


class Evaluation:
    """Values of formulas, from those of their leaves and from the sizes of dimensions.

    >>> A, y = Leaf("A", ("m", "n"), "data"), Leaf("y", ("n",), "y")
    >>> from bilevel_sym.arrays.algebra import contract
    >>> product = contract([(Tensor.leaf(A), "ij"), (Tensor.leaf(y), "j")], "i")
    >>> values = {"A": exact([[1.0, 2.0], [3.0, 4.0]]), "y": exact([1.0, 1.0])}
    >>> Evaluation(values, {"m": 2, "n": 2})(product).middle.tolist()
    [3.0, 7.0]
    """

    def __init__(self, values: Mapping[str, Balls], sizes: Mapping[str, int], *, rough: bool = False) -> None:
        self.values, self.sizes, self.rough = values, sizes, rough
        self._known: dict[str, Balls] = {}
        self._before: Evaluation | None = None  # which knows what does not depend on new leaves
        self._new: frozenset[str] = frozenset()

    def with_values(self, more: Mapping[str, Balls], *, rough: bool = False) -> Evaluation:
        """The same with further leaves, or others; what does not depend on them is not computed again.

        What is ``rough`` has no radii, for a search.
        """
        found = Evaluation({**self.values, **more}, self.sizes, rough=rough)
        found._before, found._new = self, frozenset(more)
        return found

    def __call__(self, formula: Tensor) -> Balls:
        """All entries of a formula."""
        shape = self.shape(formula.dims)
        parts = [self._term(formula, term) for term in formula.terms]
        if not parts:
            return exact(np.zeros(shape))
        total = parts[0]
        for part in parts[1:]:
            middle = total.middle + part.middle
            radius = total.radius + part.radius
            total = Balls(middle, radius + PADDING * (np.abs(middle) + radius) + FLOAT64_TINY)
        return total

    def shape(self, dims: Sequence[str]) -> tuple[int, ...]:
        """The sizes of some dimensions; TooLarge where an array of them would not fit."""
        shape = tuple(self.sizes[dim] if dim in self.sizes else int(dim) for dim in dims)
        if math.prod(shape) > MAX_NUMBERS:
            raise TooLarge(
                f"an array of {' x '.join(map(str, shape))} entries would be formed, and {MAX_NUMBERS:,} are allowed",
                hint="fewer rows or variables",
            )
        return shape

    def coefficient(self, term: Term) -> Fraction:
        """The number before a term, dimensions inserted."""
        sizes = (Fraction(self.shape((dim,))[0]) ** power for dim, power in term.sizes)
        return math.prod(sizes, start=term.coefficient)

    def _term(self, formula: Tensor, term: Term) -> Balls:
        every = (*formula.dims, *term.dummies)
        sizes = self.shape_of_each(every)
        number = self.coefficient(term)
        factors: list[tuple[Balls, tuple[int, ...]]] = [
            (between(_pair(enclose(number.numerator, number.denominator))), ())
        ]
        factors += [(self.head(factor.head), factor.indices) for factor in term.factors]
        used = {i for _, indices in factors for i in indices}
        factors += [(exact(np.ones(sizes[i])), (i,)) for i in range(len(every)) if i not in used]
        if self.rough:
            return exact(_einsum([(balls.middle, indices) for balls, indices in factors], range(formula.rank)))
        return contracted(factors, range(formula.rank), math.prod(sizes[formula.rank :]))

    def shape_of_each(self, dims: Sequence[str]) -> list[int]:
        """The size of each of some dimensions."""
        return [self.shape((dim,))[0] for dim in dims]

    def head(self, head: Head) -> Balls:
        """All entries of a head, over its own indices."""
        if self._before is not None and self._new.isdisjoint(leaf.name for leaf in head.leaves):
            return self._before.head(head)
        if head.key not in self._known:
            self._known[head.key] = self._new_head(head)
        return self._known[head.key]

    def _new_head(self, head: Head) -> Balls:
        if isinstance(head, Leaf):
            if head.name not in self.values:
                raise InvalidProblem(f"{head.name} has no value", hint=f"give {head.name} a number, or data")
            return self.values[head.name]
        if isinstance(head, Delta):
            return exact(np.eye(self.shape(head.dims)[0]))
        if isinstance(head, LogSumExp):
            return self._logsumexp(head)
        assert isinstance(head, Apply)
        bodies = [self(body) for body in head.bodies]
        if head.op == GROUP:
            return bodies[0]
        return between(PROVED[head.op](*(body.ends for body in bodies), *head.parameter))

    def _logsumexp(self, head: LogSumExp) -> Balls:
        """max + log sum exp(z - max), for any number near the largest exponent."""
        shape, rank = self.shape(head.dims), head.rank
        parts = [self(part) for part in head.parts]
        flat = [Balls(*(end.reshape(*shape, -1) for end in (part.middle, part.radius))) for part in parts]
        z = Balls(np.concatenate([p.middle for p in flat], axis=rank), np.concatenate([p.radius for p in flat], rank))
        most = z.middle.max(axis=rank, keepdims=True)
        lower, upper = z.ends
        low, high = PROVED["exp"]((_down(lower - most), _up(upper - most)))
        count = (z.middle.shape[rank] + 16) * _SUM
        sums = low.sum(axis=rank) * (1 - count), high.sum(axis=rank) * (1 + count)
        low, high = PROVED["log"]((np.maximum(sums[0], 1e-300), sums[1]))
        peak = most[..., 0]
        return between((_down(low + peak), _up(high + peak)))


def contracted(factors: Sequence[tuple[Balls, tuple[int, ...]]], out: Sequence[int], summed: int) -> Balls:
    """The sum of products of arrays with numbered indices; ``summed`` bounds how many numbers any entry adds up.

    >>> one = exact([1.0, 2.0])
    >>> contracted([(one, (0,)), (one, (0,))], (), 2).middle.item()
    5.0
    """
    middle = _einsum([(balls.middle, indices) for balls, indices in factors], out)
    if len(factors) == 2 and summed == 1 and not factors[0][1] and float(factors[0][0].middle) in (1.0, -1.0):
        return Balls(middle, np.array(_einsum([(factors[1][0].radius, factors[1][1])], out)))  # a sign alone
    gamma = (summed + 4 * len(factors) + 16) * _SUM
    reach = _einsum([(balls.magnitude, indices) for balls, indices in factors], out)
    wide = any(balls.radius.any() for balls, _ in factors)
    spread = np.zeros_like(middle)
    if wide:
        spread = reach - _einsum([(np.abs(balls.middle), indices) for balls, indices in factors], out)
    radius = (np.maximum(spread, 0.0) + 3 * gamma * reach) * (1 + 2 * gamma)
    return Balls(middle, np.asarray(radius + (4 * summed + 16) * FLOAT64_TINY))


def _einsum(factors: Sequence[tuple[Floats, tuple[int, ...]]], out: Sequence[int]) -> Floats:
    """In the order of a plan that is made once for each pattern of indices and shapes."""
    einsum: Any = np.einsum  # whose types know no lists of indices
    if len(factors) == 1:
        return np.asarray(einsum(factors[0][0], list(factors[0][1]), list(out)))
    arrays = [array for array, _ in factors]
    for k, j, one, two, left in _plan(
        tuple(indices for _, indices in factors), tuple(array.shape for array in arrays), tuple(out)
    ):
        product = einsum(arrays[k], one, arrays[j], two, left, optimize=arrays[k].size * arrays[j].size > LARGE)
        arrays = [array for i, array in enumerate(arrays) if i not in (k, j)] + [np.asarray(product)]
    return np.asarray(arrays[0])


Step = tuple[int, int, list[int], list[int], list[int]]


@lru_cache(MAX_PLANS)
def _plan(
    indices: tuple[tuple[int, ...], ...], shapes: tuple[tuple[int, ...], ...], out: tuple[int, ...]
) -> list[Step]:
    """Pairs to multiply, in the cheapest order: places, their indices, and those that are left."""
    sizes = {i: n for own, shape in zip(indices, shapes, strict=True) for i, n in zip(own, shape, strict=True)}
    whole, held = (
        Product(indices, sizes, (False,) * len(indices), len(out)),
        [frozenset([k]) for k in range(len(indices))],
    )
    steps = list[Step]()

    def axes(places: frozenset[int]) -> list[int]:
        own = indices[min(places)] if len(places) == 1 else sorted(whole.left(places))
        return list(own)

    def made(tree: Tree) -> None:
        if isinstance(tree, int):
            return
        for part in tree:
            made(part)
        k, j = sorted(held.index(places_in(part)) for part in tree)
        both = held[k] | held[j]
        left = axes(both) if len(held) > 2 else list(out)
        steps.append((k, j, axes(held[k]), axes(held[j]), left))
        held[:] = [own for i, own in enumerate(held) if i not in (k, j)] + [both]

    made(whole.cheapest())
    return steps


def _pair(ends: tuple[float, float]) -> Pair:
    return np.array(ends[0]), np.array(ends[1])


def _down(values: Floats) -> Floats:
    return np.asarray(values - (PADDING * np.abs(values) + FLOAT64_TINY))


def _up(values: Floats) -> Floats:
    return np.asarray(values + (PADDING * np.abs(values) + FLOAT64_TINY))
