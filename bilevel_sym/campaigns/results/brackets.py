"""Proved brackets of a whole box, from those of its pieces.

A supremum over the box is the largest of those over the pieces, so the largest of their lower and of their upper ends
bracket it; an infimum, as mu is, the smallest. That is true of any pieces, and depends on nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bilevel_sym.campaigns.results.table import table_of
from bilevel_sym.errors import InvalidArgument

__all__ = ["MergedBrackets", "merged_in"]

LOWER, UPPER = "_lower", "_upper"
SMALLEST = ("mu",)  # what is bounded from below
PIECE = "piece"


@dataclass(frozen=True)
class MergedBrackets:
    """Proved brackets over a box that was split.

    - ``columns``: the problem and the parameters.
    - ``brackets``: pairs of a lower and an upper end, by name.
    - ``pieces``: of how many pieces.

    >>> MergedBrackets({"problem": "toy"}, {"mu": (1.0, 1.0)}, 2).brackets["mu"]
    (1.0, 1.0)
    """

    columns: Mapping[str, Any]
    brackets: Mapping[str, tuple[float, float]]
    pieces: int


def merged_in(folder: str | os.PathLike[str]) -> list[MergedBrackets]:
    """All of them in a folder, in the order of the plan; refused while a piece is missing, or has failed."""
    table = table_of(folder)
    if PIECE not in table.column_names:
        raise InvalidArgument("no box was split in this campaign", hint="split = 4, for constants and smoothness")
    names = table.column_names[: table.column_names.index("status")]
    own = [name for name in names if name != PIECE]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        groups.setdefault(tuple(row[name] for name in own), []).append(row)
    return [_merged({name: rows[0][name] for name in own}, rows) for rows in groups.values() if rows[0]["split"]]


def _merged(columns: dict[str, Any], rows: Sequence[dict[str, Any]]) -> MergedBrackets:
    wanted = set(range(int(columns["split"])))
    proved = {row[PIECE] for row in rows if row["status"] == "ok"}
    if missing := sorted(wanted - proved):
        raise InvalidArgument(
            f"{columns['problem']}: {len(missing)} of {len(wanted)} pieces have no brackets, such as {missing[0]}",
            hint="run the campaign again; its table says what failed",
        )
    found = {}
    for name in [column.removesuffix(LOWER) for column in rows[0] if column.endswith(LOWER)]:
        ends = [[row[name + end] for row in rows] for end in (LOWER, UPPER)]
        choose = min if name in SMALLEST else max
        found[name] = choose(ends[0]), choose(ends[1])
    return MergedBrackets(columns, found, len(rows))
