"""The theorem on stocBiO with iNEON: parameters and batch sizes from constants, and the solver that they configure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.estimators.checks import count
from bilevel_sym.solvers.stocbio import MAX_BATCH
from bilevel_sym.theories.huang_saddle.constants import Constants
from bilevel_sym.theories.huang_saddle.schedules import batches
from bilevel_sym.theories.huang_saddle.schedules.aid import PRINTED_N, episodes_bound
from bilevel_sym.theories.huang_saddle.schedules.escape import Count
from bilevel_sym.theories.huang_saddle.schedules.goal import (
    Goal,
    Smoothness,
    float_of,
    floats_of,
    goal_of,
    smoothness_of,
)
from bilevel_sym.theories.huang_saddle.schedules.inner import descent_rate, least_steps, sgd_rate
from bilevel_sym.theories.huang_saddle.schedules.neon import curvature_step, neon_escape, neon_estimate
from bilevel_sym.theories.huang_saddle.schedules.schedule import Schedule, common_fields, warn_about

if TYPE_CHECKING:
    from bilevel_sym.solvers import INeon, StocBiO

from bilevel_sym.theories import Variant

__all__ = ["StocBiOSchedule", "StocBiOSteps", "stocbio", "stocbio_steps"]

_TWO = Decimal(2)


@dataclass(frozen=True, slots=True)
class StocBiOSteps:
    """Depths and batch sizes with which a stocBiO step decreases Phi in expectation."""

    D: int
    Q: int
    S: int
    B: int
    batch_f: int
    batch_g: int


@dataclass(frozen=True, kw_only=True)
class StocBiOSchedule(Schedule):
    """The parameters of stocBiO with iNEON.

    - ``mu``: the strong convexity of g in y.
    - ``alpha``: the step size of SGD, of which there are D.
    - ``beta``: the outer step size.
    - ``eta_neumann``: the step of the Neumann series.
    - ``Q``: its terms.
    - ``S``: rows in a batch of SGD.
    - ``B``: what the batches of the Neumann series are made of.
    - ``batch_f``: rows of xi for the hypergradient, the gradient test and iNEON.
    - ``batch_g``: rows of zeta for the same.
    - ``D_aid``: lower-level steps of iNEON's AID.
    - ``N``: its conjugate-gradient steps.
    - ``accuracy_y``: bounds |y_D - y*| in it.
    - ``step``: how far x moves along iNEON's direction.
    - ``decrease``: how much that lowers Phi in expectation.
    - The others: as for ``Schedule``.

    Paper: Theorem 4.5 [thm:stocneon]

    >>> import warnings
    >>> c = Constants(mu=1, ell=1, rho=1, nu=1, M=0.25, sigma=0.25)
    >>> with warnings.catch_warnings(action="ignore"):  # batches that nobody can draw
    ...     schedule = stocbio(c, eps=1, delta=0.1, d=2, gap=1e-9)
    >>> schedule.D, schedule.Q, schedule.S
    (1, 1, 16608591305766)
    """

    mu: float
    alpha: float
    beta: float
    eta_neumann: float
    Q: int
    S: int
    B: int
    batch_f: int
    batch_g: int
    D_aid: int
    N: int
    accuracy_y: float
    step: float
    decrease: float

    @property
    def neumann_batches(self) -> tuple[int, ...]:
        """Batch sizes of the Neumann series in the order of application: B Q (1 - mu/ell)^(j - 1), j = 1, ..., Q.

        Paper: Theorem 4.5 [thm:stocneon]
        Deviation: rounded up.

        >>> import warnings
        >>> c = Constants(mu=1, ell=2, rho=1, nu=1, M=0.25, sigma=0.25)
        >>> with warnings.catch_warnings(action="ignore"):  # batches that nobody can draw
        ...     schedule = stocbio(c, eps=1, delta=0.1, d=2, gap=1e-9, variant="printed")
        >>> schedule.neumann_batches
        (3000, 1500, 750, 375, 188)
        """
        from bilevel_sym.solvers import neumann_batch_sizes

        return neumann_batch_sizes(self.B, self.Q, self.eta_neumann, self.mu)

    def escape(self) -> INeon:
        """Algorithm 2 as the escape step of Algorithm 3.

        >>> import warnings
        >>> c = Constants(mu=1, ell=1, rho=1, nu=1, M=0.25, sigma=0.25)
        >>> with warnings.catch_warnings(action="ignore"):  # batches that nobody can draw
        ...     schedule = stocbio(c, eps=1, delta=0.1, d=2, gap=1e-9)
        >>> schedule.escape().T_escape == schedule.T_escape
        True
        """
        from bilevel_sym.estimators.hypergradient import AID

        return self._algorithm_2(AID(D=self.D_aid, N=self.N, tau=self.tau), self.step)

    def algorithm(self) -> StocBiO:
        """Algorithm 3 with these parameters; without iNEON where there is nothing to escape from.

        >>> import warnings
        >>> c = Constants(mu=1, ell=1, rho=1, nu=1, M=0.25, sigma=0.25)
        >>> with warnings.catch_warnings(action="ignore"):  # batches that nobody can draw
        ...     schedule = stocbio(c, eps=1, delta=0.1, d=2, gap=1e-9)
        >>> schedule.algorithm().Q
        1
        """
        from bilevel_sym.solvers import StocBiO

        return StocBiO(
            self.D,
            self.Q,
            self.S,
            self.alpha,
            self.beta,
            self.eta_neumann,
            self.batch_f,
            self.batch_g,
            escape=None if self.straightforward else self.escape(),
            eps=self.eps,
            neumann_batches=self.neumann_batches,
            as_printed=self.variant == "printed",
        )


def stocbio(
    constants: Constants,
    goal: Goal | None = None,
    *,
    n: int | None = None,
    M_g: Any = None,
    variant: Variant = "corrected",
    **fields: Any,
) -> StocBiOSchedule:
    """The parameters with which stocBiO with iNEON visits an eps-local minimum within K iterations.

    alpha = 2/(ell + mu), beta = 1/(4 L_phi), eta_neumann = 1/ell; depths and batch sizes by ``stocbio_steps``,
    batches of f and g also so large that |grad Phi_batch - grad Phi| <= eps/10 and that
    |Hess Phi_batch - Hess Phi| <= sqrt(rho_phi eps)/(80 iota); iNEON as in ``ineon``;
    step = sqrt(eps/rho_phi)/(80 iota), which lowers Phi by F = sqrt(eps^3/rho_phi)/(3 80^3 iota^3) in expectation;
    K = 2 gap (T + 1)/F + 50 L_phi gap/eps^2.

    - ``constants``: bounds on f, g and their derivatives, with sigma.
    - ``n``: the dimension of y; the larger of d and n counts in the batch sizes.
    - ``M_g``: bounds samples of g_y; by default it is M.
    - The others: as for ``perturbed_aid``.

    The ``episodes`` of the goal are the loops in which the gradient test and iNEON must come out right: by default as
    many as the gap allows, 2 gap/F + 50 L_phi gap/eps^2.

    Paper: Theorem 4.5 [thm:stocneon]; Lemma D.4 [lem:batch-hess-err]; Lemma D.5 [lem:batch-grad-err]
    Paper: Lemma D.6 [lem:saddle-decrease]
    Assumes: Assumption 4.3 [ass:stoc], Assumption 4.4 [ass:variance-bound]; at every call of iNEON
    |y0 - y*| + |v0 - v*| is at most ``initial_error`` for the batch functions.
    Deviation: the Neumann step prints eta, which is 1/L_phi elsewhere; 1/ell is meant. The escape step lacks the
    factor 1/iota without which its lemma fails for iota > 3: -1/(2 80^3 iota) + 1/(6 80^3) is then positive. iNEON, the
    gradient and the Hessian share delta in equal parts. A loop that escapes makes a stocBiO step too, which the print
    allows to raise Phi by eps^2/(400 L_phi), far more than F; here by F/2 at most, and K counts on F/2. See also
    ``ineon``, ``hessian_terms`` and ``stocbio_steps``; ``variant="printed"`` takes the print.

    >>> import warnings
    >>> c = Constants(mu=1, ell=1, rho=1, nu=1, M=0.25, sigma=0.25)
    >>> with warnings.catch_warnings(action="ignore"):  # batches that nobody can draw
    ...     schedule = stocbio(c, eps=1, delta=0.1, d=2, gap=1e-9)
    >>> schedule.alpha, schedule.eta_neumann, schedule.B
    (1.0, 1.0, 8391709291334)
    """
    goal = goal_of(goal, fields)
    dimension = goal.d if n is None else max(goal.d, count("n", n))
    floats = floats_of(constants, Constants, variant)
    if floats.sigma is None:
        raise InvalidArgument(
            "stocbio needs sigma, the standard deviation of the gradient of G", hint="Constants(..., sigma=0.1)"
        )
    smoothness = smoothness_of(constants, variant)
    printed = variant == "printed"
    shared = goal if printed else replace(goal, delta=goal.delta / 3)
    large_gradients = 50 * smoothness.L_phi * (goal.gap / goal.eps / goal.eps)
    fall = curvature_step(smoothness, goal, 1 / 80)[1] / 2
    loops = Count.of(goal, variant, fall=fall, others=large_gradients)
    escape = neon_escape(floats, smoothness, shared, variant, loops)
    goal, shared = loops.settled(goal, escape.iota), loops.settled(shared, escape.iota)
    estimate = neon_estimate(floats, smoothness, goal, escape, variant=variant)
    step, decrease = curvature_step(smoothness, goal, 1 / (80 * escape.iota))
    net, rise = decrease / 2, decrease / 2
    if printed:
        step, net, rise = step * escape.iota, decrease, math.inf
    steps = stocbio_steps(floats, smoothness, goal, longest=0.0 if printed else step, rise=rise)
    bound_of_g = floats.M if M_g is None else float_of(M_g, "M_g")
    if bound_of_g < 0:
        raise InvalidArgument(f"M_g is a bound on a norm and cannot be {bound_of_g}", hint="a number, at least 0")
    batch_f, batch_g = _batches(
        (batches.gradient_terms(floats, bound_of_g), goal.eps / 60),
        (batches.hessian_terms(floats, bound_of_g, variant), smoothness.curvature(goal.eps) / (880 * escape.iota)),
        delta=shared.episode_delta,
        dimension=dimension,
        variant=variant,
    )
    schedule = StocBiOSchedule(
        **common_fields(goal, smoothness, escape, variant),
        tau=1 / floats.ell,
        accuracy=estimate.accuracy,
        accuracy_y=estimate.accuracy_y,
        D_aid=estimate.D,
        N=estimate.N,
        mu=floats.mu,
        alpha=2 / (floats.ell + floats.mu),
        beta=1 / (4 * smoothness.L_phi),
        eta_neumann=1 / floats.ell,
        **asdict(replace(steps, batch_f=max(steps.batch_f, batch_f), batch_g=max(steps.batch_g, batch_g))),
        step=step,
        decrease=decrease,
        K=episodes_bound(large_gradients, goal, escape, decrease=net, variant=variant),
    )
    others = [*([PRINTED_N] if printed else []), *_batches_out_of_reach(schedule)]
    warn_about(schedule, escape, goal, gradient=floats.hypergradient_bound, others=others)
    return schedule


def stocbio_steps(
    constants: Constants, smoothness: Smoothness, goal: Goal, *, longest: float = 0.0, rise: float = math.inf
) -> StocBiOSteps:
    """Depths and batch sizes for which E Phi(x_(k+1)) <= E Phi(x_k) - E|grad Phi|^2/(16 L_phi) + budget.

    The budget is min(eps^2/(400 L_phi), ``rise``). The proof's error is a sum of six terms, of which each gets a sixth
    of it. With beta = 1/(4 L_phi),
    c = ell + ell^2/mu + M rho/mu + ell M rho/mu^2 and q = (ell - mu)/(ell + mu) they are
    5 beta kappa^2 M^2 (1 - 1/kappa)^(2 Q), beta kappa^2 M^2/batch_g, beta (2 kappa^2 + 1/2) M^2/batch_f,
    4 beta kappa^2 M^2/B, 19/15 beta c^2 sigma^2/(ell mu S) and 19/15 beta c^2 w q^(2 D) with
    w = initial_error^2 + 4 kappa^2 move^2 + 4 sigma^2/(ell mu S) and move = max(beta (M + kappa M), ``longest``).
    D also makes q^(2 D) <= 1/4, so that the warm-start distance stays bounded.

    Paper: Lemma D.7 [lem:stocbio-decrease]; Equation D.61 [unlabelled:stocbio-budget]; Claim [unlabelled:stocbio-D]
    Assumes: Assumption 4.3 [ass:stoc], Assumption 4.4 [ass:variance-bound], constants as floats, eta_neumann = 1/ell.
    Deviation: the print gives orders only. It has L for ell and M tau/mu for M rho/mu in c, drops beta^2 in w, and
    bounds D by a logarithm of (1 - kappa)/(1 + kappa), which is negative. Its 5/4 rests on a mean square error with
    c^2 where 16/15 c^2 is needed [le:variancc], which makes it 19/15. ``longest`` covers the steps along iNEON's
    direction. ``rise`` is F/2, where F is what such a step gains: the erratum on Case 2 of the theorem.

    >>> goal = Goal(eps=0.1, delta=0.1, d=2, initial_error=1.0, gap=1.0, episodes=1)
    >>> stocbio_steps(Constants(1.0, 2.0, 1.0, 1.0, 1.0, sigma=1.0), Smoothness(27.0, 297.0), goal)
    StocBiOSteps(D=8, Q=11, S=3078000, B=960000, batch_f=510000, batch_g=240000)
    """
    mu, ell, rho, M, sigma = constants.mu, constants.ell, constants.rho, constants.M, constants.sigma
    kappa = constants.kappa
    eps = min(goal.eps, math.sqrt(400 * smoothness.L_phi * rise))  # as if this were asked for: eps^2/(400 L_phi)
    of_y = ell + ell**2 / mu + M * rho / mu + ell * M * rho / mu**2
    move = max(constants.hypergradient_bound / (4 * smoothness.L_phi), longest)
    S = batches.whole_size(760 * batches.squared(of_y * sigma / eps) / (ell * mu))
    start = goal.initial_error**2 + 4 * batches.squared(kappa * move) + 4 * sigma**2 / (ell * mu * S)
    keeps = sgd_rate(mu, ell)
    return StocBiOSteps(
        D=max(
            least_steps(760 * batches.squared(of_y) * start, eps**2, keeps, per_step=_TWO),
            least_steps(1.0, 0.25, keeps, per_step=_TWO),
        ),
        Q=least_steps(3000 * batches.squared(kappa * M), eps**2, descent_rate(mu, ell), per_step=_TWO),
        S=S,
        B=batches.whole_size(2400 * batches.squared(kappa * M / eps)),
        batch_f=batches.whole_size((1200 * kappa**2 + 300) * batches.squared(M / eps)),
        batch_g=batches.whole_size(600 * batches.squared(kappa * M / eps)),
    )


def _batches(*groups: tuple[tuple[batches.Term, ...], float], **common: Any) -> tuple[int, int]:
    """The larger sizes of several groups of terms, each with what one of its terms may be."""
    sizes = [batches.batch_sizes(terms, each=each, **common) for terms, each in groups]
    return max(of_f for of_f, _ in sizes), max(of_g for _, of_g in sizes)


def _batches_out_of_reach(schedule: StocBiOSchedule) -> Iterator[str]:
    sizes = {
        "S": schedule.S,
        "B Q": schedule.B * schedule.Q,
        "batch_f": schedule.batch_f,
        "batch_g": schedule.batch_g,
    }
    large = {name: size for name, size in sizes.items() if size > MAX_BATCH}
    if large:
        listed = ", ".join(f"{name} = {size:.3g}" for name, size in large.items())
        yield f"batches cannot be drawn: {listed} samples. Try a larger eps (now {schedule.eps:.3g})"
