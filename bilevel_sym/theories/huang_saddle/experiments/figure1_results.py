"""What the experiment of the paper's figure is made of, and what it finds: settings, numbers, and words from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from bilevel_sym.plotting import Spread
from bilevel_sym.theories.huang_saddle.experiments import staircase
from bilevel_sym.theories.huang_saddle.experiments.reporting import Provenance
from bilevel_sym.theories.huang_saddle.experiments.staircase import (
    PLATEAU_ITERATIONS,
    PLATEAU_SHARE,
    Sensitivity,
    Staircase,
)

__all__: list[str] = []

METHODS = ("PBO", "BO")


@dataclass(frozen=True)
class Settings:
    """Everything that the figure depends on. The paper gives the iterations and the step sizes; dimensions, curvatures
    and gamma are read from the names of its LaTeX labels (``read_label``), for the captions of the panels are empty.
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
                "Φ in the printed domain", f"{self.steps} iterations",
                f"all step sizes {self.step_size:g} (η = τ = {self.step_size:g})",
            ),
            (
                "Φ extended to all of R^d, f = y and g = y²/2 − Φ(x) y (the printed f and g jump, their Φ does not)",
                f"ε = {self.eps:g}", f"r = {self.r:g}",
                f"T = {self.T_escape}", f"D = {self.D}, N = {self.N}",
                f"starts uniform in [−{self.start:g}, {self.start:g}]^d, the same for both", "y0 = v0 = 0",
                f"{self.seeds} seeds",
            ),
            (
                f"L and d as in the titles and γ = {self.gamma:g}, from the names of the LaTeX labels of the panels "
                "(figure: 15110 is L = 1.5, γ = 1, d = 10): neither text nor captions give them",
            ),
        )  # fmt: skip


@dataclass(frozen=True)
class Method:
    """One method in one panel. ``gap`` is Phi(x_k) - min Phi over the seeds.

    ``stairs``: how the runs go down from saddle point to saddle point. ``arrived``: the part of the runs that end in
    the last basin. ``ahead``: the median number of saddle points still ahead at the end. ``outside``: the part of all
    iterates outside the printed domain D_0; ``outside_mirrored``: of all |x|. ``smallest``: the smallest |x_i| at the
    end of any run; far above 5e-324, or what looks like being stuck would be an underflow.
    """

    gap: Spread
    stairs: Staircase
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


def row_of(panel: Panel) -> dict[str, Any]:
    """The numbers of a panel as plain columns; ``panel_of`` reads them."""
    row: dict[str, Any] = {"phi_min": panel.phi_min, "nu": panel.nu}
    for name in METHODS:
        method: Method = getattr(panel, name)
        alone = {field.name: getattr(method, field.name) for field in fields(Method)[2:]}  # but for gap and stairs
        columns = method.gap._asdict() | asdict(method.stairs) | alone
        row |= {f"{name}_{key}": value for key, value in columns.items()}
    return row


def panel_of(row: Mapping[str, Any]) -> Panel:
    """The panel whose columns ``row_of`` has made."""
    return Panel(row["d"], row["L"], row["phi_min"], row["nu"], *(_method_of(row, name) for name in METHODS))


def _method_of(row: Mapping[str, Any], name: str) -> Method:
    own = {key.removeprefix(f"{name}_"): value for key, value in row.items() if key.startswith(f"{name}_")}
    gap = Spread(*(np.array(own.pop(key)) for key in Spread._fields))
    stairs = {field.name: own.pop(field.name) for field in fields(Staircase)}
    stairs |= {"passed": tuple(map(int, stairs["passed"])), "dwell": tuple(stairs["dwell"])}
    return Method(gap=gap, stairs=Staircase(**stairs), **own)


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
class Claim:
    """What the figure is to show, as numbers over all panels: PBO goes down stairs, and faster than BO.

    ``pairs`` of runs begin at the same point; in so many of them PBO has passed more, or fewer, saddle points than BO
    at the end. ``stairs``, ``on_plateaus``, ``aided`` and ``rise`` are the worst panel's (see ``Staircase``), of PBO.
    ``arrived`` are the panels in which every run of PBO reaches the minimum.
    """

    pairs: int
    ahead: int
    behind: int
    stairs: float
    on_plateaus: float
    aided: float
    rise: float
    arrived: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the text of the paper is borne out: nearly step functions, and no run of BO ahead of PBO's.

        That is: PBO stays at nine of ten saddle points, spends most of its iterations before arrival on plateaus, and
        never climbs out of one again. Arrival is told apart, for it depends on the number of iterations.
        """
        ahead = self.behind == 0 < self.ahead
        return ahead and self.stairs > 0.9 and self.on_plateaus > 0.5 and self.rise < PLATEAU_SHARE


@dataclass(frozen=True)
class Figure1:
    """The experiment's numbers; ``varied`` are those with other r, eps and T, in a middle panel and in the deepest."""

    settings: Settings
    panels: tuple[Panel, ...]
    independence: Independence
    varied: tuple[Sensitivity, Sensitivity]

    @property
    def claim(self) -> Claim:
        """What the figure is to show, in numbers."""
        stairs = [panel.PBO.stairs for panel in self.panels]
        ahead = np.array([np.subtract(p.PBO.stairs.passed, p.BO.stairs.passed) for p in self.panels])
        return Claim(
            ahead.size, int((ahead > 0).sum()), int((ahead < 0).sum()), min(s.stairs for s in stairs),
            min(s.on_plateaus for s in stairs), min(s.aided for s in stairs), max(s.rise for s in stairs),
            tuple(panel.title for panel in self.panels if panel.PBO.arrived == 1),
        )  # fmt: skip


