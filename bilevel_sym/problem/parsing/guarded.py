"""SymPy's constructors behind guards: each looks at the price of a value before it pays.

SymPy evaluates while it builds. That is wanted (the result equals what SymPy itself would parse), but it can be
led to compute 3**1000000000 on the way. So every value carries what the next step has to know about it, every
step is charged to a meter, and what a step may produce is bounded before it is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import e, fsum, pi
from types import MappingProxyType
from typing import NamedTuple

import sympy as sp

from bilevel_sym.graph.exact import decimal_rational
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.graph.operations.record import Operation
from bilevel_sym.problem.parsing.estimates import ESTIMATES, Refusal, check_range, power
from bilevel_sym.problem.parsing.limits import (
    MAX_BITS,
    check_askable,
    check_coefficients,
    check_denominators,
    check_exponent,
    check_logarithms,
    check_powers,
    check_rational,
)

__all__ = ["Arithmetic", "Value", "leads_with_minus"]

BUDGET = 600_000  # what SymPy may take for one text, in estimated microseconds
_MAX_SIGNED_HEIGHT = 32
_ASK_EXPONENT = 100  # for every node, when exp meets a factor: SymPy asks whether its exponent is zero
_CANCELLED = 1e-9  # a sum of constants this small beside its terms is zero, or as good as zero

# exp(log x) and tan(atan x) simplify: their values are not plain
_INVERSES = frozenset(name for name, record in FUNCTIONS.items() if record.undoes)
_NOT_FINITE = (type(sp.zoo), type(sp.nan), type(sp.oo), type(-sp.oo), type(sp.I))


class Value(NamedTuple):
    """An expression and what the next step has to know about it.

    >>> Value(sp.Rational(1, 2), 0.5).number
    0.5
    """

    expr: sp.Expr
    number: float | None = None  # an estimate, where there are no variables
    plain: bool = True  # polynomials and functions of them, where SymPy's functions see nothing to simplify
    size: int = 1  # of the tree
    height: int = 1
    roots: int = 0  # irrational powers of constants


_CONSTANTS: Mapping[str, Value] = MappingProxyType(
    {"pi": Value(sp.pi, pi, plain=False), "E": Value(sp.E, e, plain=False)}
)


class Arithmetic:
    """Sums, products, powers and functions of one argument, each refused before it can do harm.

    >>> x = sp.Symbol("x")
    >>> build = Arithmetic([x])
    >>> build.add([build.literal("0.5"), build.variable(x)]).expr
    x + 1/2
    """

    def __init__(self, symbols: Iterable[sp.Symbol]) -> None:
        self._spent = 0.0
        signs = {s: (s.is_extended_nonnegative, s.is_extended_nonpositive) for s in symbols}
        self.signless = frozenset(s for s, sign in signs.items() if sign == (None, None))
        self.signed = len(self.signless) < len(signs)

    def charge(self, microseconds: float) -> None:
        """Put a step on the meter."""
        self._spent += microseconds
        if self._spent > BUDGET:
            raise Refusal("this expression is too expensive to build", "shorten it, or build it with SymPy")

    def variable(self, symbol: sp.Symbol) -> Value:
        """A declared variable."""
        return Value(symbol, plain=symbol.is_zero is not True and symbol.is_integer is not True)

    def literal(self, text: str) -> Value:
        """A decimal number, exactly."""
        small = len(text) < 16 and text.isdigit()
        return self.number(sp.Integer(int(text)) if small else decimal_rational(text))

    def number(self, number: sp.Rational) -> Value:
        """An exact number."""
        return _constant(check_rational(number))

    def constant(self, name: str) -> Value:
        """pi or E."""
        return _CONSTANTS[name]

    def add(self, terms: Sequence[Value]) -> Value:
        """The sum of all terms, in one step."""
        if len(terms) == 1:
            return terms[0]
        exprs = [term.expr for term in terms]
        check_denominators(exprs)
        self.charge(3 * len(terms) + sum(30 * t.size for t in terms if _is_multiple_of_exp(t.expr)))
        expr = sp.Add(*exprs)
        number = _sum_estimate(terms, exact=expr.is_Rational)
        return self.settle(expr, number, terms, plain=all(term.plain for term in terms))

    def negate(self, a: Value) -> Value:
        """-a."""
        return a._replace(expr=-a.expr, number=None if a.number is None else -a.number)

    def multiply(self, a: Value, b: Value) -> Value:
        """a*b, one factor at a time: SymPy's result depends on the grouping, for it multiplies sums out."""
        if a.expr == 0 or b.expr == 0:
            return _constant(sp.Integer(0))
        self._charge_product(a, b)
        number = None if a.number is None or b.number is None else a.number * b.number
        expr = a.expr * b.expr
        check_coefficients(expr)
        height = max(a.height, b.height)
        plain = (a.plain or _scales(a, b)) and (b.plain or _scales(b, a))
        return self.settle(expr, number, (a, b), plain=plain)._replace(height=height)

    def divide(self, a: Value, b: Value) -> Value:
        """a/b, as SymPy does it: times the inverse."""
        if b.expr == 0:
            raise Refusal("division by zero")
        self._check_height(b)
        if b.expr.is_Rational:
            below = _constant(sp.Rational(b.expr.q, b.expr.p))
        else:
            number = None if b.number is None else 1 / b.number
            below = self.settle(b.expr ** sp.Integer(-1), number, (b,), plain=b.plain)
        return below if a.expr == 1 else self.multiply(a, below)

    def power(self, a: Value, b: Value) -> Value:
        """a**b."""
        if a.expr is sp.E:
            return self.call("exp", b)
        number = _power_estimate(a, b)
        self._check_power(a, b)
        expr = a.expr**b.expr
        check_powers(expr)
        plain = a.plain and b.expr.is_Integer
        value = self.settle(expr, number, (a, b), plain=plain)
        root = a.number is not None and value.number is not None and not b.expr.is_Integer
        return value._replace(roots=value.roots + root)

    def call(self, name: str, a: Value) -> Value:
        """A function of one argument, by its name in the grammar."""
        number = None if a.number is None else ESTIMATES[name](a.number)
        function, habit = FUNCTIONS[name].sympy, _habit(FUNCTIONS[name])
        unseen = a.number is None and a.plain and (habit != "keep sums" or a.expr.is_Add)
        check_askable(a.expr)  # SymPy asks for the sign of a: now, or whenever somebody uses the result
        expr = _apply_unseen(function, habit, a.expr) if unseen else self._apply(function, a)
        return self.settle(expr, number, (a,), plain=a.plain and name not in _INVERSES)

    def _apply(self, function: type[sp.Function], a: Value) -> sp.Expr:
        self._check_height(a)
        self.charge(200 * a.size)
        if function is sp.exp and a.expr.has(sp.log):
            self.charge(300 * a.size)  # SymPy gathers the logarithms
            check_logarithms(a.expr)
        expr = function(a.expr)
        check_powers(expr)
        return expr

    def settle(self, expr: sp.Expr, number: float | None, parts: Iterable[Value], *, plain: bool) -> Value:
        """A new value from what it was made of."""
        if expr.is_Rational:
            return _constant(check_rational(expr))
        if isinstance(expr, _NOT_FINITE):
            raise Refusal("this is not a finite real number")
        if number is not None:
            check_range(number)
        elif expr.is_number:
            number = _left_over(expr)
        plain = plain and number is None  # y*pi/y is a bare pi again, which functions simplify
        size = height = roots = 0
        for part in parts:
            size += part.size
            height = max(height, part.height)
            roots += part.roots
        return Value(expr, number, plain, size + 1, height + 1, roots)

    def _check_height(self, a: Value) -> None:
        """Where signs are known, SymPy's questions take exponential time in the height."""
        if self.signed and a.height > _MAX_SIGNED_HEIGHT:
            raise Refusal("this is nested too deeply for variables of known sign")
        if self.signed:
            self.charge(30 * a.size)

    def _charge_product(self, a: Value, b: Value) -> None:
        self.charge(18 * (2 + len(a.expr.args) + len(b.expr.args)) + 2 * (a.roots + b.roots) ** 2)
        for part in (a, b):
            if any(isinstance(factor, sp.exp) for factor in sp.Mul.make_args(part.expr)):
                self.charge(_ASK_EXPONENT * part.size)

    def _check_power(self, a: Value, b: Value) -> None:
        """Refuse what SymPy would compute out of all proportion, before it starts."""
        check_exponent(a.expr, b.expr)
        self._check_height(a)
        if not b.expr.is_Atom:
            self.charge(150 * b.size)  # SymPy factors exponents
        if not b.expr.is_Integer:
            self.charge(100 * a.size)  # and asks for the sign of bases
            check_askable(a.expr)
            check_askable(b.expr)
        for factor in sp.Mul.make_args(a.expr):
            if factor.is_Rational:
                self._check_rational_power(factor, b.expr)
            else:
                base, exponent = factor.as_base_exp()
                if not (exponent.is_Rational and b.expr.is_Rational):
                    check_exponent(base, exponent * b.expr)

    def _check_rational_power(self, base: sp.Rational, exponent: sp.Expr) -> None:
        bits = max(abs(base.p), base.q).bit_length()
        if exponent.is_Rational and base not in (0, 1, -1):
            if (bits - 1) * abs(exponent.p) > MAX_BITS * exponent.q:
                raise Refusal("this power is too large", "numbers have at most 300 digits")
            if not exponent.is_Integer:
                self.charge(300 + 50 * max(bits - 16, 0))  # SymPy looks for prime factors


