"""A second set of 200 planted defects, written before the code that names them was read: ``python -m benchmarks.planted``.

Prints three shares (caught; named rightly or "unexplained"; confidently wrong) and every miss. ``--every N`` takes each
N-th, ``--list`` prints the set. A defect that makes no difference on its problem is none: ``effective`` says so, in
plain NumPy from the problem's blocks, before the kit is asked.
"""  # noqa: E501

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.planted_gradients import GRADIENTS
from benchmarks.planted_others import HESSIANS, LOWER, SLIPS, slip
from benchmarks.planted_problems import plain
from benchmarks.planted_table import TABLE
from bilevel_sym import verify
from bilevel_sym.typing import Floats

__all__ = ["Outcome", "Planted", "effective", "judged", "main", "planted"]

CHECKS: dict[str, Callable[..., Any]] = {
    "gradient": verify.check_hypergradient, "lower": verify.check_lower_solution, "hessian": verify.check_hessian,
}  # fmt: skip
KINDS = {"gradient": GRADIENTS, "lower": LOWER, "hessian": HESSIANS}
VISIBLE = 1e-9  # relative to the truth and to the condition of g_yy: well above 1e3 roundings
SIZE = 200


@dataclass(frozen=True)
class Planted:
    """One defect: what it computes, of which kind, its number, its problem, and what may be said of it."""

    what: str
    kind: str
    size: float
    problem: str
    causes: tuple[str, ...]
    words: tuple[str, ...] = ()

    def program(self) -> Callable[[Floats], Any]:
        """The candidate, new: it remembers nothing."""
        if self.kind.startswith("slip: "):
            return slip(self.problem, self.kind.removeprefix("slip: "), self.what)
        return KINDS[self.what][self.kind][0](plain(self.problem), self.size)

    def __str__(self) -> str:
        return f"{self.what}: {self.kind}, s = {self.size:g}, {self.problem}"


@dataclass(frozen=True)
class Outcome:
    """What the kit said."""

    planted: Planted
    verdict: str
    cause: str
    suspected: str

    @property
    def caught(self) -> bool:
        """Not passed, and not left open."""
        return self.verdict == "VIOLATED"

    @property
    def right(self) -> bool:
        """The word of the page, or what the text says."""
        said = self.suspected.lower()
        return self.cause in self.planted.causes or any(word in said for word in self.planted.words)

    @property
    def honest(self) -> bool:
        """Caught, and named rightly or not at all."""
        return self.caught and (self.right or self.cause == "unexplained")

    @property
    def confidently_wrong(self) -> bool:
        """A cause is named, and it is another."""
        return self.caught and not self.honest


def effective(defect: Planted) -> bool:
    """Is what it returns wrong, beyond rounding, at one of the points that are tried here?"""
    p = plain(defect.problem)
    program, right = defect.program(), {"gradient": p.gradient, "lower": p.y, "hessian": p.hessian}[defect.what]
    seen = False
    for x in p.points():
        truth, answer = right(x), np.asarray(program(x))
        if answer.shape != truth.shape or not np.isfinite(answer).all():
            return True
        condition = float(np.linalg.cond(p.k.g_yy(x, p.y(x))))
        scale = max(float(np.abs(truth).max()), 1e-3)
        seen |= bool(np.abs(answer - truth).max() > VISIBLE * condition * scale)
    return seen


def planted() -> list[Planted]:
    """The set, in its order: the kind with most lines gives up its last one until 200 are left."""
    lines = [
        Planted(what, kind, size, problem, *KINDS[what][kind][1:])
        for what, kind, sizes, problems in TABLE
        for size in sizes
        for problem in problems
    ]
    lines += [Planted("gradient", f"slip: {change}", 0, name, causes) for name, change, causes in SLIPS]
    while len(lines) > SIZE:
        count = Counter((line.what, line.kind) for line in lines)
        fullest = max(count, key=lambda each: count[each])
        last = max(k for k, line in enumerate(lines) if (line.what, line.kind) == fullest)
        del lines[last]
    return lines


def judged(defect: Planted) -> Outcome:
    """One question to the kit."""
    result = CHECKS[defect.what](defect.program(), plain(defect.problem).problem)
    suspected = str(getattr(result.diagnosis, "summary", "") or result.message)
    return Outcome(defect, str(result.verdict), str(result.cause), suspected)


def report(outcomes: Sequence[Outcome]) -> str:
    """The three shares, and every miss."""
    total = len(outcomes)
    shares = {
        "caught": sum(o.caught for o in outcomes),
        "named rightly or unexplained": sum(o.honest for o in outcomes),
        "of these unexplained": sum(o.honest and not o.right for o in outcomes),
        "confidently wrong": sum(o.confidently_wrong for o in outcomes),
    }
    lines = [f"{name}: {count} of {total} = {100 * count / total:.1f} %" for name, count in shares.items()]
    lines += [f"NOT CAUGHT  {o.planted}: {o.verdict}" for o in outcomes if not o.caught]
    lines += [
        f"WRONG  {o.planted}: {o.cause}, not {' or '.join(o.planted.causes)}: {_said(o)}"
        for o in outcomes
        if o.confidently_wrong
    ]
    lines += [f"unexplained  {o.planted} ({', '.join(o.planted.causes)})" for o in outcomes if o.honest and not o.right]
    return "\n".join(lines)


def _said(outcome: Outcome) -> str:
    """The line of the message that names the suspicion."""
    for line in outcome.suspected.splitlines():
        if line.strip().startswith("suspected"):
            return line.strip().removeprefix("suspected").strip()
    return outcome.suspected.splitlines()[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask the kit about each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="each N-th alone")
    parser.add_argument("--list", action="store_true", help="the set, and which lines of it have no effect")
    options = parser.parse_args(arguments)
    defects = planted()
    if options.list:
        for defect in defects:
            print("" if effective(defect) else "NO EFFECT", defect)
        return 0
    outcomes = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for defect in defects[:: options.every]:
            outcomes.append(judged(defect))
            if sys.stderr.isatty():
                print(f"\r{len(outcomes)}", end="", file=sys.stderr)
    print(report(outcomes))
    return int(any(o.confidently_wrong for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
