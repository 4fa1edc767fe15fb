"""Contact: how closely a formula vanishes where another one does, proved in exact arithmetic.

A formula D has contact r with the zeros of an edge e where D and all its derivatives up to order r are zero there. Two
proofs are tried. D = e**(r + 1) q with polynomials in the variables and in the other functions that occur. And, where
e is linear, e = a z + ..., the derivatives of D by z vanish identically once z is put in from e = 0: derivatives along
the edge then vanish too, and z leads across it.

All of this is said of points at which D and what it is made of exist. Where it is seen that a function in D has its
pole, or the end of its domain, all over the edge, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bilevel_sym.arithmetic.pieces.polynomials import Ring, TooLarge, is_number, is_zero, sign_of
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.autodiff import directional
from bilevel_sym.graph.nodes import ONE_FORM, ZERO_FORM, Graph, LinearForm, constant, total
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.graph.rewriting import again, as_it_is, rewritten

LIMIT = 5  # no question asks for more: fourth derivatives, their existence, and one to spare
MAX_CONTACT_NODES = 20_000  # below a difference whose derivatives are taken


def contact(graph: Graph, difference: LinearForm, edge: LinearForm) -> int:
    """The largest order of contact, up to LIMIT, that could be proved; -1 where not even the values agree.

    >>> graph = Graph(2)
    >>> x, y = graph.variables
    >>> contact(graph, graph.mul(y, graph.power(x, 4)), x), contact(graph, y, x)
    (3, -1)
    >>> contact(graph, graph.apply("exp", x) - ONE_FORM - x, x)
    1
    """
    difference, edge = _opened(graph, difference), _opened(graph, edge)
    if not difference.terms:
        return LIMIT if not difference.constant else -1
    if _no_number(graph, difference):
        return -1
    found = _by_division(graph, difference, edge)
    if found < LIMIT and (solved := _solved(graph, edge)) is not None:
        found = max(found, _by_derivatives(graph, difference, *solved))
    return found


def is_partial(graph: Graph, node: int) -> bool:
    """Whether an operation has poles, or an end of its domain.

    >>> graph = Graph(1)
    >>> [is_partial(graph, graph.node_of(graph.power(graph.variables[0], k))) for k in (2, -2)]
    [False, True]
    """
    op = graph.op[node]
    return (op in OPERATIONS and OPERATIONS[op].is_partial) or (op == "ipow" and graph.parameter[node][0] < 0)


def _no_number(graph: Graph, form: LinearForm) -> bool:
    """Whether a constant in the formula has no value: then it holds nowhere."""
    partial = (n for n in graph.reachable(form.terms) if is_partial(graph, n) and not graph.support[n])
    return any(not is_number(graph, node) for node in partial)


def _opened(graph: Graph, form: LinearForm) -> LinearForm:
    """With sums that are nodes written out."""
    while any(graph.op[node] == "lin" for node in form.terms):
        form = total([LinearForm(form.constant, {}), *(graph.form(node).scaled(c) for node, c in form.terms.items())])
    return form


# ---- by division -------------------------------------------------------------------------------------------


def _by_division(graph: Graph, difference: LinearForm, edge: LinearForm) -> int:
    try:
        ring = Ring(graph, [difference, edge])
        left, divisor = ring(difference), ring(edge)
    except TooLarge:
        return -1
    if has_poles(graph, ring.opaque, edge):
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


def has_poles(graph: Graph, nodes: Iterable[int], edge: LinearForm) -> bool:
    """Whether one of the functions, or one inside them, may have its pole or the end of its domain all over the edge.

    >>> graph = Graph(2)
    >>> x, y = graph.variables
    >>> [has_poles(graph, graph.power(base, -1).terms, x) for base in (x, y, graph.apply("exp", x) - ONE_FORM)]
    [True, False, True]
    """
    for node in graph.reachable(nodes):
        if not is_partial(graph, node):
            continue
        if not graph.support[node]:
            if not is_number(graph, node):
                return True
        elif graph.op[node] == "tan" or _vanishes_on(graph, graph.form(graph.args[node][0]), edge):
            return True
    return False


def _vanishes_on(graph: Graph, form: LinearForm, edge: LinearForm) -> bool:
    """Whether the form is zero all over the edge; yes, where it is too large to tell."""
    try:
        ring = Ring(graph, [form, edge])
        divisor = ring(edge)
        if divisor.is_constant() or divmod(ring(form), divisor)[1].is_zero():
            return True
    except TooLarge:
        return True
    solved = _solved(graph, edge)
    return solved is not None and _vanishes_at(graph, form, *solved, otherwise=True)


# ---- across a linear edge ----------------------------------------------------------------------------------


def _solved(graph: Graph, edge: LinearForm) -> tuple[int, LinearForm] | None:
    """A variable that leads across the edge, and what it is there; None where the edge is not linear."""
    variables = [node for node in edge.terms if graph.op[node] == "var"]
    if not variables or any(graph.support[node] for node in edge.terms.keys() - set(variables)):
        return None
    across = min(variables)
    slope = edge.terms[across]
    rest = {node: -c / slope for node, c in edge.terms.items() if node != across}
    return across, LinearForm(-edge.constant / slope, rest)


def _by_derivatives(graph: Graph, difference: LinearForm, across: int, solved: LinearForm) -> int:
    form = difference
    for order in range(LIMIT + 1):
        if len(graph.reachable(form.terms)) > MAX_CONTACT_NODES or not _vanishes_at(graph, form, across, solved):
            return order - 1
        form = directional(graph, form, {across: ONE_FORM})
        if not form.terms and not form.constant:
            return LIMIT
    return LIMIT


def _vanishes_at(graph: Graph, form: LinearForm, variable: int, value: LinearForm, *, otherwise: bool = False) -> bool:
    try:
        return is_zero(graph, _at(graph, form, variable, value))
    except InvalidProblem:  # a division by zero all over the edge
        return otherwise


def _at(graph: Graph, form: LinearForm, variable: int, value: LinearForm) -> LinearForm:
    """The form with a variable put in, and with the functions whose values there are rational evaluated."""

    def rule(node: int, there: Mapping[int, LinearForm]) -> LinearForm | None:
        if not graph.support[node] >> variable & 1:
            return as_it_is(graph, node)
        if node == variable:
            return value
        _refuse_singular(graph, node, there)
        return _evaluated(graph, again(graph, node, graph, there))

    return rewritten(graph, [form], graph, rule)[0]


def _refuse_singular(graph: Graph, node: int, there: Mapping[int, LinearForm]) -> None:
    """Nothing is said of a formula with a pole all over the edge, or beyond the domain: zero times it is no number."""
    if not is_partial(graph, node):
        return
    op, argument = graph.op[node], there[graph.args[node][0]]
    if op == "tan":
        turns = _half_turns(graph, argument)
        outside = turns is not None and turns % 2 == 1
    elif any(graph.support[n] for n in argument.terms):
        outside = is_zero(graph, argument)
    else:
        sign, closed = sign_of(graph, argument), op == "rpow" and graph.parameter[node][0] > 0
        outside = sign is None or (sign < 0 and op != "ipow") or (sign == 0 and not closed)
    if outside:
        raise InvalidProblem("the formula is not defined on the edge")


def _evaluated(graph: Graph, form: LinearForm) -> LinearForm:
    """Sine and cosine of multiples of pi/2."""
    if len(form.terms) != 1 or form.constant:
        return form
    ((node, c),) = form.terms.items()
    op = graph.op[node]
    turns = _half_turns(graph, graph.form(graph.args[node][0])) if op in ("sin", "cos") else None
    if turns is None:
        return form
    value = (0, 1, 0, -1)[(turns + (op == "cos")) % 4]
    return constant(value).scaled(c) if value else ZERO_FORM


def _half_turns(graph: Graph, argument: LinearForm) -> int | None:
    """k where the argument is k pi/2."""
    if len(argument.terms) != 1 or argument.constant:
        return None
    ((node, c),) = argument.terms.items()
    return int((2 * c).p) if graph.op[node] == "pi" and (2 * c).q == 1 else None
