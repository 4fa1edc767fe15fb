"""Walks over batches of rows in compiled code: rows are looked up, and a step is made with each batch.

A program is an array of instructions (op, to, a, b, m, n, p, each), performed on one array of numbers, ``memory``:
``to``, ``a`` and ``b`` are places in it, m and n sizes, and p a place in ``numbers`` or a code; where ``each`` is not
zero, m is that many for each row. Some rows of a batch are there at a time, few enough for the fastest memory. Products
and sums are written out in vectors with fused multiply-adds, so that their bits depend on their sizes alone.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bilevel_sym.arithmetic.compiled.elementwise import LAST_VECTOR, inlined, library, strict, unary, whole_power
from bilevel_sym.arithmetic.compiled.vectors import at, fma, load8, load32, store

__all__ = [
    "ADD", "ADD_NUMBER", "APPLY", "DOT", "FILL", "LINE", "MATRIX_VECTOR", "MULTIPLY", "MULTIPLY_NUMBER", "POWER",
    "SCALE", "SUM", "VECTOR_MATRIX", "apply", "dot", "folded", "matrix_vector", "to_read", "vector_matrix", "walk",
]  # fmt: skip

(
    MATRIX_VECTOR, VECTOR_MATRIX, DOT, SUM, MULTIPLY, MULTIPLY_NUMBER, SCALE, ADD, ADD_NUMBER, FILL, APPLY, POWER,
) = range(12)  # fmt: skip
AHEAD = 6  # rows that are asked of memory before they are copied
LINE = 8  # numbers that memory delivers at a time


@intrinsic
def _ask(typing, array, index):
    """Ask memory for what stands there, without waiting for it."""

    def generate(context, builder, sig, args):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        where = context.cast(builder, args[1], sig.args[1], types.intp)
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        asked = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
        pointer = builder.bitcast(builder.gep(data, [where]), byte)
        builder.call(asked, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate


@intrinsic
def folded(typing, vector):
    """The sum of the numbers of a vector: halves are added until one is left."""

    def generate(context, builder, sig, args):
        value = args[0]
        while value.type.count > 1:
            half = value.type.count // 2
            low, high = (ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(a, a + half))) for a in (0, half))
            parts = [builder.shuffle_vector(value, value, own) for own in (low, high)]
            value = builder.fadd(*parts)
        return builder.extract_element(value, ir.IntType(32)(0))

    return types.float64(vector), generate


@inlined
def _look_up(table, picked, start, count, width, memory, to):
    """Copy some of the chosen rows."""
    for i in range(start, start + count):
        if i + AHEAD < len(picked):
            ahead = picked[i + AHEAD] * width
            for j in range(0, width, LINE):
                _ask(table, ahead + j)
        first, here = picked[i] * width, to + (i - start) * width
        for j in range(0, width - 7, 8):
            store(memory, here + j, load8(table, first + j))
        for j in range(width - width % 8, width):
            store(memory, here + j, at(table, first + j))


@inlined
def dot(memory, a, b, n):
    """The product of two vectors."""
    whole = n - n % 8
    rest = 0.0
    for j in range(whole, n):
        rest = fma(at(memory, a + j), at(memory, b + j), rest)
    if whole == 0:
        return rest
    total = load8(memory, a) * load8(memory, b)
    for j in range(8, whole, 8):
        total = fma(load8(memory, a + j), load8(memory, b + j), total)
    return folded(total) + rest


@inlined
def _sum(memory, a, n):
    """The sum of a vector, in the order of ``dot``."""
    whole = n - n % 8
    rest = 0.0
    for j in range(whole, n):
        rest = at(memory, a + j) + rest
    if whole == 0:
        return rest
    total = load8(memory, a)
    for j in range(8, whole, 8):
        total = load8(memory, a + j) + total
    return folded(total) + rest


@inlined
def _four_dots(memory, to, a, b, n):
    """The products of four rows with a vector, each as ``dot`` has it."""
    whole = n - n % 8
    a1, a2, a3 = a + n, a + 2 * n, a + 3 * n
    other = load8(memory, b)
    t0, t1 = load8(memory, a) * other, load8(memory, a1) * other
    t2, t3 = load8(memory, a2) * other, load8(memory, a3) * other
    for j in range(8, whole, 8):
        other = load8(memory, b + j)
        t0, t1 = fma(load8(memory, a + j), other, t0), fma(load8(memory, a1 + j), other, t1)
        t2, t3 = fma(load8(memory, a2 + j), other, t2), fma(load8(memory, a3 + j), other, t3)
    r0 = r1 = r2 = r3 = 0.0
    for j in range(whole, n):
        one = at(memory, b + j)
        r0, r1 = fma(at(memory, a + j), one, r0), fma(at(memory, a1 + j), one, r1)
        r2, r3 = fma(at(memory, a2 + j), one, r2), fma(at(memory, a3 + j), one, r3)
    store(memory, to, folded(t0) + r0)
    store(memory, to + 1, folded(t1) + r1)
    store(memory, to + 2, folded(t2) + r2)
    store(memory, to + 3, folded(t3) + r3)


@inlined
def matrix_vector(memory, to, a, b, m, n):
    """A b: four rows at a time."""
    fours = m - m % 4 if n >= 8 else 0
    for i in range(0, fours, 4):
        _four_dots(memory, to + i, a + i * n, b, n)
    for i in range(fours, m):
        store(memory, to + i, dot(memory, a + i * n, b, n))


@inlined
def vector_matrix(memory, to, a, b, m, n):
    """b^T A: some columns at a time, row after row."""
    wide, whole = n - n % 32, n - n % 8
    for j in range(0, wide, 32):
        sums = load32(memory, a + j) * at(memory, b)
        for i in range(1, m):
            sums = fma(load32(memory, a + i * n + j), at(memory, b + i), sums)
        store(memory, to + j, sums)
    for j in range(wide, whole, 8):
        part = load8(memory, a + j) * at(memory, b)
        for i in range(1, m):
            part = fma(load8(memory, a + i * n + j), at(memory, b + i), part)
        store(memory, to + j, part)
    for j in range(whole, n):
        total = at(memory, a + j) * at(memory, b)
        for i in range(1, m):
            total = fma(at(memory, a + i * n + j), at(memory, b + i), total)
        store(memory, to + j, total)


@inlined
def apply(memory, to, a, m, op):
    """A function, entry by entry."""
    if op <= LAST_VECTOR:
        for i in range(0, m - 7, 8):
            store(memory, to + i, unary(op, load8(memory, a + i)))
        for i in range(m - m % 8, m):
            store(memory, to + i, unary(op, at(memory, a + i)))
    else:
        for i in range(m):
            store(memory, to + i, library(op, at(memory, a + i)))


@strict
def _perform(code, start, stop, numbers, memory, rows):
    """One instruction after the other, on so many rows."""
    for k in range(start, stop):
        op, to, a, b, m, n, p = code[k, 0], code[k, 1], code[k, 2], code[k, 3], code[k, 4], code[k, 5], code[k, 6]
        if code[k, 7] > 0:
            m = code[k, 7] * rows
        if op == MATRIX_VECTOR:
            matrix_vector(memory, to, a, b, m, n)
        elif op == VECTOR_MATRIX:
            vector_matrix(memory, to, a, b, m, n)
        elif op == DOT:
            store(memory, to, dot(memory, a, b, m))
        elif op == SUM:
            store(memory, to, _sum(memory, a, m))
        elif op == MULTIPLY:
            for i in range(m):
                store(memory, to + i, at(memory, a + i) * at(memory, b + i))
        elif op == MULTIPLY_NUMBER:
            for i in range(m):
                store(memory, to + i, at(memory, a + i) * at(memory, b))
        elif op == SCALE:
            for i in range(m):
                store(memory, to + i, at(numbers, p) * at(memory, a + i))
        elif op == ADD:
            for i in range(m):
                store(memory, to + i, fma(at(numbers, p), at(memory, a + i), at(memory, to + i)))
        elif op == ADD_NUMBER:
            for i in range(m):
                store(memory, to + i, fma(at(numbers, p), at(memory, a), at(memory, to + i)))
        elif op == FILL:
            for i in range(m):
                store(memory, to + i, at(numbers, p))
        elif op == APPLY:
            apply(memory, to, a, m, p)
        else:
            for i in range(m):
                store(memory, to + i, whole_power(at(memory, a + i), p, n))


@inlined
def _all_within(picked, rows):
    """Whether there are such rows."""
    low = high = 0
    for row in picked:
        low, high = min(low, row), max(high, row)
    return low >= 0 and high < rows


def to_read(array: Any) -> Any:
    """All entries of an array, not to be written: numba compiles ``walk`` for each mixture of arrays that may be."""
    flat = array.reshape(-1)
    flat.flags.writeable = False
    return flat


@strict
def walk(code, cuts, numbers, memory, first, second, third, lookups, picked, ends, step):
    """One batch after the other: its rows, what depends on them, and point -= step * slope; then total += point.

    False, and nothing is done, where there is no such row.

    - ``code``: the instructions before the first batch, before the rows of each, for some of its rows, and after them.
    - ``cuts``: where the second, third and fourth of these begin.
    - ``numbers``: coefficients.
    - ``memory``: all values.
    - ``first``, ``second``, ``third``: the arrays of all rows, laid end to end; see ``to_read``.
    - ``lookups``: (which of them, numbers in a row, where the rows go), one line each; the fourth is in memory, from
      where the last number says, and its rows are those of a batch as they come.
    - ``picked``: the rows of each batch, laid end to end; see ``to_read``.
    - ``ends``: where the point, the slope and the total stand, the last -1 for none; their length, 0 where nothing
      moves; how many rows there are, how many a batch has, and how many go together.
    - ``step``: the step size.
    """
    point, slope, total, n, size, together = ends[0], ends[1], ends[2], ends[3], ends[5], ends[6]
    if not _all_within(picked, ends[4]):
        return False
    _perform(code, 0, cuts[0], numbers, memory, 0)
    for batch in range(0, len(picked), size):
        _perform(code, cuts[0], cuts[1], numbers, memory, 0)
        for start in range(0, size, together):
            rows = min(together, size - start)
            for line in range(len(lookups)):
                which, width, to = lookups[line, 0], lookups[line, 1], lookups[line, 2]
                if which == 0:
                    _look_up(first, picked, batch + start, rows, width, memory, to)
                elif which == 1:
                    _look_up(second, picked, batch + start, rows, width, memory, to)
                elif which == 2:
                    _look_up(third, picked, batch + start, rows, width, memory, to)
                else:
                    for i in range(rows):
                        store(memory, to + i, at(memory, lookups[line, 3] + start + i))
            _perform(code, cuts[1], cuts[2], numbers, memory, rows)
        _perform(code, cuts[2], len(code), numbers, memory, 0)
        for j in range(n):
            store(memory, point + j, fma(-step, at(memory, slope + j), at(memory, point + j)))
        if total >= 0:
            for j in range(n):
                store(memory, total + j, at(memory, total + j) + at(memory, point + j))
    return True
