"""The playground's page in a browser, with a stand-in for Python: forms, names, contrast, hostile text, what it fetches.

Skipped where no Chromium is installed; `.ci/browser` installs one, runs these tests and admits no skip.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from chromium import COMMAND, Tab, browser
from test_playground import GIVEN, HOSTILE, ROOT
from test_report_browser import CONTRASTS, PHONE, SCREEN, WAIT, attempts

from verify.reporting.glimpse import glimpse

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMMAND is None, reason="no Chromium: apt-get install chromium")]

SCRIPT = (ROOT / ".github/site/playground/playground.js").as_uri()
PAGE = ROOT / ".github" / "site" / "playground" / "playground.html"
# answers what it was asked, or fails with its text: what Pyodide does, without Python
STAND_IN = """
window.asked = [];
window.fetched = [];
window.fetch = async (address, options) => {
  window.fetched.push([address, options.integrity || ""]);
  return { ok: true, arrayBuffer: async () => new ArrayBuffer(0) };
};
window.loadPyodide = async (settings) => ({
  loadPackage: async (names) => {},
  unpackArchive: () => {},
  pyimport: (name) => ({ glimpse: { callKwargs: (...given) => {
    window.asked.push(given);
    if (given[0] === "fail") { throw new Error(given[1]); }
    return ANSWER;
  } } }),
});
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def begun(tab: Tab, answer: str = "") -> None:
    tab.events.clear()
    script = STAND_IN.replace("ANSWER", json.dumps(answer)) if answer else ""
    added = tab.call("Page.addScriptToEvaluateOnNewDocument", source=script)["identifier"]
    tab.open(PAGE.as_uri())
    tab.call("Page.removeScriptToEvaluateOnNewDocument", identifier=added)


def sent(tab: Tab, **values: str) -> None:
    for name, value in values.items():
        tab.run(f"document.getElementById('{name}').value = {json.dumps(value)}")
    tab.run("document.getElementById('f').focus()")
    tab.press("Enter")
    tab.run(WAIT)


def test_enter_sends_the_form_and_the_answer_is_framed(tab: Tab) -> None:
    answer = glimpse(**GIVEN[0])
    begun(tab, answer)
    sent(tab)
    f, g, x, y, others = tab.run("window.asked[0]")
    assert f == "x*y + y"
    assert g == "(1 + x**2)*y**2/2 - x*y"
    assert (x, y) == ("x", "y")
    assert others == {"box_x": "-3, 3", "box_y": "-1, 1", "at": "1/3", "digits": 30}
    assert "<math" in glimpse(f, g, x, y, **others)
    assert tab.run("document.getElementById('result').srcdoc") == answer
    assert tab.run("document.getElementById('result').getAttribute('sandbox')") == ""
    assert tab.run("document.getElementById('told').textContent") == "Done: below."
    assert tab.told("Runtime.exceptionThrown", "Log.entryAdded") == []


def test_what_is_fetched_has_a_version_and_a_hash_or_is_ours(tab: Tab) -> None:
    begun(tab, "<p>")
    assert tab.run("window.fetched") == []
    sent(tab)
    fetched = dict(tab.run("window.fetched"))
    assert fetched.pop("bilevel_sym.whl") == ""
    ours = {address for address in fetched if address.startswith("wheels/")}
    assert len(ours) == 3
    assert {address.split("/")[2] for address in set(fetched) - ours} == {"cdn.jsdelivr.net"}
    assert all(integrity.startswith("sha384-") for integrity in fetched.values())


def test_without_a_network_it_says_so(tab: Tab) -> None:
    begun(tab)
    assert attempts(tab) == []  # before the button is pressed
    sent(tab)
    (asked,) = {event["request"]["url"] for event in tab.told("Network.requestWillBeSent")} - {PAGE.as_uri(), SCRIPT}
    assert asked.startswith("https://cdn.jsdelivr.net/npm/pyodide@")
    assert "could not be had" in tab.run("document.getElementById('told').textContent")
    assert not tab.run("document.getElementById('go').disabled")


@pytest.mark.parametrize("answer", [HOSTILE, "<p>"], ids=["in the answer", "in an error"])
def test_hostile_text_runs_nowhere(tab: Tab, answer: str) -> None:
    begun(tab, answer)
    sent(tab, f="fail" if answer == "<p>" else HOSTILE, g=HOSTILE)
    assert tab.run("document.querySelectorAll('img').length") == 0
    assert tab.run("document.scripts.length") == 1
    assert (HOSTILE in tab.run("document.getElementById('told').textContent")) == (answer == "<p>")
    walls = ("Blocked script", "Content Security Policy", "Not allowed to load")
    forbidden = [each for each in attempts(tab) if any(wall in each for wall in walls)]
    assert attempts(tab) == forbidden
    assert bool(forbidden) == (answer == HOSTILE)  # the frame is a second wall: glimpse escapes what it is given


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_fields_have_names_and_letters_are_legible(tab: Tab, dark: bool) -> None:
    tab.look(PHONE, dark=dark)
    begun(tab, "<p>")
    assert tab.run("[...document.querySelectorAll('input, select')].every(each => each.labels.length === 1)")
    assert [what for contrast, what in tab.run(CONTRASTS) if contrast < 4.5] == []
    assert tab.run("document.documentElement.scrollWidth") <= PHONE
    tab.look(SCREEN)


@pytest.mark.parametrize("name", ["one variable", "a saddle point", "a lower level without a closed form", "minimax"])
def test_every_example_has_formulas_digits_and_a_landscape(tab: Tab, name: str) -> None:
    begun(tab, "<p>")
    tab.run(f"document.getElementById('example').value = {json.dumps(name)}")
    tab.run("document.getElementById('example').dispatchEvent(new Event('change'))")
    sent(tab)
    f, g, x, y, others = tab.run("window.asked[0]")
    page = glimpse(f, g, x, y, **others)
    assert page.count("<math") >= 2
    assert page.count("<svg") == 1
    assert 'class="absent"' not in page
