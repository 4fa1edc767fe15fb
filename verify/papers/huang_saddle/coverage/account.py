"""Account: what computes each labelled or keyed statement of the paper; the rest is open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from bilevel_sym import paper
from bilevel_sym.theories import Statement
from verify.papers.huang_saddle.coverage.link import Link, Sources, link, sources

__all__ = ["Account", "How", "coverage"]

How = Literal["claim", "finding", "erratum", "definition", "heading", "open"]

FURTHER: Mapping[str, str] = MappingProxyType(
    {
        "unlabelled:coupling-i": "claim lem:escapesaddle | coupling",
        "unlabelled:coupling-ii": "claim lem:escapesaddle | coupling",
        "unlabelled:stuck-region": "claim lem:escapesaddle | stuck width",
        "unlabelled:neon-stuck-region": "claim lem:neon | probability",
        "unlabelled:neon-decrease": "claim lem:neon | probability",
        "unlabelled:remark-larger-batches": "claim eq:stocneon-batch2 | D_g",
    }
)
"""Links to a part of a claim, beside those that claims, errata, findings and docstrings declare themselves."""


@dataclass(frozen=True, slots=True)
class Account:
    """What computes a statement: the strongest kind of link, and all links.

    >>> print(*coverage()["eq:qprelation"].links)
    finding induction
    """

    how: How
    links: tuple[Link, ...]

    @property
    def text(self) -> str:
        """The links in words."""
        return "; ".join(map(str, self.links)) or ("a heading" if self.how == "heading" else "nothing computes it")


def coverage(
    statements: Mapping[str, Statement] = paper.STATEMENTS, known: Sources | None = None
) -> dict[str, Account]:
    """What computes each statement of the paper, in the paper's order; "open" is what is linked to nothing.

    >>> found = coverage()
    >>> found["thm:aid"].how, found["eq:qprelation"].how, found["unlabelled:remark-nonasymptotic"].how
    ('claim', 'finding', 'open')
    """
    known = known or sources()
    return {label: _account(label, statement, known) for label, statement in statements.items()}


def _account(label: str, statement: Statement, known: Sources) -> Account:
    further = [link(FURTHER[label])] if label in FURTHER else []
    for item in further:
        known.find(item)
    links = (*known.about(label), *further)
    for kind in ("claim", "finding", "erratum", "definition"):
        if any(item.kind == kind for item in links):
            return Account(kind, links)
    # a section states nothing but what stands inside it, under labels of its own
    return Account("heading" if statement.kind == "Section" else "open", ())
