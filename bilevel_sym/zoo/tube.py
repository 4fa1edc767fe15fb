"""The tube of Section 5: descent passes d saddle points, one by one, before the minimum.

The functions that a tube is made of: the printed ones, and their extension to all of R^d.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import sympy as sp

from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.zoo.entry import MOST_VARIABLES, Example, Kind, KnownPoint, entry, require_positive, require_range
from bilevel_sym.zoo.quadratic import eigenvalues_between, quadratic_form, with_spectrum

__all__ = ["TAU", "TubeShape", "tube", "tube_coupled", "tube_printed"]

TAU = sp.E
_Function = Callable[[sp.Expr], sp.Expr]


@dataclass(frozen=True)
class TubeShape:
    """The tube's curvatures L and gamma, and everything that follows from them.

    Pieces are counted from 0: i is the number of coordinates that are past 2 tau.

    >>> shape = TubeShape(sp.Integer(1), sp.Integer(1))
    >>> shape.nu
    25*exp(2)/3
    """

    L: sp.Rational
    gamma: sp.Rational

    def __post_init__(self) -> None:
        require_positive(L=self.L, gamma=self.gamma)

    @cached_property
    def nu(self) -> sp.Expr:
        """The drop from each saddle point to the next: nu = -h_1(2 tau) + 4 L tau^2."""
        return sp.expand(-self.h_1(2 * TAU) + 4 * self.L * TAU**2)

    def h_1(self, c: sp.Expr) -> sp.Expr:
        """The printed h_1, from -gamma c^2 at tau to L (c - 4 tau)^2 - nu at 2 tau."""
        cubic = (-14 * self.L + 10 * self.gamma) * (c - TAU) ** 3 / (3 * TAU)
        quartic = (5 * self.L - 3 * self.gamma) * (c - TAU) ** 4 / (2 * TAU**2)
        return -self.gamma * c**2 + cubic + quartic

    def h_2(self, c: sp.Expr) -> sp.Expr:
        """The printed h_2, from L at tau to -gamma at 2 tau."""
        u = c - 2 * TAU
        powers = 10 * u**3 / TAU**3 + 15 * u**4 / TAU**4 + 6 * u**5 / TAU**5
        return -self.gamma - (self.L + self.gamma) * powers

    def bowls(self, x: Sequence[sp.Symbol]) -> sp.Expr:
        """What coordinates past 2 tau add: sum L (x_j - 4 tau)^2 - nu."""
        return self.L * sp.Add(*((s - 4 * TAU) ** 2 for s in x)) - len(x) * self.nu

    def walls(self, x: Sequence[sp.Symbol]) -> sp.Expr:
        """What coordinates still below tau add: sum L x_j^2."""
        return self.L * sp.Add(*(s**2 for s in x))

    def first_piece(self, x: Sequence[sp.Symbol], i: int) -> sp.Expr:
        """The printed f_{i,1}: descent along x_i has just begun; for i = d, the minimum's bowl."""
        return self.bowls(x) if i == len(x) else self.bowls(x[:i]) - self.gamma * x[i] ** 2 + self.walls(x[i + 1 :])

    def second_piece(self, x: Sequence[sp.Symbol], i: int, y: sp.Expr) -> sp.Expr:
        """The printed f_{i,2}: the connector y leads from the i-th corner to the next."""
        return self.bowls(x[:i]) + y + self.walls(x[i + 2 :])

    def connector(self, x: Sequence[sp.Symbol], i: int) -> sp.Expr:
        """The printed g(x), which is y*, on the region of f_{i,2}."""
        bend = self.h_2(x[i]) * x[i + 1] ** 2 if i + 1 < len(x) else 0
        return self.h_1(x[i]) + bend

    def profile(self, x: sp.Symbol) -> sp.Expr:
        """A(|x|), the tube along one axis: -gamma c^2, h_1(c), L (c - 4 tau)^2 - nu."""
        return _mirrored(x, lambda c: -self.gamma * c**2, self.h_1, lambda c: self.bowls([c]))

    def value(self, x: Sequence[sp.Symbol]) -> sp.Expr:
        """T_1 on all of R^d, where T_i = A(|x_i|) + (1 - S_i) L sum_{j>i} x_j^2 + S_i T_{i+1}.

        Written for U_i = T_i - L sum_{j>=i} x_j^2, which satisfies U_i = A_i - L x_i^2 + S_i
        U_{i+1}: its size is linear in d.

        >>> x = sp.symbols("x1:3")
        >>> TubeShape(sp.Integer(1), sp.Integer(1)).value(x).subs({x[0]: 1, x[1]: 2})
        3
        """
        below = sp.Integer(0)
        for s in reversed(x):
            below = self.profile(s) - self.L * s**2 + _step(s) * below
        return self.walls(x) + below


