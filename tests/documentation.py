"""Checks of Markdown pages: every fenced block by its language, relative links and their anchors.

Each check raises AssertionError with the page and the line. The ``pycon`` blocks of a page are one doctest, with names in
common; every other block stands alone. (pytest's own collector would also run what stands in docstrings of other
blocks, and wants a blank line before each closing fence.)
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from helpers import THOROUGH

from bilevel_sym import BilevelProblem

ROOT = Path(__file__).resolve().parent.parent
NOT_RUN = ("text", "math", "yaml", "py", "bibtex")  # py: for other libraries, run by tests/test_field.py
FENCE = re.compile(r"^( *)(`{3,}|~{3,}) *([^`]*)$")
LINK = re.compile(
    r"\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)*)\)|(?:src|href|srcset)=\"([^\"]+)\"|^\[[^\]]+\]: (\S+)", re.M
)
SEEN_AS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100", "MPLBACKEND": "Agg", "PYTHONUTF8": "1"}


@dataclass(frozen=True)
class Block:
    """A fenced block; ``words`` are what stands behind the language: ``slow`` for a block that takes seconds."""

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name of the file that a TOML block shows: its first line is ``# toy.toml``."""
        match = re.match(r"# (\S+\.toml)\n", self.text) if self.language == "toml" else None
        return None if match is None else match[1]

    @property
    def wants(self) -> str:
        """The library that a recipe wants (``wants=jaxopt``): ``test_recipes`` runs it where that is installed."""
        return next((word.partition("=")[2] for word in self.words if word.startswith("wants=")), "")

    @property
    def is_signature(self) -> bool:
        """Whether it is how something is called, on a page of the reference: made from the source, and not to be run."""
        return self.language == "python" and self.page.startswith(".github/docs/api/")

    @property
    def has_tests(self) -> bool:
        """Whether it is for pytest, and not a script."""
        return re.search(r"^def test_", self.text, re.M) is not None


def fenced(text: str, page: str) -> list[Block]:
    """All fenced blocks of a page."""
    found: list[Block] = []
    lines = enumerate(text.splitlines(), start=1)
    for number, line in lines:
        if (opening := FENCE.match(line)) is None:
            continue
        body: list[str] = []
        for _, inner in lines:
            if inner.strip().startswith(opening[2]) and not inner.strip().strip(opening[2][0]):
                break
            body.append(inner)
        else:
            raise AssertionError(f"{page}:{number}: the block is not closed")
        language, *words = opening[3].split() or [""]
        content = textwrap.dedent("".join(f"{inner}\n" for inner in body))
        found.append(Block(page, number, language, tuple(words), content))
    return found


def pages() -> list[Path]:
    """The README, and everything in .github."""
    return [ROOT / "README.md", *sorted((ROOT / ".github").rglob("*.md"))]


def blocks_of(path: Path) -> list[Block]:
    return fenced(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())


def check_block(block: Block, folder: Path, files: Mapping[str, str], known: Sequence[str]) -> None:
    """Run, load or parse a block in an empty folder that holds the page's files; ``known`` are the shell commands."""
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    if block.language == "console":
        check_console(block, folder)
    elif block.language == "toml":
        check_toml(block, folder)
    elif block.language == "python":
        (check_tests if block.has_tests else check_script)(block, folder)
    elif block.language == "json":
        json.loads(block.text)
    elif block.language == "sh":
        unknown = [line for line in shell_lines(block.text) if line not in known]
        assert not unknown, f"{block}: nobody runs {unknown}"
    else:
        assert block.language in NOT_RUN, f"{block}: the language {block.language!r} is not known"


# ---- what runs ------------------------------------------------------------------------------------------------


def check_examples(blocks: Sequence[Block], folder: Path) -> None:
    """The ``pycon`` blocks of a page, from top to bottom, print what they show."""
    examples: list[doctest.Example] = []
    for block in blocks:
        found = doctest.DocTestParser().get_examples(block.text, str(block))
        assert block.text.startswith(">>> "), f"{block}: an example begins with >>>"
        for example in found:
            example.lineno += block.line
        examples += found
    page, said = blocks[0].page, io.StringIO()
    test = doctest.DocTest(examples, {"__name__": "__main__"}, page, page, 0, None)
    with contextlib.chdir(folder):
        failed, _ = doctest.DocTestRunner(verbose=False).run(test, out=said.write)
    assert not failed, said.getvalue()


