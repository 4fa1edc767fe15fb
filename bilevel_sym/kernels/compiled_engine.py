"""The tape in the compiled interpreter (extra ``fast``): the same programs, and the implicit formulas in one go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from bilevel_sym.arithmetic.compiled.instructions import Encoded
from bilevel_sym.arithmetic.linear_algebra import NotPositiveDefinite, smallest_eigenvalues
from bilevel_sym.graph.program import Program
from bilevel_sym.implicit import lanes as in_lanes
from bilevel_sym.implicit.engine import EXPANSION, Expansion
from bilevel_sym.implicit.model import Model
from bilevel_sym.kernels.tape_engine import TapeEngine
from bilevel_sym.typing import Bools, Floats

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
    def _implicit(self) -> _Implicit:
        ready = self._program(EXPANSION)
        stages = [stage for stage in ready.stages[:2] if isinstance(stage, Encoded)]
        template = ready.session(1).work.reshape(-1)
        return _Implicit(ready.program, stages, template, self._model.d, self._model.n)

    def expansion(self, xy: Floats) -> Expansion:
        """Phi, grad Phi and Hess Phi at rows (x, y): the formulas of ``implicit``, in compiled code throughout."""
        if len(xy) == 1:
            single = self._implicit.one(xy[0])
            if single is None:
                raise self._not_positive_definite(xy, np.array([0]))
            return Expansion(*single)
        size, d = len(xy), self._model.d
        result = Expansion(np.empty(size), np.empty((size, d)), np.empty((size, d, d)))
        blocks = min(MAX_BLOCKS, max(1, BLOCK_NUMBERS // (in_lanes.BLOCK * self._program(EXPANSION).program.size)))
        lanes = in_lanes.BLOCK * min(blocks, max(1, -(-size // in_lanes.BLOCK)))
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


class _Implicit:
    """The implicit formulas on the tables of one program, without leaving compiled code.

    ``template`` is a column of values with the constants in place, ``stages`` the first two of the program.
    """

    def __init__(self, program: Program, stages: Sequence[Encoded], template: Floats, d: int, n: int) -> None:
        self._d, self._n, self._template = d, n, template
        shapes = {"f": (), "f_x": (d,), "f_y": (n,), "g_xy": (d, n), "g_yy": (n, n)}
        shapes |= {"L_xx": (d, d), "L_xy": (d, n), "L_yy": (n, n)}
        self._places: dict[str, Any] = {
            name: np.array(program.outputs[name].places, dtype=np.int64).reshape(shape)
            for name, shape in shapes.items()
        }
        constant = [place for step in program.constants for place in step.places]
        zeros = [place for place in constant if template[place] == 0]
        self._zero = min(zeros, default=-1)
        self._filled = _fill(~np.isin(self._places["g_yy"], zeros))
        self._v = np.array(program.inputs[1], dtype=np.int64)
        self._codes: list[Any] = [array for stage in stages for array in stage.one_point]
        self._table = np.concatenate(
            [*(self._places[name].ravel() for name in shapes), self._v, self._filled.ravel().astype(np.int64)]
        )

    def eliminate(self, work: Floats) -> tuple[Floats, Bools]:
        """Solve for v and dy_dx^T; returns the latter by blocks of lanes, and which lanes failed."""
        p = self._places
        response = np.empty((work.shape[1] // in_lanes.BLOCK, self._n, self._d, in_lanes.BLOCK))
        failed = np.zeros(work.shape[1], dtype=np.bool_)
        in_lanes.eliminate(work, p["g_yy"], p["g_xy"], p["f_y"], self._filled, self._v, response, failed)
        return response, failed

    def assemble(self, work: Floats, response: Floats, phi: Floats, grad: Floats, hess: Floats) -> None:
        """Phi, grad Phi and Hess Phi of the first lanes, as many as the arrays for the results have rows."""
        p = self._places
        in_lanes.assemble(
            work, int(p["f"]), p["f_x"], p["g_xy"], self._v, p["L_xx"], p["L_xy"], p["L_yy"], self._zero,
            response, phi, grad, hess,
        )  # fmt: skip

    def one(self, xy: Floats) -> tuple[Floats, Floats, Floats] | None:
        """All of it for one point (x, y), as a batch of one; None where g_yy is not positive definite."""
        d = self._d
        out = np.empty(1 + d + d * d)
        expand: Any = in_lanes.expand
        if not expand(*self._codes, self._template, self._table, d, self._n, self._zero, xy, out):
            return None
        return out[:1], out[1 : 1 + d].reshape(1, d), out[1 + d :].reshape(1, d, d)


def _fill(pattern: Bools) -> Bools:
    """Where a Cholesky factor of a matrix with this pattern can be other than zero (lower triangle)."""
    filled = np.tril(pattern) | np.eye(len(pattern), dtype=bool)
    for k in range(len(filled)):
        below = np.flatnonzero(filled[k + 1 :, k]) + k + 1
        filled[np.ix_(below, below)] = True
    return np.tril(filled)