def _step(x: sp.Symbol) -> sp.Expr:
    """S(|x|): 0 up to tau, 1 from 2 tau on, between them the quintic smoothstep; it is C^2."""

    def ramp(c: sp.Expr) -> sp.Expr:
        u = (c - TAU) / TAU
        return 10 * u**3 - 15 * u**4 + 6 * u**5

    return _mirrored(x, lambda c: sp.Integer(0), ramp, lambda c: sp.Integer(1))


def _mirrored(x: sp.Symbol, inside: _Function, ramp: _Function, outside: _Function) -> sp.Expr:
    """An even function in its five ranges: polynomial in each, so that no derivative meets |x|."""
    return sp.Piecewise(
        (outside(-x), x < -2 * TAU),
        (ramp(-x), x < -TAU),
        (inside(x), x <= TAU),
        (ramp(x), x <= 2 * TAU),
        (outside(x), True),
    )


_ZERO, _ONE, _TEN = sp.Integer(0), sp.Integer(1), sp.Integer(10)
_BOX_END = 17  # a little more than 6 tau
_REFERENCE = "Du et al., NeurIPS 2017; as a bilevel problem: the paper's Section 5."


@entry
def tube(*, d: int = 5, L: sp.Rational = _ONE, gamma: sp.Rational = _ONE) -> Example:
    """The tube on all of R^d: d saddle points, and one minimum, in the non-negative orthant.

    f = y and g = y^2/2 - T_1(x) y, hence y* = Phi = T_1, the printed Phi extended: with S the
    quintic smoothstep from |x_i| = tau to 2 tau, and A(c) = -gamma c^2, h_1(c), L (c - 4 tau)^2 -
    nu on the three ranges of c = |x_i|, T_i = A(|x_i|) + (1 - S_i) L sum_{j>i} x_j^2 + S_i
    T_{i+1}.

    Paper: Equation 5.2 [eq: tube_f]
    Deviation: the printed f, g and y* jump between the regions while Phi is C^2 (and not C^3);
    here all four are equally smooth. Most iterates leave the printed domain; this one has no
    boundary, and mirror images in each coordinate. (+-4 tau, ..., +-4 tau, 0, ..., 0) are all its
    stationary points: between tau and 2 tau, Phi falls along |x_1|, since A' < 0 and T_2 <= L
    sum_{j>1} x_j^2; below, x_1 and then all others must vanish; above, x_1 = +-4 tau, and Phi is
    T_2 - nu.
    Reference: S. Du, C. Jin, J. Lee, M. Jordan, A. Singh and B. Poczos, Gradient descent can take
    exponential time to escape saddle points, NeurIPS 2017.

    >>> example = tube(d=2)
    >>> [str(point) for point in example.stationary_points]
    ['(0, 0): saddle', '(4*E, 0): saddle', '(4*E, 4*E): local minimum']
    """
    require_range("d", d, 1, MOST_VARIABLES)
    shape, x, y = TubeShape(L, gamma), sp.symbols(f"x1:{d + 1}"), sp.Symbol("y")
    phi = shape.value(x)
    # y* = T_1 lies between -d nu, for A >= -nu, and L |x|^2, for A(c) <= L c^2
    lowest, highest = -d * math.ceil(shape.nu), d * math.ceil(L * _BOX_END**2)
    box = {s.name: (-_BOX_END, _BOX_END) for s in x} | {"y": (lowest, highest)}
    return Example(
        problem=BilevelProblem(y, y**2 / 2 - phi * y, x, y, box=box, name="tube"),
        reference=_REFERENCE,
        y_star=(phi,),
        phi=phi,
        stationary_points=_stationary_points(d),
    )


