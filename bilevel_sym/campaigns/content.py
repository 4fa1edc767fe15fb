"""The content of a task, as a digest: what is computed, of what, by which versions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from bilevel_sym import __version__
from bilevel_sym.campaigns.functions import content_of
from bilevel_sym.campaigns.sources import Source
from bilevel_sym.campaigns.task import canonical

if TYPE_CHECKING:
    from bilevel_sym.campaigns.plan import Campaign

__all__ = ["digest_of", "versions"]

THAT_MATTER = ("numpy", "numba", "python-flint", "scipy")  # for the last bits of a result


def versions(names: tuple[str, ...] = THAT_MATTER) -> dict[str, str | None]:
    """Of this package and others; None for one that is not installed.

    >>> sorted(versions())
    ['bilevel_sym', 'numba', 'numpy', 'python-flint', 'scipy']
    """
    found: dict[str, str | None] = {"bilevel_sym": __version__}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def digest_of(plan: Campaign) -> Callable[[Source, str], str]:
    """A function (problem, algorithm) -> the digest of all that a cell is made of, but for its parameters."""
    functions = [plan.task] if ":" in plan.task else [str(text) for text in plan.parameters.get("function", ())]
    folders = plan.context.folders
    contents = {text: content_of(text, folders) for text in functions}
    common = {"task": plan.task, "versions": versions(), "functions": contents}

    def digest(source: Source, algorithm: str) -> str:
        whole = {**common, "problem": source.digest, "algorithm": algorithm}
        return hashlib.sha256(canonical(whole)).hexdigest()

    return digest
