"""Algorithm 3: batches whose mean is exact, expectations by enumeration, frozen batches, and escapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any, cast

import numpy as np
import pytest
import scipy.stats
import sympy as sp

from bilevel_sym import (
    AID,
    Descent,
    Exact,
    GDmax,
    INeon,
    Neumann,
    Solution,
    Status,
    StocBiO,
    StochasticProblem,
    neumann_batch_sizes,
    solve,
    zoo,
)
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.estimators import batches
from bilevel_sym.estimators.batches import Batch, BatchOracle, BatchSession, Data
from bilevel_sym.estimators.oracle import in_lanes
from bilevel_sym.solvers.algorithm import Ensemble
from bilevel_sym.typing import Floats

STREAMS = [np.random.default_rng(0)]


@lru_cache(None)
def noisy() -> StochasticProblem:
    """Data in every block: F, F_x, F_y, G_xy and G_yy are all random; 3 rows for F and 2 for G."""
    return StochasticProblem(
        "a*sin(x1)*y1 + b*x2*y2 + y1**2/2 + a*b*x1", "(2 + c)*y1**2/2 + (3 + e)*y2**2/2 + y1*y2/2 - c*x1*y1 - (1 + e)*x2*y2 - x1*y2",
        "x1 x2", "y1 y2", "a b", "c e", [[1, 2], [3, -1], [-1, 1]], [[0.5, 1], [-0.5, 2]],
    )  # fmt: skip


@lru_cache(None)
def silent() -> StochasticProblem:
    """The same with identical rows: every batch is the mean."""
    p = noisy()
    return StochasticProblem(p.F, p.G, p.x, p.y, p.xi, p.zeta, [[1, 2]] * 5, [[0.5, 1]] * 4)


STOC = StocBiO(D=3, Q=4, S=2, alpha=0.1, beta=0.05, eta_neumann=0.15, batch_f=2, batch_g=3)
X0 = np.array([[0.3, -0.4], [0.1, 0.2], [-0.5, 0.6]])


# ---- without noise ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [(1, 1, 1), (2, 2, 3), (7, 5, 9)])
def test_without_noise_it_is_descent_with_the_neumann_series(batches: tuple[int, int, int]) -> None:
    """Batches below, at and above the number of rows; the mean over identical rows is any of them."""
    S, batch_f, batch_g = batches
    a = StocBiO(D=3, Q=4, S=S, alpha=0.1, beta=0.05, eta_neumann=0.15, batch_f=batch_f, batch_g=batch_g)
    found = solve(silent(), a, X0, steps=10, rng=0).trajectory
    wanted = solve(silent().mean, Descent(Neumann(4, 0.15, 3, 0.1), 0.05), X0, steps=10).trajectory
    for name in ("x", "y", "v", "grad_phi_hat", "phi_hat"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("data", [([], [[1.0]]), ([[1.0]], [])])
def test_a_level_may_have_no_data(data: tuple[Any, Any]) -> None:
    xi, zeta = (("a",) if data[0] else ()), (("c",) if data[1] else ())
    p = StochasticProblem(
        "a*x*y" if data[0] else "x*y", "y**2/2 - c*x*y" if data[1] else "y**2/2 - x*y", "x", "y", xi, zeta, *data
    )
    found = solve(p, StocBiO(2, 3, 2, 0.5, 0.1, 0.5, 2, 2), [1.0], steps=3, rng=0)
    wanted = solve(p.mean, Descent(Neumann(3, 0.5, 2, 0.5), 0.1), [1.0], steps=3)
    np.testing.assert_allclose(found.x, wanted.x, rtol=1e-13)


# ---- expectations ---------------------------------------------------------------------------------------------------------


def means(batch: Batch, function: str, names: tuple[str, ...], x: Floats, y: Floats, v: Floats) -> dict[str, Floats]:
    data = Data(noisy())
    session = BatchSession(data, names, 16, {function: batch})
    session.inputs(0)[:] = in_lanes(np.concatenate([x, y])[None])
    session.perform(0)
    session.inputs(1)[:] = in_lanes(v[None])
    session.perform(1)
    return {name: session.rows(name)[:, 0] for name in names}


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(("function", "names"), [("f", ("f", "f_x", "f_y")), ("g", ("g_y", "g_yy_v", "g_xy_v"))])
def test_the_mean_over_all_batches_is_the_mean_problem(function: str, names: tuple[str, ...], size: int) -> None:
    """All index tuples of a batch, with equal weight: the exact expectation."""
    p, x, y, v = noisy(), np.array([0.3, -0.4]), np.array([0.2, 0.7]), np.array([1.0, -2.0])
    tuples = list(product(range(len(p.xi_data if function == "f" else p.zeta_data)), repeat=size))
    first = Batch(np.zeros((1, 1), dtype=np.int64), np.ones((1, 1)))
    total = {name: 0.0 * means(first, function, (name,), x, y, v)[name] for name in names}
    for chosen in tuples:
        batch = Batch(np.array([chosen]), np.full((1, size), 1 / size))
        for name, value in means(batch, function, names, x, y, v).items():
            total[name] = total[name] + value / len(tuples)
    k = p.mean.kernels
    for name in names:
        wanted = getattr(k, name)(x, y, v) if name.endswith("_v") else getattr(k, name)(x, y)
        np.testing.assert_allclose(total[name].reshape(np.shape(wanted)), wanted, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_rows_are_drawn_with_equal_probability_and_replacement(size: int) -> None:
    """Both ways to draw: indices (fewer than the rows) and counts (as many, or more)."""
    streams = [np.random.default_rng(seed) for seed in range(3000)]
    data = Data(noisy())
    batch = data.draw("f", streams, size)
    rows = data.tables["f"][batch.picked]
    np.testing.assert_allclose(batch.weights.sum(axis=1), 1.0, rtol=1e-14)
    counts = [(batch.weights * size * (rows[:, :, 0] == value)).sum() for value in (1, 3, -1)]
    # the rows of one batch are independent: 3000 * size draws from three
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    if size == 2:
        doubles = (rows[:, 0, 0] == rows[:, 1, 0]).sum()
        assert scipy.stats.binomtest(int(doubles), 3000, 1 / 3).pvalue > 1e-3


@pytest.mark.slow
def test_the_estimate_is_unbiased_where_the_lower_level_is_not_random() -> None:
    """E[grad_phi_hat] = f_x - g_xy E[v_Q] with independent batches; at y_0 = 0 one step below has no noise in y."""
    p = StochasticProblem(
        "a*x + b*x*y + y",
        "(1 + c)*y**2/2 - x*y*(1 + c/4) + c*x*y/4",
        "x",
        "y",
        "a b",
        "c",
        [[1, 2], [3, -1], [-1, 1]],
        [[0.5], [-0.25], [0.125]],
    )
    a = StocBiO(D=1, Q=3, S=2, alpha=0.25, beta=0.1, eta_neumann=0.5, batch_f=2, batch_g=2)
    count = 6000
    found = solve(p, a, np.full((count, 1), 0.5), steps=0, rng=0, record="last").grad_phi_hat[:, 0]
    wanted = Neumann(3, 0.5, 1, 0.25).estimate(p.mean, [0.5]).grad_phi_hat[0]
    spread = found.std(ddof=1) / math.sqrt(count)
    assert spread > 1e-4  # there is noise
    assert abs(found.mean() - wanted) < 4 * spread


def test_the_estimate_is_what_its_batches_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay the drawn batches in plain NumPy: order, sizes and formula of (est-vq) and (estG)."""
    drawn: list[tuple[str, int, Batch]] = []
    original = Data.draws

    def draws(self: Data, function: str, streams: Any, sizes: Any, **options: Any) -> Iterator[Batch]:
        for size, batch in zip(sizes, original(self, function, streams, sizes, **options), strict=True):
            drawn.append((function, size, batch))
            yield batch

    monkeypatch.setattr(Data, "draws", draws)
    p = noisy()
    a = StocBiO(D=2, Q=3, S=2, alpha=0.1, beta=0.05, eta_neumann=0.15, batch_f=2, batch_g=5, neumann_batches=(6, 3, 1))
    x = np.array([0.3, -0.4])
    found = solve(p, a, x, steps=0, rng=3)
    assert [(f, size) for f, size, _ in drawn] == [("g", 2), ("g", 2), ("f", 2), ("g", 5), ("g", 6), ("g", 3), ("g", 1)]
    variables = [*p.x, *p.y, *p.xi, *p.zeta]

    def mean(expressions: list[sp.Expr], batch: Batch, y: Floats) -> Floats:
        columns = len(p.xi) if batch is drawn[2][2] else len(p.zeta)
        values = []
        table = Data(p).tables["f" if batch is drawn[2][2] else "g"]
        for row, weight in zip(table[batch.picked[0]], batch.weights[0], strict=True):
            data = [*row, *np.zeros(2)] if batch is drawn[2][2] else [*np.zeros(2), *row]
            assert len(row) == columns
            values.append(
                weight
                * np.array([float(e.subs(dict(zip(variables, [*x, *y, *data], strict=True)))) for e in expressions])
            )
        return np.sum(values, axis=0)  # type: ignore[no-any-return]

    y = np.zeros(2)
    for _, _, batch in drawn[:2]:
        y = y - 0.1 * mean([sp.diff(p.G, s) for s in p.y], batch, y)
    f_batch, g_batch = drawn[2][2], drawn[3][2]
    power = mean([sp.diff(p.F, s) for s in p.y], f_batch, y)
    total = power.copy()
    for _, _, batch in drawn[4:]:
        hess = mean([sp.diff(p.G, s, t) for s in p.y for t in p.y], batch, y).reshape(2, 2)
        power = power - 0.15 * hess @ power
        total = total + power
    v = 0.15 * total
    g_xy = mean([sp.diff(p.G, s, t) for s in p.x for t in p.y], g_batch, y).reshape(2, 2)
    grad = mean([sp.diff(p.F, s) for s in p.x], f_batch, y) - g_xy @ v
    np.testing.assert_allclose(found.y, y, rtol=1e-13)
    np.testing.assert_allclose(found.trajectory.v[0], v, rtol=1e-12)
    np.testing.assert_allclose(found.grad_phi_hat, grad, rtol=1e-12)
    np.testing.assert_allclose(found.phi_hat, mean([p.F], f_batch, y)[0], rtol=1e-12)


