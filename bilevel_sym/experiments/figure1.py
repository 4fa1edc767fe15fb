"""The paper's figure: the tube of Section 5, Algorithm 1 ("PBO") against unperturbed AID ("BO").

The experiment says nothing about inexact hypergradients: its estimate does not depend on y at all, and one step of
conjugate gradients is exact (kappa = 1). ``inner_steps_matter`` shows that; ``coupled`` has an experiment in which they
do matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.engine import Floats
from bilevel_sym.experiments import reporting
from bilevel_sym.experiments.reporting import Provenance
from bilevel_sym.hypergradient import AID
from bilevel_sym.plotting import COLOURS, Spread, plot_spread, spread
from bilevel_sym.problem import BilevelProblem
from bilevel_sym.progress import Meter
from bilevel_sym.solution import Solution
from bilevel_sym.solvers import Descent, Perturbed, solve
from bilevel_sym.zoo import get
from bilevel_sym.zoo.example import Example

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Figure1", "Independence", "Method", "Panel", "Settings", "compute", "draw", "report"]

Flags: TypeAlias = NDArray[np.bool_]

TAU = float(np.e)
METHODS = ("PBO", "BO")


@dataclass(frozen=True)
class Settings:
    """Everything that the figure depends on. The paper gives the first five, and the step sizes.

    >>> Settings().step_size, Settings().eps
    (0.05, 1.0)
    """

    dimensions: tuple[int, ...] = (5, 10, 20)
    curvatures: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0)
    gamma: float = 1.0
    steps: int = 1000
    step_size: float = 0.05
    eps: float = 1.0
    r: float = 10.0
    T_escape: int = 50
    D: int = 1
    N: int = 1
    start: float = 1.0
    seeds: int = 20
    seed: int = 0

    def provenance(self) -> Provenance:
        """What of this is the paper's."""
        return Provenance(
            (
                "Φ in the printed domain", f"γ = {self.gamma:g}", "L and d as in the titles",
                f"{self.steps} iterations", f"all step sizes {self.step_size:g} (η = τ = {self.step_size:g})",
            ),
            (
                "Φ extended to all of R^d, f = y and g = y²/2 − Φ(x) y (the printed f and g jump, their Φ does not)",
                f"ε = {self.eps:g}", f"r = {self.r:g}",
                f"T = {self.T_escape}", f"D = {self.D}, N = {self.N}",
                f"starts uniform in [−{self.start:g}, {self.start:g}]^d, the same for both", "y0 = v0 = 0",
                f"{self.seeds} seeds",
            ),
        )  # fmt: skip


@dataclass(frozen=True)
class Method:
    """One method in one panel. ``gap`` is Phi(x_k) - min Phi over the seeds.

    ``arrived``: the part of the runs that end in the last basin. ``ahead``: the median number of saddle points still
    ahead at the end. ``outside``: the part of all iterates outside the printed domain D_0; ``outside_mirrored``: of
    all |x|. ``smallest``: the smallest |x_i| at the end of any run; far above 5e-324, or what looks like being stuck
    would be an underflow.
    """

    gap: Spread
    arrived: float
    ahead: float
    outside: float
    outside_mirrored: float
    smallest: float
    perturbations: float


@dataclass(frozen=True)
class Panel:
    """One choice of d and L, with the exact minimum and the drop nu from saddle point to saddle point."""

    d: int
    L: float
    phi_min: float
    nu: float
    PBO: Method
    BO: Method

    @property
    def title(self) -> str:
        """The parameters, for people and for the CSV file."""
        return f"d = {self.d}, L = {self.L:g}"


