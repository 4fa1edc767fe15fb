"""Real data, beside other libraries: ``python -m benchmarks.realdata [--quick] [PROBLEM ...]`` prints two tables.

The first says how good grad Phi is at x = 0, in proved digits, and what it costs. The second says how long it takes to
an eps-stationary point of Phi: everybody takes the same gradient steps from x = 0, carries y along, and stops where the
own gradient is at most 4 eps/5. Whether the true gradient is below eps there is judged by a certificate, the same for
all. One core, one process a measurement, everybody once a round; with ``--quick`` one round. A process may take ten
minutes of the processor, however busy the machine is; who takes more than one for a walk walks once. What is not
installed is named and left out: ``pip install -e ".[peers]"``, and torch and torchopt.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from benchmarks import launch
from benchmarks.realdata_measure import CASES, PROCESSOR_SECONDS
from benchmarks.realdata_peers import ENTRANTS, missing

__all__ = ["main", "verdict"]

ROUNDS = 3
PATIENCE = 20 * PROCESSOR_SECONDS  # by the clock on the wall: on a busy machine a process has a part of a core
HEADS = {
    "gradient": "| problem | by | setting | digits of ∇Φ | of its worst entry | first call, s | later calls, ms |",
    "walk": "| problem | by | setting | steps | own ‖∇Φ‖ | true ‖∇Φ‖ | ε | first run, s | later, s | below ε? |",
}
Result = dict[str, Any]


def verdict(result: Result) -> str:
    """What the certificate says of an end, and whether the method had believed otherwise.

    >>> verdict({"stationary": False, "believed": True})
    'NO, though it stopped'
    """
    if result["stationary"]:
        return "yes" if result["believed"] else "yes, though it had not stopped"
    return "NO, though it stopped" if result["believed"] else "NO, out of steps"


def _cells(result: Result) -> list[str]:
    if result["task"] == "gradient":
        return [
            f"{result['digits']:.1f}", f"{result['worst']:.1f}", f"{result['first']:.3g}",
            f"{1000 * result['later']:.3g}",
        ]  # fmt: skip
    return [
        str(result["steps"]), f"{result['estimate']:.2e}", f"{result['norm']:.2e}",
        f"{CASES[result['problem']].eps:g}", f"{result['first']:.3g}",
        "–" if result["later"] is None else f"{result['later']:.3g}", verdict(result),
    ]  # fmt: skip


def row(problem: str, entrant: str, results: Sequence[Result | str]) -> str:
    """One line: the medians of the times of all rounds, or why there are none."""
    chosen = ENTRANTS[entrant]
    good = [result for result in results if not isinstance(result, str)]
    if not good:
        return f"| {problem} | {chosen.name} | {chosen.setting} | {results[0]} |"
    return f"| {' | '.join([problem, chosen.name, chosen.setting, *_cells({**good[0], **_medians(good)})])} |"


def _medians(results: Sequence[Result]) -> Result:
    """Of the first and of the later calls; None where somebody did not walk twice."""
    times = {key: [result[key] for result in results] for key in ("first", "later")}
    return {key: None if None in own else median(own) for key, own in times.items()}


def _measured(task: str, problem: str, entrants: Iterable[str], rounds: int) -> dict[str, list[Result | str]]:
    """Everybody once a round; who fails has no further turn."""
    found: dict[str, list[Result | str]] = {name: [] for name in entrants}
    for _ in range(rounds):
        for name, results in found.items():
            if not any(isinstance(result, str) for result in results):
                results.append(_one(task, problem, name))
    return found


def _one(task: str, problem: str, entrant: str) -> Result | str:
    try:
        return launch.run("realdata_measure", task, problem, entrant, patience=PATIENCE)
    except launch.Failed as failure:
        return str(failure)


def main(arguments: list[str]) -> int:
    """Measure all problems, or those that are named; exit code 1 where ours stops at a point that is not stationary."""
    unknown = [word for word in arguments if word not in (*CASES, "--quick")]
    if unknown:
        print(f"{__doc__}\nPROBLEM: {', '.join(CASES)}" + ("" if unknown == ["--help"] else f"; not {unknown[0]}"))
        return int(unknown != ["--help"])
    names = [name for name in arguments if not name.startswith("-")] or list(CASES)
    print(launch.pin(), file=sys.stderr)
    present = [name for name, entrant in ENTRANTS.items() if not missing(entrant)]
    for name, entrant in ENTRANTS.items():
        if name not in present:
            print(f"left out: {entrant.name} ({entrant.setting}): not installed: {', '.join(missing(entrant))}")
    wrong = 0
    for task, head in HEADS.items():
        print(f"\n{head}\n" + "| --- " * head.count(" | ") + "| --- |", flush=True)
        for problem in names:
            found = _measured(task, problem, present, 1 if "--quick" in arguments else ROUNDS)
            for name, results in found.items():
                print(row(problem, name, results), flush=True)
            wrong += task == "walk" and not all(_is_right(result) for result in found["exact"])
    return int(wrong > 0)


def _is_right(result: Result | str) -> bool:
    return not isinstance(result, str) and bool(result["stationary"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
