"""Constants in floating point, for guards: whether log(2) - 1 is positive, whether exp(exp(10)) is worth computing."""

from __future__ import annotations

import math

import numpy as np

from bilevel_sym.arrays.tensor import GROUP, Apply, Factor, Tensor
from bilevel_sym.graph.operations import OPERATIONS

LARGEST = 1e300


def constant_value(formula: Tensor) -> float | None:
    """An estimate of a formula that is one number everywhere; None where it depends on anything, or on a dimension.

    >>> from bilevel_sym.arrays.algebra import apply
    >>> from bilevel_sym.arrays.normal import ones
    >>> constant_value(apply("exp", ones((), 1)))
    2.718281828459045
    """
    if formula.leaves:
        return None
    value = 0.0
    for term in formula.terms:
        if term.sizes or term.dummies:
            return None
        factors = [_factor_value(factor) for factor in term.factors]
        if any(factor is None for factor in factors):
            return None
        value += float(term.coefficient) * math.prod(factor for factor in factors if factor is not None)
    return value


def _factor_value(factor: Factor) -> float | None:
    head = factor.head
    if not isinstance(head, Apply):  # a delta is no constant
        return None
    if head.op == "pi":
        return math.pi
    bodies = [constant_value(body) for body in head.bodies]
    known = [body for body in bodies if body is not None]
    if len(known) < len(bodies):
        return None
    if head.op == GROUP:
        return known[0]
    if head.op in ("ipow", "rpow"):
        return _power(known[0], head.parameter)
    with np.errstate(all="ignore"):
        return float(OPERATIONS[head.op].rule("numpy")(*known))


def _power(base: float, parameter: tuple[int, ...]) -> float:
    try:
        return float(base ** (parameter[0] / parameter[1] if len(parameter) > 1 else parameter[0]))
    except (OverflowError, ZeroDivisionError):
        return math.inf
