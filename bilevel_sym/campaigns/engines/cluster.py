"""The engine over a Dask scheduler: batches go to its workers, and their rows come back to the one writer.

The context is a result among Dask's: one worker makes it, every other one is sent it once, however late it joins, and
it is made again where all that held it died. Rows come as they are finished. A worker that dies costs all that the
scheduler had given it a try, begun or not; so where workers are few each is given one batch, and the next waits here.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any

from bilevel_sym.campaigns.context import Context
from bilevel_sym.campaigns.engines.at_worker import Missing, Refused, compute, expected, forget, unpacked
from bilevel_sym.campaigns.engines.protocol import Batch, Finished, after_death
from bilevel_sym.campaigns.results.columns import EXTRA
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.system.budget import Deadline

__all__ = ["Cluster", "ClusterFailure"]

CONNECT_SECONDS = 10  # for a scheduler to answer
CLOSE_SECONDS = 5
FORGET_SECONDS = 1.0  # for workers to give back memory
COUNT_SECONDS = 1.0  # between two counts of the workers
FEW_WORKERS = 16  # up to so many workers each is given one batch at a time, more are given two
AGAIN = "run the campaign again, here or there: what is done is in its folder, and the rest goes on"


class ClusterFailure(BilevelError):
    """A Dask cluster does not do what it was asked.

    Cause: no scheduler at the address, one that ended or was restarted, or workers with other versions or without the
    modules of the plan. Cure: the message says which; rows that came before are in the folder of the campaign.

    >>> issubclass(ClusterFailure, BilevelError)
    True
    """


class Cluster:
    """Carries out batches on the workers of a Dask scheduler; the context is sent to each of them once.

    Where there are no workers it waits for them. In each process of a worker one batch is computed at a time.

    - ``context``: that of the plan.
    - ``scheduler``: the address of a scheduler, or a client.
    """

    def __init__(self, context: Context, scheduler: Any) -> None:
        self._name, self._number = f"campaign-{secrets.token_hex(8)}", 0
        self._waiting, self._given = deque[Batch](), dict[int, tuple[Batch, Any]]()
        self._arrived: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._plan, self._expected = context, expected(context)
        packed = _packed(context)
        self._client, self._own = _client(scheduler)
        self._context: Any = None
        try:
            self._workers = len(self._client.nthreads())
            self._context = self._shared(packed)
        except Exception as error:  # noqa: BLE001 - whatever ends a connection that has just begun
            self.close()
            raise _lost(error) from None
        self._counted, self._counting = Deadline(COUNT_SECONDS), False

    @property
    def workers(self) -> int:
        """How many processes of workers there are; they may come and go."""
        return max(1, self._workers)

    def submit(self, batch: Batch) -> None:
        """Take a batch, and send it when a worker is free for it."""
        self._waiting.append(batch)
        self._send()

    def done(self, seconds: float) -> list[Finished]:
        """What was finished; a cluster that is lost is told once nothing is left that it finished before."""
        self._count()
        found: list[Finished] = []
        try:
            for number, answer in self._arrivals(seconds):
                finished = self._finished(number, answer)
                found += [] if finished is None else [finished]
            self._send()
        except BilevelError:
            if not found:
                raise
        return found

    def close(self) -> None:
        """Nothing more is computed but what a worker has begun; a client that was given stays open."""
        for future in [self._context, *(future for _, future in self._given.values())]:
            with contextlib.suppress(Exception):
                future.release()
        self._given.clear()
        self._waiting.clear()
        if self._client.status == "running":
            over = Event()
            self._client.loop.add_callback(self._forgotten, over)
            over.wait(FORGET_SECONDS)
        if self._own:
            with contextlib.suppress(Exception):
                self._client.close(CLOSE_SECONDS)

    # ---- there ----------------------------------------------------------------------------------------------

    def _shared(self, packed: bytes) -> Any:
        """The context as a result of Dask's, which it sends where it is needed."""
        import dask

        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return self._client.submit(unpacked, packed, key=f"{self._name}-context", pure=False)

    def _send(self) -> None:
        """As many batches as there are workers free for them."""
        room = self.workers * (1 if self.workers <= FEW_WORKERS else 2)
        while self._waiting and len(self._given) < room:
            self._send_one(self._waiting.popleft())

    def _send_one(self, batch: Batch, address: str | None = None) -> None:
        """A batch alone; or with the context, to the worker that has none."""
        number, packed = self._number, _packed(batch.tasks)
        self._number += 1
        context = None if address is None else self._context
        options = {} if address is None else {"workers": [address], "allow_other_workers": True}
        given = self._name, context, self._expected(batch.tasks), packed
        try:
            future = self._client.submit(compute, *given, key=(self._name, number), pure=False, **options)
            self._given[number] = batch, future
            self._client.loop.add_callback(self._collect, number, future)
        except Exception as error:  # noqa: BLE001 - a client says in many ways that it is closed
            raise _lost(error) from None

    async def _collect(self, number: int, future: Any) -> None:
        """In the thread of the client: wait for rows; those that are finished at the same time come together."""
        try:
            self._arrived.put((number, await self._client.gather(future, asynchronous=True)))
        except BaseException as error:  # noqa: BLE001 - that of a future that was cancelled is no Exception
            self._arrived.put((number, error))

    def _count(self) -> None:
        """How many workers there are, asked now and then, and not waited for."""
        if self._counted.passed and not self._counting:
            self._counted, self._counting = Deadline(COUNT_SECONDS), True
            self._client.loop.add_callback(self._counted_there)

    async def _counted_there(self) -> None:
        try:
            with contextlib.suppress(Exception):
                self._workers = len(await self._client.nthreads(asynchronous=True))
        finally:
            self._counting = False

    async def _forgotten(self, over: Event) -> None:
        with contextlib.suppress(Exception):
            await self._client.run(forget, self._name, on_error="ignore")
        over.set()

    # ---- back here ------------------------------------------------------------------------------------------

    def _arrivals(self, seconds: float) -> list[tuple[int, Any]]:
        """What came, good news first."""
        came: list[tuple[int, Any]] = []
        try:
            came.append(self._arrived.get(timeout=seconds) if seconds > 0 else self._arrived.get_nowait())
            while True:
                came.append(self._arrived.get_nowait())
        except Empty:
            if not came and self._client.status != "running":
                raise _lost(None) from None
        return sorted(came, key=lambda pair: not isinstance(pair[1], list))

    def _finished(self, number: int, answer: Any) -> Finished | None:
        from distributed import KilledWorker

        batch, _ = self._given.pop(number)
        if isinstance(answer, list):
            return Finished.of(batch, answer)
        if isinstance(answer, KilledWorker):
            return after_death(batch)
        if isinstance(answer, Missing):
            self._send_one(batch, answer.address)
            return None
        if isinstance(answer, Refused):
            raise ClusterFailure(answer.reason, hint=answer.hint)
        raise _lost(answer)