def _scales(a: Value, b: Value) -> bool:
    """Whether a is a constant like pi before a product of variables: sin(pi*x) is left alone, as sin(x) is."""
    if a.number is None or b.number is not None or a.expr.has(sp.log):
        return False
    return not any(factor.is_Add for factor in sp.Mul.make_args(b.expr))


def _is_multiple_of_exp(expr: sp.Expr) -> bool:
    return bool(expr.is_Mul and len(expr.args) == 2 and expr.args[0].is_Rational and isinstance(expr.args[1], sp.exp))


def _constant(number: sp.Rational) -> Value:
    return Value(number, number.p / number.q)


def _left_over(expr: sp.Expr) -> float:
    """The estimate of a constant from which the variables have dropped out, as in x - x + pi."""
    for constant in _CONSTANTS.values():
        if expr is constant.expr and constant.number is not None:
            return constant.number
    raise Refusal("the variables cancel here and leave a constant", "write the constant alone")


def _sum_estimate(terms: Sequence[Value], *, exact: bool) -> float | None:
    numbers = [term.number for term in terms if term.number is not None]
    if len(numbers) < len(terms):
        return None
    total = fsum(numbers)
    if not exact and abs(total) <= _CANCELLED * fsum(map(abs, numbers)):
        raise Refusal("these constants cancel", "write their sum as one number")
    return total


