"""check_trajectory: does a run of a user's solver obey its own rules, and the lemmas about them?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.system.budget import Deadline, Effort, Stopwatch, scale_of
from bilevel_sym.system.memory import Memory, bytes_of
from verify.papers.huang_saddle.trajectory.bounds import descent, error_required, gradient_errors
from verify.papers.huang_saddle.trajectory.estimates import estimates
from verify.papers.huang_saddle.trajectory.moves import finite, perturbations, update
from verify.papers.huang_saddle.trajectory.record import Record, record_of
from verify.papers.huang_saddle.trajectory.truth import Given, Truth, given_of, truth_of
from verify.reporting import Report
from verify.verdict import CheckResult, Verdict

__all__ = ["check_trajectory"]

CUT = "cut by time, so that nothing is decided"


def check_trajectory(
    solution: object,
    problem: BilevelProblem,
    *,
    constants: Given | None = None,
    effort: Effort = "default",
    seconds: float | None = None,
    memory: Memory = "2GB",
) -> Report:
    """The iterates, estimates and perturbations of a run against the algorithm and the lemmas.

    - ``solution``: what ``solve`` returns, or a mapping or object with the iterates ``x``, (K+1, d) or (S, K+1, d), and
      what else was kept: ``grad_phi_hat``, ``perturbed``, ``y``, ``v``, and parameters (``eta``, ``eps``, ``r``,
      ``T_escape``, ``D``, ``N``, ``tau``, ``estimator``, ``y0``, ``v0``). What is not there makes the parts that need
      it not applicable.
    - ``problem``: the problem.
    - ``constants``: Constants, certified ones or a Smoothness; by default certified over the run's hull.
    - ``effort``: "quick", "default", "thorough", or a multiple of the default: the rules are tried at all iterates, the
      lemmas at 20 000 of them times this.
    - ``seconds``: a limit of time; what it cuts is INCONCLUSIVE, and says what was left out.
    - ``memory``: "2GB", "500 MB" or bytes; lemmas whose constants do not fit are INCONCLUSIVE, and name the size.

    Paper: Algorithm 1 [alg:perturbedalg]; Lemma 2.8 [lem:descent]; Lemma B.1 [lem:grad-err-aid]
    Paper: Lemma C.2 [lem:grad-err-mini]; Equation 2.6 [eq:error-required]

    >>> from bilevel_sym import AID, BilevelProblem, Descent, solve
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> run = solve(problem, Descent(AID(D=2, N=1, tau=0.5), eta=0.25), [1.0], steps=9)
    >>> check_trajectory(run, problem).ok
    True
    >>> iterates = run.trajectory.x.copy()
    >>> iterates[4] = 0.5
    >>> report = check_trajectory({"x": iterates, "grad_phi_hat": run.trajectory.grad_phi_hat, "eta": 0.25}, problem)
    >>> print(report["unlabelled:algorithm-1-step-14"].message.splitlines()[-2].strip())
    suspected cause: iterate k = 4 was replaced after it was computed: x_(k+1) follows from x_(k-1) without it
    """
    watch, deadline, scale = Stopwatch(), Deadline(seconds), scale_of(effort)
    given, room = given_of(constants), bytes_of(memory)
    record = record_of(solution, problem)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a broken run is judged, not warned about
        results = tuple(_parts(record, given, scale, deadline, room))
    box = record.problem.box
    return Report(
        problem=problem.name or "problem",
        box=None if box is None else dict(box.items()),
        variant="corrected",
        seed=0,
        seconds=watch.elapsed,
        results=results,
    )


def _parts(
    record: Record, given: Given | None, effort: float, deadline: Deadline, memory: int
) -> Iterator[CheckResult]:
    yield finite(record)
    yield update(record)
    yield from perturbations(record)
    truth = truth_of(record, given, effort=effort, deadline=deadline, memory=memory)
    beside = (
        lambda: [estimates(truth)],
        lambda: gradient_errors(truth),
        lambda: [error_required(truth)],
        lambda: [descent(truth)],
    )
    for part in beside:
        for result in part():
            yield _whole(result, truth, deadline)


def _whole(result: CheckResult, truth: Truth, deadline: Deadline) -> CheckResult:
    """The same, or, where time was up before or while it was found, no HOLDS."""
    if not deadline.passed or result.verdict is not Verdict.HOLDS:
        return result
    left_out = truth.remark or "what was still to be done when the time was up"
    return replace(result, verdict=Verdict.INCONCLUSIVE, message=f"{CUT}; {left_out}; so far: {result.message}")
