"""Edges: where a tensor in pieces (abs, sign, min, max, Piecewise) changes its formula."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bilevel_sym.arrays.algebra import subtracted
from bilevel_sym.arrays.tensor import Apply, Head, Leaf, LogSumExp, Tensor

__all__ = ["Switch", "edges_of", "switches_of"]

_OF_ONE = frozenset(("abs", "sign", "lt", "le"))


@dataclass(frozen=True)
class Switch:
    """A function that changes its formula where ``edge`` vanishes, entry by entry.

    - ``op``: its name.
    - ``bodies``: its arguments.
    - ``edge``: what vanishes.

    >>> y = Tensor.leaf(Leaf("y", ("n",), "y"))
    >>> Switch("abs", (y,), y).op
    'abs'
    """

    op: str
    bodies: tuple[Tensor, ...]
    edge: Tensor


def edges_of(tensor: Tensor, variables: Collection[Leaf]) -> list[Tensor]:
    """What vanishes where the tensor changes its formula, entry by entry, if that depends on the variables.

    >>> from bilevel_sym.arrays.algebra import apply
    >>> y = Leaf("y", ("n",), "y")
    >>> edges_of(apply("abs", Tensor.leaf(y)), {y})
    [Tensor[n|1*y(0)]]
    """
    return [switch.edge for switch in switches_of(tensor, variables)]


def switches_of(tensor: Tensor, variables: Collection[Leaf]) -> list[Switch]:
    """The functions that change their formulas, the first of those that do it at the same edge.

    >>> from bilevel_sym.arrays.algebra import apply
    >>> y = Leaf("y", ("n",), "y")
    >>> [switch.op for switch in switches_of(apply("abs", Tensor.leaf(y)), {y})]
    ['abs']
    """
    found: dict[str, Switch] = {}
    for switch in _switches(tensor):
        if not switch.edge.leaves.isdisjoint(variables):
            found.setdefault(switch.edge.key, switch)
    return list(found.values())


def _switches(tensor: Tensor) -> Iterator[Switch]:
    for term in tensor.terms:
        for head, _ in term.factors:
            yield from _of_head(head)


def _of_head(head: Head) -> Iterator[Switch]:
    if isinstance(head, Apply):
        if head.op in _OF_ONE:
            yield Switch(head.op, tuple(head.bodies[:1]), head.bodies[0])
        elif head.op in ("min", "max"):
            yield Switch(head.op, tuple(head.bodies), subtracted(*head.bodies))
    bodies = head.bodies if isinstance(head, Apply) else head.parts if isinstance(head, LogSumExp) else ()
    for body in bodies:
        yield from _switches(body)
