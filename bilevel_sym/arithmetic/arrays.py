"""Float64 arrays: a program as a list of NumPy calls over (places, lanes), one call for each step.

Nothing raises on overflow or outside a domain: IEEE infinities and NaN are what the callers look for.

A library's matrix product may sum in another order when the number of lanes changes, so a lane alone and the same lane
among others can differ in the last bit. Batch-invariant programs take lanes by whole blocks of BLOCK_LANES and
multiply block by block: every lane then has the same bits wherever it stands, which solvers need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from flint import fmpq

from bilevel_sym.arithmetic.scalars import BALLS, constant_values
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.graph.program import Program, Row, Step
from bilevel_sym.typing import Bools, Floats, Indices

__all__ = [
    "BLOCK_LANES",
    "CONSTANT_BITS",
    "ArrayProgram",
    "ArraySession",
    "Encode",
    "batch_invariant_calls",
    "dense",
    "nearest",
    "whole_blocks",
]

Call = Callable[[Floats], object]
Encode = Callable[[Sequence[Step]], Call]  # the steps of a stage -> what performs them
Index = slice | Indices

BLOCK_LANES = 16  # lanes of a block: whole vector registers, and enough for a matrix product
CONSTANT_BITS = 300  # enough to round any constant of a formula to the nearest float


def nearest(value: fmpq) -> float:
    """The float nearest to a rational number; infinite beyond the range of floats.

    >>> nearest(fmpq(1, 3)) == 1/3
    True
    """
    if value.height_bits() <= 53:
        return float(value)  # a quotient of two floats
    try:
        return int(value.p) / int(value.q)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def whole_blocks(lanes: int) -> int:
    """The number of lanes, rounded up to whole blocks.

    >>> whole_blocks(1), whole_blocks(16), whole_blocks(17)
    (16, 16, 32)
    """
    return -(-lanes // BLOCK_LANES) * BLOCK_LANES


class ArrayProgram:
    """A program ready to run on float64 lanes. Stateless: what changes lives in its sessions.

    >>> from bilevel_sym.graph.nodes import Graph
    >>> from bilevel_sym.graph.program import build
    >>> graph = Graph(1)
    >>> program = ArrayProgram(build(graph, [[0]], {"e": ((), [graph.apply("exp", graph.variables[0])])}))
    >>> session = program.session(2)
    >>> session.put(0, np.array([[0.0], [1.0]]))
    >>> session.take("e")
    array([1.        , 2.71828183])
    """

    def __init__(self, program: Program, encode: Encode | None = None) -> None:
        """``encode`` turns the steps of a stage into a call; by default one NumPy call a step."""
        self.program = program
        # each constant of the formulas is rounded once, from its enclosure
        constants = constant_values(program, BALLS, CONSTANT_BITS)
        self.constant_places = np.array([0, *(place for place, _ in constants)], dtype=np.intp)
        self.constants = np.array([1.0, *(float(value) for _, value in constants)])
        self.stages = tuple((encode or _calls)(stage) for stage in program.stages)
        self.outputs = {name: _Scatter(program, name, self.constant_places, self.constants) for name in program.outputs}

    def session(self, lanes: int, *, batch_invariant: bool = False) -> ArraySession:
        """A new table of values for so many lanes; batch-invariant ones are filled up to whole blocks."""
        return ArraySession(self, lanes, whole_blocks(lanes) if batch_invariant else lanes)


class ArraySession:
    """The values of one run: one row a place, one column a lane. See ``ArrayProgram``.

    Columns beyond the lanes asked for are filling: they repeat the first lane.
    """

    def __init__(self, ready: ArrayProgram, lanes: int, width: int) -> None:
        self._ready, self._lanes = ready, lanes
        self.work = np.empty((ready.program.size, width))
        self.work[ready.constant_places] = ready.constants[:, None]
        self._buffers: dict[str, Floats] = {}

    def put(self, stage: int, values: Floats) -> None:
        """Give the inputs of one stage, (lanes, inputs), and perform it; earlier stages must have been performed."""
        inputs = self.inputs(stage)
        inputs[:, : self._lanes] = values.T
        if self._lanes < inputs.shape[1]:
            inputs[:, self._lanes :] = inputs[:, :1]
        with np.errstate(all="ignore"):
            self.perform(stage)

    def inputs(self, stage: int) -> Floats:
        """The inputs of one stage, (inputs, lanes), to be written before it is performed."""
        inputs = self._ready.program.inputs[stage]
        return self.work[inputs.start : inputs.stop]

    def perform(self, stage: int) -> None:
        """Perform one stage whose inputs are in their places. What NumPy thinks of overflows is the caller's choice."""
        self._ready.stages[stage](self.work)

    def take(self, name: str) -> Floats:
        """One output, lanes first: (lanes, ...). Valid until it is taken again."""
        scatter = self._ready.outputs[name]
        if name not in self._buffers:
            self._buffers[name] = scatter.buffer(self.work.shape[1])
        return scatter.fill(self.work, self._buffers[name])[: self._lanes]

    def rows(self, name: str) -> Floats:
        """One output, lanes last: (entries, lanes). Perhaps a view: valid until the next stage is performed."""
        return self.work[self._ready.outputs[name].index]


