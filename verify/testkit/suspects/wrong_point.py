"""The hypergradient that a program finds which is not at (x, y*), and linear algebra that survives what it meets."""

from __future__ import annotations

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Bools, Floats
from verify.points.derivatives_at import blocks_at

__all__ = ["apply", "hypergradient_at", "solved"]


def solved(matrix: Floats, right: Floats) -> Floats:
    """A^-1 b for stacks (..., n, n) and (..., n); nan where A is singular or not finite.

    >>> solved(np.array([[[2.0]], [[0.0]]]), np.ones((2, 1)))
    array([[0.5],
           [nan]])
    """
    usable: Bools = np.asarray(np.isfinite(matrix).all(axis=(-2, -1)))
    with np.errstate(all="ignore"):
        try:
            solution = _solved(usable, matrix, right)
        except np.linalg.LinAlgError:
            usable = usable & (np.abs(np.linalg.det(np.where(usable[..., None, None], matrix, 0.0))) > 0)
            solution = _solved(usable, matrix, right)
    return np.where(usable[..., None], solution, np.nan)


def _solved(usable: Bools, matrix: Floats, right: Floats) -> Floats:
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
    f_x, f_y, g_xy, g_yy = blocks_at(problem.kernels, ("f_x", "f_y", "g_xy", "g_yy"), x, y)
    return np.asarray(f_x - apply(g_xy, solved(g_yy, f_y)))
