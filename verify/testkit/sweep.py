"""A sweep: the errors of a candidate that takes D, N, Q or tol, as these are raised together, and how they fall.

What is decided is decided by the error that was reached. An error that shrinks as theory says, and is not rounding yet
when the steps are spent, decides nothing: a bias may be waiting below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from bilevel_sym.arithmetic.ties import first_largest, first_smallest, in_order
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.typing import FLOAT64_EPS, Floats, Indices
from verify.testkit.candidate import Candidate, Settings
from verify.testkit.diagnosis import Diagnosis
from verify.testkit.reference import Quantity, References

__all__ = ["FEWEST", "WORST_POINTS", "Convergence", "Rate", "Sweep", "largest", "least_tolerance", "worst_of"]

Rate = Literal["reached", "as theory says", "still shrinking", "plateau", "diverges", "not finite"]
WORST_POINTS = 3  # the worst, which are asked with more steps than all of them
ALL, SOME = 0.01, 0.04  # of the budget: what one level may take at all points, and at the worst three; then at one
ONWARD = 0.1  # of the budget: what one call may take that only shows that what was reached stays
FEWEST = 4  # points at which a candidate is asked once the steps are found that it needs
MOST_STEPS = 2**20  # steps
TOLERANCES = tuple(10.0 ** -(2 * k) for k in range(1, 15))
LITTLE = 100  # times the least tolerance: it leaves little of an error
BEYOND = 3  # doublings at most, after which it must still be right: conjugate gradients may divide by nothing
AGAIN = 4  # levels; even an error of 1/sqrt(steps) falls to a quarter by so many doublings
FLAT = 0.9  # of the error is left by a doubling: no progress
LONG_SWEEP = 8  # times kappa steps of size 1/ell, or sqrt(kappa) of conjugate gradients: little of an error is left
VISIBLE = 0.7  # what theory leaves of an error in a doubling, for the doubling to say something
GAINED = 10.0  # the error has to shrink by this in all, before a rate is believed
SLACK = 10.0  # times the floor: where it was reached once, this is still rounding
GROWS = 1.5
BLOWN = 1e12


@dataclass(frozen=True, eq=False)
class Convergence:
    """``errors`` is (levels, points), one row for each of ``tried``; ``settings`` are the best of these.

    ``values`` are the answers with the last of them, and ``x`` the points.

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
    values: Floats = field(default_factory=lambda: np.zeros(0))
    x: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def enough(self) -> tuple[Settings, ...]:
        """Those at which every error is rounding."""
        return tuple(s for s, row in zip(self.tried, self.errors, strict=True) if largest(row / self.floor) <= 1)

    @property
    def settings(self) -> Settings:
        """The last ones at which every error is rounding, for other points may need more; else those with the least."""
        if self.verdict == "plateau":  # what is left with the most steps has one cause, not two
            return self.tried[-1]
        worst = [largest(row / self.floor) for row in self.errors]
        return self.enough[-1] if self.enough else self.tried[first_smallest(worst)]

    def __str__(self) -> str:
        worst = self.errors.max(axis=1)
        ends = f"the error goes from {worst[0]:.2g} at {_shown(self.tried[0])}"
        ends += f" to {worst[-1]:.2g} at {_shown(self.tried[-1])}" if len(worst) > 1 else ""
        return f"{ends}; {_VERDICTS[self.verdict]}" + (f"; {self.note}" if self.note else "")


_VERDICTS = {
    "reached": "nothing but rounding is left",
    "as theory says": "it shrinks as theory says",
    "still shrinking": "it still shrinks",
    "plateau": "it stays there, where theory lets it shrink: a bias",
    "diverges": "it grows with the number of steps",
    "not finite": "the answer is not finite any more",
}


def _shown(settings: Settings) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in settings.items())


def largest(errors: Floats) -> float:
    """Of the errors; one that is not finite is larger than any.

    >>> largest(np.array([1.0, np.nan]))
    inf
    """
    return float(np.where(np.isfinite(errors), errors, np.inf).max())


def worst_of(found: Convergence) -> int:
    """The point that is farthest from rounding with the last settings.

    >>> worst_of(Convergence(("D",), ({"D": 1},), np.array([[1.0, 2.0]]), np.array([1e-9, 1e-12]), "plateau"))
    1
    """
    return first_largest(found.errors[-1] / found.floor)


def _rounded(count: float) -> str:
    """Upwards to one digit, for it is only an estimate."""
    unit = 10.0 ** math.floor(math.log10(count))
    return f"{math.ceil(count / unit) * unit:,.0f}".replace(",", " ")


