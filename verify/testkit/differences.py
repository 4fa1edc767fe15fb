"""Differences of a function along a line, beside what a derivative says of them: its error, and what noise explains.

What a derivative G leaves of a difference, (F(x + h u) - F(x - h u))/2h - G u, goes to zero like h^2 where G is right,
and to the error of G where it is not. It is looked at from the shortest steps upwards, where the noise of F alone
decides, to the longest at which all shorter ones agree with it; three of them at a time take h^2 and h^4 out.
The noise is measured, from differences of sixth order, so that no scale and no tolerance is asked for.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from bilevel_sym.arithmetic.ties import first_largest, first_smallest
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import FLOAT64_EPS, Bools, Floats
from verify.testkit.reference import ROUNDINGS

__all__ = ["SIGMAS", "Line", "Slope"]

LONGEST, SHORTEST, NEAR_ZERO = 33, -45, -90  # powers of two, relative to |x|; the last where an entry of x is zero
COARSE = 3  # powers of two between the steps of the first look
AROUND = range(-9, 7)  # powers of two around the best step, for the second look
NOISE_STEPS, NOISE_POINTS, NOISE_ORDER = (-40, -32, -24, -16), 9, 6  # longer ones where nothing changes
UNEVEN = 0.7548776662466927  # of a power of two, so that values do not fall on a grid by chance
SIGNIFICANT_BITS = np.finfo(np.float64).nmant + 1
SIGMAS = 6.0  # of the noise that one value may have
QUARTER = 0.25  # of all that F changes along a line: beyond, a bounded function looks flat
TINY = 1e-300
LIKE_H = 0.5  # how far an order may be from 1


@dataclass(frozen=True, eq=False)
class Line:
    """F along x + t u, and what was returned as its derivative at x, (m, d); values of F are vectors (m,).

    >>> line = Line(lambda x: np.array([x @ x]), np.array([1.0, 3.0]), np.array([0.0, 1.0]), np.array([[2.0, 6.5]]))
    >>> slope = line.looked_along()
    >>> slope.error.round(9), slope.size.round(9), slope.floor < 1e-9
    (array([0.5]), array([6.]), array([ True]))
    """

    fun: Callable[[Floats], Floats]
    x: Floats
    u: Floats
    jac: Floats  # (m, d)

    @property
    def _scale(self) -> float:
        size = np.abs(self.x[self.u != 0]).max()
        return float(size or np.abs(self.x).max() or 1.0)

    def looked_along(self) -> Slope:
        """A first look at all steps, and a second one at those around the longest that agrees."""
        here, noise = self.fun(self.x), self._noise()
        low = NEAR_ZERO if not self.x[self.u != 0].any() else SHORTEST
        first = [self._pair(UNEVEN * 2.0**j * self._scale, here, noise) for j in range(low, LONGEST, COARSE)]
        coarse = _Pairs.of(first)
        far = (coarse.change > QUARTER * coarse.change.max(axis=0)).any(axis=1)
        agree = max(min(coarse.agreeing(coarse.rest, coarse.bound), _first(far)), 1)
        best = coarse.h[first_smallest(coarse.bound[:agree].max(axis=1))]
        fine = _Pairs.of([self._pair(2.0**j * best, here, noise) for j in AROUND])
        error, floor = min((fine.settled(level) for level in range(3)), key=lambda found: float(found[1].max()))
        size = self.jac @ self.u - error
        rounding = ROUNDINGS * FLOAT64_EPS * (np.abs(self.jac) @ np.abs(self.u) + np.abs(size))
        return Slope(self.x, self.u, error, floor + rounding + TINY, size, coarse, noise, here)

    def _noise(self) -> Floats:
        """Of a value of F: from differences of neighbours, and never less than a rounding, or their grid."""
        for power in NOISE_STEPS:
            t = UNEVEN * 2.0**power * self._scale * np.arange(NOISE_POINTS)
            values = np.array([self.fun(self.x + step * self.u) for step in t])
            if np.ptp(values, axis=0).any():
                break
        with np.errstate(all="ignore"):
            differences = np.diff(values, n=NOISE_ORDER, axis=0) / math.sqrt(math.comb(2 * NOISE_ORDER, NOISE_ORDER))
        seen = np.abs(differences).max(axis=0)
        grid = np.where(np.ptp(values, axis=0) > 0, _lowest_bits(values).min(axis=0), 0.0)
        rounding = np.maximum(FLOAT64_EPS * np.abs(values).max(axis=0), grid)
        return np.asarray(np.where(np.isfinite(seen), seen, 0.0) + rounding)

    def _pair(self, h: float, here: Floats, noise: Floats) -> _Pair | None:
        ahead, behind = self.x + h * self.u, self.x - h * self.u
        values: list[Floats] = []
        with np.errstate(all="ignore"):
            with contextlib.suppress(Exception):  # so far away F may be undefined, and say so as it likes
                values = [self.fun(ahead), self.fun(behind)]
            if not values:
                return None
            above, below = values
            step = ahead - behind  # as it was rounded
            rest = (self.jac @ step - (above - below)) / (2 * h)
            largest = np.maximum(np.abs(above), np.abs(below))
            change = np.abs([above - here, below - here]).max(axis=0)
            grid = np.where(change > 0, np.minimum(_lowest_bits(above), _lowest_bits(below)), 0.0)
            bound = SIGMAS * np.max([noise, 2 * FLOAT64_EPS * largest, grid], axis=0) / h
        known = np.isfinite(rest).all() and step.any()
        return _Pair(h, rest, bound, (above + below) / 2 - here, change) if known else None


def _first(true: Bools) -> int:
    """The number of the first, or how many there are where none is."""
    return next(iter(np.flatnonzero(true).tolist()), len(true))


def _lowest_bits(values: Floats) -> Floats:
    """What each number is an odd multiple of; infinity for zero.

    >>> _lowest_bits(np.array([3.0, 0.75, 0.0]))
    array([1.  , 0.25,  inf])
    """
    shares, exponents = np.frexp(np.where(np.isfinite(values), values, 1.0))
    whole = np.abs(shares * 2.0**SIGNIFICANT_BITS).astype(np.int64)
    return np.where(whole == 0, np.inf, np.ldexp((whole & -whole).astype(np.float64), exponents - SIGNIFICANT_BITS))


@dataclass(frozen=True, eq=False)
class _Pair:
    """x + h u and x - h u: what is left of the derivative, what noise may do to it, the even part, the change."""

    h: float
    rest: Floats
    bound: Floats
    even: Floats
    change: Floats


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Several, the shortest step first: arrays (K,) and (K, m)."""

    h: Floats
    rest: Floats
    bound: Floats
    even: Floats
    change: Floats

    @classmethod
    def of(cls, pairs: Iterable[_Pair | None]) -> _Pairs:
        kept = [pair for pair in pairs if pair is not None]
        if not kept:
            raise InvalidArgument("the function is not finite next to a point", hint="points inside its domain")
        names = ("h", "rest", "bound", "even", "change")
        return cls(*(np.array([getattr(pair, name) for pair in kept]) for name in names))

    @property
    def noise(self) -> Floats:
        """Ten times what values may be off at each step."""
        return 10 * self.bound * self.h[:, None]

    @staticmethod
    def agreeing(rest: Floats, bound: Floats) -> int:
        """How many, from the shortest on, have a value in common within their bounds."""
        low, high = np.maximum.accumulate(rest - bound), np.minimum.accumulate(rest + bound)
        return _first(np.asarray((low > high).any(axis=1)))

    def settled(self, level: int) -> tuple[Floats, Floats]:
        """The limit for h -> 0 and its bound, with so many powers of h^2 taken out."""
        rest, bound = self.rest, self.bound
        for power in (4.0**k for k in range(1, level + 1)):
            rest = (power * rest[:-1] - rest[1:]) / (power - 1)
            bound = (power * bound[:-1] + bound[1:]) / (power - 1)
        # what the next longer step changes is more than what h still does to this one
        bound = 2 * bound[:-1] + np.abs(np.diff(rest, axis=0))
        agree = max(self.agreeing(rest[:-1], bound), 1)
        k = first_smallest(bound[:agree].max(axis=1))
        return rest[k], bound[k]


