"""Ties are broken by a rule, never by last bits: of values that are equal to within their error the first counts.

A symmetric problem has its largest value at two places, and which of the two a processor computes larger by its last
bit says nothing. What is shown, and what is done next, follows the order in which the values stand.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from bilevel_sym.typing import Floats, Indices

__all__ = ["EQUAL", "coarse", "first_largest", "first_smallest", "in_order"]

EQUAL = 2.0**-30  # relatively: what rounding may make of two equal values, in any computation of ours
COMPARED_BITS = 24  # of what is left to compare where many values are
Ranks: TypeAlias = Indices


def first_largest(values: ArrayLike, error: ArrayLike | None = None, *, skip_nan: bool = False) -> int:
    """The place of the largest value, in row-major order; of several within their error of one another, the first.

    ``error`` is that of the values, one for all or one each; by default EQUAL times the size of each.
    A value that is not a number counts as larger than any, as for NumPy; with ``skip_nan``, as smaller than any.

    >>> first_largest([1.0, 3.0, 3.0 + 4e-16])
    1
    >>> first_largest([1.0, 3.0, 3.1], error=0.2)
    1
    """
    flat = np.asarray(values, dtype=np.float64).ravel()
    flat = np.where(np.isnan(flat), -np.inf if skip_nan else np.inf, flat)
    off = _error(flat, error)
    return int(np.argmax(flat + off >= np.max(flat - off)))


def first_smallest(values: ArrayLike, error: ArrayLike | None = None, *, skip_nan: bool = False) -> int:
    """The same for the smallest; a value that is not a number counts as smaller than any, or is skipped.

    >>> first_smallest([1.0, -2.0, -2.0 - 4e-16])
    1
    """
    return first_largest(-np.asarray(values, dtype=np.float64), error, skip_nan=skip_nan)


def in_order(values: ArrayLike, error: ArrayLike | None = None, *, descending: bool = False) -> Ranks:
    """The places of the values in ascending order; those that are equal to within their error stay as they stand.

    >>> in_order([2.0, 1.0, 2.0 - 4e-16]).tolist()
    [1, 0, 2]
    >>> in_order([1.0, 2.0, 1.0 + 4e-16], descending=True).tolist()
    [1, 0, 2]
    """
    flat = np.asarray(values, dtype=np.float64).ravel()
    ranks = _ranks(flat, _error(flat, error))
    return np.argsort(-ranks if descending else ranks, kind="stable")


def coarse(values: Floats) -> Floats:
    """The values to seven digits, for many at once: those that differ in their last bits alone are mostly equal.

    >>> int(np.argmax(coarse(np.array([1.0, 3.0, 3.0 + 4e-16]))))
    1
    >>> bool(np.all(np.diff(coarse(np.array([1e-310, 1.0, 1e300, 2e300, np.inf]))) > 0))  # at any size
    True
    """
    fractions, exponents = np.frexp(values)
    with np.errstate(over="ignore"):  # the largest number there is may be rounded up to infinity
        rounded: Floats = np.ldexp(np.rint(np.ldexp(fractions, COMPARED_BITS)), exponents - COMPARED_BITS)
    return rounded


def _error(flat: Floats, error: ArrayLike | None) -> Floats:
    """One error a value; none where a value is not finite."""
    given = EQUAL * np.abs(flat) if error is None else np.abs(np.asarray(error, dtype=np.float64))
    return np.where(np.isfinite(flat), given, 0.0)


def _ranks(flat: Floats, off: Floats) -> Ranks:
    """How many groups of equal values are smaller; a chain of values, each equal to the next one, is one group."""
    order = np.argsort(flat, kind="stable")
    low, high = (flat - off)[order], np.maximum.accumulate((flat + off)[order])
    new = np.concatenate([[False], ~(low[1:] <= high[:-1])]) if len(flat) else np.zeros(0, dtype=bool)
    ranks = np.empty(len(flat), dtype=np.intp)
    ranks[order] = np.cumsum(new)
    return ranks
