"""Conditions: the inequalities that the proofs ask of their parameters, evaluated in balls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from flint import arb, fmpq

from bilevel_sym import Constants
from bilevel_sym.theories.huang_saddle.schedules import Schedule
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal
from verify.verdict import CheckResult, Evidence, inconclusive, judged

CONDITION_BITS = 256
ROUNDED = fmpq(1, 2**40)  # the parameters are floats, which may lose an equality in their last places


Number: TypeAlias = arb | fmpq | int


@dataclass(frozen=True)
class Condition:
    """One inequality that a proof asks of the parameters: ``measured`` <= ``bound``, in balls or in rationals."""

    part: str
    measured: Number
    bound: Number
    meaning: str
    evidence: Evidence = "certified"

    @property
    def ratio(self) -> float:
        """How close to failing it is; infinite where a number is undefined, so that nothing hides it."""
        measured, bound = arb(self.measured), arb(self.bound)
        if not bound > 0:  # a quotient would have the wrong sign
            return 0.0 if measured <= bound else math.inf
        quotient = measured / bound
        return float(quotient.mid()) if quotient.is_finite() else math.inf


def verdict_on(label: str, c: Condition) -> CheckResult:
    """The verdict by the balls themselves: a float would lose an inequality that is met with equality.

    >>> verdict_on("thm:aid", Condition("room", arb(2).sqrt(), arb(2), "m")).verdict
    <Verdict.HOLDS: 'HOLDS'>
    """
    measured, bound = (float(ball.mid()) if ball.is_finite() else math.inf for ball in (arb(c.measured), arb(c.bound)))
    if c.measured <= c.bound:
        measured = min(measured, bound)
    elif c.measured > c.bound:
        measured = max(measured, math.nextafter(bound, math.inf))
    else:
        return inconclusive(label, f"{c.meaning}: not decided in {CONDITION_BITS} bits", part=c.part)
    return judged(label, measured, bound, evidence=c.evidence, message=c.meaning, part=c.part)


def worst_of_each_part(label: str, conditions: Iterable[Condition]) -> Iterator[CheckResult]:
    """For each part the condition that is closest to failing.

    >>> two = [Condition("a", arb(1), arb(2), "easy"), Condition("a", arb(3), arb(2), "hard")]
    >>> [result.message for result in worst_of_each_part("thm:aid", two)]
    ['hard']
    """
    parts: dict[str, Condition] = {}
    for condition in conditions:
        if condition.part not in parts or condition.ratio > parts[condition.part].ratio:
            parts[condition.part] = condition
    for condition in parts.values():
        yield verdict_on(label, condition)


def balls(*values: float) -> tuple[arb, ...]:
    """Floats as exact balls.

    >>> balls(0.5, 2.0)[0] * 2 == 1
    True
    """
    return tuple(arb(value) for value in values)


# ---- what the proofs ask ----------------------------------------------------------------------------------------


def escape_conditions(s: Schedule, goal: Goal, *, neon: bool = False) -> Iterator[Condition]:
    """What the proof of the escape lemma (and of iNEON's) asks, with T rounded up.

    Paper: Equation B.38 [eq:localize]; Equation B.40 [eq:qprelation]; Formula [unlabelled:escape-contradiction]
    Paper: Claim [unlabelled:error-against-gap]; Formula [unlabelled:escape-decrease]; Equation 3.3 [iota-condition]

    >>> from bilevel_sym import schedules
    >>> from bilevel_sym.arithmetic.balls import precision
    >>> goal = Goal(eps=0.1, delta=0.1, d=2, initial_error=1.0, gap=1e-9, episodes=None)
    >>> s = schedules.perturbed_aid(Constants(1.0, 2.0, 1.0, 1.0, 1.0), eps=0.1, delta=0.1, d=2, gap=1e-9)
    >>> with precision(CONDITION_BITS):
    ...     half = arb(s.F_escape) / 2
    ...     found = [*escape_conditions(s, goal), *union_conditions(s, goal, loops=arb(1e-9) / half)]
    ...     found += budget_conditions(s, goal, decrease=half, slope=fmpq(25, 3), printed=False)
    >>> all(bool(condition.measured <= condition.bound) for condition in found), 0.05 < float(chance_of(s, goal)) < 0.1
    (True, True)
    """
    L, rho, eps, iota, eta, r = balls(s.L_phi, s.rho_phi, s.eps, s.iota, s.eta, s.r)
    T, F, S = arb(s.T_escape), arb(s.F_escape), arb(s.S_escape)
    pace = fmpq(1, 4) if neon else fmpq(1)
    chance = chance_of(s, goal, neon=neon)
    yield Condition("iota", chance, arb(goal.delta) / s.episodes, "the chance of the stuck region is at most its share")
    yield Condition("L_phi", (rho * eps).sqrt(), L, "sqrt(rho_phi eps) <= L_phi, without which descent suffices")
    errors = fmpq(2 * 17, 1600) if neon else fmpq(17, 6400)
    travelled = (4 * eta * T * F + 4 * (eta * T * eps) ** 2 * errors / iota**4).sqrt() + eta * r
    yield Condition("localisation", travelled, S, "both sequences stay within S while T, rounded up, passes")
    drift = 2 * eta * rho * S * T / (1 + eta * (rho * eps).sqrt())
    yield Condition("coupling", drift, fmpq(1, 2), "q stays below half of p: 2 eta rho_phi S T/(1 + eta gamma) <= 1/2")
    least = arb(2) ** (2 - pace * iota) * L * S
    grown = (1 + eta * (rho * eps).sqrt()) ** s.T_escape * eta * least / 4
    yield Condition("growth", S, grown, "after T steps the gap along e_1 is at least S")
    allowed = rho * S * eta * least / 4
    # equal in exact arithmetic
    yield Condition(
        "noise", arb(s.accuracy), allowed * (1 + ROUNDED), "hypergradient errors are below a quarter of the gap's drift"
    )
    if not neon:
        rise = eps * eta * r + L * (eta * r) ** 2 / 2
        yield Condition("perturbation", rise, F / 2, "a perturbation raises Phi by at most F/2")


def chance_of(s: Schedule, goal: Goal, *, neon: bool = False) -> arb:
    """What the chance of the stuck region is at most, for one escape.

    Paper: Equation 3.3 [iota-condition]; Equation 4.6 [iota-condition-2]
    """
    L, rho, eps, iota = balls(s.L_phi, s.rho_phi, s.eps, s.iota)
    pace = fmpq(1, 4) if neon else fmpq(1)
    return L * arb(goal.d).sqrt() / (rho * eps).sqrt() * iota**2 * arb(2) ** (8 - pace * iota)


def union_conditions(
    s: Schedule, goal: Goal, *, loops: arb, share: Number = 1, neon: bool = False
) -> Iterator[Condition]:
    """Every escape that K has room for may fail: their chances together, against the share of delta that is theirs.

    ``loops`` is how many there can be: the gap over what one of them lowers Phi by.

    Paper: Theorem 2.5 [thm:aid]; Equation B.47 [thm3.5-bound2]
    """
    # F and the count are floats, and the condition is met with equality
    allowed = share * arb(goal.delta) * (1 + ROUNDED)
    meaning = f"the chances of all {float(loops):.4g} escapes that the gap allows add up to delta at most"
    yield Condition("episodes", loops.max(arb(1)) * chance_of(s, goal, neon=neon), allowed, meaning)


def budget_conditions(s: Schedule, goal: Goal, *, decrease: arb, slope: Number, printed: bool) -> Iterator[Condition]:
    """K against its two parts, each recomputed.

    Paper: Equation B.46 [thm3.5-bound1]; Equation B.47 [thm3.5-bound2]; Formula [unlabelled:aid-total]
    """
    episode = arb(s.T_escape) + (0 if printed else 1)
    total = arb(goal.gap) * episode / decrease + slope * arb(s.L_phi) * arb(goal.gap) / arb(s.eps) ** 2
    most = arb(s.K) * (1 + ROUNDED)
    yield Condition("iterations", total, most, "episodes at saddle points and steps with a large gradient fit in K")


def case_conditions() -> Iterator[Condition]:
    """The numbers of the case analysis, as rationals.

    Paper: Formula [unlabelled:case-1-decrease]; Equation B.45 [AID-bound-nablaphi-nablahatphi]

    >>> [condition.part for condition in case_conditions()]
    ['case 1', 'case 2', 'eps/5']
    """
    small, error = fmpq(4, 5), fmpq(1, 5)
    fall = small**2 / 4 - error**2
    step = "a step with |grad_phi_hat| > 4/5 eps lowers Phi by 3/25 eps^2/L_phi"
    yield Condition("case 1", fmpq(3, 25), fall, step, "proved")
    yield Condition("case 2", small + error, fmpq(1), "|grad_phi_hat| <= 4/5 eps gives |grad Phi| <= eps", "proved")
    # sqrt(17)/80 <= 1/5, squared; iota > 1 only helps
    yield Condition("eps/5", fmpq(17, 6400), error**2, "the accuracy of an escape is below eps/5 (squares)", "proved")


@dataclass(frozen=True)
class Rates:
    """The two rates of AID and the factors before them, in balls: a second route to ``aid_error_terms``.

    ``keeps_y`` of the squared distance of y is left by a descent step, ``keeps_v`` of the distance of v by a CG step.

    Paper: Equation B.18 [eq:aid-error]; Equation B.30 [eq:warmstart]

    >>> c = Constants(1.0, 4.0, 1.0, 1.0, 1.0)
    >>> rates = Rates.of(c, eta=0.1, initial_error=1.0, gradient_bound=5.0)
    >>> abs(float(rates.error(9, 5).mid()) / c.aid_error(9, 5, eta=0.1, initial_error=1.0) - 1) < 1e-12
    True
    """

    keeps_y: arb
    keeps_v: arb
    error_y: arb
    error_v: arb
    start_y: arb
    start_v: arb

    @classmethod
    def of(cls, c: Constants, *, eta: float, initial_error: float, gradient_bound: float) -> Rates:
        """For these constants, with Gamma_1 for steps of at most eta gradient_bound."""
        mu, ell, rho, M = balls(c.mu, c.ell, c.rho, c.M)
        kappa, root = ell / mu, (ell / mu).sqrt()
        drift = kappa**2 + 2 * kappa + rho * M * (1 + kappa) / mu**2
        gamma = arb(initial_error) + 2 * arb(eta) * drift * arb(gradient_bound)
        return cls(
            keeps_y=1 - mu / ell if c.mu != c.ell else arb(0),
            keeps_v=(root - 1) / (root + 1) if c.mu != c.ell else arb(0),
            error_y=gamma * (1 + kappa * (1 + 2 * root)) * (ell + rho * M / mu),
            error_v=gamma * 2 * ell * root,
            start_y=(1 + 2 * root) * (kappa + rho * M / mu**2) + 1,
            start_v=2 * root,
        )

    @property
    def exact(self) -> bool:
        """kappa = 1: one step of each is exact."""
        return bool(self.keeps_y == 0)

    def error(self, D: int | None, N: int | None) -> arb:
        """The bound of the lemma on the error of AID, or the summand of one of the two numbers."""
        of_y = arb(0) if D is None or (self.exact and D) else self.error_y * self.keeps_y.sqrt() ** D
        of_v = arb(0) if N is None or (self.exact and N) else self.error_v * self.keeps_v**N
        return of_y + of_v

    def halving(self) -> tuple[arb, arb]:
        """How many steps halve the warm-start distances."""
        if self.exact:
            return arb(1), arb(1)
        return 2 * (2 * self.start_y).log() / -self.keeps_y.log(), (2 * self.start_v).log() / -self.keeps_v.log()


def gradient_bound(c: Constants, accuracy: float, r: float) -> float:
    """How long an estimate, or a perturbation, can be.

    >>> gradient_bound(Constants(1.0, 2.0, 1.0, 1.0, 1.0), accuracy=0.5, r=0.1)
    3.5
    """
    return float(max(c.hypergradient_bound + accuracy, r))


def inner_conditions(rates: Rates, D: int, N: int, accuracy: float) -> Iterator[Condition]:
    """What D and N are asked for: the accuracy, and halving the warm-start distances.

    Paper: Equation B.43 [eq:aid-bound]; Equation B.31 [unlabelled:warm-start-D-N]

    >>> rates = Rates.of(Constants(1.0, 1.0, 1.0, 1.0, 1.0), eta=0.1, initial_error=1.0, gradient_bound=2.0)
    >>> [bool(condition.measured <= condition.bound) for condition in inner_conditions(rates, 1, 1, 1e-9)]
    [True, True, True, True]
    """
    exact: Evidence = "proved" if rates.exact else "certified"
    # the factors before the rates were rounded, which is more than one step of a rate near 1 can make up for
    half = arb(accuracy) / 2 * (1 + ROUNDED)
    yield Condition("error of y", rates.error(D, None), half, f"D = {D} keeps its half of the error of AID", exact)
    yield Condition("error of v", rates.error(None, N), half, f"N = {N} keeps its half of the error of AID", exact)
    halves_y, halves_v = rates.halving()
    yield Condition("D", halves_y, arb(D), "D steps of descent halve the warm-start distance of y", exact)
    yield Condition("N", halves_v, arb(N), "N steps of CG halve the warm-start distance of v", exact)
