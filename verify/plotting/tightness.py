"""How near each claim of a report comes to its bound."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting import COLOURS, axes_or_new, legend_below
from bilevel_sym.plotting.style import ink
from bilevel_sym.system.plain_text import as_title
from bilevel_sym.typing import Axes
from verify.reporting import Report
from verify.theory import cite
from verify.verdict import CheckResult, Verdict

__all__ = ["plot_tightness"]

MARKS: Mapping[Verdict, tuple[str, str]] = MappingProxyType(
    {Verdict.HOLDS: ("o", COLOURS[0]), Verdict.VIOLATED: ("X", COLOURS[1]), Verdict.INCONCLUSIVE: ("s", "0.45")}
)
# evidence by how much of a marker is filled; without any it is empty, as of what is only sampled
FILLS: Mapping[str, str] = MappingProxyType(
    {"proved": "full", "certified": "right", "statistical": "bottom", "sampled": "none"}
)
WIDTH, HEAD, ROW, MEMBER = 7.0, 1.6, 0.2, 0.06  # inches: across, all but rows, a row, each further report in it
MOST_ROWS = 40  # beyond which the parts of a statement share its row
LETTER_POINTS = (6.0, 9.0)  # the sizes of letters, in points, between which the names of the rows are
TITLE_LETTERS = 70  # of a title
NAMED_REPORTS = 5  # so many reports are named


@dataclass(frozen=True)
class _Row:
    """A statement, or a part of one, and what each report found: (which report, result)."""

    name: str
    members: list[tuple[int, CheckResult]]


@dataclass(frozen=True)
class _Scale:
    """Decades from ``low`` to ``high``, and beside them a strip for what no log scale shows, where there is such."""

    low: int
    high: int
    none: bool
    endless: bool

    def place(self, tightness: float | None) -> float:
        if tightness is None or not tightness > 0:
            return float(10.0 ** (self.low - 0.5))
        return min(tightness, float(10.0 ** (self.high + 0.5)))

    @property
    def ends(self) -> tuple[float, float]:
        return 10.0 ** (self.low - self.none), 10.0 ** (self.high + self.endless)


def plot_tightness(*reports: Report, ax: Axes | None = None) -> Axes:
    """measured/bound of every claim that applies, on a log axis: 1 where a bound is attained, more if it is violated.

    A row is a statement or a part of one, or where these are too many to be read a statement with all of its parts;
    colour and shape tell the verdict, filling the evidence. What has no number, or measured zero, stands in a strip on
    the left, and what exceeds a bound of zero in one on the right. Several reports share the rows, one under the other
    in their order. Returns the axes; new ones are as high as need be, and on axes given that are too low for all names,
    only every second or third row is named.

    >>> from verify.verdict import judged
    >>> result = judged("lem:descent", 0.5, 2.0, evidence="certified", message="one step")
    >>> from matplotlib.figure import Figure
    >>> ax = plot_tightness(Report("toy", None, "corrected", 0, 0.1, (result,)), ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['Lemma 2.8 [lem:descent]']
    """
    rows = _rows(reports)
    ax = axes_or_new(ax, (WIDTH, HEAD + len(rows) * (ROW + MEMBER * (len(reports) - 1))))
    scale = _scale([result for row in rows for _, result in row.members])
    _frame(ax, [row.name for row in rows], scale)
    for y, row in enumerate(rows):
        for k, result in row.members:
            shift = (k + 0.5) / len(reports) - 0.5
            ax.plot([scale.place(result.tightness)], [y + 0.8 * shift], **_mark(result))
    ax.set_title(textwrap.fill(_title(reports), TITLE_LETTERS), fontsize="medium", loc="right")
    handles = _legend(ax, [result for row in rows for _, result in row.members])
    legend_below(ax, handles, lines=2 if scale.none or scale.endless else 1, right=True)
    return ax


def _rows(reports: Sequence[Report]) -> list[_Row]:
    if not reports or not all(isinstance(report, Report) for report in reports):
        raise InvalidArgument("plot_tightness draws reports", hint="plot_tightness(verify.run(problem), ax=ax)")
    found = [
        (k, result)
        for k, report in enumerate(reports)
        for result in report.results
        if result.verdict is not Verdict.NOT_APPLICABLE and result.evidence != "by definition"
    ]
    if not found:
        raise InvalidArgument("no claim applies, so there is nothing to draw", hint="verify.run(problem)")
    by_part = _grouped(found, lambda result: f"{cite(result.label)} {result.part}".strip())
    return by_part if len(by_part) <= MOST_ROWS else _grouped(found, lambda result: cite(result.label))


def _grouped(found: Sequence[tuple[int, CheckResult]], name_of: Callable[[CheckResult], str]) -> list[_Row]:
    rows: dict[str, _Row] = {}
    for k, result in found:
        name = name_of(result)
        rows.setdefault(name, _Row(name, [])).members.append((k, result))
    return list(rows.values())


def _scale(results: Sequence[CheckResult]) -> _Scale:
    found = [result.tightness for result in results]
    logs = [math.log10(value) for value in found if value is not None and 0 < value < math.inf]
    none = any(value is None or not value > 0 for value in found)
    return _Scale(math.floor(min([*logs, -1.0])), math.ceil(max([*logs, 0.0]) + 0.1), none, math.inf in found)


def _mark(result: CheckResult) -> dict[str, Any]:
    marker, colour = MARKS[result.verdict]
    fill = FILLS.get(result.evidence or "", "none")
    size = 7 if result.verdict is Verdict.VIOLATED else 5
    how = {"marker": marker, "markersize": size, "color": colour, "fillstyle": fill}
    return how | {"markerfacecoloralt": "white", "linestyle": "none", "zorder": 3}


def _frame(ax: Axes, names: list[str], scale: _Scale) -> None:
    ax.set(xscale="log", xlim=scale.ends, ylim=(len(names) - 0.5, -0.5), xlabel="tightness = measured / bound")
    step = -(-(scale.high - scale.low) // 7)
    decades = range(-(step * (-scale.low // step)), scale.high + 1, step)
    edges = [scale.low] * scale.none + [scale.high] * scale.endless  # the name of a strip needs their place
    ticks = {10.0**k: f"$10^{{{k}}}$" if k else "1" for k in decades if k not in edges or not k}
    strips = [(scale.low - 1, scale.low, "0 or no\nnumber")] * scale.none
    strips += [(scale.high, scale.high + 1, "bound\nis 0")] * scale.endless
    for left, right, words in strips:
        ax.axvspan(10.0**left, 10.0**right, color="0.92", zorder=0)
        ticks[10.0 ** (left + 0.5)] = words
    mark_one(ax, ticks)
    figure = ax.get_figure()
    assert figure is not None
    height = ax.get_window_extent().height * 72 / figure.dpi / len(names)
    step = math.ceil(LETTER_POINTS[0] / (0.9 * height))
    ax.set_yticks(range(0, len(names), step), names[::step], fontsize=min(0.8 * height * step, LETTER_POINTS[1]))


def mark_one(ax: Axes, ticks: Mapping[float, str]) -> None:
    """The ticks of a scale of ratios, a grid, and a line at 1."""
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.minorticks_off()
    ax.axvline(1.0, color=ink(ax), linewidth=0.8, zorder=1)
    ax.grid(axis="both", color="0.9", linewidth=0.5)
    ax.set_axisbelow(True)


def _legend(ax: Axes, results: Sequence[CheckResult]) -> list[Any]:
    """The verdicts and the kinds of evidence that are there."""
    from matplotlib.lines import Line2D

    verdicts, evidence = {result.verdict for result in results}, {result.evidence for result in results}
    styles: list[dict[str, Any]] = [
        {"marker": marker, "color": colour, "label": str(verdict)}
        for verdict, (marker, colour) in MARKS.items()
        if verdict in verdicts
    ]
    styles += [
        {"marker": "o", "color": ink(ax), "fillstyle": fill, "markerfacecoloralt": ax.get_facecolor(), "label": kind}
        for kind, fill in FILLS.items()
        if kind in evidence
    ]
    return [Line2D([], [], linestyle="none", **style) for style in styles]


def _title(reports: Sequence[Report]) -> str:
    names = [f"{as_title(report.problem)} ({report.variant})" for report in reports]
    if len(names) == 1:
        return names[0]
    order = ", ".join(names) if len(names) <= NAMED_REPORTS else f"{len(names)} reports in their order"
    return f"in each row, from the top: {order}"
