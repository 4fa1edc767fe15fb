"""Running a program one number at a time: the same steps in mpmath numbers or in balls.

mpmath numbers at the working precision of ``mpmath.mp`` are reference digits, without a proof. A value outside its
domain is nan, never a complex number and never an exception; nan goes on through every operation, comparisons included.
An infinite value means what it means in float64: log(0) is -inf.

>>> DIGITS.operations["rpow"](mpmath.mpf(8), 2, 3)
mpf('4.0')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import mpmath

from bilevel_sym.arithmetic import balls
from bilevel_sym.graph import operations as records
from bilevel_sym.graph.operations.record import Operation
from bilevel_sym.graph.precision import mpmath_precision
from bilevel_sym.graph.program import Program, Step

__all__ = ["BALLS", "SMOOTH_BALLS", "Arithmetic", "ScalarProgram", "constant_values"]


@dataclass(frozen=True)
class Arithmetic:
    """One kind of number: what each operation does to it, how a rational becomes one, and how precision is set."""

    operations: Mapping[str, Callable[..., Any]]
    constant: Callable[[int, int], Any]
    precision: Callable[[int], AbstractContextManager[object]]


def digits_rule(record: Operation) -> Callable[..., Any]:
    """What a record says of mpmath numbers; nan below its domain.

    >>> digits_rule(records.OPERATIONS["log"])(mpmath.mpf(-1))
    mpf('nan')
    """
    function = record.rule("mpmath")
    if record.domain == -math.inf or not record.is_function:
        return function
    return lambda z: mpmath.nan if z < record.domain else function(z)


BALLS = Arithmetic(balls.OPERATIONS, balls.constant, balls.precision)
SMOOTH_BALLS = Arithmetic(balls.SMOOTH, balls.constant, balls.precision)
OPEN_BALLS = Arithmetic(balls.OPEN, balls.constant, balls.precision)
DIGITS = Arithmetic(
    MappingProxyType({name: digits_rule(record) for name, record in records.OPERATIONS.items()}),
    lambda p, q: mpmath.mp.make_mpf(mpmath.libmp.from_rational(p, q, mpmath.mp.prec, "n")),
    mpmath_precision,
)

Values = list[Any]
Call = Callable[[Values], None]


class ScalarProgram:
    """A program ready to run in one arithmetic at the precision (in bits) that is set while it is made and run.

    >>> from bilevel_sym.graph.nodes import Graph
    >>> from bilevel_sym.graph.program import build
    >>> graph = Graph(1)
    >>> program = build(graph, [[0]], {"e": ((), [graph.apply("exp", graph.variables[0])])})
    >>> with BALLS.precision(100):
    ...     ready = ScalarProgram(program, BALLS)
    ...     values = ready.start()
    ...     ready.put(values, 0, [BALLS.constant(1, 1)])
    ...     print(ready.output(values, "e")[0].str(10, radius=False))
    2.718281828
    """

    def __init__(self, program: Program, arithmetic: Arithmetic) -> None:
        self.program = program
        self._stages = [[_call(step, arithmetic) for step in stage] for stage in program.stages]
        self._start = _constants(program, arithmetic)

    def start(self) -> Values:
        """A new table of values with the constants in place."""
        return list(self._start)

    def put(self, values: Values, stage: int, inputs: Sequence[Any]) -> None:
        """Give the inputs of one stage, and perform it; earlier stages must have been performed."""
        places = self.program.inputs[stage]
        values[places.start : places.stop] = inputs
        self.run(values, stage)

    def run(self, values: Values, stage: int) -> None:
        """Perform one stage; its inputs, and all earlier stages, must be in ``values``."""
        for call in self._stages[stage]:
            call(values)

    def output(self, values: Sequence[Any], name: str) -> list[Any]:
        """The entries of one output, flat."""
        return [values[place] for place in self.program.outputs[name].places]


def _constants(program: Program, arithmetic: Arithmetic) -> Values:
    values: Values = [None] * program.size
    values[0] = arithmetic.constant(1, 1)
    for step in program.constants:
        _call(step, arithmetic)(values)
    return values


def _call(step: Step, arithmetic: Arithmetic) -> Call:
    if step.op == "lin":
        return _linear(step, arithmetic)
    operation, parameter = arithmetic.operations[step.op], step.parameter
    if not step.sources:  # a constant of its own, such as pi
        return lambda values: values.__setitem__(step.first, operation())
    arguments = list(zip(*step.sources, strict=True))

    def call(values: Values) -> None:
        values[step.first : step.first + step.size] = [
            operation(*[values[arg] for arg in args], *parameter) for args in arguments
        ]

    return call


def _linear(step: Step, arithmetic: Arithmetic) -> Call:
    # a coefficient of one is left out: a product costs more than a sum
    rows = [
        [(place, None if c == 1 else arithmetic.constant(int(c.p), int(c.q))) for place, c in row] for row in step.rows
    ]

    def call(values: Values) -> None:
        for place, row in zip(step.places, rows, strict=True):
            total = None
            for k, c in row:
                term = values[k] if c is None else c * values[k]
                total = term if total is None else total + term
            values[place] = total

    return call


def constant_values(program: Program, arithmetic: Arithmetic, bits: int) -> list[tuple[int, Any]]:
    """(place, value) of every node that depends on no input.

    >>> from bilevel_sym.graph.nodes import Graph
    >>> from bilevel_sym.graph.program import build
    >>> graph = Graph(1)
    >>> program = build(graph, [[0]], {"p": ((), [graph.apply("pi")])})
    >>> [(place, float(value)) for place, value in constant_values(program, BALLS, 100)]
    [(2, 3.141592653589793)]
    """
    if not program.constants:
        return []
    with arithmetic.precision(bits):
        values = _constants(program, arithmetic)
    return [(place, values[place]) for step in program.constants for place in step.places]
