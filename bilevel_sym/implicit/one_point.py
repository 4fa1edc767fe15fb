"""One point of an array problem in compiled code: Newton's method, and the implicit formulas on dense blocks."""

from __future__ import annotations

from math import inf

from bilevel_sym.arithmetic.compiled.elementwise import inlined, strict
from bilevel_sym.arithmetic.compiled.plans import copied, factored, largest_size, matrix_product, perform, solved
from bilevel_sym.arithmetic.compiled.rows import dot
from bilevel_sym.arithmetic.compiled.vectors import at, fma, store

__all__ = ["expand", "gradient", "newton", "value"]


@strict
def newton(code, numbers, memory, ends, limits, most, once):
    """Full Newton steps from the y in memory, as ``lower_level.full_steps``: how many systems, or 0 for no result.

    - ``code``, ``numbers``, ``memory``: g_y and g_yy at (x, y).
    - ``ends``: where y, g_y, g_yy and the step stand, and n.
    - ``limits``: lengths of steps relative to y: of round-off, of a full step, and of one whose square is round-off.
    - ``most``: steps.
    - ``once``: whether g is quadratic in y, so that one step is all.
    """
    y, g_y, g_yy, step, n = ends[0], ends[1], ends[2], ends[3], ends[4]
    before = inf
    for k in range(1, most):
        perform(code, numbers, memory)
        if not factored(memory, g_yy, n):
            return 0
        copied(memory, step, g_y, n, -1.0)
        solved(memory, g_yy, n, step)
        length, largest = largest_size(memory, step, n), largest_size(memory, y, n)
        if not once:
            if length <= limits[0] * largest or (length <= limits[1] * largest and 2.0 * length > before):
                return k
            if not length < inf or (k > 1 and length > before):
                return 0
        for i in range(n):
            store(memory, y + i, at(memory, y + i) + at(memory, step + i))
        if once or (length <= limits[2] * largest and length <= before / 1000.0):
            return k
        before = length
    return 0


@strict
def value(code, numbers, memory, place):
    """What instructions leave at a place."""
    perform(code, numbers, memory)
    return at(memory, place)


@inlined
def _adjoint(first, second, numbers, memory, f_y, g_yy, v, n):
    """The blocks, v, and those that take it; the factor of g_yy stays in its place. False where there is none."""
    perform(first, numbers, memory)
    if not factored(memory, g_yy, n):
        return False
    copied(memory, v, f_y, n, 1.0)
    solved(memory, g_yy, n, v)
    perform(second, numbers, memory)
    return True


@strict
def gradient(first, second, numbers, memory, ends, out):
    """Phi and grad Phi at (x, y) in memory; False where g_yy is not positive definite.

    - ``first``, ``second``: the instructions without v, and those with it.
    - ``numbers``, ``memory``: theirs.
    - ``ends``: where f, f_x, f_y, g_yy, v and g_xy_v stand, d and n.
    - ``out``: Phi, then grad Phi.
    """
    f, f_x, f_y, g_yy, v, g_xy_v, d, n = ends[0], ends[1], ends[2], ends[3], ends[4], ends[5], ends[6], ends[7]
    if not _adjoint(first, second, numbers, memory, f_y, g_yy, v, n):
        return False
    store(out, 0, at(memory, f))
    for i in range(d):
        store(out, 1 + i, at(memory, f_x + i) - at(memory, g_xy_v + i))
    return True


@strict
def expand(first, second, numbers, memory, ends, out):
    """Phi, grad Phi and Hess Phi at (x, y) in memory; False where g_yy is not positive definite.

    - ``first``, ``second``: the instructions without v, and those with it.
    - ``numbers``, ``memory``: theirs.
    - ``ends``: where f, f_x, f_y, g_xy, g_yy, v, L_xx, L_xy and L_yy stand, then room for d n, n d, d n and d d
      numbers, d and n.
    - ``out``: Phi, grad Phi, Hess Phi.
    """
    f, f_x, f_y, g_xy, g_yy, v = ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]
    L_xx, L_xy, L_yy = ends[6], ends[7], ends[8]
    moved, turned, half, cross, d, n = ends[9], ends[10], ends[11], ends[12], ends[13], ends[14]
    if not _adjoint(first, second, numbers, memory, f_y, g_yy, v, n):
        return False
    store(out, 0, at(memory, f))
    for i in range(d):
        store(out, 1 + i, at(memory, f_x + i) - dot(memory, g_xy + i * n, v, n))
        copied(memory, moved + i * n, g_xy + i * n, n, -1.0)
        solved(memory, g_yy, n, moved + i * n)
        for j in range(n):
            store(memory, turned + j * d + i, at(memory, moved + i * n + j))
    matrix_product(memory, half, moved, L_yy, d, n, n, n, 1, False)
    for i in range(d * n):
        store(memory, half + i, fma(0.5, at(memory, half + i), at(memory, L_xy + i)))
    matrix_product(memory, cross, half, turned, d, n, d, n, 1, False)
    for i in range(d):
        for j in range(d):
            both = at(memory, cross + i * d + j) + at(memory, cross + j * d + i)
            store(out, 1 + d + i * d + j, both + at(memory, L_xx + i * d + j))
    return True
