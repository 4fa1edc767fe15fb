"""Limits are measured in processes that end, and every door is on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from documentation import ROOT

from benchmarks import limits, limits_measure
from benchmarks.limits import LADDERS, LIMITS, Ledger, climb, row, tables
from benchmarks.limits_measure import DOORS, FAMILIES, measured

PAGE = ROOT / ".github" / "docs" / "limits.md"


def step(size: int, seconds: float | None, outcome: str = "done") -> dict[str, Any]:
    return {"door": "solve", "family": "rows", "size": size, "outcome": outcome, "seconds": seconds}


def test_a_row_has_the_largest_size_within_each_limit() -> None:
    assert row([step(1000, 0.5), step(10_000, 9.0), step(100_000, 70.0)]) == [
        "solve", "1 000 (0.5 s)", "10 000 (9 s)", "10 000 (9 s)", "nothing larger was tried",
    ]  # fmt: skip
    assert row([step(1000, None, "TooLarge: no")])[1:] == ["–", "–", "–", "1 000: TooLarge: no"]


def test_a_ladder_ends_where_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {1000: step(1000, 1.0), 10_000: step(10_000, 0.1, "TooLarge: rows")}
    monkeypatch.setattr(limits, "_asked", lambda door, family, size, cap: answers[size])
    found = climb("solve", "rows", 60, Ledger(None))
    assert [(s["size"], s["outcome"]) for s in found] == [(1000, "done"), (10_000, "TooLarge: rows")]


def test_what_would_take_far_too_long_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_asked", lambda door, family, size, cap: step(size, size**2 / 1e7))
    found = climb("solve", "rows", 60, Ledger(None))
    assert [s["size"] for s in found if s["outcome"] == "done"] == [1000, 10_000]
    assert found[-1]["outcome"] == "not tried: 1000 s if it grows on like this"


def test_what_is_kept_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def answer(door: str, family: str, size: int, cap: int) -> dict[str, Any]:
        asked.append(size)
        return step(size, 0.1)

    monkeypatch.setattr(limits, "_asked", answer)
    file = tmp_path / "steps"
    climb("solve", "rows", 60, Ledger(file))
    assert asked == list(LADDERS["rows"][1])
    again = climb("solve", "rows", 60, Ledger(file))
    assert asked == list(LADDERS["rows"][1])
    assert again == [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert climb("solve", "scalars", 0, Ledger(file)) == []  # prints what is kept, and measures nothing
    assert "1 000 000 (0.1 s)" in tables(again)


@pytest.mark.parametrize(("door", "family"), [("kernels: ∇Φ", "rows"), ("derive", "features"), ("evaluate", "scalars")])
def test_a_door_answers(door: str, family: str) -> None:
    found = measured(door, family, 4)
    assert found["outcome"] == "done"
    assert found["seconds"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_every_door_answers_to_something_small(door: str) -> None:
    assert measured(door, "scalars", 1)["outcome"] == "done"


def test_a_refusal_is_told_by_its_name() -> None:
    assert measured("smoothness", "features", 30)["outcome"].startswith("TooLarge: ")


@pytest.mark.slow
def test_a_process_ends_with_its_time() -> None:
    found = limits._asked("kernels: ∇²Φ", "scalars", 1000, 1)
    assert (found["outcome"], found["seconds"]) == ("more than 1 s", None)


def test_the_page_has_every_door_on_every_ladder() -> None:
    page = PAGE.read_text(encoding="utf-8")
    parts = re.split(r"^### (.+)$", page.partition("\n## What to do")[0], flags=re.M)[1:]
    titles = [title[0].upper() + title[1:] for title, _ in LADDERS.values()]
    assert parts[::2] == titles
    assert list(LADDERS) == list(FAMILIES)
    for table in parts[1::2]:
        head, _, *lines = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n") if line[:1] == "|"
        ]
        assert head == ["door", *(f"within {most} s" for most in LIMITS), "what comes next"]
        assert [line[0] for line in lines] == list(DOORS)


def test_points_lie_in_the_box() -> None:
    problem = limits_measure.rows(20)
    assert problem.box is not None
    assert all(low <= -0.5 and high >= 0.5 for name, (low, high) in problem.box.items() if name == "x")
    assert problem.d == limits_measure.FEW_FEATURES
