"""The theorem on perturbed GDmax: parameters from constants, and the solver that they configure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bilevel_sym.theories.huang_saddle.constants import MinimaxConstants
from bilevel_sym.theories.huang_saddle.schedules.aid import descent_iterations, perturbed_accuracy, perturbed_escape
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, floats_of, goal_of, smoothness_of
from bilevel_sym.theories.huang_saddle.schedules.inner import descent_rate, least_steps
from bilevel_sym.theories.huang_saddle.schedules.schedule import Schedule, common_fields, warn_about

if TYPE_CHECKING:
    from bilevel_sym.solvers import Descent, Perturbed

from bilevel_sym.theories.statement import Variant

__all__ = ["PerturbedGDmaxSchedule", "perturbed_gdmax"]

_HALF = Decimal("0.5")


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
