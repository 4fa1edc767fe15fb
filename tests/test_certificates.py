"""Certificates for strangers: what is saved is proved again by a program that shares no code with the search."""

from __future__ import annotations

import ast
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy as sp
from flint import arb, arb_mat
from helpers import THOROUGH, calls_of
from test_piecewise_bounds import CORPUS, ROUGH, problem_of

import verify
from bilevel_sym import BilevelProblem, Box, StochasticProblem, evaluate, zoo
from bilevel_sym.certify.saved_certificate import problem_text
from bilevel_sym.cli import main
from bilevel_sym.errors import CertificateFailure, InvalidProblem
from verify.certificates import provable
from verify.certificates import recheck as program
from verify.points.stationary import search

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


@pytest.mark.slow
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


@pytest.mark.slow
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
    from bilevel_sym.problem.parsing import parse_expression

    x, y = sp.symbols("x y", real=True)
    expression = parse_expression(text, {"x": x, "y": y}).replace(
        lambda e: type(e).__name__ in ("softplus", "sigmoid"),
        lambda e: sp.log(1 + sp.exp(e.args[0])) if type(e).__name__ == "softplus" else 1 / (1 + sp.exp(-e.args[0])),
    )
    point = (sp.Rational(1, 3), sp.Rational(1, 5))
    problem = program.Problem(f'x = "x"\ny = "y"\nf = "{text}"\ng = "y**2"')
    at = program.variables(["x", "y"], [program.rational("1/3"), program.rational("1/5")], 5)
    wide = program.variables(["x", "y"], [arb(1) / 3 + arb(0, 0.01), arb("0.2") + arb(0, 0.01)], 5)
    jet, over = (problem.rows["f"][0].jet(place) for place in (at, wide))
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
        "Piecewise(x)", "Piecewise((x, y))", "Piecewise((x, x < y < 1))", "Piecewise((x, x == y))", "max(x=1)", "max(x)",
        "Piecewise((x, (x > 0) & (y > 0)), (0, True))", "Piecewise((x, ~(x > 0)), (0, True))", "x # y", "ｘ", "1j*x",
        "(" * 300 + "x" + ")" * 300, "", "abs()", "f'{x}'", "*x", "(x, y)", "x\\y", "nan", "inf*x",
    ],
)  # fmt: skip
def test_what_is_not_in_the_grammar_is_refused(text: str) -> None:
    def read() -> None:
        problem = program.Problem(f'x = "x"\ny = "y"\nf = {json.dumps(text)}\ng = "y**2"')
        problem.rows["f"][0].jet(program.variables(["x", "y"], [arb("0.3"), arb("0.4")], 1))

    with pytest.raises((program.Refused, *program.SPOILT)):
        read()


@pytest.mark.slow
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


@pytest.mark.slow
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


ZOO = ["scalar", "implicit_cubic", "lphi_witness", "minimax_nash", "minimax_not_nash", "ridge"]
ZOO_KINDS = ["constants", "joint", "smoothness", "stationary", "point"]
TOO_LONG = [("joint", "ridge"), ("smoothness", "ridge"), ("stationary", "ridge"), ("smoothness", "implicit_cubic")]


@pytest.mark.slow
@pytest.mark.in_ci(*(f"{kind}-{name}" for kind in ZOO_KINDS for name in ZOO if (kind, name) not in TOO_LONG))
@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("kind", ZOO_KINDS)
def test_the_zoo(tmp_path: Path, name: str, kind: str) -> None:
    problem = zoo.get(name).problem
    assert verify.recheck(saved(problem, kind, tmp_path / "x.json"), problem).sentences


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("saddle", "stationary"), ("robust_regression", "smoothness"), ("minimax_wells", "joint")]
)
def test_the_zoo_of_more_variables(tmp_path: Path, name: str, kind: str) -> None:
    problem = zoo.get(name).problem
    assert verify.recheck(saved(problem, kind, tmp_path / "x.json"), problem).boxes < 500


