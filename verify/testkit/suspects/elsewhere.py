"""Blocks of f and g at points that are not (x, y*), and the hypergradient that a program finds which is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.engine import Session, over_points
from bilevel_sym.problem import BilevelProblem

__all__ = ["apply", "blocks_at", "hypergradient_at", "solved"]

Floats = NDArray[np.float64]


def blocks_at(problem: BilevelProblem, names: Sequence[str], x: Floats, y: Floats) -> tuple[Floats, ...]:
    """Blocks by name at points (..., d) and (..., n) that broadcast; not finite where f or g is not defined.

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    >>> g_x, g_yy = blocks_at(problem, ("g_x", "g_yy"), np.ones((3, 1)), np.full((2, 3, 1), 4.0))
    >>> g_x.shape, g_x[0, 0], g_yy[1, 2]
    ((2, 3, 1), array([-4.]), array([[2.]]))
    """
    shape = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    parts = [np.broadcast_to(part, (*shape, part.shape[-1])) for part in (x, y)]
    xy = np.concatenate(parts, axis=-1).reshape(-1, x.shape[-1] + y.shape[-1])

    def take(session: Session, rows: Floats) -> tuple[Floats, ...]:
        session.put(0, rows)
        return tuple(session.take(name) for name in names)

    with np.errstate(all="ignore"):
        values = over_points(problem.kernels.steady, names, xy, take)
    return tuple(value.reshape(*shape, *value.shape[1:]) for value in values)


def solved(matrix: Floats, right: Floats) -> Floats:
    """A^-1 b for stacks (..., n, n) and (..., n); nan where A is singular or not finite.

    >>> solved(np.array([[[2.0]], [[0.0]]]), np.ones((2, 1)))
    array([[0.5],
           [nan]])
    """
    usable: NDArray[np.bool_] = np.asarray(np.isfinite(matrix).all(axis=(-2, -1)))
    with np.errstate(all="ignore"):
        try:
            solution = _solved(usable, matrix, right)
        except np.linalg.LinAlgError:
            usable = usable & (np.abs(np.linalg.det(np.where(usable[..., None, None], matrix, 0.0))) > 0)
            solution = _solved(usable, matrix, right)
    return np.where(usable[..., None], solution, np.nan)


def _solved(usable: NDArray[np.bool_], matrix: Floats, right: Floats) -> Floats:
    safe = np.where(usable[..., None, None], matrix, np.eye(matrix.shape[-1]))
    return np.asarray(np.linalg.solve(safe, right[..., None])[..., 0])


def apply(matrix: Floats, vector: Floats) -> Floats:
    """A v for stacks (..., m, n) and (..., n); what overflows is inf.

    >>> apply(np.array([[[1.0, 2.0]]]), np.array([[3.0, 4.0]]))
    array([[11.]])
    """
    with np.errstate(all="ignore"):
        return np.asarray((matrix @ vector[..., None])[..., 0])


def hypergradient_at(problem: BilevelProblem, x: Floats, y: Floats) -> Floats:
    """f_x - g_xy g_yy^-1 f_y at any y: what a right formula gives for a wrong lower-level solution.

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")  # y* = x/2, grad Phi = x
    >>> hypergradient_at(problem, np.array([[2.0]]), np.array([[1.0]])), hypergradient_at(
    ...     problem, np.array([[2.0]]), np.array([[0.0]]))
    (array([[2.]]), array([[1.]]))
    """
    f_x, f_y, g_xy, g_yy = blocks_at(problem, ("f_x", "f_y", "g_xy", "g_yy"), x, y)
    return np.asarray(f_x - apply(g_xy, solved(g_yy, f_y)))
