"""What searches take beside what was estimated before they began: ``python -m benchmarks.sizes``.

Each size runs in a process of its own, whose largest extent is read when it ends. A size that is refused shows how long
that took, and what was said to fit.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import sympy as sp

import verify
from bilevel_sym import BilevelProblem
from bilevel_sym.errors import TooLarge
from bilevel_sym.system.memory import bytes_of, shown
from verify.enclosures.memory import PhiMemory
from verify.testkit.reference import bytes_at

SIZES = ((3, 2), (8, 8), (20, 5), (30, 10), (60, 13), (280, 30))
KINDS = ("smoothness", "stationary_points", "constants", "check_hypergradient")
POINTS = 12


def example(d: int, n: int) -> BilevelProblem:
    """Every x moves one y, which is bent; a box of width two."""
    x, y = sp.symbols(f"x1:{d + 1}"), sp.symbols(f"y1:{n + 1}")
    g = sum(y[k] ** 2 - y[k] * sp.sin(sum(s / (i + 2) for i, s in enumerate(x) if i % n == k)) for k in range(n))
    f = sum((s - 1) ** 2 / 2 for s in y) + sum(map(sp.cos, x))
    return BilevelProblem(f, g, x, y, box={s.name: (-1, 1) for s in x} | {s.name: (-4, 4) for s in y})


def estimate(kind: str, problem: BilevelProblem, memory: int) -> float:
    """Bytes, as they are estimated before anything is begun; 0 where the limit is one of entries alone."""
    if kind in ("smoothness", "stationary_points"):
        third, sizes = kind == "smoothness", PhiMemory.of(problem)
        return sizes.whole(third=third, lanes=sizes.lanes(memory, third=third))
    return bytes_at(problem.d, problem.n, POINTS) if kind == "check_hypergradient" else 0.0


def measured(kind: str, d: int, n: int, memory: str, effort: float) -> dict[str, object]:
    """One search: how it ended, its seconds, and the largest extent of this process."""
    problem = example(d, n)
    calls: dict[str, Callable[[], object]] = {
        "smoothness": lambda: verify.smoothness(problem, effort=effort, memory=memory),
        "stationary_points": lambda: verify.stationary_points(problem, effort=effort, memory=memory),
        "constants": lambda: verify.constants(problem, effort=effort, memory=memory),
        "check_hypergradient": lambda: verify.check_hypergradient(
            problem.kernels.grad_phi, problem, effort=effort, memory=memory
        ),
    }
    begun = time.process_time()
    try:
        calls[kind]()
        outcome = "done"
    except TooLarge as error:
        outcome = f"refused: {error.hint}"
    seconds = time.process_time() - begun
    needs = estimate(kind, problem, bytes_of(memory)) if outcome == "done" else 0.0
    extent = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"outcome": outcome, "seconds": seconds, "taken": extent, "estimated": needs}


def main() -> None:
    """All sizes as a table, or one of them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--effort", type=float, default=0.1)
    parser.add_argument("--one", nargs=3, metavar=("KIND", "D", "N"), help="one size, in this process, as JSON")
    given = parser.parse_args()
    if given.one:
        kind, d, n = given.one
        print(json.dumps(measured(kind, int(d), int(n), given.memory, given.effort)))
        return
    print("| search | d | n | taken | estimated | CPU seconds | |\n| --- | --- | --- | --- | --- | --- | --- |")
    for kind in KINDS:
        for d, n in SIZES:
            options = ["--memory", given.memory, "--effort", str(given.effort), "--one", kind, str(d), str(n)]
            command = [sys.executable, "-m", "benchmarks.sizes", *options]
            found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            needs = shown(found["estimated"]) if found["estimated"] else ""
            cells = (kind, d, n, shown(found["taken"]), needs, f"{found['seconds']:.1f}", found["outcome"])
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
