"""Where another package has the name ``verify``: nothing of it is run by us, and nothing of ours stops anybody."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.machinery import BuiltinImporter
from pathlib import Path

import pytest

import bilevel_sym
import verify
from bilevel_sym.errors import BilevelError, ForeignPackage
from bilevel_sym.system.verifier import MARK, intruder, verifier

ROOT = Path(__file__).resolve().parent.parent
RUN = "raise SystemExit('the local file was run')\n"
PLACES = ("verify.py", "verify/__init__.py")
ENTRY_POINTS = """[hypothesis]
bilevel-sym = bilevel_sym.plugins.hypothesis_plugin:register
[pytest11]
bilevel-sym = bilevel_sym.plugins.pytest_plugin
"""


def test_it_is_one_module_under_two_names() -> None:
    assert bilevel_sym.verify is verify
    assert verifier() is verify
    assert "verify" in dir(bilevel_sym)
    assert "verify" not in bilevel_sym.__all__  # a star would fail beside an intruder
    assert MARK in Path(verify.__file__).read_text(encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """What an installation adds to the folder of packages, as far as others see it."""
    folder = tmp_path / "site"
    info = folder / "bilevel_sym-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bilevel-sym\nVersion: 0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (info / "RECORD").write_text("")
    return folder


@pytest.fixture
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Somebody's project with a ``verify`` of its own."""
    folder = tmp_path / "project"
    place = folder / request.param
    place.parent.mkdir(parents=True)
    place.write_text(RUN)
    (folder / "test_mine.py").write_text(
        "from hypothesis import given, strategies as st\n@given(st.integers())\ndef test_mine(k):\n    assert k == k\n"
    )
    return folder


def run(*words: str, where: Path, path: list[Path]) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, *words], cwd=where, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("project", PLACES, indirect=True)
@pytest.mark.parametrize("options", [(), ("-W", "error")])
@pytest.mark.slow
def test_a_foreign_test_run_goes_on_with_one_warning(project: Path, site: Path, options: tuple[str, ...]) -> None:
    alone = ("-p", "no:cacheprovider", "-p", "no:xdist", *options)
    done = run("-m", "pytest", *alone, where=project, path=[ROOT, site])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert done.stdout.count("another package stands where bilevel-sym has its 'verify'") == (not options)


TOLD = """
import hypothesis.strategies as st
import bilevel_sym
from bilevel_sym import BilevelProblem
try:
    from bilevel_sym import verify
except bilevel_sym.errors.ForeignPackage as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("project", PLACES, indirect=True)
def test_the_intruder_is_named_and_not_run(project: Path, site: Path) -> None:
    done = run("-c", TOLD, where=project, path=[ROOT, site])
    assert done.returncode == 0, done.stderr
    first, hint = done.stdout.splitlines()
    assert str(project / "verify") in first
    assert hint.startswith("try: rename it")
    assert done.stderr.count("Hypothesis is not told about bilevel problems") == 1


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("project", PLACES, indirect=True)
def test_the_command_line_takes_its_own(project: Path, site: Path) -> None:
    done = run(
        "-m", "bilevel_sym", "verify", "zoo:scalar", "--claims", "grad-Lipschitz", where=project, path=[ROOT, site]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "HOLDS" in done.stdout
    found_first = run("-m", "bilevel_sym", "verify", "zoo:scalar", where=ROOT.parent, path=[project, ROOT, site])
    assert found_first.returncode == 2
    assert "another package stands where bilevel-sym has its 'verify'" in found_first.stderr
    assert "the local file was run" not in found_first.stderr


@pytest.mark.slow
def test_a_test_that_wants_our_fixture_is_told(tmp_path: Path, site: Path) -> None:
    (tmp_path / "verify.py").write_text(RUN)
    (tmp_path / "test_ours.py").write_text("def test_it(bilevel_problem): pass\n")
    alone = ("-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir=.")  # whatever lies in a folder above
    done = run("-m", "pytest", *alone, where=tmp_path, path=[ROOT, site])
    assert done.returncode == 2
    assert "in test_ours.py::test_it: another package stands where" in done.stdout


def test_what_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", {name: m for name, m in sys.modules.items() if not name.startswith("verify")})
    assert intruder() is None
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", [BuiltinImporter])
    with pytest.raises(ForeignPackage, match="is not there") as raised:
        verifier("runner")
    assert isinstance(raised.value, BilevelError)
    assert "pip install" in str(raised.value)


@pytest.mark.slow
def test_hypothesis_costs_nothing_of_ours(site: Path) -> None:
    code = "import sys, hypothesis.strategies; print(*sys.modules)"
    loaded = run("-c", code, where=site, path=[ROOT, site]).stdout.split()
    assert "bilevel_sym.plugins.hypothesis_plugin" in loaded
    assert {"sympy", "numpy", "verify", "bilevel_sym.problem.problem"}.isdisjoint(loaded)


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("first", ["hypothesis", "bilevel_sym.problem.problem"])
def test_problems_are_drawn_whichever_comes_first(site: Path, first: str) -> None:
    code = f"import {first}, hypothesis.strategies as st; from bilevel_sym import MinimaxProblem as M; from hypothesis import find\n"
    code += "print(type(find(st.from_type(M), lambda problem: True)).__name__)"
    assert run("-c", code, where=site, path=[ROOT, site]).stdout.strip() == "MinimaxProblem"


def stand_in(folder: Path) -> Path:
    """A wheel of another distribution that has our name."""
    wheel = folder / "verify-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("verify/__init__.py", RUN)
        archive.writestr("verify-9.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: verify\nVersion: 9.9\n")
        archive.writestr("verify-9.9.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("verify-9.9.dist-info/RECORD", "verify/__init__.py,,\nverify-9.9.dist-info/RECORD,,\n")
    return wheel


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("order", ["before", "after"])
def test_a_distribution_of_that_name(tmp_path: Path, order: str) -> None:
    (built := tmp_path / "dist").mkdir()
    assert run("-m", "hatchling", "build", "-t", "wheel", "-d", str(built), where=ROOT, path=[]).returncode == 0
    wheels = [stand_in(tmp_path), *built.glob("*.whl")]
    for wheel in wheels if order == "before" else reversed(wheels):
        words = ("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--ignore-installed", "--prefix")
        done = run(*words, str(tmp_path / "root"), str(wheel), where=tmp_path, path=[])
        assert done.returncode == 0, done.stderr
    (site,) = (tmp_path / "root").rglob("site-packages")
    told = run("-c", TOLD, where=tmp_path, path=[site])
    assert told.returncode == 0, told.stderr
    if order == "before":
        assert told.stdout == ""
    else:
        assert "of the distribution 'verify'" in told.stdout
        assert "pip uninstall verify; pip install --force-reinstall --no-deps bilevel-sym" in told.stdout
    (tmp_path / "test_theirs.py").write_text("def test_it(): pass\n")
    session = run("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", where=tmp_path, path=[site])
    assert session.returncode == 0, session.stdout + session.stderr
