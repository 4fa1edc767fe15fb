"""The folder of a campaign: the plan, where it ran, the keys of its tasks, and their rows in parts.

Every file is written whole or not at all. A part that is torn or foreign is passed over; a row that stands in two parts
counts once. Only a run writes, and holds the lock; anybody may read at any time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel_sym.campaigns.plan_file import read_plan
from bilevel_sym.campaigns.results.columns import arrow, as_table, joined
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.locking import locked
from bilevel_sym.system.plain_text import named
from bilevel_sym.system.writing import delete, make_folder, write, write_together
from bilevel_sym.typing import Bools

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Store"]

PLAN, ENVIRONMENT, TASKS, PARTS = "plan.toml", "environment.json", "tasks.parquet", "parts"
PART = re.compile(r"part-([0-9]{6,12})\.parquet")
NO_PARAMETERS = ("task", "problems", "algorithms", "seeds")
FULL = 100_000  # rows of a part that is not joined any more
CHUNK = 65_536  # keys at a time


@dataclass(frozen=True)
class Store:
    """A folder of parts.

    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()))
    >>> store.add([{"key": "a", "x": 1.0}])
    >>> store.add([{"key": "a", "x": 1.0}, {"key": "b", "x": 2.0}])
    >>> store.read().to_pydict()
    {'key': ['a', 'b'], 'x': [1.0, 2.0]}
    """

    folder: Path

    @property
    def _parts(self) -> Path:
        return self.folder / PARTS

    def parts(self) -> list[Path]:
        """The files of rows, in the order in which they were written."""
        try:
            files = [path for path in self._parts.iterdir() if PART.fullmatch(path.name)]
        except OSError:
            return []
        return sorted(files, key=lambda path: _number(path))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock; what a killed run left half written is taken away."""
        make_folder(self._parts)
        with locked(self.folder):
            for left in [*self.folder.glob(".*.partial"), *self._parts.glob(".*.partial")]:
                delete(left)
            yield

    def begin(self, plan: str, environment: dict[str, Any], keys: Iterable[str]) -> Bools:
        """Say what is about to be run; of each task, whether it has a row."""
        pa = arrow()
        waiting = iter(keys)
        chunks = [pa.array(chunk, pa.string()) for chunk in iter(lambda: list(islice(waiting, CHUNK)), [])]
        table = pa.table({"key": pa.chunked_array(chunks, pa.string())})
        text = json.dumps(environment, indent=1, sort_keys=True) + "\n"
        write_together(
            {self.folder / PLAN: plan, self.folder / ENVIRONMENT: text, self.folder / TASKS: _parquet(table)}
        )
        rows = joined(list(self._tables(["key"])))
        if not rows.num_rows:
            return np.zeros(table.num_rows, dtype=np.bool_)
        found = pa.compute.is_in(table.column("key"), value_set=rows.column("key").combine_chunks())
        return np.asarray(found, dtype=np.bool_)

    def tasks(self) -> pa.ChunkedArray:
        """The keys of the tasks of the last plan, in its order."""
        pa = arrow()
        try:
            return pa.parquet.read_table(self.folder / TASKS, columns=["key"]).column("key")
        except (OSError, pa.ArrowException):
            hint = "bilevel-sym campaign run PLAN --out FOLDER"
            raise InvalidArgument(f"{named(self.folder)} holds no campaign", hint=hint) from None

    def parameters(self) -> list[str]:
        """The names of the parameters of the last plan, in its order."""
        return [
            name for name in read_plan(self.folder / PLAN) if name not in ("task", "problems", "algorithms", "seeds")
        ]

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Bring rows to the disk as one more part."""
        if rows:
            self._put(as_table(rows))

    def _put(self, table: pa.Table) -> None:
        make_folder(self._parts)
        parts = self.parts()
        number = _number(parts[-1]) + 1 if parts else 1
        write(self._parts / f"part-{number:06}.parquet", _parquet(table))

    def keys(self) -> set[str]:
        """The keys of all rows."""
        return {key for table in self._tables(["key"]) for key in table.column("key").to_pylist()}

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, each once; of two with the same key the first counts."""
        pa = arrow()
        table = joined(list(self._tables(None if columns is None else [*columns])))
        if not table.num_rows:
            return table
        if pa.compute.count_distinct(table.column("key")).as_py() == table.num_rows:
            return table
        first = pa.table({"key": table.column("key"), "row": pa.array(np.arange(table.num_rows))})
        rows = first.group_by("key").aggregate([("row", "min")]).column("row_min")
        return table.take(rows.take(pa.compute.sort_indices(rows)))

    def _tables(self, columns: list[str] | None) -> Iterator[pa.Table]:
        for path in self.parts():
            if (table := _read(path, columns)) is not None:
                yield table

    def unreadable(self) -> int:
        """How many parts are torn or foreign."""
        return sum(_rows(path) is None for path in self.parts())

    def join(self) -> None:
        """Make few parts of many small ones: the new one first, then the old ones go."""
        group: list[Path] = []
        rows = 0
        for path in self.parts():
            count = _rows(path)
            if count is not None and count < FULL:
                group, rows = [*group, path], rows + count
            if rows >= FULL:
                self._join(group)
                group, rows = [], 0
        self._join(group)

    def _join(self, group: Sequence[Path]) -> None:
        tables = [table for path in group if (table := _read(path, None)) is not None]
        if len(group) > 1 and len(tables) == len(group):
            self._put(joined(tables))
            for path in group:
                delete(path)


def _number(path: Path) -> int:
    match = PART.fullmatch(path.name)
    return int(match[1]) if match else 0


def _parquet(table: pa.Table) -> bytes:
    sink = arrow().BufferOutputStream()
    arrow().parquet.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def _read(path: Path, columns: list[str] | None) -> pa.Table | None:
    """None of what is torn, foreign, or was joined with others a moment ago."""
    pa = arrow()
    try:
        table = pa.parquet.read_table(path, columns=columns, partitioning=None)
    except (OSError, ValueError, pa.ArrowException):
        return None
    return table if "key" in table.column_names else None


def _rows(path: Path) -> int | None:
    pa = arrow()
    try:
        return int(pa.parquet.read_metadata(path).num_rows)
    except (OSError, ValueError, pa.ArrowException):
        return None
