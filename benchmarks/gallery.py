"""Which defects of the gallery are caught, named, and how soon: ``python -m benchmarks.gallery [--seed N]``.

Each candidate is checked on its showcase, in one process, from a cold start of its problem: certificates, kernels and
diagnosis are all inside the time. Where a run is checked, the report names no single cause. How long it takes is shown,
and decides nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import verify
from bilevel_sym.system.budget import EFFORTS, Effort, Stopwatch
from verify.gallery import Defect, defects

__all__ = ["Outcome", "main", "outcome"]

NAMED = 0.8  # 12 of 15


@dataclass(frozen=True)
class Outcome:
    """What the kit said of one defect."""

    defect: Defect
    caught: bool
    cause: str | None
    seconds: float


def outcome(defect: Defect, seed: int = 0, effort: Effort = "default") -> Outcome:
    """Check one defect on its showcase."""
    problem, watch = defect.showcase(), Stopwatch()
    candidate = defect.candidate(problem)
    if defect.kind == "trajectory":
        report = verify.check_trajectory(candidate, problem, effort=effort)
        return Outcome(defect, not report.ok, None, watch.elapsed)
    checks = {
        "hypergradient": verify.check_hypergradient,
        "hessian": verify.check_hessian,
        "lower solution": verify.check_lower_solution,
    }
    result = checks[defect.kind](candidate, problem, rng=seed, effort=effort)
    return Outcome(defect, result.verdict is verify.Verdict.VIOLATED, result.cause, watch.elapsed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--effort", choices=tuple(EFFORTS), default="default")
    given = parser.parse_args(arguments)
    found = [outcome(defect, given.seed, given.effort) for defect in defects()]
    print("| defect | kind | planted | suspected | caught | s |\n| --- | --- | --- | --- | --- | --- |")
    for o in found:
        answer = "yes" if o.caught else "**no**"
        row = (o.defect.name, o.defect.kind, o.defect.cause, o.cause or "", answer, f"{o.seconds:.2f}")
        print(f"| {' | '.join(row)} |")
    judged = [o for o in found if o.defect.kind != "trajectory"]
    caught, named = sum(o.caught for o in found), sum(o.cause == o.defect.cause for o in judged)
    slowest = max(o.seconds for o in found)
    print(f"\n{caught} of {len(found)} caught, {named} of {len(judged)} named; slowest {slowest:.2f} s")
    return int(caught < len(found) or named < NAMED * len(judged))


if __name__ == "__main__":
    sys.exit(main())
