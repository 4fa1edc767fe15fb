"""Algorithm 1 run wrongly. Right: a perturbation is a move of its own, and the next gradient is the new point's."""

from __future__ import annotations

from functools import partial

from bilevel_sym import BilevelProblem
from verify.gallery.defect import defect, saddle
from verify.gallery.plain import ETA, Record, perturbed_descent

of_run = partial(defect, kind="trajectory", showcase=saddle)


@of_run(
    "stale gradient after a perturbation",
    cause="predecessor",
    looks="it escapes the saddle all the same, so nobody looks; the descent lemma does not cover its first step",
    seen="the paper's Algorithm 1",
)
def stale_gradient_after_a_perturbation(problem: BilevelProblem) -> Record:
    """The perturbed point descends in the same iteration, by the gradient of the point before."""
    return perturbed_descent(problem, lambda x, grad, u: x - ETA * u - ETA * grad)  # defect: u or grad, not both


@of_run(
    "perturbation without the step size",
    cause="factor",
    looks="it escapes faster, for it jumps further than the lemma allows",
)
def perturbation_without_the_step_size(problem: BilevelProblem) -> Record:
    """x moves by u, which is 1/eta times too far."""
    return perturbed_descent(problem, lambda x, grad, u: x - (u if u.any() else ETA * grad))  # defect: ETA * u


@of_run(
    "step against the record",
    cause="factor",
    looks="the loss goes down; the step size that the paper reports is not the one that ran",
)
def step_against_the_record(problem: BilevelProblem) -> Record:
    """Steps of twice the recorded size."""
    return perturbed_descent(problem, lambda x, grad, u: x - ETA * (u if u.any() else 2 * grad))  # defect: 2
