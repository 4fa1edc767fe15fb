"""The grammar of formulas with arrays: that of scalars, and

    product   := factor (("*" | "/" | "@") factor)*
    factor    := ("+" | "-")* atom ".T"* ["**" factor]
    call      := function "(" sum ("," sum)* ["," "axis=" ("0" | "1")] ")"

with the functions of ``arrays.syntax``. What is read is a syntax tree; shapes and numbers are judged later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from types import MappingProxyType

from bilevel_sym.arrays.language import syntax
from bilevel_sym.arrays.language.syntax import Link, Node, Refused
from bilevel_sym.errors import InvalidProblem, UnsafeExpression
from bilevel_sym.graph.exact import decimal_rational
from bilevel_sym.problem.parsing.grammar import FUNCTIONS, MAX_ARGUMENTS, MAX_PIECES, _Parser
from bilevel_sym.problem.parsing.names import CONSTANTS, EXTREMA, suggestion
from bilevel_sym.problem.parsing.tokens import Source, Token

__all__ = ["array_tree", "placed"]

_TWO = ("dot", "outer")
_COMPARISONS = ("<", "<=", ">", ">=")
# What people write from habit, and how it is said here.
_HABITS: Mapping[str, str] = MappingProxyType(
    {
        "norm": "sqrt(sum(a**2))",
        "matmul": "A @ B",
        "transpose": "A.T",
        "inner": "dot(a, b)",
        "tr": "trace(A)",
        "average": "mean(a)",
        "hadamard": "A*B",
        "softmax": "exp(z - logsumexp(z))",
        "inv": "a linear solve, which the lower level does: write the quadratic whose minimiser you want",
    }
)


def array_tree(text: str, names: Collection[str], *, source: str | None = None) -> Node:
    """The syntax tree of a text in declared names; UnsafeExpression if it is not in the grammar.

    ``names`` are the variables, data, parameters and dimensions; ``source`` is what the text is called in messages.

    >>> tree = array_tree("y @ y/20", {"y"})
    >>> [link.sign for link in tree.rest]
    ['@', '/']
    """
    if not isinstance(text, str):
        raise InvalidProblem(f"an expression must be text, not {type(text).__name__}")
    try:
        tree: Node = _ArrayParser(Source(text, source), names).parse()
    except RecursionError:
        raise Source("", source).error(0, "the expression is nested too deeply", "split it") from None
    return tree


@contextmanager
def placed(text: str, source: str | None) -> Iterator[None]:
    """What is refused inside becomes an error with a caret in the text.

    >>> with placed("A @ y", "f"):
    ...     raise Refused(2, "these shapes do not fit")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.UnsafeExpression: these shapes do not fit (f, line 1, column 3)
      A @ y
        ^
    """
    try:
        yield
    except Refused as refusal:
        raise Source(text, source).error(refusal.place, refusal.message, refusal.hint) from None
    except RecursionError:
        raise Source("", source).error(0, "the expression is nested too deeply", "split it") from None


class _ArrayParser(_Parser):
    """The same rules, with places kept."""

    def __init__(self, source: Source, names: Collection[str]) -> None:
        super().__init__(source, dict.fromkeys(names), None, arrays=True)

    def _finish(self, value: Node) -> Node:
        return value

    def _sum(self) -> Node:
        return self._chain(("+", "-"), self._product, syntax.Sum)

    def _product(self) -> Node:
        return self._chain(("*", "/", "@"), self._factor, syntax.Product)

    def _chain(self, signs: Collection[str], rule: object, kind: type[syntax.Sum | syntax.Product]) -> Node:
        assert callable(rule)
        first: Node = rule()
        rest = []
        while (sign := self._token).text in signs:
            self._at += 1
            rest.append(Link(sign.text, sign.place, rule()))
        return kind(first.place, first, tuple(rest)) if rest else first

    def _factor(self) -> Node:
        start, negative = self._token, False
        while (sign := self._token.text) in ("+", "-"):
            self._at += 1
            negative ^= sign == "-"
        value = self._atom()
        if (operator := self._token).text == "**":
            self._at += 1
            value = syntax.Power(operator.place, value, self._nested(operator, self._factor))
        return syntax.Negated(start.place, value) if negative else value

    def _atom(self) -> Node:
        value: Node = super()._atom()
        turned = False
        first = self._token
        while self._token.text == ".T":
            self._at += 1
            turned = not turned
        if first is self._token:
            return value
        once = syntax.Transposed(first.place, value)
        return once if turned else syntax.Transposed(first.place, once)

    def _number(self, token: Token) -> Node:
        if token.text.isdigit() and token.text[0] == "0" and token.text.strip("0"):
            raise self._source.error(token.place, "leading zeros are not accepted", "write 7 for 007")
        number = self._guard(token, decimal_rational, token.text)
        return syntax.Number(token.place, Fraction(int(number.p), int(number.q)))

    def _name(self, token: Token) -> Node:
        name = token.text
        if name in FUNCTIONS or name in syntax.FUNCTIONS:
            called: Node = self._nested(token, lambda: self._call(token))
            return called
        if self._token.text == "(":
            raise self._not_callable(token)
        if name in self._names:
            return syntax.Name(token.place, name)
        if name in CONSTANTS:
            return syntax.Constant(token.place, name)
        raise self._unknown(token)

    def _call(self, token: Token) -> Node:
        self._expect("(", f"behind the function {token.text}")
        if token.text == "Piecewise":
            return self._piecewise(token)
        arguments = [self._sum()]
        axis = None
        while self._token.text == ",":
            self._at += 1
            if self._token.text == "axis=":
                axis = self._axis(token)
                break
            arguments.append(self._sum())
        self._expect(")", f"to close {token.text}(")
        self._check_count(token, len(arguments))
        return syntax.Call(token.place, token.text, tuple(arguments), axis)

    def _axis(self, function: Token) -> int:
        keyword = self._token
        if function.text not in syntax.AXIS_FUNCTIONS:
            hint = f"it is one of {', '.join(syntax.AXIS_FUNCTIONS)}"
            raise self._source.error(keyword.place, f"{function.text} takes no axis", hint)
        self._at += 1
        if self._token.text not in ("0", "1"):
            raise self._source.error(keyword.place, "axis is 0 or 1", "axis=0 sums over rows, axis=1 over columns")
        self._at += 1
        return int(self._tokens[self._at - 1].text)

    def _check_count(self, token: Token, count: int) -> None:
        name = token.text
        if name in EXTREMA:
            if not 2 <= count <= MAX_ARGUMENTS:
                hint = "it goes entry by entry" if count == 1 else None
                wanted = f"{name} takes 2 to {MAX_ARGUMENTS} arguments, and got {count}"
                raise self._source.error(token.place, wanted, hint)
        elif name in _TWO:
            if count != len(_TWO):
                raise self._source.error(token.place, f"{name} takes two arguments, and got {count}")
        elif count != 1:
            hint = f"write {name}(..., axis=0)" if name in syntax.AXIS_FUNCTIONS else None
            raise self._source.error(token.place, f"{name} takes one argument, and got {count}", hint)

    def _piecewise(self, token: Token) -> Node:
        pieces = [self._piece()]
        while self._token.text == ",":
            self._at += 1
            if len(pieces) == MAX_PIECES:
                raise self._source.error(token.place, f"Piecewise takes at most {MAX_PIECES} pieces")
            pieces.append(self._piece())
        self._expect(")", "to close Piecewise(")
        return syntax.Piecewise(token.place, tuple(pieces))

    def _condition(self) -> syntax.Comparison | None:
        if self._token.text == "True":
            self._at += 1
            return None
        start = self._at
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
        if any(token.text == "Piecewise" for token in self._tokens[start : self._at]):
            raise self._source.error(sign.place, "a condition must not contain a Piecewise", "write out its cases")
        return syntax.Comparison(sign.place, sign.text, left, right)

    def _not_callable(self, token: Token) -> UnsafeExpression:
        name = token.text
        if name in _HABITS:
            return self._source.error(token.place, f"unknown function {name}", f"write {_HABITS[name]}")
        if name in self._names or name in CONSTANTS:
            return super()._not_callable(token)
        hint = suggestion(
            name, syntax.FUNCTIONS, otherwise=f"the functions are {' '.join((*FUNCTIONS, *syntax.FUNCTIONS))}"
        )
        error = super()._not_callable(token)
        return (
            error
            if error.what != f"unknown function {name[:64]}"
            else self._source.error(token.place, error.what, hint)
        )
