"""All stationary points in a box: against closed forms, against SymPy's roots, and nothing is ever lost."""

from __future__ import annotations

from functools import partial
from itertools import combinations_with_replacement, product
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import sympy as sp
from flint import arb, arb_mat
from helpers import FEW, random_problem
from hypothesis import given, settings

from bilevel_sym import BilevelProblem, Box, StochasticProblem, zoo
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.certify import krawczyk
from bilevel_sym.errors import InvalidArgument, InvalidProblem, LowerLevelFailure
from verify.points.balls import _Stationarity, eigenvalue_balls, exact_point, inertia, refine, simplest
from verify.points.boxes import Boxes, excluded, newton_image
from verify.points.point import StationaryPoint, bracket_of, kind_by_inertia, kind_of
from verify.points.stationary import clusters, search, stationary_points
from verify.regularity.phi_smoothness import smoothness
from verify.reporting import Report
from verify.runner import run
from verify.verdict import Bracket

EASY = [
    "scalar", "saddle,d=1", "saddle", "implicit_cubic", "lphi_witness", "quadratic", "quadratic,d=3,n=2,seed=4",
    "quadratic,d=1,n=1,spectrum=isotropic", "quadratic,d=5,n=5,spectrum=100", "minimax_nash", "minimax_not_nash",
    "stochastic_noise",
]  # fmt: skip


def matches(found: list[StationaryPoint], example: zoo.Example) -> bool:
    """Whether these are the known points of the box, with their kinds."""
    exact = getattr(example.problem, "mean", example.problem)
    assert example.problem.box is not None
    box = list(example.problem.box)[: exact.d]
    known = {
        (tuple(round(float(a), 9) + 0.0 for a in point.x), point.kind)
        for point in example.stationary_points or ()
        if all(low <= a <= high for a, (low, high) in zip(point.x, box, strict=True))
    }
    return {(tuple(round(a, 9) + 0.0 for a in point.x), point.kind) for point in found} == known


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("spec", EASY)
def test_finds_exactly_the_known_points(spec: str) -> None:
    example = zoo.parse(spec)
    result = search(example.problem, effort=15)  # far more than it takes
    assert result.complete
    assert matches(list(result.points), example), str(result)


@pytest.mark.slow
@pytest.mark.in_ci(spec=["saddle,d=3"])
@pytest.mark.parametrize("spec", ["saddle,d=3", "tube,d=2"])
def test_finds_exactly_the_known_points_slowly(spec: str) -> None:
    example = zoo.parse(spec)
    result = search(example.problem, effort=15)  # far more than it takes
    assert result.complete
    if example.all_stationary:
        assert matches(list(result.points), example)
    else:  # the tube's points, with their mirror images
        tau4 = 4 * np.e
        expected = {(0.0, 0.0)} | {(a * tau4, 0.0) for a in (1, -1)} | set(product((tau4, -tau4), repeat=2))
        assert len(result.points) == len(expected) == 7
        assert all(min(np.abs(np.subtract(p.x, e)).max() for e in expected) < 1e-9 for p in result.points)
        assert all(p.kind == ("local minimum" if all(p.x) else "saddle") for p in result.points)


def test_every_ball_holds_the_known_point_and_many_digits_are_certain() -> None:
    for point in stationary_points(zoo.get("scalar").problem):
        root = 1 + sp.sqrt(2) if point.x[0] > 0 else 1 - sp.sqrt(2)
        assert point.balls[0].contains(str(sp.N(root, 70))) or abs(point.balls[0].mid - root.evalf(70)) < 1e-50
        assert point.balls[0].digits > 50
        assert point.radius < 1e-15
        assert abs(point.x[0] - float(root)) <= point.radius
        (low, high) = next(iter(point.box))
        assert low < point.x[0] < high


def test_the_tube_in_one_dimension_is_decided_across_its_kinks() -> None:
    result = search(zoo.get("tube", d=1).problem)
    assert result.complete
    assert [point.kind for point in result.points] == ["local minimum", "local maximum", "local minimum"]


# ---- an independent route: SymPy's real roots of Phi' ---------------------------------------------------------


