"""abs, min, max, conditions and cases: where SymPy compares expressions, which is where it can be slow.

SymPy asks for the sign of every difference. It cannot know the sign of an affine form in free variables, so those
are built without asking. For everything else the price is charged by size, and what is known to take exponential
time is refused: tall continued fractions, sums of many roots, cases inside a condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from types import MappingProxyType

import sympy as sp

# SymPy imports these when it first needs them. Here they come early, so that reading text imports nothing.
import sympy.assumptions.wrapper
import sympy.sets.setexpr
import sympy.tensor.tensor
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair

from bilevel_sym.graph.expressions import SUPPORTED_FUNCTIONS, postorder
from bilevel_sym.problem.parsing.estimates import Refusal
from bilevel_sym.problem.parsing.guarded import Arithmetic, Value, leads_with_minus
from bilevel_sym.problem.parsing.limits import check_askable, check_exponent, check_rational

__all__ = ["Builder"]

_MAX_HEIGHT = 24
_MAX_ROOTS = 4
_AS_GOOD_AS_EQUAL = 1e-9

_RELATIONS: Mapping[str, type[Relational]] = MappingProxyType(
    {"<": sp.StrictLessThan, "<=": sp.LessThan, ">": sp.StrictGreaterThan, ">=": sp.GreaterThan}
)
_EXTREMA: Mapping[str, type[sp.Expr]] = MappingProxyType({"min": sp.Min, "max": sp.Max})
_ACCEPTED = (
    sp.Symbol, sp.Rational, type(sp.pi), type(sp.E), sp.Add, sp.Mul, sp.Pow, *SUPPORTED_FUNCTIONS,
    *_RELATIONS.values(), sp.Or, type(sp.true), ExprCondPair,
)  # fmt: skip


class Builder(Arithmetic):
    """Everything that the grammar can build, over a given set of symbols.

    >>> x = sp.Symbol("x")
    >>> build = Builder([x])
    >>> build.absolute(build.variable(x)).expr
    Abs(x)
    """

    def absolute(self, a: Value) -> Value:
        """abs(a)."""
        if a.expr.is_Add and self._is_affine(a.expr):
            expr = sp.Abs(-a.expr if leads_with_minus(a.expr) else a.expr, evaluate=False)
        else:
            self._charge_comparison(a)
            expr = sp.Abs(a.expr)
        return self.settle(expr, None if a.number is None else abs(a.number), (a,), plain=False)

    def extremum(self, name: str, values: Sequence[Value]) -> Value:
        """min or max of two or more values."""
        function = _EXTREMA[name]
        exprs = [value.expr for value in values]
        if self._is_undecided(exprs):
            expr = function(*exprs, evaluate=False)
        else:
            self._charge_extremum(function, values)
            expr = function(*exprs)
        return self.settle(expr, _number_of(expr, values), values, plain=False)

    def compare(self, sign: str, a: Value, b: Value) -> Value:
        """The condition a < b, or its like."""
        relation = _RELATIONS[sign]
        if self._is_undecided((a.expr, b.expr)):
            return _condition(relation(a.expr, b.expr, evaluate=False), a, b)
        self._charge_comparison(a, b)
        if a.expr.has(sp.Piecewise) or b.expr.has(sp.Piecewise):
            raise Refusal("a condition must not contain a Piecewise", "write out its cases")
        return _condition(relation(a.expr, b.expr), a, b)

    def piecewise(self, pieces: Sequence[tuple[Value, Value]]) -> Value:
        """The value of the first piece whose condition holds."""
        self.charge(200 * len(pieces))
        expr = sp.Piecewise(*((value.expr, condition.expr) for value, condition in pieces))
        values = [value for value, _ in pieces]
        parts = [part for piece in pieces for part in piece]
        return self.settle(expr, _number_of(expr, values), parts, plain=False)

    def finish(self, value: Value) -> sp.Expr:
        """The expression, once nothing in it is outside the grammar or its limits."""
        for node in postorder(value.expr):
            if not isinstance(node, _ACCEPTED):
                raise _foreign(node)
            if node.is_Rational:
                check_rational(node)
            elif isinstance(node, (sp.Pow, sp.exp)):
                check_exponent(*node.as_base_exp())
                self._check_real(*node.as_base_exp())
        return value.expr

    def _check_real(self, base: sp.Expr, exponent: sp.Expr) -> None:
        """SymPy may split a root such that a negative constant is left under it."""
        if base.is_number and base is not sp.E and not exponent.is_Integer:
            self.charge(500)
            if base.is_extended_negative:
                raise Refusal("this is complex", "only real numbers are accepted")

    def _is_affine(self, expr: sp.Expr) -> bool:
        """Whether this is a sum of multiples of variables of unknown sign, and perhaps a number."""
        rests = (term.as_coeff_Mul()[1] for term in sp.Add.make_args(expr))
        return all(rest in self.signless or rest == 1 for rest in rests)

    def _is_undecided(self, exprs: Sequence[sp.Expr]) -> bool:
        """Whether SymPy can order no two of these: all are affine, and no two differ by a number."""
        if not all(self._is_affine(expr) for expr in exprs):
            return False
        terms = [sp.Add.make_args(expr) for expr in exprs]
        self.charge(200 + 40 * (len(exprs) - 1) * sum(len(group) for group in terms))
        without_numbers = {frozenset(t for t in group if not t.is_Rational) for group in terms}
        return len(without_numbers) == len(exprs)

    def _charge_extremum(self, function: type[sp.Expr], values: Sequence[Value]) -> None:
        """SymPy flattens min(min(a, b), c) and then compares all pairs."""
        count = sum(len(v.expr.args) if isinstance(v.expr, function) else 1 for v in values)
        for _ in range(count - 1):
            self._charge_comparison(*values)

    def _charge_comparison(self, *values: Value) -> None:
        if max(value.height for value in values) > _MAX_HEIGHT:
            raise Refusal("what is compared is nested too deeply", "abs, min, max and conditions want less")
        if sum(value.roots for value in values) > _MAX_ROOTS:
            raise Refusal("what is compared holds too many roots of constants", "write decimals")
        size = sum(value.size for value in values)
        self.charge(400 * size + 0.4 * size**2)
        if self.signed:  # then SymPy looks for the roots of polynomials
            self.charge(800 * sum(_degree(value.expr) ** 2 for value in values))
        for value in values:
            check_askable(value.expr)
        _check_close([value for value in values if value.number is not None])


def _condition(expr: sp.Basic, a: Value, b: Value) -> Value:
    return Value(expr, None, False, a.size + b.size + 1, max(a.height, b.height) + 1, a.roots + b.roots)


def _check_close(constants: Sequence[Value]) -> None:
    """Deciding whether two different formulas give the same number can take SymPy forever."""
    for a, b in combinations(constants, 2):
        assert a.number is not None
        assert b.number is not None
        if a.expr == b.expr or (a.expr.is_Rational and b.expr.is_Rational):
            continue
        if abs(a.number - b.number) <= _AS_GOOD_AS_EQUAL * (abs(a.number) + abs(b.number)):
            raise Refusal("these constants are too close to be compared", "write them as numbers")


def _number_of(expr: sp.Expr, values: Sequence[Value]) -> float | None:
    """The estimate of a choice among values, where one of them was chosen."""
    return next((value.number for value in values if value.expr == expr), None)


def _degree(expr: sp.Expr) -> int:
    exponents = (node.exp for node in sp.preorder_traversal(expr) if node.is_Pow)
    return max((abs(e.p) for e in exponents if e.is_Rational), default=1)


def _foreign(node: sp.Basic) -> Refusal:
    if node is sp.I:
        return Refusal("this is complex", "only real numbers are accepted")
    if not node.args:
        return Refusal("this is not a finite real number")
    return Refusal(
        f"SymPy simplifies this to {node.func.__name__}, which is not accepted",
        "if a variable is real, declare it as a real symbol",
    )
