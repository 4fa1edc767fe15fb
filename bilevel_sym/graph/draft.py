"""Drafts: formulas as they were stated, before the graph that is computed with is made of them.

On a draft a product has any number of factors and a power any exponent, and nothing depends on the order in which parts
were met. ``settle`` puts a draft on a graph in an order of its own, with numbers in the place of some symbols, so that
text and SymPy that mean the same formula become the same program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple
from zlib import crc32

import sympy as sp
from flint import fmpq

from bilevel_sym.graph.convert import evaluated, from_sympy, no_value
from bilevel_sym.graph.nodes import ONE, ZERO, ZERO_FORM, Graph, LinearForm, accumulate, constant, hashable, total
from bilevel_sym.graph.operations import FUNCTIONS

__all__ = ["EVEN", "ODD", "Draft", "Drafted", "drafted", "known_on", "settle", "substituted"]

ODD = frozenset(name for name, record in FUNCTIONS.items() if record.parity == "odd")
EVEN = frozenset({"abs", *(name for name, record in FUNCTIONS.items() if record.parity == "even")})
_UNORDERED = frozenset({"mul", "min", "max"})
_Key = tuple[str, tuple[int, ...], int, int]


class Draft(Graph):
    """A graph to state formulas on: "mul", "min" and "max" have any number of arguments, "pow" any exponent.

    ``evaluating``: functions of constants are evaluated exactly, as SymPy does it.

    >>> draft = Draft(2)
    >>> x, y = draft.variables
    >>> draft.product([x, y, draft.apply("sin", -x)]).terms == draft.product([draft.apply("sin", x), -y, x]).terms
    True
    """

    def __init__(self, variables: int) -> None:
        super().__init__(variables)
        self.evaluating = False
        self._keys: list[_Key] = []

    def key(self, node: int) -> _Key:
        """By what nodes are put in order, wherever they were met: operation, exponent, variables, content."""
        for k in range(len(self._keys), node + 1):
            op, parameter = self.op[k], self.parameter[k]
            hashes = [self._keys[arg][-1] for arg in self.args[k]]
            if op == "lin":
                base, coefficients = self.linear[k]
                pairs = zip(hashes, map(hashable, coefficients), strict=True)
                hashes = [hash(hashable(base)), *sorted(map(hash, pairs))]
            elif op in _UNORDERED:
                hashes.sort()
            self._keys.append((op, parameter, self.support[k], hash((crc32(op.encode()), parameter, *hashes))))
        return self._keys[node]

    def depends_on(self, form: LinearForm) -> int:
        """The variables of a form, as bits."""
        support = 0
        for node in form.terms:
            support |= self.support[node]
        return support

    def apply(self, op: str, *forms: LinearForm) -> LinearForm:
        """An operation; odd and even functions with the sign of their argument outside."""
        if op == "select":
            condition, *branches = forms
            node = self.node_of(condition)  # under one condition the other branch of the same one is never met
            known = [self._branch(node, k, branch) for k, branch in enumerate(branches, 1)]
            return self._select(condition, *known)
        if op in ("min", "max"):
            return self._extremum(op, *forms)
        if op == "mul":
            return self.product(forms)
        if op in ODD | EVEN and forms and self._leads_with_minus(forms[0]):
            flipped = self.apply(op, -forms[0])
            return -flipped if op in ODD else flipped
        if forms and self.evaluating and not self.depends_on(forms[0]):
            return self._evaluated(op, *forms)
        if op == "exp" and self.evaluating and any(self.op[node] == "log" for node in forms[0].terms):
            return self._without_logarithms(forms[0])
        return self._single(self._node(op, tuple(self.node_of(form) for form in forms)))

    def _without_logarithms(self, exponent: LinearForm) -> LinearForm:
        """exp(2*log(x) + y) is x**2*exp(y)."""
        logs = {node: c for node, c in exponent.terms.items() if self.op[node] == "log"}
        rest = LinearForm(exponent.constant, {node: c for node, c in exponent.terms.items() if node not in logs})
        powers = [self.power(self.form(self.args[node][0]), int(c.p), int(c.q)) for node, c in logs.items()]
        return self.product([*powers, self.apply("exp", rest)] if rest.terms or rest.constant else powers)

    def _branch(self, condition: int, k: int, form: LinearForm) -> LinearForm:
        nodes = list(form.terms) if form.terms and not form.constant else [0]
        met = len(nodes) == 1 and self.op[nodes[0]] == "select" and self.args[nodes[0]][0] == condition
        return self.form(self.args[nodes[0]][k]).scaled(form.terms[nodes[0]]) if met else form

    def _evaluated(self, op: str, *forms: LinearForm) -> LinearForm:
        self.evaluating = False
        try:
            return evaluated(self, op, forms)
        finally:
            self.evaluating = True

    def _leads_with_minus(self, form: LinearForm) -> bool:
        lead = form.constant or (form.terms[min(form.terms, key=self.key)] if form.terms else ZERO)
        return lead < 0

    def _complement(self, form: LinearForm) -> LinearForm | None:
        return None  # recognised when the draft is settled

    def _factor(self, form: LinearForm) -> tuple[fmpq, int]:
        if len(form.terms) == 1 and not form.constant:
            ((node, c),) = form.terms.items()
            return c, node
        return ONE, self.node_of(form)

    def _extremum(self, op: str, *forms: LinearForm) -> LinearForm:
        """min(min(a, b), c) is min(a, b, c), and equal arguments are one."""
        if self.evaluating and not any(map(self.depends_on, forms)):
            return self._evaluated(op, *forms)
        nodes: set[int] = set()
        for node in map(self.node_of, forms):
            nodes.update(self.args[node] if self.op[node] == op else (node,))
        return self.form(*nodes) if len(nodes) == 1 else self._single(self._node(op, tuple(sorted(nodes))))

    def mul(self, a: LinearForm, b: LinearForm, *, guarded: bool = False) -> LinearForm:
        """The product of two."""
        return self.product((a, b))

    def product(self, forms: Iterable[LinearForm]) -> LinearForm:
        """The product of all. Where evaluating, as SymPy has it: x**2/x is x, and exp(x)*exp(2*x) is exp(3*x)."""
        scale, factors = self._factors(forms)
        if not self.evaluating:
            return self._joined(scale, factors)
        exponents: dict[int, fmpq] = {}
        inside: dict[int, fmpq] = {}
        for node, exponent in factors:
            argument = self.form(self.args[node][0]) if self.op[node] == "exp" and exponent.q == 1 else ZERO_FORM
            if len(argument.terms) == 1 and not argument.constant:
                accumulate(inside, argument.scaled(exponent).terms)
            else:
                accumulate(exponents, {node: exponent})
        for node, c in inside.items():
            accumulate(exponents, {self.node_of(self.apply("exp", LinearForm(ZERO, {node: c}))): ONE})
        return self._joined(scale, list(exponents.items()))

    def _factors(self, forms: Iterable[LinearForm]) -> tuple[fmpq, list[tuple[int, fmpq]]]:
        """A number, and bases with their exponents."""
        scale, factors = ONE, list[tuple[int, fmpq]]()
        for form in forms:
            if form.is_constant:
                scale *= form.constant
                continue
            c, node = self._factor(form)
            scale *= c
            # SymPy's products are flat; where they are not, parts that are shared stay shared
            factors += map(self._base, self.args[node] if self.op[node] == "mul" and self.evaluating else (node,))
        return scale, factors

    def _base(self, node: int) -> tuple[int, fmpq]:
        if self.op[node] in ("ipow", "rpow"):
            return self.args[node][0], fmpq(*self.parameter[node])
        return node, ONE

    def _joined(self, scale: fmpq, powers: Sequence[tuple[int, fmpq]]) -> LinearForm:
        nodes = []
        for node, exponent in powers if scale else ():
            base = self.form(node) if exponent is ONE else self.power(self.form(node), int(exponent.p), int(exponent.q))
            c, factor = self._factor(base) if base.terms else (base.constant, -1)
            scale *= c
            nodes += [] if factor < 0 else [factor]
        if not nodes or not scale:
            return LinearForm(scale, {})
        if len(nodes) == 1:
            return self.form(nodes[0]).scaled(scale)
        return LinearForm(ZERO, {self._node("mul", tuple(sorted(nodes))): scale})

    def power(self, base: LinearForm, p: int, q: int = 1) -> LinearForm:
        """base**(p/q); whole powers of a product are products of powers."""
        if p == 0 or (p, q) == (1, 1) or (base.is_constant and q == 1):
            return super().power(base, p, q)
        if self.evaluating and not self.depends_on(base):
            return self._evaluated("rpow", base, LinearForm(fmpq(p, q), {}))
        if q != 1:
            return self._single(self._node("rpow", (self.node_of(base),), (p, q)))
        scale, node = self._factor(base)
        if self.op[node] == "mul":
            return self._joined(scale**p, [(inner, e * p) for inner, e in map(self._base, self.args[node])])
        if self.op[node] == "exp" and self.evaluating:
            return self.apply("exp", self.form(self.args[node][0]).scaled(fmpq(p))).scaled(scale**p)
        inner, exponent = self._base(node)
        exponent *= p
        if exponent == 1:
            return self.form(inner).scaled(scale**p)
        if self.op[inner] == "abs" and exponent.q == 1 and exponent.p % 2 == 0:
            return self.power(self.form(self.args[inner][0]), int(exponent.p)).scaled(scale**p)
        parameter = (int(exponent.p),) if exponent.q == 1 else (int(exponent.p), int(exponent.q))
        return LinearForm(ZERO, {self._node("ipow" if exponent.q == 1 else "rpow", (inner,), parameter): scale**p})

    def raised(self, base: LinearForm, exponent: LinearForm) -> LinearForm:
        """A power whose exponent may vary; it becomes a number when the draft is settled, or stays."""
        if exponent.is_constant:
            return super().raised(base, exponent)
        return self._single(self._node("pow", (self.node_of(base), self.node_of(exponent))))


class Drafted(NamedTuple):
    """A formula on a draft, and the symbols that its variables stand for.

    >>> x, y = sp.symbols("x y")
    >>> drafted(0.5*x, (x, y)).form.terms
    {0: 1/2}
    """

    draft: Draft
    form: LinearForm
    symbols: tuple[sp.Symbol, ...]

    @property
    def used(self) -> set[sp.Symbol]:
        """The symbols on which it depends."""
        support = self.draft.depends_on(self.form)
        return {symbol for k, symbol in enumerate(self.symbols) if support >> k & 1}


def drafted(expression: sp.Expr, symbols: Sequence[sp.Symbol]) -> Drafted:
    """A SymPy expression on a draft of its own; Floats are their exact values.

    >>> x = sp.Symbol("x")
    >>> drafted(sp.sin(-x)**2, [x]).used
    {x}
    """
    draft = Draft(len(symbols))
    known = dict(zip(symbols, draft.variables, strict=True))
    return Drafted(draft, from_sympy(draft, expression, known), tuple(symbols))


def substituted(formula: Drafted, numbers: Mapping[sp.Symbol, sp.Rational]) -> Drafted:
    """The formula with numbers in the place of symbols; InvalidProblem where that is no real number.

    >>> x, a = sp.symbols("x a")
    >>> substituted(drafted(x**a, (x, a)), {a: sp.Integer(3)}).draft.op
    ['var', 'var', 'ipow']
    """
    draft = Draft(len(formula.symbols))
    draft.evaluating = True
    return Drafted(draft, settle(formula, draft, known_on(draft, formula.symbols, numbers)), formula.symbols)


def known_on(
    draft: Draft, symbols: Sequence[sp.Symbol], numbers: Mapping[sp.Symbol, sp.Rational]
) -> dict[sp.Symbol, LinearForm]:
    """What each symbol is on a draft that has them as its variables: a number, or itself."""
    known = dict(zip(symbols, draft.variables, strict=True))
    return known | {symbol: constant(int(value.p), int(value.q)) for symbol, value in numbers.items()}


def settle(formula: Drafted, graph: Graph, known: Mapping[sp.Symbol, LinearForm]) -> LinearForm:
    """The formula on a graph, part by part in an order that does not depend on how it was written.

    ``known`` says what each symbol is there.

    >>> x, y = sp.symbols("x y")
    >>> graph = Graph(2)
    >>> known = dict(zip((x, y), graph.variables))
    >>> one, other = (drafted(e, (x, y)) for e in (sp.sin(x) + sp.cos(y), sp.Add(sp.cos(y), sp.sin(x), evaluate=False)))
    >>> settle(one, graph, known).terms == settle(other, graph, known).terms
    True
    """
    draft, done = formula.draft, dict[int, LinearForm]()
    stack = [(node, False) for node in sorted(formula.form.terms, key=draft.key, reverse=True)]
    while stack:
        node, ready = stack.pop()
        if ready:
            done[node] = _settled(formula, node, graph, known, done)
        elif node not in done:
            stack.append((node, True))
            args = draft.args[node]
            ordered = sorted(args, key=draft.key) if draft.op[node] in _UNORDERED or draft.op[node] == "lin" else args
            stack.extend((arg, False) for arg in reversed(ordered) if arg not in done)
    return _sum(formula.form, draft, done)


def _sum(form: LinearForm, draft: Draft, done: Mapping[int, LinearForm]) -> LinearForm:
    terms = sorted(form.terms, key=draft.key)
    return total([LinearForm(form.constant, {}), *(done[node].scaled(form.terms[node]) for node in terms)])


def _settled(
    formula: Drafted, node: int, graph: Graph, known: Mapping[sp.Symbol, LinearForm], done: Mapping[int, LinearForm]
) -> LinearForm:
    draft = formula.draft
    op, parameter = draft.op[node], draft.parameter[node]
    if op == "var":
        symbol = formula.symbols[parameter[0]]
        if symbol not in known:
            raise no_value(symbol)
        return known[symbol]
    if op == "lin":
        return _sum(draft.form(node), draft, done)
    if op in _UNORDERED:
        forms = [done[arg] for arg in sorted(draft.args[node], key=draft.key)]
        return graph.product(forms) if op == "mul" else reduce(lambda a, b: graph.apply(op, a, b), forms)
    if op == "log" and draft.linear.get(draft.args[node][0]) == (-ONE, ()):
        return graph.undefined()
    forms = [done[arg] for arg in draft.args[node]]
    if op in ("ipow", "rpow"):
        return graph.power(forms[0], *parameter)
    return graph.raised(*forms) if op == "pow" else graph.apply(op, *forms)
