"""Iterations a second of perturbed AID, one trajectory and 1000 at once: ``python -m benchmarks.solvers [--quick]``.

Each case runs in a process of its own, on one core. Ours in NumPy and with the extra ``fast``, JAX, and a NumPy loop
written by hand do the same iteration, noise included; first their agreement is checked. Ctrl-C prints what there is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.launch import Failed, pin, run
from benchmarks.report import number, table
from benchmarks.solver_cases import CASES
from benchmarks.solver_measure import BY_HAND, FAST, JAX, NUMPY, TOLERANCE

__all__ = ["TARGETS", "Target", "main", "parser"]

Result = dict[str, Any]
MEASURES = {"one": "one trajectory", "many": "1000 at once"}


@dataclass(frozen=True)
class Target:
    """Our rate over a peer's should be at least the limit, on sparse problems and on dense ones (None: no target)."""

    ours: str
    measure: str
    peer: str
    sparse: float | None
    dense: float | None


TARGETS = (
    Target(NUMPY, "one", BY_HAND, 1.0, 1.0),
    Target(NUMPY, "one", JAX, None, None),
    Target(NUMPY, "many", JAX, 0.8, 0.4),
    Target(FAST, "one", BY_HAND, None, None),
    Target(FAST, "one", JAX, 0.6, None),
    Target(FAST, "many", JAX, 2.5, 0.8),
)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    line = argparse.ArgumentParser(prog="python -m benchmarks.solvers", description=__doc__.split("\n\n")[0])
    line.add_argument("--cases", metavar="A,B", default=",".join(CASES), help=f"some of {', '.join(CASES)}")
    line.add_argument("--quick", action="store_true", help="fewer rounds and chunks: a first look")
    line.add_argument("--json", metavar="FILE", type=Path, help="also write the numbers to a file")
    return line


def rates_table(results: Sequence[Result]) -> str:
    """Iterations a second of everybody."""
    names = [name for name in (NUMPY, FAST, JAX, BY_HAND) if any(name in r["one"] for r in results)]
    rows = []
    for result in results:
        for measure, title in MEASURES.items():
            cells = [_rate(result, measure, name) for name in names]
            rows.append([CASES[result["case"]].title, title, *cells])
    return table(["case", "measure", *names], rows)


def _rate(result: Result, measure: str, name: str) -> str:
    rate = result[measure].get(name)
    if rate is None:
        return "–"
    how = result["jax"][measure] if name == JAX else None
    words = f" ({how['style']}{', by ' + str(how['chunk']) if how['chunk'] else ''})" if how else ""
    return f"{_thousands(rate)}{words}"


def _thousands(rate: float) -> str:
    """Three digits, in thousands."""
    return f"{number(rate / 1e3)} k"


def ratios_table(results: Sequence[Result]) -> str:
    """Our rate over a peer's, with targets."""
    rows, passed, missed = [], 0, 0
    for result in results:
        for target in TARGETS:
            mine, theirs = (result[target.measure].get(name) for name in (target.ours, target.peer))
            if mine is None or theirs is None:
                continue
            limit = target.sparse if CASES[result["case"]].sparse else target.dense
            verdict = "" if limit is None else "pass" if mine >= limit * theirs else "MISS"
            passed, missed = passed + (verdict == "pass"), missed + (verdict == "MISS")
            wanted = "–" if limit is None else f">= {limit:g}: {verdict}"
            rows.append(
                [
                    result["case"],
                    MEASURES[target.measure],
                    f"{target.ours} / {target.peer}",
                    number(mine / theirs),
                    wanted,
                ]
            )
    if not rows:
        return "No ratios: they need one of our engines and a peer."
    head = ["case", "measure", "rates", "ratio", "target"]
    return f"{table(head, rows)}\n\nTargets reached: {passed} of {passed + missed}."


def others_table(results: Sequence[Result]) -> str:
    """Agreement, memory, perturbations, and what JAX took to compile."""
    head = [
        "case",
        "distance from NumPy",
        "f and g in JAX",
        "perturbations a trajectory",
        "bytes a trajectory",
        "JAX compiles, s",
    ]
    rows = []
    for r in results:
        gaps = ", ".join(f"{name} {gap:.0e}" for name, gap in r["agreement"].items() if name != NUMPY)
        met = ", ".join(f"{name} {number(count)}" for name, count in r["perturbations"].items())
        memory = ", ".join(f"{name} {size:.0f}" for name, size in r["bytes"].items())
        compiles = ", ".join(f"{MEASURES[key]} {number(how['compile'])}" for key, how in r.get("jax", {}).items())
        formulas = f"{r['formulas']:.0e}" if "formulas" in r else "–"
        rows.append([r["case"], gaps, formulas, f"{met} in {r['steps']['many']}", memory, compiles or "–"])
    return table(head, rows)


def disagreements(results: Sequence[Result]) -> list[str]:
    """Who differs by more than the tolerance; not-a-number counts as differing."""
    return [
        f"{name} differs on {result['case']}: relative {gap:.1e}, tolerance {TOLERANCE:.0e}"
        for result in results
        for name, gap in {**result["agreement"], "a formula in JAX": result.get("formulas", 0.0)}.items()
        if not gap <= TOLERANCE
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and print the tables; 1 if two disagree or a process fails."""
    options = parser().parse_args(arguments)
    names = [name for name in options.cases.split(",") if name]
    if unknown := [name for name in names if name not in CASES]:
        raise SystemExit(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    start, where = perf_counter(), pin()
    results: list[Result] = []
    problems: list[str] = []
    try:
        for name in names:
            try:
                results.append(run("solver_measure", name, *["--quick"] * options.quick))
            except Failed as failure:
                problems.append(str(failure))
            print(f"[{perf_counter() - start:5.0f} s] {name}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        problems.append("interrupted: the tables are incomplete")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    problems += disagreements(results)
    absent = sorted({name for result in results for name in result["missing"]})
    parts = [
        "# Solvers: perturbed AID, iterations a second",
        f"{where}; {perf_counter() - start:.0f} s{', not installed: ' + ', '.join(absent) if absent else ''}",
        rates_table(results), "## Ratios of rates, and targets", ratios_table(results),
        "## Agreement, memory, perturbations, compilation", others_table(results), *problems,
    ]  # fmt: skip
    print("\n\n".join(parts))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
