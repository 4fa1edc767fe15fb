"""What StocBiO does batch by batch on arrays: steps of y and the Neumann series, in compiled code or in NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bilevel_sym.estimators.array_batches import MAX_PLANS, ArrayPart, RowEngine
from bilevel_sym.typing import Floats, Indices

if TYPE_CHECKING:
    from bilevel_sym.estimators.row_walk import CompiledWalk

__all__ = ["Group", "RowBatches"]

Group: TypeAlias = tuple[Indices, Floats]  # the rows of some batches of one size, (batches, lanes, R), and weights


@dataclass(frozen=True)
class _Kind:
    """point <- point - step * slope: the name of the slope, and the stage whose inputs move."""

    name: str
    stage: int


GRADIENTS, PRODUCTS = _Kind("g_y", 0), _Kind("g_yy_v", 1)


class RowBatches:
    """What one run computes over batches of rows of G, in memory of its own.

    - ``engine``: the problem.
    - ``compiled``: whether compiled code goes through the batches, lane by lane, where it has instructions for it.

    >>> from bilevel_sym import StochasticProblem
    >>> problem = StochasticProblem("y", "(y - b)**2", "x", "y", "", "b", {}, {"b": [1.0, 4.0]})
    >>> two = np.array([[[1]], [[1]]]), np.array([[1.0]])  # batches of one row, the second, in one lane
    >>> RowBatches(RowEngine(problem)).descended(np.zeros((1, 1)), np.zeros((1, 1)), [two], 0.25)
    array([[3.]])
    """

    def __init__(self, engine: RowEngine, *, compiled: bool = False) -> None:
        self.engine, self._is_compiled = engine, compiled
        self._parts: dict[object, ArrayPart] = {}
        self._compiled = lru_cache(MAX_PLANS)(self._memory_of)

    def descended(self, x: Floats, y: Floats, batches: Iterable[Group], step: float) -> Floats:
        """y after y <- y - step g_y, a batch of G each time.

        - ``x``: the points, (d, lanes), one lane for each of a batch.
        - ``y``: where it begins, (n, lanes).
        - ``batches``: rows and weights, some batches at a time.
        - ``step``: the step size.
        """
        points = np.concatenate([x, y]).T.copy()
        for group in batches:
            self._walk(GRADIENTS, points, points[:, self.engine.d :], None, group, step)
        return points[:, self.engine.d :].T

    def neumann_series(self, x: Floats, y: Floats, right: Floats, batches: Iterable[Group], eta: float) -> Floats:
        """eta times the sum of the products (I - eta g_yy) ... (I - eta g_yy) right, each with a batch of its own.

        - ``x``, ``y``: the points, (d, lanes) and (n, lanes), one lane for each of a batch.
        - ``right``: what is multiplied, (n, lanes).
        - ``batches``: rows and weights, some batches at a time.
        - ``eta``: the step of the series.
        """
        points, power = np.concatenate([x, y]).T.copy(), right.T.copy()
        total = power.copy()
        for group in batches:
            self._walk(PRODUCTS, points, power, total, group, eta)
        return (eta * total).T

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
        found = self._compiled(kind, picked.shape[2])
        if found is None:
            self._walk_in_numpy(kind, points, moving, total, group, step)
            return
        walk, memory = found
        for lane in range(picked.shape[1]):
            sums = None if total is None else total[lane]
            walk.run(memory, points[lane], moving[lane], sums, picked[:, lane], weights[lane], step)

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
        part, scale = self._part(kind, picked[0], weights), np.asarray(step)
        part.put(0, points)
        if kind.stage:
            part.put(1, moving)
        here = part.inputs[kind.stage][:, -moving.shape[1] :]
        for rows in picked:
            part.reload(rows, weights)
            for stage in range(kind.stage + 1):
                part.go(stage)
            np.subtract(here, scale * part.take(kind.name), here)
            if total is not None:
                total += here
        moving[...] = here

    def _part(self, kind: _Kind, picked: Indices, weights: Floats) -> ArrayPart:
        """The slope over batches of this shape; it is used again."""
        key = (kind, picked.shape)
        if key not in self._parts:
            if len(self._parts) >= MAX_PLANS:
                self._parts.clear()
            model = self.engine.samples.model
            moving = model.v if kind.stage else model.y
            self._parts[key] = ArrayPart(self.engine, (kind.name,), picked, weights, "g", moving)
        return self._parts[key]

    def _memory_of(self, kind: _Kind, rows: int) -> tuple[CompiledWalk, Floats] | None:
        """Compiled code for batches of so many rows, and memory for it; None where there is none."""
        walk = self.engine.walk(kind.name, kind.stage, rows) if self._is_compiled else None
        return None if walk is None else (walk, walk.memory())
