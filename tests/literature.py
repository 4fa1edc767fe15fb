"""Twelve problems from the literature, each with the hypergradient that was derived by hand.

``by_hand`` takes the data, x and y*(x), found elsewhere, and returns the gradient of Phi, entries laid end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bilevel_sym import BilevelProblem, MinimaxProblem
from bilevel_sym.typing import Floats

__all__ = ["LITERATURE", "Work"]

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """A problem as it is stated, sizes to try it at, and its hypergradient by hand."""

    f: str
    g: str | None
    x: str
    y: str
    data: Mapping[str, str]
    by_hand: Callable[[Data, Any, Any], Floats]
    parameters: Mapping[str, str] = field(default_factory=dict)
    positive: frozenset[str] = frozenset()  # data that must be positive

    def problem(self, data: Mapping[str, Any] | None = None) -> BilevelProblem:
        """The problem, for any sizes or over arrays."""
        chosen = dict(self.data) if data is None else dict(data)
        parameters = {name: None if data is None else value for name, value in self.parameters.items()}
        x, y = (text if data is None else text.replace("q", "2") for text in (self.x, self.y))  # no data have it
        if self.g is None:
            return MinimaxProblem(self.f, x, y, data=chosen, parameters=parameters)
        return BilevelProblem(self.f, self.g, x, y, data=chosen, parameters=parameters)


SPLIT = {"A": "m, n", "b": "m", "B": "k, n", "c": "k"}


def sigmoid(z: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-z)))


def _ridge(D: Data, x: Any, y: Any) -> Floats:
    H = D["A"].T @ D["A"] + np.exp(x) * np.eye(len(y))
    return np.asarray(-np.exp(x) * np.array([y @ np.linalg.solve(H, D["B"].T @ (D["B"] @ y - D["c"]))]))


def _logistic_parts(D: Data, y: Any) -> tuple[Floats, Floats]:
    """A^T diag(sigma') A / m and the gradient of the held-out loss."""
    s, t = sigmoid(-D["b"] * (D["A"] @ y)), sigmoid(-D["c"] * (D["B"] @ y))
    return (D["A"].T * (s * (1 - s))) @ D["A"] / len(s), -D["B"].T @ (D["c"] * t) / len(t)


def _logistic(D: Data, x: Any, y: Any) -> Floats:
    curved, f_y = _logistic_parts(D, y)
    return np.asarray(-np.exp(x) * np.array([y @ np.linalg.solve(curved + np.exp(x) * np.eye(len(y)), f_y)]))


def _features(D: Data, x: Any, y: Any) -> Floats:
    curved, f_y = _logistic_parts(D, y)
    return np.asarray(-np.exp(x) * y * np.linalg.solve(curved + np.diag(np.exp(x)), f_y))


def _softmax(D: Data, x: Any, W: Any) -> Floats:
    def probabilities(A: Floats) -> Floats:
        E = np.exp(A @ W)
        return np.asarray(E / E.sum(axis=1, keepdims=True))

    S, T = probabilities(D["A"]), probabilities(D["B"])
    n, k = W.shape
    H = np.exp(x) * np.eye(n * k)
    for row, p in zip(D["A"], S, strict=True):
        H += np.kron(np.outer(row, row), np.diag(p) - np.outer(p, p)) / len(S)
    v = np.linalg.solve(H, (D["B"].T @ (T - D["Q"]) / len(T)).reshape(-1))
    return np.asarray(-np.exp(x) * np.array([W.reshape(-1) @ v]))


def _cleaning(D: Data, x: Any, y: Any) -> Floats:
    weight, z = sigmoid(x), -D["b"] * (D["A"] @ y)
    s, m = sigmoid(z), len(x)
    H = (D["A"].T * (weight * s * (1 - s))) @ D["A"] / m + np.eye(len(y)) / 10
    v = np.linalg.solve(H, _logistic_parts(D, y)[1])
    return np.asarray(weight * (1 - weight) * D["b"] * s * (D["A"] @ v) / m)


def _meta(D: Data, x: Any, y: Any) -> Floats:
    """iMAML: (I + A^T A / lambda)^-1 times the gradient of the task's test loss."""
    lam = 2.0
    return np.linalg.solve(np.eye(len(y)) + D["A"].T @ D["A"] / lam, D["B"].T @ (D["B"] @ y - D["c"]))


def _tikhonov(D: Data, L: Any, y: Any) -> Floats:
    v = np.linalg.solve(D["A"].T @ D["A"] + L.T @ L, y - D["t"])
    return np.asarray(-np.outer(L @ v, y) - np.outer(L @ y, v)).reshape(-1)


def _kernel(D: Data, x: Any, y: Any) -> Floats:
    K = np.exp(-np.exp(x) * D["S"])
    dK = -np.exp(x) * D["S"] * K
    R = np.exp(-np.exp(x) * D["T"])
    residual = R @ y - D["c"]
    v = np.linalg.solve(K + np.eye(len(y)) / 2, R.T @ residual)
    return np.array([residual @ (-np.exp(x) * D["T"] * R) @ y - v @ dK @ y])


def _robust(D: Data, x: Any, y: Any) -> Floats:
    return np.asarray(D["A"].T @ (D["A"] @ x - D["b"] - y)) / len(y)


def _entropic(D: Data, x: Any, y: Any) -> Floats:
    """The weights are exp(loss/r - 1), and by Danskin's theorem only the direct part is left."""
    return np.asarray(D["A"].T @ (y * (D["A"] @ x - D["b"])))


def _game(D: Data, x: Any, y: Any) -> Floats:
    v = np.linalg.solve(D["K"], y - D["t"])
    return np.asarray(x + D["C"] @ v)


def _denoising(D: Data, x: Any, y: Any) -> Floats:
    z = D["F"] @ y
    root = np.sqrt(z**2 + 0.01)
    H = np.eye(len(y)) + np.exp(x) * (D["F"].T * (0.01 / root**3)) @ D["F"]
    return np.asarray(-np.exp(x) * np.array([(D["F"].T @ (z / root)) @ np.linalg.solve(H, y - D["t"])]))


def _factorisation(D: Data, U: Any, V: Any) -> Floats:
    """Both levels see M; the lower one shrinks V."""
    E = U @ V.T - D["M"]
    G = U.T @ U + np.eye(V.shape[1]) / 5
    R = np.linalg.solve(G, (E.T @ U).T).T  # the adjoint, shaped like V
    return np.asarray(E @ V - (E @ R + U @ R.T @ V)).reshape(-1)


LITERATURE: Mapping[str, Work] = {
    "ridge": Work("sum((B @ y - c)**2)/2", "sum((A @ y - b)**2)/2 + exp(x)*(y @ y)/2", "x", "y[n]", SPLIT, _ridge),
    "logistic, one penalty": Work(
        "mean(softplus(-c*(B @ y)))", "mean(softplus(-b*(A @ y))) + exp(x)*(y @ y)/2", "x", "y[n]", SPLIT, _logistic
    ),
    "logistic, a penalty for each feature": Work(
        "mean(softplus(-c*(B @ y)))", "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2", "x[n]", "y[n]", SPLIT, _features
    ),
    "softmax regression": Work(
        "mean(logsumexp(B @ W, axis=1) - sum(Q*(B @ W), axis=1))",
        "mean(logsumexp(A @ W, axis=1) - sum(P*(A @ W), axis=1)) + exp(x)*sum(W**2)/2",
        "x", "W[n, q]", {"A": "m, n", "P": "m, q", "B": "k, n", "Q": "k, q"}, _softmax,
    ),
    "hyper-cleaning": Work(
        "mean(softplus(-c*(B @ y)))", "mean(sigmoid(x)*softplus(-b*(A @ y))) + y @ y/20", "x[m]", "y[n]", SPLIT,
        _cleaning,
    ),
    "meta-learning (iMAML)": Work(
        "sum((B @ y - c)**2)/2", "sum((A @ y - b)**2)/2 + lam*sum((y - x)**2)/2", "x[n]", "y[n]", SPLIT, _meta,
        {"lam": "2"},
    ),
    "Tikhonov with a learned operator": Work(
        "sum((y - t)**2)/2", "sum((A @ y - b)**2)/2 + sum((L @ y)**2)/2", "L[q, n]", "y[n]",
        {"A": "m, n", "b": "m", "t": "n"}, _tikhonov,
    ),
    "kernel ridge with a learned length scale": Work(
        "sum((exp(-exp(x)*T) @ y - c)**2)/2", "y @ exp(-exp(x)*S) @ y/2 + r*(y @ y)/2 - b @ y", "x", "y[m]",
        {"S": "m, m symmetric", "T": "k, m", "b": "m", "c": "k"}, _kernel, {"r": "1/2"}, frozenset("ST"),
    ),
    "robust regression (minimax)": Work(
        "mean((A @ x - b - y)**2)/2 - r*(y @ y)/2", None, "x[n]", "y[m]", {"A": "m, n", "b": "m"}, _robust, {"r": "3"}
    ),
    "distributionally robust weights (entropic)": Work(
        "y @ (A @ x - b)**2/2 - r*(y @ log(y))", None, "x[n]", "y[m]", {"A": "m, n", "b": "m"}, _entropic, {"r": "1/2"}
    ),
    "quadratic game": Work(
        "(y - t) @ (y - t)/2 + x @ x/2", "y @ K @ y/2 - x @ C @ y", "x[d]", "y[n]",
        {"K": "n, n symmetric", "C": "d, n", "t": "n"}, _game,
    ),
    "denoising with smoothed total variation": Work(
        "sum((y - t)**2)/2", "sum((y - b)**2)/2 + exp(x)*sum(sqrt((F @ y)**2 + 1/100))", "x", "y[n]",
        {"F": "q, n", "b": "n", "t": "n"}, _denoising,
    ),
    "matrix factorisation": Work(
        "sum((U @ V.T - M)**2)/2", "sum((U @ V.T - M)**2)/2 + sum(V**2)/10", "U[m, q]", "V[n, q]", {"M": "m, n"},
        _factorisation,
    ),
}  # fmt: skip
