"""Certificates for strangers: what is saved is proved again by a program that shares no code with the search."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import pytest
import sympy as sp
from flint import arb

import verify
from bilevel_sym import BilevelProblem, Box, StochasticProblem, evaluate, zoo
from bilevel_sym.cli import main
from bilevel_sym.errors import CertificateFailure, InvalidProblem
from bilevel_sym.saved_certificate import problem_text
from verify.certificates import recheck as program
from verify.stationary import search

PROGRAM = Path(program.__file__)
TOY = BilevelProblem(
    "x*y", "y**2 - sin(x)*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)}, name="toy"
)  # Phi = x sin(x)/2
CURVED = BilevelProblem(
    "sin(x1)*y1 + x1*x2 + x2**2", "y1**2 + y2**2 + y1*y2/4 - x1*y1 - exp(x2/3)*y2",
    ("x1", "x2"), ("y1", "y2"), box={"x1": (-1, 1), "x2": (-1, "1/3"), "y1": (-1, 1), "y2": (0, 1)},
)  # fmt: skip
ROWS = StochasticProblem(
    "x*y + xi*y", "y**2 - x*y + zeta*cos(y)/8", "x", "y", "xi", "zeta", xi_data=[[0], [1], [1]], zeta_data=[[0], [1]],
    box={"x": (-1, 1), "y": (-1, 1)},
)  # fmt: skip


def saved(problem: BilevelProblem, kind: str, path: Path) -> Path:
    """A certificate of one kind."""
    makers: dict[str, Callable[[], Any]] = {
        "constants": lambda: verify.constants(problem),
        "joint": lambda: verify.constants(problem, reading="joint"),
        "smoothness": lambda: verify.smoothness(problem, rtol=0.05),
        "stationary": lambda: search(problem),
        "point": lambda: evaluate(problem.mean, ["1/3"] * problem.d, digits=30),
    }
    makers[kind]().save(path)
    return path


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


# ---- the program -------------------------------------------------------------------------------------------------


def test_the_program_is_one_short_file_that_needs_python_and_flint_alone() -> None:
    text = PROGRAM.read_text()
    lines = text.splitlines()
    assert len(lines) <= 500
    assert max(map(len, lines)) <= 120
    nodes = list(ast.walk(ast.parse(text)))
    names = {alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module).partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    assert names - set(sys.stdlib_module_names) == {"flint"}
    assert not {"eval", "exec", "compile", "__import__"} & {
        n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }


ALONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "sympy", "scipy", "mpmath", "bilevel_sym", "verify", "numba"):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Refuse())
import runpy
sys.argv = ["recheck.py", *sys.argv[2:]]
runpy.run_path(PROGRAM, run_name="__main__")
"""


def run_alone(*words: str) -> subprocess.CompletedProcess[str]:
    code = ALONE.replace("PROGRAM", repr(str(PROGRAM)))
    return subprocess.run(
        [sys.executable, "-c", code, "x", *words], capture_output=True, text=True, check=False, timeout=120
    )


def test_it_runs_where_nothing_else_is_installed(tmp_path: Path) -> None:
    path, mine, other = saved(TOY, "constants", tmp_path / "toy.json"), tmp_path / "mine.toml", tmp_path / "other.toml"
    mine.write_text('x = "x"\ny = "y"\nf = "y*x"\ng = "-y*sin(x) + y*y"\n')
    other.write_text('x = "x"\ny = "y"\nf = "y*x"\ng = "-y*sin(2*x) + y*y"\n')
    done = run_alone(str(path), "--problem", str(mine))
    assert (done.returncode, done.stderr) == (0, "")
    assert "nu is in [0.99999998, 1.0000001]" in done.stdout
    assert run_alone(str(path)).returncode == 0
    assert run_alone(str(path), "--problem", str(other)).returncode == 1
    assert run_alone(str(tmp_path / "none.json")).returncode == 2
    assert run_alone().returncode == 2


