"""What ``--format json`` prints: strict JSON, as the schemas say, with every key documented."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from jsonschema import Draft202012Validator, ValidationError

from bilevel_sym import zoo
from bilevel_sym.cli import main
from bilevel_sym.cli.screen import Screen
from verify.erratum import Erratum
from verify.theory import Theory, theory_of

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = ROOT / ".github" / "docs" / "schemas"
PAGE = ROOT / ".github" / "docs" / "command-line.md"

FAST = {
    "derive, closed form": ["derive", "zoo:scalar"],
    "derive, no closed form": ["derive", "zoo:lphi_witness"],
    "derive, minimax": ["derive", "zoo:minimax_nash"],
    "certify": ["certify", "zoo:scalar", "--at", "x=1/3"],
    "certify, two levels": ["certify", "zoo:saddle", "--at", "x1=0.25,x2=-2", "--digits", "17"],
    "solve, one": ["solve", "zoo:scalar", "--steps", "5"],
    "solve, many": ["solve", "zoo:saddle", "--steps", "2", "--seeds", "3"],
    "solve, minimax": ["solve", "zoo:minimax_not_nash", "--steps", "5"],
    "zoo": ["zoo"],
    "zoo, one": ["zoo", "tube,d=2,L=1/2"],
    "zoo, nothing known": ["zoo", "ridge"],
    "zoo, numbers": ["zoo", "quadratic,d=1,spectrum=1:2:5"],
    "check": ["check", "verify.gallery.terms:implicit_term_halved.candidate", "--problem", "zoo:scalar"],
    "verify": ["verify", "zoo:scalar", "--claims", "eq:bilevel-grad,phi-2"],
}
SLOW = {
    "derive, too large": ["derive", "zoo:hyper_cleaning"],
    "solve, stochastic": ["solve", "zoo:stochastic_noise", "--steps", "3"],
    "solve, failing": ["solve", "zoo:tube_printed", "--x0", "x1=-9,x2=-9,x3=-9,x4=-9,x5=-9"],
    "verify, all": ["verify", "zoo:minimax_degenerate", "--seconds", "15"],
    "verify, printed": ["verify", "zoo:lphi_witness", "--claims", "grad-Lipschitz", "--variant", "printed"],
    "errata": ["errata"],
    "coverage": ["verify", "zoo:scalar", "--coverage"],
}
CASES = [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


def no_constant(text: str) -> NoReturn:
    raise AssertionError(f"{text} is not JSON")


def printed(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*arguments, "--format", "json"]) in (0, 1)
    record: dict[str, Any] = json.loads(out.getvalue(), parse_constant=no_constant)
    return record


@cache
def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))


def schema_of(record: dict[str, Any]) -> Any:
    return schema(record["schema"].split("/")[1])


def undocumented(record: Any, known: Any, root: Any) -> list[str]:
    """Keys that a schema does not name, at every depth at which it names any."""
    known = root["$defs"][known["$ref"].rpartition("/")[2]] if "$ref" in known else known
    if isinstance(record, list) and "items" in known:
        return [key for part in record for key in undocumented(part, known["items"], root)]
    if not isinstance(record, dict) or "properties" not in known or "additionalProperties" in known:
        return []
    named, free = known["properties"], known["properties"].get("kind", {}) == {"type": "string"}  # an algorithm's own
    inside = [key for name in record if name in named for key in undocumented(record[name], named[name], root)]
    return inside + [name for name in record if name not in named and not free]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_what_is_printed_follows_its_schema(case: str) -> None:
    record = printed(*(FAST | SLOW)[case])
    known = schema_of(record)
    assert known["$id"] == record["schema"]
    Draft202012Validator(known).validate(record)
    assert undocumented(record, known, known) == []


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_the_schemas_are_schemas_and_every_key_is_explained(path: Path) -> None:
    content = schema(path.stem)
    Draft202012Validator.check_schema(content)
    assert content["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    section = PAGE.read_text(encoding="utf-8").partition(f"### `{content['$id']}`")[2].partition("\n#")[0]
    for name in content["properties"]:
        assert f"| `{name}` |" in section, name


def test_a_record_that_departs_from_its_schema_is_found_out() -> None:
    record = printed(*FAST["certify"])
    known = schema_of(record)
    with pytest.raises(ValidationError):
        Draft202012Validator(known).validate({**record, "phi": {"value": "nan", "error": "0"}})
    with pytest.raises(ValidationError):
        Draft202012Validator(known).validate({key: value for key, value in record.items() if key != "hess_phi"})
    assert undocumented({**record, "extra": 1}, known, known) == ["extra"]


def test_certified_numbers_enclose_the_truth() -> None:
    """At x = 1/3: y* = x/(1 + x^2) = 3/10, Phi = (x + 1) y* = 2/5, and Phi' = (1 + 2x - x^2)/(1 + x^2)^2."""
    record = printed("certify", "zoo:scalar", "--at", "x=1/3", "--digits", "40")
    x = Fraction(1, 3)
    truth = {"y_star": 3 / Fraction(10), "phi": 2 / Fraction(5), "grad_phi": (1 + 2 * x - x**2) / (1 + x**2) ** 2}
    found = {"y_star": record["y_star"]["y"], "phi": record["phi"], "grad_phi": record["grad_phi"][0]}
    for name, ball in found.items():
        error = Fraction(ball["error"])
        assert abs(Fraction(ball["value"]) - truth[name]) <= error, name
        assert error <= abs(truth[name]) / 10**39, name
    assert record["at"] == {"x": "1/3"}


