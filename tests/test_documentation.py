"""Every snippet of the README and of the pages in .github runs, and shows what it prints; links lead somewhere."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from documentation import (
    ROOT,
    Block,
    anchors,
    blocks_of,
    broken_links,
    check_block,
    check_examples,
    fenced,
    pages,
)

PAGES = pages()
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())

# run by .ci/run and by the workflows, or too long for a test
SHELL = (
    'python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/bilevel-sym derive zoo:scalar',
    'python3 -m venv .venv && .venv/bin/pip install -q -e ".[test,fast,notebook,bench,cluster]" && .venv/bin/python -m pytest',
    'python3 -m venv .venv && .venv/bin/pip install -q -e ".[bench]"',
    ".venv/bin/python -m benchmarks.kernels",
    ".venv/bin/python -m benchmarks.certificates",
    ".venv/bin/python -m benchmarks.array_certificates",
    ".venv/bin/python -m benchmarks.certify",
    ".venv/bin/python -m benchmarks.solvers",
    ".venv/bin/python -m benchmarks.gallery",
    ".venv/bin/python -m benchmarks.planted",
    ".venv/bin/python -m benchmarks.field",
    ".venv/bin/python -m benchmarks.strategies",
    ".venv/bin/python -m benchmarks.mutants",
    'python3 -m venv .venv && .venv/bin/pip install -q -e ".[test,fast,notebook,bench,cluster,lint]"',
    '.venv/bin/python -m pytest -m "not slow"',
    ".venv/bin/python -m pytest -m long",
    ".ci/run",
    ".ci/lint",
    ".ci/pythons",
    ".ci/processors",
    ".ci/load",
    ".ci/lowest",
    ".ci/site",
    ".ci/browser",
    ".ci/pyodide",
    "bilevel-sym report zoo:saddle --out report.html",
    "bilevel-sym check mine_jaxopt:with_jaxopt --problem zoo:ridge --generated 20 --digits 8",
)  # fmt: skip


def is_slow(block: Block) -> bool:
    """A process a command takes a second; a page says of its examples that they take seconds."""
    return block.language in ("console", "python") or "slow" in block.words


def cases() -> list[object]:
    """All blocks that stand alone, each with the files of its page."""
    found: list[object] = []
    for path in PAGES:
        blocks = blocks_of(path)
        files = {block.file: block.text for block in blocks if block.file is not None}
        found += [
            pytest.param(block, files, id=str(block), marks=[pytest.mark.slow] * is_slow(block))
            for block in blocks
            if block.language != "pycon" and not block.is_signature and not block.wants
        ]
    return found


def pages_with_examples() -> list[object]:
    """The pycon blocks of each page but the reference's, which ``test_reference`` runs, each alone."""
    written = [path for path in PAGES if path.parent.name != "api"]
    chosen = {path: [block for block in blocks_of(path) if block.language == "pycon"] for path in written}
    return [
        pytest.param(
            blocks,
            id=blocks[0].page,
            marks=[pytest.mark.slow] * any(map(is_slow, blocks)),
        )
        for blocks in chosen.values()
        if blocks
    ]


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")


@pytest.mark.slow
@pytest.mark.parametrize("blocks", pages_with_examples())
def test_the_examples_of_a_page_print_what_they_show(blocks: list[Block], tmp_path: Path) -> None:
    check_examples(blocks, tmp_path)


@pytest.mark.parametrize(("block", "files"), cases())
def test_the_block_is_as_it_says(block: Block, files: dict[str, str], tmp_path: Path) -> None:
    check_block(block, tmp_path, files, SHELL)


@each_page
def test_its_links_lead_somewhere(path: Path) -> None:
    assert not broken_links(path.read_text(encoding="utf-8"), path)


def test_the_scripts_of_the_commands_are_there() -> None:
    modules = re.findall(r"-m (benchmarks\.\w+)", "\n".join(SHELL))
    scripts = [f"{module.replace('.', '/').replace('/field', '/field/__main__')}.py" for module in modules] + [
        c for c in SHELL if c.startswith(".ci/")
    ]
    assert len(scripts) > 5
    assert not [script for script in scripts if not (ROOT / script).is_file()]


@pytest.mark.parametrize("module", ["bilevel_sym.plotting", "verify.plotting"])
def test_every_plot_is_on_the_page_of_plots(module: str) -> None:
    page = (ROOT / ".github" / "docs" / "plots.md").read_text(encoding="utf-8")
    names = [name for name in importlib.import_module(module).__all__ if name.startswith("plot_")]
    assert names
    assert not [name for name in names if f"`{name}" not in page]


# ---- the checks can fail --------------------------------------------------------------------------------------

PROBLEM = 'x = ["x"]\ny = ["y"]\nf = "x*y"\ng = "y**2/2 - x*y"\n'


