"""Tables of what was measured, in markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.targets import targets_for

__all__ = ["TOLERANCE", "agreement_table", "disagreements", "growth_table", "ratios_table", "times_table"]

Result = dict[str, Any]

OURS = ("NumPy engine", "numba engine")
PEERS = ("JAX", "CasADi")
STATE = {"state": ("stating, not in set-up", "ms", 1e3)}
MEASURES = {
    "set_up": ("set-up", "ms", 1e3),
    "set_up_text": ("set-up from text", "ms", 1e3),
    "one": ("one point", "µs", 1e6),
    "batch": ("batch", "µs a point", 1e6),
}
TOLERANCE = 1e-10


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table whose columns line up in plain text too."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return "\n".join([lines[0], "| " + " | ".join("-" * w for w in widths) + " |", *lines[1:]])


def number(value: float | None, factor: float = 1.0) -> str:
    """Three digits; a dash for nothing."""
    if value is None:
        return "–"
    scaled = value * factor
    return f"{scaled:.0f}" if scaled >= 100 else f"{scaled:.3g}"


def times_table(results: Sequence[Result]) -> str:
    """The time of everybody for every case and measure, with the best chunk and style of a batch."""
    names = [name for name in (*OURS, *PEERS) if any(name in r["times"] for r in results)]
    rows = []
    for result in results:
        for measure, (title, unit, factor) in (STATE | MEASURES).items():
            row = [result["case"], f"{title}, {unit}"]
            for name in names:
                entry = result["times"].get(name)
                row.append(number(entry and entry[measure], factor) + (_how(entry, measure) if entry else ""))
            rows.append(row)
    return table(["case", "measure", *names], rows)


def _how(entry: dict[str, Any], measure: str) -> str:
    """How the time was reached: the style, where there is a choice, and the chunk."""
    style = entry["styles"][measure]
    words = [style] * (style != "only" and measure != "state") + [f"by {entry['chunk']}"] * (measure == "batch")
    return f" ({', '.join(words)})" if words else ""


def ratios_table(results: Sequence[Result]) -> str:
    """Our time over a peer's, and whether a target is reached."""
    rows, missed, reached = [], 0, 0
    for result in results:
        for engine in OURS:
            for measure, (title, _, _) in MEASURES.items():
                cells = [_ratio(result, engine, measure, peer) for peer in PEERS]
                reached += sum(cell.endswith("yes") for cell in cells)
                missed += sum(cell.endswith("NO") for cell in cells)
                if cells != ["–", "–"]:
                    rows.append([result["case"], engine, title, *cells])
    if not rows:
        return "No ratios: they need one of our engines and a peer."
    head = ["case", "engine", "measure", *(f"ours / {peer}" for peer in PEERS)]
    return f"{table(head, rows)}\n\nTargets reached: {reached} of {reached + missed}."


def _ratio(result: Result, engine: str, measure: str, peer: str) -> str:
    ours, theirs = result["times"].get(engine), result["times"].get(peer)
    if not ours or not theirs:
        return "–"
    ratio = ours[measure] / theirs[measure]
    target = targets_for(result["case"], engine, measure, peer)
    if target is None:
        return number(ratio)
    return f"{number(ratio)} (target {target.limit:g}): {'yes' if ratio <= target.limit else 'NO'}"


def agreement_table(results: Sequence[Result]) -> str:
    """How far everybody is from the last one in the row, relative to the largest entry at the same point."""
    names = [name for name in (*OURS, *PEERS) if any(name in r["times"] for r in results)]
    rows = []
    for r in results:
        found = [r["agreement"].get(name) for name in names]
        rows.append([r["case"], *("–" if gap is None else f"{gap:.1e}" for gap in found)])
    return table(["case", *names], rows)


def disagreements(results: Sequence[Result]) -> list[str]:
    """Who differs by more than the tolerance, and where; not-a-number counts as differing."""
    return [
        f"{name} differs on {result['case']}: relative {gap:.1e}, tolerance {TOLERANCE:.0e}"
        for result in results
        for name, gap in result["agreement"].items()
        if not gap <= TOLERANCE
    ]


def growth_table(results: Sequence[Result]) -> str:
    """Time, memory and size of the program against n."""
    head = ["case", "engine", "set-up, ms", "one point, µs", "batch, µs a point", "MB set-up", "MB with batch", "size"]
    rows = [
        [
            r["case"],
            r["engine"],
            number(r["set_up"], 1e3),
            number(r["one"], 1e6),
            number(r["batch"], 1e6),
            number(r["set_up_megabytes"]),
            number(r["batch_megabytes"]),
            "–" if r["size"] is None else str(r["size"]),
        ]
        for r in results
    ]
    return table(head, rows)
