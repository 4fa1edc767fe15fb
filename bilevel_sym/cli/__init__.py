"""The command line: parses, calls, prints; no mathematics.

Exit codes: 0 done, 1 something is violated or every trajectory failed, 2 bad input, 130 interrupted,
143 ended by SIGTERM.
"""

from __future__ import annotations

from collections.abc import Sequence

# nothing else here: until this is loaded, Ctrl-C is the interpreter's
from bilevel_sym.cli.screen import INTERRUPTED, TERMINATED, Interrupts, leave

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; without ``arguments`` the process is the command's own.

    >>> main(["derive", "zoo:minimax_nash", "--format", "latex"])  # doctest: +ELLIPSIS
    \\begin{aligned}
    ...
    \\end{aligned}
    0
    """
    code = _answered(arguments)
    if code in (INTERRUPTED, TERMINATED) and arguments is None:
        leave(code)
    return code


def _answered(arguments: Sequence[str] | None) -> int:
    interrupts = Interrupts(until_the_end=arguments is None)
    try:  # Ctrl-C may come at any moment, and again while the first one is answered
        with interrupts:
            try:
                from bilevel_sym.cli.session import run

                code = run(arguments, interrupts)
            except KeyboardInterrupt:
                from bilevel_sym.cli.screen import tell_interrupted

                tell_interrupted("nothing was begun")
                code = INTERRUPTED
    except KeyboardInterrupt:
        code = INTERRUPTED
    return interrupts.code if code == INTERRUPTED else code  # commands need not know which signal it was
