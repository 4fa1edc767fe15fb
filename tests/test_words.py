"""The words: what takes four arguments or more lists them, and the glossary holds words that the code uses."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / ".github" / "docs"
sys.path.insert(0, str(DOCS))
reference: Any = importlib.import_module("reference")

LISTED_FROM = 4  # parameters: fewer are told from their names and types
ITEM = re.compile(r"^- ((?:``\w+``(?:, )?)+):", re.M)
ELSEWHERE = re.compile(r"^- (?:All|The others): as for ``(\w+)``", re.M)


def parameters_of(value: Callable[..., Any]) -> list[str]:
    """The names of what is passed; ``self`` and ``cls`` are not."""
    names = list(inspect.signature(value).parameters)
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def listed(value: Any, home: Any = None) -> set[str]:
    """The parameters that a docstring lists, with those of the docstring that it refers to."""
    text = inspect.getdoc(value) or ""
    found = {name for item in ITEM.findall(text) for name in re.findall(r"``(\w+)``", item)}
    for name in ELSEWHERE.findall(text):
        other = getattr(home, name, None) or getattr(sys.modules[value.__module__], name, None) or named(name)
        found |= listed(other, home)
    return found


def named(name: str) -> Any:
    """What the reference lists under a name."""
    entries = (entry for page in reference.PAGES for entry in page.entries)
    return next(reference.resolve(entry) for entry in entries if entry.rpartition(".")[2] == name)


def without_list(value: Any, home: Any = None) -> list[str]:
    """The parameters that a docstring should list, and does not."""
    names = parameters_of(value)
    return sorted(set(names) - listed(value, home)) if len(names) >= LISTED_FROM else []


def public() -> Iterator[tuple[str, Any, Any]]:
    """Name, function or class, and the class of a method, for all that the reference lists and users call."""
    for dotted in (entry for page in reference.PAGES for entry in page.entries):
        value = reference.resolve(dotted)
        if isinstance(value, type) and reference.is_ours(value):
            if reference.has_constructor(value):
                yield dotted, value, None
            for name, member, _ in reference.members(value):
                if not isinstance(member, property | functools.cached_property):
                    yield f"{dotted}.{name}", getattr(member, "__func__", member), value
        elif callable(value) and reference.is_ours(value):
            yield dotted, value, None


def test_what_takes_many_arguments_lists_them() -> None:
    missing = {dotted: without_list(value, home) for dotted, value, home in public()}
    assert len(missing) > 250
    assert {dotted: names for dotted, names in missing.items() if names} == {}


def many(a: int, b: int, c: int, d: int) -> None:
    """Four.

    - ``a``, ``b``: the first two.
    - ``c``: the third.
    """


def few(a: int, b: int, c: int) -> None:
    """Three."""


def others(a: int, b: int, c: int, e: int) -> None:
    """Four, of which three are listed.

    - ``e``: the last.
    - The others: as for ``many``.
    """


@pytest.mark.parametrize(("planted", "missing"), [(many, ["d"]), (few, []), (others, [])])
def test_a_planted_docstring_without_its_list_is_caught(planted: Callable[..., None], missing: list[str]) -> None:
    assert without_list(planted) == missing


def glossary() -> dict[str, str]:
    """What the glossary says of each word."""
    return dict(re.findall(r"^- \*\*(\w+)\*\*: (.+)$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.M))


def unused(words: Iterable[str]) -> list[str]:
    """The words that stand nowhere in the code, neither as names nor in what is said about them."""
    paths = (path for top in ("bilevel_sym", "verify") for path in (ROOT / top).rglob("*.py"))
    sources = (path.read_text(encoding="utf-8") for path in paths)
    used = set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", "\n".join(sources)).lower()))
    return [word for word in words if word not in used and f"{word}s" not in used]


def test_every_word_of_the_glossary_occurs_in_the_code() -> None:
    assert len(glossary()) > 20
    assert unused(glossary()) == []
    assert unused(["lane", "flibbertigibbet"]) == ["flibbertigibbet"]


def test_the_glossary_is_found() -> None:
    for page in (DOCS / "README.md", ROOT / ".github" / "CONTRIBUTING.md"):
        assert "glossary.md" in page.read_text(encoding="utf-8"), page
