"""Errors in the analysis of stocBiO: its Neumann series, its mean square error, its expected descent."""

from __future__ import annotations

from fractions import Fraction

from flint import arb, fmpq

from bilevel_sym import Constants
from verify.erratum import Formula, erratum


@erratum(
    "est-vq",
    "le:first_m",
    "thm:stocneon",
    printed="v_Q with eta = 1/L_phi, as Theorem 4.5 sets it, has a bias of at most ell M (1 - 1/kappa)^Q/mu",
    corrected="the step of the Neumann series must be 1/ell; with eta the rate is 1 - eta mu",
    forms=(lambda c: 1 / c.L_phi(), lambda c: 1 / c.ell),
    witness="f = y, g = y^2/2 - x y (kappa = 1, L_phi = 4): the bias is (3/4)^(Q+1), and the bound 0",
    why="One letter eta stands for the outer step 1/L_phi and for the step of the Neumann series.",
)
def neumann_step(form: Formula) -> bool:
    """The squared bias with Q = 8 is at most 2 (ell M/mu)^2 (1 - 1/kappa)^(2 Q)."""
    c, depth = Constants(Fraction(1), Fraction(1), Fraction(0), Fraction(0), Fraction(1)), 8
    eta = form(c)
    v = eta * sum((1 - eta * c.mu) ** i for i in range(depth + 1)) * c.M  # f_y = M, g_xy = -1, y^D = y*
    return bool((v - c.M / c.mu) ** 2 <= 2 * (c.ell * c.M / c.mu) ** 2 * (1 - 1 / c.kappa) ** (2 * depth))


@erratum(
    "est-vq",
    "le:first_m",
    "le:variancc",
    printed="truncation error of v_Q: (M/mu)(1 - 1/kappa)^Q",
    corrected="(M/mu)(1 - 1/kappa)^(Q+1)",
    forms=(lambda depth: depth, lambda depth: depth + 1),
    witness="g_yy = mu = 1, ell = 2, f = y, Q = 5: v_Q = 1 - 2^-6",
    why="The sum from q = -1 to Q - 1 has Q + 1 terms.",
    severity="loose",
)
def neumann_terms(form: Formula) -> bool:
    """The error of the truncated series is the bound, neither more nor less."""
    mu, ell, M, depth = Fraction(1), Fraction(2), Fraction(1), 5
    rate = 1 - mu / ell
    v = sum(rate ** (q + 1) for q in range(-1, depth)) / ell * M
    return bool(M / mu - v == M / mu * rate ** form(depth))


@erratum(
    "le:variancc",
    "eq:expect-phi",
    printed="E|grad-hat Phi - grad Phi|^2 <= ... + 16 ell^2 M^2 q^(2 Q)/mu^2 + c^2 E|y^D - y*|^2 with q = 1 - 1/kappa "
    "and c = (1 + kappa)(ell + rho M/mu)",
    corrected="(16/15) c^2 in place of c^2, hence 19 beta/15 in place of 5 beta/4 in (D.53)",
    forms=(lambda: (Fraction(1), Fraction(5, 4)), lambda: (Fraction(16, 15), Fraction(19, 15))),
    witness="f = y, g = y^2/2 + 2 x y + rho d^3 sin((y - x)/d), rho = 10^4, rho d = 1/2000, every sample equal to "
    "its mean (Assumption 2.1 holds on R^2, read block by block), x = y* = -rho d^2/3, y^D = y* - d/10, Q = 19, "
    "batches of 10^20",
    why="Proof. Given x_k and y^D, E|h - Phi'|^2 is the variance of h plus the squared bias. The bias is at most a + "
    "b, a = c |y^D - y*| and b = (ell M/mu) q^Q the truncation, and (a + b)^2 = (16/15) a^2 + 16 b^2 - (a - 15 "
    "b)^2/15; with 1 for 16/15 it fails once a > 7.5 b, and beside 16 no smaller factor does. The batches are "
    "independent, so variances add up: that of D_G is at most ell^2 |v_Q|^2/D_g <= kappa^2 M^2/D_g, that of D_F at "
    "most (M + kappa M)^2/D_f <= (2 + 2 kappa^2) M^2/D_f, and the B_j, revealed from j = Q downwards, make a "
    "martingale whose j-th difference is g_xy eta (sum of the mean products) eta (H_j - E H_j) (product of those "
    "before) f_y, so that they add up to at most sum_j eta^2 ell^4 M^2 q^(j-1)/(mu^2 B Q) <= eta^2 ell^4 M^2/(mu^2 B). "
    "The printed terms, with 4, 8, 2 and 16, are larger.",
    evidence="certified",
)
def variance(form: Formula) -> bool:
    """The squared error of the estimate, enclosed in a ball, is at most the bound; so is (a + b)^2, for all a and b."""
    p, rho, depth, batch, s = arb(1) / 2000, arb(10) ** 4, 19, arb(10) ** 20, arb(-1) / 10
    mu, ell, shift = 1 - p, 2 + p, p / rho / 10  # bounds of g_yy and g_xy, M = 1; |y^D - y*| = d/10

    def g_yy(at: arb) -> arb:  # at (y - x)/d, which is 0 for y*
        return 1 - p * at.sin()

    def g_xy(at: arb) -> arb:
        return 2 + p * at.sin()

    v = (1 - (1 - g_yy(s) / ell) ** (depth + 1)) / g_yy(s)  # the Neumann series with step 1/ell
    error = g_xy(arb(0)) / g_yy(arb(0)) - g_xy(s) * v
    noise = (28 * ell**2 + 2 * mu**2) / mu**2 / batch  # 4 + 8 + 16 times kappa^2, and 2
    truncation = 16 * (ell / mu) ** 2 * (1 - mu / ell) ** (2 * depth)
    c = (1 + ell / mu) * (ell + rho / mu)
    factor, descent = form()
    bound = noise + truncation + arb(fmpq(factor.numerator, factor.denominator)) * (c * shift) ** 2
    combined = descent == Fraction(1, 2) * 2 + factor / 4  # (beta/2) 2 c^2 of the bias, and beta/4 of this
    return bool(error**2 <= bound) and combined and _least_beside_16(factor)


