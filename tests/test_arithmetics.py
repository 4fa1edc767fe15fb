"""Multiprecision numbers, balls and intervals: one table of operations, each result against 60 digits of mpmath."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import flint
import mpmath
import numpy as np
import pytest
from flint import arb
from helpers import THOROUGH

from bilevel_sym.arithmetic import balls, intervals, scalars
from bilevel_sym.arithmetic.intervals import Pair
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.graph.operations import OPERATIONS as RECORDS
from bilevel_sym.typing import Floats

DIGITS = 60
BALL_BITS = 128
LARGEST = float(np.finfo(np.float64).max)

# name -> number of arguments, and the integer parameters to try
ARITY = {name: record.arity for name, record in RECORDS.items()}
PARAMETERS: dict[str, list[tuple[int, ...]]] = {
    "ipow": [(k,) for k in (2, 3, 4, 5, 8, 101, 1000, 10**17 + 1, -1, -2, -3, -4, -5, -64)],
    "rpow": [
        *((p, q) for p, q in itertools.product((1, -1, 3, -5, 13), (2, 3, 7))),
        *((7, 10), (1, 1000), (10**20 + 1, 10**20), (1, 2**70)),
    ],
}
CASES = [(name, parameter) for name in intervals.OPERATIONS for parameter in PARAMETERS.get(name, [()])]
POSITIVE = {name for name, record in RECORDS.items() if record.domain == 0}

# fmt: off
CORNERS = np.array([
    0, -0.0, 5e-324, 1e-320, 2.2250738585072014e-308, 1e-160, 1e-16, 1e-8, 1e-5, 0.25, 0.5, 1, 1.0000000000000002,
    0.9999999999999999, 2, 3, 4, 10, 36.7, 37.5, 40, 350, 709, 709.782712893384, 710.5, 740, 745.1, 746, 1e4, 99999.9, 1e5,
    1e8, 1e16, 1.3407807929942596e154, 1e155, 1e300, LARGEST,
])
# fmt: on


def centres(rng: np.random.Generator, count: int) -> Floats:
    """Numbers of every kind: random, exact, at the corners, next to multiples of pi/2, of any magnitude."""
    sign = rng.choice([-1.0, 1.0], count)
    quarter = rng.integers(0, 10 ** rng.integers(1, 5, count)) * (math.pi / 2)
    kinds = [
        rng.uniform(-4, 4, count),
        rng.uniform(-800, 800, count),
        rng.integers(-20, 21, count) / rng.choice([1, 2, 8], count),
        sign * rng.choice(CORNERS, count),
        sign * np.nextafter(quarter, rng.choice([-1e9, 0.0, 1e9], count)),
        sign * quarter,
        sign * 10.0 ** rng.uniform(-323, 308, count),
    ]
    return np.asarray(np.choose(rng.integers(0, len(kinds), count), kinds), dtype=np.float64)


def intervals_at(rng: np.random.Generator, middle: Floats) -> Pair:
    """Points, one ulp, narrow, wide, an end at zero, an end at infinity."""
    count = len(middle)
    with np.errstate(over="ignore"):
        width = np.choose(
            rng.integers(0, 6, count),
            [
                np.zeros(count),
                np.spacing(np.abs(np.clip(middle, -1e307, 1e307))),
                np.abs(middle) * 10.0 ** rng.uniform(-15, 0, count),
                rng.uniform(0, 4, count),
                10.0 ** rng.uniform(-300, 300, count),
                np.zeros(count),
            ],
        )
        lo, hi = middle - width * rng.uniform(0, 1, count) * (width > 0), middle + width
    kind = rng.integers(0, 20, count)
    lo, hi = np.where(kind == 0, np.minimum(0.0, hi), lo), np.where(kind == 1, np.maximum(0.0, lo), hi)
    lo, hi = np.where(kind == 0, lo, np.where(kind == 2, -np.inf, lo)), np.where(kind == 3, np.inf, hi)
    lo, hi = np.minimum(lo, middle), np.maximum(hi, middle)
    return np.clip(lo, -np.inf, LARGEST), np.clip(hi, -LARGEST, np.inf)


def arguments_for(name: str, rng: np.random.Generator, count: int) -> list[Pair]:
    pairs = [intervals_at(rng, centres(rng, count)) for _ in range(ARITY[name])]
    if name in POSITIVE:  # three in four inside the domain, the others anywhere
        inside = rng.integers(0, 4, count) > 0
        (lo, hi), size = pairs[0], np.abs(pairs[0][0])
        pairs[0] = (
            np.where(inside, np.minimum(size, np.abs(hi)), lo),
            np.where(inside, np.maximum(size, np.abs(hi)), hi),
        )
        pairs[0] = np.minimum(pairs[0][0], LARGEST), pairs[0][1]
    if name == "select":  # the condition is often exactly zero
        certain = rng.integers(0, 3, count) == 0
        pairs[0] = np.where(certain, 0.0, pairs[0][0]), np.where(certain, 0.0, pairs[0][1])
    return pairs


def points_inside(rng: np.random.Generator, pair: Pair) -> Floats:
    """One finite point of each interval: an end, somewhere between, or a place where something may happen."""
    lo, hi = np.maximum(pair[0], -LARGEST), np.minimum(pair[1], LARGEST)
    share = rng.uniform(0, 1, len(lo))
    quarter = np.floor(np.clip(hi, -1e6, 1e6) / (math.pi / 2)) * (math.pi / 2)
    beyond = np.minimum(lo, 1e308) + 10.0 ** (600 * share - 300)
    kinds = [lo, hi, lo * (1 - share) + hi * share, np.zeros(len(lo)), np.floor(hi), quarter, beyond]
    return np.asarray(np.clip(np.choose(rng.integers(0, len(kinds), len(lo)), kinds), lo, hi))


def ball_of(lo: float, hi: float) -> Any:
    return arb(lo) if lo == hi else arb(lo).union(arb(hi))


def ball_around(value: Any) -> Any:
    """The 60 digits, with a radius for what they leave out."""
    ball = arb(value)
    return ball + arb(0, 1) * abs(ball) * arb(10) ** (4 - DIGITS)


def contained(value: Any, lo: float, hi: float) -> bool:
    slack = abs(value) * mpmath.mpf(10) ** (4 - DIGITS) if mpmath.isfinite(value) else 0
    return bool(mpmath.mpf(lo) - slack <= value <= mpmath.mpf(hi) + slack)


def interval_ends(name: str, parameter: tuple[int, ...], pairs: list[Pair], count: int) -> list[list[float]]:
    """A few boxes at a time: one zero, nan or infinity takes a whole array off the fast path."""
    ends: list[list[float]] = [[], []]
    for start in range(0, count, 3):
        part = [(lo[start : start + 3], hi[start : start + 3]) for lo, hi in pairs]
        for found, end in zip(ends, intervals.OPERATIONS[name](*part, *parameter), strict=True):
            found.extend(np.broadcast_to(end, (min(3, count - start),)).tolist())
    return ends


def check_case(name: str, parameter: tuple[int, ...], count: int, rng: np.random.Generator) -> int:
    pairs = arguments_for(name, rng, count)
    places = [points_inside(rng, pair) for pair in pairs]
    ends = interval_ends(name, parameter, pairs, count)
    arguments = [[(float(lo), float(hi)) for lo, hi in zip(*pair, strict=True)] for pair in pairs]
    for i in range(count):
        point, box = [float(place[i]) for place in places], [argument[i] for argument in arguments]
        value = scalars.DIGITS.operations[name](*map(mpmath.mpf, point), *parameter)
        story = f"{name}{parameter}: box {box}, point {point}, value {value}"
        assert isinstance(value, mpmath.mpf), story
        lo, hi = ends[0][i], ends[1][i]
        assert not mpmath.isfinite(value) or contained(value, lo, hi), f"{story}, interval {(lo, hi)!r}"
        if all(map(math.isfinite, itertools.chain(*box))):
            ball = balls.OPERATIONS[name](*itertools.starmap(ball_of, box), *parameter)
            sound = ball.overlaps(ball_around(value)) if mpmath.isfinite(value) else not ball.is_finite()
            assert sound, f"{story}, ball {ball.str(40)}"
    return count


def containment_checks(count: int, seed: int) -> int:
    """Points of random arguments whose value lies in the interval and in the ball; how many were looked at."""
    rng = np.random.default_rng(seed)
    share = -(-count // len(CASES))
    with mpmath.workdps(DIGITS), balls.precision(BALL_BITS):
        return sum(check_case(name, parameter, share, rng) for name, parameter in CASES)


def test_the_three_arithmetics_have_the_same_operations() -> None:
    assert set(intervals.OPERATIONS) == set(balls.OPERATIONS) == set(scalars.DIGITS.operations)
    for operations in (intervals.OPERATIONS, balls.OPERATIONS, scalars.DIGITS.operations):
        with pytest.raises(TypeError):
            operations["exp"] = abs  # type: ignore[index]


@pytest.mark.slow
def test_results_contain_the_true_values() -> None:
    assert containment_checks(5_000, seed=0) >= 5_000


@pytest.mark.slow
def test_results_contain_the_true_values_at_length() -> None:
    if not THOROUGH:
        pytest.skip("only with --hypothesis-profile=thorough")
    assert containment_checks(200_000, seed=1) >= 200_000


# --- the assumption of the intervals, and mpmath.iv ---------------------------------------------------------------------


def library_arguments(rng: np.random.Generator, count: int) -> dict[str, Floats]:
    """Where NumPy's functions are put to the test: all magnitudes, next to zeros and poles, subnormal results."""
    quarter = rng.integers(0, 10 ** rng.integers(1, 5, count)) * (math.pi / 2)
    near = np.nextafter(quarter, rng.choice([-1.0, 1e9], count))
    small = 10.0 ** rng.uniform(-320, 0, count)
    angles = np.concatenate([rng.uniform(-1e5, 1e5, count), near, rng.uniform(-7, 7, count), small])
    growth = np.concatenate([rng.uniform(-709.7, 709.7, count), rng.uniform(-1, 1, count), small])
    sizes = np.concatenate([10.0 ** rng.uniform(-322, 308, count), 1 + rng.uniform(-1e-8, 1e-8, count)])
    fading = np.concatenate([growth, rng.uniform(-745, -708, count)])
    return {
        **{name: angles if record.is_periodic else growth for name, record in FUNCTIONS.items()},
        "exp": fading,
        "log": sizes,
        "rpow": sizes,
        "log1p": small,
    }