class _Scatter:
    """From rows of the table to an array with lanes first; constant entries are written once a session."""

    def __init__(self, program: Program, name: str, constant_places: Indices, constants: Floats) -> None:
        output = program.outputs[name]
        places = np.array(output.places, dtype=np.intp)
        fixed = dict(zip(constant_places.tolist(), constants.tolist(), strict=True))
        self.index = _index(output.places) if output.places else slice(0, 0)
        self._shape = output.shape
        self._template = np.array([fixed.get(place, 0.0) for place in output.places])
        self._columns = np.array([k for k, place in enumerate(output.places) if place not in fixed], dtype=np.intp)
        self._everything = 2 * len(self._columns) > len(places)
        self._rows = places if self._everything else places[self._columns]

    def buffer(self, lanes: int) -> Floats:
        buffer = np.empty((lanes, *self._shape))
        if not self._everything:
            buffer.reshape(lanes, len(self._template))[...] = self._template
        return buffer

    def fill(self, work: Floats, buffer: Floats) -> Floats:
        flat = buffer.reshape(work.shape[1], len(self._template))
        if self._everything:
            flat[...] = work.take(self._rows, axis=0).T
        elif len(self._columns):
            flat[:, self._columns] = work.take(self._rows, axis=0).T
        return buffer


# ---- one call a step ------------------------------------------------------------------------------------


Product = Callable[[Floats], Callable[[Floats, Floats], object]]  # matrix -> what multiplies (columns, out) by it


def _calls(steps: Sequence[Step]) -> Call:
    return _with_products(steps, _library_product)


def batch_invariant_calls(steps: Sequence[Step]) -> Call:
    """One NumPy call a step, every lane with the same bits wherever it stands; lanes come in whole blocks.

    >>> work = np.ones((2, BLOCK_LANES))
    >>> batch_invariant_calls([Step("exp", 1, 1, (), ((0,),))])(work)
    >>> len(set(work[1]))
    1
    """
    return _with_products(steps, _batch_invariant_product)


def _with_products(steps: Sequence[Step], product: Product) -> Call:
    calls = [_call(step, product) for step in steps]

    def all_of_them(work: Floats) -> None:
        for call in calls:
            call(work)

    return all_of_them


def _call(step: Step, product: Product) -> Call:
    if step.op == "lin":
        return _linear(step.first, step.rows, product)
    to = slice(step.first, step.first + step.size)
    sources = [_index(source) for source in step.sources]
    record = OPERATIONS[step.op]
    function = record.rule("numpy")
    if step.parameter or record.is_ufunc:
        return _in_place(function, to, sources, step.parameter)

    def call(work: Floats) -> None:
        work[to] = function(*(work[source] for source in sources))

    return call


def _index(places: Sequence[int]) -> Index:
    """A slice where the places are consecutive (a view), else an index (a copy)."""
    first = places[0]
    if tuple(places) == tuple(range(first, first + len(places))):
        return slice(first, first + len(places))
    return np.array(places, dtype=np.intp)


def _in_place(function: Callable[..., Any], to: slice, sources: Sequence[Index], parameter: Sequence[int]) -> Call:
    if len(sources) == 2:
        a, b = sources

        def binary(work: Floats) -> None:
            function(work[a], work[b], out=work[to])

        return binary
    (source,) = sources

    def unary(work: Floats) -> None:
        function(work[source], *parameter, out=work[to])

    return unary


# ---- linear combinations -------------------------------------------------------------------------------

DENSE_ALWAYS = 4096  # entries of a matrix that is multiplied as it stands, however empty
SHORT = 6  # terms of a row that is added term by term
HEAVY = 8  # a column is common if one row in so many reads it
DENSE_FILL = 16  # or, beyond that, where at least one entry in so many is not zero


def _linear(first: int, rows: Sequence[Row], product: Product) -> Call:
    table = _Table.of(rows)
    readers = np.bincount(table.places)
    # one matrix product is cheaper than adding term by term while it is not too empty: BLAS forgives many zeros
    if len(rows) * np.count_nonzero(readers) <= max(DENSE_ALWAYS, DENSE_FILL * len(table.places)):
        return _matrix_product(first, table, product)
    # columns that many rows read make a matrix; of what remains, long rows make another, short ones go term by term
    heavy = (HEAVY * readers >= len(rows))[table.places]
    rest = table.part(~heavy)
    lengths = np.bincount(rest.rows, minlength=len(rows))
    order = np.argsort(-lengths, kind="stable")
    long = int(np.count_nonzero(lengths > SHORT))
    common = _product_of(table.part(heavy).arranged(order), product)
    others = _product_of(rest.arranged(order[:long]), product)
    terms = _terms(rest.arranged(order[long:]))
    to = order + first

    def call(work: Floats) -> None:
        result = common(work)
        if long:
            result[:long] += others(work)
        for count, source, factor in terms:
            result[long : long + count] += work.take(source, axis=0) * factor
        work[to] = result

    return call


