"""Array problems against NumPy by hand and JAX: ``python -m benchmarks.arrays [--quick] [CASE ...]`` prints tables.

One core, one run, interleaved; a process for each problem and size. Agreement first.
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import launch
from benchmarks.array_cases import CASES, SIZES

__all__ = ["main"]

TOLERANCE = 1e-9  # of agreement, relative to the largest entry
PATIENCE = 1200  # seconds for one problem of one size: JAX compiles for minutes where data are large, dense ones most
PEERS = ("NumPy by hand", "JAX dense", "JAX cg")
HEAD = (
    "| problem | m, n | first ∇²Φ: ours, s | of JAX | ∇Φ: ours, ms | of the best | ∇²Φ: ours, ms | of the best "
    "| memory, of by hand | deriving, s | operations of a system | ∇Φ: ns an operation |"
)
Result = dict[str, Any]


def row(result: Result) -> str:
    """One line of the table."""
    first, later = result["first"], result["later"]
    jax = min(seconds for name, seconds in first.items() if name != "ours")
    cells = [
        result["case"], f"{result['m']}, {result['n']}", f"{first['ours']:.3g}", f"{first['ours'] / jax:.2f}",
        *_against(later, "grad"), *_against(later, "hess"),
        f"{result['memory']['ours'] / result['memory']['NumPy by hand']:.2f}", f"{result['derivation']:.3f}",
        f"{result['operations']:.1e}", f"{1e9 * later['ours']['grad'] / result['operations']:.2g}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _against(later: dict[str, Any], what: str) -> tuple[str, str]:
    ours = later["ours"][what]
    if ours is None:
        return "–", "–"
    best = min((later[name][what], name) for name in PEERS if name in later)
    return f"{1000 * ours:.3g}", f"{ours / best[0]:.2f} ({best[1]})"


def main(arguments: list[str]) -> int:
    """Measure all cases, or those that are named; exit code 1 where two disagree."""
    unknown = [word for word in arguments if word not in (*CASES, "--quick")]
    if unknown:
        print(f"{__doc__}\nCASE: {', '.join(CASES)}" + ("" if unknown == ["--help"] else f"; not {unknown[0]}"))
        return int(unknown != ["--help"])
    quick = ["--quick"] if "--quick" in arguments else []
    names = [name for name in arguments if not name.startswith("-")] or list(CASES)
    print(launch.pin(), file=sys.stderr)
    print(HEAD + "\n" + "| --- " * HEAD.count(" | ") + "| --- |")
    worst = 0.0
    for name in names:
        for m, n in SIZES:
            try:
                result = launch.run("array_measure", name, str(m), str(n), *quick, patience=PATIENCE)
            except launch.Failed as failure:
                print(f"| {name} | {m}, {n} | {failure} |", flush=True)
                continue
            worst = max(worst, *result["agreement"].values())
            print(row(result), flush=True)
    print(f"\nlargest disagreement: {worst:.1e}")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
