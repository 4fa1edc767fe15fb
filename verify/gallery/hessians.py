"""Hess Phi put together wrongly. Right is direct + cross + cross^T + quadratic + third (``plain.hessian_terms``)."""

from __future__ import annotations

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Floats
from verify.gallery.defect import defect
from verify.gallery.plain import Candidate, hessian_terms, newton, start

__all__: list[str] = []


@defect(
    "third derivatives missing",
    kind="hessian",
    cause="third derivative",
    looks="right on every quadratic lower level; elsewhere symmetric, plausible, and wrong",
    seen="published hypergradient code; silently wrong higher-order terms: Theseus PR #425, Clapeyron.jl #502",
)
def third_derivatives_missing(problem: BilevelProblem) -> Candidate:
    """y* taken for linear in x."""

    def candidate(x: Floats) -> Floats:
        term = hessian_terms(problem, x)
        return term.direct + term.cross + term.cross.T + term.quadratic  # defect: third is missing

    return candidate


@defect(
    "Hessian not symmetrised",
    kind="hessian",
    cause="symmetry",
    looks="nobody can tell for d = 1; eigenvalue routines read one triangle and say nothing",
    seen="the paper's [phi-hessian] as printed",
)
def hessian_not_symmetrised(problem: BilevelProblem) -> Candidate:
    """The mixed term counted twice, where one of the two is its transpose."""

    def candidate(x: Floats) -> Floats:
        term = hessian_terms(problem, x)
        return term.direct + term.cross + term.cross + term.quadratic + term.third  # defect: .T

    return candidate


@defect(
    "one triangle filled",
    kind="hessian",
    cause="symmetry",
    looks="a Cholesky factorisation that reads the upper triangle is right, and one that reads the lower is not",
)
def one_triangle_filled(problem: BilevelProblem) -> Candidate:
    """Only the entries above the diagonal are computed, and not copied."""

    def candidate(x: Floats) -> Floats:
        term = hessian_terms(problem, x)
        return np.triu(term.direct + term.cross + term.cross.T + term.quadratic + term.third)  # defect: triu

    return candidate


@defect(
    "mixed terms forgotten",
    kind="hessian",
    cause="cross",
    looks="right wherever f does not mix x and y",
)
def mixed_terms_forgotten(problem: BilevelProblem) -> Candidate:
    """dy_dx f_yx and its transpose are missing."""

    def candidate(x: Floats) -> Floats:
        term = hessian_terms(problem, x)
        return term.direct + term.quadratic + term.third  # defect: cross + cross.T

    return candidate


@defect(
    "empirical Fisher for f_yy",
    kind="hessian",
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


@defect(
    "f_yy forgotten",
    kind="hessian",
    cause="quadratic",
    looks="right where f is linear in y",
)
def f_yy_forgotten(problem: BilevelProblem) -> Candidate:
    """dy_dx f_yy dy_dx^T is missing."""

    def candidate(x: Floats) -> Floats:
        term = hessian_terms(problem, x)
        return term.direct + term.cross + term.cross.T + term.third  # defect: quadratic is missing

    return candidate


@defect(
    "f_xx forgotten",
    kind="hessian",
    cause="direct",
    looks="right where f is linear in x, as most hyperparameter problems are",
)
def f_xx_forgotten(problem: BilevelProblem) -> Candidate:
    """The direct term is missing."""

    def candidate(x: Floats) -> Floats:
        term = hessian_terms(problem, x)
        return term.cross + term.cross.T + term.quadratic + term.third  # defect: direct is missing

    return candidate
