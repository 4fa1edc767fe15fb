"""``solve``: a cell is one ensemble, and a row has the same bits however the seeds are grouped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bilevel_sym.campaigns.context import Setting
from bilevel_sym.campaigns.kinds.record import Kind, Row
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.estimators.status import Status
from bilevel_sym.kernels import Kernels
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers import LocalMinimum, solve
from bilevel_sym.solvers.local_minimum import curvature_at
from bilevel_sym.solvers.named import algorithm_for, start_of
from bilevel_sym.solvers.solution import COUNTERS, Solution
from bilevel_sym.solvers.solving import EPS, arrival
from bilevel_sym.typing import Floats

__all__ = ["OWN"]

STEPS = 1000  # unless said otherwise, as on the command line
MOST_VARIABLES = 200  # up to which the eigenvalues of Hess Phi are looked at
STOPS = ("local minimum", "never")


def _solve(setting: Setting, seeds: Sequence[int | None]) -> list[Row]:
    given = setting.parameters
    x0 = _start(setting.problem, given.get("x0"))
    algorithm = setting.context.remember((setting.key, "algorithm"), lambda: _algorithm(setting, x0))
    rule = _rule(algorithm, given)
    solution = solve(
        setting.problem, algorithm, np.repeat(x0[None], len(seeds), axis=0), steps=given.get("steps", STEPS),
        rng=[0 if seed is None else seed for seed in seeds], record="last", stop=rule,
    )  # fmt: skip
    if Status.INTERRUPTED in solution.statuses:
        raise KeyboardInterrupt
    judge = LocalMinimum(given.get("eps", EPS), getattr(algorithm, "rho_phi", None))
    return [_row(solution, k, judge) for k in range(len(seeds))]


def _start(problem: BilevelProblem, text: str | None) -> Floats:
    """As on the command line: ``x1=0.1,x2=0``."""
    if text is None:
        return start_of(problem)
    names = [symbol.name for symbol in problem.x_entries]
    pairs = [part.partition("=") for part in str(text).split(",")]
    point = {name.strip(): value.strip() for name, _, value in pairs}
    once = len(point) == len(pairs)
    for array, own in problem.entries_by_array("x"):
        if problem.is_array and array in point and array not in names:
            point |= {symbol.name: point[array] for symbol in problem.x_entries[own]}
            del point[array]
    if set(point) != set(names) or not once:
        example = ",".join(f"{name}=0" for name in names[:10])
        raise InvalidArgument(f"x0={text!r:.100} is no value for each variable of x", hint=f'"{example}"')
    return start_of(problem, point)


def _algorithm(setting: Setting, x0: Floats) -> Any:
    given, algorithm = setting.parameters, setting.algorithm
    if algorithm is not None and not isinstance(algorithm, str):
        return algorithm
    options = {"estimator": given.get("estimator"), "eta": given.get("eta")}
    return algorithm_for(setting.problem, algorithm, eps=given.get("eps", EPS), x0=x0, **options)


def _rule(algorithm: Any, given: dict[str, Any]) -> LocalMinimum | None:
    stop = given.get("stop", STOPS[0])
    if stop not in STOPS:
        raise InvalidArgument(f"stop={stop!r:.40}", hint=" or ".join(map(repr, STOPS)))
    return None if stop == "never" else arrival(algorithm, given.get("eps", EPS))


def _row(solution: Solution, k: int, judge: LocalMinimum) -> Row:
    """One trajectory; the exact values are computed point by point, so that they are of no ensemble."""
    x, y = solution.x[k], solution.y[k]
    status = solution.statuses[k]
    row: Row = {"outcome": str(status), "sound": status.ok, "steps_made": int(solution.steps[k])}
    row |= {"x": x.tolist(), "y": y.tolist(), "phi_hat": float(solution.phi_hat[k])}
    row |= {name: int(getattr(solution.counters, name)[k]) for name in COUNTERS}
    return row | _exact(solution.kernels, x, np.where(np.isfinite(y), y, 0.0), judge)


def _exact(kernels: Kernels, x: Floats, y: Floats, judge: LocalMinimum) -> Row:
    row: Row = dict.fromkeys(("phi", "grad_norm", "smallest_eigenvalue", "local_minimum"))
    try:
        row["phi"] = float(kernels.phi(x, y0=y))
        if len(x) > MOST_VARIABLES:
            return row | {"grad_norm": float(np.linalg.norm(kernels.grad_phi(x, y0=y)))}
        here = curvature_at(kernels, x, y, judge.rho_phi)
    except BilevelError:  # Phi is not defined there: the outcome says how the run came there
        return row
    row |= {"grad_norm": here.grad_norm, "smallest_eigenvalue": here.smallest_eigenvalue}
    return row | {"local_minimum": judge.holds(kernels, x, y)}


OWN = (Kind("solve", _solve, frozenset({"eps", "estimator", "eta", "steps", "stop", "x0"}), solves=True),)