LIBRARY: dict[str, tuple[Callable[[Floats], Floats], Callable[[Any], Any]]] = {
    name: (record.rule("numpy"), balls.OPERATIONS[name]) for name, record in FUNCTIONS.items() if not record.composed
} | {
    "log1p": (np.log1p, lambda x: x.log1p()),
    "rpow": (lambda x: np.asarray(np.power(x, 0.875)), lambda x: balls.OPERATIONS["rpow"](x, 7, 8)),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_numpy_errs_by_less_than_the_padding_assumes(name: str) -> None:
    function, exact = LIBRARY[name]
    points = library_arguments(np.random.default_rng(2), 2000)[name]
    worst = 0.0
    with balls.precision(140):
        for point, value in zip(points.tolist(), function(points).tolist(), strict=True):
            worst = max(worst, float(abs((arb(value) - exact(arb(point))) / math.ulp(value)).upper()))
    assert 0.1 < worst < 4, f"np.{name} is {worst} ulp off"


@pytest.mark.parametrize("x", [2.0**-52, 2.0**-42, 2.0**-22])
def test_mpmath_iv_misses_exp_and_we_do_not(x: float) -> None:
    lower_bound = 1 + Fraction(x) + Fraction(x) ** 2 / 2 + Fraction(x) ** 3 / 6  # exp(x) is larger, for x > 0
    upper_end = mpmath.iv.exp(mpmath.iv.mpf(x)).b  # at the 53 bits of mpmath.iv
    numerator, denominator = (int(part) for part in mpmath.libmp.to_rational(upper_end._mpi_[1]))
    assert Fraction(numerator, denominator) < lower_bound, "mpmath.iv was repaired: DESIGN says why it is not trusted"
    lo, hi = intervals.OPERATIONS["exp"]((np.array(x), np.array(x)))
    assert Fraction(float(lo)) < lower_bound < Fraction(float(hi))
    ball = balls.OPERATIONS["exp"](arb(x))
    with balls.precision(400):
        assert ball.contains(arb(x).exp())


# --- tightness: [-inf, inf] is sound too --------------------------------------------------------------------------------

PLAIN = [0.3, 0.75, 1.0, 1.5, 2.7]


def in_domain(sign: int) -> Iterator[tuple[str, tuple[int, ...], list[float]]]:
    """(name, parameters, arguments) at ordinary numbers of one sign."""
    for name, parameter in CASES:
        steep = bool(parameter) and abs(parameter[0]) >= 1000 and len(parameter) == 1
        if name not in ("pi", "select") and not steep and not (name in POSITIVE and sign < 0):
            for point in PLAIN:
                yield name, parameter, [sign * point, *([0.7] * (ARITY[name] - 1))]


@pytest.mark.parametrize("sign", [1, -1])
def test_points_give_intervals_of_a_few_ulp(sign: int) -> None:
    correctly_rounded = {("mul", ()), ("ipow", (2,)), ("ipow", (-1,)), ("rpow", (1, 2))}
    limits = {"rpow": 30, **dict.fromkeys(("abs", "sign", "min", "max", "lt", "le"), 0)}
    limits |= {name: 52 for name, record in FUNCTIONS.items() if record.composed}
    for name, parameter, point in in_domain(sign):
        lo, hi = intervals.OPERATIONS[name](*((np.array(p), np.array(p)) for p in point), *parameter)
        limit = 5 if (name, parameter) in correctly_rounded else limits.get(name, 22)
        assert 0 <= hi - lo <= limit * 2.3e-16 * abs(hi) + 1e-300 * (limit > 0), (name, parameter, point)


@pytest.mark.parametrize("sign", [1, -1])
def test_points_give_balls_of_200_bits(sign: int) -> None:
    with balls.precision(200):
        for name, parameter, point in in_domain(sign):
            ball = balls.OPERATIONS[name](*map(arb, point), *parameter)
            assert ball.is_exact() or ball.rel_accuracy_bits() > 185, (name, parameter, point)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softplus", "sigmoid", "bell"])
@pytest.mark.parametrize("z", [0.0, 1e-30, 0.5, -0.5, 40.0, -40.0, 1e4, -1e4, 1e8, -1e8])
def test_stable_functions_keep_their_relative_digits(name: str, z: float) -> None:
    with mpmath.workprec(1000 + 2 * abs(int(min(abs(z), 2e4)))):
        e = mpmath.exp(-abs(mpmath.mpf(z)))  # the plain formulas, in as many digits as they need
        exact = {
            "softplus": max(z, 0) + mpmath.log(1 + e),
            "sigmoid": (e if z < 0 else 1) / (1 + e),
            "bell": e / (1 + e) ** 2,
        }[name]
        if name == "softplus" and z == -1e8:
            exact = e - e**2 / 2  # exp(-1e8) has 1.4e8 bits after the point
    with mpmath.workprec(200):
        assert abs(scalars.DIGITS.operations[name](mpmath.mpf(z)) / exact - 1) < mpmath.mpf(2) ** -195
    with balls.precision(200):
        ball = balls.OPERATIONS[name](arb(z))
        assert ball.rel_accuracy_bits() > 190
    with mpmath.workprec(260):
        assert ball.overlaps(arb(+exact) * (1 + arb(0, 1) * arb(2) ** -250))


@pytest.mark.parametrize("name", ["softplus", "sigmoid", "bell", "tanh", "exp"])
@pytest.mark.parametrize("z", [1e300, -1e300])
def test_far_away_nothing_overflows(name: str, z: float) -> None:
    limit = {"softplus": 1e300, "tanh": z / 1e300, "sigmoid": 1.0}.get(name, 0.0) if z > 0 or name == "tanh" else 0.0
    value, ball = scalars.DIGITS.operations[name](mpmath.mpf(z)), balls.OPERATIONS[name](arb(z))
    if (name, z) == ("exp", 1e300):
        assert not ball.is_finite()
        return
    assert abs(value - limit) <= 1e-15 * abs(limit) + 1e-300
    assert abs(ball - limit) < 1e-15 * abs(limit) + 1e-300


WIDE = [(-20.0, 20.0), (-5.0, 1.0), (0.0, 3.0), (-1e4, 1e4), (2.0, 2.5), (-1e-3, 1e-3), (-3.0, -1.0), (1e4, 2e4)]
MONOTONE = [name for name, r in FUNCTIONS.items() if r.shape.kind == "monotone" and not r.is_partial]


@pytest.mark.parametrize(("lo", "hi"), WIDE)
def test_wide_arguments_give_the_range_and_little_more(lo: float, hi: float) -> None:
    reach = max(-lo, hi), max(lo, -hi, 0.0)
    ends: dict[tuple[str, tuple[int, ...]], tuple[float, float]] = {(name, ()): (lo, hi) for name in MONOTONE}
    ends |= {
        ("ipow", (3,)): (lo, hi),
        ("ipow", (2,)): reach,
        ("ipow", (100,)): reach,
        ("cosh", ()): reach,
        ("bell", ()): reach,
    }
    ends |= {("abs", ()): reach}
    if lo >= 0:
        ends |= {("rpow", (2, 3)): (lo, hi), ("rpow", (1, 2)): (lo, hi)}
    for (name, parameter), points in ends.items():
        with balls.precision(BALL_BITS):
            first, last = sorted(
                (balls.OPERATIONS[name](arb(p), *parameter) for p in points), key=lambda ball: ball.mid()
            )
            argument = arb(lo).union(arb(hi))  # which reaches a little below lo = 0
            ball = balls.OPERATIONS[name](argument.nonnegative_part() if lo == 0 else argument, *parameter)
            width = last.upper() - first.lower()
            assert ball.rad() * 2 <= width * 1.001 + abs(last) * 1e-4, (name, ball)
            assert ball >= 0 or RECORDS[name].parity == "odd" or parameter == (3,), (name, ball)
        low, high = intervals.OPERATIONS[name]((np.array(lo), np.array(hi)), *parameter)
        assert float(low) == pytest.approx(min(float(first), LARGEST), rel=1e-13, abs=1e-300)
        assert float(high) == pytest.approx(float(last), rel=1e-13, abs=1e-300)


@pytest.mark.parametrize(
    ("name", "lo", "hi", "expected"),
    [
        ("sin", 1.0, 2.0, (math.sin(1), 1)),
        ("sin", 4.0, 5.0, (-1, math.sin(4))),
        ("sin", -1.0, 1.0, (-math.sin(1), math.sin(1))),
        ("cos", -1.0, 0.5, (math.cos(1), 1)),
        ("cos", 3.0, 3.5, (-1, math.cos(3.5))),
        ("cos", 3.5, 6.0, (math.cos(3.5), math.cos(6))),
        ("cos", 0.5, 7.0, (-1, 1)),
        ("cos", 2e5, 2e5, (-1, 1)),
        ("sin", 1e300, 1e300, (-1, 1)),
        ("tan", -1.5, 1.5, (math.tan(-1.5), math.tan(1.5))),
        ("tan", 1.5, 1.6, (-math.inf, math.inf)),
        ("tan", 1.6, 4.7, (math.tan(1.6), math.tan(4.7))),
        ("tan", 2e5, 2e5, (-math.inf, math.inf)),
        ("exp", -1e3, 1e3, (0, math.inf)),
        ("exp", 1e3, 2e3, (LARGEST, math.inf)),
        ("sinh", -2e3, -1e3, (-math.inf, -LARGEST)),
        ("log", -1.0, 1.0, (-math.inf, 0)),
        ("log", -2.0, -1.0, (math.nan, math.nan)),
        ("log", -2.0, 0.0, (math.nan, math.nan)),
        ("sign", 0.0, 0.0, (-1, 1)),
        ("lt", 0.0, 1.0, (0, 1)),
        ("le", -1.0, 0.0, (0, 1)),
        ("lt", -2.0, -1.0, (1, 1)),
        ("abs", -2.0, 1.0, (0, 2)),
    ],
)
def test_intervals_with_known_ends(name: str, lo: float, hi: float, expected: tuple[float, float]) -> None:
    found = intervals.OPERATIONS[name]((np.array([lo]), np.array([hi])))
    assert [float(end[0]) for end in found] == pytest.approx(list(expected), rel=1e-14, abs=1e-300, nan_ok=True)


def test_poles_between_two_neighbouring_floats() -> None:
    odd = range(1, 60_000, 14)
    with mpmath.workdps(DIGITS):
        poles = [k * mpmath.pi / 2 for k in odd]
        near = np.array([float(pole) for pole in poles])
        beyond = np.array([mpmath.mpf(x) > pole for x, pole in zip(near.tolist(), poles, strict=True)])
    lo, hi = np.where(beyond, np.nextafter(near, 0), near), np.where(beyond, near, np.nextafter(near, np.inf))
    for pair, sign in (((lo, hi), 1), ((-hi, -lo), -1)):
        tangent = intervals.OPERATIONS["tan"](pair)
        assert np.all(np.isneginf(tangent[0]) & np.isposinf(tangent[1]))
        crest = intervals.OPERATIONS["sin"](pair)[1 if sign > 0 else 0]
        top = np.array([k % 4 == 1 for k in odd])  # sin(k pi/2) = 1, and -1 at the mirror image
        assert np.all(crest[top] == sign)
    assert np.all(np.isfinite(intervals.OPERATIONS["tan"]((lo - 1, lo - 1e-9))))


def test_cubes_at_zero_keep_their_sign() -> None:
    for ends, expected in [
        ((0.0, 1.0), (0, 1)),
        ((-1.0, 0.0), (-1, 0)),
        ((1e-200, 1.0), (0, 1)),
        ((-1.0, -1e-200), (-1, 0)),
    ]:
        lo, hi = (float(end) for end in intervals.OPERATIONS["ipow"](tuple(map(np.array, ends)), 3))
        assert (lo, hi) == pytest.approx(expected, rel=1e-14, abs=1e-300)
        assert lo == 0 if expected[0] == 0 else ends[1] == 0 or hi <= 0


def test_powers_at_zero() -> None:
    pair = np.array([-1.0, 0.0, 1.0, -2.0]), np.array([2.0, 1.0, 2.0, -1.0])
    for k, lower, upper in [
        (-2, [-np.inf, -np.inf, 0.25, 0.25], [np.inf, np.inf, 1, 1]),
        (-1, [-np.inf, -np.inf, 0.5, -1], [np.inf, np.inf, 1, -0.5]),
    ]:
        lo, hi = intervals.OPERATIONS["ipow"](pair, k)
        np.testing.assert_allclose(lo, lower, rtol=1e-14)
        np.testing.assert_allclose(hi, upper, rtol=1e-14)
    lo, hi = intervals.OPERATIONS["rpow"](pair, -1, 2)
    np.testing.assert_allclose(lo, [0.5**0.5, 1, 0.5**0.5, np.nan], rtol=1e-14)
    np.testing.assert_allclose(hi, [np.inf, np.inf, 1, np.nan], rtol=1e-14)
    lo, hi = intervals.OPERATIONS["rpow"](pair, 1, 3)
    np.testing.assert_allclose(lo, [0, 0, 1, np.nan], rtol=1e-14, atol=1e-300)


def test_products_of_infinite_ends() -> None:
    a = np.array([0.0, 0.0, -1.0, 1.0, -np.inf]), np.array([0.0, 1.0, 0.0, np.inf, np.inf])
    b = np.array([-np.inf, 1.0, -np.inf, -np.inf, 0.0]), np.array([np.inf, np.inf, 2.0, -1.0, 0.0])
    lo, hi = intervals.OPERATIONS["mul"](a, b)
    np.testing.assert_allclose(lo, [0, 0, -2, -np.inf, 0], atol=1e-300)
    np.testing.assert_allclose(hi, [0, np.inf, np.inf, -1, 0], atol=1e-300)


def test_products_that_underflow_keep_their_sign() -> None:
    tiny, nothing = np.array([1e-200, -1e-200]), np.zeros(2)
    lo, hi = intervals.OPERATIONS["mul"]((tiny, tiny), (np.abs(tiny), np.abs(tiny)))
    assert lo[0] == 0 < hi[0]
    assert lo[1] < 0 == hi[1]
    assert [end.tolist() for end in intervals.OPERATIONS["mul"]((tiny, tiny), (nothing, nothing))] == [[0, 0], [0, 0]]


@pytest.mark.parametrize(("name", "parameter"), [case for case in CASES if case[0] != "pi"])
@pytest.mark.parametrize("end", [0, 1])
def test_nan_goes_to_both_ends(name: str, parameter: tuple[int, ...], end: int) -> None:
    for bad in range(ARITY[name]):
        pairs = [(np.full((2, 2), 1.0), np.full((2, 2), 2.0)) for _ in range(ARITY[name])]
        pairs[bad][end][0, 1] = np.nan
        if name == "select" and bad == 2:  # the branch that is not taken
            pairs[0] = np.zeros((2, 2)), np.zeros((2, 2))
        lo, hi = intervals.OPERATIONS[name](*pairs, *parameter)
        assert np.isnan(lo).tolist() == np.isnan(hi).tolist() == [[False, True], [False, False]]


def test_select_ignores_the_branch_that_is_certainly_not_taken() -> None:
    c = np.array([0.0, 1.0, 0.0, -1.0]), np.array([0.0, 2.0, 1.0, 1.0])
    a, b = (
        (np.full(4, 3.0), np.full(4, 4.0)),
        (np.array([1.0, np.nan, 1.0, np.nan]), np.array([2.0, np.nan, 2.0, np.nan])),
    )
    lo, hi = intervals.OPERATIONS["select"](c, a, b)
    np.testing.assert_array_equal(lo, [1, 3, 1, np.nan])
    np.testing.assert_array_equal(hi, [2, 4, 4, np.nan])
    assert balls.OPERATIONS["select"](arb(1), arb(3), arb("nan")) == 3
    assert balls.OPERATIONS["select"](arb(0), arb("nan"), arb(3)) == 3
    hull = balls.OPERATIONS["select"](balls.OPERATIONS["lt"](arb(0)), arb(3), arb(4))
    assert hull.contains(3)
    assert hull.contains(4)
    assert not hull.contains(5)
    assert balls.OPERATIONS["select"](arb(0, 1), arb(3), arb("nan")).is_nan()


# --- balls --------------------------------------------------------------------------------------------------------------


def test_python_flint_loses_even_powers_around_zero_and_we_do_not() -> None:
    assert not (arb(0, 1) ** 2).is_finite(), "python-flint was repaired"
    square = balls.OPERATIONS["ipow"](arb(0, 1), 2)
    assert square.contains(arb(0)) and square.contains(arb(1))  # noqa: PT018
    assert square >= 0
    assert square < 1.0001


@pytest.mark.parametrize("name", ["lt", "le", "sign"])
@pytest.mark.parametrize("ball", [arb(0), arb(0, 1), arb(0).union(arb(1)), arb(0).union(arb(-1))])
def test_balls_at_a_switching_point_are_open(name: str, ball: Any) -> None:
    result = balls.OPERATIONS[name](ball)
    assert all(result.contains(arb(value)) for value in ((-1, 0, 1) if name == "sign" else (0, 1)))
    assert balls.OPERATIONS["sign"](arb(-3, 1)) == -1
    assert balls.OPERATIONS["lt"](arb(-3, 1)) == 1
    assert balls.OPERATIONS["le"](arb(3, 1)) == 0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("log", (arb(0),)),
        ("log", (arb(-1),)),
        ("log", (arb(0, 1),)),
        ("rpow", (arb(0, 1), 1, 2)),
        ("rpow", (arb(-1), 1, 3)),
        ("rpow", (arb(0), -1, 2)),
        ("ipow", (arb(0), -1)),
        ("ipow", (arb(0, 1), -2)),
        ("tan", (arb(0, 2),)),
    ],
)
def test_balls_outside_the_domain_claim_nothing(name: str, arguments: tuple[Any, ...]) -> None:
    assert not balls.OPERATIONS[name](*arguments).is_finite()


