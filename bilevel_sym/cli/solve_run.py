"""One command's worth of solving: choose an algorithm, run it, say what happened. What ``bilevel-sym solve`` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from bilevel_sym.arithmetic.ties import first_smallest
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.estimators.checks import count
from bilevel_sym.estimators.status import Status
from bilevel_sym.plotting import require_matplotlib
from bilevel_sym.plotting.style import png
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers.advice import Advice
from bilevel_sym.solvers.local_minimum import Curvature, LocalMinimum, curvature_at
from bilevel_sym.solvers.named import start_of, suitable_algorithm
from bilevel_sym.solvers.solution import COUNTERS, Solution
from bilevel_sym.solvers.solving import EPS, choose
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.system.writing import check_target, write
from bilevel_sym.typing import Floats

MOST_SHOWN = 60  # entries of a point, each on a line


@dataclass(frozen=True)
class SolveRun:
    """A problem, and how to solve it; what is None is chosen.

    >>> from bilevel_sym import zoo
    >>> job = SolveRun(zoo.get("saddle", d=2).problem, steps=500)
    >>> print(next(job.report(job.run())))  # doctest: +ELLIPSIS
    1 trajectory reached an eps-local minimum (checked) (... steps)
    """

    problem: BilevelProblem
    algorithm: str | None = None
    start: Mapping[str, str] | None = None
    seed: int = 0
    seeds: int = 1
    steps: int = 1000
    eps: float = EPS
    eta: float | None = None
    checkpoint: str | None = None
    checkpoint_every: int = 1000
    estimator: str | None = None
    y_start: Mapping[str, str] | None = None

    def run(self, *, progress: bool = False, record: bool = False) -> Solution:
        """Solve."""
        x0 = start_of(self.problem, self.start, "--x0")
        with ProgressBar("choosing the steps", shown=progress):
            choice = choose(
                self.problem, self.algorithm, x0=x0, eps=self.eps, estimator=self.estimator, eta=self.eta
            )  # fmt: skip
        seeds = count("--seeds", self.seeds)
        return choice.run(
            self.problem, np.repeat(x0[None], seeds, axis=0) if seeds > 1 else x0, steps=self.steps,
            y0=None if self.y_start is None else start_of(self.problem, self.y_start, "--y0", role="y"),
            rng=self.seed, progress=progress, record="all" if record else "last",
            checkpoint=self.checkpoint, checkpoint_every=self.checkpoint_every,
        )  # fmt: skip

    def report(self, solution: Solution) -> Iterator[str]:
        """What happened, line by line."""
        yield from solution.endings()
        phi = np.atleast_1d(solution.phi)
        k = first_smallest(phi, skip_nan=True)
        x = np.atleast_2d(solution.x)[k]
        if len(phi) > 1:
            low, high = np.nanmin(phi), np.nanmax(phi)
            yield f"Phi at the last points: {low:.8g} to {high:.8g}; lowest, trajectory {k} (seed {solution.seed[k]}):"
        y = np.atleast_2d(solution.y)[k]
        yield from _by_name(self.problem.x_entries, x)
        yield from _by_name(self.problem.y_entries, y)
        yield from (f"  {line}" for line in self._judgement(solution, x, y))
        calls = {name: int(np.sum(getattr(solution.counters, name))) for name in COUNTERS}
        yield "oracle calls: " + ", ".join(f"{name} = {number}" for name, number in calls.items())
        yield f"algorithm: {solution.schedule}"

    def _judgement(self, solution: Solution, x: Floats, y: Floats) -> Iterator[str]:
        """Phi and its curvature at the point, a verdict, and what to try where it is not what was hoped for."""
        rho_phi = getattr(solution.schedule, "rho_phi", None)
        here: Curvature | None = None
        try:
            here = curvature_at(solution.kernels, x, y, rho_phi)
        except BilevelError as error:
            yield f"Phi could not be evaluated there: {str(error).splitlines()[0]}"
        if here is not None:
            yield f"Phi = {float(solution.kernels.phi(x, y0=y)):.10g}, |grad Phi| = {here.grad_norm:.3g}"
            holds = LocalMinimum(self.eps, rho_phi).holds(solution.kernels, x, y)
            verdict = "an eps-local minimum" if holds else "not an eps-local minimum"
            bound = -np.sqrt(here.rho_phi * self.eps) or 0.0
            yield (
                f"smallest eigenvalue of Hess Phi = {here.smallest_eigenvalue:.3g} (allowed: {bound:.3g}): "
                f"{verdict} for eps = {self.eps:g}"
            )
        advice = Advice(self.problem, self.algorithm, suitable_algorithm(self.problem), self.eps)
        yield from advice.lines(solution, here)


def _by_name(symbols: Sequence[object], values: Floats) -> Iterator[str]:
    shown = zip(symbols[:MOST_SHOWN], values.tolist(), strict=False)
    yield from (f"  {symbol} = {value:.10g}" for symbol, value in shown)
    if (more := len(values) - MOST_SHOWN) > 0:
        yield f"  and {more} more: --format json has them all"


# ---- records and files ------------------------------------------------------------------------------------


def is_interrupted(solution: Solution) -> bool:
    """Whether Ctrl-C or SIGTERM has ended a trajectory.

    >>> from bilevel_sym import Descent, Exact, solve, zoo
    >>> is_interrupted(solve(zoo.get("scalar").problem, Descent(Exact(), 0.1), [0.0], steps=1))
    False
    """
    return Status.INTERRUPTED in solution.statuses


def solution_record(solution: Solution) -> dict[str, Any]:
    """What programs get: the solution with the names of its problem and variables.

    >>> from bilevel_sym import Descent, Exact, solve, zoo
    >>> record = solution_record(solve(zoo.get("scalar").problem, Descent(Exact(), 0.1), [0.0], steps=1))
    >>> record["schema"], record["problem"], record["variables"], record["status"]
    ('bilevel-sym/solution/1', 'scalar', {'x': ['x'], 'y': ['y']}, 'out of steps')
    """
    problem = solution.kernels.problem
    record = solution.to_dict()
    about = {
        "schema": record.pop("schema"), "problem": problem.name, "interrupted": is_interrupted(solution),
        "variables": {"x": [s.name for s in problem.x_entries], "y": [s.name for s in problem.y_entries]},
    }  # fmt: skip
    return about | record | {"remarks": solution.endings()}


def _save_json(solution: Solution, path: str) -> None:
    write(path, json.dumps(solution_record(solution), allow_nan=False) + "\n")


def _save_plot(solution: Solution, path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    solution.plot(figure.subplots())
    write(path, png(figure))


WRITERS: Mapping[str, Callable[[Solution, str], Any]] = MappingProxyType(
    {".csv": lambda solution, path: solution.to_csv(path), ".json": _save_json, ".png": _save_plot}
)


def check_output(path: str | None, checkpoint: str | None = None) -> None:
    """Refuse, before any work, a file that could not be written in the end, or that is the checkpoint too.

    >>> check_output("run.txt")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: --out 'run.txt': the ending says the format
    try: run.csv or run.json or run.png
    """
    if path is None:
        return
    ending = Path(path).suffix
    if ending not in WRITERS:
        stem = Path(path).stem.lstrip(".") or "run"
        raise InvalidArgument(
            f"--out {path!r}: the ending says the format", hint=" or ".join(stem + e for e in WRITERS)
        )
    if ending == ".png":
        require_matplotlib()
    if checkpoint is not None and Path(path).absolute() == Path(checkpoint).absolute():
        raise InvalidArgument(f"--out and --checkpoint are both {path}", hint="two files: --checkpoint run.checkpoint")
    check_target(path)


def write_solution(solution: Solution, path: str) -> None:
    """Write the trajectories in the format that the ending of the path names.

    >>> import tempfile
    >>> from bilevel_sym import Descent, Exact, solve, zoo
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> write_solution(solve(zoo.get("scalar").problem, Descent(Exact(), 0.1), [0.0], steps=1), str(path))
    >>> path.read_text().split(",")[:4]
    ['trajectory', 'seed', 'k', 'x']
    """
    WRITERS[Path(path).suffix](solution, path)
