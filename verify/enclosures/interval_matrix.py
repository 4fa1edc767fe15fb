"""Interval matrices in the form middle and radius, many at once: sums, products, solutions, norms, eigenvalues.

Every result contains the true one for all matrices inside the arguments. Nothing is assumed but IEEE 754: products
are padded for any order of summation (fused or not), and what LAPACK returns is used only as a guess whose residual is
bounded afterwards. A radius that is infinite or nan claims nothing.

>>> a = Matrices.around(np.array([[[2.0, 0.0], [0.0, 4.0]]]), 0.1)
>>> bool(4.0 < a.norm_upper()[0] < 4.3), bool(1.7 < a.smallest_eigenvalue_lower()[0] < 2.0)
(True, True)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import fmpq

from bilevel_sym.arithmetic.intervals import enclose
from bilevel_sym.arithmetic.linear_algebra import definiteness
from bilevel_sym.graph.nodes import LinearForm
from bilevel_sym.typing import FLOAT64_TINY, Floats, Indices

__all__ = ["PADDING", "ROUNDED_UP", "Matrices", "Pencil", "approximate_inverse", "finite_or_zero"]

PADDING = 2.3e-16  # relative: a little more than two roundings
ROUNDED_UP = 1 + 1e-14  # covers a handful of roundings of a positive number
MOST_PARTS = 400


@dataclass(frozen=True, eq=False)
class Matrices:
    """Lanes of interval matrices: ``middle`` and ``radius`` are arrays (lanes, rows, columns).

    >>> a = Matrices.between(np.array([[[1.0]]]), np.array([[[3.0]]]))
    >>> product = a @ a
    >>> bool(product.lower[0, 0, 0] <= 1 and product.upper[0, 0, 0] >= 9)
    True
    """

    middle: Floats
    radius: Floats

    @staticmethod
    @np.errstate(all="ignore")
    def between(lower: Floats, upper: Floats) -> Matrices:
        """From the ends."""
        middle = 0.5 * lower + 0.5 * upper
        radius = np.maximum(upper - middle, middle - lower)
        radius *= 1 + PADDING
        return Matrices(middle, radius)

    @staticmethod
    def around(middle: Floats, radius: Floats | float = 0.0) -> Matrices:
        """A middle with a radius; by default these numbers and no others."""
        return Matrices(middle, np.broadcast_to(np.asarray(radius, dtype=np.float64), middle.shape))

    @staticmethod
    def identity(shape: tuple[int, ...]) -> Matrices:
        """Identity matrices of this shape, (lanes, size, size)."""
        return Matrices.around(np.broadcast_to(np.eye(shape[-1]), shape))

    @property
    def lower(self) -> Floats:
        """Lower ends."""
        return np.asarray(self.middle - self._padded)

    @property
    def upper(self) -> Floats:
        """Upper ends."""
        return np.asarray(self.middle + self._padded)

    @property
    def _padded(self) -> Floats:
        """The radius, and what rounding may do to the ends."""
        return np.asarray(self.radius + (PADDING * np.abs(self.middle) + PADDING * self.radius + FLOAT64_TINY))

    @property
    def magnitude(self) -> Floats:
        """The largest absolute value of each entry."""
        return np.asarray((np.abs(self.middle) + self.radius) * ROUNDED_UP)

    @property
    def T(self) -> Matrices:
        """Transposed."""
        return Matrices(self.middle.swapaxes(-1, -2), self.radius.swapaxes(-1, -2))

    def __neg__(self) -> Matrices:
        return Matrices(-self.middle, self.radius)

    def __add__(self, other: Matrices) -> Matrices:
        return self._sum(other, self.middle + other.middle)

    def __sub__(self, other: Matrices) -> Matrices:
        return self._sum(other, self.middle - other.middle)

    def _sum(self, other: Matrices, middle: Floats) -> Matrices:
        radius = self.radius + other.radius
        radius = radius + PADDING * (np.abs(middle) + radius) + FLOAT64_TINY
        return Matrices(middle, radius)

    def __matmul__(self, other: Matrices) -> Matrices:
        """A sum of k products errs by gamma_k times the product of the magnitudes, and a denormal for each product."""
        terms = self.middle.shape[-1]
        gamma = (terms + 16) * 1.2e-16
        size, reach = np.abs(self.middle), np.abs(other.middle)
        pad = gamma * reach + other.radius
        radius = size @ pad
        if np.any(self.radius):
            radius = radius + self.radius @ (reach + other.radius)
        radius = radius * (1 + 2 * gamma) + (4 * terms + 4) * FLOAT64_TINY
        return Matrices(self.middle @ other.middle, radius)

    def scaled(self, factor: float) -> Matrices:
        """Times an exact number."""
        middle = factor * self.middle
        return Matrices(middle, abs(factor) * self.radius * (1 + PADDING) + PADDING * np.abs(middle) + FLOAT64_TINY)

    def reshaped(self, *shape: int) -> Matrices:
        """The same entries in another shape."""
        return Matrices(self.middle.reshape(shape), self.radius.reshape(shape))

    def symmetric_part(self) -> Matrices:
        """Half the sum with the transposed one: the same matrix where it is known to be symmetric."""
        return (self + self.T).scaled(0.5)

    def meet(self, other: Matrices) -> Matrices:
        """The intersection, for two enclosures of one thing; where one claims nothing, the other stands."""
        lower = np.fmax(self.lower, other.lower)
        upper = np.fmin(self.upper, other.upper)
        return Matrices.between(lower, np.maximum(lower, upper))

    def solve(self, right: Matrices) -> Matrices:
        """All solutions X of A X = B; radius infinite where A may be singular."""
        return self.solved_by(right, Matrices.around(approximate_inverse(self.middle)))

    def solved_by(self, right: Matrices, precondition: Matrices) -> Matrices:
        """The same, by a preconditioner: an approximate inverse of A."""
        guess = Matrices.around(precondition.middle @ right.middle)
        rest = (precondition @ (right - self @ guess)).magnitude
        off = (Matrices.identity(self.middle.shape) - precondition @ self).magnitude
        return Matrices(guess.middle, neumann_bound(off, rest))

    # ------------------------------------------------------------------ norms

    def norm_upper(self) -> Floats:
        """An upper bound of the spectral norm of every matrix inside, (lanes,)."""
        with np.errstate(all="ignore"):
            bound = (_norm_upper(self.middle) + radius_norm(self.radius)) * ROUNDED_UP
        return np.where(np.isnan(bound), np.inf, bound)

    def smallest_eigenvalue_lower(self) -> Floats:
        """A lower bound of the eigenvalues of every symmetric matrix inside, (lanes,)."""
        with np.errstate(all="ignore"):
            values, defect, residual = _eigen(self.middle)
            least = values[:, 0]
            away = (np.abs(least) * defect + residual + radius_norm(self.radius)) * ROUNDED_UP
            bound = least - away - PADDING * np.abs(least)
        return np.where(np.isnan(bound), -np.inf, bound)

    def largest_eigenvalue_upper(self) -> Floats:
        """An upper bound of the eigenvalues of every symmetric matrix inside, (lanes,)."""
        return np.asarray(-(-self).smallest_eigenvalue_lower())


def neumann_bound(off: Floats, rest: Floats) -> Floats:
    """A bound of |E| entry by entry from E = R + C E with |C| <= off, |R| <= rest; infinite where |C| may reach 1.

    >>> float(neumann_bound(np.array([[[0.5]]]), np.array([[[1.0]]]))[0, 0, 0]) >= 2.0
    True
    """
    contraction = off.sum(axis=-1, keepdims=True).max(axis=-2, keepdims=True) * ROUNDED_UP
    with np.errstate(all="ignore"):
        most = rest.max(axis=-2, keepdims=True) / (1 - contraction) * ROUNDED_UP
        bound = (rest + (off.sum(axis=-1, keepdims=True) * ROUNDED_UP) * most) * ROUNDED_UP
    return np.where((contraction < 1) & np.isfinite(bound), bound, np.inf)


def radius_norm(radius: Floats) -> Floats:
    """A bound of the spectral norm of all matrices with entries below the radius, (lanes,)."""
    squares = np.sqrt(np.square(radius).sum(axis=(-2, -1)))
    rows, columns = radius.sum(axis=-1).max(axis=-1), radius.sum(axis=-2).max(axis=-1)
    return np.asarray(np.minimum(squares, np.sqrt(rows) * np.sqrt(columns)) * ROUNDED_UP + 1e-150)


def approximate_inverse(middle: Floats) -> Floats:
    """An approximate inverse of each matrix; nan where there is none.

    >>> approximate_inverse(np.array([[[2.0]], [[0.0]]]))[:, 0, 0]
    array([0.5, nan])
    """
    safe = np.where(np.isfinite(middle).all(axis=(-2, -1), keepdims=True), middle, np.eye(middle.shape[-1]))
    try:
        inverse = np.linalg.inv(safe)
    except np.linalg.LinAlgError:
        inverse = np.full_like(safe, np.nan)
        for lane, matrix in enumerate(safe):
            if np.linalg.matrix_rank(matrix) == len(matrix):
                inverse[lane] = np.linalg.inv(matrix)
    return np.where(np.isfinite(middle).all(axis=(-2, -1), keepdims=True), inverse, np.nan)


def finite_or_zero(middle: Floats) -> Floats:
    """LAPACK neither stops nor warns at nan in all versions: such lanes are zero, and answered with nan later."""
    return np.where(np.isfinite(middle).all(axis=(-2, -1), keepdims=True), middle, 0.0)


def _eigen(middle: Floats) -> tuple[Floats, Floats, Floats]:
    """Approximate eigenvalues in order, |Q^T Q - I| and |M - Q diag Q^T|: M is that product up to the residual."""
    finite = np.asarray(np.isfinite(middle).all(axis=(-2, -1)))
    values, vectors = np.linalg.eigh(finite_or_zero(middle))
    q = Matrices.around(vectors)
    defect = radius_norm((q.T @ q - Matrices.identity(middle.shape)).magnitude)
    scaled = Matrices.around(vectors * values[:, None, :])
    scaled = Matrices(scaled.middle, np.abs(scaled.middle) * PADDING + FLOAT64_TINY)
    residual = radius_norm((Matrices.around(middle) - scaled @ q.T).magnitude)
    return np.where(finite[:, None], values, np.nan), defect, residual


def _norm_upper(middle: Floats) -> Floats:
    """|M| <= |U| |V| s + |M - U s V^T|."""
    if middle.shape[-2:] == (1, 1):
        return np.abs(middle[:, 0, 0])
    if min(middle.shape[-2:]) == 1:
        return np.asarray(np.sqrt(np.square(middle).sum(axis=(-2, -1))) * ROUNDED_UP + 1e-150)
    finite = np.asarray(np.isfinite(middle).all(axis=(-2, -1)))
    left, values, right = np.linalg.svd(finite_or_zero(middle), full_matrices=False)
    u, v = Matrices.around(left), Matrices.around(right)
    eye = Matrices.identity((len(values), *[values.shape[-1]] * 2))
    defect = np.maximum(radius_norm((u.T @ u - eye).magnitude), radius_norm((v @ v.T - eye).magnitude))
    scaled = Matrices(left * values[:, None, :], np.abs(left * values[:, None, :]) * PADDING + FLOAT64_TINY)
    residual = radius_norm((Matrices.around(middle) - scaled @ v).magnitude)
    bound = (values.max(axis=-1) * (1 + defect) + residual) * ROUNDED_UP
    return np.where(finite, bound, np.nan)


# ---------------------------------------------------------------------- pencils: A_0 + sum of t_k A_k
# Entry by entry, sums of squares such as sum of t_k a_k a_k^T with t_k >= 0 lose that they are sums of squares. Here a
# part A_k that is positive semidefinite is taken at the lower end of t_k, for the smallest eigenvalue grows with it.


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
