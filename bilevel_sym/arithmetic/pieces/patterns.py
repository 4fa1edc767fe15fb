"""Patterns: a model whose functions change their formulas, run with the switches of its seams set both ways.

Where an edge has a sign all over a box, its switches are known. Where it has not, the box is taken once with each
setting, provided the function is smooth enough across the edge for what is asked of it, and what is true of both is
true. Where it is not smooth enough the switch is nan, and so is all that depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import arb

from bilevel_sym.arithmetic import balls, intervals
from bilevel_sym.arithmetic.boxes import IntervalProgram
from bilevel_sym.arithmetic.pieces.seams import SWITCHES, Seams, find_seams
from bilevel_sym.arithmetic.scalars import OPEN_BALLS, ScalarProgram
from bilevel_sym.graph.nodes import Graph, LinearForm
from bilevel_sym.graph.program import Program, build
from bilevel_sym.typing import Bools, Floats, Indices

if TYPE_CHECKING:
    from bilevel_sym.implicit.model import Model

__all__ = [
    "PARTS",
    "Need",
    "PatternProgram",
    "Patterns",
    "SharpEdges",
    "Split",
    "needed_by",
    "order_needed",
    "parts_of",
]

MOST_BOTH = 5  # edges of one box that are taken both ways; of more, the hull of both values is taken node by node

GUARD = "guard of "


PARTS = tuple((function, axes) for function in "fg" for axes in ("", "x", "y", "xy"))
"""f and g, and the sums of those of their terms that depend on x, on y, and on both: derivatives see no others."""

Need = Mapping[tuple[str, str], frozenset[str]]
"""For each part that is asked for, the axes of its derivatives; none where the value alone is meant."""


def needed_by(names: Iterable[str]) -> Need:
    """Which derivatives of which parts of f and g the blocks take.

    >>> {part: sorted(axes) for part, axes in needed_by(["f_xx", "f_x", "g_xxy"]).items()}
    {('f', 'x'): ['x', 'xx'], ('g', 'xy'): ['xxy']}
    >>> {part: sorted(axes) for part, axes in needed_by(["L_xx", "g"]).items()}
    {('f', 'x'): ['xx'], ('g', 'xy'): ['xxy'], ('g', ''): ['']}
    """
    need: dict[tuple[str, str], frozenset[str]] = {}
    special = {"q": ("f_zzz", "g_zzzy"), "r": ("g_zzy",), "g_yy_v": ("g_yy",), "g_xy_v": ("g_xy",)}
    for name in names:
        function, _, axes = name.partition("_")
        parts = special.get(name) or ((f"f_{axes}", f"g_{axes}y") if function == "L" else (name,))
        for part in parts:
            function, _, axes = part.partition("_")
            key = function, "".join(axis for axis in "xy" if axis in axes)
            need[key] = need.get(key, frozenset()) | {axes}
    return need


def order_needed(function: str, axes: str, along: str, *, exists: bool) -> int:
    """How often a function must be continuously differentiable across an edge, for one of its derivatives.

    Only derivatives by variables that the edge depends on (``along``) lead across it: if two formulas agree up to some
    order wherever x = 0, then so do their derivatives by y. That the derivative ``exists`` asks for as many as lead
    across. As a bound of how fast those change that have one axis less it asks for as many as these have. Of g beyond
    the second order only derivatives of g_y are ever meant: one y is not left out.

    >>> order_needed("g", "xxy", "xy", exists=True), order_needed("g", "xxy", "x", exists=True)
    (3, 2)
    >>> order_needed("g", "xxy", "xy", exists=False), order_needed("g", "xxy", "x", exists=False)
    (2, 1)
    """
    across = [axis in along or axis == "z" for axis in axes]
    if exists:
        return sum(across)
    left_out = across[:-1] if function == "g" and len(axes) > 2 and axes[-1] == "y" else across
    return sum(across) - all(left_out)


def parts_of(graph: Graph, f: LinearForm, g: LinearForm, x: Sequence[int], y: Sequence[int]) -> list[LinearForm]:
    """The forms of ``PARTS``.

    >>> graph = Graph(2)
    >>> a, b = graph.variables
    >>> [sorted(part.terms) for part in parts_of(graph, a + graph.mul(a, b), b, [0], [1])[:4]]
    [[0, 2], [0, 2], [2], [2]]
    """
    masks = {"x": sum(1 << v for v in x), "y": sum(1 << v for v in y)}

    def part(form: LinearForm, axes: str) -> LinearForm:
        seen = {n: c for n, c in form.terms.items() if all(graph.support[n] & masks[axis] for axis in axes)}
        return LinearForm(form.constant, seen)

    return [part(f if function == "f" else g, axes) for function, axes in PARTS]


@dataclass(frozen=True, eq=False)
class Split:
    """Boxes with their switches, (lanes, inputs) each end; ``owner`` is the box that each of them comes from."""

    owner: Indices
    lower: Floats
    upper: Floats
    boxes: int

    def largest(self, bounds: Floats) -> Floats:
        """The largest of the numbers of each box, entry by entry; nan where one of them is.

        >>> Split(np.array([0, 1, 1]), np.empty(0), np.empty(0), 2).largest(np.array([1.0, 5.0, 2.0]))
        array([1., 5.])
        """
        result = np.full((self.boxes, *bounds.shape[1:]), -np.inf)
        np.maximum.at(result, self.owner, bounds)
        return result

    @property
    def first(self) -> Indices:
        """One lane of each box."""
        return np.searchsorted(self.owner, np.arange(self.boxes))


class Patterns:
    """The patterns of one model: ``model`` is the same with its switches as further parameters.

    >>> import sympy as sp
    >>> from bilevel_sym.implicit.model import Model
    >>> x, y = sp.symbols("x y")
    >>> patterns = Model(abs(x)**3 + y, y**2, [x], [y]).patterns
    >>> need = needed_by(["f_xxx"])
    >>> split = patterns.split(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([[2.0, 0.0], [1.0, 0.0]]), need)
    >>> split.owner.tolist(), split.lower[:, 2:].tolist()
    ([0, 1, 1], [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    """

    def __init__(self, seams: Seams, model: Model, edges: Program, graph: Graph) -> None:
        """``edges`` computes the edges from x and y; ``graph`` is the one that they are forms of."""
        self.seams, self.model, self._edges, self.graph = seams, model, edges, graph

    @cached_property
    def _tables(self) -> tuple[Bools, Indices]:
        """For each edge and part: does the part switch there, and up to which order is it smooth."""
        involved = [self.seams.involved(k) for k in range(len(self.seams.edges))]
        return np.array(involved), np.array(self.seams.orders, dtype=np.intp).T

    def guards(self, need: Need) -> list[LinearForm]:
        """The parts themselves: where one of them is nan, it is not smooth enough, whatever its derivatives say."""
        return [form for part, form in zip(PARTS, self.seams.functions, strict=True) if part in need]

    def allowed(self, need: Need, *, exists: bool = False) -> tuple[Bools, Bools]:
        """Which edges matter, and at which the functions are smooth enough.

        For derivatives as bounds of how fast others change, or so that they exist (``exists``) at points on the edge.
        """
        involved, orders = self._tables
        wanted = np.array([part in need for part in PARTS])
        least = {along: [self._least(part, need, along, exists) for part in PARTS] for along in set(self._along)}
        enough = orders >= np.array([least[along] for along in self._along])
        return (involved & wanted).any(axis=1), np.asarray(enough.all(axis=1))

    @staticmethod
    def _least(part: tuple[str, str], need: Need, along: str, exists: bool) -> int:
        orders = [order_needed(part[0], axes, along, exists=exists) for axes in need.get(part, ())]
        return max(orders, default=-1)

    @cached_property
    def _along(self) -> list[str]:
        """The axes that each edge depends on."""
        axes = {"x": self.model.x, "y": self.model.y}
        masks = {axis: sum(1 << v for v in variables) for axis, variables in axes.items()}
        supports = [self.support([k]) for k in range(len(self.seams.edges))]
        return ["".join(axis for axis, mask in masks.items() if bits & mask) for bits in supports]

    def support(self, edges: Iterable[int]) -> int:
        """The variables that these edges depend on, as bits."""
        bits = 0
        for k in edges:
            for node in self.seams.edges[k].terms:
                bits |= self.graph.support[node]
        return bits

    @cached_property
    def _signs(self) -> tuple[IntervalProgram, IntervalProgram]:
        return tuple(IntervalProgram(self._edges, ops) for ops in (intervals.OPERATIONS, intervals.VALUES))  # type: ignore[return-value]

    def split(self, lower: Floats, upper: Floats, need: Need, *, proved: bool = False) -> Split:
        """The boxes, some of them several times, with all their switches."""
        state = self._sides(lower, upper, proved)
        matters, allowed = self.allowed(need)
        state[:, ~matters] = 1
        owner, states = _expanded(state, allowed)
        below, above = _ends(states, allowed)
        return Split(owner, np.hstack([lower[owner], below]), np.hstack([upper[owner], above]), len(lower))

    def _sides(self, lower: Floats, upper: Floats, proved: bool) -> Indices:
        """The signs of the edges over the boxes, (lanes, edges); 0 where they are open."""
        session = self._signs[proved].session(len(lower))
        with np.errstate(all="ignore"):
            session.put(0, lower, upper)
            low, high = session.take("edges")
        return np.where(low > 0, 1, np.where(high < 0, -1, 0))

    def touched(self, lower: Floats, upper: Floats, need: Need) -> Bools:
        """The edges, (boxes, edges), that have no sign over a box and at which what is needed may not exist.

        That the pieces agree says nothing where one of them has a pole, and the other is the one that counts.
        """
        without_sign = np.asarray(self._sides(lower, upper, False) == 0)
        if not without_sign.any():  # most points are away from all edges, and orders take time
            return without_sign
        _, enough = self.allowed(need, exists=True)
        wanted = np.array([part in need for part in PARTS])
        involved = self._tables[0] & wanted
        hidden = (involved & np.array(self.seams.partial)).any(axis=1)
        return np.asarray(without_sign & (involved.any(axis=1) & ~enough | hidden))

    def rough(self, points: Floats, need: Need) -> Bools:
        """Which points (points, inputs) lie on an edge, or next to it, where what is needed may not exist."""
        return np.asarray(self.touched(points, points, need).any(axis=1))

    def values(self, point: Floats) -> Floats:
        """The edges at a point, in float64."""
        session = self._signs[0].session(1)
        with np.errstate(all="ignore"):
            session.put(0, point[None], point[None])
        low, high = session.take("edges")
        return np.asarray(0.5 * low[0] + 0.5 * high[0])

    def in_balls(self) -> ScalarProgram:
        """The edges, for balls of the precision that is set."""
        return ScalarProgram(self._edges, OPEN_BALLS)

    def states(self, edges: Sequence[Any], need: Need) -> list[list[Any]]:
        """The switches where the edges have these values, balls: one list for each setting."""
        signs = [1 if e > 0 else -1 if e < 0 else 0 for e in edges]
        matters, allowed = self.allowed(need, exists=True)
        state = np.where(matters, signs, 1)[None]
        _, states = _expanded(state, allowed)
        low, high = _ends(states, allowed)
        return [[_ball(a, b) for a, b in zip(*ends, strict=True)] for ends in zip(low, high, strict=True)]


def _ball(low: float, high: float) -> Any:
    if low == high:
        return arb(low)
    return balls.ZERO_TO_ONE if low < high else arb("nan")


def _expanded(state: Indices, allowed: Bools) -> tuple[Indices, Indices]:
    """Lanes of signs with those that are open, and may be taken both ways, taken both ways, the first few of them."""
    owner = np.arange(len(state))
    for _ in range(MOST_BOTH):
        open_ = (state == 0) & allowed[None]
        split = np.flatnonzero(open_.any(axis=1))
        if not len(split):
            break
        edge = open_[split].argmax(axis=1)
        twin = state[split].copy()
        state[split, edge], twin[np.arange(len(split)), edge] = 1, -1
        state, owner = np.concatenate([state, twin]), np.concatenate([owner, owner[split]])
    order = np.argsort(owner, kind="stable")
    return owner[order], state[order]


def _ends(states: Indices, allowed: Bools) -> tuple[Floats, Floats]:
    """The two switches of each edge as intervals: known, open, or nan where the function is not smooth enough."""
    unknown = np.where(allowed, 0.0, np.nan)[None]
    low = np.where(states > 0, 0.0, np.where(states < 0, 1.0, unknown))
    high = np.where(states > 0, 0.0, np.where(states < 0, 1.0, 1.0 + unknown))
    return np.repeat(low, 2, axis=1), np.repeat(high, 2, axis=1)


class SharpEdges:
    """The edges of one function, and where they are too sharp for bounds of its derivatives.

    A derivative is meant as a bound of how fast those change that have one order less, and these must be continuous
    there: abs has a second derivative of zero on either side of its kink, and no second derivative.

    - ``graph``: of the function.
    - ``form``: the function.
    - ``inputs``: the variables of the graph, in the order of the boxes.

    >>> graph = Graph(1)
    >>> edges = SharpEdges(graph, graph.apply("abs", graph.variables[0]), [0])
    >>> lanes = np.array([[-1.0, 1.0]]), np.array([[1.0, 2.0]])
    >>> edges.met(2, *lanes).tolist(), edges.met(1, *lanes).tolist()
    ([True, False], [False, False])
    """

    def __init__(self, graph: Graph, form: LinearForm, inputs: Sequence[int]) -> None:
        self._seams = None if SWITCHES.isdisjoint(graph.op) else find_seams(graph, [form])
        if self._seams is not None:
            edges = self._seams.edges
            program = build(graph, [inputs], {"edges": ((len(edges),), edges)})
            self._signs = IntervalProgram(program, intervals.PROVED)

    def met(self, order: int, lower: Floats, upper: Floats) -> Bools:
        """Over which boxes, (inputs, lanes) each end, an edge may run that is too sharp for this order."""
        none = np.zeros(lower.shape[1], dtype=np.bool_)
        if self._seams is None:
            return none
        sharp = np.array(self._seams.orders[0]) < order - 1
        if not sharp.any():
            return none
        session = self._signs.session(lower.shape[1])
        with np.errstate(all="ignore"):
            session.put(0, lower.T, upper.T)
            low, high = session.take("edges")
        return np.asarray((~((low > 0) | (high < 0)) & sharp).any(axis=1))


class PatternProgram(ScalarProgram):
    """Blocks in balls: run once for each setting of the switches, and the hull of the results.

    Where f or g jumps, or is not smooth enough for the blocks that are asked for, everything is nan.
    """

    def __init__(self, patterns: Patterns, names: Sequence[str]) -> None:
        model = patterns.model
        self._patterns, self._need, self._edges = patterns, needed_by(names), patterns.in_balls()
        outputs: dict[str, Any] = {name: model.block(name) for name in names}
        for function in "fg":
            guards = patterns.guards({part: order for part, order in self._need.items() if part[0] == function})
            outputs[GUARD + function] = (len(guards),), guards
        super().__init__(build(model.graph, model.stages, outputs), OPEN_BALLS)

    def start(self) -> list[Any]:
        """A new table for each setting; there is one before the first inputs are known."""
        return [super().start()]

    def put(self, values: list[Any], stage: int, inputs: Sequence[Any]) -> None:
        """Give the inputs of one stage; the first decides which settings there are."""
        if stage:
            for table in values:
                super().put(table, stage, inputs)
            return
        edges = self._edges.start()
        self._edges.put(edges, 0, inputs)
        settings = self._patterns.states(self._edges.output(edges, "edges"), self._need)
        values[:] = [super(PatternProgram, self).start() for _ in settings]
        for table, switches in zip(values, settings, strict=True):
            super().put(table, 0, [*inputs, *switches])

    def output(self, values: Sequence[Any], name: str) -> list[Any]:
        """The hull of each entry over all settings."""
        functions = {"f": "f", "g": "g", "r": "g"}.get(name[0], "fg")
        guards = (super(PatternProgram, self).output(t, GUARD + function) for t in values for function in functions)
        if any(value.is_nan() for guard in guards for value in guard):
            return [arb("nan")] * len(self.program.outputs[name].places)
        entries = zip(*(super(PatternProgram, self).output(table, name) for table in values), strict=True)
        return [_hull(entry) for entry in entries]


def _hull(entries: Sequence[Any]) -> Any:
    hull = entries[0]
    for other in entries[1:]:
        hull = hull.union(other)
    return hull
