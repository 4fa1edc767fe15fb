"""How often perturbed AID and GDmax fail to escape from a saddle point, beside what the lemma allows.

Each run begins on the saddle point of ``families.saddle_family``, with the parameters of the theorem for one escape,
and has the T iterations of the lemma to lower Phi by F/2. It is ended as soon as Phi has fallen by 2 F, from where the
rest of T cannot raise it again by more than rounding.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bilevel_sym.campaigns import Campaign
from bilevel_sym.estimators.status import Status
from bilevel_sym.plotting import COLOURS
from bilevel_sym.solvers import solve
from bilevel_sym.system.verifier import verifier
from bilevel_sym.theories.huang_saddle.experiments import reporting
from bilevel_sym.theories.huang_saddle.experiments.campaigns.families import saddle_family
from bilevel_sym.theories.huang_saddle.experiments.campaigns.shipped import Done, carry_out
from bilevel_sym.theories.huang_saddle.schedules.aid import perturbed_aid, perturbed_gdmax
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness
from bilevel_sym.theories.huang_saddle.schedules.schedule import ScheduleWarning
from bilevel_sym.typing import Axes, Figure

__all__ = ["Choice", "choices", "draw", "escapes", "report"]

SURE_OF_EACH = 0.99
ENOUGH = 2.0  # times F: a fall that is final
AXES = ("method", "eps", "delta", "kappa", "d")
METHODS = ("AID", "GDmax")
MARKERS = "os^Dv"
SHARES = tuple(2.0**-k for k in range(7))  # of T, by which it is counted who has not escaped


def escapes(method: str, eps: float, delta: float, kappa: int, d: int, runs: int, seed: int) -> dict[str, Any]:
    """The task: ``runs`` escapes with the theorem's parameters, how many iterations they took, and who was late.

    Paper: Lemma 2.9 [lem:escapesaddle]; Theorem 2.5 [thm:aid]; Theorem 3.7 [thm:minimax]

    - ``method``: "AID" or "GDmax".
    - ``eps``, ``delta``: the goal.
    - ``kappa``, ``d``: of the family.
    - ``runs``: how many.
    - ``seed``: of all their perturbations.

    >>> escapes("AID", eps=0.1, delta=0.1, kappa=2, d=2, runs=5, seed=0)["escaped"]
    5
    """
    family = saddle_family(method, kappa, d)
    smooth = Smoothness(family.L_phi, family.rho_phi)
    make: Any = perturbed_aid if method == "AID" else perturbed_gdmax
    goal = Goal(eps=eps, delta=delta, d=d, initial_error=1.0, gap=1.0, episodes=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScheduleWarning)  # K iterations are out of reach, one escape is not
        schedule = make(family.constants, goal, smoothness=smooth)
    enough = -ENOUGH * schedule.F_escape
    solution = reporting.uninterrupted(
        solve(
            family.problem, schedule.algorithm(), np.zeros((runs, d)), steps=schedule.T_escape + 1,
            rng=np.random.default_rng([seed, runs]), record="last", stop=lambda state: state.phi_hat < enough,
        )
    )  # fmt: skip
    escaped = [status is Status.STOPPED for status in solution.statuses]
    steps = np.where(escaped, solution.steps, np.inf)
    return {
        "escaped": sum(escaped), "T": schedule.T_escape, "F": schedule.F_escape, "iota": schedule.iota,
        "D_theorem": schedule.D, "median": float(np.median(steps)), "longest": float(steps.max()),
        "late": [float((steps > share * (schedule.T_escape + 1)).sum()) for share in SHARES],
    }  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """All runs of one choice of method, eps, delta, kappa and d.

    - ``at``: the choice, by name.
    - ``runs``, ``escaped``: how many.
    - ``failure``: exact bounds on the probability that an escape fails, from below and from above.
    - ``T``: the iterations that the lemma gives it.
    - ``median``, ``longest``: those that were needed; of several blocks of runs the larger ones.
    - ``late``: exact upper bounds on the probability of not having escaped by each of ``SHARES`` of T.
    """

    at: dict[str, Any]
    runs: int
    escaped: int
    failure: tuple[float, float]
    T: int
    median: float
    longest: float
    late: tuple[float, ...]

    @property
    def verdict(self) -> str:
        """What the bounds say of the lemma: at most delta, more, or neither."""
        low, high = self.failure
        return "at most delta" if high <= self.at["delta"] else "more" if low > self.at["delta"] else "undecided"


def choices(rows: Sequence[dict[str, Any]]) -> list[Choice]:
    """Blocks of runs of one choice are put together."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in AXES)].append(row)
    bound = verifier("statistics").clopper_pearson
    found = []
    for at, group in groups.items():
        runs, escaped = sum(row["runs"] for row in group), sum(row["escaped"] for row in group)
        lower, upper = (bound(runs - escaped, runs, SURE_OF_EACH, side) for side in ("lower", "upper"))
        median, longest = (max(row[name] for row in group) for name in ("median", "longest"))
        late = (sum(int(row["late"][k]) for row in group) for k in range(len(SHARES)))
        late_bounds = tuple(bound(count, runs, SURE_OF_EACH, "upper").upper for count in late)
        choice = dict(zip(AXES, at, strict=True))
        found.append(
            Choice(choice, runs, escaped, (lower.lower, upper.upper), group[0]["T"], median, longest, late_bounds)
        )
    return found


