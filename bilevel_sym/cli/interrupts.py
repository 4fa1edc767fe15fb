"""Ctrl-C and SIGTERM: twice a KeyboardInterrupt, which asks for what there is; then the process ends at once.

Never a traceback. What a queue, a container or ``timeout`` ends by SIGTERM keeps what Ctrl-C keeps; only the exit code
tells which of the two it was.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

__all__ = ["INTERRUPTED", "TERMINATED", "Interrupts", "leave"]

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM  # as a shell counts
ANSWERED_INTERRUPTS = 2  # interruptions that are answered; each one may hit the answer to the one before
RETRY_SECONDS = 0.02  # seconds until an interruption that was swallowed is tried once more


class Interrupts:
    """While a command runs, what Ctrl-C and SIGTERM do. Where one is ignored, as Ctrl-C behind nohup, it stays so.

    ``until_the_end``: the process is the command's alone, and a Ctrl-C while it is taken down is ignored.

    >>> with Interrupts(until_the_end=False) as interrupts:
    ...     interrupts.came, interrupts.code
    (False, 130)
    """

    def __init__(self, *, until_the_end: bool) -> None:
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self._after = self._before | ({signal.SIGINT: signal.SIG_IGN} if until_the_end else {})
        self._count = 0
        self._first, self._last = signal.SIGINT, signal.SIGINT
        self._installed: tuple[signal.Signals, ...] = ()

    def __enter__(self) -> Interrupts:  # noqa: PYI034 - typing is not imported here: it takes too long
        self._hook, sys.unraisablehook = sys.unraisablehook, self._swallowed
        with contextlib.suppress(ValueError):  # not in the main thread, where alone a handler can be set
            for number, before in self._before.items():
                if before not in (None, signal.SIG_IGN):
                    signal.signal(number, self._handle)
                    self._installed = (*self._installed, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._installed:
            signal.signal(number, self._after[number])
        sys.unraisablehook = self._hook

    @property
    def came(self) -> bool:
        """Whether there was any."""
        return self._count > 0

    @property
    def code(self) -> int:
        """The exit code of an interrupted command: by the signal that came first."""
        return TERMINATED if self._first == signal.SIGTERM else INTERRUPTED

    def _handle(self, number: int, _: object) -> None:
        self._last = signal.Signals(number)
        if not self._count:
            self._first = self._last
        self._count += 1
        if self._count > ANSWERED_INTERRUPTS:
            os._exit(self.code)
        raise KeyboardInterrupt

    def _swallowed(self, unraisable: sys.UnraisableHookArgs) -> None:
        """An interruption inside a destructor or a weak reference's callback is lost: once more."""
        if not self._installed or not issubclass(unraisable.exc_type, KeyboardInterrupt):
            if not self.came:  # what an interruption leaves half made cannot be taken down properly
                self._hook(unraisable)
            return
        import threading

        self._count -= 1
        again = threading.Timer(RETRY_SECONDS, signal.pthread_kill, (threading.main_thread().ident, self._last))
        again.daemon = True
        again.start()


def leave(code: int) -> None:
    """End the process with the code of an interruption.

    Python itself would end by the signal, which is another code, where Ctrl-C came while a module was imported that
    executes text (as namedtuple does); and it would wait for what other threads do.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, full, or left by its reader
            stream.flush()
    os._exit(code)
