"""SymPy expressions into the graph and back: the only part of the tape that sees SymPy. Nothing here recurses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any

import sympy as sp
from flint import fmpq
from sympy.core.relational import GreaterThan, LessThan, StrictGreaterThan, StrictLessThan
from sympy.functions.elementary.piecewise import ExprCondPair

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.exact import binary_fraction
from bilevel_sym.graph.expressions import postorder
from bilevel_sym.graph.nodes import ONE_FORM, ZERO_FORM, Graph, LinearForm, constant, total
from bilevel_sym.graph.operations import OPERATIONS

__all__ = ["evaluated", "from_sympy", "no_value", "sympy_rational", "to_sympy", "written_sizes"]

_UNARY: Mapping[type[sp.Basic], str] = MappingProxyType(
    {r.sympy: r.name for r in OPERATIONS.values() if r.arity == 1 and isinstance(r.sympy, type)}
)


def from_sympy(graph: Graph, expression: sp.Expr, variables: Mapping[sp.Symbol, LinearForm]) -> LinearForm:
    """The expression as a form of the graph; ``variables`` says what each symbol is.

    >>> x = sp.Symbol("x")
    >>> graph = Graph(1)
    >>> form = from_sympy(graph, sp.log(1 + sp.exp(x)), {x: graph.variables[0]})
    >>> graph.op[graph.node_of(form)]
    'softplus'
    """
    done: dict[int, Any] = {}
    for node in postorder(expression):
        done[id(node)] = _convert(graph, node, [done[id(arg)] for arg in node.args], variables)
    form: LinearForm = done[id(expression)]
    return form


def _convert(graph: Graph, node: sp.Basic, args: Sequence[Any], variables: Mapping[sp.Symbol, LinearForm]) -> Any:
    match node:
        case sp.Symbol():
            return _variable(node, variables)
        case sp.Rational():
            return constant(int(node.p), int(node.q))
        case sp.Float():
            return constant(*binary_fraction(node._mpf_))
        case sp.Add():
            return total(args)
        case sp.Mul():
            return graph.product(args)
        case sp.Pow():
            return graph.raised(*args)
        case ExprCondPair():
            return args
        case sp.Piecewise():
            return _piecewise(graph, args)
        case sp.Max() | sp.Min():
            op = "max" if isinstance(node, sp.Max) else "min"
            return reduce(lambda a, b: graph.apply(op, a, b), args)
        case StrictLessThan() | LessThan() | StrictGreaterThan() | GreaterThan():
            return _comparison(graph, node, *args)
        # by selection, not arithmetic: rounded outward, 1 - 1 would no longer be the certain answer 0
        case sp.And():
            return reduce(lambda a, b: graph.apply("select", a, b, ZERO_FORM), args)
        case sp.Or():
            return reduce(lambda a, b: graph.apply("select", a, ONE_FORM, b), args)
        case sp.Not():
            return graph.apply("select", args[0], ZERO_FORM, ONE_FORM)
    if node is sp.true or node is sp.false:
        return ONE_FORM if node is sp.true else ZERO_FORM
    if node is sp.pi:
        return graph.apply("pi")
    if node is sp.E:
        return graph.apply("exp", ONE_FORM)
    if type(node) in _UNARY:
        return graph.apply(_UNARY[type(node)], *args)
    raise InvalidProblem(f"the tape does not know {type(node).__name__}", hint="see the list of supported functions")


def _variable(symbol: sp.Symbol, variables: Mapping[sp.Symbol, LinearForm]) -> LinearForm:
    if symbol not in variables:
        raise no_value(symbol)
    return variables[symbol]


def no_value(symbol: sp.Symbol) -> InvalidProblem:
    """What is said of a parameter that stayed open where numbers are asked for.

    >>> print(no_value(sp.Symbol("a")))
    a has no value, so there are no numbers to compute
    try: give it one: parameters={'a': ...}, or a = ... under [parameters] in a problem file
    """
    name = symbol.name
    return InvalidProblem(
        f"{name} has no value, so there are no numbers to compute",
        hint=f"give it one: parameters={{{name!r}: ...}}, or {name} = ... under [parameters] in a problem file",
    )


def _comparison(graph: Graph, node: sp.Basic, left: LinearForm, right: LinearForm) -> LinearForm:
    """left < right as a number: 1 where it holds, 0 where it does not."""
    difference = left - right if isinstance(node, (StrictLessThan, LessThan)) else right - left
    return graph.apply("lt" if isinstance(node, (StrictLessThan, StrictGreaterThan)) else "le", difference)


def _piecewise(graph: Graph, pieces: Sequence[tuple[LinearForm, LinearForm]]) -> LinearForm:
    """The first piece whose condition holds; where none does, no number (the logarithm of -1)."""
    value = graph.undefined()
    for piece, condition in reversed(pieces):
        value = graph.apply("select", condition, piece, value)
    return value


# ---- back ----------------------------------------------------------------------------------------------


def to_sympy(graph: Graph, forms: Iterable[LinearForm], symbols: Mapping[int, sp.Symbol]) -> list[sp.Expr]:
    """The forms as SymPy expressions; nodes that are shared in the graph are shared objects.

    ``symbols[i]`` is what variable i is called. Forms that are one object become one object.

    >>> x = sp.Symbol("x")
    >>> graph = Graph(1)
    >>> form = from_sympy(graph, 2*sp.sin(x)*x**2 + 1, {x: graph.variables[0]})
    >>> to_sympy(graph, [form], {0: x})
    [2*x**2*sin(x) + 1]
    """
    forms = list(forms)
    done: dict[int, sp.Expr] = {}
    for node in graph.reachable({node for form in forms for node in form.terms}):
        done[node] = _node_expression(graph, node, done, symbols)
    sums = {id(form): form for form in forms}
    written = {key: _sum(form.constant, form.terms.items(), done) for key, form in sums.items()}
    return [written[id(form)] for form in forms]


def written_sizes(graph: Graph, forms: Iterable[LinearForm]) -> list[int]:
    """How many symbols and operations each form has as a tree: shared nodes count as often as they are written.

    >>> x = sp.Symbol("x")
    >>> graph = Graph(1)
    >>> form = from_sympy(graph, sp.sin(x) + x, {x: graph.variables[0]})
    >>> written_sizes(graph, [form])
    [4]
    """
    forms = list(forms)
    size: dict[int, int] = {}
    for node in graph.reachable({node for form in forms for node in form.terms}):
        size[node] = 1 + sum(size[argument] for argument in graph.args[node])
    return [1 + sum(size[node] for node in form.terms) for form in forms]


def evaluated(graph: Graph, op: str, forms: Sequence[LinearForm]) -> LinearForm:
    """An operation on constants, as exactly as SymPy knows it; InvalidProblem where that is no finite real number.

    >>> graph = Graph(0)
    >>> evaluated(graph, "cos", [graph.apply("pi").scaled(fmpq(1, 3))]).constant
    1/2
    """
    exprs = to_sympy(graph, forms, {})
    match op:
        case "rpow" | "pow":
            value = sp.Pow(*exprs)
        case "lt" | "le":
            value = exprs[0] < 0 if op == "lt" else exprs[0] <= 0
        case _:
            value = OPERATIONS[op].sympy(*exprs)
    if not value.has(sp.I, sp.zoo, sp.oo, -sp.oo, sp.nan):
        return from_sympy(graph, value, {})
    if value.has(sp.I):
        raise InvalidProblem("this is complex", hint="only real numbers are accepted")
    raise InvalidProblem("this is not a finite real number")


def _node_expression(graph: Graph, node: int, done: Mapping[int, sp.Expr], symbols: Mapping[int, sp.Symbol]) -> sp.Expr:
    op, parameter = graph.op[node], graph.parameter[node]
    if op == "var":
        return symbols[parameter[0]]
    if op == "lin":
        base, coefficients = graph.linear[node]
        return _sum(base, zip(graph.args[node], coefficients, strict=True), done)
    args = [done[arg] for arg in graph.args[node]]
    if op == "pow":  # of drafts alone: any exponent
        return sp.Pow(*args)
    return OPERATIONS[op].sympy(*args, *parameter)


def _sum(base: fmpq, terms: Iterable[tuple[int, fmpq]], done: Mapping[int, sp.Expr]) -> sp.Expr:
    return sp.Add(sympy_rational(base), *(sympy_rational(c) * done[node] for node, c in terms))


def sympy_rational(value: fmpq) -> sp.Rational:
    """The same number in SymPy."""
    return sp.Rational(int(value.p), int(value.q))
