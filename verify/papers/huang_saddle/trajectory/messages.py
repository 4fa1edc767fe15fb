"""What is said of a run: the verdict in words, the iterate, the numbers, the cause, and where to look."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bilevel_sym.typing import Floats
from verify.papers.huang_saddle.trajectory.record import Record
from verify.verdict import CheckResult, Evidence, Verdict

__all__ = ["place_of", "said", "vector"]

SHOWN_ENTRIES = 6  # entries of a vector that are written out


def vector(values: Sequence[float] | Floats, digits: int = 10) -> str:
    """Numbers in parentheses; of many the first.

    >>> vector([0.5, 1 / 3], 4)
    '(0.5, 0.3333)'
    """
    shown = [f"{float(value):.{digits}g}" for value in values[:SHOWN_ENTRIES]]
    return f"({', '.join(shown)}{', ...' if len(values) > SHOWN_ENTRIES else ''})"


def place_of(record: Record, s: int, k: int) -> str:
    """An iterate with its point by names.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.papers.huang_saddle.trajectory.record import record_of
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> place_of(record_of({"x": [[1.0], [0.5]]}, problem), 0, 1)
    'iterate k = 1, x = 0.5'
    """
    point = list(record.named(record.x[s, k]).items())[:SHOWN_ENTRIES]
    more = ", ..." if record.problem.d > SHOWN_ENTRIES else ""
    return f"{record.place(s, k)}, {', '.join(f'{name} = {value:.10g}' for name, value in point)}{more}"


def said(
    label: str,
    part: str,
    verdict: Verdict,
    lines: Sequence[str],
    *,
    record: Record | None = None,
    at: tuple[int, int] | None = None,
    measured: float | None = None,
    bound: float | None = None,
    n_points: int = 0,
    evidence: Evidence | None = "sampled",
) -> CheckResult:
    """A result whose message has a line for each thing that is said.

    - ``lines``: these things.
    - ``record``: the run, by which the point is named.
    - ``at``: the trajectory and the iterate.
    - ``label``, ``part``, ``verdict``, ``measured``, ``bound``, ``n_points``, ``evidence``: as for ``CheckResult``.

    >>> said("lem:descent", "", Verdict.HOLDS, ["all is well", "3 steps"]).message
    'all is well\\n  3 steps'
    """
    point = None
    if record is not None and at is not None:
        lines = [lines[0], place_of(record, *at), *lines[1:]]
        point = record.named(record.x[at]) if np.isfinite(record.x[at]).all() else None
    return CheckResult(
        label=label, part=part, verdict=verdict, message="\n  ".join(line for line in lines if line), measured=measured,
        bound=bound, n_points=n_points, evidence=evidence, worst_point=point,
    )  # fmt: skip
