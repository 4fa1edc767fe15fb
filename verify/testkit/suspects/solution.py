"""Hypotheses about y*: the lower level left at its start, on its way, at the point before, or solved for another g.

They serve a wrong lower-level solution and a wrong hypergradient alike; ``answer`` is what is made of y.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import Floats
from verify.points.derivatives_at import blocks_at
from verify.testkit.diagnosis import Cause, Evidence, Suspect
from verify.testkit.reference import References
from verify.testkit.suspects import lower_iterates
from verify.testkit.suspects.fitting import Fitted, Many, fitted, promising, settled
from verify.testkit.suspects.roundings import LOOK, rounded

__all__ = ["Answer", "Solutions", "mixed_suspects", "shifted_suspects", "solution_suspects", "unrolled_suspects"]

Answer: TypeAlias = Callable[[Floats], Floats]  # y (..., P, n) -> what the candidate returns with it, (..., P, m)
Runs: TypeAlias = Callable[[Floats, Sequence[int]], Floats]  # step sizes (K,), numbers of steps (F,) -> (F, K, P, m)

NEWTON = 6
NUMBERS = (*range(1, 9), 10, 12, 15, 20, 25, 30, 40, 50)
FEW_STEPS = (1, 2, 3, 5, 10)
CARRIED = (1, 2, 3, 5)
MIXED = (*range(1, 13), 15, 16, 20, 21)
UNROLLED = (1, 2, 3, 4, 5, 8, 10, 16, 20)
SOLVER = "the lower-level solver: its number of steps, its step size, its stopping rule"
WARM = "the warm start: y must be solved for at the new x before the hypergradient is computed there"
MOST_FREE = 8  # free numbers


@dataclass(frozen=True, eq=False)
class Solutions:
    """The points, what was returned there, and what a candidate makes of y.

    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [[4.0]])
    >>> Solutions(at, Evidence(at.y, at.y, np.zeros(1)), lambda y: y).suspect(2 * at.y, "doubled", "").value
    array([[4.]])
    """

    at: References
    evidence: Evidence
    answer: Answer

    def suspect(self, y: Floats, what: str, look: str = SOLVER, cause: Cause = "y*") -> Suspect:
        """The hypothesis that y stands in the place of y*."""
        return Suspect(cause, what, look, self.answer(y))

    @property
    def grid(self) -> Floats:
        """Step sizes of gradient descent, relative to what suits the points."""
        parts = np.geomspace(1e-3, 0.45, 24), np.linspace(0.5, 3.0, 21)
        return np.asarray(np.concatenate(parts) / self.at.eigenvalues.max())


def solution_suspects(here: Solutions, previous: Floats | None) -> Iterator[Suspect]:
    """What a candidate returns whose lower-level solution is wrong, everything else being right.

    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [[4.0]])
    >>> here = Solutions(at, Evidence(0 * at.y, at.y, np.zeros(1)), lambda y: y)
    >>> next(solution_suspects(here, None)).what
    'the lower level is left at its start, y = 0'
    """
    at = here.at
    for start in lower_iterates.starts(at.problem, len(at)):
        yield from _near_start(here, start)
    yield from _rounded(here)
    yield from _stale(here, previous)
    for start in (*lower_iterates.starts(at.problem, len(at)), lower_iterates.Start("y = 1", np.ones_like(at.y))):
        yield from _own_steps(here, start)
        yield from _scanned(here, start, NUMBERS, SOLVER)
    yield from _uphill(here)
    yield from _penalised(here)
    yield from _warm(here, previous)


def unrolled_suspects(at: References, evidence: Evidence) -> Iterator[Suspect]:
    """d/dx f(x, y_D(x)): too few gradient steps, differentiated along with f.

    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [[1.0], [2.0], [3.0], [4.0]])
    >>> seen = Evidence(at.x / 2, at.truth("grad_phi"), at.floor("grad_phi"))  # one step of 1/4: y = x/4
    >>> next(unrolled_suspects(at, seen)).what
    'it is differentiated through 1 gradient step of size 0.25 from y = 0, which is not converged'
    """
    here = Solutions(at, evidence, lambda y: y)
    for start in lower_iterates.starts(at.problem, len(at)):
        what = f"it is differentiated through {{}} from {start.name}, which is not converged"
        yield from _fitted(here, partial(_unrolled, at, start), UNROLLED, what)


def mixed_suspects(at: References, evidence: Evidence) -> Iterator[Suspect]:
    """f at the last gradient step of the lower level and g at the one before, or the other way round.

    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x*y**2", "y**2 + y**4/4 - x*y", "x", "y")
    >>> at = references(problem, [[0.5], [1.0], [1.5], [2.0], [2.5], [3.0]])
    >>> y, last = lower_iterates.after_steps(problem, at.x, 0 * at.y, np.full(6, 0.1), (7, 8))
    >>> seen = Evidence(_mixture(problem, at.x, last, y), at.truth("grad_phi"), at.floor("grad_phi"))
    >>> next(mixed_suspects(at, seen)).what
    'f is evaluated after 8 gradient steps of size 0.1 from y = 0, and g a step earlier'
    """
    here = Solutions(at, evidence, lambda y: y)
    for start in lower_iterates.starts(at.problem, len(at)):
        for late, early in (("f", "g"), ("g", "f")):
            what = f"{late} is evaluated after {{}} from {start.name}, and {early} a step earlier"
            yield from _fitted(here, partial(_mixed, at, start, late == "f"), MIXED, what)


def _mixed(at: References, start: lower_iterates.Start, f_last: bool, step: Floats, numbers: Sequence[int]) -> Floats:
    needed = sorted({*numbers, *(number - 1 for number in numbers)})
    y = dict(zip(needed, lower_iterates.after_steps(at.problem, at.x, start.y, step[:, None], needed), strict=True))
    pairs = [(y[number], y[number - 1])[:: 1 if f_last else -1] for number in numbers]
    return np.array([_mixture(at.problem, at.x, *pair) for pair in pairs])


def _mixture(problem: BilevelProblem, x: Floats, y_f: Floats, y_g: Floats) -> Floats:
    """f_x - g_xy g_yy^-1 f_y with a y for f and another for g."""
    f_x, f_y = blocks_at(problem.kernels, ("f_x", "f_y"), x, y_f)
    g_xy, g_yy = blocks_at(problem.kernels, ("g_xy", "g_yy"), x, y_g)
    return lower_iterates.hypergradient_of(f_x, f_y, g_xy, g_yy)


def _near_start(here: Solutions, start: lower_iterates.Start) -> Iterator[Suspect]:
    at = here.at
    yield here.suspect(start.y, f"the lower level is left at its start, {start.name}")
    for number in (1, 2):
        y = lower_iterates.after_newton(at.problem, at.x, start.y, number)
        yield here.suspect(y, f"the lower level is left after {_count(number, 'Newton step')} from {start.name}")
    if not start.y.any():
        wrong = "the lower-level solution enters with the wrong sign, -y*"
        yield here.suspect(-at.y, wrong, "the sign of y, and of the linear term of g", "sign")


def _rounded(here: Solutions) -> Iterator[Suspect]:
    """y* with fewer decimals, or with fewer bits."""
    for y, words in rounded(here.at.y):
        yield here.suspect(y, f"y {words}", LOOK.format("y"), "precision")


def _stale(here: Solutions, previous: Floats | None) -> Iterator[Suspect]:
    """y* of the point before; at the first point it may be right, or at a start."""
    at = here.at
    if (before := lower_iterates.solutions_before(at.problem, previous)) is None:
        return
    first = np.isnan(before)
    yield here.suspect(np.where(first, at.y, before), "y is y* of the point asked before", WARM)
    for start in lower_iterates.starts(at.problem, len(at)):
        what = f"y is y* of the point asked before, and {start.name} at first"
        yield here.suspect(np.where(first, start.y, before), what, WARM)


def _own_steps(here: Solutions, start: lower_iterates.Start) -> Iterator[Suspect]:
    """Gradient steps whose size is made for each point: 1/lambda_max of g_yy there."""
    at, largest = here.at, here.at.eigenvalues[:, -1]
    iterates = lower_iterates.after_steps(at.problem, at.x, start.y, 1 / largest, NUMBERS)
    for number, answer in zip(NUMBERS, here.answer(iterates), strict=True):
        what = f"the lower level is left after {_count(number)} of size 1/lambda_max from {start.name}"
        yield Suspect("y*", what, SOLVER, answer)


def _scanned(here: Solutions, start: lower_iterates.Start, numbers: Sequence[int], look: str) -> Iterator[Suspect]:
    """Gradient steps of one size for all points."""
    what = f"the lower level is left after {{}} from {start.name}"
    yield from _fitted(here, partial(_descended, here, start), numbers, what, look)


def _uphill(here: Solutions) -> Iterator[Suspect]:
    start = next(lower_iterates.starts(here.at.problem, len(here.at)))
    for number, found in _fits(here, partial(_descended, here, start), FEW_STEPS, -here.grid):
        what = (
            f"the lower level is climbed: {_count(number)} of size {-found.parameter:.4g} along +g_y from {start.name}"
        )
        yield Suspect("sign", what, "the sign of the step in the lower-level solver", found.value, (found.tangent,))


def _penalised(here: Solutions) -> Iterator[Suspect]:
    """y minimises g + weight |y|^2/2: a weight decay that is not part of g, or a penalty that is."""
    grid = np.geomspace(1e-8, 10.0, 37) * float(here.at.eigenvalues.max())
    least = float(here.at.eigenvalues.min())
    for weights, said in ((grid, "with a penalty"), (-grid[grid < 0.99 * least], "without a penalty")):
        if len(weights) and (found := fitted(here.evidence, partial(_decayed, here), weights)):
            what = f"the lower level is solved {said} of {abs(found.parameter):.4g} |y|^2/2"
            look = "weight decay and regularisation: they must be the same in the solver and in g"
            yield Suspect("y*", what, look, found.value, (found.tangent,))


def _warm(here: Solutions, previous: Floats | None) -> Iterator[Suspect]:
    """Few steps from y* of the point before, or from wherever the last call ended."""
    at = here.at
    if previous is None or (before := lower_iterates.solutions_before(at.problem, previous)) is None:
        return
    y = np.where(np.isnan(before), 0.0, before)
    yield from _scanned(here, lower_iterates.Start("y* of the point asked before", y), FEW_STEPS, WARM)
    if len(at) > 1 and np.array_equal(previous[1:], at.x[:-1]):
        what = "y is carried from call to call with only {} at each point"
        yield from _fitted(here, partial(_carried, here, y[0]), CARRIED, what, WARM)


def _fitted(here: Solutions, runs: Runs, numbers: Sequence[int], what: str, look: str = SOLVER) -> Iterator[Suspect]:
    """The same as hypotheses; ``what`` has a place for how many steps, and how long."""
    for number, found in _fits(here, runs, numbers, here.grid):
        steps = f"{_count(number)} of size {found.parameter:.4g}"
        yield Suspect("y*", what.format(steps), look, found.value, (found.tangent,))


def _fits(here: Solutions, runs: Runs, numbers: Sequence[int], grid: Floats) -> Iterator[tuple[int, Fitted]]:
    """The few numbers of steps that come closest, each with its best step size."""
    for row, place in promising(here.evidence, runs(grid, numbers)):
        if found := fitted(here.evidence, partial(_first, runs, numbers[row : row + 1]), grid, place):
            yield numbers[row], found


def _first(runs: Runs, number: Sequence[int], step: Floats) -> Floats:
    return np.asarray(runs(step, number)[0])


def _descended(here: Solutions, start: lower_iterates.Start, step: Floats, numbers: Sequence[int]) -> Floats:
    return here.answer(lower_iterates.after_steps(here.at.problem, here.at.x, start.y, step[:, None], numbers))


def _carried(here: Solutions, first: Floats, step: Floats, numbers: Sequence[int]) -> Floats:
    return here.answer(
        np.array([lower_iterates.along_points(here.at.problem, here.at.x, first, step, number) for number in numbers])
    )


def _unrolled(at: References, start: lower_iterates.Start, step: Floats, numbers: Sequence[int]) -> Floats:
    return lower_iterates.unrolled(at.problem, at.x, start.y, step[:, None], numbers)


def _decayed(here: Solutions, weight: Floats) -> Floats:
    """Newton's method for g_y + weight y = 0 from y*."""
    at = here.at
    y = np.broadcast_to(at.y, (len(weight), *at.y.shape))
    shift = weight[:, None, None, None] * np.eye(at.problem.n)
    with np.errstate(all="ignore"):
        for _ in range(NEWTON):
            g_y, g_yy = blocks_at(at.problem.kernels, ("g_y", "g_yy"), at.x, y)
            y = y - lower_iterates.solved(g_yy + shift, g_y + weight[:, None, None] * y)
    return here.answer(y)


