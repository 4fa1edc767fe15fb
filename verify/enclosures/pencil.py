"""Pencils: symmetric blocks as A_0 + sum of t_k A_k with constant matrices, for eigenvalues that keep their order.

Entry by entry, sums of squares such as sum of t_k a_k a_k^T with t_k >= 0 lose that they are sums of squares. Here a
part A_k that is positive semidefinite is taken at the lower end of t_k, for the smallest eigenvalue grows with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from flint import fmpq

from bilevel_sym.arithmetic.definiteness import definiteness
from bilevel_sym.arithmetic.intervals import enclose
from bilevel_sym.graph.nodes import LinearForm
from bilevel_sym.typing import Floats, Indices
from verify.enclosures.interval_matrix import Matrices

__all__ = ["Pencil", "definiteness"]

MOST_PARTS = 400


class Pencil:
    """The forms of a symmetric block, sorted by the nodes t_k that they are linear in.

    >>> from bilevel_sym.graph.nodes import Graph
    >>> graph = Graph(1)
    >>> t = graph.power(graph.variables[0], 2)
    >>> pencil = Pencil([t, t, t, t], 2)  # t times the matrix of ones
    >>> pencil.smallest_eigenvalue_lower(np.array([[0.0]]), np.array([[9.0]])).round(9).tolist()
    [-0.0]
    """

    def __init__(self, forms: Sequence[LinearForm], size: int) -> None:
        self.size = size
        self.nodes = tuple(sorted({node for form in forms for node in form.terms}))
        parts = [[form.terms.get(node, fmpq(0)) for form in forms] for node in self.nodes]
        self._constant = _enclosed([form.constant for form in forms]).reshaped(1, size, size)
        ends = [_enclosed(part) for part in parts]
        empty = np.empty((0, size * size))
        self._parts = Matrices(
            np.stack([part.middle for part in ends]) if ends else empty,
            np.stack([part.radius for part in ends]) if ends else empty,
        )
        self._signs: Indices = np.array([definiteness(part, size) for part in parts], dtype=np.intp)

    def smallest_eigenvalue_lower(self, low: Floats, high: Floats) -> Floats:
        """A lower bound of the eigenvalues for all t between the ends (lanes, parts); -inf where nothing is known."""
        return self._least(low, high, 1)

    def largest_eigenvalue_upper(self, low: Floats, high: Floats) -> Floats:
        """An upper bound, in the same way."""
        return np.asarray(-self._least(low, high, -1))

    def _least(self, low: Floats, high: Floats, sign: int) -> Floats:
        """Of the pencil times the sign. Parts without a sign keep their middle, and a radius."""
        with np.errstate(all="ignore"):
            known = Matrices.between(low, high)
            ordered = self._signs * sign
            chosen = np.where(ordered > 0, low, np.where(ordered < 0, high, known.middle))
            spread = np.where(ordered == 0, known.radius, 0.0)
            total = Matrices(chosen[None], spread[None]) @ Matrices(self._parts.middle[None], self._parts.radius[None])
            matrix = total.reshaped(len(low), self.size, self.size) + self._constant
            bound = (matrix if sign > 0 else -matrix).smallest_eigenvalue_lower()
        return np.where(np.isnan(low).any(axis=1) | np.isnan(high).any(axis=1), -np.inf, bound)


def _enclosed(numbers: Sequence[fmpq]) -> Matrices:
    ends = np.array([enclose(int(number.p), int(number.q)) for number in numbers])
    return Matrices.between(ends[:, 0], ends[:, 1])
