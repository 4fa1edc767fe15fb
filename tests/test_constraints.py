"""Constraints are refused in one way, and what lies outside of the box is told: a box keeps nothing in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilevel_sym import AID, BilevelProblem, Descent, Exact, MinimaxProblem, Solution, StochasticProblem, solve
from bilevel_sym.cli.site import pages_about
from bilevel_sym.cli.solve_run import SolveRun, solution_record
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.kernels.leaving import outside, outside_in_words
from bilevel_sym.plotting import plot_response
from bilevel_sym.problem import kinks

NO = "is not supported: box is where things are looked for, not a constraint"
PAGE = "`bilevel-sym docs constraints`"
LEAVING = BilevelProblem("(y - 2)**2 + x**2/10", "(y - x)**2/2", "x", "y", box={"x": (-1, 3), "y": (-1, 0.5)})
INSIDE = BilevelProblem("(y - 2)**2 + x**2/10", "(y - x)**2/2", "x", "y", box={"x": (-1, 3), "y": (-1, 3)})

STATED: dict[str, tuple[type[BilevelProblem], tuple[Any, ...]]] = {
    "bilevel": (BilevelProblem, ("x*y", "(y - x)**2", "x", "y")),
    "minimax": (MinimaxProblem, ("x*y - y**2", "x", "y")),
    "stochastic": (StochasticProblem, ("x*y*a", "(y - x*b)**2", "x", "y", "a", "b", [[1]], [[1]])),
    "arrays": (BilevelProblem, ("x @ y", "sum((y - x)**2)", "x[2]", "y[2]")),
}


@pytest.mark.parametrize("name", STATED)
@pytest.mark.parametrize("word", ["constraints", "constraint", "bounds", "subject_to"])
def test_a_constraint_is_refused_with_the_page_that_helps(name: str, word: str) -> None:
    kind, arguments = STATED[name]
    given: dict[str, Any] = {word: ["y <= 1"]}
    with pytest.raises(InvalidProblem) as caught:
        kind(*arguments, **given)
    assert f"{word}= {NO}" in caught.value.message
    assert PAGE in (caught.value.hint or "")


@pytest.mark.parametrize("said", [PAGE, kinks.PAGE])
def test_the_page_is_there(said: str) -> None:
    assert pages_about(said.strip("`").removeprefix("bilevel-sym docs "))


def test_any_other_word_is_the_error_of_python() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        BilevelProblem("x*y", "(y - x)**2", "x", "y", colour=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("line", ['constraints = ["y <= 1"]', "[constraints]\ny = [0, 1]"])
def test_so_does_a_key_of_a_file(line: str, tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(f'x = "x"\ny = "y"\nf = "x*y"\ng = "(y - x)**2"\n{line}\n')
    with pytest.raises(InvalidProblem) as caught:
        BilevelProblem.load(path)
    assert f"the key constraints {NO}" in caught.value.message
    assert "toy.toml" in caught.value.message
    assert PAGE in (caught.value.hint or "")


@pytest.mark.parametrize("word", ["cosntraints", "Constraints", "subject to", "constrains"])
def test_so_does_a_misspelt_key(word: str, tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(f'x = "x"\ny = "y"\nf = "x*y"\ng = "(y - x)**2"\n"{word}" = ["y <= 1"]\n')
    with pytest.raises(InvalidProblem, match=NO):
        BilevelProblem.load(path)


def test_another_unknown_key_is_no_constraint(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text('x = "x"\ny = "y"\nf = "x*y"\ng = "(y - x)**2"\nboxes = 1\n')
    with pytest.raises(InvalidProblem, match="unknown key 'boxes'") as caught:
        BilevelProblem.load(path)
    assert caught.value.hint == "did you mean box?"


def ended(problem: BilevelProblem, x0: Any = (0.0,)) -> Solution:
    return solve(problem, Descent(AID(D=30, N=1, tau=0.5), eta=0.2), x0, steps=100)


def test_a_run_tells_that_y_left_the_box() -> None:
    (line,) = [line for line in ended(LEAVING).describe().splitlines() if "y* outside" in line]
    assert "1 trajectory" in line
    assert "y = 1.81818 is not in [-1, 0.5]" in line
    assert "not a constraint" in line
    assert PAGE in line


def test_it_counts_the_trajectories() -> None:
    assert "2 trajectories ended with y* outside" in ended(LEAVING, [[0.0], [1.0]]).describe()


def test_a_run_that_stays_says_nothing_of_the_box() -> None:
    assert "box" not in ended(INSIDE).describe()


def test_the_command_tells_it_too() -> None:
    job = SolveRun(LEAVING, steps=200)
    assert any("y* outside of the box" in line for line in job.report(job.run()))


def test_programs_are_told_it_too() -> None:
    (first, second) = solution_record(ended(LEAVING))["remarks"]
    assert first.startswith("1 trajectory ran out of steps")
    assert "y* outside of the box" in second
    assert len(solution_record(ended(INSIDE))["remarks"]) == 1


def test_rounding_at_an_end_of_the_box_is_not_outside() -> None:
    assert not outside(LEAVING, "y", np.array([[0.5 + 1e-9]])).any()
    assert outside(LEAVING, "y", np.array([[0.5 + 1e-3]])).all()
    assert outside_in_words(LEAVING, "y", np.array([0.0])) == ""


def test_arrays_name_the_entry() -> None:
    problem = BilevelProblem("x @ y", "sum((y - x)**2)", "x[2]", "y[2]", box={"x": (-1, 1), "y": (-1, 1)})
    assert outside_in_words(problem, "y", np.array([0.0, 2.0])) == "y_2 = 2 is not in [-1, 1]"


@pytest.mark.parametrize(("problem", "drawn"), [(LEAVING, True), (INSIDE, False)])
def test_pictures_show_it(problem: BilevelProblem, drawn: bool) -> None:
    from matplotlib.figure import Figure

    ax = plot_response(problem, Figure().subplots())
    assert any("no constraint" in str(line.get_label()) for line in ax.get_lines()) is drawn
    for x0 in ([0.0], [[0.0], [1.0]]):
        run = solve(problem, Descent(Exact(), eta=0.2), x0, steps=100)
        ax = run.plot(Figure().subplots())
        labels = [str(line.get_label()) for line in ax.get_lines()]
        assert any("outside of the box" in label for label in labels) is drawn
