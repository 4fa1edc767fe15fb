"""What a run and those who carry it out say to each other.

An engine is given batches of tasks and returns them with rows, as they are finished. It knows nothing of folders; the
run knows nothing of processes. A worker that dies costs its batch a try: see ``after_death``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from bilevel_sym.campaigns.batch import failed_row, run_batch
from bilevel_sym.campaigns.context import Context
from bilevel_sym.campaigns.kinds import Row
from bilevel_sym.campaigns.task import Task

__all__ = ["Batch", "Engine", "Finished", "Here", "after_death"]

MOST_TRIES = 3  # workers that may die over one task


@dataclass(frozen=True)
class Batch:
    """Tasks of one problem, in the order of the plan, that are sent to a worker together.

    - ``tasks``: some.
    - ``deaths``: how many workers have died over it.
    """

    tasks: tuple[Task, ...]
    deaths: int = 0


@dataclass(frozen=True)
class Finished:
    """What came back: tasks with their rows, and batches that are to be submitted again.

    - ``done``: pairs of a task and its row.
    - ``left``: what the worker did not come to.
    """

    done: tuple[tuple[Task, Row], ...]
    left: tuple[Batch, ...] = ()

    @classmethod
    def of(cls, batch: Batch, rows: list[Row]) -> Finished:
        """What ``run_batch`` returned for a batch: rows of its first tasks."""
        rest = batch.tasks[len(rows) :]
        pairs = tuple(zip(batch.tasks, rows, strict=False))
        return cls(pairs, (Batch(rest, batch.deaths),) if rest else ())


class Engine(Protocol):
    """Carries out batches. All calls come from one thread."""

    @property
    def workers(self) -> int:
        """How many batches are computed at the same time."""

    def submit(self, batch: Batch) -> None:
        """Take a batch; the run keeps about two for each worker here."""

    def done(self, seconds: float) -> list[Finished]:
        """What was finished since the last call; where there is nothing, wait for it, but not much longer than that."""

    def close(self) -> None:
        """End everything at once; what was not returned is computed another time."""


def after_death(batch: Batch, message: str = "the worker that computed it died") -> Finished:
    """What becomes of a batch whose worker died: its tasks one by one, and after three deaths a row that says so.

    >>> after_death(Batch((), 0))
    Finished(done=(), left=())
    """
    deaths = batch.deaths + 1
    if len(batch.tasks) > 1 or deaths < MOST_TRIES:
        return Finished((), tuple(Batch((task,), deaths) for task in batch.tasks))
    return Finished(tuple((task, failed_row(message)) for task in batch.tasks))


class Here:
    """The engine without workers: all is done in this process, when somebody waits for it."""

    workers = 1

    def __init__(self, context: Context) -> None:
        self._context, self._waiting = context, deque[Batch]()

    def submit(self, batch: Batch) -> None:
        """Take a batch."""
        self._waiting.append(batch)

    def done(self, seconds: float) -> list[Finished]:
        """Compute one batch."""
        return list(self._next())

    def _next(self) -> Iterator[Finished]:
        if self._waiting:
            batch = self._waiting.popleft()
            yield Finished.of(batch, run_batch(self._context, batch.tasks))

    def close(self) -> None:
        """Nothing is running."""
        self._waiting.clear()
