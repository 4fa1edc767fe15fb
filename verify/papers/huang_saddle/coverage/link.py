"""What computes each statement of the paper: links, all that they can name, rows of the ledger, accounts of labels."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast, get_args

import bilevel_sym
from bilevel_sym import paper
from bilevel_sym.theories import Statement
from verify import Claim, claims
from verify.erratum import Erratum, Severity
from verify.papers.huang_saddle.errata import errata
from verify.papers.huang_saddle.errata.right import Finding, found_right

Kind = Literal["claim", "finding", "erratum", "definition"]
"""claim: judged on problems. finding: computed, and right. erratum: computed, and wrong as printed. definition: code
that cites the label; there is nothing to be right or wrong about."""

_LINE, _LABEL = re.compile(r"^\s*Paper: (.*)$", re.M), re.compile(r"\[([^\[\]]+)\]")
ALSO = "also "  # begins a link that stands beside what the verdict rests on

Word = Literal["holds", "definition"] | Severity
"""What is said of a statement: that it holds as printed, that it is a definition, or what is wrong with the print."""

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


class BrokenLink(LookupError):
    """A link names something that does not exist."""


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


@lru_cache(1)
def cited() -> Mapping[str, tuple[str, ...]]:
    """By label of this paper, the functions and classes of the library whose docstrings cite it.

    >>> cited()["eq:aid-step2"]
    ('bilevel_sym.estimators.hypergradient.AID',)
    """
    root = Path(bilevel_sym.__file__).parent
    found: dict[str, tuple[str, ...]] = {}
    for path in sorted(root.rglob("*.py")):
        module = ".".join(("bilevel_sym", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        for name, label in _citations(ast.parse(path.read_text(encoding="utf-8")), module):
            if label in paper.STATEMENTS:
                found[label] = (*found.get(label, ()), name)
    return MappingProxyType(found)


def _citations(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """(name, label) for this node's docstring and those inside it."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
        for line in _LINE.findall(ast.get_docstring(node) or ""):
            yield from ((name, label) for label in _LABEL.findall(line))
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                yield from _citations(child, f"{name}.{child.name}")


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