@pytest.mark.slow
@settings(FEW)
@given(st.lists(st.integers(-5, 5), min_size=3, max_size=5), st.lists(st.integers(-2, 2), min_size=1, max_size=3))
def test_against_the_real_roots_of_a_polynomial(upper: list[int], target: list[int]) -> None:
    x, y = sp.symbols("x y")
    p = sum(c * x**k for k, c in enumerate(target))
    f = sum(c * x**k for k, c in enumerate(upper)) + y
    phi = sp.expand(f.subs(y, p))
    slope = sp.Poly(sp.diff(phi, x), x)
    if slope.degree() < 1:
        return
    problem = BilevelProblem(f, (y - p) ** 2 / 2, x, y)
    result = search(problem, Box([-2], [2]), effort=0.2)
    simple: list[sp.Expr] = []
    multiple: list[sp.Expr] = []
    for root, times in sp.Poly(slope, x).sqf_list()[1]:
        for value in root.real_roots():
            if -2 <= value <= 2:
                (simple if times == 1 else multiple).append(value)
    if not multiple:
        assert result.complete
    assert len([point for point in result.points if point.kind != "degenerate"]) == len(simple)
    boxes = [next(iter(box)) for box in result.undecided]
    for value in simple:
        near = min(result.points, key=lambda point: abs(point.x[0] - float(value)))
        assert abs(near.x[0] - float(value)) < 1e-12 * (1 + abs(float(value)))
        curvature = sp.diff(phi, x, 2).subs(x, value)
        assert near.kind == ("local minimum" if curvature > 0 else "local maximum")
    for value in multiple:  # not lost
        assert any(low <= value <= high for low, high in boxes)


@pytest.mark.slow
@pytest.mark.in_ci(seed=(0, 2))
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_newton_in_float64_finds_nothing_else(seed: int) -> None:
    problem = random_problem(seed)
    exact = problem.mean if isinstance(problem, StochasticProblem) else problem
    result = search(problem, effort=0.15)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        x = rng.uniform(-1, 1, exact.d)
        for _ in range(30):
            step = np.linalg.lstsq(exact.kernels.hess_phi(x), exact.kernels.grad_phi(x), rcond=None)[0]
            x = np.clip(x - step, -1.2, 1.2)
        if np.abs(step).max() < 1e-9 and np.abs(x).max() < 1 - 1e-6:
            at_point = any(np.abs(np.subtract(point.x, x)).max() < 1e-6 for point in result.points)
            in_box = any(all(a <= v <= b for v, (a, b) in zip(x, box, strict=True)) for box in result.undecided)
            assert at_point or in_box


# ---- borders ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lower", "upper", "count"),
    [
        ([2, 0], [4, 1], 1),  # a corner of the box
        ([0, -1], [2, 0], 2),
        (["2.000001", 0], [4, 1], 0),
        (["-4", "1e-9"], [4, 1], 0),
        ([0, 0], [0, 0], 1),  # no width at all
        ([0, -1], [0, 1], 1),
        ([2, 2], [2, 2], 0),
        (["-1/3", "-1/3"], ["1/3", "1/7"], 1),
    ],
)
def test_a_point_on_the_border_counts_and_one_outside_does_not(
    lower: list[object], upper: list[object], count: int
) -> None:
    result = search(zoo.get("saddle").problem, Box(lower, upper))
    assert result.complete
    assert len(result.points) == count


def test_a_point_where_boxes_are_cut_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import verify.points.stationary as module

    monkeypatch.setattr(module, "CUT", 0.5)  # the points at 0 are then corners of four boxes
    monkeypatch.setattr(module._Search, "_from_starts", lambda self: None)
    example = zoo.get("saddle")
    result = search(example.problem, effort=15)  # far more than it takes
    assert result.complete
    assert matches(list(result.points), example)


@pytest.mark.slow
def test_boxes_by_name_by_position_and_with_y() -> None:
    problem = zoo.get("scalar").problem
    given_: list[Any] = [Box([-3], [3]), Box([-3, -1], [3, 1]), {"x": (-3, 3)}, problem.box]
    assert {len(stationary_points(problem, box)) for box in given_} == {2}


