"""Problems a second from the Hypothesis strategies, at d, n <= 4: ``python -m benchmarks.strategies [--examples N]``.

Each strategy is drawn by Hypothesis's own engine in its generation phase, in one process; what is measured is the time
of the processor for the whole run, problem and box built and checked, kernels not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from time import process_time
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from bilevel_sym import BilevelProblem
from verify.strategies import DEGENERATE, degenerate, minimax_problems, problems, quadratics, stochastic_problems

__all__ = ["drawn_a_second", "main"]

TARGET = 100.0  # problems a second
UP_TO = (1, 4)


def cases() -> dict[str, SearchStrategy[Any]]:
    """The strategies by name."""
    plain = {
        "problems": problems,
        "quadratics": quadratics,
        "minimax_problems": minimax_problems,
        "stochastic_problems": stochastic_problems,
        "degenerate": degenerate,
    }
    kinds = {f'degenerate("{kind}")': degenerate(kind, d=UP_TO, n=UP_TO) for kind in DEGENERATE}
    largest = {"problems, d = n = 4": problems(d=4, n=4)}
    return {name: strategy(d=UP_TO, n=UP_TO) for name, strategy in plain.items()} | largest | kinds


def drawn_a_second(strategy: SearchStrategy[BilevelProblem], examples: int) -> float:
    """How many problems of the strategy are drawn in a second of the processor."""
    count = 0

    @settings(
        max_examples=examples, database=None, phases=[Phase.generate], deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def run(problem: BilevelProblem) -> None:
        nonlocal count
        count += 1

    start = process_time()
    run()
    return count / (process_time() - start)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where a strategy misses the target."""
    line = argparse.ArgumentParser(prog="python -m benchmarks.strategies", description=__doc__)
    line.add_argument("--examples", type=int, default=500)
    options = line.parse_args(arguments)
    drawn_a_second(problems(), 20)  # what happens once for a process
    print("| strategy | problems a second |\n| --- | --- |")
    missed = 0
    for name, strategy in cases().items():
        rate = drawn_a_second(strategy, options.examples)
        missed += rate < TARGET
        print(f"| {name} | {rate:.0f} |", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
