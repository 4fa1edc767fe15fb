"""The model: the graph of one problem, and the programs of its blocks, each built when first asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property, lru_cache
from itertools import groupby, pairwise, permutations, product
from math import prod
from operator import itemgetter, mul
from threading import RLock

import sympy as sp

from bilevel_sym.arithmetic import intervals
from bilevel_sym.arithmetic.boxes import IntervalProgram
from bilevel_sym.arithmetic.pieces.patterns import PARTS, PatternProgram, Patterns, parts_of
from bilevel_sym.arithmetic.pieces.seams import find_seams
from bilevel_sym.arithmetic.scalars import SMOOTH_BALLS, ScalarProgram
from bilevel_sym.graph.autodiff import directional, gradient, hessian, tangents
from bilevel_sym.graph.convert import to_sympy, written_sizes
from bilevel_sym.graph.draft import Drafted, drafted, settle
from bilevel_sym.graph.nodes import ONE_FORM, ZERO_FORM, Graph, LinearForm, hashable
from bilevel_sym.graph.program import Program, build

__all__ = ["Model"]

Place = tuple[int, ...]
Block = tuple[Place, list[LinearForm]]  # the shape, and the entries row by row
KINKS = frozenset(("abs", "sign", "min", "max", "select"))
CACHED = ("_along_v", "lagrangian", "_lagrangian_hessian", "patterns")  # forms of the graph
DIRECTION_AXES = {"g_yy_v": "y", "g_xy_v": "x"}


class Model:
    """f and g on one graph, in the variables x, y, then v, then two directions u and w in (x, y).

    Blocks are named by their axes x, y and z = (x, y); "L" is the Lagrangian f - v^T grad_y g with v held constant.
    "q" and "r" are what third derivatives need: the gradients of D^2 L[u, w] in (x, y) and of D^2 g[u, w] in y.

    >>> x, y = sp.symbols("x y")
    >>> model = Model(x*y, y**2/2 - sp.sin(x)*y, [x], [y])
    >>> model.block("g_xy")[0], model.expressions("g_xy")
    ((1, 1), [-cos(x)])
    """

    def __init__(
        self,
        f: sp.Expr | Drafted,
        g: sp.Expr | Drafted,
        x: Sequence[sp.Symbol],
        y: Sequence[sp.Symbol],
        *,
        parameters: Sequence[sp.Symbol] = (),
    ) -> None:
        """Put f and g on a graph.

        f: the upper level, a SymPy expression or a draft
        g: the lower level, likewise
        x: the variables of the upper level
        y: the variables of the lower level
        parameters: symbols that are not differentiated by, further inputs of the first stage
        """
        d, n = len(x), len(y)
        self.d, self.n = d, n
        self.graph = Graph(3 * d + 4 * n + len(parameters))
        bounds = [0, d, d + n, d + 2 * n, 2 * d + 3 * n, 3 * d + 4 * n]
        self.x, self.y, self.v, self.u, self.w = (range(low, high) for low, high in pairwise(bounds))
        self.parameters = range(bounds[-1], bounds[-1] + len(parameters))
        self._chosen: Mapping[str, Sequence[int]] = {}
        self._symbols, self._parameters = (*x, *y), tuple(parameters)
        known = dict(zip(self._symbols, self.graph.variables, strict=False))
        known |= dict(zip(parameters, self.graph.variables[bounds[-1] :], strict=True))
        formulas = (e if isinstance(e, Drafted) else drafted(e, tuple(known)) for e in (f, g))
        self.f, self.g = (settle(formula, self.graph, known) for formula in formulas)
        self._pristine = self.graph.copy()
        self._forget()

    def _forget(self) -> None:
        self._lock = RLock()  # the graph grows as blocks are asked for, perhaps by several threads
        self._blocks: dict[str, Block] = {}
        self._places: dict[str, dict[Place, LinearForm]] = {}
        self._programs: dict[tuple[str, ...], Program] = {}
        self._in_balls = lru_cache(8)(self._prepare_balls)
        self._in_intervals = lru_cache(8)(self._prepare_intervals)

    def fresh_copy(self) -> Model:
        """The same f and g with nothing derived yet.

        Nodes are numbered as they are first asked for, and sums are added up in that order: a program of a model of
        its own does not depend, in its last bits, on what else was ever asked for.

        >>> x, y = sp.symbols("x y")
        >>> model = Model(x*y, y**2/2 - sp.sin(x)*y, [x], [y])
        >>> model.fresh_copy().program(["g_y"]) == model.program(["g_y"])
        True
        """
        twin = self._twin()
        twin.graph = self._pristine.copy()
        twin._forget()
        return twin

    def restricted(self, axes: Mapping[str, Sequence[int]]) -> Model:
        """The same f and g, with blocks of the derivatives by some of x and of y alone; z is still all of them.

        ``axes``: the variables of "x" and of "y" that are chosen; all, where a name is left out.

        >>> x, y = sp.symbols("x"), sp.symbols("y:3")
        >>> model = Model(x*y[0], sum(v**4 for v in y), [x], y)
        >>> model.restricted({"y": [model.y[1]]}).expressions("g_yy")
        [12*y1**2]
        """
        twin = self.fresh_copy()
        twin._chosen = dict(axes)
        return twin

    def _twin(self) -> Model:
        """A copy without what was derived on the graph."""
        twin = copy(self)
        for cached in CACHED:
            twin.__dict__.pop(cached, None)
        return twin

    @cached_property
    def fingerprint(self) -> int:
        """What models of the same graph share."""
        graph = self._pristine
        forms = [(tuple(form.terms), hashable(form.constant)) for form in (self.f, self.g)]
        return hash((*graph.op, *graph.args, *graph.parameter, *forms))

    def same_as(self, other: Model) -> bool:
        """Whether f and g are the same on the graph, so that all programs are the same.

        >>> x, y = sp.symbols("x y")
        >>> one, two = (Model(f, y**2, [x], [y]) for f in (0.5*x*y, y*x/2))
        >>> one.same_as(two)
        True
        """
        mine, theirs = self._pristine, other._pristine
        return (
            (self.d, self.n, mine.op, mine.args, mine.parameter, mine.linear)
            == (other.d, other.n, theirs.op, theirs.args, theirs.parameter, theirs.linear)
            and (self.f.constant, self.f.terms) == (other.f.constant, other.f.terms)
            and (self.g.constant, self.g.terms) == (other.g.constant, other.g.terms)
        )

    @cached_property
    def has_kinks(self) -> bool:
        """Whether f or g is built from pieces that may meet in a kink or a jump."""
        graph = self._pristine
        return any(graph.op[node] in KINKS for node in graph.reachable({*self.f.terms, *self.g.terms}))

    @cached_property
    def patterns(self) -> Patterns | None:
        """f and g with their switches as further parameters; None where nothing switches."""
        if not self.has_kinks:
            return None
        graph = self._pristine.copy()
        seams = find_seams(graph, parts_of(graph, self.f, self.g, self.x, self.y))
        if seams is None:
            return None
        twin = self._twin()
        twin.graph = seams.graph.copy()
        twin.f, twin.g = (seams.functions[PARTS.index((function, ""))] for function in "fg")
        twin.parameters = range(self.parameters.start, len(seams.graph.variables))
        twin._parameters = (*self._parameters, *sp.symbols(f"switch:{2 * len(seams.edges)}", cls=sp.Dummy))
        twin._pristine = twin.graph.copy()
        twin._forget()
        edges = build(graph, self.stages[:1], {"edges": ((len(seams.edges),), seams.edges)})
        return Patterns(seams, twin, edges, graph)

    def edge_expression(self, k: int) -> sp.Expr:
        """An edge of ``patterns`` as a SymPy expression."""
        assert self.patterns is not None
        symbols = dict(enumerate(self._symbols)) | dict(zip(self.parameters, self._parameters, strict=True))
        return to_sympy(self.patterns.graph, [self.patterns.seams.edges[k]], symbols)[0]

    @property
    def stages(self) -> tuple[tuple[int, ...], ...]:
        """The variables that become known together: (x, y) and the parameters, then v, then the directions."""
        return (*self.x, *self.y, *self.parameters), tuple(self.v), (*self.u, *self.w)

    def program(self, names: Iterable[str]) -> Program:
        """The program that computes these blocks together, built once."""
        key = tuple(names)
        with self._lock:
            if key not in self._programs:
                self._programs[key] = build(self.graph, self.stages, {name: self.block(name) for name in key})
            return self._programs[key]

    def in_balls(self, names: tuple[str, ...], bits: int) -> ScalarProgram:
        """The program of these blocks, ready for balls of so many bits; the last few are kept.

        What is finite exists all over the ball: at an edge where f or g changes its formula, if they are proved to be
        smooth enough across it (see ``patterns``).
        """
        return self._in_balls(names, bits)

    def _prepare_balls(self, names: tuple[str, ...], bits: int) -> ScalarProgram:
        with SMOOTH_BALLS.precision(bits):
            if self.patterns is not None:
                return PatternProgram(self.patterns, names)
            return ScalarProgram(self.program(names), SMOOTH_BALLS)

    def in_intervals(self, names: tuple[str, ...], *, proved: bool = False) -> IntervalProgram:
        """The program of these blocks over boxes; the last few are kept.

        Undecided switches give nan, as in balls. ``proved``: the elementary functions are Arb's, nothing is assumed.
        """
        return self._in_intervals(names, proved)

    def _prepare_intervals(self, names: tuple[str, ...], proved: bool) -> IntervalProgram:
        return IntervalProgram(self.program(names), intervals.PROVED if proved else intervals.SMOOTH)

    def expressions(self, name: str, v: Sequence[sp.Symbol] = ()) -> list[sp.Expr]:
        """The entries of a block as SymPy expressions; ``v`` are the symbols for v, where it occurs."""
        symbols = dict(enumerate((*self._symbols, *v)))
        symbols |= dict(zip(self.parameters, self._parameters, strict=True))
        return to_sympy(self.graph, self.block(name)[1], symbols)

    def entries(self, name: str, v: Sequence[sp.Symbol] = ()) -> dict[tuple[int, ...], sp.Expr]:
        """Those that do not vanish, by their places."""
        shape = self.block(name)[0]
        return {
            place: entry
            for place, entry in zip(product(*map(range, shape)), self.expressions(name, v), strict=True)
            if entry != 0
        }

    def sizes(self, name: str) -> list[int]:
        """How many symbols and operations each entry that does not vanish has, written out as a tree."""
        return written_sizes(self.graph, (form for form in self.block(name)[1] if form.terms or form.constant))

    def block(self, name: str) -> Block:
        """A block by its name: the shape, and the entries as forms."""
        with self._lock:
            if name not in self._blocks:
                self._blocks[name] = self._build(name)
            return self._blocks[name]

    def _build(self, name: str) -> Block:
        if name in ("f", "g"):
            return (), [self.f if name == "f" else self.g]
        if name in DIRECTION_AXES:
            axis = self._axis(DIRECTION_AXES[name])
            return (len(axis),), gradient(self.graph, self._along_v, axis)
        if name in ("q", "r"):
            return self._third(name)
        function, axes = name[0], [self._axis(axis) for axis in name[2:]]
        shape = tuple(len(axis) for axis in axes)
        if len(axes) == 1:
            return shape, gradient(self.graph, self._function(function), axes[0])
        if len(axes) == 2:
            return shape, self._second(function, *axes)
        return shape, self._higher_block(name)

    def places(self, name: str) -> dict[Place, LinearForm]:
        """The entries of a block that do not vanish, by their places; of third and higher derivatives no other is made.

        >>> x, y = sp.symbols("x"), sp.symbols("y:60")
        >>> len(Model(x*y[0], sum(v**4 for v in y), [x], y).places("g_yyyy"))  # of 12 960 000
        60
        """
        with self._lock:
            if name not in self._places:
                self._places[name] = self._higher_places(name) if len(name) > len("g_yy") else self._low_places(name)
            return self._places[name]

    def _low_places(self, name: str) -> dict[Place, LinearForm]:
        shape, forms = self.block(name)
        entries = zip(product(*map(range, shape)), forms, strict=True)
        return {place: form for place, form in entries if form.terms or form.constant}

    def _higher_places(self, name: str) -> dict[Place, LinearForm]:
        """Third and higher derivatives g_ab...: g_b... moved along a; entries equal by symmetry are one form."""
        function, axes = name[0], name[2:]
        rest = self.places(f"{function}_{axes[1:]}")
        along = {v: {k: ONE_FORM} for k, v in enumerate(self._axis(axes[0]))}
        found: dict[Place, LinearForm] = {}
        for others, row in zip(rest, tangents(self.graph, list(rest.values()), along), strict=True):
            for first, form in row.items():
                index = first, *others
                if _in_order(axes, index) == index:
                    found |= dict.fromkeys(_orders(axes, index), form)
        return dict(sorted(found.items()))

    def _higher_block(self, name: str) -> list[LinearForm]:
        shape = tuple(self.length(axis) for axis in name[2:])
        strides = [prod(shape[k + 1 :]) for k in range(len(shape))]
        found = [ZERO_FORM] * prod(shape)  # most entries of many variables stay that
        for place, form in self.places(name).items():
            found[sum(map(mul, strides, place))] = form
        return found

    def length(self, axis: str) -> int:
        """How many variables an axis has."""
        return len(self._axis(axis))

    def _axis(self, name: str) -> Sequence[int]:
        """The variables of an axis; z is x and y together."""
        return self._chosen.get(name) or {"x": self.x, "y": self.y}.get(name) or range(self.d + self.n)

    def _function(self, name: str) -> LinearForm:
        return {"f": self.f, "g": self.g}.get(name) or self.lagrangian

    @cached_property
    def _along_v(self) -> LinearForm:
        """v^T grad_y g, as a derivative along v: sums stay factored."""
        v = {y: self.graph.variables[v] for y, v in zip(self.y, self.v, strict=True)}
        return directional(self.graph, self.g, v)

    @cached_property
    def lagrangian(self) -> LinearForm:
        """f - v^T grad_y g."""
        return self.f - self._along_v

    @cached_property
    def _lagrangian_hessian(self) -> list[list[LinearForm]]:
        return hessian(self.graph, self.lagrangian, (*self.x, *self.y))

    def _second(self, function: str, rows: Sequence[int], columns: Sequence[int]) -> list[LinearForm]:
        """Second derivatives; of each symmetric pair one is built, and both places get it."""
        if function == "L":
            return [self._lagrangian_hessian[max(i, j)][min(i, j)] for i, j in product(rows, columns)]
        if rows == columns:
            triangle = hessian(self.graph, self._function(function), rows)
            return [triangle[max(i, j)][min(i, j)] for i, j in product(range(len(rows)), repeat=2)]
        # by the gradient in the second axis: g_y is wanted anyway
        first = self.block(f"{function}_{next(axis for axis in 'yxz' if self._axis(axis) == columns)}")[1]
        moved = tangents(self.graph, first, {x: {k: ONE_FORM} for k, x in enumerate(rows)})
        return [moved[j].get(i, ZERO_FORM) for i, j in product(range(len(rows)), range(len(columns)))]

    def _third(self, name: str) -> Block:
        along = [
            {k: self.graph.variables[t] for k, t in zip((*self.x, *self.y), direction, strict=True)}
            for direction in (self.u, self.w)
        ]
        form, axis = (self.lagrangian, (*self.x, *self.y)) if name == "q" else (self.g, tuple(self.y))
        for direction in along:
            form = directional(self.graph, form, direction)
        return (len(axis),), gradient(self.graph, form, axis)


def _in_order(axes: str, index: Place) -> Place:
    """The index with the entries of each run of equal axes in ascending order.

    >>> _in_order("xxy", (2, 1, 0))
    (1, 2, 0)
    """
    return tuple(k for run in _runs(axes, index) for k in sorted(run))


def _orders(axes: str, index: Place) -> Iterator[Place]:
    """The indices of entries that are equal to this one by symmetry.

    >>> sorted(_orders("xxy", (2, 1, 0)))
    [(1, 2, 0), (2, 1, 0)]
    """
    for runs in product(*(set(permutations(run)) for run in _runs(axes, index))):
        yield tuple(k for run in runs for k in run)


def _runs(axes: str, index: Place) -> list[list[int]]:
    """The entries of an index by runs of equal axes."""
    return [[k for _, k in run] for _, run in groupby(zip(axes, index, strict=True), key=itemgetter(0))]
