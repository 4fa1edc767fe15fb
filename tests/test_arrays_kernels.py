"""Kernels of array problems: other routes, sparse data, large sizes, refusals, counting."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as ss

from benchmarks.array_cases import make
from bilevel_sym import AID, BilevelProblem, Descent, Exact, MinimaxProblem, compile_kernels, solve
from bilevel_sym.arrays import execute
from bilevel_sym.arrays.data import DataArray
from bilevel_sym.arrays.order import Product, Tree, places_in
from bilevel_sym.errors import InvalidProblem, KernelError, LowerLevelFailure, TooLarge
from bilevel_sym.implicit import array_layers, conjugate_gradients, structured
from bilevel_sym.implicit.array_program import ArrayProgram, Run, Workshop
from bilevel_sym.kernels import array_engine
from bilevel_sym.kernels.choice import choose_engine
from bilevel_sym.kernels.kernels import Kernels
from bilevel_sym.problem.array_statement import ArrayStatement
from bilevel_sym.typing import Floats

LOSS = "mean(softplus(-c*(B @ y)))"
TRAINED = "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2"


def regression(m: int = 30, n: int = 4, seed: int = 0) -> BilevelProblem:
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(m, n)), rng.normal(size=(m + 1, n))
    b, c = np.where(A[:, 0] > 0, 1.0, -1.0), np.where(B[:, 0] > 0.1, 1.0, -1.0)
    return BilevelProblem(LOSS, TRAINED, "x[n]", "y[n]", data={"A": A, "b": b, "B": B, "c": c})


def quantities(kernels: Any, x: Floats) -> dict[str, Floats]:
    names = ("y_star", "v_star", "dy_dx", "phi", "grad_phi", "hess_phi", "third_phi")
    return {name: getattr(kernels, name)(x) for name in names}


def close(one: dict[str, Floats], two: dict[str, Floats], rtol: float = 1e-10) -> None:
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=rtol, atol=rtol * np.abs(value).max() + 1e-15, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tape", "lambdify"])
def test_other_backends_are_those_of_the_problem_in_scalars(backend: Any) -> None:
    problem = regression(8, 3)
    x = np.array([0.1, -0.4, 0.3])
    close(quantities(problem.kernels, x), quantities(compile_kernels(problem, backend=backend), x))


@pytest.mark.parametrize("budget", [0.0, 5.0, np.inf])
def test_factors_and_products_lead_to_the_same(budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, x = regression(40, 6), np.linspace(-1.0, 0.5, 6)
    expected = quantities(compile_kernels(problem, backend="tape"), x)
    monkeypatch.setattr(array_engine, "EACH", -1.0)  # products first, whatever they cost
    monkeypatch.setattr(array_engine.ArrayEngine, "_budget", budget)
    monkeypatch.setattr(conjugate_gradients, "TRIED", 2)
    if budget == np.inf:
        monkeypatch.setattr(array_engine, "DENSE", 0)
    fresh = BilevelProblem(LOSS, TRAINED, "x[n]", "y[n]", data=dict(problem.arrays), name=f"budget {budget}")
    kernels = array_engine_kernels(fresh)
    close(expected, quantities(kernels, x))


def array_engine_kernels(problem: BilevelProblem) -> Any:
    """Kernels that nobody has used yet."""
    return Kernels(problem, "auto", choose_engine(problem, "auto"))


SMALL = {  # in compiled code where numba is there
    "logistic": (LOSS, TRAINED, "x[n]", "y[n]"),
    "ridge": ("mean((B @ y - c)**2)", "mean((A @ y - b)**2) + exp(x) @ y**2", "x[n]", "y[n]"),
    "one penalty": (LOSS, "mean(softplus(-b*(A @ y))) + exp(lam)*(y @ y)", "lam", "y[n]"),
    "weights": ("mean((B @ y - c)**2)", "sum(sigmoid(w)*(A @ y - b)**2) + y @ y/9", "w[m]", "y[n]"),
    "softmax": (
        "mean(logsumexp(B @ W, axis=1)) - sum(B @ W)/9",
        "mean(logsumexp(A @ W, axis=1)) + exp(lam)*sum(W**2) + sum(S*W)/9", "lam, S[n, 2]", "W[n, 2]",
    ),
    "roots": (
        "sum(sqrt(1 + (B @ y)**2)) + t*(x @ x)", "sum(sqrt(1 + (A @ y - b)**2)) + y @ y + t**2 - t*(x @ y)/3", "x[n]",
        "y[n], t",
    ),
    "matrices": ("sum((y - c0)**2)", "sum((diag(exp(x)) @ A.T @ (A @ y - b))**2)/9 + y @ y", "x[n]", "y[n]"),
    "logarithms": ("(y - c0) @ y", "-sum(log(y)) + sum(exp(x)*y)", "x[n]", "y[n]"),
}  # fmt: skip


@pytest.mark.parametrize(("m", "n"), [(7, 3), (1, 1), (3, 9), (20, 8)])
@pytest.mark.parametrize("name", SMALL)
def test_compiled_code_finds_what_numpy_finds(name: str, m: int, n: int) -> None:
    compiled, plain, point = small_kernels(name, m, n)
    start = np.ones(compiled._engine.n)
    names = ("y_star", "phi", "grad_phi", "hess_phi")
    ours, others = ([getattr(kernels, name)(point, y0=start) for name in names] for kernels in (compiled, plain))
    assert plain._engine._compiled is None
    alone, at = compiled._engine._compiled, np.concatenate([point, others[0]])
    ours += [*alone.gradient(at), *alone.expansion(at)]  # NumPy takes over where these find nothing
    others += [*others[1:3], *others[1:]]
    for one, two in zip(ours, others, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-10 * np.abs(two).max())


@pytest.mark.parametrize(("m", "n"), [(7, 3), (1, 1), (3, 9), (20, 8), (30, 17)])
@pytest.mark.parametrize("name", SMALL)
def test_compiled_products_find_what_numpy_finds(name: str, m: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_engine, "COMPILED_EACH", -1.0)
    monkeypatch.setattr(array_engine, "CHOLESKY", 1e6)  # products, whatever they cost
    compiled, plain, point = small_kernels(name, m, n)
    start, alone = np.ones(compiled._engine.n), compiled._engine._compiled
    assert plain._engine._compiled is None
    assert type(alone).__name__ == "CompiledProducts"
    y_star, phi, grad_phi, hess_phi = (
        getattr(plain, name)(point, y0=start) for name in ("y_star", "phi", "grad_phi", "hess_phi")
    )
    lower, at = alone.lower_level(point, start), np.concatenate([point, y_star])
    ours = [lower.y, *alone.gradient(at), *alone.expansion(at), compiled.grad_phi(point, y0=start)]
    others = [y_star, phi, grad_phi, phi, grad_phi, hess_phi, grad_phi]
    assert min(lower.gradients, lower.products) > 0
    for one, two in zip(ours, others, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-10 * np.abs(two).max())


def test_what_takes_many_products_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(array_engine, "COMPILED_EACH", -1.0)
    problem, x = regression(40, 6), np.linspace(-1.0, 0.5, 6)
    expected = quantities(compile_kernels(problem, backend="tape"), x)
    few = array_engine_kernels(problem)
    few._engine._compiled._most = 2
    assert few._engine._compiled.lower_level(x, np.zeros(6)) is None
    at = np.concatenate([x, expected["y_star"]])
    assert few._engine._compiled.gradient(at) is few._engine._compiled.expansion(at) is None
    close(expected, quantities(few, x))


ALL = ("f", "f_y", "g_y", "g_xy", "g_yy", "L_yy", "g_yy_v", "g_xy_v", "s_x", "s_y")


@pytest.mark.parametrize("layer", [1, 20, 25])
@pytest.mark.parametrize("name", SMALL)
def test_layers_of_rows_are_all_rows(name: str, layer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, rng = small_problem(name, 11, 4), np.random.default_rng(0)
    model, sizes, data = array_engine_kernels(problem)._engine._arguments
    at = [1.0 + rng.uniform(size=size) for size in (problem.d + problem.n, problem.n, 2 * (problem.d + problem.n))]
    found, members = [], set[str]()
    for many in (10**9, 0):
        monkeypatch.setattr(array_layers, "MANY", many)
        monkeypatch.setattr(array_layers, "LAYER", layer)
        program = ArrayProgram(Workshop(model, sizes, data), ALL)
        assert not (many and program._layers)
        steps = program.workshop.plan.steps
        members |= {steps[k].kind for group in program._layers.values() for k in group.members}
        run = Run(program, ())
        for stage, point in enumerate(at):
            run.perform(stage, point)
        own = [run.block(name) for name in ALL]
        v, u = (np.linspace(0.5, 1.0, 3)[:, None] * point for point in at[1:])  # three at a time
        own += run.along(1, v, ("g_yy_v", "g_xy_v"), 3)
        run.perform(1, at[1])
        found.append(own + run.along(2, u, ("s_x", "s_y"), 2))
    assert name != "softmax" or {"contract", "multiply", "combine"} <= members
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-11, atol=1e-12 * np.abs(two).max(initial=1.0))


def small_kernels(name: str, m: int, n: int) -> tuple[Any, Any, Any]:
    """Kernels of a small problem that may run in compiled code, those that may not, and a point."""
    pytest.importorskip("numba")
    problem = small_problem(name, m, n)
    compiled: Any = array_engine_kernels(problem)
    plain: Any = Kernels(problem, "auto", compiled._engine._twin("together"))
    return compiled, plain, 0.3 * np.random.default_rng(m).normal(size=problem.d)


def small_problem(name: str, m: int, n: int) -> BilevelProblem:
    f, g, x, y = SMALL[name]
    rng = np.random.default_rng(m + n)
    data: dict[str, Any] = {"A": rng.normal(size=(m, n)), "B": rng.normal(size=(m + 1, n)), "c0": rng.normal(size=n)}
    data |= {"b": rng.normal(size=m), "c": rng.normal(size=m + 1)}
    data = {key: value for key, value in data.items() if re.search(rf"\b{key}\b", f + g)}
    return BilevelProblem(f, g, x, y, data=data)


def test_batches_are_their_points() -> None:
    problem = regression(20, 3)
    x = np.random.default_rng(1).normal(size=(2, 5, 3))
    together = quantities(problem.kernels, x)
    alone = [quantities(problem.kernels, point) for point in x.reshape(-1, 3)]
    for name, value in together.items():
        rows = np.array([one[name] for one in alone])
        np.testing.assert_allclose(value.reshape(rows.shape), rows, rtol=1e-11, atol=1e-13)
        assert value.shape[:2] == (2, 5)
    assert problem.kernels.grad_phi(np.zeros((0, 3))).shape == (0, 3)


def test_sparse_data_stay_sparse_and_give_the_same() -> None:
    rng = np.random.default_rng(3)
    A = np.where(rng.uniform(size=(12, 5)) < 0.4, rng.normal(size=(12, 5)), 0.0)
    b = np.where(rng.normal(size=12) > 0, 1.0, -1.0)
    texts = ("mean(softplus(-b*(A @ y)))", TRAINED, "x[n]", "y[n]")
    dense = BilevelProblem(*texts, data={"A": A, "b": b})
    sparse = BilevelProblem(*texts, data={"A": ss.csr_array(A), "b": b})
    assert ss.issparse(sparse.arrays["A"])
    x = rng.normal(size=5) * 0.3
    close(quantities(dense.kernels, x), quantities(sparse.kernels, x))
    np.testing.assert_allclose(sparse.kernels.g_yy(x, x), dense.kernels.g_yy(x, x), rtol=1e-13)


@pytest.mark.slow
def test_nothing_of_size_n_by_n_is_made_unasked() -> None:
    n = 20_000
    rng = np.random.default_rng(0)
    A = ss.random_array((n, n), density=2e-4, rng=rng, format="csr")
    b = np.where(rng.normal(size=n) > 0, 1.0, -1.0)
    data = {"A": A, "b": b}
    problem = BilevelProblem("mean(softplus(-b*(A @ y)))", TRAINED, "x[n]", "y[n]", data=data)
    tracemalloc.start()
    grad = problem.kernels.grad_phi(np.full(n, -5.0))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grad.shape == (n,)
    assert most < 500 * 8 * n  # five hundred vectors, the data among them; g_yy alone would be 20 000


@pytest.mark.slow
def test_what_does_not_fit_is_refused_before_it_is_made() -> None:
    problem = BilevelProblem("sum(y)", "sum((y - x)**2)", "x[100000]", "y[100000]")
    x = np.zeros(100_000)
    np.testing.assert_array_equal(problem.kernels.grad_phi(x)[:3], 1.0)
    for name, points in (("hess_phi", (x,)), ("g_yy", (x, x))):
        with pytest.raises(TooLarge, match="more than half of this machine's memory"):
            getattr(problem.kernels, name)(*points)


def test_nothing_overflows_at_entries_of_a_thousand() -> None:
    Z = 1000.0 * np.array([[1.0, -1.0, 0.5], [-1.0, 1.0, 0.0]])
    losses = ("sum(log(sum(exp(Z @ diag(y)), axis=1)))", "sum(logsumexp(Z @ diag(y), axis=1))")
    problems = [BilevelProblem("sum(y)", f"{g} + 50*sum((y - x)**2)", "x[n]", "y[n]", data={"Z": Z}) for g in losses]
    x = np.ones(3)
    values = [quantities(problem.kernels, x) for problem in problems]
    for found in values:
        assert all(np.isfinite(value).all() for value in found.values())
    assert problems[0] == problems[1]
    close(values[0], quantities(problems[0].lowered().kernels, x), rtol=1e-8)


def test_oracle_calls_are_counted() -> None:
    problem = regression(10, 3)
    kernels, x, y = problem.kernels, np.zeros((4, 3)), np.ones((4, 3))
    with kernels.counting() as counts:
        kernels.g_yy_v(x, y, y)
        kernels.g_xy_v(x, y, y)
        kernels.f_y(x, y)
        kernels.g_y(x, y)
    assert [np.sum(calls) for calls in (counts.HV_g, counts.JV_g, counts.G_f, counts.G_g)] == [4, 4, 4, 4]


def test_lower_levels_that_are_not_convex_are_failures() -> None:
    concave = BilevelProblem("sum(y)", "-sum(y**2) + x @ y", "x[2]", "y[2]")
    with pytest.raises(LowerLevelFailure, match="not strongly convex"):
        concave.kernels.grad_phi(np.zeros(2))


def test_kinks_are_refused() -> None:
    problem = BilevelProblem("sum(abs(y))", "sum((y - x)**2)", "x[2]", "y[2]")
    np.testing.assert_allclose(problem.kernels.grad_phi([1.0, -2.0]), [1.0, -1.0])
    with pytest.raises(KernelError, match="kink"):
        problem.kernels.grad_phi([1.0, 0.0])


def test_numbers_want_sizes_and_data() -> None:
    shapes = {"A": "m, n", "b": "m", "B": "k, n", "c": "k"}
    with pytest.raises(InvalidProblem, match="whose size is not known"):
        _ = BilevelProblem(LOSS, TRAINED, "x[n]", "y[n]", data=shapes).kernels
    with pytest.raises(InvalidProblem, match="has no values"):
        _ = BilevelProblem("sum(y)", "sum((y - x)**2) + a @ y", "x[2]", "y[2]", data={"a": "2"}).kernels


@pytest.mark.parametrize("estimator", [AID(20, 3, 0.3), Exact()])
def test_solvers_descend(estimator: Any) -> None:
    problem = regression(30, 4)
    start = np.zeros((2, 4))
    start[1] = 0.5
    both = solve(problem, Descent(estimator, eta=0.5), start, steps=5, rng=[1, 2])
    alone = solve(problem, Descent(estimator, eta=0.5), start[1], steps=5, rng=2)
    assert (both.trajectory.phi[:, -1] < both.trajectory.phi[:, 0]).all()
    np.testing.assert_array_equal(both.x[1], alone.x)  # the same bits alone and among others


def test_a_minimax_problem() -> None:
    rng = np.random.default_rng(2)
    A, b = rng.normal(size=(6, 3)), rng.normal(size=6)
    problem = MinimaxProblem("mean((A @ x - b - y)**2)/2 - 3*(y @ y)/2", "x[n]", "y[m]", data={"A": A, "b": b})
    x = rng.normal(size=3)
    close(quantities(problem.kernels, x), quantities(problem.lowered().kernels, x))


def test_conjugate_gradients_end_where_the_residual_does() -> None:
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.normal(size=(30, 30)))
    H = (Q * np.logspace(-3, 3, 30)) @ Q.T
    right = rng.normal(size=30)
    at = conjugate_gradients.System(right, lambda v: H @ v, lambda: lambda v: np.linalg.solve(H, v))
    for budget in (np.inf, 10.0):
        found = conjugate_gradients.Systems(budget).solve(at, right, 1e-15)
        assert np.linalg.norm(H @ found - right) < 1e-9 * np.linalg.norm(right)
        assert not conjugate_gradients.Systems(budget).solve(at, 0 * right, 1e-15).any()  # a feature that is always 0
    with pytest.raises(conjugate_gradients.NotConvex):
        conjugate_gradients.Systems(np.inf).solve(
            conjugate_gradients.System(right, lambda v: -v, lambda: lambda v: -v), right, 1e-15
        )


@pytest.mark.long
def test_against_jax_at_two_hundred_features() -> None:
    jax = pytest.importorskip("jax")
    from jax import numpy as jnp

    jax.config.update("jax_enable_x64", True)
    problem = regression(400, 200)
    f, g = problem.to_jax()
    x = np.full(200, -1.0)
    y = jnp.asarray(problem.kernels.y_star(x))
    assert float(jnp.abs(jax.grad(g, 1)(x, y)).max()) < 1e-12
    v = jnp.linalg.solve(jax.hessian(g, 1)(x, y), jax.grad(f, 1)(x, y))
    implicit = jax.jvp(lambda z: jax.grad(g, 0)(x, z), (y,), (v,))[1]
    expected = np.asarray(jax.grad(f, 0)(x, y) - implicit)
    np.testing.assert_allclose(problem.kernels.grad_phi(x), expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_against_pytorch_at_two_hundred_features() -> None:
    torch = pytest.importorskip("torch")
    problem = regression(400, 200)
    f, g = problem.to_torch()
    x = np.full(200, -1.0)
    at = torch.tensor(x, dtype=torch.float64)
    y = torch.tensor(problem.kernels.y_star(x), dtype=torch.float64)
    grad = torch.func.grad
    assert float(grad(g, 1)(at, y).abs().max()) < 1e-12
    v = torch.linalg.solve(torch.func.hessian(g, 1)(at, y), grad(f, 1)(at, y))
    implicit = torch.func.jvp(lambda z: grad(g, 0)(at, z), (y,), (v,))[1]
    expected = (grad(f, 0)(at, y) - implicit).numpy()
    np.testing.assert_allclose(problem.kernels.grad_phi(x), expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())


def curved(m: int, n: int) -> BilevelProblem:
    """A logistic regression whose curvature is far from what it is at zero."""
    rng = np.random.default_rng(1)
    A = 6 * rng.normal(size=(m, n))
    data = {"A": A, "b": np.sign(A[:, 0] + rng.normal(size=m))}
    return BilevelProblem("y @ y", "mean(softplus(-b*(A @ y))) + exp(x)*(y @ y)/2", "x", "y[n]", data=data)


WAYS = {"products": (-1.0, np.inf), "one factor": (-1.0, 0.0), "a factor each": (np.inf, np.inf)}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_ways_to_solve_agree(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """By products, with a factor that conditions later systems until it is renewed, with a factor each step."""
    expected = curved(80, 30).lowered().kernels
    each, factored = WAYS[way]
    monkeypatch.setattr(array_engine, "EACH", each)
    monkeypatch.setattr(conjugate_gradients, "TRIED", 0 if factored == 0 else 10**9)
    monkeypatch.setattr(conjugate_gradients, "FRESH", 4)
    got, x = curved(80, 30).kernels, [-6.0]
    assert isinstance(got._engine, array_engine.ArrayEngine)
    fresh = type(got)(got.problem, got.backend, got._engine._twin("together"))
    for name in ("y_star", "v_star", "grad_phi", "hess_phi"):
        np.testing.assert_allclose(getattr(fresh, name)(x), getattr(expected, name)(x), rtol=1e-9, atol=1e-12)


def test_a_quadratic_lower_level_forgets_the_factor_of_another_x() -> None:
    problem = BilevelProblem(
        "sum(y**3)", "y @ (H @ y)/2 + exp(x)*(y @ y)/2 - sum(y)", "x", "y[n]", data={"H": np.eye(3)}
    )
    expected, there = problem.lowered().kernels, [[0.3], [-0.7], [0.3]]
    for x in there:
        np.testing.assert_allclose(problem.kernels.hess_phi(x), expected.hess_phi(x), rtol=1e-12)
        np.testing.assert_allclose(problem.kernels.grad_phi(x), expected.grad_phi(x), rtol=1e-12)
    np.testing.assert_allclose(problem.kernels.grad_phi(there), expected.grad_phi(there), rtol=1e-12)


M = np.random.default_rng(3).normal(size=(3, 3))
MIXED_RANKS = {
    "a vector and a matrix": BilevelProblem(
        "sum(W**3)/6", "exp(x) @ sum(W**2, axis=1)/2 + sum((W - M)**2)/2", "x[n]", "W[n, c]", data={"M": M[:, :2]}
    ),
    "a number and a matrix": BilevelProblem(
        "sum(W**3)/6", "exp(s)*sum(W**2)/2 + s*trace(W) + sum((W - M)**2)/2", "s", "W[n, n]", data={"M": M}
    ),
    "a matrix and a vector": BilevelProblem(
        "sum(y**3)/6", "sum((y - diag(X))**2)/2 + trace(X)**2*(y @ y)/2 + b @ y", "X[n, n]", "y[n]", data={"b": M[0]}
    ),
    "a matrix and a number": BilevelProblem("y**3/6", "(y - trace(X @ M))**2/2 + y**2", "X[n, n]", "y", data={"M": M}),
}


@pytest.mark.parametrize("name", MIXED_RANKS)
def test_indices_that_arrays_of_different_ranks_share_are_no_diagonal(name: str) -> None:
    problem = MIXED_RANKS[name]
    x = 0.3 * np.random.default_rng(1).normal(size=problem.d)
    ours, scalars = problem.kernels, problem.lowered().kernels
    for block in ("grad_phi", "hess_phi", "dy_dx", "v_star"):
        np.testing.assert_allclose(getattr(ours, block)(x), getattr(scalars, block)(x), rtol=1e-12, atol=1e-13)


CLASSES = "mean(logsumexp(A @ W, axis=1) - sum(P*(A @ W), axis=1)) + exp(x) @ sum(W**2, axis=0)/2"


@pytest.mark.parametrize("way", ["formed", "factor", "products", "one by one"])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_hessian_is_the_same_along_directions(way: str, sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    rows, labels = rng.normal(size=(12, 4)), np.eye(3)[rng.integers(0, 3, size=12)]
    A: Any = ss.csr_array(rows * (np.abs(rows) > 0.5)) if sparse else rows
    problem = BilevelProblem(
        "sum(sin(W))", CLASSES, "x[3]", "W[n, 3]", data={"A": A, "P": labels}, name=f"{way} {sparse}"
    )
    x = np.array([-0.4, 0.1, 0.3])
    expected = array_engine_kernels(problem)
    monkeypatch.setattr(array_engine.ArrayEngine, "_goes_along", False)
    whole = expected.hess_phi(x)
    monkeypatch.setattr(array_engine.ArrayEngine, "_goes_along", way != "formed")
    monkeypatch.setattr(array_engine.ArrayEngine, "_factors", way == "factor")
    if way == "one by one":
        monkeypatch.setattr(conjugate_gradients, "SOLVED", 0.0)
        monkeypatch.setattr(conjugate_gradients, "FLOOR", 1e-300)
        monkeypatch.setattr(array_engine.ArrayEngine, "_factor_work", np.inf)
    found = array_engine_kernels(problem).hess_phi(x)
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-13 * np.abs(whole).max())
    assert (found == found.T).all()


def test_systems_side_by_side_end_each_where_it_is_solved() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(9, 9))
    matrix = root @ root.T + np.eye(9)
    rights = np.vstack([np.zeros(9), matrix[0], np.linalg.eigh(matrix)[1][:, 3] * 1e30, rng.normal(size=9)])
    found = conjugate_gradients.solve_together(lambda v: v @ matrix, rights)
    sizes = np.abs(rights).max(axis=1, keepdims=True) + 1e-300
    np.testing.assert_allclose(found @ matrix / sizes, rights / sizes, atol=1e-13)
    with pytest.raises(conjugate_gradients.NotSolved):
        conjugate_gradients.solve_together(lambda v: v @ -matrix, rights)


def test_many_factors_are_contracted_without_outer_products_on_the_way() -> None:
    # S_ic S_id A_ia A_ib v_bd A_ie u_ed: v and u alone are small, but what they make together is not
    labels = ((2, 1), (2, 3), (2, 0), (2, 4), (4, 3), (2, 5), (5, 3))
    sizes = {0: 100, 1: 10, 2: 20_000, 3: 10, 4: 100, 5: 100}
    product = Product(labels, sizes, (False,) * 7, 2)

    def largest(tree: Tree) -> int:
        if isinstance(tree, int):
            return 0
        own = int(np.prod([sizes[label] for label in product.left(places_in(tree))]))
        return max(own, *map(largest, tree))

    assert largest(product.cheapest()) <= 20_000 * 10


def test_the_first_result_asks_for_nothing_that_grows_with_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a digest of the data nor a symbol for every entry."""
    problem = regression(25, 5, seed=1)
    monkeypatch.setattr(DataArray, "digest", property(lambda _: pytest.fail("digested")))
    monkeypatch.setattr(ArrayStatement, "symbols_of_entries", lambda *_: pytest.fail("symbols"))
    assert problem.kernels.hess_phi(np.zeros(5)).shape == (5, 5)


