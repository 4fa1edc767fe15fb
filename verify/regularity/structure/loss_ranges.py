"""Ranges of a function of a few numbers and of its derivatives, proved: over many intervals, or over all numbers.

The function is a form of a graph, made of the records of operations; its derivatives follow from them, and nothing is
looked up in a table of known losses. Where it depends on one number alone, the line is cut into cells, finer where the
largest and the smallest values are, with two tails that reach to infinity; every cell is bounded once, in the proved
arithmetic, and an interval has the hull of the cells that it meets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from bilevel_sym.arithmetic.boxes import IntervalProgram
from bilevel_sym.arithmetic.intervals import PROVED, SMOOTH, Pair
from bilevel_sym.arithmetic.pieces.patterns import SharpEdges
from bilevel_sym.graph.autodiff import gradient
from bilevel_sym.graph.nodes import Graph, LinearForm
from bilevel_sym.graph.program import Program, build
from bilevel_sym.typing import FLOAT64_TINY, Bools, Floats, Indices
from verify.regularity.structure.tails import tail_ranges

__all__ = ["Cells", "LossFunction"]

CELLS = 32  # on each side of zero, to begin with
REACH = 16.0  # the cells of equal width end here; wider ones follow up to TAILS_BEGIN
TAILS_BEGIN = 2.0**20
ROUNDS = 20  # of cutting cells in halves
MOST_CUT = 40  # cells in a round
SHARP = 1e-7  # relative: extreme values that are known so well are not cut any further
MOST_CELLS = 1000
PADDED = 1 + 1e-14  # covers a handful of roundings
BOUNDED_DIRECTLY = 40  # intervals that are bounded as they are
BOUNDED_ONE_BY_ONE = 5000  # intervals that are bounded one by one as well, not by cells alone
COARSE = 1 / 16  # an interval about zero is not made wider relative to less than this


class LossFunction:
    """A function of the first ``count`` variables of a graph; the others are data, known as intervals.

    >>> graph = Graph(1)
    >>> loss = LossFunction(graph, graph.apply("softplus", graph.variables[0]), [0], [])
    >>> line = np.array([[-np.inf]]), np.array([[np.inf]])
    >>> low, high = loss.ranges((2,), line)
    >>> float(low[0]), float(high[0])
    (0.0, 0.25)
    >>> low, high = loss.ranges((3,), line)
    >>> bool(0.09622504 < high[0] < 0.0962251), bool(-low[0] < 0.0962251)  # 1/(6 sqrt(3))
    (True, True)
    """

    def __init__(self, graph: Graph, form: LinearForm, variables: Sequence[int], data: Sequence[int]) -> None:
        self.graph, self.form = graph, form
        self.variables, self.data = tuple(variables), tuple(data)
        self._programs: dict[tuple[int, ...], Program] = {}
        self._ready: dict[tuple[tuple[int, ...], bool], IntervalProgram] = {}
        self._cells: dict[tuple[int, ...], Cells] = {}

    def derivative(self, orders: Sequence[int]) -> LinearForm:
        """The derivative of these orders by the variables."""
        form = self.form
        for variable, order in zip(self.variables, orders, strict=True):
            for _ in range(order):
                (form,) = gradient(self.graph, form, [variable])
        return form

    def program(self, orders: tuple[int, ...]) -> Program:
        """What computes the derivative."""
        if orders not in self._programs:
            outputs: dict[str, tuple[tuple[int, ...], Sequence[LinearForm]]] = {"h": ((), [self.derivative(orders)])}
            self._programs[orders] = build(self.graph, [[*self.variables, *self.data]], outputs)
        return self._programs[orders]

    def over(self, orders: tuple[int, ...], lower: Floats, upper: Floats, *, proved: bool = True) -> Pair:
        """The derivative over boxes, (variables and data, lanes) each end: as it is written, and from its slopes.

        Around the middle m it is h(m) and the largest slope times the distance from m, for every variable.
        """
        low, high = self._plain(orders, lower, upper, proved)
        with np.errstate(all="ignore"):
            middle = 0.5 * lower + 0.5 * upper
            finite = np.isfinite(middle).all(axis=0) & (upper > lower).any(axis=0)
            if not finite.any():
                return low, high
            a, b, m = lower[:, finite], upper[:, finite], middle[:, finite]
            ends = [np.concatenate([m[: len(self.variables)], end[len(self.variables) :]]) for end in (a, b)]
            at = self._plain(orders, ends[0], ends[1], proved)
            away = np.zeros(m.shape[1])
            for k in range(len(self.variables)):
                further = tuple(order + (k == j) for j, order in enumerate(orders))
                slope = np.maximum(*map(np.abs, self._plain(further, a, b, proved)))
                away += slope * np.maximum(b[k] - m[k], m[k] - a[k]) * PADDED
            one, two = at[0] - away * PADDED, at[1] + away * PADDED
            one, two = one - 1e-15 * np.abs(one) - FLOAT64_TINY, two + 1e-15 * np.abs(two) + FLOAT64_TINY
            low[finite] = np.fmax(low[finite], one)
            high[finite] = np.fmin(high[finite], two)
        return low, high

    def _plain(self, orders: tuple[int, ...], lower: Floats, upper: Floats, proved: bool) -> Pair:
        """By one look; nan becomes no bound."""
        key = (orders, proved)
        if key not in self._ready:
            self._ready[key] = IntervalProgram(self.program(orders), PROVED if proved else SMOOTH)
        session = self._ready[key].session(lower.shape[1])
        with np.errstate(all="ignore"):
            session.put(0, lower.T, upper.T)
        low, high = session.take("h")
        unknown = np.isnan(low) | np.isnan(high) | self.rough(orders, lower, upper)
        return np.where(unknown, -np.inf, low), np.where(unknown, np.inf, high)

    def rough(self, orders: tuple[int, ...], lower: Floats, upper: Floats) -> Bools:
        """Over which boxes (variables and data, lanes) an edge may run that is too sharp for this derivative.

        >>> graph = Graph(1)
        >>> loss = LossFunction(graph, graph.apply("abs", graph.variables[0]), [0], [])
        >>> loss.rough((2,), np.array([[-1.0, 1.0]]), np.array([[1.0, 2.0]])).tolist()
        [True, False]
        """
        return self._edges.met(sum(orders), lower, upper)

    @cached_property
    def _edges(self) -> SharpEdges:
        return SharpEdges(self.graph, self.form, (*self.variables, *self.data))

    def ranges(self, orders: tuple[int, ...], box: Pair, data: Pair | None = None) -> Pair:
        """The derivative over each lane of a box, (variables, lanes) each end, with the data of that lane.

        >>> graph = Graph(2)
        >>> scaled = LossFunction(graph, graph.mul(graph.variables[1], graph.power(graph.variables[0], 2)), [0], [1])
        >>> three = np.array([[3.0]]), np.array([[3.0]])
        >>> bool(6 <= scaled.ranges((2,), (np.array([[-1.0]]), np.array([[1.0]])), three)[1][0] < 6.0001)
        True
        """
        lower, upper = (np.asarray(end, dtype=np.float64) for end in box)
        if data is not None and len(self.data):
            lower, upper = np.concatenate([lower, data[0]]), np.concatenate([upper, data[1]])
        lanes, back = np.unique(np.concatenate([lower, upper]), axis=1, return_inverse=True)
        low, high = self._ranges(orders, lanes[: len(lower)], lanes[len(lower) :])
        return low[back.ravel()], high[back.ravel()]

    def _ranges(self, orders: tuple[int, ...], lower: Floats, upper: Floats) -> Pair:
        single = len(self.variables) == 1 and not self.data
        if not single:
            return self._pieces(orders, lower, upper)
        low, high = self.cells(orders).hulls(lower[0], upper[0])
        if lower.shape[1] > BOUNDED_DIRECTLY:
            lower, upper = _on_grid(lower, upper)
        lanes, back = np.unique(np.concatenate([lower, upper]), axis=1, return_inverse=True)
        if lanes.shape[1] <= BOUNDED_ONE_BY_ONE:
            one, two = self.over(orders, lanes[:1], lanes[1:])
            low, high = np.maximum(low, one[back.ravel()]), np.minimum(high, two[back.ravel()])
        return low, high

    def _pieces(self, orders: tuple[int, ...], lower: Floats, upper: Floats) -> Pair:
        """Of several numbers: each interval of a variable that is bounded is cut, the others are taken whole."""
        count = len(self.variables)
        cuts = {1: 64, 2: 8, 3: 4}.get(count, 1)
        low, high = self.over(orders, lower, upper)
        finite = np.isfinite(lower[:count]).all(axis=0) & np.isfinite(upper[:count]).all(axis=0)
        open_ = np.flatnonzero(finite & (lower[:count] < upper[:count]).any(axis=0))
        if cuts == 1 or not len(open_) or len(open_) * cuts**count > 64 * BOUNDED_ONE_BY_ONE:
            return low, high
        grid = np.stack([g.ravel() for g in np.meshgrid(*[np.arange(cuts)] * count, indexing="ij")])
        pieces = grid.shape[1]
        a, b = np.repeat(lower[:, open_], pieces, axis=1), np.repeat(upper[:, open_], pieces, axis=1)
        place = np.tile(grid, len(open_))
        left, right = _shares(a[:count], b[:count], place, cuts)
        one, two = self.over(orders, np.concatenate([left, a[count:]]), np.concatenate([right, b[count:]]))
        low[open_] = np.maximum(low[open_], one.reshape(-1, pieces).min(axis=1))
        high[open_] = np.minimum(high[open_], two.reshape(-1, pieces).max(axis=1))
        return low, high

    def cells(self, orders: tuple[int, ...]) -> Cells:
        """The line in cells, for a function of one number."""
        if orders not in self._cells:
            self._cells[orders] = Cells.of(self, orders)
        return self._cells[orders]


def _on_grid(lower: Floats, upper: Floats) -> Pair:
    """Wider by at most a hundredth of their largest number, so that many intervals share their ends."""
    with np.errstate(all="ignore"):
        size = np.maximum(np.maximum(np.abs(lower), np.abs(upper)), COARSE)
        step = np.exp2(np.floor(np.log2(size)) - 7)
        low, high = np.floor(lower / step) * step, np.ceil(upper / step) * step  # powers of two: nothing is rounded
    return np.where(np.isfinite(low), low, lower), np.where(np.isfinite(high), high, upper)


def _shares(lower: Floats, upper: Floats, place: Indices, cuts: int) -> Pair:
    """The pieces of intervals; neighbours share the number where they meet."""
    at = [np.where(k == 0, lower, np.where(k == cuts, upper, lower + (upper - lower) * (k / cuts))) for k in
          (place, place + 1)]  # fmt: skip
    return np.clip(at[0], lower, upper), np.clip(at[1], lower, upper)


class Cells:
    """A line in cells from one edge to the next, the first and the last without end, with the range over each.

    >>> cells = Cells(np.array([-np.inf, 0.0, 1.0, np.inf]), np.array([0.0, 1.0, 2.0]), np.array([0.0, 2.0, 3.0]))
    >>> [end.tolist() for end in cells.hulls(np.array([0.5]), np.array([2.0]))]
    [[1.0], [3.0]]
    """

    def __init__(self, edges: Floats, low: Floats, high: Floats) -> None:
        self.edges, self.low, self.high = edges, low, high

    @staticmethod
    def of(function: LossFunction, orders: tuple[int, ...]) -> Cells:
        """The cells of a derivative: those that may hold an extreme value are cut in halves."""
        edges = _first_edges()
        for _ in range(ROUNDS):
            places = _open(function, orders, edges)[: MOST_CELLS - len(edges)]
            if not len(places):
                break
            places.sort()
            edges = np.insert(edges, places + 1, 0.5 * edges[places] + 0.5 * edges[places + 1])
        low, high = function.over(orders, edges[None, :-1], edges[None, 1:])
        for place, side in ((0, -1), (-1, 1)):
            if function.rough(orders, edges[None, :-1][:, [place]], edges[None, 1:][:, [place]])[0]:
                continue
            one, two = tail_ranges(function.program(orders), TAILS_BEGIN, side)
            low[place], high[place] = max(low[place], one), min(high[place], two)
        return Cells(edges, low, high)

    def hulls(self, lower: Floats, upper: Floats) -> Pair:
        """The hull of the ranges over the cells that meet each interval."""
        first = np.clip(np.searchsorted(self.edges, lower, side="right") - 1, 0, len(self.low) - 1)
        last = np.clip(np.searchsorted(self.edges, upper, side="left") - 1, 0, len(self.low) - 1)
        last = np.maximum(first, last)
        level = np.frexp((last - first + 1).astype(np.float64))[1] - 1  # 2**level cells at most
        start, end = first, last - (1 << level) + 1
        low = np.minimum(self._least[level, start], self._least[level, end])
        return low, np.maximum(self._most[level, start], self._most[level, end])

    @cached_property
    def _least(self) -> Floats:
        return _tables(self.low, np.minimum)

    @cached_property
    def _most(self) -> Floats:
        return _tables(self.high, np.maximum)


def _tables(values: Floats, better: np.ufunc) -> Floats:
    """Row k: the best of 2**k neighbours from each place on."""
    rows = [values]
    for k in range(int(math.log2(len(values)))):
        step = 1 << k
        before = rows[-1]
        shifted = np.concatenate([before[step:], np.full(step, before[-1])])
        rows.append(better(before, shifted))
    return np.array(rows)


def _first_edges() -> Floats:
    near = np.linspace(-REACH, REACH, 2 * CELLS + 1)
    far = REACH * 2.0 ** np.arange(1, int(math.log2(TAILS_BEGIN / REACH)) + 1)
    return np.concatenate([[-np.inf], -far[::-1], near, far, [np.inf]])


def _open(function: LossFunction, orders: tuple[int, ...], edges: Floats) -> Indices:
    """The cells that may hold a value beyond those at the edges, the worst first; a search, and no proof."""
    with np.errstate(all="ignore"):
        low, high = function.over(orders, edges[None, :-1], edges[None, 1:], proved=False)
        at, _ = function.over(orders, edges[None, 1:-1], edges[None, 1:-1], proved=False)
        least, most = np.min(at), np.max(at)
        near = SHARP * max(abs(least), abs(most))
        bounded: Bools = np.isfinite(edges[:-1]) & np.isfinite(edges[1:])
        excess = np.where(bounded, np.maximum(high - most, least - low) - near, 0.0)
        order = np.argsort(-excess, kind="stable")
        return order[excess[order] > 0][:MOST_CUT]
