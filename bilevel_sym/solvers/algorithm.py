"""What the loop and an algorithm say to each other.

An algorithm is a frozen configuration. ``start`` makes a Run for one problem, which estimates at the points where the
ensemble is, and moves it. The ensemble is the loop's: the trajectories still running, one per lane.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.arithmetic.arrays import whole_blocks
from bilevel_sym.estimators.hypergradient import Calls, Codes, Estimate, Estimator
from bilevel_sym.estimators.oracle import ExactOracle, filled, in_lanes, out_of_lanes
from bilevel_sym.kernels import Kernels
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.typing import Bools, Floats, Indices

__all__ = ["Algorithm", "Ends", "Ensemble", "EstimatedRun", "Flags", "Forgetful", "Move", "Run"]

Flags: TypeAlias = Bools


@dataclass
class Ensemble:
    """The trajectories still running. Lanes beyond them are filling.

    - ``active``: lane j holds trajectory ``active[j]``.
    - ``x``: the points, (d, lanes).
    - ``y``: the lower-level estimates, (n, lanes).
    - ``v``: the solutions of the linear systems, (n, lanes).
    - ``clock``: a number that an algorithm keeps for each lane.
    - ``streams``: the random stream of each trajectory; that of lane j is ``streams[active[j]]``.

    >>> ensemble = Ensemble.gather(np.array([[1.0, 2.0]]), np.zeros((1, 3)), np.zeros((1, 3)), clock=0, streams=())
    >>> ensemble.size, ensemble.x.shape, ensemble.rows(ensemble.x)
    (1, (2, 16), array([[1., 2.]]))
    """

    active: Indices
    x: Floats
    y: Floats
    v: Floats
    clock: NDArray[np.int64]
    streams: Sequence[np.random.Generator] = field(repr=False)

    @classmethod
    def gather(cls, x: Floats, y: Floats, v: Floats, clock: int, streams: Sequence[np.random.Generator]) -> Ensemble:
        """All trajectories, at their starts.

        - ``x``: rows, (S, d).
        - ``y``: rows, (S, n).
        - ``v``: rows, (S, n).
        - ``clock``: what every clock shows at the start.
        - ``streams``: S random streams.
        """
        clocks = np.full(whole_blocks(len(x)), clock, dtype=np.int64)
        return cls(np.arange(len(x)), in_lanes(x), in_lanes(y), in_lanes(v), clocks, streams)

    @property
    def size(self) -> int:
        """How many trajectories run."""
        return len(self.active)

    def keep(self, staying: Flags) -> None:
        """Keep these; lanes move together, so that those that ended cost nothing."""
        chosen = np.flatnonzero(staying[: self.size])
        self.active = self.active[chosen]
        if not len(chosen):
            return
        lanes = filled(chosen)
        self.x, self.y, self.v = (np.ascontiguousarray(part[:, lanes]) for part in (self.x, self.y, self.v))
        self.clock = self.clock[lanes]

    def memory(self) -> dict[str, NDArray[Any]]:
        """Where each trajectory is; rows of those that ended are NaN."""
        size = len(self.streams)
        told: dict[str, NDArray[Any]] = {"running": np.zeros(size, dtype=np.bool_)}
        told["running"][self.active] = True
        for name in ("x", "y", "v"):
            told[name] = np.full((size, len(getattr(self, name))), np.nan)
            told[name][self.active] = self.rows(getattr(self, name))
        told["clock"] = np.zeros(size, dtype=np.int64)
        told["clock"][self.active] = self.clock[: self.size]
        return told

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Stand there again."""
        self.active = np.flatnonzero(memory["running"])
        if not self.size:
            raise ValueError("no trajectory runs")
        self.x, self.y, self.v = (in_lanes(memory[name][self.active]) for name in ("x", "y", "v"))
        self.clock = memory["clock"][filled(self.active)]

    def rows(self, table: Floats) -> Floats:
        """The running lanes of a table, as rows."""
        return out_of_lanes(table, self.size)


class Move(NamedTuple):
    """Where the ensemble goes.

    - ``x``: the next points, (d, lanes).
    - ``perturbed``: which lanes are perturbed.
    - ``finished``: a Status for the lanes that end, 0 for the others.
    - ``calls``: what it cost beyond the estimate.

    >>> Move.to(np.zeros((2, 1)))
    Move(x=array([[0.],
           [0.]]), perturbed=array([False]), finished=array([0], dtype=int8), calls={})
    """

    x: Floats
    perturbed: Flags
    finished: Codes
    calls: Calls

    @classmethod
    def to(cls, x: Floats, perturbed: Flags | None = None) -> Move:
        """All go to x, none is done, and it costs nothing beyond the estimate."""
        lanes = x.shape[1]
        none = np.zeros(lanes, dtype=np.bool_)
        return cls(x, none if perturbed is None else perturbed, np.zeros(lanes, dtype=np.int8), {})


# (k, ensemble, estimate) -> a Status for each lane that ends there, 0 for the others
Ends: TypeAlias = Callable[[int, Ensemble, Estimate], Any]


class Run(Protocol):
    """An algorithm at work on one problem."""

    @property
    def clock(self) -> int:
        """What every clock shows at the start."""

    def estimate(self, ensemble: Ensemble) -> Estimate:
        """The hypergradient where the ensemble is."""

    def move(self, ensemble: Ensemble, estimate: Estimate) -> Move:
        """Where it goes from there; updates the clocks."""


class EstimatedRun(ABC):
    """A run that asks one estimator wherever the ensemble stands; a child says in ``move`` where it goes from there.

    >>> from bilevel_sym import BilevelProblem, Exact
    >>> class Half(EstimatedRun):
    ...     def move(self, ensemble, estimate):
    ...         return Move.to(ensemble.x - 0.5 * estimate.grad)
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> run = Half(Exact(), problem, problem.kernels)
    >>> ensemble = Ensemble.gather(np.array([[1.0]]), np.zeros((1, 1)), np.zeros((1, 1)), run.clock, ())
    >>> ensemble.rows(run.move(ensemble, run.estimate(ensemble)).x)
    array([[0.]])
    """

    clock = 0

    def __init__(self, estimator: Estimator, problem: BilevelProblem, kernels: Kernels) -> None:
        estimator.check(problem)
        self.estimator, self.kernels, self.oracle = estimator, kernels, ExactOracle(kernels)

    def estimate(self, ensemble: Ensemble) -> Estimate:
        """The hypergradient where the ensemble is, y and v carried on from the last one."""
        return self.estimator.in_lanes(self.oracle, ensemble.x, ensemble.y, ensemble.v)

    @abstractmethod
    def move(self, ensemble: Ensemble, estimate: Estimate) -> Move:
        """Where it goes from there.

        A lane must not depend on its neighbours; what a trajectory keeps from step to step belongs to its number in
        ``ensemble.active``, since lanes move together when others end.
        """


class Forgetful:
    """A run that keeps nothing besides the ensemble: a checkpoint needs nothing of it.

    >>> Forgetful().memory(3)
    {}
    """

    def memory(self, size: int) -> dict[str, NDArray[Any]]:
        """Nothing, for any number of trajectories."""
        return {}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Nothing."""


class Algorithm(Protocol):
    """A frozen configuration that ``solve`` can run: Descent, Perturbed, StocBiO, or anything with ``start``.

    >>> from bilevel_sym import Descent, Exact
    >>> algorithm: Algorithm = Descent(Exact(), eta=0.1)
    """

    def start(self, problem: BilevelProblem, kernels: Kernels) -> Run:
        """Set to work on a problem; refuses one that it is not made for."""
