"""Convergence: the error of a candidate that takes D, N, Q or tol, as these are raised together.

A right estimator has an error that goes to rounding, at the rate of its inner loops. A wrong formula stops at a
plateau; a step above 2/ell diverges; conjugate gradients without a guard divide zero by zero once they are done.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.ties import first_largest, first_smallest
from verify.testkit.candidate import Candidate, Settings
from verify.testkit.diagnosis import Cause, Diagnosis
from verify.testkit.reference import EPS, Quantity, References
from verify.testkit.suspects.elsewhere import apply
from verify.testkit.suspects.linear_solvers import conjugate_gradients

__all__ = ["Convergence", "Rate", "convergence"]

Floats = NDArray[np.float64]
Rate = Literal["reached", "as theory says", "still shrinking", "plateau", "diverges", "not finite"]
POINTS = 3
MOST = 2**20  # steps
TOLERANCES = tuple(10.0 ** -(2 * k) for k in range(1, 15))
LITTLE = 100  # times the least tolerance: it leaves little of an error
BEYOND = 3  # doublings, after which it must still be right: conjugate gradients may divide by nothing
AGAIN = 4  # levels; even an error of 1/sqrt(steps) falls to a quarter by so many doublings
FLAT = 0.9  # of the error is left by a doubling: no progress
LONG = 8  # times kappa steps of size 1/ell, or sqrt(kappa) of conjugate gradients: theory leaves little of an error
VISIBLE = 0.7  # what theory leaves of an error in a doubling, for the doubling to say something
GAINED = 10.0  # the error has to shrink by this in all, before a rate is believed
SLACK = 10.0  # times the floor: where it was reached once, this is still rounding
GROWS = 1.5
BLOWN = 1e12
COMPILING = 20.0  # seconds in all that first calls may take above later ones, and that do not count
ABOUT: dict[str, tuple[Cause, str]] = {
    "D": ("y*", "the step size of the lower level: below 2/ell, best 1/ell"),
    "N": ("inverse", "the steps of conjugate gradients: alpha = r.r/p.Ap enters both v and the residual"),
    "Q": ("inverse", "the step size of the Neumann series: below 2/ell, best 1/ell"),
    "tol": ("tolerance", "where the tolerance enters"),
}


@dataclass(frozen=True, eq=False)
class Convergence:
    """``errors`` is (levels, points), one row for each of ``tried``; ``settings`` are the best of these.

    >>> seen = Convergence(("D",), ({"D": 1}, {"D": 2}), np.array([[1.0], [0.5]]), np.array([1e-12]), "still shrinking")
    >>> seen.settings, print(seen)
    the error goes from 1 at D = 1 to 0.5 at D = 2; it still shrinks
    ({'D': 2}, None)
    """

    knobs: tuple[str, ...]
    tried: tuple[Settings, ...]
    errors: Floats
    floor: Floats
    verdict: Rate
    diagnosis: Diagnosis | None = None
    note: str = ""

    @property
    def settings(self) -> Settings:
        """The last ones at which every error is rounding, for other points may need more; else those with the least."""
        if self.verdict == "plateau":  # what is left with the most steps has one cause, not two
            return self.tried[-1]
        worst = [_worst(row / self.floor) for row in self.errors]
        there = [i for i, size in enumerate(worst) if size <= 1]
        return self.tried[there[-1] if there else first_smallest(worst)]

    def __str__(self) -> str:
        worst = self.errors.max(axis=1)
        ends = f"the error goes from {worst[0]:.2g} at {_shown(self.tried[0])}"
        ends += f" to {worst[-1]:.2g} at {_shown(self.tried[-1])}" if len(worst) > 1 else ""
        return f"{ends}; {_VERDICTS[self.verdict]}" + (f"; {self.note}" if self.note else "")


_VERDICTS = {
    "reached": "nothing but rounding is left",
    "as theory says": "it shrinks as theory says, and time was up",
    "still shrinking": "it still shrinks",
    "plateau": "it stays there, where theory lets it shrink: a bias",
    "diverges": "it grows with the number of steps",
    "not finite": "the answer is not finite any more",
}


def _shown(settings: Settings) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in settings.items())


def _worst(errors: Floats) -> float:
    return float(np.where(np.isfinite(errors), errors, np.inf).max())


def convergence(candidate: Candidate, at: References, quantity: Quantity, *, seconds: float = 1.0) -> Convergence:
    """Raise all that the candidate takes, counts twofold and tol by 1/100, until its error is rounding or time is up.

    >>> from bilevel_sym import AID, BilevelProblem
    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    >>> at = references(problem, [[1.0]])
    >>> def right(x, D, N):
    ...     return AID(D=D, N=N, tau=0.25).estimate(problem, x).grad_phi_hat
    >>> convergence(Candidate(right, (1,)), at, "grad_phi").verdict
    'reached'
    >>> convergence(Candidate(lambda x, D, N: 0.9 * right(x, D, N), (1,)), at, "grad_phi").verdict
    'plateau'
    """
    if not candidate.knobs:
        raise InvalidProblem("the candidate takes neither D, N, Q nor tol", hint="lambda x, D, N: estimate(x, D, N)")
    floor = at.floor(quantity)[:POINTS]  # what rounding does at one point depends on the sizes met elsewhere
    sweep = _Sweep(candidate, at[:POINTS], quantity, _Clock(math.inf), _least_tolerance(at), floor)
    sweep.warm_up()
    sweep.clock.until = time.perf_counter() + seconds
    return sweep.told(sweep.joint())


@dataclass
class _Clock:
    """When time is up. What is compiled for each number of steps, as by jax.jit, is forgiven its first call."""

    until: float
    forgiven: float = 0.0

    def forgive(self, seconds: float) -> None:
        more = min(seconds, COMPILING - self.forgiven)
        self.until, self.forgiven = self.until + more, self.forgiven + more


@dataclass(frozen=True, eq=False)
class _Sweep:
    candidate: Candidate
    at: References
    quantity: Quantity
    clock: _Clock
    least: float  # tolerance
    floor: Floats

    def warm_up(self) -> None:
        """A first call may compile, and says nothing of the time that the others take."""
        with np.errstate(all="ignore"):
            self.candidate(self.at.x[0], self._levels()[0])

    @property
    def _counts(self) -> list[str]:
        return [name for name in self.candidate.knobs if name != "tol"]

    def _values(self, settings: Settings) -> Floats:
        with np.errstate(all="ignore"):
            answers = [self.candidate(x, settings) for x in self.at.x]
        self.clock.forgive(answers[0].seconds - min(answer.seconds for answer in answers))
        return np.array([answer.value for answer in answers])

    def _errors(self, settings: Settings) -> Floats:
        values = self._values(settings)
        errors = self.at.errors(self.quantity, np.where(np.isfinite(values), values, 0.0))
        return np.where(np.isfinite(values.reshape(len(values), -1)).all(axis=1), errors, np.nan)

    def _levels(self) -> list[dict[str, float]]:
        """Settings, each beyond the last."""
        least = self.least
        tolerances = [*(tol for tol in TOLERANCES if tol > least), least]
        counts = [2**i for i in range(MOST.bit_length())] if self._counts else [0] * len(tolerances)
        tolerances += [tolerances[-1]] * (len(counts) - len(tolerances))
        levels = zip(counts, tolerances, strict=False)
        return [{n: tol if n == "tol" else count for n in self.candidate.knobs} for count, tol in levels]

    def joint(self) -> Convergence:
        """All knobs together. Where the error is rounding, it has to stay so with more steps than are needed."""
        levels, floor = self._levels(), self.floor
        found = Convergence(self.candidate.knobs, (), np.zeros((0, len(floor))), floor, "still shrinking")
        took, i, was_there = 0.0, 0, False
        while i < len(levels):
            began = time.perf_counter()
            if len(found.tried) >= 2 and began + (2**BEYOND if was_there else 2) * took > self.clock.until:
                break
            before = self.clock.forgiven
            errors = self._errors(levels[i])
            took = time.perf_counter() - began - (self.clock.forgiven - before)
            found = replace(found, tried=(*found.tried, levels[i]), errors=np.vstack([found.errors, errors]))
            there = bool(np.all(errors <= floor))
            if (there and was_there) or self._hopeless(found):
                break
            i, was_there = i + (BEYOND if there and self._counts else 1), there
        return self._judged(found)

    def _hopeless(self, found: Convergence) -> bool:
        """More steps will change nothing."""
        first, last = found.errors[0], found.errors[-1]
        if not np.isfinite(last).all() or np.any(last > BLOWN * (first + found.floor)):
            return True
        return len(found.tried) >= 3 and bool(np.any(last > found.floor)) and self._rate(found) == "plateau"

    def _judged(self, found: Convergence) -> Convergence:
        worst = (found.errors / found.floor).max(axis=1)
        if not np.isfinite(worst[-1]):
            return self._not_finite(found)
        if worst[-1] <= 1 or (worst.min() <= 1 and worst[-1] <= SLACK):
            return replace(found, verdict="reached")
        if worst.min() <= 1:  # it was right, and leaves the truth again
            return replace(found, verdict="diverges")
        if len(worst) < 3:
            return replace(found, note=self._too_slow)
        verdict = self._rate(found)
        note = self._why_slow(found) if verdict == "still shrinking" else ""
        return replace(found, verdict=verdict, note=note)

    @property
    def _too_slow(self) -> str:
        fixed = ", ".join(f"{name}=..." for name in self.candidate.knobs)
        return f"a call is too slow for more; compile it, or give lambda x: candidate(x, {fixed}) with numbers that do"

    def _why_slow(self, found: Convergence) -> str:
        k = first_largest(found.errors[-1] / found.floor)
        if found.knobs == ("tol",):
            left = found.tried[-1]["tol"] / float(self.at.eigenvalues[k, 0])
            return f"a residual of {found.tried[-1]['tol']:.0e} leaves up to {left:.1g} in y*, and time was up"
        if self._theory(found.tried[-1], k) < 1 / GAINED:
            return "that is slower than theory says"
        return f"with kappa = {self.at.kappa[k]:.1g} theory promises little at so few steps"

    def _rate(self, found: Convergence) -> Rate:
        """From the points that are not done, the worst one."""
        k = first_largest(found.errors[-1] / found.floor)
        errors = found.errors[:, k]
        kept = errors[1:] / errors[:-1]
        if errors[-1] > BLOWN * errors[0] or (np.all(kept[-2:] > GROWS) and errors[-1] > 4 * errors[0]):
            return "diverges"
        theory = [self._theory(settings, k) for settings in found.tried[:-1]]
        if np.all(kept[-2:] > FLAT) and self._long_enough(found.tried[-2], k):
            return "plateau"
        if (
            len(errors) > AGAIN
            and errors[-1] > errors[-1 - AGAIN] / 2
            and self._long_enough(found.tried[-1 - AGAIN], k)
        ):
            return "plateau"  # it goes up and down
        telling = [i for i in range(1, len(kept)) if theory[i] < VISIBLE][-2:]
        gained = errors[0] > GAINED * errors[-1]
        if telling and gained and all(kept[i] <= math.sqrt(theory[i]) for i in telling):
            return "as theory says"
        return "still shrinking"

    def _theory(self, settings: Settings, k: int) -> float:
        """What the next level leaves of the error, at most: the slowest of the loops decides.

        Paper: Equation B.22 [eq:gdrate], Equation B.21 [eq:cgrate]
        """
        kappa = float(self.at.kappa[k])
        root = math.sqrt(kappa)
        keeps = {"D": 1 - 1 / kappa, "Q": 1 - 1 / kappa, "N": (root - 1) / (root + 1)}
        return max((keeps[n] ** c if n != "tol" else 1e-2) for n, c in settings.items())

    def _long_enough(self, settings: Settings, k: int) -> bool:
        """Whether theory leaves nothing of the error by now."""
        kappa = float(self.at.kappa[k])
        enough = {"D": LONG * kappa, "Q": LONG * kappa, "N": min(LONG * math.sqrt(kappa), LONG + 4 * self.at.problem.n)}
        # an iteration that converges fast gives the same answer for many tolerances: only the last ones tell
        return all(c >= enough[n] if n != "tol" else c <= LITTLE * self.least for n, c in settings.items())

    def _not_finite(self, found: Convergence) -> Convergence:
        """A candidate that was right or on its way, or one that ran away?"""
        finite = found.errors[:-1]
        if len(finite) >= 3 and np.any(finite[-1] > GROWS * finite[-2]) and np.any(finite[-1] > 4 * finite[0]):
            return replace(found, verdict="diverges")
        return replace(found, verdict="not finite", diagnosis=self._no_guard(found.tried[-1]))

    def _no_guard(self, settings: Settings) -> Diagnosis:
        if "N" not in settings and "tol" not in settings:
            return Diagnosis("not finite", f"the answer is not finite at {_shown(settings)}", "divisions by zero")
        return Diagnosis(
            "inverse",
            f"conjugate gradients go on after the residual is zero, and divide 0 by 0 (at {_shown(settings)})",
            "the loop of conjugate gradients: leave it once the residual is zero, also at the start",
        )

    @property
    def _pace(self) -> float:
        last = self.candidate.previous
        return (last.seconds if last is not None else 0.0) * len(self.at)

    def told(self, found: Convergence) -> Convergence:
        """The same, with what the knobs one by one say of it."""
        if found.verdict == "diverges":
            return replace(found, diagnosis=self._diverging(found))
        if found.verdict not in ("reached", "plateau"):
            return found
        dropped = self._dropped(found)
        if dropped is not None or found.verdict == "reached":
            return replace(found, diagnosis=dropped)
        idle = [name for name in found.knobs if len(found.knobs) > 1 and self._idle(found, name)]
        return replace(found, note=f"{' and '.join(idle)} changes nothing" if idle else "")

    def _diverging(self, found: Convergence) -> Diagnosis:
        """The linear system is to blame if fewer of its steps cure it, others being raised; else the lower level."""
        rows = [(s, _worst(e / found.floor)) for s, e in zip(found.tried, found.errors, strict=True)]
        top, blown = [(s, size) for s, size in rows if np.isfinite(size)][-1]
        names = [name for name in ("Q", "N", "D", "tol") if name in found.knobs]
        name = names[-1] if names[-1] != "tol" else names[0]
        for other in names[:-1] if len(names) > 1 else ():
            lowered = _worst(self._errors({**top, other: found.tried[0][other]}) / found.floor)
            if lowered <= max(10 * rows[0][1], 0.01 * blown):
                name = other
                break
        cause, look_at = ABOUT[name]
        return Diagnosis(cause, f"the error grows with {name}: the iteration diverges", look_at)

    def _idle(self, found: Convergence, name: str) -> bool:
        """Whether the answer is the same however small the knob is."""
        if name == "N" and self.at.problem.n == 1:  # one step is exact
            return False
        top = found.tried[-1]
        return bool(np.array_equal(self._values({**top, name: found.tried[0][name]}), self._values(top)))

    def _dropped(self, found: Convergence) -> Diagnosis | None:
        """Are the answers those of conjugate gradients, from zero at the exact y*, with a step less?"""
        if "N" not in found.knobs or self.quantity != "grad_phi":
            return None
        iterates = _conjugate_gradients(self.at)
        if found.verdict == "plateau":
            return self._stops_early(found, iterates)
        return self._off_by_one(found, iterates)

    def _stops_early(self, found: Convergence, iterates: Floats) -> Diagnosis | None:
        """At each point the answer is an earlier iterate than the one that solves the system."""
        values, floor = self._values(found.settings), found.floor
        gaps = np.linalg.norm(iterates - values, axis=2)  # (steps, points)
        errors = np.linalg.norm(values - self.at.truth("grad_phi"), axis=1)
        if not np.all(gaps.min(axis=0) <= np.maximum(1e-6 * errors, floor)):
            return None
        wrong = [(k, first_smallest(gaps[:, k])) for k in range(len(values)) if errors[k] > floor[k]]
        truth = self.at.truth("grad_phi")
        last = all(_norm(iterates[min(m + 1, len(iterates) - 1), k] - truth[k]) < 1e-3 * errors[k] for k, m in wrong)
        end = "the last one is dropped" if last else "it stays there"
        what = f"however large N is, v is iterate {max(m for _, m in wrong)} of conjugate gradients: {end}"
        return Diagnosis("inverse", what, LEAVES)

    def _off_by_one(self, found: Convergence, iterates: Floats) -> Diagnosis | None:
        """With N steps the answer is that of N - 1, wherever the two can be told apart."""
        told = 0
        for N in range(1, min(4, len(iterates))):
            if time.perf_counter() + self._pace > self.clock.until:
                break
            values, floor = self._values({**found.settings, "N": N}), found.floor
            less, same = (np.linalg.norm(iterates[m] - values, axis=1) for m in (N - 1, N))
            if not np.all(less <= floor):
                return None
            told += int(np.sum(same > 1e3 * floor))
        if not told:
            return None
        return Diagnosis("inverse", "with N the answer is that of N - 1 steps of conjugate gradients", LEAVES)


def _least_tolerance(at: References) -> float:
    """tol goes no further than a residual can, or a loop may never end."""
    sizes = np.linalg.norm(at.at["g_yy"], axis=(1, 2)) * np.linalg.norm(at.y, axis=1)
    sizes += np.linalg.norm(at.at["g_xy"], axis=(1, 2)) * np.linalg.norm(at.x, axis=1)
    beside = [at.y * (1 + sign * EPS) for sign in (-1, 0, 1)]
    residuals = [float(np.abs(at.problem.kernels.g_y(at.x, y)).max()) for y in beside]  # what rounding leaves of zero
    return max(TOLERANCES[-1], 32 * EPS * float(sizes.max()), 8 * max(residuals))


LEAVES = "the loop of conjugate gradients: v has to be updated before the loop is left"


def _norm(vector: Floats) -> float:
    return float(np.linalg.norm(vector))


def _conjugate_gradients(at: References) -> Floats:
    """grad Phi with v after 0, 1, ..., n steps of conjugate gradients from zero, (steps, P, d)."""
    iterates = conjugate_gradients(at.at["g_yy"], at.at["f_y"], at.problem.n)
    return np.asarray(at.at["f_x"] - apply(at.at["g_xy"], iterates.v))
