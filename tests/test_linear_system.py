"""Conjugate gradients and the Neumann series: every iterate against exact arithmetic, and every corner."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import hypothesis.strategies as st
import mpmath
import numpy as np
import pytest
from hypothesis import given

from bilevel_sym.estimators.linear_system import Product, Solved, conjugate_gradients, dots, neumann_series
from bilevel_sym.typing import Floats

Exact = list[Fraction]
Square = list[list[Fraction]]


def product_with(*matrices: Floats) -> Product:
    """One matrix a lane."""
    table = np.stack([np.asarray(matrix, dtype=np.float64) for matrix in matrices], axis=2)
    return lambda v: np.einsum("ijk,jk->ik", table, v)


def solve_one(matrix: Floats, right: Sequence[float], steps: int, start: Sequence[float] | None = None) -> Solved:
    b = np.asarray(right, dtype=np.float64)[:, None]
    begin = np.zeros_like(b) if start is None else np.asarray(start, dtype=np.float64)[:, None]
    return conjugate_gradients(product_with(np.asarray(matrix, dtype=np.float64)), b, begin, steps)


# ---- matrices with a known spectrum, exactly ------------------------------------------------------------------


def reflected(spectrum: Sequence[int], normal: Sequence[int]) -> Square:
    """Q diag(spectrum) Q with the reflection Q = I - 2 w w^T/|w|^2: dense, rational, its spectrum known."""
    n, size = len(spectrum), sum(w * w for w in normal)
    q = [[Fraction(int(i == j)) - Fraction(2 * normal[i] * normal[j], size) for j in range(n)] for i in range(n)]
    return [[sum((q[i][k] * spectrum[k] * q[j][k] for k in range(n)), Fraction(0)) for j in range(n)] for i in range(n)]


def times(matrix: Square, vector: Exact) -> Exact:
    return [sum((a * v for a, v in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]


def inner(a: Exact, b: Exact) -> Fraction:
    return sum((s * t for s, t in zip(a, b, strict=True)), Fraction(0))


def gauss(matrix: Square, right: Exact) -> Exact:
    """Exact elimination; a column without a pivot is left out (its unknown is zero)."""
    rows = [[*row, b] for row, b in zip(matrix, right, strict=True)]
    n = len(right)
    pivots: list[int] = []
    for column in range(n):
        found = next((k for k in range(len(pivots), n) if rows[k][column]), None)
        if found is None:
            continue
        top = len(pivots)
        rows[top], rows[found] = rows[found], rows[top]
        rows[top] = [entry / rows[top][column] for entry in rows[top]]
        for k in range(n):
            if k != top and rows[k][column]:
                rows[k] = [a - rows[k][column] * b for a, b in zip(rows[k], rows[top], strict=True)]
        pivots.append(column)
    solution = [Fraction(0)] * n
    for row, column in zip(rows, pivots, strict=False):
        solution[column] = row[n]
    return solution


def best_in_krylov_space(matrix: Square, right: Exact, start: Exact, steps: int) -> Exact:
    """The minimiser of the error's A-norm over start + span(r, A r, ..., A^(steps-1) r), by exact elimination."""
    residual = [b - a for b, a in zip(right, times(matrix, start), strict=True)]
    basis = [residual]
    for _ in range(steps - 1):
        basis.append(times(matrix, basis[-1]))
    images = [times(matrix, vector) for vector in basis]
    weights = gauss([[inner(a, image) for image in images] for a in basis], [inner(a, residual) for a in basis])
    return [s + sum((w * v[i] for w, v in zip(weights, basis, strict=True)), Fraction(0)) for i, s in enumerate(start)]


def textbook(matrix: Square, right: Exact, start: Exact, steps: int) -> list[mpmath.mpf]:
    """Hestenes and Stiefel, word by word, in 60 digits."""
    with mpmath.workdps(60):
        a = mpmath.matrix([[mpmath.mpf(e.numerator) / e.denominator for e in row] for row in matrix])
        b, x = (mpmath.matrix([mpmath.mpf(e.numerator) / e.denominator for e in v]) for v in (right, start))
        r = b - a * x
        p = r.copy()
        for _ in range(steps):
            rr = mpmath.fdot(r, r)
            if rr < mpmath.mpf(10) ** -80:
                break
            ap = a * p
            alpha = rr / mpmath.fdot(p, ap)
            x, r = x + alpha * p, r - alpha * ap
            p = r + mpmath.fdot(r, r) / rr * p
        return list(x)


