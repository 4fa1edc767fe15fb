"""Names and paths from outside: no terminal obeys them, no page runs them, no line of theirs looks like ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
import sympy as sp
from hypothesis import given

from bilevel_sym import BilevelProblem, Descent, Exact, solve
from bilevel_sym.cli import main
from bilevel_sym.errors import BilevelError, InvalidProblem, visible
from bilevel_sym.system.plain_text import as_html, as_markdown, as_title, check_title, named
from verify.reporting import Report
from verify.verdict import judged

ROOT = Path(__file__).resolve().parent.parent
TOML = 'name = {}\nx = "x"\ny = "y"\nf = "x*y"\ng = "y**2/2 - x*y"\n[box]\nx = [-1, 1]\ny = [-1, 1]\n'
UNSEEN = [
    "\n",
    "\r",
    "\t",
    "\0",
    "\x1b[2J",
    "\x7f",
    "\x9b2J",
    "\u202e",
    "\u2028",
    "\u2066",
    "\ufeff",
    "\ud800",
    "a\x08b",
]
RUNS = "<script>alert(1)</script> [a](javascript:b) `c` |d| $e$ *f* <img src=x> \\n"


@pytest.mark.parametrize("unseen", UNSEEN)
def test_what_cannot_be_printed_is_refused_at_the_door(unseen: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidProblem, match="cannot be printed") as raised:
        BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", name=f"toy{unseen}HOLDS")
    assert all(line.isprintable() for line in str(raised.value).splitlines())
    x, y = sp.Symbol(f"x{unseen}"), sp.Symbol("y")
    with pytest.raises(InvalidProblem, match="cannot be printed"):
        BilevelProblem(x * y, y**2 / 2 - x * y, [x], [y])
    path = tmp_path / "toy.toml"
    escaped = "".join(f"\\u{ord(c):04x}" for c in unseen)
    path.write_text(TOML.format(f'"toy{escaped}"'), encoding="utf-8")
    with pytest.raises(BilevelError):
        BilevelProblem.load(path)


def test_long_names_and_other_things_are_refused() -> None:
    for name in ("x" * 201, 3, b"toy"):
        with pytest.raises(InvalidProblem, match="name"):
            BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", name=name)  # type: ignore[arg-type]
    assert check_title("Ω, d = 3 (β → 0)") == "Ω, d = 3 (β → 0)"


@given(st.text())
def test_whatever_is_shown_can_be_printed(text: str) -> None:
    assert visible(text, lines=False).isprintable()
    assert all(line.isprintable() for line in visible(text).split("\n"))
    assert visible(visible(text)) == visible(text)
    assert str(InvalidProblem(text, hint=text)).replace("\n", "").isprintable()
    assert "\n" not in as_markdown(text)
    for safe in (as_markdown(text), as_html(text)):
        assert not {"<", ">"} & set(safe)
    assert not re.search(r"(?<!\\)(\\\\)*[`*_\[\]|~$]", as_markdown(text))
    assert not re.search(r"(?<!\\)\$", as_title(text))


@given(st.text(st.characters(categories=["L", "N", "P", "S"], include_characters=" ")))
def test_what_can_be_printed_stays_as_it_is(text: str) -> None:
    assert visible(text) == named(text) == text


def hostile() -> BilevelProblem:
    return BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", name=RUNS, box={"x": (-1, 1), "y": (-1, 1)})


def test_pages_carry_no_script() -> None:
    result = judged("lem:descent", 0.5, 2.0, evidence="certified", message=f"at {RUNS}")
    report = Report(RUNS, None, "corrected", 0, 0.1, (result,))
    for page in (report.to_markdown(), report._repr_html_()):
        assert "<script" not in page
        assert "<img" not in page
    assert re.search(r"(?<!\\)\]\(javascript", report.to_markdown()) is None
    heading, *rest = report.to_markdown().splitlines()
    assert heading.startswith("## &lt;script&gt;")
    assert all(len(re.findall(r"(?<!\\)\|", line)) in (0, 8) for line in rest)  # a table of seven columns


def test_a_run_of_a_hostile_problem_is_shown_safely() -> None:
    solution = solve(hostile(), Descent(Exact(), eta=0.1), [0.5], steps=2)
    assert "<script" not in solution._repr_html_()
    assert repr(RUNS) in repr(hostile())


@pytest.mark.slow
def test_titles_of_plots_are_no_formulas() -> None:
    figures = pytest.importorskip("matplotlib.figure")
    from bilevel_sym.plotting import plot_landscape

    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", name=r"$\frac{$", box={"x": (-1, 1), "y": (-1, 1)})
    figure = figures.Figure()
    axes = plot_landscape(problem, ax=figure.subplots())
    figure.draw_without_rendering()  # a broken formula would fail here
    assert axes.get_title() == r"\$\frac{\$"


def test_the_command_line_refuses_what_cannot_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["derive", "zoo:scalar\x1b[2J\nHOLDS"]) == 2
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert "cannot be printed" in shown
    assert all(not line.startswith("HOLDS") for line in shown.splitlines())


def test_files_nearby_are_named_safely(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "to\x1b[2J\ny.toml").write_text("")
    assert main(["derive", str(tmp_path)]) == 2
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert r"to\x1b[2J\ny.toml" in shown


@pytest.mark.slow
def test_a_terminal_gets_nothing_to_obey(tmp_path: Path) -> None:
    """As the issue was seen: a name in a file that clears the screen and prints a verdict."""
    path = tmp_path / "toy.toml"
    path.write_text(TOML.format(r'"toy\u001b[2J\n1 statements: 1 HOLDS"'), encoding="utf-8")
    words = [sys.executable, "-m", "bilevel_sym", "verify", str(path), "--effort", "quick"]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.returncode == 2
    assert "\x1b" not in done.stdout + done.stderr
    assert not re.search(r"^1 statements", done.stdout + done.stderr, re.M)
