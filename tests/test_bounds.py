"""verify.bounds: value, gradient and Hessian of any expression over a box, held against other routes and bad input."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import sympy as sp

import verify
from bilevel_sym import Box, zoo
from bilevel_sym.errors import BilevelError, CertificateFailure, InvalidArgument, UnsafeExpression
from verify.regularity.expression_bounds import Bounds, bounds

x, y, z = sp.symbols("x y z", real=True)
BOX = {"x": (-1, 2), "y": ("1/3", 2)}

EXPRESSIONS = (
    x * y - y**3, sp.exp(x) * sp.sin(3 * y), (x - y) ** 2 * (x + y), sp.sqrt(1 + x**2) / y, sp.log(1 + sp.exp(x - y)),
    sp.atan(x * y) + sp.tanh(y), sp.cos(x) ** 3 - 1 / (2 + y), abs(x) ** 5 * y, sp.Max(x, 0) ** 4 + sp.Min(x, y) * 0,
    sp.Piecewise((x**4, x > 0), (0, True)) * sp.cos(y), sp.exp(-(x**2) - y**2), x**2 - 2 * x + y,
)  # fmt: skip


def sampled(expression: sp.Expr, symbols: tuple[sp.Symbol, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value, gradient and Hessian by SymPy at points of the box, on a grid that reaches the corners."""
    xs, ys = (grid.ravel() for grid in np.meshgrid(np.linspace(-1, 2, 121), np.linspace(1 / 3 + 1e-16, 2, 81)))
    xs = np.where(xs == 0, 1e-13, xs)  # off the edges
    entries = [
        expression,
        *(expression.diff(s) for s in symbols),
        *(expression.diff(s, t) for s in symbols for t in symbols),
    ]
    entries = [sp.sympify(e).replace(sp.DiracDelta, lambda *_: sp.S.Zero) for e in entries]
    values = np.array([np.broadcast_to(sp.lambdify([x, y], e, "numpy")(xs, ys), xs.shape) for e in entries])
    n = len(symbols)
    return values[0], values[1 : 1 + n], values[1 + n :].reshape(n, n, -1)


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_samples_lie_inside_and_reach_the_ends(expression: sp.Expr) -> None:
    found = bounds(expression, BOX)
    value, gradient, hessian = sampled(expression, (x, y))
    pairs = [(found.value, value)]
    pairs += [(found.gradient[i], gradient[i]) for i in range(2)]
    pairs += [(found.hessian[i][j], hessian[i][j]) for i in range(2) for j in range(2)]
    for bracket, values in pairs:
        slack = 1e-12 * (1 + np.abs(values).max())
        assert bracket.lower <= values.min() + slack
        assert values.max() <= bracket.upper + slack
        width = values.max() - values.min()
        assert bracket.upper - bracket.lower <= 1.05 * width + 1e-9


def test_the_hessian_is_symmetric_and_in_order() -> None:
    found = bounds(x**2 * y, BOX, symbols="y x")
    assert [s.name for s in found.symbols] == ["y", "x"]
    assert found.hessian[0][1] == found.hessian[1][0]
    assert found.hessian[0][0].upper < 1e-12
    assert 4.0 in found.hessian[1][1]


def test_some_symbols_only() -> None:
    found = bounds(x * y, BOX, symbols=y)
    (slope,) = found.gradient
    assert (slope.lower, slope.upper) == (-1, 2)


def test_a_box_without_names() -> None:
    assert bounds(x**2, Box([0], [1]), symbols=[x]).value.upper == pytest.approx(1)
    with pytest.raises(InvalidArgument, match="without names"):
        bounds(x**2, Box([0], [1]))
    with pytest.raises(InvalidArgument, match="2 symbols"):
        bounds(x**2, Box([0], [1]), symbols="x y")


def test_unpacking_and_text() -> None:
    found = bounds("x + y", BOX)
    value, gradient, hessian = found
    assert value is found.value
    assert gradient is found.gradient
    assert hessian is found.hessian
    assert isinstance(found, Bounds)
    assert bool(found)  # truthy, though it can be unpacked
    assert "d/dx  [1, 1]" in str(found)


def test_subnormal_and_degenerate_boxes() -> None:
    thin = bounds(x * y, {"x": ("1/3", "1/3"), "y": (0, sp.Rational(1, 10**320))})
    assert thin.value.lower <= 0
    assert 0 < thin.value.upper < 1e-319
    assert 7 / 3 in bounds("7/3", {"x": (0, 1)}).value


