"""Interrupts that a computation would swallow: searches and solvers return what they have, which is no result here."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["noticed"]


@contextmanager
def noticed() -> Iterator[None]:
    """Raise KeyboardInterrupt in the end, if Ctrl-C came and what was inside went on.

    >>> with noticed():
    ...     pass
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # signals come to the main thread, where nobody listens to this one
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> Any:
        came.append(number)
        return before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
