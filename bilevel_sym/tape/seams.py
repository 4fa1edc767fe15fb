"""Seams: where a function changes its formula, and how closely the formulas on both sides agree there.

Piecewise, abs, min, max and sign switch at the zeros of an *edge*: of x for abs(x), of a - b for min(a, b). Each edge
gets two switches, numbers that are 0 or 1: [e < 0] and [e <= 0]. With them as further variables a function is one
smooth formula for each way to set them. If the formulas on both sides of an edge agree up to order r wherever the edge
is zero (whatever the other switches are, unless they are certain there), the function is r times continuously
differentiable across it: the difference, cut off at the edge, is o(t^r). And its derivatives of order r + 1, which
exist on both sides, bound how fast those of order r change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from flint import fmpq

from bilevel_sym.tape.contact import LIMIT, contact
from bilevel_sym.tape.graph import NOTHING, UNIT, Form, Graph, constant
from bilevel_sym.tape.rewriting import rewritten, substituted

__all__ = ["Seams", "find_seams"]

MAX_CASES = 256  # ways to set the other switches at one edge
MAX_WORK = 2_000_000  # edges times nodes: beyond it nothing is proved of any edge
SWITCHES = frozenset(("abs", "sign", "min", "max", "lt", "le"))
CONTINUOUS = frozenset(("abs", "min", "max"))

Key = tuple[tuple[int, str], ...]
State = int  # the sign of an edge


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

    edges: tuple[Form, ...]
    graph: Graph
    functions: tuple[Form, ...]
    first: int
    _moved: tuple[Form, ...]
    _proper: tuple[bool, ...]

    def switches(self, k: int) -> tuple[int, int]:
        """The variables [e < 0] and [e <= 0] of an edge."""
        return self.first + 2 * k, self.first + 2 * k + 1

    def involved(self, k: int) -> tuple[bool, ...]:
        """Which functions switch at an edge."""
        mask = sum(1 << v for v in self.switches(k))
        return tuple(any(self.graph.support[n] & mask for n in form.terms) for form in self.functions)

    @cached_property
    def orders(self) -> tuple[tuple[int, ...], ...]:
        """For each function and edge, up to which order it is proved to be continuously differentiable there.

        -1: perhaps a jump. The largest number that is ever given is LIMIT.
        """
        if len(self.edges) * len(self.graph) > MAX_WORK:
            return tuple(tuple(LIMIT if not hit else -1 for hit in map(bool, self._hits(f))) for f in self.functions)
        known: dict[Key, tuple[int, ...]] = {}
        rows = []
        for form in self.functions:
            key = tuple((n, str(c)) for n, c in sorted(form.terms.items()))
            if key not in known:
                known[key] = tuple(self._order(form, k) for k in range(len(self.edges)))
            rows.append(known[key])
        return tuple(rows)

    def _hits(self, form: Form) -> list[int]:
        """For each edge, its switches among what the form depends on."""
        support = 0
        for node in form.terms:
            support |= self.graph.support[node]
        return [support >> self.switches(k)[0] & 3 for k in range(len(self.edges))]

    def _order(self, form: Form, k: int) -> int:
        form = self._switching(form, k)
        if not form.terms:
            return LIMIT
        if not self._proper[k]:
            return -1
        below, above = (self._set([form, self._moved[k]], k, state) for state in (-1, 1))
        least, cases = LIMIT, 0
        questions = [(above[0] - below[0], below[1], LIMIT)]
        if self._hits(form)[k] == 3:  # on the edge itself there may be a third value
            on = self._set([form], k, 0)[0]
            questions.append((on - below[0], below[1], 0))
        for difference, edge, most in questions:
            for leaf, at in self._cases([difference, edge], {k: 0}):
                cases += 1
                if cases > MAX_CASES:
                    return -1
                found = contact(self.graph, leaf, at)
                least = min(least, found if found < most or most == LIMIT else LIMIT)
                if least < 0:
                    return -1
        return least

    def _switching(self, form: Form, k: int) -> Form:
        """The terms that switch at an edge: the others are the same on both sides."""
        mask = sum(1 << v for v in self.switches(k))
        return Form(fmpq(0), {n: c for n, c in form.terms.items() if self.graph.support[n] & mask})

    def _set(self, forms: Sequence[Form], k: int, state: State) -> list[Form]:
        below, at_most = self.switches(k)
        values = {below: UNIT if state < 0 else NOTHING, at_most: UNIT if state <= 0 else NOTHING}
        return substituted(self.graph, forms, values)

    def _cases(self, forms: Sequence[Form], known: Mapping[int, State]) -> Iterator[Sequence[Form]]:
        """The forms for all ways to set the switches that they still depend on, but for what ``known`` rules out."""
        hits = [a | b for a, b in zip(*map(self._hits, forms), strict=True)]
        other = next((k for k, hit in enumerate(hits) if hit and k not in known), None)
        if other is None:
            yield forms
            return
        certain = self._implied(other, known)
        states = (1, -1, 0) if hits[other] == 3 else (1, -1)
        for state in states if certain is None else (certain,):
            yield from self._cases(self._set(forms, other, state), {**known, other: state})

    def _implied(self, k: int, known: Mapping[int, State]) -> State | None:
        """The sign of an edge that is another one, of which the sign is known, plus a number."""
        mine = self.edges[k]
        for other, state in known.items():
            theirs = self.edges[other]
            gap = mine.constant - theirs.constant
            if mine.terms == theirs.terms and gap * state >= 0 and (gap or state):
                return 1 if gap + state > 0 else -1
        return None


def find_seams(graph: Graph, functions: Sequence[Form]) -> Seams | None:
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

    def rule(node: int, there: Mapping[int, Form]) -> Form | None:
        if graph.op[node] == "var":
            return target.variables[node]
        if node not in switching:
            return None
        k, sign = switching[node]
        return _switched(target, graph.op[node], [there[a] for a in graph.args[node]], first + 2 * k, sign)

    moved = rewritten(graph, [*functions, *found.edges], target, rule)
    count = len(functions)
    proper = tuple(_is_continuous(graph, edge) for edge in found.edges)
    return Seams(tuple(found.edges), target, tuple(moved[:count]), first, tuple(moved[count:]), proper)


def _is_continuous(graph: Graph, edge: Form) -> bool:
    """Whether nothing jumps inside the edge itself."""
    inside = {graph.op[node] for node in graph.reachable(edge.terms)}
    return inside.isdisjoint((SWITCHES - CONTINUOUS) | {"select"})


class _Edges:
    """The different edges, up to a factor."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.edges = graph, list[Form]()
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


def _switched(graph: Graph, op: str, args: Sequence[Form], first: int, sign: int) -> Form:
    """What a switching node is, in terms of [e < 0] and [e <= 0]; its own argument is e times a number of that sign."""
    below, at_most = (Form(fmpq(0), {first + k: fmpq(1)}) for k in (0, 1))
    negative, not_positive = (below, at_most) if sign > 0 else (_not(graph, at_most), _not(graph, below))
    match op:
        case "lt":
            return negative
        case "le":
            return not_positive
        case "sign":
            return graph.apply("select", negative, constant(-1), graph.apply("select", not_positive, NOTHING, UNIT))
        case "abs":
            return graph.apply("select", negative, -args[0], args[0])
    first_one, second = args if op == "min" else args[::-1]
    return graph.apply("select", negative, first_one, second)


def _not(graph: Graph, condition: Form) -> Form:
    return graph.apply("select", condition, NOTHING, UNIT)
