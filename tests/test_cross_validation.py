"""K folds as one bilevel problem, as the page of recipes states it, by two other routes."""

from __future__ import annotations

import numpy as np
import pytest

from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Bools, Floats

ROWS, FEATURES = 12, 3
RIDGE = "sum({weights}*(A @ {models} - B)**2)"
LOGISTIC = "sum({weights}*softplus(-B*(A @ {models})))"


def patients(seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(ROWS, FEATURES))
    return A, A @ [1.0, -0.5, 0.0] + 0.3 * rng.normal(size=ROWS)


def folds(loss: str, A: Floats, b: Floats, held: Bools) -> BilevelProblem:
    """The recipe: a column of W for each fold."""
    data = {"A": A, "B": np.tile(b[:, None], held.shape[1]), "H": held / ROWS, "T": ~held / ROWS}
    penalty = "exp(x) @ sum(W**2, axis=1)"
    lower = f"{loss.format(weights='T', models='W')} + {penalty}"
    return BilevelProblem(loss.format(weights="H", models="W"), lower, "x[p]", "W[p, K]", data=data)


def one_fold(loss: str, A: Floats, b: Floats, out: Bools) -> BilevelProblem:
    """A single model, and the rows that it leaves out."""
    data = {"A": A, "B": b, "H": out / ROWS, "T": ~out / ROWS}
    lower = f"{loss.format(weights='T', models='w')} + exp(x) @ w**2"
    return BilevelProblem(loss.format(weights="H", models="w"), lower, "x[p]", "w[p]", data=data)


def press(A: Floats, b: Floats, x: Floats) -> complex:
    """Leave-one-out of ridge regression without refitting: residuals over one minus leverage (Allen's PRESS)."""
    inverse = np.linalg.inv(A.T @ A / ROWS + np.diag(np.exp(x)))
    hat = A @ inverse @ A.T / ROWS
    return complex(np.mean(((b - hat @ b) / (1 - np.diag(hat))) ** 2))


def test_leave_one_out_is_its_closed_form() -> None:
    A, b = patients()
    problem = folds(RIDGE, A, b, np.eye(ROWS, dtype=bool))
    x, step = np.array([-1.0, 0.5, -2.0]), 1e-30
    slope = [press(A, b, x + 1j * step * e).imag / step for e in np.eye(FEATURES)]  # exact to rounding
    assert problem.kernels.phi(x) == pytest.approx(press(A, b, x).real, rel=1e-13)
    assert problem.kernels.grad_phi(x) == pytest.approx(slope, rel=1e-11)


def test_rows_that_are_trained_on_are_not_left_out() -> None:
    """The closed form tells folds from models that have seen the rows that judge them."""
    A, b = patients()
    seen = folds(RIDGE, A, b, np.eye(ROWS, dtype=bool))
    leaking = BilevelProblem(
        RIDGE.format(weights="H", models="W"),
        f"{RIDGE.format(weights='T', models='W')} + exp(x) @ sum(W**2, axis=1)",
        "x[p]",
        "W[p, K]",
        data={"A": A, "B": np.tile(b[:, None], ROWS), "H": np.eye(ROWS) / ROWS, "T": np.ones((ROWS, ROWS)) / ROWS},
    )
    x = np.zeros(FEATURES)
    assert leaking.kernels.phi(x) < 0.95 * seen.kernels.phi(x)


@pytest.mark.parametrize("loss", [RIDGE, LOGISTIC], ids=["ridge", "logistic"])
@pytest.mark.parametrize("K", [2, 5])
def test_folds_together_are_the_sum_of_folds_apart(loss: str, K: int) -> None:
    A, scores = patients(1)
    b = scores if loss is RIDGE else np.sign(scores)
    held = np.equal.outer(np.arange(ROWS) % K, np.arange(K))
    together, apart = folds(loss, A, b, held), [one_fold(loss, A, b, out) for out in held.T]
    x = np.array([-2.0, -1.0, 0.0])
    assert together.kernels.phi(x) == pytest.approx(sum(fold.kernels.phi(x) for fold in apart), rel=1e-13)
    assert together.kernels.grad_phi(x) == pytest.approx(sum(fold.kernels.grad_phi(x) for fold in apart), rel=1e-11)
    assert together.kernels.hess_phi(x) == pytest.approx(sum(fold.kernels.hess_phi(x) for fold in apart), rel=1e-9)
