"""Condensed formulas: a sum of products with powers of common bases, with the smallest powers taken out.

The second derivative of sqrt(1 + u^2) comes from the tape as B^(-1/2) - u^2 B^(-3/2) with B = 1 + u^2, of which
intervals make much more than it is. It is B^(-3/2) (B - u^2) = B^(-3/2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import comb
from typing import Any

import flint
from flint import fmpq

from bilevel_sym.graph.nodes import ONE_FORM, ZERO_FORM, Graph, LinearForm, total

__all__ = ["condensed"]

MAX_TERMS = 200  # of the polynomial that is left
Powers = dict[int, fmpq]  # node -> exponent


def condensed(graph: Graph, form: LinearForm) -> LinearForm:
    """The same function, condensed where that is possible and short; else the form as it was.

    >>> graph = Graph(1)
    >>> (u,) = graph.variables
    >>> base = ONE_FORM + graph.power(u, 2)
    >>> form = graph.power(base, -1, 2) - graph.mul(graph.power(u, 2), graph.power(base, -3, 2))
    >>> short = condensed(graph, form)
    >>> [graph.op[node] for node in short.terms], short.constant
    (['rpow'], 0)
    """
    monomials = [(c, _powers(graph, node)) for node, c in form.terms.items()]
    if form.constant != 0:
        monomials.append((form.constant, {}))
    bases = _bases(graph, [powers for _, powers in monomials])
    if len(monomials) < 2 or not bases:
        return form
    left = [
        (c, {n: e - bases.get(n, fmpq(0)) for n, e in powers.items()} | _missing(bases, powers))
        for c, powers in monomials
    ]
    polynomial = _polynomial(graph, left, bases)
    if polynomial is None:
        return form
    taken = [graph.power(graph.form(node), int(e.p), int(e.q)) for node, e in bases.items()]
    return reduce(graph.mul, taken, polynomial)


def _powers(graph: Graph, node: int) -> Powers:
    """A node as a product of powers of others."""
    result: Powers = {}
    stack = [(node, fmpq(1))]
    while stack:
        k, exponent = stack.pop()
        op = graph.op[k]
        if op == "mul":
            stack += [(arg, exponent) for arg in graph.args[k]]
        elif op == "ipow":
            stack.append((graph.args[k][0], exponent * graph.parameter[k][0]))
        elif op == "rpow" and graph.op[graph.args[k][0]] == "lin":  # not of a product: sqrt(u^2) is not u
            base = graph.args[k][0]
            result[base] = result.get(base, fmpq(0)) + exponent * fmpq(*graph.parameter[k])
        else:
            result[k] = result.get(k, fmpq(0)) + exponent
    return {k: e for k, e in result.items() if e != 0}


def _bases(graph: Graph, monomials: Sequence[Powers]) -> Powers:
    """Sums with negative or broken exponents, and the smallest exponent of each; they must differ by whole numbers."""
    found: Powers = {}
    for node in sorted({n for powers in monomials for n in powers if graph.op[n] == "lin"}):
        exponents = [powers.get(node, fmpq(0)) for powers in monomials]
        least = min(exponents)
        if (least < 0 or least.q != 1) and all((e - least).q == 1 for e in exponents):
            found[node] = least
    return found


def _missing(bases: Powers, powers: Powers) -> Powers:
    return {node: -least for node, least in bases.items() if node not in powers}


def _polynomial(graph: Graph, monomials: Sequence[tuple[fmpq, Powers]], bases: Powers) -> LinearForm | None:
    """The sum multiplied out, with the bases opened; None where it would be long, or has other exponents."""
    inside = {node: [(c, _powers(graph, n)) for n, c in graph.form(node).terms.items()] for node in bases}
    every = [powers for _, powers in monomials] + [powers for parts in inside.values() for _, powers in parts]
    if any(e.q != 1 or e < 0 for powers in every for e in powers.values()):
        return None
    generators = sorted({n for powers in every for n in powers} - set(bases))
    names = [f"g{k}" for k in range(max(1, len(generators)))]
    ring = flint.fmpq_mpoly_ctx.get(names, flint.Ordering.degrevlex)
    values: dict[int, Any] = dict(zip(generators, ring.gens(), strict=False))
    for node, parts in inside.items():
        if any(n in bases for _, powers in parts for n in powers):
            return None
        values[node] = sum((_product(ring, c, powers, values) for c, powers in parts), ring.constant(0))
        values[node] += ring.constant(graph.form(node).constant)
    if any(comb(len(values[n]) + int(e.p) - 1, int(e.p)) > MAX_TERMS for _, p in monomials for n, e in p.items()):
        return None
    found = sum((_product(ring, c, powers, values) for c, powers in monomials), ring.constant(0))
    return _form(graph, found, generators) if len(found) <= MAX_TERMS else None


def _product(ring: Any, c: fmpq, powers: Powers, values: Mapping[int, Any]) -> Any:
    result = ring.constant(c)
    for node, exponent in powers.items():
        result *= values[node] ** int(exponent.p)
    return result


def _form(graph: Graph, polynomial: Any, generators: Sequence[int]) -> LinearForm:
    terms = []
    for exponents, c in polynomial.terms():
        factors = [
            graph.power(LinearForm(fmpq(0), {node: fmpq(1)}), int(e))
            for node, e in zip(generators, exponents, strict=False)
            if e
        ]
        terms.append(reduce(graph.mul, factors, ONE_FORM).scaled(c))
    return total(terms) if terms else ZERO_FORM
