"""The claims on escaping saddle points: coupling, stuck region, probability, iNEON; and what they say of false ones."""

from __future__ import annotations

import doctest
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sympy as sp

from bilevel_sym import BilevelProblem, Constants, paper, schedules, zoo
from bilevel_sym.errors import BilevelError
from bilevel_sym.solvers import ineon
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.schedules.aid import perturbed_accuracy
from bilevel_sym.theories.huang_saddle.schedules.escape import NEON, PERTURBED, escape_of
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness
from verify.papers.huang_saddle.claims import escape, neon
from verify.papers.huang_saddle.claims.escape import descended
from verify.papers.huang_saddle.measures import saddles
from verify.papers.huang_saddle.measures.saddles import Saddle
from verify.registry import Claim
from verify.study import Study, study_of
from verify.verdict import Bracket, CheckResult, Verdict

CLAIMS = {
    item.label: item
    for module in (escape, neon)
    for item in vars(module).values()
    if isinstance(item, Claim) and item.check.__module__ == module.__name__
}
AT_SADDLES = ("lem:escapesaddle", "lem:neon", "lem:saddle-decrease")


def easiest_saddle(study: Study, pace: Any = PERTURBED) -> Saddle:
    """The saddle point from which an escape takes fewest steps; of equal ones the first."""
    return min(saddles.saddles(study, pace).found, key=lambda saddle: saddle.escape.T_escape)


def points(*at: tuple[tuple[float, ...], str], complete: bool = True) -> Any:
    found = tuple(SimpleNamespace(x=x, kind=kind) for x, kind in at)
    return SimpleNamespace(points=found, complete=complete)


def known(problem: BilevelProblem, L_phi: float, rho_phi: float, *at: Any, variant: Variant = "corrected") -> Study:
    """A study whose smoothness and stationary points are known, not searched for."""
    study = study_of(problem, variant=variant)
    smooth = SimpleNamespace(L_phi=Bracket(L_phi, L_phi), rho_phi=Bracket(rho_phi, rho_phi))
    study.__dict__.update(_smoothness=smooth, _stationary=points(*at))
    return study


def waves(d: int, variant: Variant = "corrected") -> Study:
    """Phi = cos(z1) - 1 + sum of 1 - cos(z_i) with z a rotation of x: |Hess| <= 1, |third| <= 1, lambda_min = -1 at 0."""
    x = sp.symbols(f"x1:{d + 1}", real=True)
    y = sp.symbols(f"y1:{d + 1}", real=True)
    z = [
        sp.Rational(3, 5) * x[0] + sp.Rational(4, 5) * x[1],
        sp.Rational(3, 5) * x[1] - sp.Rational(4, 5) * x[0],
        *x[2:],
    ]
    f = sp.cos(y[0]) - 1 + sp.Add(*(1 - sp.cos(yi) for yi in y[1:]))
    g = sp.Add(*(yi**2 / 2 - zi * yi for yi, zi in zip(y, z, strict=True)))
    box = {s.name: (-2, 2) for s in x} | {s.name: (-3, 3) for s in y}
    return known(BilevelProblem(f, g, x, y, box=box), 1.0, 1.0, ((0.0,) * d, "saddle"), variant=variant)


def by_part(label: str, study: Study) -> dict[str, CheckResult]:
    return {result.part: result for result in CLAIMS[label](study)}


# ---- true statements -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_escape_lemma_holds_at_a_known_saddle(d: int) -> None:
    found = by_part("lem:escapesaddle", waves(d))
    assert set(found) == {"coupling", "stuck width", "probability"}
    for result in found.values():
        assert result.verdict is Verdict.HOLDS
    assert found["probability"].evidence == "statistical"
    assert found["probability"].confidence == 0.99
    assert (found["stuck width"].tightness or 0) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["corrected", "sharp"])
@pytest.mark.parametrize("d", [2, 4])
def test_neon_finds_the_curvature(d: int, variant: Variant) -> None:
    found = by_part("lem:neon", waves(d, variant))
    assert {part: result.verdict for part, result in found.items()} == {
        "curvature": Verdict.HOLDS,
        "probability": Verdict.HOLDS,
    }
    assert "float64" in found["curvature"].message


def test_a_step_along_a_flat_direction_lowers_phi() -> None:
    (result,) = CLAIMS["lem:saddle-decrease"](waves(3))
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, "certified")
    # c s^2/2 of curvature c over the c^3/(3 rho^2) that is claimed: two thirds, where Phi is even
    assert result.tightness == pytest.approx(2 / 3, abs=0.01)


