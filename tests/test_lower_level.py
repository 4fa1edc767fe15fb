"""y* to round-off, each member of a batch on its own schedule; and the small linear systems below it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

import bilevel_sym
from bilevel_sym import BilevelProblem, Descent, Exact, Status, compile_kernels, evaluate, zoo
from bilevel_sym.arithmetic.linear_algebra import Factored, NotPositiveDefinite, smallest_eigenvalues
from bilevel_sym.errors import KernelError, LowerLevelFailure
from bilevel_sym.implicit.lower_level import MAX_STEPS, solve_lower_level
from bilevel_sym.kernels.choice import Backend, choose_engine
from bilevel_sym.typing import Floats

EPS = float(np.finfo(float).eps)
BACKENDS: list[Backend] = ["tape", "compiled", "lambdify"]
CLOSED = [name for name in zoo.names() if zoo.get(name).y_star is not None]


def points_in_box(problem: BilevelProblem, count: int, seed: int = 0) -> Floats:
    """Points with few binary digits, strictly inside the box in x."""
    assert problem.box is not None
    ends = dict(problem.box.items())
    lo, hi = (np.array([float(ends[s.name][k]) for s in problem.x]) for k in (0, 1))
    shares = np.random.default_rng(seed).integers(1, 32, (count, problem.d)) / 32
    return np.asarray(lo + (hi - lo) * shares)


def solve(problem: BilevelProblem, x: Any, y0: Any = None) -> Any:
    engine = choose_engine(problem, "tape")
    x = np.array(x, dtype=float)
    return solve_lower_level(engine, x, np.zeros((len(x), problem.n)) if y0 is None else np.array(y0, dtype=float))


# ---- y* --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", CLOSED)
def test_y_star_is_the_closed_form_to_round_off(name: str) -> None:
    example = zoo.get(name)
    problem = example.problem
    assert example.y_star is not None
    x = points_in_box(problem, 3)
    got = compile_kernels(problem, backend="tape").y_star(x)
    for point, found in zip(x, got, strict=True):
        exact = {s: sp.Rational(float(value)) for s, value in zip(problem.x, point, strict=True)}
        truth = np.array([float(entry.subs(exact).evalf(30)) for entry in example.y_star])
        assert np.abs(found - truth).max() <= 64 * EPS * max(1e-300, np.abs(truth).max())


def test_a_minimiser_far_from_the_start_is_found_without_a_warning() -> None:
    # from y = 0 the relative size of a step overflows
    kernels = BilevelProblem("x*y", "(y - 1000*x)**2/2", "x", "y").kernels
    assert kernels.y_star([3.0]) == [3000.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_finds_the_same_root(backend: Backend) -> None:
    problem = BilevelProblem("x*y", "exp(y) + y**2/2 - x*y", "x", "y")
    x = np.linspace(-3, 3, 13)[:, None]
    y = compile_kernels(problem, backend=backend).y_star(x)
    assert np.abs(np.exp(y) + y - x).max() <= 8 * EPS


def test_a_tiny_root_keeps_its_relative_digits() -> None:
    kernels = BilevelProblem("x*y", "sinh(y)*y/2 + y**2 - x*y", "x", "y").kernels
    x = np.array([[1e-3], [1e-9], [1e-30], [1e-200]])
    np.testing.assert_allclose(kernels.y_star(x)[1:], x[1:] / 3, rtol=1e-14)


EASY, HARD, ROOT = 0, 1, 2


def mixed() -> tuple[BilevelProblem, Floats, Floats]:
    problem = BilevelProblem("x*y", "exp(3*y) + y**2/2 - x*y", "x", "y")
    x, y0 = np.array([[0.5], [900.0], [3.0]]), np.array([[-0.3], [-2.0], [0.0]])
    return problem, x, y0


def test_each_member_keeps_its_own_schedule() -> None:
    problem, x, y0 = mixed()
    together = solve(problem, x, y0)
    for k in range(3):
        alone = solve(problem, x[k : k + 1], y0[k : k + 1])
        assert alone.evaluations[0] == together.evaluations[k]
        np.testing.assert_allclose(alone.y[0], together.y[k], rtol=1e-15)
    assert together.evaluations[ROOT] == 1
    assert together.evaluations[EASY] < together.evaluations[HARD]


def test_a_warm_start_at_the_root_costs_one_evaluation() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    assert solve(problem, [[2.0]], [[2.0]]).evaluations.tolist() == [1]
    with problem.kernels.counting() as c:
        problem.kernels.y_star([[2.0], [5.0]], y0=[[2.0], [4.0]])
    assert c.G_g[0] == 1
    assert c.G_g[1] > 1


def test_starts_are_not_overwritten() -> None:
    problem, x, y0 = mixed()
    before = y0.copy()
    solve(problem, x, y0)
    problem.kernels.y_star(x, y0=y0)
    assert (y0 == before).all()


@pytest.mark.parametrize("power", [6, 9, 12])
def test_a_badly_scaled_lower_level_still_has_a_small_residual(power: int) -> None:
    kappa = 10**power
    problem = BilevelProblem("x*y1 + y2", f"{kappa}*(y1 - y2 - x)**2/2 + (y1 + y2)**2/2 + exp(y2)/10", "x", "y1 y2")
    kernels = compile_kernels(problem, backend="tape")
    y = kernels.y_star([0.7])
    scale = np.abs(kernels.g_yy([0.7], y)) @ np.abs(y)
    assert (np.abs(kernels.g_y([0.7], y)) <= 32 * EPS * scale.max()).all()


@given(st.integers(0, 10**6))
def test_random_convex_problems_are_solved_to_round_off(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    problem = random_convex(n)
    x, y0 = rng.normal(size=(9, 2)), rng.normal(size=(9, n)) * 3
    solution = solve(problem, x, y0)
    kernels = compile_kernels(problem, backend="tape")
    g_y, g_yy = kernels.g_y(x, solution.y), kernels.g_yy(x, solution.y)
    step = np.linalg.solve(g_yy, g_y[:, :, None])[:, :, 0]
    assert np.abs(step).max() <= 32 * EPS * max(1.0, np.abs(solution.y).max())


def random_convex(n: int) -> BilevelProblem:
    terms = [f"softplus(y{k} - 2*x1*y{1 + k % n}) + cosh(y{k})/2 + y{k}**2 - x2*y{k}" for k in range(1, n + 1)]
    return BilevelProblem("x1*x2*y1", " + ".join(terms), "x1 x2", " ".join(f"y{k}" for k in range(1, n + 1)))


# ---- failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_failures_name_the_member_in_the_users_batch(backend: Backend) -> None:
    kernels = compile_kernels(BilevelProblem("x*y", "x*y**2/2 - y", "x", "y"), backend=backend)
    x = np.ones((4, 3, 1))
    x[2, 1] = -2.0
    for member in (kernels.y_star, kernels.phi, kernels.grad_phi, kernels.hess_phi, kernels.third_phi):
        with pytest.raises(LowerLevelFailure, match="not strongly convex") as caught:
            member(x)
        error = caught.value
        assert (error.member, error.x, error.eigenvalue) == ((2, 1), (-2.0,), -2.0)
        assert len(error.y) == 1
    with pytest.raises(LowerLevelFailure) as caught:
        kernels.y_star([-2.0])
    assert caught.value.member == ()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_given_y_may_fail_too(backend: Backend) -> None:
    kernels = compile_kernels(BilevelProblem("x*y", "y**4/4 - x*y**2", "x", "y"), backend=backend)
    for shape in ((), (3,), (40,), (2, 2)):
        x, y = np.ones((*shape, 1)), np.full((*shape, 1), 5.0)
        y.reshape(-1)[-1] = 0.25
        with pytest.raises(LowerLevelFailure) as caught:
            kernels.expansion(x, y)
        assert caught.value.eigenvalue == pytest.approx(3 / 16 - 2)
        assert caught.value.y == (0.25,)


def test_a_failing_member_beyond_the_first_chunk_keeps_its_index() -> None:
    kernels = BilevelProblem("x*y", "x*y**2/2 - y", "x", "y").kernels
    x = np.ones((7, 300, 1))
    x[5, 123] = -1
    with pytest.raises(LowerLevelFailure) as caught:
        kernels.hess_phi(x)
    assert caught.value.member == (5, 123)


@pytest.mark.parametrize("g", ["exp(y)", "log(1 + exp(y))", "y**2/2 + abs(y - 1/3) - y/10"])
def test_a_lower_level_without_a_smooth_minimiser_fails_and_says_so(g: str) -> None:
    kernels = BilevelProblem("x*y", g, "x", "y").kernels
    with pytest.raises(LowerLevelFailure):
        kernels.y_star([[1.0], [2.0]])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("a", "b"), [(3, 7), (1, 3), (7, 11), (13, 17), (1, 1)])
def test_a_nearly_singular_lower_level_is_refused_rather_than_solved(a: int, b: int, backend: Backend) -> None:
    # numpy.linalg.solve of such a matrix returned 2e15 without an error
    g = f"({a}*y1 + {b}*y2)**2/10 + 10**(-18)*(y1**2 + y2**2) - x*y1"
    kernels = compile_kernels(BilevelProblem("x*y1", g, "x", "y1 y2"), backend=backend)
    for batch in (1, 10):
        with pytest.raises(LowerLevelFailure):
            kernels.grad_phi(np.ones((batch, 1)))


def test_a_start_outside_the_domain_is_said() -> None:
    kernels = BilevelProblem("x*y", "-log(y) + y**2/2", "x", "y").kernels
    with pytest.raises(LowerLevelFailure, match="not defined at the start"):
        kernels.y_star([1.0])
    np.testing.assert_allclose(kernels.y_star([1.0], y0=[0.1]), [1.0], rtol=1e-15)


def test_the_box_says_where_to_start() -> None:
    problem = BilevelProblem("x*y", "-log(y) + y**2/2", "x", "y", box={"x": (0, 1), "y": (1, 3)})
    np.testing.assert_allclose(problem.kernels.y_star([0.5]), [1.0], rtol=1e-15)


# ---- linear algebra --------------------------------------------------------------------------------------


def positive_definite(rng: np.random.Generator, batch: int, n: int, condition: float = 100.0) -> Floats:
    q = np.linalg.qr(rng.normal(size=(batch, n, n)))[0]
    matrices = (q * np.geomspace(1, condition, n)) @ q.transpose(0, 2, 1)
    return np.asarray(matrices + matrices.transpose(0, 2, 1)) / 2


@pytest.mark.parametrize("n", [*range(1, 13), 20, 41])
@pytest.mark.parametrize("batch", [1, 2, 7, 64])
def test_solutions_agree_with_lapack(n: int, batch: int) -> None:
    rng = np.random.default_rng(100 * n + batch)
    matrices, right = positive_definite(rng, batch, n), rng.normal(size=(batch, n, 3))
    factored = Factored(matrices)
    np.testing.assert_allclose(factored.solve(right), np.linalg.solve(matrices, right), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(factored.solve(right[:, :, :1]), np.linalg.solve(matrices, right[:, :, :1]), atol=1e-12)


@pytest.mark.parametrize("batch", [1, 20])
def test_isotropic_systems_are_exact(batch: int) -> None:
    right = np.arange(1.0, 1 + 4 * batch).reshape(batch, 4, 1)
    assert (Factored(np.tile(4 * np.eye(4), (batch, 1, 1))).solve(right) == right / 4).all()


@pytest.mark.parametrize("batch", [1, 3, 9, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("n", [1, 2, 6, 13])
def test_nan_and_indefinite_matrices_are_never_solved(batch: int, n: int) -> None:
    # numpy.linalg.eigvalsh of a matrix with NaN may return finite numbers; LAPACK's Cholesky lets NaN pass
    rng = np.random.default_rng(n)
    for i in range(n):
        for j in range(i + 1):
            for bad in (np.nan, -np.inf, -1e6):
                matrices = positive_definite(rng, batch, n)
                matrices[-1, i, j] = matrices[-1, j, i] = bad
                with pytest.raises(NotPositiveDefinite) as caught:
                    Factored(matrices)
                assert caught.value.members[0] == batch - 1
                assert np.isnan(caught.value.eigenvalues[0]) or caught.value.eigenvalues[0] < 0


@pytest.mark.parametrize("batch", [1, 20])
@pytest.mark.parametrize("off", [0.0, np.inf, -np.inf])
def test_infinite_matrices_are_never_solved(off: float, batch: int) -> None:
    # an infinite pivot before the last one leaves a factor that looks fine
    # DEFECT for off = -inf: NumPy warns of inf - inf where finiteness is asked by way of a sum
    matrices = np.tile(np.array([[np.inf, off], [off, 1.0]]), (batch, 1, 1))
    with pytest.raises(NotPositiveDefinite):
        Factored(matrices)


@pytest.mark.parametrize("batch", [1, 20])
def test_the_largest_numbers_are_solved_without_a_warning(batch: int) -> None:
    # DEFECT: the sum of all entries overflows, and NumPy warns
    matrices = np.tile(np.diag([1.5e308, 1.5e308]), (batch, 1, 1))
    np.testing.assert_allclose(Factored(matrices).solve(np.full((batch, 2, 1), 1.5e308)), 1.0, rtol=1e-14)


def test_smallest_eigenvalues_of_nan_are_nan() -> None:
    matrices = np.array([np.diag([3.0, 2.0]), [[1.0, np.nan], [np.nan, 1.0]], [[np.inf, 0.0], [0.0, 1.0]]])
    np.testing.assert_array_equal(smallest_eigenvalues(matrices), [2.0, np.nan, np.nan])


def test_a_singular_matrix_is_not_solved() -> None:
    for batch in (1, 10):
        with pytest.raises(NotPositiveDefinite):
            Factored(np.tile(np.ones((3, 3)), (batch, 1, 1)))


# ---- each component to its own round-off; inside the domain -----------------------------------------------------


@pytest.mark.parametrize("size", ["1e4", "1e8", "1e12", "1e16"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_large_component_does_not_hide_a_small_one(size: str, backend: Backend) -> None:
    problem = BilevelProblem("y2", f"(y1 - {size}*x)**2/2 + exp(y2) - 2*y2", "x", "y1 y2")
    y = compile_kernels(problem, backend=backend).y_star([1.0])
    np.testing.assert_allclose(y, [float(size), math.log(2)], rtol=4e-16)


@pytest.mark.parametrize("backend", BACKENDS)
def test_noise_in_a_stiff_component_does_not_hide_another(backend: Backend) -> None:
    problem = BilevelProblem("y2", "1e10*(y1 - x)**2/2 + 1e10*exp(y1) + exp(y2) - (1 + x**2)*y2", "x", "y1 y2")
    x = np.random.default_rng(5).uniform(-3, 3, (300, 1))
    y = compile_kernels(problem, backend=backend).y_star(x)
    np.testing.assert_allclose(y[:, 1], np.log1p(x[:, 0] ** 2), rtol=2e-15, atol=1e-15)


def test_a_tiny_component_has_relative_digits() -> None:
    problem = BilevelProblem("y2", "(y1 - 1)**2/2 + exp(y2) - y2*(1 + x/1e9) + y2**2", "x", "y1 y2")
    y = problem.kernels.y_star([0.7])
    truth = evaluate(problem, [0.7]).y_star[1]
    assert truth.correct_digits(float(y[1])) > 6  # conditioning: exp(y2) - 1 cancels nine digits, no more


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("g", "x"),
    [("y**2/2 - log(y - x)", 1.0), ("y**2/2 - log(y) + x*y", 1.0), ("y**2/2 + sqrt(y - x)**3", 1.0)],
)
def test_outside_the_domain_of_g_there_is_no_minimiser(g: str, x: float, backend: Backend) -> None:
    kernels = compile_kernels(BilevelProblem("y", g, "x", "y"), backend=backend)
    with pytest.raises(LowerLevelFailure, match="not defined at the start"):
        kernels.y_star([x], y0=[-1.0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_barrier_is_respected_from_inside(backend: Backend) -> None:
    kernels = compile_kernels(BilevelProblem("y", "y**2/2 - log(y - x)", "x", "y"), backend=backend)
    np.testing.assert_allclose(kernels.y_star([1.0], y0=[1.0001]), (1 + math.sqrt(5)) / 2, rtol=1e-15)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", ["log(y)", "log(log(y + 1))", "Piecewise((y, x > 0), (log(x), True))"])
def test_derivatives_of_what_is_not_defined_raise(f: str, backend: Backend) -> None:
    kernels = compile_kernels(BilevelProblem(f, "y**2/2 - x*y", "x", "y"), backend=backend)
    for name in ("phi", "grad_phi", "hess_phi", "third_phi"):
        with pytest.raises(KernelError, match="not finite"):
            getattr(kernels, name)([-0.5])


@pytest.mark.parametrize("x", [1e15, 1e18, 1e20])
def test_steep_exponentials_are_climbed_down(x: float) -> None:
    problem = BilevelProblem("y", "y**2/2 + exp(y) - x*y", "x", "y")
    y = problem.kernels.y_star([x])
    assert float(y[0]) == pytest.approx(math.log(x), rel=1e-12)  # y itself is nothing beside x


def test_a_component_whose_true_value_is_zero_does_not_keep_newton_turning() -> None:
    """Found by chance: rounding errors about zero went on falling by a hair for more than 200 steps."""
    for seed in range(330, 338):
        example = zoo.get("quadratic", d=3, n=3, spectrum="two", seed=seed)
        kernels = example.problem.kernels
        wanted = [float(e.subs(dict.fromkeys(example.problem.x, 0))) for e in example.y_star or ()]
        np.testing.assert_allclose(kernels.y_star([0.0, 0.0, 0.0]), wanted, atol=1e-12)


@pytest.mark.slow
def test_components_far_below_the_others_do_not_cost_newton_its_speed() -> None:
    """Along this run coordinates of y* fall below 1e-100 beside others of size one."""
    problem = zoo.get("tube_coupled", d=5, kappa=10, L=2).problem
    start = np.linspace(-1, 1, 5)
    run = bilevel_sym.solve(problem, Descent(Exact(), 0.01), start, steps=300, record="last", backend="tape")
    assert run.status is Status.OUT_OF_STEPS
    assert run.counters.G_g < 6 * 300


# ---- from far away ---------------------------------------------------------------------------------------------

STEEP = ["y**2/2 + exp(y)", "y**2/2 + cosh(3*y)", "y**2/2 + y**20 - x*y", "y**2/2 + exp(exp(y))", "y**2/2 + exp(y**2)"]
OMEGA = 0.5671432904097838  # exp(-OMEGA) = OMEGA


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("y0", [700.0, -700.0, 1000.0, 1e6])
def test_newton_arrives_from_far_away(y0: float, backend: Backend) -> None:
    # DEFECT: a step is 1 long, wherever y is, and 200 of them were all; beyond 709.78 exp overflows
    kernels = compile_kernels(BilevelProblem("x*y", "y**2/2 + exp(y)", "x", "y"), backend=backend)
    with kernels.counting() as counters:
        np.testing.assert_allclose(kernels.y_star([1.0], y0=[y0]), [-OMEGA], rtol=4e-16)
    assert counters.G_g < 300


@given(st.sampled_from(STEEP), st.floats(-1e8, 1e8))
def test_the_start_does_not_decide_where_newton_ends(g: str, y0: float) -> None:
    kernels = compile_kernels(BilevelProblem("x*y", g, "x", "y"), backend="tape")
    np.testing.assert_allclose(kernels.y_star([0.5], y0=[y0]), kernels.y_star([0.5]), rtol=1e-15, atol=1e-25)


def test_components_far_and_near_arrive_together() -> None:
    g = "exp(y1) + exp(-y2) + (y1 - y2)**2/2 + (y1 + y2 - x)**2/2 + cosh(y3) + (y3 - y1)**2/2"
    problem = BilevelProblem("x*y1", g, "x", "y1 y2 y3")
    nearby = solve(problem, [[0.5]]).y
    for y0 in ([700, 0.1, 3], [600, -650, 3], [0, -700, 1e-3], [2000, -3000, 1e5], [1, 1, 1e7]):
        np.testing.assert_allclose(solve(problem, [[0.5]], [y0]).y, nearby, rtol=1e-14)


def test_members_from_far_away_have_the_same_bits_in_any_company() -> None:
    problem = BilevelProblem("x*y1 + y2", "exp(y1) + exp(-2*y2) + y1**2/2 + (y2 - y1 - x)**2/2", "x", "y1 y2")
    far = [[700.0, 0.0], [1.0, 2.0], [1e4, -3.0], [0.0, -340.0], [300.0, -200.0], [-5.0, 1e6], [0.1, 0.2]]
    x, y0 = np.linspace(-1, 1, len(far))[:, None], np.array(far)
    backwards = np.arange(len(far))[::-1]
    together = Exact().estimate(problem, x, y0=y0)
    turned = Exact().estimate(problem, x[backwards], y0=y0[backwards])
    for k in range(len(far)):
        alone = Exact().estimate(problem, x[k], y0=y0[k])
        for name in ("y_D", "grad_phi_hat"):
            wanted = np.asarray(getattr(alone, name)).tobytes()
            assert getattr(together, name)[k].tobytes() == wanted
            assert getattr(turned, name)[len(far) - 1 - k].tobytes() == wanted


def test_steps_are_stretched_only_where_the_plain_ones_do_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y")
    x, y0 = np.full((4, 1), 0.5), np.array([[-3.0], [10.0], [30.0], [45.0]])
    before = solve(problem, x, y0)
    monkeypatch.setattr("bilevel_sym.implicit.lower_level.PLAIN_STEPS", MAX_STEPS)
    after = solve(problem, x, y0)
    assert before.y.tobytes() == after.y.tobytes()
    assert (before.evaluations == after.evaluations).all()
    with pytest.raises(LowerLevelFailure, match="300 steps"):
        solve(problem, [[0.5]], [[700.0]])


@pytest.mark.slow
@pytest.mark.parametrize("y0", [-1e30, 1e12, 1e100, 1e300])
@pytest.mark.parametrize("g", ["y**4 + y**2 - x*y", "y**2/2 + exp(y) - x*y", "cosh(y) - x*y", "(y - x)**6 + y**2"])
def test_however_far_it_begins_it_ends_at_the_same_point(g: str, y0: float) -> None:
    problem = BilevelProblem("x*y", g, "x", "y")
    np.testing.assert_allclose(solve(problem, [[0.5]], [[y0]]).y, solve(problem, [[0.5]], [[0.0]]).y, rtol=1e-14)


def test_where_it_began_excuses_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bilevel_sym.implicit.lower_level.MAX_STEPS", 10)
    with pytest.raises(LowerLevelFailure, match="did not converge"):
        solve(BilevelProblem("x*y", "y**4 + y**2 - x*y", "x", "y"), [[0.5]], [[1e100]])


@pytest.mark.parametrize("scale", [1e6, 1e10, 1e13])
@pytest.mark.parametrize(
    "g", ["(y1 - x)**2 + 3*(y2 - y1 + x)**2 + y2**4", "exp(y1 - x) - y1 + (y1 + y2 - x)**2/3 + cosh(y2/3)"]
)
def test_a_component_that_is_zero_beside_a_large_one_is_found(g: str, scale: float) -> None:
    x = np.random.default_rng(0).uniform(0.3, 0.6, (9, 1)) * scale
    starts = np.concatenate([x + 2, np.arange(0.0, 27.0, 3.0)[:, None]], axis=1)
    found = solve(BilevelProblem("x*y1", g, "x", "y1 y2"), x, starts).y
    assert np.abs(found - np.concatenate([x, 0 * x], axis=1)).max() <= 1e-15 * scale


def test_a_start_that_is_moved_for_nothing_is_named_as_it_was_given() -> None:
    kernels = BilevelProblem("x*y", "y**2/2 - log(y)", "x", "y").kernels
    with pytest.raises(LowerLevelFailure, match="not defined at the start") as caught:
        kernels.y_star([1.0], y0=[-800.0])
    assert caught.value.y == (-800.0,)
    with pytest.raises(LowerLevelFailure, match="not strongly convex"):
        BilevelProblem("x*y", "-exp(y)", "x", "y").kernels.y_star([1.0], y0=[1000.0])


def test_a_box_far_from_the_minimiser_does_not_stop_a_certificate() -> None:
    problem = BilevelProblem("x*y", "y**2/2 + exp(y)", "x", "y", box={"x": (0, 1), "y": (699, 701)})
    assert evaluate(problem, [1]).y_star[0].correct_digits(-OMEGA) > 15
