"""Convexity of g over the box: what a certificate says of y*, and that it says no more than is proved."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
import sympy as sp
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, evaluate, zoo
from bilevel_sym.certify import convexity as convexity_module
from bilevel_sym.certify.krawczyk import LowerLevel
from bilevel_sym.cli import main
from bilevel_sym.errors import AssumptionViolated

WAVY = "y**2/20 - cos(3*y) - x*y"  # at x = 1 Newton's method ends at 0.11196; the minimiser is 10.467
PROVED, ASSUMED = "proved over the box", "assumed"


def problem(g: str, y: str = "y", box: dict[str, tuple[object, object]] | None = None) -> BilevelProblem:
    return BilevelProblem(f"x*{y.split()[0]}", g, "x", y, box=box)


def over(g: str, *ends: tuple[object, object]) -> BilevelProblem:
    names = ["y"] if len(ends) == 1 else [f"y{k + 1}" for k in range(len(ends))]
    return problem(g, " ".join(names), {"x": (-2, 2), **dict(zip(names, ends, strict=True))})


def test_a_local_minimum_is_not_called_the_minimiser() -> None:
    certificate = evaluate(problem(WAVY), [1])
    assert abs(float(certificate.y_star[0]) - 0.11196) < 1e-5
    assert certificate.convexity == ASSUMED
    assert "the stationary point of g in this ball, unique there; the minimiser if g is convex in y" in str(certificate)
    assert "convexity: assumed" in str(certificate)


def test_a_box_on_which_convexity_is_refuted_is_an_error() -> None:
    with pytest.raises(AssumptionViolated, match="g is not convex in y over the box") as caught:
        evaluate(over(WAVY, (-20, 20)), [1])
    x, y = (float(sp.Rational(str(caught.value.point[name]))) for name in "xy")
    assert x == 1
    assert -20 <= y <= 20
    value = float(str(caught.value.value))
    assert abs(0.1 + 9 * np.cos(3 * y) - value) < 1e-4
    assert value < 0
    assert caught.value.label == "assu:bilevel"


@pytest.mark.parametrize(
    ("g", "ends"),
    [
        ("y**2/2 + exp(y) - x*y", [(-3, 3)]),
        ("y**4/4 + y**2/2 - x*y", [("-1/3", "1/3")]),
        ("y1**2/2 + y2**2/2 + cos(y1 + y2)/4 - x*y1 - y2", [(-3, 3), (-3, 3)]),
        ("softplus(3*y1 - y2) + softplus(y1 + 2*y2) + (y1**2 + y2**2)/100 - x*y1", [(-9, 9), (-9, 9)]),
        ("abs(y)**3/6 + y**2/2 - x*y", [(-1, 1)]),  # twice continuously differentiable across its edge
        ("y**2/2 - x*y", [(1, 1)]),
    ],
)
def test_proved_over_the_box(g: str, ends: list[tuple[object, object]]) -> None:
    certificate = evaluate(over(g, *ends), ["1/5"], digits=10)
    assert certificate.convexity == PROVED
    assert "the minimiser over the box" in str(certificate)


@pytest.mark.parametrize(
    ("g", "ends", "place"),
    [
        ("y**4/4 - x*y", (-1, 2), 0),  # no curvature at zero
        ("y**2/2 + abs(y) - x*y", (-3, 2), 0),
        ("y**2 + Piecewise((0, y < 1), (5, True)) - x*y", (-1, 2), 1),
    ],
)
def test_what_is_not_decided_is_assumed_and_says_so(g: str, ends: tuple[object, object], place: float) -> None:
    certificate = evaluate(over(g, ends), [2 if "abs" in g else 1], digits=5)
    assert certificate.convexity == ASSUMED
    said, _, near = certificate.why.partition(", next to y = ")
    assert said == "it was not decided over the box"
    assert certificate.why in str(certificate)
    assert abs(float(near) - place) < 1e-5


def test_the_work_is_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form that vanishes on a whole line: more and more pieces stay open, and the budget ends it."""
    looked, over_box = list[int](), LowerLevel.jacobian_over

    def counted(self: LowerLevel, box: Any) -> Any:
        looked.append(1)
        return over_box(self, box)

    monkeypatch.setattr(LowerLevel, "jacobian_over", counted)
    certificate = evaluate(over("(y1 - y2)**4 + (y1 + y2)**2/2 + y1 - y2 - x*y1", (-1, 3), (-1, 2)), [1], digits=5)
    assert certificate.convexity == ASSUMED
    assert "pieces" in certificate.why
    assert 2 < len(looked) < convexity_module.WORK / 20


