"""The state of the field: ``python -m benchmarks.field [--json FILE] [--merge FILE ...] [--only WORD]``.

Points the test kit at each library that is installed here. Versions that exclude each other are judged where they are
installed, with ``--json FILE``; ``--merge FILE ...`` puts such files together and judges nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.field import jax_entries, plain_entries, torch_entries
from benchmarks.field.entry import EFFORT, Entry, Row, missing, rows
from benchmarks.field.problems import PROBLEMS
from benchmarks.field.table import merged, overview, read, table, text

__all__ = ["main"]

ENTRIES: tuple[Entry, ...] = (*plain_entries.ENTRIES, *jax_entries.ENTRIES, *torch_entries.ENTRIES)


def main(arguments: Sequence[str] | None = None, entries: Sequence[Entry] = ENTRIES) -> int:
    """Print the tables; what is missing is named on standard error. 1 where nothing was judged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the rows there too")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="files of rows, instead of judging")
    parser.add_argument("--only", default="", help="libraries whose name has this word")
    parser.add_argument("--effort", type=float, default=EFFORT, help="of the test kit, as a multiple of its default")
    given = parser.parse_args(arguments)
    if given.merge:
        found = merged(read(path) for path in given.merge)
    else:
        chosen = [entry for entry in entries if given.only in entry.library]
        _tell_missing(chosen)
        found = merged([_told(rows(chosen, dict(PROBLEMS), given.effort))])
    if given.json:
        given.json.write_text(text(found), encoding="utf-8")
    print(f"{overview(found)}\n\nDefaults:\n\n{table(found, 'defaults')}\n\nTight:\n\n{table(found, 'tight')}")
    return int(not found)


def _tell_missing(entries: Sequence[Entry]) -> None:
    absent = {entry.library: missing(entry) for entry in entries if missing(entry)}
    for library, names in absent.items():
        print(f"left out: {library}, for {', '.join(names)} is not installed", file=sys.stderr)


def _told(found: Iterable[Row]) -> list[Row]:
    """The rows, each told as it is made."""
    kept = []
    for row in found:
        print(f"{row.library} {row.call} [{row.setting}] {row.problem}: {row.verdict} {row.cause}", file=sys.stderr)
        kept.append(row)
    return kept


if __name__ == "__main__":
    sys.exit(main())
