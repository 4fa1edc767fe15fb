"""The implicit formulas in compiled code, a block of lanes at a time, or one point (``expand``).

A block of lanes of a matrix is an array (rows, columns, BLOCK). Sums run over lists of indices, so that entries known
to be zero cost nothing, and take four terms in one pass, so that results are read and written less often.

Written apart from ``implicit.second_order`` on purpose (v, dy_dx, grad Phi, Hess Phi): numba compiles no
objects of ours, and no matrix product that knows which entries vanish. Tests hold the engines against each other.
"""

from __future__ import annotations

import math

import numpy as np

from bilevel_sym.arithmetic.compiled.elementwise import jit
from bilevel_sym.arithmetic.compiled.interpreter import run

__all__ = ["BLOCK", "assemble", "eliminate", "expand"]

BLOCK = 64  # lanes: enough to forget the price of entering a loop
WORTH_BLAS = 144  # entries of a matrix from which a library call pays


@jit
def _add_product(target, left, right, which, count, sign):
    """target += sign * sum over k in which[:count] of left[k] * right[k]; all (BLOCK,) pieces."""
    t = 0
    while t + 4 <= count:
        a, b, c, d = left[which[t]], left[which[t + 1]], left[which[t + 2]], left[which[t + 3]]
        e, f, g, h = right[which[t]], right[which[t + 1]], right[which[t + 2]], right[which[t + 3]]
        for m in range(BLOCK):
            target[m] += sign * ((a[m] * e[m] + b[m] * f[m]) + (c[m] * g[m] + d[m] * h[m]))
        t += 4
    while t < count:
        a, e = left[which[t]], right[which[t]]
        for m in range(BLOCK):
            target[m] += sign * (a[m] * e[m])
        t += 1


@jit
def _add_products(target, left, right, which, count, sign):
    """The same for a whole row: target[j] += sign * sum of left[k] * right[k, j]."""
    t = 0
    while t + 4 <= count:
        p, q, r, s = which[t], which[t + 1], which[t + 2], which[t + 3]
        a, b, c, d = left[p], left[q], left[r], left[s]
        for j in range(target.shape[0]):
            out, e, f, g, h = target[j], right[p, j], right[q, j], right[r, j], right[s, j]
            for m in range(BLOCK):
                out[m] += sign * ((a[m] * e[m] + b[m] * f[m]) + (c[m] * g[m] + d[m] * h[m]))
        t += 4
    while t < count:
        a = left[which[t]]
        for j in range(target.shape[0]):
            out, e = target[j], right[which[t], j]
            for m in range(BLOCK):
                out[m] += sign * (a[m] * e[m])
        t += 1


@jit
def _where(entries, start, stop, which):
    """The indices from ``start`` to ``stop`` at which ``entries`` are true, into ``which``; how many."""
    count = np.int64(0)
    for k in range(start, stop):
        if entries[k]:
            which[count] = k
            count += 1
    return count


@jit
def _copy(target, work, place, base):
    """A block of lanes of one place; by hand, for numba compiles half a library for an assignment of slices."""
    for m in range(BLOCK):
        target[m] = work[place, base + m]


