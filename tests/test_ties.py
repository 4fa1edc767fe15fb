"""Ties: the first of equals, whatever the last bits say; and no other way of choosing where something is shown."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, zoo
from bilevel_sym.arithmetic.ties import EQUAL, coarse, first_largest, first_smallest, in_order
from verify import check_local_minimum
from verify.papers.huang_saddle.measures.agreement import Case, tightest
from verify.papers.huang_saddle.measures.runs import compared
from verify.study import study_of
from verify.verdict import Bracket

ROOT = Path(__file__).resolve().parent.parent
ULP = 2.0**-52
sizes = st.sampled_from([0.5, 1.0, 3.0, -2.0, 0.0])
noise = st.integers(-8, 8).map(lambda k: 1 + k * ULP)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_seven_digits_keep_the_order_at_any_size(a: float, b: float) -> None:
    low, high = coarse(np.array(sorted((a, b))))
    assert low <= high
    assert low < high or abs(a - b) <= 2.0**-22 * max(abs(a), abs(b)) or np.isinf(high)


@given(st.lists(st.tuples(sizes, noise, noise), min_size=1, max_size=12))
def test_last_bits_do_not_choose(entries: list[tuple[float, float, float]]) -> None:
    here = np.array([size * bits for size, bits, _ in entries])
    there = np.array([size * bits for size, _, bits in entries])  # the same values on another machine
    plain = np.array([size for size, _, _ in entries])
    for values in (here, there):
        assert first_largest(values) == int(np.argmax(plain))
        assert first_smallest(values) == int(np.argmin(plain))
        assert in_order(values).tolist() == np.argsort(plain, kind="stable").tolist()
        assert in_order(values, descending=True).tolist() == np.argsort(-plain, kind="stable").tolist()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12))
def test_what_is_chosen_is_largest_to_within_the_error(values: list[float]) -> None:
    array = np.array(values)
    assert array[first_largest(array)] >= array.max() - 2 * EQUAL * np.abs(array).max()
    order = in_order(array)
    assert sorted(order.tolist()) == list(range(len(array)))
    assert (np.diff(array[order]) >= -2 * len(array) * EQUAL * np.abs(array).max()).all()


def test_values_apart_are_told_apart() -> None:
    assert first_largest([1.0, 1.0 + 8 * EQUAL]) == 1
    assert first_smallest([1e-12, 1e-13, 1.0]) == 1  # the error of a value is its own, not that of the largest
    assert in_order([3.0, 1.0, 2.0]).tolist() == [1, 2, 0]
    assert first_largest(np.array([[0.0, 1.0], [5.0, 2.0]])) == 2


def test_what_is_not_a_number() -> None:
    values = [1.0, np.nan, 3.0, np.inf]
    assert first_largest(values) == 1
    assert first_largest(values, skip_nan=True) == 3
    assert first_smallest(values) == 1
    assert first_smallest(values, skip_nan=True) == 0
    assert first_largest([np.nan, np.nan], skip_nan=True) == 0


@pytest.mark.parametrize("bits", [-1, 0, 1])
def test_a_measure_shows_the_first_of_equals(bits: int) -> None:
    study = study_of(zoo.get("scalar").problem)
    measured = np.array([0.5, 1.0, 1.0 + bits * ULP])
    result = compared(
        "eq:gdrate", study, measured, np.full(3, 2.0), 1e-12, message="", at=np.array([[0.0], [-1.0], [1.0]])
    )
    assert list((result.worst_point or {}).values()) == [-1.0]


@pytest.mark.parametrize("bits", [-1, 0, 1])
def test_certified_cases_show_the_first_of_equals(bits: int) -> None:
    two = Bracket(2.0, 2.0)
    cases = [
        Case(Bracket(1.0, 1.0), two, {"y": -1.0}),
        Case(Bracket(1.0 + bits * ULP, 1.0 + bits * ULP), two, {"y": 1.0}),
    ]
    said = tightest("lem:descent", cases, evidence="certified", message="")
    assert said.worst_point == {"y": -1.0}
    broken = Case(Bracket(3.0, 3.0), Bracket(3.0 - EQUAL, 3.0 - EQUAL), {"y": 0.0})
    almost = Case(Bracket(3.0, 3.0), Bracket(3.0, 3.0), {"y": 5.0})
    worst = tightest("lem:descent", [almost, broken], evidence="certified", message="")
    assert worst.worst_point == {"y": 0.0}, "a case that fails comes before all that hold"


def test_the_direction_of_an_eigenvector_has_a_sign_by_rule() -> None:
    # Hess Phi = [[0, -1], [-1, 0]]: the eigenvector of -1 is (1, 1)/sqrt(2) or minus that, entries equal to the last bits
    problem = BilevelProblem("-x1*x2 + y", "y**2/2", ["x1", "x2"], ["y"])
    assert "(0.7071, 0.7071)" in check_local_minimum([0, 0], problem, eps=0.1, rho_phi=1).message
    problem = BilevelProblem("x1*x2 + y", "y**2/2", ["x1", "x2"], ["y"])
    assert "(0.7071, -0.7071)" in check_local_minimum([0, 0], problem, eps=0.1, rho_phi=1).message


# ---- the wall --------------------------------------------------------------------------------------------------

# what is chosen here is shown, or judged: by the rule. What is compared below is counts, flags or fits of one search.
SHOWN = (
    "bilevel_sym/cli/solve_run.py",
    "verify/points/classification.py",
    "verify/papers",
    "verify/testkit",
)
CHOOSERS = {"argmax", "argmin", "nanargmax", "nanargmin", "argsort"}
OTHERWISE = {
    "np.argmin(np.argwhere(bad)[:, 1])": "whole numbers",
    "np.argsort(np.argwhere(where)[:, 1], kind='stable')": "whole numbers",
}
FITS = "verify/testkit/suspects"  # the smallest misfit of a family of hypotheses: neighbours of the best fit alike


def choices(root: Path) -> list[str]:
    """Where something that is shown is chosen by NumPy's choosers, which go by the last bit."""
    found = []
    for place in SHOWN:
        path = root / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            name = file.relative_to(root).as_posix()
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                called = node.func if isinstance(node, ast.Call) else None
                chooses = isinstance(called, ast.Attribute) and called.attr in CHOOSERS
                if chooses and not name.startswith(FITS) and ast.unparse(node) not in OTHERWISE:
                    found.append(f"{name}:{node.lineno} {ast.unparse(node)}")  # type: ignore[attr-defined]
    return found


@pytest.mark.slow
def test_what_is_shown_is_chosen_by_the_rule() -> None:
    assert choices(ROOT) == []


def test_a_planted_choice_by_last_bits_is_caught(tmp_path: Path) -> None:
    for place in SHOWN:
        path = tmp_path / place
        (path.parent if path.suffix else path).mkdir(parents=True, exist_ok=True)
        if path.suffix:
            path.write_text("", encoding="utf-8")
    (tmp_path / "verify/papers/planted.py").write_text("worst = int(np.nanargmax(values))\n", encoding="utf-8")
    (tmp_path / "verify/points/classification.py").write_text("k = values.argmin()\n", encoding="utf-8")
    assert [line.split(":")[0] for line in choices(tmp_path)] == [
        "verify/points/classification.py",
        "verify/papers/planted.py",
    ]