@entry
def tube_coupled(
    *,
    d: int = 3,
    kappa: sp.Rational = _TEN,
    L: sp.Rational = _ONE,
    gamma: sp.Rational = _ONE,
) -> Example:
    """The tube behind a coupled lower level, y* = x: here inexact inner loops matter.

    f = T_1(y) and g = (y - x)^T A (y - x)/2, A dense with condition number kappa, hence y* = x
    and Phi = T_1(x) as in ``tube``. There, one step of conjugate gradients is exact and the
    number of inner steps does not matter; here the error of y and that of the linear solve both
    enter the hypergradient.

    Paper: Equation 5.2 [eq: tube_f]
    Reference: made for this package, after Du et al., NeurIPS 2017.

    >>> example = tube_coupled(d=2, kappa=4)
    >>> example.y_star, example.problem.n
    ((x1, x2), 2)
    """
    require_range("d", d, 2, MOST_VARIABLES)
    shape, x, y = TubeShape(L, gamma), sp.symbols(f"x1:{d + 1}"), sp.symbols(f"y1:{d + 1}")
    turns = [(2, *(1,) * (d - 1)), (1, *(4,) * (d - 1))]  # these leave no zeros in A
    matrix = with_spectrum(eigenvalues_between(_ONE, kappa, d), turns)
    g = quadratic_form(matrix, [t - s for s, t in zip(x, y, strict=True)])
    box = {s.name: (-_BOX_END, _BOX_END) for s in (*x, *y)}
    return Example(
        problem=BilevelProblem(shape.value(y), g, x, y, box=box, name="tube_coupled"),
        reference=f"Made for this package, after {_REFERENCE}",
        y_star=x,
        phi=shape.value(x),
        stationary_points=_stationary_points(d),
    )


@entry
def tube_printed(
    *,
    d: int = 5,
    L: sp.Rational = _ONE,
    gamma: sp.Rational = _ONE,
) -> Example:
    """The tube as printed, region by region, and undefined outside the printed domain D_0.

    f_2 = y^2/2 - g(x) y with g = h_1(x_i) + h_2(x_i) x_{i+1}^2 where x_i is in [tau, 2 tau], and
    0 elsewhere in D_0. Where closed regions meet, Phi is the same from all sides, but f_1 and g
    are not: there the region with x_i in [0, tau], or with the larger i, is taken for both. The
    listed points are all the stationary ones in D_0, for h_1' < 0 and h_2' <= 0 on the connecting
    regions. The box lies in D_0; it holds the last saddle point and the minimum.

    Paper: Equation 5.2 [eq: tube_f]
    Deviation: none; Phi is C^2 in D_0, while f_1, f_2 and y* jump, so that Assumption 2.1
    [assu:bilevel] fails.
    Reference: Du et al., NeurIPS 2017.

    >>> example = tube_printed(d=2)
    >>> example.phi.subs({"x1": 1, "x2": 2}), example.phi.subs({"x1": 1, "x2": 3})
    (3, nan)
    """
    require_range("d", d, 1, MOST_VARIABLES)
    shape, x, y = TubeShape(L, gamma), sp.symbols(f"x1:{d + 1}"), sp.Symbol("y")
    first = [shape.first_piece(x, i) for i in range(d + 1)]
    h = [shape.connector(x, i) for i in range(d)]
    f = _by_region(x, first, [shape.second_piece(x, i, y) for i in range(d)])
    y_star = _by_region(x, [_ZERO] * (d + 1), h)
    box = {s.name: (6, 16) for s in x[:-1]} | {x[-1].name: (0, 16), "y": (-math.ceil(shape.nu), 1)}
    return Example(
        problem=BilevelProblem(f, y**2 / 2 - y_star * y, x, y, box=box, name="tube_printed"),
        reference=_REFERENCE,
        y_star=(y_star,),
        phi=_by_region(x, first, [shape.second_piece(x, i, h[i]) for i in range(d)]),
        stationary_points=_stationary_points(d),
        all_stationary=True,
    )


def _stationary_points(d: int) -> tuple[KnownPoint, ...]:
    """(4 tau, ..., 4 tau, 0, ..., 0), from no 4 tau to d of them."""
    points = ((4 * TAU,) * i + (_ZERO,) * (d - i) for i in range(d + 1))
    unstable: Kind = "saddle" if d > 1 else "local maximum"
    return tuple(KnownPoint(x, unstable if _ZERO in x else "local minimum") for x in points)


def _by_region(x: Sequence[sp.Symbol], first: Sequence[sp.Expr], second: Sequence[sp.Expr]) -> sp.Expr:
    """``first[i]`` and ``second[i]`` on the printed regions of f_{i,1} and f_{i,2}.

    Conditions are single inequalities, since problem files know no "and": hence the nesting.
    """
    value = first[-1]
    for i in reversed(range(len(x))):
        here = sp.Piecewise((first[i], x[i] <= TAU), (second[i], True))
        here = _only(here, (s <= TAU for s in x[i + 1 :]))
        value = sp.Piecewise((here, x[i] < 2 * TAU), (value, x[i] <= 6 * TAU))
    return _only(value, (s >= 0 for s in x))


def _only(value: sp.Expr, conditions: Iterable[sp.Basic]) -> sp.Expr:
    """The value where all conditions hold, and undefined elsewhere."""
    for condition in conditions:
        value = sp.Piecewise((value, condition))
    return value