def test_the_theorems_batch_sizes() -> None:
    """B Q (1 - eta mu)^(j-1) for the j-th factor applied, rounded up, never zero."""
    assert neumann_batch_sizes(10, 3, 0.5, 1.0) == (30, 15, 8)
    assert neumann_batch_sizes(1, 4, 1.0, 1.0) == (4, 1, 1, 1)
    assert neumann_batch_sizes(5, 0, 0.5, 1.0) == ()
    assert StocBiO(1, 2, 1, 0.1, 0.1, 0.1, 1, 3).sizes == (3, 3)
    assert StocBiO(1, 2, 1, 0.1, 0.1, 0.1, 1, 3, neumann_batches=7).sizes == (7, 7)
    assert StocBiO(1, 0, 1, 0.1, 0.1, 0.1, 1, 3).sizes == ()


def test_counters_count_rows() -> None:
    a = StocBiO(D=3, Q=2, S=4, alpha=0.1, beta=0.05, eta_neumann=0.15, batch_f=5, batch_g=6, neumann_batches=(7, 8))
    s = solve(noisy(), a, X0, steps=2, rng=0)
    assert (s.counters.G_f == 3 * 2 * 5).all()
    assert (s.counters.G_g == 3 * 3 * 4).all()
    assert (s.counters.JV_g == 3 * 6).all()
    assert (s.counters.HV_g == 3 * 15).all()
    assert (s.trajectory.calls[:, -1] == 30 + 36 + 18 + 45).all()


