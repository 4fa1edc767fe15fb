"""Blocks of an array model in NumPy: programs for sets of names, and points that they run at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from bilevel_sym.arrays.data import is_sparse
from bilevel_sym.arrays.execute import LaneProducts, embedded, kernel_of
from bilevel_sym.arrays.plan import CALL, DATA, Part, Plan, Step
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.implicit.array_layers import Layered, layered
from bilevel_sym.implicit.array_model import ArrayModel
from bilevel_sym.typing import Floats

__all__ = ["ArrayBlock", "ArrayProgram", "Instruction", "Layout", "Run", "Values", "Workshop", "blocks_of", "reachable"]

TOGETHER = 350_000  # entries that the values of inputs that go together may have
OUTSIDE = -1  # who asks for a step that is wanted itself
Lead = tuple[int, ...]
Instruction = tuple[Callable[..., Any], tuple[int, ...], int, tuple[int, ...]]


@dataclass(frozen=True)
class Layout:
    """Arrays whose entries are laid end to end, row by row.

    >>> Layout((Leaf("W", ("p", "q"), "y"),), {"p": 2, "q": 3}).size
    6
    """

    leaves: tuple[Leaf, ...]
    sizes: Mapping[str, int]

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each array."""
        return tuple(tuple(self.sizes[dim] for dim in leaf.dims) for leaf in self.leaves)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where the entries of each array stand."""
        ends = np.cumsum([0, *(prod(shape) for shape in self.shapes)]).tolist()
        return tuple(slice(low, high) for low, high in pairwise(ends))

    @property
    def size(self) -> int:
        """The number of all entries."""
        return self.slices[-1].stop if self.slices else 0

    def split(self, flat: Floats) -> list[Floats]:
        """The arrays, from entries along the last axis."""
        lead = flat.shape[:-1]
        return [flat[..., own].reshape((*lead, *shape)) for own, shape in zip(self.slices, self.shapes, strict=True)]


class Workshop:
    """The plan of one model over its data, shared by all of its programs; values of data alone are kept.

    - ``model``: the blocks.
    - ``sizes``: the number that each dimension stands for.
    - ``data``: arrays by name; sparse ones stay sparse.
    - ``given``: arrays whose values come with each run, as if they were points.
    - ``plan``: the kind of plan.
    """

    def __init__(
        self,
        model: ArrayModel,
        sizes: Mapping[str, int],
        data: Mapping[str, Any],
        given: Sequence[Leaf] = (),
        plan: type[Plan] = Plan,
    ) -> None:
        self.model, self.sizes, self._data = model, dict(sizes), data
        self.x, self.y = Layout(model.x, sizes), Layout(model.y, sizes)
        both = (*model.x, *model.y)
        stages = [(*both,), (*model.v,), (*model.u, *model.w)]
        self.inputs = tuple(Layout(leaves, sizes) for leaves in stages)
        stage_of = {leaf.name: stage for stage, leaves in enumerate(stages) for leaf in leaves}
        stage_of |= {leaf.name: 0 for leaf in given}
        self.is_sparse = any(is_sparse(value) for value in data.values())
        nonzeros = {name: value.nnz for name, value in data.items() if is_sparse(value)}
        self.plan = plan(sizes, lambda leaf: stage_of.get(leaf.name, DATA), nonzeros)
        self._values: dict[int, Any] = {}

    def constant(self, step: int) -> Any:
        """The value of a step on data alone; computed once."""
        if step not in self._values:
            made = self.plan.steps[step]
            if made.kind == "leaf":
                self._values[step] = _locked(self._data[str(made.parameter[0])])
            else:
                args = [self.plan.steps[k] for k in made.args]
                values = [self.constant(k) for k in made.args]
                with np.errstate(all="ignore"):  # what is not finite is found in results, and said there
                    self._values[step] = _locked(kernel_of(made, args)(*values))
        return self._values[step]


def _locked(value: Any) -> Any:
    """What must not be written to: a block that is nothing else is copied."""
    if is_sparse(value):
        return value
    view = np.asarray(value).view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True)
class ArrayBlock:
    """Where the parts of a block stand: for each choice of arrays a slice for every axis, and a sum of parts.

    - ``axes``: the layouts that its axes run over.
    - ``pieces``: slices along the axes, the shape of the piece, and its parts.
    """

    axes: tuple[Layout, ...]
    pieces: tuple[tuple[tuple[slice, ...], tuple[int, ...], tuple[Part, ...]], ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Of the block at one point."""
        return tuple(layout.size for layout in self.axes)

    def steps(self) -> set[int]:
        """The steps whose values it takes."""
        return {part.step for _, _, parts in self.pieces for part in parts}

    def dense(self, lead: Lead, value: Callable[[int], Any]) -> Floats:
        """The whole block as one array."""
        if len(self.pieces) == 1:
            _, shape, parts = self.pieces[0]
            if len(parts) == 1 and not parts[0].deltas:
                found, whole = np.asarray(value(parts[0].step)), (*lead, *shape)
                if found.shape != whole:
                    found = np.broadcast_to(found, whole)
                elif found.base is None and found.flags.writeable and found.flags.c_contiguous:
                    return found.reshape((*lead, *self.shape))  # nobody else's
                return np.array(found, order="C").reshape((*lead, *self.shape))
        result = np.zeros((*lead, *self.shape))
        for slices, shape, parts in self.pieces:
            if len(self.pieces) == 1:
                _accumulate(result.reshape((*lead, *shape)), len(shape), parts, value)
            elif parts:
                piece = np.zeros((*lead, *shape))
                _accumulate(piece, len(shape), parts, value)
                target: Floats = result[(slice(None),) * len(lead) + slices]
                target += piece.reshape(target.shape)
        return result

    @cached_property
    def _split(self) -> tuple[ArrayBlock | None, list[Part]]:
        """The parts that are not on the diagonal, as a block, and those that are."""
        slices, shape, parts = self.pieces[0]
        half = len(shape) // 2
        # x and W[n, c], or a number and W[n, n], may share indices too, and that is no diagonal
        square = len(shape) == 2 * half and prod(shape[:half]) == slices[0].stop - slices[0].start == self.shape[0]
        straight = tuple((k, half + k) for k in range(half)) if square else ()
        others = tuple(part for part in parts if part.deltas != straight or not straight)
        along = [part for part in parts if part.deltas == straight and straight]
        return ArrayBlock(self.axes, ((slices, shape, others),)) if others else None, along

    def diagonal(self, value: Callable[[int], Any]) -> tuple[Floats | None, Floats | None]:
        """At one point: the part off the diagonal, and the diagonal, each None where it vanishes."""
        if len(self.pieces) != 1 or len(self.axes) != 2:
            return self.dense((), value), None
        others, along = self._split
        rest = others.dense((), value) if others is not None else None
        return rest, value(along[0].step).reshape(-1) if along else None


