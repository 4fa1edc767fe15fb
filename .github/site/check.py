"""Check the built site: every link inside it leads somewhere, and nothing is fetched from elsewhere.

    python .github/site/check.py FOLDER

Sphinx checks the links that it makes itself. What stands in finished pages is looked at here: links and anchors as they
came out, pictures, scripts and styles, also those that a style sheet names. Exits with 1 and a list where one is wrong.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SHOWS = {"a", "area"}  # what leads elsewhere when a reader wants it; all else a page fetches by itself
FETCHED = re.compile(r"""url\(\s*["']?(?!data:|#)([^"')]+)|@import\s+["']([^"']+)""")
NOT_FETCHED = {"canonical", "index", "search", "next", "prev", "author", "copyright"}  # kinds of <link>


@dataclass
class Page(HTMLParser):
    """What a page offers and what it asks for."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the names that can be linked to, and the addresses."""
        given = {name: value for name, value in attrs if value is not None}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "link" and set(given.get("rel", "").split()) <= NOT_FETCHED:
            return
        found = [given[name] for name in ("href", "src", "data", "poster") if name in given]
        found += [part.split()[0] for part in given.get("srcset", "").split(",") if part.strip()]
        (self.links if tag in SHOWS else self.fetched).extend(found)

    @classmethod
    def of(cls, path: Path) -> Page:
        """The page in a file."""
        page = cls()
        page.feed(path.read_text(encoding="utf-8"))
        return page


def target(address: str, page: Path, site: Path) -> Path | None:
    """The file that an address on a page means, None where it is outside the site."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    path = unquote(parts.path)
    return page if not path else (site / path.lstrip("/") if path.startswith("/") else page.parent / path).resolve()


def faults(site: Path) -> list[str]:
    """What is wrong, a line each."""
    files = (path.resolve() for path in sorted(site.rglob("*.html")) if "_static" not in path.parts)  # there: templates
    pages = {path: Page.of(path) for path in files}
    found: dict[str, list[str]] = defaultdict(list)
    for path, page in pages.items():
        where = path.relative_to(site.resolve()).as_posix()
        for address in (*page.links, *page.fetched):
            there = target(address, path, site)
            if there is None:
                if address in page.fetched and not address.startswith("data:"):
                    found[f"fetched from elsewhere: {address}"].append(where)
                continue
            anchor = unquote(urlsplit(address).fragment)
            if not there.exists():
                found[f"leads nowhere: {address}"].append(where)
            elif anchor and there in pages and anchor not in pages[there].ids:
                found[f"there is no such place: {address}"].append(where)
    for style in sorted(site.rglob("*.css")):
        for groups in FETCHED.findall(style.read_text(encoding="utf-8")):
            there = target(address := "".join(groups), style.resolve(), site)
            if there is None or not there.exists():
                found[f"a style asks for: {address}"].append(style.name)
    return [f"{what} (on {', '.join(where[:3])}{', ...' * (len(where) > 3)})" for what, where in found.items()]


def main(site: Path) -> int:
    """Tell what is wrong."""
    wrong = faults(site)
    print(*wrong, f"{len(wrong)} faults", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
