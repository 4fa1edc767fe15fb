"""The tape in the compiled interpreter (extra ``fast``): the same programs, and the implicit formulas in one go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from bilevel_sym.engine import EXPANSION, Expansion, Floats
from bilevel_sym.linear_algebra import NotPositiveDefinite, smallest_eigenvalues
from bilevel_sym.tape.arrays import ArrayProgram, ArraySession
from bilevel_sym.tape.compiled import Implicit, encode
from bilevel_sym.tape.interpreter import BLOCK
from bilevel_sym.tape.model import Model

__all__ = ["CompiledEngine"]

MAX_PROGRAMS = 64
LANES = 64  # enough to forget the price of an instruction, few enough for the cache


class CompiledEngine:
    """The tape in compiled loops; see ``bilevel_sym.engine.Engine``."""

    name = "compiled"

    def __init__(self, model: Model) -> None:
        self._model = model
        self._program = lru_cache(MAX_PROGRAMS)(self._compile)

    def _compile(self, names: tuple[str, ...]) -> ArrayProgram:
        return ArrayProgram(self._model.program(names), encode)

    @cached_property
    def _implicit(self) -> Implicit:
        ready = self._program(EXPANSION)
        zeros = frozenset(ready.constant_places[ready.constants == 0].tolist())
        return Implicit(ready.program, zeros, self._model.d, self._model.n)

    def session(self, names: Sequence[str], lanes: int) -> ArraySession:
        """Lanes in which these blocks can be computed."""
        padded = -(-lanes // BLOCK) * BLOCK if lanes > 1 and tuple(names) == EXPANSION else lanes
        return self._program(tuple(names)).session(padded)

    def lanes(self, names: Sequence[str]) -> int:
        """A few vectors for each instruction."""
        return LANES

    def expansion(self, session: ArraySession, xy: Floats) -> Expansion:
        """The formulas of ``implicit.expansion``, without leaving compiled code between the stages."""
        lanes = session.work.shape[1]
        if lanes == 1:
            return self._expansion_of_one(session, xy)
        # the lanes that fill up the last block repeat the first point
        points = xy if lanes == len(xy) else np.concatenate([xy, np.repeat(xy[:1], lanes - len(xy), axis=0)])
        session.put(0, points)
        response, failed = self._implicit.eliminate(session.work)
        if failed[: len(xy)].any():
            members = np.flatnonzero(failed[: len(xy)])
            raise NotPositiveDefinite(members, smallest_eigenvalues(session.take("g_yy")[members]))
        session.perform(1)
        return Expansion(*self._implicit.assemble(session.work, response, len(xy)))

    def _expansion_of_one(self, session: ArraySession, xy: Floats) -> Expansion:
        session.put(0, xy)
        values = session.work.reshape(-1)
        right = self._implicit.eliminate_one(values)
        if right is None:
            raise NotPositiveDefinite(np.array([0]), smallest_eigenvalues(session.take("g_yy")))
        session.perform(1)
        return Expansion(*self._implicit.assemble_one(values, right))
