"""Quadratic problems with a chosen spectrum: everything about them is an exact rational.

Dense rational matrices whose eigenvalues or singular values are chosen.

A reflection I - 2 v v^T / (v^T v) with an integer vector v is orthogonal and rational, so that
products of reflections give dense matrices with known spectra and not a single rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice

import numpy as np
import sympy as sp

from bilevel_sym import Constants
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.zoo.entry import MOST_VARIABLES, Example, KnownPoint, entry, exact_constants, require_range

__all__ = ["quadratic"]

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


_BOX_RADIUS = sp.Integer(2)  # the box in x is [-2, 2]^d


@entry
def quadratic(*, d: int = 2, n: int = 3, spectrum: object = "two", seed: int = 0) -> Example:
    """Random quadratics: a chosen spectrum below, indefinite curvature above.

    g = y^T A y/2 - x^T B y - b^T y and f = x^T P x/2 + x^T C y + y^T R y/2 + p^T x + q^T y, hence
    y* = K x + k with K = A^-1 B^T, k = A^-1 b, and Hess Phi = P + C K + K^T C^T + K^T R K.

    ``spectrum`` gives the eigenvalues of A: "isotropic" (all 2), "two" (1 and 4), a number kappa
    (spread evenly from 1 to kappa), or n positive numbers; in text they are joined by colons, as
    in "1:2:5". A and B are dense. P, C and R are diagonal so that M is exact on the box, and
    every norm but that of A is at most mu, so that ``constants.kappa`` is the condition number of
    A.

    Reference: made for this package.

    >>> example = quadratic(d=2, n=3, spectrum=10)
    >>> example.constants.kappa, example.stationary_points[0].kind
    (10, 'saddle')
    >>> quadratic(d=1, n=2, spectrum="1/2:3").constants.mu
    1/2
    """
    require_range("d", d, 1, MOST_VARIABLES)
    require_range("n", n, 1, MOST_VARIABLES)
    require_range("seed", seed, 0, 2**63)
    drawn = _draw(d, n, _eigenvalues(spectrum, n), np.random.default_rng(seed))
    return Example(
        problem=drawn.problem,
        y_star=drawn.y_star,
        phi=drawn.phi,
        stationary_points=(KnownPoint(tuple(drawn.x0), "local minimum" if d == 1 else "saddle"),),
        all_stationary=True,
        constants=drawn.constants,
    )


@dataclass(frozen=True)
class _Quadratic:
    """One quadratic problem in the letters of the docstring above, stationary at x0."""

    eigenvalues: tuple[sp.Rational, ...]
    A: sp.Matrix
    A_inverse: sp.Matrix
    B: sp.Matrix
    b: sp.Matrix
    P: sp.Matrix
    C: sp.Matrix
    R: sp.Matrix
    q: sp.Matrix
    x0: sp.Matrix

    @cached_property
    def x(self) -> tuple[sp.Symbol, ...]:
        return tuple(sp.symbols(f"x1:{self.B.rows + 1}"))

    @cached_property
    def y(self) -> tuple[sp.Symbol, ...]:
        return tuple(sp.symbols(f"y1:{self.B.cols + 1}"))

    @cached_property
    def K(self) -> sp.Matrix:
        return self.A_inverse * self.B.T

    @cached_property
    def k(self) -> sp.Matrix:
        return self.A_inverse * self.b

    @cached_property
    def hessian(self) -> sp.Matrix:
        """Hess Phi."""
        cross = self.C * self.K
        return self.P + cross + cross.T + self.K.T * self.R * self.K

    @cached_property
    def p(self) -> sp.Matrix:
        """What makes x0 stationary: minus the slope of everything else there."""
        slope = self.C * self.k + self.K.T * (self.R * self.k + self.q)
        return -(self.hessian * self.x0 + slope)

    @cached_property
    def reach(self) -> list[sp.Integer]:
        """How far from zero each y*_j comes over the box in x, rounded up."""
        far = (_BOX_RADIUS * sum(map(abs, self.K.row(j))) + abs(self.k[j]) for j in range(self.K.rows))
        return [sp.Integer(max(1, math.ceil(value))) for value in far]

    @property
    def problem(self) -> BilevelProblem:
        x, y = self.x, self.y
        own = quadratic_form(self.P, x) + quadratic_form(self.R, y)
        f = own + _bilinear(x, self.C, y) + linear_form(self.p, x) + linear_form(self.q, y)
        g = quadratic_form(self.A, y) - _bilinear(x, self.B, y) - linear_form(self.b, y)
        box = {s.name: (-_BOX_RADIUS, _BOX_RADIUS) for s in x}
        box |= {s.name: (-far, far) for s, far in zip(y, self.reach, strict=True)}
        return BilevelProblem(f, g, x, y, box=box, name="quadratic")

    @property
    def y_star(self) -> tuple[sp.Expr, ...]:
        return tuple(linear_form(self.K.row(j), self.x) + self.k[j] for j in range(self.K.rows))

    @property
    def phi(self) -> sp.Expr:
        """Its expansion at x0, where the slope is zero, moved to the origin."""
        y0 = self.K * self.x0 + self.k
        value = (self.x0.T * (self.P * self.x0 / 2 + self.C * y0 + self.p))[0]
        value += (y0.T * (self.R * y0 / 2 + self.q))[0]
        curvature = self.hessian * self.x0
        linear = linear_form(-curvature, self.x)
        return quadratic_form(self.hessian, self.x) + linear + value + self.x0.dot(curvature) / 2

    @property
    def constants(self) -> Constants:
        """Exact: no two components of f_x share a variable, nor do two of f_y."""
        of_x = [_BOX_RADIUS * abs(self.P[i, i]) + abs(self.p[i]) for i in range(self.P.rows)]
        of_y = [far * abs(self.R[j, j]) + abs(self.q[j]) for j, far in enumerate(self.reach)]
        for i in range(min(self.C.shape)):
            of_x[i] += self.reach[i] * self.C[i, i]
            of_y[i] += _BOX_RADIUS * self.C[i, i]
        largest = sp.sqrt(max(sum(t**2 for t in of_x), sum(t**2 for t in of_y)))
        mu, ell = min(self.eigenvalues), max(self.eigenvalues)
        return exact_constants(mu=mu, ell=ell, rho=0, nu=0, M=largest)


def _draw(d: int, n: int, eigenvalues: tuple[sp.Rational, ...], rng: np.random.Generator) -> _Quadratic:
    """Since |B| = mu we have |K| <= 1, and Hess Phi differs from P by at most 2|C| + |R| = mu/2.

    The entries of P are at least 3 mu/4 in size: by Weyl, the signs of P are the inertia of Hess
    Phi.
    """
    mu, turns = min(eigenvalues), integer_vectors(rng, n)
    values = _alternating((mu, mu / 2), min(d, n))
    left, right = integer_vectors(rng, d), integer_vectors(rng, n)
    b, q, x0 = (sp.Matrix(integer_vectors(rng, size, 1)).T for size in (n, n, d))
    return _Quadratic(
        eigenvalues=eigenvalues,
        A=with_spectrum(eigenvalues, turns),
        A_inverse=with_spectrum([1 / value for value in eigenvalues], turns),
        B=with_singular_values(values, (d, n), left, right),
        b=mu * b,
        P=sp.diag(*_alternating((mu, -3 * mu / 4), d)),
        C=sp.Matrix(d, n, lambda i, j: mu / 8 if i == j else 0),
        R=sp.diag(*_alternating((-mu / 4, mu / 4), n)),
        q=mu * q,
        x0=x0 / 2,
    )


def _alternating(pair: tuple[sp.Rational, sp.Rational], count: int) -> tuple[sp.Rational, ...]:
    return tuple(islice(cycle(pair), count))


def _bilinear(x: tuple[sp.Symbol, ...], matrix: sp.Matrix, y: tuple[sp.Symbol, ...]) -> sp.Expr:
    return sp.Add(*(matrix[i, j] * s * t for i, s in enumerate(x) for j, t in enumerate(y)))


def _eigenvalues(spectrum: object, n: int) -> tuple[sp.Rational, ...]:
    if spectrum == "isotropic":
        return (sp.Integer(2),) * n
    if spectrum == "two":
        return _alternating((sp.Integer(1), sp.Integer(4)), n)
    if isinstance(spectrum, sp.Rational):
        return eigenvalues_between(sp.Integer(1), spectrum, n)
    if isinstance(spectrum, tuple) and len(spectrum) == n and all(v > 0 for v in spectrum):
        return spectrum
    raise InvalidArgument(
        f"the spectrum {spectrum!s:.60} does not give {n} positive eigenvalues",
        hint='"isotropic", "two", a condition number, or n numbers as in (1, 2, 5) or "1:2:5"',
    )
