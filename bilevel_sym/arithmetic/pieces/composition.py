"""Composition: a smooth function of functions that are C^r across an edge is C^r across it.

So are sums, and what is chosen by a switch of another edge. In a sum, terms that hold a switch of the edge nakedly may
agree only together: those that are not even continuous, as far as this rule tells, are asked about as one.

What is said of a function here holds for each way to set the other switches: the formulas for both signs of the edge
agree up to order r where it is zero, and if there is a third one for the edge itself, it agrees there in its value.
Smooth functions keep both.
"""

from __future__ import annotations

from collections.abc import Callable

from flint import fmpq

from bilevel_sym.arithmetic.pieces.contact import LIMIT
from bilevel_sym.graph.nodes import Graph, LinearForm
from bilevel_sym.graph.operations import FUNCTIONS

__all__ = ["composed"]

# Smooth on all of R. Not those with poles or an end of their domain, which may lie on the edge.
SMOOTH = frozenset({"mul", *(name for name, record in FUNCTIONS.items() if not record.is_partial)})

Test = Callable[[LinearForm], int]


def composed(graph: Graph, form: LinearForm, mask: int, direct: Test) -> int:
    """To which order a form agrees across an edge; what does not depend on the bits of ``mask`` must be smooth there.

    ``mask`` has the switches of the edge. ``direct`` answers the same question for a form by other means.

    >>> graph = Graph(2)  # the second is a switch
    >>> x, switch = graph.variables
    >>> piece = graph.apply("select", switch, x, graph.power(x, 2))
    >>> composed(graph, graph.mul(graph.apply("sin", piece), x), 2, lambda form: 0)
    0
    """
    return _Rule(graph, mask, direct).order(form)


class _Rule:
    def __init__(self, graph: Graph, mask: int, direct: Test) -> None:
        self.graph, self.mask, self.direct = graph, mask, direct
        self._found: dict[int, int] = {}  # by composition, of the nodes that switch at the edge
        self._settled: dict[int, int] = {}

    def order(self, form: LinearForm) -> int:
        for node in self.graph.reachable(form.terms, support=self.mask):
            self._found[node] = self._node(node)
        return self._sum(form)

    def _node(self, node: int) -> int:
        graph = self.graph
        op, args = graph.op[node], graph.args[node]
        if op == "lin":
            return self._sum(graph.form(node))
        if op == "select" and not graph.support[args[0]] & self.mask:
            return min(map(self._argument, args[1:]))
        if op in SMOOTH or (op == "ipow" and graph.parameter[node][0] > 0):
            return min(map(self._argument, args))
        return -1

    def _sum(self, form: LinearForm) -> int:
        orders = {node: self._found[node] for node in form.terms if node in self._found}
        bare = {node: form.terms[node] for node, order in orders.items() if order < 0}
        least = min((order for order in orders.values() if order >= 0), default=LIMIT)
        return min(least, self.direct(LinearForm(fmpq(0), bare))) if bare else least

    def _argument(self, node: int) -> int:
        """Of an argument of something that is no sum: the naked ones are asked about alone."""
        found = self._found.get(node, LIMIT)
        if found >= 0 or self.graph.op[node] in ("var", "lin"):
            return found
        if node not in self._settled:
            self._settled[node] = self.direct(LinearForm(fmpq(0), {node: fmpq(1)}))
        return self._settled[node]
