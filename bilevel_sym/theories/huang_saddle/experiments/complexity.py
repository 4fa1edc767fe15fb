"""Oracle calls to an eps-local minimum, against 1/eps and against kappa, compared with the corollary's exponents.

The family has a strict saddle point at 0, flat minima, and both eps and kappa can be set; every end point is checked to
be an eps-local minimum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp

from bilevel_sym.campaigns import Campaign
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.estimators.hypergradient import AID
from bilevel_sym.estimators.status import Status
from bilevel_sym.plotting import COLOURS
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers import LocalMinimum, Perturbed, solve
from bilevel_sym.theories.huang_saddle.experiments import reporting
from bilevel_sym.theories.huang_saddle.experiments.campaigns.shipped import rows_here
from bilevel_sym.theories.huang_saddle.experiments.reporting import Provenance
from bilevel_sym.typing import Axes, Figure, Floats

__all__ = ["Complexity", "Cost", "Family", "Settings", "compute", "cost", "draw", "plans", "report"]

COUNTERS = ("G_f", "G_g", "JV_g", "HV_g")
RHO_PHI = 4.0  # above max |w'''| = 3.953 over [-1, 1]; the other terms of Phi are quadratic
GUIDE = "upper bound for G(f): slope"
MEANING = {
    "G_f": "gradients of f, G(f)",
    "G_g": "gradients of g, G(g)",
    "JV_g": "Jacobian-vector products, JV(g)",
    "HV_g": "Hessian-vector products, HV(g)",
}


@dataclass(frozen=True)
class Exponents:
    """Of 1/eps and of kappa."""

    eps: float
    kappa: float


# the corollary's worst cases, and what the family's own gradient flow gives; both up to logarithms
COROLLARY = {"G_f": Exponents(2, 3), "G_g": Exponents(2, 4), "JV_g": Exponents(2, 3), "HV_g": Exponents(2, 3.5)}
EXPECTED = {
    "G_f": Exponents(2 / 3, 2),
    "G_g": Exponents(2 / 3, 3),
    "JV_g": Exponents(2 / 3, 2),
    "HV_g": Exponents(2 / 3, 2.5),
}


@dataclass(frozen=True)
class Family:
    """A saddle behind a lower level of condition number kappa, in d = n variables.

    With z = Q y and u = Q x, Q a rational reflection and lambda_i from 1 down to 1/kappa:
    g = sum of lambda_i z_i^2/2 - u_i z_i and f = w(z_1) + (z_2^2 + ... + z_d^2)/2, w(t) = (1 - t^2)^4/8.
    Hence z* = u_i/lambda_i and Phi = w(u_1) + sum of (u_i/lambda_i)^2/2: mu = 1/kappa, ell = 1, L_phi = kappa^2 for
    kappa >= 1, a strict saddle point at 0 with curvature -1, and minima at u_1 = +-1, quartic along u_1.

    >>> family = Family(2, sp.Integer(4))
    >>> bool(np.allclose(np.linalg.eigvalsh(family.problem.kernels.hess_phi([0.0, 0.0])), [-1, 16]))
    True
    """

    d: int
    kappa: sp.Rational

    def __post_init__(self) -> None:
        if self.d < 2 or self.kappa <= 1:
            raise InvalidArgument(f"the family wants d >= 2 and kappa > 1, but was given {self.d} and {self.kappa}")

    @property
    def eigenvalues(self) -> tuple[sp.Rational, ...]:
        """Of g_yy: d of them, evenly from 1 down to 1/kappa."""
        return tuple(1 + (1 / self.kappa - 1) * sp.Rational(i, self.d - 1) for i in range(self.d))

    @property
    def reflection(self) -> sp.Matrix:
        """Q, symmetric and orthogonal, without a zero."""
        w = sp.Matrix(range(1, self.d + 1))
        return sp.eye(self.d) - 2 * w * w.T / w.dot(w)

    @property
    def problem(self) -> BilevelProblem:
        """f and g in SymPy."""
        x, y = sp.symbols(f"x1:{self.d + 1}"), sp.symbols(f"y1:{self.d + 1}")
        z, u = self.reflection * sp.Matrix(y), self.reflection * sp.Matrix(x)
        g = sum((lam * a**2 / 2 - b * a for lam, a, b in zip(self.eigenvalues, z, u, strict=True)), sp.Integer(0))
        f = (1 - z[0] ** 2) ** 4 / 8 + sum((a**2 for a in z[1:]), sp.Integer(0)) / 2
        return BilevelProblem(f, sp.expand(g), x, y, name="complexity")

    def starts(self, seeds: int, seed: int) -> tuple[Floats, Floats]:
        """x0 with its y*: z* uniform in [-1, 1]^d, but z*_1 = 0, from where exact descent ends in the saddle point."""
        z = np.random.default_rng(seed).uniform(-1, 1, (seeds, self.d))
        z[:, 0] = 0
        Q = np.array(self.reflection, dtype=np.float64)
        return z * np.array(self.eigenvalues, dtype=np.float64) @ Q, z @ Q


@dataclass(frozen=True)
class Settings:
    """Everything that the experiment depends on. ``accuracies`` are run at ``kappa``, ``conditions`` at ``eps``.

    >>> Settings().schedule(4.0, 0.01)[0].D
    19
    """

    d: int = 4
    accuracies: tuple[float, ...] = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)
    kappa: int = 4
    conditions: tuple[int, ...] = (2, 3, 4, 6, 8, 12)
    eps: float = 1e-2
    fit_below: float = 1e-3  # slopes in 1/eps are fitted to accuracies of at most this
    seeds: int = 15
    seed: int = 0
    most_steps: int = 200_000

    def schedule(self, kappa: float, eps: float) -> tuple[AID, Perturbed]:
        """The theorem's scalings, with every constant factor and iota equal to 1.

        Paper: Theorem 2.5 [thm:aid], Equation 3.2 [eq:para_minimax]
        Deviation: r = eps in place of eps/(400 iota^3), and iota = 1: nothing is proved of such a run, it is checked.
        """
        L_phi, log = kappa**2, math.log(1 / eps)
        estimator = AID(D=math.ceil(kappa * log), N=math.ceil(math.sqrt(kappa) * log), tau=1.0)
        T_escape = math.ceil(L_phi / math.sqrt(RHO_PHI * eps))
        return estimator, Perturbed(estimator, 1 / L_phi, eps, eps, T_escape, rho_phi=RHO_PHI)

    def provenance(self) -> Provenance:
        """What of this is the paper's."""
        return Provenance(
            (
                "the scalings η = 1/L_Φ, τ = 1/ℓ, D ~ κ log(1/ε), N ~ √κ log(1/ε), T ~ L_Φ/√(ρ_Φ ε)",
                "an ε-local minimum by Definition 1.1, checked at each end point",
            ),
            (
                "the family", "all factors and ι equal to 1", "r = ε", f"d = n = {self.d}", f"{self.seeds} seeds",
                "starts that exact descent would take into the saddle point",
            ),
        )  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What one choice of kappa and eps took: oracle calls by name, one for each seed; and how many ended well."""

    kappa: int
    eps: float
    D: int
    N: int
    steps: Floats
    calls: dict[str, Floats]
    checked: int

    def median(self, name: str) -> float:
        """Of the calls of one oracle."""
        return float(np.median(self.calls[name]))


@dataclass(frozen=True)
class Complexity:
    """The experiment's numbers."""

    settings: Settings
    by_eps: tuple[Cost, ...]
    by_kappa: tuple[Cost, ...]

    def slopes(self, name: str, *, below: float | None = None) -> Exponents:
        """Of the medians on logarithmic scales, by least squares; in 1/eps, of accuracies of at most ``below``."""
        limit = self.settings.fit_below if below is None else below
        fitted = [cost for cost in self.by_eps if cost.eps <= limit]
        return Exponents(
            slope([1 / c.eps for c in fitted], [c.median(name) for c in fitted]),
            slope([c.kappa for c in self.by_kappa], [c.median(name) for c in self.by_kappa]),
        )


