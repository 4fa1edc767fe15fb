"""The estimators and algorithms once more, plainly, one point at a time and in 256 bits: what the shipped ones must do.

Nothing here is shared with ``bilevel_sym.estimators`` and ``bilevel_sym.solvers``: where a formula has two forms, the
other one is taken (a closed form for the Neumann series, derivatives carried forward for ITD).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import arb, arb_mat

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic import balls
from bilevel_sym.arithmetic.scalars import ScalarProgram
from bilevel_sym.certify.krawczyk import BALL_MATRICES, BallBlocks, LowerLevel, identity, middles, newton
from bilevel_sym.implicit.second_order import GRADIENT, gradient_of
from bilevel_sym.typing import FLOAT64_EPS, Floats

if TYPE_CHECKING:
    from bilevel_sym.kernels.choice import Backend

LONG_BITS = 256
Vector = list[Any]
ROUNDINGS = 2.0**10  # so many of them may add up in an estimate, beside the condition of its system


@dataclass(frozen=True)
class LongEstimate:
    """A hypergradient with the y and v that it was made of."""

    grad: Vector
    y: Vector
    v: Vector


@dataclass(frozen=True)
class PlainEstimate:
    """What an estimator returns: floats that are rounded once, and how sensitive they are to rounding."""

    grad: Floats
    phi: float
    y: Floats
    v: Floats
    sensitivity: float


@dataclass(frozen=True, eq=False)
class Plain:
    """A problem and its estimators in numbers of 256 bits; use it inside ``Plain.precision()``.

    >>> from bilevel_sym import zoo
    >>> plain = Plain(zoo.get("scalar").problem)
    >>> with Plain.precision():
    ...     exact = plain.exact([arb(1)], [arb(0)])
    ...     float(exact.y[0]), float(exact.grad[0])
    ...     float(plain.aid(long([1.0]), long([0.0]), long([0.0]), D=200, N=1, tau=0.2).grad[0])
    (0.5, 0.5)
    0.5
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
            y = [(a - tau * b).mid() for a, b in zip(y, program.output(table, "g_y"), strict=True)]
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

    def aid(self, x: Vector, y: Vector, v: Vector, *, D: int, N: int, tau: float) -> PlainEstimate:
        """D steps of descent, N of conjugate gradients from v; exact where N is no less than n."""
        found = self.estimate(x, y, v, D=D, N=N, tau=arb(tau))
        if self.problem.n > N:
            return self._estimate(x, found.y, found.v)
        return self._estimate(x, found.y, self.blocks(x, found.y).formulas.v.entries())

    def neumann(self, x: Vector, y: Vector, *, D: int, tau: float, Q: int, eta: float) -> PlainEstimate:
        """v = g_yy^-1 (I - (I - eta g_yy)^(Q + 1)) f_y, which is the sum of the series."""
        y = self.descended(x, y, D, arb(tau))
        at, n = self.blocks(x, y), self.problem.n
        g_yy, f_y = at.take("g_yy"), at.take("f_y")
        rest = f_y - (identity(n) - g_yy * arb(eta)) ** (Q + 1) * f_y
        return self._estimate(x, y, g_yy.solve(rest).entries())

    def itd(self, x: Vector, y: Vector, *, D: int, tau: float) -> PlainEstimate:
        """f(x, y^D(x)), differentiated: dy^(t+1)/dx = dy^t/dx - tau (g_xy + dy^t/dx g_yy), carried forward."""
        d, n = self.problem.d, self.problem.n
        response = arb_mat(d, n)
        for _ in range(D):
            at = self.blocks(x, y)
            response = response - (at.take("g_xy") + response * at.take("g_yy")) * arb(tau)
            y = self.descended(x, y, 1, arb(tau))
        at = self.blocks(x, y)
        grad = (at.take("f_x") + response * at.take("f_y")).entries()
        return self._packed(at, grad, y, [arb(0)] * n)

    def gdmax(self, x: Vector, y: Vector, *, D: int, tau: float) -> PlainEstimate:
        """f_x after D steps."""
        y = self.descended(x, y, D, arb(tau))
        at = self.blocks(x, y)
        return self._packed(at, at.take("f_x").entries(), y, [arb(0)] * self.problem.n)

    def _estimate(self, x: Vector, y: Vector, v: Vector) -> PlainEstimate:
        at = self.blocks(x, y)
        grad = (at.take("f_x") - at.take("g_xy") * arb_mat(self.problem.n, 1, v)).entries()
        return self._packed(at, grad, y, v)

    def _packed(self, at: BallBlocks, grad: Vector, y: Vector, v: Vector) -> PlainEstimate:
        arrays = [np.array([float(entry) for entry in part]) for part in (grad, y, v)]
        return PlainEstimate(arrays[0], float(at.take("f")[0, 0]), arrays[1], arrays[2], _sensitivity(at))


