"""Command: one word of the command line with its help and what it does."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from bilevel_sym.cli.screen import Screen
from bilevel_sym.cli.values import one_of

__all__ = ["PROBLEM", "Command", "add_format"]

PROBLEM = """\
PROBLEM is a problem file or a problem of the zoo:
  toy.toml             a TOML file with x, y, f and g
  zoo:saddle           by name; `bilevel-sym zoo` lists them
  zoo:tube,d=10,L=2    with parameters; `bilevel-sym zoo tube` tells which
"""


@dataclass(frozen=True)
class Command:
    """What the parser needs to offer a command, and the session to run it.

    ``examples`` are pairs of a command line and what it is for; ``codes`` are the exit codes besides 2, 130 and 143.
    ``run`` shows what it finds and returns the exit code.

    >>> from bilevel_sym.cli.parser import COMMANDS
    >>> [command.name for command in COMMANDS][:3]
    ['derive', 'solve', 'verify']
    """

    name: str
    summary: str
    examples: tuple[tuple[str, str], ...]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Screen], int]
    codes: tuple[str, ...] = ("0  done",)
    notes: str = ""

    @property
    def epilog(self) -> str:
        """What stands below the options: PROBLEM, examples, exit codes."""
        examples = "\n".join(f"  {line}\n      {meaning}" for line, meaning in self.examples)
        codes = "\n".join(f"  {code}" for code in (*self.codes, "2  bad input", "130  interrupted; 143 by SIGTERM"))
        notes = f"{self.notes}\n" if self.notes else ""
        return f"{notes}examples:\n{examples}\n\nexit codes:\n{codes}"


def add_format(parser: argparse.ArgumentParser, names: tuple[str, ...], meaning: str) -> None:
    """The option --format; the first name is the default.

    >>> parser = argparse.ArgumentParser()
    >>> add_format(parser, ("text", "json"), "text (default) or json")
    >>> parser.parse_args([]).format
    'text'
    """
    parser.add_argument("--format", metavar="FORMAT", type=one_of(*names), default=names[0], help=meaning)
