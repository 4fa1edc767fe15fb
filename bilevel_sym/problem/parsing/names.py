"""Names in the text door: which a person may declare, and what an unknown one was meant to be."""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.operations import IN_TEXT

__all__ = ["CONSTANTS", "EXTREMA", "RESERVED", "UNARY_NAMES", "check_name", "suggestion"]

UNARY_NAMES = ("sqrt", *(name for name, record in IN_TEXT.items() if record.arity == 1))
EXTREMA = tuple(name for name, record in IN_TEXT.items() if record.arity == 2)
CONSTANTS = ("pi", "E")
RESERVED = frozenset({*UNARY_NAMES, *EXTREMA, *CONSTANTS, "Piecewise", *keyword.kwlist})

_MAX_LENGTH = 64
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)

# What people write from habit; the spelling is too far from ours for a search by likeness.
_HABITS: Mapping[str, str] = MappingProxyType(
    {
        **{habit: name for name, record in IN_TEXT.items() for habit in record.habits},
        "e": "E",
        "Heaviside": "Piecewise((0, x < 0), (1, True))",
        "pow": "a**b",
        "power": "a**b",
        "cbrt": "a**(1/3)",
        "relu": "max(0, a)",
    }
)


_NOT_NUMBERS = frozenset({"nan", "inf", "oo", "infinity"})


def check_name(name: object, what: str = "variable") -> str:
    """``name`` itself, if it can stand for a variable in text; InvalidProblem otherwise.

    >>> check_name("x_1")
    'x_1'
    >>> check_name("sin", "parameter")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: parameter: 'sin' already has a meaning in expressions
    try: choose another name, such as 'sin_'
    """
    if not isinstance(name, str):
        raise InvalidProblem(f"{what}: a name must be text, not {type(name).__name__}")
    if not _NAME.fullmatch(name) or len(name) > _MAX_LENGTH:
        raise InvalidProblem(
            f"{what}: {name[:_MAX_LENGTH]!r} is not a name",
            hint=f"a letter, then letters, digits or _; ASCII, at most {_MAX_LENGTH} characters",
        )
    if name in RESERVED:
        raise InvalidProblem(
            f"{what}: {name!r} already has a meaning in expressions",
            hint=f"choose another name, such as '{name}_'",
        )
    return name


def suggestion(name: str, declared: Iterable[str], *, otherwise: str | None = None) -> str:
    """What to try in place of an unknown name.

    >>> suggestion("gama", ["gamma", "x"]), suggestion("ln", ["x"])
    ('did you mean gamma?', 'did you mean log?')
    >>> suggestion("q", ["x", "y"])
    'the declared names are x, y; constants go into parameters'
    >>> suggestion("nan", ["x"])
    'only finite numbers make sense here'
    """
    names = list(declared)
    if name.lower() in _NOT_NUMBERS and name not in names:
        return "only finite numbers make sense here"
    if name in _HABITS:
        return f"did you mean {_HABITS[name]}?"
    known = [*names, *UNARY_NAMES, *EXTREMA, *CONSTANTS, "Piecewise"]
    same = [other for other in known if other.lower() == name.lower()]
    # likeness takes quadratic time in the length: compare what a person could have mistyped, no more
    near = same or (difflib.get_close_matches(name, known[:1000], n=1) if len(name) <= _MAX_LENGTH else [])
    if near:
        return f"did you mean {near[0]}?"
    if otherwise is not None:
        return otherwise
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"the declared names are {shown}; constants go into parameters" if names else "no names are declared"
