"""Rows: the coefficients of an affine form at all places of a part, and norms of them that are proved.

They are a dense matrix, or, where every place reads one entry of one variable, its column and coefficient alone; so a
weight for each of many rows costs no square of their number. Places may share a row (``at``), and a row may be a block
of several, for functions of several entries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bilevel_sym.arithmetic.intervals import PROVED, Pair, linear
from bilevel_sym.arrays.calculus import gradient
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.typing import Bools, Floats, Indices
from verify.enclosures.interval_matrix import ROUNDED_UP, Matrices
from verify.regularity.structure.repeated import Repeated
from verify.regularity.structure.tensors import Balls, Evaluation, exact

__all__ = ["Layout", "Rows", "added_up", "exact_ends", "row_of_places", "rows_of", "stacked"]


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the entries of every array of x and of y stand when they are laid end to end, and what the data are.

    - ``evaluation``: values of what holds data alone.
    - ``spans``: for "x" and "y", the place of each array by name.
    - ``counts``: the number of entries of "x" and "y".
    """

    evaluation: Evaluation
    spans: Mapping[str, Mapping[str, slice]]
    counts: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Rows:
    """The coefficients of an affine form in the entries of x, or of y.

    - ``count``: how many places.
    - ``size``: how many entries of the variable.
    - ``at``: the row of each place; None where they are one and the same.
    - ``block``: how many rows of the matrix belong together.
    - ``matrix``: the rows, as one lane of interval matrices; or None, and then
    - ``columns``, ``entries``: the one column of each row, and the coefficient there.

    >>> rows = Rows(2, 2, None, 1, None, np.array([0, 1]), exact([1.0, -2.0]))
    >>> bool(2 <= rows.norms[1] < 2.001), bool(2 <= rows.weighted_norm(np.ones(2)) < 2.001)
    (True, True)
    """

    count: int
    size: int
    at: Indices | None
    block: int
    matrix: Matrices | None
    columns: Indices | None = None
    entries: Balls | None = None

    @cached_property
    def _own_norms(self) -> Floats:
        if self.matrix is None:
            assert self.entries is not None
            return np.asarray(self.entries.magnitude * ROUNDED_UP)
        size = self.matrix.magnitude[0]
        squares = np.square(size).sum(axis=1).reshape(-1, self.block).sum(axis=1)
        pad = 1 + (size.shape[1] * self.block + 16) * 1.2e-16
        return np.asarray(np.sqrt(squares * pad + 1e-300) * ROUNDED_UP)

    @cached_property
    def norms(self) -> Floats:
        """An upper bound of the length of every row."""
        return self._own_norms if self.at is None else self._own_norms[self.at]

    @cached_property
    def used(self) -> Bools:
        """Which rows may be other than zero."""
        if self.matrix is None:
            assert self.entries is not None
            own = self.entries.magnitude > 0
        else:
            own = (self.matrix.magnitude[0] > 0).any(axis=1).reshape(-1, self.block).any(axis=1)
        return np.asarray(own if self.at is None else own[self.at])

    def weighted_norm(self, weights: Floats) -> float:
        """An upper bound of the spectral norm of diag(weights) R, for weights that are not negative."""
        weights = np.where(self.used, weights, 0.0)
        if not np.isfinite(weights).all():
            return math.inf
        squares = self._collapsed(np.square(weights) * ROUNDED_UP)
        if self.matrix is None:
            assert self.entries is not None
            assert self.columns is not None
            parts = squares * np.square(self._own_norms) * ROUNDED_UP
            return math.sqrt(float(added_up(parts, self.columns, self.size).max())) * ROUNDED_UP
        root = np.repeat(np.sqrt(squares) * ROUNDED_UP, self.block)[None, :, None]
        middle = self.matrix.middle * root
        scaled = Matrices(middle, self.matrix.radius * root * ROUNDED_UP + np.abs(middle) * 1e-15)
        wide = scaled.middle.shape[1] < scaled.middle.shape[2]
        gram = scaled @ scaled.T if wide else scaled.T @ scaled
        return math.sqrt(max(0.0, float(gram.largest_eigenvalue_upper()[0]))) * ROUNDED_UP

    def _collapsed(self, values: Floats) -> Floats:
        """Upper bounds of the sums over the places that share a row."""
        return values if self.at is None else added_up(values, self.at, len(self._own_norms))

    def gram(self, weights: Floats, *, up: bool) -> Matrices | Pair | Repeated:
        """R^T diag(weights) R, for places that may share a row: a matrix, one for each copy, or two ends of a diagonal.

        Weights are rounded towards plus or minus infinity where they are added up.
        """
        shared = weights if self.at is None else self._shared(weights, up)
        if self.matrix is None:
            assert self.entries is not None
            assert self.columns is not None
            square = PROVED["ipow"](self.entries.ends, 2)
            low, high = PROVED["mul"](square, (shared, shared))
            return -added_up_signed(-low, self.columns, self.size), added_up_signed(high, self.columns, self.size)
        spread = np.repeat(shared, self.block)[None, :, None]
        middle = self.matrix.middle * spread
        radius = self.matrix.radius * np.abs(spread) * ROUNDED_UP + np.abs(middle) * 3e-16
        return self.matrix.T @ Matrices(middle, radius)

    def _shared(self, weights: Floats, up: bool) -> Floats:
        assert self.at is not None
        length = len(self._own_norms)
        return added_up_signed(weights, self.at, length) if up else -added_up_signed(-weights, self.at, length)

    def dense(self) -> Matrices:
        """As a matrix with a row for every place, one for each where rows are blocks."""
        if self.matrix is not None:
            matrix = self.matrix
        else:
            assert self.entries is not None
            assert self.columns is not None
            middle, radius = np.zeros((2, len(self.columns), self.size))
            places = np.arange(len(self.columns)), self.columns
            middle[places], radius[places] = self.entries.middle, self.entries.radius
            matrix = Matrices(middle[None], radius[None])
        return matrix if self.at is None else Matrices(matrix.middle[:, self.at], matrix.radius[:, self.at])

    def over(self, lower: Floats, upper: Floats) -> Pair:
        """R z for all z between two ends; an end may be infinite."""
        if self.matrix is None:
            assert self.entries is not None
            assert self.columns is not None
            low, high = PROVED["mul"](self.entries.ends, (lower[self.columns], upper[self.columns]))
        else:
            none = np.zeros(self.matrix.middle.shape[1])
            ends = exact_ends(self.matrix)
            one, two = linear(*ends, none, none, lower[:, None], upper[:, None])
            low, high = one[:, 0], two[:, 0]
        return (low, high) if self.at is None else (low[self.at], high[self.at])

    def over_each(self, lower: Floats, upper: Floats) -> Pair:
        """R z, one number for each row of every block, whichever places read it."""
        assert self.matrix is not None
        return Rows(self.matrix.middle.shape[1], self.size, None, 1, self.matrix).over(lower, upper)


