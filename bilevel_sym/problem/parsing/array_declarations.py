"""What declares arrays: ``"lam, W[p, q]"`` for variables, ``"m, n"`` or ``"n, n symmetric"`` for data."""

from __future__ import annotations

import re
from typing import NamedTuple

from bilevel_sym.arrays.language import syntax
from bilevel_sym.errors import InvalidProblem, UnsafeExpression
from bilevel_sym.problem.parsing.names import check_name
from bilevel_sym.problem.parsing.tokens import MAX_LENGTH, Source

__all__ = ["Declaration", "array_name", "declared", "declared_shape", "has_brackets"]

MAX_SIZE = 10**9  # entries along an axis
MAX_AXES = 2
SYMMETRIC, SCALAR = "symmetric", "scalar"

_ITEM = re.compile(r"(?P<name>[^\s,\[\]]++) \s*+ (?: \[ (?P<axes>[^\[\]]*+) (?P<close>\]?+) )?+", re.VERBOSE)
_BETWEEN = re.compile(r"[\s,]*+")
_WORD = re.compile(r"[^\s,]++")


class Declaration(NamedTuple):
    """A name and its axes, each a letter or a number; ``symmetric`` was written behind them.

    >>> Declaration("W", ("p", 3)).symmetric
    False
    """

    name: str
    axes: tuple[str | int, ...]
    symmetric: bool = False


def has_brackets(given: object) -> bool:
    """Whether what declares variables declares an array.

    >>> has_brackets("x1 x2"), has_brackets(["lam", "W[p, q]"])
    (False, True)
    """
    if isinstance(given, str):
        return "[" in given or "]" in given
    return isinstance(given, (list, tuple)) and any(isinstance(item, str) and has_brackets(item) for item in given)


def declared(text: str, role: str) -> tuple[Declaration, ...]:
    """The arrays and scalars that a text declares, separated by spaces, or by commas outside brackets.

    >>> declared("lam, W[p, 3]", "y")
    (Declaration(name='lam', axes=(), symmetric=False), Declaration(name='W', axes=('p', 3), symmetric=False))
    """
    source = Source(text, role)
    if len(text) > MAX_LENGTH:
        raise Source("", role).error(0, f"the text has {len(text)} characters, and {MAX_LENGTH} are accepted")
    found = []
    at = _end(_BETWEEN, text, 0)
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None:
            raise source.error(at, "a bracket stands where a name should", "x[n], or W[p, q]")
        if item["close"] == "":
            raise source.error(item.start("axes") - 1, "this bracket is not closed", "x[n], or W[p, q]")
        axes = () if item["axes"] is None else _axes(item["axes"], source, item.start("axes"))
        if item["axes"] is not None and not axes:
            raise source.error(item.start("axes") - 1, "the brackets are empty", "x[n], or W[p, q]; a scalar has none")
        found.append(Declaration(item["name"], axes))
        at = _end(_BETWEEN, text, item.end())
    return tuple(found)


def declared_shape(text: str, name: str) -> Declaration:
    """The shape of data, in letters or numbers; "n, n symmetric" says that transposing changes nothing.

    >>> declared_shape("n, n symmetric", "K")
    Declaration(name='K', axes=('n', 'n'), symmetric=True)
    """
    source = Source(text, f"the data {name}")
    if len(text) > MAX_LENGTH:
        raise Source("", source.name).error(0, f"the text has {len(text)} characters, and {MAX_LENGTH} are accepted")
    inside = text.strip()
    if inside == SCALAR:
        return Declaration(name, ())
    words = inside.split()
    symmetric = len(words) > 1 and words[-1] == SYMMETRIC
    start = len(text) - len(text.lstrip())
    axes = _axes(inside.removesuffix(SYMMETRIC) if symmetric else inside, source, start)
    if not axes:
        raise source.error(0, "the shape is empty", f"'m, n', 'n', or {SCALAR!r}")
    if symmetric and (len(axes) != MAX_AXES or axes[0] != axes[1]):
        raise source.error(text.rfind(SYMMETRIC), "only a square matrix is symmetric", "'n, n symmetric'")
    return Declaration(name, axes, symmetric)


def array_name(name: object, what: str) -> str:
    """``name``, if it can stand for a variable, data or a dimension beside arrays.

    >>> array_name("mean", "y")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: y: 'mean' is a function of arrays
    try: choose another name, such as 'mean_'
    """
    text = check_name(name, what)
    if text in syntax.FUNCTIONS:
        raise InvalidProblem(
            f"{what}: {text!r} is a function of arrays", hint=f"choose another name, such as '{text}_'"
        )
    return text


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _axes(text: str, source: Source, start: int) -> tuple[str | int, ...]:
    axes = [_axis(word.group(), source, start + word.start()) for word in _WORD.finditer(text)]
    if len(axes) > MAX_AXES:
        raise source.error(start, f"an array has at most {MAX_AXES} axes, and this has {len(axes)}")
    return tuple(axes)


def _axis(word: str, source: Source, place: int) -> str | int:
    if word.isascii() and word.isdigit():
        if len(word) > len(str(MAX_SIZE)) or not 0 < int(word) <= MAX_SIZE:
            raise source.error(place, f"an axis has 1 to {MAX_SIZE:,} entries")
        return int(word)
    try:
        return array_name(word, "a dimension")
    except UnsafeExpression:
        raise
    except InvalidProblem as error:
        raise source.error(place, error.message, error.hint) from None
