"""classify: the kinds of the zoo's points, what is undecided and says so, and input that is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, MinimaxProblem, zoo
from bilevel_sym.errors import InvalidArgument
from verify.points.classification import classify

SPECS = [
    "scalar", "saddle,d=1", "saddle", "saddle,d=3", "saddle,d=4", "saddle,d=5", "implicit_cubic", "quadratic",
    "quadratic,d=1,n=1,spectrum=isotropic", "quadratic,d=3,n=2,spectrum=isotropic", "quadratic,d=2,n=4,spectrum=1:2:3:4",
    "quadratic,d=5,n=5,spectrum=100,seed=3", "minimax_nash", "minimax_not_nash", "minimax_degenerate",
    "stochastic_noise", "tube,d=1", "tube,d=2", "tube_coupled,d=2,kappa=50",
]  # fmt: skip
SLOW = ["tube,d=5", "tube,d=3,L=2", "tube,d=3,gamma=1/2", "tube_coupled", "tube,d=10,L=3/2"]


@pytest.mark.slow
@pytest.mark.parametrize("spec", [*SPECS, *(pytest.param(spec, marks=pytest.mark.long) for spec in SLOW)])
def test_every_known_point_of_the_zoo_has_its_kind(spec: str) -> None:
    example = zoo.parse(spec)
    assert example.stationary_points
    for known in example.stationary_points:
        found = classify(example.problem, [float(value) for value in known.x])
        assert found.kind == known.kind, str(found)
        assert found.point is not None
        assert found.point.proved
        off = classify(example.problem, [float(value) + 1e-3 for value in known.x])
        assert off.kind == "not stationary"
        assert off.point is None


def test_a_point_nearby_is_refined_and_one_farther_away_is_not() -> None:
    problem = zoo.get("scalar").problem
    root = 1 - 2**0.5
    found = classify(problem, [root + 9e-7])
    assert found.kind == "local minimum"
    assert abs(found.x[0] - root) < 1e-15
    assert classify(problem, [root + 1.1e-6]).kind == "not stationary"
    assert classify(problem, [root + 1.1e-6], radius="1e-5").kind == "local minimum"


def test_points_are_read_as_certificates_read_them() -> None:
    problem = zoo.get("saddle").problem
    ways: list[Any] = [
        [2, 0],
        ["2", "0.0"],
        [Fraction(2), 0.0],
        {"x1": 2, "x2": "0"},
        np.array([2.0, 0.0]),
        (sp.Integer(2), 0),
    ]
    assert {classify(problem, x).kind for x in ways} == {"local minimum"}


@pytest.mark.parametrize(
    "x", [[1], [1, 2, 3], [float("nan"), 0], [float("inf"), 0], "ab", 3.0, {"x1": 1}, [None, 1], [[1, 2]], [True, 0]]
)
def test_a_bad_point_is_refused(x: object) -> None:
    with pytest.raises(InvalidArgument):
        classify(zoo.get("saddle").problem, x)  # type: ignore[arg-type]


def test_other_bad_input_is_refused() -> None:
    problem = zoo.get("saddle").problem
    for more in (
        {"radius": 0},
        {"radius": -1},
        {"radius": float("nan")},
        {"eps": -1},
        {"eps": float("inf")},
        {"y": [1]},
    ):
        with pytest.raises(InvalidArgument):
            classify(problem, [0, 0], **more)
    with pytest.raises(InvalidArgument):
        classify("saddle", [0, 0])  # type: ignore[arg-type]


# ---- degenerate, and nearly so ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_degenerate_is_said_only_where_it_is_proved() -> None:
    quartic = zoo.get("minimax_degenerate").problem
    assert classify(quartic, [0]).kind == "degenerate"
    assert classify(quartic, [3e-7]).kind == "degenerate"  # the exact point is within the radius
    irrational = BilevelProblem("(x**2 - 2)**3 + y**2", "y**2/2", "x", "y")
    found = classify(irrational, [2**0.5])
    assert found.kind == "undecided"
    assert found.message
    nearly = BilevelProblem("x**4 + 1e-12*x**2 + y**2", "y**2/2", "x", "y")
    assert classify(nearly, [0]).kind == "local minimum"  # many digits decide it


def test_a_line_of_stationary_points_is_degenerate() -> None:
    problem = BilevelProblem("x1*y", "y**2/2 - x1*y", "x1 x2", "y")
    found = classify(problem, [0, "1/3"])
    assert found.kind == "degenerate"
    assert (found.eigenvalues[0].lower, found.eigenvalues[0].upper) == (0.0, 0.0)


def test_an_indefinite_singular_hessian_is_a_saddle() -> None:
    problem = BilevelProblem("x1*y - x2**2 + x3**4", "y**2/2 - x1*y", "x1 x2 x3", "y")
    assert classify(problem, [0, 0, 0]).kind == "saddle"


@pytest.mark.slow
def test_a_kink_is_undecided() -> None:
    problem = BilevelProblem("y", "y**2/2 - abs(x)*y", "x", "y")
    found = classify(problem, [0])
    assert found.kind == "undecided"
    assert "switches" in found.message
    assert classify(problem, ["0.5"]).kind == "not stationary"


@settings(max_examples=25)
@given(st.lists(st.integers(-4, 4), min_size=3, max_size=3))
def test_kinds_agree_with_exact_signs_of_a_random_quadratic(entries: list[int]) -> None:
    a, b, c = entries
    problem = BilevelProblem(f"{a}*x1**2/2 + {b}*x1*x2 + {c}*x2**2/2 + y**2", "y**2/2 - 0*x1", "x1 x2", "y")
    signs = np.linalg.eigvalsh(np.array([[a, b], [b, c]], dtype=float))
    if a * c - b * b == 0:
        expected = "degenerate"
    else:
        expected = {2: "local minimum", 1: "saddle", 0: "local maximum"}[int((signs > 0).sum())]
    assert classify(problem, [0, 0]).kind == expected


# ---- minimax ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nash", "minimax"),
    [("minimax_nash", True, True), ("minimax_not_nash", False, True), ("minimax_degenerate", False, False)],
)
def test_the_notions_of_minimax_optimality(name: str, nash: bool, minimax: bool) -> None:
    found = classify(zoo.get(name).problem, [0])
    assert (found.is_local_nash, found.is_local_minimax) == (nash, minimax)


def test_a_saddle_of_phi_is_neither() -> None:
    problem = MinimaxProblem("x1**2 - 3*x2**2 + x2*y - y**2/2", "x1 x2", "y")
    found = classify(problem, [0, 0])
    assert (found.kind, found.is_local_nash, found.is_local_minimax) == ("saddle", False, False)


def test_bilevel_problems_have_no_such_notions() -> None:
    found = classify(zoo.get("saddle").problem, [0, 0])
    assert found.is_local_nash is None
    assert found.is_local_minimax is None


def test_y_is_compared_with_y_star() -> None:
    problem = zoo.get("minimax_not_nash").problem
    assert classify(problem, [0], [0]).is_local_minimax is True
    found = classify(problem, [0], ["0.5"])
    assert "off by 0.5" in found.message
    assert found.is_local_minimax is False
    assert found.kind == "local minimum"
    away = classify(zoo.get("saddle").problem, [1, 0], [0, 0])
    assert "y is not y*(x)" in away.message


# ---- eps-local minima -------------------------------------------------------------------------------------------


def test_eps_local_minimum_by_the_definition() -> None:
    problem = BilevelProblem("x1*y - x2**2/100", "y**2/2 - x1*y", "x1 x2", "y")  # eigenvalues 2 and -1/50
    assert classify(problem, [0, 0], eps=0.1, rho_phi=0.01).is_eps_local_minimum is True  # 1/50 < sqrt(1/1000)
    assert classify(problem, [0, 0], eps=0.1, rho_phi=0.001).is_eps_local_minimum is False
    # |grad Phi| = 2 x1 against eps
    assert classify(problem, ["0.05", 0], eps="0.1", rho_phi=1).is_eps_local_minimum is not False
    assert classify(problem, ["0.0501", 0], eps="0.1", rho_phi=1).is_eps_local_minimum is False
    assert classify(problem, [0, 0]).is_eps_local_minimum is None


def test_at_a_true_minimum_no_constant_is_needed() -> None:
    found = classify(zoo.get("saddle").problem, [2, 0], eps=1e-6)
    assert found.is_eps_local_minimum is True
    assert "eps local minimum" in str(found)


def test_at_a_strict_saddle_a_small_eps_fails() -> None:
    found = classify(zoo.get("saddle").problem, [0, 0], eps=1e-3, rho_phi=1)
    assert found.is_eps_local_minimum is False


@pytest.mark.slow
def test_the_printed_tube_at_the_end_of_its_domain() -> None:
    example = zoo.get("tube_printed", d=3)
    assert example.stationary_points
    for known in example.stationary_points:
        found = classify(example.problem, [float(value) for value in known.x])
        assert found.kind == known.kind
        assert ("end of the domain" in str(found)) == (0 in known.x)


def test_beyond_the_end_of_the_domain_there_is_no_point() -> None:
    x, y = sp.symbols("x y")
    inside = BilevelProblem(sp.Piecewise(((x - 1) ** 2, x >= 0)) + y, y**2 / 2, x, y)
    outside = BilevelProblem(sp.Piecewise(((x + 1) ** 2, x >= 0)) + y, y**2 / 2, x, y)
    assert classify(inside, [1]).kind == "local minimum"
    assert classify(outside, [-1]).point is None