def _accumulate(target: Floats, rank: int, parts: Sequence[Part], value: Callable[[int], Any]) -> None:
    for part in parts:
        where = embedded(rank, part.deltas)(target)
        where += value(part.step)


class ArrayProgram:
    """The steps that some blocks need, in stages.

    - ``workshop``: the plan and the data.
    - ``names``: of the blocks.
    - ``outputs``: further steps whose values are wanted.
    - ``products``: how data are multiplied with many points; see ``kernel_of``.
    """

    def __init__(
        self,
        workshop: Workshop,
        names: Sequence[str],
        outputs: Iterable[int] = (),
        products: LaneProducts = "together",
    ) -> None:
        self.workshop, self._products = workshop, products
        self.blocks = {name: block for asked in names for name, block in blocks_of(workshop, asked).items()}
        plan = workshop.plan
        wanted = set(outputs).union(*(block.steps() for block in self.blocks.values()))
        needed = reachable(plan.steps, wanted)
        fixed = [k for k in needed if plan.steps[k].stage == DATA]
        moving = [k for k in needed if plan.steps[k].stage != DATA]
        self.numbers = {k: place for place, k in enumerate([*fixed, *moving])}
        self._step_at = [*fixed, *moving]
        self.entries = sum(plan.steps[k].entries for k in moving)
        # what is there at once at least: the blocks, and the largest array on the way to them
        self.largest = sum(prod(block.shape) for block in self.blocks.values()) + max(
            (plan.steps[k].entries for k in moving), default=0
        )
        self._wanted = wanted
        used = {k for j in moving for k in plan.steps[j].args} | wanted
        self._fixed = [k for k in fixed if k in used]
        self.leaves = [self._leaf_places(stage) for stage in range(len(workshop.inputs))]
        self.instructions = [list(self._instructions(moving, stage, wanted)) for stage in range(len(workshop.inputs))]

    @cached_property
    def _layers(self) -> dict[int, Layered]:
        """Sums over many rows, each with all that leads to it; none where bits must stay as they are."""
        if self._products != "together":
            return {}
        steps, own = (
            self.workshop.plan.steps,
            [self._step_at[out] for some in self.instructions for _, _, out, _ in some],
        )
        users: dict[int, set[int]] = {k: {OUTSIDE} for k in self._wanted}
        for k in own:
            for argument in steps[k].args:
                users.setdefault(argument, set()).add(k)
        found, inside = dict[int, Layered](), set[int]()
        for k in reversed(own):
            if k not in inside and (group := layered(steps, k, users)) is not None:
                found[k] = group
                inside.update(group.members)
        return found

    @cached_property
    def performed(self) -> list[list[Instruction]]:
        """The instructions as NumPy performs them: with sums over many rows in layers."""
        return [self._in_layers(own) for own in self.instructions] if self._layers else self.instructions

    def _in_layers(self, own: list[Instruction]) -> list[Instruction]:
        groups = {self.numbers[k]: group for k, group in self._layers.items()}
        inside = {self.numbers[k] for group in groups.values() for k in group.members}
        rest = [
            (groups[out].kernel, tuple(self.numbers[k] for k in groups[out].args), out)
            if out in groups
            else (kernel, args, out)
            for kernel, args, out, _ in own
            if out not in inside
        ]
        passing = {k for *_, dead in own for k in dead}
        last = {k: out for _, args, out in rest for k in args}
        return [
            (kernel, args, out, tuple({k for k in args if last[k] == out and k in passing}))
            for kernel, args, out in rest
        ]

    @cached_property
    def constants(self) -> dict[int, Any]:
        """The values of data alone that its steps take; made for its first run, for some programs are only priced."""
        return {k: self.workshop.constant(k) for k in self._fixed}

    def place_of(self, name: str) -> int | None:
        """Where the value of an array stands that comes with a run; None where nothing needs it."""
        step = self.workshop.plan.leaves.get(name)
        return None if step is None else self.numbers.get(step)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a block at one point."""
        if name == "q":
            return (self.workshop.inputs[0].size,)
        return self.blocks[name].shape

    def work(self, stage: int, points: float = 1) -> float:
        """What a stage costs at a point, of so many that go together; see ``Plan.work``."""
        saved = CALL * (1 - 1 / points) * len(self.instructions[stage])
        return sum(self.workshop.plan.work(self._step_at[out]) for _, _, out, _ in self.instructions[stage]) - saved

    def group(self, stage: int, least: int = 1, around: int = 0) -> int:
        """How many inputs of a stage go together at one point: as many as take little memory; one on sparse data.

        stage: whose inputs they are
        least: the answer at least, but for sparse data
        around: entries of what an input takes elsewhere
        """
        if self.workshop.is_sparse:
            return 1
        share = {k: group.share for group in self._layers.values() for k in group.members}
        steps = [self._step_at[out] for _, _, out, _ in self.instructions[stage]]
        entries = sum(self.workshop.plan.steps[k].entries * share.get(k, 1.0) for k in steps)
        return max(least, int(TOGETHER // max(1.0, entries + around)))

    def _leaf_places(self, stage: int) -> list[tuple[int, slice, tuple[int, ...]]]:
        layout, leaves = self.workshop.inputs[stage], self.workshop.plan.leaves
        rows = zip(layout.leaves, layout.slices, layout.shapes, strict=True)
        return [
            (self.numbers[leaves[leaf.name]], own, shape)
            for leaf, own, shape in rows
            if leaf.name in leaves and leaves[leaf.name] in self.numbers
        ]

    def _instructions(self, moving: Sequence[int], stage: int, outputs: set[int]) -> Iterable[Instruction]:
        steps = self.workshop.plan.steps
        later = {k for j in moving if steps[j].stage > stage for k in steps[j].args}
        own = [k for k in moving if steps[k].stage == stage and steps[k].kind != "leaf"]
        last = {k: j for j in own for k in steps[j].args}
        for k in own:
            args = steps[k].args
            kernel = kernel_of(steps[k], [steps[a] for a in args], self._products)
            dead = (a for a in dict.fromkeys(args) if last[a] == k and steps[a].stage == stage)
            free = [self.numbers[a] for a in dead if a not in later | outputs and steps[a].kind != "leaf"]
            yield kernel, tuple(self.numbers[a] for a in args), self.numbers[k], tuple(free)


def blocks_of(workshop: Workshop, name: str) -> dict[str, ArrayBlock]:
    """Where the parts of a block stand; q is two blocks."""
    if name == "q":  # in (x, y): two blocks, side by side
        return blocks_of(workshop, "q_x") | blocks_of(workshop, "q_y")
    axes = {"r": "y", "g_yy_v": "y", "g_xy_v": "x", "g_yx_u": "y"}.get(name, name.partition("_")[2])
    layouts = tuple(workshop.x if axis == "x" else workshop.y for axis in axes)
    pieces = []
    for leaves, tensor in workshop.model.block(name).items():
        places = [layout.leaves.index(leaf) for layout, leaf in zip(layouts, leaves, strict=True)]
        slices = tuple(layout.slices[k] for layout, k in zip(layouts, places, strict=True))
        shape = tuple(n for layout, k in zip(layouts, places, strict=True) for n in layout.shapes[k])
        pieces.append((slices, shape, workshop.plan.parts(tensor)))
    return {name: ArrayBlock(layouts, tuple(pieces))}


def reachable(steps: Sequence[Step], outputs: Collection[int]) -> list[int]:
    """All that some steps are made of, and they themselves, in order.

    >>> leaf, square = Step("leaf", (), ("y",), (2,), 0), Step("multiply", (0, 0), ((0,), (0,)), (2,), 0)
    >>> reachable([leaf, leaf, square], {2})
    [0, 2]
    """
    found, stack = set(outputs), list(outputs)
    while stack:
        for k in steps[stack.pop()].args:
            if k not in found:
                found.add(k)
                stack.append(k)
    return sorted(found)


class Values:
    """The values of some tensors at a point.

    - ``workshop``: the plan and the data.
    - ``tensors``: what to compute, from x and y.
    """

    def __init__(self, workshop: Workshop, tensors: Sequence[Tensor]) -> None:
        outputs = {f"t{k}": workshop.plan.value(tensor) for k, tensor in enumerate(tensors)}
        self._outputs = tuple(outputs.values())
        self._run = Run(ArrayProgram(workshop, (), outputs=self._outputs), ())

    def at(self, xy: Floats) -> list[Floats]:
        """The values at (x, y), laid end to end."""
        self._run.perform(0, xy)
        return [np.asarray(self._run.value(step)) for step in self._outputs]


class Run:
    """A program at one point (``lead`` is empty) or at many, which then are a leading axis of every value.

    At one point a later stage may be performed for many inputs at a time: blocks of that stage have them as an axis.
    """

    def __init__(self, program: ArrayProgram, lead: Lead) -> None:
        self.program, self._lead = program, lead
        self._values: list[Any] = [None] * len(program.numbers)
        for k, value in program.constants.items():
            self._values[program.numbers[k]] = value

    def perform(self, stage: int, flat: Floats) -> None:
        """Perform a stage on its inputs, (..., entries)."""
        values = self._values
        for number, own, shape in self.program.leaves[stage]:
            part = flat[..., own]
            values[number] = part if len(shape) == 1 else part.reshape(flat.shape[:-1] + shape)
        for kernel, args, out, dead in self.program.performed[stage]:
            values[out] = kernel(*[values[k] for k in args])
            for k in dead:
                values[k] = None

    def value(self, step: int) -> Any:
        """The value of a step, of a stage that was performed."""
        return self._values[self.program.numbers[step]]

    def block(self, name: str, lead: Lead | None = None) -> Floats:
        """A block, dense, (..., shape); ``lead`` says how many inputs its stage was performed for, unless one."""
        if name == "q":
            return np.concatenate([self.block("q_x", lead), self.block("q_y", lead)], axis=-1)
        return self.program.blocks[name].dense(self._lead if lead is None else lead, self.value)

    def along(self, stage: int, rows: Floats, names: Sequence[str], size: int) -> list[Floats]:
        """Some blocks at one point, for every row of inputs of a stage, ``size`` rows at a time."""
        found = [np.empty((len(rows), *self.program.shape(name))) for name in names]
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            alone = len(some) == 1
            self.perform(stage, some[0] if alone else some)
            for block, name in zip(found, names, strict=True):
                block[start : start + size] = self.block(name, () if alone else (len(some),))
        return found

    def structured(self, name: str) -> tuple[Floats | None, Floats | None]:
        """A matrix at one point: what is off its diagonal, and its diagonal."""
        return self.program.blocks[name].diagonal(self.value)
