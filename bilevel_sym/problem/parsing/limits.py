"""What SymPy must never be asked to compute: the bounds that a step has to meet before it is taken."""

from __future__ import annotations

from collections.abc import Iterable
from math import lcm, prod

import sympy as sp

from bilevel_sym.graph.expressions import postorder
from bilevel_sym.problem.parsing.estimates import Refusal

__all__ = [
    "MAX_BITS",
    "check_askable",
    "check_coefficients",
    "check_denominators",
    "check_exponent",
    "check_logarithms",
    "check_powers",
    "check_rational",
]

MAX_EXPONENT = 1000
MAX_BITS = 996  # numerators and denominators below 10**300
_MAX_LOGARITHMS = 10_000  # bits that exp may make of the logarithms in its argument
_MAX_TERMS = 1000  # to which an argument may grow when SymPy multiplies it out
_HYPERBOLIC = (sp.sinh, sp.cosh, sp.tanh)


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


def check_askable(expr: sp.Expr) -> None:
    """Refuse what SymPy may expand when it asks for a sign: hyperbolic functions of what may be complex.

    For those it splits the argument into real and imaginary part, and multiplies it out on the way.

    >>> check_askable(sp.tanh(sp.Symbol("x")))
    """
    terms: dict[int, float] = {}
    for node in postorder(expr):  # children first, so that each question below is harmless
        terms[id(node)] = min(_multiplied_out(node, [terms[id(child)] for child in node.args]), 1e9)
        if isinstance(node, _HYPERBOLIC) and terms[id(node)] > _MAX_TERMS and not node.args[0].is_real:
            raise Refusal("this needs the sign of a hyperbolic function of a long argument", "declare real symbols")


def _multiplied_out(node: sp.Basic, terms: list[float]) -> float:
    """About how many terms the real and imaginary parts have once multiplied out, from those of the children."""
    if isinstance(node, sp.Symbol):
        return 1 if node.is_real else 2
    if isinstance(node, sp.Mul):
        return prod(terms)
    if isinstance(node, sp.Pow):
        times = min(abs(float(node.exp)), 100) if node.exp.is_Rational else 2
        return float(min(terms[0], 1e3) ** max(times, 1)) * (1 if node.exp.is_Integer and node.exp > 0 else 2)
    return max(sum(terms), 1) * (4 if isinstance(node, _HYPERBOLIC) else 2 if isinstance(node, sp.Function) else 1)


def check_powers(expr: sp.Expr) -> None:
    """Refuse a product with exponents or coefficients out of bounds.

    >>> check_powers(sp.Symbol("x") ** 1000)
    """
    for factor in sp.Mul.make_args(expr):
        base, exponent = factor.as_base_exp()
        if exponent != 1:
            check_exponent(base, exponent)
    check_coefficients(expr)


def check_coefficients(expr: sp.Expr) -> None:
    """Refuse coefficients of more than 300 digits; a number that met a sum has multiplied each of its terms.

    >>> check_coefficients(2 * sp.Symbol("x") + 1)
    """
    for term in sp.Add.make_args(expr):
        check_rational(term.as_coeff_Mul()[0])


def check_denominators(exprs: Iterable[sp.Expr]) -> None:
    """Refuse sums like x/7919 + x/7927 + ..., whose common denominator has thousands of digits.

    >>> check_denominators([sp.Rational(1, 3), sp.Rational(1, 7)])
    """
    pairs = [term.as_coeff_Mul() for expr in exprs for term in sp.Add.make_args(expr)]
    if sum(coefficient.q.bit_length() for coefficient, _ in pairs) <= MAX_BITS:
        return
    common: dict[sp.Expr, int] = {}
    for coefficient, rest in pairs:
        denominator = lcm(common.get(rest, 1), coefficient.q)
        if denominator.bit_length() > MAX_BITS:
            raise Refusal("the common denominator is too long", "numbers have at most 300 digits")
        common[rest] = denominator


def check_logarithms(argument: sp.Expr) -> None:
    """SymPy turns exp(1000*log(2)) into 2**1000, and gathers logarithms deep inside the argument.

    >>> check_logarithms(3 * sp.log(2))
    """
    bits = 0
    for term in postorder(argument):
        if not isinstance(term, sp.Expr):
            continue  # the pairs and conditions of a Piecewise
        coefficient, rest = term.as_coeff_Mul()
        for factor in sp.Mul.make_args(rest):
            if isinstance(factor, sp.log):
                inner = factor.args[0].as_coeff_Mul()[0]
                bits += abs(coefficient) * max(abs(inner.p), inner.q).bit_length()
    if bits > _MAX_LOGARITHMS:
        raise Refusal("exp would raise a logarithm's argument to a huge power")
