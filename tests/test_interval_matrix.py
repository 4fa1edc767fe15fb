"""Interval matrices against exact rational arithmetic and sampled members; elementary functions against mpmath."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import hypothesis.strategies as st
import mpmath
import numpy as np
import pytest
import sympy as sp
from flint import arb, fmpq
from hypothesis import given
from hypothesis.extra.numpy import arrays

from bilevel_sym.arithmetic import intervals
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.elementary import ARB, NUMPY
from bilevel_sym.arithmetic.linear_algebra import definiteness
from bilevel_sym.graph import operations
from bilevel_sym.typing import Floats
from verify.enclosures.interval_matrix import Matrices, Pencil, neumann_bound, radius_norm

SIZES = [(1, 1), (2, 2), (3, 3), (2, 3), (3, 1), (1, 4)]
SCALES = [1.0, 1e-160, 1e150, 5e-324]


def some(rng: np.random.Generator, shape: tuple[int, ...], scale: float = 1.0, width: float = 0.3) -> Matrices:
    middle = rng.standard_normal(shape) * scale
    return Matrices.around(middle, np.abs(rng.standard_normal(shape)) * width * scale)


def members(rng: np.random.Generator, a: Matrices, count: int) -> list[Floats]:
    """Matrices inside, many of them at the ends."""
    shares = rng.choice([-1.0, 1.0, 0.0, 0.37], (count, *a.middle.shape))
    return [a.middle + share * a.radius * (1 - 1e-9) for share in shares]


def exact(matrix: Floats) -> list[list[Fraction]]:
    return [[Fraction(value) for value in row] for row in matrix.tolist()]


def holds(a: Matrices, truth: list[list[Fraction]]) -> bool:
    """Whether |truth - middle| <= radius in exact arithmetic; an infinite radius holds everything."""
    pairs = itertools.product(range(len(truth)), range(len(truth[0])))
    return all(
        not math.isfinite(a.radius[0, i, j])
        or abs(truth[i][j] - Fraction(float(a.middle[0, i, j]))) <= Fraction(float(a.radius[0, i, j]))
        for i, j in pairs
    )


# --- arithmetic, in exact rationals -----------------------------------------------------------------


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_sums_and_products_hold_the_exact_ones(rows: int, columns: int, scale: float) -> None:
    rng = np.random.default_rng(1)
    a, b = some(rng, (1, rows, columns), scale, 0.0), some(rng, (1, rows, columns), scale * 1e-3, 0.0)
    c = some(rng, (1, columns, 2), min(scale, 1.0), 0.0)
    left, right, other = exact(a.middle[0]), exact(b.middle[0]), exact(c.middle[0])
    assert holds(a + b, [[p + q for p, q in zip(*pair, strict=True)] for pair in zip(left, right, strict=True)])
    assert holds(a - b, [[p - q for p, q in zip(*pair, strict=True)] for pair in zip(left, right, strict=True)])
    product = [[sum((p * q for p, q in zip(row, column, strict=True)), Fraction(0)) for column in zip(*other, strict=True)]
               for row in left]  # fmt: skip
    assert holds(a @ c, product)
    assert holds(a.scaled(0.1), [[Fraction(0.1) * p for p in row] for row in left])


@given(arrays(np.float64, (2, 3), elements=st.floats(-1e100, 1e100)), st.floats(0, 1e90))
def test_ends_lie_around_the_interval(middle: Floats, radius: float) -> None:
    a = Matrices.around(middle[None], radius)
    for low, high, value in zip(a.lower.ravel(), a.upper.ravel(), middle.ravel(), strict=True):
        assert Fraction(float(low)) <= Fraction(float(value)) - Fraction(radius)
        assert Fraction(float(high)) >= Fraction(float(value)) + Fraction(radius)
    back = Matrices.between(a.lower, a.upper)
    for low, high, m, r in zip(*(part.ravel() for part in (a.lower, a.upper, back.middle, back.radius)), strict=True):
        assert Fraction(float(m)) - Fraction(float(r)) <= Fraction(float(low))
        assert Fraction(float(m)) + Fraction(float(r)) >= Fraction(float(high))


def test_sums_and_products_of_wide_ones_hold_their_members() -> None:
    rng = np.random.default_rng(2)
    for _ in range(30):
        a, b, c = some(rng, (1, 2, 3)), some(rng, (1, 2, 3)), some(rng, (1, 3, 2))
        total, product, met = a + b, a @ c, a.meet(a.scaled(1.0))
        for p, q, r in zip(members(rng, a, 8), members(rng, b, 8), members(rng, c, 8), strict=True):
            assert holds(total, [[x + y for x, y in zip(*pair, strict=True)] for pair in zip(exact(p[0]), exact(q[0]), strict=True)])  # fmt: skip
            assert np.all(np.abs(p @ r - product.middle) <= product.radius * (1 + 1e-12))
            assert np.all((met.lower <= p) & (p <= met.upper))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_solutions_hold_those_of_all_members(size: int) -> None:
    rng = np.random.default_rng(3)
    for width in (0.0, 1e-9, 0.02):
        a = Matrices.around(rng.standard_normal((20, size, size)) + 3 * np.eye(size), width)
        b = some(rng, (20, size, 2), 1.0, width)
        x = a.solve(b)
        for p, q in zip(members(rng, a, 6), members(rng, b, 6), strict=True):
            truth = np.linalg.solve(p, q)
            known = np.isfinite(x.radius)
            assert np.all((np.abs(truth - x.middle) <= x.radius * (1 + 1e-6) + 1e-13) | ~known)
            assert known.mean() > 0.8
    with precision(200):
        thin = Matrices.around(rng.standard_normal((1, size, size)) + 3 * np.eye(size))
        right = Matrices.around(rng.standard_normal((1, size, 1)))
        solution = thin.solve(right)
        values = (
            sp.Matrix(thin.middle[0]).applyfunc(sp.Rational).LUsolve(sp.Matrix(right.middle[0]).applyfunc(sp.Rational))
        )
        assert holds(solution, [[Fraction(int(v.p), int(v.q))] for v in values])


def test_a_matrix_that_may_be_singular_has_no_solution() -> None:
    a = Matrices.around(
        np.array([[[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, 0.1]], [[np.nan, 0.0], [0.0, 1.0]]]), 0.2
    )
    x = a.solve(Matrices.around(np.ones((3, 2, 1))))
    assert not np.isfinite(x.radius).all(axis=(1, 2)).any()


def test_neumann_bound_holds_and_refuses() -> None:
    rng = np.random.default_rng(4)
    off, rest = rng.random((50, 3, 3)) * 0.3, rng.random((50, 3, 2))
    bound = neumann_bound(off, rest)
    signs = rng.choice([-1.0, 1.0], off.shape)
    truth = np.linalg.solve(np.eye(3) - off * signs, rest)
    assert np.all(np.abs(truth) <= bound * (1 + 1e-12))
    assert np.isinf(neumann_bound(np.ones((1, 1, 1)), np.ones((1, 1, 1)))).all()


# --- norms and eigenvalues ---------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_norms_are_never_below_those_of_members(rows: int, columns: int) -> None:
    rng = np.random.default_rng(5)
    a = some(rng, (40, rows, columns), 1.0, 0.2)
    thin = Matrices.around(a.middle)
    assert np.all(thin.norm_upper() >= np.linalg.norm(a.middle, 2, axis=(1, 2)) * (1 - 1e-15))
    assert np.all(thin.norm_upper() <= np.linalg.norm(a.middle, 2, axis=(1, 2)) * (1 + 1e-12))
    for member in members(rng, a, 20):
        assert np.all(a.norm_upper() >= np.linalg.norm(member, 2, axis=(1, 2)) * (1 - 1e-14))
        assert np.all(radius_norm(a.radius) >= np.linalg.norm(member - a.middle, 2, axis=(1, 2)) * (1 - 1e-14))


def test_norms_are_above_exact_ones() -> None:
    """|A| = 5 exactly, and an irrational one in 200 bits."""
    assert Matrices.around(np.array([[[3.0, 0.0], [0.0, -5.0]]])).norm_upper()[0] >= 5.0
    rng = np.random.default_rng(6)
    for _ in range(20):
        a = rng.standard_normal((2, 2))
        bound = Matrices.around(a[None]).norm_upper()[0]
        gram = sp.Matrix(a).applyfunc(sp.Rational)
        gram = sp.Rational(float(bound)) ** 2 * sp.eye(2) - gram.T * gram
        assert gram[0, 0] >= 0
        assert gram.det() >= 0


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_eigenvalues_of_members_lie_between_the_bounds(size: int) -> None:
    rng = np.random.default_rng(7)
    raw = rng.standard_normal((40, size, size))
    width = np.abs(rng.standard_normal((40, size, size))) * 0.1
    a = Matrices.around(raw + raw.swapaxes(1, 2), width + width.swapaxes(1, 2))
    low, high = a.smallest_eigenvalue_lower(), a.largest_eigenvalue_upper()
    for member in members(rng, a, 20):
        values = np.linalg.eigvalsh(np.tril(member) + np.tril(member, -1).swapaxes(1, 2))
        assert np.all(low <= values[:, 0] + 1e-13)
        assert np.all(high >= values[:, -1] - 1e-13)
    thin = Matrices.around(raw + raw.swapaxes(1, 2))
    assert np.all(np.abs(thin.smallest_eigenvalue_lower() - np.linalg.eigvalsh(thin.middle)[:, 0]) < 1e-11)


def test_isotropic_and_close_eigenvalues() -> None:
    for matrix in (2 * np.eye(3), np.diag([1.0, 1.0 + 1e-15, 1.0 + 2e-15])):
        a = Matrices.around(matrix[None])
        assert 1 - 1e-12 < a.smallest_eigenvalue_lower()[0] / matrix[0, 0] <= 1
        assert a.norm_upper()[0] >= matrix.max()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nothing_is_claimed_of_nan_and_infinity(bad: float) -> None:
    for a in (
        Matrices.around(np.array([[[1.0, bad], [bad, 1.0]]])),
        Matrices.around(np.eye(2)[None], np.array([[[0.0, abs(bad)], [abs(bad), 0.0]]])),
    ):
        with np.errstate(all="ignore"):
            assert a.norm_upper()[0] == np.inf
            assert a.smallest_eigenvalue_lower()[0] == -np.inf
            assert a.largest_eigenvalue_upper()[0] == np.inf
            assert not np.isfinite((a @ a).radius).all()
            assert not np.isfinite(a.solve(Matrices.around(np.ones((1, 2, 1)))).radius).all()


# --- pencils -------------------------------------------------------------------------------------------


def test_pencils_hold_the_eigenvalues_and_keep_sums_of_squares() -> None:
    from bilevel_sym.graph.nodes import LinearForm

    rng = np.random.default_rng(8)
    vectors = [[fmpq(int(k)) for k in rng.integers(-3, 4, 3)] for _ in range(3)]
    mixed = [[fmpq(int(k)) for k in row] for row in ((0, 1, 0), (1, 0, 2), (0, 2, -1))]
    forms = []
    for i, j in itertools.product(range(3), repeat=2):
        terms = {k: a[i] * a[j] for k, a in enumerate(vectors) if a[i] * a[j] != 0}
        if mixed[i][j] != 0:
            terms[7] = mixed[i][j]
        forms.append(LinearForm(fmpq(1) if i == j else fmpq(0), terms))
    pencil = Pencil(forms, 3)
    assert pencil.nodes == (0, 1, 2, 7)
    low = np.array([[0.0, 1.0, 0.0, -0.1]] * 5)
    high = low + rng.random((5, 4)) * 2
    least, most = pencil.smallest_eigenvalue_lower(low, high), pencil.largest_eigenvalue_upper(low, high)
    squares = [np.outer(a, a) for a in np.array([[float(k) for k in a] for a in vectors])]
    parts = [*squares, np.array([[float(k) for k in row] for row in mixed])]
    for _ in range(200):
        t = low + rng.choice([0.0, 1.0, 0.5], low.shape) * (high - low)
        values = np.linalg.eigvalsh(np.eye(3) + np.einsum("lk,kij->lij", t, np.array(parts)))
        assert np.all(least <= values[:, 0] + 1e-12)
        assert np.all(most >= values[:, -1] - 1e-12)
    without = Pencil([LinearForm(f.constant, {k: c for k, c in f.terms.items() if k != 7}) for f in forms], 3)
    assert without.smallest_eigenvalue_lower(np.zeros((1, 3)), np.full((1, 3), 1e6))[0] > 1 - 1e-9
    assert without.smallest_eigenvalue_lower(np.full((1, 3), np.nan), np.ones((1, 3)))[0] == -np.inf


@pytest.mark.parametrize(
    ("rows", "sign"),
    [
        ([[1, 2], [2, 4]], 1),
        ([[-1, 0], [0, -3]], -1),
        ([[0, 0], [0, 0]], 1),
        ([[1, 2], [2, 3]], 0),
        ([[0, 1], [1, 5]], 0),
    ],
)
def test_definiteness_is_exact(rows: list[list[int]], sign: int) -> None:
    assert definiteness([fmpq(value) for row in rows for value in row], 2) == sign


# --- elementary functions ------------------------------------------------------------------------------

FUNCTIONS = ["log1p", *(name for name, record in operations.FUNCTIONS.items() if not record.composed)]


def arguments(name: str) -> Floats:
    rng = np.random.default_rng(9)
    wide = np.concatenate([rng.uniform(-20, 20, 400), rng.standard_normal(50) * 1e-9, [0.0, 1e5, -1e5, 700.0, 1e-300]])
    return np.abs(wide) + 1e-300 if name in ("log", "log1p") else wide


@pytest.mark.parametrize("name", FUNCTIONS)
def test_proved_values_err_less_than_numpy_and_both_less_than_the_padding(name: str) -> None:
    points = arguments(name)
    with np.errstate(all="ignore"):
        proved, plain = ARB[name](points), NUMPY[name](points)
    with mpmath.workprec(300):
        function = getattr(mpmath, name)
        truth = [function(mpmath.mpf(float(p))) for p in points]
        for value, fast, true in zip(proved.tolist(), plain.tolist(), truth, strict=True):
            if math.isinf(value):
                assert abs(true) > 1.7e308
                continue
            ulp = mpmath.mpf(math.ulp(float(true)))
            # a number of Arb's is rounded once; a table takes a few operations more
            assert abs(mpmath.mpf(value) - true) <= ulp * (4 if name in ("exp", "sin", "cos") else mpmath.mpf("0.5001"))
            assert abs(mpmath.mpf(fast) - true) <= 8 * ulp


@pytest.mark.parametrize("exponent", [0.5, 1 / 3, -1.7, 2.5, 64.0])
def test_powers_round_once(exponent: float) -> None:
    points = np.array([1e-8, 0.3, 1.0, 7.0, 1e4])
    with mpmath.workprec(300):
        for value, point in zip(ARB["power"](points, exponent).tolist(), points.tolist(), strict=True):
            true = mpmath.power(mpmath.mpf(point), mpmath.mpf(exponent))
            assert abs(mpmath.mpf(value) - true) <= mpmath.mpf(math.ulp(float(true))) * mpmath.mpf("0.5001")


def test_limits_and_domains() -> None:
    ends = np.array([np.inf, -np.inf, np.nan, 1e6, -1e6])
    with np.errstate(all="ignore"):
        for name in FUNCTIONS:
            np.testing.assert_allclose(ARB[name](ends), NUMPY[name](ends), rtol=1e-14)
    assert ARB["exp"](np.zeros((2, 3))).shape == (2, 3)


@pytest.mark.parametrize("table", ["SMOOTH", "PROVED"])
@pytest.mark.parametrize(
    ("name", "around", "aside"),
    [("log", (-1.0, 1.0), (1.0, 2.0)), ("sign", (-1.0, 1.0), (0.5, 1.0)), ("lt", (0.0, 1.0), (0.5, 1.0)),
     ("le", (-1.0, 0.0), (-2.0, -1.0))],
)  # fmt: skip
def test_an_open_switch_or_domain_is_nan(
    table: str, name: str, around: tuple[float, float], aside: tuple[float, float]
) -> None:
    operation = getattr(intervals, table)[name]
    pair = (np.array([around[0], aside[0]]), np.array([around[1], aside[1]]))
    lo, hi = operation(pair)
    assert np.isnan([lo[0], hi[0]]).all()
    assert np.isfinite([lo[1], hi[1]]).all()
    assert not np.isnan(intervals.OPERATIONS[name](pair)[0]).any()


def test_roots_and_choices_are_nan_where_open() -> None:
    for table in (intervals.SMOOTH, intervals.PROVED):
        lo, _ = table["rpow"]((np.array([0.0, 1.0]), np.array([1.0, 4.0])), 1, 2)
        assert np.isnan(lo[0])
        assert 0.9 < lo[1] <= 1
        c = (np.array([0.0, 1.0, 0.0]), np.array([1.0, 1.0, 0.0]))
        lo, _ = table["select"](c, (np.full(3, 5.0),) * 2, (np.full(3, 7.0),) * 2)
        assert np.isnan(lo[0])
        assert lo[1:].tolist() == [5.0, 7.0]


@pytest.mark.parametrize("name", [name for name, record in operations.FUNCTIONS.items() if not record.is_partial])
def test_proved_intervals_hold_balls_at_points_of_the_box(name: str) -> None:
    from bilevel_sym.arithmetic.balls import OPERATIONS

    rng = np.random.default_rng(10)
    low = rng.uniform(-8, 8, 60)
    high = low + rng.choice([0.0, 1e-9, 0.3, 5.0], 60)
    lo, hi = intervals.PROVED[name]((low, high))
    with precision(120):
        for k, share in itertools.product(range(60), (0.0, 0.3, 1.0)):
            point = min(max(low[k] + share * (high[k] - low[k]), low[k]), high[k])
            value = OPERATIONS[name](arb(float(point)))
            assert not value < arb(float(lo[k]))
            assert not value > arb(float(hi[k]))