def norm(vector: Sequence[Any]) -> Any:
    """The Euclidean norm.

    >>> float(norm([arb(3), arb(4)]))
    5.0
    """
    return sum((a * a for a in vector), arb(0)).sqrt().mid()


def _dot(a: Sequence[Any], b: Sequence[Any]) -> Any:
    return sum((p * q for p, q in zip(a, b, strict=True)), arb(0)).mid()


def _conjugate(matrix: list[Vector], right: Vector, start: Vector, steps: int) -> Vector:
    """Conjugate gradients; a zero residual ends it."""
    v = list(start)
    residual = [(b - _dot(row, v)).mid() for row, b in zip(matrix, right, strict=True)]
    direction, size = list(residual), _dot(residual, residual)
    for _ in range(steps):
        if size == 0:
            break
        image = [_dot(row, direction) for row in matrix]
        alpha = (size / _dot(direction, image)).mid()
        v = [(a + alpha * p).mid() for a, p in zip(v, direction, strict=True)]
        residual = [(r - alpha * q).mid() for r, q in zip(residual, image, strict=True)]
        size, before = _dot(residual, residual), size
        beta = (size / before).mid()
        direction = [(r + beta * p).mid() for r, p in zip(residual, direction, strict=True)]
    return v


def engines() -> tuple[Backend, ...]:
    """The engines that solvers can run in: NumPy, and compiled code where numba is installed.

    >>> engines()[0]
    'tape'
    """
    return ("tape", "compiled") if importlib.util.find_spec("numba") is not None else ("tape",)


def long(values: Sequence[float] | Floats) -> Vector:
    """Floats as exact numbers of many digits.

    >>> long([0.5])
    [0.500000000000000]
    """
    return [arb(float(value)) for value in values]


def in_ball(rng: np.random.Generator, d: int, radius: float) -> Floats:
    """A point uniform in a ball as its definition has it: a uniform direction, and P(|u| <= s) = (s/radius)^d.

    >>> bool(np.linalg.norm(in_ball(np.random.default_rng(0), 3, 2.0)) <= 2.0)
    True
    """
    direction = rng.standard_normal(d)
    quantile = float(rng.random())
    return np.asarray(direction / np.linalg.norm(direction) * radius * quantile ** (1.0 / d))


def roundings(estimate: PlainEstimate) -> float:
    """How far float64 may be off from an estimate, relative to the size of its numbers.

    >>> 1e-13 < roundings(PlainEstimate(np.ones(1), 1.0, np.ones(1), np.ones(1), 1.0)) < 1e-11
    True
    """
    parts = (estimate.grad, np.array([estimate.phi]), estimate.y, estimate.v)
    size = 1.0 + max(float(np.abs(part).max()) for part in parts)
    return ROUNDINGS * FLOAT64_EPS * estimate.sensitivity * size


def _sensitivity(at: BallBlocks) -> float:
    """How far a rounding of y or of a block can carry: the blocks' sizes times the condition of g_yy."""
    matrix = np.array([[float(entry) for entry in row] for row in at.take("g_yy").table()])
    values = np.abs(np.linalg.eigvalsh(matrix))
    size = max(abs(float(entry)) for name in GRADIENT for entry in at.take(name).entries())
    return (1 + size) * float(values.max() / max(values.min(), FLOAT64_EPS)) ** 2
