"""``bilevel-sym check``: functions of a module in the current folder, judged on problems, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_cli import run

MODULE = """
import numpy as np

def right(problem, x):
    print("what a function prints is no part of the report")
    k = problem.kernels
    y = k.y_star(x)
    return k.f_x(x, y) - k.g_xy(x, y) @ np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))

def to_seven_digits(problem, x):
    return right(problem, x) * (1 + 1e-7)

def made(problem):
    return problem.kernels.grad_phi

def of_x(x):
    return np.array([(1 + 2 * x[0] - x[0] ** 2) / (1 + x[0] ** 2) ** 2])

def lower(problem, x):
    return problem.kernels.y_star(x)

def raises(problem, x):
    raise ZeroDivisionError("no such gradient")

number = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The module, in the current folder; forgotten afterwards."""
    import sys

    (tmp_path / "mine_to_check.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield "mine_to_check"
    sys.modules.pop("mine_to_check", None)


@pytest.mark.parametrize("name", ["right", "made", "of_x"])
def test_a_right_function_of_any_signature_ends_with_0(mine: str, name: str) -> None:
    done = run("check", f"{mine}:{name}", "--problem", "zoo:scalar")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 problems: 1 right")
    assert "no part" not in done.stdout


def test_digits_are_enough_or_not(mine: str) -> None:
    words = ("check", f"{mine}:to_seven_digits", "--problem", "zoo:scalar")
    assert run(*words).returncode == 0
    wrong = run(*words, "--digits", "8")
    assert wrong.returncode == 1
    assert "the whole is 1 + 1e-07 times what it should be" in wrong.stdout
    assert wrong.stdout.splitlines()[-1] == "1 problems: 1 factor"


def test_several_problems_and_another_quantity(mine: str) -> None:
    done = run("check", f"{mine}:lower", "--of", "lower-solution", "--problem", "zoo:scalar", "--problem", "zoo:ridge")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "2 problems: 2 right")


@pytest.mark.slow
def test_generated_ones_are_the_same_again(mine: str) -> None:
    words = ("check", f"{mine}:right", "--generated", "2", "--format", "json")
    first, second = (json.loads(run(*words).stdout) for _ in range(2))
    assert first == second
    assert [record["problem"].partition(":")[0] for record in first["results"]] == ["generated"] * 2


def test_an_exception_is_a_finding_and_junit_has_the_counts(mine: str) -> None:
    done = run("check", f"{mine}:raises", "--problem", "zoo:scalar", "--format", "junit")
    suite = ElementTree.fromstring(done.stdout)
    assert (done.returncode, suite.get("tests"), suite.get("errors"), suite.get("failures")) == (1, "1", "1", "0")
    error = suite.find("testcase/error")
    assert error is not None
    assert "no such gradient" in error.get("message", "")
    failed = run(
        "check", "verify.gallery.terms:implicit_term_halved.candidate", "--problem", "zoo:scalar", "--format", "junit"
    )
    failure = ElementTree.fromstring(failed.stdout).find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "cross: the implicit term counts half"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mine_to_check"], "is not MODULE:FUNCTION"),
        (["nosuch_module:f"], "there is no module 'nosuch_module'"),
        (["mine_to_check:rigth"], "did you mean right?"),
        (["mine_to_check:number"], "cannot be called"),
        (["mine_to_check:right", "--problem", "nosuch.toml"], "there is no file"),
        (["mine_to_check:right", "--format", "xml"], "is not one of text, json, junit"),
    ],
)
def test_bad_input_ends_with_2_and_a_hint(mine: str, words: list[str], said: str) -> None:
    done = run("check", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "try: " in done.stderr
    assert done.stdout == ""