def test_a_look_counts_the_rows_of_its_own_batches() -> None:
    """Where nothing is small, one estimate on D_F and D_G beside the steps, at the first point of two."""
    escape = INeon(AID(4, 2, 0.2), 0.1, 1e-9, 0.5, 5, 1e-3)
    a = StocBiO(D=3, Q=2, S=4, alpha=0.1, beta=0.05, eta_neumann=0.15, batch_f=5, batch_g=6, escape=escape, eps=1e-9)
    plain = solve(noisy(), replace(a, escape=None, eps=None), X0, steps=1, rng=0).counters
    looked = solve(noisy(), a, X0, steps=1, rng=0).counters
    for name, calls in escape.estimator.cost.items():  # type: ignore[attr-defined]
        rows = 5 if name == "G_f" else 6
        assert (getattr(looked, name) - getattr(plain, name) == calls * rows).all(), name


def test_rows_are_computed_in_groups_that_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """As large as memory likes, and one trajectory at a time where its rows alone are more than a group."""
    whole = solve(noisy(), STOC, X0, steps=3, rng=0)
    for group in (1, 4, 5):
        monkeypatch.setattr(batches, "GROUP_ENTRIES", group)
        again = solve(noisy(), STOC, X0, steps=3, rng=0)
        np.testing.assert_allclose(again.trajectory.x, whole.trajectory.x, rtol=1e-13)


