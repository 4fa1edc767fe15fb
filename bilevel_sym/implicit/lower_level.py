"""y*(x) to round-off: Newton's method for grad_y g = 0, globalised, for many x at once, each on its own schedule.

The merit is grad_y g: with g_yy positive definite, Newton's direction decreases it at rate one, and it keeps its
meaning near the solution, where g itself no longer changes in floating point.

Far away a Newton step may be short: on exp(y) it is 1, wherever y is. A member that has not arrived after many steps
stretches the next ones for as long as that lowers its merit; one whose start overflows begins nearer to zero.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.arithmetic.linear_algebra import Factored, NotPositiveDefinite, smallest_eigenvalues
from bilevel_sym.errors import LowerLevelFailure
from bilevel_sym.implicit.engine import Blocks
from bilevel_sym.typing import Bools, Floats, Indices

__all__ = [
    "FULL_STEPS_BELOW", "NEWTON", "PLAIN_STEPS", "QUADRATIC", "ROUND_OFF", "LowerSolution", "full_steps",
    "solve_lower_level",
]  # fmt: skip

NEWTON = ("g", "g_y", "g_yy")
MAX_STEPS = 300
PLAIN_STEPS = 50  # the first ones, which are not stretched
MAX_TRIALS = 60
HALVINGS = 12  # after so many, a step is cut to a sixteenth at a time
DECREASE = 1e-4  # the part of the promised decrease that a step must deliver
FULL_STEPS_BELOW = 1e-6  # relative to its component: full steps converge, and the merit is about to be noise
ROUND_OFF = 2.0**-51  # a step below this, relative to its component, changes nothing
QUADRATIC = 1e-9  # a step below this, relative to y, after steps that fell fast: what is left is round-off
MAX_POLISH = 8
ROUNDED_STEP = 1e-13  # a step below this that no longer shrinks is rounding, whatever y is


@dataclass(frozen=True)
class LowerSolution:
    """y*(x), and how many times each member evaluated grad_y g, and products with g_yy (n for the whole matrix)."""

    y: Floats
    evaluations: NDArray[np.int64]
    products: NDArray[np.int64]


@dataclass(frozen=True)
class _Point:
    """Where each member stands, and Newton's step from there; the arrays are updated in place as members move.

    ``defined``: whether g and its derivatives are finite.
    """

    x: Floats
    y: Floats
    g_y: Floats
    g_yy: Floats
    step: Floats
    defined: Bools

    def sizes(self) -> Floats:
        """The largest component of each member's step, each relative to that of y; NaN where there is no step."""
        relative = np.where(self.step == 0, 0.0, np.abs(self.step) / np.abs(self.y))
        largest: Floats = relative.max(axis=1)
        return largest

    def tiny(self) -> Bools:
        """Whose step is rounding relative to y as a whole: a component that is zero, or nearly, would turn about it."""
        small: Bools = np.abs(self.step).max(axis=1) <= ROUND_OFF * np.abs(self.y).max(axis=1)
        return small

    def move(self, members: Indices, trial: _Point, chosen: Bools) -> None:
        for name in ("y", "g_y", "g_yy", "step", "defined"):
            getattr(self, name)[members[chosen]] = getattr(trial, name)[chosen]


def solve_lower_level(engine: Blocks, x: Floats, y0: Floats) -> LowerSolution:
    """y*(x) for each row of x, from the starts y0. LowerLevelFailure names the first member that fails.

    First each member descends until its step is small, or its merit is nothing but rounding; then full steps polish
    it, component by component, until they no longer shrink.
    """
    with np.errstate(all="ignore"):
        at = _evaluate(engine, x, y0.copy())
        evaluations = np.ones(len(x), dtype=np.int64)
        _retreat(engine, at, evaluations)
        _require_start(at)
        _descend(engine, at, evaluations)
        _polish(engine, at, evaluations)
        # a component whose true value is zero never has a small step relative to itself, only to the others
        size = np.abs(at.y)
        small = np.abs(at.step) <= np.maximum(
            FULL_STEPS_BELOW * size, ROUNDED_STEP * np.maximum(size.max(axis=1, keepdims=True), 1.0)
        )
        far = np.flatnonzero(~small.all(axis=1))
    if len(far):
        raise _failure(
            at, int(far[0]), f"did not converge: {MAX_STEPS} steps, or none that helps along Newton's direction"
        )
    return LowerSolution(at.y, evaluations, y0.shape[1] * evaluations)


