"""The tape in NumPy: programs for sets of blocks, each compiled when first asked for."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import numpy as np

from bilevel_sym.arithmetic.arrays import ArrayProgram, ArraySession, Encode, batch_invariant_calls
from bilevel_sym.implicit.engine import keep_memory
from bilevel_sym.implicit.model import Model
from bilevel_sym.implicit.session_engine import SessionEngine

__all__ = ["TapeEngine"]

MAX_TAPE_PROGRAMS = 64  # far more than there are kernels
TAPE_NUMBERS = 600_000  # numbers that a chunk of lanes may hold: about what the second-level cache keeps
TAPE_LANES = 1024  # and never more lanes than this


class TapeEngine(SessionEngine):
    """The tape in NumPy calls.

    >>> import sympy as sp
    >>> x, y = sp.symbols("x y")
    >>> engine = TapeEngine(Model(x*y, y**2/2 - sp.sin(x)*y, [x], [y]))
    >>> session = engine.session(("g_xy",), 1)
    >>> session.put(0, np.array([[0.0, 5.0]]))
    >>> session.take("g_xy")
    array([[[-1.]]])
    """

    name = "numpy"

    def __init__(self, model: Model, encode: Encode | None = None, *, batch_invariant: bool = False) -> None:
        """``encode``: how the steps of a stage become a call; by default one NumPy call a step.

        ``batch-invariant``: a lane has the same bits alone and among others.
        """
        self._model, self.batch_invariant = model, batch_invariant
        self._encode = encode or (batch_invariant_calls if batch_invariant else None)
        # one program for each set of blocks that was ever asked for
        self._program = lru_cache(MAX_TAPE_PROGRAMS)(self._compile)
        self._lanes = lru_cache(MAX_TAPE_PROGRAMS)(self._best_lanes)
        keep_memory()

    def _compile(self, names: tuple[str, ...]) -> ArrayProgram:
        # the order of a sum must not depend on what was asked for before, either
        model = self._model.fresh_copy() if self.batch_invariant else self._model
        with _uncollected():
            return ArrayProgram(model.program(names), self._encode)

    def session(self, names: Sequence[str], lanes: int) -> ArraySession:
        """Lanes in which these blocks can be computed."""
        return self._program(tuple(names)).session(lanes, batch_invariant=self.batch_invariant)

    def lanes(self, names: Sequence[str]) -> int:
        """As many as the cache holds, a power of two."""
        return self._lanes(tuple(names))

    def _best_lanes(self, names: tuple[str, ...]) -> int:
        program = self._program(names).program
        numbers = program.size + sum(len(output.places) for output in program.outputs.values())
        return int(2 ** np.clip(np.round(np.log2(TAPE_NUMBERS / numbers)), 4, np.log2(TAPE_LANES)))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's search for cycles: what is built has none, and SymPy's many objects would be gone through."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
