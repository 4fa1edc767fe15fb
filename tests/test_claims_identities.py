"""The identities: each holds, is refuted where it is misprinted, and cannot hold when it is made wrong."""

from __future__ import annotations

import inspect
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy as sp
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, MinimaxProblem, derive, evaluate, paper, zoo
from bilevel_sym.arithmetic import balls
from bilevel_sym.graph.operations import FUNCTIONS
from verify.papers.huang_saddle.claims import identities
from verify.papers.huang_saddle.measures import jets
from verify.papers.huang_saddle.measures.jets import TaylorPoint, taylor_point
from verify.registry import Claim
from verify.study import Study, study_of
from verify.verdict import CheckResult, Verdict

CLAIMS = [item for item in vars(identities).values() if isinstance(item, Claim)]
UNIT = {"x1": (-1, 1), "x2": (-1, 1), "y": (-1, 1)}
WITNESS = BilevelProblem("x2*y", "(y - x1)**2/2", "x1 x2", "y", box=UNIT)


def results(problem: BilevelProblem, **options: Any) -> dict[str, CheckResult]:
    study = study_of(problem, **options)
    return {item.label: result for item in CLAIMS for result in item(study)}


def fraction(entry: Any) -> Fraction:
    return Fraction(int(entry.p), int(entry.q))


# ---- the series against other routes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "g", "x", "y", "x0"),
    [
        ("x*y + y**2", "(1 + x**2)*y**2/2 - x*y", "x", "y", ["1/3"]),
        ("x1*y1*x2 + y2**2", "(2 + x1**2)*y1**2/2 + y2**2 + y1*y2 - x1*x2*y1 - y2", "x1 x2", "y1 y2", ["1/2", "-2/3"]),
        ("x1*x2*y", "y**2/(2*(1 + x1**2)) - x2*y", "x1 x2", "y", ["1/2", "3"]),
    ],
)
def test_series_agree_with_closed_forms(f: str, g: str, x: str, y: str, x0: list[str]) -> None:
    problem = BilevelProblem(f, g, x, y)
    derivation = derive(problem, closed_form=True)
    assert derivation.y_star is not None
    at = dict(zip(problem.x, map(sp.Rational, x0), strict=True))
    y0 = [Fraction(int(e.p), int(e.q)) for e in (sp.Rational(entry.subs(at)) for entry in derivation.y_star)]
    point = taylor_point(problem, [Fraction(value) for value in x0], y0, range(problem.d))
    assert point is not None
    assert point.exact
    assert [fraction(e) for e in point.grad] == [Fraction(str(e)) for e in derivation.grad_phi.subs(at)]
    assert [fraction(e) for e in point.hess.flat] == [Fraction(str(e)) for e in derivation.hess_phi.subs(at)]
    assert [fraction(e) for e in point.response.flat] == [Fraction(str(e)) for e in derivation.dy_dx.subs(at)]
    second = [sp.S(1) * e.subs(at) for e in sp.flatten(derivation.d2y_dx2)]
    assert [fraction(e) for e in point.second.flat] == [Fraction(str(e)) for e in second]