@pytest.mark.long
def test_a_long_search_is_proved_as_it_was_found(tmp_path: Path) -> None:
    found = verify.smoothness(zoo.get("saddle").problem, effort="quick")
    found.save(tmp_path / "x.json")
    for name, bracket in verify.recheck(tmp_path / "x.json").brackets.items():
        assert getattr(found, name).upper <= bracket.upper <= 1.001 * getattr(found, name).upper


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constants", "smoothness"])
@pytest.mark.parametrize("work", [0.0, 3e5])
def test_what_takes_too_much_work_is_claimed_wider_and_proved(
    kind: str, work: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end that is widened is never narrower than what was found, and the file can be proved again."""
    monkeypatch.setattr(provable, "WORK", work)
    monkeypatch.setattr(provable, "PHI_WORK", work)
    monkeypatch.setattr(provable, "FEWEST", 1)
    path = saved(CURVED, kind, tmp_path / "little.json")
    monkeypatch.undo()
    best = verify.recheck(saved(CURVED, kind, tmp_path / "much.json"), CURVED)
    less = verify.recheck(path, CURVED)
    assert less.boxes <= best.boxes
    for name, bracket in best.brackets.items():
        assert less.brackets[name].lower <= bracket.lower * (1 + 1e-9)
        assert less.brackets[name].upper >= bracket.upper * (1 - 1e-9)
    if work == 0.0:
        assert any(less.brackets[name] != best.brackets[name] for name in best.brackets)


def test_an_end_that_is_not_seen_to_be_reached_is_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = program.Checker.attained

    def unseen(self: program.Checker, name: str, *more: Any) -> None:
        if name in missed:
            raise program.NotProved(name)
        reached(self, name, *more)

    monkeypatch.setattr(program.Checker, "attained", unseen)
    missed = {"rho"}
    path = saved(TOY, "constants", tmp_path / "toy.json")
    monkeypatch.undo()
    brackets = verify.recheck(path, TOY).brackets
    assert brackets["rho"].lower == 0 < brackets["rho"].upper
    assert brackets["ell"].lower > 1.9
    monkeypatch.setattr(program.Checker, "attained", unseen)
    missed = {"mu"}
    with pytest.raises(CertificateFailure, match="nothing was saved"):
        saved(TOY, "constants", tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


def test_pieces_that_take_too_much_work_are_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provable, "POINTS_WORK", 0.0)
    monkeypatch.setattr(provable, "FEWEST", 1)
    path = saved(TOY, "stationary", tmp_path / "toy.json")
    content = json.loads(path.read_text())
    assert content["undecided"]
    proved = verify.recheck(path, TOY)
    assert f"outside of {len(content['undecided'])} open boxes" in proved.sentences[-1]


def test_a_point_that_the_checker_does_not_find_is_in_an_open_box(tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    found = search(TOY)
    assert [point.kind for point in found.points] == ["local minimum"]
    wrong = replace(found, points=(replace(found.points[0], kind="saddle"),))
    wrong.save(path)
    assert [point["kind"] for point in json.loads(path.read_text())["points"]] == ["undecided"]
    elsewhere = replace(found, points=(replace(found.points[0], x=(0.5,), box=Box({"x": ("0.4", "0.6")})),))
    elsewhere.save(path)
    content = json.loads(path.read_text())
    assert not content["points"]
    # and the point that the search is made to have missed is not proved away
    assert any(Fraction(low) <= 0 <= Fraction(high) for low, high in (box["x"] for box in content["undecided"]))
    assert verify.recheck(path, TOY).boxes > 0


@pytest.mark.slow
def test_the_problem_of_the_consumer_is_the_one_that_counts(tmp_path: Path) -> None:
    path = saved(TOY, "smoothness", tmp_path / "toy.json")
    forged = changed(
        saved(TOY, "smoothness", tmp_path / "forged.json"),
        lambda c: c.update(problem=c["problem"].replace("sin(x)", "cos(x)")),
    )
    mine = tmp_path / "mine.toml"
    mine.write_text(problem_text(TOY))
    for own in (TOY, mine):
        assert verify.recheck(path, own).own
        with pytest.raises(CertificateFailure, match="a certificate of another problem"):
            verify.recheck(forged, own)
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


# ---- functions written in pieces ---------------------------------------------------------------------------------

KINDS = ("constants", "joint", "smoothness", "stationary", "point")
QUICK = {
    ("fifth power of abs", "constants"), ("exponential at another knot", "constants"),
    ("two clips", "point"), ("nested in another variable", "stationary"),
}  # fmt: skip
TEXTS = [name for name in CORPUS if name != "and"]  # whose condition no problem file can hold
EVERY = [(name, kind) for name in TEXTS for kind in KINDS]
# each function by one kind and each kind by six functions; all with --hypothesis-profile=thorough
PAIRS = EVERY if THOROUGH else [pair for k, pair in enumerate(EVERY) if k % 6 == 0 or pair in QUICK]
IN_CI = [f"{name}-{kind}" for name, kind in PAIRS if not name.startswith("smoothstep")]


def test_what_no_problem_file_can_hold_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(InvalidProblem, match="cannot be written as text"):
        saved(problem_of(*CORPUS["and"]), "point", tmp_path / "x.json")


@pytest.mark.in_ci(*IN_CI)
@pytest.mark.parametrize(
    ("name", "kind"), [pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow) for pair in PAIRS]
)
def test_pieces_that_agree_are_proved_again(tmp_path: Path, name: str, kind: str) -> None:
    problem = problem_of(*CORPUS[name])
    assert verify.recheck(saved(problem, kind, tmp_path / "x.json"), problem).sentences


@pytest.mark.slow
def test_a_third_derivative_that_vanishes_is_claimed_to_what_can_be_proved(tmp_path: Path) -> None:
    """Phi = x y* with x - 2 y* constant, so that Phi''' = 0: what the search says of it, 6e-27, is rounding."""
    found = verify.smoothness(problem_of(*CORPUS["clip of a linear form"]), effort="quick")
    found.save(tmp_path / "x.json")
    claims = json.loads((tmp_path / "x.json").read_text())["claims"]
    assert found.rho_phi.upper < 1e-20
    assert 1e-9 < float(claims["rho_phi"]["upper"]) < 1e-7 * float(claims["L_phi"]["upper"])


EXPANDED = ("exp(x*y) + sin(3*x)*y**2", "35*(x + y/2)**4 - 84*(x + y/2)**5", "1/(3 + x) - softplus(x - y)*x")


def around(corners: list[list[arb]]) -> arb:
    """The hull of what is expanded, of one entry."""
    return reduce(arb.union, (corner[0] for corner in corners))


@pytest.mark.parametrize("text", EXPANDED)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_taylors_formula_holds_all_points(text: str, order: int) -> None:
    """Derivatives over a box, from those in its centre and a remainder, hold those at points."""
    row = program.Row(program.parsed(text), ["x", "y"], {})
    rng, indices = random.Random(text), [(0,), (1,), (0, 1)]
    for index in indices:
        low = [program.rational(f"{rng.randint(-9, 9)}/10") for _ in "xy"]
        box = tuple((a, a + program.rational("1/10")) for a in low)
        ((_, formula),) = row.formulas(box, [index])
        over = around(program.expanded(formula, box, [index], order)[0])
        for _ in range(30):
            point = tuple((a + (b - a) * program.rational(f"{rng.randint(0, 8)}/8"),) * 2 for a, b in box)
            assert over.overlaps(arb(program.hull(row.formulas(point, [index])).at(*index))), (text, point)


@pytest.mark.parametrize(
    "g", ["y1**4/4 + y1**2/2 + y2**2 - x1*y1 - x2*y2", "exp(y1 - x2) + y1**2 + (y2 - sin(x1)*y1)**2"]
)
def test_phi_over_a_box_holds_it_at_points(g: str) -> None:
    """y* and the derivatives of Phi, over wide boxes and narrow ones; what cannot be enclosed is not."""
    text = f'x = ["x1", "x2"]\ny = ["y1", "y2"]\nf = "x1*y2 + y1**2*x2"\ng = "{g}"\n'
    rng, held = random.Random(g), 0
    for width in ("2", "1", "1/2", "1/4", "1/8", "1/50"):
        low = [program.rational(f"{rng.randint(-9, 9)}/10") for _ in range(2)]
        box = tuple((a, a + program.rational(width)) for a in low)
        try:
            over = program.Problem(text).jet(box, 3)
        except ArithmeticError:
            continue
        y, shares = program.Problem(text).y_star(box), [program.rational(f"{k}/4") for k in (0, 1, 4)]
        for point in (
            tuple((a + (b - a) * s,) * 2 for (a, b), s in zip(box, at, strict=True)) for at in product(shares, shares)
        ):
            problem, held = program.Problem(text), held + 1
            inner = problem.jet(point, 3)
            assert all(map(arb.overlaps, y.entries(), problem.y_star(point).entries()))
            for index in [(), (0,), (0, 1), (1, 1), (0, 0, 1)]:
                assert arb(over.at(*index)).overlaps(arb(inner.at(*index))), (width, index)
    assert held >= 27


def test_taylors_formula_tells_more_where_intervals_forget() -> None:
    u = "(x + y/2)"
    row = program.Row(program.parsed(f"35*{u}**4 - 84*{u}**5 + 70*{u}**6 - 20*{u}**7"), ["x", "y"], {})
    box = tuple((program.rational("4/10"), program.rational("45/100")) for _ in "xy")
    ((jet, formula),) = row.formulas(box, [(0, 0)])
    radii = [around(program.expanded(formula, box, [(0, 0)], order)[0]).rad() for order in (1, 2, 3)]
    assert radii[2] < radii[1] < radii[0] < arb(jet.at(0, 0)).rad() / 3
    assert radii[2] < radii[0] / 3


def test_each_formula_is_expanded_alone_across_its_edge() -> None:
    """At an edge the hull has no further derivatives; each side has, as if it held all over the box."""
    row = program.Problem(text_of("Piecewise((x**4*(1 + y), x > 0), (-x**5, True)) - x*y")).rows["f"][0]
    box = tuple((program.rational(a), program.rational(b)) for a, b in (("-1/8", "1/4"), ("0", "1/8")))
    pairs = row.formulas(box, [(0, 0)])
    ends = [around(program.expanded(formula, box, [(0, 0)], 3)[0]) for _, formula in pairs]
    low, high = sorted(ends, key=lambda ball: float(ball.mid()))
    assert low.contains(-20 * arb(1) / 64)  # -20 x**3 at x = 1/4, where the other formula holds
    assert high.contains(12 * arb(9) / 128)  # 12 x**2 (1 + y) at x = 1/4, y = 1/8
    assert not high.contains(-20 * arb(1) / 64)
    with pytest.raises(ArithmeticError, match="do not agree"):
        row.jet(program.variables(["x", "y"], program.balls(box), 5))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["block", "joint", "smoothness"])
def test_derivatives_along_an_edge_do_not_count(tmp_path: Path, kind: str) -> None:
    """x**3*y has a jump in its third derivative by x: g_xxxy is bounded, g_xxxxy would not be; x**2*y is too rough."""
    for term, smooth in (("x**3*y/50", True), ("x**2*y/50", False), ("y**3/50", False), ("y**4/50", True)):
        name = "x" if "x" in term else "y"
        text = text_of(g=f"Piecewise(({term}, {name} > 0), (0, True))")
        assert accepts(vague(kind), text, tmp_path / "x.json") is smooth, term


def test_powers_of_e_are_powers_of_one_number() -> None:
    for term in ("E**4*exp(-2) - exp(2)", "exp(1/2)**2 - E", "exp(-3/4)*E - exp(1/4)", "exp(y)*exp(-y) - 1"):
        jets(f"Piecewise(((x - E)**5 + {term}, x > E), (0, True))", 5, (2.7, 0.1))
        with pytest.raises(ArithmeticError, match="do not agree"):
            jets(f"Piecewise(((x - E)**5 + 2*{term}, x > E), (0, True))", 1, (2.7, 0.1))  # of its first factor alone


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constants", "joint", "smoothness", "stationary", "point"])
def test_the_tube(tmp_path: Path, kind: str) -> None:
    """Irrational edges and coefficients."""
    problem = zoo.get("tube", d=1).problem
    assert verify.recheck(saved(problem, kind, tmp_path / "x.json"), problem).sentences


def text_of(f: str = "", g: str = "") -> str:
    return f'x = "x"\ny = "y"\nf = "x*y + {f or 0}"\ng = "y**2 - x*y + {g or 0}"\n'


def vague(kind: str) -> dict[str, Any]:
    """A certificate that is true of all smooth f and g here: each number is between 0 and 10 000."""
    claim: dict[str, Any] = {"lower": "0", "upper": "10000", "at": "", "covers": {}}
    claims = {name: dict(claim) for name in program.BLOCKS[kind]}
    if "mu" in claims:
        point: dict[str, Any] = {"point": {"x": "1/7", "y": "1/7"}, "directions": [["1"], ["1"]]}
        claims["mu"] |= {"lower": "-10000", "at": "g_yy 0", **point}
    box = {"x": ["-1", "1"], "y": ["-2", "2"]} if kind != "smoothness" else {"x": ["-1", "1"]}
    return {"format": "bilevel-sym/saved/1", "kind": kind, "problem": "", "near": {}, "box": box, "claims": claims}


def accepts(content: dict[str, Any], text: str, path: Path) -> bool:
    path.write_text(json.dumps(content))
    try:
        program.prove(path, text)
    except (program.NotProved, program.Refused):
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["block", "joint", "smoothness"])
def test_vague_certificates_are_accepted_of_what_is_smooth(tmp_path: Path, kind: str) -> None:
    """So that nothing but the edges can be why others are refused."""
    for name in ("abs in both", "one-sided quartic", "nested", "bump on a disc", "cosine and its Taylor polynomial"):
        assert accepts(vague(kind), problem_text(problem_of(*CORPUS[name])), tmp_path / "x.json"), name


ROUGH_TEXTS = {name: problem_text(problem_of(f, g)) for name, (f, g, _) in ROUGH.items()} | {
    "third value": text_of("Piecewise((x**5, x < 0), (0, x > 0), (1, True))"),
    "third value inside a branch": text_of("Piecewise((x**5, x < 0), (Piecewise((1, x <= 0), (0, True)), True))"),
    "two edges, one rough": text_of("abs(x)**5 + abs(y)*y"),
    "rough only where both edges meet": text_of("Piecewise((x**5, x > 0), (0, True))*Piecewise((1, y > 0), (0, True))"),
    "rough edge beside a smooth one": text_of("Piecewise((x**4, x > 0), (0, True)) + Piecewise((x**2, 0 < 3*x), (0, True))"),
    "edge that jumps": text_of("Piecewise((x**4, Piecewise((x, y > 0), (x + 1, True)) > 0), (0, True))"),
    "factor beside its own pole": text_of("Piecewise((x**4*(x*(1 + y**2))**-4, x > 0), (0, True))"),
    "curved edge": text_of("max(y - x**2, 0)**2*exp(x)"),
    "edge with a function": text_of("max(y - sin(x), 0)"),
    "edge at an irrational place": text_of("abs(x - pi/4)"),
    "a function that is not what it seems": text_of(g="Piecewise((sin(y), y > 0), (tanh(y), True))/9"),  # y - y**3/6, y - y**3/3
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", ROUGH_TEXTS)
def test_pieces_that_do_not_agree_are_not_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """And the one reason is contact: a checker that takes it for granted accepts them, where all formulas exist."""
    for kind in ("block", "joint", "smoothness"):
        assert not accepts(vague(kind), ROUGH_TEXTS[name], tmp_path / "x.json"), kind
    monkeypatch.setattr(program.Row, "contact", lambda *_: 5)
    assert accepts(vague("block"), ROUGH_TEXTS[name], tmp_path / "x.json") is (name != "factor beside its own pole")


def jets(term: str, order: int, x: Any = (0, 1), y: Any = (0, 1)) -> Any:
    row = program.Problem(text_of(term)).rows["f"][0]
    return row.jet(program.variables(["x", "y"], [arb(*x), arb(*y)], order))


@pytest.mark.parametrize("k", range(5))
def test_the_order_of_contact_is_exact(k: int) -> None:
    taylor = " + ".join(f"x**{j}/{math.factorial(j)}" for j in range(k + 1))
    for term in (
        f"Piecewise((x**{k + 1}, x > 0), (0, True))", f"Piecewise((y*(x - y)**{k + 1}, x > y), (0, True))",
        f"exp(max(x + 2*y, 0)**{k + 1}/9)", f"Piecewise((exp(x), x < 0), ({taylor}, True))",
        f"Piecewise(((x**2 + y**2 - 1/9)**{k + 1}*cos(x), x**2 + y**2 < 1/9), (0, True))",
        f"max(y - x**2, 0)**{k + 1}", f"sqrt(30 + max(x - pi/4, 0)**{k + 1})",
    ):  # fmt: skip
        jets(term, k + 1)
        with pytest.raises(ArithmeticError, match="do not agree"):
            jets(term, k + 2)


def test_what_agrees_in_other_words() -> None:
    """One edge in two forms, a third value that is right, an edge that jumps elsewhere."""
    for term in (
        "Piecewise((x, x > 0), (0, True)) - Piecewise((x, 0 < 2*x), (0, True))", "abs(x) - max(x, -x)",
        "abs(x - y) + abs(3*y - 3*x) - 8*max(x, y) + 4*x + 4*y", "abs(sin(x) - y) - abs(y - sin(x))",
        "Piecewise((x**6, x < 0), (0, x > 0), (x*y, True))", "Piecewise((x**6, x < 0), (0, x >= 0))",
        "Piecewise((Piecewise((x**6*y**6, y > 0), (0, True)), x > 0), (0, True))",
    ):  # fmt: skip
        assert all(arb(c).is_finite() for part in jets(term, 5).parts for c in part.values()), term
    jumping = "Piecewise((x**5, Piecewise((x, y > 0), (x + 1, True)) > 0), (0, True))"
    jets(jumping, 5, (0, 0.1), (1, 0.1))
    for place in (-0.5, 0):
        with pytest.raises(ArithmeticError):
            jets(jumping, 1, (place, 0.1), (0, 0.1))


def test_the_hull_holds_both_sides() -> None:
    jet = jets("Piecewise((x**5, x > 0), (y**2, True)) - Piecewise((0, x > 0), (y**2, True))", 5, (0, 0.5), (1, 0))
    assert arb(jet.at(0, 0, 0, 0, 0)).contains(0)
    assert arb(jet.at(0, 0, 0, 0, 0)).contains(120)


@pytest.mark.parametrize(
    ("f", "g", "exists"),
    [
        ("abs(x)**3", "", True), ("abs(x)**5", "abs(y)**5", True), ("abs(x)*x", "", False), ("abs(x)", "", False),
        ("Piecewise((x**2, x > 0), (0, True))", "", False), ("Piecewise((1, x > 0), (0, True))", "", False),
        ("Piecewise((0, x < 0), (0, x > 0), (1, True))", "", False), ("y*abs(y)", "", False), ("", "abs(y)*y/9", False),
    ],
)  # fmt: skip
def test_a_point_exactly_on_an_edge(tmp_path: Path, f: str, g: str, exists: bool) -> None:
    """Each number is claimed to within 100, so that what is refused is a derivative that does not exist."""
    claims = {name: ["0", "100"] for name in ("y*", "Phi", "dPhi/dx", "d2Phi/dxdx")}
    content = vague("smoothness") | {"kind": "point", "bits": 100, "box": {"x": ["0", "0"]}, "claims": claims}
    assert accepts(content, text_of(f, g), tmp_path / "x.json") is exists


def test_a_hull_of_one_side_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, text = vague("block"), text_of(g="Piecewise((y**4/20, y > 0), (0, True))")
    content["claims"]["nu"]["upper"] = "1.1"  # it is 1.2
    assert not accepts(content, text, tmp_path / "x.json")
    monkeypatch.setattr(program.Jet, "union", lambda one, other: min(one, other, key=lambda jet: len(jet.parts[-1])))
    assert accepts(content, text, tmp_path / "x.json")


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


NAMED: dict[str, Callable[[dict[str, Any]], object]] = {
    "'claims' is missing, or no table": lambda c: c.update(claims=[1]),
    "'near' is missing, or no table": lambda c: c.update(near="0"),
    "'box' is missing, or no table": lambda c: c.pop("box"),
    "'problem' is missing, or no str": lambda c: c.update(problem={"f": "x"}),
    "'kind' is missing, or no str": lambda c: c.update(kind=None),
    "'x' is missing, or no list": lambda c: c["box"].update(x="01"),
    "'upper' is missing, or no str": lambda c: c["claims"]["rho"].update(upper=[1]),
    "'at' is missing, or no str": lambda c: c["claims"]["rho"].pop("at"),
    "'covers' is missing, or no table": lambda c: c["claims"]["mu"].update(covers=["."]),
    "'g_yy 0' is missing, or no str": lambda c: c["claims"]["mu"].update(covers={"g_yy 0": [1]}),
    "mu has more than 500000 cuts": lambda c: c["claims"]["mu"].update(covers={"g_yy 0": "0 " * 4_000_000}),
    "the format is unknown": lambda c: c.update(format="bilevel-sym/saved/2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("told", NAMED)
def test_what_is_wrong_is_named_before_anything_is_built(tmp_path: Path, told: str) -> None:
    path = changed(saved(TOY, "constants", tmp_path / "toy.json"), NAMED[told])

    def refused() -> None:
        with pytest.raises(CertificateFailure, match=told):
            verify.recheck(path)

    assert calls_of(refused) < 20_000


def test_many_points_are_counted(tmp_path: Path) -> None:
    path = saved(TOY, "stationary", tmp_path / "toy.json")
    changed(path, lambda c: c.update(undecided=[{"x": ["5", "6"]}] * 2001))
    with pytest.raises(CertificateFailure, match="more than 2000 points"):
        verify.recheck(path)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """A device would fill the memory, a pipe without a writer would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "long").open("wb") as file:
        file.truncate(2**24 + 1)  # takes no room on the disk
    mine = saved(TOY, "point", tmp_path / "toy.json")
    for odd in ("/dev/zero", tmp_path / "pipe", tmp_path / "long", tmp_path, tmp_path / "none"):
        with pytest.raises(CertificateFailure, match="it is no file of at most 16 MB"):
            verify.recheck(odd)
        with pytest.raises(InvalidProblem, match="it is no file of at most 16 MB"):
            verify.recheck(mine, odd)
    for kind in (3, None, b"\xff"):
        with pytest.raises(CertificateFailure):
            verify.recheck(kind)  # type: ignore[arg-type]


def test_another_problem_is_refused_even_if_what_is_claimed_is_true_of_it(tmp_path: Path) -> None:
    half = BilevelProblem("x*y/2", "y**2 - sin(x)*y/2", "x", "y", box=TOY.box)
    path = changed(saved(half, "constants", tmp_path / "half.json"), lambda c: [
        claim.update(upper="9", lower="0") for name, claim in c["claims"].items() if name != "mu"
    ])  # fmt: skip
    assert verify.recheck(path).brackets["ell"].upper == 9
    for mine in (TOY, BilevelProblem("x*y/2", "y**2 - sin(x)*y/2 + y", "x", "y")):
        with pytest.raises(CertificateFailure, match="of another problem: its"):
            verify.recheck(path, mine)
    with pytest.raises(CertificateFailure, match="the variables or the data are others"):
        verify.recheck(path, BilevelProblem("z*y/2", "y**2 - sin(z)*y/2", "z", "y"))
    otherwise = BilevelProblem("(x*y + 0*x)/2", "-y*sin(x)/2 + y*y", "x", "y")  # the same, said in another way
    assert verify.recheck(path, otherwise).own


@pytest.mark.slow
@pytest.mark.parametrize("change", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_entries_are_one_typed_error(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = changed(saved(TOY, "constants", tmp_path / "toy.json"), change)
    with pytest.raises(CertificateFailure):
        verify.recheck(path)


# ---- sums of what bends along one line --------------------------------------------------------------------------


def ridge_sum(rng: random.Random, n: int) -> str:
    """Convex and concave functions of linear forms, some weighted by x, some of the form that intervals know."""
    terms = []
    for _ in range(rng.randint(1, 5)):
        line = " + ".join(f"{rng.randint(-3, 3)}*y{j + 1}" for j in range(n)) + f" - {rng.choice(['x', 'sin(x)', '2'])}"
        function = rng.choice(
            ["softplus({})", "exp(({})/9)", "({})**2", "cosh(({})/5)", "sin({})", "({})**3", "tanh({})"]
        )
        weight = rng.choice(["1", "exp(x)", "1/3", "(2 + x)/5", "y1"])
        terms.append(f"{rng.choice('+-')} {weight}*{function.format(line)}{rng.choice(['', '/7', '*2'])}")
    return " ".join([*(f"+ y{j + 1}**2*{rng.randint(1, 9)}" for j in range(n)), *terms])


@pytest.mark.parametrize("seed", range(40))
def test_a_bound_by_sums_is_never_above_a_curvature(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(1, 3)
    names = ["x", *(f"y{j + 1}" for j in range(n))]
    row = program.Row(program.parsed(ridge_sum(rng, n)), names, {})
    ends = [
        (low := program.rational(f"{rng.randint(-9, 9)}/5"), low + program.rational(f"{rng.randint(0, 6)}/5"))
        for _ in names
    ]
    box, own = tuple(ends), range(1, n + 1)
    points = [tuple((a + (b - a) * program.rational(f"{rng.randint(0, 8)}/8"),) * 2 for a, b in box) for _ in range(20)]
    least = min(
        np.linalg.eigvalsh([[float(arb(jet.at(i, j)).mid()) for j in own] for i in own])[0]
        for jet in (program.hull(row.formulas(point, [(i, j) for i in own for j in own])) for point in points)
    )
    assert not row.is_above(box, own, arb(-(least + 1e-6 * (1 + abs(least)))))
    if all(a == b for a, b in box):
        assert row.is_above(box, own, arb(-(least - 1e-6 * (1 + abs(least)))))


def test_one_line_is_seen_where_intervals_see_a_box() -> None:
    text = "softplus(3*y1 + 2*y2 - x)/4 + softplus(y1 - 5*y2 + x) + exp(x)*y1**2/2 + (y1**2 + y2**2)/20"
    row = program.Row(program.parsed(text), ["x", "y1", "y2"], {})
    box = tuple((program.rational(-3), program.rational(3)) for _ in range(3))
    jet = program.hull(row.formulas(box, [(i, j) for i in range(3) for j in range(3)]))
    assert not program.definite(arb_mat([[arb(jet.at(i, j)) for j in (1, 2)] for i in (1, 2)]))
    assert row.is_above(box, (1, 2), arb(-0.0999))
    assert not row.is_above(box, (1, 2), arb(-0.2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constants", "point"])
def test_logistic_regression(tmp_path: Path, kind: str) -> None:
    problem = zoo.get("logistic").problem
    assert verify.recheck(saved(problem, kind, tmp_path / "x.json"), problem).sentences


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
