"""Counting oracle calls as the paper does, each member of a batch for itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.errors import KernelError

__all__ = ["Counts", "count", "counting"]

Integers = NDArray[np.int64]


@dataclass
class Counts:
    """How often each member of a batch asked for a gradient of f or g, or a product with g_xy or g_yy.

    G_f, G_g: gradients (each partial gradient f_x, f_y, g_y is one). JV_g, HV_g: products with g_xy and g_yy; a
    whole block counts as one product a column. Arrays of the batch's shape; plain numbers for one point.

    >>> from bilevel_sym import BilevelProblem
    >>> kernels = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y").kernels
    >>> with kernels.counting() as c:
    ...     _ = kernels.g_y([[0.0], [1.0]], [[0.0], [0.0]])
    >>> c.G_g, c.G_f
    (array([1, 1]), array([0, 0]))
    """

    _shape: tuple[int, ...] | None = None
    _values: dict[str, Integers] = field(default_factory=dict)

    def add(self, shape: tuple[int, ...], **calls: int | Integers) -> None:
        """Note calls by a batch of this shape: one number for all members, or one each."""
        if self._shape is None:
            self._shape = shape
        if shape != self._shape:
            raise KernelError(
                f"counting was begun with batch shape {self._shape}, and now sees {shape}",
                hint="count each batch shape in its own `with kernels.counting()`",
            )
        for name, number in calls.items():
            before = self._values.get(name, np.zeros(shape, dtype=np.int64))
            self._values[name] = before + np.broadcast_to(np.asarray(number, dtype=np.int64), shape)

    def _get(self, name: str) -> Integers:
        return self._values.get(name, np.zeros(self._shape or (), dtype=np.int64))[()]

    @property
    def G_f(self) -> Integers:
        """Gradients of f."""
        return self._get("G_f")

    @property
    def G_g(self) -> Integers:
        """Gradients of g."""
        return self._get("G_g")

    @property
    def JV_g(self) -> Integers:
        """Products of g_xy with a vector."""
        return self._get("JV_g")

    @property
    def HV_g(self) -> Integers:
        """Products of g_yy with a vector."""
        return self._get("HV_g")

    def __repr__(self) -> str:
        return f"Counts(G_f={self.G_f}, G_g={self.G_g}, JV_g={self.JV_g}, HV_g={self.HV_g})"


# who is counting for which kernels, in this thread or task; the kernels themselves hold no state
_ACTIVE: ContextVar[tuple[tuple[int, Counts], ...]] = ContextVar("counting", default=())


@contextmanager
def counting(owner: object) -> Iterator[Counts]:
    """Count what ``owner`` is asked for inside the block.

    >>> with counting(None) as c:
    ...     count(None, (), G_f=2)
    >>> c
    Counts(G_f=2, G_g=0, JV_g=0, HV_g=0)
    """
    counts = Counts()
    token = _ACTIVE.set((*_ACTIVE.get(), (id(owner), counts)))
    try:
        yield counts
    finally:
        _ACTIVE.reset(token)


def count(owner: object, shape: tuple[int, ...], **calls: int | Integers) -> None:
    """Note calls, if calls are counted.

    >>> count(None, (), G_f=1)  # nobody does
    """
    for who, counts in _ACTIVE.get():
        if who == id(owner):
            counts.add(shape, **calls)
