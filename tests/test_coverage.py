"""Every statement of the paper is linked to what computes it; what is not is called open; broken links are found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from bilevel_sym import paper, zoo
from bilevel_sym.cli import main
from bilevel_sym.theories.huang_saddle.paper import STATEMENTS, Statement
from verify.erratum import Erratum
from verify.papers.huang_saddle.coverage import ROWS, coverage, coverage_table, judge, record
from verify.papers.huang_saddle.coverage.judgement import REFERENCES, Judgement
from verify.papers.huang_saddle.coverage.link import FURTHER, BrokenLink, Row, link, sources
from verify.registry import claim
from verify.theory import theory_of
from verify.verdict import Verdict
from verify.verdict import judged as judged_result

PAGE = Path(__file__).resolve().parent.parent / ".github" / "docs" / "coverage.md"
AUDIT = Path(__file__).resolve().parents[2] / "shared" / "LEDGER.md"


@cache
def judged() -> tuple[Judgement, ...]:
    return tuple(judge())


def computed(rows: tuple[Row, ...] = ROWS) -> Iterator[Row]:
    """Rows that need no claim: errata, findings and definitions are computed in a second."""
    return (row for row in rows if all(item.kind != "claim" for item in row.found))


# ---- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_label_is_accounted_for_and_three_are_open() -> None:
    found = coverage()
    assert list(found) == list(STATEMENTS)
    # remarks that compare with other papers, which are not here
    assert [label for label, account in found.items() if account.how == "open"] == [
        "unlabelled:remark-aid-log-factor", "unlabelled:remark-nonasymptotic", "unlabelled:remark-neon-proof",
    ]  # fmt: skip
    assert all(STATEMENTS[label].kind == "Section" for label, account in found.items() if account.how == "heading")
    assert all(account.links for account in found.values() if account.how not in ("heading", "open"))


@pytest.mark.slow
def test_a_label_that_nothing_computes_is_called_open() -> None:
    planted = {"new:lemma": Statement("Lemma", "9.9", "a lemma that nothing computes"), **STATEMENTS}
    assert coverage(planted)["new:lemma"].how == "open"
    assert "open: Lemma 9.9" not in "\n".join(coverage_table(judge([]), accounts=coverage()))


def test_a_label_whose_claim_is_gone_is_called_open() -> None:
    label = "unlabelled:y-star-lipschitz"
    known = sources()
    assert coverage(known=known)[label].how == "claim"
    without = {name: item for name, item in known.claims.items() if name != label}
    assert coverage(known=replace(known, claims=without))[label].how == "open"


def test_a_step_whose_finding_is_gone_is_called_open() -> None:
    known = sources()
    without = {name: item for name, item in known.findings.items() if name != "induction"}
    found = coverage(known=replace(known, findings=without))
    assert {label for label in ("eq:qprelation", "xhat_t", "eq:qkinc1") if found[label].how == "open"} == {
        "eq:qprelation", "xhat_t", "eq:qkinc1",
    }  # fmt: skip


def test_a_definition_is_what_code_cites() -> None:
    known = sources()
    assert known.definitions["eq:aid-step1"] == ("bilevel_sym.estimators.hypergradient.AID",)
    assert set(known.definitions) <= set(STATEMENTS)
    named = [label for label, account in coverage().items() if account.how == "definition"]
    assert named
    without = coverage(known=replace(known, definitions={}))
    assert {without[label].how for label in named} == {"open"}


# ---- links -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "claim lem:decent", "claim lem:escapesaddle | couplings", "erratum phi_hesian", "finding inductions",
        "definition thm:stocneon:2", "proof lem:descent", "claim",
    ],
)  # fmt: skip
def test_a_link_to_nothing_is_an_error(text: str) -> None:
    with pytest.raises(BrokenLink):
        sources().find(link(text))


def test_every_link_of_the_ledger_and_of_the_labels_names_something() -> None:
    for item in (*map(link, FURTHER.values()), *(item for row in ROWS for item in row.found)):
        assert sources().find(item), item
    assert set(FURTHER) <= set(STATEMENTS)


def test_a_planted_link_to_nothing_breaks_the_ledger() -> None:
    planted = replace(ROWS[62], links=("erratum phi_hessians",))
    with pytest.raises(BrokenLink, match="phi_hessians"):
        list(judge([planted]))


# ---- the ledger ------------------------------------------------------------------------------------------------------


def test_the_ledger_has_every_row_and_every_row_a_place_and_a_link() -> None:
    assert [row.number for row in ROWS] == list(range(1, 127))
    for row in ROWS:
        assert row.labels, row.number
        assert row.links, row.number
        assert set(row.labels) <= set(STATEMENTS), row.number


def test_the_ledger_names_the_labels_of_the_audit() -> None:
    if not AUDIT.exists():
        pytest.skip("the audit is not in ../shared/LEDGER.md beside this repository")
    lines = re.findall(r"^\| (\d+) \| (.*?) \|", AUDIT.read_text(encoding="utf-8"), re.M)
    assert [int(number) for number, _ in lines] == [row.number for row in ROWS]
    known = {label for label in STATEMENTS if not label.startswith("unlabelled:")}
    for (_, text), row in zip(lines, ROWS, strict=True):
        named = {label for label in known if re.search(rf"(?<![\w:-]){re.escape(label)}(?![\w:-])", text)}
        assert named <= set(row.labels), (row.number, named - set(row.labels))


@pytest.mark.slow
def test_rows_without_claims_are_computed_and_stand() -> None:
    rows = list(computed())
    assert len(rows) > 40
    for item in judge(rows):
        assert item.stands, (item.row.number, item.broken)
        assert item.evidence in ("proved", "certified", "sampled", "by definition")


@pytest.mark.slow
def test_every_row_whose_verdict_is_another_than_the_audits_says_who_is_right() -> None:
    for item in judge(computed()):
        assert item.agrees == (not item.row.why), item.row.number
    # claims do not change the word of a row that has an erratum, and a row without one holds or is a definition
    for row in ROWS:
        severities = [found.severity for found in map(sources().find, row.found) if isinstance(found, Erratum)]
        if not severities:
            assert row.audit in ("holds", "definition"), row.number


def test_an_erratum_that_does_not_stand_breaks_its_row() -> None:
    known = sources()
    mended = replace(known.errata["phi_hessian"], printed_form=known.errata["phi_hessian"].corrected_form)
    (item,) = judge(
        [replace(ROWS[62], links=("erratum phi_hessian",))],
        known=replace(known, errata={**known.errata, "phi_hessian": mended}),
    )
    assert not item.stands
    assert list(map(str, item.broken)) == ["erratum phi_hessian"]
    assert "DOES NOT STAND: erratum phi_hessian" in "\n".join(coverage_table([item], accounts={}))


def test_a_finding_that_fails_breaks_its_row() -> None:
    known = sources()
    failing = replace(known.findings["localisation"], holds=lambda: False)
    (item,) = judge([ROWS[83]], known=replace(known, findings={**known.findings, "localisation": failing}))
    assert not item.stands
    assert not record([item])["ok"]


def test_a_row_without_links_is_open_and_a_definition_needs_no_more() -> None:
    (nothing, named) = judge([replace(ROWS[62], links=()), ROWS[0]])
    assert (nothing.word, nothing.evidence, nothing.stands) == ("open", "none", False)
    assert (named.word, named.evidence, named.stands) == ("definition", "by definition", True)


def test_a_claim_is_judged_on_the_problem_that_is_given() -> None:
    problem = zoo.get("scalar").problem
    (found, other) = judge([ROWS[4], ROWS[33]], problems=[problem])
    assert (found.word, found.evidence, found.mended, found.stands) == ("holds", "proved", "proved", True)
    assert (other.word, other.stands) == ("undecided", False)  # a corollary on minimax problems


def test_a_claim_that_is_violated_on_a_problem_breaks_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken to a next problem on which it might hold."""
    known = sources()
    false = claim("eq:bilevel-grad")(
        lambda study: judged_result("eq:bilevel-grad", 2.0, 1.0, evidence="proved", message="")
    )
    monkeypatch.setitem(vars(theory_of()), "claims", (false,))
    planted = replace(known, claims={"eq:bilevel-grad": false})
    problems = [zoo.get(name).problem for name in ("scalar", "saddle")]
    (item,) = judge([ROWS[4]], problems=problems, known=planted)
    assert (item.word, item.stands) == ("undecided", False)


