"""Solvers and estimators on array problems: the lowered problem in scalars is the other route."""

from __future__ import annotations

import importlib.util
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bilevel_sym import (
    AID,
    ITD,
    BilevelProblem,
    Descent,
    Exact,
    GDmax,
    INeon,
    LocalMinimum,
    MinimaxProblem,
    Neumann,
    Perturbed,
    Solution,
    StocBiO,
    StochasticProblem,
    solve,
)
from bilevel_sym.arrays import execute
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.estimators import array_batches
from bilevel_sym.estimators.array_batches import RowEngine
from bilevel_sym.estimators.batches import Batch, BatchSession, Data
from bilevel_sym.estimators.row_batches import RowBatches
from bilevel_sym.estimators.status import Status
from bilevel_sym.kernels import compile_kernels
from bilevel_sym.kernels.choice import can_compile
from bilevel_sym.kernels.kernels import Kernels
from bilevel_sym.solvers.auto import MAX_ARRAY_STEPS, practical
from bilevel_sym.solvers.curvature import extreme_eigenvalues, look
from bilevel_sym.solvers.local_minimum import curvature_at

Floats = Any
LOSS = "mean(softplus(-c*(B @ y)))"
TRAINED = "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2"


def logistic(m: int, n: int, seed: int = 0) -> BilevelProblem:
    rng = np.random.default_rng(seed)
    A, B = (rng.normal(size=(rows, n)) for rows in (m, m // 2 + 1))
    b, c = (np.where(M[:, 0] + 0.3 * rng.normal(size=len(M)) > 0, 1.0, -1.0) for M in (A, B))
    return BilevelProblem(LOSS, TRAINED, "x[n]", "y[n]", data={"A": A, "b": b, "B": B, "c": c})


@lru_cache(None)
def problems() -> dict[str, BilevelProblem]:
    rng = np.random.default_rng(1)
    A, M, t = rng.normal(size=(5, 3)), rng.normal(size=(2, 2)), rng.normal(size=2)
    return {
        "logistic": logistic(7, 3),
        "one entry": logistic(2, 1),
        "weights": BilevelProblem(
            "sum((y - 1)**2)/2", "mean(sigmoid(x)*(A @ y - b)**2) + y @ y/2", "x[m]", "y[n]",
            data={"A": A, "b": A @ np.ones(3)},
        ),
        "several": BilevelProblem(
            "sum((W - M)**2)/2 + s**2 + lam**2/4", "exp(lam)*sum((W - M @ diag(u))**2)/2 + (s - u @ t)**2 + sum(W**2)/4",
            "lam u[2]", "W[2, 2] s", data={"M": M, "t": t},
        ),
        "isotropic": BilevelProblem("y @ y/2 + sum(sin(x))", "sum((y - 2*x)**2)", "x[3]", "y[3]"),
    }  # fmt: skip


def game() -> MinimaxProblem:
    C = np.random.default_rng(2).normal(size=(2, 3))
    return MinimaxProblem("x @ C @ y - y @ y/2 + x @ x", "x[d]", "y[n]", data={"C": C})


ALGORITHMS: dict[str, Any] = {
    "AID": Descent(AID(6, 3, 0.2), 0.1),
    "ITD": Descent(ITD(6, 0.2), 0.1),
    "Neumann": Descent(Neumann(5, 0.2, D=6), 0.1),
    "Exact": Descent(Exact(), 0.1),
    "Perturbed": Perturbed(AID(6, 3, 0.2), 0.1, eps=10.0, r=0.5, T_escape=3),
    "INeon": Descent(AID(6, 3, 0.2), 0.1, escape=INeon(AID(6, 3, 0.2), 0.1, 10.0, 0.5, 5, 1e-8)),
}


def starts(problem: BilevelProblem, size: int) -> Floats:
    return 0.3 * np.random.default_rng(3).normal(size=(size, problem.d))


def agree(one: Any, two: Any, *, rtol: float = 1e-11) -> None:
    assert one.statuses == two.statuses
    for name in ("x", "y", "phi_hat", "grad_phi_hat"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=rtol, atol=rtol)
    np.testing.assert_array_equal(one.trajectory.perturbed, two.trajectory.perturbed)


def check_against_scalars(problem: BilevelProblem, algorithm: Any) -> None:
    for x0 in (starts(problem, 3), starts(problem, 1)[0]):
        runs = [solve(p, algorithm, x0, steps=8, rng=0) for p in (problem, problem.lowered())]
        agree(*runs)
        if "Exact" not in repr(algorithm):  # which counts what its own way to y* takes
            assert repr(runs[0].counters) == repr(runs[1].counters)


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", problems())
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_runs_on_arrays_as_on_the_same_problem_in_scalars(algorithm: str, name: str) -> None:
    check_against_scalars(problems()[name], ALGORITHMS[algorithm])


def test_ascent_runs_on_arrays_too() -> None:
    check_against_scalars(game(), Descent(GDmax(5, 0.3), 0.1))


@pytest.mark.parametrize("estimator", [AID(2, 2, 0.2), ITD(2, 0.2), Neumann(200, 0.1, D=2), Exact()])
def test_a_warm_start_at_the_root_stays_there(estimator: Any) -> None:
    for problem in problems().values():
        x = starts(problem, 2)
        k = problem.kernels
        y, v = k.y_star(x), k.v_star(x)
        found = estimator.estimate(problem, x, y0=y, v0=v)
        np.testing.assert_allclose(found.y_D, y, rtol=1e-12, atol=1e-13)
        if isinstance(estimator, (AID, Exact)):
            np.testing.assert_allclose(found.grad_phi_hat, k.grad_phi(x), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("defect", ["transposed", "swapped lanes"])
def test_a_wrong_product_is_seen(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = execute._OVER_DATA["blocks"]

    def wrong(matrix: Floats, vectors: Floats) -> Floats:
        if defect == "transposed" and matrix.shape[0] == matrix.shape[1]:
            matrix = matrix.T
        found = right(matrix, vectors)
        return found if defect == "transposed" else found[::-1]

    monkeypatch.setattr(execute, "_OVER_DATA", {**execute._OVER_DATA, "blocks": wrong})
    with pytest.raises(AssertionError):
        check_against_scalars(logistic(3, 3, seed=5), ALGORITHMS["AID"])


# ---- the same bits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(7, 3), (33, 13), (2, 1)])
@pytest.mark.parametrize("algorithm", ["AID", "ITD", "Neumann", "Exact", "Perturbed"])
def test_a_trajectory_has_the_same_bits_in_every_ensemble(algorithm: str, m: int, n: int) -> None:
    """Permuted, split, in an ensemble of its own, beside others that fail; alone it agrees to round-off."""
    problem, size, seeds = logistic(m, n), 21, list(range(21))
    x = starts(problem, size)
    x[4] = 800.0  # exp overflows

    def run(which: list[int]) -> Any:
        return solve(problem, ALGORITHMS[algorithm], x[which], steps=5, rng=[seeds[k] for k in which])

    whole = run(list(range(size)))
    assert not whole.statuses[4].ok
    for which in (np.random.default_rng(0).permutation(size).tolist(), [5], [0, 20], list(range(3, 12))):
        part = run(which)
        np.testing.assert_array_equal(part.x, whole.x[which])
        np.testing.assert_array_equal(part.trajectory.phi_hat, whole.trajectory.phi_hat[which])
    alone = solve(problem, ALGORITHMS[algorithm], x[5], steps=5, rng=[5])
    np.testing.assert_allclose(alone.x, whole.x[5], rtol=1e-12, atol=1e-13)
    again = solve(problem, ALGORITHMS[algorithm], x[5], steps=5, rng=[5])
    np.testing.assert_array_equal(alone.x, again.x)


def test_where_the_library_treats_lanes_differently_each_has_its_own_product(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = logistic(9, 4)
    engine = compile_kernels(problem)._engine
    assert engine.invariant()._products == "blocks"  # type: ignore[attr-defined]
    monkeypatch.setattr("bilevel_sym.kernels.array_engine.treats_lanes_alike", lambda matrix: False)
    assert engine.invariant()._products == "each"  # type: ignore[attr-defined]


def test_all_lanes_of_an_ensemble_are_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """No loop over lanes: the number of products does not grow with the ensemble, up to whole blocks."""
    calls: list[int] = []
    right = execute._OVER_DATA["blocks"]

    def counted(matrix: Floats, vectors: Floats) -> Floats:
        calls.append(len(vectors))
        return right(matrix, vectors)

    monkeypatch.setattr(execute, "_OVER_DATA", {**execute._OVER_DATA, "blocks": counted})
    for size in (2, 16):
        problem = logistic(9, 4, seed=size)
        calls.clear()
        AID(3, 2, 0.2).estimate(problem, starts(problem, size))
        if size == 2:
            few = len(calls)
    assert len(calls) == few
    assert set(calls) == {16}


# ---- large ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_aid_with_a_weight_for_every_row_forms_no_matrix() -> None:
    rng = np.random.default_rng(0)
    m, n = 120, 2000
    A, B = rng.normal(size=(m, n)) / np.sqrt(n), rng.normal(size=(60, n)) / np.sqrt(n)
    b, c = np.sign(A[:, 0]), np.sign(B[:, 0])
    problem = BilevelProblem(
        LOSS, "mean(sigmoid(x)*softplus(-b*(A @ y))) + y @ y/20", "x[m]", "y[n]",
        data={"A": A, "b": b, "B": B, "c": c},
    )  # fmt: skip
    x = 0.1 * rng.normal(size=(3, m))
    solve(problem, Descent(AID(1, 1, 2.0), 1.0), x, steps=0)  # what is made once
    tracemalloc.start()
    found = solve(problem, Descent(AID(5, 4, 2.0), 1.0), x, steps=2, record="last")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n * 8 / 2
    np.testing.assert_allclose(found.x, [by_hand(row, A, b, B, c) for row in x], rtol=1e-10, atol=1e-12)


def by_hand(x: Floats, A: Floats, b: Floats, B: Floats, c: Floats) -> Floats:
    """Two steps of the same in plain NumPy."""

    def sigmoid(z: Floats) -> Floats:
        return 1 / (1 + np.exp(-z))

    y, v = np.zeros(A.shape[1]), np.zeros(A.shape[1])
    for _ in range(2):
        for _ in range(5):
            y = y - 2.0 * (y / 10 - A.T @ (sigmoid(x) * b * sigmoid(-b * (A @ y))) / len(b))
        s = sigmoid(-b * (A @ y))

        def times(u: Floats, s: Floats = s, x: Floats = x) -> Floats:
            return u / 10 + A.T @ (sigmoid(x) * s * (1 - s) * (A @ u)) / len(b)

        f_y = -B.T @ (c * sigmoid(-c * (B @ y))) / len(c)
        r = f_y - times(v)
        p = r.copy()
        for _ in range(4):
            image, square = times(p), r @ r
            v, r = v + square / (p @ image) * p, r - square / (p @ image) * image
            p = r + (r @ r) / square * p
        slope = sigmoid(x) * (1 - sigmoid(x))
        x = x - 1.0 * (slope * b * s * (A @ v) / len(b))
    return x


def test_sparse_data_give_the_same_run() -> None:
    from scipy.sparse import random_array

    A = random_array((12, 5), density=0.4, rng=np.random.default_rng(0), format="csr")
    data = {"b": np.ones(12), "B": np.eye(5), "c": np.ones(5)}
    x0 = np.array([[0.1] * 5, [0.2] * 5])
    problems = [BilevelProblem(LOSS, TRAINED, "x[n]", "y[n]", data={"A": own, **data}) for own in (A, A.toarray())]
    runs = [solve(p, ALGORITHMS["AID"], x0, steps=3) for p in problems]
    agree(*runs)


# ---- what surrounds a run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("single", [True, False])
def test_a_run_is_interrupted_and_goes_on_bit_by_bit(single: bool, tmp_path: Any) -> None:
    problem = logistic(7, 3)
    x0 = starts(problem, 1)[0] if single else starts(problem, 3)
    algorithm = ALGORITHMS["Perturbed"]
    whole = solve(problem, algorithm, x0, steps=9, rng=4)

    cut = [True]

    def rule(state: Any) -> bool:
        if cut[0] and state.k == 5:
            raise KeyboardInterrupt
        return False

    path = tmp_path / "run"
    part = solve(problem, algorithm, x0, steps=9, rng=4, stop=rule, checkpoint=path, checkpoint_every=2)
    assert set(part.statuses) == {Status.INTERRUPTED}
    cut[0] = False
    rest = solve(problem, algorithm, x0, steps=9, rng=4, stop=rule, checkpoint=path, checkpoint_every=2)
    np.testing.assert_array_equal(rest.x, whole.x)
    np.testing.assert_array_equal(rest.trajectory.phi_hat, whole.trajectory.phi_hat)


def test_a_local_minimum_of_many_variables_is_found_without_all_third_derivatives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Kernels, "third_phi", None)
    problem = BilevelProblem("sum((y - 1)**2)/2 + sum(y**4)/40", "sum((y - x)**2)", "x[30]", "y[30]")
    found = solve(problem, Descent(Exact(), 0.3), np.zeros(30), steps=200, stop=LocalMinimum(1e-6))
    assert found.status is Status.LOCAL_MINIMUM
    here = curvature_at(problem.kernels, found.x)
    y = float(found.y[0])
    assert here.smallest_eigenvalue == pytest.approx(1 + 0.3 * y**2)
    assert 0 < here.rho_phi <= 0.6 * y * (1 + 1e-5)  # a lower bound of the norm, which is that


# ---- auto -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8), st.integers(0, 2**16))
def test_lanczos_finds_the_ends_of_a_spectrum(spectrum: list[float], seed: int) -> None:
    n = len(spectrum)
    q = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]
    matrix = (q * np.array(spectrum)) @ q.T
    low, high = extreme_eigenvalues(lambda u: matrix @ u, n, n)
    scale = max(1.0, max(map(abs, spectrum)))
    assert low == pytest.approx(min(spectrum), abs=1e-6 * scale)
    assert high == pytest.approx(max(spectrum), abs=1e-6 * scale)


def test_products_see_what_matrices_do() -> None:
    problem = logistic(40, 6)
    k, x = problem.kernels, starts(problem, 1)[0]
    seen, y = look(k, x), problem.kernels.y_star(x)
    eigenvalues = np.linalg.eigvalsh(k.g_yy(x, y))
    assert seen.mu == pytest.approx(eigenvalues[0], rel=1e-8)
    assert seen.ell == pytest.approx(eigenvalues[-1], rel=1e-8)
    assert seen.curvature == pytest.approx(np.linalg.norm(k.hess_phi(x), 2), rel=1e-2)
    whole = np.linalg.norm(k.third_phi(x).reshape(6, -1), 2)
    assert 0.2 * whole / np.sqrt(6) < seen.third <= whole * (1 + 1e-4)


@pytest.mark.slow
def test_auto_forms_nothing_large_and_agrees_with_scalars_where_all_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = problems()["logistic"]
    one, two = (practical(p, points=4) for p in (small, small.lowered()))
    assert isinstance(one.estimator, Exact)  # D + N gradient steps cost more than Newton's method
    assert isinstance(two.estimator, AID)
    assert two.estimator.D + two.estimator.N > MAX_ARRAY_STEPS
    assert isinstance(practical(problems()["isotropic"], points=4).estimator, AID)
    assert (one.mu, one.ell, one.L_phi) == pytest.approx((two.mu, two.ell, two.L_phi), rel=1e-8)
    for name in ("g_yy", "hess_phi", "third_phi", "expansion"):
        monkeypatch.setattr(Kernels, name, None)
    large = logistic(160, 150)
    algorithm = Perturbed.auto(large)
    assert solve(large, algorithm, np.zeros(150), steps=3, rng=0).status is Status.OUT_OF_STEPS


# ---- rows ---------------------------------------------------------------------------------------------------------------

F, G = "(a @ y - b)**2/2 + x @ y", "(e @ y - d)**2/2 + exp(x) @ y**2/2"


@lru_cache(None)
def rows() -> dict[str, Floats]:
    rng = np.random.default_rng(7)
    return {name: rng.integers(-3, 4, size=shape).astype(float) for name, shape in SHAPES.items()}


SHAPES = {"a": (4, 3), "b": (4,), "e": (8, 3), "d": (8,)}


def by_rows(G: str = G) -> StochasticProblem:
    r = rows()
    xi, zeta = {"a": r["a"], "b": r["b"]}, {"e": r["e"], "d": r["d"]}
    return StochasticProblem(F, G, "x[n]", "y[n]", "a[n] b", "e[n] d", xi, zeta)


@lru_cache(None)
def in_scalars() -> StochasticProblem:
    """The same, entry by entry."""
    r, (x, y, a, e) = rows(), (sp.symbols(f"{name}1:4") for name in ("x", "y", "a", "e"))
    b, d = sp.symbols("b d")

    def dot(one: Any, two: Any) -> Any:
        return sum(s * t for s, t in zip(one, two, strict=True))

    upper = (dot(a, y) - b) ** 2 / 2 + dot(x, y)
    lower = (dot(e, y) - d) ** 2 / 2 + sum(sp.exp(s) * t**2 for s, t in zip(x, y, strict=True)) / 2
    tables = (np.column_stack([r[one], r[two]]) for one, two in ("ab", "ed"))
    return StochasticProblem(upper, lower, x, y, (*a, b), (*e, d), *tables)


PLAIN = StocBiO(D=4, Q=4, S=3, alpha=0.05, beta=0.05, eta_neumann=0.05, batch_f=2, batch_g=3)
LARGE = StocBiO(
    D=4, Q=3, S=9, alpha=0.05, beta=0.05, eta_neumann=0.05, batch_f=20, batch_g=30, neumann_batches=(9, 4, 1)
)
ESCAPE = INeon(AID(10, 3, 0.05), 0.05, 50.0, 0.5, 6, 1e-3, step=0.1)
ROWS: dict[str, StocBiO] = {
    "plain": PLAIN,
    "large batches": LARGE,
    "without replacement": replace(PLAIN, replacement=False),
    "all, without replacement": replace(LARGE, replacement=False),
    "escape": replace(PLAIN, escape=ESCAPE),
    "as printed": replace(PLAIN, escape=ESCAPE, as_printed=True),
}


def check_rows(algorithm: StocBiO) -> None:
    x0 = starts(in_scalars(), 3)
    one, two = (solve(p, algorithm, x0, steps=6, rng=0) for p in (by_rows(), in_scalars()))
    agree(one, two, rtol=1e-10)
    assert repr(one.counters) == repr(two.counters)


@pytest.mark.parametrize("name", ROWS)
def test_batches_of_rows_of_arrays_are_those_of_scalars(name: str) -> None:
    check_rows(ROWS[name])


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", ROWS)
def test_a_stochastic_trajectory_has_the_same_bits_alone_and_in_an_ensemble(name: str) -> None:
    x0 = starts(by_rows(), 19)
    whole = solve(by_rows(), ROWS[name], x0, steps=4, rng=list(range(19)))
    for k in (0, 7, 18):
        alone = solve(by_rows(), ROWS[name], x0[k], steps=4, rng=[k])
        np.testing.assert_array_equal(alone.x, whole.x[k])


ROW_FORMULAS = {
    "logistic": "softplus(-d*(e @ y)) + exp(x) @ y**2/2",
    "least squares": "(e @ y - d)**2/2 + exp(x) @ y**2/2 + 3*sum(y)/7",
    "robust": "sqrt(1 + (e @ y - d)**2) + (x @ x + 2)*(y @ y)/2",
    "no compiled code": "sum((diag(e) @ y - x)**2)/2 + y @ y/2 + tanh(d)*(e @ y)",
}


def row_problem(formula: str, rows: int = 70, n: int = 37) -> StochasticProblem:
    rng = np.random.default_rng(11)
    e, d = rng.normal(size=(rows, n)) / np.sqrt(n), rng.normal(size=rows)
    return StochasticProblem("y @ y/2 + x @ y", formula, "x[n]", "y[n]", "", "e[n] d", {}, {"e": e, "d": d})


def rounds_by_address() -> bool:
    """Whether NumPy's inner product depends on where in memory its vectors begin, as with OpenBLAS's oldest kernels."""
    vectors = np.random.default_rng(0).normal(size=(40, 37))
    return not np.array_equal(np.vecdot(vectors, vectors), [np.vecdot(v.copy(), v.copy()) for v in vectors])


@pytest.mark.parametrize("formula", ROW_FORMULAS)
def test_compiled_walks_are_those_in_numpy_and_each_has_the_same_bits_alone(
    formula: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = row_problem(ROW_FORMULAS[formula])
    if importlib.util.find_spec("numba") is not None and formula in ("logistic", "least squares"):
        assert RowEngine(problem).walk(("g_yy_v",), "g", 33, 1) is not None
    algorithm = replace(PLAIN, S=33, batch_g=12, neumann_batches=(33, 33, 9, 1))
    x0, found = starts(problem, 3), list[Solution]()
    for _ in range(2):
        whole = solve(problem, algorithm, x0, steps=3, rng=[4, 5, 6])
        rtol = 1e-12 if found and rounds_by_address() else 0.0
        for k in range(3):
            alone = solve(problem, algorithm, x0[k], steps=3, rng=[4 + k])
            np.testing.assert_allclose(alone.x, whole.x[k], rtol=rtol)
            np.testing.assert_allclose(alone.trajectory.v, whole.trajectory.v[k], rtol=rtol, atol=rtol)
        found.append(whole)
        monkeypatch.setattr("bilevel_sym.solvers.stocbio.can_compile", lambda backend: False)
    agree(*found, rtol=1e-12)


UPPER_FORMULAS = ("softplus(-b*(a @ y)) + x @ y", "(a @ y - b)**2/2", "exp(-b)*sum(x**2) + b*(y @ y)/2", "y @ y")


@settings(max_examples=12)
@given(st.sampled_from(UPPER_FORMULAS), st.sampled_from(["logistic", "least squares", "robust"]), st.integers(1, 190))
def test_what_compiled_code_says_of_batches_is_what_numpy_says(upper: str, lower: str, size: int) -> None:
    """Few rows and many, which go together some at a time; three lanes, each with the same bits alone."""
    if not can_compile("auto"):
        pytest.skip("nothing is compiled here")
    rng = np.random.default_rng(size)
    tables = {name: rng.normal(size=shape) / 6 for name, shape in (("a", (200, 37)), ("e", (200, 37)), ("b", 200))}
    xi, zeta = {"a": tables["a"], "b": tables["b"]}, {"e": tables["e"], "d": tables["b"][::-1].copy()}
    problem = StochasticProblem(upper, ROW_FORMULAS[lower], "x[n]", "y[n]", "a[n] b", "e[n] d", xi, zeta)
    engine, groups = RowEngine(problem), [(rng.integers(200, size=(4, 3, size)), np.full((3, size), 1 / size))]
    if lower != "robust":
        assert engine.walk(("g_yy_v",), "g", size, 1) is not None
    assert engine.walk(("f", "f_x", "f_y"), "f", size, None) is not None
    start = rng.normal(size=(3, 74))

    def said(rows: RowBatches, lanes: slice) -> list[Floats]:
        own = [(picked[:, lanes], weights[lanes]) for picked, weights in groups]
        points, batch = start[lanes].copy(), (own[0][0][:1], own[0][1])
        rows.descend(points, own, 0.2)
        f, f_x, f_y = (np.array(block) for block in rows.upper(points, batch))
        v = rows.neumann_series(points, f_y, own, 0.2)
        return [points, f, f_x, f_y, v, np.array(rows.mixed_product(points, v, batch))]

    compiled, plain = RowBatches(engine, compiled=True), RowBatches(engine)
    whole = said(compiled, slice(0, 3))
    for one, two, alone in zip(whole, said(plain, slice(0, 3)), said(compiled, slice(1, 2)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-11, atol=1e-13)
        np.testing.assert_array_equal(one[1:2], alone)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 3), st.integers(1, 4))
def test_batches_drawn_in_turn_are_those_drawn_one_by_one(size: int, first: int, last: int, lanes: int) -> None:
    data = Data(row_problem(ROW_FORMULAS["logistic"], 30, 2))
    asked = (("g", (size,) * first), ("g", (size,)), ("g", (size,) * last))
    ahead, one = ([np.random.default_rng(k) for k in range(lanes)] for _ in range(2))
    for (function, sizes), groups in zip(asked, data.in_turn(ahead, asked), strict=True):
        drawn = np.concatenate([np.zeros((0, lanes, min(size, 30))), *(picked for picked, _ in groups)])
        alone = [data.draw(function, one, own).picked for own in sizes]
        np.testing.assert_array_equal(drawn, np.array(alone).reshape(drawn.shape))
    assert [s.bit_generator.state for s in ahead] == [s.bit_generator.state for s in one]


def test_no_row_outside_the_table_reaches_compiled_code() -> None:
    pytest.importorskip("numba")
    data = Data(row_problem(ROW_FORMULAS["logistic"]), compiled=True)
    for row in (-1, 70):
        group = np.array([[[0, row]]]), np.full((1, 2), 0.5)
        with pytest.raises(IndexError):
            data.arrays.descend(np.zeros((1, 74)), [group], 0.1)


def blocks(batches: dict[str, Batch], lanes: int, problem: StochasticProblem | None = None) -> dict[str, Floats]:
    """Blocks at a point with few binary digits, so that sums are exact."""
    data = Data(problem or by_rows("(e @ y - d)**2/2 + x @ y**2/2"))
    names = tuple(name for name in ("f", "f_x", "f_y", "g_y", "g_yy", "g_yy_v", "g_xy_v") if name[0] in batches)
    session = BatchSession(data, names, lanes, batches)
    session.inputs(0)[:] = np.array([0.5, 1.0, 2.0, -0.25, 1.0, 0.5])[:, None]
    session.perform(0)
    session.inputs(1)[:] = np.array([1.0, -2.0, 0.25])[:, None]
    session.perform(1)
    return {name: session.rows(name) for name in names}


def check_unbiased() -> None:
    """The mean over all batches of one row is the mean over all rows, exactly, and that of the mean problem."""

    def one(count: int) -> Batch:
        return Batch(np.arange(count)[:, None], np.ones((count, 1)))

    data, mean = Data(by_rows()), by_rows("(e @ y - d)**2/2 + x @ y**2/2").mean.kernels
    at = np.array([0.5, 1.0, 2.0]), np.array([-0.25, 1.0, 0.5]), np.array([1.0, -2.0, 0.25])
    for function, count in (("f", 4), ("g", 8)):
        single, whole = blocks({function: one(count)}, count), blocks({function: data.whole(function, 1)}, 1)
        for name, values in single.items():
            wanted = getattr(mean, name)(*at[: 3 if name.endswith("_v") else 2])
            np.testing.assert_array_equal(values.mean(axis=1), whole[name][:, 0])
            np.testing.assert_array_equal(values.mean(axis=1), np.ravel(wanted))


def test_the_mean_over_all_batches_of_one_row_is_the_mean_exactly() -> None:
    check_unbiased()


@pytest.mark.parametrize("defect", ["scaled", "shifted"])
def test_wrongly_scaled_or_chosen_rows_are_seen(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = array_batches._lookup

    def wrong(table: Any, room: Floats) -> Callable[[Any], None]:
        look = right(table, room)

        def defective(picked: Any) -> None:
            look(picked)
            if defect == "scaled":
                room[...] *= 1.01
            elif room.ndim < 3:
                room[...] = np.roll(room, 1, axis=1)  # the labels of other rows

        return defective

    monkeypatch.setattr(array_batches, "_lookup", wrong)
    monkeypatch.setattr("bilevel_sym.solvers.stocbio.can_compile", lambda backend: False)
    checks: list[Callable[[], None]] = [lambda: check_rows(PLAIN)] + [check_unbiased] * (defect == "scaled")
    for check in checks:
        with pytest.raises(AssertionError):
            check()


@pytest.mark.parametrize("size", [1, 3, 7])
def test_without_replacement_no_row_comes_up_twice_and_each_is_as_likely(size: int) -> None:
    streams = [np.random.default_rng(seed) for seed in range(2000)]
    batch = Data(by_rows()).draw("g", streams, size, replacement=False)
    assert all(len(set(own)) == size for own in batch.picked.tolist())
    counts = np.bincount(batch.picked.ravel(), minlength=8)
    assert np.abs(counts - 2000 * size / 8).max() < 5 * np.sqrt(2000 * size / 8)
    whole = Data(by_rows()).draw("g", streams[:1], 8, replacement=False)
    assert whole.picked.tolist() == [list(range(8))]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 3))
def test_batches_drawn_ahead_are_those_drawn_one_by_one(sizes: list[int], lanes: int) -> None:
    data = Data(by_rows())
    ahead, one = ([np.random.default_rng(k) for k in range(lanes)] for _ in range(2))
    for size, batch in zip(sizes, data.draws("g", ahead, sizes), strict=True):
        alone = data.draw("g", one, size)
        np.testing.assert_array_equal(batch.picked, alone.picked)
        np.testing.assert_array_equal(batch.weights, alone.weights)
    assert [s.bit_generator.state for s in ahead] == [s.bit_generator.state for s in one]


def test_rows_are_saved_and_read_again(tmp_path: Any) -> None:
    r = rows()
    shared = StochasticProblem(
        "c*(a @ y)", "e @ y + t @ y**2 + x", "x", "y[n]", "a[n]", "e[n]", {"a": r["a"]}, {"e": np.tile(r["e"], (40, 1))},
        data={"t": [1.0, 2.0, 3.0], "c": 2.0}, name="rows",
    )  # fmt: skip
    named = StochasticProblem("a*y", "(y - b*x)**2", "x", "y", "a", "b", {"a": [1.0, 2.0]}, {"b": [1.0]})
    for problem in (by_rows(), shared, named):
        problem.save(tmp_path / "rows.toml")
        again = BilevelProblem.load(tmp_path / "rows.toml")
        assert again == problem
        assert isinstance(again, StochasticProblem)
        assert again.row_counts == problem.row_counts


@pytest.mark.slow
def test_rows_go_on_from_a_checkpoint(tmp_path: Any) -> None:
    for name, algorithm in ROWS.items():
        path, x0 = tmp_path / name, starts(by_rows(), 2)
        solve(by_rows(), algorithm, x0, steps=3, rng=1, checkpoint=path)
        more = solve(by_rows(), algorithm, x0, steps=6, rng=1, checkpoint=path)
        np.testing.assert_array_equal(more.x, solve(by_rows(), algorithm, x0, steps=6, rng=1).x)


def test_rows_of_sparse_arrays_and_functions_without_rows() -> None:
    from scipy.sparse import csr_array

    r = rows()
    dense, sparse = (
        StochasticProblem("y @ y/2", G, "x[n]", "y[n]", "", "e[n] d", {}, {"e": own, "d": r["d"]})
        for own in (r["e"], csr_array(r["e"]))
    )
    runs = [solve(p, PLAIN, starts(p, 2), steps=4, rng=0) for p in (dense, sparse)]
    agree(*runs)
    assert dense.row_counts == (1, 8)
    with pytest.raises(InvalidProblem, match="array samples"):
        in_scalars().array_samples  # noqa: B018


def test_stocbio_chooses_its_own_numbers_for_rows() -> None:
    algorithm = StocBiO.auto(by_rows(), batch=4, points=3)
    assert algorithm.S == 4
    assert solve(by_rows(), algorithm, np.zeros(3), steps=1, rng=0).status in (Status.OUT_OF_STEPS, Status.NO_CURVATURE)