@dataclass(frozen=True)
class Independence:
    """That D and N do not matter, in three ways.

    ``moved``: the largest difference of any coordinate of any iterate of PBO between the two choices of (D, N).
    ``blocks_without_y``: f_x, f_y, g_xy and g_yy hold no y, as expressions, of the problem that is run and of the
    printed one. ``unit_system``: g_yy = 1 in both, so that one step of conjugate gradients is exact.
    ``gradient_change``: the largest difference of f_x - g_xy v, with g_yy v = f_y, between two values of y.
    """

    d: int
    L: float
    inner: tuple[tuple[int, int], tuple[int, int]]
    moved: float
    blocks_without_y: bool
    unit_system: bool
    gradient_change: float

    @property
    def holds(self) -> bool:
        """Whether all of that is so."""
        return self.moved < 1e-9 and self.blocks_without_y and self.unit_system and self.gradient_change == 0


@dataclass(frozen=True)
class Figure1:
    """The experiment's numbers."""

    settings: Settings
    panels: tuple[Panel, ...]
    independence: Independence


# ---- computing ----------------------------------------------------------------------------------------------


def compute(settings: Settings | None = None, *, progress: bool = False) -> Figure1:
    """Run PBO and BO in every panel, all seeds at once.

    >>> small = compute(Settings(dimensions=(2,), curvatures=(1.0,), steps=30, seeds=3))
    >>> small.panels[0].PBO.gap.median.shape, small.independence.holds
    ((31,), True)
    """
    settings = settings or Settings()
    choices = [(d, L) for d in settings.dimensions for L in settings.curvatures]
    panels = []
    with Meter("figure1", len(choices), shown=progress) as meter:
        for done, (d, L) in enumerate(choices):
            meter.at(done, f", d = {d}, L = {L:g}")
            panels.append(_panel(settings, d, L))
        independence = inner_steps_matter(settings, *choices[0])
    return Figure1(settings, tuple(panels), independence)


def _panel(settings: Settings, d: int, L: float) -> Panel:
    example = get("tube", d=d, L=L, gamma=settings.gamma)
    phi_min = _minimum(example)
    nu = -phi_min / d  # Phi is 0 at the first saddle point, and falls by nu at each of d steps
    methods = (_method(_run(settings, example.problem, name), phi_min, nu) for name in METHODS)
    return Panel(d, L, phi_min, nu, *methods)


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


def _method(solution: Solution, phi_min: float, nu: float) -> Method:
    path = solution.trajectory
    gap = path.phi - phi_min
    return Method(
        gap=spread(gap),
        arrived=float(np.mean(gap[:, -1] < nu / 2)),
        ahead=float(np.round(np.median(gap[:, -1]) / nu)),
        outside=float(np.mean(~in_printed_domain(path.x))),
        outside_mirrored=float(np.mean(~in_printed_domain(np.abs(path.x)))),
        smallest=float(np.abs(solution.x).min()),
        perturbations=float(path.perturbed.sum(axis=-1).mean()),
    )


def in_printed_domain(x: Floats) -> Flags:
    """Whether points (..., d) lie in D_0, the union of the printed regions.

    >>> in_printed_domain(np.array([[1.0, 1.0], [6.0, 1.0], [-0.1, 1.0], [1.0, 3.0]])).tolist()
    [True, True, False, False]
    """
    passed = (x >= 2 * TAU) & (x <= 6 * TAU)
    here = (x >= 0) & (x <= 2 * TAU)
    ahead = (x >= 0) & (x <= TAU)
    d = x.shape[-1]
    found: Flags = np.asarray(passed.all(axis=-1))
    for i in range(d):
        found = found | passed[..., :i].all(axis=-1) & here[..., i] & ahead[..., i + 1 :].all(axis=-1)
    return found


