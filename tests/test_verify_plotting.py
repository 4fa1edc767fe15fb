"""Pictures of verdicts: errors beside their bounds, tightness, looseness; against numbers by another route."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import verify
from bilevel_sym import AID, ITD, BilevelProblem, Constants, Descent, Exact, GDmax, evaluate, solve, zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting import COLOURS
from verify.papers.huang_saddle.trajectory.bounds import error_bounds
from verify.papers.huang_saddle.trajectory.record import record_of
from verify.papers.huang_saddle.trajectory.truth import truth_of
from verify.plotting import plot_error, plot_looseness, plot_tightness
from verify.theory import cite
from verify.verdict import Bracket, CheckResult, inconclusive, judged, not_applicable

pytest.importorskip("matplotlib")
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

SQUARE = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2, y* = v* = x
EACH, FIRST = "bound from the warm start of each iteration", "bound from the first warm start of the run"
ERROR = "error of the estimate"


def axes() -> Any:
    return Figure().subplots()


def lines(ax: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in reversed(ax.get_lines())}


def legend(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


# ---- the error beside its bound --------------------------------------------------------------------------------------


def bound_is_that_of_the_lemma() -> bool:
    """The bound drawn for AID on SQUARE is Lemma B.1's by hand: tau = 1/2 makes ell = 2, kappa = 2, rho = 0."""
    run = solve(SQUARE, Descent(AID(D=3, N=1, tau=0.5), eta=0.1), [1.0], steps=9)
    line = lines(plot_error(run, SQUARE, axes()))[EACH]
    x, y, v = (getattr(run.trajectory, name)[:, 0] for name in "xyv")
    root = math.sqrt(2)
    of_y = (1 + 2 * (1 + 2 * root)) * 2 * 0.5**1.5 * np.abs(y[:-1] - x[1:])
    of_v = 2 * 2 * root * (root - 1) / (root + 1) * np.abs(v[:-1] - x[1:])
    same = np.allclose(line.get_ydata(), of_y + of_v, rtol=1e-6)
    return same and line.get_xdata().tolist() == list(range(1, 10))


def test_the_bound_drawn_is_that_of_the_lemma() -> None:
    assert bound_is_that_of_the_lemma()


def test_the_constants_of_a_bound_are_those_of_the_step() -> None:
    run = solve(SQUARE, Descent(AID(D=3, N=1, tau=0.5), eta=0.1), [1.0], steps=9)  # mu = ell = 1, but tau = 1/2
    found = error_bounds(truth_of(record_of(run, SQUARE)))
    assert found.region.constants.kappa == pytest.approx(2)
    assert [name for name, bound, _ in found.parts if bound is not None] == ["one iteration"]


def test_the_error_drawn_is_that_of_certified_gradients() -> None:
    problem = zoo.get("implicit_cubic").problem
    run = solve(problem, Descent(AID(D=3, N=1, tau=0.02), eta=0.05), [0.5], steps=5)
    ax: Any = axes()
    assert plot_error(run, problem, ax) is ax
    truth = [float(evaluate(problem, x.tolist(), digits=20).grad_phi[0]) for x in run.trajectory.x]
    np.testing.assert_allclose(
        lines(ax)[ERROR].get_ydata(), np.abs(run.trajectory.grad_phi_hat[:, 0] - truth), rtol=1e-9
    )
    assert np.all(lines(ax)[ERROR].get_ydata()[1:] <= lines(ax)[EACH].get_ydata())
    assert (ax.get_xlabel(), ax.get_yscale(), ax.get_title()) == ("iteration k", "log", "Lemma B.1 [lem:grad-err-aid]")
    assert "Phi" in ax.get_ylabel()
    assert legend(ax) == [ERROR, EACH]


def test_the_bound_of_gdmax_is_that_of_its_lemma() -> None:
    problem = zoo.get("minimax_not_nash").problem  # mu = 2, ell = 4, y* = 2 x
    run = solve(problem, Descent(GDmax(D=4, tau=0.25), eta=0.05), [0.9], steps=6)
    ax: Any = plot_error(run, problem, axes(), constants=Constants(2.0, 4.0, 0.0, 0.0, 10.0))
    x, y = run.trajectory.x[:, 0], run.trajectory.y[:, 0]
    np.testing.assert_allclose(lines(ax)[EACH].get_ydata(), 4 * 0.5 ** (4 / 2) * np.abs(y[:-1] - 2 * x[1:]), rtol=1e-9)
    assert ax.get_title() == "Lemma C.2 [lem:grad-err-mini]"
    far = np.abs(y[0] - 2 * x[1]) + 2 * 2 * np.abs(np.diff(x))[1:].max()  # of the run, from its first warm start
    np.testing.assert_allclose(lines(ax)[FIRST].get_ydata(), 4 * 0.5**2 * far, rtol=1e-9)


