"""Runs the notebooks. ``python tests/notebook_runner.py 01_quick_start ...`` writes .ipynb files from their sources."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
CELL_SECONDS = 120
WIDGET = "application/vnd.jupyter.widget-view+json"


class NotebookFailure(Exception):
    """A cell that failed, with its source and its last words."""


def execute(notebook: Any, *, cell_seconds: int = CELL_SECONDS) -> Any:
    """The notebook with fresh outputs, run by a real kernel in the folder of the notebooks."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    _compile_first()  # or else the first cell that needs it would say so
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": search}
    environment.pop("MPLBACKEND", None)  # figures go into the notebook
    client = NotebookClient(
        notebook,
        timeout=cell_seconds,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    running: list[Any] = []
    client.on_cell_start = lambda cell, cell_index: running.append(cell)
    try:
        client.execute(env=environment)
    except CellExecutionError as error:
        raise NotebookFailure(f"{error.ename}: {error.evalue}\nin the cell\n{running[-1].source}") from None
    except CellTimeoutError:
        raise NotebookFailure(f"more than {cell_seconds} s went into the cell\n{running[-1].source}") from None
    return notebook


def _compile_first() -> None:
    if importlib.util.find_spec("numba") is not None:
        from bilevel_sym.kernels.compilation import make_ready

        make_ready()


def without_widgets(notebook: Any) -> Any:
    """The same notebook, where sliders and their like are the pictures that stand for them: nothing moves them later."""
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        output.get("data", {}).pop(WIDGET, None)
    return notebook


def rebuild(source: Path) -> Path:
    """Write the .ipynb of a percent script, with outputs; the same source gives the same names to its cells."""
    import jupytext

    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells, 1):
        cell["id"] = f"cell-{number:02}"
    without_widgets(execute(notebook))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook["metadata"] = {"kernelspec": kernel, "language_info": {"name": "python"}}
    target = source.with_suffix(".ipynb")
    target.write_text(jupytext.writes(notebook, "ipynb"), encoding="utf-8")
    return target


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(rebuild(FOLDER / f"{name}.py").relative_to(ROOT))
