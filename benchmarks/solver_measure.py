"""One case of the solvers in one process: ``python -m benchmarks.solver_measure CASE [--quick]`` prints JSON.

The clock is the processor time of this process, which is wall time on a core that nobody shares: everybody has one
thread. Each number is the median of rounds, and in each round everybody has a turn.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median
from time import process_time
from typing import Any, Literal

import numpy as np

from benchmarks.solver_cases import CASES, SolverCase
from benchmarks.solver_peers import JaxStyle, Outcome, jax_run, ours, plain_jax, run_by_hand
from bilevel_sym import compile_kernels, solve
from bilevel_sym.typing import Floats

__all__ = ["BY_HAND", "FAST", "JAX", "NUMPY", "Plan", "measure"]

NUMPY, FAST, JAX, BY_HAND = "NumPy", "fast", "JAX", "by hand"
BACKENDS: dict[str, Literal["tape", "compiled"]] = {NUMPY: "tape", FAST: "compiled"}
MANY = 1000
FEW = 8  # iterations after which everybody must be at the same point
OFF = 1e-12  # an eps that no estimate falls below: no perturbations
TOLERANCE = 1e-9
LITTLE_WHILE = 0.05  # seconds

Run = Callable[[], Outcome]


@dataclass(frozen=True)
class Plan:
    """How many iterations and rounds, and what JAX may try."""

    one_steps: int = 500
    many_steps: int = 200
    rounds: int = 5
    many_rounds: int = 3
    chunks: tuple[int, ...] = (1000, 250, 125)
    all_styles: bool = True

    @classmethod
    def of(cls, arguments: list[str]) -> Plan:
        """The quick plan with ``--quick``."""
        return cls(100, 60, 3, 1, (250,), False) if "--quick" in arguments else cls()


def seconds(action: Callable[[], object]) -> float:
    """Processor time of one call."""
    start = process_time()
    action()
    return process_time() - start


def per_run(run: Callable[[], object]) -> float:
    """Processor time of a run, over as many runs as fill a little while."""
    once = seconds(run)
    repeats = int(LITTLE_WHILE / max(once, 1e-4))
    return once if repeats < 2 else seconds(lambda: [run() for _ in range(repeats)]) / repeats


@dataclass
class JaxEntry:
    """The best way to run JAX, its rate in each way that was tried, and what compiling it took."""

    run: Run
    style: JaxStyle
    chunk: int | None
    compile_seconds: float
    tried: dict[str, float]


def enter_jax(case: SolverCase, steps: int, x0: Floats, chunks: tuple[int | None, ...], all_styles: bool) -> JaxEntry:
    """Try the chunks in the first style, then the other styles with the best chunk; each after a run to warm up."""
    first, *others = [JaxStyle(unroll) for unroll in case.unroll]
    if chunks != (None,):
        others.append(JaxStyle(case.unroll[0], "select"))
    tried: dict[str, float] = {}
    entries: list[tuple[float, JaxEntry]] = []

    def attempt(style: JaxStyle, chunk: int | None) -> None:
        compiled, compile_seconds = jax_run(case, style, steps, chunk)
        run = partial(compiled, x0, case.setting.eps)
        run()
        time = per_run(run)
        tried[f"{style}, {chunk or 1}"] = steps * len(np.atleast_2d(x0)) / time
        entries.append((time, JaxEntry(run, style, chunk, compile_seconds, tried)))

    for chunk in chunks:
        attempt(first, chunk)
    best = min(entries, key=lambda entry: entry[0])[1].chunk
    for style in others if all_styles else []:
        attempt(style, best)
    return min(entries, key=lambda entry: entry[0])[1]


def distance(outcome: Outcome, other: Outcome, x0: Floats) -> float:
    """How far apart two ends are, relative to the way from the start; and the lowest values, relative to themselves."""
    way = np.max(np.abs(outcome.x - other.x)) / np.max(np.abs(other.x - x0))
    return float(max(way, np.max(np.abs(outcome.best - other.best) / np.maximum(np.abs(other.best), 1e-3))))


def agreement(case: SolverCase, names: list[str], styles: dict[str, tuple[JaxStyle, int | None]]) -> dict[str, float]:
    """How far everybody is from our NumPy after a few unperturbed steps from points all over the place."""
    starts = case.spread * case.starts(MANY)
    expected = ours(case, "tape")(starts, FEW, OFF)
    first = Outcome(expected.x[0], expected.best[0])
    found = {}
    for name in names:
        if name in BACKENDS:
            run = ours(case, BACKENDS[name])
            gaps = [distance(run(starts[0], FEW, OFF), first, starts[0])]
            gaps.append(distance(run(starts, FEW, OFF), expected, starts))
        elif name == BY_HAND:
            ends = [run_by_hand(case.by_hand(), case.setting, case.n, x0, FEW, OFF) for x0 in starts[:50]]
            gaps = [
                distance(end, Outcome(x, b), x0)
                for end, x, b, x0 in zip(ends, expected.x, expected.best, starts, strict=False)
            ]
        else:
            # JAX has done FEW estimates where we have done FEW + 1: its lowest value may lack the last
            one, many = (jax_run(case, *styles[key][:1], FEW, styles[key][1])[0] for key in ("one", "many"))
            before = ours(case, "tape")(starts, FEW - 1, OFF)
            gaps = [distance(one(starts[0], OFF), Outcome(first.x, before.best[0]), starts[0])]
            gaps.append(distance(many(starts, OFF), Outcome(expected.x, before.best), starts))
        found[name] = float(np.max(gaps))
    return found


def formulas_agree(case: SolverCase) -> float:
    """The largest relative distance of f and g in JAX from our kernels, at random points."""
    x = case.spread * case.starts(200)
    y = np.random.default_rng(1).uniform(-1, 1, (200, case.n))
    kernels = compile_kernels(case.problem(), backend="tape")
    jax, gaps = plain_jax(), []
    for name, function in zip(("f", "g"), case.jax(), strict=True):
        expected = getattr(kernels, name)(x, y)
        values = np.asarray(jax.jit(jax.vmap(function))(x, y))
        gaps.append(np.max(np.abs(values - expected) / np.maximum(np.abs(expected), 1.0)))
    return float(np.max(gaps))


def interleaved(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """The median over rounds in which everybody has a turn, after one to warm up."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(per_run(run))
    return {name: median(found) for name, found in times.items()}


