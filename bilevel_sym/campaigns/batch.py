"""What a worker does with a batch of tasks: rows, one for each, whatever happens; and no longer than about a second."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from itertools import takewhile

from bilevel_sym.campaigns.context import Context, Setting
from bilevel_sym.campaigns.interrupts import noticed
from bilevel_sym.campaigns.kinds import Kind, Row, kind_of
from bilevel_sym.campaigns.task import Cell, Task
from bilevel_sym.errors import visible
from bilevel_sym.system.budget import Deadline, Stopwatch, moment

__all__ = ["MEASURED", "SECONDS", "compute", "failed_row", "run_batch"]

SECONDS = 1.0  # after which a worker returns what it has: finished rows wait no longer than that, and a task
MESSAGE_LETTERS = 2000
ENSEMBLES = ("solve",)
MEASURED = ("seconds", "started", "ended", "worker", "host")  # the columns that differ from run to run


def run_batch(context: Context, tasks: Sequence[Task], seconds: float = SECONDS) -> list[Row]:
    """Rows of the first tasks; how many are computed before it returns depends on the time, and no row does.

    - ``context``: that of the plan.
    - ``tasks``: some.
    - ``seconds``: after which no other cell is begun.
    """
    deadline, rows = Deadline(seconds), list[Row]()
    while len(rows) < len(tasks) and not (rows and deadline.passed):
        rest = tasks[len(rows) :]
        rows += _timed(context, _together(rest))
    return rows


def _together(tasks: Sequence[Task]) -> Sequence[Task]:
    """The first tasks, which differ by their seeds alone, where they cost less at once."""
    first = tasks[0].cell
    return list(takewhile(lambda task: task.cell == first, tasks)) if first.kind in ENSEMBLES else tasks[:1]


def _timed(context: Context, tasks: Sequence[Task]) -> list[Row]:
    started, watch = moment(), Stopwatch()
    rows = _attempted(context, tasks)
    measured = dict(
        zip(MEASURED, (watch.each(len(rows)), started, moment(), str(os.getpid()), platform.node()), strict=True)
    )
    return [row | measured for row in rows]


def _attempted(context: Context, tasks: Sequence[Task]) -> list[Row]:
    """Where tasks fail together each is tried alone: a row says what failed in its own."""
    try:
        with noticed():
            rows = compute(context, tasks[0].cell, [task.seed for task in tasks])
        return [{"status": "ok", "message": None} | row for row in rows]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is becomes a row
        if len(tasks) > 1:
            return [row for task in tasks for row in _attempted(context, [task])]
        return [failed_row(f"{type(error).__name__}: {error}")]


def failed_row(message: str) -> Row:
    """The row of a task that could not be computed.

    >>> failed_row("ZeroDivisionError: division by zero")
    {'status': 'failed', 'message': 'ZeroDivisionError: division by zero'}
    """
    return {"status": "failed", "message": visible(message)[:MESSAGE_LETTERS]}


def compute(context: Context, cell: Cell, seeds: Sequence[int | None]) -> list[Row]:
    """The rows of some seeds of a cell; what fails raises.

    - ``context``: that of the plan.
    - ``cell``: what the seeds share.
    - ``seeds``: one for each row.
    """
    algorithm = None if cell.algorithm is None else context.algorithms[cell.algorithm]
    problem = context.problem(cell.problem)
    setting = Setting(context, cell.kind, problem, algorithm, dict(cell.parameters), (cell.digest, cell.parameters))
    kind: Kind = context.remember(("kind", cell.kind), lambda: kind_of(cell.kind, context.folders))
    return kind.work(setting, seeds)
