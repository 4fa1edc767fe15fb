"""Seams: where a function changes its formula, and how closely the formulas on both sides agree there.

Piecewise, abs, min, max and sign switch at the zeros of an *edge*: of x for abs(x), of a - b for min(a, b). Each edge
gets two switches, numbers that are 0 or 1: [e < 0] and [e <= 0]. With them as further variables a function is one
smooth formula for each way to set them. If the formulas on both sides of an edge agree up to order r wherever the edge
is zero (whatever the other switches are, unless they are certain there), the function is r times continuously
differentiable across it: the difference, cut off at the edge, is o(t^r). And its derivatives of order r + 1, which
exist on both sides, bound how fast those of order r change. How closely they agree is found by ``crossing``.

This holds wherever the formulas of both sides exist. A piece such as y**4/x may have its pole on the edge, hidden by
the other piece: see ``partial``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from flint import fmpq

from bilevel_sym.arithmetic.pieces.contact import LIMIT, is_partial
from bilevel_sym.arithmetic.pieces.crossing import Crossing, Layout, Parallels, switching
from bilevel_sym.arithmetic.pieces.polynomials import is_number
from bilevel_sym.graph.nodes import ONE_FORM, ZERO_FORM, Graph, LinearForm, constant
from bilevel_sym.graph.rewriting import rewritten

__all__ = ["SWITCHES", "Seams", "find_seams"]

MAX_SEAM_WORK = 2_000_000  # edges times nodes: beyond it nothing is proved of any edge
SWITCHES = frozenset(("abs", "sign", "min", "max", "lt", "le"))
CONTINUOUS = frozenset(("abs", "min", "max"))

Key = tuple[tuple[int, str], ...]


@dataclass(frozen=True, eq=False)
class Seams:
    """The edges of some functions, and the functions with switches in their place, on a graph of their own.

    ``edges`` are forms of the graph that was given. ``functions`` are forms of ``graph``, which has the same variables
    and then two switches for each edge. See ``orders``.

    >>> graph = Graph(2)
    >>> x, y = graph.variables
    >>> seams = find_seams(graph, [graph.power(graph.apply("abs", x), 3), graph.mul(x, y)])
    >>> len(seams.edges), seams.orders
    (1, ((2,), (5,)))
    """

    edges: tuple[LinearForm, ...]
    graph: Graph
    functions: tuple[LinearForm, ...]
    first: int
    _given: Graph
    _moved: tuple[LinearForm, ...]
    _proper: tuple[bool, ...]

    def involved(self, k: int) -> tuple[bool, ...]:
        """Which functions switch at an edge."""
        mask = self._layout.mask(k)
        return tuple(any(self.graph.support[n] & mask for n in form.terms) for form in self.functions)

    @cached_property
    def orders(self) -> tuple[tuple[int, ...], ...]:
        """For each function and edge, up to which order it is proved to be continuously differentiable there.

        -1: perhaps a jump. The largest number that is ever given is LIMIT. Said of points of the edge at which the
        formulas of both sides exist.
        """
        if len(self.edges) * len(self.graph) > MAX_SEAM_WORK:
            return tuple(tuple(LIMIT if not hit else -1 for hit in map(bool, self._hits(f))) for f in self.functions)
        known: dict[tuple[int, Key], int] = {}
        return tuple(tuple(self._order(form, k, known) for k in range(len(self.edges))) for form in self.functions)

    def _order(self, form: LinearForm, k: int, known: dict[tuple[int, Key], int]) -> int:
        form = switching(self.graph, form, self._layout.mask(k))
        if not form.terms:
            return LIMIT
        if not self._proper[k]:
            return -1
        key = k, tuple((n, str(c)) for n, c in sorted(form.terms.items()))
        if key not in known:
            known[key] = Crossing(self.graph, self._moved[k], k, self._layout).order(form)
        return known[key]

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self.first, len(self.edges), Parallels(self._given, self.edges))

    def _hits(self, form: LinearForm) -> list[int]:
        return self._layout.hits(self.graph, [form])

    @cached_property
    def partial(self) -> tuple[bool, ...]:
        """For each function, whether something in it has poles, or an end of its domain, where it may not exist."""

        def hidden(node: int) -> bool:
            return is_partial(self.graph, node) and bool(self.graph.support[node] or not is_number(self.graph, node))

        return tuple(any(map(hidden, self.graph.reachable(form.terms))) for form in self.functions)


def find_seams(graph: Graph, functions: Sequence[LinearForm]) -> Seams | None:
    """The seams of some functions; None where nothing switches.

    >>> graph = Graph(1)
    >>> find_seams(graph, [graph.apply("exp", graph.variables[0])]) is None
    True
    """
    found = _Edges(graph)
    nodes = [n for n in graph.reachable({k for f in functions for k in f.terms}) if graph.op[n] in SWITCHES]
    switching = {node: place for node in nodes if (place := found.place(node)) is not None}
    if not switching:
        return None
    first = len(graph.variables)
    target = Graph(first + 2 * len(found.edges))

    def rule(node: int, there: Mapping[int, LinearForm]) -> LinearForm | None:
        if graph.op[node] == "var":
            return target.variables[node]
        if node not in switching:
            return None
        k, sign = switching[node]
        return _switched(target, graph.op[node], [there[a] for a in graph.args[node]], first + 2 * k, sign)

    moved = rewritten(graph, [*functions, *found.edges], target, rule)
    count = len(functions)
    proper = tuple(_is_continuous(graph, edge) for edge in found.edges)
    return Seams(tuple(found.edges), target, tuple(moved[:count]), first, graph, tuple(moved[count:]), proper)


def _is_continuous(graph: Graph, edge: LinearForm) -> bool:
    """Whether nothing jumps inside the edge itself."""
    inside = {graph.op[node] for node in graph.reachable(edge.terms)}
    return inside.isdisjoint((SWITCHES - CONTINUOUS) | {"select"})


class _Edges:
    """The different edges, up to a factor."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.edges = graph, list[LinearForm]()
        self._places: dict[Key, int] = {}

    def place(self, node: int) -> tuple[int, int] | None:
        """The edge of a node that switches, and the sign of the factor; None where it never switches."""
        arguments = [self.graph.form(arg) for arg in self.graph.args[node]]
        form = arguments[0] if len(arguments) == 1 else arguments[0] - arguments[1]
        if form.is_constant:
            return None
        lead = form.terms[min(form.terms)]
        form = form.scaled(1 / lead)
        key: Key = ((-1, str(form.constant)), *((n, str(c)) for n, c in sorted(form.terms.items())))
        if key not in self._places:
            self._places[key] = len(self.edges)
            self.edges.append(form)
        return self._places[key], 1 if lead > 0 else -1


def _switched(graph: Graph, op: str, args: Sequence[LinearForm], first: int, sign: int) -> LinearForm:
    """What a switching node is, in terms of [e < 0] and [e <= 0]; its own argument is e times a number of that sign."""
    below, at_most = (LinearForm(fmpq(0), {first + k: fmpq(1)}) for k in (0, 1))
    negative, not_positive = (below, at_most) if sign > 0 else (_not(graph, at_most), _not(graph, below))
    match op:
        case "lt":
            return negative
        case "le":
            return not_positive
        case "sign":
            return graph.apply(
                "select", negative, constant(-1), graph.apply("select", not_positive, ZERO_FORM, ONE_FORM)
            )
        case "abs":
            return graph.apply("select", negative, -args[0], args[0])
    first_one, second = args if op == "min" else args[::-1]
    return graph.apply("select", negative, first_one, second)


def _not(graph: Graph, condition: LinearForm) -> LinearForm:
    return graph.apply("select", condition, ZERO_FORM, ONE_FORM)
