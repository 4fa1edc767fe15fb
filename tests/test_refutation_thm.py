"""Theorems that can fail: faults in noise, schedules, saddle points and budgets that no claim may call HOLDS."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flint import arb
from test_claims_escape import known, waves
from test_refutation_verifier import everywhere, fields, forget, result_of

import verify
from bilevel_sym import BilevelProblem, Constants, MinimaxProblem, zoo
from bilevel_sym.solvers import noise
from bilevel_sym.solvers.compiled import run as compiled
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.schedules import aid, escape, inner, stochastic
from verify.papers.huang_saddle.claims import escape as escape_claims
from verify.papers.huang_saddle.claims import theorems
from verify.papers.huang_saddle.measures import saddles, visiting
from verify.papers.huang_saddle.measures.conditions import Condition, worst_of_each_part
from verify.registry import Claim
from verify.study import Study, study_of
from verify.verdict import CheckResult, Verdict

CLAIMS = {item.label: item for item in verify.claims()}
WELL = zoo.get("minimax_wells").problem
SHIFTED = MinimaxProblem(  # the same about x1 = 1/3, where no float is exact
    "(x1 - 1/3)**4/4 - (x1 - 1/3)**2 + (x2 - 1/7)**2/2 + (x1 - 1/3)*y - y**2/2", "x1 x2", "y",
    box={"x1": (-1.2, 1.8), "x2": (-1, 1), "y": (-2, 2)},
)  # fmt: skip
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """No defect outlives its test."""
    forget()
    yield
    forget()


def by_part(label: str, study: Study) -> dict[str, CheckResult]:
    claim = CLAIMS[label]
    assert isinstance(claim, Claim)
    return {result.part: result for result in claim(study)}


def silent(patch: Patch) -> None:
    """Perturbations of length zero, in every engine: what looks up the noise where it lives sees it."""
    patch.setattr(noise, "uniform_in_ball", lambda rng, d, radius: np.zeros(d))


def by_numpy(patch: Patch) -> None:
    """The engine without numba."""
    patch.setattr(compiled.CompiledRun, "of", classmethod(lambda cls, algorithm, kernels: "no numba"))


# ---- without noise nothing is escaped from ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(engine=["as it comes"])
@pytest.mark.parametrize("engine", ["as it comes", "numpy"])
def test_without_noise_perturbed_aid_does_not_leave_a_saddle_point(monkeypatch: Patch, engine: str) -> None:
    if engine == "numpy":
        by_numpy(monkeypatch)
    study = study_of(zoo.get("saddle").problem)
    assert visiting.visits("thm:aid", study).verdict is Verdict.HOLDS
    silent(monkeypatch)
    found = by_part("thm:aid", study) if engine == "as it comes" else {"visits": visiting.visits("thm:aid", study)}
    assert found["visits"].verdict is Verdict.VIOLATED
    assert "64 repeat themselves" in found["visits"].message
    if "descent" in found:  # another statement, which needs no noise
        assert found["descent"].verdict is Verdict.HOLDS


@pytest.mark.slow
@pytest.mark.in_ci(engine=["as it comes"])
@pytest.mark.parametrize("engine", ["as it comes", "numpy"])
def test_without_noise_perturbed_gdmax_does_not_leave_a_saddle_point(monkeypatch: Patch, engine: str) -> None:
    if engine == "numpy":
        by_numpy(monkeypatch)
        monkeypatch.setattr(visiting, "RUNS", 48)
    study = study_of(WELL)
    assert visiting.visits("thm:minimax", study).verdict is Verdict.HOLDS
    silent(monkeypatch)
    found = by_part("thm:minimax", study)
    assert found["visits"].verdict is Verdict.VIOLATED
    assert found["descent"].verdict is Verdict.HOLDS


@pytest.mark.slow
def test_where_no_float_is_exact_zero_noise_is_noticed_too(monkeypatch: Patch) -> None:
    study = study_of(SHIFTED)
    assert visiting.visits("thm:minimax", study).verdict is Verdict.HOLDS
    silent(monkeypatch)
    assert visiting.visits("thm:minimax", study).verdict is Verdict.VIOLATED


@pytest.mark.slow
def test_an_escape_that_is_not_due_to_the_noise_is_not_credited_to_it(monkeypatch: Patch) -> None:
    """Beside the saddle point by a rounding: descent alone arrives, and what it says of perturbations is nothing."""
    monkeypatch.setattr(visiting, "places", lambda study: [(1e-13, 0.0)])
    study = study_of(WELL)
    assert visiting.visits("thm:minimax", study).verdict is Verdict.HOLDS
    silent(monkeypatch)
    result = visiting.visits("thm:minimax", study)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "64 were not moved by perturbations" in result.message


@pytest.mark.slow
@pytest.mark.parametrize("part", ["probability"])
@pytest.mark.parametrize("label", ["lem:escapesaddle", "lem:neon"])
def test_without_noise_the_escape_lemmas_fail(monkeypatch: Patch, label: str, part: str) -> None:
    assert by_part(label, waves(2))[part].verdict is Verdict.HOLDS
    silent(monkeypatch)
    assert by_part(label, waves(2))[part].verdict is Verdict.VIOLATED


def test_without_a_saddle_point_visits_does_not_speak() -> None:
    result = visiting.visits("thm:minimax", study_of(zoo.get("minimax_nash").problem))
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert result.part == "visits"


@pytest.mark.slow
@pytest.mark.parametrize("label", ["lem:escapesaddle", "lem:neon", "lem:saddle-decrease"])
def test_saddle_points_that_the_search_drops_are_missed(label: str) -> None:
    study = known(zoo.get("saddle").problem, 1.2, 4.0, ((2.0, 0.0), "local minimum"), ((-2.0, 0.0), "local minimum"))
    (result,) = CLAIMS[label](study)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "Newton's method finds a saddle point at x1 = 0, x2 = 0" in result.message
    assert visiting.visits("thm:aid", study).verdict is Verdict.INCONCLUSIVE


def without_runs(patch: Patch) -> None:
    """The theorems' parameters alone."""

    def nothing(label: str, study: Study) -> CheckResult:
        return verify.judged(label, 1, 1, evidence="sampled", message="")

    for name in ("visits", "descends"):
        patch.setattr(theorems, name, nothing)


