"""Certified constants of array problems: the brackets hold the truth, by the lowered problem, by sampling, by hand."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, Constants, StochasticProblem, schedules, verify
from bilevel_sym.arrays.algebra import contract
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.errors import AssumptionViolated, CertificateFailure, InvalidArgument, TooLarge
from bilevel_sym.graph.nodes import Graph, LinearForm, constant
from bilevel_sym.typing import Floats
from verify.enclosures.interval_matrix import Matrices
from verify.regularity.certified import CertifiedConstants, Reading, constants
from verify.regularity.structure import bounds, loss_ranges, measured
from verify.regularity.structure.loss_ranges import LossFunction
from verify.regularity.structure.repeated import Repeated
from verify.regularity.structure.rows import Rows
from verify.regularity.structure.tensors import Evaluation, exact

NAMES = ("mu", "ell", "rho", "nu", "M", "g_y")
LOGISTIC = "mean(softplus(-c*(B @ y)))", "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2"
BOX = {"x": (-1, 1), "y": (-1, 1)}


def data(m: int, n: int, k: int = 4, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(m, n)), rng.normal(size=(k, n))
    return {"A": A, "b": np.sign(rng.normal(size=m)), "B": B, "c": np.sign(rng.normal(size=k))}


def logistic(m: int, n: int, box: Any = BOX) -> BilevelProblem:
    return BilevelProblem(*LOGISTIC, "x[n]", "y[n]", data=data(m, n), box=box)


def cleaning() -> BilevelProblem:
    g = "sigmoid(w) @ (A @ y - b)**2 + y @ y/2"
    return BilevelProblem("mean((B @ y - c)**2)", g, "w[2]", "y[n]", data=data(2, 2), box={"w": (-1, 2), "y": (-1, 1)})


def robust() -> BilevelProblem:
    """Two losses of the same rows, one penalty, and a term in x and y together that is no product."""
    g = "sum(sqrt(1 + (A @ y)**2)) + sum(log(cosh(A @ y - b))) + exp(x)*sum(y**2) + sin(x)*sum(y)/5"
    return BilevelProblem("sum((y - x)**4)/9 + x**2", g, "x", "y[n]", data=_only(data(3, 2), "A", "b"), box=BOX)


def softmax(scale: float = 1.0) -> BilevelProblem:
    A = scale * data(3, 2)["A"]
    g = f"mean(logsumexp(A @ W, axis=1)) - sum(Y*(A @ W))/3 + exp(x)*sum(W**2)/{scale**2}"
    f = "mean(logsumexp(A @ W, axis=1)) + x**2/2"
    return BilevelProblem(
        f, g, "x", "W[n, q]", data={"A": A, "Y": np.eye(2)[[0, 1, 0]]}, box={"x": (-1, 1), "W": (-1, 1)}
    )


def lopsided() -> BilevelProblem:
    """A softmax whose first class is penalised least."""
    return BilevelProblem(
        "sum(W**2)", "mean(logsumexp(A @ W, axis=1)) + sum(S*W**2)", "x", "W[n, q]",
        data={"A": data(3, 2)["A"], "S": np.array([[0.1, 2.0], [0.1, 2.0]])}, box={"x": (-1, 1), "W": (-1, 1)},
    )  # fmt: skip


def cleaned_classes() -> BilevelProblem:
    """A weight for each row of a softmax; its loss stands in parentheses."""
    loss = "logsumexp(A @ W, axis=1) - sum(Y*(A @ W), axis=1)"
    return BilevelProblem(
        f"mean({loss})", f"mean(sigmoid(w)*({loss})) + sum(W**2)/5", "w[2]", "W[n, q]",
        data={"A": data(2, 2)["A"], "Y": np.eye(2)}, box={"w": (-1, 2), "W": (-1, 1)},
    )  # fmt: skip


def quadratic() -> BilevelProblem:
    arrays = {"K": [[3.0, 1.0], [1.0, 2.0]], "C": [[1.0, 0.5]], "t": [1.0, -2.0]}
    return BilevelProblem(
        "(y - t) @ (y - t)/2 + x @ x", "y @ K @ y/2 - x @ C @ y", "x[d]", "y[n]", data=arrays, box=BOX
    )


def _only(arrays: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: arrays[name] for name in names}


SMALL = {
    "logistic": lambda: logistic(5, 2),
    "cleaning": cleaning,
    "robust": robust,
    "softmax": softmax,
    "cleaned classes": cleaned_classes,
    "quadratic": quadratic,
}


def disagreements(problem: BilevelProblem, reading: Reading = "block") -> list[str]:
    """The constants of which the two routes, structure and search over a box, cannot both be right."""
    ours = constants(problem, reading=reading)
    theirs = constants(problem.lowered(), reading=reading, effort="quick")
    pairs = {name: (ours.brackets[name], theirs.brackets[name]) for name in NAMES}
    return [
        f"{name}: {a} and {b}"
        for name, (a, b) in pairs.items()
        if max(a.lower, b.lower) > min(a.upper, b.upper) * (1 + 1e-12) + 1e-140
    ]


# ---- the lowered problem ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(name=("logistic", "softmax", "cleaned classes", "quadratic"))
@pytest.mark.parametrize("reading", ["block", "joint"])
@pytest.mark.parametrize("name", SMALL)
def test_both_routes_agree(name: str, reading: Reading) -> None:
    assert disagreements(SMALL[name](), reading) == []


@pytest.mark.slow
def test_brackets_are_narrow_where_structure_is_plain() -> None:
    """Over a box mu, rho and nu of a logistic problem are known to a percent, ell to six; those of a quadratic exactly."""
    found = constants(logistic(5, 2))
    assert all(found.brackets[name].ratio < 1.01 for name in ("mu", "rho", "nu"))
    assert found.brackets["ell"].ratio < 1.06
    found = constants(quadratic())
    assert all(found.brackets[name].ratio < 1 + 1e-9 for name in ("mu", "ell"))
    assert found.valid.rho == found.valid.nu == 0
    assert found.valid.mu == pytest.approx((5 - 5**0.5) / 2, rel=1e-12)


CLASSES = {
    "columns": ("A @ W", "W[n, 3]"),
    "rows": ("A @ W.T", "W[3, n]"),
    "an intercept": ("A @ W + outer(ones, t)", "W[n, 3], t[3]"),
    "other variables": ("A @ W", "W[n, 3], t[2]"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_rows_that_repeat_are_those_written_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a curvature of its own for every entry, so that the copies differ."""
    z, y = CLASSES[name]
    penalty = "sum(S*W**2)" if "t" not in y else "sum(S*W**2) + t @ t"
    arrays = {"A": data(6, 4)["A"], "S": np.linspace(0.5, 2.0, 12).reshape((3, 4) if name == "rows" else (4, 3))}
    arrays |= {"ones": np.ones(6)} if "ones" in z else {}
    box = {"x": (-1, 1)} | {part.strip().partition("[")[0]: (-1, 1) for part in y.split("],")}
    g = f"sum(logsumexp({z}, axis=1)) + exp(x)*({penalty})"
    found = constants(BilevelProblem("sum(W**2)", g, "x", y, data=arrays, box=box))
    monkeypatch.setattr(measured, "copied_rows", lambda *_: None)
    expected = constants(BilevelProblem("sum(W**2)", g, "x", y, data=arrays, box=box, name="written out"))
    for constant_name in ("mu", "ell"):
        one, two = (c.brackets[constant_name] for c in (found, expected))
        assert [one.lower, one.upper] == pytest.approx([two.lower, two.upper], rel=1e-9)
    assert found.valid.nu < expected.valid.nu / 2  # the norm of a block, not the square root of a sum over classes


