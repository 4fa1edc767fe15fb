"""Affine forms over boxes, many at once: every quantity as middle + sum of slope_k e_k, up to a remainder, |e_k| <= 1.

Where intervals forget that two quantities move together, affine forms keep it to first order, so that the remainder is
of second order in the size of the box. The e_k are the variables of a box, scaled. What is computed contains the true
value for all e; roundings are counted into the remainder, and a remainder that is infinite or nan claims nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bilevel_sym.arithmetic import intervals
from bilevel_sym.arithmetic.arrays import dense, nearest
from bilevel_sym.arithmetic.boxes import SPARSE, IntervalProgram
from bilevel_sym.graph.autodiff import directional
from bilevel_sym.graph.nodes import ONE_FORM, Graph, Parameter
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.graph.program import Program, Row, Step, build
from bilevel_sym.typing import Floats, Indices
from verify.enclosures.interval_matrix import ROUNDED_UP, Matrices, neumann_bound

_AFFINE_ERROR = 4e-15  # a few dozen roundings, relative to the sizes that take part
_UNDERFLOW = 1e-300

_SWITCHES = frozenset(r.name for r in OPERATIONS.values() if r.shape.kind == "switch") - {"abs"}

Call = Callable[["AffineSession"], None]


@dataclass(frozen=True, eq=False)
class Affine:
    """Lanes of matrices: ``middle`` and ``rest`` (lanes, rows, columns), ``slopes`` (lanes, k, rows, columns).

    >>> x = Affine(np.ones((1, 1, 1)), np.full((1, 1, 1, 1), 0.1), np.zeros((1, 1, 1)))
    >>> square = x @ x
    >>> square.middle.item(), square.slopes.item(), round(square.rest.item(), 6)
    (1.0, 0.2, 0.01)
    """

    middle: Floats
    slopes: Floats
    rest: Floats

    @property
    def parts(self) -> tuple[Floats, Floats, Floats]:
        """Middle, slopes and rest."""
        return self.middle, self.slopes, self.rest

    @property
    def reach(self) -> Floats:
        """How far from the middle it goes."""
        return np.asarray((np.abs(self.slopes).sum(axis=1) + self.rest) * ROUNDED_UP)

    @property
    def mean_reach(self) -> Floats:
        """How far from the middle its mean goes along a straight way from the middle of the box: half as far."""
        return np.asarray((0.5 * np.abs(self.slopes).sum(axis=1) + self.rest) * ROUNDED_UP)

    def gathered(self, places: Indices, rows: int) -> Affine:
        """A matrix of so many rows whose entries are those at the places of this column."""
        lanes, k = self.slopes.shape[:2]
        middle, slopes, rest = (part[..., places, 0] for part in self.parts)
        return Affine(
            middle.reshape(lanes, rows, -1), slopes.reshape(lanes, k, rows, -1), rest.reshape(lanes, rows, -1)
        )

    @property
    def hull(self) -> Matrices:
        """The interval matrices around it."""
        return Matrices(self.middle, self.reach)

    @property
    def T(self) -> Affine:
        """Transposed."""
        return Affine(self.middle.swapaxes(-1, -2), self.slopes.swapaxes(-1, -2), self.rest.swapaxes(-1, -2))

    def __neg__(self) -> Affine:
        return Affine(-self.middle, -self.slopes, self.rest)

    def __matmul__(self, other: Affine) -> Affine:
        """Products of slopes go to the rest, and roundings in proportion to all that takes part."""
        slopes = self.slopes @ other.middle[:, None] + self.middle[:, None] @ other.slopes
        size, far, other_size, other_far = np.abs(self.middle), self.reach, np.abs(other.middle), other.reach
        terms = self.middle.shape[-1] + 8
        rounded = (terms * _AFFINE_ERROR) * (size + far) @ (other_size + other_far) + terms * _UNDERFLOW
        rest = size @ other.rest + self.rest @ other_size + far @ other_far + rounded
        return Affine(self.middle @ other.middle, slopes, rest * ROUNDED_UP)

    def solved_by(self, right: Affine, inverse: Floats) -> tuple[Affine, Floats]:
        """All X with A X = B, given an approximate inverse of the middle of A; and a bound of |I - R A|.

        With w the guess in the middle and l_k its slopes, what A (w + l e) - B leaves is of second order.
        """
        guess = inverse @ right.middle
        turned = inverse[:, None] @ self.slopes
        slopes = inverse[:, None] @ right.slopes - turned @ guess[:, None]
        size = np.abs(inverse)
        moved = np.abs(turned).sum(axis=1)
        n = inverse.shape[-1]
        wide = np.abs(guess) + np.abs(slopes).sum(axis=1)
        rounding = (n + 8) * _AFFINE_ERROR * (size @ (np.abs(self.middle) + self.reach))
        off = np.abs(np.eye(n) - inverse @ self.middle) + moved + size @ self.rest + rounding
        still = np.abs(inverse @ (right.middle - self.middle @ guess))
        drift = np.abs(slopes - inverse[:, None] @ (self.middle[:, None] @ slopes)).sum(axis=1)
        second = moved @ np.abs(slopes).sum(axis=1) + size @ (self.rest @ wide + right.rest)
        noise = rounding @ wide + (n + 8) * _AFFINE_ERROR * (size @ (np.abs(right.middle) + right.reach)) + _UNDERFLOW
        rest = (still + drift + second + noise) * ROUNDED_UP
        return Affine(guess, slopes, neumann_bound(off * ROUNDED_UP, rest)), off * ROUNDED_UP

    def around(self, owner: Indices, lanes: int) -> Affine:
        """Forms that contain those of all lanes with the same owner, one for each owner.

        >>> both = Affine(np.array([[[1.0]], [[3.0]]]), np.zeros((2, 1, 1, 1)), np.zeros((2, 1, 1)))
        >>> both.around(np.array([0, 0]), 1).middle.item(), round(both.around(np.array([0, 0]), 1).rest.item(), 6)
        (2.0, 1.0)
        """
        middle, slopes = _between(self.middle, owner, lanes), _between(self.slopes, owner, lanes)
        away = np.abs(self.middle - middle[owner]) + np.abs(self.slopes - slopes[owner]).sum(axis=1)
        rounded = _AFFINE_ERROR * (np.abs(self.middle) + np.abs(self.slopes).sum(axis=1)) + _UNDERFLOW
        rest = np.zeros_like(middle)
        # a lane on its own stays the form that it is
        alone = (np.bincount(owner, minlength=lanes) == 1)[owner, None, None]
        np.maximum.at(rest, owner, np.where(alone, self.rest, (away + rounded + self.rest) * ROUNDED_UP))
        return Affine(middle, slopes, rest)

    def columns(self, first: int, last: int) -> Affine:
        """Some of the columns."""
        return Affine(*(part[..., first:last] for part in self.parts))

    def beside(self, other: Affine) -> Affine:
        """The columns of both."""
        return Affine(*(np.concatenate(pair, axis=-1) for pair in zip(self.parts, other.parts, strict=True)))


def _between(part: Floats, owner: Indices, lanes: int) -> Floats:
    """Half way from the least to the largest of each owner's numbers; of one number, that number."""
    low, high = (np.full((lanes, *part.shape[1:]), end) for end in (np.inf, -np.inf))
    np.minimum.at(low, owner, part)
    np.maximum.at(high, owner, part)
    return np.where(low == high, low, 0.5 * low + 0.5 * high)


