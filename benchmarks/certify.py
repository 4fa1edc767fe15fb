"""Certified smoothness of Phi: upper/lower against time, ``python -m benchmarks.certify [--factor F] [--only D ...]``.

The family has d = n and neighbours on a ring (j after i):

    f = sum sin(x_i + y_j) + cos(x_i y_i) + exp(-y_i/2) x_j/2
    g = sum y_i^2 + exp(y_i/2)/2 - sin(x_i) y_i + cos(y_i - x_j)/4 + sin(y_i + y_j/2 + x_i)/4

over x in [-1, 1]^d. Each line is a process of its own with one thread. What is given is work, sized in nominal seconds
of an ordinary core; what it takes on this one is measured from the differentiation of f and g to the proved cover,
without imports and the kernels for sampling. ``--factor`` stretches what is given.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.launch import Failed, run

__all__ = ["family", "main", "measure"]

SECONDS = {1: (0.25, 1.0), 2: (0.25, 1.0), 3: (1.0, 3.0), 5: (15.0, 60.0)}
TARGETS = {
    "hess": {1: 1.01, 2: 1.01, 3: 1.05, 5: 1.25},
    "third": {1: 1.1, 2: 1.1, 3: 1.3, 5: 2.0},
}
BATCH = 256  # boxes at once, for the cost of one
COLUMNS = (
    "d = n", "quantity", "given, nominal s", "taken s", "processor s", "bracket", "upper/lower", "boxes", "boxes/s",
    "leaves", "target",
)  # fmt: skip
TITLES = {"hess": "sup of Hess Phi", "third": "rho_phi"}


def family(d: int) -> Any:
    """The problem of the family with d = n.

    >>> family(1).g
    y1**2 - y1*sin(x1) + exp(y1/2)/2 + sin(x1 + 3*y1/2)/4 + cos(x1 - y1)/4
    """
    from bilevel_sym import BilevelProblem, Box

    ring = [(i, i % d + 1) for i in range(1, d + 1)]
    f = " + ".join(f"sin(x{i} + y{j}) + cos(x{i}*y{i}) + exp(-y{i}/2)*x{j}/2" for i, j in ring)
    g = " + ".join(
        f"y{i}**2 + exp(y{i}/2)/2 - sin(x{i})*y{i} + cos(y{i} - x{j})/4 + sin(y{i} + y{j}/2 + x{i})/4" for i, j in ring
    )
    x, y = ([f"{name}{i}" for i, _ in ring] for name in "xy")
    return BilevelProblem(f, g, x, y, box=Box([-1] * d, [1] * d))


def measure(d: int, quantity: str, seconds: float) -> dict[str, Any]:
    """One bracket, and what it cost."""
    import numpy as np

    from bilevel_sym.system.budget import Budget
    from verify.enclosures.branch_and_bound import SECOND, maximise
    from verify.enclosures.phi_boxes import PhiBoxes
    from verify.enclosures.phi_norms import HessNorm, ThirdNorm

    problem = family(d)
    problem.kernels.third_phi(np.zeros((2, d)))
    wall, cpu = time.perf_counter(), time.process_time()
    norm = HessNorm(PhiBoxes(problem)) if quantity == "hess" else ThirdNorm(PhiBoxes(problem))
    rtol = 0.5 * (TARGETS[quantity][d] - 1)
    found = maximise(norm, -np.ones(d), np.ones(d), budget=Budget(seconds * SECOND), rtol=rtol)
    return {
        "lower": found.bracket.lower,
        "upper": found.bracket.upper,
        "boxes": found.boxes,
        "leaves": found.cover.size,
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
    }


def growth(d: int) -> dict[str, Any]:
    """Microseconds a box: |Hess Phi| and |D^3 Phi| over boxes a tenth wide, in the search and in the proof."""
    import numpy as np

    from verify.enclosures.phi_boxes import PhiBoxes
    from verify.enclosures.phi_norms import HessNorm, ThirdNorm

    boxes = PhiBoxes(family(d))
    middle = np.random.default_rng(0).uniform(-0.95, 0.95, (BATCH, d))
    costs = {}
    for name, norm in (("hess", HessNorm(boxes)), ("third", ThirdNorm(boxes))):
        for proved in (False, True):
            times = []
            for _ in range(4):  # the first one also differentiates
                started = time.process_time()
                norm.over(middle - 0.05, middle + 0.05, proved=proved)
                times.append(time.process_time() - started)
            costs[f"{name} {'proof' if proved else 'search'}"] = 1e6 * min(times) / BATCH
    return costs


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 1 where a process failed."""
    line = argparse.ArgumentParser(prog="python -m benchmarks.certify", description=__doc__)
    line.add_argument("--factor", type=float, default=1.0)
    line.add_argument("--only", type=int, nargs="*", default=list(SECONDS))
    line.add_argument("--growth", type=int, metavar="D", help=argparse.SUPPRESS)
    line.add_argument("--measure", nargs=3, metavar=("D", "QUANTITY", "SECONDS"), help=argparse.SUPPRESS)
    options = line.parse_args(arguments)
    if options.measure:
        d, quantity, seconds = options.measure
        print(json.dumps(measure(int(d), quantity, float(seconds))))
        return 0
    if options.growth:
        print(json.dumps(growth(options.growth)))
        return 0
    print(f"| {' | '.join(COLUMNS)} |")
    print("| --- " * len(COLUMNS) + "|")
    failed = 0
    for d in options.only:
        for quantity, targets in TARGETS.items():
            for seconds in SECONDS[d]:
                failed += _line(d, quantity, seconds, options.factor, targets[d] if seconds == SECONDS[d][-1] else None)
    _print_growth(options.only)
    return int(failed > 0)


def _print_growth(dimensions: Sequence[int]) -> None:
    print("\nmicroseconds a box")
    for row, d in enumerate(dimensions):
        costs = run("certify", "--growth", str(d))
        if not row:
            print(f"| d = n | {' | '.join(costs)} |")
            print("| --- " * (1 + len(costs)) + "|")
        print(f"| {d} | {' | '.join(f'{cost:.0f}' for cost in costs.values())} |", flush=True)


def _line(d: int, quantity: str, seconds: float, factor: float, target: float | None) -> bool:
    try:
        found = run("certify", "--measure", str(d), quantity, str(seconds * factor))
    except Failed as error:
        print(f"| {d} | {TITLES[quantity]} | {seconds:g} | failed: {error} |")
        return True
    ratio = found["upper"] / found["lower"]
    verdict = "" if target is None else f"<= {target:g}: {'reached' if ratio <= target else 'missed'}"
    bracket = f"[{found['lower']:.5g}, {found['upper']:.5g}]"
    cells = (
        d, TITLES[quantity], f"{seconds * factor:g}", f"{found['wall']:.2f}", f"{found['cpu']:.2f}", bracket,
        f"{ratio:.3f}", found["boxes"], f"{found['boxes'] / found['cpu']:.0f}", found["leaves"], verdict,
    )  # fmt: skip
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
