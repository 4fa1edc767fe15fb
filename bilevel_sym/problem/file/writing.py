"""ProblemFile -> TOML."""

from __future__ import annotations

from collections.abc import Iterable

import sympy as sp

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.problem.file.fields import ProblemFile, Rows
from bilevel_sym.problem.file.reading import SYMBOLIC, parse_problem

__all__ = ["problem_toml"]


def problem_toml(fields: ProblemFile) -> str:
    """The text of a problem file, which is known to read back as equal fields.

    >>> print(problem_toml(ProblemFile(kind="minimax", x=("x",), y=("y",), f="x*y - y**2", g=None)), end="")
    kind = "minimax"
    x = ["x"]
    y = ["y"]
    f = "x*y - y**2"
    """
    content = _to_toml(fields)
    try:
        content.encode()
    except UnicodeEncodeError:
        raise InvalidProblem("a name or formula holds half a letter, which no file can", hint="another name") from None
    if parse_problem(content, "what would be written") != fields:
        raise InvalidProblem("these fields do not survive being written", hint="look for numbers given as text")
    return content


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
