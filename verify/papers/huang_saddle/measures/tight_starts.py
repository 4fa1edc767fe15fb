"""Tight starts: where in a region one iteration of AID errs most, relative to what its bound allows.

A bound that is compared at starts taken by chance looks a hundred times looser than it is. So the starts are improved:
the best ones are kept and displaced by less and less, in x, y and v together. The same seed gives the same search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bilevel_sym import AID
from bilevel_sym.arithmetic.ties import in_order
from bilevel_sym.typing import Bools, Floats
from verify.papers.huang_saddle.measures.regions import Region, lower_levels
from verify.papers.huang_saddle.measures.runs import v_stars
from verify.study import Study

__all__ = ["Iterations", "tightest_iterations"]

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
    inside = region.holds(x, y_star) & _stays(study, region, estimator, x, y)
    error, bounds = np.full(len(x), np.nan), np.full(len(x), np.nan)
    if inside.any():
        x_in, y_in, there = x[inside], y[inside], y_star[inside]
        v = v_stars(study.kernels, x_in, there) + off[inside]
        estimate = estimator.estimate(study.exact, x_in, y0=y_in, v0=v)
        exact = study.kernels.grad_phi(x_in, y0=there)
        error[inside] = np.linalg.norm(estimate.grad_phi_hat - exact, axis=1)
        bounds[inside] = bound(np.linalg.norm(y_in - there, axis=1), np.linalg.norm(off[inside], axis=1))
    return Iterations(x, error, bounds)


def _stays(study: Study, region: Region, estimator: AID, x: Floats, y: Floats) -> Bools:
    """Whether the steps for y stay in the region, along which the rates are proved."""
    stays = region.holds(x, y)
    for _ in range(estimator.D):
        y = y - estimator.tau * study.kernels.g_y(x, y)
        stays = stays & region.holds(x, y)
    return stays
