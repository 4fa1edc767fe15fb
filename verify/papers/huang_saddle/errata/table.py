"""The errata as text and as markdown; and a list of misprints that only concern notation, with nothing to compute."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from bilevel_sym import paper
from verify import CheckResult, Erratum
from verify.papers.huang_saddle.errata.right import Finding

Groups = Mapping[str, Sequence[Erratum]]
Seen = Callable[[CheckResult], None]

_HEADS = ("statement", "as printed", "corrected", "witness", "why", "kind")

_INTRODUCTION = """\
# Errata

Where the print of the paper on escaping saddle points in bilevel optimization fails, what is right, and how one can
see it. This page is written by `bilevel-sym errata --format markdown`; every row is computed again when it is written,
and by the tests. `verify.errata()` gives the same records, and `notebooks/07_validating_theorems.ipynb` explains the
most important ones.

How to read the columns:

- **statement**: the places, by their numbers and LaTeX labels. Labels that begin with `unlabelled:` are ours.
- **as printed**, **corrected**: the formula, the step or the hypothesis in question. J is dy\\*/dx, kappa is ell/mu,
  hats are estimates, an index D marks a batch version; T, F and S are the script letters (time, decrease, radius).
- **witness**: the case on which the printed form fails and the corrected one holds. Where it lives on a box, or reads
  the assumption block by block (each partial derivative on its own, as the proofs do), it says so.
- **why**: the reason, and how much depends on it.
- **kind**: how bad it is, what the check rests on, and its outcome.
  - *wrong*: the printed line is false or impossible (the statement around it may survive). *gap*: a step does not
    follow, or a hypothesis is missing. *ambiguous*: two readings, and one of them fails. *loose*: right but for a
    constant factor or a logarithm. *misprint*: a symbol, an index or a reference, with a number that fails.
  - *modelled*: the print has words, the lines of an algorithm or an order O(), and the witness is computed with a
    function of ours that stands for them. Where this is not said, the printed form is the printed formula.
  - *proved*: exact or symbolic arithmetic. *certified*: enclosures by ball arithmetic.
  - HOLDS: the erratum stands, that is, the witness refutes the printed form and not the corrected one.
