"""Ctrl-C: twice a KeyboardInterrupt, which asks for what there is; then the process ends at once. Never a traceback."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

__all__ = ["INTERRUPTED", "Interrupts"]

INTERRUPTED = 130
PATIENCE = 2  # interruptions that are answered; each one may hit the answer to the one before
AGAIN = 0.02  # seconds until an interruption that was swallowed is tried once more


class Interrupts:
    """While a command runs, what Ctrl-C does. Where it is ignored, as behind nohup, it stays so.

    ``until_the_end``: the process is the command's alone, and what comes while it is taken down is ignored.

    >>> with Interrupts(until_the_end=False):
    ...     pass
    """

    def __init__(self, *, until_the_end: bool) -> None:
        self._last: Any = signal.SIG_IGN if until_the_end else None
        self._count = 0
        self._installed = False

    def __enter__(self) -> None:
        self._hook, sys.unraisablehook = sys.unraisablehook, self._swallowed
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and before not in (None, signal.SIG_IGN):
            self._installed, self._last = True, self._last or before
            signal.signal(signal.SIGINT, self._handle)

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._last)
        sys.unraisablehook = self._hook

    def _handle(self, *_: object) -> None:
        self._count += 1
        if self._count > PATIENCE:
            os._exit(INTERRUPTED)
        raise KeyboardInterrupt

    def _swallowed(self, unraisable: Any) -> None:
        """An interruption inside a destructor or a weak reference's callback is lost to everybody: once more."""
        if not self._installed or not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._hook(unraisable)
            return
        self._count -= 1
        again = threading.Timer(AGAIN, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        again.daemon = True
        again.start()
