"""The ledger and the coverage of labels as text, as a page and as a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from bilevel_sym import paper
from verify.papers.huang_saddle.coverage.judgement import REFERENCES, STRENGTH, Judgement
from verify.papers.huang_saddle.coverage.link import Account, coverage
from verify.papers.huang_saddle.errata.table import plain

WORDS = ("holds", "definition", "wrong", "gap", "ambiguous", "loose", "misprint", "undecided", "open")
HOWS = ("claim", "finding", "erratum", "definition", "heading", "open")
KINDS = (*STRENGTH, "none")
INTRODUCTION = """\
# What is verified, and where it ends

Every statement of the paper on escaping saddle points in bilevel optimization, what computes it, and what that says.
This page is written by `bilevel-sym verify --coverage --format markdown`; all of it is computed again when it is
written, and by a test. A statement is linked to *claims* (judged on problems, `bilevel-sym verify`), *findings*
(recomputed and found right), *errata* (recomputed and found wrong as printed, [ERRATA.md](../ERRATA.md)), or
*definitions* (code that cites the label). What is linked to nothing is called open by the code; a link to something
that does not exist is an error.

The verdict on a row is that on the statement as printed, and follows from its links: the worst of its errata, or
*holds* where there are none and findings and claims stand, or *definition*. The words for errata are explained in
[ERRATA.md](../ERRATA.md). The evidence is that of the verdict: of the erratum, or the weakest among the findings and
claims that the row rests on, part by part (a link after "also" stands beside them). *As corrected* is what the
corrected statement rests on, again the weakest; *witness* means that the correction was computed on the erratum's
witness alone.

## Rows by verdict and by kind of evidence

Made by `bilevel-sym verify --coverage`, in half a minute.
"""

ENDS = """\
## Where the verification ends

- **Proved.** Identities between derivatives, for undefined f and g (symbols for every entry); inequalities between
  norms, as polynomials with positive coefficients; numbers of the proofs, in exact rationals; witnesses of errata.
  These hold for every problem. What a proof of the paper takes from elsewhere is taken too: the implicit function
  theorem, Danskin's theorem, the matrix Bernstein and Pinelis inequalities, the rate of conjugate gradients (sampled,
  not proved).
- **Certified.** Suprema and infima over the box of a given problem, stationary points with the emptiness of the rest,
  digits at a point: enclosures with outward rounding, elementary functions from Arb. They hold for that problem and
  that box, and rest on IEEE 754 arithmetic, on python-flint and on this code; nothing is certified on all of R^d.
- **Statistical.** How often an algorithm arrives: runs with fixed seeds, exact (Clopper-Pearson) bounds, confidence
  stated. They speak of the problem, the start and the parameters that were run, and of no smaller probability than
  the number of runs allows.
- **Sampled.** Float64 at points or along runs. It can refute; where it does not, it only supports.
- **By definition.** Names and formulas that are computed as they are printed; there is nothing to be right about.
- **Assumed, not verified.** That a claim which holds on the problems that were tried holds on all: a theorem about
  all problems is proved here only where its row says so. The theorems' own K (5e9 iterations and more) is never run
  to its end. What O() hides is compared in orders. Lemma D.3 as printed has no proof, here or in the paper. Remarks
  that compare with other papers are open, because those papers are not here.
