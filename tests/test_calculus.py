"""Derivatives against SymPy's own, and on expressions that SymPy cannot differentiate."""

from __future__ import annotations

import hypothesis.strategies as st
import mpmath
import pytest
import sympy as sp
from helpers import calls_of
from hypothesis import given

from bilevel_sym.graph.expressions import postorder, substitute, symbols_in
from bilevel_sym.graph.operations import IN_TEXT
from bilevel_sym.symbolic.blocks import derivative
from bilevel_sym.symbolic.simplify import expanded_terms, simplified

a, b = sp.symbols("a b", real=True)
UNARY = tuple(record.sympy for record in IN_TEXT.values() if record.arity == 1 and record.name != "log")
POINT = {a: sp.Rational(3, 7), b: sp.Rational(-5, 11)}


def expressions() -> st.SearchStrategy[sp.Expr]:
    leaves = st.sampled_from([a, b, sp.Rational(1, 3), sp.pi, sp.Integer(2)])

    def grow(inner: st.SearchStrategy[sp.Expr]) -> st.SearchStrategy[sp.Expr]:
        return st.one_of(
            st.builds(lambda u, w: u + w, inner, inner),
            st.builds(lambda u, w: u * w, inner, inner),
            st.builds(lambda u, k: u**k, inner, st.integers(1, 3)),
            st.builds(lambda u, w: u / (2 + w**2), inner, inner),
            st.builds(lambda fn, u: fn(u), st.sampled_from(UNARY), inner),
            st.builds(lambda u: sp.log(1 + u**2), inner),
            st.builds(lambda u, w: (1 + u**2) ** w, inner, inner),
            st.builds(lambda u, w: sp.Piecewise((u, w < sp.Rational(1, 9)), (w, True)), inner, inner),
            st.builds(sp.Max, inner, inner),
        )

    return st.recursive(leaves, grow, max_leaves=6)


@given(expressions())
def test_derivatives_match_sympy_and_finite_differences(expression: sp.Expr) -> None:
    mine = sp.N(derivative(expression, a).subs(POINT), 30)
    numeric = expression.subs(b, POINT[b])
    if numeric.has(sp.Max, sp.Piecewise, sp.Abs):
        with mpmath.workdps(60):  # SymPy answers with Heaviside and Derivative there; difference instead
            value = sp.lambdify(
                a,
                numeric,
                [
                    {
                        "softplus": lambda z: mpmath.log1p(mpmath.exp(z)),
                        "sigmoid": lambda z: 1 / (1 + mpmath.exp(-z)),
                    },
                    "mpmath",
                ],
            )
            t, h = mpmath.mpf(3) / 7, mpmath.mpf(10) ** -20
            theirs = (value(t + h) - value(t - h)) / (2 * h)
            assert abs(mpmath.mpf(mine) - theirs) <= mpmath.mpf(10) ** -12 * (1 + abs(theirs))
    else:
        theirs = sp.N(expression.diff(a).subs(POINT), 30)
        assert abs(mine - theirs) <= sp.Float("1e-20") * (1 + abs(theirs))


def test_kinks_give_one_side_and_never_a_delta() -> None:
    assert derivative(abs(a), a) == sp.sign(a)
    assert derivative(sp.sign(a) * b, a) == 0
    low = derivative(sp.Min(a, b), b)
    assert [low.subs({a: at, b: 1}) for at in (0, 2)] == [0, 1]
    assert derivative(derivative(sp.Max(a, b, 2 * a), a), a) == 0


def test_complex_symbols_differentiate_as_real_ones() -> None:
    z = sp.Symbol("z")
    assert derivative(abs(z), z) == sp.sign(z)


@pytest.mark.slow
def test_three_hundred_nested_functions_are_no_obstacle() -> None:
    expression: sp.Expr = a
    for _ in range(300):
        expression = sp.sin(expression, evaluate=False)
    assert sum(1 for _ in postorder(derivative(expression, a))) > 300


def test_shared_subexpressions_are_visited_once() -> None:
    expression = a + b
    for _ in range(200):  # a tree of 2**200 leaves, a graph of 400 nodes
        expression = sp.Mul(expression, expression + 1, evaluate=False)
    assert symbols_in(expression) == {a, b}
    assert sum(1 for _ in postorder(expression)) < 1000


