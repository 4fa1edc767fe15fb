"""ProblemFile -> TOML, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import sympy as sp

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.problem_file.fields import ProblemFile, Rows
from bilevel_sym.problem_file.reading import SYMBOLIC, parse_problem

__all__ = ["write_problem"]


def write_problem(fields: ProblemFile, path: str | os.PathLike[str]) -> None:
    """Write a problem file that reads back as equal fields; on any failure the old file stays as it was.

    >>> import pathlib, tempfile
    >>> from bilevel_sym.problem_file import read_problem
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.toml"
    >>> fields = ProblemFile(kind="minimax", x=("x",), y=("y",), f="x*y - y**2", g=None)
    >>> write_problem(fields, path)
    >>> read_problem(path) == fields
    True
    """
    content = _to_toml(fields)
    if parse_problem(content, "what would be written") != fields:
        raise InvalidProblem("these fields do not survive being written", hint="look for numbers given as text")
    target = Path(os.path.realpath(path))  # through a link, so that the link stays one
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with beside.open("x", encoding="utf-8", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except (OSError, ValueError) as error:
        _forget(beside)
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidProblem(f"{path} cannot be written: {reason}") from None


def _forget(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except (OSError, ValueError):
        return  # the first error is the one worth reporting


def _to_toml(fields: ProblemFile) -> str:
    lines = [] if fields.name is None else [f"name = {_quoted(fields.name)}"]
    lines += [f"kind = {_quoted(fields.kind)}"]
    groups = ("x", "y", "xi", "zeta") if fields.kind == "stochastic" else ("x", "y")
    lines += [f"{group} = {_list(map(_quoted, getattr(fields, group)))}" for group in groups]
    lines += [f"f = {_quoted(fields.f)}"] + ([] if fields.g is None else [f"g = {_quoted(fields.g)}"])
    if fields.parameters:
        lines += ["", "[parameters]", *(f"{name} = {_number(value)}" for name, value in fields.parameters.items())]
    if fields.box is not None:
        lines += ["", "[box]", *(f"{name} = {_list(map(_number, ends))}" for name, ends in fields.box.items())]
    if fields.kind == "stochastic":
        lines += ["", "[data]", *_table("xi", fields.xi_data), *_table("zeta", fields.zeta_data)]
    return "\n".join(lines) + "\n"


def _table(name: str, rows: Rows) -> list[str]:
    return [f"{name} = [", *(f"    {_list(map(_number, row))}," for row in rows), "]"]


def _list(items: Iterable[str]) -> str:
    return f"[{', '.join(items)}]"


def _quoted(text: str) -> str:
    """A TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'


def _number(number: sp.Rational | None) -> str:
    """An integer or a short decimal as a number; any other fraction as text, "p/q"; None as "symbolic"."""
    if number is None:
        return _quoted(SYMBOLIC)
    if number.q == 1:
        return str(number.p) if abs(number.p) < 2**63 else _quoted(str(number.p))  # TOML promises no larger ones
    for places in range(1, 18):
        if 10**places % number.q == 0:
            digits = str(abs(number.p) * 10**places // number.q).rjust(places + 1, "0")
            return f"{'-' if number.p < 0 else ''}{digits[:-places]}.{digits[-places:]}"
    return _quoted(f"{number.p}/{number.q}")
