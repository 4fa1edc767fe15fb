"""What numba compiles: in one step, announced where a person reads, beforehand by one command, and then no more."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bilevel_sym.cli import main

pytest.importorskip("numba")
from bilevel_sym.kernels import compilation

ROOT = Path(__file__).resolve().parent.parent
ASKS = "from bilevel_sym.kernels.compilation import is_compiled; print(is_compiled())"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Cell(io.StringIO):
    """The output of a notebook's cell, which is no terminal."""


Cell.__module__ = "ipykernel.iostream"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nothing is compiled yet, and compiling is only noted."""
    done: list[str] = []
    monkeypatch.setattr(compilation, "is_compiled", lambda: False)
    monkeypatch.setattr(compilation, "compile_all", lambda: done.append("compiled"))
    return done


@pytest.mark.parametrize("stream", [Terminal, Cell])
def test_it_is_announced_where_a_person_reads(
    monkeypatch: pytest.MonkeyPatch, steps: list[str], stream: type[io.StringIO]
) -> None:
    seen = stream()
    monkeypatch.setattr(sys, "stderr", seen)
    compilation.make_ready()
    first, last = seen.getvalue().replace("\r", "").splitlines()
    assert "once per installation: half a minute to two minutes" in first
    assert "bilevel-sym compile" in first
    assert last == "bilevel-sym: compiled in 0 s"
    assert steps == ["compiled"]


def test_nothing_is_said_where_nobody_reads(monkeypatch: pytest.MonkeyPatch, steps: list[str]) -> None:
    seen = io.StringIO()
    for stream in (seen, None):
        monkeypatch.setattr(sys, "stderr", stream)
        compilation.make_ready()
    assert seen.getvalue() == ""
    assert steps == ["compiled", "compiled"]


def test_nothing_is_said_where_nothing_is_to_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compilation.make_ready()
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    monkeypatch.setattr(compilation, "compile_all", lambda: pytest.fail("it is all there"))
    compilation.make_ready()
    assert seen.getvalue() == ""


def test_where_nothing_can_be_kept_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that is not there, or that cannot be read: what is loaded counts."""
    compilation.compile_all()
    monkeypatch.setattr(compilation, "_cached", lambda function, processor: 0)
    assert compilation.is_compiled()


def run(*words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, cwd=ROOT,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.slow
def test_an_empty_cache_is_seen(tmp_path: Path) -> None:
    assert run("-c", ASKS, NUMBA_CACHE_DIR=str(tmp_path)) == "False"


@pytest.mark.slow
def test_code_for_another_processor_does_not_count() -> None:
    compilation.make_ready()
    assert run("-c", ASKS) == "True"
    name = "x86-64" if os.environ.get("NUMBA_CPU_NAME") == "generic" else "generic"
    assert run("-c", ASKS, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES="") == "False"


def test_the_command_says_where_it_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    compilation.make_ready()
    assert main(["compile"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "everything is compiled already",
        f"kept in {compilation.cache_folder()}",
    ]
    folder = compilation.cache_folder()
    assert folder is not None
    assert list(folder.rglob("trajectories.advance*.nbc"))


def test_the_command_compiles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], steps: list[str]
) -> None:
    assert main(["compile"]) == 0
    assert steps == ["compiled"]
    assert capsys.readouterr().out.startswith("compiled in 0 s\nkept in ")


def test_the_command_only_tells_where(capsys: pytest.CaptureFixture[str], steps: list[str]) -> None:
    assert main(["compile", "--where"]) == 0
    assert steps == []
    assert capsys.readouterr().out.startswith("not everything is compiled yet\nkept in ")


def test_the_command_without_numba(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "numba" else find(name, *more))
    assert main(["compile"]) == 2
    assert "numba is not installed" in capsys.readouterr().err


WORK = """
from numba.core import event

compiled = []


class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func.__qualname__)

    def on_end(self, event):
        pass


event.register("numba:compile", Listener())

import numpy as np

from bilevel_sym import AID, Descent, GDmax, Perturbed, StocBiO, StochasticProblem, solve, zoo

rng = np.random.default_rng(0)
for name in ("scalar", "logistic", "minimax_nash"):
    problem = zoo.get(name).problem
    for shape in ((), (2,), (40,), (3, 700)):
        x = 0.1 * rng.normal(size=(*shape, problem.d))
        for quantity in ("phi", "grad_phi", "hess_phi", "y_star"):
            getattr(problem.kernels, quantity)(x)
    estimator = GDmax(D=2, tau=0.01) if name == "minimax_nash" else AID(D=2, N=2, tau=0.01)
    for algorithm in (Descent(estimator, eta=0.01), Perturbed(estimator, eta=0.01, eps=0.1, r=0.1, T_escape=3)):
        for count in (1, 3, 40):
            for record in ("all", "last"):
                solve(problem, algorithm, x0=0.1 * rng.normal(size=(count, problem.d)), steps=30, record=record)
rows = {"e": rng.normal(size=(8, 3)), "d": rng.normal(size=8)}
problem = StochasticProblem("y @ y + x @ y", "(e @ y - d)**2/2 + y @ y/2 - x @ y", "x[n]", "y[n]", "", "e[n] d", {}, rows)
for size in (3, 20):
    for replacement in (True, False)[: 1 + (size < 8)]:
        few = dict(D=2, Q=2, S=3, alpha=0.01, beta=0.01, eta_neumann=0.01, batch_f=1, replacement=replacement)
        solve(problem, StocBiO(batch_g=size, **few), np.zeros((2, 3)), steps=2)
print(compiled)
"""


@pytest.mark.long
def test_after_the_command_nothing_is_compiled_any_more(tmp_path: Path) -> None:
    first, kept = run("-m", "bilevel_sym", "compile", NUMBA_CACHE_DIR=str(tmp_path)).splitlines()
    assert first.startswith("compiled in ")
    assert kept.startswith(f"kept in {tmp_path}")
    assert run("-c", WORK, NUMBA_CACHE_DIR=str(tmp_path)) == "[]"


@pytest.mark.slow
def test_where_all_is_compiled_nothing_is_any_more() -> None:
    """``.ci/processors`` runs it by its id, with the command before it and a folder that was empty before that."""
    run("-m", "bilevel_sym", "compile")
    assert run("-c", WORK) == "[]"


@pytest.mark.slow
def test_a_notebook_shows_it() -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    from notebook_runner import execute

    cell = nbformat.v4.new_code_cell(
        "import bilevel_sym.kernels.compilation as c\n"
        "c.is_compiled, c.compile_all = lambda: False, lambda: None\n"
        "c.make_ready()"
    )
    (output,) = execute(nbformat.v4.new_notebook(cells=[cell])).cells[0].outputs
    assert output.name == "stderr"
    assert "once per installation" in output.text