def exact_ends(matrix: Matrices) -> Pair:
    """The two ends of the entries of one lane, without a margin where they are exact."""
    lower, upper = (np.where(matrix.radius > 0, end, matrix.middle) for end in (matrix.lower, matrix.upper))
    return lower[0], upper[0]


def added_up(values: Floats, places: Indices, length: int) -> Floats:
    """Upper bounds of sums of numbers that are not negative, by place.

    >>> added_up(np.array([1.0, 2.0]), np.array([0, 0]), 2)[0] >= 3
    np.True_
    """
    sums = np.bincount(places, weights=values, minlength=length)
    counts = np.bincount(places, minlength=length)
    return np.asarray(sums * (1 + (counts + 4) * 1.2e-16))


def added_up_signed(values: Floats, places: Indices, length: int) -> Floats:
    """Upper bounds of sums of any numbers, by place."""
    counts = np.bincount(places, minlength=length)
    pad = added_up(np.abs(values), places, length) * ((counts + 4) * 1.2e-16)
    return np.asarray(np.bincount(places, weights=values, minlength=length) + np.where(counts > 1, pad, 0.0))


def row_of_places(shape: Sequence[int], places: Sequence[int], own: Sequence[int]) -> Indices | None:
    """The row that each place of a part reads, where the indices of the rows are some of those of the part.

    >>> row_of_places((2, 3), (1,), (3,))
    array([0, 1, 2, 0, 1, 2])
    """
    if tuple(places) == tuple(range(len(shape))):
        return None
    count = math.prod(shape)
    if not places:
        return np.zeros(count, dtype=np.intp)
    grid = np.unravel_index(np.arange(count), shape) if shape else ()
    return np.asarray(np.ravel_multi_index(tuple(grid[place] for place in places), tuple(own)), dtype=np.intp)


