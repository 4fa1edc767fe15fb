"""The one guard of working precision, which belongs to the whole process in python-flint as in mpmath.

Inside a guard one thread works at a time; the precision from before comes back whatever happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from typing import Any

import flint
import mpmath

__all__ = ["mpmath_digits", "mpmath_precision", "precision"]

_ONE_THREAD = RLock()


@contextmanager
def _guarded(context: Any, bits: int) -> Iterator[None]:
    with _ONE_THREAD:
        before = context.prec
        context.prec = bits
        try:
            yield
        finally:
            context.prec = before


def precision(bits: int) -> AbstractContextManager[None]:
    """Balls of so many bits inside the block.

    >>> with precision(100):
    ...     flint.ctx.prec
    100
    >>> flint.ctx.prec
    53
    """
    return _guarded(flint.ctx, bits)


def mpmath_precision(bits: int) -> AbstractContextManager[None]:
    """Numbers of mpmath with so many bits inside the block.

    >>> with mpmath_precision(100):
    ...     mpmath.mp.prec
    100
    """
    return _guarded(mpmath.mp, bits)


def mpmath_digits(digits: int) -> AbstractContextManager[None]:
    """Numbers of mpmath with so many decimal digits inside the block.

    >>> with mpmath_digits(30):
    ...     print(mpmath.mpf(1) / 3)
    0.333333333333333333333333333333
    """
    return _guarded(mpmath.mp, mpmath.libmp.dps_to_prec(digits))
