"""What is known of one operation: a record. The arithmetics extend it, by its shape, from points to balls and boxes.

Arb bounds a function over a narrow ball by its slope. Over a wide one that is loose or nan (``arb(0, 20).tanh()``), so
wide balls are evaluated at the two ends, where the function is monotone. A ball that leaves the domain becomes nan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from operator import methodcaller
from types import MappingProxyType
from typing import Any, Literal

import mpmath
import numpy as np
import sympy as sp
from flint import arb, fmpq

__all__ = ["LANGUAGES", "ZERO_TO_ONE", "Operation", "Shape", "Source", "over_balls"]

LANGUAGES: Mapping[str, str] = MappingProxyType({"numpy": "np", "jax": "jnp", "torch": "torch"})
"""The libraries that source is written for, and what each is called in it."""

Ball = Any  # flint.arb
NAN = arb("nan")
ZERO_TO_ONE = arb(0.5, 0.5).nonnegative_part()  # [0, 1], with a lower end that is exactly zero
_NARROW = arb(2) ** -20


@dataclass(frozen=True)
class Source:
    """An operation in Python source, entry by entry; with {} for the arguments.

    - ``numpy``: the call; the others are the same with ``jnp`` or ``torch`` for ``np``, but for ``others``.
    - ``others``: the calls of libraries that have another name for it.
    - ``definitions``: by library, the function that a call needs, where the library has none that would do.

    >>> Source("np.exp({})").call("jax"), Source("np.exp({})").definition("jax")
    ('jnp.exp({})', '')
    """

    numpy: str
    others: Mapping[str, str] = field(default_factory=dict)
    definitions: Mapping[str, str] = field(default_factory=dict)

    def call(self, language: str) -> str:
        """The call in one library."""
        return self.others.get(language) or self.numpy.replace("np.", f"{LANGUAGES[language]}.")

    def definition(self, language: str) -> str:
        """What must be defined before; nothing, mostly."""
        return self.definitions.get(language, "")


@dataclass(frozen=True)
class Shape:
    """How an operation runs; its ranges over intervals and wide balls follow.

    - "monotone": it grows from ``least`` to ``most``;
    - "rising", "falling": it is even, and grows, or falls, on the positive half line, between ``least`` and ``most``;
    - "wave": a cosine with its crests at pi (shift + even) and its troughs at pi (shift + odd);
    - "branches": it grows from -inf to inf between its poles at pi (shift + whole);
    - "switch": one of its arguments, or one of a few constants;
    - "own": products, powers and pi, for which every arithmetic has code of its own.

    >>> Shape("monotone", 0.0).most
    inf
    """

    kind: Literal["monotone", "rising", "falling", "wave", "branches", "switch", "own"]
    least: float = -math.inf
    most: float = math.inf
    shift: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation and its meaning everywhere. A rule that does not apply to an operation stays None.

    - ``name``: in the graph, and in text where ``in_text``; ``habits`` are other spellings that people try;
    - ``sympy``: SymPy's class, or what builds the expression of an operation that has no class;
    - ``domain``: values are real where the argument is above it (for roots: or at it);
    - ``largest``: constants beyond it are not worth computing;
    - ``derivative``: (graph, z, itself, or its parameters) -> the derivative, as a form of the graph;
    - ``folded``: a rational argument -> the rational value, or None where the value is not kept as a number;
    - ``numpy``: of arrays; where ``composed``, ``library=`` says whose exp and log1p it uses;
    - ``compiled``: of one float, as numba understands it; None: of vectors, in ``compiled.elementwise``;
    - ``mpmath``: of numbers in the domain, at the working precision;
    - ``ball``: of balls, tight where they are narrow; ``smooth_ball``: nan where the operation is not smooth;
    - ``series``: of a truncated power series of balls, by another way than ``derivative``;
    - ``source``: a call in Python source, for each library;
    - ``inverse``: (r, shorten) -> all z with h(z) = r in SymPy; ``undoes`` names the operation h(h^-1(z)) = z;
    - ``in_exp``: SymPy writes it with exp and log;
    - ``excess``: nanoseconds a value that numba takes longer than NumPy, over 100 nodes and a full batch;
    - ``bounds``: T -> sup |h^(k)| over |t| <= T for k = 0 to 4, exactly or from above.

    >>> Operation(name="mul", arity=2, shape=Shape("own")).is_function
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
    source: Source | None = None
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
        return self.shape.kind not in ("switch", "own")

    @property
    def is_periodic(self) -> bool:
        """Whether its values come back."""
        return self.shape.kind in ("wave", "branches")

    @property
    def is_partial(self) -> bool:
        """Whether it has poles, or an end of its domain."""
        return self.shape.kind == "branches" or self.domain > -math.inf

    @property
    def parity(self) -> str | None:
        """ "odd" or "even", where it is: a function that is zero at zero is odd here."""
        if self.shape.kind in ("rising", "falling") or self.shape == Shape("wave"):
            return "even"
        return "odd" if self.folded is not None and self.is_function and self.folded(fmpq(0)) == 0 else None

    @property
    def is_ufunc(self) -> bool:
        """Whether NumPy computes it in one call."""
        return isinstance(self.numpy, np.ufunc)


def function(name: str, shape: Shape, derivative: Callable[..., Any], **others: Any) -> Operation:
    """The record of a function that SymPy, NumPy, C, mpmath and Arb know by its name, but for ``others``.

    >>> function("atan", Shape("monotone"), lambda graph, z, itself: z).source.numpy
    'np.arctan({})'
    """
    numpy = getattr(np, name, None)
    known = {
        "sympy": getattr(sp, name, None), "in_text": True, "numpy": numpy, "compiled": getattr(math, name, None),
        "mpmath": getattr(mpmath, name, None), "ball": methodcaller(name), "series": methodcaller(name),
        "source": Source(f"np.{getattr(numpy, '__name__', name)}({{}})"),
    }  # fmt: skip
    return Operation(name=name, shape=shape, derivative=derivative, **{**known, **others})


def at_zero(p: int, q: int = 1) -> Callable[[fmpq], fmpq | None]:
    """The folding of a function whose only rational value at a rational number is p/q at 0.

    >>> at_zero(1)(fmpq(0)), at_zero(1)(fmpq(2))
    (1, None)
    """
    return lambda z: fmpq(p, q) if z == 0 else None


def opened(graph: Any, z: Any) -> Any:
    """A sum that is a node, written out, so that multiples of it are sums and no nodes on nodes.

    >>> from bilevel_sym.graph.nodes import Graph
    >>> graph = Graph(2)
    >>> a, b = graph.variables
    >>> opened(graph, graph.form(graph.node_of(a + b))).terms
    {0: 1, 1: 1}
    """
    return graph.form(graph.node_of(z))


def over_balls(record: Operation) -> Callable[..., Ball]:
    """What a record's rule for balls makes of balls of any width.

    >>> from bilevel_sym.graph.operations import OPERATIONS
    >>> over_balls(OPERATIONS["tanh"])(arb(0, 20)).rad() < 1.001
    True
    """
    rule, shape = record.rule("ball"), record.shape
    match shape.kind:
        case "monotone":
            extended = _cut(lambda x: monotone(rule, x), shape.least)
            return extended if record.domain == -math.inf else lambda x: extended(x) if x > record.domain else NAN
        case "rising" | "falling":
            return _cut(lambda x: even(rule, x), shape.least)
        case "branches":
            return lambda x: rule(x) if _narrow(x) or not rule(x).is_finite() else monotone(rule, x)
    return rule


def _cut(function: Callable[[Ball], Ball], least: float) -> Callable[[Ball], Ball]:
    return (lambda x: positive(function(x))) if least >= 0 else function


def _narrow(x: Ball) -> bool:
    """Small relative to its distance from zero and to 1: the slope gives a tight answer."""
    return bool(x.is_exact()) or bool(x.rad() < _NARROW and x.rad() < x.abs_lower() * _NARROW)


def monotone(function: Callable[[Ball], Ball], x: Ball) -> Ball:
    """The range of a function that is monotone on the ball.

    >>> monotone(arb.exp, arb(0, 1)) > 0
    True
    """
    return function(x) if _narrow(x) or not x.is_finite() else function(x.lower()).union(function(x.upper()))


def even(function: Callable[[Ball], Ball], x: Ball) -> Ball:
    """The range of an even function that is monotone on the positive half line.

    >>> even(arb.cosh, arb(0, 1)) < 2
    True
    """
    return function(x) if _narrow(x) or not x.is_finite() else function(x.abs_lower()).union(function(x.abs_upper()))


def positive(x: Ball) -> Ball:
    """Cut off what a rounded radius put below zero; only for values known to be nonnegative.

    >>> positive(arb(0, 1)) >= 0
    True
    """
    return x.nonnegative_part() if x.is_finite() and not x >= 0 else x
