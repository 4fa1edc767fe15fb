"""The shipped formulas against a second writing of them: they agree, and one that is off is noticed.

The doors to what is compared are ``verify.papers.huang_saddle.measures.second_writing.transcripts`` (constants, escapes, inner loops, batches),
``schedule_transcripts`` (how schedules put these together, and what claims compare with).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bilevel_sym import zoo
from bilevel_sym.theories.huang_saddle.constants import Constants, MinimaxConstants
from bilevel_sym.theories.huang_saddle.schedules import batches, inner
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness
from verify.papers.huang_saddle.claims.formulas import QUADRATIC, formulas
from verify.papers.huang_saddle.measures.agreement import Agreement
from verify.papers.huang_saddle.measures.second_writing import run_transcripts, schedule_transcripts, transcripts
from verify.papers.huang_saddle.measures.second_writing.run_transcripts import of_runs
from verify.papers.huang_saddle.measures.second_writing.schedule_transcripts import of_bounds, of_schedules
from verify.papers.huang_saddle.measures.second_writing.transcripts import (
    of_batches,
    of_constants,
    of_escapes,
    of_inner_loops,
    of_minimax,
)
from verify.papers.huang_saddle.measures.stochastic import stocbio_bounds
from verify.study import study_of
from verify.verdict import Verdict

Patch = pytest.MonkeyPatch
CASE = Constants(0.5, 1.5, 1.25, 0.75, 2.0, sigma=1.5)  # no 1 and no 2, whose products and powers are alike
GAME = MinimaxConstants(0.5, 1.5, 1.25, M_x=2.0)


@pytest.mark.slow
def test_the_formulas_that_ship_are_those_of_the_theory() -> None:
    found = {result.part: result.verdict for result in formulas(study_of(zoo.get("scalar").problem))}
    assert set(found) == {"constants", "escapes", "inner loops", "batches", "bounds", "schedules"}
    assert set(found.values()) == {Verdict.HOLDS}


def larger(value: Any, field: str = "") -> Any:
    """The same, a thousandth larger, at least by one if it is a whole number; of several the first, of a record the field."""
    if field:
        return replace(value, **{field: larger(getattr(value, field))})
    if isinstance(value, int):
        return value + max(1, value // 1000)
    if isinstance(value, (tuple, list)):
        return type(value)([larger(value[0]), *value[1:]])
    if dataclasses.is_dataclass(value):
        return larger(value, "coefficient")
    return value * (Decimal("1.001") if isinstance(value, Decimal) else 1.001)


OFF = [  # what is compared by which part, and of a record which field is wrong
    *((of_bounds, stocbio_bounds, name, "") for name in (
        "slope_in_y", "series_rest", "variance_bound", "error_bound", "distance", "inner",
    )),
    *((of_bounds, schedule_transcripts, name, "") for name in ("rate_y", "rate_v", "log_rate_y")),
    *((of_batches, batches, name, "") for name in (
        "batch_sizes", "concentration", "gradient_terms", "hessian_terms", "term_delta",
    )),
    (of_batches, transcripts, "neumann_batch_sizes", ""),
    *((of_batches, transcripts, "stocbio_steps", field) for field in ("Q", "S", "D", "B", "batch_f", "batch_g")),
    *((of_inner_loops, inner, name, "") for name in ("aid_steps", "conjugate_rate", "descent_rate", "sgd_rate")),
    *((of_escapes, transcripts, "escape_of", field) for field in ("iota", "eta", "r", "T_escape", "F_escape")),
    (of_escapes, transcripts, "perturbed_accuracy", ""),
    *((of_schedules, schedule_transcripts, "perturbed_aid", field) for field in ("D", "N", "tau", "iota", "accuracy")),
    *((of_schedules, schedule_transcripts, "perturbed_gdmax", field) for field in ("D", "tau", "accuracy", "eta")),
    *((of_schedules, schedule_transcripts, "ineon", field) for field in ("D", "N", "step", "decrease", "accuracy_y")),
    *((of_schedules, schedule_transcripts, "stocbio", field) for field in ("alpha", "beta", "step", "decrease")),
]  # fmt: skip


@pytest.mark.parametrize("compare", [of_bounds, of_batches, of_inner_loops, of_escapes, of_schedules])
def test_the_formulas_agree_with_a_second_writing(compare: Callable[..., Iterator[Agreement]]) -> None:
    assert worst(compare) <= 1


@pytest.mark.parametrize("c", [QUADRATIC, replace(CASE, ell=0.5)], ids=["quadratic", "kappa = 1"])
def test_the_corners_of_the_formulas_agree_too(c: Constants) -> None:
    assert max(item.ratio for compare in (of_bounds, of_batches, of_inner_loops) for item in compare(c)) <= 1


def worst(compare: Callable[..., Iterator[Agreement]]) -> float:
    """The largest difference that a part finds, in what rounding explains."""
    asked: tuple[Any, ...] = (CASE,)
    if compare is of_schedules:
        asked = (CASE, GAME)
    if compare is of_escapes:
        asked = (Smoothness(27.0, 297.0), Goal(eps=0.1, delta=0.1, d=2, initial_error=1.5, gap=2.0, episodes=1))
    return max(item.ratio for item in compare(*asked))


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(
    ("compare", "module", "name", "field"), OFF, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_formula_that_is_off_is_noticed(
    monkeypatch: Patch, compare: Callable[..., Iterator[Agreement]], module: Any, name: str, field: str
) -> None:
    assert worst(compare) <= 1
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args, **kwargs: larger(right(*args, **kwargs), field))
    assert worst(compare) > 1


def test_what_is_read_off_runs_agrees_with_a_second_writing() -> None:
    assert max(item.ratio for item in of_runs()) <= 1


READ_OFF: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "gammas": (run_transcripts, lambda values: 1.001 * values),
    "paths_inside": (run_transcripts, lambda inside: ~inside),
    "rounding": (run_transcripts, lambda allowed: replace(allowed, grad=2 * allowed.grad)),
    "small_step": (run_transcripts, lambda step: 2 * step),
    "starts": (run_transcripts, lambda begin: replace(begin, y=begin.y + 0.01)),
    "v_stars": (run_transcripts, lambda v: v + 1),
    "solved_points": (stocbio_bounds, lambda points: list(points)[1:]),
    "near_solution": (stocbio_bounds, lambda y: y and [2 * y[0]]),
}


@pytest.mark.parametrize("name", READ_OFF)
def test_what_is_read_off_wrongly_is_noticed(monkeypatch: Patch, name: str) -> None:
    module, off = READ_OFF[name]
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args: off(right(*args)))
    assert max(item.ratio for item in of_runs()) > 1


@pytest.mark.parametrize("name", ["L_phi", "rho_phi"])
@pytest.mark.parametrize("kind", [Constants, MinimaxConstants])
def test_a_constant_that_is_off_is_noticed(monkeypatch: Patch, kind: type, name: str) -> None:
    right = getattr(kind, name)
    monkeypatch.setattr(kind, name, lambda *args, **kwargs: larger(right(*args, **kwargs)))
    assert max(item.ratio for item in (of_constants(CASE) if kind is Constants else of_minimax(GAME))) > 1
