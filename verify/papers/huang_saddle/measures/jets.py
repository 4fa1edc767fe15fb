"""Jets: second-order expansions of y* and Phi, in exact rationals or in balls, through values of f and g_y alone.

This is a second route to the derivatives of Phi: no derivative block of f, and none of g beyond its gradient in y, is
used; the chain rule is the arithmetic of truncated power series. y*(x) is seldom rational, so the lower level is
shifted: with g - c'y, c = g_y(x0, y0), the point y0 is the minimiser at x0, and every derivative of g of second order
or higher stays as it was. For a minimax problem f is shifted with it, since there f = -g.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import arb, arb_mat, arb_series, fmpq, fmpq_mat
from numpy.typing import NDArray

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic import balls
from bilevel_sym.arithmetic.scalars import Arithmetic, ScalarProgram
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.graph.operations.record import over_balls

if TYPE_CHECKING:
    from bilevel_sym.graph.operations.record import Operation

JET_BITS = 200
BLOCKS = ("f_x", "f_y", "f_xx", "f_xy", "f_yy", "g_xy", "g_yy", "g_xxy", "g_xyy", "g_yyy")

Numbers = NDArray[np.object_]  # entries are rationals (fmpq) or balls (arb)


class Transcendental(Exception):
    """A function without rational values: the computation is done in balls instead."""


@dataclass(frozen=True, slots=True)
class Jet:
    """c0 + c1 t + c2 t^2, cut off there; the coefficients are rationals or balls.

    >>> t = Jet(fmpq(1), fmpq(1), fmpq(0))
    >>> t * t
    Jet(c0=1, c1=2, c2=1)
    """

    c0: Any
    c1: Any
    c2: Any

    def __add__(self, other: Jet) -> Jet:
        return Jet(self.c0 + other.c0, self.c1 + other.c1, self.c2 + other.c2)

    def __mul__(self, other: Jet) -> Jet:
        a, b = self, other
        return Jet(a.c0 * b.c0, a.c0 * b.c1 + a.c1 * b.c0, a.c0 * b.c2 + a.c1 * b.c1 + a.c2 * b.c0)

    def through(self, value: Any, slope: Any, curvature: Any) -> Jet:
        """h of this jet, from h, h' and h'' at c0."""
        return Jet(value, slope * self.c1, slope * self.c2 + curvature * self.c1 * self.c1 / 2)


@dataclass(frozen=True)
class TaylorPoint:
    """Everything that the identities speak of at one point; ``columns`` are the x variables that were taken.

    ``response`` (c, n) and ``second`` (c, c, n) are the first and second derivatives of y*, ``grad`` (c,) and ``hess``
    (c, c) those of Phi, from series; ``blocks`` are the derivatives of f and g at the point, from the tape.
    """

    exact: bool
    x: tuple[Fraction, ...]
    y: tuple[Fraction, ...]
    columns: tuple[int, ...]
    response: Numbers
    second: Numbers
    grad: Numbers
    hess: Numbers
    blocks: Mapping[str, Numbers]

    def __getitem__(self, name: str) -> Numbers:
        return self.blocks[name]

    def inverse(self, matrix: Numbers) -> Numbers:
        """The inverse of a square matrix, exact or enclosed."""
        return _inverse(matrix, exact=self.exact)


def taylor_point(
    problem: BilevelProblem, x: Sequence[Fraction], y: Sequence[Fraction], columns: Sequence[int]
) -> TaylorPoint | None:
    """The expansion at (x, y), in rationals if f and g have rational values, else in balls of 200 bits.

    None where f or g is not smooth at the point: on the border between two pieces, or outside a domain.

    >>> problem = BilevelProblem("x*y", "(1 + x**2)*y**2/2 - x*y", "x", "y")
    >>> point = taylor_point(problem, [Fraction(1)], [Fraction(1, 2)], [0])
    >>> point.exact, point.grad, point.hess  # Phi = x^2/(1 + x^2), and y*(1) = 1/2 needs no shift
    (True, array([1/2], dtype=object), array([[-1/2]], dtype=object))
    """
    try:
        return _expanded(problem, x, y, columns, exact=True)
    except Transcendental:
        with balls.precision(JET_BITS):
            return _expanded(problem, x, y, columns, exact=False)
    except ZeroDivisionError:
        return None