def _client(scheduler: Any) -> tuple[Any, bool]:
    """A client, and whether it is ours to close."""
    try:
        from distributed import Client
    except ImportError:
        raise InvalidArgument(
            "a Dask scheduler is asked by dask and distributed, which are missing", hint=EXTRA
        ) from None
    if isinstance(scheduler, Client):
        if scheduler.asynchronous or scheduler.status != "running":
            raise InvalidArgument("scheduler: a client that is asynchronous, or closed", hint="Client(address)")
        return scheduler, False
    if not isinstance(scheduler, str) or not scheduler.strip():
        raise InvalidArgument(
            f"scheduler={scheduler!r:.60}", hint='"tcp://127.0.0.1:8786", or a client of dask.distributed'
        )
    try:
        connect: Any = Client
        return connect(scheduler, timeout=CONNECT_SECONDS, set_as_default=False, name="bilevel-sym"), True
    except (OSError, ValueError) as error:
        raise ClusterFailure(
            f"no scheduler answers at {scheduler[:200]}: {error!s:.200}",
            hint='"dask scheduler" prints its address, such as tcp://127.0.0.1:8786',
        ) from None


def _packed(content: object) -> bytes:
    """What the scheduler hands on without a look into it."""
    try:
        from distributed.protocol.serialize import serialize_bytes
    except ImportError:
        raise InvalidArgument(
            "a Dask scheduler is asked by dask and distributed, which are missing", hint=EXTRA
        ) from None
    try:
        packed: bytes = serialize_bytes(content, on_error="raise")
    except Exception as error:  # noqa: BLE001 - whatever keeps it from being sent
        raise InvalidArgument(
            f"what the plan holds cannot be sent to a worker: {type(error).__name__}: {error!s:.200}",
            hint="problems and algorithms of classes that a module defines, or workers=0 without a scheduler",
        ) from None
    return packed


def _lost(error: BaseException | None) -> BilevelError:
    """What ends a run: a scheduler that is gone, or workers that cannot compute at all."""
    if isinstance(error, BilevelError):
        return error
    if (
        error is None
        or isinstance(error, OSError)
        or "ancel" in type(error).__name__
        or "Closed" in type(error).__name__
    ):
        reason = getattr(error, "reason", "") or ""
        return ClusterFailure(f"the scheduler is lost{f' ({reason})' if reason else ''}", hint=AGAIN)
    return ClusterFailure(
        f"the workers cannot compute: {type(error).__name__}: {error!s:.300}",
        hint="the same packages in the environments of client, scheduler and workers",
    )
