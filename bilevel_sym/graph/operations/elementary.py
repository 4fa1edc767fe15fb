"""exp and log; sin, cos, tan and atan; tanh, sinh and cosh."""

from __future__ import annotations

import math
from fractions import Fraction

import sympy as sp
from flint import fmpq

from bilevel_sym.graph.operations.record import Shape, at_zero, function, opened

__all__ = ["LARGEST_EXPONENT", "RECORDS"]

LARGEST_EXPONENT = 690.0  # exp(690) is about 1e300
LARGEST_ANGLE = 1e9  # beyond it a float says little about the sine
_RIGHT_ANGLE = math.nextafter(math.pi / 2, 2)


def _exp_bounds(T: Fraction) -> tuple[Fraction, ...]:
    return (Fraction(math.exp(T)) * (1 + Fraction(1, 2**40)),) * 5


def _cosh_bounds(T: Fraction) -> tuple[Fraction, ...]:
    """Of sinh and cosh alike: (exp(T) + 1)/2 bounds both."""
    return ((_exp_bounds(T)[0] + 1) / 2,) * 5


def _one_bounds(T: Fraction) -> tuple[Fraction, ...]:
    return (Fraction(1),) * 5


RECORDS = (
    function(
        "exp", Shape("monotone", 0.0), lambda graph, z, itself: itself,
        folded=at_zero(1), largest=LARGEST_EXPONENT, compiled=None, bounds=_exp_bounds,
        inverse=lambda r, _: () if r.is_zero else (sp.log(r),),
    ),
    function(
        "log", Shape("monotone"), lambda graph, z, itself: graph.power(z, -1),
        habits=("ln",), domain=0.0, excess=3, undoes="exp", inverse=lambda r, _: (sp.exp(r),),
    ),
    function(
        "sin", Shape("wave", shift=0.5), lambda graph, z, itself: graph.apply("cos", z),
        folded=at_zero(0), largest=LARGEST_ANGLE, bounds=_one_bounds, inverse=lambda r, _: (sp.asin(r),),
    ),
    function(
        "cos", Shape("wave"), lambda graph, z, itself: -graph.apply("sin", z),
        folded=at_zero(1), largest=LARGEST_ANGLE, bounds=_one_bounds, inverse=lambda r, _: (sp.acos(r),),
    ),
    function(
        "tan", Shape("branches", shift=0.5), lambda graph, z, itself: graph.one + graph.power(itself, 2),
        folded=at_zero(0), largest=LARGEST_ANGLE, excess=9, inverse=lambda r, _: (sp.atan(r),),
    ),
    function(
        "atan", Shape("monotone", -_RIGHT_ANGLE, _RIGHT_ANGLE),
        lambda graph, z, itself: graph.power(graph.one + graph.power(z, 2), -1),
        folded=at_zero(0), habits=("arctan",), excess=7, undoes="tan", inverse=lambda r, _: (sp.tan(r),),
        # with s = 1 + t^2: 1/s, -2 t/s^2, (6 t^2 - 2)/s^3 and 24 t (1 - t^2)/s^4
        bounds=lambda T: (min(T, Fraction(63, 40)), Fraction(1), Fraction(13, 20), Fraction(2), Fraction(47, 10)),
    ),
    function(  # 1 - tanh^2 cancels for large z; 4 bell(2 z) is the same without
        "tanh", Shape("monotone", -1.0, 1.0),
        lambda graph, z, itself: graph.apply("bell", opened(graph, z).scaled(fmpq(2))).scaled(fmpq(4)),
        folded=at_zero(0), compiled=None, series=lambda z: 1 - 2 / (1 + (2 * z).exp()), in_exp=True,
        inverse=lambda r, _: (sp.atanh(r),),
        # with t = tanh and u = 1 - t^2: u, -2 t u, (6 t^2 - 2) u and (16 - 24 t^2) t u
        bounds=lambda T: (Fraction(1), Fraction(1), Fraction(77, 100), Fraction(2), Fraction(41, 10)),
    ),
    function(
        "sinh", Shape("monotone"), lambda graph, z, itself: graph.apply("cosh", z),
        folded=at_zero(0), largest=LARGEST_EXPONENT, series=lambda z: (z.exp() - (-z).exp()) / 2, in_exp=True,
        excess=10, bounds=_cosh_bounds, inverse=lambda r, _: (sp.asinh(r),),
    ),
    function(
        "cosh", Shape("rising", 1.0), lambda graph, z, itself: graph.apply("sinh", z),
        folded=at_zero(1), largest=LARGEST_EXPONENT, series=lambda z: (z.exp() + (-z).exp()) / 2, in_exp=True,
        excess=5, bounds=_cosh_bounds, inverse=lambda r, _: (sp.acosh(r), -sp.acosh(r)),
    ),
)  # fmt: skip
