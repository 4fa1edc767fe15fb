"""Forms as polynomials in the variables and in all functions that are not sums, products or whole powers.

The functions count as independent of each other, so what is proved of the polynomials is true of the forms. Two kinds
of constants are related: exp(1), exp(-2), exp(1/3) are powers of one t, and sqrt(2)**2 is 2. Factors that are a power
of t, which is no zero, are left out: they change neither what vanishes nor to which order.

The signs of constants that are not rational, such as E - 2 or sqrt(2) + pi, are known as far as balls prove them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb, lcm
from typing import Any

import flint
from flint import fmpq

from bilevel_sym.arithmetic import balls
from bilevel_sym.graph.nodes import Graph, LinearForm

MAX_POLYNOMIAL_TERMS = 4_000  # of a polynomial
MAX_GENERATORS = 60
MAX_POWER = 1_000  # of t

Polynomial = Any  # flint.fmpq_mpoly, which has no type stubs
SIGN_BITS = (64, 512)  # a constant that is smaller than the second allows is left open


class TooLarge(Exception):
    """The polynomial would have too many terms."""


class Ring:
    """The polynomials that some forms, and all that is made of the same functions, are.

    >>> graph = Graph(1)
    >>> e = [graph.apply("exp", LinearForm(fmpq(k), {})) for k in range(-2, 3)]
    >>> ring = Ring(graph, [*e, *graph.variables])
    >>> ring(graph.mul(e[0], e[3]) - e[1]).is_zero(), len(ring(e[4] + graph.variables[0]))
    (True, 2)
    """

    def __init__(self, graph: Graph, forms: Iterable[LinearForm]) -> None:
        self.graph, self._done = graph, dict[int, Polynomial]()
        self.opaque = [n for n in self._below(forms) if self._parts(n) is None]
        if len(self.opaque) > MAX_GENERATORS:
            raise TooLarge
        self._powers = _powers(graph, self.opaque)
        own = [n for n in self.opaque if n not in self._powers]
        names = [*(f"g{k}" for k in range(len(own))), "t", "s"]  # s = 1/t
        self._ring = flint.fmpq_mpoly_ctx.get(names, flint.Ordering.degrevlex)
        *gens, t, s = self._ring.gens()
        self._done |= dict(zip(own, gens, strict=True))
        self._done |= {node: t**k if k > 0 else s**-k for node, k in self._powers.items()}
        self._roots = [(k, *root) for k, n in enumerate(own) if (root := _root(graph, n)) is not None]
        self._one = self._ring.constant(1)

    def _parts(self, node: int) -> tuple[int, ...] | None:
        """The arguments of a sum, a product or a whole power; None for a generator."""
        op = self.graph.op[node]
        polynomial = op in ("lin", "mul") or (op == "ipow" and self.graph.parameter[node][0] > 0)
        return self.graph.args[node] if polynomial else None

    def _below(self, forms: Iterable[LinearForm]) -> list[int]:
        seen: set[int] = set()
        stack = [node for form in forms for node in form.terms]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack.extend(self._parts(node) or ())
        return sorted(seen)

    def __call__(self, form: LinearForm) -> Polynomial:
        """The form, up to a factor that is a power of t."""
        for node in self._below([form]):
            if node not in self._done:
                self._done[node] = self._value(node)
        return self._normal(self._sum(form))

    def _sum(self, form: LinearForm) -> Polynomial:
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
        _afford(comb(len(first) + power - 1, power) if power < 100 or len(first) < 2 else MAX_POLYNOMIAL_TERMS + 1)
        return first**power

    def _normal(self, polynomial: Polynomial) -> Polynomial:
        """With t s = 1, with whole powers of roots as numbers, and without powers of t that all terms share."""
        if not self._powers and not self._roots:
            return polynomial
        terms: dict[tuple[int, ...], fmpq] = {}
        for powers, c in polynomial.to_dict().items():
            key, value = self._monomial(powers, c)
            terms[key] = terms.get(key, fmpq(0)) + value
        terms = {key: c for key, c in terms.items() if c}
        least = min((key[-2] for key in terms), default=0)
        return self._ring.from_dict({(*key[:-2], key[-2] - least, 0): c for key, c in terms.items()})

    def _monomial(self, powers: Sequence[int], c: fmpq) -> tuple[tuple[int, ...], fmpq]:
        new = [*map(int, powers[:-2]), int(powers[-2]) - int(powers[-1]), 0]
        for place, q, value in self._roots:
            whole, new[place] = divmod(new[place], q)
            c *= value**whole
        return tuple(new), c


def _powers(graph: Graph, nodes: Sequence[int]) -> dict[int, int]:
    """Those of the nodes that are exp of a rational number, as powers of one t."""
    found = {n: c for n in nodes if (c := _exponent(graph, n)) is not None}
    unit = lcm(*(int(c.q) for c in found.values()))
    powers = {n: int(c.p) * (unit // int(c.q)) for n, c in found.items()}
    return powers if all(abs(k) <= MAX_POWER for k in powers.values()) else {}


def _exponent(graph: Graph, node: int) -> fmpq | None:
    """c where the node is exp(c), also as a power of such a one."""
    factor = fmpq(1)
    while graph.op[node] in ("ipow", "rpow"):
        factor, (node,) = factor * fmpq(*graph.parameter[node]), graph.args[node]
    argument = graph.form(graph.args[node][0]) if graph.op[node] == "exp" else None
    return argument.constant * factor if argument is not None and argument.is_constant else None


def _root(graph: Graph, node: int) -> tuple[int, fmpq] | None:
    """(q, c**p) where the node is c**(p/q) of a positive rational number c."""
    if graph.op[node] != "rpow":
        return None
    argument, (p, q) = graph.form(graph.args[node][0]), graph.parameter[node]
    return (q, argument.constant**p) if argument.is_constant and argument.constant > 0 and abs(p) < MAX_POWER else None


def _afford(terms: int) -> None:
    if terms > MAX_POLYNOMIAL_TERMS:
        raise TooLarge


def is_zero(graph: Graph, form: LinearForm) -> bool:
    """Whether the form is zero as a polynomial in its generators.

    >>> graph = Graph(1)
    >>> root = graph.power(LinearForm(fmpq(2), {}), 1, 2)
    >>> is_zero(graph, graph.power(root, 2) - LinearForm(fmpq(2), {})), is_zero(graph, root)
    (True, False)
    """
    if not form.terms:
        return not form.constant
    try:
        return bool(Ring(graph, [form])(form).is_zero())
    except TooLarge:
        return False


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