@pytest.mark.slow
def test_the_evidence_is_the_weakest_that_a_row_rests_on() -> None:
    """A finding is proved, the count of calls is sampled; beside an "also" the count does not matter."""
    problem = zoo.get("scalar").problem
    links = ("finding descent", "claim unlabelled:corollary-aid")
    weak = replace(ROWS[18], links=links)
    strong = replace(ROWS[18], links=(links[0], f"also {links[1]}"))
    wrong = replace(ROWS[62], links=("erratum phi_hessian", *links))
    alone = replace(ROWS[62], links=("erratum phi_hessian",))
    found = [
        (item.word, item.evidence, item.mended) for item in judge([weak, strong, wrong, alone], problems=[problem])
    ]
    assert found == [
        ("holds", "sampled", "sampled"), ("holds", "proved", "proved"), ("wrong", "proved", "sampled"),
        ("wrong", "proved", "witness"),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_part_that_is_missing_among_the_results_does_not_stand() -> None:
    """The part is a word of the module, so that the link is not broken; but no result carries it."""
    planted = replace(ROWS[58], links=("claim pro:bounds | lower gradient",))
    (item,) = judge([planted], problems=[zoo.get("scalar").problem])
    assert not item.stands


@pytest.mark.slow
def test_the_whole_ledger_stands_on_the_reference_problems() -> None:
    assert [item.row.number for item in judged() if not item.stands] == []
    for item in judged():
        assert item.agrees == (not item.row.why), item.row.number
    assert set(REFERENCES) <= set(zoo.names())


@pytest.mark.slow
def test_the_page_is_current() -> None:
    written = "\n".join(coverage_table(judged(), "markdown")) + "\n"
    command = "bilevel-sym verify --coverage --format markdown > .github/docs/coverage.md"
    assert PAGE.read_text(encoding="utf-8") == written, f"run: {command}"


def test_the_page_has_every_row_and_every_label_that_is_no_heading() -> None:
    """What the page says of links, without running the claims."""
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| .*\|$", text.partition("## The ledger")[2], re.M)
    assert list(map(int, rows)) == [row.number for row in ROWS]
    labels = text.partition("## Every label")[2]
    plain = labels.replace("\\", "")
    for label, account in coverage().items():
        if account.how != "heading":
            assert f"| {paper.cite(label)} | {account.how} | {account.text} |" in plain, label
    for row in ROWS:
        assert all(item in text.replace("\\", "") for item in row.links), row.number


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_prints_the_ledger_of_one_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "zoo:minimax_not_nash", "--coverage"]) == 1  # claims on bilevel problems are undecided there
    shown = capsys.readouterr().out
    assert re.search(r"^ 63  wrong +proved +proved +Equation B.1 \[phi-hessian\]", shown, re.M)
    assert "344 labels:" in shown
    assert shown.count("\nopen: ") == 3
    assert re.search(r"^all( +\d+)+ +126$", shown, re.M)


