"""y*(x) to round-off: Newton's method for grad_y g = 0, globalised, for many x at once, each on its own schedule.

The merit is |grad_y g|: with g_yy positive definite, Newton's direction decreases it at rate one, and it keeps its
meaning near the solution, where g itself no longer changes in floating point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.engine import Engine, Floats
from bilevel_sym.errors import LowerLevelFailure
from bilevel_sym.linear_algebra import Factored, NotPositiveDefinite, smallest_eigenvalues

__all__ = ["NEWTON", "LowerSolution", "solve_lower_level"]

Members: TypeAlias = NDArray[np.intp]

NEWTON = ("g_y", "g_yy")
MAX_STEPS = 200
MAX_HALVINGS = 60
DECREASE = 1e-4  # the part of the promised decrease that a step must deliver
ROUND_OFF = 2.0**-51  # a relative step below this changes nothing
NOISE = 1e-6  # a relative step below this that no longer helps is rounding error


@dataclass(frozen=True)
class LowerSolution:
    """y*(x), and how many times each member evaluated grad_y g and g_yy together."""

    y: Floats
    evaluations: NDArray[np.int64]


@dataclass(frozen=True)
class _Point:
    """Where each member stands; the arrays are updated in place as members move."""

    x: Floats
    y: Floats
    g_y: Floats
    g_yy: Floats

    def of(self, members: Members) -> _Point:
        return _Point(self.x[members], self.y[members], self.g_y[members], self.g_yy[members])

    def merit(self) -> Floats:
        largest: Floats = np.abs(self.g_y).max(axis=1)
        return largest


def solve_lower_level(engine: Engine, x: Floats, y0: Floats) -> LowerSolution:
    """y*(x) for each row of x, from the starts y0. LowerLevelFailure names the first member that fails."""
    at = _evaluate(engine, x, y0.copy())
    evaluations = np.ones(len(x), dtype=np.int64)
    _require_finite(at)
    members = np.flatnonzero(at.merit() > 0)  # a start at the root stays there
    for _ in range(MAX_STEPS):
        if not len(members):
            return LowerSolution(at.y, evaluations)
        step = _newton_step(at, members)
        size = np.abs(step).max(axis=1) / np.maximum(np.abs(at.y[members]).max(axis=1), np.finfo(float).tiny)
        moving = size > ROUND_OFF
        members, step, size = members[moving], step[moving], size[moving]
        moved, trials = _line_search(engine, at, members, step)
        evaluations[members] += trials
        stuck = members[~moved & (size > NOISE)]
        if len(stuck):
            raise _failure(at, int(stuck[0]), "did not converge: no step along Newton's direction helps")
        members = members[moved]
    raise _failure(at, int(members[0]), f"did not converge in {MAX_STEPS} Newton steps")


def _evaluate(engine: Engine, x: Floats, y: Floats) -> _Point:
    session = engine.session(NEWTON, len(x))
    session.put(0, np.concatenate([x, y], axis=1))
    return _Point(x, y, session.take("g_y"), session.take("g_yy"))


def _newton_step(at: _Point, members: Members) -> Floats:
    here = at.of(members)
    try:
        return -Factored(here.g_yy).solve(here.g_y[:, :, None])[:, :, 0]
    except NotPositiveDefinite as error:
        raise _failure(at, int(members[error.members[0]]), "is not strongly convex") from None


def _line_search(
    engine: Engine, at: _Point, members: Members, step: Floats
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Move each member along its step, halved until the merit falls and g_yy stays positive definite.

    Returns who moved, and how many trials each took. ``at`` is updated.
    """
    moved = np.zeros(len(members), dtype=bool)
    trials = np.zeros(len(members), dtype=np.int64)
    before = at.merit()[members]
    left = np.arange(len(members))
    length = 1.0
    for _ in range(MAX_HALVINGS):
        if not len(left):
            break
        who = members[left]
        trial = _evaluate(engine, at.x[who], at.y[who] + length * step[left])
        trials[left] += 1
        # a comparison with NaN is false: overflow and points outside the domain are refused
        good = (trial.merit() <= (1 - DECREASE * length) * before[left]) & _positive_definite(trial.g_yy)
        chosen = who[good]
        at.y[chosen], at.g_y[chosen], at.g_yy[chosen] = trial.y[good], trial.g_y[good], trial.g_yy[good]
        moved[left[good]] = True
        # at the level of rounding a shorter step is no better
        size = np.abs(step).max(axis=1)[left] / np.maximum(np.abs(at.y[who]).max(axis=1), np.finfo(float).tiny)
        left = left[~good & (length * size > ROUND_OFF)]
        length /= 2
    return moved, trials


def _positive_definite(matrices: Floats) -> NDArray[np.bool_]:
    try:
        Factored(matrices)
    except NotPositiveDefinite:
        return smallest_eigenvalues(matrices) > 0
    return np.ones(len(matrices), dtype=bool)


def _require_finite(at: _Point) -> None:
    bad = np.flatnonzero(~(np.isfinite(at.g_y).all(axis=1) & np.isfinite(at.g_yy).all(axis=(1, 2))))
    if len(bad):
        raise _failure(at, int(bad[0]), "is not defined at the start: g_y or g_yy is not finite there")


def _failure(at: _Point, member: int, what: str) -> LowerLevelFailure:
    eigenvalue = float(smallest_eigenvalues(at.g_yy[member : member + 1])[0])
    return LowerLevelFailure(
        f"the lower level {what}",
        member=(member,), x=at.x[member].tolist(), y=at.y[member].tolist(), eigenvalue=eigenvalue,
        hint="start near the solution with y0=..., keep x where g is strongly convex in y, or mend g",
    )  # fmt: skip
