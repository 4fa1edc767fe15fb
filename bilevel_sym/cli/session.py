"""One run of the program: parse, do, and turn every ending into a message and an exit code.

Errors of parsing say what was probably meant.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from bilevel_sym import __version__
from bilevel_sym.cli.campaigning import CAMPAIGN
from bilevel_sym.cli.checking import CHECK
from bilevel_sym.cli.command import Command
from bilevel_sym.cli.judging import ERRATA, RECHECK, VERIFY
from bilevel_sym.cli.making import COMPILE, REPRODUCE
from bilevel_sym.cli.reading import DOCS
from bilevel_sym.cli.reporting import REPORT
from bilevel_sym.cli.screen import INTERRUPTED, Interrupts, Screen, tell, tell_interrupted
from bilevel_sym.cli.showing import CERTIFY, DERIVE, ZOO
from bilevel_sym.cli.solve import SOLVE
from bilevel_sym.errors import BilevelError
from bilevel_sym.system.plain_text import named

__all__ = ["COMMANDS", "parse", "run"]

COMMANDS: tuple[Command, ...] = (
    DERIVE, SOLVE, VERIFY, CHECK, CERTIFY, RECHECK, CAMPAIGN, ZOO, ERRATA, REPORT, REPRODUCE, COMPILE,
    DOCS,
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
BAD_INPUT = 2
MESSAGE_LINES = 4  # lines of a message
LINE_LETTERS = 500  # letters of a line


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
        if match := re.match(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message, re.S):
            names = re.findall(r"\w+", match[3])
            near = difflib.get_close_matches(match[2].lower()[:60], names, n=1)
            what = f"{match[2][:60]!r} is not one of {', '.join(names)}"
            return what, f"did you mean {near[0]}?" if near else self.example
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


def run(arguments: Sequence[str] | None, interrupts: Interrupts) -> int:
    """Run a command and return its exit code.

    >>> run(["zoo", "minimax_nash"], Interrupts(until_the_end=False))  # doctest: +ELLIPSIS
    minimax_nash: A local minimax point that is also a local Nash equilibrium.
    ...
    0
    """
    screen = Screen()
    try:
        code = _run(arguments, screen)
        screen.flush()
    except BrokenPipeError:  # the reader (head, less) has seen enough
        return 0
    except KeyboardInterrupt:
        return _interrupted(screen)
    except (BilevelError, OSError, MemoryError) as error:
        _explain(error)
        return BAD_INPUT
    except Exception as error:
        if interrupts.came:  # an import written in C makes an ImportError of Ctrl-C
            return _interrupted(screen)
        if sys.flags.dev_mode:
            raise
        _explain(error)
        return BAD_INPUT
    return code


def _interrupted(screen: Screen) -> int:
    kept = "what stands above is complete" if screen.shown else "nothing was finished"
    tell_interrupted("the last line above may be cut off" if screen.midway else kept, midway=screen.midway)
    return INTERRUPTED


def _run(arguments: Sequence[str] | None, screen: Screen) -> int:
    try:
        options = parse(arguments)
    except SystemExit as left:  # help and mistyped options: argparse has said everything
        return int(left.code or 0)
    code: int = options.command.run(options, screen)
    return code


def _explain(error: Exception) -> None:
    """What is wrong, and what to try, in four lines at most."""
    lines = [line[:LINE_LETTERS] for line in _message_of(error).splitlines()] or [type(error).__name__]
    if len(lines) > MESSAGE_LINES:
        lines = [*lines[: MESSAGE_LINES - 1], lines[-1]]  # the last one says what to try
    tell("error: " + "\n".join(lines))


def _message_of(error: Exception) -> str:
    if isinstance(error, BilevelError):
        return str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this\ntry: a smaller problem, fewer --seeds, or fewer --steps with --out"
    if isinstance(error, OSError):
        where = f"{named(str(error.filename))}: " if error.filename else ""
        return f"{where}{error.strerror or error}\ntry: another place; is it writable, and is the disk full?"
    if isinstance(error, ImportError):
        return f"{error}\ntry: pip install bilevel-sym once more, in a fresh environment"
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    why = "this is a defect of bilevel-sym, not of your input"
    return f"unexpected {what}\n{why}\ntry: python -X dev -m bilevel_sym ... shows where"
