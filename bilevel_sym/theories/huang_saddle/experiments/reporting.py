"""What every experiment writes, and how: CSV for numbers, JSON for parameters, PNG for people."""

from __future__ import annotations

import json
import math
import platform
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

from bilevel_sym.estimators.status import Status
from bilevel_sym.plotting.style import png
from bilevel_sym.solvers.solution import Solution
from bilevel_sym.system.writing import Content, csv_lines, write_together
from bilevel_sym.typing import Figure

__all__ = ["Provenance", "add_footer", "new_figure", "place", "publish", "record", "uninterrupted"]

DPI = 150
FOOTER_LINE_INCHES = 0.165  # inches that a line of the footer takes
FOOTER_LETTERS_PER_INCH = 15  # letters of the footer in an inch, at least


@dataclass(frozen=True)
class Provenance:
    """Which settings of an experiment come from the paper, which were chosen here, and which its text does not give
    but lets one infer."""

    as_in_the_paper: tuple[str, ...]
    chosen_here: tuple[str, ...]
    inferred: tuple[str, ...] = ()

    def lines(self, width: int = 190) -> tuple[str, ...]:
        """For a footer: each group under its name, broken into lines.

        >>> Provenance((), ("20 seeds", "eps = 1")).lines()
        ('Chosen here: 20 seeds; eps = 1.',)
        """
        groups = (
            ("As in the paper", self.as_in_the_paper), ("Inferred", self.inferred), ("Chosen here", self.chosen_here)
        )  # fmt: skip
        return tuple(line for name, parts in groups if parts for line in _broken(f"{name}: ", parts, width))


def _broken(name: str, parts: Sequence[str], width: int) -> list[str]:
    lines = [name]
    for i, part in enumerate(parts):
        text = part + (";" if i + 1 < len(parts) else ".")
        if len(lines[-1]) + len(text) > width:
            lines.append("    ")
        lines[-1] += (" " if i and not lines[-1].endswith(" ") else "") + text
    return lines


def _versions() -> dict[str, str]:
    """Of everything that the numbers or the picture depend on."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("bilevel-sym", "numpy", "sympy", "numba", "matplotlib"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def record(name: str, settings: Any, provenance: Provenance, findings: Sequence[str], **more: object) -> dict[str, Any]:
    """What the JSON file of an experiment holds.

    >>> sorted(record("figure9", Provenance((), ()), Provenance((), ()), []))[:3]
    ['as_in_the_paper', 'chosen_here', 'findings']
    """
    return {
        "schema": f"bilevel-sym/{name}/1",
        "parameters": asdict(settings),
        **asdict(provenance),
        "findings": list(findings),
        "versions": _versions(),
        **more,
    }


def uninterrupted(solution: Solution) -> Solution:
    """The solution; Ctrl-C, which ``solve`` answers with what it has, ends an experiment, for a part shows nothing.

    >>> from bilevel_sym import Descent, Exact, solve, zoo
    >>> uninterrupted(solve(zoo.get("scalar").problem, Descent(Exact(), 0.1), [0.0], steps=1)).ok
    True
    """
    if Status.INTERRUPTED in solution.statuses:
        raise KeyboardInterrupt
    return solution


def publish(
    out: Path, pictures: Mapping[str, Figure], header: Sequence[str], rows: Iterable[Sequence[object]], **content: Any
) -> Iterator[str]:
    """Put the pictures and numbers of an experiment into a folder, all of them or none, and tell their names.

    - ``out``: the folder.
    - ``pictures``: by the stems of their names; the first is the experiment's.
    - ``header``, ``rows``: of the CSV file.
    - ``content``: what ``record`` makes the JSON file of.
    """
    name = next(iter(pictures))
    files: dict[str, Content] = {f"{stem}.png": png(figure, dpi=DPI) for stem, figure in pictures.items()}
    files |= {f"{name}.csv": _csv(header, rows), f"{name}.json": _json(record(name, **content))}
    return place(out, files)


def place(out: Path, files: Mapping[str, Content]) -> Iterator[str]:
    """Write files into a folder, all of them or none, and tell their names."""
    write_together({out / name: content for name, content in files.items()})
    yield from (f"wrote {out / name}" for name in files)


def _json(content: dict[str, Any]) -> str:
    """Strict JSON: what is not finite becomes null."""
    return json.dumps(_finite(content), indent=2, ensure_ascii=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """One line of names, then the rows; floats to ten digits."""
    shown = ([f"{v:.10g}" if isinstance(v, float) else v for v in row] for row in rows)
    return "".join(csv_lines(chain([header], shown)))


# ---- drawing ----------------------------------------------------------------------------------------------


def new_figure(width: float, height: float) -> Figure:
    """A figure that no global state knows of, so that a program's own figures are left alone."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def add_footer(figure: Figure, lines: Sequence[str]) -> None:
    """Small text below everything else, in room of its own."""
    width, height = figure.get_size_inches()
    # no layout engine breaks lines: what is too long would be cut off at the edge
    across = int(FOOTER_LETTERS_PER_INCH * width)
    lines = [part for line in lines for part in textwrap.wrap(line, across, subsequent_indent="    ")]
    room = (FOOTER_LINE_INCHES * len(lines) + 0.1) / height
    figure.set_layout_engine("constrained", rect=(0, room, 1, 1 - room))
    figure.text(0.01, 0.06 / height, "\n".join(lines), fontsize=8, color="0.25", va="bottom", linespacing=1.35)
