"""What is known of one operation: a record. The arithmetics extend it, by its shape, from points to balls and boxes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq

__all__ = ["Branches", "Even", "Monotone", "Operation", "Own", "Shape", "Switch", "Wave", "at_zero", "opened"]


@dataclass(frozen=True)
class Monotone:
    """A function that grows from ``least`` to ``most``.

    >>> Monotone(0.0, 1.0).most
    1.0
    """

    least: float
    most: float


@dataclass(frozen=True)
class Even:
    """An even function with values from ``least`` to ``most``, which grows, or falls, on the positive half line.

    >>> Even(0.0, 0.25, rising=False).rising
    False
    """

    least: float
    most: float
    rising: bool


@dataclass(frozen=True)
class Wave:
    """A cosine with its crests at pi (shift + even) and its troughs at pi (shift + odd).

    >>> Wave(0.5).shift
    0.5
    """

    shift: float


@dataclass(frozen=True)
class Branches:
    """A function that grows from -inf to inf between its poles at pi (shift + whole).

    >>> Branches(0.5).shift
    0.5
    """

    shift: float


@dataclass(frozen=True)
class Switch:
    """One of its arguments, or one of a few constants: constant or linear in pieces.

    >>> Switch()
    Switch()
    """


@dataclass(frozen=True)
class Own:
    """Products, powers and pi: every arithmetic has code of its own for them.

    >>> Own()
    Own()
    """


Shape = Monotone | Even | Wave | Branches | Switch | Own
_FUNCTIONS = (Monotone, Even, Wave, Branches)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation and its meaning everywhere. A rule that does not apply to an operation stays None.

    - ``name``: in the graph, and in text where ``in_text``; ``habits`` are other spellings that people try;
    - ``sympy``: SymPy's class, or what builds the expression of an operation that has no class;
    - ``shape``: how the function runs, from which intervals and wide balls follow;
    - ``domain``: values are real where the argument is above it (for roots: or at it);
    - ``largest``: constants beyond it are not worth computing;
    - ``derivative``: (graph, z, itself, or its parameters) -> the derivative, as a form of the graph;
    - ``folded``: a rational argument -> the rational value, or None where the value is not kept as a number;
    - ``numpy``: of arrays; where ``composed``, ``library=`` says whose exp and log1p it uses;
    - ``compiled``: of one float, as numba understands it; None: a function of vectors in ``tape.elementwise``;
    - ``mpmath``: of numbers in the domain, at the working precision;
    - ``ball``: of balls, tight where they are narrow; ``smooth_ball``: nan where the operation is not smooth;
    - ``series``: of a truncated power series of balls, by another way than ``derivative``;
    - ``source``: NumPy source of a call, with {} for the arguments;
    - ``inverse``: (r, shorten) -> all z with h(z) = r in SymPy; ``undoes`` names the operation h(h^-1(z)) = z;
    - ``in_exp``: SymPy writes it with exp and log;
    - ``excess``: nanoseconds a value that the compiled engine takes longer than NumPy, over 100 nodes and a full batch;
    - ``bounds``: T -> sup |h^(k)| over |t| <= T for k = 0 to 4, exactly or from above.

    >>> Operation(name="mul", arity=2, shape=Own()).is_function
    False
    """

    name: str
    arity: int = 1
    shape: Shape
    sympy: Any = None
    in_text: bool = False
    habits: tuple[str, ...] = ()
    domain: float = -math.inf
    largest: float = math.inf
    derivative: Callable[..., Any] | None = None
    folded: Callable[[fmpq], fmpq | None] | None = None
    numpy: Callable[..., Any] | None = None
    composed: bool = False
    compiled: Callable[[float], float] | None = None
    mpmath: Callable[..., Any] | None = None
    ball: Callable[..., Any] | None = None
    smooth_ball: Callable[..., Any] | None = None
    series: Callable[[Any], Any] | None = None
    source: str = ""
    inverse: Callable[[Any, Callable[[Any], Any]], tuple[Any, ...]] | None = None
    undoes: str | None = None
    in_exp: bool = False
    excess: float = 0.0
    bounds: Callable[[Fraction], tuple[Fraction, ...]] | None = None

    def rule(self, name: str) -> Callable[..., Any]:
        """One of its rules, by the name of the field; TypeError where there is none."""
        found: Callable[..., Any] | None = getattr(self, name)
        if found is None:
            raise TypeError(f"the operation {self.name} has no rule {name}")
        return found

    @property
    def is_function(self) -> bool:
        """Whether it is an analytic function of one argument."""
        return isinstance(self.shape, _FUNCTIONS)

    @property
    def parity(self) -> str | None:
        """ "odd" or "even", where it is: a function that is zero at zero is odd here."""
        if isinstance(self.shape, Even) or self.shape == Wave(0.0):
            return "even"
        return "odd" if self.folded is not None and self.is_function and self.folded(fmpq(0)) == 0 else None

    @property
    def is_periodic(self) -> bool:
        """Whether its values come back."""
        return isinstance(self.shape, (Wave, Branches))

    @property
    def is_partial(self) -> bool:
        """Whether it has poles, or an end of its domain."""
        return isinstance(self.shape, Branches) or self.domain > -math.inf

    @property
    def is_ufunc(self) -> bool:
        """Whether NumPy computes it in one call."""
        return isinstance(self.numpy, np.ufunc)


def at_zero(p: int, q: int = 1) -> Callable[[fmpq], fmpq | None]:
    """The folding of a function whose only rational value at a rational number is p/q at 0.

    >>> at_zero(1)(fmpq(0)), at_zero(1)(fmpq(2))
    (1, None)
    """
    value = fmpq(p, q)
    return lambda z: value if z == 0 else None


def opened(graph: Any, z: Any) -> Any:
    """A sum that is a node, written out, so that multiples of it are sums and no nodes on nodes.

    >>> from bilevel_sym.graph.nodes import Graph
    >>> graph = Graph(2)
    >>> a, b = graph.variables
    >>> opened(graph, graph.form(graph.node_of(a + b))).terms
    {0: 1, 1: 1}
    """
    return graph.form(graph.node_of(z))
