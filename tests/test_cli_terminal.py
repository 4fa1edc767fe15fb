"""The command line as a person sees it: progress, colours, width, Ctrl-C, in a pseudo-terminal; and silence in a pipe."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pty", reason="pseudo-terminals are for POSIX systems")
from terminals import ROOT, Terminal, run

GREEN, RED, YELLOW = "\x1b[32m", "\x1b[1;31m", "\x1b[33m"
LONG = ("solve", "zoo:saddle", "--algorithm", "descent", "--seeds", "3", "--steps", "1000000000")  # at its saddle point
WIDTHS = [80, 140]
SEVERAL = "eq:bilevel-grad,hess-Lipschitz,lem:descent"  # the second takes a second


def piped(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "bilevel_sym", *arguments], capture_output=True, check=False,
        stdin=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


# ---- colours ----------------------------------------------------------------------------------------------


def test_the_word_error_is_red_on_a_terminal() -> None:
    shown = run("derve")
    assert f"bilevel-sym: {RED}error:\x1b[0m there is no command 'derve'" in shown.seen


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_where_it_is_not_wanted(environment: dict[str, str]) -> None:
    shown = run("derve", environment=environment)
    assert "bilevel-sym: error: there is no command 'derve'" in shown.seen
    assert "\x1b" not in shown.seen


def test_an_empty_no_color_is_none() -> None:
    assert RED in run("derve", environment={"NO_COLOR": ""}).seen


@pytest.mark.slow
def test_verdicts_are_coloured_and_the_table_stays_as_it_is() -> None:
    arguments = ("verify", "zoo:lphi_witness", "--claims", "grad-Lipschitz,eq:bilevel-grad", "--variant", "printed")
    coloured, plain = run(*arguments), run(*arguments, environment={"NO_COLOR": "1"})
    assert f"{RED}VIOLATED\x1b[0m" in coloured.seen
    assert f"{GREEN}HOLDS\x1b[0m" in coloured.seen
    assert "\x1b" not in plain.seen
    assert coloured.process.returncode == plain.process.returncode == 1

    def table(terminal: Terminal) -> list[str]:
        return [line for line in terminal.lines if not line.endswith(" s")]  # but for how long it took

    assert table(coloured) == table(plain)


@pytest.mark.slow
def test_what_is_to_be_copied_has_no_colour() -> None:
    shown = run("errata", "--format", "json")
    assert shown.process.returncode == 0
    assert "\x1b" not in shown.seen


# ---- width ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("columns", WIDTHS)
def test_help_fits_the_terminal(columns: int) -> None:
    for command in ("", "derive", "solve", "verify", "certify", "zoo", "errata", "reproduce"):
        shown = run(*command.split(), "--help", columns=columns)
        assert shown.process.returncode == 0
        assert max(map(len, shown.lines)) <= columns


@pytest.mark.slow
@pytest.mark.in_ci("zoo-80", "zoo-140", "verify-80")
@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("arguments", [("zoo",), ("verify", "zoo:scalar", "--claims", SEVERAL)], ids=lambda a: a[0])
def test_tables_fit_the_terminal(arguments: tuple[str, ...], columns: int) -> None:
    shown = run(*arguments, columns=columns)
    assert shown.process.returncode == 0
    assert min(columns, 100) - 20 < max(map(len, shown.lines)) <= columns


# ---- progress ---------------------------------------------------------------------------------------------

# a command, what its progress looks like, and how what stands on the screen in the end begins
SHOWN = {
    "derive": (("derive", "zoo:tube_coupled,d=12", "--format", "latex"), r"\rderiving: \d+ s", "% in matrices: "),
    "certify": (
        ("certify", "zoo:implicit_cubic", "--at", "x=1/3", "--digits", "3000"), r"\rcertifying: \d+ s", "at x = 1/3",
    ),
    "solve": (
        ("solve", "zoo:saddle", "--steps", "6000", "--algorithm", "descent"), r"\rsolve: \d+/6000 \(", "1 trajectory",
    ),
    "verify": (("verify", "zoo:saddle", "--claims", SEVERAL), r"\rverifying \d/3 \S+: \d+ s", "saddle"),
    "errata": (("errata",), r"\rchecking the errata", "1. Equation"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.in_ci(command=("derive", "certify", "solve"))
@pytest.mark.parametrize("command", SHOWN)
def test_progress_appears_and_is_wiped(command: str) -> None:
    arguments, progress, begins = SHOWN[command]
    shown = run(*arguments)
    assert shown.process.returncode == 0
    assert re.search(progress, shown.seen)
    assert re.match(begins, shown.lines[0]), shown.lines[0]
    assert not any(re.search(r"\d+ s$|\d+ %", line) for line in shown.lines if "seed" not in line)


@pytest.mark.long
def test_progress_is_cut_to_a_narrow_terminal() -> None:
    shown = run("verify", "zoo:saddle", "--claims", "hess-Lipschitz", columns=30)
    drawn = [part for line in shown.seen.split("\n") for part in line.split("\r") if part.startswith("verifying")]
    assert drawn
    assert max(map(len, drawn)) < 30


@pytest.mark.long
def test_progress_goes_to_the_terminal_while_results_go_to_a_file(tmp_path: Path) -> None:
    with Terminal(
        "verify", "zoo:saddle", "--claims", "hess-Lipschitz", "--format", "json", output=tmp_path / "out"
    ) as shown:
        assert shown.finish() == 0
    assert "verifying 1/1 hess-Lipschitz" in shown.seen
    assert shown.lines == []
    assert json.loads((tmp_path / "out").read_text())["ok"] is True


@pytest.mark.slow
@pytest.mark.in_ci("solve", "certify")
@pytest.mark.parametrize("arguments", [SHOWN[name][0] for name in ("solve", "verify", "certify")], ids=lambda a: a[0])
def test_a_pipe_gets_the_result_and_nothing_else(arguments: tuple[str, ...]) -> None:
    done = piped(*arguments)
    assert done.returncode == 0
    assert done.stderr == b""
    assert b"\x1b" not in done.stdout
    assert b"\r" not in done.stdout


# ---- Ctrl-C -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ctrl_c_leaves_a_report_and_the_file(tmp_path: Path) -> None:
    out = tmp_path / "run.csv"
    with Terminal(*LONG[:-1], "300000", "--out", str(out)) as shown:
        shown.wait_for(r"solve: [1-9]\d*/300000")
        shown.press_ctrl_c()
        assert shown.finish() == 130
    assert re.match(r"3 trajectories interrupted; what there was is kept \(\d+ steps\)", shown.lines[0])
    assert f"written: {out}" in shown.lines
    assert shown.lines[-1] == "bilevel-sym: interrupted; the report is on the steps made so far"
    assert "Traceback" not in shown.seen
    assert out.read_text().startswith("trajectory,seed,k,x1,x2,phi")
    assert [path.name for path in tmp_path.iterdir()] == ["run.csv"]


@pytest.mark.slow
def test_ctrl_c_leaves_a_partial_verdict() -> None:
    with Terminal("verify", "zoo:logistic") as shown:
        shown.wait_for(r"verifying [1-9]\d/")
        shown.press_ctrl_c()
        assert shown.finish() == 130
    assert shown.lines[-1] == "bilevel-sym: interrupted; what was not reached is INCONCLUSIVE in the report"
    assert any("INCONCLUSIVE" in line and "HOLDS" in line for line in shown.lines)  # the count
    assert "Traceback" not in shown.seen


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_shown() -> None:
    with Terminal("errata") as shown:
        shown.wait_for(r"[\r\n]2\. ")
        shown.press_ctrl_c()
        assert shown.finish() == 130
    assert shown.lines[0].startswith("1. Equation")
    assert re.match(r"bilevel-sym: interrupted; (what stands|the last line) above", shown.lines[-1])
    assert "Traceback" not in shown.seen


@pytest.mark.slow
def test_reproduce_shows_progress_and_ctrl_c_leaves_no_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with Terminal("reproduce", "figure1", "--out", str(tmp_path)) as shown:
        shown.wait_for(r"\rfigure1: \d+/12 \(\d+ %\)")
        shown.press_ctrl_c()
        assert shown.finish() == 130
    assert shown.lines[-1] == "bilevel-sym: interrupted; nothing was finished"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.in_ci(presses=[3])
@pytest.mark.parametrize("presses", [2, 3, 20])
def test_an_impatient_ctrl_c_gives_no_traceback_either(presses: int) -> None:
    with Terminal(*LONG) as shown:
        shown.wait_for(r"solve: [1-9]")
        for _ in range(presses):
            shown.press_ctrl_c()
        assert shown.finish() == 130
    assert "Traceback" not in shown.seen
    assert "Error" not in shown.seen


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.02, 0.1, 0.3, 0.6])
def test_ctrl_c_while_it_starts_gives_no_traceback(delay: float) -> None:
    """The interpreter's own start is not ours: the signal comes when our code has begun."""
    code = (
        "import os, signal, threading, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from bilevel_sym.cli import main\n"
        f"threading.Timer({delay}, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "sys.exit(main())\n"
    )
    command = [sys.executable, "-c", code, *LONG]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)
    assert done.returncode == 130
    assert re.fullmatch(r"bilevel-sym: interrupted; .*\n", done.stderr), done.stderr


def test_a_process_that_ignores_interrupts_goes_on_doing_so() -> None:
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from bilevel_sym.cli import main\n"
        "from bilevel_sym.cli.screen import Interrupts\n"
        "with Interrupts(until_the_end=True):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "print('alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


def test_an_interrupt_that_a_destructor_swallows_comes_again() -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from bilevel_sym.cli.screen import Interrupts\n"
        "class Last:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0)\n"
        "with Interrupts(until_the_end=True):\n"
        "    try:\n"
        "        last = Last()\n"
        "        del last\n"
        "        time.sleep(60)\n"
        "    except KeyboardInterrupt:\n"
        "        print('heard')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n", "")
