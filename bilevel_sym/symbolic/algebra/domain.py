"""Where a formula has to hold: enclosures in ball arithmetic, sample points, and bounds over a box.

A ball that lies on one side of zero is a proof at that point. Where nothing is certain nothing is concluded, and an
overflow is an infinite ball, so a tower of exponentials costs no more than a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Any

import flint
import sympy as sp
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair

from bilevel_sym.graph.expressions import postorder, substitute, symbols_in
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.graph.precision import precision
from bilevel_sym.problem.box import Box

__all__ = ["MIDPOINT_BITS", "Ball", "Domain", "Point", "enclosure", "exact_ball"]

Ball = Any  # flint.arb, which has no type stubs
Point = Mapping[sp.Symbol, Ball]

MIDPOINT_BITS = 160  # of the midpoints: several times what any sign here needs
N_POINTS = 14
MAX_BOXES = 256  # pieces into which a box is cut to prove a bound over it

# Sample values, of both signs and several magnitudes, and fractions of an interval, each as (numerator, denominator).
_VALUES = ((1, 2), (-3, 2), (2, 1), (-1, 3), (5, 1), (3, 4), (-7, 2), (1, 7), (12, 1), (-20, 1), (9, 5), (-1, 9),
           (40, 1), (-1, 1))  # fmt: skip
_FRACTIONS = ((1, 2), (1, 3), (5, 6), (1, 7), (9, 10), (2, 5), (3, 4), (1, 16), (15, 16), (1, 4), (3, 5), (1, 9),
              (6, 7), (1, 30))  # fmt: skip
_STRIDES = (1, 3, 5, 9, 11, 13)  # coprime to 14, so that no two variables take the values in the same order

# what people write, and the inverse functions of closed forms
_FUNCTIONS: Mapping[type[sp.Basic], Callable[[Ball], Ball]] = MappingProxyType(
    {
        **{record.sympy: record.rule("ball") for record in OPERATIONS.values() if record.source and record.arity == 1},
        sp.asin: flint.arb.asin, sp.acos: flint.arb.acos, sp.acosh: flint.arb.acosh, sp.atanh: flint.arb.atanh,
        sp.sign: flint.arb.sgn,
    }
)  # fmt: skip


def enclosure(expression: sp.Expr, point: Point) -> Ball:
    """A ball that contains the real value of the expression; nan where there is none or it is not certain.

    >>> x = sp.Symbol("x", real=True)
    >>> enclosure(sp.sqrt(x), {x: flint.arb(4)}) == 2, enclosure(sp.log(x), {x: flint.arb(-1)}).is_nan()
    (True, True)
    """
    done: dict[int, Any] = {}
    for node in postorder(expression):
        done[id(node)] = _ball(node, [done[id(child)] for child in node.args], point)
    return done[id(expression)]


def exact_ball(value: sp.Rational) -> Ball:
    """A rational number as a ball, to the working precision.

    >>> exact_ball(sp.Rational(1, 2)).is_exact()
    True
    """
    return flint.arb(flint.fmpq(int(value.p), int(value.q)))


def _ball(node: sp.Basic, inner: list[Any], point: Point) -> Any:
    if isinstance(node, sp.Symbol):
        return point.get(node, flint.arb.nan())
    if isinstance(node, sp.Rational):
        return exact_ball(node)
    if isinstance(node, sp.Add):
        return sum(inner, flint.arb(0))
    if isinstance(node, sp.Mul):
        return reduce(lambda a, b: a * b, inner)
    if isinstance(node, sp.Pow):
        return _power(node.exp, *inner)
    if isinstance(node, (sp.Max, sp.Min)):
        return reduce(flint.arb.max if isinstance(node, sp.Max) else flint.arb.min, inner)
    if isinstance(node, (sp.pi.func, sp.E.func)):
        return flint.arb.pi() if node is sp.pi else flint.arb.const_e()
    return _FUNCTIONS[node.func](*inner) if node.func in _FUNCTIONS else _piece(node, inner)


def _piece(node: sp.Basic, inner: list[Any]) -> Any:
    """Piecewise and its conditions, which are true, false or None: not certain."""
    if isinstance(node, Relational):
        left, right = inner
        difference, strict = (left - right, isinstance(node, (sp.Gt, sp.Lt)))
        difference = difference if isinstance(node, (sp.Gt, sp.Ge)) else -difference
        holds, fails = (difference > 0, difference <= 0) if strict else (difference >= 0, difference < 0)
        return True if holds else False if fails else None
    if node in (sp.true, sp.false):
        return bool(node)
    if isinstance(node, ExprCondPair):
        return tuple(inner)
    if isinstance(node, sp.Piecewise):
        value, condition = next((pair for pair in inner if pair[1] is not False), (None, None))
        return value if condition else flint.arb.nan()
    return flint.arb.nan()


def _power(exponent: sp.Expr, base: Ball, power: Ball) -> Ball:
    if exponent.is_Integer:
        return OPERATIONS["ipow"].rule("ball")(base, int(exponent))
    if exponent.is_Rational:
        return OPERATIONS["rpow"].rule("ball")(base, int(exponent.p), int(exponent.q))
    return (power * base.log()).exp()


@dataclass(frozen=True, slots=True)
class Domain:
    """Where a formula has to hold: a box, if there is one, and the meaning of symbols that abbreviate.

    >>> x = sp.Symbol("x", real=True)
    >>> Domain(Box({"x": (1, 2)}), {}).proves_between(x**2, 0, sp.oo)
    True
    """

    box: Box | None
    meanings: dict[sp.Symbol, sp.Expr]

    def interval(self, symbol: sp.Symbol) -> tuple[sp.Rational, sp.Rational] | None:
        """The interval of a variable, where the box has one."""
        return dict(self.box.items()).get(symbol.name) if self.box is not None else None

    def narrowed(self, expression: sp.Expr, more: Mapping[sp.Symbol, sp.Expr]) -> Domain:
        """With the abbreviations of one expression: ours, and more whose meanings may use ours."""
        resolved = {s: substitute(meaning, self.meanings) for s, meaning in more.items()}
        used = symbols_in(expression)
        return Domain(self.box, {s: m for s, m in (self.meanings | resolved).items() if s in used})

    def hidden_size(self, expression: sp.Expr) -> int:
        """The number of nodes behind the abbreviations in an expression."""
        used = symbols_in(expression) & set(self.meanings)
        return sum(1 for s in used for _ in postorder(self.meanings[s]))

    def points(self, *expressions: sp.Expr) -> Iterator[dict[sp.Symbol, sp.Rational]]:
        """Rational sample points for the variables of some expressions, inside the box."""
        symbols = self.variables(expressions)
        for k in range(N_POINTS):
            yield {s: self._sample(s, k * _STRIDES[j % 6] + 3 * j) for j, s in enumerate(symbols)}

    def samples(self, symbol: sp.Symbol) -> list[sp.Rational]:
        """Rational values of one variable."""
        return [self._sample(symbol, k) for k in range(N_POINTS)]

    def balls(self, point: Mapping[sp.Symbol, sp.Rational]) -> dict[sp.Symbol, Ball]:
        """The point in balls, with the values of the abbreviations."""
        return self._explained({s: exact_ball(v) for s, v in point.items()})

    def proves_between(self, expression: sp.Expr, low: sp.Expr, high: sp.Expr) -> bool:
        """Whether low <= expression < high is proved everywhere in the domain."""
        if low == 0 and high == sp.oo and expression.is_nonnegative:
            return True
        pieces = [{s: self.interval(s) for s in self.variables([expression])}]
        if None in pieces[0].values():
            return False
        for _ in range(MAX_BOXES):
            if not pieces:
                return True
            piece = pieces.pop()
            if not self._bounded(expression, low, high, piece):
                pieces.extend(_halves(piece))
        return False

    def _bounded(self, expression: sp.Expr, low: sp.Expr, high: sp.Expr, piece: Mapping[sp.Symbol, Any]) -> bool:
        with precision(MIDPOINT_BITS):
            value = enclosure(expression, self._explained({s: _hull(*ends) for s, ends in piece.items()}))
            return bool(value >= enclosure(low, {}) and (high == sp.oo or value < enclosure(high, {})))

    def _explained(self, point: Point) -> dict[sp.Symbol, Ball]:
        return {**point, **{s: enclosure(meaning, point) for s, meaning in self.meanings.items()}}

    def variables(self, expressions: Sequence[sp.Expr]) -> list[sp.Symbol]:
        """The variables in some expressions, behind the abbreviations."""
        direct = {s for expression in expressions for s in symbols_in(expression)}
        hidden = {t for s in direct & set(self.meanings) for t in symbols_in(self.meanings[s])}
        return sorted((direct | hidden) - set(self.meanings), key=lambda s: s.name)

    def _sample(self, symbol: sp.Symbol, k: int) -> sp.Rational:
        ends = self.interval(symbol)
        if ends is not None:
            return ends[0] + (ends[1] - ends[0]) * sp.Rational(*_FRACTIONS[k % N_POINTS])
        value = sp.Rational(*_VALUES[k % N_POINTS])
        return abs(value) if symbol.is_nonnegative else -abs(value) if symbol.is_nonpositive else value


def _hull(low: sp.Rational, high: sp.Rational) -> Ball:
    return exact_ball(low).union(exact_ball(high))


def _halves(piece: Mapping[sp.Symbol, Any]) -> list[dict[sp.Symbol, Any]]:
    if not piece:
        return [dict(piece)]
    widest = max(piece, key=lambda s: piece[s][1] - piece[s][0])
    low, high = piece[widest]
    middle = (low + high) / 2
    return [{**piece, widest: (low, middle)}, {**piece, widest: (middle, high)}]
