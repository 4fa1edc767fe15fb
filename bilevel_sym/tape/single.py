"""The compiled interpreter for one point: no lanes, scalars in registers, vector instructions along matrix rows."""

from __future__ import annotations

import math

import numpy as np

from bilevel_sym.tape.interpreter import (
    ABS,
    ATAN,
    BELL,
    COS,
    COSH,
    EXP,
    IPOW,
    LIN,
    LOG,
    LT,
    MAX,
    MIN,
    MUL,
    RPOW,
    SELECT,
    SIGMOID,
    SIGN,
    SIN,
    SINH,
    SOFTPLUS,
    TAN,
    TANH,
    jit,
)  # fmt: skip

__all__ = ["expand", "run"]


@jit
def _whole_power(z, exponent):
    size = abs(exponent)
    result = z
    top = 0
    while (size >> (top + 1)) > 0:
        top += 1
    for k in range(top - 1, -1, -1):
        result = result * result * z if (size >> k) & 1 else result * result
    return 1.0 / result if exponent < 0 else result


@jit
def _logistic(op, z):
    small = math.exp(-abs(z))
    if op == SOFTPLUS:
        return max(z, 0.0) + math.log1p(small)
    if op == SIGMOID:
        return (1.0 if z >= 0.0 else small) / (1.0 + small)
    return small / ((1.0 + small) * (1.0 + small))


@jit
def _unary(op, z):
    if op == EXP:
        return math.exp(z)
    if op in (SOFTPLUS, SIGMOID, BELL):
        return _logistic(op, z)
    if op == TANH:
        return math.tanh(z)
    if op == LOG:
        return math.log(z)
    if op == SIN:
        return math.sin(z)
    if op == COS:
        return math.cos(z)
    if op == TAN:
        return math.tan(z)
    if op == SINH:
        return math.sinh(z)
    if op == COSH:
        return math.cosh(z)
    if op == ATAN:
        return math.atan(z)
    if op == ABS:
        return abs(z)
    if op == SIGN:
        return np.sign(z)
    if z != z:
        return z
    return 1.0 if (z < 0.0 if op == LT else z <= 0.0) else 0.0


@jit
def _combination(values, places, coefficients):
    """Four sums side by side, as one long chain of additions would wait for itself."""
    a = b = c = d = 0.0
    k = 0
    stop = places.size
    while k + 4 <= stop:
        a += coefficients[k] * values[places[k]]
        b += coefficients[k + 1] * values[places[k + 1]]
        c += coefficients[k + 2] * values[places[k + 2]]
        d += coefficients[k + 3] * values[places[k + 3]]
        k += 4
    while k < stop:
        a += coefficients[k] * values[places[k]]
        k += 1
    return (a + b) + (c + d)


@jit
def _dense(values, start, stop, rows, places, matrix):
    read = np.empty(stop - start)
    for k in range(stop - start):
        read[k] = values[places[start + k]]
    written = np.dot(matrix, read)
    for k in range(rows):
        values[places[stop + k]] = written[k]


@jit
def run(instructions, places, coefficients, values):
    """Perform instructions on one column of values; see ``interpreter.run``."""
    for k in range(instructions.shape[0]):
        op, to = instructions[k, 0], instructions[k, 1]
        a, b, c = instructions[k, 2], instructions[k, 3], instructions[k, 4]
        if op == LIN:
            e = instructions[k, 5]
            if c > 0:
                _dense(values, a, b, c, places, coefficients[e : e + c * (b - a)].reshape(c, b - a))
            else:
                values[to] = _combination(values, places[a:b], coefficients[e : e + b - a])
        elif op == MUL:
            values[to] = values[a] * values[b]
        elif op == IPOW:
            values[to] = _whole_power(values[a], b)
        elif op == RPOW:
            values[to] = _whole_power(math.sqrt(values[a]), b) if c == 2 else values[a] ** (b / c)
        elif op in (MIN, MAX):
            u, v = values[a], values[b]
            chosen = u if (u < v) == (op == MIN) else v
            values[to] = u + v if (u != u) or (v != v) else chosen
        elif op == SELECT:
            u = values[a]
            values[to] = u if u != u else (values[b] if u != 0.0 else values[c])
        else:
            values[to] = _unary(op, values[a])


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
    values[1 : 1 + d + n] = xy
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
