"""A run: tasks that have no row yet go to an engine in batches, and their rows to the folder in parts."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilevel_sym.campaigns.content import versions
from bilevel_sym.campaigns.engines.protocol import Batch, Engine, Finished, Here
from bilevel_sym.campaigns.kinds import Row
from bilevel_sym.campaigns.reproduction import code_of
from bilevel_sym.campaigns.results.store import Store
from bilevel_sym.campaigns.status import CampaignStatus, status_of
from bilevel_sym.campaigns.task import Task
from bilevel_sym.campaigns.values import is_whole
from bilevel_sym.errors import CannotWrite, InvalidArgument
from bilevel_sym.system.budget import Deadline
from bilevel_sym.system.progress import ProgressBar, is_watched
from bilevel_sym.typing import Bools

if TYPE_CHECKING:
    from bilevel_sym.campaigns.plan import Campaign

__all__ = ["run_plan"]

FLUSH_SECONDS = 2.0  # between two parts: with a batch, the way back and the write, less than five are ever lost
WAIT_SECONDS = 0.5  # for an engine, between two looks at that
LARGEST_BATCH = 64  # tasks
WINDOW = 2  # batches for each worker: one that it computes, and the next
SHARES = 4  # of what is left, for each worker: batches become smaller toward the end
OTHERS = ("sympy", "mpmath", "numpy", "scipy", "numba", "python-flint", "pyarrow", "dask", "distributed", "hypothesis")


def run_plan(
    plan: Campaign, folder: str | os.PathLike[str], *, scheduler: Any, progress: bool, workers: int | None
) -> CampaignStatus:
    """Compute what a folder does not hold yet.

    - ``plan``: what is computed.
    - ``folder``: where rows are kept.
    - ``scheduler``: of Dask; None for this machine alone.
    - ``progress``: whether it is shown.
    - ``workers``: processes of this machine; None for one on each core.
    """
    if workers is not None and (not is_whole(workers, 0)):
        raise InvalidArgument(f"workers={workers!r:.40}", hint="a whole number; None for one on each core, 0 for none")
    store = Store(Path(folder))
    with store.writing():
        done = store.begin(plan.to_toml(), _environment(), (task.key for task in plan.tasks()))
        total, new = len(done), int((~done).sum())
        run = _Run(plan, store, done)
        if new:
            shown = bool(progress) and is_watched()
            run.carry_out(lambda: _engine(plan, scheduler, workers, new), shown=shown, of=total)
        store.join()
    return status_of(folder, run.computed)


def _engine(plan: Campaign, scheduler: Any, workers: int | None, new: int) -> Engine:
    if scheduler is not None:
        from bilevel_sym.campaigns.engines.cluster import Cluster

        return Cluster(plan.context, scheduler)
    if workers == 0:
        return Here(plan.context)
    from bilevel_sym.campaigns.engines.local import Processes, cores

    return Processes(plan.context, min(workers or cores(), new))


class _Run:
    """One run of a plan: batches out, rows in."""

    def __init__(self, plan: Campaign, store: Store, done: Bools) -> None:
        self._plan, self._store = plan, store
        self._new, self._given = int((~done).sum()), 0
        self._tasks = (task for task, known in zip(plan.tasks(), done, strict=True) if not known)
        self._next: Task | None = None
        self._left: deque[Batch] = deque()
        self._rows: list[Row] = []
        self.computed, self.failed = 0, 0

    def carry_out(self, make: Any, *, shown: bool, of: int) -> None:
        """Until all is done; interrupted, what is done is kept."""
        with ProgressBar("campaign", self._new, shown=shown, rated=True) as meter:
            engine: Engine = make()
            try:
                self._loop(engine, meter, of)
            except KeyboardInterrupt:
                with suppress(KeyboardInterrupt):  # an impatient second one
                    for finished in [] if isinstance(engine, Here) else engine.done(0.0):
                        self._take(finished)
                raise
            finally:
                try:
                    self._flush()
                finally:
                    engine.close()

    def _loop(self, engine: Engine, meter: ProgressBar, of: int) -> None:
        deadline, out = Deadline(FLUSH_SECONDS), 0
        while True:
            while out < WINDOW * engine.workers and (batch := self._batch(engine.workers)) is not None:
                engine.submit(batch)
                out += 1
            if not out:
                return
            for finished in engine.done(WAIT_SECONDS):
                out -= 1
                self._take(finished)
            meter.at(self.computed, self._note(of))
            if deadline.passed:
                self._flush()
                deadline = Deadline(FLUSH_SECONDS)

    def _note(self, of: int) -> str:
        before = f", {of - self._new} were done before" if of > self._new else ""
        return f", {self.failed} failed{before}" if self.failed else before

    def _batch(self, workers: int) -> Batch | None:
        """What is to be tried again first; then new tasks, of one problem at a time."""
        if self._left:
            return self._left.popleft()
        size = min(LARGEST_BATCH, max(1, -(-(self._new - self._given) // (SHARES * workers))))
        tasks: list[Task] = []
        while len(tasks) < size and (task := self._next or next(self._tasks, None)) is not None:
            self._next = None
            if tasks and task.cell.problem != tasks[0].cell.problem:
                self._next = task
                break
            tasks.append(task)
        self._given += len(tasks)
        return Batch(tuple(tasks)) if tasks else None

    def _take(self, finished: Finished) -> None:
        self._left.extendleft(reversed(finished.left))
        for task, row in finished.done:
            failed, columns = row["status"] == "failed", task.columns
            code = code_of(self._plan, task) if failed else None
            self._rows.append(columns | {"key": task.key, "code": code} | _renamed(row, columns))
            self.computed += 1
            self.failed += failed

    def _flush(self) -> None:
        """Interrupted in the middle, it is done again: a row that stands in two parts counts once."""
        rows = self._rows
        try:
            self._store.add(rows)
        except CannotWrite:
            self._rows = []  # one error is enough
            raise
        self._rows = []


def _renamed(row: Row, columns: Row) -> Row:
    """A result that has the name of a parameter is called ``name_result``."""
    return {f"{name}_result" if name in columns else name: value for name, value in row.items()}


def _environment() -> dict[str, Any]:
    return {
        "versions": versions(OTHERS), "python": sys.version.split()[0], "platform": platform.platform(),
        "machine": platform.machine(), "host": platform.node(), "commit": _commit(),
    }  # fmt: skip


def _commit() -> str | None:
    """Of the sources that run, where they are a checkout."""
    here = Path(__file__).resolve().parent
    try:
        asked = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() or None