@pytest.mark.parametrize(
    "text",
    [
        "x*y + 2*x**3 - 0.1*y/4", "exp(x)*sin(y) + cos(x*y) + tan(x/3)", "tanh(x) + sinh(y) + cosh(x - y)",
        "atan(x*y) + log(2 + x) + sqrt(3 + y)", "softplus(x - y) + sigmoid(3*x)", "x**(3/2) + 2**y + E**x + pi*y",
        "abs(x) + min(x, y, 2) + max(x, y)", "Piecewise((x**2, y < 0), (y**3, x >= 1/4), (7, True))", "-x**2 + (-y)**2",
        "1/(1 + x**2 + y**2)", "x**-2", "2*x - -y", "(x + y)**0",
    ],
)  # fmt: skip
def test_jets_are_the_derivatives_that_sympy_finds(text: str) -> None:
    """Two independent routes: jets in balls against SymPy and mpmath."""
    from bilevel_sym.parsing import parse_expression

    x, y = sp.symbols("x y", real=True)
    expression = parse_expression(text, {"x": x, "y": y}).replace(
        lambda e: type(e).__name__ in ("softplus", "sigmoid"),
        lambda e: sp.log(1 + sp.exp(e.args[0])) if type(e).__name__ == "softplus" else 1 / (1 + sp.exp(-e.args[0])),
    )
    point = (sp.Rational(1, 3), sp.Rational(1, 5))
    problem = program.Problem(f'x = "x"\ny = "y"\nf = "{text}"\ng = "y**2"')
    at = program.variables(["x", "y"], [program.rational("1/3"), program.rational("1/5")], 5)
    wide = program.variables(["x", "y"], [arb(1) / 3 + arb(0, 0.01), arb("0.2") + arb(0, 0.01)], 5)
    jet, over = program.evaluate(problem.rows["f"][0][0], at), program.evaluate(problem.rows["f"][0][0], wide)
    with mpmath.workdps(40):
        for i in range(6):
            for j in range(6 - i):
                derived = sp.diff(expression, (x, i), (y, j)) if i + j else sp.sympify(expression)
                exact = derived.subs(dict(zip((x, y), point, strict=True)))
                value, index = arb(str(sp.N(exact, 40))), [0] * i + [1] * j
                assert abs(arb(jet.at(*index)) - value) < arb("1e-12") * (1 + abs(value)), (text, i, j)
                assert arb(over.at(*index)).overlaps(value)
                assert arb(over.at(*index)).contains(arb(jet.at(*index)).mid())


@pytest.mark.parametrize(
    "text",
    [
        "x^y", "f(x)", "x.y", "x[0]", "lambda: x", "x if y else x", "__import__('os')", "x; y", "x := 1", "1_000*x", "0x10*x",
        "x @ y", "x // y", "x % y", "not x", "x and y", "x < y", "True", "exp(x, y)", "exp()", "z", "x**1001", "1e99999*x",
        "Piecewise(x)", "Piecewise((x, y))", "Piecewise((x, x < y < 1))", "Piecewise((x, x == y))", "max(x=1)", "x # y", "ｘ", "1j*x",
        "(" * 300 + "x" + ")" * 300, "", "abs()", "f'{x}'", "*x", "(x, y)", "x\\y", "nan", "inf*x",
    ],
)  # fmt: skip
def test_what_is_not_in_the_grammar_is_refused(text: str) -> None:
    def read() -> None:
        problem = program.Problem(f'x = "x"\ny = "y"\nf = {json.dumps(text)}\ng = "y**2"')
        program.evaluate(problem.rows["f"][0][0], program.variables(["x", "y"], [arb("0.3"), arb("0.4")], 1))

    with pytest.raises((program.Refused, *program.SPOILT)):
        read()


def test_norms_of_tensors_are_bounded_and_not_by_much() -> None:
    """Against the largest value over many directions, for tensors of every order that is used."""
    import numpy as np

    rng = np.random.default_rng(0)
    for shape in ((3,), (2, 3), (2, 2), (2, 2, 2), (3, 2, 2), (2, 2, 2, 1), (2, 2, 2, 2)):
        tensor = rng.integers(-5, 6, shape).astype(float)
        from verify.enclosures.tensor_norm import worst_directions

        norm = worst_directions(tensor)[0]
        entries = [arb(float(t)) for t in tensor.ravel()]
        assert program.norm_fits(entries, shape, arb(1.003 * norm)), shape
        assert not program.norm_fits(entries, shape, arb(0.9999 * norm)), shape
        assert not program.norm_fits([e + arb(0, 0.1) for e in entries], shape, arb(norm + 0.05)), shape


