"""One case in one process, everybody interleaved: ``python -m benchmarks.measure CASE [--quick]`` prints JSON.

The clock is wall time. Each number is the median of rounds, and in each round everybody has a turn. Set-up runs from
the user's expressions to the result of the first call at one point, the making of a problem included, with other
coefficients in every round, so that no cache can help; imports, and what a system does once for a process or an
installation, are paid before. Ours is timed from text as well. Writing f and g down (in SymPy or CasADi; nothing, in
JAX) is timed on its own.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.competitor import Competitor, Kernel, Triple
from benchmarks.families import make
from benchmarks.ours import Compiled, Tape
from benchmarks.peers import Casadi, Jax
from bilevel_sym.typing import Floats

__all__ = ["BATCH", "CHUNKS", "COMPETITORS", "Plan", "measure", "per_call", "set_up_time", "sweep"]

BATCH = 2000
CHUNKS = (50, 125, 250, 500, 2000)
COMPETITORS: tuple[Competitor, ...] = (Tape(), Compiled(), Jax(), Casadi())


@dataclass(frozen=True)
class Plan:
    """How many rounds to take, and for how many seconds to repeat a call at one point."""

    set_ups: int = 5
    rounds: int = 7
    seconds: float = 0.03

    @classmethod
    def of(cls, arguments: list[str]) -> Plan:
        """The quick plan with ``--quick``."""
        return cls(2, 3, 0.01) if "--quick" in arguments else cls()


def seconds(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = perf_counter()
    action()
    return perf_counter() - start


def per_call(kernel: Kernel, x: Floats, y: Floats, duration: float) -> float:
    """Seconds a call at one point, over as many calls as fill the duration."""
    calls = max(1, int(duration / max(seconds(lambda: kernel.one(x, y)), 1e-6)))

    def repeat() -> None:
        for _ in range(calls):
            kernel.one(x, y)

    return seconds(repeat) / calls


def in_chunks(kernel: Kernel, x: Floats, y: Floats, chunk: int) -> list[Triple]:
    """The whole batch, chunk by chunk; all results are kept."""
    return [kernel.many(x[i : i + chunk], y[i : i + chunk]) for i in range(0, len(x), chunk)]


def per_point(kernel: Kernel, x: Floats, y: Floats, chunk: int) -> float:
    """Seconds a point of the batch."""
    return seconds(lambda: in_chunks(kernel, x, y, chunk)) / len(x)


def sweep(kernel: Kernel, x: Floats, y: Floats) -> dict[int, float]:
    """Seconds a point for each size of chunk: the better of two, after one to warm up."""
    times = {}
    for chunk in CHUNKS:
        kernel.many(x[:chunk], y[:chunk])
        times[chunk] = min(per_point(kernel, x, y, chunk) for _ in range(2))
    return times


def set_up_time(competitor: Competitor, case: Case, style: str, *, text: bool = False) -> float:
    """Seconds from the stated problem, in SymPy or as text, to the first result."""
    stated = competitor.text(case, style) if text else competitor.state(case, style)
    x, y = case.points(1)
    gc.collect()
    return seconds(lambda: competitor.set_up(stated, style).one(x[0], y[0]))


def state_time(competitor: Competitor, case: Case, style: str) -> float:
    """Seconds to write f and g down; the seed must differ from those of other set-ups, since SymPy has caches."""
    gc.collect()
    return seconds(lambda: competitor.state(case, style))


@dataclass
class Entry:
    """A competitor with the style that is best for each measure, and for batches the best chunk."""

    competitor: Competitor
    set_up: str
    one: tuple[str, Kernel]
    batch: tuple[str, Kernel]
    chunk: int
    swept: dict[int, float]


def enter(competitor: Competitor, case: Case, plan: Plan) -> Entry:
    """Try every style and every chunk, once."""
    x, y = case.points(BATCH)
    kernels = {style: competitor.set_up(competitor.state(case, style), style) for style in competitor.styles}
    for kernel in kernels.values():
        kernel.one(x[0], y[0])
    set_up = min(kernels, key=lambda style: set_up_time(competitor, make(case.name, 500), style))
    one = min(kernels, key=lambda style: min(per_call(kernels[style], x[0], y[0], plan.seconds) for _ in range(3)))
    sweeps = {style: sweep(kernel, x, y) for style, kernel in kernels.items()}
    batch = min(sweeps, key=lambda style: min(sweeps[style].values()))
    swept = sweeps[batch]
    chunk = min(swept, key=lambda size: swept[size])
    return Entry(competitor, set_up, (one, kernels[one]), (batch, kernels[batch]), chunk, swept)


def joined(kernel: Kernel, case: Case, chunk: int) -> Triple:
    """The batch as three arrays."""
    phi, grad, hess = zip(*in_chunks(kernel, *case.points(BATCH), chunk), strict=True)
    return np.concatenate(phi), np.concatenate(grad), np.concatenate(hess)


def difference(result: Triple, other: Triple) -> float:
    """The largest distance, relative to the largest entry at the same point."""
    worst = 0.0
    for a, b in zip(result, other, strict=True):
        axes = tuple(range(1, np.ndim(b)))
        gap, size = np.max(np.abs(a - b), axis=axes), np.max(np.abs(b), axis=axes)
        worst = max(worst, float(np.max(gap / size)))
    return worst


def agreement(entries: list[Entry], case: Case) -> dict[str, float]:
    """How far each is from the last one, over the whole batch and at one point."""
    *_, last = entries
    expected = joined(last.batch[1], case, last.chunk)
    x, y = case.points(BATCH)
    first = (expected[0][:1], expected[1][:1], expected[2][:1])
    found = {}
    for entry in entries:
        phi, grad, hess = entry.one[1].one(x[0], y[0])
        single = np.reshape(phi, 1), np.asarray(grad)[None], np.asarray(hess)[None]
        whole = difference(joined(entry.batch[1], case, entry.chunk), expected)
        found[entry.competitor.name] = float(np.max([whole, difference(single, first)]))
    return found


def interleaved(entries: list[Entry], rounds: int, clock: Callable[[Entry], float]) -> dict[str, float]:
    """The median over rounds in which everybody has a turn."""
    times: dict[str, list[float]] = {entry.competitor.name: [] for entry in entries}
    for _ in range(rounds):
        for entry in entries:
            times[entry.competitor.name].append(clock(entry))
    return {name: median(found) for name, found in times.items()}


def measure(name: str, plan: Plan) -> dict[str, Any]:
    """Everything about one case."""
    case = make(name)
    x, y = case.points(BATCH)
    missing = [reason for competitor in COMPETITORS if (reason := competitor.missing())]
    entries = [enter(competitor, case, plan) for competitor in COMPETITORS if not competitor.missing()]
    if not entries:
        return {"case": name, "missing": missing, "agreement": {}, "times": {}}
    distances = agreement(entries, case)
    seeds = count(1000)  # nobody meets coefficients that were there before
    set_up = interleaved(entries, plan.set_ups, lambda e: set_up_time(e.competitor, make(name, next(seeds)), e.set_up))
    text = interleaved(
        entries, plan.set_ups, lambda e: set_up_time(e.competitor, make(name, next(seeds)), e.set_up, text=True)
    )
    state = interleaved(entries, plan.set_ups, lambda e: state_time(e.competitor, make(name, next(seeds)), e.set_up))
    one = interleaved(entries, plan.rounds, lambda e: per_call(e.one[1], x[0], y[0], plan.seconds))
    batch = interleaved(entries, plan.rounds, lambda e: per_point(e.batch[1], x, y, e.chunk))
    times = {
        (key := e.competitor.name): {
            "state": state[key],
            "set_up": set_up[key],
            "set_up_text": text[key],
            "one": one[key],
            "batch": batch[key],
            "chunk": e.chunk,
            "chunks": e.swept,
            "styles": {
                "state": e.set_up,
                "set_up": e.set_up,
                "set_up_text": e.set_up,
                "one": e.one[0],
                "batch": e.batch[0],
            },
        }
        for e in entries
    }
    return {"case": name, "missing": missing, "agreement": distances, "times": times}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Plan.of(sys.argv[2:]))))
