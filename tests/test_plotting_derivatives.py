"""Pictures of terms, responses, finite differences and curvature: what is drawn is what is true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import verify
from bilevel_sym import BilevelProblem, Box, MinimaxProblem, zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting import plot_differences, plot_response, plot_terms
from verify.plotting import plot_curvature, plot_looseness, plot_tightness

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

PENCIL = BilevelProblem(
    "x**2/2 + x*y + (y - 1)**2/2", "exp(x)*y**2/2 - y", "x", "y", box={"x": (-1, 3), "y": (0, 3)}
)  # y* = exp(-x)
OPEN = BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y", box={"x": (-2, 4), "y": (-3, 2)})


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    from matplotlib import pyplot

    yield
    pyplot.close("all")


def curves(ax: object) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {line.get_label(): line.get_data() for line in ax.lines}  # type: ignore[attr-defined]


def test_terms_of_the_gradient_are_those_of_the_formula() -> None:
    drawn = curves(plot_terms(PENCIL))
    x = drawn["direct"][0]
    assert x[0] == -1
    assert x[-1] == 3
    np.testing.assert_allclose(drawn["direct"][1], x + np.exp(-x), rtol=1e-13)
    np.testing.assert_allclose(drawn["implicit"][1], -np.exp(-x) * (x + np.exp(-x) - 1), atol=1e-13)


@pytest.mark.parametrize("problem", [PENCIL, OPEN], ids=["closed", "open"])
def test_terms_of_the_hessian_sum_to_the_whole(problem: BilevelProblem) -> None:
    drawn = curves(plot_terms(problem, of="hess_phi"))
    cross = drawn["cross, and once more as cross transposed"][1]
    rest = sum(drawn[name][1] for name in ("direct", "curvature", "quadratic") if name in drawn)
    np.testing.assert_allclose(rest + 2 * cross, drawn["$\\nabla^2\\Phi$, the sum"][1], rtol=1e-12, atol=1e-12)


def test_vanishing_terms_are_left_out() -> None:
    drawn = curves(plot_terms(OPEN, of="hess_phi"))
    assert "direct" not in drawn
    assert "quadratic" not in drawn


def test_the_box_can_be_chosen() -> None:
    ax = plot_terms(PENCIL, box={"x": (0, 1)})
    assert ax.get_xlim() == (0, 1)
    assert plot_response(PENCIL, box=Box({"x": (0, 2)})).get_xlim() == (0, 2)


def test_the_tangent_touches_with_the_slope_of_the_implicit_function_theorem() -> None:
    drawn = curves(plot_response(PENCIL, at=[0.5]))
    x, y = drawn["tangent"]
    assert (y[1] - y[0]) / (x[1] - x[0]) == pytest.approx(-np.exp(-0.5), rel=1e-12)
    assert y.mean() == pytest.approx(np.exp(-0.5), rel=1e-12)
    np.testing.assert_allclose(drawn["y*"][1], np.exp(-drawn["y*"][0]), rtol=1e-12)


def test_a_response_with_several_entries_has_a_line_and_a_tangent_each() -> None:
    problem = BilevelProblem("x*a + b", "a**2/2 + b**2 - x*a - sin(x)*b", "x", "a b", box={"x": (-1, 1)})
    ax = plot_response(problem, at=[0.0, 0.5])
    assert [line.get_label() for line in ax.lines if line.get_label() in ("a*", "b*")] == ["a*", "b*"]
    slopes = [
        np.diff(line.get_ydata())[0] / np.diff(line.get_xdata())[0]
        for line in ax.lines
        if line.get_label() == "tangent"
    ]
    np.testing.assert_allclose(slopes, [1, 0.5, 1, np.cos(0.5) / 2], rtol=1e-12)


def test_ten_entries_of_an_array_have_ten_styles() -> None:
    problem = BilevelProblem("sum(y)", "sum((y - x)**2)", "x", "y[10]", box={"x": (-1, 1)})
    ax = plot_response(problem)
    named = [line for line in ax.lines if str(line.get_label()).endswith("*")]
    assert [line.get_label() for line in named] == [f"y_{k}*" for k in range(1, 11)]
    assert len({(line.get_color(), line.get_linestyle()) for line in named}) == 10


def test_differences_have_their_orders_and_their_floor() -> None:
    drawn = curves(plot_differences(OPEN, [0.5]))
    h, forward = drawn["forward difference"]
    central = drawn["central difference"][1]
    long = (h > 1e-4) & (h < 1e-1)
    assert np.polyfit(np.log(h[long]), np.log(forward[long]), 1)[0] == pytest.approx(1, abs=0.05)
    assert np.polyfit(np.log(h[long]), np.log(central[long]), 1)[0] == pytest.approx(2, abs=0.05)
    (own,) = (data[1][0] for label, data in drawn.items() if label.startswith("kernel"))
    assert own < 1e-15 < min(forward.min(), central.min())


def test_differences_take_several_variables() -> None:
    problem = zoo.get("saddle", d=2).problem
    drawn = curves(plot_differences(problem, [0.3, -0.2]))
    assert drawn["central difference"][1].min() < 1e-8


def test_a_step_out_of_the_domain_is_a_gap() -> None:
    h, central = curves(plot_differences(BilevelProblem("log(x)*y", "y**2/2 - y", "x", "y"), [0.5]))[
        "central difference"
    ]
    assert np.isnan(central).tolist() == (h >= 0.5).tolist()


@pytest.mark.slow
def test_curvature_of_one_variable_stays_below_its_bracket() -> None:
    found = verify.smoothness(zoo.get("scalar").problem)
    ax = plot_curvature(found)
    norms = curves(ax)[r"$\|\nabla^2\Phi\|$"][1]
    assert 0.99 * found.L_phi.lower < norms.max() <= found.L_phi.upper
    (band,) = ax.patches
    low, high = band.get_extents().transformed(ax.transData.inverted()).intervaly
    assert (low, high) == pytest.approx((found.L_phi.lower, found.L_phi.upper))


@pytest.mark.slow
def test_curvature_of_two_variables_marks_where_the_worst_was_seen() -> None:
    problem = BilevelProblem("sin(x1)*y + x2**2*y", "y**2/2 - x1*y", "x1 x2", "y", box={"x1": (-1, 1), "x2": (-1, 1)})
    found = verify.smoothness(problem, rtol=0.1)
    (star,) = (data for label, data in curves(plot_curvature(found)).items() if label.startswith("sup"))
    assert np.ravel(star).tolist() == list(found.points["L_phi"].values())


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: plot_terms(PENCIL, of="phi"), "grad_phi, hess_phi"),  # type: ignore[arg-type]
        (lambda: plot_terms(zoo.get("saddle").problem), "plot_landscape"),
        (lambda: plot_terms(BilevelProblem("x*y", "y**2 - x*y", "x", "y")), "no box"),
        (lambda: plot_terms(PENCIL, box={"x": (1, 1)}), "no width"),
        (lambda: plot_terms("x*y"), "wants a problem"),  # type: ignore[arg-type]
        (lambda: plot_response(zoo.get("saddle").problem), "x has 2"),
        (lambda: plot_differences("x*y", [0.5]), "wants a problem"),  # type: ignore[arg-type]
        (lambda: plot_curvature(PENCIL), "verify.smoothness"),  # type: ignore[arg-type]
        (lambda: plot_response(3), "wants a problem"),  # type: ignore[arg-type]
        (lambda: plot_response(PENCIL, at="a"), "not numbers"),
        (lambda: plot_differences(PENCIL, ["a"]), "not numbers"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        draw()  # type: ignore[operator]


def test_a_minimax_problem_has_no_implicit_term() -> None:
    problem = MinimaxProblem("-x**2 + 4*x*y - y**2", "x", "y", box={"x": (-1, 1), "y": (-2, 2)})
    assert "implicit" not in curves(plot_terms(problem))


@pytest.mark.slow
def test_what_is_drawn_in_the_colour_of_letters_is_seen_on_a_dark_background() -> None:
    report = verify.run(PENCIL, claims=["grad-Lipschitz"])
    with matplotlib.style.context("dark_background"):
        terms, tightness = plot_terms(PENCIL), plot_tightness(report)
        looseness = plot_looseness({"pencil": verify.smoothness(PENCIL)})
    legend = tightness.get_legend()
    assert legend is not None
    evidence: Any = legend.legend_handles[-1]
    lines = [terms.lines[0], tightness.lines[0], looseness.lines[0], evidence]
    assert [line.get_color() for line in lines] == 4 * ["white"]