def full_steps(step_at: Callable[[Floats], Floats], y0: Floats) -> tuple[Floats, int] | None:
    """y* of one point by full Newton steps, and how many were computed; None where they do not soon become short.

    >>> full_steps(lambda y: 3.0 - y, np.zeros(1))
    (array([3.]), 2)
    """
    y, step, before = y0, step_at(y0), np.inf
    for k in range(1, PLAIN_STEPS):
        length, largest = float(np.abs(step).max()), float(np.abs(y).max())
        if length <= ROUND_OFF * largest or (length <= FULL_STEPS_BELOW * largest and 2 * length > before):
            return y, k
        if not length < np.inf or (k > 1 and length > before):
            return None
        y = y + step
        if length <= QUADRATIC * largest and length <= before / 1000:  # the next step would be its square
            return y, k
        before = length
        step = step_at(y)
    return None


def _retreat(engine: Blocks, at: _Point, evaluations: NDArray[np.int64]) -> None:
    """Shorten starts at which g overflows, or is not defined, until it is; who never arrives stays where it was."""
    y0, left, length = at.y.copy(), np.flatnonzero(~at.defined & at.y.any(axis=1)), 0.5
    for k in range(MAX_TRIALS):
        if not len(left):
            return
        nearer = length * y0[left]
        trial = _evaluate(engine, at.x[left], nearer)
        evaluations[left] += 1
        at.move(left, trial, trial.defined)
        left = left[~trial.defined]
        length *= 0.5 ** max(1, k - HALVINGS)  # in the end, from the largest number to nothing


def _descend(engine: Blocks, at: _Point, evaluations: NDArray[np.int64]) -> None:
    members = np.flatnonzero((at.sizes() > FULL_STEPS_BELOW) & ~at.tiny())
    for k in range(MAX_STEPS):
        if not len(members):
            return
        before = np.abs(at.step[members]).max(axis=1)
        moved, trials = _line_search(engine, at, members, stretching=k >= PLAIN_STEPS)
        evaluations[members] += trials
        # where y* itself is rounding relative to the terms of g, steps stay, and none is small relative to y
        after = np.abs(at.step[members]).max(axis=1)
        stalled = (after <= ROUNDED_STEP) & (2 * after > before)
        members = members[moved & ~stalled & ~at.tiny()[members] & (at.sizes()[members] > FULL_STEPS_BELOW)]


def _polish(engine: Blocks, at: _Point, evaluations: NDArray[np.int64]) -> None:
    members = np.flatnonzero(at.sizes() > ROUND_OFF)
    for _ in range(MAX_POLISH):
        if not len(members):
            return
        trial = _evaluate(engine, at.x[members], at.y[members] + at.step[members])
        evaluations[members] += 1
        before, after = at.sizes()[members], trial.sizes()
        at.move(members, trial, after <= before)
        # a step that is not halved is rounding, and the next one would be too
        members = members[(2 * after <= before) & (after > ROUND_OFF)]


def _evaluate(engine: Blocks, x: Floats, y: Floats) -> _Point:
    session = engine.session(NEWTON, len(x))
    session.put(0, np.concatenate([x, y], axis=1))
    g, g_y, g_yy = (session.take(name) for name in NEWTON)
    step = _newton_step(g_y, g_yy, engine.batch_invariant)
    # outside the domain of g its derivatives may still look fine: log(y) has one at -1
    defined = np.isfinite(g)
    step[~defined] = np.nan
    defined = defined & np.isfinite(g_y).all(axis=1) & np.isfinite(g_yy).all(axis=(1, 2))
    return _Point(x, y, g_y, g_yy, step, defined)


