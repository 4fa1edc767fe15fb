"""Budgets: how much work may be done, counted, so that a slow or busy machine gives the same answer, later.

A search that can stop early is given a ``Budget`` in units of work (boxes, calls of a user's function, iterations,
draws), and stops when they are spent. Nothing else in the toolkit decides anything by the clock. A ``Deadline`` is for
people in a hurry: what it cuts says so, and is never called done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic, time_ns
from types import MappingProxyType
from typing import Literal

from bilevel_sym.errors import InvalidArgument, TimeIsUp

__all__ = ["EFFORTS", "Budget", "Deadline", "Effort", "Stopwatch", "deadline_of", "moment", "scale_of"]

Effort = Literal["quick", "default", "thorough"] | float
EFFORTS: Mapping[str, float] = MappingProxyType({"quick": 0.1, "default": 1.0, "thorough": 10.0})


def scale_of(effort: Effort) -> float:
    """How much more work than by default an effort asks for: a name, or that number itself.

    >>> scale_of("quick"), scale_of("default"), scale_of(2.5)
    (0.1, 1.0, 2.5)
    >>> scale_of("much")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: effort='much'
    try: 'quick', 'default', 'thorough', or a number from 0: 2 is twice the default
    """
    if isinstance(effort, str) and effort in EFFORTS:
        return EFFORTS[effort]
    if isinstance(effort, (int, float)) and not isinstance(effort, bool) and 0 <= effort < math.inf:
        return float(effort)
    raise InvalidArgument(
        f"effort={effort!r:.40}", hint="'quick', 'default', 'thorough', or a number from 0: 2 is twice the default"
    )


class Stopwatch:
    """For how long something has been going on: to be shown to people, never to decide.

    >>> Stopwatch().elapsed >= 0
    True
    """

    def __init__(self) -> None:
        self._begun = monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since it was made."""
        return monotonic() - self._begun

    def each(self, count: int) -> float:
        """Seconds since it was made, shared out among so many pieces of work.

        >>> Stopwatch().each(2) >= 0
        True
        """
        return (monotonic() - self._begun) / max(count, 1)

    def whole(self, share: float) -> float:
        """Seconds that all of a work takes, where so much of it was done since this was made.

        >>> Stopwatch().whole(0.5) >= 0
        True
        """
        return (monotonic() - self._begun) / share


def moment() -> int:
    """Microseconds since 1970, as the machine's calendar has it: to be shown to people, never to decide.

    >>> moment() > 1_700_000_000_000_000
    True
    """
    return time_ns() // 1000


class Deadline:
    """A limit in seconds for people in a hurry; None is no limit.

    >>> Deadline(None).passed, Deadline(1e-9).passed
    (False, True)
    >>> Deadline(1e-9).check()
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.TimeIsUp: cut by time: 1e-09 s were allowed
    try: more seconds, or less effort
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = _limit(seconds)
        self._ends = None if self.seconds is None else monotonic() + self.seconds  # without a limit no clock is read
        self._cut = False

    @property
    def passed(self) -> bool:
        """Whether the time is up; once it is, it stays so."""
        if not self._cut and self._ends is not None:
            self._cut = monotonic() >= self._ends
        return self._cut

    @property
    def cut(self) -> bool:
        """Whether it was ever found to have passed: then what rests on it is not whole."""
        return self._cut

    def check(self) -> None:
        """Raise where the time is up."""
        if self.passed:
            raise TimeIsUp(f"cut by time: {self.seconds:g} s were allowed", hint="more seconds, or less effort")

    def within(self, share: float) -> Deadline:
        """One that passes after a share of what is left: for a piece of work that is to leave time for the rest.

        >>> Deadline(None).within(0.5).seconds is None, 1.9 < Deadline(4).within(0.5).seconds <= 2
        (True, True)
        """
        return self if self._ends is None or self.passed else Deadline(max(1e-9, share * (self._ends - monotonic())))


@dataclass(eq=False)
class Budget:
    """So many units of work, and, for people in a hurry, a deadline.

    >>> budget = Budget(10)
    >>> budget.spend(8)
    >>> budget.left, budget.allows(2), budget.allows(3)
    (2.0, True, False)
    """

    work: float
    deadline: Deadline = field(default_factory=Deadline)
    spent: float = 0.0

    @property
    def left(self) -> float:
        """Units that are not yet spent; never negative."""
        return max(0.0, self.work - self.spent)

    def allows(self, work: float) -> bool:
        """Whether so much more may be done."""
        return self.spent + work <= self.work and not self.deadline.passed

    def spend(self, work: float) -> None:
        """Count what was done; it may be more than was left, where the last piece could not be divided."""
        self.spent += work

    @property
    def cut(self) -> bool:
        """Whether the deadline, and not the work, ended it."""
        return self.deadline.cut


def deadline_of(seconds: float | Deadline | None) -> Deadline:
    """The deadline that a user's seconds mean; one that is already running is taken as it is.

    >>> deadline_of(None).seconds is None, deadline_of(3).seconds
    (True, 3.0)
    """
    return seconds if isinstance(seconds, Deadline) else Deadline(seconds)


def _limit(seconds: object) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise InvalidArgument(f"seconds={seconds!r:.40}", hint="a positive number of seconds, or None for no limit")
    return float(seconds)
