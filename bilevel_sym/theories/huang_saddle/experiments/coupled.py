"""Where inexact hypergradients matter: the tube behind a lower level of condition number kappa (``tube_coupled``).

D gradient steps for y and N conjugate gradient steps for v, both warm, leave an error. The experiment measures it,
and what it does to the escape from saddle points, with perturbations ("PBO") and without ("BO").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bilevel_sym.campaigns import Campaign
from bilevel_sym.estimators.hypergradient import AID
from bilevel_sym.kernels.choice import Backend
from bilevel_sym.plotting import COLOURS
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers import Descent, Perturbed, solve
from bilevel_sym.solvers.solution import Solution
from bilevel_sym.theories.huang_saddle.experiments import reporting
from bilevel_sym.theories.huang_saddle.experiments.campaigns.shipped import rows_here
from bilevel_sym.theories.huang_saddle.experiments.reporting import Provenance
from bilevel_sym.typing import Axes, Bools, Figure, Floats
from bilevel_sym.zoo import get
from bilevel_sym.zoo.entry import Example

__all__ = ["Coupled", "Outcome", "Rounding", "Settings", "compute", "draw", "outcome", "plans", "report", "rounding"]

METHODS = ("PBO", "BO")
MARKERS = "osD^v<>"
EXACT_COLOUR = "0.3"
SELECTION = (
    "κ, L, d and the budget after trials with κ = 10, 30, 100 and L = 1, 2, as a case that shows every regime: "
    "for κ = 10 and 30 with L = 1 all choices of (D, N) that were tried settled"
)


@dataclass(frozen=True)
class Settings:
    """Everything that the experiment depends on; only the step size and the tube's shape are the paper's.

    >>> Settings().tau == 1 / Settings().kappa
    True
    """

    d: int = 4
    kappa: float = 100.0
    L: float = 2.0
    gamma: float = 1.0
    inner: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 200)
    products: tuple[int, ...] = (1, 2, 3, 4)
    steps: int = 300
    eta: float = 0.05
    eps: float = 1.0
    r: float = 10.0
    T_escape: int = 50
    start: float = 1.0
    seeds: int = 20
    seed: int = 0

    @property
    def tau(self) -> float:
        """1/ell: g_yy has eigenvalues from 1 to kappa."""
        return 1 / self.kappa

    def provenance(self) -> Provenance:
        """What of this is the paper's."""
        return Provenance(
            (f"Φ is the tube's, L = {self.L:g}, γ = {self.gamma:g}", f"η = {self.eta:g}"),
            (
                f"d = {self.d}",
                "f = Φ(y), g = (y − x)ᵀA(y − x)/2 with dense A, eigenvalues from 1 to κ", f"κ = {self.kappa:g}",
                "τ = 1/κ", f"ε = {self.eps:g}", f"r = {self.r:g}", f"T = {self.T_escape}",
                f"{self.steps} iterations", f"starts uniform in [−{self.start:g}, {self.start:g}]^d", "y0 = v0 = 0",
                f"{self.seeds} seeds", *((SELECTION,) if self == Settings() else ()),
            ),
        )  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """One method with one choice of D and N (0 for both: the exact hypergradient).

    ``error``: the root mean square over all iterates of all seeds of |grad_phi_hat - grad Phi|. ``settled``: for each
    seed, the iteration from which on Phi stays within nu/2 of its minimum, NaN if it does not within the budget.
    """

    method: str
    D: int
    N: int
    error: float
    settled: Floats

    @property
    def fraction(self) -> float:
        """The part of the seeds that settled."""
        return float(np.isfinite(self.settled).mean())

    @property
    def median(self) -> float:
        """The median over all seeds, infinite if fewer than half of them settled."""
        return float(np.median(np.where(np.isfinite(self.settled), self.settled, np.inf)))


@dataclass(frozen=True)
class Rounding:
    """What rounding alone does to BO at one D and N: two engines for the same formulas, from the same starts.

    ``first`` and ``moved``: the largest difference of any coordinate after one step, and over the whole run.
    ``medians``: the two median numbers of iterations until settled.
    """

    D: int
    N: int
    first: float
    moved: float
    medians: tuple[float, float]


@dataclass(frozen=True)
class Coupled:
    """The experiment's numbers. ``exact`` are the methods with the exact hypergradient."""

    settings: Settings
    outcomes: tuple[Outcome, ...]
    exact: tuple[Outcome, ...]
    rounding: tuple[Rounding, ...]

    def along(self, method: str, N: int) -> list[Outcome]:
        """One method and one N, by D."""
        return [o for o in self.outcomes if (o.method, o.N) == (method, N)]