def test_hypergradients_use_the_factor_that_newton_ended_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """One factor for y* and v, of points that come alone; the last bits do not depend on what was asked before."""
    monkeypatch.setattr(array_engine, "EACH", -1.0)
    monkeypatch.setattr(array_engine, "COMPILED", 0)
    monkeypatch.setattr(conjugate_gradients, "TRIED", 2)
    monkeypatch.setattr(array_engine.ArrayEngine, "_budget", 3.0)
    made: list[structured.Structured] = []

    def spied(matrix: structured.Structured) -> Any:
        made.append(matrix)
        return structured.solver(matrix)

    monkeypatch.setattr(array_engine, "solver", spied)
    problem, rng = regression(60, 20, seed=2), np.random.default_rng(3)
    kernels, (x, other) = problem.kernels, rng.normal(size=(2, 20)) - 1.0
    grad = kernels.grad_phi(x)
    assert len(made) == 1
    kernels.y_star(other)
    kernels.v_star(other)
    np.testing.assert_array_equal(kernels.grad_phi(x), grad)
    first, second = kernels.grad_phi(np.array([x, x]))
    np.testing.assert_array_equal(first, second)  # wherever a point stands
    np.testing.assert_allclose(first, grad, rtol=1e-11, atol=1e-15)


def test_many_rows_are_multiplied_in_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With weights of one sign (g_yy) and of both (L_yy), and a last layer that is short, against NumPy by hand."""
    monkeypatch.setattr(array_engine, "COMPILED", 0)
    seen: list[bool] = []
    in_layers = execute._in_layers

    def spied(rows: Floats, weight: Floats) -> Floats:
        seen.append(bool((weight >= 0).all()))
        return in_layers(rows, weight)

    monkeypatch.setattr(execute, "_in_layers", spied)
    case = make("logistic", execute.LAYER * execute.MANY + 13, 7)
    x = case.point()
    _, grad, hess = case.by_hand(case.data, x, True)
    assert hess is not None
    kernels = BilevelProblem(case.f, case.g, case.x, case.y, data=dict(case.data)).kernels
    np.testing.assert_allclose(kernels.hess_phi(x), hess, rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(kernels.grad_phi(x), grad, rtol=1e-11, atol=1e-15)
    assert set(seen) == {True, False}


@pytest.mark.parametrize("backend", ["auto", "tape"])
def test_a_kink_is_not_passed_over_because_g_yy_is_constant(backend: Any) -> None:
    """abs(y) has a second derivative that is zero wherever there is one: one step of Newton's method is not all."""
    problem = BilevelProblem("sum(y)", "sum((y - x)**2)/2 + sum(abs(y))", "x[2]", "y[2]")
    arrays = compile_kernels(problem, backend=backend)
    assert arrays.y_star([3.0, -4.0]) == pytest.approx([2.0, -3.0])
    with pytest.raises(LowerLevelFailure):
        arrays.y_star([0.5, 0.5])
