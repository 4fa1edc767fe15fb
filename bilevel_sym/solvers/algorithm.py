"""What the loop and an algorithm say to each other.

An algorithm is a frozen configuration. ``start`` makes a Run for one problem, which estimates at the points where the
team stands, and moves it. The team is the loop's: the trajectories still running, one a lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.engine import Floats
from bilevel_sym.hypergradient import Calls, Codes, Estimate
from bilevel_sym.kernels import Kernels
from bilevel_sym.oracle import filled, in_lanes, out_of_lanes
from bilevel_sym.problem import BilevelProblem
from bilevel_sym.tape.arrays import whole_blocks

__all__ = ["Algorithm", "Ends", "Flags", "Move", "Run", "Team"]

Flags: TypeAlias = NDArray[np.bool_]
Members: TypeAlias = NDArray[np.intp]


@dataclass
class Team:
    """The trajectories still running. Lane j holds trajectory ``members[j]``; lanes beyond them are filling.

    ``clock`` is a number that an algorithm keeps for each trajectory; ``streams`` are the random streams of all.
    """

    members: Members
    x: Floats
    y: Floats
    v: Floats
    clock: NDArray[np.int64]
    streams: Sequence[np.random.Generator] = field(repr=False)

    @classmethod
    def gather(cls, x: Floats, y: Floats, v: Floats, clock: int, streams: Sequence[np.random.Generator]) -> Team:
        """All trajectories, from rows (S, d) and (S, n)."""
        clocks = np.full(whole_blocks(len(x)), clock, dtype=np.int64)
        return cls(np.arange(len(x)), in_lanes(x), in_lanes(y), in_lanes(v), clocks, streams)

    @property
    def size(self) -> int:
        """How many trajectories run."""
        return len(self.members)

    def keep(self, staying: Flags) -> None:
        """Let the others go; lanes move together, so that those who left cost nothing."""
        chosen = np.flatnonzero(staying[: self.size])
        self.members = self.members[chosen]
        if not len(chosen):
            return
        lanes = filled(chosen)
        self.x, self.y, self.v = (np.ascontiguousarray(part[:, lanes]) for part in (self.x, self.y, self.v))
        self.clock = self.clock[lanes]

    def rows(self, table: Floats) -> Floats:
        """The running lanes of a table, as rows."""
        return out_of_lanes(table, self.size)


class Move(NamedTuple):
    """Where the team goes: x (d, lanes); who was perturbed; a Status for those who are done; what it cost."""

    x: Floats
    perturbed: Flags
    finished: Codes
    calls: Calls


# (k, team, estimate) -> a Status for each lane that ends there, 0 for the others
Ends: TypeAlias = Callable[[int, Team, Estimate], Any]


class Run(Protocol):
    """An algorithm at work on one problem."""

    @property
    def clock(self) -> int:
        """What every clock shows at the start."""

    def estimate(self, team: Team) -> Estimate:
        """The hypergradient where the team stands."""

    def move(self, team: Team, estimate: Estimate) -> Move:
        """Where it goes from there; updates the clocks."""


class Algorithm(Protocol):
    """A frozen configuration: Descent, Perturbed, StocBiO."""

    def start(self, problem: BilevelProblem, kernels: Kernels) -> Run:
        """Set to work on a problem; refuses one that it is not made for."""
