"""Array problems whose sources are run, by name, and what runs them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bilevel_sym import BilevelProblem, MinimaxProblem
from bilevel_sym.symbolic.array_source import array_source

M, N, K, HELD = 7, 3, 4, 5
RNG = np.random.default_rng(0)
DATA: Mapping[str, Any] = {
    "A": RNG.normal(size=(M, N)), "B": RNG.normal(size=(HELD, N)), "b": RNG.normal(size=M), "c": RNG.normal(size=HELD),
    "C": RNG.normal(size=(M, K)), "D": RNG.normal(size=(HELD, K)), "e": RNG.normal(size=N),
    "P": np.eye(K)[RNG.integers(0, K, M)], "Q": np.eye(K)[RNG.integers(0, K, HELD)],
    "p": RNG.choice([-1.0, 1.0], M), "q": RNG.choice([-1.0, 1.0], HELD), "G": np.eye(N) + np.full((N, N), 0.2),
}  # fmt: skip

SQUARES, SIGNS = "mean((B @ y - c)**2)/2", "mean(softplus(-q*(B @ y)))"
CLASSES = "mean(logsumexp(B @ W, axis=1) - sum(Q*(B @ W), axis=1))"

# name: f, g (None: minimax), x, y, names of data
CASES: Mapping[str, tuple[str, str | None, str, str, str]] = {
    "ridge, one penalty": (SQUARES, "sum((A @ y - b)**2)/2 + exp(lam)*(y @ y)/2", "lam", "y[n]", "ABbc"),
    "ridge": (SQUARES, "mean((A @ y - b)**2)/2 + exp(x) @ y**2/2", "x[n]", "y[n]", "ABbc"),
    "logistic": (SIGNS, "mean(softplus(-p*(A @ y))) + exp(x) @ y**2/2", "x[n]", "y[n]", "ABpq"),
    "hyper-cleaning": (SIGNS, "mean(sigmoid(x)*softplus(-p*(A @ y))) + y @ y/20", "x[m]", "y[n]", "ABpq"),
    "softmax": (
        CLASSES, "mean(logsumexp(A @ W, axis=1) - sum(P*(A @ W), axis=1)) + exp(x) @ sum(W**2, axis=0)/2",
        "x[k]", "W[n, k]", "ABPQ",
    ),
    "softmax with a reference": (
        "mean(log(1 + sum(exp(B @ W), axis=1)))",
        "mean(log(1 + sum(exp(A @ W), axis=1)) - sum(P*(A @ W), axis=1)) + exp(x) @ sum(W**2, axis=0)/2",
        "x[k]", "W[n, k]", "ABP",
    ),
    "columns": ("sum((B @ W - D)**2)/2", "sum((A @ W - C)**2)/2 + exp(s)*sum(W**2)/2", "s", "W[n, k]", "ABCD"),
    "rows": ("sum((W @ B.T - D.T)**2)/2", "sum((W @ A.T - C.T)**2)/2 + exp(s)*sum(W**2)/2", "s", "W[k, n]", "ABCD"),
    "joint": (
        "mean((B @ y + t - c)**2)", "mean((A @ y + t - b)**2)/2 + exp(x) @ y**2/2 + t**2/20", "x[n]", "y[n], t", "ABbc",
    ),
    "joint, with logarithms": (
        "mean((B @ y + t - c)**2) + s**2", "mean(softplus(A @ y + t - b)) + exp(x) @ y**2/2 + exp(s)*t**2/20",
        "x[n], s", "y[n], t", "ABbc",
    ),
    "side by side": (
        "sum((B @ W - D)**2)/2 + y @ y + x @ x", "sum(softplus(A @ W)) + exp(s)*sum(W**2)/2 + sum(cosh(y - x))",
        "s, x[n]", "W[n, k], y[n]", "ABD",
    ),
    "several in x": (
        "mean((B @ y - c)**2) + trace(U.T @ U)", "sum((A @ y - b)**2)/2 + y @ (U @ (U.T @ y))/2 + exp(s)*(y @ y)/2",
        "U[n, 2], s", "y[n]", "ABbc",
    ),
    "a matrix in x": (
        "sum((X @ y)**2) + sum(X*X)", "sum(softplus(A @ y)) + sum((X @ y - c)**2)/2 + y @ y", "X[5, n]", "y[n]", "Ac",
    ),
    "pieces": (
        "mean(abs(B @ y - c)**3) + max(x @ y, 1)",
        "mean(Piecewise(((A @ y - b)**2, A @ y - b < 0), ((A @ y - b)**4 + (A @ y - b)**2, True))) + y @ y/2 - x @ y",
        "x[n]", "y[n]", "ABbc",
    ),
    "a diagonal Hessian": ("sum(y**2) + sin(x) @ y", "sum(y**4)/4 + exp(x) @ y**2/2 - e @ y", "x[n]", "y[n]", "e"),
    "no data": ("sum(y)", "sum(cosh(y - x)) + y @ y*log(2)*pi", "x[3]", "y[3]", ""),
    "minimax": ("sum(tanh(A @ x)*y) - y @ y/2 - sum(softplus(y))", None, "x[n]", "y[m]", "A"),
    "minimax, quadratic": ("y @ (A @ x - b) - y @ y/2 + x @ x/20", None, "x[n]", "y[m]", "Ab"),
    "a kernel": ("mean((G @ y - e)**2)", "y @ G @ y/2 + exp(s)*(y @ y)/2 - e @ y", "s", "y[n]", "Ge"),
    "no matrix form": (
        "sum((A @ y)*(A @ x)*(A @ y))", "sum((A @ y)**2*(A @ x)**2)/2 + sum(exp(y)) + y @ y", "x[n]", "y[n]", "A",
    ),
    "every function": (
        "sum(atan(y)*asinh(y) + erf(y) + sqrt(1 + y**2) + cos(y)*tan(y/9) + sinh(x) + y**3/(1 + exp(y))) + log(2 + y @ y)",
        "sum(cosh(y - sin(x))) + y @ y/(2 + tanh(x @ x))", "x[3]", "y[3]", "",
    ),
}  # fmt: skip

Convert = Callable[[Any], Any]


def problem_of(name: str) -> BilevelProblem:
    """A case as a problem."""
    f, g, x, y, names = CASES[name]
    data = {key: DATA[key] for key in names} or None
    return MinimaxProblem(f, x, y, data=data) if g is None else BilevelProblem(f, g, x, y, data=data)


def source_of(problem: BilevelProblem, language: str) -> str:
    """The source of an array problem."""
    is_minimax = isinstance(problem, MinimaxProblem)
    return array_source(problem.array_model, language, problem.dimensions, is_minimax=is_minimax)


class Ran:
    """The module of a problem, executed in a fresh namespace; quantities are flat, as those of kernels."""

    def __init__(self, problem: BilevelProblem, language: str, convert: Convert) -> None:
        self.problem, self.text, self._convert = problem, source_of(problem, language), convert
        self.module: dict[str, Any] = {}
        exec(self.text, self.module)
        kind = self.module.get("Data")
        self.data = [] if kind is None else [kind(*(convert(np.array(problem.arrays[n])) for n in kind._fields))]

    def arrays(self, role: str, flat: Any) -> list[Any]:
        """The arrays of a role from their entries; a leading axis of points stays."""
        model, found, start = self.problem.array_model, [], 0
        for leaf in model.x if role == "x" else model.y:
            shape = [self.problem.dimensions[dim] or 0 for dim in leaf.dims]
            size = int(np.prod(shape, dtype=int))
            part = np.asarray(flat)[..., start : start + size]
            found.append(self._convert(part.reshape((*part.shape[:-1], *shape))))
            start += size
        return found

    def at(self, name: str, x: Any, y: Any = None) -> Any:
        """A function of the module, at vectors; without a warning."""
        given = [*self.arrays("x", x), *(self.arrays("y", y) if y is not None else [])]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            value = self.module[name](*given, *self.data)
        axes = {"hess_phi": "xx", "g_xy": "xy"}.get(name)
        return flattened(value) if axes is None else self._matrix(value, *axes)

    def _matrix(self, value: Any, rows: str, columns: str) -> Any:
        """A block for each pair of arrays, as one matrix."""
        counts = [[np.asarray(part).size for part in self._zeros(axis)] for axis in (rows, columns)]
        nested = value if isinstance(value, tuple) else (value,)
        if not isinstance(nested[0], tuple):
            nested = (nested,) if len(counts[0]) == 1 else tuple((part,) for part in nested)
        blocks = [
            [np.reshape(np.asarray(part), (r, c)) for part, c in zip(row, counts[1], strict=True)]
            for row, r in zip(nested, counts[0], strict=True)
        ]
        return np.block(blocks)

    def _zeros(self, role: str) -> list[Any]:
        return self.arrays(role, np.zeros(self.problem.d if role == "x" else self.problem.n))


def flattened(value: Any, lead: int = 0) -> Any:
    """Arrays laid end to end, behind leading axes."""
    if isinstance(value, tuple):
        return np.concatenate([flattened(part, lead) for part in value], axis=-1)
    array = np.asarray(value)
    return array.reshape((*array.shape[:lead], -1))