# ---- frozen batches ---------------------------------------------------------------------------------------------------------


def test_a_frozen_batch_is_one_function() -> None:
    """The same point gives the same bits, before and after others; and it is the function of its own rows."""
    data = Data(noisy())
    stream = np.random.default_rng(1)
    drawn = data.draw("f", [stream], 2), data.draw("g", [stream], 7)
    oracle = BatchOracle(data, *drawn)
    estimator = AID(200, 2, 0.2)
    points = [np.tile(np.array(p)[:, None], (1, oracle.width)) for p in ([0.3, -0.4], [0.0, 0.0], [0.0, 0.0])]
    first = estimator.in_lanes(oracle, *points)
    estimator.in_lanes(oracle, points[0] + 1, points[1], points[2])
    again = estimator.in_lanes(oracle, *points)
    assert np.array_equal(first.grad, again.grad)
    assert np.array_equal(first.phi, again.phi)
    p = noisy()
    rows = [
        np.repeat(data.tables[name][b.picked[0]], np.round(b.weights[0] * n).astype(int), axis=0).tolist()
        for name, b, n in zip("fg", drawn, (2, 7), strict=True)
    ]
    own = StochasticProblem(p.F, p.G, p.x, p.y, p.xi, p.zeta, *rows).mean
    np.testing.assert_allclose(first.grad[:, 0], own.kernels.grad_phi([0.3, -0.4]), rtol=1e-11)
    np.testing.assert_allclose(first.phi[0], own.kernels.phi([0.3, -0.4]), rtol=1e-12)


def test_a_search_draws_its_batches_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[str, int]] = []
    original = Data.draws

    def draws(self: Data, function: str, streams: Any, asked: Any, **options: Any) -> Iterator[Batch]:
        for size, batch in zip(asked, original(self, function, streams, asked, **options), strict=True):
            sizes.append((function, size))
            yield batch

    monkeypatch.setattr(Data, "draws", draws)
    p = zoo.get("stochastic_noise", d=2).problem
    a = StocBiO(1, 1, 2, 0.2, 0.05, 0.2, 300, 500, escape=INeon(AID(20, 2, 0.2), 0.1, 0.5, 0.5, 60, 1e-3))
    s = solve(p, a, [0.0, 0.0], steps=1, rng=0)
    assert s.trajectory.perturbed[0]
    # an estimate, the frozen pair, and the estimate at the next point; nothing in between
    estimate = [("g", 2), ("f", 300), ("g", 500), ("g", 500)]
    assert sizes == [*estimate, ("f", 300), ("g", 500), *estimate]


# ---- the same bits ------------------------------------------------------------------------------------------------------------

ESCAPING = StocBiO(3, 3, 4, 0.2, 0.1, 0.2, 40, 40, escape=INeon(AID(10, 2, 0.2), 0.1, 0.5, 0.5, 40, 1e-3, step=0.4))


