"""A corpus of hard inputs for every arithmetic: nan, 0 inf, empty and unbounded, subnormal, ends of domains.

What is claimed is held against balls of 200 bits at points, exact sums and products of rationals, and Rayleigh
quotients. The fast tests take a sample with a fixed seed, the slow ones more, ``--hypothesis-profile=thorough`` a
million checks: ``python -m pytest -n 0 tests/test_soundness.py --hypothesis-profile=thorough``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import sympy as sp
from flint import arb, fmpq
from hypothesis import settings

from bilevel_sym import BilevelProblem, Box
from bilevel_sym.arithmetic import balls, intervals
from bilevel_sym.arithmetic.boxes import IntervalProgram
from bilevel_sym.arithmetic.scalars import BALLS, ScalarProgram
from bilevel_sym.errors import BilevelError
from bilevel_sym.graph.operations import OPERATIONS as RECORDS
from bilevel_sym.implicit.model import Model
from bilevel_sym.typing import Floats
from verify.enclosures.affine import AffineProgram
from verify.enclosures.interval_matrix import Matrices, neumann_bound
from verify.enclosures.tensor_norm import norm_upper

BITS = 200
THOROUGH = settings().max_examples >= 1000
MILLION = 1_000_000

TINY, SMALLEST, LARGEST = 5e-324, float(np.finfo(float).tiny), float(np.finfo(float).max)
SPECIAL = sorted(
    sign * value
    for sign in (1.0, -1.0)
    for value in (
        0.0, TINY, 3 * TINY, 1e-310, SMALLEST, 1e-200, 1e-160, 1e-17, 0.1, 0.5, 1 - 2**-53, 1.0, 1 + 2**-52, math.pi / 2,
        math.nextafter(math.pi / 2, 2), math.pi, 3.0, 18.7, 36.0, 709.5, 710.0, 745.0, 746.0, 1e5, 1e6, 1e16, 1e154, 1e200,
        LARGEST, math.inf,
    )
)  # fmt: skip

ARITHMETICS: dict[str, Mapping[str, Callable[..., Any]]] = {
    "fast values": intervals.OPERATIONS,
    "fast, smooth": intervals.SMOOTH,
    "fast, open": intervals.OPEN,
    "proved values": intervals.VALUES,
    "proved, smooth": intervals.PROVED,
    "proved, open": intervals.PROVED_OPEN,
}
PARAMETERS: dict[str, list[tuple[int, ...]]] = {
    "ipow": [(2,), (3,), (-1,), (-2,), (7,), (4,), (-3,)],
    "rpow": [(1, 2), (-1, 2), (1, 3), (5, 2), (-7, 4)],
}
UNARY = [
    (name, parameter)
    for name, record in RECORDS.items()
    if record.arity == 1
    for parameter in PARAMETERS.get(name, [()])
]


def hard_intervals(rng: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    """Ends from the corpus, next to it, and of all magnitudes; points, thin, wide and unbounded ones."""
    special = np.array(SPECIAL)
    with np.errstate(all="ignore"):
        return _hard_intervals(rng, count, special)


def _hard_intervals(rng: np.random.Generator, count: int, special: Floats) -> tuple[Floats, Floats]:
    kinds = rng.integers(0, 4, count)
    a, b = rng.choice(special, count), rng.choice(special, count)
    near = np.nextafter(a, rng.choice([-np.inf, np.inf], count))
    wild = rng.choice([-1.0, 1.0], count) * 10.0 ** rng.uniform(-320, 300, count)
    other = np.choose(kinds, [a, near, b, wild])
    lo, hi = np.minimum(a, other), np.maximum(a, other)
    return np.where(lo == np.inf, LARGEST, lo), np.where(hi == -np.inf, -LARGEST, hi)


def points_inside(rng: np.random.Generator, lo: Floats, hi: Floats) -> Floats:
    """Real numbers of the intervals: their ends, zero, or something between."""
    low, high = np.maximum(lo, -LARGEST), np.minimum(hi, LARGEST)
    share = rng.choice([0.0, 1.0, 0.5, 1e-300, 0.3], len(lo))
    with np.errstate(all="ignore"):
        between = np.clip(low * (1 - share) + high * share, low, high)
    between = np.where(np.isfinite(between), between, low)
    return np.where(rng.random(len(lo)) < 0.1, np.clip(0.0, low, high), between)


def exact_ball(name: str, parameter: tuple[int, ...], value: float) -> Any:
    """The value of an operation at a float; nan where it is not defined. Far out Arb's own exponents go on."""
    point = arb(value)
    if name in ("lt", "le", "sign"):
        return arb({"lt": value < 0, "le": value <= 0, "sign": math.copysign(1, value) if value else 0}[name])
    if (name == "bell" or RECORDS[name].largest < 1e3) and abs(value) > 1e15:
        return None  # beyond all floats, or at a limit: not worth Arb's exact exponents
    return balls.OPERATIONS[name](point, *parameter)