# ---- computing ----------------------------------------------------------------------------------------------


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """The exponent of a power law, by least squares on logarithms; NaN of fewer than two points.

    >>> round(slope([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    if len(at) < 2:
        return math.nan
    x, y = np.log(at), np.log(values)
    x = x - x.mean()
    return float(x @ y / (x @ x))


def compute(settings: Settings | None = None, *, progress: bool = False) -> Complexity:
    """Run the perturbed AID until an eps-local minimum, for every eps and every kappa.

    >>> small = compute(Settings(d=2, accuracies=(0.1,), conditions=(2,), kappa=2, eps=0.1, seeds=2))
    >>> small.by_eps[0].checked
    2
    """
    settings = settings or Settings()
    by_eps, by_kappa = plans(settings)
    rows = rows_here("figure3", (by_eps, by_kappa), progress=progress)
    return Complexity(settings, *(tuple(_cost_of(row) for row in part) for part in rows))


def plans(settings: Settings | None = None) -> tuple[Campaign, Campaign]:
    """The plans of the two sweeps: over eps, and over kappa. They run on a cluster as any plan does.

    >>> [plan.count for plan in plans()]
    [8, 6]
    """
    s = settings or Settings()
    shared: dict[str, Any] = {"task": f"{__name__}:cost", "seeds": [s.seed], "d": s.d, "runs": s.seeds}
    shared["most_steps"] = s.most_steps
    by_eps = Campaign(**shared, kappa=s.kappa, eps=list(s.accuracies))
    return by_eps, Campaign(**shared, kappa=list(s.conditions), eps=s.eps)


def cost(kappa: int, eps: float, d: int, runs: int, most_steps: int, seed: int) -> dict[str, Any]:
    """The task: oracle calls until an eps-local minimum, one for each run.

    - ``kappa``, ``d``: of the family.
    - ``eps``: the accuracy.
    - ``runs``: how many.
    - ``most_steps``: after which a run is over.
    - ``seed``: of starts and perturbations.

    >>> cost(kappa=2, eps=0.1, d=2, runs=2, most_steps=1000, seed=0)["checked"]
    2
    """
    family = Family(d, sp.Integer(kappa))
    estimator, algorithm = Settings(d=d).schedule(kappa, eps)
    x0, y0 = family.starts(runs, seed)
    solution = solve(
        family.problem, algorithm, x0, y0=y0, steps=most_steps, rng=seed, record="last",
        stop=LocalMinimum(eps, RHO_PHI),
    )  # fmt: skip
    reporting.uninterrupted(solution)
    calls = {name: np.asarray(getattr(solution.counters, name), dtype=np.float64) for name in COUNTERS}
    checked = sum(status is Status.LOCAL_MINIMUM for status in solution.statuses)
    return {"D": estimator.D, "N": estimator.N, "steps": np.asarray(solution.steps), "checked": checked, **calls}


def _cost_of(row: dict[str, Any]) -> Cost:
    calls = {name: np.array(row[name]) for name in COUNTERS}
    return Cost(row["kappa"], row["eps"], row["D"], row["N"], np.array(row["steps"]), calls, row["checked"])


# ---- drawing and writing ----------------------------------------------------------------------------------------


def draw(result: Complexity) -> Figure:
    """Calls against 1/eps, and against kappa, with fitted slopes next to the corollary's exponents."""
    settings = result.settings
    figure = reporting.new_figure(12.5, 6.8)
    left, right = figure.subplots(1, 2)
    for ax, costs, axis in ((left, result.by_eps, "eps"), (right, result.by_kappa, "kappa")):
        at = [1 / c.eps if axis == "eps" else float(c.kappa) for c in costs]
        for i, name in enumerate(COUNTERS):
            _draw_counter(ax, at, costs, name, i, _label(result, name, axis))
        _draw_guide(ax, at, costs, axis)
        ax.set_xscale("log")
        ax.set_yscale("log")
        handles, labels = ax.get_legend_handles_labels()
        order = sorted(range(len(labels)), key=lambda k: labels[k].startswith(GUIDE))
        title = "measured slope (exponent in Corollary 2.6)"
        ax.legend(
            [handles[k] for k in order], [labels[k] for k in order], title=title, fontsize=8.5, title_fontsize=9,
            loc="upper left",
        )  # fmt: skip
        ax.set_ylabel("oracle calls until an ε-local minimum (median, quartiles)")
        ax.set_ylim(top=ax.get_ylim()[1] * 12)  # room for the legend
    left.set_xlabel("1/ε")
    left.set_title(f"Against the accuracy, κ = {settings.kappa}", fontsize=11)
    right.set_xlabel("condition number κ of the lower level")
    right.set_title(f"Against the condition number, ε = {settings.eps:g}", fontsize=11)
    right.set_xticks(settings.conditions, [str(kappa) for kappa in settings.conditions])
    right.set_xticks([], minor=True)
    figure.suptitle("Oracle calls of Algorithm 1 with AID from a saddle point to an ε-local minimum", fontsize=12)
    reporting.add_footer(figure, (*settings.provenance().lines(175), *_reading(result)))
    return figure


