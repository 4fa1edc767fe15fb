"""Matrices that are dense, diagonal, or the sum of both: what blocks of array problems are, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bilevel_sym.arithmetic.linear_algebra import NotPositiveDefinite, smallest_eigenvalues
from bilevel_sym.implicit.second_order import Algebra
from bilevel_sym.typing import Floats

__all__ = ["STRUCTURED", "Structured", "newton_step", "solver"]

MIRRORED = 128  # rows of a matrix that are copied at a time


@dataclass(frozen=True)
class Structured:
    """A dense matrix plus a diagonal one; either may be missing, and both are where the matrix vanishes.

    - ``shape``: rows and columns.
    - ``rest``: the dense part.
    - ``diagonal``: the entries of the diagonal part.

    >>> matrix = Structured((2, 2), None, np.array([1.0, 2.0]))
    >>> (matrix @ matrix).dense()
    array([[1., 0.],
           [0., 4.]])
    """

    shape: tuple[int, int]
    rest: Floats | None
    diagonal: Floats | None = None

    @staticmethod
    def of(matrix: Floats) -> Structured:
        """A dense matrix."""
        return Structured((matrix.shape[0], matrix.shape[1]), matrix)

    @property
    def T(self) -> Structured:
        """The transposed matrix."""
        return Structured(self.shape[::-1], None if self.rest is None else self.rest.T, self.diagonal)

    def dense(self) -> Floats:
        """One array, which is nobody else's."""
        result = np.zeros(self.shape) if self.rest is None else self.rest.copy()
        if self.diagonal is not None:
            result.reshape(-1)[:: self.shape[1] + 1] += self.diagonal
        return result

    def __neg__(self) -> Structured:
        rest, diagonal = (None if part is None else -part for part in (self.rest, self.diagonal))
        return Structured(self.shape, rest, diagonal)

    def __add__(self, other: Structured) -> Structured:
        return Structured(self.shape, _sum(self.rest, other.rest), _sum(self.diagonal, other.diagonal))

    def __sub__(self, other: Structured) -> Structured:
        return self + -other

    def __matmul__(self, other: Structured) -> Structured:
        shape = self.shape[0], other.shape[1]
        one, two, rows, columns = self.rest, other.rest, self.diagonal, other.diagonal
        full = None if one is None or two is None else one @ two
        left = None if rows is None or two is None else rows[:, None] * two
        right = None if one is None or columns is None else one * columns
        diagonal = None if rows is None or columns is None else rows * columns
        return Structured(shape, _sum(_sum(full, left), right), diagonal)


def _sum(one: Floats | None, two: Floats | None) -> Floats | None:
    if one is None or two is None:
        return two if one is None else one
    return np.asarray(one + two)


def solver(matrix: Structured) -> Callable[[Structured], Structured]:
    """The function that takes B to A^-1 B; NotPositiveDefinite where A is not positive definite.

    >>> solver(Structured((1, 1), np.array([[4.0]])))(Structured.of(np.array([[8.0]]))).dense()
    array([[2.]])
    """
    if matrix.rest is None:
        return _diagonal_solver(matrix)
    from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

    whole = matrix.dense()
    if not np.isfinite(np.vdot(whole, whole)) and not np.isfinite(whole).all():
        raise NotPositiveDefinite(np.array([0]), np.array([np.nan]))
    factor, info = dpotrf(whole.T, lower=1, clean=0, overwrite_a=1)
    if info:
        raise NotPositiveDefinite(np.array([0]), smallest_eigenvalues(matrix.dense()[None]))

    def solve(right: Structured) -> Structured:
        if right.rest is not None:
            return Structured.of(dpotrs(factor, right.dense(), lower=1)[0])
        if right.diagonal is None:
            return right
        inverse = _mirrored(dpotri(factor, lower=1)[0])
        inverse *= right.diagonal
        return Structured(right.shape, inverse)

    return solve


def _mirrored(matrix: Floats) -> Floats:
    """What is below the diagonal, copied to above it, block by block: whole copies would cost more than the solve."""
    for start in range(0, len(matrix), MIRRORED):
        own, after = slice(start, start + MIRRORED), slice(start + MIRRORED, None)
        matrix[own, after] = matrix[after, own].T
        block = matrix[own, own]
        block[...] = np.tril(block) + np.tril(block, -1).T
    return matrix


def newton_step(g_y: Floats, rest: Floats | None, diagonal: Floats | None) -> Floats:
    """-g_yy^-1 g_y for g_yy in two parts, nan where it is not positive definite; ``rest`` may be overwritten.

    >>> newton_step(np.array([4.0]), None, np.array([2.0]))
    array([-2.])
    """
    if rest is None:
        return -g_y / np.where(diagonal > 0, diagonal, np.nan) if diagonal is not None else np.full_like(g_y, np.nan)
    from scipy.linalg.lapack import dposv

    if diagonal is not None:
        rest.reshape(-1)[:: len(g_y) + 1] += diagonal
    _, step, info = dposv(rest.T, g_y, lower=1, overwrite_a=1)
    return np.full_like(g_y, np.nan) if info else np.negative(step)


def _diagonal_solver(matrix: Structured) -> Callable[[Structured], Structured]:
    diagonal = np.zeros(matrix.shape[0]) if matrix.diagonal is None else matrix.diagonal
    if not (diagonal > 0).all():
        raise NotPositiveDefinite(np.array([0]), np.array([diagonal.min()]))

    def solve(right: Structured) -> Structured:
        rest = None if right.rest is None else right.rest / diagonal[:, None]
        return Structured(right.shape, rest, None if right.diagonal is None else right.diagonal / diagonal)

    return solve


def _congruence(L_xx: Structured, L_xy: Structured, L_yy: Structured, response: Structured) -> Structured:
    """C + C^T + L_xx with C = (L_xy + R^T L_yy / 2) R: one product of the size of the Hessian, where there were two."""
    moved = L_yy @ response
    half = (L_xy + _halved(moved.T)) @ response
    rest = None if half.rest is None else half.rest + half.rest.T
    diagonal = None if half.diagonal is None else 2.0 * half.diagonal
    return Structured(half.shape, rest, diagonal) + L_xx


def _halved(matrix: Structured) -> Structured:
    rest, diagonal = (None if part is None else 0.5 * part for part in (matrix.rest, matrix.diagonal))
    return Structured(matrix.shape, rest, diagonal)


STRUCTURED: Algebra[Structured] = Algebra(solver, congruence=_congruence)
