"""Planted defects: each of these must be caught by the checks that the other tests rely on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy as sp
import test_tape
from flint import arb
from test_arithmetics import check_case
from test_kernels import closed_form_agrees
from test_solvers import least_p_value, noise_of_a_run, quadratic, rational_aid
from test_tape import ARITHMETICS, BLOCKS, GRAMMAR, POINTS, grammar_case

from bilevel_sym import AID, BilevelProblem, Descent, Perturbed, derive, derive_generic, evaluate, solve, zoo
from bilevel_sym.arithmetic import balls, intervals
from bilevel_sym.arithmetic.arrays import ArraySession
from bilevel_sym.arithmetic.balls import Ball
from bilevel_sym.estimators import hypergradient, linear_system
from bilevel_sym.graph import autodiff
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.implicit import second_order as implicit
from bilevel_sym.implicit.model import Model
from bilevel_sym.kernels import kernels as kernels_module
from bilevel_sym.plotting.arguments import on_grid
from bilevel_sym.solvers import noise
from bilevel_sym.solvers.algorithm import Ensemble
from bilevel_sym.solvers.noise import uniform_in_ball
from bilevel_sym.symbolic import formulas
from bilevel_sym.symbolic.formulas import Equation
from verify import check_hypergradient, gallery
from verify.gallery.defect import coupled
from verify.papers.huang_saddle.trajectory import bounds
from verify.testkit.diagnosis import Diagnosis
from verify.testkit.reference import References

x1, x2, y = sp.symbols("x1 x2 y")

# A problem in which every term of the Hessian is alive and d != n.
WITNESS = BilevelProblem(x1 * y + x2 * y**2 + x1**2, (2 + x1) * y**2 / 2 + y**4 / 4 - x1 * x2 * y, [x1, x2], [y])
POINT = {x1: sp.Rational(1, 3), x2: sp.Rational(2), y: sp.Rational(1, 5)}


def two_routes_agree() -> bool:
    """The check of test_derivation: the paper's form against the Lagrangian one, in rational arithmetic."""
    derivation = derive(WITNESS, closed_form=False)
    paper, lagrangian = (derivation.hessian(form=form) for form in ("paper", "lagrangian"))
    return bool(sp.expand((paper - lagrangian).subs(POINT)) == sp.zeros(2, 2))


@pytest.mark.slow
def test_the_two_routes_agree_when_nothing_is_broken() -> None:
    assert two_routes_agree()


def _wrong_sign(*args: Any) -> Any:
    return -RESPONSE(*args)


def _dropped_third_derivatives(block: Any, *rest: Any) -> Any:
    return SECOND_RESPONSE(lambda name: (0 if name == "g_yyy" else 1) * block(name), *rest)


def _halved_cross_term(*args: Any, **kwargs: Any) -> Any:
    terms = HESSIAN_TERMS(*args, **kwargs)
    return terms | {"cross": terms["cross"] / 2}


def _transposed_block(*args: Any, **kwargs: Any) -> Any:
    terms = HESSIAN_TERMS(*args, **kwargs)
    return terms | {"cross_transposed": terms["cross"]}


RESPONSE, SECOND_RESPONSE, HESSIAN_TERMS = (
    formulas.response,
    formulas.second_response,
    formulas.hessian_terms,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "defect"),
    [
        ("second_response", _dropped_third_derivatives),
        ("hessian_terms", _halved_cross_term),
        ("hessian_terms", _transposed_block),
    ],
)
def test_a_planted_defect_in_the_formulas_is_seen(monkeypatch: pytest.MonkeyPatch, name: str, defect: object) -> None:
    monkeypatch.setattr(formulas, name, defect)
    assert not two_routes_agree()


def test_a_planted_sign_is_seen_by_the_known_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formulas, "response", _wrong_sign)
    derivation = derive(BilevelProblem(y, (y - x1**2) ** 2 / 2, [x1], [y]), closed_form=False)
    assert derivation.grad_phi.subs({x1: 3, y: 9}) != sp.Matrix([6])


def test_a_planted_defect_in_the_chain_rule_is_seen_by_the_textbook_equations() -> None:
    equation = derive_generic(2, 1).equations["phi-hessian"]
    assert equation.holds
    assert not Equation(equation.label, 2 * equation.lhs, equation.rhs).holds


