"""Rewriting forms: the same operations again, on the same graph or another one, with some nodes replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flint import fmpq

from bilevel_sym.graph.nodes import Graph, LinearForm, total

__all__ = ["again", "as_it_is", "rewritten", "substituted"]

Rule = Callable[[int, Mapping[int, LinearForm]], LinearForm | None]


def rewritten(graph: Graph, forms: Sequence[LinearForm], target: Graph, rule: Rule) -> list[LinearForm]:
    """The forms on another graph; ``rule(node, there)`` is what stands for a node, None for its operation again.

    ``there`` holds what stands for the nodes before it, its arguments among them. Variables need a rule.

    >>> graph, other = Graph(1), Graph(2)
    >>> form = graph.apply("sin", graph.variables[0])
    >>> (moved,) = rewritten(graph, [form], other, lambda node, there: other.variables[1] if node == 0 else None)
    >>> moved.terms == other.apply("sin", other.variables[1]).terms
    True
    """
    there: dict[int, LinearForm] = {}

    def carry(some: LinearForm) -> LinearForm:
        return total([LinearForm(some.constant, {}), *(there[k].scaled(c) for k, c in some.terms.items())])

    for node in graph.reachable({k for form in forms for k in form.terms}):
        found = rule(node, there)
        there[node] = again(graph, node, target, there) if found is None else found
    return [carry(form) for form in forms]


def again(graph: Graph, node: int, target: Graph, there: Mapping[int, LinearForm]) -> LinearForm:
    """The operation of a node on what stands for its arguments.

    >>> graph = Graph(1)
    >>> square = next(iter(graph.power(graph.variables[0], 2).terms))
    >>> again(graph, square, graph, {0: LinearForm(graph.variables[0].constant + 3, {})}).constant
    9
    """
    op, args = graph.op[node], graph.args[node]
    match op:
        case "lin":
            form = graph.form(node)
            return total([LinearForm(form.constant, {}), *(there[k].scaled(c) for k, c in form.terms.items())])
        case "ipow" | "rpow":
            return target.power(there[args[0]], *graph.parameter[node])
    return target.apply(op, *(there[arg] for arg in args))


def as_it_is(graph: Graph, node: int) -> LinearForm:
    """A node as one term; a constant as a number, so that what is built on it is folded.

    >>> graph = Graph(1)
    >>> as_it_is(graph, graph.node_of(LinearForm(fmpq(3), {}))).constant, as_it_is(graph, 0).terms
    (3, {0: 1})
    """
    is_number = graph.op[node] == "lin" and not graph.args[node]
    return graph.form(node) if is_number else LinearForm(fmpq(0), {node: fmpq(1)})


def substituted(graph: Graph, forms: Sequence[LinearForm], values: Mapping[int, LinearForm]) -> list[LinearForm]:
    """The forms with some variables replaced; nodes without them stay the nodes they are.

    >>> graph = Graph(2)
    >>> a, b = graph.variables
    >>> substituted(graph, [graph.mul(a, b) + a], {1: LinearForm(b.constant + 2, {})})[0].terms
    {0: 3}
    """
    wanted = sum(1 << v for v in values)
    there = _Unless(graph)
    for node in graph.reachable({k for form in forms for k in form.terms}, support=wanted):
        there[node] = values[node] if node in values else again(graph, node, graph, there)
    return [
        total([LinearForm(form.constant, {}), *(there[k].scaled(c) for k, c in form.terms.items())]) for form in forms
    ]


class _Unless(dict[int, LinearForm]):
    """What stands for nodes: themselves, unless something is put in."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph

    def __missing__(self, node: int) -> LinearForm:
        return as_it_is(self._graph, node)