def stochastic_saddle() -> StochasticProblem:
    p = zoo.get("stochastic_noise", d=2).problem
    assert isinstance(p, StochasticProblem)
    return p


@lru_cache(None)
def ensemble(record: Any) -> Solution:
    x = np.concatenate([np.zeros((4, 2)), np.random.default_rng(0).uniform(-2, 2, (15, 2)), np.full((1, 2), 1e80)])
    return solve(stochastic_saddle(), ESCAPING, x, steps=10, rng=5, record=record)


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("record", ["all", "last"])
@pytest.mark.parametrize("rows", [[0], [19, 3, 5, 5], list(range(1, 18))])
def test_a_trajectory_has_the_same_bits_in_any_company(rows: list[int], record: Any) -> None:
    whole = ensemble(record)
    start = np.concatenate([np.zeros((4, 2)), np.random.default_rng(0).uniform(-2, 2, (15, 2)), np.full((1, 2), 1e80)])
    part = solve(
        stochastic_saddle(), ESCAPING, start[rows], steps=10, rng=[whole.seed[row] for row in rows], record=record
    )
    assert np.array_equal(part.x, whole.x[rows], equal_nan=True)
    assert part.status == tuple(whole.status[row] for row in rows)
    assert np.array_equal(part.phi_hat, whole.phi_hat[rows], equal_nan=True)
    for name in ("G_f", "G_g", "JV_g", "HV_g"):
        assert np.array_equal(getattr(part.counters, name), getattr(whole.counters, name)[rows])
    if record == "all":
        stop = part.trajectory.x.shape[1]
        for name in ("x", "y", "v", "grad_phi_hat", "phi_hat", "perturbed", "calls"):
            mine, theirs = getattr(part.trajectory, name), getattr(whole.trajectory, name)[rows][:, :stop]
            assert np.array_equal(mine, theirs, equal_nan=mine.dtype == np.float64), name


@pytest.mark.slow
def test_large_ensembles_with_large_batches_are_the_same_too() -> None:
    """More rows times lanes than are computed in one go."""
    p = zoo.get("stochastic_rows", rows=40).problem
    a = StocBiO(2, 2, 50, 0.01, 0.01, 0.01, 30, 300)
    x = np.linspace(-1, 1, 300)[:, None]
    whole = solve(p, a, x, steps=2, rng=1, record="last")
    for row in (0, 163, 164, 299):
        assert np.array_equal(solve(p, a, x[row], steps=2, rng=whole.seed[row], record="last").x, whole.x[row])


# ---- escapes ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_descent_with_escapes_leaves_the_saddle_and_ends_in_a_minimum() -> None:
    a = StocBiO(5, 8, 200, 0.2, 0.2, 0.2, 2000, 2000, escape=INeon(AID(20, 2, 0.2), 0.2, 0.1, 0.5, 60, 1e-3, step=0.4))
    s = solve(stochastic_saddle(), a, np.zeros((6, 2)), steps=150, rng=0)
    assert s.trajectory.perturbed[:, 0].all()
    assert (np.abs(s.x[:, 0]) > 1.2).all()  # the wells are at 2 and -2, and flat
    assert (np.abs(s.x[:, 1]) < 0.2).all()
    assert set(s.status) == {Status.LOCAL_MINIMUM}
    k = stochastic_saddle().mean.kernels
    assert (np.linalg.norm(k.grad_phi(s.x), axis=1) < 0.1).all()
    assert (s.phi < -0.2).all()


def test_without_escape_it_runs_all_of_its_steps() -> None:
    s = solve(stochastic_saddle(), STOC, [0.0, 0.0], steps=5, rng=0)
    assert s.status is Status.OUT_OF_STEPS
    assert not s.trajectory.perturbed.any()


