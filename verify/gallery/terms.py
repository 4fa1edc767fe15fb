"""The terms of the hypergradient put together wrongly. Right is f_x - g_xy v at (x, y*), with v = g_yy^-1 f_y."""

from __future__ import annotations

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Floats
from verify.gallery.defect import defect
from verify.gallery.plain import Candidate, newton, start

__all__: list[str] = []


@defect(
    "implicit term halved",
    cause="cross",
    looks="the loss goes down, and settles where f_x balances half of the implicit term",
    seen="a cross term weighted one half: published hypergradient code",
)
def implicit_term_halved(problem: BilevelProblem) -> Candidate:
    """The one half of a quadratic form, on a term that is none."""
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        y = newton(k, x, start(problem))
        v = np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))
        return k.f_x(x, y) - 0.5 * k.g_xy(x, y) @ v  # defect: 0.5

    return candidate


@defect(
    "implicit term forgotten",
    cause="cross",
    looks="the loss of y held fixed goes down; where f has no direct term nothing moves at all",
    seen="its mark, a zero gradient: TorchOpt #222",
)
def implicit_term_forgotten(problem: BilevelProblem) -> Candidate:
    """The partial derivative taken for the total one: the lower level's solution does not carry its gradient."""
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        y = newton(k, x, start(problem))
        return k.f_x(x, y)  # defect: - g_xy v is missing

    return candidate


@defect(
    "implicit term transposed",
    cause="transpose",
    looks="with d = n the shapes agree, and with a symmetric g_xy so do the numbers",
)
def implicit_term_transposed(problem: BilevelProblem) -> Candidate:
    """g_yx v in the place of g_xy v."""
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        y = newton(k, x, start(problem))
        v = np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))
        return k.f_x(x, y) - k.g_xy(x, y).T @ v  # defect: .T

    return candidate


@defect(
    "sign of the implicit term",
    cause="sign",
    looks="where the direct term is the larger one, the loss goes down all the same",
)
def sign_of_the_implicit_term(problem: BilevelProblem) -> Candidate:
    """f_x + g_xy v: the minus of the implicit function theorem was lost."""
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        y = newton(k, x, start(problem))
        v = np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))
        return k.f_x(x, y) + k.g_xy(x, y) @ v  # defect: +

    return candidate


@defect(
    "direct term forgotten",
    cause="direct",
    looks="right wherever f depends on x through y alone, as in most hyperparameter problems",
)
def direct_term_forgotten(problem: BilevelProblem) -> Candidate:
    """-g_xy v alone."""
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        y = newton(k, x, start(problem))
        v = np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))
        return -k.g_xy(x, y) @ v  # defect: f_x is missing

    return candidate


@defect(
    "factor two",
    cause="factor",
    looks="the right direction: the loss goes down, and a smaller step size hides everything",
)
def factor_two(problem: BilevelProblem) -> Candidate:
    """Twice the truth, from a square that was differentiated without its one half."""
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        y = newton(k, x, start(problem))
        v = np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))
        return 2 * (k.f_x(x, y) - k.g_xy(x, y) @ v)  # defect: 2

    return candidate


@defect(
    "order of arguments",
    cause="arguments",
    looks="no error where d = n; the loss goes down at first and settles elsewhere",
)
def order_of_arguments(problem: BilevelProblem) -> Candidate:
    """The derivatives of f taken at (y, x)."""
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        y = newton(k, x, start(problem))
        v = np.linalg.solve(k.g_yy(x, y), k.f_y(y, x))  # defect: (y, x)
        return k.f_x(y, x) - k.g_xy(x, y) @ v  # and here

    return candidate


@defect(
    "f in the place of g",
    cause="arguments",
    looks="shapes agree, so nothing is raised; the implicit term is small where f hardly mixes x and y",
)
def f_in_the_place_of_g(problem: BilevelProblem) -> Candidate:
    """The mixed derivative of the upper level where that of the lower level belongs."""
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        y = newton(k, x, start(problem))
        v = np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))
        return k.f_x(x, y) - k.f_xy(x, y) @ v  # defect: f_xy

    return candidate
