"""Where a command speaks: results on standard output, messages and progress on standard error.

Ctrl-C and SIGTERM: twice a KeyboardInterrupt, which asks for what there is; then the process ends at once.

Never a traceback. What a queue, a container or ``timeout`` ends by SIGTERM keeps what Ctrl-C keeps; only the exit code
tells which of the two it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TextIO

from bilevel_sym.errors import BilevelError, visible
from bilevel_sym.system.progress import ProgressBar

__all__ = ["INTERRUPTED", "TERMINATED", "Interrupts", "OutputFailed", "Screen", "leave", "tell", "tell_interrupted"]

# Every colour repeats what a word says already, and comes last, on finished lines: nothing is lost without it.
GREEN, RED, YELLOW, BOLD, FAINT = "32", "1;31", "33", "1", "2"

# longer phrases first: the first that fits is taken
PHRASES: Mapping[str, str] = MappingProxyType(
    {
        r"not an eps-local minimum": YELLOW,
        r"reached an eps-local minimum \(checked\)|an eps-local minimum": GREEN,
        r"ran out of steps|interrupted|ended where iNEON found no negative curvature": YELLOW,
        r"met a value that is not a number|diverged|conjugate gradients broke down": RED,
        r"could not be (?:solved|evaluated)": RED,
        r"\bHOLDS\b|proved over the box": GREEN,
        r"\bVIOLATED\b|\berror:": RED,
        r"\bINCONCLUSIVE\b|\bnote:": YELLOW,
        r"\bNOT_APPLICABLE\b|^not applicable": FAINT,
        r"\btry:|^(?:lower level|y\*\(x\)|Phi\(x\)|grad Phi\(x\)|Hess Phi\(x\))": BOLD,
    }
)
_ANY = re.compile("|".join(f"({phrase})" for phrase in PHRASES), re.M)
_CODES = tuple(PHRASES.values())

PIPE_COLUMNS = 140  # of a table that is not shown on a terminal


class OutputFailed(BilevelError):
    """Standard output cannot be written.

    Cause: the disk is full, say. Cure: make room, or write elsewhere.
    """


def tell(message: str, *, start: str = "") -> None:
    """A message on standard error, the program's name before it; never on standard output."""
    if sys.stderr is None:
        return
    text = f"{start}bilevel-sym: {visible(message)}\n"
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(_painted(text) if _has_colour(sys.stderr) else text)
        sys.stderr.flush()


def tell_interrupted(what: str, *, midway: bool = False) -> None:
    """What Ctrl-C or SIGTERM has left; on a terminal over its echo, or below a line that was being written."""
    on_terminal = "\n" if midway else "\r"
    tell(f"interrupted; {what}", start=on_terminal if _is_terminal(sys.stderr) else "")


class Screen:
    """Shows lines, and progress in between. ``shown``: anything was shown yet; ``midway``: a line is being written.

    >>> screen = Screen()
    >>> with screen.meter("waiting"):
    ...     screen.show("x = 1")
    x = 1
    """

    def __init__(self) -> None:
        self.shown = self.midway = False
        self.progress = _is_terminal(sys.stderr)
        self._colour = _has_colour(sys.stdout)
        self._meter = ProgressBar("", shown=False)
        with contextlib.suppress(AttributeError, ValueError):  # a name in letters that the encoding lacks is no error
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]

    @property
    def width(self) -> int:
        """Columns for tables."""
        return shutil.get_terminal_size((PIPE_COLUMNS, 24)).columns

    def show(self, text: str, *, plain: bool = False) -> None:
        """A line or several; ``plain`` is for programs: no colour."""
        if sys.stdout is None:
            return
        try:
            with self._meter.hidden():
                self.midway = True
                safe = visible(text)  # names and data may hold what a terminal would obey
                sys.stdout.write((_painted(safe) if self._colour and not plain else safe) + "\n")
                if _is_terminal(sys.stdout):
                    sys.stdout.flush()
        except OSError as error:
            raise _output_failure(error) from None
        self.shown, self.midway = True, False

    def show_all(self, lines: Iterable[str], *, plain: bool = False) -> None:
        """Each line as soon as it is known."""
        for line in lines:
            self.show(line, plain=plain)

    def show_json(self, record: Mapping[str, object]) -> None:
        """A record for programs, as strict JSON in letters that standard output has."""
        utf8 = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
        self.show(json.dumps(record, indent=2, ensure_ascii=not utf8, allow_nan=False), plain=True)

    def check_bytes(self, hint: str) -> None:
        """Refuse a terminal, which bytes would garble."""
        if _is_terminal(sys.stdout):
            raise OutputFailed("these are bytes for a program, and no text for a terminal", hint=hint)

    def show_bytes(self, content: bytes) -> None:
        """A file on standard output."""
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
                sys.stdout.buffer.write(content)
        except OSError as error:
            raise _output_failure(error) from None

    def flush(self) -> None:
        """See whether everything arrives."""
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError as error:
            raise _output_failure(error) from None

    @contextlib.contextmanager
    def meter(self, what: str, total: int | None = None) -> Iterator[ProgressBar]:
        """Progress on a terminal while the block runs."""
        with ProgressBar(what, total, shown=self.progress) as self._meter:
            yield self._meter


def _output_failure(error: OSError) -> OSError | OutputFailed:
    """A reader that has left is as it may be; anything else is told. What is still buffered goes nowhere."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return error
    return OutputFailed(f"standard output cannot be written: {error.strerror}", hint="is the disk full?")


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether it is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _has_colour(stream: TextIO | None) -> bool:
    """Only on a terminal that knows colours, and never where NO_COLOR is set."""
    return _is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _painted(text: str) -> str:
    """The text with its verdicts in colour."""
    return _ANY.sub(lambda match: f"\x1b[{_CODES[(match.lastindex or 1) - 1]}m{match[0]}\x1b[0m", text)


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
