"""softplus and sigmoid, and its derivative, bell(z) = sigmoid(z) sigmoid(-z): exponentials that do not overflow.

In floats and in mpmath exp sees no positive argument. In balls z occurs once where that matters, so that a narrow ball
stays narrow.

In SymPy, too, they are functions of their own: written out, ``log(1 + exp(z))`` overflows for z > 709 and its
derivatives swell.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from flint import fmpq

from bilevel_sym.graph.operations.elementary import LARGEST_EXPONENT
from bilevel_sym.graph.operations.record import Shape, Source, at_zero, function, opened
from bilevel_sym.graph.precision import mpmath_precision

__all__ = ["RECORDS", "sigmoid", "softplus"]


class _Logistic(sp.Function):
    """A positive function of one real number."""

    nargs = 1

    def _eval_is_extended_real(self) -> Any:
        return self.args[0].is_extended_real

    def _eval_is_positive(self) -> Any:
        return self.args[0].is_real


class sigmoid(_Logistic):
    """sigmoid(z) = 1/(1 + exp(-z)).

    >>> z = sp.Symbol("z", real=True)
    >>> sigmoid(0), sigmoid(z).diff(z)
    (1/2, (1 - sigmoid(z))*sigmoid(z))
    """

    @classmethod
    def eval(cls, z: sp.Expr) -> sp.Expr | None:
        """Only what is exact: the value at zero."""
        return sp.Rational(1, 2) if z.is_zero else None

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """sigmoid' = sigmoid (1 - sigmoid)."""
        return self * (1 - self)

    def _eval_rewrite_as_exp(self, z: sp.Expr, **_: object) -> sp.Expr:
        return 1 / (1 + sp.exp(-z))

    def _eval_evalf(self, prec: int) -> sp.Expr | None:
        return _evaluated(self.args[0], prec, lambda z: 1 / (1 + mpmath.exp(-z)))


class softplus(_Logistic):
    """softplus(z) = log(1 + exp(z)).

    >>> z = sp.Symbol("z", real=True)
    >>> softplus(z).diff(z), softplus(0)
    (sigmoid(z), log(2))
    """

    @classmethod
    def eval(cls, z: sp.Expr) -> sp.Expr | None:
        """Only what is exact: the value at zero."""
        return sp.log(2) if z.is_zero else None

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """softplus' = sigmoid."""
        return sigmoid(self.args[0])

    def _eval_rewrite_as_exp(self, z: sp.Expr, **_: object) -> sp.Expr:
        return sp.log(1 + sp.exp(z))

    def _eval_evalf(self, prec: int) -> sp.Expr | None:
        # written so that exp never overflows, and log1p keeps the digits that log(1 + tiny) would lose
        return _evaluated(self.args[0], prec, lambda z: max(z, 0) + mpmath.log1p(mpmath.exp(-abs(z))))


def _evaluated(argument: sp.Expr, prec: int, function: Callable[[Any], Any]) -> sp.Expr | None:
    """The function at a real number; None where the argument is not one."""
    number = argument.evalf(mpmath.libmp.prec_to_dps(prec + 20))
    if not number.is_Float and not number.is_Integer:
        return None
    with mpmath_precision(prec + 20):
        return sp.Float._new(function(number._to_mpmath(prec + 20))._mpf_, prec)


_NEGLIGIBLE_FROM = 1000  # beyond it exp(-abs(z)) is nothing relative to 1, and exp(abs(z)) may overflow


def _float_softplus(z: Any, library: Any = np) -> Any:
    return np.asarray(np.maximum(z, 0.0) + library.log1p(library.exp(-np.abs(z))))


def _float_sigmoid(z: Any, library: Any = np) -> Any:
    small = library.exp(-np.abs(z))
    return np.asarray(np.where(z < 0, small, 1.0) / (1.0 + small))


def _float_bell(z: Any, library: Any = np) -> Any:
    small = library.exp(-np.abs(z))
    return np.asarray(small / np.square(1.0 + small))


def _digits_softplus(z: Any) -> Any:
    """log1p keeps the digits that log(1 + tiny) loses."""
    return max(0, z) + mpmath.log1p(mpmath.exp(-abs(z)))


def _digits_sigmoid(z: Any) -> Any:
    e = mpmath.exp(-abs(z))
    return (e if z < 0 else 1) / (1 + e)


def _digits_bell(z: Any) -> Any:
    e = mpmath.exp(-abs(z))
    return e / (1 + e) ** 2


