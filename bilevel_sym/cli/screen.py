"""Where a command speaks: results on standard output, messages and progress on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping

from bilevel_sym.cli.colour import has_colour, is_terminal, painted
from bilevel_sym.errors import BilevelError, visible
from bilevel_sym.system.progress import ProgressBar

__all__ = ["OutputFailed", "Screen", "tell", "tell_interrupted"]

PIPE_COLUMNS = 140  # of a table that is not shown on a terminal


class OutputFailed(BilevelError):
    """Standard output cannot be written.

    Cause: the disk is full, say. Cure: make room, or write elsewhere.

    >>> issubclass(OutputFailed, BilevelError)
    True
    """


def tell(message: str, *, start: str = "") -> None:
    """A message on standard error, the program's name before it; never on standard output.

    >>> tell("nothing is wrong")
    """
    if sys.stderr is None:
        return
    text = f"{start}bilevel-sym: {visible(message)}\n"
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(painted(text) if has_colour(sys.stderr) else text)
        sys.stderr.flush()


def tell_interrupted(what: str, *, midway: bool = False) -> None:
    """What Ctrl-C or SIGTERM has left; on a terminal over its echo, or below a line that was being written.

    >>> tell_interrupted("nothing was finished")
    """
    on_terminal = "\n" if midway else "\r"
    tell(f"interrupted; {what}", start=on_terminal if is_terminal(sys.stderr) else "")


class Screen:
    """Shows lines, and progress in between. ``shown``: anything was shown yet; ``midway``: a line is being written.

    >>> screen = Screen()
    >>> with screen.meter("waiting"):
    ...     screen.show("x = 1")
    x = 1
    """

    def __init__(self) -> None:
        self.shown = self.midway = False
        self.progress = is_terminal(sys.stderr)
        self._colour = has_colour(sys.stdout)
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
                sys.stdout.write((painted(safe) if self._colour and not plain else safe) + "\n")
                if is_terminal(sys.stdout):
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
