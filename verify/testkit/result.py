"""CandidateCheck: a CheckResult about a user's function, with what is suspected."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verify.testkit.behaviour import Behaviour
from verify.testkit.diagnosis import Cause, Diagnosis
from verify.testkit.knobs.sweep import Convergence
from verify.testkit.taylor import TaylorTest
from verify.verdict import CheckResult

__all__ = ["CandidateCheck"]


@dataclass(frozen=True, kw_only=True, repr=False)
class CandidateCheck(CheckResult):
    """What is said of a candidate: ``measured`` is its worst error, ``bound`` what rounding explains there.

    - ``digits``: how many digits are right at the worst point, in norm.
    - ``diagnosis``: what is suspected.
    - ``taylor``: the test of the remainder, where it was made.
    - ``behaviour``: what the candidate does when it is asked again.
    - ``convergence``: what its own numbers of steps change.
    - The others: as for ``CheckResult``.

    >>> from verify.verdict import Verdict
    >>> CandidateCheck(label="eq:bilevel-grad", verdict=Verdict.HOLDS, message="right to 15.1 digits", digits=15.1)
    HOLDS: right to 15.1 digits
    """

    digits: float = math.nan
    diagnosis: Diagnosis | None = None
    taylor: TaylorTest | None = None
    behaviour: Behaviour | None = None
    convergence: Convergence | None = None

    @property
    def cause(self) -> Cause | None:
        """The suspected cause in a word; None where nothing is wrong."""
        return None if self.diagnosis is None else self.diagnosis.cause

    def __str__(self) -> str:
        return f"{self.verdict}: {self.message}"

    __repr__ = __str__
