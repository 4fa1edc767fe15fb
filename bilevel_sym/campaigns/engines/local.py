"""The engine over processes of this machine.

Each worker is a pool of one process, so that of a worker that dies it is known over which batch. A worker ends with the
process that started it, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextvars import ContextVar
from multiprocessing.process import BaseProcess
from types import ModuleType

from bilevel_sym.campaigns.batch import run_batch
from bilevel_sym.campaigns.context import Context
from bilevel_sym.campaigns.engines.protocol import Batch, Finished, after_death
from bilevel_sym.campaigns.kinds import Row
from bilevel_sym.campaigns.task import Task
from bilevel_sym.errors import InvalidArgument

__all__ = ["Processes", "cores"]

# the cores are shared out among the workers already
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
MOST_STILLBORN = 3  # workers in a row that end before they begin
PR_SET_PDEATHSIG = 1  # a number of Linux
WAIT_SECONDS = 5.0  # for a worker to end

CONTEXT: ContextVar[Context] = ContextVar("context")  # of a worker: one for its whole life


def cores() -> int:
    """How many cores this process may use.

    >>> cores() >= 1
    True
    """
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1


class Processes:
    """Carries out batches in processes of this machine; a worker that dies is replaced."""

    def __init__(self, context: Context, workers: int) -> None:
        self._context = context
        self._seats = [_Seat(context) for _ in range(max(1, workers))]

    @property
    def workers(self) -> int:
        """How many processes there are."""
        return len(self._seats)

    def submit(self, batch: Batch) -> None:
        """Give a batch to the worker that has the fewest."""
        min(self._seats, key=lambda seat: len(seat.given)).submit(batch)

    def done(self, seconds: float) -> list[Finished]:
        """What was finished, or whose worker died."""
        futures = [future for seat in self._seats for _, future in seat.given]
        wait(futures, timeout=seconds, return_when=FIRST_COMPLETED)
        return [finished for seat in self._seats for finished in seat.finished()]

    def close(self) -> None:
        """End all workers at once."""
        for seat in self._seats:
            seat.end()


class _Seat:
    """One worker, and the one after it: batches are computed in the order in which they are given."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.given: deque[tuple[Batch, Future[list[Row]]]] = deque()
        self._stillborn = 0
        self._start()

    def _start(self) -> None:
        """The user's script is imported in the worker only where the plan holds what the script defines."""
        before = set(multiprocessing.active_children())
        for hidden in (_without_main(), contextlib.nullcontext()):
            self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin, (self._context,))
            try:
                with _one_thread(), hidden:
                    self._hello = self._pool.submit(os.getpid)  # starts the process
                break
            except Exception as error:  # noqa: BLE001 - whatever keeps it from being sent
                self._pool.shutdown(wait=False, cancel_futures=True)
                reason = f"{type(error).__name__}: {error!s:.200}"
        else:
            raise InvalidArgument(
                f"what the plan holds cannot be sent to a worker: {reason}",
                hint="problems and algorithms of classes that a module defines, or workers=0",
            )
        self._processes: list[BaseProcess] = [p for p in multiprocessing.active_children() if p not in before]

    def submit(self, batch: Batch) -> None:
        self.given.append((batch, self._send(batch)))

    def _send(self, batch: Batch) -> Future[list[Row]]:
        try:
            return self._pool.submit(_compute, batch.tasks)
        except BrokenProcessPool as error:  # told when the batch is asked for
            failed: Future[list[Row]] = Future()
            failed.set_exception(error)
            return failed

    def finished(self) -> Iterator[Finished]:
        while self.given and self.given[0][1].done():
            batch, future = self.given.popleft()
            try:
                rows = future.result()
            except (BrokenProcessPool, CancelledError):
                yield self._died(batch)
            else:
                self._stillborn = 0
                yield Finished.of(batch, rows)

    def _died(self, batch: Batch) -> Finished:
        """The worker died over the first batch of those that it had; another one takes the rest."""
        waiting = [each for each, _ in self.given]
        began = self._hello.done() and self._hello.exception() is None
        self._stillborn = 0 if began else self._stillborn + 1
        if self._stillborn >= MOST_STILLBORN:
            raise InvalidArgument(
                "workers end before they begin",
                hint='put the call below `if __name__ == "__main__":` in the script, or workers=0, which needs none',
            )
        self.given.clear()
        self.end()
        self._start()
        for each in waiting:
            self.submit(each)
        return after_death(batch) if began else Finished((), (batch,))

    def end(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join(WAIT_SECONDS)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that are started here compute with one thread each, unless the user said otherwise."""
    chosen = [name for name in ONE_THREAD if name not in os.environ]
    os.environ.update(dict.fromkeys(chosen, "1"))
    try:
        yield
    finally:
        for name in chosen:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Processes that are started here do not import the user's script, which might call this again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# ---- in the worker ----------------------------------------------------------------------------------------


def _begin(context: Context) -> None:
    CONTEXT.set(context)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _be_killed_with_parent()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _be_killed_with_parent() -> None:
    """Where Linux is asked to, it needs no thread of the worker: code that holds Python's lock for long ends too."""
    if sys.platform == "linux":
        parent = multiprocessing.parent_process()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if parent is not None and os.getppid() != parent.pid:  # it has ended before this was asked for
            os._exit(1)


def _compute(tasks: tuple[Task, ...]) -> list[Row]:
    return run_batch(CONTEXT.get(), tasks)
