"""Planted defects in enclosures, seams and ridges: each must turn a check of theirs red."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp
import test_soundness as soundness

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic import intervals
from bilevel_sym.arithmetic.pieces import crossing
from bilevel_sym.arithmetic.pieces.contact import LIMIT
from bilevel_sym.arithmetic.pieces.patterns import Split
from bilevel_sym.implicit.model import Model
from verify.enclosures import ridges
from verify.enclosures.affine import AffineSession
from verify.regularity.certified import constants
from verify.regularity.expression_bounds import bounds

x, y = sp.symbols("x y", real=True)


def test_edges_that_are_believed_to_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were every contact believed, |y|^3 would get a nu, which difference quotients of g_yyy refute."""
    monkeypatch.setattr(crossing, "contact", lambda *_: LIMIT)
    problem = BilevelProblem(x * y, y**2 - x * y + abs(y) ** 3 / 10, [x], [y], box={"x": (-1, 1), "y": (-1, 1)})
    claimed = float(constants(problem).valid.nu)
    third = sp.lambdify(y, sp.diff(y**3 / 10, y, 3))
    quotient = (third(1e-6) - -third(-1e-6)) / 2e-6  # of the two sides
    assert quotient > 1e3 * (claimed + 1)


def test_one_side_of_an_edge_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    expression = sp.Piecewise((x**4, x > 0), (-3 * x**5, True))
    sound = bounds(expression, {"x": (-1, 1)}, effort=1e-9)
    monkeypatch.setattr(Split, "largest", lambda self, bounds: bounds[self.first])
    unsound = bounds(expression, {"x": (-1, 1)}, effort=1e-9)
    slopes = np.array([float(expression.diff(x).subs(x, t)) for t in (-0.99, 0.99)])
    assert sound.gradient[0].lower <= slopes.min()
    assert slopes.max() <= sound.gradient[0].upper
    assert not (unsound.gradient[0].lower <= slopes.min() and slopes.max() <= unsound.gradient[0].upper)


def _red(kind: str, count: int = 4_000) -> None:
    check = soundness.CHECKS[kind][0]
    with pytest.raises(AssertionError):
        sum(check(count, seed) for seed in range(5))


def test_products_without_rounding_outward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "_EXACT", (0.0, 0.0))
    _red("products", 600)


def test_library_functions_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "_padding", lambda a, padding: np.zeros_like(np.asarray(a)))
    _red("operations")


def test_linear_combinations_without_a_radius_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "_product_radius", lambda size, wide, middle, radius: size @ radius)
    _red("linear")


def test_affine_products_without_their_second_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def multiply(self: AffineSession, to: slice, one: Any, other: Any) -> None:
        a, b = self.middle[one], self.middle[other]
        slopes = a[:, None] * self.slopes[other] + b[:, None] * self.slopes[one]
        self.set(to, a * b, slopes, np.abs(a) * self.rest[other] + np.abs(b) * self.rest[one])

    monkeypatch.setattr(AffineSession, "multiply", multiply)
    _red("formulas", 2_000)


def test_the_last_piece_of_a_line_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = sp.symbols("a b", real=True)
    model = Model(x, (a + b) ** 4 + (a + b) ** 6, [x], [a, b])
    line = ridges.ridges_of(model, model.g, model.y)
    assert line is not None
    box = np.array([[0.0, 0.0, 0.0]]), np.array([[0.0, 1.0, 1.0]])
    truth = 12 * 2**2 + 30 * 2**4
    assert line.ranges(*box)[1][0, 0] >= truth
    whole = ridges._pieces

    def short(low: np.ndarray, high: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        first, last = whole(low, high, count)
        return first[: len(first)], np.minimum(last, 0.9 * high)

    monkeypatch.setattr(ridges, "_pieces", short)
    assert line.ranges(*box)[1][0, 0] < truth