def _expanded(
    problem: BilevelProblem, x: Sequence[Fraction], y: Sequence[Fraction], columns: Sequence[int], *, exact: bool
) -> TaylorPoint | None:
    numbers = [_number(value, exact) for value in (*x, *y)]
    tape = _Series(problem, numbers, exact)
    try:
        blocks = tape.blocks(columns)
        inverse = _inverse(tape.lower_hessian(), exact=exact)
        jets = {(i, j): tape.along(inverse, {i, j}) for i in columns for j in columns if i <= j}
    except ZeroDivisionError:  # a pole, or a matrix that may be singular
        return None
    response, second, grad, hess = _polarised(jets, columns, problem.n)
    found = (*(entry for block in blocks.values() for entry in block.flat), *second.flat, *hess.flat)
    if not exact and not all(entry.is_finite() for entry in found):
        return None
    return TaylorPoint(exact, tuple(x), tuple(y), tuple(columns), response, second, grad, hess, blocks)


class _Series:
    """The tape of one problem, run on jets around one point."""

    def __init__(self, problem: BilevelProblem, point: Sequence[Any], exact: bool) -> None:
        self._d, self._n, self._point, self._exact = problem.d, problem.n, point, exact
        self._minimax = problem.kind == "minimax"
        arithmetic = RATIONAL if exact else BALL
        # the two programs that the series need, and the blocks that they are compared with
        self._values = ScalarProgram(problem.tape.program(("f", "g_y")), arithmetic)
        self._blocks = ScalarProgram(problem.tape.program(BLOCKS), arithmetic)
        self._shift = [jet.c0 for jet in self._run(self._values, [None] * len(point), "g_y")]

    def _run(self, program: ScalarProgram, moves: Sequence[tuple[Any, Any] | None], name: str) -> list[Any]:
        return program.output(self._table(program, moves), name)

    def _table(self, program: ScalarProgram, moves: Sequence[tuple[Any, Any] | None]) -> list[Any]:
        zero = self._zero
        table = program.start()
        program.put(table, 0, [Jet(c, *(move or (zero, zero))) for c, move in zip(self._point, moves, strict=True)])
        return table

    @property
    def _zero(self) -> Any:
        return fmpq(0) if self._exact else arb(0)

    def blocks(self, columns: Sequence[int]) -> Mapping[str, Numbers]:
        """The derivative blocks at the point, with the chosen x variables."""
        table = self._table(self._blocks, [None] * len(self._point))
        sizes, chosen = {"x": self._d, "y": self._n}, {"x": list(columns), "y": list(range(self._n))}
        found: dict[str, Numbers] = {}
        for name in BLOCKS:
            entries = np.array([jet.c0 for jet in self._blocks.output(table, name)], dtype=object)
            found[name] = entries.reshape([sizes[axis] for axis in name[2:]])[
                np.ix_(*(chosen[axis] for axis in name[2:]))
            ]
        if self._minimax:  # f_y = -g_y, which the shift makes zero
            found["f_y"] = np.array([self._zero] * self._n, dtype=object)
        return MappingProxyType(found)

    def lower_hessian(self) -> Numbers:
        """g_yy, column by column from the series of g_y."""
        one, zero = self._zero + 1, self._zero
        matrix = np.empty((self._n, self._n), dtype=object)
        for k in range(self._n):
            moves = [(one, zero) if index == self._d + k else None for index in range(len(self._point))]
            matrix[:, k] = [jet.c1 for jet in self._run(self._values, moves, "g_y")]
        return matrix

    def along(self, inverse: Numbers, directions: set[int]) -> tuple[Numbers, Numbers, Any, Any]:
        """y', y''/2, Phi' and Phi''/2 along the sum of the unit vectors with these indices."""
        one, zero = self._zero + 1, self._zero
        x_moves = [(one, zero) if i in directions else None for i in range(self._d)]
        still = [(zero, zero)] * self._n
        first = -(inverse @ self._coefficients([*x_moves, *still], "c1"))
        bent = -(inverse @ self._coefficients([*x_moves, *((a, zero) for a in first)], "c2"))
        table = self._table(self._values, [*x_moves, *zip(first, bent, strict=True)])
        (phi,) = self._values.output(table, "f")
        slope, curve = phi.c1, phi.c2
        if self._minimax:  # f + c'y, since f = -g
            slope = slope + _dot(self._shift, first)
            curve = curve + _dot(self._shift, bent)
        return first, bent, slope, curve

    def _coefficients(self, moves: Sequence[tuple[Any, Any] | None], order: str) -> Numbers:
        return np.array([getattr(jet, order) for jet in self._run(self._values, moves, "g_y")], dtype=object)


