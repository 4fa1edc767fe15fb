"""Hessians of Phi that are right at another place: another y, another x, or a little beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import Floats
from verify.points.derivatives_at import BLOCKS, blocks_at
from verify.testkit.diagnosis import Evidence, Suspect
from verify.testkit.reference import References
from verify.testkit.suspects.fitting import GRID, Family, closest, flat, suspect
from verify.testkit.suspects.hessian_terms import hessian_at, transposed
from verify.testkit.suspects.lower_iterates import Start, after_steps, along_points, solutions_before, starts

__all__ = ["at_other_points", "unrolled_hessians"]

Runs: TypeAlias = Callable[[Floats, Sequence[int]], Floats]  # step sizes (K,), numbers of steps (F,) -> (F, K, P, d d)

LENGTHS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50)  # D, the steps of the lower level
WARM_STEPS = (1, 2, 3, 5)  # D of a warm start, which has to be followed from point to point
UNROLLED = (1, 2, 3, 5, 10, 20)  # D, where each step is differentiated
BESIDE = 2.0**-6  # for central differences of grad Phi, whose error is of second order in it
SOLVER = "the lower-level solver: its number of steps, its step size, its stopping rule, and where it starts"


def at_other_points(at: References, evidence: Evidence, previous: Floats | None) -> Iterator[Suspect]:
    """At a y that is not y*, at the point before, or by differences of grad Phi.

    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y**2", "y**2 - x*y", "x", "y"), [[1.0], [2.0], [4.0]])
    >>> evidence = Evidence(0 * at.at["f_xx"], at.truth("hess_phi"), at.floor("hess_phi"))
    >>> next(at_other_points(at, evidence, None)).what
    'everything is evaluated at y = 0 instead of y*'
    """
    for start in starts(at.problem, len(at)):
        what = f"everything is evaluated at {start.name} instead of y*"
        yield Suspect("y*", what, SOLVER, hessian_at(at.problem, at.x, start.y))
    yield from _before(at, evidence, previous)
    yield from _differences(at)
    for start in starts(at.problem, len(at)):
        yield from _unconverged(at, evidence, start.y, start.name)
        yield from _unrolled(at, evidence, start)
    yield from _warm(at, evidence, previous)


# ---------------------------------------------------------------------- the point asked before


def _before(at: References, evidence: Evidence, previous: Floats | None) -> Iterator[Suspect]:
    """The whole at the point before, or y* from there; the first point, before which none was asked, says nothing."""
    y = solutions_before(at.problem, previous)
    if y is None or previous is None:
        return
    known = np.asarray(np.isfinite(y).all(axis=1))
    if known.sum() < max(2, len(at) / 2):
        return
    stale, late = (evidence.values.copy() for _ in range(2))
    late[known] = hessian_at(at.problem, previous[known], y[known])
    stale[known] = hessian_at(at.problem, at.x[known], y[known])
    look = "what is stored between calls, and whether it is refreshed before it is used"
    yield Suspect("predecessor", "it is the Hessian at the point that was asked before", look, late)
    yield Suspect("y*", "y* is that of the point asked before: the warm start is never improved", SOLVER, stale)
    begin = np.where(known[:, None], y, at.y)
    yield from _unconverged(at, evidence, begin, "y* of the point asked before", WARM_STEPS)


def _warm(at: References, evidence: Evidence, previous: Floats | None) -> Iterator[Suspect]:
    """D steps at each point from where they ended at the point before."""
    if previous is None or len(at) < 2 or not np.array_equal(previous[1:], at.x[:-1]):
        return
    before = solutions_before(at.problem, previous[:1])
    first = np.zeros(at.problem.n) if before is None else before[0]

    def ends(step: Floats, numbers: Sequence[int]) -> Floats:
        return np.array([_hessians(at, along_points(at.problem, at.x, first, step, D)) for D in numbers])

    what = "the lower level takes {} from where the point before left it, and is far from y*"
    yield from _closest(at, evidence, ends, WARM_STEPS, what)


# ---------------------------------------------------------------------- a lower level that is not solved


def _unconverged(
    at: References, evidence: Evidence, start: Floats, name: str, lengths: tuple[int, ...] = LENGTHS
) -> Iterator[Suspect]:
    """D gradient steps from a start, the same step size at all points."""

    def ends(step: Floats, numbers: Sequence[int]) -> Floats:
        y = after_steps(at.problem, at.x, start, step[:, None], numbers)
        return np.array([_hessians(at, some) for some in y])

    yield from _closest(at, evidence, ends, lengths, f"the lower level takes {{}} from {name}, and is far from y*")


def _unrolled(at: References, evidence: Evidence, start: Start) -> Iterator[Suspect]:
    """The same steps, but differentiated, as automatic differentiation through a loop does."""

    def ends(step: Floats, numbers: Sequence[int]) -> Floats:
        values = unrolled_hessians(at.problem, at.x, start.y, step, numbers)
        return values.reshape(*values.shape[:3], -1)

    what = f"it is differentiated through {{}} from {start.name}, too few for y* and its derivatives"
    yield from _closest(at, evidence, ends, UNROLLED, what)


def _closest(at: References, evidence: Evidence, ends: Runs, numbers: Sequence[int], what: str) -> Iterator[Suspect]:
    """The numbers of steps, and the step sizes, with which ``ends`` comes closest."""
    grid = GRID / float(at.eigenvalues.max())
    families: dict[int, Family] = {D: lambda step, D=D: ends(step, (D,))[0] for D in numbers}  # type: ignore[misc]
    for number, found in closest(flat(evidence), families, grid, ends(grid, numbers)):
        steps = f"{number} gradient step{'s' * (number > 1)} of size {found.parameter:.3g}"
        yield suspect(evidence, "y*", what.format(steps), SOLVER, found)


def _hessians(at: References, y: Floats) -> Floats:
    """The formula at K choices of y at each point, (K, P, n), as (K, P, d d)."""
    x = np.broadcast_to(at.x, (*y.shape[:-1], at.problem.d)).reshape(-1, at.problem.d)
    return hessian_at(at.problem, x, y.reshape(-1, at.problem.n)).reshape(*y.shape[:-1], -1)


# ---------------------------------------------------------------------- differences


def _differences(at: References) -> Iterator[Suspect]:
    """Right gradients, whose differences err by h/2 times a third derivative, or by h^2/6 times a fourth."""
    truth, d = at.truth("hess_phi"), at.problem.d
    try:
        third = at.problem.kernels.third_phi(at.x, y0=at.y)
        fourth = _central(at) - truth
    except BilevelError:  # beside the point something is not defined
        return
    along = np.asarray(third[:, :, np.arange(d), np.arange(d)])  # entry (i, j): the third derivative in i, j, j
    look_at = "the step of the differences: exact derivatives, or an extrapolation, have no such error"
    what = "it is a forward difference of grad Phi with a step of {0:.3g}"
    bases = {
        what: along / 2,
        what + ", transposed": transposed(along) / 2,
        what + ", symmetrised": (along + transposed(along)) / 4,
        "it is a second difference of Phi with a step of {0:.3g}": (along + transposed(along)) / 2,
    }
    for said, basis in bases.items():
        yield Suspect("tolerance", said, look_at, truth, (basis,))
    what = f"it is a central difference of grad Phi, with {{0:.3g}} times the error of the step {BESIDE:.3g}"
    for said, basis in {what: fourth, what + ", symmetrised": (fourth + transposed(fourth)) / 2}.items():
        yield Suspect("tolerance", said, look_at, truth, (basis,))


def _central(at: References) -> Floats:
    """Central differences of grad Phi; column j is the derivative in x_j."""
    x = at.x[:, None, :] + BESIDE * np.concatenate([np.eye(at.problem.d), -np.eye(at.problem.d)])
    y0 = np.broadcast_to(at.y[:, None, :], (*x.shape[:-1], at.problem.n))
    grad = at.problem.kernels.grad_phi(x, y0=y0)
    ahead, behind = np.split(grad, 2, axis=1)
    return transposed((ahead - behind) / (2 * BESIDE))


# ---------------------------------------------------------------------- steps that are differentiated too


def unrolled_hessians(
    problem: BilevelProblem, x: Floats, start: Floats, step: Floats, numbers: Sequence[int]
) -> Floats:
    """For each D of ``numbers`` (ascending), K step sizes and P points, (len(numbers), K, P, d, d).

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")  # y_1 = x/4, f = x^2/4
    >>> unrolled_hessians(problem, np.array([[4.0]]), np.zeros((1, 1)), np.array([0.25]), [1, 60]).ravel()
    array([0.5, 1. ])
    """
    shape, (d, n) = (len(step), len(x)), (problem.d, problem.n)
    y = np.broadcast_to(start, (*shape, n))
    first, second = np.zeros((*shape, d, n)), np.zeros((*shape, d, d, n))  # dy_dx, d2y_dx2
    tau, found = step[:, None, None, None], []
    with np.errstate(all="ignore"):
        for number in range(numbers[-1] + 1):
            at = dict(zip(BLOCKS, blocks_at(problem.kernels, BLOCKS, x, y), strict=True))
            if number in numbers:
                found.append(_chained(at, first, second))
            moved = _third(at, first) + second @ at["g_yy"][..., None, :, :]
            second = second - tau[..., None] * moved
            first = first - tau * (at["g_xy"] + first @ at["g_yy"])
            y = y - tau[..., 0] * at["g_y"]
    return np.array(found)


def _third(at: dict[str, Floats], first: Floats) -> Floats:
    """d2/dx2 of g_y(x, y(x)) but for what the second derivative of y brings, (..., d, d, n)."""
    mixed = transposed(at["g_xyy"] @ transposed(first)[..., None, :, :])
    n = at["g_yyy"].shape[-1]
    half = (first @ at["g_yyy"].reshape(*at["g_yyy"].shape[:-2], n * n)).reshape(*first.shape, n)
    return np.asarray(at["g_xxy"] + mixed + mixed.swapaxes(-3, -2) + first[..., None, :, :] @ half)


def _chained(at: dict[str, Floats], first: Floats, second: Floats) -> Floats:
    """The chain rule for f(x, y(x)) with the derivatives of y as they are."""
    cross = first @ transposed(at["f_xy"])
    bent = (second @ at["f_y"][..., None, :, None])[..., 0]
    return np.asarray(at["f_xx"] + cross + transposed(cross) + first @ at["f_yy"] @ transposed(first) + bent)
