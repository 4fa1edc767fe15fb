"""check_gradient, check_jacobian, check_argmin: no false alarm at any scale, and no small error that is missed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from bilevel_sym import zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import Floats
from verify import Verdict, assert_ok, check_argmin, check_gradient, check_jacobian

SMALLEST = 1e-6  # relative error of an entry that has to be seen

# a function of A z, and its derivative by A z
INNER: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "quadratic": (lambda t: t**2 / 2 + t, lambda t: t + 1),
    "sine": (np.sin, np.cos),
    "exp": (lambda t: np.exp(t / 3), lambda t: np.exp(t / 3) / 3),
    "softplus": (lambda t: np.logaddexp(0, t), lambda t: 1 / (1 + np.exp(-t))),
    "root": (lambda t: np.sqrt(1 + t**2), lambda t: t / np.sqrt(1 + t**2)),
    "quartic": (lambda t: t**4 / 4 - t, lambda t: t**3 - 1),
}


@dataclass(frozen=True)
class Drawn:
    """scale F(A x/units) + offset, and points of the size of the units."""

    kind: str
    seed: int
    d: int
    units: float
    scale: float
    offset: float

    @property
    def _matrix(self) -> Floats:
        rng = np.random.default_rng(self.seed)
        return rng.normal(size=(self.d, self.d)) / 10.0 ** rng.uniform(-3, 3, self.d)

    @property
    def points(self) -> Floats:
        rng = np.random.default_rng([self.seed, 1])
        size: Floats = 1 / np.abs(self._matrix).max(axis=0)
        return self.units * size * rng.normal(size=(2, self.d)) * (rng.random((2, self.d)) > 0.2)

    def fun(self, x: Floats) -> float:
        return self.scale * float(INNER[self.kind][0](self._matrix @ x / self.units).sum() + self.offset)

    def grad(self, x: Floats) -> Floats:
        A = self._matrix
        return np.asarray(self.scale * A.T @ INNER[self.kind][1](A @ x / self.units) / self.units)


powers = st.integers(-8, 8).map(lambda k: 10.0**k)
drawn = st.builds(
    Drawn, st.sampled_from(list(INNER)), st.integers(0, 10**6), st.integers(1, 5), powers, powers,
    st.sampled_from([0.0, 1.0, -1e3, 1e5]),
)  # fmt: skip
many = settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
fewer = settings(many, max_examples=100)


@pytest.mark.slow
@many
@given(drawn)
def test_five_hundred_right_ones_at_any_scale_hold(function: Drawn) -> None:
    result = check_gradient(function.fun, function.grad, function.points)
    assert result.verdict is Verdict.HOLDS, result


@pytest.mark.slow
@fewer
@given(drawn, st.integers(0, 4), st.sampled_from([1, -1, 10, 1e3, -1e5]))
def test_none_of_a_hundred_small_errors_is_missed(function: Drawn, entry: int, size: float) -> None:
    assume(any(function.grad(x)[entry % function.d] != 0 for x in function.points))

    def wrong(x: Floats) -> Floats:
        grad = function.grad(x)
        grad[entry % function.d] *= 1 + SMALLEST * size
        return grad

    result = check_gradient(function.fun, wrong, function.points)
    assert result.verdict is Verdict.VIOLATED, result
    assert result.cause != "sign"


@settings(max_examples=15, deadline=None)
@given(drawn)
def test_right_ones_hold_and_wrong_ones_do_not(function: Drawn) -> None:
    assert_ok(check_gradient(function.fun, function.grad, function.points))
    wrong = check_gradient(function.fun, lambda x: -function.grad(x), function.points)
    assert (wrong.verdict, wrong.cause) == (Verdict.VIOLATED, "sign")


def test_the_message_names_entry_order_and_digits() -> None:
    result = check_gradient(lambda x: np.sin(x).sum(), lambda x: np.cos(x) * [1, 1.01], [[1.0, 0.5]])
    assert result.message.splitlines()[1].endswith("along entry 1")
    assert "shrinks like h^1.0" in result.message
    assert 1.5 < result.digits < 2.5
    assert result.summary == "unexplained: entry 1 is off most"


@pytest.mark.parametrize(
    ("fun", "grad", "verdict"),
    [
        pytest.param(lambda x: np.abs(x).sum(), np.sign, Verdict.INCONCLUSIVE, id="a kink at the point"),
        pytest.param(lambda x: np.abs(x - 5).sum(), lambda x: np.sign(x - 5), Verdict.HOLDS, id="a kink elsewhere"),
        pytest.param(lambda x: 3.0, lambda x: 0 * x, Verdict.HOLDS, id="constant"),
        pytest.param(lambda x: 3.0, lambda x: 0 * x + 1e-6, Verdict.VIOLATED, id="constant, and not its gradient"),
        pytest.param(lambda x: np.log(x + 1e-9).sum(), lambda x: 1 / (x + 1e-9), Verdict.HOLDS, id="near a wall"),
        pytest.param(lambda x: np.float32(np.cos(x).sum()), lambda x: -np.sin(x), Verdict.HOLDS, id="float32"),
        pytest.param(lambda x: np.float32(np.cos(x).sum()), lambda x: -1.01 * np.sin(x), Verdict.VIOLATED, id="1.01"),
    ],
)
def test_edges(fun: Any, grad: Any, verdict: Verdict) -> None:
    assert check_gradient(fun, grad, [[0.0, 1.0]]).verdict is verdict


def test_chance_decides_nothing() -> None:
    rng = np.random.default_rng(0)
    for size in (1e-3, 1.0):
        result = check_gradient(lambda x, size=size: np.sin(x).sum() + size * rng.normal(), np.cos, [[0.5, 1.0]])
        assert result.verdict is Verdict.INCONCLUSIVE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scalar", "saddle", "implicit_cubic", "ridge", "minimax_nash"])
def test_hypergradients_of_the_zoo_without_their_formulas(name: str) -> None:
    kernels = zoo.get(name).problem.kernels
    points = np.random.default_rng(0).uniform(-0.5, 0.5, (2, zoo.get(name).problem.d))
    assert_ok(check_gradient(kernels.phi, kernels.grad_phi, points))
    assert_ok(check_jacobian(kernels.grad_phi, kernels.hess_phi, points))
    assert_ok(check_jacobian(kernels.y_star, lambda x: kernels.dy_dx(x).T, points))
    assert_ok(check_argmin(kernels.g, kernels.y_star, points), digits=10)
    wrong = check_argmin(kernels.g, lambda x: kernels.y_star(x) * (1 + 1e-6) + 1e-7, points)
    assert wrong.verdict is Verdict.VIOLATED
    assert 4 < wrong.digits < 8


def test_a_lower_minimum_elsewhere_and_a_maximum_are_told() -> None:
    def two_wells(x: Floats, y: Floats) -> float:
        return float((y[0] ** 2 - 1) ** 2 + x[0] * (y[0] - 1) ** 3 / 8)

    assert_ok(check_argmin(two_wells, lambda x: [1.0], [[-0.1]]))
    higher = check_argmin(two_wells, lambda x: [1.0], [[0.1]])
    assert "fun is less at a distance of" in higher.summary
    assert check_argmin(lambda x, y: -np.cosh(y[0]), lambda x: 0 * x, [[0.5]]).verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("fun", "grad", "points"),
    [
        (lambda x: x, lambda x: x, [1.0, 2.0]),
        (lambda x: x @ x, lambda x: x[0], [1.0, 2.0]),
        (lambda x: x @ x, lambda x: 2 * x, [np.nan]),
        (lambda x: "a", lambda x: 2 * x, [1.0]),
        (lambda x: np.sqrt(-x @ x) if x[0] else 1.0, lambda x: 0 * x, [0.0]),
    ],
)
def test_bad_input_is_refused(fun: Any, grad: Any, points: Any) -> None:
    with pytest.raises(InvalidArgument):
        check_gradient(fun, grad, points)