def test_several_runs_are_their_median_and_quartiles() -> None:
    run = solve(SQUARE, Descent(AID(D=3, N=1, tau=0.5), eta=0.1), [[1.0], [2.0], [-4.0]], steps=4)
    ax: Any = plot_error(run, SQUARE, axes())
    errors = np.abs(run.trajectory.grad_phi_hat - 2 * run.trajectory.x)[..., 0]
    drawn = lines(ax)[f"{ERROR}, median, thin lines are the runs"].get_ydata()
    np.testing.assert_allclose(drawn, np.median(errors, axis=0), rtol=1e-9)


@pytest.mark.parametrize(
    ("estimator", "words"),
    [(AID(D=3, N=1, tau=1.5), "tau = 1.5 is above 1/ell"), (ITD(D=3, tau=0.5), "the estimator is ITD")],
)
def test_where_the_lemma_says_nothing_the_title_says_why(estimator: Any, words: str) -> None:
    ax: Any = plot_error(solve(SQUARE, Descent(estimator, eta=0.1), [1.0], steps=4), SQUARE, axes())
    assert ax.get_title().replace("\n", " ").startswith("no bound: ")
    assert words in ax.get_title().replace("\n", " ")
    assert legend(ax) == [ERROR]


def test_an_exact_estimate_is_drawn_at_rounding() -> None:
    ax: Any = plot_error(solve(SQUARE, Descent(Exact(), eta=0.25), [1.0], steps=3), SQUARE, axes())
    assert lines(ax)[ERROR].get_ydata().tolist() == [2 * 2.0**-52] * 4
    assert "rounding: what is smaller is drawn here" in legend(ax)


def test_a_run_of_one_step_has_an_error_and_a_bound() -> None:
    ax: Any = plot_error(solve(SQUARE, Descent(AID(D=3, N=1, tau=0.5), eta=0.1), [1.0], steps=1), SQUARE, axes())
    assert len(lines(ax)[ERROR].get_xdata()) == 2
    assert lines(ax)[EACH].get_xdata().tolist() == [1]


def test_errors_that_cannot_be_drawn_are_refused() -> None:
    run = solve(SQUARE, Descent(Exact(), eta=0.25), [1.0], steps=1)
    with pytest.raises(InvalidArgument, match="no estimate"):
        plot_error({"x": run.trajectory.x}, SQUARE, axes())
    with pytest.raises(InvalidArgument, match="constants=3"):
        plot_error(run, SQUARE, axes(), constants=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match='record="all"'):
        plot_error(solve(SQUARE, Descent(Exact(), eta=0.25), [1.0], steps=1, record="last"), SQUARE, axes())


# ---- tightness -------------------------------------------------------------------------------------------------------


def report(*results: CheckResult, name: str = "toy") -> verify.Report:
    return verify.Report(name, None, "corrected", 0, 0.1, results)


RESULTS = (
    judged("lem:descent", 0.5, 2.0, evidence="certified", message=""),
    judged("eq:gdrate", 3.0, 2.0, evidence="sampled", message=""),
    judged("eq:cgrate", 1e-9, 2.0, evidence="statistical", message=""),
    judged("lem:neon", 0.0, 2.0, evidence="proved", message=""),
    judged("thm:aid", 1.0, 0.0, evidence="sampled", message="", part="N"),
    inconclusive("thm:aid", "out of time", part="D"),
    not_applicable("lemC.1", "not a minimax problem"),
)


def marks(ax: Any) -> list[Any]:
    """The marks of claims, from the top: lines of one point."""
    return [line for line in ax.get_lines() if len(line.get_xdata()) == 1]


