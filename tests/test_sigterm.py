"""SIGTERM: what queues, containers and ``timeout`` send saves what Ctrl-C saves, with an exit code of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from terminals import Terminal
from test_cli import run

import verify
from bilevel_sym import BilevelProblem, Descent, Exact, Status, solve, zoo
from bilevel_sym.cli.screen import Interrupts

ROOT = Path(__file__).resolve().parent.parent
TOY = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
LONG = ("solve", "zoo:saddle", "--algorithm", "descent", "--seeds", "3", "--steps")

# a real signal, at a moment that is the same on every machine: when the command imports what it works with
AT_AN_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
_, module, numbers, *sys.argv[1:] = sys.argv
class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            for number in numbers.split(","):
                os.kill(os.getpid(), int(number))
sys.meta_path.insert(0, Sender())
from bilevel_sym.cli import main
sys.exit(main())
"""

# each command, and a module that it imports when it begins to work
COMMANDS = {
    "derive": ("bilevel_sym.symbolic.derivation", "zoo:scalar"),
    "solve": ("bilevel_sym.cli.solve_run", "zoo:scalar"),
    "verify": ("verify.runner", "zoo:scalar"),
    "certify": ("bilevel_sym.certify.certificate", "zoo:scalar", "--at", "x=1"),
    "recheck": ("bilevel_sym.certify.saved_certificate", "nothing.json"),
    "check": ("verify.testkit.problem_cases", "operator:neg", "--problem", "zoo:scalar"),
    "campaign": ("bilevel_sym.campaigns.plan", "run", "nothing.toml", "--out", "nothing"),
    "zoo": ("bilevel_sym.zoo", "scalar"),
    "errata": ("verify.papers.huang_saddle.errata",),
    "report": ("verify.reporting.page", "zoo:scalar", "--out", "report.html"),
    "reproduce": ("bilevel_sym.theories.huang_saddle.experiments", "figure1"),
    "compile": ("bilevel_sym.kernels.compilation",),
    "docs": ("bilevel_sym.cli.site", "kernels"),
}


def signalled(module: str, numbers: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AT_AN_IMPORT, module, numbers, *arguments]
    with tempfile.TemporaryDirectory() as folder:  # what a command that goes on all the same would write into
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip


def test_all_commands_are_here() -> None:
    from bilevel_sym.cli.session import COMMANDS as KNOWN

    assert set(COMMANDS) == {command.name for command in KNOWN}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_answers_with_its_code(command: str) -> None:
    if command == "compile":
        pytest.importorskip("numba")
    module, *arguments = COMMANDS[command]
    done = signalled(module, str(int(signal.SIGTERM)), command, *arguments)
    assert (done.returncode, done.stdout) == (143, "")
    assert done.stderr == "bilevel-sym: interrupted; nothing was finished\n"


@pytest.mark.parametrize(
    ("numbers", "code"), [("2", 130), ("15", 143), ("2,2", 130), ("15,15", 143), ("15,15,15", 143)]
)
def test_the_first_signal_decides_the_code(numbers: str, code: int) -> None:
    done = signalled("bilevel_sym.zoo", numbers, "zoo", "scalar")
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr


@contextmanager
def answer(number: signal.Signals, action: Any) -> Iterator[None]:
    before = signal.signal(number, action)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_the_answer_is_taken_back_when_a_command_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(spec: str) -> NoReturn:
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        raise AssertionError

    monkeypatch.setattr(zoo, "parse", stop)
    with answer(signal.SIGTERM, signal.SIG_DFL):
        done = run("zoo", "scalar")
        assert (done.returncode, done.stderr) == (143, "bilevel-sym: interrupted; nothing was finished\n")
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_where_it_is_ignored_it_stays_so() -> None:
    with answer(signal.SIGTERM, signal.SIG_IGN), Interrupts(until_the_end=False) as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert not interrupts.came


def test_the_library_installs_no_answer_to_sigterm() -> None:
    seen: list[Any] = []

    @verify.claim("own:listening")
    def listening(study: Any) -> Any:
        """What answers SIGTERM while claims are judged?"""
        seen.append(signal.getsignal(signal.SIGTERM))
        return verify.judged("own:listening", 1.0, 2.0, evidence="sampled", message="judged")

    def look(state: Any) -> bool:
        seen.append(signal.getsignal(signal.SIGTERM))
        return True

    with answer(signal.SIGTERM, signal.SIG_DFL):
        verify.run(TOY, claims=listening)
        assert solve(TOY, Descent(Exact(), 0.1), [1.0], stop=look).status is Status.STOPPED
    assert seen == [signal.SIG_DFL, signal.SIG_DFL]


def test_an_answer_that_a_program_has_given_is_noticed_by_run() -> None:
    """A search inside a claim may keep the exception to itself; the report is interrupted all the same."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    @verify.claim("own:terminated")
    def terminated(study: Any) -> Any:
        """Somebody ends the process, and a search answers."""
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        except KeyboardInterrupt:
            pass
        return verify.judged("own:terminated", 1.0, 2.0, evidence="sampled", message="judged")

    with answer(signal.SIGTERM, interrupt):
        assert verify.run(TOY, claims=terminated).interrupted
        assert signal.getsignal(signal.SIGTERM) is interrupt


# ---- in the middle of the work ----------------------------------------------------------------------------


def terminate(shown: Terminal) -> None:
    shown.process.send_signal(signal.SIGTERM)
    assert shown.finish() == 143
    assert "Traceback" not in shown.seen


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "json"])
def test_solve_leaves_a_report_and_the_file(tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"run.{ending}"
    with Terminal(*LONG, "300000", "--out", str(out)) as shown:
        shown.wait_for(r"solve: [1-9]\d*/300000")
        terminate(shown)
    assert re.match(r"3 trajectories interrupted; what there was is kept \(\d+ steps\)", shown.lines[0])
    assert f"written: {out}" in shown.lines
    assert shown.lines[-1] == "bilevel-sym: interrupted; the report is on the steps made so far"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


@pytest.mark.slow
def test_verify_leaves_a_partial_verdict() -> None:
    with Terminal("verify", "zoo:logistic") as shown:
        shown.wait_for(r"verifying [1-9]\d/")
        terminate(shown)
    assert shown.lines[-1] == "bilevel-sym: interrupted; what was not reached is INCONCLUSIVE in the report"
    assert any("INCONCLUSIVE" in line and "HOLDS" in line for line in shown.lines)


@pytest.mark.slow
def test_errata_keeps_what_was_shown() -> None:
    with Terminal("errata") as shown:
        shown.wait_for(r"[\r\n]2\. ")
        terminate(shown)
    assert shown.lines[0].startswith("1. Equation")


@pytest.mark.slow
def test_reproduce_leaves_no_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with Terminal("reproduce", "figure1", "--out", str(tmp_path)) as shown:
        shown.wait_for(r"\rfigure1: \d+/12 \(\d+ %\)")
        terminate(shown)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.skipif(shutil.which("timeout") is None, reason="there is no timeout")
def test_timeout_gets_what_there_is(tmp_path: Path) -> None:
    out = tmp_path / "run.csv"
    command = ["timeout", "--preserve-status", "20", sys.executable, "-m", "bilevel_sym", *LONG, "100000000"]
    done = subprocess.run(
        [*command, "--format", "json", "--out", str(out)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    # recording so many steps is refused before the work: without --out it runs
    assert done.returncode == 2
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (143, "bilevel-sym: interrupted; the report is on the steps made so far\n")
    assert '"interrupted": true' in done.stdout
