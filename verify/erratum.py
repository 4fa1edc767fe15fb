"""Erratum: where the print fails, what is right, and a witness that is computed anew each time it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bilevel_sym import paper
from verify.verdict import CheckResult, Evidence, Verdict

__all__ = ["Erratum", "Finding", "Severity", "erratum"]

Severity = Literal["wrong", "gap", "loose", "misprint"]


@dataclass(frozen=True)
class Finding:
    """What a witness shows: the left side of the statement, and the right side as printed and as corrected.

    The statement is ``left <= right``, or equality with tolerance zero where ``equal``. For a printed bound that is
    true but looser than needed ("loose") the printed value is the larger one, and the corrected one still holds.

    >>> Finding(left=80.0, printed=74.0, corrected=84.0).stands("wrong")
    True
    """

    left: float
    printed: float
    corrected: float
    equal: bool = False

    def stands(self, severity: Severity) -> bool:
        """Whether the printed form fails (or is loose) on the witness and the corrected one does not."""
        if self.equal:
            return self.corrected == self.left and self.printed != self.left
        holds = self.left <= self.corrected
        if severity == "loose":
            return holds and self.corrected < self.printed
        return holds and not self.left <= self.printed  # a printed value that is undefined fails
