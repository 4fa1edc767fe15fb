"""Write the API reference, ``api/*.md`` beside this file, from the docstrings of the two packages.

    python .github/docs/reference.py            write the pages
    python .github/docs/reference.py --check    exit with 1 if one of them is out of date

The pages depend on the source alone: neither on the machine nor on the version of Python.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import functools
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sympy as sp

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

from reference_pages import PAGES, TYPES, Page, anchors, is_ours, module_of, places, public_name, resolve  # noqa: E402
from reference_text import (  # noqa: E402
    code,
    data_docstring,
    docstring,
    markdown,
    shown,
    signature,
    summary,
    type_notes,
    type_text,
)  # fmt: skip

LONGEST = 600  # characters of a value that is shown
MADE_BY = re.compile(r"Made? (?:it )?(?:by|with) `*\w+", re.I)  # a class that is not called by users says so


def has_constructor(value: type) -> bool:
    """Whether the class is made by calling it with arguments that it names itself."""
    if issubclass(value, enum.Enum) or getattr(value, "_is_protocol", False):
        return False
    if dataclasses.is_dataclass(value):
        return not any(field.name.startswith("_") for field in dataclasses.fields(value))
    if MADE_BY.search(docstring(value)):
        return False
    return any("__init__" in vars(c) or "__new__" in vars(c) for c in value.__mro__ if is_ours(c))


def members(value: type) -> Iterator[tuple[str, Any, type]]:
    """Public methods and properties with the class that defines them, the class's own first; not those of builtins."""
    seen: set[str] = set()
    for owner in value.__mro__:
        if not is_ours(owner):
            continue
        for name, member in vars(owner).items():
            known = isinstance(member, property | functools.cached_property | classmethod | staticmethod)
            if not name.startswith("_") and name not in seen and (known or inspect.isfunction(member)):
                seen.add(name)
                yield name, member, owner


@dataclasses.dataclass(frozen=True)
class Member:
    """A method or a property of a class: its function, and how it is written."""

    name: str
    function: Any
    stated: str

    @classmethod
    def of(cls, owner: str, name: str, member: Any) -> Member:
        """From what stands in the class."""
        read = getattr(member, "fget", None) or getattr(member, "func", None)
        if read is not None:
            returns = inspect.signature(read).return_annotation
            return cls(name, read, name if returns is inspect.Signature.empty else f"{name}: {type_text(returns)}")
        function = getattr(member, "__func__", member)
        prefix = f"{owner}." if isinstance(member, classmethod | staticmethod) else "."
        return cls(name, function, signature(prefix + name, function, bound=not isinstance(member, staticmethod)))

    def line(self, dotted: str) -> str | None:
        """All about it in one line, where it has one line and one paragraph without an example."""
        text = markdown(docstring(self.function), dotted, self.function.__module__)
        if not text or "\n\n" in text or "```" in text or "\n" in self.stated:
            return None
        notes = "".join(f" ({note})" for note in type_notes(self.stated, self.function.__module__))
        return f"- `{self.stated}`: {' '.join(text.split())}{notes}\n"

    def lines(self, dotted: str) -> Iterator[str]:
        """All about it, under a heading."""
        yield f"### {dotted.rpartition('.')[2]}.{self.name}\n"
        yield shown(self.stated, self.function.__module__)
        yield markdown(docstring(self.function), dotted, self.function.__module__) + "\n"


def class_lines(dotted: str, value: type) -> Iterator[str]:
    """A class: how it is made, what it is, and its members; inherited ones where they are documented."""
    text = signature(value.__name__, value) if has_constructor(value) else f"class {value.__name__}"
    yield shown(text, *(c.__module__ for c in value.__mro__ if is_ours(c)))
    yield markdown(docstring(value), dotted, value.__module__) + "\n"
    if issubclass(value, enum.Enum):
        yield "Its members: " + ", ".join(f"`{member.name}`" for member in value) + ".\n"
    inherited: dict[str, list[str]] = {}
    own: list[Member] = []
    for name, member, owner in members(value):
        home = public_name(owner)
        found = Member.of(dotted.rpartition(".")[2], name, member)
        if owner is not value and home is not None:
            inherited.setdefault(home, []).append(name)
        elif owner is value or docstring(found.function):
            own.append(found)
    if brief := [line for member in own if (line := member.line(dotted)) is not None]:
        yield "".join(brief)
    for member in own:
        if member.line(dotted) is None:
            yield from member.lines(dotted)
    for home, names in inherited.items():
        yield f"Also those of {code(home, '*')}: " + ", ".join(f"`{name}`" for name in names) + ".\n"


