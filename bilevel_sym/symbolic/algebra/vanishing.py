"""Proofs that a formula is zero, in exact arithmetic and bounded in time."""

from __future__ import annotations

from math import lcm
from types import MappingProxyType

import sympy as sp

from bilevel_sym.graph.expressions import postorder, substitute
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.symbolic.algebra.field import Field
from bilevel_sym.symbolic.simplify import expanded_terms

__all__ = ["elementary", "exponentiated", "vanishes"]

MAX_ARGUMENT_TERMS = 40  # of the expanded argument of exp: exp(a + b) is taken as exp(a)*exp(b)
_IN_EXP = frozenset(record.sympy for record in FUNCTIONS.values() if record.in_exp)
_UNDOING = tuple((r.sympy, FUNCTIONS[r.undoes]) for r in FUNCTIONS.values() if r.undoes is not None)
_UNDOES = MappingProxyType({function: record.sympy for function, record in _UNDOING if not record.is_periodic})
MAX_CASES = 16  # pieces of all the Piecewise in a proof


def vanishes(expression: sp.Expr) -> bool:
    """Whether the expression is proved to be zero wherever it is defined and real; False: no proof found.

    >>> x = sp.Symbol("x", real=True)
    >>> vanishes((1 + sp.sqrt(x))*(1 - sp.sqrt(x)) + x - 1)
    True
    >>> vanishes(sp.log(sp.exp(x)/(1 + sp.exp(x))) + sp.log(1 + sp.exp(x)) - x)
    True
    >>> vanishes(sp.sqrt(x**2 + 2*x + 1) - x - 1)
    False
    """
    expression = elementary(expression)
    field = Field([expression], signs=True)
    try:
        if field.reduced(field(expression)).num.is_zero():
            return True
    except ZeroDivisionError:
        return False
    product = exponentiated(expression)
    if product is not None:
        return vanishes(product - 1)
    cases = _cases(expression)
    return bool(cases) and all(vanishes(case) for case in cases)


def _cases(expression: sp.Expr) -> list[sp.Expr]:
    """The expression on each piece of its first Piecewise, and of all others with the same conditions."""
    found = [node for node in postorder(expression) if isinstance(node, sp.Piecewise)]
    conditions = [pair.cond for pair in found[0].args] if found else []
    if len(found) * len(conditions) > MAX_CASES:
        return []
    same = [node for node in found if [pair.cond for pair in node.args] == conditions]
    pieces = [{node: node.args[k].expr for node in same} for k in range(len(conditions))]
    return [substitute(expression, piece) for piece in pieces]


def exponentiated(expression: sp.Expr) -> sp.Expr | None:
    """exp of c times a sum with logarithms, as a product without them; a real sum is 0 where this is 1.

    >>> x, y = sp.symbols("x y", real=True)
    >>> exponentiated(2*sp.log(y) - sp.log(1 - y)/2 - x)
    y**4*exp(-2*x)/(1 - y)
    """
    terms = sp.Add.make_args(expression)
    pairs = [term.as_independent(sp.log) for term in terms]
    scale = next((c for c, rest in pairs if isinstance(rest, sp.log)), None)
    if scale is None:
        return None
    powers = [(c / scale, rest) for c, rest in pairs]
    logs = [(c, rest.args[0]) for c, rest in powers if isinstance(rest, sp.log) and c.is_Rational]
    others = [c * rest for c, rest in powers if not (isinstance(rest, sp.log) and c.is_Rational)]
    common = lcm(*(int(c.q) for c, _ in logs))
    return sp.Mul(*(base ** (c * common) for c, base in logs), sp.exp(common * sp.Add(*others)))


def elementary(expression: sp.Expr) -> sp.Expr:
    """Hyperbolic functions, sigmoid and softplus written with exp and log, and arguments of exp expanded.

    >>> x = sp.Symbol("x", real=True)
    >>> elementary(sp.cosh(x))
    exp(x)/2 + exp(-x)/2
    """
    new: dict[int, sp.Basic] = {}
    for node in postorder(expression):
        if node.func in _UNDOES and isinstance(node.args[0], _UNDOES[node.func]):
            new[id(node)] = new[id(node.args[0].args[0])]  # everything is real here
            continue
        args = [new[id(child)] for child in node.args]
        changed = any(a is not b for a, b in zip(args, node.args, strict=True))
        new[id(node)] = _with_exp(node.func(*args) if changed else node)
    return new[id(expression)]


def _with_exp(node: sp.Basic) -> sp.Basic:
    if node.func in _IN_EXP:
        node = node.rewrite(sp.exp, deep=False)
    elif isinstance(node, sp.exp) and expanded_terms(node.args[0]) <= MAX_ARGUMENT_TERMS:
        node = sp.exp(sp.expand_mul(node.args[0]))
    elif isinstance(node, sp.log) and isinstance(node.args[0], sp.exp):
        node = node.args[0].args[0]  # everything is real here
    return node
