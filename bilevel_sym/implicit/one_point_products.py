"""One point of an array problem in compiled code, by products with g_yy: Newton's method with conjugate gradients.

The same methods as ``conjugate_gradients`` has in NumPy, without a factor of g_yy: what products alone do not solve
soon is left to it.
"""

from __future__ import annotations

from math import inf

from bilevel_sym.arithmetic.compiled.elementwise import inlined, strict
from bilevel_sym.arithmetic.compiled.plans import add_multiple, copied, largest_size, perform
from bilevel_sym.arithmetic.compiled.rows import dot
from bilevel_sym.arithmetic.compiled.vectors import at, fma, load8, root, store, store_some
from bilevel_sym.implicit.conjugate_gradients import (
    CLOSE,
    CURVATURE,
    ENOUGH,
    FEW,
    FLOOR,
    LOOSE,
    MAX_HALVINGS,
    MAX_STEPS,
    ROUND_OFF,
    SOLVED,
    STALLED,
    TRUSTED,
)

__all__ = ["expand", "gradient", "newton"]

SMALLEST = 1e-300  # a y below this is zero


@inlined
def _turned(memory, direction, residual, factor, n):
    """direction = residual + factor direction."""
    for i in range(0, n, 8):
        moved = fma(load8(memory, direction + i), factor, load8(memory, residual + i))
        store_some(memory, direction + i, moved, n - i)


@strict
def _solved(code, numbers, memory, ends, right, rtol, most):
    """g_yy^-1 b in the place of b, to ``rtol`` or to where the residual no longer shrinks: products, or -1 if not.

    - ``code``, ``numbers``, ``memory``: what takes v to g_yy v.
    - ``ends``: where v and g_yy v stand, three rooms of n numbers, and n.
    - ``right``: where b stands.
    - ``rtol``: the residual that is asked for, relative to b.
    - ``most``: products.
    """
    direction, image, z, residual, best, n = ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]
    whole = root(dot(memory, right, right, n))
    copied(memory, residual, right, n, 1.0)
    for i in range(n):
        store(memory, z + i, 0.0)
        store(memory, best + i, 0.0)
        store(memory, direction + i, 0.0)
    least, since, before, products = inf, 0, 1.0, 0
    goal, small, rounded = rtol * whole, TRUSTED * whole, SOLVED * whole
    while whole > 0.0:  # else a feature that is always zero moves nothing
        square = dot(memory, residual, residual, n)
        length = root(square)
        stalls = least <= length and (length <= small or least <= small)
        since = since + 1 if stalls else 0
        if length < least:
            least = length
            copied(memory, best, z, n, 1.0)
        if length <= goal or since > STALLED or (since > FEW and least <= rounded):
            break
        if products == most:
            return -1
        _turned(memory, direction, residual, square / before, n)
        before = square
        perform(code, numbers, memory)
        products += 1
        curvature = dot(memory, direction, image, n)
        if not 0.0 < curvature < inf:
            return -1
        step = square / curvature
        add_multiple(memory, z, direction, step, n)
        add_multiple(memory, residual, image, -step, n)
    if whole > 0.0 and not least <= max(goal, small):
        return -1
    copied(memory, right, best, n, 1.0)
    return products


@strict
def newton(first, second, numbers, memory, ends, solving, counts):
    """A zero of grad_y g from the y in memory, as ``conjugate_gradients.newton``; False for no result.

    - ``first``, ``second``: the instructions that make g and g_y of (x, y), and those that take v to g_yy v.
    - ``numbers``, ``memory``: theirs.
    - ``ends``: where y, g and g_y stand, and room for n numbers twice.
    - ``solving``: see ``_solved``.
    - ``counts``: products that there may be; then gradients and products that there were.
    """
    y, g, g_y, step, old, n, most = ends[0], ends[1], ends[2], ends[3], ends[4], solving[5], counts[0]
    gradients, products, rtol, before = 1, 0, LOOSE, inf
    perform(first, numbers, memory)
    done = False
    for _ in range(MAX_STEPS):
        square = dot(memory, g_y, g_y, n)
        if not square < inf or not -inf < at(memory, g) < inf:
            return False
        if largest_size(memory, g_y, n) == 0.0:
            done = True
            break
        copied(memory, step, g_y, n, -1.0)
        more = _solved(second, numbers, memory, solving, step, rtol, most - products)
        if more < 0:
            return False
        products += more
        length = largest_size(memory, step, n) / max(largest_size(memory, y, n), SMALLEST)
        if length <= ROUND_OFF or (length < CLOSE and 2.0 * length > before):
            done = True
            break
        before = length if length < CLOSE else inf
        copied(memory, old, y, n, 1.0)
        factor, moved = 1.0, False
        for _ in range(MAX_HALVINGS):
            copied(memory, y, old, n, 1.0)
            add_multiple(memory, y, step, factor, n)
            perform(first, numbers, memory)
            gradients += 1
            new = dot(memory, g_y, g_y, n)
            if -inf < at(memory, g) < inf and (new < square or (length < CLOSE and new < inf)):
                moved = True
                break
            factor *= 0.5
        if not moved:
            return False
        if length * (rtol + CURVATURE * length) <= ROUND_OFF:  # what is left of the error
            done = True
            break
        rtol = min(LOOSE, max(length, ENOUGH))  # a step is as good as its square
    counts[0], counts[1] = gradients, products
    return done


