"""One stationary point in many digits: Krawczyk's test in ball arithmetic for the system in (x, y, v).

    f_x - g_xy v = 0,   g_y = 0,   f_y - g_yy v = 0

are d + 2n equations in as many unknowns, and say that grad Phi(x) = 0, y = y*(x), v = v*(x). With the Lagrangian
L = f - v^T g_y their Jacobian is [[L_xx, L_xy, -g_xy], [g_yx, g_yy, 0], [L_yx, L_yy, -g_yy]].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flint
import mpmath
from flint import arb, arb_mat

from bilevel_sym import Ball, BilevelProblem
from bilevel_sym.arithmetic.balls import precision

__all__ = ["Root", "eigenvalue_balls", "refine"]

BITS = 200
STEPS = 12
ATTEMPTS = 6
SYSTEM = ("f", "g", "f_x", "f_y", "g_y", "g_xy", "g_yy", "L_xx", "L_xy", "L_yy", "f_xx")
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


def refine(problem: BilevelProblem, x: Sequence[float], y: Sequence[float], *, bits: int = BITS) -> Root | None:
    """The stationary point next to (x, y), or None where the proof does not succeed.

    >>> root = refine(BilevelProblem("x*y - y", "y**2/2 - x*y", "x", "y"), [0.4], [0.4])  # Phi = x^2 - x
    >>> root.x[0].contains("1/2"), root.hess[0].contains(2)
    (True, True)
    """
    with precision(bits):
        system = _System(problem, bits)
        try:
            return system.root([*map(arb, x)], [*map(arb, y)])
        except ZeroDivisionError:  # python-flint's word for a matrix that may be singular
            return None


class _System:
    """F and its Jacobian in balls."""

    def __init__(self, problem: BilevelProblem, bits: int) -> None:
        self.d, self.n, self.bits = problem.d, problem.n, bits
        self.size = self.d + 2 * self.n
        self.program = problem.tape.in_balls(SYSTEM, bits)

    def blocks(self, z: Sequence[Any]) -> dict[str, arb_mat] | None:
        """Every block at a point or a box; None where f or g is not smooth all over it."""
        d, n = self.d, self.n
        values = self.program.start()
        self.program.put(values, 0, list(z[: d + n]))
        self.program.put(values, 1, list(z[d + n :]))
        shapes = {"x": d, "y": n}
        found = {}
        for name in SYSTEM:
            axes = [shapes[axis] for axis in name[2:]]
            rows, columns = (*axes, 1, 1)[:2]
            entries = self.program.output(values, name)
            if not all(entry.is_finite() for entry in entries):
                return None
            found[name] = arb_mat(rows, columns, entries)
        return found

    def value(self, b: dict[str, arb_mat], z: Sequence[Any]) -> arb_mat:
        v = arb_mat(self.n, 1, list(z[self.d + self.n :]))
        parts = (b["f_x"] - b["g_xy"] * v, b["g_y"], b["f_y"] - b["g_yy"] * v)
        return arb_mat(self.size, 1, [entry for part in parts for entry in part.entries()])

    def jacobian(self, b: dict[str, arb_mat]) -> arb_mat:
        nothing = arb_mat(self.n, self.n)
        rows = (
            (b["L_xx"], b["L_xy"], -b["g_xy"]),
            (b["g_xy"].transpose(), b["g_yy"], nothing),
            (b["L_xy"].transpose(), b["L_yy"], -b["g_yy"]),
        )
        return arb_mat([[e for block in row for e in block.table()[i]] for row in rows for i in range(row[0].nrows())])

    def root(self, x: list[Any], y: list[Any]) -> Root | None:
        start = self.blocks([*x, *y, *[arb(0)] * self.n])
        if start is None:
            return None
        v = _middle(start["g_yy"]).solve(_middle(start["f_y"]), algorithm="approx")
        z = [e.mid() for e in (*x, *y, *v.entries())]
        found = self._newton(z)
        if found is None:
            return None
        z, inverse, correction = found
        box = self._proved(z, inverse, correction)
        return None if box is None else self._described(*box)

    def _newton(self, z: list[Any]) -> tuple[list[Any], arb_mat, list[Any]] | None:
        """A point next to the root, an approximate inverse of the Jacobian, and the correction that is still due."""
        for _ in range(STEPS):
            b = self.blocks(z)
            if b is None:
                return None
            inverse = _middle(_middle(self.jacobian(b)).solve(_identity(self.size), algorithm="approx"))
            correction = (inverse * self.value(b, z)).entries()
            if not all(c.is_finite() for c in correction):
                return None
            scale = max(e.abs_upper() for e in z) + max(c.abs_upper() for c in correction)
            # at zero itself nothing is small beside the point
            small = scale * arb(2) ** (-self.bits // 2) + arb(2) ** -self.bits
            if all(c.abs_upper() <= small for c in correction):
                z = [(e - c).mid() for e, c in zip(z, correction, strict=True)]
                b = self.blocks(z)
                return None if b is None else (z, inverse, (inverse * self.value(b, z)).entries())
            z = [(e - c).mid() for e, c in zip(z, correction, strict=True)]
        return None

    def _proved(self, z: list[Any], inverse: arb_mat, correction: list[Any]) -> tuple[list[Any], list[Any]] | None:
        """A box whose Krawczyk image lies in its interior, and that image."""
        tiny = max(e.abs_upper() for e in z) * arb(2) ** (16 - self.bits) + arb(2) ** (-4 * self.bits)
        radius = [8 * c.abs_upper() + tiny for c in correction]
        for _ in range(ATTEMPTS):
            box = [e + arb(0, r) for e, r in zip(z, radius, strict=True)]
            b = self.blocks(box)
            if b is None:
                return None
            away = arb_mat(self.size, 1, [e - c for e, c in zip(box, z, strict=True)])
            spread = ((_identity(self.size) - inverse * self.jacobian(b)) * away).entries()
            image = [e - c + s for e, c, s in zip(z, correction, spread, strict=True)]
            if all(e.contains_interior(i) for e, i in zip(box, image, strict=True)):
                return box, image
            radius = [16 * r for r in radius]
        return None

    def _described(self, box: list[Any], image: list[Any]) -> Root | None:
        b = self.blocks(image)
        if b is None or not eigenvalue_balls(b["g_yy"])[0] > 0:
            return None
        response = -b["g_yy"].solve(b["g_xy"].transpose())
        half = b["L_xy"] + response.transpose() * b["L_yy"] / 2
        cross = half * response
        hess = eigenvalue_balls(b["L_xx"] + cross + cross.transpose())
        balls = tuple(map(Ball, image))
        d, n = self.d, self.n
        f_xx = tuple(map(Ball, eigenvalue_balls(b["f_xx"])))
        return Root(balls[:d], balls[d : d + n], balls[d + n :], tuple(box), tuple(map(Ball, hess)), f_xx)


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
    with mpmath.workprec(flint.ctx.prec):
        middle = mpmath.matrix([[Ball(half[i, j]).mid for j in range(size)] for i in range(size)])
        values, vectors = mpmath.eigsy(middle)
        order = sorted(range(size), key=lambda k: values[k])
        diagonal = [_arb(values[k]) for k in order]
        q = arb_mat([[_arb(vectors[i, k]) for k in order] for i in range(size)])
    scaled = arb_mat([[q[i, k] * diagonal[k] for k in range(size)] for i in range(size)])
    rest = _frobenius(half - scaled * q.transpose())
    defect = _frobenius(q.transpose() * q - _identity(size))
    return [e + arb(0, (abs(e) * defect + rest).upper()) for e in diagonal]


def _arb(value: mpmath.mpf) -> Any:
    """The same number, exactly."""
    return arb(value)


def _frobenius(matrix: arb_mat) -> Any:
    total = arb(0)
    for entry in matrix.entries():
        total += entry.abs_upper() * entry.abs_upper()
    return total.nonnegative_part().sqrt()


def _identity(n: int) -> arb_mat:
    return arb_mat(n, n, [arb(int(i == j)) for i in range(n) for j in range(n)])


def _middle(matrix: arb_mat) -> arb_mat:
    return arb_mat(matrix.nrows(), matrix.ncols(), [entry.mid() for entry in matrix.entries()])
