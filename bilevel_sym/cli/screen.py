"""Where a command speaks: results on standard output, messages and progress on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TextIO

from bilevel_sym.errors import BilevelError, visible
from bilevel_sym.system.progress import ProgressBar

__all__ = ["OutputFailed", "Screen", "tell", "tell_interrupted"]

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