def test_local_maxima_are_escaped_too() -> None:
    problem = BilevelProblem("cos(y)", "y**2/2 - x*y", "x", "y", box={"x": (-2, 2), "y": (-3, 3)})
    study = known(problem, 1.0, 1.0, ((0.0,), "local maximum"))
    for label in AT_SADDLES:
        assert {result.verdict for result in CLAIMS[label](study)} == {Verdict.HOLDS}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["saddle", "scalar", "quadratic"])
def test_nothing_true_is_violated_on_the_zoo(name: str) -> None:
    example = zoo.get(name)
    study = study_of(example.problem)
    x = study.points(200)
    largest = 1.2 * np.linalg.norm(study.kernels.hess_phi(x), 2, axis=(1, 2)).max()
    third = 1.2 * np.linalg.norm(study.kernels.third_phi(x).reshape(len(x), -1), axis=1).max()
    at = [(tuple(float(v) for v in point.x), point.kind) for point in example.stationary_points or ()]
    study = known(example.problem, float(largest), float(third), *at)
    if name == "scalar":
        study.__dict__["_smoothness"] = SimpleNamespace(L_phi=Bracket(0.2, 0.2), rho_phi=Bracket(0.4, 0.4))
    for item in CLAIMS.values():
        assert [result for result in item(study) if result.verdict is Verdict.VIOLATED] == []


@pytest.mark.parametrize("variant", ["corrected", "sharp"])
@pytest.mark.parametrize("d", [1, 2, 8])
def test_the_share_of_the_stuck_region(d: int, variant: Variant) -> None:
    x = " ".join(f"x{k}" for k in range(1, d + 1))
    box = {f"x{k}": (-1, 1) for k in range(1, d + 1)} | {"y": (-2, 2)}
    problem = BilevelProblem("sin(y)", f"y**2/2 - ({x.replace(' ', '+')})*y/{d}", x, "y", box=box)
    for result in CLAIMS["unlabelled:stuck-probability"](study_of(problem, variant=variant)):
        assert result.verdict is Verdict.HOLDS
        assert (result.tightness or 0) > 0.5


def test_the_scales_are_those_of_the_schedule() -> None:
    c = Constants(mu=1.0, ell=2.0, rho=1.0, nu=1.0, M=1.0)
    with pytest.warns(schedules.ScheduleWarning):
        schedule = schedules.perturbed_aid(c, eps=0.1, delta=0.1, d=3, episodes=1)
    goal = Goal(eps=0.1, delta=0.1, d=3, initial_error=1.0, gap=1.0, episodes=1)
    smooth = Smoothness(schedule.L_phi, schedule.rho_phi)
    scales = escape_of(smooth, goal, PERTURBED)
    nothing = np.zeros(3)
    saddle = Saddle(nothing, np.eye(3), nothing, -1.0, smooth, goal, scales, nothing, nothing, "a box")
    assert saddle.accuracy == schedule.accuracy
    assert saddle.omega == pytest.approx(2 ** (2 - schedule.iota) * schedule.L_phi * schedule.S_escape)


# ---- where nothing is said -------------------------------------------------------------------------------------------


def test_without_a_saddle_they_do_not_apply() -> None:
    study = known(zoo.get("implicit_cubic").problem, 1.2, 4.0, ((0.5,), "local minimum"))
    for label in AT_SADDLES:
        (result,) = CLAIMS[label](study)
        assert result.verdict is Verdict.NOT_APPLICABLE
        assert "negative curvature" in result.message


def test_an_incomplete_search_decides_nothing() -> None:
    study = known(zoo.get("saddle").problem, 1.2, 4.0)
    study.__dict__["_stationary"] = points(complete=False)
    for label in AT_SADDLES:
        (result,) = CLAIMS[label](study)
        assert result.verdict is Verdict.INCONCLUSIVE
        assert "not complete" in result.message


def test_without_certified_smoothness_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    study = waves(2)
    study.__dict__["_smoothness"] = BilevelError("no bracket here")
    monkeypatch.setattr(saddles, "PARTS", (None,))
    for label in AT_SADDLES:
        (result,) = CLAIMS[label](study)
        assert (result.verdict, result.message) == (Verdict.INCONCLUSIVE, "no bracket here")


def test_too_many_steps_are_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saddles, "PARTS", (None,))
    study = waves(2)
    study.__dict__["_smoothness"] = SimpleNamespace(L_phi=Bracket(1e4, 1e4), rho_phi=Bracket(1.0, 1.0))
    (slow,), (long,) = CLAIMS["lem:escapesaddle"](study), CLAIMS["lem:neon"](study)
    for result in (slow, long):
        assert result.verdict is Verdict.INCONCLUSIVE
        assert "steps" in result.message


