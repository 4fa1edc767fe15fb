"""Up to which size each door answers in how long: ``python -m benchmarks.limits [--cap S] [DOOR ...]`` prints tables.

Every door climbs a ladder of sizes, each a process of its own, one after the other, that may take so much processor
time and no more. The ladder ends with the first size that is refused, takes longer, or would take far longer if the
time went on growing as it did. The tables are those of the page ``.github/docs/limits.md``. With ``--json FILE`` every
step is kept as it comes, and one that is there already is not made again, so that a run can be interrupted.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.launch import ONE_THREAD, limit
from benchmarks.limits_measure import DOORS, measured
from benchmarks.report import table
from bilevel_sym.kernels.compilation import make_ready

__all__ = ["LADDERS", "LIMITS", "climb", "extrapolated", "main", "row", "tables"]

LIMITS = (1, 10, 60)  # seconds of the processor
PATIENCE = 20  # times the processor time, by the clock on the wall: on a busy machine a process has a part of a core
HOPELESS = 2  # times the processor time: what would take longer, as the last two sizes grew, is not tried
TICK = 0.01  # seconds that a growth is not read off
# of each family, what is counted, and the sizes
LADDERS = {
    "scalars": ("in scalars, d = n", (3, 10, 30, 100, 300, 1000)),
    "features": ("features, d = n, of 200 rows", (10, 30, 100, 300, 1000)),
    "rows": ("rows of 10 features", (1000, 10_000, 100_000, 1_000_000)),
}
Step = dict[str, Any]


class Ledger:
    """What was measured, by door, family and size; kept in a file where one is given."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8") if path and path.exists() else ""
        steps = [json.loads(line) for line in text.splitlines()]
        self._steps = {(step["door"], step["family"], step["size"]): step for step in steps}

    def get(self, door: str, family: str, size: int) -> Step | None:
        """The step, if it was made before."""
        return self._steps.get((door, family, size))

    def sizes(self, door: str, family: str) -> list[int]:
        """The sizes that were measured."""
        return [step["size"] for step in self._steps.values() if (step["door"], step["family"]) == (door, family)]

    def add(self, step: Step) -> None:
        """Keep a step; what was merely expected is not kept."""
        self._steps[step["door"], step["family"], step["size"]] = step
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                print(json.dumps(step, ensure_ascii=False), file=file)


def climb(door: str, family: str, cap: int, ledger: Ledger) -> list[Step]:
    """The sizes of a ladder up to the first that does not come back with an answer, or would hardly do so.

    With a cap of 0 nothing is measured: the ladder has the steps that the ledger holds.
    """
    steps: list[Step] = []
    for size in sorted({*LADDERS[family][1], *ledger.sizes(door, family)}):
        step = ledger.get(door, family, size)
        expected = extrapolated([(step["size"], step["seconds"]) for step in steps], size)
        if step is None and expected > HOPELESS * (cap or LIMITS[-1]):
            step = _step(door, family, size, f"not tried: {expected:.0f} s if it grows on like this")
        elif step is None and not cap:
            continue
        elif step is None:
            step = _asked(door, family, size, cap)
            ledger.add(step)
        steps.append(step)
        print(f"{door}, {family} {size}: {step['outcome']}, {step['seconds']}", file=sys.stderr, flush=True)
        if step["outcome"] != "done":
            break
    return steps


def _step(door: str, family: str, size: int, outcome: str, seconds: float | None = None) -> Step:
    return {"door": door, "family": family, "size": size, "outcome": outcome, "seconds": seconds}


def extrapolated(done: Sequence[tuple[int, float]], size: int) -> float:
    """Seconds, if they go on growing by the power of the size that led from the last but one to the last.

    >>> extrapolated([(10, 1.0), (30, 9.0)], 90)
    81.0
    >>> extrapolated([(10, 1.0)], 30)
    0.0
    """
    if len(done) < 2:
        return 0.0
    (earlier, less), (last, seconds) = done[-2:]
    power = math.log(max(seconds, TICK) / max(less, TICK)) / math.log(last / earlier)
    return round(seconds * math.pow(size / last, power), 1)


def _asked(door: str, family: str, size: int, cap: int) -> Step:
    """One size in a process of its own, which has imported everything and done nothing yet (not on Windows)."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.limits_measure"])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(there, door, family, size, cap))
    process.start()
    there.close()
    try:
        if here.poll(PATIENCE * cap):
            return _step(door, family, size, **here.recv())
    except EOFError:
        pass
    process.kill()
    process.join()
    slow = process.exitcode in (-getattr(signal, "SIGXCPU", 0), -signal.SIGKILL)
    return _step(door, family, size, f"more than {cap} s" if slow else f"ended with code {process.exitcode}")


def _answer(pipe: Connection, door: str, family: str, size: int, cap: int) -> None:
    limit(cap)
    pipe.send(measured(door, family, size))


def row(steps: Sequence[Step]) -> list[str]:
    """One door on one ladder: the largest size within each limit, with its seconds, and what comes next.

    >>> done = [{"door": "solve", "size": n, "outcome": "done", "seconds": n / 10} for n in (3, 30)]
    >>> row([*done, {"door": "solve", "size": 3000, "outcome": "more than 60 s", "seconds": None}])
    ['solve', '3 (0.3 s)', '30 (3 s)', '30 (3 s)', '3 000: more than 60 s']
    """
    cells = []
    for most in LIMITS:
        within = [step for step in steps if step["outcome"] == "done" and step["seconds"] <= most]
        cells.append(f"{_number(within[-1]['size'])} ({within[-1]['seconds']:.2g} s)" if within else "–")
    last = steps[-1]
    ends = f"{_number(last['size'])}: {last['outcome']}"
    if last["outcome"] == "done":
        ends = "nothing larger was tried"
    return [steps[0]["door"], *cells, ends]


def _number(size: int) -> str:
    return f"{size:,}".replace(",", " ")


def tables(steps: Sequence[Step]) -> str:
    """A table for each ladder, with its heading."""
    found = []
    for family, (title, _) in LADDERS.items():
        own = [[step for step in steps if step["family"] == family and step["door"] == door] for door in DOORS]
        if any(own):
            head = ["door", *(f"within {most} s" for most in LIMITS), "what comes next"]
            found.append(f"### {title[0].upper()}{title[1:]}\n\n{table(head, map(row, filter(None, own)))}")
    return "\n\n".join(found)


def main(arguments: list[str] | None = None) -> None:
    """Measure all doors, or those that are named, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("doors", nargs="*", metavar="DOOR", help=f"of: {'; '.join(DOORS)}")
    parser.add_argument(
        "--cap", type=int, default=LIMITS[-1], help="seconds of the processor for one size; 0: print what is kept"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every step, and go on from what is there")
    given = parser.parse_args(arguments)
    if unknown := set(given.doors) - set(DOORS):
        parser.error(f"no door is called {min(unknown)!r}; there are: {'; '.join(DOORS)}")
    os.environ |= ONE_THREAD
    make_ready()
    ledger, doors = Ledger(given.json), given.doors or DOORS
    print(tables([step for door in doors for family in LADDERS for step in climb(door, family, given.cap, ledger)]))


if __name__ == "__main__":
    main()
