"""sup |Hess Phi| of the tube over its printed domain, by branch and bound in balls."""

from __future__ import annotations

import heapq
import math

import numpy as np
import sympy as sp
from flint import arb, arb_poly, fmpq

from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.zoo.tube_shape import TAU
from verify.bracket import Bracket
from verify.papers.huang_saddle.measures.tube.pieces import Tube

__all__ = ["curvature"]


def curvature(tube: Tube) -> Bracket:
    """sup |Hess Phi| over D_0, proved.

    >>> from bilevel_sym.zoo import get
    >>> from verify.papers.huang_saddle.measures.tube.pieces import tube_of
    >>> 10 / 3 in curvature(tube_of(get("tube_printed", d=1).problem))
    True
    """
    flat = 2 * float(max(tube.L, tube.gamma))  # exact: what stands in the other pieces
    with precision(64):
        blocks = [_connecting_block(tube, i) for i in dict.fromkeys((0, tube.d - 1))]
        found = [_largest_norm(block) for block in blocks]
    return Bracket(max(flat, *(b.lower for b in found)), max(flat, *(b.upper for b in found)))


Block = tuple[arb_poly, arb_poly, arb_poly, arb_poly]


def _connecting_block(tube: Tube, i: int) -> Block:
    """The Hessian of a connecting piece in (x_i, x_{i+1}) = tau (1 + u, t): (a_0 + a_1 t^2, b t; b t, c)."""
    u, t = sp.symbols("u t")
    x = tube.x[i]
    after = tube.x[i + 1] if i + 1 < tube.d else sp.Symbol("absent")
    piece = tube.piece(tube.phi, i, True)
    at = {x: (1 + u) * TAU, after: t * TAU}
    along, across, beside = (sp.expand(sp.diff(piece, *pair).subs(at)) for pair in ((x, x), (x, after), (after, after)))
    parts = (along.coeff(t, 0), along.coeff(t, 2), across.coeff(t, 1), beside.coeff(t, 0))
    return tuple(arb_poly([_ball(c) for c in reversed(sp.Poly(part, u).all_coeffs())]) for part in parts)  # type: ignore[return-value]


def _ball(c: sp.Rational) -> arb:
    return arb(fmpq(int(c.p), int(c.q)))


def _norm(block: Block, u: arb, t: arb) -> arb:
    """The spectral norm of the symmetric 2 by 2 matrix, over balls."""
    along, bend, across, beside = (part(u) for part in block)
    square = t * t
    a, b, c = along + bend * square, across * t, beside
    half = (a - c) / 2
    return abs((a + c) / 2) + _root(half * half + b * b)


def _root(square: arb) -> arb:
    """The root of a number that is not negative, though its ball may reach below zero, where ``sqrt`` gives nan."""
    return square.sqrt() if square > 0 else arb(0).union(arb(square.upper()).sqrt())


def _largest_norm(block: Block, rtol: float = 1e-3, most: int = 4000) -> Bracket:
    """Branch and bound over the unit square."""
    heap: list[tuple[float, tuple[fmpq, fmpq, fmpq, fmpq]]] = []
    best = 0.0
    bends = any(part.degree() >= 0 for part in block[1:3])  # whether it depends on t

    def push(cell: tuple[fmpq, fmpq, fmpq, fmpq]) -> None:
        nonlocal best
        left, right, low, high = cell
        centre = _norm(block, arb((left + right) / 2), arb((low + high) / 2))
        best = max(best, float(np.nextafter(float(centre.lower()), 0)))
        over = _norm(block, arb(left).union(arb(right)), arb(low).union(arb(high)))
        most_here = float(np.nextafter(float(over.upper()), np.inf))
        heapq.heappush(heap, (-math.inf if math.isnan(most_here) else -most_here, cell))

    push((fmpq(0), fmpq(1), fmpq(0), fmpq(1 if bends else 0)))
    for _ in range(most):
        if -heap[0][0] <= best * (1 + rtol):
            break
        left, right, low, high = heapq.heappop(heap)[1]
        middle, centre = (left + right) / 2, (low + high) / 2
        for a, b in ((left, middle), (middle, right)):
            for e, f in ((low, centre), (centre, high)) if bends else ((low, high),):
                push((a, b, e, f))
    return Bracket(best, max(best, -heap[0][0]))
