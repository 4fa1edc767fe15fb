"""Theories: what a paper gives to compute with, one folder each: labels (``paper``), constants, schedules, experiments.

A folder is found by being here. What is to be judged of a paper stands in ``verify.papers`` under the same name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from bilevel_sym.theories.statement import Reading, Statement, Variant, cite

__all__ = ["Reading", "Statement", "Variant", "cite", "statements"]


@lru_cache(1)
def statements() -> Mapping[str, Statement]:
    """The statements of all papers that have a folder here, under their labels.

    >>> statements()["lem:descent"].title
    'inexact descent lemma'
    """
    folders = (item.name for item in pkgutil.iter_modules(__path__) if item.ispkg)
    papers = (importlib.import_module(f"{__name__}.{name}.paper") for name in sorted(folders))
    return MappingProxyType({label: found for paper in papers for label, found in paper.STATEMENTS.items()})
