"""Hess Phi put together wrongly. Right is direct + cross + cross^T + quadratic + third (``plain.hessian_terms``)."""

from __future__ import annotations

from functools import partial

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Floats
from verify.gallery.defect import defect
from verify.gallery.plain import Candidate, HessianTerms, from_terms, hessian_terms, newton, start

of_hessian = partial(defect, kind="hessian")


@of_hessian(
    "third derivatives missing",
    cause="third derivative",
    looks="right on every quadratic lower level; elsewhere symmetric, plausible, and wrong",
    seen="published hypergradient code; silently wrong higher-order terms: Theseus PR #425, Clapeyron.jl #502",
)
@from_terms
def third_derivatives_missing(term: HessianTerms) -> Floats:
    """y* taken for linear in x."""
    return term.direct + term.cross + term.cross.T + term.quadratic  # defect: third is missing


@of_hessian(
    "Hessian not symmetrised",
    cause="symmetry",
    looks="nobody can tell for d = 1; eigenvalue routines read one triangle and say nothing",
    seen="the paper's [phi-hessian] as printed",
)
@from_terms
def hessian_not_symmetrised(term: HessianTerms) -> Floats:
    """The mixed term counted twice, where one of the two is its transpose."""
    return term.direct + term.cross + term.cross + term.quadratic + term.third  # defect: .T


@of_hessian(
    "one triangle filled",
    cause="symmetry",
    looks="a Cholesky factorisation that reads the upper triangle is right, and one that reads the lower is not",
)
@from_terms
def one_triangle_filled(term: HessianTerms) -> Floats:
    """Only the entries above the diagonal are computed, and not copied."""
    return np.triu(term.direct + term.cross + term.cross.T + term.quadratic + term.third)  # defect: triu


@of_hessian(
    "mixed terms forgotten",
    cause="cross",
    looks="right wherever f does not mix x and y",
)
@from_terms
def mixed_terms_forgotten(term: HessianTerms) -> Floats:
    """dy_dx f_yx and its transpose are missing."""
    return term.direct + term.quadratic + term.third  # defect: cross + cross.T


@of_hessian(
    "empirical Fisher for f_yy",
    cause="quadratic",
    looks="positive semidefinite where Phi is not: saddle points look like minima",
)
def empirical_fisher_for_f_yy(problem: BilevelProblem) -> Candidate:
    """f_y f_y^T in the place of f_yy, as a Gauss-Newton method would have it."""
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        term = hessian_terms(problem, x)
        y = newton(k, x, start(problem))
        slope = np.linalg.solve(k.g_yy(x, y), k.g_xy(x, y).T).T @ k.f_y(x, y)
        return term.direct + term.cross + term.cross.T + np.outer(slope, slope) + term.third  # defect: quadratic

    return candidate


@of_hessian(
    "f_yy forgotten",
    cause="quadratic",
    looks="right where f is linear in y",
)
@from_terms
def f_yy_forgotten(term: HessianTerms) -> Floats:
    """dy_dx f_yy dy_dx^T is missing."""
    return term.direct + term.cross + term.cross.T + term.third  # defect: quadratic is missing


@of_hessian(
    "f_xx forgotten",
    cause="direct",
    looks="right where f is linear in x, as most hyperparameter problems are",
)
@from_terms
def f_xx_forgotten(term: HessianTerms) -> Floats:
    """The direct term is missing."""
    return term.cross + term.cross.T + term.quadratic + term.third  # defect: direct is missing
