"""Steps of array plans at one point, in compiled code, and the linear algebra of small systems.

A program is a row of instructions (op, to, a, b, number, four sizes, four strides of each of to, a and b), performed
on one array of numbers, ``memory``, and a line behind it may be read. Whatever multiplies, sums, copies or transposes
entries is a ``NEST`` of loops; what takes most of the time has an instruction of its own. The bits of a result depend
on sizes alone.
"""

from __future__ import annotations

from math import inf

from bilevel_sym.arithmetic.compiled.elementwise import CODES, exp, inlined, library, strict, whole_power
from bilevel_sym.arithmetic.compiled.rows import apply, dot, folded, matrix_vector, vector_matrix
from bilevel_sym.arithmetic.compiled.vectors import at, fma, load8, root, size, store, store_some

__all__ = [
    "APPLY", "FILL", "LOGSUMEXP", "MATRIX_VECTOR", "NEST", "POWER", "PRODUCT", "ROOT", "SYMMETRIC", "VECTOR_MATRIX",
    "WIDTH", "add_multiple", "copied", "factored", "largest_size", "matrix_product", "perform", "solved",
]  # fmt: skip

FILL, APPLY, POWER, NEST, MATRIX_VECTOR, VECTOR_MATRIX, PRODUCT, ROOT, LOGSUMEXP = range(9)
SYMMETRIC = 1  # a product of which half suffices
WIDTH = 21  # entries of an instruction
LOG = CODES["log"]


@inlined
def add_multiple(memory, to, a, factor, n):
    """to += factor a."""
    whole = n - n % 8
    for i in range(0, whole, 8):
        store(memory, to + i, fma(load8(memory, a + i), factor, load8(memory, to + i)))
    if whole < n:
        store_some(memory, to + whole, fma(load8(memory, a + whole), factor, load8(memory, to + whole)), n - whole)


@inlined
def _nest(memory, factor, code, line):
    """to += factor a b, entry by entry; where ``to`` does not move with the last index, the products are summed."""
    to, a, b, last = at(code, line + 1), at(code, line + 2), at(code, line + 3), at(code, line + 8)
    t0, t1, t2, t3 = at(code, line + 9), at(code, line + 10), at(code, line + 11), at(code, line + 12)
    a0, a1, a2, a3 = at(code, line + 13), at(code, line + 14), at(code, line + 15), at(code, line + 16)
    b0, b1, b2, b3 = at(code, line + 17), at(code, line + 18), at(code, line + 19), at(code, line + 20)
    for i in range(at(code, line + 5)):
        for j in range(at(code, line + 6)):
            for k in range(at(code, line + 7)):
                into = to + i * t0 + j * t1 + k * t2
                one = a + i * a0 + j * a1 + k * a2
                two = b + i * b0 + j * b1 + k * b2
                if t3 == 0 and a3 == 1 and b3 == 1:
                    store(memory, into, fma(factor, dot(memory, one, two, last), at(memory, into)))
                elif t3 == 0:
                    total = 0.0
                    for h in range(last):
                        total = fma(at(memory, one + h * a3), at(memory, two + h * b3), total)
                    store(memory, into, fma(factor, total, at(memory, into)))
                elif t3 == 1 and a3 == 1 and b3 == 0:
                    add_multiple(memory, into, one, factor * at(memory, two), last)
                elif t3 == 1 and a3 == 1 and b3 == 1:
                    for h in range(0, last, 8):
                        scaled = factor * load8(memory, one + h)
                        result = fma(scaled, load8(memory, two + h), load8(memory, into + h))
                        store_some(memory, into + h, result, last - h)
                else:
                    for h in range(last):
                        product = factor * at(memory, one + h * a3)
                        here = into + h * t3
                        store(memory, here, fma(product, at(memory, two + h * b3), at(memory, here)))


@inlined
def _four_by_sixteen(memory, to, a, b, n, p, down, along, count):
    """Four rows of A B, 16 columns or the ``count`` that there are, more than eight: vectors that are not whole too."""
    a1, a2, a3 = a + down, a + 2 * down, a + 3 * down
    left, right = load8(memory, b), load8(memory, b + 8)
    s0, s1, s2, s3 = left * at(memory, a), left * at(memory, a1), left * at(memory, a2), left * at(memory, a3)
    t0, t1, t2, t3 = right * at(memory, a), right * at(memory, a1), right * at(memory, a2), right * at(memory, a3)
    for k in range(1, n):
        left, right, c = load8(memory, b + k * p), load8(memory, b + k * p + 8), k * along
        one, two, three, four = at(memory, a + c), at(memory, a1 + c), at(memory, a2 + c), at(memory, a3 + c)
        s0, s1, s2, s3 = fma(left, one, s0), fma(left, two, s1), fma(left, three, s2), fma(left, four, s3)
        t0, t1, t2, t3 = fma(right, one, t0), fma(right, two, t1), fma(right, three, t2), fma(right, four, t3)
    store(memory, to, s0)
    store(memory, to + p, s1)
    store(memory, to + 2 * p, s2)
    store(memory, to + 3 * p, s3)
    store_some(memory, to + 8, t0, count - 8)
    store_some(memory, to + p + 8, t1, count - 8)
    store_some(memory, to + 2 * p + 8, t2, count - 8)
    store_some(memory, to + 3 * p + 8, t3, count - 8)


