"""Closed forms of y*(x): what closes, what is declined and why, the proof, the branch, and the bound in time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import flint
import hypothesis.strategies as st
import mpmath
import pytest
import sympy as sp
from helpers import calls_of
from hypothesis import assume, given

from bilevel_sym.errors import AssumptionViolated
from bilevel_sym.graph.expressions import substitute, symbols_in
from bilevel_sym.graph.operations.logistic import sigmoid, softplus
from bilevel_sym.problem.box import Box
from bilevel_sym.symbolic import closed_form
from bilevel_sym.symbolic.algebra import linear
from bilevel_sym.symbolic.algebra.domain import MIDPOINT_BITS, Domain, enclosure, exact_ball
from bilevel_sym.symbolic.algebra.field import TooLarge, normal_form
from bilevel_sym.symbolic.algebra.linear import negative_direction, solve_linear, vanishes
from bilevel_sym.symbolic.algebra.scalar import Root, real_root, roots
from bilevel_sym.symbolic.blocks import derivative
from bilevel_sym.symbolic.closed_form import ClosedForm, solve_lower_level

x, y, a, b = sp.symbols("x y a b", real=True)
X = sp.symbols("x1:21", real=True)
Y = sp.symbols("y1:21", real=True)
x1, x2, x3 = X[:3]
y1, y2, y3 = Y[:3]
R = sp.Rational
SHAPES = [(d, n) for d in (1, 2, 3) for n in (1, 2, 3)]
SMALL = st.integers(-3, 3).map(sp.Integer)
RATIONAL = st.fractions(-2, 2, max_denominator=5).map(lambda q: R(q.numerator, q.denominator))


def solved(g: sp.Expr, unknowns: Sequence[sp.Symbol] = (y,), box: Box | None = None) -> tuple[sp.Expr, ...]:
    """The closed form, which must exist and be free of y."""
    variables = sorted(symbols_in(g) - set(unknowns), key=str)
    result = solve_lower_level(g, variables, unknowns, box=box)
    assert result.y_star is not None, result.method
    assert not set().union(*map(symbols_in, result.y_star)) - set(variables)
    return result.y_star


def declined(g: sp.Expr, unknowns: Sequence[sp.Symbol] = (y,), box: Box | None = None) -> str:
    result = solve_lower_level(g, sorted(symbols_in(g) - set(unknowns), key=str), unknowns, box=box)
    assert result.y_star is None
    return result.method


def at(expression: sp.Expr, point: dict[sp.Symbol, sp.Rational]) -> sp.Expr:
    """The exact value of a rational expression at a rational point."""
    return sp.nsimplify(substitute(expression, point), rational=True)


# ---- linear ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "n"), SHAPES)
@given(data=st.data())
@pytest.mark.slow
@pytest.mark.in_ci(every=3)
def test_linear_systems_with_symbolic_parameters(d: int, n: int, data: st.DataObject) -> None:
    letters = [*X[:d], a]
    lower = sp.Matrix(
        n, n, lambda i, j: 1 if i == j else 0 if i < j else data.draw(SMALL) * data.draw(st.sampled_from(letters))
    )
    scales = [1 + data.draw(st.integers(0, 2)) * data.draw(st.sampled_from(letters)) ** 2 for _ in range(n)]
    matrix = lower * sp.diag(*scales) * lower.T
    right = [data.draw(SMALL) * data.draw(st.sampled_from(letters)) ** data.draw(st.integers(0, 2)) for _ in range(n)]
    unknowns = sp.Matrix(Y[:n])
    g = (unknowns.T * matrix * unknowns)[0] / 2 - sum(r * s for r, s in zip(right, unknowns, strict=True))
    point = {letter: data.draw(RATIONAL) for letter in letters}
    result = solve_lower_level(g, X[:d], Y[:n])
    assert result.y_star is not None
    assert "linear" in result.method
    expected = matrix.subs(point).LUsolve(sp.Matrix(right).subs(point))
    assert [at(value, point) for value in result.y_star] == list(expected)


@pytest.mark.parametrize(
    ("g", "expected"),
    [
        ((1 + x**2) * y**2 / 2 - x * y, x / (x**2 + 1)),
        (x**2 * y**2 / 2 - x**3 * y, x),
        (sp.exp(x) * y**2 / 2 - y, sp.exp(-x)),
        (y**2 / (1 + x**2) - x * y, x**3 / 2 + x / 2),
        ((y - sp.Abs(x)) ** 2 + a * y**2, sp.Abs(x) / (a + 1)),
        ((y - sp.Piecewise((x, x > 0), (0, True))) ** 2, sp.Piecewise((x, x > 0), (0, True))),
        ((y - sp.sin(x) * sp.Max(x, a)) ** 2, sp.sin(x) * sp.Max(a, x)),
        (sp.pi * y**2 / 2 - x * y, x / sp.pi),
    ],
)
def test_linear_solutions_are_readable(g: sp.Expr, expected: sp.Expr) -> None:
    assert solved(g) == (expected,)


def test_isotropic_and_scaled() -> None:
    assert solved(sum((u - v) ** 2 for u, v in zip(Y[:3], X[:3], strict=True)), Y[:3]) == X[:3]
    for g in (y**2 * (1 + x**2) - x * y, y**4 / 4 + y**2 / 2 - x * y, sp.exp(y) - x * y, (y - x) ** 2 - sp.log(y)):
        (plain,), (scaled,) = solved(g), solved(g.subs(y, 3 * y))
        assert abs((scaled - plain / 3).subs(x, R(7, 5)).n(30)) < 1e-25


def test_unknowns_that_only_seem_to_hang_together() -> None:
    g = (y1 + y2) ** 2 + (y1 - y2) ** 2 + y1**4 - x1 * y1 - x2 * y2
    assert solved(g, [y1, y2])[1] == x2 / 4


@pytest.mark.slow
def test_twenty_unknowns() -> None:
    rng = random.Random(5)
    weights = [[R(rng.randint(-5, 5), rng.randint(1, 3)) for _ in Y] for _ in Y]
    rows = [sum(w * s for w, s in zip(row, Y, strict=True)) for row in weights]
    g = sum((row - xi) ** 2 for row, xi in zip(rows, X, strict=True)) + sum(s**2 for s in Y)
    values = dict(zip(Y, solved(g, Y), strict=True))
    point = {xi: R(k, 3) for k, xi in enumerate(X)}
    exact = {s: value.subs(point) for s, value in values.items()}
    assert substitute(derivative(g, y3), {**point, **exact}) == 0


def test_ridge_with_ten_unknowns_and_one_parameter() -> None:
    rng = random.Random(6)
    rows = [sum(rng.randint(-3, 3) * s for s in Y[:10]) - rng.randint(-3, 3) for _ in range(12)]
    g = sum(row**2 for row in rows) + sp.exp(x) * sum(s**2 for s in Y[:10])
    values = dict(zip(Y, solved(g, Y[:10]), strict=False))
    assert vanishes(substitute(derivative(g, y2), values))


@given(st.lists(SMALL, min_size=6, max_size=6))
def test_direction_of_negative_curvature(entries: list[sp.Integer]) -> None:
    p, q, r, s, t, u = (flint.fmpq(int(entry)) for entry in entries)
    matrix = [[p, q, r], [q, s, t], [r, t, u]]
    found = negative_direction(matrix)
    positive = sp.Matrix([[str(entry) for entry in row] for row in matrix]).applyfunc(sp.Integer).is_positive_definite
    assert (found is None) == bool(positive)
    if found is not None:
        v, value = found
        quadratic = sum(v[i] * matrix[i][j] * v[j] for i in range(3) for j in range(3))
        assert quadratic / sum(entry * entry for entry in v) == value <= 0


# ---- separable and triangular ------------------------------------------------------------------------

CATALOGUE: list[Callable[[sp.Symbol, sp.Symbol], sp.Expr]] = [
    lambda u, v: (1 + u**2) * v**2 / 2 - u * v,
    lambda u, v: v**4 / 4 + v**2 / 2 - u * v,
    lambda u, v: sp.exp(v) - (1 + u**2) * v,
    lambda u, v: (v - u) ** 2 / 2 - sp.log(v),
    lambda u, v: sp.cosh(v) - u * v,
]


@pytest.mark.slow
@given(st.lists(st.sampled_from(CATALOGUE), min_size=2, max_size=4))
def test_separable_systems(parts: list[Callable[[sp.Symbol, sp.Symbol], sp.Expr]]) -> None:
    n = len(parts)
    g = sp.Add(*(part(u, v) for part, u, v in zip(parts, X, Y, strict=False)))
    alone = tuple(solved(part(u, v), [v])[0] for part, u, v in zip(parts, X, Y, strict=False))
    assert solved(g, Y[:n]) == alone


@given(st.lists(SMALL, min_size=8, max_size=8), RATIONAL, RATIONAL)
@pytest.mark.slow
def test_triangular_systems(c: list[sp.Integer], p: sp.Rational, q: sp.Rational) -> None:
    first = c[0] * x1**2 + c[1] * x2
    second = c[2] * y1**2 + c[3] * x1 * y1 + c[4]
    third = c[5] * y2 + c[6] * y1 * y2 + c[7] * x2
    g = (y1 - first) ** 2 / 2 + (y2 - second) ** 2 + (1 + x1**2) * (y3 - third) ** 2
    values = solved(g, [y1, y2, y3])
    point = {x1: p, x2: q}
    chain: dict[sp.Symbol, sp.Rational] = dict(point)
    for s, rule in zip((y1, y2, y3), (first, second, third), strict=True):
        chain[s] = rule.subs(chain)
    assert [at(value, point) for value in values] == [chain[s] for s in (y1, y2, y3)]


def test_triangular_with_a_function() -> None:
    g = (y2 - sp.exp(y1)) ** 2 / 2 + (y1 - x1) ** 2 / 2 + (y3 - y2 * x2) ** 2 / 2
    assert solved(g, [y1, y2, y3]) == (x1, sp.exp(x1), x2 * sp.exp(x1))


def test_triangular_with_a_cubic() -> None:
    g = y1**4 / 4 + y1**2 / 2 - x1 * y1 + (y2 - y1 - x2) ** 2
    first, second = solved(g, [y1, y2])
    assert vanishes(second - first - x2)
    assert first.subs(x1, 10).n(30) == pytest.approx(2)


# ---- one unknown: cubics -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-100, -2, "-1/3", "-1/1000", 0, "1/1000", "1/7", 1, 10, 500])
def test_the_implicit_cubic_is_real_and_right_for_both_signs(value: int | str) -> None:
    (root,) = solved(y**4 / 4 + y**2 / 2 - x * y)
    number = root.subs(x, R(value)).n(40)
    assert number.is_real
    with mpmath.workdps(40):
        target = mpmath.mpf(R(value).p) / R(value).q
        expected = mpmath.findroot(lambda t: t + t**3 - target, mpmath.sign(target) * mpmath.cbrt(abs(target)))
        assert mpmath.almosteq(mpmath.mpf(number), expected, abs_eps=mpmath.mpf("1e-30"))


@pytest.mark.slow
@given(st.integers(1, 4), st.integers(-4, 4), st.integers(1, 4), RATIONAL)
def test_cubics_with_one_real_root(lead: int, second: int, gap: int, value: sp.Rational) -> None:
    """lead (y + second/lead)^3 + gap (y + second/lead) = x, multiplied out."""
    z = y + R(second, lead)
    g = sp.expand(lead * z**4 / 4 + gap * z**2 / 2 - x * y)
    (root,) = solved(g)
    number = root.subs(x, value).n(30)
    assert number.is_real
    assert abs((sp.diff(g, y) - 0).subs({x: value, y: number}).n(30)) < 1e-20


def test_the_cubic_with_a_parameter() -> None:
    (root,) = solved(a * y**2 / 2 + y**4 / 4 - x * y)
    for point in ({a: 2, x: -3}, {a: R(1, 9), x: 5}, {a: 1, x: 0}):
        number = root.subs(point).n(30)
        assert abs((a * y + y**3 - x).subs(point).subs(y, number)) < 1e-25


@pytest.mark.parametrize("value", [-5, -1, 0, 1, "9/5", "19/10", 2, 50])
def test_a_cubic_in_exp_with_one_or_three_real_roots(value: int | str) -> None:
    """exp(2y) - exp(-y) = x is a cubic in exp(y) whose discriminant changes sign at x = 1.889..."""
    (root,) = solved(sp.exp(2 * y) / 2 + sp.exp(-y) - x * y)
    number = root.subs(x, R(value)).n(40)
    assert number.is_real
    assert abs((sp.exp(2 * number) - sp.exp(-number) - R(value)).n(40)) < 1e-30


def test_a_cubic_that_is_convex_on_a_box_only() -> None:
    g = y**4 / 4 - y**2 / 2 - x * y
    for ends in ((1, 2), ("-1/4", "1/4")):
        (root,) = solved(g, box=Box({"x": ends, "y": ("7/10", 3)}))
        number = root.subs(x, R(ends[1])).n(30)
        assert number > R(7, 10)
        assert abs(number**3 - number - R(ends[1])) < 1e-25
    with pytest.raises(AssumptionViolated):
        solve_lower_level(g, [x], [y])


# ---- one unknown: other equations --------------------------------------------------------------------

CLOSED = [
    (sp.exp(y) - x * y, sp.log(x), None),
    (sp.exp(3 * y + a) / 3 - x * y, sp.log(x) / 3 - a / 3, None),
    (y * sp.log(y) - y - x * y, sp.exp(x), None),
    (y * sp.asinh(y) - sp.sqrt(1 + y**2) - x * y, sp.sinh(x), None),
    (sp.cosh(y) - x * y, sp.asinh(x), None),
    (softplus(y) - x * y, sp.log(x / (1 - x)), None),
    (y * sp.log(y) + (1 - y) * sp.log(1 - y) - x * y, sp.exp(x) / (sp.exp(x) + 1), None),
    ((y - x) ** 2 / 2 - a * sp.log(y), x / 2 + sp.sqrt(4 * a + x**2) / 2, None),
    (sp.exp(y) + sp.exp(-y) - x * y, sp.log(x / 2 + sp.sqrt(x**2 + 4) / 2), None),
    (sp.exp(2 * y) / 2 + x * sp.exp(y) - y, sp.log(-x / 2 + sp.sqrt(x**2 + 4) / 2), None),
    (sp.exp(-2 * y) / 2 + x * sp.exp(-y) + y, -sp.log(-x / 2 + sp.sqrt(x**2 + 4) / 2), None),
    (y**4 / 4 - x * y, sp.sign(x) * sp.Abs(x) ** R(1, 3), None),
    (y**4 / 4 - x * y, x ** R(1, 3), Box({"x": (1, 2)})),
    ((y + x) ** 6 / 6 - a * y, sp.sign(a) * sp.Abs(a) ** R(1, 5) - x, None),
    (sp.expand((y + x) ** 6 / 6) - a * y, sp.sign(a) * sp.Abs(a) ** R(1, 5) - x, None),
    (y**3 / 3 - x * y, sp.sqrt(x), None),
    (y**4 / 4 - x * y**3 / 3 + y**2 / 2 - x * y, x, None),
    (R(2, 3) * (y + 1) ** R(3, 2) - x * y, x**2 - 1, Box({"x": (1, 2)})),
    (y * sp.atan(y) - sp.log(1 + y**2) / 2 - x * y, sp.tan(x), Box({"x": (-1, 1)})),
    (-sp.cos(y) - x * y, sp.asin(x), Box({"x": ("-1/2", "1/2"), "y": (-1, 1)})),
    (2**y / sp.log(2) - x * y, sp.log(x) / sp.log(2), None),
]  # fmt: skip


@pytest.mark.parametrize(("g", "expected", "box"), CLOSED, ids=lambda value: str(value)[:40])
def test_scalar_equations(g: sp.Expr, expected: sp.Expr, box: Box | None) -> None:
    (root,) = solved(g, box=box)
    assert vanishes(root - expected) or sp.expand_log(root - expected, force=True) == 0, root
    point = {x: R(2, 5) if box is None or box["x"][0] < 1 else R(3, 2), a: R(3, 4)}
    number = root.subs(point).n(40)
    assert number.is_real
    assert abs(derivative(g, y).subs(point).subs(y, number).n(30)) < 1e-20
    assert derivative(derivative(g, y), y).subs(point).subs(y, number).n(30) > 0


@pytest.mark.slow
@given(st.integers(1, 3), st.integers(1, 3), st.integers(-3, 3), RATIONAL)
def test_equations_in_exp_have_one_real_branch(p: int, q: int, r: int, value: sp.Rational) -> None:
    """p exp(y) - q exp(-y) = x + r, which is strongly convex."""
    g = p * sp.exp(y) + q * sp.exp(-y) - (x + r) * y
    (root,) = solved(g)
    number = root.subs(x, value).n(30)
    assert number.is_real
    assert abs((p * sp.exp(number) - q * sp.exp(-number) - value - r).n(30)) < 1e-20


def test_the_box_decides_between_branches_and_ranges() -> None:
    g = (y - x) ** 2 / 2 + 1 / y  # convex for y > 0 alone
    (root,) = solved(g, box=Box({"x": (-3, 3), "y": ("1/5", 4)}))
    for value in (-3, R(-1, 2), 0, 2):
        number = root.subs(x, value).n(30)
        assert number > 0
        assert abs(number - value - number**-2) < 1e-25
    assert "no box ensures" in declined(y * sp.atan(y) - sp.log(1 + y**2) / 2 - x * y)
    assert "no box ensures" in declined(R(2, 3) * (y + 1) ** R(3, 2) - x * y)
    assert "no box ensures" in declined(y * sp.atan(y) - sp.log(1 + y**2) / 2 - x * y, box=Box({"x": (-2, 2)}))
    (root,) = solved(R(2, 3) * (y + 1) ** R(3, 2) + y**2 / 2 - x * y, box=Box({"x": (0, 2)}))
    assert root == x - sp.sqrt(4 * x + 5) / 2 + R(1, 2)


@pytest.mark.parametrize("function", [sp.sin, sp.cos, sp.tan])
def test_periodic_functions_need_an_interval(function: type[sp.Function]) -> None:
    assert all(root.local for root in roots(function(2 * y + 1) - x, y))


def test_symbols_may_be_declared_positive() -> None:
    p, w = sp.symbols("p w", positive=True)
    assert solved(w**4 / 4 - p * w, [w]) == (p ** R(1, 3),)
    assert solved(R(2, 3) * w ** R(3, 2) - p * w, [w]) == (p**2,)


# ---- what is declined, and what is refused -----------------------------------------------------------


@pytest.mark.parametrize(
    ("g", "reason"),
    [
        (y**2 / 2 + sp.exp(y) - x * y, "y + exp(y) = x has no solution in radicals or elementary functions"),
        (y**6 / 6 + y**2 / 2 - x * y, "y**5 + y = x is of degree 5 and has no solution in radicals"),
        (softplus(y) + y**2 - x * y, "2*y + sigmoid(y) = x has no solution"),
        (y**2 / 2 - sp.sin(y) / 2 - x * y, "has no solution"),
        (y**2 + sp.Abs(y) - x * y, "not smooth in y"),
        (y**2 + sp.Max(y, x) ** 2, "not smooth in y"),
        (y**2 + sp.Piecewise((y**2, y > 0), (0, True)), "not smooth in y"),
        (y**y - x * y, "has no solution"),
        (sp.sqrt(y + 1) + y**a - x * y, "has no solution"),
        (sp.exp(y / 2) + sp.exp(y / 3) + sp.exp(y) - x * y, "is of degree 6"),
        (2 ** (2**y) - x * y, "tower"),
        (y ** (10**9) - x * y, "exponent"),
        (sp.exp(y) + x**2 * y + y, "no real solution at any of"),
    ],
)
def test_declines_say_why(g: sp.Expr, reason: str) -> None:
    assert reason in declined(g)


def test_coupled_equations_are_declined() -> None:
    assert "exp(y1 + y2)" in declined(sp.exp(y1 + y2) + y1**2 / 2 + y2**2 / 2 - x1 * y1, [y1, y2])


def test_method_tells_what_was_done() -> None:
    def method(g: sp.Expr, *unknowns: sp.Symbol) -> str:
        return solve_lower_level(g, X, unknowns).method

    assert method(y1**2 - x1 * y1, y1) == "linear in y, solved exactly"
    assert method(y1**2 + y1 * y2 + y2**2 - x1 * y1, y1, y2) == "linear system in y, solved exactly"
    assert method(y1**2 + y2**2 - x1 * y1, y1, y2) == "linear in y, 2 separate systems, each solved exactly"
    both = method(y1**4 + y1**2 - x1 * y1 + y2**2, y1, y2)
    assert both == "separable: y1 cubic (radicals); y2 linear; proved by substitution"
    chain = method((y1 - x1) ** 2 + (y2 - y1**2) ** 2, y1, y2)
    assert chain == "triangular: y2 linear, then y1 linear; proved by substitution"
    assert method(sp.exp(2 * y1) + sp.exp(y1) - x1 * y1, y1) == "y1 quadratic in exp(y1); proved by substitution"


@pytest.mark.parametrize(
    ("g", "unknowns", "value"),
    [
        (x * y - y**2 / 2, [y], -1),
        (x * y, [y], 0),
        (y1**2, [y1, y2], 0),
        (y1**2 + 4 * y1 * y2 + y2**2 - x1 * y1, [y1, y2], R(-6, 5)),
        (-(1 + x**2) * y**2 / 2 + y, [y], R(-5, 4)),
        (-sp.pi * y**2 / 2 + y, [y], None),
        (x1 * (y1 + y2) ** 2 - y1, [y1, y2], 0),
        (y**4, [y], 0),
        ((x + y) ** 64, [y], 0),
        (((x + y) ** 64) ** 64, [y], 0),
        (y**4 / 4 - y**2 / 2 - x * y, [y], R(-1, 4)),
        (y**3 / 3 + y, [y], None),
        (-sp.cos(y) - x * y, [y], None),
    ],
)
def test_violated_assumptions(g: sp.Expr, unknowns: list[sp.Symbol], value: sp.Rational | None) -> None:
    with pytest.raises(AssumptionViolated) as caught:
        solve_lower_level(g, sorted(symbols_in(g) - set(unknowns), key=str), unknowns)
    assert caught.value.label == "assu:bilevel"
    assert caught.value.value <= 0  # type: ignore[operator]
    if value is not None:
        assert caught.value.value == value


def test_the_direction_of_a_violation_is_shown() -> None:
    with pytest.raises(AssumptionViolated, match=r"v = \(-2, 1\): -6/5"):
        solve_lower_level(y1**2 + 4 * y1 * y2 + y2**2 - x1 * y1, X, [y1, y2])


# ---- the proof ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [Root(x / 2), Root(x ** R(1, 3)), Root(-x), Root(x - x**3 + 3 * x**5)])
def test_a_wrong_candidate_is_rejected_by_the_proof(wrong: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_form, "choose", lambda *_: wrong)
    result = solve_lower_level(y**4 / 4 + y**2 / 2 - x * y, [x], [y])
    assert result == ClosedForm(None, "y**3 + y = x was solved, but the proof by substitution failed")


def test_a_wrong_linear_solution_is_rejected_by_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    right = linear._eliminate
    monkeypatch.setattr(linear, "_eliminate", lambda *given: right(*given) + 1)
    result = solve_lower_level((1 + x**2) * y**2 / 2 - x * y, [x], [y])
    assert result == ClosedForm(None, "the system is linear in y, but the proof by substitution failed")


@pytest.mark.parametrize(
    "zero",
    [
        (1 + sp.sqrt(x)) ** 3 - 1 - 3 * sp.sqrt(x) - 3 * x - x * sp.sqrt(x),
        real_root(x + sp.sqrt(1 + x**2), 3) ** 3 - x - sp.sqrt(1 + x**2),
        1 / (1 + sp.sqrt(2)) + 1 - sp.sqrt(2),
        sp.exp(x + y) * sp.exp(-x) - sp.exp(y),
        sp.cosh(x) ** 2 - sp.sinh(x) ** 2 - 1,
        sp.tanh(x) - 2 * sigmoid(2 * x) + 1,
        sp.log(sp.exp(x) / (1 + sp.exp(x))) - x + softplus(x),
        4 * sp.cos(sp.acos(x) / 3) ** 3 - 3 * sp.cos(sp.acos(x) / 3) - x,
        sp.Abs(x) ** 3 - x**2 * sp.Abs(x),
        sp.Piecewise((x, x > 0), (y, True)) ** 2 - sp.Piecewise((x**2, x > 0), (y**2, True)),
    ],
    ids=str,
)
def test_zeros_are_proved_and_their_neighbours_are_not(zero: sp.Expr) -> None:
    assert vanishes(zero)
    assert not vanishes(zero + sp.Rational(1, 10**9))
    assert not vanishes(zero + x * y / 10**9)


def test_what_is_zero_on_one_side_only_is_not_proved() -> None:
    assert not vanishes(sp.sqrt(x**2) - x)
    assert not vanishes(sp.sqrt(x**2 + 2 * x + 1) - x - 1)
    assert not vanishes(1 / (x - x * sp.sqrt(2) ** 2 / 2 + (x + 1) ** 2 - x**2 - 2 * x - 1))
    with pytest.raises(TooLarge):
        vanishes((1 + x + y + a + b) ** 60)


# ---- the arithmetic behind it ------------------------------------------------------------------------


def formulas() -> st.SearchStrategy[sp.Expr]:
    leaves = st.sampled_from([x, y, R(1, 3), sp.Integer(2)])

    def grow(inner: st.SearchStrategy[sp.Expr]) -> st.SearchStrategy[sp.Expr]:
        return st.one_of(
            st.builds(lambda u, w: u + w, inner, inner),
            st.builds(lambda u, w: u * w, inner, inner),
            st.builds(lambda u, k: u**k, inner, st.integers(-2, 3)),
            st.builds(lambda u: sp.sqrt(1 + u**2), inner),
            st.builds(lambda u: sp.exp(u / 4), inner),
        )

    return st.recursive(leaves, grow, max_leaves=6)


@given(formulas(), RATIONAL, RATIONAL)
def test_normal_forms_keep_the_value(formula: sp.Expr, p: sp.Rational, q: sp.Rational) -> None:
    assume(formula.is_finite is not False)
    with flint.ctx.workprec(MIDPOINT_BITS):
        point = {x: exact_ball(p), y: exact_ball(q)}
        before, after = enclosure(formula, point), enclosure(normal_form(formula), point)
        assert not (before.is_finite() and after.is_finite()) or before.overlaps(after)


@pytest.mark.parametrize("function", [sp.exp, sp.sin, sp.atan, sp.asinh, sp.Abs, sigmoid, softplus, sp.tanh, sp.sign])
@given(value=RATIONAL)
def test_enclosures_contain_the_value(function: type[sp.Function], value: sp.Rational) -> None:
    ball = enclosure(function(x) ** 2 + sp.Max(x, 0) + sp.Piecewise((x, x < 1), (1, True)), {x: exact_ball(value)})
    expected = function(value) ** 2 + max(value, 0) + min(value, 1)
    assert abs(float(ball.mid()) - float(expected)) <= 1e-13 + float(ball.rad())


def test_enclosures_of_towers_cost_nothing() -> None:
    tower = x
    for _ in range(8):
        tower = sp.exp(tower)
    assert not enclosure(tower, {x: flint.arb(40)}).is_finite()
    assert not enclosure(sp.sqrt(x) + sp.log(x), {x: flint.arb(-1)}).is_finite()
    assert calls_of(lambda: enclosure(tower, {x: flint.arb(40)})) < 2_000


def test_bounds_over_a_box_are_proved_by_cutting_it() -> None:
    domain = Domain(Box({"x": (-1, 2)}), {})
    assert domain.proves_between(x**2 - x + R(1, 3), sp.S.Zero, sp.oo)
    assert not domain.proves_between(x**2 - x + R(1, 5), sp.S.Zero, sp.oo)
    assert not Domain(None, {}).proves_between(x + 10, sp.S.Zero, sp.oo)


def test_solutions_of_linear_systems_too_large_are_refused() -> None:
    matrix = [[sp.Symbol(f"m{min(i, j)}{max(i, j)}", real=True) for j in range(8)] for i in range(8)]
    with pytest.raises(TooLarge, match="determinant"):
        solve_linear(matrix, list(X[:8]))


# ---- bounded in time ---------------------------------------------------------------------------------


def nest(function: Callable[[sp.Expr], sp.Expr], start: sp.Expr, times: int) -> sp.Expr:
    for _ in range(times):
        start = function(start)
    return start


def total(terms: Iterable[sp.Expr]) -> sp.Expr:
    return sp.Add(*terms)  # Python's sum would sort a growing sum again and again


def number(rng: random.Random) -> sp.Rational:
    return R(rng.randint(-9, 9), rng.randint(1, 4))


def numbers(count: int) -> list[sp.Rational]:
    rng = random.Random(0)
    return [number(rng) for _ in range(count)]


def squares(n: int, weight: Callable[[random.Random], sp.Expr] = lambda _: sp.S.One) -> sp.Expr:
    rng = random.Random(0)
    rows = ([number(rng) * s for s in Y[:n]] for _ in range(500))
    return sp.Add(*(weight(rng) * (sp.Add(*row) - number(rng) * x) ** 2 for row in rows))


def dense() -> sp.Expr:
    entries = {(i, j): sp.Symbol(f"m{min(i, j)}{max(i, j)}", real=True) for i in range(8) for j in range(8)}
    return total(entry * Y[i] * Y[j] for (i, j), entry in entries.items()) - x * y1


def constant() -> sp.Expr:
    rng = random.Random(0)
    return total((total(number(rng) * s for s in Y) - xi) ** 2 for xi in X) + total(s**2 for s in Y)


def radical() -> sp.Expr:
    return nest(lambda u: sp.sqrt(1 + u**2 + x), x, 30)


def zipped(term: Callable[[sp.Expr, sp.Expr], sp.Expr]) -> sp.Expr:
    return total(term(u, v) for u, v in zip(X, Y, strict=True))


MANY = sp.symbols("z1:201", real=True)
NASTY: dict[str, tuple[Callable[[], sp.Expr], Sequence[sp.Symbol], bool]] = {  # name -> g, unknowns, whether it closes
    "power": (lambda: (x + y) ** 64 + y**2, [y], False),
    "power of a power": (lambda: ((x + y) ** 64) ** 64 + y**2 - x * y, [y], False),
    "product of powers": (lambda: (1 + x + y) ** 64 * (x - y) ** 32, [y], False),
    "dense symbolic matrix": (dense, Y[:8], False),
    "500 squares, 1 unknown": (lambda: squares(1), Y[:1], True),
    "500 squares, 20 unknowns": (lambda: squares(20), Y, True),
    "500 weighted squares": (lambda: squares(3, lambda rng: sp.exp(number(rng) * x)), Y[:3], True),
    "500 logistic terms": (
        lambda: total(softplus(a * y1 + b * y2) for a, b in zip(numbers(500), numbers(1000)[500:], strict=True)) + y1**2, [y1, y2], False
    ),
    "500 exponentials": (lambda: total(sp.exp(a * y) for a in numbers(500)) - x * y, [y], False),
    "nested radicals in y": (lambda: nest(lambda u: sp.sqrt(1 + u**2 + y), y, 12) + y**2 - x * y, [y], False),
    "nested radicals in x": (lambda: radical() * y**2 - x * y, [y], True),
    "cubic with nested radicals": (lambda: radical() * y**2 + radical() ** 2 * y**4 - x * y, [y], True),
    "tower in y": (lambda: nest(sp.exp, y, 6) + y**2 - x * y, [y], False),
    "tower in x": (lambda: nest(sp.exp, x, 6) * y**2 + y**4 - x * y, [y], True),
    "deep in x": (lambda: y**2 / 2 + y**4 / 4 - nest(sp.sin, x, 300) * y, [y], True),
    "deep in y": (lambda: y**2 / 2 - nest(sp.sin, y, 300) * x, [y], False),
    "diagonal": (lambda: zipped(lambda u, v: sp.exp(u) * v**2 / (1 + u**2) - sp.sin(u) * v), Y, True),
    "constant with a symbolic diagonal": (lambda: constant() + zipped(lambda u, v: sp.exp(u) * v**2), Y, False),
    "20 cubics": (lambda: zipped(lambda u, v: v**4 / 4 + sp.exp(u) * v**2 / 2 - u * v), Y, True),
    "long chain": (lambda: (y1 - x) ** 2 + total((Y[i + 1] - Y[i] ** 2) ** 2 for i in range(11)), Y[:12], False),
    "coupled quartics": (lambda: total((Y[i] + Y[(i + 1) % 6]) ** 4 + Y[i] ** 2 for i in range(6)) - x * y1, Y[:6], False),
    "long coefficients": (lambda: total(X) * y**4 + (1 + total(u**2 for u in X)) * y**2 + y * sp.Mul(*X), [y], True),
    "many roots": (lambda: total(y ** R(1, k) for k in range(2, 12)) + y**2 - x * y, [y], False),
    "many logarithms": (lambda: total((y + k) * sp.log(y + k) for k in range(40)) - x * y, [y], False),
    "5000 terms": (lambda: sp.Add(*(x**k * y**2 for k in range(5000))), [y], False),
    "200 unknowns": (lambda: total((s - x) ** 2 for s in MANY), MANY, True),
}  # fmt: skip
TOO_LONG = ("500 squares, 20 unknowns", "coupled quartics", "5000 terms", "20 cubics")


@pytest.mark.slow
@pytest.mark.in_ci(name=[name for name in NASTY if name not in TOO_LONG])
@pytest.mark.parametrize("name", NASTY)
def test_every_call_is_bounded(name: str) -> None:
    build, unknowns, closes = NASTY[name]
    g = build()
    result = solve_lower_level(g, known := sorted(symbols_in(g) - set(unknowns), key=str), unknowns)
    assert calls_of(lambda: solve_lower_level(g, known, unknowns)) < 20_000_000
    assert (result.y_star is not None) == closes, result.method
    assert len(result.method) < 1000
