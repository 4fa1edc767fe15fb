"""TOML -> ProblemFile. Every complaint names the file, the key, and what is expected there."""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import sympy as sp

from bilevel_sym.arrays.data import MAX_RANK, DataArray, data_array
from bilevel_sym.arrays.files import is_array_file, read_array
from bilevel_sym.errors import InvalidArgument, InvalidProblem, UnsafeExpression
from bilevel_sym.graph.exact import MAX_DIGITS, decimal_rational, rational
from bilevel_sym.problem.constraints import CONSTRAINT_WORDS, unsupported
from bilevel_sym.problem.file.fields import KINDS, Arrays, Intervals, Numbers, ProblemFile, Rows
from bilevel_sym.problem.parsing import check_name
from bilevel_sym.problem.parsing.array_declarations import declared, declared_shape, has_brackets
from bilevel_sym.system.plain_text import named

__all__ = ["SYMBOLIC", "parse_problem", "read_problem"]

MAX_BYTES = 2_000_000
MAX_PIECES = 100_000
SYMBOLIC = "symbolic"
MISSPELT = 0.8  # of a likeness from 0 to 1, from which a key is a word for constraints
_KEYS = ("name", "kind", "x", "y", "xi", "zeta", "f", "g", "parameters", "box", "data")
_EXTRA: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"bilevel": ("xi", "zeta"), "minimax": ("g", "xi", "zeta"), "stochastic": ()}
)
Files = Callable[[str, str], DataArray]  # what the text of a file's name, and the name of the data, mean

# Strings and comments, each read once: an unclosed one runs to the end, so nothing is tried twice.
_QUOTED = re.compile(
    r'''
      """ (?: [^"\\] | \\. | "(?!"") )*+ (?: """ | \Z )
    | \'\'\' (?: [^'] | '(?!'') )*+ (?: \'\'\' | \Z )
    | " (?: [^"\\\n] | \\. )*+ "?+
    | ' [^'\n]*+ '?+
    | \# [^\n]*+
    ''',
    re.VERBOSE | re.DOTALL,
)
_DOTTED_KEY = re.compile(r'(?: (?: (?<![\w-]) [\w-]++ | "" ) [ \t]*+ \. [ \t]*+ ){9}', re.VERBOSE)
_PIECE = re.compile(r"[,=\[{\n]")


def read_problem(path: str | os.PathLike[str]) -> ProblemFile:
    """Read a problem file; InvalidProblem says what is wrong with it.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.toml"
    >>> _ = path.write_text('x = "x"\\ny = "y"\\nf = "a*y"\\ng = "y**2/2 - x*y"\\n[parameters]\\na = 0.1\\n')
    >>> dict(read_problem(path).parameters)
    {'a': 1/10}
    """
    try:
        shown = os.fsdecode(path)
    except TypeError:
        raise InvalidArgument(f"a path is text, not {path!r:.40}", hint="BilevelProblem.load('toy.toml')") from None
    folder = Path(shown).parent
    return parse_problem(_read_text(Path(shown)), named(shown), lambda file, name: read_array(folder, file, name))


def parse_problem(text: str, path: str, files: Files | None = None) -> ProblemFile:
    """The fields that a TOML text says.

    text: of the problem file
    path: names it in messages
    files: reads the arrays that lie beside it; without, there are none

    >>> parse_problem('kind = "minimax"\\nx = "x"\\ny = "y"\\nf = "x*y - y**2"', "toy").f
    'x*y - y**2'
    """
    text = text.replace("\r\n", "\n")  # as tomllib does, so that places agree
    return _Reader(path, text, _load(text, path), files).fields()


