"""``bilevel-sym campaign``: a plan is run, looked at and read, and every ending says what there is."""

from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminals import Terminal
from test_cli import ROOT, process, run

from bilevel_sym.cli.campaigning import _duration

pa = pytest.importorskip("pyarrow")

PLAN = """\
[campaign]
task = "solve"
problems = ["zoo:scalar"]
algorithms = ["descent"]
seeds = 2
steps = 10
eta = [0.1, 0.2]
"""
# forty tasks of a quarter of a second
SLOW = """\
[campaign]
task = "slow_to_run:wait"
seeds = 40
pause = 0.25
"""
MODULE = """
import time

def wait(seed, pause):
    time.sleep(pause)
    return {"twice": 2 * seed}

def fail(seed):
    if seed:
        raise ZeroDivisionError("no such number | at all")
    return 1.5
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan, and a module of functions beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "slow.toml").write_text(SLOW)
    (tmp_path / "slow_to_run.py").write_text(MODULE)
    return tmp_path / "plan.toml"


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_run_status_and_table(plan: Path) -> None:
    done = run("campaign", "run", "plan.toml", "--out", "out", "--workers", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["4 of 4 tasks are done; 0 are left", "all rows: bilevel-sym campaign table out"]
    assert run("campaign", "status", "out").stdout == "4 of 4 tasks are done; 0 are left\n"
    rows = rows_of(run("campaign", "table", "out").stdout)
    assert [(row["eta"], row["seed"], row["status"]) for row in rows] == [
        (eta, seed, "ok") for eta in ("0.1", "0.2") for seed in "01"
    ]
    assert all(re.fullmatch(r"\[-?[0-9.e-]+\]", row["x"]) and row["message"] == "" for row in rows)
    assert {row["sound"] for row in rows} == {"true"}
    assert all(row["started"].endswith("+00:00") for row in rows)


def test_a_filter_and_a_table_for_people(plan: Path) -> None:
    run("campaign", "run", "plan.toml", "--out", "out", "--workers", "0")
    shown = run("campaign", "table", "out", "--where", "eta > 0.15 and seed == 1", "--format", "markdown")
    head, rule, only = shown.stdout.splitlines()
    assert head.startswith("| problem | algorithm | steps | eta | seed | status |")
    assert set(rule) == set("|- ")
    assert only.startswith("| zoo:scalar | descent | 10 | 0.2 | 1 | ok |")
    assert not {"key", "code", "host", "message"} & set(head.split())
    assert re.search(r"\| -?0\.\d{1,6} \|", only)


def test_parquet_goes_to_a_file_and_holds_all_columns(plan: Path, tmp_path: Path) -> None:
    run("campaign", "run", "plan.toml", "--out", "out", "--workers", "0")
    with (tmp_path / "all.parquet").open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "bilevel_sym", "campaign", "table", "out", "--format", "parquet"], stdout=file,
            check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert done.returncode == 0
    import pyarrow.parquet as parquet

    from bilevel_sym.campaigns import Campaign

    assert parquet.read_table(tmp_path / "all.parquet").equals(Campaign.table("out"))


def test_the_same_command_again_computes_what_is_new(plan: Path) -> None:
    run("campaign", "run", "plan.toml", "--out", "out", "--workers", "0")
    before = rows_of(run("campaign", "table", "out").stdout)
    plan.write_text(PLAN.replace("[0.1, 0.2]", "[0.1, 0.2, 0.3]"))
    dry = run("campaign", "run", "plan.toml", "--out", "out", "--dry-run")
    assert dry.stdout.splitlines()[0] == "6 tasks, of which out holds 4"
    assert run("campaign", "run", "plan.toml", "--out", "out", "--workers", "0").stdout.startswith("6 of 6 tasks")
    after = rows_of(run("campaign", "table", "out").stdout)
    assert after[:4] == before  # the seconds and moments too: they were not computed again
    assert [row["eta"] for row in after[4:]] == ["0.3", "0.3"]


def test_dry_run_estimates_and_keeps_nothing(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.toml").write_text(SLOW.replace("0.25", "0.01").replace("40", "400"))
    done = run("campaign", "run", "slow.toml", "--out", "out", "--dry-run", "--workers", "4")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == "400 tasks, of which out holds 0"
    told = re.fullmatch(r"about ([0-9.]+) s on 4 cores of this machine, by (\d+) tasks that were tried", second)
    assert told
    assert float(told[1]) >= 1.0  # 400 times at least a hundredth of a second, on four
    assert 1 <= int(told[2]) <= 64
    assert not (tmp_path / "out").exists()


def test_a_dry_run_of_what_is_done_tries_nothing(plan: Path) -> None:
    run("campaign", "run", "plan.toml", "--out", "out", "--workers", "0")
    dry = run("campaign", "run", "plan.toml", "--out", "out", "--dry-run")
    assert dry.stdout == "4 tasks, of which out holds 4\n"


def test_failures_are_rows_and_no_failure_of_the_command(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('[campaign]\ntask = "slow_to_run:fail"\nseeds = 3\n')
    done = run("campaign", "run", "bad.toml", "--out", "out", "--workers", "0")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "3 of 3 tasks are done, 2 of them failed; 0 are left"
    assert "campaign table out --where 'status == \"failed\"'" in done.stdout
    rows = rows_of(run("campaign", "table", "out", "--where", 'status == "failed"').stdout)
    assert [row["seed"] for row in rows] == ["1", "2"]
    assert rows[0]["message"] == "ZeroDivisionError: no such number | at all"
    assert "Campaign(task='slow_to_run:fail', seeds=[1]).reproduce()" in rows[0]["code"]
    markdown = run("campaign", "table", "out", "--format", "markdown").stdout
    assert "no such number \\| at all" in markdown


BAD = {
    "no action": ("campaign", "ACTION is missing"),
    "mistyped action": ("campaign rnu plan.toml --out out", "did you mean run?"),
    "no such action": ("campaign stop", "'stop' is not one of run, status, table"),
    "no folder": ("campaign run plan.toml", "--out is missing"),
    "no plan": ("campaign run nosuch.toml --out out", "nosuch.toml cannot be read"),
    "not a plan": ("campaign run slow_to_run.py --out out", "is no TOML"),
    "two places": ("campaign run plan.toml --out out --scheduler tcp://a:1 --workers 2", "one of the two"),
    "workers in words": ("campaign run plan.toml --out out --workers many", "whole number"),
    "nothing there": ("campaign status nowhere", "nowhere holds no campaign"),
    "no table there": ("campaign table nowhere", "nowhere holds no campaign"),
    "no such format": ("campaign table out --format json", "is not one of csv, parquet, markdown"),
    "mistyped option": ("campaign table out --were x", "table has no option --were"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_short_message_and_code_2(plan: Path, case: str) -> None:
    words, told = BAD[case]
    done = run(*words.split(" "))
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "try: " in done.stderr
    assert 1 <= len(done.stderr.splitlines()) <= 4


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (PLAN.replace("descent", "decent"), "did you mean descent?"),
        (PLAN.replace("eta", "etta"), "did you mean eta?"),
        (PLAN.replace("zoo:scalar", "nosuch.toml"), "there is no file"),
        (PLAN.replace('problems = ["zoo:scalar"]\n', ""), "problems is missing"),
        (PLAN.replace('"solve"', '"nosuch:f"'), "there is no module 'nosuch'"),
    ],
)
def test_a_bad_plan_is_told_before_anything_is_made(plan: Path, tmp_path: Path, changed: str, told: str) -> None:
    plan.write_text(changed)
    done = run("campaign", "run", "plan.toml", "--out", "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_bad_filter_names_the_column(plan: Path) -> None:
    run("campaign", "run", "plan.toml", "--out", "out", "--workers", "0")
    done = run("campaign", "table", "out", "--where", "etaa > 0.1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean eta?" in done.stderr


@pytest.mark.parametrize("action", ["run", "status", "table"])
def test_each_action_has_help(action: str) -> None:
    shown = run("campaign", action, "--help")
    assert shown.returncode == 0
    assert shown.stdout.startswith(f"usage: bilevel-sym campaign {action}")


def test_durations() -> None:
    assert [_duration(s) for s in (0.5, 99.0, 119.4, 120.0, 7199.0, 7200.0, 4e6)] == [
        "0.5 s", "99 s", "119 s", "2 minutes", "120 minutes", "2 hours", "1111 hours"
    ]  # fmt: skip


# ---- as a process --------------------------------------------------------------------------------------------


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bilevel_sym", "campaign", *words], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_keeps_what_is_done_and_goes_on(plan: Path, number: int, code: int) -> None:
    running = started("run", "slow.toml", "--out", "out", "--workers", "1")
    end = time.monotonic() + 120
    while not list(Path("out/parts").glob("part-*.parquet")):
        assert time.monotonic() < end
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (code, "")
    told = re.search(r"interrupted; (\d+) of 40 tasks are done; (\d+) are left\ntry: the same command again", err)
    assert told, err
    done, left = map(int, told.groups())
    assert done + left == 40
    assert 0 < done < 40
    assert run("campaign", "status", "out").stdout.splitlines()[0] == f"{done} of 40 tasks are done; {left} are left"
    Path("slow.toml").write_text(SLOW)
    again = started("run", "slow.toml", "--out", "out", "--workers", "2")
    again.communicate(timeout=120)
    rows = rows_of(run("campaign", "table", "out").stdout)
    assert [(row["seed"], row["twice"]) for row in rows] == [(str(k), str(2 * k)) for k in range(40)]


@pytest.mark.slow
def test_progress_is_for_terminals_alone(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.toml").write_text(SLOW.replace("40", "6"))
    with Terminal("campaign", "run", "slow.toml", "--out", "out", "--workers", "0") as terminal:
        assert terminal.finish() == 0
    shown = terminal.seen
    assert re.search(r"campaign: \d/6 \(\d+ %\)", shown)
    silent = process("campaign", "run", str(tmp_path / "slow.toml"), "--out", str(tmp_path / "other"), "--workers", "0")
    assert (silent.returncode, silent.stderr) == (0, "")


@pytest.mark.slow
def test_parquet_is_no_text_for_a_terminal(plan: Path) -> None:
    run("campaign", "run", "plan.toml", "--out", "out", "--workers", "0")
    with Terminal("campaign", "table", "out", "--format", "parquet") as terminal:
        assert terminal.finish() == 2
    shown = terminal.seen
    assert "> table.parquet" in shown
    assert "PAR1" not in shown
