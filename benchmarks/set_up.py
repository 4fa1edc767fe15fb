"""Set-up alone, ours and JAX's: ``python -m benchmarks.set_up [CASE ...]`` prints a table.

From the user's SymPy expressions or text to the first (phi, grad, hess), the making of the problem included, as in
``benchmarks.kernels``, but in seconds of the processor: other work on the machine counts less. Medians of interleaved
rounds, each with coefficients of its own, a process for each case.
"""

from __future__ import annotations

import gc
import json
import sys
from itertools import count
from statistics import median
from time import process_time
from typing import Any

from benchmarks import launch
from benchmarks.competitor import Competitor
from benchmarks.families import make
from benchmarks.kernels import CASES
from benchmarks.ours import Compiled, Tape
from benchmarks.peers import Jax

__all__ = ["main"]

ROUNDS = 5
LIMIT = 0.2  # of JAX, the target
PATIENCE = 1200  # seconds of a busy machine for one case
WAYS = {"SymPy": False, "text": True}


def seconds(competitor: Competitor, case: str, seed: int, *, text: bool) -> float:
    """Processor time from the stated problem to the first result."""
    made = make(case, seed)
    style = competitor.styles[0]
    stated = competitor.text(made, style) if text else competitor.state(made, style)
    x, y = made.points(1)
    gc.collect()
    start = process_time()
    competitor.set_up(stated, style).one(x[0], y[0])
    return process_time() - start


def measure(case: str) -> dict[str, Any]:
    """Medians for everybody, by the way in which the problem is stated."""
    entrants, seeds = [c for c in (Tape(), Compiled(), Jax()) if not c.missing()], count(1000)
    for competitor in entrants:  # what is done once for a process
        seconds(competitor, case, next(seeds), text=True)
    found: dict[str, dict[str, list[float]]] = {c.name: {way: [] for way in WAYS} for c in entrants}
    for _ in range(ROUNDS):
        for way, text in WAYS.items():
            for competitor in entrants:
                found[competitor.name][way].append(seconds(competitor, case, next(seeds), text=text))
    return {name: {way: median(times) for way, times in ways.items()} for name, ways in found.items()}


def row(case: str, found: dict[str, Any]) -> str:
    """One line of the table: ours in ms and of JAX."""
    jax = {way: found["JAX"][way] for way in WAYS}
    ours = [(found[name][way], jax[way]) for name in found if name != "JAX" for way in WAYS]
    cells = [f"{1e3 * time:.3g} ({time / peer:.3f}{'' if time <= LIMIT * peer else ' NO'})" for time, peer in ours]
    return f"| {' | '.join([case, *cells, format(1e3 * jax['SymPy'], '.3g')])} |"


def main(cases: list[str]) -> int:
    """Measure all cases, or those that are named."""
    print(launch.pin(), file=sys.stderr)
    heads = [f"{name}, {way}" for name in (Tape.name, Compiled.name) for way in WAYS]
    print(f"| {' | '.join(['set-up, ms (of JAX)', *heads, 'JAX'])} |\n{'| --- ' * (len(heads) + 2)}|")
    for case in cases or CASES:
        print(row(case, launch.run("set_up", "--one", case, patience=PATIENCE)), flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        sys.exit(main(sys.argv[1:]))