def _reading(result: Complexity) -> tuple[str, ...]:
    return (
        "The family: Φ = (1 − u₁²)⁴/8 + Σ (uᵢ/λᵢ)²/2 with u = Qx and λᵢ from 1 to 1/κ; L_Φ = κ²; flat minima at "
        "u₁ = ±1, where descent alone takes ε^(−2/3) iterations.",
        "Corollary 2.6 gives upper bounds over all problems, up to logarithms: measured slopes may be smaller, and are "
        "no test of its sharpness.",
        _windows(result),
    )


def _windows(result: Complexity) -> str:
    """The slope in 1/eps is no property of the family alone: the escape's share in the calls bends the line."""
    limits = sorted({c.eps for c in result.by_eps[:-1]}, reverse=True)
    slopes = ", ".join(f"{result.slopes('G_f', below=limit).eps:.2f} (ε ≤ {limit:g})" for limit in limits)
    return (
        f"The slope of G(f) in 1/ε depends on where it is fitted: {slopes}. The window "
        f"ε ≤ {result.settings.fit_below:g} was chosen with the measurements in view."
    )


def _label(result: Complexity, name: str, axis: str) -> str:
    measured, bound = (getattr(e, axis) for e in (result.slopes(name), COROLLARY[name]))
    return f"{MEANING[name]}: {measured:.2f} ({bound:g})"


