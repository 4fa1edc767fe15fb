"""A report in a browser: text from outside stays text, keys reach everything, letters are legible, paper and phones suffice.

Skipped where no Chromium is installed; `.ci/browser` installs one, runs these tests and admits no skip.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
import sympy as sp
from chromium import COMMAND, Tab, browser

from bilevel_sym import BilevelProblem, zoo
from verify import ReportPage, report
from verify.reporting.page import SECTIONS, _document
from verify.reporting.subject import Subject
from verify.reporting.table import Report
from verify.verdict import judged

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMMAND is None, reason="no Chromium: apt-get install chromium")]

HOSTILE = (
    "\"'><script>alert(1)</script><img src=http://h.invalid/a onerror=alert(2)></p></style></title></svg></math>"
    "<svg onload=alert(3)></svg><link rel=stylesheet href=http://h.invalid/b><base href=//h/>"
)
PHONE, SCREEN = 390, 1200  # pixels of CSS
PAGES = 18  # of paper, for a small problem
WAIT = "new Promise(done => setTimeout(done, 500))"  # for frames, which are processes of their own
# of every text that is shown: its contrast with what is behind it, and what it is
CONTRASTS = """
(() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const linear = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const bright = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = numbers(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) { return colour; }
    }
    return [255, 255, 255];
  };
  const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const at = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !at.checkVisibility() || at.closest("script, title")) { continue; }
    const pair = [bright(numbers(getComputedStyle(at).color)), bright(behind(at))].sort((a, b) => b - a);
    found.push([(pair[0] + 0.05) / (pair[1] + 0.05), at.localName + ": " + texts.currentNode.textContent.slice(0, 40)]);
  }
  return found;
})()
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@lru_cache(1)
def usual() -> ReportPage:
    return report(zoo.get("scalar").problem, effort=0.02)


@lru_cache(1)
def hostile() -> ReportPage:
    """Everything that comes from outside is hostile: names of the problem and its variables, command, messages, witnesses."""
    x, y = sp.Symbol(f"x{HOSTILE}"), sp.Symbol(f"y{HOSTILE}")
    problem = BilevelProblem(x * y, y**2 / 2 - x * y, [x], [y], name=HOSTILE)
    said = judged(
        "lem:descent", 1.0, 2.0, evidence="sampled", message=HOSTILE, worst_point={HOSTILE: 1.0}, region=HOSTILE
    )
    subject = Subject(problem, 0, 0.02, None, HOSTILE)
    subject.__dict__["verdicts"] = Report(HOSTILE, {HOSTILE: (0, 1)}, "corrected", 0, 0.0, (said,))
    return ReportPage(HOSTILE, _document(subject, HOSTILE, [section.markup(subject) for section in SECTIONS]))


def shown(tab: Tab, html: str, folder: Path) -> None:
    path = folder / "page.html"
    path.write_text(html, encoding="utf-8")
    tab.events.clear()
    tab.open(path.as_uri())


def attempts(tab: Tab) -> list[str]:
    """Dialogs and requests of a page and its frames, but for files and pictures that are part of it, and what the browser forbade."""
    asked = [event["request"]["url"] for event in tab.told("Network.requestWillBeSent")]
    forbidden = [event["entry"] for event in tab.told("Log.entryAdded")]
    return [
        *(event["message"] for event in tab.told("Page.javascriptDialogOpening")),
        *(address for address in asked if not address.startswith(("file:", "data:", "about:srcdoc"))),
        *(f"{entry['text']} {entry.get('url', '')}" for entry in forbidden),
    ]


# ---- text from outside ----------------------------------------------------------------------------------------------


def test_who_listens_hears_what_is_not_escaped_in_a_frame_too(tab: Tab, tmp_path: Path) -> None:
    framed = f"<iframe sandbox=allow-scripts srcdoc='{html.escape(HOSTILE)}'></iframe>"
    shown(tab, f"<!DOCTYPE html><title>x</title>{framed}", tmp_path)
    tab.run(WAIT)
    heard = attempts(tab)
    assert any("h.invalid/a" in each for each in heard)
    assert any("alert" in each for each in heard)


def test_who_listens_hears_what_is_not_escaped(tab: Tab, tmp_path: Path) -> None:
    shown(tab, f"<!DOCTYPE html><title>x</title><p>{HOSTILE}</p>", tmp_path)
    heard = attempts(tab)
    assert {"1", "2", "3"} <= set(heard)
    assert any("h.invalid/a" in each for each in heard)
    assert any("h.invalid/b" in each for each in heard)


@pytest.mark.parametrize("policy", ["with its policy", "without its policy"])
@pytest.mark.parametrize("frame", ["a file", "in a notebook"])
def test_hostile_text_opens_no_dialog_and_asks_for_nothing(tab: Tab, tmp_path: Path, policy: str, frame: str) -> None:
    """Escaping alone must do: the policy of the page is a second wall."""
    page = hostile()
    tab.call("Page.setBypassCSP", enabled=policy == "without its policy")
    shown(tab, page.html if frame == "a file" else f"<!DOCTYPE html><title>x</title>{page._repr_html_()}", tmp_path)
    if frame == "a file":
        _use_everything(tab)
        assert tab.run("document.querySelectorAll('img, link, base, iframe, object, embed, form').length") == 0
        assert tab.run("document.scripts.length") == 1
        assert not tab.run(
            "[...document.querySelectorAll('*')].some(e => [...e.attributes].some(a => /^on/.test(a.name)))"
        )
        assert HOSTILE in tab.run("document.querySelector('h1').textContent")
        assert tab.run("document.getElementById('verdict-table').textContent").count(HOSTILE) == 3
    else:
        assert tab.run("document.querySelectorAll('iframe').length + document.scripts.length") == 1
    tab.run(WAIT)
    assert attempts(tab) == []
    tab.call("Page.setBypassCSP", enabled=False)


