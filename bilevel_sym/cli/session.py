"""One run of the program: parse, do, and turn every ending into a message and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bilevel_sym.cli.interrupts import INTERRUPTED, Interrupts
from bilevel_sym.cli.parser import parse
from bilevel_sym.cli.screen import Screen, tell, tell_interrupted
from bilevel_sym.errors import BilevelError
from bilevel_sym.system.plain_text import named

__all__ = ["run"]

BAD_INPUT = 2
MESSAGE_LINES = 4  # lines of a message
LINE_LETTERS = 500  # letters of a line


def run(arguments: Sequence[str] | None, interrupts: Interrupts) -> int:
    """Run a command and return its exit code.

    >>> run(["zoo", "minimax_nash"], Interrupts(until_the_end=False))  # doctest: +ELLIPSIS
    minimax_nash: A local minimax point that is also a local Nash equilibrium.
    ...
    0
    """
    screen = Screen()
    try:
        code = _run(arguments, screen)
        screen.flush()
    except BrokenPipeError:  # the reader (head, less) has seen enough
        return 0
    except KeyboardInterrupt:
        return _interrupted(screen)
    except (BilevelError, OSError, MemoryError) as error:
        _explain(error)
        return BAD_INPUT
    except Exception as error:
        if interrupts.came:  # an import written in C makes an ImportError of Ctrl-C
            return _interrupted(screen)
        if sys.flags.dev_mode:
            raise
        _explain(error)
        return BAD_INPUT
    return code


def _interrupted(screen: Screen) -> int:
    kept = "what stands above is complete" if screen.shown else "nothing was finished"
    tell_interrupted("the last line above may be cut off" if screen.midway else kept, midway=screen.midway)
    return INTERRUPTED


def _run(arguments: Sequence[str] | None, screen: Screen) -> int:
    try:
        options = parse(arguments)
    except SystemExit as left:  # help and mistyped options: argparse has said everything
        return int(left.code or 0)
    code: int = options.command.run(options, screen)
    return code


def _explain(error: Exception) -> None:
    """What is wrong, and what to try, in four lines at most."""
    lines = [line[:LINE_LETTERS] for line in _message_of(error).splitlines()] or [type(error).__name__]
    if len(lines) > MESSAGE_LINES:
        lines = [*lines[: MESSAGE_LINES - 1], lines[-1]]  # the last one says what to try
    tell("error: " + "\n".join(lines))


def _message_of(error: Exception) -> str:
    if isinstance(error, BilevelError):
        return str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this\ntry: a smaller problem, fewer --seeds, or fewer --steps with --out"
    if isinstance(error, OSError):
        where = f"{named(str(error.filename))}: " if error.filename else ""
        return f"{where}{error.strerror or error}\ntry: another place; is it writable, and is the disk full?"
    if isinstance(error, ImportError):
        return f"{error}\ntry: pip install bilevel-sym once more, in a fresh environment"
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    why = "this is a defect of bilevel-sym, not of your input"
    return f"unexpected {what}\n{why}\ntry: python -X dev -m bilevel_sym ... shows where"
