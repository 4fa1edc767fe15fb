"""How a campaign that ships is run: its plan in a folder beside the picture, so that it can be killed and goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from bilevel_sym.campaigns import Campaign, Task
from bilevel_sym.campaigns.batch import compute
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.system.plain_text import named
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.theories.huang_saddle.experiments.reporting import Provenance

__all__ = ["Done", "PlanOf", "carry_out", "plan_path", "rows_here"]

Row = dict[str, Any]


@dataclass(frozen=True)
class PlanOf:
    """Which plan was run, for the record.

    - ``name``: of the campaign.
    - ``large``: whether it was the large one.
    - ``plan``: its TOML text.
    """

    name: str
    large: bool
    plan: str


@dataclass(frozen=True)
class Done:
    """A campaign whose every task has a row.

    - ``settings``: which plan.
    - ``rows``: those of tasks that did not fail, in the order of the plan.
    - ``failed``: how many did.
    - ``folder``: where they are kept.
    """

    settings: PlanOf
    rows: tuple[Row, ...]
    failed: int
    folder: str

    def told(self) -> str:
        """How many there are, and where."""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{len(self.rows) + self.failed} tasks{failed}; rows in {named(self.folder)}"

    def provenance(self, paper: tuple[str, ...], chosen: tuple[str, ...]) -> Provenance:
        """What is the paper's, and what was chosen here."""
        return Provenance(paper, (*chosen, f"the {'large' if self.settings.large else 'small'} plan"))


def plan_path(name: str, large: bool) -> Path:
    """The file of a plan.

    >>> plan_path("escape", True).name
    'escape-large.toml'
    """
    path = Path(str(resources.files(__package__))) / "plans" / f"{name}{'-large' if large else ''}.toml"
    if not path.is_file():
        raise InvalidArgument(f"there is no campaign {name!r:.60}", hint="escape, tightness or error")
    return path


def carry_out(name: str, out: Path, *, large: bool, progress: bool, plan: Campaign | None = None) -> Done:
    """Run a plan in ``out/NAME-campaign``, or what is left of it, and read its rows.

    - ``name``: of the campaign.
    - ``out``: where its picture goes too.
    - ``large``: which plan.
    - ``progress``: whether a terminal shows how far it is.
    - ``plan``: another one in its place.
    """
    plan = plan or Campaign.load(plan_path(name, large))
    folder = out / f"{name}-campaign"
    workers = None if large else 0  # processes that take seconds to begin gain nothing where all takes twenty
    status = plan.run(folder, progress=progress, workers=workers)
    rows = plan.table(folder, where='status == "ok"').to_pylist()
    if not rows:
        first = plan.table(folder).to_pylist()[0]
        raise BilevelError(f"every task failed, the first one so: {first['message']}", hint=f"see {named(folder)}")
    return Done(PlanOf(name, large, plan.to_toml()), tuple(rows), status.failed, str(folder))


def rows_here(name: str, plans: Sequence[Campaign], *, progress: bool = False) -> list[list[Row]]:
    """The rows of plans of a figure that takes seconds: computed in this process, and kept nowhere.

    Equal tasks are computed once. What fails raises, and the numbers are those that ``Campaign.run`` writes.

    - ``name``: of the figure.
    - ``plans``: those that it is drawn from.
    - ``progress``: whether a terminal shows how far it is.

    >>> from bilevel_sym.theories.huang_saddle.experiments.complexity import Settings, plans
    >>> small = Settings(d=2, accuracies=(0.1,), conditions=(2,), kappa=2, eps=0.1, seeds=2)
    >>> [[row["checked"] for row in rows] for rows in rows_here("figure3", plans(small))]
    [[2], [2]]
    """
    tasks = [(plan, task) for plan in plans for task in plan.tasks()]
    done: dict[str, Row] = {}
    with ProgressBar(name, len(tasks), shown=progress) as meter:
        for number, (plan, task) in enumerate(tasks):
            meter.at(number, "".join(f", {column} = {value}" for column, value in _varied(plan, task).items()))
            if task.key not in done:
                done[task.key] = task.columns | compute(plan.context, task.cell, [task.seed])[0]
    return [[done[task.key] for task in plan.tasks()] for plan in plans]


def _varied(plan: Campaign, task: Task) -> Row:
    """The columns of a task that are not the same in the whole plan."""
    return {name: value for name, value in task.columns.items() if len(plan.parameters.get(name, ())) > 1}
