"""``minimize``: one run of ``solve``, told in the words of ``scipy.optimize``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers.algorithm import Algorithm
from bilevel_sym.solvers.local_minimum import LocalMinimum
from bilevel_sym.solvers.noise import Seeds
from bilevel_sym.solvers.solution import Solution
from bilevel_sym.solvers.solving import EPS, arrival, solve
from bilevel_sym.typing import Floats

__all__ = ["Minimum", "minimize"]


@dataclass(frozen=True, repr=False)
class Minimum:
    """Where ``minimize`` ended. Its values are exact to round-off, at y*(x), never estimates; NaN if not to be had.

    - ``x``: the last point, (d,).
    - ``y``: y*(x), (n,).
    - ``fun``: Phi(x).
    - ``jac``: the gradient of Phi, (d,).
    - ``hess``: its Hessian, (d, d).
    - ``success``: whether x was checked to be an eps-local minimum, by ``jac`` and ``hess``.
    - ``message``: how the run ended.
    - ``nit``: how many moves it made.
    - ``solution``: the run itself, with its trajectory and its counters.

    >>> from bilevel_sym import BilevelProblem
    >>> found = minimize(BilevelProblem("(x + y - 2)**2", "(y - x)**2/2", "x", "y"))  # Phi = 4 (x - 1)^2
    >>> found.success, found.y.round(3), found.hess
    (True, array([1.]), array([[8.]]))
    >>> found
    <Minimum fun=1.48893e-08, |jac|=0.000488, reached an eps-local minimum (checked), 14 steps>
    """

    x: Floats
    y: Floats
    fun: float
    jac: Floats
    hess: Floats
    success: bool
    message: str
    nit: int
    solution: Solution

    def __repr__(self) -> str:
        steps = f"{self.nit} step{'' if self.nit == 1 else 's'}"
        return f"<Minimum fun={self.fun:.6g}, |jac|={np.linalg.norm(self.jac):.3g}, {self.message}, {steps}>"


def minimize(
    problem: BilevelProblem,
    x0: ArrayLike | None = None,
    *,
    y0: ArrayLike | None = None,
    algorithm: Algorithm | str | None = None,
    eps: float = EPS,
    steps: int = 1000,
    rng: Seeds = None,
) -> Minimum:
    """A local minimum of Phi from one start, as ``scipy.optimize.minimize`` would give it.

    - ``problem``: the problem.
    - ``x0``: the start, (d,); unless given the centre of the box, or 0 without one.
    - ``y0``: where the lower level begins, (n,), as for ``solve``.
    - ``algorithm``: as for ``solve``: one of yours, a name, or None for what suits the problem.
    - ``eps``: the accuracy of a local minimum (Definition 1.1), which decides ``success``.
    - ``steps``: the most moves.
    - ``rng``: a seed or a generator; 0 unless given.

    >>> from bilevel_sym import BilevelProblem
    >>> well = BilevelProblem("y**4/4 - x*y/2", "(y - x)**2/2", "x", "y")  # Phi = x^4/4 - x^2/2
    >>> found = minimize(well, [0.1], eps=1e-8)
    >>> found.x.round(6), round(found.fun, 6), found.success, found.message
    (array([1.]), -0.25, True, 'reached an eps-local minimum (checked)')
    """
    if x0 is not None and np.ndim(x0) > 1:
        raise InvalidArgument("minimize takes one start, (d,)", hint="solve(problem, x0=...), which takes (S, d)")
    given = algorithm is not None and not isinstance(algorithm, str)
    solution = solve(
        problem, algorithm, x0, y0=y0, steps=steps, rng=0 if rng is None else rng, eps=None if given else eps,
        stop=arrival(algorithm, eps) if given else None,
    )  # fmt: skip
    rule = LocalMinimum(eps, getattr(solution.schedule, "rho_phi", None))
    success = solution.status.ok and rule.holds(solution.kernels, solution.x, solution.y)
    return Minimum(*_exact(solution), success, solution.status.message, int(solution.steps), solution)


def _exact(solution: Solution) -> tuple[Floats, Floats, float, Floats, Floats]:
    """x, y*(x), Phi and its derivatives."""
    x, kernels = solution.x, solution.kernels
    try:
        y = kernels.y_star(x, y0=np.where(np.isfinite(solution.y), solution.y, 0.0))
        phi, grad, hess = kernels.expansion(x, y)
        return x, y, float(phi), grad, hess
    except BilevelError:  # the message says how the run came there
        d = len(x)
        return x, solution.y, np.nan, np.full(d, np.nan), np.full((d, d), np.nan)
