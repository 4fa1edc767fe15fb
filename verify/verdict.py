"""Verdict and CheckResult: what is said about a statement, and what it rests on.

Evidence, from the strongest to the weakest:

- ``proved``: exact arithmetic, symbols or rationals; it holds for this problem without any rounding.
- ``certified``: enclosures that are proved to contain the true values, over the whole box or at every point named.
- ``statistical``: random runs, with an exact confidence bound on the probability.
- ``sampled``: float64 at finitely many points; it can refute, and otherwise it only supports.

``by definition`` is no evidence: the statement names a thing and says nothing of it that could fail.

Bracket: the one type for a proved two-sided bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.theories import Variant

__all__ = ["Bracket", "CheckResult", "Evidence", "Verdict", "by_definition", "inconclusive", "judged", "not_applicable"]


@dataclass(frozen=True, slots=True)
class Bracket:
    """A number that is proved to lie between ``lower`` and ``upper``; an infinite end says that no bound is known.

    >>> bracket = Bracket(1.0, 1.25)
    >>> bracket.ratio, 1.1 in bracket
    (1.25, True)
    >>> print(bracket)
    [1, 1.25]
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:  # nan included
            raise InvalidArgument(f"a bracket wants lower <= upper, but was given {self.lower} and {self.upper}")

    @property
    def ratio(self) -> float:
        """upper/lower: 1 where both ends agree, infinite where only the upper end is known to be above zero.

        >>> Bracket(0.0, 0.0).ratio, Bracket(0.0, 1.0).ratio
        (1.0, inf)
        """
        if self.lower == self.upper:
            return 1.0
        return self.upper / self.lower if self.lower > 0 else math.inf

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper

    def __str__(self) -> str:
        return f"[{self.lower:.6g}, {self.upper:.6g}]"


Evidence = Literal["proved", "certified", "statistical", "sampled", "by definition"]
TESTED_TIGHTNESS = 1e-2  # the least tightness at which runs or samples have put a bound to the test


