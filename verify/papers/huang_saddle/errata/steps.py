"""Steps of proofs that were recomputed and found right."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction

import sympy as sp
from flint import arb

from bilevel_sym import BilevelProblem, MinimaxConstants, derive
from verify.papers.huang_saddle.errata.right import (
    ELL,
    EPS,
    ETA,
    IOTA,
    KAPPA,
    L_PHI,
    MU,
    NEON_TIME,
    RADIUS,
    RHO,
    RHO_PHI,
    TIME,
    M,
    right,
    same,
)

# ---- the Hessian, the estimate, descent --------------------------------------------------------------------------


@right("unlabelled:inverse-difference", text="X^-1 - Y^-1 = X^-1 (Y - X) Y^-1, hence the bound on its norm")
def inverse_difference() -> bool:
    """For matrices: the entries of 2 x 2 blocks are symbols."""
    X, Y = (sp.Matrix(2, 2, sp.symbols(f"{name}0:4")) for name in "xy")
    difference = X.inv() - Y.inv() - X.inv() * (Y - X) * Y.inv()
    return all(sp.cancel(sp.together(entry)) == 0 for entry in difference)


@right(
    "unlabelled:remark-extra-smoothness",
    text="nu is needed: for f = y, g = y^2/2 - h(x) y, Phi''' = h''' = -g_xxxy, so no bound on Phi''' exists without "
    "it",
)
def third_derivatives_needed() -> bool:
    """The third derivative of Phi is minus that of g in (x, x, x, y), whatever h is."""
    x, y = sp.symbols("x y")
    h = sp.Function("h")(x)
    g = y**2 / 2 - h * y
    phi = sp.solve(sp.diff(g, y), y)[0]
    return same(sp.diff(phi, x, 3), -sp.diff(g, x, x, x, y))


@right(
    "unlabelled:remark-no-third-order",
    text="the third derivative of a minimax Phi has no derivative of f above the third, for an undefined f with d = n "
    "= 1; MinimaxConstants has no nu",
)
def no_fourth_derivative() -> bool:
    """Phi' = f_x(x, y*(x)), differentiated twice by the implicit function theorem."""
    x, y = sp.symbols("x y")
    f = sp.Function("f")(x, y)
    slope = -sp.diff(f, x, y) / sp.diff(f, y, 2)

    def along(expression: sp.Expr) -> sp.Expr:  # the derivative in x where y follows y*(x)
        return sp.diff(expression, x) + sp.diff(expression, y) * slope

    third = along(along(sp.diff(f, x)))
    orders = {sum(count for _, count in item.variable_count) for item in third.atoms(sp.Derivative)}
    return max(orders) == 3 and "nu" not in {field.name for field in fields(MinimaxConstants)}


@right(
    "eq:erroraid",
    "eq:erroraid_new",
    "unlabelled:v-hat",
    text="the error of AID is (f_x(y^D) - f_x(y*)) + g_xy(y^D)(v* - v^N) + (g_xy(y*) - g_xy(y^D)) v*, and |v*| <= M/mu "
    "makes it (ell + rho M/mu) |y* - y^D| + ell |v* - v^N|",
)
def aid_split() -> bool:
    """As an identity of matrices that do not commute, and with the norms put in."""
    fD, f, gD, g, vN, v = sp.symbols("f_D f g_D g v_N v", commutative=False)
    split = (fD - f) + gD * (v - vN) + (g - gD) * v
    y, w = sp.symbols("y w", positive=True)  # |y* - y^D| and |v* - v^N|
    norms = ELL * y + ELL * w + RHO * y * M / MU
    return sp.expand((fD - gD * vN) - (f - g * v) - split) == 0 and same(norms, (ELL + RHO * M / MU) * y + ELL * w)


@right(
    "unlabelled:sum-of-products",
    "eq:aid-error2",
    text="(a + c)(b + d) - (a b + c d) = a d + b c >= 0; max(a, c)(b + d) is smaller, and enough",
)
def sum_of_products() -> bool:
    """With the two warm-start distances for b and d, whose sum is at most Gamma_1."""
    a, b, c, d = sp.symbols("a b c d", positive=True)
    rest = sp.expand((a + c) * (b + d) - a * b - c * d)
    larger = sp.expand((a * (b + d) - a * b - c * d).subs(a, c + sp.Symbol("e", nonnegative=True)))
    return bool(rest.is_positive and larger.is_nonnegative)


