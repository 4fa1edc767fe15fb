"""Campaign: problems x algorithms x parameters x seeds, stated once; what it computes, and where that is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bilevel_sym.campaigns.batch import compute
from bilevel_sym.campaigns.content import digest_of
from bilevel_sym.campaigns.context import Context
from bilevel_sym.campaigns.kinds import Kind, Row, kind_of
from bilevel_sym.campaigns.plan_file import plan_toml, read_plan
from bilevel_sym.campaigns.sources import NO_PROBLEM, Source, sources_of
from bilevel_sym.campaigns.task import Cell, Plain, Task, tasks_of
from bilevel_sym.campaigns.validation import algorithm_text, check_plan
from bilevel_sym.campaigns.values import seeds_of, values_of
from bilevel_sym.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

    from bilevel_sym.campaigns.forecast import Forecast
    from bilevel_sym.campaigns.results.brackets import MergedBrackets
    from bilevel_sym.campaigns.status import CampaignStatus

__all__ = ["Campaign"]

Where = str | os.PathLike[str]
EXAMPLES = MappingProxyType({"problems": 'problems=["zoo:saddle"]', "algorithms": "leave it out"})


@dataclass(frozen=True, init=False, eq=False)
class Campaign:
    """Problems x algorithms x parameters x seeds: every combination is a task, and a row of a table.

    - ``task``: "solve", "verify", "check", "constants", "smoothness", "stationary_points", or "module:function".
    - ``problems``: "zoo:saddle", files, "generated:100,seed=0,kind=isotropic", or problems; none for a function of
      yours that takes no ``problem``.
    - ``algorithms``: for "solve": names, as ``bilevel-sym solve --algorithm`` has them, or algorithms; what suits the
      problem, if there are none.
    - ``seeds``: S means 0 to S - 1; a list means itself.
    - ``folder``: where files of problems and modules of users stand; unless given, the current one.
    - ``parameters``: a value, a list, which is a grid, or a random list such as
      ``{"draw": "loguniform", "low": 1e-3, "high": 1, "count": 20, "seed": 0}``.

    >>> problems, algorithms = ["zoo:scalar", "zoo:ridge"], ["descent"]
    >>> plan = Campaign(task="solve", problems=problems, algorithms=algorithms, seeds=3, eta=[0.1, 0.2])
    >>> plan.count
    12
    >>> next(plan.tasks()).columns
    {'problem': 'zoo:scalar', 'algorithm': 'descent', 'eta': 0.1, 'seed': 0}
    """

    task: str
    problems: tuple[Any, ...]
    algorithms: tuple[Any, ...]
    seeds: Sequence[int]
    parameters: Mapping[str, tuple[Plain, ...]]
    folder: Path

    def __init__(
        self,
        task: str = "solve",
        problems: Sequence[Any] = (),
        algorithms: Sequence[Any] | None = None,
        seeds: int | Sequence[int] = 1,
        *,
        folder: Where = ".",
        **parameters: Any,
    ) -> None:
        own = {
            "task": task, "folder": Path(folder), "problems": _listed("problems", problems) if problems != () else (),
            "algorithms": () if algorithms is None else _listed("algorithms", algorithms), "seeds": seeds_of(seeds),
            "parameters": MappingProxyType({name: values_of(name, value) for name, value in parameters.items()}),
        }  # fmt: skip
        for name, value in own.items():
            object.__setattr__(self, name, value)
        check_plan(self)

    # ---- what is computed -------------------------------------------------------------------------------------

    @cached_property
    def kind(self) -> Kind:
        """What the tasks are."""
        return kind_of(self.task, self._folders)

    @property
    def _folders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(path.resolve()) for path in (self.folder, Path())))

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The problems, by their names."""
        found = sources_of(self.problems, self.folder) if self.problems else [NO_PROBLEM]
        return tuple({(s.name, s.digest): s for s in found}.values())

    @cached_property
    def context(self) -> Context:
        """What every worker needs to compute tasks."""
        return Context(self.sources, self.algorithms, self._folders)

    @cached_property
    def count(self) -> int:
        """How many tasks there are."""
        return sum(1 for _ in self.cells()) * (len(self.seeds) if self.kind.seeded else 1)

    def cells(self) -> Iterator[Cell]:
        """Problems, then algorithms, then parameters, the last one fastest; seeds are inside. Equal ones stand once."""
        digest, seen = digest_of(self), set[bytes]()
        algorithms = list(enumerate(self.algorithms)) if self.kind.solves and self.algorithms else [(None, None)]
        for k, source in enumerate(self.sources):
            for number, algorithm in algorithms:
                name = "" if algorithm is None else algorithm_text(algorithm)
                for parameters in self._grid():
                    cell = Cell(self.task, k, source.name, number, name, parameters, digest(source, name))
                    if cell.content not in seen:
                        seen.add(cell.content)
                        yield cell

    def _grid(self) -> Iterator[tuple[tuple[str, Plain], ...]]:
        """All choices of parameters; a box that is split has a piece in each."""
        names = tuple(self.parameters)
        for values in product(*self.parameters.values()):
            chosen = tuple(zip(names, values, strict=True))
            split = dict(chosen).get("split") if "split" in self.kind.takes else None
            if split is None:
                yield chosen
            else:
                yield from ((*chosen, ("piece", piece)) for piece in range(int(split)))

    def tasks(self) -> Iterator[Task]:
        """All tasks in the order of the plan, each made when it is asked for."""
        seeds = self.seeds if self.kind.seeded else (None,)
        for cell in self.cells():
            yield from tasks_of(cell, seeds)

    def reproduce(self) -> Row:
        """The row of the first task, computed here; what fails raises, so that one can look at it.

        >>> plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=["descent"], seeds=[7], steps=10)
        >>> plan.reproduce()["outcome"]
        'out of steps'
        """
        task = next(self.tasks())
        return compute(self.context, task.cell, [task.seed])[0]

    # ---- where it is kept -------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: Where) -> Campaign:
        """The plan of a TOML file; problems in files stand beside it.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "plan.toml"
        >>> plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=["descent"], seeds=2, steps=10)
        >>> _ = path.write_text(plan.to_toml())
        >>> Campaign.load(path).count
        2
        """
        fields = read_plan(path)
        try:
            return cls(**fields, folder=Path(path).parent)
        except TypeError:
            raise InvalidArgument(f"{os.fspath(path)}: folder is no parameter", hint="leave it out") from None

    def to_toml(self) -> str:
        """The plan as a file; problems and algorithms that are objects stand there by name, and only to be read."""
        named = [given if isinstance(given, str) else source for given, source in self._problem_names()]
        return plan_toml(self.task, named, [algorithm_text(a) for a in self.algorithms], self.seeds, self.parameters)

    def _problem_names(self) -> Iterator[tuple[Any, str]]:
        objects = iter([source.name for source in self.sources if not isinstance(source.given, str)])
        for given in self.problems:
            yield given, given if isinstance(given, str) else next(objects, repr(given)[:100])

    def run(
        self, folder: Where, scheduler: Any = None, progress: bool = False, workers: int | None = None
    ) -> CampaignStatus:
        """Compute every task that the folder does not hold yet, and keep its row there; ended by anything, it goes on.

        - ``folder``: is made if there is none; one process at a time writes to it.
        - ``scheduler``: the address of a Dask scheduler, or a ``dask.distributed.Client``; None for this machine alone.
        - ``progress``: whether a terminal or a notebook shows how far it is.
        - ``workers``: processes of this machine; None for one on each core, 0 for none: all is done in this process.

        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=["descent"], seeds=2, steps=10)
        >>> plan.run(folder, workers=0).done, plan.run(folder, workers=0).computed
        (2, 0)
        """
        from bilevel_sym.campaigns.run import run_plan

        return run_plan(self, folder, scheduler=scheduler, progress=progress, workers=workers)

    def foresee(self, folder: Where | None = None, workers: int | None = None) -> Forecast:
        """What a run would do, and about how long it would take, from a few of its tasks; nothing is written.

        - ``folder``: rows that it holds already are not computed.
        - ``workers``: as for ``run``.

        >>> plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=["descent"], seeds=200, steps=10)
        >>> forecast = plan.foresee()
        >>> forecast.total, forecast.new
        (200, 200)
        """
        from bilevel_sym.campaigns.forecast import forecast_of

        return forecast_of(self, folder, workers)

    @staticmethod
    def status(folder: Where) -> CampaignStatus:
        """How far the campaign in a folder is; it may be running."""
        from bilevel_sym.campaigns.status import status_of

        return status_of(folder)

    @staticmethod
    def table(folder: Where, where: str | None = None, *, all_plans: bool = False) -> pa.Table:
        """Every row that is there, in the order of the plan, as a table of pyarrow: ``.to_pandas()`` makes a frame.

        - ``folder``: that of a campaign.
        - ``where``: a filter such as ``status == "ok" and eta < 0.15``.
        - ``all_plans``: also rows of plans that were run there before, and are no part of the last one.

        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=["descent"], eta=[0.1, 0.2], steps=10)
        >>> _ = plan.run(folder, workers=0)
        >>> len(plan.table(folder)), len(plan.table(folder, where="eta < 0.15"))
        (2, 1)
        """
        from bilevel_sym.campaigns.results.table import table_of

        return table_of(folder, where, all_plans=all_plans)

    @staticmethod
    def merged(folder: Where) -> list[MergedBrackets]:
        """The proved brackets of boxes that were split, pieces joined; one for each problem and choice of parameters.

        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> plan = Campaign(task="constants", problems=["zoo:scalar"], split=2, effort="quick")
        >>> _ = plan.run(folder, workers=0)
        >>> [found.columns for found in plan.merged(folder)]
        [{'problem': 'zoo:scalar', 'split': 2, 'effort': 'quick'}]
        """
        from bilevel_sym.campaigns.results.brackets import merged_in

        return merged_in(folder)


def _listed(name: str, given: object) -> tuple[Any, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidArgument(f"{name}={given!r:.60} is no list", hint=f"{name}=[...]")
    if not given:
        raise InvalidArgument(f"{name} is empty", hint=EXAMPLES[name])
    return tuple(given)
