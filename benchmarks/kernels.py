"""Speed of our kernels against JAX and CasADi on one core: ``python -m benchmarks.kernels [--quick]``.

Each case runs in a process of its own. With y given, everybody computes (phi, grad, hess); first their agreement is
checked, then three things are timed: set-up, one point, and a batch of 2 000 with the best size of chunk. Peers and
engines that are not installed are left out, and the report says which. Ctrl-C prints what there is.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import report
from benchmarks.launch import Failed, pin, run

__all__ = ["main"]

CASES = ("sparse-5", "sparse-20", "sparse-40", "logistic-5", "logistic-20", "nested-10", "nested-20", "robust-10")
GROWTH = tuple(f"sparse-{n}" for n in (5, 10, 20, 40, 80))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    line = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__.split("\n\n")[0])
    line.add_argument("--families", metavar="A,B", default="", help="families or cases, such as sparse,logistic-20")
    line.add_argument("--quick", action="store_true", help="fewer rounds: a first look, not for publication")
    line.add_argument("--no-growth", action="store_true", help="leave out how time and memory grow with n")
    line.add_argument("--json", metavar="FILE", type=Path, help="also write the numbers to a file")
    return line


def chosen(families: str) -> list[str]:
    """The cases of the families named; a case such as robust-30 may be named itself, in any size."""
    names = [name for name in families.split(",") if name]
    known = {case.rpartition("-")[0] for case in CASES}
    for name in names:
        if name not in known and name.rpartition("-")[0] not in known:
            raise SystemExit(f"no family {name!r}; there are {', '.join(sorted(known))}")
    whole = [case for case in CASES if not names or case.rpartition("-")[0] in names]
    return whole + [name for name in names if name not in known and name not in whole]


class Progress:
    """Results as they come, failures beside them, a line on stderr for each."""

    def __init__(self) -> None:
        self.start = perf_counter()
        self.failures: list[str] = []
        self.cases: list[dict[str, Any]] = []
        self.growth: list[dict[str, Any]] = []

    def ask(self, into: list[dict[str, Any]], module: str, *arguments: str) -> None:
        """Run one process and keep its result, or its failure."""
        try:
            into.append(run(module, *arguments))
            outcome = "done"
        except Failed as failure:
            self.failures.append(str(failure))
            outcome = "FAILED"
        label = ", ".join(argument for argument in arguments if not argument.startswith("--"))
        print(f"[{perf_counter() - self.start:5.0f} s] {module} {label}: {outcome}", file=sys.stderr, flush=True)

    @property
    def missing(self) -> list[str]:
        """What is not installed."""
        return sorted({reason for case in self.cases for reason in case["missing"]})


def collect(options: argparse.Namespace, progress: Progress) -> None:
    """Run everything asked for; Ctrl-C ends it early."""
    quick = ["--quick"] * options.quick
    try:
        for case in chosen(options.families):
            progress.ask(progress.cases, "measure", case, *quick)
        absent = {reason.partition(":")[0] for reason in progress.missing}
        for engine in (engine for engine in report.OURS if engine not in absent and not options.no_growth):
            for case in GROWTH:
                progress.ask(progress.growth, "growth", case, engine, *quick)
    except KeyboardInterrupt:
        progress.failures.append("interrupted: the tables are incomplete")


def versions() -> str:
    """The versions of what takes part, without importing it."""
    found = []
    for package in ("numpy", "numba", "jax", "casadi"):
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{package} {metadata.version(package)}")
    return ", ".join(found)


def sections(progress: Progress, where: str) -> str:
    """The whole report."""
    parts = ["# Kernels", f"Python {platform.python_version()}, {versions()}; {platform.machine()}, {where}."]
    parts += [f"Left out: {reason}" for reason in progress.missing]
    if progress.cases:
        parts += ["## Agreement (relative, against the last column)", report.agreement_table(progress.cases)]
        parts += ["## Times", report.times_table(progress.cases)]
        parts += ["## Ratios and targets", report.ratios_table(progress.cases)]
    if progress.growth:
        parts += ["## Growth of ours (memory: rise of ru_maxrss)", report.growth_table(progress.growth)]
    parts += [f"FAILED: {failure}" for failure in progress.failures]
    parts += [f"DISAGREES: {line}" for line in report.disagreements(progress.cases)]
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write; 0 when all ran and all agree."""
    options = parser().parse_args(arguments)
    chosen(options.families)
    where = pin()
    progress = Progress()
    collect(options, progress)
    print(sections(progress, where))
    if options.json:
        numbers = {"cases": progress.cases, "growth": progress.growth, "failures": progress.failures}
        options.json.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
        print(f"\nWritten to {options.json}")
    return 1 if progress.failures or report.disagreements(progress.cases) else 0


if __name__ == "__main__":
    sys.exit(main())
