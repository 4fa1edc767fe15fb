"""Regions: every row says what it was judged over, and no claim is made of x whose y* lies outside the box."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import verify
from bilevel_sym import BilevelProblem, zoo
from verify.enclosures.y_enclosure import coverage
from verify.registry import INSIDE, WHOLE_X, placed
from verify.study import study_of
from verify.verdict import judged

LEAVING = BilevelProblem(
    "exp(y)", "(y - 10*x)**2/2", "x", "y", box={"x": (-1, 1), "y": (-1, 0)}
)  # y* = 10 x; sup |Hess Phi| = 100 exp(10) = 2.2e6
PLANE = BilevelProblem("x1*y", "(y - x1 - x2)**2/2", "x1 x2", "y", box={"x1": (0, 1), "x2": (0, 1), "y": (0, 1)})


PHI = INSIDE


@pytest.mark.parametrize(
    ("evidence", "measured", "region", "verdict"),
    [
        ("sampled", 1.0, "", "INCONCLUSIVE"),
        ("proved", 1.0, "the box", "INCONCLUSIVE"),
        ("proved", 0.0, "the box", "HOLDS"),  # zero everywhere, wherever y* is
        ("certified", 1.0, WHOLE_X, "HOLDS"),
        ("certified", 1.0, "all (x, y) of the box", "HOLDS"),
        ("sampled", 3.0, "", "VIOLATED"),  # what is refuted somewhere is refuted
    ],
)
def test_what_is_claimed_where_y_star_leaves(evidence: Any, measured: float, region: str, verdict: str) -> None:
    result = judged("grad-Lipschitz", measured, 2.0, evidence=evidence, message="m", region=region)
    limited = placed(study_of(LEAVING), PHI, result)
    assert (str(limited.verdict), bool(limited.region)) == (verdict, True)
    assert ("y* leaves the box in y for x in" in limited.message) == (verdict == "INCONCLUSIVE")
    staying = placed(study_of(zoo.get("scalar").problem), PHI, result)
    assert staying.verdict is result.verdict
    assert staying.message == "m"


@pytest.mark.slow
def test_where_it_is_open_whether_y_star_stays_the_region_says_so() -> None:
    result = judged("grad-Lipschitz", 1.0, 2.0, evidence="sampled", message="m")
    study = study_of(zoo.get("logistic").problem)
    found = placed(study, PHI, result)
    assert 0.5 < study.undecided < 0.7
    assert found.verdict is result.verdict
    assert found.region == f"the box; for {study.undecided:.2g} of x it is not proved that y* stays in it"
    assert placed(study, PHI, replace(result, region=WHOLE_X)).region == WHOLE_X
    touching = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    assert 0 < study_of(touching).undecided < 0.01
    assert placed(study_of(touching), PHI, result).region == "the box"


@pytest.mark.slow
def test_the_constants_say_nothing_where_y_star_is_outside() -> None:
    result = verify.run(LEAVING, claims=["grad-Lipschitz"], rng=0, effort="quick")["grad-Lipschitz"]
    assert result.verdict is verify.Verdict.INCONCLUSIVE
    assert result.region == "the box, where y* stays in it"
    assert "y* leaves the box in y for x in [-1, -0.1000977] and [0.0004882812, 1]" in result.message


@pytest.mark.slow
def test_what_is_enclosed_over_the_whole_box_in_x_still_holds() -> None:
    result = verify.run(LEAVING, claims=["hess-Lipschitz"], rng=0, effort="quick")["hess-Lipschitz"]
    assert (str(result.verdict), result.evidence, result.region) == ("HOLDS", "certified", WHOLE_X)
    assert result.measured is not None
    assert result.measured >= 1000 * np.exp(10)  # sup |D^3 Phi|, at x = 1, outside of what the constants speak of


@pytest.mark.slow
def test_blocks_are_bounded_for_all_y_of_the_box() -> None:
    found = verify.run(LEAVING, claims=["pro:bounds"], rng=0, effort="quick").results
    blocks = {r.part: str(r.verdict) for r in found if r.region == "all (x, y) of the box"}
    assert set(blocks) == {"inverse Hessian", "first order", "second order", "third order"}
    assert set(blocks.values()) == {"HOLDS"}
    assert {r.part: str(r.verdict) for r in found if r.part == "hypergradient"} == {"hypergradient": "INCONCLUSIVE"}


@pytest.mark.slow
def test_no_row_of_a_report_is_without_its_region_and_none_claims_what_was_left_out() -> None:
    report = verify.run(LEAVING, rng=0, effort="quick")
    speaking = [r for r in report.results if r.verdict is not verify.Verdict.NOT_APPLICABLE]
    assert all(r.region for r in speaking)
    for r in speaking:
        if r.region.endswith("where y* stays in it"):
            assert r.verdict is not verify.Verdict.HOLDS, r
    assert {"grad-Lipschitz", "unlabelled:y-star-lipschitz", "lem:descent", "unlabelled:v-star-bound"} <= {
        r.label for r in speaking if "y* leaves the box in y" in r.message
    }


def test_the_region_stands_in_every_format() -> None:
    report = verify.run(zoo.get("scalar").problem, claims=["unlabelled:v-star-bound"], rng=0, effort="quick")
    (result,) = report.results
    assert result.region
    assert json.loads(report.to_json())["results"][0]["region"] == result.region
    for text in (report.to_text(width=400), report.to_markdown(), report._repr_html_()):
        assert result.region in text


# ---- where y* stays in the box ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scalar", "saddle", "implicit_cubic", "minimax_nash", "ridge", "block_extremal"])
def test_y_star_stays_in_the_boxes_of_the_zoo(name: str) -> None:
    problem = zoo.get(name).problem
    assert problem.box is not None
    assert study_of(problem).left_out == ""


def test_touching_the_end_of_the_box_is_not_leaving_it() -> None:
    box = {"x": (-1, 1), "y": (-1, 1)}
    assert study_of(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", box=box)).left_out == ""
    assert study_of(BilevelProblem("x*y", "y**2/2 - x*y*(1 + 1/1000000)", "x", "y", box=box)).left_out != ""


def test_a_box_of_x_alone_leaves_nothing_out() -> None:
    assert study_of(BilevelProblem("exp(y)", "(y - 10*x)**2/2", "x", "y", box={"x": (-1, 1)})).left_out == ""


def test_in_two_variables_a_share_and_a_hull_are_given() -> None:
    found = coverage(PLANE, PLANE.box)  # type: ignore[arg-type]
    assert "of the box in x, inside x1 in [0" in found.left_out
    assert 0.4 < found.share <= 0.5  # x1 + x2 > 1
    lower, upper = found.outside
    assert (lower.sum(axis=1) > 1).all()
    assert (upper <= 1).all()


@pytest.mark.slow
@given(st.integers(-30, 30), st.integers(-10, 10), st.integers(0, 10))
def test_the_part_left_out_is_where_a_line_leaves(slope: int, low: int, width: int) -> None:
    """y* = slope x over [-1, 1]: every piece called outside is, and what is not called so is inside or next to it."""
    box = {"x": (-1, 1), "y": (low, low + width)}
    problem = BilevelProblem("y", f"(y - ({slope})*x)**2/2", "x", "y", box=box)
    found = coverage(problem, problem.box)  # type: ignore[arg-type]
    for a, b in zip(*(ends[:, 0] for ends in found.outside), strict=True):
        y = sorted((slope * a, slope * b))
        assert y[1] < low or y[0] > low + width
    grid = np.linspace(-1, 1, 41)
    outside = (slope * grid < low - 1e-6) | (slope * grid > low + width + 1e-6)
    assert bool(found.left_out) or not outside.any()
