"""The command line where people run it: other editors, folders, languages, terminals, and no home at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bilevel_sym import BilevelProblem

ROOT = Path(__file__).resolve().parent.parent
LINES = [
    'name = "toy"',
    'x = "x"',
    'y = "y"',
    'f = "x*y"',
    'g = "y**2/2 - sin(x)*y"',
    "[box]",
    "x = [-1, 1]",
    "y = [-1, 1]",
]
MARK = "\ufeff"


def run(*words: str, where: Path, **environment: str | None) -> subprocess.CompletedProcess[bytes]:
    inherited = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "0", **environment}
    return subprocess.run(
        [sys.executable, "-m", "bilevel_sym", *words], cwd=where, capture_output=True, check=False,
        env={name: text for name, text in inherited.items() if text is not None},
    )  # fmt: skip


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", MARK])
def test_files_of_any_editor_say_the_same(tmp_path: Path, ends: str, mark: str) -> None:
    path = tmp_path / "toy.toml"
    path.write_bytes((mark + ends.join(LINES) + ends).encode())
    assert BilevelProblem.load(path) == BilevelProblem(
        "x*y", "y**2/2 - sin(x)*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)}
    )
    wrong = tmp_path / "wrong.toml"
    wrong.write_bytes((mark + ends.join(LINES).replace("sin(x)", "sin(q)")).encode())
    with pytest.raises(ValueError, match="line 5, column 19"):
        BilevelProblem.load(wrong)


COMMANDS = {
    "derive": ("derive", "toy.toml"),
    "certify": ("certify", "toy.toml", "--at", "x=1/3"),
    "solve": ("solve", "toy.toml", "--x0", "x=0.5", "--steps", "5", "--out", "run.csv"),
    "verify": ("verify", "toy.toml", "--effort", "quick", "--claims", "lem:descent,eq:bilevel-grad"),
    "zoo": ("zoo", "saddle"),
    "help": ("verify", "--help"),
}
SURROUNDINGS: dict[str, dict[str, str | None]] = {
    "no home": {"HOME": None, "XDG_CACHE_HOME": None, "USER": None, "LOGNAME": None},
    "a home that is no folder": {"HOME": os.devnull},
    "the C locale": {"LC_ALL": "C", "LANG": None},
    "the POSIX locale, in ASCII": {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"},
    "a language that is not there": {"LC_ALL": "tlh_QX.KOI8-R"},
    "one column": {"COLUMNS": "1", "LINES": "1"},
    "no column": {"COLUMNS": "0"},
    "columns that are no number": {"COLUMNS": "wide"},
    "no terminal": {"TERM": None},
}


# each surrounding around one command, each command in one or two of them
TURNS = [f"{a}-{c}" for i, a in enumerate(SURROUNDINGS) for k, c in enumerate(COMMANDS) if (i + k) % 6 == 0]


@pytest.mark.slow
@pytest.mark.in_ci(*TURNS)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("around", SURROUNDINGS)
def test_commands_run_anywhere(tmp_path: Path, around: str, command: str) -> None:
    folder = tmp_path / "a folder with spaces, é and 'quotes'"
    folder.mkdir()
    (folder / "toy.toml").write_text("\n".join(LINES), encoding="utf-8")
    done = run(*COMMANDS[command], where=folder, **SURROUNDINGS[around])
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert done.stdout
    assert b"Traceback" not in done.stderr
    if command == "solve":
        assert (folder / "run.csv").stat().st_size > 0


@pytest.mark.slow
def test_paths_with_spaces_and_letters_of_all_kinds(tmp_path: Path) -> None:
    folder = tmp_path / "Ω β #1 %20 'q' \"d\" $HOME ~ *"
    folder.mkdir()
    (folder / "-toy.toml").write_text("\n".join(LINES), encoding="utf-8")
    done = run(
        "solve",
        str(folder / "-toy.toml"),
        "--x0",
        "x=0.5",
        "--steps",
        "5",
        "--out",
        str(folder / "a b.csv"),
        where=tmp_path,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert (folder / "a b.csv").exists()
