"""The shipped formulas are those of the theory, corrected where the print is wrong: each against a second writing.

The bounds that claims test are made of these formulas. A bound that is too large by a mistake would hold all the more.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from bilevel_sym import Constants, MinimaxConstants
from bilevel_sym.errors import BilevelError
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness
from verify import CheckResult, Study, claim
from verify.papers.huang_saddle.measures.agreement import agreed
from verify.papers.huang_saddle.measures.second_writing import transcripts
from verify.papers.huang_saddle.measures.second_writing.run_transcripts import of_runs
from verify.papers.huang_saddle.measures.second_writing.schedule_transcripts import of_bounds, of_schedules

REGION = "all constants"

CASES = (
    Constants(1.0, 2.0, 1.0, 1.0, 1.0, sigma=1.0),
    Constants(0.5, 3.0, 2.0, 5.0, 0.25, sigma=0.75),
    Constants(2.0, 2.0, 0.5, 0.25, 3.0, sigma=0.5),
    Constants(0.75, 12.0, 0.25, 0.125, 2.0, sigma=1.5),
)
QUADRATIC = Constants(1.5, 4.0, 0.0, 0.0, 0.5, sigma=1.0)  # third derivatives that vanish need no samples
SCALES = (Smoothness(8.0, 64.0), Smoothness(27.0, 297.0), Smoothness(2.5, 0.5))
GOALS = tuple(
    Goal(eps=eps, delta=delta, d=d, initial_error=1.5, gap=2.0, episodes=1)
    for eps, delta, d in ((0.1, 0.1, 2), (1.0, 0.01, 5))
)
MINIMAX = MappingProxyType({c: MinimaxConstants(c.mu, c.ell, c.rho, M_x=c.M) for c in CASES})


@claim("own:formulas")
def formulas(study: Study) -> Iterator[CheckResult]:
    """Constants, rates, schedules and batch sizes are what a second writing of their formulas gives.

    For some sets of constants, one with kappa = 1 and one of a quadratic problem, and the certified ones; in 50 digits
    """
    label = "own:formulas"
    own = _own(study)
    items = [item for c in (*CASES, *own) for item in transcripts.of_constants(c)]
    items += [item for c in MINIMAX.values() for item in transcripts.of_minimax(c)]
    yield agreed(label, study, items, what="constants", part="constants")
    items = [item for smooth in SCALES for goal in GOALS for item in transcripts.of_escapes(smooth, goal)]
    yield agreed(label, study, items, what="scales of escapes", part="escapes")
    items = [item for c in (*CASES, *own) for item in transcripts.of_inner_loops(c)]
    yield agreed(label, study, items, what="rates and inner steps", part="inner loops")
    items = [item for c in (*CASES, QUADRATIC) for item in transcripts.of_batches(c)]
    yield agreed(label, study, items, what="coefficients and batches", part="batches")
    items = [*of_runs(), *(item for c in CASES for item in of_bounds(c))]
    yield agreed(label, study, items, what="what claims compare with", part="bounds")
    items = [item for c in CASES for item in of_schedules(c, MINIMAX[c])]
    yield agreed(label, study, items, what="schedules", part="schedules")


def _own(study: Study) -> tuple[Constants, ...]:
    """The certified constants of the problem as floats, where they are of a size that formulas can be compared at."""
    try:
        valid = study.constants.valid
    except BilevelError:
        return ()
    values: dict[str, Any] = {name: float(getattr(valid, name)) for name in ("mu", "ell", "rho", "nu", "M")}
    if not all(0 <= value < 1e6 for value in values.values()) or values["ell"] > 1e4 * values["mu"] or not values["M"]:
        return ()
    return (Constants(**values),)
