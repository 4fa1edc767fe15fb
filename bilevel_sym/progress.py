"""Progress on one line of standard error, redrawn a few times a second and wiped in the end; nothing unless asked."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from threading import Event, RLock, Thread
from time import monotonic
from typing import Self

__all__ = ["Meter"]

PAUSE = 0.2  # seconds between two drawings
ECHO = "^C"  # what a terminal writes behind the line when it is interrupted


class Meter:
    """How far a piece of work has come: so many of a total, or, without one, for how long it has been going on.

    A thread redraws the line, so that the seconds go on while one step takes long.

    >>> with Meter("solve", 10, shown=False) as meter:
    ...     meter.at(5)
    """

    def __init__(self, what: str, total: int | None = None, *, shown: bool) -> None:
        self._what, self._total, self._shown = what, total, shown
        self._begun = self._last = monotonic()
        self._done, self._note, self._drawn = 0, "", ""
        self._lock, self._over = RLock(), Event()
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        if self._shown:
            self._thread = Thread(target=self._tick, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._wipe()

    def at(self, done: int, note: str = "") -> None:
        """So many of the total are done."""
        self._done, self._note = done, note
        if self._shown and monotonic() - self._last >= PAUSE:
            self._draw()

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Out of the way while something else is printed."""
        with self._lock:
            self._wipe()
            yield

    def _tick(self) -> None:
        while not self._over.wait(PAUSE or 0.01):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            self._last = monotonic()
            # a longer line would wrap, and the return would not reach its start
            line = self._line()[: _columns() - len(ECHO) - 1]
            if line != self._drawn:
                self._wipe()
                _write("\r" + line)
                self._drawn = line

    def _wipe(self) -> None:
        with self._lock:
            if self._drawn:
                _write("\r" + " " * len(self._drawn + ECHO) + "\r")
                self._drawn = ""

    def _line(self) -> str:
        seconds = monotonic() - self._begun
        if self._total is None:
            return f"{self._what}{self._note}: {seconds:.0f} s"
        share = f"{self._done}/{self._total} ({100 * self._done // max(self._total, 1)} %)"
        left = seconds * (self._total - self._done) / max(self._done, 1)
        return f"{self._what}: {share}, {f'{left:.0f} s left' if self._done else f'{seconds:.0f} s'}{self._note}"


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a terminal that has gone away must not end the work
        sys.stderr.write(text)
        sys.stderr.flush()
