"""The line of progress: drawn while the work goes on, never in the way, and gone in the end."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from bilevel_sym.system import progress
from bilevel_sym.system.progress import ProgressBar

TICK = 0.001


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REDRAW_SECONDS", TICK)


def watched(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(TICK)


def drawers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "progress"]


def work(stream: io.StringIO) -> None:
    with ProgressBar("work", 4, shown=True) as meter:
        meter.at(1, ", going on")
        until(lambda: "work: 1/4 (25 %), 0 s left, going on" in stream.getvalue())


def test_the_line_is_drawn_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = watched(monkeypatch)
    work(stderr)
    shown = stderr.getvalue()
    *_, blank, end = shown.split("\r")
    assert (blank.strip(), end) == ("", "")
    time.sleep(10 * TICK)
    assert stderr.getvalue() == shown
    assert drawers() == []


def test_it_works_in_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = watched(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work, stderr).result()


def test_nothing_is_drawn_while_something_else_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = watched(monkeypatch)
    with ProgressBar("work", shown=True) as meter:
        until(lambda: "work: 0 s" in stderr.getvalue())
        with meter.hidden():
            before = stderr.getvalue()
            meter.at(0, " of another kind")
            time.sleep(10 * TICK)
            assert stderr.getvalue() == before
            assert before.endswith("\r")
        until(lambda: "work of another kind" in stderr.getvalue())


@pytest.mark.parametrize("absent", [True, False])
def test_no_terminal_to_write_to_does_not_end_the_work(absent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    watched(monkeypatch).close()
    if absent:
        monkeypatch.setattr(sys, "stderr", None)
    with ProgressBar("work", shown=True) as meter:
        meter.at(1)
        time.sleep(10 * TICK)
        assert len(drawers()) == 1


def test_an_interruption_while_it_starts_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    watched(monkeypatch)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), ProgressBar("work", shown=True):
        raise AssertionError
    until(lambda: drawers() == [])
