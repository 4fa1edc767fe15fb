"""The second theory: its formulas by a second route, its claims on the zoo, and the doors through which it is asked."""

from __future__ import annotations

import contextlib
import io
import json
import math
from functools import lru_cache

import numpy as np
import pytest
import sympy as sp

from bilevel_sym import AID, BilevelProblem, errors, solve, verify, zoo
from bilevel_sym.cli import main
from bilevel_sym.theories import statements
from bilevel_sym.theories.ji2021.constants import RateConstants
from bilevel_sym.theories.ji2021.paper import STATEMENTS
from bilevel_sym.theories.ji2021.schedules import aid_bio, ba, itd_bio
from verify.papers.ji2021.regions import rate_constants
from verify.theory import theory_of

EXAMPLE = RateConstants(mu=0.5, L=2.0, M=1.5, tau=0.7, rho=1.3)
NAMES = ("mu", "L", "M", "tau", "rho")


# ---- formulas ---------------------------------------------------------------------------------------------------


def test_both_papers_have_one_constant() -> None:
    """Lemma 2 of the one, corrected, is Lemma 2.2 (c) of the other, and (1 + kappa) C, as rational functions."""
    symbols = sp.symbols("mu L M tau rho", positive=True)
    mu, L, M, tau, rho = symbols
    exact = object.__new__(RateConstants)
    for name, symbol in zip(NAMES, symbols, strict=True):
        object.__setattr__(exact, name, symbol)
    C = L + L * L / mu + M * (tau / mu + rho * L / mu**2)
    by_c = L + (L + C) * L / mu + M * (tau / mu + rho * L / mu**2)
    assert sp.cancel(exact.L_phi() - by_c) == sp.cancel(exact.C - C) == sp.cancel(exact.L_phi() - (1 + L / mu) * C) == 0
    assert sp.cancel(exact.L_phi() - exact.L_phi(variant="printed") - tau * (M - M**2) / mu) == 0


def test_the_constant_is_that_of_a_generic_second_derivative() -> None:
    """d = n = 1: every term of Phi'' has its largest size, and they add up to L_phi; by SymPy's own differentiation."""
    x, y = sp.symbols("x y")
    mu, L, M, tau, rho = (sp.Rational(k, 7) for k in (3, 20, 5, 2, 9))
    # at (0, 0), where y* = 0: g_yy = mu, g_xy = -L, third derivatives of g -tau or -rho, f_y = M, second ones of f are L
    g = mu * y**2 / 2 - L * x * y - tau * x**2 * y / 2 - rho * y**3 / 6
    f = M * y + L * (x + y) ** 2 / 2
    response = sp.symbols("response")
    slope = -sp.diff(g, x, y) / sp.diff(g, y, 2)
    phi_1 = sp.diff(f, x) + slope * sp.diff(f, y)
    at = {x: 0, y: 0}
    second = (sp.diff(phi_1, x) + response * sp.diff(phi_1, y)).subs(response, slope).subs(at)
    # g_xyy stands in tau and in rho; without it, the two summands that it would give are left out
    kappa, c = L / mu, RateConstants(mu=mu, L=L, M=M, tau=tau, rho=rho)
    left_out = tau * M * kappa / mu + rho * L * M / mu**2
    assert sp.simplify(second - (c.L_phi() - left_out)) == 0


def test_errors_vanish_and_shrink_as_they_should() -> None:
    c, alpha = EXAMPLE, 1 / EXAMPLE.L
    r, q = 1 - c.mu / c.L, (math.sqrt(c.kappa) - 1) / (math.sqrt(c.kappa) + 1)
    for D in (1, 4, 9):
        both = c.itd_error(D + 2, alpha=alpha, y_error=1.0) - c.itd_error(D + 2, alpha=alpha, y_error=0.0)
        one = c.itd_error(D, alpha=alpha, y_error=1.0) - c.itd_error(D, alpha=alpha, y_error=0.0)
        assert both == pytest.approx(r * one)
        assert c.itd_error(D, alpha=alpha, y_error=0.0) == pytest.approx(c.kappa * c.M * r**D)
        of_y = c.aid_error(D + 2, 3, alpha=alpha, y_error=1.0, v_error=0.0) / c.aid_error(
            D, 9, alpha=alpha, y_error=1.0, v_error=0.0
        )
        assert of_y == pytest.approx(r)
        of_v = c.aid_error(D, 3, alpha=alpha, y_error=0.0, v_error=1.0) / c.aid_error(
            D, 2, alpha=alpha, y_error=0.0, v_error=1.0
        )
        assert of_v == pytest.approx(q)


