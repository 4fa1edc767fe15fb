"""``bilevel-sym docs``: where the documentation is."""

from __future__ import annotations

import argparse
import textwrap

from bilevel_sym.cli.command import Command
from bilevel_sym.cli.screen import Screen


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="a word, such as kernels (default: the whole site)")
    parser.add_argument("--open", action="store_true", help="open the page in a browser, as well as tell its address")


def _docs(options: argparse.Namespace, screen: Screen) -> int:
    with screen.meter("reading"):
        from bilevel_sym.cli.site import PAGES, SITE, pages_about

        addresses = [SITE] if options.topic is None else pages_about(options.topic)
    screen.show_all(addresses)
    if options.topic is None:
        screen.show_all(
            textwrap.wrap(
                f"topics: {', '.join(PAGES)}", max(40, screen.width - 2), subsequent_indent="  ", break_on_hyphens=False
            )
        )
    if options.open:
        from webbrowser import open_new_tab

        if not open_new_tab(addresses[0]):
            screen.show("no browser could be opened here")
    return 0


DOCS = Command(
    name="docs",
    summary="the address of the documentation, or of its page about a topic",
    examples=(
        ("bilevel-sym docs", "the site, and the topics"),
        ("bilevel-sym docs kernels --open", "the page about kernels, in a browser"),
    ),
    add_arguments=_arguments,
    run=_docs,
    codes=("0  the address is told",),
    notes="Addresses are told without asking any network.\n",
)