"""


def coverage_table(
    judged: Iterable[Judgement],
    format: Literal["text", "markdown"] = "text",  # noqa: A002
    *,
    accounts: Mapping[str, Account] | None = None,
) -> Iterator[str]:
    """The ledger with computed verdicts, counts by verdict and evidence, and what computes each label of the paper.

    "markdown" is the page ``.github/docs/coverage.md``.

    >>> from verify.papers.huang_saddle.coverage import ROWS, judge
    >>> lines = list(coverage_table(judge([ROWS[62]])))
    >>> print(lines[1])  # doctest: +NORMALIZE_WHITESPACE
     63  wrong  proved  proved  Equation B.1 [phi-hessian]: erratum phi_hessian; claim phi-hessian
    """
    found = list(judged)
    accounts = coverage() if accounts is None else accounts
    return _markdown(found, accounts) if format == "markdown" else _text(found, accounts)


def record(judged: Iterable[Judgement], accounts: Mapping[str, Account] | None = None) -> dict[str, Any]:
    """The same for programs: rows, labels and counts.

    >>> from verify.papers.huang_saddle.coverage import ROWS, judge
    >>> record(judge([ROWS[0]]))["rows"][0]["verdict"]
    'definition'
    """
    found = list(judged)
    accounts = coverage() if accounts is None else accounts
    return {
        "schema": "bilevel-sym/coverage/1",
        "ok": all(item.stands for item in found),
        "rows": [asdict(item.row) | _said_of(item) for item in found],
        "labels": {
            label: {"how": account.how, "links": list(map(str, account.links))} for label, account in accounts.items()
        },
        "verdicts": dict(Counter(item.word for item in found)),
        "evidence": dict(Counter(item.evidence for item in found)),
    }


def _said_of(item: Judgement) -> dict[str, Any]:
    return {
        "verdict": item.word, "evidence": item.evidence, "corrected": item.mended, "modelled": item.modelled,
        "broken": list(map(str, item.broken)),
    }  # fmt: skip


def _text(found: Sequence[Judgement], accounts: Mapping[str, Account]) -> Iterator[str]:
    yield "  #  verdict     evidence             as corrected   statement: what computes it"
    for item in found:
        place = "; ".join(map(paper.cite, item.row.labels[:2])) + (" ..." if len(item.row.labels) > 2 else "")
        links = "; ".join(item.row.links) or "nothing"
        broken = f"; DOES NOT STAND: {'; '.join(map(str, item.broken))}" if item.broken else ""
        yield f"{item.row.number:3}  {item.word:10}  {_evidence(item):19}  {item.mended:13}  {place}: {links}{broken}"
    yield ""
    yield from _crossed(found, "")
    yield "as corrected: " + _mended(found)
    yield ""
    count = Counter[str](account.how for account in accounts.values())
    yield f"{len(accounts)} labels: " + ", ".join(f"{count[how]} {how}" for how in HOWS if count[how])
    yield from (f"open: {paper.cite(label)}" for label, account in accounts.items() if account.how == "open")
    differs = [str(item.row.number) for item in found if not item.agrees]
    yield "differs from the audit by hand: " + (", ".join(differs) or "nowhere")


def _evidence(item: Judgement) -> str:
    return item.evidence + (", modelled" if item.modelled else "")


def _mended(found: Sequence[Judgement]) -> str:
    count = Counter[str](item.mended for item in found)
    return ", ".join(f"{count[kind]} {kind}" for kind in (*STRENGTH, "witness", "none") if count[kind])


def _crossed(found: Sequence[Judgement], edge: str) -> Iterator[str]:
    """Counts of rows by verdict and evidence, with sums; ``edge`` is "|" for markdown."""
    kinds = [kind for kind in KINDS if any(item.evidence == kind for item in found)]
    cells = Counter[tuple[str, str]]((item.word, item.evidence) for item in found)
    heads = ["verdict", *kinds, "all"]
    rows = [
        [word, *(str(cells[word, kind] or "") for kind in kinds), str(sum(cells[word, kind] for kind in kinds))]
        for word in WORDS
        if any(item.word == word for item in found)
    ]
    sums = [str(sum(item.evidence == kind for item in found)) for kind in kinds]
    lines = [heads, *rows, ["all", *sums, str(len(found))]]
    if edge:
        lines.insert(1, ["---"] * len(heads))
        yield from ("| " + " | ".join(line) + " |" for line in lines)
    else:
        yield from ("".join(f"{cell:15}" for cell in line).rstrip() for line in lines)


def _markdown(found: Sequence[Judgement], accounts: Mapping[str, Account]) -> Iterator[str]:
    yield INTRODUCTION
    names = ", ".join(f"`zoo:{name}`" for name in REFERENCES)
    yield f"A claim is judged on the first of these problems that decides it: {names}, and one with noise in g\\_xxy."
    yield ""
    yield from _crossed(found, "|")
    yield ""
    yield f"What the statements rest on as corrected: {_mended(found)}."
    modelled = sum(item.modelled for item in found)
    yield f"{modelled} of the verdicts are modelled: the print has words, an algorithm or O()."
    yield ""
    yield ENDS
    yield from _disagreements(found)
    yield "## The ledger"
    yield ""
    yield "| # | statement | says | verdict | evidence | as corrected | computed by |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for item in found:
        row = item.row
        places = "<br>".join(plain(paper.cite(label)) for label in row.labels)
        links = "<br>".join(map(plain, row.links))
        cells = (str(row.number), places, plain(row.text), item.word, _evidence(item), item.mended, links)
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield from _labels(accounts)


def _disagreements(found: Sequence[Judgement]) -> Iterator[str]:
    yield "## Where this ledger and the audit by hand differ"
    yield ""
    yield "| # | the audit | computed | by | who is right |"
    yield "| --- | --- | --- | --- | --- |"
    for item in found:
        if not item.agrees:
            by = "; ".join(map(plain, item.row.links))
            yield f"| {item.row.number} | {item.row.audit} | {item.word} | {by} | {plain(item.row.why)} |"
    yield ""


def _labels(accounts: Mapping[str, Account]) -> Iterator[str]:
    count = Counter[str](account.how for account in accounts.values())
    yield "## Every label"
    yield ""
    yield f"{len(accounts)} statements of the paper: " + ", ".join(f"{count[how]} {how}" for how in HOWS) + "."
    yield "A heading is a section, which states nothing but what stands inside it under labels of its own."
    yield ""
    yield "| statement | by | links |"
    yield "| --- | --- | --- |"
    for label, account in accounts.items():
        if account.how != "heading":
            yield f"| {plain(paper.cite(label))} | {account.how} | {plain(account.text)} |"
