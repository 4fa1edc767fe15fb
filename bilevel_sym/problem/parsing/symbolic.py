"""SymPy's expression of a text that was read before: built when a user asks for formulas.

The result is what SymPy itself would make of the text. Where nothing can be simplified its slow search for more is
skipped. What the text may ask of SymPy was bounded when it was read (``guarded``, ``comparisons``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import sympy as sp

# SymPy imports these when it first needs them. Here they come early, so that reading text imports nothing.
import sympy.assumptions.wrapper
import sympy.sets.setexpr
import sympy.tensor.tensor
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.draft import EVEN, ODD
from bilevel_sym.graph.exact import decimal_rational
from bilevel_sym.graph.expressions import SUPPORTED_FUNCTIONS, postorder
from bilevel_sym.graph.operations import FUNCTIONS

_RELATIONS: Mapping[str, type[Relational]] = MappingProxyType(
    {"<": sp.StrictLessThan, "<=": sp.LessThan, ">": sp.StrictGreaterThan, ">=": sp.GreaterThan}
)
_CLASSES = MappingProxyType({name: function for function, name in SUPPORTED_FUNCTIONS.items()})
# exp(log x) and tan(atan x) simplify: their values are not plain
_INVERSES = frozenset(name for name, record in FUNCTIONS.items() if record.undoes)
_ACCEPTED = (
    sp.Symbol, sp.Rational, type(sp.pi), type(sp.E), sp.Add, sp.Mul, sp.Pow, *SUPPORTED_FUNCTIONS,
    *_RELATIONS.values(), sp.Or, type(sp.true), ExprCondPair,
)  # fmt: skip
_NOT_FINITE = (type(sp.zoo), type(sp.nan), type(sp.oo), type(-sp.oo), type(sp.I))
# What SymPy itself may raise on values that it cannot order or combine.
_SYMPY_ERRORS = (
    ArithmeticError, AttributeError, NotImplementedError, RecursionError, TypeError, ValueError,
)  # fmt: skip


class Part(NamedTuple):
    """An expression, and whether it is plain: polynomials, and functions of them that see nothing to do."""

    expr: sp.Expr
    plain: bool = True


class SympyBuilder:
    """What the grammar builds, in SymPy.

    ``lenient``: what SymPy cannot build, or turns into a function that is not accepted, stays as it was written;
    otherwise it is refused.

    >>> x = sp.Symbol("x")
    >>> build = SympyBuilder([x])
    >>> build.call("sin", build.negate(build.variable(x))).expr
    -sin(x)
    """

    def __init__(self, symbols: Sequence[sp.Symbol], *, lenient: bool = False) -> None:
        self._lenient = lenient
        signs = {s: (s.is_extended_nonnegative, s.is_extended_nonpositive) for s in symbols}
        self._signless = frozenset(s for s, sign in signs.items() if sign == (None, None))
        self.half, self.true = Part(sp.Rational(1, 2)), Part(sp.true)

    def variable(self, symbol: sp.Symbol) -> Part:
        """A declared variable."""
        return Part(symbol, symbol.is_zero is not True and symbol.is_integer is not True)

    def literal(self, text: str) -> Part:
        """A decimal number, exactly."""
        return Part(decimal_rational(text))

    def number(self, number: sp.Rational) -> Part:
        """An exact number."""
        return Part(number)

    def constant(self, name: str) -> Part:
        """pi or E."""
        return Part(sp.pi if name == "pi" else sp.E, plain=False)

    def add(self, terms: Sequence[Part]) -> Part:
        """The sum of all terms, in one step."""
        return self._part(sp.Add(*(term.expr for term in terms)), plain=all(term.plain for term in terms))

    def negate(self, a: Part) -> Part:
        """-a."""
        return Part(-a.expr, a.plain)

    def multiply(self, a: Part, b: Part) -> Part:
        """a*b, one factor at a time: SymPy's result depends on the grouping, for it multiplies sums out."""
        if a.expr == 0 or b.expr == 0:
            return Part(sp.S.Zero)
        plain = (a.plain or _scales(a, b)) and (b.plain or _scales(b, a))
        return self._part(a.expr * b.expr, plain=plain)

    def divide(self, a: Part, b: Part) -> Part:
        """a/b, as SymPy does it: times the inverse."""
        below = self._made(sp.Pow, b.expr, sp.Integer(-1), plain=b.plain)
        return below if a.expr == 1 else self.multiply(a, below)

    def power(self, a: Part, b: Part) -> Part:
        """a**b."""
        if a.expr is sp.E:
            return self.call("exp", b)
        return self._made(sp.Pow, a.expr, b.expr, plain=a.plain and bool(b.expr.is_Integer))

    def call(self, name: str, a: Part) -> Part:
        """A function of one argument, by its name in the grammar."""
        function, plain = _CLASSES[name], a.plain and name not in _INVERSES
        if a.expr.is_number or not a.plain or (name == "log" and not a.expr.is_Add):
            return self._made(function, a.expr, plain=plain)
        return self._part(_apply_unseen(function, name, a.expr), plain=plain)

    def absolute(self, a: Part) -> Part:
        """abs(a)."""
        if a.expr.is_Add and self._is_affine(a.expr):
            return Part(_apply_unseen(sp.Abs, "abs", a.expr), plain=False)
        return self._made(sp.Abs, a.expr, plain=False)

    def extremum(self, name: str, values: Sequence[Part]) -> Part:
        """min or max of two or more values."""
        exprs = [value.expr for value in values]
        if self._is_undecided(exprs):
            return self._part(_CLASSES[name](*exprs, evaluate=False), plain=False)
        return self._made(_CLASSES[name], *exprs, plain=False)

    def compare(self, sign: str, a: Part, b: Part) -> Part:
        """The condition a < b, or its like."""
        relation, exprs = _RELATIONS[sign], (a.expr, b.expr)
        if self._is_undecided(exprs):
            return Part(relation(*exprs, evaluate=False), plain=False)
        return self._made(relation, *exprs, plain=False)

    def piecewise(self, pieces: Sequence[tuple[Part, Part]]) -> Part:
        """The value of the first piece whose condition holds."""
        return self._made(sp.Piecewise, *((value.expr, condition.expr) for value, condition in pieces), plain=False)

    def finish(self, part: Part) -> sp.Expr:
        """The expression, once nothing in it is outside the grammar."""
        for node in () if self._lenient else postorder(part.expr):
            if not isinstance(node, _ACCEPTED):
                raise _foreign(node)
        return part.expr

    def _made(self, build: Callable[..., sp.Expr], *arguments: object, plain: bool) -> Part:
        """What SymPy makes of it; where it fails, or leaves the grammar, what was written."""
        try:
            expr = build(*arguments)
        except _SYMPY_ERRORS as error:
            if not self._lenient:
                raise InvalidProblem(f"SymPy cannot build this: {error!s:.200}") from error
            expr = None
        if self._lenient and (expr is None or not all(isinstance(node, _ACCEPTED) for node in postorder(expr))):
            return Part(build(*arguments, evaluate=False), plain=False)
        return self._part(expr, plain=plain)

    def _part(self, expr: sp.Expr, *, plain: bool) -> Part:
        if isinstance(expr, _NOT_FINITE) and not self._lenient:
            raise InvalidProblem("this is not a finite real number")
        return Part(expr, (plain and not expr.is_number) or bool(expr.is_Rational))

    def _is_affine(self, expr: sp.Expr) -> bool:
        """Whether this is a sum of multiples of variables of unknown sign, and perhaps a number."""
        rests = (term.as_coeff_Mul()[1] for term in sp.Add.make_args(expr))
        return all(rest in self._signless or rest == 1 for rest in rests)

    def _is_undecided(self, exprs: Sequence[sp.Expr]) -> bool:
        """Whether SymPy can order no two of these: all are affine, and no two differ by a number."""
        if not all(self._is_affine(expr) for expr in exprs):
            return False
        terms = [sp.Add.make_args(expr) for expr in exprs]
        return len({frozenset(t for t in group if not t.is_Rational) for group in terms}) == len(exprs)


