"""kill -9 at random moments of campaigns: of the client, of workers, of the scheduler; what is in the folder then.

One campaign goes on through all kills. After each of them: every part can be read, nothing that was there is gone, no
key stands there twice, every row holds what its task computes, and what was finished and is not there was finished just
before. In the end the rest is computed here, and the table is that of an undisturbed run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.campaign_clusters import ROOT, CommandLineCluster, until
from benchmarks.campaign_tasks import LOG, PAUSE, result
from bilevel_sym.campaigns import Campaign
from bilevel_sym.campaigns.batch import MEASURED
from bilevel_sym.campaigns.run import FLUSH_SECONDS
from bilevel_sym.system.locking import holder_of

__all__ = ["EVERYBODY", "Kill", "kills", "unlike_undisturbed"]

EVERYBODY = ("client", "worker", "client of a cluster", "worker of a cluster", "scheduler")
LOST = 3  # what a client says that has lost its scheduler
STRAGGLERS = 1.5  # seconds: a batch of a client that was killed goes on until its end, while the next client begins
PATIENCE = 60.0  # seconds, for what comes by itself
CLIENT = """
import sys
from bilevel_sym.campaigns import Campaign, batch, run
from bilevel_sym.campaigns.engines.cluster import ClusterFailure
plan, out, scheduler, flush = sys.argv[1:]
run.FLUSH_SECONDS = float(flush)
if __name__ == "__main__":
    try:
        Campaign.load(plan).run(out, scheduler=scheduler or None, workers=2)
    except ClusterFailure as error:
        print(error, file=sys.stderr)
        sys.exit(3)
