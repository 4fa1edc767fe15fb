"""Open the built site in Chromium, try what a reader would, and leave pictures of it.

    python .github/site/look.py SITE PICTURES

Wide and on a phone, light and dark: no page may be wider than its window, ask for anything from elsewhere or report an
error; formulas are drawn, the search finds, and what "copy" copies has no prompts. The pictures are for people.
"""

from __future__ import annotations

import functools
import http.server
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests"))

from chromium import FLAGS, Tab, browser

WIDTHS = {"wide": 1280, "phone": 390}
VISITED = (
    "index", "guide/index", "guide/kernels", "guide/derivation", "guide/coverage", "notebooks/index",
    "notebooks/01_quick_start", "notebooks/05_escaping_saddle_points", "reference/index", "reference/solve",
    "project/changelog", "project/errata", "playground",
)  # fmt: skip
SEARCHES = {
    "krawczyk": "guide/certificates.html",
    "check_hypergradient": "reference/verify-testkit.html",
    "lasso": "guide/",
}
DRAWN = "[...document.querySelectorAll('math')].filter(math => math.getBoundingClientRect().width < 2).length"
WIDER = "document.scrollingElement.scrollWidth - innerWidth"
FOUND = "[...document.querySelectorAll('#search-results li a')].map(link => link.getAttribute('href'))"
SEARCHED = """new Promise(done => {
  const told = () => document.querySelector('#search-results')?.textContent.match(/found|did not match/);
  const ask = () => told() ? done(1) : setTimeout(ask, 50);
  ask(); })"""
COPIED = """new Promise(done => {
  const seen = [], note = text => { seen.push(text); return true; };
  navigator.clipboard.writeText = text => Promise.resolve(note(text));
  document.execCommand = () => note(document.getSelection().toString() || document.activeElement.value);
  document.querySelector('.highlight-pycon button.copybtn').click();
  setTimeout(() => done(seen[0]), 300); })"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *words: object) -> None:  # noqa: A002
        """Nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of the site while it is served: its search reads pages, which files may not."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def looked_at(tab: Tab, home: str, pictures: Path) -> Iterator[str]:
    """Visit pages; what is wrong with them, a line each."""
    for dark in (False, True):
        for kind, width in WIDTHS.items():
            tab.look(width, dark=dark)
            for page in VISITED:
                tab.open(f"{home}{page}.html")
                where = f"{page.replace('/', '-')}-{kind}-{'dark' if dark else 'light'}"
                if (wider := tab.run(WIDER)) > 0:
                    yield f"{where} is wider than its window, by {wider} pixels"
                if undrawn := tab.run(DRAWN):
                    yield f"{where}: {undrawn} formulas are not drawn"
                tab.picture(pictures / f"{where}.png")


def searched(tab: Tab, home: str, pictures: Path) -> Iterator[str]:
    """Search for words; those that are not found where they should be."""
    tab.look(WIDTHS["wide"])
    for word, wanted in SEARCHES.items():
        tab.open(f"{home}search.html?q={word}")
        tab.run(SEARCHED)
        found = tab.run(FOUND)
        if not any(address.partition("?")[0].partition("#")[0].startswith(wanted) for address in found):
            yield f"searching for {word!r} finds {found[:5]}, and not {wanted}"
        tab.picture(pictures / f"search-{word}.png")


def copied(tab: Tab, home: str) -> Iterator[str]:
    """Press "copy" beside an example."""
    tab.open(f"{home}index.html")
    text = tab.run(COPIED) or ""
    if not text.strip() or ">>>" in text or "Matrix(" in text:
        yield f"copying gives {text[:80]!r}"


def complaints(tab: Tab, home: str) -> Iterator[str]:
    """What the browser told meanwhile."""
    for request in tab.told("Network.requestWillBeSent"):
        if not request["request"]["url"].startswith((home, "data:", "blob:", "about:")):
            yield f"asked for: {request['request']['url']}"
    for answer in tab.told("Network.responseReceived"):
        if answer["response"]["status"] >= 400:
            yield f"not there: {answer['response']['url']}"
    for error in tab.told("Runtime.exceptionThrown"):
        yield f"an error: {error['exceptionDetails'].get('exception', error['exceptionDetails'])}"


def main(site: Path, pictures: Path) -> int:
    """Look, and tell what is wrong."""
    pictures.mkdir(parents=True, exist_ok=True)
    flags = [flag for flag in FLAGS if not flag.startswith("--host-resolver-rules")]
    with tempfile.TemporaryDirectory() as profile, served(site) as home, browser(Path(profile), flags) as tab:
        wrong = [*looked_at(tab, home, pictures), *searched(tab, home, pictures), *copied(tab, home)]
        wrong += dict.fromkeys(complaints(tab, home))
    print(*wrong, f"{len(wrong)} faults; pictures are in {pictures}", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
