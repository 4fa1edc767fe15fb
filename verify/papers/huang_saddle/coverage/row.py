"""Row: one statement of the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verify.erratum import Severity
from verify.papers.huang_saddle.coverage.link import Link, link

__all__ = ["Row", "Word"]

ALSO = "also "  # begins a link that stands beside what the verdict rests on

Word = Literal["holds", "definition"] | Severity
"""What is said of a statement: that it holds as printed, that it is a definition, or what is wrong with the print."""


@dataclass(frozen=True, slots=True)
class Row:
    """A statement of the ledger: where it stands, what it says, what an audit by hand said of it, and what computes it.

    A link that begins with "also" must stand, and is not what the verdict rests on. ``why`` is given where the computed
    verdict is another one than the audit's: who is right, and by what.

    >>> row = Row(1, ("eq:objective",), "the problem", "definition", ("definition eq:objective",))
    >>> row.found[0].kind, row.rests_on(row.found[0])
    ('definition', True)
    """

    number: int
    labels: tuple[str, ...]
    text: str
    audit: Word
    links: tuple[str, ...]
    why: str = ""

    @property
    def found(self) -> tuple[Link, ...]:
        """The links, read."""
        return tuple(link(text.removeprefix(ALSO)) for text in self.links)

    def rests_on(self, item: Link) -> bool:
        """Whether the verdict rests on this link, or has it beside."""
        return f"{ALSO}{item}" not in self.links