def _polarised(
    jets: Mapping[tuple[int, int], tuple[Numbers, Numbers, Any, Any]], columns: Sequence[int], n: int
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """All first and second derivatives from those along e_i and e_i + e_j."""
    c = len(columns)
    response, second = np.empty((c, n), dtype=object), np.empty((c, c, n), dtype=object)
    grad, hess = np.empty(c, dtype=object), np.empty((c, c), dtype=object)
    for a, i in enumerate(columns):
        first, bent, slope, curve = jets[i, i]
        response[a], second[a, a], grad[a], hess[a, a] = first, 2 * bent, slope, 2 * curve
    for a, i in enumerate(columns):
        for b, j in enumerate(columns[:a]):
            _, bent, _, curve = jets[min(i, j), max(i, j)]
            second[a, b] = second[b, a] = bent - second[a, a] / 2 - second[b, b] / 2
            hess[a, b] = hess[b, a] = curve - hess[a, a] / 2 - hess[b, b] / 2
    return response, second, grad, hess


def _inverse(matrix: Numbers, *, exact: bool) -> Numbers:
    n = len(matrix)
    entries: list[Any] = list(matrix.flat)
    inverse = (fmpq_mat if exact else arb_mat)(n, n, entries).inv()
    return np.array([[inverse[i, j] for j in range(n)] for i in range(n)], dtype=object)


def _dot(a: Sequence[Any], b: Numbers) -> Any:
    return sum((p * q for p, q in zip(a[1:], b[1:], strict=True)), start=a[0] * b[0])


def _number(value: Fraction, exact: bool) -> Any:
    rational = fmpq(value.numerator, value.denominator)
    return rational if exact else arb(rational)


# ---- the operations of the tape on jets ------------------------------------------------------------------------------


def _elementary(name: str, jet: Jet) -> Jet:
    if isinstance(jet.c0, fmpq):
        raise Transcendental(name)
    return jet.through(*derivatives(FUNCTIONS[name], jet.c0))


def derivatives(record: Operation, x: Any) -> tuple[Any, Any, Any]:
    """h, h' and h'' at a number, by Arb's power series and not by the tape's own rules.

    >>> [round(float(value), 6) for value in derivatives(FUNCTIONS["erf"], arb(1))]
    [0.842701, 0.415107, -0.830215]
    """
    series = record.rule("series")(arb_series([x, 1], 3))
    return over_balls(record)(x), series[1], 2 * series[2]


def _rpow(jet: Jet, p: int, q: int) -> Jet:
    if isinstance(jet.c0, fmpq):
        raise Transcendental("a root")
    value = balls.SMOOTH["rpow"](jet.c0, p, q)
    exponent = fmpq(p, q)
    slope = value * exponent / jet.c0
    return jet.through(value, slope, slope * (exponent - 1) / jet.c0)


def _ipow(jet: Jet, k: int) -> Jet:
    if k < 0:
        inverse = 1 / jet.c0
        inverted = jet.through(inverse, -inverse * inverse, 2 * inverse * inverse * inverse)
        return _ipow(inverted, -k)
    power = None
    while k:  # by squaring: zero to the power 0 never arises
        power = (jet if power is None else power * jet) if k & 1 else power
        jet, k = jet * jet, k >> 1
    return Jet(jet.c0 * 0 + 1, jet.c1 * 0, jet.c2 * 0) if power is None else power


def _positive(number: Any) -> bool:
    """Whether a number is positive; on the border, or in a ball across it, the function is not smooth."""
    if number > 0:
        return True
    if number < 0:
        return False
    raise ZeroDivisionError("a switch is not decided")


def _flat(jet: Jet, value: int) -> Jet:
    return Jet(jet.c0 * 0 + value, jet.c1 * 0, jet.c2 * 0)


OPERATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **{name: partial(_elementary, name) for name in FUNCTIONS},
        "mul": lambda a, b: a * b,
        "ipow": _ipow,
        "rpow": _rpow,
        "abs": lambda a: a if _positive(a.c0) else Jet(-a.c0, -a.c1, -a.c2),
        "sign": lambda a: _flat(a, 1 if _positive(a.c0) else -1),
        "min": lambda a, b: b if _positive(a.c0 - b.c0) else a,
        "max": lambda a, b: a if _positive(a.c0 - b.c0) else b,
        "lt": lambda a: _flat(a, 0 if _positive(a.c0) else 1),
        "le": lambda a: _flat(a, 0 if _positive(a.c0) else 1),
        "select": lambda c, a, b: a if c.c0 != 0 else b,
    }
)


def _no_pi() -> Any:
    raise Transcendental("pi")


RATIONAL = Arithmetic(
    MappingProxyType({**OPERATIONS, "pi": _no_pi}),
    lambda p, q: Jet(fmpq(p, q), fmpq(0), fmpq(0)),
    balls.precision,
)
BALL = Arithmetic(
    MappingProxyType({**OPERATIONS, "pi": lambda: Jet(arb.pi(), arb(0), arb(0))}),
    lambda p, q: Jet(arb(fmpq(p, q)), arb(0), arb(0)),
    balls.precision,
)
