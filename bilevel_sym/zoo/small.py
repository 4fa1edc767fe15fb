"""Small problems that can be worked out by hand."""

from __future__ import annotations

import sympy as sp

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.zoo.entry import Example, KnownPoint, entry, exact_constants, require_positive, require_range

__all__ = ["implicit_cubic", "lphi_witness", "saddle", "scalar"]

_WITNESS_RHO = sp.Integer(40)
_WITNESS_DELTA = sp.Rational(1, 10**6)


@entry
def scalar() -> Example:
    """One variable on each level, all of it in closed form.

    f = x y + y and g = (1 + x^2) y^2/2 - x y, hence y* = x/(1 + x^2) and Phi = (x^2 + x)/(1 +
    x^2), with a local maximum at 1 + sqrt(2) and a local minimum at 1 - sqrt(2).

    Reference: made for this package.

    >>> scalar().phi
    (x**2 + x)/(x**2 + 1)
    """
    x, y = sp.symbols("x y")
    curvature = 1 + x**2
    f, g = x * y + y, curvature * y**2 / 2 - x * y
    box = {"x": (-3, 3), "y": (-1, 1)}
    highest, lowest = 1 + sp.sqrt(2), 1 - sp.sqrt(2)
    return Example(
        problem=BilevelProblem(f, g, x, y, box=box, name="scalar"),
        y_star=(x / curvature,),
        phi=(x**2 + x) / curvature,
        stationary_points=(
            KnownPoint((highest,), "local maximum"),
            KnownPoint((lowest,), "local minimum"),
        ),
        all_stationary=True,
        constants=exact_constants(mu=1, ell=10, rho=6, nu=2, M=4),
    )


@entry
def saddle(*, d: int = 2) -> Example:
    """A strict saddle between two minima, under a lower level that is not quadratic.

    g = sum_i y_i^2/2 + y_i^4/4 - x_i y_i and f = x_1 y_1/4 - 3 y_1^2/4 + sum_{i>1} x_i y_i/2,
    hence x_i = y_i + y_i^3 and Phi = y_1^4/4 - y_1^2/2 + sum_{i>1} (y_i^2 + y_i^4)/2 at y =
    y*(x). Since y* is a smooth change of variables, Phi is stationary where y_1 is 0, 1 or -1 and
    the others vanish: at x_1 = 0 (a saddle; for d = 1 a local maximum) and at x_1 = 2, -2
    (minima).

    Reference: made for this package.

    >>> example = saddle(d=1)
    >>> example.stationary_points[0].kind, example.y_star[0].subs("x1", 2).n(20)
    ('local maximum', 1.0000000000000000000)
    """
    require_range("d", d, 1, 500)
    x, y = sp.symbols(f"x1:{d + 1}"), sp.symbols(f"y1:{d + 1}")
    pairs = list(zip(x, y, strict=True))
    g = sp.Add(*(_cubic_lower_level(s, t) for s, t in pairs))
    f = x[0] * y[0] / 4 - 3 * y[0] ** 2 / 4 + sp.Add(*(s * t / 2 for s, t in pairs[1:]))
    box = {s.name: (-4, 4) for s in x} | {s.name: (-2, 2) for s in y}
    y_star = tuple(_cubic_root(s) for s in x)
    return Example(
        problem=BilevelProblem(f, g, x, y, box=box, name="saddle"),
        y_star=y_star,
        phi=y_star[0] ** 4 / 4 - y_star[0] ** 2 / 2 + sp.Add(*((t**2 + t**4) / 2 for t in y_star[1:])),
        stationary_points=_double_well_points(d),
        all_stationary=True,
        constants=exact_constants(mu=1, ell=13, rho=12, nu=6, M=sp.sqrt(16 + 4 * (d - 1))),
    )


@entry
def implicit_cubic() -> Example:
    """A lower level that a cubic equation solves: y + y^3 = x.

    f = x y - 6 y and g = y^2/2 + y^4/4 - x y, hence Phi = y^4 + y^2 - 6 y at y = y*(x): one
    minimum, at y = 1, that is x = 2.

    Reference: made for this package.

    >>> implicit_cubic().stationary_points[0].x
    (2,)
    """
    x, y = sp.symbols("x y")
    root = _cubic_root(x)
    box = {"x": (-4, 4), "y": (-2, 2)}
    return Example(
        problem=BilevelProblem(x * y - 6 * y, _cubic_lower_level(x, y), x, y, box=box, name="implicit_cubic"),
        y_star=(root,),
        phi=root**4 + root**2 - 6 * root,
        stationary_points=(KnownPoint((sp.Integer(2),), "local minimum"),),
        all_stationary=True,
        constants=exact_constants(mu=1, ell=13, rho=12, nu=6, M=10),
    )


@entry
def lphi_witness(*, rho: sp.Rational = _WITNESS_RHO, delta: sp.Rational = _WITNESS_DELTA) -> Example:
    """A curvature of Phi above the printed L_phi and below the corrected one.

    f = y/2 and g = y^2/2 + x y + rho delta^3 sin((y - x)/delta): the third derivatives of g reach
    rho while its Hessian hardly moves. With s = (y* - x)/delta, Phi'' = 2 rho cos(s)/(1 - rho
    delta sin(s))^3, which is 2 rho at x = y* = -rho delta^2/2 (the note ``witness``). For small
    delta the printed L_phi is near 4 + 7 rho/4, less than 2 rho once rho > 16; the corrected one
    is near 4 + 2 rho. Phi' is never zero.

    Paper: Lemma A.2 [grad-Lipschitz]
    Reference: made for this package.

    >>> example = lphi_witness()
    >>> for variant in ("printed", "corrected"):
    ...     print(example.constants.L_phi(variant=variant).n(6), example.notes["second_derivative"])
    74.0097 80
    84.0101 80
    """
    require_positive(rho=rho, delta=delta)
    slack = rho * delta
    if slack > sp.Rational(1, 5):
        raise InvalidArgument(f"rho*delta must be at most 1/5, but is {slack}", hint="a smaller delta")
    x, y = sp.symbols("x y")
    g = y**2 / 2 + x * y + rho * delta**3 * sp.sin((y - x) / delta)
    witness = -rho * delta**2 / 2
    box = {s: (witness - k * delta, witness + k * delta) for s, k in (("x", 2), ("y", 3))}
    return Example(
        problem=BilevelProblem(y / 2, g, x, y, box=box, name="lphi_witness"),
        stationary_points=(),
        all_stationary=True,
        constants=exact_constants(mu=1 - slack, ell=1 + slack, rho=rho, nu=rho / delta, M=sp.Rational(1, 2)),
        notes={"witness": (witness,), "second_derivative": 2 * rho},
    )


def _cubic_lower_level(x: sp.Symbol, y: sp.Symbol) -> sp.Expr:
    return y**2 / 2 + y**4 / 4 - x * y


def _cubic_root(x: sp.Expr) -> sp.Expr:
    """The real solution of y + y^3 = x by Cardano, u - 1/(3 u); u is positive for every real x."""
    u = sp.cbrt(x / 2 + sp.sqrt(x**2 / 4 + sp.Rational(1, 27)))
    return u - 1 / (3 * u)


def _double_well_points(d: int) -> tuple[KnownPoint, ...]:
    rest = (sp.Integer(0),) * (d - 1)
    middle = KnownPoint((sp.Integer(0), *rest), "saddle" if d > 1 else "local maximum")
    wells = (KnownPoint((sp.Integer(x), *rest), "local minimum") for x in (2, -2))
    return (middle, *wells)