def dense(rows: Sequence[Row], rounded: Callable[[fmpq], float] = nearest) -> tuple[list[int], Floats]:
    """The places that take part, and the matrix of coefficients, each rounded to a float."""
    return _Table.of(rows, rounded).matrix()


class _Table(NamedTuple):
    """Rows, term by term: the number of the row, the place that it reads, the coefficient."""

    height: int
    rows: Indices
    places: Indices
    coefficients: Floats

    @classmethod
    def of(cls, rows: Sequence[Row], rounded: Callable[[fmpq], float] = nearest) -> _Table:
        number = np.repeat(np.arange(len(rows)), [len(row.places) for row in rows])
        places = np.array(list(chain.from_iterable(row.places for row in rows)), dtype=np.intp)
        return cls(len(rows), number, places, np.array([rounded(c) for row in rows for c in row.coefficients]))

    def part(self, keep: Bools) -> _Table:
        """Those terms alone."""
        return _Table(self.height, self.rows[keep], self.places[keep], self.coefficients[keep])

    def arranged(self, order: Indices) -> _Table:
        """Rows in another order, those that it leaves out without terms."""
        to = np.full(self.height, -1)
        to[order] = np.arange(len(order))
        kept = self._replace(rows=to[self.rows], height=len(order))
        return kept.part(kept.rows >= 0)

    def matrix(self) -> tuple[list[int], Floats]:
        """The places that take part, and the matrix of coefficients."""
        columns, position = np.unique(self.places, return_inverse=True)
        matrix = np.zeros((self.height, len(columns)))
        matrix[self.rows, position] = self.coefficients
        return columns.tolist(), matrix


def _product_of(table: _Table, product: Product) -> Callable[[Floats], Floats]:
    columns, matrix = table.matrix()
    if not columns:
        return lambda work: np.zeros((table.height, work.shape[1]))
    source, multiply = _index(columns), product(matrix)

    def call(work: Floats) -> Floats:
        result = np.empty((table.height, work.shape[1]))
        multiply(work[source], result)
        return result

    return call


def _matrix_product(first: int, table: _Table, product: Product) -> Call:
    columns, matrix = table.matrix()
    source, to, multiply = _index(columns), slice(first, first + table.height), product(matrix)

    def call(work: Floats) -> None:
        multiply(work[source], work[to])

    return call


def _library_product(matrix: Floats) -> Callable[[Floats, Floats], object]:
    return lambda columns, out: np.dot(matrix, columns, out=out)


def _batch_invariant_product(matrix: Floats) -> Callable[[Floats, Floats], object]:
    """Block by block; term by term if this machine's library should treat the lanes of a block differently."""

    def by_blocks(columns: Floats, out: Floats) -> None:
        if columns.shape[1] == BLOCK_LANES:  # the same product of the same shape, without views
            np.dot(matrix, columns, out=out)
        else:
            np.matmul(matrix, _blocks_of(columns), out=_blocks_of(out))

    def by_terms(columns: Floats, out: Floats) -> None:
        out[...] = 0.0
        for k, column in enumerate(columns):
            out += matrix[:, k : k + 1] * column

    probe = np.repeat(np.random.default_rng(0).standard_normal((matrix.shape[1], 1)), 3 * BLOCK_LANES, axis=1)
    wide, one = np.empty((len(matrix), 3 * BLOCK_LANES)), np.empty((len(matrix), BLOCK_LANES))
    by_blocks(probe, wide)
    by_blocks(probe[:, :BLOCK_LANES].copy(), one)
    return by_blocks if (wide == one[:, :1]).all() and (one == one[:, :1]).all() else by_terms


def _blocks_of(table: Floats) -> Floats:
    """A view (block, row, lane) of a table (row, lane)."""
    rows, lanes = table.shape
    return table.reshape(rows, lanes // BLOCK_LANES, BLOCK_LANES).transpose(1, 0, 2)


def _terms(table: _Table) -> list[tuple[int, Indices, Floats]]:
    """Rows, longest first, by their k-th terms: how many rows have one, what they read, times what."""
    order = np.argsort(table.rows, kind="stable")
    lengths = np.bincount(table.rows, minlength=table.height)
    starts = np.cumsum(lengths) - lengths
    found = []
    for k in range(lengths.max(initial=0)):
        having = order[(starts + k)[lengths > k]]
        found.append((len(having), table.places[having], table.coefficients[having, None]))
    return found
