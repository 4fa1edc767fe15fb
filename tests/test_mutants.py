"""The mutants are real, always the same, and the script that counts who notices them can tell."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from benchmarks import mutants, mutants_probe
from benchmarks.mutation import TARGETS, Mutant, chosen, mutants_of

ROOT = Path(__file__).resolve().parent.parent
PATHS = [path for paths in TARGETS.values() for path in paths]


@pytest.mark.slow
def test_there_are_enough_of_them_and_always_the_same() -> None:
    first, second = chosen(ROOT, 200, 0), chosen(ROOT, 200, 0)
    assert first == second
    assert len(first) >= 200
    assert len({mutant.key for mutant in first}) == len(first)
    assert {mutant.path for mutant in first} == set(PATHS)
    assert chosen(ROOT, 200, 1) != first


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("path", PATHS)
def test_each_changes_what_is_computed_and_nothing_else(path: str) -> None:
    text = (ROOT / path).read_text("utf-8")
    before = ast.dump(ast.parse(text))
    found = mutants_of(path, text)
    assert found
    for mutant in found[::9]:
        assert ast.dump(ast.parse(mutant.applied(text))) != before, mutant.key


SOURCE = '''
def f(a: int = 3, *, b=2) -> float:
    """2 + 2."""
    if a < 1 and not b:
        raise ValueError(f"{a + 1}")
    for k in range(a):
        b -= k
    return max(a, b) * 0.5
'''


def test_refusals_texts_and_annotations_are_left_alone() -> None:
    changes = {f"{m.before} -> {m.after}" for m in mutants_of("a.py", SOURCE)}
    assert changes == {
        "a < 1 and not b -> (a < 1 or not b)", "a < 1 -> (a >= 1)", "1 -> 2", "not b -> (b)", "range(a) -> range(a + 1)",
        "b -= k -> b += k", "max(a, b) * 0.5 -> (max(a, b) / 0.5)", "max(a, b) * 0.5 -> -(max(a, b) * 0.5)",
        "max(a, b) -> min(a, b)", "0.5 -> 1.0",
    }  # fmt: skip


def test_every_survivor_with_a_reason_is_a_mutant_of_the_code_as_it_is() -> None:
    paths = {key.partition("::")[0] for key in mutants._reasons()}
    assert paths <= set(PATHS)
    there = {mutant.key for path in paths for mutant in mutants_of(path, (ROOT / path).read_text("utf-8"))}
    assert set(mutants._reasons()) <= there


def test_only_a_verdict_that_has_become_worse_is_noticed() -> None:
    assert mutants_probe.noticed({"a": "HOLDS"}, {"a": "INCONCLUSIVE"})
    assert mutants_probe.noticed({"a": "INCONCLUSIVE"}, {"a": "VIOLATED"})
    assert mutants_probe.noticed({}, {"a": "VIOLATED"})
    assert not mutants_probe.noticed({"a": "INCONCLUSIVE"}, {"a": "HOLDS"})
    assert not mutants_probe.noticed({"a": "HOLDS"}, {"a": "NOT_APPLICABLE"})


def test_what_is_known_is_not_asked_again(tmp_path: Path) -> None:
    first, second = (Mutant("a.py", k, 0, k, 1, "f", "constant", "1", "2", k) for k in (1, 2))
    store = tmp_path / "known.jsonl"
    lines = [{"key": first.key, "verify": "", "tests": None}, {"key": first.key, "verify": None, "tests": "failed"}]
    store.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    known = mutants._known(store, [first, second])
    assert known[first.key] == mutants.Outcome(first, "", "failed")
    assert [outcome.mutant for outcome in mutants._left(known, ("verify", "tests"))] == [second]


def test_the_table_counts_and_names_the_survivors() -> None:
    mutant = Mutant("bilevel_sym/estimators/batches.py", 7, 0, 7, 1, "f", "constant", "1", "2")
    reasons = {mutant.key: "it is never reached"}
    shown = mutants.table([mutants.Outcome(mutant, "", "failed")], reasons)
    assert "| estimators | 1 | 0 | 0 (0.0%, 0.0%) | 1 (100.0%, 100.0%) |" in shown
    assert "| bilevel_sym/estimators/batches.py:7 f | `1` → `2` | it is never reached |" in shown
    assert not mutants.reached([mutants.Outcome(mutant, "", "failed")], reasons)
    assert mutants.reached([mutants.Outcome(mutant, "a claim", "failed")], reasons)


def test_what_computes_the_same_is_counted_apart() -> None:
    first, second = (
        Mutant("bilevel_sym/estimators/batches.py", k, 0, k, 1, "f", "constant", "1", "2", k) for k in (1, 2)
    )
    outcomes = [mutants.Outcome(first, "a claim", "failed"), mutants.Outcome(second, "", "")]
    reasons = {second.key: "equivalent: nothing depends on it"}
    assert "| all | 2 | 1 | 1 (50.0%, 100.0%) | 1 (50.0%, 100.0%) |" in mutants.table(outcomes, reasons)
    assert mutants.reached(outcomes, reasons)
    assert not mutants.reached(outcomes, {})
