"""CandidateCheck: a CheckResult about a user's function, with what is suspected; assert_ok: a result as a test."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from bilevel_sym.errors import InvalidArgument
from verify.reporting import Report
from verify.testkit.behaviour import Behaviour
from verify.testkit.diagnosis import Cause, Diagnosis
from verify.testkit.sweep import Convergence
from verify.testkit.taylor import TaylorTest
from verify.verdict import CheckResult, Verdict

__all__ = ["CandidateCheck", "assert_ok"]


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


def assert_ok(result: CheckResult | Report) -> None:
    """Raise AssertionError, with all that was found, unless the check holds.

    A single result has to be HOLDS: a test that decided nothing must not be green, so INCONCLUSIVE and NOT_APPLICABLE
    raise too, with the reason. A report speaks of many statements, of which some never apply: it raises if one is
    VIOLATED, or if not a single one was decided.

    >>> from verify.verdict import judged
    >>> assert_ok(judged("lem:descent", 0.5, 2.0, evidence="certified", message="one step"))
    >>> assert_ok(judged("lem:descent", 3.0, 2.0, evidence="certified", message="one step", worst_point={"x": 0.5}))
    Traceback (most recent call last):
        ...
    AssertionError: lem:descent: VIOLATED (certified); 3 against 2; one step
      at x = 0.5
    """
    __tracebackhide__ = True  # pytest then points at the line of the test, not at this one
    if isinstance(result, Report):
        complaint = _about_report(result)
    elif isinstance(result, CheckResult):
        complaint = _about_result(result)
    else:
        raise InvalidArgument(
            f"assert_ok wants a CheckResult or a Report, but was given a {type(result).__name__}",
            hint="assert_ok(check_hypergradient(my_function, problem))",
        )
    if complaint:
        raise AssertionError(complaint)


def _about_result(result: CheckResult) -> str:
    if result.verdict is Verdict.HOLDS:
        return ""
    return _told(result) if result.decided else f"{_told(result)}\n  nothing was decided, which is no pass"


def _about_report(report: Report) -> str:
    violated = [result for result in report.results if result.verdict is Verdict.VIOLATED]
    if not violated and any(result.decided for result in report.results):
        return ""
    counts = Counter(str(result.verdict) for result in report.results)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no statements"
    if violated:
        return "\n".join([f"{report.problem}: {summary}", *map(_told, violated)])
    reasons = dict.fromkeys(result.message for result in report.results)
    return "\n".join([f"{report.problem}: nothing was decided, which is no pass ({summary})", *reasons])


def _told(result: CheckResult) -> str:
    """The result with its point, unless the message has said that already."""
    text = str(result)
    named = [f"{name} = {value!r}" for name, value in (result.worst_point or {}).items()]
    return text if not named or any(each in text for each in named) else f"{text}\n  at {', '.join(named)}"
