"""Files: whole or not at all, on full disks, under kill -9, from eight threads, beside planted links."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import secrets
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from full_disk import files_of_at_most
from hypothesis import HealthCheck, given, settings

import verify
from bilevel_sym import BilevelProblem, Descent, Exact, Solution, evaluate, solve
from bilevel_sym.cli.solve_run import write_solution
from bilevel_sym.errors import BilevelError, CannotWrite, visible
from bilevel_sym.system import writing
from bilevel_sym.system.writing import check_target, csv_lines, make_folder, write, write_together
from verify.study import study_of

ROOT = Path(__file__).resolve().parent.parent
TOY = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- what is written --------------------------------------------------------------------------------------


@given(st.one_of(st.text(), st.binary(), st.lists(st.text())))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_what_is_given_is_what_stands_there(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "file"
    write(path, content)
    assert path.read_bytes() == (content if isinstance(content, bytes) else "".join(content).encode())
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("content", ["\ud800", ["whole", "\udfff"]])
def test_half_a_letter_is_refused(tmp_path: Path, content: Any) -> None:
    with pytest.raises(CannotWrite, match="half a letter"):
        write(tmp_path / "file", content)
    assert names(tmp_path) == []


def test_rows_are_written_as_the_csv_module_does() -> None:
    assert "".join(csv_lines([("a", "b c"), (1, 'x,"y"'), (None, 0.1)])) == 'a,b c\r\n1,"x,""y"""\r\n,0.1\r\n'


# ---- failures ---------------------------------------------------------------------------------------------


def run_of(steps: int) -> Solution:
    return solve(TOY, Descent(Exact(), eta=0.25), [1.0], steps=steps, backend="tape")


# what is made, and how it is saved
SAVERS: dict[str, tuple[Callable[[], Any], Callable[[Any, Path], object]]] = {
    "toy.toml": (lambda: TOY, lambda made, path: made.save(path)),
    "point.json": (lambda: evaluate(TOY, ["1/3"], digits=300), lambda made, path: made.save(path)),
    "constants.json": (lambda: verify.constants(TOY, effort="quick"), lambda made, path: made.save(path)),
    "smoothness.json": (lambda: verify.smoothness(TOY, effort="quick"), lambda made, path: made.save(path)),
    "points.json": (lambda: study_of(TOY).stationary, lambda made, path: made.save(path)),
    "run.csv": (lambda: run_of(9), lambda made, path: made.to_csv(path)),
    "run.json": (lambda: run_of(9), lambda made, path: write_solution(made, str(path))),
    "run.png": (lambda: run_of(9), lambda made, path: write_solution(made, str(path))),
}


HEAVY = {"run.png", "smoothness.json"}  # imports and searches of more than a second


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in HEAVY else []) for name in SAVERS]
)
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, name: str) -> None:
    make, save = SAVERS[name]
    made, path = make(), tmp_path / name
    if name.endswith(".png"):
        pytest.importorskip("matplotlib")
    save(made, path)  # whatever is cached by others is so now
    path.write_text("precious")
    with files_of_at_most(64), pytest.raises(CannotWrite) as caught:
        save(made, path)
    assert path.read_text() == "precious"
    assert names(tmp_path) == [name]
    error = caught.value
    assert (error.errno, error.filename) == (errno.EFBIG, str(path))
    assert str(error) == (
        f"{path} cannot be written: it is larger than files may be here; nothing was changed\n"
        "try: a larger limit (ulimit -f), or another place"
    )
    assert isinstance(error, BilevelError)
    assert isinstance(error, OSError)
    save(made, path)
    assert path.stat().st_size > 64


def test_a_small_tmpfs_that_is_full(tmp_path: Path) -> None:
    code = (
        "import sys, errno\nfrom pathlib import Path\nfrom bilevel_sym.system.writing import write\n"
        "from bilevel_sym.errors import CannotWrite\npath = Path(sys.argv[1]) / 'run.csv'\nwrite(path, 'old')\n"
        "try:\n    write(path, 'n' * 1_000_000)\nexcept CannotWrite as error:\n"
        "    print(error.errno == errno.ENOSPC, 'the disk is full' in str(error), path.read_text(),\n"
        "          [p.name for p in path.parent.iterdir()])\n"
    )
    script = f'mount -t tmpfs -o size=64k none "{tmp_path}" && exec "{sys.executable}" -c "$1" "{tmp_path}"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("no file system may be mounted here")
    assert (done.stdout, done.stderr) == ("True True old ['run.csv']\n", "")


