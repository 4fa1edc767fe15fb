"""The implicit formulas in compiled code, for one point: both stages of a program and the solve between them."""

from __future__ import annotations

import math

import numpy as np

from bilevel_sym.arithmetic.compiled.interpreter import jit
from bilevel_sym.arithmetic.compiled.single import run

__all__ = ["expand"]


@jit
def _eliminate(values, g_yy, g_xy, f_y, filled, v, right):
    """Solve g_yy [v, dy_dx^T] = [f_y, -g_yx] into ``right`` (n, 1 + d); False where g_yy is not positive definite."""
    d, n = g_xy.shape
    factor = np.empty((n, n))
    for i in range(n):
        for j in range(i + 1):
            factor[i, j] = values[g_yy[i, j]]
        right[i, 0] = values[f_y[i]]
        for j in range(d):
            right[i, j + 1] = -values[g_xy[j, i]]
    for j in range(n):
        for i in range(j, n):
            total = 0.0
            if filled[i, j]:
                total = factor[i, j]
                for k in range(j):
                    total -= factor[i, k] * factor[j, k]
            if i > j:
                factor[i, j] = total * factor[j, j]
            elif not total > 0.0 or total == np.inf:
                return False
            else:
                factor[j, j] = 1.0 / math.sqrt(total)  # the diagonal holds reciprocals
    for i in range(n):
        for k in range(i):
            if filled[i, k]:
                for j in range(d + 1):
                    right[i, j] -= factor[i, k] * right[k, j]
        for j in range(d + 1):
            right[i, j] *= factor[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            if filled[k, i]:
                for j in range(d + 1):
                    right[i, j] -= factor[k, i] * right[k, j]
        for j in range(d + 1):
            right[i, j] *= factor[i, i]
        values[v[i]] = right[i, 0]
    return True


@jit
def _assemble(values, f_x, g_xy, l_xx, l_xy, l_yy, zero, right, grad, hess):
    """grad Phi and Hess Phi from all places; ``zero`` is the place of the constant 0, which is skipped."""
    d, n = g_xy.shape
    moved = np.empty((n, d))
    half = np.empty((d, n))
    for k in range(n):
        for j in range(d):
            moved[k, j] = right[k, j + 1]
    for i in range(d):
        total = values[f_x[i]]
        for k in range(n):
            total -= values[g_xy[i, k]] * right[k, 0]
            half[i, k] = values[l_xy[i, k]]
        grad[i] = total
    for j in range(n):
        for k in range(n):
            if l_yy[j, k] != zero:
                weight = 0.5 * values[l_yy[j, k]]
                for i in range(d):
                    half[i, j] += moved[k, i] * weight
    cross = np.dot(half, moved)
    for i in range(d):
        for j in range(d):
            hess[i, j] = values[l_xx[i, j]] + (cross[i, j] + cross[j, i])


@jit
def expand(
    first, first_places, first_weights, second, second_places, second_weights, template, table, d, n, zero, xy, out
):
    """Phi, grad Phi and Hess Phi of one point into ``out``, both stages and the solve between them; False on failure.

    ``table`` holds the places of f, f_x, f_y, g_xy, g_yy, L_xx, L_xy, L_yy, v, and the pattern of the factor.
    """
    values = template.copy()
    for i in range(d + n):  # by hand, for numba compiles half a library for an assignment of slices
        values[1 + i] = xy[i]
    run(first, first_places, first_weights, values)
    k = 1 + d
    f_y = table[k : k + n]
    k += n
    g_xy = table[k : k + d * n].reshape(d, n)
    k += d * n
    g_yy = table[k : k + n * n].reshape(n, n)
    k += n * n
    l_xx = table[k : k + d * d].reshape(d, d)
    k += d * d
    l_xy = table[k : k + d * n].reshape(d, n)
    k += d * n
    l_yy = table[k : k + n * n].reshape(n, n)
    k += n * n
    v = table[k : k + n]
    k += n
    filled = table[k : k + n * n].reshape(n, n)
    right = np.empty((n, d + 1))
    if not _eliminate(values, g_yy, g_xy, f_y, filled, v, right):
        return False
    run(second, second_places, second_weights, values)
    out[0] = values[table[0]]
    _assemble(values, table[1 : 1 + d], g_xy, l_xx, l_xy, l_yy, zero, right, out[1 : 1 + d], out[1 + d :].reshape(d, d))
    return True
