"""Algorithm 1 run wrongly. Right: a perturbation is a move of its own, and the next gradient is the new point's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.solvers import STATIONARY_SHARE
from bilevel_sym.typing import Floats
from verify.gallery.defect import defect
from verify.gallery.plain import hypergradient, norm
from verify.gallery.showcases import saddle

__all__ = ["Move", "Record", "perturbed_descent"]

Record = Mapping[str, Any]
Move = Callable[[Floats, Floats, Floats], Floats]
"""(x, the gradient there, a perturbation or zero) -> the next x."""

ETA, EPS, R, T_ESCAPE, STEPS = 0.1, 0.05, 0.5, 30, 120
START = 0.02  # each coordinate of the start: near the saddle at 0, where the gradient is small and not zero


def perturbed_descent(problem: BilevelProblem, move: Move) -> Record:
    """Algorithm 1 from near x = 0, with the rule by which a point moves; all that a checker wants to know of the run.

    >>> run = perturbed_descent(saddle(), lambda x, grad, u: x - ETA * (u if u.any() else grad))
    >>> run["x"].shape, bool(run["perturbed"][0])
    ((121, 2), True)
    """
    gradient, rng = hypergradient(problem), np.random.default_rng(0)
    x, since = np.full(problem.d, START), T_ESCAPE + 1
    points, gradients, perturbed = [x], [gradient(x)], []
    for _ in range(STEPS):
        escape = norm(gradients[-1]) <= STATIONARY_SHARE * EPS and since > T_ESCAPE
        since = 1 if escape else since + 1
        x = move(x, gradients[-1], _in_ball(rng, problem.d) if escape else np.zeros(problem.d))
        points.append(x)
        gradients.append(gradient(x))
        perturbed.append(escape)
    arrays = {"x": np.array(points), "grad_phi_hat": np.array(gradients), "perturbed": np.array([*perturbed, False])}
    return {**arrays, "eta": ETA, "eps": EPS, "r": R, "T_escape": T_ESCAPE}


def _in_ball(rng: np.random.Generator, d: int) -> Floats:
    u = rng.standard_normal(d)
    return np.asarray(R * rng.random() ** (1 / d) * u / norm(u))


@defect(
    "stale gradient after a perturbation",
    kind="trajectory",
    cause="predecessor",
    looks="it escapes the saddle all the same, so nobody looks; the descent lemma does not cover its first step",
    seen="the paper's Algorithm 1",
    showcase=saddle,
)
def stale_gradient_after_a_perturbation(problem: BilevelProblem) -> Record:
    """The perturbed point descends in the same iteration, by the gradient of the point before."""
    return perturbed_descent(problem, lambda x, grad, u: x - ETA * u - ETA * grad)  # defect: u or grad, not both


@defect(
    "perturbation without the step size",
    kind="trajectory",
    cause="factor",
    looks="it escapes faster, for it jumps further than the lemma allows",
    showcase=saddle,
)
def perturbation_without_the_step_size(problem: BilevelProblem) -> Record:
    """x moves by u, which is 1/eta times too far."""
    return perturbed_descent(problem, lambda x, grad, u: x - (u if u.any() else ETA * grad))  # defect: ETA * u


@defect(
    "step against the record",
    kind="trajectory",
    cause="factor",
    looks="the loss goes down; the step size that the paper reports is not the one that ran",
    showcase=saddle,
)
def step_against_the_record(problem: BilevelProblem) -> Record:
    """Steps of twice the recorded size."""
    return perturbed_descent(problem, lambda x, grad, u: x - ETA * (u if u.any() else 2 * grad))  # defect: 2