def inner_steps_matter(settings: Settings, d: int, L: float) -> Independence:
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
    return Independence(
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


def draw(result: Figure1) -> Figure:
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
    reporting.add_footer(figure, (*settings.provenance().lines(45 * columns), _independence_line(result.independence)))
    return figure


def _draw_panel(ax: Axes, panel: Panel) -> None:
    iterations = np.arange(len(panel.PBO.gap.median), dtype=np.float64)
    for level in range(1, panel.d + 1):
        ax.axhline(level * panel.nu, color="0.8", linewidth=0.6, linestyle=":", zorder=0)
    plot_spread(ax, iterations, panel.PBO.gap, colour=COLOURS[0], label="PBO: Algorithm 1, perturbed")
    plot_spread(ax, iterations, panel.BO.gap, colour=COLOURS[1], label="BO: AID, unperturbed")
    ax.set_title(panel.title, fontsize=10)
    ax.set_xlim(0, iterations[-1])
    ax.set_ylim(bottom=-0.02 * panel.d * panel.nu)


def _independence_line(found: Independence) -> str:
    (D1, N1), (D2, N2) = found.inner
    if not found.holds:
        return f"D and N matter: x moved by {found.moved:.2g} between (D, N) = ({D1}, {N1}) and ({D2}, {N2})."
    return (
        f"D and N ≥ 1 change nothing: the estimate f_x − g_xy v holds no y, and g_yy = 1; largest change of x between "
        f"(D, N) = ({D1}, {N1}) and ({D2}, {N2}): {found.moved:.2g}."
    )


def findings(result: Figure1) -> list[str]:
    """What was found, in words and numbers."""
    lines = []
    seeds, L = result.settings.seeds, ", ".join(f"{value:g}" for value in result.settings.curvatures)
    for d in result.settings.dimensions:
        row = [panel for panel in result.panels if panel.d == d]
        ends = []
        for name in METHODS:
            arrived = ", ".join(f"{getattr(panel, name).arrived * seeds:.0f}" for panel in row)
            ahead = ", ".join(f"{getattr(panel, name).ahead:.0f}" for panel in row)
            ends.append(f"{name} at the minimum in {arrived} of {seeds} runs, {ahead} saddle points ahead (median)")
        lines.append(f"d = {d}, L = {L}: {'; '.join(ends)}")
    methods = [getattr(panel, name) for panel in result.panels for name in METHODS]
    outside, mirrored = (np.array([(m.outside, m.outside_mirrored) for m in methods]) * 100).T
    smallest = min(p.BO.smallest for p in result.panels)
    return [
        *lines,
        _independence_line(result.independence),
        f"{outside.min():.0f} to {outside.max():.0f} % of a panel's iterates lie outside the printed domain D_0; with "
        f"|x| in place of x, at most {mirrored.max():.2g} %",
        f"the smallest |x_i| at the end of a BO run is {smallest:.1e}: slow, but not an underflow (5e-324)",
    ]


def report(out: Path, *, progress: bool = False, settings: Settings | None = None) -> Iterator[str]:
    """Compute, draw and write figure1.png, figure1.csv and figure1.json; yields what is to be told."""
    result = compute(settings, progress=progress)
    yield from findings(result)
    yield f"wrote {reporting.save_figure(draw(result), out / 'figure1.png')}"
    header = ("panel", "method", "iteration", "median", "q25", "q75")
    yield f"wrote {reporting.write_csv(out / 'figure1.csv', header, _rows(result))}"
    content = reporting.record(
        "figure1", result.settings, result.settings.provenance(), findings(result),
        independence=_plain(result.independence), panels=[_summary(panel) for panel in result.panels],
    )  # fmt: skip
    yield f"wrote {reporting.write_json(out / 'figure1.json', content)}"


def _rows(result: Figure1) -> Iterator[tuple[object, ...]]:
    for panel in result.panels:
        for name in METHODS:
            gap = getattr(panel, name).gap
            for k, values in enumerate(zip(*(part.tolist() for part in gap), strict=True)):
                yield panel.title, name, k, *values


def _summary(panel: Panel) -> dict[str, object]:
    methods = {name: _plain(getattr(panel, name), without=("gap",)) for name in METHODS}
    return {"d": panel.d, "L": panel.L, "phi_min": panel.phi_min, "nu": panel.nu, **methods}


def _plain(value: Method | Independence, without: tuple[str, ...] = ()) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in fields(value) if field.name not in without}