def test_the_step_of_an_escape() -> None:
    escape = INeon(AID(5, 2, 0.2), 0.1, 0.5, 0.5, 40, 1e-3)
    assert StocBiO(1, 1, 1, 0.1, 0.1, 0.1, 1, 1, escape=escape).escape_step == escape.escape_step / 2
    assert ESCAPING.escape_step == 0.4
    known = INeon(AID(5, 2, 0.2), 0.1, 0.5, 0.5, 40, 1e-3, rho_phi=2.0)
    printed = StocBiO(1, 1, 1, 0.1, 0.1, 0.1, 1, 1, escape=known, as_printed=True)
    assert printed.escape_step == math.sqrt(0.5 / 2.0) / 80
    assert math.isnan(STOC.escape_step)
    assert StocBiO(1, 1, 1, 0.1, 0.1, 0.1, 1, 1, escape=known).eps == 0.5


@pytest.mark.parametrize(("rows", "batch"), [(2000, "all"), (2001, "few")])
def test_data_of_two_thousand_rows_are_taken_whole(rows: int, batch: str) -> None:
    p = StochasticProblem("a*y", "(y - x)**2/2 + z*y", "x", "y", "a", "z", [[1.0]] * rows, [[0.0]])
    chosen = StocBiO.auto(p, eps=0.1, x0=[0.0], points=2)
    assert chosen.batch_f == {"all": 10_000, "few": 64}[batch]


def test_a_batch_has_at_most_a_billion_rows() -> None:
    """(10/eps)^2 of them would be more; they are drawn as counts of the few rows there are."""
    p = StochasticProblem("a*y", "(y - x)**2/2 + z*y", "x", "y", "a", "z", [[1.0]] * 3, [[0.0]])
    assert StocBiO.auto(p, eps=1e-5, x0=[0.0], points=2).batch_f == 1_000_000_000


def test_what_a_printed_step_leaves_behind_is_told_and_recalled() -> None:
    """Of each trajectory its own: the check at the next point has these batches, this y and this v."""
    p, known = stochastic_saddle(), INeon(AID(5, 2, 0.2), 0.1, 0.5, 0.5, 60, 1e-3, rho_phi=2.0)
    a = StocBiO(2, 2, 20, 0.2, 0.01, 0.2, 3, 4, escape=known, as_printed=True)
    run, again = (cast("Any", a.start(p, p.mean.kernels)) for _ in range(2))
    streams = [np.random.default_rng(k) for k in range(3)]
    y = np.array([[0.5] * p.n, [0.0] * p.n, [-0.5] * p.n])
    run.estimate(Ensemble.gather(np.full((3, p.d), 0.25), y, np.zeros_like(y), clock=0, streams=streams))
    told = run.memory(3)
    assert told["left"].all()
    again.recall(told)
    recalled = again.memory(3)
    assert set(recalled) == set(told)
    for name, value in told.items():
        np.testing.assert_array_equal(recalled[name], value)
    assert not np.array_equal(told["y"][0], told["y"][2])


@pytest.mark.slow
def test_as_printed_makes_no_check_at_the_start_and_tosses_a_coin() -> None:
    known = INeon(AID(20, 2, 0.2), 0.1, 0.5, 0.5, 60, 1e-3, rho_phi=2.0)
    a = StocBiO(2, 2, 20, 0.2, 0.01, 0.2, 500, 500, escape=known, as_printed=True)
    s = solve(stochastic_saddle(), a, np.zeros((24, 2)), steps=2, rng=0)
    assert not s.trajectory.perturbed[:, 0].any()
    assert s.trajectory.perturbed[:, 1].all()
    jump = s.trajectory.x[:, 2] - s.trajectory.x[:, 1]
    np.testing.assert_allclose(np.linalg.norm(jump, axis=1), math.sqrt(0.25) / 80, rtol=1e-10)
    assert set(np.sign(jump[:, 0])) == {-1.0, 1.0}


@pytest.mark.slow
def test_after_an_escape_comes_a_step_of_descent() -> None:
    s = solve(
        stochastic_saddle(),
        StocBiO(2, 2, 20, 0.2, 0.01, 0.2, 500, 500, escape=INeon(AID(20, 2, 0.2), 0.1, 0.5, 0.5, 60, 1e-3, step=1e-3)),
        np.zeros((5, 2)),
        steps=6,
        rng=0,
    )
    assert s.trajectory.perturbed[:, :6].tolist() == [[True, False] * 3] * 5


