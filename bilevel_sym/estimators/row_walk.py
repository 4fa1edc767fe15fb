"""Programs over batches of rows in compiled code (extra ``fast``): from the steps of a plan to its instructions.

What there is no instruction for, such as a product of two matrices, is left to NumPy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from bilevel_sym.arithmetic.compiled import rows as compiled
from bilevel_sym.arithmetic.compiled.elementwise import CODES
from bilevel_sym.arrays.plan import Step
from bilevel_sym.estimators.row_run import parted
from bilevel_sym.implicit.array_program import ArrayProgram
from bilevel_sym.typing import Floats, Indices

__all__ = ["CompiledWalk"]

Line: TypeAlias = tuple[int, int, int, int, int, int, int]
MAX_NUMBERS = 4_000_000  # in the memory of a walk
MAX_TABLES = 3


class _Unable(Exception):
    """There is no instruction for a step: NumPy does it."""


class CompiledWalk:
    """point <- point - step * slope(point), a batch of rows each time, in compiled code, for one lane after the other.

    - ``program``: what computes the slope.
    - ``name``: of the block that is the slope.
    - ``tables``: the arrays of all rows, by place.
    - ``weight``: the place of the weights, or None.
    - ``moving``: the places of the inputs that are the point.
    - ``stage``: the stage whose inputs they are.
    """

    def __init__(
        self,
        program: ArrayProgram,
        name: str,
        tables: Mapping[int, Floats],
        weight: int | None,
        moving: Collection[int],
        stage: int,
    ) -> None:
        self._program, self._n = program, program.workshop.y.size
        self._numbers, self._size = list[float](), 0
        self._at: dict[int, int] = {}
        self._inputs = [self._room(layout.size) for layout in program.workshop.inputs[:2]]
        for start, leaves in zip(self._inputs, program.leaves, strict=False):
            self._at |= {place: start + own.start for place, own, _ in leaves}
        self._place_values(tables, weight)
        given = {*tables} if weight is None else {*tables, weight}
        once, each = self._code(program, given | set(moving))
        slope = self._slope(name, each)
        self._total, self._weight = self._room(self._n), None if weight is None else self._at[weight]
        point = self._inputs[stage] + (program.workshop.x.size if stage == 0 else 0)
        self._ends = np.array([point, slope, self._total if stage else -1, self._n])
        self._once, self._each = (np.array(code, dtype=np.int64).reshape(-1, 7) for code in (once, each))
        lookups = [(k, prod(table.shape[1:]), self._at[place]) for k, (place, table) in enumerate(tables.items())]
        self._lookups = np.array(lookups, dtype=np.int64).reshape(-1, 3)
        flat = [table.reshape(-1) for table in tables.values()]
        self._tables = [*flat, *[np.zeros(1)] * (MAX_TABLES - len(flat))]
        self._rows = min((len(table) for table in tables.values()), default=0)
        self._coefficients = np.array([*self._numbers, 0.0])

    @classmethod
    def of(
        cls,
        program: ArrayProgram,
        name: str,
        tables: Mapping[int, Any],
        weight: int | None,
        moving: Collection[int],
        stage: int,
    ) -> CompiledWalk | None:
        """A walk, or None where compiled code has no instructions for it; the parameters are those of the class.

        program: what computes the slope
        name: of the block that is the slope
        tables: the arrays of all rows, by place
        weight: the place of the weights, or None
        moving: the places of the inputs that are the point
        stage: the stage whose inputs they are
        """
        dense = all(
            isinstance(value, np.ndarray | np.generic) for value in (*tables.values(), *program.constants.values())
        )
        fit = dense and all(own.dtype == np.float64 and own.flags.c_contiguous for own in tables.values())
        if not fit or not tables or len(tables) > MAX_TABLES or program.entries > MAX_NUMBERS:
            return None
        try:
            return cls(program, name, tables, weight, moving, stage)
        except _Unable:
            return None

    def memory(self) -> Floats:
        """Room for all values, data in their places."""
        raw = np.zeros(self._size + compiled.LINE)
        start = (-raw.ctypes.data // raw.itemsize) % compiled.LINE
        memory = raw[start : start + self._size]
        for k, value in self._program.constants.items():
            where = self._at[self._program.numbers[k]]
            memory[where : where + value.size] = np.ravel(value)
        return memory

    def run(
        self,
        memory: Floats,
        points: Floats,
        moving: Floats,
        total: Floats | None,
        picked: Indices,
        weights: Floats,
        step: float,
    ) -> None:
        """moving -= step * slope, and total += moving, for each batch, in one lane.

        memory: see ``memory``
        points: x and y, (d + n,)
        moving: what moves, (n,): y among the points, or v
        total: (n,), or None
        picked: the rows of each batch, (batches, R)
        weights: of the rows in every batch, (R,)
        step: the step size
        """
        if picked.min(initial=0) < 0 or picked.max(initial=0) >= self._rows:  # compiled code does not look
            raise IndexError("there is no such row")
        first = self._inputs[0]
        here, sums = (slice(start, start + self._n) for start in (self._ends[0], self._total))
        memory[first : first + len(points)] = points
        memory[here] = moving
        if total is not None:
            memory[sums] = total
        if self._weight is not None:
            memory[self._weight : self._weight + len(weights)] = weights
        compiled.walk(
            self._once, self._each, self._coefficients, memory, *self._tables, self._lookups,
            np.ascontiguousarray(picked, dtype=np.int64), self._ends, step,
        )  # fmt: skip
        moving[...] = memory[here]
        if total is not None:
            total[...] = memory[sums]

    # ---- memory -----------------------------------------------------------------------------------------------------

    def _room(self, entries: int) -> int:
        """Where so many numbers may stand."""
        start, self._size = self._size, self._size + -(-entries // compiled.LINE) * compiled.LINE
        if self._size > MAX_NUMBERS:
            raise _Unable
        return start

    def _place_values(self, tables: Mapping[int, Floats], weight: int | None) -> None:
        """Places for what comes with a batch, for data and for what is computed."""
        program, steps = self._program, self._program.workshop.plan.steps
        computed = {out for instructions in program.instructions for _, _, out, _ in instructions}
        data = {program.numbers[k] for k in program.constants}
        for k, place in program.numbers.items():
            if place in computed or place in data or place in tables or place == weight:
                self._at[place] = self._room(steps[k].entries)

    # ---- instructions -----------------------------------------------------------------------------------------------

    def _code(self, program: ArrayProgram, changing: set[int]) -> tuple[list[Line], list[Line]]:
        """The instructions that are performed once, and those of each batch."""
        steps, step_at = program.workshop.plan.steps, {place: k for k, place in program.numbers.items()}
        code = list[Line](), list[Line]()
        for stage in parted(program, changing):
            for lines, instructions in zip(code, stage, strict=True):
                for _, args, out, _ in instructions:
                    step = steps[step_at[out]]
                    own = [steps[step_at[place]] for place in args]
                    lines.extend(self._lines(step, own, self._at[out], [self._at[place] for place in args]))
        return code

    def _lines(self, step: Step, args: Sequence[Step], to: int, at: Sequence[int]) -> Iterator[Line]:
        if step.sparse or any(arg.sparse for arg in args):
            raise _Unable
        if step.kind == "contract":
            yield self._product(step, args, to, at)
        elif step.kind == "multiply":
            yield self._multiplied(step, to, at)
        elif step.kind == "combine":
            yield from self._combined(step, to, at)
        elif step.kind == "apply":
            yield self._applied(step, to, at)
        else:
            raise _Unable

    def _product(self, step: Step, args: Sequence[Step], to: int, at: Sequence[int]) -> Line:
        one, two, out = step.parameter
        match one, two, out:
            case (i, k), (j,), (h,) if k == j and h == i:
                return compiled.MATRIX_VECTOR, to, at[0], at[1], *args[0].shape, 0  # type: ignore[return-value]
            case (k, i), (j,), (h,) if k == j and h == i:
                return compiled.VECTOR_MATRIX, to, at[0], at[1], *args[0].shape, 0  # type: ignore[return-value]
            case (_,), (_,), ():
                return compiled.DOT, to, at[0], at[1], args[0].entries, 0, 0
        raise _Unable

    def _multiplied(self, step: Step, to: int, at: Sequence[int]) -> Line:
        whole = tuple(range(len(step.shape)))
        if step.parameter == (whole, whole):
            return compiled.MULTIPLY, to, at[0], at[1], step.entries, 0, 0
        if step.parameter == (whole, ()):
            return compiled.MULTIPLY_NUMBER, to, at[0], at[1], step.entries, 0, 0
        raise _Unable

    def _combined(self, step: Step, to: int, at: Sequence[int]) -> Iterator[Line]:
        rows: Any
        constant: Any
        rows, constant = step.parameter
        whole = tuple(range(len(step.shape)))
        fresh = not constant and bool(rows) and rows[0][1] == whole
        if not fresh:
            yield compiled.FILL, to, 0, 0, step.entries, 0, self._number(constant)
        for k, (coefficient, places, deltas) in enumerate(rows):
            if deltas or places not in (whole, ()):
                raise _Unable
            adds = compiled.ADD if places == whole else compiled.ADD_NUMBER
            op = compiled.SCALE if fresh and k == 0 else adds
            yield op, to, at[k], 0, step.entries, 0, self._number(coefficient)

    def _applied(self, step: Step, to: int, at: Sequence[int]) -> Line:
        op: Any
        parameter: Any
        op, parameter = step.parameter
        if op == "ipow" and parameter[0]:
            return compiled.POWER, to, at[0], 0, step.entries, abs(parameter[0]).bit_length() - 1, parameter[0]
        if parameter or len(at) != 1 or CODES.get(op, 0) <= CODES["rpow"]:
            raise _Unable
        return compiled.APPLY, to, at[0], 0, step.entries, 0, CODES[op]

    def _number(self, value: Any) -> int:
        self._numbers.append(float(value))
        return len(self._numbers) - 1

    def _slope(self, name: str, each: list[Line]) -> int:
        """Where the block stands, after instructions that put it together if it has several pieces."""
        block, numbers = self._program.blocks[name], self._program.numbers
        parts = block.pieces[0][2] if len(block.pieces) == 1 else ()
        steps = self._program.workshop.plan.steps
        if len(parts) == 1 and not parts[0].deltas and steps[parts[0].step].entries == self._n:
            return self._at[numbers[parts[0].step]]
        to = self._room(self._n)
        each.append((compiled.FILL, to, 0, 0, self._n, 0, self._number(0.0)))
        for (own,), shape, pieces in block.pieces:
            for part in pieces:
                entries = steps[part.step].entries
                if part.deltas or entries not in (1, prod(shape)):
                    raise _Unable
                op = compiled.ADD if entries == prod(shape) else compiled.ADD_NUMBER
                each.append((op, to + own.start, self._at[numbers[part.step]], 0, prod(shape), 0, self._number(1.0)))
        return to
