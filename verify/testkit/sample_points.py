"""Where a candidate is asked: points of the problem's box, special ones first, or those that a user names.

Then very many, to find the few at which it fails. It is compared with the kernels there, which proves nothing; the
points at which the two differ most are certified like all others. A default solver that is inaccurate at one point in a
few hundred is found in no other way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic.ties import in_order
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.system.frames import check_labels, is_frame
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.typing import Floats
from verify.testkit.candidate import STEPS, Candidate, Settings, norms
from verify.testkit.named_arrays import laid_out_points
from verify.testkit.reference import Quantity

__all__ = ["KEPT", "MOST_SITES", "given_points", "sample_points", "screening", "x_ends"]

MOST_SITES = 12
GRID = 100  # of the box: short numbers that can be typed again, and of which float32 holds next to none
MOST_CALLS = 1000  # calls by default, where each is one step
SCREENING_SHARE = 0.5  # of the steps that are left, where each is many
FEWEST = 20  # so few say nothing more than the chosen ones
KEPT = 4
SCREENING_GRID = 10**4  # no power of two: products of short binary fractions are exact in single precision too


def x_ends(problem: BilevelProblem) -> tuple[Floats, Floats]:
    """The ends of the box in x; from -1 to 1 where the problem has none.

    >>> x_ends(BilevelProblem("x*y", "y**2 - x*y", "x", "y", box={"x": (0, 2), "y": (0, 1)}))
    (array([0.]), array([2.]))
    """
    pairs = problem.ends("x") or [(-1, 1)] * problem.d
    return np.array([float(low) for low, _ in pairs]), np.array([float(high) for _, high in pairs])


def sample_points(problem: BilevelProblem, rng: np.random.Generator) -> Floats:
    """The middle, zero if it is inside, two corners, and points at random, (P, d).

    Zero and the middle are where a warm start from zero is often exact, and where terms vanish.

    >>> sample_points(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), np.random.default_rng(0))[:3].ravel()
    array([ 0., -1.,  1.])
    """
    low, high = x_ends(problem)
    special = [(low + high) / 2, np.clip(0.0, low, high), low, high]
    shares = rng.integers(1, GRID, (MOST_SITES, problem.d)) / GRID
    points = [*special, *np.clip(_short(low + shares * (high - low)), low, high)]
    distinct = {tuple(point): point for point in points}
    return np.array(list(distinct.values())[:MOST_SITES]) + 0.0


def _short(points: Floats) -> Floats:
    """0.02 where sums of floating-point numbers gave 0.020000000000000018."""
    return np.array([[float(f"{value:.12g}") for value in point] for point in points])


def given_points(problem: BilevelProblem, points: Iterable[Any]) -> Floats:
    """The points of a user: rows of d numbers, or mappings by name, or one of these alone.

    >>> given_points(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [{"x": 1}, [0.5]])
    array([[1. ],
           [0.5]])
    """
    hint = f"points of {problem.d} finite numbers each, such as points=[{[0.5] * problem.d}]"
    names = [s.name for s in problem.x_entries]
    points = laid_out_points(problem, points)
    check_labels(points, names, "points")
    if isinstance(points, (list, tuple)):
        for row in points:
            check_labels(row, names, "a point")
    try:
        points = np.asarray(points) if is_frame(points) else points
        listed = [points] if isinstance(points, Mapping) else list(points)
        rows = [[row[name] for name in names] if isinstance(row, Mapping) else row for row in listed]
        array = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise InvalidArgument(f"points={points!r:.60} are not points of x", hint=hint) from None
    array = array[None] if array.ndim == 1 and array.shape == (problem.d,) else array
    if array.ndim != 2 or array.shape[1] != problem.d or not len(array) or not np.isfinite(array).all():
        raise InvalidArgument(f"points of shape {array.shape} are not finite points of x", hint=hint)
    return array


# ---------------------------------------------------------------------- very many points


@dataclass(frozen=True, eq=False)
class Screening:
    """The points at which candidate and kernels differ most, and how many were asked."""

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
    points = low + rng.integers(1, SCREENING_GRID, (count, problem.d)) / SCREENING_GRID * (high - low)
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
