"""Judgement: the verdict on a row of the ledger, from what its links compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from bilevel_sym import BilevelProblem, StochasticProblem, zoo
from verify.erratum import Erratum, Severity
from verify.papers.huang_saddle.coverage.ledger import ROWS
from verify.papers.huang_saddle.coverage.link import Link, Row, Sources, Word, sources
from verify.papers.huang_saddle.errata.right import Finding
from verify.runner import run
from verify.verdict import CheckResult, Evidence, Verdict

SEVERITIES: tuple[Severity, ...] = ("wrong", "gap", "ambiguous", "loose", "misprint")  # from the worst
STRENGTH = ("proved", "certified", "statistical", "sampled", "by definition")  # from the strongest
REFERENCES = (  # those that decide most come first; a claim is taken to the next only where it is not decided
    "saddle", "minimax_nash", "minimax_not_nash", "stochastic_noise", "tube", "scalar", "implicit_cubic",
    "lphi_witness", "minimax_degenerate", "stochastic_rows", "minimax_wells",
)  # fmt: skip

Results = Mapping[Link, Sequence[CheckResult]]
Told = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is computed of a row: the word for it, what that rests on, and which links do not stand.

    ``word`` is "open" where nothing is linked, and "undecided" where no link that could decide does so. ``mended`` is
    what the statement rests on once it is corrected: the weakest among findings and claims, or "witness" where the
    correction was computed on the erratum's witness alone.

    >>> found = next(judge([ROWS[62]]))
    >>> found.row.number, found.word, found.evidence, found.broken
    (63, 'wrong', 'proved', ())
    """

    row: Row
    word: Word | Literal["open", "undecided"]
    evidence: Evidence | Literal["by definition", "none"]
    mended: Evidence | Literal["by definition", "none", "witness"]
    modelled: bool
    broken: tuple[Link, ...]

    @property
    def stands(self) -> bool:
        """Whether every link stands: errata and findings compute what they say, and claims hold."""
        return not self.broken and self.word not in ("open", "undecided")

    @property
    def agrees(self) -> bool:
        """Whether the computed word is the audit's."""
        return self.word == self.row.audit


def judge(
    rows: Iterable[Row] = ROWS,
    *,
    problems: Sequence[BilevelProblem] | None = None,
    known: Sources | None = None,
    told: Told = lambda done, what: None,
) -> Iterator[Judgement]:
    """The rows with their verdicts, all computed anew: errata and findings, and claims on some problems.

    ``problems`` are those of ``references()`` unless given; a claim, or the part of it that is linked, is taken from
    one to the next until it is decided. ``told`` hears how many rows are done.
    """
    known, rows = known or sources(), list(rows)
    asked = dict.fromkeys(item for row in rows for item in row.found if item.kind == "claim" and known.find(item))
    results = _results(list(asked), problems, told) if asked else {}
    for done, row in enumerate(rows):
        told(done, f"row {row.number}")
        yield _judgement_of(row, known, results)


def references() -> list[BilevelProblem]:
    """The problems on which the ledger's claims are judged, in this order: the zoo's, and one with noise in g_xxy.

    On the last one the bounds on the derivatives of a batch's Phi are nearly attained; on the others they are so loose
    that sampling does not test them.

    >>> [problem.name for problem in references()][:2], references()[-1].name
    (['saddle', 'minimax_nash'], 'curved_noise')
    """
    curved = StochasticProblem(
        "x**2/2 + y/10", "y**2/2 - b*x**2*y/2", "x", "y", (), "b", (), [[1], [2]],
        box={"x": ("-1/100", "1/100"), "y": ("-1/10", "1/10")}, name="curved_noise",
    )  # fmt: skip
    return [*(zoo.get(name).problem for name in REFERENCES), curved]


def _results(links: Sequence[Link], problems: Sequence[BilevelProblem] | None, told: Told) -> Results:
    """For each claim, or part of one, the results on the first problem that decides it; of the others, the last."""
    left, found = list(links), dict[Link, list[CheckResult]]()
    for problem in references() if problems is None else problems:
        if not left:
            break
        told(0, f"claims on {problem.name or 'the problem'}")
        report = run(problem, claims=dict.fromkeys(item.name for item in left), rng=0)
        if report.interrupted:
            raise KeyboardInterrupt
        for item in left:
            found[item] = [r for r in report.results if r.label == item.name and item.part in ("", r.part)]
        left = [item for item in left if not any(result.decided for result in found[item])]
    return found


def _holds(results: Sequence[CheckResult]) -> bool:
    verdicts = {result.verdict for result in results}
    return Verdict.HOLDS in verdicts and Verdict.VIOLATED not in verdicts


def _judgement_of(row: Row, known: Sources, results: Results) -> Judgement:
    errata: list[Erratum] = []
    support: list[str] = []
    broken: list[Link] = []
    for item in row.found:
        found = known.find(item)
        if isinstance(found, Erratum):
            errata.append(found)
            kinds, stands = [], found.check().verdict is Verdict.HOLDS
        elif isinstance(found, Finding):
            kinds, stands = [str(found.evidence)], found.holds()
        elif isinstance(found, tuple):
            kinds, stands = ["by definition"], bool(found)
        else:
            here = results.get(item, ())
            kinds, stands = [str(r.evidence) for r in here if r.verdict is Verdict.HOLDS and r.evidence], _holds(here)
        support += kinds if row.rests_on(item) else []
        if not stands:
            broken.append(item)
    return _worded(row, errata, support, tuple(broken))


def _worded(row: Row, errata: Sequence[Erratum], support: Sequence[str], broken: tuple[Link, ...]) -> Judgement:
    tested = [kind for kind in support if kind != "by definition"]
    weakest = cast("Evidence", max(tested, key=STRENGTH.index) if tested else "by definition")
    if not row.links:
        return Judgement(row, "open", "none", "none", False, broken)
    if errata:
        word = min((entry.severity for entry in errata), key=SEVERITIES.index)
        worst = [entry for entry in errata if entry.severity == word]
        strongest = min((entry.evidence for entry in worst), key=STRENGTH.index)
        modelled = all(entry.modelled for entry in worst)
        return Judgement(row, word, strongest, weakest if tested else "witness", modelled, broken)
    if not support:
        return Judgement(row, "undecided", "none", "none", False, broken)
    if all(item.kind == "definition" for item in row.found):
        return Judgement(row, "definition", "by definition", "by definition", False, broken)
    return Judgement(row, "holds", weakest, weakest, False, broken)
