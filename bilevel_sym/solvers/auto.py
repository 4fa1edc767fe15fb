"""Practical parameters, so that a newcomer need not know L_phi. Nothing here is proved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bilevel_sym.errors import AssumptionViolated, BilevelError, InvalidArgument, LowerLevelFailure
from bilevel_sym.estimators.checks import count, positive
from bilevel_sym.estimators.hypergradient import AID, Estimator, Exact, GDmax
from bilevel_sym.kernels import Kernels, compile_kernels
from bilevel_sym.kernels.arguments import joined
from bilevel_sym.problem.problem import BilevelProblem, MinimaxProblem
from bilevel_sym.solvers.curvature import Seen, has_few_thirds, look
from bilevel_sym.solvers.noise import Seeds, seeds_for
from bilevel_sym.typing import Floats

__all__ = ["MAX_ARRAY_STEPS", "MAX_INNER_STEPS", "Practical", "gradient_steps", "practical"]

SAMPLING_SAFETY = 2.0  # what was sampled is a lower bound
INNER_ACCURACY = 1e-4  # of the lower level and the linear system in one iteration; warm starts do the rest
MAX_INNER_STEPS = 500
MAX_ARRAY_STEPS = 50  # with arrays Newton's method, warm, costs about as many products as these and those for v
FLAT_CURVATURE_SHARE = 0.1  # the part of L_phi that counts as negative curvature where third derivatives vanish
NEGLIGIBLE_RHO_SHARE = 1e-4  # relative to that, third derivatives of no account
MAX_EIGENVALUES = 100  # lower-level variables up to which all eigenvalues of g_yy are looked at
FEW_POINTS = 4  # where there are more
REGION_PER_PERTURBATION = 100.0  # a perturbation is this part of the region in which the saddle's quadratic model holds


@dataclass(frozen=True)
class Practical:
    """What the practical parameters are made of: constants, measured or given, and an estimator to match.

    ``known_rho_phi`` is what a local minimum may be judged by: None where rho_phi was only sampled.
    """

    estimator: Estimator
    mu: float
    ell: float
    L_phi: float
    rho_phi: float
    eps: float
    d: int
    known_rho_phi: float | None = None

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
        return self.region / (REGION_PER_PERTURBATION * self.eta)

    @property
    def T_escape(self) -> int:
        """How long a perturbation takes to fill the region, growing by 1 + eta sqrt(rho_phi eps) a step."""
        growth = math.log1p(self.eta * math.sqrt(self.rho_phi * self.eps))
        return math.ceil(math.log(REGION_PER_PERTURBATION * math.sqrt(self.d)) / growth)

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
    """Constants that are given, or made from curvature sampled in the box, and an estimator to match.

    What was sampled is a lower bound, and is doubled; it sets steps, and is never what a local minimum is judged by.

    - ``problem``: the problem.
    - ``smoothness``: brackets ``L_phi`` and ``rho_phi``, as ``verify.smoothness`` has them.
    - ``eps``: the accuracy asked for.
    - ``x0``: the middle of the samples, where there is no box.
    - ``radius``: how far from x0 they lie.
    - ``points``: how many there are.
    - ``rng``: a seed or a generator.

    >>> from bilevel_sym import zoo
    >>> practical(zoo.get("saddle", d=2).problem).T_escape > 10
    True
    """
    positive("eps", eps)
    kernels = compile_kernels(problem)
    region = _region(problem, x0, positive("radius", radius))
    sample = _sample(kernels, region, count("points", points), rng)
    L_phi, rho_phi, known = sample.L_phi, sample.rho_phi, None
    if smoothness is not None:
        L_phi, rho_phi, known = _smoothness_constants(smoothness)
    # a step should not jump beyond what was sampled, however flat Phi looks there; a constant Phi takes any step
    L_phi = max(L_phi, sample.steepest / (2 * float(region.half.max()))) or 1.0
    # a quadratic Phi has no scale of its own: look for curvature of at least a part of L_phi
    scale = (FLAT_CURVATURE_SHARE * L_phi) ** 2 / eps
    rho_phi = rho_phi if rho_phi > NEGLIGIBLE_RHO_SHARE * scale else scale
    estimator = _estimator(problem, sample.mu, SAMPLING_SAFETY * sample.ell)
    return Practical(estimator, sample.mu, SAMPLING_SAFETY * sample.ell, L_phi, rho_phi, eps, problem.d, known)


def gradient_steps(problem: BilevelProblem, mu: float, ell: float) -> AID | GDmax:
    """AID, or GDmax for a minimax problem, with steps to match the condition number ell/mu.

    >>> gradient_steps(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), mu=1.0, ell=1.0)
    AID(D=1, N=1, tau=1.0)
    """
    kappa, tau = ell / mu, 1 / ell
    D = math.ceil(math.log(1 / INNER_ACCURACY) / -math.log1p(-1 / kappa)) if kappa > 1 else 1
    root = math.sqrt(kappa)
    N = math.ceil(math.log(2 * root / INNER_ACCURACY) / math.log((root + 1) / (root - 1))) if kappa > 1 else 1
    return GDmax(D, tau) if isinstance(problem, MinimaxProblem) else AID(D, min(N, problem.n), tau)


def _estimator(problem: BilevelProblem, mu: float, ell: float) -> Estimator:
    """Gradient steps; Newton's method where that would take too many."""
    found = gradient_steps(problem, mu, ell)
    products = found.D + (found.N if isinstance(found, AID) else 0)
    too_many = found.D > MAX_INNER_STEPS or (problem.is_array and products > MAX_ARRAY_STEPS)
    return Exact() if too_many else found


