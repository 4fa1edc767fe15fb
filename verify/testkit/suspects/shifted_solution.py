"""Hypotheses about y* with a few numbers that are the same at all points: y* + c, y*(x + h), a constant y."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import Floats
from verify.testkit.diagnosis import Suspect
from verify.testkit.suspects.many_parameters import Many, settled
from verify.testkit.suspects.solution import Solutions

__all__ = ["shifted_suspects"]

MOST_FREE = 8  # free numbers


def shifted_suspects(here: Solutions) -> Iterator[Suspect]:
    """What a candidate returns with a y that is y* of a shifted problem, or the same everywhere.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.diagnosis import Evidence
    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "exp(y) - sin(x)*y + y**2", "x", "y"), [[k / 4] for k in range(6)])
    >>> y = at.problem.kernels.y_star(at.x + 0.01)
    >>> [s.what for s in shifted_suspects(Solutions(at, Evidence(y, at.y, at.floor("y_star")), lambda y: y))]
    ['y is y* at another point, x + (0.01)']
    """
    at = here.at
    if at.problem.n <= MOST_FREE:
        zero, mean = np.zeros(at.problem.n), at.y.mean(axis=0)
        what, look = "y is the same at all points: {}", "the lower-level solver: does it see the x of this call?"
        yield from _settled(here, lambda c: here.answer(_everywhere(here, c)), mean, what, look)
        what, look = "y is y* + {}", "what is added to y after the lower level is solved, and the linear term of g"
        yield from _settled(here, lambda c: here.answer(at.y + c[:, None, :]), zero, what, look)
        what, look = "y is y* times {}", "factors of 1/2, and means against sums, in the terms of g"
        yield from _settled(here, lambda c: here.answer(at.y * c[:, None, :]), np.ones(1), what, look)
    if at.problem.d <= MOST_FREE:
        what, look = "y is y* at another point, x + {}", "the x at which the lower level is solved"
        yield from _settled(here, lambda h: _beside(here, h), np.zeros(at.problem.d), what, look)


def _settled(here: Solutions, family: Many, start: Floats, what: str, look: str) -> Iterator[Suspect]:
    with np.errstate(all="ignore"):
        found = settled(here.evidence, family, start)
    if found is not None:
        numbers, value = found
        said = "(" + ", ".join(f"{number:.4g}" for number in numbers) + ")"
        yield Suspect("y*", what.format(said), look, value, (np.zeros_like(value),) * len(numbers))


def _everywhere(here: Solutions, y: Floats) -> Floats:
    return np.broadcast_to(y[:, None, :], (len(y), *here.at.y.shape))


def _beside(here: Solutions, away: Floats) -> Floats:
    at = here.at
    x = at.x + away[:, None, :]
    try:
        y = at.problem.kernels.y_star(x, y0=np.broadcast_to(at.y, (*x.shape[:-1], at.problem.n)))
    except BilevelError:
        y = np.full((*x.shape[:-1], at.problem.n), np.nan)
    return here.answer(y)
