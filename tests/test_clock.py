"""A clock that jumps moves nothing: what is computed, and how, is a matter of counts."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bilevel_sym import (
    AID,
    BilevelProblem,
    Descent,
    Exact,
    INeon,
    Perturbed,
    Solution,
    StocBiO,
    compile_kernels,
    evaluate,
    solve,
    zoo,
)
from bilevel_sym.solvers.compiled import run as compiled
from bilevel_sym.system import budget, progress
from bilevel_sym.system.budget import Deadline, Stopwatch

CLOCKS = ("monotonic", "perf_counter", "process_time", "time", "monotonic_ns", "perf_counter_ns", "time_ns")
JUMPS = {"forward": (0.0, 1e9), "backward": (0.0, -1e9), "to and fro": (1e6, -1e6, 0.0), "stopped": (0.0,)}
SADDLE = zoo.get("saddle").problem
ROWS = zoo.get("stochastic_rows").problem
ESTIMATOR = AID(D=5, N=5, tau=0.2)
PERTURBED = Perturbed(ESTIMATOR, eta=0.05, eps=0.1, r=0.1, T_escape=5)
ESCAPE = INeon(ESTIMATOR, eta=0.05, eps=0.1, r=0.01, T_escape=5, F_escape=1e-3, rho_phi=1.0)
ESCAPING = Descent(ESTIMATOR, eta=0.05, escape=ESCAPE)
NOISY = StocBiO(D=3, Q=3, S=2, alpha=0.1, beta=0.05, eta_neumann=0.2, batch_f=2, batch_g=2)
each_jump = pytest.mark.parametrize("jumps", JUMPS)


def with_clock(jumps: tuple[float, ...], work: Callable[[], Any]) -> Any:
    """What the work returns while every clock of Python's jumps."""
    now = itertools.accumulate(itertools.cycle(jumps))
    with pytest.MonkeyPatch.context() as patch:
        for name in CLOCKS:
            patch.setattr(time, name, lambda: next(now))
        for module in (budget, progress):
            patch.setattr(module, "monotonic", lambda: next(now))
        return work()


def bits(value: Any) -> Any:
    """The value, all the way down, as something that is equal only bit by bit."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype, value.tobytes()
    if isinstance(value, BilevelProblem):
        return value.to_dict() if hasattr(value, "to_dict") else repr(value)
    if dataclasses.is_dataclass(value):
        shown = ("kernels", "compile_seconds")  # the second says how long something took
        fields = [field.name for field in dataclasses.fields(value) if field.name not in shown]
        return {name: bits(getattr(value, name)) for name in fields}
    if isinstance(value, (tuple, list)):
        return [bits(entry) for entry in value]
    return repr(value)


SOLVED: dict[str, Callable[[], Solution]] = {
    "descent, compiled": lambda: solve(SADDLE, Descent(ESTIMATOR, eta=0.05), x0=[[0.1, 0.2]] * 3, steps=400, rng=1),
    "descent, NumPy": lambda: solve(
        SADDLE, Descent(ESTIMATOR, eta=0.05), x0=[0.1, 0.2], steps=60, rng=1, backend="tape"
    ),
    "exact": lambda: solve(SADDLE, Descent(Exact(), eta=0.05), x0=[0.1, 0.2], steps=60, rng=1),
    "perturbed": lambda: solve(SADDLE, PERTURBED, x0=[[0.0, 0.0]] * 40, steps=300, rng=1),
    "with a rule": lambda: solve(SADDLE, PERTURBED, x0=[0.0, 0.0], steps=50, rng=1, stop=lambda s: s.phi_hat < -1),
    "to a local minimum": lambda: solve(SADDLE, ESCAPING, x0=[0.0, 0.0], steps=60, rng=1, stop="local minimum"),
    "stochastic": lambda: solve(ROWS, NOISY, x0=np.zeros(ROWS.d), steps=20, rng=1),
}


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@each_jump
@pytest.mark.parametrize("run", SOLVED)
def test_no_solver_looks_at_the_clock(run: str, jumps: str) -> None:
    assert bits(with_clock(JUMPS[jumps], SOLVED[run])) == bits(SOLVED[run]())


@each_jump
@pytest.mark.parametrize("backend", ["auto", "tape", "lambdify"])
def test_no_kernel_looks_at_the_clock(backend: Any, jumps: str) -> None:
    x = np.random.default_rng(1).normal(size=(50, 2))

    def values() -> Any:
        kernels = compile_kernels(zoo.get("saddle").problem, backend=backend)
        return kernels.engine, [getattr(kernels, name)(x) for name in ("y_star", "phi", "grad_phi", "hess_phi")]

    assert bits(with_clock(JUMPS[jumps], values)) == bits(values())


@each_jump
def test_no_certificate_looks_at_the_clock(jumps: str) -> None:
    def certified() -> Any:
        return evaluate(SADDLE, [0.3, 0.7], digits=60)

    assert bits(with_clock(JUMPS[jumps], certified)) == bits(certified())


def test_the_clock_does_jump() -> None:
    assert with_clock((0.0, 1e9), lambda: Stopwatch().elapsed) == 1e9
    assert with_clock((0.0, 1e9), lambda: Deadline(3600).passed)
    assert not with_clock((0.0,), lambda: Deadline(3600).passed)


def test_a_solver_that_asked_the_clock_would_be_seen() -> None:
    def steps() -> int:
        return 3 if Stopwatch().elapsed > 1e6 else 5

    def run() -> Solution:
        return solve(SADDLE, Descent(ESTIMATOR, eta=0.05), x0=[0.1, 0.2], steps=steps(), rng=1)

    assert bits(with_clock(JUMPS["forward"], run)) != bits(run())


def test_compiled_code_is_left_alone_for_a_count_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slices are the same in every run, each within the count or one step long, and change no bit."""
    pytest.importorskip("numba")
    from bilevel_sym.solvers.compiled.compiled_loop import CompiledLoop

    slices: list[tuple[int, int]] = []
    advance = CompiledLoop.advance

    def noted(self: Any, state: Any, steps: int, rule: Any, record: Any = None) -> None:
        slices.append((steps, steps * int((state.status == 0).sum()) * self.work))
        advance(self, state, steps, rule, record)

    def run(most: int) -> tuple[Any, list[tuple[int, int]]]:
        monkeypatch.setattr(compiled, "SLICE_OPERATIONS", most)
        slices.clear()
        return bits(solve(SADDLE, Descent(ESTIMATOR, eta=0.05), x0=[[0.1, 0.2]] * 3, steps=100, rng=1)), list(slices)

    monkeypatch.setattr(CompiledLoop, "advance", noted)
    whole, pieces, crumbs = run(compiled.SLICE_OPERATIONS), run(20_000), run(1)
    assert whole[0] == pieces[0] == crumbs[0]
    assert pieces == run(20_000)
    assert [len(ran[1]) for ran in (whole, crumbs)] == [2, 101]  # the last estimate is a slice of its own
    assert len(pieces[1]) > 3
    assert all(work <= 20_000 or steps == 1 for steps, work in pieces[1])
