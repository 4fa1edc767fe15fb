"""Wrong lower solutions, wrong Hessians and right programs of another problem: the rest of the second set."""

# ruff: noqa: E501  a defect is one line

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.planted_gradients import Program, bfloat, conjugate, descended, stopped
from benchmarks.planted_problems import LOGISTIC, RIDGE, Plain, arrays, solved
from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Floats

__all__ = ["HESSIANS", "LOWER", "SLIPS", "slip"]


# ---- another problem: a slip in what is stated, and everything else right -----------------------------

_PENALTIES = (
    "(y1 + y2 - 1)**2/2 + (y1 - 2*y2 - 2)**2/2",
    "(2*y1 - y2 - 1)**2/2 + (y1 + y2 - 3)**2/2 + exp(x1)*y1**2/2 + exp(x2)*y2**2/2",
)


def _ridge(change: str) -> Plain:
    data = arrays(16, 5, 10)
    g, f, x = RIDGE
    if change == "last training row dropped":
        data |= {"A": data["A"][:-1], "b": data["b"][:-1]}
    if change == "labels off by one row":
        data["b"] = np.roll(data["b"], 1)
    if change == "last validation row dropped":
        data |= {"B": data["B"][:-1], "c": data["c"][:-1]}
    if change == "validated on training rows":
        f = f.replace("B", "A").replace("c", "b")
        del data["B"], data["c"]
    if change == "penalty not halved":
        g = g.replace("(y @ y)/2", "(y @ y)")
    if change == "penalty is not exp(x)":
        g = g.replace("exp(x)", "(x + 3)")
    return Plain(BilevelProblem(f, g, x, "y[n]", data=data))


def _logistic(change: str) -> Plain:
    data = arrays(20, 3, 9)
    g, f, x = LOGISTIC
    if change == "sum for mean below":
        g = g.replace("mean", "sum")
    if change == "sum for mean above":
        f = f.replace("mean", "sum")
    if change == "one label is wrong":
        data["b"] = data["b"] * np.where(np.arange(20) == 4, -1, 1)
    if change == "squared loss above":
        f = "mean((B @ y - c)**2)/2"
    return Plain(BilevelProblem(f, g, x, "y[n]", data=data))


def _penalties(change: str) -> Plain:
    f, g = _PENALTIES
    if change == "target 3.03 for 3":
        g = g.replace("- 3)", "- 303/100)")
    if change == "weight 1.1 below":
        g = g.replace("exp(x1)", "11*exp(x1)/10")
    if change == "penalty of y2 forgotten":
        g = g.replace(" + exp(x2)*y2**2/2", "")
    if change == "target 1.01 for 1 above":
        f = f.replace("- 1)", "- 101/100)")
    return Plain(BilevelProblem(f, g, "x1 x2", "y1 y2"))


@lru_cache(maxsize=32)
def _slipped(name: str, change: str) -> Plain:
    """That problem with that slip."""
    return {"array ridge": _ridge, "array logistic": _logistic, "penalties": _penalties}[name](change)


# problem, slip, words: a slip below moves y* and more, one above alone does not
SLIPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("array ridge", "last training row dropped", ("arguments", "y*")),
    ("array ridge", "labels off by one row", ("arguments", "y*")),
    ("array ridge", "last validation row dropped", ("arguments",)),
    ("array ridge", "validated on training rows", ("arguments",)),
    ("array ridge", "penalty not halved", ("arguments", "y*")),
    ("array ridge", "penalty is not exp(x)", ("arguments", "y*")),
    ("array logistic", "sum for mean below", ("arguments", "y*")),
    ("array logistic", "sum for mean above", ("factor",)),
    ("array logistic", "one label is wrong", ("arguments", "y*")),
    ("array logistic", "squared loss above", ("arguments",)),
    ("penalties", "target 3.03 for 3", ("arguments", "y*")),
    ("penalties", "weight 1.1 below", ("arguments", "y*")),
    ("penalties", "penalty of y2 forgotten", ("arguments", "y*")),
    ("penalties", "target 1.01 for 1 above", ("arguments", "inverse")),
)


def slip(name: str, change: str, what: str) -> Callable[[Floats], Floats]:
    """The program: right, of the other problem."""
    other = _slipped(name, change)
    return {"gradient": other.gradient, "lower": other.y}[what]


# ---- lower solutions ---------------------------------------------------------------------------------


def _newton(p: Plain, x: Floats, s: float) -> Floats:
    y = np.zeros(p.n)
    for _ in range(int(s)):
        y = y - solved(p.k.g_yy(x, y), p.k.g_y(x, y))
    return y


def _conjugate_below(p: Plain, x: Floats, s: float) -> Floats:
    """g is quadratic: CG on g_yy y = -g_y(0), stopped early."""
    zero = np.zeros(p.n)
    return conjugate(p.k.g_yy(x, zero), -p.k.g_y(x, zero), s)


