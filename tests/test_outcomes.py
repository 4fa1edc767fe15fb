"""Outcomes of several runs are compared: what failed, and what was not the same, is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INNER = {"passed": "", "failure": "<failure/>", "error": "<error/>", "skipped": "<skipped/>"}


def report(path: Path, **outcomes: str) -> str:
    cases = "".join(
        f'<testcase classname="tests.a" name="{name}">{INNER[said]}</testcase>' for name, said in outcomes.items()
    )
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
    return str(path)


def compared(*paths: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci/outcomes"), *paths], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_equal_outcomes(tmp_path: Path) -> None:
    both = [report(tmp_path / f"{k}.xml", a="passed", b="skipped") for k in "12"]
    code, lines = compared(*both)
    assert code == 0
    assert lines == [*(f"{path}: 1 passed, 1 skipped" for path in both), "Outcomes are equal in 2 runs of 2 tests."]


def test_a_test_that_is_not_the_same_is_named(tmp_path: Path) -> None:
    code, lines = compared(report(tmp_path / "1.xml", a="passed"), report(tmp_path / "2.xml", a="failure"))
    assert code == 1
    assert lines[2:] == ["tests.a::a: passed, failure", "Outcomes are NOT equal in 2 runs of 1 tests."]


def test_a_test_that_is_missing_is_named(tmp_path: Path) -> None:
    code, lines = compared(report(tmp_path / "1.xml", a="passed", b="passed"), report(tmp_path / "2.xml", a="passed"))
    assert code == 1
    assert "tests.a::b: passed, absent" in lines


def test_the_same_failure_twice_is_equal_and_not_well(tmp_path: Path) -> None:
    code, lines = compared(*(report(tmp_path / f"{k}.xml", a="error") for k in "12"))
    assert code == 1
    assert lines[2:] == ["tests.a::a: error, error", "Outcomes are equal in 2 runs of 1 tests."]


def test_no_tests_are_no_evidence(tmp_path: Path) -> None:
    assert compared(*(report(tmp_path / f"{k}.xml") for k in "12"))[0] == 1