# ---- numbers: the tape, the kernels and the intervals ----------------------------------------------------

y1, y2 = sp.symbols("y1 y2")
EVERYTHING = {"phi", "grad_phi", "hess_phi", "third_phi"}


def curved() -> tuple[BilevelProblem, sp.Expr]:
    """d = n = 2, g_xy not symmetric, third derivatives of g alive at y* = (x1 x2, x1^2); and Phi."""
    z1, z2 = y1 - x1 * x2, y2 - x1**2
    g = z1**2 + z2**2 + z1 * z2 / 2 + z1**3 + x2 * z2**3 / 2 + x1 * z1 * z2**2
    f = sp.sin(y1) + y1 * y2 * x2 + x1 * y2 + x2**3
    return BilevelProblem(f, g, [x1, x2], [y1, y2]), f.subs({y1: x1 * x2, y2: x1**2}, simultaneous=True)


@pytest.fixture
def kernels_anew() -> Iterator[None]:
    """Kernels are cached by content: forget them, before and after a planted defect."""
    kernels_module._compiled.cache_clear()
    yield
    kernels_module._compiled.cache_clear()


def agreeing() -> set[str]:
    """The check of test_kernels: which quantities are those of the closed form."""
    return closed_form_agrees(*curved(), [0.75, -0.5], "tape")


@pytest.mark.usefixtures("kernels_anew")
def test_the_kernels_agree_with_the_closed_form_when_nothing_is_broken() -> None:
    assert agreeing() == EVERYTHING


def _take_with(change: Callable[[str, Any], Any]) -> Callable[..., Any]:
    """ArraySession.take with a block changed on its way out."""

    def take(self: ArraySession, name: str) -> Any:
        return change(name, TAKE(self, name))

    return take


def _f_for_lagrangian(model: Model, name: str) -> Any:
    return BLOCK(model, name.replace("L", "f", 1) if name.startswith("L_") else name)


def _plus(session: Any, xy: Any, **options: Any) -> Any:
    phi, grad = GRADIENT(session, xy, **options)
    return phi, 2 * session.take("f_x") - grad


PLUS_SINE = {
    **OPERATIONS,
    "cos": replace(OPERATIONS["cos"], derivative=lambda graph, z, itself: graph.apply("sin", z)),
}
TAKE, BLOCK, GRADIENT = ArraySession.take, Model.block, implicit.gradient


@pytest.mark.usefixtures("kernels_anew")
@pytest.mark.parametrize(
    ("where", "name", "defect", "seen_in"),
    [
        (implicit, "gradient", _plus, {"grad_phi"}),
        (Model, "block", _f_for_lagrangian, {"hess_phi"}),
        (
            ArraySession,
            "take",
            _take_with(lambda n, b: b.swapaxes(1, 2) if n == "g_xy" else b),
            {"grad_phi", "hess_phi"},
        ),
        (ArraySession, "take", _take_with(lambda n, b: b / 2 if n == "L_xy" else b), {"hess_phi"}),
        (ArraySession, "take", _take_with(lambda n, b: 0 * b if n == "r" else b), {"third_phi"}),
        (ArraySession, "take", _take_with(lambda n, b: b / 2 if n == "L_yy" else b), {"hess_phi", "third_phi"}),
        (autodiff, "OPERATIONS", PLUS_SINE, {"third_phi"}),
    ],
    ids=["sign", "L becomes f", "transposed g_xy", "halved L_xy", "dropped r", "halved L_yy", "(cos)' = sin"],
)
def test_a_planted_defect_in_the_kernels_is_seen(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, defect: object, seen_in: set[str]
) -> None:
    monkeypatch.setattr(where, name, defect)
    assert seen_in <= EVERYTHING - agreeing()


