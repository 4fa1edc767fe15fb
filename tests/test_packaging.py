"""The distribution: wheel and sdist hold what they should, work alone, and never ask the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import bilevel_sym

ROOT = Path(__file__).resolve().parent.parent
PIP = (sys.executable, "-m", "pip")
SMOKE = ROOT / "tests" / "smoke.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Python imports sitecustomize before all else: nobody can be reached, and there are no extras
NO_NETWORK = """
import socket

def refuse(*_args, **_more):
    raise AssertionError("the network was asked")

socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
"""
NO_EXTRAS = """
import sys

sys.modules.update(dict.fromkeys(("numba", "matplotlib", "hypothesis", "pytest", "jax"), None))
"""


def run(*command: str | Path, where: Path, path: Sequence[Path] = ()) -> str:
    """What a command prints; with ``path`` as the only addition to what Python has installed."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_of_the_packages() -> set[str]:
    """What a reader of the source would expect in the wheel."""
    paths = (path for package in ("bilevel_sym", "verify") for path in (ROOT / package).rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in paths if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the sdist, built by the backend itself, without a network."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, where=ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@pytest.fixture(scope="module")
def unpacked(archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist's folder."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(archives["sdist"]) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


@pytest.fixture(scope="module")
def installed(archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the package, as pip installs it from the wheel."""
    folder = tmp_path_factory.mktemp("site")
    run(
        *PIP,
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-compile",
        "--target",
        folder,
        archives["wheel"],
        where=folder,
    )
    return folder


def test_what_ci_installs_is_pinned_by_hashes() -> None:
    """Names, versions and hashes, no addresses; all that the extras ask for, and not below their floors."""
    lines = (ROOT / ".ci" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    logical = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ").splitlines()
    pin = re.compile(r"([a-z0-9-]+)==([\w.]+)( ; [^;/]*?)?(\s+--hash=sha256:[0-9a-f]{64})+")
    pins = {m[1]: m[2] for line in logical if (m := pin.fullmatch(line.rstrip()))}
    assert len(logical) == sum(pin.fullmatch(line.rstrip()) is not None for line in logical)
    assert "://" not in "\n".join(lines)
    extras = PROJECT["optional-dependencies"]
    wanted = [
        *PROJECT["dependencies"],
        *(w for name in ("test", "plot", "notebook", "fast", "bench", "peers", "lint") for w in extras[name]),
    ]
    for name, floor in (m for line in wanted for m in re.findall(r"^([a-z-]+)(?:\[.*\])?>=([\d.]+)", line)):
        numbers = [tuple(map(int, re.findall(r"\d+", text))) for text in (pins[name], floor)]
        assert numbers[0] >= numbers[1], name


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_the_wheel_holds_the_packages_and_nothing_else(archives: dict[str, Path]) -> None:
    names = contents(archives["wheel"])
    metadata = next(text.decode() for name, text in names.items() if name.endswith("METADATA"))
    assert {name for name in names if ".dist-info/" not in name} == files_of_the_packages()
    assert "License-Expression: BSD-3-Clause" in metadata
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_sdist_holds_all_that_is_kept_here_and_no_more(unpacked: Path) -> None:
    kept = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if kept.returncode:
        pytest.skip("not a clone of the repository")
    expected = {name for name in kept.stdout.splitlines() if (ROOT / name).exists()}
    found = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert found - {"PKG-INFO"} == expected


@pytest.mark.slow
def test_the_sdist_makes_the_same_wheel(archives: dict[str, Path], tmp_path: Path) -> None:
    """Where there is no git, and no file but those in the archive."""
    run(*PIP, "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation", archives["sdist"], where=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert contents(wheel) == contents(archives["wheel"])


@pytest.mark.slow
def test_it_works_alone_without_extras_and_asks_no_network(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK + NO_EXTRAS, encoding="utf-8")
    shown = run(sys.executable, "-W", "error", SMOKE, where=tmp_path, path=[tmp_path, installed])
    assert f"{installed}{os.sep}bilevel_sym" in shown


def test_the_guard_against_the_network_can_fail(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    ask = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')"
    with pytest.raises(AssertionError, match="the network was asked"):
        run(sys.executable, "-c", ask, where=tmp_path, path=[tmp_path])


@pytest.mark.slow
def test_the_command_runs_from_elsewhere(installed: Path, tmp_path: Path) -> None:
    shown = run(installed / "bin" / "bilevel-sym", "derive", "zoo:scalar", where=tmp_path, path=[installed])
    assert "y*" in shown


@pytest.mark.slow
def test_the_tests_of_the_sdist_run(unpacked: Path) -> None:
    chosen = ["tests/test_paper.py", "bilevel_sym/arithmetic/balls.py", "-n", "0"]
    shown = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, where=unpacked)
    assert re.search(r"\d+ passed", shown)


def test_metadata_says_one_thing_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    version, name = bilevel_sym.__version__, PROJECT["name"]
    assert re.search(rf"^version: {re.escape(version)}$", citation, re.M)
    assert re.search(rf"^title: {name}$", citation, re.M)
    assert re.search(rf"^license: {PROJECT['license']}$", citation, re.M)
    (date,) = re.findall(r'^date-released: "([\d-]+)"$', citation, re.M)
    changes = (ROOT / ".github" / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)", changes, re.M)[:2] == ["Unreleased", f"{version}, {date}"]
    assert f"version = {{{version}}}" in (ROOT / "README.md").read_text(encoding="utf-8")
    urls = PROJECT["urls"]
    assert re.search(rf"^url: {urls['Documentation']}$", citation, re.M)
    assert re.search(rf"^repository-code: {urls['Repository']}$", citation, re.M)


def test_pythons_are_the_same_everywhere() -> None:
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert f"versions=({' '.join(named)})" in (ROOT / ".ci" / "pythons").read_text(encoding="utf-8")
    matrix = ", ".join(f'"{version}"' for version in named)
    assert f"python: [{matrix}]" in (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


def test_every_dependency_has_a_floor_and_no_ceiling() -> None:
    groups = PROJECT["optional-dependencies"].values()
    for wanted in [*PROJECT["dependencies"], *(line for lines in groups for line in lines)]:
        assert re.fullmatch(r"bilevel-sym\[[\w,]+\]|[\w-]+(\[\w+\])?>=[\d.]+", wanted), wanted