@dataclass(frozen=True, eq=False)
class Slope:
    """What was seen along u: the error of the derivative, what noise explains, and the derivative itself."""

    x: Floats
    u: Floats
    error: Floats
    floor: Floats
    size: Floats
    steps: _Pairs
    noise: Floats
    here: Floats

    @property
    def entry(self) -> int:
        """The entry of F whose error is largest in units of what noise explains."""
        return first_largest(np.abs(self.error) / self.floor)

    @property
    def excess(self) -> float:
        """The error in units of what noise explains."""
        return float((np.abs(self.error) / self.floor).max())

    @property
    def order(self) -> float:
        """The order in h of F(x + h u) - F(x) - h G u towards h = 0, where it is more than noise; 2 if G is right."""
        k = self.entry
        remainder = np.abs(self.steps.even[:, k]) + np.abs(self.steps.rest[:, k]) * self.steps.h
        return _order(self.steps.h, remainder, self.steps.noise[:, k])

    @property
    def noisy(self) -> bool:
        """Whether values carry more than rounding."""
        return bool((self.noise > ROUNDINGS * FLOAT64_EPS * (np.abs(self.here) + TINY)).any())

    @property
    def bent(self) -> bool:
        """Whether F has a kink here: its even part shrinks like h, down to the noise."""
        columns = zip(np.abs(self.steps.even).T, self.steps.noise.T, strict=True)
        return any(_linear(self.steps.h, even, noise) for even, noise in columns)


def _linear(h: Floats, sizes: Floats, noise: Floats) -> bool:
    """Whether sizes go like h at the three shortest steps at which they are seen, and below would be noise."""
    seen = np.flatnonzero(sizes > noise)[:3]
    if len(seen) < 3:
        return False
    orders = np.diff(np.log(sizes[seen])) / np.diff(np.log(h[seen]))
    first = int(seen[0])
    hidden = first == 0 or sizes[first] * h[first - 1] / h[first] <= 2 * noise[first]
    return bool(hidden and (np.abs(orders - 1) < LIKE_H).all())


def _order(h: Floats, sizes: Floats, noise: Floats) -> float:
    """The local order between the two shortest steps at which something is seen; nan where there are none."""
    seen = np.flatnonzero(sizes > noise)
    if len(seen) < 2:
        return math.nan
    a, b = seen[:2]
    return float(math.log(sizes[b] / sizes[a]) / math.log(h[b] / h[a]))
