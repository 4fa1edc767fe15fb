"""``solve(..., checkpoint=path)``: what a run remembers is written every so many steps, and gone on from bit by bit.

All that changes from step to step belongs to a few parts: where the trajectories stand, what was recorded, the random
streams, the stopping rule, the algorithm's own memory. Each can tell it in arrays (``memory``) and take it back
(``recall``). Before each step the arrays are copied; what is written is always such a copy, so that an interruption in
the middle of a step costs that step and nothing else.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bilevel_sym import __version__
from bilevel_sym.errors import CannotWrite, CheckpointFailure, InvalidArgument
from bilevel_sym.estimators.checks import count
from bilevel_sym.kernels import Kernels
from bilevel_sym.solvers.algorithm import Run
from bilevel_sym.solvers.checkpoint_file import Arrays, Saved, read_checkpoint, same_layout, write_checkpoint
from bilevel_sym.solvers.local_minimum import LocalMinimum
from bilevel_sym.solvers.recording import Recorder
from bilevel_sym.system.plain_text import named
from bilevel_sym.system.writing import check_target

__all__ = ["Keeper", "Remembers", "RunMemory", "identity", "saved_seeds"]

SHOWN_LETTERS = 60  # letters of what differs that are shown
PAST = "past."  # before the names of what was recorded


class Remembers(Protocol):
    """A part of a run that changes from step to step."""

    def memory(self) -> Arrays:
        """Copies of all that changes; names, types and shapes are the same before every step."""

    def recall(self, memory: Arrays) -> None:
        """Take the arrays back; raises ValueError where they cannot be."""


@dataclass(frozen=True)
class RunMemory:
    """What an algorithm's run remembers besides the ensemble, for so many trajectories.

    A run says so itself, in ``memory(size)`` and ``recall(arrays)``: nothing else can know.
    """

    run: Any
    size: int

    @classmethod
    def of(cls, run: Run, size: int) -> RunMemory:
        """Refuses a run that does not say what it remembers."""
        if not hasattr(run, "memory") or not hasattr(run, "recall"):
            raise InvalidArgument(
                f"{type(run).__name__} does not say what it remembers from step to step, so it has no checkpoints",
                hint="give it memory(size) -> {name: array} and recall(arrays), or leave checkpoint out",
            )
        return cls(run, size)

    def memory(self) -> Arrays:
        """By the run."""
        told: Arrays = dict(self.run.memory(self.size))
        return told

    def recall(self, memory: Arrays) -> None:
        """To the run."""
        self.run.recall(memory)


# ---- whose it is ------------------------------------------------------------------------------------------


def identity(
    kernels: Kernels, algorithm: object, starts: Mapping[str, NDArray[Any]], seeds: tuple[int, ...], stop: object,
    record: str, *, compiled: bool,
) -> dict[str, Any]:  # fmt: skip
    """All that must be the same for a run to go on from a checkpoint, as it stands in the file. The steps may grow.

    - ``kernels``: of the problem, with their backend.
    - ``algorithm``: with all of its parameters.
    - ``starts``: x0, y0 and v0.
    - ``seeds``: one for each trajectory.
    - ``stop``: the stopping rule.
    - ``record``: "all" or "last".
    - ``compiled``: whether the compiled loop runs.

    >>> from bilevel_sym import BilevelProblem, Descent, Exact
    >>> kernels = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y").kernels
    >>> identity(kernels, Descent(Exact(), 0.1), {"x0": np.zeros((1, 1))}, (0,), None, "all", compiled=False)["stop"]
    'None'
    """
    told = repr(algorithm)
    if " object at 0x" in told:
        raise InvalidArgument(
            f"{type(algorithm).__name__} does not show its parameters, so nothing tells it from another",
            hint="make it a dataclass, or leave checkpoint out",
        )
    rule = repr(stop) if stop is None or isinstance(stop, (str, LocalMinimum)) else _called(stop)
    return {
        "version": __version__, "numpy": np.__version__, "machine": platform.machine(),
        "engine": f"{kernels.engine}, {_compiler()}" if kernels.engine == "compiled" else kernels.engine,
        "loop": "compiled" if compiled else "plain", "problem": kernels.problem.digest,
        "algorithm": f"{type(algorithm).__module__}: {told}", "stop": rule, "record": record,
        **{name: _digest(rows) for name, rows in starts.items()}, "seeds": list(seeds),
    }  # fmt: skip


def _called(stop: object) -> str:
    return f"{getattr(stop, '__module__', '')}.{getattr(stop, '__qualname__', type(stop).__qualname__)}"


def _compiler() -> str:
    return f"numba {metadata.version('numba')}" if importlib.util.find_spec("numba") else "no numba"


def _digest(rows: NDArray[Any]) -> str:
    return hashlib.sha256(repr(rows.shape).encode() + np.ascontiguousarray(rows).tobytes()).hexdigest()


def saved_seeds(saved: Saved | None, size: int) -> tuple[int, ...] | None:
    """The seeds of a checkpoint, for a run that was begun with fresh ones; None where they do not fit."""
    seeds = [] if saved is None else saved.about.get("seeds")
    if not isinstance(seeds, list) or len(seeds) != size or any(type(s) is not int or s < 0 for s in seeds):
        return None
    return tuple(seeds)


# ---- keeping ----------------------------------------------------------------------------------------------


class Keeper:
    """Keeps a run in a file; without a path it keeps nothing, and costs nothing."""

    def __init__(self, path: str | os.PathLike[str] | None, every: int) -> None:
        self._path, self._every = path, count("checkpoint_every", every)
        self._name = "" if path is None else named(path)
        self.saved: Saved | None = None
        self._parts: dict[str, Remembers] = {}
        self._copy: tuple[int, Arrays] | None = None
        self._written = 0
        if path is not None:
            self.saved = read_checkpoint(path)
            check_target(path)

    @property
    def active(self) -> bool:
        """Whether anything is kept."""
        return self._path is not None

    def belongs(self, about: dict[str, Any], recorder: Recorder, steps: int) -> None:
        """Whose run it is; refuses a checkpoint of another one."""
        self._about, self._recorder = about, recorder
        if self.saved is None:
            return
        there, k = self.saved.about, self.saved.k
        differing = [
            _difference(name, there.get(name), value) for name, value in about.items() if there.get(name) != value
        ]
        if k > steps:
            differing.append(f"it has made {k} steps, and steps is {steps}")
        if differing:
            raise CheckpointFailure(f"{self._name} is a checkpoint of another run: {'; '.join(differing)}")

    def begin(self, **parts: Remembers | None) -> int:
        """Take back what the file holds; the step to go on from, 0 without one."""
        if not self.active:
            return 0
        self._parts = {name: part for name, part in parts.items() if part is not None}
        self._parts["recorder"] = self._recorder
        if self.saved is None:
            return 0
        k, arrays = self.saved.k, self.saved.arrays
        wanted = self._named() | self._past(k)
        try:
            if not same_layout(arrays, wanted):
                raise ValueError
            for name, part in self._parts.items():
                part.recall(_under(f"{name}.", arrays))
            self._recorder.recall_past(k, _under(PAST, arrays))
        except ValueError:
            raise CheckpointFailure(f"{self._name} does not hold what this run remembers") from None
        self._written, self.saved = k, None
        return k

    def until(self, k: int) -> int:
        """How many steps may be made before something is to be written."""
        return max(1, self._written + self._every - k) if self.active else 2**62

    def at(self, k: int) -> None:
        """The run stands before its k-th estimate."""
        if not self.active:
            return
        self._copy = k, self._named()
        if k - self._written >= self._every:
            self.save()

    def save(self) -> None:
        """Write the last copy. A disk that is full takes nothing from the run: it is told, and the old file stays."""
        if self._copy is None or self._path is None:
            return
        k, arrays = self._copy
        try:
            write_checkpoint(self._path, Saved(self._about, k, arrays | self._past(k)))
        except CannotWrite as error:
            warnings.warn(f"no checkpoint at step {k}: {error}", stacklevel=2)
        self._written = k

    def _named(self) -> Arrays:
        return {f"{name}.{key}": a for name, part in self._parts.items() for key, a in part.memory().items()}

    def _past(self, k: int) -> Arrays:
        return {f"{PAST}{key}": array for key, array in self._recorder.past(k).items()}


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _difference(name: str, there: object, here: object) -> str:
    if name in ("problem", "x0", "y0", "v0"):
        return f"the {name} is another" if name == "problem" else f"{name} is another"
    there, here = str(there), str(here)
    shared = next((k for k, (a, b) in enumerate(zip(there, here, strict=False)) if a != b), 0)
    start = max(0, shared - SHOWN_LETTERS // 2)  # long ones from a little before they differ
    old, new = (("..." if start else "") + text[start : start + SHOWN_LETTERS] for text in (there, here))
    return f"{name} is {old} there and {new} here"