@inlined
def _adjoint(first, second, numbers, memory, f_y, adjoint, solving, most):
    """v in a room of its own, after the blocks at (x, y); the products that it took, or -1."""
    perform(first, numbers, memory)
    copied(memory, adjoint, f_y, solving[5], 1.0)
    return _solved(second, numbers, memory, solving, adjoint, FLOOR, most)


@strict
def gradient(first, second, third, numbers, memory, ends, solving, most, out):
    """Phi and grad Phi at (x, y) in memory; False where products do not find v.

    - ``first``, ``second``, ``third``: the instructions without v, those that take v to g_yy v, and to g_xy v.
    - ``numbers``, ``memory``: theirs.
    - ``ends``: where f, f_x, f_y and g_xy v stand, room for n numbers, and d.
    - ``solving``: see ``_solved``.
    - ``most``: products that there may be.
    - ``out``: Phi, then grad Phi.
    """
    f, f_x, f_y, g_xy_v, adjoint, d = ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]
    if _adjoint(first, second, numbers, memory, f_y, adjoint, solving, most) < 0:
        return False
    copied(memory, solving[0], adjoint, solving[5], 1.0)
    perform(third, numbers, memory)
    store(out, 0, at(memory, f))
    for i in range(d):
        store(out, 1 + i, at(memory, f_x + i) - at(memory, g_xy_v + i))
    return True


@strict
def expand(first, second, third, fourth, numbers, memory, ends, solving, most, out):
    """Phi, grad Phi and Hess Phi at (x, y) in memory; False where products do not solve a system.

    Z^T (Hess L) Z with Z = [I; R^T]: Hess L along the d columns of Z.

    - ``first``, ``second``: the instructions without v, and those that take v to g_yy v.
    - ``third``, ``fourth``: those for the other blocks that take v, and for Hess L along a direction.
    - ``numbers``, ``memory``: theirs.
    - ``ends``: where f, f_x, f_y, g_xy, the direction, s_x and s_y stand, room for n numbers and for R, d n, and d.
    - ``solving``: see ``_solved``.
    - ``most``: products that each system may take.
    - ``out``: Phi, grad Phi, Hess Phi.
    """
    f, f_x, f_y, g_xy, way, s_x, s_y = ends[0], ends[1], ends[2], ends[3], ends[4], ends[5], ends[6]
    adjoint, moved, d, n = ends[7], ends[8], ends[9], solving[5]
    if _adjoint(first, second, numbers, memory, f_y, adjoint, solving, most) < 0:
        return False
    store(out, 0, at(memory, f))
    for i in range(d):
        store(out, 1 + i, at(memory, f_x + i) - dot(memory, g_xy + i * n, adjoint, n))
        copied(memory, moved + i * n, g_xy + i * n, n, -1.0)
        if _solved(second, numbers, memory, solving, moved + i * n, FLOOR, most) < 0:
            return False
    copied(memory, solving[0], adjoint, n, 1.0)
    perform(third, numbers, memory)
    for i in range(d):
        for j in range(d):
            store(memory, way + j, 1.0 if i == j else 0.0)
        copied(memory, way + d, moved + i * n, n, 1.0)
        perform(fourth, numbers, memory)
        for j in range(d):
            entry = at(memory, s_x + j) + dot(memory, s_y, moved + j * n, n)
            store(out, 1 + d + i * d + j, entry)
    for i in range(d):
        for j in range(i):
            one, two = 1 + d + i * d + j, 1 + d + j * d + i
            both = 0.5 * (at(out, one) + at(out, two))
            store(out, one, both)
            store(out, two, both)
    return True