def _least_beside_16(factor: Fraction) -> bool:
    """Whether factor a^2 + 16 b^2 >= (a + b)^2 for all a, b, and for no smaller factor."""

    def enough(value: Fraction) -> bool:  # (value - 1) a^2 - 2 a b + 15 b^2 is never negative
        return (value - 1) * 15 >= 1

    return enough(factor) and not enough(factor - Fraction(1, 10**9))


@erratum(
    "eq:expect-phi",
    "unlabelled:stocbio-combined",
    "unlabelled:stocbio-budget",
    printed="c = ell + ell^2/mu + M tau/mu + ell M rho/mu^2, where tau = 1/ell is the lower-level step",
    corrected="c = ell + ell^2/mu + M rho/mu + ell M rho/mu^2",
    forms=(lambda M, rho, ell: M / ell, lambda M, rho, ell: M * rho),
    witness="f = 100 y, g = y^2/2 + 20 y^3/6 + x (y - 10 y^2) at x = 0, y* = 0, y^D = 1e-4, over a box with x <= 0 "
    "and y from y* to y^D (mu = 1, ell = 1.002, rho = 20), every sample equal to its mean",
    why="In the lemmas that are combined here the term is M rho/mu; M tau/mu does not cover how g_xy changes with y.",
    severity="misprint",
)
def expect_phi(form: Formula) -> bool:
    """What the bias adds to the expected descent, over beta, is at most the bound."""
    M, rho, d, mu, depth = Fraction(100), Fraction(20), Fraction(1, 10**4), Fraction(1), 10
    ell = 1 + rho * d  # g_yy at y^D; g_xy is 1 at y* and 1 - rho d at y^D
    v = M / ell * sum((1 - (1 + rho * d) / ell) ** i for i in range(depth + 1))
    bias = M - (1 - rho * d) * v
    series = (ell * M / mu) ** 2 * (1 - mu / ell) ** (2 * depth)
    c = ell + ell**2 / mu + form(M, rho, ell) / mu + ell * M * rho / mu**2
    return bool((Fraction(1, 2) + Fraction(1, 4)) * bias**2 <= 5 * series + Fraction(5, 4) * (c * d) ** 2)


@erratum(
    "unlabelled:stocbio-budget",
    "unlabelled:stocbio-combined",
    printed="Delta-hat + 4 kappa^2 (M + kappa M)^2 + 6 sigma^2/(ell mu S) in the budget",
    corrected="Delta-hat + 4 kappa^2 beta^2 (M + kappa M)^2 + 4 sigma^2/(ell mu S), as two displays before",
    forms=(lambda beta: 1, lambda beta: beta**2),
    witness="mu = ell = 1/100, rho = 0, M = 1, sigma = 0: L_phi = 1/25 and beta = 25/4",
    why="beta^2 is dropped: where beta > 1, that is L_phi < 1/4, the budget does not cover (D.59). 6 for 4 is "
    "harmless.",
    severity="misprint",
)
def budget(form: Formula) -> bool:
    """The budget covers steps of length beta (M + kappa M), summed with the weights of the recursion."""
    c = Constants(Fraction(1, 100), Fraction(1, 100), Fraction(0), Fraction(0), Fraction(1))
    beta = 1 / (4 * c.L_phi())
    steps = 2 * c.kappa**2 * (beta * c.hypergradient_bound) ** 2  # enters every iteration, halved each time: twice this
    return bool(4 * c.kappa**2 * form(beta) * c.hypergradient_bound**2 >= 2 * steps)