@pytest.mark.parametrize("a", [StocBiO(40, 2, 2, 1e9, 0.1, 0.2, 2, 2), StocBiO(2, 2, 2, 0.2, 1e300, 0.2, 2, 2)])
def test_a_run_that_diverges_has_a_typed_end_without_a_warning(a: StocBiO) -> None:
    s = solve(stochastic_saddle(), a, [[1.0, 1.0], [2.0, 1.0]], steps=6, rng=0)
    assert set(s.status) <= {Status.NOT_FINITE, Status.DIVERGED}
    assert not s.ok


REFUSED: list[tuple[str, Callable[[], object], type[BilevelError], str]] = [
    ("D", lambda: StocBiO(0, 1, 1, 0.1, 0.1, 0.1, 1, 1), InvalidArgument, "D must"),
    ("Q", lambda: StocBiO(1, -1, 1, 0.1, 0.1, 0.1, 1, 1), InvalidArgument, "Q must"),
    ("S", lambda: StocBiO(1, 1, 0, 0.1, 0.1, 0.1, 1, 1), InvalidArgument, "S must"),
    ("alpha", lambda: StocBiO(1, 1, 1, 0.0, 0.1, 0.1, 1, 1), InvalidArgument, "alpha"),
    ("beta", lambda: StocBiO(1, 1, 1, 0.1, -0.1, 0.1, 1, 1), InvalidArgument, "beta"),
    ("eta_neumann", lambda: StocBiO(1, 1, 1, 0.1, 0.1, math.nan, 1, 1), InvalidArgument, "eta_neumann"),
    ("batch_f", lambda: StocBiO(1, 1, 1, 0.1, 0.1, 0.1, 0, 1), InvalidArgument, "batch_f"),
    ("batch_g", lambda: StocBiO(1, 1, 1, 0.1, 0.1, 0.1, 1, 1.5), InvalidArgument, "batch_g"),  # type: ignore[arg-type]
    ("escape", lambda: StocBiO(1, 1, 1, 0.1, 0.1, 0.1, 1, 1, escape=STOC), InvalidArgument, "escape"),  # type: ignore[arg-type]
    ("eps", lambda: StocBiO(1, 1, 1, 0.1, 0.1, 0.1, 1, 1, eps=0.0), InvalidArgument, "eps"),
    ("too few Neumann batches", lambda: StocBiO(1, 3, 1, 0.1, 0.1, 0.1, 1, 1, neumann_batches=(1, 2)), InvalidArgument, "neumann_batches"),
    ("an empty Neumann batch", lambda: StocBiO(1, 2, 1, 0.1, 0.1, 0.1, 1, 1, neumann_batches=(1, 0)), InvalidArgument, "neumann_batches"),
    ("a problem that is not stochastic", lambda: solve(noisy().mean, STOC, X0), InvalidArgument, "stochastic"),
    ("GDmax in an escape", lambda: solve(stochastic_saddle(), StocBiO(1, 1, 1, 0.1, 0.1, 0.1, 1, 1, escape=INeon(GDmax(1, 0.1), 0.1, 0.5, 0.1, 3, 0.1)), [3.0, 3.0], steps=0), InvalidArgument, "GDmax"),
    ("Exact in an escape", lambda: solve(stochastic_saddle(), StocBiO(1, 1, 1, 0.1, 0.1, 0.1, 1, 1, escape=INeon(Exact(), 0.1, 0.5, 0.1, 3, 0.1)), [3.0, 3.0], steps=0), InvalidArgument, "Exact"),
]  # fmt: skip


CASES = [pytest.param(*case[1:], id=case[0]) for case in REFUSED]


@pytest.mark.parametrize(("action", "error", "match"), CASES)
def test_what_makes_no_sense_is_refused(action: Callable[[], object], error: type[BilevelError], match: str) -> None:
    with pytest.raises(error, match=match):
        action()
