"""A function far out: its range over all numbers beyond some distance, where powers grow and fall against each other.

On a tail every value is kept as |z|**p times an interval. Products add the exponents, sums take the larger one, and
what is left of z*z/(1 + z*z)**(3/2) is |z|**-1 times an interval: small, where plain intervals know no bound at all.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from bilevel_sym.arithmetic.boxes import CONSTANT_BITS
from bilevel_sym.arithmetic.intervals import PROVED, enclose
from bilevel_sym.arithmetic.scalars import BALLS, constant_values
from bilevel_sym.graph.program import Program, Row, Step

__all__ = ["tail_ranges"]


class Scaled(NamedTuple):
    """|z|**power times a number between two ends, for all z of a tail.

    >>> Scaled(Fraction(2), 1.0, 1.0).low
    1.0
    """

    power: Fraction
    low: float
    high: float


def tail_ranges(program: Program, start: float, side: int) -> tuple[float, float]:
    """The range of the output "h" of a program of one variable, over z >= start (or z <= -start for side -1).

    >>> from bilevel_sym.graph.nodes import Graph, constant
    >>> from bilevel_sym.graph.program import build
    >>> graph = Graph(1)
    >>> z = graph.variables[0]
    >>> root = graph.power(constant(1) + graph.power(z, 2), -1, 2)
    >>> low, high = tail_ranges(build(graph, [[0]], {"h": ((), [graph.mul(z, root)])}), 1024.0, 1)
    >>> bool(0.999 < low < 1), bool(1 <= high < 1.001)
    (True, True)
    """
    if len(program.inputs[0]) != 1:
        return -math.inf, math.inf
    known: dict[int, Scaled] = {0: Scaled(Fraction(0), 1.0, 1.0), 1: Scaled(Fraction(1), float(side), float(side))}
    for place, ball in constant_values(program, BALLS, CONSTANT_BITS):
        low, high = (math.nextafter(float(ball.lower()), -math.inf), math.nextafter(float(ball.upper()), math.inf))
        known[place] = Scaled(Fraction(0), low, high)
    for step in (step for stage in program.stages for step in stage):
        for k, place in enumerate(step.places):
            known[place] = _performed(step, k, known, start)
    return _plain(known[program.outputs["h"].places[0]], start)


def _performed(step: Step, k: int, known: dict[int, Scaled], start: float) -> Scaled:
    if step.op == "lin":
        return _sum(step.rows[k], known, start)
    arguments = [known[source[k]] for source in step.sources]
    if step.op == "mul":
        one, two = arguments
        return Scaled(one.power + two.power, *_ends("mul", one, two))
    if step.op == "ipow" and (step.parameter[0] > 0 or arguments[0].low > 0 or arguments[0].high < 0):
        return Scaled(arguments[0].power * step.parameter[0], *_ends("ipow", *arguments, parameter=step.parameter))
    if step.op == "rpow" and arguments[0].low > 0:
        return Scaled(
            arguments[0].power * Fraction(*step.parameter), *_ends("rpow", *arguments, parameter=step.parameter)
        )
    plain = [Scaled(Fraction(0), *_plain(argument, start)) for argument in arguments]
    return Scaled(Fraction(0), *_ends(step.op, *plain, parameter=step.parameter))


def _sum(row: Row, known: dict[int, Scaled], start: float) -> Scaled:
    """With the largest exponent of all; |z|**-q is between 0 and start**-q there."""
    most = max((known[place].power for place in row.places), default=Fraction(0))
    low = high = 0.0
    for place, number in row:
        power, *ends = known[place]
        part = Scaled(Fraction(0), *ends)
        if power < most:
            part = Scaled(Fraction(0), *_ends("mul", part, Scaled(Fraction(0), 0.0, _power(start, power - most)[1])))
        factor = Scaled(Fraction(0), *enclose(int(number.p), int(number.q)))
        one, two = _ends("mul", part, factor)
        low, high = math.nextafter(low + one, -math.inf), math.nextafter(high + two, math.inf)
    return Scaled(most, low, high)


def _power(start: float, exponent: Fraction) -> tuple[float, float]:
    """start**exponent, enclosed."""
    if exponent == 0:
        return 1.0, 1.0
    at = np.array([start])
    low, high = PROVED["rpow"]((at, at), exponent.numerator, exponent.denominator)
    return float(low[0]), float(high[0])


def _plain(value: Scaled, start: float) -> tuple[float, float]:
    """As an interval."""
    if value.power == 0 or value.low == value.high == 0:
        return value.low, value.high
    least, most = _power(start, value.power)
    ends = (least, math.inf) if value.power > 0 else (0.0, most)
    return _ends("mul", Scaled(Fraction(0), value.low, value.high), Scaled(Fraction(0), *ends))


def _ends(op: str, *arguments: Scaled, parameter: tuple[int, ...] = ()) -> tuple[float, float]:
    low, high = PROVED[op](*((np.array([a.low]), np.array([a.high])) for a in arguments), *parameter)
    if math.isnan(low[0]) or math.isnan(high[0]):
        return -math.inf, math.inf
    return float(low[0]), float(high[0])
