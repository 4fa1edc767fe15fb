"""StationaryPoint: a root of grad Phi as a user sees it, with its kind, what that rests on, whether it is inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import sympy as sp
from flint import arb, arb_mat, fmpq

from bilevel_sym import Ball, BilevelProblem, Box
from bilevel_sym.arithmetic import balls
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.scalars import Arithmetic, ScalarProgram
from bilevel_sym.graph.exact import rational
from bilevel_sym.graph.expressions import rewritten
from bilevel_sym.typing import Floats
from verify.points.balls import POINT_BITS, Balls, ExactPoint, Root, eigenvalue_balls, inertia
from verify.verdict import Bracket

__all__ = ["StationaryPoint"]

Kind = Literal["local minimum", "saddle", "local maximum", "degenerate", "undecided"]
Standing = Literal["inside", "end", "outside"]


@dataclass(frozen=True)
class StationaryPoint:
    """A point with grad Phi(x) = 0, proved to be the only one in ``box``; or, where not ``proved``, an undecided box.

    A point of kind "degenerate" is exact, and others may be in its box.

    - ``x``: the point.
    - ``y``: y*(x).
    - ``v``: v*(x).
    - ``kind``: what it is, by the eigenvalues.
    - ``box``: in which it is the only one.
    - ``balls``: enclose x, then y*(x), then v*(x).
    - ``radius``: bounds the error of x.
    - ``eigenvalues``: those of Hess Phi, ascending.
    - ``f_xx``: those of f_xx.
    - ``proved``: false for a box that is undecided.
    - ``message``: why it is.

    >>> from verify.points.stationary import stationary_points
    >>> (point,) = stationary_points(BilevelProblem("x*y - y", "y**2/2 - x*y", "x", "y"), Box([-2], [2]))
    >>> print(point)
    x = 0.5: local minimum, eigenvalue 2
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    v: tuple[float, ...]
    kind: Kind
    box: Box
    balls: tuple[Ball, ...] = ()
    radius: float = math.inf
    eigenvalues: tuple[Bracket, ...] = ()
    f_xx: tuple[Bracket, ...] = ()
    proved: bool = True
    message: str = ""

    def __str__(self) -> str:
        names = self.box.names or ()
        if not self.proved:
            where = ", ".join(f"{n} in [{float(a):.6g}, {float(b):.6g}]" for n, (a, b) in self.box.items())
            return f"undecided: {where}; {self.message}"
        where = ", ".join(f"{name} = {value + 0.0:.10g}" for name, value in zip(names, self.x, strict=True))
        values = ", ".join(f"{(e.lower + e.upper) / 2 + 0.0:.6g}" for e in self.eigenvalues)
        said = f"; {self.message}" if self.message else ""
        return f"{where}: {self.kind}, eigenvalue{'s' * (len(self.eigenvalues) > 1)} {values}{said}"


def as_point(
    problem: BilevelProblem, root: Root, box: Box, *, alone: tuple[Floats, Floats] | None = None
) -> StationaryPoint | None:
    """A root as a result; None where it lies outside of ``box`` or of the domain. ``alone``: where it is the only one.

    >>> problem = BilevelProblem("x*y - y", "y**2/2 - x*y", "x", "y")  # Phi = x^2 - x
    >>> from verify.points.balls import refine
    >>> root = refine(problem, [0.4], [0.4])
    >>> as_point(problem, root, Box({"x": (0, 1)})).kind, as_point(problem, root, Box({"x": (1, 2)}))
    ('local minimum', None)
    """
    place = _place(root, box)
    stands = standing(problem, [ball.value for ball in (*root.x, *root.y)], POINT_BITS)
    if "outside" in (place, stands):
        return None
    said = ["on the border of the box, or closer to it than can be told"] * (place == "border")
    said += ["at the end of the domain of f or g, beyond which they are continued smoothly"] * (stands == "end")
    eigenvalues = tuple(map(bracket_of, root.hess))
    only = [bracket_of(Ball(entry)) for entry in root.box[: len(root.x)]]
    lower, upper = (np.array([b.lower for b in only]), np.array([b.upper for b in only])) if alone is None else alone
    return _result(
        (root.x, root.y, root.v), kind_of(eigenvalues), named_box(box, lower, upper), eigenvalues=eigenvalues,
        f_xx=tuple(map(bracket_of, root.f_xx)), message="; ".join(said),
    )  # fmt: skip


