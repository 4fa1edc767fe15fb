"""The recipes of the page "Your library", as the page has them; and the action, whose steps run here as GitHub runs them."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from documentation import ROOT, Block, blocks_of

PAGE = ROOT / ".github" / "docs" / "recipes.md"
ACTION = ROOT / ".github" / "actions" / "check" / "action.yml"
BLOCKS = {block.text.split()[1]: block for block in blocks_of(PAGE) if block.wants}
HYPERGRAD = '''
import torch


def CG(params, hparams, K, fp_map, outer_loss, tol=1e-14, set_grad=True):
    """The interface of hypertorch: (I - J) v = f_y by K steps of conjugate gradients, J that of the map."""
    w, moved = params[0], fp_map(params, hparams)[0]
    f_w, f_h = torch.autograd.grad(outer_loss(params, hparams), (w, hparams[0]), allow_unused=True)
    apply = lambda p: p - torch.autograd.grad(moved, w, p, retain_graph=True)[0]
    v, r = torch.zeros_like(w), torch.zeros_like(w) if f_w is None else f_w
    p, rr = r, r @ r
    for _ in range(K):
        if rr <= tol**2:
            break
        q = apply(p)
        a = rr / (p @ q)
        v, r = v + a * p, r - a * q
        p, rr = r + (r @ r) / rr * p, r @ r
    through = torch.autograd.grad(moved, hparams[0], v, allow_unused=True)[0]
    return [sum((part for part in (f_h, through) if part is not None), torch.zeros_like(hparams[0]))]
'''


def adapters(block: Block) -> list[ast.FunctionDef]:
    return [
        node
        for node in ast.parse(block.text).body
        if isinstance(node, ast.FunctionDef) and [a.arg for a in node.args.args] == ["problem"]
    ]


RECIPES = [
    pytest.param(file, node.name, id=node.name, marks=[pytest.mark.slow])
    for file, block in BLOCKS.items()
    for node in adapters(block)
]


def command(*words: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1", **more}
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def test_the_page_has_the_libraries() -> None:
    assert {block.wants for block in BLOCKS.values()} == {"jaxopt", "optimistix", "torch", "torchopt", "hypergrad"}
    assert len(RECIPES) >= 6


@pytest.mark.parametrize("file", BLOCKS)
def test_an_adapter_has_six_lines_at_most(file: str) -> None:
    for node in adapters(BLOCKS[file]):
        lines = BLOCKS[file].text.splitlines()[node.body[0].lineno - 1 : node.end_lineno]
        assert sum(bool(line.strip()) for line in lines) <= 6, node.name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All the recipes, and a stand-in for hypertorch where it is not installed."""
    for file, block in BLOCKS.items():
        (tmp_path / file).write_text(block.text)
    if importlib.util.find_spec("hypergrad") is None:
        (tmp_path / "hypergrad.py").write_text(HYPERGRAD)
    return tmp_path


@pytest.mark.parametrize(("file", "name"), RECIPES)
def test_a_recipe_is_right_and_a_changed_one_is_not(file: str, name: str, folder: Path) -> None:
    wanted = {"hypergrad": "torch"}.get(BLOCKS[file].wants, BLOCKS[file].wants)
    for module in {wanted, *(["torch"] if "torch" in wanted else [])}:
        pytest.importorskip(module)
    problems = ("--problem", "zoo:ridge", "--effort", "0.03")
    check = (sys.executable, "-m", "bilevel_sym", "check")
    done = command(*check, f"{file[:-3]}:{name}", *problems, "--digits", "8", folder=folder)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["1 problems: 1 right"]), done.stdout + done.stderr
    (folder / "off.py").write_text(
        f"import numpy as np\nfrom {file[:-3]} import {name} as right\n"
        "def wrong(problem):\n    made = right(problem)\n    def off(x):\n        got = made(x)\n"
        "        got = got['grad'] if isinstance(got, dict) else got\n"
        "        got = got[0] if isinstance(got, (list, tuple)) else got\n        return np.asarray(got) * (1 + 1e-5)\n"
        "    return off\n"
    )
    done = command(*check, "off:wrong", *problems, "--digits", "8", folder=folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 problems: 1 factor" in done.stdout


# ---- the action


def action() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    loaded = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_what_the_action_uses_is_pinned_and_what_it_takes_is_on_the_page() -> None:
    loaded = action()
    assert loaded["runs"]["using"] == "composite"
    used = [step["uses"] for step in loaded["runs"]["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) for name in used)
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for name in loaded["inputs"])
    asked = set(re.findall(r"inputs\.([\w-]+)", ACTION.read_text(encoding="utf-8")))
    assert asked == set(loaded["inputs"])
    for step in loaded["runs"][
        "steps"
    ]:  # what a user gives is handed over in the environment, never as part of a script
        assert "${{" not in step.get("run", "")
        assert "run" not in step or step["shell"] == "bash"


def test_the_commands_of_its_steps_exist() -> None:
    known = {"read", "for", "done", "exit", "wrong=0", "mkdir", "cat", "python", "bilevel-sym"}
    for step in action()["runs"]["steps"]:
        lines = [line.split()[0] for line in step.get("run", "").splitlines()]
        assert set(lines) <= known
        assert all(shutil.which(name) for name in {"mkdir", "cat"}.intersection(lines))


@pytest.mark.slow
def test_its_steps_run_as_they_stand(tmp_path: Path) -> None:
    """The step that checks, under the options that GitHub gives bash; its commands are those of this interpreter."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    (tmp_path / "mine.py").write_text(
        "def right(problem):\n    return problem.kernels.grad_phi\n"
        "def wrong(problem):\n    return lambda x: -problem.kernels.grad_phi(x)\n"
    )
    (tmp_path / "bin").mkdir()
    for name, module in (("bilevel-sym", "bilevel_sym"),):
        tool = tmp_path / "bin" / name
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        tool.chmod(0o755)
    script = next(step["run"] for step in action()["runs"]["steps"] if step.get("name") == "Check")
    (tmp_path / "step.sh").write_text(script)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for functions, code in (("mine:right", 0), ("mine:wrong mine:right", 1)):
        more = {"FUNCTIONS": functions, "OPTIONS": "--problem zoo:scalar", "JUNIT": "out", "PATH": path}
        done = command(bash, "--noprofile", "--norc", "-eo", "pipefail", "step.sh", folder=tmp_path, **more)
        assert done.returncode == code, done.stdout + done.stderr
    suites = {file.name: ElementTree.parse(file).getroot() for file in (tmp_path / "out").iterdir()}
    assert {name: suite.get("failures") for name, suite in suites.items()} == {
        "mine-right.xml": "0",
        "mine-wrong.xml": "1",
    }
