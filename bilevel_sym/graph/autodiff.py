"""Differentiation on the graph: reverse for gradients, forward for directions; results are forms of the same graph."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import repeat
from operator import mul

from flint import fmpq

from bilevel_sym.graph.nodes import ONE, ONE_FORM, ZERO, ZERO_FORM, Graph, LinearForm, accumulate, total
from bilevel_sym.graph.operations import OPERATIONS

__all__ = ["adjoints", "directional", "gradient", "hessian", "tangents"]

BUNDLE_DIRECTIONS = 3  # directions that are worth a bundle
CONSTANT = -1  # stands for a node where a constant is one term of a sum
Tangent = dict[int, LinearForm]  # direction -> derivative along it; directions without influence are absent
Bundle = tuple[list[int], list[fmpq]]  # directions of the variables, ascending, and the derivative along each


def gradient(graph: Graph, output: LinearForm, variables: Sequence[int]) -> list[LinearForm]:
    """The partial derivatives of ``output`` with respect to ``variables``, by one sweep backwards.

    >>> graph = Graph(2)
    >>> a, b = graph.variables
    >>> [form.terms for form in gradient(graph, graph.mul(a, b), [0, 1])]
    [{1: 1}, {0: 1}]
    """
    found = adjoints(graph, output, sum(1 << v for v in variables))
    return [found.get(v, ZERO_FORM) for v in variables]


def adjoints(graph: Graph, output: LinearForm, wanted: int) -> dict[int, LinearForm]:
    """The derivative of the output by each node below it that depends on a wanted variable: one sweep backwards.

    >>> graph = Graph(1)
    >>> (a,) = graph.variables
    >>> sorted(adjoints(graph, graph.apply("exp", graph.apply("sin", a)), 1)) == [0, 1, 2]
    True
    """
    found: dict[int, LinearForm] = {}
    heap: list[int] = []
    own: set[int] = set()

    def add(node: int, adjoint: LinearForm) -> None:
        if not graph.support[node] & wanted:
            return
        if node in found:
            if node not in own:  # a copy of its own, so that a long sum is not copied for every term
                own.add(node)
                found[node] = LinearForm(found[node].constant, dict(found[node].terms))
            found[node].constant += adjoint.constant
            accumulate(found[node].terms, adjoint.terms)
        else:
            found[node] = adjoint
            heappush(heap, -node)

    for node, c in output.terms.items():
        add(node, LinearForm(c, {}))
    while heap:
        node = -heappop(heap)
        if graph.op[node] != "var":
            for arg, part in _pullback(graph, node, found[node], wanted):
                add(arg, part)
    return found


def _pullback(graph: Graph, node: int, adjoint: LinearForm, wanted: int) -> list[tuple[int, LinearForm]]:
    op, args = graph.op[node], graph.args[node]
    if op == "lin":
        # one node for the adjoint, so that a long sum is not copied to every argument
        shared = adjoint if len(args) == 1 else _as_one(graph, adjoint)
        return [(a, shared.scaled(c)) for a, c in zip(args, graph.linear[node][1], strict=True)]
    if op in _BRANCHES:
        condition, a, b = _branches(graph, node)
        return [
            (a, graph.apply("select", condition, adjoint, ZERO_FORM)),
            (b, graph.apply("select", condition, ZERO_FORM, adjoint)),
        ]
    partials = _partials(graph, node)
    return [
        (a, graph.mul(partial, adjoint, guarded=True))
        for a, partial in zip(args, partials, strict=True)
        if graph.support[a] & wanted
    ]


def _as_one(graph: Graph, form: LinearForm) -> LinearForm:
    return form if len(form.terms) + bool(form.constant) <= 1 else LinearForm(ZERO, {graph.node_of(form): ONE})


def tangents(
    graph: Graph, outputs: Sequence[LinearForm], seeds: Mapping[int, Tangent], *, triangular: bool = False
) -> list[Tangent]:
    """The derivatives of every output along every direction, by one sweep forwards.

    ``seeds[v][k]`` is how variable v moves along direction k, itself a form. ``triangular``: output i is wanted along
    the directions up to i only.

    >>> graph = Graph(2)
    >>> a, b = graph.variables
    >>> [{k: t.terms for k, t in tangent.items()} for tangent in tangents(graph, [graph.mul(a, b)], {0: {0: ONE_FORM}})]
    [{0: {1: 1}}]
    """
    support = sum(1 << v for v in seeds)
    done: dict[int, Tangent] = {}
    bundles: dict[int, Bundle] = {}
    for node in graph.reachable({n for form in outputs for n in form.terms}, support=support):
        if graph.op[node] == "var":
            done[node] = seeds[node]
        elif graph.op[node] == "lin":
            tangent = _combine(dict(zip(graph.args[node], graph.linear[node][1], strict=True)), done)
            done[node] = _bundle(node, tangent, bundles)
        else:
            done[node] = _pushforward(graph, node, done)
    return [
        _unbundle(graph, _combine(form.terms, done), bundles, i if triangular else None)
        for i, form in enumerate(outputs)
    ]


def _bundle(node: int, tangent: Tangent, bundles: dict[int, Bundle]) -> Tangent:
    """A node that is linear in the variables becomes one direction of its own, in place of many.

    What is built on it then moves along that one direction, by the chain rule, until the outputs are reached.
    """
    if len(tangent) < BUNDLE_DIRECTIONS or not all(form.is_constant and k >= 0 for k, form in tangent.items()):
        return tangent
    directions = sorted(tangent)
    bundles[~node] = directions, [tangent[k].constant for k in directions]  # bundles are negative
    return {~node: ONE_FORM}


def _unbundle(graph: Graph, tangent: Tangent, bundles: Mapping[int, Bundle], last: int | None) -> Tangent:
    """The tangent along the variables themselves (those up to ``last``), with bundles taken apart."""
    bundled = [(k, _as_one(graph, form)) for k, form in tangent.items() if k < 0]
    if not bundled:
        return tangent
    sums = defaultdict[int, dict[int, fmpq]](dict)
    sums.update({k: {CONSTANT: form.constant, **form.terms} for k, form in tangent.items() if k >= 0})
    met = set[int]().union(*sums.values())
    for k, form in bundled:
        (node, factor), *_ = form.terms.items() or ((CONSTANT, form.constant),)  # one term, or a constant alone
        directions, weights = bundles[k]
        upto = len(directions) if last is None else bisect_right(directions, last)
        rows = [sums[direction] for direction in directions[:upto]]
        products = weights[:upto] if factor == ONE else map(mul, weights[:upto], repeat(factor))
        if node in met:
            for terms, c in zip(rows, products, strict=True):
                accumulate(terms, {node: c})
        else:  # by far the most frequent case: nothing to add to, nothing to cancel
            met.add(node)
            for terms, c in zip(rows, products, strict=True):
                terms[node] = c
    return {k: LinearForm(terms.pop(CONSTANT, ZERO), terms) for k, terms in sums.items()}


def _pushforward(graph: Graph, node: int, done: Mapping[int, Tangent]) -> Tangent:
    op, args = graph.op[node], graph.args[node]
    if op in _BRANCHES:
        condition, *nodes = _branches(graph, node)
        a, b = (done.get(arg, {}) for arg in nodes)
        return {
            k: graph.apply("select", condition, a.get(k, ZERO_FORM), b.get(k, ZERO_FORM)) for k in a.keys() | b.keys()
        }
    moved: dict[int, list[LinearForm]] = {}
    for arg, partial in zip(args, _partials(graph, node), strict=True):
        for k, tangent in done.get(arg, {}).items():
            moved.setdefault(k, []).append(graph.mul(partial, tangent))
    summed = {k: parts[0] if len(parts) == 1 else total(parts) for k, parts in moved.items()}
    # along a bundle the sum is needed once for each of its variables: one node for all of them
    return {k: form if k >= 0 else _as_one(graph, form) for k, form in summed.items()}


def _combine(terms: Mapping[int, fmpq], done: Mapping[int, Tangent]) -> Tangent:
    sums: Tangent = {}
    own: set[int] = set()
    for node, c in terms.items():
        for k, tangent in done.get(node, {}).items():
            moved = tangent.scaled(c)
            if k not in sums:
                sums[k] = moved
                continue
            if k not in own:  # a copy of its own, which can grow
                own.add(k)
                sums[k] = LinearForm(sums[k].constant, dict(sums[k].terms))
            sums[k].constant += moved.constant
            accumulate(sums[k].terms, moved.terms)
    return sums


def directional(graph: Graph, output: LinearForm, direction: Mapping[int, LinearForm]) -> LinearForm:
    """The derivative of ``output`` as each variable v moves along ``direction[v]``: a product that stays factored.

    >>> graph = Graph(2)
    >>> a, v = graph.variables
    >>> graph.op[graph.node_of(directional(graph, graph.apply("exp", a), {0: v}))]
    'mul'
    """
    (tangent,) = tangents(graph, [output], {node: {0: form} for node, form in direction.items()})
    return tangent.get(0, ZERO_FORM)


def hessian(graph: Graph, output: LinearForm, variables: Sequence[int]) -> list[list[LinearForm]]:
    """The lower triangle of second derivatives, row by row: forward over reverse, each symmetric entry once.

    >>> graph = Graph(1)
    >>> hessian(graph, graph.power(graph.variables[0], 3), [0])[0][0].terms
    {0: 6}
    """
    first = gradient(graph, output, variables)
    second = tangents(graph, first, {v: {k: ONE_FORM} for k, v in enumerate(variables)}, triangular=True)
    return [[row.get(k, ZERO_FORM) for k in range(i + 1)] for i, row in enumerate(second)]


# ---- branches: outside its region a branch may be infinite, and 0 inf is no number --------------------------

_BRANCHES = ("select", "min", "max")


def _branches(graph: Graph, node: int) -> tuple[LinearForm, int, int]:
    """The condition under which the first of two branches counts, and the branches."""
    if graph.op[node] == "select":
        condition, a, b = graph.args[node]
        return graph.form(condition), a, b
    a, b = graph.args[node]
    difference = graph.form(a) - graph.form(b)
    return graph.apply("le", difference if graph.op[node] == "min" else -difference), a, b


# ---- the derivative of each operation -------------------------------------------------------------------


def _partials(graph: Graph, node: int) -> list[LinearForm]:
    """The partial derivatives of one node with respect to its arguments."""
    op, args = graph.op[node], graph.args[node]
    # arguments stay closed: a sum that is a node already is not written out again for each multiple of it
    first, itself = (LinearForm(ZERO, {k: ONE}) for k in (args[0], node))
    if op == "mul":
        return [LinearForm(ZERO, {args[1]: ONE}), first]
    return [OPERATIONS[op].rule("derivative")(graph, first, *(graph.parameter[node] or (itself,)))]