# ---- computing ----------------------------------------------------------------------------------------------


def compute(settings: Settings | None = None, *, progress: bool = False) -> Coupled:
    """Run both methods for every D and N, all seeds at once.

    >>> small = compute(Settings(d=2, kappa=4.0, inner=(1, 20), products=(2,), steps=20, seeds=2))
    >>> coarse, fine = small.along("PBO", 2)
    >>> fine.error < coarse.error
    True
    """
    settings = settings or Settings()
    exact, inexact, twice = rows_here("figure2", plans(settings), progress=progress)
    found, known = (tuple(_outcome_of(row) for row in rows) for rows in (inexact, exact))
    apart = tuple(Rounding(r["D"], r["N"], r["first"], r["moved"], (r["tape"], r["lambdify"])) for r in twice)
    return Coupled(settings, found, known, apart)


def plans(settings: Settings | None = None) -> tuple[Campaign, Campaign, Campaign]:
    """The plans: exact hypergradients, inexact ones for each N, D and method, and what rounding does to some of them.

    >>> [plan.count for plan in plans(Settings(inner=(1, 20), products=(2, 3)))]
    [2, 8, 2]
    """
    s = settings or Settings()
    shared = {name: value for name, value in asdict(s).items() if name not in ("inner", "products", "seeds", "seed")}
    shared |= {"seeds": [s.seed], "runs": s.seeds}
    middle, methods = s.inner[len(s.inner) // 2], list(METHODS)
    return (
        Campaign(task=f"{__name__}:outcome", **shared, N=0, D=0, method=methods),
        Campaign(task=f"{__name__}:outcome", **shared, N=list(s.products), D=list(s.inner), method=methods),
        Campaign(task=f"{__name__}:rounding", **shared, N=list(s.products), D=middle),
    )


def outcome(method: str, D: int, N: int, seed: int, runs: int, **settings: float) -> dict[str, Any]:
    """The task: the error of one method with one choice of D and N, and when each run settled.

    - ``method``: PBO or BO.
    - ``D``, ``N``: of AID; 0 for both is the exact hypergradient.
    - ``seed``: of starts and perturbations.
    - ``runs``: how many.
    - ``settings``: the others of ``Settings``.

    >>> outcome("PBO", 0, 0, seed=0, runs=2, d=2, steps=20)["error"] < 1e-12
    True
    """
    s = Settings(seed=seed, seeds=runs, **settings)  # type: ignore[arg-type]
    problem, level = _problem(s.d, s.kappa, s.L, s.gamma, coupled=D > 0)
    solution = _run(s, problem, method, D, N)
    return {"error": _error(solution), "settled": settled_since(solution.trajectory.phi < level)}


def rounding(D: int, N: int, seed: int, runs: int, **settings: float) -> dict[str, Any]:
    """The task: how far two engines part, and the two medians until settled.

    - ``D``, ``N``: of AID.
    - ``seed``: of the starts.
    - ``runs``: how many.
    - ``settings``: the others of ``Settings``.

    >>> rounding(10, 2, seed=0, runs=2, d=2, steps=20)["first"] < 1e-12
    True
    """
    s = Settings(seed=seed, seeds=runs, **settings)  # type: ignore[arg-type]
    problem, level = _problem(s.d, s.kappa, s.L, s.gamma, coupled=True)
    backends: tuple[Backend, Backend] = ("tape", "lambdify")
    paths = [_run(s, problem, "BO", D, N, backend).trajectory for backend in backends]
    apart = np.abs(paths[0].x - paths[1].x).max(axis=(0, 2))
    medians = (Outcome("BO", D, N, np.nan, settled_since(path.phi < level)).median for path in paths)
    return {"first": float(apart[1]), "moved": float(apart.max()), **dict(zip(backends, medians, strict=True))}


@lru_cache(4)
def _problem(d: int, kappa: float, L: float, gamma: float, *, coupled: bool) -> tuple[BilevelProblem, float]:
    """The problem, and the value below which the last basin lies.

    Without ``coupled`` it has the same Phi, with an estimate that is exact after one step: exact hypergradients at the
    price of inexact ones.
    """
    plain = get("tube", d=d, L=L, gamma=gamma)
    problem = get("tube_coupled", d=d, kappa=kappa, L=L, gamma=gamma).problem if coupled else plain.problem
    return problem, _level(plain)


def _outcome_of(row: dict[str, Any]) -> Outcome:
    return Outcome(row["method"], row["D"], row["N"], row["error"], np.array(row["settled"]))


def _level(example: Example) -> float:
    """min Phi + nu/2, where nu is the drop from saddle point to saddle point: below it lies the last basin."""
    corner = (example.stationary_points or ())[-1]
    phi_min = float(example.problem.kernels.phi(np.array([float(c) for c in corner.x])))
    return phi_min * (1 - 0.5 / example.problem.d)


def _run(
    settings: Settings, problem: BilevelProblem, method: str, D: int, N: int, backend: Backend = "auto"
) -> Solution:
    estimator = AID(D, N, settings.tau) if D else AID(1, 1, settings.tau)
    perturbed = Perturbed(estimator, settings.eta, settings.eps, settings.r, settings.T_escape)
    algorithm = perturbed if method == "PBO" else Descent(estimator, settings.eta)
    starts = np.random.default_rng(settings.seed).uniform(-settings.start, settings.start, (settings.seeds, settings.d))
    solution = solve(problem, algorithm, starts, steps=settings.steps, rng=settings.seed, backend=backend)
    return reporting.uninterrupted(solution)


def _error(solution: Solution) -> float:
    path = solution.trajectory
    visited = np.isfinite(path.x).all(axis=-1)
    exact = solution.kernels.grad_phi(path.x[visited], y0=path.y[visited])
    distances = np.linalg.norm(path.grad_phi_hat[visited] - exact, axis=-1)
    return float(np.sqrt(np.mean(distances**2)))


def settled_since(near: Bools) -> Floats:
    """For each row, the first index from which on all entries are true; NaN where the last one is not.

    >>> settled_since(np.array([[False, True, False, True, True], [True, True, True, True, False]])).tolist()
    [3.0, nan]
    """
    backwards = np.argmin(near[:, ::-1], axis=1)  # how many true ones end the row, if not all are
    length = near.shape[1]
    index = np.where(near.all(axis=1), 0, length - backwards).astype(np.float64)
    return np.where(near[:, -1], index, np.nan)


# ---- drawing and writing ----------------------------------------------------------------------------------------


def draw(result: Coupled) -> Figure:
    """The error, and for each method who settles and when, against D, a line for each N."""
    settings = result.settings
    figure = reporting.new_figure(13.5, 6.8)
    grid = figure.add_gridspec(2, 3, height_ratios=(1, 2))
    _draw_errors(figure.add_subplot(grid[:, 0]), result)
    titles = ("with perturbations (PBO, Algorithm 1)", "without perturbations (BO)")
    for column, (method, title) in enumerate(zip(METHODS, titles, strict=True), start=1):
        upper = figure.add_subplot(grid[0, column])
        _draw_fractions(upper, result, method)
        _draw_times(figure.add_subplot(grid[1, column], sharex=upper), result, method)
        upper.set_title(f"Escape {title}", fontsize=11)
    figure.suptitle(
        f"Inexact hypergradients behind a lower level with κ = {settings.kappa:g}: their error, and what it does "
        f"to the escape from {settings.d} saddle points",
        fontsize=12,
    )
    reading = (
        "Settled: Φ stays within ν/2 of min Φ, ν being the drop between saddle points; "
        "medians where more than half of the seeds settle."
    )
    reporting.add_footer(figure, (*settings.provenance().lines(200), reading, *_about_escape(result)))
    return figure


def _style(i: int) -> dict[str, Any]:
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)], "markersize": 6}


