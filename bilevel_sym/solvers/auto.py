"""Practical parameters, so that a newcomer need not know L_phi. Nothing here is proved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bilevel_sym.checks import count, positive
from bilevel_sym.engine import Floats
from bilevel_sym.errors import AssumptionViolated, BilevelError, InvalidProblem
from bilevel_sym.hypergradient import AID, Estimator, GDmax
from bilevel_sym.kernels import Kernels, compile_kernels
from bilevel_sym.kernels.arguments import joined
from bilevel_sym.problem import BilevelProblem, MinimaxProblem
from bilevel_sym.solvers.noise import Seeds, seeds_for

__all__ = ["Practical", "practical"]

SAFETY = 2.0  # what was sampled is a lower bound
ACCURACY = 1e-4  # of the lower level and the linear system in one iteration; warm starts do the rest
MAX_INNER = 500
REACH = 100.0  # a perturbation is this part of the region in which the saddle's quadratic model holds


@dataclass(frozen=True)
class Practical:
    """What the practical parameters are made of: constants, measured or given, and an estimator to match."""

    estimator: Estimator
    mu: float
    ell: float
    L_phi: float
    rho_phi: float
    eps: float
    d: int

    @property
    def eta(self) -> float:
        """The step 1/L_phi."""
        return 1 / self.L_phi

    @property
    def region(self) -> float:
        """sqrt(eps/rho_phi): how far from a saddle point its quadratic model holds."""
        return math.sqrt(self.eps / self.rho_phi)

    @property
    def r(self) -> float:
        """A perturbation, eta r, is a hundredth of the region."""
        return self.region / (REACH * self.eta)

    @property
    def T_escape(self) -> int:
        """How long a perturbation takes to fill the region, growing by 1 + eta sqrt(rho_phi eps) a step."""
        growth = math.log1p(self.eta * math.sqrt(self.rho_phi * self.eps))
        return math.ceil(math.log(REACH * math.sqrt(self.d)) / growth)

    @property
    def F_escape(self) -> float:
        """A quarter of how far Phi falls from the saddle to the edge of its region."""
        return math.sqrt(self.eps**3 / self.rho_phi) / 8


def practical(
    problem: BilevelProblem,
    smoothness: Any = None,
    *,
    eps: float = 1e-3,
    x0: ArrayLike | None = None,
    radius: float = 1.0,
    points: int = 64,
    rng: Seeds = 0,
) -> Practical:
    """Constants from a given Smoothness (brackets ``L_phi`` and ``rho_phi``), or from curvature sampled in the box.

    Without a box, the samples lie within ``radius`` of x0. What was sampled is a lower bound, and is doubled.

    >>> from bilevel_sym import zoo
    >>> practical(zoo.get("saddle", d=2).problem).T_escape > 10
    True
    """
    positive("eps", eps)
    kernels = compile_kernels(problem)
    samples = _samples(problem, x0, positive("radius", radius), count("points", points), rng)
    x, y = _solvable(kernels, samples)
    eigenvalues = np.linalg.eigvalsh(kernels.g_yy(x, y))
    mu, ell = float(eigenvalues[:, 0].min()), SAFETY * float(eigenvalues[:, -1].max())
    L_phi, rho_phi = _measured(kernels, x, y) if smoothness is None else _given(smoothness)
    L_phi = L_phi or 1.0  # a constant Phi: any step will do
    rho_phi = rho_phi or L_phi**2 / eps  # a quadratic Phi has no scale of its own: one at which T_escape is shortest
    return Practical(_estimator(problem, mu, ell), mu, ell, L_phi, rho_phi, eps, problem.d)


def _estimator(problem: BilevelProblem, mu: float, ell: float) -> Estimator:
    kappa, tau = ell / mu, 1 / ell
    D = math.ceil(math.log(1 / ACCURACY) / -math.log1p(-1 / kappa)) if kappa > 1 else 1
    root = math.sqrt(kappa)
    N = math.ceil(math.log(2 * root / ACCURACY) / math.log((root + 1) / (root - 1))) if kappa > 1 else 1
    D, N = min(D, MAX_INNER), min(N, problem.n, MAX_INNER)
    return GDmax(D, tau) if isinstance(problem, MinimaxProblem) else AID(D, N, tau)


def _samples(problem: BilevelProblem, x0: ArrayLike | None, radius: float, points: int, rng: Seeds) -> Floats:
    draws = np.random.default_rng(seeds_for(rng, 1)[0]).uniform(-1, 1, (points, problem.d))
    if problem.box is not None and x0 is None:
        ends = dict(problem.box.items())
        low, high = (np.array([float(ends[s.name][k]) for s in problem.x]) for k in (0, 1))
        inside: Floats = (low + high) / 2 + draws * (high - low) / 2
        return inside
    centre = np.zeros((1, problem.d)) if x0 is None else joined({"x0": (x0, problem.d)})[0]
    if len(centre) != 1:
        raise InvalidProblem(f"x0 must be one point of shape ({problem.d},)")
    around: Floats = centre + radius * draws
    return around


def _solvable(kernels: Kernels, x: Floats) -> tuple[Floats, Floats]:
    """The points at which y* exists, and y* there."""
    kept = []
    for point in x:
        try:
            kept.append((point, kernels.y_star(point)))
        except BilevelError as error:
            reason = error
    if not kept:
        raise AssumptionViolated(
            f"the lower level could be solved at none of {len(x)} sampled points", label="assu:bilevel", point={},
            value=str(reason).splitlines()[0], hint="give x0 and radius, or a box",
        )  # fmt: skip
    return np.array([point for point, _ in kept]), np.array([y for _, y in kept])


def _measured(kernels: Kernels, x: Floats, y: Floats) -> tuple[float, float]:
    hess = kernels.hess_phi(x, y0=y)
    third = kernels.third_phi(x, y0=y)
    slope = np.linalg.norm(hess, 2, axis=(1, 2)).max()
    curve = max(float(np.linalg.norm(t.reshape(len(t), -1), 2)) for t in third)
    return SAFETY * float(slope), SAFETY * curve


def _given(smoothness: Any) -> tuple[float, float]:
    """From brackets, or from plain numbers."""
    try:
        upper = [getattr(value, "upper", value) for value in (smoothness.L_phi, smoothness.rho_phi)]
    except AttributeError:
        raise InvalidProblem(
            f"smoothness={smoothness!r} has no L_phi and rho_phi", hint="verify.smoothness(problem)"
        ) from None
    return positive("L_phi", upper[0]), positive("rho_phi", upper[1])
