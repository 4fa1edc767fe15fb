"""How large a block of derivatives may be, decided before it is derived."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bilevel_sym.errors import TooLarge
from bilevel_sym.system.memory import FLOAT, largest, require

__all__ = ["LIBRARY_BYTES", "TABLE", "entries_of", "require_size"]

TABLE = 2**19  # numbers in a table of intervals
LIBRARY_BYTES, OPERATION = 3e8, 5000  # of the libraries and of the problem; and of one entry as a formula
TABLES, POINTS = 20, 3000  # tables, and values of an entry, that are held at a time
LARGEST = 20_000  # entries of a block, beyond which it is not tried


def entries_of(name: str, d: int, n: int) -> int:
    """How many entries a block of derivatives has.

    >>> entries_of("g_xxy", 3, 2), entries_of("f_z", 3, 2)
    (18, 5)
    """
    sizes = {"x": d, "y": n, "z": d + n}
    return math.prod(sizes[axis] for axis in name.partition("_")[2])


def require_size(names: Iterable[str], d: int, n: int, memory: int) -> None:
    """Refuse blocks that are too large to be derived, or to be held at as many points as a search begins with.

    >>> require_size(["g_y", "g_xxxy"], 60, 13, 2 * 10**9)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.TooLarge: g_xxxy has 2,808,000 entries, and blocks of at most 20,000 are bounded
    try: d = 11 with this n would fit; or the derivatives at points, problem.kernels
    """
    chosen = list(names)
    name = max(chosen, key=lambda name: entries_of(name, d, n))
    if (entries := entries_of(name, d, n)) > LARGEST:
        in_x = largest(lambda d: all(entries_of(name, d, n) <= LARGEST for name in chosen), d)
        in_y = largest(lambda n: all(entries_of(name, d, n) <= LARGEST for name in chosen), n)
        fits = f"d = {in_x} with this n" if in_x else f"n = {in_y} with this d" if in_y else "fewer of both variables"
        raise TooLarge(
            f"{name} has {entries:,} entries, and blocks of at most {LARGEST:,} are bounded",
            hint=f"{fits} would fit; or the derivatives at points, problem.kernels",
        )
    most = largest(lambda count: _bytes(count) <= memory, entries)
    require(_bytes(entries), memory, f"{name} with its {entries:,} entries", f"a block of {most:,}")


def _bytes(entries: int) -> float:
    """What a search takes for a block: its programs, tables of boxes, and values at points."""
    return LIBRARY_BYTES + OPERATION * entries + FLOAT * (TABLES * TABLE + POINTS * entries)
