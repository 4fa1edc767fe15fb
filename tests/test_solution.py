"""What solve returns: exact values, counters that add up, and exports that can be read back."""

from __future__ import annotations

import csv
import json
import math
import pickle
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
    Status,
    StocBiO,
    solve,
    zoo,
)
from bilevel_sym.cli.solve_run import SolveRun
from bilevel_sym.errors import InvalidArgument

TOY = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
STEP = Descent(AID(1, 1, 1.0), 0.25)
LOGARITHM = BilevelProblem("log(x)*y", "y**2/2 - x*y", "x", "y")
COUNTERS = ("G_f", "G_g", "JV_g", "HV_g")


@lru_cache(None)
def run(name: str) -> Solution:
    saddle = zoo.get("saddle", d=2).problem
    escape = INeon(AID(6, 2, 0.1), 0.1, 0.5, 0.5, 30, 1e-3)
    x = np.concatenate([np.zeros((2, 2)), np.random.default_rng(0).uniform(-2, 2, (5, 2))])
    if name == "one":
        return solve(saddle, Perturbed(AID(4, 2, 0.1), 0.2, 0.5, 0.3, 3), [0.0, 0.1], steps=9, rng=1)
    if name == "last":
        return solve(saddle, Perturbed(AID(4, 2, 0.1), 0.2, 0.5, 0.3, 3), x, steps=9, rng=1, record="last")
    if name == "many":
        return solve(saddle, Perturbed(AID(4, 2, 0.1), 0.2, 0.5, 0.3, 3), x, steps=9, rng=1)
    if name == "escape":
        return solve(saddle, Descent(AID(6, 2, 0.1), 0.1, escape=escape), x, steps=60, rng=1)
    if name == "failing":
        return solve(LOGARITHM, STEP, [[1.0], [-1.0], [0.3]], steps=20, stop=lambda state: state.x[0] < 0.5, rng=0)
    if name == "none":
        return solve(saddle, STEP, np.empty((0, 2)), steps=3, rng=0)
    if name == "stochastic":
        stochastic = StocBiO(2, 2, 4, 0.2, 0.05, 0.2, 8, 8, neumann_batches=(3, 4), escape=escape)
        return solve(zoo.get("stochastic_noise").problem, stochastic, x, steps=4, rng=1)
    raise KeyError(name)


EVERY = ["one", "last", "many", "escape", "failing", "none", "stochastic"]


# ---- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["one", "many", "escape", "stochastic"])
def test_phi_along_a_trajectory_is_the_kernels(name: str) -> None:
    s = run(name)
    t = s.trajectory
    finite = np.isfinite(t.x).all(axis=-1)
    np.testing.assert_allclose(t.phi[finite], s.kernels.phi(t.x[finite]), rtol=1e-13, atol=1e-15)
    assert np.isnan(t.phi[~finite]).all()
    assert t.phi is t.phi
    np.testing.assert_allclose(s.phi, s.kernels.phi(s.x), rtol=1e-13, atol=1e-15)


def test_phi_of_a_failed_member_is_not_a_number_and_others_are() -> None:
    s = run("failing")
    assert np.isnan(s.phi[1])
    assert np.isfinite(s.phi[[0, 2]]).all()
    assert np.isnan(s.trajectory.phi[1]).all()


def test_phi_of_a_closed_form() -> None:
    s = solve(TOY, STEP, [[3.0], [1.0]], steps=4)
    assert np.array_equal(s.trajectory.phi, s.trajectory.x[..., 0] ** 2)


def test_the_best_point_is_the_lowest_that_was_visited() -> None:
    for name in ("many", "escape", "stochastic"):
        s = run(name)
        t = s.trajectory
        k = np.nanargmin(t.phi_hat, axis=1)
        rows = np.arange(len(k))
        assert np.array_equal(s.best.k, k)
        assert np.array_equal(s.best.phi_hat, t.phi_hat[rows, k])
        assert np.array_equal(s.best.x, t.x[rows, k])
        assert np.array_equal(s.best.y, t.y[rows, k])


def test_without_a_record_there_is_no_trajectory() -> None:
    with pytest.raises(InvalidArgument, match="no trajectory was recorded"):
        _ = run("last").trajectory


# ---- counters ------------------------------------------------------------------------------------------------------------