def test_outside_the_box_all_the_way_to_y_star_must_be_convex() -> None:
    near = evaluate(over(WAVY, ("-1/10", "1/10")), [1], digits=5)
    assert near.convexity == PROVED
    assert "outside" in near.why
    assert "over the box stretched to hold it" in str(near)


def test_refuted_only_between_the_box_and_y_star_is_assumed() -> None:
    """g_yy = y^2 - 1: over y in [3, 4] it is convex; y* = -2 lies beyond a hill."""
    found = convexity_module.convexity_at(over("y**4/12 - y**2/2 - x*y", (3, 4)), [sp.Integer(0)], [arb(-2)])
    assert found[0] == ASSUMED
    assert "y* lies outside the box, and g is not convex on the way" in found[1]


def test_a_box_of_x_alone_checks_nothing() -> None:
    certificate = evaluate(problem(WAVY, box={"x": (0, 2)}), [1])
    assert (certificate.convexity, certificate.why) == (ASSUMED, "there is no box for y over which it could be checked")


def test_the_command_line_says_it_in_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "zoo:scalar", "--at", "x=1/3", "--format", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["convexity"] == PROVED
    assert record["why"] == ""


TUBES = [pytest.param(name, marks=pytest.mark.slow) for name in ("tube", "tube_printed", "tube_coupled")]


@pytest.mark.parametrize("name", ["scalar", "saddle", "implicit_cubic", "logistic", "hyper_cleaning", "ridge", *TUBES])
def test_the_zoo_is_convex_over_its_boxes(name: str) -> None:
    entry = zoo.get(name).problem
    assert entry.box is not None
    x = [low + (high - low) / 7 for low, high in list(entry.box)[: entry.d]]
    assert evaluate(entry, x, digits=5).convexity == PROVED


@pytest.mark.slow
@given(
    st.lists(st.integers(-3, 3), min_size=4, max_size=4),
    st.integers(0, 3),
    st.integers(-2, 2),
    st.integers(-3, 3),
)
def test_the_answer_agrees_with_a_grid(a: list[int], ridge: int, wave: int, x: int) -> None:
    """Proved: no point of a grid has negative curvature. Refuted: the point given has."""
    p, q, r, s = a
    g = f"(({p})*y1 + ({q})*y2)**2/2 + (({r})*y1 + ({s})*y2)**4/24 + ({ridge})*(y1**2 + y2**2)/2"
    g += f" + ({wave})*sin(y1 + y2 + x)/2 - x*y1 + y2"
    case = over(g, (-1, 1), (-1, 2))
    hessian = sp.lambdify(["x", "y1", "y2"], sp.hessian(case.g, case.y).subs({v: v.name for v in case.x}))
    try:
        found, _ = convexity_module.convexity_at(case, [sp.Integer(x)], [arb(0), arb(0)])
    except AssumptionViolated as error:
        y = [float(str(error.point[name])) for name in ("y1", "y2")]
        assert -1 <= y[0] <= 1
        assert -1 <= y[1] <= 2
        assert np.linalg.eigvalsh(np.array(hessian(x, *y), dtype=float))[0] < 0
        return
    if found == PROVED:
        for y1, y2 in itertools.product(np.linspace(-1, 1, 7), np.linspace(-1, 2, 7)):
            assert np.linalg.eigvalsh(np.array(hessian(x, y1, y2), dtype=float))[0] > 0
