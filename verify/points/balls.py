"""One stationary point in many digits: Krawczyk's test in ball arithmetic for the system in (x, y, v).

    f_x - g_xy v = 0,   g_y = 0,   f_y - g_yy v = 0

are d + 2n equations in as many unknowns, and say that grad Phi(x) = 0, y = y*(x), v = v*(x). With the Lagrangian
L = f - v^T g_y their Jacobian is [[L_xx, L_xy, -g_xy], [g_yx, g_yy, 0], [L_yx, L_yy, -g_yy]].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flint
import mpmath
from flint import arb, arb_mat

from bilevel_sym import Ball, BilevelProblem
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.certify.krawczyk import BALL_MATRICES, BallBlocks, Zero, identity, middles, proved_zero
from bilevel_sym.graph.precision import mpmath_precision
from bilevel_sym.implicit.second_order import ImplicitFormulas, gradient_of

__all__ = ["POINT_BITS", "Root", "eigenvalue_balls", "refine"]

POINT_BITS = 200
REFINEMENT_STEPS = 16  # of Newton's method: more lead away from where it began
FIRST = ("f_x", "f_y", "g_y", "g_xy", "g_yy")
SYSTEM = ("f", "g", *FIRST, "L_xx", "L_xy", "L_yy", "f_xx")
Balls = tuple[Ball, ...]


@dataclass(frozen=True, eq=False)
class Root:
    """A point proved to exist and to be the only one in ``box`` (x, then y, then v); all entries are balls.

    ``hess`` are the eigenvalues of Hess Phi in ascending order, ``f_xx`` those of f_xx at (x, y).
    """

    x: Balls
    y: Balls
    v: Balls
    box: tuple[Any, ...]
    hess: Balls
    f_xx: Balls


def refine(problem: BilevelProblem, x: Sequence[float], y: Sequence[float], *, bits: int = POINT_BITS) -> Root | None:
    """The stationary point next to (x, y), or None where the proof does not succeed.

    >>> root = refine(BilevelProblem("x*y - y", "y**2/2 - x*y", "x", "y"), [0.4], [0.4])  # Phi = x^2 - x
    >>> root.x[0].contains("1/2"), root.hess[0].contains(2)
    (True, True)
    """
    with precision(bits):
        try:
            return _Stationarity(problem).root([*map(arb, x)], [*map(arb, y)])
        except ZeroDivisionError:  # python-flint's word for a matrix that may be singular
            return None


class _Stationarity:
    """The system in z = (x, y, v), in balls."""

    def __init__(self, problem: BilevelProblem) -> None:
        self.problem, self.d, self.n = problem, problem.d, problem.n

    def parts(self, z: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """x, y and v."""
        d, n = self.d, self.n
        return list(z[:d]), list(z[d : d + n]), list(z[d + n :])

    def blocks(self, z: Sequence[Any], names: Sequence[str] = SYSTEM) -> Mapping[str, arb_mat]:
        """The blocks at a point or over a box."""
        x, y, v = self.parts(z)
        found = BallBlocks(self.problem, names, [*x, *y])
        found.hold(arb_mat(self.n, 1, v))
        return {name: found.take(name) for name in names}

    def value(self, z: Sequence[Any]) -> arb_mat:
        return self._value(self.blocks(z, FIRST), z)

    def _value(self, b: Mapping[str, arb_mat], z: Sequence[Any]) -> arb_mat:
        v = arb_mat(self.n, 1, self.parts(z)[2])
        parts = (gradient_of(BALL_MATRICES, b.__getitem__, v), b["g_y"], b["f_y"] - b["g_yy"] * v)
        return arb_mat(len(z), 1, [entry for part in parts for entry in part.entries()])

    def derivatives(self, z: Sequence[Any]) -> tuple[arb_mat, arb_mat]:
        b = self.blocks(z)
        return self._value(b, z), self._jacobian(b)

    def _jacobian(self, b: Mapping[str, arb_mat]) -> arb_mat:
        rows = (
            (b["L_xx"], b["L_xy"], -b["g_xy"]),
            (b["g_xy"].transpose(), b["g_yy"], arb_mat(self.n, self.n)),
            (b["L_xy"].transpose(), b["L_yy"], -b["g_yy"]),
        )
        return arb_mat([[e for block in row for e in block.table()[i]] for row in rows for i in range(row[0].nrows())])

    def jacobian_over(self, box: Sequence[Any]) -> arb_mat | None:
        b = self.blocks(box)
        return self._jacobian(b) if _finite(b) else None

    def root(self, x: list[Any], y: list[Any]) -> Root | None:
        start = self.blocks([*x, *y, *[arb(0)] * self.n])
        v = middles(start["g_yy"]).solve(middles(start["f_y"]), algorithm="approx")
        found = proved_zero(self, [e.mid() for e in (*x, *y, *v.entries())], steps=REFINEMENT_STEPS)
        return self._described(found) if isinstance(found, Zero) else None

    def _described(self, found: Zero) -> Root | None:
        b = self.blocks(found.image)
        if not _finite(b) or not eigenvalue_balls(b["g_yy"])[0] > 0:
            return None
        hess = eigenvalue_balls(ImplicitFormulas(BALL_MATRICES, b.__getitem__).hess)
        x, y, v = (tuple(map(Ball, part)) for part in self.parts(found.image))
        f_xx = tuple(map(Ball, eigenvalue_balls(b["f_xx"])))
        return Root(x, y, v, tuple(found.box), tuple(map(Ball, hess)), f_xx)


def _finite(blocks: Mapping[str, arb_mat]) -> bool:
    """Whether f and g are smooth all over what the blocks were computed at."""
    return all(entry.is_finite() for block in blocks.values() for entry in block.entries())


def eigenvalue_balls(matrix: arb_mat) -> list[Any]:
    """The eigenvalues of every symmetric matrix inside, in ascending order, at the precision that is set.

    Approximate eigenvectors Q in many digits give M = Q D Q^T + R: by Ostrowski and Weyl each eigenvalue is within
    abs(D_k) |Q^T Q - I| + |R| of D_k.

    >>> low, high = eigenvalue_balls(arb_mat([[2, 1], [1, 2]]))
    >>> low.contains(1), high.contains(3), low.rad() < 1e-13
    (True, True, True)
    """
    size = matrix.nrows()
    half = (matrix + matrix.transpose()) / 2  # the true matrix is symmetric
    with mpmath_precision(flint.ctx.prec):
        middle = mpmath.matrix([[Ball(half[i, j]).mid for j in range(size)] for i in range(size)])
        values, vectors = mpmath.eigsy(middle)
        order = sorted(range(size), key=lambda k: values[k])
        diagonal = [_arb(values[k]) for k in order]
        q = arb_mat([[_arb(vectors[i, k]) for k in order] for i in range(size)])
    scaled = arb_mat([[q[i, k] * diagonal[k] for k in range(size)] for i in range(size)])
    rest = _frobenius(half - scaled * q.transpose())
    defect = _frobenius(q.transpose() * q - identity(size))
    return [e + arb(0, (abs(e) * defect + rest).upper()) for e in diagonal]


def _arb(value: mpmath.mpf) -> Any:
    """The same number, exactly."""
    return arb(value)


def _frobenius(matrix: arb_mat) -> Any:
    total = arb(0)
    for entry in matrix.entries():
        total += entry.abs_upper() * entry.abs_upper()
    return total.nonnegative_part().sqrt()