def bytes_per_trajectory(case: SolverCase, backend: Literal["tape", "compiled"]) -> float:
    """What a trajectory adds to the peak of ``solve`` with ``record="last"``: from 1000 to 2000 of them."""
    problem, starts = case.problem(), case.starts(2 * MANY)
    algorithm = case.setting.algorithm(case.setting.eps)
    peaks = []
    for size in (MANY, MANY, 2 * MANY):  # the first only fills caches
        tracemalloc.start()
        solve(problem, algorithm, starts[:size], steps=2, rng=0, record="last", backend=backend)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return (peaks[2] - peaks[1]) / MANY


def perturbations(case: SolverCase, steps: int, size: int) -> float:
    """How many perturbations a trajectory of ours meets, on average."""
    setting = case.setting
    found = solve(
        case.problem(), setting.algorithm(setting.eps), case.starts(MANY)[:size], steps=steps, rng=0, backend="tape"
    )
    return float(np.mean(np.sum(found.trajectory.perturbed, axis=1)))


def measure(name: str, plan: Plan) -> dict[str, Any]:
    """Everything about one case."""
    case = CASES[name]()
    starts, eps = case.starts(MANY), case.setting.eps
    absent = {label for label, module in ((FAST, "numba"), (JAX, "jax")) if find_spec(module) is None}
    one: dict[str, Run] = {}
    many: dict[str, Run] = {}
    for label, backend in BACKENDS.items():
        if label not in absent:
            run = ours(case, backend)
            one[label], many[label] = (
                partial(run, x0, steps, eps) for x0, steps in ((starts[0], plan.one_steps), (starts, plan.many_steps))
            )
    one[BY_HAND] = partial(run_by_hand, case.by_hand(), case.setting, case.n, starts[0], plan.one_steps, eps)
    result: dict[str, Any] = {"case": name, "missing": sorted(absent), "perturbations": {}}
    styles: dict[str, tuple[JaxStyle, int | None]] = {}
    if JAX not in absent:
        result["formulas"] = formulas_agree(case)
        entries = {
            "one": enter_jax(case, plan.one_steps, starts[0], (None,), plan.all_styles),
            "many": enter_jax(case, plan.many_steps, starts, plan.chunks, plan.all_styles),
        }
        one[JAX], many[JAX] = entries["one"].run, entries["many"].run
        styles = {key: (entry.style, entry.chunk) for key, entry in entries.items()}
        result["jax"] = {
            key: {"style": str(e.style), "chunk": e.chunk, "compile": e.compile_seconds, "tried": e.tried}
            for key, e in entries.items()
        }
        result["perturbations"][JAX] = many[JAX]().perturbations / MANY
    result["agreement"] = agreement(case, list(one), styles)
    times = interleaved(one, plan.rounds), interleaved(many, plan.many_rounds)
    result["one"] = {label: plan.one_steps / time for label, time in times[0].items()}
    result["many"] = {label: MANY * plan.many_steps / time for label, time in times[1].items()}
    result["bytes"] = {
        label: bytes_per_trajectory(case, backend) for label, backend in BACKENDS.items() if label not in absent
    }
    result["perturbations"][NUMPY] = perturbations(case, plan.many_steps, 64)
    result["steps"] = {"one": plan.one_steps, "many": plan.many_steps}
    return result


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Plan.of(sys.argv[2:]))))
