"""Programs of array problems in compiled code (extra ``fast``): from the steps of a plan to its instructions.

What there is no instruction for is left to NumPy, as are problems large enough for its calls not to matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from bilevel_sym.arithmetic.compiled import plans as compiled
from bilevel_sym.arithmetic.compiled.elementwise import CODES
from bilevel_sym.arithmetic.compiled.rows import LINE
from bilevel_sym.arrays.plan import Step
from bilevel_sym.implicit.array_program import ArrayBlock, ArrayProgram, reachable
from bilevel_sym.typing import Floats

__all__ = ["ALONG_U", "WITH_V", "Rooms", "Translation", "Unable"]

MAX_NUMBERS = 400_000  # in the memory of a program
LOOPS = 4
WITH_V = frozenset({"g_xy_v", "g_yy_v", "L_xx", "L_xy", "L_yy"})  # blocks that take v
ALONG_U = frozenset({"s_x", "s_y"})  # blocks that take a direction too
Strides = Mapping[int, int]  # of an array, by label


class Unable(Exception):
    """There is no instruction for a step, or the program is too large: NumPy does it."""


class Rooms:
    """Where the values of a program stand in one array of numbers: its inputs and data; there is room for more.

    - ``program``: whose values they are; ``Unable`` where data are sparse.
    - ``most``: numbers that there may be.
    - ``stages``: how many there are of inputs: (x, y), v, directions.
    """

    def __init__(self, program: ArrayProgram, most: int, stages: int = 2) -> None:
        if not all(isinstance(value, np.ndarray | np.generic) for value in program.constants.values()):
            raise Unable
        self.program, self.size, self._most = program, 0, most
        self._numbers, self._at = list[float](), dict[int, int]()
        self._unused = dict[int, list[int]]()  # rooms by their size
        self.inputs = [self.room(layout.size) for layout in program.workshop.inputs[:stages]]
        for start, leaves in zip(self.inputs, program.leaves, strict=False):
            self._at |= {place: start + part.start for place, part, _ in leaves}
        for k in program.constants:
            self._at[program.numbers[k]] = self.room(program.workshop.plan.steps[k].entries)

    def room(self, entries: int) -> int:
        """Where so many numbers may stand."""
        whole = -(-entries // LINE) * LINE
        if self._unused.get(whole):
            return self._unused[whole].pop()
        start, self.size = self.size, self.size + whole
        if self.size > self._most:
            raise Unable
        return start

    def vacate(self, start: int, entries: int) -> None:
        """Others may stand there."""
        self._unused.setdefault(-(-entries // LINE) * LINE, []).append(start)

    def memory(self) -> Floats:
        """Room for all values, data in their places."""
        raw = np.zeros(self.size + 2 * LINE)  # whole vectors are read at the end
        start = (-raw.ctypes.data // raw.itemsize) % LINE
        memory = raw[start : start + self.size]
        for k, value in self.program.constants.items():
            where = self._at[self.program.numbers[k]]
            memory[where : where + value.size] = np.ravel(value)
        return memory

    @property
    def numbers(self) -> Floats:
        """Coefficients."""
        return np.array([*self._numbers, 0.0])

    def _number(self, value: float) -> int:
        """The place of a coefficient."""
        self._numbers.append(float(value))
        return len(self._numbers) - 1


class Translation(Rooms):
    """The instructions of a program at one point, its memory, and where the blocks stand in it.

    - ``program``: what to compute.
    - ``most``: multiplications that it may take.
    - ``own``: blocks that stand in a room of their own, because they are overwritten.
    - ``stages``: how many there are of inputs: (x, y), v, directions.
    """

    def __init__(self, program: ArrayProgram, most: float, own: Iterable[str] = (), stages: int = 2) -> None:
        super().__init__(program, MAX_NUMBERS, stages)
        self._steps, self._left = program.workshop.plan.steps, most
        self._code = [list[tuple[int | str, list[int]]]() for _ in range(stages)]
        self._step_at = {place: k for k, place in program.numbers.items()}
        self._one, self._passing = self.room(1), list[tuple[int, int]]()
        for stage in range(stages):
            self._translate(stage)
        self._unused.clear()  # what stands there from now on stays
        self.blocks = {name: self._block(name, block, name in own) for name, block in program.blocks.items()}

    def code(self, names: Iterable[str] | None = None) -> tuple[Any, ...]:
        """The instructions of each stage, or those of them that some blocks need."""
        wanted = self.program.blocks if names is None else {name: self.program.blocks[name] for name in names}
        needed = reachable(self._steps, set().union(*(block.steps() for block in wanted.values())))
        kept = {*needed, *wanted}
        return tuple(
            np.array([entry for key, lines in stage if key in kept for entry in lines], dtype=np.int64)
            for stage in self._code
        )

    def memory(self) -> Floats:
        """Room for all values, data in their places, and a one."""
        memory = super().memory()
        memory[self._one] = 1.0
        return memory

    def spend(self, work: int) -> None:
        """Count multiplications."""
        self._left -= work
        if self._left < 0:
            raise Unable

    # ---- instructions -----------------------------------------------------------------------------------------------

    def _translate(self, stage: int) -> None:
        for _, args, out, dead in self.program.instructions[stage]:
            step, code = self._steps[self._step_at[out]], list[int]()
            own = [self._steps[self._step_at[place]] for place in args]
            if step.sparse or any(arg.sparse for arg in own):
                raise Unable
            to = self._at[out] = self.room(step.entries)
            self._step(code, step, own, to, [self._at[place] for place in args])
            self._code[stage].append((self._step_at[out], code))
            for start, entries in self._passing:
                self.vacate(start, entries)
            self._passing.clear()
            for place in dead:
                self.vacate(self._at[place], self._steps[self._step_at[place]].entries)

    def _passing_room(self, entries: int) -> int:
        """Where numbers may stand until a step is done."""
        start = self.room(entries)
        self._passing.append((start, entries))
        return start

    def _step(self, code: list[int], step: Step, args: Sequence[Step], to: int, at: Sequence[int]) -> None:
        parameter: Any = step.parameter
        match step.kind:
            case "fill":
                self._fill(code, to, step.entries, parameter[0])
            case "apply":
                self._apply(code, parameter, step.entries, to, at)
            case "logsumexp" if len(args) == 1:
                rows = step.entries
                self._add(code, compiled.LOGSUMEXP, to, at[0], sizes=(rows, args[0].entries // max(rows, 1)))
            case "transpose":
                self._copy(code, step.shape, to, at[0], _strides(args[0].shape, np.argsort(parameter)))
            case "diagonal":
                self._copy(code, step.shape, to, at[0], _strides(args[0].shape, parameter[0]))
            case "sum":
                gone = [k % len(args[0].shape) for k in parameter]
                kept = [k for k in range(len(args[0].shape)) if k not in gone]
                sizes = dict(enumerate(args[0].shape))
                self._fill(code, to, step.entries, 0.0)
                self._nest(code, sizes, to, _strides(step.shape, kept), at[0], _strides(args[0].shape), self._one, {})
            case "multiply":
                one, two = (_strides(arg.shape, places) for arg, places in zip(args, parameter, strict=True))
                self._fill(code, to, step.entries, 0.0)
                self._nest(code, dict(enumerate(step.shape)), to, _strides(step.shape), at[0], one, at[1], two)
            case "combine":
                rows, constant = parameter
                self._fill(code, to, step.entries, constant)
                for (coefficient, places, deltas), arg, a in zip(rows, args, at, strict=True):
                    into, sizes = _embedded(_strides(step.shape), dict(enumerate(step.shape)), deltas)
                    self._nest(code, sizes, to, into, a, _strides(arg.shape, places), self._one, {}, coefficient)
            case "gram":
                self._gram(code, args, int(parameter[0]), to, at)
            case "contract":
                self._contract(code, step, args, to, at)
            case _:
                raise Unable

    def _add(
        self,
        code: list[int],
        op: int,
        to: int,
        a: int = 0,
        b: int = 0,
        number: int = 0,
        sizes: Sequence[int] = (),
        strides: Sequence[int] = (),
    ) -> None:
        """One instruction.

        code: where it is added
        op: which it is
        to: where its result goes
        a: where its first argument stands
        b: where its second one stands
        number: the place of a coefficient, a power, or the code of a function
        sizes: at most four
        strides: of the result, then of the arguments, four each
        """
        self.spend(prod(sizes))
        line = [op, to, a, b, number, *sizes, *[1] * (LOOPS - len(sizes)), *strides]
        code += [*line, *[0] * (compiled.WIDTH - len(line))]

    def _fill(self, code: list[int], to: int, entries: int, value: float) -> None:
        self._add(code, compiled.FILL, to, number=self._number(value), sizes=(entries,))

    def _copy(self, code: list[int], shape: Sequence[int], to: int, a: int, strides: Strides) -> None:
        self._fill(code, to, prod(shape), 0.0)
        self._nest(code, dict(enumerate(shape)), to, _strides(shape), a, strides, self._one, {})

    def _nest(
        self,
        code: list[int],
        sizes: Mapping[int, int],
        to: int,
        into: Strides,
        a: int,
        one: Strides,
        b: int,
        two: Strides,
        factor: float = 1.0,
    ) -> None:
        """to += factor a b over all labels.

        code: where it is added
        sizes: of the labels
        to: where the result stands
        into: its strides
        a: where the first factor stands
        one: its strides
        b: where the second factor stands
        two: its strides
        factor: a coefficient
        """
        sizes = _joined(sizes, into, one, two)
        labels = list(sizes)
        if len(labels) > LOOPS:
            raise Unable

        def last(label: int) -> tuple[bool, bool, bool, int]:
            # what runs through memory without a gap; else what is summed
            strides = into.get(label, 0), *sorted((one.get(label, 0), two.get(label, 0)))
            summed = strides[0] == 0
            return strides in ((1, 0, 1), (1, 1, 1)), strides == (0, 1, 1), summed, sizes[label]

        labels.sort(key=last)
        if labels and (one.get(labels[-1], 0), two.get(labels[-1], 0)) == (0, 1):
            a, one, b, two = b, two, a, one
        padded = [None] * (LOOPS - len(labels)) + labels
        loops = [1 if label is None else sizes[label] for label in padded]
        strides = [0 if label is None else own.get(label, 0) for own in (into, one, two) for label in padded]
        self._add(code, compiled.NEST, to, a, b, self._number(factor), loops, strides)

    def _apply(self, code: list[int], parameter: Any, entries: int, to: int, at: Sequence[int]) -> None:
        op, power = parameter
        if op == "pi":
            self._fill(code, to, entries, np.pi)
        elif op == "ipow" and power[0]:
            self._power(code, to, at[0], power[0], entries)
        elif op == "rpow" and power[1] == 2:
            self._add(code, compiled.ROOT, to, at[0], sizes=(entries,))
            self._power(code, to, to, power[0], entries)
        elif power or len(at) != 1 or CODES.get(op, 0) <= CODES["rpow"]:
            raise Unable
        else:
            self._add(code, compiled.APPLY, to, at[0], number=CODES[op], sizes=(entries,))

    def _power(self, code: list[int], to: int, a: int, power: int, entries: int) -> None:
        if power == 1 and to == a:
            return
        self._add(code, compiled.POWER, to, a, number=power, sizes=(entries, abs(power).bit_length() - 1))

    def _gram(self, code: list[int], args: Sequence[Step], axis: int, to: int, at: Sequence[int]) -> None:
        """M^T diag(w) M: the second factor is weighted, and its rows are those that are summed over."""
        m, n = args[0].shape[axis], args[0].shape[1 - axis]
        down, along = (1, n) if axis == 0 else (m, 1)
        weights, weighted = list(at[1:]), at[0]
        while len(weights) > 1:
            product = self._passing_room(m)
            self._fill(code, product, m, 0.0)
            self._nest(code, {0: m}, product, {0: 1}, weights.pop(), {0: 1}, weights.pop(), {0: 1})
            weights.append(product)
        if weights or axis == 1:
            weighted = self._passing_room(m * n)
            by, stride = (weights[0], {0: 1}) if weights else (self._one, {})
            self._fill(code, weighted, m * n, 0.0)
            self._nest(code, {0: m, 1: n}, weighted, {0: n, 1: 1}, at[0], {0: along, 1: down}, by, stride)
        self._add(code, compiled.PRODUCT, to, at[0], weighted, compiled.SYMMETRIC, (n, m, n), (down, along))

    def _contract(self, code: list[int], step: Step, args: Sequence[Step], to: int, at: Sequence[int]) -> None:
        parameter: Any = step.parameter
        one, two, out = parameter
        sizes = dict(zip((*one, *two), (*args[0].shape, *args[1].shape), strict=True))
        first, second = _strides(args[0].shape, one), _strides(args[1].shape, two)
        left, right = [k for k in one if k not in two], [k for k in two if k not in one]
        summed = [k for k in one if k in two and k not in out]
        if min(sizes.values(), default=1) == 0:
            raise Unable
        match one, two, out:
            case (i, k), (j,), (h,) if k == j and h == i:
                self._add(code, compiled.MATRIX_VECTOR, to, at[0], at[1], sizes=args[0].shape)
            case (k, i), (j,), (h,) if k == j and h == i:
                self._add(code, compiled.VECTOR_MATRIX, to, at[0], at[1], sizes=args[0].shape)
            case _ if left and right and len(out) == len(left) + len(right):
                a, strides = at[0], (first[left[-1]], first[summed[-1]])
                if len(left) + len(summed) > 2:
                    a = self._turned(code, at[0], first, [*left, *summed], sizes)
                    strides = prod(sizes[k] for k in summed), 1
                b = (
                    at[1]
                    if [*two] == [*summed, *right]
                    else self._turned(code, at[1], second, [*summed, *right], sizes)
                )
                m, n, p = (prod(sizes[k] for k in group) for group in (left, summed, right))
                self._add(code, compiled.PRODUCT, to, a, b, 0, (m, n, p), strides)
            case _:
                self._fill(code, to, step.entries, 0.0)
                self._nest(code, sizes, to, _strides(step.shape, out), at[0], first, at[1], second)

    def _turned(
        self, code: list[int], a: int, strides: Strides, labels: Sequence[int], sizes: Mapping[int, int]
    ) -> int:
        """Where an array stands with its axes in this order.

        code: where instructions are added
        a: where it stands now
        strides: its strides
        labels: the order
        sizes: of the labels
        """
        shape = [sizes[label] for label in labels]
        to = self._passing_room(prod(shape))
        self._copy(code, shape, to, a, {k: strides[label] for k, label in enumerate(labels)})
        return to

    # ---- blocks -----------------------------------------------------------------------------------------------------

    def _block(self, name: str, block: ArrayBlock, own: bool) -> int:
        """Where a block stands, after instructions that put it together if it has several pieces."""
        code = list[int]()
        self._code[2 if name in ALONG_U else int(name in WITH_V)].append((name, code))
        numbers = self.program.numbers
        if len(block.pieces) == 1 and not own:
            parts = block.pieces[0][2]
            if len(parts) == 1 and not parts[0].deltas:
                return self._at[numbers[parts[0].step]]
        entries = prod(block.shape)
        to = self.room(entries)
        self._fill(code, to, entries, 0.0)
        for slices, shape, parts in block.pieces:
            start, strides = self._piece(block, slices, shape)
            for part in parts:
                into, sizes = _embedded(strides, dict(enumerate(shape)), part.deltas)
                value = _strides(self._steps[part.step].shape, list(sizes))
                self._nest(code, sizes, to + start, into, self._at[numbers[part.step]], value, self._one, {})
        return to

    @staticmethod
    def _piece(block: ArrayBlock, slices: Sequence[slice], shape: Sequence[int]) -> tuple[int, Strides]:
        """Where a piece of a block begins, and its strides: those of its arrays within those of the axes."""
        axes = _strides(block.shape)
        start = sum(int(part.start) * axes[k] for k, part in enumerate(slices))
        strides, left = dict[int, int](), len(shape)
        for k in range(len(slices) - 1, -1, -1):
            length = 1
            while left and length < slices[k].stop - slices[k].start:
                left -= 1
                strides[left] = length * axes[k]
                length *= shape[left]
        return start, strides


def _strides(shape: Sequence[int], labels: Any = None) -> dict[int, int]:
    """From entry to entry along each label, the last axis without gaps; a label that stands twice moves along both."""
    found = dict[int, int]()
    for k, label in enumerate(range(len(shape)) if labels is None else labels):
        found[int(label)] = found.get(int(label), 0) + prod(shape[k + 1 :])
    return found


def _joined(sizes: Mapping[int, int], *arrays: Strides) -> dict[int, int]:
    """Sizes of the labels that need a loop: one is enough for two along which all arrays run on without a gap."""
    left = {label: size for label, size in sizes.items() if size != 1}
    for outer in list(left):
        for inner in list(left):
            if (
                outer in left
                and outer != inner
                and all(own.get(outer, 0) == own.get(inner, 0) * left[inner] for own in arrays)
            ):
                left[inner] *= left.pop(outer)
    return left


def _embedded(strides: Strides, sizes: Mapping[int, int], deltas: Any) -> tuple[Strides, dict[int, int]]:
    """Strides and sizes where the second index of each delta equals its first."""
    moved = dict(strides)
    for i, j in deltas:
        moved[i] = moved.get(i, 0) + moved.pop(j, 0)
    gone = {j for _, j in deltas}
    return moved, {label: size for label, size in sizes.items() if label not in gone}
