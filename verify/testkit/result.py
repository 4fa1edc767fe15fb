"""CandidateCheck: a CheckResult about a user's function, with what is suspected; assert_ok: a result as a test."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
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

    - ``digits``: how many digits are right, in norm, at the worst point of those where rounding does not explain the
      error, or of all.
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

    @property
    def summary(self) -> str:
        """One line: the cause and what is suspected, or else the first line of the message.

        >>> wrong = Diagnosis("cross", "the implicit term counts half", "its weight")
        >>> CandidateCheck(label="eq:bilevel-grad", verdict=Verdict.VIOLATED, message="...", diagnosis=wrong).summary
        'cross: the implicit term counts half'
        """
        if self.diagnosis is None:
            return self.message.partition("\n")[0]
        return f"{self.diagnosis.cause}: {self.diagnosis.what}"

    def has(self, digits: float | None) -> bool:
        """Whether it holds, or is wrong after so many right digits, at the worst point too. Undecided is not enough.

        >>> loose = CandidateCheck(label="eq:bilevel-grad", verdict=Verdict.VIOLATED, message="wrong", digits=7.2)
        >>> loose.has(6), loose.has(8), loose.has(None)
        (True, False, False)
        """
        enough = digits is not None and self.verdict is Verdict.VIOLATED and self.digits >= digits
        return self.verdict is Verdict.HOLDS or enough

    def __str__(self) -> str:
        return f"{self.verdict}: {self.message}"

    __repr__ = __str__


def assert_ok(result: CheckResult | Report | Iterable[CheckResult], digits: float | None = None) -> None:
    """Raise AssertionError, with all that was found, unless the check holds; the first line names the cause.

    A single result has to be HOLDS: a test that decided nothing must not be green, so INCONCLUSIVE and NOT_APPLICABLE
    raise too, with the reason. A report speaks of many statements, of which some never apply: it raises if one is
    VIOLATED, or if not a single one was decided. Of several candidates each has to hold.

    - ``result``: of a check, or several, or a report.
    - ``digits``: of a candidate, so many right digits at every point are enough too, where rounding allows more.

    >>> from verify.verdict import judged
    >>> assert_ok(judged("lem:descent", 0.5, 2.0, evidence="certified", message="one step"))
    >>> assert_ok(judged("lem:descent", 3.0, 2.0, evidence="certified", message="one step", worst_point={"x": 0.5}))
    Traceback (most recent call last):
        ...
    AssertionError: lem:descent: VIOLATED (certified); 3 against 2; one step
      at x = 0.5
    >>> loose = CandidateCheck(label="eq:bilevel-grad", verdict=Verdict.VIOLATED, message="wrong", digits=7.2)
    >>> assert_ok(loose, digits=6)
    """
    __tracebackhide__ = True  # pytest then points at the line of the test, not at this one
    if complaint := _about(result, digits):
        raise AssertionError(complaint)


def _about(result: object, digits: float | None) -> str:
    """What is wrong with a result, or with one of several; nothing where all is well."""
    if isinstance(result, Report) and not _of_candidates(result.results):
        if digits is not None:
            raise InvalidArgument("a report on a theory has no digits", hint="assert_ok(report)")
        return _about_report(result)
    if isinstance(result, CheckResult):
        return _about_result(result, digits)
    if isinstance(result, Iterable) and _of_candidates(results := tuple(result)):
        return "\n".join(filter(None, (_about_result(each, digits) for each in results)))
    raise InvalidArgument(
        f"assert_ok wants a CheckResult or a Report, but was given a {type(result).__name__}",
        hint="assert_ok(check_hypergradient(my_function, problem))",
    )


def _of_candidates(results: tuple[object, ...]) -> bool:
    return bool(results) and all(isinstance(result, CandidateCheck) for result in results)


def _about_result(result: CheckResult, digits: float | None) -> str:
    if digits is not None and not isinstance(result, CandidateCheck):
        raise InvalidArgument("digits= is about a candidate, and this is another check", hint="assert_ok(result)")
    if result.verdict is Verdict.HOLDS or (isinstance(result, CandidateCheck) and result.has(digits)):
        return ""
    told = _told(result) if result.decided else f"{_told(result)}\n  nothing was decided, which is no pass"
    if not isinstance(result, CandidateCheck):
        return told
    named = ": ".join(filter(None, (result.part, result.summary)))  # pytest's summary shows one line
    return told if result.diagnosis is None and not result.part else f"{named}\n{told}"


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