@st.composite
def systems(draw: st.DrawFn) -> tuple[Square, Exact, Exact, int]:
    n = draw(st.integers(1, 5))
    spectrum = draw(st.lists(st.integers(1, 12), min_size=n, max_size=n))
    normal = draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n).filter(any))
    whole = st.lists(st.integers(-9, 9).map(Fraction), min_size=n, max_size=n)
    return reflected(spectrum, normal), draw(whole), draw(whole), draw(st.integers(1, n + 2))


@given(systems())
def test_every_iterate_is_the_best_of_its_krylov_space_and_the_textbooks(
    case: tuple[Square, Exact, Exact, int],
) -> None:
    matrix, right, start, steps = case
    found = solve_one(np.array(matrix, dtype=np.float64), [float(b) for b in right], steps, [float(s) for s in start])
    assert not found.broken.any()
    best = np.array([float(e) for e in best_in_krylov_space(matrix, right, start, min(steps, len(right)))])
    # kappa <= 12 and n <= 5: rounding is amplified by kappa in each of a handful of steps
    scale = 1 + np.abs(best).max() + np.abs(np.array(start, dtype=np.float64)).max()
    np.testing.assert_allclose(found.v[:, 0], best, rtol=0, atol=1e-11 * scale)
    np.testing.assert_allclose(
        np.array(textbook(matrix, right, start, steps), dtype=np.float64), best, rtol=0, atol=1e-14 * scale
    )


@given(systems())
def test_n_steps_solve_the_system(case: tuple[Square, Exact, Exact, int]) -> None:
    matrix, right, start, _ = case
    a, b = np.array(matrix, dtype=np.float64), np.array(right, dtype=np.float64)
    found = solve_one(a, b.tolist(), len(b), [float(s) for s in start]).v[:, 0]
    wanted = np.linalg.solve(a, b)
    np.testing.assert_allclose(
        found, wanted, rtol=0, atol=1e-10 * (1 + np.abs(wanted).max() + max(map(abs, map(float, start))))
    )


# ---- corners ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("factor", [2.0, 0.125, 3.0])
def test_an_isotropic_matrix_takes_one_step(factor: float, steps: int) -> None:
    """The published defect returns the iterate before the last: zero."""
    right = [1.0, -2.0, 0.5]
    found = solve_one(factor * np.eye(3), right, steps).v[:, 0]
    if factor != 3.0:  # powers of two: exact, and it stays so
        assert found.tolist() == [b / factor for b in right]
    np.testing.assert_allclose(found, np.array(right) / factor, rtol=4e-16)


@pytest.mark.parametrize("steps", [2, 3, 9])
def test_two_eigenvalues_take_two_steps(steps: int) -> None:
    matrix = reflected([1, 4, 4, 1, 4], [1, 2, -1, 3, 1])
    right = [1.0, -2.0, 0.5, 4.0, 1.0]
    wanted = np.array(gauss(matrix, [Fraction(b) for b in right]), dtype=np.float64)
    np.testing.assert_allclose(solve_one(np.array(matrix, dtype=np.float64), right, steps).v[:, 0], wanted, rtol=1e-13)
    one = solve_one(np.array(matrix, dtype=np.float64), right, 1).v[:, 0]
    assert np.abs(one - wanted).max() > 0.1


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_an_exact_start_stays(steps: int) -> None:
    matrix, start = np.array([[2.0, 1.0], [1.0, 4.0]]), [3.0, -8.0]
    found = solve_one(matrix, (matrix @ start).tolist(), steps, start)
    assert found.v[:, 0].tolist() == start
    assert not found.broken.any()


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("steps", [4, 5, 40])
def test_steps_beyond_n_change_nothing_that_matters(n: int, steps: int) -> None:
    matrix = np.array(reflected(list(range(1, n + 1)), [1] * n), dtype=np.float64)
    right = [1.0, -2.0, 0.5, 4.0][:n]
    found = solve_one(matrix, right, steps)
    assert not found.broken.any()
    np.testing.assert_allclose(found.v[:, 0], np.linalg.solve(matrix, right), rtol=1e-12, atol=1e-14)


