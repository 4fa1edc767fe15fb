"""Campaigns on Dask: clusters of processes, from Python and from the command line; what dies, and what is lost then."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster_tasks
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.campaign_clusters import CommandLineCluster, command_line_cluster, until
from bilevel_sym import AID
from bilevel_sym.campaigns import Campaign
from bilevel_sym.campaigns.batch import MEASURED
from bilevel_sym.campaigns.engines import cluster as engine
from bilevel_sym.errors import BilevelError, InvalidArgument

distributed = pytest.importorskip("distributed")

HERE = Path(__file__).parent
SOLVE: dict[str, Any] = {
    "task": "solve", "problems": ["zoo:scalar", "zoo:saddle,d=2"], "algorithms": ["descent", "perturbed-aid"],
    "steps": 12, "seeds": 9, "folder": HERE,
}  # fmt: skip


def pausing(count: int, pause: float) -> Campaign:
    return Campaign(task="cluster_tasks:pausing", problems=["zoo:scalar"], seeds=count, pause=pause, folder=HERE)


def plain(folder: Path) -> Any:
    """The table without what differs from run to run."""
    return Campaign.table(folder).drop_columns(list(MEASURED)).combine_chunks()


def undisturbed(plan: Campaign, folder: Path) -> Any:
    plan.run(folder, workers=0)
    return plain(folder)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLineCluster]:
    with command_line_cluster(tmp_path_factory.mktemp("dask"), 2, "--no-nanny") as started:
        yield started


class Running:
    """A run in a thread of its own."""

    def __init__(self, plan: Campaign, folder: Path, scheduler: Any) -> None:
        self.error: BaseException | None = None
        self._asked = plan, folder, scheduler
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        plan, folder, scheduler = self._asked
        try:
            plan.run(folder, scheduler=scheduler)
        except BilevelError as error:
            self.error = error

    def ended(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()


def rows_in(folder: Path) -> int:
    return sum(1 for _ in (folder / "parts").glob("part-*.parquet"))


# ---- the same rows ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_scheduler_from_the_command_line_gives_the_table_of_this_machine(
    cluster: CommandLineCluster, tmp_path: Path
) -> None:
    plan = Campaign(**SOLVE)
    status = plan.run(tmp_path / "there", scheduler=cluster.address)
    assert (status.done, status.computed, status.failed) == (36, 36, 0)
    plan.run(tmp_path / "here", workers=2)
    assert plain(tmp_path / "there").equals(plain(tmp_path / "here"))
    workers = {int(row["worker"]) for row in Campaign.table(tmp_path / "there").to_pylist()}
    assert workers <= {process.pid for process in cluster.workers}
    assert os.getpid() not in workers
    assert plan.run(tmp_path / "there", scheduler=cluster.address).computed == 0


@pytest.mark.slow
def test_a_local_cluster_of_processes_and_a_client_that_stays_open(tmp_path: Path) -> None:
    plan = pausing(150, 0.001)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as local,
        distributed.Client(local) as client,
    ):
        assert plan.run(tmp_path / "there", scheduler=client).done == 150
        assert client.status == "running"
        assert client.submit(len, [1, 2]).result(timeout=30) == 2
        until(lambda: not [key for keys in client.has_what().values() for key in keys if "campaign" in str(key)])
    assert plain(tmp_path / "there").equals(undisturbed(plan, tmp_path / "here"))


@pytest.mark.slow
def test_the_context_is_sent_once_to_each_worker_also_to_one_that_comes_later(tmp_path: Path) -> None:
    log = tmp_path / "unpacked"
    algorithm = cluster_tasks.Counted(AID(D=1, N=1, tau=0.1), 0.1, log=str(log))
    plan = Campaign(
        task="solve", problems=["zoo:scalar"], algorithms=[algorithm], steps=list(range(3000, 3160)), seeds=8,
        folder=HERE,
    )  # fmt: skip
    with command_line_cluster(tmp_path / "dask", 1, "--no-nanny") as started:
        run = Running(plan, tmp_path / "out", started.address)
        until(lambda: rows_in(tmp_path / "out"))
        started.start_worker("--no-nanny")
        assert run.ended(120)
        assert run.error is None
        pids = [process.pid for process in started.workers]
    worked = Counter(int(row["worker"]) for row in Campaign.table(tmp_path / "out").to_pylist())
    assert sorted(worked) == sorted(pids)
    assert Counter(map(int, log.read_text(encoding="utf-8").split())) == dict.fromkeys(pids, 1)


# ---- what dies --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_that_are_killed_are_survived(tmp_path: Path) -> None:
    plan = pausing(200, 0.03)
    with command_line_cluster(tmp_path / "dask", 2, "--no-nanny") as started:
        run = Running(plan, tmp_path / "out", started.address)
        until(lambda: rows_in(tmp_path / "out"))
        started.workers[0].kill()
        started.start_worker("--no-nanny")
        started.workers[1].kill()
        assert run.ended(60)
    assert run.error is None
    assert plain(tmp_path / "out").equals(undisturbed(plan, tmp_path / "here"))


@pytest.mark.slow
def test_a_task_that_kills_every_worker_is_a_row_and_its_neighbours_are_computed(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    plan = Campaign(task="cluster_tasks:deadly", problems=["zoo:scalar"], seeds=8, log=log, folder=HERE)
    with command_line_cluster(tmp_path / "dask", 1, "--nworkers", "2") as started:
        run = Running(plan, tmp_path / "out", started.address)
        assert run.ended(150)
    assert run.error is None
    rows = Campaign.table(tmp_path / "out").to_pylist()
    assert [row["value"] for row in rows] == [0, 1, 2, None, 4, 5, 6, 7]
    assert (rows[3]["status"], rows[3]["message"]) == ("failed", "the worker that computed it died")


@pytest.mark.slow
def test_a_scheduler_that_is_killed_is_one_error_and_the_rest_goes_on_here(tmp_path: Path) -> None:
    plan = pausing(200, 0.03)
    with command_line_cluster(tmp_path / "dask", 2, "--no-nanny") as started:
        run = Running(plan, tmp_path / "out", started.address)
        until(lambda: rows_in(tmp_path / "out"))
        assert started.scheduler is not None
        started.scheduler.kill()
        assert run.ended(15)
        for worker in started.workers:
            worker.wait(5 * patience())
    assert isinstance(run.error, engine.ClusterFailure)
    assert "the scheduler is lost" in str(run.error)
    assert "run the campaign again" in str(run.error)
    before = Campaign.status(tmp_path / "out")
    assert 0 < before.done < 200
    assert plan.run(tmp_path / "out", workers=0).computed == 200 - before.done
    assert plain(tmp_path / "out").equals(undisturbed(plan, tmp_path / "here"))


def patience() -> float:
    """A busy machine is given longer; what is asserted is that it ends by itself."""
    return 4.0


@pytest.mark.slow
def test_what_a_client_that_is_killed_had_asked_for_is_dropped(cluster: CommandLineCluster, tmp_path: Path) -> None:
    import subprocess

    plan = pausing(2000, 0.02)
    script = (
        "import sys; from bilevel_sym.campaigns import Campaign\n"
        f"Campaign.load({str(tmp_path / 'plan.toml')!r}).run({str(tmp_path / 'out')!r}, scheduler={cluster.address!r})"
    )
    (tmp_path / "plan.toml").write_text(plan.to_toml(), encoding="utf-8")
    run = subprocess.Popen([sys.executable, "-c", script], cwd=HERE)
    until(lambda: rows_in(tmp_path / "out"))
    run.send_signal(signal.SIGKILL)
    run.wait()
    with distributed.Client(cluster.address, set_as_default=False) as client:
        begun = time.monotonic()
        until(lambda: not any(client.processing().values()), 60)
        assert time.monotonic() - begun < 5 * patience()
    assert Campaign.status(tmp_path / "out").running is None
    assert 0 < Campaign.status(tmp_path / "out").done < 2000


# ---- what is refused --------------------------------------------------------------------------------------


def test_without_the_packages_one_error_says_what_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "distributed"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InvalidArgument, match=r'pip install "bilevel-sym\[cluster\]"'):
        pausing(1, 0.0).run(tmp_path, scheduler="tcp://127.0.0.1:1")


def test_no_scheduler_at_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CONNECT_SECONDS", 0.5)
    with pytest.raises(engine.ClusterFailure, match=r"no scheduler answers at tcp://127\.0\.0\.1:9"):
        pausing(1, 0.0).run(tmp_path, scheduler="tcp://127.0.0.1:9")


@pytest.mark.parametrize("scheduler", [7, "", "  ", ["tcp://127.0.0.1:9"], object()])
def test_what_is_no_scheduler(scheduler: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="scheduler="):
        pausing(1, 0.0).run(tmp_path, scheduler=scheduler)


@pytest.mark.slow
def test_workers_with_other_versions_or_modules_refuse(
    cluster: CommandLineCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bilevel_sym.campaigns.engines import at_worker

    with monkeypatch.context() as patch:
        patch.setattr(at_worker, "versions", lambda: {"bilevel_sym": "9.9"})
        with pytest.raises(engine.ClusterFailure, match=r"a worker has bilevel_sym \S+, and this process 9\.9"):
            pausing(1, 0.0).run(tmp_path, scheduler=cluster.address)
    with monkeypatch.context() as patch:
        patch.setattr(at_worker, "content_of", lambda text, folders: "another")
        with pytest.raises(engine.ClusterFailure, match="a worker has another cluster_tasks:pausing"):
            pausing(1, 0.0).run(tmp_path, scheduler=cluster.address)
    assert Campaign.status(tmp_path).done == 0
    assert pausing(1, 0.0).run(tmp_path, scheduler=cluster.address).done == 1


def test_what_cannot_be_sent(tmp_path: Path) -> None:
    algorithm = cluster_tasks.Counted(AID(D=1, N=1, tau=0.1), 0.1, log=str(tmp_path / "log"))
    object.__setattr__(algorithm, "log", threading.Lock())
    plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=[algorithm], folder=HERE)
    with pytest.raises(InvalidArgument, match="cannot be sent to a worker"):
        engine.Cluster(plan.context, "tcp://127.0.0.1:9")
