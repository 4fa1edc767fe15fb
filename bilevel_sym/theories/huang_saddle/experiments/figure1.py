"""The paper's figure: the tube of Section 5, Algorithm 1 ("PBO") against unperturbed AID ("BO").

The experiment says nothing about inexact hypergradients: its estimate does not depend on y at all, and one step of
conjugate gradients is exact (kappa = 1). ``inner_steps_matter`` shows that; ``coupled`` has an experiment in which they
do matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilevel_sym.campaigns import Campaign
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.estimators.hypergradient import AID
from bilevel_sym.plotting import COLOURS, plot_spread, spread
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers import Descent, Perturbed, solve
from bilevel_sym.solvers.solution import Solution
from bilevel_sym.theories.huang_saddle.experiments import figure1_results, reporting, staircase
from bilevel_sym.theories.huang_saddle.experiments.campaigns.shipped import rows_here
from bilevel_sym.theories.huang_saddle.experiments.figure1_results import Settings, findings
from bilevel_sym.typing import Axes, Bools, Figure, Floats
from bilevel_sym.zoo import get
from bilevel_sym.zoo.entry import Example

__all__ = [
    "Settings",
    "compute",
    "draw",
    "draw_settings",
    "findings",
    "in_printed_domain",
    "inner_steps_matter",
    "panel",
    "plan",
    "read_label",
    "report",
]

TAU = float(np.e)


# ---- computing ----------------------------------------------------------------------------------------------


def compute(settings: Settings | None = None, *, progress: bool = False) -> figure1_results.Figure1:
    """Run PBO and BO in every panel, all seeds at once.

    >>> small = compute(Settings(dimensions=(2,), curvatures=(1.0,), steps=30, seeds=3))
    >>> small.panels[0].PBO.gap.median.shape, small.independence.holds
    ((31,), True)
    """
    settings = settings or Settings()
    (rows,) = rows_here("figure1", [plan(settings)], progress=progress)
    panels = tuple(figure1_results.panel_of(row) for row in rows)
    dimensions, curvatures = settings.dimensions, settings.curvatures
    independence = inner_steps_matter(settings, dimensions[0], curvatures[0])
    middle = _varied(
        settings, dimensions[len(dimensions) // 2], curvatures[len(curvatures) // 2], tuple(staircase.FACTORS)
    )
    deepest = _varied(settings, max(dimensions), max(curvatures), ("r",))
    return figure1_results.Figure1(settings, panels, independence, (middle, deepest))


def plan(settings: Settings | None = None) -> Campaign:
    """The plan of the panels, one task each; it runs on a cluster as any plan does.

    >>> plan().count
    12
    """
    s = settings or Settings()
    apart = ("dimensions", "curvatures", "seeds", "seed")
    shared = {name: value for name, value in asdict(s).items() if name not in apart}
    dimensions, curvatures = list(s.dimensions), list(s.curvatures)
    return Campaign(task=f"{__name__}:panel", seeds=[s.seed], runs=s.seeds, **shared, d=dimensions, L=curvatures)


def panel(d: int, L: float, seed: int, runs: int, **settings: float) -> dict[str, Any]:
    """The task: both methods in one panel.

    - ``d``, ``L``: of the tube.
    - ``seed``: of starts and perturbations.
    - ``runs``: how many.
    - ``settings``: the others of ``Settings``.

    >>> panel(2, 1.0, seed=0, runs=2, steps=5)["PBO_arrived"]
    0.0
    """
    s = Settings(seed=seed, seeds=runs, **settings)  # type: ignore[arg-type]
    return figure1_results.row_of(_panel(s, d, L))


def _varied(settings: Settings, d: int, L: float, names: tuple[str, ...]) -> staircase.Sensitivity:
    example = get("tube", d=d, L=L, gamma=settings.gamma)
    phi_min = _minimum(example)

    def run(changed: Settings) -> tuple[Floats, Bools]:
        path = _run(changed, example.problem, "PBO").trajectory
        return path.phi - phi_min, path.perturbed

    return staircase.Sensitivity(d, L, -phi_min / d, tuple(staircase.vary(settings, names, run, -phi_min / d, d)))


def _panel(settings: Settings, d: int, L: float) -> figure1_results.Panel:
    example = get("tube", d=d, L=L, gamma=settings.gamma)
    phi_min = _minimum(example)
    nu = -phi_min / d  # Phi is 0 at the first saddle point, and falls by nu at each of d steps
    methods = (_method(_run(settings, example.problem, name), phi_min, nu, d) for name in figure1_results.METHODS)
    return figure1_results.Panel(d, L, phi_min, nu, *methods)


def _minimum(example: Example) -> float:
    """Phi at the known minimum, from the exact expression."""
    points = [p for p in example.stationary_points or () if p.kind == "local minimum"]
    return float(example.problem.kernels.phi(np.array([float(c) for c in points[-1].x])))


def _run(settings: Settings, problem: BilevelProblem, method: str, inner: tuple[int, int] | None = None) -> Solution:
    D, N = inner or (settings.D, settings.N)
    estimator, eta = AID(D, N, settings.step_size), settings.step_size
    perturbed = Perturbed(estimator, eta, settings.eps, settings.r, settings.T_escape)
    starts = np.random.default_rng(settings.seed).uniform(-settings.start, settings.start, (settings.seeds, problem.d))
    algorithm = perturbed if method == "PBO" else Descent(estimator, eta)
    return reporting.uninterrupted(solve(problem, algorithm, starts, steps=settings.steps, rng=settings.seed))


def _method(solution: Solution, phi_min: float, nu: float, d: int) -> figure1_results.Method:
    path = solution.trajectory
    gap = path.phi - phi_min
    return figure1_results.Method(
        gap=spread(gap),
        stairs=staircase.climb_down(gap, nu, d, path.perturbed),
        arrived=float(np.mean(gap[:, -1] < nu / 2)),
        ahead=float(np.round(np.median(gap[:, -1]) / nu)),
        outside=float(np.mean(~in_printed_domain(path.x))),
        outside_mirrored=float(np.mean(~in_printed_domain(np.abs(path.x)))),
        smallest=float(np.abs(solution.x).min()),
        perturbations=float(path.perturbed.sum(axis=-1).mean()),
    )


def inner_steps_matter(settings: Settings, d: int, L: float) -> figure1_results.Independence:
    """Compare PBO under two choices of D and N, and say by the formulas why they agree.

    grad_phi_hat = f_x - g_xy v. Here f is linear in y and g_xy depends on x alone, so y drops out; and g_yy = 1, so
    the first step of conjugate gradients gives v exactly.

    >>> inner_steps_matter(Settings(steps=20, seeds=2), 2, 1.0).moved
    0.0
    """
    problem = get("tube", d=d, L=L, gamma=settings.gamma).problem
    inner = ((settings.D, settings.N), (settings.D + 4, settings.N + 2))
    first, second = (_run(settings, problem, "PBO", pair).trajectory.x for pair in inner)
    printed = get("tube_printed", d=d, L=L, gamma=settings.gamma).problem
    return figure1_results.Independence(
        d, L, inner,
        moved=float(np.abs(first - second).max()),
        blocks_without_y=_blocks_without_y(problem) and _blocks_without_y(printed),
        unit_system=_unit_system(problem) and _unit_system(printed),
        gradient_change=_gradient_change(problem, first[:, -1]),
    )  # fmt: skip


def _blocks_without_y(problem: BilevelProblem) -> bool:
    blocks = problem.derivation.blocks
    return not any(blocks[name].free_symbols & set(problem.y) for name in ("f_x", "f_y", "g_xy", "g_yy"))


def _unit_system(problem: BilevelProblem) -> bool:
    g_yy = problem.derivation.blocks["g_yy"]
    return bool(g_yy == g_yy.eye(problem.n))


def _gradient_change(problem: BilevelProblem, x: Floats) -> float:
    """Of f_x - g_xy v with g_yy v = f_y, between two values of y."""
    k = problem.kernels
    found = []
    for value in (-100.0, 7.0):
        y = np.full((len(x), problem.n), value)
        v = np.linalg.solve(k.g_yy(x, y), k.f_y(x, y)[..., None])[..., 0]
        found.append(k.f_x(x, y) - k.g_xy_v(x, y, v))
    return float(np.abs(found[0] - found[1]).max())


# ---- drawing and writing ----------------------------------------------------------------------------------------


def draw(result: figure1_results.Figure1) -> Figure:
    """Panels by d and L, with a footer that tells the paper's settings from ours."""
    settings = result.settings
    rows, columns = len(settings.dimensions), len(settings.curvatures)
    figure = reporting.new_figure(3.3 * columns + 0.4, 2.5 * rows + 1.3)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for ax, panel in zip(grid.flat, result.panels, strict=True):
        _draw_panel(ax, panel)
    for ax in grid[-1]:
        ax.set_xlabel("iteration k")
    for ax in grid[:, 0]:
        ax.set_ylabel(r"$\Phi(x_k) - \min\,\Phi$")
    grid[0, 0].legend(loc="upper right", fontsize=8, framealpha=0.9)
    figure.suptitle(
        f"Escaping the saddle points of the tube: median and quartiles over {settings.seeds} seeds "
        "(dotted: the value at each saddle point)",
        fontsize=12,
    )
    reporting.add_footer(
        figure, (*settings.provenance().lines(45 * columns), figure1_results.independence_line(result.independence))
    )
    return figure


