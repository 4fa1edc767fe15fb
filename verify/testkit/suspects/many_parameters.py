"""Hypotheses with many free numbers are named only where they leave next to nothing of the error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from bilevel_sym.typing import Bools, Floats
from verify.testkit.diagnosis import EXACT_FIT, SPARE, Evidence, Suspect

__all__ = ["Many", "explains", "settled"]

DIFFERENCE_STEP = 1e-6  # relatively
Many: TypeAlias = Callable[[Floats], Floats]  # parameters (K, m) -> what the candidate would return, (K, P, ...)

TOLD = 1e-8  # singular values, columns having length one, below which the free numbers are not told apart
SETTLED = 10  # steps of Gauss and Newton


def explains(evidence: Evidence, suspect: Suspect) -> bool:
    """Whether the best coefficients, which must be told apart, leave next to nothing of the error.

    >>> truth = np.arange(1.0, 7.0)[:, None]
    >>> seen = Evidence(truth + 0.5 * truth**2, truth, np.zeros(6))
    >>> [explains(seen, Suspect("factor", "", "", truth, basis)) for basis in ((truth**2,), (truth,))]
    [True, False]
    """
    telling, weight = evidence.telling, 1 / np.maximum(evidence.errors, 1e-300)
    rest = _column(evidence.values - suspect.value, telling, weight)
    if len(rest) < len(suspect.basis) + SPARE or not np.isfinite(rest).all():
        return False
    if suspect.basis:
        columns = np.stack([_column(b, telling, weight) for b in suspect.basis], axis=1)
        lengths = np.linalg.norm(columns, axis=0)
        if not (np.isfinite(columns).all() and lengths.all()):
            return False
        U, singular, _ = np.linalg.svd(columns / lengths, full_matrices=False)
        if singular[-1] < TOLD:
            return False
        rest = rest - U @ (U.T @ rest)
    allowed = EXACT_FIT * np.sqrt(telling.sum()) + 10 * float(np.linalg.norm(evidence.floor[telling] * weight[telling]))
    return bool(np.linalg.norm(rest) <= allowed)


def settled(evidence: Evidence, family: Many, start: Floats) -> tuple[Floats, Floats] | None:
    """The parameters (m,) from a start whose member explains the error, and that member; None where none does.

    >>> x = np.linspace(0.1, 1, 8)[:, None]
    >>> seen = Evidence(np.sin(x + 0.25), np.sin(x), np.zeros(8))
    >>> found, value = settled(seen, lambda c: np.sin(x + c[:, None, :]), np.zeros(1))
    >>> found.round(9)
    array([0.25])
    """
    telling, weight = evidence.telling, 1 / np.maximum(evidence.errors, 1e-300)
    here, size = start, len(start)
    if telling.sum() * evidence.values[0].size < size + SPARE:
        return None
    for _ in range(SETTLED):
        nudge = DIFFERENCE_STEP * (1 + np.abs(here).max())
        values = family(here + np.concatenate([np.zeros((1, size)), nudge * np.eye(size)]))
        rows = np.array([_column(value, telling, weight) for value in values])
        if not np.isfinite(rows).all():
            return None
        rest = _column(evidence.values, telling, weight) - rows[0]
        here = here + np.linalg.lstsq(((rows[1:] - rows[0]) / nudge).T, rest, rcond=1e-10)[0]
    (value,) = family(here[None])
    found = Suspect("unexplained", "", "", value)
    return (here, value) if explains(evidence, found) else None


def _column(array: Floats, chosen: Bools, weight: Floats) -> Floats:
    return np.asarray(array.reshape(len(array), -1)[chosen] * weight[chosen, None]).ravel()
