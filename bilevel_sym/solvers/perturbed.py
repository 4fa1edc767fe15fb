"""Algorithm 1: descent along an estimated hypergradient, with perturbations that escape saddle points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevel_sym.estimators.checks import settle_positive, settle_rounded_up
from bilevel_sym.estimators.hypergradient import Estimate, Estimator, require_estimator
from bilevel_sym.estimators.linear_system import dots
from bilevel_sym.kernels import Kernels
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers import noise
from bilevel_sym.solvers.algorithm import Ensemble, EstimatedRun, Forgetful, Move, Run
from bilevel_sym.solvers.auto import practical
from bilevel_sym.solvers.ineon import INeon, require_escape
from bilevel_sym.solvers.local_minimum import confirm
from bilevel_sym.typing import Floats

__all__ = ["STATIONARY_SHARE", "Descent", "Perturbed", "norms"]

STATIONARY_SHARE = 0.8  # an estimate below 4/5 of eps counts as stationary


def norms(table: Floats) -> Floats:
    """The Euclidean norm of each lane.

    >>> norms(np.array([[3.0], [4.0]]))
    array([5.])
    """
    return np.sqrt(dots(table, table))


@dataclass(frozen=True)
class Descent:
    """The unperturbed baseline ("BO"): x_(k+1) = x_k - eta grad_phi_hat(x_k).

    ``estimator`` gives grad_phi_hat: AID, ITD, Neumann, GDmax or Exact. ``eta`` is the step; 1/L_phi is safe.
    With ``escape=INeon(...)``, a point whose estimate is at most 4/5 of its eps is handed to iNEON: where that finds
    negative curvature x moves along it, and where it does not the trajectory ends: as an eps-local minimum if the
    exact gradient and Hessian agree.

    >>> from bilevel_sym import AID, BilevelProblem, solve
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> solve(problem, Descent(AID(D=1, N=1, tau=1.0), eta=0.25), [1.0], steps=2).x
    array([0.25])
    """

    estimator: Estimator
    eta: float
    escape: INeon | None = None

    def __post_init__(self) -> None:
        require_estimator(self.estimator)
        settle_positive(self, "eta")
        require_escape(self.escape)

    @classmethod
    def auto(cls, problem: BilevelProblem, smoothness: Any = None, **options: Any) -> Descent:
        """Practical parameters for a problem; see ``Perturbed.auto``.

        >>> from bilevel_sym import BilevelProblem
        >>> Descent.auto(BilevelProblem("x*y", "2*y**2 - x*y", "x", "y")).eta  # Phi = x^2/4
        1.0
        """
        p = practical(problem, smoothness, **options)
        return cls(p.estimator, p.eta)

    @property
    def eps(self) -> float | None:
        """The accuracy that the escape works to, if there is one."""
        return None if self.escape is None else self.escape.eps

    @property
    def rho_phi(self) -> float | None:
        """The Lipschitz constant of Hess Phi that the escape knows, if any."""
        return None if self.escape is None else self.escape.rho_phi

    def start(self, problem: BilevelProblem, kernels: Kernels) -> Run:
        """Set to work on a problem."""
        if self.escape is not None:
            self.escape.estimator.check(problem)
        return _DescentRun(self, problem, kernels)


class _DescentRun(Forgetful, EstimatedRun):
    def __init__(self, algorithm: Descent, problem: BilevelProblem, kernels: Kernels) -> None:
        super().__init__(algorithm.estimator, problem, kernels)
        self._algorithm = algorithm

    def move(self, ensemble: Ensemble, estimate: Estimate) -> Move:
        algorithm = self._algorithm
        x = ensemble.x - algorithm.eta * estimate.grad
        if algorithm.escape is None:
            return Move.to(x)
        flat = norms(estimate.grad) <= STATIONARY_SHARE * algorithm.escape.eps
        flat[ensemble.size :] = False
        # differences only make sense between estimates of one kind
        same = algorithm.escape.estimator == algorithm.estimator and not algorithm.escape.as_printed
        move = algorithm.escape.escape(self.oracle, ensemble, estimate if same else None, x, flat)
        confirm(self.kernels, ensemble, move, algorithm.escape.eps, algorithm.escape.rho_phi)
        return move


@dataclass(frozen=True)
class Perturbed:
    """Algorithm 1: where the estimate is at most 4/5 of eps, and the last perturbation is more than T_escape
    iterations ago, x moves by -eta u with u uniform in the ball of radius r; otherwise by -eta grad_phi_hat.

    With AID this is perturbed AID, with GDmax perturbed GDmax. ``auto`` chooses the numbers,
    ``schedules.perturbed_aid`` gives the theorem's.

    - ``estimator``: of the hypergradient.
    - ``eta``: the step; 1/L_phi is safe.
    - ``eps``: the accuracy asked for.
    - ``r``: the radius of a perturbation, before its factor eta.
    - ``T_escape``: iterations between two perturbations, at least; rounded up.
    - ``rho_phi``: the Lipschitz constant of Hess Phi, if known, by which ``stop="local minimum"`` measures curvature.
    - ``as_printed``: follow the printed lines; see below.

    Paper: Algorithm 1 [alg:perturbedalg], Lemma 2.9 [lem:escapesaddle]
    Paper: Algorithm 1, step 5 [unlabelled:algorithm-1-step-5]
    Deviation: a perturbation takes an iteration of its own, so that the descent that follows starts at the perturbed
    point with its own gradient, as the lemma has it, and the first one may come at k = 0. ``as_printed=True`` follows
    the printed lines: the gradient of before the perturbation is used in the same iteration, none is allowed while
    k <= T_escape, and the lower level takes D + 1 steps (t = 0, ..., D).

    >>> from bilevel_sym import AID, solve, zoo
    >>> saddle = zoo.get("saddle", d=2).problem
    >>> algorithm = Perturbed(AID(D=5, N=2, tau=0.5), eta=0.1, eps=0.1, r=0.1, T_escape=20)
    >>> solution = solve(saddle, algorithm, [0.0, 0.0], steps=60, rng=0)
    >>> bool(solution.trajectory.perturbed[0])
    True
    """

    estimator: Estimator
    eta: float
    eps: float
    r: float
    T_escape: int
    rho_phi: float | None = None
    as_printed: bool = False

    def __post_init__(self) -> None:
        require_estimator(self.estimator)
        settle_positive(self, "eta", "eps", "r")
        settle_positive(self, "rho_phi", optional=True)
        settle_rounded_up(self, "T_escape")

    @classmethod
    def auto(cls, problem: BilevelProblem, smoothness: Any = None, **options: Any) -> Perturbed:
        """Practical parameters for a problem, from a given Smoothness or from sampled curvature; nothing is proved.

        Options: ``eps`` (the accuracy, 1e-3), ``x0`` and ``radius`` (sample around x0 where the problem has no box),
        ``points`` (how many, 64), ``rng``.

        >>> from bilevel_sym import BilevelProblem
        >>> problem = BilevelProblem("x*y", "2*y**2 - x*y", "x", "y")  # Phi = x^2/4
        >>> Perturbed.auto(problem).eta
        1.0
        """
        p = practical(problem, smoothness, **options)
        return cls(p.estimator, p.eta, p.eps, p.r, p.T_escape, p.known_rho_phi)

    @property
    def estimates(self) -> Estimator:
        """The estimator as it is run."""
        return self.estimator.longer() if self.as_printed else self.estimator

    def start(self, problem: BilevelProblem, kernels: Kernels) -> Run:
        """Set to work on a problem."""
        return _PerturbedRun(self, problem, kernels)

    @property
    def clock(self) -> int:
        """k - k_perturb at the start: as printed 0; otherwise a perturbation may come at once."""
        return 0 if self.as_printed else self.T_escape + 1


class _PerturbedRun(Forgetful, EstimatedRun):
    """``ensemble.clock`` is k - k_perturb."""

    def __init__(self, algorithm: Perturbed, problem: BilevelProblem, kernels: Kernels) -> None:
        super().__init__(algorithm.estimates, problem, kernels)
        self._algorithm, self.clock = algorithm, algorithm.clock

    def move(self, ensemble: Ensemble, estimate: Estimate) -> Move:
        algorithm = self._algorithm
        perturbed = (norms(estimate.grad) <= STATIONARY_SHARE * algorithm.eps) & (ensemble.clock > algorithm.T_escape)
        perturbed[ensemble.size :] = False
        x = ensemble.x - algorithm.eta * estimate.grad
        for lane in np.flatnonzero(perturbed):
            u = noise.uniform_in_ball(ensemble.streams[ensemble.active[lane]], len(x), algorithm.r)
            x[:, lane] = (x if algorithm.as_printed else ensemble.x)[:, lane] - algorithm.eta * u
        ensemble.clock = np.where(perturbed, 1, ensemble.clock + 1)
        return Move.to(x, perturbed)
