"""The paper's promise on real data: where perturbed AID ends, and plain AID, and what it costs.

From x = 0 each problem of ``zoo.data_names()`` is run by Algorithm 1 ("PBO") and by unperturbed AID ("BO") with the
same steps; a run ends at an eps-local minimum that is checked by the exact gradient and Hessian. On the way the
gradient and the smallest eigenvalue of Hess Phi are looked at: they tell saddle points from slopes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bilevel_sym.campaigns import Campaign
from bilevel_sym.estimators.hypergradient import AID, GDmax
from bilevel_sym.plotting import COLOURS
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers import Descent, LocalMinimum, Perturbed, solve
from bilevel_sym.solvers.auto import gradient_steps, practical
from bilevel_sym.solvers.local_minimum import curvature_at
from bilevel_sym.solvers.solution import Solution
from bilevel_sym.theories.huang_saddle.experiments import reporting
from bilevel_sym.theories.huang_saddle.experiments.campaigns.shipped import rows_here
from bilevel_sym.theories.huang_saddle.experiments.reporting import Provenance
from bilevel_sym.typing import Axes, Figure, Floats

__all__ = ["Case", "Look", "RealData", "Run", "Settings", "compute", "draw", "findings", "plans", "report", "run"]

METHODS = ("PBO", "BO")
LABELS = {"PBO": "PBO: Algorithm 1, perturbed", "BO": "BO: AID, unperturbed"}
COUNTERS = ("G_f", "G_g", "JV_g", "HV_g")


@dataclass(frozen=True)
class Settings:
    """Everything that the experiment depends on.

    - ``cases``: problems of the zoo, each with its accuracy eps and the most iterations of the outer loop.
    - ``inner``: the most gradient steps for y in one estimate; warm starts do the rest.
    - ``products``: the most steps of conjugate gradients.
    - ``seed``: of the perturbations.

    >>> [name for name, _, _ in Settings().cases][:2]
    ['breast_cancer', 'diabetes']
    """

    cases: tuple[tuple[str, float, int], ...] = (
        ("breast_cancer", 1e-3, 400), ("diabetes", 1e-3, 400), ("feature_scales", 1e-3, 400),
        ("few_shot,tasks=10", 1e-3, 400), ("robust_diabetes", 5e-2, 800), ("digits", 1e-2, 200),
        ("digit_cleaning,rows=60", 2e-3, 200),
    )  # fmt: skip
    inner: int = 200
    products: int = 30
    seed: int = 0

    def provenance(self) -> Provenance:
        """What of this is the paper's: the algorithms alone."""
        return Provenance(
            ("Algorithm 1 and AID",),
            (
                "data, problems and ε", "η = 1/L_Φ, r and T as Perturbed.auto has them",
                f"D ≤ {self.inner}, N ≤ {self.products}, warm", "200 to 800 iterations at most, from x = 0",
                f"seed {self.seed}",
            ),
        )  # fmt: skip


@dataclass(frozen=True)
class Look:
    """What is seen at one iterate: |grad Phi| and the smallest eigenvalue of Hess Phi, both exact to round-off."""

    iteration: int
    grad_norm: float
    smallest_eigenvalue: float


@dataclass(frozen=True)
class Run:
    """One method on one problem.

    - ``method``: PBO or BO.
    - ``end``: how it ended.
    - ``phi``: f(x, y^D), the estimate of Phi, along the run.
    - ``perturbations``: how many there were.
    - ``calls``: of each oracle.
    - ``looks``: at iterations 0, 1, 2, 4, ... and the last.
    """

    method: str
    end: str
    phi: Floats
    perturbations: int
    calls: dict[str, int]
    looks: tuple[Look, ...]

    @property
    def steps(self) -> int:
        """How many iterations it took."""
        return len(self.phi) - 1

    @property
    def is_minimum(self) -> bool:
        """Whether it ended in a local minimum that was checked."""
        return self.end == "local minimum"


@dataclass(frozen=True)
class Case:
    """One problem, and its runs."""

    spec: str
    d: int
    n: int
    eps: float
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class RealData:
    """The whole experiment."""

    settings: Settings
    cases: tuple[Case, ...]


# ---- computing ----------------------------------------------------------------------------------------------


