"""The functions that a tube is made of: the printed ones, and their extension to all of R^d."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import sympy as sp

from bilevel_sym.zoo.entry import require_positive

__all__ = ["TAU", "TubeShape"]

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
        if i == len(x):
            return self.bowls(x)
        return self.bowls(x[:i]) - self.gamma * x[i] ** 2 + self.walls(x[i + 1 :])

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
