"""Ridges: second derivatives of a sum of functions of linear forms, each term bounded along its own line.

A term that depends on y only through u = a y + c(x) has the Hessian phi''(u) a a^T. Over a box phi'' is one function of
one number (and of x): cut into pieces, its range is nearly sharp whatever the dimension of y. The lower ends of those
ranges then add up, for a a^T is positive semidefinite; see ``pencil``. Terms along one line are one function first, so
that what cancels in their sum cancels here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np
from flint import fmpq

from bilevel_sym.arithmetic.boxes import IntervalProgram
from bilevel_sym.arithmetic.intervals import OPEN, PROVED, PROVED_OPEN, SMOOTH
from bilevel_sym.graph.autodiff import directional, hessian
from bilevel_sym.graph.nodes import ONE_FORM, ZERO_FORM, Graph, LinearForm, accumulate, constant, total
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.graph.program import Program, build
from bilevel_sym.graph.rewriting import rewritten
from bilevel_sym.implicit.model import Model
from bilevel_sym.typing import Floats
from verify.enclosures.condensed import condensed
from verify.enclosures.cover import middles
from verify.enclosures.interval_matrix import ROUNDED_UP
from verify.enclosures.pencil import MOST_PARTS, Pencil

__all__ = ["Ridges", "ridges_of"]

PIECES, MOST_PIECES, TABLE = 16, 128, 2048  # of the range of u, and how many of all boxes together
SHARP = frozenset({"ipow", "rpow", *(name for name, record in FUNCTIONS.items() if not record.is_periodic)})
_RIDGE = 1 << 40  # beyond all nodes of a graph: the name of a second derivative along a line

Slopes = tuple[tuple[int, fmpq], ...]
Line = tuple[Slopes, Slopes]  # a, its first entry one; and c, as a sum of nodes, without its constant


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
                        part = (
                            LinearForm(form.constant, {})
                            if form.is_constant
                            else LinearForm(fmpq(0), {_RIDGE + k: fmpq(1)})
                        )
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
        operations = (OPEN, PROVED_OPEN) if switches else (SMOOTH, PROVED)
        return IntervalProgram(self._program, operations[proved])

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
        away = steep * reach * ROUNDED_UP + 1e-300
        below, above = low - away, high + away
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
        return self._known.get(node, ({}, LinearForm(fmpq(0), {node: fmpq(1)})))

    def _read(self, node: int) -> tuple[dict[int, fmpq], LinearForm] | None:
        if self.graph.op[node] == "var":
            return {node: fmpq(1)}, ZERO_FORM
        if self.graph.op[node] != "lin":
            return None
        form = self.graph.form(node)
        slopes: dict[int, fmpq] = {}
        rest = [LinearForm(form.constant, {})]
        for arg, c in form.terms.items():
            part = self._known.get(arg, ({}, LinearForm(fmpq(0), {arg: fmpq(1)})))
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
