"""Errors in the derivatives of y* and Phi, and in the Lipschitz constants made of them."""

from __future__ import annotations

from fractions import Fraction

import sympy as sp

from bilevel_sym import BilevelProblem, Constants, derive, zoo
from bilevel_sym.symbolic.formulas import second_optimality_terms
from bilevel_sym.theories.huang_saddle.schedules.batches import hessian_terms
from verify.erratum import Formula, by_variant, erratum

_SAMPLES = (  # powers of two where floats meet them, so that everything is exact
    Constants(Fraction(1), Fraction(2), Fraction(4), Fraction(8), Fraction(16)),
    Constants(Fraction(1, 2), Fraction(1), Fraction(1, 4), Fraction(2), Fraction(1, 8)),
    Constants(Fraction(2), Fraction(2), Fraction(1), Fraction(0), Fraction(4)),
)


@erratum(
    "phi-hessian",
    "lemma3.4-long",
    printed="Phi'' = f_xx + J f_yx + (d2y) f_y + J f_xy^T + J f_yy J^T, with J = dy*/dx (d x n)",
    corrected="Phi'' = f_xx + J f_yx + (d2y) f_y + f_xy J^T + J f_yy J^T",
    forms=by_variant(lambda derivation, variant: derivation.hessian(variant=variant)),
    witness="f = x2 y, g = (y - x1)^2/2, d = 2, n = 1: Phi = x1 x2",
    why="f_xy^T = f_yx, so the print has one mixed term twice in place of it and its transpose; for d >= 2 its sum is "
    "not symmetric. The norms of the two terms agree, so the bounds that follow are not affected.",
)
def phi_hessian(form: Formula) -> bool:
    """The five terms add up to the Hessian of Phi, which is computed from Phi itself."""
    x1, x2, y = sp.symbols("x1 x2 y")
    problem = BilevelProblem(x2 * y, (y - x1) ** 2 / 2, (x1, x2), y)
    return bool(form(derive(problem)) == sp.hessian(x2 * x1, (x1, x2)))


@erratum(
    "eq:opt-deri2",
    "eq:hess-y-expression",
    printed="g_xxy + J g_yxy + (d2y) g_yy + J g_xyy + J g_yyy J^T = 0: both mixed terms are J_i g_{x_j y y}",
    corrected="the second mixed term is the first with the two x-indices exchanged, J_j g_{x_i y y}",
    forms=(lambda terms: terms["cross"], lambda terms: terms["cross_transposed"]),
    witness="g = (1 + x2) y^2/2 - x1 y, d = 2, n = 1: y* = x1/(1 + x2)",
    why="J is d x n, so its second index is summed against y in both products, and then J g_yxy and J g_xyy are the "
    "same term; written once more it would make the second derivative of y* non-symmetric.",
    severity="ambiguous",
)
def opt_deri2(form: Formula) -> bool:
    """The terms of the twice differentiated optimality condition cancel at the y* that is known in closed form."""
    x1, x2, y = sp.symbols("x1 x2 y")
    x, y_star = (x1, x2), x1 / (1 + x2)
    derivation = derive(BilevelProblem(sp.Integer(0), (1 + x2) * y**2 / 2 - x1 * y, x, y), closed_form=False)
    dy_dx = sp.Matrix([sp.diff(y_star, s) for s in x])
    terms = second_optimality_terms(derivation.blocks.__getitem__, dy_dx)
    used = (terms["direct"], terms["cross"], form(terms), terms["quadratic"])
    g_yy = derivation.blocks["g_yy"][0, 0]

    def left_over(i: int, j: int) -> sp.Expr:
        whole = sum(term[i, j, 0] for term in used) + sp.diff(y_star, x[i], x[j]) * g_yy
        return sp.cancel(whole.subs(y, y_star))

    return all(left_over(i, j) == 0 for i in range(2) for j in range(2))


