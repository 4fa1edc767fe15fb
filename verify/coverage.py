"""Coverage: how each labelled or keyed statement of the paper is accounted for; pure data beside the claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from bilevel_sym.paper import STATEMENTS
from verify.runner import claims

__all__ = ["Account", "coverage"]

How = Literal["claim", "proof step", "definition", "algorithm", "section", "remark", "cited", "not checkable", "open"]


@dataclass(frozen=True, slots=True)
class Account:
    """How a statement is accounted for: by a claim, as a step of one, or why there is nothing to check.

    >>> coverage()["eq:aid-step2"]
    Account(how='definition', text='the AID estimate, computed by AID; its error is the claim lem:grad-err-aid')
    """

    how: How
    text: str


STEPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "hess-Lipschitz": ("unlabelled:inverse-difference",),
        "lem:grad-err-aid": (
            "def-hatDelta-AID", "unlabelled:v-hat", "eq:erroraid", "eq:erroraid_new", "eq:v-bound", "eq:aid-error2",
            "unlabelled:estimate-norm", "unlabelled:sum-of-products", "eq:equvseq", "eq:warmstart", "eq:vkstar-diff",
        ),
        "lem:descent": ("unlabelled:descent-inequality", "unlabelled:descent-chain"),
        "lem:escapesaddle": (
            "eq:phi-dec-highprob-main-body", "ufun-def", "uspace-def", "unlabelled:coupled-sequences",
            "unlabelled:coupling-i", "unlabelled:coupling-ii", "eq:phi-dec", "eq:contrary", "eq64", "eq:localize",
            "unlabelled:difference-recursion", "unlabelled:delta-definitions", "eq:qprelation", "xhat_t", "eq:qkinc1",
            "unlabelled:error-against-gap", "unlabelled:one-half", "unlabelled:escape-contradiction",
            "unlabelled:power-of-two", "unlabelled:stuck-region", "unlabelled:stuck-width",
            "unlabelled:stuck-probability", "unlabelled:escape-decrease",
        ),
        "pro:minimax": (
            "def:pureNash", "unlabelled:nash-inequality", "unlabelled:strict-local-nash", "unlabelled:saddle-not-nash",
            "unlabelled:nash-is-minimum",
        ),
        "lem:equivalence": (
            "unlabelled:definition-strict-local-minimax", "unlabelled:schur-condition", "proof-prop-2.4-eq1",
            "unlabelled:schur-positive",
        ),
        "lem:grad-err-mini": (
            "eq:gdmax-error-bound-1", "eq:gdmax-error-bound", "eq:gdmax-error-bound2", "eq:gdmax-error-bound-3",
        ),
        "lem:neon": (
            "eq:para_neon", "eq:phi-dec-highprob", "eq:est-error-neon-2", "eq:phi-smooth-neon",
            "unlabelled:neon-coupling-i", "unlabelled:neon-coupling-ii", "eq:phi-dec-noen2", "eq:noen-contrary", "eq92",
            "eq:localize-neon", "unlabelled:neon-difference", "unlabelled:neon-hessian", "unlabelled:neon-delta-1",
            "unlabelled:neon-delta-2", "unlabelled:neon-growth", "eq:qkinc-neon", "unlabelled:neon-contradiction",
            "unlabelled:neon-stuck-region", "unlabelled:neon-probability", "unlabelled:neon-decrease", "k'-satisfy",
            "bound-uk'", "phixf-ineq", "eq:u-bound", "unlabelled:neon-stopping", "eq105",
            "unlabelled:neon-quadratic-form", "unlabelled:neon-rayleigh",
        ),
        "lem:err-hess": ("unlabelled:batch-hessian",),
        "lem:err-grad": ("unlabelled:batch-gradient",),
        "lem:err-third": ("unlabelled:batch-third",),
        "lem:batch-hess-err": (
            "hess-err", "unlabelled:stochastic-split", "eq:term1-stoc", "eq:term2-stoc", "eq:pydiff-stoc",
            "unlabelled:stochastic-term-II", "eq:term3-stoc", "eq:y-hess-dif-stoc",
            "unlabelled:stochastic-third-product", "term-pgp2", "eq:y-hess-dif-stoc-final",
            "unlabelled:stochastic-term-III", "unlabelled:stochastic-term-IV", "eq:hessphi-err", "eq126", "eq127",
            "eq:y-diff-bound-stoc-sc", "unlabelled:eleven-terms", "unlabelled:largest-term",
        ),
        "lem:batch-grad-err": (
            "grad-err", "unlabelled:stochastic-gradient-split", "unlabelled:six-terms", "unlabelled:batch-sizes",
        ),
        "lem:saddle-decrease": (
            "unlabelled:saddle-decrease", "unlabelled:direction-curvature", "unlabelled:saddle-decrease-proof",
        ),
        "lem:stocbio-decrease": (
            "eq:f-dec2", "unlabelled:stocbio-smoothness", "eq:expect-phi", "eq:initss", "eq:traerr", "eq:eyk",
            "eq:yjtt", "eq:y-opt-error", "unlabelled:stocbio-combined", "eq:f-dec2-new",
        ),
    }
)  # fmt: skip
"""Steps of a proof, under the claim in whose check they are evaluated or for whose conclusion they stand."""

OTHERS: Mapping[str, tuple[How, str]] = MappingProxyType(
    {
        "eq:aid-step1": ("definition", "the linear system of AID, solved by linear_system.conjugate_gradients"),
        "eq:aid-step2": ("definition", "the AID estimate, computed by AID; its error is the claim lem:grad-err-aid"),
        "eq:u-update-neon": ("definition", "iNEON's update, computed by INeon"),
        "est-vq": ("definition", "the Neumann series of StocBiO; its errors are the claims le:first_m and le:variancc"),
        "estG": ("definition", "the stochastic estimate of StocBiO; see le:first_m and le:variancc"),
        "unlabelled:batch-functions": ("definition", "means over a batch, computed by BatchOracle"),
        "unlabelled:remark-extra-smoothness": ("remark", "compares assumptions with other papers"),
        "unlabelled:remark-aid-log-factor": ("remark", "compares rates with another paper"),
        "unlabelled:remark-no-third-order": ("remark", "MinimaxConstants has no nu, and its formulas are lemC.1's"),
        "unlabelled:remark-nonasymptotic": ("remark", "compares rates with another paper"),
        "unlabelled:remark-neon-proof": ("remark", "compares proofs with another paper"),
        "unlabelled:remark-larger-batches": ("remark", "the orders that it compares are the claim eq:stocneon-batch2"),
        "unlabelled:section-conclusion": ("section", "says again what the theorems say"),
    }
)  # fmt: skip
"""What is neither a claim nor a step of one."""


def coverage() -> dict[str, Account]:
    """How each statement of the paper is accounted for, in the paper's order; "open" is what nobody has looked at.

    >>> found = coverage()
    >>> found["thm:aid"].how, found["alg:iNEON"].how, len(found) == len(STATEMENTS)
    ('claim', 'algorithm', True)
    """
    by_claim = {label: item for item in claims() for label in reversed(item.labels)}
    parents = {step: parent for parent, steps in STEPS.items() for step in steps}
    return {label: _account(label, by_claim, parents) for label in STATEMENTS}


def _account(label: str, by_claim: Mapping[str, object], parents: Mapping[str, str]) -> Account:
    if label in by_claim:
        return Account("claim", getattr(by_claim[label], "title", ""))
    if label in parents:
        return Account("proof step", f"a step towards {parents[label]}")
    if label in OTHERS:
        return Account(*OTHERS[label])
    kind = STATEMENTS[label].kind
    if kind == "Algorithm":
        return Account("algorithm", "run by the solvers; what is proved of it is in its theorem's claim")
    if kind == "Section":
        return Account("section", "a heading; its statements have accounts of their own")
    return Account("open", "nobody has looked at it")
