"""ProblemFile: what a problem file says, and where in it a formula stands, for tomllib gives values without places."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import sympy as sp

from bilevel_sym.arrays.data import DataArray
from bilevel_sym.errors import UnsafeExpression
from bilevel_sym.problem.parsing.tokens import Source

__all__ = ["KINDS", "Arrays", "Intervals", "Numbers", "ProblemFile", "Rows", "string_offsets"]

KINDS = ("bilevel", "minimax", "stochastic")

Numbers = Mapping[str, sp.Rational | None]
Intervals = Mapping[str, tuple[sp.Rational, sp.Rational]]
Rows = tuple[tuple[sp.Rational, ...], ...]
Arrays = Mapping[str, DataArray | str]
_ESCAPES: Mapping[str, str] = MappingProxyType(
    {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_LINE_ENDING = re.compile(r"\\[ \t]*\n[ \t\n]*")  # a backslash before a line break: neither is in the value
_QUOTES = ('"""', "'''", '"', "'")


@dataclass(frozen=True)
class ProblemFile:
    """The fields of a problem file. Formulas are text; a parameter that is None stays symbolic.

    ``x`` and ``y`` are names, or declarations of arrays such as "W[p, q]". ``data`` are arrays by name, or their shapes
    as text ("m, n"); None where the file has none. With arrays the rows of xi and zeta stand there too.

    ``path`` and ``text`` say where the fields came from; they do not count when two are compared.

    >>> ProblemFile(kind="minimax", x=("x",), y=("y",), f="x*y - y**2", g=None).box is None
    True
    """

    kind: str
    x: tuple[str, ...]
    y: tuple[str, ...]
    f: str
    g: str | None
    name: str | None = None
    parameters: Numbers = field(default_factory=lambda: MappingProxyType({}))
    box: Intervals | None = None
    xi: tuple[str, ...] = ()
    zeta: tuple[str, ...] = ()
    xi_data: Rows = ()
    zeta_data: Rows = ()
    data: Arrays | None = None
    path: str = field(default="", compare=False)
    text: str = field(default="", compare=False, repr=False)

    def names_of(self, role: str) -> tuple[str, ...]:
        """The names that a role declares, without their shapes.

        >>> ProblemFile("stochastic", ("x",), ("y[n]",), "a @ y", "y @ y", xi=("a[n]", "b")).names_of("xi")
        ('a', 'b')
        """
        declared: tuple[str, ...] = getattr(self, role)
        return tuple(item.partition("[")[0] for item in declared)

    def locate(self, error: UnsafeExpression) -> UnsafeExpression:
        """The error of the formula that ``error.source`` names ("f" or "g"), placed in the file.

        >>> text = 'y = "y"\\nf = "y + q"'
        >>> fields = ProblemFile("minimax", ("x",), ("y",), "y + q", None, path="toy.toml", text=text)
        >>> print(fields.locate(UnsafeExpression("unknown name 'q'", column=5, source="f")))
        unknown name 'q' (toy.toml, f, line 2, column 10)
          f = "y + q"
                   ^
        """
        key = error.source or ""
        formula = {"f": self.f, "g": self.g}.get(key)
        if formula is None or not self.path:
            return error
        offsets = string_offsets(self.text, key, formula)
        if offsets is None:
            inside = Source(formula, f"{self.path}, in the text of {key}")
            return inside.error(_index(formula, error), error.what, error.hint)
        place = offsets[min(_index(formula, error), len(offsets) - 1)]
        return Source(self.text, f"{self.path}, {key}").error(place, error.what, error.hint)


def _index(formula: str, error: UnsafeExpression) -> int:
    lines = formula.split("\n")[: error.line - 1]
    return sum(len(line) + 1 for line in lines) + error.column - 1


def string_offsets(text: str, key: str, value: str) -> tuple[int, ...] | None:
    """For each character of ``value``, and for its end, where it stands in the TOML ``text`` that says key = value.

    None if the value is not found as one string behind its key.

    >>> string_offsets('f = "a+b"', "f", "a+b")
    (5, 6, 7, 8)
    """
    behind_key = re.compile(rf"""^[ \t]*(?:{key}|"{key}"|'{key}')[ \t]*=[ \t]*""", re.MULTILINE)
    for match in behind_key.finditer(text):
        characters = _decode(text, match.end())
        if characters is not None and "".join(c for c, _ in characters[:-1]) == value:
            return tuple(offset for _, offset in characters)
    return None


def _decode(text: str, start: int) -> list[tuple[str, int]] | None:
    """The characters of the TOML string at ``start``, each with its place; the last one is the closing quote."""
    quote = next((q for q in _QUOTES if text.startswith(q, start)), None)
    if quote is None:
        return None
    at = start + len(quote)
    if len(quote) == 3 and text.startswith("\n", at):
        at += 1
    characters: list[tuple[str, int]] = []
    while at < len(text) and not text.startswith(quote, at):
        character, length = _next(text, at, escapes=quote[0] == '"')
        if character:
            characters.append((character, at))
        at += length
    return [*characters, (quote, at)]


def _next(text: str, at: int, *, escapes: bool) -> tuple[str, int]:
    """The next character of the value (empty at a folded line end), and how much of the text it takes."""
    if not escapes or text[at] != "\\":
        return text[at], 1
    if match := _LINE_ENDING.match(text, at):
        return "", len(match.group())
    match = _ESCAPE.match(text, at)
    if match is None:
        return text[at], 1
    number = match[1] or match[2]
    character = chr(min(int(number, 16), 0x10FFFF)) if number else _ESCAPES.get(match[3], match[3])
    return character, len(match.group())
