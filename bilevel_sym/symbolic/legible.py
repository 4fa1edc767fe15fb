"""What a person still reads, counted in symbols, operations and digits: never by how long something takes."""

from __future__ import annotations

from collections.abc import Iterable

import sympy as sp

from bilevel_sym.errors import TooLarge
from bilevel_sym.graph.expressions import written_size

__all__ = ["IN_FULL", "LEGIBLE", "check_legible", "is_legible", "size_in_words"]

LEGIBLE = 400  # symbols, operations and digits of one entry in plain text: a dozen lines of a terminal
IN_FULL = "derive(problem).y_star, .phi, .grad_phi and .hess_phi"


def is_legible(entries: Iterable[sp.Expr]) -> bool:
    """Whether a person reads each of the entries.

    >>> x = sp.Symbol("x")
    >>> is_legible([x + 1]), is_legible([x + sp.Integer(7) ** 500])
    (True, False)
    """
    return max(map(written_size, entries), default=0) <= LEGIBLE


def check_legible(name: str, entries: Iterable[sp.Expr]) -> None:
    """TooLarge where an entry of a formula would fill a screen.

    >>> check_legible("phi", [sp.Symbol("x") + sp.Integer(7) ** 500])
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.TooLarge: phi is not written out: an entry has 425 symbols, operations and digits
    """
    largest = max(map(written_size, entries), default=0)
    if largest > LEGIBLE:
        raise TooLarge(f"{name} is not written out: an entry has {size_in_words(largest)}")


def size_in_words(size: int) -> str:
    """A size for people.

    >>> size_in_words(12345)
    '12,345 symbols, operations and digits'
    """
    return f"{size:,} symbols, operations and digits"
