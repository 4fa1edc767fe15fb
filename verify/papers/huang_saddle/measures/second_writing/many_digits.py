"""AID in many digits: estimates whose errors are far below what float64 can tell from zero.

Numbers are midpoints of Arb's balls: each operation is rounded correctly to ``BITS`` bits, and nothing is proved.
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

__all__ = ["BITS", "Long", "LongEstimate", "norm"]

BITS = 256
LEVEL = ("g_y", "g_yy")
SYSTEM = ("f", "f_x", "f_y", "g_xy", "g_yy")

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
        return balls.precision(BITS)

    @cached_property
    def _steps(self) -> ScalarProgram:
        return self.problem.tape.in_balls(("g_y",), BITS)

    @cached_property
    def _level(self) -> ScalarProgram:
        return self.problem.tape.in_balls(LEVEL, BITS)

    @cached_property
    def _system(self) -> ScalarProgram:
        return self.problem.tape.in_balls(SYSTEM, BITS)

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
        table = self._table(self._system, x, y)
        matrix, right = self._matrix(table), self._system.output(table, "f_y")
        v = _conjugate(matrix, right, v, N)
        return LongEstimate(self._gradient(table, v), y, v)

    def exact(self, x: Vector, y: Vector) -> LongEstimate:
        """y* by Newton's method from a good start, v* and grad Phi."""
        n = self.problem.n
        for _ in range(12):
            table = self._table(self._level, x, y)
            slope = self._level.output(table, "g_y")
            move = arb_mat(n, n, self._level.output(table, "g_yy")).solve(arb_mat(n, 1, slope)).entries()
            y = [_middle(a - b) for a, b in zip(y, move, strict=True)]
            if norm(move) <= arb(2) ** (40 - BITS) * (1 + norm(y)):
                break
        table = self._table(self._system, x, y)
        right = arb_mat(n, 1, self._system.output(table, "f_y"))
        v = [_middle(a) for a in arb_mat(n, n, self._system.output(table, "g_yy")).solve(right).entries()]
        return LongEstimate(self._gradient(table, v), y, v)

    def system(self, x: Vector, y: Vector) -> dict[str, Vector]:
        """f, f_x, f_y, g_xy and g_yy at a point, each as the list of its entries."""
        table = self._table(self._system, x, y)
        return {name: list(self._system.output(table, name)) for name in SYSTEM}

    @staticmethod
    def _table(program: ScalarProgram, x: Vector, y: Vector) -> list[Any]:
        table = program.start()
        program.put(table, 0, [*x, *y])
        return table

    def _matrix(self, table: Sequence[Any]) -> list[Vector]:
        n, flat = self.problem.n, self._system.output(table, "g_yy")
        return [flat[i * n : (i + 1) * n] for i in range(n)]

    def _gradient(self, table: Sequence[Any], v: Vector) -> Vector:
        n, mixed = self.problem.n, self._system.output(table, "g_xy")
        direct = self._system.output(table, "f_x")
        return [_middle(a - _dot(mixed[i * n : (i + 1) * n], v)) for i, a in enumerate(direct)]


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
