"""Norm calculus: bounds of products and sums of derivative blocks, derived in symbols from Assumption 2.1 alone.

A quantity carries a bound of its norm and a Lipschitz constant in x along y = y*(x). Products obey |AB| <= |A| |B| and
Lip(AB) <= Lip(A) |B| + |A| Lip(B), inverses |A^-1 - B^-1| <= |A^-1| |A - B| |B^-1|; y* is kappa-Lipschitz, because g is
strongly convex. What comes out is a proof, for every problem, that a printed formula is large enough, or that this
derivation does not give it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import sympy as sp

from bilevel_sym.constants import Constants

__all__ = ["Sized", "derived", "follows"]


@dataclass(frozen=True)
class Sized:
    """A quantity of which |T| <= ``norm`` and |T(x) - T(x')| <= ``lipschitz`` |x - x'| are known.

    >>> a, b = Sized(sp.Integer(2), sp.Integer(3)), Sized(sp.Integer(5), sp.Integer(7))
    >>> a * b
    Sized(norm=10, lipschitz=29)
    """

    norm: sp.Expr
    lipschitz: sp.Expr

    def __add__(self, other: Sized) -> Sized:
        return Sized(self.norm + other.norm, self.lipschitz + other.lipschitz)

    def __mul__(self, other: Sized) -> Sized:
        return Sized(self.norm * other.norm, self.lipschitz * other.norm + self.norm * other.lipschitz)

    @property
    def twice(self) -> Sized:
        """The sum of two that have the same bounds."""
        return self + self


@lru_cache(1)
def _constants() -> Constants:
    """The constants as positive symbols; ell >= mu is not used, so it is not asked for."""
    symbolic = object.__new__(Constants)
    for name in ("mu", "ell", "rho", "nu", "M"):
        object.__setattr__(symbolic, name, sp.Symbol(name, positive=True))
    object.__setattr__(symbolic, "sigma", None)
    object.__setattr__(symbolic, "reading", "block")
    return symbolic


@lru_cache(1)
def derived() -> Mapping[str, Sized]:
    """The quantities of Appendix A and B.1 by name, each with the bounds that the calculus gives.

    >>> derived()["dy_dx"].norm
    ell/mu
    >>> sp.factor(derived()["dy_dx"].lipschitz)
    rho*(ell + mu)**2/mu**3
    """
    c: Any = _constants()
    moves = 1 + c.kappa  # (x, y*(x)) moves by at most this, block by block
    first, second, third = Sized(c.M, c.ell * moves), Sized(c.ell, c.rho * moves), Sized(c.rho, c.nu * moves)
    inverse = Sized(1 / c.mu, c.rho * moves / c.mu**2)
    response = second * inverse
    product, sandwich = response * third, response * third * response
    curvature = (third + product.twice + sandwich) * inverse
    terms = {"(I)": second, "(II)": response * second, "(III)": curvature * first, "(IV)": response * second * response}
    hess = terms["(I)"] + terms["(II)"].twice + terms["(III)"] + terms["(IV)"]
    return MappingProxyType(
        {
            **terms,
            "dy_dx": response,
            "d2y_dx2": curvature,
            "v": inverse * first,
            "dy_dx g_yxy": product,
            "dy_dx g_yyy dy_dx'": sandwich,
            "grad": first + response * first,
            "hess": hess,
            "minimax hess": second + second * response,
        }
    )


def follows(formula: Callable[[Constants], Any], bound: sp.Expr) -> bool:
    """Whether the formula is at least the bound for all constants: their difference has no negative coefficient.

    >>> follows(lambda c: c.L_phi(), derived()["hess"].norm)
    True
    >>> follows(lambda c: c.L_phi(variant="printed"), derived()["hess"].norm)
    False
    """
    gap = sp.expand(formula(_constants()) - bound)
    return all(term.as_coeff_Mul()[0] >= 0 for term in sp.Add.make_args(gap))
