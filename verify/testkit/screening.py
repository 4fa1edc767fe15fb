"""Screening: a quick candidate is asked at very many points, to find the few at which it fails.

The kernels are what it is compared with here, which proves nothing; the points at which the two differ most are then
certified like all others. A default solver that is inaccurate at one point in a few hundred is found in no other way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.errors import BilevelError
from bilevel_sym.problem import BilevelProblem
from bilevel_sym.ties import in_order
from verify.testkit.arrays import norms
from verify.testkit.candidate import Candidate, Settings
from verify.testkit.reference import Quantity
from verify.testkit.sites import x_ends

__all__ = ["KEPT", "Screening", "screening"]

Floats = NDArray[np.float64]
MOST = 1000
SECONDS = 0.4
FEWEST = 20  # so few say nothing more than the chosen ones
KEPT = 4
GRID = 10**4  # no power of two: products of short binary fractions are exact in single precision too


@dataclass(frozen=True, eq=False)
class Screening:
    """The points at which candidate and kernels differ most, and how many were asked.

    >>> Screening(np.zeros((0, 2)), 0).count
    0
    """

    points: Floats
    count: int


def screening(
    candidate: Candidate, problem: BilevelProblem, quantity: Quantity, settings: Settings, rng: np.random.Generator
) -> Screening:
    """Ask at as many points of the box as a fraction of a second allows.

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")  # Phi = x^2/2
    >>> rarely = Candidate(lambda x: x if x[0] < 0.99 else 2 * x, (1,))
    >>> found = screening(rarely, problem, "grad_phi", {}, np.random.default_rng(0))
    >>> found.count > 100, (found.points > 0.99).any()
    (True, np.True_)
    """
    low, high = x_ends(problem)
    pace = max(candidate.previous.seconds if candidate.previous else 0.0, 1e-6)
    count = min(MOST, int(SECONDS / pace))
    if count < FEWEST:
        return Screening(np.zeros((0, problem.d)), 0)
    points = low + rng.integers(1, GRID, (count, problem.d)) / GRID * (high - low)
    try:
        with np.errstate(all="ignore"):
            truth = getattr(problem.kernels, quantity)(points)
    except BilevelError:  # somewhere in the box there is no lower-level solution: the chosen points have to do
        return Screening(points[:0], 0)
    values: list[Floats] = []
    spent = 0.0
    for x in points:
        if spent > SECONDS:
            break
        values.append(candidate(x, settings).value)
        spent += candidate.previous.seconds if candidate.previous else 0.0
    off, size = norms(np.array(values) - truth[: len(values)]), norms(truth[: len(values)])
    share = np.where(np.isfinite(off), off / (size + 1e-3 * size.max(initial=1e-300)), np.inf)
    return Screening(points[in_order(share, descending=True)[:KEPT]], len(values))
