"""Intervals over many boxes at once: the steps of a program on pairs of tables, rounded outward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from flint import arb

from bilevel_sym.arithmetic import intervals
from bilevel_sym.arithmetic.arrays import dense
from bilevel_sym.arithmetic.scalars import BALLS, constant_values
from bilevel_sym.graph.program import Program, Row, Step
from bilevel_sym.typing import Floats

__all__ = ["CONSTANT_BITS", "SPARSE", "IntervalProgram", "IntervalSession", "Operations"]

Pair = tuple[Floats, Floats]
Call = Callable[[Floats, Floats], None]
Operations = Mapping[str, Callable[..., Pair]]

SPARSE = 8  # a matrix with fewer entries than one in so many is not multiplied as a whole
CONSTANT_BITS = 100  # more than a float holds, so that rounding outward is all that is lost


class IntervalProgram:
    """A program ready to run on boxes: every output encloses the values at all points of its box.

    >>> from bilevel_sym.graph.nodes import Graph
    >>> from bilevel_sym.graph.program import build
    >>> graph = Graph(1)
    >>> square = graph.power(graph.variables[0], 2)
    >>> session = IntervalProgram(build(graph, [[0]], {"s": ((), [square])})).session(1)
    >>> session.put(0, np.array([[-1.0]]), np.array([[2.0]]))
    >>> lo, hi = session.take("s")
    >>> bool(lo[0] <= 0 and 4 <= hi[0] < 4.01)
    True
    """

    def __init__(self, program: Program, operations: Operations = intervals.OPERATIONS) -> None:
        self.program = program
        constants = [(0, (1.0, 1.0))]
        constants += [(place, _outward(ball)) for place, ball in constant_values(program, BALLS, CONSTANT_BITS)]
        self.constant_places = np.array([place for place, _ in constants], dtype=np.intp)
        self.constants = np.array([ends for _, ends in constants])
        self.stages = tuple(tuple(_call(step, operations) for step in stage) for stage in program.stages)

    def session(self, lanes: int) -> IntervalSession:
        """New tables for so many boxes."""
        return IntervalSession(self, lanes)


class IntervalSession:
    """The tables of one run: one row a place, one column a box. See ``IntervalProgram``."""

    def __init__(self, ready: IntervalProgram, lanes: int) -> None:
        self._ready = ready
        self.lo, self.hi = np.empty((ready.program.size, lanes)), np.empty((ready.program.size, lanes))
        self.lo[ready.constant_places] = ready.constants[:, :1]
        self.hi[ready.constant_places] = ready.constants[:, 1:]

    def put(self, stage: int, lo: Floats, hi: Floats) -> None:
        """Give the boxes of one stage, (lanes, inputs) each end, and perform it."""
        inputs = self._ready.program.inputs[stage]
        self.lo[inputs.start : inputs.stop], self.hi[inputs.start : inputs.stop] = lo.T, hi.T
        for call in self._ready.stages[stage]:
            call(self.lo, self.hi)

    @property
    def lanes(self) -> int:
        """How many boxes."""
        return int(self.lo.shape[1])

    def inputs(self, stage: int) -> Pair:
        """The boxes of one stage, as they were given."""
        places = self._ready.program.inputs[stage]
        return self.lo[places.start : places.stop].T, self.hi[places.start : places.stop].T

    def take(self, name: str) -> Pair:
        """One output, lanes first: its lower and upper ends, (lanes, ...) each."""
        output = self._ready.program.outputs[name]
        rows, shape = np.array(output.places, dtype=np.intp), (self.lo.shape[1], *output.shape)
        lo, hi = (np.ascontiguousarray(table[rows].T).reshape(shape) for table in (self.lo, self.hi))
        return lo, hi


def _outward(ball: Any) -> tuple[float, float]:
    """The floats next to the ends of a ball; one number twice where it is that number exactly."""
    lo, hi = float(ball.lower()), float(ball.upper())
    if arb(lo) == ball:
        return lo, lo
    return float(np.nextafter(lo, -np.inf)), float(np.nextafter(hi, np.inf))


def _call(step: Step, operations: Operations) -> Call:
    to = slice(step.first, step.first + step.size)
    if step.op == "lin":
        return _linear(to, step.rows)
    operation = operations[step.op]
    sources = [np.array(source, dtype=np.intp) for source in step.sources]

    def call(lo: Floats, hi: Floats) -> None:
        lo[to], hi[to] = operation(*((lo[source], hi[source]) for source in sources), *step.parameter)

    return call


def _linear(to: slice, rows: Sequence[Row]) -> Call:
    entries, columns = sum(map(len, rows)), len({place for row in rows for place in row.places})
    return _sparse(to, rows) if SPARSE * entries < len(rows) * columns else _dense(to, rows)


def _sparse(to: slice, rows: Sequence[Row]) -> Call:
    """Entry by entry; where something is not finite, the dense way, which knows what to do."""
    source = np.array([place for row in rows for place in row.places], dtype=np.intp)
    c_lo, c_hi = np.array([intervals.enclose(int(c.p), int(c.q)) for row in rows for c in row.coefficients]).T
    starts = np.cumsum([0, *(len(row) for row in rows[:-1])])
    dense_way = cache(lambda: _dense(to, rows))

    def call(lo: Floats, hi: Floats) -> None:
        low, high = lo[source], hi[source]
        if np.isfinite(low).all() and np.isfinite(high).all():
            lo[to], hi[to] = intervals.scattered(c_lo, c_hi, starts, low, high)
        else:
            dense_way()(lo, hi)

    return call


def _dense(to: slice, rows: Sequence[Row]) -> Call:
    columns, c_lo = dense(rows, lambda c: intervals.enclose(int(c.p), int(c.q))[0])
    _, c_hi = dense(rows, lambda c: intervals.enclose(int(c.p), int(c.q))[1])
    source, nothing = np.array(columns, dtype=np.intp), np.zeros(len(rows))

    def call(lo: Floats, hi: Floats) -> None:
        lo[to], hi[to] = intervals.linear(c_lo, c_hi, nothing, nothing, lo[source], hi[source])

    return call