def _draw_errors(ax: Axes, result: Coupled) -> None:
    for i, N in enumerate(result.settings.products):
        line = result.along("PBO", N)
        ax.plot([o.D for o in line], [o.error for o in line], label=f"N = {N}", **_style(i))
    ax.set_yscale("log")
    _label_inner(ax, result.settings)
    ax.set_ylabel(r"root mean square of $|\widehat{\nabla}\Phi(x_k) - \nabla\Phi(x_k)|$")
    ax.set_title("Error of the hypergradient along PBO", fontsize=11)
    ax.plot([], [], color=EXACT_COLOUR, linestyle="--", label="exact hypergradient (right)")
    ax.legend(title="N, steps of conjugate gradients", fontsize=9, title_fontsize=9)


def _draw_fractions(ax: Axes, result: Coupled, method: str) -> None:
    for i, N in enumerate(result.settings.products):
        line = result.along(method, N)
        ax.plot([o.D for o in line], [100 * o.fraction for o in line], clip_on=False, **_style(i))
    ax.axhline(100 * _exact(result, method).fraction, color=EXACT_COLOUR, linestyle="--")
    ax.set_ylim(-5, 105)
    ax.set_ylabel(f"% of {result.settings.seeds} seeds settled\nwithin {result.settings.steps} iterations")


