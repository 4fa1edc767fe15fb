"""Whether a symmetric matrix of rationals is semidefinite, decided exactly."""

from __future__ import annotations

from collections.abc import Sequence

from flint import fmpq

__all__ = ["definiteness"]


def definiteness(entries: Sequence[fmpq], size: int) -> int:
    """1 where a symmetric matrix of rationals is positive semidefinite, -1 where negative, 0 where neither.

    >>> definiteness([fmpq(1), fmpq(1), fmpq(1), fmpq(1)], 2), definiteness([fmpq(k) for k in (0, 1, 1, 0)], 2)
    (1, 0)
    """
    if _semidefinite([list(entries[i * size : (i + 1) * size]) for i in range(size)]):
        return 1
    return -1 if _semidefinite([[-value for value in entries[i * size : (i + 1) * size]] for i in range(size)]) else 0


def _semidefinite(rows: list[list[fmpq]]) -> bool:
    """Exact elimination: no pivot is negative, and below a zero pivot there is nothing."""
    for k, row in enumerate(rows):
        if row[k] < 0 or (row[k] == 0 and any(rows[i][k] != 0 for i in range(k, len(rows)))):
            return False
        if row[k] == 0:
            continue
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / row[k]
            if factor != 0:
                rows[i] = [a - factor * b for a, b in zip(rows[i], row, strict=True)]
    return True
