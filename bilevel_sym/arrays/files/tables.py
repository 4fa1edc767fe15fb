"""Tables of numbers as text: .csv, with or without a line of names."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from bilevel_sym.errors import InvalidProblem

MAX_TABLE = 200_000_000  # bytes


def read_table(lines: Iterable[str], column: str | None) -> Any:
    """The numbers of a table: one column is a vector, several are a matrix; or the column of a name.

    >>> read_table(["a,b", "1,2.5", "3,4"], None)
    array([[1. , 2.5],
           [3. , 4. ]])
    >>> read_table(["a,b", "1,2.5", "3,4"], "b")
    array([2.5, 4. ])
    """
    rows = csv.reader(lines, strict=True)
    try:
        filled = (row for row in rows if row)
        first = next(filled, None)
        if first is None:
            raise InvalidProblem("is empty", hint="lines of numbers with commas between them")
        names = None if _is_numbers(first) else _names(first)
        chosen = _place(names, column)
        body = filled if names is not None else chain([first], filled)
        return _numbers(body, rows, names or [str(k + 1) for k in range(len(first))], chosen)
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidProblem(
            f"is no table: {error!s:.100} (line {rows.line_num + 1})", hint="UTF-8, with commas"
        ) from None


def _is_numbers(row: Sequence[str]) -> bool:
    return not any(_value(cell) is None for cell in row)


def _value(cell: str) -> float | None:
    """A decimal number; Python would also take 1_000."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _names(row: Sequence[str]) -> list[str]:
    names = [cell.strip() for cell in row]
    for name in names:
        if names.count(name) > 1 and len(names) <= 1000:
            raise InvalidProblem(f"has two columns called {name!r:.60}", hint="rename one of them")
    return names


def _place(names: Sequence[str] | None, column: str | None) -> int | None:
    if column is None:
        return None
    if names is None:
        raise InvalidProblem(f"has no line of names, and so no column {column!r:.60}", hint="names in its first line")
    if column not in names:
        raise InvalidProblem(f"has no column {column!r:.60}", hint=f"there are {', '.join(names[:20]):.200}")
    return names.index(column)


def _numbers(rows: Iterator[list[str]], reader: Any, names: Sequence[str], chosen: int | None) -> Any:
    """Row by row; the first cell that is no finite number is named."""
    found = array("d")
    width = len(names)
    for row in rows:
        if len(row) != width:
            raise InvalidProblem(
                f"has {len(row)} cells in line {reader.line_num}, not {width}", hint="one for each column"
            )
        cells = row if chosen is None else row[chosen : chosen + 1]
        values = [_value(cell) for cell in cells]
        for k, value in enumerate(values):
            if value is None or not math.isfinite(value):
                name = names[k if chosen is None else chosen]
                hint = "finite numbers only; name one column behind a colon to take that alone"
                raise InvalidProblem(
                    f"holds {cells[k]!r:.40} in line {reader.line_num}, column {name!s:.60}", hint=hint
                )
        found.extend(values)  # type: ignore[arg-type]
    numbers = np.array(found, dtype=np.float64)
    return numbers if chosen is not None or width == 1 else numbers.reshape(-1, width)