def _holds(low: float, high: float, true: Any) -> bool:
    """Whether a ball is not certainly outside."""
    return not (true < arb(low) or true > arb(high))


def check_unary(name: str, parameter: tuple[int, ...], count: int, rng: np.random.Generator) -> int:
    lo, hi = hard_intervals(rng, count)
    points = points_inside(rng, lo, hi)
    results = {label: ops[name]((lo, hi), *parameter) for label, ops in ARITHMETICS.items()}
    done = 0
    for k, point in enumerate(points.tolist()):
        true = exact_ball(name, parameter, point)
        if true is None or not true.is_finite():
            continue
        for label, (low, high) in results.items():
            bottom, top = float(low[k]), float(high[k])
            story = f"{label} {name}{parameter} over [{lo[k]!r}, {hi[k]!r}] at {point!r}: [{bottom!r}, {top!r}]"
            if math.isnan(bottom) or math.isnan(top):
                assert "values" not in label, f"{story} claims nothing of a point that it is defined at"
            else:
                assert _holds(bottom, top, true), f"{story} misses {true.str(20)}"
            done += 1
    return done


def unary_checks(count: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    share = -(-count // (len(UNARY) * 4))
    with balls.precision(BITS):
        return sum(check_unary(name, parameter, share, rng) for name, parameter in UNARY)


def product_checks(count: int, seed: int) -> int:
    """Products, minima and maxima of two intervals: exact in balls."""
    rng, done = np.random.default_rng(seed), 0
    (a, b), (c, d) = hard_intervals(rng, count), hard_intervals(rng, count)
    p, q = points_inside(rng, a, b), points_inside(rng, c, d)
    for name in ("mul", "min", "max"):
        results = [ops[name]((a, b), (c, d)) for ops in (intervals.OPERATIONS, intervals.PROVED)]
        with balls.precision(BITS):
            for k in range(count):
                one, other = arb(float(p[k])), arb(float(q[k]))
                true = one * other if name == "mul" else (min if name == "min" else max)(float(p[k]), float(q[k]))
                for low, high in results:
                    assert not arb(true) < arb(float(low[k])), (name, a[k], b[k], c[k], d[k])
                    assert not arb(true) > arb(float(high[k])), (name, a[k], b[k], c[k], d[k])
                    done += 1
    return done


def linear_checks(count: int, seed: int) -> int:
    """Linear combinations of hard numbers against exact rationals."""
    rng, done = np.random.default_rng(seed), 0
    while done < count:
        rows, terms, lanes = int(rng.integers(1, 4)), int(rng.integers(1, 6)), 40
        numbers = [fmpq(int(rng.integers(-9, 10)), int(rng.integers(1, 9))) for _ in range(rows * terms)]
        ends = np.array([intervals.enclose(int(c.p), int(c.q)) for c in numbers]).reshape(rows, terms, 2)
        lo, hi = (end.reshape(terms, lanes) for end in hard_intervals(rng, terms * lanes))
        point = points_inside(rng, lo.ravel(), hi.ravel()).reshape(terms, lanes)
        nothing = np.zeros(rows)
        low, high = intervals.linear(ends[:, :, 0], ends[:, :, 1], nothing, nothing, lo, hi)
        for lane in range(lanes):
            column = [Fraction(float(v)) for v in point[:, lane]]
            for row in range(rows):
                part = numbers[row * terms : (row + 1) * terms]
                true = sum(Fraction(int(c.p), int(c.q)) * v for c, v in zip(part, column, strict=True))
                assert math.isinf(low[row, lane]) or Fraction(float(low[row, lane])) <= true, (low[row, lane], true)
                assert math.isinf(high[row, lane]) or Fraction(float(high[row, lane])) >= true, (high[row, lane], true)
                done += 1
    return done


# ---------------------------------------------------------------------- whole formulas

a, b = sp.symbols("a b", real=True)
FORMULAS = (
    a * b - b**2, sp.exp(a) * sp.sin(b), (a - b) ** 3 / (1 + a**2), sp.sqrt(1 + a**2 * b**2), sp.tanh(a * b) - sp.atan(b),
    sp.log(1 + sp.exp(a - b)), sp.cosh(a / 3) * sp.cos(b), abs(a) ** 3 - sp.Max(a, b), sp.Min(a, b) * a,
    sp.Piecewise((a**4, a > b), (b**4, True)), sp.Piecewise((a * b, a < 0), (sp.sin(a) * b, True)), 1 / (2 + sp.sin(a * b)),
    (a**2 + b**2) ** 5 * sp.Rational(1, 10**9), a * 10**200 - b * 10**200, a * sp.Rational(1, 10**200) * b,
    sp.exp(-(a**2)) - sp.exp(-(b**2)), (a - a * b) * (1 - b), sp.Piecewise((0, a < b), ((a - b) ** 3, True)),
)  # fmt: skip
BLOCKS = ("f", "f_x", "f_xx")


def boxes_for(rng: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    """Points, thin, ordinary and wide boxes in two variables, around zero and away from it, some subnormal."""
    middle = rng.normal(0, 1, (count, 2)) * rng.choice([0.0, 1.0, 5.0, 1e-310], (count, 1))
    radius = rng.random((count, 2)) * rng.choice([0.0, TINY, 1e-310, 1e-9, 0.1, 1.0, 4.0], (count, 1))
    return middle - radius, middle + radius


class Formula:
    """One formula, and its derivatives, in all arithmetics."""

    def __init__(self, expression: sp.Expr) -> None:
        self.model = Model(expression, sp.Integer(0), [a, b], [])
        self.patterns = self.model.patterns
        names = BLOCKS if self.patterns is None else ("f",)
        self.program = self.model.program(names)
        self.names = names
        self.balls = ScalarProgram(self.program, BALLS)

    def true(self, point: Floats) -> dict[str, list[Any]]:
        values = self.balls.start()
        self.balls.put(values, 0, [arb(float(v)) for v in point])
        return {name: self.balls.output(values, name) for name in self.names}

    def claims(self, lower: Floats, upper: Floats) -> Iterator[tuple[str, str, Floats, Floats]]:
        """(arithmetic, block, lower ends, upper ends), (lanes, entries) each."""
        for label, operations in ARITHMETICS.items():
            session = IntervalProgram(self.program, operations).session(len(lower))
            with np.errstate(all="ignore"):
                session.put(0, lower, upper)
            for name in self.names:
                lo, hi = session.take(name)
                yield label, name, lo.reshape(len(lower), -1), hi.reshape(len(lower), -1)
        yield from self._affine(lower, upper)

    def _affine(self, lower: Floats, upper: Floats) -> Iterator[tuple[str, str, Floats, Floats]]:
        middle = np.clip(0.5 * lower + 0.5 * upper, lower, upper)
        reach = np.maximum(upper - middle, middle - lower) * (1 + 4e-16)
        slopes = np.zeros((len(lower), 2, 2))
        slopes[:, [0, 1], [0, 1]] = reach
        for label, operations in (("affine", intervals.SMOOTH), ("affine, proved", intervals.PROVED)):
            session = AffineProgram(self.program, operations).session(len(lower), 2)
            session.put(0, middle, slopes, np.zeros_like(middle))
            for name in self.names:
                hull = session.take(name).hull
                with np.errstate(all="ignore"):
                    yield label, name, hull.lower.reshape(len(lower), -1), hull.upper.reshape(len(lower), -1)


def formula_checks(count: int, seed: int) -> int:
    rng, done, lanes = np.random.default_rng(seed), 0, 30
    formulas = [Formula(expression) for expression in FORMULAS]
    while done < count:
        for formula in formulas:
            lower, upper = boxes_for(rng, lanes)
            share = rng.choice([0.0, 0.25, 0.5, 1.0], lower.shape)
            points = np.clip(lower + share * (upper - lower), lower, upper)
            with balls.precision(BITS):
                true = [formula.true(point) for point in points]
                for label, name, lo, hi in formula.claims(lower, upper):
                    for k in range(lanes):
                        for entry, ball in enumerate(true[k][name]):
                            low, high = float(lo[k, entry]), float(hi[k, entry])
                            if math.isnan(low) or math.isnan(high) or not ball.is_finite():
                                continue
                            story = label, formula.model.expressions("f"), name, lower[k], upper[k], points[k]
                            assert _holds(low, high, ball), (story, low, high, ball.str(20))
                            done += 1
    return done


# ---------------------------------------------------------------------- matrices and tensors


def matrix_checks(count: int, seed: int) -> int:
    """Products, eigenvalues and norms of interval matrices with hard entries, against exact rational members."""
    rng, done = np.random.default_rng(seed), 0
    scales = np.array([1.0, 1e-310, 1e-160, 1e150, 0.0])
    while done < count:
        size = int(rng.integers(1, 4))
        scale = rng.choice(scales, (1, size, size))
        middle = rng.normal(0, 1, (1, size, size)) * scale
        middle = 0.5 * (middle + middle.swapaxes(1, 2))
        radius = np.abs(middle) * rng.choice([0.0, 1e-16, 0.1]) + rng.choice([0.0, TINY, 1e-310])
        radius = np.maximum(radius, radius.swapaxes(1, 2))
        part = Matrices(middle, radius)
        sign = rng.choice([-1.0, 0.0, 1.0], (size, size))
        member = [[_member(middle[0], radius[0], np.triu(sign) + np.triu(sign, 1).T, i, j) for j in range(size)]
                  for i in range(size)]  # fmt: skip
        product = part @ part
        for i in range(size):
            for j in range(size):
                true = sum(member[i][k] * member[k][j] for k in range(size))
                low, high = float(product.lower[0, i, j]), float(product.upper[0, i, j])
                assert math.isnan(low) or math.isinf(low) or Fraction(low) <= true, (middle, radius)
                assert math.isnan(high) or math.isinf(high) or Fraction(high) >= true, (middle, radius)
                done += 1
        done += _check_norms(part, member, rng)
    return done


def _member(middle: Floats, radius: Floats, sign: Floats, i: int, j: int) -> Fraction:
    return Fraction(float(middle[i, j])) + Fraction(float(radius[i, j])) * int(sign[i, j])


def _check_norms(part: Matrices, member: list[list[Fraction]], rng: np.random.Generator) -> int:
    size = len(member)
    least, most = float(part.smallest_eigenvalue_lower()[0]), float(part.largest_eigenvalue_upper()[0])
    norm = float(part.norm_upper()[0])
    for _ in range(4):
        v = [Fraction(int(k)) for k in rng.integers(-3, 4, size)]
        length = sum(k * k for k in v)
        if not length:
            continue
        image = [sum(c * k for c, k in zip(row, v, strict=True)) for row in member]
        quotient = sum(k * w for k, w in zip(v, image, strict=True)) / length
        assert math.isinf(least) or Fraction(least) <= quotient
        assert math.isinf(most) or Fraction(most) >= quotient
        assert math.isinf(norm) or Fraction(norm) ** 2 * length >= sum(w * w for w in image)
    return 12


def tensor_checks(count: int, seed: int) -> int:
    """Norms of third derivatives against T[u, v, w] at rational vectors."""
    rng, done = np.random.default_rng(seed), 0
    while done < count:
        d = int(rng.integers(1, 4))
        lanes = 8
        middle = rng.normal(0, 1, (lanes, d, d, d)) * rng.choice([1.0, 1e-300, 1e-20, 1e100], (lanes, 1, 1, 1))
        turned = [np.transpose(middle, (0, *order)) for order in permutations((1, 2, 3))]
        middle = np.add.reduce(turned) / 6
        radius = np.abs(middle) * rng.choice([0.0, 1e-3], (lanes, 1, 1, 1))
        bound = norm_upper(middle, radius, [(d, 3)])
        for lane in range(lanes):
            u = rng.integers(-3, 4, d)
            length = Fraction(int((u * u).sum()))
            if not length:
                continue
            corner = [Fraction(float(m)) for m in middle[lane].ravel()]
            weights = [int(u[i] * u[j] * u[k]) for i in range(d) for j in range(d) for k in range(d)]
            value = sum(c * w for c, w in zip(corner, weights, strict=True))
            assert math.isinf(bound[lane]) or Fraction(float(bound[lane])) ** 2 * length**3 >= value * value
            done += 1
    return done


CHECKS = {
    "operations": (unary_checks, 0.5),
    "products": (product_checks, 0.05),
    "linear": (linear_checks, 0.1),
    "formulas": (formula_checks, 0.28),
    "matrices": (matrix_checks, 0.05),
    "tensors": (tensor_checks, 0.02),
}


def number_of(kind: str, total: int) -> int:
    return int(CHECKS[kind][1] * total)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHECKS)
def test_claims_hold_on_a_sample(kind: str) -> None:
    assert CHECKS[kind][0](number_of(kind, 12_000), seed=1) >= 0.5 * number_of(kind, 12_000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHECKS)
def test_claims_hold_at_length(kind: str) -> None:
    """Together a million in the thorough profile: each kind goes on until its share is reached."""
    wanted, done, seed = number_of(kind, MILLION if THOROUGH else 60_000), 0, 10
    while done < wanted:
        done += CHECKS[kind][0](min(wanted - done, 40_000), seed=seed)
        seed += 1
    assert done >= wanted


def test_the_shares_make_a_whole() -> None:
    assert math.isclose(sum(share for _, share in CHECKS.values()), 1.0)


# ---------------------------------------------------------------------- nan, empty, unbounded


@pytest.mark.parametrize("label", ARITHMETICS)
@pytest.mark.parametrize(("name", "parameter"), UNARY)
def test_nan_is_never_answered_by_a_number(label: str, name: str, parameter: tuple[int, ...]) -> None:
    for pair in ((math.nan, 1.0), (0.0, math.nan), (math.nan, math.nan)):
        lo, hi = ARITHMETICS[label][name](tuple(np.array([end]) for end in pair), *parameter)
        assert np.isnan(lo).all()
        assert np.isnan(hi).all()


@pytest.mark.parametrize("label", ARITHMETICS)
def test_zero_times_unbounded_is_zero_and_not_nan(label: str) -> None:
    zero, line = (np.zeros(1), np.zeros(1)), (np.array([-np.inf]), np.array([np.inf]))
    lo, hi = ARITHMETICS[label]["mul"](zero, line)
    assert lo[0] <= 0 <= hi[0]
    assert hi[0] - lo[0] < 1e-300


@pytest.mark.parametrize("label", ["affine", "affine, proved"])
def test_affine_forms_without_bounds_claim_nothing(label: str) -> None:
    program = Model(a * b + sp.exp(a), sp.Integer(0), [a, b], []).program(("f",))
    ready = AffineProgram(program, intervals.PROVED if "proved" in label else intervals.SMOOTH)
    for bad in (np.inf, np.nan):
        session = ready.session(1, 2)
        session.put(0, np.zeros((1, 2)), np.zeros((1, 2, 2)), np.array([[bad, 0.0]]))
        assert not np.isfinite(session.take("f").rest).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_matrices_with_a_hole_claim_nothing(bad: float) -> None:
    middle = np.eye(3)[None].copy()
    middle[0, 1, 2] = middle[0, 2, 1] = bad
    part = Matrices.around(middle)
    assert part.norm_upper()[0] == np.inf
    assert part.smallest_eigenvalue_lower()[0] == -np.inf
    assert part.largest_eigenvalue_upper()[0] == np.inf
    with np.errstate(all="ignore"):
        assert not np.isfinite(part.solve(Matrices.around(np.ones((1, 3, 1)))).radius).any()
    assert norm_upper(middle.reshape(1, 3, 3), np.zeros((1, 3, 3)), [(3, 1), (3, 1)])[0] == np.inf


def test_a_contraction_that_is_not_known_is_none() -> None:
    for off in (np.nan, np.inf, 1.0):
        assert np.isinf(neumann_bound(np.full((1, 1, 1), off), np.ones((1, 1, 1)))).all()


def test_no_boxes_at_all() -> None:
    """An empty batch is answered by an empty one, in every arithmetic."""
    nothing = np.empty((0, 2))
    program = Model(a * sp.sin(b), sp.Integer(0), [a, b], []).program(("f",))
    for operations in ARITHMETICS.values():
        session = IntervalProgram(program, operations).session(0)
        session.put(0, nothing, nothing)
        assert session.take("f")[0].shape == (0,)
    empty = Matrices.around(np.empty((0, 2, 2)))
    assert empty.norm_upper().shape == (0,)
    assert (empty @ empty).middle.shape == (0, 2, 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_users_nan_is_refused_at_the_door(bad: float) -> None:
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    for call in (
        lambda: problem.kernels.phi([bad]),
        lambda: Box({"x": (0, bad)}),
        lambda: problem.kernels.f([bad], [0.0]),
    ):
        with pytest.raises((BilevelError, ValueError)):
            call()
