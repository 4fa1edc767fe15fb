"""A Dask cluster for tests and benchmarks: a scheduler and workers, processes of their own on 127.0.0.1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["CommandLineCluster", "command_line_cluster", "until"]

START_SECONDS = 60.0
ROOT = Path(__file__).resolve().parent.parent
NO_PAGES = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")
QUIET = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
    "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "critical",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__GIL__ENABLED": "false",
}


@dataclass
class CommandLineCluster:
    """What ``dask scheduler`` and ``dask worker`` start.

    - ``folder``: for files of Dask's.
    - ``scheduler``, ``workers``: the processes.
    - ``address``: of the scheduler.
    - ``environment``: that of all of them.
    """

    folder: Path
    scheduler: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    address: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def pids(self) -> list[int]:
        """Of the workers."""
        return [worker.pid for worker in self.workers]

    def start_scheduler(self, port: int = 0) -> None:
        """The scheduler; ``address`` says where it listens."""
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        self.scheduler = self._started(
            "scheduler", "--host", "127.0.0.1", "--port", str(port), *NO_PAGES,
            "--scheduler-file", str(file),
        )  # fmt: skip
        self.address = until(lambda: file.exists() and json.loads(file.read_text(encoding="utf-8"))["address"])

    def start_worker(self, *options: str) -> subprocess.Popen[bytes]:
        """One more worker, of one thread."""
        worker = self._started(
            "worker", self.address, "--host", "127.0.0.1", "--nthreads", "1", *NO_PAGES,
            "--local-directory", str(self.folder), "--memory-limit", "0", *options,
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def _started(self, *words: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *filter(None, [self.environment.get("PYTHONPATH")])])
        command = [sys.executable, "-W", "ignore", "-m", "dask", *words]
        environment = {**self.environment, **QUIET, "PYTHONPATH": path}
        out = (self.folder / "log").open("ab")
        with out:
            return subprocess.Popen(command, env=environment, stdout=out, stderr=out, cwd=self.folder)

    def end(self) -> None:
        """All of it."""
        for process in [*self.workers, *filter(None, [self.scheduler])]:
            process.kill()
            process.wait()


def until(asked: Callable[[], Any], seconds: float = START_SECONDS) -> Any:
    """What a question answers once the answer is not empty."""
    end = time.monotonic() + seconds
    while not (answer := asked()):
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.05)
    return answer


@contextmanager
def command_line_cluster(folder: Path, workers: int = 2, *options: str) -> Iterator[CommandLineCluster]:
    """A scheduler and workers, until the end of a block."""
    folder.mkdir(exist_ok=True)
    cluster = CommandLineCluster(folder)
    try:
        cluster.start_scheduler()
        for _ in range(workers):
            cluster.start_worker(*options)
        yield cluster
    finally:
        cluster.end()
