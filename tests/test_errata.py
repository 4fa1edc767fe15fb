"""Every erratum stands, and its check can tell the two forms apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from bilevel_sym import Constants, paper
from bilevel_sym.cli import main
from bilevel_sym.solvers import Perturbed
from bilevel_sym.symbolic import formulas
from bilevel_sym.zoo.tube import TubeShape
from verify.erratum import Erratum, Severity
from verify.papers.huang_saddle.errata import SUBJECTS, batches, derivatives, errata, errata_table, inner_loops
from verify.papers.huang_saddle.errata.right import Finding, found_right
from verify.papers.huang_saddle.errata.table import NOTATIONAL
from verify.verdict import Verdict

PAGE = Path(__file__).resolve().parent.parent / ".github" / "ERRATA.md"
ALL = errata()
NAMES = [entry.name for entry in ALL]
each_erratum = pytest.mark.parametrize("entry", ALL, ids=NAMES)


@pytest.mark.slow
@each_erratum
def test_the_printed_form_fails_and_the_corrected_one_holds(entry: Erratum) -> None:
    result = entry.check()
    assert result.verdict is Verdict.HOLDS, result.message
    assert result.evidence == entry.evidence


@each_erratum
def test_the_corrected_form_in_the_place_of_the_print_is_noticed(entry: Erratum) -> None:
    result = replace(entry, printed_form=entry.corrected_form).check()
    assert result.verdict is Verdict.VIOLATED
    assert "the printed form holds on the witness as well" in result.message


@each_erratum
def test_the_print_in_the_place_of_the_corrected_form_is_noticed(entry: Erratum) -> None:
    result = replace(entry, corrected_form=entry.printed_form).check()
    assert result.verdict is Verdict.VIOLATED
    assert "both forms fail" in result.message


@each_erratum
def test_it_can_be_read(entry: Erratum) -> None:
    assert len(set(entry.labels)) == len(entry.labels) > 0
    assert all(label in paper.STATEMENTS for label in entry.labels)
    texts = (entry.printed, entry.corrected, entry.witness, entry.why)
    assert all(text.strip() == text and "\n" not in text for text in texts)
    assert entry.printed != entry.corrected
    assert entry.severity in get_args(Severity)


def test_there_are_many_and_most_are_proved() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 50
    assert sum(entry.evidence == "proved" for entry in ALL) >= 25
    assert {entry.evidence for entry in ALL} == {"proved", "certified"}
    assert ALL[0].labels[0] == "phi-hessian"
    assert all(any(isinstance(value, Erratum) for value in vars(subject).values()) for subject in SUBJECTS)


# Defects of the library that an erratum's corrected (or printed) form would carry: each one must be seen.
def _printed_always(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *, variant="corrected": method(self, variant="printed")


PLANTED: list[tuple[str, Any, str, Any]] = [
    ("grad_lipschitz", Constants, "L_phi", _printed_always(Constants.L_phi)),
    ("def_rho_phi", Constants, "rho_phi", _printed_always(Constants.rho_phi)),
    ("iota", Constants, "L_phi", lambda self, *, variant="corrected": self.ell),
    ("hessphi_err", derivatives, "hessian_terms", lambda c, M_g, variant: batches_terms(c, M_g, "printed")),
    ("log_negative", inner_loops, "conjugate_rate", lambda mu, ell: Decimal(mu) / Decimal(ell)),
    ("stocbio_d", inner_loops, "sgd_rate", lambda mu, ell: Decimal(mu) / Decimal(ell) / 2),
    ("kappa_one", inner_loops, "least_steps", lambda *args, **kwargs: 0),
    ("union", batches, "term_delta", lambda delta, terms, variant: delta),
    ("k_perturb", Perturbed, "clock", 0),
    ("tube_jump", TubeShape, "h_2", lambda self, c: -self.gamma),
    ("tube_step", TubeShape, "h_2", lambda self, c: -self.gamma),
]


def batches_terms(c: Constants, M_g: float, variant: Any) -> Any:
    from bilevel_sym.theories.huang_saddle.schedules.batches import hessian_terms

    return hessian_terms(c, M_g, variant)


@pytest.mark.parametrize(("name", "owner", "attribute", "planted"), PLANTED, ids=[name for name, *_ in PLANTED])
def test_a_defect_of_the_library_is_seen(
    monkeypatch: pytest.MonkeyPatch, name: str, owner: ModuleType, attribute: str, planted: Any
) -> None:
    entry = ALL[NAMES.index(name)]
    monkeypatch.setattr(owner, attribute, planted)
    assert entry.check().verdict is Verdict.VIOLATED


def test_a_wrong_hessian_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = formulas.hessian_terms

    def without_transpose(*args: Any, **options: Any) -> Any:
        return right(*args, **{**options, "variant": "printed"})

    monkeypatch.setattr("bilevel_sym.symbolic.derivation.hessian_terms", without_transpose, raising=False)
    monkeypatch.setattr(formulas, "hessian_terms", without_transpose)
    assert ALL[0].check().verdict is Verdict.VIOLATED


@pytest.mark.slow
@pytest.mark.parametrize("finding", found_right(), ids=lambda finding: finding.holds.__name__)
def test_what_was_found_right_is_right(finding: Finding) -> None:
    assert finding.holds()
    assert finding.where


def test_the_notational_list_names_places_that_exist() -> None:
    assert len(NOTATIONAL) > 30
    assert all(paper.cite(label) and meant.strip() == meant for label, meant in NOTATIONAL.items())


@pytest.mark.slow
def test_the_page_is_current() -> None:
    written = "\n".join(errata_table("markdown")) + "\n"
    assert PAGE.read_text(encoding="utf-8") == written, "run: bilevel-sym errata --format markdown > .github/ERRATA.md"


@pytest.mark.slow
def test_the_page_has_a_row_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["errata"]) == 0
    shown = capsys.readouterr().out
    assert f"{len(ALL)} errata: {len(ALL)} HOLDS" in shown
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.endswith("HOLDS |")]
    assert len(rows) == len(ALL)
    cells = [row.replace(r"\|", "").count("|") for row in rows]
    assert set(cells) == {7}
