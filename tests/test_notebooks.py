"""The notebooks run from top to bottom, and what is stored in them is fit to publish."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in load(path)["cells"] if cell["cell_type"] == "code"]


def source(cell: dict[str, Any]) -> str:
    """The text of a cell, which is a string or a list of lines."""
    return "".join(cell["source"])


def test_there_are_notebooks() -> None:
    assert "errata" in {path.stem for path in NOTEBOOKS}


@pytest.mark.slow
@each_notebook
def test_it_runs(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join(map(source, code_cells(path))), encoding="utf-8")
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": search}
    run = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stderr == ""


@each_notebook
def test_it_was_run_in_order_and_nothing_failed(path: Path) -> None:
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]


@each_notebook
def test_no_machine_is_in_it(path: Path) -> None:
    notebook = load(path)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    for cell in code_cells(path):
        for output in cell["outputs"]:
            text = json.dumps({**output, "data": {**output.get("data", {}), "image/png": ""}})
            assert not re.search(r"/(home|tmp|work|root|usr|Users|opt)/|[A-Z]:\\\\", text)
    assert not re.search(r"/(home|tmp|work|root|Users)/", json.dumps(notebook["metadata"]))
