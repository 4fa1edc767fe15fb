"""numba's cache: not read where others could write, not believed where it is damaged, and never a reason to fail."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from full_disk import files_of_at_most

from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.system.progress import tell_once

pytest.importorskip("numba")
from numba.core import config

from bilevel_sym.arithmetic.compiled import cache
from bilevel_sym.arithmetic.compiled.cache import folder_of, is_private

ROOT = Path(__file__).resolve().parent.parent
SMALL = """
import numba
from bilevel_sym.arithmetic.compiled.cache import kept
@kept
@numba.njit
def twice(number):
    return 2 * number
"""
POSIX = pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners and modes are those of POSIX")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(config, "CACHE_DIR", "")  # what NUMBA_CACHE_DIR says of other files
    (tmp_path / "small.py").write_text(SMALL, encoding="utf-8")
    return tmp_path


def loaded(place: Path) -> Any:
    """A small compiled function, as a new process would find it."""
    spec = importlib.util.spec_from_file_location("small", place / "small.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.twice


def is_read(place: Path) -> bool:
    """Whether the function comes out of the cache; it works in any case."""
    function = loaded(place)
    assert function(21) == 42
    return bool(function.stats.cache_hits)


def files(place: Path) -> list[Path]:
    return [*(place / "__pycache__").glob("*.nbi"), *(place / "__pycache__").glob("*.nbc")]


def test_what_was_compiled_is_found_again(place: Path) -> None:
    assert not is_read(place)
    assert [path.suffix for path in files(place)] == [".nbi", ".nbc"]
    assert is_read(place)
    assert folder_of(loaded(place)) == place / "__pycache__"


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-1],
    "one bit": lambda content: content[:-60] + bytes([content[-60] ^ 1]) + content[-59:],
    "zeros": lambda content: content[:100] + bytes(len(content) - 100),
    "text": lambda content: b"not what it was",
    "something added": lambda content: content + b"x",
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_damaged_file_is_as_none_and_is_mended(place: Path, suffix: str, damage: str) -> None:
    assert not is_read(place)
    (path,) = (place / "__pycache__").glob(f"*{suffix}")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert not is_read(place)
    assert is_read(place)


@pytest.mark.slow
@POSIX
def test_what_others_can_write_is_not_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_read(place)
    for path in files(place):
        path.chmod(0o666)
        assert not is_read(place)  # and is written anew, for the owner alone
        assert is_read(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "mine"))
    folder = place / "__pycache__"
    for mode in (0o777, 0o1777, 0o757):
        folder.chmod(mode)
        shutil.rmtree(place / "mine", ignore_errors=True)
        assert not is_read(place)
        assert is_read(place)
        kept = folder_of(loaded(place))
        assert kept is not None
        assert kept.is_relative_to(place / "mine")  # the next folder that is one's own
        assert kept.stat().st_mode & 0o077 == 0


@POSIX
def test_who_may_have_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.touch()
    for mode, private in ((0o600, True), (0o644, True), (0o602, False), (0o646, False), (0o666, False)):
        path.chmod(mode)
        assert is_private(path) == private
    path.chmod(0o664)
    assert is_private(path) == cache._is_own_group(path.stat().st_gid)
    monkeypatch.setattr(cache, "_is_own_group", lambda gid: False)
    assert not is_private(path)
    path.chmod(0o600)
    assert not is_private(tmp_path / "absent")
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert is_private(path) == (owner == 0)  # root could do worse


@pytest.mark.parametrize("most", [0, 100, 1000])
def test_a_full_disk_is_told_once(place: Path, caplog: pytest.LogCaptureFixture, most: int) -> None:
    tell_once.cache_clear()
    with files_of_at_most(most):
        assert not is_read(place)
        assert not is_read(place)
    (record,) = caplog.records
    assert "cannot be kept in" in record.message
    assert "too large" in record.message
    assert not is_read(place)
    assert is_read(place)


def test_without_a_folder_it_works(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere(place, monkeypatch)
    assert not is_read(place)
    assert not is_read(place)
    assert folder_of(loaded(place)) is None


def nowhere(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder can be made: for root too, who may write where modes forbid it."""
    (package / "__pycache__").write_text("a file")
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)


USES = """
import warnings; warnings.simplefilter("error")
import numpy as np
from bilevel_sym import AID, BilevelProblem, Descent, solve
import verify
toy = BilevelProblem("x*y + y", "y**2/2 + y**4/4 - x*y", "x", "y", box={"x": (-1, 1), "y": (-2, 2)})
print(toy.kernels.engine, float(toy.kernels.phi(np.array([[2.0]]))[0]))
print(solve(toy, Descent(AID(D=5, N=5, tau=0.1), eta=0.1), [0.5], steps=3).status)
print(verify.constants(toy, effort="quick").brackets["mu"].lower)
"""


def run_in(folder: Path, code: str, **environment: str) -> tuple[str, str]:
    words = {name: text for name, text in os.environ.items() if not name.startswith("NUMBA")}
    words |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=words, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.slow
def test_with_no_folder_at_all_numpy_computes_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("bilevel_sym", "verify"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    plain, nothing = run_in(tmp_path, "import sys; sys.modules['numba'] = None\n" + USES)
    assert nothing == ""
    for room in ("arithmetic/compiled", "implicit", "solvers/compiled"):  # where functions are compiled
        nowhere(tmp_path / "bilevel_sym" / room, monkeypatch)
    printed, told = run_in(tmp_path, USES, HOME=os.devnull)
    assert printed == plain
    assert printed.startswith("numpy ")
    (line,) = told.splitlines()
    assert "no folder of your own" in line
    assert "NUMBA_CACHE_DIR" in line
    disabled, told = run_in(tmp_path, USES, NUMBA_DISABLE_JIT="1")
    assert disabled == plain
    assert told.count("NUMBA_DISABLE_JIT is set") == 1
    (tmp_path / "numba.py").write_text("raise ImportError('another NumPy is wanted')")
    broken, told = run_in(tmp_path, USES)
    assert broken == plain
    assert told.count("another NumPy is wanted") == 1


@pytest.mark.slow
@POSIX
def test_a_cache_that_was_filled_by_root_serves_others(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the image of a container: the folder cannot be written, what it holds is read."""
    assert not is_read(place)
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    locators = [locator for locator in cache._CarefulPlaces._locator_classes if locator.__name__ == "Private"]
    for locator in locators:
        monkeypatch.setattr(locator, "from_function", classmethod(lambda cls, *words: None))
    assert is_read(place)


def test_code_for_other_operations_is_not_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The codes of operations follow from the records: with other records all is compiled again."""
    assert not is_read(place)
    assert is_read(place)
    fewer = {name: record for name, record in OPERATIONS.items() if name != "erf"}
    monkeypatch.setattr(cache, "OPERATIONS", fewer)
    assert not is_read(place)
