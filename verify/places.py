"""Places: over which region a statement was judged, and that no claim is made of x that were left out.

Many statements bound Phi by constants of the box. They can be judged only at x whose y*(x) lies in the box; where it
leaves the box, the constants say nothing. Such a result is about a part of x, and "over the box" would be more than it
says: it is INCONCLUSIVE, with the part that was left out.
"""

from __future__ import annotations

from dataclasses import replace

from verify.study import Study
from verify.verdict import CheckResult, Verdict

__all__ = ["ALL_Y", "INSIDE", "WHOLE_X", "placed"]

WHOLE_X = "the whole box in x"
ALL_Y = "all (x, y) of "  # followed by the name of a box: y* plays no part
INSIDE = "the box"  # its constants are held against Phi, y* or estimates of them
TOUCHED_SHARE = 0.1  # of the box in x: pieces at its ends, which are not cut any further


def placed(study: Study, region: str, result: CheckResult) -> CheckResult:
    """The result with its region; INCONCLUSIVE where it holds of a part of x alone, and that is not all.

    ``region`` is what the claim's family is judged over, where its results do not say (``REGION`` of its module).

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.study import study_of
    >>> from verify.verdict import judged
    >>> leaving = BilevelProblem("exp(y)", "(y - 10*x)**2/2", "x", "y", box={"x": (-1, 1), "y": (-1, 0)})
    >>> seen = judged("grad-Lipschitz", 100.0, 200.0, evidence="sampled", message="m")
    >>> limited = placed(study_of(leaving), INSIDE, seen)
    >>> print(limited.verdict, limited.region)
    INCONCLUSIVE the box, where y* stays in it
    >>> print(limited.message)
    y* leaves the box in y for x in [-1, -0.1000977] and [0.0004882812, 1]: nothing is said there; elsewhere it holds: m
    """
    result = result if result.region else replace(result, region=region or INSIDE)
    if region != INSIDE or _speaks_of_all_x(result):
        return result
    if not study.left_out:
        return replace(result, region=result.region + _open(study.undecided))
    result = replace(result, region=f"{result.region}, where y* stays in it")
    if result.verdict is not Verdict.HOLDS:
        return result
    reason = f"y* leaves the box in y for {study.left_out}: nothing is said there; elsewhere it holds: {result.message}"
    return replace(result, verdict=Verdict.INCONCLUSIVE, message=reason)


def _open(share: float) -> str:
    """What is not proved of y*, said where it is more than the ends of the box, which y* may touch."""
    return f"; for {share:.2g} of x it is not proved that y* stays in it" if share > TOUCHED_SHARE else ""


def _speaks_of_all_x(result: CheckResult) -> bool:
    """Whether nothing was left out: bounded over the whole box in x, for all y, by definition, or zero everywhere."""
    nothing = result.evidence == "proved" and result.measured == 0
    named = result.region == WHOLE_X or result.region.startswith(ALL_Y)
    return nothing or named or result.evidence == "by definition" or result.verdict is Verdict.NOT_APPLICABLE
