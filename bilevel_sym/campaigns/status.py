"""How far a campaign is: what stands in its folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bilevel_sym.campaigns.results.columns import arrow
from bilevel_sym.campaigns.results.store import Store
from bilevel_sym.system.locking import holder_of
from bilevel_sym.system.plain_text import named

__all__ = ["CampaignStatus", "status_of"]


@dataclass(frozen=True)
class CampaignStatus:
    """How far a campaign is.

    - ``folder``: where it is kept.
    - ``total``: how many tasks the plan has.
    - ``done``: how many have a row, failures among them.
    - ``failed``: how many of these failed.
    - ``computed``: how many the run that returned this has computed; 0 for a status that was asked for.
    - ``running``: the process that is running it; None where none is.
    - ``unreadable``: parts that are torn or foreign, and are passed over.

    >>> print(CampaignStatus("out", 10, 4, 1))
    4 of 10 tasks are done, 1 of them failed; 6 are left
    """

    folder: str
    total: int
    done: int
    failed: int
    computed: int = 0
    running: int | None = None
    unreadable: int = 0

    @property
    def left(self) -> int:
        """How many tasks have no row yet."""
        return self.total - self.done

    def __str__(self) -> str:
        failed = f", {self.failed} of them failed" if self.failed else ""
        parts = [f"{self.done} of {self.total} tasks are done{failed}; {self.left} are left"]
        if self.running is not None:
            parts.append(f"process {self.running or 'unknown'} is at work on them")
        if self.unreadable:
            parts.append(f"{self.unreadable} files in {named(self.folder)}/parts cannot be read, and are passed over")
        return "\n".join(parts)


def status_of(folder: str | os.PathLike[str], computed: int = 0) -> CampaignStatus:
    """The status of the campaign in a folder.

    >>> status_of("there is no such folder")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: there is no such folder holds no campaign
    try: bilevel-sym campaign run PLAN --out FOLDER
    """
    pa, store = arrow(), Store(Path(folder))
    keys = store.tasks()
    rows = store.read(["key", "status"])
    done = failed = 0
    if rows.num_rows:
        own = rows.filter(pa.compute.is_in(rows.column("key"), value_set=keys.combine_chunks()))
        done = own.num_rows
        failed = pa.compute.sum(pa.compute.equal(own.column("status"), "failed")).as_py() or 0
    return CampaignStatus(os.fspath(folder), len(keys), done, failed, computed, holder_of(folder), store.unreadable())
