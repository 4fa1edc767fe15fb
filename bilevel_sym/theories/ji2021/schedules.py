"""Step sizes and inner steps with which BA, AID-BiO and ITD-BiO have their rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.estimators.hypergradient import AID, ITD
from bilevel_sym.solvers import Descent
from bilevel_sym.theories import Variant
from bilevel_sym.theories.ji2021.constants import RateConstants

__all__ = ["RateSchedule", "aid_bio", "ba", "itd_bio"]

MOST_STEPS = 10**7  # of an inner loop; a schedule beyond it is refused


@dataclass(frozen=True, slots=True)
class RateSchedule:
    """An algorithm's parameters, and the rate that a theorem gives for them.

    ``alpha`` is the inner step, ``beta`` the outer one, ``D`` the inner steps. ``N`` counts the steps of conjugate
    gradients, None for ITD. The mean of |grad Phi(x_k)|^2 over k < K is at most
    (``slope`` (Phi(x_0) - Phi(x_K)) + ``start`` Delta_0)/K + ``floor``, where Delta_0 = |y^0 - y*|^2 + |v^0 - v*|^2 at
    x_0. Phi(x_K) is at least inf Phi, so this implies the printed form.

    >>> schedule = aid_bio(RateConstants(mu=1.0, L=2.0, M=1.0, tau=0.0, rho=0.0))
    >>> schedule.beta == 1 / (8 * 18.0), schedule.D, schedule.N, schedule.start
    (True, 12, 2, 5.0)
    """

    alpha: float
    beta: float
    D: int
    N: int | None
    slope: float
    start: float
    floor: float

    def algorithm(self) -> Descent:
        """The configured solver."""
        estimator = ITD(self.D, self.alpha) if self.N is None else AID(self.D, self.N, self.alpha)
        return Descent(estimator, self.beta)


def aid_bio(constants: RateConstants, *, variant: Variant = "corrected") -> RateSchedule:
    """AID-BiO: alpha = 1/L, beta = 1/(8 L_phi), and D and N of the order of kappa and sqrt(kappa).

    mean of |grad Phi(x_k)|^2 <= (64 L_phi (Phi(x_0) - inf Phi) + 5 Delta_0)/K

    With w = kappa + rho M/mu^2, u = 1 + 2 sqrt(kappa) and W = 4 beta^2 (kappa^2 + (1 + kappa)^2 w^2) the distance
    S_k = |y_k^0 - y*|^2 + |v_k^0 - v*|^2 of the warm starts obeys
    S_(k+1) <= (2 + 4 u^2 w^2 + W Gamma) r^D |y_k^0 - y*|^2 + (16 + 24 W L^2) kappa q^(2N) |v_k^0 - v*|^2
    + W |grad Phi(x_k)|^2. D and N make both coefficients at most 1/2, so that the S_k sum to at most
    2 S_0 + 2 W sum |grad Phi|^2, and make E = max(Gamma r^D, 24 L^2 kappa q^(2N)) at most 1/2 and 1/(5 W). The descent
    inequality with beta = 1/(8 L_phi) leaves 3/8 - 5/4 E W >= 1/8 of the sum.

    Paper: Theorem 1 [ji2021:thm-aid]
    Deviation: the conditions on D and N are those of this derivation.

    >>> aid_bio(RateConstants(mu=1.0, L=1.0, M=1.0, tau=0.0, rho=0.0)).D
    1
    """
    c = constants
    kappa, w = float(c.kappa), float(c.drift)
    L_phi = float(c.L_phi(variant=variant))
    alpha, beta = 1 / float(c.L), 1 / (8 * L_phi)
    W = 4 * beta**2 * (kappa**2 + (1 + kappa) ** 2 * w**2)
    gamma, of_v = c.aid_factors()
    target = min(0.5, 1 / (5 * W))
    steep = 2 + 4 * (1 + 2 * math.sqrt(kappa)) ** 2 * w**2 + W * gamma
    slow = (16 + 24 * W * float(c.L) ** 2) * kappa
    rate_y, rate_v = c.descent_rate(alpha), c.cg_rate
    D = _least(lambda D: steep * rate_y**D <= 0.5 and gamma * rate_y**D <= target)
    N = _least(lambda N: slow * rate_v ** (2 * N) <= 0.5 and of_v * rate_v ** (2 * N) <= target)
    return RateSchedule(alpha, beta, D, N, slope=64 * L_phi, start=5.0, floor=0.0)


def itd_bio(
    constants: RateConstants, *, eps: float, distance: float, variant: Variant = "corrected"
) -> RateSchedule:  # fmt: skip
    """ITD-BiO: alpha = 1/L, beta = 1/(4 L_phi), and D of the order of kappa log(1/eps).

    mean of |grad Phi(x_k)|^2 <= 16 L_phi (Phi(x_0) - inf Phi)/K + 2 eps/3

    The descent inequality with beta = 1/(4 L_phi) gives three times the mean square of the errors, and D makes each
    error at most sqrt(2 eps)/3.

    Paper: Theorem 2 [ji2021:thm-itd]

    - ``constants``: of the two levels.
    - ``eps``: the accuracy, of |grad Phi|^2.
    - ``distance``: a bound on |y_k^0 - y*(x_k)| at every iteration.
    - ``variant``: the form of L_phi.

    >>> itd_bio(RateConstants(mu=1.0, L=2.0, M=1.0, tau=0.0, rho=0.0), eps=0.1, distance=1.0).D
    11
    """
    alpha, L_phi = 1 / float(constants.L), float(constants.L_phi(variant=variant))
    wanted = math.sqrt(2 * _positive("eps", eps)) / 3
    D = _least(lambda D: constants.itd_error(D, alpha=alpha, y_error=float(distance)) <= wanted)
    return RateSchedule(alpha, 1 / (4 * L_phi), D, None, slope=16 * L_phi, start=0.0, floor=2 * eps / 3)


def ba(
    constants: RateConstants, n: int, *, eps: float, distance: float, variant: Variant = "corrected"
) -> RateSchedule:  # fmt: skip
    """BA: inner steps of size 2/(mu + L), outer steps of size 1/L_phi, and the linear system solved.

    mean of |grad Phi(x_k)|^2 <= 2 L_phi (Phi(x_0) - inf Phi)/K + eps

    The descent inequality with beta = 1/L_phi gives the mean square of the errors, each at most C |y - y*|.

    Paper: Theorem 2.1 [ghadimi2018:thm-ba]
    Deviation: the paper lets the number of inner steps grow with k; here it is the least for which the error is small
    enough at every k. There is no constraint on x.

    - ``constants``: of the two levels.
    - ``n``: the number of variables of y; so many steps of conjugate gradients solve the linear system.
    - ``eps``: the accuracy, of |grad Phi|^2.
    - ``distance``: a bound on |y_k^0 - y*(x_k)| at every iteration.
    - ``variant``: the form of L_phi.

    >>> ba(RateConstants(mu=1.0, L=3.0, M=1.0, tau=0.0, rho=0.0), 2, eps=0.01, distance=1.0).D
    7
    """
    c, L_phi = constants, float(constants.L_phi(variant=variant))
    wanted, steep = math.sqrt(_positive("eps", eps)), float(c.C) * float(distance)
    D = _least(lambda D: steep * c.ba_rate**D <= wanted)
    return RateSchedule(2 / float(c.mu + c.L), 1 / L_phi, D, n, slope=2 * L_phi, start=0.0, floor=eps)


def _least(enough: Callable[[int], bool]) -> int:
    """The smallest number of steps, at least 1, that is enough; what is enough stays so with more."""
    if enough(1):
        return 1
    high = 2
    while not enough(high):
        high *= 2
        if high > MOST_STEPS:
            raise InvalidArgument(f"more than {MOST_STEPS} inner steps are needed", hint="a larger mu, or a larger eps")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _positive(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise InvalidArgument(f"{name} must be positive, but is {value}", hint=f"{name}=0.01")
    return float(value)
