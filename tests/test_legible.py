"""Closed forms that nobody reads: shown by their blocks, computed by a linear solve, still there in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

from bilevel_sym import BilevelProblem, derive, evaluate
from bilevel_sym.cli import main
from bilevel_sym.errors import TooLarge
from bilevel_sym.graph.expressions import tree_size, written_size
from bilevel_sym.symbolic.legible import LEGIBLE, is_legible

X = sp.Symbol("x")


def ridge(rows: int, features: int, places: int) -> tuple[BilevelProblem, Any]:
    """A regression stated as a sum of squares of decimals, and its data."""
    rng = np.random.default_rng(features)
    table = rng.normal(size=(2, rows, features + 1)).round(places)
    names = [f"y{k}" for k in range(1, features + 1)]

    def squares(part: Any) -> str:
        sums = (" + ".join(f"({v:.{places}f})*{n}" for v, n in zip(row, names, strict=False)) for row in part)
        return " + ".join(f"({s} - ({row[-1]:.{places}f}))**2" for s, row in zip(sums, part, strict=True))

    penalty = " + ".join(f"{name}**2" for name in names)
    problem = BilevelProblem(squares(table[0]), f"{squares(table[1])} + exp(x)*({penalty})", "x", " ".join(names))
    return problem, table


@pytest.fixture(scope="module")
def wide() -> tuple[BilevelProblem, Any]:
    return ridge(24, 5, 15)


def phi_by_least_squares(table: Any, x: float) -> float:
    """Without a formula of ours: the lower level as one least squares problem, with rows for the penalty."""
    validation, training = table
    n = training.shape[1] - 1
    matrix = np.vstack([training[:, :n], np.exp(x / 2) * np.eye(n)])
    y = np.linalg.lstsq(matrix, np.append(training[:, n], np.zeros(n)), rcond=None)[0]
    return float(np.sum((validation[:, :n] @ y - validation[:, n]) ** 2))


def test_a_regression_on_many_rows_is_shown_by_its_blocks(wide: tuple[BilevelProblem, Any]) -> None:
    # DEFECT: 93 kB of exact digits
    derivation = derive(wide[0])
    text = derivation.text()
    assert len(str(derivation.y_star)) > 5000
    assert len(text) < 6000
    assert max(map(len, text.splitlines())) < 2 * LEGIBLE
    assert "  grad_phi = f_x - g_xy*v\n" in text
    assert "y* is not written out: an entry has " in text
    assert "derive(problem).y_star" in text
    assert derivation.is_closed_form


def test_the_advice_is_what_does_not_refuse(wide: tuple[BilevelProblem, Any]) -> None:
    # DEFECT: --format python, where the source was refused
    last = derive(wide[0]).text().splitlines()[-1]
    assert last.startswith("try: --format python")
    longer = derive(ridge(120, 8, 3)[0])
    with pytest.raises(TooLarge):
        longer.source()
    assert longer.text().splitlines()[-1].startswith("try: problem.kernels, which compute it; ")


def test_latex_says_why_and_how_to_have_the_entries(wide: tuple[BilevelProblem, Any]) -> None:
    latex = derive(wide[0]).latex()
    comment, rest = latex.split("\n", 1)
    assert comment.startswith("% in matrices: y* is not written out: an entry has ")
    assert 'form="entries"' in comment
    assert rest == derive(wide[0]).latex("blocks")


def test_short_formulas_are_written_as_they_were() -> None:
    derivation = derive(BilevelProblem("(y - 1)**2/2", "(y - 3)**2/2 + x*y**2/2", "x", "y"))
    assert derivation.latex() == derivation.latex("entries")
    assert "Phi(x) = " in derivation.text()
    assert "closed form" not in derivation.source()


@pytest.mark.parametrize("language", ["numpy", pytest.param("jax", marks=pytest.mark.slow)])
def test_source_solves_where_the_formula_is_left_out(language: str, wide: tuple[BilevelProblem, Any]) -> None:
    pytest.importorskip(language)
    problem, table = wide
    module: dict[str, Any] = {}
    exec(derive(problem).source(language), module)
    for x in (-2.0, 0.5):
        assert float(module["phi"](np.array([x]))) == pytest.approx(phi_by_least_squares(table, x), rel=1e-10)
    h = 1e-4
    slope = (phi_by_least_squares(table, 0.5 + h) - phi_by_least_squares(table, 0.5 - h)) / (2 * h)
    assert float(module["grad_phi"](np.array([0.5]))[0]) == pytest.approx(slope, rel=1e-5)


def test_constants_that_no_float_holds_are_not_in_the_way() -> None:
    # DEFECT: "a constant is larger than any float64", of y* alone: f and g hold 40 digits
    places = [f"{3 ** (80 + k)}/{10**40}" for k in range(9)]
    squares = " + ".join(f"(({a})*y{k % 9 + 1} - ({a})*y{(k + 1) % 9 + 1} - 1)**2" for k, a in enumerate(places))
    names = [f"y{k}" for k in range(1, 10)]
    g = squares + " + exp(x)*(" + " + ".join(f"{n}**2" for n in names) + ")"
    problem = BilevelProblem("y1 + y2**2", g, "x", " ".join(names))
    derivation = derive(problem)
    assert any(abs(q.p) > 10**310 for entry in derivation.y_star or () for q in entry.atoms(sp.Rational))
    module: dict[str, Any] = {}
    exec(derivation.source("numpy"), module)
    proved = evaluate(problem, ["1/10"], hessian=False, digits=15)
    assert module["grad_phi"](np.array([0.1])) == pytest.approx([float(proved.grad_phi[0])], rel=1e-6)


def test_the_command_prints_what_a_person_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ridge.toml"
    ridge(40, 2, 15)[0].save(path)
    sizes = {}
    for form in ("text", "latex"):
        assert main(["derive", str(path), "--format", form]) == 0
        sizes[form] = len(capsys.readouterr().out)
    assert max(sizes["text"], sizes["latex"]) < 4000


def test_what_is_legible_is_counted_in_digits_too() -> None:
    long = X + sp.Rational(10**300 + 1, 3**600)
    assert tree_size(long) == 3
    assert written_size(long) == len(str(long)) - len("+/") - 2 + 1
    assert is_legible([X + 10**300])
    assert not is_legible([long * X])
    assert written_size(sp.Integer(7) ** 10**5) > 80_000  # a text of more digits than Python would write
