"""Lay the repository's pages out as the source of the site, with every link led to where its target then stands.

    python .github/site/pages.py FOLDER

GitHub shows the pages where they lie. The site wants other addresses (``guide/kernels.html``), so they are copied: a
link to a page that the site has stays inside it, one to any other file of the repository goes to that file on GitHub,
and one that leads nowhere ends the build. The side bar has the order of the tables in ``.github/docs/README.md``.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
HOME, SITE = URLS["Repository"], URLS["Documentation"]
FILES = f"{HOME}/blob/main/"  # what GitHub shows of a file
RAW = f"{HOME.replace('github.com', 'raw.githubusercontent.com')}/main/"  # the file itself

FENCE = re.compile(r" *(`{3,}|~{3,})")
LINK = re.compile(r"(\]\()([^()\s]+)(\))")
ENDS_IN = {".md": ".html", ".ipynb": ".html"}
PROJECT = {
    ".github/CHANGELOG.md": "changelog.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    ".github/ERRATA.md": "errata.md",
    ".github/SECURITY.md": "security.md",
    "benchmarks/RESULTS.md": "measured.md",
}
PLAYGROUND = ".github/site/playground/playground.html"  # a page as it is: Sphinx copies it
COLAB = f'Colab begins with `%pip install "bilevel-sym[notebook,test] @ git+{HOME}"` in a cell of its own.'
CONTENTS = "\n```{{toctree}}\n:hidden:\n{options}\n{entries}\n```\n"


@functools.cache
def places() -> dict[str, str]:
    """Where each file of the repository stands on the site."""
    docs, found = ROOT / ".github" / "docs", {"README.md": "index.md"}
    for folder, place in ((docs, "guide"), (docs / "api", "reference")):
        for path in sorted(folder.glob("*.md")):
            found[path.relative_to(ROOT).as_posix()] = f"{place}/{path.name.replace('README', 'index')}"
    found |= {source: f"project/{name}" for source, name in PROJECT.items()}
    found[PLAYGROUND] = "playground.html"
    for folder, pattern in ((ROOT / "notebooks", "*.ipynb"), (ROOT / ".github" / "images", "*.png")):
        place = {"notebooks": "notebooks", "images": "_images"}[folder.name]
        found |= {p.relative_to(ROOT).as_posix(): f"{place}/{p.name}" for p in sorted(folder.glob(pattern))}
    return found


@functools.cache
def sources() -> dict[str, str]:
    """The file that each page of the site is made of, by the page's address below the site's."""
    ends = {place: Path(place).suffix for place in places().values()}
    return {str(Path(place).with_suffix(ENDS_IN.get(ends[place], ends[place]))): s for s, place in places().items()}


def meant(target: str, source: str) -> str | None:
    """The file of the repository that a link on the page ``source`` leads to; None where it leads elsewhere.

    >>> meant("../ERRATA.md", ".github/docs/kernels.md")
    '.github/ERRATA.md'
    """
    if target.startswith(SITE):
        page = target.removeprefix(SITE)
        return sources().get(page or "index.html", page)
    for address in (FILES, RAW):
        if target.startswith(address):
            return target.removeprefix(address)
    if re.match(r"[a-z]+:", target):
        return None
    return os.path.normpath(f"{Path(source).parent}/{target}")


def led(target: str, source: str) -> str:
    """Where a link on the page ``source`` leads on the site.

    >>> led("../ERRATA.md#list", ".github/docs/kernels.md"), led("#here", "README.md")
    ('../project/errata.md#list', '#here')
    """
    address, sharp, anchor = target.partition("#")
    file = meant(address, source) if address else None
    if file is None:
        return target
    if file == PLAYGROUND:  # for Sphinx, which does not know the page, it is elsewhere
        return SITE + places()[file]
    if file in places():
        here = Path(places()[source]).parent
        return os.path.relpath(places()[file], here).replace(os.sep, "/") + sharp + anchor
    if not (ROOT / file).exists():
        raise SystemExit(f"{source}: the link {target!r} leads to {file!r}, which is not there")
    return FILES + file + sharp + anchor


def translated(text: str, source: str) -> str:
    """A page with its links led anew; code, in blocks and in lines, stays as it is.

    >>> translated("[errata](../ERRATA.md), `[a](b)`", ".github/docs/kernels.md")
    '[errata](../project/errata.md), `[a](b)`'
    """
    lines, closing = [], ""
    for line in text.splitlines(keepends=True):
        fence = FENCE.match(line)
        if closing:
            closing = "" if line.strip() == closing else closing
        elif fence is not None:
            closing = fence[1]
        else:
            pieces = re.split(r"(`[^`\n]+`)", line)
            pieces[::2] = [LINK.sub(lambda m: m[1] + led(m[2], source) + m[3], piece) for piece in pieces[::2]]
            line = "".join(pieces)
        lines.append(line)
    return "".join(lines)


# ---- contents ---------------------------------------------------------------------------------------------------


def contents(entries: list[str], *options: str) -> str:
    """The part of a page that puts others into the side bar."""
    return CONTENTS.format(options="\n".join(options), entries="\n".join(entries))


def linked(text: str, pattern: str) -> list[str]:
    """The pages that a page links to, each once, in its order.

    >>> linked("[a](a.md), [b](b.md#x), [a](a.md)", r"\\w+.md")
    ['a.md', 'b.md']
    """
    return list(dict.fromkeys(re.findall(rf"\]\(({pattern})", text)))


def home(text: str) -> str:
    """The README, and the parts of the site."""
    parts = ["Guide <guide/index>", "Notebooks <notebooks/index>", "Reference <reference/index>"]
    return text + contents([*parts, "Project <project/index>"])


def with_its_pages(text: str) -> str:
    """An index, and the pages of its folder that it links to."""
    return text + contents(linked(text, r"[\w-]+\.md"), ":titlesonly:")


def stories(guide: str) -> str:
    """The index of the notebooks: the part of the guide's index that tells of them."""
    (part,) = re.findall(r"^## (Stories.*?)(?=^Also here|^## )", guide, re.M | re.S)
    names = linked(part, r"[./\w]+\.ipynb")
    text = f"# {part.replace('../../notebooks/', '')}"
    return text + contents([Path(name).name for name in names], ":titlesonly:")