def rows_of(
    tensor: Tensor, role: str, layout: Layout, shape: Sequence[int], places: Sequence[int], block: int | None = None
) -> Rows | None:
    """The coefficients of an affine form in one role; None where it does not depend on that.

    - ``tensor``: the affine form.
    - ``role``: "x" or "y".
    - ``layout``: where entries stand.
    - ``shape``: of the places of the part.
    - ``places``: which indices of the part the (leading) indices of the form are.
    - ``block``: how many entries of the form belong to one place, of a function of several.
    """
    leaves = sorted((leaf for leaf in tensor.leaves if leaf.role == role), key=lambda leaf: leaf.name)
    if not leaves:
        return None
    own = layout.evaluation.shape(tensor.dims)
    at = row_of_places(shape, places, own[: len(places)])
    count, size = math.prod(shape), layout.counts[role]
    if len(leaves) == 1 and block is None and (picked := _picked(tensor, leaves[0], layout)) is not None:
        columns, entries = picked
        return Rows(count, size, at, 1, None, columns + layout.spans[role][leaves[0].name].start, entries)
    length = math.prod(own)
    layout.evaluation.shape((str(length), str(size)))
    middle, radius = np.zeros((2, length, size))
    for leaf in leaves:
        found = layout.evaluation(gradient(tensor, leaf))
        span = layout.spans[role][leaf.name]
        middle[:, span], radius[:, span] = (part.reshape(length, -1) for part in (found.middle, found.radius))
    return Rows(count, size, at, block or 1, Matrices(middle[None], radius[None]))


def _picked(tensor: Tensor, leaf: Leaf, layout: Layout) -> tuple[Indices, Balls] | None:
    """The entry of a variable that each row reads, and its coefficient, where it reads one."""
    own = [term for term in tensor.terms if leaf in {inner for factor in term.factors for inner in factor.head.leaves}]
    if len(own) != 1 or own[0].dummies or sum(factor.head == leaf for factor in own[0].factors) != 1:
        return None
    indices = next(factor.indices for factor in own[0].factors if factor.head == leaf)
    shape = layout.evaluation.shape(tensor.dims)
    one = exact(np.ones(layout.evaluation.shape(leaf.dims)))
    entries = layout.evaluation.with_values({leaf.name: one})(Tensor(tensor.dims, tuple(own)))
    columns = row_of_places(shape, indices, layout.evaluation.shape(leaf.dims))
    if columns is None:
        columns = np.arange(math.prod(shape))
    return columns, Balls(entries.middle.ravel(), entries.radius.ravel())


def stacked(parts: Sequence[Rows], blocks: int) -> Rows:
    """Rows of several affine forms whose blocks belong together, place by place."""
    if len(parts) == 1:
        return parts[0]
    middles = [p.matrix.middle[0].reshape(blocks, -1, p.size) for p in parts if p.matrix is not None]
    radii = [p.matrix.radius[0].reshape(blocks, -1, p.size) for p in parts if p.matrix is not None]
    middle, radius = np.concatenate(middles, axis=1), np.concatenate(radii, axis=1)
    block, size = middle.shape[1], middle.shape[2]
    matrix = Matrices(middle.reshape(1, -1, size), radius.reshape(1, -1, size))
    return Rows(parts[0].count, size, parts[0].at, block, matrix)
