"""LaTeX that compiles, names that cannot escape, and source that runs alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
from helpers import SHAPES, Solved, logistic, solved_problems
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, Derivation, MinimaxProblem, derive, derive_generic, zoo
from bilevel_sym.errors import InvalidProblem, TooLarge
from bilevel_sym.graph.operations import IN_TEXT
from bilevel_sym.symbolic.display import text_lines

SCALAR = BilevelProblem("x1*y1 + x2**2*y1", "(2 + cos(x2))*y1**2/2 - x1*y1", "x1 x2", "y1")
HOSTILE = (
    r"\input{/etc/passwd}",
    "a$b",
    "x y",
    "%",
    "α",
    "a_b_c_",
    "}{",
    "^^41",
    "x#1",
    "&",
    "~",
    "",
)


def balanced(latex: str) -> bool:
    depth = 0
    plain = latex.replace(r"\{", "").replace(r"\}", "")
    for c in plain:
        depth += (c == "{") - (c == "}")
        if depth < 0:
            return False
    return (
        depth == 0
        and plain.count(r"\left") == plain.count(r"\right")
        and plain.count(r"\begin") == plain.count(r"\end")
    )


def samples() -> dict[str, str]:
    """Every kind of LaTeX that we print, by name."""
    cubic = BilevelProblem("x*y", "y**2/2 + y**4/4 - x*y", "x", "y")
    names = [sp.Symbol(name) for name in HOSTILE if name]
    odd = BilevelProblem(sp.Add(*names), names[0] ** 2 / 2 - names[1] * names[0], names[1:], names[:1])
    derivations: dict[str, Derivation] = {
        "scalar": derive(SCALAR), "implicit": derive(SCALAR, closed_form=False), "cubic": derive(cubic),
        "odd": derive(odd), "generic": derive_generic(2, 2), "wide": derive(logistic(5, 2)),
        "minimax": derive(MinimaxProblem("x*y - y**2", "x", "y")),
        "tube": derive(zoo.get("tube", d=2).problem),
    }  # fmt: skip
    found = {f"{name} blocks": derivation.latex(form="blocks") for name, derivation in derivations.items()}
    found |= {f"{name} summary": derivation._repr_latex_().strip("$\n") for name, derivation in derivations.items()}
    written_out = {name: derivation for name, derivation in derivations.items() if name != "wide"}
    found |= {f"{name} entries": derivation.latex() for name, derivation in written_out.items()}
    found |= {f"{name} terms": derivation.latex(form="terms") for name, derivation in written_out.items()}
    return found


@pytest.mark.slow
def test_latex_is_balanced() -> None:
    for name, latex in samples().items():
        assert balanced(latex), name
        assert re.match(r"(% .*\n)?\\begin{aligned}", latex), name  # a comment says why there is no closed form


@pytest.mark.slow
def test_latex_compiles(tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed; Debian: texlive-latex-base")
    body = "\n".join(f"\\[{latex}\\]" for latex in samples().values())
    document = "\\documentclass{article}\\usepackage{amsmath,amssymb}\\begin{document}\n" + body + "\n\\end{document}"
    (tmp_path / "all.tex").write_text(document)
    run = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "all.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-1500:]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logistic", "hyper_cleaning"])
def test_what_would_fill_books_is_shown_in_matrix_notation(name: str) -> None:
    derivation = zoo.get(name).problem.derivation
    for form in ("entries", "terms"):
        with pytest.raises(TooLarge, match=r"written out has [\d,]+ symbols"):
            derivation.latex(form=form)
    assert derivation._repr_latex_() == f"$$\n{derivation.latex(form='blocks')}\n$$"
    text = "\n".join(text_lines(derivation))
    assert "hess_phi = L_xx" in text
    assert len(text) < 2_000_000


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
def test_names_are_quoted(name: str) -> None:
    odd, y = sp.Symbol(name), sp.Symbol("y")
    latex = derive(BilevelProblem(odd * y, y**2 / 2 - odd * y, [odd], [y])).latex()
    assert balanced(latex)
    assert r"\input{" not in latex
    assert latex.isascii()


def test_readable_names_are_left_to_sympy() -> None:
    latex = derive(BilevelProblem("alpha1*y", "y**2/2 - alpha1*y", "alpha1", "y")).latex()
    assert r"\alpha_{1}^{2}" in latex


# ---- source -----------------------------------------------------------------------------------------


def run_alone(source: str, point: list[float]) -> dict[str, Any]:
    """The module in a process of its own that cannot import ours."""
    call = f"\nimport json\nprint(json.dumps({{k: np.asarray(globals()[k]({point})).tolist() for k in ('y_star', 'phi', 'grad_phi', 'hess_phi')}}))"
    block = "import sys\nsys.modules['bilevel_sym'] = sys.modules['sympy'] = None\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block + source + call],
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def exec_source(source: str) -> dict[str, Any]:
    module: dict[str, Any] = {}
    exec(source, module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["auto", False])
def test_source_runs_alone(closed: Any) -> None:
    derivation = derive(SCALAR, closed_form=closed)
    got = run_alone(derivation.source("numpy"), [0.3, -0.2])
    exact = derive(SCALAR)
    at = {s: sp.Rational(v) for s, v in zip(SCALAR.x, ("3/10", "-1/5"), strict=True)}
    np.testing.assert_allclose(got["phi"], float(exact.phi.subs(at)), rtol=1e-13)
    np.testing.assert_allclose(got["grad_phi"], np.array(exact.grad_phi.subs(at).evalf(20), float).ravel(), rtol=1e-13)
    np.testing.assert_allclose(got["hess_phi"], np.array(exact.hess_phi.subs(at).evalf(20), float), rtol=1e-13)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=20)
@given(solved=st.sampled_from(SHAPES).flatmap(lambda s: solved_problems(*s)))
def test_source_blocks_give_the_numbers_of_the_formulas(solved: Solved) -> None:
    problem, point = solved.problem, solved.solution
    module = exec_source(derive(problem, closed_form=False).source("numpy"))
    x, y = ([float(point[s]) for s in group] for group in (problem.x, problem.y))
    for name in ("f_x", "f_y", "g_y", "g_xy", "g_yy"):
        exact = np.array(problem.derivation.blocks[name].subs(point).evalf(20), float)
        got = module[name](x, y)
        np.testing.assert_allclose(got.reshape(exact.shape), exact, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(
    "name",
    ["scalar", "saddle", "implicit_cubic", "quadratic", "logistic", "minimax_not_nash", "ridge"],
)
def test_source_of_zoo_problems_agrees_with_the_known_answers(name: str) -> None:
    example = zoo.get(name)
    module = exec_source(example.problem.derivation.source("numpy"))
    point = [0.25] * example.problem.d
    hessian = module["hess_phi"](point)
    step = 1e-6
    for i in range(example.problem.d):
        ahead, behind = ([v + s * (j == i) for j, v in enumerate(point)] for s in (step, -step))
        slope = (module["grad_phi"](ahead) - module["grad_phi"](behind)) / (2 * step)
        np.testing.assert_allclose(hessian[i], slope, rtol=1e-6, atol=1e-7)
    if example.phi is not None:
        exact = example.phi.subs(dict.fromkeys(example.problem.x, sp.Rational(1, 4)))
        np.testing.assert_allclose(module["phi"](point), float(exact), rtol=1e-12)


@pytest.mark.parametrize(
    "names",
    [("np", "f"), ("sin", "import"), ("a b", "__import__('os')"), ("x", "y"), ("v1", "lambda")],
)
def test_hostile_or_clashing_names_never_reach_the_source(names: tuple[str, str]) -> None:
    a, b = map(sp.Symbol, names)
    source = derive(BilevelProblem(a * b + sp.sin(a), b**2 / 2 - a * b, [a], [b])).source("numpy")
    assert "__import__" not in source
    assert exec_source(source)["phi"]([0.5]) == pytest.approx(0.25 + np.sin(0.5))


def test_every_function_of_the_grammar_has_numbers() -> None:
    arguments = {0: "", 1: "2 + x", 2: "x, y/3"}
    functions = " + ".join(f"{name}({arguments[record.arity]})" for name, record in IN_TEXT.items())
    f = f"{functions} + sqrt(2 + x) + Piecewise((x**2, x < 1/4), (pi*x, True)) + E + 0.1"
    problem = BilevelProblem(f, "y**2/2 - x*y", "x", "y")
    exact = float(problem.derivation.phi.subs({problem.x[0]: sp.Rational(1, 2)}).evalf(20))
    module = exec_source(problem.derivation.source("numpy"))
    assert module["phi"]([0.5]) == pytest.approx(exact, rel=1e-14)
    assert np.isfinite(module["hess_phi"]([0.5])).all()


def test_softplus_does_not_overflow_in_the_source() -> None:
    problem = BilevelProblem("softplus(1000*y) + sigmoid(-1000*y)", "y**2/2 - x*y", "x", "y")
    module = exec_source(problem.derivation.source("numpy"))
    with np.errstate(all="raise", under="ignore"):
        assert module["phi"]([3.0]) == 3000.0


def source_of(f: str, g: str, *, closed: Any = "auto", **box: tuple[object, object]) -> dict[str, Any]:
    problem = BilevelProblem(f, g, "x", "y", box=box or None)
    return exec_source(derive(problem, closed_form=closed).source("numpy"))


@pytest.mark.parametrize("at", [1.5, 2.0, -3.0])
def test_newton_stays_on_the_side_of_a_pole_that_the_box_names(at: float) -> None:
    y = source_of("y**2 + x", "1/y**2 + x**2*y + y + y**2", x=(-5, 5), y=("1/100", 10))["y_star"]([at])[0]
    assert y > 0
    assert abs(-2 / y**3 + at**2 + 1 + 2 * y) < 1e-12


@pytest.mark.parametrize("g", ["y*log(y) - x*y", "y**2/2 - x*y - log(y)", "y**(3/2)*2/3 - x*y + y**2/9"])
def test_newton_does_not_start_on_a_singularity(g: str) -> None:
    module = source_of("y", g, closed=False)
    y = module["y_star"]([1.5])
    assert abs(module["g_y"]([1.5], y)[0]) < 1e-12
    assert module["g_yy"]([1.5], y)[0, 0] > 0


@pytest.mark.parametrize("at", [-1e8, -1e6, -1e4, -1.0, 0.0, 1.0, 1e8])
def test_cardano_keeps_its_digits_in_floats(at: float) -> None:
    y = source_of("y", "y**4/4 + y**2/2 - x*y")["y_star"]([at])[0]
    assert abs(y + y**3 - at) <= 1e-13 * abs(at)


@pytest.mark.parametrize("at", [0.0, 1e-16, 1e-12, 0.5, 30.0, -30.0])
def test_a_root_whose_leading_coefficient_vanishes_is_defined_there(at: float) -> None:
    y = source_of("y", "-log(y) - log(1 - y) - x*y")["y_star"]([at])[0]
    assert abs(-1 / y + 1 / (1 - y) - at) < 1e-12 * (1 + abs(at))


def test_a_minimiser_outside_the_box_is_an_error_and_not_a_number() -> None:
    module = source_of("y", "exp(y) + y**2 - x*y", x=(-100, 100), y=(-1, 1))
    with pytest.raises(ArithmeticError, match="no minimiser"):
        module["y_star"]([50.0])


def test_a_constant_beyond_float64_is_a_typed_error() -> None:
    problem = BilevelProblem("a*x*y", "y**2/2 - x*y", "x", "y", parameters={"a": "1e400"})
    with pytest.raises(InvalidProblem, match="larger than any float64"):
        problem.derivation.source("numpy")


def test_floats_are_printed_exactly() -> None:
    problem = BilevelProblem(sp.Float(0.1) * sp.Symbol("x"), "y**2/2 - x*y", "x", "y")
    assert "0.1*x_1" in problem.derivation.source("numpy")


def test_a_parameter_without_a_value_has_no_source() -> None:
    derivation = derive(BilevelProblem("m*y", "y**2/2 - x*y", "x", "y", parameters={"m": None}))
    with pytest.raises(InvalidProblem, match="parameters m have no value"):
        derivation.source("numpy")
    with pytest.raises(InvalidProblem, match="undefined functions"):
        derive_generic(1, 1).source("numpy")
