"""One size at one door: what is stated, what is asked, and how long that took.

Seconds are those of the processor, all threads together, from two texts (and arrays) to the answer: imports, and what
is compiled once per installation, are paid before. A door that refuses raises a typed error, and its first line is what
is told.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from time import process_time
from typing import Any

import numpy as np

import verify
from benchmarks.array_cases import logistic
from benchmarks.sizes import example
from bilevel_sym import BilevelProblem, Perturbed, derive, evaluate, solve
from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import Floats

__all__ = ["DOORS", "FAMILIES", "measured"]

FEW_FEATURES, FEW_ROWS = 10, 200
DIGITS = 10
STEPS = 100


def coupled(size: int) -> BilevelProblem:
    """Scalars, d = n = size: every x bends one y; y* is a closed form."""
    return example(size, size)


def features(size: int) -> BilevelProblem:
    """A logistic regression on few rows with a penalty for each feature, d = n = size."""
    return regression(FEW_ROWS, size)


def rows(size: int) -> BilevelProblem:
    """The same with few features, and so many rows."""
    return regression(size, FEW_FEATURES)


def regression(m: int, n: int) -> BilevelProblem:
    """Random rows; the box is where penalties and coefficients are looked for."""
    case = logistic(m, n)
    return BilevelProblem(case.f, case.g, case.x, case.y, data=case.data, box={"x": (-2, 2), "y": (-3, 3)})


FAMILIES: Mapping[str, Callable[[int], BilevelProblem]] = {"scalars": coupled, "features": features, "rows": rows}


def start(problem: BilevelProblem) -> Floats:
    """A point where nothing is special."""
    return np.linspace(-0.5, 0.5, problem.d)


DOORS: Mapping[str, Callable[[BilevelProblem], object]] = {
    "derive": lambda problem: derive(problem).latex(form="blocks"),
    "derive: source": lambda problem: derive(problem).source("numpy"),
    "kernels: ∇Φ": lambda problem: problem.kernels.grad_phi(start(problem)),
    "kernels: ∇²Φ": lambda problem: problem.kernels.hess_phi(start(problem)),
    "evaluate": lambda problem: evaluate(problem, start(problem), digits=DIGITS),
    "solve": lambda problem: solve(problem, Perturbed.auto(problem), start(problem), steps=STEPS, rng=0),
    "constants": lambda problem: verify.constants(problem),
    "smoothness": lambda problem: verify.smoothness(problem),
    "stationary_points": lambda problem: verify.stationary_points(problem),
    "verify.run": lambda problem: verify.run(problem, rng=0),
    "check_hypergradient": lambda problem: verify.check_hypergradient(problem.kernels.grad_phi, problem, rng=0),
}


def measured(door: str, family: str, size: int) -> dict[str, Any]:
    """Seconds of the processor, and how it ended: "done", or the first line of a refusal."""
    begun = process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a result is worth is no matter here
            DOORS[door](FAMILIES[family](size))
        outcome = "done"
    except BilevelError as error:
        outcome = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return {"outcome": outcome, "seconds": process_time() - begun}
