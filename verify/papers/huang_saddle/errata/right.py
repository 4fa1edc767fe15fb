"""Statements that were recomputed and found right; each one is computed again whenever it is asked for.

Finding: a statement, or a step of a proof, that was recomputed and found right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import sympy as sp
from flint import arb

from bilevel_sym import paper
from verify.papers.huang_saddle.errata.inner_loops import conjugate_gradients
from verify.verdict import Evidence

MU, ELL, RHO, M, IOTA, EPS, RHO_PHI, L_PHI = sp.symbols("mu ell rho M iota eps rho_phi L_phi", positive=True)
KAPPA = ELL / MU
ETA = 1 / L_PHI
TIME = L_PHI / sp.sqrt(RHO_PHI * EPS) * IOTA  # script T
FALL = sp.sqrt(EPS**3 / RHO_PHI) / (100 * IOTA**3)  # script F
RADIUS = sp.sqrt(EPS / RHO_PHI) / (4 * IOTA)  # script S
NOISE = EPS / (400 * IOTA**3)  # r
NEON_TIME, NEON_FALL = TIME / 4, 4 * FALL


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A statement that stands: its places, what was computed, and the computation.

    >>> from verify.papers.huang_saddle.errata.right import found_right
    >>> all(finding.holds() for finding in found_right()[:3])
    True
    """

    labels: tuple[str, ...]
    text: str
    evidence: Evidence
    holds: Callable[[], bool]

    @property
    def name(self) -> str:
        """The name of the computation, by which coverage and tests refer to the finding."""
        return getattr(self.holds, "__name__", "")

    @property
    def where(self) -> str:
        """The references to the places."""
        return "; ".join(map(paper.cite, self.labels))


def right(*labels: str, text: str, evidence: Evidence = "proved") -> Callable[[Callable[[], bool]], Finding]:
    """Make a computation a finding; ``found_right`` collects them by their type.

    >>> @right("lem:descent", text="1/4 + 1/4 = 1/2")
    ... def half():
    ...     return 1 / 4 + 1 / 4 == 1 / 2
    >>> half.where, half.holds()
    ('Lemma 2.8 [lem:descent]', True)
    """
    for label in labels:
        paper.cite(label)
    return lambda holds: Finding(labels=labels, text=text, evidence=evidence, holds=holds)


def same(left: sp.Expr, other: sp.Expr) -> bool:
    """Whether two expressions agree, symbolically.

    >>> x = sp.Symbol("x")
    >>> same((x + 1) ** 2, x**2 + 2 * x + 1)
    True
    """
    return bool(sp.simplify(left - other) == 0)


def found_right() -> list[Finding]:
    """All findings: statements in the order of the paper, then steps of proofs.

    >>> found_right()[0].labels
    ('lem:descent',)
    """
    from verify.papers.huang_saddle.errata import steps  # which are written with the symbols of this module

    return [entry for module in (globals(), vars(steps)) for entry in module.values() if isinstance(entry, Finding)]


@right("lem:descent", text="-1/4 and 1 are a sharp pair: the gap is (|ghat|/2 - |e|)^2, which is 0 for |ghat| = 2 |e|")
def descent() -> bool:
    """Young's inequality of the proof, with its remainder."""
    a, b = sp.symbols("a b", real=True)
    return same(-(a**2) / 4 + b**2 + a**2 / 2 - a * b, (a / 2 - b) ** 2)


@right("eq:y-grad-diff", "eq:y-hess-bound", text="the Lipschitz constant of dy*/dx is (rho/mu)(1 + kappa)^2")
def jacobian() -> bool:
    """The two parts of the product rule."""
    return same((ELL / MU**2 + 1 / MU) * RHO * (1 + KAPPA), RHO / MU * (1 + KAPPA) ** 2)


@right("eq:vkstar-diff", "eq:warmstart", text="v* moves kappa^2 + kappa + rho M (1 + kappa)/mu^2 times as fast as x")
def drift() -> bool:
    """The change of the inverse and of f_y."""
    moved = M * RHO * (1 + KAPPA) / MU**2 + ELL * (1 + KAPPA) / MU
    return same(moved, KAPPA**2 + KAPPA + RHO * M * (1 + KAPPA) / MU**2)