# ---- the round trip ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["constants", "joint", "smoothness", "stationary", "point"])
def test_all_kinds_are_proved_again(tmp_path: Path, kind: str) -> None:
    path = saved(TOY, kind, tmp_path / "toy.json")
    again = verify.recheck(path, TOY)
    assert again.own
    assert not verify.recheck(path).own
    if kind in ("constants", "joint"):
        certified = verify.constants(TOY, reading="block" if kind == "constants" else "joint").brackets
        for name, bracket in again.brackets.items():
            assert bracket.lower <= certified[name].lower + 1e-9
            assert bracket.upper == pytest.approx(certified[name].upper, rel=3e-4)
    if kind == "stationary":
        assert "no other stationary points" in str(again)
        assert [point["kind"] for point in again.numbers["points"]] == ["local minimum"]


@pytest.mark.parametrize("kind", ["constants", "point"])
def test_a_problem_of_more_variables(tmp_path: Path, kind: str) -> None:
    assert verify.recheck(saved(CURVED, kind, tmp_path / "x.json"), CURVED).kind == kind


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["joint", "smoothness", "stationary"])
def test_the_other_kinds_of_more_variables(tmp_path: Path, kind: str) -> None:
    problem = BilevelProblem(
        CURVED.f, CURVED.g, CURVED.x, CURVED.y, box={"x1": (-1, 0), "x2": ("-1/2", 0), "y1": (-1, 1), "y2": (0, 1)}
    )
    assert verify.recheck(saved(problem, kind, tmp_path / "x.json"), problem).boxes > 0


@pytest.mark.parametrize("kind", ["constants", "smoothness", "stationary", "point"])
def test_every_row_of_a_stochastic_problem(tmp_path: Path, kind: str) -> None:
    path = saved(ROWS, kind, tmp_path / "rows.json")
    again = verify.recheck(path)
    if kind == "constants":
        assert again.brackets["M"].upper >= 2  # of the row xi = 1: |f_y| = |x + 1|
        lie = lambda c: c["claims"]["M"].update(upper="1.9", lower="0", at="")  # noqa: E731
        with pytest.raises(CertificateFailure, match="M was not proved"):
            verify.recheck(changed(path, lie))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["scalar", "implicit_cubic", "lphi_witness", "minimax_nash", "minimax_not_nash", "ridge"]
)
@pytest.mark.parametrize("kind", ["constants", "joint", "smoothness", "stationary", "point"])
def test_the_zoo(tmp_path: Path, name: str, kind: str) -> None:
    problem = zoo.get(name).problem
    assert verify.recheck(saved(problem, kind, tmp_path / "x.json"), problem).sentences


def test_the_problem_of_the_consumer_is_the_one_that_counts(tmp_path: Path) -> None:
    path = saved(TOY, "smoothness", tmp_path / "toy.json")
    forged = changed(path, lambda c: c.update(problem=c["problem"].replace("sin(x)", "cos(x)")))
    assert verify.recheck(forged, TOY).brackets["L_phi"].upper == pytest.approx(1, rel=0.06)
    mine = tmp_path / "mine.toml"
    mine.write_text(problem_text(TOY))
    assert verify.recheck(forged, mine).own
    with pytest.raises(CertificateFailure):
        verify.recheck(forged)
    with pytest.raises(InvalidProblem, match="cannot be read"):
        verify.recheck(path, tmp_path / "none.toml")


def test_a_kink_is_no_smooth_place(tmp_path: Path) -> None:
    """At a kink a forged certificate of one-sided derivatives is refused, inside a box and at a point."""
    bent = BilevelProblem("x*y + abs(x)*y", "y**2 - x*y", "x", "y")
    straight = BilevelProblem("x*y + x*y", "y**2 - x*y", "x", "y")
    path = tmp_path / "x.json"
    evaluate(straight, ["0"], digits=5).save(path)
    with pytest.raises(CertificateFailure, match="switch"):
        verify.recheck(path, bent)
    verify.constants(straight, Box({"x": (-1, 1), "y": (-1, 1)})).save(path)
    with pytest.raises(CertificateFailure):
        verify.recheck(path, bent)
    verify.constants(straight, Box({"x": ("1/8", 1), "y": (-1, 1)})).save(path)
    assert verify.recheck(path, bent).brackets["ell"].upper == pytest.approx(2)


