"""The hypothesis that answers of earlier calls are mixed into this one: momentum, or an average that runs along."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bilevel_sym.typing import Floats
from verify.testkit.diagnosis import Evidence, Suspect
from verify.testkit.reference import References
from verify.testkit.suspects.many_parameters import explains

__all__ = ["momentum"]

LOOK = "momentum, or a running average, between the gradient and what is returned: keep it out of this function"


def momentum(at: References, evidence: Evidence, previous: Floats | None) -> Iterator[Suspect]:
    """answer = a (answer before) + b (truth here), where the points were asked one after the other.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [[1.0], [4.0], [2.0], [3.0], [0.5], [0.1]])
    >>> answers = [np.zeros(1)]
    >>> for truth in at.truth("grad_phi"):
    ...     answers.append(0.5 * answers[-1] + truth)
    >>> seen = Evidence(np.array(answers[1:]), at.truth("grad_phi"), at.floor("grad_phi"))
    >>> before = np.vstack([[[np.nan]], at.x[:-1]])
    >>> [s.what for s in momentum(at, seen, before)]
    ['the answer is {0:.4g} times the one of the call before plus {1:.4g} times the truth']
    """
    if previous is None or len(at) < 4 or not np.array_equal(previous[1:], at.x[:-1]):
        return
    value = np.zeros_like(evidence.values)
    value[0] = evidence.values[0]  # of the answer before the first nothing is known
    before, truth = (np.zeros_like(value) for _ in range(2))
    before[1:], truth[1:] = evidence.values[:-1], evidence.truth[1:]
    if np.ptp(evidence.values, axis=0).max() <= evidence.floor.max():  # always the same answer
        yield from _first(evidence)
        return
    what = "the answer is {0:.4g} times the one of the call before plus {1:.4g} times the truth"
    suspect = Suspect("predecessor", what, LOOK, value, (before, truth))
    if explains(evidence, suspect):
        yield suspect


def _first(evidence: Evidence) -> Iterator[Suspect]:
    """The true answer of the first point, which is kept ever after."""
    if not evidence.telling[0]:
        what = "the answer at all points is the true one of the first that was asked"
        look = "what is kept from call to call: a cache that does not look at x"
        yield Suspect("predecessor", what, look, evidence.values)