# ---- sampling at n = 30 -------------------------------------------------------------------------------------------


def sampled(problem: BilevelProblem, points: int, reach: float) -> dict[str, float]:
    """The largest norms of blocks, and the smallest eigenvalue of g_yy, at points at random; from below, and above."""
    rng, kernels = np.random.default_rng(1), problem.kernels
    worst: dict[str, float] = dict.fromkeys(NAMES, 0.0) | {"mu": np.inf}
    for _ in range(points):
        x, y = rng.uniform(-1, 1, problem.d), reach * rng.uniform(-1, 1, problem.n)
        u, w = (v / np.linalg.norm(v) for v in rng.normal(size=(2, problem.n)))
        step = 1e-4 * u
        g_yy = kernels.g_yy(x, y)
        change = (kernels.g_yy(x, y + step) - kernels.g_yy(x, y - step)) / 2e-4
        seen: dict[str, float] = {
            "ell": float(np.linalg.norm(g_yy, 2)), "M": float(np.linalg.norm(kernels.f_y(x, y))),
            "g_y": float(np.linalg.norm(kernels.g_y(x, y))),
            "rho": float(np.linalg.norm(change, 2)) * (1 - 1e-3), "nu": 0.0,
        }  # fmt: skip
        seen["ell"] = max(seen["ell"], float(np.linalg.norm(kernels.g_xy(x, y), 2)))
        worst = {name: max(worst[name], float(seen.get(name, 0))) for name in NAMES} | {
            "mu": min(worst["mu"], float(np.linalg.eigvalsh(g_yy)[0]), float(w @ g_yy @ w))
        }
    return worst


