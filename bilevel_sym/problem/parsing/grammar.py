"""The grammar of expressions, and the parser that reads it.

    sum       := product (("+" | "-") product)*
    product   := factor (("*" | "/") factor)*
    factor    := ("+" | "-")* atom ["**" factor]
    atom      := number | variable | constant | "(" sum ")" | function "(" sum ("," sum)* ")"
               | "Piecewise" "(" piece ("," piece)* ")"
    piece     := "(" sum "," condition ")"
    condition := "True" | sum ("<" | "<=" | ">" | ">=") sum

Signs bind tighter than ``*`` and looser than ``**``, as in Python.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import sympy as sp

from bilevel_sym.errors import InvalidProblem, UnsafeExpression
from bilevel_sym.graph.draft import Drafted
from bilevel_sym.graph.operations import IN_TEXT
from bilevel_sym.problem.parsing.comparisons import Builder
from bilevel_sym.problem.parsing.guarded import Refusal
from bilevel_sym.problem.parsing.names import CONSTANTS, EXTREMA, check_name, suggestion
from bilevel_sym.problem.parsing.symbolic import SympyBuilder
from bilevel_sym.problem.parsing.tokens import Source, Token, tokenize

__all__ = ["FUNCTIONS", "draft_expression", "parse_expression", "sympy_expression"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
Value = Any  # a value of whichever builder reads the text: a form on a draft, or a SymPy expression
_Names = Mapping[str, sp.Symbol | sp.Rational]

MAX_DEPTH = 100
MAX_ARGUMENTS = 50
MAX_PIECES = 50

FUNCTIONS: Mapping[str, Callable[..., sp.Expr]] = MappingProxyType(
    {**{name: record.sympy for name, record in IN_TEXT.items()}, "sqrt": sp.sqrt, "Piecewise": sp.Piecewise}
)
"""The functions of the grammar, and what each means in SymPy."""

_COMPARISONS = ("<", "<=", ">", ">=")
_KEYWORDS = frozenset(keyword.kwlist)


def parse_expression(text: str, symbols: _Names, *, source: str | None = None) -> sp.Expr:
    """The expression that ``text`` means, in the given symbols; UnsafeExpression if it is not in the grammar.

    ``symbols`` says what each name means: a symbol, or an exact number. A number is inserted while reading, behind
    the same guards as a literal, so that a**a**a with a = 9 is refused as 9**9**9 is. ``source`` names the text in
    messages (a field, or a file). Decimal literals are exact rationals.

    >>> x, y = sp.symbols("x y")
    >>> parse_expression("0.1*x**2 + softplus(y)", {"x": x, "y": y})
    x**2/10 + softplus(y)
    >>> parse_expression("a*x", {"x": x, "a": sp.Rational(1, 3)})
    x/3
    >>> parse_expression("x + 2^y", {"x": x, "y": y})
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.UnsafeExpression: ^ is not an operator (line 1, column 6)
      x + 2^y
           ^
    try: write ** for powers
    """
    symbols_only = [meaning for meaning in symbols.values() if isinstance(meaning, sp.Symbol)]
    _read(text, symbols, source, Builder(symbols_only))
    expression: sp.Expr = _read(text, symbols, source, SympyBuilder(symbols_only))
    return expression


def draft_expression(text: str, symbols: _Names, *, source: str | None = None) -> Drafted:
    """The formula that ``text`` means, on a draft, without SymPy; refused as ``parse_expression`` does.

    >>> x, y = sp.symbols("x y")
    >>> draft_expression("2*x - x - x + sin(y)", {"x": x, "y": y}).used
    {y}
    """
    build = Builder([meaning for meaning in symbols.values() if isinstance(meaning, sp.Symbol)])
    form = _read(text, symbols, source, build)
    return Drafted(build.draft, form, tuple(build.symbols))


def sympy_expression(text: str, symbols: _Names) -> sp.Expr:
    """The SymPy expression of a text that was read before; what SymPy cannot build stays as it was written.

    >>> x = sp.Symbol("x")
    >>> sympy_expression("tan(x + pi/2) + x + x", {"x": x})
    2*x + tan(x + pi/2)
    """
    build = SympyBuilder([meaning for meaning in symbols.values() if isinstance(meaning, sp.Symbol)], lenient=True)
    expression: sp.Expr = _read(text, symbols, None, build)
    return expression


def _read(text: str, symbols: _Names, source: str | None, build: Builder | SympyBuilder) -> Any:
    if not isinstance(text, str):
        raise InvalidProblem(f"an expression must be text, not {type(text).__name__}")
    for name in symbols:
        check_name(name)
    try:
        return _Parser(Source(text, source), symbols, build).parse()
    except RecursionError:
        raise Source("", source).error(0, "the expression is nested too deeply", "split it") from None


class _Parser:
    """One pass over the tokens. Each method reads one rule of the grammar and leaves ``_at`` behind it.

    >>> x = sp.Symbol("x")
    >>> _Parser(Source("2*x"), {"x": x}, SympyBuilder([x])).parse()
    2*x
    """

    def __init__(self, source: Source, names: Mapping[str, Any], build: Any, *, arrays: bool = False) -> None:
        self._source = source
        self._names = names
        self._tokens = tokenize(source, arrays=arrays)
        self._at = 0
        self._depth = 0
        self._build = build

    def parse(self) -> Any:
        """What the whole text means."""
        if self._token.kind == "end":
            raise self._source.error(self._token.place, "the expression is empty")
        value = self._sum()
        if self._token.kind != "end":
            raise self._unexpected("an operator")
        return self._finish(value)

    def _finish(self, value: Value) -> Any:
        return self._guard(self._tokens[0], self._build.finish, value)

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _sum(self) -> Value:
        first = self._token
        terms = [self._product()]
        while (sign := self._token.text) in ("+", "-"):
            self._at += 1
            term = self._product()
            terms.append(self._build.negate(term) if sign == "-" else term)
        return self._guard(first, self._build.add, terms) if len(terms) > 1 else terms[0]

    def _product(self) -> Value:
        value = self._factor()
        while (sign := self._token).text in ("*", "/"):
            self._at += 1
            operation = self._build.multiply if sign.text == "*" else self._build.divide
            value = self._guard(sign, operation, value, self._factor())
        return value

    def _factor(self) -> Value:
        negative = False
        while (sign := self._token.text) in ("+", "-"):
            self._at += 1
            negative ^= sign == "-"
        value = self._atom()
        if (operator := self._token).text == "**":
            self._at += 1
            exponent = self._nested(operator, self._factor)
            value = self._guard(operator, self._build.power, value, exponent)
        return self._build.negate(value) if negative else value

    def _atom(self) -> Value:
        token = self._token
        if token.kind == "number":
            self._at += 1
            return self._number(token)
        if token.kind == "name":
            self._at += 1
            return self._name(token)
        if token.text != "(":
            raise self._unexpected("a number, a name or (")
        self._at += 1
        value = self._nested(token, self._sum)
        self._expect(")", "to close the parenthesis")
        return value

    def _number(self, token: Token) -> Value:
        if token.text.isdigit() and token.text[0] == "0" and token.text.strip("0"):
            raise self._source.error(token.place, "leading zeros are not accepted", "write 7 for 007")
        return self._guard(token, self._build.literal, token.text)

    def _name(self, token: Token) -> Value:
        name = token.text
        if name in FUNCTIONS:
            return self._nested(token, lambda: self._call(token))
        if self._token.text == "(":
            raise self._not_callable(token)
        if name in self._names:
            return self._guard(token, self._declared, self._names[name])
        if name in CONSTANTS:
            return self._build.constant(name)
        raise self._unknown(token)

    def _declared(self, meaning: sp.Symbol | sp.Rational) -> Value:
        return self._build.variable(meaning) if isinstance(meaning, sp.Symbol) else self._build.number(meaning)

    def _call(self, token: Token) -> Value:
        if self._token.text != "(":
            raise self._source.error(
                token.place, f"{token.text} is a function and needs its argument", f"write {token.text}(...)"
            )
        self._at += 1
        if token.text == "Piecewise":
            return self._piecewise(token)
        arguments = [self._sum()]
        while self._token.text == ",":
            self._at += 1
            arguments.append(self._sum())
        self._expect(")", f"to close {token.text}(")
        return self._apply(token, arguments)

    def _apply(self, token: Token, arguments: list[Value]) -> Value:
        name, count = token.text, len(arguments)
        if name in EXTREMA:
            if not 2 <= count <= MAX_ARGUMENTS:
                raise self._source.error(token.place, f"{name} takes 2 to {MAX_ARGUMENTS} arguments, and got {count}")
            return self._guard(token, self._build.extremum, name, arguments)
        if count != 1:
            raise self._source.error(token.place, f"{name} takes one argument, and got {count}")
        if name == "sqrt":
            return self._guard(token, self._build.power, arguments[0], self._build.half)
        if name == "abs":
            return self._guard(token, self._build.absolute, arguments[0])
        return self._guard(token, self._build.call, name, arguments[0])

    def _piecewise(self, token: Token) -> Value:
        pieces = [self._piece()]
        while self._token.text == ",":
            self._at += 1
            if len(pieces) == MAX_PIECES:
                raise self._source.error(token.place, f"Piecewise takes at most {MAX_PIECES} pieces")
            pieces.append(self._piece())
        self._expect(")", "to close Piecewise(")
        return self._guard(token, self._build.piecewise, pieces)

    def _piece(self) -> tuple[Value, Value]:
        self._expect("(", "to open a piece: Piecewise((value, condition), ...)")
        value = self._nested(self._token, self._sum)
        self._expect(",", "between a value and its condition")
        condition = self._condition()
        self._expect(")", "to close a piece")
        return value, condition

    def _condition(self) -> Value:
        if self._token.text == "True":
            self._at += 1
            return self._build.true
        left = self._nested(self._token, self._sum)
        sign = self._token
        if sign.text not in _COMPARISONS:
            raise self._unexpected("one of < <= > >=")
        self._at += 1
        right = self._nested(self._token, self._sum)
        if self._token.text in _COMPARISONS:
            raise self._source.error(
                self._token.place, "comparisons cannot be chained", "nest one Piecewise in another"
            )
        return self._guard(sign, self._build.compare, sign.text, left, right)

    def _nested(self, token: Token, rule: Callable[[], Value]) -> Value:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._source.error(
                token.place, f"nested deeper than {MAX_DEPTH} levels", "build such an expression with SymPy"
            )
        value = rule()
        self._depth -= 1
        return value

    def _guard(self, token: Token, step: Callable[_P, _T], *args: _P.args, **kw: _P.kwargs) -> _T:
        """Take a step of the builder; what it refuses stands at ``token``."""
        try:
            return step(*args, **kw)
        except Refusal as refusal:
            raise self._source.error(token.place, refusal.message, refusal.hint) from None
        except InvalidProblem as error:
            raise self._source.error(token.place, error.message, error.hint) from None

    def _expect(self, text: str, why: str) -> None:
        if self._token.text != text:
            raise self._unexpected(f"{text} {why}")
        self._at += 1

    def _unexpected(self, wanted: str) -> UnsafeExpression:
        token = self._token
        if token.kind == "end":
            return self._source.error(token.place, f"the text ends where {wanted} should stand")
        if token.text in _COMPARISONS:
            cases = "write Piecewise((value, condition), (value, True))"
            return self._source.error(token.place, f"{token.text} stands only in the condition of a Piecewise", cases)
        if token.text in _KEYWORDS:
            return self._unknown(token)
        hint = "write * to multiply" if wanted == "an operator" and token.text != ")" else None
        return self._source.error(token.place, f"{token.text[:40]} stands where {wanted} should", hint)

    def _unknown(self, token: Token) -> UnsafeExpression:
        name = token.text
        if name == "True":
            return self._source.error(token.place, "True stands only as the condition of a Piecewise")
        if name in _KEYWORDS:
            hint = "for cases write Piecewise((value, condition), (value, True))"
            return self._source.error(token.place, f"the word {name} is not accepted", hint)
        return self._source.error(token.place, f"unknown name {name[:64]}", suggestion(name, self._names))

    def _not_callable(self, token: Token) -> UnsafeExpression:
        name = token.text
        if name in self._names or name in CONSTANTS:
            return self._source.error(token.place, f"{name} is not a function", f"write {name}*(...) to multiply")
        if name in _KEYWORDS:
            return self._unknown(token)
        hint = suggestion(name, (), otherwise="the functions are " + " ".join(FUNCTIONS))
        return self._source.error(token.place, f"unknown function {name[:64]}", hint)