def test_a_fall_below_rounding_is_not_claimed() -> None:
    """The same saddle on a hill of height 1e9: F drowns in the values of Phi."""
    base = waves(2).exact
    box = {s.name: (-2, 2) for s in base.x} | {s.name: (-3, 3) for s in base.y}
    lifted = BilevelProblem(base.f + 10**9, base.g, base.x, base.y, box=box)
    study = known(lifted, 1.0, 1.0, ((0.0, 0.0), "saddle"))
    for label in ("lem:escapesaddle", "lem:neon"):
        (result,) = CLAIMS[label](study)
        assert result.verdict is Verdict.INCONCLUSIVE
        assert "rounding" in result.message
    (decrease,) = CLAIMS["lem:saddle-decrease"](study)  # in many digits nothing drowns
    assert decrease.verdict is Verdict.HOLDS


# ---- the print -------------------------------------------------------------------------------------------------------


def test_the_printed_share_has_the_wrong_constants() -> None:
    """ell/sqrt(rho) stands where L_phi/sqrt(rho_phi) follows: on the cubic it is the smaller of the two."""
    problem = zoo.get("implicit_cubic").problem
    printed = CLAIMS["unlabelled:stuck-probability"](study_of(problem, variant="printed"))
    assert {result.verdict for result in printed} == {Verdict.VIOLATED}
    corrected = CLAIMS["unlabelled:stuck-probability"](study_of(problem))
    assert {result.verdict for result in corrected} == {Verdict.HOLDS}


def test_the_printed_step_climbs() -> None:
    """Without iota the step is a hundred times too long: Phi = -x1^2/2 + x1^4/24 + x2^2/2 rises along it.

    Over |x1| <= w = 0.13 the third derivatives are at most w. Along a direction of curvature -c, which has u1^2 about
    1/2, the mean of Phi at both ends of a step s changes by s^2 (-c/2 + s^2/96), with s = 1/(80 w) and c = 1/(80 iota).
    """
    w = sp.Rational(13, 100)
    x1, x2, y = sp.symbols("x1 x2 y", real=True)
    h = -(x1**2) / 2 + x1**4 / 24 + x2**2 / 2
    problem = BilevelProblem(y, y**2 / 2 - h * y, (x1, x2), (y,), box={"x1": (-w, w), "x2": (-w, w), "y": (-1, 1)})
    expected: dict[Variant, Verdict] = {"printed": Verdict.VIOLATED, "corrected": Verdict.HOLDS}
    for variant, verdict in expected.items():
        study = known(problem, 1.0, float(w), ((0.0, 0.0), "saddle"), variant=variant)
        (result,) = CLAIMS["lem:saddle-decrease"](study)
        assert (result.verdict, result.evidence) == (verdict, "certified")


# ---- planted defects -------------------------------------------------------------------------------------------------


def scaled(monkeypatch: pytest.MonkeyPatch, **factors: float) -> None:
    """The scales of an escape, multiplied."""
    before = escape_of

    def changed(*args: Any, **options: Any) -> Any:
        scales = before(*args, **options)
        new = {name: type(getattr(scales, name))(getattr(scales, name) * factor) for name, factor in factors.items()}
        return replace(scales, **new)

    for module in (saddles, escape):
        monkeypatch.setattr(module, "escape_of", changed)


def test_a_quarter_of_the_time_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled(monkeypatch, T_escape=0.25)
    found = by_part("lem:escapesaddle", waves(2))
    assert found["probability"].verdict is Verdict.VIOLATED
    assert found["coupling"].verdict is Verdict.VIOLATED


def test_steps_a_quarter_as_long_are_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled(monkeypatch, eta=0.25)
    assert by_part("lem:escapesaddle", waves(2))["probability"].verdict is Verdict.VIOLATED


def test_ascent_escapes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled(monkeypatch, eta=-1.0)
    found = by_part("lem:escapesaddle", waves(2))
    assert found["coupling"].verdict is Verdict.VIOLATED
    assert found["probability"].verdict is Verdict.VIOLATED


def test_a_larger_decrease_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """F a million times as large: more than all of Phi's range."""
    scaled(monkeypatch, F_escape=1e9)
    found = by_part("lem:escapesaddle", waves(2))
    assert found["coupling"].verdict is Verdict.VIOLATED
    assert found["probability"].verdict is Verdict.VIOLATED


def test_a_thinner_stuck_region_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Saddle, "omega", property(lambda s: 2.0 ** (-8 - s.escape.iota) * s.smooth.L_phi * s.escape.S_escape)
    )
    found = by_part("lem:escapesaddle", waves(2))
    assert found["stuck width"].verdict is Verdict.VIOLATED


