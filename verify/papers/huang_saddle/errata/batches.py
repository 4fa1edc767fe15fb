"""Errors in the concentration of batches, and in the counts that rest on them."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import sympy as sp

from bilevel_sym.theories.huang_saddle.schedules.batches import term_delta
from verify.erratum import Formula, by_variant, erratum


@erratum(
    "unlabelled:stochastic-gradient-split",
    printed="|Phi' - Phi_D'| <= |f_x(y*) - f_D,x(y_D)| + |J| |f_y(y*) - f_D,y(y*)| + |J - J_D| |f_D,y(y*)|",
    corrected="f_D,y at y_D in both places",
    forms=(lambda y_star, y_batch: y_star, lambda y_star, y_batch: y_batch),
    witness="f = f_D = y^2/2, g = (y - x)^2/2, g_D = (y - x - 1)^2/2: |Phi' - Phi_D'| = 1, and the printed right "
    "side is 0",
    why="The change of f_D,y from y* to y_D is lost in this line, and back in the next one.",
    severity="misprint",
)
def split_middle(form: Formula) -> bool:
    """The difference of the two hypergradients at x = 0 is at most the sum."""
    x, y = sp.symbols("x y")
    f, y_star, y_batch = y**2 / 2, x, x + 1
    J, J_batch = sp.diff(y_star, x), sp.diff(y_batch, x)

    def f_y(at: sp.Expr) -> sp.Expr:
        return sp.diff(f, y).subs(y, at)

    left = abs(sp.diff(f.subs(y, y_star), x) - sp.diff(f.subs(y, y_batch), x))
    point = form(y_star, y_batch)
    right = abs(J) * abs(f_y(y_star) - f_y(point)) + abs(J - J_batch) * abs(f_y(point))  # f_x = 0
    return bool((left - right).subs(x, 0) <= 0)


@erratum(
    "unlabelled:stochastic-gradient-split",
    "lem:batch-grad-err",
    printed="the term (ell/mu) |f_y(x, y*) - f_y(x, y*)|",
    corrected="(ell/mu) |f_y(x, y*) - f_{D_F, y}(x, y*)|",
    forms=(lambda f, f_batch: f - f, lambda f, f_batch: f - f_batch),
    witness="f = 0, f_D = y, g = g_D = (y - x)^2/2: Phi' = 0, Phi_D' = 1, and all other terms vanish",
    why="Without the index the term is zero, and the bound false.",
    severity="misprint",
)
def split_last(form: Formula) -> bool:
    """The difference of the two hypergradients is at most the term, where it is the only one."""
    x, y = sp.symbols("x y")
    f, f_batch, g = sp.Integer(0), y, (y - x) ** 2 / 2
    kappa = abs(sp.diff(g, x, y)) / sp.diff(g, y, 2)
    left = abs(sp.diff(f, x) - sp.diff(f_batch.subs(y, x), x))  # y* = x for both
    return bool(left <= kappa * abs(sp.diff(form(f, f_batch), y)))


@erratum(
    "eq:y-diff-bound-stoc-sc",
    "unlabelled:eleven-terms",
    "unlabelled:six-terms",
    printed="|g_y - g_{D,y}| at y_D*(x) is made small by Lemma D.2, a statement about a fixed point",
    corrected="|y* - y_D*| <= (1/mu) |g_y - g_{D,y}| at the fixed point y*(x), from the second line of (D.41) alone",
    forms=(lambda y_star, y_batch: y_batch, lambda y_star, y_batch: y_star),
    witness="G_y = y or 2 y - 3 with probability 1/2 each, one sample: at y_D* the mean error is -3/8, at y* = 1 it "
    "is 0",
    why="y_D* depends on the batch, so the error there is no mean of independent centred terms.",
    severity="gap",
    modelled=True,
)
def data_point(form: Formula) -> bool:
    """The error of g_y at the point has mean 0, and over mu it bounds |y* - y_D*|."""
    samples = [(Fraction(1), Fraction(0)), (Fraction(2), Fraction(3))]  # G_y = a y - b
    a, b = (sum(sample[i] for sample in samples) / 2 for i in (0, 1))
    y_star, mu = b / a, 1
    errors = []
    for slope, offset in samples:
        y_batch = offset / slope
        at = form(y_star, y_batch)
        errors.append((a * at - b) - (slope * at - offset))
        if abs(y_star - y_batch) > abs(errors[-1]) / mu:
            return False
    return bool(sum(errors) == 0)


@erratum(
    "alg:INEONstocbio",
    "lem:batch-grad-err",
    "lem:batch-hess-err",
    "unlabelled:algorithm-3-step-13",
    printed="the batches D_F, D_G that made the step to x_{k+1} serve again for Phi_D at x_{k+1}",
    corrected="new D_F, D_G are drawn for steps 12 to 14",
    forms=(lambda old, new: old, lambda old, new: new),
    witness="F = xi x^2/2, xi = 1 or 3 with probability 1/2 each, one sample, x_k = 1, beta = 1/4: the mean of "
    "Phi_D' - Phi' at x_{k+1} is -1/4",
    why="Lemmas D.4 and D.5 are for a fixed x, and x_{k+1} depends on those batches.",
    severity="gap",
    modelled=True,
)
def batch_reuse(form: Formula) -> bool:
    """The gradient of Phi_D at x_{k+1} is unbiased, over all pairs of an old and a new batch."""
    xis, beta, x = (Fraction(1), Fraction(3)), Fraction(1, 4), Fraction(1)
    mean = sum(xis) / 2
    errors = [(form(old, new) - mean) * (x - beta * old * x) for old, new in product(xis, xis)]
    return bool(sum(errors) == 0)


@erratum(
    "lem:batch-hess-err",
    "lem:batch-grad-err",
    printed="m bounds that hold with probability 1 - delta' each hold together with probability (1 - delta')^m, m = "
    "11 and 6",
    corrected="together they hold with probability at least 1 - m delta', hence delta' = delta/m",
    forms=by_variant(lambda delta, m, variant: Fraction(term_delta(float(delta), m, variant))),
    witness="one sample, uniform on [0, 1], and bound i fails on the i-th interval of length delta': all hold with "
    "probability 1 - m delta', less than (1 - delta')^m",
    why="The terms share their batches and are not independent; a union bound is needed.",
    severity="gap",
)
def union(form: Formula) -> bool:
    """With failures on disjoint intervals, all bounds hold together with probability at least 1 - delta."""
    return all(1 - m * form(Fraction(m, 64), m) >= 1 - Fraction(m, 64) for m in (11, 6))


@erratum(
    "unlabelled:stochastic-case-1",
    "thm45-bound1",
    printed="in Case 1, |Phi'(x_k)| > 3/5 eps at the x_k that occurred, hence E|Phi'(x_k)| > 3/5 eps "
    "('unconditioning')",
    corrected="the condition is kept: the decrease is that of E[Phi(x_{k+1}) - Phi(x_k) | x_k] where x_k is in Case 1",
    forms=(lambda outcomes, case: outcomes, lambda outcomes, case: case),
    witness="L_phi = eps = 1, |Phi'(x_k)| = 1 with probability 1/10, else 0: Case 1 can occur, and Lemma D.7 "
    "guarantees an expected decrease of 3/800, not of 1/50",
    why="The case distinction is about x_k itself, and an average over x_k does not inherit it.",
    severity="gap",
    modelled=True,
)
def unconditioning(form: Formula) -> bool:
    """What Lemma D.7 guarantees, averaged over the outcomes that the form keeps, is at least eps^2/(50 L_phi)."""
    outcomes = [(Fraction(1, 10), Fraction(1)), (Fraction(9, 10), Fraction(0))]  # (probability, |Phi'(x_k)|)
    kept = form(outcomes, [(chance, norm) for chance, norm in outcomes if norm > Fraction(3, 5)])
    gains = sum(chance * (norm**2 / 16 - Fraction(1, 400)) for chance, norm in kept)
    return bool(gains / sum(chance for chance, _ in kept) >= Fraction(1, 50))


@erratum(
    "eq:stoc-sample-com",
    printed="HV(g) = O~(kappa^6 eps^-4) for the stocBiO iterations",
    corrected="HV(g) = O~(kappa^7 eps^-4); the maximum in Corollary 4.6, kappa^9.5, is not affected. (JV(g) = "
    "O~(kappa^5 eps^-4) is right: with new batches for steps 12 to 14, the D_G of the step is of order kappa^2)",
    forms=(lambda kappa: kappa**6, lambda kappa: kappa**7),
    witness="K = kappa^3, B = kappa^2, Q = kappa, |B_j| = B Q (1 - 1/kappa)^(j-1): the sum over j is 0.63 B Q kappa "
    "or more",
    why="The batch sizes add up to B Q kappa (1 - (1 - 1/kappa)^Q), not to B Q.",
    modelled=True,
)
def hessian_products(form: Formula) -> bool:
    """The number of products over its order does not double between kappa = 10 and kappa = 160."""

    def ratio(kappa: int) -> Fraction:
        K, B, depth = kappa**3, kappa**2, kappa
        sizes = (B * depth * (1 - Fraction(1, kappa)) ** (j - 1) for j in range(1, depth + 1))
        return Fraction(K * sum(sizes) / form(kappa))

    return ratio(160) < 2 * ratio(10)
