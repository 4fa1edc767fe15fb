"""What an engine computes at any number of points from its sessions: y*, v, dy_dx and the derivatives of Phi."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bilevel_sym.errors import LowerLevelFailure
from bilevel_sym.implicit import second_order as implicit
from bilevel_sym.implicit.engine import Expansion, Session, in_chunks, over_points
from bilevel_sym.implicit.lower_level import NEWTON, LowerSolution, solve_lower_level
from bilevel_sym.typing import Floats

__all__ = ["SessionEngine"]


class SessionEngine(ABC):
    """An engine whose formulas are made of dense blocks; see ``engine.Engine``."""

    name: str
    batch_invariant: bool
    single: bool = False

    @abstractmethod
    def session(self, names: Sequence[str], lanes: int) -> Session:
        """Lanes in which these blocks can be computed."""

    @abstractmethod
    def lanes(self, names: Sequence[str]) -> int:
        """How many lanes are best at a time."""

    def lower_level(self, x: Floats, y0: Floats) -> LowerSolution:
        """y*(x) for each row of x, by Newton's method from the rows of y0."""

        def chunk(rows: slice) -> tuple[Any, ...]:
            try:
                found = solve_lower_level(self, x[rows], y0[rows])
            except LowerLevelFailure as error:
                raise error.renamed((rows.start + error.member[0],)) from None
            return found.y, found.evaluations, found.products

        return LowerSolution(*in_chunks(len(x), self.lanes(NEWTON), chunk))

    def adjoint(self, xy: Floats) -> Floats:
        """v at rows (x, y), (points, n)."""
        return self._over(implicit.ADJOINT, xy, implicit.adjoint)

    def response(self, xy: Floats) -> Floats:
        """dy_dx at rows (x, y), (points, d, n)."""
        return self._over(implicit.RESPONSE, xy, implicit.response)

    def _over(self, names: tuple[str, ...], xy: Floats, formula: Callable[[Session, Floats], tuple[Floats]]) -> Floats:
        (result,) = over_points(self, names, xy, formula)
        found: Floats = result
        return found

    def gradient(self, xy: Floats) -> tuple[Floats, Floats]:
        """Phi and grad Phi at rows (x, y)."""
        formula = partial(implicit.gradient, batch_invariant=self.batch_invariant)
        phi, grad = over_points(self, implicit.GRADIENT, xy, formula)
        return phi, grad

    def expansion(self, xy: Floats) -> Expansion:
        """Phi, grad Phi and Hess Phi at rows (x, y)."""
        return implicit.expansion(self, xy)

    def third(self, xy: Floats, d: int) -> Floats:
        """The third derivatives of Phi at rows (x, y), (points, d, d, d)."""
        pairs = d * (d + 1) // 2

        def chunk(rows: slice) -> tuple[Floats]:
            lanes = len(xy[rows])
            session, wide = (self.session(implicit.THIRD, k) for k in (lanes, lanes * pairs))
            return (implicit.third(session, wide, xy[rows]),)

        (result,) = in_chunks(len(xy), max(1, self.lanes(implicit.THIRD) // pairs), chunk)
        found: Floats = result
        return found
