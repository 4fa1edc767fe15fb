"""The command line, end to end as a process, and the promises that the README makes about it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

import bilevel_sym
from bilevel_sym import zoo
from bilevel_sym.cli import main
from bilevel_sym.cli.command import Command
from bilevel_sym.cli.making import EXPERIMENTS
from bilevel_sym.cli.session import COMMANDS, parse
from bilevel_sym.errors import BilevelError
from bilevel_sym.solvers.named import ALGORITHMS, ESTIMATORS
from bilevel_sym.theories.huang_saddle import experiments
from verify import CertifiedConstants, Study, constants

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in this process, which is quicker."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "bilevel_sym", *arguments], capture_output=True, text=True,
        stdin=subprocess.DEVNULL, check=False, cwd=ROOT, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("module", ["bilevel_sym", "bilevel_sym.cli"])
def test_either_module_is_the_program(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"bilevel-sym {bilevel_sym.__version__}\n", "")


@pytest.mark.slow
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
        "kinks",
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
    entries = [line for line in listed.stdout.splitlines() if not line.startswith(" ")]  # long ones go on below
    assert [line.split()[0] for line in entries] == [*zoo.data_names(), *zoo.names()]
    one = run("zoo", "saddle")
    assert one.returncode == 0
    assert "local minimum" in one.stdout


# what was typed, and what the message must tell
BAD = {
    "no command": (
        "",
        "derive, solve, verify, check, certify, recheck, campaign, zoo, errata, report, reproduce, compile, docs",
    ),
    "mistyped command": ("derv zoo:scalar", "did you mean derive?"),
    "no such command": ("nosuch", "bilevel-sym --help"),
    "help as a command": ("help", "bilevel-sym --help"),
    "a problem as a command": ("zoo:scalar", "bilevel-sym derive zoo:scalar"),
    "option before the command": ("--format json derive zoo:scalar", "stand behind it"),
    "mistyped option": ("derive zoo:scalar --fromat json", "did you mean --format?"),
    "abbreviated option": ("certify zoo:scalar --at x=1 --dig 3", "did you mean --digits?"),
    "no such option": ("zoo --list", "one of --format"),
    "option without a value": ("derive zoo:scalar --format", "--format wants a value"),
    "no such format": ("derive zoo:scalar --format pdf", "text, latex, python, json"),
    "format in capitals": ("derive zoo:scalar --format JSON", "did you mean json?"),
    "one word too many": ("certify zoo:saddle --at x1=0, x2=0", "quotes"),
    "another word too many": ("zoo saddle d=3 4", "too many"),
    "no problem": ("derive", "bilevel-sym derive zoo:scalar"),
    "no such zoo problem": ("derive zoo:nosuch", "one of implicit_cubic"),
    "mistyped zoo problem": ("derive zoo:scaler", "did you mean scalar?"),
    "zoo forgotten": ("derive saddle", "did you mean zoo:saddle?"),
    "no such zoo parameter": ("derive zoo:saddle,q=3", "it takes d=2"),
    "bad zoo value": ("derive zoo:saddle,d=-1", "between 1 and 500"),
    "bad zoo spec": ("derive zoo:saddle,d", "write saddle,d=2"),
    "no such file": ("derive nosuch.toml", "there is no file 'nosuch.toml'"),
    "a formula": ("derive x*y", "a TOML file that says x, y, f and g"),
    "a folder": ("derive .", "is a directory"),
    "a name that no file has": ("derive a\0b", "cannot be printed"),
    "a very long name": (f"derive {'n' * 5000}", "there is no file"),
    "zoo nosuch": ("zoo nosuch", "one of"),
    "no point": ("certify zoo:scalar", "--at is missing"),
    "digits in words": ("certify zoo:scalar --at x=1 --digits many", "from 1 to 10000"),
    "too many digits": ("certify zoo:scalar --at x=1 --digits 10001", "from 1 to 10000"),
    "a number of digits that is itself too long": (f"certify zoo:scalar --at x=1 --digits {'9' * 6000}", "from 1"),
    "steps with an exponent": ("solve zoo:saddle --steps 1e3", "try: 1000"),
    "negative seed": ("verify zoo:saddle --seed -3", "--seed: -3 is not a whole number of at least 0"),
    "step that argparse takes for an option": ("solve zoo:saddle --eta -1e-3", "--eta=VALUE"),
    "no time": ("verify zoo:saddle --seconds 0", "not a positive number"),
    "mistyped variant": ("verify zoo:saddle --variant print", "did you mean printed?"),
    "no label": ("verify zoo:saddle --claims ,", "there is no label"),
    "mistyped label": ("verify zoo:saddle --claims lem:decent", "lem:descent"),
    "no such figure": ("reproduce fig1", "did you mean figure1?"),
}


@pytest.mark.slow
def test_bad_input_ends_a_process_with_code_2_and_no_traceback() -> None:
    done = process("derive", "zoo:nosuch")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_short_message_and_exit_code_2(case: str) -> None:
    words, told = BAD[case]
    done = run(*words.split(" ")) if words else run()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert 1 <= len(done.stderr.splitlines()) <= 4
    assert told in done.stderr


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


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["zoo", "errata", "--help", "derive zoo:scalar --format json"])
def test_a_reader_that_leaves_early_is_no_error(arguments: str) -> None:
    command = f"{sys.executable} -m bilevel_sym {arguments} | true"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_has_examples_that_parse_and_tells_the_exit_codes(command: Command) -> None:
    shown = run(command.name, "--help")
    assert shown.returncode == 0
    for code in ("0  ", "2  bad input", "130  interrupted"):
        assert f"\n  {code}" in shown.stdout
    assert "zoo:tube,d=10" in shown.stdout or "PROBLEM" not in shown.stdout
    assert len(command.examples) >= 2
    for line, _ in command.examples:
        assert line in shown.stdout
        program, *words = shlex.split(line.partition(" > ")[0])
        assert program == "bilevel-sym"
        assert parse(words).command is command


def test_the_overview_names_every_command() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert all(re.search(rf"^    {command.name} +\S", shown.stdout, re.M) for command in COMMANDS)
    assert run("--version").stdout.startswith("bilevel-sym ")


def test_the_command_names_every_algorithm_and_estimator() -> None:
    shown = run("solve", "--help").stdout
    assert all(re.search(rf"^  {name} +\S", shown, re.M) for name in (*ALGORITHMS.builtin, *ESTIMATORS.builtin))


@pytest.mark.parametrize(
    "arguments", [["--help"], ["solve", "--help"], ["--version"], ["nosuch"], ["derive", "--fromat"]]
)
def test_help_and_mistyped_options_need_no_sympy(arguments: list[str]) -> None:
    code = f"import sys\nfrom bilevel_sym.cli import main\nmain({arguments})\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert {"sympy", "numpy", "mpmath", "verify"}.isdisjoint(done.stdout.splitlines()[-1].split())


# ---- endings that nobody wants ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_full_disk_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bilevel_sym", "zoo"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=ROOT,
        )
    assert done.returncode == 2
    assert done.stderr == (
        "bilevel-sym: error: standard output cannot be written: No space left on device\ntry: is the disk full?\n"
    )


@pytest.mark.slow
@pytest.mark.in_ci(closed=[">&- 2>&-"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(closed: str) -> None:
    command = f"{sys.executable} -m bilevel_sym solve zoo:scalar --steps 1 {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 trajectory") == closed.startswith("2")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["derive", "verify --claims eq:bilevel-grad"])
def test_letters_that_the_encoding_lacks_are_written_out(command: str, tmp_path: Path) -> None:
    path = tmp_path / "greek.toml"
    problem = 'name = "φé🙂"\nx = ["x"]\ny = ["y"]\nf = "x*y"\ng = "y**2/2 - x*y"\nbox = {x = [-1, 1], y = [-1, 1]}\n'
    path.write_text(problem, encoding="utf-8")
    name, *options = command.split()
    done = process(name, str(path), *options, "--format", "json", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    record = json.loads(done.stdout)
    assert "φé🙂" in (record.get("name"), record.get("problem"))


UNEXPECTED = {
    "defect": (RuntimeError("all is lost\nand more"), "unexpected RuntimeError: all is lost"),
    "recursion": (RecursionError("too deep"), "unexpected RecursionError: too deep"),
    "memory": (MemoryError(), "not enough memory"),
    "disk": (OSError(28, "No space left on device", "run.csv"), "run.csv: No space left on device"),
    "package": (ModuleNotFoundError("No module named 'flint'"), "No module named 'flint'"),
    "many lines": (BilevelError("a\nb\nc\nd\ne", hint="mend it"), "try: mend it"),
}


@pytest.mark.parametrize("case", UNEXPECTED)
def test_nothing_ends_in_a_traceback(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error, told = UNEXPECTED[case]

    def fail(spec: str) -> NoReturn:
        raise error

    monkeypatch.setattr(zoo, "parse", fail)
    done = run("zoo", "scalar")
    assert done.returncode == 2
    assert told in done.stderr
    assert 1 <= len(done.stderr.splitlines()) <= 4


def test_an_interrupt_says_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(spec: str) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "parse", stop)
    done = run("zoo", "scalar")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "bilevel-sym: interrupted; nothing was finished\n"


def test_an_interrupt_that_an_import_takes_for_its_failure_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's C code does so."""

    def stop(spec: str) -> NoReturn:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            raise ImportError("IMPORTANT: PLEASE READ THIS") from None
        raise AssertionError

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(zoo, "parse", stop)
    try:
        done = run("zoo", "scalar")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.returncode, done.stderr) == (130, "bilevel-sym: interrupted; nothing was finished\n")