def test_every_claim_that_applies_has_a_row_with_its_tightness() -> None:
    ax: Any = axes()
    assert plot_tightness(report(*RESULTS), ax=ax) is ax
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[:2] == ["Lemma 2.8 [lem:descent]", "Equation B.22 [eq:gdrate]"]
    assert names[4:] == ["Theorem 2.5 [thm:aid] N", "Theorem 2.5 [thm:aid] D"]
    found = {round(float(mark.get_ydata()[0])): mark.get_xdata()[0] for mark in marks(ax)}
    assert [found[k] for k in range(3)] == [0.25, 1.5, 5e-10]
    left, right = ax.get_xlim()
    assert left < found[3] == found[5] < 5e-10 / 3  # without a number: left of the scale
    assert 10 < found[4] < right
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first row on top
    assert (ax.get_xscale(), ax.get_xlabel(), ax.get_title("right")) == (
        "log",
        "tightness = measured / bound",
        "toy (corrected)",
    )


def test_verdict_and_evidence_are_told_apart() -> None:
    ax: Any = plot_tightness(report(*RESULTS), ax=axes())
    looks = [(mark.get_marker(), to_hex(mark.get_color()), mark.get_fillstyle()) for mark in marks(ax)]
    holds, violated = ("o", COLOURS[0].lower()), ("X", COLOURS[1].lower())
    assert [look[:2] for look in looks[:2]] == [holds, violated]
    assert looks[2][0] == "s"
    assert [look[2] for look in looks[:4]] == ["right", "none", "bottom", "full"]
    assert legend(ax) == ["HOLDS", "VIOLATED", "INCONCLUSIVE", "proved", "certified", "statistical", "sampled"]


def test_several_reports_share_the_rows_in_their_order() -> None:
    other = report(judged("lem:descent", 1.0, 2.0, evidence="sampled", message=""), name="other")
    ax: Any = plot_tightness(report(*RESULTS[:2]), other, ax=axes())
    first, second, alone = sorted(marks(ax), key=lambda mark: float(mark.get_ydata()[0]))
    assert (first.get_xdata()[0], second.get_xdata()[0], alone.get_xdata()[0]) == (0.25, 0.5, 1.5)
    assert -0.5 < first.get_ydata()[0] < second.get_ydata()[0] < 0.5 < alone.get_ydata()[0] < 1.5
    assert ax.get_title("right") == "in each row, from the top: toy (corrected), other (corrected)"
    many: Any = plot_tightness(*[other] * 6, ax=axes())
    assert many.get_title("right") == "in each row, from the top: 6 reports in their order"


def test_many_parts_share_the_rows_of_their_statements() -> None:
    """A name for each of 60 parts would be too small to read."""
    names = ("lem:descent", "eq:gdrate", "thm:aid")
    parts = [
        judged(label, 1.0, 2.0 + k, evidence="sampled", message="", part=f"part {k}")
        for label in names
        for k in range(20)
    ]
    ax: Any = plot_tightness(report(*parts))
    shown = [label for label in ax.get_yticklabels() if label.get_text()]
    assert len(shown) == 3
    assert len(marks(ax)) == 60
    assert all(label.get_fontsize() >= 8 for label in shown)
    height = ax.get_figure().get_size_inches()[1]
    assert height < 8
    few: Any = plot_tightness(report(*parts[:40]))
    assert len([label for label in few.get_yticklabels() if label.get_text()]) == 40


def overlaps(ax: Any) -> int:
    """How many names of neighbouring rows touch."""
    ax.get_figure().draw_without_rendering()
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    return sum(a.overlaps(b) for a, b in pairwise(boxes))


@pytest.mark.slow
def test_a_hundred_rows_can_be_read() -> None:
    import matplotlib as mpl
    from matplotlib import pyplot

    mpl.use("Agg")
    labels = [claim.label for claim in verify.claims()[:100]]
    rows = [replace(RESULTS[0], label=label) for label in labels]
    ax: Any = report(*rows).plot()
    height = ax.get_figure().get_size_inches()[1]
    assert len(ax.get_yticks()) == 100
    assert 15 < height < 25
    assert overlaps(ax) == 0
    small: Any = report(*rows).plot(Figure(figsize=(6, 4)).subplots())
    named = {int(at): label.get_text() for at, label in zip(small.get_yticks(), small.get_yticklabels(), strict=True)}
    assert named == {k: cite(labels[k]) for k in named}
    assert 20 < len(named) < 60
    assert overlaps(small) == 0
    parts: Any = report(*(replace(RESULTS[0], part=f"part {k}") for k in range(100))).plot()
    assert len(parts.get_yticks()) == 1  # of too many parts their statements
    one: Any = report(RESULTS[0]).plot()
    assert one.get_figure().get_size_inches()[1] < 3
    pyplot.close("all")


