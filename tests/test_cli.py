"""The command line, end to end as a process, and the promises that the README makes about it."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bilevel_sym import experiments, zoo
from bilevel_sym.cli import EXPERIMENTS, main

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in this process, which is quicker."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(arguments))
        except SystemExit as left:  # argparse's own
            code = int(left.code or 0)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "bilevel_sym.cli", *arguments],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def test_derive_prints_the_formulas_term_by_term() -> None:
    done = process("derive", "zoo:scalar")
    assert done.returncode == 0
    assert "Phi(x) = x*(x + 1)/(x**2 + 1)" in done.stdout
    assert "implicit" in done.stdout
    assert done.stderr == ""


def test_derive_reads_a_problem_file(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text('x = ["x1"]\ny = ["y1"]\nf = "x1*y1"\ng = "y1**2/2 - x1*y1"\n')
    done = run("derive", str(path), "--format", "latex")
    assert done.returncode == 0
    assert r"\Phi(x) &= x_{1}^{2}" in done.stdout


def test_json_has_a_stable_schema() -> None:
    record = json.loads(run("derive", "zoo:scalar", "--format", "json").stdout)
    assert record["schema"] == "bilevel-sym/derivation/1"
    assert set(record) == {
        "schema",
        "name",
        "x",
        "y",
        "closed_form",
        "method",
        "y_star",
        "auxiliaries",
        "phi",
        "grad_phi",
        "hess_phi",
        "terms",
    }
    assert record["closed_form"] is True
    assert len(record["grad_phi"]) == len(record["x"])
    assert set(record["terms"]["hess_phi"]) == {
        "direct",
        "cross",
        "curvature",
        "cross_transposed",
        "quadratic",
    }


def test_python_source_runs() -> None:
    source = run("derive", "zoo:implicit_cubic", "--format", "python").stdout
    done = subprocess.run(
        [sys.executable, "-c", source + "\nprint(grad_phi([2.0])[0])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert abs(float(done.stdout)) < 1e-12


def test_large_problems_are_shown_in_matrix_notation(tmp_path: Path) -> None:
    path = tmp_path / "wide.toml"
    y = [f"y{k}" for k in range(1, 7)]
    g = " + ".join(f"exp({name}) + {name}**2" for name in y) + " + " + "*".join(y)
    path.write_text(f'x = ["x"]\ny = {json.dumps(y)}\nf = "x*y1"\ng = "{g} + x*y2"\n')
    for form in ("text", "latex", "json"):
        done = run("derive", str(path), "--format", form)
        assert done.returncode == 0, done.stderr
    assert "grad_phi = f_x - g_xy*v" in run("derive", str(path)).stdout


def test_the_zoo_lists_and_describes() -> None:
    listed = run("zoo")
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(zoo.names())
    one = run("zoo", "saddle")
    assert one.returncode == 0
    assert "local minimum" in one.stdout


BAD = {
    "no command": (),
    "no such command": ("nosuch",),
    "no such zoo problem": ("derive", "zoo:nosuch"),
    "no such zoo parameter": ("derive", "zoo:saddle,q=3"),
    "bad zoo value": ("derive", "zoo:saddle,d=-1"),
    "bad zoo spec": ("derive", "zoo:saddle,d"),
    "no such file": ("derive", "nosuch.toml"),
    "a folder": ("derive", "."),
    "no such format": ("derive", "zoo:scalar", "--format", "xml"),
    "no problem": ("derive",),
    "zoo nosuch": ("zoo", "nosuch"),
}


def test_bad_input_ends_a_process_with_code_2_and_no_traceback() -> None:
    done = process("derive", "zoo:nosuch")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_short_message_and_exit_code_2(case: str) -> None:
    done = run(*BAD[case])
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert 1 <= len(done.stderr.splitlines()) <= 4


@pytest.mark.parametrize(
    "text",
    [
        "x = [",
        'x = ["x"]\ny = ["y"]\nf = "x +"\ng = "y**2"',
        'x = ["x"]\ny = ["y"]\nf = "__import__(1)"\ng = "y**2"',
        "",
        "\0",
    ],
)
def test_bad_files_are_one_short_message(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    done = run("derive", str(path))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert 1 <= len(done.stderr.splitlines()) <= 4


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m bilevel_sym.cli zoo | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_help_has_examples() -> None:
    for arguments in (("--help",), ("derive", "--help"), ("zoo", "--help")):
        done = run(*arguments)
        assert done.returncode == 0
        assert "example: bilevel-sym" in done.stdout


# ---- the README's promises --------------------------------------------------------------------------


def readme_command(heading: str) -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(rf"^## {heading}\n.*?```sh\n(.*?)\n```", readme, re.M | re.S)
    assert match is not None
    return match[1]


@pytest.mark.parametrize("heading", ["Run it", "Test it"])
def test_the_readme_has_its_two_commands_on_one_line_each(heading: str) -> None:
    command = readme_command(heading)
    assert "\n" not in command
    assert command.startswith("python3 -m venv .venv && .venv/bin/pip install")


def test_ci_calls_the_readmes_test_command_verbatim() -> None:
    assert readme_command("Test it") in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_certify_prints_proved_digits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "zoo:scalar", "--at", "x=1/3", "--digits", "20"]) == 0
    out = capsys.readouterr().out
    assert "y* = 0.30000000000000000000" in out  # y* = x/(1 + x^2) = 3/10
    assert "every digit shown is proved" in out


@pytest.mark.parametrize(
    ("at", "digits", "message"),
    [
        ("x", "20", "not NAME=VALUE"),
        ("x=1/3,x=2", "20", "given twice"),
        ("q=1", "20", "the variables are x"),
        ("x=one", "20", "is not a number"),
        ("x=1/0", "20", "divides by zero"),
        ("x=1/3", "0", "digits=0"),
    ],
)
def test_certify_refuses_in_a_few_lines(at: str, digits: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "zoo:scalar", "--at", at, "--digits", digits]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) <= 4


# ---- solve and reproduce ----------------------------------------------------------------------------------

TOY = 'x = ["x1", "x2"]\ny = ["y1"]\nf = "x1**4/4 - x1**2/2 + x2**2 + y1"\ng = "y1**2/2 - x1*x2*y1/4"\n'


def test_solve_reads_a_file_escapes_its_saddle_and_says_what_happened(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(TOY)
    out = tmp_path / "run.csv"
    done = process("solve", str(path), "--x0", "x1=0,x2=0", "--seeds", "4", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "4 trajectories reached an eps-local minimum (checked)" in done.stdout
    assert "an eps-local minimum for eps = 0.001" in done.stdout
    assert "oracle calls: G_f" in done.stdout
    assert done.stderr == ""  # not a terminal: no progress
    lines = out.read_text().splitlines()
    assert lines[0].startswith("trajectory,seed,k,x1,x2,phi,")
    assert {line.split(",")[0] for line in lines[1:]} == {"0", "1", "2", "3"}


STIFF = """x = ["a", "b", "c"]
y = ["w1", "w2", "w3"]
f = "(w1 + 2*w2 - w3 - 1)**2 + (w1 - w2 + w3/2 - 2)**2 + (w3 + w1 - 1/2)**2"
g = "((w1 + w2 - 1)**2 + (w2 - w3 - 2)**2 + (w1 + w3)**2)/2 + (exp(a)*w1**2 + exp(b)*w2**2 + exp(c)*w3**2)/2"
"""


def test_a_lower_level_that_stiffens_on_the_way_is_solved_all_the_same(tmp_path: Path) -> None:
    """Log-weights: g_yy grows without bound along the run, so that no tau from the start fits."""
    path = tmp_path / "weights.toml"
    path.write_text(STIFF)
    done = run("solve", str(path), "--steps", "100")
    assert done.returncode == 0
    assert "ran out of steps (100 steps)" in done.stdout
    assert "by Newton's method" in done.stdout


def test_solve_as_json_is_reproducible_and_complete() -> None:
    first, second = (json.loads(run("solve", "zoo:saddle", "--seed", "3", "--format", "json").stdout) for _ in range(2))
    assert first == second
    assert first["schema"] == "bilevel-sym/solution/1"
    assert first["status"] == "local minimum"
    assert first["schedule"]["kind"] == "Perturbed"
    assert first["seed"] == [3]


def test_a_solve_that_runs_out_of_steps_is_done_and_says_so() -> None:
    done = run("solve", "zoo:saddle", "--steps", "3")
    assert done.returncode == 0
    assert "ran out of steps (3 steps)" in done.stdout
    assert "not an eps-local minimum" in done.stdout


@pytest.mark.parametrize("algorithm", ["descent", "descent-ineon", "perturbed-exact", "perturbed-aid"])
def test_every_deterministic_algorithm_can_be_asked_for(algorithm: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "zoo:saddle", "--algorithm", algorithm, "--x0", "x1=1,x2=0.5"]) == 0
    assert "eps-local minimum (checked)" in capsys.readouterr().out


@pytest.mark.parametrize("algorithm", ["stocbio", "stocbio-ineon"])
def test_the_stochastic_algorithms_can_be_asked_for(algorithm: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["solve", "zoo:stochastic_noise", "--algorithm", algorithm, "--steps", "30", "--x0", "x1=1,x2=0"]
    assert main(arguments) == 0
    assert "StocBiO(" in capsys.readouterr().out


REFUSED = {
    "missing value": ["zoo:saddle", "--x0", "x1=0"],
    "unknown name": ["zoo:saddle", "--x0", "x1=0,x2=0,z=1"],
    "not a number": ["zoo:saddle", "--x0", "x1=0,x2=__import__"],
    "twice": ["zoo:saddle", "--x0", "x1=0,x1=1"],
    "ending": ["zoo:saddle", "--out", "run.xyz"],
    "directory": ["zoo:saddle", "--out", "no/such/place/run.csv"],
    "kind": ["zoo:saddle", "--algorithm", "stocbio"],
    "minimax": ["zoo:saddle", "--algorithm", "perturbed-gdmax"],
    "algorithm": ["zoo:saddle", "--algorithm", "nosuch"],
    "seeds": ["zoo:saddle", "--seeds", "0"],
    "steps": ["zoo:saddle", "--steps", "-1"],
    "eta": ["zoo:saddle", "--eta", "-1"],
    "eps": ["zoo:saddle", "--eps", "nan"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_solve_refuses_bad_input_in_a_few_lines(name: str) -> None:
    done = run("solve", *REFUSED[name])
    assert done.returncode == 2
    assert done.stdout == ""
    assert 1 <= len(done.stderr.strip().splitlines()) <= 4


def test_the_command_names_every_experiment() -> None:
    """It does not ask them itself: importing them would make every command wait."""
    assert experiments.names() == EXPERIMENTS


def test_reproduce_knows_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "figure9"])
    assert left.value.code == 2
    assert "figure1" in capsys.readouterr().err
