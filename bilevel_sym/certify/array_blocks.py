"""The blocks of f and g of an array problem over enclosures of x and y: plans with exact coefficients, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np

from bilevel_sym.arithmetic.enclosed.arithmetics import Enclosing
from bilevel_sym.arithmetic.enclosed.entries import zeros_like
from bilevel_sym.arithmetic.enclosed.steps import embedded, perform
from bilevel_sym.arrays.plan import DATA, ExactPlan
from bilevel_sym.arrays.tensor import known_sizes
from bilevel_sym.implicit.array_model import ArrayModel
from bilevel_sym.implicit.array_program import ArrayBlock, Workshop, blocks_of, reachable
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.system.memory import refuse_beyond

V = TypeVar("V", bound=Any)
MAX_BLOCKS = 64  # that are kept; more than there are names


class Exactly:
    """The blocks of an array problem with exact coefficients, and its data as float64.

    - ``model``: f and g in index notation.
    - ``sizes``: the number that each dimension stands for.
    - ``data``: float64 arrays by name, or sparse ones, which are written out.

    >>> problem = BilevelProblem("x*sum(y)", "sum((y - b)**2)", "x", "y[n]", data={"b": [1, 2]})
    >>> Exactly.of(problem).n
    2
    """

    def __init__(self, model: ArrayModel, sizes: Mapping[str, int], data: Mapping[str, Any]) -> None:
        entries = sum(prod(value.shape) for value in data.values())
        refuse_beyond(2 * entries, "data with their zeros written out", "fewer rows or columns")
        self.data = {name: _dense(value) for name, value in data.items()}
        self.workshop = Workshop(model, sizes, self.data, plan=ExactPlan)
        self.d, self.n = self.workshop.x.size, self.workshop.y.size
        self.block = lru_cache(MAX_BLOCKS)(self._block)

    @staticmethod
    def of(problem: BilevelProblem) -> Exactly:
        """Those of a problem."""
        return Exactly(problem.array_model, known_sizes(problem.dimensions), problem.arrays)

    def _block(self, name: str) -> ArrayBlock:
        return blocks_of(self.workshop, name)[name]

    def entries(self, names: Iterable[str]) -> int:
        """How many numbers the steps of some blocks have together."""
        steps = self.workshop.plan.steps
        found = {step for name in names for step in self.reached(name)}
        return sum(steps[k].entries for k in found)

    def reached(self, name: str) -> list[int]:
        """The steps of a block, in order."""
        return reachable(self.workshop.plan.steps, self.block(name).steps())


def _dense(value: Any) -> Any:
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value, dtype=np.float64, order="C")


class EnclosedBlocks(Generic[V]):
    """The blocks in one arithmetic, at one precision; what is made of data alone is made once.

    - ``exactly``: the problem.
    - ``kind``: the arithmetic.

    >>> from bilevel_sym.arithmetic.enclosed.arithmetics import FloatArrays
    >>> from bilevel_sym.arithmetic.enclosed.midrad import exact
    >>> problem = BilevelProblem("x*sum(y)", "sum((y - b)**2)", "x", "y[n]", data={"b": [1, 2]})
    >>> point = EnclosedBlocks(Exactly.of(problem), FloatArrays()).at(exact([3.0]), exact([1.0, 1.0]))
    >>> point.block("f").mid.item(), point.block("g_yy").mid.tolist()
    (6.0, [[2.0, 0.0], [0.0, 2.0]])
    """

    def __init__(self, exactly: Exactly, kind: Enclosing[V]) -> None:
        self.exactly, self.kind = exactly, kind
        self.constants: dict[int, V] = {}

    def at(self, x: V, y: V) -> EnclosedPoint[V]:
        """The blocks at enclosures of x and y, entries end to end."""
        return EnclosedPoint(self, [(x, y)], [{}])

    def performed(self, k: int, values: Mapping[int, V]) -> V:
        """The value of a step whose arguments are among the values."""
        step = self.exactly.workshop.plan.steps[k]
        if step.kind == "leaf":
            return self.kind.data(self.exactly.data[str(step.parameter[0])])
        return perform(self.kind, step, [values[arg] for arg in step.args])

    def leaves(self, stage: int, parts: Sequence[V]) -> dict[int, V]:
        """The steps of the arrays of a stage, from their entries end to end, in as many parts as there are."""
        workshop, kind, found = self.exactly.workshop, self.kind, {}
        layouts = [workshop.x, workshop.y] if stage == 0 else [workshop.inputs[stage]]
        for layout, flat in zip(layouts, parts, strict=True):
            for leaf, own, shape in zip(layout.leaves, layout.slices, layout.shapes, strict=True):
                if leaf.name in workshop.plan.leaves:
                    found[workshop.plan.leaves[leaf.name]] = kind.moved(flat, _cut(own, shape))
        return found


def _cut(own: slice, shape: tuple[int, ...]) -> Any:
    return lambda array: array[own].reshape(shape)


class EnclosedPoint(Generic[V]):
    """The blocks at one enclosure of (x, y), with v and u once they are given. Made by ``EnclosedBlocks.at``.

    - ``blocks``: of the problem.
    - ``given``: the inputs of each stage.
    - ``values``: what was computed so far, by stage; points with the same inputs up to a stage share it.
    """

    def __init__(self, blocks: EnclosedBlocks[V], given: list[Sequence[V]], values: list[dict[int, V]]) -> None:
        self._blocks, self._given, self._values = blocks, given, values

    def with_v(self, v: V) -> EnclosedPoint[V]:
        """The same point with another v, which the products g_yy_v and g_xy_v and the blocks of L are made with."""
        return EnclosedPoint(self._blocks, [self._given[0], (v,)], [self._values[0], {}])

    def with_u(self, u: V) -> EnclosedPoint[V]:
        """The same point with another direction: u in x and y, then w in x and y; v must have been given."""
        return EnclosedPoint(self._blocks, [*self._given[:2], (u,)], [*self._values[:2], {}])

    def block(self, name: str) -> V:
        """A block as one array."""
        return assembled(self._blocks.kind, self._blocks.exactly.block(name), self.values(name))

    def values(self, name: str) -> dict[int, V]:
        """The values of all steps of a block."""
        exactly = self._blocks.exactly
        exactly.block(name)  # which plans its steps
        steps = exactly.workshop.plan.steps
        for stage, parts in enumerate(self._given):  # a block may have brought new leaves
            self._values[stage].update(self._blocks.leaves(stage, parts))
        found: dict[int, V] = {}
        for k in exactly.reached(name):
            level = self._values[steps[k].stage] if steps[k].stage != DATA else self._blocks.constants
            if k not in level:
                level[k] = self._blocks.performed(k, found)
            found[k] = level[k]
        return found


def assembled(kind: Enclosing[V], block: ArrayBlock, values: Mapping[int, V]) -> V:
    """A block as one array, from the values of its steps."""
    total: V | None = None
    for slices, shape, parts in block.pieces:
        for part in parts:
            value = embedded(kind, values[part.step], part.deltas, shape)
            piece = kind.moved(value, _put(slices, block.shape))
            total = piece if total is None else kind.added(total, piece)
    if total is None:
        return kind.moved(kind.number(Fraction(0)), lambda array: np.broadcast_to(array, block.shape))
    return total


def _put(slices: tuple[slice, ...], shape: tuple[int, ...]) -> Any:
    def move(array: Any) -> Any:
        inner = array.reshape(tuple(own.stop - own.start for own in slices))
        if inner.shape == shape:
            return inner
        result = zeros_like(array, shape)
        result[slices] = inner
        return result

    return move
