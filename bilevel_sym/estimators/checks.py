"""Checks of the numbers that algorithms are made of: one clear error, naming the field."""

from __future__ import annotations

import math
import numbers
from typing import Any

from bilevel_sym.errors import InvalidArgument

MAX_COUNT = 10**18  # well inside of 64 bits

__all__ = ["count", "positive", "settle_counts", "settle_positive", "settle_rounded_up"]


def count(name: str, value: object, *, least: int = 1) -> int:
    """A whole number of at least ``least``.

    >>> count("D", 3)
    3
    >>> count("D", 0)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: D must be a whole number of at least 1, but is 0
    try: D=1
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InvalidArgument(
            f"{name} must be a whole number of at least {least}, but is {value!r}", hint=f"{name}={max(least, 1)}"
        )
    number = int(value)
    if number > MAX_COUNT:
        raise InvalidArgument(f"{name} = {number} is more than anything can be counted to", hint="at most 10^18")
    return number


def positive(name: str, value: Any) -> float:
    """A finite number above zero, of any kind, as a float.

    >>> positive("tau", 0.5)
    0.5
    >>> positive("tau", -1)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: tau must be a positive finite number, but is -1
    """
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise InvalidArgument(f"{name} must be a positive finite number, but is {value!r}")
    return number


def settle_counts(owner: object, *names: str, least: int = 1) -> None:
    """Check fields of a frozen object that are whole numbers, and keep them as plain integers."""
    for name in names:
        object.__setattr__(owner, name, count(name, getattr(owner, name), least=least))


def settle_rounded_up(owner: object, name: str) -> None:
    """Check a field of a frozen object that is a positive number, and keep it as a whole number, rounded up."""
    object.__setattr__(owner, name, count(name, math.ceil(positive(name, getattr(owner, name)))))


def settle_positive(owner: object, *names: str, optional: bool = False) -> None:
    """Check fields of a frozen object that are positive numbers, and keep them as floats; None may stay."""
    for name in names:
        value = getattr(owner, name)
        if value is not None or not optional:
            object.__setattr__(owner, name, positive(name, value))
