"""What is assumed of a symbol has to be true of the numbers that it stands for.

SymPy simplifies by assumptions as it builds: with x positive, Abs(x) has become x before a problem sees it. If the box,
a value or a row of data says otherwise, the formula is not the one that was meant, and nothing can tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import sympy as sp

from bilevel_sym.errors import InvalidArgument, InvalidProblem

__all__ = ["assumed_sign", "check_interval", "check_kind", "check_point", "check_values", "rebuild"]

MAX_SYMBOLS = 4096  # whose signs are kept: asking SymPy takes longer than a step of a solver
SIGNS = ("positive", "negative", "nonnegative", "nonpositive", "nonzero")  # the stronger before the weaker
DISCRETE = ("zero", "integer", "even", "odd", "prime", "composite", "rational", "irrational", "noninteger", "algebraic",
            "transcendental", "infinite")  # fmt: skip


def check_kind(symbols: Iterable[sp.Symbol]) -> None:
    """Refuse variables that are assumed to be of a kind that no interval of real numbers is of.

    >>> check_kind([sp.Symbol("k", integer=True)])
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: k is assumed to be integer, but a variable takes all real values of an interval
    try: sympy.Symbol('k', real=True)
    """
    for symbol in symbols:
        for kind in DISCRETE:
            if getattr(symbol, f"is_{kind}"):
                raise InvalidProblem(
                    f"{symbol} is assumed to be {kind}, but a variable takes all real values of an interval",
                    hint=_cure(symbol),
                )


def check_interval(symbol: sp.Symbol, low: sp.Rational, high: sp.Rational, where: str) -> None:
    """Refuse a symbol whose sign, as it is assumed, is not that of all numbers from low to high.

    >>> check_interval(sp.Symbol("x", positive=True), sp.Integer(-1), sp.Integer(1), "the box")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: x is assumed to be positive, but in the box it runs from -1 to 1
    try: sympy.Symbol('x', real=True), and build f and g again: Abs(x) has become x; or a box in which x is positive
    """
    ends = [low, high, *([sp.S.Zero] if low < 0 < high else [])]
    if (sign := _contradicted(symbol, ends)) is not None:
        raise InvalidProblem(
            f"{symbol} is assumed to be {sign}, but in {where} it runs from {low} to {high}",
            hint=f"{rebuild(symbol)}: Abs({symbol}) has become {sp.Abs(symbol)}; or a box in which {symbol} is {sign}",
        )


def check_values(symbol: sp.Symbol, values: Iterable[sp.Rational], where: str) -> None:
    """The same for single values: of a parameter, or of a column of data.

    >>> check_values(sp.Symbol("a", negative=True), [sp.Integer(2)], "the parameters")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: a is assumed to be negative, but is 2 in the parameters
    try: sympy.Symbol('a', real=True), and build f and g again
    """
    for value in values:
        if (sign := _contradicted(symbol, [value])) is not None:
            raise InvalidProblem(
                f"{symbol} is assumed to be {sign}, but is {value} in {where}",
                hint=rebuild(symbol),
            )


def check_point(symbols: Iterable[sp.Symbol], values: Iterable[sp.Rational | float], where: str) -> None:
    """The same for a point, which is an argument: exact numbers, or floats.

    >>> check_point([sp.Symbol("x", positive=True)], [-1.5], "x0")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: x is assumed to be positive, but is -1.5 in x0
    try: sympy.Symbol('x', real=True), and build f and g again
    """
    for symbol, value in zip(symbols, values, strict=True):
        if assumed_sign(symbol) and (sign := _contradicted(symbol, [sp.Rational(value)])) is not None:
            shown = f"{value:.9g}" if isinstance(value, float) else value
            raise InvalidArgument(f"{symbol} is assumed to be {sign}, but is {shown} in {where}", hint=rebuild(symbol))


@lru_cache(MAX_SYMBOLS)
def assumed_sign(symbol: sp.Symbol) -> str | None:
    """The sign that a symbol is assumed to have, in the strongest word; None where it may have any.

    >>> assumed_sign(sp.Symbol("x", positive=True)), assumed_sign(sp.Symbol("x", real=True))
    ('positive', None)
    """
    return next((sign for sign in SIGNS if getattr(symbol, f"is_{sign}")), None)


def rebuild(symbol: sp.Symbol) -> str:
    """What to try where the numbers contradict what is assumed of a symbol.

    >>> rebuild(sp.Symbol("x", positive=True))
    "sympy.Symbol('x', real=True), and build f and g again"
    """
    return f"{_cure(symbol)}, and build f and g again"


def _contradicted(symbol: sp.Symbol, values: Iterable[sp.Rational]) -> str | None:
    """The sign that is assumed, where one of the values has not got it."""
    sign = assumed_sign(symbol)
    return None if sign is None or all(getattr(value, f"is_{sign}") for value in values) else sign


def _cure(symbol: sp.Symbol) -> str:
    return f"sympy.Symbol({symbol.name!r}, real=True)"