def _draw_panel(ax: Axes, panel: figure1_results.Panel) -> None:
    iterations = np.arange(len(panel.PBO.gap.median), dtype=np.float64)
    for level in range(1, panel.d + 1):
        ax.axhline(level * panel.nu, color="0.8", linewidth=0.6, linestyle=":", zorder=0)
    plot_spread(ax, iterations, panel.PBO.gap, colour=COLOURS[0], label="PBO: Algorithm 1, perturbed")
    plot_spread(ax, iterations, panel.BO.gap, colour=COLOURS[1], label="BO: AID, unperturbed")
    ax.set_title(panel.title, fontsize=10)
    ax.set_xlim(0, iterations[-1])
    ax.set_ylim(bottom=-0.02 * panel.d * panel.nu)


def draw_settings(result: figure1_results.Figure1) -> Figure:
    """What r, eps and T do in one panel, one at a time; and how long runs stay at each saddle point there."""
    varied, settings = result.varied[0], result.settings
    (panel,) = [p for p in result.panels if (p.d, p.L) == (varied.d, varied.L)]
    figure = reporting.new_figure(3.6 * 4 + 0.4, 4.6)
    axes = figure.subplots(1, 4)
    for ax, name in zip(axes, staircase.FACTORS, strict=False):
        staircase.draw_varied(ax, varied, name, getattr(settings, name), panel.BO.gap.median)
    axes[0].set_ylabel(r"$\Phi(x_k) - \min\,\Phi$")
    staircase.draw_dwell(axes[3], {"PBO": panel.PBO.stairs, "BO": panel.BO.stairs}, panel.title)
    figure.suptitle(
        f"What the settings that the paper does not give change: medians over {settings.seeds} seeds, one at a time",
        fontsize=12,
    )
    reporting.add_footer(figure, (figure1_results.claim_line(result),))
    return figure


