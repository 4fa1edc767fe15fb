"""An inquiry: a candidate is asked at points, its answers are held against certified values, and a verdict is found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.problem import BilevelProblem
from bilevel_sym.progress import Meter
from bilevel_sym.ties import first_largest, in_order
from verify.testkit import words
from verify.testkit.arrays import norms
from verify.testkit.behaviour import Behaviour, behaviour
from verify.testkit.candidate import NOTHING, Candidate, Settings, WrongKind
from verify.testkit.convergence import Convergence, convergence
from verify.testkit.diagnosis import Diagnosis, Evidence, Suspect, explain
from verify.testkit.reference import EPS, ROUNDINGS, Quantity, References, references
from verify.testkit.result import CandidateCheck
from verify.testkit.screening import KEPT, screening
from verify.testkit.taylor import TaylorTest, taylor_test
from verify.verdict import Verdict

__all__ = ["Inquiry", "Subject"]

Floats = NDArray[np.float64]
FEWEST = 4  # points at which even a slow candidate is asked
SWEEPS = 8  # over what a candidate takes: the points that are slowest are not known at first
LONGEST = 1.5  # seconds, after which no sweep begins
PATIENCE = 1.0  # seconds for all points together
LESS = 0.4  # seconds, where its convergence has been looked at
TELLING = 1e-2  # where rounding may do more than this, an answer says nothing
LEAVES = ("diverges", "not finite")  # what more steps may do to an answer that was right
SURE = 1e-3  # a hypothesis that leaves less of the error than this is believed before any other probe


@dataclass(frozen=True)
class Subject:
    """What is asked for: its name in a certificate, its label in the paper, its shape, and what may go wrong."""

    quantity: Quantity
    label: str
    noun: str
    shape: Callable[[BilevelProblem], tuple[int, ...]]
    suspects: Callable[[References, Floats, Floats | None], Iterator[Suspect]]
    look_at: str  # where to begin when nothing is known


@dataclass(frozen=True, eq=False)
class Asked:
    """The answers at the points of ``at``; ``previous`` are the points asked just before each."""

    subject: Subject
    at: References
    values: Floats
    previous: Floats
    single: bool
    settings: Settings
    screened: int = 0

    def joined(self, other: Asked, screened: int) -> Asked:
        """Both, where the other points are the worst of so many that were screened."""
        at = References(
            self.at.problem,
            np.concatenate([self.at.x, other.at.x]),
            self.at.certificates + other.at.certificates,
            self.at.skipped,
        )
        values, previous = (
            np.concatenate([getattr(a, name) for a in (self, other)]) for name in ("values", "previous")
        )
        return Asked(self.subject, at, values, previous, self.single, self.settings, screened)

    @cached_property
    def errors(self) -> Floats:
        """The norm of the error at each point."""
        return self.at.errors(self.subject.quantity, self.values)

    @cached_property
    def floor(self) -> Floats:
        """What rounding explains."""
        return self.at.floor(self.subject.quantity)

    @cached_property
    def excess(self) -> Floats:
        """Errors in units of what rounding explains; an answer that is not finite is worse than any."""
        excess = self.errors / self.floor
        return np.where(np.isfinite(excess), excess, np.inf)

    @property
    def worst(self) -> int:
        """The point with the largest error in these units."""
        return first_largest(self.excess)

    @property
    def off(self) -> int:
        """At how many points rounding does not explain the error."""
        return int((self.excess > 1).sum())

    @property
    def slowest(self) -> References:
        """The points, those with the largest error first."""
        return self.at[in_order(self.excess, descending=True)]

    @property
    def finite(self) -> bool:
        """Whether every answer holds numbers only."""
        return bool(np.isfinite(self.values).all())

    @property
    def right(self) -> bool:
        """Whether rounding explains every error."""
        return self.finite and bool((self.errors <= self.floor).all())

    @property
    def relative(self) -> Floats:
        """Errors beside the size of the truth, or beside that of its terms where these cancel to zero."""
        size = norms(self.at.truth(self.subject.quantity))
        return np.asarray(self.errors / np.where(size > self.floor, size, self.floor / (ROUNDINGS * EPS)))

    def digits(self, k: int) -> float:
        """How many digits are right at a point."""
        relative = float(self.relative[k])
        return 0.0 if not math.isfinite(relative) else min(16.0, max(0.0, -math.log10(max(relative, 1e-16))))


@dataclass(eq=False)
class Inquiry:
    """One candidate, one quantity, some points."""

    subject: Subject
    candidate: Candidate
    at: References
    seed: int = 0
    screens: bool = False  # whether points that nobody named may be added
    progress: bool = False
    convergence: Convergence | None = field(default=None, init=False)

    def result(self) -> CandidateCheck:
        """The verdict."""
        try:
            return self._decided()
        except WrongKind as error:
            look_at = f"what the function returns: it is called with x of shape ({self.at.problem.d},)"
            return self._said(
                Verdict.VIOLATED, words.wrong_kind(self, str(error)), Diagnosis("shape", str(error), look_at)
            )

    def _decided(self) -> CandidateCheck:
        if not self._telling:
            return self._said(Verdict.INCONCLUSIVE, words.too_ill_conditioned(self))
        asked = self._converged() if self.candidate.required else self._screened(self._asked(NOTHING))
        if self.candidate.knobs and self.convergence is None and not asked.right:
            asked = self._converged(asked)
        found = self.convergence
        if found is not None and asked.right and found.verdict in LEAVES:
            asked = self._asked(found.tried[-1])  # right with few steps, and wrong with more
        if asked.right:
            return self._concluded(Verdict.HOLDS, words.right(asked), asked)
        if found is not None and found.verdict == "as theory says" and not asked.single:
            return self._concluded(Verdict.HOLDS, words.as_theory_says(asked, found), asked)
        if found is not None and found.verdict == "still shrinking":
            return self._concluded(Verdict.INCONCLUSIVE, words.still_shrinking(asked, found), asked)
        return self._wrong(asked)

    @property
    def _telling(self) -> bool:
        """Whether there is a point at which an answer could be told from rounding."""
        size = norms(self.at.truth(self.subject.quantity)).max()
        return bool((self.at.floor(self.subject.quantity) < TELLING * size).any()) or size == 0

    def _converged(self, asked: Asked | None = None) -> Asked:
        """The answers with what the candidate takes raised until its error is rounding, at the slowest points too."""
        until, at = time.perf_counter() + LONGEST, self.at if asked is None else asked.slowest
        for _ in range(SWEEPS):
            self.convergence = convergence(self.candidate, at, self.subject.quantity)
            found = self._screened(self._asked(self.convergence.settings, at))
            if found.right or self.convergence.verdict != "reached":
                break
            if time.perf_counter() > until:  # more steps are needed elsewhere, and nobody knows whether they help
                self.convergence = replace(self.convergence, verdict="still shrinking", note="other points need more")
                break
            at = found.slowest
        return found

    def _screened(self, asked: Asked) -> Asked:
        """With the most doubtful of very many other points, if it was right so far."""
        if not (self.screens and asked.right):
            return asked
        rng = np.random.default_rng([self.seed, 1])
        found = screening(self.candidate, self.at.problem, self.subject.quantity, asked.settings, rng)
        if not len(found.points):
            return asked
        more = self._asked(asked.settings, references(self.at.problem, found.points))
        return asked.joined(more, found.count)

    def _asked(self, settings: Settings, at: References | None = None) -> Asked:
        """The answers at all points, or at as many as a slow candidate allows."""
        at = self.at if at is None else at
        values, previous, single, spent = [], [], False, 0.0
        fewest, patience = self._effort
        with Meter("asking the candidate", len(at), shown=self.progress) as meter:
            for k, x in enumerate(at.x):
                if k >= fewest and spent / k * (k + 1) > patience:
                    break
                first = not self.candidate.calls  # it may compile, and says nothing of the time that others take
                before = self.candidate.previous
                previous.append(np.full(len(x), np.nan) if before is None else before.x)
                answer = self.candidate(x, settings)
                values.append(answer.value)
                single, spent = single or answer.single, spent + (0.0 if first else answer.seconds)
                meter.at(k + 1)
        seen = at[: len(values)]
        return Asked(self.subject, seen, np.array(values), np.array(previous), single, settings)

    @property
    def _effort(self) -> tuple[int, float]:
        """How many points a slow candidate is asked at, and for how many seconds it may be asked at more."""
        if self.convergence is None:
            return FEWEST, PATIENCE
        return (1 if self.convergence.verdict in ("still shrinking", "as theory says") else FEWEST), LESS

    # ------------------------------------------------------------------ what is wrong

    def _wrong(self, asked: Asked) -> CandidateCheck:
        k, quantity = asked.worst, self.subject.quantity
        if not asked.finite:
            return self._concluded(Verdict.VIOLATED, "", asked, self._not_finite())
        diagnosis = self._explained(asked)
        probe = behaviour(self.candidate, asked.at, quantity, k, settings=asked.settings)
        diagnosis = self._weighed(asked, diagnosis, probe)
        slope = None if quantity == "y_star" else taylor_test(asked.at, k, quantity, asked.values[k])
        random = probe.random and not probe.biased
        verdict = Verdict.INCONCLUSIVE if random else Verdict.VIOLATED
        return self._concluded(verdict, "", asked, diagnosis, probe, slope)

    def _explained(self, asked: Asked) -> Diagnosis:
        if self.convergence is not None and self.convergence.diagnosis is not None:
            return self.convergence.diagnosis
        evidence = Evidence(asked.values, asked.at.truth(self.subject.quantity), asked.floor)
        found = explain(evidence, self.subject.suspects(asked.at, asked.values, asked.previous))
        return found if found.cause != "unexplained" else replace(found, look_at=self.subject.look_at)

    def _weighed(self, asked: Asked, fitted: Diagnosis, probe: Behaviour) -> Diagnosis:
        """A hypothesis that fits sharply comes first, then what the candidate does when it is asked again."""
        sharp = fitted.cause != "unexplained" and not fitted.residual > SURE
        if probe.random and probe.diagnosis is not None:  # a hypothesis that fits one draw need not fit the next
            return probe.diagnosis
        if asked.screened:  # it was right at all the points that were chosen first
            return words.rarely(asked, (fitted.what,) if sharp else ())
        return fitted if sharp or probe.diagnosis is None else probe.diagnosis

    def _not_finite(self) -> Diagnosis:
        if self.convergence is not None and self.convergence.diagnosis is not None:
            return self.convergence.diagnosis
        return Diagnosis(
            "not finite",
            "it returned nan or infinity where the truth is finite",
            "0/0 in conjugate gradients whose residual is already zero; overflow in log(1 + exp); a step above 2/ell",
        )

    # ------------------------------------------------------------------ what is said

    def _concluded(
        self,
        verdict: Verdict,
        message: str,
        asked: Asked,
        diagnosis: Diagnosis | None = None,
        probe: Behaviour | None = None,
        slope: TaylorTest | None = None,
    ) -> CandidateCheck:
        k = asked.worst
        names = [s.name for s in self.at.problem.x]
        return CandidateCheck(
            label=self.subject.label,
            verdict=verdict,
            message=message or words.wrong(asked, diagnosis, slope),
            measured=float(asked.errors[k]),
            bound=float(asked.floor[k]),
            evidence="certified",
            worst_point=dict(zip(names, map(float, asked.at.x[k]), strict=True)),
            n_points=len(asked.at) + max(0, asked.screened - KEPT),
            seed=self.seed,
            digits=asked.digits(k),
            diagnosis=diagnosis,
            taylor=slope,
            behaviour=probe,
            convergence=self.convergence,
        )

    def _said(self, verdict: Verdict, message: str, diagnosis: Diagnosis | None = None) -> CandidateCheck:
        return CandidateCheck(
            label=self.subject.label, verdict=verdict, message=message, diagnosis=diagnosis, seed=self.seed
        )
