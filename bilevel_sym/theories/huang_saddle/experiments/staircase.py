"""Stairs: what a learning curve that is "nearly a step function" is, in numbers.

A run goes down past the saddle points of the tube, whose values lie one above the other at equal distances. It is on
the plateau of a saddle point while Phi is near its value, and has passed it once Phi is well below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.typing import Bools, Floats

__all__ = ["PLATEAU_ITERATIONS", "PLATEAU_SHARE", "Staircase", "climb_down"]

PLATEAU_SHARE = 0.05  # of the height of a stair: a plateau
PLATEAU_ITERATIONS = 10  # iterations that make a plateau


@dataclass(frozen=True)
class Staircase:
    """How the runs of one method go down the stairs.

    ``passed``: how many saddle points each run has passed at the end. ``arrival``: the median iteration at which a run
    is in the last basin; infinite where less than half of them are. ``dwell``: for each saddle point, first to last,
    the median number of iterations that the runs which passed it spent on its plateau; nan where less than half passed
    it. ``on_plateaus``: the part of all iterations before arrival that is spent on plateaus. ``stairs``: the part of
    all saddle points passed that were passed with a plateau of 10 iterations or more. ``aided``: the part of those from
    the second on, the first of a run being where it starts, that were left after a perturbation on their plateau.
    ``rise``: the largest rise of Phi in one iteration, in stairs.
    """

    passed: tuple[int, ...]
    arrival: float
    dwell: tuple[float, ...]
    on_plateaus: float
    stairs: float
    aided: float
    rise: float

    @property
    def longest(self) -> float:
        """The longest median plateau."""
        return max((value for value in self.dwell if not math.isnan(value)), default=math.nan)

    @property
    def growth(self) -> float:
        """By what factor plateaus grow from saddle point to saddle point, after the first: a geometric mean."""
        known = [value for value in self.dwell[1:] if value > 0]
        return (known[-1] / known[0]) ** (1 / (len(known) - 1)) if len(known) > 1 else math.nan


def climb_down(gap: Floats, height: float, d: int, perturbed: Bools) -> Staircase:
    """Measure runs: Phi - min Phi of shape (runs, iterations), d stairs of that height; who was perturbed, and when.

    >>> steps = np.repeat([2.0, 1.0, 0.0], 20)[None]
    >>> found = climb_down(steps, 1.0, 2, np.zeros(steps.shape, dtype=bool))
    >>> found.passed, found.arrival, found.dwell, found.stairs, found.aided
    ((2,), 40.0, (20.0, 20.0), 1.0, 0.0)
    """
    level = gap / height
    nearest = np.round(level).astype(np.int64)
    flat = np.abs(level - nearest) <= PLATEAU_SHARE
    passed = np.clip(d - np.ceil(level[:, -1] - 0.5).astype(np.int64), 0, d)
    stays, helped = [], []
    for stair in range(d):  # the value of saddle point number stair + 1 is d - stair stairs above the minimum
        here = flat & (nearest == d - stair)
        stays.append(here.sum(axis=1))
        helped.append((here[:, : perturbed.shape[1]] & perturbed[:, : here.shape[1]]).any(axis=1))
    stay, help_ = np.array(stays).T, np.array(helped).T
    left = np.arange(d) < passed[:, None]
    before = level > 0.5
    return Staircase(
        passed=tuple(passed.tolist()),
        arrival=_arrival(before),
        dwell=tuple(_typical(stay[left[:, k], k], len(gap)) for k in range(d)),
        on_plateaus=_part(flat[before]),
        stairs=_part(stay[left] >= PLATEAU_ITERATIONS),
        aided=_part(help_[:, 1:][left[:, 1:]]),
        rise=float(np.diff(level, axis=1).max(initial=0.0)),
    )


def _arrival(before: Bools) -> float:
    first = np.where(before[:, -1], np.inf, before.shape[1] - np.argmax(before[:, ::-1], axis=1))
    first[~before.any(axis=1)] = 0.0
    return float(np.median(first))


def _typical(values: NDArray[np.int64], runs: int) -> float:
    return float(np.median(values)) if 2 * len(values) >= runs and len(values) else math.nan


def _part(flags: Bools) -> float:
    return float(np.mean(flags)) if flags.size else math.nan
