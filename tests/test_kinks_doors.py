"""Every door says the same of a minimiser on a kink: which, and what is smooth in its place; formulas tell of kinks."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
from matplotlib.figure import Figure

from bilevel_sym import BilevelProblem, Box, Descent, Exact, derive, evaluate, solve, verify
from bilevel_sym.cli import main
from bilevel_sym.cli.records import derivation_record
from bilevel_sym.errors import BilevelError, CertificateFailure
from bilevel_sym.plotting import plot_landscape, plot_response
from bilevel_sym.problem.kinks import array_kinks, scalar_kinks
from bilevel_sym.symbolic.display import text_lines

BOX = {"x": (-2, 2), "y": (-3, 3)}
LASSO = BilevelProblem("(y - 1)**2 + x**2", "(y - x/4)**2/2 + abs(y)", "x", "y", box=BOX)  # y* = 0 for |x| <= 4
HINGE = BilevelProblem("(y - 1)**2", "max(1 - x*y, 0) + y**2/20", "x", "y", box={"x": (1, 2), "y": (-2, 2)})
ARRAY = BilevelProblem("sum((y - 1)**2)", "sum((y - x)**2)/2 + 3*sum(abs(y))", "x[2]", "y[2]", box=BOX)
AWAY = BilevelProblem("(y - 1)**2", "(y - x)**2/2 + abs(y)", "x", "y", box={"x": (2, 3), "y": (1, 3)})
INSTEAD = {
    "lasso": "in the place of abs(y)",
    "hinge": "in the place of max(-x*y + 1, 0)",
    "array": "in the place of abs(",
}
KINKED = {"lasso": LASSO, "hinge": HINGE, "array": ARRAY}

DOORS: dict[str, Callable[[BilevelProblem, list[float]], object]] = {
    "y_star": lambda problem, x: problem.kernels.hess_phi(x),
    "evaluate": lambda problem, x: evaluate(problem, x),
    "solve": lambda problem, x: solve(problem, Descent(Exact(), eta=0.1), x),
    "constants": lambda problem, x: verify.constants(problem),
    "smoothness": lambda problem, x: verify.smoothness(problem),
    "stationary points": lambda problem, x: verify.stationary_points(problem),
    "classify": lambda problem, x: verify.classify(problem, x),
    "run": lambda problem, x: verify.run(problem),
    "check": lambda problem, x: verify.check_hypergradient(lambda point: point, problem, points=[x]),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("door", "name"),
    [*((door, "lasso") for door in DOORS), *product(("y_star", "solve", "constants", "run"), ("hinge", "array"))],
)
def test_one_message_in_every_door(door: str, name: str) -> None:
    problem = KINKED[name]
    with pytest.raises(BilevelError) as caught:
        DOORS[door](problem, [1.25] * problem.d)
    assert "the minimiser of g lies on a kink" in caught.value.message
    assert "no start or step helps" in caught.value.message
    assert INSTEAD[name] in (caught.value.hint or "")
    assert "1e-4" in (caught.value.hint or "")


def test_the_command_says_it_in_a_few_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lasso.toml"
    LASSO.save(path)
    for arguments in (["solve", str(path)], ["certify", str(path), "--at", "x=5/4"]):
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert "the minimiser of g lies on a kink, y = 0" in said
        assert "try: sqrt(y**2 + 1e-4)" in said


@pytest.mark.parametrize("draw", [plot_landscape, plot_response])
def test_no_picture_is_begun(draw: Callable[..., object]) -> None:
    with pytest.raises(BilevelError, match="the minimiser of g lies on a kink"):
        draw(LASSO, Figure().subplots())


def test_formulas_tell_of_kinks_in_text_and_for_programs() -> None:
    for problem, edge in ((LASSO, "y"), (HINGE, "x*y - 1")):
        derivation = derive(problem)
        assert f"kink of g: {edge} = 0" in "\n".join(text_lines(derivation))
        assert [kink["edge"] for kink in derivation_record(derivation)["kinks"]] == [edge]
    array: Any = derive(ARRAY)
    assert "kink of g: y = 0" in array.text()
    hinge: Any = derive(BilevelProblem("y @ y", "sum(max(1 - A @ y, 0)) + y @ y/2", "x", "y[n]", data={"A": [[1, 2]]}))
    assert "in the place of max(1 - A @ y, 0)" in hinge.kinks[0].instead
    assert json.loads(json.dumps(array.record()))["kinks"][0]["edge"] == "y"


def test_abs_of_an_array_is_not_quadratic() -> None:
    # DEFECT: y* = x, for the second derivative of abs is zero wherever it exists
    derivation = derive(ARRAY)
    assert not derivation.is_closed_form
    assert "not smooth in y: it contains abs" in derivation.method


@pytest.mark.parametrize("loss", ["abs(y)", "max(y - 1/2, 0)", "min(y, x)"])
def test_a_kink_in_the_box_is_no_bound_of_a_derivative_of_an_array_problem(loss: str) -> None:
    # DEFECT: ell = 2 and rho = 0 were called proved
    problem = BilevelProblem("sum(y**2)", f"sum((y - x)**2) - sum({loss})/9", "x[20]", "y[20]")
    with pytest.raises(CertificateFailure, match="g changes its formula there"):
        verify.constants(problem, Box({"x": (-1, 1), "y": (-3, 3)}))


def test_a_kink_outside_of_the_box_does_no_harm_to_an_array_problem() -> None:
    problem = BilevelProblem("sum(y**2)", "sum((y - x)**2)/2 + sum(abs(y))", "x[20]", "y[20]")
    found = verify.constants(problem, Box({"x": (2, 3), "y": (1, 3)}))
    assert found.upper.mu == pytest.approx(1.0)
    assert found.upper.rho == pytest.approx(0.0)


def test_where_the_pieces_agree_there_is_no_kink() -> None:
    x, y = sp.symbols("x y", real=True)
    assert scalar_kinks(y**2 + abs(y) ** 3 + abs(x), [x], [y]) == ()
    assert len(scalar_kinks(y**2 + abs(y), [x], [y])) == 1
    squared = BilevelProblem("y @ y", "sum((y - x)**2) + sum(exp(y))", "x[2]", "y[2]").array_model
    assert array_kinks(squared.g, squared.y) == ()


def test_off_the_kink_all_works() -> None:
    """y* = x - 1 for x > 1."""
    assert np.asarray(AWAY.kernels.grad_phi([2.5])) == pytest.approx(1.0)
    assert evaluate(AWAY, ["5/2"]).proved
    (point,) = [p for p in verify.stationary_points(AWAY) if p.proved]
    assert point.x == pytest.approx((2.0,))


def test_constants_name_the_kink_that_runs_through_the_box() -> None:
    """The minimiser is off it at the corners: the box is what is wrong, or the kink."""
    problem = BilevelProblem("y", "(y - x)**2 + abs(y)/9", "x", "y", box={"x": (-2, 2), "y": (-3, 3)})
    with pytest.raises(CertificateFailure) as caught:
        verify.constants(problem, effort="quick")
    assert "g has a kink there, y = 0" in caught.value.message
    assert "a box without it; or sqrt(y**2 + 1e-4)" in (caught.value.hint or "")
