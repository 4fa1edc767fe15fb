"""Faults in what claims rest on are noticed: each is planted, and a claim must no longer hold.

They were planted once and noticed by no claim: runs took the compiled path and the bounds were thousands of times too
large, lemmas tested a second implementation, what was missing made claims inapplicable, and brackets were compared with
themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import verify
from bilevel_sym import Constants, zoo
from bilevel_sym.estimators import batches, hypergradient, linear_system
from bilevel_sym.implicit import second_order as implicit
from bilevel_sym.solvers import ineon, noise, perturbed, stocbio
from bilevel_sym.solvers.algorithm import Move
from bilevel_sym.solvers.local_minimum import LocalMinimum
from verify.papers.huang_saddle.claims import hypergradient_error
from verify.papers.huang_saddle.measures import runs
from verify.papers.huang_saddle.measures.second_writing.plain import engines
from verify.points import stationary
from verify.points.derivatives_at import Derivatives
from verify.registry import NotApplicable
from verify.regularity import phi_smoothness
from verify.verdict import Bracket, CheckResult, Verdict

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
NEUMANN, IMPLICIT, SEARCH, SMOOTHNESS = (
    linear_system.neumann_series,
    hypergradient._implicit_part,
    stationary.search,
    phi_smoothness.smoothness,
)
BALL, HESSIAN = noise.uniform_in_ball, implicit.hessian_of


def implicit_term_halved(patch: Patch) -> None:
    patch.setattr(hypergradient, "_implicit_part", lambda *args: 0.5 * IMPLICIT(*args))


def series_two_terms_short(patch: Patch) -> None:
    def short(product: Any, right: Any, eta: float, terms: int) -> Any:
        return NEUMANN(product, right, eta, max(0, terms - 2))

    patch.setattr(hypergradient, "neumann_series", short)
    patch.setattr(stocbio, "neumann_series", short)


def stocbio_series_one_term_short(patch: Patch) -> None:
    patch.setattr(stocbio, "neumann_series", lambda p, r, eta, terms: NEUMANN(p, r, eta, max(0, terms - 1)))


def response_times_minus_1_5(patch: Patch) -> None:
    true = Derivatives.__dict__["dy_dx"].func
    patch.setattr(Derivatives, "dy_dx", property(lambda self: -1.5 * true(self)))


def hessian_without_a_term(patch: Patch) -> None:
    patch.setattr(implicit, "hessian_of", lambda algebra, take, response: HESSIAN(algebra, take, 0 * response))


def saddles_dropped(patch: Patch) -> None:
    def without(*args: Any, **options: Any) -> Any:
        found = SEARCH(*args, **options)
        return dataclasses.replace(found, points=tuple(p for p in found.points if p.kind != "saddle"))

    patch.setattr(stationary, "search", without)


def everything_dropped(patch: Patch) -> None:
    def without(*args: Any, **options: Any) -> Any:
        return dataclasses.replace(SEARCH(*args, **options), points=())

    patch.setattr(stationary, "search", without)


def smoothness_times(factor: float) -> Plant:
    def plant(patch: Patch) -> None:
        def scaled(*args: Any, **options: Any) -> Any:
            found = SMOOTHNESS(*args, **options)
            names = ("grad_norm", "L_phi", "rho_phi")
            brackets = {name: getattr(found, name) for name in names}
            changed: dict[str, Any] = {k: Bracket(factor * b.lower, factor * b.upper) for k, b in brackets.items()}
            return dataclasses.replace(found, **changed)

        patch.setattr(phi_smoothness, "smoothness", scaled)

    return plant


def _run_of(module: Any, name: str) -> Any:
    return vars(module)[name]


def perturbs_too_soon(patch: Patch) -> None:
    run = _run_of(perturbed, "_PerturbedRun")
    true = run.move

    def move(self: Any, team: Any, estimate: Any) -> Move:
        team.clock = team.clock + 1
        return true(self, team, estimate)  # type: ignore[no-any-return]

    patch.setattr(run, "move", move)


def noise_too_long(patch: Patch) -> None:
    patch.setattr(noise, "uniform_in_ball", lambda rng, d, r: 1.01 * BALL(rng, d, r))


def noise_on_the_sphere(patch: Patch) -> None:
    def sphere(rng: Any, d: int, r: float) -> Any:
        u = BALL(rng, d, r)
        return r * u / np.linalg.norm(u)

    patch.setattr(noise, "uniform_in_ball", sphere)


def cold_start(patch: Patch) -> None:
    run = _run_of(perturbed, "_PerturbedRun")
    true = run.estimate

    def estimate(self: Any, team: Any) -> Any:
        team.y = np.zeros_like(team.y)
        return true(self, team)

    patch.setattr(run, "estimate", estimate)


def ascent_halfway(patch: Patch) -> None:
    true = hypergradient._descended
    patch.setattr(hypergradient, "_descended", lambda o, x, y, lanes, steps, tau: true(o, x, y, lanes, steps, tau / 2))


def unrolled_without_curvature(patch: Patch) -> None:
    true = hypergradient._product

    def product(session: Any, name: str) -> Any:
        wanted = true(session, name)
        return (lambda u: 0 * wanted(u)) if name == "g_yy_v" else wanted

    patch.setattr(hypergradient, "_product", product)


def search_stops_late(patch: Patch) -> None:
    patch.setattr(ineon, "FOUND_SHARE", 0.999)


def escape_too_far(patch: Patch) -> None:
    patch.setattr(stocbio.StocBiO, "escape_step", property(lambda self: self.escape.escape_step))


def minimum_without_curvature(patch: Patch) -> None:
    def holds(self: LocalMinimum, kernels: Any, x: Any, y: Any = None, *, rng: int = 0) -> bool:
        return bool(np.linalg.norm(kernels.grad_phi(x)) <= self.eps)

    patch.setattr(LocalMinimum, "holds", holds)


def end_told_the_other_way(patch: Patch) -> None:
    true = LocalMinimum.holds
    patch.setattr(LocalMinimum, "holds", lambda *args, **options: not true(*args, **options))


def rows_drawn_at_once_in_another_order(patch: Patch) -> None:
    true = batches.Data.in_turn

    def in_turn(self: Any, streams: Any, asked: Any, *, replacement: bool = True) -> Any:
        return true(self, streams[::-1], asked, replacement=replacement)

    patch.setattr(batches.Data, "in_turn", in_turn)


def formula_halved(patch: Patch) -> None:
    true = Constants.L_phi
    patch.setattr(Constants, "L_phi", lambda *args, **options: true(*args, **options) / 2)


FAULTS: dict[str, tuple[Plant, str, str]] = {
    "AID's implicit term halved on the NumPy path": (implicit_term_halved, "saddle", "eq:aid-step2"),
    "the Neumann series two terms short": (series_two_terms_short, "saddle", "est-vq"),
    "the series of stocBiO one term short": (stocbio_series_one_term_short, "stochastic_noise", "estG"),
    "dy_dx times -1.5 in the measures": (response_times_minus_1_5, "saddle", "own:routes"),
    "a kernel's Hessian without its last term": (hessian_without_a_term, "saddle", "own:routes"),
    "saddles dropped from the search": (saddles_dropped, "saddle", "def:local-min"),
    "every point dropped from the search": (everything_dropped, "scalar", "def:local-min"),
    "certified smoothness halved": (smoothness_times(0.5), "scalar", "grad-Lipschitz"),
    "certified smoothness halved, third order": (smoothness_times(0.5), "scalar", "hess-Lipschitz"),
    "the formula for L_phi halved, where half of it is attained": (formula_halved, "tight", "grad-Lipschitz"),
    "certified smoothness doubled": (smoothness_times(2.0), "scalar", "grad-Lipschitz"),
    "a perturbation one iteration too soon": (perturbs_too_soon, "saddle", "alg:perturbedalg"),
    "noise one hundredth too long": (noise_too_long, "saddle", "alg:perturbedalg"),
    "noise on the sphere": (noise_on_the_sphere, "saddle", "alg:iNEON"),
    "no warm start": (cold_start, "scalar", "alg:perturbedalg"),
    "GDmax with half the step": (ascent_halfway, "minimax_not_nash", "unlabelled:gdmax-estimate"),
    "ITD without the curvature of g": (unrolled_without_curvature, "scalar", "own:itd"),
    "iNEON stops late": (search_stops_late, "saddle", "alg:iNEON"),
    "an escape twice as far": (escape_too_far, "stochastic_noise", "alg:INEONstocbio"),
    "the end of a search told the other way": (end_told_the_other_way, "stochastic_noise", "alg:INEONstocbio"),
    "rows of arrays drawn in another order": (rows_drawn_at_once_in_another_order, "stochastic_noise", "estG"),
    "a minimum by its gradient alone": (minimum_without_curvature, "saddle", "def:local-min"),
}


def results(problem: str, label: str) -> list[CheckResult]:
    return [r for r in verify.run(zoo.get(problem).problem, claims=[label], rng=0).results if r.label == label]


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(("problem", "label"), sorted({(p, label) for _, p, label in FAULTS.values()}))
def test_without_a_fault_the_claim_holds(problem: str, label: str) -> None:
    found = results(problem, label)
    assert {result.verdict for result in found} == {Verdict.HOLDS}
    assert any(result.tested for result in found)


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(name: str, monkeypatch: Patch) -> None:
    plant, problem, label = FAULTS[name]
    plant(monkeypatch)
    assert {result.verdict for result in results(problem, label)} & {Verdict.VIOLATED, Verdict.INCONCLUSIVE}


@pytest.mark.skipif("compiled" not in engines(), reason="wants numba")
def test_a_fault_in_compiled_code_alone_is_noticed(monkeypatch: Patch) -> None:
    from bilevel_sym.solvers.compiled.compiled_loop import CompiledLoop

    true = CompiledLoop.advance

    def advance(self: Any, state: Any, steps: int, rule: Any, record: Any = None) -> None:
        true(self, state, steps, rule, record)
        if record is not None:
            record.grads[:] *= 1 + 1e-9

    monkeypatch.setattr(CompiledLoop, "advance", advance)
    (found,) = (r for r in results("saddle", "eq:aid-step2") if r.part == "few steps of CG")
    assert found.verdict is Verdict.VIOLATED
    assert "by compiled" in found.message


# ---- bounds that are too large ---------------------------------------------------------------------------------------

COEFFICIENTS, RATE = hypergradient_error._coefficients, runs.rate_y


@pytest.mark.slow
def test_a_bound_a_thousand_times_too_large_is_not_called_tested(monkeypatch: Patch) -> None:
    def part() -> CheckResult:
        return next(r for r in results("saddle", "lem:grad-err-aid") if r.part == "one iteration")

    assert part().verdict is Verdict.HOLDS
    larger = lambda *args: tuple(1e3 * value for value in COEFFICIENTS(*args))  # noqa: E731
    monkeypatch.setattr(hypergradient_error, "_coefficients", larger)
    assert part().verdict is Verdict.INCONCLUSIVE
    assert "nothing was tested" in part().message


@pytest.mark.slow
def test_a_rate_a_thousand_times_too_large_is_not_called_tested(monkeypatch: Patch) -> None:
    assert results("saddle", "eq:gdrate")[0].verdict is Verdict.HOLDS
    monkeypatch.setattr(runs, "rate_y", lambda *args: 1e3 * RATE(*args))
    assert results("saddle", "eq:gdrate")[0].verdict is Verdict.INCONCLUSIVE


@pytest.mark.slow
def test_the_region_in_which_the_bound_is_tightest_is_named() -> None:
    found = next(r for r in results("saddle", "lem:grad-err-aid") if r.part == "one iteration")
    assert found.tightness is not None
    assert found.tightness > 0.1
    assert found.region.startswith("a box of 0.005 of the width")


def test_what_a_claim_said_before_it_gave_up_stays_said() -> None:
    @verify.claim("own:gives-up")
    def gives_up(study: Any) -> Any:
        """It says one thing, and has no more to say."""
        yield verify.judged("own:gives-up", 2.0, 1.0, evidence="proved", message="false")
        raise NotApplicable("nothing else applies")

    found = verify.run(zoo.get("scalar").problem, claims=[gives_up]).results
    assert [result.verdict for result in found] == [Verdict.VIOLATED, Verdict.NOT_APPLICABLE]


@pytest.mark.slow
def test_what_holds_by_definition_says_so() -> None:
    labels = ["assu:bilevel", "lemma3.4-long", "unlabelled:sketch-iteration-bound", "unlabelled:remark-large-iota"]
    report = verify.run(zoo.get("saddle").problem, claims=labels, rng=0)
    assert {(r.verdict, r.evidence) for r in report.results} == {(Verdict.HOLDS, "by definition")}
    assert report.to_text().splitlines()[-1] == f"{len(report.results)} statements: {len(report.results)} by definition"
    for problem, label in (("minimax_nash", "assu:minimax"), ("stochastic_noise", "ass:variance-bound")):
        held = [r for r in results(problem, label) if r.verdict is Verdict.HOLDS]
        assert {r.evidence for r in held} == {"by definition"}