@jit
def eliminate(work, g_yy, g_xy, f_y, filled, v, response, failed):
    """v = g_yy^-1 f_y into the places of v, and dy_dx^T into ``response``, by Cholesky in every lane.

    ``filled[i, j]`` says where the factor can be other than zero; ``failed`` marks lanes without positive pivots.
    """
    d, n = g_xy.shape
    factor = np.empty((n, n, BLOCK))
    single = np.empty((n, 1, BLOCK))
    which = np.empty(n, np.int64)
    for block in range(work.shape[1] // BLOCK):
        base = block * BLOCK
        right = response[block]
        for i in range(n):
            for j in range(i + 1):
                if filled[i, j]:
                    for m in range(BLOCK):
                        factor[i, j, m] = work[g_yy[i, j], base + m]
            for m in range(BLOCK):
                single[i, 0, m] = work[f_y[i], base + m]
            for j in range(d):
                for m in range(BLOCK):
                    right[i, j, m] = -work[g_xy[j, i], base + m]
        _factorise(factor, filled, failed[base : base + BLOCK], which)
        _substitute(factor, filled, single, which)
        _substitute(factor, filled, right, which)
        for i in range(n):
            for m in range(BLOCK):
                work[v[i], base + m] = single[i, 0, m]


@jit
def _factorise(factor, filled, failed, which):
    """Cholesky in place, column by column, mirrored into the upper triangle; the diagonal holds reciprocals."""
    n = factor.shape[0]
    for j in range(n):
        for i in range(j, n):
            if not filled[i, j]:
                continue
            count = np.int64(0)
            for k in range(j):
                if filled[i, k] and filled[j, k]:
                    which[count] = k
                    count += 1
            _add_product(factor[i, j], factor[i], factor[j], which, count, -1.0)
            if i == j:
                for m in range(BLOCK):
                    # also true of NaN
                    failed[m] = failed[m] or not factor[j, j, m] > 0.0 or factor[j, j, m] == np.inf
                    factor[j, j, m] = 1.0 / math.sqrt(factor[j, j, m])
            else:
                for m in range(BLOCK):
                    factor[i, j, m] *= factor[j, j, m]
                    factor[j, i, m] = factor[i, j, m]


@jit
def _substitute(factor, filled, right, which):
    n, columns, _ = right.shape
    for i in range(n):
        count = _where(filled[i], 0, i, which)
        _add_products(right[i], factor[i], right, which, count, -1.0)
        for j in range(columns):
            for m in range(BLOCK):
                right[i, j, m] *= factor[i, i, m]
    for i in range(n - 1, -1, -1):
        count = _where(filled[:, i], i + 1, n, which)
        _add_products(right[i], factor[i], right, which, count, -1.0)
        for j in range(columns):
            for m in range(BLOCK):
                right[i, j, m] *= factor[i, i, m]


@jit
def _curved(work, base, l_yy, zero, scale, moved, curvature, which, curved):
    """curved += scale * L_yy dy_dx^T, (n, d) pieces; entries of L_yy at the place ``zero`` are skipped."""
    n = l_yy.shape[0]
    for j in range(n):
        some = np.int64(0)
        for k in range(n):
            if l_yy[j, k] != zero:
                which[some] = k
                some += 1
        for t in range(some):
            for m in range(BLOCK):
                curvature[which[t], m] = scale * work[l_yy[j, which[t]], base + m]
        _add_products(curved[j], curvature, moved, which, some, 1.0)


@jit
def _full(work, base, l_xx, l_xy, l_yy, zero, moved, curvature, which, curved, lefts, rights, product, hess):
    """hess = L_xx + S + S^T with S = (L_xy + dy_dx L_yy / 2) dy_dx^T, the last product by a library call a lane."""
    d, n = l_xy.shape
    for k in range(n):
        for i in range(d):
            _copy(curved[k, i], work, l_xy[i, k], base)
    _curved(work, base, l_yy, zero, 0.5, moved, curvature, which, curved)
    for k in range(n):
        for m in range(BLOCK):
            for i in range(d):
                lefts[m, k, i] = curved[k, i, m]
                rights[m, k, i] = moved[k, i, m]
    for i in range(d):
        for m in range(hess.shape[0]):
            for j in range(d):
                hess[m, i, j] = work[l_xx[i, j], base + m]
    for m in range(hess.shape[0]):
        np.dot(lefts[m].T, rights[m], product)
        for i in range(d):
            for j in range(d):
                hess[m, i, j] += product[i, j] + product[j, i]


@jit
def _sparse(work, base, l_xx, l_xy, l_yy, zero, moved, curvature, which, curved, turned, lower, everyone, hess):
    """The same where L_xy is mostly zero or the matrices are small: lower triangles only, all lanes together.

    hess = L_xx + K + K^T + dy_dx L_yy dy_dx^T with K = L_xy dy_dx^T.
    """
    d, n = l_xy.shape
    for k in range(n):
        for i in range(d):
            for m in range(BLOCK):
                curved[k, i, m] = 0.0
    _curved(work, base, l_yy, zero, 1.0, moved, curvature, which, curved)
    for k in range(n):
        for i in range(d):
            for m in range(BLOCK):
                turned[i, k, m] = curved[k, i, m]
    for i in range(d):
        for j in range(i + 1):
            _copy(lower[i, j], work, l_xx[i, j], base)
        _add_products(lower[i, : i + 1], turned[i], moved, everyone, n, 1.0)
    for i in range(d):
        for k in range(n):
            if l_xy[i, k] != zero:
                weight = work[l_xy[i, k], base : base + BLOCK]
                for j in range(d):
                    _add_one(lower[max(i, j), min(i, j)], weight, moved[k, j], 2.0 if i == j else 1.0)
    for i in range(d):
        for m in range(hess.shape[0]):
            for j in range(i + 1):
                hess[m, i, j] = lower[i, j, m]
                hess[m, j, i] = lower[i, j, m]


@jit
def _add_one(target, left, right, scale):
    for m in range(BLOCK):
        target[m] += scale * (left[m] * right[m])


@jit
def assemble(work, f, f_x, g_xy, v, l_xx, l_xy, l_yy, zero, response, phi, grad, hess):
    """Phi, its gradient and Hessian from all places; ``zero`` is the place of the constant 0 (or -1): it is skipped."""
    d, n = g_xy.shape
    curved, turned, curvature = np.empty((n, d, BLOCK)), np.empty((d, n, BLOCK)), np.empty((n, BLOCK))
    lower, slope = np.empty((d, d, BLOCK)), np.empty(BLOCK)
    lefts, rights, product = np.empty((BLOCK, n, d)), np.empty((BLOCK, n, d)), np.empty((d, d))
    which, everyone = np.empty(n, np.int64), np.arange(n)
    coupled = 0
    for i in range(d):
        for k in range(n):
            coupled += l_xy[i, k] != zero
    full = d * n >= WORTH_BLAS and 2 * coupled > d * n
    for block in range(work.shape[1] // BLOCK):
        base = block * BLOCK
        count = min(BLOCK, phi.shape[0] - base)
        if count <= 0:  # nothing but filling
            break
        here, moved = hess[base : base + count], response[block]
        for m in range(count):
            phi[base + m] = work[f, base + m]
        for i in range(d):
            _copy(slope, work, f_x[i], base)
            for k in range(n):
                if g_xy[i, k] != zero:
                    _add_one(slope, work[g_xy[i, k], base : base + BLOCK], work[v[k], base : base + BLOCK], -1.0)
            for m in range(count):
                grad[base + m, i] = slope[m]
        if full:
            _full(work, base, l_xx, l_xy, l_yy, zero, moved, curvature, which, curved, lefts, rights, product, here)
        else:
            _sparse(work, base, l_xx, l_xy, l_yy, zero, moved, curvature, which, curved, turned, lower, everyone, here)


# ---- one point ---------------------------------------------------------------------------------------------


@jit
def _eliminate_one(values, g_yy, g_xy, f_y, filled, v, right):
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
def _assemble_one(values, f_x, g_xy, l_xx, l_xy, l_yy, zero, right, grad, hess):
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
    if not _eliminate_one(values, g_yy, g_xy, f_y, filled, v, right):
        return False
    run(second, second_places, second_weights, values)
    out[0] = values[table[0]]
    _assemble_one(
        values, table[1 : 1 + d], g_xy, l_xx, l_xy, l_yy, zero, right, out[1 : 1 + d], out[1 + d :].reshape(d, d)
    )
    return True