def check_console(block: Block, folder: Path) -> None:
    """Each ``$ command`` prints, on standard output and error together, what stands below it."""
    exit_code, steps = 0, list(console_steps(block))
    assert steps, f"{block}: there is no command"
    for command, want in steps:
        if command == "echo $?":
            got = f"{exit_code}\n"
        else:
            done = run_command(shlex.split(command), folder, str(block))
            got, exit_code = done.stdout, done.returncode
        same = doctest.OutputChecker().check_output(want, got, SEEN_AS)
        assert same, f"{block}: $ {command}\nshown:\n{want}\nprinted:\n{got}"


def console_steps(block: Block) -> Iterator[tuple[str, str]]:
    """Commands, a trailing backslash joined with the next line, and what is shown below each."""
    text = block.text.replace("\\\n", " ")
    head, *parts = re.split(r"^\$ ", text, flags=re.M)
    assert not head.strip(), f"{block}: output without a command: {head!r}"
    for part in parts:
        command, _, want = part.partition("\n")
        yield command.strip(), want


def run_command(words: list[str], folder: Path, where: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = words
    if program == "cat":
        texts = [(folder / name).read_text(encoding="utf-8") for name in arguments]
        return subprocess.CompletedProcess(words, 0, "".join(texts))
    assert program == "bilevel-sym", f"{where}: {program!r} is not a command that is run here"
    return run_python(["-W", "error", "-m", "bilevel_sym", *arguments], folder)


def run_python(arguments: Sequence[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**os.environ, **ENVIRONMENT, **more}, check=False,
        text=True, encoding="utf-8", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def check_toml(block: Block, folder: Path) -> None:
    """A problem file loads; any other is TOML."""
    if "f" in tomllib.loads(block.text):
        path = folder / (block.file or "problem.toml")
        path.write_text(block.text, encoding="utf-8")
        BilevelProblem.load(path)


def check_script(block: Block, folder: Path) -> None:
    """It runs alone, in the folder."""
    path = folder / "script.py"
    path.write_text(block.text, encoding="utf-8")
    try:
        with contextlib.chdir(folder):
            runpy.run_path(str(path))
    except Exception as error:
        raise AssertionError(f"{block}: {type(error).__name__}: {error}") from error


def check_tests(block: Block, folder: Path) -> None:
    """Its tests pass, in a session of pytest of their own; a few problems stand for all, unless thorough."""
    path = folder / "test_example.py"
    path.write_text(block.text, encoding="utf-8")
    options = [
        "-q",
        "-p",
        "bilevel_sym.plugins.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "--strict-markers",
        "-W",
        "error",
        *([] if THOROUGH else ["-k", "not [ or scalar or general or isotropic"]),
    ]
    done = run_python(["-m", "pytest", *options, path.name], folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 0, f"{block}:\n{done.stdout}"


def shell_lines(text: str) -> list[str]:
    """The commands of a block without comments."""
    lines = (re.sub(r"(^|\s+)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


# ---- links ----------------------------------------------------------------------------------------------------


def prose(text: str) -> str:
    """The page without its blocks and without code in a line."""
    kept, closing = [], ""
    for line in text.splitlines():
        fence = FENCE.match(line)
        if closing:
            closing = "" if line.strip() == closing else closing
        elif fence is not None:
            closing = fence[2]
        else:
            kept.append(line)
    return "\n".join(kept)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page, and those set by hand."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", prose(text), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        if found[slug]:
            found[f"{slug}-{found[slug]}"] = 0
    return set(found) | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def broken_links(text: str, path: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    targets = ("".join(groups) for groups in LINK.findall(re.sub(r"`[^`\n]*`", "", prose(text))))
    return [target for target in targets if not re.match(r"[a-z]+:", target) and not _leads(target, text, path)]


def _leads(target: str, text: str, path: Path) -> bool:
    name, _, anchor = unquote(target).partition("#")
    there = path if not name else path.parent / name
    if not there.exists() or (ROOT in path.parents and ROOT not in there.resolve().parents):
        return False
    if not anchor:
        return True
    return anchor in anchors(text if there == path else there.read_text(encoding="utf-8"))
