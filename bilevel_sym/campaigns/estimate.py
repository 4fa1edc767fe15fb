"""How long a plan takes: a few of its tasks are computed, spread over it, and nothing is kept."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bilevel_sym.campaigns.batch import ENSEMBLES, run_batch
from bilevel_sym.campaigns.results.store import Store
from bilevel_sym.campaigns.task import Task, tasks_of
from bilevel_sym.system.budget import Deadline

if TYPE_CHECKING:
    from bilevel_sym.campaigns.plan import Campaign

__all__ = ["Estimate", "estimate"]

CELLS = 6  # that are tried; the first one also pays for what is made once, and does not count where others do
SECONDS = 10.0  # after which no other is begun
TOGETHER = 64  # seeds of one ensemble


@dataclass(frozen=True)
class Estimate:
    """How much work a plan is.

    - ``tasks``: how many there are.
    - ``done``: how many of them have a row already.
    - ``each``: seconds that those which were tried took, one for each group; seeds of one ensemble are a group.
    - ``failed``: how many of these failed.

    >>> Estimate(tasks=100, done=40, each=(0.1, 0.3), failed=0).seconds
    12.0
    """

    tasks: int
    done: int
    each: tuple[float, ...]
    failed: int

    @property
    def seconds(self) -> float:
        """Of one core, for what is left; NaN where nothing was tried."""
        return (self.tasks - self.done) * sum(self.each) / len(self.each) if self.each else math.nan


def estimate(plan: Campaign, folder: str | os.PathLike[str] | None = None) -> Estimate:
    """Count the tasks of a plan, and those that a folder does not hold; compute a few of them, and keep nothing.

    >>> from bilevel_sym.campaigns import Campaign
    >>> plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=["descent"], seeds=3, steps=10)
    >>> found = estimate(plan)
    >>> found.tasks, found.done, found.failed, found.seconds > 0
    (3, 0, 0, True)
    """
    keys = {task.key for task in plan.tasks()}
    store = None if folder is None else Store(Path(folder))
    done = len(keys & store.keys()) if store is not None and store.parts() else 0
    each: list[float] = []
    failed, deadline = 0, Deadline(SECONDS)
    for group in _spread(plan) if done < len(keys) else ():
        if each and deadline.passed:
            break
        rows = run_batch(plan.context, group)
        each.append(sum(row["seconds"] for row in rows) / len(rows))
        failed += sum(row["status"] == "failed" for row in rows)
    return Estimate(len(keys), done, tuple(each[1:] if len(each) > 2 else each), failed)


def _spread(plan: Campaign) -> Iterator[list[Task]]:
    """A few groups of tasks, from all over the plan."""
    seeds = plan.seeds if plan.kind.seeded else (None,)
    cells = plan.count // len(seeds)
    wanted = {(2 * k + 1) * cells // (2 * CELLS) for k in range(CELLS)}
    together = TOGETHER if plan.task in ENSEMBLES else 1
    for number, cell in enumerate(plan.cells()):
        if number in wanted:
            yield list(islice(tasks_of(cell, seeds), together))
