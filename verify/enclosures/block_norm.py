"""Objectives for branch and bound: the norm of a block of derivatives, and the curvature of g in y."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any

import numpy as np
from flint import arb, fmpq

from bilevel_sym import Box
from bilevel_sym.arithmetic.arrays import ArrayProgram
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.boxes import IntervalProgram, IntervalSession, Operations
from bilevel_sym.arithmetic.intervals import enclose
from bilevel_sym.arithmetic.pieces.patterns import Split, needed_by
from bilevel_sym.graph.nodes import ZERO_FORM
from bilevel_sym.graph.program import Program, build
from bilevel_sym.implicit.model import Model
from bilevel_sym.system.memory import parts
from bilevel_sym.typing import Floats
from verify.enclosures.cover import middles
from verify.enclosures.interval_matrix import MOST_PARTS, Matrices, Pencil
from verify.enclosures.memory import TABLE, require_size, vanishes
from verify.enclosures.ridges import Ridges, mean_value_form, ridges_of, smooth_operations
from verify.enclosures.tensor_norm import Group, largest_values, norm_lower, norm_upper

__all__ = ["Block", "BlockNorm", "Curvature", "ExactBox"]

Pair = tuple[IntervalProgram, IntervalProgram]
EXACT_ENDS_BITS = 128
_ROUNDED_MORE = 1 + 1e-15
_PARTS, _RIDGES, _GUARD = "parts", "ridges", "guard"
_AFFORDABLE = 700  # entries of a derivative that the mean-value form may ask for


@dataclass(frozen=True)
class ExactBox:
    """A box with exact ends, and the floats around and inside it.

    >>> region = ExactBox(Box({"x": ("1/3", "2/3")}))
    >>> bool(region.lower[0] < region.inside[0][0]), region.holds(np.array([0.5])), region.holds(region.lower)
    (True, True, False)
    """

    box: Box

    @cached_property
    def _ends(self) -> Floats:
        return np.array([[enclose(int(end.p), int(end.q)) for end in pair] for pair in self.box])

    @property
    def lower(self) -> Floats:
        """The floats below the lower ends."""
        return np.asarray(self._ends[:, 0, 0])

    @property
    def upper(self) -> Floats:
        """The floats above the upper ends."""
        return np.asarray(self._ends[:, 1, 1])

    @property
    def inside(self) -> tuple[Floats, Floats]:
        """Floats inside; crossed where there is none between the ends."""
        return np.asarray(self._ends[:, 0, 1]), np.asarray(self._ends[:, 1, 0])

    def holds(self, point: Floats) -> bool:
        """Whether a point lies in the exact box; where no float does, that coordinate counts for the lower end."""
        low, high = self.inside
        return bool(np.all((low > high) | ((low <= point) & (point <= high))))

    def balls(self, point: Floats) -> list[Any]:
        """The point as exact numbers; where no float lies between the ends, the lower end stands for it."""
        low, high = self.inside
        ends = [arb(fmpq(int(end.p), int(end.q))) for end in self.box.lower]
        return [ends[k] if low[k] > high[k] else arb(float(value)) for k, value in enumerate(point)]


class Block(ABC):
    """A block of derivatives over boxes, at points, and in balls at one point."""

    def __init__(self, model: Model, name: str, region: ExactBox, *, aim: float = math.inf) -> None:
        self.model, self.name, self.region, self.aim = model, name, region, aim
        vanishing = vanishes(model, name)
        require_size([] if vanishing else [name], model.length("x"), model.length("y"), sys.maxsize)
        self._ready = lru_cache(2)(self._prepared)
        self.patterns, self._need = model.patterns, needed_by([name])
        # the same model, with its switches as parameters where it has some
        self._whole = model if self.patterns is None else self.patterns.model
        self._size = model.d + model.n
        # what is zero for its structure is one zero, whatever its size
        self.shape, forms = ((1,) * len(name[2:]), [ZERO_FORM]) if vanishing else model.block(name)
        support = 0
        for node in (node for form in forms for node in form.terms):
            support |= model.graph.support[node]
        support |= self._rough
        self.active: Sequence[int] = tuple(k for k in range(model.d + model.n) if support >> k & 1)
        self._forms = forms if vanishing else self._whole.block(name)[1]
        zero = all(form.is_constant and form.constant == 0 for form in forms)
        self.is_zero = zero and not self._rough  # a step has no slope, and no bound of it

    @cached_property
    def _rough(self) -> int:
        """The variables of the edges across which the function is not smooth enough, as bits."""
        if self.patterns is None:
            return 0
        matters, enough = self.patterns.allowed(self._need)
        return self.patterns.support(np.flatnonzero(matters & ~enough).tolist())

    @cached_property
    def cost(self) -> float:
        """Units of work that one box takes: see ``branch_and_bound``."""
        entries = math.prod(self.shape)
        lines = 0 if self.ridges is None else self.ridges.count
        return 1.0 + self._programs[0].size / 20 + (entries if entries > 1 else 0) + 10 * lines

    @property
    def _slope(self) -> str:
        """The name of the derivative in (x, y)."""
        function, _, axes = self.name.partition("_")
        return f"{function}_z{axes}"

    @cached_property
    def has_slope(self) -> bool:
        """Whether the mean-value form can be afforded."""
        entries = (self.model.d + self.model.n) * math.prod(self.shape)
        order = len(self.shape)
        return bool(self.active) and entries <= _AFFORDABLE and (order < 4 or self.model.d + self.model.n <= 4)

    @property
    def _is_symmetric(self) -> bool:
        """Whether it is a symmetric matrix, and not a number."""
        axes = self.name.partition("_")[2]
        return len(axes) == 2 and axes[0] == axes[1] and self.shape[0] > 1

    @cached_property
    def pencil(self) -> Pencil | None:
        """The block as a pencil, where it is a symmetric matrix with few parts."""
        if not self._is_symmetric:
            return None
        pencil = Pencil(self._forms, self.shape[0])
        return pencil if 0 < len(pencil.nodes) <= MOST_PARTS else None

    @cached_property
    def ridges(self) -> Ridges | None:
        """The block as a pencil with functions along lines, where plain intervals would lose what they are."""
        if not self._is_symmetric:
            return None
        model = self._whole
        axis = {"x": model.x, "y": model.y, "z": range(self._size)}[self.name[-1]]
        found = ridges_of(model, model.f if self.name[0] == "f" else model.g, axis)
        return found if found is not None and found.loose else None

    def eigenvalues(self, session: IntervalSession, *, proved: bool) -> tuple[Floats, Floats]:
        """Bounds of the eigenvalues by pencils: below the smallest, above the largest; infinite where none applies."""
        least, most = (np.full(session.lanes, end) for end in (-np.inf, np.inf))
        if self.pencil is not None:
            ends = session.take(_PARTS)
            least, most = self.pencil.smallest_eigenvalue_lower(*ends), self.pencil.largest_eigenvalue_upper(*ends)
        if self.ridges is not None:
            box = session.inputs(0)
            along = self.ridges.ranges(*box, proved=proved, switches=self.patterns is not None)
            low, high = (np.hstack(pair) for pair in zip(session.take(_RIDGES), along, strict=True))
            least = np.maximum(least, self.ridges.pencil.smallest_eigenvalue_lower(low, high))
            most = np.minimum(most, self.ridges.pencil.largest_eigenvalue_upper(low, high))
        return least, most

    @cached_property
    def _plain(self) -> ArrayProgram:
        return ArrayProgram(self.model.program((self.name,)))

    @cached_property
    def _programs(self) -> tuple[Program, Program]:
        """The block with its slope and the parts of its pencil; and the block alone."""
        model = self._whole
        outputs = {self.name: model.block(self.name)}
        if self.has_slope:
            outputs[self._slope] = model.block(self._slope)
        if self.pencil is not None:
            nodes = self.pencil.nodes
            outputs[_PARTS] = (len(nodes),), [model.graph.form(node) for node in nodes]
        if self.ridges is not None:
            nodes = self.ridges.nodes
            outputs[_RIDGES] = (len(nodes),), [model.graph.form(node) for node in nodes]
        if self.patterns is not None:
            guards = self.patterns.guards(self._need)
            outputs[_GUARD] = (len(guards),), guards
        whole = build(model.graph, model.stages, outputs)
        return whole, model.program((self.name,)) if self.has_slope else whole

    def _operations(self, proved: bool) -> Operations:
        return smooth_operations(self.patterns is not None, proved)

    def _prepared(self, proved: bool) -> Pair:
        (whole, alone), operations = self._programs, self._operations(proved)
        first = IntervalProgram(whole, operations)
        return first, IntervalProgram(alone, operations) if self.has_slope else first

    def values(self, points: Floats) -> Floats:
        """The block at points, (points, ...); nan where it may not exist."""
        if self.is_zero:
            return np.zeros((len(points), *self.shape))
        session = self._plain.session(len(points))
        session.put(0, points)
        values = np.array(session.take(self.name))
        if self.patterns is not None:  # on an edge the formula of one side says nothing that could be certified
            values[self.patterns.rough(points, self._need)] = np.nan
        return values

    def in_balls(self, point: Floats) -> list[Any]:
        """The entries at a point, in balls, at the precision that is set."""
        if self.is_zero:
            return [arb(0)] * math.prod(self.shape)
        ready = self.model.in_balls((self.name,), EXACT_ENDS_BITS)
        values = ready.start()
        ready.put(values, 0, self.region.balls(point))
        return ready.output(values, self.name)

    def over(self, lower: Floats, upper: Floats, *, proved: bool = False) -> Floats:
        """Upper bounds over boxes, as many at a time as fit into a table of moderate size."""
        if self.is_zero:
            return np.zeros(len(lower))
        if self.patterns is None:
            return self._in_parts(lower, upper, proved=proved)
        split = self.patterns.split(lower, upper, self._need, proved=proved)
        return split.largest(self._in_parts(split.lower, split.upper, proved=proved))

    def _in_parts(self, lower: Floats, upper: Floats, *, proved: bool) -> Floats:
        lanes = max(16, TABLE // self._programs[0].size)
        if len(lower) <= lanes:
            return self._over(lower, upper, proved=proved)
        return np.concatenate(
            [self._over(lower[rows], upper[rows], proved=proved) for rows in parts(len(lower), lanes)]
        )

    @abstractmethod
    def _over(self, lower: Floats, upper: Floats, *, proved: bool) -> Floats:
        """Upper bounds over a few boxes."""

    def session(self, lower: Floats, upper: Floats, *, proved: bool) -> IntervalSession:
        """The block over the boxes, with all that is wanted beside it."""
        session = self._ready(proved)[0].session(len(lower))
        with np.errstate(all="ignore"):
            session.put(0, lower, upper)
        return session

    def ends(self, session: IntervalSession, lower: Floats, upper: Floats, *, proved: bool) -> tuple[Floats, Floats]:
        """The lower and upper ends of all entries over the boxes with their switches, (lanes, ...) each.

        The mean-value form, block(centre) + slope (box - centre), is met with the natural extension. Where the latter
        is not defined nothing is known: a jump has slopes too.
        """
        lo, hi = session.take(self.name)
        if self.patterns is not None:  # a switch that is not decided may not show in derivatives
            jumps = np.isnan(session.take(_GUARD)[0]).any(axis=1).reshape(-1, *[1] * (lo.ndim - 1))
            lo, hi = np.where(jumps, np.nan, lo), np.where(jumps, np.nan, hi)
        if not self.has_slope:
            return lo, hi
        with np.errstate(all="ignore"):
            return self._met(self._ready(proved)[1], lo, hi, session.take(self._slope), lower, upper)

    def _met(
        self, alone: IntervalProgram, lo: Floats, hi: Floats, slope: tuple[Floats, Floats], lower: Floats, upper: Floats
    ) -> tuple[Floats, Floats]:
        centre = middles(lower, upper)
        reach = (np.maximum(upper - centre, centre - lower) * _ROUNDED_MORE)[:, : self._size]
        session = alone.session(len(lower))
        session.put(0, centre, centre)
        steep = np.maximum(np.abs(slope[0]), np.abs(slope[1])).reshape(*reach.shape, -1)
        # an infinite slope along a variable that is one number is nan here, and then the natural extension stands
        away = np.einsum("lk,lke->le", reach, steep) * (1 + 1e-13) + 1e-300
        return mean_value_form((lo, hi), session.take(self.name), away.reshape(lo.shape))

    def smear(self, lower: Floats, upper: Floats) -> Floats:
        """How much each variable moves the block over the boxes, (lanes, variables)."""
        with np.errstate(all="ignore"):
            if self.patterns is None:
                steep = self._steepness(lower, upper)
            else:
                split: Split = self.patterns.split(lower, upper, self._need)
                steep = split.largest(self._steepness(split.lower, split.upper))
            return np.asarray(steep * (upper - lower))

    def _steepness(self, lower: Floats, upper: Floats) -> Floats:
        session = self.session(lower, upper, proved=False)
        steep = np.maximum(*(np.abs(end) for end in session.take(self._slope)))
        return np.asarray(np.sqrt(np.square(steep.reshape(len(lower), self._size, -1)).sum(axis=2)))


class BlockNorm(Block):
    """The norm of a block such as "f_y", "g_xy" or "g_yyy" over unit vectors.

    ``aim`` is the bound that is worth an effort: see ``norm_upper``.

    >>> import sympy as sp
    >>> x, y = sp.symbols("x y")
    >>> norm = BlockNorm(Model(x*y, y**2/2 - sp.sin(x)*y, [x], [y]), "g_xy", ExactBox(Box([0, 0], [1, 1])))
    >>> norm.active, bool(1 <= norm.over(np.zeros((1, 2)), np.ones((1, 2)))[0] < 1.001)
    ((0,), True)
    """

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """(dimension, degree) of the runs of equal axes."""
        axes = self.name.partition("_")[2]
        runs = [(axis, len(list(run))) for axis, run in groupby(axes)]
        return tuple((self.model.length(axis), degree) for axis, degree in runs)

    def _over(self, lower: Floats, upper: Floats, *, proved: bool) -> Floats:
        session = self.session(lower, upper, proved=proved)
        lo, hi = self.ends(session, lower, upper, proved=proved)
        if math.prod(self.shape) == 1:  # the ends are proved as they are
            bound = np.maximum(-lo, hi).reshape(len(lo))
            return np.where(np.isnan(bound), np.inf, bound)
        part = Matrices.between(lo, hi)
        bound = norm_upper(part.middle, part.radius, self.groups, aim=self.aim, thorough=proved)
        if self.pencil is None and self.ridges is None:
            return bound
        least, most = self.eigenvalues(session, proved=proved)
        guarded = np.isnan(lo).reshape(len(lo), -1).any(axis=1)
        return np.where(guarded, bound, np.minimum(bound, np.maximum(-least, most)))

    def at(self, points: Floats) -> Floats:
        """About the norm at points."""
        return largest_values(self.values(points))

    def certified_at(self, point: Floats) -> float:
        """A proved lower bound of the norm at a point."""
        with precision(EXACT_ENDS_BITS):
            return _below(norm_lower(self.in_balls(point), self.shape))


class Curvature(Block):
    """The smallest eigenvalue of g_yy with its sign turned, so that its maximum is -mu.

    >>> import sympy as sp
    >>> x, y = sp.symbols("x y")
    >>> curvature = Curvature(Model(x*y, y**2 - x*y, [x], [y]), "g_yy", ExactBox(Box([0, 0], [1, 1])))
    >>> curvature.certified_at(np.zeros(2)), curvature.over(np.zeros((1, 2)), np.ones((1, 2))).tolist()
    (-2.0, [-2.0])
    """

    def _over(self, lower: Floats, upper: Floats, *, proved: bool) -> Floats:
        session = self.session(lower, upper, proved=proved)
        lo, hi = self.ends(session, lower, upper, proved=proved)
        if self.model.n == 1:
            return np.asarray(np.where(np.isnan(lo), np.inf, -lo).reshape(len(lo)))
        least = Matrices.between(lo, hi).smallest_eigenvalue_lower()
        guarded = np.isnan(lo).any(axis=(1, 2))
        return np.where(guarded, np.inf, -np.maximum(least, self.eigenvalues(session, proved=proved)[0]))

    def at(self, points: Floats) -> Floats:
        """About the eigenvalue at points, its sign turned."""
        values = self.values(points)
        finite = np.asarray(np.isfinite(values).all(axis=(1, 2)))
        least = np.linalg.eigvalsh(np.where(finite[:, None, None], values, 0.0))[:, 0]
        return np.where(finite, -least, np.nan)

    def certified_at(self, point: Floats) -> float:
        """A Rayleigh quotient, which is no less than the eigenvalue."""
        if self.is_zero:
            return 0.0
        n = self.model.n
        with precision(EXACT_ENDS_BITS):
            entries = self.in_balls(point)
            middle = np.array([float(entry.mid()) for entry in entries]).reshape(n, n)
            if not np.isfinite(middle).all():
                return -math.inf
            vector = [arb(float(v)) for v in np.linalg.eigh(middle)[1][:, 0]]
            image = [sum((entries[i * n + j] * vector[j] for j in range(n)), arb(0)) for i in range(n)]
            value = sum((a * b for a, b in zip(vector, image, strict=True)), arb(0))
            return _below(-value / sum((a * a for a in vector), arb(0)))


def _below(ball: Any) -> float:
    """The largest float that is certainly not above the ball; -inf where nothing is known."""
    if not ball.is_finite():
        return -math.inf
    end = ball.lower()
    value = float(end)
    return value if arb(value) <= end else math.nextafter(value, -math.inf)
