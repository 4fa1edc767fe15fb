"""Progress on one line of standard error, a few times a second; nothing when nobody asked."""

from __future__ import annotations

import sys
from time import monotonic

__all__ = ["Meter"]

PAUSE = 0.2  # seconds between two lines


class Meter:
    """How far a loop has come.

    >>> with Meter("solve", 10, shown=False) as meter:
    ...     meter.at(5)
    """

    def __init__(self, what: str, total: int, *, shown: bool) -> None:
        self._what, self._total, self._shown = what, total, shown
        self._begun = self._last = monotonic()
        self._width = 0

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            print("\r" + " " * self._width + "\r", end="", file=sys.stderr, flush=True)

    def at(self, done: int, note: str = "") -> None:
        """So many of the total are done."""
        now = monotonic()
        if not self._shown or now - self._last < PAUSE:
            return
        self._last = now
        left = (now - self._begun) * (self._total - done) / max(done, 1)
        line = f"{self._what}: {done}/{self._total} ({100 * done // max(self._total, 1)} %), {left:.0f} s left{note}"
        self._width = max(self._width, len(line))
        print("\r" + line.ljust(self._width), end="", file=sys.stderr, flush=True)