def test_series_agree_with_certificates() -> None:
    problem = BilevelProblem(
        "sin(x1*y1) + y2*x2", "exp(y1) + y1**2 + y2**2*2 + tanh(x2)*y1*y2/2 - x1*y1", "x1 x2", "y1 y2"
    )
    certificate = evaluate(problem, ["1/3", "1/5"], digits=50)
    y0 = [Fraction(float(ball)) for ball in certificate.y_star]
    point = taylor_point(problem, [Fraction(1, 3), Fraction(1, 5)], y0, [0, 1])
    assert point is not None
    assert not point.exact
    for i in range(2):
        for j in range(2):
            assert abs(float(point.hess[i, j].mid()) - float(certificate.hess_phi[i][j])) < 1e-14
        assert abs(float(point.grad[i].mid()) - float(certificate.grad_phi[i])) < 1e-14


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_elementary_functions_against_numerical_derivatives(name: str) -> None:
    plain = {
        "softplus": lambda t: mpmath.log1p(mpmath.exp(t)),
        "sigmoid": lambda t: 1 / (1 + mpmath.exp(-t)),
        "bell": lambda t: mpmath.exp(t) / (1 + mpmath.exp(t)) ** 2,
    }
    function = plain.get(name, getattr(mpmath, name, None))
    with mpmath.workdps(40), balls.precision(200):
        values = jets.derivatives(FUNCTIONS[name], arb("0.7"))
        for order, value in enumerate(values):
            expected = mpmath.diff(function, mpmath.mpf("0.7"), order)
            assert abs(mpmath.mpf(value.str(30, radius=False)) - expected) < mpmath.mpf(10) ** -15


@pytest.mark.parametrize(
    ("f", "x0"), [("abs(x)*y", 0), ("max(x, 0)*y", 0), ("log(x)*y", -1), ("sqrt(x)*y", 0), ("y/x", 0)]
)
def test_where_f_is_not_smooth_there_is_no_expansion(f: str, x0: int) -> None:
    problem = BilevelProblem(f, "y**2/2 - x*y", "x", "y")
    assert taylor_point(problem, [Fraction(x0)], [Fraction(x0)], [0]) is None


def test_powers_and_pieces() -> None:
    f = "Piecewise((x**3*y, x > 1), (abs(x)**(3/2)*y, True)) + min(x, 2*x)*max(y, -y) + pi*y**(-2)"
    problem = BilevelProblem(f, "y**2/2 - x*y", "x", "y")
    for x0 in (Fraction(-1, 2), Fraction(3, 2)):
        point = taylor_point(problem, [x0], [x0], [0])
        assert point is not None
        with mpmath.workdps(40):
            expected = mpmath.diff(lambda t: _pieces(t, t), mpmath.mpf(x0.numerator) / x0.denominator, 2)
        assert abs(float(point.hess[0, 0].mid()) - float(expected)) < 1e-10


def _pieces(x: Any, y: Any) -> Any:
    first = x**3 * y if x > 1 else abs(x) ** mpmath.mpf(1.5) * y
    return first + min(x, 2 * x) * abs(y) + mpmath.pi / y**2


# ---- the claims --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("name", zoo.names())
def test_every_identity_is_proved_on_the_zoo(name: str) -> None:
    problem = zoo.get(name).problem
    for label, result in results(problem).items():
        if result.verdict is Verdict.NOT_APPLICABLE:
            assert problem.kind != "minimax", label
        else:
            assert (result.verdict, result.evidence) == (Verdict.HOLDS, "proved"), str(result)


def test_the_printed_hessian_is_refuted_by_its_witness() -> None:
    printed = results(WITNESS, variant="printed")["phi-hessian"]
    assert (printed.verdict, printed.evidence, printed.measured) == (Verdict.VIOLATED, "proved", 1.0)
    assert printed.worst_point is not None
    assert results(WITNESS)["phi-hessian"].verdict is Verdict.HOLDS


def test_the_printed_hessian_is_refuted_in_balls_too() -> None:
    problem = BilevelProblem("x2*sin(y)", "(y - x1)**2/2 + exp(y)", "x1 x2", "y", box=UNIT)
    result = results(problem, variant="printed")["phi-hessian"]
    assert (result.verdict, result.evidence) == (Verdict.VIOLATED, "certified")
    assert result.measured is not None
    assert result.measured > 0.01


