"""Colour for words that matter; it comes last, on finished lines, so that no table is disturbed.

Every colour repeats what a word says already: nothing is lost without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TextIO

__all__ = ["has_colour", "is_terminal", "painted"]

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


def is_terminal(stream: TextIO | None) -> bool:
    """Whether it is a terminal.

    >>> import io
    >>> is_terminal(io.StringIO()), is_terminal(None)
    (False, False)
    """
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def has_colour(stream: TextIO | None) -> bool:
    """Only on a terminal that knows colours, and never where NO_COLOR is set.

    >>> import io
    >>> has_colour(io.StringIO())
    False
    """
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str) -> str:
    """The text with its verdicts in colour.

    >>> painted("lem:descent  HOLDS")
    'lem:descent  \\x1b[32mHOLDS\\x1b[0m'
    """
    return _ANY.sub(lambda match: f"\x1b[{_CODES[(match.lastindex or 1) - 1]}m{match[0]}\x1b[0m", text)