def test_the_sharp_forms_are_smaller() -> None:
    rng = np.random.default_rng(0)
    for mu, ratio, M, tau, rho, alpha in rng.uniform(0.1, 3, (200, 6)):
        c = RateConstants(mu=mu, L=mu * (1 + ratio), M=M, tau=tau, rho=rho)
        step, D, N = min(alpha, 1) / c.L, int(rng.integers(1, 9)), int(rng.integers(1, 9))
        errors_of = {"y_error": float(rng.uniform(0, 2)), "v_error": float(rng.uniform(0, 2))}
        aid = [c.aid_error(D, N, alpha=step, **errors_of, variant=v) for v in ("sharp", "corrected")]
        itd = [c.itd_error(D, alpha=step, y_error=errors_of["y_error"], variant=v) for v in ("sharp", "corrected")]
        assert aid[0] <= aid[1] * (1 + 1e-12)
        assert itd[0] <= itd[1] * (1 + 1e-12)


def test_conjugate_gradients_need_the_factor_two() -> None:
    """kappa = 1.2, one step from an even mixture: more is kept than sqrt(kappa) q, less than twice that."""
    kappa = 1.2
    problem = BilevelProblem("y1 + y2", f"y1**2/2 + {kappa}*y2**2/2 - x*y1", "x", "y1 y2")
    v_star = np.array([1.0, 1 / kappa])
    found = AID(1, 1, 0.5).estimate(problem, [0.0], v0=v_star + 1.0).v_N
    kept = float(np.linalg.norm(found - v_star) / math.sqrt(2))
    rate = math.sqrt(kappa) * (math.sqrt(kappa) - 1) / (math.sqrt(kappa) + 1)
    assert 1.5 * rate < kept < 2 * rate


def test_the_schedules_satisfy_the_conditions_that_the_rate_is_derived_from() -> None:
    c = EXAMPLE
    plan = aid_bio(c)
    r, q2 = 1 - c.mu * plan.alpha, c.cg_rate**2
    w, u = c.kappa + c.rho * c.M / c.mu**2, 1 + 2 * math.sqrt(c.kappa)
    W = 4 * plan.beta**2 * (c.kappa**2 + (1 + c.kappa) ** 2 * w**2)
    gamma = 3 * c.L**2 + 3 * (c.tau * c.M / c.mu) ** 2 + 6 * c.L**2 * u**2 * w**2
    y_keeps, v_keeps = 2 + 4 * u**2 * w**2 + W * gamma, (16 + 24 * W * c.L**2) * c.kappa

    def holds(D: int, N: int) -> bool:
        E = max(gamma * r**D, 24 * c.L**2 * c.kappa * q2**N)
        halves = y_keeps * r**D <= 0.5 and v_keeps * q2**N <= 0.5
        return bool(halves and E <= 0.5 and 3 / 8 - 5 / 4 * E * W >= 1 / 8)

    assert holds(plan.D, plan.N or 0)
    assert not holds(plan.D - 1, plan.N or 0)
    assert not holds(plan.D, (plan.N or 0) - 1)
    assert (plan.beta, plan.slope) == (1 / (8 * c.L_phi()), 64 * c.L_phi())
    third = itd_bio(c, eps=0.1, distance=2.0)
    error = [c.itd_error(third.D - k, alpha=third.alpha, y_error=2.0) for k in (0, 1)]
    assert 3 * error[0] ** 2 <= 2 * 0.1 / 3 < 3 * error[1] ** 2
    inner = ba(c, 2, eps=0.1, distance=2.0)
    assert c.C * 2.0 * c.ba_rate**inner.D <= math.sqrt(0.1) < c.C * 2.0 * c.ba_rate ** (inner.D - 1)


@pytest.mark.parametrize("broken", [{"mu": 0}, {"mu": 3}, {"tau": -1}, {"rho": math.nan}, {"M": -1}])
def test_constants_that_are_none_are_refused(broken: dict[str, float]) -> None:
    with pytest.raises(errors.InvalidArgument):
        RateConstants(**{"mu": 1, "L": 2, "M": 1, "tau": 1, "rho": 1, **broken})


def test_arguments_are_checked() -> None:
    with pytest.raises(errors.InvalidArgument, match="variant"):
        EXAMPLE.L_phi(variant="wrong")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="alpha"):
        EXAMPLE.itd_error(3, alpha=1.0, y_error=1.0)
    with pytest.raises(errors.InvalidArgument, match="eps"):
        itd_bio(EXAMPLE, eps=0.0, distance=1.0)
    with pytest.raises(errors.InvalidArgument, match="inner steps"):
        itd_bio(RateConstants(mu=1e-9, L=1.0, M=1.0, tau=0.0, rho=0.0), eps=1e-3, distance=1.0)


