"""A program of arrays on one batch of rows after the other, in the same memory.

A small batch costs more in calls than in arithmetic. So every value has one place in memory, every step is bound to
the places that it reads and writes, and what no batch changes is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from bilevel_sym.arrays.execute import OnViews
from bilevel_sym.arrays.plan import Step
from bilevel_sym.implicit.array_program import ArrayProgram, Instruction
from bilevel_sym.typing import Floats

Kernel: TypeAlias = Callable[..., Any]
Bound: TypeAlias = Callable[[], object]
Parted: TypeAlias = tuple[list[Instruction], list[Instruction]]
VIEWS = ("transpose", "diagonal")
LARGE = 10_000  # entries that cost more to copy than a call


class RowRun:
    """A program at one point (``lead`` is empty) or at many, whose inputs are written where they stand.

    - ``program``: the steps.
    - ``lead``: the leading axes of every value.
    - ``inputs``: those of each stage, (..., entries).
    - ``given``: the arrays that come with the run, by place; see ``ArrayProgram.place_of``.
    - ``changing``: the places of what changes between two runs, among inputs and given arrays; None for everything.

    >>> from bilevel_sym import BilevelProblem
    >>> from bilevel_sym.implicit.array_program import Workshop
    >>> problem = BilevelProblem("y @ y", "exp(x)*(y @ y)/2", "x", "y[2]")
    >>> program = ArrayProgram(Workshop(problem.array_model, {"n": 2}, {}), ("g_y",))
    >>> xy = np.array([0.0, 1.0, 2.0])
    >>> run = RowRun(program, (), [xy, np.zeros(2), np.zeros(3)], {}, {program.place_of("y")})
    >>> run.settle(0)  # exp(x)
    >>> xy[:] = 9.0, 3.0, 4.0
    >>> run.perform(0)
    >>> run.block("g_y")
    array([3., 4.])
    """

    def __init__(
        self,
        program: ArrayProgram,
        lead: tuple[int, ...],
        inputs: Sequence[Floats],
        given: Mapping[int, Floats],
        changing: Collection[int] | None,
    ) -> None:
        self._program, self._lead = program, lead
        self._values: list[Any] = [None] * len(program.numbers)
        for k, value in program.constants.items():
            self._values[program.numbers[k]] = value
        for flat, leaves in zip(inputs, program.leaves, strict=True):
            for place, own, shape in leaves:
                self._values[place] = flat[..., own].reshape(lead + shape, copy=False)
        for place, value in given.items():
            self._values[place] = value
        self._unbound = set[int]()
        self._once, self._each = list[list[Bound]](), list[list[Bound]]()
        self._bind_all(changing)
        whole = {name: self._whole_block(name) for name in program.blocks}
        self._whole = {name: place for name, place in whole.items() if place is not None}

    def _bind_all(self, changing: Collection[int] | None) -> None:
        steps, step_at = self._program.workshop.plan.steps, {place: k for k, place in self._program.numbers.items()}
        for stage in parted(self._program, changing):
            for bound, instructions in zip((self._once, self._each), stage, strict=True):
                made = (self._bind(steps[step_at[out]], kernel, args, out) for kernel, args, out, _ in instructions)
                bound.append([step for step in made if step is not None])

    def settle(self, stage: int) -> None:
        """Do what does not change while the rest of the inputs stays."""
        for step in self._once[stage]:
            step()

    def perform(self, stage: int) -> None:
        """Do the rest."""
        for step in self._each[stage]:
            step()

    def block(self, name: str) -> Floats:
        """A block, dense, (..., shape): to be read before the next run, and not to be written to."""
        if name in self._whole:
            return self._values[self._whole[name]]  # type: ignore[no-any-return]
        return self._program.blocks[name].dense(self._lead, lambda step: self._values[self._program.numbers[step]])

    def _whole_block(self, name: str) -> int | None:
        """Where a block stands that is the value of one step; None where it has to be put together."""
        pieces = self._program.blocks[name].pieces
        if len(pieces) != 1 or len(pieces[0][2]) != 1 or pieces[0][2][0].deltas:
            return None
        place = self._program.numbers[pieces[0][2][0].step]
        fits = np.shape(self._values[place]) == self._lead + self._program.shape(name)
        return place if fits and place not in self._unbound else None

    # ---- binding ----------------------------------------------------------------------------------------------------

    def _bind(self, step: Step, kernel: Kernel, args: tuple[int, ...], out: int) -> Bound | None:
        """What performs a step; None where its value is a view, which is there from now on."""
        large = step.entries > LARGE and not isinstance(kernel, (np.ufunc, OnViews))
        if step.sparse or (large and step.kind not in VIEWS) or not self._unbound.isdisjoint(args):
            self._unbound.add(out)
            return self._unbound_step(kernel, args, out)
        values = [self._values[k] for k in args]
        if step.kind in VIEWS and np.may_share_memory(view := kernel(*values), values[0]):
            self._values[out] = view
            return None
        room = self._values[out] = np.empty(self._lead + step.shape)
        return _into(room, kernel, values)

    def _unbound_step(self, kernel: Kernel, args: tuple[int, ...], out: int) -> Bound:
        """A step whose value is another one each time."""
        values = self._values

        def perform() -> None:
            values[out] = kernel(*[values[k] for k in args])

        return perform


def parted(program: ArrayProgram, changing: Collection[int] | None) -> list[Parted]:
    """Of each stage the instructions that depend on nothing that changes, and the others.

    >>> from bilevel_sym import BilevelProblem
    >>> from bilevel_sym.implicit.array_program import Workshop
    >>> problem = BilevelProblem("y @ y", "exp(x)*(y @ y)/2", "x", "y[2]")
    >>> program = ArrayProgram(Workshop(problem.array_model, {"n": 2}, {}), ("g_y",))
    >>> [[len(own) for own in stage] for stage in parted(program, {program.place_of("y")})]
    [[1, 1], [0, 0], [0, 0]]
    """
    moved = set(range(len(program.numbers))) if changing is None else set(changing)
    stages = []
    for instructions in program.instructions:
        once, each = list[Instruction](), list[Instruction]()
        for one in instructions:
            _, args, out, _ = one
            if moved.isdisjoint(args) and changing is not None:
                once.append(one)
            else:
                moved.add(out)
                each.append(one)
        stages.append((once, each))
    return stages


def _into(room: Floats, kernel: Kernel, values: Sequence[Any]) -> Bound:
    """What writes the result of a kernel on these very arrays into ``room``."""
    if isinstance(kernel, OnViews):
        views = kernel.views(*values)
        if all(map(np.may_share_memory, views, values)):
            return _into(room, kernel.function, views)
    if kernel is np.matvec and room.ndim == 1:  # the same routine of the library, in a shorter call
        matrix, vector = values
        by_columns = matrix.flags.f_contiguous
        return partial(np.dot, vector, matrix.T, room) if by_columns else partial(np.dot, matrix, vector, room)
    if isinstance(kernel, np.ufunc):
        return partial(kernel, *values, room)
    if isinstance(kernel, partial) and isinstance(kernel.func, np.ufunc) and not kernel.keywords:
        return partial(kernel.func, *map(np.asarray, kernel.args), *values, room)

    def perform() -> None:
        room[...] = kernel(*values)

    return perform
