"""Rows as JSON, merged from several environments, and as Markdown: both settings of a call side by side."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.field.entry import Row, Setting

__all__ = ["merged", "overview", "read", "table", "text"]

ORDER = ("HOLDS", "INCONCLUSIVE", "VIOLATED", "raises")  # from the best to the worst
SIGNS = {"HOLDS": "✓", "INCONCLUSIVE": "?", "VIOLATED": "✗"}


def text(rows: Iterable[Row]) -> str:
    """As JSON, one row a line."""
    lines = ",\n".join(json.dumps(asdict(row), ensure_ascii=False) for row in rows)
    return f"[\n{lines}\n]\n"


def read(path: Path) -> list[Row]:
    """What ``text`` made."""
    return [Row(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))]


def merged(parts: Iterable[Iterable[Row]]) -> list[Row]:
    """Rows of several runs; of two about the same thing the later one counts."""
    found = {(*row.who, row.setting, row.problem): row for part in parts for row in part}
    return sorted(found.values(), key=lambda row: (row.library, row.version, row.call, row.kind))


def overview(rows: Sequence[Row]) -> str:
    """A line for each call: in each setting the worst verdict, its digits and its cause.

    Digits are of the worst problem of those that are not right; of a call that holds on all, of the worst of them.
    """
    lines = [
        "| library | version | call | asked for | defaults | verdict | tight | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for who, group in _grouped(rows).items():
        cells = [*who]
        for setting in ("defaults", "tight"):
            mine = [row for row in group if row.setting == setting]
            cells += [mine[0].options, _worst(mine)] if mine else ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table(rows: Sequence[Row], setting: Setting) -> str:
    """A column for each problem: a sign, the right digits and the cause."""
    problems = list(dict.fromkeys(row.problem for row in rows))
    lines = [
        f"| library | call | {' | '.join(problems)} |",
        f"| --- | --- |{' --- |' * len(problems)}",
    ]
    for (library, version, call, kind), group in _grouped(rows).items():
        at = {row.problem: _cell(row) for row in group if row.setting == setting}
        if at:
            what = "y* of " if kind == "lower solution" else ""
            cells = (f"{library} {version}", f"{what}{call}", *(at.get(problem, "") for problem in problems))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _grouped(rows: Sequence[Row]) -> dict[tuple[str, str, str, str], list[Row]]:
    found: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        found.setdefault(row.who, []).append(row)
    return found


def _worst(rows: Sequence[Row]) -> str:
    """The verdict on all problems together, in a few words."""
    held = sum(row.verdict == "HOLDS" for row in rows)
    if held == len(rows):
        return f"HOLDS on all {len(rows)}, {_digits(min(rows, key=_exactness))}"
    others = [row for row in rows if row.verdict != "HOLDS"]
    verdict = max((row.verdict for row in others), key=ORDER.index)
    least = min((row for row in others if row.verdict == verdict), key=_exactness)
    causes = ", ".join(dict.fromkeys(row.cause for row in others if row.cause))
    return f"{verdict}; HOLDS on {held} of {len(rows)}; {_digits(least)} on “{least.problem}”; {causes or 'undecided'}"


def _exactness(row: Row) -> float:
    return -1.0 if row.digits is None else row.digits


def _digits(row: Row) -> str:
    return "no digits" if row.digits is None else f"{row.digits:.1f} digits"


def _cell(row: Row) -> str:
    if row.verdict == "raises":
        return f"raises {row.cause}"
    digits = "" if row.digits is None else f" {row.digits:.1f}"
    return f"{SIGNS[row.verdict]}{digits}{' ' + row.cause if row.cause else ''}"
