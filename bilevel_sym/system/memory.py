"""Memory: how much may be taken, estimated before it is. What does not fit is refused by name, with what would fit.

Estimates are formulas of the dimensions and of the length of the formulas, in bytes; ``benchmarks/sizes.py`` holds them
against what is taken.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from bilevel_sym.errors import InvalidArgument, TooLarge

__all__ = ["DEFAULT", "FLOAT", "Memory", "bytes_of", "largest", "parts", "refuse_beyond", "require"]

Memory = str | int
FLOAT = 8  # bytes
DEFAULT = 2 * 10**9
UNITS: Mapping[str, int] = MappingProxyType({"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12})
UNKNOWN = 8 * 10**9  # bytes that a machine is taken to have where it does not say
LEAST_BYTES = 10**8  # less than the libraries themselves take
_SIZE = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmgt]?)b?\s*", re.IGNORECASE)
_MEMORY_HINT = "'2GB', '500 MB' or a number of bytes, at least 100 MB"


def bytes_of(memory: object) -> int:
    """How many bytes a size means.

    >>> bytes_of("2GB"), bytes_of("500 MB"), bytes_of(2**31)
    (2000000000, 500000000, 2147483648)
    >>> bytes_of("much")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: memory='much'
    try: '2GB', '500 MB' or a number of bytes, at least 100 MB
    """
    size: float = -1
    if isinstance(memory, str) and (match := _SIZE.fullmatch(memory)):
        size = float(match[1]) * UNITS[match[2].lower()]
    elif isinstance(memory, (int, float)) and not isinstance(memory, bool):
        size = memory
    if not LEAST_BYTES <= size < math.inf:
        raise InvalidArgument(f"memory={memory!r:.40}", hint=_MEMORY_HINT)
    return int(size)


def shown(size: float) -> str:
    """A number of bytes for people.

    >>> shown(18_000_000_000), shown(2.3e8)
    ('18 GB', '230 MB')
    """
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size / 1000:.3g} kB"


def require(needed: float, memory: int, what: str, fits: str) -> None:
    """Refuse what needs more than there may be taken.

    - ``needed``: bytes.
    - ``memory``: bytes that may be taken.
    - ``what``: the work, for the message.
    - ``fits``: what would fit, for its hint.

    >>> require(3e9, 2 * 10**9, "D^3 Phi over one box, d = 70, n = 3,", "d = 55")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.TooLarge: D^3 Phi over one box, d = 70, n = 3, takes about 3 GB, and memory is 2 GB
    try: memory='3.4GB' if there is as much; with this memory d = 55 would fit
    """
    if needed > memory:
        raise TooLarge(
            f"{what} takes about {shown(needed)}, and memory is {shown(memory)}",
            hint=f"memory='{math.ceil(1.1 * needed / 1e8) / 10:g}GB' if there is as much; "
            f"with this memory {fits} would fit",
        )


def physical() -> int:
    """The memory of this machine in bytes; 8 GB where it does not say.

    >>> physical() > LEAST_BYTES
    True
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return UNKNOWN


def refuse_beyond(numbers: float, what: str, hint: str) -> None:
    """Refuse arrays that would take more than half of the machine's memory, before they are made.

    - ``numbers``: how many float64 they hold together.
    - ``what``: the work, for the message.
    - ``hint``: what to try.

    >>> refuse_beyond(1e18, "Hess Phi at d = 1e9", "products along directions")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.TooLarge: Hess Phi at d = 1e9 takes about 8e+06 TB, more than half of this machine's memory
    try: products along directions
    """
    if FLOAT * numbers > physical() / 2:
        raise TooLarge(
            f"{what} takes about {shown(FLOAT * numbers)}, more than half of this machine's memory", hint=hint
        )


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to ``most`` that fits, if smaller ones do too; 0 where none does.

    >>> largest(lambda d: d**3 <= 1000, 50)
    10
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def parts(count: int, lanes: int) -> Iterator[slice]:
    """Slices of at most so many lanes, one after the other.

    >>> list(parts(5, 3))
    [slice(0, 3, None), slice(3, 6, None)]
    """
    return (slice(start, start + lanes) for start in range(0, count, lanes))
