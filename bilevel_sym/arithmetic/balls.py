"""Balls of python-flint at the precision ``flint.ctx.prec``: every result contains the true values at all points.

A ball that leaves the domain becomes nan, which claims nothing; no operation raises. At a switching point (``lt``,
``le``, ``sign`` of a ball with zero in it, exact zero included) the answer is open: a derivative is certain there only
if both branches agree.

>>> OPERATIONS["ipow"](arb(0, 1), 2) >= 0
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import mpmath
from flint import arb, fmpq, fmpz
from mpmath.libmp import from_man_exp

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.graph import operations as records
from bilevel_sym.graph.exact import rational
from bilevel_sym.graph.operations.record import ZERO_TO_ONE, over_balls
from bilevel_sym.graph.precision import precision

__all__ = ["OPEN", "OPERATIONS", "SMOOTH", "ZERO_TO_ONE", "Ball", "constant", "precision"]

MAX_SHOWN = 20_000  # digits
MAX_EXPONENT = 100_000  # of two
MARGIN = 30  # bits beyond those of the ball, for questions about it


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


@dataclass(frozen=True, eq=False)
class Ball:
    """The true value lies within ``rad`` of ``mid``; both are mpmath numbers that hold every bit.

    ``str`` shows the digits that are certain (``f"{ball:.20}"`` at most 20), ``float`` is the midpoint's.

    >>> third = Ball(arb(1)/3)
    >>> third.contains("1/3"), third.contains(0.333), float(third)
    (True, False, 0.3333333333333333)
    >>> str(third)
    '0.333333333333333'
    """

    value: Any  # arb

    @property
    def mid(self) -> mpmath.mpf:
        """The midpoint, exact."""
        return _mpf(self.value.mid())

    @property
    def rad(self) -> mpmath.mpf:
        """The radius, exact."""
        return _mpf(self.value.rad())

    @property
    def digits(self) -> float:
        """How many digits are certain: relative to the value, or absolute where the ball contains zero."""
        if self.value.is_exact():
            return math.inf
        with precision(MARGIN):
            return self._digits_beside(self.value.rad())

    def contains(self, value: object) -> bool:
        """Whether a number (float, Fraction, mpf, text such as "1/3") lies in the ball; decided exactly.

        >>> Ball(arb(2, 1)).contains(3.0), Ball(arb(2, 1)).contains("3.01")
        (True, False)
        """
        number = _exactly(value)
        if number is None:
            return False
        if self._is_extreme:  # a rational of that size would fill the memory: what is not certain is False
            with precision(max(64, self._bits) + MARGIN):
                return bool(self.value.contains(arb(number)))
        return bool(abs(number - _fmpq(self.value.mid())) <= _fmpq(self.value.rad()))

    def correct_digits(self, value: object) -> float:
        """How many digits of ``value`` are certainly right: -log10 of its relative error (absolute if zero is inside).

        >>> ball = Ball(arb(1)/3)
        >>> round(ball.correct_digits(0.3333), 2), ball.correct_digits(-1.0)
        (4.0, 0.0)
        """
        number = _exactly(value)
        if number is None:
            return 0.0
        with precision(max(64, self._bits) + MARGIN):
            error = abs(self.value - arb(number)).upper()
            if error == 0:
                return math.inf
            return max(0.0, self._digits_beside(error))

    def _digits_beside(self, error: Any) -> float:
        """-log10 of an error relative to the value, absolute where zero is inside; rounded down."""
        scale = arb(1) if self.value.contains(0) else self.value.abs_lower()
        return float(-((error / scale).log() / arb(10).log()).upper())

    @property
    def _is_extreme(self) -> bool:
        """Whether the number has so large an exponent that its digits cannot be written out."""
        parts = (self.value.mid(), self.value.rad())
        return any(part != 0 and abs(part.man_exp()[1]) > MAX_EXPONENT for part in parts)

    @property
    def _bits(self) -> int:
        return int(self.value.mid().man_exp()[0].bit_length()) if self.value.mid() != 0 else 1

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.value.mid().man_exp(), self.value.rad().man_exp())
        return _restored, tuple((str(man), str(exp)) for man, exp in parts)

    def __float__(self) -> float:
        return float(self.mid)

    def __str__(self) -> str:
        return self._shown(MAX_SHOWN)

    def __format__(self, spec: str) -> str:
        return self._shown(int(spec.removeprefix("."))) if spec else str(self)

    def _shown(self, limit: int) -> str:
        """The digits that are certain, at most ``limit`` of them: both ends of the ball round to what is shown."""
        if self.value.is_zero():
            return "0"
        if self._is_extreme:
            with precision(max(64, self._bits) + MARGIN):
                return str(self.value.str(min(limit, max(1, self._bits // 3))))
        middle, radius = _fmpq(self.value.mid()), _fmpq(self.value.rad())
        low, high = middle - radius, middle + radius
        if self.value.contains(0):
            return f"0 +/- {_upward(max(abs(low), abs(high)))}"
        most = max(1, min(math.floor(self.digits) if math.isfinite(self.digits) else _length(low), limit))
        for count in range(most, 0, -1):
            shown = _decimal(low, count)
            if shown == _decimal(high, count):
                return shown
        rounded = _decimal(middle, 3)
        off = abs(_exactly(rounded) - middle)
        return f"{rounded} +/- {_upward(radius + off)}"

    def __repr__(self) -> str:
        return f"Ball({self})"


def _restored(mid: tuple[str, str], rad: tuple[str, str]) -> Ball:
    """A ball from the exact numbers that it is made of."""
    man = fmpz(mid[0])
    with precision(max(64, int(man.bit_length())) + MARGIN):
        middle, radius = (arb(fmpz(m)) * arb(2) ** fmpz(e) for m, e in (mid, rad))
        return Ball(arb(middle, radius))


def _mpf(value: Any) -> mpmath.mpf:
    man, exp = value.man_exp()
    return mpmath.make_mpf(from_man_exp(int(man), int(exp)))


def _fmpq(value: Any) -> fmpq:
    man, exp = value.man_exp()
    return fmpq(man) * fmpq(2) ** int(exp)


def _exactly(value: object) -> Any:
    """The rational (fmpq) that a number means; None for NaN and infinities."""
    if isinstance(value, Ball):
        raise InvalidArgument("a ball is compared with a number, not with another ball", hint="its .mid is a number")
    if isinstance(value, (float, mpmath.mpf)) and not mpmath.isfinite(value):
        return None
    number = rational(value)
    return fmpq(int(number.p), int(number.q))


def _upward(value: fmpq) -> str:
    """Three digits that are not below the value."""
    fraction = Fraction(int(value.p), int(value.q))
    unit = Fraction(10) ** (_decimal_exponent(fraction) - 2)
    whole = -(-fraction // unit) * unit
    return _decimal(fmpq(whole.numerator, whole.denominator), 3)


def _decimal(value: fmpq, digits: int) -> str:
    """Rounded to so many significant digits, half up in magnitude; plain where that is short, else with an exponent."""
    if not value:
        return "0"
    fraction = Fraction(int(value.p), int(value.q))
    sign, fraction = ("-" if fraction < 0 else ""), abs(fraction)
    exponent = _decimal_exponent(fraction)
    scaled = fraction * Fraction(10) ** (digits - 1 - exponent)
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    if whole >= 10**digits:
        whole, exponent = whole // 10, exponent + 1
    text = str(fmpz(whole))  # Python's own str stops at 4300 digits
    if -5 <= exponent < digits:
        point = exponent + 1
        body = f"{text[:point]}.{text[point:]}" if point > 0 else f"0.{'0' * -point}{text}"
        return sign + (body.rstrip(".") if point >= digits else body)
    return f"{sign}{text[0]}{'.' + text[1:] if digits > 1 else ''}e{exponent:+03d}"


def _length(value: fmpq) -> int:
    """How many significant digits a binary fraction has, written out in full."""
    p, q = abs(int(value.p)), int(value.q)
    return len(str(fmpz(p * 5 ** (q.bit_length() - 1))).rstrip("0"))


def _decimal_exponent(value: Fraction) -> int:
    """floor(log10(value)) for a positive rational."""
    guess = math.floor((value.numerator.bit_length() - value.denominator.bit_length()) * math.log10(2))
    while Fraction(10) ** guess > value:
        guess -= 1
    while Fraction(10) ** (guess + 1) <= value:
        guess += 1
    return guess
