"""A task: one seed of one cell of a plan, and the key that says what it computes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Cell", "Parameters", "Plain", "Task", "canonical", "tasks_of"]

Plain: TypeAlias = bool | int | float | str
Parameters: TypeAlias = tuple[tuple[str, Plain], ...]

KEY_LETTERS = 32  # of 64: two of 10^12 tasks share them with probability 10^-15


@dataclass(frozen=True)
class Cell:
    """What the tasks of one problem, algorithm and choice of parameters share; they differ by their seeds alone.

    - ``kind``: the kind of task, such as "solve" or "module:function".
    - ``problem``: its number in the plan.
    - ``problem_name``: its name in tables; empty where the kind has none.
    - ``algorithm``: its number in the plan; None where the kind has none.
    - ``algorithm_name``: its name in tables; empty where there is none.
    - ``parameters``: pairs of a name and a value, in the order of the plan.
    - ``digest``: of the contents of problem, algorithm and function, and the versions that matter.
    """

    kind: str
    problem: int
    problem_name: str
    algorithm: int | None
    algorithm_name: str
    parameters: Parameters
    digest: str

    @property
    def content(self) -> bytes:
        """What cells share that compute the same."""
        text = canonical({"digest": self.digest, "parameters": dict(self.parameters)})
        return hashlib.sha256(text).digest()

    @property
    def columns(self) -> dict[str, Plain]:
        """The columns of a table that say which cell it is."""
        named: dict[str, Plain] = {"problem": self.problem_name} if self.problem_name else {}
        if self.algorithm is not None:
            named["algorithm"] = self.algorithm_name
        return named | dict(self.parameters)


@dataclass(frozen=True)
class Task:
    """One seed of a cell. Equal keys mean equal results; a key is a digest of content, on any machine.

    - ``cell``: what it shares with its neighbours.
    - ``seed``: of its random numbers; None where the kind has none.
    - ``key``: 32 letters.

    >>> from bilevel_sym.campaigns import Campaign
    >>> plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=["descent"], seeds=2, steps=10)
    >>> [(task.seed, len(task.key)) for task in plan.tasks()]
    [(0, 32), (1, 32)]
    """

    cell: Cell
    seed: int | None
    key: str

    @property
    def columns(self) -> dict[str, Plain]:
        """The columns of a table that say which task it is."""
        return self.cell.columns | ({} if self.seed is None else {"seed": self.seed})


def tasks_of(cell: Cell, seeds: Iterable[int | None]) -> Iterator[Task]:
    """The tasks of a cell, one for each seed.

    >>> cell = Cell("constants", 0, "zoo:scalar", None, "", (("rtol", 0.1),), "0" * 64)
    >>> [task.columns for task in tasks_of(cell, [None])]
    [{'problem': 'zoo:scalar', 'rtol': 0.1}]
    """
    begun = hashlib.sha256(cell.content)
    for seed in seeds:
        whole = begun.copy()
        whole.update(b"" if seed is None else str(seed).encode())
        yield Task(cell, seed, whole.hexdigest()[:KEY_LETTERS])


def canonical(content: Mapping[str, object]) -> bytes:
    """Text that equal contents share: 1 and 1.0 are two values, and names have no order.

    >>> canonical({"b": 1.0, "a": [1]})
    b'{"a":[1],"b":1.0}'
    """
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