def beyond(found: CertifiedConstants, seen: dict[str, float]) -> list[str]:
    """What was seen outside the brackets."""
    above = [name for name in NAMES if name != "mu" and seen[name] > found.brackets[name].upper * (1 + 1e-9)]
    return above + (["mu"] if seen["mu"] < found.brackets["mu"].lower * (1 - 1e-9) else [])


@pytest.mark.slow
def test_brackets_hold_what_is_sampled_at_thirty_features() -> None:
    problem = logistic(120, 30)
    assert beyond(constants(problem), sampled(problem, 40, 1.0)) == []


@pytest.mark.slow
def test_constants_of_all_numbers() -> None:
    """Without a box: ell of a logistic loss with a fixed penalty is exact, what f lacks a bound for says so."""
    arrays = _only(data(60, 30), "A", "b")
    problem = BilevelProblem("sum(sin(y)) + x @ x/2", "mean(softplus(-b*(A @ y))) + y @ y/10 - x @ y", "x[n]", "y[n]",
                             data=arrays)  # fmt: skip
    found = constants(problem)
    assert found.box is None
    largest = np.linalg.norm(arrays["A"], 2) ** 2 / 240 + 0.2
    assert found.valid.mu == pytest.approx(0.2)
    assert found.brackets["ell"].upper == pytest.approx(max(1.0, largest))
    assert found.brackets["ell"].ratio < 1 + 1e-6  # y = 0 attains it
    assert set(found.reasons) == {"M", "g_y"}
    assert "no bound of f_x holds for all x and y" in str(found)
    seen = sampled(problem, 20, 50.0)
    assert [name for name in beyond(found, seen) if name not in ("M", "g_y")] == []


@pytest.mark.slow
def test_a_box_of_x_alone_is_completed_by_where_y_star_lies() -> None:
    problem = logistic(40, 30, {"x": (-1, 1)})
    found = constants(problem)
    assert found.box is not None
    low, high = map(float, found.box["y"])
    y = problem.kernels.y_star(np.random.default_rng(0).uniform(-1, 1, (20, 30)))
    assert low <= y.min() <= y.max() <= high
    assert isinstance(found.valid, Constants)


# ---- scalar functions ---------------------------------------------------------------------------------------------

LINE = np.array([[-np.inf]]), np.array([[np.inf]])


def loss(name: str) -> LossFunction:
    graph = Graph(1)
    (z,) = graph.variables
    forms: dict[str, LinearForm] = {
        "softplus": graph.apply("softplus", z), "tanh": graph.apply("tanh", z), "sin": graph.apply("sin", z),
        "huber": graph.power(constant(1) + graph.power(z, 2), 1, 2), "cube": graph.power(z, 3),
        "logcosh": graph.apply("softplus", z.scaled(fmpq(2))) - z,
    }  # fmt: skip
    return LossFunction(graph, forms[name], [0], [])


