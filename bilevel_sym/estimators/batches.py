"""Means of F and G over batches of data rows, each lane with its own batch.

Batches are drawn with replacement. One at least as large as the data is drawn as how often each row comes up, so that
its cost is bounded by the data and not by the batch; oracle calls are counted by the batch all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bilevel_sym.arithmetic.arrays import BLOCK_LANES
from bilevel_sym.implicit.engine import Engine, Lanes, Session
from bilevel_sym.kernels.tape_engine import TapeEngine
from bilevel_sym.problem.problem import StochasticProblem
from bilevel_sym.typing import Floats

__all__ = ["Batch", "BatchOracle", "BatchSession", "Data"]

GROUP_ENTRIES = 8192  # rows times lanes that are computed in one go


@dataclass(frozen=True)
class Batch:
    """Rows (lanes, R, width) and their weights (lanes, R); the weights of a lane sum to one."""

    rows: Floats
    weights: Floats

    def of(self, lanes: slice) -> Batch:
        """The batches of some lanes."""
        return Batch(self.rows[lanes], self.weights[lanes])


class Data:
    """The data of a stochastic problem, and F and G with data as inputs.

    >>> problem = StochasticProblem("(y - a)**2/2", "(y - b*x)**2/2", "x", "y", "a", "b", [[0], [2]], [[1], [3]])
    >>> Data(problem).draw("f", [np.random.default_rng(0)], 4).weights.sum()
    np.float64(1.0)
    """

    def __init__(self, problem: StochasticProblem) -> None:
        self.problem = problem
        tables = {"f": problem.xi_data, "g": problem.zeta_data}
        # a function without data has one row of width zero
        self._tables = {name: np.array(rows or [[]], dtype=np.float64) for name, rows in tables.items()}
        self.columns = {"f": len(problem.xi), "g": len(problem.zeta)}

    @cached_property
    def engine(self) -> Engine:
        """F and G, their data among the inputs of the first stage."""
        return TapeEngine(self.problem.samples, batch_invariant=True)

    def rows_of(self, function: str, size: int) -> int:
        """How many rows a batch of ``size`` takes: those of the data at most."""
        return min(size, len(self._tables[function]))

    def draw(self, function: str, streams: Sequence[np.random.Generator], size: int) -> Batch:
        """A batch of ``size`` rows for each stream, of the data of "f" or "g"."""
        table = self._tables[function]
        count = len(table)
        if size >= count:
            shares = np.full(count, 1 / count)
            weights = np.array([stream.multinomial(size, shares) for stream in streams]) / size
            return Batch(np.broadcast_to(table, (len(streams), *table.shape)), weights)
        picked = np.array([stream.integers(count, size=size) for stream in streams])
        return Batch(table[picked], np.full(picked.shape, 1 / size))


class BatchSession:
    """Blocks of the means over batches, lanes last; lanes beyond those that have a batch repeat the first.

    See ``bilevel_sym.implicit.engine.Lanes``.
    """

    def __init__(self, data: Data, names: Sequence[str], lanes: int, batches: dict[str, Batch]) -> None:
        p = data.problem
        self._tables = [np.zeros((width, lanes)) for width in (p.d + p.n, p.n)]
        self._parts = {
            function: _Part(data, [name for name in names if name[0] == function], batches[function], function)
            for function in "fg"
            if any(name[0] == function for name in names)
        }

    def reload(self, function: str, batch: Batch) -> None:
        """Another batch of the same size for F or G."""
        self._parts[function].batch = batch

    def inputs(self, stage: int) -> Floats:
        """The inputs of one stage, (inputs, lanes), to be written before it is performed."""
        return self._tables[stage]

    def perform(self, stage: int) -> None:
        """Perform one stage whose inputs are in their places."""
        for part in self._parts.values():
            part.perform(stage, self._tables[stage])

    def rows(self, name: str) -> Floats:
        """One block, (entries, lanes)."""
        means = self._parts[name[0]].means(name)
        lanes = self._tables[0].shape[1]
        return np.concatenate([means, np.repeat(means[:, :1], lanes - means.shape[1], axis=1)], axis=1)


class _Part:
    """F or G over its batch: each lane is spread over the rows of its batch, some lanes at a time."""

    def __init__(self, data: Data, names: Sequence[str], batch: Batch, function: str) -> None:
        self.batch = batch
        lanes, rows = batch.weights.shape
        step = max(1, GROUP_ENTRIES // max(rows, 1))
        self._groups = [slice(a, min(a + step, lanes)) for a in range(0, lanes, step)]
        self._sessions: list[Session] = [data.engine.session(names, (g.stop - g.start) * rows) for g in self._groups]
        first = data.problem.d + data.problem.n + (data.columns["f"] if function == "g" else 0)
        self._places = slice(first, first + data.columns[function])

    def perform(self, stage: int, table: Floats) -> None:
        rows = self.batch.weights.shape[1]
        for group, session in zip(self._groups, self._sessions, strict=True):
            inputs = session.inputs(stage)
            spread = np.repeat(table[:, group], rows, axis=1)
            used = spread.shape[1]
            inputs[: len(table), :used] = spread
            if stage == 0:
                inputs[len(table) :] = np.nan  # the data of the other function, on which nothing depends
                inputs[self._places, :used] = self.batch.rows[group].reshape(used, -1).T
            inputs[:, used:] = inputs[:, :1]
            session.perform(stage)

    def means(self, name: str) -> Floats:
        rows = self.batch.weights.shape[1]
        found = []
        for group, session in zip(self._groups, self._sessions, strict=True):
            size = group.stop - group.start
            values = session.rows(name)[:, : size * rows]
            spread = np.ascontiguousarray(values.reshape(len(values), size, rows).transpose(1, 0, 2))
            # one product a lane, always of the same shape: its bits do not depend on the other lanes
            found.append(np.matmul(spread, self.batch.weights[group, :, None])[:, :, 0].T)
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
