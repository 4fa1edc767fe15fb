"""All stationary points of Phi in a box: each proved to exist and to be the only one in its box, the rest proved empty.

The box is cut until each piece is either without a zero of grad Phi, or proved by Krawczyk's test to hold exactly one.
Pieces are tested with a small margin around them, so that a point on the border of two of them is lost by neither. A
point found twice is told by the boxes in which it is the only one. What cannot be decided, such as a singular Hessian,
a kink, or the end of the budget, is returned as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from bilevel_sym import BilevelProblem, Box
from bilevel_sym.arithmetic.intervals import enclose
from bilevel_sym.arithmetic.ties import coarse
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.system.budget import Budget, Deadline, Effort, Stopwatch, deadline_of, scale_of
from bilevel_sym.system.memory import Memory, bytes_of, parts
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.typing import Bools, Floats, Indices
from verify.enclosures.branch_and_bound import PROOF_COST, SECOND
from verify.enclosures.cover import requested_box
from verify.enclosures.memory import BOXES_AT_ONCE, PhiMemory
from verify.enclosures.phi_boxes import PhiEnclosure
from verify.points.balls import ExactPoint, Root, exact_point, inertia, refine, simplest
from verify.points.boxes import Boxes, excluded, newton_image
from verify.points.point import Kind, StationaryPoint, as_point, bracket_of, continued, exact_result, named_box
from verify.regularity.structure.large import in_scalars

__all__ = ["Kind", "StationaryPoint", "StationaryPoints", "search", "stationary_points"]

BoxLike = Box | Mapping[str, Iterable[object]]

WORK = 20 * SECOND  # by default
SLICE = 0.3 * SECOND  # and no more than this much work, so that people in a hurry, and Ctrl-C, need not wait
MARGIN = 0.05  # of the width, around each box that is tested
CUT = 0.4877  # where a box is cut: symmetric problems have their points at the middle
NARROW = 2.0**-26  # of the whole box: not cut further
ACROSS = 8.0  # how much a side that lies across a switch is cut before the others
CURVE_WIDTH = 2.0**-12  # from here on many boxes mean a curve of points or a kink, which more cutting does not resolve
MOST_THIN = 2**13
MOST_BOXES = 2**17
SEARCH_STARTS = 24
NEWTON_STEPS = 40
CLUSTERS = 500
EFFORT, TIME, KINK, SINGULAR = (
    "the effort was spent",
    "cut by time",
    "f or g switches between pieces, or is not defined, there; or g is not strongly convex",
    "Hess Phi is singular there, or too nearly so",
)


@dataclass(frozen=True)
class StationaryPoints:
    """What a search found. ``stationary_points`` lists it; ``study_of(problem).stationary`` is the whole of it.

    - ``points``: those that are proved.
    - ``undecided``: boxes that may hold more.
    - ``message``: why they are undecided.
    - ``boxes``: how many pieces of the box it took.
    - ``seconds``: how long it took.
    - ``cut``: time, and not the effort, ended the search.
    - ``clusters``: undecided boxes that touch, joined.
    - ``problem``: the problem.
    - ``box``: in which was searched.

    >>> from verify import study_of
    >>> problem = BilevelProblem("x*y - y", "y**2/2 - x*y", "x", "y", box={"x": (-2, 2), "y": (-3, 3)})
    >>> found = study_of(problem).stationary
    >>> found.complete, len(found.points), found.undecided
    (True, 1, ())
    """

    points: tuple[StationaryPoint, ...]
    undecided: tuple[Box, ...]
    message: str
    boxes: int
    seconds: float
    cut: bool = False
    clusters: tuple[StationaryPoint, ...] = field(default=(), repr=False)
    problem: BilevelProblem | None = field(default=None, repr=False)
    box: Box | None = field(default=None, repr=False)

    @property
    def complete(self) -> bool:
        """Whether the points are proved to be all in the box."""
        return not self.undecided

    def save(self, path: str | os.PathLike[str], *, progress: bool = False) -> None:
        """Write the points, and that there are no others, as a JSON file that ``recheck`` proves again."""
        from verify.certificates.saving import save_stationary

        save_stationary(self, path, progress)

    def __iter__(self) -> Iterator[StationaryPoint]:
        return iter(self.points)

    def __str__(self) -> str:
        count = f"{len(self.points)} stationary point{'s' * (len(self.points) != 1)}"
        rest = "and no others in the box" if self.complete else f"and perhaps others: {self.message}"
        return "\n".join([f"{count}, {rest}", *(f"  {p}" for p in (*self.points, *self.clusters))])


def stationary_points(
    problem: BilevelProblem,
    box: BoxLike | None = None,
    *,
    effort: Effort = "default",
    seconds: float | Deadline | None = None,
    memory: Memory = "2GB",
    progress: bool = False,
) -> list[StationaryPoint]:
    """All stationary points of Phi in a box in x; what is undecided is among them, with ``proved`` false.

    A point exactly on the border of the box counts. The kinds rest on certified eigenvalues of Hess Phi.

    - ``problem``: the problem.
    - ``box``: by default the problem's; it may hold y too, which is not looked at.
    - ``effort``: how many boxes may be tried: "quick", "default", "thorough", or a multiple of the default.
    - ``seconds``: a limit of time; what it cuts says so.
    - ``memory``: "2GB", "500 MB" or bytes; what does not fit is refused before it is begun (TooLarge).
    - ``progress``: whether a terminal shows how far it is.

    >>> from bilevel_sym import zoo
    >>> for point in stationary_points(zoo.get("saddle").problem):
    ...     print(point)
    x1 = -2, x2 = 0: local minimum, eigenvalues 0.125, 1
    x1 = 0, x2 = 0: saddle, eigenvalues -1, 1
    x1 = 2, x2 = 0: local minimum, eigenvalues 0.125, 1
    """
    found = search(problem, box, effort=effort, seconds=seconds, memory=memory, progress=progress)
    return [*found.points, *found.clusters]


def search(
    problem: BilevelProblem,
    box: BoxLike | None = None,
    *,
    effort: Effort = "default",
    seconds: float | Deadline | None = None,
    memory: Memory = "2GB",
    progress: bool = False,
) -> StationaryPoints:
    """The same with what the search has to say: is it complete, and if not, why.

    >>> from bilevel_sym import zoo
    >>> print(search(zoo.get("scalar").problem))
    2 stationary points, and no others in the box
      x = -0.4142135624: local minimum, eigenvalue 2.06066
      x = 2.414213562: local maximum, eigenvalue -0.0606602
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(f"a search wants a problem, but was given a {type(problem).__name__}")
    if problem.is_array:
        problem, box = in_scalars(problem, box)
    exact, scale = problem.mean, scale_of(effort)
    chosen = requested_box(problem, box, "the search belongs")
    inside = Box({s.name: chosen[s.name] for s in exact.x})
    room = bytes_of(memory)
    PhiMemory.of(exact).require(room, scale * WORK, WORK, third=False)
    _ = exact.kernels  # compiled, where they are not yet, before the clock starts
    corners = [inside.midpoint, inside.lower, inside.upper]
    exact.kernels.refuse_kinked(np.array([[float(end) for end in row] for row in corners]))
    return _Search(exact, inside, Budget(scale * WORK, deadline_of(seconds)), room, progress).run()