class Verdict(StrEnum):
    """What a check says. A false theorem is a verdict, never an exception.

    >>> print(Verdict.HOLDS)
    HOLDS
    """

    HOLDS = "HOLDS"
    VIOLATED = "VIOLATED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_APPLICABLE = "NOT_APPLICABLE"


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The outcome of one check: ``measured`` against ``bound``, and what that rests on.

    - ``label``: that of the statement.
    - ``verdict``: what follows.
    - ``message``: in words.
    - ``measured``: the left side of the inequality.
    - ``bound``: its right side.
    - ``noise``: how far rounding may have moved the difference of the two.
    - ``evidence``: what the verdict rests on.
    - ``worst_point``: where the bound is tightest, by name.
    - ``n_points``: at how many points, or in how many runs, it was looked at.
    - ``seed``: of the random numbers.
    - ``variant``: the form of the formulas.
    - ``part``: the name of a piece, of a statement that has several.
    - ``confidence``: that of statistical evidence.
    - ``region``: over what it was judged: the box, or the part of it where the bound was tightest.

    >>> result = judged("lem:descent", 0.5, 2.0, evidence="certified", message="one step")
    >>> print(result.verdict, result.tightness, result.margin)
    HOLDS 0.25 1.5
    """

    label: str
    verdict: Verdict
    message: str
    measured: float | None = None
    bound: float | None = None
    noise: float = 0.0
    evidence: Evidence | None = None
    worst_point: Mapping[str, float] | None = field(default=None, hash=False)
    n_points: int = 0
    seed: int | None = None
    variant: Variant = "corrected"
    part: str = ""
    confidence: float | None = None
    region: str = ""

    def __post_init__(self) -> None:
        if self.worst_point is not None:
            object.__setattr__(self, "worst_point", MappingProxyType(dict(self.worst_point)))

    @property
    def tightness(self) -> float | None:
        """measured/bound: 1 where the bound is attained, small where it is loose; None where there are no numbers."""
        if self.measured is None or self.bound is None:
            return None
        if self.measured == self.bound:
            return 1.0
        return self.measured / self.bound if self.bound else math.inf

    @property
    def margin(self) -> float | None:
        """bound - measured."""
        return None if self.measured is None or self.bound is None else self.bound - self.measured

    @property
    def decided(self) -> bool:
        """Whether the statement was found to hold or to fail."""
        return self.verdict in (Verdict.HOLDS, Verdict.VIOLATED)

    @property
    def tested(self) -> bool:
        """Whether it was found to hold or to fail by something that could have come out otherwise."""
        return self.decided and self.evidence != "by definition"

    def __str__(self) -> str:
        numbers = "" if self.measured is None else f" {self.measured:.6g} against {self.bound:.6g};"
        name = f"{self.label} {self.part}".strip()
        return f"{name}: {self.verdict} ({self.evidence or 'no evidence'});{numbers} {self.message}"


def judged(
    label: str,
    measured: Bracket | float,
    bound: Bracket | float,
    *,
    evidence: Evidence,
    message: str,
    noise: float = 0.0,
    trusted: bool = True,
    worst_point: Mapping[str, float] | None = None,
    n_points: int = 0,
    seed: int | None = None,
    variant: Variant = "corrected",
    part: str = "",
    confidence: float | None = None,
    region: str = "",
) -> CheckResult:
    """The verdict on "measured <= bound", where each may be known as a bracket.

    A difference inside the noise decides nothing; the caller asks for more digits first. What is proved or certified
    holds however loose the bound is, and says so. What was sampled or run has put a bound to the test only if it came
    within a factor of 100 of it; otherwise it is inconclusive.

    - ``trusted``: false where the bound rests on sampled constants, which are too small: then nothing is violated.
    - The others: as for ``CheckResult``.

    >>> judged("lem:descent", 3.0, 2.0, evidence="sampled", message="m").verdict
    <Verdict.VIOLATED: 'VIOLATED'>
    >>> judged("lem:descent", 3.0, 2.0, evidence="sampled", message="m", trusted=False).verdict
    <Verdict.INCONCLUSIVE: 'INCONCLUSIVE'>
    >>> print(judged("lem:descent", 1e-9, 2.0, evidence="certified", message="m"))
    lem:descent: HOLDS (certified); 1e-09 against 2; loose: tightness 5e-10; m
    >>> judged("lem:descent", 1e-3, 2.0, evidence="sampled", message="m").verdict
    <Verdict.INCONCLUSIVE: 'INCONCLUSIVE'>
    """
    low, high = (measured.lower, measured.upper) if isinstance(measured, Bracket) else (measured, measured)
    least, most = (bound.lower, bound.upper) if isinstance(bound, Bracket) else (bound, bound)
    verdict, reason, shown = Verdict.INCONCLUSIVE, "", (high, least)
    if any(map(math.isnan, (low, high, least, most, noise))) or math.isinf(low):
        reason = "a number is undefined"
    elif low - noise > most:
        shown = low, most
        verdict = Verdict.VIOLATED if trusted else Verdict.INCONCLUSIVE
        reason = "" if trusted else "the constants were only sampled, so the bound may be too small"
    elif high + noise <= least or (noise == 0.0 and high <= least):
        verdict, reason = _met(high, least, evidence)
    else:
        reason = "the difference is within rounding noise" if noise else "the two brackets overlap"
    return CheckResult(
        label=label,
        verdict=verdict,
        message="; ".join(filter(None, (reason, message))),
        measured=shown[0],
        bound=shown[1],
        noise=noise,
        evidence=evidence,
        worst_point=worst_point,
        n_points=n_points,
        seed=seed,
        variant=variant,
        part=part,
        confidence=confidence,
        region=region,
    )


def _met(measured: float, bound: float, evidence: Evidence) -> tuple[Verdict, str]:
    """What is said of a bound that is met, and why; equality counts: zero against zero is met."""
    if math.isinf(bound):
        return Verdict.INCONCLUSIVE, "an infinite bound says nothing"
    if measured >= TESTED_TIGHTNESS * bound:
        return Verdict.HOLDS, ""
    tightness = f"tightness {measured / bound:.1g}" if measured > 0 else "nothing was measured"
    if evidence in ("proved", "certified"):
        return Verdict.HOLDS, f"loose: {tightness}" if measured > 0 else ""
    return Verdict.INCONCLUSIVE, f"the bound is so loose that nothing was tested, {tightness}"


def by_definition(label: str, message: str, *, part: str = "") -> CheckResult:
    """What is stated is what its words mean; it holds, and nothing was tested.

    >>> result = by_definition("assu:bilevel", "ell is in [1, 1.01]", part="(iii) ell")
    >>> print(result.verdict, result.evidence, result.tested)
    HOLDS by definition False
    """
    return CheckResult(label=label, verdict=Verdict.HOLDS, message=message, evidence="by definition", part=part)


def inconclusive(label: str, reason: str, *, part: str = "", evidence: Evidence | None = None) -> CheckResult:
    """Nothing could be decided, and why.

    >>> print(inconclusive("lem:descent", "out of time").verdict)
    INCONCLUSIVE
    """
    return CheckResult(label=label, verdict=Verdict.INCONCLUSIVE, message=reason, part=part, evidence=evidence)


def not_applicable(label: str, reason: str, *, part: str = "") -> CheckResult:
    """The statement does not speak of this problem, and why.

    >>> print(not_applicable("lemC.1", "not a minimax problem").verdict)
    NOT_APPLICABLE
    """
    return CheckResult(label=label, verdict=Verdict.NOT_APPLICABLE, message=reason, part=part)
