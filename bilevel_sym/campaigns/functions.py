"""Functions of users by name, ``module:function``: imported where they are called, and never read from a file."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from bilevel_sym.errors import InvalidArgument

__all__ = ["content_of", "imported", "names_taken"]


@contextmanager
def _found_in(folders: Sequence[str]) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = [folder for folder in folders if folder not in before]
    try:
        yield
    finally:
        sys.path[:] = before


def _module(name: str, folders: Sequence[str]) -> ModuleType:
    try:
        with _found_in(folders):
            return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise InvalidArgument(
            f"there is no module {missing.name!r:.80}, which {name[:80]} wants",
            hint="run it in the folder that holds the module",
        ) from None


def imported(text: str, folders: Sequence[str]) -> Callable[..., Any]:
    """The function that ``module:function`` names; modules in these folders are found too.

    >>> imported("math:sqrt", [])(4.0)
    2.0
    """
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise InvalidArgument(f"{text[:80]!r} is not module:function", hint='"my_study:measure"')
    found: Any = _module(module, folders)
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part[:60], dir(found), n=1)
            hint = f"did you mean {near[0]}?" if near else "another name"
            raise InvalidArgument(f"{module[:80]} has no {part[:60]!r}", hint=hint)
        found = getattr(found, part)
    if not callable(found):
        raise InvalidArgument(f"{text[:80]} is a {type(found).__name__}, which cannot be called", hint="a function")
    function: Callable[..., Any] = found
    return function


def names_taken(function: Callable[..., Any]) -> tuple[frozenset[str], bool]:
    """The names of the arguments that a function takes, and whether it takes any other too.

    >>> names_taken(lambda problem, seed, width=1.0: None) == (frozenset({"problem", "seed", "width"}), False)
    True
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some compiled functions do not say
        return frozenset(), True
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return (
        frozenset(p.name for p in parameters if p.kind in named),
        any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters),
    )


def content_of(text: str, folders: Sequence[str]) -> str:
    """A digest of the module that holds a function: where it changes, what it computed is computed anew.

    >>> len(content_of("bilevel_sym.errors:visible", []))
    64
    """
    module = _module(text.partition(":")[0], folders)
    path = Path(getattr(module, "__file__", None) or "")
    content = path.read_bytes() if path.is_file() else repr(getattr(module, "__version__", "")).encode()
    return hashlib.sha256(content).hexdigest()