# ---- sampling -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Region:
    """A box in x: its centre and its half widths."""

    centre: Floats
    half: Floats


def _region(problem: BilevelProblem, x0: ArrayLike | None, radius: float) -> _Region:
    if (ends := problem.ends("x")) is not None:
        low, high = (np.array([float(pair[k]) for pair in ends]) for k in (0, 1))
        return _Region((low + high) / 2, (high - low) / 2)
    centre = np.zeros((1, problem.d)) if x0 is None else joined({"x0": (x0, problem.x_entries)})[0]
    if len(centre) != 1:
        raise InvalidArgument(f"x0 must be one point of shape ({problem.d},)")
    return _Region(centre[0], np.full(problem.d, radius))


@dataclass(frozen=True)
class _Sample:
    """The extremes of what was seen: curvature of g, slope and two orders of curvature of Phi."""

    mu: float
    ell: float
    steepest: float
    L_phi: float
    rho_phi: float


def _sample(kernels: Kernels, region: _Region, points: int, rng: Seeds) -> _Sample:
    """Points at which Phi is not defined are left out; at least one must remain."""
    d = len(region.centre)
    at, points = (_look, points) if _is_small(kernels.problem) else (look, min(points, FEW_POINTS))
    draws = np.random.default_rng(seeds_for(rng, 1)[0]).uniform(-1, 1, (points, d))
    seen = []
    reason: BilevelError | None = None
    kinked = 0  # points at which the minimiser lies on a kink: other points will not do either
    for x in region.centre + draws * region.half:
        try:
            seen.append(at(kernels, x))
        except BilevelError as error:
            reason, kinked = error, kinked + bool(getattr(error, "kink", ""))
            if not seen and kinked == FEW_POINTS:
                raise
    if not seen and reason is not None:
        raise AssumptionViolated(
            f"Phi could be evaluated at none of {points} sampled points", label="assu:bilevel", point={},
            value=reason.args[0].splitlines()[0], hint=_cure(kernels.problem, reason),
        )  # fmt: skip
    smallest, largest = (edge(axis=0) for edge in (np.array(seen).min, np.array(seen).max))
    return _Sample(smallest[0], largest[1], largest[2], SAMPLING_SAFETY * largest[3], SAMPLING_SAFETY * largest[4])


def _cure(problem: BilevelProblem, reason: BilevelError) -> str | None:
    """What to try: Newton's method starts at the centre of the box in y, if there is one."""
    if isinstance(reason, LowerLevelFailure) and np.isnan(reason.eigenvalue) and problem.ends("y") is None:
        return "a box with ends for y, and g defined at its centre: there the search for y* begins, without it at 0"
    return reason.hint


def _is_small(problem: BilevelProblem) -> bool:
    """Whether all derivatives are looked at; otherwise products of some with few vectors."""
    return has_few_thirds(problem) and problem.n <= MAX_EIGENVALUES


def _look(kernels: Kernels, x: Floats) -> Seen:
    y = kernels.y_star(x)
    curvature = np.linalg.eigvalsh(kernels.g_yy(x, y))
    _, grad, hess = kernels.expansion(x, y)
    third = kernels.third_phi(x, y0=y).reshape(len(x), -1)
    norms = (np.linalg.norm(grad), np.linalg.norm(hess, 2), np.linalg.norm(third, 2))
    return Seen(float(curvature[0]), float(curvature[-1]), *map(float, norms))


def _smoothness_constants(smoothness: Any) -> tuple[float, float, float | None]:
    """L_phi, rho_phi, and the rho_phi that curvature may be judged by: the lower end, where there are brackets."""
    try:
        L_phi, rho_phi = smoothness.L_phi, smoothness.rho_phi
    except AttributeError:
        raise InvalidArgument(
            f"smoothness={smoothness!r} has no L_phi and rho_phi", hint="verify.smoothness(problem)"
        ) from None
    known = float(getattr(rho_phi, "lower", rho_phi))
    upper_L, upper_rho = (getattr(value, "upper", value) for value in (L_phi, rho_phi))
    return positive("L_phi", upper_L), positive("rho_phi", upper_rho), known if known > 0 else None
