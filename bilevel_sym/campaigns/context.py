"""What every task of a plan needs: sent once to each worker, and kept there with what was made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bilevel_sym.campaigns.sources import Source
from bilevel_sym.problem.problem import BilevelProblem

__all__ = ["Context", "Setting"]

KEPT = 16  # objects that a worker keeps: problems with their kernels, and algorithms


@dataclass(frozen=True, eq=False)
class Context:
    """The problems, algorithms and folders of a plan, and what was last made of them in this process.

    - ``sources``: the problems.
    - ``algorithms``: names, or the algorithms themselves.
    - ``folders``: where modules of users are looked for.
    """

    sources: tuple[Source, ...]
    algorithms: tuple[Any, ...] = ()
    folders: tuple[str, ...] = ()
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        """What was made stays in its process."""
        return Context, (self.sources, self.algorithms, self.folders)

    def remember(self, key: object, make: Callable[[], Any]) -> Any:
        """What ``make`` returned for the key, made again only if much else was made since."""
        found = self._kept.pop(key) if key in self._kept else make()
        self._kept[key] = found  # the last one again
        while len(self._kept) > KEPT:
            self._kept.pop(next(iter(self._kept)))
        return found

    def problem(self, number: int) -> BilevelProblem:
        """The problem of this number, with the kernels that it has by now."""
        found: BilevelProblem = self.remember(("problem", number), self.sources[number].problem)
        return found


@dataclass(frozen=True, eq=False)
class Setting:
    """What the tasks of one cell are computed from.

    - ``context``: that of the plan.
    - ``kind``: of the tasks.
    - ``problem``: the problem; None where the plan has none.
    - ``algorithm``: a name or an algorithm; None where the kind has none.
    - ``parameters``: values by name.
    - ``key``: tells cells apart.
    """

    context: Context
    kind: str
    problem: Any
    algorithm: Any
    parameters: dict[str, Any]
    key: object