def test_reports_without_a_single_number_are_drawn() -> None:
    ax: Any = report(RESULTS[5]).plot(axes())
    assert legend(ax) == ["INCONCLUSIVE"]
    (mark,) = marks(ax)
    assert mark.get_xdata()[0] < 0.1


@pytest.mark.slow
def test_a_real_report_is_drawn_row_by_row() -> None:
    found = verify.run(zoo.get("lphi_witness").problem, claims=["grad-Lipschitz", "hess-Lipschitz"], variant="printed")
    drawn = [mark.get_xdata()[0] for mark in marks(found.plot(axes()))]
    assert drawn == [result.tightness for result in found.results if result.tightness is not None]
    assert max(drawn) > 1


def test_what_is_no_report_is_refused() -> None:
    for reports in ((), (3,), (report(), "x")):
        with pytest.raises(InvalidArgument, match="draws reports"):
            plot_tightness(*reports, ax=axes())
    with pytest.raises(InvalidArgument, match="no claim applies"):
        report(RESULTS[6]).plot(axes())


# ---- looseness -------------------------------------------------------------------------------------------------------


def smooth(L_phi: Bracket, formula: float | None = 100.0) -> verify.Smoothness:
    return verify.Smoothness(
        SQUARE, SQUARE.box, Bracket(0.0, 1.0), L_phi, Bracket(2.0, 4.0), {}, formula, 400.0, "", {}, 1, 0.1  # type: ignore[arg-type]
    )  # fmt: skip


def row(ax: Any, y: float) -> list[list[float]]:
    """The x values of what is drawn in a row."""
    return [
        line.get_xdata().tolist() if hasattr(line.get_xdata(), "tolist") else list(line.get_xdata())
        for line in ax.get_lines()
        if len(line.get_ydata()) and line.get_ydata()[0] == y
    ]


def test_how_loose_the_formulas_are() -> None:
    ax: Any = axes()
    assert plot_looseness({"toy": smooth(Bracket(5.0, 10.0))}, ax) is ax
    assert row(ax, -0.14) == [[10.0, 20.0], [10.0], [20.0]]  # a whisker from 100/10 to 100/5, and its ends
    assert row(ax, 0.14) == [[100.0, 200.0], [100.0], [200.0]]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["toy"]
    assert legend(ax) == [r"$L_\phi$", r"$\rho_\phi$"]
    assert ax.get_xscale() == "log"
    assert "certified truth" in ax.get_xlabel()


def test_ends_that_are_not_known_are_arrows() -> None:
    found = {"no upper": smooth(Bracket(5.0, math.inf)), "no lower": smooth(Bracket(0.0, 10.0))}
    ax: Any = plot_looseness(
        found | {"nothing": smooth(Bracket(0.0, math.inf)), "no formula": smooth(Bracket(1.0, 1.0), None)}, axes()
    )
    tips: dict[float, list[Any]] = {line.get_ydata()[0]: [] for line in ax.get_lines()}
    for line in ax.get_lines():
        tips[line.get_ydata()[0]].append(line.get_marker())
    assert "<" in tips[-0.14]
    assert ">" in tips[0.86]
    assert 1.86 not in tips
    assert 2.86 not in tips


def test_a_truth_of_zero_stands_beside_the_scale() -> None:
    ax: Any = plot_looseness({"flat": smooth(Bracket(0.0, 1e-14)), "both": smooth(Bracket(0.0, 0.0), 0.0)}, axes())
    assert row(ax, -0.14)[1][0] > 1e3
    assert row(ax, 0.86)[1] == [1.0]  # zero for zero is not loose
    assert "truth\nis 0" in [label.get_text() for label in ax.get_xticklabels()]


def test_what_has_no_looseness_is_refused() -> None:
    for found in ({}, {"toy": 3}, [smooth(Bracket(1.0, 1.0))]):
        with pytest.raises(InvalidArgument, match="smoothness by name"):
            plot_looseness(found, axes())  # type: ignore[arg-type]
    bare = replace(smooth(Bracket(1.0, 1.0), None), rho_phi_formula=None)
    with pytest.raises(InvalidArgument, match="nothing to draw"):
        plot_looseness({"toy": bare}, axes())
