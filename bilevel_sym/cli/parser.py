"""The parser: commands with their help, and errors that say what was probably meant."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from bilevel_sym import __version__
from bilevel_sym.cli import certify, compiling, derive, errata, recheck, reproduce, solve, verify, zoo
from bilevel_sym.cli.command import Command
from bilevel_sym.cli.screen import tell

__all__ = ["COMMANDS", "parse"]

COMMANDS: tuple[Command, ...] = (
    derive.COMMAND, solve.COMMAND, verify.COMMAND, certify.COMMAND, recheck.COMMAND, zoo.COMMAND, errata.COMMAND,
    reproduce.COMMAND, compiling.COMMAND,
)  # fmt: skip

OVERVIEW = f"""\
what shall be done? One of {", ".join(command.name for command in COMMANDS)}
  bilevel-sym zoo                  problems to begin with
  bilevel-sym derive zoo:scalar    all formulas of one
try: bilevel-sym --help"""

DESCRIPTION = """\
Exact formulas, certificates, solvers and verdicts for bilevel and minimax
optimization."""

EPILOG = """\
examples:
  bilevel-sym zoo
      problems to begin with
  bilevel-sym derive zoo:scalar
      y*, Phi, its gradient and Hessian, term by term
  bilevel-sym verify zoo:saddle --claims lem:descent
      does the descent lemma hold there?
  bilevel-sym solve --help
      options, examples and exit codes of a command

exit codes:
  0  done, and nothing is violated
  1  something is violated, or every trajectory failed
  2  bad input
  130  interrupted by Ctrl-C; 143 by SIGTERM

Progress is shown on a terminal, and colours too, unless NO_COLOR is set."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command; leaves with a short message, and code 2, where they make no sense.

    >>> parse(["derive", "zoo:scalar"]).format
    'text'
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = _Parser(
        prog="bilevel-sym", description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    version = f"bilevel-sym {__version__}"
    parser.add_argument("-V", "--version", action="version", version=version, help="show the version and leave")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        _add(subparsers, command)
    if unseen := next((word for word in words if not word.isprintable()), None):
        parser.error(f"{unseen[:60]!r} has a character that cannot be printed\ntry: another name for the file")
    _check_command(parser, words)
    options, unknown = parser.parse_known_args(words)
    if unknown:
        _refuse(options.parser, unknown[0])
    return options


class _Parser(argparse.ArgumentParser):
    """argparse, with errors of two lines instead of the whole usage."""

    example = ""

    def error(self, message: str) -> NoReturn:
        what, hint = self._plainly(message)
        tell(f"error: {what}\ntry: {hint or f'{self.prog} --help'}")
        raise SystemExit(2)

    def _plainly(self, message: str) -> tuple[str, str]:
        if match := re.match(r"the following arguments are required: (.*)", message):
            return f"{match[1]} is missing", self.example
        if match := re.match(r"argument (\S+): expected one argument", message):
            return (
                f"{match[1]} wants a value after it",
                f"{match[1]} VALUE, or {match[1]}=VALUE where it begins with a minus sign",
            )
        what, _, hint = message.removeprefix("argument ").partition("\ntry: ")
        return what, hint


def _add(subparsers: argparse._SubParsersAction[_Parser], command: Command) -> None:
    added = subparsers.add_parser(
        command.name, help=command.summary, description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=command.epilog, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    added.example = command.examples[0][0]
    command.add_arguments(added)
    added.set_defaults(command=command, parser=added)


def _check_command(parser: _Parser, words: Sequence[str]) -> None:
    names = [command.name for command in COMMANDS]
    if not words:
        tell(OVERVIEW)
        raise SystemExit(2)
    first = words[0]
    if first in names or first in ("-h", "--help", "-V", "--version"):
        return
    if first.startswith("-"):
        parser.error(f"{first[:60]} is not an option of bilevel-sym itself; options of a command stand behind it")
    near = difflib.get_close_matches(first.lower()[:60], names, n=1)
    if first.startswith("zoo:") or first.endswith(".toml"):
        hint = f"bilevel-sym derive {first[:60]}"
    elif f"--{first}" in ("--help", "--version"):
        hint = f"bilevel-sym --{first}"
    else:
        hint = f"did you mean {near[0]}?" if near else "bilevel-sym --help"
    parser.error(f"there is no command {first[:60]!r}; there are {', '.join(names)}\ntry: {hint}")


def _refuse(parser: _Parser, word: str) -> NoReturn:
    """A word that no option has asked for."""
    if not word.startswith("-"):
        hint = 'commas, no spaces, and quotes around them: "x1=0,x2=0"' if "=" in word else parser.example
        parser.error(f"{word[:60]!r} is one word too many\ntry: {hint}")
    name = word.partition("=")[0]
    known = sorted(set(re.findall(r"--[a-z][\w-]*", parser.format_usage())))
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"
    parser.error(f"{parser.prog.split()[-1]} has no option {name[:60]}\ntry: {hint}")
