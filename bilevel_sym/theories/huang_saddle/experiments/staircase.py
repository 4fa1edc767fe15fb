"""Stairs: what a learning curve that is "nearly a step function" is, in numbers.

A run goes down past the saddle points of the tube, whose values lie one above the other at equal distances. It is on
the plateau of a saddle point while Phi is near its value, and has passed it once Phi is well below.

And what the settings that the paper does not give do to the stairs: r, eps and T of Algorithm 1, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from bilevel_sym.plotting import COLOURS
from bilevel_sym.typing import Axes, Bools, Floats

__all__: list[str] = []

PLATEAU_SHARE = 0.05  # of the height of a stair: a plateau
PLATEAU_ITERATIONS = 10  # iterations that make a plateau
FACTORS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {"r": (0.01, 0.1, 1, 10), "eps": (0.01, 0.1, 1, 10), "T_escape": (0.1, 0.5, 1, 2, 4)}
)
SIGNS: Mapping[str, str] = MappingProxyType({"r": "r", "eps": "ε", "T_escape": "T"})
S = TypeVar("S")


@dataclass(frozen=True)
class Staircase:
    """How the runs of one method go down the stairs.

    ``passed``: how many saddle points each run has passed at the end. ``arrival``: the median iteration at which a run
    is in the last basin; infinite where less than half of them are. ``dwell``: for each saddle point, first to last,
    the median number of iterations that the runs which passed it spent on its plateau; nan where less than half passed
    it. ``on_plateaus``: the part of all iterations before arrival that is spent on plateaus. ``stairs``: the part of
    all saddle points passed that were passed with a plateau of 10 iterations or more. ``aided``: the part of those from
    the second on, the first of a run being where it starts, that were left after a perturbation on their plateau.
    ``rise``: the largest rise of Phi in one iteration, in stairs.
    """

    passed: tuple[int, ...]
    arrival: float
    dwell: tuple[float, ...]
    on_plateaus: float
    stairs: float
    aided: float
    rise: float

    @property
    def longest(self) -> float:
        """The longest median plateau."""
        return max((value for value in self.dwell if not math.isnan(value)), default=math.nan)

    @property
    def growth(self) -> float:
        """By what factor plateaus grow from saddle point to saddle point, after the first: a geometric mean."""
        known = [value for value in self.dwell[1:] if value > 0]
        return (known[-1] / known[0]) ** (1 / (len(known) - 1)) if len(known) > 1 else math.nan


def climb_down(gap: Floats, height: float, d: int, perturbed: Bools) -> Staircase:
    """Measure runs: Phi - min Phi of shape (runs, iterations), d stairs of that height; who was perturbed, and when.

    >>> steps = np.repeat([2.0, 1.0, 0.0], 20)[None]
    >>> found = climb_down(steps, 1.0, 2, np.zeros(steps.shape, dtype=bool))
    >>> found.passed, found.arrival, found.dwell, found.stairs, found.aided
    ((2,), 40.0, (20.0, 20.0), 1.0, 0.0)
    """
    level = gap / height
    nearest = np.round(level).astype(np.int64)
    flat = np.abs(level - nearest) <= PLATEAU_SHARE
    passed = np.clip(d - np.ceil(level[:, -1] - 0.5).astype(np.int64), 0, d)
    stays, helped = [], []
    for stair in range(d):  # the value of saddle point number stair + 1 is d - stair stairs above the minimum
        here = flat & (nearest == d - stair)
        stays.append(here.sum(axis=1))
        helped.append((here[:, : perturbed.shape[1]] & perturbed[:, : here.shape[1]]).any(axis=1))
    stay, help_ = np.array(stays).T, np.array(helped).T
    left = np.arange(d) < passed[:, None]
    before, stayed = level > 0.5, [stay[left[:, k], k] for k in range(d)]
    return Staircase(
        passed=tuple(passed.tolist()),
        arrival=_arrival(before),
        dwell=tuple(float(np.median(s)) if 2 * len(s) >= len(gap) and len(s) else math.nan for s in stayed),
        on_plateaus=_part(flat[before]),
        stairs=_part(stay[left] >= PLATEAU_ITERATIONS),
        aided=_part(help_[:, 1:][left[:, 1:]]),
        rise=float(np.diff(level, axis=1).max(initial=0.0)),
    )


def _arrival(before: Bools) -> float:
    first = np.where(before[:, -1], np.inf, before.shape[1] - np.argmax(before[:, ::-1], axis=1))
    first[~before.any(axis=1)] = 0.0
    return float(np.median(first))


def _part(flags: Bools) -> float:
    return float(np.mean(flags)) if flags.size else math.nan


@dataclass(frozen=True)
class Varied:
    """PBO with one setting changed: the median of Phi - min Phi by iteration, and how the runs go down the stairs."""

    name: str
    value: float
    median: Floats
    stairs: Staircase

    @property
    def title(self) -> str:
        """The setting, for people."""
        return f"{SIGNS[self.name]} = {self.value:g}"


@dataclass(frozen=True)
class Sensitivity:
    """All of it in one panel of the figure, with d saddle points and the drop nu between them."""

    d: int
    L: float
    nu: float
    runs: tuple[Varied, ...]

    def of(self, name: str) -> tuple[Varied, ...]:
        """Those in which this setting was changed."""
        return tuple(run for run in self.runs if run.name == name)


def vary(
    settings: S, names: Sequence[str], run: Callable[[S], tuple[Floats, Any]], height: float, d: int
) -> Iterator[Varied]:
    """Run with each value of each setting.

    - ``settings``: the usual ones.
    - ``names``: the settings that are varied.
    - ``run``: gives Phi - min Phi (runs, iterations), and which iterates were perturbed.
    - ``height``: of a stair.
    - ``d``: the number of stairs.

    >>> from bilevel_sym.theories.huang_saddle.experiments.figure1 import Settings
    >>> found = vary(Settings(), ["r"], lambda s: (np.full((1, 5), s.r), np.zeros((1, 4), dtype=bool)), 1.0, 2)
    >>> [run.title for run in found]
    ['r = 0.1', 'r = 1', 'r = 10', 'r = 100']
    """
    for name in names:
        usual = getattr(settings, name)
        for factor in FACTORS[name]:
            value = max(1, round(usual * factor)) if isinstance(usual, int) else usual * factor
            changed: Any = replace(settings, **{name: value})  # type: ignore[type-var]
            gap, perturbed = run(changed)
            yield Varied(name, value, np.median(gap, axis=0), climb_down(gap, height, d, perturbed))


# ---- in words ----------------------------------------------------------------------------------------------------


def lines(found: Sensitivity, steps: int) -> Iterator[str]:
    """One line for each setting: what arrives, and when."""
    for name in dict.fromkeys(run.name for run in found.runs):
        parts = ", ".join(f"{run.value:g}: {_outcome(run.stairs, found.d, steps)}" for run in found.of(name))
        yield f"{SIGNS[name]} in d = {found.d}, L = {found.L:g}: {parts}"


def _outcome(stairs: Staircase, d: int, steps: int) -> str:
    if math.isfinite(stairs.arrival):
        return f"at the minimum after {stairs.arrival:.0f} iterations"
    return f"{np.median(stairs.passed):g} of {d} saddle points passed in {steps}"


# ---- in pictures --------------------------------------------------------------------------------------------------


def draw_varied(ax: Axes, found: Sensitivity, name: str, usual: float, baseline: Floats) -> None:
    """The median curves for all values of one setting, and that of BO."""
    from matplotlib import colormaps

    runs = found.of(name)
    shades = colormaps["viridis"](np.linspace(0.0, 0.85, len(runs)))
    for stair in range(1, found.d + 1):
        ax.axhline(stair * found.nu, color="0.85", linewidth=0.6, linestyle=":", zorder=0)
    for run, shade in zip(runs, shades, strict=True):
        own = math.isclose(run.value, usual)
        ax.plot(run.median, color=shade, linewidth=2.2 if own else 1.3, label=run.title + (" (figure)" if own else ""))
    ax.plot(baseline, color=COLOURS[1], linewidth=1.2, linestyle="--", label="BO: unperturbed")
    ax.set_title(f"{SIGNS[name]}, at d = {found.d}, L = {found.L:g}", fontsize=10)
    ax.set_xlim(0, max(1, len(baseline) - 1))
    ax.set_xlabel("iteration k")
    ax.legend(fontsize=7, loc="upper right", framealpha=0.9)


def draw_dwell(ax: Axes, methods: Mapping[str, Staircase], title: str) -> None:
    """How long runs stay at each saddle point."""
    for (name, stairs), colour in zip(methods.items(), COLOURS, strict=False):
        number = np.arange(1, len(stairs.dwell) + 1)
        ax.plot(number, np.maximum(stairs.dwell, 1.0), "o-", color=colour, markersize=4, label=name)
    ticks = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    ax.set_yscale("log")
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.set_yticks([], minor=True)
    ax.set_ylim(5, 1000)
    ax.set_title(f"iterations at a saddle point, {title}", fontsize=10)
    ax.set_xlabel("number of the saddle point")
    ax.legend(fontsize=7, loc="upper right", framealpha=0.9)
