"""Enclosures of Phi over boxes, against kernels, 30 digits, and an independent route; planted errors are caught."""

from __future__ import annotations

from itertools import combinations_with_replacement as multisets
from typing import Any

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bilevel_sym import BilevelProblem, MinimaxProblem, evaluate, zoo
from bilevel_sym.arithmetic import intervals
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.elementary import ARB
from bilevel_sym.graph.nodes import Graph
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.graph.program import build
from bilevel_sym.typing import Floats
from verify.enclosures.affine import Affine, AffineProgram
from verify.enclosures.interval_matrix import Matrices
from verify.enclosures.phi_boxes import PhiBoxes, PhiEnclosure

SHAPES = {
    "d > n": BilevelProblem("sin(x1 + y) + x2*y + cos(x3)", "y**2 + exp(y/2 + x1/3) - x2*y*cos(x3)/2", "x1 x2 x3", "y"),
    "n > d": BilevelProblem(
        "y1*y2 + x*exp(y3)/2",
        "y1**2 + y2**2 + y3**2 + sin(y1 + y2 - x)/4 + cos(y3*x)/3 - x*y1",
        "x",
        "y1 y2 y3",
    ),
    "d = n = 1": BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y"),
    "g_yy constant": BilevelProblem(
        "x1*y1**3 + exp(y2)", "y1**2 + y2**2 + y1*y2 - sin(x1)*y1 - x2*y2", "x1 x2", "y1 y2"
    ),
    "minimax": MinimaxProblem("sin(x1)*y1 - y1**2 - y2**2 + cos(x2 + y2)/4 + x1*x2*y2", "x1 x2", "y1 y2"),
    "powers": BilevelProblem("log(2 + x)*y", "(1 + x**2)*y**2 + y**4/4 - tanh(x)*y + softplus(y)", "x", "y"),
}
ZOO = (
    "implicit_cubic",
    "scalar",
    "quadratic",
    "saddle",
    "ridge",
    "logistic",
    "minimax_degenerate",
    "robust_regression",
)


def problems() -> dict[str, BilevelProblem]:
    return SHAPES | {name: zoo.get(name).problem for name in ZOO}


def boxes_in(problem: BilevelProblem, rng: np.random.Generator, lanes: int, part: float) -> tuple[Floats, Floats]:
    """Small boxes inside the problem's own, or inside [-0.8, 0.8]^d."""
    ends = [(-0.8, 0.8)] * problem.d if problem.box is None else list(problem.box)[: problem.d]
    low, high = (np.array([float(pair[k]) for pair in ends]) for k in range(2))
    reach = part * (high - low) * rng.uniform(0.2, 1.0, (lanes, problem.d))
    middle = rng.uniform(low + reach, high - reach)
    return middle - reach, middle + reach


def assert_inside(values: NDArray[np.floating[Any]], enclosure: Matrices, ok: Any) -> None:
    """Kernels are right up to rounding; enclosures of boxes this wide need no more slack than that."""
    slack = 1e-12 * (1 + np.abs(values))
    assert np.all((values >= enclosure.lower - slack)[ok])
    assert np.all((values <= enclosure.upper + slack)[ok])


def check_against_kernels(problem: BilevelProblem, found: PhiEnclosure, x: Floats) -> None:
    d, kernels = problem.d, problem.kernels
    y = kernels.y_star(x)
    g_yy = kernels.g_yy(x, y)
    assert_inside(y[:, :, None], found.y, found.ok)
    assert_inside(np.linalg.solve(g_yy, kernels.f_y(x, y)[:, :, None]), found.v, found.ok)
    assert_inside(-np.linalg.solve(g_yy, kernels.g_xy(x, y).swapaxes(1, 2)), found.response, found.ok)
    assert_inside(kernels.grad_phi(x)[:, :, None], found.grad, found.ok)
    assert_inside(kernels.hess_phi(x), found.hess, found.ok)
    assert_inside(kernels.third_phi(x).reshape(len(x), d, d * d), found.third, found.ok)


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("name", problems())
@pytest.mark.parametrize("proved", [False, True])
def test_enclosures_contain_values_at_random_points(name: str, proved: bool) -> None:
    problem, rng = problems()[name], np.random.default_rng(3)
    lower, upper = boxes_in(problem, rng, 12, 0.008)
    found = PhiBoxes(problem).enclose(lower, upper, proved=proved, third=True)
    assert found.ok.mean() > 0.9
    for x in (rng.uniform(lower, upper), np.where(rng.random(lower.shape) < 0.5, lower, upper)):
        check_against_kernels(problem, found, x)


