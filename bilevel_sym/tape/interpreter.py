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

__all__ = ["CODES", "run"]

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
            out[m] = z[m] if z[m] != z[m] else (1.0 if z[m] < 0.0 else 0.0)
    else:
        for m in range(lanes):
            out[m] = z[m] if z[m] != z[m] else (1.0 if z[m] <= 0.0 else 0.0)


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
                out[m] = u[m] if u[m] != u[m] else (v[m] if u[m] != 0.0 else w[m])
        else:
            _unary(op, work[a], out, bits, power, small)
