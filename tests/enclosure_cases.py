"""Random numbers, arrays and problems for tests of enclosures: ordinary, tiny, huge, and such that nearly cancel."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic.enclosed.midrad import MidRad

Rng = np.random.Generator
SCALES = ("ordinary", "tiny", "huge", "mixed", "whole")


def floats(rng: Rng, shape: tuple[int, ...], scale: str) -> Any:
    """Float64 numbers of a kind; "mixed" has all orders of magnitude, "tiny" subnormals."""
    mantissa = rng.normal(size=shape)
    match scale:
        case "ordinary":
            return mantissa
        case "tiny":
            return np.ldexp(mantissa, rng.integers(-1080, -1000, size=shape))
        case "huge":
            return np.ldexp(mantissa, rng.integers(480, 511, size=shape))
        case "mixed":
            return np.ldexp(mantissa, rng.integers(-300, 300, size=shape))
    return np.round(8 * mantissa)


def enclosure(rng: Rng, shape: tuple[int, ...], scale: str) -> tuple[MidRad, Any]:
    """An enclosure and a point in it, often an end, as fractions."""
    mid = floats(rng, shape, scale)
    kind = rng.integers(3)
    if kind == 0:
        return MidRad(mid), fractions(mid)
    rad = np.abs(floats(rng, shape, scale)) if kind == 1 else np.abs(mid) * 2.0 ** -float(rng.integers(1, 60))
    side = rng.integers(-1, 2, size=shape)
    point = np.empty(shape, object)
    for place in np.ndindex(*shape):
        point[place] = Fraction(float(mid[place])) + int(side[place]) * Fraction(float(rad[place]))
    return MidRad(mid, rad), point


def fractions(array: Any) -> Any:
    """Floats as fractions."""
    result = np.empty(np.shape(array), object)
    for place, value in np.ndenumerate(np.asarray(array)):
        result[place] = Fraction(float(value))
    return result


def holds(found: MidRad, truth: Any) -> bool:
    """Whether every entry of a truth is in an enclosure."""
    assert found.shape == np.shape(truth)
    return all(found.contains(value, place) for place, value in np.ndenumerate(np.asarray(truth, object)))


# ---- problems -------------------------------------------------------------------------------------------------------


def _rows(rng: Rng, m: int, n: int) -> dict[str, Any]:
    return {
        "A": rng.normal(size=(m, n)), "b": np.sign(rng.normal(size=m)), "B": rng.normal(size=(m, n)),
        "c": np.sign(rng.normal(size=m)), "w": rng.uniform(0.5, 2.0, size=m), "t": rng.normal(size=m),
    }  # fmt: skip


def _used(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: data[name] for name in names}


def logistic(rng: Rng, m: int, n: int) -> BilevelProblem:
    """A penalty for each feature."""
    return BilevelProblem(
        "mean(softplus(-c*(B @ y)))", "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2", "x[n]", "y[n]",
        data=_used(_rows(rng, m, n), "A", "b", "B", "c"),
    )  # fmt: skip


def poisson(rng: Rng, m: int, n: int) -> BilevelProblem:
    """Counts, one penalty, an offset for each row."""
    return BilevelProblem(
        "mean((B @ y - t)**2) + sum(tanh(y))", "mean(exp(A @ y/3) - w*(A @ y)/3) + exp(lam)*(y @ y)", "lam", "y[n]",
        data=_used(_rows(rng, m, n), "A", "w", "B", "t"),
    )  # fmt: skip


def softmax(rng: Rng, m: int, n: int) -> BilevelProblem:
    """Classes: a matrix of weights, and far from zero."""
    q = 2
    data = {"A": 10 * rng.normal(size=(m, n)), "T": np.eye(q)[rng.integers(q, size=m)], "B": rng.normal(size=(m, n))}
    return BilevelProblem(
        "sum((B @ W)**2)/7 + lam", "mean(logsumexp(A @ W, axis=1)) - sum(T*(A @ W))/3 + exp(lam)*sum(W**2)",
        "lam", f"W[n, {q}]", data=data,
    )  # fmt: skip


def weighted(rng: Rng, m: int, n: int) -> BilevelProblem:
    """A weight for each row, least squares with roots and quotients."""
    return BilevelProblem(
        "sum(sqrt(1 + (B @ y - t)**2))", "sigmoid(x) @ (A @ y - t)**2 + sum(y**2/(3 + cos(y)))", "x[m]", "y[n]",
        data=_used(_rows(rng, m, n), "A", "t", "B"),
    )  # fmt: skip


def kernel(rng: Rng, m: int, n: int) -> BilevelProblem:
    """A kernel with a length scale to choose."""
    points = rng.normal(size=(n, 2))
    distances = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    return BilevelProblem(
        "sum((exp(-exp(x)*S) @ y - b)**2)/2", "y @ exp(-exp(x)*S) @ y/2 + 3*(y @ y)/10 - b @ y", "x", "y[n]",
        data={"S": distances, "b": rng.normal(size=n)},
    )  # fmt: skip


FAMILIES: dict[str, Callable[[Rng, int, int], BilevelProblem]] = {
    "logistic": logistic, "poisson": poisson, "softmax": softmax, "weighted": weighted, "kernel": kernel,
}  # fmt: skip