@right("eq:aid-error1", text="the coefficient of |y^0 - y*| is (1 + kappa (1 + 2 sqrt(kappa)))(ell + rho M/mu)")
def aid_coefficient() -> bool:
    """(B.24) with (B.25) put in."""
    s, whole = sp.sqrt(KAPPA), ELL + RHO * M / MU
    return same(whole + ELL * (1 + 2 * s) * whole / MU, (1 + KAPPA * (1 + 2 * s)) * whole)


@right("eq:cgrate", text="exact conjugate gradients on 60 random diagonal systems obey the rate", evidence="sampled")
def conjugate_rate() -> bool:
    """The squared error after N steps against 4 kappa ((sqrt(kappa) - 1)/(sqrt(kappa) + 1))^(2 N), in balls."""
    rng = random.Random(0)

    def obeys() -> bool:
        n = rng.randint(3, 6)
        diagonal = [Fraction(1), *(Fraction(rng.randint(2, 40)) for _ in range(n - 1))]
        right, start = ([Fraction(rng.randint(-9, 9)) for _ in range(n)] for _ in range(2))
        root = arb(int(max(diagonal))).sqrt()
        first = _error(diagonal, right, start)
        bounds = [4 * root**2 * ((root - 1) / (root + 1)) ** (2 * N) * _ball(first) for N in (1, 2)]
        found = [_ball(_error(diagonal, right, conjugate_gradients(diagonal, right, start, N))) for N in (1, 2)]
        return first == 0 or all(error <= bound for error, bound in zip(found, bounds, strict=True))

    return all(obeys() for _ in range(60))


def _error(diagonal: list[Fraction], right: list[Fraction], v: list[Fraction]) -> Fraction:
    return sum(((s - b / a) ** 2 for a, b, s in zip(diagonal, right, v, strict=True)), Fraction(0))


def _ball(value: Fraction) -> arb:
    return arb(value.numerator) / value.denominator


@right("eq:localize", text="the square root is 9/(40 iota) sqrt(eps/rho_phi), and 9/40 + 1/400 <= 1/4")
def localisation() -> bool:
    """81/1600 under the root."""
    inside = 4 * ETA * TIME * FALL + 4 * ETA**2 * TIME**2 * sp.Rational(17, 6400) / IOTA**4 * EPS**2
    return same(inside, sp.Rational(81, 1600) / IOTA**2 * EPS / RHO_PHI) and Fraction(91, 400) <= Fraction(1, 4)


@right("unlabelled:one-half", text="2 eta rho_phi S T = 1/2, and 1/8 for iNEON")
def one_half() -> bool:
    """Both products."""
    whole = 2 * ETA * RHO_PHI * RADIUS * TIME
    return same(whole, sp.Rational(1, 2)) and same(whole / 4, sp.Rational(1, 8))


@right(
    "unlabelled:error-against-gap", text="eps/(16 iota^2 2^iota) = rho_phi S eta omega/4: the accuracy is just enough"
)
def error_against_gap() -> bool:
    """With r_0 = omega = 2^(2 - iota) L_phi S."""
    omega = 2 ** (2 - IOTA) * L_PHI * RADIUS
    return same(RHO_PHI * RADIUS * ETA * omega / 4, EPS / (16 * IOTA**2 * 2**IOTA))


@right(
    "unlabelled:stuck-probability",
    text="omega/r = 400 iota^2 2^-iota L_phi/sqrt(rho_phi eps) and 400/sqrt(pi) < 2^8; the "
    "ratio of Gamma functions is at most sqrt(d) for d <= 400",
    evidence="certified",
)
def stuck_probability() -> bool:
    """The constant 2^8, with L_phi and rho_phi (see the erratum on iota)."""
    omega = 2 ** (2 - IOTA) * L_PHI * RADIUS
    scale = 400 * IOTA**2 * 2 ** (-IOTA) * L_PHI / sp.sqrt(RHO_PHI * EPS)
    halves = [arb(d) / 2 for d in range(1, 401)]
    ratios = all((h + 1).gamma() / (h + arb(1) / 2).gamma() <= (2 * h).sqrt() for h in halves)
    return same(omega / NOISE, scale) and bool(400 / arb.pi().sqrt() < 256) and ratios