def _diverging(p: Plain, x: Floats, s: float) -> Floats:
    """Sixty steps, s / ell long each."""
    y = np.zeros(p.n)
    ell = np.linalg.norm(p.k.g_yy(x, p.y(x)), 2)
    for _ in range(60):
        y = y - s / ell * p.k.g_y(x, y)
    return y


def _argmin_of_ridge(p: Plain, x: Floats, s: float) -> Floats:
    """The minimiser of g + s |y|^2 / 2."""
    y = p.y(x)
    for _ in range(30):
        y = y - solved(p.k.g_yy(x, y) + s * np.eye(p.n), p.k.g_y(x, y) + s * y)
    return y


def _stale(p: Plain, s: float) -> Callable[[Floats], Floats]:
    kept: dict[str, Floats] = {}

    def solution(x: Floats) -> Floats:
        y = p.y(x)
        answer, kept["y"] = kept.get("y", y), y
        return answer

    return solution


def _noise(p: Plain, s: float) -> Callable[[Floats], Floats]:
    rng = np.random.default_rng(4)
    return lambda x: p.y(x) + s * rng.normal(size=p.n)


def _of(change: Callable[[Plain, Floats, float], Any]) -> Program:
    return lambda p, s: lambda x: change(p, x, s)


EARLY = ("y*", "tolerance")
LOWER: Mapping[str, tuple[Program, tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "s steps of descent": (_of(lambda p, x, s: descended(p, x, int(s))), EARLY, ()),
        "BFGS, tolerance s": (_of(stopped), EARLY, ()),
        "s steps of Newton": (_of(_newton), EARLY, ()),
        "CG, tolerance s": (_of(_conjugate_below), EARLY, ("conjugate",)),
        "steps s too long": (_of(_diverging), EARLY, ("step",)),
        "penalty s on y": (_of(_argmin_of_ridge), ("y*", "arguments", "inverse"), ("penalty", "regular")),
        "float32": (_of(lambda p, x, s: p.y(x).astype(np.float32)), ("precision",), ()),
        "bfloat16": (_of(lambda p, x, s: bfloat(p.y(x))), ("precision",), ()),
        "to s digits": (_of(lambda p, x, s: np.round(p.y(x), int(s))), ("precision",), ("round",)),
        "times s": (_of(lambda p, x, s: s * p.y(x)), ("factor",), ()),
        "minus": (_of(lambda p, x, s: -p.y(x)), ("sign",), ()),
        "reversed": (_of(lambda p, x, s: p.y(x)[::-1]), ("transpose", "arguments"), ("order", "permut", "exchang", "swap")),
        "at -x": (_of(lambda p, x, s: p.y(-x)), ("arguments",), ()),
        "of the call before": (_stale, ("predecessor",), ()),
        "at the middle always": (_of(lambda p, x, s: p.y((p.low + p.high) / 2)), ("arguments", "predecessor"), ("constant", "same")),
        "clipped at s": (_of(lambda p, x, s: np.clip(p.y(x), -s, s)), ("factor",), ("clip",)),
        "noise s": (_noise, ("noise",), ()),
        "nan where a root is negative": (_of(lambda p, x, s: p.y(x) + 0 * np.sqrt(x[0] + 0j).real / np.where(x[0] < 0, np.nan, 1)), ("not finite",), ()),
        "as a matrix": (_of(lambda p, x, s: np.outer(p.y(x), np.ones(p.n + 1))), ("shape",), ()),
    }
)  # fmt: skip


# ---- Hessians ----------------------------------------------------------------------------------------


def _weighed(name: str) -> Program:
    """One term (with its transpose, if it has one) weighs s."""

    def program(p: Plain, s: float) -> Callable[[Floats], Floats]:
        def hessian(x: Floats) -> Floats:
            at = p.pieces(x, p.y(x))
            at["cross"] = at["cross"] + at["cross"].T
            return sum((s if key == name else 1) * part for key, part in at.items())  # type: ignore[return-value]

        return hessian

    return program


def _symmetric(p: Plain, at: dict[str, Floats]) -> Floats:
    return at["direct"] + at["cross"] + at["cross"].T + at["quadratic"] + at["third"]


def _once(p: Plain, x: Floats, s: float) -> Floats:
    at = p.pieces(x, p.y(x))
    return at["direct"] + s * at["cross"] + at["quadratic"] + at["third"]


def _response(change: Callable[[Floats, float], Floats]) -> Program:
    """dy/dx changed, v right."""

    def program(p: Plain, s: float) -> Callable[[Floats], Floats]:
        def hessian(x: Floats) -> Floats:
            y = p.y(x)
            Y = -solved(p.k.g_yy(x, y), p.k.g_xy(x, y).T).T
            return _symmetric(p, p.terms_with(x, y, change(Y, s), p.v(x, y)))

        return hessian

    return program