def test_a_planted_derivative_rule_is_seen_in_every_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (truth, *_) = grammar_case("cos")  # kept for other tests: made before the defect is planted
    monkeypatch.setattr(autodiff, "OPERATIONS", PLUS_SINE)
    program = Model(GRAMMAR["cos"], test_tape.y**2, [test_tape.x], [test_tape.y]).program(BLOCKS)
    for arithmetic in ("numpy", "digits", "balls", "intervals"):
        wrong = {what for what, holds in ARITHMETICS[arithmetic](program, POINTS[0], truth) if not holds}
        assert any(what.startswith("f_x") for what in wrong), arithmetic


def _inward(a: Any, b: Any) -> Any:
    """The product rounded to nearest, and then one unit in the last place to the inside."""
    with np.errstate(all="ignore"):
        ends = np.stack([p * q for p in a for q in b])
        return np.nextafter(ends.min(axis=0), np.inf), np.nextafter(ends.max(axis=0), -np.inf)


def containment_of_products() -> None:
    with mpmath.workdps(60), balls.precision(128):
        check_case("mul", (), 300, np.random.default_rng(0))


def test_one_unit_of_inward_rounding_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    containment_of_products()
    monkeypatch.setattr(intervals, "OPERATIONS", {**intervals.OPERATIONS, "mul": _inward})
    with pytest.raises(AssertionError, match="mul"):
        containment_of_products()


def test_a_planted_error_in_a_solution_is_seen_by_the_certificate() -> None:
    """y* that is off by one part in a million: fewer digits agree than the tests ask for."""
    problem, _ = curved()
    certificate = evaluate(problem, ["3/4", "-1/2"])
    solution = problem.kernels.y_star([0.75, -0.5])
    assert certificate.compare(y_star=solution).digits >= 12
    assert certificate.compare(y_star=solution * (1 + 1e-6)).digits < 7


