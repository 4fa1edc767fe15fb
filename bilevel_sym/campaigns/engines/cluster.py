"""The engine over a Dask scheduler."""

from __future__ import annotations

from typing import Any

from bilevel_sym.campaigns.context import Context
from bilevel_sym.campaigns.engines.protocol import Batch, Finished

__all__ = ["Cluster"]


class Cluster:
    """Carries out batches on the workers of a Dask scheduler; the context is sent to each of them once."""

    def __init__(self, context: Context, scheduler: Any) -> None:
        raise NotImplementedError

    @property
    def workers(self) -> int:
        """How many batches are computed at the same time."""
        raise NotImplementedError

    def submit(self, batch: Batch) -> None:
        """Take a batch."""
        raise NotImplementedError

    def done(self, seconds: float) -> list[Finished]:
        """What was finished."""
        raise NotImplementedError

    def close(self) -> None:
        """End everything."""
        raise NotImplementedError