@pytest.mark.parametrize("name", ["d > n", "n > d", "minimax"])
def test_thin_boxes_agree_with_thirty_digits(name: str) -> None:
    problem, rng = SHAPES[name], np.random.default_rng(0)
    x = rng.uniform(-0.5, 0.5, (3, problem.d))
    found = PhiBoxes(problem).enclose(x, x, proved=True, third=True)
    assert found.ok.all()
    assert found.hess.radius.max() < 1e-12
    for lane, point in enumerate(x):
        certificate = evaluate(problem, point.tolist(), digits=30)
        for i, ball in enumerate(certificate.grad_phi):
            assert _meets(found.grad, (lane, i, 0), ball.value)
        for i, row in enumerate(certificate.hess_phi):
            for j, ball in enumerate(row):
                assert _meets(found.hess, (lane, i, j), ball.value)


def _meets(enclosure: Matrices, place: tuple[int, ...], value: Any) -> bool:
    return bool(arb(float(enclosure.lower[place])) <= value) and bool(value <= arb(float(enclosure.upper[place])))


def test_enclosures_shrink_to_second_order() -> None:
    """The middle and the slopes carry first order: a box ten times smaller has a rest about a hundred times smaller."""
    problem = SHAPES["n > d"]
    boxes, x = PhiBoxes(problem), np.array([[0.3]])
    coarse, fine = (boxes.enclose(x - r, x + r, third=True).third_forms for r in (1e-2, 1e-3))
    assert coarse is not None
    assert fine is not None
    assert fine.rest.max() < coarse.rest.max() / 50
    slope = fine.slopes[0, 0, 0, 0] / 1e-3
    ends = problem.kernels.third_phi(np.array([[0.3 - 1e-4], [0.3 + 1e-4]]))[:, 0, 0, 0]
    assert slope == pytest.approx((ends[1] - ends[0]) / 2e-4, rel=1e-4)


def test_third_derivatives_by_differences_of_hessians() -> None:
    """A second route: the mean of D^3 Phi between two points is a difference of Hessians."""
    problem = SHAPES["g_yy constant"]
    lower, upper = np.array([[0.1, -0.2]]), np.array([[0.1, -0.1]])
    found = PhiBoxes(problem).enclose(lower, upper, third=True)
    slope = (problem.kernels.hess_phi(upper) - problem.kernels.hess_phi(lower))[0] / 0.1
    third = found.third.reshaped(1, 2, 2, 2)
    assert np.all(third.lower[0, :, :, 1] - 1e-9 <= slope)
    assert np.all(slope <= third.upper[0, :, :, 1] + 1e-9)


def test_failures_are_lanes_and_not_errors() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - x**3*y", "x", "y")
    boxes = PhiBoxes(BilevelProblem("abs(x)*y", "y**2/2 - x*y", "x", "y"))
    found = boxes.enclose(np.array([[-1.0], [0.5]]), np.array([[1.0], [0.6]]), third=True)
    assert found.ok.tolist() == [False, True]
    concave = PhiBoxes(BilevelProblem("x*y", "x*y**2/2 + y**4/4", "x", "y"))
    assert not concave.enclose(np.array([[-1.0]]), np.array([[1.0]]), third=True).ok[0]
    outside = PhiBoxes(BilevelProblem("log(x)*y", "y**2/2 - x*y", "x", "y"))
    assert outside.enclose(np.array([[-1.0], [1.0]]), np.array([[1.0], [2.0]])).ok.tolist() == [False, True]
    assert PhiBoxes(problem).active == (0,)


def test_jump_of_g_is_seen_though_g_yy_is_constant() -> None:
    jumping = BilevelProblem("x*y", "y**2/2 - x*y + Piecewise((y, x < 0), (0, True))", "x", "y")
    found = PhiBoxes(jumping).enclose(np.array([[-0.1], [0.1]]), np.array([[0.1], [0.2]]), third=True)
    assert found.ok.tolist() == [False, True]


