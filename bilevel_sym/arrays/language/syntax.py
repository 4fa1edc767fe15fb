"""The syntax tree of a formula with arrays: what was written, and where.

``place`` is the character that a complaint points at: an operator, the name of a function, the start of a number.
Sums and products are kept flat, so that a long one is no deep one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

__all__ = [
    "AXIS_FUNCTIONS",
    "FUNCTIONS",
    "Call",
    "Comparison",
    "Constant",
    "Link",
    "Name",
    "Negated",
    "Node",
    "Number",
    "Piecewise",
    "Power",
    "Product",
    "Refused",
    "Sum",
    "Transposed",
]

AXIS_FUNCTIONS = ("sum", "mean", "logsumexp")
FUNCTIONS = (*AXIS_FUNCTIONS, "dot", "trace", "diag", "outer")
"""The functions of arrays; all others go entry by entry."""


class Refused(Exception):
    """Why a formula is not read, and at which character; whoever has the text raises the error.

    - ``place``: the character.
    - ``message``: what is wrong.
    - ``hint``: what to try.

    >>> Refused(3, "these shapes do not fit").place
    3
    """

    def __init__(self, place: int, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.place, self.message, self.hint = place, message, hint


@dataclass(frozen=True)
class Node:
    """One piece of a formula.

    >>> Name(4, "y").place
    4
    """

    place: int


@dataclass(frozen=True)
class Number(Node):
    """A literal, exactly.

    >>> Number(0, Fraction(1, 2)).value
    Fraction(1, 2)
    """

    value: Fraction


@dataclass(frozen=True)
class Constant(Node):
    """pi or E.

    >>> Constant(0, "pi").name
    'pi'
    """

    name: str


@dataclass(frozen=True)
class Name(Node):
    """A variable, data or a parameter.

    >>> Name(0, "A").name
    'A'
    """

    name: str


@dataclass(frozen=True)
class Negated(Node):
    """-body.

    >>> Negated(0, Name(1, "y")).body.place
    1
    """

    body: Node


@dataclass(frozen=True)
class Link:
    """A further operand of a sum or a product: the sign before it, the place of that, and the operand.

    >>> Link("@", 2, Name(4, "y")).sign
    '@'
    """

    sign: str
    place: int
    operand: Node


@dataclass(frozen=True)
class Sum(Node):
    """Operands joined by + and -.

    >>> len(Sum(0, Name(0, "a"), (Link("+", 2, Name(4, "b")),)).rest)
    1
    """

    first: Node
    rest: tuple[Link, ...]


@dataclass(frozen=True)
class Product(Node):
    """Operands joined by ``*``, ``/`` and ``@``, from left to right.

    >>> Product(0, Name(0, "A"), (Link("@", 2, Name(4, "y")),)).rest[0].sign
    '@'
    """

    first: Node
    rest: tuple[Link, ...]


@dataclass(frozen=True)
class Power(Node):
    """base**exponent.

    >>> Power(1, Name(0, "y"), Number(3, Fraction(2))).exponent.place
    3
    """

    base: Node
    exponent: Node


@dataclass(frozen=True)
class Transposed(Node):
    """body.T.

    >>> Transposed(1, Name(0, "A")).body.place
    0
    """

    body: Node


@dataclass(frozen=True)
class Call(Node):
    """A function of one or more arguments; ``axis`` is what was written behind ``axis=``.

    >>> Call(0, "sum", (Name(4, "Z"),), 1).axis
    1
    """

    name: str
    arguments: tuple[Node, ...]
    axis: int | None = None


@dataclass(frozen=True)
class Comparison(Node):
    """A condition: left < right, or its like.

    >>> Comparison(2, "<", Name(0, "y"), Number(4, Fraction(0))).sign
    '<'
    """

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Piecewise(Node):
    """The value of the first piece whose condition holds; None is the condition that always does.

    >>> len(Piecewise(0, ((Name(11, "y"), None),)).pieces)
    1
    """

    pieces: tuple[tuple[Node, Comparison | None], ...]
