"""Upper bounds of the blocks of derivatives of a formula over a region, from its quadratic form and its parts.

A derivative of a part is a sum over places i of a weight w_i times products a_i.u of rows with the directions. With two
of the rows in the Euclidean norm and the others in the largest entry,

    |sum_i w_i prod_s (a_si . u_s)| <= |diag(c)**(1 - t) A_p| |diag(c)**t A_q|,   c_i = |w_i| prod_{s not p, q} |a_si|,

for unit vectors u_s, by Cauchy and Schwarz. Second derivatives are bounded as matrices: A^T diag(w) A lies between
the same with the smallest and with the largest weights, so that eigenvalues of sums are not sums of eigenvalues.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np

from bilevel_sym.arithmetic.intervals import Pair
from bilevel_sym.arrays.calculus import gradient
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.typing import Floats
from verify.enclosures.interval_matrix import ROUNDED_UP, Matrices
from verify.regularity.structure.measured import SOFT, MeasuredPart, Slot
from verify.regularity.structure.recognition import Formula
from verify.regularity.structure.repeated import Repeated
from verify.regularity.structure.rows import Layout, Rows
from verify.regularity.structure.tensors import exact

__all__ = ["BlockBounds", "Region"]

LARGEST_CROSS = 4_000_000  # entries of a mixed block that is formed
BESIDE_DIAGONAL = 1e-290  # sums of what rounding is told to leave where it leaves nothing


@dataclass(frozen=True, eq=False)
class Region:
    """The ends of all entries of x and of y, infinite where they are free.

    >>> region = Region({"x": np.zeros(1), "y": np.array([-np.inf])}, {"x": np.ones(1), "y": np.array([np.inf])})
    >>> region.lower["y"].tolist()
    [-inf]
    """

    lower: dict[str, Floats]
    upper: dict[str, Floats]


class BlockBounds:
    """Bounds of the blocks of one formula over one region; blocks are named by their axes, "xyy" or "zz"."""

    def __init__(self, formula: Formula, layout: Layout, region: Region) -> None:
        self.formula, self.layout, self.region = formula, layout, region
        self.parts = [MeasuredPart(part, layout, region.lower, region.upper) for part in formula.parts]

    def norm(self, axes: str) -> float:
        """An upper bound of the norm of a block over the region; infinite where there is none."""
        with np.errstate(all="ignore"):
            if len(axes) == 1:
                return math.hypot(*(self._gradient(role) for role in _roles(axes))) * ROUNDED_UP
            if axes == "zz":
                return _joined(*(self._second(pair) for pair in ("xx", "xy", "yy")))
            if len(axes) == 2:
                return self._second(axes)
            return sum(self._higher(part, axes) for part in self.parts) * ROUNDED_UP

    def curvature(self, role: str) -> tuple[float, float]:
        """A lower bound of the smallest and an upper bound of the largest eigenvalue of the block of one role."""
        with np.errstate(all="ignore"):
            return self._curvature(role).eigenvalues()

    # ---- first derivatives ----------------------------------------------------------------------------------------

    def _gradient(self, role: str) -> float:
        size = self.layout.counts[role]
        middle, radius = self._slope_of_quadratic(role)
        away = float(np.sqrt(np.square(radius).sum())) * ROUNDED_UP
        for part in self.parts:
            for slot in part.slots(role):
                own, further = _pushed(part, slot)
                away += further
                if own is not None:
                    middle = middle + own
                    away += 3e-16 * float(np.abs(middle).sum() + np.abs(own).sum())
        if not math.isfinite(away):
            return math.inf
        noise = (size + 16) * 1.2e-16
        return (float(np.sqrt(np.square(middle).sum())) * (1 + noise) + away) * ROUNDED_UP

    def _slope_of_quadratic(self, role: str) -> tuple[Floats, Floats]:
        """The gradient of the quadratic: middle and radius of every entry."""
        values = {leaf.name: exact(np.zeros(self.layout.evaluation.shape(leaf.dims))) for leaf in self._variables}
        at_zero = self.layout.evaluation.with_values(values)
        middle, radius = np.zeros((2, self.layout.counts[role]))
        for leaf in self._leaves(role):
            found = at_zero(gradient(self.formula.quadratic, leaf))
            span = self.layout.spans[role][leaf.name]
            middle[span], radius[span] = found.middle.ravel(), found.radius.ravel()
        for other in "xy":
            matrix = self.hessians.get((role, other))
            if matrix is not None:
                low, high = _times(matrix, self.region.lower[other], self.region.upper[other])
                middle = middle + np.where(np.isfinite(low + high), 0.5 * low + 0.5 * high, 0.0)
                radius = radius + np.where(np.isfinite(low + high), (high - low) * 0.5 * ROUNDED_UP + 1e-300, np.inf)
        noise = 4e-16 * np.abs(middle)
        return middle, (radius + noise) * ROUNDED_UP

    @cached_property
    def _variables(self) -> tuple[Leaf, ...]:
        return tuple(
            sorted((leaf for leaf in self.formula.quadratic.leaves if leaf.role in "xy"), key=lambda leaf: leaf.name)
        )

    def _leaves(self, role: str) -> list[Leaf]:
        return [leaf for leaf in self._variables if leaf.role == role]

    # ---- second derivatives ---------------------------------------------------------------------------------------

    @cached_property
    def hessians(self) -> dict[tuple[str, str], Matrices]:
        """The second derivatives of the quadratic, by the roles of their axes; those that vanish are missing."""
        found: dict[tuple[str, str], Matrices] = {}
        for pair in (("x", "x"), ("x", "y"), ("y", "x"), ("y", "y")):
            blocks = [
                (one, two, block)
                for one in self._leaves(pair[0])
                for two in self._leaves(pair[1])
                if not (block := gradient(gradient(self.formula.quadratic, one), two)).is_zero
            ]
            if blocks:
                found[pair] = self._placed(pair, blocks)
        return found

    def _placed(self, pair: tuple[str, str], blocks: Sequence[tuple[Leaf, Leaf, Tensor]]) -> Matrices:
        shape = tuple(self.layout.counts[role] for role in pair)
        self.layout.evaluation.shape(tuple(map(str, shape)))
        middle, radius = np.zeros((2, *shape))
        for one, two, block in blocks:
            value = self.layout.evaluation(block)
            spans = self.layout.spans[pair[0]][one.name], self.layout.spans[pair[1]][two.name]
            size = spans[0].stop - spans[0].start
            middle[spans], radius[spans] = (part.reshape(size, -1) for part in (value.middle, value.radius))
        return Matrices(middle[None], radius[None])

    def _second(self, axes: str) -> float:
        if axes[0] == axes[1]:
            least, most = self._curvature(axes[0]).eigenvalues()
            return max(-least, most, 0.0)
        return self._cross()

    def _curvature(self, role: str) -> _Curvature:
        found = _Curvature(self.layout.counts[role])
        if (role, role) in self.hessians:
            found.add_matrix(self.hessians[role, role])
        for part in self.parts:
            slots = part.slots(role)
            for one, two in product(slots, repeat=2):
                if one is two:
                    found.add_pure(one.rows, part.weights([one, two]))
                elif slots.index(one) < slots.index(two):
                    found.slack += 2 * self._bounded(part, [one, two]) * ROUNDED_UP
        return found

    def _cross(self) -> float:
        """The mixed block: with the weights in the middle of their ranges it is a matrix, the rest is an error."""
        d, n = self.layout.counts["x"], self.layout.counts["y"]
        away, middle = 0.0, self.hessians.get(("x", "y"))
        for part in self.parts:
            for one, two in product(part.slots("x"), part.slots("y")):
                if one.number == SOFT or two.number == SOFT or d * n > LARGEST_CROSS or part.count * (d + n) > 10**7:
                    away += self._bounded(part, [one, two])
                    continue
                low, high = part.weights([one, two])
                centre = np.where(np.isfinite(low + high), 0.5 * low + 0.5 * high, 0.0)
                radius = np.maximum(high - centre, centre - low) * ROUNDED_UP
                away += _hoelder([one.rows, two.rows], radius)
                left = one.rows.dense()
                scaled = Matrices(
                    left.middle * centre[None, :, None],
                    left.radius * np.abs(centre)[None, :, None] * ROUNDED_UP
                    + np.abs(left.middle * centre[None, :, None]) * 3e-16,
                )
                own = scaled.T @ two.rows.dense()
                middle = own if middle is None else middle + own
        norm = 0.0 if middle is None else float(middle.norm_upper()[0])
        return (norm + away) * ROUNDED_UP

    # ---- higher ones ----------------------------------------------------------------------------------------------

    def _higher(self, part: MeasuredPart, axes: str) -> float:
        """All ways to hand the directions to the affine forms of a part; equal ones are counted."""
        every = product(*([(role, k) for k in range(len(part.slots(role)))] for role in axes))
        ways = Counter(tuple(sorted(way)) for way in every)
        parts = (times * self._bounded(part, [part.slots(r)[k] for r, k in way]) for way, times in ways.items())
        return sum(parts) * ROUNDED_UP

    def _bounded(self, part: MeasuredPart, slots: Sequence[Slot]) -> float:
        low, high = part.weights(slots)
        return _hoelder([slot.rows for slot in slots], np.maximum(np.abs(low), np.abs(high)))


class _Curvature:
    """A symmetric matrix that is known to lie between two others, plus a slack: eigenvalues of all that it may be."""

    def __init__(self, size: int) -> None:
        self.size, self.slack = size, 0.0
        self.ends: list[Floats] = [np.zeros(size), np.zeros(size)]  # of the diagonal
        self.matrices: list[Matrices | None] = [None, None]
        self.repeated: list[Repeated | None] = [None, None]
        self.open = [False, False]

    def add_matrix(self, matrix: Matrices) -> None:
        diagonal = _diagonal_ends(matrix)
        for side in (0, 1):
            if diagonal is None:
                self._add(side, matrix)
            else:
                self.ends[side] = _added(self.ends[side], diagonal[side], side)

    def _add(self, side: int, matrix: Matrices) -> None:
        own = self.matrices[side]
        self.matrices[side] = matrix if own is None else own + matrix

    def _repeat(self, side: int, found: Repeated) -> None:
        own = self.repeated[side]
        both = found if own is None else own.plus(found)
        if both is None:
            self._add(side, found.expanded(self.size))
        else:
            self.repeated[side] = both

    def add_pure(self, rows: Rows, weights: Pair) -> None:
        """A^T diag(w) A for all weights between two ends."""
        for side in (0, 1):
            own = np.where(rows.used, weights[side], 0.0)
            if not np.isfinite(own).all():
                self.open[side] = True
                continue
            if not own.any():
                continue
            found = rows.gram(own, up=bool(side))
            if isinstance(found, Matrices):
                self._add(side, found)
            elif isinstance(found, Repeated):
                self._repeat(side, found)
            else:
                self.ends[side] = _added(self.ends[side], found[side], side)

    def eigenvalues(self) -> tuple[float, float]:
        """A lower bound of the smallest and an upper bound of the largest."""
        least = -math.inf if self.open[0] else self._extreme(0) - self.slack * ROUNDED_UP
        most = math.inf if self.open[1] else self._extreme(1) + self.slack * ROUNDED_UP
        return (math.nextafter(least, -math.inf) if self.slack else least), most

    def _extreme(self, side: int) -> float:
        matrix, ends, repeated = self.matrices[side], self.ends[side], self.repeated[side]
        if matrix is not None:
            whole = matrix if repeated is None else matrix + repeated.expanded(self.size)
            return _outermost(whole + Matrices.around(np.diag(ends)[None]), side)
        if repeated is None:
            return float(ends.max() if side else ends.min())
        lanes, beside = repeated.with_diagonal(ends)
        return float((max if side else min)([_outermost(lanes, side), *beside.tolist()]))


def _outermost(matrices: Matrices, side: int) -> float:
    """A bound of the eigenvalues of all lanes, from below or from above."""
    whole = matrices.symmetric_part()
    return float(whole.largest_eigenvalue_upper().max() if side else whole.smallest_eigenvalue_lower().min())


def _diagonal_ends(matrix: Matrices) -> Pair | None:
    """The ends of a diagonal between which a matrix lies that has nothing beside it but what rounding is told to leave.

    A symmetric matrix whose rows sum to at most s in absolute values lies between -s and s (Gershgorin).
    """
    beside = matrix.magnitude[0].copy()
    np.fill_diagonal(beside, 0.0)
    most = float(beside.sum(axis=1).max(initial=0.0))
    if most > BESIDE_DIAGONAL:
        return None
    low, high = (np.diagonal(end[0]) for end in (matrix.lower, matrix.upper))
    return np.nextafter(low - BESIDE_DIAGONAL, -np.inf), np.nextafter(high + BESIDE_DIAGONAL, np.inf)


def _added(one: Floats, two: Floats, side: int) -> Floats:
    """Rounded outward; sums with zero are exact."""
    total = one + two
    away = np.nextafter(total, np.inf if side else -np.inf)
    return np.where((one == 0) | (two == 0), total, away)


def _roles(axes: str) -> str:
    return "xy" if axes == "z" else axes


def _joined(a: float, b: float, c: float) -> float:
    """The norm of ((a, b), (b, c)), which bounds that of a matrix with blocks of these norms."""
    if not all(map(math.isfinite, (a, b, c))):
        return math.inf
    return ((a + c) / 2 + math.hypot((a - c) / 2, b)) * ROUNDED_UP


def _times(matrix: Matrices, lower: Floats, upper: Floats) -> Pair:
    size = matrix.middle.shape[1]
    return Rows(size, matrix.middle.shape[2], None, 1, matrix).over(lower, upper)


def _hoelder(rows: Sequence[Rows], sizes: Floats) -> float:
    """A bound of sum_i sizes_i prod_s |a_si . u_s| over unit vectors, for two factors or more."""
    if not sizes.any():
        return 0.0
    best = math.inf
    tried: set[tuple[int, ...]] = set()
    for p, q in combinations(range(len(rows)), 2):
        others = [rows[s] for s in range(len(rows)) if s not in (p, q)]
        key = (*sorted((id(rows[p]), id(rows[q]))), *sorted(map(id, others)))
        if key in tried:
            continue
        tried.add(key)
        weights = sizes
        for other in others:
            weights = _product(weights, other.norms)
        best = min(best, _paired(rows[p], rows[q], weights))
    return best * ROUNDED_UP


def _product(one: Floats, two: Floats) -> Floats:
    """Rounded up; nothing times anything is nothing."""
    return np.where((one == 0) | (two == 0), 0.0, one * two * ROUNDED_UP)


def _paired(one: Rows, two: Rows, weights: Floats) -> float:
    root = np.sqrt(weights) * ROUNDED_UP
    if one is two:
        return one.weighted_norm(root) ** 2 * ROUNDED_UP
    plain = np.ones_like(weights) * (weights > 0)
    ways = ((root, root), (weights, plain), (plain, weights))
    return min(one.weighted_norm(a) * two.weighted_norm(b) for a, b in ways) * ROUNDED_UP


def _pushed(part: MeasuredPart, slot: Slot) -> tuple[Floats | None, float]:
    """A^T w for all weights in their ranges: the middle, and how far any other may be from it."""
    low, high = part.weights([slot])
    rows = slot.rows
    used = rows.used
    low, high = np.where(used, low, 0.0), np.where(used, high, 0.0)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None, math.inf
    centre = 0.5 * low + 0.5 * high if slot.number != SOFT else np.zeros_like(low)
    radius = np.maximum(high - centre, centre - low) * ROUNDED_UP
    length = float(np.sqrt(np.square(radius).sum())) * (1 + (len(radius) + 16) * 1.2e-16)
    away = min(rows.weighted_norm(np.ones(rows.count)) * length, float((radius * rows.norms).sum()) * 1.000001)
    if slot.number == SOFT:
        return None, away * ROUNDED_UP
    if rows.matrix is None and rows.at is None:
        assert rows.entries is not None
        assert rows.columns is not None
        reach = np.bincount(rows.columns, weights=rows.entries.magnitude * radius, minlength=rows.size)
        away = min(away, float(np.sqrt(np.square(reach).sum())) * 1.000001)
        middle = np.asarray(np.bincount(rows.columns, rows.entries.middle * centre, rows.size), dtype=np.float64)
        size = np.bincount(rows.columns, weights=rows.entries.magnitude * np.abs(centre), minlength=rows.size)
        wrong = float(np.sqrt(np.square(size).sum())) * (len(centre) + 16) * 1.2e-16
        return middle, (away + wrong + _radius_part(rows.entries.radius, centre)) * ROUNDED_UP
    dense = rows.dense()
    image = dense.T @ Matrices.around(centre[None, :, None])
    reach = np.abs(dense.middle[0]).T @ radius + dense.radius[0].T @ radius
    away = min(away, float(np.sqrt(np.square(reach).sum())) * 1.000001)
    return image.middle[0, :, 0], (away + float(np.sqrt(np.square(image.radius).sum())) * 1.000001) * ROUNDED_UP


def _radius_part(radius: Floats, centre: Floats) -> float:
    return float((radius * np.abs(centre)).sum()) * 1.000001
