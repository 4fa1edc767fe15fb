"""Bounds on derivatives of y* and Phi: they hold, the misprint is refuted, and false bounds never pass."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sympy as sp
from helpers import THOROUGH, earned
from hypothesis import given, settings
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, MinimaxProblem, paper, zoo
from bilevel_sym.errors import BilevelError
from bilevel_sym.theories.huang_saddle.constants import Constants
from verify.papers.huang_saddle.claims import derivatives, lipschitz_hessian
from verify.papers.huang_saddle.measures import derivative_checks, norm_calculus
from verify.papers.huang_saddle.measures.norm_calculus import derived, follows
from verify.papers.huang_saddle.measures.regions import Region
from verify.papers.huang_saddle.measures.responses import Responses, responses
from verify.points.derivatives_at import Derivatives
from verify.registry import Claim
from verify.study import Study, study_of
from verify.verdict import Bracket, CheckResult, Verdict

MODULES = derivatives, lipschitz_hessian
CLAIMS = [item for module in MODULES for item in vars(module).values() if isinstance(item, Claim)]
NOTHING = Bracket(0.0, np.inf)
PLANE = {"x": (-1, 1), "y": (-1, 1)}
SMALL = ["scalar", "implicit_cubic", "saddle", "quadratic", "lphi_witness", "logistic", "minimax_nash", "minimax_not_nash",
         "minimax_degenerate", "ridge", "robust_regression", "stochastic_noise", "tube"]  # fmt: skip


@dataclass(frozen=True)
class Brackets:
    """What ``verify.smoothness`` gives, as far as these claims read it."""

    grad_norm: Bracket = NOTHING
    L_phi: Bracket = NOTHING
    rho_phi: Bracket = NOTHING
    points: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def with_smoothness(monkeypatch: pytest.MonkeyPatch, smoothness: Brackets | None) -> None:
    """Replace the certified search for sup |Hess Phi| by a given answer, or by a failure."""

    def found(self: Study) -> Brackets:
        if smoothness is None:
            raise BilevelError("no brackets in this test")
        return smoothness

    monkeypatch.setattr(Study, "smoothness", property(found))


@pytest.fixture(autouse=True)
def _without_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    with_smoothness(monkeypatch, None)


def results(problem: BilevelProblem, **options: Any) -> list[CheckResult]:
    study = study_of(problem, **options)
    found = [result for item in CLAIMS for result in item(study)]
    return [result for result in found if result.verdict is not Verdict.NOT_APPLICABLE]


def one(problem: BilevelProblem, label: str, part: str = "", **options: Any) -> CheckResult:
    (found,) = [r for r in results(problem, **options) if r.label == label and r.part == part]
    return found


# ---- the zoo -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(name=[name for name in SMALL if name != "tube"])
@pytest.mark.parametrize("name", SMALL)
def test_every_bound_holds_on_the_zoo(name: str) -> None:
    found = results(zoo.get(name).problem, effort=0.25)
    assert all(result.verdict is Verdict.HOLDS for result in found), [str(r) for r in found]
    assert all(earned(result) for result in found)


@pytest.mark.long
@pytest.mark.parametrize("name", ["tube_coupled", "tube_printed"])
def test_every_bound_holds_on_the_large_ones(name: str) -> None:
    assert {result.verdict for result in results(zoo.get(name).problem)} == {Verdict.HOLDS}


@pytest.mark.slow
def test_the_printed_l_phi_is_refuted_by_its_witness() -> None:
    witness = zoo.get("lphi_witness").problem
    printed, corrected = (one(witness, "grad-Lipschitz", variant=v) for v in ("printed", "corrected"))
    assert printed.verdict is Verdict.VIOLATED
    assert printed.bound == pytest.approx(74.0097, abs=1e-3)
    assert printed.measured == pytest.approx(80, abs=0.01)
    assert corrected.verdict is Verdict.HOLDS
    assert corrected.tightness is not None
    assert corrected.tightness > 0.9


@pytest.mark.slow
def test_certified_brackets_decide_first(monkeypatch: pytest.MonkeyPatch) -> None:
    example = zoo.get("lphi_witness")
    point = {"x": float(example.notes["witness"][0])}  # type: ignore[index]
    with_smoothness(monkeypatch, Brackets(L_phi=Bracket(79.99, 80.01), points={"L_phi": point}))
    for variant, verdict in (("printed", Verdict.VIOLATED), ("corrected", Verdict.HOLDS)):
        result = one(example.problem, "grad-Lipschitz", variant=variant)
        assert (result.verdict, result.evidence) == (verdict, "certified")


def test_a_bracket_outside_the_box_in_y_violates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # y* = 3 x^2 leaves the box beyond x = 1/2, and there Hess Phi is larger than the constants of the box allow
    problem = BilevelProblem("y**3", "y**2/2 - 3*x**2*y", "x", "y", box={"x": (0, 4), "y": (0, "3/4")})
    with_smoothness(monkeypatch, Brackets(L_phi=Bracket(207359, 2e9), points={"L_phi": {"x": 4.0}}))
    result = one(problem, "grad-Lipschitz")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "y* leaves the box in y for x in [0.5" in result.message


def test_a_bracket_that_is_not_attained_where_it_says_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = BilevelProblem("y**3", "y**2/2 - 3*x**2*y", "x", "y", box={"x": (0, 4), "y": (0, "3/4")})
    with_smoothness(monkeypatch, Brackets(L_phi=Bracket(1e9, 2e9), points={"L_phi": {"x": 0.25}}))
    result = one(problem, "grad-Lipschitz")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "only 3.16" in result.message


def test_points_whose_solution_leaves_the_box_are_left_out() -> None:
    problem = BilevelProblem("y**3", "y**2/2 - 3*x**2*y", "x", "y", box={"x": (0, 4), "y": (0, "3/4")})
    region = Region(np.array([0.0, 0.0]), np.array([4.0, 0.75]), 1, Constants(1.0, 24.0, 6.0, 0.0, 2.0), "the box")
    sample = responses(study_of(problem), region)
    assert sample.x.max() <= 0.5
    assert all(result.verdict is not Verdict.VIOLATED for result in results(problem))


def test_no_point_at_all_is_said_so() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - (5 + x)*y", "x", "y", box=PLANE)
    result = one(problem, "unlabelled:y-star-lipschitz")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "outside the box" in result.message


@pytest.mark.slow
@pytest.mark.parametrize("box", [{"x": ("1/2", "1/2"), "y": (-1, 1)}, {"x": (-1, 1)}])
def test_thin_boxes_and_boxes_in_x_alone(box: dict[str, Any]) -> None:
    problem = BilevelProblem("x*y + y**2", "y**2 + y**4/9 - x*y", "x", "y", box=box)
    assert all(result.verdict is not Verdict.VIOLATED for result in results(problem))


# ---- misprints and sharper constants ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_print_bounds_the_lower_gradient_without_reason() -> None:
    assert one(zoo.get("scalar").problem, "pro:bounds", "lower gradient", variant="printed").verdict is Verdict.VIOLATED
    # where g = -f it follows
    assert (
        one(zoo.get("minimax_nash").problem, "pro:bounds", "lower gradient", variant="printed").verdict is Verdict.HOLDS
    )
    assert all(result.part != "lower gradient" for result in results(zoo.get("scalar").problem))


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(
    ("label", "part"),
    [
        ("unlabelled:term-II", "(II)"),
        ("unlabelled:jacobian-third-product", ""),
        ("eq:y-hess-bound-final", ""),
        ("unlabelled:term-III", "(III)"),
        ("hess-Lipschitz", ""),
    ],
)
def test_printed_factors_are_too_large_and_hold(label: str, part: str) -> None:
    problem = zoo.get("scalar").problem
    printed, corrected = (one(problem, label, part, variant=v) for v in ("printed", "corrected"))
    assert printed.verdict is corrected.verdict is Verdict.HOLDS
    assert printed.bound is not None
    assert corrected.bound is not None
    assert printed.bound > corrected.bound * (1 + 1e-6)


@pytest.mark.slow
def test_l_phi_is_attained() -> None:
    # every second derivative is 2, mu = 1: Hess Phi = 2 (1 + 2)^2, which is the formula
    problem = BilevelProblem("(x + y)**2", "y**2/2 - 2*x*y", "x", "y", box={"x": (-1, 1), "y": (-2, 2)})
    result = one(problem, "grad-Lipschitz")
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, "proved")
    assert result.measured == result.bound == 18.0


@pytest.mark.slow
def test_kappa_one_and_isotropic_lower_levels() -> None:
    problem = BilevelProblem(
        "x1*y1 + sin(y2)", "(y1**2 + y2**2)/2 - x1*y1 - x2*y2", "x1 x2", "y1 y2",
        box={"x1": (-1, 1), "x2": (-1, 1), "y1": (-1, 1), "y2": (-1, 1)},
    )  # fmt: skip
    found = results(problem)
    assert {result.verdict for result in found} == {Verdict.HOLDS}
    assert one(problem, "unlabelled:y-star-lipschitz").measured == pytest.approx(1.0)


@pytest.mark.slow
def test_the_sharp_minimax_bound_is_smaller_and_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    game = MinimaxProblem("x**2/4 + x*y - y**2", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    sharp, corrected = (one(game, "lemC.1", "L_phi", variant=v) for v in ("sharp", "corrected"))
    assert sharp.verdict is corrected.verdict is Verdict.HOLDS
    joint = float(np.linalg.norm(np.array([[0.5, 1.0], [1.0, -2.0]]), 2))
    assert sharp.bound == pytest.approx(joint**2 / 2, rel=1e-6)
    assert corrected.bound == pytest.approx(4.0)
    assert sharp.measured == pytest.approx(1.0)
    with_smoothness(monkeypatch, Brackets(L_phi=Bracket(1.0, 1.0001), points={"L_phi": {"x": 0.0}}))
    assert one(game, "lemC.1", "L_phi", variant="sharp").evidence == "certified"


@pytest.mark.slow
def test_the_sharp_minimax_bound_is_never_the_larger_one() -> None:
    # the whole Hessian is larger than its blocks here, and the formula of the blocks the better one
    game = MinimaxProblem("x*y - y**2/2 - x**2/5", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    sharp, corrected = (one(game, "lemC.1", "L_phi", variant=v) for v in ("sharp", "corrected"))
    assert sharp.bound == corrected.bound == 2.0


@given(st.floats(0.05, 1.0), st.floats(-1.0, 1.0), st.floats(-1.0, 1.0), st.floats(-1.0, 1.0))
def test_the_sharp_minimax_bound_by_matrices(mu: float, a: float, b: float, c: float) -> None:
    lower = -mu - abs(c)
    ell = float(np.linalg.norm(np.array([[a, b], [b, lower]]), 2))
    assert abs(a - b * b / lower) <= ell**2 / mu * (1 + 1e-12)


# ---- what is false does not pass -------------------------------------------------------------------------------------


def shrunk(study: Study, **factors: float) -> Study:
    """A study whose certified constants are made too small: sampled ones passed off as certified."""
    valid = study.constants.valid
    changed: dict[str, Any] = {name: float(getattr(valid, name)) * factor for name, factor in factors.items()}
    smaller = replace(valid, **changed)
    object.__setattr__(study, "_constants", SimpleNamespace(valid=smaller))
    return study


@pytest.mark.parametrize(("constant", "part"), [("M", "first order"), ("rho", "third order"), ("ell", "second order")])
def test_constants_that_are_too_small_are_found_out(constant: str, part: str) -> None:
    study = shrunk(study_of(zoo.get("scalar").problem), **{constant: 0.9})
    verdicts = {result.part: result.verdict for result in derivatives.bounds(study)}
    assert verdicts[part] is Verdict.VIOLATED


def test_a_curvature_that_is_too_large_is_found_out() -> None:
    study = shrunk(study_of(zoo.get("scalar").problem), mu=1.1)
    verdicts = {result.part: result.verdict for result in derivatives.bounds(study)}
    assert verdicts["inverse Hessian"] is Verdict.VIOLATED


FALSE: dict[str, Any] = {
    "exponent": ("dy_dx", lambda s: s.dy_dx, lambda c: c.rho / c.mu * (1 + c.kappa)),
    "one half": (
        "d2y_dx2",
        lambda s: s.d2y_dx2,
        lambda c: (c.nu / c.mu + 3 * c.rho**2 / c.mu**2) * (1 + c.kappa) ** 3 / 2,
    ),
    "nu forgotten": ("dy_dx g_yxy", lipschitz_hessian._times_third, lambda c: c.rho**2 / c.mu * (1 + c.kappa) ** 2),
    "sandwich without nu": (
        "dy_dx g_yyy dy_dx'",
        lambda s: s.between("g_yyy"),
        lambda c: 2 * c.kappa * c.rho**2 / c.mu * (1 + c.kappa) ** 2,
    ),
    "term III": ("(III)", Responses.curvature, lambda c: c.rho * c.kappa * (1 + c.kappa) ** 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FALSE)
def test_a_false_bound_is_violated_on_the_tight_witness(name: str) -> None:
    proof, quantity, bound = FALSE[name]
    study = study_of(zoo.get("lphi_witness").problem)
    result = derivative_checks.lipschitz(
        study, "eq:y-grad-diff", quantity, bound, still=lambda tape: False, proof=proof, what=name
    )
    assert result.verdict is Verdict.VIOLATED
    assert not follows(bound, derived()[proof].lipschitz)


@pytest.mark.parametrize("label", ["hess", "grad", "(I)", "(II)", "(III)", "(IV)", "dy_dx", "d2y_dx2", "minimax hess"])
def test_no_formula_follows_that_is_smaller_than_the_derived_one(label: str) -> None:
    bound = derived()[label]
    for expression in (bound.norm, bound.lipschitz):
        assert follows(lambda _, e=expression: e, expression)  # type: ignore[misc]
        assert not follows(lambda _, e=expression: e * sp.Rational(999, 1000), expression)  # type: ignore[misc]
        assert not follows(lambda c, e=expression: e - c.M, expression)  # type: ignore[misc]


def test_a_loose_bound_that_is_not_derived_stays_open() -> None:
    study = study_of(zoo.get("robust_regression").problem)
    result = derivative_checks.lipschitz(
        study, "eq:y-grad-diff", lambda s: s.dy_dx, lambda c: c.ell**3 / c.mu, still=lambda tape: False,
        proof="dy_dx", what="dy_dx",
    )  # fmt: skip
    assert result.verdict is Verdict.INCONCLUSIVE


@pytest.mark.slow
def test_settling_never_turns_a_violation() -> None:
    violated = one(zoo.get("lphi_witness").problem, "grad-Lipschitz", variant="printed")
    kept = derivative_checks.settled(violated, lambda c: c.L_phi(), derived()["hess"].norm)
    assert kept is violated
    above = replace(violated, verdict=Verdict.INCONCLUSIVE)
    assert derivative_checks.settled(above, lambda c: c.L_phi(), derived()["hess"].norm) is above


@pytest.mark.slow
@pytest.mark.parametrize(("name", "factor"), [("dy_dx", 2), ("d2y_dx2", 3), ("v", 2)])
def test_a_broken_kernel_is_found_by_the_numbers(name: str, factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = vars(Derivatives)[name].func
    monkeypatch.setattr(Derivatives, name, property(lambda self: factor * honest(self)))
    verdicts = {result.verdict for result in results(zoo.get("lphi_witness").problem)}
    assert Verdict.VIOLATED in verdicts


# ---- two routes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scalar", "saddle", "quadratic", "logistic", "minimax_degenerate"])
def test_terms_add_up_to_the_kernels_hessian(name: str) -> None:
    problem = zoo.get(name).problem
    study = study_of(problem)
    low, high = np.full(problem.d + problem.n, -np.inf), np.full(problem.d + problem.n, np.inf)
    low[: problem.d], high[: problem.d] = study.x_ends
    sample = responses(study, Region(low, high, problem.d, Constants(1.0, 1.0, 0.0, 0.0, 1.0), "everywhere"))
    np.testing.assert_allclose(sample.hess_phi, problem.kernels.hess_phi(sample.x), atol=1e-9, rtol=1e-7)
    # the second derivative of y*, by differences of the first
    x = sample.x[:20]
    for j in range(problem.d):
        step = 1e-5 * np.eye(problem.d)[j]
        y = [problem.kernels.y_star(x + sign * step) for sign in (1, 0, -1)]
        np.testing.assert_allclose((y[0] - y[2]) / 2e-5, sample.dy_dx[:20, j], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_norm_calculus_against_random_numbers() -> None:
    rng = np.random.default_rng(0)
    symbols = {name: sp.Symbol(name, positive=True) for name in ("mu", "ell", "rho", "nu", "M")}
    for _ in range(5):
        mu, rho, nu, M = rng.uniform(0.1, 2, 4).tolist()
        constants = Constants(mu, mu * rng.uniform(1, 5), rho, nu, M)
        at = {symbols[name]: getattr(constants, name) for name in symbols}
        assert float(derived()["hess"].norm.subs(at)) == pytest.approx(constants.L_phi())
        assert float(derived()["grad"].lipschitz.subs(at)) == pytest.approx(constants.L_phi())
        assert float(derived()["hess"].lipschitz.subs(at)) == pytest.approx(constants.rho_phi())
        assert float(derived()["grad"].norm.subs(at)) == pytest.approx(constants.hypergradient_bound)
    assert norm_calculus.follows(lambda c: c.rho_phi(variant="printed"), derived()["hess"].lipschitz)
    assert not norm_calculus.follows(lambda c: c.L_phi(variant="printed"), derived()["hess"].norm)


def test_bounds_are_not_rounded() -> None:
    third = derivative_checks.as_bracket(Fraction(1, 3))
    assert third.lower < Fraction(1, 3) < third.upper
    assert derivative_checks.as_bracket(Fraction(10) ** 400).upper == np.inf
    with pytest.raises(BilevelError):
        derivative_checks.exact(Constants(1.0, 2.0, float("inf"), 1.0, 1.0))


@st.composite
def problems(draw: st.DrawFn) -> BilevelProblem:
    """A coupling, a bend in the lower level and one in the upper; strongly convex over the box."""
    d, n = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    small = st.integers(-4, 4).map(lambda k: sp.Rational(k, 4))
    x, y = sp.symbols(f"x1:{d + 1}", real=True), sp.symbols(f"y1:{n + 1}", real=True)
    bend = draw(st.sampled_from([sp.sin, sp.tanh, lambda t: t**3 / 6, sp.cos]))
    g = sum(b**2 for b in y) + sum(draw(small) * a * b for a in x for b in y) / 2
    g += bend(sum(draw(small) * s for s in (*x, *y))) / 4
    f = sum(draw(small) * a * b for a in x for b in y) + bend(sum(draw(small) * s for s in (*x, *y))) + y[0]
    box = {s.name: ("-1/2", "1/2") for s in x} | {s.name: (-2, 2) for s in y}
    return BilevelProblem(f, g, x, y, box=box)


@pytest.mark.slow
@settings(max_examples=8 if THOROUGH else 4)
@given(problem=problems(), seed=st.integers(0, 99))
def test_true_bounds_are_never_violated_on_random_problems(problem: BilevelProblem, seed: int) -> None:
    found = results(problem, seed=seed, effort=0.25)
    assert all(result.verdict is not Verdict.VIOLATED for result in found), [str(r) for r in found]


# ---- the registry ----------------------------------------------------------------------------------------------------


def test_titles_and_citations() -> None:
    by_label = {item.label: item for item in CLAIMS}
    assert by_label["grad-Lipschitz"].title == "grad Phi is Lipschitz with constant L_phi"
    for item in CLAIMS:
        text = inspect.getdoc(item.check) or ""
        assert f"Paper: {paper.cite(item.label)}" in text
        assert item.citation == paper.cite(item.label)
        assert "Assumes:" in text
    for needed in ("pro:bounds", "hess-Lipschitz", "lemC.1", "unlabelled:term-I", "unlabelled:term-IV"):
        assert needed in by_label
