"""Wrong hypergradients, as published code and students have them: the second set of planted defects.

Written before the code that names them was read.
``GRADIENTS[name]`` is (program, causes, words): a program of a problem and a number, the words of the page's table that
are right for it, and what the text may say in their place where the table has no word of its own.
"""

# ruff: noqa: E501  a defect is one line

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.optimize

from benchmarks.planted_problems import Plain, solved
from bilevel_sym.typing import Floats

__all__ = ["GRADIENTS", "Program", "bfloat", "conjugate", "descended", "stopped"]

Program = Callable[[Plain, float], Callable[[Floats], Any]]


def bfloat(value: Floats) -> Floats:
    """Eight bits of mantissa, the rest cut off."""
    cut = np.asarray(value, dtype=np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return cut.view(np.float32).astype(float)


def descended(p: Plain, x: Floats, steps: int) -> Floats:
    """Gradient descent on g from zero."""
    y = np.zeros(p.n)
    for _ in range(steps):
        y = y - p.k.g_y(x, y) / np.linalg.norm(p.k.g_yy(x, y), 2)
    return y


def stopped(p: Plain, x: Floats, tolerance: float) -> Floats:
    """BFGS of SciPy, with its stopping rule on the gradient."""
    rule = {"gtol": tolerance}
    found = scipy.optimize.minimize(
        lambda y: float(p.k.g(x, y)), np.zeros(p.n), jac=lambda y: p.k.g_y(x, y), method="BFGS", options=rule
    )
    return np.asarray(found.x)


def conjugate(H: Floats, b: Floats, tolerance: float = 0.0, steps: int = 0, rule: str = "") -> Floats:
    """Conjugate gradients; ``rule`` is one of two mistakes with residuals."""
    v, r, p = np.zeros_like(b), b, b
    for _ in range(steps or 10 * len(b)):
        if np.linalg.norm(r) <= tolerance * np.linalg.norm(b):
            break
        new_length = r @ r
        if not new_length:
            break
        alpha = new_length / (p @ H @ p)
        v, new = v + alpha * p, r - alpha * (H @ p)
        beta = (new @ new) / new_length
        p = (r if rule == "old residual" else new) + (0 if rule == "no beta" else beta) * p
        r = new
    return v


def _adjoint(solve: Callable[[Plain, Floats, Floats, Floats, Floats], Floats]) -> Callable[[Plain, Floats], Floats]:
    """f_x - g_xy v, v by a solver that is told (p, x, y, g_yy, f_y)."""

    def gradient(p: Plain, x: Floats) -> Floats:
        y = p.y(x)
        v = solve(p, x, y, p.k.g_yy(x, y), p.k.f_y(x, y))
        return p.k.f_x(x, y) - p.k.g_xy(x, y) @ v

    return gradient


def _solver(solve: Callable[[float, Floats, Floats], Floats]) -> Program:
    """With v = solve(size, g_yy, f_y)."""
    return lambda p, s: lambda x: _adjoint(lambda p, x, y, H, b: solve(s, H, b))(p, x)


def _lower(found: Callable[[Plain, Floats, float], Floats]) -> Program:
    """All derivatives at this y."""

    def program(p: Plain, s: float) -> Callable[[Floats], Floats]:
        def gradient(x: Floats) -> Floats:
            y = found(p, x, s)
            return p.k.f_x(x, y) - p.k.g_xy(x, y) @ p.v(x, y)

        return gradient

    return program


def _after(change: Callable[[Plain, Floats, Floats, float], Any]) -> Program:
    """Change(p, x, the right one, size)."""
    return lambda p, s: lambda x: change(p, x, p.gradient(x), s)


def _terms(weigh: Callable[[Plain, Floats, Floats, Floats, float], Floats]) -> Program:
    """Weigh(p, x, f_x, g_xy v, size)."""

    def program(p: Plain, s: float) -> Callable[[Floats], Floats]:
        def gradient(x: Floats) -> Floats:
            y = p.y(x)
            return weigh(p, x, p.k.f_x(x, y), p.k.g_xy(x, y) @ p.v(x, y), s)

        return gradient

    return program


def _neumann(size: float, H: Floats, b: Floats) -> Floats:
    eta, v, term = 1 / np.linalg.norm(H, 2), 0 * b, b
    for _ in range(int(size)):
        v, term = v + eta * term, term - eta * (H @ term)
    return np.asarray(v)


def _nystrom(size: float, H: Floats, b: Floats) -> Floats:
    """(size + rank one)^-1, the one column that is kept."""
    column = H[:, :1] / np.sqrt(H[0, 0])
    return np.asarray(solved(size * np.eye(len(b)) + column @ column.T, b))


def _unrolled(p: Plain, s: float) -> Callable[[Floats], Floats]:
    """The derivative of f(x, y_K(x)), y_K after K steps from zero, carried forward."""

    def gradient(x: Floats) -> Floats:
        y, J = np.zeros(p.n), np.zeros((p.d, p.n))
        eta = 1 / np.linalg.norm(p.k.g_yy(x, p.y(x)), 2)
        for _ in range(int(s)):
            J = J - eta * (p.k.g_xy(x, y) + J @ p.k.g_yy(x, y))
            y = y - eta * p.k.g_y(x, y)
        return p.k.f_x(x, y) + J @ p.k.f_y(x, y)

    return gradient


def _remembering(p: Plain, s: float) -> Callable[[Floats], Floats]:
    """Y of the call before (s = 0), the whole answer of the call before (1), v one step further than before (2)."""
    kept: dict[str, Floats] = {}

    def gradient(x: Floats) -> Floats:
        y = p.y(x)
        if s == 0:
            y, kept["y"] = kept.get("y", y), y
            return p.k.f_x(x, y) - p.k.g_xy(x, y) @ p.v(x, y)
        if s == 1:
            now = p.gradient(x)
            answer, kept["answer"] = kept.get("answer", now), now
            return answer
        H = p.k.g_yy(x, y)
        v = kept.get("v", np.zeros(p.n))
        kept["v"] = v = v - (H @ v - p.k.f_y(x, y)) / np.linalg.norm(H, 2)
        return p.k.f_x(x, y) - p.k.g_xy(x, y) @ v

    return gradient


def _cached(p: Plain, s: float) -> Callable[[Floats], Floats]:
    """Answers kept by x to some digits, so that neighbours get each other's."""
    return lambda x: p.gradient(np.round(x / s) * s)


def _frozen(p: Plain, s: float) -> Callable[[Floats], Floats]:
    """Hessian of the lower level from the middle of the box, for all points."""
    x0 = (p.low + p.high) / 2
    H0 = p.k.g_yy(x0, p.y(x0))
    return lambda x: _adjoint(lambda p, x, y, H, b: solved(H0, b))(p, x)


def _differences(p: Plain, s: float) -> Callable[[Floats], Floats]:
    """Forward differences of Phi (s > 0), central ones (s < 0)."""
    phi, h = p.k.phi, abs(s)

    def gradient(x: Floats) -> Floats:
        steps = h * np.eye(p.d)
        if s > 0:
            return np.array([float(phi(x + e) - phi(x)) / h for e in steps])
        return np.array([float(phi(x + e) - phi(x - e)) / (2 * h) for e in steps])

    return gradient


def _gauss_newton(p: Plain, s: float) -> Callable[[Floats], Floats]:
    """For "least squares": J^T J in the place of the Hessian of the sum of squares."""

    def solve(p: Plain, x: Floats, y: Floats, H: Floats, b: Floats) -> Floats:
        J = np.array([[1 + 2 * y[0] / 3, 0], [-y[0] / 2, 2], [2, 0], [0, np.cos(y[1]) / np.sqrt(2)]])
        return solved(J.T @ J, b)

    return lambda x: _adjoint(solve)(p, x)


def _noisy(p: Plain, s: float) -> Callable[[Floats], Floats]:
    rng = np.random.default_rng(3)
    return lambda x: p.gradient(x) * (1 + s * rng.normal(size=p.d))


def _single(p: Plain, x: Floats, s: float) -> Floats:
    """Everything in float32, the result too."""
    y = p.y(x).astype(np.float32).astype(float)
    blocks = [np.asarray(b, dtype=np.float32) for b in (p.k.f_x(x, y), p.k.g_xy(x, y), p.k.g_yy(x, y), p.k.f_y(x, y))]
    return np.asarray(blocks[0] - blocks[1] @ np.linalg.solve(blocks[2], blocks[3]))


def _swapped(p: Plain, s: float) -> Callable[[Floats], Floats]:
    """Blocks at (y, x) in the place of (x, y)."""

    def gradient(x: Floats) -> Floats:
        y = p.y(x)
        return p.k.f_x(y, x) - p.k.g_xy(y, x) @ solved(p.k.g_yy(y, x), p.k.f_y(y, x))

    return gradient


def _f_for_g(p: Plain, s: float) -> Callable[[Floats], Floats]:
    """F_xy in the place of g_xy."""

    def gradient(x: Floats) -> Floats:
        y = p.y(x)
        return p.k.f_x(x, y) - p.k.f_xy(x, y) @ p.v(x, y)

    return gradient


def _elsewhere(block: str) -> Program:
    """One block at y = 0."""

    def program(p: Plain, s: float) -> Callable[[Floats], Floats]:
        def gradient(x: Floats) -> Floats:
            y = p.y(x)
            at = {name: getattr(p.k, name)(x, 0 * y if name == block else y) for name in ("f_x", "g_xy", "g_yy", "f_y")}
            return np.asarray(at["f_x"] - at["g_xy"] @ solved(at["g_yy"], at["f_y"]))

        return gradient

    return program


def _clip(p: Plain, x: Floats, G: Floats, s: float) -> Floats:
    """To a norm (s > 0), entry by entry (s < 0)."""
    return G * min(1.0, s / (np.linalg.norm(G) or 1.0)) if s > 0 else np.clip(G, s, -s)


def _power(size: float, H: Floats, b: Floats) -> Floats:
    values, vectors = np.linalg.eigh(H)
    return np.asarray(vectors @ (vectors.T @ b * values**size))


def _unshared(p: Plain, x: Floats, G: Floats, s: float) -> Floats:
    """Not finite at one in two points: the logarithm of a negative number."""
    with np.errstate(invalid="ignore"):
        return np.asarray(G + 0 * np.log(x[0] - (p.low[0] + p.high[0]) / 2 + 1e-3))


SOLVER = ("inverse",)
EARLY = ("inverse", "tolerance")
LOWER = ("y*", "tolerance")
ROUNDED = ("y*", "precision")
OTHER = ("arguments", "y*")

GRADIENTS: Mapping[str, tuple[Program, tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "direct term weighs s": (_terms(lambda p, x, a, b, s: s * a - b), ("direct",), ()),
        "implicit term weighs s": (_terms(lambda p, x, a, b, s: a - s * b), ("cross",), ()),
        "implicit term added": (_terms(lambda p, x, a, b, s: a + b), ("cross", "sign"), ()),
        "weight decay s x added": (_terms(lambda p, x, a, b, s: a - b + s * x), ("direct",), ("decay",)),
        "minus": (_after(lambda p, x, G, s: -G), ("sign",), ()),
        "times s": (_after(lambda p, x, G, s: s * G), ("factor",), ()),
        "absolute values": (_after(lambda p, x, G, s: np.abs(G)), ("sign",), ("absolute",)),
        "length one": (_after(lambda p, x, G, s: G / (np.linalg.norm(G) or 1.0)), ("factor",), ("length", "norm")),
        "clipped at s": (_after(_clip), ("factor",), ("clip",)),
        "entries reversed": (_after(lambda p, x, G, s: G[::-1]), ("transpose", "arguments"), ("order", "permut", "exchang", "swap")),
        "last entry zero": (_after(lambda p, x, G, s: np.append(G[:-1], 0.0)), ("factor",), ("entry", "component", "last", "zero")),
        "gradient for exp(x) as parameter": (_after(lambda p, x, G, s: G * np.exp(-x)), ("factor", "arguments"), ("exp", "log")),
        "identity for the inverse": (_solver(lambda s, H, b: b), SOLVER, ()),
        "multiplied by g_yy": (_solver(lambda s, H, b: H @ b), SOLVER, ()),
        "Neumann, s terms": (_solver(_neumann), SOLVER, ()),
        "g_yy + s": (_solver(lambda s, H, b: solved(H + s * np.eye(len(b)), b)), SOLVER, ()),
        "diagonal of g_yy": (_solver(lambda s, H, b: b / np.diag(H)), SOLVER, ()),
        "lower triangle of g_yy": (_solver(lambda s, H, b: solved(np.tril(H), b)), SOLVER, ()),
        "CG, tolerance s": (_solver(lambda s, H, b: conjugate(H, b, s)), EARLY, ()),
        "CG, s steps": (_solver(lambda s, H, b: conjugate(H, b, steps=int(s))), EARLY, ()),
        "CG on the normal equations, tolerance s": (_solver(lambda s, H, b: conjugate(H @ H, H @ b, s)), EARLY, ()),
        "CG with the old residual": (_solver(lambda s, H, b: conjugate(H, b, steps=int(s), rule="old residual")), SOLVER, ()),
        "CG without beta": (_solver(lambda s, H, b: conjugate(H, b, steps=int(s), rule="no beta")), EARLY, ()),
        "g_yy to the power s": (_solver(_power), SOLVER, ()),
        "rank one and s": (_solver(_nystrom), SOLVER, ()),
        "v in bfloat16": (_solver(lambda s, H, b: bfloat(solved(H, b))), ("inverse", "precision"), ()),
        "frozen Hessian": (_frozen, SOLVER, ()),
        "Gauss-Newton": (_gauss_newton, SOLVER, ()),
        "f_yy for g_yy": (lambda p, s: lambda x: _adjoint(lambda p, x, y, H, b: np.asarray(np.linalg.lstsq(p.k.f_yy(x, y), b)[0], dtype=np.float64))(p, x), ("inverse", "arguments"), ()),
        "y after s steps": (_lower(lambda p, x, s: descended(p, x, int(s))), LOWER, ()),
        "y by BFGS, tolerance s": (_lower(stopped), LOWER, ()),
        "y to s digits": (_lower(lambda p, x, s: np.round(p.y(x), int(s))), ROUNDED, ()),
        "y in bfloat16": (_lower(lambda p, x, s: bfloat(p.y(x))), ROUNDED, ()),
        "y in float32": (_lower(lambda p, x, s: p.y(x).astype(np.float32).astype(float)), ROUNDED, ()),
        "all in float32": (lambda p, s: lambda x: _single(p, x, s), ("precision",), ()),
        "unrolled, s steps": (_unrolled, ("y*", "inverse", "tolerance"), ()),
        "y at x + s": (_lower(lambda p, x, s: p.y(x + s)), ("y*", "arguments"), ()),
        "y off by a constant": (_lower(lambda p, x, s: p.y(x) + s), ("y*",), ()),
        "y remembered": (lambda p, s: _remembering(p, 0), ("y*", "predecessor"), ()),
        "answer remembered": (lambda p, s: _remembering(p, 1), ("predecessor",), ()),
        "v one step further": (lambda p, s: _remembering(p, 2), ("inverse", "predecessor", "tolerance"), ()),
        "cache by rounded x": (_cached, ("predecessor", "precision", "arguments"), ("round",)),
        "differences of Phi, step s": (_differences, ("precision", "tolerance"), ("difference",)),
        "noise s": (_noisy, ("noise",), ()),
        "x for y": (_swapped, ("arguments",), ()),
        "f_xy for g_xy": (_f_for_g, ("arguments", "cross"), ()),
        "g_xy transposed": (lambda p, s: lambda x: p.k.f_x(x, p.y(x)) - p.k.g_xy(x, p.y(x)).T @ p.v(x, p.y(x)), ("transpose",), ()),
        "f_y at zero": (_elsewhere("f_y"), ("inverse", "y*"), ()),
        "g_xy at zero": (_elsewhere("g_xy"), ("cross", "y*"), ()),
        "g_yy at zero": (_elsewhere("g_yy"), ("inverse", "y*"), ()),
        "f_x at zero": (_elsewhere("f_x"), ("direct", "y*"), ()),
        "nan at some points": (_after(_unshared), ("not finite",), ()),
        "one entry too many": (_after(lambda p, x, G, s: np.append(G, 0.0)), ("shape",), ()),
        "the sum alone": (_after(lambda p, x, G, s: np.full((p.d, p.d), G.sum())), ("shape",), ()),
    }
)  # fmt: skip
