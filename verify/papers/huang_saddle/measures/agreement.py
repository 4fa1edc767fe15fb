"""Verdicts on many comparisons: two computations of one thing (Agreement), two sides of an inequality (Case).

An identity has no slack: the bound is zero. So what rounding explains counts as zero against zero, and what it does not
explain as the difference against what it could.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bilevel_sym.arithmetic.ties import first_largest
from verify.study import Study
from verify.verdict import Bracket, CheckResult, Evidence, Verdict, inconclusive, judged


@dataclass(frozen=True)
class Agreement:
    """How far two values are ``apart``, and how far ``rounding`` may have taken them.

    >>> Agreement("one", 0.5, 0.25).ratio
    2.0
    """

    name: str
    apart: float
    rounding: float
    point: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def ratio(self) -> float:
        """Above 1 where rounding is no explanation; nan is none."""
        return self.apart / self.rounding if self.apart == self.apart else float("inf")


def agreed(label: str, study: Study, found: Sequence[Agreement], *, what: str, part: str = "") -> CheckResult:
    """The verdict on all of them: violated where one cannot be explained by rounding.

    >>> from bilevel_sym import verify, zoo
    >>> study = verify.study_of(zoo.get("scalar").problem)
    >>> print(agreed("est-vq", study, [Agreement("one", 1e-15, 1e-12)], what="series"))
    est-vq: HOLDS (sampled); 0 against 0; series: the largest difference is 1e-15, which rounding explains
    >>> agreed("est-vq", study, [Agreement("one", 0.5, 1e-12)], what="series").verdict
    <Verdict.VIOLATED: 'VIOLATED'>
    """
    if not found:
        return inconclusive(label, f"nothing could be compared; {what}", part=part)
    worst = max(found, key=lambda item: item.ratio)
    held = worst.ratio <= 1
    largest = max(item.apart for item in found)
    message = f"{what}: " + (
        f"the largest difference is {largest:.1g}, which rounding explains"
        if held
        else f"{worst.name} is off by {worst.apart:.3g}, of which rounding explains {worst.rounding:.1g}"
    )
    apart = worst.apart if worst.apart == worst.apart else float("inf")
    return judged(
        label, 0.0 if held else apart, 0.0 if held else worst.rounding, evidence="sampled", message=message, part=part,
        n_points=len(found), worst_point=worst.point or None, seed=study.seed,
    )  # fmt: skip


def decided_exactly(label: str, part: str, true: bool, message: str) -> CheckResult:
    """The verdict on a statement that exact arithmetic decides."""
    return CheckResult(
        label=label, verdict=Verdict.HOLDS if true else Verdict.VIOLATED, message=message, evidence="proved", part=part
    )


def both_zero(label: str, message: str) -> CheckResult:
    """The verdict where both sides of an inequality are zero, exactly.

    >>> both_zero("eq:gdrate", "one step is exact").tightness
    1.0
    """
    return judged(label, 0.0, 0.0, evidence="proved", message=message)


@dataclass(frozen=True)
class Case:
    """measured <= bound at a point, with the settings in words.

    >>> Case(Bracket(1.0, 1.0), Bracket(4.0, 4.0)).ratio
    0.25
    """

    measured: Bracket
    bound: Bracket
    point: Mapping[str, float] = field(default_factory=dict, hash=False)
    setting: str = ""

    @property
    def violated(self) -> bool:
        """Whether the inequality certainly fails.

        >>> Case(Bracket(2.0, 3.0), Bracket(1.0, 2.0)).violated
        False
        """
        return self.measured.lower > self.bound.upper

    @property
    def ratio(self) -> float:
        """How close the two sides may be: above 1 where the inequality is not certain."""
        if self.measured.upper > self.bound.lower:
            return math.inf
        return self.measured.upper / self.bound.lower if self.bound.lower > 0 else 1.0


def tightest(label: str, cases: Iterable[Case], *, evidence: Evidence, message: str, part: str = "") -> CheckResult:
    """The verdict on all cases: that on one which fails, or else on the one that comes closest to failing.

    >>> cases = [Case(Bracket(1.0, 1.0), Bracket(4.0, 4.0)), Case(Bracket(1.0, 1.0), Bracket(2.0, 2.0))]
    >>> tightest("lem:descent", cases, evidence="certified", message="").tightness
    0.5
    """
    found = list(cases)
    if not found:
        reason = f"no point was found at which it could be put to the test; {message}"
        return inconclusive(label, reason, part=part)
    candidates = [case for case in found if case.violated] or found
    worst = candidates[first_largest([case.ratio for case in candidates])]
    return judged(
        label,
        worst.measured,
        worst.bound,
        evidence=evidence,
        message=", ".join(filter(None, (message, worst.setting))),
        worst_point=worst.point or None,
        n_points=len(found),
        part=part,
    )