@right(
    "unlabelled:descent-chain",
    "unlabelled:descent-inequality",
    text="-1 + 1/4 + 1/2 = -1/4 in units of eta |ghat|^2, and Young's inequality leaves (|s|/(2 sqrt(eta)) - sqrt(eta) "
    "|e|)^2",
)
def descent_chain() -> bool:
    """With s = x_{k+1} - x_k = -eta ghat and L_phi = 1/eta."""
    eta, size, e = sp.symbols("eta ghat e", positive=True)
    s = eta * size
    young = s**2 / (4 * eta) + eta * e**2 - s * e
    chain = -size * s + s**2 / (4 * eta) + s**2 / (2 * eta) + eta * e**2
    return same(young, (s / (2 * sp.sqrt(eta)) - sp.sqrt(eta) * e) ** 2) and same(
        chain, -eta * size**2 / 4 + eta * e**2
    )


@right(
    "L-phi-big",
    "unlabelled:remark-large-L-phi",
    text="if L_phi < sqrt(rho_phi eps), every point with |Phi'| <= eps is an eps-local minimum, as lambda_min >= "
    "-L_phi",
)
def large_l_phi() -> bool:
    """The eigenvalue -L_phi is the least that is possible: L_phi^2 <= rho_phi eps where L_phi is less by any factor."""
    less = sp.Symbol("less", positive=True)
    least = -sp.sqrt(RHO_PHI * EPS) / (1 + less)
    return bool(sp.factor(RHO_PHI * EPS - least**2).is_positive)


# ---- the escape ----------------------------------------------------------------------------------------------------


@right(
    "eq:contrary",
    "eq:noen-contrary",
    text="min{a, b} > -F is what (B.35) denies: for all signs of a + F and b + F one of the two holds, and never both",
)
def contrary() -> bool:
    """Over the nine cases of below, at and above."""
    cases = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    return all((min(a, b) <= 0) != (a > 0 and b > 0) for a, b in cases)


@right(
    "unlabelled:difference-recursion",
    "unlabelled:delta-definitions",
    "unlabelled:neon-difference",
    "unlabelled:neon-hessian",
    "unlabelled:neon-delta-1",
    "unlabelled:neon-delta-2",
    text="x_k - x'_k = (1 - eta H)^k (x_0 - x'_0) - eta sum (1 - eta H)^(k-1-t) (Delta_1,t (x_t - x'_t) + Delta_2,t), "
    "for a cubic Phi and symbolic errors, three steps; the same for iNEON, where the gradient at x~ cancels",
)
def coupled_difference() -> bool:
    """Two sequences with errors of their own, unrolled."""
    h, c, eta, theta, anchor = sp.symbols("h c eta theta anchor")
    x, other = [sp.Symbol("x")], [sp.Symbol("y")]
    errors = [sp.symbols(f"e{k} d{k}") for k in range(3)]

    def slope(at: sp.Expr) -> sp.Expr:  # of h x^2/2 + c x^3/6, with H = h at the saddle 0
        return h * at + c * at**2 / 2

    for first, second in errors:
        x.append(sp.expand(x[-1] - eta * (slope(x[-1]) + first - anchor)))
        other.append(sp.expand(other[-1] - eta * (slope(other[-1]) + second - anchor)))
    q = sp.Integer(0)
    for k, (first, second) in enumerate(errors):
        way = x[k] - other[k]
        bend = sp.integrate(h + c * (other[k] + theta * way) - h, (theta, 0, 1))
        q = (1 - eta * h) * q + eta * (bend * way + first - second)
    p = (1 - eta * h) ** 3 * (x[0] - other[0])
    return bool(sp.expand(p - q - (x[3] - other[3])) == 0)


@right(
    "eq:qprelation",
    "xhat_t",
    "eq:qkinc1",
    "eq:qkinc-neon",
    "unlabelled:neon-growth",
    text="3/2 + 2/4 = 2, and the worst case of the recursion, computed for T = 8 (iNEON: T = 2), keeps q(k) <= p(k)/2",
)
def induction() -> bool:
    """Every error at its largest and of one sign, in exact arithmetic: rho_phi = eps = 1, L_phi = 2, iota = 4."""

    def keeps(T: int, exponent: int) -> bool:
        L, iota = Fraction(2), Fraction(4)
        eta, radius, grows = 1 / L, 1 / (4 * iota), 1 + 1 / L  # gamma = sqrt(rho_phi eps) = 1
        r0 = L * radius * 4 / Fraction(2) ** exponent
        error = 1 / (16 * iota**2 * Fraction(2) ** exponent)
        p, q = eta * r0, Fraction(0)
        for _ in range(T):
            q = grows * q + eta * (radius * (p + q) + 2 * error)
            p = grows * p
            if q > p / 2:
                return False
        return True

    return Fraction(3, 2) + 2 * Fraction(1, 4) == 2 and keeps(8, 4) and keeps(2, 1)