@pytest.mark.parametrize(
    ("problem", "evidence"),
    [
        (BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", box={"x": (0, 1), "y": (0, 1)}), "proved"),
        (BilevelProblem("x1*x2 + y**2", "y**2/2 - x1*x2*y", "x1 x2", "y", box=UNIT), "proved"),
        (BilevelProblem("x1*y", "y**2/2 - y", "x1 x2", "y", box=UNIT), "proved"),
        (MinimaxProblem("x1*y + x2*y - y**2 + x1*x2", "x1 x2", "y", box=UNIT), "proved"),
        (zoo.get("saddle").problem, "sampled"),
    ],
)
def test_the_printed_hessian_stands_where_the_misprint_makes_no_difference(
    problem: BilevelProblem, evidence: str
) -> None:
    result = results(problem, variant="printed")["phi-hessian"]
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, evidence)


WRONG: dict[str, Any] = {
    "sign": ("eq:bilevel-grad", lambda p: (p.grad, p["f_x"] + p["g_xy"] @ (p.inverse(p["g_yy"]) @ p["f_y"]))),
    "direct only": ("phi-grad", lambda p: (p.grad, p["f_x"])),
    "factor": ("phi-grad", lambda p: (p.grad, p["f_x"] + 2 * p.response @ p["f_y"])),
    "no inverse": ("solve-partial-y*-partial-x", lambda p: (p.response, -p["g_xy"])),
    "no curvature": (
        "phi-hessian",
        lambda p: (p.hess, p["f_xx"] + 2 * p.response @ p["f_xy"].T + p.response @ p["f_yy"] @ p.response.T),
    ),
    "one cross term": (
        "eq:opt-deri2",
        lambda p: (
            p["g_xxy"] + np.tensordot(p.response, p["g_yyy"], axes=(1, 0)) @ p.response.T,
            -(p.second @ p["g_yy"]),
        ),
    ),
}