def test_an_interrupt_inside_executed_text_leaves_the_documented_code(tmp_path: Path) -> None:
    """Python ends by the signal where an interruption has passed through exec, as imports of namedtuples call it."""
    (tmp_path / "sympy.py").write_text("exec('raise KeyboardInterrupt')")
    done = process("zoo", "scalar", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (done.returncode, done.stderr) == (130, "bilevel-sym: interrupted; nothing was finished\n")


@pytest.mark.slow
def test_an_interrupt_that_a_search_answers_ends_the_run_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certified constants come back with what they have; what was measured with them is not judged."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    presses = iter([signal.SIGINT])

    def cut_short(study: Study) -> CertifiedConstants:
        with contextlib.suppress(KeyboardInterrupt):
            for press in presses:
                os.kill(os.getpid(), press)
                time.sleep(1)
        return constants(study.exact, study.box)

    monkeypatch.setattr(Study, "constants", property(cut_short))
    try:
        done = run("verify", "zoo:scalar", "--claims", "eq:bilevel-grad,pro:bounds,lem:descent", "--format", "json")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.returncode == 130
    report = json.loads(done.stdout)
    assert report["interrupted"] is True
    assert [result["verdict"] for result in report["results"]] == ["HOLDS", "INCONCLUSIVE", "INCONCLUSIVE"]
    assert {result["message"] for result in report["results"][1:]} == {"interrupted"}


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
    assert "proved: the stationary point of g in this ball, unique there; the minimiser over the box" in out
    assert "convexity: proved over the box" in out


@pytest.mark.parametrize(
    ("at", "digits", "message"),
    [
        ("x", "20", "not NAME=VALUE"),
        ("x=1/3,x=2", "20", "given twice"),
        ("q=1", "20", "q is not a variable of x"),
        ("x=one", "20", "is not a number"),
        ("x=1/0", "20", "divides by zero"),
        ("x=1/3", "0", "from 1 to 10000"),
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
    done = run("solve", str(path), "--x0", "x1=0,x2=0", "--seeds", "4", "--out", str(out))
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


@pytest.mark.slow
def test_a_lower_level_that_stiffens_on_the_way_is_solved_all_the_same(tmp_path: Path) -> None:
    """Log-weights: g_yy grows without bound along the run, so that no tau from the start fits."""
    path = tmp_path / "weights.toml"
    path.write_text(STIFF)
    done = run("solve", str(path), "--steps", "100")
    assert done.returncode == 0
    assert "ran out of steps (100 steps)" in done.stdout
    assert "by Newton's method" in done.stdout


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["descent", "descent-ineon", "perturbed-exact", "perturbed-aid"])
def test_every_deterministic_algorithm_can_be_asked_for(algorithm: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "zoo:saddle", "--algorithm", algorithm, "--x0", "x1=1,x2=0.5"]) == 0
    assert "eps-local minimum (checked)" in capsys.readouterr().out


@pytest.mark.slow
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
    "no ending": ["zoo:saddle", "--out", ".csv"],
    "directory": ["zoo:saddle", "--out", "no/such/place/run.csv"],
    "a directory itself": ["zoo:saddle", "--out", "run.csv/"],
    "one file for two": ["zoo:saddle", "--out", "run.csv", "--checkpoint", "run.csv"],
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


@pytest.mark.slow
def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.csv"
    path.write_text("precious")
    path.chmod(0o640)

    def full(descriptor: int) -> NoReturn:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        done = run("solve", "zoo:saddle", "--steps", "2", "--out", str(path))
    assert done.returncode == 2
    assert f"{path} cannot be written: the disk is full; nothing was changed\ntry: make room" in done.stderr
    assert path.read_text() == "precious"
    assert [item.name for item in tmp_path.iterdir()] == ["run.csv"]
    assert run("solve", "zoo:saddle", "--steps", "2", "--out", str(path)).returncode == 0
    assert path.read_text().startswith("trajectory,")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("precious")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.txt")
    assert run("solve", "zoo:saddle", "--steps", "2", "--out", str(tmp_path / "link.csv")).returncode == 0
    assert (tmp_path / "real.txt").read_text() == "precious"
    assert not (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "link.csv").read_text().startswith("trajectory,")


def test_descent_at_a_saddle_point_is_told_how_to_leave_it() -> None:
    done = run("solve", "zoo:saddle", "--algorithm", "descent", "--steps", "5")
    assert "note: this is a strict saddle point, or a maximum" in done.stdout
    assert "try: --algorithm perturbed-aid, which leaves such points; descent stays" in done.stdout
    assert "more --steps" not in done.stdout


def write(path: Path, f: str, g: str, *, box: str = "", x: str = "x", y: str = "y", more: str = "") -> str:
    table = f"[box]\n{box}\n" if box else ""
    path.write_text(f'x = "{x}"\ny = "{y}"\nf = "{f}"\ng = "{g}"\n{more}{table}')
    return str(path)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("algorithm", [[], ["--algorithm", "perturbed-exact"], ["--algorithm", "descent"]])
def test_a_phi_without_a_lower_bound_diverges_without_a_word_from_numpy(tmp_path: Path, algorithm: list[str]) -> None:
    path = write(
        tmp_path / "falling.toml", "sin(x1)*y + x2**2*y", "(2 + cos(x2))*y**2/2 - x1*y", x="x1 x2"
    )  # fmt: skip
    out = tmp_path / "run.csv"
    done = run("solve", path, "--x0", "x1=0.5,x2=0.5", "--out", str(out), *algorithm)
    assert (done.returncode, done.stderr) == (1, "")
    assert "diverged" in done.stdout
    assert "Phi may fall without bound" in done.stdout
    assert "inf" in out.read_text() or "e+1" in out.read_text()


def test_a_start_where_g_is_not_convex_asks_for_another(tmp_path: Path) -> None:
    path = write(tmp_path / "bent.toml", "x*y", "(2 + x)*y**2/2 - x*y", box="x = [-3, 3]\ny = [-1, 1]")
    done = run("solve", path, "--x0", "x=-2.5")
    assert done.returncode == 1
    assert "1 trajectory ended where the lower level could not be solved (0 steps)" in done.stdout
    assert "try: another --x0, or a smaller --eta: g must be strongly convex in y" in done.stdout
    assert "perturbed-exact" not in done.stdout  # that is what ran


def test_steps_that_jump_across_a_kink_are_explained(tmp_path: Path) -> None:
    path = write(tmp_path / "kink.toml", "abs(y - 1) + x**2/10", "(y - x)**2/2", box="x = [-2, 2]\ny = [-3, 3]")
    done = run("solve", path, "--steps", "50")
    assert "note: f or g has kinks" in done.stdout
    assert "try: a smaller --eta" in done.stdout


@pytest.mark.slow
def test_a_verdict_over_a_part_says_that_the_whole_box_breaks_the_assumption(tmp_path: Path) -> None:
    path = write(tmp_path / "bent.toml", "x*y", "(2 + x)*y**2/2 - x*y", box="x = [-3, 3]\ny = [-1, 1]")
    done = run("verify", path, "--claims", "grad-Lipschitz", "--format", "json")
    (result,) = json.loads(done.stdout)["results"]
    assert "(over the whole box Assumption 2.1 fails)" in result["message"]


def test_memory_can_be_said_on_the_command_line() -> None:
    few = run("verify", "zoo:scalar", "--claims", "hess-Lipschitz", "--memory", "100MB", "--format", "json")
    (result,) = json.loads(few.stdout)["results"]
    assert (result["verdict"], "and memory is 100 MB" in result["message"]) == ("INCONCLUSIVE", True)
    wrong = run("verify", "zoo:scalar", "--memory", "much")
    assert wrong.returncode == 2
    assert "'much' is not a size\ntry: '2GB', '500 MB' or a number of bytes" in wrong.stderr


def test_formulas_that_would_fill_a_screen_are_shown_by_their_blocks(tmp_path: Path) -> None:
    loss = "softplus(-w1 - 2*w2) + softplus(2*w1 - w2) + softplus(x)*(w1**2 + w2**2)/2"
    path = write(tmp_path / "ridge.toml", "softplus(w2 - 2*w1) + softplus(w1 - 3*w2)", loss, y="w1 w2")
    text, latex = run("derive", path).stdout, run("derive", path, "--format", "latex").stdout
    assert "  grad_phi = f_x - g_xy*v\n" in text
    assert "  g_xy[x, w1] = w1*sigmoid(x)\n" in text
    assert "f_x[" not in text  # it vanishes
    assert "grad_phi is not written out: an entry has " in text
    assert "\ntry: --format python" in text
    assert max(map(len, text.splitlines())) < 400
    assert len(latex) < 1000


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("x = [x]", "is not valid TOML", "text and names in quotes"),
        ('x = "x"\ny = "y"\nf = "x*y"\ng = "y**2 - x*y"\n[box]\nx = [nan, 1]', "box.x must be a finite", "1/3"),
        ('x = "x"\ny = "y"\nf = "inf*y"\ng = "y**2 - x*y"', "unknown name inf", "only finite numbers"),
        ('x = "x"\ny = "y"\nf = "m*y"\ng = "y**2 - x*y"\n[parameters]\nm = "symbolic"', "m has no value", "[parameters]"),
        ('x = "x"\ny = "y"\nf = "x*y"\ng = "cos(y) - x*y"', "-1 (working with", "it must be strongly convex in y"),
    ],
)  # fmt: skip
def test_what_a_newcomer_writes_wrong_is_named_and_a_cure_told(tmp_path: Path, text: str, what: str, hint: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    done = run("certify", str(path), "--at", "x=0")
    assert done.returncode == 2
    error, cure = done.stderr.split("try: ")
    assert what in error
    assert hint in cure


def test_the_command_names_every_experiment() -> None:
    """It does not ask them itself: importing them would make every command wait."""
    assert experiments.names() == EXPERIMENTS


def test_reproduce_knows_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "figure9"]) == 2
    assert "figure1" in capsys.readouterr().err
