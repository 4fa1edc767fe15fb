"""The page on migration names what there was and what there is: the old names are gone, the new ones are there."""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / ".github" / "docs" / "migration.md"
ROWS = [
    tuple(re.findall(r"`((?:bilevel_sym|verify)[\w.]*)`", cell) for cell in row[:2])
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
    for row in [line.strip("| ").split(" | ")]
]


def is_there(dotted: str) -> bool:
    """Whether a module, or something in it, has the name."""
    words = dotted.split(".")
    for length in range(len(words), 0, -1):
        try:
            module: object = importlib.import_module(".".join(words[:length]))
        except ModuleNotFoundError:
            continue
        try:
            functools.reduce(_part, words[length:], module)
        except AttributeError:
            return False
        return True
    return False


def _part(owner: object, name: str) -> object:
    """An attribute, or a field of a dataclass, which its class need not have."""
    return True if name in getattr(owner, "__dataclass_fields__", {}) else getattr(owner, name)


@pytest.mark.parametrize("dotted", [name for old, _ in ROWS for name in old])
def test_old_names_are_gone(dotted: str) -> None:
    assert not is_there(dotted)


@pytest.mark.parametrize("dotted", [name for _, new in ROWS for name in new])
def test_new_names_are_there(dotted: str) -> None:
    assert is_there(dotted)


def test_every_row_tells_both() -> None:
    assert len(ROWS) > 8
    assert all(old and new for old, new in ROWS)