def checked(language: str, text: str, folder: Path, **files: str) -> None:
    (block,) = fenced(f"```{language}\n{text}\n```\n", "page.md")
    check_block(block, folder, {f"{name}.toml": content for name, content in files.items()}, SHELL)


RIGHT = {
    "console": ("$ cat toy.toml\nx = ...\n...\n$ echo $?\n0", "$ cat toy.toml\nz = ...\n...\n"),
    "toml": (PROBLEM, PROBLEM.replace("x*y", "x*z")),
    "toml ": ("[tool.x]\na = 1", "[tool.x\n"),
    "json": ('{"a": 1}', "{'a': 1}"),
    "python": ("from pathlib import Path\nassert Path('toy.toml').exists()", "assert False"),
    "python ": ("def test_it():\n    assert True", "def test_it():\n    assert False"),
    "sh": (f"{SHELL[0]}  # why", "rm -r ."),
    "text": ("anything", None),
    "bibtex": ("graph LR", None),
}  # fmt: skip


@pytest.mark.parametrize("language", [pytest.param(key, id=f"{key.strip()}-{k}") for k, key in enumerate(RIGHT)])
def test_a_right_block_passes_and_a_planted_defect_does_not(language: str, tmp_path: Path) -> None:
    right, wrong = RIGHT[language]
    checked(language, right, tmp_path, toy=PROBLEM)
    if wrong is not None:
        with pytest.raises((AssertionError, ValueError)):
            checked(language, wrong, tmp_path, toy=PROBLEM)


@pytest.mark.parametrize("language", ["", "bash", "zsh", "console"])
def test_an_unknown_language_and_an_empty_console_fail(language: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        checked(language, "", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shown", "complaint"),
    [
        ("$ cat toy.toml\nno such output", "printed:"),
        ("$ bilevel-sym derive \\\n  toy.toml\nlower level: ...\n$ echo $?\n1", r"echo \$\?\nshown:\n1\n\nprinted:\n0"),
        ("$ ls", "is not a command"),
        ("2\n$ cat toy.toml", "without a command"),
    ],
)
def test_a_console_shows_what_is_printed_and_the_exit_code(shown: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=complaint):
        checked("console", shown, tmp_path, toy=PROBLEM)


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        (">>> a + 1\n3", "Expected:\n    3\nGot:\n    2"),
        (">>> a + 1", "Expected nothing\nGot:\n    2"),
        (">>> b", "NameError: name 'b' is not defined"),
        ("1 + 1", "begins with >>>"),
    ],
)
def test_examples_of_a_page_have_names_in_common_and_can_fail(second: str, complaint: str, tmp_path: Path) -> None:
    page = "```pycon\n>>> a = 1\n```\n\n```pycon\n{}\n```\n"
    check_examples(fenced(page.format(">>> a + 1\n2"), "page.md"), tmp_path)
    with pytest.raises(AssertionError) as raised:
        check_examples(fenced(page.format(second), "page.md"), tmp_path)
    assert complaint in str(raised.value)
    assert "page.md" in str(raised.value)
    assert "line 6" in str(raised.value) or "page.md:5" in str(raised.value)


def test_fences_are_read_as_they_stand() -> None:
    text = "a\n\n- b\n  ```pycon slow\n  >>> 1\n  1\n  ```\n\n````text\n```\n````\n"
    first, second = fenced(text, "page.md")
    assert (first.language, first.words, first.line, first.text) == ("pycon", ("slow",), 4, ">>> 1\n1\n")
    assert second.text == "```\n"
    with pytest.raises(AssertionError, match="not closed"):
        fenced("```text\n", "page.md")


def test_links_and_anchors(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = (
        "# The `y*` page: a first\n\n## Two\n\n## Two\n\n```text\n# not a heading [a](gone.md)\n```\n`[a](gone.md)`\n"
    )
    assert anchors(text) == {"the-y-page-a-first", "two", "two-1"}
    page.write_text(text, encoding="utf-8")
    good = "[a](page.md) [b](page.md#two-1) [c](#two) [d](https://example.org/x) ![e](page.md)\n"
    assert broken_links(text + good, page) == []
    (tmp_path / "two words.md").write_text("", encoding="utf-8")
    assert broken_links("[a](two%20words.md)\n", page) == []
    assert broken_links("[a](LICENSE) [b](..)\n", ROOT / "README.md") == [".."]  # GitHub knows nothing beside the root
    bad = '[a](gone.md) [b](page.md#three) [c](#not-a-heading) <img src="gone.png">\n[d]: gone.svg\n'
    assert broken_links(text + bad, page) == [
        "gone.md", "page.md#three", "#not-a-heading", "gone.png", "gone.svg"
    ]  # fmt: skip
