"""mpmath numbers at the working precision of ``mpmath.mp``: reference digits, without a proof.

A value outside its domain is nan, never a complex number and never an exception; nan goes on through every operation,
comparisons included. An infinite value means what it means in float64: log(0) is -inf.

>>> OPERATIONS["rpow"](mpmath.mpf(8), 2, 3)
mpf('4.0')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import mpmath

from bilevel_sym.graph import operations as records
from bilevel_sym.graph.operations.record import Operation

__all__ = ["OPERATIONS", "constant", "rule"]


def constant(p: int, q: int) -> Any:
    """The rational p/q, rounded once.

    >>> constant(1, 4)
    mpf('0.25')
    """
    return mpmath.mp.make_mpf(mpmath.libmp.from_rational(p, q, mpmath.mp.prec, "n"))


def rule(record: Operation) -> Callable[..., Any]:
    """What a record says of mpmath numbers; nan below its domain.

    >>> rule(records.OPERATIONS["log"])(mpmath.mpf(-1))
    mpf('nan')
    """
    function = record.rule("mpmath")
    if record.domain == -math.inf or not record.is_function:
        return function
    return lambda z: mpmath.nan if z < record.domain else function(z)


OPERATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {name: rule(record) for name, record in records.OPERATIONS.items()}
)
"""Operation name -> function of mpmath numbers; integer parameters (of ``ipow``, ``rpow``) come last."""