# ---- the corrections are in the theorems ----------------------------------------------------------------------------


def one_escape(patch: Patch) -> None:
    """The chance of one escape for that of all of them, as the print has it."""
    patch.setattr(escape.Count, "of", classmethod(lambda cls, *args, **options: escape.Count(1.0, 0.0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "name"), [("thm:aid", "scalar"), ("thm:minimax", "minimax_nash"), ("thm:stocneon", "stochastic_noise")]
)
def test_all_escapes_share_delta(monkeypatch: Patch, label: str, name: str) -> None:
    without_runs(monkeypatch)
    study = study_of(zoo.get(name).problem)
    assert by_part(label, study)["episodes"].verdict is Verdict.HOLDS
    assert (by_part(label, study)["episodes"].tightness or 0) > 0.99
    printed = study_of(zoo.get(name).problem, variant="printed")
    assert by_part(label, printed)["episodes"].verdict is Verdict.VIOLATED
    one_escape(monkeypatch)
    assert by_part(label, study)["episodes"].verdict is Verdict.VIOLATED


def generous(patch: Patch) -> None:
    """A stocBiO step may raise Phi by eps^2/(400 L_phi), whatever an escape gains."""
    old = stochastic.stocbio_steps
    everywhere(patch, old, lambda *args, **options: old(*args, **(options | {"rise": np.inf})))


@pytest.mark.slow
def test_a_stocbio_step_may_not_cost_what_an_escape_gains(monkeypatch: Patch) -> None:
    study, printed = (study_of(zoo.get("stochastic_noise").problem, variant=v) for v in _variants())
    found = by_part("thm:stocneon", study)
    assert found["budget"].verdict is found["case 2"].verdict is found["iterations"].verdict is Verdict.HOLDS
    as_printed = by_part("thm:stocneon", printed)
    assert as_printed["case 2"].verdict is Verdict.VIOLATED
    assert as_printed["case 2"].evidence == "certified"
    generous(monkeypatch)
    found = by_part("thm:stocneon", study)
    assert found["budget"].verdict is found["case 2"].verdict is Verdict.VIOLATED


def _variants() -> tuple[Variant, Variant]:
    return "corrected", "printed"


def test_a_negative_bound_is_never_taken_for_room() -> None:
    """Of two goals, one of which is violated with a negative bound, the violated one is shown."""
    kept, broken = Condition("a", arb(1), arb(2), "kept"), Condition(
        "a", arb(1), arb(-2), "broken"
    )  # fmt: skip
    (result,) = worst_of_each_part("thm:aid", [broken, kept])
    assert (result.verdict, result.message) == (Verdict.VIOLATED, "broken")


@pytest.mark.slow
def test_the_printed_d_is_compared_with_the_printed_bound(monkeypatch: Patch) -> None:
    """698 against 688.3 was a false violation: the printed D comes from M_x (1 + kappa), the bound came from M_x."""
    without_runs(monkeypatch)
    problem = zoo.get("minimax_degenerate").problem
    for variant in _variants():
        study = study_of(problem, variant=variant)
        result = by_part("thm:minimax", study)["order of D"]
        assert result.verdict is Verdict.HOLDS, result
        assert (result.tightness or 0) > 0.9
    fields(aid.perturbed_gdmax, D=lambda D: 2 * D)(monkeypatch)
    assert by_part("thm:minimax", study_of(problem))["order of D"].verdict is Verdict.VIOLATED


# ---- every saddle point, and beside it -------------------------------------------------------------------------------


def two_saddles() -> Study:
    """Phi = cos(x1) - cos(x2): saddle points at (0, 0) and (0, 2 pi), a local maximum at (0, pi)."""
    problem = BilevelProblem(
        "cos(y1) - cos(y2)", "(y1 - x1)**2/2 + (y2 - x2)**2/2", "x1 x2", "y1 y2",
        box={"x1": (-2, 2), "x2": (-2, 8), "y1": (-3, 3), "y2": (-3, 9)},
    )  # fmt: skip
    top, second = (0.0, float(np.pi)), (0.0, float(2 * np.pi))
    return known(problem, 1.0, 1.0, ((0.0, 0.0), "saddle"), (top, "local maximum"), (second, "saddle"))


@pytest.mark.slow
@pytest.mark.parametrize("label", ["lem:escapesaddle", "lem:neon"])
def test_a_saddle_point_that_is_not_the_first_counts(monkeypatch: Patch, label: str) -> None:
    found = by_part(label, two_saddles())
    assert {result.verdict for result in found.values()} == {Verdict.HOLDS}
    assert all("3 of 3 saddle points, 9 starts beside them" in result.message for result in found.values())
    make = saddles._saddle

    def hurried(study: Study, x: Any, *rest: Any) -> Any:
        saddle = make(study, x, *rest)
        return saddle if x[1] < 6 else replace(saddle, escape=replace(saddle.escape, T_escape=1))

    monkeypatch.setattr(saddles, "_saddle", hurried)
    assert by_part(label, two_saddles())["probability"].verdict is Verdict.VIOLATED


@pytest.mark.slow
@pytest.mark.parametrize("label", ["lem:escapesaddle", "lem:neon"])
def test_starts_on_a_slope_count(monkeypatch: Patch, label: str) -> None:
    study = waves(2)
    beside = saddles.slopes(study, saddles.saddles(study).found[0])
    assert len(beside) == 3
    for at in beside:
        assert 0.05 * at.goal.eps < np.linalg.norm(study.kernels.grad_phi(at.x)) <= at.goal.eps
        assert at.curvature <= -np.sqrt(at.smooth.rho_phi * at.goal.eps)
    make = saddles._slope

    def uphill(*args: Any) -> Any:
        at = make(*args)
        return at and replace(
            at, escape=replace(at.escape, eta=-at.escape.eta if label == "lem:escapesaddle" else 1e-9)
        )

    monkeypatch.setattr(saddles, "_slope", uphill)
    assert by_part(label, waves(2))["probability"].verdict is Verdict.VIOLATED


@pytest.mark.slow
def test_what_cannot_be_tried_at_one_saddle_point_is_not_called_decided(monkeypatch: Patch) -> None:
    make = saddles._saddle

    def long(study: Study, x: Any, *rest: Any) -> Any:
        saddle = make(study, x, *rest)
        return saddle if x[1] < 6 else replace(saddle, escape=replace(saddle.escape, T_escape=10**6))

    monkeypatch.setattr(saddles, "_saddle", long)
    found = by_part("lem:escapesaddle", two_saddles())
    assert {result.verdict for result in found.values()} == {Verdict.INCONCLUSIVE}
    assert all("steps are too many" in result.message for result in found.values())


# ---- no clock ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_clock_that_races_changes_nothing(monkeypatch: Patch) -> None:
    study = waves(2)
    well = study_of(WELL)
    well.__dict__["_smoothness"] = SimpleNamespace(L_phi=verify.Bracket(5.75, 5.75), rho_phi=verify.Bracket(9.0, 9.0))

    def found() -> list[CheckResult]:
        of_well = visiting.visits("thm:minimax", well)
        return [of_well, *CLAIMS["lem:escapesaddle"](study), *CLAIMS["lem:neon"](study)]

    before = found()
    ticks = itertools.count(0.0, 1e4)
    for name in ("monotonic", "perf_counter", "time"):
        monkeypatch.setattr(time, name, lambda: next(ticks))
    forget()
    assert found() == before
    assert before[0].verdict is Verdict.HOLDS


def test_the_claims_on_escapes_read_no_clock() -> None:
    for module in (escape_claims, saddles, visiting, theorems):
        assert not hasattr(module, "time")


# ---- the corollaries stand on the schedules that ship ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(part=("K", "D", "S", "N"))
@pytest.mark.parametrize(
    ("label", "part", "plant"),
    [
        ("unlabelled:corollary-aid", "K", fields(aid.perturbed_aid, K=lambda K: 2 * K)),
        ("unlabelled:corollary-aid", "K", fields(aid.perturbed_aid, K=lambda K: K // 2)),
        ("unlabelled:corollary-aid", "D", result_of(inner.aid_steps, lambda r: (2 * r[0], r[1]))),
        ("unlabelled:corollary-aid", "N", result_of(inner.aid_steps, lambda r: (r[0], 2 * r[1]))),
        ("cor:minimax", "K", fields(aid.perturbed_gdmax, K=lambda K: 2 * K)),
        ("cor:minimax", "D", fields(aid.perturbed_gdmax, D=lambda D: 2 * D)),
        ("eq:stocneon-batch2", "S", fields(stochastic.stocbio_steps, S=lambda S: 2 * S)),
        ("eq:stocneon-batch2", "B", fields(stochastic.stocbio_steps, B=lambda B: B // 2)),
        ("eq:stocneon-batch2", "batch_f", fields(stochastic.stocbio, batch_f=lambda f: 2 * f)),
        ("eq:stocneon-batch2", "batch_g", fields(stochastic.stocbio, batch_g=lambda g: 2 * g)),
        ("eq:ineon-sample-com", "N", fields(stochastic.stocbio, N=lambda N: 2 * N)),
        ("eq:ineon-sample-com", "D_aid", fields(stochastic.stocbio, D_aid=lambda D: 2 * D)),
        ("eq:stoc-sample-com", "Q", fields(stochastic.stocbio_steps, Q=lambda Q: 2 * Q)),
        ("eq:stoc-sample-com", "D", fields(stochastic.stocbio_steps, D=lambda D: 2 * D)),
        ("eq:stoc-sample-com", "neumann", fields(stochastic.stocbio_steps, B=lambda B: 2 * B)),
        ("cor:stocneon", "K", fields(stochastic.stocbio, K=lambda K: 2 * K)),
    ],
)
def test_a_fault_in_a_schedule_is_a_fault_of_its_corollary(
    monkeypatch: Patch, label: str, part: str, plant: Any
) -> None:
    problem: Any = {"cor:minimax": "minimax_nash", "unlabelled:corollary-aid": "scalar"}.get(label, "stochastic_rows")
    study = study_of(zoo.get(problem).problem)
    assert by_part(label, study)[f"{part} as shipped"].verdict is Verdict.HOLDS
    plant(monkeypatch)
    assert by_part(label, study)[f"{part} as shipped"].verdict is Verdict.VIOLATED


@pytest.mark.slow
def test_a_term_too_many_changes_an_order(monkeypatch: Patch) -> None:
    """The formula of L_phi that the order of K is proved from is the code that ships."""
    from verify.papers.huang_saddle.measures import growth

    assert growth.aid_sizes()["K"].order.kappa == 3
    symbols: Any = growth._SYMBOLS
    steeper = Constants.L_phi(symbols) + symbols.ell / symbols.mu**4
    monkeypatch.setattr(growth, "L_PHI", steeper)
    result = by_part("unlabelled:corollary-aid", study_of(zoo.get("scalar").problem))["K"]
    assert result.verdict is Verdict.VIOLATED