"""


@dataclass(frozen=True)
class Kill:
    """One kill.

    - ``victim``: who was killed.
    - ``rows``: how many were in the folder then.
    - ``lost``: how many results were finished and are not there.
    - ``oldest``: for how many seconds the first of them had been finished.
    - ``orphans``: seconds until the last worker or its task had ended.
    - ``failures``: what is not as it should be.
    """

    victim: str
    rows: int
    lost: int
    oldest: float
    orphans: float
    failures: tuple[str, ...]


def campaign(count: int) -> Campaign:
    """So many tasks."""
    return Campaign(task="benchmarks.campaign_tasks:pausing", problems=["zoo:scalar"], seeds=count, folder=ROOT)


class _Exercise:
    def __init__(self, folder: Path, plan: Campaign, rng: random.Random, pause: float, flush: float) -> None:
        self.folder, self.out, self.rng = folder, folder / "out", rng
        self._plan, self._log, self._flush = folder / "plan.toml", folder / "log", flush
        self._log.touch()
        self._plan.write_text(plan.to_toml(), encoding="utf-8")
        self._environment = {**os.environ, PAUSE: str(pause), LOG: str(self._log), "PYTHONPATH": str(ROOT)}
        self._cluster: CommandLineCluster | None = None
        self._before: set[str] = set()
        self._number, self._since = 0, 0.0
        self._struck_at: dict[int, float] = {}  # process -> when it was killed

    def cluster(self) -> CommandLineCluster:
        """The one that runs, or a new one."""
        if self._cluster is None:
            self._number += 1
            place = self.folder / f"dask-{self._number}"
            place.mkdir()
            self._cluster = CommandLineCluster(place, environment=self._environment)
            self._cluster.start_scheduler()
            for _ in range(2):
                self._cluster.start_worker("--no-nanny")
        return self._cluster

    def end(self) -> None:
        if self._cluster is not None:
            self._cluster.end()

    def kill(self, victim: str, span: float) -> Kill:
        """Let a client run until some moment, and kill somebody."""
        scheduler = self.cluster().address if victim not in EVERYBODY[:2] else ""
        noted, self._since = self._log.stat().st_size, time.time() + STRAGGLERS
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(self._plan), str(self.out), scheduler, str(self._flush)],
            env=self._environment, cwd=ROOT, stderr=subprocess.PIPE,
        )  # fmt: skip
        if self.rng.random() < 0.2:  # while it begins
            self._pause(min(span, 1.0))
        else:
            until(lambda: self._log.stat().st_size > noted or client.poll() is not None, PATIENCE)
            self._pause(span)
        failures, moment = list(self._struck(victim, client, span)), time.time()
        if victim == "scheduler":
            moment = self._struck_at.pop(0)
        client.kill()
        client.communicate()
        orphans = 0.0 if scheduler else self._ended_after(client.pid, moment)
        return self._looked_at(victim, moment, orphans, failures)

    def _pause(self, span: float) -> None:
        time.sleep(self.rng.uniform(0, span))

    def _strike(self, pid: int) -> None:
        """Kill a worker; what it finished in its last batch is computed again, by another one."""
        self._struck_at[pid] = time.time()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _struck(self, victim: str, client: subprocess.Popen[bytes], span: float) -> Iterator[str]:
        if victim == "worker":
            workers = list(_children(client.pid))
            if workers:
                self._strike(self.rng.choice(workers))
            self._pause(span)
        elif victim == "worker of a cluster":
            cluster = self.cluster()
            worker = cluster.workers.pop(self.rng.randrange(2))
            self._strike(worker.pid)
            worker.wait()
            cluster.start_worker("--no-nanny")
            self._pause(span)
        elif victim == "scheduler":
            yield from self._without_scheduler(client)
        if victim in ("worker", "worker of a cluster") and client.poll():
            yield f"the client ended with {client.poll()}"

    def _without_scheduler(self, client: subprocess.Popen[bytes]) -> Iterator[str]:
        cluster, self._cluster = self.cluster(), None
        begun = holder_of(self.out) == client.pid
        assert cluster.scheduler is not None
        cluster.scheduler.kill()
        self._struck_at[0] = time.time()
        try:
            _, said = client.communicate(timeout=PATIENCE)
            if client.returncode != LOST and begun:
                yield f"the client ended with {client.returncode}: {said.decode()[-300:]}"
            for worker in cluster.workers:
                worker.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            yield "somebody did not end without the scheduler"
        cluster.end()

    def _ended_after(self, parent: int, moment: float) -> float:
        """Seconds until no worker of a client that is dead computes."""
        end = moment + PATIENCE
        while _alive(self._environment[LOG]) and time.time() < end:
            time.sleep(0.02)
        return time.time() - moment

    def _looked_at(self, victim: str, moment: float, orphans: float, failures: list[str]) -> Kill:
        if not (self.out / "tasks.parquet").exists():
            return Kill(victim, 0, 0, 0.0, orphans, tuple(failures))
        rows = Campaign.table(self.out).to_pylist()
        keys = {row["key"] for row in rows}
        if unreadable := Campaign.status(self.out).unreadable:
            failures.append(f"{unreadable} parts cannot be read")
        if gone := self._before - keys:
            failures.append(f"{len(gone)} rows are gone")
        if len(keys) < len(rows):
            failures.append(f"{len(rows) - len(keys)} rows stand there twice")
        wrong = [row["seed"] for row in rows if any(row[k] != v for k, v in result(row["seed"]).items())]
        if wrong:
            failures.append(f"{len(wrong)} rows are wrong")
        self._before = keys
        done = {row["seed"] for row in rows}
        ages = [
            min(moment, self._struck_at.get(pid, moment)) - at
            for seed, pid, at in self._notes()
            if seed not in done and at > self._since
        ]
        lost = [age for age in ages if age >= 0]
        self._log.write_text("", encoding="utf-8")  # what is lost is computed again
        return Kill(victim, len(rows), len(lost), max(lost, default=0.0), orphans, tuple(failures))

    def _notes(self) -> Iterator[tuple[int, int, float]]:
        for line in self._log.read_text(encoding="utf-8").splitlines():
            seed, pid, moment = line.split()
            yield int(seed), int(pid), float(moment)


def kills(
    folder: Path,
    victims: Sequence[str],
    *,
    count: int,
    pause: float = 0.02,
    span: float = 6.0,
    flush: float = FLUSH_SECONDS,
    seed: int = 0,
) -> Iterator[Kill]:
    """Kill these, one after the other, while one campaign goes on.

    - ``folder``: an empty one.
    - ``victims``: of ``EVERYBODY``.
    - ``count``: how many tasks there are.
    - ``pause``: seconds that a task takes.
    - ``span``: seconds in which the moment lies.
    - ``flush``: seconds between two parts.
    - ``seed``: of the moments.
    """
    exercise = _Exercise(folder, campaign(count), random.Random(seed), pause, flush)
    try:
        for victim in victims:
            yield exercise.kill(victim, span)
    finally:
        exercise.end()


def unlike_undisturbed(folder: Path, count: int) -> str:
    """Go on after the kills, and compare with an undisturbed run: what differs, or nothing."""
    plan = campaign(count)
    plan.run(folder / "out", workers=2)
    plan.run(folder / "undisturbed", workers=0)
    one, other = (_plain(folder / name) for name in ("out", "undisturbed"))
    return "" if one.num_rows == count and one.equals(other) else f"{one.num_rows} rows against {other.num_rows}"


def _plain(folder: Path) -> Any:
    return Campaign.table(folder).drop_columns(list(MEASURED)).combine_chunks()


def _processes() -> Iterator[Path]:
    yield from (path for path in Path("/proc").iterdir() if path.name.isdecimal())


def _children(parent: int) -> Iterator[int]:
    """The workers of a client: children that were spawned to compute."""
    for path in _processes():
        try:
            command = (path / "cmdline").read_bytes()
            status = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(status[1]) == parent and b"spawn_main" in command:
            yield int(path.name)


def _alive(log: str) -> bool:
    """Whether any worker of a client lives, told by the environment that it was given."""
    for path in _processes():
        try:
            if (
                f"{LOG}={log}".encode() in (path / "environ").read_bytes()
                and b"dask" not in (path / "cmdline").read_bytes()
            ):
                return True
        except OSError:
            continue
    return False
