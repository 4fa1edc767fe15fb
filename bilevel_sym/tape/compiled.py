"""Programs for the compiled interpreter: the same steps as ``arrays`` performs, written as instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.tape import interpreter, lanes, single
from bilevel_sym.tape.arrays import Floats, dense
from bilevel_sym.tape.program import Program, Row, Step

__all__ = ["Encoded", "Implicit"]

Integers: TypeAlias = NDArray[np.int64]
Code = tuple[Integers, Integers, Floats]
Instruction = tuple[int, int, int, int, int, int]
LONG = 8  # terms of a row that may share a matrix product with others
NEARLY = 0.7  # the part of the product's columns that a row must read itself


class Encoded:
    """The steps of one stage as instructions, and as a call that performs them on the table of values.

    >>> from bilevel_sym.tape.program import Step
    >>> work = np.array([[1.0, 1.0], [2.0, 3.0], [0.0, 0.0]])
    >>> Encoded([Step("mul", 2, 1, (), ((1,), (1,)))])(work)
    >>> work[2]
    array([4., 9.])
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.code = _code(steps)

    def __call__(self, work: Floats) -> None:
        """Perform the stage on every lane."""
        if work.shape[1] == 1:
            single.run(*self.code, work.reshape(-1))
        else:
            interpreter.run(*self.code, work)


def _code(steps: Sequence[Step]) -> Code:
    instructions: list[Instruction] = []
    places: list[int] = []
    coefficients: list[float] = []
    for step in steps:
        if step.op == "lin":
            instructions.extend(_combinations(step, places, coefficients))
        else:
            instructions.extend(_plain(step))
    return (
        np.array(instructions, dtype=np.int64).reshape(-1, 6),
        np.array(places, dtype=np.int64),
        np.array(coefficients, dtype=np.float64),
    )


def _plain(step: Step) -> Iterator[Instruction]:
    code = interpreter.CODES[step.op]
    for to, args in zip(step.places, zip(*step.sources, strict=True), strict=True):
        a, b, c = (*args, *step.parameter, 0, 0)[:3]
        yield code, to, a, b, c, 0


def _combinations(step: Step, places: list[int], coefficients: list[float]) -> Iterator[Instruction]:
    """Rows that read the same places become one product with a matrix; the others stay by themselves."""
    rows = dict(zip(step.places, step.rows, strict=True))
    for members in _alike(rows):
        start, offset = len(places), len(coefficients)
        columns, matrix = dense([rows[to] for to in members])
        places.extend(columns)
        stop = len(places)
        coefficients.extend(matrix.ravel().tolist())
        if len(members) > 1:
            places.extend(members)
        yield interpreter.LIN, members[0], start, stop, len(members) if len(members) > 1 else 0, offset


def _alike(rows: Mapping[int, Row]) -> list[list[int]]:
    """Groups of rows that read nearly the same places, worth a matrix product; every other row alone."""
    groups: list[tuple[set[int], list[int]]] = []
    alone: list[list[int]] = []
    for to, row in sorted(rows.items(), key=lambda item: -len(item[1])):  # the longest first: the others fit in
        reads = {place for place, _ in row}
        home = next((g for g in groups if reads <= g[0] and len(reads) >= NEARLY * len(g[0])), None)
        if home is not None:
            home[1].append(to)
        elif len(reads) >= LONG:
            groups.append((reads, [to]))
        else:
            alone.append([to])
    return [members for _, members in groups] + alone


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
        self._codes: list[Any] = [array for stage in stages for array in stage.code]
        self._table = np.concatenate(
            [*(self._places[name].ravel() for name in shapes), self._v, self._filled.ravel().astype(np.int64)]
        )

    def eliminate(self, work: Floats) -> tuple[Floats, NDArray[np.bool_]]:
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
        expand: Any = single.expand
        if not expand(*self._codes, self._template, self._table, d, self._n, self._zero, xy, out):
            return None
        return out[:1], out[1 : 1 + d].reshape(1, d), out[1 + d :].reshape(1, d, d)


def _fill(pattern: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where a Cholesky factor of a matrix with this pattern can be other than zero (lower triangle)."""
    filled = np.tril(pattern) | np.eye(len(pattern), dtype=bool)
    for k in range(len(filled)):
        below = np.flatnonzero(filled[k + 1 :, k]) + k + 1
        filled[np.ix_(below, below)] = True
    return np.tril(filled)
