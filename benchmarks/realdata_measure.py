"""One entrant on one problem: ``python -m benchmarks.realdata_measure gradient|walk PROBLEM ENTRANT`` prints JSON.

"gradient" is grad Phi at x = 0 with the lower level begun at 0, beside a certificate of it; "walk" is the way down to
where the entrant's own gradient is short, judged by a certificate of grad Phi at the end. The clock is the processor
time of this process, of which it may take ``PROCESSOR_SECONDS``. The first call is timed from the stated problem,
compilation included; imports are not.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from time import process_time
from types import MappingProxyType
from typing import Any

import numpy as np
from flint import arb

from benchmarks import launch
from benchmarks.realdata_peers import ENTRANTS, Method, Plan
from bilevel_sym import BilevelProblem, evaluate, zoo
from bilevel_sym.arithmetic.balls import Ball
from bilevel_sym.typing import Floats

__all__ = ["CASES", "PROCESSOR_SECONDS", "Case", "Judgement", "digits_of", "judge", "measure"]

ENOUGH = 6  # digits of grad Phi, to judge its norm
PROVED = 20  # digits of grad Phi, to count those of float64
SHARE = 0.8  # of eps, at which a method stops by its own gradient: Algorithm 1 asks for the same
STEPS = 1000
REPEATS = 5
LONG = 60.0  # seconds of a first walk after which there is no second
PROCESSOR_SECONDS = 600  # that one measurement may take


@dataclass(frozen=True)
class Case:
    """The outer loop on a problem of the zoo, from x = 0.

    - ``eta``: its step.
    - ``eps``: the norm of grad Phi that is asked for.
    - ``tau``: 1/ell at x = 0, the step of those who descend on g.
    """

    eta: float
    eps: float
    tau: float

    @property
    def plan(self) -> Plan:
        """What every entrant is told."""
        return Plan(self.eta, SHARE * self.eps, STEPS, self.tau)


# eta is about 1/L_phi as ``Descent.auto`` samples it
CASES: Mapping[str, Case] = MappingProxyType({
    "diabetes": Case(eta=64.0, eps=5e-4, tau=0.19),
    "few_shot": Case(eta=1.0, eps=1e-3, tau=0.125),
    "breast_cancer": Case(eta=24.0, eps=1e-3, tau=0.41),
    "digits": Case(eta=16.0, eps=1e-2, tau=0.48),
})  # fmt: skip


@dataclass(frozen=True)
class Judgement:
    """What a certificate says of an end point.

    - ``lower``, ``upper``: the norm of grad Phi lies between them.
    - ``is_stationary``: whether it is certainly below eps.
    """

    lower: float
    upper: float
    is_stationary: bool


def judge(problem: BilevelProblem, x: Floats, eps: float) -> Judgement:
    """Enclose the norm of the true grad Phi at x, whoever found x and whatever they believe."""
    if not np.isfinite(x).all():
        return Judgement(math.inf, math.inf, False)
    balls = evaluate(problem, x.tolist(), digits=ENOUGH).grad_phi
    lower, upper = (_norm([end(ball.value) for ball in balls]) for end in (arb.abs_lower, arb.abs_upper))
    return Judgement(float(lower), float(upper), bool(upper < arb(eps)))


def digits_of(truth: Sequence[Ball], found: Floats) -> float:
    """Proved digits of a gradient: -log10 of a bound of its error over one of its norm; 0 where nothing is right."""
    if not np.isfinite(found).all():
        return 0.0
    errors = [(ball.value - arb(float(entry))).abs_upper() for ball, entry in zip(truth, found, strict=True)]
    error, size = _norm(errors), _norm([ball.value.abs_lower() for ball in truth])
    if error == 0:
        return float(PROVED)
    return max(0.0, float(-((error / size).log() / arb(10).log()).upper()))


def _norm(entries: Sequence[Any]) -> Any:
    return sum((entry * entry for entry in entries), arb(0)).sqrt()


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of a call, and what it returns."""
    start = process_time()
    found = action()
    return process_time() - start, found


def _gradient(problem: BilevelProblem, method: Method, x: Floats, case: Case, first: float) -> dict[str, Any]:
    compiling, found = timed(lambda: method.hypergradient(x))
    later = median(timed(lambda: method.hypergradient(x))[0] for _ in range(REPEATS))
    truth = evaluate(problem, x.tolist(), digits=PROVED)
    return {
        "first": first + compiling, "later": later, "digits": digits_of(truth.grad_phi, found),
        "worst": min(float(PROVED), truth.compare(grad_phi=found).digits),
    }  # fmt: skip


def _walk(problem: BilevelProblem, method: Method, x: Floats, case: Case, first: float) -> dict[str, Any]:
    compiling, walk = timed(lambda: method.walk(x))
    later = None if compiling > LONG else timed(lambda: method.walk(x))[0]
    judged = judge(problem, walk.x, case.eps)
    return {
        "first": first + compiling, "later": later, "steps": walk.steps, "estimate": walk.estimate,
        "believed": walk.estimate <= case.plan.goal, "norm": judged.upper, "stationary": judged.is_stationary,
    }  # fmt: skip


def measure(task: str, name: str, entrant: str) -> dict[str, Any]:
    """One task of one entrant on one problem."""
    chosen, case = ENTRANTS[entrant], CASES[name]
    for module in chosen.needs:
        import_module(module)
    zoo.get(name)  # reads the table, which is nobody's work
    seconds, (problem, method) = timed(lambda: _made(name, entrant))
    work = {"gradient": _gradient, "walk": _walk}[task]
    return {"task": task, "problem": name, "entrant": entrant, **work(
        problem, method, np.zeros(problem.d), case, seconds
    )}  # fmt: skip


def _made(name: str, entrant: str) -> tuple[BilevelProblem, Method]:
    problem = zoo.get(name).problem
    return problem, ENTRANTS[entrant].make(problem, CASES[name].plan)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of libraries about libraries
    launch.limit(PROCESSOR_SECONDS)
    print(json.dumps(measure(*sys.argv[1:4])))
