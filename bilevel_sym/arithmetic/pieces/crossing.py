"""Crossing an edge: up to which order the formulas for its two signs agree where it is zero.

Directly: the difference of both has contact with the edge, for all ways to set the other switches, but for those that
are certain there. Loosely: what does not switch at this edge, but elsewhere, is put in as a new variable; what is true
of any number there is true of that function, and its switches need not be set.

And by composition, from the parts: a smooth function of functions that are C^r across an edge is C^r across it. So are
sums, and what is chosen by a switch of another edge. In a sum, terms that hold a switch of the edge nakedly may agree
only together: those that are not even continuous, as far as this rule tells, are asked about as one. What is said of a
function holds for each way to set the other switches: the formulas for both signs of the edge agree up to order r where
it is zero, and if there is a third one for the edge itself, it agrees there in its value. Smooth functions keep both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flint import fmpq

from bilevel_sym.arithmetic.pieces.contact import LIMIT, contact, has_poles
from bilevel_sym.arithmetic.pieces.polynomials import sign_of
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.nodes import ONE_FORM, ZERO_FORM, Graph, LinearForm
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.graph.rewriting import rewritten, substituted

MAX_CASES = 256  # ways to set the other switches in one question
MAX_PARTS = 4_000  # nodes of the parts that are asked about, one by one, for the rule of composition

State = int  # the sign of an edge
# Smooth on all of R. Not those with poles or an end of their domain, which may lie on the edge.
SMOOTH = frozenset({"mul", *(name for name, record in FUNCTIONS.items() if not record.is_partial)})
Test = Callable[[LinearForm], int]


def switching(graph: Graph, form: LinearForm, mask: int) -> LinearForm:
    """The terms that depend on the switches of an edge: the others are the same on both sides.

    >>> graph = Graph(2)
    >>> x, switch = graph.variables
    >>> switching(graph, x + switch, 2).terms
    {1: 1}
    """
    return LinearForm(fmpq(0), {n: c for n, c in form.terms.items() if graph.support[n] & mask})


@dataclass(frozen=True)
class Parallels:
    """Edges that are others plus a number: the sign of one may follow from that of another.

    >>> graph = Graph(1)
    >>> (x,) = graph.variables
    >>> pi, e = graph.apply("pi"), graph.apply("exp", ONE_FORM)
    >>> parallels = Parallels(graph, (x - pi, x - e))
    >>> parallels.implied(1, {0: 0}), parallels.implied(1, {0: -1})
    (1, None)
    """

    graph: Graph
    edges: tuple[LinearForm, ...]
    _gaps: dict[tuple[int, int], int | None] = field(default_factory=dict, repr=False)

    def implied(self, k: int, known: Mapping[int, State]) -> State | None:
        """The sign of an edge, if it follows from those of others."""
        for other, state in known.items():
            gap = self._gap(k, other)
            if gap and gap != -state:
                return gap
        return None

    def _gap(self, k: int, other: int) -> int | None:
        """The sign of the difference of two edges, if it is one number."""
        if (k, other) not in self._gaps:
            self._gaps[k, other] = sign_of(self.graph, self.edges[k] - self.edges[other])
        return self._gaps[k, other]


@dataclass(frozen=True)
class Layout:
    """Where the switches of the edges are among the variables of a graph: ``first`` and on, two for each edge."""

    first: int
    edges: int
    parallels: Parallels

    def mask(self, k: int) -> int:
        """The two switches [e < 0] and [e <= 0] of an edge, as bits."""
        return 3 << self.first + 2 * k

    @property
    def all(self) -> int:
        """All switches, as bits."""
        return ((1 << 2 * self.edges) - 1) << self.first

    def hits(self, graph: Graph, forms: Sequence[LinearForm]) -> list[int]:
        """For each edge, its switches among what the forms depend on."""
        support = 0
        for form in forms:
            for node in form.terms:
                support |= graph.support[node]
        return [support >> self.first + 2 * k & 3 for k in range(self.edges)]

    def set(self, graph: Graph, forms: Sequence[LinearForm], states: Mapping[int, State]) -> list[LinearForm]:
        """The forms with the switches of some edges put in."""
        values: dict[int, LinearForm] = {}
        for k, state in states.items():
            below = self.first + 2 * k
            values |= {below: ONE_FORM if state < 0 else ZERO_FORM, below + 1: ONE_FORM if state <= 0 else ZERO_FORM}
        return substituted(graph, forms, values)


class Crossing:
    """One edge, the k-th of a layout, on a graph with switches."""

    def __init__(self, graph: Graph, edge: LinearForm, k: int, layout: Layout) -> None:
        self.graph, self.edge, self.k, self.layout = graph, edge, k, layout
        self.mask = layout.mask(k)
        self._parts, self._asked = 0, ZERO_FORM

    def order(self, form: LinearForm) -> int:
        """Up to which order the form is proved to agree across the edge; -1 where not even its values do."""
        try:
            form, edge = self.layout.set(self.graph, [form, self.edge], self._certain(form))
            form = switching(self.graph, form, self.mask)
            return Crossing(self.graph, edge, self.k, self.layout)._best(form) if form.terms else LIMIT
        except InvalidProblem:  # for some of the signs it divides by zero everywhere
            return -1

    def _best(self, form: LinearForm) -> int:
        """By all means; the last of them, which knows most, ends as soon as it adds nothing."""
        found = -1
        if not has_poles(self.graph, self._still(form), self.edge):
            found = composed(self.graph, form, self.mask, self._part)
            if self._asked.terms == form.terms:  # nothing but naked terms, which have been asked about
                return found
            found = max(found, self._loosely(form, found))
        return max(found, self._directly(form, found))

    def _certain(self, form: LinearForm) -> dict[int, State]:
        """The signs that other edges have wherever this one is zero."""
        hits = self.layout.hits(self.graph, [form, self.edge])
        others = (k for k, hit in enumerate(hits) if hit and k != self.k)
        signs = {k: self.layout.parallels.implied(k, {self.k: 0}) for k in others}
        return {k: sign for k, sign in signs.items() if sign is not None}

    def _part(self, form: LinearForm) -> int:
        self._parts += len(self.graph.reachable(form.terms))
        if self._parts > MAX_PARTS:
            return -1
        self._asked = form
        return max(self._loosely(form, -1), self._directly(form, -1))

    # ---- directly ----------------------------------------------------------------------------------

    def _directly(self, form: LinearForm, floor: int) -> int:
        """What is proved in all cases; once it is seen to be no more than ``floor``, any number up to that."""
        if floor == LIMIT:
            return floor
        below, above = (self.layout.set(self.graph, [form, self.edge], {self.k: state}) for state in (-1, 1))
        questions = [(above[0] - below[0], below[1], LIMIT)]
        if self.layout.hits(self.graph, [form])[self.k] == 3:  # on the edge itself there may be a third value
            (on,) = self.layout.set(self.graph, [form], {self.k: 0})
            questions.append((on - below[0], below[1], 0))
        if contact(self.graph, *self._first(questions[0][:2])) <= floor:
            return floor
        least, cases = LIMIT, 0
        for difference, edge, most in questions:
            for leaf, at in self._cases([difference, edge], {self.k: 0}):
                cases += 1
                if cases > MAX_CASES:
                    return -1
                found = contact(self.graph, leaf, at)
                least = min(least, found if found < most or most == LIMIT else LIMIT)
                if least <= floor:
                    return least
        return least

    def _cases(self, forms: Sequence[LinearForm], known: Mapping[int, State]) -> Iterator[Sequence[LinearForm]]:
        """The forms for all ways to set the switches that they still depend on, but for what ``known`` rules out."""
        hits = self.layout.hits(self.graph, forms)
        other = next((k for k, hit in enumerate(hits) if hit and k not in known), None)
        if other is None:
            yield forms
            return
        certain = self.layout.parallels.implied(other, known)
        states = (1, -1, 0) if hits[other] == 3 else (1, -1)
        for state in states if certain is None else (certain,):
            yield from self._cases(self.layout.set(self.graph, forms, {other: state}), {**known, other: state})

    def _first(self, forms: Sequence[LinearForm]) -> Sequence[LinearForm]:
        """One of the cases, all other edges positive, set at once: most questions end there."""
        hits = self.layout.hits(self.graph, forms)
        return self.layout.set(self.graph, forms, {other: 1 for other, hit in enumerate(hits) if hit})

    # ---- loosely -----------------------------------------------------------------------------------

    def _loosely(self, form: LinearForm, floor: int) -> int:
        """The same with new variables in place of what switches at other edges only."""
        still = self._switching_at_others(form)
        if not still or floor == LIMIT:
            return floor
        count = len(self.graph.variables)
        target = Graph(count + len(still))
        new = dict(zip(still, target.variables[count:], strict=True))

        def rule(node: int, _: Mapping[int, LinearForm]) -> LinearForm | None:
            if node in new:
                return new[node]
            return target.variables[node] if self.graph.op[node] == "var" else None

        form, edge = rewritten(self.graph, [form, self.edge], target, rule)
        return Crossing(target, edge, self.k, self.layout)._directly(form, floor)

    def _still(self, form: LinearForm) -> list[int]:
        """The outermost parts that do not switch at this edge."""
        inside = self.graph.reachable(form.terms, support=self.mask)
        return sorted({a for n in inside for a in self.graph.args[n] if not self.graph.support[a] & self.mask})

    def _switching_at_others(self, form: LinearForm) -> list[int]:
        """What switches at other edges only; of products, the factors that do."""
        graph, fixed, found = self.graph, self._conditions(form), set[int]()
        stack = self._still(form)
        while stack:
            node = stack.pop()
            if not graph.support[node] & self.layout.all or node in fixed:
                continue
            if graph.op[node] == "mul" or (graph.op[node] == "ipow" and graph.parameter[node][0] > 0):
                stack.extend(graph.args[node])
            else:
                found.add(node)
        return sorted(found)

    def _conditions(self, form: LinearForm) -> set[int]:
        """What says which piece counts: set, it leaves one of them, of which more can be said."""
        inside = self.graph.reachable(form.terms, support=self.mask)
        return set(self.graph.reachable(self.graph.args[n][0] for n in inside if self.graph.op[n] == "select"))


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