def _use_everything(tab: Tab) -> None:
    """Open, sort, filter and print: whatever a script does with texts, it does now."""
    tab.run("document.querySelectorAll('summary, thead button').forEach(each => each.click())")
    tab.run("document.querySelector('input[type=search]').focus()")
    tab.write(HOSTILE)
    tab.run("document.querySelector('select').dispatchEvent(new Event('change'))")
    assert tab.pdf().startswith(b"%PDF")


def test_a_usual_page_runs_its_script_without_a_complaint(tab: Tab, tmp_path: Path) -> None:
    shown(tab, usual().html, tmp_path)
    _use_everything(tab)
    assert attempts(tab) == []
    assert tab.told("Runtime.exceptionThrown", "Log.entryAdded") == []


# ---- keys, names, letters -------------------------------------------------------------------------------------------


def test_keys_alone_sort_filter_and_open(tab: Tab, tmp_path: Path) -> None:
    shown(tab, usual().html, tmp_path)
    shown_rows = "[...document.querySelectorAll('#verdict-table tbody tr')].filter(row => !row.hidden)"
    _tab_to(tab, "document.activeElement.type === 'search'")
    tab.write("lem:descent")
    assert 0 < tab.run(f"{shown_rows}.length") < tab.run("document.querySelectorAll('#verdict-table tbody tr').length")
    tab.press("Tab")
    assert tab.run("document.activeElement.localName") == "select"
    _tab_to(tab, "document.activeElement.closest('th')?.cellIndex === 2")
    for direction in ("ascending", "descending"):
        tab.press("Enter")
        assert tab.run("document.activeElement.closest('th').getAttribute('aria-sort')") == direction
        values = tab.run(f"{shown_rows}.map(row => parseFloat(row.cells[2].textContent)).filter(v => !isNaN(v))")
        assert values == sorted(values, reverse=direction == "descending")
    _tab_to(tab, "document.activeElement.matches('#verdict-table tbody summary')")
    tab.press("Enter")
    assert tab.run("document.activeElement.parentElement.open")
    assert tab.run("document.activeElement.parentElement.querySelector('p').checkVisibility()")


def _tab_to(tab: Tab, condition: str) -> None:
    for _ in range(300):
        if tab.run(f"!!({condition})"):
            return
        tab.press("Tab")
    pytest.fail(f"no key leads to {condition}")


def test_everything_that_is_not_text_has_a_name(tab: Tab, tmp_path: Path) -> None:
    shown(tab, usual().html, tmp_path)
    named = {
        "image",
        "button",
        "textbox",
        "searchbox",
        "combobox",
        "link",
        "table",
        "region",
        "navigation",
        "group",
        "heading",
    }
    found = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tab.call("Accessibility.getFullAXTree")["nodes"]
        if not node["ignored"] and node["role"]["value"] in named
    ]
    assert {"image", "button", "searchbox", "combobox", "table", "region", "navigation", "heading"} <= {
        role for role, _ in found
    }
    assert [role for role, name in found if not name.strip() and role != "group"] == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_letter_is_told_from_its_ground(tab: Tab, tmp_path: Path, dark: bool) -> None:
    tab.look(SCREEN, dark=dark)
    shown(tab, usual().html, tmp_path)
    tab.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    found = tab.run(CONTRASTS)
    assert len(found) > 200
    assert [what for contrast, what in found if contrast < 4.5] == []


# ---- phones and paper -----------------------------------------------------------------------------------------------


def test_a_phone_scrolls_tables_and_formulas_and_not_the_page(tab: Tab, tmp_path: Path) -> None:
    tab.look(PHONE)
    shown(tab, usual().html, tmp_path)
    tab.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert tab.run("document.documentElement.scrollWidth") <= PHONE
    tab.look(SCREEN)


def test_paper_shows_what_was_closed_and_nothing_that_wants_a_mouse(tab: Tab, tmp_path: Path) -> None:
    shown(tab, usual().html, tmp_path)
    tab.look(SCREEN, medium="print")
    tab.run("window.dispatchEvent(new Event('beforeprint'))")
    closed = "[...document.querySelectorAll('section details:not([open])')]"
    assert tab.run(f"{closed}.every(each => each.closest('tr').cells[1].textContent === 'HOLDS')")
    assert tab.run("document.querySelector('#errata details').open")
    assert not tab.run(
        "['nav', '#verdict-tools', '.skip'].some(each => document.querySelector(each).checkVisibility())"
    )
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.run("window.dispatchEvent(new Event('afterprint'))")
    assert not tab.run("document.querySelector('#errata details').open")
    tab.look(SCREEN)
    assert tab.pdf().count(b"/Type /Page\n") <= PAGES


def test_a_button_opens_all_rows_and_closes_them(tab: Tab, tmp_path: Path) -> None:
    shown(tab, usual().html, tmp_path)
    rows = tab.run("document.querySelectorAll('#verdict-table tbody tr').length")
    _tab_to(tab, "document.activeElement.textContent === 'Open all'")
    for opened in (rows, 0):
        tab.press("Enter")
        assert tab.run("document.querySelectorAll('#verdict-table details[open]').length") == opened
