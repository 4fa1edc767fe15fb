"""Edges: where a tensor in pieces (abs, sign, min, max, Piecewise) changes its formula."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bilevel_sym.arrays.algebra import subtracted
from bilevel_sym.arrays.tensor import Apply, Head, Leaf, LogSumExp, Tensor

__all__ = ["edges_of"]

_OF_ONE = frozenset(("abs", "sign", "lt", "le"))


def edges_of(tensor: Tensor, variables: Collection[Leaf]) -> list[Tensor]:
    """What vanishes where the tensor changes its formula, entry by entry, if that depends on the variables.

    >>> from bilevel_sym.arrays.algebra import apply
    >>> y = Leaf("y", ("n",), "y")
    >>> edges_of(apply("abs", Tensor.leaf(y)), {y})
    [Tensor[n|1*y(0)]]
    """
    found: dict[str, Tensor] = {}
    for edge in _edges(tensor):
        if not edge.leaves.isdisjoint(variables):
            found.setdefault(edge.key, edge)
    return list(found.values())


def _edges(tensor: Tensor) -> Iterator[Tensor]:
    for term in tensor.terms:
        for head, _ in term.factors:
            yield from _of_head(head)


def _of_head(head: Head) -> Iterator[Tensor]:
    if isinstance(head, Apply):
        if head.op in _OF_ONE:
            yield head.bodies[0]
        elif head.op in ("min", "max"):
            yield subtracted(*head.bodies)
    bodies = head.bodies if isinstance(head, Apply) else head.parts if isinstance(head, LogSumExp) else ()
    for body in bodies:
        yield from _edges(body)
