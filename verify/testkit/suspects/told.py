"""A candidate that returns its y and v beside its answer tells in which room to look: the lower level, or the solve."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from verify.points.derivatives_at import blocks_at
from verify.testkit.candidate import norms
from verify.testkit.diagnosis import Cause, Diagnosis
from verify.testkit.reference import ROUNDINGS, Asked
from verify.testkit.suspects.lower_iterates import apply, solved

__all__ = ["ROOMS", "told_wrong"]

ROOMS: Mapping[Cause, tuple[Cause, ...]] = MappingProxyType(
    {
        "y*": ("y*", "tolerance", "predecessor", "precision"),
        "inverse": ("inverse", "tolerance"),
        "unexplained": ("direct", "cross", "sign", "factor", "transpose", "arguments"),
    }
)
"""Which causes are asked for, by what was told."""

MADE = 1e-6  # of the error: what is left where the answer is made of y and v as they are told


def told_wrong(asked: Asked) -> Diagnosis | None:
    """Which of y, v and what is made of them is the first that is wrong; None where what is told does not say.

    >>> from bilevel_sym import BilevelProblem, verify
    >>> problem = BilevelProblem("x**2*y", "y**2 - sin(x)*y", "x", "y")
    >>> def candidate(x):
    ...     y = np.sin(x) / 2
    ...     v = 0.9 * x**2 / 2 + 0.01
    ...     return {"grad": 2 * x * y + np.cos(x) * v, "y": y, "v": v}
    >>> verify.check_hypergradient(candidate, problem).cause
    'inverse'
    """
    at, y = asked.at, asked.told.get("y")
    k = asked.worst
    if y is not None and (off := norms(y - at.y))[k] > at.floor("y_star")[k]:
        look = "the lower-level solver: its number of steps, its step size, its stopping rule"
        digits = f"{_digits(float(off[k]), float(norms(at.y)[k])):.1f} digits"
        return Diagnosis("y*", f"y, as the candidate tells it, is not y*: it has {digits} there", look)
    here = at.y if y is None else y
    f_x, f_y, g_xy, g_yy = blocks_at(at.problem.kernels, ("f_x", "f_y", "g_xy", "g_yy"), at.x, here)
    if (v := asked.told.get("v")) is None:
        return None
    right = solved(g_yy, f_y)
    floor = ROUNDINGS * np.finfo(float).eps * at.kappa * norms(right)
    if (off := norms(v - right))[k] > floor[k]:
        digits = f"{_digits(float(off[k]), float(norms(right)[k])):.1f} digits"
        what = f"v, as the candidate tells it, does not solve g_yy v = f_y: it has {digits} there"
        return Diagnosis("inverse", what, "the solver of g_yy v = f_y")
    if y is None or (norms(f_x - apply(g_xy, v) - asked.values) <= MADE * asked.errors).all():
        return None
    what = "y and v, as the candidate tells them, are right, and what is made of them is not"
    return Diagnosis("unexplained", what, "f_x - g_xy v: its two terms, their signs and axes")


def _digits(error: float, size: float) -> float:
    return float(np.clip(-np.log10(error / (size or 1.0)), 0.0, 16.0))
