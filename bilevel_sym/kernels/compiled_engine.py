"""The tape in the compiled interpreter (extra ``fast``): the same programs, and the implicit formulas in one go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from bilevel_sym.arithmetic.compiled.instructions import Encoded
from bilevel_sym.arithmetic.linear_algebra import NotPositiveDefinite, smallest_eigenvalues
from bilevel_sym.implicit.compiled import Implicit
from bilevel_sym.implicit.engine import EXPANSION, Expansion
from bilevel_sym.implicit.lanes import BLOCK
from bilevel_sym.implicit.model import Model
from bilevel_sym.kernels.tape_engine import TapeEngine
from bilevel_sym.typing import Floats

__all__ = ["CompiledEngine"]

COMPILED_LANES = 512
BLOCK_NUMBERS = 100_000  # numbers that the blocks of lanes in one go of the implicit formulas may hold
MAX_BLOCKS = 8


class CompiledEngine(TapeEngine):
    """The tape in compiled loops; see ``bilevel_sym.implicit.engine.Engine``."""

    name = "compiled"

    def __init__(self, model: Model, *, batch_invariant: bool = False) -> None:
        super().__init__(model, Encoded, batch_invariant=batch_invariant)

    def lanes(self, names: Sequence[str]) -> int:
        """Enough to forget what Python costs around a program, few enough for the cache."""
        return COMPILED_LANES

    @cached_property
    def _implicit(self) -> Implicit:
        ready = self._program(EXPANSION)
        stages = [stage for stage in ready.stages[:2] if isinstance(stage, Encoded)]
        template = ready.session(1).work.reshape(-1)
        return Implicit(ready.program, stages, template, self._model.d, self._model.n)

    def expansion(self, xy: Floats) -> Expansion:
        """Phi, grad Phi and Hess Phi at rows (x, y): the formulas of ``implicit``, in compiled code throughout."""
        if len(xy) == 1:
            single = self._implicit.one(xy[0])
            if single is None:
                raise self._not_positive_definite(xy, np.array([0]))
            return Expansion(*single)
        size, d = len(xy), self._model.d
        result = Expansion(np.empty(size), np.empty((size, d)), np.empty((size, d, d)))
        blocks = min(MAX_BLOCKS, max(1, BLOCK_NUMBERS // (BLOCK * self._program(EXPANSION).program.size)))
        lanes = BLOCK * min(blocks, max(1, -(-size // BLOCK)))
        session = self.session(EXPANSION, lanes)
        for start in range(0, size, lanes):
            points = xy[start : start + lanes]
            # the lanes that fill up the last block repeat its first point
            filled = np.concatenate([points, np.repeat(points[:1], lanes - len(points), axis=0)])
            session.put(0, filled)
            response, failed = self._implicit.eliminate(session.work)
            if failed[: len(points)].any():
                raise self._not_positive_definite(xy, start + np.flatnonzero(failed[: len(points)]))
            session.perform(1)
            self._implicit.assemble(session.work, response, *(part[start : start + lanes] for part in result))
        return result

    def _not_positive_definite(
        self, xy: Floats, members: np.ndarray[tuple[int], np.dtype[np.intp]]
    ) -> NotPositiveDefinite:
        session = self.session(("g_yy",), len(members))
        session.put(0, xy[members])
        return NotPositiveDefinite(members, smallest_eigenvalues(session.take("g_yy")))
