"""How failures are told: what is wrong, and what to try, in four lines at most."""

from __future__ import annotations

from bilevel_sym.cli.screen import tell
from bilevel_sym.errors import BilevelError

__all__ = ["explain"]

MOST = 4
LONGEST = 500  # letters of a line


def explain(error: BaseException) -> None:
    """Tell of an error on standard error.

    >>> explain(BilevelError("x is empty", hint="one variable at least"))
    """
    lines = [line[:LONGEST] for line in _words(error).splitlines()] or [type(error).__name__]
    if len(lines) > MOST:
        lines = [*lines[: MOST - 1], lines[-1]]  # the last one says what to try
    tell("error: " + "\n".join(lines))


def _words(error: BaseException) -> str:
    if isinstance(error, BilevelError):
        return str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this\ntry: a smaller problem, fewer --seeds, or fewer --steps with --out"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}\ntry: another place; is it writable, and is the disk full?"
    if isinstance(error, ImportError):
        return f"{error}\ntry: pip install bilevel-sym once more, in a fresh environment"
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    why = "this is a defect of bilevel-sym, not of your input"
    return f"unexpected {what}\n{why}\ntry: python -X dev -m bilevel_sym ... shows where"