def _result(parts: tuple[Balls, Balls, Balls], kind: Kind, box: Box, **more: Any) -> StationaryPoint:
    """A proved point, from balls around x, y* and v*."""
    x, y, v = (tuple(map(_float, part)) for part in parts)
    radius = max(map(_radius, parts[0]))
    return StationaryPoint(x, y, v, kind, box, tuple(chain(*parts)), radius, **more)


def exact_result(exact: ExactPoint, box: Box) -> StationaryPoint:
    """An exactly stationary point as a result; its kind by the exact signs of its eigenvalues.

    >>> problem = BilevelProblem("x**4 + y**2", "(y - x**3)**2", "x", "y")
    >>> from verify.points.balls import exact_point
    >>> exact_result(exact_point(problem, [sp.Integer(0)]), Box({"x": (-1, 1)})).kind
    'degenerate'
    """
    with precision(POINT_BITS):
        x, y, v = (tuple(Ball(arb(fmpq(int(e.p), int(e.q)))) for e in part) for part in (exact.x, exact.y, exact.v))
    return _result(
        (x, y, v), kind_by_inertia(*inertia(exact.hess)), box, eigenvalues=exact_brackets(exact.hess),
        f_xx=exact_brackets(exact.f_xx), message="exactly stationary; whether it is alone in its box is not decided",
    )  # fmt: skip


def exact_brackets(matrix: sp.Matrix) -> tuple[Bracket, ...]:
    """Brackets of the eigenvalues of a rational symmetric matrix, ascending; those that are zero are exactly so.

    >>> [str(b) for b in exact_brackets(sp.Matrix([[0, 0], [0, 2]]))]
    ['[0, 0]', '[2, 2]']
    """
    _, negative, zero = inertia(matrix)
    with precision(POINT_BITS):
        entries = [[arb(fmpq(int(e.p), int(e.q))) for e in matrix.row(i)] for i in range(matrix.rows)]
        balls = eigenvalue_balls(arb_mat(entries))
    found = [bracket_of(Ball(ball)) for ball in balls]
    return tuple(Bracket(0.0, 0.0) if negative <= k < negative + zero else b for k, b in enumerate(found))


def kind_by_inertia(positive: int, negative: int, zero: int) -> Kind:
    """The kind from exact signs: one positive and one negative eigenvalue make a saddle whatever the others are.

    >>> kind_by_inertia(1, 1, 1), kind_by_inertia(1, 0, 1), kind_by_inertia(0, 2, 0)
    ('saddle', 'degenerate', 'local maximum')
    """
    if positive and negative:
        return "saddle"
    if zero:
        return "degenerate"
    return "local minimum" if positive else "local maximum"


def kind_of(eigenvalues: Sequence[Bracket]) -> Kind:
    """The kind from brackets of the eigenvalues of Hess Phi.

    >>> kind_of([Bracket(1, 2), Bracket(3, 4)]), kind_of([Bracket(-1, 1), Bracket(2, 2)])
    ('local minimum', 'undecided')
    """
    positive, negative = any(e.lower > 0 for e in eigenvalues), any(e.upper < 0 for e in eigenvalues)
    if positive and negative:
        return "saddle"
    if all(e.lower > 0 for e in eigenvalues):
        return "local minimum"
    return "local maximum" if all(e.upper < 0 for e in eigenvalues) else "undecided"


def bracket_of(ball: Ball) -> Bracket:
    """A ball as a bracket of floats, rounded outward.

    >>> with precision(100):
    ...     bracket_of(Ball(arb(1)/3))
    Bracket(lower=0.3333333333333333, upper=0.33333333333333337)
    """
    with precision(POINT_BITS):
        low, high = ball.value.lower(), ball.value.upper()
        lower, upper = float(low), float(high)
        lower = lower if arb(lower) <= low else math.nextafter(lower, -math.inf)
        upper = upper if arb(upper) >= high else math.nextafter(upper, math.inf)
    return Bracket(lower, upper)