@erratum(
    "eq:y-opt-error",
    printed="|x_k - x_{k-1}| <= beta (M + kappa M) for all k",
    corrected="|x_k - x_{k-1}| <= max(beta (M + kappa M), sqrt(eps/rho_phi)/(80 iota)): iteration k - 1 may have "
    "moved along u",
    forms=(lambda gradient, along_u: gradient, lambda gradient, along_u: max(gradient, along_u)),
    witness="mu = 1, ell = 2, rho = 1, nu = 0, M = 1e-10, eps = M + kappa M, iota = 180, no noise, y_0 = y*: after one "
    "escape E|y_k^0 - y*(x_k)|^2 is 110 times the printed bound",
    why="A step along iNEON's direction has its own length, which need not be that small.",
    severity="gap",
)
def escape_move(form: Formula) -> bool:
    """E|y_k^0 - y*(x_k)|^2 stays below 4 kappa^2 times the squared bound on the move, over ten escapes in a row."""
    c, iota = Constants(Fraction(1), Fraction(2), Fraction(1), Fraction(0), Fraction(1, 10**10)), 180
    eps, kappa = c.hypergradient_bound, c.kappa
    ratio = c.L_phi() ** 2 / (c.rho_phi() * eps)
    if not (ratio >= 1 and ratio * iota**4 * Fraction(2) ** (16 - iota // 2) < 1):
        raise ArithmeticError("the witness breaks (3.4) or the condition on iota")
    gradient, along_u = (eps / (4 * c.L_phi())) ** 2, eps / c.rho_phi() / (80 * iota) ** 2  # both lengths squared
    rate = ((c.ell - c.mu) / (c.ell + c.mu)) ** 2  # D = 1 gives 1/9 < 1/4
    distance, allowed = Fraction(0), 4 * kappa**2 * form(gradient, along_u)
    for _ in range(10):  # the signs are independent, so squares add up
        distance = rate * distance + kappa**2 * along_u
        if distance > allowed:
            return False
    return True


@erratum(
    "lem:stocbio-decrease",
    "eq:f-dec2",
    printed="x_{k+1} = x_k - grad-hat Phi(x_k)",
    corrected="x_{k+1} = x_k - beta grad-hat Phi(x_k), beta = 1/(4 L_phi)",
    forms=(lambda L: 1, lambda L: 1 / (4 * L)),
    witness="Phi = 2 x^2 (L_phi = 4), exact gradient, x = 1, eps = 1/10: Phi rises from 2 to 18",
    why="The step size is missing in the statement; the algorithm and the proof have it.",
    severity="misprint",
)
def missing_beta(form: Formula) -> bool:
    """Phi falls by |Phi'|^2/(16 L_phi), up to eps^2/(400 L_phi)."""
    L, x, eps = Fraction(4), Fraction(1), Fraction(1, 10)
    slope, x_next = L * x, x - form(L) * L * x
    change = L * x_next**2 / 2 - L * x**2 / 2
    return bool(change <= -(slope**2) / (16 * L) + eps**2 / (400 * L))


@erratum(
    "unlabelled:stochastic-case-2",
    "thm45-bound2",
    "unlabelled:stochastic-total",
    printed="Case 2 counts only the decrease F = sqrt(eps^3/rho_phi)/(3 80^3 iota^3) of the step along u",
    corrected="a budget of min(eps^2/(400 L_phi), F/2) in Lemma D.7, so that a loop that escapes lowers Phi by F/2 at "
    "least",
    forms=(lambda rise, F: rise, lambda rise, F: min(rise, F / 2)),
    witness="L_phi = rho_phi = eps = 1, iota = 2: F = 1/12288000, and the stocBiO step of the same loop may raise E "
    "Phi by eps^2/(400 L_phi) = 1/400",
    why="Every loop of Algorithm 3 also makes a stocBiO step. Near stationary points (D.52) allows a rise of "
    "eps^2/(400 L_phi), which is more than F unless L_phi/sqrt(rho_phi eps) > 3840 iota^3.",
    severity="gap",
    modelled=True,
)
def net_decrease(form: Formula) -> bool:
    """One loop at a stationary point that ends in an escape lowers E Phi by half of F at least."""

    def falls(L: Fraction, iota: Fraction) -> bool:  # rho_phi = eps = 1
        F = 1 / (3 * 80**3 * iota**3)
        return bool(-F + form(1 / (400 * L), F) <= -F / 2)

    return all(falls(Fraction(L), Fraction(iota)) for L in (1, 100, 10**9) for iota in (2, 20))