def _findings(done: Done, found: Sequence[Choice]) -> list[str]:
    runs, failed = sum(c.runs for c in found), sum(c.runs - c.escaped for c in found)
    counts = [sum(c.verdict == said for c in found) for said in ("at most delta", "undecided", "more")]
    shares = [c.longest / c.T for c in found]
    return [
        done.told(),
        f"{runs} escapes of {len(found)} choices, of which {failed} failed",
        f"the probability of failure is at most delta in {counts[0]} choices, undecided in {counts[1]}, more in "
        f"{counts[2]} (each by an exact bound of {SURE_OF_EACH:.0%})",
        f"the slowest escape of a choice took from {min(shares):.2%} to {max(shares):.2%} of the lemma's T",
    ]


def draw(found: Sequence[Choice], done: Done) -> Figure:
    """Bounds on the probability of failure against delta, and iterations against the lemma's T."""
    figure = reporting.new_figure(12.0, 6.0)
    left, right = figure.subplots(1, 2)
    _draw_failures(left, found)
    _draw_times(right, found)
    figure.suptitle("Escapes from a saddle point with the parameters of the theorems", fontsize=12)
    footer = _provenance(done).lines(170)
    reporting.add_footer(figure, footer)
    return figure


def _provenance(done: Done) -> reporting.Provenance:
    return done.provenance(
        ("Algorithm 1 with AID and GDmax", "η, r, T, τ, D and N of Theorems 2.5 and 3.7, ι for one escape"),
        (
            "the problems: d = n, curvature −1 at 0", "L_Φ and ρ_Φ of these problems, far below their formulas",
            "an escape is over when Φ has fallen by 2F",
        ),
    )  # fmt: skip


def _draw_failures(ax: Axes, found: Sequence[Choice]) -> None:
    """Every choice as a line: who has not escaped, as time goes on."""
    deltas = sorted({c.at["delta"] for c in found})
    for method, colour, marker in zip(METHODS, COLOURS, MARKERS, strict=False):
        for k, choice in enumerate([c for c in found if c.at["method"] == method]):
            said = None if k else f"{method}: exact upper bounds ({SURE_OF_EACH:.0%}), a line a choice"
            ax.plot(SHARES, choice.late, marker, linestyle="-", color=colour, alpha=0.55, markersize=4, label=said)
    for k, delta in enumerate(deltas):
        ax.plot(1.0, delta, "_", color="0.1", markersize=22, markeredgewidth=2, label=None if k else "δ, allowed at T")
        ax.annotate(f"δ = {delta:g}", (1.0, delta), textcoords="offset points", xytext=(0, 4), ha="center", fontsize=8)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlabel("time, as a share of the lemma's T")
    ax.set_ylabel("probability of not having escaped by then")
    ax.set_ylim(bottom=min(min(c.late) for c in found) / 12)  # room for the legend
    ax.set_title("Failures: at T, bounds below δ agree with the lemma", fontsize=11)
    ax.legend(fontsize=9, loc="lower left")


def _draw_times(ax: Axes, found: Sequence[Choice]) -> None:
    kappas = sorted({c.at["kappa"] for c in found})
    for method, colour in zip(METHODS, COLOURS, strict=False):
        for kappa, marker in zip(kappas, MARKERS, strict=False):
            here = [c for c in found if (c.at["method"], c.at["kappa"]) == (method, kappa)]
            at = [float(c.T) for c in here]
            ax.vlines(at, [c.median for c in here], [c.longest for c in here], color=colour, linewidth=0.8)
            ax.plot(at, [c.median for c in here], marker, color=colour, markersize=5, label=f"{method}, κ = {kappa}")
    ends = [min(c.T for c in found) / 1.3, max(c.T for c in found) * 1.3]
    ax.plot(ends, ends, color="0.3", linewidth=1.2, label="T")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("T, the iterations of the lemma: ι L_Φ/√(ρ_Φ ε)")
    ax.set_ylabel("iterations until Φ has fallen by 2F: median, and up to the slowest")
    ax.set_title("Times: the lemma gives many times what is needed", fontsize=11)
    ax.legend(fontsize=9, loc="upper left")


def report(out: Path, *, progress: bool = False, large: bool = False, plan: Campaign | None = None) -> Iterator[str]:
    """Run, draw and write escape.png, escape.csv and escape.json; yields what is to be told.

    Paper: Lemma 2.9 [lem:escapesaddle]
    """
    done = carry_out("escape", out, large=large, progress=progress, plan=plan)
    found = choices(done.rows)
    told = _findings(done, found)
    yield from told
    header = (*AXES, "runs", "escaped", "failure_lower", "failure_upper", "verdict", "T", "median", "longest")
    rows = ((*c.at.values(), c.runs, c.escaped, *c.failure, c.verdict, c.T, c.median, c.longest) for c in found)
    yield from reporting.publish(
        out, {"escape": draw(found, done)}, header, rows, settings=done.settings, provenance=_provenance(done),
        findings=told,
    )  # fmt: skip
