"""A problem in which Phi is as rough as the constants of the two levels allow."""

from __future__ import annotations

import sympy as sp

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.zoo.entry import Example, entry, exact_constants, require_positive

__all__ = ["block_extremal"]

_HALF, _THOUSANDTH = sp.Rational(1, 2), sp.Rational(1, 1000)
_ONE, _TWO, _THREE, _FIVE = sp.Integer(1), sp.Integer(2), sp.Integer(3), sp.Integer(5)
_Y_WIDTHS = 10  # the box is so many times as wide in y as in x


@entry
def block_extremal(
    *,
    mu: sp.Rational = _HALF,
    ell: sp.Rational = _TWO,
    rho: sp.Rational = _THREE,
    nu: sp.Rational = _FIVE,
    M: sp.Rational = _ONE,
    width: sp.Rational = _THOUSANDTH,
) -> Example:
    """Hess Phi and its slope reach the corrected L_phi and rho_phi, at a corner of the box.

    With s = x + y: f = M y + ell s^2/2 + rho s^3/6 and g = mu y^2/2 - ell x y - rho s^3/6 - nu s^4/24 over x in
    [-width, 0], y in [-10 width, 0]. Over this box the constants of the blocks are mu, ell, rho, nu and M, and all of
    them are reached at the corner (0, 0), which is on the curve y = y*(x). There dy/dx = kappa and v = M/mu, every
    derivative of the Lagrangian f - v g_y is at its bound with the sign that adds up, and so Phi'' = L_phi and Phi''' =
    rho_phi: for the default parameters 200 and 19625, where the printed rho_phi is 21425. Phi' = kappa M at the
    corner, and it is not zero in the box.

    Paper: Lemma A.2 [grad-Lipschitz]; Lemma 2.4 [hess-Lipschitz]
    Reference: made for this package.

    >>> example = block_extremal()
    >>> example.constants.L_phi(), example.constants.rho_phi(), example.constants.rho_phi(variant="printed")
    (200, 19625, 21425)
    """
    require_positive(mu=mu, ell=ell, rho=rho, nu=nu, M=M, width=width)
    constants = exact_constants(mu=mu, ell=ell, rho=rho, nu=nu, M=M)
    _require_corner(mu, ell, rho, nu, M, width)
    x, y = sp.symbols("x y")
    s = x + y
    f = M * y + ell * s**2 / 2 + rho * s**3 / 6
    g = mu * y**2 / 2 - ell * x * y - rho * s**3 / 6 - nu * s**4 / 24
    return Example(
        problem=BilevelProblem(f, g, x, y, box={"x": (-width, 0), "y": (-_Y_WIDTHS * width, 0)}, name="block_extremal"),
        stationary_points=(),
        all_stationary=True,
        constants=constants,
        notes={
            "corner": (sp.Integer(0),), "second_derivative": constants.L_phi(), "third_derivative": constants.rho_phi(),
        },
    )  # fmt: skip


def _require_corner(
    mu: sp.Rational, ell: sp.Rational, rho: sp.Rational, nu: sp.Rational, M: sp.Rational, width: sp.Rational
) -> None:
    """Refuse parameters for which a constant might be reached elsewhere than in the corner, or y* leave the box.

    Over the box, -t <= s <= 0 with t = 11 width. The third derivatives of g lie between -rho and rho while nu t <= 2
    rho; then g_yy is at least mu, and at most mu + rho t; g_xy rises from -ell by at most rho t; f_y falls from M by at
    most ell t; g_y is not negative at y = 0, and not positive at y = -10 width while ell <= 10 mu. Phi' is at least
    kappa M - L_phi width.
    """
    t = (_Y_WIDTHS + 1) * width
    slope = exact_constants(mu=mu, ell=ell, rho=rho, nu=nu, M=M).L_phi() * width
    conditions = (
        (nu * t <= 2 * rho, "nu*width is too large relative to rho"),
        (mu + rho * t <= ell, "mu + 11*rho*width must be at most ell"),
        (ell * t <= M, "ell*width is too large relative to M"),
        (ell <= _Y_WIDTHS * mu, f"ell must be at most {_Y_WIDTHS}*mu"),
        (slope < ell / mu * M, "Phi might be stationary in the box"),
    )
    for holds, complaint in conditions:
        if not holds:
            raise InvalidArgument(f"block_extremal: {complaint}", hint="a smaller width, or ell nearer to mu")
