"""Solutions of parts of an ensemble, joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.kernels import Counts
from bilevel_sym.solvers.solution import COUNTERS, Best, Solution, Trajectory

__all__ = ["joined_solution"]

ENDS = ("x", "y", "steps", "grad_phi_hat", "phi_hat")  # of a solution
FLOATS = ("x", "y", "v", "grad_phi_hat", "phi_hat")  # of a trajectory: nan beyond its end


def joined_solution(parts: Sequence[Solution]) -> Solution:
    """The solution of the whole; see ``Solution.concatenate``."""
    _check(parts)
    first = parts[0]
    counters = Counts()
    size = sum(len(part.x) for part in parts)
    counters.add((size,), **{name: _end_to_end([getattr(part.counters, name) for part in parts]) for name in COUNTERS})
    return replace(
        first,
        **{name: _end_to_end([getattr(part, name) for part in parts]) for name in ENDS},
        status=tuple(chain.from_iterable(part.statuses for part in parts)),
        seed=tuple(chain.from_iterable(part.seed for part in parts)),
        best=Best(*(_end_to_end([getattr(part.best, f.name) for part in parts]) for f in fields(Best))),
        counters=counters,
        recorded=None if first.recorded is None else _recorded([part.trajectory for part in parts]),
    )  # fmt: skip


def _check(parts: Sequence[object]) -> None:
    """Refuse what are not parts of one ensemble."""
    solutions = [part for part in parts if isinstance(part, Solution)]
    if not solutions or len(solutions) < len(parts):
        raise InvalidArgument(
            "concatenate wants solutions, one or several", hint="Solution.concatenate([first, second])"
        )
    first = solutions[0]
    for part in solutions:
        if part.x.ndim != 2:
            raise InvalidArgument(
                "a solution of one trajectory (d,) is no part of an ensemble", hint="solve with x0 of shape (1, d)"
            )
        if part.kernels.problem != first.kernels.problem:
            raise InvalidArgument("the solutions are of different problems", hint="parts of one ensemble")
        if part.schedule != first.schedule:
            raise InvalidArgument("the solutions are of different algorithms", hint="parts of one ensemble")
        if (part.recorded is None) != (first.recorded is None):
            raise InvalidArgument("some solutions have their iterates, and some have not", hint="one record= for all")


def _end_to_end(arrays: Sequence[Any]) -> Any:
    return np.concatenate(arrays)


def _recorded(parts: Sequence[Trajectory]) -> Trajectory:
    """As long as the longest; beyond the end of a trajectory as ``solve`` leaves it."""
    length = max(part.x.shape[1] for part in parts)
    tables = {name: _end_to_end([_filled(getattr(part, name), length, np.nan) for part in parts]) for name in FLOATS}
    return replace(
        parts[0],
        **tables,
        perturbed=_end_to_end([_filled(part.perturbed, length, False) for part in parts]),
        calls=_end_to_end([np.pad(p.calls, ((0, 0), (0, length - p.calls.shape[1])), mode="edge") for p in parts]),
        length=_end_to_end([part.length for part in parts]),
    )


def _filled(table: Any, length: int, value: Any) -> Any:
    rest = np.full((len(table), length - table.shape[1], *table.shape[2:]), value, dtype=table.dtype)
    return np.concatenate([table, rest], axis=1)
