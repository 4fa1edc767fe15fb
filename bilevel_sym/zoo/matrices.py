"""Dense rational matrices whose eigenvalues or singular values are chosen.

A reflection I - 2 v v^T / (v^T v) with an integer vector v is orthogonal and rational, so that
products of reflections give dense matrices with known spectra and not a single rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import sympy as sp

from bilevel_sym.errors import InvalidArgument

__all__ = [
    "eigenvalues_between",
    "integer_vectors",
    "linear_form",
    "quadratic_form",
    "with_singular_values",
    "with_spectrum",
]

Vector = Sequence[int]


def eigenvalues_between(low: sp.Rational, high: sp.Rational, n: int) -> tuple[sp.Rational, ...]:
    """n numbers spread evenly from low to high, both included; a single one is high.

    >>> eigenvalues_between(sp.Integer(1), sp.Integer(10), 4)
    (1, 4, 7, 10)
    """
    if high < low:
        raise InvalidArgument(f"the condition number must be at least 1, but is {high / low}")
    if n == 1:
        return (high,)
    return tuple(low + (high - low) * sp.Rational(i, n - 1) for i in range(n))


def with_spectrum(eigenvalues: Sequence[sp.Rational], vectors: Iterable[Vector]) -> sp.Matrix:
    """The symmetric matrix H ... diag(eigenvalues) ... H, one reflection H for each vector.

    >>> with_spectrum([sp.Integer(1), sp.Integer(2)], [(1, 2)])
    Matrix([
    [41/25, 12/25],
    [12/25, 34/25]])
    """
    matrix = sp.diag(*eigenvalues)
    for vector in vectors:
        matrix = _reflect_rows(_reflect_rows(matrix, vector).T, vector)
    return matrix


def with_singular_values(
    values: Sequence[sp.Rational],
    shape: tuple[int, int],
    left: Iterable[Vector],
    right: Iterable[Vector],
) -> sp.Matrix:
    """The matrix of that shape with these singular values, min(shape) of them.

    >>> B = with_singular_values([sp.Integer(2)], (1, 2), [(1,)], [(1, 2)])
    >>> B * B.T
    Matrix([[4]])
    """
    matrix = sp.zeros(*shape)
    for i, value in enumerate(values):
        matrix[i, i] = value
    for vector in left:
        matrix = _reflect_rows(matrix, vector)
    for vector in right:
        matrix = _reflect_rows(matrix.T, vector).T
    return matrix


def integer_vectors(rng: np.random.Generator, size: int, count: int = 2) -> list[Vector]:
    """Vectors of integers between -3 and 3, none of them zero.

    >>> [len(vector) for vector in integer_vectors(np.random.default_rng(0), 3)]
    [3, 3]
    """
    signs = rng.choice([-1, 1], size=(count, size))
    sizes = rng.integers(1, 4, size=(count, size))
    return [tuple(int(entry) for entry in row) for row in signs * sizes]


def quadratic_form(matrix: sp.Matrix, variables: Sequence[sp.Expr]) -> sp.Expr:
    """v^T A v / 2 for symmetric A, each product of two variables once.

    >>> x, y = sp.symbols("x y")
    >>> quadratic_form(sp.Matrix([[2, 1], [1, 4]]), (x, y))
    x**2 + x*y + 2*y**2
    """
    n = len(variables)
    pairs = ((i, j) for i in range(n) for j in range(i, n))
    half = sp.Rational(1, 2)
    return sp.Add(
        *((half if i == j else 1) * matrix[i, j] * (variables[i] * variables[j]) for i, j in pairs if matrix[i, j] != 0)
    )


def linear_form(coefficients: Iterable[sp.Expr], variables: Iterable[sp.Expr]) -> sp.Expr:
    """The inner product c^T v.

    >>> x, y = sp.symbols("x y")
    >>> linear_form((1, -2), (x, y))
    x - 2*y
    """
    return sp.Add(*(c * v for c, v in zip(coefficients, variables, strict=True)))


def _reflect_rows(matrix: sp.Matrix, vector: Vector) -> sp.Matrix:
    column = sp.Matrix(vector)
    return matrix - column * (column.T * matrix) * sp.Rational(2, sum(v * v for v in vector))
