"""``verify.run`` on array problems: in scalars where they are small; otherwise what needs no search over a box."""

from __future__ import annotations

import numpy as np
import pytest

from bilevel_sym import BilevelProblem, Box, verify
from bilevel_sym.errors import InvalidProblem, TooLarge
from verify.regularity.structure.large import by_entry, guarded, is_large
from verify.study import study_of
from verify.verdict import Verdict

SIZE = "d + n = 30 + 30 variables, and a box of more than 12 is not searched"


def logistic(m: int, n: int) -> BilevelProblem:
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(m, n)) / 3, rng.normal(size=(m // 2, n)) / 3
    data = {"A": A, "b": np.sign(rng.normal(size=m)), "B": B, "c": np.sign(rng.normal(size=m // 2))}
    f, g = "mean(softplus(-c*(B @ y)))", "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2"
    return BilevelProblem(f, g, "x[n]", "y[n]", data=data, box={"x": (-1, 1)})


def cleaning(m: int, n: int) -> BilevelProblem:
    rng = np.random.default_rng(0)
    data = {"A": rng.normal(size=(m, n)) / 3, "b": np.sign(rng.normal(size=m)), "c": rng.normal(size=n)}
    g = "sigmoid(w) @ softplus(-b*(A @ y))/m + y @ y/10"
    return BilevelProblem("sum((y - c)**2)/2", g, "w[m]", "y[n]", data=data, box={"w": (-2, 2)})


@pytest.mark.slow
def test_a_small_array_problem_is_judged_in_scalars() -> None:
    array = BilevelProblem("x @ y", "sum((y - b)**2) - x @ y", "x[1]", "y[1]", data={"b": [1.0]}, box={"x": (-1, 1)})
    labels = ["eq:bilevel-grad", "phi-grad", "grad-Lipschitz"]
    ours, theirs = (verify.run(problem, claims=labels, rng=0) for problem in (array, array.lowered()))
    assert [(r.verdict, r.message) for r in ours.results] == [(r.verdict, r.message) for r in theirs.results]
    assert all(result.verdict is Verdict.HOLDS for result in ours.results)


@pytest.mark.slow
def test_searches_of_a_large_one_are_not_begun() -> None:
    """Neither formulas in scalars nor boxes: the size is told at once, and no claim breaks off with another error."""
    report = verify.run(
        logistic(60, 30), claims=["phi-grad", "eq:bilevel-grad", "lem:escapesaddle", "def:local-min"], rng=0
    )
    assert {(result.verdict, result.message) for result in report.results} == {(Verdict.NOT_APPLICABLE, SIZE)}
    with pytest.raises(TooLarge, match="30"):
        verify.smoothness(logistic(60, 30))
    with pytest.raises(TooLarge, match="30"):
        verify.stationary_points(logistic(60, 30))
    with pytest.raises(InvalidProblem, match="no box"):
        verify.run(BilevelProblem("x @ y", "sum((y - x)**2)", "x[20]", "y[20]"))


@pytest.mark.long
def test_claims_without_a_search_run_on_a_large_one() -> None:
    labels = ["assu:bilevel", "eq:cgrate", "eq:gdrate", "eq:warmstart-y", "eq:warmstart-v", "lem:grad-err-aid"]
    report = verify.run(logistic(100, 30), claims=labels, rng=0)
    found = {result.label: result for result in report.results if result.tested}
    assert {"eq:cgrate", "eq:gdrate", "eq:warmstart-y", "lem:grad-err-aid"} <= found.keys()
    assert all(result.verdict is not Verdict.VIOLATED for result in report.results)
    assumed = [result for result in report.results if result.label == "assu:bilevel"]
    assert all(result.verdict is Verdict.HOLDS for result in assumed)


@pytest.mark.slow
@pytest.mark.in_ci("small")
@pytest.mark.parametrize(
    "problem", [logistic(569, 30), cleaning(100, 10), cleaning(20, 4)], ids=["logistic", "cleaning", "small"]
)
def test_no_claim_breaks_off(problem: BilevelProblem) -> None:
    """Those that run long on scalars too are left out."""
    long = {"own:routes", "thm:aid", "hess-Lipschitz", "grad-Lipschitz", "lemma3.4-long"}
    labels = [claim.label for claim in verify.claims() if claim.label not in long]
    report = verify.run(problem, claims=labels, rng=0)
    assert {claim.label for claim in verify.claims()} - long <= {result.label for result in report.results}
    assert not [result for result in report.results if result.verdict is Verdict.VIOLATED]
    assert any(result.tested for result in report.results)


def test_a_study_of_a_large_problem_knows_every_entry() -> None:
    problem = logistic(40, 30)
    study = study_of(problem, box=Box({"x": (-1, 1), "y": (-5, 5)}))
    assert study.is_large
    assert is_large(problem)
    assert len(study.box) == 60
    assert study.points(3).shape == (3, 30)
    assert list(study.named(np.zeros(30)))[:2] == ["x_1", "x_2"]
    assert study.covers(np.zeros((1, 30))).all()
    assert study.undecided == 0.0
    assert study_of(problem, box=by_array_box(0.01)).undecided == 1.0
    assert 0 < study.lightness <= 1


def by_array_box(reach: float) -> Box:
    return Box({"x": (-1, 1), "y": (-reach, reach)})


def test_a_guarded_problem_computes_and_refuses_formulas() -> None:
    problem = logistic(40, 30)
    large = guarded(problem)
    x = np.full(30, 0.1)
    assert np.array_equal(large.kernels.grad_phi(x), problem.kernels.grad_phi(x))
    assert [s.name for s in large.x][:2] == ["x_1", "x_2"]
    for refused in ("tape", "f", "g", "derivation"):
        with pytest.raises(TooLarge):
            getattr(large, refused)
    assert len(by_entry(problem, Box({"x": (0, 1)}))) == 30
