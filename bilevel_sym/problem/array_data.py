"""Data as a user gives them, by name: arrays, shapes alone, columns of frames, rows of samples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import sympy as sp

from bilevel_sym.arrays.data import DataArray, columns_of, data_array
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.expressions import postorder
from bilevel_sym.problem.parsing.array_declarations import Declaration, array_name, declared_shape
from bilevel_sym.system.frames import is_frame

Symbols: TypeAlias = sp.MatrixSymbol | sp.IndexedBase | sp.Symbol
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")


@dataclass(frozen=True)
class Given:
    """Data as they were given: their entries, or a shape alone, and what is said of their axes.

    - ``array``: the entries; None where only the shape is known.
    - ``axes``: a letter or a number for each axis.
    - ``symmetric``: whether transposing is said to change nothing.

    >>> data_of({"A": "m, n"})["A"].axes
    ('m', 'n')
    """

    array: DataArray | None
    axes: tuple[str | int, ...]
    symmetric: bool = False


def data_of(data: object, formulas: Iterable[object] = ()) -> dict[str, Given]:
    """What was given as data, by name: a mapping, or a frame, of which the columns that formulas name are vectors.

    >>> data_of({"b": [1, 2]})["b"].axes
    (2,)
    """
    if data is None:
        return {}
    if is_frame(data):
        named = set().union(*map(names_in, formulas))
        return {name: _given(column, name) for name, column in columns_of(data).items() if name in named}
    if not isinstance(data, Mapping):
        raise InvalidProblem(
            f"data must map names to arrays, but are a {type(data).__name__}", hint="data={'A': A, 'b': b}"
        )
    return {_key(key): _given(value, _key(key)) for key, value in data.items()}


def _key(key: object) -> str:
    if isinstance(key, str):
        return array_name(key, "data")
    return declared_symbol(key, "data").name


def _given(value: object, name: str) -> Given:
    if isinstance(value, Given):
        return value
    if isinstance(value, str):
        shape = declared_shape(value, name)
        return Given(None, shape.axes, shape.symmetric)
    array = data_array(value, name)
    return Given(array, array.shape)


def declared_symbol(symbol: object, role: str) -> Declaration:
    """What a symbol declares.

    >>> declared_symbol(sp.MatrixSymbol("y", 3, 1), "y").axes
    (3,)
    """
    from bilevel_sym.arrays.sympy_door import declare

    if not isinstance(symbol, sp.Basic):
        raise InvalidProblem(
            f"{role} holds {symbol!r:.60}, which is neither a name nor a symbol", hint=f"{role}='{role}[n]'"
        )
    return Declaration(*declare(symbol))


def array_symbols_in(formulas: Iterable[object]) -> dict[str, Symbols]:
    """The symbols for arrays in the formulas that are SymPy's, by name; two of one name are refused.

    >>> array_symbols_in([sp.MatrixSymbol("y", 3, 1)[0, 0]])
    {'y': y}
    """
    from bilevel_sym.arrays.sympy_door import arrays_in

    found: dict[str, Symbols] = {}
    for formula in formulas:
        for name, symbol in arrays_in(formula).items() if isinstance(formula, sp.Basic) else ():
            if found.setdefault(name, symbol) != symbol:
                raise InvalidProblem(f"two different arrays are both called {name}", hint=f"make {name} once")
    return found


def names_in(formula: object) -> set[str]:
    """The names in a formula; in a text also what only looks like one.

    >>> sorted(names_in("sum(A @ y)"))
    ['A', 'sum', 'y']
    """
    if isinstance(formula, str):
        return set(_WORD.findall(formula))
    if not isinstance(formula, sp.Basic):
        return set()
    plain = {node.name for node in postorder(formula) if isinstance(node, sp.Symbol)}
    return plain | set(array_symbols_in([formula]))


def rows_of(role: str, declared: Sequence[Declaration], rows: object) -> dict[str, DataArray]:
    """The rows of each array of a role: by name, or a table whose columns are these arrays end to end.

    >>> found = rows_of("xi", [Declaration("a", ("n",)), Declaration("b", ())], [[1, 2, 3], [4, 5, 6]])
    >>> {name: array.nested() for name, array in found.items()}
    {'a': [[1, 2], [4, 5]], 'b': [3, 6]}
    """
    names = [entry.name for entry in declared]
    if not isinstance(rows, Mapping):
        return _cut(role, declared, rows) if names else {}
    found = {_key(key): data_array(value, _key(key)) for key, value in rows.items()}
    for name in found.keys() ^ set(names):
        what = "is missing" if name in names else "is not declared"
        raise InvalidProblem(f"{name} {what} in {role}_data", hint=f"{role}_data has {', '.join(names)}")
    for name, array in found.items():
        if not array.shape:
            raise InvalidProblem(f"{name} in {role}_data has no rows", hint="rows lead: one for each draw")
    return {name: found[name] for name in names}


def _cut(role: str, declared: Sequence[Declaration], rows: object) -> dict[str, DataArray]:
    table = data_array(rows, f"{role}_data")
    columns = table.shape[1] if len(table.shape) == 2 else 1 if len(table.shape) == 1 else 0
    fixed = sum(prod(map(int, entry.axes)) for entry in declared if all(isinstance(axis, int) for axis in entry.axes))
    open_ = [entry.axes for entry in declared if any(isinstance(axis, str) for axis in entry.axes)]
    width, rest = divmod(columns - fixed, len(open_)) if open_ else (0, columns - fixed)
    if rest or len(set(open_)) > 1 or any(len(axes) != 1 for axes in open_) or (open_ and width < 1) or not columns:
        shown = " ".join(map(declaration_text, declared))
        raise InvalidProblem(
            f"{role}_data has {columns} columns, which are not {shown} end to end",
            hint=f"{role}_data={{{', '.join(f'{entry.name!r}: ...' for entry in declared)}}}",
        )
    found, at = {}, 0
    values = table.values.toarray() if table.is_sparse else table.values.reshape(table.shape[0], columns)
    for entry in declared:
        size = prod(axis if isinstance(axis, int) else width for axis in entry.axes)
        part = values[:, at : at + size]
        found[entry.name] = data_array(part if entry.axes else part[:, 0], entry.name)
        at += size
    return found


def declaration_text(entry: Declaration) -> str:
    """What declares it.

    >>> declaration_text(Declaration("W", ("p", 3)))
    'W[p, 3]'
    """
    return f"{entry.name}[{', '.join(map(str, entry.axes))}]" if entry.axes else entry.name


def squeezed(given: Given, rank: int) -> Given:
    """A column or a row of data for a symbol with one index, a single entry for one with none.

    >>> squeezed(data_of({"b": [[1], [2]]})["b"], 1).axes
    (2,)
    """
    assert given.array is not None
    entries = given.array.values
    kept = [size for size in given.array.shape if size != 1]
    if len(kept) > rank:
        return given
    shape: Sequence[int] = kept if len(kept) == rank else [1] * rank
    dense = entries.toarray() if given.array.is_sparse else entries
    array = data_array(dense.reshape(shape), "the data")
    return Given(array, array.shape, given.symmetric)