@erratum(
    "grad-Lipschitz",
    "unlabelled:L-phi",
    printed="L_phi = ell + (2 ell^2 + rho M^2)/mu + (ell^3 + 2 rho ell M)/mu^2 + rho ell^2 M/mu^3",
    corrected="rho M in place of rho M^2, which makes L_phi = (1 + kappa)^2 (ell + rho M/mu)",
    forms=by_variant(lambda c, variant: c.L_phi(variant=variant)),
    witness="f = y/2, g = y^2/2 + x y + rho d^3 sin((y - x)/d), rho = 40, d = 1e-6, at x = y* = -rho d^2/2: Phi'' = "
    "80, while the print gives 74.01 and the correction 84.01",
    why="The term bounds |f_y| |dJ/dx|, where M stands to the first power. For M < 1 the print is too small. (The "
    "assumption is read block by block, as the proofs do.)",
)
def grad_lipschitz(form: Formula) -> bool:
    """The second derivative of Phi, from implicit differentiation at an exact root, stays below L_phi."""
    example = zoo.get("lphi_witness")
    (x,), (y,) = example.problem.x, example.problem.y
    g, witness = example.problem.g, -sp.Rational(40) * sp.Rational(1, 10**6) ** 2 / 2

    def at(*by: sp.Symbol) -> sp.Expr:
        return sp.diff(g, *by).subs({x: witness, y: witness})

    slope = -at(x, y) / at(y, y)
    bend = -(at(x, x, y) + 2 * slope * at(x, y, y) + slope**2 * at(y, y, y)) / at(y, y)
    curvature = abs(sp.diff(example.problem.f, y) * bend)  # f is linear in y alone
    return bool(at(y) == 0 and curvature <= form(example.constants))


@erratum(
    "pro:bounds",
    "unlabelled:bound-first-order",
    printed="|grad_y g(x, y)| <= M for all (x, y)",
    corrected="mu |y - y*(x)| <= |grad_y g(x, y)| <= ell |y - y*(x)|",
    forms=(lambda distance, M, mu, ell: (0, M), lambda distance, M, mu, ell: (mu * distance, ell * distance)),
    witness="g = (y1^2 + 3 y2^2)/2 (mu = 1, ell = 3, y* = 0) at y = (M, M), for every M > 0",
    why="A strongly convex function on all of R^n has an unbounded gradient, so no M can exist; M bounds f_x and f_y "
    "only.",
)
def bound_first_order(form: Formula) -> bool:
    """The norm of grad_y g lies between the two bounds, for a symbolic M."""
    M, mu, ell = sp.Symbol("M", positive=True), 1, 3
    squared, distance = (mu * M) ** 2 + (ell * M) ** 2, sp.sqrt(2 * M**2)
    low, high = form(distance, M, mu, ell)
    return bool((squared - low**2).is_nonnegative and (high**2 - squared).is_nonnegative)


@erratum(
    "unlabelled:jacobian-third-product",
    "eq:y-hess-bound-final",
    "unlabelled:term-III",
    "def-rho-phi",
    printed="|J g_yxy - J' g'_yxy| <= (ell nu/mu (1 + kappa) + 2 rho^2/mu (1 + kappa)^2) |x - x'|, hence 4 M "
    "rho^2/mu^2 (1 + kappa)^2 in rho_phi",
    corrected="rho^2/mu in place of 2 rho^2/mu, hence 2 M rho^2/mu^2 in rho_phi, which is then (1 + kappa)^3 (rho + "
    "nu M/mu + 3 (rho/mu)(ell + rho M/mu))",
    forms=by_variant(lambda c, variant: c.rho_phi(variant=variant)),
    witness="mu = 1, ell = 2, rho = 4, nu = 8, M = 16 and two more: the steps of the proof, added up in exact "
    "arithmetic",
    why="The factor 2 that stands before term (II) is copied into a product that has no such factor.",
    severity="loose",
)
def def_rho_phi(form: Formula) -> bool:
    """The constant is the sum of terms (I) to (IV), each from its own product rule."""
    return all(form(c) == _four_terms(c) for c in _SAMPLES)


