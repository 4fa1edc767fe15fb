"""Errors in the escape lemma and in iNEON."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import sympy as sp
from flint import arb

from bilevel_sym import Constants
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness
from bilevel_sym.theories.huang_saddle.schedules.neon import neon_escape
from verify.erratum import Formula, by_variant, erratum

_GOAL = Goal(eps=1.0, delta=0.125, d=1, initial_error=1.0, gap=1.0, episodes=1)


def _iota(c: Constants, *, variant: Variant) -> float:
    """The smallest iota that the condition of iNEON allows."""
    smoothness = Smoothness(float(c.L_phi()), float(c.rho_phi()))
    return neon_escape(Constants(*map(float, (c.mu, c.ell, c.rho, c.nu, c.M))), smoothness, _GOAL, variant).iota


@erratum(
    "iota-condition-2",
    "unlabelled:stuck-probability",
    "unlabelled:neon-probability",
    printed="omega/r sqrt(d/pi) <= ell sqrt(d)/sqrt(rho eps) iota^2 2^(8 - iota), with iota/4 in the exponent for "
    "iNEON",
    corrected="omega/r sqrt(d/pi) <= L_phi sqrt(d)/sqrt(rho_phi eps) iota^2 2^(8 - iota)",
    forms=by_variant(_iota),
    witness="mu = ell = rho = 1, nu = 0, M = 100, d = 1, eps = 1, delta = 1/8: L_phi = 404 and rho_phi = 2432; with "
    "the printed iota the bound on the chance of the stuck region, omega/(2 r), is 0.80",
    why="omega is made of L_phi and rho_phi, and ell/sqrt(rho) can be far smaller than L_phi/sqrt(rho_phi).",
    evidence="certified",
)
def iota(form: Formula) -> bool:
    """The iota that the condition allows makes the bound on the chance of the stuck region at most delta."""
    c = Constants(Fraction(1), Fraction(1), Fraction(1), Fraction(0), Fraction(100))
    value = arb(form(c))
    omega_over_r = 400 * value**2 * arb(2) ** (-value / 4) * int(c.L_phi()) / arb(int(c.rho_phi())).sqrt()
    # for d = 1 the ratio of the Gamma functions is sqrt(pi)/2
    return bool(omega_over_r / 2 <= arb(_GOAL.delta))


@erratum(
    "eq64",
    "eq92",
    printed="|x_tau - x_0|^2 <= 4 eta T (Phi(x_0) - Phi(x_T) + eta sum_{t=1}^{T} |e(x_t)|^2)",
    corrected="the sum is over t = 0, ..., T - 1",
    forms=(lambda T: range(1, T + 1), range),
    witness="Phi = 0, T = 2, the only error is e(x_0) = 1: x_1 - x_0 = -eta, and the printed bound is 0",
    why="The step from x_{t-1} to x_t carries the error at x_{t-1}.",
    severity="misprint",
)
def error_index(form: Formula) -> bool:
    """The way from x_0 is at most what the errors under the sum allow."""
    eta, T, errors, x = Fraction(1, 2), 2, [Fraction(1), Fraction(0), Fraction(0)], [Fraction(0)]
    for t in range(T):
        x.append(x[t] - eta * errors[t])  # Phi' = 0, so the estimate is the error
    furthest = max((p - x[0]) ** 2 for p in x)
    return bool(furthest <= 4 * eta * T * eta * sum(errors[t] ** 2 for t in form(T)))


@erratum(
    "unlabelled:neon-gradient-error",
    "eq:neon-update",
    printed="delta_k = eta (ghat(x~ + u) - ghat(x~) - g(x~ + u) + g(x~)), with g = Phi' and ghat its estimate",
    corrected="delta_k is minus that",
    forms=(lambda eta, error: eta * error, lambda eta, error: -eta * error),
    witness="eta = 1, u = 0, ghat(x~ + u) = 3, all other gradients 0: u_{k+1} = -3, and the print gives +3",
    why="The update subtracts the estimate, so its error enters with a minus sign.",
    severity="misprint",
)
def delta_sign(form: Formula) -> bool:
    """The exact step plus delta_k is the inexact step."""
    u, eta = Fraction(0), Fraction(1)
    estimate, exact = Fraction(3) - 0, Fraction(0) - 0  # differences of gradients at x~ + u and x~
    return bool(u - eta * exact + form(eta, estimate - exact) == u - eta * estimate)


@erratum(
    "eq:aid-ND-neon",
    "lem:neon",
    "def-gamma1-AID",
    printed="Gamma_1, for which steps of x are at most eta (M + kappa M) long, is used for iNEON as well",
    corrected="consecutive u differ by up to 2 eta (M + kappa M), plus errors of the estimates: Gamma_1 with twice "
    "the bound",
    forms=(lambda bound: bound, lambda bound: 2 * bound),
    witness="f = -cos(x + y), g = y^2/2 - 2 x y (M = 1, kappa = 2): Phi' = 3 sin(3 x), 3 x~ = -pi/6, 3 (x~ + u) = pi/2",
    why="A step of iNEON is eta times a difference of two hypergradients, and Lemma B.1 is about steps along one. "
    "(Within the radius S of the localisation differences are shorter, but that argument is not given.)",
    severity="gap",
    modelled=True,
)
def gamma_neon(form: Formula) -> bool:
    """A step of iNEON, over eta, is no longer than the bound."""
    x, y = sp.symbols("x y")
    M, kappa = 1, 2
    slope = sp.diff((-sp.cos(x + y)).subs(y, 2 * x), x)  # y* = 2 x
    step = abs(slope.subs(x, sp.pi / 6) - slope.subs(x, -sp.pi / 18))
    return bool(step <= form(M + kappa * M))


@erratum(
    "lem:neon",
    printed="if iNEON returns 0, then P(lambda_min < -sqrt(rho_phi eps) | it returned 0) = O(delta), by Bayes' theorem",
    corrected="P(it returns 0 | lambda_min < -sqrt(rho_phi eps)) <= delta, and nothing about the converse without a "
    "prior",
    forms=(
        lambda joint: joint[True, True] / (joint[True, True] + joint[False, True]),
        lambda joint: joint[True, True] / (joint[True, True] + joint[True, False]),
    ),
    witness="a saddle point with prior probability 1 - delta, iNEON always 0 elsewhere: given 0, a saddle point has "
    "probability (1 - delta)/(2 - delta)",
    why="Bayes' theorem needs the prior odds, which the statement does not have.",
    severity="gap",
    modelled=True,
)
def bayes(form: Formula) -> bool:
    """The conditional probability is at most 10 delta, for delta = 10^-2, ..., 10^-7."""

    def joint(delta: Fraction) -> dict[tuple[bool, bool], Fraction]:
        """By (saddle point, returned 0): the lemma's chance of a miss, and a prior that it does not exclude."""
        prior = 1 - delta
        missed = prior * delta
        return {(True, True): missed, (True, False): prior - missed, (False, True): delta, (False, False): Fraction(0)}

    return all(form(joint(Fraction(1, 10**k))) <= Fraction(10, 10**k) for k in range(2, 8))


