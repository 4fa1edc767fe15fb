"""What installed packages add: the package of .github/docs/extending.md, and packages that are broken on purpose."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from documentation import ROOT, blocks_of

from bilevel_sym import errors, verify, zoo
from bilevel_sym.cli import main
from bilevel_sym.cli.solve_run import SolveRun
from bilevel_sym.solvers.named import ALGORITHMS, ESTIMATORS
from bilevel_sym.system import extensions, progress
from verify import theory

CHAPTER = "## A package that adds to the toolkit"
SHOUTING = "raise RuntimeError('too loud')\n"


def page_blocks(language: str) -> list[str]:
    """The blocks of the chapter in one language."""
    page = ROOT / ".github" / "docs" / "extending.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    start = lines.index(CHAPTER)
    end = next(k for k in range(start + 1, len(lines)) if lines[k].startswith("## "))
    return [b.text for b in blocks_of(page) if start < b.line <= end and b.language == language]


def install(folder: Path, name: str, module: str, points: Mapping[str, Mapping[str, str]]) -> None:
    """What an installer leaves: a module, and the metadata of a distribution of one file."""
    (folder / f"{name.replace('-', '_')}.py").write_text(module, encoding="utf-8")
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    groups = (f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in found.items()) for group, found in points.items())
    (metadata / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")


def install_the_page(folder: Path) -> None:
    """The package of the page; the line that prints is for the page alone."""
    (module,), (project,) = page_blocks("python"), page_blocks("toml")
    quiet = "".join(line for line in module.splitlines(True) if not line.startswith("print("))
    about = tomllib.loads(project)["project"]
    install(folder, about["name"], quiet, about["entry-points"])


def forget() -> None:
    extensions._entries.cache_clear()
    theory._loaded.cache_clear()
    progress.tell_once.cache_clear()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages that Python looks at first."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    forget()
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    forget()


def run(*arguments: str) -> tuple[int, str, str]:
    """The command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    return code, out.getvalue(), err.getvalue()


# ---- the package of the page ------------------------------------------------------------------------------------


def test_one_of_each_is_found_after_the_built_in_ones(site: Path) -> None:
    before = zoo.names(), ALGORITHMS.names(), ESTIMATORS.names(), verify.theories()
    install_the_page(site)
    forget()
    after = zoo.names(), ALGORITHMS.names(), ESTIMATORS.names(), verify.theories()
    assert after == tuple(
        (*old, new) for old, new in zip(before, ("valley", "careful", "richardson", "smith2030"), strict=True)
    )
    assert "bilevel_more" not in sys.modules, "names are read without an import"


@pytest.mark.slow
def test_each_of_them_works_in_python(site: Path) -> None:
    install_the_page(site)
    forget()
    problem = zoo.get("valley").problem
    solution = SolveRun(problem, "careful", steps=200, estimator="richardson").run()
    assert solution.status.ok
    assert abs(solution.x[0]) < 1e-3
    assert type(solution.schedule.estimator).__name__ == "Richardson"
    assert solution.stats.loop == "plain"
    assert "Richardson" in solution.stats.why
    (result,) = verify.run(problem, theory="smith2030", effort="quick").results
    assert (result.label, str(result.verdict)) == ("smith2030:lem-1", "HOLDS")
    assert theory.cite("smith2030:lem-1") == "Lemma 1 [smith2030:lem-1]"
    assert theory.title("smith2030:lem-1") == "grad Phi is bounded"
    assert [r.label for r in verify.run(problem, claims=["smith2030:lem-1"], effort="quick").results] == [result.label]


@pytest.mark.slow
def test_each_of_them_works_on_the_command_line(site: Path) -> None:
    install_the_page(site)
    forget()
    lines = [line.split()[1:] for text in page_blocks("text") for line in text.splitlines()]
    assert len(lines) == 3
    for words in lines:
        code, out, err = run(*words)
        assert (code, err) == (0, ""), words
        assert out
    assert "valley" in run("zoo")[1]
    assert json.loads(run("zoo", "--format", "json")[1])["problems"][-1]["name"] == "valley"
    code, _, err = run("solve", "zoo:valley", "--algorithm", "carefull")
    assert code == 2
    assert "careful" in err


@pytest.mark.slow
def test_a_process_of_its_own_finds_them(tmp_path: Path) -> None:
    install_the_page(tmp_path)
    for line in page_blocks("text")[0].splitlines():
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "bilevel_sym", *line.split()[1:]], check=False, cwd=ROOT,
            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), line


# ---- packages that are broken -----------------------------------------------------------------------------------

GROUPS = ("bilevel_sym.zoo", "bilevel_sym.algorithms", "bilevel_sym.estimators", "bilevel_sym.theories")


