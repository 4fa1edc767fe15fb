"""The table of a campaign: every row, in the order of the plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bilevel_sym.campaigns.batch import MEASURED
from bilevel_sym.campaigns.results.columns import arrow
from bilevel_sym.campaigns.results.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["table_of"]

FIRST = ("problem", "algorithm")
SAID = ("status", "message")
LAST = ("code", "key", *MEASURED)


def table_of(folder: str | os.PathLike[str], where: str | None = None, *, all_plans: bool = False) -> pa.Table:
    """The rows of the last plan in a folder, in its order.

    - ``folder``: that of a campaign.
    - ``where``: a filter; see ``bilevel_sym.campaigns.results.filtering``.
    - ``all_plans``: also rows of plans before it, behind the others, by their keys.
    """
    store = Store(Path(folder))
    table = _ordered(store.tasks(), store.read(), all_plans)
    table = table.select(_columns(table.column_names, store.parameters()))
    if where is None:
        return table
    from bilevel_sym.campaigns.results.filtering import chosen

    return chosen(table, where)


def _ordered(keys: pa.ChunkedArray, rows: pa.Table, all_plans: bool) -> pa.Table:
    pa = arrow()
    if not rows.num_rows:
        return pa.table({name: pa.array([], pa.string()) for name in ("problem", "status", "key")})
    place = pa.compute.index_in(rows.column("key"), value_set=keys.combine_chunks())
    by = pa.table({"place": place.fill_null(len(keys)), "key": rows.column("key")})
    order = pa.compute.sort_indices(by, [("place", "ascending"), ("key", "ascending")])
    return rows.take(order if all_plans else order.slice(0, len(place) - place.null_count))


def _columns(names: list[str], parameters: list[str]) -> list[str]:
    """Which task, then how it went, then results by their names, and last what differs from run to run."""
    task = [*FIRST, *parameters, "piece", "seed"]
    results = sorted(set(names).difference(task, SAID, LAST))
    return [name for name in dict.fromkeys([*task, *SAID, *results, *LAST]) if name in names]
