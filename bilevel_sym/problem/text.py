"""SymPy -> text: the inverse of the parser, in the same grammar.

SymPy multiplies a number into a sum when the two meet alone, and the parser multiplies from left to right. So a
product is printed such that its number never meets a sum alone: ``2*(x + y)*z`` is written ``2*z*(x + y)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import sympy as sp
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.expressions import SUPPORTED_FUNCTIONS, check_structure, postorder
from bilevel_sym.problem.parsing import check_name

_SIGNS: Mapping[type[sp.Basic], str] = MappingProxyType(
    {sp.StrictLessThan: "<", sp.LessThan: "<=", sp.StrictGreaterThan: ">", sp.GreaterThan: ">="}
)
_LARGEST = 10**299  # the parser takes no longer numbers

# How tightly a text binds; an operand that binds less tightly than it must is put in parentheses.
_SUM, _PRODUCT, _POWER, _ATOM = range(4)
_Printed = tuple[str, int]


def to_text(expression: sp.Expr) -> str:
    """The expression in the grammar of the text door: ``parse_expression(to_text(e), symbols) == e``.

    That holds of expressions as SymPy evaluates them; an unevaluated ``2*(x + y)`` comes back multiplied out.

    >>> x, y = sp.symbols("x y")
    >>> to_text(sp.Rational(2, 3)*sp.sin(x)*(x + y) - abs(y)/2)
    '2*sin(x)*(x + y)/3 - abs(y)/2'
    >>> to_text(sp.Piecewise((x, x < 1), (sp.sqrt(y), True)))
    'Piecewise((x, x < 1), (sqrt(y), True))'
    """
    if not isinstance(expression, sp.Expr):
        raise InvalidProblem(f"only an expression can be written as text, not a {type(expression).__name__}")
    exact = check_structure(expression, "the expression")
    for node in postorder(exact):
        if isinstance(node, sp.Rational) and max(abs(node.p), node.q) > _LARGEST:
            raise InvalidProblem("the text could not be read back: a number has more than 300 digits")
    try:
        return _print(exact)[0]
    except RecursionError:
        raise InvalidProblem(
            "the expression is nested too deeply to be written as text", hint="keep it as a SymPy expression"
        ) from None


def _print(expr: sp.Basic) -> _Printed:
    if isinstance(expr, sp.Symbol):
        return _symbol(expr), _ATOM
    if isinstance(expr, sp.Rational):
        return _number(expr)
    for kind, printer in _PRINTERS.items():
        if isinstance(expr, kind):
            return printer(expr)
    arguments = ", ".join(_print(argument)[0] for argument in expr.args)
    return f"{SUPPORTED_FUNCTIONS[type(expr)]}({arguments})", _ATOM


def _symbol(symbol: sp.Symbol) -> str:
    try:
        return check_name(symbol.name)
    except InvalidProblem as error:
        raise InvalidProblem(
            f"the symbol {symbol.name!r:.70} cannot be written as text", hint=f"rename it: {error.hint}"
        ) from None


def _number(number: sp.Rational) -> _Printed:
    if number < 0:
        return str(number), _SUM  # so that it is never the base of a power without parentheses
    return str(number), _ATOM if number.is_Integer else _PRODUCT


def _wrap(expr: sp.Basic, least: int) -> str:
    text, tightness = _print(expr)
    return text if tightness >= least else f"({text})"


def _sum(expr: sp.Add) -> _Printed:
    text = ""
    for term in expr.as_ordered_terms():
        negative = term.as_coeff_Mul()[0] < 0
        if not text:
            text = _negated(-term) if negative else _wrap(term, _PRODUCT)
        elif negative:
            text += f" - {_wrap(-term, _PRODUCT)}"
        else:
            text += f" + {_wrap(term, _PRODUCT)}"
    return text, _SUM


def _negated(expr: sp.Expr) -> str:
    """-a*b is (-a)*b to the parser: where a is a sum, the sign would be multiplied into it."""
    text = _wrap(expr, _PRODUCT)
    return f"-({text})" if text.startswith("(") and not expr.is_Pow else f"-{text}"


def _product(expr: sp.Mul) -> _Printed:
    coefficient, rest = expr.as_coeff_Mul()
    if coefficient < 0:
        return _negated(-expr), _SUM
    above, below = [], []
    for factor in sp.Mul.make_args(rest):
        if factor.is_Pow and factor.exp.is_Rational and factor.exp < 0:
            below.append(1 / factor)
        else:
            above.append(factor)
    return _fraction(coefficient, above, below), _PRODUCT


def _fraction(coefficient: sp.Rational, above: list[sp.Expr], below: list[sp.Expr]) -> str:
    """Sums stand behind the other factors; the number comes first, unless there are only sums: then last."""
    factors = sorted(above, key=lambda factor: bool(factor.is_Add))
    shown = [_wrap(factor, _POWER) for factor in factors]
    divisors = "".join(f"/{_wrap(factor, _POWER)}" for factor in below)
    if factors and factors[0].is_Add:
        divisors += f"*{coefficient.p}" if coefficient.p != 1 else ""
    elif coefficient.p != 1 or not shown:
        shown.insert(0, str(coefficient.p))
    return "*".join(shown) + divisors + (f"/{coefficient.q}" if coefficient.q != 1 else "")


def _power(expr: sp.Pow) -> _Printed:
    base, exponent = expr.args
    if exponent == sp.Rational(1, 2):
        return f"sqrt({_print(base)[0]})", _ATOM
    if exponent.is_Rational and exponent < 0:
        return f"1/{_wrap(1 / expr, _POWER)}", _PRODUCT
    return f"{_wrap(base, _ATOM)}**{_wrap(exponent, _ATOM)}", _POWER


def _piecewise(expr: sp.Piecewise) -> _Printed:
    pieces = [piece for pair in expr.args for piece in _pieces(pair)]
    return f"Piecewise({', '.join(pieces)})", _ATOM


def _pieces(pair: ExprCondPair) -> list[str]:
    """One piece, or one for each alternative: SymPy joins neighbours of equal value into one with an Or."""
    value = _print(pair.expr)[0]
    alternatives = pair.cond.args if isinstance(pair.cond, sp.Or) else (pair.cond,)
    return [f"({value}, {_condition(condition)})" for condition in alternatives]


def _condition(condition: sp.Basic) -> str:
    if condition == sp.true:
        return "True"
    if not isinstance(condition, Relational) or type(condition) not in _SIGNS or condition.has(sp.Piecewise):
        raise InvalidProblem(
            f"the condition {condition!s:.60} cannot be written as text",
            hint="compare with < <= > >= only, and nest one Piecewise in another for And and Or",
        )
    left, right = (_print(side)[0] for side in condition.args)
    return f"{left} {_SIGNS[type(condition)]} {right}"


_PRINTERS: Mapping[type[sp.Basic], Callable[..., _Printed]] = MappingProxyType(
    {
        sp.Add: _sum,
        sp.Mul: _product,
        sp.Pow: _power,
        sp.Piecewise: _piecewise,
        type(sp.pi): lambda _: ("pi", _ATOM),
        type(sp.E): lambda _: ("E", _ATOM),
    }
)