def project() -> str:
    """The index of the project's own pages."""
    lines = ["# Project\n", *(f"- [{heading(ROOT / file)}]({name})" for file, name in PROJECT.items())]
    address = f"- [The repository]({HOME}), [its citation file]({FILES}CITATION.cff), [its licence]({FILES}LICENSE)"
    return "\n".join([*lines, address, ""]) + contents(list(PROJECT.values()), ":titlesonly:")


def heading(path: Path) -> str:
    """The first heading of a page."""
    return next(line[2:] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# "))


# ---- notebooks --------------------------------------------------------------------------------------------------


def doors(name: str) -> str:
    """Where a notebook can be run, and where it can be had."""
    place = HOME.removeprefix("https://github.com/")
    return " ".join(
        (
            f"[Run on Binder](https://mybinder.org/v2/gh/{place}/main?urlpath=lab/tree/notebooks/{name})",
            f"[Open in Colab](https://colab.research.google.com/github/{place}/blob/main/notebooks/{name})",
            f"[Download]({RAW}notebooks/{name})",
        )
    )


def notebook(path: Path, source: str) -> str:
    """A notebook with its doors below the title, and its links led anew."""
    book: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for number, cell in enumerate(cell for cell in book["cells"] if cell["cell_type"] == "markdown"):
        text = translated("".join(cell["source"]), source)
        if number == 0:
            title, _, rest = text.partition("\n")
            text = f"{title}\n\n{{.doors}}\n{doors(path.name)}\n\n{COLAB}\n{rest}"
        cell["source"] = text
    return json.dumps(book)


# ---- all of it --------------------------------------------------------------------------------------------------

ADDED: dict[str, Callable[[str], str]] = {
    "README.md": home,
    ".github/docs/README.md": with_its_pages,
    ".github/docs/api/README.md": with_its_pages,
}


def texts() -> Iterator[tuple[str, str]]:
    """Every page of the site: its place and its text."""
    for source, place in places().items():
        path = ROOT / source
        if path.suffix == ".ipynb":
            yield place, notebook(path, source)
        elif path.suffix == ".md":
            text = translated(path.read_text(encoding="utf-8"), source)
            yield place, ADDED.get(source, str)(text)
    yield "notebooks/index.md", stories((ROOT / ".github" / "docs" / "README.md").read_text(encoding="utf-8"))
    yield "project/index.md", project()


def main(folder: Path) -> None:
    """Write them."""
    for place, text in texts():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, encoding="utf-8")
    for source, place in places().items():
        if place.endswith(".png"):
            (folder / place).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / source, folder / place)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