def test_the_schedule_runs() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    plan = aid_bio(RateConstants(mu=1.0, L=1.0, M=1.0, tau=0.0, rho=0.0))
    solution = solve(problem, plan.algorithm(), [1.0], steps=50)
    assert abs(solution.x[0]) < 0.2


# ---- claims -----------------------------------------------------------------------------------------------------


@lru_cache(8)
def verdicts(name: str) -> dict[str, verify.CheckResult]:
    return {r.label: r for r in verify.run(zoo.get(name).problem, theory="ji2021", effort="quick").results}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scalar", "saddle", pytest.param("stochastic_noise", marks=pytest.mark.slow)])
def test_every_claim_holds_and_is_put_to_the_test(name: str) -> None:
    found = verdicts(name)
    assert len(found) == 10
    for result in found.values():
        assert result.verdict is verify.Verdict.HOLDS, str(result)
        assert result.measured is not None
        assert result.bound is not None
        if result.evidence == "sampled":
            assert 0.01 <= (result.tightness or 0) <= 1
            assert result.n_points > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scalar", "saddle"])
def test_the_sharp_forms_hold_too(name: str) -> None:
    claims = ["ji2021:lem-aid", "ji2021:lem-itd"]
    for result in verify.run(zoo.get(name).problem, claims=claims, variant="sharp", effort="quick").results:
        assert result.verdict is verify.Verdict.HOLDS, str(result)
        sharp, usual = result.tightness or 0, verdicts(name)[result.label].tightness or 1
        assert sharp > usual or (result.label == "ji2021:lem-itd" and sharp == usual)  # exact starts have one form


@pytest.mark.slow
@pytest.mark.in_ci(every=4)
@pytest.mark.parametrize("name", [name for name in zoo.names() if not name.startswith("tube")])
def test_nothing_is_violated_on_the_zoo(name: str) -> None:
    assert not [str(r) for r in verdicts(name).values() if r.verdict is verify.Verdict.VIOLATED]


def test_tau_and_rho_are_those_of_their_blocks() -> None:
    problem = BilevelProblem("y/2", "y**2 + x**2*y/4", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    c = rate_constants(verify.study_of(problem, effort="quick").constants)
    assert (c.mu, c.tau, c.rho) == (pytest.approx(2.0), pytest.approx(0.5), 0.0)


@pytest.mark.slow
def test_the_print_is_refuted_and_its_erratum_stands() -> None:
    problem = zoo.get("lphi_witness").problem
    (printed,) = verify.run(problem, claims=["ji2021:lem-smooth"], variant="printed", effort="quick").results
    assert printed.verdict is verify.Verdict.VIOLATED
    assert printed.evidence == "certified"
    (entry,) = verify.errata("ji2021")
    assert entry.check().verdict is verify.Verdict.HOLDS


# ---- doors ------------------------------------------------------------------------------------------------------


def test_it_is_one_of_two_and_touches_nothing_of_the_first() -> None:
    assert verify.theories() == ("huang_saddle", "ji2021")
    assert {item.label for item in verify.claims("ji2021")}.isdisjoint(item.label for item in verify.claims())
    assert all(label.startswith(("ji2021:", "ghadimi2018:")) for label in STATEMENTS)
    assert set(STATEMENTS) <= set(statements())
    judged = {label for item in theory_of("ji2021").claims for label in item.labels}
    assert set(STATEMENTS) - judged == {"ji2021:assu-levels", "ghadimi2018:assu-levels"}


def run(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("style", ["text", "markdown", "json"])
def test_the_command_line_judges_it(style: str) -> None:
    claims = "ji2021:lem-itd,ghadimi2018:lem-response"
    words = ("verify", "zoo:scalar", "--theory", "ji2021", "--claims", claims, "--effort", "quick", "--format", style)
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    if style == "json":
        assert [r["label"] for r in json.loads(out)["results"]] == claims.split(",")
    else:
        assert all(label in out for label in claims.split(","))


def test_an_unknown_theory_gets_one_typed_error() -> None:
    with pytest.raises(errors.InvalidArgument, match="no theory is called 'ji2020'\ntry: ji2021"):
        verify.run(zoo.get("scalar").problem, theory="ji2020")
    code, out, err = run("verify", "zoo:scalar", "--theory", "ji2020")
    assert (code, out) == (2, "")
    assert err == "bilevel-sym: error: no theory is called 'ji2020'\ntry: ji2021\n"
