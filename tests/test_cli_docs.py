"""`bilevel-sym docs`: addresses without a network; a page is found by its name and by what readers call it."""

from __future__ import annotations

import webbrowser

import pytest

from bilevel_sym.cli import main
from bilevel_sym.cli.site import PAGES, SITE, pages_about
from bilevel_sym.errors import InvalidArgument


def test_the_site_and_its_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    first, *topics = capsys.readouterr().out.splitlines()
    assert first == SITE
    assert " ".join(line.strip() for line in topics) == f"topics: {', '.join(PAGES)}"


@pytest.mark.parametrize("topic", PAGES)
def test_every_topic_is_found_by_its_name(topic: str) -> None:
    assert pages_about(topic) == [SITE + PAGES[topic][0]]
    assert pages_about(topic.upper()) == pages_about(topic)


@pytest.mark.parametrize("word", sorted({word for _, words in PAGES.values() for word in words.split()}))
def test_every_other_word_leads_to_the_pages_that_claim_it(word: str) -> None:
    claimed = [SITE + path for path, words in PAGES.values() if word in words.split()]
    named = [SITE + PAGES[topic][0] for topic in (word, f"{word}s", word.removesuffix("s")) if topic in PAGES]
    assert pages_about(word) == (named or claimed)


def test_a_word_of_no_page_is_refused_with_one_nearby(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "kernal"]) == 2
    assert capsys.readouterr().err.splitlines()[1] == "try: did you mean kernels?"
    with pytest.raises(InvalidArgument):
        pages_about("")


@pytest.mark.parametrize(("opens", "lines"), [(True, 1), (False, 2)])
def test_a_browser_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], opens: bool, lines: int
) -> None:
    asked: list[str] = []

    def answer(address: str) -> bool:
        asked.append(address)
        return opens

    monkeypatch.setattr(webbrowser, "open_new_tab", answer)
    assert main(["docs", "kernels", "--open"]) == 0
    assert asked == [f"{SITE}guide/kernels.html"]
    assert len(capsys.readouterr().out.splitlines()) == lines
