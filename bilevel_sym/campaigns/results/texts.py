"""Tables of a campaign as text: CSV for programs, Markdown for people; Parquet as bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bilevel_sym.campaigns.batch import MEASURED
from bilevel_sym.campaigns.results.columns import arrow
from bilevel_sym.system.writing import csv_lines

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["csv_of", "markdown_of", "parquet_of"]

AT_ONCE = 10_000  # rows that are Python's for a moment
FOR_PROGRAMS = ("key", "code", *(name for name in MEASURED if name != "seconds"))
CELL_LETTERS = 80
DIGITS = 6


def csv_of(table: pa.Table) -> Iterator[str]:
    """A line of names and one for each row; lists are JSON in one cell, and what is not there is empty.

    >>> list(csv_of(arrow().table({"x": [[0.5, 1.0]], "ok": [True], "said": [None]})))
    ['x,ok,said\\r\\n', '"[0.5, 1.0]",true,\\r\\n']
    """
    yield from csv_lines([table.column_names])
    yield from csv_lines([_cell(value) for value in row] for row in _rows(table))


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches(max_chunksize=AT_ONCE):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def markdown_of(table: pa.Table) -> Iterator[str]:
    """A table to read: numbers to six digits, long texts cut, and without columns that are empty or for programs.

    Those are ``key``, ``code``, ``started``, ``ended``, ``worker`` and ``host``.

    >>> list(markdown_of(arrow().table({"eta": [0.1, 1 / 3], "key": ["a", "b"], "message": [None, None]})))
    ['| eta |', '| --- |', '| 0.1 |', '| 0.333333 |']
    """
    names = [
        name for name in table.column_names
        if name not in FOR_PROGRAMS and table.column(name).null_count < max(1, table.num_rows)
    ]  # fmt: skip
    yield f"| {' | '.join(names)} |"
    yield f"| {' | '.join(['---'] * len(names))} |"
    for row in _rows(table.select(names)):
        yield f"| {' | '.join(map(_told, row))} |"


def _told(value: Any) -> str:
    if isinstance(value, list):
        text = ", ".join(map(_told, value))
    else:
        text = f"{value:.{DIGITS}g}" if isinstance(value, float) else _cell(value)
    text = " ".join(text.replace("|", "\\|").split())
    return text if len(text) <= CELL_LETTERS else f"{text[:CELL_LETTERS].rstrip(chr(92))}..."


def parquet_of(table: pa.Table) -> bytes:
    """The table as one Parquet file.

    >>> parquet_of(arrow().table({"x": [1]}))[:4]
    b'PAR1'
    """
    sink = arrow().BufferOutputStream()
    arrow().parquet.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())
