"""Contact: how closely a formula vanishes where another one does, proved in exact arithmetic.

A formula D has contact r with the zeros of an edge e where D and all its derivatives up to order r are zero there. Two
proofs are tried. D = e**(r + 1) q with polynomials in the variables and in the other functions that occur. And, where
e is linear, e = a z + ..., the derivatives of D by z vanish identically once z is put in from e = 0: derivatives along
the edge then vanish too, and z leads across it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import comb
from typing import Any

import flint

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.tape.autodiff import directional
from bilevel_sym.tape.graph import NOTHING, UNIT, Form, Graph, constant, total
from bilevel_sym.tape.rewriting import again, as_it_is, rewritten

__all__ = ["LIMIT", "contact"]

LIMIT = 5  # no question asks for more: fourth derivatives, their existence, and one to spare
MAX_TERMS = 4_000  # of a polynomial
MAX_GENERATORS = 60
MAX_NODES = 20_000  # below a difference whose derivatives are taken
SINGULAR = ("rpow", "log", "tan")

Polynomial = Any  # flint.fmpq_mpoly, which has no type stubs


class _TooLarge(Exception):
    """The polynomial would have too many terms."""


def contact(graph: Graph, difference: Form, edge: Form) -> int:
    """The largest order of contact, up to LIMIT, that could be proved; -1 where not even the values agree.

    >>> graph = Graph(2)
    >>> x, y = graph.variables
    >>> contact(graph, graph.mul(y, graph.power(x, 4)), x), contact(graph, y, x)
    (3, -1)
    >>> contact(graph, graph.apply("exp", x) - UNIT - x, x)
    1
    """
    difference, edge = _opened(graph, difference), _opened(graph, edge)
    if not difference.terms:
        return LIMIT if not difference.constant else -1
    found = _by_division(graph, difference, edge)
    if found < LIMIT and edge.terms and all(graph.op[node] == "var" for node in edge.terms):
        found = max(found, _by_derivatives(graph, difference, edge))
    return found


def _opened(graph: Graph, form: Form) -> Form:
    """With sums that are nodes written out."""
    while any(graph.op[node] == "lin" for node in form.terms):
        form = total([Form(form.constant, {}), *(graph.form(node).scaled(c) for node, c in form.terms.items())])
    return form


# ---- polynomials -------------------------------------------------------------------------------------------


class _Ring:
    """Polynomials in the variables and in all functions that are not sums, products or powers."""

    def __init__(self, graph: Graph, forms: Iterable[Form]) -> None:
        self.graph, self._done = graph, dict[int, Polynomial]()
        self.opaque = [n for n in self._below(forms) if self._parts(n) is None]
        if len(self.opaque) > MAX_GENERATORS:
            raise _TooLarge
        ring = flint.fmpq_mpoly_ctx.get([f"g{k}" for k in range(max(1, len(self.opaque)))], flint.Ordering.degrevlex)
        self._one = ring.constant(1)
        self._done |= dict(zip(self.opaque, ring.gens(), strict=False))

    def _parts(self, node: int) -> tuple[int, ...] | None:
        """The arguments of a sum, a product or a whole power; None for a generator."""
        op = self.graph.op[node]
        polynomial = op in ("lin", "mul") or (op == "ipow" and self.graph.parameter[node][0] > 0)
        return self.graph.args[node] if polynomial else None

    def _below(self, forms: Iterable[Form]) -> list[int]:
        seen: set[int] = set()
        stack = [node for form in forms for node in form.terms]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack.extend(self._parts(node) or ())
        return sorted(seen)

    def __call__(self, form: Form) -> Polynomial:
        for node in self._below([form]):
            if node not in self._done:
                self._done[node] = self._value(node)
        return self._sum(form)

    def _sum(self, form: Form) -> Polynomial:
        result = self._one * form.constant
        for node, c in form.terms.items():
            result += self._done[node] * c
        return result

    def _value(self, node: int) -> Polynomial:
        graph = self.graph
        if graph.op[node] == "lin":
            return self._sum(graph.form(node))
        first = self._done[graph.args[node][0]]
        if graph.op[node] == "mul":
            second = self._done[graph.args[node][1]]
            _afford(len(first) * len(second))
            return first * second
        (power,) = graph.parameter[node]
        _afford(comb(len(first) + power - 1, power) if power < 100 or len(first) < 2 else MAX_TERMS + 1)
        return first**power


def _afford(terms: int) -> None:
    if terms > MAX_TERMS:
        raise _TooLarge


def _is_zero(graph: Graph, form: Form) -> bool:
    """Whether the form is zero as a polynomial in its generators."""
    if not form.terms:
        return not form.constant
    try:
        return bool(_Ring(graph, [form])(form).is_zero())
    except _TooLarge:
        return False


def _by_division(graph: Graph, difference: Form, edge: Form) -> int:
    try:
        ring = _Ring(graph, [difference, edge])
        left, divisor = ring(difference), ring(edge)
        if _singular(graph, ring.opaque, edge):
            return -1
    except _TooLarge:
        return -1
    if left.is_zero():
        return LIMIT
    if divisor.is_constant():
        return -1
    for order in range(LIMIT + 1):
        left, rest = divmod(left, divisor)
        if not rest.is_zero():
            return order - 1
    return LIMIT


def _singular(graph: Graph, nodes: Sequence[int], edge: Form) -> bool:
    """Whether one of the functions has its pole, or the end of its domain, on the edge: then a factor says nothing."""
    for node in graph.reachable(nodes):
        op = graph.op[node]
        if op not in SINGULAR and not (op == "ipow" and graph.parameter[node][0] < 0):
            continue
        argument = graph.form(graph.args[node][0])
        ring = _Ring(graph, [argument, edge])
        divisor = ring(edge)
        if op == "tan" or divisor.is_constant() or divmod(ring(argument), divisor)[1].is_zero():
            return True
    return False


# ---- across a linear edge ----------------------------------------------------------------------------------


def _by_derivatives(graph: Graph, difference: Form, edge: Form) -> int:
    across = min(edge.terms)
    slope = edge.terms[across]
    rest = {node: -c / slope for node, c in edge.terms.items() if node != across}
    solved = Form(-edge.constant / slope, rest)
    form = difference
    for order in range(LIMIT + 1):
        if len(graph.reachable(form.terms)) > MAX_NODES or not _vanishes_at(graph, form, across, solved):
            return order - 1
        form = directional(graph, form, {across: UNIT})
        if not form.terms and not form.constant:
            return LIMIT
    return LIMIT


def _vanishes_at(graph: Graph, form: Form, variable: int, value: Form) -> bool:
    try:
        return _is_zero(graph, _at(graph, form, variable, value))
    except InvalidProblem:  # a division by zero all over the edge
        return False


def _at(graph: Graph, form: Form, variable: int, value: Form) -> Form:
    """The form with a variable put in, and with the functions whose values there are rational evaluated."""

    def rule(node: int, there: Mapping[int, Form]) -> Form | None:
        if not graph.support[node] >> variable & 1:
            return as_it_is(graph, node)
        if node == variable:
            return value
        _refuse_singular(graph, node, there)
        return _evaluated(graph, again(graph, node, graph, there))

    return rewritten(graph, [form], graph, rule)[0]


def _refuse_singular(graph: Graph, node: int, there: Mapping[int, Form]) -> None:
    """Nothing is said of a formula with a pole all over the edge, or beyond the domain: zero times it is no number."""
    op = graph.op[node]
    if op not in SINGULAR:
        return
    argument = there[graph.args[node][0]]
    if op == "tan":
        turns = _half_turns(graph, argument)
        outside = turns is not None and turns % 2 == 1
    else:
        closed = op == "rpow" and graph.parameter[node][0] > 0
        outside = argument.is_constant and (argument.constant < 0 or (argument.constant == 0 and not closed))
    if outside:
        raise InvalidProblem("the formula is not defined on the edge")


def _evaluated(graph: Graph, form: Form) -> Form:
    """bell(0) = 1/4, and sine and cosine of multiples of pi/2."""
    if len(form.terms) != 1 or form.constant:
        return form
    ((node, c),) = form.terms.items()
    op = graph.op[node]
    if op not in ("sin", "cos", "bell"):
        return form
    argument = graph.form(graph.args[node][0])
    if op == "bell":
        return constant(1, 4).scaled(c) if argument.is_constant and not argument.constant else form
    turns = _half_turns(graph, argument)
    if turns is None:
        return form
    value = (0, 1, 0, -1)[(turns + (op == "cos")) % 4]
    return constant(value).scaled(c) if value else NOTHING


def _half_turns(graph: Graph, argument: Form) -> int | None:
    """k where the argument is k pi/2."""
    if len(argument.terms) != 1 or argument.constant:
        return None
    ((node, c),) = argument.terms.items()
    return int((2 * c).p) if graph.op[node] == "pi" and (2 * c).q == 1 else None
