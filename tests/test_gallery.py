"""The bug gallery: what is called right is right, what is called wrong is wrong, and the test kit tells them apart."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any, get_args

import hypothesis.strategies as st
import numpy as np
import pytest
from helpers import FEW, random_problem
from hypothesis import given

from bilevel_sym import BilevelProblem, evaluate, zoo
from bilevel_sym.errors import InvalidArgument
from verify import gallery
from verify.gallery.defect import coupled, isotropic, saddle
from verify.gallery.plain import (
    conjugate_gradients,
    dense_solve,
    gradient_descent,
    hessian_terms,
    neumann,
    newton,
    start,
)
from verify.papers.huang_saddle.trajectory.check import check_trajectory
from verify.testkit.checks import check_hessian, check_hypergradient, check_lower_solution
from verify.testkit.diagnosis import Cause
from verify.verdict import Verdict

DEFECTS = gallery.defects()
BY_NAME = {item.name: item for item in DEFECTS}
QUANTITY = {"hypergradient": "grad_phi", "hessian": "hess_phi", "lower solution": "y_star"}
RARE = "linear solver that rarely fails"  # right at almost every point, so it has a test of its own
POINTWISE = [item for item in DEFECTS if item.kind in QUANTITY and item.name != RARE]
CHECKS: dict[str, Any] = {
    "hypergradient": check_hypergradient,
    "hessian": check_hessian,
    "lower solution": check_lower_solution,
}
UNNAMED: set[str] = set()  # caught, and its cause not named
each_defect = pytest.mark.parametrize("item", DEFECTS, ids=[item.name for item in DEFECTS])


def certified(problem: BilevelProblem, kind: str, x: Any) -> Any:
    """The quantity from ball arithmetic: no code of the gallery is in it."""
    return np.array(getattr(evaluate(problem, list(x), digits=20), QUANTITY[kind]), dtype=object).astype(float)


def points(problem: BilevelProblem, count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-0.75, 0.75, (count, problem.d))


KINDS: tuple[gallery.Kind, ...] = ("hypergradient", "hessian", "lower solution")


def compare(problem: BilevelProblem, x: Any, tolerance: float = 1e-9) -> None:
    """All right candidates against the certified values at x."""
    for kind in KINDS:
        truth = certified(problem, kind, x)
        for name, candidate in gallery.right(problem, kind).items():
            found = candidate(np.array(x))
            assert found.shape == truth.shape
            np.testing.assert_allclose(found, truth, rtol=tolerance, atol=tolerance, err_msg=f"{kind}, {name}")


# ---- what is right -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(
    "name", ["scalar", "saddle", "quadratic", "implicit_cubic", "ridge", "minimax_nash", "logistic"]
)
def test_right_candidates_agree_with_certificates_on_the_zoo(name: str) -> None:
    example = zoo.get(name, spectrum=(1, 4, 4)) if name == "quadratic" else zoo.get(name)
    for x in points(example.problem, 2):
        compare(example.problem, x)


@pytest.mark.slow
@FEW
@given(st.integers(0, 10_000), st.integers(0, 100))
def test_right_candidates_agree_with_certificates_on_random_problems(seed: int, where: int) -> None:
    problem = random_problem(seed)
    exact = getattr(problem, "mean", problem)
    compare(exact, points(exact, 1, where)[0])


@pytest.mark.slow
@pytest.mark.parametrize("make", [coupled, isotropic, saddle])
def test_right_candidates_agree_with_certificates_where_defects_are_shown(make: Any) -> None:
    for x in points(make(), 3):
        compare(make(), x)


def test_a_warm_start_that_is_solved_to_the_end_depends_on_nothing_else() -> None:
    problem = coupled()
    warm = gallery.right(problem)["warm start"]
    x = points(problem, 4)
    forward = [warm(row) for row in x]
    backward = [warm(row) for row in x[::-1]][::-1]
    np.testing.assert_allclose(forward, backward, rtol=1e-12)


def test_newton_at_the_root_stays_there() -> None:
    k = isotropic().kernels
    y = np.array([0.5, 0.25])
    x = np.array([0.5, 0.0])
    root = newton(k, x, y)
    np.testing.assert_array_equal(newton(k, x, root), root)


def test_newton_is_globally_convergent() -> None:
    k = BilevelProblem("y", "y**2/100 + softplus(50*y) - x*y", "x", "y").kernels
    y = newton(k, np.array([1.0]), np.array([30.0]))
    assert abs(k.g_y([1.0], y)[0]) < 1e-12


@given(st.integers(1, 5), st.integers(0, 1000), st.booleans())
def test_linear_solvers_agree(n: int, seed: int, few: bool) -> None:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    values = rng.choice([2.0, 5.0], n) if few else rng.uniform(1.0, 10.0, n)
    A, b = basis @ np.diag(values) @ basis.T, rng.standard_normal(n)
    v = dense_solve(A, b)
    np.testing.assert_allclose(conjugate_gradients(A, b), v, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(neumann(A, b, 600, 0.1), v, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(conjugate_gradients(A, 0 * b), 0 * b)


@given(st.integers(1, 6))
def test_the_number_of_terms_and_of_steps_is_what_was_asked_for(count: int) -> None:
    A, b, eta = np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([1.0, -2.0]), 0.2
    series = sum(eta * np.linalg.matrix_power(np.eye(2) - eta * A, q) @ b for q in range(count))
    np.testing.assert_allclose(neumann(A, b, count, eta), series, rtol=1e-13)
    k = BilevelProblem("y", "y**2 - x*y", "x", "y").kernels  # y* = x/2, and each step of 1/4 halves the distance
    found = gradient_descent(k, np.array([2.0]), np.array([3.0]), count, 0.25)
    np.testing.assert_allclose(found, [1 + 2 * 0.5**count], rtol=1e-13)
    once = (b @ b) / (b @ A @ b) * b
    np.testing.assert_allclose(conjugate_gradients(A, b, count), once if count == 1 else dense_solve(A, b), rtol=1e-13)


@pytest.mark.slow
def test_the_terms_of_the_hessian_are_those_of_the_derivation() -> None:
    problem = coupled()
    x = points(problem, 1)[0]
    y = problem.kernels.y_star(x)
    at = dict(zip((*problem.x, *problem.y), (*x.tolist(), *y.tolist()), strict=True))
    named = problem.derivation.terms["hess_phi"]
    total = sum(np.array(term.subs(at).evalf().tolist(), dtype=float) for term in named.values())
    mine = hessian_terms(problem, x)
    np.testing.assert_allclose(mine.direct + mine.cross + mine.cross.T + mine.quadratic + mine.third, total, rtol=1e-9)


# ---- the registry ------------------------------------------------------------------------------------------


def test_there_are_enough_and_none_is_forgotten() -> None:
    assert len(DEFECTS) >= 30
    assert len(BY_NAME) == len({item.make for item in DEFECTS}) == len(DEFECTS)
    assert {item.kind for item in DEFECTS} == set(get_args(gallery.Kind))
    written = sum(len(re.findall(r"\n@(?:defect|of_\w+)\(", inspect.getsource(family))) for family in gallery.FAMILIES)
    assert written == len(DEFECTS)


@each_defect
def test_a_defect_is_one_marked_change_in_a_short_program(item: gallery.Defect) -> None:
    source = item.source()
    assert source.startswith("def ")
    assert source.count("# defect") == 1
    assert len(source.splitlines()) <= 22
    assert item.cause in set(get_args(Cause)) - {"unexplained"}
    assert item.looks
    assert item.family in {family.__name__.rpartition(".")[2] for family in gallery.FAMILIES}
    assert item.__doc__


@each_defect
def test_the_notebook_shows_the_defect_as_it_is(item: gallery.Defect) -> None:
    path = Path(__file__).resolve().parent.parent / "notebooks" / "08_bug_gallery.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = {
        kind: ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind] for kind in ("markdown", "code")
    }
    assert any(item.wrong_line in text and item.looks[1:] in text and item.seen in text for text in texts["markdown"])
    assert any(f'(wrong["{item.name}"]' in text for text in texts["code"])


# ---- what is wrong -----------------------------------------------------------------------------------------


def errors(item: gallery.Defect, problem: BilevelProblem, at: Any) -> list[float]:
    """Relative errors of a new candidate at points, asked one after the other."""
    candidate, found = item.candidate(problem), []
    for x in at:
        truth = certified(problem, item.kind, x)
        found.append(float(np.linalg.norm(candidate(x) - truth) / np.linalg.norm(truth)))
    return found


@pytest.mark.parametrize("item", POINTWISE, ids=[item.name for item in POINTWISE])
def test_a_defect_is_far_from_the_truth_on_its_showcase(item: gallery.Defect) -> None:
    found = np.array(errors(item, item.showcase(), points(coupled(), 6)))
    smallest = 1e-8 if item.cause == "precision" else 1e-6 if item.cause in ("noise", "tolerance") else 1e-2
    assert np.isnan(found).any() if item.cause == "not finite" else np.sort(found)[1] > smallest  # one may be right
    assert not np.isnan(found).any() or item.cause == "not finite"


def test_a_dropped_iterate_is_all_of_v_where_one_step_is_enough() -> None:
    problem, item = isotropic(), BY_NAME["last CG iterate dropped"]
    for x in points(problem, 3):
        y = newton(problem.kernels, x, start(problem))
        np.testing.assert_array_equal(item.candidate(problem)(x), problem.kernels.f_x(x, y))


def test_state_is_a_candidates_own() -> None:
    problem = coupled()
    for name in ("stale warm start", "answer for the point before", "lower level: predecessor"):
        first, second = (BY_NAME[name].candidate(problem) for _ in range(2))
        one, other = points(problem, 2)
        before = first(one)
        first(other)
        np.testing.assert_array_equal(second(one), before)


@pytest.mark.slow
def test_records_of_runs_differ_in_what_was_planted() -> None:
    (right,) = gallery.right(saddle(), "trajectory").values()
    for item in gallery.defects("trajectory"):
        wrong = item.candidate(item.showcase())
        steps, expected = np.diff(wrong["x"], axis=0), -right["eta"] * wrong["grad_phi_hat"][:-1]
        kept = ~wrong["perturbed"][:-1]
        assert wrong["perturbed"].any()
        assert np.allclose(steps[kept], expected[kept], rtol=1e-9, atol=1e-12) == (
            item.name != "step against the record"
        )
        assert not np.array_equal(wrong["x"], right["x"])
    moved = np.linalg.norm(np.diff(right["x"], axis=0)[right["perturbed"][:-1]], axis=1)
    assert (moved <= right["eta"] * right["r"]).all()


# ---- the test kit tells them apart ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "item", [pytest.param(i, id=i.name, marks=[pytest.mark.slow] * (i is not DEFECTS[0])) for i in POINTWISE]
)
def test_it_is_caught_and_its_cause_is_named(item: gallery.Defect) -> None:
    problem = item.showcase()
    result = CHECKS[item.kind](item.candidate(problem), problem, rng=0)
    assert result.verdict is Verdict.VIOLATED
    assert item.name in UNNAMED or result.cause == item.cause, result.message


@pytest.mark.long
def test_the_verdict_and_the_cause_do_not_hang_on_the_points() -> None:
    missed = set()
    for item in POINTWISE:
        result = CHECKS[item.kind](item.candidate(item.showcase()), item.showcase(), rng=3)
        assert result.verdict is Verdict.VIOLATED, item.name
        missed |= {item.name} if result.cause != item.cause else set()
    assert len(missed - UNNAMED) <= 2, missed  # kinds of noise are told apart by a few points only


@pytest.mark.slow
@pytest.mark.in_ci("isotropic")
@pytest.mark.parametrize("make", [coupled, isotropic])
def test_what_is_right_raises_no_alarm(make: Any) -> None:
    for kind in KINDS:
        for name, candidate in gallery.right(make(), kind).items():
            result = CHECKS[kind](candidate, make(), rng=0)
            assert result.verdict is Verdict.HOLDS, (kind, name, result.message)
    (run,) = gallery.right(make(), "trajectory").values()
    assert check_trajectory(run, make()).ok


@pytest.mark.slow
def test_the_solver_that_rarely_fails_does_so_rarely_and_is_named_where_it_does() -> None:
    problem, item = coupled(), BY_NAME[RARE]
    candidate, x = item.candidate(problem), np.random.default_rng(2).uniform(-1, 1, (1000, 2))
    answers = np.array([candidate(row) for row in x])
    bad = x[np.linalg.norm(answers - problem.kernels.grad_phi(x), axis=1) > 1e-8]
    assert 1 <= len(bad) <= 10  # 0.4 % of the box
    result = check_hypergradient(candidate, problem, points=bad)
    assert result.verdict is Verdict.VIOLATED
    assert result.cause in ("tolerance", "inverse")


@pytest.mark.slow
def test_a_dropped_iterate_and_a_forgotten_term_are_the_same_numbers_where_one_step_is_enough() -> None:
    item = BY_NAME["last CG iterate dropped"]
    result = check_hypergradient(item.candidate(isotropic()), isotropic(), rng=0)
    assert result.verdict is Verdict.VIOLATED
    assert result.diagnosis is not None
    assert "solver" in " ".join((result.diagnosis.look_at, *result.diagnosis.also))


@pytest.mark.parametrize("item", gallery.defects("trajectory"), ids=lambda item: item.name)
def test_a_wrong_run_is_caught_and_its_cause_is_named(item: gallery.Defect) -> None:
    report = check_trajectory(item.candidate(item.showcase()), item.showcase())
    (violated,) = [result for result in report.results if result.verdict is Verdict.VIOLATED]
    words = {"predecessor": "predecessor", "factor": "step size"}
    assert "suspected cause" in violated.message
    assert words[item.cause] in violated.message


# ---- how it looks from outside ------------------------------------------------------------------------------


@pytest.mark.slow
def test_descent_is_gradient_descent_on_exact_values() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    (x,) = gallery.descent(gallery.right(problem)["dense solve"], problem, [1.0], steps=0)
    assert x == 1.0
    for name, candidate in gallery.right(problem).items():
        found = gallery.descent(candidate, problem, [1.0], steps=3, eta=0.25)
        np.testing.assert_allclose(found, 0.25 ** np.arange(4), rtol=1e-9, err_msg=name)
    for name, candidate in gallery.right(problem, "lower solution").items():
        found = gallery.descent(candidate, problem, [1.0], steps=3, eta=0.25, kind="lower solution")
        np.testing.assert_allclose(found, 0.25 ** np.arange(4), rtol=1e-9, err_msg=name)
    hessian = gallery.right(problem, "hessian")["term by term"]
    found = gallery.descent(hessian, problem, [1.0], steps=1, eta=0.5, kind="hessian")
    np.testing.assert_allclose(found, [1, 0.25])


def test_newton_steps_go_down_where_the_hessian_is_indefinite() -> None:
    hessian = gallery.right(saddle(), "hessian")["term by term"]
    found = gallery.descent(hessian, saddle(), [0.1, 0.1], steps=40, eta=0.3, kind="hessian")
    assert found[-1] == pytest.approx(-0.25, abs=1e-4)
    assert (np.diff(found) <= 1e-12).all()


def test_a_descent_that_is_lost_ends_in_nan() -> None:
    found = gallery.descent(BY_NAME["CG without a guard"], isotropic(), [0.5, 0.5], steps=3)
    assert np.isfinite(found[0])
    assert np.isnan(found[1:]).all()


def test_a_descent_that_explodes_ends_in_nan_too() -> None:
    found = gallery.descent(lambda x: -(x**9) * 1e30, coupled(), [0.75, -0.5], steps=8)
    assert np.isnan(found[-1])


def test_a_trajectory_is_taken_as_it_is() -> None:
    item = BY_NAME["stale gradient after a perturbation"]
    found = gallery.descent(item, saddle(), [0.0, 0.0])
    np.testing.assert_allclose(found, saddle().kernels.phi(item.candidate(saddle())["x"]), rtol=1e-12)


def test_the_picture_shows_both_and_where_one_is_lost() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    ax: Any = Figure().subplots()
    assert gallery.plot_descents(np.array([3.0, 2.0]), np.array([3.0, np.nan]), ax, title="a defect") is ax
    lines: dict[str, Any] = {str(line.get_label()): line for line in ax.get_lines()}
    assert lines["right"].get_ydata().tolist() == [3.0, 2.0]
    assert lines["then nan"].get_xdata().tolist() == [0]
    assert lines["right"].get_linestyle() != lines["with the defect"].get_linestyle()
    assert (ax.get_xlabel(), ax.get_title()) == ("step k", "a defect")
    assert ax.get_legend() is not None


def test_the_gallery_is_drawn_in_small_multiples() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    items = [BY_NAME[name] for name in ("implicit term halved", "CG without a guard", "third derivatives missing")]
    axes: Any = gallery.plot_gallery(items, steps=3, columns=2)
    assert [ax.get_title() for ax in axes] == [item.name for item in items]
    figure = axes[0].get_figure()
    assert len(figure.axes) == 3  # the fourth place is empty
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["right", "with the defect", "then nan"]
    gap: Any = gallery.plot_gallery(items[:1], steps=3, gap=True)
    assert gap[0].get_yscale() == "log"
    pyplot.close("all")
    with pytest.raises(InvalidArgument, match="nothing to draw"):
        gallery.plot_gallery([])


def test_the_picture_of_what_climbs_keeps_the_right_one_visible() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    ax: Any = gallery.plot_descents(np.array([2.0, 1.0]), np.array([2.0, 1e9]), Figure().subplots())
    assert ax.get_ylim()[1] == 3.0
    ax = gallery.plot_descents(np.array([2.0, 1.0]), np.array([2.0, 1.5]), Figure().subplots(), phi_min=1.0)
    assert ax.get_yscale() == "log"
    assert [*ax.get_lines()[1].get_ydata()] == pytest.approx([1.0, 0.5])