COSTS: list[tuple[Any, BilevelProblem, tuple[int, int, int, int]]] = [
    (AID(4, 2, 0.1), TOY, (2, 4, 1, 3)),
    (ITD(4, 0.1), TOY, (2, 4, 4, 4)),
    (Neumann(5, 0.1, 4), TOY, (2, 4, 1, 5)),
    (GDmax(4, 0.1), MinimaxProblem("x*y - y**2/2", "x", "y"), (5, 0, 0, 0)),
]


@pytest.mark.parametrize("backend", ["tape", "auto", "lambdify"])
@pytest.mark.parametrize(("estimator", "problem", "cost"), COSTS)
def test_counters_are_the_sums_of_every_iterations_cost(
    estimator: Any, problem: BilevelProblem, cost: tuple[int, ...], backend: Any
) -> None:
    s = solve(problem, Descent(estimator, 0.1), [[1.0], [2.0]], steps=6, backend=backend)
    for name, each in zip(COUNTERS, cost, strict=True):
        assert getattr(s.counters, name).tolist() == [7 * each] * 2
    assert s.trajectory.calls.tolist() == [[sum(cost) * (k + 1) for k in range(7)]] * 2
    printed = Perturbed(estimator, 0.1, 1e-9, 0.1, 3, as_printed=True)
    longer = solve(problem, printed, [1.0], steps=6, backend=backend)
    more = {"G_f": 7} if isinstance(estimator, GDmax) else {"G_g": 7}
    for name in ("G_f", "G_g"):
        assert int(getattr(longer.counters, name)) == int(getattr(s.counters, name)[0]) + more.get(name, 0)


def test_counters_of_exact_estimates_are_those_of_newtons_method() -> None:
    p = zoo.get("saddle", d=2).problem
    s = solve(p, Descent(Exact(), 0.1), [[0.5, 1.0], [2.0, 3.0]], steps=3)
    assert (s.counters.G_f == 2 * 4).all()
    assert (s.counters.JV_g == 2 * 4).all()
    assert (s.counters.HV_g == 2 * (s.counters.G_g + 4)).all()


@pytest.mark.parametrize("name", ["one", "many", "stochastic"])
def test_calls_along_a_trajectory_end_at_the_counters(name: str) -> None:
    s = run(name)
    total = np.sum([np.atleast_1d(getattr(s.counters, counter)) for counter in COUNTERS], axis=0)
    calls = np.atleast_2d(s.trajectory.calls)
    ends = calls[np.arange(len(calls)), np.atleast_1d(s.steps)]
    ended_early = np.array([status is not Status.OUT_OF_STEPS for status in s.statuses])
    assert (ends[~ended_early] == total[~ended_early]).all()
    assert (ends <= total).all()
    for row, length in zip(calls, np.atleast_1d(s.trajectory.length), strict=True):
        assert (np.diff(row[:length]) > 0).all()


def test_a_member_that_ends_early_stops_costing() -> None:
    s = run("failing")
    assert s.status[1] is Status.NOT_FINITE
    assert Status.STOPPED in s.status
    assert s.counters.G_f.tolist() == [2 * (int(k) + 1) for k in s.steps]


# ---- exports -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_a_dictionary_goes_through_json(name: str) -> None:
    s = run(name)
    record = s.to_dict()
    again = json.loads(json.dumps(record, allow_nan=False))
    assert again == record
    assert again["schema"] == "bilevel-sym/solution/1"
    np.testing.assert_array_equal(np.array(again["x"], dtype=np.float64).reshape(s.x.shape), s.x)
    assert again["seed"] == list(s.seed)
    assert again["status"] == (str(s.status) if s.x.ndim == 1 else [str(status) for status in s.status])
    assert ("trajectory" in again) == (name != "last")
    if name != "last":
        found = np.array(again["trajectory"]["x"], dtype=np.float64).reshape(s.trajectory.x.shape)
        np.testing.assert_array_equal(found, s.trajectory.x)
    assert again["counters"]["G_f"] == np.asarray(s.counters.G_f).tolist()
    assert again["schedule"]["kind"] == type(s.schedule).__name__


def test_a_schedule_in_a_dictionary_keeps_numbers_as_numbers() -> None:
    a = Descent(AID(np.int64(3), np.int32(2), np.float64(0.5)), np.float64(0.1))  # type: ignore[arg-type]
    schedule = solve(TOY, a, [1.0], steps=1).to_dict()["schedule"]
    assert schedule == {
        "kind": "Descent",
        "estimator": {"kind": "AID", "D": 3, "N": 2, "tau": 0.5},
        "eta": 0.1,
        "escape": None,
    }