def test_one_unknown_takes_one_step() -> None:
    assert solve_one(np.array([[4.0]]), [3.0], 1).v.tolist() == [[0.75]]
    assert solve_one(np.array([[4.0]]), [3.0], 5, [100.0]).v.tolist() == [[0.75]]


@pytest.mark.parametrize("start", [[0.0, 0.0], [1.0, -2.0]])
def test_a_zero_right_hand_side_gives_zero(start: list[float]) -> None:
    found = solve_one(np.diag([1.0, 3.0]), [0.0, 0.0], 6, start)
    np.testing.assert_allclose(found.v, 0.0, atol=1e-15)
    assert not found.broken.any()


def test_an_eigenvector_ends_after_one_step() -> None:
    found = [solve_one(np.diag([2.0, 4.0, 7.0]), [0.0, 3.0, 0.0], steps).v[:, 0].tolist() for steps in (1, 2, 3, 30)]
    assert found == [[0.0, 0.75, 0.0]] * 4


SCALES = [
    (1.0, 1.0), (1.0, 1e-140), (1e-20, 1e-130), (1.0, 1e150), (1e-100, 1e-100), (1e100, 1e100), (1e-150, 1.0), (1e150, 1.0),
]  # fmt: skip
# squares of these leave float64, though the answers do not
EXTREME = [
    (1.0, 1e-160),
    (1e-160, 1e-160),
    (1.0, 1e155),
    (1e10, 1e150),
    (1e150, 1e150),
    (1e-40, 1e-145),
    (1e-200, 1e-100),
    (1.0, 1e300),
]


@pytest.mark.parametrize(("size", "right"), [*SCALES, *EXTREME])
def test_the_answer_scales_with_the_matrix_and_the_right_hand_side(size: float, right: float) -> None:
    found = solve_one(size * np.diag([1.0, 2.0, 3.0]), [right, -right, right], 3)
    assert not found.broken.any()
    np.testing.assert_allclose(found.v[:, 0] / (right / size), [1.0, -1 / 2, 1 / 3], rtol=1e-13)


# ---- not positive definite ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matrix", "right"),
    [
        (np.diag([-1.0]), [1.0]),
        (np.diag([1.0, -1.0]), [1.0, 1.0]),
        (np.diag([1.0, 0.0]), [1.0, 1.0]),
        (np.diag([3.0, -1.0]), [1.0, 0.1]),  # seen in the second step only
        (np.zeros((2, 2)), [1.0, 0.0]),
    ],
)
def test_a_matrix_that_is_not_positive_definite_is_said_to_be_broken(matrix: Floats, right: list[float]) -> None:
    for steps in (2, 3, 20):
        found = solve_one(matrix, right, steps)
        assert found.broken.tolist() == [True]
        assert np.isfinite(found.v).all()


def test_a_singular_matrix_whose_range_holds_the_right_hand_side_is_not_broken() -> None:
    found = solve_one(np.diag([2.0, 0.0]), [1.0, 0.0], 5)
    assert found.v[:, 0].tolist() == [0.5, 0.0]
    assert not found.broken.any()


def test_a_broken_lane_keeps_its_last_iterate() -> None:
    matrix, right = np.diag([3.0, -1.0]), [1.0, 0.1]
    first = solve_one(matrix, right, 1)
    assert not first.broken.any()
    assert (solve_one(matrix, right, 9).v == first.v).all()


def test_a_value_that_is_not_a_number_is_handed_on() -> None:
    found = solve_one(np.diag([1.0, 2.0]), [np.nan, 1.0], 3)
    assert np.isnan(found.v).any()


# ---- lanes ---------------------------------------------------------------------------------------------------

