"""Right formulas with wrong numbers: too few bits, noise, the point asked before."""

from __future__ import annotations

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Floats
from verify.gallery.defect import defect
from verify.gallery.plain import Candidate, hypergradient, newton, start


@defect(
    "float32 inside",
    cause="precision",
    looks="float64 comes out, with seven digits at best: the loss goes down until rounding takes over",
)
def float32_inside(problem: BilevelProblem) -> Candidate:
    """Somewhere inside, numbers pass through single precision."""

    def solved(A: Floats, b: Floats) -> Floats:
        return np.linalg.solve(A.astype(np.float32), b.astype(np.float32)).astype(np.float64)  # defect: float32

    return hypergradient(problem, inverse=solved)


def one_call_late(right: Candidate) -> Candidate:
    """What is right, stored and handed out one call later; the first call has nothing older."""
    stored: Floats | None = None

    def candidate(x: Floats) -> Floats:
        nonlocal stored
        new = right(x)
        answer, stored = (new if stored is None else stored), new
        return answer

    return candidate


@defect(
    "answer for the point before",
    cause="predecessor",
    looks="along a slow trajectory the loss goes down; after a jump the first step goes the old way",
    seen="the stale gradient after a perturbation: the paper's Algorithm 1",
)
def answer_for_the_point_before(problem: BilevelProblem) -> Candidate:
    """The gradient is stored, and used one call later."""
    return one_call_late(hypergradient(problem))  # defect: hypergradient(problem)


@defect(
    "finite differences of values",
    cause="noise",
    looks="half of the digits: enough for the loss to go down, too few for a Hessian",
    seen="a check by finite differences cannot tell a wrong gradient from noise: tesseract-core #740",
)
def finite_differences_of_values(problem: BilevelProblem) -> Candidate:
    """(Phi(x + h) - Phi(x))/h with h so small that it divides rounding errors."""
    k, h = problem.kernels, 1e-10  # defect: h

    def phi(x: Floats) -> float:
        return float(k.f(x, newton(k, x, start(problem))))

    return lambda x: np.array([(phi(x + h * unit) - phi(x)) / h for unit in np.eye(problem.d)])


@defect(
    "noise counted as curvature",
    kind="hessian",
    cause="noise",
    looks="two digits, and others at the next point: directions of negative curvature appear and vanish",
    seen="finite differences cannot tell a wrong derivative from noise: tesseract-core #740",
)
def noise_counted_as_curvature(problem: BilevelProblem) -> Candidate:
    """Finite differences of gradients that carry noise, here six decimals of a log file: it is divided by the step."""
    right, h = hypergradient(problem), 1e-4

    def gradient(x: Floats) -> Floats:
        return np.round(right(x), 6)  # defect: an error of 5e-7, which the quotient makes 5e-3

    def candidate(x: Floats) -> Floats:
        rows = np.array([(gradient(x + h * unit) - gradient(x - h * unit)) / (2 * h) for unit in np.eye(problem.d)])
        return np.asarray((rows + rows.T) / 2)

    return candidate