@erratum(
    "eq:phi-dec-highprob",
    "unlabelled:neon-rayleigh",
    printed="u'Phi''u/|u|^2 <= -sqrt(rho_phi eps)/(40 iota)",
    corrected="u'Phi''u/|u|^2 <= -sqrt(rho_phi eps)/(16 iota), from the same bounds",
    forms=(lambda: 40, lambda: 16),
    witness="|u|^2 <= 9^(2/3) S^2 in place of 9 S^2, and 1/25 - 1/320000 - 2/250 - 3/128 in full in place of F/5",
    why="(D.17) bounds |u| by 9^(1/3) S = 2.08 S, and the last display uses 3 S; 1/16 is the best unit fraction that "
    "the proof's own bounds give.",
    severity="loose",
)
def rayleigh(form: Formula) -> bool:
    """1/c follows from the bounds of the proof, and 1/(c - 1) does not."""
    # -u'Phi''u in units of sqrt(eps^3/rho_phi)/iota^3, and S^2 = eps/(16 iota^2 rho_phi)
    curvature = 2 * (Fraction(1, 25) - Fraction(1, 320000) - Fraction(2, 250) - Fraction(9, 6 * 64))

    def follows(c: int) -> bool:  # curvature 16/9^(2/3) >= 1/c, cubed
        return (curvature * 16 * c) ** 3 >= 81

    return follows(form()) and not follows(form() - 1)


@erratum(
    "eq:phi-dec-highprob-main-body",
    "lem:escapesaddle",
    "unlabelled:escape-decrease",
    printed="Phi(x_T) - Phi(x~) <= -F/2",
    corrected="Phi(x_T) - Phi(x~) <= -(3/4 - 1/3200) F, from the same numbers",
    forms=(lambda: Fraction(1, 2), lambda: Fraction(3, 4) - Fraction(1, 3200)),
    witness="eps eta r + L_phi eta^2 r^2/2 in units of F, with L_phi = sqrt(rho_phi eps) and iota = 1, the worst case",
    why="A perturbation raises Phi by 1/4 + 1/3200 of F at most. The count of episodes, 2 (Phi(x_0) - Phi*)/F, could "
    "be 1.34 in place of 2.",
    severity="loose",
)
def escape_conclusion(form: Formula) -> bool:
    """What is left of F after the worst perturbation is the fraction, neither more nor less."""
    r, F = Fraction(1, 400), Fraction(1, 100)  # of eps, and of sqrt(eps^3/rho_phi), for iota = 1
    return bool(1 - (r + r**2 / 2) / F == form())