@dataclass(frozen=True, eq=False)
class Sweep:
    """A candidate at a few points; ``floor`` is what rounding explains there, ``least`` the last tolerance.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [[1.0], [2.0]])  # grad Phi = x
    >>> sweep = Sweep(Candidate(lambda x, D: x * (1 - 0.5**D), (1,)), at, "grad_phi", 1e-12, at.floor("grad_phi"))
    >>> sweep.errors(sweep.values({"D": 2})).round(3)
    array([0.25, 0.5 ])
    """

    candidate: Candidate
    at: References
    quantity: Quantity
    least: float
    floor: Floats

    def at_rows(self, rows: Indices) -> Sweep:
        """The same at some of the points."""
        return replace(self, at=self.at[rows], floor=self.floor[rows])

    def _affords(self, settings: Settings) -> bool:
        """Whether the budget holds these settings here, and twice more in the end; at several points, a share of it."""
        cost, points = self.candidate.cost(settings), len(self.at)
        share = 1.0 if points == 1 else SOME if points <= WORST_POINTS else ALL
        return points * cost <= share * self.candidate.budget.work and self.candidate.affords(points + 2, settings)

    @property
    def _counts(self) -> list[str]:
        return [name for name in self.candidate.knobs if name != "tol"]

    def values(self, settings: Settings) -> Floats:
        """The answers at the points."""
        with np.errstate(all="ignore"):
            return np.array([self.candidate(x, settings).value for x in self.at.x])

    def errors(self, values: Floats) -> Floats:
        """The norms of their errors; nan where an answer is not finite."""
        errors = self.at.errors(self.quantity, np.where(np.isfinite(values), values, 0.0))
        return np.where(np.isfinite(values.reshape(len(values), -1)).all(axis=1), errors, np.nan)

    def _levels(self, least: float) -> list[dict[str, float]]:
        """Settings, each beyond the last, from that number of steps."""
        tolerances = [*(tol for tol in TOLERANCES if tol > self.least), self.least]
        counts = (
            [2**i for i in range(MOST_STEPS.bit_length()) if 2**i >= least] if self._counts else [0] * len(tolerances)
        )
        tolerances += [tolerances[-1]] * (len(counts) - len(tolerances))
        levels = zip(counts, tolerances, strict=False)
        return [{n: tol if n == "tol" else count for n in self.candidate.knobs} for count, tol in levels]

    def joint(self, meter: ProgressBar, least: float = 1) -> tuple[Sweep, Convergence]:
        """All knobs together: at all points with few steps, with more at the worst of them, in the end at one."""
        sweep, levels, i, was_there = self, self._levels(least), 0, False
        found = Convergence(self.candidate.knobs, (), np.zeros((0, len(self.at))), self.floor, "still shrinking")
        while i < len(levels):
            sweep, found = sweep._narrowed(found, levels[i])
            if found.tried and not sweep._affords(levels[i]):
                break
            meter.at(0, f" ({_shown(levels[i])})")
            found = sweep._raised(found, levels[i])
            there = bool(np.all(found.errors[-1] <= found.floor))
            if (there and was_there) or sweep._hopeless(found):
                break
            further = sweep._beyond(levels[i + 1 :]) if there else 1
            if not further:
                break
            i, was_there = i + further, there
        return sweep, sweep._with_verdict(found)

    def _narrowed(self, found: Convergence, settings: Settings) -> tuple[Sweep, Convergence]:
        """The same at the worst points so far, where the budget does not hold these settings at all of them."""
        sweep = self
        for count in (WORST_POINTS, 1):
            if len(sweep.at) > count and not sweep._affords(settings):
                off = found.errors[-1] / found.floor if found.tried else np.zeros(len(sweep.at))
                rows = in_order(off, descending=True)[:count]
                sweep = sweep.at_rows(rows)
                found = replace(found, errors=found.errors[:, rows], floor=sweep.floor)
        return sweep, found

    def _raised(self, found: Convergence, settings: Settings) -> Convergence:
        values = self.values(settings)
        errors = np.vstack([found.errors, self.errors(values)])
        return replace(found, tried=(*found.tried, settings), errors=errors, values=values, x=self.at.x)

    def _beyond(self, levels: list[dict[str, float]]) -> int:
        """How far to go where the error is rounding, to see it stay so; 0 where that is too much to ask."""
        if not self._counts:
            return 1
        most = ONWARD * self.candidate.budget.work
        return sum(self.candidate.cost(settings) <= most for settings in levels[:BEYOND])

    def _hopeless(self, found: Convergence) -> bool:
        """More steps will change nothing."""
        first, last = found.errors[0], found.errors[-1]
        if not np.isfinite(last).all() or np.any(last > BLOWN * (first + found.floor)):
            return True
        return len(found.tried) >= 3 and bool(np.any(last > found.floor)) and self._rate(found) == "plateau"

    def _with_verdict(self, found: Convergence) -> Convergence:
        worst = (found.errors / found.floor).max(axis=1)
        if not np.isfinite(worst[-1]):
            return self._not_finite(found)
        if worst[-1] <= 1 or (worst.min() <= 1 and worst[-1] <= SLACK):
            return replace(found, verdict="reached")
        if worst.min() <= 1:  # it was right, and leaves the truth again
            return replace(found, verdict="diverges")
        if len(worst) < 3:
            return replace(found, note=self._no_more)
        verdict = self._rate(found)
        notes = {"still shrinking": self._why_slow, "as theory says": self._outlook}
        return replace(found, verdict=verdict, note=notes[verdict](found) if verdict in notes else "")

    @property
    def _no_more(self) -> str:
        fixed = ", ".join(f"{name}=..." for name in self.candidate.knobs)
        return f"a larger effort= goes on, or give lambda x: candidate(x, {fixed}) with numbers that suffice"

    def _why_slow(self, found: Convergence) -> str:
        k = worst_of(found)
        if found.knobs == ("tol",):
            left = found.tried[-1]["tol"] / float(self.at.eigenvalues[k, 0])
            return f"a residual of {found.tried[-1]['tol']:.0e} leaves up to {left:.1g} in y*"
        if self._theory(found.tried[-1], k) < 1 / GAINED:
            return f"that is slower than theory says; {self._no_more}"
        return f"with kappa = {self.at.kappa[k]:.1g} theory promises little at so few steps; {self._no_more}"

    def _outlook(self, found: Convergence) -> str:
        """How many steps would do at the rate of the last doubling."""
        if not self._counts:
            return ""
        k, count = worst_of(found), found.tried[-1][self._counts[0]]
        before, last = found.errors[-2:, k]
        doublings = math.log(last / found.floor[k]) / math.log(before / last)  # each as many steps as the last one
        names = " = ".join(self._counts)
        return f"at this rate {names} = {_rounded(count * (1 + doublings / 2))} leave rounding; {self._no_more}"

    def _rate(self, found: Convergence) -> Rate:
        """From the points that are not done, the worst one."""
        k = worst_of(found)
        errors = found.errors[:, k]
        kept = errors[1:] / errors[:-1]
        if errors[-1] > BLOWN * errors[0] or (np.all(kept[-2:] > GROWS) and errors[-1] > 4 * errors[0]):
            return "diverges"
        if self._stays(found, k) and not self._creeps(errors, float(found.floor[k])):
            return "plateau"
        theory = [self._theory(settings, k) for settings in found.tried[:-1]]
        telling = [i for i in range(1, len(kept)) if theory[i] < VISIBLE][-2:]
        gained = errors[0] > GAINED * errors[-1]
        if telling and gained and all(kept[i] <= math.sqrt(theory[i]) for i in telling):
            return "as theory says"
        return "still shrinking"

    def _stays(self, found: Convergence, k: int) -> bool:
        """Whether theory leaves nothing of the error, and yet it does not fall, or goes up and down."""
        errors = found.errors[:, k]
        if np.all(errors[-2:] > FLAT * errors[-3:-1]) and self._long_enough(found.tried[-2], k):
            return True
        long = len(errors) > AGAIN and self._long_enough(found.tried[-1 - AGAIN], k)
        return bool(long and errors[-1] > errors[-1 - AGAIN] / 2)

    def _creeps(self, errors: Floats, floor: float) -> bool:
        """Whether each doubling takes a larger share of the error than the last one, as with steps that are too short.

        What is left of (1 - q)^D falls by a share of about q D/2 while that is small; where a bias is left, the share
        goes to zero.
        """
        if not self._counts:
            return False
        falls, before = -np.diff(errors[-4:]), errors[-4:-1]
        return bool(np.all(falls > floor / 100) and np.all(np.diff(falls / before) > 0))

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
        of_conjugate_gradients = min(LONG_SWEEP * math.sqrt(kappa), LONG_SWEEP + 4 * self.at.problem.n)
        enough = {"D": LONG_SWEEP * kappa, "Q": LONG_SWEEP * kappa, "N": of_conjugate_gradients}
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


def least_tolerance(at: References) -> float:
    """tol goes no further than a residual can, or a loop may never end."""
    sizes = np.linalg.norm(at.at["g_yy"], axis=(1, 2)) * np.linalg.norm(at.y, axis=1)
    sizes += np.linalg.norm(at.at["g_xy"], axis=(1, 2)) * np.linalg.norm(at.x, axis=1)
    beside = [at.y * (1 + sign * FLOAT64_EPS) for sign in (-1, 0, 1)]
    residuals = [float(np.abs(at.problem.kernels.g_y(at.x, y)).max()) for y in beside]  # what rounding leaves of zero
    return max(TOLERANCES[-1], 32 * FLOAT64_EPS * float(sizes.max()), 8 * max(residuals))