class AffineProgram:
    """A program ready to run on affine forms.

    >>> graph = Graph(1)
    >>> (x,) = graph.variables
    >>> zero = graph.apply("exp", x) - graph.apply("exp", x + x)
    >>> session = AffineProgram(build(graph, [[0]], {"z": ((1,), [zero])})).session(1, 1)
    >>> session.put(0, np.zeros((1, 1)), np.full((1, 1, 1), 0.01), np.zeros((1, 1)))
    >>> bool(session.take("z").rest[0, 0, 0] < 2e-4), float(session.take("z").slopes[0, 0, 0, 0])
    (True, -0.01)
    """

    def __init__(self, program: Program, operations: Mapping[str, Callable[..., Any]] = intervals.SMOOTH) -> None:
        self.program, self.operations = program, operations
        self._local = lru_cache(None)(self._prepare)
        ready = IntervalProgram(program, operations)
        self.constant_places, self.constants = ready.constant_places, ready.constants
        self.stages = tuple(tuple(self._call(step) for step in stage) for stage in program.stages)

    def session(self, lanes: int, slopes: int) -> AffineSession:
        """New tables for so many boxes and variables."""
        return AffineSession(self, lanes, slopes)

    def _call(self, step: Step) -> Call:
        to = slice(step.first, step.first + step.size)
        if step.op == "lin":
            return _linear(to, step.rows)
        sources = [np.array(source, dtype=np.intp) for source in step.sources]
        if step.op == "mul":
            return lambda session: session.multiply(to, *sources)
        if step.op in _SWITCHES:  # with switches as inputs there is only "select"
            operation = self.operations[step.op]
            return lambda session: session.switch(to, step.op, operation, sources)
        curve = self._local(step.op, step.parameter)
        return lambda session: session.bend(to, curve, sources[0])

    def _prepare(self, op: str, parameter: Parameter) -> tuple[IntervalProgram, IntervalProgram]:
        """phi and phi' at a point, and phi'' over an interval."""
        graph = Graph(1)
        (t,) = graph.variables
        form = graph.power(t, *parameter) if parameter else graph.apply(op, t)
        first = directional(graph, form, {0: ONE_FORM})
        second = directional(graph, first, {0: ONE_FORM})
        at = build(graph, [[0]], {"value": ((), [form]), "first": ((), [first])})
        # the second derivative alone does not show a kink
        over = build(graph, [[0]], {"value": ((), [form]), "first": ((), [first]), "second": ((), [second])})
        return IntervalProgram(at, self.operations), IntervalProgram(over, self.operations)


