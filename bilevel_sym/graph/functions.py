"""softplus and sigmoid: log(1 + exp z) and its derivative, as functions that stay stable and readable.

Written out, ``log(1 + exp(z))`` overflows for z > 709 and its derivatives swell. As functions of their own they
print as people write them, and every arithmetic can evaluate them where the naive formula fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import sympy as sp

from bilevel_sym.graph.precision import mpmath_precision

__all__ = ["sigmoid", "softplus"]


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
