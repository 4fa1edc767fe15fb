"""The notebooks run from top to bottom, say again what is stored in them, and hold calls only."""

from __future__ import annotations

import ast
import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from notebook_runner import FOLDER, WIDGET, NotebookFailure, execute, without_widgets

jupytext = pytest.importorskip("jupytext")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LONGEST_FUNCTION, LONGEST_LOOP = 8, 8  # lines
NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def load(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def is_figure(output: Any) -> bool:
    return "image/png" in output.get("data", {})


def said(cell: Any) -> str:
    """All that a cell says in plain text; of a figure nothing."""
    texts = [
        output.text if output.output_type == "stream" else output.data.get("text/plain", "")
        for output in cell.outputs
        if output.output_type != "error" and not is_figure(output)
    ]
    return "\n".join(text.rstrip() for text in texts)


def copied_logic(source: str) -> list[str]:
    """What does not belong in a notebook: classes, long functions and long loops."""
    limits = {ast.ClassDef: 0, ast.FunctionDef: LONGEST_FUNCTION, ast.For: LONGEST_LOOP, ast.While: LONGEST_LOOP}
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt) and type(node) in limits]
    return [
        f"line {node.lineno}: {type(node).__name__}"
        for node in statements
        if (node.end_lineno or node.lineno) - node.lineno + 1 > limits[type(node)]
    ]


def agree(stored: str, fresh: str) -> bool:
    """The same words and whole numbers; other numbers to two digits, as another processor rounds otherwise.

    What is below 1e-9 is rounding, and no more than that is said of it.
    """
    texts = [NUMBER.split(text) for text in (stored, fresh)]
    numbers = [NUMBER.findall(text) for text in (stored, fresh)]
    return texts[0] == texts[1] and all(
        a == b or (re.search("[.e]", a + b) and math.isclose(float(a), float(b), rel_tol=1e-2, abs_tol=1e-9))
        for a, b in zip(*numbers, strict=True)
    )


def test_every_notebook_has_its_source_and_every_source_its_notebook() -> None:
    assert NOTEBOOKS
    assert {path.stem for path in NOTEBOOKS} == {path.stem for path in FOLDER.glob("*.py")}


@each_notebook
def test_source_and_notebook_agree(path: Path) -> None:
    pairs = [
        [(cell.cell_type, cell.source) for cell in notebook.cells]
        for notebook in (jupytext.read(path.with_suffix(".py")), load(path))
    ]
    assert pairs[0] == pairs[1]


@each_notebook
def test_it_was_run_in_order_and_nothing_failed(path: Path) -> None:
    notebook = load(path)
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    bad = [output for output in outputs(notebook) if output.output_type == "error" or output.get("name") == "stderr"]
    assert outputs(notebook)
    assert not bad


@each_notebook
def test_no_machine_is_in_it(path: Path) -> None:
    notebook = load(path)
    assert notebook.metadata.kernelspec.name == "python3"
    for output in outputs(notebook):
        text = json.dumps({**output, "data": {**output.get("data", {}), "image/png": ""}})
        assert not re.search(r"/(home|tmp|work|root|usr|Users|opt)/|[A-Z]:\\\\| at 0x", text)
    assert not re.search(r"/(home|tmp|work|root|Users)/", json.dumps(notebook.metadata))


@each_notebook
def test_no_widget_is_stored(path: Path) -> None:
    assert not [output for output in outputs(load(path)) if WIDGET in output.get("data", {})]


def test_a_widget_leaves_its_picture() -> None:
    data = {"text/plain": "sliders", "image/png": "", WIDGET: {"model_id": "1"}}
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("execute_result", data)])
    kept = without_widgets(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(), cell]))
    assert list(outputs(kept)[0].data) == ["text/plain", "image/png"]


@each_notebook
def test_it_has_pictures_and_each_is_introduced(path: Path) -> None:
    cells = load(path).cells
    drawn = [k for k, cell in enumerate(cells) if cell.cell_type == "code" and any(map(is_figure, cell.outputs))]
    assert sum(is_figure(output) for k in drawn for output in cells[k].outputs) >= 2
    assert not [cells[k].source for k in drawn if k == 0 or cells[k - 1].cell_type != "markdown"]


@each_notebook
def test_it_holds_calls_only(path: Path) -> None:
    found = {cell.source: copied_logic(cell.source) for cell in code_cells(load(path))}
    assert not {source: words for source, words in found.items() if words}


def test_copied_logic_is_seen() -> None:
    body = "".join(f"    a{k} = x\n" for k in range(LONGEST_FUNCTION))
    assert copied_logic(f"def f(x):\n{body}") == ["line 1: FunctionDef"]
    assert copied_logic(f"x = 1\nfor i in x:\n{body}") == ["line 2: For"]
    assert copied_logic("class A:\n    pass") == ["line 1: ClassDef"]
    assert copied_logic("def f(x):\n    return x\nfor i in x:\n    print(i)") == []


@pytest.mark.parametrize(
    ("fresh", "same"),
    [
        ("3 of 4: 0.123", True),
        ("3 of 4: 0.1231", True),
        ("3 of 4: 0.126", False),
        ("2 of 4: 0.123", False),
        ("3 of 4:", False),
        ("3 or 4: 0.123", False),
    ],
)
def test_a_number_that_went_stale_is_seen(fresh: str, same: bool) -> None:
    assert agree("3 of 4: 0.123", fresh) is same


@pytest.mark.parametrize(
    ("stored", "fresh", "same"),
    [("2e-16", "3e-16", True), ("2e-16", "0.0", True), ("2e-06", "3e-06", False), ("0.001", "0.002", False)],
)
def test_rounding_is_not_compared(stored: str, fresh: str, same: bool) -> None:
    assert agree(stored, fresh) is same


@pytest.mark.slow
@each_notebook
def test_it_runs_and_says_what_is_stored(path: Path) -> None:
    stored = load(path)
    fresh = execute(copy.deepcopy(stored))
    for before, after in zip(code_cells(stored), code_cells(fresh), strict=True):
        assert agree(said(before), said(after)), f"the cell says something else than what is stored:\n{before.source}"
    assert [is_figure(output) for output in outputs(fresh)] == [is_figure(output) for output in outputs(stored)]
    loud = [output.text for output in outputs(fresh) if output.get("name") == "stderr"]
    assert not loud


@pytest.mark.slow
@pytest.mark.parametrize(("line", "words"), [("1/0", "ZeroDivisionError"), ("while True: pass", "more than 1 s")])
def test_a_failing_cell_is_shown(line: str, words: str) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"# the culprit\n{line}")])
    with pytest.raises(NotebookFailure, match=rf"{words}(.|\n)*the culprit"):
        execute(notebook, cell_seconds=1 if "while" in line else 60)
