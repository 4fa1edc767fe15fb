"""Text -> tokens, with the place of each: the first thing that untrusted text meets."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from bilevel_sym.errors import UnsafeExpression

__all__ = ["MAX_LENGTH", "MAX_TOKENS", "Source", "Token", "tokenize"]

MAX_LENGTH = 200_000
MAX_TOKENS = 40_000

# Possessive quantifiers (++, *+): a long run of digits or letters is read once, never again and again.
_PATTERN = r"""
      (?P<space>  [ \t\r\n]++ )
    | (?P<number> (?: [0-9]++ \.?+ [0-9]*+ | \.[0-9]++ ) (?: [eE][+-]?+[0-9]++ )?+ (?! [A-Za-z0-9_.] ) )
    %s
    | (?P<name>   [A-Za-z_][A-Za-z0-9_]*+ )
    | (?P<symbol> \*\*(?!\*) | \*(?!\*) | /(?!/) | [<>]=?+(?![<>=]) | [-+(),] )
    | (?P<other>  . )
    """
_TOKEN = re.compile(_PATTERN % "", re.VERBOSE | re.DOTALL)
_ARRAY_TOKEN = re.compile(
    _PATTERN % r"| (?P<array> @ | \.T(?![A-Za-z0-9_]) | axis[ \t\r\n]*+=(?!=) )", re.VERBOSE | re.DOTALL
)

_HINTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "//": ("floor division is not accepted", "write / to divide"),
        "***": ("*** is not an operator", "write ** for powers"),
        ":=": ("assignment is not accepted", "write the value where it is used"),
        "==": ("equality is not accepted", "conditions of a Piecewise use < <= > >="),
        "!=": ("inequality is not accepted", "conditions of a Piecewise use < <= > >="),
        "^": ("^ is not an operator", "write ** for powers"),
        "=": ("assignment is not accepted", "one expression, without ="),
        "%": ("% is not an operator", "the operators are + - * / **"),
        "@": ("@ is not an operator", "the operators are + - * / **"),
        "!": ("factorials are not accepted", "write the number"),
        ";": ("only one expression is accepted", "remove everything from ; on"),
        ".": ("attributes are not accepted", "a decimal point needs a digit beside it: 0.5"),
        "[": ("subscripts and lists are not accepted", "name each variable: x1, x2"),
        "]": ("subscripts and lists are not accepted", "name each variable: x1, x2"),
        "{": ("sets and dictionaries are not accepted", "use ( ) to group"),
        "}": ("sets and dictionaries are not accepted", "use ( ) to group"),
        '"': ("quotes are not accepted", "write names without quotes"),
        "'": ("quotes are not accepted", "write names without quotes"),
        ":": ("a colon is not accepted", "for cases write Piecewise((value, condition), ...)"),
        "&": ("logic is not accepted", "nest one Piecewise in another"),
        "|": ("logic is not accepted", "nest one Piecewise in another; abs(x) for |x|"),
        "~": ("logic is not accepted", "nest one Piecewise in another"),
        "#": ("comments are not accepted", "remove everything from # on"),
        "\\": ("a backslash is not accepted", "line breaks need no mark"),
    }
)

_ARRAY_HINTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "[": ("subscripts and lists are not accepted", "formulas take whole arrays; brackets only declare them"),
        "=": ("assignment is not accepted", "the only keyword is axis=0 or axis=1"),
        "^": ("^ is not an operator", "write ** for powers, @ for products of matrices"),
    }
)


class Token(NamedTuple):
    """One piece of the text: ``kind`` is "number", "name", "symbol" or "end"; ``place`` counts characters."""

    kind: str
    text: str
    place: int


class Source(NamedTuple):
    """A text and what it is called in messages.

    >>> print(Source("x +", "f").error(3, "a value is missing"))
    a value is missing (f, line 1, column 4)
      x +
         ^
    """

    text: str
    name: str | None = None

    def error(self, index: int, message: str, hint: str | None = None) -> UnsafeExpression:
        """The error for the character at ``index``, with its line, column and caret."""
        start = self.text.rfind("\n", 0, index) + 1
        line = self.text.count("\n", 0, index) + 1
        return UnsafeExpression(
            message, text=self.text, line=line, column=index - start + 1, hint=hint, source=self.name
        )


def tokenize(source: Source, *, arrays: bool = False) -> list[Token]:
    """The tokens of a text, closed by one of kind "end"; with ``arrays`` also those that only arrays have.

    >>> [token.text for token in tokenize(Source("2*x1 <= .5"))]
    ['2', '*', 'x1', '<=', '.5', '']
    >>> [token.text for token in tokenize(Source("sum(A.T @ y, axis = 0)"), arrays=True)]
    ['sum', '(', 'A', '.T', '@', 'y', ',', 'axis=', '0', ')', '']
    """
    text = source.text
    if len(text) > MAX_LENGTH:
        raise Source("", source.name).error(
            0, f"the text has {len(text)} characters, and {MAX_LENGTH} are accepted", _TOO_LARGE
        )
    tokens: list[Token] = []
    for match in (_ARRAY_TOKEN if arrays else _TOKEN).finditer(text):
        kind = match.lastgroup or "other"
        if kind == "space":
            continue
        if kind == "other":
            raise _refuse(source, match.start(), arrays=arrays)
        if len(tokens) == MAX_TOKENS:
            raise source.error(match.start(), f"more than {MAX_TOKENS} numbers, names and signs", _TOO_LARGE)
        if kind == "array":
            tokens.append(Token("symbol", "".join(match.group().split()), match.start()))
        else:
            tokens.append(Token(kind, match.group(), match.start()))
    tokens.append(Token("end", "", len(text)))
    return tokens


_TOO_LARGE = "build an expression of this size with SymPy"


def _refuse(source: Source, index: int, *, arrays: bool) -> UnsafeExpression:
    """The error for a character that starts no token."""
    text = source.text
    if arrays and text[index] in _ARRAY_HINTS and text[index : index + 2] != "==":
        return source.error(index, *_ARRAY_HINTS[text[index]])
    character = text[index]
    for length in (3, 2, 1):
        if text[index : index + length] in _HINTS:
            if character == "." and text[index + 1 : index + 2].isdigit():
                break  # ".5x" is a spoilt number, not an attribute
            return source.error(index, *_HINTS[text[index : index + length]])
    if character in "0123456789.":
        return source.error(index, "this number is spoilt", "write 2*x for 2x, and 1000000 for 1_000_000")
    if character.isascii() and character.isprintable():
        return source.error(index, f"{character} is not accepted", "the operators are + - * / **")
    return source.error(index, f"{_describe(character)} is not accepted", "use plain ASCII characters")


def _describe(character: str) -> str:
    name = unicodedata.name(character, "a control character")
    return f"U+{ord(character):04X} ({name.lower()})"
