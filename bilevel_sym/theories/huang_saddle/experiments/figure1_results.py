"""What the experiment of the paper's figure is made of, and what it finds: settings and numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevel_sym.plotting import Spread
from bilevel_sym.theories.huang_saddle.experiments.reporting import Provenance
from bilevel_sym.theories.huang_saddle.experiments.sensitivity import Sensitivity
from bilevel_sym.theories.huang_saddle.experiments.staircase import PLATEAU_SHARE, Staircase

__all__ = ["METHODS", "Claim", "Figure1", "Independence", "Method", "Panel", "Settings"]

METHODS = ("PBO", "BO")


@dataclass(frozen=True)
class Settings:
    """Everything that the figure depends on. The paper gives the iterations and the step sizes; dimensions, curvatures
    and gamma are read from the names of its LaTeX labels (``read_label``), for the captions of the panels are empty.

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