def _power_estimate(a: Value, b: Value) -> float | None:
    if a.number is None:
        return None
    if b.number is not None:
        return power(a.number, b.number, integer=b.expr.is_Integer)
    if a.number <= 0:
        raise Refusal("the base of a variable power must be positive", "only real numbers are accepted")
    return None


def _habit(record: Operation) -> str:
    """What SymPy does to an argument in which it sees nothing to simplify."""
    return "keep sums" if record.name == "log" else record.parity or "keep"


def _apply_unseen(function: type[sp.Function], habit: str, argument: sp.Expr) -> sp.Expr:
    """What SymPy makes of a function of a plain argument, without its (slow) search for more."""
    if habit in ("odd", "even") and leads_with_minus(argument):
        flipped = function(-argument, evaluate=False)
        return flipped if habit == "even" else -flipped
    return function(argument, evaluate=False)


def leads_with_minus(expr: sp.Expr) -> bool:
    """SymPy's ``could_extract_minus_sign``, which asks slow questions about numbers.

    >>> x, y = sp.symbols("x y")
    >>> leads_with_minus(-x - y + 1), leads_with_minus(x - 1)
    (True, False)
    """
    if not expr.is_Add:
        return bool(expr.as_coeff_Mul()[0].p < 0)
    negative = sum(term.as_coeff_Mul()[0].p < 0 for term in expr.args)
    if 2 * negative != len(expr.args):
        return bool(2 * negative > len(expr.args))
    return bool(expr.could_extract_minus_sign())