@inlined
def _four_by_eight(memory, to, a, b, n, p, down, along, count):
    """Four rows of A B, eight columns or the ``count`` that there are."""
    a1, a2, a3 = a + down, a + 2 * down, a + 3 * down
    right = load8(memory, b)
    s0, s1, s2, s3 = right * at(memory, a), right * at(memory, a1), right * at(memory, a2), right * at(memory, a3)
    for k in range(1, n):
        right, c = load8(memory, b + k * p), k * along
        s0, s1 = fma(right, at(memory, a + c), s0), fma(right, at(memory, a1 + c), s1)
        s2, s3 = fma(right, at(memory, a2 + c), s2), fma(right, at(memory, a3 + c), s3)
    store_some(memory, to, s0, count)
    store_some(memory, to + p, s1, count)
    store_some(memory, to + 2 * p, s2, count)
    store_some(memory, to + 3 * p, s3, count)


@inlined
def matrix_product(memory, to, a, b, m, n, p, down, along, symmetric):
    """A B, (m, n) and (n, p): entry (i, k) of A stands ``i down + k along`` behind its first one."""
    fours = m - m % 4
    for i in range(0, fours, 4):
        end = min(p, i + 4) if symmetric else p  # at least what is on and below the diagonal
        for j in range(0, end, 16):
            if p - j > 8:
                _four_by_sixteen(memory, to + i * p + j, a + i * down, b + j, n, p, down, along, p - j)
            else:
                _four_by_eight(memory, to + i * p + j, a + i * down, b + j, n, p, down, along, p - j)
    for i in range(fours, m):
        for j in range(0, p, 8):
            part = load8(memory, b + j) * at(memory, a + i * down)
            for k in range(1, n):
                part = fma(load8(memory, b + k * p + j), at(memory, a + i * down + k * along), part)
            store_some(memory, to + i * p + j, part, p - j)
    if symmetric:
        for i in range(m):
            for j in range(i):
                store(memory, to + j * p + i, at(memory, to + i * p + j))


@inlined
def _logsumexp(memory, to, a, rows, width):
    """Of each row: no exponential exceeds one."""
    for i in range(rows):
        first = a + i * width
        largest = at(memory, first)
        for j in range(1, width):
            value = at(memory, first + j)
            if not value <= largest:
                largest = value
        total, whole = 0.0, width - width % 8
        for j in range(0, whole, 8):
            total = total + folded(exp(load8(memory, first + j) - largest))
        for j in range(whole, width):
            total = total + exp(at(memory, first + j) - largest)
        store(memory, to + i, largest + library(LOG, total))


@strict
def perform(code, numbers, memory):
    """One instruction after the other."""
    for line in range(0, len(code), WIDTH):
        op, to, a, b = at(code, line), at(code, line + 1), at(code, line + 2), at(code, line + 3)
        number, m, n = at(code, line + 4), at(code, line + 5), at(code, line + 6)
        if op == FILL:
            for i in range(m):
                store(memory, to + i, at(numbers, number))
        elif op == APPLY:
            apply(memory, to, a, m, number)
        elif op == POWER:
            for i in range(m):
                store(memory, to + i, whole_power(at(memory, a + i), number, n))
        elif op == NEST:
            _nest(memory, at(numbers, number), code, line)
        elif op == MATRIX_VECTOR:
            matrix_vector(memory, to, a, b, m, n)
        elif op == VECTOR_MATRIX:
            vector_matrix(memory, to, a, b, m, n)
        elif op == PRODUCT:
            p, down, along = at(code, line + 7), at(code, line + 9), at(code, line + 10)
            matrix_product(memory, to, a, b, m, n, p, down, along, number == SYMMETRIC)
        elif op == ROOT:
            for i in range(m):
                store(memory, to + i, root(at(memory, a + i)))
        else:
            _logsumexp(memory, to, a, m, n)


# ---- linear algebra -------------------------------------------------------------------------------------------------


@inlined
def factored(memory, a, n):
    """The Cholesky factor in the place of a matrix, on and below its diagonal, rows first; whether there is one."""
    for i in range(n):
        for j in range(i):
            rest = at(memory, a + i * n + j) - dot(memory, a + i * n, a + j * n, j)
            store(memory, a + i * n + j, rest / at(memory, a + j * n + j))
        square = at(memory, a + i * n + i) - dot(memory, a + i * n, a + i * n, i)
        if not 0.0 < square < inf:
            return False
        store(memory, a + i * n + i, root(square))
    return True


@inlined
def solved(memory, factor, n, b):
    """The solution of a system in the place of its right-hand side."""
    for i in range(n):
        rest = at(memory, b + i) - dot(memory, factor + i * n, b, i)
        store(memory, b + i, rest / at(memory, factor + i * n + i))
    for i in range(n - 1, -1, -1):
        value = at(memory, b + i) / at(memory, factor + i * n + i)
        store(memory, b + i, value)
        row, whole = factor + i * n, i - i % 8
        for j in range(0, whole, 8):
            store(memory, b + j, fma(load8(memory, row + j), -value, load8(memory, b + j)))
        for j in range(whole, i):
            store(memory, b + j, fma(at(memory, row + j), -value, at(memory, b + j)))


@inlined
def copied(memory, to, a, n, sign):
    """Numbers, or their negatives, to another place."""
    for i in range(n):
        store(memory, to + i, sign * at(memory, a + i))


@inlined
def largest_size(memory, a, n):
    """The largest size of an entry; NaN where one is."""
    found = 0.0
    for i in range(n):
        value = size(at(memory, a + i))
        if not value <= found:
            found = value
    return found
