"""Which of several formulas is the minimiser: the one that is real and has positive curvature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import sympy as sp

from bilevel_sym.graph.expressions import substitute
from bilevel_sym.graph.precision import precision
from bilevel_sym.symbolic.algebra.domain import MIDPOINT_BITS, Ball, Domain, Point, enclosure, exact_ball
from bilevel_sym.symbolic.algebra.field import TooLarge
from bilevel_sym.symbolic.algebra.linear import negative_direction, not_convex, vanishes
from bilevel_sym.symbolic.algebra.scalar import Root, Unsolved
from bilevel_sym.symbolic.blocks import derivative

__all__ = ["check_convex", "choose"]


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Formulas for y with equation = 0, where the equation is the derivative of g in y."""

    found: Sequence[Root]
    equation: sp.Expr
    y: sp.Symbol
    slope: sp.Expr
    g: sp.Expr

    def minimisers(self, domain: Domain, point: Point) -> list[Ball | None]:
        """The value of each formula that is a minimiser at the point; those in y's interval come first."""
        values = [self._minimiser(root, domain, point) for root in self.found]
        ends = domain.interval(self.y)
        inside = [None if v is None or not _contains(ends, v) else v for v in values]
        return inside if any(v is not None for v in inside) else values

    def _minimiser(self, root: Root, domain: Domain, point: Point) -> Ball | None:
        value = enclosure(root.value, point)
        at = {**point, self.y: value}
        ends = domain.interval(self.y)
        real = value.is_finite() and enclosure(self.g, at).is_finite()
        stationary = enclosure(self.equation, at).contains(0) and enclosure(self.slope, at) > 0
        signed = value > 0 if self.y.is_positive else value < 0 if self.y.is_negative else True
        meant = root.positive is None or enclosure(root.positive, point) > 0
        pinned = not root.local or (ends is not None and _contains(ends, value))
        return value if real and stationary and signed and meant and pinned else None

    def violation(self, domain: Domain, point: Point) -> tuple[Ball, Ball] | None:
        """A y at which the slope is certainly negative, and the slope there."""
        ends = domain.interval(self.y)
        at_roots = [enclosure(root.value, point) for root in self.found]
        for value in (*at_roots, *map(exact_ball, domain.samples(self.y))):
            at = {**point, self.y: value}
            slope = enclosure(self.slope, at)
            certain = slope < 0 and slope.is_finite() and enclosure(self.g, at).is_finite()
            if certain and _contains(ends, value):
                return value, slope
        return None


def choose(found: Sequence[Root], equation: sp.Expr, y: sp.Symbol, g: sp.Expr, domain: Domain) -> Root:
    """The formula that is the minimiser at every sample point that has exactly one; never a guess.

    Strong convexity leaves one real root, with positive slope. Sample points at which two formulas are
    minimisers lie outside the assumption and say nothing.

    >>> x, y = sp.symbols("x y", real=True)
    >>> choose([Root(sp.sqrt(x)), Root(-sp.sqrt(x))], y**2 - x, y, y**3/3 - x*y, Domain(None, {})).value
    sqrt(x)
    """
    found = [root for root in found if _is_meant(root, y, domain)]
    candidates = _Candidates(found, equation, y, derivative(equation, y), g)
    points = list(domain.points(g, equation, *(root.value for root in found)))
    with precision(MIDPOINT_BITS):
        rows = [candidates.minimisers(domain, domain.balls(point)) for point in points]
        rows = [row for row in rows if not _distinct(row)]
        seen = [row for row in rows if any(v is not None for v in row)]
        if not seen:
            _refuse(candidates, domain, points)
        for k, root in enumerate(found):
            if all(row[k] is not None for row in seen):
                return root
    raise Unsolved("has several real branches, and which one is the minimiser changes", equation)


def _is_meant(root: Root, y: sp.Symbol, domain: Domain) -> bool:
    """Whether a formula that wants a positive p has one: by convexity on the whole line, or by proof."""
    if root.positive is None or (root.convex and domain.interval(y) is None):
        return True
    return domain.proves_between(root.positive, sp.S.Zero, sp.oo)


def check_convex(matrix: Sequence[Sequence[sp.Expr]], values: Sequence[sp.Expr], domain: Domain) -> None:
    """Look at the solution of a linear system at sample points.

    AssumptionViolated if the matrix, which is g_yy, is certainly not positive definite at one of those in the box, or,
    without a box, at all of them; Unsolved if the values are defined at none of them, because a determinant is zero
    that does not look like it.

    >>> x = sp.Symbol("x", real=True)
    >>> check_convex([[1 + x**2]], [1/(1 + x**2)], Domain(None, {}))
    """
    entries = [entry for row in matrix for entry in row]
    errors = []
    good = False
    with precision(MIDPOINT_BITS):
        for point in domain.points(*entries, *values):
            balls = domain.balls(point)
            numbers = [[enclosure(entry, balls) for entry in row] for row in matrix]
            found = negative_direction(numbers)
            undefined = not all(number.is_finite() for row in numbers for number in row)
            fine = found is None and (undefined or all(enclosure(value, balls).is_finite() for value in values))
            if fine and domain.box is None:
                return
            good = good or fine
            if found is not None:
                place = {s.name: v for s, v in point.items() if s in domain.variables(entries)}
                errors.append(not_convex(_number(found[1]), place, direction=[_number(v) for v in found[0]]))
    if errors:
        raise errors[0]
    if not good:
        raise Unsolved("the system is linear in y, but g_yy is singular wherever it was looked at")


def _refuse(candidates: _Candidates, domain: Domain, points: Sequence[Mapping[sp.Symbol, sp.Rational]]) -> NoReturn:
    """No formula is a minimiser anywhere: show where convexity fails, if it can be shown."""
    y = candidates.y
    for point in points:
        found = candidates.violation(domain, domain.balls(point))
        if found is not None:
            value, slope = map(_number, found)
            raise not_convex(slope, {s.name: v for s, v in point.items()} | {y.name: value}, unknown=y)
    for root in candidates.found:
        if _flat(candidates, root, domain.balls(points[0])):
            raise not_convex(sp.S.Zero, {y.name: root.value}, unknown=y)
    raise Unsolved(f"has no real solution at any of {len(points)} sample points", candidates.equation)


def _flat(candidates: _Candidates, root: Root, point: Point) -> bool:
    """Whether the slope at the root is zero, identically."""
    ball = enclosure(candidates.slope, {**point, candidates.y: enclosure(root.value, point)})
    try:
        return bool(ball.is_finite() and ball.contains(0)) and vanishes(
            substitute(candidates.slope, {candidates.y: root.value})
        )
    except TooLarge:
        return False


def _contains(ends: tuple[sp.Rational, sp.Rational] | None, value: Ball) -> bool:
    return ends is None or bool(exact_ball(ends[0]) <= value <= exact_ball(ends[1]))


def _distinct(row: Sequence[Ball | None]) -> bool:
    values = [value for value in row if value is not None]
    return any(not a.overlaps(b) for a in values for b in values)


def _number(ball: Ball) -> sp.Expr:
    """The exact value where the ball is a point, else its midpoint."""
    mantissa, exponent = ball.mid().man_exp()
    exact = sp.Rational(int(mantissa)) * sp.Integer(2) ** int(exponent)
    return exact if ball.is_exact() else sp.Float(exact, 15)
