"""Stochastic problems: the data rows are the distribution, so that the mean is exact."""

from __future__ import annotations

import dataclasses

import sympy as sp

from bilevel_sym.problem.problem import StochasticProblem
from bilevel_sym.zoo.data import regression_rows
from bilevel_sym.zoo.entry import Example, entry, exact_constants, require_positive
from bilevel_sym.zoo.learning import ridge, squared_error
from bilevel_sym.zoo.quadratic import linear_form
from bilevel_sym.zoo.small import saddle

__all__ = ["stochastic_noise", "stochastic_rows"]

_NOISE = sp.Rational(1, 10)


@entry
def stochastic_noise(*, d: int = 2, noise: sp.Rational = _NOISE) -> Example:
    """The problem ``saddle`` with noise of mean zero added to its gradients.

    F = f + sum_j xi_j (x_j + y_j) and G = g + sum_j zeta_j y_j, where xi and zeta take the 2d
    values +-noise e_j with equal probability. The mean is ``saddle`` itself; the constants hold
    for each row, and the standard deviation of grad G is sigma = noise.

    Paper: Assumption 4.4 [ass:variance-bound]
    Reference: made for this package.

    >>> example = stochastic_noise(noise="1/4")
    >>> example.problem.mean.f == saddle().problem.f, example.constants.sigma
    (True, 1/4)
    """
    require_positive(noise=noise)
    exact = saddle(d=d)
    f, g, x, y = exact.problem.f, exact.problem.g, exact.problem.x, exact.problem.y
    xi, zeta = sp.symbols(f"xi1:{d + 1}"), sp.symbols(f"zeta1:{d + 1}")
    rows = [[step if i == j else 0 for j in range(d)] for i in range(d) for step in (noise, -noise)]
    problem = StochasticProblem(
        f + linear_form(xi, (s + t for s, t in zip(x, y, strict=True))),
        g + linear_form(zeta, y),
        x, y, xi, zeta, rows, rows, box=exact.problem.box, name="stochastic_noise",
    )  # fmt: skip
    # |f_y| is largest where its first component is 4, and that is the one that noise lengthens most
    largest = sp.sqrt((4 + noise) ** 2 + 4 * (d - 1))
    constants = exact_constants(mu=1, ell=13, rho=12, nu=6, M=largest, sigma=noise)
    return dataclasses.replace(exact, problem=problem, constants=constants, summary="")


@entry
def stochastic_rows(*, rows: int = 6) -> Example:
    """The ridge regression of ``ridge`` with one data row at a time.

    F = (a^T y - b)^2/2 with xi = (a, b) a validation row, and G = (a^T y - b)^2/2 + exp(x)
    |y|^2/2 with zeta = (a, b) a training row. The Hessian of G is noisy too. The mean is
    ``ridge``.

    Paper: Equation 1.8 [objective]
    Reference: K. Ji, J. Yang and Y. Liang, Bilevel optimization: convergence analysis and
    enhanced design, ICML 2021.

    >>> len(stochastic_rows(rows=10).problem.zeta_data)
    10
    """
    exact = ridge(rows=rows)
    (x,), y = exact.problem.x, exact.problem.y
    xi, zeta = sp.symbols("xi1:4"), sp.symbols("zeta1:4")
    penalty = sp.exp(x) * (y[0] ** 2 + y[1] ** 2) / 2
    problem = StochasticProblem(
        squared_error(xi, y), squared_error(zeta, y) + penalty, x, y, xi, zeta,
        regression_rows(rows, offset=1), regression_rows(rows),
        box=exact.problem.box, name="stochastic_rows",
    )  # fmt: skip
    reference = "Ji, Yang and Liang, ICML 2021; data: Fisher 1936."
    return dataclasses.replace(exact, problem=problem, summary="", reference=reference)