# ---- hostile files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "", "[", "[]", "{}", "null", "1", '"x"', "[" * 100_000, '{"format": 1}', '{"format": "bilevel-sym/saved/1"}', "\x00",
        '{"format": "bilevel-sym/saved/1", "kind": "point", "problem": 3, "near": {}, "box": {}}', "NaN",
        '{"format": "bilevel-sym/saved/1", "kind": "__init__", "problem": "", "near": {}, "box": {}}',
    ],
)  # fmt: skip
def test_what_is_no_certificate_is_one_typed_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(CertificateFailure):
        verify.recheck(path)


HOSTILE: list[Callable[[dict[str, Any]], object]] = [
    lambda c: c["claims"]["rho"].update(upper=float("nan")),
    lambda c: c["claims"]["rho"].update(upper=float("inf")),
    lambda c: c["claims"]["rho"].update(upper=None),
    lambda c: c["claims"]["rho"].update(upper=[1]),
    lambda c: c["claims"]["rho"].update(upper="1e999999999"),
    lambda c: c["claims"]["rho"].update(upper="1" * 50_000),
    lambda c: c["claims"]["rho"].update(upper="1/0"),
    lambda c: c["claims"]["rho"].update(upper=True),
    lambda c: c["claims"]["rho"].update(point={"x": "nan", "y": 0}),
    lambda c: c["claims"]["rho"].update(point=[0, 0]),
    lambda c: c["claims"]["rho"].update(directions=[["0"]] * 3),
    lambda c: c["claims"]["rho"].update(directions="xyz"),
    lambda c: c["claims"]["mu"].update(covers={"g_yy 0": "9 . ."}),
    lambda c: c["claims"]["mu"].update(covers={"g_yy 0": "0 ."}),
    lambda c: c["claims"]["mu"].update(covers={"g_yy 0": "-1 . ."}),
    lambda c: c["claims"]["mu"].update(covers={"g_yy 0": "1/2 . ."}),
    lambda c: c["claims"]["mu"].update(covers={"g_yy 0": 7}),
    lambda c: c["box"].update(z=["0", "1"]),
    lambda c: c["box"].update(x=["1", "-1"]),
    lambda c: c["box"].pop("y"),
    lambda c: c.update(problem=c["problem"] + "[" * 10_000),
    lambda c: c.update(problem=c["problem"].replace("sin(x)", "__import__('os')")),
    lambda c: c.update(problem="x = 'x'\ny = 'y'\nf = '9**9**9'\ng = 'y**2'"),
    lambda c: c.update(kind="joint" if c["kind"] != "joint" else "block", claims={}),
    lambda c: c.pop("near"),
]


@pytest.mark.parametrize("change", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_entries_are_one_typed_error(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = changed(saved(TOY, "constants", tmp_path / "toy.json"), change)
    with pytest.raises(CertificateFailure):
        verify.recheck(path)


# ---- the command line --------------------------------------------------------------------------------------------


def test_the_command_line_says_what_is_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, mine = saved(TOY, "constants", tmp_path / "toy.json"), tmp_path / "mine.toml"
    mine.write_text(problem_text(TOY))
    assert main(["recheck", str(path), "--problem", str(mine)]) == 0
    assert "mu is in [1.9999999, 2.0000001]" in capsys.readouterr().out
    assert main(["recheck", str(path)]) == 0
    assert main(["recheck", str(path), "--problem", "zoo:scalar"]) == 1
    assert "not proved" in capsys.readouterr().err
    (tmp_path / "bad.json").write_text("{}")
    assert main(["recheck", str(tmp_path / "bad.json")]) == 2
    assert main(["recheck", str(path), "--problem", str(tmp_path / "none.toml")]) == 2
