"""The right answer, changed before it is returned: clipped, normalised, without its signs, in another order.

Or mixed with answers of earlier calls: momentum, or an average that runs along.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bilevel_sym.typing import Floats
from verify.testkit.candidate import norms
from verify.testkit.diagnosis import Evidence, Suspect
from verify.testkit.reference import References
from verify.testkit.suspects.fitting import explains

__all__ = ["changed_suspects", "momentum"]

RETURN = "what is done to the answer before it is returned"
SHARP = 1e-9  # relative: a bound that is met is met to rounding
LOOK = "momentum, or a running average, between the gradient and what is returned: keep it out of this function"


def changed_suspects(evidence: Evidence) -> Iterator[Suspect]:
    """What is left of the truth after common postprocessing.

    >>> truth = np.array([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0], [0.0, 2.0]])
    >>> seen = Evidence(np.clip(truth, -1, 1), truth, np.full(4, 1e-12))
    >>> next(suspect.what for suspect in changed_suspects(seen) if np.array_equal(suspect.value, seen.values))
    'each entry is clipped at -1 or 1'
    """
    truth, values = evidence.truth, evidence.values
    size, seen = _sizes(truth), _sizes(values)
    with np.errstate(all="ignore"):
        unit = np.where(size > 0, truth / size, 0.0)
    clipping, bound = "gradient clipping, projections onto a ball or a box", float(seen.max())
    met = seen > (1 - SHARP) * bound
    if met.sum() > 1 and not met.all():  # a norm that is always the same is no bound
        what = f"it is clipped: its norm is at most {bound:.4g}"
        yield Suspect("factor", what, clipping, np.where(size > bound, bound * unit, truth))
    yield Suspect("factor", "it is normalised: only its direction is right", RETURN, unit)
    low, high = float(values.min()), float(values.max())
    for ends in ((-max(-low, high), max(-low, high)), (low, high)):
        if _met(values, ends):
            what = f"each entry is clipped at {ends[0]:.4g} or {ends[1]:.4g}"
            yield Suspect("factor", what, clipping, np.clip(truth, *ends))
    # a truth that is itself constant says nothing of whether x is used
    if len(values) > 2 and np.ptp(values, axis=0).max() == 0 and np.ptp(truth, axis=0).max() > evidence.floor.max():
        what = "it is the same at all points, whatever x is"
        yield Suspect("arguments", what, "whether the x of this call is used", values)
    yield Suspect("factor", "it is the sign of each entry alone", RETURN, np.sign(truth))
    yield Suspect("sign", "it is the absolute value of each entry", "np.abs", np.abs(truth))
    yield from _reordered(evidence)


def _reordered(evidence: Evidence) -> Iterator[Suspect]:
    """Of vectors: one entry without its sign or negated, or the entries in another order."""
    truth = evidence.truth
    if truth.ndim != 2 or truth.shape[1] == 1:
        return
    look = "the order in which variables are put together and taken apart"
    yield Suspect("arguments", "the entries are in reverse order", look, truth[:, ::-1])
    for shift in range(1, truth.shape[1] if truth.shape[1] > 2 else 1):
        what = f"the entries are shifted by {shift} place{'s' * (shift > 1)}"
        yield Suspect("arguments", what, look, np.roll(truth, shift, axis=1))
    for i in range(truth.shape[1]):
        for what, entry in (
            ("negated", -truth[:, i]),
            ("the absolute value of what it should be", np.abs(truth[:, i])),
        ):
            value = truth.copy()
            value[:, i] = entry
            yield Suspect("sign", f"entry {i} is {what}, the others are right", RETURN, value)


def _met(values: Floats, ends: tuple[float, float]) -> bool:
    """Whether a bound is met more than once, and not always: neither the largest entry nor a constant is a bound."""
    near = [np.abs(values - end) <= SHARP * (1 + abs(end)) for end in ends]
    inside = ~(near[0] | near[1])
    return bool(sum(int(close.sum()) for close in near) > 2 and inside.any())


def _sizes(array: Floats) -> Floats:
    return norms(array).reshape(-1, *(1,) * (array.ndim - 1))


# ---------------------------------------------------------------------- answers of earlier calls, mixed into this one


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
