"""``bilevel-sym zoo``: problems that carry their answers."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator

from bilevel_sym.cli.command import Command, add_format
from bilevel_sym.cli.records import example_record, zoo_record
from bilevel_sym.cli.screen import Screen

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="one problem with its answers (default: list all)")
    add_format(parser, ("text", "json"), "text (default) or json (bilevel-sym/zoo/1; with NAME bilevel-sym/example/1)")


def _run(options: argparse.Namespace, screen: Screen) -> int:
    with screen.meter("reading"):
        from bilevel_sym import zoo

        example = None if options.name is None else zoo.parse(options.name.removeprefix("zoo:"))
        if options.format == "json":
            screen.show_json(zoo_record() if example is None else example_record(example))
        elif example is None:
            screen.show_all(_listed(screen.width))
        else:
            screen.show(example.describe(width=max(40, screen.width - 15)))
    return 0


def _listed(columns: int) -> Iterator[str]:
    listed = zoo_record()["problems"]
    width = max(len(problem["name"]) for problem in listed) + 2
    for problem in listed:
        yield from textwrap.wrap(
            problem["summary"], max(40, columns), initial_indent=problem["name"].ljust(width),
            subsequent_indent=" " * width,
        )  # fmt: skip


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
