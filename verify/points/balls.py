"""One stationary point in many digits: Krawczyk's test in ball arithmetic for the system in (x, y, v).

    f_x - g_xy v = 0,   g_y = 0,   f_y - g_yy v = 0

are d + 2n equations in as many unknowns, and say that grad Phi(x) = 0, y = y*(x), v = v*(x). With the Lagrangian
L = f - v^T g_y their Jacobian is [[L_xx, L_xy, -g_xy], [g_yx, g_yy, 0], [L_yx, L_yy, -g_yy]].

A stationary point in exact arithmetic: what no enclosure can prove, such as a Hessian that is exactly singular.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from operator import attrgetter
from typing import Any

import flint
import mpmath
import sympy as sp
from flint import arb, arb_mat, fmpq

from bilevel_sym import Ball, BilevelProblem
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.certify.krawczyk import BALL_MATRICES, BallBlocks, Zero, identity, middles, proved_zero
from bilevel_sym.errors import BilevelError
from bilevel_sym.graph.expressions import substitute
from bilevel_sym.graph.precision import mpmath_precision
from bilevel_sym.implicit.second_order import Algebra, ImplicitFormulas, gradient_of

__all__ = ["POINT_BITS", "ExactPoint", "Root", "eigenvalue_balls", "exact_point", "inertia", "refine", "simplest"]

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
        diagonal = [arb(values[k]) for k in order]  # the same numbers, exactly
        q = arb_mat([[arb(vectors[i, k]) for k in order] for i in range(size)])
    scaled = arb_mat([[q[i, k] * diagonal[k] for k in range(size)] for i in range(size)])
    rest = _frobenius(half - scaled * q.transpose())
    defect = _frobenius(q.transpose() * q - identity(size))
    return [e + arb(0, (abs(e) * defect + rest).upper()) for e in diagonal]


def _frobenius(matrix: arb_mat) -> Any:
    sizes = (entry.abs_upper() for entry in matrix.entries())
    return sum((size * size for size in sizes), arb(0)).nonnegative_part().sqrt()


FLOAT_DISTANCE = Fraction(1, 10**10)  # how far float64 may be from a y* that is a simple number
AT_ONCE = ("f_x", "f_y", "g_y", "g_xy", "g_yy", "f_xx")
SECOND = ("L_xx", "L_xy", "L_yy")
RATIONAL_MATRICES: Algebra[sp.Matrix] = Algebra(attrgetter("LUsolve"))


@dataclass(frozen=True, eq=False)
class ExactPoint:
    """Rational x, y = y*(x), v = v*(x) with grad Phi(x) = 0, and Hess Phi and f_xx there; nothing is rounded."""

    x: tuple[sp.Rational, ...]
    y: tuple[sp.Rational, ...]
    v: tuple[sp.Rational, ...]
    hess: sp.Matrix
    f_xx: sp.Matrix


def exact_point(problem: BilevelProblem, x: Sequence[sp.Rational]) -> ExactPoint | None:
    """The rational point x, if it is exactly stationary and y*(x) is a simple rational; else None.

    >>> problem = BilevelProblem("x**4 + y**2", "(y - x**3)**2", "x", "y")
    >>> point = exact_point(problem, [sp.Integer(0)])
    >>> point.hess, exact_point(problem, [sp.Integer(1)]) is None
    (Matrix([[0]]), True)
    """
    y = _lower_solution(problem, x)
    if y is None:
        return None
    v = sp.symbols(f"v0:{problem.n}", cls=sp.Dummy)
    at = dict(zip((*problem.x, *problem.y), (*x, *y), strict=True))
    b = _blocks(problem, AT_ONCE, v, at)
    if b is None or any(b["g_y"]) or inertia(b["g_yy"]) != (problem.n, 0, 0):
        return None
    here = ImplicitFormulas(RATIONAL_MATRICES, b.__getitem__)
    if any(here.grad) or not _smooth(problem, [*x, *y], list(here.v)):
        return None
    second = _blocks(problem, SECOND, v, at | dict(zip(v, here.v, strict=True)))
    if second is None:
        return None
    b |= second
    return ExactPoint(tuple(x), tuple(y), tuple(here.v), here.hess, b["f_xx"])


def inertia(matrix: sp.Matrix) -> tuple[int, int, int]:
    """How many eigenvalues of a rational symmetric matrix are positive, negative, zero: by Descartes' rule of signs.

    All roots of its characteristic polynomial are real, so the rule counts exactly.

    >>> inertia(sp.Matrix([[1, 0, 0], [0, -2, 0], [0, 0, 0]]))
    (1, 1, 1)
    """
    coefficients = matrix.charpoly().all_coeffs()
    size = matrix.rows
    positive = _changes(coefficients)
    negative = _changes([c * (-1) ** (size - k) for k, c in enumerate(coefficients)])
    return positive, negative, size - positive - negative


def simplest(low: sp.Rational, high: sp.Rational) -> sp.Rational:
    """The rational with the smallest denominator in [low, high], zero first.

    >>> simplest(sp.Rational(31, 100), sp.Rational(34, 100)), simplest(sp.Integer(-1), sp.Integer(2))
    (1/3, 0)
    """
    if low <= 0 <= high:
        return sp.S.Zero
    if high < 0:
        return -simplest(-high, -low)
    whole = sp.ceiling(low)
    if whole <= high:
        return whole
    base = whole - 1
    return base + 1 / simplest(1 / (high - base), 1 / (low - base))


def _changes(coefficients: Sequence[sp.Rational]) -> int:
    signs = [c > 0 for c in coefficients if c != 0]
    return sum(a != b for a, b in pairwise(signs))


def _lower_solution(problem: BilevelProblem, x: Sequence[sp.Rational]) -> list[sp.Rational] | None:
    try:
        found = problem.kernels.one_sided.y_star([float(value) for value in x])
    except (BilevelError, OverflowError):
        return None
    ends = ((Fraction(value), FLOAT_DISTANCE * (1 + abs(Fraction(value)))) for value in found.tolist())
    return [simplest(*(sp.Rational(e.numerator, e.denominator) for e in (mid - r, mid + r))) for mid, r in ends]


def _smooth(problem: BilevelProblem, point: Sequence[sp.Rational], v: Sequence[sp.Rational]) -> bool:
    """Whether f and g have no kink and no end of a domain there: substitution would take one branch."""
    names = ("f", "g", *AT_ONCE, "f_xy", "f_yy", *SECOND)
    with precision(POINT_BITS):
        program = problem.tape.in_balls(names, POINT_BITS)
        values = program.start()
        for stage, given in enumerate((point, v)):
            program.put(values, stage, [arb(fmpq(int(value.p), int(value.q))) for value in given])
        return all(entry.is_finite() for name in names for entry in program.output(values, name))


def _blocks(
    problem: BilevelProblem, names: Sequence[str], v: Sequence[sp.Symbol], at: dict[sp.Symbol, sp.Rational]
) -> dict[str, sp.Matrix] | None:
    """Blocks at the point; None where an entry is not a rational number."""
    sizes = {"x": problem.d, "y": problem.n}
    found = {}
    for name in names:
        rows, columns = (*(sizes[axis] for axis in name[2:]), 1)[:2]
        entries = [substitute(entry, at) for entry in problem.tape.expressions(name, v)]
        if not all(isinstance(entry, sp.Rational) for entry in entries):
            return None
        found[name] = sp.Matrix(rows, columns, entries)
    return found