@dataclass(frozen=True, eq=False)
class _Known:
    """A root, and a box in x in which it is the only one."""

    root: Root
    lower: Floats
    upper: Floats

    def holds(self, lower: Floats, upper: Floats) -> Bools:
        """Which boxes lie inside."""
        return np.asarray(((lower >= self.lower) & (upper <= self.upper)).all(axis=-1))


@dataclass(eq=False)
class _Search:
    """One search: the roots that are known, and the boxes that were given up."""

    problem: BilevelProblem
    box: Box
    budget: Budget
    memory: int
    progress: bool = False
    known: list[_Known] = field(default_factory=list)
    given_up: list[tuple[Floats, Floats]] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)
    tested: int = 0

    def __post_init__(self) -> None:
        self.given, self.problem = self.problem, continued(self.problem)
        self.boxes = Boxes(self.problem, self.memory)
        self.lanes = min(int(np.clip(SLICE / self.boxes.cost(), 8, BOXES_AT_ONCE)), self.boxes.lanes())
        ends = [(enclose(int(lo.p), int(lo.q))[0], enclose(int(hi.p), int(hi.q))[1]) for lo, hi in self.box]
        self.lower, self.upper = (np.array([end[k] for end in ends]) for k in (0, 1))
        scale = np.maximum(np.abs(self.lower), np.abs(self.upper))
        # a side without width, or thinner than rounding, is not cut
        self.least = np.maximum(NARROW * (self.upper - self.lower), 1e-14 * scale) + 1e-300

    def run(self) -> StationaryPoints:
        watch = Stopwatch()
        shown = ProgressBar("looking for stationary points", shown=self.progress)
        with np.errstate(all="ignore"), shown as meter:
            self._from_starts()
            self._cut_down(meter)
        found = [as_point(self.given, item.root, self.box, alone=(item.lower, item.upper)) for item in self.known]
        points = [point for point in found if point is not None]
        clusters = [self._cluster(*ends) for ends in self._clusters()]
        points += [cluster for cluster in clusters if cluster.proved]
        return StationaryPoints(
            points=tuple(sorted(points, key=self._place)),
            undecided=tuple(c.box for c in clusters),
            message="; ".join(sorted(self.reasons)),
            boxes=self.tested,
            seconds=watch.elapsed,
            cut=TIME in self.reasons,
            clusters=tuple(c for c in clusters if not c.proved),
            problem=self.given,
            box=self.box,
        )

    # ---- where float64 finds something ------------------------------------------------------------

    def _from_starts(self) -> None:
        """Newton's method from a few points: what it finds need not be found by cutting.

        Half of them go against the sign of the curvature, so that they find minima.
        """
        rng = np.random.default_rng(0)
        x = self.lower + (self.upper - self.lower) * rng.random((2 * SEARCH_STARTS, self.problem.d))
        x[0] = 0.5 * (self.lower + self.upper)
        for reach in 0.25 * 0.85 ** np.arange(NEWTON_STEPS)[:, None] * (self.upper - self.lower):
            try:
                y = self.problem.kernels.one_sided.y_star(x)
                _, grad, hess = self.problem.kernels.one_sided.expansion(x, y)
                values, vectors = np.linalg.eigh(hess)
                values[SEARCH_STARTS:] = np.abs(values[SEARCH_STARTS:])
                slope = (vectors.swapaxes(1, 2) @ grad[:, :, None])[:, :, 0]
                step = (vectors @ (slope / np.where(values == 0, 1e-300, values))[:, :, None])[:, :, 0]
            except (BilevelError, np.linalg.LinAlgError):
                return
            # no step is longer than a share of the box that shrinks, so that none goes back and forth for ever
            x = np.clip(np.where(np.isfinite(step), x - np.clip(step, -reach, reach), x), self.lower, self.upper)
        small = (np.abs(step) <= 1e-4 * (self.upper - self.lower) + 1e-9 * np.abs(x)).all(axis=1)
        for lane in np.flatnonzero(small):
            if self.budget.deadline.passed:
                return
            self._take(x[lane], y[lane], None)

    def _take(self, x: Floats, y: Floats, inside: tuple[Floats, Floats] | None) -> bool:
        """Prove the root next to x, and remember it with the box in which it is the only one."""
        if any(item.holds(x, x) for item in self.known):
            return True
        root = refine(self.problem, x.tolist(), y.tolist())
        if root is None:
            return False
        lower, upper = _ends(root)
        if inside is not None and not ((lower > inside[0]) & (upper < inside[1])).all():
            return False  # another one, next door
        alone = inside or self._one_root_around(0.5 * (lower + upper))
        if alone is None:
            return False
        if not any(item.holds(lower, upper) for item in self.known):
            self.known.append(_Known(root, *alone))
        return True

    def _one_root_around(self, x: Floats) -> tuple[Floats, Floats] | None:
        """The largest box around x, of several, in which Krawczyk's test proves one root."""
        width = np.maximum(self.upper - self.lower, 1e-6 * (1 + np.abs(x)))
        radii = width * 2.0 ** -np.arange(1, 25)[:, None]
        lower, upper = x - radii, x + radii
        images = [
            newton_image(self.boxes.enclose(lower[part], upper[part], proved=True))
            for part in parts(len(lower), self.boxes.lanes())
        ]
        k_lower, k_upper = (np.concatenate(ends) for ends in zip(*images, strict=True))
        good = ((k_lower > lower) & (k_upper < upper)).all(axis=1)
        if not good.any():
            return None
        first = int(np.argmax(good))
        return lower[first], upper[first]

    # ---- the proof that there are no others -------------------------------------------------------

    def _cut_down(self, meter: ProgressBar) -> None:
        lower, upper = self.lower[None, :], self.upper[None, :]
        while len(lower):
            width = ((upper - lower) / np.maximum(self.upper - self.lower, 1e-300)).max(axis=1)
            if len(lower) > MOST_BOXES or (len(lower) > MOST_THIN and np.median(width) < CURVE_WIDTH):
                self.given_up.append((lower, upper))
                self.reasons.add("more boxes are left than are worth cutting: a curve of points, or a kink")
                return
            parts: list[tuple[Floats, Floats]] = []
            start = 0
            while start < len(lower):
                if not self.budget.allows(self.boxes.cost()):
                    self.given_up += [(lower[start:], upper[start:]), *parts]
                    self.reasons.add(TIME if self.budget.cut else EFFORT)
                    return
                stop = start + self.lanes
                parts.append(self._cut(*self._tested(lower[start:stop], upper[start:stop])))
                start = stop
            lower, upper = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
            meter.at(self.tested, f", {self.tested} boxes, {len(lower)} left, {len(self.known)} points")

    def _tested(self, lower: Floats, upper: Floats) -> tuple[Floats, Floats, Floats]:
        """What is left of the boxes, and how much each side matters."""
        for item in self.known:
            left = ~item.holds(lower, upper)
            lower, upper = lower[left], upper[left]
        self.tested += len(lower)
        self.budget.spend(self.boxes.cost() * max(8, len(lower)))
        if not len(lower):
            return lower, upper, lower
        margin = MARGIN * (upper - lower) + self.least
        wide = lower - margin, upper + margin
        found = self.boxes.enclose(*wide)
        gone, inside, low, high = self._said(found, lower, upper, wide)
        told = gone | inside | ((high - low) < 0.7 * (upper - lower)).any(axis=1)
        if self.boxes.elementary and told.any():
            self.budget.spend(PROOF_COST * self.boxes.cost() * int(told.sum()))
            # only what the proved arithmetic says is taken: elsewhere nothing is gone, and the box is whole
            again = self.boxes.enclose(wide[0][told], wide[1][told], proved=True)
            proved = self._said(again, lower[told], upper[told], (wide[0][told], wide[1][told]))
            gone, inside, low, high = np.zeros_like(gone), np.zeros_like(inside), lower.copy(), upper.copy()
            for array, part in zip((gone, inside, low, high), proved, strict=True):
                array[told] = part
        else:
            low, high = (np.where(told[:, None], new, old) for new, old in ((low, lower), (high, upper)))
        y = found.y.middle[:, :, 0]
        for lane in np.flatnonzero(inside & ~gone):
            gone[lane] = self._take(0.5 * (low[lane] + high[lane]), y[lane], (wide[0][lane], wide[1][lane]))
        weight = self._weights(found, upper - lower)
        if self.boxes.has_kinks and (open_ := np.flatnonzero(~found.ok & ~gone)).size:
            if self.boxes.has_hull:
                gone[open_] = self.boxes.hull_excluded(lower[open_], upper[open_], y[open_])
            if self.problem.d > 1:
                weight[open_] *= np.where(self.boxes.straddling(lower[open_], upper[open_]), ACROSS, 1.0)
        tiny = ((upper - lower) <= self.least).all(axis=1) & ~gone
        if tiny.any():
            self.given_up.append((lower[tiny], upper[tiny]))
            self.reasons |= {SINGULAR if ok else KINK for ok in found.ok[tiny]}
        left = ~gone & ~tiny
        return low[left], high[left], weight[left]

    def _said(
        self, found: PhiEnclosure, lower: Floats, upper: Floats, wide: tuple[Floats, Floats]
    ) -> tuple[Bools, Bools, Floats, Floats]:
        """Which boxes hold no root, which hold one (with their margin), and what is left of the others."""
        k_lower, k_upper = newton_image(found)
        low, high = np.maximum(lower, k_lower), np.minimum(upper, k_upper)
        gone = excluded(found) | (found.ok & (low > high).any(axis=1))
        inside = found.ok & ((k_lower > wide[0]) & (k_upper < wide[1])).all(axis=1)
        whole = gone[:, None] | ~found.ok[:, None]
        return gone, inside, np.where(whole, lower, low), np.where(whole, upper, high)

    def _weights(self, found: PhiEnclosure, width: Floats) -> Floats:
        """How much cutting each side would help: by its share in grad Phi, or by its width where that is unknown."""
        plain = width / np.maximum(self.upper - self.lower, 1e-300)
        smear = width * found.hess.magnitude.max(axis=1)
        known = found.ok & np.isfinite(smear).all(axis=1) & (smear > 0).any(axis=1)
        weight = np.where(known[:, None], smear, plain)
        return np.where(width > self.least, weight + 1e-300, 0.0)

    def _cut(self, lower: Floats, upper: Floats, weight: Floats) -> tuple[Floats, Floats]:
        """Each box in two, across its heaviest side."""
        if not len(lower):
            return lower, upper
        # seven digits of the weight: sides that matter alike to within rounding are cut in their order
        lane, axis = np.arange(len(lower)), coarse(weight).argmax(axis=1)
        at = lower[lane, axis] + CUT * (upper[lane, axis] - lower[lane, axis])
        left, right = upper.copy(), lower.copy()
        left[lane, axis] = right[lane, axis] = at
        return np.concatenate([lower, right]), np.concatenate([left, upper])

    # ---- results ----------------------------------------------------------------------------------

    def _place(self, point: StationaryPoint) -> tuple[int, ...]:
        """Points in the order of x1, then x2, ...; what differs by rounding alone is equal."""
        share = (np.array(point.x) - self.lower) / np.maximum(self.upper - self.lower, 1e-300)
        return tuple(np.rint(1e9 * share).astype(np.int64).tolist())

    def _clusters(self) -> list[tuple[Floats, Floats]]:
        if not self.given_up:
            return []
        lower, upper = (np.concatenate([part[k] for part in self.given_up]) for k in (0, 1))
        for item in self.known:  # proved after the box was given up
            left = ~item.holds(lower, upper)
            lower, upper = lower[left], upper[left]
        return clusters(lower, upper, self.lower, self.upper)

    def _cluster(self, lower: Floats, upper: Floats) -> StationaryPoint:
        box = named_box(self.box, lower, upper)
        narrow = bool(((upper - lower) <= CURVE_WIDTH * (self.upper - self.lower) + 1e-300).all())
        exact = self._exact(box) if narrow else None
        if exact is not None:
            return exact_result(exact, box)
        x = 0.5 * (lower + upper)
        return StationaryPoint(
            x=tuple(x.tolist()), y=(), v=(), kind="undecided", box=box, proved=False,
            radius=float((0.5 * (upper - lower)).max()), message="; ".join(sorted(self.reasons)),
        )  # fmt: skip

    def _exact(self, box: Box) -> ExactPoint | None:
        """The simplest point of a narrow box, if it is exactly stationary with a singular Hessian."""
        inside = [(max(lo, a), min(hi, b)) for (lo, hi), (a, b) in zip(self.box, box, strict=True)]
        if any(lo > hi for lo, hi in inside):
            return None
        point = exact_point(self.problem, [simplest(lo, hi) for lo, hi in inside])
        return point if point is not None and inertia(point.hess)[2] else None