@right(
    "unlabelled:escape-contradiction",
    "unlabelled:neon-contradiction",
    "unlabelled:neon-coupling-ii",
    "eq:phi-dec-noen2",
    text="2^(iota - 2) eta omega = S, and 2^(iota/4 - 2) eta omega = S for iNEON: a gap above omega leaves the radius, "
    "against (B.38) and (D.9)",
)
def contradiction() -> bool:
    """(1 + x)^(1/x) >= 2 to the power iota = x T, x = eta sqrt(rho_phi eps), for both times."""
    x = ETA * sp.sqrt(RHO_PHI * EPS)
    powers = same(x * TIME, IOTA) and same(x * NEON_TIME, IOTA / 4)
    return powers and all(
        same(2 ** (power - 2) * ETA * (2 ** (2 - power) * L_PHI * RADIUS), RADIUS) for power in (IOTA, IOTA / 4)
    )


@right(
    "k'-satisfy",
    "bound-uk'",
    text="2 eta (9^(1/3) - 2) eps/(8 iota) <= (9^(1/3) - 2) S, by L_phi >= sqrt(rho_phi eps); before k' the decrease "
    "is less than F, so that (D.8) gives |u| <= S there",
)
def first_decrease() -> bool:
    """In units of S, with L_phi = share sqrt(rho_phi eps), share >= 1; and 2 < 9^(1/3)."""
    more = sp.Symbol("more", nonnegative=True)
    excess = sp.cbrt(9) - 2
    ratio = (2 * ETA * excess * EPS / (8 * IOTA) / (excess * RADIUS)).subs(L_PHI, (1 + more) * sp.sqrt(RHO_PHI * EPS))
    return bool(sp.simplify(1 - ratio).is_nonnegative) and bool(arb(9).root(3) > 2)


# ---- GDmax, batches ------------------------------------------------------------------------------------------------


@right(
    "eq:gdmax-error-bound-1",
    "eq:gdmax-error-bound-3",
    text="ell times the rate times Delta-hat + 2 eta kappa (M + kappa M): the library's bound, and the recursion "
    "summed",
    evidence="sampled",
)
def gdmax_error() -> bool:
    """The geometric sum 1 + 1/2 + ... < 2; gdmax_error at mu = 1, ell = 4, D = 4, where the rate is (3/4)^2."""
    c, eta, start, bound = MinimaxConstants(1.0, 4.0, 1.0), 0.125, 0.5, 2.0
    whole = Fraction(4) * (Fraction(1, 2) + 2 * Fraction(1, 8) * 4 * 2) * Fraction(3, 4) ** 2
    reached, distance = start, start
    for _ in range(60):
        distance = distance / 2 + eta * 4 * bound
        reached = max(reached, distance)
    found = c.gdmax_error(4, eta=eta, initial_error=start, gradient_bound=bound)
    return abs(found - float(whole)) <= 1e-12 * found and reached <= start + 2 * eta * 4 * bound


@right(
    "unlabelled:stochastic-split",
    text="the four differences add up to that of the Hessians, whose two mixed terms have one norm",
)
def stochastic_split() -> bool:
    """For f = x1 y^2 + x2 y and two lower levels: the terms of the Hessian of Phi, subtracted one by one."""
    x1, x2, y = sp.symbols("x1 x2 y")
    f = x1 * y**2 + x2 * y
    pair = [derive(BilevelProblem(f, (y - x1 - shift * x2) ** 2 / 2, (x1, x2), y)) for shift in (1, 2)]
    parts = [pair[0].terms["hess_phi"][name] - pair[1].terms["hess_phi"][name] for name in pair[0].terms["hess_phi"]]
    whole = sp.hessian(f.subs(y, x1 + x2), (x1, x2)) - sp.hessian(f.subs(y, x1 + 2 * x2), (x1, x2))
    return bool((sum(parts, sp.zeros(2, 2)) - whole).expand() == sp.zeros(2, 2))


@right(
    "unlabelled:stochastic-term-II",
    text="(D.30) with (D.31) put in: the coefficient of |y* - y_D*| is (4 ell/mu + 2 ell^2/mu^2) rho",
)
def stochastic_term_ii() -> bool:
    """2 kappa rho from f_yx, and 2 ell times the two parts of the Jacobian's error."""
    return same(2 * KAPPA * RHO + 2 * ELL * (ELL / MU**2 + 1 / MU) * RHO, (4 * ELL / MU + 2 * ELL**2 / MU**2) * RHO)


@right("unlabelled:direction-curvature", text="-1/40 + 1/80 = -1/80")
def direction_curvature() -> bool:
    """iNEON's quotient for Phi_D, and the error of the batch's Hessian."""
    return -Fraction(1, 40) + Fraction(1, 80) == -Fraction(1, 80)