@pytest.mark.slow
def test_at_a_kink_both_slopes_count() -> None:
    found = bounds(abs(x), {"x": (-1, 2)})
    assert (found.value.lower, found.value.upper) == (0, 2)
    assert (found.gradient[0].lower, found.gradient[0].upper) == pytest.approx((-1, 1))
    assert math.isinf(found.hessian[0][0].upper)
    assert not found.tight


def test_across_a_jump_the_value_alone_is_bounded() -> None:
    found = bounds(sp.Piecewise((1, x > 0), (0, True)), {"x": (-1, 1)})
    assert (found.value.lower, found.value.upper) == (0, 1)
    assert math.isinf(found.gradient[0].upper)


def test_the_end_of_a_domain_belongs_to_it() -> None:
    found = bounds(sp.sqrt(x), {"x": (0, 1)})
    assert (found.value.lower, found.value.upper) == pytest.approx((0, 1))
    assert math.isinf(found.gradient[0].upper)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expression", "box", "place"),
    [
        (1 / x, {"x": (-1, 1)}, "x in"),
        (sp.log(x), {"x": (0, 1)}, "x in \\[0, "),
        (sp.sqrt(x), {"x": (-1, 1)}, "x in \\[-1, "),
        (sp.tan(x), {"x": (0, 2)}, "1.57079633"),
        (sp.exp(1000 * x), {"x": (0, 1)}, "x in"),
        (sp.Piecewise((x, x > 0)), {"x": (-1, 1)}, "x in \\[-1, "),
    ],
)
def test_what_has_no_bound_says_where(expression: sp.Expr, box: dict[str, tuple[int, int]], place: str) -> None:
    with pytest.raises(CertificateFailure, match=f"no bound that can be proved where .*{place}"):
        bounds(expression, box)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: bounds(x + z, BOX), InvalidArgument, "contains z"),
        (lambda: bounds("x + z", BOX), UnsafeExpression, "z"),
        (lambda: bounds("__import__('os')", BOX), UnsafeExpression, "import"),
        (lambda: bounds(x, None), InvalidArgument, "wants a box"),  # type: ignore[arg-type]
        (lambda: bounds(x, {}), InvalidArgument, "no variables"),
        (lambda: bounds(x, {"x": (1, 0)}), InvalidArgument, "empty"),
        (lambda: bounds(x, {"x": (0, math.inf)}), InvalidArgument, "upper end"),
        (lambda: bounds(x, {"x": (0, math.nan)}), InvalidArgument, "upper end"),
        (lambda: bounds(x, BOX, symbols="w"), InvalidArgument, "no interval for w"),
        (lambda: bounds(x, BOX, symbols="x x"), InvalidArgument, "twice"),
        (lambda: bounds(x, BOX, effort="much"), InvalidArgument, "effort"),  # type: ignore[arg-type]
        (lambda: bounds(x, BOX, rtol=-1), InvalidArgument, "rtol"),
        (lambda: bounds([x], BOX), InvalidArgument, "SymPy expression"),
        (lambda: bounds(sp.zoo * x, BOX), BilevelError, "expression"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.slow
def test_more_effort_is_never_wider_and_the_same_effort_the_same() -> None:
    hard = sp.sin(5 * x * y) * sp.exp(sp.cos(7 * x - y))
    quick, again, more = bounds(hard, BOX, effort=0.01), bounds(hard, BOX, effort=0.01), bounds(hard, BOX, effort=0.3)
    assert (quick.value, quick.gradient, quick.hessian) == (again.value, again.gradient, again.hessian)
    assert quick.value.lower <= more.value.lower
    assert more.value.upper <= quick.value.upper
    assert quick.boxes < more.boxes
    assert not quick.tight


@pytest.mark.parametrize("name", ["scalar", "saddle", "implicit_cubic", "minimax_nash", "tube"])
def test_upper_levels_of_the_zoo(name: str) -> None:
    problem = zoo.get(name).problem
    assert problem.box is not None
    found = verify.bounds(problem.f, problem.box)
    lower, upper = (np.array([float(e) for e in ends]) for ends in (problem.box.lower, problem.box.upper))
    points = np.random.default_rng(1).uniform(lower, upper, (200, len(lower)))
    values = problem.kernels.f(points[:, : problem.d], points[:, problem.d :])
    assert found.value.lower <= values.min()
    assert values.max() <= found.value.upper
