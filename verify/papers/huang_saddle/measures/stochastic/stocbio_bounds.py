"""What the claims about stocBiO share: points, constants of the region around each, and bounds in balls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import sympy as sp
from flint import arb, arb_mat

from bilevel_sym import Constants, evaluate
from bilevel_sym.certify.krawczyk import identity
from bilevel_sym.errors import BilevelError
from bilevel_sym.theories import Variant
from verify.papers.huang_saddle.measures.stochastic.batch_moments import Estimator, hull
from verify.papers.huang_saddle.measures.stochastic.samples import Balls, Samples, Solved, mean


def solved_points(samples: Samples) -> Iterator[Solved]:
    """A corner, the middle, points near two corners and random ones of the box in x, where y* can be certified."""
    low, high = samples.study.x_ends
    middle, half = (low + high) / 2, (high - low) / 2
    for x in (high, middle + 0.9 * half, middle - 0.9 * half, middle, *samples.study.points(2, "stocbio")):
        try:
            yield samples.solved(x)
        except BilevelError:
            continue


def places(
    samples: Samples, shifts: tuple[float, ...], *, of_mean: bool = False
) -> Iterator[tuple[Solved, Balls, Constants]]:
    """Points (x, y) and the constants of the box between (x, y) and (x, y*)."""
    for solved in solved_points(samples):
        for shift in shifts:
            y = near_solution(samples, solved, shift)
            if y is None:
                continue
            lower, upper = hull(y, solved.y)
            try:
                both_ends = (np.concatenate([solved.x, side]) for side in (lower, upper))
                c = samples.constants(*both_ends, of_mean=of_mean)
            except BilevelError:
                continue
            if c.M > 0:
                yield solved, y, c


def near_solution(samples: Samples, solved: Solved, shift: float) -> Balls | None:
    """y* itself, or a point at some distance from it; None where that is outside the box."""
    if shift == 0:
        return solved.y
    low, high = samples.y_ends
    y = np.array([float(ball) for ball in solved.y]) + shift * (high - low) / 2
    return [arb(float(value)) for value in y] if np.all((low <= y) & (y <= high)) else None


def slope_in_y(c: Constants) -> Any:
    """c = ell + ell^2/mu + M rho/mu + ell M rho/mu^2."""
    mu, ell, rho, M = (arb(value) for value in (c.mu, c.ell, c.rho, c.M))
    return ell + ell**2 / mu + M * rho / mu + ell * M * rho / mu**2


def series_rest(c: Constants, eta: float | None, Q: int) -> Any:
    """What the series leaves out: kappa M (1 - 1/kappa)^Q, or with the step itself kappa M (1 - eta mu)^(Q + 1)."""
    kappa, M = arb(c.ell) / arb(c.mu), arb(c.M)
    return kappa * M * ((1 - 1 / kappa) ** Q if eta is None else (1 - arb(eta) * arb(c.mu)) ** (Q + 1))


def distance(a: Balls, b: Balls) -> Any:
    """|a - b|; zero without a rounding where both are one and the same.

    >>> float(distance([arb(3)], [arb(1)]))
    2.0
    """
    if a is b:
        return arb(0)
    return sum(((s - t) * (s - t) for s, t in zip(a, b, strict=True)), arb(0)).nonnegative_part().sqrt()


def inner(a: arb_mat, b: arb_mat) -> Any:
    """The inner product of two columns.

    >>> float(inner(arb_mat(2, 1, [1, 2]), arb_mat(2, 1, [3, 4])))
    11.0
    """
    return sum((s * t for s, t in zip(a.entries(), b.entries(), strict=True)), arb(0))


def named(samples: Samples, solved: Solved, y: Balls) -> dict[str, float]:
    """The point (x, y) by the names of its variables."""
    return samples.study.named(solved.x, np.array([float(ball) for ball in y]))


def error_bound(c: Constants, estimator: Estimator, B: int, away: Any, variant: Variant) -> Any:
    """The bound on the mean square error of the stochastic hypergradient; ``away`` is c |y - y*|.

    Paper: Lemma D.9 [le:variancc]
    """
    if variant == "sharp":
        return variance_bound(c, estimator, B) + (away + series_rest(c, estimator.eta, estimator.Q)) ** 2
    found = variance_bound(c, estimator, B, (4, 8, 2, 16)) + 16 * series_rest(c, None, estimator.Q) ** 2
    return found + (1 if variant == "printed" else arb(16) / 15) * away**2


def variance_bound(c: Constants, estimator: Estimator, B: int, weights: tuple[int, ...] = (1, 2, 2, 2)) -> Any:
    """The terms of the batches: of g_xy, of f_y through v, of f_x, and of the series; by default the sharp ones."""
    of_g, of_v, of_f, of_series = weights
    kappa, M = arb(c.ell) / arb(c.mu), arb(c.M)
    series = (arb(estimator.eta) * arb(c.ell) * kappa * M) ** 2 / B if estimator.Q else arb(0)
    return (
        of_g * kappa**2 * M**2 / estimator.batch_g
        + (of_v * kappa**2 + of_f) * M**2 / estimator.batch_f
        + of_series * series
    )


def mean_hypergradient(samples: Samples, solved: Solved, y: Balls, eta: float, Q: int) -> arb_mat:
    """f_x - g_xy g_yy^-1 (I - (I - eta g_yy)^(Q + 1)) f_y; a power loses fewer bits than a sum of hundreds of terms."""
    f, g = samples.at(("f_x", "f_y"), solved.balls, y), samples.at(("g_xy", "g_yy"), solved.balls, y)
    curvature, slope = mean(g["g_yy"]), mean(f["f_y"])
    factor = identity(curvature.nrows()) - curvature * arb(eta)
    return mean(f["f_x"]) - mean(g["g_xy"]) * curvature.solve(slope - factor ** (Q + 1) * slope)


def phi_after(samples: Samples, solved: Solved, h: arb_mat, step: Any, c: Constants) -> Any:
    """Phi(x - step h), from the middle of that ball; the rest is covered by the slope of Phi."""
    there = [a - step * b for a, b in zip(solved.balls, h.entries(), strict=True)]
    middles = [ball.mid() for ball in there]
    away = sum((abs(a - b).abs_upper() for a, b in zip(there, middles, strict=True)), arb(0))
    point = [sp.Rational(*(int(part) for part in (ball.fmpq().p, ball.fmpq().q))) for ball in middles]
    return evaluate(samples.study.exact, point).phi.value + arb(c.hypergradient_bound) * away * arb(0, 1)
