"""What campaigns cost, and what kill -9 costs them: ``python -m benchmarks.campaigns [--kills N]``.

Tasks of 50 ms, once asleep and once busy, on one worker and on two, of this machine and of a Dask scheduler; a million
rows, written, held by the client, and read. With ``--kills`` instead: so many kills of everybody at random moments.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from unittest import mock

from benchmarks.campaign_clusters import ROOT, command_line_cluster
from benchmarks.campaign_kills import EVERYBODY, Kill, kills, unlike_undisturbed
from benchmarks.campaign_tasks import PAUSE
from bilevel_sym.campaigns import Campaign, run
from bilevel_sym.campaigns.engines.cluster import Cluster
from bilevel_sym.campaigns.engines.protocol import Batch

__all__ = ["main"]

SECONDS = 0.05  # of a task
TASKS, ROWS, KILL_TASKS = 1000, 1_000_000, 60_000
OVERHEAD, SPEED_UP, MEGABYTES, KEPT = 0.05, 1.8, 500.0, 5.0  # targets


# ---- tasks of 50 ms ---------------------------------------------------------------------------------------


@contextmanager
def _pause(seconds: float) -> Iterator[None]:
    os.environ[PAUSE] = str(seconds)
    try:
        yield
    finally:
        del os.environ[PAUSE]


def spans(task: str, engine: str, workers: int, count: int) -> tuple[float, float, float]:
    """Seconds from the beginning of the first task to the end of the last, in tasks alone, and in all.

    - ``task``: pausing or busy.
    - ``engine``: local or dask.
    - ``workers``: how many.
    - ``count``: of tasks.
    """
    plan = Campaign(task=f"benchmarks.campaign_tasks:{task}", problems=["zoo:scalar"], seeds=count, folder=ROOT)
    with tempfile.TemporaryDirectory() as folder, _pause(SECONDS):
        out, begun = Path(folder) / "out", perf_counter()
        if engine == "local":
            plan.run(out, workers=workers)
        else:
            with command_line_cluster(Path(folder) / "dask", workers, "--no-nanny") as cluster:
                begun = perf_counter()
                plan.run(out, scheduler=cluster.address)
        whole = perf_counter() - begun
        rows = Campaign.table(out).select(["started", "ended", "seconds"]).to_pylist()
    ended, started = max(row["ended"] for row in rows), min(row["started"] for row in rows)
    return (ended - started).total_seconds(), sum(row["seconds"] for row in rows), whole


def tasks(count: int) -> int:
    """Overhead and speed-up; how many targets are missed."""
    print(f"| {count} tasks of 50 ms | workers | all, s | first to last, s | overhead a task | speed-up |")
    print("| --- | --- | --- | --- | --- | --- |")
    missed = 0
    for task in ("pausing", "busy"):
        for engine in ("local", "dask"):
            alone = 0.0
            for workers in (1, 2):
                span, own, whole = spans(task, engine, workers, count)
                alone = span if workers == 1 else alone
                overhead, faster = workers * span / own - 1, alone / span
                missed += overhead > OVERHEAD
                missed += workers == 2 and faster < SPEED_UP
                print(
                    f"| {task}, {engine} | {workers} | {whole:.1f} | {span:.1f} "
                    f"| {1e3 * overhead * own / count:.2f} ms ({overhead:.1%}) | {faster:.2f} |",
                    flush=True,
                )
    return missed


# ---- a million rows ---------------------------------------------------------------------------------------

STEPS = {
    "a run of so many tasks, in one process": "plan.run(out, workers=0)",
    "the same again: nothing is left to do": "plan.run(out, workers=0)",
    "its status": "Campaign.status(out)",
    "its table, all columns": "Campaign.table(out)",
    "its table, filtered": "Campaign.table(out, where='r1 < 10 and status == \"ok\"')",
}
ONE_STEP = """
import resource, sys, time
from bilevel_sym.campaigns import Campaign, run
from bilevel_sym.campaigns.engines.cluster import Cluster
from bilevel_sym.campaigns.engines.protocol import Batch
out, count = sys.argv[1], int(sys.argv[2])
folder = sys.argv[3]
plan = Campaign(task="benchmarks.campaign_tasks:nothing", problems=["zoo:scalar"], seeds=count, folder=folder)
begun = time.perf_counter()
{step}
print(time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def rows(count: int) -> int:
    """Time and memory of each step, in a process of its own; how many targets are missed."""
    print(f"\n| {count} rows of 19 columns | seconds | memory of the process, MB |\n| --- | --- | --- |")
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, step in STEPS.items():
            command = [sys.executable, "-c", ONE_STEP.format(step=step), f"{folder}/out", str(count), str(ROOT)]
            seconds, megabytes = map(float, subprocess.check_output(command, cwd=ROOT).split())
            missed += "run" in name and megabytes > MEGABYTES
            print(f"| {name} | {seconds:.1f} | {megabytes:.0f} |", flush=True)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 1e6
        files = sum(1 for _ in Path(folder).rglob("*.parquet"))
        print(f"\nOn the disk: {size:.0f} MB in {files} files.")
    return missed


# ---- what the client can take -----------------------------------------------------------------------------


def client(count: int) -> None:
    """What a row and a batch cost the client, of its own processor: batches of two sizes, of tasks that cost nothing.

    The scheduler and the workers are processes of their own.
    """
    plan = Campaign(task="benchmarks.campaign_tasks:nothing", problems=["zoo:scalar"], seeds=count, folder=ROOT)
    found = []
    with tempfile.TemporaryDirectory() as folder, command_line_cluster(Path(folder) / "dask", 2, "--no-nanny") as there:
        plan.run(Path(folder) / "warm", scheduler=there.address)
        for largest in (64, 4):
            with mock.patch.object(run, "LARGEST_BATCH", largest), _batches() as batches:
                before, begun = _processor(), perf_counter()
                plan.run(Path(folder) / str(largest), scheduler=there.address)
                found.append((_processor() - before, len(batches), perf_counter() - begun))
    (own, few, whole), (other, many, longer) = found
    batch = (other - own) / (many - few)
    row = (own - few * batch) / count
    print(f"\nThe client of a cluster: {count} rows in {few} batches took {own:.1f} s of its processor ({whole:.1f} s")
    print(f"in all), and in {many} batches {other:.1f} s ({longer:.1f} s): {1e6 * row:.0f} us a row and", end=" ")
    print(f"{1e3 * batch:.2f} ms a batch; {many / longer:.0f} batches a second went through.")


@contextmanager
def _batches() -> Iterator[list[int]]:
    sizes: list[int] = []
    submit = Cluster.submit

    def counted(engine: Cluster, batch: Batch) -> None:
        sizes.append(len(batch.tasks))
        submit(engine, batch)

    with mock.patch.object(Cluster, "submit", counted):
        yield sizes


def _processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# ---- kills ------------------------------------------------------------------------------------------------


def killing(count: int) -> int:
    """So many kills; how many targets are missed."""
    with tempfile.TemporaryDirectory() as name:
        folder, found = Path(name), list[Kill]()
        for kill in kills(folder, list(islice(cycle(EVERYBODY), count)), count=KILL_TASKS, span=5.0):
            found.append(kill)
            print(f"{len(found)}: {kill}", file=sys.stderr, flush=True)
        unlike = unlike_undisturbed(folder, KILL_TASKS)
    print(
        "| killed | times | results not yet on the disk, at most | oldest of them, s | orphans ended after, s | wrong |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for victim in EVERYBODY:
        own = [kill for kill in found if kill.victim == victim] or [Kill(victim, 0, 0, 0.0, 0.0, ())]
        lost, oldest, orphans = (max(getattr(kill, name) for kill in own) for name in ("lost", "oldest", "orphans"))
        wrong = sum(bool(kill.failures) for kill in own)
        print(f"| {victim} | {len(own)} | {lost} | {oldest:.1f} | {orphans:.1f} | {wrong} |")
    print(f"\nGone on, {KILL_TASKS} tasks against an undisturbed run: {unlike or 'equal tables'}.")
    late = sum(kill.oldest > KEPT or kill.orphans > KEPT for kill in found)
    return sum(bool(kill.failures) for kill in found) + late + bool(unlike)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 1 where a target is missed."""
    line = argparse.ArgumentParser(prog="python -m benchmarks.campaigns", description=__doc__)
    line.add_argument("--kills", type=int, default=0)
    line.add_argument("--tasks", type=int, default=TASKS)
    line.add_argument("--rows", type=int, default=ROWS)
    options = line.parse_args(arguments)
    if options.kills:
        return int(killing(options.kills) > 0)
    missed = tasks(options.tasks) + rows(options.rows)
    client(20 * options.tasks)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
