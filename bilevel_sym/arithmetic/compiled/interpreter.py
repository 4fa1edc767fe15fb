"""The compiled interpreter: a loop over groups of like instructions, each performed on all lanes of a table.

Everything here is numba's dialect: scalars, arrays, loops. What an operation means is said by its record, and the
tests hold the two together. A table has the values of many lanes, (places, lanes), or of one point, (places,). The
arithmetic is the same for both, rounding by rounding (``elementwise``): a lane has the same bits alone and among any
others. For one point vectors of like entries take the place of lanes, where that helps: a group
whose code has EIGHTS or FOURS added counts blocks of eight or four entries.

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

import numba

from bilevel_sym.arithmetic.compiled.elementwise import (
    DENSE,
    EIGHTS,
    FOURS,
    IPOW,
    LAST_VECTOR,
    LIN,
    MAX,
    PLAIN,
    RPOW,
    SELECT,
    SUM,
    binary,
    highest_bit,
    inlined,
    library,
    select,
    strict,
    unary,
    whole_power,
)
from bilevel_sym.arithmetic.compiled.vectors import (
    WIDTH,
    at,
    fma,
    gather_like,
    get,
    lanes_of,
    load4,
    load8,
    load16,
    load32,
    load_like,
    put,
    root,
    scatter,
    store,
)

__all__ = ["run"]


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
    lanes = lanes_of(table)
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
    lanes = lanes_of(table)
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


# ---- one point: vectors of like entries in place of lanes ---------------------------------------------------


@strict
def _dense_rows(values, places, start, rows, terms, filled, coefficients, offset):
    """A product with a matrix, as many rows at a time as are worth it: each row's sum in the order of its terms."""
    row = 0
    while row < rows:
        e, to = offset + row, start + terms + row
        if rows - row > 16:
            wide = load32(coefficients, e) * at(values, at(places, start))
            for k in range(1, terms):
                wide = fma(load32(coefficients, e + k * filled), at(values, at(places, start + k)), wide)
            scatter(values, places, to, min(32, rows - row), wide)
            row += 32
        elif rows - row > 8:
            half = load16(coefficients, e) * at(values, at(places, start))
            for k in range(1, terms):
                half = fma(load16(coefficients, e + k * filled), at(values, at(places, start + k)), half)
            scatter(values, places, to, min(16, rows - row), half)
            row += 16
        else:
            part = load8(coefficients, e) * at(values, at(places, start))
            for k in range(1, terms):
                part = fma(load8(coefficients, e + k * filled), at(values, at(places, start + k)), part)
            scatter(values, places, to, min(8, rows - row), part)
            row += 8


@inlined
def _column(like, values, places, start, k):
    """One argument of the entries of a block: places in a row, or, where negative, where the list of them stands."""
    first = at(places, k)
    if first >= 0:
        return load_like(like, values, first)
    return gather_like(like, values, places, start - 1 - first)


@inlined
def _block_product(like, values, places, start, first, coefficients, offset, plain):
    """(coefficient * place, place), as in ``interpreter``."""
    left, right = _column(like, values, places, start, first), _column(like, values, places, start, first + 1)
    if not plain:
        left = load_like(like, coefficients, offset) * left
    return left, right


@inlined
def _block_sum(like, values, places, start, first, coefficients, offset, terms, products, wide, plain):
    """The sums of ``interpreter.combination`` and ``sum_of_products`` where they are short."""
    begin = 0
    if products > 0:
        u, w = _block_product(like, values, places, start, first, coefficients, offset, plain)
        a = u * w
        for k in range(1, products):
            u, w = _block_product(like, values, places, start, first + 2 * k, coefficients, offset + wide * k, plain)
            a = fma(u, w, a)
    else:
        a = load_like(like, coefficients, offset) * _column(like, values, places, start, first)
        begin = 1
    weights = offset if plain else offset + wide * products
    for k in range(begin, terms):
        c = load_like(like, coefficients, weights + wide * k)
        a = fma(_column(like, values, places, start, first + 2 * products + k), c, a)
    return a


