"""AID in many digits: estimates whose errors are far below what float64 can tell from zero.

Numbers are midpoints of Arb's balls: each operation is rounded correctly to ``LONG_BITS`` bits, and nothing is proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flint import arb, arb_mat

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic import balls
from bilevel_sym.arithmetic.scalars import ScalarProgram
from bilevel_sym.certify.krawczyk import BALL_MATRICES, BallBlocks, LowerLevel, middles, newton
from bilevel_sym.implicit.second_order import GRADIENT, gradient_of

__all__ = ["LONG_BITS", "Long", "LongEstimate", "norm"]

LONG_BITS = 256
Vector = list[Any]


@dataclass(frozen=True)
class LongEstimate:
    """A hypergradient with the y and v that it was made of.

    >>> LongEstimate(grad=[arb(1)], y=[arb(2)], v=[arb(3)]).y
    [2.00000000000000]
    """

    grad: Vector
    y: Vector
    v: Vector


@dataclass(frozen=True, eq=False)
class Long:
    """A problem in numbers of 256 bits; use it inside ``Long.precision()``.

    >>> from bilevel_sym import zoo
    >>> long = Long(zoo.get("scalar").problem)
    >>> with Long.precision():
    ...     exact = long.exact([arb(1)], [arb(0)])
    ...     float(exact.y[0]), float(exact.grad[0])
    (0.5, 0.5)
    """

    problem: BilevelProblem

    @staticmethod
    def precision() -> Any:
        """The context in which all of this works."""
        return balls.precision(LONG_BITS)

    @cached_property
    def _steps(self) -> ScalarProgram:
        return self.problem.tape.in_balls(("g_y",), LONG_BITS)

    @cached_property
    def operations_a_step(self) -> int:
        """What one gradient of g costs."""
        return self.problem.tape.program(("g_y",)).size

    def descended(self, x: Vector, y: Vector, steps: int, tau: Any) -> Vector:
        """``steps`` gradient steps on the lower level."""
        program, table = self._steps, self._steps.start()
        for _ in range(steps):
            program.put(table, 0, [*x, *y])
            y = [_middle(a - tau * b) for a, b in zip(y, program.output(table, "g_y"), strict=True)]
        return y

    def estimate(self, x: Vector, y: Vector, v: Vector, *, D: int, N: int, tau: Any) -> LongEstimate:
        """AID from y and v: D steps of descent, N of conjugate gradients."""
        y = self.descended(x, y, D, tau)
        take = self.blocks(x, y).take
        v = _conjugate(take("g_yy").table(), take("f_y").entries(), v, N)
        grad = gradient_of(BALL_MATRICES, take, arb_mat(len(v), 1, v))
        return LongEstimate(middles(grad).entries(), y, v)

    def exact(self, x: Vector, y: Vector) -> LongEstimate:
        """y* by Newton's method from a good start, v* and grad Phi."""
        y, _, _ = newton(LowerLevel(self.problem, x), list(y))
        at = self.blocks(x, y).formulas
        return LongEstimate(middles(at.grad).entries(), y, middles(at.v).entries())

    def blocks(self, x: Vector, y: Vector) -> BallBlocks:
        """f, f_x, f_y, g_xy and g_yy at a point."""
        return BallBlocks(self.problem, GRADIENT, [*x, *y])


def norm(vector: Sequence[Any]) -> Any:
    """The Euclidean norm.

    >>> float(norm([arb(3), arb(4)]))
    5.0
    """
    return _middle(sum((a * a for a in vector), arb(0)).sqrt())


def _middle(ball: Any) -> Any:
    return ball.mid()


def _dot(a: Sequence[Any], b: Sequence[Any]) -> Any:
    return _middle(sum((p * q for p, q in zip(a, b, strict=True)), arb(0)))


def _conjugate(matrix: list[Vector], right: Vector, start: Vector, steps: int) -> Vector:
    """Conjugate gradients; a zero residual ends it."""
    v = list(start)
    residual = [_middle(b - _dot(row, v)) for row, b in zip(matrix, right, strict=True)]
    direction, size = list(residual), _dot(residual, residual)
    for _ in range(steps):
        if size == 0:
            break
        image = [_dot(row, direction) for row in matrix]
        alpha = _middle(size / _dot(direction, image))
        v = [_middle(a + alpha * p) for a, p in zip(v, direction, strict=True)]
        residual = [_middle(r - alpha * q) for r, q in zip(residual, image, strict=True)]
        size, before = _dot(residual, residual), size
        beta = _middle(size / before)
        direction = [_middle(r + beta * p) for r, p in zip(residual, direction, strict=True)]
    return v