class AffineSession:
    """The tables of one run: middle (places, lanes), slopes (places, k, lanes), rest and reach (places, lanes)."""

    def __init__(self, ready: AffineProgram, lanes: int, slopes: int) -> None:
        self._ready = ready
        size = ready.program.size
        self.middle, self.rest, self.reach = (np.empty((size, lanes)) for _ in range(3))
        self.slopes = np.zeros((size, slopes, lanes))
        low, high = ready.constants.T
        places = ready.constant_places
        self.middle[places] = (0.5 * low + 0.5 * high)[:, None]
        self.rest[places] = self.reach[places] = ((high - low) * ROUNDED_UP)[:, None]

    def put(self, stage: int, middle: Floats, slopes: Floats, rest: Floats) -> None:
        """Give the forms of one stage: (lanes, inputs), (lanes, k, inputs), (lanes, inputs), and perform it."""
        inputs = self._ready.program.inputs[stage]
        to = slice(inputs.start, inputs.stop)
        self.set(to, middle.T, slopes.transpose(2, 1, 0), rest.T)
        with np.errstate(all="ignore"):
            for call in self._ready.stages[stage]:
                call(self)

    def set(self, to: slice, middle: Floats, slopes: Floats, rest: Floats) -> None:
        """Write results."""
        self.middle[to], self.slopes[to], self.rest[to] = middle, slopes, rest
        self.reach[to] = (np.abs(slopes).sum(axis=1) + rest) * ROUNDED_UP

    def take(self, name: str) -> Affine:
        """One output, lanes first; a vector is a column."""
        output = self._ready.program.outputs[name]
        places = np.array(output.places, dtype=np.intp)
        lanes, count = self.middle.shape[1], self.slopes.shape[1]
        rows, columns = output.shape if len(output.shape) == 2 else (len(places), 1)
        return Affine(
            np.ascontiguousarray(self.middle[places].T).reshape(lanes, rows, columns),
            np.ascontiguousarray(self.slopes[places].transpose(2, 1, 0)).reshape(lanes, count, rows, columns),
            np.ascontiguousarray(self.rest[places].T).reshape(lanes, rows, columns),
        )

    @property
    def tables(self) -> tuple[Floats, Floats, Floats]:
        """Middle, slopes and rest."""
        return self.middle, self.slopes, self.rest

    # ------------------------------------------------------------------ operations

    def multiply(self, to: slice, one: Any, other: Any) -> None:
        """(a + A)(b + B) = ab + aB + bA + AB: the last is what two first orders make."""
        a, b, far_a, far_b = self.middle[one], self.middle[other], self.reach[one], self.reach[other]
        slopes = a[:, None] * self.slopes[other]
        slopes += b[:, None] * self.slopes[one]
        size_a, size_b = np.abs(a), np.abs(b)
        rest = size_a * self.rest[other]
        rest += size_b * self.rest[one]
        rest += far_a * far_b
        size_a += far_a
        size_b += far_b
        size_a *= size_b
        size_a *= _AFFINE_ERROR
        rest += size_a
        rest += _UNDERFLOW
        self.set(to, a * b, slopes, rest)

    def bend(self, to: slice, curve: tuple[IntervalProgram, IntervalProgram], source: Any) -> None:
        """phi(u) = phi(m) + phi'(m) (u - m) + phi''(.)/2 (u - m)^2, and the square is not negative."""
        middle, reach = self.middle[source], self.reach[source]
        shape = middle.shape
        at, over = (ready.session(middle.size) for ready in curve)
        point = middle.reshape(-1, 1)
        at.put(0, point, point)
        far = reach.reshape(-1, 1) * ROUNDED_UP + 1e-15 * np.abs(point) + _UNDERFLOW
        over.put(0, point - far, point + far)
        (v_lo, v_hi), (s_lo, s_hi) = ([end.reshape(shape) for end in at.take(name)] for name in ("value", "first"))
        b_lo, b_hi = (end.reshape(shape) for end in over.take("second"))
        known = 0.0 * (over.take("value")[0] + over.take("first")[0]).reshape(shape)
        half = 0.5 * np.square(reach) * ROUNDED_UP
        low, high = np.minimum(b_lo, 0.0) * half, np.maximum(b_hi, 0.0) * half
        value, slope = 0.5 * v_lo + 0.5 * v_hi, 0.5 * s_lo + 0.5 * s_hi
        shift = 0.5 * low + 0.5 * high
        size = np.abs(slope)
        rest = (v_hi - v_lo) + size * self.rest[source] + (s_hi - s_lo) * reach + 0.5 * (high - low)
        rest += _AFFINE_ERROR * (np.abs(value) + size * reach + high - low) + _UNDERFLOW + known
        self.set(to, value + shift, slope[:, None] * self.slopes[source], rest)

    def switch(self, to: slice, op: str, operation: Callable[..., Any], sources: Sequence[Any]) -> None:
        """Operations that are constant or one of their arguments, where it is certain which."""
        pairs = [(self.middle[s] - self.reach[s], self.middle[s] + self.reach[s]) for s in sources]
        pairs = [(lo - 1e-15 * np.abs(lo), hi + 1e-15 * np.abs(hi)) for lo, hi in pairs]
        if op in ("sign", "lt", "le"):
            lo, hi = operation(*pairs)
            known = np.where(lo == hi, 0.0, np.nan)
            self.set(to, lo, np.zeros((*lo.shape[:1], self.slopes.shape[1], lo.shape[1])), known)
            return
        if op == "select":
            (c_lo, c_hi), one, other = pairs[0], sources[1], sources[2]
            first, second = (c_lo > 0) | (c_hi < 0), (c_lo == 0) & (c_hi == 0)
        else:
            one, other = sources
            (a_lo, a_hi), (b_lo, b_hi) = pairs
            first, second = (a_hi < b_lo, b_hi < a_lo) if op == "min" else (a_lo > b_hi, b_lo > a_hi)
        middle = np.where(first, self.middle[one], self.middle[other])
        slopes = np.where(first[:, None], self.slopes[one], self.slopes[other])
        rest = np.where(first, self.rest[one], np.where(second, self.rest[other], np.nan))
        if op == "select" and (between := (c_lo <= 0) & (c_hi >= 0) & ~second).any():  # a switch that may be either
            middle = np.where(between, 0.0, middle)
            slopes = np.where(between[:, None], 0.0, slopes)
            size = [np.abs(self.middle[k]) + self.reach[k] for k in (one, other)]
            rest = np.where(between, np.maximum(*size) * ROUNDED_UP, rest)
        self.set(to, middle, slopes, rest)


