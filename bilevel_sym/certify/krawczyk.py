"""The lower level in balls: a box that is proved to hold exactly one stationary point of g, at a fixed x.

Newton's method finds it in many digits; Krawczyk's test proves that the box holds exactly one zero of grad_y g, and a
Cholesky factorisation in balls that g_yy is positive definite all over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flint
from flint import arb, arb_mat

from bilevel_sym.problem.problem import BilevelProblem

__all__ = ["LowerLevel", "positive_definite"]

REUSE = 2  # steps with one inverse: each gains as many bits as the inverse has right
FAST = 2**12  # a step that is not smaller than the last one by this factor wants a new inverse
MAX_STEPS = 100


class LowerLevel:
    """grad_y g and g_yy at fixed x, in balls."""

    def __init__(self, problem: BilevelProblem, x: Sequence[Any]) -> None:
        self._tape = problem.tape
        self.x = list(x)
        self.n = problem.n

    def _blocks(self, names: tuple[str, ...], y: Sequence[Any]) -> list[list[Any]]:
        program = self._tape.in_balls(names, _precision())
        values = program.start()
        program.put(values, 0, [*self.x, *y])
        return [program.output(values, name) for name in names]

    def gradient(self, y: Sequence[Any]) -> arb_mat:
        """grad_y g."""
        return arb_mat(self.n, 1, self._blocks(("g_y",), y)[0])

    def derivatives(self, y: Sequence[Any]) -> tuple[arb_mat, arb_mat]:
        """grad_y g and g_yy."""
        g_y, g_yy = self._blocks(("g_y", "g_yy"), y)
        return arb_mat(self.n, 1, g_y), arb_mat(self.n, self.n, g_yy)

    def hessian_over(self, box: Sequence[Any]) -> arb_mat | None:
        """g_yy over a box; None where g or grad_y g is not decided all over it, for g_yy alone does not show a jump."""
        g, g_y, g_yy = self._blocks(("g", "g_y", "g_yy"), box)
        decided = all(entry.is_finite() for entry in (*g, *g_y))
        return arb_mat(self.n, self.n, g_yy) if decided else None

    def proved_box(self, y: list[Any]) -> list[Any] | str:
        """A box that holds exactly one zero of grad_y g, with g_yy positive definite on it; or why not."""
        centre, inverse, correction = self._newton(y)
        if not all(entry.is_finite() for entry in correction):
            return "g or its derivatives are not finite near y*"
        # the box: a few times the last correction, and the rounding of the working precision
        radius = [8 * c.abs_upper() + 256 * _rounding(centre) + arb(2) ** (-4 * _precision()) for c in correction]
        for _ in range(6):
            box = [c + arb(0, r) for c, r in zip(centre, radius, strict=True)]
            g_yy = self.hessian_over(box)
            if g_yy is None:
                return "g switches between pieces (abs, min, max, Piecewise) at y*, or is not defined there"
            image = self._krawczyk(centre, inverse, correction, g_yy, box)
            if all(b.contains_interior(k) for b, k in zip(box, image, strict=True)):
                return image if positive_definite(g_yy) else "g_yy is not provably positive definite at y*"
            radius = [16 * r for r in radius]
        return "Krawczyk's test did not prove that y* exists"

    def _newton(self, y: list[Any]) -> tuple[list[Any], arb_mat, list[Any]]:
        """A point next to y*, an approximate inverse of g_yy near there, and the correction that is still due.

        Near y* the inverse is kept for a few steps: an evaluation of g_yy costs several of grad_y g.
        """
        inverse, age, before = _identity(self.n), REUSE, None
        for _ in range(MAX_STEPS):
            if age >= REUSE:
                g_y, g_yy = self.derivatives(y)
                inverse, age = _middle(_middle(g_yy).solve(_identity(self.n), algorithm="approx")), 0
            else:
                g_y = self.gradient(y)
            step = (inverse * g_y).entries()
            size, noise = max(s.mid().abs_upper() for s in step), max(s.rad() for s in step)
            if not size.is_finite() or size <= 4 * noise + 4 * _rounding(y):
                break
            slow = before is None or size * FAST > before
            age, before = REUSE if slow else age + 1, size
            y = [(a - s).mid() for a, s in zip(y, step, strict=True)]
        else:
            step = (inverse * self.gradient(y)).entries()
        return y, inverse, step

    def _krawczyk(
        self, centre: Sequence[Any], inverse: arb_mat, correction: Sequence[Any], g_yy: arb_mat, box: Sequence[Any]
    ) -> list[Any]:
        """centre - R g_y(centre) + (I - R g_yy(box)) (box - centre)."""
        away = arb_mat(self.n, 1, [b - c for b, c in zip(box, centre, strict=True)])
        spread = (_identity(self.n) - inverse * g_yy) * away
        return [c - k + s for c, k, s in zip(centre, correction, spread.entries(), strict=True)]


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


def _rounding(y: Sequence[Any]) -> Any:
    """What rounding to the working precision can move."""
    return max(value.abs_upper() for value in y) * arb(2) ** -_precision()


def _precision() -> int:
    return int(flint.ctx.prec)


def _identity(n: int) -> arb_mat:
    return arb_mat(n, n, [arb(int(i == j)) for i in range(n) for j in range(n)])


def _middle(matrix: arb_mat) -> arb_mat:
    return arb_mat(matrix.nrows(), matrix.ncols(), [entry.mid() for entry in matrix.entries()])
