"""Float64 arrays: a program as a list of NumPy calls over (places, lanes), one call for each step.

Nothing raises on overflow or outside a domain: IEEE infinities and NaN are what the callers look for.

A library's matrix product may sum in another order when the number of lanes changes, so a lane alone and the same lane
among others can differ in the last bit. Batch-invariant programs take lanes by whole blocks of BLOCK_LANES and
multiply block by block: every lane then has the same bits wherever it stands, which solvers need.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flint import fmpq

from bilevel_sym.arithmetic.scalars import BALLS, constant_values
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.graph.program import Program, Row, Step
from bilevel_sym.typing import Floats, Indices

__all__ = [
    "BLOCK_LANES",
    "CONSTANT_BITS",
    "ArrayProgram",
    "ArraySession",
    "Encode",
    "batch_invariant_calls",
    "dense",
    "dense_or_sparse",
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


def dense_or_sparse(rows: Sequence[Row]) -> bool:
    """Whether one matrix product is cheaper than adding term by term: BLAS forgives many zeros."""
    columns = {place for row in rows for place, _ in row}
    entries = sum(len(row) for row in rows)
    return len(rows) * len(columns) <= max(DENSE_ALWAYS, DENSE_FILL * entries)


def _linear(first: int, rows: Sequence[Row], product: Product) -> Call:
    if dense_or_sparse(rows):
        return _matrix_product(first, rows, product)
    # columns that many rows read make a matrix; of what remains, long rows make another, short ones go term by term
    readers = Counter(place for row in rows for place, _ in row)
    heavy = {place for place, count in readers.items() if HEAVY * count >= len(rows)}
    rest = [tuple(term for term in row if term[0] not in heavy) for row in rows]
    order = sorted(range(len(rows)), key=lambda k: -len(rest[k]))
    long = sum(len(rest[k]) > SHORT for k in order)
    common = _product_of([tuple(term for term in rows[k] if term[0] in heavy) for k in order], product)
    others = _product_of([rest[k] for k in order[:long]], product)
    terms = _terms([rest[k] for k in order[long:]])
    to = np.array(order, dtype=np.intp) + first

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
    columns = sorted({place for row in rows for place, _ in row})
    position = {place: k for k, place in enumerate(columns)}
    matrix = np.zeros((len(rows), len(columns)))
    for i, row in enumerate(rows):
        matrix[i, [position[place] for place, _ in row]] = [rounded(c) for _, c in row]
    return columns, matrix


def _product_of(rows: Sequence[Row], product: Product) -> Callable[[Floats], Floats]:
    columns, matrix = dense(rows)
    if not columns:
        return lambda work: np.zeros((len(rows), work.shape[1]))
    source, multiply = _index(columns), product(matrix)

    def call(work: Floats) -> Floats:
        result = np.empty((len(rows), work.shape[1]))
        multiply(work[source], result)
        return result

    return call


def _matrix_product(first: int, rows: Sequence[Row], product: Product) -> Call:
    columns, matrix = dense(rows)
    source, to, multiply = _index(columns), slice(first, first + len(rows)), product(matrix)

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


def _terms(rows: Sequence[Row]) -> list[tuple[int, Indices, Floats]]:
    """Rows, longest first, by their k-th terms: how many rows have one, what they read, times what."""
    found = []
    for k in range(max((len(row) for row in rows), default=0)):
        having = [row[k] for row in rows if len(row) > k]
        source = np.array([place for place, _ in having], dtype=np.intp)
        found.append((len(having), source, np.array([[nearest(c)] for _, c in having])))
    return found
