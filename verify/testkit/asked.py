"""What a candidate answered at some points, and the truth there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic.ties import first_largest, in_order
from bilevel_sym.typing import FLOAT64_EPS, Floats
from verify.testkit.arrays import norms
from verify.testkit.candidate import Settings
from verify.testkit.diagnosis import Suspect
from verify.testkit.reference import ROUNDINGS, Quantity, References

__all__ = ["Asked", "Subject"]


@dataclass(frozen=True)
class Subject:
    """What is asked for: its name in a certificate, its label in the paper, its shape, and what may go wrong."""

    quantity: Quantity
    label: str
    noun: str
    shape: Callable[[BilevelProblem], tuple[int, ...]]
    suspects: Callable[[References, Floats, Floats | None], Iterator[Suspect]]
    look_at: str  # where to begin when nothing is known


@dataclass(frozen=True, eq=False)
class Asked:
    """The answers at the points of ``at``; ``previous`` are the points asked just before each, ``unasked`` left out."""

    subject: Subject
    at: References
    values: Floats
    previous: Floats
    single: bool
    settings: Settings
    unasked: References
    screened: int = 0

    def joined(self, other: Asked, screened: int) -> Asked:
        """Both, where the other points are the worst of so many that were screened."""
        values, previous = (
            np.concatenate([getattr(a, name) for a in (self, other)]) for name in ("values", "previous")
        )
        unasked = self.unasked.joined(other.unasked)
        at = self.at.joined(other.at)
        return Asked(self.subject, at, values, previous, self.single, self.settings, unasked, screened)

    @property
    def named(self) -> int:
        """How many points there were to ask."""
        return len(self.at) + len(self.unasked)

    @cached_property
    def errors(self) -> Floats:
        """The norm of the error at each point."""
        return self.at.errors(self.subject.quantity, self.values)

    @cached_property
    def floor(self) -> Floats:
        """What rounding explains."""
        return self.at.floor(self.subject.quantity)

    @cached_property
    def excess(self) -> Floats:
        """Errors in units of what rounding explains; an answer that is not finite is worse than any."""
        excess = self.errors / self.floor
        return np.where(np.isfinite(excess), excess, np.inf)

    @property
    def worst(self) -> int:
        """The point with the largest error in these units."""
        return first_largest(self.excess)

    @property
    def off(self) -> int:
        """At how many points rounding does not explain the error."""
        return int((self.excess > 1).sum())

    @property
    def slowest(self) -> References:
        """All points, those with the largest error first, and in the end those that were not asked."""
        return self.at[in_order(self.excess, descending=True)].joined(self.unasked)

    @property
    def finite(self) -> bool:
        """Whether every answer holds numbers only."""
        return bool(np.isfinite(self.values).all())

    @property
    def right(self) -> bool:
        """Whether rounding explains every error."""
        return self.finite and bool((self.errors <= self.floor).all())

    @property
    def relative(self) -> Floats:
        """Errors relative to the size of the truth, or to that of its terms where these cancel to zero."""
        size = norms(self.at.truth(self.subject.quantity))
        return np.asarray(self.errors / np.where(size > self.floor, size, self.floor / (ROUNDINGS * FLOAT64_EPS)))

    def digits(self, k: int) -> float:
        """How many digits are right at a point."""
        relative = float(self.relative[k])
        return 0.0 if not math.isfinite(relative) else min(16.0, max(0.0, -math.log10(max(relative, 1e-16))))
