"""The claims on estimated hypergradients: rates, errors along runs, warm starts; what they say of true and false bounds."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flint import arb

from bilevel_sym import AID, BilevelProblem, Constants, MinimaxProblem, evaluate, paper, zoo
from bilevel_sym.errors import BilevelError
from bilevel_sym.estimators.hypergradient import Estimate, Estimator, _implicit_part
from bilevel_sym.problem.box import Box
from bilevel_sym.theories import Variant
from verify.papers.huang_saddle.claims import descent, hypergradient_error, warm_start
from verify.papers.huang_saddle.measures import regions, runs
from verify.papers.huang_saddle.measures.regions import Region
from verify.papers.huang_saddle.measures.runs import rate_v, rate_y
from verify.papers.huang_saddle.measures.second_writing import plain
from verify.papers.huang_saddle.measures.second_writing.plain import Plain, norm
from verify.registry import Claim
from verify.study import Study, study_of
from verify.testkit.problem_cases import GeneratedCase
from verify.verdict import Bracket, CheckResult, Verdict

MODULES = (hypergradient_error, warm_start, descent)
CLAIMS = {
    item.label: item
    for module in MODULES
    for item in vars(module).values()
    if isinstance(item, Claim) and item.check.__module__ == module.__name__
}
SMALL = ["implicit_cubic", "lphi_witness", "saddle", "scalar", "quadratic", "minimax_nash", "minimax_not_nash", "ridge"]
TRUE: tuple[Variant, ...] = ("corrected", "sharp")
LARGE = ["tube_coupled", "tube_printed", "logistic", "robust_regression", "stochastic_noise"]


def results(problem: BilevelProblem, variant: Variant = "corrected", seed: int = 0) -> list[CheckResult]:
    study = study_of(problem, variant=variant, seed=seed)
    return [result for item in CLAIMS.values() for result in item(study)]


def of(label: str, problem: BilevelProblem, variant: Variant = "corrected") -> list[CheckResult]:
    return CLAIMS[label](study_of(problem, variant=variant))


def verdicts(label: str, problem: BilevelProblem, variant: Variant = "corrected") -> set[Verdict]:
    return {result.verdict for result in of(label, problem, variant)}


@pytest.fixture(autouse=True)
def _formulas_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certified smoothness has tests of its own; without it the claims take the formulas."""

    def missing(study: Study) -> None:
        raise BilevelError("no brackets in this test")

    monkeypatch.setattr(Study, "smoothness", property(missing))


# ---- true statements -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(variant=["corrected"], name=("saddle", "quadratic", "scalar", "minimax_nash"))
@pytest.mark.parametrize(
    ("name", "variant"),
    [
        *((name, "corrected") for name in SMALL),
        *(
            pytest.param(name, "sharp", marks=[pytest.mark.slow] * (name in ("ridge", "saddle", "scalar")))
            for name in SMALL
        ),
    ],
)
def test_true_claims_hold_on_the_zoo(name: str, variant: Variant) -> None:
    found = results(zoo.get(name).problem, variant)
    assert [result for result in found if result.verdict is Verdict.VIOLATED] == []
    spoken = [result for result in found if result.verdict is not Verdict.NOT_APPLICABLE]
    assert sum(result.decided or "so loose" in result.message for result in spoken) >= 0.8 * len(spoken)
    assert sum(result.decided for result in spoken) >= 0.7 * len(spoken)


@pytest.mark.slow
@pytest.mark.in_ci(name=("logistic", "robust_regression"))
@pytest.mark.parametrize("name", LARGE)
def test_true_claims_hold_on_the_rest_of_the_zoo(name: str) -> None:
    found = results(zoo.get(name).problem)
    assert [result for result in found if result.verdict is Verdict.VIOLATED] == []
    assert any(result.decided for result in found)


CORNERS = [
    BilevelProblem("x1*y1 + sin(x2)*y2", "y1**2 + y2**2 - x1*y1 - x2*y2", "x1 x2", "y1 y2"),  # isotropic
    BilevelProblem("x*y1 + y2**2", "y1**2/2 + y2**2 - x*y1 + x*y2/3", "x", "y1 y2"),  # d < n
    BilevelProblem("x1*y + cos(x2)", "y**2/2 + y**4/12 - (x1 + x2)*y/2", "x1 x2", "y"),  # d > n
    BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"),  # kappa = 1 in g
    BilevelProblem("y", "y**2/2 - sin(x)*y", "x", "y"),  # f_x = 0, constant blocks
    MinimaxProblem("x**2/2 + x*y - y**2", "x", "y"),
]