@pytest.mark.parametrize(("name", "parameter"), CASES)
@pytest.mark.parametrize("ball", [arb("nan"), arb("inf"), arb("-inf"), arb(0, float("inf"))])
def test_balls_without_bounds_never_raise(name: str, parameter: tuple[int, ...], ball: Any) -> None:
    for place in range(ARITY[name]):
        arguments = [arb(1)] * ARITY[name]
        arguments[place] = ball
        result = balls.OPERATIONS[name](*arguments, *parameter)
        unused = name == "select" and place == 2
        assert unused or not ball.is_nan() or result.is_nan()


def test_precision_comes_back() -> None:
    before = flint.ctx.prec
    with balls.precision(before + 77):
        assert flint.ctx.prec == before + 77
    with pytest.raises(ZeroDivisionError), balls.precision(before + 77):
        _ = 1 / 0
    assert flint.ctx.prec == before


# --- multiprecision -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("log", (-1,)),
        ("rpow", (-1, 1, 3)),
        ("rpow", (0, -1, 2)),
        ("ipow", (0, -1)),
        ("log", ("nan",)),
        ("sin", ("inf",)),
        ("min", ("nan", 1)),
        ("max", (1, "nan")),
        ("lt", ("nan",)),
        ("sign", ("nan",)),
        ("select", ("nan", 1, 2)),
    ],
)
def test_multiprecision_outside_the_domain_is_nan(name: str, arguments: tuple[Any, ...]) -> None:
    count = ARITY[name]
    value = scalars.DIGITS.operations[name](*map(mpmath.mpf, arguments[:count]), *arguments[count:])
    assert isinstance(value, mpmath.mpf)
    assert mpmath.isnan(value)


