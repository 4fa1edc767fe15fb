"""Progress on one line of standard error, redrawn a few times a second and wiped in the end; nothing unless asked.

And single sentences, once per process; not as warnings: where people make those errors, as test suites do, a full disk
would end their run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from threading import Event, Lock, Thread
from time import monotonic
from typing import Self

__all__ = ["ProgressBar", "is_watched", "tell_once"]

REDRAW_SECONDS = 0.2  # seconds between two drawings
ECHO = "^C"  # what a terminal writes behind the line when it is interrupted


class ProgressBar:
    """How far a piece of work has come: so many of a total, or, without one, for how long it has been going on.

    A thread draws the line, so that the seconds go on while one step takes long.

    >>> with ProgressBar("solve", 10, shown=False) as meter:
    ...     meter.at(5)
    """

    def __init__(self, what: str, total: int | None = None, *, shown: bool, rated: bool = False) -> None:
        self._what, self._total, self._shown, self._rated = what, total, shown, rated
        self._begun = monotonic()
        self._state, self._drawn = (0, ""), ""
        self._lock, self._over = Lock(), Event()
        self._thread = Thread(target=self._draw_until_over, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if self._shown:
            try:
                self._thread.start()
            except BaseException:  # interrupted while it starts: nothing would end it
                self._over.set()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._shown:
            self._thread.join()
            self._wipe()

    def at(self, done: int, note: str = "") -> None:
        """So many of the total are done."""
        self._state = done, note

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Out of the way while something else is printed."""
        with self._lock:
            self._wipe()
            yield

    def _draw_until_over(self) -> None:
        while not self._over.wait(REDRAW_SECONDS):
            if self._lock.acquire(blocking=False):  # else something is being printed
                self._draw()
                self._lock.release()

    def _draw(self) -> None:
        # blanks over what was longer before; a line that wraps would not be left by the return
        line = self._line().ljust(len(self._drawn))[: max(0, _columns() - len(ECHO) - 1)]
        if line != self._drawn:
            _write("\r" + line)
            self._drawn = line

    def _wipe(self) -> None:
        if self._drawn:
            _write("\r" + " " * len(self._drawn + ECHO) + "\r")
            self._drawn = ""

    def _line(self) -> str:
        (done, note), seconds = self._state, monotonic() - self._begun
        if self._total is None:
            return f"{self._what}{note}: {seconds:.0f} s"
        left = seconds * (self._total - done) / max(done, 1)
        share = f"{done}/{self._total} ({100 * done // max(self._total, 1)} %)"
        rate = f"{done / seconds:.3g} a second, " if self._rated and done and seconds else ""
        return f"{self._what}: {share}, {rate}{f'{left:.0f} s left' if done else f'{seconds:.0f} s'}{note}"


def is_watched() -> bool:
    """Whether somebody reads along: standard error is a terminal, or the output of a notebook's cell, and no pipe.

    >>> is_watched() in (True, False)
    True
    """
    stream = sys.stderr
    if stream is None:
        return False
    return bool(getattr(stream, "isatty", lambda: False)()) or type(stream).__module__.partition(".")[0] == "ipykernel"


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (AttributeError, OSError, ValueError):
        return 80


def _write(text: str) -> None:
    # a terminal that has gone away, or was never there, must not end the work
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


@lru_cache(64)
def tell_once(sentence: str) -> None:
    """Log a sentence, unless it was logged before."""
    logging.getLogger("bilevel_sym").warning("%s", sentence)
