"""Four problems with data, as texts for us and by hand in NumPy as an expert would write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from bilevel_sym.typing import Floats

__all__ = ["CASES", "SIZES", "ArrayCase", "make"]

CLASSES = 10
SHORT = 1e-7  # a Newton step below this, relative to y, is the last: what is left is its square
SIZES = ((30, 10), (200, 50), (2000, 200), (2000, 1000), (20000, 100))
Triple = tuple[float, Floats, Floats | None]


@dataclass(frozen=True)
class ArrayCase:
    """A problem with data.

    - ``name``: what it is called.
    - ``f``, ``g``, ``x``, ``y``: as texts.
    - ``data``: arrays by name.
    - ``d``, ``n``: how many variables each level has.
    - ``by_hand``: (data, x, whether the Hessian is asked for) to Phi, its gradient and its Hessian.
    """

    name: str
    f: str
    g: str
    x: str
    y: str
    data: Mapping[str, Floats]
    d: int
    n: int
    by_hand: Callable[[Mapping[str, Floats], Floats, bool], Triple]

    def point(self) -> Floats:
        """Where everybody computes."""
        return np.random.default_rng(5).normal(size=self.d) * 0.3 - 1.0

    @property
    def operations(self) -> int:
        """Multiplications of one system of Newton's method: to form and factor g_yy, or of ten products with it."""
        m, features = map(int, self.data["A"].shape)
        if self.n > features:
            return int(20 * m * self.n)
        return int(m * self.n**2 // 2 + self.n**3 // 6)


def _rows(m: int, n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=n) / np.sqrt(n)
    A, B = rng.normal(size=(m, n)), rng.normal(size=(m, n))
    return {"A": A, "B": B, "score": A @ truth + 0.3 * rng.normal(size=m), "held": B @ truth, "rng": rng}


def _signs(values: Floats) -> Floats:
    return np.where(values > 0, 1.0, -1.0)


def logistic(m: int, n: int, seed: int = 0) -> ArrayCase:
    """Logistic regression with a penalty for each feature."""
    rows = _rows(m, n, seed)
    data = {"A": rows["A"], "b": _signs(rows["score"]), "B": rows["B"], "c": _signs(rows["held"])}
    return ArrayCase(
        "logistic", "mean(softplus(-c*(B @ y)))", "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2", "x[n]", "y[n]",
        data, n, n, _logistic_by_hand,
    )  # fmt: skip


def ridge(m: int, n: int, seed: int = 0) -> ArrayCase:
    """Least squares with a penalty for each feature."""
    rows = _rows(m, n, seed)
    data = {"A": rows["A"], "b": rows["score"], "B": rows["B"], "c": rows["held"]}
    return ArrayCase(
        "ridge", "mean((B @ y - c)**2)/2", "mean((A @ y - b)**2)/2 + exp(x) @ y**2/2", "x[n]", "y[n]",
        data, n, n, _ridge_by_hand,
    )  # fmt: skip


def cleaning(m: int, n: int, seed: int = 0) -> ArrayCase:
    """Hyper-cleaning: a weight for every row."""
    rows = _rows(m, n, seed)
    data = {"A": rows["A"], "b": _signs(rows["score"]), "B": rows["B"], "c": _signs(rows["held"])}
    return ArrayCase(
        "hyper-cleaning", "mean(softplus(-c*(B @ y)))", "mean(sigmoid(x)*softplus(-b*(A @ y))) + y @ y/20",
        "x[m]", "y[n]", data, m, n, _cleaning_by_hand,
    )  # fmt: skip


def softmax(m: int, n: int, seed: int = 0) -> ArrayCase:
    """Softmax regression in ten classes with a penalty for each class."""
    rows = _rows(m, n, seed)
    rng = rows["rng"]
    truth = rng.normal(size=(n, CLASSES)) / np.sqrt(n)
    one_hot = np.eye(CLASSES)
    data = {
        "A": rows["A"], "P": one_hot[np.argmax(rows["A"] @ truth + 0.3 * rng.normal(size=(m, CLASSES)), axis=1)],
        "B": rows["B"], "Q": one_hot[np.argmax(rows["B"] @ truth, axis=1)],
    }  # fmt: skip
    return ArrayCase(
        "softmax", "mean(logsumexp(B @ W, axis=1) - sum(Q*(B @ W), axis=1))",
        "mean(logsumexp(A @ W, axis=1) - sum(P*(A @ W), axis=1)) + exp(x) @ sum(W**2, axis=0)/2",
        "x[10]", "W[n, 10]", data, CLASSES, n * CLASSES, _softmax_by_hand,
    )  # fmt: skip


CASES: Mapping[str, Callable[..., ArrayCase]] = {
    "logistic": logistic,
    "ridge": ridge,
    "hyper-cleaning": cleaning,
    "softmax": softmax,
}


def make(name: str, m: int, n: int, seed: int = 0) -> ArrayCase:
    """A case by its name."""
    return CASES[name](m, n, seed)


# ---- by hand --------------------------------------------------------------------------------------------------------


def _sigmoid(z: Floats) -> Floats:
    small = np.exp(-np.abs(z))
    return np.asarray(np.where(z < 0, small, 1.0) / (1.0 + small))


def _newton(step: Callable[[Floats], Floats], y: Floats) -> Floats:
    for _ in range(50):
        move = step(y)
        y = y + move
        if np.abs(move).max() <= SHORT * np.abs(y).max():
            break
    return y


def _of_logistic(A: Floats, b: Floats, y: Floats) -> tuple[float, Floats, Floats, Floats]:
    """The mean loss, its gradient, and the second and third derivatives of each row's loss."""
    z = -b * (A @ y)
    s, m = _sigmoid(z), len(b)
    loss = float(np.mean(np.logaddexp(0.0, z)))
    return loss, -A.T @ (b * s) / m, s * (1 - s) / m, -b * s * (1 - s) * (1 - 2 * s) / m


def _logistic_by_hand(data: Mapping[str, Floats], x: Floats, hessian: bool) -> Triple:
    A, b, penalty = data["A"], data["b"], np.exp(x)

    def matrix(weight: Floats) -> Floats:
        H = (A.T * weight) @ A
        H.flat[:: len(x) + 1] += penalty
        return H

    def step(y: Floats) -> Floats:
        _, g_y, weight, _ = _of_logistic(A, b, y)
        return np.asarray(-cho_solve(cho_factor(matrix(weight)), g_y + penalty * y))

    y = _newton(step, np.zeros(len(x)))
    _, _, weight, third = _of_logistic(A, b, y)
    phi, f_y, curved, _ = _of_logistic(data["B"], data["c"], y)
    factor = cho_factor(matrix(weight))
    v = cho_solve(factor, f_y)
    grad = -penalty * y * v
    if not hessian:
        return phi, grad, None
    dy_dx = -cho_solve(factor, np.diag(penalty * y))  # n x d
    L_yy = (data["B"].T * curved) @ data["B"] - (A.T * (third * (A @ v))) @ A
    cross = -(penalty * v)[:, None] * dy_dx
    hess = cross + cross.T + dy_dx.T @ (L_yy @ dy_dx)
    hess.flat[:: len(x) + 1] += grad
    return phi, grad, hess


def _ridge_by_hand(data: Mapping[str, Floats], x: Floats, hessian: bool) -> Triple:
    A, b, B, c, penalty = data["A"], data["b"], data["B"], data["c"], np.exp(x)
    H = A.T @ A / len(b)
    H.flat[:: len(x) + 1] += penalty
    factor = cho_factor(H)
    y = cho_solve(factor, A.T @ b / len(b))
    residual = B @ y - c
    v = cho_solve(factor, B.T @ residual / len(c))
    phi, grad = float(residual @ residual / (2 * len(c))), -penalty * y * v
    if not hessian:
        return phi, grad, None
    dy_dx = -cho_solve(factor, np.diag(penalty * y))
    cross = -(penalty * v)[:, None] * dy_dx
    moved = B @ dy_dx
    hess = cross + cross.T + moved.T @ moved / len(c)
    hess.flat[:: len(x) + 1] += grad
    return phi, grad, hess


def _cleaning_by_hand(data: Mapping[str, Floats], x: Floats, hessian: bool) -> Triple:
    A, b, weight, m = data["A"], data["b"], _sigmoid(x), len(x)

    def parts(y: Floats) -> tuple[Floats, Floats]:
        s = _sigmoid(-b * (A @ y))
        return s, weight * s * (1 - s) / m

    def matrix(row: Floats) -> Floats:
        H = (A.T * row) @ A
        H.flat[:: A.shape[1] + 1] += 0.1
        return H

    def step(y: Floats) -> Floats:
        s, row = parts(y)
        return np.asarray(-cho_solve(cho_factor(matrix(row)), -A.T @ (weight * b * s) / m + 0.1 * y))

    y = _newton(step, np.zeros(A.shape[1]))
    s, row = parts(y)
    phi, f_y, curved, _ = _of_logistic(data["B"], data["c"], y)
    factor = cho_factor(matrix(row))
    v = cho_solve(factor, f_y)
    slope = weight * (1 - weight)
    Av = A @ v
    grad = slope * b * s * Av / m
    if not hessian:
        return phi, grad, None
    G = (-slope * b * s / m)[:, None] * A  # g_xy
    dy_dx = -cho_solve(factor, G.T)
    third = -b * weight * s * (1 - s) * (1 - 2 * s) / m
    L_yy = (data["B"].T * curved) @ data["B"] - (A.T * (third * Av)) @ A
    L_xy = -(slope * s * (1 - s) * Av / m)[:, None] * A
    cross = L_xy @ dy_dx
    hess = cross + cross.T + dy_dx.T @ (L_yy @ dy_dx)
    hess.flat[:: m + 1] += (1 - 2 * weight) * grad
    return phi, grad, hess


def _softmax_parts(A: Floats, P: Floats, W: Floats) -> tuple[float, Floats, Floats]:
    Z = A @ W
    top = Z.max(axis=1, keepdims=True)
    E = np.exp(Z - top)
    total = E.sum(axis=1, keepdims=True)
    S = E / total
    loss = float(np.mean(top[:, 0] + np.log(total[:, 0])) - np.sum(P * Z) / len(Z))
    return loss, S, A.T @ (S - P) / len(Z)


def _softmax_by_hand(data: Mapping[str, Floats], x: Floats, hessian: bool) -> Triple:
    """Products with the Hessian of the lower level and conjugate gradients: n x 10 variables are many to factor."""
    A, P, penalty = data["A"], data["P"], np.exp(x)
    m, n = A.shape

    def product(S: Floats, V: Floats) -> Floats:
        AV = A @ V
        return np.asarray(A.T @ (S * AV - S * (S * AV).sum(axis=1, keepdims=True)) / m + V * penalty)

    def solve(S: Floats, right: Floats, rtol: float = 1e-15) -> Floats:
        z, r, p = np.zeros_like(right), right.copy(), right.copy()
        square = goal = float((r * r).sum())
        least, since = square, 0
        while square > rtol * rtol * goal and since < 20:
            image = product(S, p)
            length = square / float((p * image).sum())
            z += length * p
            r -= length * image
            new = float((r * r).sum())
            p = r + (new / square) * p
            least, since, square = min(least, new), 0 if new < least else since + 1, new
        return z

    W = np.zeros((n, CLASSES))
    for _ in range(50):
        _, S, g_W = _softmax_parts(A, P, W)
        right = g_W + W * penalty
        move = -solve(S, right, min(0.1, float(np.abs(right).max())))
        W = W + move
        if np.abs(move).max() <= 1e-13 * np.abs(W).max():
            break
    _, S, _ = _softmax_parts(A, P, W)
    phi, T, f_W = _softmax_parts(data["B"], data["Q"], W)
    V = solve(S, f_W)
    grad = -(W * V).sum(axis=0) * penalty
    if not hessian:
        return phi, grad, None
    return phi, grad, _softmax_hessian(data, penalty, W, V, S, T, solve)


def _softmax_hessian(
    data: Mapping[str, Floats], penalty: Floats, W: Floats, V: Floats, S: Floats, T: Floats,
    solve: Callable[[Floats, Floats], Floats],
) -> Floats:  # fmt: skip
    A, B, m = data["A"], data["B"], len(data["A"])
    AV = A @ V
    hess = np.zeros((CLASSES, CLASSES))
    for k in range(CLASSES):
        right = np.zeros_like(W)
        right[:, k] = -penalty[k] * W[:, k]
        U = solve(S, right)
        BU, AU = B @ U, A @ U
        curved = B.T @ (T * BU - T * (T * BU).sum(axis=1, keepdims=True)) / len(B)
        mean_u, mean_v = (S * AU).sum(axis=1, keepdims=True), (S * AV).sum(axis=1, keepdims=True)
        D = S * (AU - mean_u)  # how S moves
        third = D * AV - D * mean_v - S * (D * AV).sum(axis=1, keepdims=True)
        L_y = curved - A.T @ third / m
        L_y[:, k] -= penalty[k] * V[:, k]
        column = -(U * V).sum(axis=0) * penalty
        column -= (W * solve(S, L_y)).sum(axis=0) * penalty
        column[k] -= penalty[k] * float(W[:, k] @ V[:, k])
        hess[:, k] = column
    return 0.5 * (hess + hess.T)