def _read_text(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidProblem(f"{named(path)} is not a file", hint="give the path of a TOML file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidProblem):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidProblem(f"{named(path)} cannot be read: {reason}", hint="give the path of a TOML file") from None
    if len(content) > MAX_BYTES:
        raise InvalidProblem(f"{named(path)} is larger than {MAX_BYTES} bytes", hint="build the problem in Python")
    try:
        return content.decode("utf-8-sig")  # with the mark that some editors put first, or without
    except UnicodeDecodeError as error:
        raise InvalidProblem(
            f"{named(path)} is not UTF-8 text: byte {error.start} is wrong", hint="save it as UTF-8"
        ) from None


def _load(text: str, path: str) -> dict[str, Any]:
    _refuse_bombs(text, path)
    try:
        return tomllib.loads(text, parse_float=_exact)
    except InvalidProblem as error:
        raise InvalidProblem(f"{path}: {error.message}", hint=error.hint) from None
    except RecursionError:
        raise InvalidProblem(f"{path}: brackets are nested too deeply") from None
    except ValueError as error:  # tomllib's own error among them; its text gives line and column
        raise InvalidProblem(
            f"{path} is not valid TOML: {error!s:.200}",
            hint='text and names in quotes: x = ["x1", "x2"], f = "x1*y"; each key once; [box] and [parameters] last',
        ) from None


def _refuse_bombs(text: str, path: str) -> None:
    """tomllib takes quadratic time for dotted keys, and microseconds for every piece."""
    skeleton = _QUOTED.sub('""', text)
    if _DOTTED_KEY.search(skeleton):
        raise InvalidProblem(f"{path} has a dotted key of many parts", hint="keys are single words")
    if sum(1 for _ in _PIECE.finditer(skeleton)) > MAX_PIECES:
        raise InvalidProblem(f"{path} holds more than {MAX_PIECES} values", hint="build the problem in Python")


def _exact(digits: str) -> sp.Rational | float:
    if digits.lstrip("+-") in ("nan", "inf"):
        return float(digits)  # refused where its key is known
    return decimal_rational(digits.replace("_", ""))


class _Reader:
    """One parsed file."""

    def __init__(self, path: str, text: str, table: Mapping[str, Any], files: Files | None) -> None:
        self._path = path
        self._text = text
        self._table = table
        self._files = files

    def fields(self) -> ProblemFile:
        kind = self._kind()
        groups = {group: self._names(group) for group in self._groups(kind)}
        parameters = self._parameters()
        arrays = kind != "stochastic" or self._has_arrays(groups)
        data = self._data() if arrays and "data" in self._table else None
        names = {group: tuple(_bare(item) for item in items) for group, items in groups.items()}
        rows = {*names.get("xi", ()), *names.get("zeta", ())}  # those of arrays stand in data by their names
        shared = tuple(name for name in data or () if name not in rows)
        self._refuse_clashes({**names, "parameters": tuple(parameters), "data": shared})
        fields = ProblemFile(
            kind=kind,
            x=groups["x"],
            y=groups["y"],
            f=self._string("f"),
            g=None if kind == "minimax" else self._string("g"),
            name=self._string("name") if "name" in self._table else None,
            parameters=parameters,
            box=self._box((*names["x"], *names["y"])),
            data=data,
            path=self._path,
            text=self._text,
        )
        if kind == "stochastic" and arrays:
            return replace(fields, xi=groups["xi"], zeta=groups["zeta"])
        return fields if kind != "stochastic" else self._with_data(fields, groups["xi"], groups["zeta"])

    def _has_arrays(self, groups: Mapping[str, Sequence[str]]) -> bool:
        """Whether a stochastic problem is stated with arrays: it has brackets, or gives its rows by their names."""
        data, rows = self._table.get("data"), {*groups["xi"], *groups["zeta"]} - {"xi", "zeta"}
        named = isinstance(data, dict) and not rows.isdisjoint(data)
        return named or any(has_brackets(items) for items in groups.values())

    def _with_data(self, fields: ProblemFile, xi: tuple[str, ...], zeta: tuple[str, ...]) -> ProblemFile:
        self._value("data")
        table = self._table_of("data")
        for key in table:
            if key not in ("xi", "zeta"):
                raise self._error(f"unknown key {key!r:.60} in data", _nearest(key, ("xi", "zeta")))
        rows = {key: self._rows(key, table.get(key), len(names)) for key, names in (("xi", xi), ("zeta", zeta))}
        return replace(fields, xi=xi, zeta=zeta, xi_data=rows["xi"], zeta_data=rows["zeta"])

    @staticmethod
    def _groups(kind: str) -> tuple[str, ...]:
        return ("x", "y", "xi", "zeta") if kind == "stochastic" else ("x", "y")

    def _error(self, message: str, hint: str | None = None) -> InvalidProblem:
        return InvalidProblem(f"{self._path}: {message}", hint=hint)

    def _kind(self) -> str:
        for key in self._table:
            if key not in _KEYS and difflib.get_close_matches(key[:60], CONSTRAINT_WORDS, n=1, cutoff=MISSPELT):
                error = unsupported(f"the key {key}")
                raise self._error(error.message, error.hint)
            if key not in _KEYS:
                raise self._error(f"unknown key {key!r:.60}", _nearest(key, _KEYS))
        kind = self._table.get("kind", "bilevel")
        if not isinstance(kind, str) or kind not in KINDS:
            raise self._error(f"kind is {_short(kind)}", f"one of {', '.join(KINDS)}")
        for key in _EXTRA[kind]:
            if key in self._table:
                raise self._error(f"a {kind} problem has no {key}", f"remove {key}, or change kind")
        return kind

    def _value(self, key: str) -> Any:
        if key not in self._table:
            raise self._error(f"the key {key} is missing", f"add a line {key} = ...")
        return self._table[key]

    def _string(self, key: str) -> str:
        value = self._value(key)
        if not isinstance(value, str):
            raise self._error(f"{key} must be text in quotes, but is {_short(value)}", f'{key} = "..."')
        return value

    def _names(self, key: str) -> tuple[str, ...]:
        value = self._value(key)
        if has_brackets(value):
            return self._declarations(key, [value] if isinstance(value, str) else value)
        names = value.replace(",", " ").split() if isinstance(value, str) else value
        if not isinstance(names, list) or (not names and key in ("x", "y")):  # a problem may have no noise
            raise self._error(f"{key} must be a list of names, but is {_short(value)}", f'{key} = ["{key}1", "{key}2"]')
        return tuple(self._name(key, name) for name in names)

    def _declarations(self, key: str, items: Iterable[object]) -> tuple[str, ...]:
        """Names and arrays: "lam", "W[p, q]"."""
        found = []
        for item in items:
            try:
                arrays = declared(item, key) if isinstance(item, str) else ()
            except UnsafeExpression as error:
                raise self._error(f"{key}: {error.what}, in {item!r:.60}", error.hint) from None
            for array in arrays:
                axes = f"[{', '.join(map(str, array.axes))}]" if array.axes else ""
                found.append(self._name(key, array.name) + axes)
            if not isinstance(item, str):
                self._name(key, item)  # says why not
        return tuple(found)

    def _data(self) -> Arrays:
        return {self._name("data", name): self._array(name, value) for name, value in self._table_of("data").items()}

    def _array(self, name: str, value: object) -> DataArray | str:
        """Numbers in lists, a file beside this one, or a shape alone."""
        try:
            if not isinstance(value, str):
                return data_array(_entries(value), name)
            if is_array_file(value):
                return self._read(value, name)
            declared_shape(value, name)
            return value
        except UnsafeExpression as error:
            hint = (
                error.hint or 'a file ("train.npy", "file.npz:A", "table.csv"), a shape ("m, n"), or numbers in lists'
            )
            raise self._error(f"data.{name}: {error.what}, in {value!r:.60}", hint) from None
        except InvalidProblem as error:
            raise self._error(f"data.{name}: {error.message}", error.hint) from None

    def _read(self, value: str, name: str) -> DataArray:
        if self._files is None:
            raise InvalidProblem(f"{value!r:.60} is a file, and there is no folder to look in", hint="numbers in lists")
        return self._files(value, name)

    def _name(self, key: str, name: object) -> str:
        try:
            return check_name(name, key)
        except InvalidProblem as error:
            raise self._error(error.message, error.hint) from None

    def _refuse_clashes(self, groups: Mapping[str, Sequence[str]]) -> None:
        owner: dict[str, str] = {}
        for group, names in groups.items():
            for name in names:
                if name in owner:
                    raise self._error(f"{name} stands twice: in {owner[name]} and in {group}", "rename one of them")
                owner[name] = group

    def _table_of(self, key: str) -> dict[str, Any]:
        value = self._table[key]
        if not isinstance(value, dict):
            raise self._error(f"{key} must be a table, but is {_short(value)}", f"write [{key}] on a line of its own")
        return value

    def _number(self, where: str, value: object) -> sp.Rational:
        try:
            number = rational(value, where, error=InvalidProblem)
        except InvalidProblem as error:
            place = "" if error.message.startswith(where) else f"{where}: "
            raise self._error(f"{place}{error.message}", error.hint) from None
        if max(abs(number.p), number.q) >= 10**MAX_DIGITS:
            raise self._error(f"{where} has more than {MAX_DIGITS} digits")
        return number

    def _parameters(self) -> Numbers:
        table = self._table_of("parameters") if "parameters" in self._table else {}
        return {
            self._name("parameters", name): None if value == SYMBOLIC else self._number(f"parameters.{name}", value)
            for name, value in table.items()
        }

    def _box(self, variables: Sequence[str]) -> Intervals | None:
        if "box" not in self._table:
            return None
        box = {}
        for name, ends in self._table_of("box").items():
            if name not in variables:
                raise self._error(f"the box names {name!r:.60}, which is no variable", _nearest(name, variables))
            if not isinstance(ends, list) or len(ends) != 2:
                raise self._error(f"box.{name} must be two numbers, but is {_short(ends)}", f"{name} = [-1, 1]")
            low, high = (self._number(f"box.{name}", end) for end in ends)
            if low > high:
                raise self._error(f"box.{name} runs from {low} down to {high}", "give the smaller end first")
            box[name] = (low, high)
        return box

    def _rows(self, key: str, rows: object, width: int) -> Rows:
        example = f"{key} = [[{', '.join('0' * width)}], [{', '.join('1' * width)}]]"
        if not isinstance(rows, list) or (width and not rows) or not all(isinstance(row, list) for row in rows):
            raise self._error(f"data.{key} must be rows of numbers, but is {_short(rows)}", example)
        for i, row in enumerate(rows):
            if len(row) != width:
                raise self._error(f"data.{key} row {i + 1} has {len(row)} numbers, not {width}", example)
        return tuple(
            tuple(self._number(f"data.{key} row {i + 1}", value) for value in row) for i, row in enumerate(rows)
        )


def _entries(value: object, depth: int = 0) -> object:
    """Numbers with a point or an exponent as fractions: 1e22 is no whole number that float64 would have to have."""
    if isinstance(value, list) and depth < MAX_RANK:
        return [_entries(item, depth + 1) for item in value]
    return Fraction(int(value.p), int(value.q)) if isinstance(value, sp.Rational) else value


def _bare(declaration: str) -> str:
    """The name in a declaration."""
    return declaration.partition("[")[0]


def _nearest(key: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(key[:60], names[:1000], n=1)
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(names[:20])}"


def _short(value: object) -> str:
    """A glance at a value of any size and depth."""
    if isinstance(value, str | bool | None):
        return f"{value!r:.40}"
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'table'} of {len(value)}"
    return "a number" if isinstance(value, int | sp.Rational) else f"a {type(value).__name__}"
