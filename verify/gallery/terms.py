"""The terms of the hypergradient put together wrongly. Right is f_x - g_xy v at (x, y*), with v = g_yy^-1 f_y."""

from __future__ import annotations

import numpy as np

from bilevel_sym import BilevelProblem, Kernels
from bilevel_sym.typing import Floats
from verify.gallery.defect import defect
from verify.gallery.plain import Candidate, from_total, newton, start


@defect(
    "implicit term halved",
    cause="cross",
    looks="the loss goes down, and settles where f_x balances half of the implicit term",
    seen="a cross term weighted one half: published hypergradient code",
)
@from_total
def implicit_term_halved(k: Kernels, x: Floats, y: Floats, v: Floats) -> Floats:
    """The one half of a quadratic form, on a term that is none."""
    return k.f_x(x, y) - 0.5 * k.g_xy(x, y) @ v  # defect: 0.5


@defect(
    "implicit term forgotten",
    cause="cross",
    looks="the loss of y held fixed goes down; where f has no direct term nothing moves at all",
    seen="its mark, a zero gradient: TorchOpt #222",
)
@from_total
def implicit_term_forgotten(k: Kernels, x: Floats, y: Floats, v: Floats) -> Floats:
    """The partial derivative taken for the total one: the lower level's solution does not carry its gradient."""
    return k.f_x(x, y)  # defect: - g_xy v is missing


@defect(
    "implicit term transposed",
    cause="transpose",
    looks="with d = n the shapes agree, and with a symmetric g_xy so do the numbers",
)
@from_total
def implicit_term_transposed(k: Kernels, x: Floats, y: Floats, v: Floats) -> Floats:
    """g_yx v in the place of g_xy v."""
    return k.f_x(x, y) - k.g_xy(x, y).T @ v  # defect: .T


@defect(
    "sign of the implicit term",
    cause="sign",
    looks="where the direct term is the larger one, the loss goes down all the same",
)
@from_total
def sign_of_the_implicit_term(k: Kernels, x: Floats, y: Floats, v: Floats) -> Floats:
    """f_x + g_xy v: the minus of the implicit function theorem was lost."""
    return k.f_x(x, y) + k.g_xy(x, y) @ v  # defect: +


@defect(
    "direct term forgotten",
    cause="direct",
    looks="right wherever f depends on x through y alone, as in most hyperparameter problems",
)
@from_total
def direct_term_forgotten(k: Kernels, x: Floats, y: Floats, v: Floats) -> Floats:
    """-g_xy v alone."""
    return -k.g_xy(x, y) @ v  # defect: f_x is missing


@defect(
    "factor two",
    cause="factor",
    looks="the right direction: the loss goes down, and a smaller step size hides everything",
)
@from_total
def factor_two(k: Kernels, x: Floats, y: Floats, v: Floats) -> Floats:
    """Twice the truth, from a square that was differentiated without its one half."""
    return 2 * (k.f_x(x, y) - k.g_xy(x, y) @ v)  # defect: 2


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
@from_total
def f_in_the_place_of_g(k: Kernels, x: Floats, y: Floats, v: Floats) -> Floats:
    """The mixed derivative of the upper level where that of the lower level belongs."""
    return k.f_x(x, y) - k.f_xy(x, y) @ v  # defect: f_xy
