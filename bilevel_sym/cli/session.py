"""One run of the program: parse, do, and turn every ending into a message and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bilevel_sym.cli.interrupts import INTERRUPTED
from bilevel_sym.cli.messages import explain
from bilevel_sym.cli.parser import parse
from bilevel_sym.cli.screen import Screen, tell_interrupted
from bilevel_sym.errors import BilevelError

__all__ = ["run"]

BAD_INPUT = 2


def run(arguments: Sequence[str] | None) -> int:
    """Run a command and return its exit code.

    >>> run(["zoo", "minimax_nash"])  # doctest: +ELLIPSIS
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
        kept = "what stands above is complete" if screen.shown else "nothing was finished"
        tell_interrupted("the last line above may be cut off" if screen.midway else kept, midway=screen.midway)
        return INTERRUPTED
    except Exception as error:
        if sys.flags.dev_mode and not isinstance(error, (BilevelError, OSError)):
            raise
        explain(error)
        return BAD_INPUT
    return code


def _run(arguments: Sequence[str] | None, screen: Screen) -> int:
    try:
        options = parse(arguments)
    except SystemExit as left:  # help and mistyped options: argparse has said everything
        return int(left.code or 0)
    code: int = options.command.run(options, screen)
    return code
