"""Newton's method and Krawczyk's test in balls: a box that is proved to hold exactly one zero of a system.

Newton's method finds the zero in many digits. If Krawczyk's image c - R F(c) + (I - R F'(X)) (X - c) of a box X lies in
its interior, the box holds exactly one. The lower level at a fixed x is one such system, a stationary point of Phi
another (``verify.points.balls``). Over many float64 boxes at once the test has other unknowns and no Newton's method:
``verify.enclosures.phi_boxes`` and ``verify.points.boxes`` say how it differs.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import flint
from flint import arb, arb_mat

from bilevel_sym.implicit.second_order import Algebra, ImplicitFormulas
from bilevel_sym.problem.problem import BilevelProblem

__all__ = [
    "BALL_MATRICES", "BallBlocks", "LowerLevel", "System", "Zero", "identity", "krawczyk_image", "middles", "newton",
    "positive_definite", "proved_zero",
]  # fmt: skip

REUSE = 2  # steps with one inverse: each gains as many bits as the inverse has right
FAST = 2**12  # a step that is not smaller than the last one by this factor wants a new inverse
MAX_NEWTON_STEPS = 100
ATTEMPTS = 6  # boxes that Krawczyk's test is tried with, each wider than the last
WIDER = 16

BALL_MATRICES: Algebra[arb_mat] = Algebra(operator.attrgetter("solve"), operator.mul, arb_mat.transpose)
Failure = Literal["not finite", "not smooth", "not proved"]
M = TypeVar("M", bound=Any)


class BallBlocks:
    """Blocks of f and g in balls at a point or a box (x, y), vectors as columns; those of L once v is held.

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")  # Phi = x^2/2
    >>> BallBlocks(problem, ("f_x", "f_y", "g_xy", "g_yy"), [arb(2), arb(1)]).formulas.grad
    [2.00000000000000]
    """

    def __init__(self, problem: BilevelProblem, names: Sequence[str], xy: Sequence[Any]) -> None:
        self._sizes = {"x": problem.d, "y": problem.n}
        self._program = problem.tape.in_balls(tuple(names), int(flint.ctx.prec))
        self._values = self._program.start()
        self._program.put(self._values, 0, list(xy))

    def take(self, name: str) -> arb_mat:
        """One block as a matrix; f and g are 1 x 1."""
        rows, columns = (*(self._sizes[axis] for axis in name[2:]), 1, 1)[:2]
        return arb_mat(rows, columns, self._program.output(self._values, name))

    def hold(self, v: arb_mat) -> None:
        """Give v, which the blocks of L are made with."""
        self._program.put(self._values, 1, v.entries())

    @property
    def formulas(self) -> ImplicitFormulas[arb_mat]:
        """v, dy_dx, grad Phi and Hess Phi there, y taken for y*(x)."""
        return ImplicitFormulas(BALL_MATRICES, self.take, self.hold)


class System(Protocol):
    """As many equations F(z) = 0 as unknowns, in balls at the precision that is set."""

    def value(self, z: Sequence[Any]) -> arb_mat:
        """F, a column."""

    def derivatives(self, z: Sequence[Any]) -> tuple[arb_mat, arb_mat]:
        """F and its Jacobian."""

    def jacobian_over(self, box: Sequence[Any]) -> arb_mat | None:
        """The Jacobian over a box; None where F is not smooth all over it."""


@dataclass(frozen=True, eq=False)
class Zero:
    """A ``box`` with exactly one zero, which lies in ``image`` too, and the Jacobian over the box."""

    box: list[Any]
    image: list[Any]
    jacobian: arb_mat


def proved_zero(system: System, start: list[Any], *, steps: int = MAX_NEWTON_STEPS) -> Zero | Failure:
    """The zero that Newton's method finds from a start, with a box in which it is the only one; or why not."""
    return _proved(system, *newton(system, start, steps))


def _proved(system: System, centre: list[Any], inverse: arb_mat, correction: list[Any]) -> Zero | Failure:
    """Krawczyk's test of boxes around a centre, from what ``newton`` returns."""
    if not all(entry.is_finite() for entry in correction):
        return "not finite"
    column = partial(arb_mat, len(centre), 1)
    # the box: a few times the last correction, and the rounding of the working precision
    radius = [8 * c.abs_upper() + 256 * _rounding(centre) + arb(2) ** (-4 * flint.ctx.prec) for c in correction]
    for _ in range(ATTEMPTS):
        box = [c + arb(0, r) for c, r in zip(centre, radius, strict=True)]
        jacobian = system.jacobian_over(box)
        if jacobian is None:
            return "not smooth"
        away, eye = column([b - c for b, c in zip(box, centre, strict=True)]), identity(len(box))
        found = krawczyk_image(BALL_MATRICES, eye, column(centre), inverse, column(correction), jacobian, away)
        image = found.entries()
        if all(b.contains_interior(k) for b, k in zip(box, image, strict=True)):
            return Zero(box, image, jacobian)
        radius = [WIDER * r for r in radius]
    return "not proved"