def _draw_times(ax: Axes, result: Coupled, method: str) -> None:
    for i, N in enumerate(result.settings.products):
        line = [o for o in result.along(method, N) if np.isfinite(o.median)]
        ax.plot([o.D for o in line], [o.median for o in line], **_style(i))
    exact = _exact(result, method).median
    if np.isfinite(exact):
        ax.axhline(exact, color=EXACT_COLOUR, linestyle="--")
    else:
        note = f"exact hypergradient: not within {result.settings.steps} iterations"
        ax.text(0.98, 0.05, note, transform=ax.transAxes, ha="right", va="bottom", fontsize=9, color=EXACT_COLOUR)
    ax.set_ylim(0, 1.02 * result.settings.steps)
    ax.set_ylabel("iterations until settled (median)")
    _label_inner(ax, result.settings)


def _exact(result: Coupled, method: str) -> Outcome:
    return next(o for o in result.exact if o.method == method)


def _label_inner(ax: Axes, settings: Settings) -> None:
    ax.set_xscale("log")
    ax.set_xticks(settings.inner, [str(D) for D in settings.inner])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("D, gradient steps on the lower level in each iteration")


def findings(result: Coupled) -> list[str]:
    """What was found, in words and numbers."""
    by_error = sorted((o for o in result.outcomes if o.method == "PBO"), key=lambda o: o.error)
    best, worst = by_error[0], by_error[-1]
    return [
        f"root mean square error of the hypergradient along PBO: from {worst.error:.3g} at D = {worst.D}, "
        f"N = {worst.N} to {best.error:.3g} at D = {best.D}, N = {best.N}",
        *_about_escape(result),
    ]


def _about_escape(result: Coupled) -> list[str]:
    lines = []
    for method, exact in zip(METHODS, result.exact, strict=True):
        outcomes = [o for o in result.outcomes if o.method == method]
        sure = [o for o in outcomes if o.fraction == 1]
        least = min(outcomes, key=lambda o: o.fraction)
        fastest = min(outcomes, key=lambda o: (o.median, -o.fraction))
        lines.append(
            f"{method}: exact hypergradients settle in {_percent(exact)} of runs ({_iterations(exact)}); inexact "
            f"ones in all for {len(sure)} of {len(outcomes)} choices of (D, N), soonest at {_where(fastest)} "
            f"({_iterations(fastest)}), least often at {_where(least)} ({_percent(least)})."
        )
    return [*lines, _about_rounding(result)]


def _about_rounding(result: Coupled) -> str:
    """Single numbers of a chaotic run are no finding; that they are such is one."""
    D, first = result.rounding[0].D, max(r.first for r in result.rounding)
    moved = ", ".join(
        f"{r.moved:.0e} (N = {r.N}, medians {r.medians[0]:.4g} and {r.medians[1]:.4g})" for r in result.rounding
    )
    return (
        f"Rounding: two engines whose first steps differ by at most {first:.0e} end up apart, BO with D = {D}, by "
        f"{moved}. Where that is not small, single points depend on machine and version; only trends are findings."
    )


def _where(o: Outcome) -> str:
    return f"({o.D}, {o.N})"


def _percent(o: Outcome) -> str:
    return f"{100 * o.fraction:.0f} %"


def _iterations(o: Outcome) -> str:
    return f"median {o.median:.0f} iterations" if np.isfinite(o.median) else "median beyond the budget"


def report(out: Path, *, progress: bool = False, settings: Settings | None = None) -> Iterator[str]:
    """Compute, draw and write figure2.png, figure2.csv and figure2.json; yields what is to be told."""
    result = compute(settings, progress=progress)
    yield from findings(result)
    header = ("method", "D", "N", "rms_error", "fraction_settled", "median_iterations", "q25", "q75")
    yield from reporting.publish(
        out, {"figure2": draw(result)}, header, _rows(result), settings=result.settings,
        provenance=result.settings.provenance(), findings=findings(result),
        rounding=[asdict(r) for r in result.rounding],
    )  # fmt: skip


def _rows(result: Coupled) -> Iterator[tuple[object, ...]]:
    """The exact hypergradient has neither D nor N; a quantile that was not reached is empty."""
    for o in (*result.exact, *result.outcomes):
        inner = (o.D, o.N) if o.D else ("exact", "exact")
        times = np.sort(np.where(np.isfinite(o.settled), o.settled, np.inf))
        # the nearest order statistics: there is nothing between a number and infinity
        quartiles = np.quantile(times, (0.25, 0.75), method="nearest").tolist()
        reached = [value if np.isfinite(value) else "" for value in (o.median, *quartiles)]
        yield o.method, *inner, o.error, o.fraction, *reached
