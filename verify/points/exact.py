"""A stationary point in exact arithmetic: what no enclosure can prove, such as a Hessian that is exactly singular."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from operator import attrgetter

import sympy as sp
from flint import arb, fmpq

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.errors import BilevelError
from bilevel_sym.graph.expressions import substitute
from bilevel_sym.implicit.second_order import Algebra, ImplicitFormulas
from verify.points.balls import POINT_BITS

__all__ = ["ExactPoint", "exact_point", "inertia", "simplest"]

FLOAT_DISTANCE = Fraction(1, 10**10)  # how far float64 may be from a y* that is a simple number
FIRST = ("f_x", "f_y", "g_y", "g_xy", "g_yy", "f_xx")
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
    b = _blocks(problem, FIRST, v, at)
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
    names = ("f", "g", *FIRST, "f_xy", "f_yy", *SECOND)
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
