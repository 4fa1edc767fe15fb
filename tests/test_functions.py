"""softplus and sigmoid: the same functions as written out, where that works, and stable where it does not."""

from __future__ import annotations

import hypothesis.strategies as st
import mpmath
import pytest
import sympy as sp
from hypothesis import given

from bilevel_sym import sigmoid, softplus

z = sp.Symbol("z", real=True)


@given(st.fractions(-50, 50))
def test_they_are_what_they_say(value: object) -> None:
    at = sp.Rational(str(value))
    with mpmath.workdps(100):
        t = mpmath.mpf(at.p) / at.q
        for function, truth in ((softplus, mpmath.log(1 + mpmath.exp(t))), (sigmoid, 1 / (1 + mpmath.exp(-t)))):
            assert abs(mpmath.mpf(str(sp.N(function(at), 50))) / truth - 1) < mpmath.mpf(10) ** -40


@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_match_those_of_the_written_out_form(order: int) -> None:
    for function in (softplus, sigmoid):
        mine = function(z).diff(z, order)
        theirs = function(z).rewrite(sp.exp).diff(z, order)
        for point in (sp.Rational(-7, 3), sp.Integer(0), sp.Rational(5, 2)):
            assert abs(sp.N(mine.subs(z, point) - theirs.subs(z, point), 30, chop=True)) < sp.Float("1e-25")


@pytest.mark.parametrize("value", [-10_000, -800, 800, 10_000])
def test_large_arguments_neither_overflow_nor_lose_digits(value: int) -> None:
    with mpmath.workdps(30):
        plus, sig = (mpmath.mpf(str(sp.N(function(value), 20))) for function in (softplus, sigmoid))
        truth = (mpmath.mpf(value), mpmath.mpf(1)) if value > 0 else (mpmath.exp(value),) * 2
        for mine, true in zip((plus, sig), truth, strict=True):
            assert abs(mine / true - 1) < mpmath.mpf(10) ** -18


def test_signs_are_known() -> None:
    assert softplus(z).is_positive
    assert sigmoid(z).is_positive
    assert softplus(z).is_real
    assert sigmoid(sp.Symbol("w")).is_positive is None