def report(out: Path, *, progress: bool = False, settings: Settings | None = None) -> Iterator[str]:
    """Compute, draw and write two pictures, figure1.csv and figure1.json; yields what is to be told."""
    result = compute(settings, progress=progress)
    told = findings(result)
    yield from told
    header = ("panel", "method", "iteration", "median", "q25", "q75")
    pictures = {"figure1": draw(result), "figure1_settings": draw_settings(result)}
    yield from reporting.publish(
        out, pictures, header, _rows(result), settings=result.settings, provenance=result.settings.provenance(),
        findings=told, independence=asdict(result.independence),
        claim={**asdict(result.claim), "holds": result.claim.holds},
        panels=[_summary(panel) for panel in result.panels], varied=[_plain(found) for found in result.varied],
    )  # fmt: skip


def _rows(result: figure1_results.Figure1) -> Iterator[tuple[object, ...]]:
    for panel in result.panels:
        for name in figure1_results.METHODS:
            gap = getattr(panel, name).gap
            for k, values in enumerate(zip(*(part.tolist() for part in gap), strict=True)):
                yield panel.title, name, k, *values


def _summary(panel: figure1_results.Panel) -> dict[str, object]:
    methods = {name: _without(asdict(getattr(panel, name)), "gap") for name in figure1_results.METHODS}
    return {"d": panel.d, "L": panel.L, "phi_min": panel.phi_min, "nu": panel.nu, **methods}


def _plain(found: staircase.Sensitivity) -> dict[str, object]:
    return {**asdict(found), "runs": [_without(asdict(run), "median") for run in found.runs]}


def _without(record: dict[str, object], name: str) -> dict[str, object]:
    """All but the curves, which the CSV file has."""
    return {key: value for key, value in record.items() if key != name}


class PanelName(NamedTuple):
    """The parameters of one panel."""

    L: float
    gamma: float
    d: int


def read_label(label: str) -> PanelName:
    """The parameters of a panel, from the name of its LaTeX label: L, gamma and d, written without anything between.

    Nothing else in the source says them: the captions of the panels are empty, and the text speaks of "different
    choices of problem parameters". The digits 15 at the beginning are read as 1.5, and the last ones as a dimension.

    >>> read_label("figure: 15110")
    PanelName(L=1.5, gamma=1.0, d=10)
    """
    found = re.fullmatch(r"figure: (15|1|2|3)(1)(5|10|20)", label)
    if found is None:
        raise InvalidArgument(f"{label!r:.60} is not the label of a panel of the figure", hint="such as 'figure: 1110'")
    L, gamma, d = found.groups()
    return PanelName(1.5 if L == "15" else float(L), float(gamma), int(d))


def in_printed_domain(x: Floats) -> Bools:
    """Whether points (..., d) lie in D_0, the union of the printed regions.

    >>> in_printed_domain(np.array([[1.0, 1.0], [6.0, 1.0], [-0.1, 1.0], [1.0, 3.0]])).tolist()
    [True, True, False, False]
    """
    passed = (x >= 2 * TAU) & (x <= 6 * TAU)
    here = (x >= 0) & (x <= 2 * TAU)
    ahead = (x >= 0) & (x <= TAU)
    d = x.shape[-1]
    found: Bools = np.asarray(passed.all(axis=-1))
    for i in range(d):
        found = found | passed[..., :i].all(axis=-1) & here[..., i] & ahead[..., i + 1 :].all(axis=-1)
    return found