def test_substitute_agrees_with_xreplace() -> None:
    expression = sp.sin(a) * b + sp.Piecewise((a, a < b), (b**2, True)) + sp.Max(a, b)
    mapping = {a: b + 1, b: sp.Integer(2)}
    assert substitute(expression, mapping) == expression.xreplace(mapping)
    assert substitute(expression, {}) is expression


@given(expressions())
def test_tidy_never_changes_the_value(expression: sp.Expr) -> None:
    before, after = (sp.N(e.subs(POINT), 30) for e in (expression, simplified(expression)))
    assert abs(before - after) <= sp.Float("1e-20") * (1 + abs(before))


@pytest.mark.parametrize(
    ("expression", "shorter"),
    [
        ((a + 1) ** 2 - a**2 - 2 * a - 1, sp.Integer(0)),
        (a / (a * b + a), 1 / (b + 1)),
        ((a + b) ** 2, (a + b) ** 2),
    ],
)
def test_tidy_shortens(expression: sp.Expr, shorter: sp.Expr) -> None:
    assert simplified(expression) == shorter


@pytest.mark.slow
def test_long_maxima_and_high_powers_are_quick() -> None:
    many = sp.symbols("m1:41", real=True)
    work = calls_of(lambda: derivative(sp.Max(*many), many[7]))
    slope = derivative(sp.Max(*many), many[7])
    assert substitute(slope, {s: sp.Integer(k) for k, s in enumerate(many)}) == 0
    assert substitute(slope, {s: sp.Integer(-k) for k, s in enumerate(many[7:] + many[:7])}) == 1
    assert simplified(1 / (999000 * a**998 + 1) + a) == a + 1 / (999000 * a**998 + 1)
    work += calls_of(lambda: simplified(1 / (999000 * a**998 + 2) + a))
    assert work < 20_000_000


@pytest.mark.parametrize("power", [10**40, sp.Rational(3602879701896397, 36028797018963968), 3000])
def test_a_power_of_an_exponential_is_no_polynomial_of_that_degree(power: sp.Rational) -> None:
    # DEFECT: exp(1e40*a) was exp(a)**(1e40) to SymPy's polynomials, which are lists of all their coefficients
    expression = 1 / (sp.exp((power + b) / (1 + a)) * b**2 + 1)
    assert calls_of(lambda: simplified(expression)) < 200_000
    assert simplified(expression) == expression


def test_tidy_leaves_bombs_alone() -> None:
    bomb = ((a + b + 1) ** 64 + 1) ** 64
    assert simplified(bomb) is bomb
    assert expanded_terms(bomb) == 10**6


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_expanded_terms_is_an_upper_bound(m: int, n: int, k: int) -> None:
    expression = (a + b + 1) ** m * (a - 2 * b) ** n + sp.sin(a) ** k
    assert len(sp.expand(expression).args) <= expanded_terms(expression)


def test_third_derivatives_of_a_maximum_end() -> None:
    x, y = sp.symbols("x y", real=True)
    z = x - y / 3
    expression = sp.Max(z, -z / 2) ** 3
    for symbol in (x, x, y):
        expression = derivative(expression, symbol)
    assert expression.subs({x: 2, y: 3}) == -2  # z > 0: the third derivative of z^3 is 6, times -1/3
    assert expression.subs({x: -2, y: 3}) == sp.Rational(1, 4)  # z < 0: of (-z/2)^3


@pytest.mark.slow
def test_third_derivatives_of_pieces_within_pieces_end() -> None:
    x, y = sp.symbols("x y", real=True)
    inner = sp.Piecewise((-x * y, x < y), (x - y, (y >= 1) | (x > 1)), (-y, True))
    outer = sp.Piecewise((inner * sp.Min(4, x), x < y), (inner + sp.Max(x, y), (y >= 1) | (x > 1)), (inner, True))
    expression = sp.Max(outer * sp.Min(y**2, sp.atan(inner)), -2 * sp.Min(inner, x) + sp.cos(x))
    for symbol in (x, y, x):
        expression = derivative(expression, symbol)
    assert expression.subs({x: sp.Rational(1, 3), y: sp.Rational(1, 2)}).is_number
