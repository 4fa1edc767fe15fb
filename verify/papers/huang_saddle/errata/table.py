"""The errata as text and as markdown."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from bilevel_sym import paper
from verify.erratum import Erratum
from verify.papers.huang_saddle.errata.notation import Misprint
from verify.papers.huang_saddle.errata.right import Finding
from verify.verdict import CheckResult

__all__ = ["markdown", "text"]

Groups = Mapping[str, Sequence[Erratum]]
Seen = Callable[[CheckResult], None]

_HEADS = ("statement", "as printed", "corrected", "witness", "why", "kind")

_INTRODUCTION = """\
# Errata

Where the print of the paper on escaping saddle points in bilevel optimization fails, what is right, and how one can
see it. This page is written by `bilevel-sym errata --format markdown`; every row is computed again when it is written,
and by the tests. `verify.errata()` gives the same records, and `notebooks/06_validating_theorems.ipynb` explains the
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
    groups: Groups, misprints: Sequence[Misprint], findings: Sequence[Finding], *, seen: Seen = lambda result: None
) -> Iterator[str]:
    """The errata as a page: what the columns mean, a table for each subject, the notational list, what was found right.

    >>> from verify.papers.huang_saddle.errata import derivatives
    >>> print(list(markdown({"Derivatives.": [derivatives.def_rho_phi]}, (), ()))[3])
    ## Derivatives
    """
    yield _INTRODUCTION
    yield _overview([entry for group in groups.values() for entry in group])
    yield ""
    for subject, entries in groups.items():
        yield f"## {_plain(subject.rstrip('.'))}"
        yield ""
        yield "| " + " | ".join(_HEADS) + " |"
        yield "| " + " | ".join("---" for _ in _HEADS) + " |"
        yield from ("| " + " | ".join(_row(entry, seen)) + " |" for entry in entries)
        yield ""
    yield "## Notation only"
    yield ""
    yield "Slips that a reader mends while reading; nothing is computed for them."
    yield ""
    yield from (f"- {_plain(misprint.where)}: {_plain(misprint.text)}" for misprint in misprints)
    yield ""
    yield "## Checked and found right"
    yield ""
    yield "Recomputed, by the tests too, and found to be as printed (apart from errata above)."
    yield ""
    yield from (f"- {_plain(f.where)}: {_plain(f.text)} ({f.evidence})" for f in findings if f.holds())


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
    places = "<br>".join(_plain(paper.cite(label)) for label in entry.labels)
    kind = f"{entry.kind}, {result.verdict}"
    return (places, *map(_plain, (entry.printed, entry.corrected, entry.witness, entry.why)), kind)


def _plain(words: str) -> str:
    """Text that markdown leaves alone: formulas are full of its signs."""
    return re.sub(r"([\\`*_{}\[\]<>|~#])", r"\\\1", words)


def _paragraph(first: str, words: str, width: int) -> str:
    return textwrap.fill(
        words, width, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
