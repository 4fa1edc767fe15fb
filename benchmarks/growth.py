"""How time and memory of one of our engines grow: ``python -m benchmarks.growth CASE ENGINE [--quick]`` prints JSON.

Memory is the rise of the process's peak (ru_maxrss) over its level when the problem is stated: first through set-up and
one point, then through the batch as well (whose results alone take 16 000 (1 + d + d²) bytes).
"""

from __future__ import annotations

import json
import sys
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.families import make
from benchmarks.measure import BATCH, COMPETITORS, Plan, per_call, set_up_time, sweep
from benchmarks.ours import program_size

__all__ = ["growth", "peak_megabytes"]


def peak_megabytes() -> float | None:
    """The peak of this process's memory so far; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _rise(before: float | None) -> float | None:
    now = peak_megabytes()
    return None if before is None or now is None else now - before


def growth(name: str, engine: str, plan: Plan) -> dict[str, Any]:
    """Set-up, one point, batch, memory and size of the program, for one of our engines."""
    competitor = {c.name: c for c in COMPETITORS}[engine]
    if reason := competitor.missing():
        return {"case": name, "engine": engine, "missing": reason}
    style = competitor.styles[0]
    set_up_time(competitor, make("sparse-3"), style)  # what happens once for a process
    case = make(name)
    x, y = case.points(BATCH)
    stated = competitor.state(case, style)
    level = peak_megabytes()
    start = perf_counter()
    kernel = competitor.set_up(stated, style)
    kernel.one(x[0], y[0])
    first = perf_counter() - start
    after_set_up = _rise(level)
    swept = sweep(kernel, x, y)
    after_batch = _rise(level)
    again = [set_up_time(competitor, make(name, 1000 + turn), style) for turn in range(plan.set_ups - 1)]
    return {
        "case": name,
        "engine": engine,
        "set_up": median([first, *again]),
        "one": median(per_call(kernel, x[0], y[0], plan.seconds) for _ in range(plan.rounds)),
        "batch": min(swept.values()),
        "set_up_megabytes": after_set_up,
        "batch_megabytes": after_batch,
        "size": program_size(stated),
    }


if __name__ == "__main__":
    print(json.dumps(growth(sys.argv[1], sys.argv[2], Plan.of(sys.argv[3:]))))