def _count(number: int, name: str = "gradient step") -> str:
    return f"{number} {name}{'s' * (number != 1)}"


# ---------------------------------------------------------------------- a few numbers that are the same at all points


def shifted_suspects(here: Solutions) -> Iterator[Suspect]:
    """What a candidate returns with a y that is y* of a shifted problem, or the same everywhere.

    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "exp(y) - sin(x)*y + y**2", "x", "y"), [[k / 4] for k in range(6)])
    >>> y = at.problem.kernels.y_star(at.x + 0.01)
    >>> [s.what for s in shifted_suspects(Solutions(at, Evidence(y, at.y, at.floor("y_star")), lambda y: y))]
    ['y is y* at another point, x + (0.01)']
    """
    at = here.at
    if at.problem.n <= MOST_FREE:
        zero, mean = np.zeros(at.problem.n), at.y.mean(axis=0)
        what, look = "y is the same at all points: {}", "the lower-level solver: does it see the x of this call?"
        same = lambda c: here.answer(np.broadcast_to(c[:, None, :], (len(c), *at.y.shape)))  # noqa: E731
        yield from _settled(here, same, mean, what, look)
        what, look = "y is y* + {}", "what is added to y after the lower level is solved, and the linear term of g"
        yield from _settled(here, lambda c: here.answer(at.y + c[:, None, :]), zero, what, look)
        what, look = "y is y* times {}", "factors of 1/2, and means against sums, in the terms of g"
        yield from _settled(here, lambda c: here.answer(at.y * c[:, None, :]), np.ones(1), what, look)
    if at.problem.d <= MOST_FREE:
        what, look = "y is y* at another point, x + {}", "the x at which the lower level is solved"
        yield from _settled(here, lambda h: _beside(here, h), np.zeros(at.problem.d), what, look)


def _settled(here: Solutions, family: Many, start: Floats, what: str, look: str) -> Iterator[Suspect]:
    with np.errstate(all="ignore"):
        found = settled(here.evidence, family, start)
    if found is not None:
        numbers, value = found
        said = "(" + ", ".join(f"{number:.4g}" for number in numbers) + ")"
        yield Suspect("y*", what.format(said), look, value, (np.zeros_like(value),) * len(numbers))


def _beside(here: Solutions, away: Floats) -> Floats:
    at = here.at
    x = at.x + away[:, None, :]
    try:
        y = at.problem.kernels.y_star(x, y0=np.broadcast_to(at.y, (*x.shape[:-1], at.problem.n)))
    except BilevelError:
        y = np.full((*x.shape[:-1], at.problem.n), np.nan)
    return here.answer(y)
