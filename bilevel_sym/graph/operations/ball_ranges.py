"""The range of a function over a ball, from how the function runs.

Arb bounds a function over a narrow ball by its slope. Over a wide one that is loose or nan (``arb(0, 20).tanh()``), so
wide balls are evaluated at the two ends, where the function is monotone. A ball that leaves the domain becomes nan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flint import arb

from bilevel_sym.graph.operations.record import Operation

__all__ = ["NAN", "ZERO_TO_ONE", "Ball", "even", "monotone", "over_balls", "positive"]

Ball = Any  # flint.arb
NAN = arb("nan")
ZERO_TO_ONE = arb(0.5, 0.5).nonnegative_part()  # [0, 1], with a lower end that is exactly zero
_NARROW = arb(2) ** -20


def over_balls(record: Operation) -> Callable[..., Ball]:
    """What a record's rule for balls makes of balls of any width.

    >>> from bilevel_sym.graph.operations import OPERATIONS
    >>> over_balls(OPERATIONS["tanh"])(arb(0, 20)).rad() < 1.001
    True
    """
    rule, shape = record.rule("ball"), record.shape
    match shape.kind:
        case "monotone":
            extended = _cut(lambda x: monotone(rule, x), shape.least)
            return extended if record.domain == -math.inf else lambda x: extended(x) if x > record.domain else NAN
        case "rising" | "falling":
            return _cut(lambda x: even(rule, x), shape.least)
        case "branches":
            return lambda x: rule(x) if _narrow(x) or not rule(x).is_finite() else monotone(rule, x)
    return rule


def _cut(function: Callable[[Ball], Ball], least: float) -> Callable[[Ball], Ball]:
    return (lambda x: positive(function(x))) if least >= 0 else function


def _narrow(x: Ball) -> bool:
    """Small relative to its distance from zero and to 1: the slope gives a tight answer."""
    return bool(x.is_exact()) or bool(x.rad() < _NARROW and x.rad() < x.abs_lower() * _NARROW)


def monotone(function: Callable[[Ball], Ball], x: Ball) -> Ball:
    """The range of a function that is monotone on the ball.

    >>> monotone(arb.exp, arb(0, 1)) > 0
    True
    """
    if _narrow(x) or not x.is_finite():
        return function(x)
    return function(x.lower()).union(function(x.upper()))


def even(function: Callable[[Ball], Ball], x: Ball) -> Ball:
    """The range of an even function that is monotone on the positive half line.

    >>> even(arb.cosh, arb(0, 1)) < 2
    True
    """
    if _narrow(x) or not x.is_finite():
        return function(x)
    return function(x.abs_lower()).union(function(x.abs_upper()))


def positive(x: Ball) -> Ball:
    """Cut off what a rounded radius put below zero; only for values known to be nonnegative.

    >>> positive(arb(0, 1)) >= 0
    True
    """
    return x.nonnegative_part() if x.is_finite() and not x >= 0 else x
