"""Responses: how y* moves with x, at many points of a region, and the largest quotients that were seen.

y* is solved to round-off at points of the region, corners among them; its first and second derivatives come from the
blocks of f and g there. Lipschitz quotients are taken over close and over distant pairs. Everything is float64 and
carries a bound on its rounding error; what is seen is a lower bound of a supremum, never an upper one.

Tight starts: where in a region one iteration of AID errs most, relative to what its bound allows.

A bound that is compared at starts taken by chance looks a hundred times looser than it is. So the starts are improved:
the best ones are kept and displaced by less and less, in x, y and v together. The same seed gives the same search.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from types import MappingProxyType

import numpy as np

from bilevel_sym import AID
from bilevel_sym.arithmetic.ties import first_largest, in_order
from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import Floats, Indices
from verify.enclosures.tensor_norm import largest_values
from verify.papers.huang_saddle.measures.regions import Region, lower_levels
from verify.papers.huang_saddle.measures.runs import paths_inside, v_stars
from verify.points.derivatives_at import Derivatives, block_values
from verify.study import Study

RANDOM, CORNERS, NEIGHBOURS, PAIRS = 96, 32, 96, 300
NEIGHBOUR_WIDTH = 0.01  # of the width: close enough for a derivative, far enough for the digits of a difference
SOLVED_BLOCK_ERROR = 2.0**-46  # relative error of a block after a well-conditioned solve: sixty units in the last place


@dataclass(frozen=True)
class Seen:
    """The largest value seen, how far rounding may have moved it, where it was, and among how many."""

    value: float
    noise: float
    x: Floats
    y: Floats
    count: int


@dataclass(frozen=True, eq=False)
class Responses(Derivatives):
    """Points (m, d) with y*(x) inside the region, the blocks there, and the derivatives of y* and v*.

    ``left`` and ``right`` number the points of each pair.

    >>> from bilevel_sym import verify, zoo
    >>> from bilevel_sym import Constants
    >>> region = Region(np.array([-3.0, -1.0]), np.array([3.0, 1.0]), 1, Constants(1.0, 10.0, 6.0, 2.0, 4.0), "a box")
    >>> sample = responses(verify.study_of(zoo.get("scalar").problem), region)
    >>> seen = sample.largest(sample.dy_dx)  # y* = x/(1 + x^2): its slope is 1 at zero
    >>> 0.99 < seen.value <= 1.0
    True
    """

    x: Floats
    y: Floats
    left: Indices
    right: Indices
    kappa: float

    def largest(self, tensors: Floats) -> Seen:
        """The largest norm over the points."""
        values = largest_values(tensors)
        noise = SOLVED_BLOCK_ERROR * self._conditioning * (values + 1e-300)
        return self._seen(values, noise, np.arange(len(values)))

    def steepest(self, tensors: Floats) -> Seen:
        """The largest quotient |T(x) - T(x')|/|x - x'| over the pairs."""
        distance = np.linalg.norm(self.x[self.left] - self.x[self.right], axis=1)
        values = largest_values(tensors[self.left] - tensors[self.right]) / distance
        sizes = np.sqrt(np.square(tensors.reshape(len(tensors), -1)).sum(axis=1))
        noise = SOLVED_BLOCK_ERROR * self._conditioning * np.maximum(sizes[self.left], sizes[self.right]) / distance
        return self._seen(values, noise + SOLVED_BLOCK_ERROR * values, self.left)

    @property
    def _conditioning(self) -> float:
        return (1 + self.kappa) ** 2

    def _seen(self, values: Floats, noise: Floats, at: Indices) -> Seen:
        worst = first_largest(values - noise)
        return Seen(float(values[worst]), float(noise[worst]), self.x[at[worst]], self.y[at[worst]], len(values))


def responses(study: Study, region: Region) -> Responses:
    """The sample of a region; the last few are kept, since many claims look at the same one."""
    kappa = float(region.constants.ell / region.constants.mu)
    return _responses(study, tuple(region.lower.tolist()), tuple(region.upper.tolist()), kappa)


@lru_cache(6)
def _responses(study: Study, lower: tuple[float, ...], upper: tuple[float, ...], kappa: float) -> Responses:
    low, high, d = np.array(lower), np.array(upper), study.exact.d
    rng = study.rng("responses")
    x, near = _points(low[:d], high[:d], rng, study.lightness)
    y = lower_levels(study.kernels, x)
    blocks = block_values(study.kernels, x, y)
    keep = np.asarray(((y >= low[d:]) & (y <= high[d:])).all(axis=1))
    for values in blocks.values():
        keep &= np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if not keep.any():
        raise BilevelError("y* lies outside the box at every point that was tried", hint="a larger box in y")
    place = np.cumsum(keep) - 1
    together = keep[near[:, 0]] & keep[near[:, 1]]
    close = place[near[together]]
    kept = MappingProxyType({name: values[keep] for name, values in blocks.items()})
    far = rng.integers(int(keep.sum()), size=(PAIRS, 2))
    pairs = np.concatenate([close, far])
    pairs = pairs[np.linalg.norm(x[keep][pairs[:, 0]] - x[keep][pairs[:, 1]], axis=1) > 0]
    if not len(pairs):
        raise BilevelError("there are no two points of the box in x to compare", hint="a wider box")
    return Responses(kept, x[keep], y[keep], pairs[:, 0], pairs[:, 1], kappa)


def _points(low: Floats, high: Floats, rng: np.random.Generator, share: float) -> tuple[Floats, Indices]:
    """Points of a box, and the pairs among them that are close: the centre, corners, random ones, their neighbours."""
    d, width = len(low), high - low
    many, random, neighbours = (math.ceil(share * count) for count in (CORNERS, RANDOM, NEIGHBOURS))
    corners = np.array(list(product((0.0, 1.0), repeat=d))) if 2**d <= CORNERS else rng.integers(2, size=(many, d))
    unit = np.concatenate([np.full((1, d), 0.5), corners, rng.random((random, d))])
    origin = rng.integers(len(unit), size=neighbours)
    step = rng.standard_normal((neighbours, d))
    step *= NEIGHBOUR_WIDTH / np.linalg.norm(step, axis=1, keepdims=True)
    # turned back where it would leave the box
    moved = np.clip(unit[origin] + np.where((unit[origin] + step < 0) | (unit[origin] + step > 1), -step, step), 0, 1)
    pairs = np.stack([origin, len(unit) + np.arange(neighbours)], axis=1)
    return np.clip(low + width * np.concatenate([unit, moved]), low, high), pairs


STARTS, KEPT, ROUNDS = 200, 10, 6
SIZES = (0.0, 1e-3, 1.0)  # of what v is off by at first, relative to the size of v*

Bound = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True, eq=False)
class Iterations:
    """One iteration from each of some starts: the points x, the errors, the bounds; nan where it leaves the region.

    >>> Iterations(np.zeros((2, 1)), np.array([1.0, 2.0]), np.array([4.0, 4.0])).ratio
    array([0.25, 0.5 ])
    """

    x: Floats
    error: Floats
    bound: Floats

    @property
    def ratio(self) -> Floats:
        """error/bound; 0 where there is none."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(self.error / self.bound, nan=0.0, posinf=0.0)


def tightest_iterations(
    study: Study, region: Region, estimator: AID, bound: Bound, noise: float, name: str
) -> list[Iterations]:
    """Rounds of a search for starts at which the error is largest relative to ``bound(|y0 - y*|, |v0 - v*|)``.

    - ``study``: the problem.
    - ``region``: where the starts lie.
    - ``estimator``: of which one iteration is made.
    - ``bound``: a function of the two distances.
    - ``noise``: what rounding may do to an error.
    - ``name``: of the random numbers.

    >>> from bilevel_sym import verify, zoo
    >>> from verify.papers.huang_saddle.measures.regions import regions
    >>> study = verify.study_of(zoo.get("scalar").problem)
    >>> region = next(iter(regions(study)))
    >>> rounds = tightest_iterations(study, region, AID(1, 1, 0.1), lambda of_y, of_v: of_y + of_v, 0.0, "example")
    >>> bool(rounds[-1].ratio.max() >= rounds[0].ratio.max())
    True
    """
    if not np.isfinite(region.upper - region.lower).all():
        return []
    rng, width = study.rng(name), region.upper - region.lower
    place = region.lower + width * rng.random((STARTS, len(width)))
    off = rng.standard_normal((STARTS, study.exact.n)) * rng.choice(SIZES, (STARTS, 1))
    found = []
    for k in range(ROUNDS):
        tried = _tried(study, region, estimator, bound, place, off)
        found.append(tried)
        best = np.repeat(
            in_order(np.where(tried.error > 10 * noise, tried.ratio, 0.0), descending=True)[:KEPT], STARTS // KEPT
        )
        reach = 0.5 ** (k + 1)
        # those that were best stay as they are, once each
        moves = np.where(np.arange(STARTS)[:, None] % (STARTS // KEPT) == 0, 0.0, rng.uniform(-1, 1, place.shape))
        place = np.clip(place[best] + reach * width / 2 * moves, region.lower, region.upper)
        off = off[best] * (1 + reach * np.where(moves[:, :1] == 0, 0.0, rng.uniform(-1, 1, off.shape)))
    return found


def _tried(study: Study, region: Region, estimator: AID, bound: Bound, place: Floats, off: Floats) -> Iterations:
    x, y = place[:, : region.d], place[:, region.d :]
    y_star = lower_levels(study.kernels, x)
    inside = region.holds(x, y_star) & paths_inside(study, region, estimator, x, y, region.holds(x, y))
    error, bounds = np.full(len(x), np.nan), np.full(len(x), np.nan)
    if inside.any():
        x_in, y_in, there = x[inside], y[inside], y_star[inside]
        v = v_stars(study.kernels, x_in, there) + off[inside]
        estimate = estimator.estimate(study.exact, x_in, y0=y_in, v0=v)
        exact = study.kernels.grad_phi(x_in, y0=there)
        error[inside] = np.linalg.norm(estimate.grad_phi_hat - exact, axis=1)
        bounds[inside] = bound(np.linalg.norm(y_in - there, axis=1), np.linalg.norm(off[inside], axis=1))
    return Iterations(x, error, bounds)
