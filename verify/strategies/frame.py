"""Symmetric matrices with rational entries and known eigenvalues, from orthogonal integer vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import gcd, lcm

__all__ = ["Matrix", "Vector", "dot", "frame", "product", "symmetric", "unit"]

Vector = tuple[Fraction, ...]
Matrix = tuple[Vector, ...]


def dot(a: Iterable[Fraction], b: Iterable[Fraction]) -> Fraction:
    """The scalar product.

    >>> dot((1, 2), (3, Fraction(1, 2)))
    Fraction(4, 1)
    """
    return sum((p * q for p, q in zip(a, b, strict=True) if p and q), Fraction(0))


def unit(k: int, n: int) -> Vector:
    """The unit vector k of n.

    >>> unit(1, 2)
    (Fraction(0, 1), Fraction(1, 1))
    """
    return tuple(Fraction(int(k == j)) for j in range(n))


def product(matrix: Matrix, vector: Iterable[Fraction]) -> Vector:
    """A matrix times a vector.

    >>> product(((2, 0), (0, 3)), (1, 1))
    (Fraction(2, 1), Fraction(3, 1))
    """
    entries = tuple(vector)
    return tuple(dot(row, entries) for row in matrix)


def frame(first: Iterable[Sequence[int]], n: int) -> Matrix:
    """n orthogonal integer vectors: the given ones, then the unit vectors, each without its part along those before.

    >>> [[int(entry) for entry in vector] for vector in frame([(1, 1, 0)], 3)]
    [[1, 1, 0], [1, -1, 0], [0, 0, 1]]
    """
    vectors: list[Vector] = []
    for given in (*(tuple(map(Fraction, vector)) for vector in first), *(unit(k, n) for k in range(n))):
        rest = given
        for u in vectors:
            share = dot(given, u) / dot(u, u)
            if share:
                rest = tuple(a - share * b for a, b in zip(rest, u, strict=True))
        if any(rest):
            vectors.append(_smallest(rest))
    return tuple(vectors)


def _smallest(vector: Vector) -> Vector:
    """The shortest integer vector in the same direction."""
    below = lcm(*(entry.denominator for entry in vector))
    above = gcd(*(int(entry * below) for entry in vector))
    return tuple(entry * below / above for entry in vector)


def symmetric(eigenvalues: Sequence[Fraction], vectors: Matrix) -> Matrix:
    """The matrix with these eigenvalues and (orthogonal, not normalised) eigenvectors: sum lambda u u^T/|u|^2.

    >>> [[int(entry) for entry in row] for row in symmetric((2, 6), frame([(1, 1)], 2))]
    [[4, -2], [-2, 4]]
    """
    shares = [value / dot(u, u) for value, u in zip(eigenvalues, vectors, strict=True)]
    weighted = [tuple(s * a for a in u) for s, u in zip(shares, vectors, strict=True)]
    rows, scaled = list(zip(*vectors, strict=True)), list(zip(*weighted, strict=True))
    return tuple(tuple(dot(a, b) for b in scaled) for a in rows)
