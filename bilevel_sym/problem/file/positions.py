"""Where a string of a TOML file stands: tomllib gives values, but not their places."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["string_offsets"]

_ESCAPES: Mapping[str, str] = MappingProxyType(
    {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_LINE_ENDING = re.compile(r"\\[ \t]*\n[ \t\n]*")  # a backslash before a line break: neither is in the value
_QUOTES = ('"""', "'''", '"', "'")


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
