"""Errors in the numerical experiment: the tube and its step size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import comb

import sympy as sp
from flint import fmpq

from bilevel_sym.zoo.tube import TAU, TubeShape
from verify.erratum import Formula, erratum

_C, _B = sp.symbols("c b", positive=True)  # coordinates in units of tau
_Interval = tuple[fmpq, fmpq]
_Polynomial = dict[tuple[int, int], fmpq]
_PANELS = (sp.Integer(1), sp.Rational(3, 2), sp.Integer(2), sp.Integer(3))  # L in Figure 1
_MOST_CELLS = 4096  # of the cover that decides the step size; a few hundred are used


def _shape(L: int | sp.Rational) -> TubeShape:
    return TubeShape(sp.Rational(L), sp.Integer(1))


@erratum(
    "unlabelled:tube-g",
    "eq: tube_f",
    "unlabelled:lower-level-function",
    printed="y* = g(x) = 0 except where x_i is in [tau, 2 tau], and there y* = h_1(x_i) + h_2(x_i) x_{i+1}^2",
    corrected="f = y and y* = g(x) = Phi(x) in every region, which gives the same Phi (zoo: tube)",
    forms=(
        lambda shape, x: (sp.Integer(0), shape.connector(x, 0), sp.Integer(0)),
        lambda shape, x: (
            shape.first_piece(x, 0),
            shape.second_piece(x, 0, shape.connector(x, 0)),
            shape.first_piece(x, 1),
        ),
    ),
    witness="d = 2, L = gamma = 1: at x = (tau, b), y* jumps from 0 to -tau^2 + b^2",
    why="y*, f and g jump where x_i = tau or 2 tau, so Assumption 2.1 fails in the paper's own experiment; Phi alone "
    "is continuous there, with its first two derivatives.",
    severity="gap",
)
def tube_jump(form: Formula) -> bool:
    """y* is the same from both sides where x_1 = tau and where x_1 = 2 tau."""
    x = sp.symbols("x1:3")
    below, between, above = form(_shape(1), x)
    jumps = ((between - below).subs(x[0], TAU), (above - between).subs(x[0], 2 * TAU))
    return all(sp.expand(jump) == 0 for jump in jumps)


def _in_units_of_tau(h: sp.Expr) -> sp.Expr:
    """h(tau c)/tau^2: free of tau, and with the second derivatives of h."""
    return sp.expand(h / TAU**2)


def _neighbours(shape: TubeShape) -> tuple[tuple[int, sp.Expr], ...]:
    """What h_1 must join, and where: -gamma c^2 at 1 and L (c - 4)^2 - nu at 2."""
    nu = _in_units_of_tau(shape.nu)
    return (1, -shape.gamma * _C**2), (2, shape.L * (_C - 4) ** 2 - nu)


def _degree_7(shape: TubeShape) -> sp.Expr:
    """The polynomial with the neighbours' values and first three derivatives at both ends."""
    a = sp.symbols("a0:8")
    h = sum(coefficient * _C**i for i, coefficient in enumerate(a))
    conditions = [sp.diff(h - piece, _C, k).subs(_C, at) for at, piece in _neighbours(shape) for k in range(4)]
    return h.subs(sp.solve(conditions, a))


@erratum(
    "unlabelled:h1",
    "unlabelled:assumption-bilevel-i",
    "unlabelled:section-experiments",
    printed="h_1, of degree 4, joins the pieces, while Assumption 2.1(i) asks for a lower level that is three times "
    "differentiable",
    corrected="a join with three derivatives, by a polynomial of degree 7",
    forms=(lambda shape: _in_units_of_tau(shape.h_1(TAU * _C)), _degree_7),
    witness="L = gamma = tau = 1: h_1'''(tau) = -8 against 0, and 16 against 0 at 2 tau",
    why="h_1 joins values and two derivatives only. For the proofs that is enough, since they use no third "
    "derivative in x alone, and g_xxy = -g'' stays Lipschitz.",
    severity="gap",
)
def tube_c3(form: Formula) -> bool:
    """The join has its neighbours' values and derivatives up to the third."""
    shape = _shape(1)
    h = form(shape)
    return all(sp.diff(h - piece, _C, k).subs(_C, at) == 0 for at, piece in _neighbours(shape) for k in range(4))