KINDS: list[tuple[Floats, list[float], list[float]]] = [
    (2 * np.eye(2), [1.0, 3.0], [0.0, 0.0]),
    (np.array([[2.0, 1.0], [1.0, 4.0]]), [-2.0, -29.0], [3.0, -8.0]),  # starts at its solution
    (np.diag([1.0, -1.0]), [1.0, 1.0], [0.0, 0.0]),
    (np.array([[2.0, 1.0], [1.0, 4.0]]), [1.0, 1.0], [5.0, 7.0]),
    (np.diag([1.0, 2.0]), [0.0, 0.0], [0.0, 0.0]),
    (np.diag([1.0, 2.0]), [np.nan, 0.0], [0.0, 0.0]),
    (np.diag([1.0, 2.0]), [1e150, -1e150], [0.0, 0.0]),
    (np.diag([1.0, 0.0]), [1.0, 0.0], [0.0, 0.0]),
    (np.diag([1e-3, 1e3]), [1.0, 1.0], [1.0, 1.0]),
]


@pytest.mark.parametrize("steps", [1, 2, 5])
@given(order=st.permutations(range(len(KINDS))), count=st.integers(1, len(KINDS)))
def test_lanes_of_every_kind_do_not_disturb_each_other(steps: int, order: list[int], count: int) -> None:
    chosen = [KINDS[k] for k in order[:count]]
    together = conjugate_gradients(
        product_with(*(matrix for matrix, _, _ in chosen)),
        np.array([right for _, right, _ in chosen]).T,
        np.array([start for _, _, start in chosen]).T,
        steps,
    )
    for lane, (matrix, right, start) in enumerate(chosen):
        alone = solve_one(matrix, right, steps, start)
        assert np.array_equal(together.v[:, lane], alone.v[:, 0], equal_nan=True)
        assert together.broken[lane] == alone.broken[0]


def test_the_start_and_the_right_hand_side_are_left_alone() -> None:
    right, start = np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]])
    conjugate_gradients(product_with(np.diag([1.0, 5.0])), right, start, 2)
    neumann_series(product_with(np.diag([1.0, 5.0])), right, 0.1, 3)
    assert (right.tolist(), start.tolist()) == ([[1.0], [2.0]], [[3.0], [4.0]])


def test_dots_are_the_scalar_products_of_the_lanes() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 7, 33))
    assert [float(v) for v in dots(a, b)] == [float(dots(a[:, k : k + 1], b[:, k : k + 1])[0]) for k in range(33)]
    np.testing.assert_allclose(dots(a, b), np.einsum("ik,ik->k", a, b), rtol=0, atol=1e-13)
    assert dots(a[:0], b[:0]).tolist() == [0.0] * 33


# ---- the Neumann series ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [0, 1, 2, 9])
def test_the_neumann_series_is_the_sum_of_matrix_powers(terms: int) -> None:
    matrix, right, eta = reflected([1, 4, 9], [1, -2, 3]), [1.0, -2.0, 0.5], 0.0625
    calls = []

    def product(v: Floats) -> Floats:
        calls.append(v.copy())
        return product_with(np.array(matrix, dtype=np.float64))(v)

    found = neumann_series(product, np.array(right)[:, None], eta, terms)[:, 0]
    with mpmath.workdps(40):
        factor = mpmath.eye(3) - eta * mpmath.matrix(
            [[mpmath.mpf(e.numerator) / e.denominator for e in row] for row in matrix]
        )
        total = mpmath.zeros(3, 1)
        for q in range(terms + 1):
            total += factor**q * mpmath.matrix(right)
        wanted = [float(eta * t) for t in total]
    np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=1e-16)
    assert len(calls) == terms  # Q products, no more


def test_the_neumann_series_tends_to_the_solution() -> None:
    matrix = np.array(reflected([1, 4, 9], [1, -2, 3]), dtype=np.float64)
    right = np.array([1.0, -2.0, 0.5])
    found = neumann_series(product_with(matrix), right[:, None], 1 / 9, 400)[:, 0]
    np.testing.assert_allclose(found, np.linalg.solve(matrix, right), rtol=1e-13)
    # geometric series: the error after q terms is (1 - eta A)^(q+1) times the solution
    short = neumann_series(product_with(matrix), right[:, None], 1 / 9, 3)[:, 0]
    rest = np.linalg.matrix_power(np.eye(3) - matrix / 9, 4) @ np.linalg.solve(matrix, right)
    np.testing.assert_allclose(np.linalg.solve(matrix, right) - short, rest, atol=1e-14)