def newton(system: System, z: list[Any], steps: int = MAX_NEWTON_STEPS) -> tuple[list[Any], arb_mat, list[Any]]:
    """A point next to a zero, an approximate inverse of the Jacobian near there, and the correction that is still due.

    Near the zero the inverse is kept for a few steps: an evaluation of the Jacobian costs several of F.
    """
    eye, before = identity(len(z)), None
    inverse, age = eye, REUSE
    for _ in range(steps):
        if age >= REUSE:
            value, jacobian = system.derivatives(z)
            inverse, age = middles(middles(jacobian).solve(eye, algorithm="approx")), 0
        else:
            value = system.value(z)
        step = (inverse * value).entries()
        size, noise = max(s.mid().abs_upper() for s in step), max(s.rad() for s in step)
        if not size.is_finite() or size <= 4 * noise + 4 * _rounding(z):
            break
        slow = before is None or size * FAST > before
        age, before = REUSE if slow else age + 1, size
        z = [(a - s).mid() for a, s in zip(z, step, strict=True)]
    else:
        step = (inverse * system.value(z)).entries()
    return z, inverse, step


def krawczyk_image(algebra: Algebra[M], eye: M, centre: M, inverse: M, correction: M, jacobian: M, away: M) -> M:
    """c - R F(c) + (I - R F'(X)) (X - c), which holds every zero of F in X; inside X, there is exactly one.

    algebra: the arithmetic of the matrices
    eye: the identity I
    centre: c, a column
    inverse: R, about the inverse of the Jacobian
    correction: R F(c)
    jacobian: F'(X), over the whole box
    away: X - c

    >>> one = arb_mat([[1]])
    >>> krawczyk_image(BALL_MATRICES, one, 3 * one, one, one, one, arb_mat([[arb(0, 1)]]))  # F = z - 2 at c = 3
    [2.00000000000000]
    """
    image: M = centre - correction + algebra.times(eye - algebra.times(inverse, jacobian), away)
    return image


class LowerLevel:
    """grad_y g = 0 at fixed x, in balls: a system whose Jacobian is g_yy."""

    def __init__(self, problem: BilevelProblem, x: Sequence[Any]) -> None:
        self._problem, self.x = problem, list(x)

    def _blocks(self, names: tuple[str, ...], y: Sequence[Any]) -> list[arb_mat]:
        blocks = BallBlocks(self._problem, names, [*self.x, *y])
        return [blocks.take(name) for name in names]

    def value(self, y: Sequence[Any]) -> arb_mat:
        """grad_y g."""
        return self._blocks(("g_y",), y)[0]

    def derivatives(self, y: Sequence[Any]) -> tuple[arb_mat, arb_mat]:
        """grad_y g and g_yy."""
        g_y, g_yy = self._blocks(("g_y", "g_yy"), y)
        return g_y, g_yy

    def jacobian_over(self, box: Sequence[Any]) -> arb_mat | None:
        """g_yy over a box; None where g or grad_y g is not decided all over it, for g_yy alone does not show a jump."""
        g, g_y, g_yy = self._blocks(("g", "g_y", "g_yy"), box)
        return g_yy if all(entry.is_finite() for entry in (*g.entries(), *g_y.entries())) else None

    def proved_box(self, y: list[Any]) -> list[Any] | str:
        """A box that holds exactly one zero of grad_y g, with g_yy positive definite on it; or why not."""
        match proved_zero(self, y):
            case "not finite":
                return "g or its derivatives are not finite near y*"
            case "not smooth":
                return "g switches between pieces (abs, min, max, Piecewise) at y*, or is not defined there"
            case "not proved":
                return "Krawczyk's test did not prove that y* exists"
            case Zero(image=image, jacobian=g_yy):
                return image if positive_definite(g_yy) else "g_yy is not provably positive definite at y*"


def positive_definite(matrix: arb_mat) -> bool:
    """Whether every symmetric matrix in the box is: Gaussian elimination meets only positive pivots."""
    n = matrix.nrows()
    rows = [[matrix[i, j] for j in range(n)] for i in range(n)]
    for k in range(n):
        if not rows[k][k] > 0:
            return False
        for i in range(k + 1, n):
            factor = rows[i][k] / rows[k][k]
            for j in range(i, n):
                # the lower triangle mirrors the upper one: each symmetric pair is one number
                rows[i][j] = rows[j][i] = rows[i][j] - factor * rows[k][j]
    return True


def _rounding(z: Sequence[Any]) -> Any:
    """What rounding to the working precision can move."""
    return max(value.abs_upper() for value in z) * arb(2) ** -flint.ctx.prec


def identity(n: int) -> arb_mat:
    """The identity matrix.

    >>> identity(1)
    [1.00000000000000]
    """
    return arb_mat(n, n, [arb(int(i == j)) for i in range(n) for j in range(n)])


def middles(matrix: arb_mat) -> arb_mat:
    """The middles of all balls, as exact numbers.

    >>> middles(arb_mat([[arb(3, 1)]]))
    [3.00000000000000]
    """
    return arb_mat(matrix.nrows(), matrix.ncols(), [entry.mid() for entry in matrix.entries()])
