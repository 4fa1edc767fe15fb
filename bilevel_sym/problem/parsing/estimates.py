"""Constants in floating point, before SymPy sees them: 9**9**9 is refused here, for the price of one power.

An estimate need not be accurate; it decides whether a constant is finite, real and of a size worth computing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.graph.operations.record import Operation

__all__ = ["ESTIMATES", "LARGEST", "Refusal", "check_range", "power"]

LARGEST = 1e300


class Refusal(Exception):
    """Why a value is not built; the grammar knows where it stands and raises the error.

    >>> Refusal("too large", "shorten it").hint
    'shorten it'
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def check_range(number: float) -> float:
    """``number`` itself, unless it is too large, or too close to zero, for float64 work.

    >>> check_range(-2.5)
    -2.5
    """
    if not abs(number) <= LARGEST:
        raise Refusal("this constant is too large", f"constants go up to {LARGEST:.0e}")
    if abs(number) < 1 / LARGEST:
        raise Refusal("this constant is zero or too close to it", "write 0, or scale the problem")
    return number


def power(base: float, exponent: float, *, integer: bool) -> float:
    """base**exponent, where ``integer`` says whether the exponent is a whole number.

    >>> power(2.0, -1.0, integer=True)
    0.5
    """
    if base == 0 and exponent < 0:
        raise Refusal("division by zero")
    if base < 0 and not integer:
        raise Refusal("a negative number to a fractional power is complex", "only real numbers are accepted")
    try:
        value = base**exponent
    except OverflowError:
        value = math.inf
    return value if base == 0 else check_range(value)


def _estimate(record: Operation) -> Callable[[float], float]:
    def estimate(z: float) -> float:
        if z <= record.domain:
            raise Refusal("the logarithm of zero or a negative number", "only real numbers are accepted")
        if abs(z) > record.largest and record.is_periodic:
            raise Refusal(f"this angle is larger than {record.largest:.0e}", "take off multiples of 2*pi")
        if abs(z) > record.largest:
            raise Refusal(f"exp of a number near {z:.3g} is too {'large' if z > 0 else 'small'}")
        return float((record.compiled or record.rule("numpy"))(z))  # of one float, without a library to import

    return estimate


ESTIMATES: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {name: _estimate(record) for name, record in FUNCTIONS.items()}
)
