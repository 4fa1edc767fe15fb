"""Means of F and G over batches of rows of arrays: the rows are looked up, and every lane is one of a leading axis.

A product is that of a matrix and a vector for each lane, so that a lane has the same bits alone and among others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bilevel_sym.arrays.data import is_sparse
from bilevel_sym.arrays.tensor import Leaf, known_sizes
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.estimators.row_run import RowRun
from bilevel_sym.implicit.array_program import ArrayProgram, Workshop
from bilevel_sym.problem.problem import StochasticProblem
from bilevel_sym.typing import Floats, Indices

if TYPE_CHECKING:
    from bilevel_sym.estimators.row_walk import CompiledWalk

Rows: TypeAlias = tuple[Indices, Floats]  # the rows of each lane, (lanes, R), and their weights
MAX_PLANS = 64  # for so many sizes of batches: the theorem's Neumann series has one for each product
MAX_ENGINES = 8  # problems whose programs are kept
GROUP_NUMBERS = 2_000_000  # numbers that lanes hold at a time


class RowEngine:
    """F and G of a problem with arrays as means over chosen rows.

    >>> import numpy as np
    >>> problem = StochasticProblem("a @ y", "(y - x) @ (y - x)", "x[n]", "y[n]", "a[n]", "", {"a": np.eye(3)}, {})
    >>> RowEngine(problem).program(("f_y",), "f", 2).shape("f_y")
    (3,)
    """

    def __init__(self, problem: StochasticProblem) -> None:
        self.d, self.n = problem.d, problem.n
        self.samples = problem.array_samples
        self._sizes = known_sizes(problem.dimensions)
        self._data = problem.arrays
        self._refuse_unknown(problem)
        self.program = lru_cache(MAX_PLANS)(self._compile)
        self._workshop = lru_cache(MAX_PLANS)(self._make_workshop)
        self.walk = lru_cache(MAX_PLANS)(self._make_walk)

    def _refuse_unknown(self, problem: StochasticProblem) -> None:
        model, known = self.samples.model, {*self.samples.given, *(leaf.name for leaf in self.samples.weights.values())}
        for leaf in sorted(model.f.leaves | model.g.leaves, key=lambda leaf: leaf.name):
            if leaf.role in ("data", "parameter") and leaf.name not in known and leaf.name not in problem.arrays:
                raise InvalidProblem(f"{leaf.name} has no values, so nothing can be computed", hint="give its numbers")

    def _make_workshop(self, function: str, rows: int) -> Workshop:
        sizes = dict(self._sizes)
        if function in self.samples.letters:
            sizes[self.samples.letters[function]] = rows
        given = (*self.samples.given.values(), *self.samples.weights.values())
        return Workshop(self.samples.model, sizes, self._data, given)

    def _compile(self, names: tuple[str, ...], function: str, rows: int) -> ArrayProgram:
        """What computes blocks of F or of G over so many rows."""
        return ArrayProgram(self._workshop(function, rows), names, products="each")

    def _make_walk(self, names: tuple[str, ...], function: str, rows: int, moving: int | None) -> CompiledWalk | None:
        """Compiled code for batches of F or G of so many rows; None where there is none. See ``CompiledWalk``."""
        from bilevel_sym.estimators.row_walk import CompiledWalk

        program, weight = self.program(names, function, rows), self.samples.weights.get(function)
        tables = dict(self.tables(program, function))
        if any(table.shape[0] <= rows for table in tables.values()):  # all rows: they need not be looked up
            return None
        place = None if weight is None else program.place_of(weight.name)
        return CompiledWalk.of(program, tables, place, rows, moving)

    def tables(self, program: ArrayProgram, function: str) -> list[tuple[int, Any]]:
        """The arrays of all rows that a program takes some of, and where it wants them."""
        rows = self.samples.rows[function].items()
        places = ((program.place_of(name), array.values) for name, array in rows)
        return [(place, table) for place, table in places if place is not None]


@lru_cache(MAX_ENGINES)
def row_engine(problem: StochasticProblem) -> RowEngine:
    """The engine of a problem: its programs are made once.

    >>> problem = StochasticProblem("a*y", "(y - x)**2", "x", "y", "a", "", {"a": [1.0]}, {})
    >>> row_engine(problem) is row_engine(problem)
    True
    """
    return RowEngine(problem)


def _lookup(table: Any, room: Floats) -> Callable[[Indices], object]:
    """What copies the chosen rows of one array, (..., R), into ``room``."""
    if not is_sparse(table):
        return lambda picked: table.take(picked, 0, room, "clip")  # they are in range: no need to look

    def look(picked: Indices) -> None:
        room[...] = table[picked.ravel()].toarray().reshape(room.shape)

    return look


class ArrayPart:
    """F or G over its batch; see ``batches.Part``.

    - ``engine``: the problem.
    - ``names``: of the blocks.
    - ``picked``: the rows of each lane, (lanes, R).
    - ``weights``: their weights, likewise.
    - ``function``: "f" or "g".
    - ``moving``: the inputs that change from one batch to the next; all, unless given.
    """

    def __init__(
        self,
        engine: RowEngine,
        names: Sequence[str],
        picked: Indices,
        weights: Floats,
        function: str,
        moving: Sequence[Leaf] | None = None,
    ) -> None:
        lanes, rows = picked.shape
        self._shape, program = picked.shape, engine.program(tuple(names), function, rows)
        self.inputs = [np.zeros((lanes, layout.size)) for layout in program.workshop.inputs]
        group = max(1, GROUP_NUMBERS // max(1, program.entries))
        cuts = [slice(a, min(a + group, lanes)) for a in range(0, lanes, group)] if lanes > 1 else [0]
        self._groups = [_Group(engine, program, function, (cut, rows), self.inputs, moving) for cut in cuts]
        self.reload(picked, weights)

    def reload(self, picked: Indices, weights: Floats) -> None:
        """Another batch of the same size."""
        self._batch: Rows | None = (picked, weights)

    def perform(self, stage: int, table: Floats) -> None:
        """Perform one stage on the inputs of all lanes, (inputs, lanes)."""
        self.put(stage, table[:, : self._shape[0]].T)
        self.go(stage)

    def put(self, stage: int, rows: Floats) -> None:
        """Other inputs of one stage, (lanes, inputs)."""
        self.inputs[stage][...] = rows
        for group in self._groups:
            group.run.settle(stage)

    def go(self, stage: int) -> None:
        """Perform one stage on this batch; inputs that move may have been written to."""
        for group in self._groups:
            if self._batch is not None:
                group.load(*self._batch)
            group.run.perform(stage)
        self._batch = None  # it is where it is needed

    def means(self, name: str) -> Floats:
        """One block, (entries, lanes)."""
        return self.take(name).reshape(self._shape[0], -1).T

    def take(self, name: str) -> Floats:
        """The same with lanes first unless there is only one; to be read before the next batch."""
        if len(self._groups) == 1:
            return self._groups[0].run.block(name)
        return np.concatenate([group.run.block(name) for group in self._groups])


def _places(program: ArrayProgram, given: Iterable[int], moving: Sequence[Leaf] | None) -> set[int] | None:
    """Where that stands which changes from batch to batch; None for everything."""
    if moving is None:
        return None
    inputs = (program.place_of(leaf.name) for leaf in moving)
    return {*given, *(place for place in inputs if place is not None)}


class _Group:
    """Some lanes of a part, and the memory for their rows; a single lane has no axis of its own.

    - ``engine``, ``program``, ``function``: see ``ArrayPart``.
    - ``size``: which lanes, and how many rows each of them takes.
    - ``inputs``: of all lanes, (lanes, inputs), a table for each stage.
    - ``moving``: see ``ArrayPart``.
    """

    def __init__(
        self,
        engine: RowEngine,
        program: ArrayProgram,
        function: str,
        size: tuple[slice | int, int],
        inputs: Sequence[Floats],
        moving: Sequence[Leaf] | None,
    ) -> None:
        self._lanes, rows = size
        lead = inputs[0][self._lanes].shape[:-1]
        given, self._lookups = dict[int, Floats](), list[Callable[[Indices], object]]()
        for place, table in engine.tables(program, function):
            given[place] = self._room(table, (*lead, rows))
        own = engine.samples.weights.get(function)
        weight = None if own is None else program.place_of(own.name)
        self._weights = None if weight is None else given.setdefault(weight, np.empty((*lead, rows)))
        self._weighted: Floats | None = None
        self.run = RowRun(
            program, lead, [table[self._lanes] for table in inputs], given, _places(program, given, moving)
        )

    def _room(self, table: Any, lead: tuple[int, ...]) -> Floats:
        """Where the rows of one array stand: batches as large as the data are the data, with weights."""
        if lead[-1] == table.shape[0]:
            whole = table.toarray() if is_sparse(table) else table
            return np.broadcast_to(whole, (*lead[:-1], *whole.shape))
        room = np.empty((*lead, *table.shape[1:]), dtype=np.float64)
        self._lookups.append(_lookup(table, room))
        return room

    def load(self, picked: Indices, weights: Floats) -> None:
        """The rows and weights of a batch, (all lanes, R)."""
        own = picked[self._lanes]
        for look in self._lookups:
            look(own)
        if self._weights is not None and weights is not self._weighted:
            self._weights[...] = weights[self._lanes]
            self._weighted = weights
