"""Many small positive definite systems at once; and whether one matrix of rationals is semidefinite, exactly.

LAPACK's driver spends most of its time on overhead when matrices are small. A batch is factored by Cholesky, the
triangular factors are inverted block by block with batched products, and every solve is two more products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from flint import fmpq

from bilevel_sym.arithmetic.ties import first_smallest
from bilevel_sym.typing import Floats, Indices

__all__ = ["Factored", "NotPositiveDefinite", "all_finite", "definiteness", "smallest_eigenvalues"]

BLOCK = 5  # order of the diagonal blocks that are inverted entry by entry
LAPACK_MEMBERS = 6  # up to so many members, one LAPACK call each is faster


class NotPositiveDefinite(Exception):
    """Some matrices of a batch are not positive definite: ``members`` says which, ``eigenvalues`` how far.

    >>> try:
    ...     Factored(np.array([[[1.0]], [[-2.0]]]))
    ... except NotPositiveDefinite as error:
    ...     print(error.members, error.eigenvalues)
    [1] [-2.]
    """

    def __init__(self, members: Indices, eigenvalues: Floats) -> None:
        super().__init__(f"not positive definite: members {members.tolist()}")
        self.members = members
        self.eigenvalues = eigenvalues


class Factored:
    """Positive definite matrices (batch, n, n), factored once for any number of solves.

    ``batch-invariant``: by the same route however many there are, so that a member has the same bits in every batch.

    >>> matrix = np.array([[[4.0, 0.0], [0.0, 1.0]]])
    >>> Factored(matrix).solve(np.array([[[8.0], [8.0]]])).tolist()
    [[[2.0], [8.0]]]
    """

    def __init__(self, matrices: Floats, *, batch_invariant: bool = False) -> None:
        if not all_finite(matrices):  # LAPACK lets infinities and NaN pass
            raise _failed(matrices, np.flatnonzero(~np.isfinite(matrices).all(axis=(1, 2))))
        self._few = len(matrices) <= LAPACK_MEMBERS and not batch_invariant
        if self._few:
            self._factors = _lapack_factors(matrices)
        else:
            self._inverse = _inverse_lower(_cholesky(matrices))

    def solve(self, right: Floats) -> Floats:
        """The solutions for right-hand sides (batch, n, m)."""
        if self._few:
            return _lapack_solve(self._factors, right)
        return self._inverse.transpose(0, 2, 1) @ (self._inverse @ right)


def all_finite(array: Floats) -> bool:
    """Whether every number is finite: certainly so if the sum of squares is; only if it is not, each is looked at.

    >>> all_finite(np.array([1e200, -1e200])), all_finite(np.array([1.0, np.inf]))
    (True, False)
    """
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def smallest_eigenvalues(matrices: Floats) -> Floats:
    """The smallest eigenvalue of each symmetric matrix; NaN where an entry is not finite.

    NumPy's own ``eigvalsh`` of a matrix with NaN may return finite numbers, NaN, or raise.

    >>> smallest_eigenvalues(np.array([[[2.0]], [[np.nan]]]))
    array([ 2., nan])
    """
    finite = np.isfinite(matrices).all(axis=(1, 2))
    result = np.full(len(matrices), np.nan)
    if finite.any():
        result[finite] = np.linalg.eigvalsh(matrices[finite])[:, 0]
    return result


def _failed(matrices: Floats, members: Indices | None = None) -> NotPositiveDefinite:
    """The members at fault; where rounding alone decided, the smallest of all."""
    eigenvalues = smallest_eigenvalues(matrices)
    if members is None:
        members = np.flatnonzero(~(eigenvalues > 0))
        if not len(members):
            members = np.array([first_smallest(eigenvalues)])
    return NotPositiveDefinite(members, eigenvalues[members])


# ---- a few, by LAPACK -----------------------------------------------------------------------------------


def _lapack_factors(matrices: Floats) -> list[Floats]:
    from scipy.linalg.lapack import dpotrf

    factors = []
    for k, matrix in enumerate(matrices):
        factor, info = dpotrf(matrix, lower=1, clean=0)
        if info:
            raise _failed(matrices, np.array([k]))
        factors.append(factor)
    return factors


def _lapack_solve(factors: list[Floats], right: Floats) -> Floats:
    from scipy.linalg.lapack import dpotrs

    solutions = [dpotrs(factor, b, lower=1)[0] for factor, b in zip(factors, right, strict=True)]
    return np.array(solutions).reshape(right.shape)


# ---- many, by products ----------------------------------------------------------------------------------


def _cholesky(matrices: Floats) -> Floats:
    try:
        lower = np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise _failed(matrices) from None
    return lower


def _inverse_lower(lower: Floats) -> Floats:
    """The inverses of lower triangular matrices, block row by block row."""
    n = lower.shape[-1]
    corners = _inverse_corners(lower)
    if len(corners) == 1:
        whole: Floats = corners[0]
        return whole
    inverse = np.zeros_like(lower)
    for k, start in enumerate(range(0, n, BLOCK)):
        rows, before = slice(start, min(start + BLOCK, n)), slice(0, start)
        corner = corners[k][:, : n - start, : n - start]
        inverse[:, rows, rows] = corner
        if k:
            np.matmul(-corner @ lower[:, rows, before], inverse[:, before, before], out=inverse[:, rows, before])
    return inverse


def _inverse_corners(lower: Floats) -> Floats:
    """The inverses of all diagonal blocks (block, batch, BLOCK, BLOCK), entry by entry with the batch innermost.

    The last block may stick out; it is filled up with the identity.
    """
    batch, n, _ = lower.shape
    size = min(n, BLOCK)
    count = -(-n // size)
    entries = np.zeros((size, size, count, batch))
    entries[range(size), range(size)] = 1.0
    for k in range(count):
        block = lower[:, k * size : (k + 1) * size, k * size : (k + 1) * size]
        entries[: block.shape[1], : block.shape[2], k] = block.transpose(1, 2, 0)
    inverse = np.zeros_like(entries)
    for i in range(size):
        inverse[i, i] = 1.0 / entries[i, i]
        for k in range(i):
            inverse[i, : k + 1] -= entries[i, k] * inverse[k, : k + 1]
        inverse[i, :i] *= inverse[i, i]
    return np.ascontiguousarray(inverse.transpose(2, 3, 0, 1))


def definiteness(entries: Sequence[fmpq], size: int) -> int:
    """1 where a symmetric matrix of rationals is positive semidefinite, -1 where negative, 0 where neither.

    >>> definiteness([fmpq(1), fmpq(1), fmpq(1), fmpq(1)], 2), definiteness([fmpq(k) for k in (0, 1, 1, 0)], 2)
    (1, 0)
    """
    if _semidefinite([list(entries[i * size : (i + 1) * size]) for i in range(size)]):
        return 1
    return -1 if _semidefinite([[-value for value in entries[i * size : (i + 1) * size]] for i in range(size)]) else 0


def _semidefinite(rows: list[list[fmpq]]) -> bool:
    """Exact elimination: no pivot is negative, and below a zero pivot there is nothing."""
    for k, row in enumerate(rows):
        if row[k] < 0 or (row[k] == 0 and any(rows[i][k] != 0 for i in range(k, len(rows)))):
            return False
        if row[k] == 0:
            continue
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / row[k]
            if factor != 0:
                rows[i] = [a - factor * b for a, b in zip(rows[i], row, strict=True)]
    return True
