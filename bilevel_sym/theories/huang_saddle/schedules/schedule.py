"""What every schedule holds, and the warnings about what float64 or a lifetime cannot do."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.theories.huang_saddle.schedules.escape import Escape
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness

if TYPE_CHECKING:
    from bilevel_sym.estimators.hypergradient import Estimator
    from bilevel_sym.solvers import Descent, INeon, Perturbed

from bilevel_sym.theories import Variant

__all__ = ["Schedule", "ScheduleWarning", "common_fields", "positive_accuracy", "warn_about"]

_HALF_ULP = 2.0**-53
_MAX_RUN = 1e9


class ScheduleWarning(UserWarning):
    """A theorem's parameters that cannot be run as they stand, or that rest on a stand-in for a missing constant.

    Cause: the message names the quantity and the numbers. Cure: a larger eps, or fewer dimensions.

    >>> issubclass(ScheduleWarning, UserWarning)
    True
    """


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The parameters that a theorem prescribes, whatever the theorem.

    - ``eps``: the accuracy that was asked for.
    - ``delta``: the probability of failure that was asked for.
    - ``d``: the dimension of x.
    - ``L_phi``: the Lipschitz constant of grad Phi.
    - ``rho_phi``: the Lipschitz constant of Hess Phi.
    - ``iota``: the logarithmic factor of the theorem.
    - ``tau``: the inner step size.
    - ``eta``: the outer step size.
    - ``r``: the radius of the perturbation.
    - ``T_escape``: the time of an escape, in iterations.
    - ``F_escape``: the decrease of an escape.
    - ``S_escape``: the distance of an escape.
    - ``accuracy``: the error that the hypergradient may have.
    - ``D``: the number of lower-level steps.
    - ``K``: the bound on the number of outer iterations.
    - ``episodes``: how many escapes share delta.
    - ``straightforward``: L_phi < sqrt(rho_phi eps): every eps-stationary point is an eps-local minimum, and there is
      nothing to escape from.
    - ``variant``: that of the formulas.

    >>> from bilevel_sym import Constants, schedules
    >>> isinstance(schedules.perturbed_aid(Constants(1, 1, 1, 1, 1), eps=0.1, delta=0.1, d=2, gap=1e-9), Schedule)
    True
    """

    eps: float
    delta: float
    d: int
    L_phi: float
    rho_phi: float
    iota: float
    tau: float
    eta: float
    r: float
    T_escape: int
    F_escape: float
    S_escape: float
    accuracy: float
    D: int
    K: int
    episodes: int
    straightforward: bool
    variant: Variant

    def _algorithm_1(self, estimator: Estimator) -> Perturbed | Descent:
        """Perturbed with these parameters; plain descent where there is nothing to escape from."""
        from bilevel_sym.solvers import Descent, Perturbed

        if self.straightforward:
            return Descent(estimator, self.eta)
        printed = self.variant == "printed"
        return Perturbed(estimator, self.eta, self.eps, self.r, self.T_escape, self.rho_phi, as_printed=printed)

    def _algorithm_2(self, estimator: Estimator, step: float) -> INeon:
        """iNEON with these parameters."""
        from bilevel_sym.solvers import INeon

        return INeon(
            estimator, self.eta, self.eps, self.r, self.T_escape, self.F_escape, self.rho_phi, step,
            as_printed=self.variant == "printed",
        )  # fmt: skip


def common_fields(goal: Goal, smoothness: Smoothness, escape: Escape, variant: Variant) -> dict[str, Any]:
    """What all schedules take over from the goal, from the smoothness of Phi and from the escapes.

    goal: with its number of episodes
    smoothness: L_phi and rho_phi
    escape: the scales of an escape
    variant: of the formulas
    """
    asked = {"eps": goal.eps, "delta": goal.delta, "d": goal.d, "episodes": goal.episodes or 1, "variant": variant}
    return asked | asdict(smoothness) | asdict(escape)


def positive_accuracy(accuracy: float, iota: float) -> float:
    """The accuracy itself, where float64 can hold it at all.

    >>> positive_accuracy(0.0, iota=1100.0)
    Traceback (most recent call last):
      ...
    bilevel_sym.errors.InvalidArgument: with iota = 1.1e+03 the hypergradient accuracy is below the smallest float
    try: a larger eps or delta
    """
    if not accuracy > 0:
        raise InvalidArgument(
            f"with iota = {iota:.3g} the hypergradient accuracy is below the smallest float",
            hint="a larger eps or delta",
        )
    return accuracy


def warn_about(schedule: Schedule, escape: Escape, goal: Goal, *, gradient: float, others: Iterable[str] = ()) -> None:
    """Warn the caller of a theorem of each quantity that is out of reach.

    ``gradient`` is the size that hypergradients may have, ``others`` are messages of the theorem's own.

    >>> from bilevel_sym import Constants, schedules
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     schedule = schedules.perturbed_aid(Constants(1, 2, 1, 1, 1), eps=0.1, delta=0.1, d=2, episodes=1)
    >>> print(caught[0].message)
    K = 1.58e+11 iterations cannot be run. Try a larger eps (now 0.1), or a single escape
    """
    for message in [*others, *_out_of_reach(schedule, escape, goal, gradient)]:
        warnings.warn(message, ScheduleWarning, stacklevel=3)


def _out_of_reach(schedule: Schedule, escape: Escape, goal: Goal, gradient: float) -> Iterator[str]:
    # a hypergradient is a handful of rounded sums and products: eight roundings is a generous handful
    noise = 8 * _HALF_ULP * gradient
    if schedule.accuracy < noise:
        yield (
            f"accuracy = {schedule.accuracy:.3g} is out of reach of float64: a hypergradient of size {gradient:.3g} is "
            f"rounded by about {noise:.3g}. Try a larger eps (now {goal.eps:.3g})"
        )
    if escape.straightforward:
        yield (
            f"L_phi = {schedule.L_phi:.3g} is below sqrt(rho_phi eps): every eps-stationary point is an eps-local "
            f"minimum, so plain descent suffices and the escape parameters are not used"
        )
    else:
        yield from _escape_out_of_reach(schedule, goal)
    if schedule.K > _MAX_RUN:
        yield (
            f"K = {schedule.K:.3g} iterations cannot be run. Try a larger eps (now {goal.eps:.3g}), or a single escape"
        )


def _escape_out_of_reach(schedule: Schedule, goal: Goal) -> Iterator[str]:
    # iNEON's step lowers Phi by far less than its search does
    falls = {name: getattr(schedule, name, math.inf) for name in ("F_escape", "decrease")}
    for name in (name for name, fall in falls.items() if fall < _HALF_ULP * goal.gap):
        yield (
            f"{name} = {falls[name]:.3g} is out of reach of float64: values of Phi of size {goal.gap:.3g} are "
            f"rounded by about {_HALF_ULP * goal.gap:.3g}. Try a larger eps (now {goal.eps:.3g})"
        )
    moved = schedule.eta * schedule.r
    if moved < _HALF_ULP:
        yield (
            f"eta r = {moved:.3g} is out of reach of float64: a perturbation of x of size 1 is rounded by about "
            f"{_HALF_ULP:.3g}. Try a larger eps (now {goal.eps:.3g})"
        )
