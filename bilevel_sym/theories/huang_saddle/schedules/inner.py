"""How many inner steps make an estimate as accurate as a theorem asks."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.theories.huang_saddle.constants import Constants

__all__ = ["aid_steps", "conjugate_rate", "descent_rate", "least_steps", "sgd_rate"]

# Rates near 1 are raised to powers of their inverse distance from 1: float64 would lose the count.
_EXACT = Context(prec=60)


def least_steps(factor: float, target: float, rate: Decimal, *, per_step: Decimal = Decimal(1)) -> int:
    """The smallest integer n >= 1 with factor rate^(n per_step) <= target.

    A rate of 0 needs one step, which is why kappa = 1 needs no case of its own anywhere else.

    >>> least_steps(8.0, 1.0, Decimal("0.5")), least_steps(8.1, 1.0, Decimal("0.5")), least_steps(8.0, 1.0, Decimal(0))
    (3, 4, 1)
    """
    if not math.isfinite(factor):
        raise InvalidArgument("an error bound is beyond float64", hint="rescale the problem, or a larger eps")
    with localcontext(_EXACT):
        wanted = Decimal(target)
        if rate == 0 or factor <= target:
            return 1

        def holds(n: int) -> bool:
            return Decimal(factor) * rate ** (n * per_step) <= wanted

        n = max(1, math.ceil((Decimal(factor) / wanted).ln() / (-per_step * rate.ln())))
        # the quotient of logarithms is rounded: where it is an integer, it may fall on either side
        if n > 1 and holds(n - 1):
            return n - 1
        return n if holds(n) else n + 1


def descent_rate(mu: float, ell: float) -> Decimal:
    """1 - 1/kappa to 60 digits: what the square of a distance keeps of itself in a descent step of size 1/ell.

    Paper: Equation B.22 [eq:gdrate]

    >>> descent_rate(1.0, 4.0)
    Decimal('0.75')
    """
    with localcontext(_EXACT):
        return 1 - Decimal(mu) / Decimal(ell)


def conjugate_rate(mu: float, ell: float) -> Decimal:
    """(sqrt(kappa) - 1)/(sqrt(kappa) + 1) to 60 digits: the rate of conjugate gradients.

    Paper: Equation B.21 [eq:cgrate]

    >>> conjugate_rate(1.0, 9.0)
    Decimal('0.5')
    """
    with localcontext(_EXACT):
        root = (Decimal(ell) / Decimal(mu)).sqrt()
        return (root - 1) / (root + 1)


def sgd_rate(mu: float, ell: float) -> Decimal:
    """(ell - mu)/(ell + mu) to 60 digits: the rate of a descent step of size 2/(ell + mu).

    Paper: Equation D.56 [eq:eyk]

    >>> sgd_rate(1.0, 3.0)
    Decimal('0.5')
    """
    with localcontext(_EXACT):
        return (Decimal(ell) - Decimal(mu)) / (Decimal(ell) + Decimal(mu))


def aid_steps(
    constants: Constants,
    *,
    eta: float,
    initial_error: float,
    gradient_bound: float,
    accuracy: float,
    accuracy_y: float = math.inf,
) -> tuple[int, int]:
    """The smallest D and N for which AID is as accurate as asked, each responsible for half of the error.

    Three conditions on D: its half of the error bound, |y_D - y*| <= accuracy_y, and halving the warm-start distance;
    two on N. At kappa = 1 one descent step and one CG step are exact.

    Paper: Equation B.44 [eq:aid-ND]; Equation D.4 [eq:aid-ND-neon]; Equation B.31 [unlabelled:warm-start-D-N]
    Assumes: Assumption 2.1 [assu:bilevel], tau = 1/ell, constants as floats.
    Deviation: N's printed denominator log((1 + sqrt(kappa))/(1 - sqrt(kappa))) is the logarithm of a negative number;
    log((sqrt(kappa) + 1)/(sqrt(kappa) - 1)) is meant. Both are rounded up.

    >>> aid_steps(Constants(1.0, 2.0, 1.0, 1.0, 1.0), eta=0.1, initial_error=1.0, gradient_bound=3.0, accuracy=0.1)
    (24, 4)
    """
    mu, ell = constants.mu, constants.ell
    distance = {"eta": eta, "initial_error": initial_error, "gradient_bound": gradient_bound}
    of_y, of_v = constants.aid_error_terms(0, 0, **distance)
    keeps_y, keeps_v = constants.warm_start_factors(0, 0)
    half = Decimal("0.5")
    D = max(
        least_steps(of_y, accuracy / 2, descent_rate(mu, ell), per_step=half),
        least_steps(constants.gamma_1(**distance), accuracy_y, descent_rate(mu, ell), per_step=half),
        least_steps(keeps_y, 0.5, descent_rate(mu, ell), per_step=half),
    )
    N = max(
        least_steps(of_v, accuracy / 2, conjugate_rate(mu, ell)),
        least_steps(keeps_v, 0.5, conjugate_rate(mu, ell)),
    )
    return D, N