def compute(settings: Settings | None = None, *, progress: bool = False) -> RealData:
    """Run both methods on every problem.

    >>> small = compute(Settings(cases=(("feature_scales,rows=40", 1e-2, 40),)))
    >>> [(run.method, run.end, run.perturbations > 0) for run in small.cases[0].runs]
    [('PBO', 'local minimum', True), ('BO', 'out of steps', False)]
    """
    settings = settings or Settings()
    rows = (row for part in rows_here("real-data", plans(settings), progress=progress) for row in part)
    runs = [(row, _run_of(row)) for row in rows]
    cases = []
    for k, (spec, eps, _) in enumerate(settings.cases):
        own = runs[len(METHODS) * k : len(METHODS) * (k + 1)]
        cases.append(Case(spec, own[0][0]["variables"], own[0][0]["lower"], eps, tuple(run for _, run in own)))
    return RealData(settings, tuple(cases))


def plans(settings: Settings | None = None) -> list[Campaign]:
    """One plan for each problem, for each has its own accuracy and its own number of steps.

    >>> [plan.problems[0] for plan in plans()][:2]
    ['zoo:breast_cancer', 'zoo:diabetes']
    """
    s = settings or Settings()
    shared: dict[str, Any] = {"task": f"{__name__}:run", "seeds": [s.seed], "inner": s.inner, "products": s.products}
    return [
        Campaign(**shared, problems=[f"zoo:{spec}"], eps=eps, steps=steps, method=list(METHODS))
        for spec, eps, steps in s.cases
    ]


def run(
    problem: BilevelProblem, method: str, eps: float, steps: int, inner: int, products: int, seed: int
) -> dict[str, Any]:
    """The task: one method on one problem, and what is seen on the way.

    - ``problem``: with data.
    - ``method``: PBO or BO.
    - ``eps``: the accuracy.
    - ``steps``: iterations at most.
    - ``inner``, ``products``: the most inner steps and products of an estimate.
    - ``seed``: of the perturbations.

    >>> from bilevel_sym.zoo import parse
    >>> run(parse("feature_scales,rows=40").problem, "PBO", 1e-2, 40, inner=200, products=30, seed=0)["end"]
    'local minimum'
    """
    sampled = practical(problem, eps=eps)
    found = gradient_steps(problem, sampled.mu, sampled.ell)
    D = min(found.D, inner)
    estimator = GDmax(D, found.tau) if isinstance(found, GDmax) else AID(D, min(found.N, products), found.tau)
    perturbed = Perturbed(estimator, sampled.eta, sampled.eps, sampled.r, sampled.T_escape)
    algorithm = perturbed if method == "PBO" else Descent(estimator, sampled.eta)
    solution = reporting.uninterrupted(
        solve(problem, algorithm, np.zeros(problem.d), steps=steps, rng=seed, stop=LocalMinimum(sampled.eps))
    )
    return {"variables": problem.d, "lower": problem.n, **_told(problem, solution)}


def _told(problem: BilevelProblem, solution: Solution) -> dict[str, Any]:
    path, last = solution.trajectory, int(solution.steps)
    looked = sorted({0, last, *(2**k for k in range(last.bit_length()) if 2**k < last)})
    looks = [_look(problem, k, path.x[k]) for k in looked]
    return {
        "end": str(solution.status),
        "phi": path.phi_hat[: last + 1],
        "perturbations": int(path.perturbed.sum()),
        **{name: int(getattr(solution.counters, name)) for name in COUNTERS},
        "looked": looked,
        "grad_norms": [look.grad_norm for look in looks],
        "eigenvalues": [look.smallest_eigenvalue for look in looks],
    }


def _run_of(row: dict[str, Any]) -> Run:
    seen = zip(row["looked"], row["grad_norms"], row["eigenvalues"], strict=True)
    looks = tuple(Look(int(at), norm, eigenvalue) for at, norm, eigenvalue in seen)
    calls = {name: row[name] for name in COUNTERS}
    return Run(row["method"], row["end"], np.array(row["phi"]), row["perturbations"], calls, looks)


def _look(problem: BilevelProblem, iteration: int, x: Floats) -> Look:
    seen = curvature_at(problem.kernels, x, rho_phi=1.0)  # rho_phi is not used here
    return Look(iteration, seen.grad_norm, seen.smallest_eigenvalue)


# ---- telling, drawing and writing --------------------------------------------------------------------------------


