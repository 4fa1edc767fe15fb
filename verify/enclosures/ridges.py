"""Ridges: second derivatives of a sum of functions of linear forms, each term bounded along its own line.

A term that depends on y only through u = a y + c(x) has the Hessian phi''(u) a a^T. Over a box phi'' is one function of
one number (and of x): cut into pieces, its range is nearly sharp whatever the dimension of y. The lower ends of those
ranges then add up, for a a^T is positive semidefinite; see ``Pencil``. Terms along one line are one function first, so
that what cancels in their sum cancels here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache, reduce
from math import comb
from typing import Any

import flint
import numpy as np
from flint import fmpq

from bilevel_sym.arithmetic.boxes import IntervalProgram, Operations
from bilevel_sym.arithmetic.intervals import OPEN, PROVED, PROVED_OPEN, SMOOTH
from bilevel_sym.graph.autodiff import directional, hessian
from bilevel_sym.graph.nodes import ONE_FORM, ZERO_FORM, Graph, LinearForm, accumulate, constant, total
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.graph.program import Program, build
from bilevel_sym.graph.rewriting import rewritten
from bilevel_sym.implicit.model import Model
from bilevel_sym.typing import Floats
from verify.enclosures.cover import middles
from verify.enclosures.interval_matrix import MOST_PARTS, ROUNDED_UP, Pencil

PIECES, MOST_PIECES, TABLE = 16, 128, 2048  # of the range of u, and how many of all boxes together
SHARP = frozenset({"ipow", "rpow", *(name for name, record in FUNCTIONS.items() if not record.is_periodic)})
_RIDGE = 1 << 40  # beyond all nodes of a graph: the name of a second derivative along a line

Slopes = tuple[tuple[int, fmpq], ...]
Line = tuple[Slopes, Slopes]  # a, its first entry one; and c, as a sum of nodes, without its constant
MAX_TERMS = 200  # of the polynomial that is left
Powers = dict[int, fmpq]  # node -> exponent


class Ridges:
    """The Hessian of one function in the variables of an axis: ``pencil`` over ``nodes`` of the model and ridges.

    ``loose``: some second derivative is a sum, of which plain intervals make more than it is.

    >>> import sympy as sp
    >>> x, a, b = sp.symbols("x a b")
    >>> g = sp.sqrt(1 + (a + b)**2) + sp.sqrt(1 + (a - b)**2)
    >>> model = Model(x, g, [x], [a, b])
    >>> ridges = ridges_of(model, model.g, model.y)
    >>> low, high = ridges.ranges(np.array([[0.0, -2.0, -2.0]]), np.array([[0.0, 2.0, 2.0]]))
    >>> bool(0.01 < low.min() <= 17**-1.5), bool(1 <= high.max() < 1.01)
    (True, True)
    """

    def __init__(self, model: Model, lines: Mapping[Line, LinearForm], rest: LinearForm, axis: Sequence[int]) -> None:
        self._model, self._lines = model, tuple(lines)
        self._first = len(model.graph.variables)
        self._graph = Graph(self._first + len(lines))
        plain = [self._along(k, line, form) for k, (line, form) in enumerate(lines.items())]
        self._second = [condensed(self._graph, form) for form in plain]
        size, places = len(axis), {v: k for k, v in enumerate(axis)}
        entries = [[*row, *[ZERO_FORM] * (size - len(row))] for row in hessian(model.graph, rest, axis)]
        for k, (line, form) in enumerate(zip(self._lines, self._second, strict=True)):
            for i, c in line[0]:
                for j, e in line[0]:
                    if places[j] <= places[i]:
                        row = entries[places[i]]
                        part = LinearForm(form.constant, {}) if form.is_constant else itself(_RIDGE + k)
                        row[places[j]] = row[places[j]] + part.scaled(c * e)
        forms = [entries[max(i, j)][min(i, j)] for i in range(size) for j in range(size)]
        self.pencil = Pencil(forms, size)
        self.nodes = tuple(node for node in self.pencil.nodes if node < _RIDGE)
        self._used = [node - _RIDGE for node in self.pencil.nodes if node >= _RIDGE]
        self.loose = any(not self._is_sharp(plain[k]) for k in self._used)
        self._ready = lru_cache(4)(self._prepared)

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def _is_sharp(self, form: LinearForm) -> bool:
        """One function of u, or of a number and one power of u: then intervals are exact."""
        if len(form.terms) != 1:
            return form.is_constant
        (node,) = form.terms
        while self._graph.op[node] in SHARP:
            (node,) = self._graph.args[node]
            if self._graph.op[node] == "lin":
                if len(self._graph.args[node]) > 1:
                    return False
                (node,) = self._graph.args[node]
        return self._graph.op[node] == "var"

    def _along(self, k: int, line: Line, form: LinearForm) -> LinearForm:
        """The second derivative of the terms of one line by u, on the graph with u."""
        u = self._graph.variables[self._first + k]
        source, reader = self._model.graph, _Linear(self._model.graph, [v for v, _ in line[0]])
        lead = line[0][0][0]
        nowhere = self._graph.apply("log", constant(-1))  # nan, wherever it would be used

        def rule(node: int, there: Mapping[int, LinearForm]) -> LinearForm | None:
            found = reader(node) if source.support[node] & reader.mask else None
            if found is not None and found[0]:  # a multiple of u and a number, or a part of such a node
                if _normalised(*found) != line:
                    return nowhere
                return LinearForm(found[1].constant, {}) + u.scaled(found[0][lead])
            return self._graph.variables[node] if source.op[node] == "var" else None

        (moved,) = rewritten(source, [form], self._graph, rule)
        first = directional(self._graph, moved, {self._first + k: ONE_FORM})
        return directional(self._graph, first, {self._first + k: ONE_FORM})

    def _prepared(self, proved: bool, switches: bool) -> IntervalProgram:
        return IntervalProgram(self._program, smooth_operations(switches, proved))

    @cached_property
    def _program(self) -> Program:
        graph, lines = self._graph, range(self._first, len(self._graph.variables))
        second = [self._second[k] for k in self._used]
        third = [directional(graph, self._second[k], {self._first + k: ONE_FORM}) for k in self._used]
        positions = [self._position(line) if k in self._used else ZERO_FORM for k, line in enumerate(self._lines)]
        outputs = {"u": positions, "second": second, "third": third}
        shaped = {name: ((len(forms),), forms) for name, forms in outputs.items()}
        return build(graph, [self._model.stages[0], lines], shaped)

    def _position(self, line: Line) -> LinearForm:
        """u in the variables of the model."""
        terms = LinearForm(fmpq(0), dict(line[0]) | dict(line[1]))
        source, graph = self._model.graph, self._graph
        return rewritten(source, [terms], graph, lambda k, _: graph.variables[k] if source.op[k] == "var" else None)[0]

    def ranges(
        self, lower: Floats, upper: Floats, *, proved: bool = False, switches: bool = False
    ) -> tuple[Floats, Floats]:
        """The ends of the second derivatives along the lines that are used, over boxes, (lanes, lines) each.

        ``switches``: the boxes of the model have switches, of which some may be open.
        """
        lanes, pieces = len(lower), 1
        if not all(self._is_sharp(self._second[k]) for k in self._used):
            pieces = int(np.clip(TABLE // len(lower), PIECES, MOST_PIECES))
        ready = self._ready(proved, switches)
        sessions = [ready.session(lanes * pieces) for _ in range(2)]
        with np.errstate(all="ignore"):
            for session in sessions:
                session.put(0, *(np.repeat(end, pieces, axis=0) for end in (lower, upper)))
            first, last = (end[::pieces] for end in sessions[0].take("u"))
            low, high = _pieces(first, last, pieces)
            sessions[0].put(1, low, high)
            middle = middles(low, high)
            sessions[1].put(1, middle, middle)
            lo, hi = self._met(sessions, (np.maximum(high - middle, middle - low) * ROUNDED_UP)[:, self._used])
        lo, hi = (end.reshape(lanes, pieces, -1) for end in (lo, hi))
        unknown = (np.isnan(lo) | np.isnan(hi)).any(axis=1)
        return np.where(unknown, -np.inf, lo.min(axis=1)), np.where(unknown, np.inf, hi.max(axis=1))

    @staticmethod
    def _met(sessions: Sequence[object], reach: Floats) -> tuple[Floats, Floats]:
        """The natural extension over each piece, met with the mean-value form around its middle."""
        over, at = sessions
        (lo, hi), (low, high) = over.take("second"), at.take("second")  # type: ignore[attr-defined]
        steep = np.maximum(*(np.abs(end) for end in over.take("third")))  # type: ignore[attr-defined]
        return mean_value_form((lo, hi), (low, high), steep * reach * ROUNDED_UP + 1e-300)


def itself(node: int) -> LinearForm:
    """A node as a form, not opened.

    >>> itself(3).terms
    {3: 1}
    """
    return LinearForm(fmpq(0), {node: fmpq(1)})


def smooth_operations(switches: bool, proved: bool) -> Operations:
    """What intervals are computed with where derivatives must exist; ``switches``: some may be open."""
    return (PROVED_OPEN if proved else OPEN) if switches else PROVED if proved else SMOOTH


def mean_value_form(
    natural: tuple[Floats, Floats], middle: tuple[Floats, Floats], away: Floats
) -> tuple[Floats, Floats]:
    """What is within ``away`` of the middle, met with the natural extension; where that is nan, nothing is known."""
    (lo, hi), below, above = natural, middle[0] - away, middle[1] + away
    below, above = below - 2.3e-16 * np.abs(below), above + 2.3e-16 * np.abs(above)
    known = ~(np.isnan(lo) | np.isnan(hi))
    return np.where(known, np.fmax(lo, below), np.nan), np.where(known, np.fmin(hi, above), np.nan)


def _pieces(low: Floats, high: Floats, count: int) -> tuple[Floats, Floats]:
    """Pieces of intervals (lanes, lines) that cover them, (lanes pieces, lines) each end."""
    share = np.arange(1, count)[None, :, None] / count
    inner = np.clip(low[:, None] * (1 - share) + high[:, None] * share, low[:, None], high[:, None])
    inner = np.maximum.accumulate(inner, axis=1)
    first, last = low[:, None], high[:, None]
    ends = np.concatenate([first, inner], axis=1), np.concatenate([inner, last], axis=1)
    return ends[0].reshape(-1, low.shape[1]), ends[1].reshape(-1, low.shape[1])


def ridges_of(model: Model, form: LinearForm, axis: Sequence[int]) -> Ridges | None:
    """The ridges of a function in the variables of an axis; None where it has none, or too many parts."""
    reader = _Linear(model.graph, axis)
    lines: dict[Line, dict[int, fmpq]] = {}
    rest: dict[int, fmpq] = {}
    for node, c in form.terms.items():
        if not model.graph.support[node] & reader.mask or reader(node) is not None:
            continue  # nothing in these variables bends
        line = reader.line(node)
        accumulate(rest if line is None else lines.setdefault(line, {}), {node: c})
    if not lines or len(lines) > MOST_PARTS:
        return None
    found = Ridges(
        model, {line: LinearForm(fmpq(0), terms) for line, terms in lines.items()}, LinearForm(fmpq(0), rest), axis
    )
    return found if len(found.pencil.nodes) <= MOST_PARTS else None


class _Linear:
    """Nodes that are linear in some variables: their slopes, and what they are besides."""

    def __init__(self, graph: Graph, variables: Sequence[int]) -> None:
        self.graph, self.mask = graph, sum(1 << v for v in variables)
        self._known: dict[int, tuple[dict[int, fmpq], LinearForm] | None] = {}

    def __call__(self, node: int) -> tuple[dict[int, fmpq], LinearForm] | None:
        """Slopes by variable, and the rest; None where the node is not linear. Arguments first, without recursion."""
        for k in self.graph.reachable([node], support=self.mask):
            if k not in self._known:
                self._known[k] = self._read(k)
        return self._known.get(node, ({}, itself(node)))

    def _read(self, node: int) -> tuple[dict[int, fmpq], LinearForm] | None:
        if self.graph.op[node] == "var":
            return {node: fmpq(1)}, ZERO_FORM
        if self.graph.op[node] != "lin":
            return None
        form = self.graph.form(node)
        slopes: dict[int, fmpq] = {}
        rest = [LinearForm(form.constant, {})]
        for arg, c in form.terms.items():
            part = self._known.get(arg, ({}, itself(arg)))
            if part is None:
                return None
            accumulate(slopes, {v: c * e for v, e in part[0].items()})
            rest.append(part[1].scaled(c))
        return slopes, total(rest)

    def line(self, node: int) -> Line | None:
        """Where the node depends on the variables through one u = a y + c alone, the first entry of a being one."""
        found: Line | None = None
        stack, seen = [node], set[int]()
        while stack:
            k = stack.pop()
            if k in seen or not self.graph.support[k] & self.mask:
                continue
            seen.add(k)
            linear = self(k)
            if linear is None:
                stack.extend(self.graph.args[k])
            elif linear[0]:
                mine = _normalised(*linear)
                if found is not None and mine != found:
                    return None
                found = mine
        return found


def _normalised(slopes: Mapping[int, fmpq], rest: LinearForm) -> Line:
    """Divided by the first slope, and without its constant."""
    lead = slopes[min(slopes)]
    first, second = (tuple((v, c / lead) for v, c in sorted(part.items())) for part in (slopes, rest.terms))
    return first, second


# ---------------------------------------------------------------------- condensed formulas
# The second derivative of sqrt(1 + u^2) comes from the tape as B^(-1/2) - u^2 B^(-3/2) with B = 1 + u^2, of which
# intervals make much more than it is. With the smallest powers taken out it is B^(-3/2) (B - u^2) = B^(-3/2).


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
    zero = fmpq(0)
    left = [(c, {n: powers.get(n, zero) - bases.get(n, zero) for n in {**powers, **bases}}) for c, powers in monomials]
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
        factors = [graph.power(itself(node), int(e)) for node, e in zip(generators, exponents, strict=False) if e]
        terms.append(reduce(graph.mul, factors, ONE_FORM).scaled(c))
    return total(terms) if terms else ZERO_FORM