@pytest.mark.parametrize("name", EVERY)
def test_a_table_reads_back(name: str, tmp_path: Path) -> None:
    s = run(name)
    s.to_csv(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lengths = np.atleast_1d(s.steps) * 0 + 1 if name == "last" else np.atleast_1d(s.trajectory.length)
    assert len(rows) == lengths.sum()
    names = [symbol.name for symbol in s.kernels.problem.x]
    x = s.x[:, None] if name == "last" else s.trajectory.x.reshape(len(lengths), s.trajectory.x.shape[-2], len(names))
    for row in rows:
        member, k = int(row["trajectory"]), int(row["k"])
        assert int(row["seed"]) == s.seed[member]
        stored = x[member, 0 if name == "last" else k]
        np.testing.assert_array_equal([float(row[n]) for n in names], stored)
        assert row["perturbed"] in ("0", "1")
    if name == "many":
        assert sum(int(row["perturbed"]) for row in rows) == s.trajectory.perturbed.sum()
        np.testing.assert_allclose([float(row["phi"]) for row in rows], s.trajectory.phi.ravel(), rtol=1e-15)


def test_text_for_people() -> None:
    assert repr(run("one")).startswith("<Solution x=[")
    assert "7 trajectories" in repr(run("many"))
    assert run("many").describe().startswith("7 trajectories ran out of")
    assert len(run("failing").endings()) == len(set(run("failing").status))
    assert run("failing").describe().splitlines()[:-1] == run("failing").endings()
    assert "<table>" in run("one")._repr_html_()
    assert run("none").describe() == ""


def test_the_last_point_is_told_with_its_y() -> None:
    """Of several that of lowest phi_hat; nan is not low."""
    problem = BilevelProblem("y", "(y - 3*x)**2/2", "x", "y")
    one = solve(problem, Descent(Exact(), eta=0.0625), [1.0], steps=0)
    assert one.describe().splitlines()[-1] == "x = [1], y = [3]"
    many = solve(problem, Descent(Exact(), eta=0.0625), [[2.0], [-1.0]], steps=0)
    assert many.describe().splitlines()[-1] == "lowest, trajectory 1: x = [-1], y = [-3]"
    assert all(status.message and str(status) for status in Status)
    assert [status for status in Status if not status.ok] == [
        Status.RUNNING,
        Status.NOT_FINITE,
        Status.BREAKDOWN,
        Status.LOWER_LEVEL_FAILURE,
        Status.DIVERGED,
        Status.KINK,
        Status.INACCURATE,
    ]


def test_names_that_are_hostile_stay_data(tmp_path: Path) -> None:
    import sympy as sp

    odd = sp.Symbol('a,"b;<script>'), sp.Symbol("y")
    p = BilevelProblem(odd[0] * odd[1], odd[1] ** 2 / 2 - odd[0] * odd[1], [odd[0]], [odd[1]])
    s = solve(p, STEP, [1.0], steps=1)
    s.to_csv(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row['a,"b;<script>']) for row in rows] == [1.0, 0.5]
    assert "<script>" not in s._repr_html_()


def test_a_solution_is_frozen_and_can_be_pickled() -> None:
    s = run("many")
    with pytest.raises(AttributeError):
        s.x = s.x  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(s))
    assert np.array_equal(again.trajectory.x, s.trajectory.x)
    assert again.status == s.status
    assert np.array_equal(again.trajectory.phi, s.trajectory.phi)


def test_what_is_returned_is_the_callers_own() -> None:
    x0 = np.array([[1.0], [2.0]])
    first = solve(TOY, STEP, x0, steps=2)
    first.x[:], first.trajectory.x[:], first.y[:] = 7.0, 7.0, 7.0
    assert x0.tolist() == [[1.0], [2.0]]
    assert first.best.x.tolist() != [[7.0], [7.0]]
    assert solve(TOY, STEP, x0, steps=2).x.tolist() == [[0.25], [0.5]]


def test_a_picture_can_be_drawn() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    plot = pytest.importorskip("matplotlib.pyplot")
    for name in ("one", "many"):
        ax = run(name).plot()
        assert ax.lines or ax.collections
        plot.close(ax.figure)


def test_infinite_results_are_none_in_a_dictionary() -> None:
    s = solve(LOGARITHM, STEP, [-1.0], steps=1)
    assert s.to_dict()["phi_hat"] is None
    assert math.isnan(float(s.phi_hat))


@dataclass(frozen=True)
class Half(AID):
    """An estimator of one's own."""


