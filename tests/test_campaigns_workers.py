"""Campaigns in processes of this machine: what is killed, what dies, what is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from test_campaigns import plain, same

from bilevel_sym import Descent, Exact, zoo
from bilevel_sym.campaigns import Campaign
from bilevel_sym.errors import InvalidArgument

pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow

TESTS = Path(__file__).resolve().parent
CLIENT = """
import sys
sys.path.insert(0, {tests!r})
from bilevel_sym.campaigns import Campaign
Campaign({arguments}).run({folder!r}, workers={workers})
"""


def client(folder: Path, workers: int, arguments: str) -> subprocess.Popen[bytes]:
    """A script without a guard against being imported anew, as people write them."""
    script = folder.with_suffix(".py")
    script.write_text(
        CLIENT.format(tests=str(TESTS), arguments=arguments, folder=str(folder), workers=workers), encoding="utf-8"
    )
    with folder.with_suffix(".err").open("w", encoding="utf-8") as said:
        return subprocess.Popen([sys.executable, str(script)], stderr=said)


def children(pid: int) -> set[int]:
    """Processes that a process has started, and theirs."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            own, parent = int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            found |= {own, *children(own)}
    return found


def alive(pids: set[int]) -> set[int]:
    return {
        pid for pid in pids if Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text()
    }


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has just ended
        return ""


def until(condition: Any, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(condition())


def rows_in(folder: Path) -> int:
    try:
        return Campaign.status(folder).done
    except InvalidArgument:
        return 0


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split() if path.exists() else []


@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers_makes_the_same_table(workers: int, tmp_path: Path) -> None:
    plan = Campaign(
        task="solve", problems=["zoo:scalar", "zoo:saddle,d=2"], algorithms=["perturbed-aid"], seeds=9, steps=15
    )
    plan.run(tmp_path / "here", workers=0)
    assert plan.run(tmp_path / "there", workers=workers).computed == 18
    assert same(plan.table(tmp_path / "here"), plan.table(tmp_path / "there"))
    used = set(plan.table(tmp_path / "there").column("worker").to_pylist())
    assert str(os.getpid()) not in used
    assert len(used) <= workers


def test_merged_brackets_do_not_know_the_number_of_workers(tmp_path: Path) -> None:
    plan = Campaign(task="constants", problems=["zoo:saddle,d=2"], split=4, effort="quick")
    found = []
    for workers in (0, 1, 2):
        plan.run(tmp_path / str(workers), workers=workers)
        found.append(plan.merged(tmp_path / str(workers)))
    assert found[0] == found[1] == found[2]
    import verify

    for name, truth in verify.constants(plan.sources[0].problem()).brackets.items():
        low, high = found[0][0].brackets[name]
        assert low <= truth.upper, name
        assert truth.lower <= high, name


def test_data_and_objects_go_to_workers(tmp_path: Path) -> None:
    problem = zoo.get("ridge").problem
    plan = Campaign(task="solve", problems=[problem], algorithms=[Descent(Exact(), 0.01)], seeds=4, steps=5)
    assert plan.run(tmp_path, workers=1).failed == 0


def test_what_cannot_be_sent_is_told(tmp_path: Path) -> None:
    class Mine(Descent):
        """Of a class that no module defines."""

    plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=[Mine(Exact(), 0.1)], steps=2)
    with pytest.raises(InvalidArgument, match="cannot be sent to a worker"):
        plan.run(tmp_path, workers=1)
    assert Campaign.status(tmp_path).running is None


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_dies_is_replaced_and_its_task_becomes_a_row(workers: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    plan = Campaign(task="campaign_tasks:dying", problems=["zoo:scalar"], seeds=8, log=str(log))
    status = plan.run(tmp_path / "out", workers=workers)
    assert (status.done, status.failed) == (8, 1)
    rows = plain(plan.table(tmp_path / "out"))
    assert [row["status"] for row in rows] == ["failed" if k == 3 else "ok" for k in range(8)]
    assert rows[3]["message"] == "the worker that computed it died"
    assert "seeds=[3]" in rows[3]["code"]
    tries = Counter(lines(log))
    assert tries["3"] == 3
    assert tries["5"] <= 3


def test_a_worker_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    plan = Campaign(task="campaign_tasks:sleeping", problems=["zoo:scalar"], seeds=30, pause=0.1)
    over = threading.Event()

    def kill() -> None:
        while not over.wait(1.2):
            for pid in sorted(children(os.getpid()))[-1:]:
                if "spawn_main" in command(pid):
                    os.kill(pid, signal.SIGKILL)
                    return

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        status = plan.run(tmp_path, workers=2)
    finally:
        over.set()
        killer.join()
    assert (status.done, status.failed) == (30, 0)


def test_workers_that_never_begin_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(3)\n", encoding="utf-8")
    plan = Campaign(task="campaign_tasks:number", problems=["zoo:scalar"])
    with pytest.raises(InvalidArgument, match="workers end before they begin"):
        plan.run(tmp_path / "out", workers=1)


@pytest.mark.parametrize("function", ["sleeping", "holding"])
def test_orphans_end_within_five_seconds(function: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    process = client(folder, 2, f"task='campaign_tasks:{function}', problems=['zoo:scalar'], seeds=20, pause=30.0")
    workers: set[int] = set()

    def at_work() -> bool:
        workers.update(children(process.pid))
        return sum("spawn_main" in command(pid) for pid in alive(workers)) >= 2

    assert until(at_work)
    time.sleep(2.0)  # in the middle of a task
    workers |= children(process.pid)
    process.kill()
    process.wait()
    assert until(lambda: not alive(workers), 5), alive(workers)
    # the lock went with the client
    assert Campaign.status(folder).running is None


def test_kill_9_loses_at_most_five_seconds_and_the_table_is_the_same(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "out"
    arguments = "task='campaign_tasks:noted', problems=['zoo:scalar'], seeds=3000, log={!r}"
    plan = Campaign(task="campaign_tasks:noted", problems=["zoo:scalar"], seeds=3000, log=str(log))
    for _ in range(2):
        before = len(lines(log))
        process = client(folder, 2, arguments.format(str(log)))
        until(lambda before=before: len(lines(log)) > before + 200, 30)
        process.kill()
        process.wait()
    assert plan.run(folder, workers=0).left == 0
    plan.run(tmp_path / "whole", workers=0)
    assert same(plan.table(folder), plan.table(tmp_path / "whole"))
    assert len(plan.table(folder)) == 3000


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_ctrl_c_keeps_what_is_done(number: int, tmp_path: Path) -> None:
    folder, log = tmp_path / "out", tmp_path / "log"
    arguments = f"task='campaign_tasks:noted', problems=['zoo:scalar', 'zoo:ridge'], seeds=200000, log={str(log)!r}"
    process = client(folder, 2, arguments)
    assert until(lambda: len(lines(log)) > 4000)
    workers = children(process.pid)
    process.send_signal(number)
    process.wait(timeout=30)
    assert "KeyboardInterrupt" in folder.with_suffix(".err").read_text(encoding="utf-8")
    assert process.returncode != 0
    assert until(lambda: not alive(workers), 5)
    assert Campaign.status(folder).done > 0
    assert Campaign.status(folder).running is None
