"""The compiled interpreter: a loop over instructions with a short inner loop over lanes. Compiled once an installation.

Everything here is numba's dialect: scalars, arrays, loops. What an instruction means is said by ``arrays``, and the
tests hold the two together. Inner loops run over lanes, so that the compiler turns them into vector instructions;
exp, log1p and tanh are written out for the same reason, to about one unit in the last place.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numba
import numpy as np

__all__ = ["BLOCK", "CODES", "assemble", "eliminate", "run"]

# instruction codes; the order is of no meaning
CODES = MappingProxyType(
    {
        op: code
        for code, op in enumerate(
            ("lin", "mul", "ipow", "rpow", "exp", "log", "sin", "cos", "tan", "tanh", "sinh", "cosh", "atan", "abs",
             "sign", "softplus", "sigmoid", "bell", "min", "max", "lt", "le", "select")
        )
    }
)  # fmt: skip
(LIN, MUL, IPOW, RPOW, EXP, LOG, SIN, COS, TAN, TANH, SINH, COSH, ATAN, ABS, SIGN, SOFTPLUS, SIGMOID, BELL, MIN, MAX,
 LT, LE, SELECT) = range(23)  # fmt: skip

BLOCK = 64  # lanes of the dense linear algebra
WORTH_BLAS = 144  # entries of a matrix from which a library call pays
LOG2E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10

jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz"})


@jit
def _exp_minus_one(r):
    """exp(r) - 1 for |r| <= ln(2)/2, by its series."""
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 1.984126984126984e-04
    p = p * r + 1.388888888888889e-03
    p = p * r + 8.333333333333333e-03
    p = p * r + 4.1666666666666664e-02
    p = p * r + 1.6666666666666666e-01
    p = p * r + 0.5
    return r + r * r * p


@jit
def _exp_lanes(z, out, bits, power):
    """exp of each lane; ``bits`` and ``power`` are one buffer seen as integers and as floats."""
    for k in range(z.size):
        # beyond this exp is 0 or inf whatever the lane; NaN passes through the comparisons
        t = min(max(z[k], -746.0), 710.0)
        whole = math.floor(t * LOG2E + 0.5)
        half = np.int64(whole) >> 1
        bits[k] = (half + 1023) << 52
        r = (t - whole * LN2_HIGH) - whole * LN2_LOW
        out[k] = (1.0 + _exp_minus_one(r)) if np.int64(whole) & 1 == 0 else 2.0 * (1.0 + _exp_minus_one(r))
    for k in range(z.size):
        # 2**whole in two factors: results below the normal range lose digits, not everything
        value = out[k] * power[k] * power[k]
        out[k] = value if z[k] == z[k] else z[k]


@jit
def _log1p_unit(e):
    """log(1 + e) for 0 <= e <= 1: 2 atanh(e/(2 + e)), by its series."""
    s = e / (2.0 + e)
    q = s * s
    p = 1.0 / 35.0
    p = p * q + 1.0 / 33.0
    p = p * q + 1.0 / 31.0
    p = p * q + 1.0 / 29.0
    p = p * q + 1.0 / 27.0
    p = p * q + 1.0 / 25.0
    p = p * q + 1.0 / 23.0
    p = p * q + 1.0 / 21.0
    p = p * q + 1.0 / 19.0
    p = p * q + 1.0 / 17.0
    p = p * q + 1.0 / 15.0
    p = p * q + 1.0 / 13.0
    p = p * q + 1.0 / 11.0
    p = p * q + 1.0 / 9.0
    p = p * q + 1.0 / 7.0
    p = p * q + 1.0 / 5.0
    p = p * q + 1.0 / 3.0
    return 2.0 * s + 2.0 * s * q * p


@jit
def _tanh_lanes(z, out, bits, power):
    """tanh t = -m/(2 + m) with m = exp(-2 |t|) - 1, which keeps its digits near zero."""
    for k in range(z.size):
        t = max(-2.0 * abs(z[k]), -60.0)
        whole = math.floor(t * LOG2E + 0.5)
        bits[k] = (np.int64(whole) + 1023) << 52
        out[k] = _exp_minus_one((t - whole * LN2_HIGH) - whole * LN2_LOW)
    for k in range(z.size):
        m = power[k] * out[k] + (power[k] - 1.0)
        value = math.copysign(-m / (2.0 + m), z[k])
        out[k] = value if z[k] == z[k] else z[k]


@jit
def _logistic_lanes(op, z, out, bits, power, small):
    """softplus, sigmoid or bell, all through exp(-|z|)."""
    for k in range(z.size):
        out[k] = -abs(z[k])
    _exp_lanes(out, small, bits, power)
    if op == SOFTPLUS:
        for k in range(z.size):
            out[k] = max(z[k], 0.0) + _log1p_unit(small[k])
    elif op == SIGMOID:
        for k in range(z.size):
            out[k] = (1.0 if z[k] >= 0.0 else small[k]) / (1.0 + small[k])
    else:
        for k in range(z.size):
            out[k] = small[k] / ((1.0 + small[k]) * (1.0 + small[k]))


@jit
def _combination(work, row, places, coefficients):
    """row = sum of coefficient * place, four terms in one pass over the lanes."""
    lanes = row.size
    stop = places.size
    k = 0
    first = True
    while k + 4 <= stop:
        a, b, c, d = work[places[k]], work[places[k + 1]], work[places[k + 2]], work[places[k + 3]]
        ca, cb, cc, cd = coefficients[k], coefficients[k + 1], coefficients[k + 2], coefficients[k + 3]
        if first:
            for m in range(lanes):
                row[m] = (ca * a[m] + cb * b[m]) + (cc * c[m] + cd * d[m])
        else:
            for m in range(lanes):
                row[m] += (ca * a[m] + cb * b[m]) + (cc * c[m] + cd * d[m])
        first = False
        k += 4
    while k < stop:
        a, ca = work[places[k]], coefficients[k]
        if first:
            for m in range(lanes):
                row[m] = ca * a[m]
        else:
            for m in range(lanes):
                row[m] += ca * a[m]
        first = False
        k += 1


@jit
def _dense(work, start, stop, rows, places, matrix):
    """Many combinations of the same places as one matrix product; the places of the results follow those read."""
    lanes = work.shape[1]
    read, written = np.empty((stop - start, lanes)), np.empty((rows, lanes))
    for k in range(stop - start):
        read[k] = work[places[start + k]]
    np.dot(matrix, read, written)
    for k in range(rows):
        work[places[stop + k]] = written[k]


@jit
def _whole_power(z, out, exponent):
    """By squaring, as ``arrays`` does."""
    size = abs(exponent)
    for m in range(z.size):
        out[m] = z[m]
    top = 0
    while (size >> (top + 1)) > 0:
        top += 1
    for k in range(top - 1, -1, -1):
        if (size >> k) & 1:
            for m in range(z.size):
                out[m] = out[m] * out[m] * z[m]
        else:
            for m in range(z.size):
                out[m] = out[m] * out[m]
    if exponent < 0:
        for m in range(z.size):
            out[m] = 1.0 / out[m]


@jit
def _unary(op, z, out, bits, power, small):
    lanes = z.size
    if op == EXP:
        _exp_lanes(z, out, bits, power)
    elif op in (SOFTPLUS, SIGMOID, BELL):
        _logistic_lanes(op, z, out, bits, power, small)
    elif op == TANH:
        _tanh_lanes(z, out, bits, power)
    elif op == LOG:
        for m in range(lanes):
            out[m] = math.log(z[m])
    elif op == SIN:
        for m in range(lanes):
            out[m] = math.sin(z[m])
    elif op == COS:
        for m in range(lanes):
            out[m] = math.cos(z[m])
    elif op == TAN:
        for m in range(lanes):
            out[m] = math.tan(z[m])
    elif op == SINH:
        for m in range(lanes):
            out[m] = math.sinh(z[m])
    elif op == COSH:
        for m in range(lanes):
            out[m] = math.cosh(z[m])
    elif op == ATAN:
        for m in range(lanes):
            out[m] = math.atan(z[m])
    elif op == ABS:
        for m in range(lanes):
            out[m] = abs(z[m])
    elif op == SIGN:
        for m in range(lanes):
            out[m] = np.sign(z[m])
    elif op == LT:
        for m in range(lanes):
            out[m] = 1.0 if z[m] < 0.0 else 0.0
    else:
        for m in range(lanes):
            out[m] = 1.0 if z[m] <= 0.0 else 0.0


@jit
def _rational_power(z, out, p, q):
    if q == 2:
        for m in range(z.size):
            out[m] = math.sqrt(z[m])
        root = out.copy()
        _whole_power(root, out, p)
    else:
        for m in range(z.size):
            out[m] = z[m] ** (p / q)


@jit
def run(instructions, places, coefficients, work):
    """Perform instructions (code, destination, a, b, c, e) on all lanes of ``work``.

    "lin" reads places[a:b] with the coefficients from e on. With c > 0 it is c combinations of the same places at
    once, whose destinations follow in ``places`` from b on.
    """
    lanes = work.shape[1]
    bits = np.empty(lanes, np.int64)
    power = bits.view(np.float64)
    small = np.empty(lanes)
    for k in range(instructions.shape[0]):
        op, to = instructions[k, 0], instructions[k, 1]
        a, b, c = instructions[k, 2], instructions[k, 3], instructions[k, 4]
        out = work[to]
        if op == LIN:
            e = instructions[k, 5]
            if c > 0:
                _dense(work, a, b, c, places, coefficients[e : e + c * (b - a)].reshape(c, b - a))
            else:
                _combination(work, out, places[a:b], coefficients[e : e + b - a])
        elif op == MUL:
            u, v = work[a], work[b]
            for m in range(lanes):
                out[m] = u[m] * v[m]
        elif op == IPOW:
            _whole_power(work[a], out, b)
        elif op == RPOW:
            _rational_power(work[a], out, b, c)
        elif op in (MIN, MAX):
            u, v = work[a], work[b]
            for m in range(lanes):
                smaller = u[m] < v[m]
                value = u[m] if smaller == (op == MIN) else v[m]
                # NaN in either argument is the answer
                out[m] = u[m] + v[m] if (u[m] != u[m]) or (v[m] != v[m]) else value
        elif op == SELECT:
            u, v, w = work[a], work[b], work[c]
            for m in range(lanes):
                out[m] = v[m] if u[m] != 0.0 else w[m]
        else:
            _unary(op, work[a], out, bits, power, small)


# ---- the implicit formulas, BLOCK lanes at a time ----------------------------------------------------------
#
# A block of lanes of a matrix is an array (rows, columns, BLOCK). Sums run over lists of indices, so that entries known
# to be zero cost nothing, and take four terms in one pass, so that results are read and written less often.


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
def _where(row, stop, which):
    """The indices below ``stop`` at which ``row`` is true, into ``which``; how many."""
    count = 0
    for k in range(stop):
        if row[k]:
            which[count] = k
            count += 1
    return count


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
            count = 0
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
        count = _where(filled[i], i, which)
        _add_products(right[i], factor[i], right, which, count, -1.0)
        for j in range(columns):
            for m in range(BLOCK):
                right[i, j, m] *= factor[i, i, m]
    for i in range(n - 1, -1, -1):
        count = 0
        for k in range(i + 1, n):
            if filled[k, i]:
                which[count] = k
                count += 1
        _add_products(right[i], factor[i], right, which, count, -1.0)
        for j in range(columns):
            for m in range(BLOCK):
                right[i, j, m] *= factor[i, i, m]


@jit
def _curved(work, base, l_yy, zero, scale, moved, curvature, which, curved):
    """curved += scale * L_yy dy_dx^T, (n, d) pieces; entries of L_yy at the place ``zero`` are skipped."""
    n = l_yy.shape[0]
    for j in range(n):
        some = _where(l_yy[j] != zero, n, which)
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
            curved[k, i] = work[l_xy[i, k], base : base + BLOCK]
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
    curved[:] = 0.0
    _curved(work, base, l_yy, zero, 1.0, moved, curvature, which, curved)
    for k in range(n):
        for i in range(d):
            turned[i, k] = curved[k, i]
    for i in range(d):
        for j in range(i + 1):
            lower[i, j] = work[l_xx[i, j], base : base + BLOCK]
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
    full = d * n >= WORTH_BLAS and 2 * np.sum(l_xy != zero) > d * n
    for block in range(work.shape[1] // BLOCK):
        base = block * BLOCK
        count = min(BLOCK, phi.shape[0] - base)
        here, moved = hess[base : base + count], response[block]
        for m in range(count):
            phi[base + m] = work[f, base + m]
        for i in range(d):
            slope[:] = work[f_x[i], base : base + BLOCK]
            for k in range(n):
                if g_xy[i, k] != zero:
                    _add_one(slope, work[g_xy[i, k], base : base + BLOCK], work[v[k], base : base + BLOCK], -1.0)
            for m in range(count):
                grad[base + m, i] = slope[m]
        if full:
            _full(work, base, l_xx, l_xy, l_yy, zero, moved, curvature, which, curved, lefts, rights, product, here)
        else:
            _sparse(work, base, l_xx, l_xy, l_yy, zero, moved, curvature, which, curved, turned, lower, everyone, here)
