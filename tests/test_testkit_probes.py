"""The probes of a candidate: its Taylor remainders, its behaviour when asked again and nearby, its convergence."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from helpers import FEW, random_problem
from hypothesis import given
from numpy.typing import NDArray

from bilevel_sym import AID, ITD, BilevelProblem, GDmax, Neumann, zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.budget import Budget
from bilevel_sym.typing import Floats
from verify.testkit.behaviour import Behaviour, behaviour
from verify.testkit.candidate import STEPS, Candidate
from verify.testkit.convergence import convergence
from verify.testkit.reference import Quantity, References, references
from verify.testkit.sweep import Convergence
from verify.testkit.taylor import taylor_test

Function = Callable[..., Any]
SEEDS = [0, 1, 3, 4, 6, 9]  # none of them a minimax problem, where f_y = 0 at y* hides the inverse
FAST: list[str | int] = ["implicit_cubic", "quadratic", 3, 4]
SLOW: list[str | int] = ["logistic", "ridge", "hyper_cleaning", "saddle", "stochastic_rows", 0, 1, 6, 9]
LONG: list[str | int] = ["logistic", "ridge", "hyper_cleaning", "stochastic_rows", 1, 9]
EACH = [*FAST, *(pytest.param(name, marks=[pytest.mark.slow, *[pytest.mark.long] * (name in LONG)]) for name in SLOW)]


@cache
def problem_of(name: str | int) -> BilevelProblem:
    return zoo.get(name).problem if isinstance(name, str) else random_problem(name)


@cache
def quadratic(kappa: float) -> BilevelProblem:
    spectrum = tuple(float(value) for value in np.geomspace(1, kappa, 3).round(3))
    return zoo.get("quadratic", d=2, n=3, spectrum=spectrum).problem


@cache
def some_points(problem: BilevelProblem) -> References:
    assert problem.box is not None
    lower, upper = (np.array([float(e) for e in ends[: problem.d]]) for ends in (problem.box.lower, problem.box.upper))
    share = np.random.default_rng(1).random((4, problem.d))
    return references(problem, lower + (upper - lower) * (0.1 + 0.8 * share))


def ell_of(problem: BilevelProblem) -> float:
    return 1.2 * float(some_points(problem).eigenvalues.max())


def behaved(problem: BilevelProblem, function: Function, quantity: Quantity = "grad_phi") -> Behaviour:
    at = some_points(problem)
    shape = {"grad_phi": (problem.d,), "hess_phi": (problem.d, problem.d), "y_star": (problem.n,)}[quantity]
    candidate = Candidate(function, shape)
    errors = at.errors(quantity, np.array([candidate(x).value for x in at.x]))
    return behaviour(candidate, at, quantity, int(np.argmax(errors / at.floor(quantity))))


def cause_of(problem: BilevelProblem, function: Function, quantity: Quantity = "grad_phi") -> str | None:
    diagnosis = behaved(problem, function, quantity).diagnosis
    return None if diagnosis is None else diagnosis.cause


def formula(problem: BilevelProblem, x: Floats, y: Floats) -> Floats:
    """f_x - g_xy g_yy^-1 f_y at any y."""
    k = problem.kernels
    return np.asarray(k.f_x(x, y) - k.g_xy(x, y) @ np.linalg.solve(k.g_yy(x, y), k.f_y(x, y)))


def descended(problem: BilevelProblem, x: Floats, y: Floats, steps: int, tol: float = 0.0) -> Floats:
    for _ in range(steps):
        g_y = problem.kernels.g_y(x, y)
        if np.linalg.norm(g_y) < tol:
            break
        y = y - g_y / ell_of(problem)
    return y


# Taylor


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("quantity", ["grad_phi", "hess_phi"])
def test_slope_of_right_and_wrong_derivatives(name: str | int, quantity: Quantity) -> None:
    at = some_points(problem_of(name))
    truth = at.truth(quantity)[0]
    error = np.random.default_rng(0).standard_normal(truth.shape) * np.abs(truth).max()
    right, wrong, nearly = (taylor_test(at, 0, quantity, truth + e * error) for e in (0, 0.5, 1e-6))
    assert right.slope > 1.9
    assert right.crossover == 0
    assert wrong.slope == pytest.approx(1, abs=0.05)
    assert wrong.error == pytest.approx(np.linalg.norm(0.5 * error, 2), rel=1e-3)  # found from values alone
    assert nearly.slope == pytest.approx(1, abs=0.1)
    assert nearly.crossover < 1e-3 or nearly.crossover == math.inf  # a Phi without that curvature has no crossover
    assert "with a right" in str(wrong)
    assert "as with a right" in str(right)


@pytest.mark.slow
@FEW
@given(seed=st.sampled_from(SEEDS), exponent=st.integers(-9, -2), sign=st.sampled_from([-1, 1]))
def test_the_crossover_is_where_error_and_curvature_are_equal(seed: int, exponent: int, sign: int) -> None:
    at = some_points(problem_of(seed))
    direction = np.ones(at.problem.d) / math.sqrt(at.problem.d)
    curvature = abs(direction @ at.truth("hess_phi")[1] @ direction)
    size = 10.0**exponent * max(curvature, 0.1)
    found = taylor_test(at, 1, "grad_phi", at.truth("grad_phi")[1] + sign * size * direction)
    assert found.error == pytest.approx(size, rel=1e-2)
    if curvature > 0.2:
        assert found.crossover == pytest.approx(2 * size / curvature, rel=2)


def test_taylor_at_the_end_of_a_box_and_of_a_domain() -> None:
    boxed = BilevelProblem("x*y", "y**2/2 - x**2*y", "x", "y", box={"x": (0, 1), "y": (-2, 2)})
    for x in (0.0, 1.0):
        at = references(boxed, [[x]])
        assert taylor_test(at, 0, "grad_phi", np.array([3 * x**2])).slope > 1.9
        assert taylor_test(at, 0, "grad_phi", np.array([3 * x**2 + 1.0])).slope == pytest.approx(1, abs=0.01)
    at = references(BilevelProblem("log(x)*y", "y**2/2 - y", "x", "y"), [["1e-9"]])  # Phi = log x ends at 0
    assert taylor_test(at, 0, "grad_phi", at.truth("grad_phi")[0]).slope > 1.9


def test_taylor_without_an_answer() -> None:
    at = some_points(problem_of("scalar"))
    assert "not finite" in str(taylor_test(at, 0, "grad_phi", np.array([math.nan])))
    with pytest.raises(InvalidArgument, match="no Taylor test"):
        taylor_test(at, 0, "y_star", np.zeros(1))
    linear = references(BilevelProblem("x + y", "y**2/2 - x*y", "x", "y"), [[0.3]])
    assert taylor_test(linear, 0, "grad_phi", np.array([2.0])).slope == math.inf
    assert "vanishes" in str(taylor_test(linear, 0, "grad_phi", np.array([2.0 + 1e-16])))


# behaviour: what a candidate remembers


class Warm:
    """Descent from where the last call ended."""

    def __init__(self, problem: BilevelProblem, steps: int) -> None:
        self.problem, self.steps, self.y = problem, steps, np.zeros(problem.n)

    def __call__(self, x: Floats) -> Floats:
        self.y = descended(self.problem, x, self.y, self.steps)
        return formula(self.problem, x, self.y)


class Late:
    """Answers with ``of(the point asked before, this point)``."""

    def __init__(self, problem: BilevelProblem, of: Callable[[Floats, Floats], Floats]) -> None:
        self.of, self.before = of, np.zeros(problem.d)

    def __call__(self, x: Floats) -> Floats:
        before, self.before = self.before, x
        return self.of(before, x)


@pytest.mark.parametrize("name", ["implicit_cubic", "logistic", "ridge", 3, 4])
def test_what_is_carried_from_call_to_call(name: str | int) -> None:
    problem = problem_of(name)
    kernels = problem.kernels
    stale = behaved(problem, Warm(problem, 1))
    assert stale.remembers
    assert stale.diagnosis is not None
    assert stale.diagnosis.cause == "y*"
    assert "stale warm start" in stale.diagnosis.what
    assert stale.errors[-1] < stale.errors[0]
    assert cause_of(problem, Late(problem, lambda before, x: kernels.grad_phi(before))) == "predecessor"
    assert cause_of(problem, Late(problem, lambda before, x: formula(problem, x, kernels.y_star(before)))) == "y*"
    assert cause_of(problem, Late(problem, lambda before, x: kernels.hess_phi(before)), "hess_phi") == "predecessor"
    assert cause_of(problem, Late(problem, lambda before, x: kernels.y_star(before)), "y_star") == "predecessor"


def test_a_warm_start_of_a_hard_problem() -> None:
    assert cause_of(quadratic(1e4), Warm(quadratic(1e4), 1)) == "y*"


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("bias", [0.0, 0.3])
@pytest.mark.parametrize("name", ["saddle", 4])
def test_random_answers(name: str | int, bias: float) -> None:
    problem, rng = problem_of(name), np.random.default_rng(5)
    seen = behaved(problem, lambda x: problem.kernels.grad_phi(x) + bias + 0.1 * rng.standard_normal(problem.d))
    assert seen.random
    assert seen.biased == (bias > 0)
    assert seen.diagnosis is not None
    assert seen.diagnosis.cause == "noise"
    assert seen.standard_error is not None
    assert float(seen.standard_error.max()) < 0.05


# behaviour: rough and smooth errors


def single(array: NDArray[Any]) -> Floats:
    """Rounded to single precision."""
    return array.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("name", EACH)
def test_single_precision(name: str | int) -> None:
    problem = problem_of(name)
    kernels = problem.kernels

    def inside(x: Floats) -> Floats:
        x, y = single(x), single(kernels.y_star(single(x)))
        v = single(np.linalg.solve(single(kernels.g_yy(x, y)), single(kernels.f_y(x, y))))
        return np.asarray(kernels.f_x(x, y) - kernels.g_xy(x, y) @ v)  # in double again

    assert cause_of(problem, lambda x: kernels.grad_phi(x).astype(np.float32)) == "precision"
    assert cause_of(problem, lambda x: single(kernels.grad_phi(single(x)))) == "precision"
    assert cause_of(problem, inside) == "precision"


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("h", [1e-9, 1e-12])
def test_finite_differences_of_rounded_values(name: str | int, h: float) -> None:
    problem = problem_of(name)
    phi, grad, axes = problem.kernels.phi, problem.kernels.grad_phi, h * np.eye(problem.d)
    assert cause_of(problem, lambda x: (phi(x + axes) - phi(x - axes)) / (2 * h)) == "noise"
    assert cause_of(problem, lambda x: (grad(x + axes) - grad(x - axes)) / (2 * h), "hess_phi") == "noise"


def test_noise_counted_as_curvature() -> None:
    """A Hessian of finite differences of gradients that are noisy, though never twice differently at one point."""
    problem = problem_of(4)

    def noisy(x: Floats) -> Floats:
        bits = np.random.default_rng(np.ascontiguousarray(x).view(np.uint64))
        return np.asarray(problem.kernels.grad_phi(x) + 1e-6 * bits.standard_normal(problem.d))

    def hessian(x: Floats) -> Floats:
        rows = np.array([(noisy(x + 1e-4 * axis) - noisy(x - 1e-4 * axis)) / 2e-4 for axis in np.eye(problem.d)])
        return np.asarray((rows + rows.T) / 2)

    assert cause_of(problem, hessian, "hess_phi") == "noise"


@pytest.mark.slow
@pytest.mark.in_ci(name=("implicit_cubic", 0, 3))
@pytest.mark.parametrize(
    "name",
    [
        "implicit_cubic",
        0,
        3,
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("logistic", "saddle", "hyper_cleaning", 1, 6, 9)),
    ],
)
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_a_tolerance_inside(name: str | int, tol: float) -> None:
    problem = problem_of(name)
    start = np.zeros(problem.n)
    found = cause_of(problem, lambda x: formula(problem, x, descended(problem, x, start, 10000, tol)))
    assert found == "tolerance"
    assert cause_of(problem, lambda x: descended(problem, x, start, 10000, tol), "y_star") == "tolerance"


@pytest.mark.parametrize(
    "name",
    [
        "implicit_cubic",
        1,
        pytest.param("logistic", marks=pytest.mark.slow),
        pytest.param("saddle", marks=pytest.mark.slow),
        4,
    ],
)
def test_the_default_tolerance_of_scipy(name: str | int) -> None:
    from scipy.optimize import minimize

    problem = problem_of(name)
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        y = minimize(lambda y: float(k.g(x, y)), np.zeros(problem.n), jac=lambda y: k.g_y(x, y), method="BFGS").x
        return formula(problem, x, y)

    assert cause_of(problem, candidate) == "tolerance"


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", EACH)
def test_smooth_errors_are_left_to_others(name: str | int) -> None:
    problem = problem_of(name)
    k = problem.kernels
    start = np.zeros(problem.n)
    for error in (0.3, 1e-3, 1e-7):
        assert cause_of(problem, lambda x, error=error: (1 + error) * k.grad_phi(x)) is None
        assert cause_of(problem, lambda x, error=error: (1 + error) * k.hess_phi(x), "hess_phi") is None
    assert cause_of(problem, lambda x: formula(problem, x, descended(problem, x, start, 5))) is None
    assert cause_of(problem, lambda x: descended(problem, x, start, 5), "y_star") is None
    assert cause_of(problem, k.grad_phi) is None
    assert cause_of(problem, lambda x: np.full(problem.d, np.nan)) is None


def test_behaviour_with_one_point_and_no_box() -> None:
    at = references(BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y"), [[0.7]])
    kernels = at.problem.kernels
    assert behaviour(Candidate(lambda x: 2 * kernels.grad_phi(x), (1,)), at, "grad_phi", 0).diagnosis is None
    found = behaviour(Candidate(lambda x: single(kernels.grad_phi(single(x))), (1,)), at, "grad_phi", 0).diagnosis
    assert found is not None
    assert found.cause == "precision"


def test_a_candidate_of_many_steps_is_asked_less() -> None:
    at = some_points(problem_of(4))
    kernels = at.problem.kernels
    answer = np.asarray(0.999 * kernels.grad_phi(at.x[0]))

    def wrong(x: Floats, D: int = 1) -> Floats:
        return np.asarray(0.999 * kernels.grad_phi(x))

    candidate = Candidate(wrong, (at.problem.d,))
    seen = behaviour(candidate, at, "grad_phi", 0, before=answer, calls=10)
    assert candidate.calls == 1
    assert not seen.random
    assert len(seen.errors) == 2
    behaviour(candidate, at, "grad_phi", 0, before=answer, explained=True)
    assert candidate.calls == 1 + 5
    candidate = Candidate(lambda x: wrong(x), (at.problem.d,))
    behaviour(candidate, at, "grad_phi", 0, calls=60)
    assert 5 < candidate.calls <= 60


def test_an_answer_that_differs_and_may_not_be_asked_again_decides_nothing() -> None:
    at = some_points(problem_of(4))
    candidate = Candidate(lambda x: 0.9 * at.problem.kernels.grad_phi(x), (at.problem.d,))
    seen = behaviour(candidate, at, "grad_phi", 0, before=at.truth("grad_phi")[0], calls=3)
    assert (seen.random, seen.biased) == (True, False)
    assert seen.diagnosis is not None
    assert "no steps left" in seen.diagnosis.what


# convergence


def converged(problem: BilevelProblem, function: Function, steps: float = 10 * STEPS) -> Convergence:
    return convergence(Candidate(function, (problem.d,), Budget(steps)), some_points(problem), "grad_phi")


def estimators(problem: BilevelProblem) -> list[Function]:
    """Right ones, which take counts."""
    tau = 1 / ell_of(problem)

    def aid(x: Floats, D: int, N: int) -> Floats:
        return AID(D=D, N=N, tau=tau).estimate(problem, x).grad_phi_hat

    def itd(x: Floats, D: int) -> Floats:
        return ITD(D=D, tau=tau).estimate(problem, x).grad_phi_hat

    def neumann(x: Floats, D: int, Q: int) -> Floats:
        return Neumann(Q=Q, eta_neumann=tau, D=D, tau=tau).estimate(problem, x).grad_phi_hat

    return [aid, itd, neumann]


@pytest.mark.slow
@pytest.mark.in_ci(name=("quadratic", "saddle", "implicit_cubic", 0, 3, 6))
@pytest.mark.parametrize("name", EACH)
def test_right_estimators_reach_the_floor(name: str | int) -> None:
    problem = problem_of(name)
    for estimator in estimators(problem):
        found = converged(problem, estimator)
        assert found.verdict == "reached"
        assert found.diagnosis is None
        values = [estimator(x, **found.settings) for x in found.x]
        truth = references(problem, found.x).truth("grad_phi")
        assert np.all(np.linalg.norm(np.array(values) - truth, axis=1) <= found.floor)


def test_right_minimax_estimator_and_warm_start_at_the_root() -> None:
    problem = problem_of(2)
    tau = 1 / ell_of(problem)
    found = converged(problem, lambda x, D: GDmax(D=D, tau=tau).estimate(problem, x).grad_phi_hat)
    assert found.verdict == "reached"

    def warm(x: Floats, D: int, N: int) -> Floats:
        root = problem.kernels.y_star(x)
        return AID(D=D, N=N, tau=tau).estimate(problem, x, y0=root, v0=np.zeros(problem.n)).grad_phi_hat

    assert converged(problem, warm).verdict == "reached"


@pytest.mark.slow
@pytest.mark.parametrize("kappa", [1e3, 1e4])
def test_badly_conditioned_problems_are_not_condemned(kappa: float) -> None:
    problem = quadratic(kappa)
    for estimator in estimators(problem):
        found = converged(problem, estimator, STEPS)
        assert found.verdict in ("reached", "as theory says", "still shrinking")
        assert found.diagnosis is None


def conjugate_gradients(A: Floats, right: Floats, N: int, defect: str) -> Floats:
    v, r = np.zeros_like(right), right.copy()
    p = r.copy()
    for step in range(N):
        if r @ r == 0 and defect != "no guard":
            break
        alpha = (r @ r) / (p @ (A @ p))
        new, rest = v + alpha * p, r - (1 if defect == "no step size" else alpha) * (A @ p)
        if (defect == "dropped at the end" and rest @ rest < 1e-24) or (defect == "one less" and step == N - 1):
            break
        v, p, r = new, rest + (rest @ rest) / (r @ r) * p, rest
    return v


def by_conjugate_gradients(problem: BilevelProblem, defect: str) -> Function:
    k = problem.kernels

    def candidate(x: Floats, N: int) -> Floats:
        y = k.y_star(x)
        v = conjugate_gradients(k.g_yy(x, y), k.f_y(x, y), N, defect)
        return np.asarray(k.f_x(x, y) - k.g_xy(x, y) @ v)

    return candidate


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
def test_defects_of_conjugate_gradients(name: str | int) -> None:
    problem = problem_of(name)
    assert converged(problem, by_conjugate_gradients(problem, "")).verdict == "reached"
    expected = {"dropped at the end": ("plateau",), "one less": ("reached",)}
    for defect, verdicts in expected.items():
        found = converged(problem, by_conjugate_gradients(problem, defect))
        assert found.verdict in verdicts
        assert found.diagnosis is not None
        assert found.diagnosis.cause == "inverse"
    wrong = converged(problem, by_conjugate_gradients(problem, "no step size"))
    assert wrong.verdict in ("plateau", "diverges", "not finite")


@pytest.mark.parametrize("problem", [problem_of("implicit_cubic"), problem_of(0), quadratic(1.0)])
def test_conjugate_gradients_without_a_guard(problem: BilevelProblem) -> None:
    """Isotropic g_yy: the residual is zero after a step."""
    found = converged(problem, by_conjugate_gradients(problem, "no guard"))
    assert found.verdict == "not finite"
    assert found.diagnosis is not None
    assert found.diagnosis.cause == "inverse"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["implicit_cubic", "logistic", "saddle", 3, 4])
def test_steps_that_are_too_long(name: str | int) -> None:
    problem = problem_of(name)
    tau, far = 1 / ell_of(problem), 2.5 * 1.2 / ell_of(problem)

    def series(x: Floats, D: int, Q: int) -> Floats:
        return Neumann(Q=Q, eta_neumann=far, D=D, tau=tau).estimate(problem, x).grad_phi_hat

    def lower(x: Floats, D: int, N: int) -> Floats:
        y = np.zeros(problem.n)
        for _ in range(D):
            y = y - 3 * tau * problem.kernels.g_y(x, y)
        return np.asarray(problem.kernels.grad_phi(x) + problem.kernels.g_xy(x, y) @ (y - problem.kernels.y_star(x)))

    found = converged(problem, series)
    assert (found.verdict, found.diagnosis.cause if found.diagnosis else None) == ("diverges", "inverse")
    if isinstance(name, int):  # there g grows like a square, so that numbers do not overflow at once
        found = converged(problem, lower)
        assert (found.verdict, found.diagnosis.cause if found.diagnosis else None) == ("diverges", "y*")


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("problem", [*map(problem_of, ["implicit_cubic", 3, 4]), quadratic(10.0)])
def test_a_bias_is_a_plateau(problem: BilevelProblem) -> None:
    aid = estimators(problem)[0]
    for factor in (0.5, 0.9999, 1 + 1e-8):
        assert converged(problem, lambda x, D, N, factor=factor: factor * aid(x, D, N)).verdict == "plateau"
    ignored = converged(problem, lambda x, D, N: aid(x, 3, N))
    assert ignored.verdict == "plateau"
    assert "D changes nothing" in str(ignored)


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", ["implicit_cubic", "logistic", "saddle", 3, 4])
def test_the_error_follows_a_tolerance(name: str | int) -> None:
    problem = problem_of(name)
    start = np.zeros(problem.n)

    def candidate(x: Floats, tol: float) -> Floats:
        return formula(problem, x, descended(problem, x, start, 10**6, tol))

    assert converged(problem, candidate).verdict in ("reached", "as theory says")
    assert converged(problem, lambda x, tol: 1.001 * candidate(x, tol)).verdict == "plateau"


def test_what_the_candidate_raises_is_its_own() -> None:
    problem = problem_of(4)

    def candidate(x: Floats, N: int) -> Floats:
        if N > 4:
            raise RuntimeError("too many")
        return 2 * problem.kernels.grad_phi(x)

    with pytest.raises(RuntimeError, match="too many") as raised:
        converged(problem, candidate)
    assert "N=8" in "".join(raised.value.__notes__)


def test_a_candidate_without_knobs_has_no_convergence() -> None:
    with pytest.raises(InvalidArgument, match="neither D, N, Q nor tol"):
        converged(problem_of(4), lambda x: x)
