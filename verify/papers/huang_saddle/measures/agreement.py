"""Agreement: two computations of one thing, and whether rounding explains how far they are apart.

An identity has no slack: the bound is zero. So what rounding explains counts as zero against zero, and what it does not
explain as the difference against what it could.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from verify.study import Study
from verify.verdict import CheckResult, Evidence, inconclusive, judged

__all__ = ["Agreement", "agreed"]


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


def agreed(
    label: str, study: Study, found: Sequence[Agreement], *, what: str, part: str = "", evidence: Evidence = "sampled"
) -> CheckResult:
    """The verdict on all of them: violated where one cannot be explained by rounding.

    >>> from bilevel_sym import zoo
    >>> from verify.study import study_of
    >>> study = study_of(zoo.get("scalar").problem)
    >>> print(agreed("est-vq", study, [Agreement("one", 1e-15, 1e-12)], what="series"))
    est-vq: HOLDS (sampled); 0 against 0; series: the largest difference is 1e-15, which rounding explains
    >>> agreed("est-vq", study, [Agreement("one", 0.5, 1e-12)], what="series").verdict
    <Verdict.VIOLATED: 'VIOLATED'>
    """
    if not found:
        return inconclusive(label, f"nothing could be compared; {what}", variant=study.variant, part=part)
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
        label, 0.0 if held else apart, 0.0 if held else worst.rounding, evidence=evidence, message=message, part=part,
        n_points=len(found), worst_point=worst.point or None, variant=study.variant, seed=study.seed,
    )  # fmt: skip
