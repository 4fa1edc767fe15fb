"""Balls of python-flint at the precision ``flint.ctx.prec``: every result contains the true values at all points.

A ball that leaves the domain becomes nan, which claims nothing; no operation raises. At a switching point (``lt``,
``le``, ``sign`` of a ball with zero in it, exact zero included) the answer is open: a derivative is certain there only
if both branches agree.

>>> OPERATIONS["ipow"](arb(0, 1), 2) >= 0
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from flint import arb, fmpq

from bilevel_sym.graph import operations as records
from bilevel_sym.graph.operations.ball_ranges import ZERO_TO_ONE, over_balls
from bilevel_sym.graph.precision import precision

__all__ = ["OPEN", "OPERATIONS", "SMOOTH", "ZERO_TO_ONE", "constant", "precision"]


def constant(p: int, q: int) -> Any:
    """A ball around the rational p/q.

    >>> constant(1, 3).contains(arb(fmpq(1, 3))), constant(1, 4).is_exact()
    (True, True)
    """
    return arb(fmpq(p, q))


OPERATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {name: over_balls(record) for name, record in records.OPERATIONS.items()}
)
"""Operation name -> function of balls; integer parameters (of ``ipow``, ``rpow``) come last."""

SMOOTH: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {name: record.smooth_ball or OPERATIONS[name] for name, record in records.OPERATIONS.items()}
)
"""For proofs that need smoothness all over a ball: nan where a switch is not decided, or a root touches its end."""

OPEN: Mapping[str, Callable[..., Any]] = MappingProxyType({**SMOOTH, "select": OPERATIONS["select"]})
"""``SMOOTH``, but for switches that are numbers of their own: where one is open, the hull (see ``patterns``)."""
