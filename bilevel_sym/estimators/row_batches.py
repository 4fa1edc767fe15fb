"""What StocBiO computes over batches of rows of arrays, in compiled code or in NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from bilevel_sym.estimators.array_batches import MAX_PLANS, ArrayPart, RowEngine
from bilevel_sym.typing import Floats, Indices

if TYPE_CHECKING:
    from bilevel_sym.estimators.row_walk import WalkMemory

__all__ = ["Group", "RowBatches"]

Group: TypeAlias = tuple[Indices, Floats]  # the rows of some batches of one size, (batches, lanes, R), and weights


class _Kind(NamedTuple):
    """Blocks of F or G; where ``moving`` is a stage, its inputs move: point <- point - step * slope, the only block."""

    names: tuple[str, ...]
    moving: int | None = None


GRADIENTS, PRODUCTS, UPPER, MIXED = (
    _Kind(("g_y",), 0),
    _Kind(("g_yy_v",), 1),
    _Kind(("f", "f_x", "f_y")),
    _Kind(("g_xy_v",)),
)


class RowBatches:
    """What one run computes over batches of rows, in memory of its own; points are rows, (lanes, d + n).

    - ``engine``: the problem.
    - ``compiled``: whether compiled code goes through the batches, lane by lane, where it has instructions for it.

    >>> from bilevel_sym import StochasticProblem
    >>> problem = StochasticProblem("y", "(y - b)**2", "x", "y", "", "b", {}, {"b": [1.0, 4.0]})
    >>> two = np.array([[[1]], [[1]]]), np.array([[1.0]])  # batches of one row, the second, in one lane
    >>> points = np.zeros((1, 2))
    >>> RowBatches(RowEngine(problem)).descend(points, [two], 0.25)
    >>> points
    array([[0., 3.]])
    """

    def __init__(self, engine: RowEngine, *, compiled: bool = False) -> None:
        self.engine, self._is_compiled = engine, compiled
        self._parts: dict[object, ArrayPart] = {}
        self._compiled = lru_cache(MAX_PLANS)(self._memory_of)

    def descend(self, points: Floats, batches: Iterable[Group], step: float) -> None:
        """y <- y - step g_y where it stands, a batch of G each time.

        - ``points``: x and y, (lanes, d + n).
        - ``batches``: rows and weights, some batches at a time.
        - ``step``: the step size.
        """
        for group in batches:
            self._walk(GRADIENTS, points, points[:, self.engine.d :], None, group, step)

    def neumann_series(self, points: Floats, right: Floats, batches: Iterable[Group], eta: float) -> Floats:
        """eta times the sum of the products (I - eta g_yy) ... (I - eta g_yy) right, each with a batch of its own.

        - ``points``: x and y, (lanes, d + n).
        - ``right``: what is multiplied, (lanes, n).
        - ``batches``: rows and weights, some batches at a time.
        - ``eta``: the step of the series.
        """
        power, total = right.copy(), right.copy()
        for group in batches:
            self._walk(PRODUCTS, points, power, total, group, eta)
        return eta * total

    def upper(self, points: Floats, batch: Group) -> list[Floats]:
        """f, f_x and f_y over a batch of F, (lanes, entries)."""
        return self._blocks(UPPER, points, None, batch)

    def mixed_product(self, points: Floats, v: Floats, batch: Group) -> Floats:
        """g_xy v over a batch of G, (lanes, d)."""
        return self._blocks(MIXED, points, v, batch)[0]

    # ---- in compiled code -------------------------------------------------------------------------------------------

    def _walk(
        self, kind: _Kind, points: Floats, moving: Floats, total: Floats | None, group: Group, step: float
    ) -> None:
        """moving -= step * slope, and total += moving, for each batch of a group.

        kind: the slope, and what moves
        points: x and y, (lanes, d + n)
        moving: (lanes, n)
        total: likewise, or None
        group: rows and weights
        step: the step size
        """
        picked, weights = group
        memory = self._compiled(kind, picked.shape[2])
        if memory is None:
            self._walk_in_numpy(kind, points, moving, total, group, step)
            return
        for lane in range(picked.shape[1]):
            memory.put(points[lane], weights[lane])
            memory.moved[:] = moving[lane]
            if total is not None:
                memory.total[:] = total[lane]
            memory.go(picked[:, lane], step)
            moving[lane] = memory.moved
            if total is not None:
                total[lane] = memory.total

    def _blocks(self, kind: _Kind, points: Floats, v: Floats | None, group: Group) -> list[Floats]:
        """Blocks over the only batch of a group.

        kind: the blocks
        points: x and y, (lanes, d + n)
        v: (lanes, n), or None where no block needs it
        group: rows and weights
        """
        picked, weights = group
        memory = self._compiled(kind, picked.shape[2])
        if memory is None:
            return self._blocks_in_numpy(kind, points, v, group)
        found = [np.empty((len(points), len(own))) for own in memory.blocks]
        for lane in range(picked.shape[1]):
            memory.put(points[lane], weights[lane])
            if v is not None:
                memory.v[:] = v[lane]
            memory.go(picked[:, lane])
            for table, own in zip(found, memory.blocks, strict=True):
                table[lane] = own
        return found

    def _memory_of(self, kind: _Kind, rows: int) -> WalkMemory | None:
        """Compiled code for batches of so many rows, and memory for it; None where there is none."""
        if not self._is_compiled:
            return None
        from bilevel_sym.estimators.row_walk import WalkMemory

        walk = self.engine.walk(kind.names, kind.names[0][0], rows, kind.moving)
        return None if walk is None else WalkMemory(walk)

    # ---- in NumPy ---------------------------------------------------------------------------------------------------

    def _walk_in_numpy(
        self, kind: _Kind, points: Floats, moving: Floats, total: Floats | None, group: Group, step: float
    ) -> None:
        """The same.

        kind: the slope, and what moves
        points: x and y, (lanes, d + n)
        moving: (lanes, n)
        total: likewise, or None
        group: rows and weights
        step: the step size
        """
        picked, weights = group
        part, scale, last = self._part(kind, picked[0], weights), np.asarray(step), kind.moving or 0
        part.put(0, points)
        if last:
            part.put(1, moving)
        here = part.inputs[last][:, -moving.shape[1] :]
        for rows in picked:
            part.reload(rows, weights)
            for stage in range(last + 1):
                part.go(stage)
            np.subtract(here, scale * part.take(kind.names[0]), here)
            if total is not None:
                total += here
        moving[...] = here

    def _blocks_in_numpy(self, kind: _Kind, points: Floats, v: Floats | None, group: Group) -> list[Floats]:
        """The same.

        kind: the blocks
        points: x and y, (lanes, d + n)
        v: (lanes, n), or None where no block needs it
        group: rows and weights
        """
        (rows,), weights = group
        part = self._part(kind, rows, weights)
        part.reload(rows, weights)
        for stage, inputs in enumerate((points,) if v is None else (points, v)):
            part.put(stage, inputs)
            part.go(stage)
        return [part.means(name).T for name in kind.names]

    def _part(self, kind: _Kind, picked: Indices, weights: Floats) -> ArrayPart:
        """The blocks over batches of this shape; it is used again."""
        key = (kind, picked.shape)
        if key not in self._parts:
            if len(self._parts) >= MAX_PLANS:
                self._parts.clear()
            model = self.engine.samples.model
            moving = None if kind.moving is None else model.v if kind.moving else model.y
            self._parts[key] = ArrayPart(self.engine, kind.names, picked, weights, kind.names[0][0], moving)
        return self._parts[key]
