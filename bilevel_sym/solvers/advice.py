"""What to try where a run did not end as hoped: for people at a command line, who see one point and its curvature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bilevel_sym.errors import BilevelError
from bilevel_sym.estimators.hypergradient import Exact
from bilevel_sym.estimators.status import Status
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers.local_minimum import Curvature
from bilevel_sym.solvers.solution import Solution

__all__ = ["Advice"]

STAYING = ("descent", "stocbio")  # algorithms that do not leave a saddle point
MOST_TYPED = 8  # variables of a point that somebody types
NOT_CONVEX = (Status.BREAKDOWN, Status.LOWER_LEVEL_FAILURE)


@dataclass(frozen=True)
class Advice:
    """``asked`` is the algorithm that was asked for, ``suitable`` the one that is chosen where none is.

    >>> from bilevel_sym import Descent, Exact, solve, zoo
    >>> from bilevel_sym.solvers.local_minimum import curvature_at
    >>> problem = zoo.get("saddle", d=2).problem
    >>> stuck = solve(problem, Descent(Exact(), 0.1), [0.0, 0.0], steps=5)
    >>> advice = Advice(problem, "descent", "perturbed-aid", eps=1e-3)
    >>> for line in advice.lines(stuck, curvature_at(stuck.kernels, stuck.x)):
    ...     print(line)
    note: this is a strict saddle point, or a maximum: the gradient vanishes, and Phi curves downwards
    try: --algorithm perturbed-aid, which leaves such points; descent stays
    """

    problem: BilevelProblem
    asked: str | None
    suitable: str
    eps: float

    def lines(self, solution: Solution, here: Curvature | None) -> Iterator[str]:
        """Notes on a point, where the curvature is ``here`` if it could be computed; then what to try."""
        by_newton = isinstance(getattr(solution.schedule, "estimator", None), Exact)
        if self.asked is None and by_newton:
            yield "note: the lower level is solved by Newton's method: gradient steps would be too many, or failed"
        failed = [status for status in solution.statuses if not status.ok]
        if failed and (start := self._better_start(solution)):
            yield f'try: --y0 "{start}", where Newton\'s method finds y*: from where it began the lower level fails'
        elif failed:
            yield self._after_failure(failed, newton_tried=self.asked is None or by_newton)
        elif Status.OUT_OF_STEPS in solution.statuses:
            yield from self._out_of_steps(here)

    def _better_start(self, solution: Solution) -> str:
        """y* of a run that failed where it began, if the lower level has one there, and it can be typed."""
        if (
            np.ndim(solution.steps)
            or solution.steps
            or self.problem.n > MOST_TYPED
            or not np.isfinite(solution.x).all()
        ):
            return ""
        try:
            y = solution.kernels.y_star(solution.x)
        except BilevelError:
            return ""
        return ",".join(f"{s.name}={value:.6g}" for s, value in zip(self.problem.y_entries, y, strict=True))

    def _after_failure(self, failed: list[Status], *, newton_tried: bool) -> str:
        other = "" if newton_tried else "--algorithm perturbed-exact, as tau fits only the region sampled; or "
        if set(failed) == {Status.INACCURATE}:
            return "try: --estimator exact, or a larger --eps"
        if set(failed) <= set(NOT_CONVEX):
            return f"try: {other}another --x0, or a smaller --eta: g must be strongly convex in y wherever x goes"
        return f"try: {other}a smaller --eta; if that diverges too, Phi may fall without bound: has f a minimum?"

    def _out_of_steps(self, here: Curvature | None) -> Iterator[str]:
        if here is not None and self._is_saddle(here):
            yield "note: this is a strict saddle point, or a maximum: the gradient vanishes, and Phi curves downwards"
            if self.asked in STAYING:
                yield f"try: --algorithm {self.suitable}, which leaves such points; {self.asked} stays"
                return
        elif self.problem.has_kinks:
            yield "note: f or g has kinks (abs, min, max or Piecewise): the theory asks for none, and steps jump across"
            yield "try: a smaller --eta, or a smooth function in its place, such as softplus for max"
            return
        yield "try: more --steps, another --eta, or a larger --eps"

    def _is_saddle(self, here: Curvature) -> bool:
        return here.grad_norm <= self.eps and here.smallest_eigenvalue < -np.sqrt(here.rho_phi * self.eps)