def test_a_planted_radius_is_seen_by_contains() -> None:
    (ball,) = evaluate(BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y"), ["1/3"], digits=40).y_star
    with mpmath.workdps(80), balls.precision(300):
        truth = mpmath.sin(mpmath.mpf(1) / 3)
        assert ball.contains(truth)
        assert not Ball(ball.value + arb("1e-38")).contains(truth)


# ---- solvers ---------------------------------------------------------------------------------------------


def trajectory_is_rational() -> bool:
    """The check of test_solvers: x, y, v and the estimate are those of the recursion in rational arithmetic."""
    p, start = quadratic(2, 3, "two").problem, (Fraction(1, 4), Fraction(1, 2))
    wanted = rational_aid(p, start, 2, D=2, N=1, tau=Fraction(1, 16), eta=Fraction(1, 8))
    found = solve(p, Descent(AID(2, 1, 1 / 16), 1 / 8), [0.25, 0.5], steps=2, backend="tape").trajectory
    names = ("x", "y", "v", "grad_phi_hat")
    return all(
        np.allclose(getattr(found, name)[k], [float(e) for e in value], rtol=0, atol=1e-11)
        for k, state in enumerate(wanted)
        for name, value in zip(names, state, strict=True)
    )


def one_step_is_exact_for_two_times_the_identity() -> bool:
    """The check of test_hypergradient, at kappa = 1."""
    p = quadratic(3, 2, "isotropic").problem
    point = np.array([0.5, -0.25, 1.0])
    return bool(
        np.allclose(AID(1, 1, 0.5).estimate(p, point).grad_phi_hat, p.kernels.grad_phi(point), rtol=0, atol=1e-12)
    )


def an_exact_start_stays() -> bool:
    """The check of test_linear_system."""
    matrix, start = np.array([[2.0, 1.0], [1.0, 4.0]]), np.array([[3.0], [-8.0]])
    with np.errstate(all="ignore"):
        found = linear_system.conjugate_gradients(lambda v: matrix @ v, matrix @ start, start, 5)
    return bool((found.v == start).all()) and not found.broken.any()


def noise_is_uniform() -> bool:
    """The check of test_solvers: Kolmogorov-Smirnov on radius and direction."""
    return least_p_value(noise_of_a_run(3, 1000, "tape")) > 1e-3


def subsets_have_the_same_bits() -> bool:
    """The check of test_solvers: members 1 and 2 alone, with their seeds."""
    p, algorithm = zoo.get("saddle", d=2).problem, Perturbed(AID(1, 1, 0.25), 0.2, 0.5, 0.3, 2)
    whole = solve(p, algorithm, np.zeros((4, 2)), steps=5, rng=3, backend="tape")
    part = solve(p, algorithm, np.zeros((2, 2)), steps=5, rng=list(whole.seed[1:3]), backend="tape")
    return bool((part.trajectory.x == whole.trajectory.x[1:3]).all())


SOLVER_CHECKS = [
    trajectory_is_rational,
    one_step_is_exact_for_two_times_the_identity,
    an_exact_start_stays,
    noise_is_uniform,
    subsets_have_the_same_bits,
]


@pytest.mark.parametrize("check", SOLVER_CHECKS)
def test_the_solvers_pass_when_nothing_is_broken(check: Callable[[], bool]) -> None:
    assert check()


def _stale_v(self: AID, oracle: Any, x: Any, y: Any, v: Any, lanes: Any) -> Any:
    return CHUNK(self, oracle, x, y, v, lanes)._replace(v=v)


def _without_the_last_iterate(product: Any, right: Any, start: Any, steps: int) -> Any:
    return CONJUGATE_GRADIENTS(product, right, start, steps - 1)


def _one_step_more(oracle: Any, x: Any, y: Any, lanes: Any, steps: int, tau: float) -> Any:
    return DESCENDED(oracle, x, y, lanes, steps + 1, tau)


def _other_sign(*arguments: Any) -> Any:
    return -IMPLICIT_PART(*arguments)


def _unscaled(rng: Any, d: int, radius: float) -> Any:
    return UNIFORM(rng, d, radius) / 0.125  # eta of the check


def _uniform_radius(rng: Any, d: int, radius: float) -> Any:
    direction = rng.standard_normal(d)
    return direction * (radius * rng.random() / np.linalg.norm(direction))


def _on_the_sphere(rng: Any, d: int, radius: float) -> Any:
    direction = rng.standard_normal(d)
    return direction * (radius / np.linalg.norm(direction))


def _in_the_cube(rng: Any, d: int, radius: float) -> Any:
    return rng.uniform(-1, 1, d) * radius / np.sqrt(d)


def _seeds_of_the_ensemble(x: Any, y: Any, v: Any, clock: int, streams: Any) -> Any:
    return GATHER(x, y, v, clock, [np.random.default_rng(1000 * len(streams) + k) for k in range(len(streams))])


def _one_stream_for_all(x: Any, y: Any, v: Any, clock: int, streams: Any) -> Any:
    return GATHER(x, y, v, clock, [streams[0]] * len(streams))


CHUNK, CONJUGATE_GRADIENTS, UNIFORM, GATHER = (
    AID._chunk,
    linear_system.conjugate_gradients,
    uniform_in_ball,
    Ensemble.gather,
)
DESCENDED, IMPLICIT_PART = hypergradient._descended, hypergradient._implicit_part


@pytest.mark.parametrize(
    ("where", "name", "defect", "check"),
    [
        (AID, "_chunk", _stale_v, trajectory_is_rational),
        (hypergradient, "conjugate_gradients", _without_the_last_iterate, one_step_is_exact_for_two_times_the_identity),
        (hypergradient, "conjugate_gradients", _without_the_last_iterate, trajectory_is_rational),
        (linear_system, "ZERO_RESIDUAL", -1.0, an_exact_start_stays),
        (hypergradient, "_descended", _one_step_more, trajectory_is_rational),
        (hypergradient, "_implicit_part", _other_sign, one_step_is_exact_for_two_times_the_identity),
        (noise, "uniform_in_ball", _unscaled, noise_is_uniform),
        (noise, "uniform_in_ball", _uniform_radius, noise_is_uniform),
        (noise, "uniform_in_ball", _on_the_sphere, noise_is_uniform),
        (noise, "uniform_in_ball", _in_the_cube, noise_is_uniform),
        (Ensemble, "gather", _seeds_of_the_ensemble, subsets_have_the_same_bits),
        (Ensemble, "gather", _one_stream_for_all, subsets_have_the_same_bits),
    ],
    ids=[
        "stale v", "dropped iterate, isotropic", "dropped iterate", "no guard at an exact start", "D + 1 steps", "sign of the implicit term",
        "unscaled noise", "uniform radius", "on the sphere", "in the cube", "seeds of the ensemble", "one stream for all",
    ],
)  # fmt: skip
def test_a_planted_defect_in_the_solvers_is_seen(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, defect: object, check: Callable[[], bool]
) -> None:
    monkeypatch.setattr(where, name, defect)
    assert not check()


# ---------------------------------------------------------------------- the test kit


def rough_gradient(x: Any) -> Any:
    """Right to nine digits: no formula is wrong, and no rounding explains it."""
    return coupled().kernels.grad_phi(x) * (1 + 1e-9)


def rarely_wrong(x: Any) -> Any:
    return coupled().kernels.grad_phi(x) * (1 + (abs(x[0] + 0.5) < 0.02))


def strange(x: Any) -> Any:
    """An error that no program is known to make."""
    return coupled().kernels.grad_phi(x) + 0.1 * np.sin(3 * x + 1)


def what_the_kit_says() -> list[str | None]:
    """Of a right candidate, three wrong ones, one that is wrong at the ninth digit, one at few points, and a riddle."""
    problem = coupled()
    named = {item.name: item.candidate(problem) for item in gallery.defects("hypergradient")}
    wrong = [named[name] for name in ("implicit term halved", "sign of the implicit term", "unconverged lower level")]
    asked = [problem.kernels.grad_phi, *wrong, rough_gradient, rarely_wrong, strange]
    return [check_hypergradient(candidate, problem).cause for candidate in asked]


TOLD = [None, "cross", "sign", "y*", "factor", "tolerance", "unexplained"]


@pytest.mark.slow
def test_the_kit_tells_right_from_wrong_when_nothing_is_broken() -> None:
    assert what_the_kit_says() == TOLD


def _no_error(self: References, name: Any, values: Any) -> Any:
    return np.zeros(len(values))


def _first_suspect(evidence: Any, suspects: Any) -> Diagnosis:
    first = next(iter(suspects))
    return Diagnosis(first.cause, first.what, first.look_at, residual=0.0)


def _truth_of_the_kernels_at_zero(self: References, name: Any) -> Any:
    return np.array([getattr(self.problem.kernels, name)(0 * x) for x in self.x])


@pytest.mark.slow
@pytest.mark.in_ci(name=("explain", "MOST_CALLS"))
@pytest.mark.parametrize(
    ("where", "name", "defect"),
    [
        ("verify.testkit.reference", "ROUNDINGS", 1e9),
        ("verify.testkit.reference", "ROUNDINGS", 1e-6),
        ("verify.testkit.reference.References", "errors", _no_error),
        ("verify.testkit.reference.References", "truth", _truth_of_the_kernels_at_zero),
        ("verify.testkit.examination", "explain", _first_suspect),
        ("verify.testkit.diagnosis", "FITS", 1e9),
        ("verify.testkit.diagnosis", "PRICE", -50.0),
        ("verify.testkit.sample_points", "MOST_CALLS", 0),
    ],
)
def test_a_planted_defect_in_the_kit_is_seen(
    monkeypatch: pytest.MonkeyPatch, where: str, name: str, defect: object
) -> None:
    monkeypatch.setattr(f"{where}.{name}", defect)
    assert what_the_kit_says() != TOLD


# ---- pictures ------------------------------------------------------------------------------------------------------


def test_axes_that_are_swapped_in_a_landscape_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from test_plotting_landscape import contours_lie_at_their_heights

    def swapped(*grid: Any) -> Any:
        axes, heights = on_grid(*grid)
        return axes, heights.T

    assert contours_lie_at_their_heights()
    monkeypatch.setattr("bilevel_sym.plotting.landscape.on_grid", swapped)
    assert not contours_lie_at_their_heights()


def test_a_bound_that_is_drawn_one_iteration_early_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from test_verify_plotting import bound_is_that_of_the_lemma

    real = bounds.error_bounds
    assert bound_is_that_of_the_lemma()
    monkeypatch.setattr(
        "verify.papers.huang_saddle.trajectory.picture.error_bounds", lambda truth: replace(real(truth), first=0)
    )
    assert not bound_is_that_of_the_lemma()