# ---- what cannot be decided -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_singular_hessian_is_one_cluster_quickly() -> None:
    result = search(zoo.get("minimax_degenerate").problem)
    assert not result.complete
    assert len(result.undecided) == 1
    assert result.boxes < 1000
    assert [(point.x, point.kind) for point in result.points] == [((0.0,), "degenerate")]
    assert "singular" in result.message


@pytest.mark.slow
def test_an_irrational_singular_point_stays_undecided() -> None:
    problem = BilevelProblem("(x**2 - 2)**3 + y**2", "y**2/2", "x", "y")
    points = stationary_points(problem, Box(["1"], [2]), effort=0.15)
    assert [point.kind for point in points] == ["undecided"]
    assert not points[0].proved
    assert float(points[0].box.lower[0]) < 2**0.5 < float(points[0].box.upper[0])


@pytest.mark.slow
def test_a_curve_of_stationary_points_does_not_take_for_ever() -> None:
    problem = BilevelProblem("(x1 - x2)**2 + y**2", "y**2/2", "x1 x2", "y")
    result = search(problem, Box([-1, -1], [1, 1]), effort=0.4)
    assert result.boxes < 100_000
    assert len(result.undecided) <= 3
    covered = [dict(box.items()) for box in result.undecided]
    for t in np.linspace(-1, 1, 21):
        assert any(all(low <= t <= high for low, high in box.values()) for box in covered)


@pytest.mark.slow
def test_a_kink_is_undecided_and_says_why() -> None:
    problem = BilevelProblem("y", "y**2/2 - abs(x - 1/3)*y", "x", "y")  # Phi = |x - 1/3|
    result = search(problem, Box([-1], [1]), effort=0.25)
    assert not result.points
    assert len(result.undecided) == 1
    assert "switches" in result.message
    low, high = next(iter(result.undecided[0]))
    assert low < sp.Rational(1, 3) < high
    assert high - low < sp.Rational(1, 1000)


def test_a_kink_without_a_stationary_point_is_proved_away() -> None:
    bend = sp.Piecewise((sp.Symbol("x"), sp.Symbol("x") < 0), (3 * sp.Symbol("x"), True))
    x, y = sp.symbols("x y")
    assert search(BilevelProblem(y, y**2 / 2 - bend * y, x, y), Box([-1], [1])).complete


@pytest.mark.slow
def test_a_lower_level_with_a_kink_in_y_is_left_undecided() -> None:
    problem = BilevelProblem("y + 3*x", "y**2/2 + abs(y) - x*y", "x", "y")
    assert not Boxes(problem).has_hull
    result = search(problem, Box([-3], [3]), effort=0.01)
    assert not result.complete
    assert not result.points
    with pytest.raises(LowerLevelFailure, match="lies on a kink, y = 0"):  # for every x of this box
        search(problem, Box([-1], [1]), effort=0.01)


@pytest.mark.slow
def test_outside_the_domain_and_without_convexity_nothing_is_said() -> None:
    log = BilevelProblem("log(x)*y", "y**2/2 - y", "x", "y")
    found = search(log, Box([-1], [1]), effort=0.025)
    assert not found.points
    assert all(any(a <= value <= b for a, b in (next(iter(box)) for box in found.undecided)) for value in (-1, 0))
    concave = BilevelProblem("x*y", "x*y**2/2 - y", "x", "y")
    assert not search(concave, Box([-2], [2]), effort=0.025).complete


