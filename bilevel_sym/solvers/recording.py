"""What is kept of a run: the last estimate and the best point of each trajectory, and all of them if asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.estimators.status import Status
from bilevel_sym.implicit.second_order import GRADIENT
from bilevel_sym.kernels import Counts, Kernels
from bilevel_sym.solvers.solution import COUNTERS, Best, Solution, Stats, Trajectory
from bilevel_sym.typing import Bools, Floats, Indices

__all__ = ["History", "Recorder"]

DIVERGED_BEYOND = 1e50  # what is beyond this when numbers end has run away
MAX_RECORD_BYTES = 8 * 2**30
ROWS = ("x", "y", "v", "grad", "phi", "status", "steps", "best_x", "best_y", "best_phi", "best_k")
FIRST_CAPACITY = 1024  # points of each trajectory that there is room for at first


@dataclass(frozen=True)
class History:
    """Arrays (S, K+1, ...) to be filled; NaN where nothing was."""

    x: Floats
    y: Floats
    v: Floats
    grad: Floats
    phi: Floats
    perturbed: Bools
    calls: NDArray[np.int64]

    @classmethod
    def empty(cls, size: int, stop: int, d: int, n: int) -> History:
        """Room for ``stop`` points of ``size`` trajectories."""
        x, y, v, grad = (np.full((size, stop, width), np.nan) for width in (d, n, n, d))
        flags, calls = np.zeros((size, stop), dtype=np.bool_), np.zeros((size, stop), dtype=np.int64)
        return cls(x, y, v, grad, np.full((size, stop), np.nan), flags, calls)

    def grown(self, stop: int) -> History:
        """The same with more room."""
        larger = History.empty(len(self.x), stop, self.x.shape[2], self.y.shape[2])
        for old, new in zip(vars(self).values(), vars(larger).values(), strict=True):
            new[:, : old.shape[1]] = old
        return larger


def _require_room(size: int, steps: int, d: int, n: int) -> None:
    if 8 * size * (steps + 1) * (2 * d + 2 * n + 2) > MAX_RECORD_BYTES:
        raise InvalidArgument(
            f"recording {size} trajectories of {steps} steps could take more than {MAX_RECORD_BYTES >> 30} GB",
            hint='record="last", fewer steps, or fewer trajectories at a time',
        )


class Recorder:
    """The books of one run, a row for each trajectory."""

    def __init__(self, kernels: Kernels, x: Floats, y: Floats, steps: int, record: bool) -> None:
        size, (d, n) = len(x), (x.shape[1], y.shape[1])
        self._kernels = kernels
        self.x, self.y = x.copy(), y.copy()
        self.v = np.full((size, n), np.nan)
        self.grad, self.phi = np.full((size, d), np.nan), np.full(size, np.nan)
        self.status = np.full(size, Status.RUNNING, dtype=np.int8)
        self.steps = np.zeros(size, dtype=np.int64)
        self.calls = {name: np.zeros(size, dtype=np.int64) for name in COUNTERS}
        self.best_x, self.best_y = x.copy(), y.copy()
        self.best_phi, self.best_k = np.full(size, np.inf), np.zeros(size, dtype=np.int64)
        self._steps = steps
        self.history: History | None = None
        if record:
            _require_room(size, steps, d, n)
            self.history = History.empty(size, min(steps + 1, FIRST_CAPACITY), d, n)

    def reserve(self, stop: int) -> History:
        """The history, with room for ``stop`` points: it doubles as it fills, up to what the steps can use."""
        if self.history is None:
            raise AssertionError("nothing is recorded")
        room = self.history.calls.shape[1]
        if stop > room:
            self.history = self.history.grown(max(stop, min(2 * room, self._steps + 1)))
        return self.history

    def memory(self) -> dict[str, NDArray[Any]]:
        """All but the history, which only grows: see ``past``."""
        rows = {name: getattr(self, name).copy() for name in ROWS}
        return rows | {f"calls_{name}": numbers.copy() for name, numbers in self.calls.items()}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Take back what ``memory`` told."""
        known = np.isin(memory["status"], list(Status)).all()
        if not known or ((memory["steps"] < 0) | (memory["steps"] > self._steps)).any():
            raise ValueError("no trajectory can have come there")
        for name in ROWS:
            getattr(self, name)[:] = memory[name]
        for name, numbers in self.calls.items():
            numbers[:] = memory[f"calls_{name}"]

    def past(self, k: int) -> dict[str, NDArray[Any]]:
        """What was recorded before the k-th point; it does not change any more."""
        return {} if self.history is None else {name: table[:, :k] for name, table in vars(self.reserve(k)).items()}

    def recall_past(self, k: int, tables: Mapping[str, NDArray[Any]]) -> None:
        """Take back what ``past`` told."""
        if self.history is not None:
            for name, table in vars(self.reserve(k)).items():
                table[:, :k] = tables[name]

    def count(self, active: Indices, calls: Mapping[str, Any]) -> None:
        """Note oracle calls: one number for all trajectories, or one each."""
        own = self._own(active)
        for name, number in calls.items():
            one = isinstance(number, int)  # the usual case, which must cost little
            each = number if one else np.broadcast_to(number, max(len(active), np.size(number)))[: len(active)]
            self.calls[name][own] += each

    def note(self, active: Indices, k: int, x: Floats, y: Floats, v: Floats, grad: Floats, phi: Floats) -> None:
        """The estimates of some trajectories at their k-th point.

        - ``active``: the trajectories.
        - ``k``: the number of the point.
        - ``x``, ``y``, ``v``, ``grad``, ``phi``: the point and its estimates, a row for each trajectory.
        """
        own = self._own(active)
        self.x[own], self.y[own], self.v[own], self.grad[own], self.phi[own] = x, y, v, grad, phi
        self.steps[own] = k
        better = phi < self.best_phi[own]
        if better.any():
            who = active[better]
            self.best_x[who], self.best_y[who], self.best_phi[who] = x[better], y[better], phi[better]
            self.best_k[who] = k
        if self.history is not None:
            h = self.reserve(k + 1)
            h.x[active, k], h.y[active, k], h.v[active, k] = x, y, v
            h.grad[active, k], h.phi[active, k] = grad, phi
            h.calls[active, k] = sum(self.calls[name][active] for name in COUNTERS)

    def _own(self, active: Indices) -> Indices | slice:
        """The rows of these trajectories; all of them as one slice, which costs less."""
        return slice(None) if len(active) == len(self.steps) else active

    def fail(self, active: Indices, codes: Any, k: Any, x: Floats, y: Floats, v: Floats) -> None:
        """Trajectories that could not be estimated at their k-th point.

        - ``active``: the trajectories.
        - ``codes``: their Status.
        - ``k``: the number of the point.
        - ``x``: the point, a row for each trajectory.
        - ``y``, ``v``: those of before.
        """
        self.x[active], self.y[active], self.v[active], self.steps[active] = x, y, v, k
        self.grad[active], self.phi[active] = np.nan, np.nan
        far = ~(np.abs(np.concatenate([x, y], axis=1)).max(axis=1, initial=0.0) <= DIVERGED_BEYOND)
        self.status[active] = np.where(far & (codes == Status.NOT_FINITE), Status.DIVERGED, codes)
        if self.history is not None and len(active):
            h = self.reserve(int(np.max(k)) + 1)
            h.x[active, k], h.y[active, k], h.v[active, k] = x, y, v
            h.calls[active, k] = sum(self.calls[name][active] for name in COUNTERS)

    def mark(self, active: Indices, k: int) -> None:
        """These trajectories leave their k-th point by a perturbation."""
        if self.history is not None:
            self.history.perturbed[active, k] = True

    def close(self, active: Indices, status: Status | NDArray[np.int8]) -> None:
        """These trajectories have ended."""
        self.status[active] = status

    def solution(self, shape: tuple[int, ...], seeds: tuple[int, ...], schedule: Any, stats: Stats) -> Solution:
        """The frozen outcome."""
        counters = Counts()
        counters.add(shape, **{name: self.calls[name].reshape(shape) for name in COUNTERS})
        self._look_for_kinks()
        statuses = tuple(Status(int(code)) for code in self.status)
        unseen = ~np.isfinite(self.best_phi)
        best_phi = np.where(unseen, np.nan, self.best_phi)
        return Solution(
            x=self._shaped(self.x, shape), y=self._shaped(self.y, shape),
            status=statuses if shape else statuses[0], steps=self.steps.reshape(shape)[()],
            best=Best(
                self._shaped(self.best_x, shape), self._shaped(self.best_y, shape),
                best_phi.reshape(shape)[()], self.best_k.reshape(shape)[()],
            ),
            counters=counters, seed=seeds, schedule=schedule,
            grad_phi_hat=self._shaped(self.grad, shape), phi_hat=self.phi.reshape(shape)[()],
            kernels=self._kernels, stats=stats, recorded=self._trajectory(shape),
        )  # fmt: skip

    def _look_for_kinks(self) -> None:
        """A run may pass over a kink; one that ends on it has no gradient there, whatever was estimated."""
        kinks = self._kernels.kinks
        if kinks is None:
            return
        ended = np.flatnonzero(np.isin(self.status, (Status.OUT_OF_STEPS, Status.STOPPED, Status.NO_CURVATURE)))
        xy = np.concatenate([self.x[ended], self.y[ended]], axis=1)
        self.status[ended[list(kinks.met(GRADIENT, xy))]] = Status.KINK

    def _trajectory(self, shape: tuple[int, ...]) -> Trajectory | None:
        if self.history is None:
            return None
        h, length = self.history, self.steps + 1
        np.maximum.accumulate(h.calls, axis=1, out=h.calls)  # beyond the end, the total
        stop = int(length.max(initial=1))

        def cut(table: Any) -> Any:
            return table[:, :stop] if shape else table[0, :stop]

        return Trajectory(
            cut(h.x), cut(h.y), cut(h.v), cut(h.grad), cut(h.phi), cut(h.perturbed), cut(h.calls),
            length.reshape(shape)[()], self._kernels,
        )  # fmt: skip

    @staticmethod
    def _shaped(rows: Floats, shape: tuple[int, ...]) -> Floats:
        return rows.reshape((*shape, rows.shape[1]))
