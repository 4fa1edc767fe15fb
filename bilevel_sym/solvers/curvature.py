"""How g curves in y and Phi in x at a point, by products alone: nothing of size n x n, d x d or more is formed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bilevel_sym.kernels import Kernels
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.typing import Floats

MAX_THIRD = 20  # upper-level variables up to which all third derivatives are looked at
MAX_THIRD_OF_ARRAYS = 5  # with arrays, where they cost more
G_STEPS = 30  # of Lanczos for g_yy: beyond a condition number of 50 gradient steps are too many, whatever it is
PHI_STEPS = 5  # for Hess Phi, of which the norm is enough
POWER_STEPS = 3
DIFFERENCE = 1e-4
VANISHED = 1e-12  # what is left of a direction, relative to its image, where the space is exhausted

Product = Callable[[Floats], Floats]


class Seen(NamedTuple):
    """The smallest and the largest eigenvalue of g_yy, and the norms of the first three derivatives of Phi.

    >>> Seen(1.0, 2.0, 0.5, 1.0, 0.0).ell
    2.0
    """

    mu: float
    ell: float
    slope: float
    curvature: float
    third: float


def extreme_eigenvalues(product: Product, size: int, steps: int) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of a symmetric matrix that is given by its products, by Lanczos.

    Exact to round-off where ``steps`` is at least the number of distinct eigenvalues; otherwise they lie inside of the
    true ones. Directions are made orthogonal to all before them, twice.

    >>> low, high = extreme_eigenvalues(lambda u: np.array([1.0, 2.0, 5.0]) * u, 3, 3)
    >>> round(low, 12), round(high, 12)
    (1.0, 5.0)
    """
    start = np.random.default_rng(0).standard_normal(size)
    basis, diagonal, beside = [start / np.linalg.norm(start)], list[float](), list[float]()
    for _ in range(min(steps, size)):
        image = product(basis[-1])
        diagonal.append(float(basis[-1] @ image))
        known = np.array(basis)
        rest = image - known.T @ (known @ image)
        rest -= known.T @ (known @ rest)
        left = float(np.linalg.norm(rest))
        if not left > VANISHED * float(np.linalg.norm(image)):
            break
        beside.append(left)
        basis.append(rest / left)
    off = beside[: len(diagonal) - 1]
    ritz = np.linalg.eigvalsh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    return float(ritz[0]), float(ritz[-1])


def has_few_thirds(problem: BilevelProblem) -> bool:
    """Whether all d^3 third derivatives of Phi may be looked at.

    >>> has_few_thirds(BilevelProblem("sum(y**2)/2", "sum((y - x)**2)", "x[50]", "y[50]"))
    False
    """
    return problem.d <= (MAX_THIRD_OF_ARRAYS if problem.is_array else MAX_THIRD)


def look(kernels: Kernels, x: Floats) -> Seen:
    """What is seen at x: eigenvalues of g_yy by its products, those of Hess Phi by differences of gradients.

    >>> problem = BilevelProblem("sum(y**2)/2", "sum((y - x)**2)", "x[50]", "y[50]")  # Phi = sum(x^2)/2
    >>> [round(number, 6) for number in look(problem.kernels, np.full(50, 0.1))]
    [2.0, 2.0, 0.707107, 1.0, 0.0]
    """
    y = kernels.y_star(x)
    mu, ell = extreme_eigenvalues(lambda v: kernels.g_yy_v(x, y, v), len(y), G_STEPS)
    grad = kernels.grad_phi(x, y0=y)
    reach = _reach(x)

    def curved(u: Floats) -> Floats:
        return (kernels.grad_phi(x + reach * u, y0=y) - grad) / reach

    low, high = extreme_eigenvalues(curved, len(x), PHI_STEPS)
    slope = float(np.linalg.norm(grad))
    return Seen(mu, ell, slope, max(abs(low), abs(high)), third_derivative(kernels, x, y, grad))


def third_derivative(kernels: Kernels, x: Floats, y: Floats, grad: Floats) -> float:
    """A lower bound of the norm of the third derivative of Phi, to the error of a difference.

    A few steps of the power method, u -> D^3 Phi[u, u, .], by second differences of gradients.

    - ``kernels``: those of the problem.
    - ``x``: the point.
    - ``y``: y* there.
    - ``grad``: the gradient of Phi there; the first u is along it.

    >>> kernels = BilevelProblem("y**3/6", "(y - x)**2", "x", "y").kernels  # Phi = x^3/6
    >>> round(third_derivative(kernels, np.array([1.0]), np.array([1.0]), np.array([0.5])), 5)
    1.0
    """
    u = grad / np.linalg.norm(grad) if grad.any() else np.full(len(x), 1 / math.sqrt(len(x)))
    reach, largest = _reach(x), 0.0
    for _ in range(POWER_STEPS):
        ahead, behind = (kernels.grad_phi(x + way * u, y0=y) for way in (reach, -reach))
        change = (ahead - 2 * grad + behind) / reach**2
        size = float(np.linalg.norm(change))
        # what rounding leaves of the gradients is no derivative
        if not size > np.finfo(float).eps * float(np.linalg.norm(ahead)) * 1e3 / reach**2:
            break
        largest, u = max(largest, size), change / size
    return largest


def _reach(x: Floats) -> float:
    return DIFFERENCE * max(1.0, float(np.linalg.norm(x)))
