"""Branch and bound: a proved bracket of the maximum of a function over a box.

From below: the best point that sampling and a pattern search find, evaluated in balls. From above: boxes are bounded
many at a time and the worst are cut in halves. The search itself proves nothing. Its last cover does, when every leaf
is bounded again with ``proved=True``. How long it goes on is counted in work: boxes times what one of them costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bilevel_sym.arithmetic.ties import EQUAL, coarse, first_largest, in_order
from bilevel_sym.system.budget import Budget
from bilevel_sym.system.memory import parts
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.typing import Bools, Floats, Indices
from verify.enclosures.cover import LEAF, Cover, halves, heaviest, middles
from verify.verdict import Bracket

__all__ = ["PROOF_COST", "SECOND", "Maximum", "Objective", "maximise", "proved_upper"]

Smear = Callable[[Floats, Floats], Floats]

_THINNEST_SHARE = 2.0**-30  # of the root: a box this thin on which nothing is known lies on a kink, a jump or a pole
BOXES_AT_A_TIME = 256  # lanes at a time
_UNBOUNDED_BOXES = 32  # boxes without a bound at a time: one that stays so is enough to know
_LEAST_BOXES = 32  # boxes: fewer at a time cost as much
_SAMPLES = 384
PROOF_COST = 4.0  # what a box costs in the proof, in boxes of the search
_SEARCH = 1 / 3  # of the time of people in a hurry; the rest is for the proof
SECOND = 1e6  # units of work that an ordinary core does in about a second: budgets are sized by it, and spent in boxes


class Objective(Protocol):
    """A function over boxes. Only the variables ``active`` are cut: it must not depend on the others."""

    @property
    def cost(self) -> float:
        """Units of work that one box takes, estimated from the size of the formulas: about a microsecond each."""

    @property
    def active(self) -> Sequence[int]:
        """The variables on which it depends."""

    def over(self, lower: Floats, upper: Floats, *, proved: bool = False) -> Floats:
        """Upper bounds over lanes of boxes (lanes, variables); nan or inf where nothing is known."""

    def at(self, points: Floats) -> Floats:
        """Plain values at points (points, variables), to guess where the maximum is."""

    def certified_at(self, point: Floats) -> float:
        """A proved lower bound of the value at a point; -inf or nan where there is none."""


@dataclass(frozen=True, eq=False)
class Maximum:
    """What ``maximise`` found: the bracket, the point of its lower end, and the cover that proves its upper end.

    ``place`` is a box on which no finite bound was found, where there is one: then the upper end is infinite. ``cut``
    says that time, and not the work allowed, ended the search.
    """

    bracket: Bracket
    point: Floats | None
    cover: Cover
    boxes: int
    interrupted: bool = False
    place: tuple[Floats, Floats] | None = None
    cut: bool = False


def maximise(
    objective: Objective,
    lower: Floats,
    upper: Floats,
    *,
    budget: Budget | None = None,
    rtol: float = 0.01,
    floor: float = -math.inf,
    inside: tuple[Floats, Floats] | None = None,
    smear: Smear | None = None,
    start: Floats | None = None,
    batch: int = BOXES_AT_A_TIME,
    most: int = 400_000,
    seed: int = 0,
    progress: bool = False,
) -> Maximum:
    """A bracket of the maximum of the objective over the box, relatively ``rtol`` wide if the budget suffices.

    It is true whenever the search ends, by an interrupt too (a second one, while the cover is being proved, leaves the
    bound over the box as a whole). Below ``floor`` the upper end is of no interest, and
    a box that is bounded by it is not searched, so that there may be no lower end. ``inside`` are floats inside the
    exact box, where ``lower`` and ``upper`` lie around it: points for the lower end are taken there. ``smear`` says
    for lanes of boxes how much each variable matters (lanes, variables): the largest is cut; by default the widest.
    ``start`` is a point that is known to be good: it takes the place of sampling.

    >>> class Parabola:
    ...     active, cost = (0,), 1.0
    ...     def over(self, lower, upper, *, proved=False):
    ...         return 1.0000001 * upper[:, 0] - 0.9999999 * np.square(lower[:, 0])
    ...     def at(self, points):
    ...         return points[:, 0] - points[:, 0] ** 2
    ...     def certified_at(self, point):
    ...         return float(self.at(point[None])[0]) - 1e-12
    >>> found = maximise(Parabola(), np.array([0.0]), np.array([2.0]), rtol=0.01)
    >>> print(found.bracket, found.point.round(4))
    [0.25, 0.25238] [0.5]
    """
    search = _Search(objective, np.asarray(lower, float), np.asarray(upper, float), floor, rtol, inside, smear, seed)
    allowed = Budget(10 * SECOND) if budget is None else budget
    interrupted = cut = False
    try:
        if search.top > floor:
            search.sample(start)
            with ProgressBar("bounding", shown=progress) as meter:
                cut = search.run(allowed, batch, most, meter)
    except KeyboardInterrupt:
        interrupted = True
    try:
        cover = search.cover()
        bounds = proved_upper(objective, cover)
    except KeyboardInterrupt:
        interrupted = True
        cover = Cover(search.tree.lower[0], search.tree.upper[0])
        bounds = proved_upper(objective, cover)
    best = search.best if search.point is not None else -math.inf
    top = float(bounds.max())
    place = None if math.isfinite(top) else search.tree.unknown()
    return Maximum(Bracket(best, top), search.point, cover, search.boxes, interrupted, place, cut)


def proved_upper(objective: Objective, cover: Cover) -> Floats:
    """The proved bounds over the leaves of a cover, (leaves,); inf where nothing is known."""
    lower, upper = cover.leaves()
    bounds = [objective.over(lower[rows], upper[rows], proved=True) for rows in parts(len(lower), BOXES_AT_A_TIME)]
    return _known(np.concatenate(bounds))


def _known(bounds: Floats) -> Floats:
    """nan says that nothing is known, as inf does."""
    return np.where(np.isnan(bounds), np.inf, bounds)


class _Tree:
    """Nodes in growing arrays; the children of a node stand behind it, side by side.

    ``own`` is the bound of a node by itself and ``bound`` the least on the way from the root, which holds for it too.
    """

    def __init__(self, lower: Floats, upper: Floats) -> None:
        self.size = 0
        self.lower, self.upper = np.empty((64, len(lower))), np.empty((64, len(lower)))
        self.own, self.bound = np.empty(64), np.empty(64)
        self.cut, self.child, self.depth = (np.full(64, LEAF, dtype=np.intp) for _ in range(3))

    def add(self, lower: Floats, upper: Floats, own: Floats, bound: Floats, depth: Indices) -> Indices:
        first, end = self.size, self.size + len(own)
        while end > min(len(self.own), len(self.depth)):
            self._grow()
        new = slice(first, end)
        self.lower[new], self.upper[new], self.own[new], self.bound[new] = lower, upper, own, bound
        self.cut[new], self.child[new], self.depth[new] = LEAF, LEAF, depth
        self.size = end  # last, so that an interrupt finds whole nodes
        return np.arange(first, self.size)

    def _grow(self) -> None:
        for name in ("lower", "upper", "own", "bound", "cut", "child", "depth"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.empty_like(old)]))

    def least(self) -> float:
        """The best bound that some cover of nodes proves: of each node, its own or the worse of its halves."""
        best = self.own[: self.size].copy()
        for depth in range(int(self.depth[: self.size].max()) - 1, -1, -1):
            nodes = np.flatnonzero((self.depth[: self.size] == depth) & (self.child[: self.size] >= 0))
            halves = np.maximum(best[self.child[nodes]], best[self.child[nodes] + 1])
            best[nodes] = np.minimum(best[nodes], halves)
        return float(best[0])

    def unknown(self) -> tuple[Floats, Floats]:
        """The smallest box without a bound."""
        leaves = np.flatnonzero((self.child[: self.size] < 0) & np.isinf(self.own[: self.size]))
        node = leaves[self.depth[leaves].argmax()] if len(leaves) else 0
        return self.lower[node].copy(), self.upper[node].copy()

    def coarsest(self, level: float) -> tuple[int, ...]:
        """The cuts of the cover with the fewest leaves whose own bounds are at most the level."""
        cuts, waiting = [], [0]
        while waiting:
            node = waiting.pop()
            if self.child[node] < 0 or self.own[node] <= level:
                cuts.append(LEAF)
            else:
                cuts.append(int(self.cut[node]))
                waiting += (int(self.child[node]) + 1, int(self.child[node]))
        return tuple(cuts)


class _Search:
    """The state of one search."""

    def __init__(
        self,
        objective: Objective,
        lower: Floats,
        upper: Floats,
        floor: float,
        rtol: float,
        inside: tuple[Floats, Floats] | None,
        smear: Smear | None,
        seed: int,
    ) -> None:
        self.objective, self.floor, self.rtol, self.smear = objective, floor, rtol, smear
        self.active = np.array(sorted(objective.active), dtype=np.intp)
        self.inside = (lower, upper) if inside is None else inside
        self.rng = np.random.default_rng(seed)
        self.width = np.where(upper > lower, upper - lower, 1.0)
        self.tree = _Tree(lower, upper)
        self.best, self.guess, self.point = -math.inf, -math.inf, None  # type: float, float, Floats | None
        own = _known(objective.over(lower[None], upper[None]))
        self.open = self.tree.add(lower[None], upper[None], own, own, np.zeros(1, dtype=np.intp))
        self.boxes = 1
        self.stuck = -math.inf  # the bound of the worst leaf that cannot be cut
        self.limit = -math.inf  # the bound at the best point alone: no cover can prove less

    # ------------------------------------------------------------------ from below

    @property
    def top(self) -> float:
        """The bound over the box as a whole."""
        return float(self.tree.own[0])

    def sample(self, start: Floats | None) -> None:
        """The middle, corners and random points, the best of them improved; or one point, as it is."""
        low, high = self.inside
        if start is not None or not len(self.active):
            point = self._clipped(0.5 * low + 0.5 * high if start is None else start)
            self._certify(point, float(self._values(point[None])[0]))
            return
        share = np.full((1 + _SAMPLES, len(low)), 0.5)
        half = _SAMPLES // 2
        share[1 : 1 + half, self.active] = self.rng.random((half, len(self.active)))
        corners = self.rng.integers(0, 2, (_SAMPLES - half, len(self.active)))
        if len(self.active) <= 7:
            every = np.array(list(np.ndindex(*[2] * len(self.active))), dtype=np.intp)
            corners[: len(every)] = every.reshape(len(every), -1)
        share[1 + half :, self.active] = corners
        self.consider(self._clipped(low + share * (high - low)), keep=2)

    def _clipped(self, points: Floats) -> Floats:
        return np.clip(points, np.minimum(*self.inside), np.maximum(*self.inside))

    def _values(self, points: Floats) -> Floats:
        with np.errstate(all="ignore"):
            values = self.objective.at(points)
        return np.where(np.isfinite(values), values, -np.inf)

    def consider(self, points: Floats, *, keep: int = 1) -> None:
        """Improve the best of the points, and certify them where they are better than what is known."""
        values = self._values(points)
        order = in_order(values, descending=True)[:keep]
        enough = self.guess if math.isinf(self.guess) else self.guess + 1e-3 * self.rtol * abs(self.guess)
        if not values[order[0]] > enough:
            if self.point is None:
                self._certify(points[order[0]], values[order[0]])
            return
        improved, values = self._climb(points[order], values[order])
        for index in in_order(values, descending=True)[:keep]:
            if math.isinf(self.guess) or values[index] > self.guess + EQUAL * abs(self.guess):
                self._certify(improved[index], values[index])

    def _certify(self, point: Floats, value: float) -> None:
        proved = self.objective.certified_at(point)
        self.guess = max(self.guess, float(value))
        if proved > self.best:
            self.best, self.point = proved, point.copy()
            self.limit = float(_known(self.objective.over(point[None], point[None]))[0])

    def _climb(self, points: Floats, values: Floats) -> tuple[Floats, Floats]:
        """A pattern search from several points at once: one step along an axis, or a shorter step.

        It never looks at the clock, so that a search with more time starts from the same lower end.
        """
        step = np.full(len(points), 0.25)
        moves = np.zeros((2 * len(self.active), points.shape[1]))
        for k, variable in enumerate(self.active):
            moves[2 * k, variable], moves[2 * k + 1, variable] = self.width[variable], -self.width[variable]
        points = points.copy()
        for _ in range(40 if len(moves) else 0):
            trial = self._clipped(points[:, None, :] + step[:, None, None] * moves)
            found = self._values(trial.reshape(-1, points.shape[1])).reshape(len(points), -1)
            chosen = np.array([first_largest(row) for row in found])
            lanes = np.arange(len(points))
            better = found[lanes, chosen] > values + EQUAL * np.abs(values)
            points[better], values[better] = trial[lanes, chosen][better], found[lanes, chosen][better]
            step[~better] /= 4  # down to 1e-5 of the box: for a smooth maximum that is ten digits
            if step.max() < 1e-5:
                break
        return points, values

    # ------------------------------------------------------------------ from above

    @property
    def target(self) -> float:
        """A box with a bound this low need not be cut."""
        reached = self.best if math.isinf(self.limit) else max(self.best, self.limit)
        if math.isfinite(reached):
            reached += self.rtol * abs(reached)
        return max(self.floor, self.stuck, reached)

    def run(self, budget: Budget, batch: int, most: int, meter: ProgressBar) -> bool:
        """Cut the worst boxes until the bracket is narrow, the work is done or a box is hopeless; was it cut by time?

        What the proof of the cover will take is left over.
        """
        hurry, most_at_once = budget.deadline.within(_SEARCH), batch
        while self.tree.size < most:
            cost = self.objective.cost
            batch = int(np.clip(0.05 * budget.left / cost, _LEAST_BOXES, most_at_once))
            chosen = self._worst(batch)
            step = 2 * cost * max(len(chosen), _LEAST_BOXES)
            proof = PROOF_COST * cost * ((self.tree.size + 1) // 2 + len(chosen))
            if not len(chosen) or budget.left < step + proof:
                break
            if hurry.passed:
                return True
            budget.spend(step)
            if self._cut(chosen) is None:
                break
            if len(self.open):
                top = float(self.tree.bound[self.open].max())
                meter.at(self.boxes, f", {self.boxes} boxes, in [{self.best:.6g}, {top:.6g}]")
        budget.spend(PROOF_COST * self.objective.cost * ((self.tree.size + 1) // 2))
        return False

    def _worst(self, batch: int) -> Indices:
        """The open boxes with the largest bounds; of those without any bound the smallest, to learn why."""
        self.open = self.open[self.tree.bound[self.open] > self.target]
        bounds = self.tree.bound[self.open]
        unknown = self.open[np.isinf(bounds)]
        if len(unknown):
            return unknown[np.argsort(-self.tree.depth[unknown], kind="stable")[: min(batch, _UNBOUNDED_BOXES)]]
        return self.open if len(bounds) <= batch else self.open[np.argsort(-coarse(bounds), kind="stable")[:batch]]

    def _cut(self, chosen: Indices) -> Indices | None:
        """Cut these boxes; the new ones, or None where one that cannot be cut has no bound."""
        tree = self.tree
        lower, upper = tree.lower[chosen], tree.upper[chosen]
        variable, possible = self._variables(lower, upper, np.isinf(tree.bound[chosen]))
        self.open = np.setdiff1d(self.open, chosen, assume_unique=True)
        if not possible.all():
            self.stuck = max(self.stuck, float(tree.bound[chosen[~possible]].max()))
            if math.isinf(self.stuck):
                return None
            chosen, variable, lower, upper = chosen[possible], variable[possible], lower[possible], upper[possible]
        if not len(chosen):
            return chosen
        children = self._add_halves(chosen, variable, lower, upper)
        self.consider(self._clipped(middles(self.tree.lower[children], self.tree.upper[children])))
        return children

    def _add_halves(self, chosen: Indices, variable: Indices, lower: Floats, upper: Floats) -> Indices:
        tree, (lows, highs) = self.tree, halves(lower, upper, variable)
        own = _known(self.objective.over(lows, highs))
        self.boxes += len(own)
        bound = np.minimum(own, np.repeat(tree.bound[chosen], 2))
        children = tree.add(lows, highs, own, bound, np.repeat(tree.depth[chosen] + 1, 2))
        tree.cut[chosen], tree.child[chosen] = variable, children[::2]
        self.open = np.concatenate([self.open, children])
        return children

    def _variables(self, lower: Floats, upper: Floats, unknown: Bools) -> tuple[Indices, Bools]:
        """The variable to cut in each box, and whether there is one."""
        if not len(self.active):
            return np.zeros(len(lower), dtype=np.intp), np.zeros(len(lower), dtype=np.bool_)
        middle = middles(lower, upper)
        share = (upper - lower) / self.width
        possible = (middle > lower) & (middle < upper) & ((share > _THINNEST_SHARE) | ~unknown[:, None])
        score = share
        if self.smear is not None:
            weight = self.smear(lower, upper)
            usable = np.isfinite(weight).all(axis=1) & (weight.max(axis=1) > 0) & ~unknown
            # a little of the width, so that nothing is forgotten for ever
            weight = weight / np.where(usable, weight.max(axis=1), 1.0)[:, None]
            score = np.where(usable[:, None], weight + 0.05 * share, share)
        return heaviest(score, possible, self.active)

    def cover(self) -> Cover:
        """The coarsest cover that proves what the search reached."""
        level = max(self.tree.least(), self.floor)
        return Cover(self.tree.lower[0].copy(), self.tree.upper[0].copy(), self.tree.coarsest(level))
