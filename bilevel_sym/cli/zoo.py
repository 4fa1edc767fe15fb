"""``bilevel-sym zoo``: problems that carry their answers."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator

from bilevel_sym.cli.command import Command
from bilevel_sym.cli.records import example_record, json_text, zoo_record
from bilevel_sym.cli.screen import Screen
from bilevel_sym.cli.values import one_of

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="one problem with its answers (default: list all)")
    parser.add_argument(
        "--format", metavar="FORMAT", type=one_of("text", "json"), default="text",
        help="text (default) or json (bilevel-sym/zoo/1; with NAME bilevel-sym/example/1)",
    )  # fmt: skip


def _run(options: argparse.Namespace, screen: Screen) -> int:
    with screen.meter("reading"):
        from bilevel_sym import zoo

        as_json = options.format == "json"
        if options.name is not None:
            example = zoo.parse(options.name.removeprefix("zoo:"))
            record = example_record(example) if as_json else {}
            text = "" if as_json else example.describe(width=max(40, screen.width - 15))
        else:
            record, text = zoo_record() if as_json else {}, "\n".join(_listed(screen.width))
        screen.show(json_text(record, ascii_only=screen.only_ascii) if as_json else text, plain=as_json)
    return 0


def _listed(columns: int) -> Iterator[str]:
    from bilevel_sym import zoo

    width = max(map(len, zoo.names())) + 2
    for name in zoo.names():
        yield from textwrap.wrap(
            zoo.summary(name), max(40, columns), initial_indent=name.ljust(width), subsequent_indent=" " * width
        )


COMMAND = Command(
    name="zoo",
    summary="problems that carry their answers",
    examples=(
        ("bilevel-sym zoo", "their names"),
        ("bilevel-sym zoo saddle", "one of them: y*, Phi, stationary points, constants"),
        ("bilevel-sym zoo tube,d=3,L=2", "with other parameters"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
