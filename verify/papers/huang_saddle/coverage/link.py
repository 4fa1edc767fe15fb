"""Link: the name of what computes a statement; Sources: everything that such a name can mean."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, cast, get_args

from verify.erratum import Erratum
from verify.papers.huang_saddle.coverage.definitions import cited
from verify.papers.huang_saddle.errata import errata
from verify.papers.huang_saddle.errata.finding import Finding
from verify.papers.huang_saddle.errata.right import found_right
from verify.registry import Claim
from verify.runner import claims

__all__ = ["BrokenLink", "Kind", "Link", "Sources", "link", "sources"]

Kind = Literal["claim", "finding", "erratum", "definition"]
"""claim: judged on problems. finding: computed, and right. erratum: computed, and wrong as printed. definition: code
that cites the label; there is nothing to be right or wrong about."""


class BrokenLink(LookupError):
    """A link names something that does not exist.

    >>> issubclass(BrokenLink, LookupError)
    True
    """


@dataclass(frozen=True, slots=True)
class Link:
    """What computes a statement: a claim by its label (and the name of a part), an erratum or a finding by its name.

    A definition is named by the label that the code cites.

    >>> str(Link("claim", "lem:escapesaddle", "coupling"))
    'claim lem:escapesaddle | coupling'
    """

    kind: Kind
    name: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" | {self.part}" if self.part else "")


def link(text: str) -> Link:
    """A link as it is written.

    >>> link("claim lem:escapesaddle | stuck width")
    Link(kind='claim', name='lem:escapesaddle', part='stuck width')
    """
    kind, _, rest = text.partition(" ")
    name, _, part = rest.partition(" | ")
    if kind not in get_args(Kind) or not name:
        raise BrokenLink(f"{text!r} is no link; one begins with {', '.join(get_args(Kind))}")
    return Link(cast("Kind", kind), name, part)


@dataclass(frozen=True)
class Sources:
    """What links can name: claims by label, errata and findings by name, definitions by the label that code cites.

    >>> sorted(sources().find(link("erratum phi_hessian")).labels)
    ['lemma3.4-long', 'phi-hessian']
    """

    claims: Mapping[str, Claim]
    errata: Mapping[str, Erratum]
    findings: Mapping[str, Finding]
    definitions: Mapping[str, tuple[str, ...]]

    def find(self, wanted: Link) -> Claim | Erratum | Finding | tuple[str, ...]:
        """What a link names; raises ``BrokenLink`` where there is no such thing."""
        rooms: dict[Kind, Mapping[str, Claim | Erratum | Finding | tuple[str, ...]]] = {
            "claim": self.claims, "erratum": self.errata, "finding": self.findings, "definition": self.definitions,
        }  # fmt: skip
        found = rooms[wanted.kind].get(wanted.name)
        if found is None:
            raise BrokenLink(f"{wanted}: there is no such {wanted.kind}")
        if isinstance(found, Claim) and wanted.part and wanted.part not in _strings(found.check.__module__):
            raise BrokenLink(f"{wanted}: {found.check.__module__} has no part of this name")
        return found

    def about(self, label: str) -> list[Link]:
        """Everything that says of itself that it computes the statement with this label."""
        found = [Link("claim", item.label) for item in self.claims.values() if label in item.labels]
        found += [Link("finding", name) for name, item in self.findings.items() if label in item.labels]
        found += [Link("erratum", name) for name, item in self.errata.items() if label in item.labels]
        return found + ([Link("definition", label)] if label in self.definitions else [])


@lru_cache(1)
def sources() -> Sources:
    """All that is registered in the code.

    >>> "lem:descent" in sources().claims, "iota" in sources().errata, "localisation" in sources().findings
    (True, True, True)
    """
    return Sources(
        claims=MappingProxyType({item.label: item for item in claims()}),
        errata=MappingProxyType({entry.name: entry for entry in errata()}),
        findings=MappingProxyType({finding.name: finding for finding in found_right()}),
        definitions=cited(),
    )


@lru_cache(64)
def _strings(module: str) -> frozenset[str]:
    """Every string in a module: parts of claims are among them."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return frozenset(value for value in constants if isinstance(value, str))