def test_constants_are_rounded_once() -> None:
    p, q = 3**200 + 1, 7**150
    for bits in (53, 100, 300):
        with mpmath.workprec(bits), balls.precision(bits):
            man, exp = scalars.DIGITS.constant(p, q).man_exp
            assert abs(Fraction(int(man)) * Fraction(2) ** int(exp) * q / p - 1) <= Fraction(1, 2**bits)
            assert (balls.constant(p, q) * q).contains(arb(flint.fmpz(p)))
    assert balls.OPERATIONS["pi"]().rel_accuracy_bits() > 50
    lo, hi = intervals.OPERATIONS["pi"]()
    with balls.precision(100):
        assert arb(float(lo)) < arb.pi() < arb(float(hi))


# --- rationals and linear combinations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        Fraction(0),
        Fraction(1, 3),
        Fraction(-1, 3),
        Fraction(5, 4),
        Fraction(2**60 + 1),
        Fraction(-(2**53) - 1),
        Fraction(1, 10**400),
        Fraction(-1, 10**400),
        Fraction(10**400),
        Fraction(-(10**400)),
        Fraction(5e-324) / 3,
        Fraction(LARGEST),
        Fraction(LARGEST) + 1,
    ],
)
def test_enclose_is_tightest(value: Fraction) -> None:
    lo, hi = intervals.enclose(value.numerator, value.denominator)
    assert (lo, hi) == intervals.enclose(-value.numerator, -value.denominator)
    assert math.isinf(lo) or Fraction(lo) <= value
    assert math.isinf(hi) or value <= Fraction(hi)
    exact = math.isfinite(lo) and Fraction(lo) == value
    assert hi == (lo if exact else math.nextafter(lo, math.inf))


