"""Functions that tests of clusters name as tasks: workers import them from here."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilevel_sym import Descent


def pausing(seed: int, pause: float = 0.0) -> dict[str, Any]:
    """Columns of several kinds, after a pause that takes no processor."""
    time.sleep(pause)
    return {"third": seed / 3, "even": seed % 2 == 0, "name": f"seed {seed}", "path": [0.1 * seed, 1.0]}


def deadly(seed: int, log: str) -> int:
    """Where the seed is 3, the worker dies, always; where it is 5, the first time."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{seed}\n")
    if seed == 3 or (seed == 5 and Path(log).read_text(encoding="utf-8").split().count("5") == 1):
        os._exit(1)
    return seed


def processes(seed: int, log: str) -> int:
    """Leaves the number of its process."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.01)
    return seed


@dataclass(frozen=True)
class Counted(Descent):
    """Leaves the number of every process that unpacks it."""

    log: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return counted, (self.estimator, self.eta, self.log)


def counted(estimator: Any, eta: float, log: str) -> Counted:
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    return Counted(estimator, eta, log=log)