def _entries(iota: arb) -> dict[str, tuple[arb, ...]]:
    """The printed entries of both minima, times iota^2."""
    shrinking, slow = arb(2) ** -iota / 16, arb(2) ** (-iota / 4) / 16
    root, third = arb(17).sqrt(), arb(9).root(3)
    return {"escape": (root / 80, shrinking), "iNEON": (root / 40, slow, iota * (third - 2) / 8, arb(1) / 750)}


@erratum(
    "eq:error-required",
    "eq:est-error-neon",
    "eq:est-error-neon-2",
    printed="min{sqrt(17)/(80 iota^2), 1/(16 iota^2 2^iota)}, and for iNEON min{sqrt(17)/(40 iota^2), 1/(16 iota^2 "
    "2^(iota/4)), (9^(1/3) - 2)/(8 iota), 1/(750 iota^2)}",
    corrected="1/(16 iota^2 2^iota), and min{1/(16 iota^2 2^(iota/4)), 1/(750 iota^2)}",
    forms=(
        lambda iota: tuple(_entries(iota).values()),
        lambda iota: (_entries(iota)["escape"][1:], _entries(iota)["iNEON"][1::2]),
    ),
    witness="iota = 1, ..., 60: 1/32 < sqrt(17)/80, and 1/750 < (9^(1/3) - 2)/8 < sqrt(17)/40",
    why="The other entries are never the smallest: those without a power of 2 do not fall with iota, once it is "
    "factored out, and are larger than 1/32 or 1/750 from iota = 1 on.",
    severity="loose",
    evidence="certified",
)
def redundant(form: Formula) -> bool:
    """Every entry of either minimum is the smallest for some iota."""
    rows = [form(arb(value)) for value in range(1, 61)]

    def smallest(row: tuple[arb, ...]) -> int:
        return next(i for i, entry in enumerate(row) if all(entry < other for j, other in enumerate(row) if j != i))

    return all({smallest(row[which]) for row in rows} == set(range(len(rows[0][which]))) for which in range(2))


@erratum(
    "unlabelled:algorithm-3-step-19",
    "lem:saddle-decrease",
    "unlabelled:saddle-decrease",
    "alg:INEONstocbio",
    printed="x_{k+1} = x_k - (xi/80) sqrt(eps/rho_phi) u",
    corrected="x_{k+1} = x_k - (xi/(80 iota)) sqrt(eps/rho_phi) u",
    forms=(lambda iota: Fraction(1, 80), lambda iota: 1 / (80 * iota)),
    witness="Phi = -c x^2/2 + rho_phi |x|^3/6 with c = sqrt(rho_phi eps)/(80 iota), rho_phi = eps = 1, iota = 4 and 20",
    why="A step s lowers the mean of Phi by c s^2/2 - rho_phi s^3/6. With the printed s = iota c/rho_phi that is (c^3/"
    "rho_phi^2)(iota^2/2 - iota^3/6): less than the claim for iota > 1 + sqrt(3), and for iota > 3 Phi can rise.",
)
def escape_step(form: Formula) -> bool:
    """The mean of Phi at the two ends of the step is as low as the lemma says."""

    def falls(iota: Fraction) -> bool:
        c, step = 1 / (80 * iota), form(iota)
        ends = [-c * x**2 / 2 + abs(x) ** 3 / 6 for x in (step, -step)]
        return bool(sum(ends) / 2 <= -1 / (3 * 80**3 * iota**3))

    return falls(Fraction(4)) and falls(Fraction(20))


@erratum(
    "thm:stocneon",
    "hess-err",
    "thm45-bound2",
    printed="iNEON on Phi_D returns 0, so lambda_min(Phi'') >= -sqrt(rho_phi eps)",
    corrected="lambda_min(Phi'') >= -(1 + 1/(80 iota)) sqrt(rho_phi eps)",
    forms=(lambda iota: Fraction(1), lambda iota: 1 + 1 / (80 * iota)),
    witness="rho_phi = eps = 1, iota = 2, Phi_D'' = -1 and Phi'' = -161/160, which the bound on the batch's Hessian "
    "allows",
    why="iNEON judges Phi_D; the error of the batch's Hessian is used for the escape and forgotten at the end.",
    severity="gap",
)
def zero_return(form: Formula) -> bool:
    """Whatever Hessian is close enough to one of Phi_D that passes, passes with the constant."""

    def passes(iota: Fraction) -> bool:
        near = [batch + sign / (80 * iota) for batch, sign in product((Fraction(-1), Fraction(0)), (-1, 0, 1))]
        return all(exact >= -form(iota) for exact in near)

    return passes(Fraction(2)) and passes(Fraction(50))