@pytest.mark.parametrize("planted", ["sign of the response", "motion of v"])
def test_planted_errors_are_caught(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, rng = SHAPES["n > d"], np.random.default_rng(5)
    honest = Affine.solved_by

    def broken(self: Affine, right: Affine, inverse: Floats) -> tuple[Affine, Floats]:
        solution, off = honest(self, right, inverse)
        if planted == "sign of the response" and right.middle.shape[-1] == 1 + problem.d:
            flipped = Affine(*(part.copy() for part in solution.parts))
            flipped.middle[..., 1:] *= -1
            return flipped, off
        if planted == "motion of v" and right.middle.shape[-1] == problem.d:
            return Affine(0 * solution.middle, 0 * solution.slopes, 0 * solution.rest), off
        return solution, off

    monkeypatch.setattr(Affine, "solved_by", broken)
    lower, upper = boxes_in(problem, rng, 4, 0.002)
    found = PhiBoxes(problem).enclose(lower, upper, third=True)
    with pytest.raises(AssertionError):
        check_against_kernels(problem, found, rng.uniform(lower, upper))


# ---------------------------------------------------------------------- affine forms and the table


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-3, 0.05, 0.4]))
def test_affine_forms_contain_what_they_compute(seed: int, size: float) -> None:
    """Every operation at random points, with slopes and rests in the arguments."""
    rng = np.random.default_rng(seed)
    graph = Graph(2)
    a, b = graph.variables
    names = [name for name in FUNCTIONS if name != "log"]
    forms = [graph.apply(name, a + b) for name in names]
    forms += [graph.mul(a, b), graph.power(a, 2), graph.power(a + b, 3), graph.power(a, -1), graph.power(a, 1, 2)]
    forms += [
        graph.apply("log", a),
        graph.apply("abs", a),
        graph.mul(graph.mul(a, b), a - b),
        graph.apply("max", a, -b),
    ]
    program = build(graph, [[0, 1]], {"all": ((len(forms),), forms)})
    session = AffineProgram(program).session(1, 3)
    middle, slopes = rng.uniform(0.6, 0.8, (1, 2)), size * rng.uniform(-0.3, 0.3, (1, 3, 2))
    rest = size * rng.uniform(0, 0.1, (1, 2))
    session.put(0, middle, slopes, rest)
    found = session.take("all")
    for _ in range(5):
        e = rng.uniform(-1, 1, 3)
        point = middle[0] + e @ slopes[0] + rest[0] * rng.uniform(-1, 1, 2)
        exact = _at(program, point)
        guess = found.middle[0, :, 0] + e @ found.slopes[0, :, :, 0]
        known = np.isfinite(found.rest[0, :, 0])
        assert known[np.arange(len(forms)) != names.index("tan")].all()
        assert np.all((np.abs(exact - guess) <= found.rest[0, :, 0] + 1e-13)[known])


def _at(program: Any, point: Floats) -> Floats:
    from bilevel_sym.arithmetic.boxes import IntervalProgram

    session = IntervalProgram(program, intervals.PROVED).session(1)
    session.put(0, point[None], point[None])
    low, high = session.take("all")
    return np.asarray(0.5 * low[0] + 0.5 * high[0])


def test_kinks_are_undecided_in_affine_forms() -> None:
    graph = Graph(1)
    (a,) = graph.variables
    forms = [graph.apply("abs", a), graph.apply("sign", a), graph.apply("max", a, -a), graph.apply("log", a)]
    session = AffineProgram(build(graph, [[0]], {"all": ((4,), forms)})).session(2, 1)
    session.put(0, np.array([[0.1], [1.0]]), np.array([[[0.2]], [[0.2]]]), np.zeros((2, 1)))
    rest = session.take("all").rest[:, :, 0]
    assert np.isnan(rest[0]).all()
    assert np.isfinite(rest[1]).all()


@pytest.mark.parametrize("name", ["exp", "sin", "cos"])
def test_tabled_functions_err_by_less_than_four_ulp(name: str) -> None:
    rng = np.random.default_rng(1)
    near_zeros = np.pi / 2 * np.arange(1, 200) + 1e-3 * rng.standard_normal(199)
    seams = np.concatenate([np.arange(-30, 30) / 128, np.nextafter(np.arange(-30, 30) / 128, 1)])
    x = np.concatenate([rng.uniform(-4, 4, 1500), rng.uniform(-600, 600, 300), near_zeros, seams, [1e-300, 1e5]])
    x = x[np.abs(x) < 690] if name == "exp" else x
    values = ARB[name](x)
    with precision(120):
        for argument, value in zip(x.tolist(), values.tolist(), strict=True):
            true = getattr(arb(argument), name)()
            assert abs(arb(value) - true) <= 4 * abs(true) * arb(2) ** -52


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_sparse_sums_contain_the_dense_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    c, x, width = rng.normal(size=9), rng.normal(size=(9, 4)), rng.random((9, 4))
    starts = np.array([0, 1, 4, 8])
    low, high = intervals.scattered(c, c, starts, x - width, x + width)
    inside = x + width * rng.uniform(-1, 1, (9, 4))
    sums = np.add.reduceat(c[:, None] * inside, starts)
    assert np.all((low <= sums + 1e-15) & (sums - 1e-15 <= high))
    assert np.all(high - low <= 2 * np.add.reduceat(np.abs(c)[:, None] * width, starts) + 1e-12)


def test_entries_of_symmetric_tensors() -> None:
    boxes = PhiBoxes(SHAPES["d > n"])
    triples = list(multisets(range(3), 3))
    assert [triples[k] for k in boxes.triples[:4]] == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 0, 1)]
