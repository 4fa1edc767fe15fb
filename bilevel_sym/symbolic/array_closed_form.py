"""How g_yy is inverted, by its structure; and y* in closed form where g is quadratic in y, always as a solve.

A Hessian that is diagonal is divided by, entry by entry. One matrix that acts on all columns of y alike (or on all
rows) is a matrix solve. Several arrays that g couples are one joint system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Literal

from bilevel_sym.arrays.algebra import contract, multiplied, power
from bilevel_sym.arrays.calculus import substituted
from bilevel_sym.arrays.edges import switches_of
from bilevel_sym.arrays.normal import raw_terms, scaled, tensor
from bilevel_sym.arrays.tensor import Delta, Leaf, Tensor
from bilevel_sym.implicit.array_model import ArrayModel

__all__ = ["ArrayClosedForm", "Curvature", "Solve", "curvatures", "solve_quadratic"]

Kind = Literal["entries", "vector", "columns", "rows", "operator"]


@dataclass(frozen=True)
class Curvature:
    """What g_yy is for one array of y.

    - ``kind``: "entries": diagonal, divided by; "vector": a matrix; "columns", "rows": a matrix that acts on each
      column, or each row, alike; "operator": none of these.
    - ``tensor``: the diagonal, or that matrix; all of g_yy for an operator.

    >>> Curvature("entries", Tensor(("n",))).kind
    'entries'
    """

    kind: Kind
    tensor: Tensor


@dataclass(frozen=True)
class Solve:
    """The solution of a linear system with the matrix of ``curvature``, whose right side is ``right``.

    >>> Solve(Curvature("vector", Tensor(("n", "n"))), Tensor(("n",))).value is None
    True
    """

    curvature: Curvature
    right: Tensor

    @property
    def value(self) -> Tensor | None:
        """Written out, where it is a division."""
        if self.curvature.kind != "entries":
            return None
        return multiplied(self.right, power(self.curvature.tensor, -1))


@dataclass(frozen=True)
class ArrayClosedForm:
    """y*, or why there is none.

    - ``method``: what was done, or why it was not.
    - ``solves``: y* for each array; empty where it is not closed, or only as the joint system.
    - ``right_sides``: -g_y at y = 0 for each array, where g is quadratic in y.
    - ``is_joint``: whether several vectors and scalars are one system, solved together.

    >>> ArrayClosedForm("not tried").is_closed
    False
    """

    method: str
    solves: Mapping[Leaf, Solve] | None = None
    right_sides: Mapping[Leaf, Tensor] | None = None
    is_joint: bool = False

    @property
    def is_closed(self) -> bool:
        """Whether y* is known."""
        return self.solves is not None or self.is_joint


def curvatures(model: ArrayModel) -> Mapping[Leaf, Curvature] | None:
    """The structure of g_yy for each array of y; None where g couples several arrays.

    >>> y = Leaf("y", ("n",), "y")
    >>> Y = Tensor.leaf(y)
    >>> g = contract([(Y, "i"), (Y, "i")], "")
    >>> curvatures(ArrayModel(contract([(Y, "i")], ""), g, [], [y]))[y]
    Curvature(kind='entries', tensor=Tensor[n|2*1])
    """
    blocks = model.block("g_yy")
    if any(not value.is_zero for (a, b), value in blocks.items() if a != b):
        return None
    return {leaf: _curvature(leaf, blocks[leaf, leaf]) for leaf in model.y}


def _curvature(leaf: Leaf, block: Tensor) -> Curvature:
    rank = len(leaf.dims)
    pairs = [(k, rank + k) for k in range(rank)]
    if block.is_zero:
        return Curvature("operator", block)
    if all(_has_delta(block, pair) for pair in pairs):
        return Curvature("entries", contract([(block, range(2 * rank))], range(rank)))
    if rank == 1:
        return Curvature("vector", block)
    if rank == 2:
        for kind, same, kept in (("columns", (1, 3), (0, 2)), ("rows", (0, 2), (1, 3))):
            matrix = _without(block, same, kept)
            if matrix is not None:
                return Curvature(kind, matrix)  # type: ignore[arg-type]
    return Curvature("operator", block)


def _has_delta(block: Tensor, pair: tuple[int, int]) -> bool:
    return all(
        any(isinstance(head, Delta) and indices == pair for head, indices in term.factors) for term in block.terms
    )


def _without(block: Tensor, same: tuple[int, int], kept: tuple[int, int]) -> Tensor | None:
    """The block without a delta that all of its terms have, if nothing else depends on those indices."""
    if not _has_delta(block, same):
        return None
    others = [i for term in block.terms for head, own in term.factors if own != same for i in own]
    if any(i in same for i in others):
        return None
    summed = contract([(block, range(4))], (*kept, same[0]))
    return tensor(summed.dims[:2], raw_terms(summed, (0, 1, -1), count(2)))


def solve_quadratic(model: ArrayModel) -> ArrayClosedForm:
    """y* = H^-1 c with c = -g_y(x, 0), where g_yy does not depend on y.

    >>> x, y = Leaf("x", ("n",), "x"), Leaf("y", ("n",), "y")
    >>> X, Y = Tensor.leaf(x), Tensor.leaf(y)
    >>> g = contract([(power(Y, 2), "i")], "")
    >>> solve_quadratic(ArrayModel(contract([(Y, "i")], ""), g, [x], [y])).method
    'quadratic in y, with a diagonal Hessian: divided entry by entry'
    """
    blocks = model.block("g_yy")
    if switches := switches_of(model.g, set(model.y)):
        return ArrayClosedForm(f"g is not smooth in y: it contains {switches[0].op}")
    if any(value.leaves & set(model.y) for value in blocks.values()):
        return ArrayClosedForm("g is not quadratic in y: its Hessian depends on y")
    if any(blocks[leaf, leaf].is_zero for leaf in model.y):
        return ArrayClosedForm("g is linear in an array of y: it is not strongly convex")
    nothing = {leaf: Tensor(leaf.dims) for leaf in model.y}
    rights = {leaf: scaled(substituted(value, nothing), -1) for (leaf,), value in model.block("g_y").items()}
    structure = curvatures(model)
    if structure is None:
        names = ", ".join(leaf.name for leaf in model.y)
        vectors = all(len(leaf.dims) < 2 for leaf in model.y)
        return ArrayClosedForm(f"quadratic in y: one joint linear system for {names}", None, rights, is_joint=vectors)
    if any(curvature.kind == "operator" for curvature in structure.values()):
        return ArrayClosedForm("quadratic in y: linear equations whose matrix has no matrix form", None, rights)
    solves = {leaf: Solve(structure[leaf], rights[leaf]) for leaf in model.y}
    return ArrayClosedForm(_METHODS[_hardest(structure)], solves, rights)


_METHODS: Mapping[Kind, str] = {
    "entries": "quadratic in y, with a diagonal Hessian: divided entry by entry",
    "vector": "quadratic in y: one linear solve",
    "columns": "quadratic in y: one linear solve for all columns",
    "rows": "quadratic in y: one linear solve for all rows",
}


def _hardest(structure: Mapping[Leaf, Curvature]) -> Kind:
    order: list[Kind] = ["entries", "vector", "columns", "rows"]
    return max((curvature.kind for curvature in structure.values()), key=order.index)