def _draw_counter(ax: Axes, at: Sequence[float], costs: Sequence[Cost], name: str, i: int, label: str) -> None:
    low, middle, high = np.quantile([c.calls[name] for c in costs], (0.25, 0.5, 0.75), axis=1)
    style: dict[str, Any] = {"color": COLOURS[i], "marker": "osD^"[i], "markersize": 5, "capsize": 3, "linewidth": 1.3}
    ax.errorbar(at, middle, yerr=(middle - low, high - middle), label=label, **style)


def _draw_guide(ax: Axes, at: Sequence[float], costs: Sequence[Cost], axis: str) -> None:
    """A dotted line with the corollary's slope for G(f), from the first measured point."""
    if len(at) < 2:
        return
    exponent = getattr(COROLLARY["G_f"], axis)
    first, top = costs[0].median("G_f"), max(c.median("G_g") for c in costs)
    # no higher than the measurements, so that the axes stay theirs
    end = min(at[-1], at[0] * (top / first) ** (1 / exponent))
    heights = (first, first * (end / at[0]) ** exponent)
    ax.plot((at[0], end), heights, color="0.45", linestyle=":", label=f"{GUIDE} {exponent:g}")


def findings(result: Complexity) -> list[str]:
    """What was found, in words and numbers."""
    costs = (*result.by_eps, *result.by_kappa)
    ended, runs = sum(c.checked for c in costs), sum(len(c.steps) for c in costs)
    lines = [f"{ended} of {runs} runs ended at a checked eps-local minimum"]
    for name in COUNTERS:
        measured, expected, bound = result.slopes(name), EXPECTED[name], COROLLARY[name]
        lines.append(
            f"{name}: measured eps^-{measured.eps:.2f} and kappa^{measured.kappa:.2f}; expected of this family as eps "
            f"falls, up to logarithms, eps^-{expected.eps:.2f} and kappa^{expected.kappa:g}; the corollary's upper "
            f"bounds eps^-{bound.eps:g} and kappa^{bound.kappa:g}"
        )
    return [*lines, _windows(result)]


def report(out: Path, *, progress: bool = False, settings: Settings | None = None) -> Iterator[str]:
    """Compute, draw and write figure3.png, figure3.csv and figure3.json; yields what is to be told.

    Paper: Corollary 2.6 [unlabelled:corollary-aid]
    """
    result = compute(settings, progress=progress)
    yield from findings(result)
    header = ("sweep", "kappa", "eps", "D", "N", "oracle", "median", "q25", "q75", "iterations", "checked", "seeds")
    slopes = {name: {"measured": vars(result.slopes(name)), "corollary": vars(COROLLARY[name])} for name in COUNTERS}
    yield from reporting.publish(
        out, {"figure3": draw(result)}, header, _rows(result), settings=result.settings,
        provenance=result.settings.provenance(), findings=findings(result), exponents=slopes,
    )  # fmt: skip


def _rows(result: Complexity) -> Iterator[tuple[object, ...]]:
    for sweep, costs in (("eps", result.by_eps), ("kappa", result.by_kappa)):
        for c in costs:
            for name in COUNTERS:
                low, middle, high = np.quantile(c.calls[name], (0.25, 0.5, 0.75)).tolist()
                steps = float(np.median(c.steps))
                yield sweep, c.kappa, c.eps, c.D, c.N, name, middle, low, high, steps, c.checked, len(c.steps)
