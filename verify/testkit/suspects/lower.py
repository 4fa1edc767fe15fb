"""Hypotheses for a wrong lower-level solution: what a solver of g with each defect returns.

The hypothesis that a lower-level solver stops at a loose tolerance: other numbers of steps at other points.

Near y* what a candidate returns is linear in y, so that many step sizes and all numbers of steps can be tried at once.
At each step size the points vote for a tolerance; the rule that it makes is then fitted as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from bilevel_sym.typing import Bools, Floats, Indices
from verify.points.derivatives_at import blocks_at
from verify.testkit.diagnosis import Evidence, Suspect
from verify.testkit.reference import References
from verify.testkit.suspects.altered_result import changed_suspects, momentum
from verify.testkit.suspects.fitting import BEST, DIFFERENCE_STEP, polished
from verify.testkit.suspects.lower_iterates import Start, after_steps, minimiser_of_f, solutions_before, solved, starts
from verify.testkit.suspects.solution import Solutions, shifted_suspects, solution_suspects

__all__ = ["lower_suspects", "stopped_suspects"]

NEWTON = 12


def lower_suspects(at: References, values: Floats, previous: Floats | None = None) -> Iterator[Suspect]:
    """What defective lower-level solvers return at the points; ``values`` (P, n) are the candidate's.

    ``previous`` (P, d) are the points asked just before each, nan where there was none.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.diagnosis import explain
    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [[0.5], [1.0], [1.5], [2.0]])
    >>> seen = Evidence(-at.y, at.y, at.floor("y_star"))
    >>> print(explain(seen, lower_suspects(at, -at.y)).what)
    the sign is wrong: it is -y*
    """
    here = Solutions(at, Evidence(values, at.y, at.floor("y_star")), lambda y: y)
    return chain(
        _scaled(at),
        _before(at, previous),
        solution_suspects(here, previous),
        _other_minimisation(at),
        momentum(at, here.evidence, previous),
        changed_suspects(here.evidence),
        stopped_suspects(here, previous),
        shifted_suspects(here),
    )


def _scaled(at: References) -> Iterator[Suspect]:
    yield Suspect("sign", "the sign is wrong: it is -y*", "the sign of the linear term of g, and of the step", -at.y)
    what = "it is {0:.4g} times y*"
    yield Suspect("factor", what, "factors of 1/2 and means against sums in the terms of g", 0 * at.y, (at.y,))


def _before(at: References, previous: Floats | None) -> Iterator[Suspect]:
    if (before := solutions_before(at.problem, previous)) is not None:
        look = "what is stored from call to call: y must be solved for at the new x before it is returned"
        value = np.where(np.isnan(before), at.y, before)
        yield Suspect("predecessor", "it is y* of the point asked before", look, value)


def _other_minimisation(at: References) -> Iterator[Suspect]:
    """Another function is minimised, or the same one over another variable."""
    look = "which function the lower level minimises, and over which variable: g over y, x held fixed"
    y = minimiser_of_f(at.problem, at.x, at.y)
    yield Suspect("arguments", "f is minimised over y, instead of g", look, y)
    if at.problem.d == at.problem.n:
        yield Suspect("arguments", "it is x itself", look, at.x)
        yield Suspect("arguments", "g(y, x) is minimised instead of g(x, y)", look, _other_minimiser(at))


def _other_minimiser(at: References) -> Floats:
    """argmin over u of g(u, x) by Newton's method; nan where it does not converge."""
    u, step = at.y, at.y
    with np.errstate(all="ignore"):
        for _ in range(NEWTON):
            slope, matrix = blocks_at(at.problem.kernels, ("g_x", "g_xx"), u, at.x)
            step = solved(matrix, slope)
            u = u - step
        still = np.linalg.norm(step, axis=1) <= 1e-9 * (1 + np.linalg.norm(u, axis=1))
    return np.where(still[:, None], u, np.nan)


Numbers = Indices

LARGEST_BY_TOLERANCE = 0.1  # relative: an error above it does not come from a tolerance
MOST_STEPS = 150  # steps
COARSE, FINE = 40, 10  # step sizes; each of the first becomes so many where they come close
COARSE_SHARE = 0.6  # the share of the error that the coarse ones may leave
WIDTHS = (0.03, 0.001)  # relative: how far around a polished step size it is voted again


