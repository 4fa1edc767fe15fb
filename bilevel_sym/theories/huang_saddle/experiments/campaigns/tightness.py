"""Where is each bound of the paper nearly attained? Every claim, judged on generated problems."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilevel_sym.campaigns import Campaign
from bilevel_sym.campaigns.sources import Source
from bilevel_sym.plotting import COLOURS
from bilevel_sym.theories.huang_saddle.experiments import reporting
from bilevel_sym.theories.huang_saddle.experiments.campaigns.shipped import Done, carry_out, plan_path
from bilevel_sym.typing import Figure

__all__ = ["Claim", "claims", "draw", "report", "witnesses"]

NEARLY = 0.5  # of a bound: nearly attained
ATTAINED = 1 + 1e-6  # and no more, but for rounding
USUAL = 0.9  # of the largest tightness: where the median has more, any problem is as good a witness
DECIDED = ("HOLDS", "VIOLATED")
SMALLEST_DRAWN = 1e-12  # tightness that is drawn; smaller ones stand there


@dataclass(frozen=True)
class Claim:
    """One statement, or part of one, over all problems.

    - ``label``: with its part.
    - ``tightness``: measured/bound, with the problem of each, the tightest first.
    - ``verdicts``: how many there are of each.
    """

    label: str
    tightness: tuple[tuple[float, str], ...]
    verdicts: dict[str, int]

    @property
    def best(self) -> tuple[float, str]:
        """The tightest, and its problem; NaN where nothing was measured."""
        return self.tightness[0] if self.tightness else (math.nan, "")

    @property
    def witness(self) -> tuple[float, str] | None:
        """The problem that nearly attains the bound, and does not break it; None where most are as good, or none is."""
        kept = [pair for pair in self.tightness if pair[0] <= ATTAINED]
        usual = kept[len(kept) // 2][0] if kept else math.inf
        return kept[0] if kept and kept[0][0] >= NEARLY and usual < USUAL * kept[0][0] else None


def claims(rows: Sequence[dict[str, Any]]) -> list[Claim]:
    """Rows of ``verify`` by statement, the tightest statement first.

    >>> row = {"problem": "p", "labels": ["lem:a"], "verdicts": ["HOLDS"], "tightness": [0.25], "bound": [4.0]}
    >>> claims([row])[0].best
    (0.25, 'p')
    """
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    verdicts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        told = zip(row["labels"], row["verdicts"], row["tightness"], row["bound"], strict=True)
        for label, verdict, tightness, bound in told:
            verdicts[label][verdict] += 1
            # of an identity both sides are zero; what is not decided was not measured
            if verdict in DECIDED and bound > 0 and math.isfinite(tightness):
                found[label].append((tightness, row["problem"]))
    listed = [
        Claim(label, tuple(sorted(found[label], key=lambda pair: -pair[0])), dict(counts))
        for label, counts in verdicts.items()
    ]
    return sorted(listed, key=lambda claim: (-claim.best[0] if claim.tightness else math.inf, claim.label))


def _findings(done: Done, found: Sequence[Claim]) -> list[str]:
    measured = [claim for claim in found if claim.tightness]
    near = [claim for claim in measured if claim.best[0] >= NEARLY]
    violated = [claim for claim in found if claim.verdicts.get("VIOLATED")]
    return [
        done.told(),
        f"{len(found)} statements and parts, {len(measured)} with a bound that was measured, {len(near)} of them "
        f"attained to {NEARLY:.0%} or more",
        f"violated: {', '.join(claim.label for claim in violated) or 'none'}",
        *(f"  {claim.label}: {claim.best[0]:.3g} on {claim.best[1]}" for claim in near),
    ]


def witnesses(found: Sequence[Claim], sources: Sequence[Source]) -> str:
    """The problem that nearly attains each bound, where few do: ``witnesses.toml`` of the zoo.

    >>> witnesses([Claim("lem:a", ((0.25, "generated:general-0"),), {"HOLDS": 1})], [])
    ''
    """
    attained: dict[str, dict[str, float]] = defaultdict(dict)
    for claim in sorted(found, key=lambda claim: claim.label):
        if claim.witness is not None:
            tightness, problem = claim.witness
            attained[problem][claim.label] = float(f"{tightness:.4g}")
    made = (source for source in sources if source.name in attained)
    return "\n".join(_witness(source, attained[source.name]) for source in made)


def _witness(source: Source, attained: Mapping[str, float]) -> str:
    of_claims = ", ".join(f"{json.dumps(label)} = {tightness!r}" for label, tightness in attained.items())
    problem = source.problem()
    text = ("" if problem.name else 'name = "tight"\n') + problem.to_toml()
    return f"[[witness]]\nsource = \"{source.name}\"\nclaims = {{ {of_claims} }}\nproblem = '''\n{text}'''\n"


def draw(found: Sequence[Claim], done: Done) -> Figure:
    """A row for each statement, a dot for each problem; the tightest statement above."""
    shown = [claim for claim in found if claim.tightness and claim.best[0] > 0]
    figure = reporting.new_figure(11.0, 1.8 + 0.19 * len(shown))
    ax = figure.subplots()
    for k, claim in enumerate(shown):
        at = [max(value, SMALLEST_DRAWN) for value, _ in claim.tightness if value > 0]
        ax.plot(at, [k] * len(at), "o", color=COLOURS[0], markersize=3.5, alpha=min(1.0, 0.3 + 5 / len(at)))
        ax.plot(max(at), k, "D", color=COLOURS[1], markersize=4.5)
    ax.axvline(1.0, color="0.3", linewidth=1.0)
    ax.axvline(NEARLY, color="0.3", linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(shown)), [claim.label for claim in shown], fontsize=7)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.set_xscale("log")
    ax.set_xlabel("tightness: measured/bound; 1 is attained, the dotted line half of it")
    ax.set_title(f"Every claim on {len(done.rows)} generated problems; the tightest of each is a diamond", fontsize=11)
    ax.grid(axis="y", color="0.92", linewidth=0.6)
    ax.set_axisbelow(True)
    reporting.add_footer(figure, _provenance(done).lines(150))
    return figure


def _provenance(done: Done) -> reporting.Provenance:
    return done.provenance(
        ("all claims, corrected formulas",), ("problems of the test kit's strategies", "effort quick", "seed 0")
    )  # fmt: skip


def report(out: Path, *, progress: bool = False, large: bool = False, plan: Campaign | None = None) -> Iterator[str]:
    """Run, draw and write tightness.png, .csv and .json, and witnesses.toml; yields what is to be told."""
    plan = plan or Campaign.load(plan_path("tightness", large))
    done = carry_out("tightness", out, large=large, progress=progress, plan=plan)
    found = claims(done.rows)
    told = _findings(done, found)
    yield from told
    header = ("label", "problem", "tightness", "rank")
    rows = (
        (claim.label, problem, value, rank)
        for claim in found
        for rank, (value, problem) in enumerate(claim.tightness, 1)
    )
    verdicts = {claim.label: claim.verdicts for claim in found}
    yield from reporting.publish(
        out, {"tightness": draw(found, done)}, header, rows, settings=done.settings, provenance=_provenance(done),
        findings=told, verdicts=verdicts,
    )  # fmt: skip
    yield from reporting.place(out, {"witnesses.toml": witnesses(found, plan.sources)})
