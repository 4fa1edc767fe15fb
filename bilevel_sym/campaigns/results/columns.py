"""Rows of plain values as columns of Arrow; tables of different columns joined, the same however rows were grouped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bilevel_sym.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EXTRA", "arrow", "as_table", "joined"]

TIMES = ("started", "ended")
TEXTS = ("key", "problem", "algorithm", "status", "message", "code", "worker", "host")
EXTRA = 'pip install "bilevel-sym[cluster]"'


def arrow() -> Any:
    """The package pyarrow; where it is not installed, InvalidArgument says what brings it.

    >>> arrow().__name__
    'pyarrow'
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise InvalidArgument("campaigns keep their rows with pyarrow, which is not installed", hint=EXTRA) from None
    return pyarrow


def as_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows as a table; a column holds numbers, or truths, or texts, or lists of numbers or texts.

    Where values of one column are of several kinds, they are texts.

    >>> table = as_table([{"a": 1, "b": "x"}, {"a": 0.5}])
    >>> table.to_pydict()
    {'a': [1.0, 0.5], 'b': ['x', None]}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return arrow().table({name: _column(name, [row.get(name) for row in rows]) for name in names})


def _column(name: str, values: list[Any]) -> Any:
    pa = arrow()
    if name in TIMES:
        return pa.array(values, pa.timestamp("us", tz="UTC"))
    kind = _type(name, values)
    if kind == pa.string():
        values = [None if value is None else value if isinstance(value, str) else _text(value) for value in values]
    return pa.array(values, kind)


def _type(name: str, values: Iterable[Any]) -> Any:
    pa = arrow()
    kinds = {_kind(value) for value in values if value is not None}
    if name in TEXTS or (len(kinds) > 1 and not kinds <= {"int", "float"} and not kinds <= {"list", "floats", "texts"}):
        return pa.string()
    if not kinds:
        return pa.null()
    if "float" in kinds or "int" in kinds:
        return pa.float64() if "float" in kinds else pa.int64()
    if "texts" in kinds or kinds & {"list", "floats"}:
        return pa.list_(pa.string() if kinds >= {"texts"} else pa.float64() if "floats" in kinds else pa.null())
    return pa.bool_() if kinds == {"bool"} else pa.string()


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "list" if not value else "texts" if isinstance(value[0], str) else "floats"
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return "str"
    return type(value).__name__


def _text(value: Any) -> str:
    """A number has one text, whether it came as 1 or as 1.0 from a column that also holds fractions."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one below the other; what one of them lacks is null there.

    >>> joined([as_table([{"a": 1}]), as_table([{"a": 0.5, "b": "x"}])]).to_pydict()
    {'a': [1.0, 0.5], 'b': [None, 'x']}
    """
    pa = arrow()
    if not tables:
        return pa.table({})
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:  # kinds that have only their text in common
        return pa.concat_tables([_as_texts(table, _clashing(tables)) for table in tables], promote_options="permissive")


def _clashing(tables: Sequence[pa.Table]) -> set[str]:
    """The columns that do not go together in one type."""
    pa = arrow()
    clashing = set()
    for name in {name for table in tables for name in table.column_names}:
        own = [table.select([name]).slice(0, 0) for table in tables if name in table.column_names]
        try:
            pa.concat_tables(own, promote_options="permissive")
        except pa.ArrowException:
            clashing.add(name)
    return clashing


def _as_texts(table: pa.Table, names: set[str]) -> pa.Table:
    pa = arrow()
    for name in names & set(table.column_names):
        values = [None if v is None else v if isinstance(v, str) else _text(v) for v in table.column(name).to_pylist()]
        table = table.set_column(table.column_names.index(name), name, pa.array(values, pa.string()))
    return table