@pytest.mark.slow
@pytest.mark.in_ci(spec=("saddle,d=4", "robust_regression"))
@pytest.mark.parametrize("spec", ["saddle,d=4", "tube,d=3", "robust_regression"])
@pytest.mark.parametrize("limit", [{"effort": 0.015}, {"effort": 0.0}, {"seconds": 0.05}])
def test_out_of_effort_or_time_nothing_is_lost(spec: str, limit: dict[str, float]) -> None:
    example = zoo.parse(spec)
    result = search(example.problem, **limit)  # type: ignore[arg-type]
    assert result.cut == ("cut by time" in result.message)
    assert not result.cut or "seconds" in limit
    for known in example.stationary_points or ():
        x = [float(value) for value in known.x]
        at_point = any(np.abs(np.subtract(point.x, x)).max() < 1e-9 for point in result.points)
        in_box = any(
            all(float(a) <= v <= float(b) for v, (a, b) in zip(x, box, strict=True)) for box in result.undecided
        )
        assert at_point or in_box


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "f"),
    [(search, "x*y - y"), (smoothness, "x*y - 2*y"), (partial(run, claims=["grad-Lipschitz"]), "x*y + y")],
)
def test_what_is_compiled_when_first_asked_for_is_not_counted(
    work: Any, f: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of ten seconds, and a compilation of a thousand: nothing is cut."""
    pytest.importorskip("numba")
    now = [0.0]
    monkeypatch.setattr("bilevel_sym.kernels.compilation.make_ready", lambda: now.append(now[-1] + 1000))
    monkeypatch.setattr("bilevel_sym.system.budget.monotonic", lambda: now[-1])
    box = {"x": (-2, 2), "y": (-3, 3)}
    found = work(BilevelProblem(f, "y**2/2 - x*y + y**4/97", "x", "y", box=box), seconds=10)
    assert len(now) == 2
    assert "cut by time" not in (found.to_text() if isinstance(found, Report) else str(found))


def test_bad_input_is_refused() -> None:
    problem = zoo.get("scalar").problem
    for box in (Box([0, 0, 0], [1, 1, 1]), {"z": (0, 1)}, {"x": (1, 0)}, {"x": (0, float("nan"))}):
        with pytest.raises(InvalidProblem):
            search(problem, box)
    with pytest.raises(InvalidProblem):
        search(BilevelProblem("x*y", "y**2 - x*y", "x", "y"))
    with pytest.raises(InvalidArgument):
        search("scalar")  # type: ignore[arg-type]
    for seconds in (0, -1, float("nan"), float("inf"), True):
        with pytest.raises(InvalidArgument):
            search(problem, seconds=seconds)


@pytest.mark.slow
def test_results_print() -> None:
    text = str(search(zoo.get("minimax_degenerate").problem))
    assert "degenerate" in text
    assert "perhaps others" in text
    (point,) = stationary_points(BilevelProblem("y", "y**2/2 - abs(x)*y", "x", "y"), Box([-1], [1]), effort=0.1)
    assert str(point).startswith("undecided: x in [")


# ---- the pieces -------------------------------------------------------------------------------------------------


def test_the_jacobian_of_the_system_is_that_of_its_equations() -> None:
    x, y = sp.symbols("x1:3"), sp.symbols("y1:4")
    f = x[0] ** 2 * y[1] + sp.exp(y[0]) * x[1] + y[2] ** 3 * x[0]
    g = sum(t**2 for t in y) + y[0] * y[1] * x[0] / 4 + sp.sin(x[1] + y[2]) / 3 + y[0] ** 4 * x[1] / 8
    problem = BilevelProblem(f, g, x, y)
    v = sp.symbols("v1:4")
    g_y = sp.Matrix([sp.diff(g, t) for t in y])
    lagrangian = f - (sp.Matrix([v]) * g_y)[0]
    system = sp.Matrix([*(sp.diff(lagrangian, s) for s in x), *g_y, *(sp.diff(lagrangian, t) for t in y)])
    at = dict(zip((*x, *y, *v), [sp.Rational(k + 2, 7) for k in range(8)], strict=True))
    truth = np.array(system.jacobian([*x, *y, *v]).subs(at).evalf(30), dtype=float)
    with precision(200):
        balls = [arb(k + 2) / 7 for k in range(8)]
        found = _Stationarity(problem).derivatives(balls)
        value, jacobian = (np.array([[float(e) for e in row] for row in part.table()]) for part in found)
    np.testing.assert_allclose(jacobian, truth, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(value, np.array(system.subs(at).evalf(30), dtype=float), rtol=1e-13, atol=1e-13)


@settings(FEW)
@given(st.integers(1, 5), st.integers(0, 10**6), st.sampled_from([0.0, 1e-9, 0.1]))
def test_eigenvalue_balls_contain_the_eigenvalues_of_every_matrix_inside(d: int, seed: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    a = rng.integers(-4, 5, (d, d)).astype(float)
    a = a + a.T
    with precision(120):
        balls = eigenvalue_balls(arb_mat([[arb(a[i, j], radius) for j in range(d)] for i in range(d)]))
        noise = rng.uniform(-radius, radius, (d, d))
        values = np.linalg.eigvalsh(a + (noise + noise.T) / 2)
        for ball, value in zip(balls, values, strict=True):
            assert (ball + arb(0, 1e-12)).contains(arb(float(value)))


def test_excluded_boxes_have_no_zero_and_images_hold_every_zero() -> None:
    problem = zoo.get("saddle").problem
    boxes = Boxes(problem)
    rng = np.random.default_rng(5)
    centre, reach = rng.uniform(-4, 4, (400, 2)), rng.uniform(0.01, 0.6, (400, 1))
    found = boxes.enclose(centre - reach, centre + reach)
    low, high = newton_image(found)
    gone = excluded(found)
    assert gone.any()
    for zero in ([0.0, 0.0], [2.0, 0.0], [-2.0, 0.0]):
        holds = np.asarray((np.abs(centre - zero) <= reach).all(axis=1))
        assert not (holds & gone).any()
        inside = np.asarray(((low <= zero) & (zero <= high)).all(axis=1))
        assert inside[holds].all()


@pytest.mark.slow
def test_hulls_over_kinks_exclude_only_what_has_no_zero() -> None:
    problem = zoo.get("tube", d=2).problem
    boxes = Boxes(problem)
    rng = np.random.default_rng(2)
    centre, reach = rng.uniform(-12, 12, (300, 2)), rng.uniform(0.01, 0.4, (300, 1))
    centre[:150, 0] = np.e * rng.choice([1, 2, -1, -2], 150) + rng.uniform(-0.01, 0.01, 150)
    y = problem.kernels.y_star(centre)
    gone = boxes.hull_excluded(centre - reach, centre + reach, y)
    assert gone[:150].sum() > 20
    for lane in np.flatnonzero(gone):
        x = centre[lane] + reach[lane] * rng.uniform(-1, 1, (40, 2))
        assert np.abs(problem.kernels.grad_phi(x)).max(axis=1).min() > 0
        # one entry keeps its sign all over the box, whatever the branch
        grad = problem.kernels.grad_phi(x)
        assert ((grad > 0).all(axis=0) | (grad < 0).all(axis=0)).any()


def test_a_side_across_a_switch_is_told() -> None:
    bent = Boxes(BilevelProblem("y", "y**2/2 - (abs(a - E) + abs(b - 2*E))*y", "a b", "y"))
    centre = np.array([[np.e + 0.03, 1.0], [1.0, 2 * np.e - 0.03], [1.0, 1.0]])
    assert bent.straddling(centre - 0.1, centre + 0.1).tolist() == [[True, False], [False, True], [False, False]]
    tube = Boxes(zoo.get("tube", d=2).problem)  # C^2: its pieces agree on the faces as far as Hess Phi needs
    assert not tube.straddling(centre - 0.1, centre + 0.1).any()


def test_no_root_is_claimed_where_there_is_none() -> None:
    problem = BilevelProblem("x*y + y", "y**2/2 - x**2*y - y", "x", "y")  # Phi' = 3x^2 + 2x + 1 > 0
    assert refine(problem, [0.1], [1.0]) is None
    assert stationary_points(problem, Box([-5], [5])) == []


def test_a_nearly_double_root_is_two_points() -> None:
    problem = BilevelProblem("x**3/3 - 1e-10*x + 0*y", "(y - x)**2", "x", "y")
    points = stationary_points(problem, Box([-1], [1]))
    assert [point.kind for point in points] == ["local maximum", "local minimum"]
    np.testing.assert_allclose([point.x[0] for point in points], [-1e-5, 1e-5], rtol=1e-12)


@given(st.fractions(-5, 5, max_denominator=40), st.fractions(0, 1, max_denominator=60))
def test_the_simplest_rational_lies_inside_and_none_is_simpler(low: object, width: object) -> None:
    a, b = sp.Rational(str(low)), sp.Rational(str(low)) + sp.Rational(str(width))
    found = simplest(a, b)
    assert a <= found <= b
    for q in range(1, int(found.q)):
        assert sp.floor(b * q) < sp.ceiling(a * q)


@given(st.lists(st.integers(-3, 3), min_size=6, max_size=6), st.integers(1, 3))
def test_inertia_counts_signs(entries: list[int], d: int) -> None:
    a = sp.zeros(d)
    for entry, (i, j) in zip(entries, combinations_with_replacement(range(d), 2), strict=False):
        a[i, j] = a[j, i] = entry
    values = np.linalg.eigvalsh(np.array(a, dtype=float))
    expected = ((values > 1e-9).sum(), (values < -1e-9).sum(), (np.abs(values) <= 1e-9).sum())
    assert inertia(a) == expected


def test_exact_points_refuse_kinks_and_points_that_are_not_stationary() -> None:
    kink = BilevelProblem("abs(x) + y**2", "y**2/2", "x", "y")
    assert exact_point(kink, [sp.Integer(0)]) is None
    assert exact_point(zoo.get("saddle").problem, [sp.Integer(1), sp.Integer(0)]) is None
    found = exact_point(zoo.get("saddle").problem, [sp.Integer(2), sp.Integer(0)])
    assert found is not None
    assert found.hess == sp.diag(sp.Rational(1, 8), 1)


def test_kinds_from_signs() -> None:
    assert kind_of([Bracket(-2, -1), Bracket(-1, 1), Bracket(1, 2)]) == "saddle"
    assert kind_of([Bracket(-2, -1), Bracket(-1, 0)]) == "undecided"
    assert kind_of([Bracket(-2, -1)]) == "local maximum"
    assert kind_by_inertia(0, 1, 1) == "degenerate"
    assert kind_by_inertia(0, 2, 0) == "local maximum"


def test_brackets_of_balls_are_outward() -> None:
    with precision(200):
        from bilevel_sym.arithmetic.balls import Ball

        for value in (arb(1) / 3, arb(-2) / 7, arb(1, 1e-30), arb(0)):
            bracket = bracket_of(Ball(value))
            assert arb(bracket.lower) <= value
            assert arb(bracket.upper) >= value


@pytest.mark.slow
def test_very_many_boxes_are_gathered_and_stay_covered() -> None:
    rng = np.random.default_rng(0)
    lower = rng.random((1000, 2))
    upper = lower + 1e-4
    found = clusters(lower, upper, np.zeros(2), np.ones(2))
    assert len(found) <= 500
    for low, high in zip(lower, upper, strict=True):
        assert any((a <= low).all() and (high <= b).all() for a, b in found)


def test_the_end_of_a_domain() -> None:
    x, y = sp.symbols("x y")
    for centre, count in ((1, 1), (0, 1), (-1, 0)):
        problem = BilevelProblem(sp.Piecewise(((x - centre) ** 2, x >= 0)) + y, y**2 / 2, x, y)
        points = stationary_points(problem, Box([-2], [2]))
        assert len(points) == count
        assert all(("end of the domain" in point.message) == (centre == 0) for point in points)


@pytest.mark.parametrize("flipped", [False, True])
def test_a_hull_sees_the_zero_of_every_branch(flipped: bool) -> None:
    x, y = sp.symbols("x y")
    zero, slope = (x + sp.Rational(1, 10)) ** 2, x + sp.Rational(1, 100)  # only the first one is stationary somewhere
    bend = sp.Piecewise((slope, x > 0), (zero, True)) if flipped else sp.Piecewise((zero, x <= 0), (slope, True))
    problem = BilevelProblem(y, y**2 / 2 - bend * y, x, y)
    box = np.array([[-0.2]]), np.array([[0.2]])
    assert not Boxes(problem).hull_excluded(*box, np.zeros((1, 1))).any()
    assert [point.kind for point in search(problem, Box([-1], [1]), effort=0.1).points] == ["local minimum"]


def test_the_proof_fails_where_there_is_no_root_although_newton_comes_near() -> None:
    problem = BilevelProblem("x**3/3 + x*1e-30 + y**2", "y**2/2", "x", "y")  # Phi' = x^2 + 1e-30
    with precision(200):
        system, z = _Stationarity(problem), [arb(1e-10), arb(0), arb(0)]
        value, jacobian = system.derivatives(z)
        inverse = jacobian.inv()
        assert krawczyk._proved(system, z, inverse, (inverse * value).entries()) == "not proved"