def _linear(to: slice, rows: Sequence[Row]) -> Call:
    """C X for the middle and all slopes at once, |C| rest for the rest."""
    entries, columns = sum(map(len, rows)), len({place for row in rows for place in row.places})
    rounding = (max(map(len, rows)) + 8) * _AFFINE_ERROR
    if SPARSE * entries >= len(rows) * columns:
        return _dense(to, rows, rounding)
    # the longest rows first: the k-th terms of all rows that have one are added to a leading part of the table
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    longest_first = [rows[i] for i in order]
    terms = [[row for row in longest_first if len(row) > k] for k in range(len(longest_first[0]))]
    sources = [np.array([row.places[k] for row in having], dtype=np.intp) for k, having in enumerate(terms)]
    factors = [np.array([nearest(row.coefficients[k]) for row in having])[:, None] for k, having in enumerate(terms)]
    back = np.argsort(order)

    def call(session: AffineSession) -> None:
        middle, slopes, rest = (np.zeros((len(rows), *table.shape[1:])) for table in session.tables)
        for source, c in zip(sources, factors, strict=True):
            part, many = session.middle[source], len(source)
            size = np.abs(part)
            size += session.reach[source]
            size *= rounding
            size += session.rest[source]
            size *= np.abs(c)
            rest[:many] += size
            part *= c
            middle[:many] += part
            moves = session.slopes[source]
            moves *= c[:, None]
            slopes[:many] += moves
        rest *= ROUNDED_UP
        rest += _UNDERFLOW
        session.set(to, middle[back], slopes[back], rest[back])

    return call


def _dense(to: slice, rows: Sequence[Row], rounding: float) -> Call:
    columns, c = dense(rows)
    source, size = np.array(columns, dtype=np.intp), np.abs(c)

    def call(session: AffineSession) -> None:
        middle, slopes, reach = session.middle[source], session.slopes[source], session.reach[source]
        rest = size @ (session.rest[source] + rounding * (np.abs(middle) + reach)) + _UNDERFLOW
        moved = (c @ slopes.reshape(len(source), -1)).reshape(len(rows), *slopes.shape[1:])
        session.set(to, c @ middle, moved, rest * ROUNDED_UP)

    return call
