"""Report: the results of a run, and the only module that formats them."""

from __future__ import annotations

import json
import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from bilevel_sym.system.budget import EFFORTS
from bilevel_sym.system.plain_text import as_html, as_markdown
from bilevel_sym.theories import Variant
from bilevel_sym.typing import Axes
from verify.theory import cite, title
from verify.verdict import CheckResult, Verdict

__all__ = ["Report"]

HEADS = ("statement", "verdict", "measured", "bound", "tightness", "evidence", "remark")
SCHEMA = "bilevel-sym/report/2"
REMARK_COLUMNS = 30  # columns that a remark wants beside the numbers


@dataclass(frozen=True, repr=False)
class Report:
    """What was found about one problem: it prints as a table, and its results are counted, numbered and looked through.

    - ``problem``: its name.
    - ``box``: over which it was judged, both ends for each variable; None is all of space.
    - ``variant``: the form of the formulas.
    - ``seed``: of all random numbers.
    - ``seconds``: how long it took.
    - ``results``: one or several for each claim.
    - ``interrupted``: whether it was interrupted from the keyboard.
    - ``effort``: a multiple of the default.

    >>> from verify.verdict import judged
    >>> result = judged("lem:descent", 0.5, 2.0, evidence="certified", message="one step")
    >>> report = Report("toy", {"x": (0, 1)}, "corrected", 0, 0.1, (result,))
    >>> report.ok, len(report), [str(each.verdict) for each in report]
    (True, 1, ['HOLDS'])
    >>> print(report)
    toy over {'x': (0, 1)}
    corrected formulas, seed 0, effort default, 0.1 s
    <BLANKLINE>
        verdict  measured  bound  tightness  evidence   remark
    Lemma 2.8 [lem:descent]: inexact descent lemma
        HOLDS    0.5       2      0.25       certified  one step
    <BLANKLINE>
    1 statements: 1 HOLDS
    """

    problem: str
    box: Mapping[str, tuple[sp.Rational, sp.Rational]] | None
    variant: Variant
    seed: int
    seconds: float
    results: tuple[CheckResult, ...]
    interrupted: bool = False
    effort: float = 1.0

    @property
    def ok(self) -> bool:
        """Whether nothing is violated."""
        return not any(result.verdict is Verdict.VIOLATED for result in self.results)

    def __iter__(self) -> Iterator[CheckResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<Report on {self.problem}: {self._summary()}>"

    def __getitem__(self, label: str | int) -> CheckResult:
        """The first result under a label, or the one with that number."""
        if isinstance(label, int):
            return self.results[label]
        for result in self.results:
            if result.label == label:
                return result
        raise KeyError(f"the report has nothing on {label}")

    def to_text(self, *, width: int = 120) -> str:
        """A table for people: a line for each statement, one for each of its parts, and long remarks wrapped."""
        rows = [(result.part, *_row(result)[1:]) for result in self._applicable]
        heads = ("", *HEADS[1:])
        widths = [max(len(row[k]) for row in (heads, *rows)) for k in range(len(HEADS) - 1)]
        heading = _folded(f"{self.problem} over {self._where}", width)
        lines = [*heading, self._circumstances(), "", *_wrapped(heads, widths, width)]
        label = ""
        for result, row in zip(self._applicable, rows, strict=True):
            if result.label != label:
                label = result.label
                said = title(label)  # a user's own statement has none
                lines += _folded(f"{cite(label)}: {said}" if said else cite(label), width)
            lines += _wrapped(row, widths, width)
        silent = [line for reason in self._silent() for line in _folded(reason, width)]
        return "\n".join([*lines, "", self._summary(), *silent])

    def to_markdown(self) -> str:
        """The same table in Markdown."""
        rows = [HEADS, ("---",) * len(HEADS), *map(_markdown_row, self._applicable)]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        title, box, *others = map(as_markdown, (self.problem, self._where, *self._silent()))
        end = "\n".join(others)
        return f"## {title}\n\n{box}; {self._circumstances()}\n\n{table}\n\n{self._summary()}\n\n{end}\n"

    def to_dict(self) -> dict[str, Any]:
        """Everything, for programs; the schema is stable."""
        return {
            "schema": SCHEMA,
            "problem": self.problem,
            "box": None if self.box is None else {name: [*map(str, ends)] for name, ends in self.box.items()},
            "variant": self.variant,
            "seed": self.seed,
            "effort": self.effort,
            "seconds": round(self.seconds, 3),
            "ok": self.ok,
            "interrupted": self.interrupted,
            "results": [_record(result) for result in self.results],
        }

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def plot(self, ax: Axes | None = None) -> Axes:
        """measured/bound of every claim that applies, as a chart; returns its axes. Wants the extra ``plot``."""
        from verify.plotting import plot_tightness

        return plot_tightness(self, ax=ax)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in HEADS)
        body = "".join(
            "<tr>" + "".join(f"<td>{as_html(cell)}</td>" for cell in _row(result)) + "</tr>"
            for result in self._applicable
        )
        summary = as_html(self._summary())
        return f"<p>{as_html(self.problem)}: {summary}</p><table><tr>{head}</tr>{body}</table>"

    @property
    def _applicable(self) -> list[CheckResult]:
        return [result for result in self.results if result.verdict is not Verdict.NOT_APPLICABLE]

    @property
    def _where(self) -> str:
        return "all of space" if self.box is None else str(dict(self.box))

    def _circumstances(self) -> str:
        stopped = ", interrupted" if self.interrupted else ""
        names = {scale: name for name, scale in EFFORTS.items()}
        effort = names.get(self.effort, f"{self.effort:g} times the default")
        return f"{self.variant} formulas, seed {self.seed}, effort {effort}, {self.seconds:.1f} s{stopped}"

    def _summary(self) -> str:
        """How many there are of each verdict; what holds by definition is counted apart, as nothing was tested."""
        apart = "by definition"
        counts = Counter(apart if r.evidence == apart else str(r.verdict) for r in self.results)
        kinds = (*(str(verdict) for verdict in Verdict), apart)
        return f"{len(self.results)} statements: " + ", ".join(f"{counts[k]} {k}" for k in kinds if counts[k])

    def _silent(self) -> list[str]:
        """The statements that do not apply, by their reason."""
        reasons: dict[str, list[str]] = {}
        for result in self.results:
            if result.verdict is Verdict.NOT_APPLICABLE:
                reasons.setdefault(result.message, []).append(f"{result.label} {result.part}".strip())
        return [f"not applicable ({reason}): {', '.join(labels)}" for reason, labels in reasons.items()]


