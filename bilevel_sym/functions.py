"""softplus and sigmoid: log(1 + exp z) and its derivative, as functions that stay stable and readable.

Written out, ``log(1 + exp(z))`` overflows for z > 709 and its derivatives swell. As functions of their own they
print as people write them, and every arithmetic can evaluate them where the naive formula fails.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

__all__ = ["sigmoid", "softplus"]


class sigmoid(sp.Function):
    """sigmoid(z) = 1/(1 + exp(-z)).

    >>> z = sp.Symbol("z", real=True)
    >>> sigmoid(0), sigmoid(z).diff(z)
    (1/2, (1 - sigmoid(z))*sigmoid(z))
    """

    nargs = 1

    @classmethod
    def eval(cls, z: sp.Expr) -> sp.Expr | None:
        """Only what is exact: the value at zero."""
        return sp.Rational(1, 2) if z.is_zero else None

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """sigmoid' = sigmoid (1 - sigmoid)."""
        return self * (1 - self)

    def _eval_rewrite_as_exp(self, z: sp.Expr, **_: object) -> sp.Expr:
        return 1 / (1 + sp.exp(-z))

    def _eval_evalf(self, prec: int) -> sp.Expr:
        # exp of a non-positive number only, so that nothing overflows
        (z,) = self.args
        negative = sp.re(z.n(15)) < 0
        stable = sp.exp(z) / (1 + sp.exp(z)) if negative else 1 / (1 + sp.exp(-z))
        return stable._eval_evalf(prec)

    def _eval_is_extended_real(self) -> Any:
        return self.args[0].is_extended_real

    def _eval_is_positive(self) -> Any:
        return self.args[0].is_real


class softplus(sp.Function):
    """softplus(z) = log(1 + exp(z)).

    >>> z = sp.Symbol("z", real=True)
    >>> softplus(z).diff(z), softplus(0)
    (sigmoid(z), log(2))
    """

    nargs = 1

    @classmethod
    def eval(cls, z: sp.Expr) -> sp.Expr | None:
        """Only what is exact: the value at zero."""
        return sp.log(2) if z.is_zero else None

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """softplus' = sigmoid."""
        return sigmoid(self.args[0])

    def _eval_rewrite_as_exp(self, z: sp.Expr, **_: object) -> sp.Expr:
        return sp.log(1 + sp.exp(z))

    def _eval_evalf(self, prec: int) -> sp.Expr:
        # softplus(z) = max(z, 0) + log(1 + exp(-|z|)): exp of a non-positive number only
        (z,) = self.args
        negative = sp.re(z.n(15)) < 0
        stable = sp.log(1 + sp.exp(z)) if negative else z + sp.log(1 + sp.exp(-z))
        return stable._eval_evalf(prec)

    def _eval_is_extended_real(self) -> Any:
        return self.args[0].is_extended_real

    def _eval_is_positive(self) -> Any:
        return self.args[0].is_real