def findings(result: Figure1) -> list[str]:
    """What was found, in words and numbers."""
    return [
        *_ends(result),
        claim_line(result),
        *_stays(result),
        *(line for found in result.varied for line in staircase.lines(found, result.settings.steps)),
        independence_line(result.independence),
        *_places(result),
    ]


def claim_line(result: Figure1) -> str:
    """The claim of the figure, with its numbers."""
    c = result.claim
    arrived = "; ".join(c.arrived) or "none"
    return (
        f"the figure's claim {'holds' if c.holds else 'does not hold'}: of {c.pairs} pairs of runs from one start, PBO "
        f"has passed more saddle points than BO in {c.ahead}, fewer in {c.behind}; in every panel at least "
        f"{c.stairs:.0%} of the saddle points that PBO passes are stairs ({PLATEAU_ITERATIONS} iterations or longer), "
        f"at least {c.on_plateaus:.0%} of its iterations before arrival are on plateaus (within {PLATEAU_SHARE:.0%} of "
        f"the drop), and at least {c.aided:.0%} of its plateaus after the first hold a perturbation (the text says "
        f"each); Φ never rises by more than {c.rise:.1%} of the drop; all runs of PBO arrive in: {arrived}"
    )


def _ends(result: Figure1) -> Iterator[str]:
    seeds, L = result.settings.seeds, ", ".join(f"{value:g}" for value in result.settings.curvatures)
    for d in result.settings.dimensions:
        row = [panel for panel in result.panels if panel.d == d]
        ends = []
        for name in METHODS:
            arrived = ", ".join(f"{getattr(panel, name).arrived * seeds:.0f}" for panel in row)
            ahead = ", ".join(f"{getattr(panel, name).ahead:.0f}" for panel in row)
            ends.append(f"{name} at the minimum in {arrived} of {seeds} runs, {ahead} saddle points ahead (median)")
        yield f"d = {d}, L = {L}: {'; '.join(ends)}"


def _stays(result: Figure1) -> Iterator[str]:
    """How long runs stay at the saddle points, one after the other."""
    for panel in result.panels:
        if panel.L in (min(result.settings.curvatures), max(result.settings.curvatures)):
            yield f"{panel.title}: {_stay(panel, 'PBO')}; {_stay(panel, 'BO')}"


def _stay(panel: Panel, name: str) -> str:
    stairs = getattr(panel, name).stairs
    shown = [value for value in stairs.dwell if not np.isnan(value)]
    if not shown:
        return f"{name} passes no saddle point in half of its runs"
    first = ", ".join(f"{value:.0f}" for value in shown[:6]) + (", ..." if len(shown) > 6 else "")
    growth = "" if np.isnan(stairs.growth) else f", times {stairs.growth:.2f} from one to the next after the first"
    return f"{name} stays {first} iterations at saddle points 1 to {len(shown)} (medians{growth})"


def _places(result: Figure1) -> Iterator[str]:
    methods = [getattr(panel, name) for panel in result.panels for name in METHODS]
    outside, mirrored = (np.array([(m.outside, m.outside_mirrored) for m in methods]) * 100).T
    yield (
        f"{outside.min():.0f} to {outside.max():.0f} % of a panel's iterates lie outside the printed domain D_0; with "
        f"|x| in place of x, at most {mirrored.max():.2g} %"
    )
    smallest = min(p.BO.smallest for p in result.panels)
    yield f"the smallest |x_i| at the end of a BO run is {smallest:.1e}: slow, but not an underflow (5e-324)"


def independence_line(found: Independence) -> str:
    """Whether D and N matter."""
    (D1, N1), (D2, N2) = found.inner
    if not found.holds:
        return f"D and N matter: x moved by {found.moved:.2g} between (D, N) = ({D1}, {N1}) and ({D2}, {N2})."
    return (
        f"D and N ≥ 1 change nothing: the estimate f_x − g_xy v holds no y, and g_yy = 1; largest change of x between "
        f"(D, N) = ({D1}, {N1}) and ({D2}, {N2}): {found.moved:.2g}."
    )
