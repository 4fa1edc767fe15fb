"""Errors about the inner loops: their lengths, their rates, and the warm start between them."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from itertools import count, product

from flint import arb

from bilevel_sym import Constants
from bilevel_sym.theories.huang_saddle.schedules.inner import conjugate_rate, descent_rate, least_steps, sgd_rate
from verify.erratum import Formula, erratum


@erratum(
    "eq:aid-ND",
    "eq:aid-ND-neon",
    printed="N = log(C)/log((1 + sqrt(kappa))/(1 - sqrt(kappa)))",
    corrected="N = log(C)/log((sqrt(kappa) + 1)/(sqrt(kappa) - 1)), rounded up",
    forms=(lambda root: (1 + root) / (1 - root), lambda root: 1 / Fraction(conjugate_rate(1.0, float(root**2)))),
    witness="kappa = 4, 9 and 100; for kappa = 4 the argument is (1 + 2)/(1 - 2) = -3 against 3",
    why="For kappa > 1 the print takes the logarithm of a negative number.",
    severity="misprint",
)
def log_negative(form: Formula) -> bool:
    """The base is above 1, and the least N with base^N >= C makes C times the rate of CG to the N at most 1."""

    def enough(root: Fraction, C: Fraction) -> bool:
        base = form(root)
        if not base > 1:
            return False
        N = next(k for k in count() if base**k >= C)
        return C * ((root - 1) / (root + 1)) ** N <= 1

    return all(enough(Fraction(root), Fraction(C)) for root, C in product((2, 3, 10), (7, 10**6)))


@erratum(
    "unlabelled:stocbio-D",
    printed="D > (1/2) log(1/4)/log((1 - kappa)/(1 + kappa))",
    corrected="D > (1/2) log(1/4)/log((kappa - 1)/(kappa + 1))",
    forms=(lambda kappa: (1 - kappa) / (1 + kappa), lambda kappa: Fraction(sgd_rate(1.0, float(kappa)))),
    witness="kappa = 3, 10 and 99; for kappa = 3 the logarithm is that of -1/2 against 1/2",
    why="The ratio is negative for every kappa > 1.",
    severity="misprint",
)
def stocbio_d(form: Formula) -> bool:
    """The rate lies in (0, 1), and the least D with rate^(2 D) < 1/4 does what it is chosen for."""

    def enough(kappa: Fraction) -> bool:
        rate = form(kappa)
        if not 0 < rate < 1:
            return False
        D = next(k for k in count() if rate ** (2 * k) < Fraction(1, 4))
        return ((kappa - 1) / (kappa + 1)) ** (2 * D) < Fraction(1, 4)

    return all(enough(Fraction(kappa)) for kappa in (3, 10, 99))


def _printed_steps(C: Fraction, kappa: Fraction) -> int:
    """2 log(C)/log(1/(1 - 1/kappa)), rounded up; at kappa = 1 its limit, 0."""
    return 0 if kappa == 1 else math.ceil(2 * math.log(C) / math.log(1 / (1 - 1 / kappa)))


@erratum(
    "eq:aid-ND",
    "eq:gdmax-D",
    "eq:gdmax-error-D",
    "eq:aid-ND-neon",
    "unlabelled:warm-start-D-N",
    printed="D = 2 log(C)/log(1/(1 - 1/kappa)) for every kappa >= 1",
    corrected="the least integer D >= 1 with C (1 - 1/kappa)^(D/2) <= 1, which is 1 for kappa = 1",
    forms=(
        _printed_steps,
        lambda C, kappa: least_steps(float(C), 1.0, descent_rate(1.0, float(kappa)), per_step=Decimal("0.5")),
    ),
    witness="kappa = 1 (g = y^2/2 - x y), C = 10: the print divides by zero; its limit, D = 0, leaves the error as "
    "it is",
    why="kappa = 1 is allowed by the assumptions and needs its own case, in D and in N.",
    severity="gap",
    modelled=True,
)
def kappa_one(form: Formula) -> bool:
    """The number of steps brings C (1 - 1/kappa)^(D/2) down to 1."""
    cases = product((Fraction(10), Fraction(10**6)), (Fraction(1), Fraction(2), Fraction(9)))
    return all(C**2 * (1 - 1 / kappa) ** form(C, kappa) <= 1 for C, kappa in cases)


@erratum(
    "unlabelled:warm-start-D-N",
    "lem:grad-err-aid",
    "eq:aid-ND-thm",
    printed="D = 2 log(2 ((1 + 2 sqrt(kappa))(kappa + rho M/mu^2) + 1))/log(1/(1 - 1/kappa)) = O(kappa)",
    corrected="D = O(kappa log kappa), and N = O(sqrt(kappa) log kappa)",
    forms=(lambda kappa: kappa, lambda kappa: kappa * kappa.log()),
    witness="ell = rho = M = 1, mu = 1/kappa, kappa = 10^10 and 10^40: D/kappa grows by the factor 3.9",
    why="The numerator is the logarithm of a power of kappa, and O() hides absolute constants only.",
    evidence="certified",
    severity="loose",
    modelled=True,
)
def warm_start_order(form: Formula) -> bool:
    """D divided by its order does not double between the two condition numbers (in balls that hold every digit)."""

    def ratio(kappa: arb) -> arb:
        D = 2 * (2 * ((1 + 2 * kappa.sqrt()) * (kappa + kappa**2) + 1)).log() / -(-1 / kappa).log1p()
        return D / arb(form(kappa))

    return bool(ratio(arb(10) ** 40) < 2 * ratio(arb(10) ** 10))


@erratum(
    "alg:perturbedalg",
    "alg:iNEON",
    "unlabelled:algorithm-1-step-7",
    "eq:gdrate",
    printed="for t = 0, ..., D: y^t = y^{t-1} - tau grad_y g(x, y^{t-1})",
    corrected="for t = 1, ..., D",
    forms=(lambda D: range(D + 1), lambda D: range(1, D + 1)),
    witness="D = 3, y^0 given: the first step reads y^{-1}",
    why="y^{-1} does not exist, and D steps from y^0 are what the rate and the counts of gradients assume.",
    severity="misprint",
    modelled=True,
)
def inner_loop(form: Formula) -> bool:
    """The loop finds every iterate that it reads, and makes D steps."""
    D, y = 3, {0: Fraction(1)}
    for t in form(D):
        if t - 1 not in y:
            return False
        y[t] = y[t - 1] - Fraction(1, 2) * y[t - 1]  # g = y^2/2, tau = 1/2
    return len(y) == D + 1 and y[D] == Fraction(1, 2) ** D


@erratum(
    "eq:gdrate",
    printed="|y^D - y*| <= (1 - mu/ell)^(D/2) |y^0 - y*| for tau = 1/ell",
    corrected="(1 - mu/ell)^D: half of every printed D is enough",
    forms=(lambda rate, D: rate**D, lambda rate, D: rate ** (2 * D)),
    witness="g = h y^2/2, mu <= h <= ell: the factor is (1 - h/ell)^D, largest at h = mu, where it is (1 - mu/ell)^D",
    why="y^{t+1} - y* = (I - H/ell)(y^t - y*) with a mean Hessian mu <= H <= ell.",
    severity="loose",
)
def gdrate(form: Formula) -> bool:
    """The square of the worst factor of descent over all curvatures is the bound, neither more nor less."""

    def attained(mu: Fraction, ell: Fraction, D: int) -> bool:
        curvatures = [mu + (ell - mu) * Fraction(i, 20) for i in range(21)]
        return bool(max((1 - h / ell) ** (2 * D) for h in curvatures) == form(1 - mu / ell, D))

    return attained(Fraction(1), Fraction(2), 3) and attained(Fraction(1), Fraction(10), 7)


@erratum(
    "unlabelled:estimate-norm",
    "eq:equvseq",
    "def-gamma1-AID",
    printed="|grad-hat Phi| <= M + ell M/mu",
    corrected="|grad-hat Phi| <= M + ell M/mu + the bound on |grad-hat Phi - grad Phi|",
    forms=(lambda bound, error: bound, lambda bound, error: bound + error),
    witness="g_yy = diag(1, 2, 4), f_y = (1, 0, 0), f_x = -1, g_xy = (4, 0, 0), y^D = y*, v^0 = (100, 100, 100) and "
    "N = 2 steps of CG, enough for (B.31)",
    why="|v| <= M/mu holds for the exact solution, and for CG from v = 0; a v^N that was warm-started can be longer.",
)
def estimate_norm(form: Formula) -> bool:
    """The AID estimate, computed in rational arithmetic, is no longer than the bound."""
    diagonal, f_y, f_x = [Fraction(1), Fraction(2), Fraction(4)], [Fraction(1), Fraction(0), Fraction(0)], Fraction(-1)
    c = Constants(Fraction(1), Fraction(4), Fraction(0), Fraction(0), Fraction(1))
    root, N, start = 2, 2, [Fraction(100)] * 3  # root = sqrt(kappa)
    v = conjugate_gradients(diagonal, f_y, start, N)
    leaves = 2 * root * Fraction(root - 1, root + 1) ** N  # of |v^0 - v*|, which is below 173
    distance = sum((s - b / a) ** 2 for a, b, s in zip(diagonal, f_y, start, strict=True))
    contracts = leaves <= Fraction(1, 2) and distance <= 173**2
    return bool(contracts and abs(f_x - 4 * v[0]) <= form(c.hypergradient_bound, c.ell * leaves * 173))


def conjugate_gradients(
    diagonal: list[Fraction], right: list[Fraction], start: list[Fraction], steps: int
) -> list[Fraction]:
    """Conjugate gradients in exact arithmetic for a diagonal matrix.

    >>> conjugate_gradients([Fraction(2)], [Fraction(1)], [Fraction(5)], 1)
    [Fraction(1, 2)]
    """
    v = list(start)
    residual = [b - a * s for a, b, s in zip(diagonal, right, v, strict=True)]
    direction = list(residual)
    for _ in range(steps):
        image = [a * p for a, p in zip(diagonal, direction, strict=True)]
        before = _dot(residual, residual)
        if before == 0:
            return v
        length = before / _dot(direction, image)
        v = _add(v, direction, length)
        residual = _add(residual, image, -length)
        direction = _add(residual, direction, _dot(residual, residual) / before)
    return v


def _dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((s * t for s, t in zip(a, b, strict=True)), Fraction(0))


def _add(a: list[Fraction], b: list[Fraction], factor: Fraction) -> list[Fraction]:
    return [s + factor * t for s, t in zip(a, b, strict=True)]


@erratum(
    "eq:warmstart-y",
    "eq:warmstart-v",
    "eq:gdmax-error-bound",
    printed="|x_k - x_{k-1}| <= eta |grad-hat Phi(x_{k-1})| for all k",
    corrected="|x_k - x_{k-1}| <= eta (|grad-hat Phi(x_{k-1})| + r) where iteration k - 1 perturbs",
    forms=(lambda eta, slope, r: eta * slope, lambda eta, slope, r: eta * (slope + r)),
    witness="f = cos(x), g = (y - x)^2/2 (kappa = 1), x_{k-1} = 0, where Phi' = 0, y = y*, u = r: x_k = -eta r",
    why="The recursion forgets that a perturbation moves x as well, by up to eta r.",
    severity="gap",
)
def warmstart_perturbed(form: Formula) -> bool:
    """The distance of the warm start y_k^0 = y*(x_{k-1}) from y*(x_k) = x_k is at most kappa times the step of x."""
    eta, r, x = Fraction(1), Fraction(1, 400), Fraction(0)
    estimate = Fraction(0)  # -sin(0)
    x_next = x - eta * r - eta * estimate  # the perturbation and the step of one printed iteration
    return bool(abs(x - x_next) <= form(eta, abs(estimate), r))