"""


NOTATIONAL: Mapping[str, str] = MappingProxyType(
    {
        "sec:bilevel": '"a saddle point of grad Phi" is one of Phi',
        "unlabelled:sketch-iteration-bound": "Phi* is the infimum Phi^*",
        "eq:para_minimax": "T, D, N and the batch sizes are real numbers that serve as counts: round up",
        "unlabelled:section-ineon": '"negative gradient descent direction" is one of negative curvature',
        "alg:iNEON": "the loop k = 0, ..., T runs T + 1 times",
        "iota-condition-2": "the inequality is strict here and in the proof, and not in (3.3)",
        "unlabelled:section-stocbio": '"step 12 of Algorithm 3" is its step 13',
        "thm:stocneon": "|B_{Q+1-j}| = B Q (1 - eta mu)^(j-1) need be neither an integer nor at least 1",
        "unlabelled:corollary-stochastic-gradients": "O hides a logarithm here: O~ is meant",
        "grad-Lipschitz": "x and x' lie in R^d, not in R^n",
        "lemma3.4-long": "the label stands on a row without a number",
        "eq:y-hess-diff": "one term has a third notation for g_xyy; in the text below, d/dx is d/dx'",
        "unlabelled:jacobian-third-product": "both terms are taken at x, so that the left side is 0; the second is at "
        "x'",
        "unlabelled:warm-start-D-N": "D and N are asked for here and in (B.44); if eps <= M + kappa M, the second "
        "implies the first",
        "unlabelled:descent-chain": "L_Phi is L_phi",
        "eq:qkinc1": 'rho_Phi is rho_phi; "becase" stands before it',
        "unlabelled:section-proof-equivalence": '"strongly convexity" is strong concavity',
        "eq:gdmax-error-bound2": "the sum over j has |grad-hat Phi(x_{k-1})| for |grad-hat Phi(x_j)|",
        "eq:hatphi": "Phi-hat is the inexact value in Section 1.2, and Phi less its linear part here",
        "eq:est-error-neon": "steps 9, 6 and 12 of Algorithm 2 are its steps 10, 7 and 13",
        "eq:est-error-neon-2": "u_k = 0 does not occur among the u_k, so this is a requirement of its own; the D and N "
        "of (D.4) meet it if Delta-hat is measured at x~ too",
        "eq92": "the sum must cover the error at x~ as well, which enters every step; the next line counts it so. "
        "eta r belongs to the next display, where it is added again",
        "unlabelled:section-proof-neon": "step 13 of Algorithm 2 is 14, and step 14 is 15",
        "unlabelled:neon-growth": "x~_0 is x~",
        "unlabelled:neon-contradiction": "an open bracket",
        "unlabelled:neon-probability": "T and F differ from those of Lemma 2.9 by the factors 1/4 and 4, under the "
        "same letters",
        "bound-uk'": "the smoothness is that of Lemma A.2, not of Lemma C.1",
        "eq:u-bound": "x is x~ in five displays from here on",
        "unlabelled:neon-quadratic-form": "u' Phi'' u lacks its transpose",
        "lem:err-hess": "1/n is 1/D_f (in Lemma D.3 1/D_g); L is ell",
        "lem:err-grad": "the gradient sign before F is missing",
        "eq:term2-stoc": "dy*(x')/dx' is dy_D*(x)/dx",
        "unlabelled:largest-term": "Lemma D.1 (Hessians) is cited for a gradient: Lemma D.2",
        "unlabelled:stochastic-gradient-split": "dy*/x is dy*/dx",
        "le:first_m": "L is ell; in (D.53) too, as L^2",
        "eq:ineon-sample-com": '"HVc" is HV, here and in (D.70)',
    }
)
"""Slips of notation: by the label of the place, what is meant."""


def text(groups: Groups, *, width: int = 100, seen: Seen = lambda result: None) -> Iterator[str]:
    """The errata for a terminal: a paragraph for each, and a count.

    >>> from verify.papers.huang_saddle.errata import derivatives
    >>> lines = list(text({"Derivatives.": [derivatives.phi_hessian]}))
    >>> print(lines[0])
    1. Equation B.1 [phi-hessian]; Equation B.3 [lemma3.4-long]
    >>> print(lines[-1])
    1 errata: 1 HOLDS
    """
    verdicts: Counter[str] = Counter()
    entries = [entry for group in groups.values() for entry in group]
    for number, entry in enumerate(entries, start=1):
        result = entry.check()
        seen(result)
        verdict = str(result.verdict)
        verdicts[verdict] += 1
        yield _paragraph(f"{number}. ", "; ".join(map(paper.cite, entry.labels)), width)
        yield _paragraph("   as printed: ", entry.printed, width)
        yield _paragraph("   corrected:  ", entry.corrected, width)
        yield _paragraph("   witness:    ", entry.witness, width)
        yield _paragraph("   why:        ", entry.why, width)
        yield f"   {entry.kind}, {verdict}"
        yield ""
    yield f"{len(entries)} errata: " + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())


def markdown(
    groups: Groups, misprints: Mapping[str, str], findings: Sequence[Finding], *, seen: Seen = lambda result: None
) -> Iterator[str]:
    """The errata as a page: what the columns mean, a table for each subject, the notational list, what was found right.

    >>> from verify.papers.huang_saddle.errata import derivatives
    >>> print(list(markdown({"Derivatives.": [derivatives.def_rho_phi]}, {}, ()))[3])
    ## Derivatives
    """
    yield _INTRODUCTION
    yield _overview([entry for group in groups.values() for entry in group])
    yield ""
    for subject, entries in groups.items():
        yield f"## {plain(subject.rstrip('.'))}"
        yield ""
        yield "| " + " | ".join(_HEADS) + " |"
        yield "| " + " | ".join("---" for _ in _HEADS) + " |"
        yield from ("| " + " | ".join(_row(entry, seen)) + " |" for entry in entries)
        yield ""
    yield "## Notation only"
    yield ""
    yield "Slips that a reader mends while reading; nothing is computed for them."
    yield ""
    yield from (f"- {plain(paper.cite(label))}: {plain(meant)}" for label, meant in misprints.items())
    yield ""
    yield "## Checked and found right"
    yield ""
    yield "Recomputed, by the tests too, and found to be as printed (apart from errata above)."
    yield ""
    yield from (f"- {plain(f.where)}: {plain(f.text)} ({f.evidence})" for f in findings if f.holds())


def _overview(entries: Sequence[Erratum]) -> str:
    kinds, evidence = Counter(e.severity for e in entries), Counter(e.evidence for e in entries)
    return (
        f"{len(entries)} errata: "
        + ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        + "; "
        + ", ".join(f"{count} {name}" for name, count in evidence.items())
        + f"; {sum(e.modelled for e in entries)} modelled."
    )


def _row(entry: Erratum, seen: Seen) -> tuple[str, ...]:
    result = entry.check()
    seen(result)
    places = "<br>".join(plain(paper.cite(label)) for label in entry.labels)
    kind = f"{entry.kind}, {result.verdict}"
    return (places, *map(plain, (entry.printed, entry.corrected, entry.witness, entry.why)), kind)


def plain(words: str) -> str:
    """Text that markdown leaves alone: formulas are full of its signs."""
    return re.sub(r"([\\`*_{}\[\]<>|~#])", r"\\\1", words)


def _paragraph(first: str, words: str, width: int) -> str:
    return textwrap.fill(
        words, width, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
