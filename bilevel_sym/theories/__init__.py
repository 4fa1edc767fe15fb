"""Theories: what a paper gives to compute with, one folder each: labels (``paper``), constants, schedules, experiments.

A folder is found by being here. What is to be judged of a paper stands in ``verify.papers`` under the same name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

__all__ = ["OWN", "Reading", "Statement", "Variant", "cite", "statements"]

OWN = "own:"  # begins the labels of statements that are in no paper

Variant = Literal["corrected", "printed", "sharp"]
"""A formula as its derivation gives it, as the paper prints it, or the best that is proved."""

Reading = Literal["block", "joint"]
"""Constants that bound each block of partial derivatives on its own, or the derivatives in (x, y) together."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a paper: what the paper calls it and what it says.

    >>> from bilevel_sym import paper
    >>> paper.STATEMENTS["lem:descent"]
    Statement(kind='Lemma', number='2.8', title='inexact descent lemma')
    """

    kind: str
    number: str | None
    title: str


def cite(label: str, statements: Mapping[str, Statement]) -> str:
    """The reference to print for ``label``; for an unknown one, a ``KeyError`` names the nearest.

    A label that begins with "own:" is of a statement that is in no paper, such as a claim that a user wrote.

    >>> known = {"lem:descent": Statement("Lemma", "2.8", "inexact descent lemma")}
    >>> cite("lem:descent", known), cite("own:my-bound", known)
    ('Lemma 2.8 [lem:descent]', 'Own statement [own:my-bound]')
    """
    if label.startswith(OWN):
        return f"Own statement [{label}]"
    statement = statements.get(label)
    if statement is None:
        nearest = ", ".join(map(repr, get_close_matches(label, statements, cutoff=0.0)))
        raise KeyError(
            f"the paper has no label {label!r}; the nearest are {nearest}; one of your own begins with {OWN!r}"
        )
    name = statement.kind if statement.number is None else f"{statement.kind} {statement.number}"
    return f"{name} [{label}]"


@lru_cache(1)
def statements() -> Mapping[str, Statement]:
    """The statements of all papers that have a folder here, under their labels.

    >>> statements()["lem:descent"].title
    'inexact descent lemma'
    """
    folders = (item.name for item in pkgutil.iter_modules(__path__) if item.ispkg)
    papers = (importlib.import_module(f"{__name__}.{name}.paper") for name in sorted(folders))
    return MappingProxyType({label: found for paper in papers for label, found in paper.STATEMENTS.items()})