def _newton_step(g_y: Floats, g_yy: Floats, batch_invariant: bool) -> Floats:
    """-g_yy^-1 g_y; NaN for members at which g_yy is not positive definite."""
    try:
        return -Factored(g_yy, batch_invariant=batch_invariant).solve(g_y[:, :, None])[:, :, 0]
    except NotPositiveDefinite:
        good = smallest_eigenvalues(g_yy) > 0
        step = np.full_like(g_y, np.nan)
        # one by one: rounding may still refuse a member whose smallest eigenvalue is positive by a hair
        for k in np.flatnonzero(good):
            with suppress(NotPositiveDefinite):
                alone = Factored(g_yy[k : k + 1], batch_invariant=batch_invariant)
                step[k] = -alone.solve(g_y[k : k + 1, :, None])[0, :, 0]
        return step


@dataclass(frozen=True)
class _Line:
    """Newton's direction from where each member stood, and the merit along it.

    The merit is grad_y g, each component by the root of its curvature, so that units do not matter: along Newton's
    direction all components shrink at rate one.
    """

    members: Indices
    y: Floats
    step: Floats
    weight: Floats

    @classmethod
    def of(cls, at: _Point, members: Indices) -> _Line:
        weight = 1 / np.sqrt(np.diagonal(at.g_yy[members], axis1=1, axis2=2))
        return cls(members, at.y[members], at.step[members], weight)

    def at(self, engine: Blocks, point: _Point, rows: Indices, length: float) -> _Point:
        who = self.members[rows]
        return _evaluate(engine, point.x[who], self.y[rows] + length * self.step[rows])

    def merit(self, g_y: Floats, rows: Indices) -> Floats:
        merit: Floats = (np.abs(g_y) * self.weight[rows]).max(axis=1)
        return merit


def _line_search(engine: Blocks, at: _Point, members: Indices, *, stretching: bool) -> tuple[Bools, NDArray[np.int64]]:
    """Move each member along its step, cut until the merit falls and g stays defined and convex.

    Returns who moved, and how many trials each took; ``at`` is updated.
    """
    line, left, length = _Line.of(at, members), np.arange(len(members)), 1.0
    moved, trials = np.zeros(len(members), dtype=bool), np.zeros(len(members), dtype=np.int64)
    before = line.merit(at.g_y[members], left)
    for k in range(MAX_TRIALS):
        trial = line.at(engine, at, left, length)
        trials[left] += 1
        # a comparison with NaN is false: overflow, points outside the domain and no convexity are refused
        falls = line.merit(trial.g_y, left) <= (1 - DECREASE * length) * before[left]
        good = falls & np.isfinite(trial.step).all(axis=1)
        at.move(members[left], trial, good)
        moved[left[good]] = True
        if stretching and k == 0:
            trials += _stretch(engine, at, line, left[good])
        left = left[~good]
        length /= 2 if k < HALVINGS else 16
        here = at.y[members[left]]
        left = left[(here + length * line.step[left] != here).any(axis=1)]
        if not len(left):
            break
    return moved, trials


def _stretch(engine: Blocks, at: _Point, line: _Line, left: Indices) -> NDArray[np.int64]:
    """Double the step of those that took it whole, for as long as the merit falls; how many trials each took."""
    trials = np.zeros(len(line.members), dtype=np.int64)
    length = 2.0
    while len(left):
        trial = line.at(engine, at, left, length)
        trials[left] += 1
        falls = line.merit(trial.g_y, left) < line.merit(at.g_y[line.members[left]], left)
        good = falls & np.isfinite(trial.step).all(axis=1)
        at.move(line.members[left], trial, good)
        left = left[good]
        length *= 2
    return trials


def _require_start(at: _Point) -> None:
    bad = np.flatnonzero(~np.isfinite(at.step).all(axis=1))
    if len(bad):
        k = int(bad[0])
        concave = not smallest_eigenvalues(at.g_yy[k : k + 1])[0] > 0 and np.isfinite(at.g_yy[k]).all()
        raise _failure(
            at, k, "is not strongly convex" if concave else "is not defined at the start, or beyond float64 there"
        )


def _failure(at: _Point, member: int, what: str) -> LowerLevelFailure:
    eigenvalue = float(smallest_eigenvalues(at.g_yy[member : member + 1])[0])
    return LowerLevelFailure(
        f"the lower level {what}",
        member=(member,), x=at.x[member].tolist(), y=at.y[member].tolist(), eigenvalue=eigenvalue,
        hint="start near the solution with y0=..., keep x where g (in a minimax problem, -f) is strongly convex in y, "
        "or mend it",
    )  # fmt: skip
