"""SymPy's constructors behind guards: each looks at the price of a value before it pays.

SymPy evaluates while it builds. That is wanted (the result equals what SymPy itself would parse), but it can be
led to compute 3**1000000000 on the way. So every value carries what the next step has to know about it, every
step is charged to a meter, and what a step may produce is bounded before it is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum, lcm, prod
from types import MappingProxyType
from typing import NamedTuple

import sympy as sp

from bilevel_sym.exact import decimal_rational
from bilevel_sym.expressions import postorder
from bilevel_sym.functions import sigmoid, softplus
from bilevel_sym.parsing.estimates import ESTIMATES, Refusal, check_range, power

__all__ = ["Arithmetic", "Value", "check_askable", "check_exponent", "check_rational", "leads_with_minus"]

MAX_EXPONENT = 1000
MAX_BITS = 996  # numerators and denominators below 10**300
BUDGET = 600_000  # what SymPy may take for one text, in estimated microseconds
_MAX_SIGNED_HEIGHT = 32
_ASK_EXPONENT = 100  # for every node, when exp meets a factor: SymPy asks whether its exponent is zero
_CANCELLED = 1e-9  # a sum of constants this small beside its terms is zero, or as good as zero
_LOGARITHMS = 10_000  # bits that exp may make of the logarithms in its argument

# SymPy's class, and what it does to an argument in which it sees nothing to simplify.
_UNARY: Mapping[str, tuple[type[sp.Function], str]] = MappingProxyType(
    {
        "exp": (sp.exp, "keep"),
        "log": (sp.log, "keep sums"),
        "sin": (sp.sin, "odd"),
        "cos": (sp.cos, "even"),
        "tan": (sp.tan, "odd"),
        "sinh": (sp.sinh, "odd"),
        "cosh": (sp.cosh, "even"),
        "tanh": (sp.tanh, "odd"),
        "atan": (sp.atan, "odd"),
        "softplus": (softplus, "keep"),
        "sigmoid": (sigmoid, "keep"),
    }
)
_INVERSES = ("log", "atan")  # exp(log x) and tan(atan x) simplify: their values are not plain
_CONSTANTS: Mapping[str, sp.Expr] = MappingProxyType({"pi": sp.pi, "E": sp.E})
_HYPERBOLIC = (sp.sinh, sp.cosh, sp.tanh)
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
        return _constant(sp.Integer(int(text)) if small else check_rational(decimal_rational(text)))

    def constant(self, name: str) -> Value:
        """pi or E."""
        expr = _CONSTANTS[name]
        return Value(expr, float(expr), plain=False)

    def add(self, terms: Sequence[Value]) -> Value:
        """The sum of all terms, in one step."""
        if len(terms) == 1:
            return terms[0]
        exprs = [term.expr for term in terms]
        _check_denominators(exprs)
        self.charge(3 * len(terms) + sum(30 * t.size for t in terms if _is_multiple_of_exp(t.expr)))
        expr = sp.Add(*exprs)
        numbers = [term.number for term in terms if term.number is not None]
        number = fsum(numbers) if len(numbers) == len(terms) else None
        if number is not None and not expr.is_Rational:
            if abs(number) <= _CANCELLED * fsum(map(abs, numbers)):
                raise Refusal("these constants cancel", "write their sum as one number")
        plain = all(term.plain for term in terms)
        return self.settle(expr, number, terms, plain=plain)

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
        _check_coefficients(expr)
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
        _check_powers(expr)
        plain = a.plain and b.expr.is_Integer
        value = self.settle(expr, number, (a, b), plain=plain)
        root = a.number is not None and value.number is not None and not b.expr.is_Integer
        return value._replace(roots=value.roots + root)

    def call(self, name: str, a: Value) -> Value:
        """A function of one argument, by its name in the grammar."""
        number = None if a.number is None else ESTIMATES[name](a.number)
        function, habit = _UNARY[name]
        if name == "exp":
            check_askable(a.expr)  # each product with exp(a) will ask whether a is zero
        if a.number is None and a.plain and (habit != "keep sums" or a.expr.is_Add):
            expr = _apply_unseen(function, habit, a.expr)
        else:
            self._check_height(a)
            self.charge(200 * a.size)
            check_askable(a.expr)
            if name == "exp" and a.expr.has(sp.log):
                self.charge(300 * a.size)  # SymPy gathers the logarithms
                _check_logarithms(a.expr)
            expr = function(a.expr)
            _check_powers(expr)
        return self.settle(expr, number, (a,), plain=a.plain and name not in _INVERSES)

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


def check_exponent(base: sp.Expr, exponent: sp.Expr) -> None:
    """Refuse exponents beyond 1000, also as factors: (2**(10**9*x))**(1/x) would be 2**(10**9).

    >>> check_exponent(sp.Symbol("x"), sp.Rational(2, 3))
    """
    for term in sp.Add.make_args(exponent):
        coefficient, rest = term.as_coeff_Mul()
        if base is sp.E and not any(isinstance(f, sp.log) for f in sp.Mul.make_args(rest)):
            continue  # exp(-5000*x) is harmless; exp(5000*log(x)) is x**5000
        if max(abs(coefficient.p), coefficient.q) > MAX_EXPONENT:
            raise Refusal("this exponent is too large", f"numerators and denominators go up to {MAX_EXPONENT}")


def check_rational(number: sp.Rational) -> sp.Rational:
    """``number`` itself, unless it has more than 300 digits above or below.

    >>> check_rational(sp.Rational(1, 3))
    1/3
    """
    if max(number.p.bit_length(), number.q.bit_length()) > MAX_BITS:
        raise Refusal("this number is too large or too long", "numbers have at most 300 digits")
    return number


def _scales(a: Value, b: Value) -> bool:
    """Whether a is a constant like pi before a product of variables: sin(pi*x) is left alone, as sin(x) is."""
    return a.number is not None and b.number is None and not any(f.is_Add for f in sp.Mul.make_args(b.expr))


def _is_multiple_of_exp(expr: sp.Expr) -> bool:
    return bool(expr.is_Mul and len(expr.args) == 2 and expr.args[0].is_Rational and isinstance(expr.args[1], sp.exp))


def _constant(number: sp.Rational) -> Value:
    return Value(number, number.p / number.q)


def _left_over(expr: sp.Expr) -> float:
    """The estimate of a constant from which the variables have dropped out, as in x - x + pi."""
    if expr in _CONSTANTS.values():
        return float(expr)
    raise Refusal("the variables cancel here and leave a constant", "write the constant alone")


def _power_estimate(a: Value, b: Value) -> float | None:
    if a.number is None:
        return None
    if b.number is not None:
        return power(a.number, b.number, integer=b.expr.is_Integer)
    if a.number <= 0:
        raise Refusal("the base of a variable power must be positive", "only real numbers are accepted")
    return None


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


def check_askable(expr: sp.Expr) -> None:
    """Refuse what SymPy may expand when it asks for a sign: hyperbolic functions of what may be complex.

    >>> check_askable(sp.tanh(sp.Symbol("x")))
    """
    for node in postorder(expr):  # children first, so each question below is harmless
        if isinstance(node, _HYPERBOLIC) and not _is_short(node.args[0]) and not node.args[0].is_real:
            raise Refusal("this needs the sign of a hyperbolic function of a long argument", "declare real symbols")


def _is_short(expr: sp.Expr) -> bool:
    """Whether this can be multiplied out at once, should SymPy want to."""
    nodes = list(postorder(expr))
    exponents = [node.exp for node in nodes if node.is_Pow and node.exp.is_Integer]
    few = len(nodes) <= 30 and not any(isinstance(node, _HYPERBOLIC) for node in nodes)
    return few and abs(prod(exponents)) <= 6


def _check_powers(expr: sp.Expr) -> None:
    for factor in sp.Mul.make_args(expr):
        base, exponent = factor.as_base_exp()
        if exponent != 1:
            check_exponent(base, exponent)
    _check_coefficients(expr)


def _check_coefficients(expr: sp.Expr) -> None:
    """Multiplication is where coefficients grow; a number that meets a sum multiplies each term."""
    for term in sp.Add.make_args(expr):
        check_rational(term.as_coeff_Mul()[0])


def _check_denominators(exprs: Iterable[sp.Expr]) -> None:
    """Refuse sums like x/7919 + x/7927 + ..., whose common denominator has thousands of digits."""
    pairs = [term.as_coeff_Mul() for expr in exprs for term in sp.Add.make_args(expr)]
    if sum(coefficient.q.bit_length() for coefficient, _ in pairs) <= MAX_BITS:
        return
    common: dict[sp.Expr, int] = {}
    for coefficient, rest in pairs:
        denominator = lcm(common.get(rest, 1), coefficient.q)
        if denominator.bit_length() > MAX_BITS:
            raise Refusal("the common denominator is too long", "numbers have at most 300 digits")
        common[rest] = denominator


def _check_logarithms(argument: sp.Expr) -> None:
    """SymPy turns exp(1000*log(2)) into 2**1000, and gathers logarithms deep inside the argument."""
    bits = 0
    for term in postorder(argument):
        if not isinstance(term, sp.Expr):
            continue  # the pairs and conditions of a Piecewise
        coefficient, rest = term.as_coeff_Mul()
        for factor in sp.Mul.make_args(rest):
            if isinstance(factor, sp.log):
                inner = factor.args[0].as_coeff_Mul()[0]
                bits += abs(coefficient) * max(abs(inner.p), inner.q).bit_length()
    if bits > _LOGARITHMS:
        raise Refusal("exp would raise a logarithm's argument to a huge power")