STEPS = {"open": (os, "open"), "fsync": (os, "fsync"), "replace": (Path, "replace")}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_no_step_that_fails_loses_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    path = tmp_path / "run.csv"
    path.write_text("precious")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(*STEPS[step], fail)
    with pytest.raises(CannotWrite, match="nothing was changed") as caught:
        write(path, "new")
    monkeypatch.undo()
    assert caught.value.errno == number
    assert path.read_text() == "precious"
    assert names(tmp_path) == ["run.csv"]


def test_an_interruption_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        yield "half"
        raise KeyboardInterrupt

    (tmp_path / "run.csv").write_text("precious")
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "run.csv", lines())
    assert (tmp_path / "run.csv").read_text() == "precious"
    assert names(tmp_path) == ["run.csv"]


@pytest.mark.parametrize("failing", range(4))
def test_a_set_of_files_says_how_far_its_renames_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """All risky work is done before; a rename that fails all the same is told as it is, and no file is cut."""
    paths = [tmp_path / f"{k}.csv" for k in range(4)]
    for path in paths:
        path.write_text("old")
    calls, replace = iter(range(9)), Path.replace

    def fail(self: Path, target: Path) -> Path:
        if next(calls) == failing:
            raise OSError(errno.EIO, "Input/output error")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    told = f"{failing} of 4 files that belong together are new" if failing else "nothing was changed"
    with pytest.raises(CannotWrite, match=told):
        write_together(dict.fromkeys(paths, "new"))
    assert [path.read_text() for path in paths] == ["new"] * failing + ["old"] * (4 - failing)
    assert names(tmp_path) == [path.name for path in paths]


REFUSED: dict[str, tuple[str, str]] = {
    "no folder": ("no/run.csv", "there is no folder {0}/no"),
    "a file as a folder": ("file/run.csv", "{0}/file is not a folder"),
    "a directory": ("folder", "it is a directory"),
    "a directory by its name": ("other/", "it is a directory"),
    "a socket": ("socket", "it is neither a file nor a pipe"),
    "a long name": ("n" * 300, "the name is too long"),
    "NUL": ("a\0b", "no file can have such a name"),
    "a circle above it": ("circle/run.csv", "links lead in a circle"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name must be short
    Path("file").write_text("precious")
    Path("folder").mkdir()
    Path("circle").symlink_to("circle")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    name, why = REFUSED[case]
    before = names(tmp_path)
    for attempt in (check_target, lambda path: write(path, "new")):
        with pytest.raises(CannotWrite) as caught:
            attempt(f"{tmp_path}/{name}")
        message, hint = str(caught.value).split("\ntry: ")
        assert message.endswith(f"{visible(name)} cannot be written: {why.format(tmp_path)}; nothing was changed")
        assert hint
    assert names(tmp_path) == before
    assert Path("file").read_text() == "precious"


@pytest.mark.parametrize("refused", ["file", "folder"])
def test_what_is_read_only_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    path = tmp_path / "run.csv"
    path.write_text("precious")
    locked = {"file": path, "folder": tmp_path}[refused]
    monkeypatch.setattr(os, "access", lambda asked, *_: Path(asked) != locked)  # root may do everything
    with pytest.raises(CannotWrite, match="permission denied; nothing was changed\ntry: a file in a folder of your"):
        write(path, "new")
    assert path.read_text() == "precious"


def test_a_folder_that_cannot_be_made_is_the_same_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="a file of that name is in the way"):
        make_folder(tmp_path / "file")
    with pytest.raises(CannotWrite, match="is not a folder"):
        make_folder(tmp_path / "file" / "below")


# ---- links, permissions, pipes ----------------------------------------------------------------------------


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim, target = tmp_path / "victim", tmp_path / "run.csv"
    victim.write_text("precious")
    target.symlink_to(victim)
    write(target, "new")
    assert victim.read_text() == "precious"
    assert not target.is_symlink()
    assert target.read_text() == "new"


def test_a_link_to_nothing_makes_nothing_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "run.csv").symlink_to(tmp_path / "elsewhere")
    write(tmp_path / "run.csv", "new")
    assert names(tmp_path) == ["run.csv"]


