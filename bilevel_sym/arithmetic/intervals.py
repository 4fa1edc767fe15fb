"""Many boxes at once: an interval array is a pair (lo, hi) of float64 arrays, rounded outward.

A result contains the value at every point of the arguments at which the operation is defined. Intervals are sets of
*real* numbers: an infinite end says "no bound known", not that infinity is a member. Hence 0 * inf between ends counts
as 0: zero times any real number is zero. Where no point is in the domain, or an argument is nan, both ends are nan.

Rounding outward is a padding of the computed end, which is faster than ``nextafter``. The four operations and ``sqrt``
of IEEE 754 are half an ulp off at most. For the others we **assume that NumPy errs by no more than 8 ulp** (its own
tests accept 4 in its SIMD loops); ``tests/test_arithmetics.py`` compares with balls. So ``OPERATIONS`` and ``SMOOTH``
are for search. ``PROVED`` takes its elementary functions from Arb's balls, and assumes nothing.

>>> lo, hi = OPERATIONS["sin"]((np.array([1.0]), np.array([2.0])))
>>> float(hi[0]), bool(0.84 < lo[0] < np.sin(1.0))
(1.0, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from bilevel_sym.arithmetic.elementary import ARB, NUMPY, Function, Library
from bilevel_sym.graph import operations as records
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.graph.operations.record import Operation, Shape
from bilevel_sym.typing import FLOAT64_TINY, Bools, Floats, Indices

__all__ = ["OPEN", "OPERATIONS", "PROVED", "PROVED_OPEN", "SMOOTH", "VALUES", "Pair", "enclose", "linear"]

Mask = Bools
Pair = tuple[Floats, Floats]
"""Lower and upper ends, arrays of one shape."""

_LARGEST = np.finfo(np.float64).max
_EXACT = 2.3e-16, FLOAT64_TINY  # relative and absolute padding after a correctly rounded operation
_LIBRARY = 9 * 2.3e-16, 9 * FLOAT64_TINY  # after one library function: 8 ulp and the rounding of the padding itself
_COMPOSED = 25 * 2.3e-16, 25 * FLOAT64_TINY  # after two library functions and a few operations
_BLOCK = 2**13  # numbers in an array that is quick to allocate
_PERIODIC = 1e5  # beyond it sine, cosine and tangent are not located any more


def _padding(a: Floats, padding: tuple[float, float]) -> Floats:
    pad = np.asarray(np.abs(a))
    pad *= padding[0]
    pad += padding[1]
    return pad


def _down(a: Any, padding: tuple[float, float] = _LIBRARY) -> Floats:
    """A lower bound; an overflow to inf came from a number that may be just above the largest float."""
    end: Floats = np.asarray(np.minimum(a, _LARGEST))
    end -= _padding(end, padding)
    return end


def _up(a: Any, padding: tuple[float, float] = _LIBRARY) -> Floats:
    """An upper bound, as for ``_down``."""
    end: Floats = np.asarray(np.maximum(a, -_LARGEST))
    end += _padding(end, padding)
    return end


def _magnitudes(x: Pair) -> Pair:
    """The range of abs(x), without rounding."""
    lo, hi = x
    return np.maximum(np.maximum(lo, -hi), 0.0), np.maximum(-lo, hi)


def _replaced(test: Mask, lo: float, hi: float, x: Pair) -> Pair:
    """(lo, hi) where the test holds."""
    return np.where(test, lo, x[0]), np.where(test, hi, x[1])


def _finite(array: Floats) -> bool:
    """False where an entry is infinite or nan, sometimes also where the sum overflows; a sum needs no memory."""
    return math.isfinite(array.sum())


def _unknown(*arguments: Pair) -> Mask:
    """Where an end is nan."""
    found = np.isnan(arguments[0][0])
    for end in (end for pair in arguments for end in pair):
        found = found | np.isnan(end)
    return found


def enclose(p: int, q: int) -> tuple[float, float]:
    """The tightest floats around the rational p/q, equal where it is one.

    >>> enclose(1, 4), enclose(1, 3)
    ((0.25, 0.25), (0.3333333333333333, 0.33333333333333337))
    """
    if q < 0:
        p, q = -p, -q
    try:
        nearest = p / q  # Python divides integers with one correct rounding
    except OverflowError:
        return (float(_LARGEST), math.inf) if p > 0 else (-math.inf, -float(_LARGEST))
    numerator, denominator = nearest.as_integer_ratio()
    side = numerator * q - p * denominator
    return (
        math.nextafter(nearest, -math.inf) if side > 0 else nearest,
        math.nextafter(nearest, math.inf) if side < 0 else nearest,
    )


def linear(c_lo: Floats, c_hi: Floats, k_lo: Floats, k_hi: Floats, lo: Floats, hi: Floats) -> Pair:
    """K + C X for all C in [c_lo, c_hi] (m, s), K in [k_lo, k_hi] (m,), X in [lo, hi] (s, B); an array (m, B).

    A coefficient that is exactly zero ignores its row of X, even where that is infinite or nan.

    >>> one, zero = np.ones((1, 1)), np.zeros(1)
    >>> lower, upper = linear(2 * one, 2 * one, zero, zero, one, 3 * one)
    >>> bool(lower[0, 0] <= 2 and 6 <= upper[0, 0] < 6.00001)
    True
    """
    with np.errstate(all="ignore"):
        if _finite(lo) and _finite(hi):
            return _bounded_linear(c_lo, c_hi, k_lo, k_hi, lo, hi)
        below, above = ~np.isfinite(lo), ~np.isfinite(hi)
        # [a, inf] is a + [0, inf]: the finite end goes through the product, the other one opens a side of the result
        point = np.where(below, np.where(above, 0.0, hi), lo)
        lower, upper = _bounded_linear(c_lo, c_hi, k_lo, k_hi, np.where(below, point, lo), np.where(above, point, hi))
        plus, minus = c_hi > 0, c_lo < 0
        lower[_meets(plus, below) | _meets(minus, above)] = -np.inf
        upper[_meets(plus, above) | _meets(minus, below)] = np.inf
        unknown = _meets(plus | minus, np.isnan(lo) | np.isnan(hi))
        lower[unknown] = upper[unknown] = np.nan
        return lower, upper


def _meets(rows: Mask, columns: Mask) -> Mask:
    """Where a row and a column share a True."""
    return np.asarray(rows.astype(np.float64) @ columns.astype(np.float64) > 0)


def _halves(lo: Floats, hi: Floats) -> Pair:
    """Middle and radius. The radius is half an ulp off at most (a difference never underflows inexactly)."""
    middle = 0.5 * lo
    middle += 0.5 * hi
    radius = hi - middle
    np.maximum(radius, middle - lo, out=radius)
    return middle, radius


def _bounded_linear(c_lo: Floats, c_hi: Floats, k_lo: Floats, k_hi: Floats, lo: Floats, hi: Floats) -> Pair:
    """The product of the middles with a radius around it, a few columns at a time, so that all stays in the cache."""
    rows, terms = c_lo.shape
    c_middle, c_radius = _halves(c_lo, c_hi)
    size, k_size = np.abs(c_middle), np.maximum(np.abs(k_lo), np.abs(k_hi))[:, None]
    wide = c_radius if np.any(c_radius > 4e-16 * size) else None
    lower, upper = np.empty((rows, lo.shape[1])), np.empty((rows, lo.shape[1]))
    step = max(16, _BLOCK // max(rows, terms, 1))
    for start in range(0, lo.shape[1], step):
        part = slice(start, start + step)
        x_middle, x_radius = _halves(lo[:, part], hi[:, part])
        middle = c_middle @ x_middle
        radius = _product_radius(size, wide, x_middle, x_radius)
        # the two sums that follow, and the denormals of products that underflow
        radius += 5e-16 * (np.abs(middle) + k_size)
        radius += (4 * terms + 4) * FLOAT64_TINY
        np.add(middle + radius, k_hi[:, None], out=upper[:, part])
        np.add(middle - radius, k_lo[:, None], out=lower[:, part])
    return _opened(lower, upper)


def _opened(lower: Floats, upper: Floats) -> Pair:
    """Without bounds where one has overflowed."""
    if not (_finite(lower) and _finite(upper)):
        overflow = ~(np.isfinite(lower) & np.isfinite(upper))
        lower[overflow], upper[overflow] = -np.inf, np.inf
    return lower, upper


def _product_radius(size: Floats, wide: Floats | None, x_middle: Floats, x_radius: Floats) -> Floats:
    """How far C X, and the computed product of the middles, can be from the true product of the middles.

    A sum of s products, fused or not and in any order, errs by gamma_s abs(C) abs(X) and a denormal for each product
    that underflows. The radius of C (``wide``) may be left out where it is below 4e-16 abs(C): gamma covers it.
    """
    gamma, reach, pad = _pads(size.shape[1], x_middle, x_radius)
    radius: Floats = size @ pad
    if wide is not None:
        radius += wide @ reach
    radius *= 1 + 2 * gamma
    return radius


def _pads(terms: int, x_middle: Floats, x_radius: Floats) -> tuple[float, Floats, Floats]:
    """gamma of a sum of so many terms, the largest abs(X), and how far X and what gamma adds reach from its middle."""
    gamma = (terms + 16) * 1.2e-16  # 16 more, for the rounding of the radii and of this bound itself
    reach = np.abs(x_middle)
    reach += x_radius
    pad = gamma * reach
    pad += FLOAT64_TINY  # in case that product underflows
    pad += x_radius
    return gamma, reach, pad


def scattered(c_lo: Floats, c_hi: Floats, starts: Indices, lo: Floats, hi: Floats) -> Pair:
    """Sums of C X over stretches of rows: row k of the result adds up the rows from starts[k] to starts[k + 1].

    ``linear`` for a matrix that is nearly empty: C (s,) holds its entries, X (s, B) their factors, all of them finite.

    >>> two = np.array([2.0, 2.0, 2.0])
    >>> lower, upper = scattered(two, two, np.array([0, 1]), np.ones((3, 1)), np.ones((3, 1)))
    >>> bool(lower[1, 0] <= 4 <= upper[1, 0] < 4.00001)
    True
    """
    with np.errstate(all="ignore"):
        c_middle, c_radius = _halves(c_lo, c_hi)
        terms = int(np.diff(np.append(starts, len(c_lo))).max())
        x_middle, x_radius = _halves(lo, hi)
        gamma, reach, pad = _pads(terms, x_middle, x_radius)
        pad *= np.abs(c_middle)[:, None]
        if np.any(c_radius):
            reach *= c_radius[:, None]
            pad += reach
        x_middle *= c_middle[:, None]
        if len(starts) < len(c_lo):
            x_middle, pad = np.add.reduceat(x_middle, starts), np.add.reduceat(pad, starts)
        pad *= 1 + 2 * gamma
        pad += 5e-16 * np.abs(x_middle)
        pad += (4 * terms + 4) * FLOAT64_TINY
        return _opened(x_middle - pad, x_middle + pad)


def _extremes(products: Iterable[Floats]) -> Pair:
    first, *others = products
    lo, hi = np.array(first), np.asarray(first)
    for product in others:
        np.minimum(lo, product, out=lo)
        np.maximum(hi, product, out=hi)
    return lo, hi


def _mul(a: Pair, b: Pair) -> Pair:
    raw_lo, raw_hi = _extremes(x * y for x in a for y in b)
    if not _finite(raw_lo) and np.isnan(raw_lo).any():  # 0 * inf; an argument that is nan is put back at the end
        products = (x * y for x in a for y in b)
        raw_lo, raw_hi = _extremes(np.where(np.isnan(product), 0.0, product) for product in products)
    lo, hi = _down(raw_lo, _EXACT), _up(raw_hi, _EXACT)
    if raw_lo.all() and raw_hi.all():
        return lo, hi
    # padding around zero loses the sign; the factors know it, the product does not: it may have underflowed
    positive = ((a[0] >= 0) & (b[0] >= 0)) | ((a[1] <= 0) & (b[1] <= 0))
    negative = ((a[0] >= 0) & (b[1] <= 0)) | ((a[1] <= 0) & (b[0] >= 0))
    return np.where(positive, np.maximum(lo, 0.0), lo), np.where(negative, np.minimum(hi, 0.0), hi)


def _power_ends(x: Pair, p: int, q: int, library: Library) -> Pair:
    """[lo**e, hi**e] for e = p/q > 0 and 0 <= lo <= hi."""
    if (p, q) == (1, 1):
        return x
    if (p, q) == (2, 1) or (p, q) == (1, 2):
        root = np.sqrt if q == 2 else np.square
        return np.maximum(_down(root(x[0]), _EXACT), 0.0), _up(root(x[1]), _EXACT)
    if q == 1 and p <= 4:  # at most three roundings; where a square underflows the power vanishes
        lo, hi = (end * end * end if p == 3 else np.square(end * end) for end in x)
    else:  # the exponent itself lies between two floats
        below, above = enclose(p, q)
        lo = np.minimum(library["power"](x[0], below), library["power"](x[0], above))
        hi = np.maximum(library["power"](x[1], below), library["power"](x[1], above))
    return np.maximum(_down(lo), 0.0), _up(hi)


def _inverse(x: Pair) -> Pair:
    """1/x for 0 <= x, with 1/0 = inf."""
    return np.maximum(_down(1 / x[1], _EXACT), 0.0), _up(1 / x[0], _EXACT)


def _signed_power(x: Pair, k: int, library: Library) -> Pair:
    """Odd k > 0: the power of the magnitude at each end, with the sign of the end."""
    if k == 3:  # the common case
        cubes = x[0] * x[0] * x[0], x[1] * x[1] * x[1]
        if np.all(cubes[0]) and np.all(cubes[1]):  # at zero the padding would lose the sign
            return _down(cubes[0]), _up(cubes[1])
    below, above = (_power_ends((np.abs(end), np.abs(end)), k, 1, library) for end in x)
    return np.where(x[0] < 0, -below[1], below[0]), np.where(x[1] < 0, -above[0], above[1])


def _ipow(library: Library, x: Pair, k: int) -> Pair:
    if k > 0:
        return _signed_power(x, k, library) if k % 2 else _power_ends(_magnitudes(x), k, 1, library)
    lo, hi = _inverse(_power_ends(_magnitudes(x), -k, 1, library))
    if k % 2:
        left = x[1] < 0
        lo, hi = np.where(left, -hi, lo), np.where(left, -lo, hi)
    return _replaced((x[0] <= 0) & (x[1] >= 0), -np.inf, np.inf, (lo, hi))


def _rpow(library: Library, x: Pair, p: int, q: int) -> Pair:
    clipped = np.maximum(x[0], 0.0), np.maximum(x[1], 0.0)
    if p > 0:
        return _replaced(x[1] < 0, np.nan, np.nan, _power_ends(clipped, p, q, library))
    return _replaced(x[1] <= 0, np.nan, np.nan, _inverse(_power_ends(clipped, -p, q, library)))


def _increasing(function: Function, shape: Shape, domain: float, padding: tuple[float, float], x: Pair) -> Pair:
    """A function that grows; nan where all of the argument is below the domain."""
    if domain == -math.inf:
        return np.maximum(_down(function(x[0]), padding), shape.least), np.minimum(
            _up(function(x[1]), padding), shape.most
        )
    lo, hi = (function(np.maximum(end, domain)) for end in x)
    return _replaced(x[1] <= domain, np.nan, np.nan, (_down(lo, padding), _up(hi, padding)))


def _even(function: Function, shape: Shape, padding: tuple[float, float], x: Pair) -> Pair:
    near, far = (function(end) for end in _magnitudes(x))
    low, high = (near, far) if shape.kind == "rising" else (far, near)
    return np.maximum(_down(low, padding), shape.least), np.minimum(_up(high, padding), shape.most)


def _turns(x: Pair, shift: float) -> Pair:
    """x/pi - shift, wide enough that a whole number inside x is inside the result."""
    lo, hi = x[0] * (1 / math.pi), x[1] * (1 / math.pi)
    return lo - (1e-15 * np.abs(lo) + (shift + 1e-15)), hi + (1e-15 * np.abs(hi) - (shift - 1e-15))


def _far(x: Pair) -> Mask:
    return np.asarray((x[0] < -_PERIODIC) | (x[1] > _PERIODIC))


def _wave(function: Function, shift: float, x: Pair) -> Pair:
    first, last = _turns(x, shift)
    crest = (2 * np.floor(last / 2) >= first) | _far(x)
    trough = (2 * np.floor((last - 1) / 2) + 1 >= first) | _far(x)
    ends = function(x[0]), function(x[1])
    lo = np.maximum(_down(np.minimum(*ends)), -1.0)
    hi = np.minimum(_up(np.maximum(*ends)), 1.0)
    return np.where(trough, -1.0, lo), np.where(crest, 1.0, hi)


def _between_poles(function: Function, shift: float, x: Pair) -> Pair:
    first, last = _turns(x, shift)
    pole = (np.floor(last) >= first) | _far(x)
    return _replaced(pole, -np.inf, np.inf, (_down(function(x[0])), _up(function(x[1]))))


def _sign(x: Pair) -> Pair:
    return np.where(x[0] > 0, 1.0, -1.0), np.where(x[1] < 0, -1.0, 1.0)


def _negative(x: Pair) -> Pair:
    """1 where x < 0, 0 where x > 0, open where zero is inside or at an end, as in balls."""
    return np.where(x[1] < 0, 1.0, 0.0), np.where(x[0] > 0, 0.0, 1.0)


@np.errstate(all="ignore")
def _select(c: Pair, a: Pair, b: Pair) -> Pair:
    """One branch where c is certain, whatever the other is, nan included; the hull of both where it is not."""
    first, second = (c[0] > 0) | (c[1] < 0), (c[0] == 0) & (c[1] == 0)
    lo = np.where(first, a[0], np.where(second, b[0], np.minimum(a[0], b[0])))
    hi = np.where(first, a[1], np.where(second, b[1], np.maximum(a[1], b[1])))
    return _replaced(_unknown(c, (lo, hi)), np.nan, np.nan, (lo, hi))


def _checked(function: Callable[..., Pair]) -> Callable[..., Pair]:
    """Without warnings, and with nan in both ends where an argument has one."""

    @np.errstate(all="ignore")
    def apply(*arguments: Any) -> Pair:
        result = function(*arguments)
        pairs = [pair for pair in arguments if isinstance(pair, tuple)]
        if all(_finite(end) for pair in pairs for end in pair):
            return result
        return _replaced(_unknown(*pairs), np.nan, np.nan, result)

    return apply


def over_boxes(record: Operation, library: Library) -> Callable[..., Pair]:
    """The range of a function over intervals, from its values and from how it runs.

    >>> from bilevel_sym.graph.operations import OPERATIONS as RECORDS
    >>> [end.item() for end in over_boxes(RECORDS["cos"], NUMPY)((np.array(-4.0), np.array(4.0)))]
    [-1.0, 1.0]
    """
    shape, function = record.shape, library[record.name]
    padding = _COMPOSED if record.composed else _LIBRARY
    match shape.kind:
        case "monotone":
            return _checked(partial(_increasing, function, shape, record.domain, padding))
        case "rising" | "falling":
            return _checked(partial(_even, function, shape, padding))
        case "wave":
            return _checked(partial(_wave, function, shape.shift))
        case "branches":
            return _checked(partial(_between_poles, function, shape.shift))
    raise TypeError(f"{record.name} is no function")


def _operations(library: Library) -> Mapping[str, Callable[..., Pair]]:
    own: dict[str, Callable[..., Pair]] = {
        "mul": _mul,
        "ipow": partial(_ipow, library),
        "rpow": partial(_rpow, library),
        "abs": _magnitudes,
        "sign": _sign,
        "min": lambda a, b: (np.minimum(a[0], b[0]), np.minimum(a[1], b[1])),
        "max": lambda a, b: (np.maximum(a[0], b[0]), np.maximum(a[1], b[1])),
        "lt": _negative,
        "le": _negative,
    }
    return MappingProxyType(
        {name: over_boxes(record, library) for name, record in FUNCTIONS.items()}
        | {name: _checked(function) for name, function in own.items()}
        | {"select": _select, "pi": lambda: (np.array(math.pi), np.array(math.nextafter(math.pi, 4)))}
    )


def _where(certain: Callable[..., Mask], operation: Callable[..., Pair]) -> Callable[..., Pair]:
    """The operation, and nan where it is not certain that it is smooth all over the box."""

    @np.errstate(all="ignore")
    def apply(*arguments: Any) -> Pair:
        return _replaced(~certain(arguments[0]), np.nan, np.nan, operation(*arguments))

    return apply


def _has_sign(x: Pair) -> Mask:
    return np.asarray((x[0] > 0) | (x[1] < 0))


def _smooth(operations: Mapping[str, Callable[..., Pair]]) -> Mapping[str, Callable[..., Pair]]:
    certain: dict[str, Callable[[Pair], Mask]] = dict.fromkeys(("sign", "lt", "le"), _has_sign)
    certain["select"] = lambda c: np.asarray(_has_sign(c) | ((c[0] == 0) & (c[1] == 0)))
    for record in records.OPERATIONS.values():
        if record.domain > -math.inf:
            certain[record.name] = lambda x, least=record.domain: np.asarray(x[0] > least)  # type: ignore[misc]
    return MappingProxyType({**operations, **{name: _where(certain[name], operations[name]) for name in certain}})


OPERATIONS: Mapping[str, Callable[..., Pair]] = _operations(NUMPY)
"""Operation name -> function of pairs; integer parameters (of ``ipow``, ``rpow``) come last."""

SMOOTH: Mapping[str, Callable[..., Pair]] = _smooth(OPERATIONS)
"""For proofs that need smoothness all over a box: nan where a switch is open or a domain ends, as in balls."""

VALUES: Mapping[str, Callable[..., Pair]] = _operations(ARB)
"""``OPERATIONS`` with the elementary functions of Arb."""

PROVED: Mapping[str, Callable[..., Pair]] = _smooth(VALUES)
"""``SMOOTH`` with the elementary functions of Arb."""

OPEN: Mapping[str, Callable[..., Pair]] = MappingProxyType({**SMOOTH, "select": _select})
"""``SMOOTH``, but for switches that are numbers of their own: where one is open, the hull (see ``patterns``)."""

PROVED_OPEN: Mapping[str, Callable[..., Pair]] = MappingProxyType({**PROVED, "select": _select})
"""``OPEN`` with the elementary functions of Arb."""