@erratum(
    "unlabelled:tube-settings",
    "eq:para_minimax",
    printed="eta = 0.05",
    corrected="eta <= 1/L_phi; for gamma = 1 and L = 1, 3/2, 2, 3, L_phi <= 12 L + 4 on the printed domain",
    forms=(lambda L: fmpq(1, 20), lambda L: 1 / (12 * _rational(L) + 4)),
    witness="gamma = 1, x = (5/4, 1) tau: for L = 3/2, 2, 3 the Hessian of Phi has an eigenvalue below -20 (for L = "
    "3 below -37), so 1/L_phi < 0.05; the bound 12 L + 4 is proved by a cover of the domain",
    why="In nine of the twelve panels the step is above 1/L_phi, outside the theorem.",
    severity="gap",
)
def tube_step(form: Formula) -> bool:
    """-1/eta <= Phi'' <= 1/eta on the whole printed domain, decided by exact bounds over a cover of it."""
    return all(_curvature_at_most(1 / form(L), _shape(L)) for L in _PANELS)


def _curvature_at_most(bound: fmpq, shape: TubeShape) -> bool:
    """Whether the Hessian of Phi has norm at most ``bound``, in every region of the printed domain.

    The Hessian is diagonal, with entries -2 gamma and 2 L, except for the block of (x_i, x_{i+1}) where x_i is in
    [tau, 2 tau] and x_{i+1} in [0, tau]; x_{i+1} = 0 there gives the last coordinate's region too.
    """
    if bound < max(_rational(2 * shape.L), _rational(2 * shape.gamma)):
        return False
    phi = _in_units_of_tau(shape.h_1(TAU * _C) + shape.h_2(TAU * _C) * (TAU * _B) ** 2)
    entries = [_polynomial(sp.diff(phi, s, t).subs(_C, 1 + _C)) for s, t in ((_C, _C), (_C, _B), (_B, _B))]
    witness = [_enclosure(_moved(entry, fmpq(1, 4), fmpq(1)), fmpq(0)) for entry in entries]  # at (5/4, 1) tau
    if not _norm_at_most(bound, witness):
        return False
    cells = [(fmpq(0), fmpq(0), fmpq(1))]  # corner and width
    for _ in range(_MOST_CELLS):
        if not cells:
            return True
        c, b, width = cells.pop()
        here = [_moved(entry, c, b) for entry in entries]
        if not _norm_at_most(bound, [_enclosure(entry, fmpq(0)) for entry in here]):
            return False
        if not _norm_at_most(bound, [_enclosure(entry, width) for entry in here]):
            half = width / 2
            cells += [(c + i * half, b + j * half, half) for i in (0, 1) for j in (0, 1)]
    raise ArithmeticError("the cover does not decide this bound")


def _rational(number: sp.Rational) -> fmpq:
    return fmpq(int(number.p), int(number.q))


def _polynomial(expression: sp.Expr) -> _Polynomial:
    terms = sp.Poly(expression, _C, _B).terms()
    return {powers: _rational(coefficient) for powers, coefficient in terms}


def _moved(entry: _Polynomial, c: fmpq, b: fmpq) -> _Polynomial:
    """The same polynomial about (c, b): there, small cells have small powers."""
    moved: _Polynomial = {}
    for (i, j), coefficient in entry.items():
        for k, m in product(range(i + 1), range(j + 1)):
            part = coefficient * comb(i, k) * comb(j, m) * c ** (i - k) * b ** (j - m)
            moved[k, m] = moved.get((k, m), fmpq(0)) + part
    return moved


def _enclosure(entry: _Polynomial, width: fmpq) -> _Interval:
    """Bounds over [0, width]^2, monomial by monomial."""
    middle = entry.get((0, 0), fmpq(0))
    parts = [a * width ** (i + j) for (i, j), a in entry.items() if i + j > 0]
    return middle + sum(min(part, fmpq(0)) for part in parts), middle + sum(max(part, fmpq(0)) for part in parts)


def _norm_at_most(bound: fmpq, entries: Sequence[_Interval]) -> bool:
    """Whether bound I - H and bound I + H are positive semidefinite for every H = [[p, q], [q, r]] of the enclosure."""
    p, q, r = entries
    off = max(abs(q[0]), abs(q[1]))
    pairs = ((bound - p[1], bound - r[1]), (bound + p[0], bound + r[0]))
    return all(first >= 0 and second >= 0 and first * second >= off * off for first, second in pairs)