@pytest.mark.slow
@pytest.mark.in_ci(variant=["corrected"], every=2)
@pytest.mark.parametrize("variant", TRUE)
@pytest.mark.parametrize("k", range(len(CORNERS)))
def test_corner_cases_hold(k: int, variant: Variant) -> None:
    problem = CORNERS[k]
    box = {s.name: (-1, 1) if s in problem.x else (-2, 2) for s in (*problem.x, *problem.y)}
    study = study_of(problem, box=Box(box), variant=variant)
    found = [result for item in CLAIMS.values() for result in item(study)]
    assert [result for result in found if result.verdict is Verdict.VIOLATED] == []


@pytest.mark.slow
@pytest.mark.in_ci(d=(1, 3))
@pytest.mark.parametrize(
    ("d", "n", "spectrum"),
    [
        (1, 1, "2:2"),
        (3, 1, "1"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [(1, 3, "1:2:5"), (2, 2, "1:10"), (2, 3, "3:3:3")]),
    ],
)
def test_quadratics_hold(d: int, n: int, spectrum: str) -> None:
    try:
        problem = zoo.parse(f"quadratic,d={d},n={n},spectrum={spectrum},seed=3").problem
    except BilevelError:
        problem = zoo.parse(f"quadratic,d={d},n={n},seed=3").problem
    for variant in TRUE:
        found = results(problem, variant)
        assert [result for result in found if result.verdict is Verdict.VIOLATED] == []


