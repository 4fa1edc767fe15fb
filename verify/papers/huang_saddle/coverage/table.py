"""The ledger and the coverage of labels as text, as a page and as a record."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from bilevel_sym import paper
from verify.papers.huang_saddle.coverage.account import Account, coverage
from verify.papers.huang_saddle.coverage.judgement import REFERENCES, STRENGTH, Judgement
from verify.papers.huang_saddle.coverage.page import ENDS, INTRODUCTION

__all__ = ["coverage_table", "record"]

WORDS = ("holds", "definition", "wrong", "gap", "ambiguous", "loose", "misprint", "undecided", "open")
HOWS = ("claim", "finding", "erratum", "definition", "heading", "open")
KINDS = (*STRENGTH, "none")


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
        "rows": [_row_record(item) for item in found],
        "labels": {
            label: {"how": account.how, "links": list(map(str, account.links))} for label, account in accounts.items()
        },
        "verdicts": dict(Counter(item.word for item in found)),
        "evidence": dict(Counter(item.evidence for item in found)),
    }


def _row_record(item: Judgement) -> dict[str, Any]:
    row = item.row
    return {
        "number": row.number,
        "labels": list(row.labels),
        "text": row.text,
        "verdict": item.word,
        "evidence": item.evidence,
        "corrected": item.mended,
        "modelled": item.modelled,
        "audit": row.audit,
        "why": row.why,
        "links": list(row.links),
        "broken": list(map(str, item.broken)),
    }


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
        places = "<br>".join(_plain(paper.cite(label)) for label in row.labels)
        links = "<br>".join(map(_plain, row.links))
        cells = (str(row.number), places, _plain(row.text), item.word, _evidence(item), item.mended, links)
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
            by = "; ".join(map(_plain, item.row.links))
            yield f"| {item.row.number} | {item.row.audit} | {item.word} | {by} | {_plain(item.row.why)} |"
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
            yield f"| {_plain(paper.cite(label))} | {account.how} | {_plain(account.text)} |"


def _plain(words: str) -> str:
    """Text that markdown leaves alone."""
    return re.sub(r"([\\`*_{}\[\]<>|~#])", r"\\\1", words)
