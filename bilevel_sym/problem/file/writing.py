"""ProblemFile -> TOML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from types import MappingProxyType

import sympy as sp

from bilevel_sym.arrays.data import DataArray, data_array
from bilevel_sym.arrays.files import npy_pieces, sparse_npz
from bilevel_sym.errors import InvalidArgument, InvalidProblem
from bilevel_sym.problem.file.fields import ProblemFile, Rows
from bilevel_sym.problem.file.reading import SYMBOLIC, parse_problem
from bilevel_sym.system.plain_text import named
from bilevel_sym.system.writing import Content, Where

__all__ = ["problem_files", "problem_toml"]

_PLAIN = re.compile(r"[\w.+ -]{1,100}")


MAX_INLINE = 200  # numbers of an array that stand in the file itself


def problem_toml(fields: ProblemFile) -> str:
    """The text of a problem file, which is known to read back as equal fields.

    >>> print(problem_toml(ProblemFile(kind="minimax", x=("x",), y=("y",), f="x*y - y**2", g=None)), end="")
    kind = "minimax"
    x = ["x"]
    y = ["y"]
    f = "x*y - y**2"
    """
    if large := _large(fields):
        name, array = next(iter(large.items()))
        raise InvalidProblem(
            f"the data {name} have {prod(array.shape)} entries, and a file holds {MAX_INLINE}",
            hint="save(path) puts larger arrays beside the file",
        )
    return _checked(fields, {})


def problem_files(fields: ProblemFile, path: Where) -> dict[Where, Content]:
    """The content of a problem file and of the files beside it that hold its larger arrays, by where they go.

    >>> toy = ProblemFile(kind="minimax", x=("x",), y=("y[n]",), f="x*sum(y) - y @ y", g=None, data={"n": "n"})
    >>> list(problem_files(toy, "toy.toml"))
    ['toy.toml']
    """
    large = _large(fields)
    if not large:
        return {path: problem_toml(fields)}
    target = Path(path)
    if target.exists() and not target.is_file():
        raise InvalidArgument(f"{named(path)} is no file that others can lie beside", hint="a path such as toy.toml")
    outside = _file_names(target.stem, large)
    files: dict[Where, Content] = {target.with_name(outside[name]): _content(array) for name, array in large.items()}
    return {target: _checked(fields, outside), **files}  # the problem itself first: a stream would not be undone


def _large(fields: ProblemFile) -> dict[str, DataArray]:
    """The arrays that do not stand in the file itself; a sparse one never does, for lists would make it dense."""
    arrays = {name: array for name, array in (fields.data or {}).items() if isinstance(array, DataArray)}
    return {name: array for name, array in arrays.items() if array.is_sparse or prod(array.shape) > MAX_INLINE}


def _file_names(stem: str, arrays: Mapping[str, DataArray]) -> dict[str, str]:
    """A name for each, with that of the problem in it; some systems do not tell a from A."""
    if not _PLAIN.fullmatch(stem):
        raise InvalidArgument(f"{stem!r:.60} cannot begin the names of files of data", hint="letters, digits, - and _")
    found: dict[str, str] = {}
    for name, array in arrays.items():
        taken = {known.lower() for known in found.values()}
        ending = "npz" if array.is_sparse else "npy"
        choices = (f"{stem}.{name}{more}.{ending}" for more in ("", *(f"-{k}" for k in range(2, len(arrays) + 2))))
        found[name] = next(choice for choice in choices if choice.lower() not in taken)
    return found


def _content(array: DataArray) -> Content:
    return sparse_npz(array) if array.is_sparse else npy_pieces(array)


def _checked(fields: ProblemFile, outside: Mapping[str, str]) -> str:
    """The text, read back."""
    content = _to_toml(fields, outside)
    try:
        content.encode()
    except UnicodeEncodeError:
        raise InvalidProblem("a name or formula holds half a letter, which no file can", hint="another name") from None
    beside = {file: (fields.data or {})[name] for name, file in outside.items()}

    def files(file: str, _: str) -> DataArray:
        array = beside[file]
        return array if isinstance(array, DataArray) else data_array(array, file)

    if parse_problem(content, "what would be written", files) != replace(fields, data=fields.data or None):
        raise InvalidProblem("these fields do not survive being written", hint="look for numbers given as text")
    return content


def _to_toml(fields: ProblemFile, outside: Mapping[str, str] = MappingProxyType({})) -> str:
    lines = [] if fields.name is None else [f"name = {_quoted(fields.name)}"]
    lines += [f"kind = {_quoted(fields.kind)}"]
    groups = ("x", "y", "xi", "zeta") if fields.kind == "stochastic" else ("x", "y")
    lines += [f"{group} = {_list(map(_quoted, getattr(fields, group)))}" for group in groups]
    lines += [f"f = {_quoted(fields.f)}"] + ([] if fields.g is None else [f"g = {_quoted(fields.g)}"])
    if fields.parameters:
        lines += ["", "[parameters]", *(f"{name} = {_number(value)}" for name, value in fields.parameters.items())]
    if fields.box is not None:
        lines += ["", "[box]", *(f"{name} = {_list(map(_number, ends))}" for name, ends in fields.box.items())]
    if fields.kind == "stochastic" and fields.data is None:
        lines += ["", "[data]", *_table("xi", fields.xi_data), *_table("zeta", fields.zeta_data)]
    elif fields.data:
        entries = ((name, outside.get(name, array)) for name, array in fields.data.items())
        lines += ["", "[data]", *(line for name, value in entries for line in _array(name, value))]
    return "\n".join(lines) + "\n"


def _table(name: str, rows: Rows) -> list[str]:
    return [f"{name} = [", *(f"    {_list(map(_number, row))}," for row in rows), "]"]


def _array(name: str, value: DataArray | str) -> list[str]:
    """A shape or a file in quotes, or numbers, a line for each row; repr of a float reads back as that float."""
    if isinstance(value, str):
        return [f"{name} = {_quoted(value)}"]
    entries = value.nested()
    if len(value.shape) < 2:
        return [f"{name} = {_list(map(repr, entries)) if value.shape else repr(entries)}"]
    return [f"{name} = [", *(f"    {_list(map(repr, row))}," for row in entries), "]"]


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
