"""Errata of Ji, Yang and Liang's constants, each with a witness."""

from __future__ import annotations

from typing import Any

import sympy as sp

from bilevel_sym import BilevelProblem, derive
from bilevel_sym.theories.ji2021.constants import RateConstants
from bilevel_sym.theories.ji2021.paper import STATEMENTS
from verify.erratum import erratum

__all__ = ["smoothness_constant"]


@erratum(
    "ji2021:lem-smooth",
    printed="L_phi has the summand tau M^2/mu",
    corrected="L_phi has the summand tau M/mu",
    forms=(lambda c: c.L_phi(variant="printed"), lambda c: c.L_phi()),
    witness="f = y/2, g = y^2/2 + x y + 40 d^3 sin((y - x)/d) near 0, d -> 0: |Phi''| reaches 80, and mu, L -> 1",
    why="v* = g_yy^-1 f_y is at most M/mu, and it stands before the change of g_xy, which is at most tau (1 + kappa). "
    "Both levels times c make every constant and Phi c times as large, and the printed summand c^2 times. The witness "
    "bounds the blocks of derivatives one by one.",
    statements=STATEMENTS,
)
def smoothness_constant(form: Any) -> bool:
    """L_phi is homogeneous in the two levels, and at least the |Phi''| of the witness, in exact arithmetic."""
    values = {"mu": sp.Rational(1, 2), "L": 2, "M": 3, "tau": 5, "rho": 7}
    one, many = (form(RateConstants(**{name: k * value for name, value in values.items()})) for k in (1, 9))
    return bool(many == 9 * one) and bool(form(_limit()) >= _curvature())


def _limit() -> RateConstants:
    """The constants of the witness as d -> 0; g's third derivatives are 40 cos, f_y is 1/2."""
    return RateConstants(mu=sp.Integer(1), L=sp.Integer(1), M=sp.Rational(1, 2), tau=sp.Integer(40), rho=sp.Integer(40))


def _curvature() -> Any:
    """|Phi''| where y = x, as d -> 0, from the formula for Phi'' with the witness itself put in."""
    x, y, d = sp.symbols("x y d", positive=True)
    problem = BilevelProblem(y / 2, y**2 / 2 + x * y + 40 * d**3 * sp.sin((y - x) / d), x, y, parameters={d: None})
    return abs(sp.limit(derive(problem, closed_form=False).hess_phi[0, 0].subs(y, x), d, 0))
