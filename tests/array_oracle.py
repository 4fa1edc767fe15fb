"""Numbers to hold array formulas against: exact fractions with made-up functions, balls of many digits, floats.

A made-up function has one rational value for each argument, the same everywhere, and keeps the identities that the graph
uses: odd and even functions are odd and even, and the logistic ones come from one exponential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from zlib import crc32

import numpy as np
from flint import arb, fmpq

from bilevel_sym.arrays.lowering import lower_form
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.graph.nodes import Graph, LinearForm
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.graph.precision import precision

BITS = 260
DIGITS = 45  # that two balls must share
EXACT = frozenset({"sin", "cos", "tan", "atan", "tanh", "sinh", "cosh", "softplus", "sigmoid", "bell", "log"})
RATIONAL = frozenset({"mul", "ipow", "abs", "sign", "min", "max", "lt", "le", "select", "lin", "var"})


class NoNumber(Exception):
    """A value does not exist, or is too wide, or the point lies on an edge."""


@dataclass(frozen=True)
class Field:
    """A kind of number: how it is made from a rational, and what an operation does to it."""

    number: Callable[[Fraction], Any]
    operation: Callable[..., Any]  # (name, parameter, *arguments)


# ---- fractions ------------------------------------------------------------------------------------------------------


def _made_up(name: str, z: Fraction) -> Fraction:
    return Fraction(crc32(f"{name}:{z}".encode()) % 89 + 1, 8)


def _exponential(z: Fraction) -> Fraction:
    """E(-z) = 1/E(z), and E(0) = 1."""
    if z < 0:
        return 1 / _exponential(-z)
    return Fraction(1) if z == 0 else _made_up("exp", z)


def _function(name: str, z: Fraction) -> Fraction:
    e = _exponential(z)
    if name in ("sigmoid", "bell"):
        return e / (1 + e) ** (1 if name == "sigmoid" else 2)
    if name == "tanh":
        return 2 * _function("sigmoid", 2 * z) - 1
    parity = OPERATIONS[name].parity
    if parity == "odd":
        return Fraction(0) if z == 0 else _made_up(name, abs(z)) * (1 if z > 0 else -1)
    if parity == "even":
        return Fraction(1) if z == 0 else _made_up(name, abs(z))
    return _made_up(name, z)


def _fraction_operation(name: str, parameter: Sequence[int], *args: Fraction) -> Fraction:
    if name == "mul":
        return args[0] * args[1]
    if name == "ipow":
        if parameter[0] < 0 and not args[0]:
            raise NoNumber
        power: Fraction = args[0] ** parameter[0]
        return power
    if name in EXACT:
        return _function(name, args[0])
    return _switch(name, *args)


def _switch(name: str, *args: Fraction) -> Fraction:
    one = args[0]
    if name in ("min", "max"):
        if one == args[1]:
            raise NoNumber
        return min(args) if name == "min" else max(args)
    if name == "select":
        return args[1] if one else args[2]
    if name in ("abs", "sign") and not one:
        raise NoNumber
    return {
        "abs": abs(one),
        "sign": Fraction((one > 0) - (one < 0)),
        "lt": Fraction(one < 0),
        "le": Fraction(one <= 0),
    }[name]


FRACTIONS = Field(Fraction, _fraction_operation)


# ---- balls and floats -----------------------------------------------------------------------------------------------


def _ball_operation(name: str, parameter: Sequence[int], *args: Any) -> Any:
    value = OPERATIONS[name].rule("ball")(*args, *parameter)
    if not value.is_finite():
        raise NoNumber
    return value


def _float_operation(name: str, parameter: Sequence[int], *args: float) -> float:
    record = OPERATIONS[name]
    if name == "pi":
        return float(np.pi)
    with np.errstate(all="ignore"):
        return float(record.rule("numpy")(*map(np.float64, args), *parameter))


BALLS = Field(lambda q: arb(fmpq(q.numerator, q.denominator)), _ball_operation)
FLOATS = Field(float, _float_operation)


def same(one: Any, two: Any) -> bool:
    """Equal fractions, or balls that agree to many digits; NoNumber where a ball is too wide to tell."""
    if isinstance(one, Fraction) and isinstance(two, Fraction):
        return one == two
    a, b = arb(one) if not isinstance(one, arb) else one, arb(two) if not isinstance(two, arb) else two
    if not (a.rel_accuracy_bits() > 4 * DIGITS or a.rad() < arb(10) ** -DIGITS) or not (
        b.rel_accuracy_bits() > 4 * DIGITS or b.rad() < arb(10) ** -DIGITS
    ):
        raise NoNumber
    return bool(a.overlaps(b))


# ---- the graph ------------------------------------------------------------------------------------------------------


def values(
    graph: Graph, forms: Iterable[LinearForm], point: Mapping[int, Any], field: Field, bits: int = BITS
) -> list[Any]:
    """Forms of a graph at a point."""
    wanted = list(forms)
    done: dict[int, Any] = {}
    with precision(bits):
        for node in graph.reachable({node for form in wanted for node in form.terms}):
            op, args = graph.op[node], [done[arg] for arg in graph.args[node]]
            if op == "var":
                done[node] = point[graph.parameter[node][0]]
            elif op == "lin":
                base, coefficients = graph.linear[node]
                done[node] = _sum(base, zip(coefficients, args, strict=True), field)
            else:
                done[node] = field.operation(op, graph.parameter[node], *args)
        return [_sum(form.constant, ((c, done[node]) for node, c in form.terms.items()), field) for form in wanted]


def _sum(base: fmpq, pairs: Iterable[tuple[fmpq, Any]], field: Field) -> Any:
    value = field.number(_fraction(base))
    for c, term in pairs:
        value = value + field.number(_fraction(c)) * term
    return value


def _fraction(number: fmpq) -> Fraction:
    return Fraction(int(number.p), int(number.q))


def field_of(graph: Graph) -> Field:
    """Fractions where the made-up functions keep every identity that may be used, else balls."""
    return FRACTIONS if set(graph.op) <= EXACT | RATIONAL else BALLS


@dataclass(frozen=True)
class Point:
    """A value for every leaf: variables are variables of a graph, data are numbers.

    - ``sizes``: of the dimensions.
    - ``variables``: the leaves that are variables, in order.
    - ``arrays``: arrays of fractions, by name, of variables and data.
    """

    sizes: Mapping[str, int]
    variables: Sequence[Leaf]
    arrays: Mapping[str, Any]

    @property
    def starts(self) -> dict[str, int]:
        """The number of the first variable of each leaf."""
        found, start = {}, 0
        for leaf in self.variables:
            found[leaf.name] = start
            start += self.entries(leaf)
        found[""] = start
        return found

    def entries(self, leaf: Leaf) -> int:
        """How many entries a leaf has."""
        return int(np.prod([self.sizes[dim] for dim in leaf.dims], dtype=int))

    def graph(self) -> Graph:
        """A graph for the variables."""
        return Graph(self.starts[""])

    def numbers(self, field: Field) -> dict[int, Any]:
        """The value of each variable of the graph."""
        flat = [value for leaf in self.variables for value in np.asarray(self.arrays[leaf.name], object).ravel()]
        with precision(BITS):
            return {k: field.number(value) for k, value in enumerate(flat)}

    def entry_of(self, graph: Graph, offset: int = 0) -> Callable[[Leaf, tuple[int, ...]], Any]:
        """What ``lower_form`` asks for."""
        starts = self.starts

        def entry(leaf: Leaf, place: tuple[int, ...]) -> Any:
            if leaf.name not in starts:
                return self.arrays[leaf.name][place]
            shape = [self.sizes[dim] for dim in leaf.dims]
            k = int(np.ravel_multi_index(place, shape)) if place else 0
            return graph.variables[starts[leaf.name] + k + offset]

        return entry

    def lowered(self, graph: Graph, tensor: Tensor) -> dict[tuple[int, ...], LinearForm]:
        """The entries of a tensor on the graph."""
        return lower_form(tensor, graph, self.entry_of(graph), self.sizes)
