"""Exact rational numbers from whatever a person gives: the one place where numbers enter.

A float means its exact binary value; decimal text means the decimal itself, so "0.1" is 1/10 and 0.1 is
3602879701896397/36028797018963968.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real

import mpmath
import sympy as sp

from bilevel_sym.errors import BilevelError, InvalidArgument, InvalidProblem

__all__ = ["MAX_DIGITS", "MAX_EXPONENT", "binary_fraction", "decimal_rational", "rational", "rational_vector"]

# Literals beyond these limits are mistakes or attacks: 1e1000000000 would fill the memory.
MAX_DIGITS = 1000
MAX_EXPONENT = 400

_DECIMAL = re.compile(r"(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<fraction>\d*))?(?:[eE](?P<exponent>[+-]?\d+))?")


def decimal_rational(text: str) -> sp.Rational:
    """The exact value of a decimal literal such as ``12``, ``0.5``, ``.5``, ``1e-3``, with an optional sign.

    >>> decimal_rational("0.1"), decimal_rational("-25e-1")
    (1/10, -5/2)
    """
    match = _DECIMAL.fullmatch(text) if text.isascii() and len(text) <= 2 * MAX_DIGITS else None
    whole, fraction = (match["whole"] or "", match["fraction"] or "") if match else ("", "")
    digits = whole + fraction
    if match is None or not digits:
        raise InvalidProblem(f"{_short(text)} is not a number", hint="write decimals such as 2, 0.5 or 1e-3")
    exponent_text = match["exponent"] or "0"
    if len(digits) > MAX_DIGITS or len(exponent_text) > 6 or abs(int(exponent_text)) > MAX_EXPONENT:
        raise InvalidProblem(
            f"the number {_short(text)} is too large",
            hint=f"at most {MAX_DIGITS} digits, and a decimal exponent between -{MAX_EXPONENT} and {MAX_EXPONENT}",
        )
    scale = int(exponent_text) - len(fraction)
    numerator = int(digits) * 10 ** max(scale, 0) * (-1 if match["sign"] == "-" else 1)
    return sp.Rational(numerator, 10 ** max(-scale, 0))


def rational(value: object, what: str = "the value", *, error: type[BilevelError] = InvalidArgument) -> sp.Rational:
    """The exact rational that ``value`` means; anything that is not a finite real number is refused with ``error``.

    >>> rational("1/3"), rational(0.5), rational("0.1")
    (1/3, 1/2, 1/10)
    """
    try:
        number = _rational_or_none(value)
    except InvalidProblem as found:
        raise error(f"{what}: {found.message}", hint=found.hint) from None
    if number is None:
        raise error(
            f"{what} must be a finite real number, but is {_short(value)}",
            hint="give an integer, a float, a Fraction, or text such as '1/3' or '0.2'",
        )
    return number


def rational_vector(
    values: Iterable[object], what: str = "the values", *, error: type[BilevelError] = InvalidArgument
) -> tuple[sp.Rational, ...]:
    """Each of ``values`` as an exact rational.

    >>> rational_vector(["1/3", 0.25])
    (1/3, 1/4)
    """
    return tuple(rational(value, f"{what}[{i}]", error=error) for i, value in enumerate(values))


def _rational_or_none(value: object) -> sp.Rational | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _rational_text(value)
    if isinstance(value, sp.Float):
        return sp.Rational(*binary_fraction(value._mpf_)) if value.is_finite and abs(value._mpf_[2]) < 8000 else None
    if isinstance(value, sp.Basic):
        return value if isinstance(value, sp.Rational) and value.is_finite else None
    if isinstance(value, Integral):
        return sp.Integer(int(value))
    if isinstance(value, Fraction):
        return sp.Rational(value.numerator, value.denominator)
    if isinstance(value, Decimal):
        # the exponent first: as_integer_ratio of Decimal("1e1000000000") would fill the memory
        small = value.is_finite() and abs(value.adjusted()) <= MAX_EXPONENT
        return sp.Rational(*value.as_integer_ratio()) if small else None
    if isinstance(value, mpmath.mpf):
        return sp.Rational(*binary_fraction(value._mpf_)) if mpmath.isfinite(value) else None
    if isinstance(value, Real) and math.isfinite(value):  # float, and NumPy's floats of any width
        return sp.Rational(*value.as_integer_ratio())  # type: ignore[attr-defined]
    return None


def _rational_text(text: str) -> sp.Rational:
    numerator, slash, denominator = text.strip().partition("/")
    if not slash:
        return decimal_rational(numerator.strip())
    below = decimal_rational(denominator.strip())
    if below == 0:
        raise InvalidProblem(f"{_short(text)} divides by zero")
    return decimal_rational(numerator.strip()) / below


def binary_fraction(number: tuple[int, int, int, int]) -> tuple[int, int]:
    """Numerator and denominator of mpmath's (sign, mantissa, exponent, bits), which SymPy's Floats have too.

    >>> binary_fraction(sp.Float(0.75)._mpf_)
    (3, 4)
    """
    sign, mantissa, exponent, _ = number
    whole = int(mantissa) * (-1 if sign else 1)
    return whole << max(exponent, 0), 1 << max(-exponent, 0)


def _short(value: object, limit: int = 60) -> str:
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001 - a hostile or broken __repr__ must not hide the real message
        shown = f"<{type(value).__name__}>"
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."
