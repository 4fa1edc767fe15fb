"""The site's pages are laid out with links that lead somewhere, all of them in the side bar; the check of the built site can fail."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import documentation
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".github" / "site"))
pages: Any = importlib.import_module("pages")
check: Any = importlib.import_module("check")


@pytest.fixture(scope="module")
def laid_out() -> dict[str, str]:
    return dict(pages.texts())


def test_every_page_is_in_the_side_bar_once(laid_out: dict[str, str]) -> None:
    """Else Sphinx would refuse to build: so a page that the index forgets is seen here already."""
    listed = [
        str(Path(place).parent / entry.partition("<")[2].strip(">") if "<" in entry else Path(place).parent / entry)
        for place, text in laid_out.items()
        for tree in re.findall(r"^```\{toctree\}\n((?:.*\n)+?)```", text, re.M)
        for entry in tree.split("\n")
        if entry and not entry.startswith(":")
    ]
    names = sorted(str(Path(entry).with_suffix("")) for entry in listed)
    assert names == sorted(str(Path(place).with_suffix("")) for place in laid_out if place != "index.md")


@pytest.mark.parametrize(
    ("link", "source", "there"),
    [
        ("kernels.md#batches", ".github/docs/arrays.md", "kernels.md#batches"),
        ("../../notebooks/06_minimax.ipynb", ".github/docs/README.md", "../notebooks/06_minimax.ipynb"),
        ("../.github/ERRATA.md", "notebooks/07_validating_theorems.ipynb", "../project/errata.md"),
        ("reference.py", ".github/docs/arrays.md", f"{pages.FILES}.github/docs/reference.py"),
        (f"{pages.SITE}guide/kernels.html#batches", "README.md", "guide/kernels.md#batches"),
        (f"{pages.RAW}.github/images/landscape.png", "README.md", "_images/landscape.png"),
        (f"{pages.FILES}LICENSE", "README.md", f"{pages.FILES}LICENSE"),
        (pages.SITE, "README.md", "index.md"),
        (f"{pages.SITE}playground.html", "README.md", f"{pages.SITE}playground.html"),
        ("https://example.org/x", "README.md", "https://example.org/x"),
        ("#here", "README.md", "#here"),
    ],
)
def test_links_lead_to_where_pages_then_stand(link: str, source: str, there: str) -> None:
    assert pages.led(link, source) == there


@pytest.mark.parametrize("link", ["nothing.md", f"{pages.SITE}guide/nothing.html", f"{pages.FILES}nothing.py"])
def test_a_link_that_leads_nowhere_ends_the_build(link: str) -> None:
    with pytest.raises(SystemExit, match="nothing"):
        pages.translated(f"see [this]({link})", "README.md")


def test_the_readme_reads_well_as_a_page_of_the_package_index() -> None:
    """Its links are addresses, or places on the page itself, and each leads somewhere."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = pages.LINK.findall(documentation.prose(text))
    assert len(links) > 30
    for _, link, _ in links:
        address, _, anchor = link.partition("#")
        file = pages.meant(address, "README.md") if address else "README.md"
        if file is not None:
            assert re.match("https://|#", link), link
            assert (ROOT / file).is_file(), link
            assert not anchor or anchor in documentation.anchors((ROOT / file).read_text(encoding="utf-8")), link


def test_the_examples_of_what_lays_pages_out_hold() -> None:
    failed, tried = doctest.testmod(pages)
    assert (failed, tried > 3) == (0, True)


def test_code_keeps_what_looks_like_a_link() -> None:
    text = "`[a](nothing.md)`\n\n```text\n[a](nothing.md)\n```\n"
    assert pages.translated(text, "README.md") == text


def test_notebooks_can_be_run_elsewhere_and_keep_their_outputs(laid_out: dict[str, str]) -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        stored = json.loads(path.read_text(encoding="utf-8"))
        shown = json.loads(laid_out[f"notebooks/{path.name}"])
        first = next(cell for cell in shown["cells"] if cell["cell_type"] == "markdown")["source"]
        assert f"main?urlpath=lab/tree/notebooks/{path.name})" in first
        assert f"blob/main/notebooks/{path.name})" in first
        assert [c.get("outputs") for c in shown["cells"]] == [c.get("outputs") for c in stored["cells"]]


def test_the_command_knows_every_page() -> None:
    """`bilevel-sym docs` has a topic for each page of the guide, and no other address than the site's."""
    from bilevel_sym.cli.site import PAGES, SITE

    assert SITE == pages.SITE
    addresses = {str(Path(place).with_suffix(".html")) for place, _ in pages.texts()} | {"playground.html"}
    told = {path for path, _ in PAGES.values()}
    assert told <= addresses
    untold = {address for address in addresses if address.startswith("guide/")} - told
    assert untold == {"guide/index.html", "guide/playground.html"}  # the playground itself is told


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ('<a href="nowhere.html">x</a>', "leads nowhere: nowhere.html"),
        ('<a href="#nothing">x</a>', "there is no such place: #nothing"),
        ('<a href="other.html#nothing">x</a>', "there is no such place: other.html#nothing"),
        ('<script src="https://cdn.example.org/x.js"></script>', "fetched from elsewhere: https://cdn"),
        ('<img src="//example.org/x.png">', "fetched from elsewhere: //example"),
        ('<img src="x.png">', "leads nowhere: x.png"),
        ('<link rel="stylesheet" href="https://example.org/x.css">', "fetched from elsewhere"),
        ('<a href="other.html#here">x</a><a href="https://example.org">x</a><img src="data:,">', ""),
        ('<link rel="canonical" href="https://example.org/x.html">', ""),
    ],
)
def test_faults_of_a_built_site_are_seen(tmp_path: Path, planted: str, said: str) -> None:
    (tmp_path / "index.html").write_text(f"<body>{planted}</body>", encoding="utf-8")
    (tmp_path / "other.html").write_text('<h1 id="here">x</h1>', encoding="utf-8")
    found = check.faults(tmp_path)
    assert len(found) == (said != "")
    assert "".join(found).startswith(said)


@pytest.mark.parametrize(
    ("style", "wrong"), [("url(https://example.org/f.woff)", 1), ("url('data:,')", 0), ("url(no.png)", 1)]
)
def test_a_style_that_fetches_is_seen(tmp_path: Path, style: str, wrong: int) -> None:
    (tmp_path / "a.css").write_text(f"p {{ background: {style} }}", encoding="utf-8")
    assert len(check.faults(tmp_path)) == wrong
