"""Screening: a candidate is asked at very many points, to find the few at which it fails.

The kernels are what it is compared with here, which proves nothing; the points at which the two differ most are then
certified like all others. A default solver that is inaccurate at one point in a few hundred is found in no other way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic.ties import in_order
from bilevel_sym.errors import BilevelError
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.typing import Floats
from verify.testkit.arrays import norms
from verify.testkit.candidate import STEPS, Candidate, Settings
from verify.testkit.reference import Quantity
from verify.testkit.sample_points import x_ends

__all__ = ["KEPT", "Screening", "screening"]

MOST_CALLS = 1000  # calls by default, where each is one step
SCREENING_SHARE = 0.5  # of the steps that are left, where each is many
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


def calls_for(candidate: Candidate, settings: Settings) -> int:
    """How many points are asked: 1000 by default, fewer where each call is many steps, and none rather than few.

    >>> quick, long = Candidate(lambda x: x, (1,)), Candidate(lambda x, D: x, (1,))
    >>> calls_for(quick, {}), calls_for(long, {"D": 100}), calls_for(long, {"D": 1000})
    (1000, 100, 0)
    """
    within = SCREENING_SHARE * candidate.budget.left / candidate.cost(settings)
    count = int(min(MOST_CALLS * candidate.budget.work / STEPS, within))
    return count if count >= FEWEST else 0


def screening(
    candidate: Candidate,
    problem: BilevelProblem,
    quantity: Quantity,
    settings: Settings,
    rng: np.random.Generator,
    *,
    progress: bool = False,
) -> Screening:
    """Ask at so many points of the box as ``calls_for`` says.

    - ``candidate``: what is asked.
    - ``problem``: the problem.
    - ``quantity``: what it is to compute.
    - ``settings``: D, N, Q or tol.
    - ``rng``: by which the points are drawn.
    - ``progress``: whether a terminal shows how far it is.

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")  # Phi = x^2/2
    >>> rarely = Candidate(lambda x: x if x[0] < 0.99 else 2 * x, (1,))
    >>> found = screening(rarely, problem, "grad_phi", {}, np.random.default_rng(0))
    >>> found.count, (found.points > 0.99).any()
    (1000, np.True_)
    """
    low, high = x_ends(problem)
    count = calls_for(candidate, settings)
    points = low + rng.integers(1, GRID, (count, problem.d)) / GRID * (high - low)
    if not count:
        return Screening(points, 0)
    try:
        with np.errstate(all="ignore"):
            truth = getattr(problem.kernels, quantity)(points)
    except BilevelError:  # somewhere in the box there is no lower-level solution: the chosen points have to do
        return Screening(points[:0], 0)
    values: list[Floats] = []
    with ProgressBar("asking the candidate at more points", count, shown=progress) as meter:
        for x in points:
            values.append(candidate(x, settings).value)
            meter.at(len(values))
    off, size = norms(np.array(values) - truth), norms(truth)
    share = np.where(np.isfinite(off), off / (size + 1e-3 * size.max(initial=1e-300)), np.inf)
    return Screening(points[in_order(share, descending=True)[:KEPT]], count)
