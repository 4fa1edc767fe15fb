"""Is this point an eps-local minimum? Never said without a check."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bilevel_sym.certify.certificate import evaluate
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.estimators.checks import settle_positive
from bilevel_sym.estimators.status import Status
from bilevel_sym.kernels import Kernels
from bilevel_sym.solvers.algorithm import Ensemble, Move
from bilevel_sym.solvers.curvature import has_few_thirds, third_derivative
from bilevel_sym.solvers.ineon import INeon
from bilevel_sym.typing import Floats

EIGENVALUE_ROUNDING = 1e-12  # of an eigenvalue, relative to the norm of its matrix

__all__ = ["Curvature", "LocalMinimum", "confirm", "curvature_at"]


class Curvature(NamedTuple):
    """|grad Phi|, the smallest eigenvalue of Hess Phi, its norm, and the rho_phi that curvature is measured by."""

    grad_norm: float
    smallest_eigenvalue: float
    hess_norm: float
    rho_phi: float


@np.errstate(all="ignore")  # a norm may overflow far out: it is infinite then
def curvature_at(kernels: Kernels, x: Floats, y: Floats | None = None, rho_phi: float | None = None) -> Curvature:
    """What Definition 1.1 asks for at one point, exact to round-off.

    Without a given ``rho_phi`` the norm of the third derivative at the point stands for it, or where there are many
    variables a lower bound of that. Neither is above the true Lipschitz constant by more than the error of its
    computation, so the condition on the curvature is not weakened.

    >>> from bilevel_sym import BilevelProblem
    >>> kernels = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y").kernels  # Phi = x^2
    >>> curvature_at(kernels, np.array([0.5]))
    Curvature(grad_norm=1.0, smallest_eigenvalue=2.0, hess_norm=2.0, rho_phi=0.0)
    """
    y_star = kernels.y_star(x, y0=y)
    _, grad, hess = kernels.expansion(x, y_star)
    if rho_phi is None and not has_few_thirds(kernels.problem):
        rho_phi = third_derivative(kernels, x, y_star, grad)
    if rho_phi is None:
        third = kernels.third_phi(x, y0=y_star)
        # the norm over unit vectors lies between this spectral norm over sqrt(d) and the spectral norm
        rho_phi = float(np.linalg.norm(third.reshape(len(x), -1), 2)) / math.sqrt(len(x))
    eigenvalues = np.linalg.eigvalsh(hess)
    return Curvature(float(np.linalg.norm(grad)), float(eigenvalues[0]), float(np.abs(eigenvalues).max()), rho_phi)


def _smooth_at(kernels: Kernels, x: Floats) -> bool:
    """Whether Phi has no kink at the point: there derivatives are those of one side, and say nothing."""
    if not kernels.problem.has_kinks:
        return True
    try:
        evaluate(kernels.problem, x.tolist(), digits=6)
    except BilevelError:
        return False
    return True


def confirm(kernels: Kernels, ensemble: Ensemble, move: Move, eps: float, rho_phi: float | None) -> None:
    """Where iNEON claims a minimum and the exact gradient or Hessian disagrees, say only what iNEON found.

    - ``kernels``: those of the problem.
    - ``ensemble``: the trajectories that are running.
    - ``move``: what the algorithm found; its ``finished`` is changed.
    - ``eps``: the accuracy.
    - ``rho_phi``: the Lipschitz constant of Hess Phi, if known.
    """
    for lane in np.flatnonzero(move.finished[: ensemble.size] == Status.LOCAL_MINIMUM):
        x, y = (np.array(part[:, lane]) for part in (ensemble.x, ensemble.y))
        if not LocalMinimum(eps, rho_phi).holds(kernels, x, y):
            move.finished[lane] = Status.NO_CURVATURE


@dataclass(frozen=True)
class LocalMinimum:
    """A rule for ``solve(..., stop=...)``: end a trajectory at an eps-local minimum, and only there.

    The check: |grad Phi(x)| <= eps and the smallest eigenvalue of Hess Phi(x) >= -sqrt(rho_phi eps), from the exact
    gradient and Hessian; with ``by=INeon(...)``, as the paper does: iNEON finds no negative curvature. It is made
    where the estimate is at most 4/5 of eps, at first at once, then ever less often while it fails. A kink is never
    called a minimum: derivatives say nothing there.

    Paper: Definition 1.1 [def:local-min]

    >>> from bilevel_sym import AID, BilevelProblem, Descent, solve
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> solution = solve(problem, Descent(AID(D=1, N=1, tau=1.0), eta=0.25), [1.0], stop=LocalMinimum(eps=1e-3))
    >>> solution.status, int(solution.steps)
    (<Status.LOCAL_MINIMUM: 6>, 12)
    """

    eps: float
    rho_phi: float | None = None
    by: INeon | None = None

    def __post_init__(self) -> None:
        settle_positive(self, "eps")
        settle_positive(self, "rho_phi", optional=True)
        if self.by is not None and not isinstance(self.by, INeon):
            raise InvalidArgument(f"by must be an INeon, or None for the exact Hessian, but is {self.by!r}")

    def holds(self, kernels: Kernels, x: Floats, y: Floats | None = None, *, rng: int = 0) -> bool:
        """Whether the point passes the check; a point at which it cannot be made does not.

        - ``kernels``: those of the problem.
        - ``x``: the point, (d,).
        - ``y``: where the lower level begins, (n,), if that is known.
        - ``rng``: the seed of iNEON.
        """
        try:
            here = curvature_at(kernels, x, y, self.rho_phi)
            if self.by is not None:
                flat = here.grad_norm <= self.eps and not self.by.direction(kernels.problem, x, y0=y, rng=rng).any()
                return flat and _smooth_at(kernels, x)
        except BilevelError:
            return False
        # a zero eigenvalue comes out of the computation as a rounding error of either sign
        allowed = math.sqrt(here.rho_phi * self.eps) + EIGENVALUE_ROUNDING * here.hess_norm
        return here.grad_norm <= self.eps and here.smallest_eigenvalue >= -allowed and _smooth_at(kernels, x)