def test_without_a_problem_and_without_coverage_there_is_nothing_to_verify(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["verify"])
    assert caught.value.code == 2
    assert "PROBLEM is missing" in capsys.readouterr().err


def test_coverage_goes_with_a_problem_and_a_format_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["verify", "--coverage", "--variant", "printed"])
    assert caught.value.code == 2
    assert "--coverage takes a PROBLEM and --format" in capsys.readouterr().err


def test_severities_are_those_of_a_referee() -> None:
    """What a reader mends is no false theorem."""
    said = {name: entry.severity for name, entry in sources().errata.items()}
    wanted = {
        "log_negative": "misprint", "stocbio_d": "misprint", "bounded_below": "gap", "stale_gradient": "ambiguous",
        "warmstart_perturbed": "gap", "warm_start_order": "loose", "err_hess": "wrong", "err_grad": "wrong",
        "err_third": "gap", "special_case": "gap", "which_rho_phi": "ambiguous", "last_iterate": "ambiguous",
    }  # fmt: skip
    assert {name: said[name] for name in wanted} == wanted
    modelled = {name for name, entry in sources().errata.items() if entry.modelled}
    assert {"bounded_below", "stale_gradient", "episodes", "bayes", "hessian_products", "warm_start_order"} <= modelled
    assert not modelled & {"phi_hessian", "grad_lipschitz", "iota", "variance", "schur"}
    assert all(entry.check().verdict is Verdict.HOLDS for entry in map(sources().errata.__getitem__, wanted))