def findings(result: RealData) -> list[str]:
    """A table: a line for each problem and method, and what it shows."""
    lines = [
        "| problem | d, n | method | end | iterations | perturbations | Φ at the end | λ_min: first, last | "
        + " | ".join(COUNTERS)
        + " |",
        "| " + " | ".join(["---"] * (8 + len(COUNTERS))) + " |",
    ]
    for case in result.cases:
        lines += [_line(case, run) for run in case.runs]
    ended = sum(case.runs[0].is_minimum for case in result.cases)
    lines.append(f"PBO ended in a local minimum, checked, on {ended} of {len(result.cases)} problems")
    lines += [
        f"{case.spec}: BO stays at a stationary point with λ_min = {case.runs[1].looks[-1].smallest_eigenvalue:.2g}, "
        f"PBO leaves it for Φ = {case.runs[0].phi[-1]:.4g}"
        for case in result.cases
        if case.runs[0].is_minimum and not case.runs[1].is_minimum and case.runs[1].looks[-1].grad_norm <= case.eps
    ]
    return lines


def _line(case: Case, run: Run) -> str:
    eigenvalues = ", ".join(f"{look.smallest_eigenvalue:.1e}" for look in (run.looks[0], run.looks[-1]))
    cells: list[Any] = [
        case.spec, f"{case.d}, {case.n}", run.method, run.end, run.steps, run.perturbations, f"{run.phi[-1]:.6f}",
        eigenvalues, *run.calls.values(),
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def draw(result: RealData) -> Figure:
    """A panel a problem: Phi along both runs, and the smallest eigenvalue of Hess Phi where it was looked at."""
    columns = min(4, len(result.cases))
    rows = -(-len(result.cases) // columns)
    figure = reporting.new_figure(3.4 * columns + 0.4, 2.9 * rows + 1.0)
    grid = figure.subplots(rows, columns, squeeze=False)
    for ax, case in zip(grid.flat, result.cases, strict=False):
        _draw_case(ax, case)
    for ax in list(grid.flat)[len(result.cases) :]:
        ax.set_axis_off()
    for ax in grid[:, 0]:
        ax.set_ylabel(r"$\Phi(x_k)$")
    grid[0, 0].legend(loc="upper right", fontsize=8, framealpha=0.9)
    figure.suptitle(
        "Real data: Algorithm 1 and plain AID from x = 0; numbers are the smallest eigenvalue of ∇²Φ", fontsize=12
    )
    reporting.add_footer(figure, result.settings.provenance().lines(45 * columns))
    return figure


def _draw_case(ax: Axes, case: Case) -> None:
    for run, colour, style in zip(case.runs, COLOURS, ("-", "--"), strict=False):
        ax.plot(np.arange(len(run.phi)), run.phi, style, color=colour, label=LABELS[run.method], linewidth=1.6)
        last = run.looks[-1]
        mark = "o" if run.is_minimum else "x"
        ax.plot(last.iteration, run.phi[-1], mark, color=colour, markersize=6)
        ax.annotate(
            f"{last.smallest_eigenvalue:.1e}", (last.iteration, run.phi[-1]), textcoords="offset points",
            xytext=(-4, 7), ha="right", fontsize=7, color=colour,
        )  # fmt: skip
    ax.set_title(f"{case.spec} (d = {case.d}, n = {case.n})", fontsize=9)
    ax.set_xlabel("iteration k (○ local minimum, checked; × not)", fontsize=8)
    ax.margins(y=0.15)


def report(out: Path, *, progress: bool = False, settings: Settings | None = None) -> Iterator[str]:
    """Compute, draw and write real-data.png, .csv and .json; yields what is to be told."""
    result = compute(settings, progress=progress)
    told = findings(result)
    yield from told
    yield from reporting.publish(
        out, {"real-data": draw(result)}, ("problem", "method", "iteration", "phi"), _rows(result),
        settings=result.settings, provenance=result.settings.provenance(), findings=told,
        cases=[_plain(case) for case in result.cases],
    )  # fmt: skip


def _rows(result: RealData) -> Iterator[tuple[object, ...]]:
    for case in result.cases:
        for run in case.runs:
            yield from ((case.spec, run.method, k, phi) for k, phi in enumerate(run.phi.tolist()))


def _plain(case: Case) -> dict[str, object]:
    """All but the curves, which the CSV file has."""
    runs = [{key: value for key, value in asdict(run).items() if key != "phi"} for run in case.runs]
    return {**asdict(case), "runs": runs}
