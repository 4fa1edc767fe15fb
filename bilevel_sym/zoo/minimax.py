"""Minimax problems in which the notions of optimality part ways."""

from __future__ import annotations

import sympy as sp

from bilevel_sym.problem.problem import MinimaxProblem
from bilevel_sym.zoo.entry import Example, KnownPoint, entry, exact_constants

__all__ = ["minimax_degenerate", "minimax_nash", "minimax_not_nash", "minimax_wells"]

_ORIGIN = (sp.Integer(0),)


@entry
def minimax_nash() -> Example:
    """A local minimax point that is also a local Nash equilibrium.

    f = x^2 + x y - y^2, hence y* = x/2 and Phi = 5 x^2/4; f_xx = 2 > 0 at the origin.

    Paper: Proposition 3.2 [pro:minimax]
    Reference: made for this package.

    >>> minimax_nash().phi
    5*x**2/4
    """
    x, y = sp.symbols("x y")
    box = {"x": (-1, 1), "y": (-1, 1)}
    return Example(
        problem=MinimaxProblem(x**2 + x * y - y**2, x, y, box=box, name="minimax_nash"),
        y_star=(x / 2,),
        phi=5 * x**2 / 4,
        stationary_points=(KnownPoint(_ORIGIN, "local minimum"),),
        all_stationary=True,
        constants=exact_constants(mu=2, ell=2, rho=0, nu=0, M=3),
    )


@entry
def minimax_not_nash() -> Example:
    """A local minimax point that is not a local Nash equilibrium.

    f = -x^2 + 4 x y - y^2, hence y* = 2 x and Phi = 3 x^2: a minimum of Phi although f_xx = -2 < 0.

    Paper: Proposition 3.4 [lem:equivalence]
    Reference: C. Jin, P. Netrapalli and M. Jordan, What is local optimality in nonconvex-nonconcave
    minimax optimization?, ICML 2020.

    >>> minimax_not_nash().phi
    3*x**2
    """
    x, y = sp.symbols("x y")
    box = {"x": (-1, 1), "y": (-2, 2)}
    return Example(
        problem=MinimaxProblem(-(x**2) + 4 * x * y - y**2, x, y, box=box, name="minimax_not_nash"),
        reference="Jin, Netrapalli and Jordan, ICML 2020: local minimax points.",
        y_star=(2 * x,),
        phi=3 * x**2,
        stationary_points=(KnownPoint(_ORIGIN, "local minimum"),),
        all_stationary=True,
        constants=exact_constants(mu=2, ell=4, rho=0, nu=0, M=10),
    )


@entry
def minimax_degenerate() -> Example:
    """A minimum of Phi that no second derivative can prove.

    f = x^4 - y^2/2, hence y* = 0 and Phi = x^4, whose Hessian at the minimum is zero.

    Reference: made for this package.

    >>> minimax_degenerate().stationary_points[0].kind
    'degenerate'
    """
    x, y = sp.symbols("x y")
    box = {"x": (-1, 1), "y": (-1, 1)}
    return Example(
        problem=MinimaxProblem(x**4 - y**2 / 2, x, y, box=box, name="minimax_degenerate"),
        y_star=(sp.Integer(0),),
        phi=x**4,
        stationary_points=(KnownPoint(_ORIGIN, "degenerate"),),
        all_stationary=True,
        constants=exact_constants(mu=1, ell=12, rho=24, nu=0, M=4),
    )


@entry
def minimax_wells() -> Example:
    """A saddle point of Phi between two wells, each of them a local minimax point.

    f = x1^4/4 - x1^2 + x2^2/2 + x1 y - y^2/2, hence y* = x1 and Phi = x1^4/4 - x1^2/2 + x2^2/2. GDmax that starts at
    the origin, or anywhere on x1 = 0, ends there; perturbed GDmax does not.

    Paper: Theorem 3.7 [thm:minimax]
    Reference: made for this package.

    >>> minimax_wells().phi
    x1**4/4 - x1**2/2 + x2**2/2
    """
    x1, x2, y = sp.symbols("x1 x2 y")
    f = x1**4 / 4 - x1**2 + x2**2 / 2 + x1 * y - y**2 / 2
    box = {"x1": ("-3/2", "3/2"), "x2": (-1, 1), "y": (-2, 2)}
    wells = [KnownPoint((sp.Integer(side), sp.Integer(0)), "local minimum") for side in (-1, 1)]
    return Example(
        problem=MinimaxProblem(f, [x1, x2], [y], box=box, name="minimax_wells"),
        y_star=(x1,),
        phi=x1**4 / 4 - x1**2 / 2 + x2**2 / 2,
        stationary_points=(wells[0], KnownPoint((sp.Integer(0), sp.Integer(0)), "saddle"), wells[1]),
        all_stationary=True,
        constants=exact_constants(mu=1, ell=sp.Rational(19, 4), rho=9, nu=0, M=sp.Rational(7, 2)),
    )
