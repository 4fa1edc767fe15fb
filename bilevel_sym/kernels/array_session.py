"""Points of one program over arrays: those that differ are computed, together or one by one."""

from __future__ import annotations

import numpy as np

from bilevel_sym.implicit.array_program import ArrayProgram, Run
from bilevel_sym.implicit.engine import copies_of_the_first
from bilevel_sym.typing import Floats, Indices


class ArraySession:
    """Points of one program; see ``bilevel_sym.implicit.engine.Session``.

    Solvers fill blocks of lanes with copies of the first: those are not computed again.

    - ``program``: what is computed.
    - ``lanes``: the number of points.
    - ``group``: how many of them go together, as a leading axis of every value.
    - ``apart``: whether a group is one point, without that axis.
    """

    def __init__(self, program: ArrayProgram, lanes: int, group: int, *, apart: bool = False) -> None:
        self._program, self._lanes, self._group, self._apart = program, lanes, max(1, group), apart
        self._inputs = [np.zeros((lanes, layout.size)) for layout in program.workshop.inputs]
        self._begin(np.arange(lanes))

    def _begin(self, own: Indices) -> None:
        """Compute these lanes, the first among them; the others have what the first has."""
        self._own, self._where = own, np.zeros(self._lanes, dtype=np.intp)
        self._where[own] = np.arange(len(own))
        cuts = [own[k : k + self._group] for k in range(0, len(own), self._group)]
        self._parts = [(Run(self._program, () if self._apart else (len(cut),)), cut) for cut in cuts]

    def inputs(self, stage: int) -> Floats:
        """The inputs of one stage, (inputs, lanes)."""
        return self._inputs[stage].T

    def put(self, stage: int, values: Floats) -> None:
        """Give the inputs of one stage, (lanes, inputs), and perform it."""
        self._inputs[stage][...] = values
        self.perform(stage)

    @np.errstate(all="ignore")
    def perform(self, stage: int) -> None:
        """Perform one stage whose inputs are in their places."""
        if self._lanes > 1:
            self._share(stage)
        self._perform(stage)

    def _share(self, stage: int) -> None:
        """See to it that lanes are shared only as long as their inputs are the same bits."""
        copies, shared = copies_of_the_first(self._inputs[stage]), np.ones(self._lanes, dtype=np.bool_)
        shared[self._own] = False
        if stage == 0 and not np.array_equal(copies, shared):
            self._begin(np.flatnonzero(~copies))
        elif (shared & ~copies).any():
            self._begin(np.arange(self._lanes))
            for earlier in range(stage):
                self._perform(earlier)

    def _perform(self, stage: int) -> None:
        inputs, everyone = self._inputs[stage], len(self._parts) == 1 and len(self._own) == self._lanes
        for run, lanes in self._parts:
            run.perform(stage, inputs[lanes[0]] if self._apart else inputs if everyone else inputs[lanes])

    def take(self, name: str) -> Floats:
        """One block, (lanes, ...)."""
        shape = self._program.shape(name)
        found = [run.block(name).reshape(len(lanes), *shape) for run, lanes in self._parts]
        blocks = found[0] if len(found) == 1 else np.concatenate(found or [np.zeros((0, *shape))])
        return blocks if len(self._own) == self._lanes else blocks[self._where]

    def rows(self, name: str) -> Floats:
        """One block, (entries, lanes)."""
        return self.take(name).reshape(self._lanes, -1).T
