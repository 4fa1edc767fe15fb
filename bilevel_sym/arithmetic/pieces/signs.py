"""Constants that are no rational numbers, such as E - 2 or sqrt(2) + pi: their signs, as far as balls prove them."""

from __future__ import annotations

from typing import Any

from bilevel_sym.arithmetic import balls
from bilevel_sym.graph.nodes import Graph, LinearForm

__all__ = ["is_number", "sign_of"]

SIGN_BITS = (64, 512)  # a constant that is smaller than the second allows is left open


def sign_of(graph: Graph, form: LinearForm) -> int | None:
    """1, -1 or 0; None where the form depends on variables, is no number, or is too near to zero to tell.

    >>> graph = Graph(1)
    >>> e = graph.apply("exp", LinearForm(graph.variables[0].constant + 1, {}))
    >>> sign_of(graph, e - graph.apply("pi")), sign_of(graph, e - e), sign_of(graph, e - graph.variables[0])
    (-1, 0, None)
    """
    if not form.terms:
        return int((form.constant > 0) - (form.constant < 0))
    if any(graph.support[node] for node in form.terms):
        return None
    for bits in SIGN_BITS:
        with balls.precision(bits):
            ball = _ball(graph, form)
            if ball > 0 or ball < 0:
                return 1 if ball > 0 else -1
    return None


def is_number(graph: Graph, node: int) -> bool:
    """Whether a constant is proved to have a value: the logarithm of -1 has none.

    >>> graph = Graph(0)
    >>> log = graph.apply("log", LinearForm(graph.form(graph.node_of(graph.apply("pi"))).constant - 1, {}))
    >>> is_number(graph, graph.node_of(log)), is_number(graph, graph.node_of(graph.apply("pi")))
    (False, True)
    """
    for bits in SIGN_BITS:
        with balls.precision(bits):
            if _ball(graph, graph.form(node)).is_finite():
                return True
    return False


def _ball(graph: Graph, form: LinearForm) -> Any:
    values: dict[int, Any] = {}
    for node in graph.reachable(form.terms):
        if graph.op[node] == "lin":
            values[node] = _sum(graph.form(node), values)
        else:
            arguments = [values[arg] for arg in graph.args[node]]
            values[node] = balls.OPERATIONS[graph.op[node]](*arguments, *graph.parameter[node])
    return _sum(form, values)


def _sum(form: LinearForm, values: dict[int, Any]) -> Any:
    start = balls.constant(int(form.constant.p), int(form.constant.q))
    return sum((balls.constant(int(c.p), int(c.q)) * values[node] for node, c in form.terms.items()), start)