def data_lines(dotted: str, value: Any) -> Iterator[str]:
    """Plain data: its value where that is short, and the text below its assignment."""
    text = str(value).replace("typing.", "") if typing.get_origin(value) is typing.Literal else repr(value)
    plain = typing.get_origin(value) is typing.Literal or (
        isinstance(value, tuple) and all(isinstance(item, str) for item in value)
    )
    if plain and len(text) <= LONGEST:
        yield f"```python\n{dotted.rpartition('.')[2]} = {text}\n```\n"
    yield markdown(data_docstring(dotted), dotted, dotted.rpartition(".")[0]) + "\n"


def entry_lines(dotted: str) -> Iterator[str]:
    """All about one name."""
    value = resolve(dotted)
    yield f"## {dotted}\n"
    if isinstance(value, type) and issubclass(value, sp.Function):  # to its user a function, whatever it is to SymPy
        yield shown(f"{value.__name__}({', '.join(inspect.signature(value.eval).parameters)})")
        yield markdown(docstring(value), dotted, value.__module__) + "\n"
    elif isinstance(value, type) and is_ours(value):
        yield from class_lines(dotted, value)
    elif callable(value) and is_ours(value):
        yield shown(signature(value.__name__, value), value.__module__)
        yield markdown(docstring(value), dotted, value.__module__) + "\n"
    else:
        yield from data_lines(dotted, value)


def page_text(page: Page) -> str:
    """One page."""
    module = module_of(page.module)
    head = [f"# {page.title}\n", "[All names](README.md)\n"]
    if not page.names:
        head.append(markdown(docstring(module), page.module, page.module) + "\n")
    links = (f"[`{d.rpartition('.')[2]}`](#{slug})" for d, slug in anchors(page.entries).items())
    head.append(", ".join(links) + "\n")
    lines = [*head, *(line for dotted in page.entries for line in entry_lines(dotted))]
    return "\n".join(lines).rstrip("\n") + "\n"


def index_text() -> str:
    """The page that lists all names."""
    lines = [
        "# Reference\n",
        "Every public name, from its docstring; the examples run as tests. The [concepts](../README.md) tell the "
        "story, [extending](../extending.md) how to add to it. Written by `python .github/docs/reference.py`.\n",
    ]
    for page in PAGES:
        lines.append(f"## [{page.title}]({page.file}.md)\n")
        lines.append("".join(f"- [`{d}`]({places()[d]}): {summary(d)}\n" for d in page.entries))
    lines.append("## Types in signatures\n")
    lines.append("".join(f"- `{name}`: {meaning}\n" for name, meaning in TYPES.items()))
    return "\n".join(lines).rstrip("\n") + "\n"


@functools.cache
def texts() -> dict[str, str]:
    """The text of every page by the name of its file."""
    return {"README.md": index_text()} | {f"{page.file}.md": page_text(page) for page in PAGES}


def outdated(folder: Path) -> list[str]:
    """The files that are missing, differ, or do not belong there."""
    wanted = texts()
    present = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*")}
    return sorted(name for name in wanted | present if wanted.get(name) != present.get(name))


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="say which pages are out of date, and write nothing")
    folder = HERE / "api"
    if parser.parse_args().check:
        stale = outdated(folder)
        print("out of date: " + ", ".join(stale) if stale else "the reference is up to date")
        return 1 if stale else 0
    folder.mkdir(exist_ok=True)
    for name, text in texts().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
