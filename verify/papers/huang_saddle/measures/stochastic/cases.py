"""Case: one instance of an inequality, both sides as brackets; the verdict on many of them is that on the tightest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bilevel_sym.arithmetic.ties import first_largest
from bilevel_sym.theories import Variant
from verify.bracket import Bracket
from verify.verdict import CheckResult, Evidence, inconclusive, judged

__all__ = ["Case", "tightest"]


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


def tightest(
    label: str,
    cases: Iterable[Case],
    *,
    evidence: Evidence,
    message: str,
    variant: Variant,
    part: str = "",
    seed: int | None = None,
) -> CheckResult:
    """The verdict on all cases: that on one which fails, or else on the one that comes closest to failing.

    >>> cases = [Case(Bracket(1.0, 1.0), Bracket(4.0, 4.0)), Case(Bracket(1.0, 1.0), Bracket(2.0, 2.0))]
    >>> tightest("lem:descent", cases, evidence="certified", message="", variant="corrected").tightness
    0.5
    """
    found = list(cases)
    if not found:
        reason = f"no point was found at which it could be put to the test; {message}"
        return inconclusive(label, reason, variant=variant, part=part)
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
        seed=seed,
        variant=variant,
        part=part,
    )