def _scales(a: Part, b: Part) -> bool:
    """Whether a is a constant like pi before a product of variables: sin(pi*x) is left alone, as sin(x) is."""
    if not a.expr.is_number or b.expr.is_number or a.expr.has(sp.log):
        return False
    return not any(factor.is_Add for factor in sp.Mul.make_args(b.expr))


def _apply_unseen(function: Callable[..., sp.Expr], name: str, argument: sp.Expr) -> sp.Expr:
    """What SymPy makes of a function of a plain argument, without its (slow) search for more."""
    if name in ODD | EVEN and _leads_with_minus(argument):
        flipped = function(-argument, evaluate=False)
        return flipped if name in EVEN else -flipped
    return function(argument, evaluate=False)


def _leads_with_minus(expr: sp.Expr) -> bool:
    """SymPy's ``could_extract_minus_sign``, which asks slow questions about numbers."""
    if not expr.is_Add:
        return bool(expr.as_coeff_Mul()[0].p < 0)
    negative = sum(term.as_coeff_Mul()[0].p < 0 for term in expr.args)
    if 2 * negative != len(expr.args):
        return bool(2 * negative > len(expr.args))
    return bool(expr.could_extract_minus_sign())


def _foreign(node: sp.Basic) -> InvalidProblem:
    if node is sp.I:
        return InvalidProblem("this is complex", hint="only real numbers are accepted")
    if not node.args:
        return InvalidProblem("this is not a finite real number")
    return InvalidProblem(
        f"SymPy simplifies this to {node.func.__name__}, which is not accepted",
        hint="if a variable is real, declare it as a real symbol",
    )
