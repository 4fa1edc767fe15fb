"""Steps of array plans at one point, in compiled code, and the linear algebra of small systems.

A program is a row of instructions (op, to, a, b, number, four sizes, four strides of each of to, a and b), performed
on one array of numbers, ``memory``. Whatever multiplies, sums, copies or transposes entries is a ``NEST`` of loops;
what takes most of the time has an instruction of its own. The bits of a result depend on sizes alone.
"""

from __future__ import annotations

from math import inf

from bilevel_sym.arithmetic.compiled.elementwise import CODES, exp, inlined, library, strict, whole_power
from bilevel_sym.arithmetic.compiled.rows import apply, dot, matrix_vector, vector_matrix
from bilevel_sym.arithmetic.compiled.vectors import at, fma, load8, root, size, store

__all__ = [
    "APPLY", "FILL", "LOGSUMEXP", "MATRIX_VECTOR", "NEST", "POWER", "PRODUCT", "ROOT", "SYMMETRIC", "VECTOR_MATRIX",
    "WIDTH", "copied", "factored", "largest_size", "matrix_product", "perform", "solved",
]  # fmt: skip

FILL, APPLY, POWER, NEST, MATRIX_VECTOR, VECTOR_MATRIX, PRODUCT, ROOT, LOGSUMEXP = range(9)
SYMMETRIC = 1  # a product of which half suffices
WIDTH = 21  # entries of an instruction
LOG = CODES["log"]


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
                if t3 == 0:
                    total = 0.0
                    for h in range(last):
                        total = fma(at(memory, one + h * a3), at(memory, two + h * b3), total)
                    store(memory, into, fma(factor, total, at(memory, into)))
                elif t3 == 1 and a3 == 1 and b3 == 0:
                    own = factor * at(memory, two)
                    whole = last - last % 8
                    for h in range(0, whole, 8):
                        store(memory, into + h, fma(load8(memory, one + h), own, load8(memory, into + h)))
                    for h in range(whole, last):
                        store(memory, into + h, fma(at(memory, one + h), own, at(memory, into + h)))
                else:
                    for h in range(last):
                        product = factor * at(memory, one + h * a3)
                        here = into + h * t3
                        store(memory, here, fma(product, at(memory, two + h * b3), at(memory, here)))


@inlined
def matrix_product(memory, to, a, b, m, n, p, down, along, symmetric):
    """A B, (m, n) and (n, p): entry (i, k) of A stands ``i down + k along`` behind its first one."""
    all_eights, fours = p - p % 8, m - m % 4
    for i in range(0, fours, 4):
        whole = min(all_eights, i + 8) if symmetric else all_eights  # at least what is on and below the diagonal
        a0, a1, a2, a3 = a + i * down, a + (i + 1) * down, a + (i + 2) * down, a + (i + 3) * down
        t = to + i * p
        for j in range(0, whole, 8):
            right = load8(memory, b + j)
            s0, s1 = right * at(memory, a0), right * at(memory, a1)
            s2, s3 = right * at(memory, a2), right * at(memory, a3)
            for k in range(1, n):
                right, c = load8(memory, b + k * p + j), k * along
                s0, s1 = fma(right, at(memory, a0 + c), s0), fma(right, at(memory, a1 + c), s1)
                s2, s3 = fma(right, at(memory, a2 + c), s2), fma(right, at(memory, a3 + c), s3)
            store(memory, t + j, s0)
            store(memory, t + p + j, s1)
            store(memory, t + 2 * p + j, s2)
            store(memory, t + 3 * p + j, s3)
        for j in range(all_eights, p if not symmetric or i + 4 > all_eights else 0):
            r0 = r1 = r2 = r3 = 0.0
            for k in range(n):
                one, c = at(memory, b + k * p + j), k * along
                r0, r1 = fma(one, at(memory, a0 + c), r0), fma(one, at(memory, a1 + c), r1)
                r2, r3 = fma(one, at(memory, a2 + c), r2), fma(one, at(memory, a3 + c), r3)
            store(memory, t + j, r0)
            store(memory, t + p + j, r1)
            store(memory, t + 2 * p + j, r2)
            store(memory, t + 3 * p + j, r3)
    for i in range(fours, m):
        for j in range(0, all_eights, 8):
            part = load8(memory, b + j) * at(memory, a + i * down)
            for k in range(1, n):
                part = fma(load8(memory, b + k * p + j), at(memory, a + i * down + k * along), part)
            store(memory, to + i * p + j, part)
        for j in range(all_eights, p):
            total = 0.0
            for k in range(n):
                total = fma(at(memory, b + k * p + j), at(memory, a + i * down + k * along), total)
            store(memory, to + i * p + j, total)
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
        total = 0.0
        for j in range(width):
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
