"""What drawn formulas are made of: terms whose derivatives of every order are bounded by hand over a box.

The boxes are centred at zero; ``radii`` are half their widths, of x and then of y. All arithmetic is exact or rounded
upward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import comb, gcd, isqrt, lcm
from types import MappingProxyType

import sympy as sp

from bilevel_sym.graph.operations import FUNCTIONS

__all__ = ["Matrix", "Ridge", "Sum", "Vector", "dot", "frame", "norm", "product", "root", "symmetric", "unit"]

Vector = tuple[Fraction, ...]
Matrix = tuple[Vector, ...]
_ROOT_BITS = 60  # of a square root that is not rational


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


def root(square: Fraction) -> Fraction:
    """The square root, exactly where it is rational, and otherwise from above.

    >>> root(Fraction(4, 9)), 0 <= float(root(Fraction(2))) - 2**0.5 < 1e-15
    (Fraction(2, 3), True)
    """
    whole = square.numerator * square.denominator
    low = isqrt(whole)
    if low * low == whole:
        return Fraction(low, square.denominator)
    return Fraction(isqrt(whole << 2 * _ROOT_BITS) + 1, square.denominator << _ROOT_BITS)


def norm(vector: Vector) -> Fraction:
    """The Euclidean norm, from above.

    >>> norm((3, 4))
    Fraction(5, 1)
    """
    return root(dot(vector, vector))


def _matrix_norm(rows: Sequence[Vector]) -> Fraction:
    """The spectral norm from above, by Frobenius and by the largest sums of rows and columns."""
    sums = [max(sum(map(abs, line), Fraction(0)) for line in lines) for lines in (rows, list(zip(*rows, strict=True)))]
    return min(root(sum((dot(row, row) for row in rows), Fraction(0))), root(sums[0] * sums[1]))


def _powers(T: Fraction, degree: int, scale: int) -> tuple[Fraction, ...]:
    """The derivatives of t^degree/scale at T, orders 0 to 4."""
    values, factor = [], Fraction(1, scale)
    for order in range(5):
        values.append(factor * T ** (degree - order) if order <= degree else Fraction(0))
        factor *= degree - order
    return tuple(values)


_ONE = Fraction(1)
# h, and sup |h^(k)| over |t| <= T for k = 0 to 4
_FUNCTIONS: Mapping[str, tuple[Callable[[sp.Expr], sp.Expr], Callable[[Fraction], tuple[Fraction, ...]]]] = (
    MappingProxyType(
        {
            **{name: (record.sympy, record.bounds) for name, record in FUNCTIONS.items() if record.bounds is not None},
            "cube": (lambda t: t**3, lambda T: _powers(T, 3, 1)),
            "square": (lambda t: t**2, lambda T: _powers(T, 2, 1)),
        }
    )
)


@dataclass(frozen=True)
class Ridge:
    """coefficient * h(form . (x, y) + shift), times x_w^2 where ``weight`` is w.

    >>> x1, y1 = sp.symbols("x1 y1")
    >>> ridge = Ridge(Fraction(2), "sin", (Fraction(-1), Fraction(1)))
    >>> ridge.expression((x1, y1)), ridge.norm(1, 2, 1, (Fraction(1), Fraction(1)))
    (-2*sin(x1 - y1), Fraction(2, 1))
    """

    coefficient: Fraction
    function: str
    form: Vector
    shift: Fraction = Fraction(0)
    weight: int | None = None

    def expression(self, variables: Sequence[sp.Symbol]) -> sp.Expr:
        """The term in SymPy."""
        t = _linear(self.form, variables) + _number(self.shift)
        weight = 1 if self.weight is None else variables[self.weight] ** 2
        return _number(self.coefficient) * weight * _FUNCTIONS[self.function][0](t)

    def norm(self, i: int, j: int, d: int, radii: Vector) -> Fraction:
        """A bound on the derivative block with i axes of x and j of y over the box, by the product rule."""
        T = abs(self.shift) + dot(map(abs, self.form), radii)
        sups = _FUNCTIONS[self.function][1](T)
        factors = (_ONE,) if self.weight is None else _powers(radii[self.weight], 2, 1)
        a, b = norm(self.form[:d]), norm(self.form[d:])
        along = (comb(i, m) * p * sups[i + j - m] * a ** (i - m) for m, p in enumerate(factors[: i + 1]))
        return abs(self.coefficient) * b**j * sum(along, Fraction(0))


@dataclass(frozen=True)
class Sum:
    """linear . z + z^T hessian z/2 + ridges, with z = (x, y) and d variables x.

    ``curvature`` is the norm of the hessian's block in y, where it is known exactly.

    >>> s = Sum(1, (Fraction(0), Fraction(1)), ((Fraction(0), Fraction(-2)), (Fraction(-2), Fraction(2))))
    >>> s.expression(sp.symbols("x1 y1")), s.norm(0, 2, (Fraction(1), Fraction(1)))
    (-2*x1*y1 + y1**2 + y1, Fraction(2, 1))
    """

    d: int
    linear: Vector
    hessian: Matrix
    ridges: tuple[Ridge, ...] = ()
    curvature: Fraction | None = None

    def expression(self, variables: Sequence[sp.Symbol]) -> sp.Expr:
        """The sum in SymPy."""
        size = len(variables)
        quadratic = (
            _number(self.hessian[a][b] / (1 + (a == b))) * variables[a] * variables[b]
            for a in range(size)
            for b in range(a, size)
            if self.hessian[a][b]
        )
        ridges = (ridge.expression(variables) for ridge in self.ridges)
        return sp.Add(_linear(self.linear, variables), *quadratic, *ridges)

    def norm(self, i: int, j: int, radii: Vector) -> Fraction:
        """A bound on the derivative block with i axes of x and j of y over the box."""
        ridges = sum((ridge.norm(i, j, self.d, radii) for ridge in self.ridges), Fraction(0))
        return ridges + self._polynomial(i, j, radii)

    def _polynomial(self, i: int, j: int, radii: Vector) -> Fraction:
        if i + j > 2:
            return Fraction(0)
        if i + j == 2:
            return self._block("x" if i else "y", "x" if j == 0 else "y")
        rows = slice(None, self.d) if i else slice(self.d, None)
        lines = zip(self.linear[rows], self.hessian[rows], strict=True)
        return norm(tuple(abs(slope) + dot(map(abs, row), radii) for slope, row in lines))

    def _block(self, rows: str, columns: str) -> Fraction:
        if (rows, columns) == ("y", "y") and self.curvature is not None:
            return self.curvature
        part = {"x": slice(None, self.d), "y": slice(self.d, None)}
        return _matrix_norm([row[part[columns]] for row in self.hessian[part[rows]]])

    def minus(self, other: Sum) -> Sum:
        """The difference."""
        return Sum(
            self.d,
            tuple(a - b for a, b in zip(self.linear, other.linear, strict=True)),
            tuple(
                tuple(a - b for a, b in zip(*rows, strict=True))
                for rows in zip(self.hessian, other.hessian, strict=True)
            ),
            (*self.ridges, *(replace(ridge, coefficient=-ridge.coefficient) for ridge in other.ridges)),
            self._block("y", "y") + other._block("y", "y"),
        )

    def rescaled(self, factors: Vector) -> Sum:
        """The same function of z times the factors, variable by variable; the curvature in y is no longer known."""
        return Sum(
            self.d,
            tuple(a * s for a, s in zip(self.linear, factors, strict=True)),
            tuple(
                tuple(a * s * t for a, t in zip(row, factors, strict=True))
                for row, s in zip(self.hessian, factors, strict=True)
            ),
            tuple(_rescaled(ridge, factors) for ridge in self.ridges),
        )


def _rescaled(ridge: Ridge, factors: Vector) -> Ridge:
    form = tuple(a * s for a, s in zip(ridge.form, factors, strict=True))
    weight = 1 if ridge.weight is None else factors[ridge.weight] ** 2
    return replace(ridge, form=form, coefficient=ridge.coefficient * weight)


def _number(value: Fraction) -> sp.Rational:
    return sp.Rational(value.numerator, value.denominator)


def _linear(form: Vector, variables: Sequence[sp.Symbol]) -> sp.Expr:
    return sp.Add(*(_number(a) * s for a, s in zip(form, variables, strict=True) if a))
