"""g_yy^-1 applied wrongly. Right are ``plain.conjugate_gradients`` and ``plain.neumann``; each is one line off."""

from __future__ import annotations

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Floats
from verify.gallery.defect import defect, isotropic
from verify.gallery.plain import Candidate, by_series, hypergradient, neumann, norm, step_size


@defect(
    "last CG iterate dropped",
    cause="inverse",
    looks="hardly visible on random problems with many eigenvalues; for g_yy = 2 I the implicit term vanishes",
    seen="three published libraries share it",
)
def last_cg_iterate_dropped(problem: BilevelProblem) -> Candidate:
    """The loop leaves before the newest iterate is stored."""

    def conjugate_gradients(A: Floats, b: Floats) -> Floats:
        v, r, p = np.zeros_like(b), b, b
        for _ in range(10 * len(b)):
            Ap = A @ p
            alpha = (r @ r) / (p @ Ap)
            new = r - alpha * Ap
            if norm(new) <= 1e-10 * norm(b):
                break  # defect: stands before the next line
            v = v + alpha * p
            p = new + (new @ new) / (r @ r) * p
            r = new
        return v

    return hypergradient(problem, inverse=conjugate_gradients)


@defect(
    "CG step size missing",
    cause="inverse",
    looks="v has the right order of magnitude after a few steps, and the loss goes down",
    seen="a CG step size missing from the residual update: published hypergradient code",
)
def cg_step_size_missing(problem: BilevelProblem) -> Candidate:
    """The residual is updated as if the step size were 1."""

    def conjugate_gradients(A: Floats, b: Floats) -> Floats:
        v, r, p = np.zeros_like(b), b, b
        for _ in range(len(b)):
            if norm(r) <= 1e-16 * norm(b):
                break
            Ap = A @ p
            alpha = (r @ r) / (p @ Ap)
            v = v + alpha * p
            new = r - Ap  # defect: alpha is missing
            p = new + (new @ new) / (r @ r) * p
            r = new
        return v

    return hypergradient(problem, inverse=conjugate_gradients)


@defect(
    "CG without a guard",
    cause="not finite",
    looks="fine until the residual is exactly zero: then 0/0, and the run ends in nan",
    seen="warm-started conjugate gradients whose start is already exact",
    showcase=isotropic,
)
def cg_without_a_guard(problem: BilevelProblem) -> Candidate:
    """A fixed number of steps, and no test for a residual of zero."""

    def conjugate_gradients(A: Floats, b: Floats) -> Floats:
        v, r, p = np.zeros_like(b), b, b
        for _ in range(len(b)):  # defect: no test of r
            Ap = A @ p
            with np.errstate(all="ignore"):
                alpha = (r @ r) / (p @ Ap)
                v = v + alpha * p
                new = r - alpha * Ap
                p = new + (new @ new) / (r @ r) * p
            r = new
        return v

    return hypergradient(problem, inverse=conjugate_gradients)


@defect(
    "linear solver that rarely fails",
    cause="tolerance",
    looks="right at almost every point; a few points in a thousand have two digits",
    seen="a default linear solver that is inaccurate on 0.4 % of points: published hypergradient code",
)
def linear_solver_that_rarely_fails(problem: BilevelProblem) -> Candidate:
    """The residual is judged by one of its entries, which may be small by chance."""

    def conjugate_gradients(A: Floats, b: Floats) -> Floats:
        v, r, p = np.zeros_like(b), b, b
        for _ in range(10 * len(b)):
            Ap = A @ p
            alpha = (r @ r) / (p @ Ap)
            v = v + alpha * p
            new = r - alpha * Ap
            if abs(new[-1]) <= 1.2e-3 * norm(b):  # defect: an entry, not the norm; and too loose
                break
            p = new + (new @ new) / (r @ r) * p
            r = new
        return v

    return hypergradient(problem, inverse=conjugate_gradients)


@defect(
    "Neumann: first term missing",
    cause="inverse",
    looks="converges as Q grows, but to v - eta f_y",
    seen="a Neumann series with a term too few: published hypergradient code",
)
def neumann_first_term_missing(problem: BilevelProblem) -> Candidate:
    """The sum starts at q = 1: no number of terms makes up for it."""

    def neumann(A: Floats, b: Floats, Q: int, eta: float) -> Floats:
        term = eta * b
        v = np.zeros_like(b)  # defect: the term of q = 0
        for _ in range(Q - 1):
            term = term - eta * (A @ term)
            v = v + term
        return v

    return by_series(problem, neumann, step_size(problem))


@defect(
    "Neumann: first term twice",
    cause="inverse",
    looks="converges as Q grows, but to v + eta f_y",
    seen="a Neumann series with a term too many: published hypergradient code",
)
def neumann_first_term_twice(problem: BilevelProblem) -> Candidate:
    """The sum starts at b and adds it again."""

    eta = step_size(problem)

    def neumann(A: Floats, b: Floats, Q: int = 1000) -> Floats:
        term = eta * b
        v = term
        for _ in range(Q):
            v = v + term  # defect: stands before the next line
            term = term - eta * (A @ term)
        return v

    return hypergradient(problem, inverse=neumann)


@defect(
    "Neumann: step above 2/ell",
    cause="inverse",
    looks="plausible for two or three terms; with more it explodes, and asking for more accuracy makes it worse",
    seen="the outer step as the Neumann step: the paper's [est-vq]",
)
def neumann_step_above_two_over_ell(problem: BilevelProblem) -> Candidate:
    """The series has a term that grows: |I - eta g_yy| > 1."""
    return by_series(problem, neumann, 4 * step_size(problem), depth=10)  # defect: 4


@defect(
    "g_yy forgotten",
    cause="inverse",
    looks="the loss goes down where g_yy is near a multiple of the identity",
)
def g_yy_forgotten(problem: BilevelProblem) -> Candidate:
    """The identity in the place of the inverse: v = f_y."""
    return hypergradient(problem, inverse=lambda A, b: b)  # defect: np.linalg.solve(A, b)


@defect(
    "diagonal for the inverse",
    cause="inverse",
    looks="exact for a separable lower level, and good where y hardly interacts",
)
def diagonal_for_the_inverse(problem: BilevelProblem) -> Candidate:
    """The preconditioner, taken for the solution."""
    return hypergradient(problem, inverse=lambda A, b: np.asarray(b / np.diag(A)))  # defect: np.linalg.solve
