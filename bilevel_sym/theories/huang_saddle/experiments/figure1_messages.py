"""The findings of the paper's figure in words: every number in them is computed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bilevel_sym.theories.huang_saddle.experiments import sensitivity
from bilevel_sym.theories.huang_saddle.experiments.figure1_results import METHODS, Figure1, Independence, Panel
from bilevel_sym.theories.huang_saddle.experiments.staircase import PLATEAU_ITERATIONS, PLATEAU_SHARE

__all__ = ["claim_line", "findings", "independence_line"]


def findings(result: Figure1) -> list[str]:
    """What was found, in words and numbers."""
    return [
        *_ends(result),
        claim_line(result),
        *_stays(result),
        *(line for found in result.varied for line in sensitivity.lines(found, result.settings.steps)),
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