def _four_terms(c: Constants) -> Fraction:
    """Bounds of (I) to (IV): |J| <= kappa, |dJ| <= jump, |d2y| <= jump, third derivatives <= rho and nu-Lipschitz."""
    kappa, u = c.kappa, 1 + c.kappa
    jump = c.rho / c.mu * u**2
    first, second = c.rho * u, 2 * (kappa * c.rho * u + c.ell * jump)
    mixed = kappa * c.nu * u + c.rho * jump
    inner = c.nu * u + 2 * mixed + 2 * c.rho * kappa * jump + kappa**2 * c.nu * u
    change = inner / c.mu + (c.rho / c.mu) ** 2 * u**3  # of the second derivative of y*
    third = jump * c.ell * u + c.M * change
    fourth = 2 * kappa * c.ell * jump + kappa**2 * c.rho * u
    return Fraction(first + second + third + fourth)


@erratum(
    "unlabelled:stochastic-third-product",
    "eq:y-hess-dif-stoc-final",
    "unlabelled:stochastic-term-III",
    "eq:hessphi-err",
    printed="coefficients 2 ell rho/mu^2, 2 rho/mu, 2 ell/mu, 2 ell nu/mu + 2 ell rho^2/mu^2 + 2 rho^2/mu of the "
    "errors of g_yy, g_xy, g_yxy and y* in |J g_yxy - J_D g_yxy,D|",
    corrected="half of each",
    forms=by_variant(lambda c, variant: hessian_terms(c, 1.0, variant)),
    witness="mu = 1, ell = 2, rho = 4, nu = 8, M = 16 and two more: the product rule in exact arithmetic",
    why="The same copied factor 2. The coefficients of the Hessian error fall by 2 ell rho M/mu^3 (g_yy), 2 rho M/mu^2 "
    "(g_xy), 2 ell M/mu^2 (g_yxy) and 2 M (ell nu + rho^2 (1 + kappa))/mu^2 (y*).",
    severity="loose",
)
def hessphi_err(form: Formula) -> bool:
    """The coefficients of the batch Hessian's error are those that the product rule gives."""
    return all(_coefficients(form(c), c) == _product_rule(c) for c in _SAMPLES)


def _coefficients(terms: tuple[object, ...], c: Constants) -> dict[str, Fraction]:
    """By derivative; the two errors of g_y together are 1/mu times the coefficient of |y* - y*_batch|."""
    found: dict[str, Fraction] = {}
    for term in terms:
        name, value = getattr(term, "derivative", ""), Fraction(getattr(term, "coefficient", 0))
        found[name] = found.get(name, Fraction(0)) + (value * c.mu if name == "g_y" else value)
    return found


def _product_rule(c: Constants) -> dict[str, Fraction]:
    """Each error of a batch mean, pushed through (I) to (IV) of the Hessian."""
    kappa, u = c.kappa, 1 + c.kappa
    names = ("f_xx", "f_xy", "f_yy", "f_y", "g_yy", "g_xy", "g_xxy", "g_xyy", "g_yyy", "g_y")

    def whole(of: dict[str, Fraction]) -> Fraction:
        """The error of the Hessian where the derivatives have these errors; that of g_y is |y* - y*_batch|."""
        shift = of["g_y"]
        jacobian = c.ell / c.mu**2 * (of["g_yy"] + c.rho * shift) + (of["g_xy"] + c.rho * shift) / c.mu
        mixed = kappa * (of["g_xyy"] + c.nu * shift) + c.rho * jacobian
        pure = 2 * c.rho * kappa * jacobian + kappa**2 * (of["g_yyy"] + c.nu * shift)
        bend = (of["g_xxy"] + c.nu * shift + 2 * mixed + pure) / c.mu
        bend += c.rho * u**2 / c.mu**2 * (of["g_yy"] + c.rho * shift)
        first = of["f_xx"] + c.rho * shift
        second = 2 * kappa * (of["f_xy"] + c.rho * shift) + 2 * c.ell * jacobian
        third = c.rho / c.mu * u**2 * (of["f_y"] + c.ell * shift) + c.M * bend
        fourth = 2 * kappa * c.ell * jacobian + kappa**2 * (of["f_yy"] + c.rho * shift)
        return Fraction(first + second + third + fourth)

    return {name: whole({other: Fraction(int(other == name)) for other in names}) for name in names}
