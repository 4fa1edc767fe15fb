"""What an estimator may ask of a problem: sessions in lanes that do not influence each other.

A trajectory lives in one lane. Lanes come in whole blocks, and every operation treats a lane the same wherever it
stands, so that a trajectory has the same bits alone and in any ensemble.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from bilevel_sym.arithmetic.arrays import BLOCK_LANES, whole_blocks
from bilevel_sym.implicit.engine import Engine, Lanes, Session
from bilevel_sym.kernels import Kernels
from bilevel_sym.typing import Floats, Indices

__all__ = ["SYSTEM", "ExactOracle", "OneLane", "Oracle", "fill", "filled", "in_lanes", "out_of_lanes"]

SYSTEM = ("f", "f_x", "f_y", "g_yy_v")  # what the linear system g_yy v = f_y needs: the largest of the programs


class Oracle(Protocol):
    """f and g, or the means of F and G over a batch, in lanes."""

    @property
    def width(self) -> int:
        """How many lanes are best at a time: a multiple of the block."""

    def session(self, names: Sequence[str], lanes: slice) -> Lanes:
        """A session for these blocks in these lanes of the ensemble; its own until it is asked for again."""


class ExactOracle:
    """f and g themselves.

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> session = ExactOracle(problem.kernels).session(("g_y",), slice(0, 16))
    >>> session.inputs(0)[:] = 2.0
    >>> session.perform(0)
    >>> session.rows("g_y")[0, :3]
    array([0., 0., 0.])
    """

    def __init__(self, kernels: Kernels) -> None:
        self.engine: Engine = kernels.batch_invariant
        self._sessions: dict[tuple[tuple[str, ...], int], Lanes] = {}

    @property
    def width(self) -> int:
        """Many lanes share the price of a call, as long as the table stays in the cache."""
        return max(BLOCK_LANES, self.engine.lanes(SYSTEM) // BLOCK_LANES * BLOCK_LANES)

    def session(self, names: Sequence[str], lanes: slice) -> Lanes:
        """Sessions are used again: their tables are the solver's only large memory."""
        key = (tuple(names), lanes.stop - lanes.start)
        if key not in self._sessions:
            alone = self.engine.single
            self._sessions[key] = (
                OneLane(self.engine.session(key[0], 1), key[1]) if alone else self.engine.session(*key)
            )
        return self._sessions[key]


class OneLane:
    """The lanes of one trajectory: the first is computed, the others have what it has.

    - ``session``: where it is computed.
    - ``lanes``: how many there seem to be.

    >>> from bilevel_sym import BilevelProblem
    >>> kernels = BilevelProblem("x*sum(y)", "y @ y/2 - x*sum(y)", "x", "y[2]").kernels.for_one_trajectory
    >>> session = ExactOracle(kernels).session(("g_y",), slice(0, 16))
    >>> session.inputs(0)[:] = [[1.0], [2.0], [3.0]]
    >>> session.perform(0)
    >>> session.rows("g_y").shape, session.rows("g_y")[:, 0]
    ((2, 16), array([1., 2.]))
    """

    def __init__(self, session: Session, lanes: int) -> None:
        self._session, self._lanes = session, lanes
        self._tables: dict[int, Floats] = {}

    def inputs(self, stage: int) -> Floats:
        """The inputs of one stage, (inputs, lanes)."""
        if stage not in self._tables:
            self._tables[stage] = np.zeros((len(self._session.inputs(stage)), self._lanes))
        return self._tables[stage]

    def perform(self, stage: int) -> None:
        """Perform one stage whose inputs are in their places."""
        self._session.inputs(stage)[:, 0] = self.inputs(stage)[:, 0]
        self._session.perform(stage)

    def rows(self, name: str) -> Floats:
        """One block, (entries, lanes)."""
        first = self._session.rows(name)
        return np.broadcast_to(first, (len(first), self._lanes))


def fill(session: Lanes, x: Floats, y: Floats) -> None:
    """Write x and y, lanes last, into the inputs of the first stage."""
    inputs = session.inputs(0)
    inputs[: len(x)] = x
    inputs[len(x) : len(x) + len(y)] = y


def filled(lanes: Indices) -> Indices:
    """Some lanes, and the first of them again until the block is whole.

    >>> filled(np.array([3, 5]))[:4].tolist(), len(filled(np.array([3, 5])))
    ([3, 5, 3, 3], 16)
    """
    return np.concatenate([lanes, np.full(whole_blocks(len(lanes)) - len(lanes), lanes[0])])


def in_lanes(rows: Floats) -> Floats:
    """Points as rows (S, k) -> lanes (k, whole blocks); filling repeats the first point.

    >>> in_lanes(np.array([[1.0, 2.0]])).shape
    (2, 16)
    """
    size, width = rows.shape
    table = np.empty((width, whole_blocks(size)))
    table[:, :size] = rows.T
    table[:, size:] = rows[:1].T
    return table


def out_of_lanes(table: Floats, size: int) -> Floats:
    """The first ``size`` lanes as rows.

    >>> out_of_lanes(np.zeros((3, 16)), 2).shape
    (2, 3)
    """
    return np.array(table[:, :size].T, order="C")  # a copy even where one row would be contiguous as it stands