def clusters(lower: Floats, upper: Floats, low: Floats, high: Floats) -> list[tuple[Floats, Floats]]:
    """Boxes that touch, as one box around them; very many are first gathered on a grid over [low, high].

    >>> ends = clusters(np.array([[0.0], [1.0], [3.0]]), np.array([[1.0], [2.0], [4.0]]), np.zeros(1), np.ones(1) * 4)
    >>> [(float(a[0]), float(b[0])) for a, b in ends]
    [(0.0, 2.0), (3.0, 4.0)]
    """
    cells = 64
    while len(lower) > CLUSTERS and cells:
        place = np.floor((0.5 * (lower + upper) - low) / np.maximum(high - low, 1e-300) * cells).clip(0, cells - 1)
        _, group = np.unique(place, axis=0, return_inverse=True)
        lower, upper = _hulls(lower, upper, group.ravel())
        cells //= 2
    while len(lower):
        touch = ((lower[:, None] <= upper[None]) & (lower[None] <= upper[:, None])).all(axis=-1)
        group = touch.argmax(axis=1)  # the first box that it touches
        if len(np.unique(group)) == len(lower):
            break
        lower, upper = _hulls(lower, upper, group)
    return list(zip(lower, upper, strict=True))


def _hulls(lower: Floats, upper: Floats, group: Indices) -> tuple[Floats, Floats]:
    order = np.argsort(group, kind="stable")
    first = np.unique(group[order], return_index=True)[1]
    return np.minimum.reduceat(lower[order], first), np.maximum.reduceat(upper[order], first)


def _ends(root: Root) -> tuple[Floats, Floats]:
    brackets = [bracket_of(ball) for ball in root.x]
    return np.array([b.lower for b in brackets]), np.array([b.upper for b in brackets])
