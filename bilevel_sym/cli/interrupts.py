"""Ctrl-C: twice a KeyboardInterrupt, which asks for what there is; then the process ends at once. Never a traceback."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

__all__ = ["INTERRUPTED", "Interrupts", "leave"]

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
        self._before = signal.getsignal(signal.SIGINT)
        self._after = signal.SIG_IGN if until_the_end else self._before
        self._count = 0
        self._installed = False

    def __enter__(self) -> Interrupts:  # noqa: PYI034 - typing is not imported here: it takes too long
        self._hook, sys.unraisablehook = sys.unraisablehook, self._swallowed
        if self._before not in (None, signal.SIG_IGN):
            with contextlib.suppress(ValueError):  # not in the main thread, where alone a handler can be set
                signal.signal(signal.SIGINT, self._handle)
                self._installed = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._after)
        sys.unraisablehook = self._hook

    @property
    def came(self) -> bool:
        """Whether there was any."""
        return self._count > 0

    def _handle(self, *_: object) -> None:
        self._count += 1
        if self._count > PATIENCE:
            os._exit(INTERRUPTED)
        raise KeyboardInterrupt

    def _swallowed(self, unraisable: sys.UnraisableHookArgs) -> None:
        """An interruption inside a destructor or a weak reference's callback is lost to everybody: once more."""
        if not self._installed or not issubclass(unraisable.exc_type, KeyboardInterrupt):
            if not self.came:  # what an interruption leaves half made cannot be taken down properly
                self._hook(unraisable)
            return
        import threading

        self._count -= 1
        again = threading.Timer(AGAIN, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        again.daemon = True
        again.start()


def leave() -> None:
    """End the process with the code of an interruption.

    Python itself would end by the signal, which is another code, where Ctrl-C came while a module was imported that
    executes text (as namedtuple does); and it would wait for what other threads do.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, full, or left by its reader
            stream.flush()
    os._exit(INTERRUPTED)
