"""Learning problems on Fisher's iris: penalties to choose, rows to weigh, worst rows to bear."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sympy as sp

from bilevel_sym.graph.operations.logistic import sigmoid, softplus
from bilevel_sym.problem.problem import BilevelProblem, MinimaxProblem
from bilevel_sym.zoo.data import Row, regression_rows, species_rows
from bilevel_sym.zoo.entry import Example, entry, require_positive, require_range
from bilevel_sym.zoo.quadratic import linear_form

__all__ = ["hyper_cleaning", "logistic", "ridge", "ridge_solution", "robust_regression", "squared_error"]

_ONE = sp.Integer(1)


@entry
def ridge(*, rows: int = 6) -> Example:
    """The penalty of a ridge regression on iris, chosen by its validation error.

    x is the logarithm of the penalty, y the weights of sepal and petal length in a prediction of
    the petal width; g = mean of (a^T y - b)^2/2 over the training rows + exp(x) |y|^2/2, and f
    the same mean over as many validation rows. y* solves two linear equations, so that y* and Phi
    are rational in exp(x).

    Reference: F. Pedregosa, Hyperparameter optimization with approximate gradient, ICML 2016.

    >>> example = ridge()
    >>> example.problem.d, example.problem.n
    (1, 2)
    >>> example.phi.subs("x", -2).n(5)
    0.0082650
    """
    require_range("rows", rows, 2, 75)
    x, y = sp.Symbol("x"), sp.symbols("y1:3")
    training, validation = regression_rows(rows), regression_rows(rows, offset=1)
    f = _mean(squared_error(row, y) for row in validation)
    g = _mean(squared_error(row, y) for row in training) + sp.exp(x) * (y[0] ** 2 + y[1] ** 2) / 2
    y_star = ridge_solution(training, sp.exp(x))
    return Example(
        problem=BilevelProblem(f, g, x, y, box={"x": (-6, 2), "y1": (-1, 1), "y2": (-1, 1)}, name="ridge"),
        reference="Pedregosa, ICML 2016; data: Fisher 1936.",
        y_star=y_star,
        phi=f.xreplace(dict(zip(y, y_star, strict=True))),
    )


@entry
def logistic(*, rows: int = 8) -> Example:
    """One penalty for each weight of a logistic regression on two iris species.

    g = mean of softplus(-label a^T y) over the training rows + sum_j exp(x_j) y_j^2/2, and f the
    mean of the same loss over as many validation rows; a = (petal length - 4.9, petal width -
    1.7, 1). There is no closed form.

    Reference: F. Pedregosa, Hyperparameter optimization with approximate gradient, ICML 2016.

    >>> logistic().problem.d, logistic(rows=4).problem.n
    (3, 3)
    """
    require_range("rows", rows, 2, 50)
    x, y = sp.symbols("x1:4"), sp.symbols("y1:4")
    penalty = sp.Add(*(sp.exp(s) * t**2 / 2 for s, t in zip(x, y, strict=True)))
    f, g = (_mean(_logistic_losses(species_rows(rows, offset), y)) for offset in (1, 0))
    box = {s.name: (-3, 2) for s in x} | {s.name: (-4, 4) for s in y}
    return Example(
        problem=BilevelProblem(f, g + penalty, x, y, box=box, name="logistic"),
        reference="Pedregosa, ICML 2016; data: Fisher 1936.",
    )


@entry
def hyper_cleaning(*, rows: int = 8, corrupted: int = 2) -> Example:
    """Weights for training rows, some of which carry a wrong label.

    g = mean of sigmoid(x_i) softplus(-label_i a_i^T y) over the training rows + |y|^2/20, and f
    the mean loss over as many clean validation rows: one x_i for each training row, and wrong
    labels should be weighed down. The note ``corrupted_rows`` says which ones are wrong, counting
    from 1 as the x_i do.

    Reference: L. Franceschi, M. Donini, P. Frasconi and M. Pontil, Forward and reverse
    gradient-based hyperparameter optimization, ICML 2017.

    >>> example = hyper_cleaning()
    >>> example.summary
    'Weights for 8 training rows; the labels of rows 1, 6 are wrong.'
    """
    require_range("rows", rows, 2, 50)
    require_range("corrupted", corrupted, 0, rows // 2)
    wrong = _spread_out(corrupted, rows)
    x, y = sp.symbols(f"x1:{rows + 1}"), sp.symbols("y1:4")
    training = [(a, -b if i in wrong else b) for i, (a, b) in enumerate(species_rows(rows), start=1)]
    losses = zip(x, _logistic_losses(training, y), strict=True)
    g = _mean(sigmoid(s) * loss for s, loss in losses) + sp.Add(*(t**2 for t in y)) / 20
    f = _mean(_logistic_losses(species_rows(rows, offset=1), y))
    box = {s.name: (-4, 4) for s in x} | {s.name: (-2, 2) for s in y}
    names = ", ".join(map(str, wrong))
    claim = f"the labels of rows {names} are wrong" if wrong else "all labels are right"
    return Example(
        problem=BilevelProblem(f, g, x, y, box=box, name="hyper_cleaning"),
        summary=f"Weights for {rows} training rows; {claim}.",
        reference="Franceschi et al., ICML 2017; data: Fisher 1936.",
        notes={"corrupted_rows": wrong},
    )


@entry
def robust_regression(*, rows: int = 6, penalty: sp.Rational = _ONE) -> Example:
    """Regression on iris against an adversary who shifts weight to the worst rows.

    f = sum_i y_i l_i(x) - penalty |y - 1/m|^2/2 with l_i = (x_1 + x_2 a_i - b_i)^2/2, the petal
    width b predicted from the petal length a; hence y_i* = 1/m + l_i/penalty and Phi = mean of
    the l_i + sum_i l_i^2/(2 penalty), which is convex.

    Reference: H. Namkoong and J. Duchi, Stochastic gradient methods for distributionally robust
    optimization with f-divergences, NeurIPS 2016.

    >>> robust_regression(rows=3).y_star[0]
    (x1 + 7*x2/5 - 1/5)**2/2 + 1/3
    """
    require_range("rows", rows, 2, 75)
    require_positive(penalty=penalty)
    x, y = sp.symbols("x1:3"), sp.symbols(f"y1:{rows + 1}")
    data = [(_ONE, length, width) for _, length, width in regression_rows(rows)]
    losses, share = [squared_error(row, x) for row in data], sp.Rational(1, rows)
    gain = sp.Add(*(t * loss for t, loss in zip(y, losses, strict=True)))
    spread = sp.Add(*((t - share) ** 2 for t in y))
    # over the box in x a residual is at most 1 + a + b in size
    worst = max((1 + length + width) ** 2 / 2 for _, length, width in data)
    box = {s.name: (-1, 1) for s in x} | {s.name: (0, share + worst / penalty) for s in y}
    return Example(
        problem=MinimaxProblem(gain - penalty * spread / 2, x, y, box=box, name="robust_regression"),
        reference="Namkoong and Duchi, NeurIPS 2016; data: Fisher 1936.",
        y_star=tuple(share + loss / penalty for loss in losses),
        phi=_mean(losses) + sp.Add(*(loss**2 for loss in losses)) / (2 * penalty),
    )


def squared_error(row: Sequence[sp.Expr], weights: Sequence[sp.Expr]) -> sp.Expr:
    """(a^T w - b)^2/2 for a row (a, b).

    >>> w1, w2 = sp.symbols("w1 w2")
    >>> squared_error((3, 4, 5), (w1, w2))
    (3*w1 + 4*w2 - 5)**2/2
    """
    *inputs, target = row
    return (linear_form(inputs, weights) - target) ** 2 / 2


def ridge_solution(rows: Sequence[Row], penalty: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """The two weights that minimise the mean squared error + penalty |y|^2/2, by Cramer's rule.

    >>> ridge_solution([(1, 0, 2), (0, 1, 3)], sp.Integer(1))
    (2/3, 1)
    """
    moments = [[_mean(row[i] * row[j] for row in rows) for j in range(3)] for i in range(2)]
    (aa, ab, at), (_, bb, bt) = moments
    determinant = (aa + penalty) * (bb + penalty) - ab**2
    first = ((bb + penalty) * at - ab * bt) / determinant
    return first, ((aa + penalty) * bt - ab * at) / determinant


def _mean(terms: Iterable[sp.Expr]) -> sp.Expr:
    listed = list(terms)
    return sp.Add(*(term / sp.Integer(len(listed)) for term in listed))


def _logistic_losses(rows: Iterable[tuple[Row, int]], y: Sequence[sp.Symbol]) -> list[sp.Expr]:
    return [softplus(-label * linear_form(inputs, y)) for inputs, label in rows]


def _spread_out(count: int, rows: int) -> tuple[int, ...]:
    """Row numbers, from 1, evenly spread over both species (rows of the two species alternate)."""
    return tuple(1 + i * rows // count + i % 2 for i in range(count))
