"""Array problems against the same problems in scalars: every block, exactly, at random rational points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from array_oracle import Field, NoNumber, Point, field_of, same, values
from array_strategies import LANGUAGES, DrawnProblem, points, problems, random_array
from hypothesis import assume, given
from hypothesis import strategies as st

from bilevel_sym.arrays.algebra import contract
from bilevel_sym.arrays.lowering import lower, lower_form
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.nodes import LinearForm, total
from bilevel_sym.implicit.array_model import ArrayModel
from bilevel_sym.implicit.model import Model

FIRST_AND_SECOND = (
    "f", "g", "f_x", "f_y", "g_x", "g_y", "f_xx", "f_xy", "f_yy", "g_xx", "g_xy", "g_yy", "L_xx", "L_xy", "L_yy",
    "g_yy_v", "g_xy_v",
)  # fmt: skip
THIRD = ("g_yyy", "g_xyy", "g_xxy", "f_xxx", "q_x", "q_y", "r")
MAX_ENTRIES = 5  # of an array whose third derivatives are formed
languages = pytest.mark.parametrize("language", LANGUAGES)


class Both:
    """One problem as an array model and as a scalar model; blocks of both on one graph."""

    def __init__(self, problem: DrawnProblem, point: Point) -> None:
        self.array = ArrayModel(problem.f.tensor, problem.g.tensor, problem.x, problem.y)
        names = {leaf.name for leaf in (*problem.x, *problem.y)}
        self.data = {name: array for name, array in point.arrays.items() if name not in names}
        self.sizes = point.sizes
        lowered = lower(self.array.f, self.array.g, problem.x, problem.y, data=self.data, sizes=point.sizes)
        self.scalar = Model(lowered.f, lowered.g, lowered.x, lowered.y)
        self.graph = self.scalar.graph
        model = self.array
        axes = ((model.x, self.scalar.x), (model.y, self.scalar.y), (model.v, self.scalar.v),
                (model.u, self.scalar.u), (model.w, self.scalar.w))  # fmt: skip
        self.starts = {leaf: start for leaves, axis in axes for leaf, start in self._starts(leaves, axis.start)}

    def entries(self, leaf: Leaf) -> int:
        return int(np.prod([self.sizes[dim] for dim in leaf.dims], dtype=int))

    def _starts(self, leaves: Sequence[Leaf], start: int) -> list[tuple[Leaf, int]]:
        found = []
        for leaf in leaves:
            found.append((leaf, start))
            start += self.entries(leaf)
        return found

    def entry_of(self, leaf: Leaf, place: tuple[int, ...]) -> Any:
        if leaf not in self.starts:
            return self.data[leaf.name][place]
        return self.graph.variables[self.starts[leaf] + self.flat(leaf, place)]

    def flat(self, leaf: Leaf, place: tuple[int, ...]) -> int:
        return int(np.ravel_multi_index(place, [self.sizes[dim] for dim in leaf.dims])) if place else 0

    def array_block(self, name: str) -> dict[tuple[int, ...], LinearForm]:
        """The entries of a block of the array model, by the variables of the scalar one."""
        found: dict[tuple[int, ...], LinearForm] = {}
        for leaves, tensor in self.array.block(name).items():
            for place, form in lower_form(tensor, self.graph, self.entry_of, self.sizes).items():
                found[self.where(leaves, place)] = form
        return found

    def where(self, leaves: Sequence[Leaf], place: tuple[int, ...]) -> tuple[int, ...]:
        numbers, k = [], 0
        for leaf in leaves:
            own = place[k : k + len(leaf.dims)]
            numbers.append(self.starts[leaf] + self.flat(leaf, own))
            k += len(leaf.dims)
        return tuple(numbers)

    def scalar_block(self, name: str) -> dict[tuple[int, ...], LinearForm]:
        """The same of the scalar model."""
        axes = {"x": self.scalar.x, "y": self.scalar.y}
        if name in ("q_x", "q_y"):
            part = {(k,): form for k, form in enumerate(self.scalar.block("q")[1])}
            return {(k,): part[k,] for k in axes[name[2:]]}
        if name == "g_yx_u":
            return self._along_u()
        if name in ("s_x", "s_y"):
            return self._lagrangian_along_u(axes[name[2:]])
        letters = {"g_yy_v": "y", "g_xy_v": "x", "r": "y"}.get(name, name.partition("_")[2])
        places = product(*(axes[letter] for letter in letters))
        return dict(zip(places, self.scalar.block(name)[1], strict=True))

    def _along_u(self) -> dict[tuple[int, ...], LinearForm]:
        """g_yx u, term by term."""
        matrix = self.scalar_block("g_xy")
        u = dict(zip(self.scalar.x, self.scalar.u, strict=False))
        variables = self.graph.variables
        return {
            (y,): total([self.graph.mul(variables[u[x]], matrix[x, y]) for x in self.scalar.x]) for y in self.scalar.y
        }

    def _lagrangian_along_u(self, axis: Sequence[int]) -> dict[tuple[int, ...], LinearForm]:
        """The Hessian of the Lagrangian times u, term by term."""
        z, variables = (*self.scalar.x, *self.scalar.y), self.graph.variables
        u = dict(zip(z, self.scalar.u, strict=True))
        pieces = {axes: self.scalar_block(f"L_{axes}") for axes in ("xx", "xy", "yy")}
        pieces["yx"] = {(j, i): form for (i, j), form in pieces["xy"].items()}
        hessian = {place: form for block in pieces.values() for place, form in block.items()}
        return {(i,): total([self.graph.mul(variables[u[j]], hessian[i, j]) for j in z]) for i in axis}

    def disagreements(self, names: Sequence[str], seed: int) -> list[str]:
        """The blocks that differ at a random point. NoNumber where they do not exist there."""
        pairs = {name: (self.array_block(name), self.scalar_block(name)) for name in names}
        wrong = [name for name, (mine, theirs) in pairs.items() if mine.keys() != theirs.keys()]
        forms = [form for mine, theirs in pairs.values() for block in (mine, theirs) for form in block.values()]
        field = field_of(self.graph)
        found = iter(values(self.graph, forms, self.numbers(seed, field), field))
        for name, (mine, theirs) in pairs.items():
            left, right = ({place: next(found) for place in block} for block in (mine, theirs))
            if name not in wrong and not all(same(left[place], right[place]) for place in left):
                wrong.append(name)
        return wrong

    def numbers(self, seed: int, field: Field) -> dict[int, Any]:
        """A value for every variable of the graph."""
        flat = random_array(Leaf("all", ("n",), "x"), [len(self.graph.variables)], np.random.default_rng(seed))
        return Point({"n": len(flat)}, (Leaf("all", ("n",), "x"),), {"all": flat}).numbers(field)


def compare(problem: DrawnProblem, point: Point, names: Sequence[str], seed: int) -> list[str]:
    """The blocks that differ; a point where something does not exist is passed over."""
    try:
        return Both(problem, point).disagreements(names, seed)
    except (NoNumber, OverflowError, ZeroDivisionError):
        assume(False)
        raise
    except InvalidProblem as error:
        assume("divides by zero" not in error.message)
        raise


def drawn_problem(data: st.DataObject, language: str, depth: int = 3) -> DrawnProblem:
    try:
        return data.draw(problems(LANGUAGES[language], depth))
    except ZeroDivisionError:
        assume(False)
        raise


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@languages
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_blocks_are_those_of_the_scalar_problem(language: str, data: st.DataObject, seed: int) -> None:
    problem, point = drawn_problem(data, language), data.draw(points())
    assert compare(problem, point, (*FIRST_AND_SECOND, "g_yx_u", "s_x", "s_y"), seed) == []


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@languages
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_third_derivatives_are_those_of_the_scalar_problem(language: str, data: st.DataObject, seed: int) -> None:
    problem, point = drawn_problem(data, language, depth=2), data.draw(points(largest=2))
    for level in (problem.x, problem.y):
        assume(sum(point.entries(leaf) for leaf in level) <= MAX_ENTRIES)
    assert compare(problem, point, THIRD, seed) == []


def test_problems_with_the_same_names_have_nothing_in_common() -> None:
    """Names mean arrays of one problem: of other sizes in another, or symmetric there."""
    found = []
    for dim, symmetric in (("n", False), ("m", False), ("n", True)):
        x, y = Leaf("x", (), "x"), Leaf("y", (dim,), "y")
        K = Leaf("K", (dim, dim), "data", declared_symmetric=symmetric)
        g = contract([(Tensor.leaf(y), "i"), (Tensor.leaf(K), "ij"), (Tensor.leaf(y), "j")], ())
        found.append(ArrayModel(g, g, [x], [y]).block("g_yy")[y, y])
    assert [block.dims for block in found] == [("n", "n"), ("m", "m"), ("n", "n")]
    assert [len(block.terms) for block in found] == [2, 2, 1]
