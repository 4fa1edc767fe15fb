"""The lemma on iNEON: parameters from constants, and descent that escapes by it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.theories.huang_saddle.constants import Constants
from bilevel_sym.theories.huang_saddle.schedules.aid import PRINTED_N, descent_iterations
from bilevel_sym.theories.huang_saddle.schedules.escape import NEON, Count, Escape, escape_of
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness, floats_of, goal_of, smoothness_of
from bilevel_sym.theories.huang_saddle.schedules.inner import aid_steps
from bilevel_sym.theories.huang_saddle.schedules.schedule import Schedule, common_fields, positive_accuracy, warn_about

if TYPE_CHECKING:
    from bilevel_sym.solvers import Descent, INeon

from bilevel_sym.theories import Variant

__all__ = ["INeonSchedule", "NeonEstimate", "curvature_step", "ineon", "neon_escape", "neon_estimate"]


@dataclass(frozen=True, slots=True)
class NeonEstimate:
    """What iNEON asks of its estimates, and the D and N of AID that give it."""

    accuracy: float
    accuracy_y: float
    D: int
    N: int


@dataclass(frozen=True, kw_only=True)
class INeonSchedule(Schedule):
    """The parameters of iNEON, and of descent that escapes by it.

    - ``accuracy_y``: bounds |y_D - y*|.
    - ``N``: the number of conjugate-gradient steps.
    - ``step``: how far x moves along the direction that iNEON finds.
    - ``decrease``: how much that lowers Phi.
    - The others: as for ``Schedule``.

    Paper: Lemma 4.1 [lem:neon]

    >>> schedule = ineon(Constants(mu=1, ell=1, rho=1, nu=1, M=1), eps=0.1, delta=0.1, d=2, gap=1e-9)
    >>> schedule.D, schedule.N, schedule.T_escape
    (1, 1, 86)
    """

    accuracy_y: float
    N: int
    step: float
    decrease: float

    def escape(self) -> INeon:
        """Algorithm 2 with these parameters: ``.escape().direction(problem, x)`` is the lemma's direction.

        >>> schedule = ineon(Constants(mu=1, ell=1, rho=1, nu=1, M=1), eps=0.1, delta=0.1, d=2, gap=1e-9)
        >>> schedule.escape().T_escape
        86
        """
        from bilevel_sym.estimators.hypergradient import AID

        return self._algorithm_2(AID(D=self.D, N=self.N, tau=self.tau), self.step)

    def algorithm(self) -> Descent:
        """Descent that hands every point with a small gradient to iNEON; plain where there is nothing to escape from.

        >>> schedule = ineon(Constants(mu=1, ell=1, rho=1, nu=1, M=1), eps=0.1, delta=0.1, d=2, gap=1e-9)
        >>> schedule.algorithm().escape == schedule.escape()
        True
        """
        from bilevel_sym.estimators.hypergradient import AID
        from bilevel_sym.solvers import Descent

        estimator = AID(D=self.D, N=self.N, tau=self.tau)
        return Descent(estimator, self.eta, escape=None if self.straightforward else self.escape())


def ineon(
    constants: Constants,
    goal: Goal | None = None,
    *,
    variant: Variant = "corrected",
    **fields: Any,
) -> INeonSchedule:
    """The parameters with which iNEON finds negative curvature sqrt(rho_phi eps)/(40 iota) at a saddle point.

    tau = 1/ell, eta = 1/L_phi, r = eps/(400 iota^3), T = iota/4 L_phi/sqrt(rho_phi eps),
    F = 1/(25 iota^3) sqrt(eps^3/rho_phi) and iota the smallest > 1 with
    delta/episodes > L_phi sqrt(d)/sqrt(rho_phi eps) iota^2 2^(8 - iota/4).

    K bounds the iterations of descent that steps sqrt(eps/rho_phi)/(40 iota) along such a direction, which lowers Phi
    by 1/(3 40^3 iota^3) sqrt(eps^3/rho_phi): the paper's argument for the stochastic case with the lemma's own
    curvature.

    - ``goal``: the lemma is about one call, and so is delta: without a ``Goal``, ``episodes`` is 1; ``episodes=None``
      is for as many calls as the gap allows.
    - The others: as for ``perturbed_aid``.

    Paper: Lemma 4.1 [lem:neon]; Equation 4.3 [eq:para_neon]; Equation 4.4 [eq:para_neon-2]
    Paper: Equation D.4 [eq:aid-ND-neon]
    Assumes: Assumption 2.1 [assu:bilevel] wherever the iterates go; at every call |y0 - y*| + |v0 - v*| is at most
    ``initial_error``; Phi bounded below.
    Deviation: the condition on iota prints ell and rho for L_phi and rho_phi, N a logarithm of a negative number
    (see ``aid_steps``). Consecutive points of iNEON are up to 2 eta times a hypergradient apart and the first is eta r
    from the saddle, while Gamma_1 has one hypergradient. The side of the step is chosen by estimated values, which may
    cost half of the decrease, so |y_D - y*| is asked to be that small too. ``variant="printed"`` takes the print.

    >>> schedule = ineon(Constants(mu=1, ell=2, rho=1, nu=1, M=1), eps=1, delta=0.1, d=2, gap=1e-9)
    >>> schedule.D, schedule.N
    (103, 20)
    """
    goal = goal_of(goal, fields if goal else {"episodes": 1} | fields)
    floats = floats_of(constants, Constants, variant)
    smoothness = smoothness_of(constants, variant)
    half = 1 if variant == "printed" else 2  # choosing the side by estimates may cost half of the decrease
    count = Count.of(goal, variant, fall=curvature_step(smoothness, goal, 1 / 40)[1] / half)
    escape = neon_escape(floats, smoothness, goal, variant, count)
    goal = count.settled(goal, escape.iota)
    step, decrease = curvature_step(smoothness, goal, 1 / (40 * escape.iota))
    estimate = neon_estimate(floats, smoothness, goal, escape, decrease=decrease, variant=variant)
    schedule = INeonSchedule(
        **common_fields(goal, smoothness, escape, variant),
        **asdict(estimate),
        tau=1 / floats.ell,
        step=step,
        decrease=decrease,
        K=descent_iterations(smoothness.L_phi, goal, escape, decrease=decrease / half, variant=variant),
    )
    others = [PRINTED_N] if variant == "printed" else []
    warn_about(schedule, escape, goal, gradient=floats.hypergradient_bound, others=others)
    return schedule


def neon_escape(
    constants: Constants, smoothness: Smoothness, goal: Goal, variant: Variant, count: Count | None = None
) -> Escape:
    """The scales of iNEON; as printed, iota comes from ell and rho.

    Paper: Equation 4.6 [iota-condition-2]

    >>> goal = Goal(eps=0.1, delta=0.1, d=2, initial_error=1.0, gap=1.0, episodes=1)
    >>> c = Constants(1.0, 2.0, 1.0, 1.0, 1.0)
    >>> scales = [neon_escape(c, Smoothness(27.0, 297.0), goal, variant) for variant in ("corrected", "printed")]
    >>> [round(scale.iota, 1) for scale in scales]
    [110.9, 112.4]
    """
    printed = None
    if variant == "printed":
        if not constants.rho > 0:
            raise InvalidArgument("the printed condition on iota divides by rho = 0", hint='variant="corrected"')
        printed = Smoothness(constants.ell, constants.rho)
    return escape_of(smoothness, goal, NEON, iota_from=printed, count=count)


def curvature_step(smoothness: Smoothness, goal: Goal, part: float) -> tuple[float, float]:
    """How far to go along a direction of curvature -part sqrt(rho_phi eps), and the decrease of Phi on one side.

    With c = part sqrt(rho_phi eps), step = c/rho_phi = part sqrt(eps/rho_phi) and decrease = c^3/(3 rho_phi^2) =
    part^3/3 sqrt(eps^3/rho_phi), because the mean of Phi at both ends of a step s is at most Phi - c s^2/2 + rho_phi
    s^3/6.

    Paper: Lemma D.6 [lem:saddle-decrease]; Equation D.51 [unlabelled:saddle-decrease-proof]

    >>> goal = Goal(eps=4.0, delta=0.1, d=2, initial_error=1.0, gap=1.0, episodes=1)
    >>> curvature_step(Smoothness(L_phi=1.0, rho_phi=1.0), goal, 0.5)
    (1.0, 0.3333333333333333)
    """
    length = math.sqrt(goal.eps) / math.sqrt(smoothness.rho_phi)
    return part * length, part**3 / 3 * goal.eps * length


def neon_estimate(
    constants: Constants,
    smoothness: Smoothness,
    goal: Goal,
    escape: Escape,
    *,
    decrease: float = math.inf,
    variant: Variant = "corrected",
) -> NeonEstimate:
    """The accuracies that iNEON asks for, and the smallest D and N that give them.

    |error| <= min(sqrt(17)/(40 iota^2), 1/(16 iota^2 2^(iota/4)), (9^(1/3) - 2)/(8 iota), 1/(750 iota^2)) eps and
    M |y_D - y*| <= min(eps^2/(750 iota^3 L_phi), decrease/4)

    Paper: Equation D.2 [eq:est-error-neon]; Equation D.4 [eq:aid-ND-neon]
    Deviation: see ``ineon``; ``decrease/4`` is ours, for choosing a side by estimated values.

    >>> goal = Goal(eps=0.1, delta=0.1, d=2, initial_error=1.0, gap=1.0, episodes=1)
    >>> c, smooth = Constants(1.0, 1.0, 1.0, 1.0, 1.0), Smoothness(8.0, 64.0)
    >>> neon_estimate(c, smooth, goal, escape_of(smooth, goal, NEON)).N
    1
    """
    eps, iota = goal.eps, escape.iota
    parts = (math.sqrt(17) / 40, 2.0 ** (-iota / 4) / 16, (9 ** (1 / 3) - 2) / 8 * iota, 1 / 750)
    accuracy = positive_accuracy(min(parts) / iota**2 * eps, iota)
    of_phi = eps**2 / (750 * iota**3 * smoothness.L_phi)
    bound, start = constants.hypergradient_bound, goal.initial_error
    if variant != "printed":
        of_phi = min(of_phi, decrease / 4)
        start += escape.eta * constants.drift * escape.r
        bound = 2 * (bound + accuracy)
    accuracy_y = positive_accuracy(of_phi, iota) / constants.M if constants.M > 0 else math.inf
    D, N = aid_steps(
        constants,
        eta=escape.eta,
        initial_error=start,
        gradient_bound=bound,
        accuracy=accuracy,
        accuracy_y=accuracy_y,
    )
    return NeonEstimate(accuracy, accuracy_y, D, N)
