"""How long a campaign would take, from a few of its tasks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bilevel_sym.campaigns.batch import run_batch
from bilevel_sym.campaigns.engines.local import cores
from bilevel_sym.campaigns.results.store import Store
from bilevel_sym.campaigns.task import Task
from bilevel_sym.system.budget import Deadline, Stopwatch

if TYPE_CHECKING:
    from bilevel_sym.campaigns.plan import Campaign

__all__ = ["Forecast", "forecast_of"]

PLACES, NEIGHBOURS = 4, 8  # tasks are tried at so many places of the plan, and so many neighbours at each
TRY_SECONDS = 10.0  # and for no longer than about that


@dataclass(frozen=True)
class Forecast:
    """What a run would do.

    - ``total``: how many tasks the plan has; equal ones count once.
    - ``new``: how many have no row yet.
    - ``tried``: how many of them were computed for this forecast.
    - ``seconds``: about how long a run takes; None where nothing is left, or nothing could be tried.
    - ``workers``: on so many processes.

    >>> print(Forecast(1000, 400, 32, 81.0, 2))
    1000 tasks, 400 of them new; about 81 s on 2 workers, from 32 of them
    """

    total: int
    new: int
    tried: int
    seconds: float | None
    workers: int

    def __str__(self) -> str:
        told = f"{self.total} tasks, {self.new} of them new"
        if self.seconds is None:
            return told
        return f"{told}; about {self.seconds:.3g} s on {self.workers} workers, from {self.tried} of them"


def forecast_of(plan: Campaign, folder: str | os.PathLike[str] | None, workers: int | None) -> Forecast:
    """The forecast of a run: tasks from places all over the plan are computed here, kernels made before that."""
    done = set() if folder is None else Store(Path(folder)).keys()
    known = [task.key in done for task in plan.tasks()]
    new = [number for number, is_done in enumerate(known) if not is_done]
    used = min(max(1, cores() if workers is None else workers), max(1, len(new)))
    tried, seconds = _tried(plan, new, used)
    return Forecast(len(known), len(new), tried, seconds, used)


def _tried(plan: Campaign, new: list[int], workers: int) -> tuple[int, float | None]:
    step = max(1, len(new) // PLACES)
    wanted = {number for start in range(0, len(new), step) for number in new[start : start + NEIGHBOURS][:step]}
    tasks = [task for number, task in enumerate(plan.tasks()) if number in wanted] if wanted else []
    deadline, places = Deadline(TRY_SECONDS), _places(tasks)
    for place in places:
        if not deadline.passed:
            run_batch(plan.context, place[:1])
    watch, tried = Stopwatch(), 0
    for place in places:
        if not (tried and deadline.passed):
            tried += len(run_batch(plan.context, place))
    return tried, watch.whole(tried * workers / len(new)) if tried else None


def _places(tasks: list[Task]) -> list[list[Task]]:
    """Neighbours of one cell together."""
    found: list[list[Task]] = []
    for task in tasks:
        if found and found[-1][0].cell == task.cell and len(found[-1]) < NEIGHBOURS:
            found[-1].append(task)
        else:
            found.append([task])
    return found
