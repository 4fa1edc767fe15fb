"""Regions: parts of a study's box with certified constants of their own, in which bounds come close to what they bound.

Constants over a large box make a bound too loose to be tested. A statement that holds wherever Assumption 2.1 does
holds over a part of the box too, with the constants of that part; so it is asked of the whole box and of small boxes
about a point where the lower level is well conditioned, and judged where its bound is tightest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from bilevel_sym import Box, Constants, Kernels
from bilevel_sym.arithmetic.ties import first_smallest
from bilevel_sym.errors import AssumptionViolated, BilevelError
from bilevel_sym.typing import Bools, Floats
from verify import CheckResult, NotApplicable, Study, Verdict

CANDIDATES = 48  # points among which the best conditioned one is looked for
NEARER = (1.0, 0.4, 0.05)  # to the middle of the box, where derivatives tend to be smaller
PARTS = (1 / 24, 1 / 400)  # of the box's width, for the half width of a region
CONSTANTS = 0.05  # of the default effort, to certify the constants of one region


@dataclass(frozen=True, eq=False)
class Region:
    """A box in (x, y) with floats for ends, and constants of Assumption 2.1 that are certified over it.

    >>> region = Region(np.array([-1.0, 0.0]), np.array([1.0, 2.0]), 1, Constants(1.0, 1.0, 0.0, 0.0, 1.0), "the box")
    >>> region.holds(np.array([[0.5], [0.5]]), np.array([[1.0], [3.0]]))
    array([ True, False])
    """

    lower: Floats
    upper: Floats
    d: int
    constants: Constants
    name: str

    def holds(self, x: Floats, y: Floats | None = None) -> Bools:
        """Which rows (..., d) and (..., n) lie inside; nan does not."""
        inside = ((x >= self.lower[: self.d]) & (x <= self.upper[: self.d])).all(axis=-1)
        if y is not None:
            inside &= ((y >= self.lower[self.d :]) & (y <= self.upper[self.d :])).all(axis=-1)
        return np.asarray(inside)

    @property
    def scale(self) -> float:
        """The largest coordinate, of which all coordinates are rounded to a fraction."""
        return float(np.abs([self.lower, self.upper]).max())


def regions(study: Study) -> Iterator[Region]:
    """The whole box, then smaller ones. Where none can be certified, the error of the first is raised.

    >>> from bilevel_sym import verify, zoo
    >>> next(iter(regions(verify.study_of(zoo.get("scalar").problem)))).name
    'the box'
    """
    first: BilevelError | None = None
    found = False
    for part in (None, *PARTS):
        try:
            region = _whole(study) if part is None else study.kept(f"region {part}", partial(_local, study, part))
        except BilevelError as error:
            first = first or error
            continue
        found = True
        if isinstance(first, AssumptionViolated):  # who reads a verdict over a part must hear why it is not the whole
            region = replace(region, name=f"{region.name} (over the whole box Assumption 2.1 fails)")
        yield region
    if not found and first is not None:
        raise first


def judged_over_regions(study: Study, check: Callable[[Region], CheckResult]) -> CheckResult:
    """The result of a region in which the check fails, or else of the one in which its bound is tightest.

    What holds comes before what is left open. A proof needs no second region.

    >>> from bilevel_sym import verify, zoo
    >>> from verify.verdict import judged
    >>> study = verify.study_of(zoo.get("scalar").problem)
    >>> def narrow(region):
    ...     width = float((region.upper - region.lower)[0])
    ...     return judged("eq:gdrate", 1e-3, width, evidence="sampled", message="smaller boxes are tighter")
    >>> judged_over_regions(study, narrow).region
    'a box of 0.005 of the width about x=-1.08'
    """
    found: list[CheckResult] = []
    trouble: BilevelError | None = None
    for region in regions(study):
        try:
            result = check(region)
        except BilevelError as error:
            trouble = trouble or error
            continue
        found.append(result if result.region else replace(result, region=region.name))
        if result.decided and result.evidence == "proved":
            break
        study.deadline.check()
    if not found:
        raise trouble or BilevelError("no region could be studied")
    return tightest_of(found)


def tightest_of(results: Sequence[CheckResult]) -> CheckResult:
    """What is violated, or else the decided result with the tightest bound, or else the tightest of the rest.

    >>> from verify.verdict import judged
    >>> tried = [judged("eq:gdrate", 0.2, bound, evidence="sampled", message="") for bound in (1.0, 0.4, 100.0)]
    >>> tightest_of(tried).bound
    0.4
    """

    def key(result: CheckResult) -> tuple[bool, bool, float]:
        violated = result.verdict is Verdict.VIOLATED
        size = -1.0 if result.tightness is None or not math.isfinite(result.tightness) else result.tightness
        return violated, result.decided, size

    return max(results, key=key)


def lower_levels(kernels: Kernels, x: Floats) -> Floats:
    """y* at each row of x; nan where the lower level cannot be solved.

    >>> from bilevel_sym import zoo
    >>> lower_levels(zoo.get("scalar").problem.kernels, np.array([[1.0]]))
    array([[0.5]])
    """
    try:
        return np.asarray(kernels.y_star(x))
    except BilevelError:
        if len(x) == 1:
            return np.full((1, kernels.problem.n), np.nan)
    half = len(x) // 2
    return np.concatenate([lower_levels(kernels, x[:half]), lower_levels(kernels, x[half:])])


def solvable_points(study: Study, count: int, name: str, most: int) -> tuple[Floats, Floats]:
    """The first few of some points of the box at which y* can be computed, (points, d), and y* there.

    - ``study``: the problem.
    - ``count``: how many points are tried.
    - ``name``: of the random numbers.
    - ``most``: how many of them are taken, at most.
    """
    x = study.points(count, name)
    y = lower_levels(study.kernels, x)
    keep = np.flatnonzero(np.isfinite(y).all(axis=1))[:most]
    if not len(keep):
        raise NotApplicable("y* cannot be computed at any of the points tried")
    return x[keep], y[keep]


def _ends(study: Study) -> tuple[Floats, Floats]:
    """The ends of the box in (x, y); a box in x alone leaves y free."""
    total = study.exact.d + study.exact.n
    low, high = np.full(total, -np.inf), np.full(total, np.inf)
    for k, (least, most) in enumerate(study.box):
        low[k], high[k] = float(least), float(most)
    return low, high


def _whole(study: Study) -> Region:
    low, high = _ends(study)
    return Region(low, high, study.exact.d, _floats(study.constants.valid), "the box")


def _local(study: Study, part: float) -> Region:
    """One of the smaller boxes."""
    low, high = _ends(study)
    if not np.isfinite(high - low).all():
        raise BilevelError("the box does not say how far y goes", hint="give intervals for y too")
    centre = _centre(study)
    radius = part * (high - low)
    # y* moves with x, faster by up to the condition number, so y gets more room than x
    radius[: study.exact.d] /= 4
    lower, upper = np.maximum(low, centre - radius), np.minimum(high, centre + radius)
    names = [s.name for s in (*study.exact.x, *study.exact.y)]
    box = Box({name: (float(a), float(b)) for name, a, b in zip(names, lower, upper, strict=True)})
    certified = study.constants_over(box, CONSTANTS)
    where = ", ".join(f"{name}={value:.3g}" for name, value in study.named(centre[: study.exact.d]).items())
    return Region(
        lower, upper, study.exact.d, _floats(certified.valid), f"a box of {2 * part:.2g} of the width about {where}"
    )


@lru_cache(2)
def _centre(study: Study) -> Floats:
    """(x, y*(x)) inside the box where the second derivatives are smallest against the curvature of g."""
    kernels, d = study.kernels, study.exact.d
    low, high = _ends(study)
    middle = (low + high)[:d] / 2
    nearer = np.resize(NEARER, (CANDIDATES, 1))
    x = middle + nearer * (study.points(CANDIDATES, "regions") - middle)
    y = lower_levels(kernels, x)
    width = (high - low)[d:]
    inside = ((y > low[d:] + 0.05 * width) & (y < high[d:] - 0.05 * width)).all(axis=1)
    if not inside.any():
        raise BilevelError("y* is not inside the box at any of the points tried", hint="a larger box in y")
    x, y = x[inside], y[inside]
    return np.asarray(np.concatenate([x, y], axis=1)[first_smallest(_conditions(kernels, x, y))])


def _conditions(kernels: Kernels, x: Floats, y: Floats) -> Floats:
    curvature = np.linalg.eigvalsh(kernels.g_yy(x, y))
    blocks = (kernels.f_xx, kernels.f_xy, kernels.f_yy, kernels.g_xy)
    least = np.maximum(curvature[:, 0], 1e-300)
    with np.errstate(over="ignore"):  # what is infinite is not chosen
        largest = np.max([np.linalg.norm(block(x, y), 2, axis=(-2, -1)) for block in blocks], axis=0)
        steep = np.linalg.norm(kernels.f_y(x, y), axis=-1)
        return np.asarray(np.maximum(largest, curvature[:, -1]) / least * (1 + steep / least))


def _floats(constants: Constants) -> Constants:
    names = ("mu", "ell", "rho", "nu", "M")
    return Constants(**{name: float(getattr(constants, name)) for name in names}, reading=constants.reading)
