"""What computes blocks in float64: engines and their sessions, as protocols, so that everything above is shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Engine", "Floats", "Session"]

Floats: TypeAlias = NDArray[np.float64]


class Session(Protocol):
    """Lanes of one program. The inputs come in stages: 0 is (x, y), 1 is v, 2 is two directions in (x, y)."""

    def put(self, stage: int, values: Floats) -> None:
        """Give the inputs of one stage, (lanes, inputs), and perform it; earlier stages come first."""

    def take(self, name: str) -> Floats:
        """One block, (lanes, ...); valid until it is taken again."""


class Engine(Protocol):
    """Blocks by name for many points at once."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    def session(self, names: Sequence[str], lanes: int) -> Session:
        """Lanes in which these blocks can be computed."""

    def lanes(self, names: Sequence[str]) -> int:
        """How many lanes are best at a time."""
