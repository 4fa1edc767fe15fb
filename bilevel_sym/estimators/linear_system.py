"""g_yy v = f_y by few products: N steps of conjugate gradients, or Q terms of the Neumann series.

Many systems at once, one per lane: vectors are arrays (n, lanes), and nothing a lane does depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from bilevel_sym.typing import Bools, Floats

__all__ = ["ZERO_RESIDUAL", "Product", "Solved", "conjugate_gradients", "dots", "neumann_series"]

Product: TypeAlias = Callable[[Floats], Floats]  # v -> g_yy v

ZERO_RESIDUAL = 1e-300  # a squared residual below this is zero: its products would underflow


class Solved(NamedTuple):
    """The last iterate, and the lanes in which the matrix was seen not to be positive definite.

    >>> Solved(np.zeros((1, 1)), np.array([True])).broken
    array([ True])
    """

    v: Floats
    broken: Bools

    @classmethod
    def sound(cls, v: Floats) -> Solved:
        """v, and no lane is broken.

        >>> Solved.sound(np.zeros((1, 2))).broken
        array([False, False])
        """
        return cls(v, np.zeros(v.shape[1], dtype=np.bool_))


def dots(a: Floats, b: Floats) -> Floats:
    """The scalar product of each lane. A sum over the first axis goes row by row, whatever the number of lanes.

    >>> dots(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2)))
    array([4., 6.])
    """
    products: Floats = np.add.reduce(a * b, axis=0)
    return products


def conjugate_gradients(product: Product, right: Floats, start: Floats, steps: int) -> Solved:
    """``steps`` steps of conjugate gradients for A v = right from ``start``; A positive definite.

    A lane whose residual is zero stays where it is: at an exact start, after an early end, for steps beyond n. A lane
    that meets p^T A p <= 0 with a residual left is broken, and keeps its last iterate. Residuals are scaled by a
    power of two, so that their squares neither overflow nor vanish.

    >>> A = np.array([[2.0, 0.0], [0.0, 3.0]])
    >>> conjugate_gradients(lambda p: A @ p, np.array([[2.0], [3.0]]), np.zeros((2, 1)), 5).v.T
    array([[1., 1.]])
    """
    with np.errstate(all="ignore"):
        residual = right - product(start)
        _, scale = np.frexp(np.abs(residual).max(axis=0))
        residual = np.ldexp(residual, -scale)
        direction = residual.copy()
        correction = np.zeros_like(residual)
        size = dots(residual, residual)
        broken = np.zeros(size.shape, dtype=np.bool_)
        for _ in range(steps):
            going = ~(size <= ZERO_RESIDUAL) & ~broken  # NaN goes on, and is found by whoever looks at v
            if not going.any():
                break
            image = product(direction)
            curvature = dots(direction, image)
            broken |= going & (curvature <= 0)
            alpha = np.where(going & ~broken, size / curvature, 0.0)
            correction += alpha * direction
            residual -= alpha * image
            size, before = dots(residual, residual), size
            beta = np.where(going & ~broken, size / before, 0.0)
            direction = residual + beta * direction
        return Solved(start + np.ldexp(correction, scale), broken)


def neumann_series(product: Product, right: Floats, eta: float, terms: int) -> Floats:
    """eta times the sum of (I - eta A)^q right over q = 0, ..., ``terms``: tends to A^-1 right for eta < 2/|A|.

    Paper: Equation 4.7 [est-vq]

    >>> neumann_series(lambda v: 2 * v, np.array([[1.0]]), 0.25, 60)
    array([[0.5]])
    """
    power = right.copy()
    total = right.copy()
    for _ in range(terms):
        power -= eta * product(power)
        total += power
    return eta * total
