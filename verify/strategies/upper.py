"""How f is drawn: a linear part, a few monomials of degree two, and a function or two of linear forms."""

from __future__ import annotations

from fractions import Fraction

import hypothesis.strategies as st

from verify.strategies.frame import Matrix, Vector, dot, unit
from verify.strategies.terms import Ridge, Sum

__all__ = ["draw_upper"]

_COEFFICIENTS = tuple(map(Fraction, ("1", "-1", "2", "-2", "3", "1/2", "-1/2")))
_ZERO = Fraction(0)
_nonzero, _maybe = st.sampled_from(_COEFFICIENTS), st.sampled_from((_ZERO, *_COEFFICIENTS))
_sign, _up_to_two = st.sampled_from((0, 1, -1)), st.integers(0, 2)
_of_x, _of_y = st.sampled_from(("sin", "cos", "cube", "exp")), st.sampled_from(("sin", "cos", "cube"))


def draw_upper(draw: st.DrawFn, style: str, d: int, directions: Matrix) -> Sum:
    """f(x, y), which varies with y along the directions only; ``style`` as in ``Style.upper``."""
    n = len(directions[0])
    x = tuple(unit(i, d + n) for i in range(d))
    y = tuple((*(_ZERO,) * d, *direction) for direction in directions)
    linear = _slope(draw, x, y, style)
    hessian, ridges = [[_ZERO] * (d + n) for _ in range(d + n)], []
    for a, b in draw(st.lists(_pairs(x, y, style), max_size=2)):
        _add_product(hessian, draw(_nonzero), a, b)
    if style == "even in y":
        _add_product(hessian, draw(_nonzero), y[0], y[0])
    if style != "quadratic":
        bent = x if style in ("x only", "linear in y", "even in y") else (*x, *y)
        ridges = [_ridge(draw, d, bent) for _ in range(draw(_up_to_two))]
    return Sum(d, linear, tuple(map(tuple, hessian)), tuple(ridges))


def _slope(draw: st.DrawFn, x: Matrix, y: Matrix, style: str) -> Vector:
    """At least one variable has a coefficient: the first y, unless f is to be flat in y; then the first x."""
    flat = style in ("x only", "even in y")
    first, *others = x if flat else (*y, *x)
    weighted = [(draw(_nonzero), first), *((draw(_maybe), vector) for vector in others)]
    coefficients = [c for c, _ in weighted]
    return tuple(dot(coefficients, column) for column in zip(*(vector for _, vector in weighted), strict=True))


def _pairs(x: Matrix, y: Matrix, style: str) -> st.SearchStrategy[tuple[Vector, Vector]]:
    """The two factors of a monomial of degree two."""
    in_x, in_y = st.sampled_from(x), st.sampled_from(y)
    within, mixed = st.tuples(in_x, in_x), st.tuples(in_x, in_y)
    if style == "x only":
        return within
    if style == "linear in y":
        return mixed | within
    if style == "even in y":
        return within | st.tuples(in_y, in_y)
    return mixed | within | st.tuples(in_y, in_y)


def _add_product(hessian: list[list[Fraction]], c: Fraction, a: Vector, b: Vector) -> None:
    """The Hessian of c (a . z)(b . z)."""
    left, right = ([(k, entry) for k, entry in enumerate(vector) if entry] for vector in (a, b))
    for i, p in left:
        for j, q in right:
            hessian[i][j] += c * p * q
            hessian[j][i] += c * p * q


def _ridge(draw: st.DrawFn, d: int, directions: Matrix) -> Ridge:
    first, second = draw(st.sampled_from(directions)), draw(st.sampled_from(directions))
    sign = draw(_sign)
    form = tuple(a + sign * b for a, b in zip(first, second, strict=True))
    if not any(form):
        form = first
    # exp of y could be huge over the box
    return Ridge(draw(_nonzero), draw(_of_y if any(form[d:]) else _of_x), form)
