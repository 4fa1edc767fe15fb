"""What is right: the candidates that the defects are one line off from."""

from __future__ import annotations

from typing import Any

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Floats
from verify.gallery.defect import Kind
from verify.gallery.plain import (
    Candidate,
    conjugate_gradients,
    gradient_descent,
    hessian_terms,
    hypergradient,
    neumann,
    newton,
    start,
    step_size,
)
from verify.gallery.trajectories import ETA, perturbed_descent

__all__ = ["right"]


def right(problem: BilevelProblem, kind: Kind = "hypergradient") -> dict[str, Any]:
    """Right candidates by name. Some take ``D``, ``N`` or ``Q``, as the programs that they stand for do.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> {name: candidate(np.array([3.0])).round(9).tolist() for name, candidate in right(problem).items()}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'dense solve': [6.0], 'conjugate gradients': [6.0], 'D and N steps': [6.0], 'Neumann series': [6.0],
     'unrolled': [6.0], 'warm start': [6.0]}
    >>> list(right(problem, "hessian"))
    ['term by term']
    """
    if kind == "hessian":
        return {"term by term": _hessian(problem)}
    if kind == "lower solution":
        k, y, tau = problem.kernels, start(problem), step_size(problem)
        steps: Candidate = lambda x, D=1000: gradient_descent(k, x, y, D, tau)  # noqa: E731
        return {"Newton": lambda x: newton(k, x, y), "D steps": steps}
    if kind == "trajectory":
        return {"perturbed descent": perturbed_descent(problem, lambda x, grad, u: x - ETA * (u if u.any() else grad))}
    return {
        "dense solve": hypergradient(problem),
        "conjugate gradients": hypergradient(problem, inverse=conjugate_gradients),
        "D and N steps": _steps(problem),
        "Neumann series": _neumann(problem),
        "unrolled": _unrolled(problem),
        "warm start": _warm(problem),
    }


def _steps(problem: BilevelProblem) -> Candidate:
    """D gradient steps on the lower level, N conjugate-gradient steps: AID."""
    k, tau = problem.kernels, step_size(problem)

    def candidate(x: Floats, D: int = 1000, N: int = 20) -> Floats:
        y = gradient_descent(k, x, start(problem), D, tau)
        v = conjugate_gradients(k.g_yy(x, y), k.f_y(x, y), N)
        return k.f_x(x, y) - k.g_xy(x, y) @ v

    return candidate


def _neumann(problem: BilevelProblem) -> Candidate:
    k, eta = problem.kernels, step_size(problem)

    def candidate(x: Floats, Q: int = 1000) -> Floats:
        y = newton(k, x, start(problem))
        v = neumann(k.g_yy(x, y), k.f_y(x, y), Q, eta)
        return k.f_x(x, y) - k.g_xy(x, y) @ v

    return candidate


def _unrolled(problem: BilevelProblem) -> Candidate:
    """The derivative of D gradient steps, carried along with them: ITD, forward."""
    k, tau = problem.kernels, step_size(problem)

    def candidate(x: Floats, D: int = 1000) -> Floats:
        y, dy_dx = start(problem), np.zeros((problem.d, problem.n))
        for _ in range(D):
            dy_dx = dy_dx - tau * (k.g_xy(x, y) + dy_dx @ k.g_yy(x, y))
            y = y - tau * k.g_y(x, y)
        return k.f_x(x, y) + dy_dx @ k.f_y(x, y)

    return candidate


def _warm(problem: BilevelProblem) -> Candidate:
    """y is carried from call to call, and solved to the end each time."""
    y_before = start(problem)

    def candidate(x: Floats) -> Floats:
        nonlocal y_before
        k = problem.kernels
        y_before = y = newton(k, x, y_before)
        return k.f_x(x, y) - k.g_xy(x, y) @ np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))

    return candidate


def _hessian(problem: BilevelProblem) -> Candidate:
    def candidate(x: Floats) -> Floats:
        term = hessian_terms(problem, x)
        return term.direct + term.cross + term.cross.T + term.quadratic + term.third

    return candidate
