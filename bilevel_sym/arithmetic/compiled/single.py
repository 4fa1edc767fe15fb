"""What the compiled interpreter does for one point in place of lanes: vectors of like entries, rounding by rounding.

The arithmetic is that of ``interpreter`` for many lanes.
"""

from __future__ import annotations

from bilevel_sym.arithmetic.compiled.elementwise import (
    IPOW,
    MAX,
    PLAIN,
    RPOW,
    SELECT,
    SUM,
    binary,
    highest_bit,
    inlined,
    select,
    strict,
    unary,
    whole_power,
)
from bilevel_sym.arithmetic.compiled.vectors import (
    at,
    fma,
    gather_like,
    load8,
    load16,
    load32,
    load_like,
    root,
    scatter,
    store,
)

__all__ = ["dense_rows", "perform_blocks"]


@strict
def dense_rows(values, places, start, rows, terms, filled, coefficients, offset):
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
def perform_blocks(like, wide, op, count, start, p, q, offset, places, coefficients, values):
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
