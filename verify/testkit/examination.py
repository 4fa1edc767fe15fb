"""An examination: a candidate is asked at points, its answers are compared with certified values, and judged.

How much it is asked depends on the budget of the candidate, in steps, and on nothing else. Points that a user names are
all asked; of those that were chosen here, as many as the budget holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bilevel_sym.arithmetic.ties import in_order
from bilevel_sym.errors import TimeIsUp
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.typing import Floats, Indices
from verify.testkit import messages
from verify.testkit.behaviour import ENOUGH, Behaviour, behaviour
from verify.testkit.candidate import NO_SETTINGS, Answer, Candidate, Settings, WrongKind, norms
from verify.testkit.convergence import convergence
from verify.testkit.diagnosis import Diagnosis, Evidence, explain
from verify.testkit.reference import Asked, References, Subject, references
from verify.testkit.result import CandidateCheck
from verify.testkit.sample_points import KEPT, calls_for, screening
from verify.testkit.suspects.told import ROOMS, told_wrong
from verify.testkit.sweep import FEWEST, Convergence, worst_of
from verify.testkit.taylor import TaylorTest, not_taken, taylor_test
from verify.verdict import Verdict

__all__ = ["TELLING", "Examination"]

SWEEPS = 8  # over what a candidate takes: the points that are slowest are not known at first
LEAST_SWEEP_CALLS = 6  # calls: a sweep that raises what was enough elsewhere takes at least so many of these
AMPLE = 0.6  # of what is left, for all points with more steps than were enough at some
OWN = 0.5  # of the budget, for a candidate with its own numbers of steps
TELLING = 1e-2  # where rounding may do more than this, an answer says nothing
LEAVES = ("diverges", "not finite")  # what more steps may do to an answer that was right
SHRINKS = ("still shrinking", "as theory says")  # what decides nothing
SURE = 1e-3  # a hypothesis that leaves less of the error than this is believed before any other probe


@dataclass(eq=False)
class Examination:
    """One candidate, one quantity, some points."""

    subject: Subject
    candidate: Candidate
    at: References
    seed: int = 0
    chosen: bool = False  # whether the user named no points, so that they may be fewer, or more
    progress: bool = False
    convergence: Convergence | None = field(default=None, init=False)
    asked: Asked | None = field(default=None, init=False)  # the last answers, for a result that is cut by time
    missing: str = field(default="all points", init=False)  # what is left out then

    def result(self) -> CandidateCheck:
        """The verdict."""
        try:
            return self._decided()
        except WrongKind as error:
            look_at = f"what the function returns: it is called with x of shape ({self.at.problem.d},)"
            return self._said(
                Verdict.VIOLATED, messages.wrong_kind(self, str(error)), Diagnosis("shape", str(error), look_at)
            )
        except TimeIsUp:
            if not self.candidate.budget.cut:  # it is the candidate's own
                raise
            return self._said(Verdict.INCONCLUSIVE, messages.cut(self))

    def _decided(self) -> CandidateCheck:
        if not self._telling:
            return self._said(Verdict.INCONCLUSIVE, messages.too_ill_conditioned(self))
        asked = self._converged() if self.candidate.required else self._screened(self._asked(NO_SETTINGS))
        if self.candidate.knobs and self.convergence is None and not asked.right:
            asked = self._converged(asked)
        found = self.convergence
        if found is not None and asked.right and found.verdict in LEAVES:
            asked = self._asked(found.tried[-1], everywhere=False)  # right with few steps, and wrong with more
        if found is not None and found.verdict in SHRINKS and not (asked.single and found.verdict != SHRINKS[0]):
            return self._concluded(Verdict.INCONCLUSIVE, messages.not_accurate(asked, found), asked)
        return self._concluded(Verdict.HOLDS, messages.right(asked), asked) if asked.right else self._wrong(asked)

    @property
    def _telling(self) -> bool:
        """Whether there is a point at which an answer could be told from rounding."""
        size = norms(self.at.truth(self.subject.quantity)).max()
        return bool((self.at.floor(self.subject.quantity) < TELLING * size).any()) or size == 0

    def _converged(self, asked: Asked | None = None) -> Asked:
        """The answers with what the candidate takes raised until its error is rounding, at the slowest points too."""
        at, least = self.at if asked is None else asked.slowest, 1.0
        for _ in range(SWEEPS):
            self.missing = f"how the error falls as {' and '.join(self.candidate.knobs)} are raised"
            self.convergence = convergence(
                self.candidate, at, self.subject.quantity, least=least, progress=self.progress
            )  # fmt: skip
            settings = self._settings(self.convergence, len(at))
            shrinks = self.convergence.verdict in SHRINKS
            found = self._screened(self._asked(settings, at[self._first(at)] if shrinks else at, few=shrinks))
            if found.right or self.convergence.verdict != "reached":
                break
            if not self.candidate.affords(LEAST_SWEEP_CALLS, settings):  # whether more steps help is not known
                note = "other points need more; a larger effort= goes on"
                self.convergence = replace(self.convergence, verdict="still shrinking", note=note)
                break
            # what was enough elsewhere is not enough here: half of it and on
            at, least = found.slowest, max(1.0, *(count / 2 for name, count in settings.items() if name != "tol"), 1.0)
        return found

    def _first(self, at: References) -> Indices:
        """The points, the one that was raised furthest first."""
        assert self.convergence is not None
        last = self.convergence.x[worst_of(self.convergence)]
        return in_order((at.x != last).any(axis=1))

    def _settings(self, found: Convergence, points: int) -> Settings:
        """With how many steps the points are asked: the most of those that do with which all of them can be."""
        if found.verdict == "reached":
            return self._ample(found, points)
        least = 1 if found.verdict in SHRINKS else FEWEST
        least = min(points, least) if self.chosen else points
        best = found.tried.index(found.settings)
        options = [s for s in found.tried[: best + 1] if self.candidate.affords(least + 1, s)]
        return options[-1] if options else found.tried[0]

    def _ample(self, found: Convergence, points: int) -> Settings:
        """More steps than were enough, for other points may need more: as many as were seen to do no harm, or twice."""
        first, last = found.enough[0], found.enough[-1]
        counts = {name: count for name, count in first.items() if name != "tol"}
        if not counts:
            return last
        most = max(2.0, *(last[name] / count for name, count in counts.items()))
        more = {m: {**last, **{n: int(m * c) for n, c in counts.items()}} for m in (8, 4, 2) if m <= most}
        within = (m for m in more if (points + 1) * self.candidate.cost(more[m]) <= AMPLE * self.candidate.budget.left)
        m = next(within, 2)
        enough = FEWEST * self.candidate.cost(more[m]) <= self.candidate.budget.work
        return more[m] if enough else {**last, **counts}

    def _screened(self, asked: Asked) -> Asked:
        """With the most doubtful of very many other points, if it was right so far."""
        if not (self.chosen and asked.right):
            return asked
        self.missing = f"{calls_for(self.candidate, asked.settings)} more points at random"
        rng = np.random.default_rng([self.seed, 1])
        found = screening(
            self.candidate, self.at.problem, self.subject.quantity, asked.settings, rng, progress=self.progress
        )
        if not len(found.points):
            return asked
        at = references(self.at.problem, found.points, deadline=self.candidate.budget.deadline)
        return asked.joined(self._asked(asked.settings, at), found.count)

    def _asked(
        self, settings: Settings, at: References | None = None, *, everywhere: bool = True, few: bool = False
    ) -> Asked:
        """The answers at all points, or, of those that were chosen here, at as many as the budget holds."""
        at = self.at if at is None else at
        most, least = len(at), len(at)
        if self.chosen or not everywhere:
            share = OWN if not settings else 1.0
            most = 1 if few else int(share * self.candidate.budget.left / self.candidate.cost(settings)) - 1
            least = 1 if few else FEWEST
        answers: list[Answer] = []
        previous: list[Floats] = []

        def so_far() -> Asked:
            values, single = np.array([a.value for a in answers]), any(a.single for a in answers)
            seen, rest = at[: len(answers)], at[len(answers) :]
            names = [name for name in ("y", "v") if all(name in a.told for a in answers)]
            told = {name: np.array([a.told[name] for a in answers]) for name in names}
            before = np.array(previous[: len(answers)])
            return Asked(self.subject, seen, values, before, single, settings, rest, told=told)

        try:
            with ProgressBar("asking the candidate", len(at), shown=self.progress) as meter:
                for k, x in enumerate(at.x):
                    if k >= max(1, most) and (k >= least or not so_far().right):
                        break
                    self.missing = f"{len(at) - k} of {len(at)} points"
                    before = self.candidate.previous
                    previous.append(np.full(len(x), np.nan) if before is None else before.x)
                    answers.append(self.candidate(x, settings))
                    meter.at(k + 1)
        finally:
            self.asked = so_far() if answers else self.asked
        return so_far()

    # ------------------------------------------------------------------ what is wrong

    def _wrong(self, asked: Asked) -> CandidateCheck:
        k, quantity = asked.worst, self.subject.quantity
        if not asked.finite:
            return self._concluded(Verdict.VIOLATED, "", asked, self._not_finite())
        self.missing = "what the error comes from"
        with ProgressBar("looking for the cause", shown=self.progress):
            diagnosis = self._explained(asked)
            calls = int(self.candidate.budget.left / self.candidate.cost(asked.settings))
            probe = behaviour(
                self.candidate, asked.at, quantity, k, settings=asked.settings, before=asked.values[k],
                explained=_explains_nearly_all(diagnosis), calls=min(ENOUGH, calls),
            )  # fmt: skip
            diagnosis = self._weighed(asked, diagnosis, probe)
            slope = None if quantity == "y_star" else self._slope(asked, k)
        random = probe.random and not probe.biased
        verdict = Verdict.INCONCLUSIVE if random else Verdict.VIOLATED
        return self._concluded(verdict, "", asked, diagnosis, probe, slope)

    def _slope(self, asked: Asked, k: int) -> TaylorTest | None:
        """The Taylor test, which shows an error that is proved already: where time is up, it is left out."""
        deadline = self.candidate.budget.deadline
        try:
            return taylor_test(asked.at, k, self.subject.quantity, asked.values[k], deadline=deadline)
        except TimeIsUp as cut:
            return not_taken(self.subject.quantity, cut.message)

    def _explained(self, asked: Asked) -> Diagnosis:
        if self.convergence is not None and self.convergence.diagnosis is not None:
            return self.convergence.diagnosis
        evidence = Evidence(asked.values, asked.at.truth(self.subject.quantity), asked.floor)
        suspects = list(self.subject.suspects(asked.at, asked.values, asked.previous))
        if asked.told and (told := told_wrong(asked)) is not None:
            found = explain(evidence, [suspect for suspect in suspects if suspect.cause in ROOMS[told.cause]])
            return found if found.cause != "unexplained" else told
        found = explain(evidence, suspects)
        return found if found.cause != "unexplained" else replace(found, look_at=self.subject.look_at)

    def _weighed(self, asked: Asked, fitted: Diagnosis, probe: Behaviour) -> Diagnosis:
        """A hypothesis that explains nearly all comes first, then what the candidate does when it is asked again."""
        nearly_all = _explains_nearly_all(fitted)
        if probe.random and probe.diagnosis is not None:  # a hypothesis that fits one draw need not fit the next
            return probe.diagnosis
        if asked.screened:  # it was right at all the points that were chosen first
            return messages.rarely(asked, (fitted.what,) if nearly_all else ())
        return fitted if nearly_all or probe.diagnosis is None else probe.diagnosis

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
        names = [s.name for s in self.at.problem.x_entries]
        return CandidateCheck(
            label=self.subject.label,
            verdict=verdict,
            message=message or messages.wrong(asked, diagnosis, slope),
            measured=float(asked.errors[k]),
            bound=float(asked.floor[k]),
            evidence="certified",
            worst_point=dict(zip(names, map(float, asked.at.x[k]), strict=True)),
            n_points=len(asked.at) + max(0, asked.screened - KEPT),
            seed=self.seed,
            digits=asked.least_digits,
            diagnosis=diagnosis,
            taylor=slope,
            behaviour=probe,
            convergence=self.convergence,
        )

    def _said(self, verdict: Verdict, message: str, diagnosis: Diagnosis | None = None) -> CandidateCheck:
        return CandidateCheck(
            label=self.subject.label, verdict=verdict, message=message, diagnosis=diagnosis, seed=self.seed
        )


def _explains_nearly_all(fitted: Diagnosis) -> bool:
    """Whether a hypothesis leaves next to nothing of the error."""
    return fitted.cause != "unexplained" and not fitted.residual > SURE
