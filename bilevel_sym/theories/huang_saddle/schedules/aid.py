"""The theorems on perturbed AID and GDmax: parameters from constants, and the solver that they configure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.constants import Constants, MinimaxConstants
from bilevel_sym.theories.huang_saddle.schedules.escape import PERTURBED, Count, Escape, escape_of
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness, floats_of, goal_of, smoothness_of
from bilevel_sym.theories.huang_saddle.schedules.inner import aid_steps, descent_rate, least_steps
from bilevel_sym.theories.huang_saddle.schedules.schedule import Schedule, common_fields, positive_accuracy, warn_about

if TYPE_CHECKING:
    from bilevel_sym.solvers import Descent, Perturbed

__all__ = ["PerturbedAIDSchedule", "PerturbedGDmaxSchedule", "perturbed_accuracy", "perturbed_aid", "perturbed_gdmax"]

PRINTED_N = (
    "the printed N divides by log((1 + sqrt(kappa))/(1 - sqrt(kappa))), the logarithm of a negative number "
    "(at kappa = 1 a division by zero); log((sqrt(kappa) + 1)/(sqrt(kappa) - 1)) is used in its place"
)
_HALF = Decimal("0.5")


@dataclass(frozen=True, kw_only=True)
class PerturbedAIDSchedule(Schedule):
    """The parameters of perturbed AID.

    - ``N``: the number of conjugate-gradient steps.
    - The others: as for ``Schedule``.

    Paper: Theorem 2.5 [thm:aid]

    >>> c = Constants(mu=1, ell=1, rho=1, nu=1, M=1)
    >>> schedule = perturbed_aid(c, eps=0.1, delta=0.1, d=2, gap=1e-6, episodes=1)
    >>> schedule.D, schedule.N, schedule.T_escape
    (1, 1, 72)
    """

    N: int

    def algorithm(self) -> Perturbed | Descent:
        """Algorithm 1 with these parameters; plain descent where there is nothing to escape from.

        >>> c = Constants(mu=1, ell=1, rho=1, nu=1, M=1)
        >>> type(perturbed_aid(c, eps=0.1, delta=0.1, d=2, gap=1e-6, episodes=1).algorithm()).__name__
        'Perturbed'
        """
        from bilevel_sym.estimators.hypergradient import AID

        return self._algorithm_1(AID(D=self.D, N=self.N, tau=self.tau))


def perturbed_aid(
    constants: Constants,
    goal: Goal | None = None,
    *,
    smoothness: Any = None,
    variant: Variant = "corrected",
    **fields: Any,
) -> PerturbedAIDSchedule:
    """The parameters with which perturbed AID visits an eps-local minimum within K iterations, but for delta.

    tau = 1/ell, eta = 1/L_phi, r = eps/(400 iota^3), T = iota L_phi/sqrt(rho_phi eps) and iota the smallest > 1 with
    delta/episodes >= L_phi sqrt(d)/sqrt(rho_phi eps) iota^2 2^(8 - iota); D and N the smallest with
    error <= min(sqrt(17)/(80 iota^2), 1/(16 iota^2 2^iota)) eps; K = 2 gap (T + 1)/F + 25 L_phi gap/(3 eps^2).

    - ``constants``: bounds on f, g and their derivatives.
    - ``goal``: what is asked for, or its fields as keywords.
    - ``smoothness``: as ``verify.smoothness(problem)`` has it, for smaller L_phi and rho_phi than the formulas in the
      constants give.
    - ``variant``: "corrected", "printed" or "sharp".
    - ``fields``: those of ``Goal``, in its place.

    The ``episodes`` of the goal succeed together with probability 1 - delta: by default 2 gap/F, as many as the gap
    allows, where F depends on iota and so iota on itself; ``episodes=1`` is for a single escape.

    Paper: Theorem 2.5 [thm:aid]; Equation 3.2 [eq:para_minimax]; Equation B.44 [eq:aid-ND]
    Assumes: Assumption 2.1 [assu:bilevel] wherever the iterates go; Phi bounded below.
    Deviation: N's logarithm (see ``aid_steps``). Gamma_1 bounds the estimate by M + ell M/mu, which holds for the exact
    hypergradient only, because v_N starts where the last iteration ended; here its error is added, and a perturbation
    may be longer. An episode takes T + 1 iterations, since the perturbation is one. The print takes the probability of
    one escape for that of all of them. Condition, T, D and N are rounded so that they hold. ``variant="printed"`` takes
    the printed constants, Gamma_1, K, and one episode.

    >>> c = Constants(mu=1, ell=2, rho=1, nu=1, M=1)
    >>> schedule = perturbed_aid(c, eps=0.1, delta=0.1, d=2, gap=1e-6, episodes=1)
    >>> schedule.D, schedule.N, round(schedule.iota, 2)
    (95, 18, 23.2)
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):  # 2e10 escapes take longer than a lifetime
    ...     whole = perturbed_aid(c, eps=0.1, delta=0.1, d=2)
    >>> round(whole.iota, 1), whole.episodes == int(2 / whole.F_escape)
    (60.5, True)
    """
    goal = goal_of(goal, fields)
    floats = floats_of(constants, Constants, variant)
    smoothness = smoothness_of(constants, variant, smoothness)
    goal, escape = perturbed_escape(smoothness, goal, variant)
    accuracy = perturbed_accuracy(goal, escape)
    bound = floats.hypergradient_bound
    D, N = aid_steps(
        floats,
        eta=escape.eta,
        initial_error=goal.initial_error,
        gradient_bound=bound if variant == "printed" else max(bound + accuracy, escape.r),
        accuracy=accuracy,
    )
    schedule = PerturbedAIDSchedule(
        **common_fields(goal, smoothness, escape, variant),
        tau=1 / floats.ell,
        accuracy=accuracy,
        D=D,
        N=N,
        K=descent_iterations(smoothness.L_phi, goal, escape, decrease=escape.F_escape / 2, variant=variant),
    )
    others = [PRINTED_N] if variant == "printed" else []
    warn_about(schedule, escape, goal, gradient=bound, others=others)
    return schedule


def perturbed_escape(smoothness: Smoothness, goal: Goal, variant: Variant) -> tuple[Goal, Escape]:
    """The scales of the escapes of Algorithm 1, and the goal with the number of episodes that they are made for.

    An episode that succeeds lowers Phi by F/2, so there are at most 2 gap/F of them.

    Paper: Theorem 2.5 [thm:aid]; Equation B.47 [thm3.5-bound2]

    >>> goal = Goal(eps=1.0, delta=0.1, d=1, initial_error=1.0, gap=1.0, episodes=None)
    >>> settled, escape = perturbed_escape(Smoothness(L_phi=1.0, rho_phi=1.0), goal, "corrected")
    >>> settled.episodes == int(2 / escape.F_escape)
    True
    """
    fall = PERTURBED.decrease / 2 * goal.eps * (math.sqrt(goal.eps) / math.sqrt(smoothness.rho_phi))
    count = Count.of(goal, variant, fall=fall)
    escape = escape_of(smoothness, goal, PERTURBED, count=count)
    return count.settled(goal, escape.iota), escape


def perturbed_accuracy(goal: Goal, escape: Escape) -> float:
    """The error that hypergradients may have while a perturbation escapes.

    min(sqrt(17)/(80 iota^2), 1/(16 iota^2 2^iota)) eps

    Paper: Lemma 2.9 [lem:escapesaddle]; Equation 2.6 [eq:error-required]

    >>> goal = Goal(eps=1.0, delta=0.1, d=1, initial_error=1.0, gap=1.0, episodes=1)
    >>> escape = Escape(iota=4.0, eta=1.0, r=1.0, T_escape=1, F_escape=1.0, S_escape=1.0, straightforward=False)
    >>> perturbed_accuracy(goal, escape) == 2.0**-12
    True
    """
    iota = escape.iota
    return positive_accuracy(min(math.sqrt(17) / 80, 2.0**-iota / 16) / iota**2 * goal.eps, iota)


def descent_iterations(L_phi: float, goal: Goal, escape: Escape, *, decrease: float, variant: Variant) -> int:
    """The bound on the number of outer iterations, for episodes that each decrease Phi by ``decrease``.

    K = gap (T + 1)/decrease + 25 L_phi gap/(3 eps^2), and its last summand where there is nothing to escape from

    Paper: Formula [unlabelled:aid-total]; Equation B.46 [thm3.5-bound1]; Equation B.47 [thm3.5-bound2]
    Deviation: the print has T for T + 1, and its Algorithm 1 perturbs within an iteration; ours gives the
    perturbation an iteration of its own, because the lemma's descent starts at the perturbed point.

    >>> goal = Goal(eps=1.0, delta=0.1, d=1, initial_error=1.0, gap=1.0, episodes=1)
    >>> escape = Escape(iota=4.0, eta=1.0, r=1.0, T_escape=9, F_escape=1.0, S_escape=1.0, straightforward=False)
    >>> descent_iterations(3.0, goal, escape, decrease=0.5, variant="corrected")
    45
    """
    large_gradients = 25 / 3 * L_phi * (goal.gap / goal.eps / goal.eps)
    return episodes_bound(large_gradients, goal, escape, decrease=decrease, variant=variant)


def episodes_bound(rest: float, goal: Goal, escape: Escape, *, decrease: float, variant: Variant) -> int:
    """``rest`` iterations and those of all the episodes that ``gap`` allows, rounded up.

    >>> goal = Goal(eps=1.0, delta=0.1, d=1, initial_error=1.0, gap=1.0, episodes=1)
    >>> escape = Escape(iota=4.0, eta=1.0, r=1.0, T_escape=9, F_escape=1.0, S_escape=1.0, straightforward=False)
    >>> episodes_bound(7.5, goal, escape, decrease=0.5, variant="printed")
    26
    """
    iterations = escape.T_escape + (0 if variant == "printed" else 1)
    total = rest if escape.straightforward else rest + goal.gap * (iterations / decrease)
    if not math.isfinite(total):
        raise InvalidArgument("the bound on the number of iterations is beyond float64", hint="a larger eps")
    return math.ceil(total)


@dataclass(frozen=True, kw_only=True)
class PerturbedGDmaxSchedule(Schedule):
    """The parameters of perturbed GDmax.

    - All: as for ``Schedule``.

    Paper: Theorem 3.7 [thm:minimax]

    >>> c = MinimaxConstants(mu=1, ell=1, rho=1, M_x=1)
    >>> schedule = perturbed_gdmax(c, eps=0.1, delta=0.1, d=2, gap=1e-6, episodes=1)
    >>> schedule.D, schedule.eta
    (1, 0.5)
    """

    def algorithm(self) -> Perturbed | Descent:
        """Algorithm 1 with these parameters; plain descent where there is nothing to escape from.

        >>> c = MinimaxConstants(mu=1, ell=1, rho=1, M_x=1)
        >>> type(perturbed_gdmax(c, eps=0.1, delta=0.1, d=2, gap=1e-6, episodes=1).algorithm()).__name__
        'Perturbed'
        """
        from bilevel_sym.estimators.hypergradient import GDmax

        return self._algorithm_1(GDmax(D=self.D, tau=self.tau))


def perturbed_gdmax(
    constants: MinimaxConstants,
    goal: Goal | None = None,
    *,
    smoothness: Any = None,
    variant: Variant = "corrected",
    **fields: Any,
) -> PerturbedGDmaxSchedule:
    """The parameters with which perturbed GDmax visits an eps-local minimum of max_y f within K iterations.

    tau, eta, r, T, iota and K as for ``perturbed_aid``, with L_phi = ell (1 + kappa) and rho_phi = rho (1 + kappa)^3;
    D the smallest with ell (initial_error + 2 eta kappa M_x) (1 - 1/kappa)^(D/2) at most
    min(sqrt(17)/(80 iota^2), 1/(16 iota^2 2^iota)) eps, and with (1 - 1/kappa)^(D/2) <= 1/2.

    - ``constants``: ``MinimaxConstants``. Of the goal, ``initial_error`` need only bound |y0 - y*(x0)|.
    - The others: as for ``perturbed_aid``.

    Paper: Theorem 3.7 [thm:minimax]; Equation 3.2 [eq:para_minimax]; Equation C.13 [eq:gdmax-D]
    Assumes: Assumption 3.5 [assu:minimax] wherever the iterates go; |f_x| <= M_x there.
    Deviation: the print has M + ell M/mu where M_x suffices, though Assumption 3.5 has no M; ``variant="printed"``
    takes M_x + ell M_x/mu. Without M_x, the smoothness of Phi gives |grad Phi|^2 <= 2 L_phi (Phi - inf Phi), and
    sqrt(2 L_phi (gap + F)) + eps stands in for it, with a warning: F covers what a perturbation adds to Phi, eps the
    error of the estimate. An episode takes T + 1 iterations, and all of them share delta.

    >>> c = MinimaxConstants(mu=1, ell=2, rho=1, M_x=1)
    >>> schedule = perturbed_gdmax(c, eps=0.1, delta=0.1, d=2, gap=1e-6, episodes=1)
    >>> schedule.D, schedule.T_escape, schedule.L_phi
    (82, 83, 6.0)
    """
    goal = goal_of(goal, fields)
    floats = floats_of(constants, MinimaxConstants, variant)
    smoothness = smoothness_of(constants, variant, smoothness)
    goal, escape = perturbed_escape(smoothness, goal, variant)
    accuracy = perturbed_accuracy(goal, escape)
    gradient, others = floats.M_x, []
    if gradient is None:
        gradient = math.sqrt(2 * smoothness.L_phi) * math.sqrt(goal.gap + escape.F_escape) + goal.eps
        others.append(
            f"M_x, a bound on |f_x|, is not known: sqrt(2 L_phi (gap + F_escape)) + eps = {gradient:.3g} stands in "
            f"for it, which needs L_phi on all of R^d. Try MinimaxConstants(..., M_x=...)"
        )
    elif variant == "printed":
        gradient += floats.kappa * gradient
    bound = gradient if variant == "printed" else max(gradient, escape.r)
    error = floats.gdmax_error(0, eta=escape.eta, initial_error=goal.initial_error, gradient_bound=bound)
    rate = descent_rate(floats.mu, floats.ell)
    schedule = PerturbedGDmaxSchedule(
        **common_fields(goal, smoothness, escape, variant),
        tau=1 / floats.ell,
        accuracy=accuracy,
        D=max(least_steps(error, accuracy, rate, per_step=_HALF), least_steps(1.0, 0.5, rate, per_step=_HALF)),
        K=descent_iterations(smoothness.L_phi, goal, escape, decrease=escape.F_escape / 2, variant=variant),
    )
    warn_about(schedule, escape, goal, gradient=gradient, others=others)
    return schedule
