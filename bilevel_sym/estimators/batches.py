"""Means of F and G over batches of data rows, each lane with its own batch.

A batch says which rows it takes: they are looked up where they are needed. Batches are drawn with replacement, as the
lemmas about them assume, or without. One at least as large as the data is drawn as how often each row comes up, so that
its cost is bounded by the data and not by the batch; oracle calls are counted by the batch all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, groupby
from math import prod
from typing import Protocol, TypeAlias

import numpy as np

from bilevel_sym.arithmetic.arrays import BLOCK_LANES
from bilevel_sym.estimators.array_batches import ArrayPart, row_engine
from bilevel_sym.estimators.row_batches import Group, RowBatches
from bilevel_sym.implicit.engine import Engine, Lanes, Session
from bilevel_sym.kernels.tape_engine import TapeEngine
from bilevel_sym.problem.problem import StochasticProblem
from bilevel_sym.typing import Floats, Indices

__all__ = ["Batch", "BatchOracle", "BatchSession", "Data"]

Streams: TypeAlias = Sequence[np.random.Generator]
Asked: TypeAlias = tuple[str, tuple[int, ...]]  # "f" or "g", and the sizes of batches
AHEAD = 10_000  # rows that are drawn in one go for each lane
MAX_SIZES = 64  # of batches, whose weights are kept
GROUP_ENTRIES = 8192  # rows times lanes that are computed in one go


@dataclass(frozen=True)
class Batch:
    """The rows that each lane takes, (lanes, R), and their weights, likewise; the weights of a lane sum to one.

    >>> Batch(np.array([[0, 2]]), np.array([[0.5, 0.5]])).of(slice(0, 1)).picked
    array([[0, 2]])
    """

    picked: Indices
    weights: Floats

    def of(self, lanes: slice) -> Batch:
        """The batches of some lanes."""
        return Batch(self.picked[lanes], self.weights[lanes])


class Data:
    """The data of a stochastic problem, and F and G with data as inputs; ``compiled``: see ``RowBatches``.

    >>> problem = StochasticProblem("(y - a)**2/2", "(y - b*x)**2/2", "x", "y", "a", "b", [[0], [2]], [[1], [3]])
    >>> Data(problem).draw("f", [np.random.default_rng(0)], 4).weights.sum()
    np.float64(1.0)
    """

    def __init__(self, problem: StochasticProblem, *, compiled: bool = False) -> None:
        self.problem, self.is_compiled = problem, compiled
        self._counts = dict(zip("fg", problem.row_counts, strict=True))
        self._equal = lru_cache(MAX_SIZES)(_equal_weights)
        self._alike = lru_cache(MAX_SIZES)(self._kind_of_all)

    @cached_property
    def tables(self) -> dict[str, Floats]:
        """The rows of problems in scalars; a function without data has one row of width zero."""
        rows = {"f": self.problem.xi_data, "g": self.problem.zeta_data}
        return {name: np.array(own or [[]], dtype=np.float64) for name, own in rows.items()}

    @cached_property
    def engine(self) -> Engine:
        """F and G of problems in scalars, their data among the inputs of the first stage."""
        return TapeEngine(self.problem.samples, batch_invariant=True)

    @cached_property
    def arrays(self) -> RowBatches:
        """F and G of problems with arrays."""
        return RowBatches(row_engine(self.problem), compiled=self.is_compiled)

    def part(self, names: Sequence[str], batch: Batch, function: str) -> Part:
        """The means of F or of G over a batch."""
        if self.problem.is_array:
            return ArrayPart(self.arrays.engine, names, batch.picked, batch.weights, function)
        return _Part(self, names, batch, function)

    def rows_of(self, function: str, size: int) -> int:
        """How many rows a batch of ``size`` takes: those of the data at most."""
        return min(size, self._counts[function])

    def whole(self, function: str, lanes: int) -> Batch:
        """All rows of "f" or "g" in each lane, in their order: the mean."""
        count = self._counts[function]
        return Batch(np.broadcast_to(np.arange(count), (lanes, count)), self._equal(lanes, count))

    def draw(self, function: str, streams: Streams, size: int, *, replacement: bool = True) -> Batch:
        """A batch of ``size`` rows for each stream; see ``draws``."""
        return next(self.draws(function, streams, (size,), replacement=replacement))

    def draws(
        self, function: str, streams: Streams, sizes: Sequence[int], *, replacement: bool = True
    ) -> Iterator[Batch]:
        """Batches one after the other; see ``groups``.

        - ``function``: "f" or "g", whose rows they are.
        - ``streams``: a generator for each lane.
        - ``sizes``: how many rows each batch has.
        - ``replacement``: whether a row may come up again; without, a batch as large as the data is the data.
        """
        for picked, weights in self.groups(function, streams, sizes, replacement=replacement):
            for rows in picked:
                yield Batch(rows, weights)

    def groups(
        self, function: str, streams: Streams, sizes: Sequence[int], *, replacement: bool = True
    ) -> Iterator[Group]:
        """The same some at a time, (batches, lanes, R) with their weights, (lanes, R): what is drawn is the same.

        - ``function``: "f" or "g", whose rows they are.
        - ``streams``: a generator for each lane.
        - ``sizes``: how many rows each batch has.
        - ``replacement``: whether a row may come up again; without, a batch as large as the data is the data.
        """
        count = self._counts[function]
        for size, times in ((size, len(list(same))) for size, same in groupby(sizes)):
            if replacement and size < count:
                yield from self._with_replacement(count, streams, size, times)
                continue
            for _ in range(times):
                if size >= count:
                    yield self._of_all(function, streams, size, replacement=replacement)
                else:
                    rows = [stream.choice(count, size=size, replace=False, shuffle=False) for stream in streams]
                    yield np.array(rows)[None], self._equal(len(rows), size)

    def in_turn(self, streams: Streams, asked: tuple[Asked, ...], *, replacement: bool = True) -> list[Iterator[Group]]:
        """What several calls of ``groups`` draw one after the other, to be taken in this order.

        Where all batches are alike they are drawn at once, which is the same and costs less.

        - ``streams``: a generator for each lane.
        - ``asked``: functions, and the sizes of their batches.
        - ``replacement``: whether a row may come up again.
        """
        kind = self._alike(asked) if replacement else None
        if kind is None:
            return [self.groups(function, streams, sizes, replacement=replacement) for function, sizes in asked]
        (picked, weights) = next(self._with_replacement(kind[0], streams, *kind[1:]))
        ends = accumulate(len(sizes) for _, sizes in asked)
        return [iter([(picked[end - len(own) : end], weights)]) for end, (_, own) in zip(ends, asked, strict=True)]

    def _kind_of_all(self, asked: tuple[Asked, ...]) -> tuple[int, int, int] | None:
        """Rows of the data, rows of a batch, and how many batches, where all are alike and few; None otherwise."""
        kinds = {(self._counts[function], size) for function, sizes in asked for size in sizes}
        count, size = next(iter(kinds), (0, 0))
        times = sum(len(sizes) for _, sizes in asked)
        return None if len(kinds) != 1 or size >= count or times * size > AHEAD else (count, size, times)

    def _of_all(self, function: str, streams: Streams, size: int, *, replacement: bool) -> Group:
        """All rows, weighted by how often they come up."""
        whole, count = self.whole(function, len(streams)), self._counts[function]
        if not replacement:
            return whole.picked[None], whole.weights
        shares = np.full(count, 1 / count)
        return whole.picked[None], np.array([stream.multinomial(size, shares) for stream in streams]) / size

    def _with_replacement(self, count: int, streams: Streams, size: int, times: int) -> Iterator[Group]:
        ahead, weights = max(1, AHEAD // size), self._equal(len(streams), size)
        for start in range(0, times, ahead):
            shape = min(ahead, times - start), size
            # a number is a shorter way to say how many than a shape
            drawn = [stream.integers(count, size=prod(shape)).reshape(shape) for stream in streams]
            yield drawn[0][:, None] if len(drawn) == 1 else np.stack(drawn, axis=1), weights


def _equal_weights(lanes: int, rows: int) -> Floats:
    weights = np.full((lanes, rows), 1 / rows)
    weights.flags.writeable = False  # the same for all batches of this size
    return weights


class Part(Protocol):
    """The means of F or of G over a batch, of which the lanes are the first of the table."""

    def reload(self, picked: Indices, weights: Floats) -> None:
        """Another batch of the same size."""

    def perform(self, stage: int, table: Floats) -> None:
        """Perform one stage on the inputs of all lanes, (inputs, lanes)."""

    def means(self, name: str) -> Floats:
        """One block, (entries, lanes that have a batch)."""


class BatchSession:
    """Blocks of the means over batches, lanes last; lanes beyond those that have a batch repeat the first.

    See ``bilevel_sym.implicit.engine.Lanes``.
    """

    def __init__(self, data: Data, names: Sequence[str], lanes: int, batches: dict[str, Batch]) -> None:
        p = data.problem
        self._tables = [np.zeros((width, lanes)) for width in (p.d + p.n, p.n)]
        self._parts = {
            function: data.part([name for name in names if name[0] == function], batches[function], function)
            for function in "fg"
            if any(name[0] == function for name in names)
        }

    def reload(self, function: str, batch: Batch) -> None:
        """Another batch of the same size for F or G."""
        self._parts[function].reload(batch.picked, batch.weights)

    def inputs(self, stage: int) -> Floats:
        """The inputs of one stage, (inputs, lanes), to be written before it is performed."""
        return self._tables[stage]

    def perform(self, stage: int) -> None:
        """Perform one stage whose inputs are in their places."""
        for part in self._parts.values():
            part.perform(stage, self._tables[stage])

    def rows(self, name: str) -> Floats:
        """One block, (entries, lanes)."""
        return _padded(self._parts[name[0]].means(name), self._tables[0].shape[1])


def _padded(table: Floats, lanes: int) -> Floats:
    """The lanes that are there, and the first of them again until there are so many.

    >>> _padded(np.array([[1.0, 2.0]]), 4)
    array([[1., 2., 1., 1.]])
    """
    if table.shape[1] == 1:
        return table.repeat(lanes, axis=1)
    return np.concatenate([table, table[:, :1].repeat(lanes - table.shape[1], axis=1)], axis=1)


class _Part:
    """F or G over its batch: each lane is spread over the rows of its batch, some lanes at a time."""

    def __init__(self, data: Data, names: Sequence[str], batch: Batch, function: str) -> None:
        self._batch, self._table = batch, data.tables[function]
        lanes, rows = batch.weights.shape
        step = max(1, GROUP_ENTRIES // max(rows, 1))
        self._groups = [slice(a, min(a + step, lanes)) for a in range(0, lanes, step)]
        self._sessions: list[Session] = [data.engine.session(names, (g.stop - g.start) * rows) for g in self._groups]
        first = data.problem.d + data.problem.n + (len(data.problem.xi) if function == "g" else 0)
        self._places = slice(first, first + self._table.shape[1])

    def reload(self, picked: Indices, weights: Floats) -> None:
        self._batch = Batch(picked, weights)

    def perform(self, stage: int, table: Floats) -> None:
        rows = self._batch.weights.shape[1]
        for group, session in zip(self._groups, self._sessions, strict=True):
            inputs = session.inputs(stage)
            spread = np.repeat(table[:, group], rows, axis=1)
            used = spread.shape[1]
            inputs[: len(table), :used] = spread
            if stage == 0:
                inputs[len(table) :] = np.nan  # the data of the other function, on which nothing depends
                inputs[self._places, :used] = self._table[self._batch.picked[group]].reshape(used, -1).T
            inputs[:, used:] = inputs[:, :1]
            session.perform(stage)

    def means(self, name: str) -> Floats:
        rows = self._batch.weights.shape[1]
        found = []
        for group, session in zip(self._groups, self._sessions, strict=True):
            size = group.stop - group.start
            values = session.rows(name)[:, : size * rows]
            spread = np.ascontiguousarray(values.reshape(len(values), size, rows).transpose(1, 0, 2))
            # one product a lane, always of the same shape: its bits do not depend on the other lanes
            found.append(np.matmul(spread, self._batch.weights[group, :, None])[:, :, 0].T)
        return np.concatenate(found, axis=1)


class BatchOracle:
    """f_D and g_D, the means over one frozen batch: what iNEON sees inside Algorithm 3.

    Paper: Claim [unlabelled:batch-functions]
    """

    width = BLOCK_LANES

    def __init__(self, data: Data, batch_f: Batch, batch_g: Batch) -> None:
        self._data, self._batches = data, {"f": batch_f, "g": batch_g}
        self._sessions: dict[tuple[tuple[str, ...], int], BatchSession] = {}

    def session(self, names: Sequence[str], lanes: slice) -> Lanes:
        """Only the first lane is computed; the others repeat it."""
        key = (tuple(names), lanes.stop - lanes.start)
        if key not in self._sessions:
            self._sessions[key] = BatchSession(self._data, *key, self._batches)
        return self._sessions[key]