def ask(group: str, name: str) -> None:
    """Ask for a name of a group."""
    problem = zoo.get("scalar").problem
    if group.endswith("zoo"):
        zoo.get(name)
    elif group.endswith("theories"):
        verify.run(problem, theory=name)
    elif group.endswith("algorithms"):
        SolveRun(problem, name, steps=1).run()
    else:
        SolveRun(problem, "descent", steps=1, estimator=name).run()


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    ("module", "reference", "fault"),
    [
        (SHOUTING, "loud:thing", "cannot be loaded: RuntimeError: too loud"),
        ("raise SystemExit(3)\n", "loud:thing", "cannot be loaded: SystemExit: 3"),
        ("", "loud:thing", "cannot be loaded: AttributeError"),
        ("", "no_such_module_anywhere:thing", "cannot be loaded: ModuleNotFoundError"),
        ("thing = 7\n", "loud:thing", "is no "),
    ],
)
def test_a_broken_one_gets_one_line_that_names_the_distribution(
    site: Path, group: str, module: str, reference: str, fault: str
) -> None:
    install(site, "loud", module, {group: {"broken": reference}})
    forget()
    with pytest.raises(errors.InvalidExtension) as caught:
        ask(group, "broken")
    assert caught.value.message.startswith("loud 1.0 adds the ")
    assert "'broken'" in caught.value.message
    assert fault in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS[1:3])
@pytest.mark.parametrize(
    ("module", "fault"),
    [
        ("def thing(*a, **k):\n    return 7\n", "makes no "),
        ("def thing(*a, **k):\n    return 1 / 0\n", "fails: ZeroDivisionError: division by zero"),
        ("def thing(wrong):\n    return 7\n", "fails: TypeError"),
    ],
)
def test_one_that_makes_the_wrong_thing_is_named_too(site: Path, group: str, module: str, fault: str) -> None:
    install(site, "loud", module, {group: {"broken": "loud:thing"}})
    forget()
    with pytest.raises(errors.InvalidExtension, match=r"loud 1\.0 adds the ") as caught:
        ask(group, "broken")
    assert fault in caught.value.message


def test_the_rest_keeps_working_beside_broken_ones(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    install_the_page(site)
    install(site, "loud", SHOUTING, {group: {"broken": "loud:thing"} for group in GROUPS})
    forget()
    code, out, _ = run("zoo")
    assert code == 0
    assert "valley" in out
    assert "broken" not in out
    assert [r.getMessage() for r in caplog.records] == [
        "bilevel-sym: loud 1.0 adds the zoo problem 'broken', which cannot be loaded: RuntimeError: too loud"
    ]
    report = verify.run(zoo.get("scalar").problem, claims=["eq:bilevel-grad"], effort="quick")
    assert report.ok
    assert "adds the theory 'broken'" in caplog.records[-1].getMessage()
    assert len(caplog.records) == 2
    assert theory.title("smith2030:lem-1") == "grad Phi is bounded"
    code, _, err = run("verify", "zoo:scalar", "--theory", "broken")
    assert code == 2
    assert err.startswith("bilevel-sym: error: loud 1.0 adds the theory 'broken', which cannot be loaded")
    assert len(err.splitlines()) <= 4


@pytest.mark.parametrize(("group", "name"), list(zip(GROUPS, ("scalar", "descent", "aid", "ji2021"), strict=True)))
def test_a_built_in_name_cannot_be_taken(site: Path, caplog: pytest.LogCaptureFixture, group: str, name: str) -> None:
    install(site, "thief", SHOUTING, {group: {name: "thief:thing"}})
    forget()
    found = {GROUPS[0]: zoo.names, GROUPS[1]: ALGORITHMS.names, GROUPS[2]: ESTIMATORS.names, GROUPS[3]: verify.theories}
    assert list(found[group]()).count(name) == 1
    assert [r.getMessage().partition(", which ")[2] for r in caplog.records] == [
        "takes the name of a built-in one: it is left out"
    ]
    assert "thief 1.0" in caplog.records[0].getMessage()
    assert "thief" not in sys.modules


def test_of_two_packages_with_one_name_the_first_counts(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    install_the_page(site)
    install(site, "zz-late", SHOUTING, {"bilevel_sym.zoo": {"valley": "zz_late:thing"}})
    forget()
    assert zoo.get("valley").name == "valley"
    assert "zz-late 1.0 adds the zoo problem 'valley', which bilevel-more 1.0 adds too" in caplog.text


def test_a_name_that_a_terminal_would_obey_is_written_out(site: Path) -> None:
    install(site, "loud", SHOUTING, {"bilevel_sym.zoo": {"\x1b[2J": "loud:thing"}})
    forget()
    with pytest.raises(errors.InvalidExtension) as caught:
        zoo.get("\x1b[2J")
    assert caught.value.message.isprintable()