@pytest.mark.parametrize("kind", ["rational", "transcendental"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_identity_never_holds(wrong: str, kind: str) -> None:
    bump = "y**4" if kind == "rational" else "exp(y)"
    problem = BilevelProblem(
        "x*y**2 + y", f"(1 + x**2)*y**2 + {bump} - x*y", "x", "y", box={"x": ("1/2", 1), "y": (-1, 1)}
    )
    label, sides = WRONG[wrong]
    result = identities._identity(study_of(problem), label, sides)
    assert result.verdict is Verdict.VIOLATED
    assert result.evidence == ("proved" if kind == "rational" else "certified")


@pytest.mark.parametrize("label", ["phi-2", "phi", "unlabelled:danskin", "y-opt-condition"])
def test_minimax_identities_speak_of_minimax_problems_only(label: str) -> None:
    assert results(WITNESS)[label].verdict is Verdict.NOT_APPLICABLE
    game = MinimaxProblem("sin(x)*y + x**2*y - exp(y) - y**2", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    assert results(game)[label].evidence == "proved"


def test_a_wrong_schur_complement_never_holds() -> None:
    game = MinimaxProblem("x**2*y - y**2", "x", "y", box={"x": ("1/2", 1), "y": (0, 1)})
    wrong = identities._identity(
        study_of(game), "phi-2", lambda p: (p.hess, p["f_xx"] + p["f_xy"] @ p.inverse(p["f_yy"]) @ p["f_xy"].T)
    )
    assert wrong.verdict is Verdict.VIOLATED


@pytest.mark.parametrize("f", ["abs(x)*y", "log(x - 2)*y", "sqrt(-x**2)*y"])
def test_nothing_is_said_where_f_is_nowhere_smooth(f: str) -> None:
    problem = BilevelProblem(f, "y**2/2 - x*y", "x", "y", box={"x": (0, 0), "y": (-1, 1)})
    for result in results(problem).values():
        assert result.verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE)
        assert result.measured is None


def test_a_lower_level_that_cannot_be_solved_still_has_its_identities() -> None:
    # no minimiser at all: the shifted problem has one, and the identities are local
    problem = BilevelProblem("x*y", "exp(y) + 0*x + x*y", "x", "y", box={"x": (1, 2), "y": (0, 1)})
    assert results(problem)["eq:bilevel-grad"].verdict is Verdict.HOLDS


@pytest.mark.slow
def test_generic_proofs_know_the_misprint() -> None:
    assert identities._generic("phi-hessian", 1, 2, "printed")
    assert not identities._generic("phi-hessian", 2, 1, "printed")
    assert identities._generic("phi-hessian", 2, 3, "corrected")
    assert all(identities._inverts(n) for n in (1, 2, 3))


@pytest.mark.slow
def test_many_variables_are_taken_a_few_at_a_time() -> None:
    d = 12
    names = [f"x{i}" for i in range(d)]
    f = " + ".join(f"{name}*y*x{(i + 1) % d}" for i, name in enumerate(names))
    box = dict.fromkeys(names, (-1, 1)) | {"y": (-1, 1)}
    problem = BilevelProblem(f, f"y**2 - ({' + '.join(names)})*y/7", " ".join(names), "y", box=box)
    found = identities._points(study_of(problem))
    assert {len(point.columns) for point in found} == {identities.MOST_COLUMNS}
    assert results(problem)["phi-hessian"].verdict is Verdict.HOLDS


def test_the_order_and_the_citations() -> None:
    assert [item.label for item in CLAIMS][:6] == [
        "phi-grad", "eq:opt-deri1", "eq:bilevel-grad", "phi-hessian", "eq:opt-deri2", "phi-2",
    ]  # fmt: skip
    for item in CLAIMS:
        assert f"Paper: {paper.cite(item.label)}" in (inspect.getdoc(item.check) or "")
        assert item.citation == paper.cite(item.label)
        assert "Assumes:" in (inspect.getdoc(item.check) or "")


@st.composite
def problems(draw: st.DrawFn) -> BilevelProblem:
    """Small problems of every shape, with third derivatives everywhere, rational or not."""
    d, n = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    whole = st.integers(-3, 3)
    x, y = sp.symbols(f"x1:{d + 1}", real=True), sp.symbols(f"y1:{n + 1}", real=True)
    bend = draw(st.sampled_from([lambda t: t**3 / 9, sp.sin, sp.tanh]))
    mix = sum(draw(whole) * a * b for a in x for b in y)
    f = mix + sum(draw(whole) * b**2 for b in y) + bend(sum(draw(whole) * s for s in (*x, *y)) / 3) + x[0] * y[-1]
    coupling = sum(draw(whole) * a * b for a in x for b in y) / 2
    g = 3 * sum(b**2 for b in y) + coupling + bend(sum(draw(whole) * s for s in (*x, *y)) / 12)
    box = {s.name: (-1, 1) for s in (*x, *y)}
    return BilevelProblem(f, g, x, y, box=box)


@pytest.mark.slow
@given(problem=problems(), seed=st.integers(0, 99))
def test_identities_hold_on_random_problems(problem: BilevelProblem, seed: int) -> None:
    for result in results(problem, seed=seed).values():
        assert result.verdict is Verdict.NOT_APPLICABLE or (result.verdict, result.evidence) == (
            Verdict.HOLDS,
            "proved",
        )


@pytest.mark.slow
@given(problem=problems())
def test_the_printed_hessian_fails_exactly_where_the_product_is_not_symmetric(problem: BilevelProblem) -> None:
    study = study_of(problem, variant="printed")
    (result,) = identities.phi_hessian(study)
    lopsided = any(_lopsided(point) for point in identities._points(study))
    assert result.verdict is (Verdict.VIOLATED if lopsided else Verdict.HOLDS)


def _lopsided(point: TaylorPoint) -> bool:
    with balls.precision(jets.JET_BITS):
        cross = point.response @ point["f_xy"].T
        return any(bool(entry != 0) for entry in (cross - cross.T).flat)


def test_a_study_is_expanded_once() -> None:
    study: Study = study_of(WITNESS)
    assert identities._points(study) is identities._points(study)
