"""The compiled interpreter: a loop over groups of like instructions, each performed on all lanes of a table.

Everything here is numba's dialect: scalars, arrays, loops. What an instruction means is said by ``arrays``, and the
tests hold the two together. The arithmetic takes a number or a vector of lanes (``vectors``) and is the same, rounding
by rounding, for both: a lane has the same bits alone (``single``) and among any others. exp, log1p and tanh are
written out, to about one unit in the last place; what is left to the C library goes through it lane by lane.

A program is three arrays. A row of ``groups`` is (code, count, start, p, q, offset): ``count`` like entries, whose
places stand one after the other in ``places`` from ``start`` on, destination first; p and q are parameters of the
operation.

- "lin": p terms an entry, (to, a_1, ..., a_p), with their coefficients in ``coefficients`` from ``offset`` on;
- "sum": q products and p terms an entry, (to, b_1, c_1, ..., b_q, c_q, a_1, ..., a_p), coefficients in the same order;
- "plain": the same where all products have the coefficient 1, which is left out;
- "dense": ``count`` combinations of the same p places, which stand first, then the destinations; the coefficients as
  a matrix, one column after the other, each filled up to q rows;
- all others: (to, a), (to, a, b) or (to, a, b, c).
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import numba

from bilevel_sym.arithmetic.compiled.cache import kept
from bilevel_sym.arithmetic.compiled.vectors import (
    ROUNDER,
    WIDTH,
    at,
    choose_equal,
    choose_le,
    choose_less,
    choose_nan,
    fma,
    get,
    power_of_two,
    put,
    root,
    size,
    with_sign,
)

__all__ = ["CODES", "run"]

# operation codes; the library's own functions stand last
CODES = MappingProxyType(
    {
        op: code
        for code, op in enumerate(
            ("lin", "plain", "sum", "dense", "mul", "min", "max", "select", "ipow", "rpow", "exp", "softplus",
             "sigmoid", "bell", "tanh", "abs", "sign", "lt", "le", "log", "sin", "cos", "tan", "sinh", "cosh", "atan")
        )
    }
)  # fmt: skip
(LIN, PLAIN, SUM, DENSE, MUL, MIN, MAX, SELECT, IPOW, RPOW, EXP, SOFTPLUS, SIGMOID, BELL, TANH, ABS, SIGN, LT, LE, LOG,
 SIN, COS, TAN, SINH, COSH, ATAN) = range(26)  # fmt: skip

# in programs for one point: added to the code of a group whose entries go by eights or by fours; see ``single``
EIGHTS, FOURS = 32, 64

LOG2E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10


# for what need not be the same in all lanes and alone
def jit(function: Any) -> Any:
    return kept(numba.njit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})(function))


# for what must be: the optimiser may not change a rounding. Nothing is allocated there, and counting the references to
# arrays, which numba does wherever a function branches, would cost more than the arithmetic
_STRICT: Any = MappingProxyType({"nogil": True, "error_model": "numpy", "_nrt": False})


def strict(function: Any) -> Any:
    return kept(numba.njit(**_STRICT)(function))


inlined = numba.njit(forceinline=True, **_STRICT)
# part of its caller from the start: a function that holds the interpreter is not compiled, with it, by itself
spliced = numba.njit(inline="always", **_STRICT)


# ---- arithmetic on a number or on a vector of lanes ------------------------------------------------------


@inlined
def _exp_minus_one(r):
    """exp(r) - 1 for |r| <= ln(2)/2, by its series."""
    p = fma(r, 1.6059043836821613e-10, 2.08767569878681e-09)
    p = fma(p, r, 2.505210838544172e-08)
    p = fma(p, r, 2.755731922398589e-07)
    p = fma(p, r, 2.7557319223985893e-06)
    p = fma(p, r, 2.48015873015873e-05)
    p = fma(p, r, 1.984126984126984e-04)
    p = fma(p, r, 1.388888888888889e-03)
    p = fma(p, r, 8.333333333333333e-03)
    p = fma(p, r, 4.1666666666666664e-02)
    p = fma(p, r, 1.6666666666666666e-01)
    p = fma(p, r, 0.5)
    return fma(r * r, p, r)


@inlined
def _reduced(t):
    """(k, r) with t = k ln 2 + r, k whole and |r| about ln(2)/2 at most."""
    whole = fma(t, LOG2E, ROUNDER) - ROUNDER
    return whole, fma(whole, -LN2_LOW, fma(whole, -LN2_HIGH, t))


@strict
def exp(z):
    """The exponential function."""
    # beyond this it is 0 or inf whatever the lane
    t = choose_less(z, 710.0, z, 710.0)
    whole, r = _reduced(choose_less(-746.0, t, t, -746.0))
    # 2**whole in two factors: results below the normal range lose digits, not everything
    half = fma(whole, 0.5, ROUNDER) - ROUNDER
    value = (1.0 + _exp_minus_one(r)) * power_of_two(half) * power_of_two(whole - half)
    return choose_nan(z, z, value)


@inlined
def _log1p_unit(e):
    """log(1 + e) for 0 <= e <= 1: 2 atanh(e/(2 + e)), by its series."""
    s = e / (2.0 + e)
    q = s * s
    p = fma(q, 1.0 / 35.0, 1.0 / 33.0)
    p = fma(p, q, 1.0 / 31.0)
    p = fma(p, q, 1.0 / 29.0)
    p = fma(p, q, 1.0 / 27.0)
    p = fma(p, q, 1.0 / 25.0)
    p = fma(p, q, 1.0 / 23.0)
    p = fma(p, q, 1.0 / 21.0)
    p = fma(p, q, 1.0 / 19.0)
    p = fma(p, q, 1.0 / 17.0)
    p = fma(p, q, 1.0 / 15.0)
    p = fma(p, q, 1.0 / 13.0)
    p = fma(p, q, 1.0 / 11.0)
    p = fma(p, q, 1.0 / 9.0)
    p = fma(p, q, 1.0 / 7.0)
    p = fma(p, q, 1.0 / 5.0)
    p = fma(p, q, 1.0 / 3.0)
    return fma(2.0 * s * q, p, 2.0 * s)


@inlined
def _tanh(z):
    """tanh t = -m/(2 + m) with m = exp(-2 |t|) - 1, which keeps its digits near zero."""
    t = -2.0 * size(z)
    whole, r = _reduced(choose_less(-60.0, t, t, -60.0))
    power = power_of_two(whole)
    m = fma(power, _exp_minus_one(r), power - 1.0)
    return choose_nan(z, z, with_sign(m / (2.0 + m), z))


@strict
def unary(op, z):
    """exp, softplus, sigmoid, bell, tanh, abs, sign, lt or le."""
    if op <= BELL:
        small = exp(z if op == EXP else -1.0 * size(z))
        if op == EXP:
            return small
        if op == SOFTPLUS:
            return choose_less(0.0, z, z, 0.0) + _log1p_unit(small)
        if op == SIGMOID:
            return choose_le(0.0, z, 1.0, small) / (1.0 + small)
        return small / ((1.0 + small) * (1.0 + small))
    if op == TANH:
        return _tanh(z)
    if op == ABS:
        return size(z)
    if op == SIGN:
        return choose_less(0.0, z, 1.0, choose_less(z, 0.0, -1.0, z))
    if op == LT:
        return choose_nan(z, z, choose_less(z, 0.0, 1.0, 0.0))
    return choose_nan(z, z, choose_le(z, 0.0, 1.0, 0.0))


@inlined
def binary(op, a, b):
    """Product, or the smaller or larger of two; NaN in either argument is the answer."""
    if op == MUL:
        return a * b
    chosen = choose_less(a, b, a, b) if op == MIN else choose_less(a, b, b, a)
    return choose_nan(a, a, choose_nan(b, b, chosen))


@inlined
def select(c, a, b):
    """A where the condition c holds, b where it does not."""
    return choose_nan(c, c, choose_equal(c, 0.0, b, a))


@inlined
def highest_bit(exponent):
    """The position of the highest bit of |exponent|."""
    top = 0
    while (abs(exponent) >> (top + 1)) > 0:
        top += 1
    return top


@inlined
def whole_power(z, exponent, top):
    """By squaring, as ``arrays`` does; ``top`` is the highest bit of the exponent."""
    result = z
    for k in range(top - 1, -1, -1):
        result = result * result
        if (abs(exponent) >> k) & 1:
            result = result * z
    return 1.0 / result if exponent < 0 else result


@strict
def library(op, z):
    """What the C library computes, for one number."""
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
    return math.atan(z)


# ---- lanes -----------------------------------------------------------------------------------------------


@inlined
def _term(table, places, first, coefficients, offset, k, m, total):
    """total + coefficient * place."""
    return fma(get(table, at(places, first + k), m), at(coefficients, offset + k), total)


@inlined
def _product(table, places, pair, coefficients, weight, m, plain):
    """(coefficient * place, place): the factors of a product, whose places stand at ``pair``."""
    left, right = get(table, at(places, pair), m), get(table, at(places, pair + 1), m)
    if not plain:
        left = at(coefficients, weight) * left
    return left, right


@inlined
def combination(table, places, first, coefficients, offset, terms, m):
    """The sum of coefficient * place: four sums side by side, as one long chain of additions would wait for itself."""
    a = at(coefficients, offset) * get(table, at(places, first), m)
    if terms < 8:
        for k in range(1, terms):
            a = _term(table, places, first, coefficients, offset, k, m, a)
        return a
    b = at(coefficients, offset + 1) * get(table, at(places, first + 1), m)
    c = at(coefficients, offset + 2) * get(table, at(places, first + 2), m)
    d = at(coefficients, offset + 3) * get(table, at(places, first + 3), m)
    k = numba.int64(4)
    while k + 4 <= terms:
        a = _term(table, places, first, coefficients, offset, k, m, a)
        b = _term(table, places, first, coefficients, offset, k + 1, m, b)
        c = _term(table, places, first, coefficients, offset, k + 2, m, c)
        d = _term(table, places, first, coefficients, offset, k + 3, m, d)
        k += 4
    while k < terms:
        a = _term(table, places, first, coefficients, offset, k, m, a)
        k += 1
    return (a + b) + (c + d)


@inlined
def sum_of_products(table, places, first, coefficients, offset, terms, products, m, plain):
    """The sum of ``products`` products coefficient * place * place, then of ``terms`` terms coefficient * place.

    Where they are plain the products have no coefficients.
    """
    u, w = _product(table, places, first, coefficients, offset, m, plain)
    a = u * w
    k = 1
    if products >= 8:
        u, w = _product(table, places, first + 2, coefficients, offset + 1, m, plain)
        b = u * w
        u, w = _product(table, places, first + 4, coefficients, offset + 2, m, plain)
        c = u * w
        u, w = _product(table, places, first + 6, coefficients, offset + 3, m, plain)
        d = u * w
        k = 4
        while k + 4 <= products:
            u, w = _product(table, places, first + 2 * k, coefficients, offset + k, m, plain)
            a = fma(u, w, a)
            u, w = _product(table, places, first + 2 * k + 2, coefficients, offset + k + 1, m, plain)
            b = fma(u, w, b)
            u, w = _product(table, places, first + 2 * k + 4, coefficients, offset + k + 2, m, plain)
            c = fma(u, w, c)
            u, w = _product(table, places, first + 2 * k + 6, coefficients, offset + k + 3, m, plain)
            d = fma(u, w, d)
            k += 4
        a = (a + b) + (c + d)
    while k < products:
        u, w = _product(table, places, first + 2 * k, coefficients, offset + k, m, plain)
        a = fma(u, w, a)
        k += 1
    weights = offset if plain else offset + products
    for k in range(terms):
        a = _term(table, places, first + 2 * products, coefficients, weights, k, m, a)
    return a


@strict
def _dense(table, places, start, rows, terms, filled, coefficients, offset):
    """A product with a matrix, four rows at a time, so that what is read once serves four sums."""
    lanes = WIDTH if table.ndim == 3 else table.shape[1]
    for row in range(0, rows, 4):
        for part in range((lanes + WIDTH - 1) // WIDTH):
            m = min(part * WIDTH, lanes - WIDTH)
            z = get(table, at(places, start), m)
            e = offset + row
            a, b, c, d = (
                at(coefficients, e) * z,
                at(coefficients, e + 1) * z,
                at(coefficients, e + 2) * z,
                at(coefficients, e + 3) * z,
            )
            for k in range(1, terms):
                z = get(table, at(places, start + k), m)
                e += filled
                a = fma(z, at(coefficients, e), a)
                b = fma(z, at(coefficients, e + 1), b)
                c = fma(z, at(coefficients, e + 2), c)
                d = fma(z, at(coefficients, e + 3), d)
            to = start + terms + row
            put(table, at(places, to), m, a)
            if row + 1 < rows:
                put(table, at(places, to + 1), m, b)
            if row + 2 < rows:
                put(table, at(places, to + 2), m, c)
            if row + 3 < rows:
                put(table, at(places, to + 3), m, d)


@strict
def _powers(op, table, places, start, count, p, q):
    """Powers with whole exponents p, or p/q."""
    lanes = WIDTH if table.ndim == 3 else table.shape[1]
    flat = table.reshape(-1)
    top = highest_bit(p)
    for k in range(start, start + 2 * count, 2):
        to, a = at(places, k), at(places, k + 1)
        if op == RPOW and q != 2:
            for m in range(lanes):
                flat[to * lanes + m] = flat[a * lanes + m] ** (p / q)
        else:
            for part in range((lanes + WIDTH - 1) // WIDTH):
                m = min(part * WIDTH, lanes - WIDTH)
                z = get(table, a, m)
                put(table, to, m, whole_power(root(z) if op == RPOW else z, p, top))


@strict
def run(groups, places, coefficients, table):
    """Perform a program on all lanes of ``table``, (places, lanes); WIDTH lanes or more, or (places, 1, WIDTH).

    The last vector of a row overlaps with the one before where WIDTH does not divide the lanes: a lane that is computed
    twice is the same twice.
    """
    lanes = WIDTH if table.ndim == 3 else table.shape[1]
    flat = table.reshape(-1)
    parts = (lanes + WIDTH - 1) // WIDTH
    for g in range(groups.shape[0]):
        op, count, start = groups[g, 0], groups[g, 1], groups[g, 2]
        p, q, offset = groups[g, 3], groups[g, 4], groups[g, 5]
        if op == LIN:
            for k in range(count):
                first = start + k * (p + 1)
                for part in range(parts):
                    m = min(part * WIDTH, lanes - WIDTH)
                    total = combination(table, places, first + 1, coefficients, offset + k * p, p, m)
                    put(table, at(places, first), m, total)
        elif op == PLAIN:
            for k in range(count):
                first = start + k * (p + 2 * q + 1)
                for part in range(parts):
                    m = min(part * WIDTH, lanes - WIDTH)
                    total = sum_of_products(table, places, first + 1, coefficients, offset + k * p, p, q, m, True)
                    put(table, at(places, first), m, total)
        elif op == SUM:
            for k in range(count):
                first, e = start + k * (p + 2 * q + 1), offset + k * (p + q)
                for part in range(parts):
                    m = min(part * WIDTH, lanes - WIDTH)
                    total = sum_of_products(table, places, first + 1, coefficients, e, p, q, m, False)
                    put(table, at(places, first), m, total)
        elif op == DENSE:
            _dense(table, places, start, count, p, q, coefficients, offset)
        elif op <= MAX:
            for k in range(start, start + 3 * count, 3):
                for part in range(parts):
                    m = min(part * WIDTH, lanes - WIDTH)
                    put(
                        table,
                        at(places, k),
                        m,
                        binary(op, get(table, at(places, k + 1), m), get(table, at(places, k + 2), m)),
                    )
        elif op == SELECT:
            for k in range(start, start + 4 * count, 4):
                for part in range(parts):
                    m = min(part * WIDTH, lanes - WIDTH)
                    c, a, b = (
                        get(table, at(places, k + 1), m),
                        get(table, at(places, k + 2), m),
                        get(table, at(places, k + 3), m),
                    )
                    put(table, at(places, k), m, select(c, a, b))
        elif op <= RPOW:
            _powers(op, table, places, start, count, p, q)
        elif op <= LE:
            for k in range(start, start + 2 * count, 2):
                for part in range(parts):
                    m = min(part * WIDTH, lanes - WIDTH)
                    put(table, at(places, k), m, unary(op, get(table, at(places, k + 1), m)))
        else:
            for k in range(start, start + 2 * count, 2):
                to, a = at(places, k) * lanes, at(places, k + 1) * lanes
                for m in range(lanes):
                    flat[to + m] = library(op, flat[a + m])
