"""Kinks and jumps: kernels refuse what does not exist there, name the member and the kink, and refuse nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilevel_sym import AID, BilevelProblem, Descent, Exact, LocalMinimum, Status, compile_kernels, evaluate, solve, zoo
from bilevel_sym.arithmetic.pieces.seams import Seams
from bilevel_sym.errors import BilevelError, KernelError
from bilevel_sym.kernels.arguments import Kinks
from bilevel_sym.kernels.choice import Backend

BACKENDS: tuple[Backend, ...] = ("tape", "compiled", "lambdify")
BENT = BilevelProblem("abs(y)", "(y - x)**2/2", "x", "y")  # Phi = |x|
JUMP = BilevelProblem("y", "Piecewise((y**2, y < 1), (y**2 + 5, True)) - x*y", "x", "y")  # at x = 2 no minimiser
PRODUCTS = ("grad_phi", "hess_phi", "third_phi")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_the_member_and_the_kink_are_named(product: str, backend: Backend) -> None:
    kernels = compile_kernels(BENT, backend=backend)
    with pytest.raises(KernelError, match=rf"{product} does not exist for member 1, 0 of the batch.*at y = 0"):
        getattr(kernels, product)([[[1.0]], [[0.0]]])
    assert getattr(kernels, product)([[[1.0]], [[-1e-300]]]).shape[:2] == (2, 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_jump_of_g_at_the_stationary_point_has_no_minimiser(backend: Backend) -> None:
    kernels = compile_kernels(JUMP, backend=backend)
    for product in ("y_star", "phi", *PRODUCTS):
        with pytest.raises(KernelError, match=f"{product} does not exist.*at y - 1 = 0"):
            getattr(kernels, product)([2.0])
    assert kernels.y_star([1.5]) == pytest.approx(0.75)


def test_values_exist_on_a_kink_and_derivatives_do_not() -> None:
    kernels = BENT.kernels
    assert kernels.phi([0.0]) == 0
    assert kernels.f([0.0], [0.0]) == 0
    assert kernels.f_xy([0.0], [0.0]) == 0  # f does not depend on x and y together
    for block in ("f_y", "f_yy"):
        with pytest.raises(KernelError, match=f"{block} does not exist"):
            getattr(kernels, block)([0.0], [0.0])
    assert kernels.g_y([0.0], [0.0]) == 0
    with pytest.raises(KernelError, match="expansion does not exist"):
        kernels.expansion([0.0], [0.0])


@pytest.mark.parametrize(
    ("f", "exists"),
    [
        ("abs(y)**3", ("grad_phi", "hess_phi")),
        ("max(y, 0)**2", ("grad_phi",)),
        ("Piecewise((0, y < 0), (6*y**5 - 15*y**4 + 10*y**3, y < 1), (1, True))", ("grad_phi", "hess_phi")),
        ("abs(y)*y**4", PRODUCTS),
        ("abs(y)", ()),
        ("Piecewise((-1, y < 0), (1, True))", ()),
    ],
)
def test_what_the_pieces_agree_on_is_not_refused(f: str, exists: tuple[str, ...]) -> None:
    """And kernels refuse just where a certificate is refused, as far as that goes: to second order."""
    problem = BilevelProblem(f, "(y - x)**2/2", "x", "y")
    for product in PRODUCTS:
        if product in exists:
            assert np.isfinite(getattr(problem.kernels, product)([0.0])).all()
        else:
            with pytest.raises(KernelError, match="does not exist"):
                getattr(problem.kernels, product)([0.0])
    if "hess_phi" in exists:
        assert evaluate(problem, [0]).proved
    else:
        with pytest.raises(BilevelError):
            evaluate(problem, [0])


def test_within_round_off_the_side_is_not_known() -> None:
    """y* = 3 (x - 1/10) is 1.7e-17 at the float 0.1, and what Newton's method finds there is another such number."""
    kernels = BilevelProblem("abs(y)", "(y - 3*(x - 1/10))**2/2", "x", "y").kernels
    with pytest.raises(KernelError, match="or within round-off of it, at y = 0"):
        kernels.grad_phi([0.1])
    assert kernels.grad_phi([[0.1 + 1e-12], [0.1 - 1e-12]]).ravel() == pytest.approx([3, -3])


def test_a_kink_in_x_alone_is_exact() -> None:
    kernels = BilevelProblem("abs(x)*y", "y**2/2 - y", "x", "y").kernels
    assert kernels.grad_phi([[5e-324], [-5e-324]]).tolist() == [[1.0], [-1.0]]
    with pytest.raises(KernelError, match="at x = 0"):
        kernels.grad_phi([[1.0], [0.0]])


@given(st.floats(-2, 2), st.integers(-4, 4), st.integers(1, 3))
def test_away_from_the_kink_both_sides_are_told_apart(x: float, offset: int, slope: int) -> None:
    """Phi = |slope x - offset|: refused, or the slope of the side on which the exact y* lies."""
    kernels = BilevelProblem("abs(y)", f"(y - ({slope})*x + ({offset}))**2/2", "x", "y").kernels
    try:
        grad = kernels.grad_phi([x])
    except KernelError:
        assert abs(slope * x - offset) <= 1e-14 * (1 + abs(offset))
        return
    side = np.sign(slope * x - offset) or 0
    assert grad == side * slope


def test_nothing_is_looked_at_where_nothing_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("there are no kinks to look for")

    monkeypatch.setattr(Kinks, "met", never)
    smooth = BilevelProblem("x*y + 1", "(y - x)**2/2", "x", "y").kernels
    assert smooth.kinks is None
    assert smooth.grad_phi([1.0]) == 2


@pytest.mark.parametrize("backend", ["tape", "compiled"])
@pytest.mark.parametrize("estimator", [AID(D=3, N=2, tau=1.0), Exact()])
def test_a_run_that_ends_on_a_kink_says_so_and_one_that_passes_does_not(estimator: Any, backend: Backend) -> None:
    """From 0 the estimate is 0 and nothing moves; 0.25 steps onto the kink, and back again."""
    algorithm = Descent(estimator, eta=0.25)
    ends = solve(BENT, algorithm, [[0.0], [0.25], [0.6]], steps=3, backend=backend)
    assert ends.status == (Status.KINK, Status.KINK, Status.OUT_OF_STEPS)
    assert not Status.KINK.ok
    passing = BilevelProblem("abs(y) + y", "(y - x)**2/2", "x", "y")  # on the kink the estimate is 1, and leads on
    run = solve(passing, algorithm, [0.5], steps=2, backend=backend)
    assert run.trajectory.x.ravel().tolist() == [0.5, 0.0, -0.25]
    assert run.status is Status.OUT_OF_STEPS


def test_a_kink_is_no_local_minimum_and_no_estimate() -> None:
    run = solve(BENT, Descent(Exact(), eta=0.25), [0.0], steps=2, stop=LocalMinimum(eps=1e-3))
    assert run.status is Status.KINK
    with pytest.raises(KernelError, match="the hypergradient does not exist for member 1 of the batch"):
        AID(D=3, N=2, tau=1.0).estimate(BENT, [[1.0], [0.0]])


def test_away_from_all_edges_nobody_asks_how_the_pieces_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    # DEFECT: the orders of a tube of 20 variables took 18 s, before the first value of Phi
    def asked(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Seams, "orders", property(asked))
    kernels = zoo.get("tube", d=3).problem.kernels
    assert np.isfinite(kernels.grad_phi([0.1, 3.0, -6.0])).all()
    with pytest.raises(AssertionError):
        kernels.grad_phi([float(np.e), 0.0, 0.0])
