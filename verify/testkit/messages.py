"""What is said of a candidate, in the reader's language: point, value, truth, what is suspected, where to look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel_sym.system.budget import Deadline
from verify.testkit.diagnosis import Diagnosis
from verify.testkit.sweep import WORST_POINTS, Convergence
from verify.testkit.taylor import TaylorTest

if TYPE_CHECKING:
    from verify.testkit.examination import Examination
    from verify.testkit.reference import Asked

__all__ = [
    "SHOWN", "cut", "cut_after", "not_accurate", "rarely", "right", "too_ill_conditioned", "wrong", "wrong_kind",
]  # fmt: skip

SHOWN = 6  # entries of a vector, or rows of a matrix, that are printed
DIGITS = 16


def right(asked: Asked) -> str:
    """It is right."""
    k = asked.worst
    return (
        f"the {asked.subject.noun} is right{_with(asked)}: {asked.digits(k):.1f} correct digits at the worst of"
        f" {_of(asked)} certified points{_screened(asked)}, error {asked.errors[k]:.1e}, of which rounding explains"
        f" {asked.floor[k]:.1e}{_skipped(asked)}"
    )


def not_accurate(asked: Asked, found: Convergence) -> str:
    """Its error shrinks, and more steps than the effort holds are needed to see where it ends."""
    seen = max(len(asked.at), min(WORST_POINTS, asked.named))
    some = f"; looked at {seen} of {asked.named} points" if seen < asked.named else ""
    return f"the {asked.subject.noun} is not accurate yet: {found}{some}"


def cut(examination: Examination) -> str:
    """Time was up before the work was done."""
    asked, deadline = examination.asked, examination.candidate.budget.deadline
    lines = [cut_after(deadline, examination.missing)]
    if asked is not None:
        k = asked.worst
        lines.append(f"  so far      asked{_with(asked)} at {_of(asked)} points, the worst of them {_point(asked, k)}")
        lines.append(f"  error       {asked.errors[k]:.2e}, of which rounding explains {asked.floor[k]:.1e}")
    return "\n".join(lines)


def cut_after(deadline: Deadline, left_out: str) -> str:
    """What is said first where time was up."""
    return f"cut by time ({deadline.seconds:g} s), so that nothing is decided; left out: {left_out}"


def too_ill_conditioned(examination: Examination) -> str:
    """Float64 is no test."""
    return (
        f"the problem is so ill-conditioned (kappa up to {examination.at.kappa.max():.1e}) that float64 cannot tell a"
        f" right {examination.subject.noun} from a wrong one at these points"
    )


def wrong_kind(examination: Examination, reason: str) -> str:
    """It is not an array of that shape."""
    return f"the {examination.subject.noun} cannot be compared: {reason}"


def wrong(asked: Asked, diagnosis: Diagnosis | None, slope: TaylorTest | None) -> str:
    """What is wrong, and where to look."""
    k = asked.worst
    truth = np.array(getattr(asked.at.certificates[k], asked.subject.quantity), dtype=object)
    some = "" if len(asked.at) == asked.named else f" (asked at {_of(asked)}: each call is many steps)"
    lines = [
        f"the {asked.subject.noun} is wrong{_with(asked)} at {asked.off} of {len(asked.at)} points{some};"
        f" {asked.digits(k):.1f} correct digits at the worst of them{_skipped(asked)}",
        f"  at          {_point(asked, k)}",
        *_block("  returned   ", asked.values[k], lambda value: f"{value:.{DIGITS}g}"),
        *_block("  truth      ", truth, lambda ball: f"{ball:.{DIGITS}}"),
        f"  error       {asked.errors[k]:.2e}, of which rounding explains {asked.floor[k]:.1e}",
    ]
    if diagnosis is not None:
        lines.append(f"  suspected   {diagnosis}")
        lines += [f"  or          {other}" for other in diagnosis.also]
        lines.append(f"  look at     {diagnosis.look_at}")
    if slope is not None:
        lines += [f"  {'Taylor' if i == 0 else '':<10}  {line}" for i, line in enumerate(str(slope).splitlines())]
    return "\n".join(lines)


def rarely(asked: Asked, also: tuple[str, ...]) -> Diagnosis:
    """It fails at a few points only."""
    return Diagnosis(
        "tolerance",
        "it is right at most points and wrong at few"
        f" (at {asked.off} of the {len(asked.at)} worst of {asked.screened}):"
        " a solver inside fails or stops too early there",
        "the solver's return code and tolerance at the point above; a dense solve in its place",
        also=also,
    )


def _of(asked: Asked) -> str:
    """How many points were asked, and of how many, where it is not all of them."""
    return str(len(asked.at)) if len(asked.at) == asked.named else f"{len(asked.at)} of {asked.named}"


def _screened(asked: Asked) -> str:
    return f" (the worst of {asked.screened} others among them)" if asked.screened else ""


def _with(asked: Asked) -> str:
    return "".join(
        f"{' with ' if i == 0 else ', '}{name} = {value:g}" for i, (name, value) in enumerate(asked.settings.items())
    )


def _skipped(asked: Asked) -> str:
    skipped = asked.at.skipped
    return f"; {len(skipped)} more have no certificate ({skipped[0]:.60})" if skipped else ""


def _point(asked: Asked, k: int) -> str:
    pairs = zip(asked.at.problem.x_entries, asked.at.x[k], strict=True)
    shown = [f"{s.name} = {float(value)!r}" for s, value in list(pairs)[:SHOWN]]
    return ", ".join(shown) + (", ..." if len(asked.at.problem.x_entries) > SHOWN else "")


def _block(head: str, array: Any, text: Any) -> list[str]:
    """A vector on one line, a matrix on one line a row."""
    rows = [array] if array.ndim == 1 else list(array)
    more = [" ..."] if len(rows) > SHOWN else []
    lines = [
        "[" + ", ".join(text(a) for a in row[:SHOWN]) + (", ..." if len(row) > SHOWN else "") + "]"
        for row in rows[:SHOWN]
    ]
    return [f"{head if i == 0 else ' ' * len(head)} {line}" for i, line in enumerate([*lines, *more])]
