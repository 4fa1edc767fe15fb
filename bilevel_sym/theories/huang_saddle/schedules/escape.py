"""The scales of one escape from a saddle point: iota, and the radius, time, decrease and distance made of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache

from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness

__all__ = ["NEON", "PERTURBED", "Count", "Escape", "Pace", "escape_of", "smallest_iota"]

# The condition on iota is decided in so many digits that a float is its exact boundary.
_EXACT = Context(prec=60)


@dataclass(frozen=True, slots=True)
class Pace:
    """How an escape lemma measures time and decrease.

    T = time iota L_phi/sqrt(rho_phi eps), F = decrease/iota^3 sqrt(eps^3/rho_phi), and the lemma fails with probability
    at most L_phi sqrt(d)/sqrt(rho_phi eps) iota^2 2^(8 - time iota).

    >>> PERTURBED.time, NEON.time
    (1.0, 0.25)
    """

    time: float
    decrease: float
    strict: bool


PERTURBED = Pace(time=1.0, decrease=1 / 100, strict=False)
NEON = Pace(time=0.25, decrease=1 / 25, strict=True)


@dataclass(frozen=True, slots=True)
class Count:
    """How many episodes must all succeed, as it depends on iota: max(1, fixed + cubed iota^3).

    An episode that succeeds lowers Phi by ``fall``/iota^3, so ``gap`` allows gap iota^3/fall of them and no more: where
    less than the fall of one is left, its start is no saddle point. Their chances of failure add up to delta.

    Paper: Theorem 2.5 [thm:aid]; Equation B.47 [thm3.5-bound2]

    >>> Count(fixed=1.0, cubed=2.0).at(3.0)
    Decimal('55')
    """

    fixed: float
    cubed: float

    @classmethod
    def of(cls, goal: Goal, variant: Variant, *, fall: float, others: float = 0.0) -> Count:
        """As many as the gap allows, and ``others``; the print takes the chance of one episode for that of all.

        >>> goal = Goal(eps=1.0, delta=0.1, d=1, initial_error=1.0, gap=6.0, episodes=None)
        >>> Count.of(goal, "corrected", fall=0.5), Count.of(goal, "printed", fall=0.5)
        (Count(fixed=0.0, cubed=12.0), Count(fixed=1.0, cubed=0.0))
        """
        # those that were given are a part of goal.episode_delta already
        return cls(1.0, 0.0) if goal.episodes is not None or variant == "printed" else cls(others, goal.gap / fall)

    def at(self, iota: float) -> Decimal:
        """The number, which need not be whole."""
        return max(Decimal(1), Decimal(self.fixed) + Decimal(self.cubed) * Decimal(iota) ** 3)

    def settled(self, goal: Goal, iota: float) -> Goal:
        """The goal with its number of episodes, rounded down: nothing in between can be begun.

        >>> goal = Goal(eps=1.0, delta=0.1, d=1, initial_error=1.0, gap=6.0, episodes=None)
        >>> Count.of(goal, "corrected", fall=0.5).settled(goal, 2.0).episodes
        96
        """
        return goal if goal.episodes is not None else goal.with_episodes(int(self.at(iota)))


@dataclass(frozen=True, slots=True)
class Escape:
    """The parameters of one escape, in the order in which they are computed.

    >>> goal = Goal(eps=1.0, delta=400 / 2**12, d=1, initial_error=1.0, gap=1.0, episodes=1)
    >>> escape_of(Smoothness(L_phi=1.0, rho_phi=1.0), goal, PERTURBED).iota
    20.0
    """

    iota: float
    eta: float
    r: float
    T_escape: int
    F_escape: float
    S_escape: float
    straightforward: bool


def escape_of(
    smoothness: Smoothness,
    goal: Goal,
    pace: Pace,
    *,
    iota_from: Smoothness | None = None,
    count: Count | None = None,
) -> Escape:
    """The parameters of an escape lemma with the smallest iota that its condition allows.

    eta = 1/L_phi, r = eps/(400 iota^3), T = time iota L_phi/sqrt(rho_phi eps), rounded up,
    F = decrease/iota^3 sqrt(eps^3/rho_phi), S = 1/(4 iota) sqrt(eps/rho_phi)

    The proofs allow the rounding: the sum that they bound by 2 eta rho_phi S T = 1/2 (1/8 for iNEON) comes with a
    factor 1/(1 + eta sqrt(rho_phi eps)) that they drop and that outweighs it, and the localisation has room for a time
    that is longer by a sixth.

    Paper: Equation 3.2 [eq:para_minimax]; Equation 2.8 [ufun-def]; Equation B.34 [uspace-def]
    Assumes: Equation 3.4 [L-phi-big]; where it fails, ``straightforward`` says so.

    >>> goal = Goal(eps=1.0, delta=400 / 2**12, d=1, initial_error=1.0, gap=1.0, episodes=1)
    >>> escape_of(Smoothness(L_phi=1.0, rho_phi=1.0), goal, PERTURBED).T_escape
    20
    """
    eps, curvature = goal.eps, smoothness.curvature(goal.eps)
    iota = smallest_iota(iota_from or smoothness, goal, pace, count)
    length = math.sqrt(eps) / math.sqrt(smoothness.rho_phi)
    return Escape(
        iota=iota,
        eta=1 / smoothness.L_phi,
        r=eps / (400 * iota**3),
        T_escape=math.ceil(pace.time * iota * smoothness.L_phi / curvature),
        F_escape=pace.decrease / iota**3 * eps * length,
        S_escape=length / (4 * iota),
        straightforward=smoothness.L_phi < curvature,
    )


@lru_cache(maxsize=256)  # a verification asks again and again for the same few
def smallest_iota(smoothness: Smoothness, goal: Goal, pace: Pace, count: Count | None = None) -> float:
    """The smallest float iota > 1 for which all the episodes together fail with probability at most delta.

    delta >= n(iota) L_phi sqrt(d)/sqrt(rho_phi eps) iota^2 2^(8 - time iota) with n(iota) = max(1, fixed + cubed
    iota^3), or the number that was given. As F shrinks with iota, n grows with it: this is a fixed point.

    If the first float above 1 is not large enough, nothing is below the one that is returned, and everything from
    there on; so bisection finds it. For with p(iota) = iota^2 2^(-time iota) and n without its maximum, p n has the
    logarithmic derivative (2 + 3 s)/iota - time log 2, s = cubed iota^3/(fixed + cubed iota^3), which falls strictly
    (s' = 3 s (1 - s)/iota, and 9 s (1 - s) - 2 - 3 s < 0): p n rises, then falls to 0, as p does. Where n < 1 at the
    start, p itself is too large until it has fallen, and if n > 1 by then, p n is too large there and falls later.

    The right side bounds the chance of the stuck region, omega/r sqrt(d/pi) with omega = 2^(2 - time iota) L_phi S,
    because 400/sqrt(pi) = 225.7 < 2^8.

    Paper: Equation 3.3 [iota-condition]; Equation 4.6 [iota-condition-2]; Formula [unlabelled:stuck-probability]
    Deviation: the print takes n = 1 whatever the number of saddle points. The condition of iNEON prints ell and rho
    where its proof has L_phi and rho_phi; ``variant="printed"`` passes them here.

    >>> goal = Goal(eps=1.0, delta=0.1, d=4, initial_error=1.0, gap=1.0, episodes=1)
    >>> round(smallest_iota(Smoothness(L_phi=10.0, rho_phi=1.0), goal, PERTURBED), 3)
    24.923
    >>> round(smallest_iota(Smoothness(L_phi=10.0, rho_phi=1.0), goal, PERTURBED, Count(0.0, 200.0)), 3)
    51.756
    """
    with localcontext(_EXACT):
        # squared, so that no root is rounded and ties stay ties
        scale = Decimal(smoothness.L_phi) ** 2 * goal.d / (Decimal(smoothness.rho_phi) * Decimal(goal.eps))
        allowed = Decimal(goal.episode_delta) ** 2
        episodes = count or Count(1.0, 0.0)

        def holds(iota: float) -> bool:
            chance = scale * Decimal(iota) ** 4 * Decimal(2) ** (16 - 2 * Decimal(pace.time * iota))
            chance *= episodes.at(iota) ** 2
            return chance < allowed if pace.strict else chance <= allowed

        first = math.nextafter(1.0, 2.0)
        if holds(first):
            return first
        low, high = first, 2.0
        while not holds(high):
            low, high = high, 2 * high
        while low < (middle := low + (high - low) / 2) < high:
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high