def stopped_suspects(here: Solutions, previous: Floats | None) -> Iterator[Suspect]:
    """Gradient descent until |g_y| is below a tolerance, from a start or from y* of the point before.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.diagnosis import Evidence
    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")  # from 0 with step 1/4: y* - y is halved each time
    >>> at = references(problem, [[1.0], [3.0], [7.0], [19.0]])
    >>> y = at.y * (1 - 0.5 ** np.array([[7], [9], [10], [12]]))  # the first with |g_y| < 0.01
    >>> found = next(stopped_suspects(Solutions(at, Evidence(y, at.y, at.floor("y_star")), lambda y: y), None))
    >>> found.cause, found.what[:54]
    ('tolerance', 'the lower level stops too early, where |g_y| is below ')
    """
    telling, sizes = here.evidence.telling, np.linalg.norm(here.evidence.truth, axis=1)
    if not telling.any() or (here.evidence.errors > LARGEST_BY_TOLERANCE * sizes.max()).any():
        return
    sizes = np.geomspace(0.03, 1.95, COARSE * FINE) / here.at.eigenvalues.max()
    for start in _begun(here, previous):
        if _voted(here, start, sizes[::FINE]).share < COARSE_SHARE:
            votes = sorted((_voted(here, start, part) for part in np.split(sizes, FINE)), key=lambda vote: vote.share)
            for vote in votes[:BEST]:
                yield from _stopped(here, start, vote)


@dataclass(frozen=True, eq=False)
class _Vote:
    """The share of the error that is left, the step size, the tolerance, the number of steps at each point."""

    share: float
    size: float
    tolerance: float
    numbers: Numbers


def _stopped(here: Solutions, start: Start, vote: _Vote) -> Iterator[Suspect]:
    for width in WIDTHS:  # a better step size, then a better vote
        found = polished(here.evidence, partial(_left, here, start, vote.numbers), vote.size)
        if found is None:
            return
        vote = _voted(here, start, found.parameter * np.linspace(1 - width, 1 + width, COARSE + 1))
    if found := polished(here.evidence, partial(_left, here, start, vote.numbers), vote.size):
        what = f"the lower level stops too early, where |g_y| is below about {vote.tolerance:.1g}"
        steps = f"{vote.numbers.min()} to {vote.numbers.max()} gradient steps of size {found.parameter:.4g}"
        look = "the tolerance at which the lower-level solver stops: it decides how many digits there are"
        yield Suspect("tolerance", f"{what}: {steps} from {start.name}", look, found.value, (found.tangent,))


def _begun(here: Solutions, previous: Floats | None) -> Iterator[Start]:
    yield from starts(here.at.problem, len(here.at))
    if (before := solutions_before(here.at.problem, previous)) is not None:
        yield Start("where the call before ended", np.where(np.isnan(before), 0.0, before))


def _voted(here: Solutions, start: Start, sizes: Floats) -> _Vote:
    """The step size that comes closest, with the tolerance for which the points vote and the steps that it takes."""
    at, evidence = here.at, here.evidence
    path = after_steps(at.problem, at.x, start.y, sizes[:, None], range(MOST_STEPS + 2))
    with np.errstate(all="ignore"):
        residuals = np.linalg.norm(np.diff(path, axis=0), axis=3) / sizes[:, None]
        errors = np.einsum("pmn,tkpn->tkpm", _slopes(here), path[:-1] - at.y)
        rest = np.linalg.norm(errors - (evidence.values - evidence.truth), axis=3) / evidence.errors
        rest = np.where(np.isfinite(rest), rest, np.inf)
        tolerances = _tolerances(residuals, rest, evidence.telling)
        below = residuals <= tolerances[:, None]
        numbers = np.where(below.any(axis=0), below.argmax(axis=0), MOST_STEPS)
        chosen = np.take_along_axis(rest, numbers[None], axis=0)[0][:, evidence.telling]
        shares = np.sqrt(np.square(chosen).mean(axis=1))
        shares = np.where(np.isfinite(shares), shares, np.inf)
    k = int(shares.argmin())
    return _Vote(float(shares[k]), float(sizes[k]), float(tolerances[k]), numbers[k])


def _tolerances(residuals: Floats, rest: Floats, telling: Bools) -> Floats:
    """For each step size, a tolerance between the residuals where the points seem to stop and the ones before."""
    stops = rest.argmin(axis=0)
    last = np.take_along_axis(residuals, stops[None], axis=0)[0][:, telling]
    before = np.take_along_axis(residuals, np.maximum(stops - 1, 0)[None], axis=0)[0][:, telling]
    return np.asarray(np.sqrt(last.max(axis=1) * before.min(axis=1)))


def _slopes(here: Solutions) -> Floats:
    """How what is returned changes with y at y*, (P, m, n), by differences."""
    y, n = here.at.y, here.at.problem.n
    step = DIFFERENCE_STEP * (1 + np.abs(y).max())
    moved = step * np.eye(n)[:, None, :]
    return np.asarray(np.moveaxis(here.answer(y + moved) - here.answer(y - moved), 0, 2) / (2 * step))


def _left(here: Solutions, start: Start, numbers: Numbers, size: Floats) -> Floats:
    """What is returned after each point's own number of steps, (K, P, m)."""
    path = after_steps(here.at.problem, here.at.x, start.y, size[:, None], range(int(numbers.max()) + 1))
    return here.answer(np.moveaxis(path[numbers, :, np.arange(len(numbers))], 0, 1))
