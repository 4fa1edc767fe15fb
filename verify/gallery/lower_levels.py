"""The lower level not solved. Right is ``plain.newton``, or ``plain.gradient_descent`` with enough steps."""

from __future__ import annotations

from functools import partial

from bilevel_sym import BilevelProblem, Kernels
from bilevel_sym.typing import Floats
from verify.gallery.defect import defect
from verify.gallery.numbers import one_call_late
from verify.gallery.plain import (
    Candidate,
    descent_until,
    gradient_descent,
    hypergradient,
    newton,
    start,
    step_size,
    warm_started,
)

of_solution = partial(defect, kind="lower solution")

SMALL_STEPS = 5


@defect(
    "unconverged lower level",
    cause="y*",
    looks="the loss that it sees, f(x, y_5), goes down and stays down, while Phi turns round and rises",
)
def unconverged_lower_level(problem: BilevelProblem) -> Candidate:
    """Five gradient steps from a fixed start, whatever the condition number."""

    tau = step_size(problem)

    def lower(k: Kernels, x: Floats, y: Floats) -> Floats:
        return gradient_descent(k, x, y, SMALL_STEPS, tau)  # defect: until convergence

    return hypergradient(problem, lower=lower)


@defect(
    "stale warm start",
    cause="y*",
    looks="it works while x moves slowly, and lags behind as soon as it does not; asked twice, it answers twice",
)
def stale_warm_start(problem: BilevelProblem) -> Candidate:
    """y is carried from call to call, and makes one gradient step each time."""
    tau = step_size(problem)

    def move(k: Kernels, x: Floats, y: Floats) -> Floats:
        return gradient_descent(k, x, y, 1, tau)  # defect: until convergence

    return hypergradient(problem, lower=warm_started(problem, move))


@defect(
    "tolerance too loose",
    cause="tolerance",
    looks="four digits everywhere: the loss goes down, until it stops a little too early",
)
def tolerance_too_loose(problem: BilevelProblem) -> Candidate:
    """The lower level stops at |g_y| < 1e-4."""
    tau = step_size(problem)
    return hypergradient(problem, lower=lambda k, x, y: descent_until(k, x, y, 1e-4, tau))  # defect: 1e-4


@of_solution(
    "lower level left at its start",
    cause="y*",
    looks="nothing is raised: a function with a missing call returns what it was given",
)
def lower_level_left_at_its_start(problem: BilevelProblem) -> Candidate:
    """The solver is built, and never run."""
    return lambda x: start(problem)  # defect: newton(k, x, start(problem))


@of_solution(
    "lower level: five steps",
    cause="y*",
    looks="y is on its way: one digit, and more where the start is near",
)
def lower_level_five_steps(problem: BilevelProblem) -> Candidate:
    """Five gradient steps, whatever the condition number."""
    k, tau = problem.kernels, step_size(problem)
    return lambda x: gradient_descent(k, x, start(problem), SMALL_STEPS, tau)  # defect: until convergence


@of_solution(
    "lower level: loose tolerance",
    cause="tolerance",
    looks="four digits at every point, and no warning",
)
def lower_level_loose_tolerance(problem: BilevelProblem) -> Candidate:
    """It stops at |g_y| < 1e-4."""
    k, tau = problem.kernels, step_size(problem)
    return lambda x: descent_until(k, x, start(problem), 1e-4, tau)  # defect: 1e-4


@of_solution(
    "lower level: predecessor",
    cause="predecessor",
    looks="along a slow trajectory it is nearly right; at a new point it is the old answer",
)
def lower_level_predecessor(problem: BilevelProblem) -> Candidate:
    """The solution is stored, and handed out one call later."""
    k = problem.kernels
    return one_call_late(lambda x: newton(k, x, start(problem)))  # defect: newton(k, x, start(problem))
