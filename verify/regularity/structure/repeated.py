"""A matrix that stands once for every copy of its variables: eigenvalues of all of it from those of one copy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevel_sym.typing import Floats, Indices
from verify.enclosures.interval_matrix import Matrices

__all__ = ["Repeated"]


@dataclass(frozen=True, eq=False)
class Repeated:
    """A symmetric matrix that stands once for every copy of its variables, and zero between copies.

    - ``matrix``: one lane.
    - ``variables``: the variable of each column of it, for each copy: (columns, copies).

    >>> twice = Repeated(Matrices.around(np.array([[[2.0, 1.0], [1.0, 2.0]]])), np.array([[0, 1], [2, 3]]))
    >>> twice.expanded(4).middle[0].tolist()
    [[2.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 1.0], [1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 2.0]]
    """

    matrix: Matrices
    variables: Indices

    def plus(self, other: Repeated) -> Repeated | None:
        """The sum, where the other repeats in the same way."""
        same = np.array_equal(self.variables, other.variables)
        return Repeated(self.matrix + other.matrix, self.variables) if same else None

    def expanded(self, size: int) -> Matrices:
        """All copies in one matrix."""
        middle, radius = np.zeros((2, 1, size, size))
        for own in self.variables.T:
            middle[0][np.ix_(own, own)], radius[0][np.ix_(own, own)] = self.matrix.middle[0], self.matrix.radius[0]
        return Matrices(middle, radius)

    def with_diagonal(self, diagonal: Floats) -> tuple[Matrices, Floats]:
        """The sum with a diagonal matrix: a lane for every copy that differs, and the entries beside all copies."""
        own = np.unique(diagonal[self.variables.T], axis=0)
        lanes = Matrices(
            *(np.broadcast_to(part, (len(own), *part.shape[1:])) for part in (self.matrix.middle, self.matrix.radius))
        )
        beside = np.delete(diagonal, self.variables.ravel())
        return lanes + Matrices.around(own[:, :, None] * np.eye(own.shape[1])), beside