@right("unlabelled:escape-decrease", text="eps eta r + L_phi eta^2 r^2/2 <= F/2: at most 1/4 + 1/3200 of F, by (3.4)")
def escape_decrease() -> bool:
    """In units of F, with L_phi = sqrt(rho_phi eps) and iota = 1, the worst case."""
    worst = {L_PHI: sp.sqrt(RHO_PHI * EPS), IOTA: 1}
    risen = (EPS * ETA * NOISE + L_PHI * ETA**2 * NOISE**2 / 2) / FALL
    return same(risen.subs(worst), sp.Rational(1, 4) + sp.Rational(1, 3200))


@right(
    "unlabelled:power-of-two", text="(1 + x)^(1/x) >= 2 for x in (0, 1]: log(1 + x) is concave, and x log 2 its chord"
)
def power_of_two() -> bool:
    """The second derivative of log(1 + x) is negative; the chord from 0 to 1 is x log 2."""
    x = sp.Symbol("x", positive=True)
    f = sp.log(1 + x)
    return bool(sp.diff(f, x, 2).is_negative and f.subs(x, 0) == 0 and f.subs(x, 1) == sp.log(2))


@right(
    "unlabelled:case-1-decrease",
    "AID-bound-nablaphi-nablahatphi",
    text="4/25 - 1/25 = 3/25, and the accuracy is below eps/5",
)
def case_1() -> bool:
    """The constants of Case 1."""
    return Fraction(1, 4) * Fraction(16, 25) - Fraction(1, 25) == Fraction(3, 25) and Fraction(17, 6400) < Fraction(
        1, 25
    )


@right(
    "unlabelled:aid-total",
    "iter-number-AID",
    text="T/F = 100 iota^4 L_phi/eps^2, so K = O~(kappa^3 eps^-2); rho_phi is of order kappa^5",
)
def orders() -> bool:
    """With ell = rho = M = nu = 1 and mu = 1/kappa."""
    kappa = sp.Symbol("kappa")
    L_phi = (1 + kappa) ** 2 * (1 + kappa)
    rho_phi = (1 + kappa) ** 3 * (1 + kappa + 3 * kappa * (1 + kappa))
    ratio = same(TIME / FALL, 100 * IOTA**4 * L_PHI / EPS**2)
    return ratio and (sp.degree(sp.expand(L_phi), kappa), sp.degree(sp.expand(rho_phi), kappa)) == (3, 5)


@right("eq:phi-smooth-neon", text="-1 + 1/8 + 1/8 + 1/2 = -1/4")
def neon_descent() -> bool:
    """The coefficients of |u_{k+1} - u_k|^2/eta."""
    return -1 + Fraction(1, 8) + Fraction(1, 8) + Fraction(1, 2) == -Fraction(1, 4)


@right(
    "eq92",
    "eq:localize-neon",
    "unlabelled:neon-coupling-i",
    text="81/1600 again, and 9/40 + 2/400 <= 1/4 even with eta r counted twice",
)
def neon_localisation() -> bool:
    """With T/4 and 4 F."""
    inside = 4 * ETA * NEON_TIME * NEON_FALL + 8 * ETA**2 * NEON_TIME**2 * sp.Rational(17, 800) / IOTA**4 * EPS**2
    return same(inside, sp.Rational(81, 1600) / IOTA**2 * EPS / RHO_PHI) and Fraction(92, 400) <= Fraction(1, 4)