def _radius(ball: Ball) -> float:
    """How far the float next to the ball's middle may be from the true value, rounded up."""
    with precision(POINT_BITS):
        return math.nextafter(float(abs(ball.value - arb(_float(ball))).upper()), math.inf)


def _float(ball: Ball) -> float:
    """The float next to the middle; zero where the ball contains it."""
    return 0.0 if ball.value.contains(0) else float(ball)


def _place(root: Root, box: Box) -> Literal["inside", "outside", "border"]:
    """Whether a root is in the box: what is not decided in many digits counts as on the border, which is inside."""
    place: Literal["inside", "border"] = "inside"
    with precision(POINT_BITS):
        for ball, (lo, hi) in zip(root.x, box, strict=True):
            low, high = (arb(fmpq(int(end.p), int(end.q))) for end in (lo, hi))
            if ball.value < low or ball.value > high:
                return "outside"
            if not (ball.value > low and ball.value < high):
                place = "border"
    return place


def named_box(box: Box, lower: Floats, upper: Floats) -> Box:
    """A box with the names of another one and ends that are floats, taken exactly.

    >>> named_box(Box({"x": (0, 1)}), np.array([0.25]), np.array([0.5]))
    Box({'x': (1/4, 1/2)})
    """
    ends = zip(lower.tolist(), upper.tolist(), strict=True)
    return Box({name: (rational(a), rational(b)) for name, (a, b) in zip(box.names or (), ends, strict=True)})


def continued(problem: BilevelProblem) -> BilevelProblem:
    """The problem with f and g continued beyond the end of their domains; the same object where there is none.

    >>> x, y = sp.symbols("x y")
    >>> half = BilevelProblem(sp.Piecewise((x**2, x >= 0)) + y, y**2/2, x, y)
    >>> continued(half).f
    x**2 + y
    """
    if not problem.tape.has_kinks:
        return problem
    f, g = rewritten(problem.f, _without_end), rewritten(problem.g, _without_end)
    if f == problem.f and g == problem.g:
        return problem
    return BilevelProblem(f, g, problem.x, problem.y, box=problem.box, name=problem.name)


def _without_end(node: sp.Basic) -> sp.Basic:
    if not isinstance(node, sp.Piecewise) or node.args[-1][1] == sp.true:
        return node
    *others, (value, _) = node.args
    return sp.Piecewise(*others, (value, True)) if others else value


def standing(problem: BilevelProblem, point: Sequence[Any], bits: int) -> Standing:
    """Where a point of the continuation, balls for x and y, stands in the domain of f and g; "end": on its border.

    >>> x, y = sp.symbols("x y")
    >>> half = BilevelProblem(sp.Piecewise((x**2, x >= 0)) + y, y**2/2, x, y)
    >>> [standing(half, [arb(t), arb(0)], 100) for t in (1, 0, -1)]
    ['inside', 'end', 'outside']
    """
    with precision(bits):
        if _finite(problem.tape.in_balls(("f", "g"), bits), point):
            return "inside"
        closed = ScalarProgram(problem.tape.program(("f", "g")), CLOSED)
        return "end" if _finite(closed, point) else "outside"


def _finite(program: ScalarProgram, point: Sequence[Any]) -> bool:
    values = program.start()
    program.put(values, 0, list(point))
    return all(entry.is_finite() for name in ("f", "g") for entry in program.output(values, name))


def _closed_select(c: Any, a: Any, b: Any) -> Any:
    """Where the condition is open, the branch that is defined."""
    if c.is_nan() or c != 0 or c.is_zero():
        return balls.OPERATIONS["select"](c, a, b)
    return b if a.is_nan() else a if b.is_nan() else a.union(b)


CLOSED = Arithmetic(MappingProxyType({**balls.OPERATIONS, "select": _closed_select}), balls.constant, balls.precision)