def magnitudes(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Floats:
    sign = rng.choice([-1.0, 1.0], shape)
    exponents = {"plain": (-1, 1), "huge": (290, 308), "tiny": (-323, -300), "mixed": (-150, 150), "all": (-323, 308)}[
        kind
    ]
    return np.asarray(sign * 10.0 ** rng.uniform(*exponents, shape) * (rng.uniform(size=shape) < 0.8))


def around(rng: np.random.Generator, middle: Floats) -> Pair:
    """Points, neighbours, or wide."""
    width = np.choose(
        rng.integers(0, 3, middle.shape), [np.zeros(middle.shape), np.spacing(middle * 0.9), np.abs(middle) * 0.3]
    )
    return middle - np.abs(width), middle + np.abs(width)


def exact_range(c: Pair, k: Pair, x: Pair, row: int, column: int) -> tuple[Fraction, Fraction, Fraction]:
    """The true ends of one entry, and the size of what is summed."""
    lower, upper, size = (
        Fraction(k[0][row]),
        Fraction(k[1][row]),
        max(abs(Fraction(k[0][row])), abs(Fraction(k[1][row]))),
    )
    for j in range(c[0].shape[1]):
        products = [Fraction(a[row, j]) * Fraction(b[j, column]) for a in c for b in x]
        lower, upper, size = lower + min(products), upper + max(products), size + max(map(abs, products))
    return lower, upper, size


@pytest.mark.slow
@pytest.mark.parametrize("c_kind", ["plain", "huge", "tiny", "mixed", "all"])
@pytest.mark.parametrize("x_kind", ["plain", "huge", "tiny", "mixed", "all"])
def test_linear_contains_the_exact_range(c_kind: str, x_kind: str) -> None:
    rng = np.random.default_rng(3)
    for terms, exact in itertools.product((0, 1, 3, 17), (True, False)):
        c, k, x = (
            around(rng, magnitudes(rng, shape, kind))
            for shape, kind in (((3, terms), c_kind), ((3,), x_kind), ((terms, 4), x_kind))
        )
        if exact:  # points: only rounding is left
            c, k, x = (c[0], c[0]), (k[0], k[0]), (x[0], x[0])
        lo, hi = intervals.linear(*c, *k, *x)
        for row, column in itertools.product(range(3), range(4)):
            lower, upper, size = exact_range(c, k, x, row, column)
            found = float(lo[row, column]), float(hi[row, column])
            assert math.isinf(found[0]) or Fraction(found[0]) <= lower, (c, k, x, row, column)
            assert math.isinf(found[1]) or upper <= Fraction(found[1]), (c, k, x, row, column)
            if size < Fraction(1e307):
                denormals = 1 + terms + sum(map(Fraction, np.abs([*c[1][row], *x[1][:, column]])))
                slack = size * (Fraction(terms + 40) * Fraction(1e-15) + (0 if exact else 1)) + denormals * Fraction(
                    1e-322
                )
                assert Fraction(found[1]) - Fraction(found[0]) <= upper - lower + slack


def test_linear_with_cancellation() -> None:
    c = np.array([[1e16, 1.0, -1e16], [1.0, -1.0, 0.0]])
    x = np.array([[1.0], [0.3], [1.0]])
    lo, hi = intervals.linear(c, c, np.zeros(2), np.zeros(2), x, x)
    assert lo[0, 0] <= 0.3 <= hi[0, 0]
    assert hi[0, 0] - lo[0, 0] < 200
    assert Fraction(float(lo[1, 0])) <= 1 - Fraction(0.3) <= Fraction(float(hi[1, 0]))
    assert hi[1, 0] - lo[1, 0] < 1e-14


def test_linear_with_cancellation_of_subnormal_numbers() -> None:
    # one order of summation or another loses the small term, and gamma times 2**-1060 underflows
    orders = list(itertools.permutations([2.0**1000, 1.5 * 2.0**946, -(2.0**1000)]))
    c, k, x = np.array(orders), np.zeros(len(orders)), np.full((3, 1), 2.0**-1060)
    lo, hi = intervals.linear(c, c, k, k, x, x)
    exact = 1.5 * 2.0**-114
    assert np.all((lo <= exact) & (exact <= hi))
    assert np.all(hi - lo < 2.0**-60)


def test_linear_of_many_columns() -> None:
    rng = np.random.default_rng(4)
    c, k, x = rng.normal(size=(40, 300)), rng.normal(size=40), rng.normal(size=(300, 1001))
    lo, hi = intervals.linear(c, c, k, k, x - 0.01, x + 0.01)
    middle, radius = c @ x + k[:, None], np.abs(c).sum(axis=1, keepdims=True) * 0.01
    np.testing.assert_allclose(lo, middle - radius, atol=1e-9)
    np.testing.assert_allclose(hi, middle + radius, atol=1e-9)
    assert np.all((lo < middle - radius + 1e-12) & (middle + radius < hi + 1e-12))


def test_linear_leaves_alone_rows_with_a_zero_coefficient() -> None:
    c = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -2.0], [1.0, 1.0], [0.0, 0.0]])
    k = np.array([0.0, 1.0, 0.0, 0.0, 5.0])
    lo = np.array([[1.0, 1.0, 1.0, -np.inf], [3.0, -np.inf, np.nan, 3.0]])
    hi = np.array([[2.0, 2.0, 2.0, np.inf], [np.inf, np.inf, np.nan, 3.0]])
    found = intervals.linear(c, c, k, k, lo, hi)
    inf, nan = np.inf, np.nan
    lower = np.array([[1, 1, 1, -inf], [4, -inf, nan, 4], [-inf, -inf, nan, -6], [4, -inf, nan, -inf], [5, 5, 5, 5]])
    upper = np.array([[2, 2, 2, inf], [inf, inf, nan, 4], [-6, inf, nan, -6], [inf, inf, nan, inf], [5, 5, 5, 5]])
    np.testing.assert_allclose(found[0], lower, rtol=1e-13)
    np.testing.assert_allclose(found[1], upper, rtol=1e-13)
    assert np.all((found[0] <= lower) | np.isnan(lower))
    assert np.all((found[1] >= upper) | np.isnan(upper))


def test_linear_with_overflow_claims_nothing() -> None:
    c, x = np.array([[1e200, 1e200, -1e200]]), np.full((3, 1), 1e200)
    lo, hi = intervals.linear(c, c, np.zeros(1), np.zeros(1), x, x)
    assert (lo[0, 0], hi[0, 0]) == (-np.inf, np.inf)
