"""The package ``verify`` that belongs to this one, or one sentence about what stands in its place.

The name is short: a project may have a ``verify.py`` of its own, and an unrelated distribution has the name too, whose
files replace ours where it is installed later. What is found is looked at before it is run, and what is not ours is
never run.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from bilevel_sym.errors import ForeignPackage

__all__ = ["intruder", "verifier"]

NAME = "verify"
MARK = '__distribution__ = "bilevel-sym"'  # a line of our ``verify/__init__.py``


def verifier(part: str = "") -> Any:
    """``verify``, or a module of it; raises ``ForeignPackage`` where another package has taken its name.

    >>> verifier("verdict").__name__
    'verify.verdict'
    """
    if found := intruder():
        raise found
    return importlib.import_module(f"{NAME}.{part}" if part else NAME)


def intruder() -> ForeignPackage | None:
    """The error that names what Python would import in place of our ``verify``; None where all is well.

    >>> intruder() is None
    True
    """
    try:
        loaded: ModuleType | None = sys.modules.get(NAME)
        spec = importlib.util.find_spec(NAME) if loaded is None else loaded.__spec__
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return ForeignPackage(f"the package {NAME!r} of bilevel-sym is not there", hint=_again())
    source = getattr(spec.loader, "get_source", lambda _: None)(NAME)
    if source is None or MARK not in source:
        return _foreign(spec.origin or next(iter(spec.submodule_search_locations or ["?"])))
    return None


def _foreign(origin: str) -> ForeignPackage:
    message = f"another package stands where bilevel-sym has its {NAME!r}: {origin}"
    if owner := _distribution(origin):
        return ForeignPackage(f"{message}, of the distribution {owner!r}", hint=f"pip uninstall {owner}; {_again()}")
    return ForeignPackage(
        message, hint="rename it, or start Python where it is not found first (python -P leaves out this folder)"
    )


def _again() -> str:
    return "pip install --force-reinstall --no-deps bilevel-sym"


def _distribution(origin: str) -> str | None:
    """The installed distribution, other than ours, that says that a file is its own."""
    there = Path(origin).resolve()
    for found in importlib.metadata.distributions():
        name = found.metadata["Name"]
        if name != "bilevel-sym" and any(
            file.name == there.name and Path(str(found.locate_file(file))).resolve() == there
            for file in found.files or ()
        ):
            return str(name)
    return None
