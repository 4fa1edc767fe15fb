"""A command with its help, and values of options; what is wrong is told together with what is right."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import math
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bilevel_sym.cli.screen import Screen
from bilevel_sym.errors import InvalidArgument, InvalidProblem
from bilevel_sym.system.budget import EFFORTS
from bilevel_sym.system.memory import bytes_of
from bilevel_sym.system.plain_text import named

if TYPE_CHECKING:
    from bilevel_sym.problem.problem import BilevelProblem

__all__: list[str] = []

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

    >>> from bilevel_sym.cli.session import COMMANDS
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


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number between two.

    >>> whole(1)("1000")
    1000
    """
    wanted = f"a whole number {f'of at least {least}' if most is None else f'from {least} to {most}'}"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text[:40]!r} is not {wanted}{_written_out(text)}") from None
        if value < least or (most is not None and value > most):
            raise ArgumentTypeError(f"{text[:40]} is not {wanted}")
        return value

    return read


def _written_out(text: str) -> str:
    """1e3 means 1000 to many people."""
    with contextlib.suppress(ValueError):
        if (value := float(text)).is_integer() and abs(value) < 1e15:
            return f"\ntry: {int(value)}"
    return ""


def positive(text: str) -> float:
    """A positive decimal number.

    >>> positive("1e-3")
    0.001
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"{text[:40]!r} is not a positive number\ntry: a decimal, such as 0.001 or 1e-3")
    return value


def effort(text: str) -> float:
    """quick, default, thorough, or a multiple of the default.

    >>> effort("quick"), effort("2")
    (0.1, 2.0)
    """
    if text in EFFORTS:
        return EFFORTS[text]
    try:
        return positive(text)
    except ArgumentTypeError:
        names = ", ".join(EFFORTS)
        raise ArgumentTypeError(f"{text[:40]!r} is not an effort\ntry: {names}, or a multiple such as 2") from None


def memory(text: str) -> int:
    """A size, in bytes.

    >>> memory("500 MB")
    500000000
    """
    try:
        return bytes_of(text)
    except InvalidArgument as error:
        raise ArgumentTypeError(f"{text[:40]!r} is not a size\ntry: {error.hint}") from None


def one_of(*names: str) -> Callable[[str], str]:
    """A word out of a few.

    >>> one_of("text", "json")("json")
    'json'
    """

    def choose(text: str) -> str:
        if text in names:
            return text
        near = difflib.get_close_matches(text.lower()[:60], names, n=1)
        hint = f"did you mean {near[0]}?" if near else names[0]
        raise ArgumentTypeError(f"{text[:40]!r} is not one of {', '.join(names)}\ntry: {hint}")

    return choose


def as_point(text: str, option: str) -> dict[str, str]:
    """x1=1/3,x2=0.2 as a mapping; the numbers stay text, which means exactly what it says.

    >>> as_point("x1=1/3, x2=0.2", "--at")
    {'x1': '1/3', 'x2': '0.2'}
    """
    point: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise InvalidArgument(
                f"{option}: {part.strip()[:60]!r} is not NAME=VALUE", hint=f'{option} "x1=1/3,x2=0.2"'
            )
        if name in point:
            raise InvalidArgument(f"{option}: {name[:60]} is given twice", hint="one value for each variable")
        point[name] = value
    return point


def point_of(point: Mapping[str, str], problem: BilevelProblem, option: str, role: str = "x") -> dict[str, str]:
    """A value for every variable of x, or of y; the name of an array stands for all of its entries.

    A point that leaves out a variable, or gives something else, is refused.

    - ``point``: what was given.
    - ``problem``: whose variables are meant.
    - ``option``: its name in messages.
    - ``role``: "x" or "y".

    >>> point_of({"x": "1/3"}, load_problem("zoo:scalar"), "--at")
    {'x': '1/3'}
    """
    entries, arrays = (problem.x_entries, problem.x) if role == "x" else (problem.y_entries, problem.y)
    point = {**_spread(point, problem, role), **point} if problem.is_array else dict(point)
    names = [s.name for s in entries]
    wholes = {array.name for array in arrays} - set(names) if problem.is_array else set()
    point = {name: value for name, value in point.items() if name not in wholes}
    example = ",".join(f"{name}={point.get(name, 0)}" for name in names)
    hint = f'{option} "{example}"' if len(example) < 200 else f"{role} is {names[0]}, ..., {names[-1]}"
    if unknown := [name for name in point if name not in names]:
        raise InvalidArgument(f"{option}: {unknown[0][:60]} is not a variable of {role}", hint=hint)
    if absent := [name for name in names if name not in point]:
        raise InvalidArgument(f"{option}: no value for {', '.join(absent)[:200]}", hint=hint)
    return point


def _spread(point: Mapping[str, str], problem: BilevelProblem, role: str) -> dict[str, str]:
    """The entries of those arrays that have one value for all."""
    entries = problem.x_entries if role == "x" else problem.y_entries
    found: dict[str, str] = {}
    for array, own in problem.entries_by_array(role):
        if array in point:
            found |= {symbol.name: point[array] for symbol in entries[own]}
    return found


def load_problem(text: str) -> BilevelProblem:
    """The problem that a file, or ``zoo:name``, means.

    >>> load_problem("zoo:scalar").name
    'scalar'
    """
    if text.lower().startswith("zoo:"):
        from bilevel_sym import zoo

        return zoo.parse(text[4:]).problem
    from bilevel_sym.problem.problem import BilevelProblem

    path = Path(text)
    try:
        absent, folder = not path.exists(), path.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        absent, folder = True, False
    if absent or folder:
        what = f"{text[:200]} is a directory" if folder else f"there is no file {text[:200]!r}"
        raise InvalidProblem(what if text else "PROBLEM is empty", hint=_meant(text, path, folder))
    return BilevelProblem.load(path)


def _meant(text: str, path: Path, folder: bool) -> str:
    """What stands for a problem that is not there: a name of the zoo, or a file nearby."""
    from bilevel_sym import zoo

    known = (*zoo.names(), *zoo.data_names())
    name = text.removeprefix("zoo").lstrip("/.").partition(",")[0]
    if near := difflib.get_close_matches(name.removesuffix(".toml")[:60], known, n=1, cutoff=0.8):
        return f"did you mean zoo:{near[0]}?"
    try:
        files = sorted(item.name for item in (path if folder else path.parent).glob("*.toml"))
    except (OSError, ValueError):
        files = []
    if folder and files and text:
        return f"a file in it, such as {named(path / files[0])}"
    if near := difflib.get_close_matches(path.name[:60], files, n=1):
        return f"did you mean {named(path.with_name(near[0]))}?"
    return "a TOML file that says x, y, f and g, or zoo:NAME (bilevel-sym zoo lists the names)"
