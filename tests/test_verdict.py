"""Verdicts are earned: what may be said of "measured <= bound", and how a report says it."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser

import hypothesis.strategies as st
import pytest
import sympy as sp
from hypothesis import given

from bilevel_sym.errors import InvalidArgument
from verify.reporting import Report
from verify.verdict import Bracket, CheckResult, Evidence, Verdict, by_definition, inconclusive, judged, not_applicable

NUMBERS = st.floats(0, 1e12) | st.sampled_from([0.0, 1e-300, 1.0, 1e-7])
EVIDENCE: list[Evidence] = ["proved", "certified", "statistical", "sampled"]


@st.composite
def brackets(draw: st.DrawFn) -> Bracket:
    ends = sorted((draw(NUMBERS), draw(NUMBERS)))
    return Bracket(ends[0], ends[1])


@given(brackets(), brackets(), st.sampled_from(EVIDENCE), st.floats(0, 1), st.booleans(), st.data())
def test_a_verdict_is_true_of_every_number_in_the_brackets(
    measured: Bracket, bound: Bracket, evidence: Evidence, noise: float, trusted: bool, data: st.DataObject
) -> None:
    result = judged("lem:descent", measured, bound, evidence=evidence, message="", noise=noise, trusted=trusted)
    a = data.draw(st.floats(measured.lower, measured.upper))
    b = data.draw(st.floats(bound.lower, bound.upper))
    if result.verdict is Verdict.HOLDS:
        assert a <= b
        assert evidence in ("proved", "certified") or measured.upper >= 1e-2 * bound.lower
    if result.verdict is Verdict.VIOLATED:
        assert trusted
        assert a > b
    if result.verdict is Verdict.INCONCLUSIVE:
        assert result.message


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_a_number_never_holds(bad: float) -> None:
    assert judged("lem:descent", bad, 1.0, evidence="proved", message="").verdict is Verdict.INCONCLUSIVE
    assert judged("lem:descent", 1.0, bad, evidence="certified", message="").verdict is Verdict.INCONCLUSIVE
    assert judged("lem:descent", 1.0, 2.0, noise=bad, evidence="sampled", message="").verdict is Verdict.INCONCLUSIVE


def test_noise_and_loose_bounds_decide_nothing() -> None:
    def verdict(measured: float, bound: float, **more: object) -> Verdict:
        return judged("lem:descent", measured, bound, evidence="sampled", message="", **more).verdict  # type: ignore[arg-type]

    assert verdict(1.0 + 1e-12, 1.0, noise=1e-10) is Verdict.INCONCLUSIVE
    assert verdict(1.0 + 1e-8, 1.0, noise=1e-10) is Verdict.VIOLATED
    assert verdict(9.9e-3, 1.0) is Verdict.INCONCLUSIVE
    assert verdict(1.01e-2, 1.0) is Verdict.HOLDS
    assert verdict(0.0, 0.0) is Verdict.HOLDS


@pytest.mark.parametrize("evidence", ["proved", "certified"])
def test_what_is_proved_holds_however_loose_and_says_so(evidence: Evidence) -> None:
    result = judged("lem:descent", 1e-9, 1.0, evidence=evidence, message="m")
    assert result.verdict is Verdict.HOLDS
    assert result.message == "loose: tightness 1e-09; m"


@pytest.mark.parametrize("evidence", ["sampled", "statistical"])
def test_what_was_only_run_wants_a_bound_that_it_comes_near(evidence: Evidence) -> None:
    result = judged("lem:descent", 1e-3, 1.0, evidence=evidence, message="m", region="a box")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.message == "the bound is so loose that nothing was tested, tightness 0.001; m"
    assert result.region == "a box"


def test_what_holds_by_definition_is_counted_apart() -> None:
    held = judged("lem:descent", 1.0, 1.0, evidence="proved", message="", region="the box")
    named = by_definition("assu:bilevel", "ell is in [1, 2]", part="(iii) ell")
    report = report_of(held, named)
    assert held.tested
    assert not named.tested
    assert report.to_text().splitlines()[-1] == "2 statements: 1 HOLDS, 1 by definition"
    assert [record["region"] for record in report.to_dict()["results"]] == ["the box", ""]
    assert report.to_dict()["results"][1]["evidence"] == "by definition"


def test_sampled_constants_refute_nothing() -> None:
    result = judged("lem:descent", 2.0, 1.0, evidence="sampled", message="", trusted=False)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "sampled" in result.message


def test_a_bracket_refuses_what_is_none() -> None:
    for ends in ((2.0, 1.0), (math.nan, 1.0), (0.0, math.nan)):
        with pytest.raises(InvalidArgument):
            Bracket(*ends)


HOSTILE = "<script>alert('|')</script> | % \\"


def report_of(*results: CheckResult) -> Report:
    return Report(HOSTILE, {"x": (sp.S.Zero, sp.S.Half)}, "corrected", 3, 1.25, results)


def test_the_box_is_an_object_for_programs_and_null_where_there_is_none() -> None:
    assert report_of().to_dict()["box"] == {"x": ["0", "1/2"]}
    assert json.loads(Report("toy", None, "corrected", 0, 0.1, ()).to_json())["box"] is None
    assert "toy over all of space" in Report("toy", None, "corrected", 0, 0.1, ()).to_text()


RESULTS = (
    judged("lem:descent", 0.5, 2.0, evidence="certified", message=HOSTILE, worst_point={"x": 0.25}, n_points=7, seed=3),
    judged("grad-Lipschitz", 3.0, math.inf, evidence="sampled", message="unbounded"),
    judged("grad-Lipschitz", 3.0, 2.0, evidence="proved", message="too small", part="(I)"),
    inconclusive("lem:neon", "out of time"),
    not_applicable("lemC.1", "not a minimax problem"),
)


def test_the_report_says_everything_in_every_format() -> None:
    report = report_of(*RESULTS)
    assert not report.ok
    assert report_of(*RESULTS[:2]).ok
    record = json.loads(report.to_json())
    assert [row["verdict"] for row in record["results"]] == [str(r.verdict) for r in RESULTS]
    assert record["results"][0]["tightness"] == 0.25
    assert record["results"][1]["bound"] == "inf"
    assert record["results"][0]["worst_point"] == {"x": 0.25}
    text, markdown = report.to_text(), report.to_markdown()
    for shown in (text, markdown):
        assert "Lemma 2.8 [lem:descent]" in shown
        assert "(I)" in shown
        assert "not a minimax problem" in shown
        assert "5 statements: 1 HOLDS, 1 VIOLATED, 2 INCONCLUSIVE, 1 NOT_APPLICABLE" in shown
    assert max(map(len, text.splitlines())) < 200


def test_hostile_text_stays_text() -> None:
    report = report_of(*RESULTS)
    rows = [line for line in report.to_markdown().splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1
    tags: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.append(tag)

    Reader().feed(report._repr_html_())
    assert set(tags) == {"p", "table", "tr", "th", "td"}


def test_a_result_is_frozen_through_and_through() -> None:
    point = {"x": 1.0}
    result = judged("lem:descent", 0.5, 2.0, evidence="certified", message="", worst_point=point)
    point["x"] = 2.0
    assert result.worst_point is not None
    assert result.worst_point["x"] == 1.0
    with pytest.raises(TypeError):
        result.worst_point["x"] = 3.0  # type: ignore[index]
