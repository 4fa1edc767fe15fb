"""g_yy v = f_y, not solved to the end, as the defaults of libraries have it. Right is ``plain.conjugate_gradients``."""

from __future__ import annotations

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Floats
from verify.gallery.defect import defect, spread
from verify.gallery.plain import Candidate, conjugate_gradients, hypergradient, neumann, norm, step_size


@defect(
    "CG stops at a default tolerance",
    cause="tolerance",
    looks="exact on a few eigenvalues, where conjugate gradients end by themselves; elsewhere as many digits as it has",
    seen="tolerances of 1e-5 that were taken over from scipy.sparse.linalg.cg: libraries for implicit differentiation",
    showcase=spread,
)
def cg_stops_at_a_default_tolerance(problem: BilevelProblem) -> Candidate:
    """The residual is small, so v is taken for solved."""

    def inverse(A: Floats, b: Floats) -> Floats:
        steps = (conjugate_gradients(A, b, N) for N in range(10 * len(b)))
        return next(v for v in steps if norm(b - A @ v) <= 1e-3 * norm(b))  # defect: 1e-15

    return hypergradient(problem, inverse=inverse)


@defect(
    "CG on the normal equations",
    cause="tolerance",
    looks="right for well-conditioned g_yy; the condition is squared, and the tolerance is of another residual",
    seen="the default of two libraries, which allow for a g_yy that is not symmetric",
    showcase=spread,
)
def cg_on_the_normal_equations(problem: BilevelProblem) -> Candidate:
    """g_yy^2 v = g_yy f_y, until its own residual is small."""

    def inverse(A: Floats, b: Floats) -> Floats:
        square, right = A @ A, A @ b  # defect: A, b
        steps = (conjugate_gradients(square, right, N) for N in range(10 * len(b)))
        return next(v for v in steps if norm(right - square @ v) <= 1e-2 * norm(right))

    return hypergradient(problem, inverse=inverse)


@defect(
    "one step of CG",
    cause="inverse",
    looks="exact where g_yy is a multiple of the identity, and of the right size elsewhere",
    seen="a default of one iteration: betty-ml 0.1.1, cg_iterations",
    showcase=spread,
)
def one_step_of_cg(problem: BilevelProblem) -> Candidate:
    """The number of iterations is left at its default."""
    return hypergradient(problem, inverse=lambda A, b: conjugate_gradients(A, b, 1))  # defect: 1


@defect(
    "CG with the old residual",
    cause="inverse",
    looks="(0.6, 0.6) for g_yy = diag(1, 3) and f_y = (1, 1), where v = (1, 1/3); the first step is right",
    seen="hypergrad 0.0.1; betty-ml 0.1.1, issue #15 of its repository",
)
def cg_with_the_old_residual(problem: BilevelProblem) -> Candidate:
    """The new direction is made of the residual before the step."""

    def inverse(A: Floats, b: Floats) -> Floats:
        v, r, p = np.zeros_like(b), b, b
        for _ in range(len(b)):
            if norm(r) <= 1e-16 * norm(b):
                break
            Ap = A @ p
            alpha = (r @ r) / (p @ Ap)
            v, new = v + alpha * p, r - alpha * Ap
            p = r + (new @ new) / (r @ r) * p  # defect: r
            r = new
        return v

    return hypergradient(problem, inverse=inverse)


@defect(
    "Neumann: one step",
    cause="inverse",
    looks="v is about 2 eta f_y whatever g_yy is: the direction is often good, the length is not",
    seen="a default of one iteration: betty-ml 0.1.1, neumann_iterations",
    showcase=spread,
)
def neumann_one_step(problem: BilevelProblem) -> Candidate:
    """f_y and one more term."""
    eta = step_size(problem)
    return hypergradient(problem, inverse=lambda A, b: neumann(A, b, 2, eta))  # defect: 2
