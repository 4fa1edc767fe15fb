"""Norm calculus: bounds of products and sums of derivative blocks, derived in symbols from Assumption 2.1 alone.

A quantity carries a bound of its norm and a Lipschitz constant in x along y = y*(x). Products obey |AB| <= |A| |B| and
Lip(AB) <= Lip(A) |B| + |A| Lip(B), inverses |A^-1 - B^-1| <= |A^-1| |A - B| |B^-1|; y* is kappa-Lipschitz, because g is
strongly convex. What comes out is a proof, for every problem, that a printed formula is large enough, or that this
derivation does not give it.

Block by block, (x, y*(x)) moves by 1 + kappa; jointly, where ell bounds the whole Hessian of g, by kappa alone
(``stacked``). Then the Hessian of Phi is Z'HZ with Z = (I, dy/dx) and H the Hessian of the Lagrangian f - v'grad_y g.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import sympy as sp

from bilevel_sym import Constants
from bilevel_sym.theories import Reading


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


@lru_cache(2)
def _constants(reading: Reading = "block") -> Constants:
    """The constants as positive symbols; ell >= mu is not used, so it is not asked for."""
    symbolic = object.__new__(Constants)
    for name in ("mu", "ell", "rho", "nu", "M"):
        object.__setattr__(symbolic, name, sp.Symbol(name, positive=True))
    object.__setattr__(symbolic, "sigma", None)
    object.__setattr__(symbolic, "reading", reading)
    return symbolic


def derived(reading: Reading = "block") -> Mapping[str, Sized]:
    """The quantities of Appendix A and B.1 by name, each with the bounds that the calculus gives.

    >>> derived()["dy_dx"].norm
    ell/mu
    >>> sp.factor(derived()["dy_dx"].lipschitz)
    rho*(ell + mu)**2/mu**3
    >>> sp.factor(derived("joint")["hess"].norm)
    ell**2*(M*rho + ell*mu)/mu**3
    """
    return _block() if reading == "block" else _joint()


@lru_cache(1)
def _block() -> Mapping[str, Sized]:
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


@lru_cache(1)
def _joint() -> Mapping[str, Sized]:
    c: Any = _constants("joint")
    moves = stacked()
    first, second, third = Sized(c.M, c.ell * moves), Sized(c.ell, c.rho * moves), Sized(c.rho, c.nu * moves)
    inverse = Sized(1 / c.mu, c.rho * moves / c.mu**2)
    curvature = third.norm * moves**2 / c.mu  # d2y_dx2 = -g_yy^-1 D^2(grad_y g)[Z, Z]
    Z, v = Sized(moves, curvature), inverse * first
    lagrangian = second + v * third
    # g = -f: the Hessian of f maps Z to (Hess Phi, 0), so that no derivative of Z is left in that of Z' f_zz Z
    minimax = Sized(second.norm * moves, c.rho * moves**3)
    return MappingProxyType({"Z": Z, "v": v, "grad": Z * first, "hess": Z * lagrangian * Z, "minimax hess": minimax})


def stacked() -> sp.Expr:
    """kappa, as a bound of |Z| for Z = (I, dy/dx) where ell bounds the whole Hessian of g.

    For a unit vector a let t = |(dy/dx)'a| and let c >= mu be the curvature of g in y along it. Two entries of the
    column of the Hessian that belongs to that direction are -c t and c (g_xy + (dy/dx) g_yy = 0), so that ell^2 - c^2
    (1 + t^2) is not negative; nor is c^2 - mu^2. An identity makes kappa^2 - |Za|^2 of the two.

    >>> stacked()
    ell/mu
    """
    constants: Any = _constants("joint")
    c, t = sp.symbols("c t", positive=True)
    column, curvature = constants.ell**2 - c**2 * (1 + t**2), c**2 - constants.mu**2
    gap = constants.kappa**2 - (1 + t**2) - (column + curvature * (1 + t**2)) / constants.mu**2
    if sp.expand(gap) != 0:
        raise ArithmeticError(f"the identity is off by {gap}")
    return constants.kappa


def follows(formula: Callable[[Constants], Any], bound: sp.Expr, *, reading: Reading = "block") -> bool:
    """Whether the formula is at least the bound for all constants: their difference has no negative coefficient.

    >>> follows(lambda c: c.L_phi(), derived()["hess"].norm)
    True
    >>> follows(lambda c: c.L_phi(variant="printed"), derived()["hess"].norm)
    False
    >>> follows(lambda c: c.L_phi(variant="sharp"), derived("joint")["hess"].norm, reading="joint")
    True
    """
    gap = sp.expand(formula(_constants(reading)) - bound)
    return all(term.as_coeff_Mul()[0] >= 0 for term in sp.Add.make_args(gap))
