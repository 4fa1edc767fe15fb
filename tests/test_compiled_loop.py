"""The compiled loop of the solvers: against a plain loop over kernels, and bit for bit against itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pytest
import sympy as sp
from test_tape import GRAMMAR

from bilevel_sym import BilevelProblem, compile_kernels, sigmoid, softplus, zoo

pytest.importorskip("numba")

from bilevel_sym.arithmetic.compiled.vectors import WIDTH
from bilevel_sym.solvers.compiled import compiled_loop
from bilevel_sym.solvers.compiled.compiled_loop import (
    BREAKDOWN,
    NOT_FINITE,
    OUT_OF_NOISE,
    RUNNING,
    CompiledLoop,
    LoopState,
    Record,
    Rule,
)

Kind = Literal["aid", "gdmax"]
Q = sp.Rational
NEVER = Rule(eta=0.02)
OFTEN = Rule(eta=0.02, threshold=2.0, T_escape=2)  # many perturbations in few steps


# ---- problems --------------------------------------------------------------------------------------------


def sparse(n: int) -> BilevelProblem:
    x, y = sp.symbols(f"x1:{n + 1}", real=True), sp.symbols(f"y1:{n + 1}", real=True)
    f, g = [], []
    for k in range(n):
        j = (k + 1) % n
        g += [
            y[k] ** 4 / (4 + k),
            (4 + x[k] ** 2) * y[k] ** 2 / 2,
            Q(k, n) * y[k] * y[j],
            -x[k] * y[k],
            x[j] * y[k] / 3,
        ]
        f += [(x[k] ** 2 - 1) ** 2 / 4, Q(1 - k, n) * x[k] * y[k] * y[j], y[k] ** 4 / 7, x[k] * x[j] * y[k] / 5]
    return BilevelProblem(sp.Add(*f), sp.Add(*g), x, y)


def logistic(rows: int, n: int) -> BilevelProblem:
    rng = np.random.default_rng(rows)
    x, y = sp.symbols(f"x1:{n + 1}", real=True), sp.symbols(f"y1:{n + 1}", real=True)
    a, b = rng.integers(-64, 65, (2, rows, n))
    inner = [sum(Q(int(c), 64) * yk for c, yk in zip(row, y, strict=True)) for row in a]
    outer = [sum(Q(int(c), 64) * yk for c, yk in zip(row, y, strict=True)) for row in b]
    f = sp.Add(*(softplus(z - xk) for z, xk in zip(outer, [*x, *x, *x], strict=False)))
    g = sp.Add(*map(softplus, inner), *(sp.exp(xk) * yk**2 / 2 for xk, yk in zip(x, y, strict=True)))
    return BilevelProblem(f, g, x, y)


def quadratic(spectrum: Iterable[int], f: Any = None) -> BilevelProblem:
    """g = y^T diag(spectrum) y / 2 - x1 sum(y): v* = f_y / spectrum."""
    values = list(spectrum)
    x, y = sp.symbols("x1:3", real=True), sp.symbols(f"y1:{len(values) + 1}", real=True)
    g = sp.Add(
        *(sp.Integer(a) * yk**2 / 2 - x[0] * (k + 1) * yk for k, (a, yk) in enumerate(zip(values, y, strict=True)))
    )
    objective = sp.Add(*(Q(k + 1, 3) * yk for k, yk in enumerate(y))) + x[0] * x[1]
    return BilevelProblem(objective if f is None else f(x, y), g, x, y)


def pieces() -> BilevelProblem:
    x, y = sp.symbols("x1:3", real=True), sp.symbols("y1:3", real=True)
    g = (
        sp.Piecewise((y[0] ** 2, y[0] < x[0]), (2 * y[0] ** 2 - 2 * x[0] * y[0] + x[0] ** 2, True))
        + y[1] ** 2
        - x[1] * y[1]
    )
    f = (
        sp.Max(y[0], y[1]) * sp.Abs(x[0])
        + sp.Piecewise((sp.log(x[0] + 1), x[0] > -1), (sp.sqrt(x[1]), True))
        + sigmoid(y[1])
    )
    return BilevelProblem(f, g, x, y)


def grammar(name: str) -> BilevelProblem:
    """A function of the grammar in both levels."""
    x, y = sp.symbols("x y", real=True)
    return BilevelProblem(GRAMMAR[name] * x, 2 * y**2 - x * y + GRAMMAR[name] / 16, [x], [y])


def domains() -> BilevelProblem:
    """Lanes leave the domain of f, or of g, or overflow, as they start."""
    x, y = sp.symbols("x y", real=True)
    return BilevelProblem(sp.log(x + 1) * y + 3 * sp.exp(3 * x), y**2 - x * y + sp.sqrt(y + 2), [x], [y])


@lru_cache(None)
def problem(name: str) -> BilevelProblem:
    family, _, argument = name.partition(":")
    made: dict[str, Callable[[], BilevelProblem]] = {
        "sparse": lambda: sparse(int(argument)),
        "logistic": lambda: logistic(*map(int, argument.split("x"))),
        "quadratic": lambda: quadratic(map(int, argument.split(","))),
        "tube": lambda: zoo.get("tube", d=4).problem,
        "pieces": pieces,
        "domains": domains,
        "grammar": lambda: grammar(argument),
    }
    return made[family]()


@lru_cache(None)
def loop(name: str, kind: Kind = "aid", D: int = 3, N: int = 2, tau: float = 0.1) -> CompiledLoop:
    return CompiledLoop(problem(name).tape, kind=kind, D=D, N=N, tau=tau)


def starts(name: str, count: int, *, noise: int = 0, spread: float = 1.0, seed: int = 0) -> LoopState:
    rng = np.random.default_rng(seed)
    d, n = problem(name).d, problem(name).n
    x, y, v = (spread * rng.standard_normal((count, k)) for k in (d, n, n))
    return LoopState.start(x, y, v, since=5, noise=rng.standard_normal((count, noise, d)))


def part(state: LoopState, rows: Any) -> LoopState:
    return LoopState(**{field.name: getattr(state, field.name)[rows].copy() for field in fields(LoopState)})


def same(a: Any, b: Any) -> bool:
    """Bit for bit; one NaN is as good as another."""
    if a.dtype != np.float64:
        return bool((a == b).all())
    return bool(((a.view(np.int64) == b.view(np.int64)) | (np.isnan(a) & np.isnan(b))).all())


def assert_same(first: Any, second: Any) -> None:
    """Two states, or two records."""
    for field in fields(first):
        assert same(getattr(first, field.name), getattr(second, field.name)), field.name


# ---- against a plain loop --------------------------------------------------------------------------------


def plain(
    name: str, state: LoopState, steps: int, rule: Rule, kind: Kind, D: int, N: int, tau: float
) -> tuple[LoopState, Record]:
    """The same iteration over NumPy kernels, one trajectory after the other; nothing may go wrong in it."""
    k = compile_kernels(problem(name), backend="tape")
    record = Record.empty(len(state.x), steps, problem(name).d, problem(name).n)
    for s in range(len(state.x)):
        x, y, v = state.x[s].copy(), state.y[s].copy(), state.v[s].copy()
        for i in range(steps):
            for _ in range(D):
                y -= tau * k.g_y(x, y)
            grad = k.f_x(x, y)
            if kind == "aid":
                r = k.f_y(x, y) - k.g_yy_v(x, y, v)
                p = r.copy()
                for _ in range(N):
                    if r @ r < 1e-300:
                        break
                    A_p = k.g_yy_v(x, y, p)
                    assert p @ A_p > 0
                    alpha, before = r @ r / (p @ A_p), r @ r
                    v += alpha * p
                    r = r - alpha * A_p
                    p = r + r @ r / before * p
                grad = grad - k.g_xy_v(x, y, v)
            phi = float(k.f(x, y))
            perturbed = (
                rule.threshold >= 0 and np.linalg.norm(grad) <= rule.threshold and state.since[s] > rule.T_escape
            )
            record.xs[s, i], record.ys[s, i], record.vs[s, i] = x, y, v
            record.grads[s, i], record.phis[s, i], record.perturbed[s, i] = grad, phi, perturbed
            if phi < state.best_phi[s]:
                state.best_phi[s], state.best_x[s], state.best_y[s], state.best_k[s] = phi, x, y, state.age[s]
            state.since[s] += 1
            if perturbed:
                x = x - rule.eta * state.noise[s, state.used[s]]
                state.used[s] += 1
                state.since[s] = 0
            if rule.stale or not perturbed:
                x = x - rule.eta * grad
            state.age[s] += 1
            state.done[s] += 1
            state.grad[s], state.phi[s] = grad, phi
        state.x[s], state.y[s], state.v[s] = x, y, v
    return state, record


PLAIN = ["sparse:3", "sparse:12", "logistic:7x3", "logistic:30x10", "quadratic:1,4,9", "tube", "pieces", "grammar:tanh"]


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize(("stale", "D"), [(False, 3), (True, 4)])
@pytest.mark.parametrize("kind", ["aid", "gdmax"])
@pytest.mark.parametrize("name", PLAIN)
def test_the_iteration_is_the_one_that_is_meant(name: str, kind: Kind, stale: bool, D: int) -> None:
    N, tau, steps = 2, 0.05, 6
    rule = Rule(eta=0.02, threshold=1.5, T_escape=1, stale=stale)
    state, expected = (starts(name, WIDTH + 2, noise=steps, spread=0.3) for _ in range(2))
    state.x[:] = expected.x[:] = np.abs(state.x)
    record = Record.empty(len(state.x), steps, problem(name).d, problem(name).n)
    CompiledLoop(problem(name).tape, kind=kind, D=D, N=N, tau=tau).advance(state, steps, rule, record)
    expected, seen = plain(name, expected, steps, rule, kind, D, N, tau)
    for ours, theirs in ((state, expected), (record, seen)):
        for field in fields(ours):
            a, b = getattr(ours, field.name), getattr(theirs, field.name)
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12, err_msg=field.name)
    if name == "sparse:3":
        assert 0 < record.perturbed.sum() < record.perturbed.size


# ---- bit for bit -----------------------------------------------------------------------------------------

BITWISE = [
    "sparse:5", "sparse:20", "logistic:30x20", "logistic:9x3", "logistic:37x17", "tube", "pieces", "domains",
    "quadratic:1,1,2,2,3,3,4,4,5",
]  # fmt: skip
STEPS = 12


def run(name: str, state: LoopState, rule: Rule = OFTEN, steps: int = STEPS) -> tuple[LoopState, Record]:
    record = Record.empty(len(state.x), steps, problem(name).d, problem(name).n)
    loop(name).advance(state, steps, rule, record)
    return state, record


def alone(name: str, state: LoopState, s: int) -> tuple[LoopState, Record]:
    return run(name, part(state, slice(s, s + 1)))


def assert_lanes_do_not_matter(name: str, count: int) -> LoopState:
    start = starts(name, count, noise=3)
    together, seen = run(name, part(start, slice(None)))
    for s in range(count):
        state, record = alone(name, start, s)
        assert_same(state, part(together, slice(s, s + 1)))
        for field in fields(Record):
            assert same(getattr(record, field.name)[0], getattr(seen, field.name)[s]), field.name
    return together


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("name", BITWISE)
def test_alone_and_in_an_ensemble_bit_for_bit(name: str) -> None:
    ended = assert_lanes_do_not_matter(name, 2 * WIDTH + 7)
    if name == "domains":
        assert {NOT_FINITE, OUT_OF_NOISE} & set(ended.status.tolist())
        assert len(set(ended.done.tolist())) > 2


@pytest.mark.parametrize("name", GRAMMAR)
def test_every_function_of_the_grammar_bit_for_bit(name: str) -> None:
    assert_lanes_do_not_matter(f"grammar:{name}", WIDTH + 3)


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("name", BITWISE)
@pytest.mark.parametrize("count", [2, 7, WIDTH - 1, WIDTH, WIDTH + 1])
def test_the_order_and_the_size_of_an_ensemble_do_not_matter(name: str, count: int) -> None:
    start = starts(name, 2 * WIDTH, noise=3)
    order = np.random.default_rng(count).permutation(2 * WIDTH)[:count]
    together, _ = run(name, part(start, slice(None)))
    some, _ = run(name, part(start, order))
    assert_same(some, part(together, order))


@pytest.mark.parametrize("name", BITWISE)
def test_steps_may_be_cut_anywhere(name: str) -> None:
    start = starts(name, WIDTH + 9, noise=3)
    whole, _ = run(name, part(start, slice(None)))
    cut, done = part(start, slice(None)), np.zeros(len(start.x), dtype=np.int64)
    for steps in (1, 4, 0, 2, 5):
        loop(name).advance(cut, steps, OFTEN)
        done += cut.done
    cut.done[:] = done
    assert_same(cut, whole)


def test_threads_may_share_a_loop() -> None:
    start = starts("logistic:9x3", WIDTH + 1, noise=3)
    expected, _ = run("logistic:9x3", part(start, slice(None)))
    states = [part(start, slice(None)) for _ in range(6)]
    with ThreadPoolExecutor(3) as pool:
        for found, _ in pool.map(lambda state: run("logistic:9x3", state), states):
            assert_same(found, expected)


def test_with_a_vector_library_nobody_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    start = starts("grammar:sin", 1, noise=3)
    expected, _ = run("grammar:sin", part(start, slice(None)))
    monkeypatch.setattr("numba.core.config.USING_SVML", True)
    found, _ = run("grammar:sin", part(start, slice(None)))
    assert_same(found, expected)


def test_a_few_run_one_by_one_and_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    start = starts("logistic:9x3", 5, noise=3)
    one_by_one, _ = run("logistic:9x3", part(start, slice(None)))
    monkeypatch.setattr(compiled_loop, "FEW_TRAJECTORIES", 0)
    in_lanes, _ = run("logistic:9x3", part(start, slice(None)))
    assert_same(one_by_one, in_lanes)


# ---- conjugate gradients ---------------------------------------------------------------------------------


def one_estimate(name: str, N: int, v: Any = None) -> LoopState:
    """One iteration from x = (1, 1), y = 1."""
    d, n = problem(name).d, problem(name).n
    state = LoopState.start(np.ones((1, d)), np.ones((1, n)), None if v is None else np.array([v], dtype=np.float64))
    CompiledLoop(problem(name).tape, kind="aid", D=1, N=N, tau=0.1).advance(state, 1, NEVER)
    return state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spectrum", "steps"),
    [("2,2,2", 1), ("5", 1), ("1,4,4,1", 2), ("3,3,7,7,7", 2), ("1,2,3", 3), ("1,2,3", 9), ("5", 4), ("2,2,2,2,2", 12)],
)
def test_as_many_steps_as_eigenvalues_are_exact(spectrum: str, steps: int) -> None:
    """The newest iterate is the one that is used: isotropic and few-eigenvalue cases see it."""
    name, values = f"quadratic:{spectrum}", np.array([int(a) for a in spectrum.split(",")])
    n = len(values)
    expected = (np.arange(n) + 1) / 3 / values
    state = one_estimate(name, steps)
    np.testing.assert_allclose(state.v[0], expected, rtol=1e-13)
    np.testing.assert_allclose(state.grad[0], [1 + (np.arange(n) + 1) @ expected, 1], rtol=1e-13)
    assert state.status[0] == RUNNING


@pytest.mark.parametrize("N", [1, 2, 7])
def test_an_exact_start_stays(N: int) -> None:
    x, y = sp.symbols("x1:3", real=True), sp.symbols("y1:4", real=True)
    made = BilevelProblem(y[0] + 2 * y[1] + 3 * y[2], 2 * (y[0] ** 2 + y[1] ** 2 + y[2] ** 2) - x[0] * y[0], x, y)
    state = LoopState.start(np.ones((1, 2)), np.ones((1, 3)), np.array([[0.25, 0.5, 0.75]]))
    CompiledLoop(made.tape, kind="aid", D=1, N=N, tau=0.1).advance(state, 3, NEVER)
    assert state.v.tolist() == [[0.25, 0.5, 0.75]]
    assert state.status[0] == RUNNING
    np.testing.assert_allclose(state.grad, [[0.25, 0.0]])


def test_no_steps_keep_v() -> None:
    assert one_estimate("quadratic:1,2", 0, [3.0, 5.0]).v.tolist() == [[3.0, 5.0]]


@pytest.mark.parametrize("count", [1, WIDTH])
def test_a_matrix_that_is_not_positive_definite_ends_the_trajectory(count: int) -> None:
    x, y = sp.symbols("x y", real=True)
    made = BilevelProblem(y + x**2, x * y**2 / 2, [x], [y])  # g_yy = x
    start = np.where(np.arange(count) % 2 == 0, -1.0, 1.0)[:, None]
    state = LoopState.start(start, np.ones((count, 1)), np.full((count, 1), 7.0))
    CompiledLoop(made.tape, kind="aid", D=2, N=3, tau=0.1).advance(state, 4, NEVER)
    odd = np.arange(count) % 2 == 1
    assert (state.status[~odd] == BREAKDOWN).all()
    assert (state.status[odd] == RUNNING).all()
    assert (state.done == np.where(odd, 4, 0)).all()
    # as if the iteration had not been begun
    assert (state.x[~odd] == -1).all()
    assert (state.y[~odd] == 1).all()
    assert (state.v[~odd] == 7).all()


# ---- statuses and the rule -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, WIDTH + 1])
def test_what_is_not_finite_ends_the_trajectory_and_leaves_it_where_it_was(count: int) -> None:
    x, y = sp.symbols("x y", real=True)
    made = BilevelProblem(sp.log(x) + y, y**2 / 2 - x * y, [x], [y])  # f_x = 1/x drives x down to where log is NaN
    state = LoopState.start(np.full((count, 1), 0.3), np.zeros((count, 1)))
    record = Record.empty(count, 50, 1, 1)
    CompiledLoop(made.tape, kind="aid", D=1, N=1, tau=1.0).advance(state, 50, Rule(eta=0.1), record)
    assert (state.status == NOT_FINITE).all()
    (done,) = set(state.done.tolist())
    assert 0 < done < 50
    assert (state.age == done).all()
    assert np.isfinite(state.grad).all()
    assert np.isfinite(state.y).all()
    assert np.isfinite(record.phis[:, :done]).all()
    assert np.isnan(record.phis[:, done:]).all()
    np.testing.assert_array_equal(state.phi, record.phis[:, done - 1])
    np.testing.assert_array_equal(state.x, record.xs[:, done - 1] - 0.1 * record.grads[:, done - 1])


def refilled(state: LoopState, noise: Any) -> LoopState:
    """The same trajectories with new noise, none of it used."""
    return replace(state, noise=noise.copy(), used=np.zeros(len(state.x), dtype=np.int64))


@pytest.mark.parametrize("name", ["sparse:5", "logistic:9x3"])
def test_noise_may_come_in_portions(name: str) -> None:
    whole = starts(name, WIDTH + 3, noise=STEPS)
    portions = refilled(part(whole, slice(None)), whole.noise[:, :1])
    expected, _ = run(name, part(whole, slice(None)))
    assert len(set(expected.used.tolist())) > 1  # they perturb at different times
    spent = np.zeros(len(whole.x), dtype=np.int64)
    while (portions.age < STEPS).any():
        s = np.flatnonzero(portions.age < STEPS)
        # each at its own pace: a call advances by the steps that are left, or until its noise has run out
        for k in s:
            mine = part(portions, slice(k, k + 1))
            if mine.used[0] == 1:
                spent[k] += 1
                mine = refilled(mine, whole.noise[k : k + 1, spent[k] : spent[k] + 1])
            loop(name).advance(mine, STEPS - int(mine.age[0]), OFTEN)
            assert mine.status[0] == (RUNNING if mine.age[0] == STEPS else OUT_OF_NOISE)
            for field in fields(LoopState):
                getattr(portions, field.name)[k] = getattr(mine, field.name)[0]
    for name_of in ("x", "y", "v", "grad", "phi", "since", "age", "best_x", "best_y", "best_phi", "best_k"):
        assert same(getattr(portions, name_of), getattr(expected, name_of)), name_of


def test_without_noise_a_trajectory_waits_before_doing_anything() -> None:
    start = starts("sparse:3", 3)
    state, record = run("sparse:3", part(start, slice(None)))
    assert (state.status == OUT_OF_NOISE).all()
    assert (state.done == 0).all()
    assert np.isnan(record.xs).all()
    assert same(state.y, start.y)
    state, _ = run("sparse:3", state, NEVER)
    assert (state.status == RUNNING).all()
    assert (state.done == STEPS).all()


def test_perturbations_keep_their_distance() -> None:
    rule = Rule(eta=0.001, threshold=1e6, T_escape=3)
    _, record = run("sparse:3", starts("sparse:3", WIDTH, noise=STEPS), rule)
    # since = 5 at the start, then four iterations between
    assert (record.perturbed == (np.arange(STEPS) % 5 == 0)).all()


def test_ended_trajectories_are_left_alone() -> None:
    state = starts("sparse:3", 4)
    state.status[:] = (RUNNING, NOT_FINITE, BREAKDOWN, OUT_OF_NOISE)
    before = part(state, slice(None))
    loop("sparse:3").advance(state, 3, NEVER)
    assert state.done.tolist() == [3, 0, 0, 3]
    assert_same(part(state, slice(1, 3)), part(before, slice(1, 3)))


def test_arrays_of_other_shapes_are_refused() -> None:
    state = starts("sparse:3", 4)
    with pytest.raises(ValueError, match="expected xs"):
        loop("sparse:3").advance(state, 3, NEVER, Record.empty(4, 2, 3, 3))
    with pytest.raises(ValueError, match="expected x "):
        loop("sparse:5").advance(state, 3, NEVER)
    with pytest.raises(ValueError, match="float32"):
        loop("sparse:3").advance(replace(state, y=state.y.astype(np.float32)), 3, NEVER)


def test_a_constant_or_linear_lower_level_has_its_places() -> None:
    """Outputs that are constants, inputs, or the inputs of another entry: y moves as a whole."""
    x, y1, y2 = sp.symbols("x y1 y2", real=True)
    made = BilevelProblem(y1 + x**2, y1 * y2 + 2 * y1**2 + 2 * y2**2 - 3 * y2, [x], [y1, y2])
    swap = BilevelProblem(x + y1, y1 * y2 + x, [x], [y1, y2])  # g_y = (y2, y1)
    for case in (made, swap):
        state = LoopState.start(np.ones((1, 1)), np.array([[3.0, 5.0]]))
        CompiledLoop(case.tape, kind="gdmax", D=1, tau=0.5).advance(state, 1, NEVER)
        slope = [5 + 12, 3 + 20 - 3] if case is made else [5, 3]
        np.testing.assert_allclose(state.y, [[3 - slope[0] / 2, 5 - slope[1] / 2]])


def test_the_codes_are_those_of_a_solution() -> None:
    """The solvers read them as they stand."""
    from bilevel_sym.estimators.status import Status

    assert (RUNNING, NOT_FINITE, BREAKDOWN) == (Status.RUNNING, Status.NOT_FINITE, Status.BREAKDOWN)
