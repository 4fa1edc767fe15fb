"""Problems with constants that are known by hand: saddle points to escape from, and lower levels of any condition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sympy as sp

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.problem.problem import BilevelProblem, MinimaxProblem
from bilevel_sym.theories.huang_saddle.constants import Constants, MinimaxConstants

__all__ = ["Curved", "SaddleFamily", "curvatures", "curved", "saddle_family"]

RADIUS = 1 / 6  # of the region in x: there the third derivative of w, 6 t, is at most 1


def curvatures(d: int, first: Any, last: Any) -> list[Any]:
    """d numbers, evenly from the first to the last; the first alone for d = 1.

    >>> curvatures(3, 1, sp.Rational(1, 2))
    [1, 3/4, 1/2]
    """
    return [first + (last - first) * sp.Rational(i, max(1, d - 1)) for i in range(d)]


@dataclass(frozen=True)
class SaddleFamily:
    """A problem with a strict saddle point of curvature -1 at 0, and its constants over |x_i| <= 1/6.

    - ``problem``: of d = n variables.
    - ``constants``: of the assumption.
    - ``L_phi``, ``rho_phi``: of Phi, far below their formulas in the constants.
    """

    problem: BilevelProblem
    constants: Constants | MinimaxConstants
    L_phi: float
    rho_phi: float


@lru_cache(16)
def saddle_family(method: str, kappa: int, d: int) -> SaddleFamily:
    """The saddle for perturbed AID, or for perturbed GDmax, with ell/mu = kappa for an even kappa of at least 2.

    With lambda_i evenly from 1 to 2/kappa, ell = 2 and w(t) = t^4/4 - t^2/2:
    AID: g = sum of lambda_i y_i^2/2 - x_i y_i and f = w(y_1) + (y_2^2 + ... + y_d^2)/2, so that
    Phi = w(x_1) + sum of (x_i/lambda_i)^2/2. GDmax: f = x_1^4/4 - 5 x_1^2/8 + sum of x_i y_i/2 - lambda_i y_i^2/2, so
    that Phi = w(x_1) + sum of x_i^2/(8 lambda_i).

    - ``method``: "AID" or "GDmax".
    - ``kappa``: the condition number.
    - ``d``: the number of variables of each level, from 2.

    >>> family = saddle_family("GDmax", 8, 2)
    >>> family.problem.kernels.hess_phi([0.0, 0.0]).diagonal()
    array([-1.,  1.])
    """
    if method not in ("AID", "GDmax") or kappa < 2 or d < 2:
        raise InvalidArgument(f"method={method!r:.20}, kappa={kappa}, d={d}", hint='"AID" or "GDmax", and 2 or more')
    x, y = sp.symbols(f"x1:{d + 1}"), sp.symbols(f"y1:{d + 1}")
    lam, mu = curvatures(d, sp.Integer(1), sp.Rational(2, kappa)), 2 / kappa
    quadratic = sum((a * b**2 / 2 for a, b in zip(lam, y, strict=True)), sp.Integer(0))
    if method == "GDmax":
        coupled = sum((a * b / 2 for a, b in zip(x, y, strict=True)), sp.Integer(0))
        minimax = MinimaxProblem(x[0] ** 4 / 4 - 5 * x[0] ** 2 / 8 + coupled - quadratic, x, y, name="saddle_minimax")
        return SaddleFamily(minimax, MinimaxConstants(mu, 2.0, 1.0, M_x=1.0), max(1.0, kappa / 8), 1.0)
    coupled = sum((a * b for a, b in zip(x, y, strict=True)), sp.Integer(0))
    others = sum((b**2 for b in y[1:]), sp.Integer(0)) / 2
    bilevel = BilevelProblem(y[0] ** 4 / 4 - y[0] ** 2 / 2 + others, quadratic - coupled, x, y, name="saddle_bilevel")
    M = RADIUS * kappa / 2 * math.sqrt(d)  # |f_y| <= |y*|, and |y*_i| <= RADIUS/lambda_i
    return SaddleFamily(bilevel, Constants(mu, 2.0, 1.0, 0.0, M), max(1.0, kappa**2 / 4), 1.0)


@dataclass(frozen=True)
class Curved:
    """A problem whose lower level is not quadratic, and its constants everywhere."""

    problem: BilevelProblem
    constants: Constants


@lru_cache(16)
def curved(kappa: int, n: int) -> Curved:
    """g = sum of lambda_i y_i^2/2 + softplus(y_i) - x_i y_i and f = sum of sin(y_i + i), d = n, i from 0.

    lambda_i from 3/4 down to 1/kappa; g_yy lies between 1/kappa and 1, g_xy = -I: ell = 1, mu = 1/kappa. Third and
    fourth derivatives of g and f are at most rho = nu = 1, and |f_y| at most sqrt(n).

    - ``kappa``: the condition number, from 2.
    - ``n``: the number of variables of each level.

    >>> curved(8, 3).constants.kappa
    8.0
    """
    x, y = sp.symbols(f"x1:{n + 1}"), sp.symbols(f"y1:{n + 1}")
    lam = curvatures(n, sp.Rational(3, 4), sp.Rational(1, kappa))
    g = sum(
        (c * b**2 / 2 + sp.log(1 + sp.exp(b)) - a * b for a, b, c in zip(x, y, lam, strict=True)), sp.Integer(0)
    )  # fmt: skip
    f = sum((sp.sin(b + k) for k, b in enumerate(y)), sp.Integer(0))
    return Curved(BilevelProblem(f, g, x, y, name="curved"), Constants(1 / kappa, 1.0, 1.0, 1.0, math.sqrt(n)))
