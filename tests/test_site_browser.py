"""What `.github/site/look.py` says of a site is so: each planted fault is told, and a page without one is left in peace.

Skipped where no Chromium is installed; `.ci/browser` installs one and admits no skip. The real site is opened by `.ci/site --look`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import COMMAND, FLAGS, Tab, browser

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / ".github" / "site"))
look: Any = importlib.import_module("look")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMMAND is None, reason="no Chromium: apt-get install chromium")]

COPY = """<div class="highlight-pycon"><button class="copybtn"
  onclick="navigator.clipboard.writeText('{text}')">copy</button></div>"""
PAGE = '<!doctype html><link rel="icon" href="data:,"><body>{}</body>'
RIGHT = f"<p>x</p><math><mi>x</mi></math>{COPY.format(text='x = 1')}"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    flags = [flag for flag in FLAGS if not flag.startswith("--host-resolver-rules")]
    with browser(tmp_path_factory.mktemp("chromium"), flags) as opened:
        yield opened


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        (RIGHT, ""),
        (f'{RIGHT}<div style="width: 600px">wide</div>', "index-phone-light is wider than its window, by"),
        (f'{RIGHT}<math style="display: none"><mi>x</mi></math>', "index-wide-light: 1 formulas are not drawn"),
        (f'{RIGHT}<img src="http://127.0.0.1:9/x.png">', "asked for: http://127.0.0.1:9/x.png"),
        (f'{RIGHT}<img src="x.png">', "not there: "),
        (f"{RIGHT}<script>nothing()</script>", "an error: "),
        (RIGHT.replace("x = 1", ">>> x = 1"), "copying gives '>>> x = 1'"),
        (RIGHT.replace("x = 1", ""), "copying gives ''"),
    ],
)
def test_a_planted_fault_is_told(
    tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str, said: str
) -> None:
    monkeypatch.setattr(look, "VISITED", ("index",))
    (tmp_path / "index.html").write_text(PAGE.format(planted), encoding="utf-8")
    tab.events.clear()
    with look.served(tmp_path) as home:
        told = [*look.looked_at(tab, home, tmp_path), *look.copied(tab, home), *look.complaints(tab, home)]
    assert any(line.startswith(said) for line in told) if said else told == []
    assert (tmp_path / "index-phone-dark.png").is_file()


def test_a_search_that_finds_nothing_is_told(tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "SEARCHES", {"here": "guide/", "nowhere": "guide/"})
    script = """<ul id="search-results"></ul><script>
      const found = location.search.includes("nowhere") ? "project/a.html" : "guide/a.html?highlight=here";
      document.getElementById("search-results").innerHTML = `<li><a href="${found}">found</a></li>`;</script>"""
    (tmp_path / "search.html").write_text(PAGE.format(script), encoding="utf-8")
    with look.served(tmp_path) as home:
        told = list(look.searched(tab, home, tmp_path))
    assert told == ["searching for 'nowhere' finds ['project/a.html'], and not guide/"]
