"""The claims on minimax problems: what holds, what is printed and fails, and that they can say no."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flint import arb
from helpers import random_problem

from bilevel_sym import MinimaxProblem, zoo
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.theories import Variant
from verify.papers.huang_saddle.claims import minimax
from verify.papers.huang_saddle.measures.minimax_points import SamplePoint, sample_points, strict_minimum_in_x
from verify.registry import Claim
from verify.study import study_of
from verify.verdict import Verdict

CLAIMS = [item for item in vars(minimax).values() if isinstance(item, Claim)]
NAMES = ["minimax_nash", "minimax_not_nash", "minimax_degenerate", "minimax_wells", "robust_regression"]
PRINTED = {  # what is printed and fails there
    "minimax_nash": set(),
    "minimax_not_nash": set(),
    "minimax_wells": {"unlabelled:definition-strict-local-minimax", "unlabelled:section-proof-nash"},
    "minimax_degenerate": {
        "unlabelled:strict-local-nash", "unlabelled:section-proof-nash", "lem:equivalence", "proof-prop-2.4-eq1"
    },
    "robust_regression": {"unlabelled:definition-strict-local-minimax"},
}  # fmt: skip
TWISTED = MinimaxProblem(
    "x1**2 + x2**2 + x1*y2 - 3*x2*y1 - y1**2 - y2**2/2", "x1 x2", "y1 y2",
    box={"x1": (-1, 1), "x2": (-1, 1), "y1": (-4, 4), "y2": (-4, 4)},
)  # fmt: skip
SADDLE = MinimaxProblem(
    "x1**2 - 3*x2**2 + x2*y - y**2/2", "x1 x2", "y", box={"x1": (-1, 1), "x2": (-1, 1), "y": (-2, 2)}
)


def verdicts(problem: BilevelProblem, variant: Variant = "corrected") -> dict[str, set[Verdict]]:
    study = study_of(problem, variant=variant, effort=0.5)
    return {item.label: {result.verdict for result in item(study)} for item in CLAIMS}


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", NAMES)
def test_the_corrected_statements_hold_on_the_zoo(name: str) -> None:
    said = verdicts(zoo.get(name).problem)
    assert not any(Verdict.VIOLATED in found for found in said.values())
    assert all(said[label] == {Verdict.HOLDS} for label in ("pro:minimax", "lem:equivalence"))
    assert sum(found == {Verdict.HOLDS} for found in said.values()) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_printed_ones_fail_where_they_should_and_nowhere_else(name: str) -> None:
    said = verdicts(zoo.get(name).problem, "printed")
    assert {label for label, found in said.items() if Verdict.VIOLATED in found} == PRINTED[name]


@pytest.mark.slow
def test_the_printed_schur_complement_is_another_matrix_where_f_xy_is_not_symmetric() -> None:
    label = "unlabelled:definition-strict-local-minimax"
    assert verdicts(TWISTED, "printed")[label] == {Verdict.VIOLATED}
    assert verdicts(TWISTED)[label] == {Verdict.HOLDS}


@pytest.mark.slow
def test_a_saddle_of_phi_with_more_upper_than_lower_variables() -> None:
    said = verdicts(SADDLE)
    assert said["pro:minimax"] == said["lem:equivalence"] == {Verdict.HOLDS}
    assert said["def:pureNash"] == said["proof-prop-2.4-eq1"] == {Verdict.NOT_APPLICABLE}
    assert verdicts(SADDLE, "printed")["unlabelled:section-proof-nash"] == {Verdict.VIOLATED}  # rank 1 of 2


@pytest.mark.slow
@pytest.mark.in_ci(seed=(2, 11))
@pytest.mark.parametrize(
    "seed", [2, 5, 8, pytest.param(11, marks=pytest.mark.slow), pytest.param(14, marks=pytest.mark.slow)]
)
def test_no_true_statement_is_violated_on_random_problems(seed: int) -> None:
    problem = random_problem(seed)
    assert problem.kind == "minimax"
    said = verdicts(problem)
    assert not any(Verdict.VIOLATED in found for found in said.values())
    assert said["pro:minimax"] == said["lem:equivalence"] == {Verdict.HOLDS}


def test_other_kinds_of_problem_are_not_spoken_of() -> None:
    assert all(found == {Verdict.NOT_APPLICABLE} for found in verdicts(zoo.get("scalar").problem).values())


def test_results_say_what_they_rest_on() -> None:
    (result,) = minimax.equivalence(study_of(zoo.get("minimax_not_nash").problem))
    assert result.evidence == "certified"
    assert result.n_points == 7
    assert result.worst_point == {"x": 0.0, "y": 0.0}
    assert (result.measured, result.bound, result.tightness) == (0.0, 0.0, 1.0)


# ---- they can say no --------------------------------------------------------------------------------------------


def broken(monkeypatch: pytest.MonkeyPatch, change: object) -> None:
    def changed(study: object) -> list[SamplePoint]:
        return [change(sample) for sample in sample_points(study)]  # type: ignore[arg-type, operator]

    monkeypatch.setattr(minimax, "sample_points", changed)


def negated(values: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(-value for value in reversed(values))  # type: ignore[operator]


def test_a_hessian_with_the_wrong_sign_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, lambda sample: replace(sample, schur=negated(sample.schur)))
    (result,) = minimax.equivalence(study_of(zoo.get("minimax_not_nash").problem))
    assert result.verdict is Verdict.VIOLATED
    broken(monkeypatch, lambda sample: replace(sample, hess=negated(sample.hess)))
    assert {r.verdict for r in minimax.nash_and_minima(study_of(zoo.get("minimax_nash").problem))} == {Verdict.VIOLATED}


def test_a_term_with_the_wrong_sign_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, lambda sample: replace(sample, coupling=negated(sample.coupling)))
    (result,) = minimax.psd_coupling(study_of(zoo.get("minimax_nash").problem))
    assert result.verdict is Verdict.VIOLATED


def test_a_false_converse_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "A minimum of Phi is a strict local Nash point" is false for f = -x^2 + 4xy - y^2."""
    broken(monkeypatch, lambda sample: replace(sample, schur=sample.f_xx))
    (result,) = minimax.equivalence(study_of(zoo.get("minimax_not_nash").problem))
    assert result.verdict is Verdict.VIOLATED


def test_what_is_undecided_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, lambda sample: replace(sample, schur=(arb(0, 1),)))
    study = study_of(zoo.get("minimax_not_nash").problem)
    (result,) = minimax.equivalence(study)
    assert result.n_points == 6  # the stationary point no longer decides
    monkeypatch.setattr(minimax, "sample_points", lambda study: [])
    assert minimax.equivalence(study)[0].verdict is Verdict.INCONCLUSIVE


def test_exact_derivatives_tell_a_strict_minimum() -> None:
    import sympy as sp

    zero = sp.Integer(0)
    for text, expected in (("x**4", True), ("-x**4", False), ("x**3", False), ("x**6 + x**7", True), ("x**10", None)):
        problem = MinimaxProblem(f"{text} - y**2/2", "x", "y")
        assert strict_minimum_in_x(problem, zero, [zero]) is expected
    assert strict_minimum_in_x(SADDLE, zero, [zero]) is None