def test_errors_beyond_what_is_allowed_prevent_the_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = perturbed_accuracy
    monkeypatch.setattr(saddles, "perturbed_accuracy", lambda goal, scales: 1e7 * allowed(goal, scales))
    assert by_part("lem:escapesaddle", waves(2))["probability"].verdict is not Verdict.HOLDS


def test_too_small_a_share_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled(monkeypatch, r=0.5)
    problem = zoo.get("scalar").problem
    assert {result.verdict for result in CLAIMS["unlabelled:stuck-probability"](study_of(problem))} == {
        Verdict.VIOLATED
    }


def test_more_curvature_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neon, "PRINTED", 200.0)  # at iota near 100: twice the most negative curvature
    found = by_part("lem:neon", waves(2))
    assert found["curvature"].verdict is Verdict.VIOLATED
    assert found["probability"].verdict is Verdict.VIOLATED


@pytest.mark.slow
def test_neon_that_climbs_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sign of iNEON's step: only curvature that is positive grows."""
    scaled(monkeypatch, eta=1.0)
    search = ineon.INeon.search

    def against(self: Any, oracle: Any, team: Any, lanes: Any, here: Any = None) -> Any:
        object.__setattr__(self, "eta", -self.eta)
        return search(self, oracle, team, lanes, here)

    monkeypatch.setattr(ineon.INeon, "search", against)
    found = by_part("lem:neon", waves(2))
    assert found["probability"].verdict is Verdict.VIOLATED


def test_a_larger_decrease_of_a_step_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A curvature that is said to be half of what it is needs twice the decrease that the sure one gives."""
    directions = neon.flat_directions
    monkeypatch.setattr(neon, "flat_directions", lambda saddle, least, rng: directions(saddle, least / 2, rng))
    assert {result.verdict for result in CLAIMS["lem:saddle-decrease"](waves(3))} == {Verdict.VIOLATED}


# ---- the pieces ------------------------------------------------------------------------------------------------------


def test_descents_fall_as_the_quadratic_says() -> None:
    """Near the saddle z1 grows by 1 + eta in each step, and Phi falls by its square over 2."""
    study = waves(2)
    saddle = easiest_saddle(study)
    start = 1e-7
    falls = descended(
        study, replace(saddle, escape=replace(saddle.escape, T_escape=5)), saddle.x + start * saddle.direction[None]
    )
    assert falls is not None
    grown = start * 2**5
    assert falls[0] == pytest.approx((grown**2 - start**2) / 2, rel=1e-3)


def test_the_direction_is_the_most_negative_one() -> None:
    saddle = easiest_saddle(waves(3))
    assert np.abs(saddle.direction) == pytest.approx([0.6, 0.8, 0.0])
    assert saddle.curvature == pytest.approx(-1.0)
    assert saddle.goal.eps == pytest.approx(0.99)


@pytest.mark.parametrize("pace", [PERTURBED, NEON])
def test_of_several_saddles_the_easiest_is_taken(pace: Any) -> None:
    example = zoo.get("tube_coupled")
    at = [(tuple(float(v) for v in point.x), point.kind) for point in example.stationary_points or ()]
    study = known(example.problem, 10.0, 1.0, *at)
    curvatures = [np.linalg.eigvalsh(study.kernels.hess_phi(np.array(x)))[0] for x, _ in at]
    assert easiest_saddle(study, pace).curvature == pytest.approx(min(curvatures))


def test_flat_directions_have_the_curvature_they_should() -> None:
    rng = np.random.default_rng(0)
    for d in (1, 2, 4):
        q, _ = np.linalg.qr(rng.standard_normal((d, d)))
        hessian = q @ np.diag([-1.0, *rng.uniform(-0.5, 2, d - 1)]) @ q.T
        saddle: Any = SimpleNamespace(hessian=(hessian + hessian.T) / 2)
        for u in neon.flat_directions(saddle, 0.01, rng):
            assert np.linalg.norm(u) == pytest.approx(1)
            assert u @ hessian @ u <= -0.01


def test_the_sharp_curvature_follows_from_the_proof() -> None:
    """The proof's own numbers: -(1/25 - ...) F-scales over 9^(2/3) S^2, above the printed 1/40 and 32/1125."""
    assert neon.PRINTED < 32 / 1125 < neon.SHARP < 0.064
    assert math.isclose(neon.SHARP, 2 * 0.0085593750 * 16 / 9 ** (2 / 3), rel_tol=1e-6)


def test_labels_are_those_of_the_paper() -> None:
    for item in CLAIMS.values():
        assert paper.cite(item.label) in (item.__doc__ or "")


def test_the_examples_run() -> None:
    for module in (escape, neon):
        assert doctest.testmod(module).failed == 0