DERIVATIVES = {  # the largest absolute values of orders 1 to 4 on the whole line, by hand
    "softplus": (1, 1 / 4, 1 / (6 * 3**0.5), 1 / 8),
    "tanh": (1, 4 / (3 * 3**0.5), 2, 4.0858),
    "huber": (1, 1, 0.858651, 3),
    "logcosh": (1, 1, 4 / (3 * 3**0.5), 2),
    "sin": (1, 1, 1, 1),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_of_losses_on_the_whole_line(name: str) -> None:
    function = loss(name)
    for order, value in enumerate(DERIVATIVES[name], start=1):
        low, high = function.ranges((order,), LINE)
        largest = max(-float(low[0]), float(high[0]))
        assert value * (1 - 1e-5) <= largest <= value * (1 + 1e-2)


def test_what_has_no_bound_is_infinite() -> None:
    low, high = loss("cube").ranges((1,), LINE)
    assert -1e-300 <= low[0] <= 0
    assert high[0] == np.inf


@pytest.mark.slow
@settings(max_examples=30)
@given(st.sampled_from(["softplus", "tanh", "huber", "cube"]), st.integers(0, 3), st.floats(-30, 30), st.floats(0, 20))
def test_ranges_hold_the_values(name: str, order: int, start: float, width: float) -> None:
    """Of derivatives by mpmath at points of many intervals at once, some of them single numbers."""
    points = np.linspace(start, start + width, 5)
    lower, upper = np.array([[start, *points]]), np.array([[start + width, *points]])
    low, high = loss(name).ranges((order,), (lower, upper))
    plain = {
        "softplus": lambda z: mpmath.log1p(mpmath.exp(z)), "tanh": mpmath.tanh,
        "huber": lambda z: mpmath.sqrt(1 + z * z), "cube": lambda z: z**3,
    }[name]  # fmt: skip
    with mpmath.workdps(60):
        values = np.array([float(mpmath.diff(plain, mpmath.mpf(z), order)) for z in points])
    slack = 1e-12 * (1 + np.abs(values))
    assert (low[0] <= values + slack).all()
    assert (values <= high[0] + slack).all()
    assert ((low[1:] <= values + slack) & (values - slack <= high[1:])).all()


@settings(max_examples=30)
@given(st.integers(2, 6), st.integers(0, 10**6))
def test_cumulants_of_softmax_stay_below_their_bounds(size: int, seed: int) -> None:
    """Derivatives of log sum exp along unit vectors, from its cumulants, at probabilities of every kind."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(size, rng.choice([0.1, 1.0])))
    u = rng.normal(size=size)
    u /= np.linalg.norm(u)
    mean = p @ u
    second, third, fourth = (p @ (u - mean) ** k for k in (2, 3, 4))
    values = {1: mean, 2: second, 3: third, 4: fourth - 3 * second**2}
    for order, value in values.items():
        low, high = measured.soft_bounds(order)
        assert low[0] <= value <= high[0]


# ---- balls, rows, norms -------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
def test_contractions_hold_the_exact_numbers(m: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, y = rng.normal(size=(m, n)) * 10.0 ** rng.integers(-8, 8, (m, n)), rng.normal(size=n)
    a, v = Tensor.leaf(Leaf("A", ("m", "n"), "data")), Tensor.leaf(Leaf("y", ("n",), "y"))
    form = contract([(a, "ij"), (v, "j"), (a, "ik"), (v, "k")], ())
    found = Evaluation({"A": exact(A), "y": exact(y)}, {"m": m, "n": n})(form)
    entries = [[Fraction(A[i, j]) * Fraction(y[j]) for j in range(n)] for i in range(m)]
    value = sum(sum(row) ** 2 for row in entries)
    assert abs(Fraction(float(found.middle)) - value) <= Fraction(float(found.radius))
    size = sum(sum(map(abs, row)) ** 2 for row in entries)  # a row may cancel
    assert float(found.radius) <= 1e-12 * float(size) + 1e-300


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6))
def test_norms_are_above_the_true_ones_and_near(m: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, weights = rng.normal(size=(m, n)), rng.random(m)
    dense = Rows(m, n, None, 1, Matrices.around(matrix[None]))
    true = np.linalg.norm(weights[:, None] * matrix, 2)
    assert true * (1 - 1e-14) <= dense.weighted_norm(weights) <= true * (1 + 1e-9)
    columns = rng.integers(0, n, m)
    picked = Rows(m, n, None, 1, None, columns, exact(matrix[:, 0]))
    plain = np.zeros((m, n))
    plain[np.arange(m), columns] = matrix[:, 0]
    true = np.linalg.norm(weights[:, None] * plain, 2)
    assert true * (1 - 1e-14) <= picked.weighted_norm(weights) <= true * (1 + 1e-9)


# ---- what cannot be had -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_refusals_say_what_and_why(tmp_path: Path) -> None:
    with pytest.raises(CertificateFailure, match="for all x and y"):
        constants(logistic(3, 2, None))
    saddle = BilevelProblem("sum(y)", "sum(sin(y)) + x*sum(y)", "x", "y[20]", box={"x": (-1, 1), "y": (0, 1)})
    with pytest.raises(AssumptionViolated, match="not strongly convex"):
        constants(saddle)
    unknown = BilevelProblem("sqrt(1 + y @ y)", "y @ y + x*sum(y)", "x", "y[20]", box=BOX)
    with pytest.raises(TooLarge, match=r"d \+ n = 21"):
        constants(unknown)
    with pytest.raises(InvalidArgument, match="cannot be saved"):
        constants(quadratic()).save(tmp_path / "constants.json")


@pytest.mark.slow
def test_what_is_not_recognised_is_searched_where_it_is_small() -> None:
    found = constants(BilevelProblem("sqrt(1 + y @ y)", "y @ y + x*sum(y)", "x", "y[2]", box=BOX), effort="quick")
    assert found.valid.ell == pytest.approx(2, rel=1e-6)
    assert not found.problem.is_array


# ---- what is done with them ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_schedules_run_with_them() -> None:
    found = verify.constants(logistic(60, 30, {"x": (-1, 1)}))
    goal = schedules.Goal(eps=1e-2, delta=0.1, d=30, initial_error=1.0, gap=1.0)
    with warnings.catch_warnings():  # the theory's accuracy is out of reach of float64, and its iterations of anybody
        warnings.simplefilter("ignore", schedules.ScheduleWarning)
        schedule = schedules.perturbed_aid(found.valid, goal)
    assert schedule.D > 0
    assert schedule.eta > 0


@pytest.mark.slow
def test_every_row_of_a_stochastic_problem_counts() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(6, 3)), np.sign(rng.normal(size=6))
    problem = StochasticProblem(
        "y @ y/2", "softplus(-b*(a @ y)) + y @ y/10 - x @ y", "x[n]", "y[n]", [], "a[n] b", [], {"a": a, "b": b},
        box={"x": (-1, 1), "y": (-1, 1)},
    )  # fmt: skip
    found = constants(problem)
    assert found.brackets["ell"].upper == pytest.approx(max(1, (a**2).sum(axis=1).max() / 4 + 0.2), rel=1e-6)
    assert constants(problem.mean).brackets["ell"].upper < found.brackets["ell"].upper


# ---- planted defects ----------------------------------------------------------------------------------------------


def half_a_loss(patch: pytest.MonkeyPatch) -> None:
    """The second derivative of a loss is half of what it is."""
    right = LossFunction.ranges

    def wrong(self: LossFunction, orders: Any, *more: Any) -> Any:
        low, high = right(self, orders, *more)
        return (low, high / 2) if sum(orders) == 2 else (low, high)

    patch.setattr(LossFunction, "ranges", wrong)


def small_norm(patch: pytest.MonkeyPatch) -> None:
    """The norm of A is that of its longest row."""
    patch.setattr(Rows, "weighted_norm", lambda self, weights: float((weights * self.norms).max()))


def lost_rows(patch: pytest.MonkeyPatch) -> None:
    """Every other row of the data is forgotten in A^T diag(w) A."""
    right = Rows.gram
    patch.setattr(Rows, "gram", lambda self, weights, *, up: right(self, weights * (np.arange(self.count) % 2), up=up))


def one_copy(patch: pytest.MonkeyPatch) -> None:
    """Of the classes of a softmax only the first is looked at."""
    right = Repeated.with_diagonal

    def first(self: Repeated, ends: Floats) -> tuple[Matrices, Floats]:
        return right(Repeated(self.matrix, self.variables[:, :1]), ends)[0], ends[:0]

    patch.setattr(Repeated, "with_diagonal", first)


def half_a_softmax(patch: pytest.MonkeyPatch) -> None:
    """Derivatives of log sum exp are half of what they are."""
    right = measured.soft_bounds
    patch.setattr(measured, "soft_bounds", lambda order: tuple(end / 4 for end in right(order)))


def no_way_but_one(patch: pytest.MonkeyPatch) -> None:
    """Of the ways to hand directions to two affine forms only the first is counted."""
    patch.setattr(bounds, "product", lambda *groups, **more: list(product(*groups, **more))[:1])


def short_tail(patch: pytest.MonkeyPatch) -> None:
    """Far out a function is taken for zero."""
    patch.setattr(loss_ranges, "tail_ranges", lambda program, start, side: (0.0, 0.0))


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(
    ("plant", "problem", "reading"),
    [
        (half_a_loss, SMALL["logistic"], "block"),
        (small_norm, robust, "block"),
        (lost_rows, SMALL["logistic"], "block"),
        (half_a_softmax, lambda: softmax(6), "block"),  # of which the penalty is the smaller part
        (no_way_but_one, cleaning, "joint"),
        (one_copy, lopsided, "block"),
    ],
    ids=["half a loss", "small norm", "lost rows", "half a softmax", "no way but one", "one copy"],
)
def test_planted_defects_are_seen(
    plant: Any, problem: Callable[[], BilevelProblem], reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either the two routes part, or a value is seen above its bound, which a bracket refuses."""
    plant(monkeypatch)
    try:
        seen = disagreements(problem(), reading)
    except (InvalidArgument, AssertionError):
        return
    assert seen


def test_a_tail_that_is_forgotten_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    short_tail(monkeypatch)
    _, high = loss("cube").ranges((1,), LINE)
    assert high[0] < np.inf
