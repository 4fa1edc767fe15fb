"""The state of the field: entries that are right, wrong and not there become rows, and rows the tables of the page."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.field import jax_entries, plain_entries, torch_entries
from benchmarks.field.__main__ import ENTRIES, main
from benchmarks.field.entry import Entry, judge, missing, rows
from benchmarks.field.problems import PROBLEMS
from benchmarks.field.table import merged, overview, read, table, text
from bilevel_sym import BilevelProblem

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / ".github" / "docs" / "state-of-the-field.md"
ROWS = ROOT / "benchmarks" / "field" / "rows.json"
LIBRARIES = {"jax", "jaxopt", "optimistix", "torch", "torchopt", "higher", "betty-ml", "hypergrad", "boat-torch"}


def small() -> BilevelProblem:
    return BilevelProblem("x1*y1 + y2**2", "y1**2 + 2*y2**2 - x1*x2*y1 - x2*y2", "x1 x2", "y1 y2")


def right(problem: BilevelProblem) -> Callable[[Any], Any]:
    return problem.kernels.grad_phi


def half(problem: BilevelProblem) -> Callable[[Any], Any]:
    """The implicit term counts half."""
    k = problem.kernels

    def candidate(x: Any) -> Any:
        y = k.y_star(x)
        return k.f_x(x, y) - 0.5 * k.g_xy(x, y) @ np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))

    return candidate


def broken(problem: BilevelProblem) -> Callable[[Any], Any]:
    def candidate(x: Any) -> Any:
        raise RuntimeError("in /some/deep/place/file.py | and more\nsecond line")

    return candidate


def lower(problem: BilevelProblem) -> Callable[[Any], Any]:
    return problem.kernels.y_star


RIGHT = Entry("numpy", "right", "defaults", "as it is", (), right)
WRONG = Entry("numpy", "wrong", "defaults", "loose", (), half)
WRONG_TIGHT = Entry("numpy", "wrong", "tight", "close", (), right)
RAISES = Entry("numpy", "raises", "defaults", "", (), broken)
ABSENT = Entry("nowhere", "call", "defaults", "", ("a_module_that_nobody_has",), half)
LOWER = Entry("numpy", "solve", "defaults", "", (), lower, "lower solution")


def test_a_right_entry_holds_and_a_wrong_one_is_named() -> None:
    found, wrong = (judge(entry, "small", small()) for entry in (RIGHT, WRONG))
    assert (found.verdict, found.cause, found.version) == ("HOLDS", "", np.__version__)
    assert found.digits is not None
    assert found.digits > 12
    assert (wrong.verdict, wrong.cause) == ("VIOLATED", "cross")
    assert wrong.digits is not None
    assert wrong.digits < 1
    assert "half" in wrong.said


def test_a_lower_solution_is_judged_as_one() -> None:
    assert judge(LOWER, "small", small()).verdict == "HOLDS"
    assert judge(replace(LOWER, kind="hypergradient"), "small", small()).verdict == "VIOLATED"


def test_what_a_library_raises_is_a_row_of_one_line_without_paths() -> None:
    row = judge(RAISES, "small", small())
    assert (row.verdict, row.cause, row.digits) == ("raises", "RuntimeError", None)
    assert row.said == "in file.py / and more"


def test_what_is_not_installed_is_left_out_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert missing(ABSENT) == ("a_module_that_nobody_has",)
    assert list(rows([ABSENT], {"small": small})) == []
    assert main([], [ABSENT]) == 1
    assert "left out: nowhere, for a_module_that_nobody_has is not installed" in capsys.readouterr().err


def test_rows_survive_a_file_and_the_later_one_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = list(rows([RIGHT, WRONG], {"small": small}))
    path = tmp_path / "rows.json"
    path.write_text(text(first), encoding="utf-8")
    assert read(path) == first
    later = replace(first[1], verdict="HOLDS", cause="")
    assert merged([first, [later]]) == [first[0], later]
    assert main(["--merge", str(path), str(path)]) == 0
    assert "| numpy |" in capsys.readouterr().out


def test_the_tables_show_both_settings_side_by_side() -> None:
    found = merged([rows([RIGHT, WRONG, WRONG_TIGHT, RAISES, LOWER], {"small": small})])
    lines = overview(found).splitlines()
    wrong = next(line for line in lines if "| wrong |" in line)
    assert "| loose | VIOLATED; HOLDS on 0 of 1; 0." in wrong
    assert "| close | HOLDS on all 1, 1" in wrong
    assert "cross" in wrong
    assert any("raises; HOLDS on 0 of 1; no digits" in line for line in lines)
    cells = table(found, "defaults")
    assert "✗ 0." in cells
    assert "raises RuntimeError" in cells
    assert "| y* of solve |" in cells
    assert "wrong" in table(found, "tight")
    assert "raises" not in table(found, "tight")


def test_the_worst_verdict_and_its_fewest_digits_stand_for_all_problems() -> None:
    good = judge(RIGHT, "good", small())
    bad = [replace(good, problem=f"bad {d}", verdict="VIOLATED", digits=d, cause="tolerance") for d in (5.25, 3.5, 4.0)]
    assert "VIOLATED; HOLDS on 1 of 4; 3.5 digits on “bad 3.5”; tolerance" in overview([good, *bad])
    gone = replace(good, problem="gone", verdict="raises", digits=None, cause="ValueError")
    assert "raises; HOLDS on 1 of 5; no digits on “gone”; tolerance, ValueError" in overview([good, *bad, gone])


def test_both_settings_of_each_call_are_asked() -> None:
    there = {(entry.library, entry.call, entry.kind, entry.setting) for entry in ENTRIES}
    asked = {(*call, setting) for *call, _ in there for setting in ("defaults", "tight")}
    assert {library for library, *_ in asked - there} == {"numpy", "torch"}  # there is nothing to set
    assert len(ENTRIES) == len(there)
    assert {entry.library for entry in ENTRIES} >= LIBRARIES


def test_the_problems_are_what_they_are_called() -> None:
    made = {name: make() for name, make in PROBLEMS.items()}
    x = np.array([0.25, -0.5])
    g_yy = {name: p.kernels.g_yy(x, p.kernels.y_star(x)) for name, p in made.items()}
    np.testing.assert_allclose(g_yy["isotropic"], 2 * np.eye(3), atol=1e-14)
    for n in (4, 12):
        np.testing.assert_allclose(np.linalg.eigvalsh(g_yy[f"spread, n = {n}"]), 1 + np.arange(n) / 100, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.cond(g_yy["ill-conditioned"]), 1e4, rtol=1e-6)
    assert not made["f_y = 0"].kernels.f_y(x, np.ones(2)).any()
    assert not made["x not in g"].kernels.g_xy(x, np.ones(2)).any()


@pytest.mark.slow
def test_numpy_by_hand_holds_everywhere() -> None:
    by_hand = [entry for entry in plain_entries.ENTRIES if entry.library == "numpy"]
    assert [row.verdict for row in rows(by_hand, dict(PROBLEMS))] == ["HOLDS"] * len(PROBLEMS)


PEERS = [
    pytest.param(entry, id=f"{entry.library}: {entry.call}, {entry.kind}", marks=pytest.mark.slow)
    for entry in (*jax_entries.ENTRIES, *torch_entries.ENTRIES)
    if entry.setting == "defaults"
]


@pytest.mark.parametrize("entry", PEERS)
def test_an_entry_answers_where_its_library_is_installed(entry: Entry) -> None:
    if absent := missing(entry):
        pytest.skip(f"not installed: {', '.join(absent)}")
    row = judge(entry, "quadratic", PROBLEMS["quadratic"]())
    assert row.verdict in ("HOLDS", "INCONCLUSIVE", "VIOLATED"), row.said


# ---- the page ---------------------------------------------------------------------------------------------------


def test_the_page_shows_the_rows_that_are_stored() -> None:
    page, stored = PAGE.read_text(encoding="utf-8"), read(ROWS)
    assert overview(stored) in page
    assert table(stored, "defaults") in page
    assert table(stored, "tight") in page
    assert len({(row.library, row.version) for row in stored}) >= 8
    assert {row.library for row in stored} >= LIBRARIES


PROGRAMS = re.findall(r"```py\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_each_finding_has_a_short_reproduction() -> None:
    assert len(PROGRAMS) >= 8
    assert all(len(program.splitlines()) <= 10 for program, _ in PROGRAMS)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "shown"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_reproduction_prints_what_the_page_shows(program: str, shown: str) -> None:
    for name in re.findall(r"^(?:import|from) (\w+)", program, re.MULTILINE):
        pytest.importorskip(name)
    command = [sys.executable, "-W", "ignore", "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == shown