def test_a_value_that_is_zero_is_a_zero_with_its_error() -> None:
    record = printed("certify", "zoo:saddle", "--at", "x1=0,x2=0", "--digits", "20")
    assert {ball["value"] for ball in record["grad_phi"]} == {"0"}
    assert all(Fraction(ball["error"]) < Fraction(1, 10**100) for ball in record["grad_phi"])


def test_the_zoo_names_all_problems_and_takes_what_it_prints() -> None:
    record = printed("zoo")
    assert [problem["name"] for problem in record["problems"]] == [*zoo.data_names(), *zoo.names()]
    settings = next(problem["parameters"] for problem in record["problems"] if problem["name"] == "tube")
    spec = ",".join(f"{key}={value}" for key, value in settings.items())
    assert printed("zoo", f"tube,{spec}")["parameters"] == settings
    numbers = printed("zoo", "quadratic,d=1,spectrum=1:2:5")["parameters"]["spectrum"]
    assert numbers == "1:2:5"


def test_the_file_of_a_run_holds_what_is_printed_and_the_trajectory(tmp_path: Path) -> None:
    record = printed("solve", "zoo:saddle", "--steps", "3", "--seeds", "2", "--out", str(tmp_path / "run.json"))
    written = json.loads((tmp_path / "run.json").read_text(), parse_constant=no_constant)
    Draft202012Validator(schema("solution")).validate(written)
    assert written == record
    assert len(written["trajectory"]["x"][0]) == 4
    assert written["variables"] == {"x": ["x1", "x2"], "y": ["y1", "y2"]}


@pytest.mark.slow
def test_the_same_seed_prints_the_same_record_and_the_seed_of_one_reproduces_it() -> None:
    many = printed("solve", "zoo:saddle", "--steps", "4", "--seeds", "3", "--seed", "7")
    one = printed("solve", "zoo:saddle", "--steps", "4", "--seed", str(many["seed"][2]))
    assert one["x"] == many["x"][2]


def test_nothing_that_is_not_json_is_ever_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="JSON"):
        Screen().show_json({"x": float("nan")})
    assert capsys.readouterr().out == ""


def test_interrupted_errata_are_still_a_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = theory_of().errata[0]

    def until_stopped(_: Theory) -> Iterator[Erratum]:
        yield first
        raise KeyboardInterrupt

    monkeypatch.setattr(Theory, "errata", property(until_stopped))
    assert main(["errata", "--format", "json"]) == 130
    shown = capsys.readouterr()
    record = json.loads(shown.out)
    Draft202012Validator(schema("errata")).validate(record)
    assert record["interrupted"] is True
    assert [entry["labels"][0] for entry in record["errata"]] == [first.labels[0]]
    assert shown.err == "bilevel-sym: interrupted; 1 errata were checked\n"