def _ball_softplus(z: Any) -> Any:
    return z + (-z).exp().log1p() if z > _NEGLIGIBLE_FROM else z.exp().log1p()


def _ball_sigmoid(z: Any) -> Any:
    if z < -_NEGLIGIBLE_FROM:
        e = z.exp()
        return e / (1 + e)
    return 1 / (1 + (-z).exp())


def _ball_bell(z: Any) -> Any:
    """1 / (4 cosh(z/2)**2)."""
    if abs(z) > _NEGLIGIBLE_FROM:
        e = (-abs(z)).exp()
        return e / ((1 + e) * (1 + e))
    c = (z / 2).cosh()
    return 1 / (4 * c * c)


# Source that others differentiate: twice, and far from zero, without a quotient of infinities.
_SOFTPLUS = Source(
    "np.logaddexp(0, {})",
    {"jax": "jax.nn.softplus({})", "torch": "softplus({})"},
    {"torch": "def softplus(z):\n    return -torch.nn.functional.logsigmoid(-z)"},
)
_SIGMOID = Source(
    "sigmoid({})",
    {"jax": "jax.nn.sigmoid({})", "torch": "torch.sigmoid({})"},
    {
        "numpy": "def sigmoid(z):\n"
        "    small = np.exp(-np.abs(z))  # at most one: nothing overflows\n"
        "    return np.where(z < 0, small, 1.0) / (1.0 + small)"
    },
)
_BELL = Source(
    "sigmoid_slope({})",
    definitions={
        "numpy": "def sigmoid_slope(z):\n"
        '    """The derivative of sigmoid."""\n'
        "    small = np.exp(-np.abs(z))\n"
        "    return small / (1.0 + small) ** 2",
        "jax": "def sigmoid_slope(z):\n"
        '    """The derivative of sigmoid."""\n'
        "    return jax.nn.sigmoid(z) * jax.nn.sigmoid(-z)",
        "torch": "def sigmoid_slope(z):\n"
        '    """The derivative of sigmoid."""\n'
        "    return torch.sigmoid(z) * torch.sigmoid(-z)",
    },
)

RECORDS = (
    function(
        "softplus", Shape("monotone", 0.0), lambda graph, z, itself: graph.apply("sigmoid", z),
        sympy=softplus, largest=LARGEST_EXPONENT, numpy=_float_softplus, composed=True, mpmath=_digits_softplus,
        ball=_ball_softplus, series=lambda z: (1 + z.exp()).log(), source=_SOFTPLUS, in_exp=True,
        inverse=lambda r, _: (sp.log(sp.exp(r) - 1),),
        # s = sigmoid: s, s (1 - s), s (1 - s)(1 - 2 s) with its maximum 1/(6 sqrt(3)), and its derivative
        bounds=lambda T: (T + Fraction(7, 10), Fraction(1), Fraction(1, 4), Fraction(1, 10), Fraction(1, 8)),
    ),
    function(
        "sigmoid", Shape("monotone", 0.0, 1.0), lambda graph, z, itself: graph.apply("bell", z),
        sympy=sigmoid, habits=("logistic", "expit"), largest=LARGEST_EXPONENT, folded=at_zero(1, 2),
        numpy=_float_sigmoid, composed=True, mpmath=_digits_sigmoid, ball=_ball_sigmoid,
        series=lambda z: 1 / (1 + (-z).exp()), source=_SIGMOID, in_exp=True,
        inverse=lambda r, shorten: (sp.log(shorten(r / (1 - r))),),
        bounds=lambda T: (Fraction(1), Fraction(1, 4), Fraction(1, 10), Fraction(1, 8), Fraction(13, 100)),
    ),
    function(  # its slope is bell (1 - 2 sigmoid), where 1 - 2 sigmoid(z) = -tanh(z/2) without cancellation
        "bell", Shape("falling", 0.0, 0.25),
        lambda graph, z, itself: -graph.mul(itself, graph.apply("tanh", opened(graph, z).scaled(fmpq(1, 2)))),
        sympy=lambda z: sigmoid(z) * (1 - sigmoid(z)), in_text=False, folded=at_zero(1, 4), numpy=_float_bell,
        composed=True, mpmath=_digits_bell, ball=_ball_bell, series=lambda z: 1 / (2 + z.exp() + (-z).exp()),
        source=_BELL,
    ),
)  # fmt: skip
