"""Ranges: all entries of several blocks of derivatives of one function over a box, bounded together.

From inside: values at points, as proved intervals. From outside: the box is cut where an entry's bound is furthest from
what its values reach, and every piece is bounded for all entries at once. What is returned comes from the pieces alone,
each of them bounded again in the proved arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from bilevel_sym.arithmetic import intervals
from bilevel_sym.arithmetic.boxes import IntervalProgram, Operations
from bilevel_sym.arithmetic.pieces.patterns import Split
from bilevel_sym.arithmetic.ties import coarse
from bilevel_sym.implicit.model import Model
from bilevel_sym.system.budget import Budget
from bilevel_sym.system.memory import parts
from bilevel_sym.typing import Bools, Floats, Indices
from verify.enclosures.block_norm import Block, ExactBox
from verify.enclosures.branch_and_bound import BOXES_AT_A_TIME
from verify.enclosures.cover import halves, heaviest, middles

__all__ = ["Entries", "Ranges", "ranges"]

BATCH = 64  # boxes that are cut at a time
CORNERS = 6  # variables up to which all corners are looked at
THINNEST_PIECE = 2.0**-40  # of the box: a piece this thin without a bound lies on a kink, a pole or the end of a domain
NAMES = ("f", "f_x", "f_xx")


class Entries(Block):
    """All entries of a block over boxes.

    >>> import sympy as sp
    >>> from bilevel_sym import Box
    >>> x = sp.Symbol("x")
    >>> entries = Entries(Model(sp.sin(x), sp.Integer(0), [x], []), "f_x", ExactBox(Box([0], [1])))
    >>> lo, hi = entries.over_boxes(np.array([[0.0]]), np.array([[1.0]]))
    >>> bool(0.54 < lo[0, 0] < 0.5404), bool(1 <= hi[0, 0] < 1.0001)
    (True, True)
    """

    def over_boxes(self, lower: Floats, upper: Floats, *, proved: bool = False) -> tuple[Floats, Floats]:
        """The ends of all entries, (lanes, entries) each; infinite where nothing is known."""
        split = None
        if self.patterns is not None:
            split = self.patterns.split(lower, upper, self._need, proved=proved)
            lower, upper = split.lower, split.upper
        session = self.session(lower, upper, proved=proved)
        lo, hi = (end.reshape(len(lower), -1) for end in self.ends(session, lower, upper, proved=proved))
        unknown = np.isnan(lo) | np.isnan(hi)
        lo, hi = np.where(unknown, -np.inf, lo), np.where(unknown, np.inf, hi)
        return (lo, hi) if split is None else self._together(split, lo, hi, proved)

    def _together(self, split: Split, lo: Floats, hi: Floats, proved: bool) -> tuple[Floats, Floats]:
        """What is true with all formulas of a box; of the value also its natural extension: abs is not negative."""
        lo, hi = -split.largest(-lo), split.largest(hi)
        if self.name != "f":
            return lo, hi
        session = self._natural[proved].session(split.boxes)
        one, size = split.first, self.model.d + self.model.n
        session.put(0, split.lower[one, :size], split.upper[one, :size])
        low, high = (end.reshape(-1, 1) for end in session.take("f"))
        return np.fmax(lo, low), np.fmin(hi, high)

    @cached_property
    def _natural(self) -> tuple[IntervalProgram, IntervalProgram]:
        """The value alone, with the hull of the branches where a switch is open."""
        program = self.model.program(("f",))
        fast, safe = ({**ops, "log": smooth["log"]} for ops, smooth in (
            (intervals.OPERATIONS, intervals.SMOOTH), (intervals.VALUES, intervals.PROVED)))  # fmt: skip
        return IntervalProgram(program, _closed(fast, False)), IntervalProgram(program, _closed(safe, True))

    def _operations(self, proved: bool) -> Operations:
        """The value itself is defined at the end of a domain, where derivatives are not."""
        operations = super()._operations(proved)
        return _closed(operations, proved) if self.name == "f" else operations

    def _over(self, lower: Floats, upper: Floats, *, proved: bool) -> Floats:
        lo, hi = self.over_boxes(lower, upper, proved=proved)
        return np.asarray(np.maximum(-lo, hi).max(axis=1))


def _closed(operations: Operations, proved: bool) -> Operations:
    """Roots of zero are zero, as long as nothing below zero is asked for."""
    plain: Callable[..., Any] = (intervals.VALUES if proved else intervals.OPERATIONS)["rpow"]

    @np.errstate(all="ignore")
    def root(x: tuple[Floats, Floats], p: int, q: int) -> tuple[Floats, Floats]:
        lo, hi = plain(x, p, q)
        inside = (x[0] >= 0) if p > 0 else (x[0] > 0)
        return np.where(inside, lo, np.nan), np.where(inside, hi, np.nan)

    return MappingProxyType({**operations, "rpow": root})


@dataclass(frozen=True, eq=False)
class Ranges:
    """The ends of all entries of the blocks, flat; ``place`` is where the value has no bound, ``rough`` who has none.

    ``reached``: whether every bound is as close to values as was asked for.
    """

    lower: Mapping[str, Floats]
    upper: Mapping[str, Floats]
    place: tuple[Floats, Floats] | None
    boxes: int
    reached: bool


def ranges(model: Model, region: ExactBox, *, rtol: float, budget: Budget) -> Ranges:
    """The ranges of f, f_x and f_xx over a box, each a ``rtol`` of its width too wide if the budget, in boxes, allows.

    >>> import sympy as sp
    >>> from bilevel_sym import Box
    >>> x = sp.Symbol("x")
    >>> model = Model(x - x**2, sp.Integer(0), [x], [])
    >>> found = ranges(model, ExactBox(Box([0], [1])), rtol=0.01, budget=Budget(1000))
    >>> bool(0.25 <= found.upper["f"][0] < 0.2526), found.lower["f_xx"].tolist()
    (True, [-2.0])
    """
    search = _Search([Entries(model, name, region) for name in NAMES], region, rtol)
    with np.errstate(all="ignore"):
        search.run(budget)
        return search.result()


class _Search:
    """The pieces, and what is known of every entry over each of them."""

    def __init__(self, blocks: Sequence[Entries], region: ExactBox, rtol: float) -> None:
        self.blocks, self.rtol = blocks, rtol
        self.whole = region.lower, region.upper
        self.lower, self.upper = region.lower[None], region.upper[None]
        self.width = np.where(region.upper > region.lower, region.upper - region.lower, 1.0)
        self.active = np.array(sorted({k for block in blocks for k in block.active}), dtype=np.intp)
        with np.errstate(all="ignore"):
            self.lo, self.hi = self._bounded(self.lower, self.upper, proved=False)
            self.least, self.most = np.full(self.lo.shape[1], np.inf), np.full(self.lo.shape[1], -np.inf)
            self._look(self._points(*region.inside))
        self.hopeless = np.zeros(self.lo.shape[1], dtype=np.bool_)

    def _points(self, low: Floats, high: Floats) -> Floats:
        """The middle, and the corners; where no float lies between the ends, one of those around them."""
        low, high = np.minimum(low, high), np.maximum(low, high)
        shares = [np.full(len(low), 0.5)]
        if len(self.active) <= CORNERS:
            for corner in product((0.0, 1.0), repeat=len(self.active)):
                shares.append(np.full(len(low), 0.5))
                shares[-1][self.active] = corner
        share = np.array(shares)
        return np.where(share == 0, low, np.where(share == 1, high, middles(low, high)))

    def _bounded(self, lower: Floats, upper: Floats, *, proved: bool) -> tuple[Floats, Floats]:
        """All entries of all blocks side by side, (lanes, entries) each end."""
        found = [
            [block.over_boxes(lower[rows], upper[rows], proved=proved) for block in self.blocks]
            for rows in parts(len(lower), BOXES_AT_A_TIME)
        ]
        lo, hi = (np.concatenate([np.hstack([ends[side] for ends in part]) for part in found]) for side in (0, 1))
        return lo, hi

    def _look(self, points: Floats) -> None:
        """What the entries reach at points."""
        lo, hi = self._bounded(points, points, proved=False)
        self.most = np.maximum(self.most, np.where(np.isfinite(lo), lo, -np.inf).max(axis=0))
        self.least = np.minimum(self.least, np.where(np.isfinite(hi), hi, np.inf).min(axis=0))

    def _excess(self) -> Floats:
        """How much each bound of each piece is beyond what values reach, in tolerances; (pieces, entries)."""
        spread = np.where(self.most > self.least, self.most - self.least, 0.0)
        size = np.maximum(np.abs(self.most), np.abs(self.least))
        allowed = self.rtol * spread + 1e-13 * np.where(np.isfinite(size), size, 0.0) + 1e-290
        beyond = np.maximum(self.hi - self.most, self.least - self.lo) / allowed
        return np.where(self.hopeless, -np.inf, np.where(np.isnan(beyond), np.inf, beyond))

    def run(self, budget: Budget) -> None:
        """Cut the worst pieces until every bound is near, or the work is done."""
        while len(self.active):
            worst = self._excess().max(axis=1)
            share = (self.upper - self.lower)[:, self.active] / self.width[self.active]
            # of pieces without any bound the smallest first, to learn why
            score = np.where(np.isinf(worst) & (worst > 0), 1e300 / share.max(axis=1), worst)
            order = np.argsort(-coarse(score), kind="stable")[:BATCH]
            chosen = np.sort(order[worst[order] > 1])
            if not len(chosen) or not budget.allows(2 * len(chosen)):
                return
            budget.spend(2 * len(chosen))
            self._cut(chosen)

    def _cut(self, chosen: Indices) -> None:
        lower, upper = self.lower[chosen], self.upper[chosen]
        variable, possible = self._variables(chosen)
        if not possible.all():
            stuck = chosen[~possible]
            self.hopeless |= (self._excess()[stuck] > 1).any(axis=0)
            chosen, variable, lower, upper = chosen[possible], variable[possible], lower[possible], upper[possible]
        if not len(chosen):
            return
        lows, highs = halves(lower, upper, variable)
        lo, hi = self._bounded(lows, highs, proved=False)
        lo, hi = np.maximum(lo, np.repeat(self.lo[chosen], 2, axis=0)), np.minimum(hi, np.repeat(self.hi[chosen], 2, 0))
        keep = np.ones(len(self.lower), dtype=np.bool_)
        keep[chosen] = False
        self.lower, self.upper = np.concatenate([self.lower[keep], lows]), np.concatenate([self.upper[keep], highs])
        self.lo, self.hi = np.concatenate([self.lo[keep], lo]), np.concatenate([self.hi[keep], hi])
        self._look(middles(lows, highs))

    def _variables(self, chosen: Indices) -> tuple[Indices, Bools]:
        """The variable along which the value and the gradient change most; and whether it can be cut."""
        lower, upper = self.lower[chosen], self.upper[chosen]
        share = (upper - lower) / self.width
        middle = middles(lower, upper)
        possible = (middle > lower) & (middle < upper) & (share > THINNEST_PIECE)
        size = np.maximum(np.abs(self.lo[chosen]), np.abs(self.hi[chosen]))
        n, spread = lower.shape[1], np.where(self.most > self.least, self.most - self.least, np.inf)
        steep = size[:, 1 : 1 + n] / spread[0]
        steep = steep + (size[:, 1 + n :].reshape(len(size), n, n) / spread[None, 1 : 1 + n, None]).max(axis=1)
        weight = steep * (upper - lower)
        usable = np.isfinite(weight).all(axis=1) & (weight.max(axis=1) > 0)
        weight = weight / np.where(usable, weight.max(axis=1), 1.0)[:, None] + 0.1 * share
        return heaviest(np.where(usable[:, None], weight, share), possible, self.active)

    def result(self) -> Ranges:
        """The proof: every piece once more."""
        lo, hi = self._bounded(self.lower, self.upper, proved=True)
        reached = bool((self._excess() <= 1).all()) and not self.hopeless.any()
        value = ~(np.isfinite(lo[:, 0]) & np.isfinite(hi[:, 0]))
        place = None
        if value.any():
            share = ((self.upper - self.lower) / self.width).max(axis=1)
            worst = np.flatnonzero(value)[share[value].argmin()]
            place = self.lower[worst], self.upper[worst]
        sizes = np.cumsum([math.prod(block.shape) for block in self.blocks])[:-1]
        low, high = np.split(lo.min(axis=0), sizes), np.split(hi.max(axis=0), sizes)
        return Ranges(
            dict(zip(NAMES, low, strict=True)), dict(zip(NAMES, high, strict=True)), place, len(self.lower), reached
        )