def _solved(solve: Callable[[Floats, Floats, float], Floats]) -> Program:
    """dy/dx and v by a wrong solver."""

    def program(p: Plain, s: float) -> Callable[[Floats], Floats]:
        def hessian(x: Floats) -> Floats:
            y = p.y(x)
            H = p.k.g_yy(x, y)
            columns = np.column_stack([solve(H, b, s) for b in (*p.k.g_xy(x, y), p.k.f_y(x, y))])
            return _symmetric(p, p.terms_with(x, y, -columns[:, :-1].T, columns[:, -1]))

        return hessian

    return program


def _neumann(H: Floats, b: Floats, s: float) -> Floats:
    eta, v, term = 1 / np.linalg.norm(H, 2), 0 * b, b
    for _ in range(int(s)):
        v, term = v + eta * term, term - eta * (H @ term)
    return np.asarray(v)


def _differences(p: Plain, s: float) -> Callable[[Floats], Floats]:
    def hessian(x: Floats) -> Floats:
        return np.array([(p.gradient(x + e) - p.gradient(x)) / s for e in s * np.eye(p.d)])

    return hessian


def _rest(change: Callable[[Floats, float, Plain, Floats], Any]) -> Program:
    return lambda p, s: lambda x: change(p.hessian(x), s, p, x)


def _after_steps(p: Plain, x: Floats, s: float) -> Floats:
    return _symmetric(p, p.pieces(x, descended(p, x, int(s))))


def _held(p: Plain, s: float) -> Callable[[Floats], Floats]:
    kept: dict[str, Floats] = {}

    def hessian(x: Floats) -> Floats:
        now = p.hessian(x)
        answer, kept["H"] = kept.get("H", now), now
        return answer

    return hessian


def _magnitudes(H: Floats) -> Floats:
    values, vectors = np.linalg.eigh(H)
    return np.asarray((vectors * np.abs(values)) @ vectors.T)


HESSIANS: Mapping[str, tuple[Program, tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "f_xx weighs s": (_weighed("direct"), ("direct",), ()),
        "cross terms weigh s": (_weighed("cross"), ("cross",), ()),
        "quadratic term weighs s": (_weighed("quadratic"), ("quadratic",), ()),
        "third derivatives weigh s": (_weighed("third"), ("third derivative",), ()),
        "cross term without its transpose": (_of(_once), ("symmetry",), ()),
        "dy/dx transposed": (_response(lambda Y, s: Y.T), ("transpose",), ()),
        "dy/dx has the other sign": (_response(lambda Y, s: -Y), ("sign", "cross"), ()),
        "g_yy + s": (_solved(lambda H, b, s: solved(H + s * np.eye(len(b)), b)), ("inverse",), ()),
        "identity for the inverse": (_solved(lambda H, b, s: b), ("inverse",), ()),
        "diagonal of g_yy": (_solved(lambda H, b, s: b / np.diag(H)), ("inverse",), ()),
        "Neumann, s terms": (_solved(_neumann), ("inverse",), ()),
        "CG, tolerance s": (_solved(lambda H, b, s: conjugate(H, b, s)), ("inverse", "tolerance"), ()),
        "differences of the gradient, step s": (_differences, ("precision", "tolerance"), ("difference",)),
        "Hess + s": (_rest(lambda H, s, p, x: H + s * np.eye(p.d)), ("direct",), ("identity", "regular", "damp")),
        "times s": (_rest(lambda H, s, p, x: s * H), ("factor",), ()),
        "minus": (_rest(lambda H, s, p, x: -H), ("sign",), ()),
        "float32": (_rest(lambda H, s, p, x: H.astype(np.float32)), ("precision",), ()),
        "absolute eigenvalues": (_rest(lambda H, s, p, x: _magnitudes(H)), ("sign",), ("absolute", "eigenvalue")),
        "upper triangle": (_rest(lambda H, s, p, x: np.triu(H)), ("symmetry",), ("triang",)),
        "diagonal": (_rest(lambda H, s, p, x: np.diag(np.diag(H))), ("symmetry",), ("diagonal",)),
        "a vector": (_rest(lambda H, s, p, x: H.sum(axis=0)), ("shape",), ()),
        "nan on one side": (_rest(lambda H, s, p, x: H + (np.nan if x[0] < p.low[0] + (p.high[0] - p.low[0]) / 3 else 0)), ("not finite",), ()),
        "y after s steps": (_of(_after_steps), ("y*", "tolerance"), ()),
        "y to s digits": (_of(lambda p, x, s: _symmetric(p, p.pieces(x, np.round(p.y(x), int(s))))), ("y*", "precision"), ()),
        "of the call before": (_held, ("predecessor",), ()),
        "at -x": (lambda p, s: lambda x: p.hessian(-x), ("arguments",), ()),
    }
)  # fmt: skip