@pytest.mark.slow
@pytest.mark.in_ci(seed=range(2))
@pytest.mark.parametrize("seed", range(12))
def test_random_quadratics_are_never_violated(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, n = rng.integers(1, 4, 2)
    problem = zoo.get("quadratic", d=int(d), n=int(n), seed=seed).problem
    for variant in TRUE:
        found = results(problem, variant, seed=seed)
        assert [result for result in found if result.verdict is Verdict.VIOLATED] == []


def test_a_box_that_y_star_leaves_is_said_so() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - 9*y - x*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    study = study_of(problem)
    for label in ("eq:warmstart-y", "eq:error-required", "lem:descent", "eq:hatphi"):
        (result,) = CLAIMS[label](study)
        assert result.verdict is Verdict.INCONCLUSIVE
        assert "y* is not inside" in result.message


# ---- the print -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("label", ["eq:warmstart-y", "eq:warmstart-v"])
def test_the_printed_recursions_break_at_a_perturbation(label: str) -> None:
    """They bound how far x has moved by the estimate, and a perturbation moves it too."""
    problem = zoo.get("saddle").problem
    assert verdicts(label, problem, "printed") == {Verdict.VIOLATED}
    assert verdicts(label, problem, "corrected") == {Verdict.HOLDS}


@pytest.mark.slow
def test_the_printed_gamma_1_forgets_the_perturbation() -> None:
    """y* = x follows x at full speed, and x may jump by any r."""
    problem = BilevelProblem("sin(y)", "y**2/2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-2, 2)})
    assert verdicts("eq:equvseq", problem, "printed") == {Verdict.VIOLATED}
    assert verdicts("eq:equvseq", problem) == {Verdict.HOLDS}


# ---- planted defects -------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def _rates(y: Callable[[float], float] | None = None, v: Any = None) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        if y is not None:
            change = y
            patch.setattr(runs, "rate_y", lambda c, variant: change(rate_y(c, variant)))
        if v is not None:
            patch.setattr(runs, "rate_v", v)

    return plant


def _off_by_one(kappa: Any, steps: int, variant: Variant) -> Any:
    return rate_v(kappa, steps + 1, variant)


def _no_condition(kappa: Any, steps: int, variant: Variant) -> Any:
    root = np.sqrt(np.asarray(kappa))
    return ((root - 1) / (root + 1)) ** steps


def _squared_rate(kappa: Any, steps: int, variant: Variant) -> Any:
    return rate_v(kappa, 2 * steps, variant)


FALSE_RATES: dict[str, tuple[str, Plant, Variant]] = {
    "exponent 2 D": ("eq:gdrate", _rates(lambda rate: rate**4), "corrected"),
    "exponent 3 D/2": ("eq:gdrate", _rates(lambda rate: rate**3), "corrected"),
    "exponent 2 D, sharp": ("eq:gdrate", _rates(lambda rate: rate**2), "sharp"),
    "N + 1 steps of CG": ("eq:cgrate", _rates(v=_off_by_one), "sharp"),
    "2 sqrt(kappa) missing": ("eq:cgrate", _rates(v=_no_condition), "corrected"),
    "exponent 2 N": ("eq:cgrate", _rates(v=_squared_rate), "corrected"),
    "exponent 2 D in the warm start": ("eq:warmstart-y", _rates(lambda rate: rate**4), "corrected"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FALSE_RATES)
def test_false_rates_are_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    label, plant, variant = FALSE_RATES[name]
    plant(monkeypatch)
    said = [verdicts(label, zoo.get(problem).problem, variant) for problem in ("quadratic", "saddle", "ridge")]
    assert {Verdict.VIOLATED} in said


def test_d_plus_one_steps_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound for D + 1 steps, for what D steps leave: refuted by the quadratic, where the sharp rate is attained."""
    exact = rate_y

    class Later(float):
        def __pow__(self, steps: Any, mod: Any = None) -> float:  # rate**D becomes rate**(D + 1)
            return float(float(self) ** (steps + 1))

    monkeypatch.setattr(runs, "rate_y", lambda c, variant: Later(exact(c, variant)))
    assert verdicts("eq:gdrate", zoo.get("quadratic").problem, "sharp") == {Verdict.VIOLATED}


@pytest.mark.slow
def test_d_in_place_of_half_d_is_true_and_is_the_sharp_form() -> None:
    """The print loses a square root: a step of size 1/ell keeps 1 - mu/ell, not its root."""
    problem = zoo.get("quadratic").problem
    (sharp,), (printed,) = of("eq:gdrate", problem, "sharp"), of("eq:gdrate", problem)
    assert sharp.verdict is printed.verdict is Verdict.HOLDS
    assert sharp.tightness is not None
    assert printed.tightness is not None
    assert 0.9 < sharp.tightness <= 1


@dataclass(frozen=True)
class WrongSign(Estimator):
    """AID that adds the implicit term instead of subtracting it."""

    D: int
    N: int
    tau: float

    def _chunk(self, oracle: Any, x: Any, y: Any, v: Any, lanes: slice) -> Estimate:
        found = AID(self.D, self.N, self.tau)._chunk(oracle, x, y, v, lanes)
        return found._replace(grad=found.grad + 2 * _implicit_part(oracle, x, found.y, found.v, lanes))


@dataclass(frozen=True)
class Motionless(Estimator):
    """AID that computes its steps of y and forgets them."""

    D: int
    N: int
    tau: float

    def _chunk(self, oracle: Any, x: Any, y: Any, v: Any, lanes: slice) -> Estimate:
        return AID(self.D, self.N, self.tau)._chunk(oracle, x, y, v, lanes)._replace(y=y.copy())


@dataclass(frozen=True)
class OneShort(Estimator):
    """AID that returns the v before the last step, as a loop does that leaves too early."""

    D: int
    N: int
    tau: float

    def _chunk(self, oracle: Any, x: Any, y: Any, v: Any, lanes: slice) -> Estimate:
        found = AID(self.D, self.N, self.tau)._chunk(oracle, x, y, v, lanes)
        return found._replace(v=v.copy(), grad=found.grad + _implicit_part(oracle, x, found.y, found.v - v, lanes))


BROKEN = {
    "sign of the implicit term": ("lem:grad-err-aid", WrongSign),
    "y is not moved": ("eq:warmstart-y", Motionless),
    "v is not moved": ("eq:warmstart-v", OneShort),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_broken_estimators_are_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    label, broken = BROKEN[name]
    for module in (hypergradient_error, warm_start):
        monkeypatch.setattr(module, "AID", broken)
    problem = zoo.get("lphi_witness" if broken is OneShort else "saddle").problem
    assert Verdict.VIOLATED in verdicts(label, problem)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "changes"),
    [
        ("eq:gdrate", {"mu": 8.0}),
        ("eq:warmstart-y", {"mu": 8.0}),
    ],
)
def test_constants_passed_off_as_certified_are_found_out(
    label: str, changes: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants that are too good, as from too few samples."""
    study = study_of(zoo.get("saddle").problem)
    true = study.constants.valid
    larger: dict[str, Any] = {name: value * float(getattr(true, name)) for name, value in changes.items()}
    false = replace(true, **larger)
    study.__dict__["_constants"] = SimpleNamespace(valid=false)
    monkeypatch.setattr(regions, "PARTS", ())
    assert {result.verdict for result in CLAIMS[label](study)} != {Verdict.HOLDS}


def test_rounding_of_an_ill_conditioned_lower_level_refutes_no_descent() -> None:
    problem = GeneratedCase("ill-conditioned system", 0).problem()  # steps of 1e-15, and y* to ten digits
    assert Verdict.VIOLATED not in verdicts("lem:descent", problem)


@pytest.mark.slow
def test_a_smoothness_passed_off_as_certified_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    false = SimpleNamespace(L_phi=Bracket(0.1, 0.35))  # Hess Phi has norm 1 at the saddle
    monkeypatch.setattr(Study, "smoothness", property(lambda study: false))
    assert verdicts("lem:descent", zoo.get("saddle").problem, "sharp") == {Verdict.VIOLATED}


@pytest.mark.slow
def test_gamma_1_without_the_steps_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "gammas", lambda run, c, eta, variant: (run.off_y + run.off_v)[:, 0])
    assert verdicts("eq:equvseq", zoo.get("saddle").problem) == {Verdict.VIOLATED}


@pytest.mark.slow
@pytest.mark.parametrize("label", ["eq:error-required", "eq:est-error-neon"])
def test_fewer_inner_steps_do_not_suffice(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_asked_by_escape" if label == "eq:error-required" else "_asked_by_neon"
    asks = getattr(warm_start, name)

    def fewer(study: Study, region: Region, initial: float) -> Any:
        asked, escape = asks(study, region, initial)
        return replace(asked, D=max(1, asked.D // 16)), escape

    monkeypatch.setattr(warm_start, name, fewer)
    assert Verdict.VIOLATED in verdicts(label, zoo.get("saddle").problem)


@pytest.mark.slow
def test_a_descent_lemma_with_a_larger_decrease_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """eta |estimate|^2 in place of eta/4 |estimate|^2, by way of estimates that are said to be twice as long."""
    before = runs.recorded

    def longer(*args: Any) -> Any:
        run = before(*args)
        return replace(run, grad_phi_hat=2 * run.grad_phi_hat, grad_phi=run.grad_phi + run.grad_phi_hat)

    monkeypatch.setattr(descent, "recorded", longer)
    assert Verdict.VIOLATED in verdicts("lem:descent", zoo.get("saddle").problem)


@pytest.mark.slow
def test_ascent_is_no_descent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sign of the step: a run that is read backwards climbs."""
    before = runs.recorded

    def backwards(*args: Any) -> Any:
        run = before(*args)
        arrays = {name: value[:, ::-1] for name, value in vars(run).items()}
        return runs.Run(**arrays)

    monkeypatch.setattr(descent, "recorded", backwards)
    assert verdicts("lem:descent", zoo.get("saddle").problem) == {Verdict.VIOLATED}


# ---- the pieces ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [1.0, 1.5, 4.0, 100.0])
@pytest.mark.parametrize("steps", range(6))
def test_the_sharp_rate_of_cg_is_chebyshevs(kappa: float, steps: int) -> None:
    if kappa > 1:
        value = np.polynomial.chebyshev.chebval((kappa + 1) / (kappa - 1), [0] * steps + [1])
        assert rate_v(kappa, steps, "sharp") == pytest.approx(min(1, np.sqrt(kappa) / value))
    assert rate_v(kappa, steps, "sharp") <= rate_v(kappa, steps, "corrected") + (steps == 0)


def test_rates_are_those_of_the_constants() -> None:
    c = Constants(mu=1.0, ell=4.0, rho=0.0, nu=0.0, M=1.0)
    y, v = c.warm_start_factors(6, 3)
    assert rate_v(c.kappa, 3, "corrected") == pytest.approx(v)
    start, _ = c.warm_start_factors(0, 3)
    assert rate_y(c, "corrected") ** 6 == pytest.approx(y / start)


@pytest.mark.parametrize("kappa", [1.0, 1.1, 3.0, 40.0])
def test_halving_is_the_smallest_that_contracts(kappa: float) -> None:
    c = Constants(mu=1.0, ell=kappa, rho=0.5, nu=1.0, M=2.0)
    D, N = runs.halving(c, "corrected")
    assert c.aid_contracts(D, N)
    assert D == 1 or not c.aid_contracts(D - 1, N)
    assert N == 1 or not c.aid_contracts(D, N - 1)


@pytest.mark.parametrize("name", ["saddle", "scalar", "logistic"])
def test_many_digits_agree_with_floats_and_with_certificates(name: str) -> None:
    problem = zoo.get(name).problem
    x, y, v = np.full(problem.d, 0.3), np.full(problem.n, 0.1), np.full(problem.n, -0.2)
    rough = AID(5, 2, 0.05).estimate(problem, x, y0=y, v0=v)
    long = Plain(problem)
    with Plain.precision():
        fine = long.estimate([arb(a) for a in x], [arb(a) for a in y], [arb(a) for a in v], D=5, N=2, tau=arb(0.05))
        exact = long.exact([arb(a) for a in x], [arb(a) for a in y])
        assert np.allclose([float(a) for a in fine.grad], rough.grad_phi_hat, rtol=1e-12, atol=1e-14)
        assert np.allclose([float(a) for a in fine.v], rough.v_N, rtol=1e-12, atol=1e-14)
        certificate = evaluate(problem, list(x), digits=50)
        difference = norm(
            [
                a - arb(ball.mid._mpf_ and str(ball.mid))
                for a, ball in zip(exact.grad, certificate.grad_phi, strict=True)
            ]
        )
        assert float(difference) < 1e-12


@pytest.mark.slow
def test_regions_have_constants_of_their_own() -> None:
    study = study_of(zoo.get("saddle").problem)
    whole, *parts = regions.regions(study)
    assert whole.name == "the box"
    assert len(parts) == len(regions.PARTS)
    for part in parts:
        assert part.constants.kappa < whole.constants.kappa
        assert part.constants.L_phi() < whole.constants.L_phi()
        assert (part.lower >= whole.lower).all()
        assert (part.upper <= whole.upper).all()


def test_nothing_outside_the_region_is_used() -> None:
    study = study_of(zoo.get("saddle").problem)
    region = next(iter(regions.regions(study)))
    start = runs.starts(study, region, 6, "test")
    tight = replace(region, lower=region.lower / 4, upper=region.upper / 4)
    run = runs.recorded(study, tight, runs.shaken(AID(2, 1, 1 / 13), region, 0.2), start, 6, "test")
    assert not run.usable.all()
    x, y = run.x[run.usable], run.y_star[run.usable]
    assert tight.holds(x, y).all()
    assert np.isnan(run.grad_phi[~run.usable]).all()
    assert "left the region" in run.left_out


def test_what_rounding_could_have_made_decides_nothing() -> None:
    study = study_of(zoo.get("scalar").problem)
    one = np.ones(1)
    for measured, bound, noise in ((1e-13, 1.0, 1e-12), (1.0, 1.0 + 1e-13, 1e-12), (1.0, 1.0 - 1e-13, 1e-12)):
        result = runs.compared("eq:gdrate", study, measured * one, bound * one, noise, message="")
        assert result.verdict is Verdict.INCONCLUSIVE
    assert runs.compared("eq:gdrate", study, one, 0.9 * one, 1e-12, message="").verdict is Verdict.VIOLATED
    assert runs.compared("eq:gdrate", study, np.nan * one, one, 0.0, message="").verdict is Verdict.INCONCLUSIVE


def test_an_exact_estimate_is_proved_to_be_exact() -> None:
    for name in ("tube", "tube_printed"):
        assert hypergradient_error.never_errs(zoo.get(name, d=2).problem)
    assert not hypergradient_error.never_errs(zoo.get("saddle").problem)
    (result,) = of("lem:grad-err-aid", zoo.get("tube", d=2).problem)
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, "proved")


def test_isotropic_lower_levels_are_seen() -> None:
    assert hypergradient_error.isotropic(zoo.get("robust_regression").problem) == 1
    assert hypergradient_error.isotropic(BilevelProblem("x*y1", "y1**2 + y2**2 + y1*y2/9", "x", "y1 y2")) is None


def test_where_no_constants_are_certified_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(zoo.get("saddle").problem)
    study.__dict__["_constants"] = BilevelError("no certificate here")
    monkeypatch.setattr(regions, "PARTS", ())
    (result,) = CLAIMS["eq:warmstart-v"](study)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "no certificate here" in result.message


@pytest.mark.slow
def test_the_same_seed_gives_the_same_verdict() -> None:
    problem = zoo.get("minimax_not_nash").problem
    first, second = (results(problem) for _ in range(2))
    assert [(r.measured, r.bound) for r in first] == [(r.measured, r.bound) for r in second]


def test_labels_are_those_of_the_paper() -> None:
    for item in CLAIMS.values():
        assert paper.cite(item.label) in (item.__doc__ or "")


@pytest.mark.slow
def test_the_examples_run() -> None:
    for module in (*MODULES, runs, regions, plain):
        outcome = doctest.testmod(module)
        assert outcome.failed == 0
