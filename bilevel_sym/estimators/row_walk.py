"""Programs over batches of rows in compiled code (extra ``fast``): from the steps of a plan to its instructions.

What there is no instruction for, such as a product of two matrices, is left to NumPy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from bilevel_sym.arithmetic.compiled import rows as compiled
from bilevel_sym.arithmetic.compiled.elementwise import CODES
from bilevel_sym.arrays.plan import Step
from bilevel_sym.estimators.row_run import parted
from bilevel_sym.implicit.array_program import ArrayProgram
from bilevel_sym.implicit.compiled_plan import Rooms, Unable
from bilevel_sym.typing import Floats, Indices

Short: TypeAlias = tuple[int, int, int, int, int, int, int]
Line: TypeAlias = tuple[int, int, int, int, int, int, int, int]
MAX_NUMBERS = 4_000_000  # in the memory of a walk
MAX_TABLES = 3
TOGETHER, LEAST_TOGETHER = 3200, 8  # numbers of data, and rows, that are looked up before they are computed with
NO_LIMIT = 2**62  # of rows that are not looked up


class CompiledWalk(Rooms):
    """A program over one batch of rows after the other, in compiled code, for one lane; see ``WalkMemory``.

    - ``program``: what computes the blocks.
    - ``tables``: the arrays of all rows, by place.
    - ``weight``: the place of the weights, or None.
    - ``rows``: how many a batch has.
    - ``moving``: the stage of the inputs that move, point <- point - step * slope: 0 for y, 1 for v; the slope is the
      only block. None: nothing moves.
    """

    def __init__(
        self, program: ArrayProgram, tables: Mapping[int, Floats], weight: int | None, rows: int, moving: int | None
    ) -> None:
        super().__init__(program, MAX_NUMBERS)
        self.rows = rows
        self._steps = {place: program.workshop.plan.steps[k] for k, place in program.numbers.items()}
        width = sum(prod(table.shape[1:]) for table in tables.values())
        self._together = min(rows, max(LEAST_TOGETHER, TOGETHER // max(1, width) // LEAST_TOGETHER * LEAST_TOGETHER))
        self.weights = None if weight is None else self.room(rows)
        self._lookups = np.array([*self._looked_up(tables, weight)], dtype=np.int64).reshape(-1, 4)
        code = self._code({*tables} if weight is None else {*tables, weight}, self._changing(tables, weight, moving))
        self.blocks = {name: self._block(name, code[-1]) for name in program.blocks}
        self.ends = self._ends(tables, moving)
        self._cuts = np.cumsum([len(lines) for lines in code[:-1]])
        self._lines = np.array([line for lines in code for line in lines], dtype=np.int64).reshape(-1, 8)
        flat = [compiled.to_read(table) for table in tables.values()]
        self._tables = [*flat, *[compiled.to_read(np.zeros(1))] * (MAX_TABLES - len(flat))]
        self._coefficients = self.numbers

    @classmethod
    def of(
        cls, program: ArrayProgram, tables: Mapping[int, Any], weight: int | None, rows: int, moving: int | None
    ) -> CompiledWalk | None:
        """A walk, or None where compiled code has no instructions for it; the parameters are those of the class.

        program: what computes the blocks
        tables: the arrays of all rows, by place
        weight: the place of the weights, or None
        rows: how many a batch has
        moving: the stage of the inputs that move, or None
        """
        dense = all(isinstance(table, np.ndarray | np.generic) for table in tables.values())
        fit = dense and all(own.dtype == np.float64 and own.flags.c_contiguous for own in tables.values())
        if not fit or len(tables) > MAX_TABLES or program.entries > MAX_NUMBERS:
            return None
        try:
            return cls(program, tables, weight, rows, moving)
        except Unable:
            return None

    def run(self, memory: Floats, picked: Indices, step: float) -> None:
        """Go through batches, (batches, R), whose inputs and weights stand in memory."""
        rows = compiled.to_read(np.ascontiguousarray(picked, dtype=np.int64))
        if not compiled.walk(
            self._lines, self._cuts, self._coefficients, memory, *self._tables, self._lookups, rows, self.ends, step
        ):
            raise IndexError("there is no such row")

    def _changing(self, tables: Mapping[int, Floats], weight: int | None, moving: int | None) -> set[int] | None:
        """The places of what changes from batch to batch; None for everything."""
        if moving is None:
            return None
        leaves = self.program.workshop.model.v if moving else self.program.workshop.model.y
        places = {weight, *(self.program.place_of(leaf.name) for leaf in leaves)}
        return {*tables, *(place for place in places if place is not None)}

    def _ends(self, tables: Mapping[int, Floats], moving: int | None) -> Indices:
        """See ``compiled.walk``."""
        sizes = (min((len(table) for table in tables.values()), default=NO_LIMIT), self.rows, self._together)
        if moving is None:
            return np.array([0, 0, -1, 0, *sizes])
        point = self.inputs[moving] + (0 if moving else self.program.workshop.x.size)
        n = self.program.workshop.y.size
        (slope,) = self.blocks.values()
        return np.array([point, slope, self.room(n) if moving else -1, n, *sizes])

    # ---- memory -----------------------------------------------------------------------------------------------------

    def _place(self, place: int, *, by_rows: bool = False) -> int:
        """Where a value stands, some of its rows at a time if it has them."""
        entries = self._steps[place].entries
        self._at[place] = self.room(entries // self.rows * self._together if by_rows else entries)
        return self._at[place]

    def _looked_up(self, tables: Mapping[int, Floats], weight: int | None) -> Iterator[tuple[int, int, int, int]]:
        """See ``compiled.walk``."""
        for k, (place, table) in enumerate(tables.items()):
            yield k, prod(table.shape[1:]), self._place(place, by_rows=True), 0
        if weight is not None and self.weights is not None:
            yield MAX_TABLES, 1, self._place(weight, by_rows=True), self.weights

    # ---- instructions -----------------------------------------------------------------------------------------------

    def _code(self, by_rows: set[int], changing: set[int] | None) -> list[list[Line]]:
        """The instructions before the first batch, before the rows of each, for some of its rows, and after them."""
        once, before, some, after = code = [list[Line]() for _ in range(4)]
        late = set[int]()  # what has sums over all rows in it
        for stage in parted(self.program, changing):
            for early, instructions in zip((once, before), stage, strict=True):
                for _, args, out, _ in instructions:
                    if not late.isdisjoint(args):
                        late.add(out)
                    if by_rows.isdisjoint(args):
                        lines = after if out in late else early
                        lines.extend((*line, 0) for line in self._made(out, args, self._place(out)))
                    elif out in late:
                        raise Unable
                    elif self._keeps_rows(out, args, by_rows):
                        by_rows.add(out)
                        some.extend(self._of_rows(self._made(out, args, self._place(out, by_rows=True))))
                    else:
                        late.add(out)
                        self._add_up(out, args, before, some)
        return code

    def _add_up(self, out: int, args: Sequence[int], before: list[Line], some: list[Line]) -> None:
        """A sum over all rows: over some of them, time after time."""
        to, m = self._place(out), self._steps[out].entries
        part = self.room(m)
        before.append((compiled.FILL, to, 0, 0, m, 0, self._number(0.0), 0))
        some.extend(self._of_rows(self._made(out, args, part)))
        some.append((compiled.ADD, to, part, 0, m, 0, self._number(1.0), 0))

    def _of_rows(self, lines: Iterable[Short]) -> Iterator[Line]:
        return ((*line, line[4] // self.rows) for line in lines)

    def _keeps_rows(self, out: int, args: Sequence[int], by_rows: Collection[int]) -> bool:
        """Whether the value has the rows that arguments have; otherwise it is a sum over them."""
        step, arrays = self._steps[out], [place for place in args if self._steps[place].shape]
        have = [place in by_rows for place in arrays]
        if step.kind == "contract":
            one, two, _ = step.parameter
            if have == [True, False]:
                return True
            if not all(have) or one[0] != two[0]:  # type: ignore[index]
                raise Unable
            return False
        if not all(have):
            raise Unable
        return step.kind != "sum"

    def _made(self, out: int, args: Sequence[int], to: int) -> Iterator[Short]:
        """What makes a value there."""
        return self._instructions(
            self._steps[out], [self._steps[place] for place in args], to, [self._at[place] for place in args]
        )

    def _instructions(self, step: Step, args: Sequence[Step], to: int, at: Sequence[int]) -> Iterator[Short]:
        if step.sparse or any(arg.sparse for arg in args):
            raise Unable
        if step.kind == "contract":
            yield self._product(step, args, to, at)
        elif step.kind == "multiply":
            yield self._multiplied(step, to, at)
        elif step.kind == "combine":
            yield from self._combined(step, to, at)
        elif step.kind == "apply":
            yield self._applied(step, to, at)
        elif step.kind == "sum" and not step.shape:
            yield compiled.SUM, to, at[0], 0, args[0].entries, 0, 0
        else:
            raise Unable

    def _product(self, step: Step, args: Sequence[Step], to: int, at: Sequence[int]) -> Short:
        one, two, out = step.parameter
        match one, two, out:
            case (i, k), (j,), (h,) if k == j and h == i:
                return compiled.MATRIX_VECTOR, to, at[0], at[1], *args[0].shape, 0  # type: ignore[return-value]
            case (k, i), (j,), (h,) if k == j and h == i:
                return compiled.VECTOR_MATRIX, to, at[0], at[1], *args[0].shape, 0  # type: ignore[return-value]
            case (_,), (_,), ():
                return compiled.DOT, to, at[0], at[1], args[0].entries, 0, 0
        raise Unable

    def _multiplied(self, step: Step, to: int, at: Sequence[int]) -> Short:
        whole = tuple(range(len(step.shape)))
        if step.parameter == (whole, whole):
            return compiled.MULTIPLY, to, at[0], at[1], step.entries, 0, 0
        if step.parameter == (whole, ()):
            return compiled.MULTIPLY_NUMBER, to, at[0], at[1], step.entries, 0, 0
        raise Unable

    def _combined(self, step: Step, to: int, at: Sequence[int]) -> Iterator[Short]:
        rows: Any
        constant: Any
        rows, constant = step.parameter
        whole = tuple(range(len(step.shape)))
        fresh = not constant and bool(rows) and rows[0][1] == whole
        if not fresh:
            yield compiled.FILL, to, 0, 0, step.entries, 0, self._number(constant)
        for k, (coefficient, places, deltas) in enumerate(rows):
            if deltas or places not in (whole, ()):
                raise Unable
            adds = compiled.ADD if places == whole else compiled.ADD_NUMBER
            op = compiled.SCALE if fresh and k == 0 else adds
            yield op, to, at[k], 0, step.entries, 0, self._number(coefficient)

    def _applied(self, step: Step, to: int, at: Sequence[int]) -> Short:
        op: Any
        parameter: Any
        op, parameter = step.parameter
        if op == "ipow" and parameter[0]:
            return compiled.POWER, to, at[0], 0, step.entries, abs(parameter[0]).bit_length() - 1, parameter[0]
        if parameter or len(at) != 1 or CODES.get(op, 0) <= CODES["rpow"]:
            raise Unable
        return compiled.APPLY, to, at[0], 0, step.entries, 0, CODES[op]

    def _block(self, name: str, after: list[Line]) -> int:
        """Where a block stands, after instructions that put it together if it has several pieces."""
        block, numbers = self.program.blocks[name], self.program.numbers
        parts = block.pieces[0][2] if len(block.pieces) == 1 else ()
        steps, size = self.program.workshop.plan.steps, prod(block.shape)
        if len(parts) == 1 and not parts[0].deltas and steps[parts[0].step].entries == size:
            return self._at[numbers[parts[0].step]]
        to = self.room(size)
        after.append((compiled.FILL, to, 0, 0, size, 0, self._number(0.0), 0))
        for slices, shape, pieces in block.pieces:
            first = slices[0].start if slices else 0
            for part in pieces:
                entries = steps[part.step].entries
                if part.deltas or entries not in (1, prod(shape)):
                    raise Unable
                op = compiled.ADD if entries == prod(shape) else compiled.ADD_NUMBER
                after.append((op, to + first, self._at[numbers[part.step]], 0, prod(shape), 0, self._number(1.0), 0))
        return to


class WalkMemory:
    """Room for all values of a walk; what goes in and what comes out is written and read where it stands.

    - ``walk``: the walk.

    >>> from bilevel_sym import StochasticProblem
    >>> from bilevel_sym.estimators.array_batches import RowEngine
    >>> problem = StochasticProblem("y", "(y - b)**2", "x", "y", "", "b", {}, {"b": [1.0, 4.0]})
    >>> memory = WalkMemory(RowEngine(problem).walk(("g_y",), "g", 1, 0))
    >>> memory.put(np.zeros(2), np.ones(1))
    >>> memory.go(np.array([[1], [1]]), 0.25)
    >>> memory.moved
    array([3.])
    """

    def __init__(self, walk: CompiledWalk) -> None:
        memory = self._memory = walk.memory()

        def view(first: int, size: int) -> Floats:
            return memory[first : first + size]

        self._walk, program = walk, walk.program
        self.points, self.v = (
            view(first, layout.size) for first, layout in zip(walk.inputs, program.workshop.inputs[:2], strict=True)
        )
        point, _, total, n = walk.ends[:4].tolist()
        self.moved, self.total = view(point, n), view(total, n if total >= 0 else 0)
        self.weights = None if walk.weights is None else view(walk.weights, walk.rows)
        self.blocks = [view(first, prod(program.shape(name))) for name, first in walk.blocks.items()]

    def put(self, points: Floats, weights: Floats) -> None:
        """x and y, (d + n,), and the weights of the rows of every batch, (R,)."""
        self.points[:] = points
        if self.weights is not None:
            self.weights[:] = weights

    def go(self, picked: Indices, step: float = 0.0) -> None:
        """Go through batches, (batches, R)."""
        self._walk.run(self._memory, picked, step)
