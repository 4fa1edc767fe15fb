"""An entry is one call of a library in one setting; judged on a problem by the test kit it makes a row."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

import verify
from bilevel_sym import BilevelProblem
from bilevel_sym.system.budget import Effort
from verify.testkit.sample_points import sample_points

__all__ = ["EFFORT", "Entry", "Row", "Setting", "judge", "missing", "rows", "version"]

Setting = Literal["defaults", "tight"]
Make = Callable[[BilevelProblem], Callable[[Any], Any]]
EFFORT = 0.03  # 600 calls: a few milliseconds each, seldom more, and hundreds of rows
MOST_SAID = 160  # characters of what was said


@dataclass(frozen=True)
class Entry:
    """A call of a library.

    - ``library``: the name of its distribution.
    - ``call``: what is called.
    - ``setting``: "defaults", or "tight": as exact as float64 allows.
    - ``options``: what was set, in words.
    - ``needs``: the modules without which it is left out.
    - ``make``: the candidate for a problem.
    - ``kind``: what the candidate is to compute.
    """

    library: str
    call: str
    setting: Setting
    options: str
    needs: tuple[str, ...]
    make: Make
    kind: Literal["hypergradient", "lower solution"] = "hypergradient"


@dataclass(frozen=True)
class Row:
    """What the kit said of an entry on a problem; ``digits`` are right at the worst point, None where unknown."""

    library: str
    version: str
    call: str
    setting: Setting
    options: str
    kind: str
    problem: str
    verdict: str
    digits: float | None
    cause: str
    said: str

    @property
    def who(self) -> tuple[str, str, str, str]:
        """What stands in one line of the table, with both settings side by side."""
        return self.library, self.version, self.call, self.kind


def missing(entry: Entry) -> tuple[str, ...]:
    """The modules that are not installed."""
    return tuple(name for name in entry.needs if find_spec(name) is None)


def version(library: str) -> str:
    """As its distribution says, without what a build adds after a plus."""
    try:
        return metadata.version(library).partition("+")[0]
    except metadata.PackageNotFoundError:
        return "?"


def judge(entry: Entry, name: str, problem: BilevelProblem, effort: Effort = EFFORT) -> Row:
    """Ask the kit. What a library raises is said as it stands, and is no verdict of ours."""
    check = verify.check_lower_solution if entry.kind == "lower solution" else verify.check_hypergradient
    digits: float | None = None
    verdict, cause, said = "", "", ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries, about versions of others
            points = sample_points(problem, np.random.default_rng(0))
            result = check(entry.make(problem), problem, points=points, effort=effort)
        verdict, cause, said = str(result.verdict), str(result.cause or ""), result.summary
        if result.digits == result.digits:  # a nan is no number of digits
            digits = round(result.digits, 1)
    except Exception as error:  # noqa: BLE001 - whatever a library raises is an answer of its own
        first = next(iter(str(error).strip().splitlines()), "")
        verdict, cause, said = "raises", type(error).__name__, first
    return Row(
        entry.library, version(entry.library), entry.call, entry.setting, entry.options, entry.kind, name,
        verdict, digits, cause, _plain(said),
    )  # fmt: skip


def rows(
    entries: Iterable[Entry], problems: dict[str, Callable[[], BilevelProblem]], effort: Effort = EFFORT
) -> Iterator[Row]:
    """All entries that are installed, on all problems."""
    for entry in entries:
        if not missing(entry):
            for name, make in problems.items():
                yield judge(entry, name, make(), effort)


def _plain(said: str) -> str:
    """One line without paths of this machine and without what would end a cell of a table."""
    line = re.sub(r"(?<![\w/:])(/[\w.+-]+){2,}/", "", " ".join(said.split())).replace("|", "/")
    return line if len(line) <= MOST_SAID else f"{line[:MOST_SAID]}..."
