"""Bracket: the one type for a proved two-sided bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bilevel_sym.errors import InvalidArgument

__all__ = ["Bracket"]


@dataclass(frozen=True, slots=True)
class Bracket:
    """A number that is proved to lie between ``lower`` and ``upper``; an infinite end says that no bound is known.

    >>> bracket = Bracket(1.0, 1.25)
    >>> bracket.ratio, 1.1 in bracket
    (1.25, True)
    >>> print(bracket)
    [1, 1.25]
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:  # nan included
            raise InvalidArgument(f"a bracket wants lower <= upper, but was given {self.lower} and {self.upper}")

    @property
    def ratio(self) -> float:
        """upper/lower: 1 where both ends agree, infinite where only the upper end is known to be above zero.

        >>> Bracket(0.0, 0.0).ratio, Bracket(0.0, 1.0).ratio
        (1.0, inf)
        """
        if self.lower == self.upper:
            return 1.0
        return self.upper / self.lower if self.lower > 0 else math.inf

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper

    def __str__(self) -> str:
        return f"[{self.lower:.6g}, {self.upper:.6g}]"
