"""Bounds on derivatives of Phi under both readings of the constants: the smaller one is the sharp bound.

Read jointly, the constants are larger and the formulas smaller; which of the two wins depends on the problem. Both are
derived (``norm_calculus``), so that the smaller of them is a bound too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from fractions import Fraction
from types import MappingProxyType
from typing import Literal

from bilevel_sym.errors import BilevelError
from bilevel_sym.theories import Reading
from verify.papers.huang_saddle.measures.derivatives.derivative_checks import (
    Bound,
    Still,
    bracket_of,
    by_sample,
    by_structure,
    exact,
    judged_by_bracket,
    judged_phi_derivative,
    settled,
)
from verify.papers.huang_saddle.measures.derivatives.norm_calculus import derived, follows
from verify.papers.huang_saddle.measures.derivatives.responses import Responses, Seen, responses
from verify.papers.huang_saddle.measures.regions import regions
from verify.study import Study
from verify.verdict import CheckResult

__all__ = ["best_reading", "judged_phi_derivative_best"]

WORDS: Mapping[Reading, str] = MappingProxyType({"block": "block by block", "joint": "jointly"})


def best_reading(study: Study, bound: Bound) -> tuple[Fraction, Reading]:
    """The smaller of a formula's values under the two readings over the whole box, and which reading gives it.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.study import study_of
    >>> box = {"x": (-1, 1), "y": (-2, 2)}
    >>> study = study_of(BilevelProblem("x*y", "y**2/2 - 3*x*y/4 - x**2/2", "x", "y", box=box), variant="sharp")
    >>> best_reading(study, lambda c: c.L_phi(variant="sharp"))[1]
    'joint'
    """
    block = bound(exact(study.constants.valid))
    try:
        joint = bound(exact(study.joint.valid))
    except BilevelError:  # the blocks can be bounded where all of them at once cannot
        return block, "block"
    return (joint, "joint") if joint < block else (block, "block")


def judged_phi_derivative_best(
    study: Study, label: str, name: str, bound: Bound, seen: Callable[[Responses], Seen], *, part: str = "", what: str,
    proof: tuple[str, Literal["norm", "lipschitz"]], still: Still | None = None,
) -> CheckResult:  # fmt: skip
    """``judged_phi_derivative``, but of the variant "sharp" under the better reading.

    >>> from bilevel_sym import zoo
    >>> from verify.study import study_of
    >>> study = study_of(zoo.get("minimax_nash").problem, variant="sharp")
    >>> result = judged_phi_derivative_best(study, "grad-Lipschitz", "L_phi", lambda c: c.L_phi(variant="sharp"),
    ...                      lambda s: s.largest(s.hess_phi), what="|Hess Phi|", proof=("hess", "norm"))
    >>> result.verdict.name, "read" in result.message
    ('HOLDS', True)
    """
    block, joint = (getattr(derived(reading)[proof[0]], proof[1]) for reading in ("block", "joint"))
    best: tuple[Fraction, Reading] | None = None
    if study.variant == "sharp":
        with suppress(BilevelError):  # where the whole box has no constants, a part of it may
            best = best_reading(study, bound)
    if best is None:
        return judged_phi_derivative(study, label, name, bound, seen, part=part, what=what, proof=block, still=still)
    limit, reading = best
    if still is not None and still(study.exact.tape):
        return by_structure(study, label, limit, part=part, what=f"the {what}")
    what = f"{what} (constants read {WORDS[reading]})"
    found = judged_by_bracket(study, label, *bracket_of(study, name), limit, part=part, what=what)
    if found is not None:
        return found
    region = next(iter(regions(study)))
    found = by_sample(study, label, seen(responses(study, region)), limit, region, part=part, what=what)
    return settled(found, bound, block) if follows(bound, joint, reading="joint") else found