@strict
def _blocks(like, wide, op, count, start, p, q, offset, places, coefficients, values):
    """Blocks of ``wide`` entries at a time; for each the destinations, then the arguments, a column each.

    A column is the first of places in a row, or minus one minus the position, after ``start``, of a list of places.
    Coefficients stand in columns likewise. The last block may overlap with the one before.
    """
    if op <= SUM:
        columns = 1 + p + 2 * q
    elif op <= MAX:
        columns = 3
    elif op == SELECT:
        columns = 4
    else:
        columns = 2
    top = highest_bit(p) if op in (IPOW, RPOW) else 0
    for block in range(count):
        k = start + block * columns
        if op <= SUM:
            weights = offset + block * wide * (p if op == PLAIN else p + q)
            result = _block_sum(like, values, places, start, k + 1, coefficients, weights, p, q, wide, op == PLAIN)
        else:
            z = _column(like, values, places, start, k + 1)
            if op <= MAX:
                result = binary(op, z, _column(like, values, places, start, k + 2))
            elif op == SELECT:
                yes, no = _column(like, values, places, start, k + 2), _column(like, values, places, start, k + 3)
                result = select(z, yes, no)
            elif op <= RPOW:
                result = whole_power(root(z) if op == RPOW else z, p, top)
            else:
                result = unary(op, z)
        to = at(places, k)
        if to >= 0:
            store(values, to, result)
        else:
            scatter(values, places, start - 1 - to, wide, result)


# ---- programs ------------------------------------------------------------------------------------------------


@strict
def run(groups, places, coefficients, table):
    """Perform a program on a table: (places, lanes) with WIDTH lanes or more, (places, 1, WIDTH), or (places,).

    The last vector of a row overlaps with the one before where WIDTH does not divide the lanes: a lane that is computed
    twice is the same twice.
    """
    lanes = lanes_of(table)
    flat = table.reshape(-1)
    parts = (lanes + WIDTH - 1) // WIDTH
    for g in range(groups.shape[0]):
        op, count, start = groups[g, 0], groups[g, 1], groups[g, 2]
        p, q, offset = groups[g, 3], groups[g, 4], groups[g, 5]
        if table.ndim == 1:
            if op >= FOURS:
                like = load4(coefficients, 0)
                _blocks(like, 4, op - FOURS, count, start, p, q, offset, places, coefficients, table)
                continue
            if op >= EIGHTS:
                like = load8(coefficients, 0)
                _blocks(like, 8, op - EIGHTS, count, start, p, q, offset, places, coefficients, table)
                continue
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
            if table.ndim == 1:
                _dense_rows(table, places, start, count, p, q, coefficients, offset)
            else:
                _dense(table, places, start, count, p, q, coefficients, offset)
        elif op <= MAX:
            for k in range(start, start + 3 * count, 3):
                for part in range(parts):
                    m = min(part * WIDTH, lanes - WIDTH)
                    a, b = get(table, at(places, k + 1), m), get(table, at(places, k + 2), m)
                    put(table, at(places, k), m, binary(op, a, b))
        elif op == SELECT:
            for k in range(start, start + 4 * count, 4):
                for part in range(parts):
                    m = min(part * WIDTH, lanes - WIDTH)
                    c, a = get(table, at(places, k + 1), m), get(table, at(places, k + 2), m)
                    put(table, at(places, k), m, select(c, a, get(table, at(places, k + 3), m)))
        elif op <= RPOW:
            _powers(op, table, places, start, count, p, q)
        elif op <= LAST_VECTOR:
            for k in range(start, start + 2 * count, 2):
                for part in range(parts):
                    m = min(part * WIDTH, lanes - WIDTH)
                    put(table, at(places, k), m, unary(op, get(table, at(places, k + 1), m)))
        else:
            for k in range(start, start + 2 * count, 2):
                to, a = at(places, k) * lanes, at(places, k + 1) * lanes
                for m in range(lanes):
                    flat[to + m] = library(op, flat[a + m])
