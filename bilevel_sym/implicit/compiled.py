"""The implicit formulas on the tables of a compiled program: blocks of lanes, or one point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bilevel_sym.arithmetic.compiled.instructions import Encoded
from bilevel_sym.graph.program import Program
from bilevel_sym.implicit import lanes
from bilevel_sym.typing import Bools, Floats

__all__ = ["Implicit"]


class Implicit:
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
        response = np.empty((work.shape[1] // lanes.BLOCK, self._n, self._d, lanes.BLOCK))
        failed = np.zeros(work.shape[1], dtype=np.bool_)
        lanes.eliminate(work, p["g_yy"], p["g_xy"], p["f_y"], self._filled, self._v, response, failed)
        return response, failed

    def assemble(self, work: Floats, response: Floats, phi: Floats, grad: Floats, hess: Floats) -> None:
        """Phi, grad Phi and Hess Phi of the first lanes, as many as the arrays for the results have rows."""
        p = self._places
        lanes.assemble(
            work, int(p["f"]), p["f_x"], p["g_xy"], self._v, p["L_xx"], p["L_xy"], p["L_yy"], self._zero,
            response, phi, grad, hess,
        )  # fmt: skip

    def one(self, xy: Floats) -> tuple[Floats, Floats, Floats] | None:
        """All of it for one point (x, y), as a batch of one; None where g_yy is not positive definite."""
        d = self._d
        out = np.empty(1 + d + d * d)
        expand: Any = lanes.expand
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