def test_a_link_planted_at_the_other_name_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name cannot be foreseen; were it, the file would still have to be new."""
    monkeypatch.setattr(secrets, "token_hex", lambda _: "foreseen")
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".run.csv.foreseen.partial").symlink_to(tmp_path / "victim")
    with pytest.raises(CannotWrite, match="in the way"):
        write(tmp_path / "run.csv", "new")
    assert (tmp_path / "victim").read_text() == "precious"


def test_other_names_differ_and_tell_what_they_are() -> None:
    found = {writing._neighbour(Path("folder/run.csv")).name for _ in range(1000)}
    assert len(found) == 1000
    assert all(name.startswith(".run.csv.") and name.endswith(".partial") for name in found)
    assert len(os.fsencode(writing._neighbour(Path("\U0001f600" * 63)).name)) <= 255


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_a_new_file_or_of_the_old_one(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "run.csv", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run.csv").stat().st_mode) == 0o666 & ~umask
    (tmp_path / "run.csv").chmod(0o640)
    write(tmp_path / "run.csv", "newer")
    assert stat.S_IMODE((tmp_path / "run.csv").stat().st_mode) == 0o640


def test_streams_are_written_directly(tmp_path: Path) -> None:
    fifo = tmp_path / "run.csv"
    os.mkfifo(fifo)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(fifo.read_text)
        run_of(3).to_csv(fifo)
        assert len(read.result().splitlines()) == 5
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    write(os.devnull, "nothing")
    assert Path(os.devnull).is_char_device()
    reader, writer = os.pipe()
    write(f"/dev/fd/{writer}", "through")
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "through"


def test_standard_output_is_written_on_where_it_stands(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom bilevel_sym.system.writing import write\n"
        "print('before', flush=True)\nwrite('/dev/stdout', 'written\\n')\nprint('after')\n"
    )
    with (tmp_path / "out").open("wb") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True, cwd=ROOT)
    assert (tmp_path / "out").read_text() == "before\nwritten\nafter\n"
    assert names(tmp_path) == ["out"]


def test_a_reader_who_leaves_is_told_as_a_failure_to_write() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with pytest.raises(CannotWrite, match="what came before may have been written"):
            write(f"/dev/fd/{writer}", "x")
    finally:
        os.close(writer)


# ---- many at once, and kill -9 ----------------------------------------------------------------------------


@pytest.mark.slow
def test_eight_threads_save_to_one_path(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    problems = [BilevelProblem(f"{k + 1}*x*y", "y**2/2 - x*y", "x", "y") for k in range(8)]
    begin = threading.Barrier(8)

    def save(problem: BilevelProblem) -> None:
        begin.wait()
        for _ in range(40):
            problem.save(path)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(save, problems))  # raises what any of the 320 saves raised
    assert BilevelProblem.load(path) in problems
    assert names(tmp_path) == ["toy.toml"]


FOREVER = """
import sys
from itertools import cycle
from bilevel_sym.system.writing import write
print("begun", flush=True)
for letter in cycle("ab"):
    write(sys.argv[1], (letter * 65536 for _ in range(16)))
"""


def killed_in_the_middle(path: Path, times: int) -> int:
    """Kill a process that writes without end, so many times; how often that left an incomplete neighbour behind."""
    draw, whole = random.Random(0), {letter * 65536 * 16 for letter in "ab"}
    for _ in range(times):
        with subprocess.Popen([sys.executable, "-c", FOREVER, str(path)], stdout=subprocess.PIPE, cwd=ROOT) as process:
            assert process.stdout is not None
            process.stdout.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0.0, 0.05))
            process.send_signal(signal.SIGKILL)
        assert not path.exists() or path.read_text() in whole
    left = [name for name in names(path.parent) if name != path.name]
    assert all(name.startswith(f".{path.name}.") and name.endswith(".partial") for name in left)
    write(path, "new")
    assert path.read_text() == "new"
    return len(left)


@pytest.mark.slow
def test_kill_9_leaves_the_whole_old_or_the_whole_new_file(tmp_path: Path) -> None:
    killed_in_the_middle(tmp_path / "run.csv", 3)


@pytest.mark.slow
def test_kill_9_a_hundred_times(tmp_path: Path) -> None:
    assert killed_in_the_middle(tmp_path / "run.csv", 100) > 10  # it did hit writes
