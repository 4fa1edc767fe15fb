"""Implicit differentiation, written plainly: what is right. Each defect of the gallery is one changed line of this.

y* minimises g(x, .);  v = g_yy^-1 f_y;  grad Phi = f_x - g_xy v;  dy_dx = -g_xy g_yy^-1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bilevel_sym import BilevelProblem, Kernels
from bilevel_sym.typing import Floats
from verify.points.derivatives_at import block_values

__all__: list[str] = []

Candidate = Callable[..., Floats]
LowerLevel = Callable[[Kernels, Floats, Floats], Floats]
Inverse = Callable[[Floats, Floats], Floats]


def norm(array: Floats) -> float:
    """Of a vector, its length; of a matrix, its largest singular value.

    >>> norm(np.array([3.0, 4.0]))
    5.0
    """
    return float(np.linalg.norm(array, 2))


def start(problem: BilevelProblem) -> Floats:
    """Where the lower level begins.

    >>> start(BilevelProblem("y", "y**2", "x", "y", box={"x": (0, 1), "y": (0, 1)}))
    array([0.5])
    """
    return np.array([float(value) for value in problem.y_centre])


def newton(k: Kernels, x: Floats, y: Floats) -> Floats:
    """y*(x) by Newton's method, with steps halved until the gradient shrinks; it ends when nothing shrinks it.

    >>> k = BilevelProblem("y", "y**2/2 + exp(y) - x*y", "x", "y").kernels
    >>> newton(k, np.array([1.0]), np.array([3.0])).round(12) + 0.0
    array([0.])
    """
    while True:
        slope = k.g_y(x, y)
        step = np.linalg.solve(k.g_yy(x, y), slope)
        while not norm(k.g_y(x, y - step)) < norm(slope):
            step = step / 2
            if np.all(y - step == y):
                return y
        y = y - step


def step_size(problem: BilevelProblem) -> float:
    """One step size for all points, as programs have it: at most 1/|g_yy| in the middle and at two corners of the box.

    >>> step_size(BilevelProblem("x*y", "(1 + x**2)*y**2 - x*y", "x", "y"))  # g_yy = 4 at x = 1
    0.25
    """
    ends = {} if problem.box is None else dict(problem.box.items())
    pairs = np.array([[float(end) for end in ends.get(s.name, (-1, 1))] for s in (*problem.x, *problem.y)])
    corners = (pairs[:, 0], pairs.mean(axis=1), pairs[:, 1])
    return 1 / max(norm(problem.kernels.g_yy(z[: problem.d], z[problem.d :])) for z in corners)


def gradient_descent(k: Kernels, x: Floats, y: Floats, D: int, tau: float) -> Floats:
    """D steps of size tau on g(x, .).

    >>> k = BilevelProblem("y", "y**2 - x*y", "x", "y").kernels
    >>> gradient_descent(k, np.array([1.0]), np.array([3.0]), D=1, tau=0.5)
    array([0.5])
    """
    for _ in range(D):
        y = y - tau * k.g_y(x, y)
    return y


def dense_solve(A: Floats, b: Floats) -> Floats:
    """v with A v = b, by factorisation.

    >>> dense_solve(np.array([[2.0]]), np.array([4.0]))
    array([2.])
    """
    return np.asarray(np.linalg.solve(A, b), dtype=np.float64)


def conjugate_gradients(A: Floats, b: Floats, N: int | None = None) -> Floats:
    """v with A v = b, by N steps from 0; by default until the residual is down to rounding.

    >>> conjugate_gradients(np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([3.0, 4.0]))
    array([1., 1.])
    """
    v, r, p = np.zeros_like(b), b, b
    for _ in range(10 * len(b) if N is None else N):
        if norm(r) <= 1e-16 * norm(b):
            break
        Ap = A @ p
        alpha = (r @ r) / (p @ Ap)
        v = v + alpha * p
        new = r - alpha * Ap
        p = new + (new @ new) / (r @ r) * p
        r = new
    return v


def neumann(A: Floats, b: Floats, Q: int, eta: float) -> Floats:
    """v with A v = b, by Q terms of eta sum_q (I - eta A)^q b.

    >>> neumann(np.array([[2.0]]), np.array([4.0]), Q=1, eta=0.5)
    array([2.])
    """
    term = eta * b
    v = term
    for _ in range(Q - 1):
        term = term - eta * (A @ term)
        v = v + term
    return v


def hypergradient(problem: BilevelProblem, *, lower: LowerLevel = newton, inverse: Inverse = dense_solve) -> Candidate:
    """x -> grad Phi(x), from a way to solve the lower level and a way to solve a linear system.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> hypergradient(problem)(np.array([3.0]))
    array([6.])
    """
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        y = lower(k, x, start(problem))
        v = inverse(k.g_yy(x, y), k.f_y(x, y))
        return k.f_x(x, y) - k.g_xy(x, y) @ v

    return candidate


class HessianTerms(NamedTuple):
    """Hess Phi = direct + cross + cross^T + quadratic + third."""

    direct: Floats
    """f_xx"""
    cross: Floats
    """dy_dx f_yx"""
    quadratic: Floats
    """dy_dx f_yy dy_dx^T"""
    third: Floats
    """d2y_dx2 f_y, where the third derivatives of g are"""


def hessian_terms(problem: BilevelProblem, x: Floats) -> HessianTerms:
    """The terms of Hess Phi at x, independent of ``implicit.second_order`` on purpose: candidates are other programs.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> [float(term.item()) for term in hessian_terms(problem, np.array([3.0]))]
    [0.0, 1.0, 0.0, 0.0]
    """
    y = newton(problem.kernels, x, start(problem))
    at = {name: block[0] for name, block in block_values(problem.kernels, x[None], y[None]).items()}
    v = np.linalg.solve(at["g_yy"], at["f_y"])
    dy_dx = -np.linalg.solve(at["g_yy"], at["g_xy"].T).T
    mixed = np.einsum("ikl,jl->ijk", at["g_xyy"], dy_dx)
    inner = np.einsum("ia,jb,abk->ijk", dy_dx, dy_dx, at["g_yyy"])
    third = at["g_xxy"] + mixed + mixed.swapaxes(0, 1) + inner
    return HessianTerms(at["f_xx"], dy_dx @ at["f_xy"].T, dy_dx @ at["f_yy"] @ dy_dx.T, -third @ v)
