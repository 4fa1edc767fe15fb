"""The tube of Section 5, read from a problem: its polynomial in every region, and how they meet.

Everything is a polynomial in x and in tau = e with rational coefficients. As e is transcendental, such a polynomial
vanishes only if its coefficients do, so that ``expand`` decides every equality.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import sympy as sp
from flint import arb, arb_poly, fmpq

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.zoo.tube import TAU, TubeShape
from verify import Bracket, NotApplicable

ELSEWHERE = "it speaks of the experiment of Section 5"
LOW, MIDDLE, HIGH = sp.Rational(1, 2), sp.Rational(3, 2), sp.Rational(3)  # of tau: inside [0, 1], [1, 2] and [2, 6]


@dataclass(frozen=True)
class Tube:
    """A problem that is the tube of Section 5 on its printed domain D_0; made by ``tube_of``.

    >>> from bilevel_sym.zoo import get
    >>> tube = tube_of(get("tube_printed", d=2, L=2).problem)
    >>> tube.L, tube.gamma, tube.coupled
    (2, 1, False)
    """

    problem: BilevelProblem
    phi: sp.Expr
    y_star: tuple[sp.Expr, ...]
    coupled: bool
    pieces: dict[tuple[sp.Expr, int, bool], sp.Expr] = field(default_factory=dict, compare=False, repr=False)

    @property
    def x(self) -> tuple[sp.Symbol, ...]:
        """The upper-level variables."""
        return tuple(self.problem.x)

    @property
    def d(self) -> int:
        """How many there are."""
        return len(self.x)

    def region(self, i: int, middle: bool = False) -> dict[sp.Symbol, sp.Expr]:
        """A point inside a region: i coordinates are past 2 tau, and the next is past tau or not."""
        past = [HIGH] * i + ([MIDDLE] if middle else []) + [LOW] * self.d
        return {s: c * TAU for s, c in zip(self.x, past, strict=False)}

    def piece(self, expression: sp.Expr, i: int, middle: bool = False) -> sp.Expr:
        """The polynomial that an expression is in a region."""
        key = expression, i, middle
        if key not in self.pieces:  # asked for again by every claim
            self.pieces[key] = sp.expand(branch(expression, self.region(i, middle)))
        return self.pieces[key]

    @cached_property
    def L(self) -> sp.Expr:
        """The curvature of the walls and of the last bowl, as the last piece has it."""
        return sp.expand(sp.diff(self.piece(self.phi, self.d), self.x[-1], 2) / 2)

    @cached_property
    def gamma(self) -> sp.Expr:
        """The negative curvature at the saddle points, as the first piece has it."""
        return sp.expand(-sp.diff(self.piece(self.phi, 0), self.x[0], 2) / 2)

    @cached_property
    def shape(self) -> TubeShape:
        """The printed functions for these curvatures."""
        return TubeShape(self.L, self.gamma)

    @property
    def faces(self) -> Iterator[tuple[int, sp.Expr, tuple[int, bool], tuple[int, bool]]]:
        """Where regions meet: the coordinate, its value, and the regions on both sides."""
        for i in range(self.d):
            yield i, TAU, (i, False), (i, True)
            yield i, 2 * TAU, (i, True), (i + 1, False)

    def jumps(self, expression: sp.Expr, order: int) -> Iterator[sp.Expr]:
        """By how much a normal derivative jumps at each face, as a function on the face."""
        for i, value, below, above in self.faces:
            difference = self.piece(expression, *below) - self.piece(expression, *above)
            yield sp.expand(sp.diff(difference, self.x[i], order).subs(self.x[i], value))

    def rough(self, expression: sp.Expr, order: int) -> Iterator[tuple[int, int, sp.Expr, sp.Expr]]:
        """The jumps of normal derivatives up to this order: the order, the coordinate, its value, and by how much.

        Where there are none all derivatives are continuous: those along a face are if the normal ones are.
        """
        for k in range(order + 1):
            for (i, value, *_), jump in zip(self.faces, self.jumps(expression, k), strict=True):
                if jump != 0:
                    yield k, i, value, jump


def branch(expression: sp.Expr, point: Mapping[sp.Symbol, sp.Expr]) -> sp.Expr:
    """The expression that is in force around a point inside a region; nan where it is undefined.

    >>> x = sp.Symbol("x")
    >>> branch(sp.Piecewise((x, x < 1), (x**2, x < 2)) + 1, {x: sp.Rational(3, 2)})
    x**2 + 1
    """
    if isinstance(expression, sp.Piecewise):
        held = (value for value, condition in expression.args if condition.subs(point) == True)  # noqa: E712
        value = next(held, None)
        return sp.nan if value is None else branch(value, point)
    if not expression.has(sp.Piecewise):
        return expression
    return expression.func(*(branch(part, point) for part in expression.args))


@lru_cache(4)
def tube_of(problem: BilevelProblem) -> Tube:
    """The tube in a problem of that name, after a proof that its Phi is the printed one on all of D_0.

    >>> tube_of(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", name="tube"))
    Traceback (most recent call last):
      ...
    verify.registry.NotApplicable: it bears the name of the tube, but its Phi is another
    """
    if not (problem.name or "").startswith("tube"):
        raise NotApplicable(ELSEWHERE)
    x, y = tuple(problem.x), tuple(problem.y)
    coupled = len(y) == len(x) > 1
    if coupled:
        y_star: tuple[sp.Expr, ...] = x
        if any(sp.expand(sp.diff(problem.g, t).xreplace(dict(zip(y, x, strict=True)))) != 0 for t in y):
            raise NotApplicable(ELSEWHERE)
    elif len(y) == 1:
        # g = y^2/2 - g(x) y, so that y - g_y is y*
        y_star = (y[0] - sp.diff(problem.g, y[0]),)
    else:
        raise NotApplicable(ELSEWHERE)
    phi = problem.f.xreplace(dict(zip(y, y_star, strict=True)))
    tube = Tube(problem, phi, y_star, coupled)
    if not _is_printed(tube):
        raise NotApplicable("it bears the name of the tube, but its Phi is another")
    return tube


def _is_printed(tube: Tube) -> bool:
    """Whether Phi is the printed one in every region of D_0."""
    curvatures = (tube.L, tube.gamma)
    if not all(c.is_Rational and c > 0 for c in curvatures):
        return False
    x, shape = tube.x, tube.shape
    pairs = [(tube.piece(tube.phi, i), shape.first_piece(x, i)) for i in range(tube.d + 1)]
    pairs += [(tube.piece(tube.phi, i, True), shape.second_piece(x, i, shape.connector(x, i))) for i in range(tube.d)]
    return all(sp.expand(here - there) == 0 for here, there in pairs)


def curvature(tube: Tube) -> Bracket:
    """sup |Hess Phi| over D_0, proved.

    >>> from bilevel_sym.zoo import get
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