def _markdown_row(result: CheckResult) -> tuple[str, ...]:
    """The brackets around a label are ours, and stay as they are."""
    label = as_markdown(result.label)
    statement, *others = _row(result)
    return statement.replace(result.label, label), *map(as_markdown, others)


def _row(result: CheckResult) -> Sequence[str]:
    return (
        f"{cite(result.label)} {result.part}".strip(),
        str(result.verdict),
        _number(result.measured),
        _number(result.bound),
        _number(result.tightness, 3),
        result.evidence or "",
        _remark(result),
    )


def _remark(result: CheckResult) -> str:
    """The message in one line, and the region, unless the message has it already."""
    said = "; ".join(line.strip() for line in result.message.splitlines())
    return said if not result.region or result.region in said else f"{said} [{result.region}]"


def _wrapped(row: Sequence[str], widths: Sequence[int], width: int) -> list[str]:
    """A row of the text table; a remark that does not fit goes on below, all of it where there is no room beside."""
    start = "  ".join(["", *(cell.ljust(size) for cell, size in zip(row, widths, strict=False))])
    room = width - len(start) - 2
    if room < REMARK_COLUMNS:
        return [start.rstrip(), *textwrap.wrap(row[-1], width, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    remark = textwrap.wrap(row[-1], room) or [""]
    return [f"{start}  {remark[0]}".rstrip(), *(" " * (len(start) + 2) + more for more in remark[1:])]


def _folded(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _number(value: float | None, digits: int = 5) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def _record(result: CheckResult) -> dict[str, Any]:
    names = ("label", "part", "variant", "region", "message", "evidence", "n_points", "seed")
    numbers = ("measured", "bound", "tightness", "margin", "noise", "confidence")
    point = None if result.worst_point is None else {k: _finite(v) for k, v in result.worst_point.items()}
    return (
        {name: getattr(result, name) for name in names}
        | {"verdict": str(result.verdict), "citation": cite(result.label), "worst_point": point}
        | {name: _finite(getattr(result, name)) for name in numbers}
    )


def _finite(value: float | None) -> float | str | None:
    """JSON has no infinities: they are written as text."""
    return value if value is None or math.isfinite(value) else str(value)
