"""Which code cites which label: a definition of the paper is what a docstring's ``Paper:`` line claims to compute."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import bilevel_sym
from bilevel_sym import paper

__all__ = ["cited"]

_LINE, _LABEL = re.compile(r"^\s*Paper: (.*)$", re.M), re.compile(r"\[([^\[\]]+)\]")


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