@pytest.mark.parametrize(
    ("algorithm", "why"),
    [
        (Descent(AID(D=2, N=2, tau=0.5), eta=0.1), ""),
        (Perturbed(AID(D=2, N=2, tau=0.5), eta=0.1, eps=0.1, r=0.1, T_escape=3), ""),
        (Descent(ITD(D=2, tau=0.5), eta=0.1), "the estimator is ITD"),
        (Descent(Half(D=2, N=2, tau=0.5), eta=0.1), "the estimator is Half"),
        (
            Descent(AID(D=2, N=2, tau=0.5), eta=0.1, escape=INeon(AID(D=2, N=2, tau=0.5), 0.1, 0.1, 0.1, 3, 0.1)),
            "it escapes by INeon",
        ),
    ],
)
def test_what_leaves_the_compiled_loop_says_so(algorithm: Any, why: str) -> None:
    pytest.importorskip("numba")
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    stats = solve(problem, algorithm, [1.0], steps=3, backend="compiled").stats
    assert (stats.engine, stats.loop) == ("compiled", "plain" if why else "compiled")
    assert stats.why.startswith(why)
    assert bool(stats.why) == bool(why)
    assert stats.compile_seconds >= 0
    plain = solve(problem, algorithm, [1.0], steps=3, backend="tape").stats
    assert (plain.engine, plain.loop, plain.why) == ("numpy", "plain", "the engine is numpy")


# y* = x and Phi = x^2/2 + x
CURVED = BilevelProblem("y**2/2 + y", "(y - x)**2/2", "x", "y", box={"x": (-2, 2), "y": (-2, 2)})


def test_a_run_that_rests_on_a_poor_estimate_says_so() -> None:
    poor = AID(D=1, N=1, tau=1e-9)  # y stays where it begins: at -1 the estimate is y + 1 = 0 wherever x is
    ended = solve(CURVED, Descent(poor, eta=0.1), [1.0], y0=[-1.0], steps=5, stop=LocalMinimum(1e-3))
    assert ended.status is Status.INACCURATE
    assert not ended.ok
    np.testing.assert_allclose(ended.grad_phi, ended.x + 1, rtol=1e-12)
    assert abs(float(ended.grad_phi_hat[0])) < 1e-6
    assert "ended where |grad Phi| = 2, though the estimate says" in ended.describe()
    assert "give AID more inner steps" in ended.describe()
    free = solve(CURVED, Descent(poor, eta=0.1), [[1.0], [0.5]], y0=[[-1.0], [-1.0]], steps=5)
    assert free.status == (Status.OUT_OF_STEPS,) * 2  # nobody asked whether it is a minimum
    assert "2 trajectories ended where |grad Phi| = 2, though" in free.describe()


def test_a_run_that_rests_on_a_good_estimate_says_nothing_more() -> None:
    good = AID(D=60, N=1, tau=0.5)
    for run_ended in (
        solve(CURVED, Descent(good, eta=0.1), [1.0], steps=3),
        solve(CURVED, Descent(good, eta=0.5), [1.0], steps=200),  # at the minimum, where both are rounding
        solve(CURVED, Descent(Exact(), eta=0.1), [1.0], steps=3),
    ):
        assert len(run_ended.endings()) == 1
    arrived = solve(CURVED, Descent(good, eta=0.5), [1.0], stop=LocalMinimum(1e-3))
    assert arrived.status is Status.LOCAL_MINIMUM


def test_a_run_that_left_the_box_says_so() -> None:
    left = solve(CURVED, Descent(Exact(), eta=0.1), [[5.0], [1.0]], steps=2)
    assert "1 trajectory ended outside of the problem's box" in left.describe()


def test_the_command_shows_y_by_name_and_not_all_of_many() -> None:
    job = SolveRun(
        BilevelProblem("y", "(y - 3*x)**2/2", "x", "y"), "descent", {"x": "1"}, steps=0, eta=0.1, estimator="exact"
    )
    assert [line for line in job.report(job.run()) if line.startswith("  ") and " = " in line][:2] == [
        "  x = 1",
        "  y = 3",
    ]
    wide = SolveRun(
        BilevelProblem("sum(y)", "sum((y - x)**2)", "x", "y[70]"),
        "descent",
        {"x": "1"},
        steps=0,
        eta=0.1,
        estimator="exact",
    )
    lines = list(wide.report(wide.run()))
    assert sum(line.startswith("  y_") for line in lines) == 60
    assert "  and 10 more: --format json has them all" in lines
