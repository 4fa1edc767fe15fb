"""Rows that repeat: z_ic = sum_j A_ij W_jc + b_c has one row for all classes c, each in variables of its own.

Written out they are the Kronecker product of A with an identity. Its norms and eigenvalues are those of A, so that a
softmax with many classes is bounded at the cost of one of them, and nothing of the size of the whole is formed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bilevel_sym.arithmetic.intervals import Pair, linear
from bilevel_sym.arrays.calculus import gradient
from bilevel_sym.arrays.tensor import Factor, Leaf, Tensor, Term
from bilevel_sym.typing import Floats, Indices
from verify.enclosures.interval_matrix import Matrices
from verify.regularity.structure.repeated import Repeated
from verify.regularity.structure.rows import Layout, Rows, exact_ends, row_of_places

__all__ = ["CopiedRows", "copied_rows"]


@dataclass(frozen=True, eq=False)
class CopiedRows(Rows):
    """Rows that stand once for every copy of their variables; a place is a block of as many rows as there are copies.

    The norm of a block, a (x) I, is the length of its row a; so the norms of ``Rows`` hold as they are.

    - ``variables``: the variable of each column, for each copy: (columns, copies).
    """

    variables: Indices = field(default_factory=lambda: np.zeros((0, 1), dtype=np.intp))

    def gram(self, weights: Floats, *, up: bool) -> Repeated:
        """R^T diag(weights) R of the rows of one copy, which is that of every other."""
        found = super().gram(weights, up=up)
        assert isinstance(found, Matrices)
        return Repeated(found, self.variables)

    def over_each(self, lower: Floats, upper: Floats) -> Pair:
        """R z of every copy."""
        assert self.matrix is not None
        none = np.zeros(self.matrix.middle.shape[1])
        low, high = linear(*exact_ends(self.matrix), none, none, lower[self.variables], upper[self.variables])
        return low.ravel(), high.ravel()


def copied_rows(
    tensor: Tensor, role: str, layout: Layout, shape: Sequence[int], places: Sequence[int], summed: int
) -> CopiedRows | None:
    """The coefficients of an affine form in one role, where its last indices are indices of variables alone.

    - ``tensor``: the affine form.
    - ``role``: "x" or "y".
    - ``layout``: where entries stand.
    - ``shape``: of the places of the part.
    - ``places``: which indices of the part the other indices of the form are.
    - ``summed``: how many indices are last.
    """
    leaves = sorted((leaf for leaf in tensor.leaves if leaf.role == role), key=lambda leaf: leaf.name)
    single = _one_copy(tensor, leaves, summed)
    if not leaves or single is None:
        return None
    form, orders = single
    rows = layout.evaluation.shape(form.dims)
    copies = math.prod(layout.evaluation.shape(tensor.dims[form.rank :]))
    middles, radii, variables = [], [], []
    for leaf in leaves:
        own = _without(leaf, orders[leaf][1])
        found = layout.evaluation(gradient(form, own))
        middles.append(found.middle.reshape(math.prod(rows), -1))
        radii.append(found.radius.reshape(math.prod(rows), -1))
        numbers = np.arange(math.prod(layout.evaluation.shape(leaf.dims))).reshape(layout.evaluation.shape(leaf.dims))
        turned = numbers.transpose((*orders[leaf][0], *orders[leaf][1])).reshape(-1, copies)
        variables.append(turned + layout.spans[role][leaf.name].start)
    matrix = Matrices(np.hstack(middles)[None], np.hstack(radii)[None])
    at = row_of_places(shape, places, rows)
    return CopiedRows(math.prod(shape), layout.counts[role], at, 1, matrix, variables=np.vstack(variables))


Order = tuple[list[int], list[int]]  # the indices of a leaf that belong to one copy, and those that tell copies apart


def _one_copy(tensor: Tensor, leaves: Sequence[Leaf], summed: int) -> tuple[Tensor, dict[Leaf, Order]] | None:
    """The form of one copy, without its last indices; None where these are met by anything but the variables."""
    rank = tensor.rank - summed
    last = list(range(rank, tensor.rank))
    terms, orders = [], dict[Leaf, Order]()
    for term in tensor.terms:
        own = [factor for factor in term.factors if factor.head in leaves]
        if not own and not any(leaf in factor.head.leaves for factor in term.factors for leaf in leaves):
            continue  # nothing of this role
        others = [factor for factor in term.factors if factor not in own]
        if len(own) != 1 or any(set(last) & set(factor.indices) for factor in others):
            return None
        ((leaf, indices),) = own
        if any(indices.count(index) != 1 for index in last) or any(set(leaves) & f.head.leaves for f in others):
            return None
        assert isinstance(leaf, Leaf)
        order = [k for k, i in enumerate(indices) if i not in last], [indices.index(i) for i in last]
        if orders.setdefault(leaf, order) != order:
            return None
        kept = Factor(_without(leaf, order[1]), tuple(i for i in indices if i not in last))
        factors = [Factor(f.head, tuple(i - summed * (i >= rank) for i in f.indices)) for f in (*others, kept)]
        terms.append(Term(term.coefficient, term.sizes, tuple(factors), term.dummies))
    return (Tensor(tensor.dims[:rank], tuple(terms)), orders) if set(orders) == set(leaves) else None


def _without(leaf: Leaf, dropped: Sequence[int]) -> Leaf:
    return Leaf(leaf.name, tuple(dim for k, dim in enumerate(leaf.dims) if k not in dropped), leaf.role)
