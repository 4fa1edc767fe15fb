"""Means of F and G over batches of rows of arrays: the rows are looked up, and every lane is one of a leading axis.

A product is that of a matrix and a vector for each lane, so that a lane has the same bits alone and among others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.implicit.array_program import ArrayProgram, Run, Workshop
from bilevel_sym.problem.problem import StochasticProblem
from bilevel_sym.typing import Floats, Indices

__all__ = ["ArrayPart", "RowEngine"]

Rows: TypeAlias = tuple[Indices, Floats]  # the rows of each lane, (lanes, R), and their weights
MAX_PLANS = 64  # for so many sizes of batches: the theorem's Neumann series has one for each product
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
        self._sizes = {dim: size for dim, size in problem.dimensions.items() if size is not None}
        self._data = problem.arrays
        self._refuse_unknown(problem)
        self.program = lru_cache(MAX_PLANS)(self._compile)
        self._workshop = lru_cache(MAX_PLANS)(self._make_workshop)
        self._parts: dict[object, ArrayPart] = {}

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

    def descended(self, x: Floats, y: Floats, batches: Iterable[Rows], step: float) -> Floats:
        """y after y <- y - step g_y, a batch of G each time.

        - ``x``: the points, (d, lanes), one lane for each of a batch.
        - ``y``: where it begins, (n, lanes).
        - ``batches``: rows and weights.
        - ``step``: the step size.
        """
        flat = np.concatenate([x, y]).T.copy()
        moving = flat[:, self.d :]
        for picked, weights in batches:
            part = self._walking(("g_y",), picked, weights)
            part.put(0, flat)
            moving -= step * part.take("g_y")
        return moving.T

    def neumann_series(self, x: Floats, y: Floats, right: Floats, batches: Iterable[Rows], eta: float) -> Floats:
        """eta times the sum of the products (I - eta g_yy) ... (I - eta g_yy) right, each with a batch of its own.

        - ``x``, ``y``: the points, (d, lanes) and (n, lanes), one lane for each of a batch.
        - ``right``: what is multiplied, (n, lanes).
        - ``batches``: rows and weights of G.
        - ``eta``: the step of the series.
        """
        flat, power = np.concatenate([x, y]).T.copy(), right.T.copy()
        total = power.copy()
        for picked, weights in batches:
            part = self._walking(("g_yy_v",), picked, weights)
            part.put(0, flat)
            part.put(1, power)
            power = power - eta * part.take("g_yy_v")
            total += power
        return (eta * total).T

    def _walking(self, names: tuple[str, ...], picked: Indices, weights: Floats) -> ArrayPart:
        """A part for these rows: that of others of the same number again, if there is one."""
        key = (names, picked.shape)
        if key not in self._parts:
            if len(self._parts) >= MAX_PLANS:
                self._parts.clear()
            self._parts[key] = ArrayPart(self, names, picked, weights, "g")
        part = self._parts[key]
        part.reload(picked, weights)
        return part

    def tables(self, program: ArrayProgram, function: str) -> list[tuple[int, Any]]:
        """The arrays of all rows that a program takes some of, and where it wants them."""
        rows = self.samples.rows[function].items()
        places = ((program.place_of(name), array.values) for name, array in rows)
        return [(place, table) for place, table in places if place is not None]


def _looked_up(table: Any, picked: Indices) -> Floats:
    """The chosen rows of one array, (lanes, R, ...)."""
    sparse = hasattr(table, "nnz")
    if picked.shape[1] == table.shape[0]:  # batches as large as the data are the data, with weights
        whole = table.toarray() if sparse else table
        return np.broadcast_to(whole, (len(picked), *whole.shape))
    if sparse:
        return np.asarray(table[picked.ravel()].toarray()).reshape(*picked.shape, table.shape[1])
    found: Floats = table.take(picked, axis=0, mode="clip")  # they are in range: no need to look
    return found


class ArrayPart:
    """F or G over its batch; see ``batches.Part``.

    - ``engine``: the problem.
    - ``names``: of the blocks.
    - ``picked``: the rows of each lane, (lanes, R).
    - ``weights``: their weights, likewise.
    - ``function``: "f" or "g".
    """

    def __init__(
        self, engine: RowEngine, names: Sequence[str], picked: Indices, weights: Floats, function: str
    ) -> None:
        lanes, rows = picked.shape
        program = engine.program(tuple(names), function, rows)
        self._tables = engine.tables(program, function)
        own = engine.samples.weights.get(function)
        self._weight = None if own is None else program.place_of(own.name)
        group = max(1, GROUP_NUMBERS // max(1, program.entries))
        cuts = [slice(a, min(a + group, lanes)) for a in range(0, lanes, group)]
        self._parts = [(Run(program, (cut.stop - cut.start,)), cut) for cut in cuts]
        self.reload(picked, weights)

    def reload(self, picked: Indices, weights: Floats) -> None:
        """Another batch of the same size."""
        self._picked, self._weights = picked, weights

    def perform(self, stage: int, table: Floats) -> None:
        """Perform one stage on the inputs of all lanes, (inputs, lanes)."""
        self.put(stage, np.ascontiguousarray(table[:, : len(self._picked)].T))

    def put(self, stage: int, rows: Floats) -> None:
        """The same on rows, (lanes, inputs)."""
        for run, lanes in self._parts:
            if stage == 0:
                self._give(run, lanes)
            run.perform(stage, rows[lanes])

    def _give(self, run: Run, lanes: slice) -> None:
        picked = self._picked[lanes]
        if self._weight is not None:
            run.give(self._weight, self._weights[lanes])
        for place, table in self._tables:
            run.give(place, _looked_up(table, picked))

    def means(self, name: str) -> Floats:
        """One block, (entries, lanes)."""
        return self.take(name).reshape(len(self._picked), -1).T

    def take(self, name: str) -> Floats:
        """The same with lanes first, (lanes, ...)."""
        found = [run.block(name) for run, _ in self._parts]
        return found[0] if len(found) == 1 else np.concatenate(found)