@right(
    "phixf-ineq",
    "eq:u-bound",
    "unlabelled:neon-stopping",
    "eq105",
    "unlabelled:neon-quadratic-form",
    "unlabelled:neon-rayleigh",
    text="1/320000, 1/250, 11519/12800, -F/5 and 32/1125 >= 1/40 of iNEON's stopping test",
)
def neon_numbers() -> bool:
    """The chain of numbers, in units of sqrt(eps^3/rho_phi)/iota^3."""
    start, fall, error = Fraction(1, 2 * 400**2), Fraction(1, 25), Fraction(1, 250)
    stopping = (start - fall + error) / fall == -Fraction(11519, 12800)
    errors = Fraction(2, 750) + Fraction(3, 4) / 750 <= error
    form = start - fall + 2 * error + Fraction(9, 6 * 64) <= -fall / 5
    return stopping and errors and form and Fraction(2, 5) * fall * 16 / 9 == Fraction(32, 1125) >= Fraction(1, 40)


@right("eq:eyk", "eq:yjtt", text="the rate ((ell - mu)/(ell + mu))^2, and the noise sigma^2/(ell mu S) in the limit")
def sgd() -> bool:
    """At alpha = 2/(ell + mu)."""
    rate = ((ELL - MU) / (ELL + MU)) ** 2
    return same(1 - 4 * ELL * MU / (ELL + MU) ** 2, rate) and same(4 / (ELL + MU) ** 2 / (1 - rate), 1 / (ELL * MU))


@right(
    "lem:saddle-decrease", text="with the corrected step s = c/rho_phi the decrease is c^3/(3 rho_phi^2), as claimed"
)
def saddle_decrease() -> bool:
    """c s^2/2 - rho_phi s^3/6 at its best s but for a constant."""
    c = sp.Symbol("c", positive=True)
    s = c / RHO_PHI
    return same(c * s**2 / 2 - RHO_PHI * s**3 / 6, c**3 / (3 * RHO_PHI**2))


@right(
    "unlabelled:stochastic-case-1",
    "thm45-bound-case2-b1",
    "thm45-bound-case2-b2",
    "hess-err",
    "grad-err",
    text="9/400 - 1/400 = 1/50; 3/5 + 2/10 = 4/5 and 4/5 + 2/10 = 1; 11/880 = 1/80 and 6/60 = 1/10",
)
def stochastic_numbers() -> bool:
    """The numbers of Theorem 4.5 and of its batch lemmas."""
    gain = Fraction(1, 16) * Fraction(9, 25) - Fraction(1, 400) == Fraction(1, 50)
    tests = Fraction(3, 5) + Fraction(2, 10) == Fraction(4, 5) and Fraction(4, 5) + Fraction(2, 10) == 1
    return gain and tests and Fraction(11, 880) == Fraction(1, 80) and Fraction(6, 60) == Fraction(1, 10)


@right(
    "le:variancc",
    text="the part of the batches B_j alone: exact second moments for a two-point g_yy, kappa = 2, 5 and 20",
    evidence="sampled",
)
def batch_variance() -> bool:
    """n = 1, y^D = y*, f_y = 1: the mean square error of ell v_Q against its share of the bound."""
    cases = [(Fraction(kappa), B, depth) for kappa in (2, 5, 20) for B in (1, 4, 100) for depth in (1, 3, 10)]
    return all(
        _mean_square_error(kappa, B, depth) <= 16 * kappa**2 / B + 16 * kappa**2 * (1 - 1 / kappa) ** (2 * depth)
        for kappa, B, depth in cases
    )


def _mean_square_error(ell: Fraction, B: int, depth: int) -> Fraction:
    """By the first two moments of the residual and of the partial sum; g_yy is mu = 1 or ell with equal chances."""
    eta, mean, spread = 1 / ell, (1 + ell) / 2, (ell - 1) ** 2 / 4
    v, rr, rv, vv, r = eta, Fraction(1), eta, eta**2, Fraction(1)
    for j in range(1, depth + 1):
        size = max(1, ceil(B * depth * (1 - eta) ** (j - 1)))
        shrinks = 1 - eta * mean
        r, rr, rv = shrinks * r, (shrinks**2 + eta**2 * spread / size) * rr, shrinks * rv
        v, vv, rv = v + eta * r, vv + 2 * eta * rv + eta**2 * rr, rv + eta * rr
    return ell**2 * (vv - 2 * v / mean + 1 / mean**2)
